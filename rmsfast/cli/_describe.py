"""Commands that look at a file: `describe`, `rms`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from rmsfast.cli import _options
from rmsfast.cli._jobs import DASK, jobs
from rmsfast.cli._output import (
    Column,
    index_text,
    number,
    print_json,
    print_table,
    printable,
    progress,
    save_result,
    shape_text,
    wrote,
)
from rmsfast.cli._records import (
    check_any_read,
    drawn,
    print_unread,
    record,
    row_text,
    save_records,
)

if TYPE_CHECKING:  # loaded by the commands that need them: help and version answer at once
    from rmsfast.files import Summary

_LINES = 1 << 16  # of numbers that are printed in one go


# describe ---------------------------------------------------------------------------------------


@_options.command("rmsfast describe model.safetensors --tensor '*.weight'")
@_options.file()
@_options.WHICH
@DASK
@_options.JSON
@_options.CSV
@_options.PLOT
def describe(
    file: str,
    tensor: tuple[str, ...],
    dask: str | None,
    as_json: bool,
    csv: str | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Summarise the row RMS of each tensor.

    A row is a vector along the axis; a 0-d tensor is one row of one coordinate. RMS is that of the
    whole tensor. Minimum, median and maximum are over the rows without NaN, those with Inf
    included. In a zero row every coordinate is 0; a row with NaN and Inf counts in both columns.
    Peak is the largest absolute value of the rows without NaN, share max the largest part that one
    coordinate has of the sum of squares of its row. A narrow terminal leaves the last columns to
    --json and --csv. What is not defined, as the RMS of no values, is "-" (null in JSON). A tensor
    that cannot be read is listed with the reason; if there is no other, that is an error.

    In JSON, worst lists the largest rows. The peak_index of a tensor is a place in it, as
    [17, 380]; that of a row is the coordinate, beside its row.
    """
    from rmsfast import files

    _options.check_outputs(inputs=[file], csv=csv, plot=plot)
    with jobs(f"describe {file}", dask, [file], how) as (place, options):
        found = place.describe(file, tensor=_options.names(tensor), **options)
    check_any_read(file, found)
    if plot:
        from rmsfast import plots

        shown, title = drawn(found, "row_rms_max", file)
        tables = {each.name: files.describe_rows(file, tensor=each.name, **how) for each in shown}
        plots.describe(tables, plot, title=title)
    worst = ("rms", "peak", "peak_index", "peak_share")
    records = [record(each, how["axis"], worst) for each in found]
    if csv:
        save_records(csv, records)
    if as_json:
        print_json({"file": file, "tensors": records})
        return
    click.echo(f"{printable(file)}: row RMS along axis {how['axis']}")
    _print_summaries([each for each in found if each.error is None])
    _print_largest(found)
    print_unread(found, "not read")
    if not found:
        click.echo("no tensors")


def _print_summaries(found: list[Summary]) -> None:
    if not found:
        return
    columns = [
        Column("rows", [str(s.rows) for s in found]),
        Column("RMS", [number(s.rms) for s in found]),
        Column("row RMS\nmin", [number(s.row_rms_min) for s in found]),
        Column("median", [number(s.row_rms_median) for s in found]),
        Column("max", [number(s.row_rms_max) for s in found]),
        Column("zero\nrows", [str(s.zero_rows) for s in found]),
        Column("NaN\nrows", [str(s.nan_rows) for s in found]),
        Column("Inf\nrows", [str(s.inf_rows) for s in found]),
        Column("peak", [number(s.peak) for s in found]),
        Column("peak\nindex", [index_text(s.peak_index) for s in found]),
        Column("share\nmax", [number(s.peak_share_max) for s in found]),
    ]
    kinds = [f"{s.dtype} {shape_text(s.shape)}" for s in found]
    print_table([s.name for s in found], kinds, columns, always=8)


def _print_largest(found: Sequence[Any]) -> None:
    """Name the row of the largest RMS, and the coordinate that makes it so."""
    rows = [
        (each.name, row)
        for each in found
        for row in (() if each.worst is None else each.worst)
        if row["rms"] > 0 and row["peak_index"] >= 0
    ]
    if not rows:
        return
    name, row = max(rows, key=lambda item: float(item[1]["rms"]))
    place = f"{name}, row {row_text(row)}" if len(found) > 1 else f"row {row_text(row)}"
    holds = "is infinite"
    if not math.isinf(row["peak"]):
        holds = f"holds {number(100 * row['peak_share'])} % of its squares"
    size = f"largest row RMS: {number(row['rms'])} in {place}"
    click.echo(printable(f"{size}: coordinate {row['peak_index']} {holds}"))


# rms --------------------------------------------------------------------------------------------


@_options.command("rmsfast rms model.safetensors --tensor embed.weight -o rms.npy")
@_options.file()
@_options.WHICH
@_options.JSON
@_options.RESULT
def rms(file: str, tensor: tuple[str, ...], as_json: bool, output: str | None, **how: Any) -> None:
    """Print or write the row RMS of one tensor.

    Printed is one number a line, in C order of the rows, with all digits that it has. The result
    is float64 for float64 and integers, float32 for everything narrower, and has the shape of the
    tensor without the axis.
    """
    import numpy as np

    from rmsfast import files
    from rmsfast.files._rows import select

    _options.check_outputs(inputs=[file], result=output)
    which = {"tensor": _options.names(tensor), **how}
    with progress(f"rms {file}") as told:
        found = files.row_rms(file, progress=told, **which)
    name = select(file, which["tensor"], how["format"], how["dtype"], how["shape"]).name
    if output:
        save_result(output, name, found)
    if as_json:
        about = {"file": file, "name": name, "dtype": found.dtype.name, "axis": how["axis"]}
        print_json({**about, "shape": found.shape, "rms": found})
    elif output:
        wrote(output)
    else:
        flat = np.ravel(found)
        for first in range(0, flat.size, _LINES):
            click.echo("\n".join(map(str, flat[first : first + _LINES])))
