"""Commands that look at files: `describe`, `rms`, `compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from rmsfast.cli import _options
from rmsfast.cli._output import (
    Column,
    index_text,
    number,
    print_json,
    print_table,
    printable,
    progress,
    save_csv,
    shape_text,
)

if TYPE_CHECKING:  # loaded by the commands that need them: help and version answer at once
    from rmsfast.files import Difference, Summary

_LINES = 1 << 16  # of numbers that are printed in one go


# describe ---------------------------------------------------------------------------------------


@_options.command("rmsfast describe model.safetensors --tensor '*.weight'")
@_options.file()
@_options.WHICH
@_options.JSON
@_options.CSV
def describe(
    file: str,
    tensor: tuple[str, ...],
    as_json: bool,
    csv: str | None,
    **how: Any,
) -> None:
    """Summarise the row RMS of each tensor.

    A row is a vector along the axis; a 0-d tensor is one row of one coordinate. RMS is that of the
    whole tensor. Minimum, median and maximum are over the rows without NaN, those with Inf
    included. In a zero row every coordinate is 0; a row with NaN and Inf counts in both columns.
    Peak is the largest absolute value of the rows without NaN, share max the largest part that one
    coordinate has of the sum of squares of its row. A narrow terminal leaves the last columns to
    --json and --csv. What is not defined, as the RMS of no values, is "-" (null in JSON). A tensor
    that cannot be read is listed with the reason.
    """
    from rmsfast import files

    _options.check_outputs(inputs=[file], csv=csv)
    with progress(f"describe {file}") as told:
        found = files.describe(file, tensor=_options.names(tensor), progress=told, **how)
    records = [_record(each) for each in found]
    if csv:
        save_records(csv, records)
    if as_json:
        print_json({"file": file, "tensors": records})
        return
    click.echo(f"{printable(file)}: row RMS along axis {how['axis']}")
    _print_summaries([each for each in found if each.error is None])
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


# rms --------------------------------------------------------------------------------------------


@_options.command("rmsfast rms model.safetensors --tensor embed.weight -o rms.npy")
@_options.file()
@_options.WHICH
@_options.JSON
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OUT",
    help="Write to .npy, .safetensors, .h5, .hdf5 or .zarr. An existing file is replaced once the "
    "new one is complete.",
)
def rms(file: str, tensor: tuple[str, ...], as_json: bool, output: str | None, **how: Any) -> None:
    """Print or write the row RMS of one tensor.

    Printed is one number a line, in C order of the rows, with all digits that it has. The result
    is float64 for float64 and integers, float32 for everything narrower, and has the shape of the
    tensor without the axis.
    """
    import numpy as np

    from rmsfast import files
    from rmsfast.files._rows import select
    from rmsfast.files._writers import writer_of

    _options.check_outputs(inputs=[file], others=[output])
    if output:
        writer_of(output)
    which = {"tensor": _options.names(tensor), **how}
    with progress(f"rms {file}") as told:
        found = files.row_rms(file, progress=told, **which)
    name = select(file, which["tensor"], how["format"], how["dtype"], how["shape"]).name
    if output:
        whole = tuple(slice(0, n) for n in found.shape)
        with files.writing(output, [files.Tensor(name, found.shape, found.dtype.name)]) as put:
            put(name, whole, found)
    if as_json:
        about = {"file": file, "name": name, "dtype": found.dtype.name, "axis": how["axis"]}
        print_json({**about, "shape": found.shape, "rms": found})
    elif output:
        click.echo(f"Wrote {printable(output)}: {found.dtype.name} {shape_text(found.shape)}")
    else:
        flat = np.ravel(found)
        for first in range(0, flat.size, _LINES):
            click.echo("\n".join(map(str, flat[first : first + _LINES])))


# compare ----------------------------------------------------------------------------------------


@_options.command("rmsfast compare model.safetensors model-bf16.safetensors --fail-over 0.01")
@click.argument("file", type=click.Path(), metavar="REF")
@click.argument("file_hat", type=click.Path(), metavar="APPROX")
@_options.WHICH
@click.option(
    "--reference",
    type=click.Choice(["x", "x_hat"]),
    default="x",
    show_default=True,
    help="Divide the RMSE by the RMS of the tensor in REF (x) or in APPROX (x_hat).",
)
@click.option(
    "--fail-over",
    type=float,
    metavar="LIMIT",
    help="Exit 1 if a relative RMSE is more than this, or not a number, or if a tensor of REF "
    "cannot be compared.",
)
@_options.JSON
@_options.CSV
def compare(
    file: str,
    file_hat: str,
    tensor: tuple[str, ...],
    reference: str,
    fail_over: float | None,
    as_json: bool,
    csv: str | None,
    **how: Any,
) -> int:
    """Tell how far APPROX is from REF, tensor by tensor.

    The worst comes first. Tensors go together by name; of files that hold one tensor each, these
    two do, whatever their names, and formats and dtypes may differ. The relative RMSE is that of
    the whole tensor; over a tensor of zeros it is inf, or NaN where both are zeros. A tensor that
    cannot be compared is listed with the reason; if there is no other, that is an error.
    """
    from rmsfast import files

    _options.check_outputs(inputs=[file, file_hat], csv=csv)
    with progress(f"compare {file_hat}") as told:
        found = files.compare(file, file_hat, tensor=_options.names(tensor), progress=told, **how)
    if found and all(each.error is not None for each in found):
        raise ValueError(f"{file_hat}: tensor {found[0].name!r}: {found[0].error}")
    found = sorted((_over(each, reference) for each in found), key=_concern)
    records = [_record(each) for each in found]
    if csv:
        save_records(csv, records)
    if as_json:
        about = {"file": file, "file_hat": file_hat, "reference": reference}
        print_json({**about, "tensors": records})
    else:
        size = f"RMS of {reference}"
        click.echo(printable(f"{file_hat} beside {file}: relative RMSE over the {size}"))
        _print_differences([each for each in found if each.error is None])
        print_unread(found, "not compared")
    return int(fail_over is not None and any(_beyond(each, fail_over) for each in found))


def _over(found: Difference, reference: str) -> Difference:
    """The difference, relative to what was chosen."""
    if reference == "x" or found.rmse is None or found.rms_x_hat is None:
        return found
    size = found.rms_x_hat
    relative = found.rmse / size if size else math.inf if found.rmse else math.nan
    return replace(found, relative_rmse=relative)


def _concern(found: Difference) -> float:
    """What comes first: NaN, then the largest; at the end what has no value."""
    value = found.relative_rmse
    return math.inf if value is None else -math.inf if math.isnan(value) else -value


def _beyond(found: Difference, limit: float) -> bool:
    if found.error is not None:
        return True
    return found.relative_rmse is not None and not found.relative_rmse <= limit


def _print_differences(found: list[Difference]) -> None:
    if not found:
        return
    columns = [
        Column("rows", [str(d.rows) for d in found]),
        Column("relative\nRMSE", [number(d.relative_rmse) for d in found]),
        Column("RMSE", [number(d.rmse) for d in found]),
        Column("RMS", [number(d.rms_x) for d in found]),
        Column("row RMSE\nmedian", [number(d.row_rmse_median) for d in found]),
        Column("max", [number(d.row_rmse_max) for d in found]),
        Column("equal\nrows", [str(d.equal_rows) for d in found]),
        Column("NaN\nrows", [str(d.nan_rows) for d in found]),
    ]
    kinds = [
        f"{d.dtype} {shape_text(d.shape)}" + f"\nas {d.dtype_hat}" * (d.dtype_hat != d.dtype)
        for d in found
    ]
    print_table([d.name for d in found], kinds, columns, always=4)


# Records ----------------------------------------------------------------------------------------


def _record(found: Any) -> dict[str, Any]:
    """The fields of a summary by name; of a tensor that could not be read, why."""
    fields = asdict(found)
    if found.error is not None:
        return {name: fields[name] for name in ("name", "shape", "dtype", "error")}
    del fields["error"]
    return fields


def save_records(path: str, records: Sequence[dict[str, Any]]) -> None:
    """Write records as CSV, with a column for each name that any of them has."""
    titles = list(dict.fromkeys(title for record in records for title in record))
    save_csv(path, titles, ([record.get(title) for title in titles] for record in records))


def print_unread(found: Sequence[Any], what: str) -> None:
    """List what could not be read, with the reasons."""
    for each in found:
        if each.error is not None:
            name = f"{each.name} ({each.dtype} {shape_text(each.shape)})"
            click.echo(f"{what}: {printable(f'{name}: {each.error}')}")
