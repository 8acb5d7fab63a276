"""Pictures of doses: `predict_dose`, `measure_dose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmsfast.plots._figure import (
    COLOURS,
    DASHES,
    MARKERS,
    PANEL_HEIGHT,
    Array,
    Scale,
    StrPath,
    figure,
    legend_below,
    saved,
    short,
    thinned,
)
from rmsfast.plots._rows import largest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMED = 4  # tensors whose rows are told apart


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
        By the names of the tensors. Of a single one the range of 80 % of the rows is drawn too.
    path : path_like, optional
        PNG file to write.
    title : str
    tolerance : float
        Relative RMSE that is marked.
    floors : mapping of str to ndarray, optional
        The smallest doses within it, as `rmsfast.dose_floor` gives them. By default where the
        medians cross it.

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide.
    """
    drawn, errors, cosines = _panels(title or "predicted doses, medians of the rows")
    doses = {name: _doses(table) for name, table in tables.items()}
    found = {name: _medians(table.relative_rmse_realised) for name, table in tables.items()}
    rounded = [_medians(table.relative_rmse_rounded)[1] for table in tables.values()]
    across = Scale.of(*doses.values(), least=0.5)
    up = Scale.of(*(each[1] for each in found.values()), *rounded, np.array([tolerance]))
    crossings = []
    for i, (name, table) in enumerate(tables.items()):
        order = np.argsort(doses[name])
        x, k = across.place(doses[name][order]), i % len(COLOURS)
        style: dict[str, Any] = {
            "color": COLOURS[k],
            "marker": MARKERS[k],
            "linestyle": DASHES[i // len(COLOURS) % len(DASHES)],
            "markersize": 4,
            "linewidth": 1.2,
        }
        low, middle, high = (each[order] for each in found[name])
        errors.plot(x, up.place(middle), label=short(name), **style)
        cosine = _medians(table.cosine)[1][order]
        cosines.plot(x, cosine, **style)
        if len(tables) == 1:
            errors.fill_between(x, up.place(low), up.place(high), color=COLOURS[k], alpha=0.2,
                                label="80 % of the rows")  # fmt: skip
        given = None if floors is None else np.ravel(floors[name])
        crossings.append(
            _crossing(doses[name][order], middle, tolerance)
            if given is None
            else np.median(given[given == given]) if (given == given).any() else np.nan
        )  # fmt: skip
    first = next(iter(tables))
    order = np.argsort(doses[first])
    errors.plot(across.place(doses[first][order]), up.place(rounded[0][order]), color="0.4",
                linestyle=":", linewidth=1.5, label="request rounded, not yet added")  # fmt: skip
    _mark_floor(errors, cosines, across, up, np.array(crossings), tolerance)
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
    tolerance: float = 0.1,
) -> Figure:
    """Draw relative RMSE and cosine of the edits of rows against the RMS of the clean rows.

    Parameters
    ----------
    tables : mapping of str to DoseReport
        By the names of the tensors. Of many those of the largest errors are told apart.
    path, title, tolerance
        As for `predict_dose`.

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide.
    """
    drawn, errors, cosines = _panels(title or "doses of the rows")
    sizes = {name: np.ravel(table.rms_clean) for name, table in tables.items()}
    wrong = {name: np.ravel(table.relative_rmse_realised) for name, table in tables.items()}
    across = Scale.of(*sizes.values())
    up = Scale.of(*wrong.values(), np.array([tolerance]), least=0.5)
    x, named = {name: across.place(size) for name, size in sizes.items()}, largest(wrong, NAMED)
    _scatter(errors, {name: (x[name], up.place(wrong[name])) for name in tables}, named)
    _scatter(cosines, {name: (x[name], np.ravel(tables[name].cosine)) for name in tables}, named)
    errors.axhline(up.at(tolerance), color="0.3", linewidth=1, linestyle="--",
                   label=f"tolerance {tolerance:g}")  # fmt: skip
    across.draw(cosines, "x")
    up.draw(errors, "y")
    cosines.set_xlabel("RMS of the clean row, in the unit of the values", fontsize=9)
    legend_below(drawn, errors)
    return saved(drawn, path)


def _scatter(axes: Axes, points: Mapping[str, tuple[Array, Array]], named: Sequence[str]) -> None:
    """Draw the rows of tensors: those named told apart by colour and marker, before the others."""
    others = [each for name, each in points.items() if name not in named]
    if others:
        x, y = (np.concatenate(each) for each in zip(*others, strict=True))
        chosen = thinned(x, y)
        axes.plot(x[chosen], y[chosen], ".", color="0.8", markersize=4, label="the others")
    for k, name in enumerate(named):
        x, y = points[name]
        chosen = thinned(x, y)
        axes.plot(
            x[chosen], y[chosen], MARKERS[k], color=COLOURS[k], linestyle="none", alpha=0.6,
            label=short(name), markersize=3.5, markeredgewidth=0.7,
            markerfacecolor="none" if k % 2 else COLOURS[k],
        )  # fmt: skip


def _panels(title: str) -> tuple[Figure, Axes, Axes]:
    heights = [PANEL_HEIGHT * 1.2, PANEL_HEIGHT * 0.9]
    drawn = figure(heights)
    errors, cosines = drawn.subplots(2, 1, sharex=True, height_ratios=heights)
    errors.set_ylabel("relative RMSE of the realised edit", fontsize=9)
    cosines.set_ylabel("cosine of the realised\nand the requested edit", fontsize=9)
    cosines.grid(axis="y", color="0.9", linewidth=0.6)
    drawn.suptitle(title, fontsize=10)
    return drawn, errors, cosines


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


def _mark_floor(
    errors: Axes, cosines: Axes, x: Scale, y: Scale, floors: Array, tolerance: float
) -> None:
    """Lines at the tolerance and at the smallest dose within it, of several tensors their range."""
    errors.axhline(
        y.at(tolerance), color="0.3", linewidth=1, linestyle="--",
        label=f"tolerance {tolerance:g}",
    )  # fmt: skip
    known = floors[np.isfinite(floors) & (floors > 0)]
    if not known.size:
        return
    text = f"floor {known.min():.3g}"
    if known.max() > known.min() * 1.005:
        text += f" to {known.max():.3g}"
    for place in x.place(np.array([known.min(), known.max()])):
        for axes in (errors, cosines):
            axes.axvline(place, color="0.3", linewidth=1, linestyle="-.")
    errors.annotate(
        text, (x.at(known.max()), y.high), (5, -12), textcoords="offset points", fontsize=8
    )
