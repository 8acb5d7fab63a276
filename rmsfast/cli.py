"""The command line: `rmsfast describe`, `rms`, `demo`, `bench`, `warmup` and `info`.

Whatever is wrong with a file ends as one plain line on standard error and exit code 2.
"""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmsfast import __version__

if TYPE_CHECKING:  # loaded by the commands that need them: help and version answer at once
    import numpy as np
    from numpy.typing import NDArray
    from rich.table import Table

    from rmsfast.files import Summary

__all__ = ["cli", "main"]

_BESIDE_PEAKS = 8  # columns of numbers that are always shown
_NAME_WIDTH = 16  # columns that a name gets at least, however narrow the terminal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may not fit the encoding of a pipe
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(arguments, prog_name="rmsfast", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:
        if error.filename is None:
            _discard_output()
        return _fault(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except (ValueError, ImportError) as error:
        return _fault(str(error))
    return status or 0


def _fault(text: str) -> int:
    click.echo(f"rmsfast: {_printable(text)}", err=True)
    return 2


def _discard_output() -> None:
    """Keep the interpreter from flushing, once more, what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _printable(text: str) -> str:
    """Escape what would break the line or act on the terminal: names come from the file."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """Root mean squares of the tensors in files larger than memory.

    A FILE is .npy, .npz, .safetensors (or the .json index of its shards), .zarr, .h5 or .hdf5; or a
    folder or quoted pattern of shards. bfloat16 and float8 are included.
    """


def _tensor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorator in (
        click.option(
            "--format",
            type=click.Choice(["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"]),
            help="Read unsigned integers (or void) of the width of this format as its codes, "
            "and other tensors as they are labelled.",
        ),
        click.option(
            "--axis",
            type=int,
            default=-1,
            show_default=True,
            metavar="N",
            help="The axis that holds the coordinates of a row.",
        ),
        click.option("--tensor", metavar="NAME", help="The only tensor to read."),
        click.argument("file", type=click.Path()),
    ):
        command = decorator(command)
    return command


@cli.command()
@_tensor_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON, non-finite numbers as null.")
def describe(file: str, tensor: str | None, axis: int, format: str | None, as_json: bool) -> None:
    """Summarise the row RMS of each tensor of FILE.

    A row is a vector along the axis; a 0-d tensor is one row of one coordinate. RMS is that of the
    whole tensor. Minimum, median and maximum are over the rows without NaN, those with Inf
    included. In a zero row every coordinate is 0; a row with NaN and Inf counts in both columns.
    Peak is the largest absolute value of the rows without NaN, share max the largest part that one
    coordinate has of the sum of squares of its row; a narrow terminal leaves these to --json. What
    is not defined, as the RMS of no values, is "-" (null in JSON). A tensor that cannot be read is
    listed with the reason.
    """
    from rmsfast import files

    summaries = files.describe(file, tensor=tensor, axis=axis, format=format)
    if as_json:
        record = {"file": file, "tensors": [_json_record(summary) for summary in summaries]}
        click.echo(json.dumps(record, allow_nan=False))
    else:
        _print_report(file, axis, summaries)


@cli.command()
@_tensor_options
@click.option(
    "-o", "--output", required=True, type=click.Path(), metavar="OUT.npy", help="File to write."
)
def rms(file: str, output: str, tensor: str | None, axis: int, format: str | None) -> None:
    """Write the row RMS of one tensor of FILE to OUT.npy.

    The result is float64 for float64 and integers, float32 for everything narrower, and has the
    shape of the tensor without the axis. An existing OUT.npy is replaced once the new one is
    complete.
    """
    from rmsfast import files

    if Path(output).suffix.lower() != ".npy":
        raise ValueError(f"{output}: output must end in .npy, got {Path(output).suffix!r}")
    if os.path.exists(output) and os.path.exists(file) and os.path.samefile(file, output):
        raise ValueError(f"{output}: output must not be the input file")
    result = files.row_rms(file, tensor=tensor, axis=axis, format=format)
    files.save_npy(output, result)
    click.echo(f"Wrote {_printable(output)}: {result.dtype.name} {_shape(result.shape)}")


@cli.command()
def demo() -> None:
    """Write a small file of activations and run the commands on it.

    It is a bfloat16 .safetensors like the residual stream of a model, 6 layers of 256 tokens and
    512 coordinates: the RMS grows with depth, two coordinates are massive, and one token of one
    layer is a zero row. The folder is kept.
    """
    folder = Path(tempfile.mkdtemp(prefix="rmsfast-demo-"))
    _write_activations(folder / "activations.safetensors")
    activations, result = (
        str(folder / name) for name in ("activations.safetensors", "row_rms.npy")
    )
    click.echo(f"Wrote {activations}")
    for words in (
        ["describe", activations],
        ["rms", activations, "--tensor", "resid.5", "-o", result],
        ["describe", result],
    ):
        click.echo(f"\n$ {shlex.join(['rmsfast', *words])}")
        cli.main(words, prog_name="rmsfast", standalone_mode=False)


@cli.command()
@click.option("--quick", is_flag=True, help="Few sizes, threads, dtypes and rounds: some seconds.")
@click.option("--json", "output", type=click.Path(), metavar="FILE", help="Store all figures.")
@click.option("--plot", type=click.Path(), metavar="FILE.png", help="Draw rates and a roofline.")
@click.option(
    "--compare",
    type=click.Path(),
    nargs=2,
    metavar="OLD.json NEW.json",
    help="Measure nothing; print the ratios of two stored runs.",
)
@click.option(
    "--fail-under",
    type=float,
    metavar="RATIO",
    help="With --compare: exit 1 if a ratio and all of its spread are less.",
)
def bench(
    quick: bool,
    output: str | None,
    plot: str | None,
    compare: tuple[str, str] | None,
    fail_under: float | None,
) -> int:
    """Measure what this machine can do, and what the package makes of it.

    For working sets from half of the first cache to four times the last one, as far as memory
    allows, and from one thread to all: the rates of reading, copying and writing, and of each
    function by dtype and layout, also as a share of the rate of reading (of copying, for what
    writes as much as it reads), with the largest error in ulps of a few rows. Exit code 1 if an
    error is beyond its bound.
    """
    from rmsfast import roofline

    if compare:
        if output or plot or quick:
            raise ValueError("bench: --compare goes with --fail-under only")
        old, new = (_stored_report(path) for path in compare)
        return _print_comparison(roofline.compare(old, new), fail_under)
    if fail_under is not None:
        raise ValueError("bench: --fail-under needs --compare")
    _check_before_measuring(output, plot)
    report = roofline.measure(quick=quick, show=click.echo)
    if output:
        Path(output).write_text(json.dumps(report, indent=1) + "\n")
    if plot:
        from rmsfast import plots

        plots.report(report, plot)
    return int(not all(row["right"] for row in report["rows"]))


@cli.command()
@click.argument("dtypes", nargs=-1, metavar="[DTYPE]...")
def warmup(dtypes: tuple[str, ...]) -> None:
    """Compile for arrays of each DTYPE, by default float32 and float64, ahead of use.

    Run while an image is built, for processors of the kind that it will run on; `rmsfast info`
    names the folder in which the code is kept.
    """
    from rmsfast import settings

    try:
        settings.warmup(*([dtypes] if dtypes else []))
    except (ImportError, TypeError) as error:
        raise ValueError(str(error)) from None


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(as_json: bool) -> None:
    """Print versions, processor features, threads and the cache of compiled code."""
    from rmsfast import settings

    found = settings.show_config("dicts")
    if as_json:
        click.echo(json.dumps(found))
        return
    for topic, facts in (found or {}).items():
        click.echo(topic)
        for name, value in (facts or {"compiled code": "none, Numba cannot be had"}).items():
            text = " ".join(value) if isinstance(value, list) else "-" if value is None else value
            click.echo(f"  {name:10} {text}")


# Output -----------------------------------------------------------------------------------------


def _json_record(summary: Summary) -> dict[str, Any]:
    fields = asdict(summary)
    if summary.error is not None:
        return {name: fields[name] for name in ("name", "shape", "dtype", "error")}
    del fields["error"]
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in fields.items()
    }


def _print_report(file: str, axis: int, summaries: list[Summary]) -> None:
    from rich.console import Console

    click.echo(f"{_printable(file)}: row RMS along axis {axis}")
    read = [summary for summary in summaries if summary.error is None]
    if read:
        console = Console(highlight=False, markup=False, emoji=False)
        table, console.width = _table(read, console.width)
        console.print(table)
    for summary in summaries:
        if summary.error is not None:
            what = f"{summary.name} ({summary.dtype} {_shape(summary.shape)})"
            click.echo(f"not read: {_printable(f'{what}: {summary.error}')}")
    if not summaries:
        click.echo("no tensors")


def _table(summaries: list[Summary], width: int) -> tuple[Table, int]:
    """Lay out a table and give its width: numbers are never cut, names fold into what is left."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    headers = (
        "rows",
        "RMS",
        "row RMS\nmin",
        "median",
        "max",
        "zero\nrows",
        "NaN\nrows",
        "Inf\nrows",
        "peak",
        "peak\nindex",
        "share\nmax",
    )
    numbers = [
        (
            str(s.rows),
            *map(_number, (s.rms, s.row_rms_min, s.row_rms_median, s.row_rms_max)),
            *map(str, (s.zero_rows, s.nan_rows, s.inf_rows)),
            _number(s.peak),
            ",".join(map(str, s.peak_index or ())) or "-",
            _number(s.peak_share_max),
        )
        for s in summaries
    ]
    names = [_printable(s.name) for s in summaries]
    kinds = [f"{s.dtype} {_shape(s.shape)}" for s in summaries]
    widths = [
        max(map(len, [*header.split("\n"), *column]))
        for header, column in zip(headers, zip(*numbers, strict=True), strict=True)
    ]
    if sum(widths) + len(widths) + _NAME_WIDTH > width:
        widths = widths[:_BESIDE_PEAKS]  # peaks are for wide terminals, and JSON
    gap = 2 if sum(widths) + 2 * len(widths) + _NAME_WIDTH <= width else 1
    taken = sum(widths) + gap * len(widths)
    first = min(max(width - taken, _NAME_WIDTH), max(map(cell_len, names + kinds)))

    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False)
    table.add_column("tensor", width=first, overflow="fold", vertical="bottom")
    for header, column_width in zip(headers, widths, strict=False):
        table.add_column(header, width=column_width, justify="right")
    for name, kind, cells in zip(names, kinds, numbers, strict=True):
        table.add_row(Text.assemble(name, "\n", (kind, "dim")), *cells[: len(widths)])
    return table, first + taken


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


