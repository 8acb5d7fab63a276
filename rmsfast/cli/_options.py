"""Options and arguments that several commands share, and the checks before any work."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Decorator = Callable[[Command], Command]

FORMATS = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float16")
_Path = click.Path()


def combined(*decorators: Callable[..., Any]) -> Callable[[Command], Command]:
    """Decorators in one, in the order in which help shows them."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _set_threads(context: click.Context, _: click.Parameter, threads: int | None) -> None:
    if threads is not None:
        from rmsfast import set_num_threads

        set_num_threads(threads)
        context.call_on_close(lambda: set_num_threads(None))


def _lengths(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        raise click.BadParameter(f"must be like 600000x384 or -1x384, got {text!r}") from None


def _names(
    context: click.Context, _: click.Parameter, incomplete: str
) -> list[str]:  # for the completion of a shell
    from rmsfast import files

    try:
        found = files.open_tensors(context.params["file"])
    except (KeyError, OSError, ValueError, ImportError):
        return []
    return [each.name for each in found if each.name.startswith(incomplete)]


def file(name: str = "file") -> Callable[[Command], Command]:
    """An argument that names a file of tensors."""
    return click.argument(name, type=_Path)


THREADS = click.option(
    "--threads",
    type=click.IntRange(min=1),
    callback=_set_threads,
    expose_value=False,
    metavar="N",
    help="At most so many; the result does not depend on it.",
)


def which(axis: int = -1, holds: str = "the coordinates of a row") -> Callable[[Command], Command]:
    """Which tensors of a file are read, along which axis, and how."""
    return combined(
        click.option(
            "--tensor",
            multiple=True,
            metavar="NAME",
            shell_complete=_names,
            help="The tensor to read, or a quoted pattern of names, as '*.weight'; may be "
            "repeated.",
        ),
        click.option(
            "--axis",
            type=int,
            default=axis,
            show_default=True,
            metavar="N",
            help=f"The axis that holds {holds}.",
        ),
        click.option(
            "--format",
            type=click.Choice(FORMATS),
            help="Read unsigned integers (or void) of the width of this format as its codes, "
            "and other tensors as they are labelled.",
        ),
        click.option(
            "--dtype", metavar="D", help="Read raw binary of this dtype or storage format."
        ),
        click.option(
            "--shape",
            callback=_lengths,
            metavar="MxN",
            help="Of raw binary; one length may be -1. Default: -1.",
        ),
        THREADS,
    )


WHICH = which()
JSON = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, non-finite numbers as null."
)
CSV = click.option("--csv", type=_Path, metavar="FILE.csv", help="Write the table as CSV.")
PLOT = click.option("--plot", type=_Path, metavar="FILE.png", help="Draw a picture.")


def _written(required: bool) -> Callable[[Command], Command]:
    return click.option(
        "-o",
        "--output",
        required=required,
        type=_Path,
        metavar="OUT",
        help="File to write: .npy, .safetensors, .h5, .hdf5 or .zarr. An existing one is replaced "
        "once the new one is complete.",
    )


OUTPUT, RESULT = _written(required=True), _written(required=False)


def options_named(text: str) -> str:
    """What functions say of their arguments, said of options."""
    text = text.replace("dtype and shape be given", "--dtype and --shape be given")
    text = re.sub(r"\bformat='(\w+)'", r"--format \1", text)
    return re.sub("open_tensors: (dtype|shape) ", r"--\1 ", text)


class _Command(click.Command):
    """A command that names its options where the functions it calls name their arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # which click forgets where an option lacks an argument
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, TypeError) as error:
            text = self._worded(str(error))
            if text == str(error):
                raise
            raise ValueError(text) from error

    def _worded(self, text: str) -> str:
        for option in self.params:
            if option.name == "zero" and isinstance(option.type, click.Choice):
                remedies = " or ".join(f"--zero {each}" for each in option.type.choices[1:])
                text = text.replace("under zero='raise'", f"without {remedies}")
        return options_named(text)


def command(example: str, name: str | None = None) -> Callable[[Command], click.Command]:
    """A command whose help ends in an example."""
    return click.command(name, cls=_Command, epilog=f"Example: {example}")


def names(given: Sequence[str]) -> tuple[str, ...] | None:
    """Names of tensors as the functions of files take them."""
    return tuple(given) or None


def vector(path: str, name: str | None) -> Any:
    """The one vector of a file, or that of a name."""
    from rmsfast._formats import decoded
    from rmsfast.files._rows import check_readable, select

    chosen = select(path, name, None)
    check_readable(path, [chosen])
    values = chosen.read()
    return decoded(values, chosen.format) if chosen.format else values


def check_outputs(
    *,
    inputs: Sequence[str] = (),
    csv: str | None = None,
    plot: str | None = None,
    result: str | None = None,
    others: Sequence[str | None] = (),
) -> None:
    """Refuse, before any work, what could only fail at its end."""
    if result is not None:
        from rmsfast.files._writers import writer_of

        writer_of(result)
    for path in (csv, plot, result, *others):
        if path is None:
            continue
        if not Path(path).parent.is_dir():
            raise ValueError(f"{path}: no such folder")
        for source in inputs:
            if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
                raise ValueError(f"{path}: output must not be the input file")
    if csv and Path(csv).suffix.lower() != ".csv":
        raise ValueError(f"{csv}: a table must end in .csv, got {Path(csv).suffix!r}")
    if plot:
        if Path(plot).suffix.lower() != ".png":
            raise ValueError(f"{plot}: a plot must end in .png, got {Path(plot).suffix!r}")
        if not find_spec("matplotlib"):
            raise ValueError('--plot needs matplotlib, try: pip install "rmsfast[plot]"')


def check_writable(*paths: str | None) -> None:
    """Refuse, before any work, files that cannot be written, as the system does."""
    for path in filter(None, paths):
        is_new = not os.path.lexists(path)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
        if is_new:
            os.remove(path)
