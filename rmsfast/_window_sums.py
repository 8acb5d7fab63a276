"""Root mean squares of windows along an axis: which kernel, and in which pieces."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from rmsfast import _launch, _layout, _sums
from rmsfast._layout import Operand
from rmsfast._partial import WIDTH

KEPT_BYTES = 1 << 20  # of the hops of a window, for a vector of rows
STATE_BYTES = 1 << 20  # of the hops of a block, for a tile
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
    number: int

    def whole(self) -> tuple[int, int]:
        """First and last (exclusive) of the windows that the ends do not cut."""
        first = -(-self.before // self.hop)
        last = (self.length - self.window + self.before) // self.hop + 1
        return first, max(first, min(last, self.number))

    def some(self, first: int, last: int) -> tuple[slice, "Windows"]:
        """The times that windows first to last need, and the same windows of these times."""
        begin = min(self.span(first)[0], self.length)
        end = max(begin, self.span(last - 1)[1])
        before = self.before + begin - first * self.hop
        return slice(begin, end), self._replace(
            length=end - begin, before=before, number=last - first
        )

    def span(self, k: int) -> tuple[int, int]:
        """Times of a window."""
        start = k * self.hop - self.before
        return max(start, 0), min(start + self.window, self.length)


def windows_of(length: int, window: int, hop: int, edge: str) -> Windows:
    """The windows of an axis; none where a valid window is longer."""
    if edge == "centered":
        window = min(window, 2 * length)  # longer ones hold everything, too
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

    def part(self, times: slice) -> "Series":
        """Some times."""
        return self.views(lambda a: a[along(a, self.axis, times)])

    def views(self, change: Any) -> "Series":
        """The same of changed arrays."""
        return self._replace(
            x=(change(self.x[0]), self.x[1]), masks=[(change(m), kind) for m, kind in self.masks]
        )


def roots(
    series: Series, windows: Windows, result: np.ndarray, exact: bool | None, threads: int | None
) -> None:
    """Root mean squares of all windows, to an array of float32 or float64."""
    how: _sums.How = (series.omit or None, exact, None)
    apart = windows.hop > windows.window or windows.hop == windows.window > SHORT
    if windows.number > 1 and not apart:
        how = how[0], exact or windows.window > LONG or None, None
        _Sliding(series, windows, result, how, threads).run()
        return
    first, last = windows.whole() if apart else (0, 0)
    axis = series.axis
    for k in (*range(first), *range(last, windows.number)):
        begin, end = windows.span(k)
        found = result[along(result, axis, slice(k, k + 1))]
        if begin >= end:  # behind the end, as a hop beyond it can be
            found[...] = np.nan
            continue
        alone = Windows(end - begin, end - begin, end - begin, 0, 1)
        _rows(series.part(slice(begin, end)), alone, found, how, threads)
    if last > first:
        start = first * windows.hop - windows.before
        inside = windows._replace(before=0, number=last - first)
        found = result[along(result, axis, slice(first, last))]
        _rows(series.part(slice(start, None)), inside, found, how, threads)


def state_bytes(series: Series, exact: bool | None) -> int:
    """Bytes of the sums of a row: sum, its low part, count, number of NaN."""
    counted = bool(series.masks) or bool(series.omit)
    return 8 * (1 + bool(exact) + counted + bool(series.omit))


def block_of(series: Series, windows: Windows, exact: bool | None) -> int:
    """Hops of a block: those of a window, where there is room to keep them."""
    whole = windows.window // windows.hop
    if WIDTH * state_bytes(series, exact) * whole <= KEPT_BYTES:
        return max(1, whole)
    return max(LEAST_BLOCK, math.isqrt(whole) + 1)


def along(a: np.ndarray, axis: int, part: slice) -> tuple[slice, ...]:
    """The index of a part of one axis."""
    return (*(slice(None),) * axis, part, *(slice(None),) * (a.ndim - axis - 1))


def _rows(
    series: Series,
    windows: Windows,
    result: np.ndarray,
    how: _sums.How,
    threads: int | None,
) -> None:
    """Windows that share nothing, as rows: of blocks, as those of `rms`."""
    axis = series.axis

    def cut(a: np.ndarray) -> np.ndarray:
        shape = (*a.shape[:axis], windows.number, windows.window, *a.shape[axis + 1 :])
        step = a.strides[axis]
        strides = (*a.strides[:axis], step * windows.hop, step, *a.strides[axis + 1 :])
        return as_strided(a, shape, strides, writeable=False)

    cuts = series.views(cut)
    operands: list[Operand] = [cuts.x, None, None, *_layout.around(cuts.masks)]
    walk = _layout.walk(cuts.x[0].shape, (axis + 1,), operands)
    ordered = result.transpose([k - (k > axis) for k in walk.plan.order])
    if ordered.flags.c_contiguous:
        _sums.roots(walk, how, ordered.reshape(-1), None, threads)
        return
    found = np.empty(walk.plan.rows, result.dtype)
    _sums.roots(walk, how, found, None, threads)
    ordered[...] = found.reshape(ordered.shape)


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
        self.windows, self.how, self.threads, self.axis = windows, how, threads, series.axis
        (array, kind), masks = series.x, series.masks
        self.wide = True if kind in ("float64", "complex128") else None
        self.numbers, partner = 1, None
        if kind.startswith("complex"):  # two real numbers a time, missing together
            self.numbers, kind = 2, f"float{array.itemsize * 4}"
            array, partner = _parts(array)
            masks = [(np.broadcast_to(m[..., None], array.shape), name) for m, name in masks]
        missing = None if partner is None or not how[0] else (partner, kind)
        self.operands: list[Operand] = [(array, kind), None, missing, *_layout.around(masks)]
        self.operands.append((result, result.dtype.name))
        self.block = block_of(series, windows, how[1])
        states = self.block + windows.window // windows.hop // self.block + 7
        self.tile = max(8, STATE_BYTES // (state_bytes(series, how[1]) * states) // 8 * 8)

    def run(self) -> None:
        """All windows; those of few rows in runs that are read side by side."""
        windows, block = self.windows, self.block
        result = self._result()
        others = [n for k, n in enumerate(result.shape) if k != self.axis]
        first, last = windows.whole()
        first = -(-first // block) * block
        each = (last - first) // LANES // block * block
        if (others and others[-1] >= FEW) or each < 4 * (windows.window // windows.hop):
            self._launch(self.operands, windows, 0, windows.number)
            return
        self._launch(self.operands, windows, 0, first)
        begin = first * windows.hop - windows.before
        inside = Windows(windows.length - begin, windows.window, windows.hop, 0, each)
        parts = [self._side_by_side(o, begin, each * windows.hop) for o in self.operands[:-1]]
        parts.append(self._side_by_side(self.operands[-1], first, each))
        self._launch(parts, inside, 0, each, LANES)
        first += LANES * each
        self._launch(self.operands, windows, first, windows.number - first)

    def _result(self) -> np.ndarray:
        result = self.operands[-1]
        assert result is not None
        return result[0]

    def _side_by_side(self, operand: Operand, begin: int, step: int) -> Operand:
        """An array from one place on, and LANES places `step` apart along a last axis."""
        if operand is None:
            return None
        a = operand[0][along(operand[0], self.axis, slice(begin, None))]
        strides = (*a.strides, a.strides[self.axis] * step)
        return as_strided(a, (*a.shape, LANES), strides), operand[1]

    def _launch(
        self, operands: list[Operand], windows: Windows, first: int, number: int, lanes: int = 0
    ) -> None:
        """So many windows of every row from `first` on; rows lie along a last axis of `lanes`."""
        if number <= 0:
            return
        plan = self._plan(operands, lanes)
        arrays = tuple(o and _layout.kernel_view(*o) for o in operands)
        ragged = plan.ragged & ~(1 << len(operands) - 1)  # the result may lie as it will
        g, outer = plan.g, plan.outer
        if not outer:  # one row
            g, outer = np.hstack([np.eye(len(g), 1, dtype=np.int64), g]), 1
        rows, columns = plan.rows, int(g[0, outer - 1])
        tile = min(self.tile, COPIED_TILE if ragged else MOST_TILE, -(-columns // WIDTH) * WIDTH)
        tiles = -(-columns // tile)
        itemsizes = [0 if a is None else a.itemsize for a in arrays[:-1]]
        hop_bytes = windows.hop * self.numbers * tile * sum(itemsizes)
        # Before its first window, a run reads as much as this takes.
        whole = -(-windows.window // windows.hop)
        shared = number * (rows // columns) * tiles // _launch.threads_for(self.threads)
        run = max(shared // 4, min(16 * whole, shared), whole)
        run = max(1, min(run, max(16 * whole, RUN_BYTES // hop_bytes)))
        run = -(-min(run, number) // self.block) * self.block
        beside = np.array([[1], *([tile * n] for n in itemsizes)])
        args: tuple[Any, ...] = (arrays[:-1], self.how, self.wide, g, beside, outer, ragged)
        args += (self.numbers, windows.length, windows.window, windows.hop, windows.before)
        args += (self.block, first, number, run, tile, COPY_BYTES, arrays[-1])
        units = rows // columns * -(-number // run) * tiles
        _launch.launch("window_roots", args, units, run * hop_bytes, self.threads)

    def _plan(self, operands: list[Operand], lanes: int) -> _layout.Plan:
        """How rows are walked: the last axes are that of time, and that of numbers of a value."""
        given = [o and o[0] for o in operands]
        x, result = given[0], given[-1]
        assert x is not None
        assert result is not None
        last = x.ndim - bool(lanes)
        inner = (self.axis, last - 1) if self.numbers > 1 else (self.axis,)
        strides = [a if a is None else a.strides for a in given]
        if self.numbers > 1:  # which are one result
            strides[-1] = (*result.strides[: last - 1], 0, *result.strides[last - 1 :])
        outer = [k for k in range(last) if k not in inner]
        outer.sort(key=lambda k: (x.strides[k] != 0, -abs(x.strides[k])))
        if lanes:
            outer.append(last)
        sizes = tuple(1 if a is None else a.itemsize for a in given)
        swapped = tuple(a is not None and not a.dtype.isnative for a in given)
        no = (False,) * len(given)
        return _layout.plan(x.shape, inner, tuple(strides), sizes, swapped, no, tuple(outer))


def _parts(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary part of each value along a last axis, and the other one beside each."""
    shape, step = (*array.shape, 2), array.itemsize // 2
    return (
        as_strided(array.real, shape, (*array.strides, step), writeable=False),
        as_strided(array.imag, shape, (*array.strides, -step), writeable=False),
    )
