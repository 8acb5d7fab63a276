"""Windows along an axis: `rms_windows`, `agc`."""

import math
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums, _window_sums
from rmsfast._gains import Gains
from rmsfast._window_sums import Series, Windows

EDGES = ("valid", "partial", "centered")


def rms_windows(
    x: Any,
    /,
    window: int,
    *,
    hop: int | None = None,
    axis: int = -1,
    edge: str = "valid",
    nan_policy: str = "propagate",
    dtype: Any = None,
    out: np.ndarray | None = None,
    format: Any = None,
    threads: int | None = None,
) -> Any:
    """Root mean square of windows along an axis, sqrt(mean(|x[s:s + window]|**2)).

    Parameters
    ----------
    x, nan_policy, dtype, format, threads
        As for `rms`. "omit" and "raise" hold for each window.
    window : int
        Values in a window, at least 1.
    hop : int, default `window`
        Values from one start s to the next, at least 1; less than `window` where they overlap.
    axis : int, default -1
        The axis along which windows lie: 0 for time-major recordings, (time, channel).
    edge : {"valid", "partial", "centered"}
        Of n values: "valid" windows lie within them, floor((n - window) / hop) + 1 of them;
        "partial" ones may end with them, ceil(max(n - window, 0) / hop) + 1; of ceil(n / hop)
        "centered" ones, window k starts at k * hop - window // 2, so that k * hop is in its
        middle. Windows that an end cuts are shorter, and their mean is over what they have; the
        last may have nothing, and be NaN, with a hop longer than a window.
    out : ndarray
        Of the shape and dtype of the result, apart from `x`.

    Returns
    -------
    ndarray, in the unit of `x`
        Shape of `x` with the number of windows along `axis`; dtype as `rms` gives it. NaN where
        a window keeps no value; a NaN or Inf shows in the windows that hold it, in no other.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rms`; for a window or hop that is not an int >= 1, and for a valid window longer than
        the axis.

    Notes
    -----
    Within 0.51 ulp of the exact value (0.76 if a subnormal float64) over the whole range of the
    dtype, whatever went before. Windows that overlap cost a constant number of additions for each
    hop: the end of one block of hops and the beginning of the next, both summed once (van Herk
    1992, doi:10.1016/0167-8655(92)90069-C; Gil & Werman 1993, doi:10.1109/34.211471), as the
    compensated pairs of `rms`. Nothing is ever subtracted, so nothing cancels.

    Examples
    --------
    >>> rms_windows([3.0, 4.0, 0.0, 0.0, 1.0, 1.0], 4, hop=2)
    array([2.5       , 0.70710678])
    >>> rms_windows([[1e8, 1.0], [1e-3, 1.0], [1e-3, 1.0]], 2, hop=1, axis=0)
    array([[7.07106781e+07, 1.00000000e+00],
           [1.00000000e-03, 1.00000000e+00]])
    """
    given = Windowed("rms_windows", x, window, hop, axis, edge, format, threads)
    return given.result(nan_policy, dtype, out)


def agc(
    x: Any,
    /,
    window: int,
    *,
    hop: int | None = None,
    axis: int = -1,
    zero: str = "keep",
    out: np.ndarray | None = None,
    dtype: Any = None,
    return_gain: bool = False,
    threads: int | None = None,
) -> Any:
    """Automatic gain control: every value over the RMS of the window around it.

    Parameters
    ----------
    x, axis, threads
        As for `rms_windows`. Only with `out` being `x` itself is `x` modified.
    window : int
        Values in a window; that of value i starts at i - window // 2, and ends where `x` does.
    hop : int, default 1
        RMS is that of ``rms_windows(x, window, hop=hop, edge="centered")``, whose windows have
        the values k * hop in their middle; between these it is interpolated linearly, behind the
        last it stays.
    zero : {"keep", "nan", "raise"}
        Where the RMS is 0, because all of the window is: values are kept, become NaN, or are
        refused, with how many windows and the first index, nothing written.
    out : ndarray of the shape of `x`
        Takes the result, and is returned. `x` itself, or apart from it.
    dtype : dtype or str
        Dtype of the result, as for `unit_rms`.
    return_gain : bool, default False
        Return ``(result, gain)``.

    Returns
    -------
    ndarray, a pure number
        Shape and dtype of `x`, in native byte order; float64 for integers and bool. NaN around a
        NaN; around an Inf finite values become 0, and Inf becomes NaN.
    gain : ndarray, in 1 / the unit of `x`
        1 / RMS in the shape of `x`, so that the result is ``x * gain`` but for the last digit;
        1 where values are kept. float64, for narrower floats float32, beyond whose range it may
        be 0 or inf while the result is in range.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        As `rms_windows` and `unit_rms`; for a zero window under "raise".

    Notes
    -----
    Values are divided by the RMS, itself within 0.51 ulp, and rounded once: within 1.6 ulp for
    float64 results, 0.51 for narrower ones. Interpolation adds 2 ulp of float64, integers beyond
    2**53 half a one. Temporaries grow with the window, not with `x`.

    Examples
    --------
    >>> agc([2.0, -2.0, 2.0, 0.0, 0.0, 8.0, -8.0, 8.0], 1)
    array([ 1., -1.,  1.,  0.,  0.,  1., -1.,  1.])
    """
    return Gains(x, window, hop, axis, zero, out, dtype, return_gain, threads).result()


