"""Pictures of rows: `describe`, `compare`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rmsfast.plots._figure import (
    COLOURS,
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 40  # tensors beside each other
LINE_HEIGHT = 0.3  # inches of each of them


def describe(tables: Mapping[str, Any], path: StrPath | None = None, *, title: str = "") -> Figure:
    """Draw the distribution of the row RMS of tensors, and which part of it one coordinate makes.

    Parameters
    ----------
    tables : mapping of str to Description
        By the names of the tensors.
    path : path_like, optional
        PNG file to write.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide. Zero rows and rows with NaN or Inf stand at the ends of the axis.
    """
    sizes = {name: np.ravel(table.rms).astype(np.float64) for name, table in tables.items()}
    shown = _largest(sizes)
    scale = Scale.of(*(sizes[name] for name in shown))
    heights = [_height(shown), PANEL_HEIGHT * 1.15]
    drawn = figure(heights)
    above, below = drawn.subplots(2, 1, height_ratios=heights)
    _distributions(above, {name: sizes[name] for name in shown}, scale, "row RMS")
    above.set_title(_title(title, shown, tables, "row RMS"), fontsize=10)

    shares = {name: np.ravel(tables[name].peak_share) for name in shown}
    vertical = Scale.of(*(each[each > 0] for each in shares.values()), least=0.5)
    points = {}
    for name, share in shares.items():
        known = share > 0  # of a zero row no share is defined
        points[name] = scale.place(sizes[name][known]), vertical.place(share[known])
    scatter(below, points)
    _name_largest(below, tables, sizes, scale, vertical)
    scale.draw(below, "x")
    vertical.draw(below, "y")
    below.set_xlabel("row RMS, in the unit of the values", fontsize=9)
    below.set_ylabel("largest coordinate's share\nof the sum of squares", fontsize=9)
    legend_below(drawn, above, *[below] * (len(shown) > 1))
    return saved(drawn, path)


def compare(tables: Mapping[str, Any], path: StrPath | None = None, *, title: str = "") -> Figure:
    """Draw the relative RMSE of the rows of pairs of tensors, and its distribution.

    Parameters
    ----------
    tables : mapping of str to Comparison
        By the names of the tensors.
    path, title
        As for `describe`.

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide. Equal rows stand at 0, rows over a zero row or with NaN at the other end.
    """
    errors = {n: np.ravel(table.relative_rmse).astype(np.float64) for n, table in tables.items()}
    shown = _largest(errors)
    scale = Scale.of(*(errors[name] for name in shown))
    heights = [_height(shown), PANEL_HEIGHT * 1.15]
    drawn = figure(heights)
    above, below = drawn.subplots(2, 1, height_ratios=heights)
    what = "relative RMSE of each row"
    _distributions(above, {name: errors[name] for name in shown}, scale, what)
    above.set_title(_title(title, shown, tables, "relative RMSE"), fontsize=10)
    scatter(below, {n: (np.arange(errors[n].size), scale.place(errors[n])) for n in shown})
    scale.draw(below, "y")
    below.set_xlabel("row", fontsize=9)
    below.set_ylabel("relative RMSE, over the RMS of x", fontsize=9)
    below.margins(x=0.02)
    legend_below(drawn, above, *[below] * (len(shown) > 1))
    return saved(drawn, path)


def _largest(values: Mapping[str, Array]) -> list[str]:
    """The tensors that are shown, in their order: of many those with the largest values."""
    ends = {name: np.nanmax(v, initial=-1.0) for name, v in values.items()}
    kept = set(sorted(ends, key=lambda name: -ends[name])[:MOST])
    return [name for name in values if name in kept]


def _title(text: str, shown: list[str], tables: Mapping[str, Any], what: str) -> str:
    if len(shown) == len(tables):
        return text
    return (
        f"{text}\n" * bool(text)
        + f"{len(shown)} of {len(tables)} tensors, those of the largest {what}"
    )


def _height(shown: list[str]) -> float:
    return 0.9 + LINE_HEIGHT * len(shown) if len(shown) > 1 else 2.2


def _distributions(axes: Axes, values: Mapping[str, Array], scale: Scale, what: str) -> None:
    """A histogram for each tensor, one below the other, with the median marked."""
    most = max(given.size for given in values.values())
    edges = np.linspace(scale.low, scale.high, min(80, max(10, int(4 * most ** (1 / 3)))) + 1)
    alone = len(values) == 1
    labels = {"o": "number of rows of 0", "X": "number of rows of NaN or Inf"}
    for i, given in enumerate(values.values()):
        usual = np.isfinite(given) & (given > 0)
        counts, _ = np.histogram(scale.place(given[usual]), edges)
        tall = counts if alone else 0.85 * counts / max(1, counts.max())
        base = 0.0 if alone else float(len(values) - 1 - i)
        axes.stairs(base + tall, edges, baseline=base, fill=True, color=COLOURS[4], alpha=0.6)
        axes.stairs(base + tall, edges, baseline=base, color=COLOURS[0], linewidth=1)
        top = base + (max(1, counts.max()) if alone else 0.85)
        if usual.any():
            middle = scale.at(float(np.median(given[usual])))
            axes.plot([middle] * 2, [base, top], color="black", linewidth=1.6,
                      label="" if i else "median")  # fmt: skip
        zero, odd = np.count_nonzero(given == 0), np.count_nonzero(~np.isfinite(given))
        for count, mark, place in ((zero, "o", 0.0), (odd, "X", np.nan)):
            if count:
                x, y = scale.at(place), base + 0.3 * (top - base)
                axes.plot(x, y, mark, color=COLOURS[1], markersize=5, label=labels.pop(mark, None))
                axes.annotate(
                    f"{count}", (x, y), (0, 5), textcoords="offset points", ha="center", fontsize=8
                )
    scale.draw(axes, "x")
    axes.set_xlabel(what, fontsize=9)
    if alone:
        axes.set_ylabel("rows", fontsize=9)
    else:
        axes.set_yticks(range(len(values)), [short(name) for name in values][::-1])
        axes.set_ylim(-0.15, len(values))
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)


def scatter(axes: Axes, points: Mapping[str, tuple[Array, Array]]) -> None:
    """Draw the rows of tensors, told apart by colour and marker as far as there are any."""
    for i, (name, (x, y)) in enumerate(points.items()):
        chosen, k = thinned(x, y), min(i, len(MARKERS) - 1)
        label = short(name) if i < len(MARKERS) - 1 or len(points) == len(MARKERS) else None
        if i == len(MARKERS) - 1 < len(points) - 1:
            label = "the others"
        axes.plot(
            x[chosen], y[chosen], MARKERS[k], color=COLOURS[k], linestyle="none", label=label,
            markersize=3.5, markerfacecolor="none" if k % 2 else COLOURS[k], markeredgewidth=0.7,
            alpha=0.6,
        )  # fmt: skip


def _name_largest(
    axes: Axes, tables: Mapping[str, Any], sizes: Mapping[str, Array], x: Scale, y: Scale
) -> None:
    """Say which row is the largest that is finite, and which coordinate makes it so."""
    finite = {name: np.where(np.isfinite(size), size, -1.0) for name, size in sizes.items()}
    name = max(finite, key=lambda name: finite[name].max(initial=-1.0))
    if finite[name].max(initial=-1.0) <= 0:
        return
    row = int(np.argmax(finite[name]))
    share, index = (np.ravel(getattr(tables[name], n))[row] for n in ("peak_share", "peak_index"))
    place = x.at(sizes[name][row]), y.at(share)
    tensor = f"{short(name)}, " if len(sizes) > 1 else ""
    axes.annotate(
        f"{tensor}row {row}: coordinate {index}",
        place,
        (0.98, 0.06),
        textcoords="axes fraction",
        ha="right",
        fontsize=8,
        arrowprops={"arrowstyle": "-", "color": "0.3", "linewidth": 0.8},
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "0.7"},
    )
