"""What commands print and write: tables, JSON, CSV, progress."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

Progress = Callable[[int, int], object]

NAME_WIDTH = 16  # columns that a name gets at least, however narrow the terminal
BAR, BESIDE = 20, 54  # columns of a bar of progress, and of all that stands beside its name
PATIENCE = 0.5  # seconds before progress is shown


def printable(text: str) -> str:
    """Escape what would break the line or act on the terminal: names come from the file."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def number(value: float | None) -> str:
    """Four digits; a dash where nothing is defined."""
    return "-" if value is None else f"{value + 0.0:.4g}"


def shape_text(shape: Sequence[int]) -> str:
    """The lengths of an array, as 256x512."""
    return "x".join(map(str, shape)) or "scalar"


def index_text(index: Sequence[int] | None) -> str:
    """The place of a value, as 17,380."""
    return ",".join(map(str, index)) if index is not None else "-"


# Files and pipes --------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """What JSON can hold of a value: null for what is not finite, two numbers for a complex one."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "tolist"):  # of NumPy
        return plain(value.tolist())
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(record: Any) -> None:
    """Print one line of JSON that any language reads."""
    click.echo(json.dumps(plain(record), allow_nan=False))


def save_csv(path: str, titles: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Write a table with a line of titles; nothing where a value is not defined."""
    import csv

    from rmsfast.files._writers import replacing

    with replacing(path) as temporary, temporary.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        for line in lines:
            writer.writerow(index_text(cell) if isinstance(cell, tuple) else cell for cell in line)


def save_result(path: str, name: str, values: NDArray[Any]) -> None:
    """Write one array under a name."""
    from rmsfast import files

    with files.writing(path, [files.Tensor(name, values.shape, values.dtype.name)]) as put:
        put(name, tuple(slice(0, n) for n in values.shape), values)


def wrote(path: str) -> None:
    """Tell what a file that has been written holds."""
    from rmsfast import files

    found = files.open_tensors(path)
    what = [f"{each.dtype} {shape_text(each.shape)}" for each in found[:1]]
    if len(found) != 1:
        what = [f"{len(found)} tensors, {sum(each.nbytes for each in found)} bytes"]
    click.echo(f"Wrote {printable(path)}: {what[0]}")


# Terminals --------------------------------------------------------------------------------------


class Column(NamedTuple):
    """Numbers of a table, as text."""

    title: str
    cells: list[str]

    @property
    def width(self) -> int:
        """Of the widest line."""
        return max(len(line) for cell in (self.title, *self.cells) for line in cell.split("\n"))


def print_table(
    names: list[str], kinds: list[str], columns: list[Column], always: int, what: str = "tensor"
) -> None:
    """Print names, what they are in dim letters below, and numbers beside them.

    Numbers are never cut. A narrow terminal folds names, and shows no more columns than it has
    room for, but always so many. A pipe gets names whole.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    folds = console.is_terminal
    table, console.width = _table(names, kinds, columns, always, what, console.width, folds)
    with console.capture() as captured:
        console.print(table)
    lines = captured.get().rstrip("\n").split("\n")
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines))
    console.file.flush()


def _table(
    names: list[str],
    kinds: list[str],
    columns: list[Column],
    always: int,
    what: str,
    width: int,
    folds: bool,
) -> tuple[Table, int]:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    names = [printable(name) for name in names]
    widths = [column.width for column in columns]
    while sum(widths) + len(widths) + NAME_WIDTH > width and len(widths) > always:
        widths.pop()
    gap = 2 if sum(widths) + 2 * len(widths) + NAME_WIDTH <= width else 1
    taken = sum(widths) + gap * len(widths)
    texts = [line for kind in kinds for line in kind.split("\n")]
    first = max(map(cell_len, [what, *names, *texts]))
    if folds:
        first = min(max(width - taken, NAME_WIDTH), first)

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    lines = max(column.title.count("\n") for column in columns)
    table.add_column("\n" * lines + what, width=first, overflow="fold")
    for column, column_width in zip(columns, widths, strict=False):
        title = "\n" * (lines - column.title.count("\n")) + column.title
        table.add_column(title, width=column_width, justify="right")
    for i, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        cells = [column.cells[i] for column in columns[: len(widths)]]
        table.add_row(Text.assemble(name, ("\n" * bool(kind) + kind, "dim")), *cells)
    return table, first + taken


@contextmanager
def progress(what: str) -> Iterator[Progress | None]:
    """What to call with bytes done and all bytes: a terminal then shows rate and time left.

    The bar moves without them as long as nothing is done yet: the first call compiles. Nothing is
    shown elsewhere, or of what is soon done.
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _bar()
    room = max(NAME_WIDTH, bar.console.width - BESIDE)
    text = printable(what)
    task = bar.add_task(text if len(text) <= room else f"{text[: room - 1]}…", total=None)
    starter = Timer(PATIENCE, bar.start)
    starter.start()
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        starter.cancel()
        starter.join()
        if bar.live.is_started:
            bar.stop()


def _bar() -> Any:
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(BAR),
        progress.TaskProgressColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        refresh_per_second=4,  # each refresh takes a core some milliseconds
        disable=console.is_dumb_terminal,
    )
