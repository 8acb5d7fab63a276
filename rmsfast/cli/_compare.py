"""The command `compare`."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from rmsfast.cli import _options
from rmsfast.cli._jobs import DASK, jobs
from rmsfast.cli._output import (
    Column,
    number,
    print_json,
    print_table,
    printable,
    shape_text,
)
from rmsfast.cli._records import check_any_read, drawn, print_unread, record, save_records

if TYPE_CHECKING:
    from rmsfast.files import Difference

NAMED = 3  # tensors in a line that tells why a comparison fails


@_options.command("rmsfast compare model.safetensors model-bf16.safetensors --fail-over 0.01")
@click.argument("file", type=click.Path(), metavar="REF")
@click.argument("file_hat", type=click.Path(), metavar="APPROX")
@_options.WHICH
@click.option(
    "--reference",
    type=click.Choice(["x", "x_hat", "mean", "range", "std", "max"]),
    default="x",
    show_default=True,
    help="Divide the RMSE by the RMS of the tensor in REF (x) or in APPROX (x_hat); or by |mean|, "
    "range, standard deviation or largest absolute value of that in REF.",
)
@click.option(
    "--fail-over",
    type=float,
    metavar="LIMIT",
    help="Exit 1 if a relative RMSE is more than this, or not a number though the two differ, or "
    "if a tensor of REF cannot be compared.",
)
@DASK
@_options.JSON
@_options.CSV
@_options.PLOT
def compare(
    file: str,
    file_hat: str,
    tensor: tuple[str, ...],
    dask: str | None,
    reference: str,
    fail_over: float | None,
    as_json: bool,
    csv: str | None,
    plot: str | None,
    **how: Any,
) -> int:
    """Tell how far APPROX is from REF, tensor by tensor.

    The worst comes first. Tensors go together by name, or the only one of each file (in REF: or
    that --tensor names) whatever its name; formats and dtypes may differ. The relative RMSE is
    that of the whole tensor; over a tensor of zeros it is inf, or NaN where both are zeros. A
    tensor that cannot be compared is listed with the reason; if there is no other, that is an
    error.

    In JSON, worst lists the rows of the largest RMSE. The max_error_index of a tensor is a place
    in it, as [17, 380]; that of a row is the coordinate, beside its row.
    """
    from rmsfast import files

    _options.check_outputs(inputs=[file, file_hat], csv=csv, plot=plot)
    with jobs(f"compare {file_hat}", dask, [file, file_hat], how) as (place, options):
        found = place.compare(file, file_hat, tensor=_options.names(tensor), **options)
    check_any_read(file_hat, found)
    sizes = _sizes(file, reference, found, how)
    found = sorted((_over(each, sizes.get(each.name)) for each in found), key=_concern)
    if plot:
        from rmsfast import plots

        shown, title = drawn(found, "relative_rmse", f"{file_hat} beside {file}")
        tables = {d.name: files.compare_rows(file, file_hat, tensor=d.name, **how) for d in shown}
        plots.compare(tables, plot, title=title)
    names = ("rmse", "relative_rmse", "max_abs_error", "max_error_index")
    records = [record(each, how["axis"], names) for each in found]
    if csv:
        save_records(csv, records)
    if as_json:
        about = {"file": file, "file_hat": file_hat, "reference": reference}
        print_json({**about, "tensors": records})
    else:
        size = f"RMS of {reference}" if reference.startswith("x") else f"{reference} of x"
        click.echo(printable(f"{file_hat} beside {file}: relative RMSE over the {size}"))
        _print_differences([each for each in found if each.error is None])
        print_unread(found, "not compared")
        if not found:
            click.echo("no tensors")
    return 0 if fail_over is None else _verdict(found, fail_over)


def _sizes(
    file: str, reference: str, found: list[Difference], how: dict[str, Any]
) -> dict[str, float]:
    """What the RMSE of each tensor is divided by, but for the RMS of x."""
    if reference == "x":
        return {}
    if reference == "x_hat":
        return {each.name: each.rms_x_hat for each in found if each.rms_x_hat is not None}
    from rmsfast import files

    names = [each.name for each in found if each.rmse is not None]
    sizes = {}
    described: list[Any] = files.describe(file, tensor=names, **how)
    for each in described:
        if (whole := each.whole) is not None:
            about = {"mean": abs(whole.mean), "std": whole.std, "max": whole.peak}
            about["range"] = whole.max - whole.min
            sizes[each.name] = float(about[reference])
    return sizes


def _over(found: Difference, size: float | None) -> Difference:
    """The difference, relative to what was chosen."""
    if size is None or found.rmse is None:
        return found
    relative = found.rmse / size if size else math.inf if found.rmse else math.nan
    return replace(found, relative_rmse=relative)


def _concern(found: Difference) -> float:
    """What comes first: NaN, then the largest; at the end what has no value."""
    value = _relative(found)
    return math.inf if value is None else -math.inf if math.isnan(value) else -value


def _relative(found: Difference) -> float | None:
    """The relative RMSE, 0 of what is equal, also where that is 0/0."""
    return 0.0 if found.rmse == 0 else found.relative_rmse


def _verdict(found: list[Difference], limit: float) -> int:
    """Exit code under a limit; why it is 1 is told."""
    sizes = {each.name: size for each in found if (size := _relative(each)) is not None}
    over = [f"{number(size)} in {name!r}" for name, size in sizes.items() if size > limit]
    unknown = [repr(name) for name, size in sizes.items() if math.isnan(size)]
    unread = [repr(each.name) for each in found if each.error is not None]
    for what, names in (
        (f"relative RMSE is more than {limit:g}: ", over),
        ("relative RMSE is NaN in ", unknown),
        ("could not be compared: ", unread),
    ):
        if names:
            more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
            text = f"rmsfast: --fail-over: {what}{', '.join(names[:NAMED])}{more}"
            click.echo(printable(text), err=True)
    return int(bool(over or unknown or unread))


def _print_differences(found: list[Difference]) -> None:
    if not found:
        return
    columns = [
        Column("rows", [str(d.rows) for d in found]),
        Column("relative\nRMSE", [number(d.relative_rmse) for d in found]),
        Column("RMSE", [number(d.rmse) for d in found]),
        Column("RMS", [number(d.rms_x) for d in found]),
        Column("max\nerror", [_of_whole(d, "max_abs_error") for d in found]),
        Column("cosine", [_of_whole(d, "cosine") for d in found]),
        Column("SQNR\ndB", [_of_whole(d, "sqnr_db") for d in found]),
        Column("equal\nrows", [str(d.equal_rows) for d in found]),
        Column("NaN\nrows", [str(d.nan_rows) for d in found]),
        Column("row RMSE\nmedian", [number(d.row_rmse_median) for d in found]),
        Column("max", [number(d.row_rmse_max) for d in found]),
        Column("bias", [_of_whole(d, "bias") for d in found]),
    ]
    kinds = [
        f"{d.dtype} {shape_text(d.shape)}" + f"\nas {d.dtype_hat}" * (d.dtype_hat != d.dtype)
        for d in found
    ]
    print_table([d.name for d in found], kinds, columns, always=4)


def _of_whole(found: Any, name: str) -> str:
    return "-" if found.whole is None else f"{getattr(found.whole, name):.4g}"
