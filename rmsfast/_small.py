"""What calls on plain arrays share: what is plain, and the arrays as the kernels see them.

Checking the arguments of a call takes longer than the answer for a small array. Here the shapes,
strides and dtypes of arrays and the options that were found good once are the key to a plan;
whatever is not plain gives None before anything is written, and takes the long way.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _formats

KEPT = 1024  # calls
Side = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]


def plain(axis: Any, format: Any, threads: Any) -> bool:
    """Whether an axis is in ints, since 1.0 is the same key as 1, a format named, threads some."""
    ints = axis is None or type(axis) is int
    if not ints and (type(axis) is not tuple or any(type(k) is not int for k in axis)):
        return False
    if format is not None and (type(format) is not str or format not in _formats.CODES):
        return False
    return threads is None or (type(threads) is int and threads > 0)


def takes(out: Any, shape: tuple[int, ...], dtype: np.dtype, arrays: tuple[Any, ...]) -> bool:
    """Whether `out` is a plain array for a result, apart from others."""
    return (
        type(out) is np.ndarray
        and out.shape == shape
        and out.dtype == dtype
        and out.flags.writeable
        and 0 not in out.strides
        and not any(np.may_share_memory(out, a) for a in arrays)
    )


def writable(out: Any, x: np.ndarray) -> bool:
    """Whether a result may be written to a plain array, which is x or apart from it."""
    if type(out) is not np.ndarray or not out.flags.behaved:
        return False
    return out is x or not np.may_share_memory(out, x)


def nbytes(side: Side) -> int:
    return math.prod(side[1]) * side[0].itemsize


def in_c_order(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    return np.empty(shape, dtype).strides


class Prepare(NamedTuple):
    """A conversion to another format, in C order of permuted axes."""

    kind: str
    wanted: str
    order: tuple[int, ...] | None


def first_row(a: np.ndarray, prepare: Prepare | None, view: np.dtype | None) -> np.ndarray:
    """A one-dimensional view from the first element on."""
    if prepare is not None:
        (a,), _ = _formats.cast([a], (prepare.kind,), (prepare.wanted,))
        a = np.ascontiguousarray(a if prepare.order is None else a.transpose(prepare.order))
    a = a[0] if a.ndim == 2 else a if a.ndim == 1 else a[(0,) * (a.ndim - 1)]
    return a if view is None else a.view(view)
