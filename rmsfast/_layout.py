"""Where the elements of the arrays lie: the geometry that the kernels walk."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rmsfast import _formats

# Neighbouring rows that are read together where they are columns in memory: many, as processors
# fetch some lines past the end of each run; fewer where there would be too few tiles for threads,
# and in small arrays, so that the sums stay in the level 1 cache.
TILE, LEAST_TILE = 2048, 128
WIDE_TILE = 1024  # of which lanes are shared among threads rather than that it is halved
APART = (1 << 8) - 1  # all arrays out of place, no bytes swapped
LINE = 64  # bytes
SWAPPED = 8  # bit of `awkward` and `ragged` where those about byte order begin

Strides = tuple[int, ...]


class Plan(NamedTuple):
    """How to walk `rows` vectors of `length` stored numbers; see _kernels for g and the bits."""

    g: np.ndarray
    outer: int
    awkward: int
    ragged: int
    columns: bool
    rows: int
    length: int
    order: tuple[int, ...]  # row axes in the order of walking
    shape: tuple[int, ...]  # their lengths in that order


@lru_cache(maxsize=1024)
def plan(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    strides: tuple[Strides | None, ...],
    sizes: tuple[int, ...],
    swapped: tuple[bool, ...],
    is_complex: tuple[bool, ...],
    order: tuple[int, ...] | None = None,
) -> Plan:
    """Plan for arrays of a common shape; strides None: no array; sizes: bytes of a number."""
    steps = [s or (0,) * len(shape) for s in strides]
    if order is None:
        rows_axes = [k for k in range(len(shape)) if k not in axes]
        order = tuple(sorted(rows_axes, key=lambda k: (steps[0][k] != 0, -abs(steps[0][k]))))
    outer = merged([(shape[k], *(s[k] for s in steps)) for k in order])
    inner = [(shape[k], *(s[k] for s in steps)) for k in axes]
    pairs = any(is_complex[:3])  # the two real numbers of a value are two coordinates
    if pairs:
        halves = zip(sizes, strides, is_complex, strict=True)
        inner.append((2, *(size if own and split else 0 for size, own, split in halves)))
    inner = merged(inner)
    g = np.array(outer + inner, np.int64).reshape(-1, len(steps) + 1).T.copy()
    g.flags.writeable = False
    awkward = ragged = 0
    for k in range(len(strides)):
        if strides[k] is None:
            continue
        both = swapped[k] << (SWAPPED + k)
        apart = len(inner) > 1 or (len(inner) == 1 and inner[0][k + 1] != sizes[k])
        apart_rows = not outer or outer[-1][k + 1] != sizes[k]
        awkward |= both | (apart or swapped[k]) << k
        ragged |= both | (apart_rows or swapped[k]) << k
    columns = bool(awkward & 1) and not ragged & 1 and outer[-1][0] >= 4 and not pairs
    length = math.prod(axis[0] for axis in inner)
    rows = math.prod(axis[0] for axis in outer)
    lengths = tuple(shape[k] for k in order)
    return Plan(g, len(outer), awkward, ragged, columns, rows, length, order, lengths)


def merged(axes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Axes as (length, stride of each array), without those of length 1, runs joined."""
    found: list[tuple[int, ...]] = []
    for axis in axes:
        if axis[0] == 1:
            continue
        if found and all(s == axis[0] * t for s, t in zip(found[-1][1:], axis[1:], strict=True)):
            axis = (found.pop()[0] * axis[0], *axis[1:])
        found.append(axis)
    return found


Operand = tuple[np.ndarray, str] | None  # of the common shape, and its storage format


def around(masks: list[tuple[np.ndarray, str]], weights: Operand = None) -> list[Operand]:
    """Where, weights and more masks."""
    return [masks[0] if masks else None, weights, *masks[1:]]


class Walk(NamedTuple):
    """Arrays as the kernels take them, and the way through them."""

    arrays: tuple[np.ndarray | None, ...]
    wide: bool | None  # True if sums of squares can leave the range of float64
    plan: Plan


def walk(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    operands: list[Operand],
    order: tuple[int, ...] | None = None,
) -> Walk:
    """A walk over x, y, partner, where, weights (None: absent) and more masks, none empty."""
    is_complex = tuple(o is not None and o[1].startswith("complex") for o in operands)
    strides = tuple(o and o[0].strides for o in operands)
    sizes = tuple(o[0].itemsize >> o[1].startswith("complex") if o else 1 for o in operands)
    swapped = tuple(bool(o and not o[0].dtype.isnative) for o in operands)
    return Walk(
        tuple(o and kernel_view(*o) for o in operands),
        True
        if operands[4] or {"float64", "complex128"} & {o[1] for o in operands[:2] if o}
        else None,
        plan(shape, axes, strides, sizes, swapped, is_complex, order),
    )


def kernel_view(array: np.ndarray, kind: str) -> np.ndarray:
    """A one-dimensional view from the first element of an array, in the kernels' dtype."""
    first = array[(0,) * (array.ndim - 1)] if array.ndim else array.reshape(1)
    return first.view(_formats.kernel_dtype(kind))


def in_order(rows: np.ndarray, plan: Plan) -> np.ndarray:
    """Values of the rows in the order of walking, shaped and ordered as the caller's axes.

    More axes of `rows`, behind the first, stay; it is a view.
    """
    back = sorted(range(len(plan.order)), key=plan.order.__getitem__)
    behind = range(len(back), len(back) + rows.ndim - 1)
    return rows.reshape(plan.shape + rows.shape[1:]).transpose(*back, *behind)


def to_walk(rows: np.ndarray, plan: Plan) -> np.ndarray:
    """Values of the rows, shaped as the caller's axes, in the order of walking."""
    axes = sorted(plan.order)
    return np.ascontiguousarray(rows.transpose([axes.index(k) for k in plan.order])).reshape(-1)


def along(values: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """Values of the reduced axes (or one number), broadcast to a shape."""
    if values.ndim:
        values = values.reshape([n if k in axes else 1 for k, n in enumerate(shape)])
    return np.broadcast_to(values, shape)


def lines(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of unknown content that begins a cache line."""
    nbytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def chosen(masks: list[tuple[np.ndarray, str]]) -> np.ndarray | None:
    """What is kept, in one mask; None for all."""
    found = [m if kind == "bool" else ~m for m, kind in masks]
    return np.logical_and.reduce(found) if len(found) > 1 else found[0] if found else None
