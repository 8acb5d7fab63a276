"""Pictures of windows: `windows`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rmsfast.plots._figure import COLOURS, PANEL_HEIGHT, Array, Scale, StrPath, figure, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = "RMS, in the unit of the values"
NAMED = 8  # dead channels at most that the legend lists
PALEST = 0.15  # of the colours, which darken as RMS grows: even without hue the least is not white
MOST = 1500  # cells along an axis: more are smaller than pixels


def windows(
    values: Any,
    path: StrPath | None = None,
    *,
    hop: float = 1.0,
    unit: str = "samples",
    title: str = "",
) -> Figure:
    """Draw the RMS of windows as a map of channels by time.

    Parameters
    ----------
    values : array_like, shape (windows,) or (windows, ...)
        As `rmsfast.rms_windows` gives it along the first axis; all other axes are channels.
    path : path_like, optional
        PNG file to write.
    hop : float
        From the start of a window to that of the next, in `unit`.
    unit : str
        Of time.
    title : str

    Returns
    -------
    matplotlib.figure.Figure
        800 pixels wide; a line where there is one channel. Windows of zeros are white, those with
        NaN hatched; the legend lists the channels of zeros alone, if they are few. Where there are
        more windows or channels than pixels, the largest of some neighbours is shown.
    """
    found = np.asarray(values, np.float64)
    found = found.reshape(len(found), -1).T
    drawn = figure([PANEL_HEIGHT * (1.0 if len(found) == 1 else 1.6)])
    axes = drawn.subplots()
    if len(found) == 1:
        _line(axes, hop, found[0])
    else:
        _map(drawn, axes, hop, found)
    axes.set_xlabel(f"start of the window, in {unit}", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.set_title(title, fontsize=10)
    return saved(drawn, path)


def _line(axes: Axes, hop: float, values: Array) -> None:
    scale = Scale.of(values)
    shown = _pooled(values, 0)
    starts = np.linspace(0, hop * (values.size - 1), shown.size)
    axes.plot(starts, scale.place(shown), ".-", color=COLOURS[0], markersize=3, linewidth=0.8)
    scale.draw(axes, "y")
    axes.set_ylabel(SIZE, fontsize=9)
    axes.margins(x=0.01)


def _map(drawn: Figure, axes: Axes, hop: float, values: Array) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    shown = _pooled(_pooled(values, 0), 1)
    extent = (
        np.linspace(0, values.shape[1] * hop, shown.shape[1] + 1),
        np.linspace(-0.5, len(values) - 0.5, len(shown) + 1),
    )
    usual = np.isfinite(shown) & (shown > 0)
    marks = []
    dead = np.flatnonzero((values == 0).all(axis=1))
    if (shown == 0).any():
        axes.pcolormesh(*extent, np.ma.masked_not_equal(shown, 0), cmap=ListedColormap(["white"]))
    if dead.size or (shown == 0).any():  # among many channels the larger of neighbours are shown
        marks.append(Patch(facecolor="white", edgecolor="0.5", label=_dead_text(dead)))
    if not np.isfinite(shown).all():
        axes.patch.set(hatch="xxxx", edgecolor="0.5")
        marks.append(Patch(facecolor="white", hatch="xxxx", edgecolor="0.5", label="NaN or Inf"))
    if usual.any():
        scale = Scale.of(shown[usual])
        mesh = axes.pcolormesh(
            *extent,
            np.ma.masked_where(~usual, scale.place(shown)),
            vmin=scale.low,
            vmax=scale.high,
            cmap=ListedColormap(colormaps["viridis_r"](np.linspace(PALEST, 1, 256))),
        )
        bar = drawn.colorbar(mesh, ax=axes, pad=0.02)
        ticks = scale.ticks()
        bar.set_ticks(list(ticks), labels=list(ticks.values()))
        bar.set_label(SIZE, fontsize=9)
        bar.ax.tick_params(labelsize=8)
    axes.set_ylabel("channel", fontsize=9)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if marks:
        drawn.legend(handles=marks, loc="outside lower center", ncols=2, fontsize=8, frameon=False)


def _dead_text(dead: Array) -> str:
    """What white stands for, and which channels are so throughout: a thin line is hard to read."""
    text = "RMS 0, dead"
    if 0 < dead.size <= NAMED:
        text += f": channel{'s' * (dead.size > 1)} {', '.join(map(str, dead))}"
    return text


def _pooled(values: Array, axis: int) -> Array:
    """Not more cells along an axis than can be seen: the largest of neighbours."""
    count = values.shape[axis]
    if count <= MOST:
        return values
    starts = np.arange(MOST) * count // MOST
    return np.maximum.reduceat(values, starts, axis=axis)
