"""Doses of small arrays of plain layout, as a call of few microseconds; see _small."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _formats, _launch, _layout
from rmsfast._dosing import LINE, STORAGE, parted
from rmsfast._small import first_row
from rmsfast._small_reductions import ALONE, reduced

WAY = (0, 0, 0, 0, 1, 0)  # to nearest, the edit in float32, cast first: see _doses.dose_run
NOTHING = np.zeros(0)
Side = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]


class Dose(NamedTuple):
    """Rows along the last axis."""

    view: np.dtype | None  # of rows, as the kernels see them
    storage: str
    g: np.ndarray
    outer: int
    length: int
    rows: int
    compiled: list[Callable[..., None]]  # the kernels, once they were called


def dosed(h: Any, direction: Any, alpha: Any, format: str | None, out: Any) -> Any:
    """Rows edited as the defaults of `apply_dose` have it; None where they are not plain.

    Also where they are to be refused.
    """
    number = type(alpha) in (float, int) and math.isfinite(alpha)
    if not (number and type(h) is np.ndarray and type(direction) is np.ndarray):
        return None
    if format is not None and type(format) is not str:
        return None
    found = dose((h.dtype, h.shape, h.strides), format)
    if found is None or direction.dtype.char not in "fd":
        return None
    view, storage, g, outer, length, rows, compiled = found
    if direction.shape != h.shape[-1:] or not (out is None or takes(out, h)):
        return None
    if storage == "bfloat16":
        lines = np.zeros(-(-length // LINE) * LINE)
        own = lines[:length]
        own[:] = direction
    else:
        own = direction.astype(np.float64)
    sizes = reduced(own[np.newaxis], ALONE, -1, False, None, None, None, None)
    if not 0.0 < sizes.item() < math.inf:
        return None
    row, flags = first_row(h, None, view), np.empty(rows, np.uint8)
    zeros = (row, None, None, None, None), g, outer, length, flags, 0, rows
    if compiled:
        compiled[0](*zeros)
    else:
        _launch.call(_launch.kernel("zero_rows"), zeros, (storage, "dose"))
    if np.count_nonzero(flags):
        return None
    single = parted(lines) if storage == "bfloat16" else None
    result = np.empty(h.shape, h.dtype) if out is None else out
    alphas = np.empty((1, 1))
    alphas[0, 0] = alpha
    args = (
        (row, own, None, None, None), single, first_row(result, None, view), None, None, g,
        outer, 0, length, alphas, NOTHING, sizes, sizes, None,
        single is None or single.size > 0, WAY, None, None, True, False, 0, rows,
    )  # fmt: skip
    if not compiled:
        compiled += [
            _launch.compiled(_launch.kernel("zero_rows"), zeros, (storage, "dose")),
            _launch.compiled(_launch.kernel("dose_rows"), args, storage),
        ]
    compiled[1](*args)
    return result


def takes(out: Any, h: np.ndarray) -> bool:
    """Whether the result may be written to an array."""
    if type(out) is not np.ndarray or not out.flags.behaved:
        return False
    alike = out.dtype == h.dtype and out.shape == h.shape and out.strides == h.strides
    return alike and (out is h or not np.may_share_memory(out, h))


@lru_cache(maxsize=1024)
def dose(side: Side, format: str | None) -> Dose | None:
    dtype, shape, strides = side
    if format is not None and format not in _formats.CODES:
        return None
    kind = _formats.kind_of(dtype, format)
    if kind not in STORAGE or not dtype.isnative or not shape or 0 in shape:
        return None
    if 2 * math.prod(shape) * dtype.itemsize > _launch.PARALLEL_BYTES or not _launch.kernels():
        return None
    own, axis = np.empty(shape, dtype).strides, len(shape) - 1
    along = tuple(8 if k == axis else 0 for k in range(len(shape)))
    sizes = (dtype.itemsize, 8, 1, 1, dtype.itemsize)
    order = tuple(range(axis))
    plan = _layout.plan(
        shape, (axis,), (strides, along, None, None, own), sizes, (False,) * 5, (False,) * 5, order
    )
    if plan.awkward or own != strides:
        return None
    view = _formats.kernel_dtype(kind) if kind in _formats.CODES else None
    return Dose(view, kind, plan.g, plan.outer, plan.length, plan.rows, [])
