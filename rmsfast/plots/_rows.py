"""Pictures of rows: `describe`, `compare`."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from rmsfast.plots._figure import (
    COLOURS,
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 40  # tensors beside each other
LINE_HEIGHT = 0.3  # inches of each of them
FEW = 30  # rows that are drawn larger
PANELS, ACROSS = 9, 3  # of clouds of points: on top of each other none could be told apart


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
        800 pixels wide. Zero rows and rows with NaN or Inf stand at the ends of the axis. Of
        several tensors there is a panel for the rows of each, of many for those of the largest RMS.
    """
    sizes = {name: np.ravel(table.rms).astype(np.float64) for name, table in tables.items()}
    shown = largest(sizes)
    scale = Scale.of(*(sizes[name] for name in shown))
    shares = {name: np.ravel(tables[name].peak_share) for name in shown}
    vertical = Scale.of(*(each[each > 0] for each in shares.values()), least=0.5)
    points = {}
    for name, share in shares.items():
        known = share > 0  # of a zero row no share is defined
        points[name] = scale.place(sizes[name][known]), vertical.place(share[known])
    kept = {name: sizes[name] for name in shown}
    drawn, above, panels = _parts(kept)
    _distributions(above, kept, scale, "row RMS")
    above.set_title(_title(title, len(tables), shown, panels, "row RMS"), fontsize=10)
    _clouds(panels, points, scale, vertical)
    wide = len(panels) == 1
    _name_axes(
        panels,
        "row RMS, in the unit of the values" if wide else "row RMS",
        "largest coordinate's share\nof the sum of squares" if wide else "peak share",
    )
    _name_largest(panels, tables, sizes, scale, vertical)
    legend_below(drawn, above, *panels.values())
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
        800 pixels wide. Equal rows stand at 0, others over a zero row or with NaN at the other end.
        Of several tensors there is a panel for the rows of each, of many for the worst.
    """
    errors = {name: _errors(table) for name, table in tables.items()}
    shown = largest(errors)
    scale = Scale.of(*(errors[name] for name in shown))
    what = "relative RMSE of each row"
    kept = {name: errors[name] for name in shown}
    drawn, above, panels = _parts(kept)
    _distributions(above, kept, scale, what)
    above.set_title(_title(title, len(tables), shown, panels, "relative RMSE"), fontsize=10)
    _clouds(panels, {n: (np.arange(e.size), scale.place(e)) for n, e in kept.items()}, None, scale)
    _name_axes(panels, "row", "relative RMSE" + ", over the RMS of x" * (len(panels) == 1))
    legend_below(drawn, above, *panels.values())
    return saved(drawn, path)


def _errors(table: Any) -> Array:
    """The relative RMSE of rows, 0 of those that are equal, also where that is 0/0."""
    return np.where(np.ravel(table.rmse) == 0, 0.0, np.ravel(table.relative_rmse))


def largest(values: Mapping[str, Array], most: int = MOST) -> list[str]:
    """So many tensors, in their order: of more those with the largest values."""
    ends = {name: np.nanmax(v, initial=-1.0) for name, v in values.items()}
    kept = set(sorted(ends, key=lambda name: -ends[name])[:most])
    return [name for name in values if name in kept]


def _title(text: str, count: int, shown: Sized, panels: Sized, what: str) -> str:
    """The title, and how many of the tensors are shown if not all are."""
    said = [f"{len(shown)} of {count} tensors"] * (len(shown) < count)
    said += [f"{len(panels)} of them below"] * (len(panels) < len(shown))
    return "\n".join(filter(None, [text, ", ".join([*said, f"those of the largest {what}"])]
                            if said else [text]))  # fmt: skip


def _height(shown: Sized) -> float:
    return 0.9 + LINE_HEIGHT * len(shown) if len(shown) > 1 else 2.2


def _parts(values: Mapping[str, Array]) -> tuple[Figure, Axes, dict[str, Axes]]:
    """An empty picture: a place for distributions, and below one for the cloud of each tensor.

    There are clouds of the tensors of the largest values only.
    """
    chosen = largest(values, PANELS)
    across = min(ACROSS, len(chosen))
    lines = -(-len(chosen) // across)
    heights = [_height(values), PANEL_HEIGHT * 1.15 if lines == 1 else 0.6 + 1.5 * lines]
    drawn = figure(heights)
    parts = drawn.add_gridspec(2, 1, height_ratios=heights)
    above = drawn.add_subplot(parts[0])
    grid = parts[1].subgridspec(lines, across) if len(chosen) > 1 else None
    panels: dict[str, Axes] = {}
    texts = labels(values)
    for i, name in enumerate(chosen):
        first = next(iter(panels.values()), None)
        place = grid[divmod(i, across)] if grid else parts[1]  # which is as wide as above
        panels[name] = drawn.add_subplot(place, sharex=first, sharey=first)
        if grid:
            panels[name].set_title(texts[name], fontsize=8)
    return drawn, above, panels


def _name_axes(panels: Mapping[str, Axes], x: str, y: str) -> None:
    """Name the axes of the panels, and put numbers at the outer ones only."""
    for i, axes in enumerate(panels.values()):
        axes.set_xlabel(x, fontsize=9)
        axes.set_ylabel(y, fontsize=9)
        if i + ACROSS < len(panels):
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
        if i % ACROSS:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)


def _clouds(
    panels: Mapping[str, Axes], points: Mapping[str, tuple[Array, Array]], x: Scale | None, y: Scale
) -> None:
    """Draw the rows of a tensor in its panel, in front of those of all others."""
    from matplotlib.ticker import MaxNLocator

    together = [np.concatenate(each) for each in zip(*points.values(), strict=True)]
    chosen = thinned(*together)
    apart, size, other = (0.0, 3.5, 1.5) if len(panels) == 1 else (0.17, 2.0, 1.5)
    if max(x.size for x, _ in points.values()) <= FEW:
        size, other = 4.5, 3.5
    for i, (name, axes) in enumerate(panels.items()):
        if len(points) > 1:
            label = "" if i else "rows of all tensors"
            axes.plot([], [], ".", color="0.75", label=label)  # a pixel is no mark for a legend
            axes.plot(*(each[chosen] for each in together), ".", color="0.75", zorder=1,
                      markersize=other)  # fmt: skip
        own = [each[thinned(*points[name])] for each in points[name]]
        axes.plot(*own, "o", color=COLOURS[0], markersize=size, markeredgewidth=0, alpha=0.6)
        if x:
            x.draw(axes, "x", apart)
        else:  # whose numbers count rows
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        y.draw(axes, "y", apart)
        axes.margins(x=0.02)


def _distributions(axes: Axes, values: Mapping[str, Array], scale: Scale, what: str) -> None:
    """A histogram for each tensor, one below the other, with the median marked."""
    from matplotlib.ticker import MaxNLocator

    most = max(given.size for given in values.values())
    edges = np.linspace(scale.low, scale.high, min(80, max(10, int(4 * most ** (1 / 3)))) + 1)
    alone = len(values) == 1
    marks = {"o": "number of rows of 0", "X": "number of rows of NaN or Inf"}
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
                axes.plot(x, y, mark, color=COLOURS[1], markersize=5, label=marks.pop(mark, None))
                axes.annotate(
                    f"{count}", (x, y), (0, 5), textcoords="offset points", ha="center", fontsize=8
                )
    scale.draw(axes, "x")
    axes.set_xlabel(what, fontsize=9)
    if alone:
        axes.set_ylabel("rows", fontsize=9)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        axes.set_yticks(range(len(values)), list(labels(values).values())[::-1])
        axes.set_ylim(-0.15, len(values))
        axes.grid(axis="y", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)


def _name_largest(
    panels: Mapping[str, Axes],
    tables: Mapping[str, Any],
    sizes: Mapping[str, Array],
    x: Scale,
    y: Scale,
) -> None:
    """Say which row is the largest that is finite, and which coordinate makes it so."""
    finite = {name: np.where(np.isfinite(size), size, -1.0) for name, size in sizes.items()}
    name = max(finite, key=lambda name: finite[name].max(initial=-1.0))
    if name not in panels or finite[name].max(initial=-1.0) <= 0:
        return
    row = int(np.argmax(finite[name]))
    share, index = (np.ravel(getattr(tables[name], n))[row] for n in ("peak_share", "peak_index"))
    place = np.unravel_index(row, np.atleast_1d(tables[name].rms).shape)
    height = y.at(share)
    is_low = height < (y.low + y.high) / 2
    panels[name].annotate(
        f"row {','.join(map(str, place))}: coordinate {index}",
        (x.at(sizes[name][row]), height),
        (0.98, 0.94 if is_low else 0.06),  # where it does not cover the point
        textcoords="axes fraction",
        ha="right",
        va="top" if is_low else "bottom",
        fontsize=8,
        arrowprops={"arrowstyle": "-", "color": "0.3", "linewidth": 0.8},
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "0.7"},
    )
