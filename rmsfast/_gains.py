"""Values over the RMS around them, a piece at a time: `agc`."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums, _window_sums
from rmsfast._layout import Operand
from rmsfast._scaled import Scaled
from rmsfast._window_sums import Series

PIECE = 1 << 20  # values that are divided in one go
STEP, COPIED = 1 << 14, 1 << 10  # values of a run that are divided, or copied before and after
WIDE = ("float64", "complex128")


class Gains:
    """Arguments of `agc`, checked; then pieces of the axis, whose RMS is known before any write."""

    def __init__(
        self,
        x: Any,
        window: Any,
        hop: Any,
        axis: Any,
        zero: str,
        out: np.ndarray | None,
        dtype: Any,
        return_gain: bool,
        threads: int | None,
    ) -> None:
        function = "agc"
        _arguments.check_choice(function, "zero", zero, ("keep", "nan", "raise"))
        self.window = _arguments.count(function, "window", window)
        self.hop = 1 if hop is None else _arguments.count(function, "hop", hop)
        axis = _arguments.one_axis(function, axis)
        self.scaled = Scaled(function, x, axis, None, out, dtype, None, False, threads)
        (self.axis,) = self.scaled.axes
        self.zero, self.return_gain = zero, return_gain
        self.windows = _window_sums.windows_of(
            self.scaled.shape[self.axis], self.window, self.hop, "centered"
        )

    def result(self) -> Any:
        """The values over the RMS around them."""
        scaled = self.scaled
        if _launch.kernels() is None:
            from rmsfast import reference

            options = {"hop": self.hop, "axis": self.axis, "zero": self.zero, "out": scaled.out}
            options |= {"dtype": scaled.options["dtype"], "return_gain": self.return_gain}
            return reference.agc(scaled.given, self.window, **options)
        result = scaled.out
        if result is None:
            result = np.empty(scaled.result_shape, scaled.dtype)
        gain = None
        if self.return_gain:
            gain = np.empty(scaled.shape, _formats.result_kind((scaled.kind,)))
        if self.zero == "raise":
            self._refuse_zero()
        target = result if result.shape else result.reshape(scaled.shape)
        self.streaming = _sums.streams(scaled.out, scaled.array)
        for box in self._columns():
            waiting = None
            for piece in self._pieces(box):
                sizes = self._sizes(piece)
                if waiting is not None:  # the windows of this piece have been read by now
                    self._divide(*waiting, target, gain)
                waiting = piece, sizes
            if waiting is not None:
                self._divide(*waiting, target, gain)
        answer = result if scaled.result_shape or scaled.out is not None else result[()]
        if gain is None:
            return answer
        return answer, gain.reshape(scaled.result_shape)[()]

    def _columns(self) -> Iterator[tuple[slice, ...]]:
        """Boxes of rows, all along the axis, of which few pieces take little room."""
        shape = self.scaled.shape
        if not math.prod(shape):
            return
        others = [k for k in range(len(shape)) if k != self.axis]
        longest = max(others, key=shape.__getitem__, default=self.axis)
        step = shape[longest]
        if others:
            rows = math.prod(shape[k] for k in others) // step
            step = min(step, max(16, 8 * PIECE // (4 * self.windows.window * rows)))
        for begin in range(0, shape[longest], step):
            box = [slice(0, n) for n in shape]
            box[longest] = slice(begin, min(begin + step, shape[longest]))
            yield tuple(box)

    def _pieces(self, box: tuple[slice, ...]) -> Iterator[tuple[slice, ...]]:
        """Pieces of a box, at least as long as what a window needs before and after them.

        They end with blocks of hops, so that a window has the same bits in any pieces.
        """
        length = self.windows.length
        sizes = [part.stop - part.start for part in box]
        block = _window_sums.block_of(self._series(box), self.windows, self._exact()) * self.hop
        wanted = max(4 * self.windows.window, PIECE * length // math.prod(sizes))
        step = -(-wanted // block) * block
        for begin in range(0, length, step):
            piece = list(box)
            piece[self.axis] = slice(begin, min(begin + step, length))
            yield tuple(piece)

    def _series(self, box: tuple[slice, ...]) -> Series:
        scaled = self.scaled
        series = Series((scaled.array, scaled.kind), scaled.masks, self.axis, False)
        return series.views(lambda a: a[box])

    def _exact(self) -> bool | None:
        """Narrow results are divided out in float64, but need no better sums for it."""
        kinds = (self.scaled.kind,)
        return _sums.exact(kinds, np.dtype(_formats.result_kind(kinds)), False)

    def _sizes(self, piece: tuple[slice, ...]) -> np.ndarray:
        """RMS of the windows of a piece; small ones as `Division` takes them."""
        hop, windows, part = self.hop, self.windows, piece[self.axis]
        first, last = part.start // hop, min((part.stop - 1) // hop + 2, windows.number)
        times, own = windows.some(first, last)
        box = list(piece)
        box[self.axis] = times
        series = self._series(tuple(box))
        shape = [p.stop - p.start for p in piece]
        shape[self.axis] = own.number
        found = np.empty(shape)
        threads = self.scaled.threads
        _window_sums.roots(series, own, found, self._exact(), threads)
        x, kind = series.x
        if kind in WIDE and (small := found < _launch.kernel_module("_stores").SMALL).any():
            larger = np.empty(shape)
            with np.errstate(all="ignore"):
                series = series._replace(x=(x * _launch.kernel_module("_stores").LARGER, kind))
            _window_sums.roots(series, own, larger, self._exact(), threads)
            np.negative(larger, out=found, where=small)
        return found

    def _refuse_zero(self) -> None:
        """Refuse windows that are all 0, before anything is written."""
        flags = []
        for box in self._columns():
            for piece in self._pieces(box):
                zero = self._sizes(piece) == 0
                count = -(-piece[self.axis].stop // self.hop) - piece[self.axis].start // self.hop
                zero = zero[_window_sums.along(zero, self.axis, slice(0, count))]
                if zero.any():
                    first = np.argwhere(zero)[0]
                    first += [part.start for part in piece]
                    first[self.axis] += piece[self.axis].start // self.hop
                    first[self.axis] -= piece[self.axis].start
                    flags.append((int(np.count_nonzero(zero)), tuple(first.tolist())))
        if flags:
            count, first_index = sum(n for n, _ in flags), min(index for _, index in flags)
            windows = "1 zero window" if count == 1 else f"{count} zero windows"
            actual = f"{windows}, the first at index {first_index}"
            raise _arguments.fail("agc", "x", "be nonzero under zero='raise'", actual)

    def _divide(
        self,
        piece: tuple[slice, ...],
        sizes: np.ndarray,
        result: np.ndarray,
        gain: np.ndarray | None,
    ) -> None:
        """Write the values of a piece over their sizes, and 1 over these."""
        scaled, hop, axis = self.scaled, self.hop, self.axis
        x, target = (scaled.array[piece], scaled.kind), (result[piece], scaled.result_kind)
        pairs = [(x, target)]
        if x[1].startswith("complex"):
            pairs = list(zip(_parts(x[0]), _parts(target[0]), strict=True))
        if gain is not None:
            one = np.ones((), np.float64 if x[1] in WIDE else np.float32)
            ones = np.broadcast_to(one, x[0].shape), one.dtype.name
            pairs.append((ones, (gain[piece], gain.dtype.name)))
        length = piece[axis].stop - piece[axis].start
        whole = length // hop
        for first, many, times in ((0, whole, hop), (whole, 1, length - whole * hop)):
            if many * times:
                span = slice(first * hop, first * hop + many * times)
                for own, to in pairs:
                    part = _window_sums.along(own[0], axis, span)
                    self._run((own[0][part], own[1]), (to[0][part], to[1]), sizes, first, times)

    def _run(
        self,
        x: tuple[np.ndarray, str],
        target: tuple[np.ndarray, str],
        sizes: np.ndarray,
        first: int,
        times: int,
    ) -> None:
        """Divide runs of `times` values behind the centres of windows from `first` on."""
        axis, threads = self.axis, self.scaled.threads
        shape, many = x[0].shape, x[0].shape[axis] // times
        shape = (*shape[:axis], many, times, *shape[axis + 1 :])

        def of_windows(start: int) -> tuple[np.ndarray, str]:
            own = sizes[_window_sums.along(sizes, axis, slice(start, start + many))]
            return np.broadcast_to(np.expand_dims(own, axis + 1), shape), "float64"

        right: Operand = None
        share: Operand = None
        if self.hop > 1:
            if first + many == sizes.shape[axis]:  # behind the last centre
                last = sizes.shape[axis] - 1
                sizes = sizes.take([*range(last + 1), last], axis)
            right = of_windows(first + 1)
            share = _layout.along(np.arange(times) / self.hop, shape, (axis + 1,)), "float64"
        together: list[Operand] = [
            (x[0].reshape(shape), x[1]),
            of_windows(first),
            right,
            share,
            None,
        ]
        walk = _layout.walk(shape, (), [*together, (target[0].reshape(shape), target[1])])
        g, apart, (values, left, after, between) = walk.plan.g, walk.plan.ragged, walk.arrays[:4]
        if not g.size:  # one number
            g = np.array([[1], *[[0]] * 6], np.int64)
        same = between is not None and g[4, -1] == 0
        writes = (values, left, after, None if same else between)
        relevant = apart & (0b110111 if same else 0b111111)
        step = COPIED if relevant else STEP
        length = int(g[0, -1])
        args: tuple[Any, ...] = (writes, between if same else None, walk.arrays[5], g, apart, step)
        args += (np.nan if self.zero == "nan" else 1.0, self.streaming)
        units = walk.plan.rows // length * -(-length // step)
        unit_bytes = min(step, length) * (x[0].itemsize + target[0].itemsize)
        _launch.launch("divide_elements", args, units, unit_bytes, threads)


def _parts(array: np.ndarray) -> list[tuple[np.ndarray, str]]:
    """Real and imaginary parts."""
    name = f"float{array.itemsize * 4}"
    return [(array.real, name), (array.imag, name)]
