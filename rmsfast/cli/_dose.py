"""Commands of doses: `dose`, `measure-dose`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmsfast.cli import _options
from rmsfast.cli._output import (
    Column,
    number,
    print_json,
    print_table,
    printable,
    progress,
    save_csv,
    shape_text,
    wrote,
)
from rmsfast.cli._records import print_unread

if TYPE_CHECKING:
    from rmsfast._dose_report import DosePrediction, DoseReport
    from rmsfast.files import Tensor

ALPHAS = (0.1, 0.03, 0.01, 0.003, 0.001)  # that are tried where none is given
FORMATS = ("float32", *_options.FORMATS)
SHOWN = {  # medians over the rows
    "alpha": "alpha_requested",
    "RMS\nasked": "rms_requested",
    "RMS\nrealised": "rms_realised",
    "relative\nRMSE": "relative_rmse_realised",
    "alpha\nrealised": "alpha_projected",
    "cosine": "cosine",
    "un-\nchanged": "frac_unchanged",
    "off\ndirection": "rms_off_direction",
    "angle\ndegrees": "angle_deg",
    "RMS\nclean": "rms_clean",
}


class Dosed(NamedTuple):
    """The reports of the rows of a tensor, one for each alpha."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    reports: list[DoseReport]
    floor: Any = None
    prediction: DosePrediction | None = None


def direction_options(required: bool) -> Callable[[Any], Any]:
    """Which vector is the direction."""
    return _options.combined(
        click.option(
            "--direction",
            type=click.Path(),
            required=required,
            metavar="FILE",
            help="File of the direction, a vector of as many numbers as a row has.",
        ),
        click.option("--direction-tensor", metavar="NAME", help="Which tensor of that file it is."),
        click.option(
            "--direction-scale",
            type=click.Choice(["unit", "as_is"]),
            default="unit",
            show_default=True,
            help="Scale the direction to unit RMS, or require that it has it.",
        ),
    )


