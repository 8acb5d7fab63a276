"""Scalings of plain arrays; see _small."""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _formats, _launch, _layout, _sums
from rmsfast._partial import BLOCK
from rmsfast._small import Side, first_row, nbytes, plain, takes

ONE = np.ones(1)
ZEROS = ("raise", "zero", "nan")


class Scaling(NamedTuple):
    """Rows over their size along one axis."""

    view: np.dtype | None  # of x and the result, as the kernels see them
    plan: _layout.Plan
    how: _sums.How
    wide: bool | None
    gain: np.dtype | None  # as the kernel takes it
    key: str


def scaled(
    x: Any,
    axis: Any,
    mode: str,
    eps: float = 0.0,
    gain: np.ndarray | None = None,
    offset: float = 0.0,
    cast: bool | None = None,
    zero: Any = "nan",
    target: Any = 1.0,
    out: Any = None,
    format: Any = None,
    threads: Any = None,
) -> np.ndarray | None:
    """x * target / size * (gain + offset); None where something is not plain, or refused."""
    if type(x) is not np.ndarray or type(axis) is not int or not plain(axis, format, threads):
        return None
    if type(zero) is not str or zero not in ZEROS or type(target) is not float:
        return None
    if out is not x and out is not None and not takes(out, x.shape, x.dtype, (x,)):
        return None
    result = np.empty(x.shape, x.dtype) if out is None else out
    gains = None if gain is None else gain.dtype
    found = scaling((x.dtype, x.shape, x.strides), result.strides, axis, format, gains)
    if found is None or not result.flags.writeable or not result.flags.aligned:
        return None
    if gain is not None and gain.shape != (x.shape[axis],):
        return None
    plan, key = found.plan, found.key
    if plan.length > BLOCK and plan.rows < 4 * _launch.threads_for(threads):
        return None
    source, written = first_row(x, None, found.view), first_row(result, None, found.view)
    arrays = (source, None, None, None, None)
    row_bytes = plan.length * (source.itemsize + written.itemsize)
    if zero == "raise":
        flags = np.empty(plan.rows, np.uint8)
        args: tuple[Any, ...] = (arrays, plan.g, plan.outer, plan.length, flags)
        _launch.launch("zero_rows", args, plan.rows, min(row_bytes, 512), threads, key)
        if np.count_nonzero(flags):
            return None
    writes = arrays if gain is None else (source, gain.astype(found.gain), None, None, None)
    args = (arrays, found.how, found.wide, writes, cast, written, plan.g, plan.outer, 0)
    fill = 0.0 if zero == "zero" else np.nan
    targets = ONE if target == 1.0 else np.array([target])
    mode = getattr(_launch.kernel_module("_scalings"), mode)
    args += (plan.length, mode, eps, fill, targets, offset)
    args += (None, _sums.streams(out, x))
    _launch.launch("scale_rows", args, plan.rows, row_bytes, threads, (key, found.gain, cast))
    return result


def normalized(
    x: Any, gain: Any, eps: Any, axis: Any, offset: Any, cast: str, eps_mode: str, **options: Any
) -> np.ndarray | None:
    """As `scaled`, for valid choices and anything else; None also where that is not plain."""
    if type(eps) is not float or type(offset) is not float or not 0.0 <= eps < math.inf:
        return None
    if gain is None:
        return scaled(x, axis, eps_mode.upper(), eps, **options) if offset == 0.0 else None
    before = True if cast == "before_gain" else None
    dtypes = (np.float32, np.float64) if before else (np.float16, np.float32, np.float64)
    numbers = type(gain) is np.ndarray and gain.dtype in dtypes
    if not numbers or not math.isfinite(offset) or gain.nbytes > _formats.SMALL_BYTES:
        return None
    return scaled(x, axis, eps_mode.upper(), eps, gain, offset, before, **options)


@lru_cache(maxsize=1024)
def scaling(
    side: Side, written: tuple[int, ...], axis: int, format: str | None, gains: np.dtype | None
) -> Scaling | None:
    dtype, shape, strides = side
    kind = _formats.kind_of(dtype, format)
    if not shape or not dtype.isnative or not nbytes(side) or not _launch.kernels():
        return None
    if kind not in _formats.NARROW | {"float64"} or kind == "complex64":
        return None
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    along = None
    if gains is not None:
        half = kind in ("float16", "bfloat16") and gains.itemsize <= 4
        gains = np.dtype(np.float32 if half else np.float64)
        along = tuple(gains.itemsize if k == axis else 0 for k in range(len(shape)))
    size, nothing = dtype.itemsize, (False,) * 6
    sizes = (size, 1 if gains is None else gains.itemsize, 1, 1, 1, size)
    plan = _layout.plan(
        shape, (axis,), (strides, along, None, None, None, written), sizes, nothing, nothing
    )
    if plan.awkward:
        return None
    return Scaling(
        _formats.kernel_dtype(kind) if kind in _formats.CODES else None,
        plan,
        (None, _sums.exact((kind,), np.dtype(_formats.result_kind((kind,))), False), None),
        kind == "float64" or None,
        gains,
        kind,
    )