# Benchmark --------------------------------------------------------------------------------------


def _check_before_measuring(output: str | None, plot: str | None) -> None:
    """Refuse what would fail only after minutes of measuring."""
    for path in filter(None, (output, plot)):
        if not Path(path).parent.is_dir():
            raise ValueError(f"{path}: no such folder")
    if plot:
        if Path(plot).suffix.lower() != ".png":
            raise ValueError(f"{plot}: a plot must end in .png, got {Path(plot).suffix!r}")
        if not find_spec("matplotlib"):
            raise ValueError('bench: --plot needs matplotlib, try: pip install "rmsfast[plot]"')


def _stored_report(path: str) -> dict[str, Any]:
    try:
        report = json.loads(Path(path).read_bytes())
        for row in report["rows"]:
            row["problem"], row["working_set"], row["threads"], row["p10"] / row["p90"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: not a file that rmsfast bench --json wrote") from None
    return report  # type: ignore[no-any-return]


def _print_comparison(ratios: list[dict[str, Any]], least: float | None) -> int:
    """Print ratios, the smallest first, and return 1 if one is beyond what is allowed."""
    from rmsfast import roofline

    if not ratios:
        raise ValueError("bench: the two files have no row in common")
    click.echo(roofline.RATIO_TITLES)
    failed = [] if least is None else roofline.failed(ratios, least)
    for ratio in ratios:
        click.echo(roofline.ratio_line(ratio) + " FAILED" * (ratio in failed))
    middle = statistics.median(ratio["ratio"] for ratio in ratios)
    click.echo(
        f"median of {len(ratios)} ratios of shares of the ceiling, new over old: {middle:.3f}"
    )
    click.echo(f"{roofline.agreeing(ratios)} of them are 1 within their spread")
    return int(bool(failed))


# Demo -------------------------------------------------------------------------------------------


def _write_activations(path: Path) -> None:
    import numpy as np

    layers, tokens, width = 6, 256, 512
    rng = np.random.default_rng(0)
    stream = np.zeros((tokens, width), np.float32)
    header, blobs = {}, []
    for layer in range(layers):
        stream += rng.normal(0, 1.5**layer, stream.shape).astype(np.float32)
        stored = stream.copy()
        stored[:, [107, 380]] *= 40  # massive coordinates
        if layer == 3:
            stored[17] = 0
        blobs.append(_bfloat16_codes(stored).astype("<u2").tobytes())
        size = len(blobs[-1])
        header[f"resid.{layer}"] = {
            "dtype": "BF16",
            "shape": stored.shape,
            "data_offsets": [layer * size, (layer + 1) * size],
        }
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def _bfloat16_codes(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round finite numbers to the nearest bfloat16, ties to even: the upper half of a float32."""
    import numpy as np

    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