@_options.command(
    "rmsfast dose h.safetensors --direction u.npy --alpha 0.03 --storage bfloat16 -o edited.npy"
)
@_options.file()
@direction_options(required=True)
@click.option(
    "--alpha",
    type=float,
    multiple=True,
    help="Dose in units of the RMS of a row, signed; may be repeated unless there is an OUT. "
    f"Default: {', '.join(map(str, ALPHAS))}.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OUT",
    help="Write the edited rows: .npy, .safetensors, .h5, .hdf5 or .zarr. Without it the doses are "
    "predicted only.",
)
@click.option("--storage", type=click.Choice(FORMATS), help="Format of the edited rows.")
@click.option(
    "--edit-format",
    type=click.Choice(["float64", *FORMATS]),
    default="float32",
    show_default=True,
    help="Format in which the edit is made.",
)
@click.option(
    "--path",
    type=click.Choice(["cast_then_add", "add_then_cast"]),
    default="cast_then_add",
    show_default=True,
    help="Round the edit before it is added, or only the sum.",
)
@click.option(
    "--rounding",
    type=click.Choice(["nearest_even", "toward_zero", "stochastic"]),
    default="nearest_even",
    show_default=True,
)
@click.option("--seed", type=int, help="Of stochastic rounding.")
@click.option(
    "--overflow",
    type=click.Choice(["ieee", "saturate", "raise"]),
    default="ieee",
    show_default=True,
    help="What becomes of a sum beyond the format.",
)
@click.option(
    "--zero",
    type=click.Choice(["raise", "keep"]),
    default="raise",
    show_default=True,
    help="Refuse rows of zeros, or keep them as they are.",
)
@click.option(
    "--tolerance",
    type=float,
    default=0.1,
    show_default=True,
    help="Relative RMSE that the floor of a prediction allows.",
)
@_options.WHICH
@_options.JSON
@_options.CSV
@_options.PLOT
def dose(
    file: str,
    direction: str,
    direction_tensor: str | None,
    alpha: tuple[float, ...],
    output: str | None,
    tensor: tuple[str, ...],
    tolerance: float,
    as_json: bool,
    csv: str | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Edit rows along a direction, or predict it.

    A row h becomes h + alpha * RMS(h) * u, with the direction u scaled to unit RMS.
    The edit is rounded to the storage format, then the sum is. Shown is what was asked for and
    what is realised, that is, what the stored rows differ by: medians over the rows of the RMS of
    both, of the relative RMSE between them, of the dose along the direction, of their cosine, and
    of the share of coordinates that stay as they were. The floor is the smallest dose whose
    relative RMSE is expected within the tolerance for edits spread over the coordinates like noise;
    a direction that has much of its energy on massive coordinates needs more, as the table then
    tells. --csv has a line for each row. Tensors of integers and complex numbers are listed, and
    written to OUT as they are.
    """
    from rmsfast import files
    from rmsfast.files._rows import choose, undosed

    _options.check_outputs(inputs=[file, direction], csv=csv, plot=plot)
    _options.check_outputs(others=[output])  # which may be FILE
    if how["rounding"] == "stochastic" and how["seed"] is None:
        raise ValueError("dose: --seed must be given with --rounding stochastic, got None")
    u = _options.vector(direction, direction_tensor)
    which = {"tensor": _options.names(tensor), **how}
    if output is None:
        with progress(f"dose {file}") as told:
            predicted = files.predict_dose(
                file, u, alpha or ALPHAS, tolerance=tolerance, progress=told, **which
            )
        found = [
            Dosed(p.name, p.shape, p.dtype, p.prediction.by_alpha(), p.floor, p.prediction)
            for p in predicted
            if p.prediction is not None
        ]
        others: list[Any] = [each for each in predicted if each.error is not None]
        storage = found[0].reports[0].header["formats"]["storage"]
    else:
        if len(alpha) != 1:
            raise ValueError(f"dose: --alpha must be given once with --output, got {len(alpha)}")
        tensors = choose(file, which["tensor"], how["format"], how["dtype"], how["shape"])
        with progress(f"dose {file}") as told:
            report = files.apply_dose(file, output, u, alpha[0], progress=told, **which)
        others = [replace(t, error=why) for t in tensors if (why := undosed(t)) is not None]
        edited = [each for each in tensors if undosed(each) is None]
        found = _by_tensor(edited, how["axis"], report)
        storage = report.header["formats"]["storage"]
    title = f"doses along {direction}, stored as {storage}"
    if plot:
        _draw(found, plot, title, tolerance)
    _show(file, title, found, others, as_json, csv)
    if output and not as_json:
        wrote(output)


@_options.command(
    "rmsfast measure-dose clean.npy after.npy --direction u.npy --alpha 0.03 "
    "--measured-at 'block 17, after the hook' --clean-source 'the same pass, before it'",
    "measure-dose",
)
@_options.file("clean")
@_options.file("after")
@direction_options(required=False)
@click.option("--alpha", type=float, help="The dose that was asked for.")
@click.option("--measured-at", required=True, metavar="TEXT", help="Where AFTER was captured.")
@click.option("--clean-source", required=True, metavar="TEXT", help="Where CLEAN comes from.")
@_options.WHICH
@_options.JSON
@_options.CSV
@_options.PLOT
def measure_dose(
    clean: str,
    after: str,
    direction: str | None,
    direction_tensor: str | None,
    tensor: tuple[str, ...],
    as_json: bool,
    csv: str | None,
    plot: str | None,
    **how: Any,
) -> None:
    """Report the dose that rows received.

    CLEAN holds the rows before an edit, AFTER the same rows after it.
    Tensors go together as for compare. Without a direction only sizes and angles are known,
    without --alpha no error: what is not known has no column, and is null in JSON. The two texts
    are kept in the report, as a dose means little without them.
    """
    from rmsfast import files

    inputs = [clean, after] if direction is None else [clean, after, direction]
    _options.check_outputs(inputs=inputs, csv=csv, plot=plot)
    u = None if direction is None else _options.vector(direction, direction_tensor)
    with progress(f"measure-dose {after}") as told:
        measured = files.measure_dose(
            clean, after, direction=u, tensor=_options.names(tensor), progress=told, **how
        )
    found = [Dosed(m.name, m.shape, m.dtype, [m.report]) for m in measured if m.report is not None]
    others = [each for each in measured if each.error is not None]
    title = f"edits of {clean}; measured at: {how['measured_at']}"
    if plot:
        _draw(found, plot, title)
    _show(after, title, found, others, as_json, csv)


# Reports ----------------------------------------------------------------------------------------


def _by_tensor(tensors: list[Tensor], axis: int, report: DoseReport) -> list[Dosed]:
    """The report of a file, whose tensors stand one after the other, in parts."""
    from rmsfast.files._rows import checked_axis, kept

    found, begin = [], 0
    fields = {name: getattr(report, name).reshape(-1) for name in report.names()}
    for each in tensors:
        shape = kept(each.shape, checked_axis(each, axis))
        end = begin + math.prod(shape)
        part = {name: values[begin:end].reshape(shape) for name, values in fields.items()}
        found.append(Dosed(each.name, each.shape, each.dtype, [replace(report, **part)]))
        begin = end
    return found


def _draw(found: list[Dosed], path: str, title: str, tolerance: float | None = None) -> None:
    from rmsfast import plots

    how: dict[str, Any] = {"title": printable(title), "tolerance": tolerance}
    if found[0].prediction is None:
        plots.measure_dose({each.name: each.reports[0] for each in found}, path, **how)
    else:
        floors = {each.name: each.floor for each in found}
        tables = {each.name: each.prediction for each in found}
        plots.predict_dose(tables, path, floors=floors, **how)


def _show(
    file: str,
    title: str,
    found: list[Dosed],
    others: Sequence[Any],
    as_json: bool,
    csv: str | None,
) -> None:
    """Tell of the doses of tensors, and why the others have none."""
    if csv:
        names = found[0].reports[0].names()
        save_csv(csv, ("tensor", "row", *names), _lines(found, names))
    statistics = [[report.summary() for report in each.reports] for each in found]
    if as_json:
        records = []
        for each, stats in zip(found, statistics, strict=True):
            record: dict[str, Any] = {"name": each.name, "shape": each.shape, "dtype": each.dtype}
            if each.floor is not None:
                record["floor"] = _three(each.floor)
            records.append({**record, "header": each.reports[0].header, "doses": stats})
        about = ("name", "shape", "dtype", "error")
        records += [{name: getattr(each, name) for name in about} for each in others]
        print_json({"file": file, "tensors": records})
        return
    click.echo(printable(f"{file}: {title}; medians of the rows"))
    columns = [
        Column(title, ["\n".join(_median(stats[field]) for stats in each) for each in statistics])
        for title, field in SHOWN.items()
        if any(stats[field]["count"] for each in statistics for stats in each)
    ]
    kinds = []
    for each in found:
        floor = "" if each.floor is None else f"\nfloor {_median(_three(each.floor))}"
        kinds.append(f"{each.dtype} {shape_text(each.shape)}{floor}")
    print_table([each.name for each in found], kinds, columns, always=7)
    print_unread(others, "no dose")


def _median(statistics: dict[str, Any]) -> str:
    """A dash where no row has a value."""
    value = statistics["p50"]
    return number(None if math.isnan(value) else value)


def _three(floor: Any) -> dict[str, float]:
    """Statistics of the floors of rows, of those that have one."""
    import numpy as np

    known = floor[floor == floor]
    if not known.size:
        return dict.fromkeys(("min", "p50", "max"), math.nan)
    return {"min": known.min(), "p50": float(np.median(known)), "max": known.max()}


def _lines(found: Sequence[Dosed], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """One line for each row, and each dose of it."""
    import numpy as np

    for each in found:
        for report in each.reports:
            fields = [np.asarray(getattr(report, name)) for name in names]
            for row in np.ndindex(fields[0].shape):
                yield each.name, row, *(values[row].item() for values in fields)
