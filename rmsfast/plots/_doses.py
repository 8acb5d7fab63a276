"""Pictures of doses: `predict_dose`, `measure_dose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmsfast.plots._figure import (
    COLOURS,
    MARKERS,
    PANEL_HEIGHT,
    Array,
    Scale,
    StrPath,
    figure,
    labels,
    legend_below,
    saved,
    thinned,
)
from rmsfast.plots._rows import largest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 4  # tensors whose rows are told apart; of lines there are as many as colours
OF_ERROR = "relative RMSE of the realised edit"
OF_COSINE = "cosine of the realised\nand the requested edit"


def predict_dose(
    tables: Mapping[str, Any],
    path: StrPath | None = None,
    *,
    title: str = "",
    tolerance: float = 0.1,
    floors: Mapping[str, Array] | None = None,
) -> Figure:
    """Draw relative RMSE and cosine of edits against the dose, medians of the rows.

    Parameters
    ----------
    tables : mapping of str to DosePrediction
        By the names of the tensors. Of a single one the range of 80 % of the rows is drawn too;
        of many those of the largest errors are told apart.
    path : path_like, optional
        PNG file to write.
    title : str
    tolerance : float
        Relative RMSE that is marked.
    floors : mapping of str to ndarray, optional
        As `rmsfast.dose_floor` gives them, to mark their medians. By default it is marked from
        which dose on the medians are within the tolerance.

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide.
    """
    drawn, errors, cosines = _panels(title or "predicted doses, medians of the rows")
    lines = {name: _line(table) for name, table in tables.items()}
    marks = np.array([
        _crossing(line.doses, line.middle, tolerance) if floors is None else _middle(floors[name])
        for name, line in lines.items()
    ])  # fmt: skip
    marks = marks[np.isfinite(marks) & (marks > 0)]
    across = Scale.of(*(line.doses for line in lines.values()), marks, least=0.5)
    up = Scale.of(
        *(each for line in lines.values() for each in (line.middle, line.rounded)),
        np.array([tolerance]),
    )

    named = largest({n: np.nansum(line.middle, keepdims=True) for n, line in lines.items()},
                    len(COLOURS))  # fmt: skip
    others = [line for name, line in lines.items() if name not in named]
    for i, line in enumerate(others):
        x, label = across.place(line.doses), "" if i else _others(others)
        errors.plot(x, up.place(line.middle), color="0.75", linewidth=0.7, label=label)
        cosines.plot(x, line.cosine, color="0.75", linewidth=0.7)
    texts = labels(named)
    for name, colour, marker in zip(named, COLOURS, MARKERS, strict=False):
        line = lines[name]
        style: dict[str, Any] = {
            "color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2
        }  # fmt: skip
        x = across.place(line.doses)
        errors.plot(x, up.place(line.middle), label=texts[name], **style)
        cosines.plot(x, line.cosine, **style)
        if len(lines) == 1:
            errors.fill_between(x, up.place(line.low), up.place(line.high), color=colour, alpha=0.2,
                                label="80 % of the rows")  # fmt: skip
    first = lines[named[0]]
    errors.plot(across.place(first.doses), up.place(first.rounded), color="0.4", marker="+",
                linestyle=":", linewidth=1.5, label="request rounded, not yet added")  # fmt: skip
    _mark_tolerance(errors, up, tolerance)
    if marks.size:
        what = f"{100 * tolerance:g} % reached at" if floors is None else "floor"
        _mark_doses(errors, cosines, across, up, marks, what)
    _end_at_one(cosines)
    across.draw(cosines, "x")
    up.draw(errors, "y")
    cosines.set_xlabel("dose |alpha|, in units of the RMS of the row", fontsize=9)
    legend_below(drawn, errors)
    return saved(drawn, path)


def measure_dose(
    tables: Mapping[str, Any],
    path: StrPath | None = None,
    *,
    title: str = "",
    tolerance: float | None = None,
) -> Figure:
    """Draw relative RMSE and cosine of the edits of rows against the RMS of the clean rows.

    Where nothing was requested neither is known: then the RMS of the edits over that of the clean
    rows, and the angle between clean and edited rows.

    Parameters
    ----------
    tables : mapping of str to DoseReport
        By the names of the tensors. Of many those of the largest errors are told apart.
    path, title
        As for `predict_dose`.
    tolerance : float, optional
        Relative RMSE that is marked.

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide.
    """
    heights = {name: np.ravel(table.relative_rmse_realised) for name, table in tables.items()}
    below = {name: np.ravel(table.cosine) for name, table in tables.items()}
    asked, what = any((each == each).any() for each in heights.values()), (OF_ERROR, OF_COSINE)
    if not asked:
        heights = {
            name: _ratios(table.rms_realised, table.rms_clean) for name, table in tables.items()
        }
        below = {name: np.ravel(table.angle_deg) for name, table in tables.items()}
        what = (
            "RMS of the realised edit,\nover that of the clean row",
            "angle of the clean and\nthe edited row, degrees",
        )
    drawn, above, under = _panels(title or "doses of the rows", what)
    sizes = {name: np.ravel(table.rms_clean) for name, table in tables.items()}
    marked = tolerance if asked else None
    across = Scale.of(*sizes.values())
    up = Scale.of(*heights.values(), np.array([] if marked is None else [marked]), least=0.5)
    x, named = {name: across.place(size) for name, size in sizes.items()}, largest(heights, NAMED)
    _scatter(above, {name: (x[name], up.place(heights[name])) for name in tables}, named)
    _scatter(under, {name: (x[name], below[name]) for name in tables}, named)
    if marked is not None:
        _mark_tolerance(above, up, marked)
    if asked:
        _end_at_one(under)
    across.draw(under, "x")
    up.draw(above, "y")
    under.set_xlabel("RMS of the clean row, in the unit of the values", fontsize=9)
    legend_below(drawn, above)
    return saved(drawn, path)


def _ratios(above: Array, below: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.ravel(above) / np.ravel(below))


def _others(tensors: Sized) -> str:
    return f"the other {len(tensors)}, of smaller errors"


def _scatter(axes: Axes, points: Mapping[str, tuple[Array, Array]], named: Sequence[str]) -> None:
    """Draw the rows of tensors: those named told apart by colour and marker, before the others."""
    others = [each for name, each in points.items() if name not in named]
    texts = labels(named)
    if others:
        x, y = (np.concatenate(each) for each in zip(*others, strict=True))
        chosen = thinned(x, y)
        axes.plot(x[chosen], y[chosen], ".", color="0.8", markersize=4, label=_others(others))
    for k, name in enumerate(named):
        x, y = points[name]
        chosen = thinned(x, y)
        axes.plot(
            x[chosen], y[chosen], MARKERS[k], color=COLOURS[k], linestyle="none", alpha=0.6,
            label=texts[name], markersize=3.5, markeredgewidth=0.7,
            markerfacecolor="none" if k % 2 else COLOURS[k],
        )  # fmt: skip


def _panels(title: str, what: tuple[str, str] = (OF_ERROR, OF_COSINE)) -> tuple[Figure, Axes, Axes]:
    heights = [PANEL_HEIGHT * 1.2, PANEL_HEIGHT * 0.9]
    drawn = figure(heights)
    above, below = drawn.subplots(2, 1, sharex=True, height_ratios=heights)
    for axes, text in zip((above, below), what, strict=True):
        axes.set_ylabel(text, fontsize=9)
    below.grid(axis="y", color="0.9", linewidth=0.6)
    drawn.suptitle(title, fontsize=10)
    return drawn, above, below


def _end_at_one(cosines: Axes) -> None:
    """Cut the axis of cosines above 1, which none exceeds."""
    low, high = cosines.get_ylim()
    cosines.set_ylim(low, min(high, 1 + 0.03 * (1 - min(low, 0.999))))


class _Line(NamedTuple):
    """A prediction along its doses, from the smallest: medians of the rows, and their range."""

    doses: Array
    low: Array
    middle: Array
    high: Array
    rounded: Array
    cosine: Array


def _line(table: Any) -> _Line:
    doses = _doses(table)
    order = np.argsort(doses)
    low, middle, high = _medians(table.relative_rmse_realised)
    rounded, cosine = _medians(table.relative_rmse_rounded)[1], _medians(table.cosine)[1]
    return _Line(*(each[order] for each in (doses, low, middle, high, rounded, cosine)))


def _doses(table: Any) -> Array:
    """The sizes of the doses of a prediction."""
    alphas = np.abs(np.atleast_1d(table.alpha_requested))
    return np.asarray(alphas.reshape(-1, alphas.shape[-1]).max(axis=0))


def _medians(field: Array) -> tuple[Array, Array, Array]:
    """Tenth, middle and ninetieth of a hundred rows, for each dose."""
    rows = np.atleast_1d(field)
    rows = rows.reshape(-1, rows.shape[-1])
    known = [each[each == each] for each in rows.T]
    marks = [np.quantile(v, (0.1, 0.5, 0.9)) if v.size else [np.nan] * 3 for v in known]
    low, middle, high = np.transpose(marks)
    return low, middle, high


def _crossing(alphas: Array, errors: Array, tolerance: float) -> float:
    """The dose from which on errors are within the tolerance, between the doses that were tried."""
    beyond = np.flatnonzero(~(errors <= tolerance))
    if not beyond.size or beyond[-1] == len(alphas) - 1 or not errors[beyond[-1]] < np.inf:
        return np.nan
    pair = slice(beyond[-1], beyond[-1] + 2)
    with np.errstate(divide="ignore"):
        logs, heights = np.log(alphas[pair]), np.log(errors[pair])
    part = (np.log(tolerance) - heights[0]) / (heights[1] - heights[0])
    return float(np.exp(logs[0] + part * (logs[1] - logs[0])))


def _middle(values: Array) -> float:
    """The median of those that are not NaN."""
    known = np.ravel(values)[np.ravel(values == values)]
    return float(np.median(known)) if known.size else np.nan


def _mark_tolerance(errors: Axes, y: Scale, tolerance: float) -> None:
    errors.axhline(
        y.at(tolerance), color="0.3", linewidth=1, linestyle="--",
        label=f"tolerance {tolerance:g}",
    )  # fmt: skip


def _mark_doses(errors: Axes, cosines: Axes, x: Scale, y: Scale, doses: Array, what: str) -> None:
    """Lines at doses that belong to the tolerance, of several tensors at their range."""
    text = f"{what} {doses.min():.3g}"
    if doses.max() > doses.min() * 1.005:
        text += f" to {doses.max():.3g}"
    for place in x.place(np.array([doses.min(), doses.max()])):
        for axes in (errors, cosines):
            axes.axvline(place, color="0.3", linewidth=1, linestyle="-.")
    place = x.at(doses.max())
    at_end = place > x.low + 0.7 * (x.high - x.low)
    place = x.at(doses.min()) if at_end else place
    errors.annotate(
        text, (place, y.high), (-5 if at_end else 5, -12), textcoords="offset points", fontsize=8,
        ha="right" if at_end else "left",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )  # fmt: skip
