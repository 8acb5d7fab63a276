"""What all pictures share: size, colours, marks, and axes with a place for 0 and NaN."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmsfast._extras import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]
StrPath = str | os.PathLike[str]

WIDTH, PANEL_HEIGHT, DPI = 8.0, 3.0, 100  # inches; 800 pixels
# Colours of Okabe and Ito, told apart by most people who see few of them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "osD^vPX"
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)))
POINTS = 2000  # of a scatter: more only make ink
NAME_LENGTH = 30  # letters of a name beside an axis


def figure(heights: Sequence[float]) -> Figure:
    """Empty picture of the usual width, which no window shows."""
    needed("a picture", "matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(WIDTH, sum(heights)), dpi=DPI, layout="constrained")
    FigureCanvasAgg(drawn)
    return drawn


def saved(drawn: Figure, path: StrPath | None) -> Figure:
    """The picture, written as PNG if there is a path; an existing file is replaced at the end."""
    if path is not None:
        from rmsfast.files._writers import replacing

        with replacing(path) as temporary:
            drawn.savefig(temporary, format="png")
    return drawn


def labels(names: Iterable[str]) -> dict[str, str]:
    """Short texts for names, of which no two are the same.

    Long names lose parts that all have at their start, then at their end, as few as will do; then
    their middle, as far as they stay apart. Nothing in them is taken for a formula.
    """
    texts = {name: "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)
             for name in names}  # fmt: skip
    whole = _trimmed(list(texts.values()))
    length = NAME_LENGTH if len(whole) > 1 else 2 * NAME_LENGTH
    shown = [_without_middle(text, length) for text in whole]
    while len(set(shown)) < len(set(whole)):
        length += 1
        shown = [_without_middle(text, length) for text in whole]
    return {n: text.replace("$", r"\$") for n, text in zip(texts, shown, strict=True)}


def _trimmed(names: list[str]) -> list[str]:
    """Names without the first and last of the parts that all have, until they are short."""
    if len(names) < 2:
        return names
    before, after = _start(names), _start([name[::-1] for name in names])[::-1]
    starts = [0, *(i + 1 for i, c in enumerate(before) if c in "./")]
    ends = [len(after) - i for i, c in enumerate(after) if c in "./"][::-1]
    found, shortest = names, min(map(len, names))
    for first, last in [*((start, 0) for start in starts), *((starts[-1], end) for end in ends)]:
        if first + last >= shortest:
            break
        found = [name[first : len(name) - last] for name in names]
        found = ["…" * (first > 0) + text + "…" * (last > 0) for text in found]
        if max(map(len, found)) <= NAME_LENGTH:
            break
    return found


def _start(texts: list[str]) -> str:
    """What all have in common at their start."""
    columns = zip(*texts, strict=False)
    return "".join(c[0] for c in takewhile(lambda column: len(set(column)) == 1, columns))


def _without_middle(text: str, length: int) -> str:
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"


class Scale(NamedTuple):
    """A logarithmic axis from 10**low to 10**high, with places for 0 and what is not finite."""

    low: float
    high: float
    has_zero: bool
    has_odd: bool

    @classmethod
    def of(cls, *values: Array, least: float = 0.3) -> Scale:
        """The axis on which all of these have a place; it spans so many decades at least."""
        every = np.concatenate([np.ravel(each).astype(np.float64) for each in values])
        logs = np.log10(every[np.isfinite(every) & (every > 0)])
        low, high = (float(logs.min()), float(logs.max())) if logs.size else (-1.0, 1.0)
        more = max(least - (high - low), 0.0) / 2 + 0.04 * (high - low) + 0.01
        odd = ~np.isfinite(every)
        return cls(low - more, high + more, bool((every == 0).any()), bool(odd.any()))

    @property
    def gap(self) -> float:
        """From the ends of the axis to the places beyond it."""
        return 0.07 * (self.high - self.low)

    def place(self, values: Array) -> Array:
        """Where values stand."""
        values = np.asarray(values, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log10(values)
        logs = np.where(values == 0, self.low - self.gap, logs)
        return np.where(np.isfinite(values), logs, self.high + self.gap)

    def at(self, value: float) -> float:
        """Where one value stands."""
        return float(self.place(np.asarray(value)))

    def ticks(self, apart: float = 0.0) -> dict[float, str]:
        """Where numbers stand along the axis, so far apart at least as a part of its length."""
        span = self.high - self.low
        step = max(1, math.ceil(span / 7))
        first = math.ceil(self.low / step) * step
        steps: tuple[float, ...] = (1, 2, 5) if span < 2.5 else (1, 3) if span < 4 else (1,)
        steps = (1, 1.5, 2, 3, 4, 5, 7) if span < 1.2 else steps
        values = [
            float(f"{m}e{k}")
            for k in range(first - step, math.ceil(self.high), step)
            for m in steps
        ]
        usual = [v for v in values if 0 < v < math.inf]  # others are beyond float64
        marks = [v for v in usual if self.low <= math.log10(v) <= self.high]
        found = {}
        if self.has_zero:
            found[self.low - self.gap] = "0"
        if self.has_odd:
            found[self.high + self.gap] = "NaN\nInf"
        for v in sorted(marks, key=lambda v: f"{v:e}"[0] != "1"):  # powers of ten come first
            place = math.log10(v)
            if all(abs(place - other) >= apart * span for other in found):
                found[place] = f"{v:.4g}"
        return dict(sorted(found.items()))

    def draw(self, axes: Axes, which: str, apart: float = 0.0) -> None:
        """Set up the axis x or y, and set its outer places apart."""
        ticks = self.ticks(apart)
        axis, limits = getattr(axes, f"{which}axis"), getattr(axes, f"set_{which}lim")
        axis.set_ticks(list(ticks), list(ticks.values()))
        line = axes.axvline if which == "x" else axes.axhline
        for has, end, sign in ((self.has_zero, self.low, -1), (self.has_odd, self.high, 1)):
            if has:
                line(end + sign * 0.3 * self.gap, color="0.6", linewidth=0.8, linestyle=":")
        limits(self.low - 1.7 * self.gap * self.has_zero, self.high + 1.7 * self.gap * self.has_odd)
        axes.tick_params(labelsize=8)


def thinned(*values: Array) -> Array:
    """Which points to draw of many: some evenly, and the ends of each coordinate."""
    count = values[0].size
    if count <= POINTS:
        return np.arange(count)
    ends = [np.argsort(each)[[*range(20), *range(-20, 0)]] for each in values]
    return np.unique(np.concatenate([np.linspace(0, count - 1, POINTS).astype(int), *ends]))


def legend_below(drawn: Figure, *axes: Axes) -> None:
    """Name lines and points below the picture, where they hide nothing."""
    found = [each.get_legend_handles_labels() for each in axes]
    handles, labels = (
        [item for part in parts for item in part] for parts in zip(*found, strict=True)
    )
    drawn.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
