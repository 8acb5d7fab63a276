"""Values over the RMS around them, a piece at a time: `agc`."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums, _window_sums
from rmsfast._scaled import Scaled
from rmsfast._window_sums import Series

PIECE = 1 << 19  # values that are divided in one go
SMALL = 2.0**-960  # sizes below which a quotient may lose digits
LARGER = 2.0**600


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
        target = result.reshape(scaled.shape)
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

    def _sizes(self, piece: tuple[slice, ...]) -> tuple[np.ndarray, np.ndarray | None]:
        """RMS of the windows of a piece, and of values LARGER times as large if one is small."""
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
        if kind not in ("float64", "complex128") or not (found < SMALL).any():
            return found, None
        larger = np.empty(shape)
        with np.errstate(all="ignore"):
            series = series._replace(x=(x * LARGER, kind))
        _window_sums.roots(series, own, larger, self._exact(), threads)
        return found, larger

    def _refuse_zero(self) -> None:
        """Refuse windows that are all 0, before anything is written."""
        flags = []
        for box in self._columns():
            for piece in self._pieces(box):
                found, larger = self._sizes(piece)
                zero = (found if larger is None else larger) == 0
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
        sizes: tuple[np.ndarray, np.ndarray | None],
        result: np.ndarray,
        gain: np.ndarray | None,
    ) -> None:
        """Write the values of a piece over their sizes."""
        scaled, part = self.scaled, piece[self.axis]
        size, larger = (None if a is None else self._between(a, part) for a in sizes)
        assert size is not None
        x, kind, target = scaled.array[piece], scaled.kind, result[piece]
        factor = np.ones(()) if larger is None else np.where(size < SMALL, LARGER, 1.0)
        size = size if larger is None else np.where(size < SMALL, larger, size)
        none = size == 0
        if none.any():
            size = np.where(none, np.nan if self.zero == "nan" else factor, size)
        with np.errstate(all="ignore"):
            if gain is not None:
                np.divide(factor, size, out=gain[piece], casting="same_kind")
            values = _formats.decoded(x, kind)
            pairs = [(values, target)]
            if scaled.kind.startswith("complex"):
                pairs = [(values.real, target.real), (values.imag, target.imag)]
            for own, to in pairs:
                own = own if larger is None else own * factor
                if to.dtype in (np.float32, np.float64):
                    np.divide(own, size, out=to, dtype=np.float64, casting="same_kind")
                else:
                    to[...] = _formats.rounded(np.divide(own, size, dtype=np.float64), to.dtype)

    def _between(self, sizes: np.ndarray, part: slice) -> np.ndarray:
        """Sizes at every time of a piece, linear from window to window."""
        hop, axis = self.hop, self.axis
        if hop == 1:
            return sizes[_window_sums.along(sizes, axis, slice(0, part.stop - part.start))]
        times = np.arange(part.start, part.stop)
        place = times // hop - part.start // hop
        after = np.minimum(place + 1, sizes.shape[axis] - 1)
        left, right = sizes.take(place, axis), sizes.take(after, axis)
        share = _layout.along(times % hop / hop, left.shape, (axis,))
        with np.errstate(all="ignore"):
            between: np.ndarray = np.where(share == 0, left, left * (1.0 - share) + right * share)
        return between
