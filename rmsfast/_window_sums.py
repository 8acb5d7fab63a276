"""Root mean squares of windows along an axis: which kernel, and in which pieces."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rmsfast import _formats, _launch, _layout, _sums
from rmsfast._layout import Operand

KEPT_BYTES = 1 << 20  # of the hops of a window, for a vector of rows
STATE_BYTES = 1 << 18  # of the hops of a block, for a tile: they stay in the level 2 cache
COPY_BYTES = 1 << 16  # of times that are copied, for each array
RUN_BYTES = 1 << 24  # that a unit reads, of windows much shorter
LEAST_BLOCK = 256  # hops, where not all of a window are kept
MOST_TILE, COPIED_TILE = 1024, 64
FEW, LANES = 16, 32  # neighbouring rows below which runs of windows are read side by side
LONG = 1 << 20  # values whose squares may not all add up as they should in float64 alone
SHORT = 64  # windows that are worth no call of their own


class Windows(NamedTuple):
    """Which windows there are: window k begins at time k * hop - before."""

    length: int  # of the axis
    window: int
    hop: int
    before: int
    count: int

    def whole(self) -> tuple[int, int]:
        """First and last (exclusive) of the windows that the ends do not cut."""
        first = -(-self.before // self.hop)
        last = (self.length - self.window + self.before) // self.hop + 1
        return first, max(first, min(last, self.count))

    def span(self, k: int) -> tuple[int, int]:
        """Times of a window."""
        start = k * self.hop - self.before
        return max(start, 0), min(start + self.window, self.length)


def windows_of(length: int, window: int, hop: int, edge: str) -> Windows:
    """The windows of an axis; none where a valid window is longer."""
    if edge == "centered":
        return Windows(length, window, hop, window // 2, -(-length // hop))
    rest = length - window
    count = rest // hop + 1 if edge == "valid" else -(-max(rest, 0) // hop) + 1
    return Windows(length, window, hop, 0, max(count, 0))


class Series(NamedTuple):
    """What is summed along an axis."""

    x: tuple[np.ndarray, str]  # and its storage format
    masks: list[tuple[np.ndarray, str]]
    axis: int
    omit: bool | None

    def views(self, change: Any) -> "Series":
        """The same of changed arrays."""
        return self._replace(
            x=(change(self.x[0]), self.x[1]), masks=[(change(m), kind) for m, kind in self.masks]
        )


def roots(
    series: Series, windows: Windows, result: np.ndarray, exact: bool | None, threads: int | None
) -> None:
    """Root mean squares of all windows, to an array of float32 or float64."""
    how: _sums.How = (series.omit, exact, None)
    apart = windows.hop > windows.window or windows.hop == windows.window > SHORT
    if windows.count > 1 and not apart:
        _Sliding(series, windows, result, how, threads).run()
        return
    first, last = windows.whole() if apart else (0, 0)
    for k in (*range(first), *range(last, windows.count)):
        begin, end = windows.span(k)
        if begin >= end:  # behind the end, as a hop beyond it can be
            result[_along(result, series.axis, slice(k, k + 1))] = np.nan
            continue
        edge = windows._replace(before=0, hop=end - begin, window=end - begin)
        _rows(series.views(lambda a, b=begin, e=end: a[_along(a, series.axis, slice(b, e))]),
              edge, 1, result[_along(result, series.axis, slice(k, k + 1))], how, threads)  # fmt: skip
    if last > first:
        start = first * windows.hop - windows.before
        _rows(series.views(lambda a: a[_along(a, series.axis, slice(start, None))]), windows,
              last - first, result[_along(result, series.axis, slice(first, last))], how, threads)  # fmt: skip


def _along(a: np.ndarray, axis: int, part: slice) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, part, *(slice(None),) * (a.ndim - axis - 1))


def _rows(
    series: Series,
    windows: Windows,
    count: int,
    result: np.ndarray,
    how: _sums.How,
    threads: int | None,
) -> None:
    """Windows that share nothing, as rows: of blocks, as those of `rms`."""
    axis = series.axis

    def cut(a: np.ndarray) -> np.ndarray:
        shape = (*a.shape[:axis], count, windows.window, *a.shape[axis + 1 :])
        step = a.strides[axis]
        strides = (*a.strides[:axis], step * windows.hop, step, *a.strides[axis + 1 :])
        return as_strided(a, shape, strides, writeable=False)

    cuts = series.views(cut)
    operands: list[Operand] = [cuts.x, None, None, *_layout.around(cuts.masks)]
    walk = _layout.walk(cuts.x[0].shape, (axis + 1,), operands)
    found = np.empty(walk.plan.rows, result.dtype)
    _sums.roots(walk, how, found, None, threads)
    result[...] = _layout.in_order(found, walk.plan)


class _Sliding:
    """Windows that overlap, by the kernel that adds up hops."""

    def __init__(
        self,
        series: Series,
        windows: Windows,
        result: np.ndarray,
        how: _sums.How,
        threads: int | None,
    ) -> None:
        self.windows, self.how, self.threads = windows, how, threads
        self.axis, self.result = series.axis, result
        array, kind = series.x
        self.numbers, partner = 1, None
        self.wide = True if kind in ("float64", "complex128") else None
        if kind.startswith("complex"):  # two real numbers a time, missing together
            self.numbers, kind = 2, f"float{array.itemsize * 4}"
            array, partner = _parts(array)
        whole = windows.window // windows.hop
        components = 1 + bool(how[1]) + bool(series.masks or how[0]) + bool(how[0])
        state = 8 * components  # bytes of a row
        self.block = whole
        if 8 * state * whole > KEPT_BYTES:
            self.block = max(LEAST_BLOCK, math.isqrt(whole) + 1)
        states = self.block + whole // self.block + 7
        self.tile = max(8, STATE_BYTES // (state * states) // 8 * 8)
        masks = series.masks
        if self.numbers > 1:
            masks = [(np.broadcast_to(m[..., None], array.shape), name) for m, name in masks]
        self.operands: list[Operand] = [
            (array, kind),
            None,
            None if partner is None or not how[0] else (partner, kind),
            *_layout.around(masks),
        ]

    def run(self) -> None:
        """All windows; those of few rows in runs that are read side by side."""
        count, block, axis = self.windows.count, self.block, self.axis
        others = [n for k, n in enumerate(self.result.shape) if k != axis]
        first, last = self.windows.whole()
        first = -(-first // block) * block
        lanes = (last - first) // LANES // block * block
        whole = self.windows.window // self.windows.hop
        if (not others or others[-1] < FEW) and lanes >= 4 * whole:
            self._launch(0, first, 0)
            self._launch(first, LANES * lanes, lanes)
            first += LANES * lanes
        else:
            first = 0
        self._launch(first, count - first, 0)

    def _launch(self, first: int, count: int, lanes: int) -> None:
        """Windows first to first + count; in runs of so many side by side (0: one after another)."""
        if count <= 0:
            return
        windows, axis = self.windows, self.axis
        length, before, at = windows.length, windows.before, first
        operands = list(self.operands)
        result = self.result
        strides = [None if o is None else o[0].strides for o in operands]
        shape = operands[0][0].shape  # type: ignore[index]
        own = result.strides + (0,) * (self.numbers - 1)
        if lanes:
            start, at, count = first * windows.hop - before, 0, lanes
            length, before = length - start, 0
            part = _along(operands[0][0], axis, slice(start, None))  # type: ignore[index]
            operands = [o and (o[0][part], o[1]) for o in operands]
            strides = [
                s and (*s, s[axis] * windows.hop * lanes) for s in strides
            ]  # type: ignore[assignment]
            result = result[_along(result, axis, slice(first, None))]
            own = (*own, own[axis] * lanes)
            shape = (*shape, LANES)
        inner = (axis, len(self.result.shape)) if self.numbers > 1 else (axis,)
        sizes = tuple(o[0].itemsize if o else 1 for o in operands)
        swapped = tuple(bool(o and not o[0].dtype.isnative) for o in operands)
        outer_axes = [k for k in range(len(shape)) if k not in inner]
        if lanes:
            outer_axes.pop()
        first_strides = strides[0] or ()
        order = sorted(outer_axes, key=lambda k: (first_strides[k] != 0, -abs(first_strides[k])))
        if lanes:
            order.append(len(shape) - 1)
        plan = _layout.plan(
            shape, inner, (*strides[:5], own), (*sizes[:5], result.itemsize),
            (*swapped[:5], False), (False,) * 6, tuple(order),
        )  # fmt: skip
        g, outer, ragged = plan.g, plan.outer, plan.ragged & ~(1 << 5)
        if not outer:  # one row
            row = np.zeros((len(g), 1), np.int64)
            row[0] = 1
            g, outer = np.hstack([row, g]), 1
        self._walk(operands, g, outer, ragged, length, before, at, count, result)

    def _walk(
        self, operands: list[Operand], g: np.ndarray, outer: int, ragged: int, length: int,
        before: int, first: int, count: int, result: np.ndarray,
    ) -> None:  # fmt: skip
        arrays = tuple(o and _layout.kernel_view(*o) for o in operands)
        columns, rows = int(g[0, outer - 1]), math.prod(g[0, :outer].tolist())
        tile = min(self.tile, COPIED_TILE if ragged else MOST_TILE, -(-columns // 8) * 8)
        tiles = -(-columns // tile)
        itemsize = sum(a.itemsize for a in arrays if a is not None)
        hop, window, block = self.windows.hop, self.windows.window, self.block
        hop_bytes = hop * self.numbers * tile * itemsize
        # Runs long beside a window, of which their first takes the time; enough for all threads.
        least = 4 * -(-window // hop)
        wanted = -(-count * rows * tiles // (columns * 4 * _launch.threads_for(self.threads)))
        run = max(least, min(wanted, max(4 * least, RUN_BYTES // hop_bytes)), 1)
        run = -(-min(run, count) // block) * block
        beside = np.array([[1]] + [[tile * a.itemsize] if a is not None else [0] for a in arrays])
        runs = -(-count // run)
        args = (
            arrays, self.how, self.wide, g, beside, outer, ragged, self.numbers, length, window,
            hop, before, block, first, count, run, tile, COPY_BYTES, _layout.kernel_view(
                result, result.dtype.name),
        )  # fmt: skip
        units = rows // columns * runs * tiles
        _launch.launch("window_roots", args, units, run * hop_bytes, self.threads)


def _parts(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary part of each value along a last axis, and the other one beside each."""
    shape, step = (*array.shape, 2), array.itemsize // 2
    return (
        as_strided(array.real, shape, (*array.strides, step), writeable=False),
        as_strided(array.imag, shape, (*array.strides, -step), writeable=False),
    )
