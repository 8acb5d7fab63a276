"""Windows along an axis: `rms_windows`, `agc`."""

import math
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums, _window_sums
from rmsfast._window_sums import Series

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
    format: str | None = None,
    threads: int | None = None,
) -> Any:
    """Root mean square of windows along an axis."""
    given = _Windowed("rms_windows", x, window, hop, axis, edge, format, threads)
    if _launch.kernels() is None:
        raise NotImplementedError
    return given.roots(nan_policy, dtype, out)


class _Windowed:
    """An array and the windows along one of its axes, checked and made uniform."""

    def __init__(
        self, function: str, x: Any, window: Any, hop: Any, axis: Any, edge: str,
        format: str | None, threads: int | None,
    ) -> None:  # fmt: skip
        self.function, self.edge, self.threads = function, edge, threads
        _arguments.check_format(function, format)
        _arguments.check_choice(function, "edge", edge, EDGES)
        _arguments.check_threads(function, threads)
        source = _arguments.source(function, "x", x, format)
        self.window = _arguments.count(function, "window", window)
        self.hop = self.window if hop is None else _arguments.count(function, "hop", hop)
        if isinstance(axis, tuple) or axis is None:
            raise TypeError(f"{function}: axis must be an int, got {axis!r}")
        axis = _arguments.whole_axis(function, axis)
        self.source, self.kind = source.array, source.kind
        self.shape, (self.axis,) = _arguments.common_shape(
            function, ("x",), [source.array.shape], axis
        )
        self.length = self.shape[self.axis]
        self.windows = _window_sums.windows_of(self.length, self.window, self.hop, edge)
        if edge == "valid" and self.window > self.length:
            requirement = f"be at most the length of the axis, {self.length}, with edge='valid'"
            raise _arguments.fail(function, "window", requirement, self.window)
        self.result_shape = tuple(
            self.windows.count if k == self.axis else n for k, n in enumerate(self.shape)
        )
        if self.length == 0 and math.prod(self.result_shape):
            raise _arguments.fail(
                function, "x", "have a coordinate along axis", f"shape {self.shape}"
            )
        self.default = _formats.result_kind((self.kind,))
        self.masks = _arguments.kept(function, [source], None, self.shape)
        self.array = source.array.reshape(self.shape)
        if self.array.nbytes <= _formats.SMALL_BYTES:
            (self.array,), (self.kind,) = _formats.cast(
                [self.array], (self.kind,), _formats.common((self.kind,))
            )

    def sums(self, omit: bool | None, result: np.ndarray) -> None:
        """The roots of all windows, to an array of float32 or float64."""
        series = Series((self.array, self.kind), self.masks, self.axis, omit)
        long = self.window > _window_sums.LONG or None
        exact = _sums.exact((self.kind,), result.dtype, False) or long
        _window_sums.roots(series, self.windows, result, exact, self.threads)

    def roots(self, nan_policy: str, dtype: Any, out: np.ndarray | None) -> Any:
        """The root mean squares, as what the caller asked for; the last refusals."""
        function = self.function
        _arguments.check_choice(function, "nan_policy", nan_policy, _arguments.NAN_POLICIES)
        dtype = _arguments.result_dtype(function, dtype, self.default)
        if out is not None:
            _arguments.check_out(function, out, self.result_shape, dtype)
            _arguments.check_overlap(function, out, self.source)
        single = dtype == np.float32 and _formats.NARROW.issuperset({self.kind})
        direct = dtype == (np.float32 if single else np.float64) and nan_policy != "raise"
        found = out
        if out is None or not direct or not _plain(out) or np.may_share_memory(out, self.source):
            found = np.empty(self.result_shape, np.float32 if single else np.float64)
        assert found is not None
        if found.size:
            self.sums(True if nan_policy == "omit" else None, found)
            if nan_policy == "raise":
                self._refuse_nan(found)
        if found.dtype != dtype:
            found = _formats.rounded(found, dtype)
        if out is not None and found is not out:
            out[...] = found
        return found if out is None else out

    def _refuse_nan(self, found: np.ndarray) -> None:
        """Refuse windows with a NaN: of values that are kept, as others have no root either."""
        bad = np.isnan(found)
        if self.masks and bad.any():
            kept = _layout.chosen(self.masks)
            some = _Windowed(self.function, kept, self.window, self.hop, self.axis, self.edge,
                             None, self.threads)  # fmt: skip
            bad &= some.roots("propagate", None, None) > 0
        if bad.any():
            flags = bad.astype(np.uint8).ravel()
            _arguments.check_flags(self.function, ("x",), flags, "raise")


def _plain(out: np.ndarray) -> bool:
    """Whether kernels can write to an array."""
    return bool(out.flags.aligned and out.dtype.isnative and all(s >= 0 for s in out.strides))