class Windowed:
    """An array and the windows along one of its axes, checked and made uniform."""

    def __init__(
        self,
        function: str,
        x: Any,
        window: Any,
        hop: Any,
        axis: Any,
        edge: str,
        format: str | None,
        threads: int | None,
        windows: Windows | None = None,
    ) -> None:
        """windows: those of an array that is part of a longer one; by default all."""
        self.function, self.given, self.edge, self.threads = function, x, edge, threads
        format = _arguments.format_of(function, format)
        _arguments.check_choice(function, "edge", edge, EDGES)
        _arguments.check_threads(function, threads)
        source = _arguments.source(function, "x", x, format)
        self.window = _arguments.count(function, "window", window)
        self.hop = self.window if hop is None else _arguments.count(function, "hop", hop)
        self.format, shape = format, source.array.shape
        axis = _arguments.one_axis(function, axis)
        self.shape, (self.axis,) = _arguments.common_shape(function, ("x",), [shape], axis)
        length = self.shape[self.axis]
        every = _window_sums.windows_of(length, self.window, self.hop, edge)
        self.windows = every if windows is None else windows
        if windows is None and edge == "valid" and self.window > length:
            requirement = f"be at most the length of the axis, {length}, with edge='valid'"
            raise _arguments.fail(function, "window", requirement, self.window)
        self.result_shape = tuple(
            self.windows.number if k == self.axis else n for k, n in enumerate(self.shape)
        )
        size = math.prod(self.result_shape)
        if size and not length and windows is None:
            raise _arguments.fail(function, "x", "have a coordinate along axis", f"shape {shape}")
        self.default = _formats.result_kind((source.kind,))
        self.source, self.kind = source.array, source.kind
        self.stored = self.kind
        self.masks = _arguments.kept(function, [source], None, self.shape)
        self.array = source.array.reshape(self.shape)
        if self.array.nbytes <= _formats.SMALL_BYTES:
            (self.array,), (self.kind,) = _formats.cast(
                [self.array], (self.kind,), _formats.common((self.kind,))
            )

    def result(self, nan_policy: str, dtype: Any, out: np.ndarray | None) -> Any:
        """The root mean squares, as what the caller asked for; the last refusals."""
        function = self.function
        _arguments.check_choice(function, "nan_policy", nan_policy, _arguments.NAN_POLICIES)
        dtype = _arguments.result_dtype(function, dtype, self.default)
        if out is not None:
            _arguments.check_out(function, out, self.result_shape, dtype)
            _arguments.check_overlap(function, out, self.source)
        if _launch.kernels() is None:
            return self._by_reference(nan_policy, dtype, out)
        found = np.empty(0)
        if out is not None and nan_policy != "raise" and self.writes_to(out):
            found = out
        if found is not out or np.may_share_memory(found, self.source):
            found = np.empty(self.result_shape, self._roots(dtype))
        if found.size:
            omit = nan_policy == "omit"
            series = Series((self.array, self.kind), self.masks, self.axis, omit)
            exact = _sums.exact((self.kind,), found.dtype, False)
            _window_sums.roots(series, self.windows, found, exact, self.threads)
        if nan_policy == "raise":
            self.refuse_nan(found)
        if found is out:
            return out
        if found.dtype != dtype:
            found = _formats.rounded(found, dtype)
        if out is None:
            return found
        out[...] = found
        return out

    def block(self, *, omit: bool = False) -> int:
        """Windows that are summed together: parts that begin with some have the same bits."""
        series = Series((self.source, self.stored), [], self.axis, omit)
        exact = _sums.exact((self.stored,), np.dtype(self.default), False)
        return _window_sums.block_of(series, self.windows, exact)

    def part(self, x: np.ndarray, windows: Windows) -> np.ndarray:
        """The roots of windows of an array that came later, of the same format."""
        shape = [windows.number if k == self.axis else n for k, n in enumerate(x.shape)]
        found = np.empty(shape, self.default)
        series = Series((x, self.stored), [], self.axis, False)
        exact = _sums.exact((self.stored,), found.dtype, False)
        _window_sums.roots(series, windows, found, exact, self.threads)
        return found

    def _by_reference(self, nan_policy: str, dtype: Any, out: np.ndarray | None) -> Any:
        from rmsfast import reference

        options: dict[str, Any] = {"hop": self.hop, "axis": self.axis, "edge": self.edge}
        options |= {"format": self.format}
        options |= {"nan_policy": nan_policy, "dtype": dtype, "out": out}
        return reference.rms_windows(self.given, self.window, **options)

    def writes_to(self, out: np.ndarray) -> bool:
        """Whether kernels can write their roots to an array."""
        same = out.dtype == self._roots(out.dtype) and out.dtype.isnative
        return same and out.flags.aligned

    def _roots(self, dtype: np.dtype) -> np.dtype:
        """What roots are computed as, before they are rounded."""
        narrow = dtype == np.float32 and self.default == "float32"
        return np.dtype(np.float32 if narrow else np.float64)

    def refuse_nan(self, found: np.ndarray) -> None:
        """Refuse windows with a NaN; those that keep no value have no root either."""
        if not np.isnan(found.max(initial=0.0)):
            return
        bad = np.isnan(found)
        if self.masks and bad.any():
            kept = _layout.chosen(self.masks)
            around = self.hop, self.axis, self.edge, None, None, self.windows
            given = Windowed(self.function, kept, self.window, *around)
            bad &= given.result("propagate", None, None) > 0
        _arguments.check_flags(self.function, ("x",), bad.astype(np.uint8), "raise")
