"""Doses of small arrays of plain layout, as a call of few microseconds; see _small."""

import math
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _formats, _launch, _layout
from rmsfast._dosing import STORAGE, parted
from rmsfast._small import Side, writable
from rmsfast._small_reductions import ALONE, reduced

WAY = (0, 0, 0, 0, 1, 0)  # to nearest, the edit in float32, cast first: see _doses.dose_run
NOTHING = np.zeros(0)
DTYPES = {np.dtype(np.float32), np.dtype(np.float64)}  # of directions
LARGEST = sys.float_info.max


class Dose(NamedTuple):
    """Rows along the last axis."""

    first: tuple[int, ...]  # index of the first row
    view: np.dtype | None  # of rows, as the kernels see them
    storage: str
    g: np.ndarray
    outer: int
    length: int
    rows: int
    compiled: list[Callable[..., Any]]  # the kernel, once it was called


def dosed(h: Any, direction: Any, alpha: Any, format: str | None, out: Any) -> Any:
    """Rows edited as the defaults of `apply_dose` have it; None where they are not plain.

    Also where they are to be refused.
    """
    if type(alpha) not in (float, int, np.float64) or not abs(alpha) <= LARGEST:
        return None
    if type(h) is not np.ndarray or type(direction) is not np.ndarray:
        return None
    if direction.dtype not in DTYPES or not (format is None or type(format) is str):
        return None
    if not (out is None or writable(out, h)):
        return None
    side = h.dtype, h.shape, h.strides
    own = None if out is None else (out.dtype, out.shape, out.strides)
    found = dose(side, own, direction.shape, format)
    if found is None:
        return None
    first, view, storage, g, outer, length, rows, compiled = found
    lines, single = parted(direction, storage)
    numbers = lines[np.newaxis, :length]
    sizes = reduced(numbers, ALONE, -1, False, None, None, None, None)
    if not 0.0 < sizes.item() < math.inf:
        return None
    result = np.empty(h.shape, h.dtype) if out is None else out
    row, written = h[first], result[first]
    if view is not None:
        row, written = row.view(view), written.view(view)
    alphas = np.empty((1, 1))
    alphas[0, 0] = alpha
    args = (
        (row, lines, None, None, None), single, written, None, None, g, outer, 0, length, alphas,
        NOTHING, sizes, sizes, None, single is None or single.size > 0, WAY, None, None, True,
        False, True, 0, rows,
    )  # fmt: skip
    if not compiled:
        compiled.append(_launch.compiled(_launch.kernel("dose_rows"), args, storage))
    return None if compiled[0](*args) else result


@lru_cache(maxsize=1024)
def dose(side: Side, out: Side | None, along: tuple[int, ...], format: str | None) -> Dose | None:
    dtype, shape, strides = side
    if along != shape[-1:] or not (out is None or out == side):
        return None
    if format is not None and format not in _formats.CODES:
        return None
    kind = _formats.kind_of(dtype, format)
    if kind not in STORAGE or not dtype.isnative or not shape or 0 in shape:
        return None
    if 2 * math.prod(shape) * dtype.itemsize > _launch.PARALLEL_BYTES or not _launch.kernels():
        return None
    own, axis = np.empty(shape, dtype).strides, len(shape) - 1
    steps = tuple(8 if k == axis else 0 for k in range(len(shape)))
    sizes = (dtype.itemsize, 8, 1, 1, dtype.itemsize)
    order = tuple(range(axis))
    plan = _layout.plan(
        shape, (axis,), (strides, steps, None, None, own), sizes, (False,) * 5, (False,) * 5, order
    )
    if plan.awkward or own != strides:
        return None
    view = _formats.kernel_dtype(kind) if kind in _formats.CODES else None
    return Dose((0,) * axis, view, kind, plan.g, plan.outer, plan.length, plan.rows, [])
