"""Calls on small arrays of plain layout: what they need, kept from one call to the next.

Checking the arguments of such a call takes longer than the answer. Here the shapes, strides
and dtypes of arrays that were found good once are the key to a plan; whatever is not plain
gives None, and takes the long way.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums

ONE = np.ones(1)
Side = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]


class Prepare(NamedTuple):
    """A conversion to another dtype, in C order of permuted axes."""

    dtype: np.dtype
    order: tuple[int, ...] | None


class Reduction(NamedTuple):
    """The root of the mean square along one axis, or all."""

    view: np.dtype | None  # of arrays, as the kernels see them
    prepare: tuple[Prepare | None, ...]  # what is done to each array first
    walk: tuple[Any, ...]
    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype
    key: str


def rms(x: np.ndarray, axis: Any) -> Any:
    """RMS of an array; None where it is not small or plain."""
    if axis is not None and type(axis) is not int:
        return None
    found = reduction(axis, (x.dtype, x.shape, x.strides))
    return None if found is None else answer(found, first_row(x, found.prepare[0]), None)


def rmse(x: np.ndarray, y: np.ndarray, axis: Any) -> Any:
    """RMS of the difference of two arrays; None where they are not small or plain."""
    if axis is not None and type(axis) is not int:
        return None
    found = reduction(axis, (x.dtype, x.shape, x.strides), (y.dtype, y.shape, y.strides))
    if found is None:
        return None
    return answer(found, first_row(x, found.prepare[0]), first_row(y, found.prepare[1]))


def answer(found: Reduction, x: np.ndarray, y: np.ndarray | None) -> Any:
    if found.view is not None:
        x, y = x.view(found.view), None if y is None else y.view(found.view)
    result = np.empty(found.rows, found.dtype)
    kernel = _launch.kernel_module("_kernels").row_roots
    args = ((x, y, None, None, None), *found.walk, result, None, 0, found.rows)
    _launch.call(kernel, args, found.key)
    return result.reshape(found.shape) if found.shape else result[0]


def first_row(a: np.ndarray, prepare: Prepare | None = None) -> np.ndarray:
    """A one-dimensional view from the first element on."""
    if prepare is not None:
        a = a if prepare.order is None else a.transpose(prepare.order)
        a = a.astype(prepare.dtype, order="C")
    return a[0] if a.ndim == 2 else a if a.ndim == 1 else a[(0,) * (a.ndim - 1)]


@lru_cache(maxsize=1024)
def reduction(axis: int | None, *sides: Side) -> Reduction | None:
    shapes = [shape for _, shape, _ in sides]
    if not all(shapes) or not small(sides) or _launch.kernels() is None:
        return None
    try:
        shape, axes = _arguments.common_shape("rms", ("x", "x_hat"), shapes, axis)
    except ValueError:  # an AxisError is one; refused by name on the long way
        return None
    found = tuple(str(_formats.kind_of(dtype, None)) for dtype, _, _ in sides)
    copied = sum(map(nbytes, sides)) <= _formats.SMALL_BYTES  # where that is cheaper
    kind, *others = _formats.common(found) if copied else found
    work = len(sides) * math.prod(shape) * np.dtype(_formats.kernel_dtype(kind)).itemsize
    if {kind, *others} != {kind} or work > _launch.PARALLEL_BYTES:
        return None
    native = _formats.kernel_dtype(kind)
    as_is = [k == kind and dtype.isnative for k, (dtype, _, _) in zip(found, sides, strict=True)]
    if not copied and not all(as_is):
        return None
    prepare = [None if fits else Prepare(native, None) for fits in as_is]
    steps = [
        own if fits else in_c_order(given, native)
        for fits, (_, given, own) in zip(as_is, sides, strict=True)
    ]
    plan = plan_of(shape, axes, shapes, steps, kind)
    walked = [k for k in plan.order if shape[k] > 1]
    if plan.awkward or walked != sorted(walked):
        if not copied or any(own != shape for own in shapes):
            return None
        # Rows that do not lie side by side are copied so that they do.
        order = (*(k for k in range(len(shape)) if k not in axes), *axes)
        prepare = [Prepare(native, order)] * len(sides)
        shape = tuple(shape[k] for k in order)
        axes = tuple(range(len(shape) - len(axes), len(shape)))
        count = len(sides)
        plan = plan_of(shape, axes, [shape] * count, [in_c_order(shape, native)] * count, kind)
    result = np.dtype(_formats.result_kind(found))
    how = (None, _sums.exact((kind,), result, False), None)
    wide = True if kind in ("float64", "complex128") else None
    walk = (how, wide, plan.g, plan.outer, 0, plan.length)
    rows_shape = tuple(n for k, n in enumerate(shape) if k not in axes)
    return Reduction(
        native if kind in _formats.CODES else None,
        tuple(prepare),
        walk,
        plan.rows,
        rows_shape,
        result,
        f"{len(sides)} {kind} {result}",
    )


def small(sides: tuple[Side, ...]) -> bool:
    """Whether arrays are of a known format, not empty, and too small for several threads."""
    sizes = [nbytes(side) for side in sides]
    known = all(_formats.kind_of(dtype, None) for dtype, _, _ in sides)
    return known and min(sizes) > 0 and sum(sizes) < _launch.PARALLEL_BYTES


def nbytes(side: Side) -> int:
    return math.prod(side[1]) * side[0].itemsize


def in_c_order(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    return np.empty(shape, dtype).strides


def plan_of(
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    shapes: list[tuple[int, ...]],
    strides: list[tuple[int, ...]],
    kind: str,
) -> _layout.Plan:
    """Plan of one or two arrays of one native format, broadcast to a shape."""
    is_complex = kind.startswith("complex")
    size = _formats.kernel_dtype(kind).itemsize >> is_complex
    steps: list[tuple[int, ...] | None] = [
        (0,) * (len(shape) - len(own))
        + tuple(0 if n == 1 else s for n, s in zip(own, given, strict=True))
        for own, given in zip(shapes, strides, strict=True)
    ]
    steps += [None] * (5 - len(steps))
    return _layout.plan(shape, axes, tuple(steps), (size,) * 5, (False,) * 5, (is_complex,) * 5)


class Scaling(NamedTuple):
    """Rows over their size along one axis."""

    view: np.dtype | None  # of x, as the kernels see it
    plan: _layout.Plan
    how: _sums.How
    wide: bool | None


def scaled(
    x: np.ndarray,
    axis: Any,
    mode: str,
    eps: float = 0.0,
    gain: np.ndarray | None = None,
    offset: float = 0.0,
    cast: bool | None = None,
    nonzero: bool = False,
) -> np.ndarray | None:
    """x / size * (gain + offset); None where x is not small or plain.

    With `nonzero` also where a row is 0.
    """
    if type(axis) is not int:
        return None
    found = scaling((x.dtype, x.shape, x.strides), axis, gain is not None)
    if found is None or (gain is not None and gain.shape != (x.shape[axis],)):
        return None
    view, plan, how, wide = found
    result = np.empty(x.shape, x.dtype)
    source, target = first_row(x), first_row(result)
    if view is not None:
        source, target = source.view(view), target.view(view)
    arrays = (source, None, None, None, None)
    module, rows, key = _launch.kernel_module("_scalings"), plan.rows, (view or x.dtype)
    if nonzero:
        flags = np.empty(rows, np.uint8)
        args: tuple[Any, ...] = (arrays, plan.g, plan.outer, plan.length, flags, 0, rows)
        _launch.call(module.zero_rows, args, key)
        if flags.any():
            return None
    writes = arrays if gain is None else (source, gain.astype(np.float64), None, None, None)
    args = (arrays, how, wide, writes, cast, target, plan.g, plan.outer, 0, plan.length)
    args += (getattr(module, mode), eps, np.nan, ONE, offset, None, False, 0, rows)
    _launch.call(module.scale_rows, args, (key, gain is None, cast))
    return result


def normalized(
    x: np.ndarray, gain: Any, eps: Any, axis: Any, offset: Any, cast: str, eps_mode: str
) -> np.ndarray | None:
    """As `scaled`, for valid choices and anything else; None also where that is not plain."""
    if type(eps) is not float or type(offset) is not float or not 0.0 <= eps < math.inf:
        return None
    if gain is None:
        return scaled(x, axis, eps_mode.upper(), eps) if offset == 0.0 else None
    numbers = type(gain) is np.ndarray and gain.dtype in (np.float32, np.float64)
    if not numbers or not math.isfinite(offset):
        return None
    before = True if cast == "before_gain" else None
    return scaled(x, axis, eps_mode.upper(), eps, gain, offset, before)


@lru_cache(maxsize=1024)
def scaling(side: Side, axis: int, gains: bool) -> Scaling | None:
    dtype, shape, strides = side
    kind = _formats.kind_of(dtype, None)
    if not shape or not dtype.isnative or not small((side, side)) or _launch.kernels() is None:
        return None
    if kind not in _formats.NARROW | {"float64"} or kind == "complex64":
        return None
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    along = tuple(8 if k == axis else 0 for k in range(len(shape))) if gains else None
    sides = (strides, along, None, None, None, np.empty(shape, dtype).strides)
    size = dtype.itemsize
    sizes, nothing = (size, 8, 1, 1, 1, size), (False,) * 6
    plan = _layout.plan(shape, (axis,), sides, sizes, nothing, nothing)
    if plan.awkward:
        return None
    wide = kind == "float64" or None
    exact = _sums.exact((kind,), np.dtype(_formats.result_kind((kind,))), False)
    return Scaling(
        _formats.kernel_dtype(kind) if kind in _formats.CODES else None,
        plan,
        (None, exact, None),
        wide,
    )
