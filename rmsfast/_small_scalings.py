"""Scalings of plain arrays: what they need, kept from one call to the next; see _small."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _formats, _launch, _layout, _sums
from rmsfast._partial import BLOCK
from rmsfast._small import Side, in_c_order, nbytes, writable

ONE = np.ones(1)
FILLS = {"raise": np.nan, "zero": 0.0, "nan": np.nan}  # factors of rows of zeros


class Scaling(NamedTuple):
    """Rows over their size along one axis."""

    first: tuple[int, ...]  # index of the first row
    view: np.dtype | None  # of x and the result, as the kernels see them
    g: np.ndarray
    outer: int
    length: int
    rows: int
    nbytes: int  # of x and the result
    how: _sums.How
    wide: bool | None
    mode: int
    gain: np.dtype | None  # as it is copied
    gain_view: np.dtype | None  # and seen by the kernel
    key: str
    run: list[Callable[..., Any]]  # the compiled kernel, once it was called


def scaled(
    x: Any,
    axis: Any,
    mode: str,
    zero: Any,
    target: Any,
    out: Any,
    format: Any,
    threads: Any,
    eps: float = 0.0,
    gain: Any = None,
    offset: float = 0.0,
    cast: bool | None = None,
) -> np.ndarray | None:
    """x * target / size * (gain + offset); None where something is not plain, or refused."""
    if type(x) is not np.ndarray or type(axis) is not int or not isinstance(target, float):
        return None
    if type(zero) is not str or not (format is None or type(format) is str):
        return None
    if threads is not None and (type(threads) is not int or threads < 1):
        return None
    own = gains = None
    if out is not None:
        if not writable(out, x):
            return None
        own = out.dtype, out.shape, out.strides
    if gain is not None:
        if type(gain) is not np.ndarray:
            return None
        gains = gain.dtype, gain.shape
    found = scaling((x.dtype, x.shape, x.strides), own, gains, axis, format, mode, cast, zero)
    if found is None:
        return None
    first, view, g, outer, length, rows, both, how, wide, how_eps, wanted, seen, key, run = found
    shared = _launch.share_pays(both, threads)
    if shared and length > BLOCK and rows < 4 * _launch.threads_for(threads):
        return None  # each row is shared among threads
    result = np.empty(x.shape, x.dtype) if out is None else out
    source, written = x[first], result[first]
    if view is not None:
        source, written = source.view(view), written.view(view)
    arrays = writes = (source, None, None, None, None)
    if wanted is not None:  # the gain is read at each call, and apart from the result
        gain = copied(gain, wanted)
        writes = source, gain if seen is None else gain.view(seen), None, None, None
    args: tuple[Any, ...] = (
        arrays, how, wide, writes, cast, written, g, outer, 0, length, how_eps, eps, FILLS[zero],
        ONE if target == 1.0 else np.array([target]), offset, None,
    )  # fmt: skip
    if not run:
        types = (*args, False, False, 0, 0), (key, seen or wanted, cast)
        run.append(_launch.compiled(_launch.kernel("scale_rows"), *types))
    refuse = zero == "raise"
    if not shared:
        return None if run[0](*args, False, refuse, 0, rows) else result
    if refuse:
        flags = np.empty(rows, np.uint8)
        looked = arrays, g, outer, length, flags
        _launch.launch("zero_rows", looked, rows, min(both // rows, 512), threads, key)
        if np.count_nonzero(flags):
            return None
    args += _sums.streams(out, x), False
    _launch.run_shared(run[0], args, rows, both // rows, threads)
    return result


def copied(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A copy side by side, in a format that holds all values."""
    return a.copy() if a.dtype == dtype else widened(a, dtype)


@np.errstate(invalid="ignore")  # of signalling NaN
def widened(a: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return a.astype(dtype)


def normalized(
    x: Any,
    gain: Any,
    eps: Any,
    axis: Any,
    offset: Any,
    cast: str,
    eps_mode: str,
    out: Any,
    format: Any,
    threads: Any,
) -> np.ndarray | None:
    """As `scaled`, for valid choices and anything else; None also where that is not plain."""
    if not isinstance(eps, float) or not isinstance(offset, float) or not 0.0 <= eps < math.inf:
        return None
    if offset != 0.0 and (gain is None or not math.isfinite(offset)):
        return None
    before = True if cast == "before_gain" and gain is not None else None
    return scaled(
        x, axis, eps_mode, "nan", 1.0, out, format, threads, eps, gain, offset, before
    )  # fmt: skip


@lru_cache(maxsize=1024)
def scaling(
    side: Side,
    out: Side | None,
    gain: tuple[np.dtype, tuple[int, ...]] | None,
    axis: int,
    format: str | None,
    mode: str,
    cast: bool | None,
    zero: str,
) -> Scaling | None:
    dtype, shape, strides = side
    if format is not None and format not in _formats.CODES:
        return None
    kind = _formats.kind_of(dtype, format)
    if not shape or not dtype.isnative or not nbytes(side) or not _launch.kernels():
        return None
    if kind not in _formats.NARROW | {"float64"} or kind == "complex64" or zero not in FILLS:
        return None
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    written = in_c_order(shape, dtype)
    if out is not None:
        if out[:2] != side[:2] or 0 in out[2]:
            return None
        written = out[2]
    along = gain_dtype = gain_view = None
    if gain is not None:
        found = gain_dtypes(kind, *gain, cast) if gain[1] == (shape[axis],) else None
        if found is None:
            return None
        gain_dtype, gain_view = found
        along = tuple(gain_dtype.itemsize if k == axis else 0 for k in range(len(shape)))
    size, nothing = dtype.itemsize, (False,) * 6
    sizes = (size, 1 if gain_dtype is None else gain_dtype.itemsize, 1, 1, 1, size)
    plan = _layout.plan(
        shape, (axis,), (strides, along, None, None, None, written), sizes, nothing, nothing
    )
    if plan.awkward:
        return None
    return Scaling(
        (0,) * (len(shape) - 1),
        _formats.kernel_dtype(kind) if kind in _formats.CODES else None,
        plan.g,
        plan.outer,
        plan.length,
        plan.rows,
        2 * nbytes(side),
        (None, _sums.exact((kind,), np.dtype(_formats.result_kind((kind,))), False), None),
        kind == "float64" or None,
        getattr(_launch.kernel_module("_scalings"), mode.upper()),
        gain_dtype,
        gain_view,
        kind,
        [],
    )


def gain_dtypes(
    kind: str, dtype: np.dtype, shape: tuple[int, ...], cast: bool | None
) -> tuple[np.dtype, np.dtype | None] | None:
    """What a gain is copied to, and seen as, for rows of a format; None where it is not small."""
    own = _formats.kind_of(dtype, None)
    if dtype.names is not None or own not in ("float16", "bfloat16", "float32", "float64"):
        return None
    if nbytes((dtype, shape, ())) > _formats.SMALL_BYTES:
        return None
    if cast and own == kind and own in _formats.CODES:
        return dtype.newbyteorder("="), _formats.kernel_dtype(own)
    half = kind in ("float16", "bfloat16") and own != "float64"
    return np.dtype(np.float32 if half else np.float64), None
