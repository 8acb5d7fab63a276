"""Reductions of plain arrays: what they need, kept from one call to the next; see _small."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy import empty, ndarray  # looked up at each call

from rmsfast import _arguments, _formats, _launch, _layout, _ratios, _small, _sums
from rmsfast._small import Side, in_c_order, nbytes

ALONE = object()  # in place of a second array
CODED_BYTES = 1 << 13  # arrays of codes that are sooner converted than others, which takes longer
# Bytes, compiled code with its arguments and units, rows, dtype of the roots; the plan where the
# kernels do not see arrays as they are, or the roots are not the result.
Call = tuple[int, Callable[..., None], _launch.Args, int, int, np.dtype, "Reduction | None"]

# By axis, format and arrays; else with the default options.
_calls: dict[tuple[Any, ...], Call] = {}


class Prepare(NamedTuple):
    """A conversion to another format, in C order of permuted axes."""

    kind: str
    wanted: str
    order: tuple[int, ...] | None


class Reduction(NamedTuple):
    """The root of the mean square of one array, or of the difference of two."""

    prepare: tuple[Prepare | None, ...]  # what is done to each array first
    view: np.dtype | None  # of arrays, as the kernels see them
    in_rows: bool  # whether arrays are of two axes, and the kernels see them as they are
    plan: _layout.Plan
    how: _sums.How
    wide: bool | None
    roots: np.dtype
    dtype: np.dtype  # of the result
    shape: tuple[int, ...]
    ordered: bool  # whether rows are walked in the order of the result
    as_is: bool  # whether the roots are the result
    task: _sums.Task | None
    key: tuple[Any, ...]
    call: list[Call]  # once it was called, if one kernel does the task


def reduced(
    x: Any,
    y: Any,
    axis: Any,
    keepdims: Any,
    dtype: Any,
    out: Any,
    format: Any,
    threads: Any,
) -> Any:
    """RMS of an array (y: ALONE), or of x - y; None where something is not plain."""
    key: tuple[Any, ...] = ()
    call = found = None
    usual = type(axis) is int and keepdims is False and dtype is out is threads is None
    if usual and (format is None or type(format) is str):
        if y is ALONE and type(x) is ndarray:
            key = axis, format, x.dtype, x.shape, x.strides
        elif type(x) is type(y) is ndarray:
            key = axis, format, x.dtype, x.shape, x.strides, y.dtype, y.shape, y.strides
        call = _calls.get(key)
    if call is None:
        arrays = (x,) if y is ALONE else (x, y)
        found = known(arrays, axis, keepdims, dtype, out, format, threads)
        if found is None:
            return None
        if not found.call:
            return first_reduced(found, arrays, out, threads, key)
        call = found.call[0]
        keep(key, call)
    nbytes, run, args, units, rows, roots_dtype, other = call
    roots, found = empty(rows, roots_dtype), found or other
    seen: tuple[np.ndarray | None, ...]
    if found is None:
        seen = x[0], None if y is ALONE else y[0], None, None, None
    else:
        seen = views(found, (x,) if y is ALONE else (x, y))
    if nbytes >= _launch.AWAKE_BYTES and _launch.share_pays(nbytes, threads):
        _launch.run_shared(run, (seen, *args, roots, None), units, nbytes // units, threads)
    else:
        run(seen, *args, roots, None, 0, units)
    if found is None or (found.as_is and out is None):
        return roots
    return finished(found, roots, out)


def first_reduced(
    found: Reduction, arrays: tuple[Any, ...], out: Any, threads: int | None, key: tuple[Any, ...]
) -> Any:
    """As `reduced`, where the call is not kept yet, or is not of one kernel."""
    seen, roots = views(found, arrays), np.empty(found.plan.rows, found.roots)
    if found.task is None:
        walk = _layout.Walk(seen, found.wide, found.plan)
        _sums.roots(walk, found.how, roots, None, threads)
    else:
        name, args, units, unit_bytes = found.task
        whole = (seen, *args, roots, None)
        _launch.launch(name, whole, units, unit_bytes, threads, found.key)
        run = _launch.compiled(_launch.kernel(name), whole, found.key)
        other = None if found.in_rows and found.as_is else found
        found.call[:] = [(units * unit_bytes, run, args, units, len(roots), found.roots, other)]
        keep(key, found.call[0])
    return finished(found, roots, out)


def keep(key: tuple[Any, ...], call: Call) -> None:
    """Keep a call with the default options, which has a key."""
    if not key:
        return
    if len(_calls) >= _small.KEPT:
        _calls.clear()
    _calls[key] = call


def known(
    arrays: tuple[Any, ...],
    axis: Any,
    keepdims: Any,
    dtype: Any,
    out: Any,
    format: Any,
    threads: Any,
) -> Reduction | None:
    """The plan of a reduction, None where something is not plain."""
    if not (type(axis) is int and keepdims is False and dtype is format is threads is None):
        if type(keepdims) is not bool or not plain(axis, format, threads):
            return None
        if dtype is not None and not isinstance(dtype, str | type | np.dtype):
            return None
    x = arrays[0]
    if type(x) is not np.ndarray:
        return None
    side = x.dtype, x.shape, x.strides
    if len(arrays) == 1:
        found = reduction(axis, keepdims, dtype, format, side)
    else:
        y = arrays[1]
        if type(y) is not np.ndarray:
            return None
        found = reduction(axis, keepdims, dtype, format, side, (y.dtype, y.shape, y.strides))
    if out is None or found is None or takes(out, found.shape, found.dtype, arrays):
        return found
    return None


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


def views(found: Reduction, arrays: tuple[Any, ...]) -> tuple[np.ndarray | None, ...]:
    """The arrays as a kernel takes them."""
    if found.in_rows:
        return arrays[0][0], arrays[1][0] if len(arrays) > 1 else None, None, None, None
    x, y = first_row(arrays[0], found.prepare[0], found.view), None
    if len(arrays) > 1:
        y = first_row(arrays[1], found.prepare[1], found.view)
    return x, y, None, None, None


def first_row(a: np.ndarray, prepare: Prepare | None, view: np.dtype | None) -> np.ndarray:
    """A one-dimensional view from the first element on."""
    if prepare is not None:
        (a,), _ = _formats.cast([a], (prepare.kind,), (prepare.wanted,))
        a = np.ascontiguousarray(a if prepare.order is None else a.transpose(prepare.order))
    a = a[0] if a.ndim == 2 else a if a.ndim == 1 else a[(0,) * (a.ndim - 1)]
    return a if view is None else a.view(view)


def finished(found: Reduction, values: np.ndarray, out: Any) -> Any:
    """The values of the rows as what the caller asked for."""
    if not found.ordered:
        values = _layout.in_order(values, found.plan)
    if values.dtype != found.dtype:
        values = _formats.rounded(values, found.dtype)
    if out is None:
        return values.reshape(found.shape) if found.shape else values[0]
    out[...] = values.reshape(found.shape)
    return out


@lru_cache(maxsize=1024)
def reduction(
    axis: Any, keepdims: bool, dtype: Any, format: str | None, *sides: Side
) -> Reduction | None:
    """Plan of arrays of one format, or of such that are small enough to be converted to one."""
    shapes = [shape for _, shape, _ in sides]
    given = tuple(str(_formats.kind_of(own, format)) for own, _, _ in sides)
    if not all(shapes) or "None" in given or not min(map(nbytes, sides)) or not _launch.kernels():
        return None
    try:  # what is refused is refused by name on the long way
        shape, axes = _arguments.common_shape("rms", ("x", "x_hat"), shapes, axis)
        result = _arguments.result_dtype("rms", dtype, _formats.result_kind(given))
    except (ValueError, TypeError, ImportError):
        return None
    least = CODED_BYTES if set(given) <= set(_formats.CODES) else _formats.SMALL_BYTES
    copied = sum(map(nbytes, sides)) <= least  # where that is cheaper than to compile
    kind, *others = _formats.common(given) if copied else given
    as_is = [k == kind and own.isnative for k, (own, _, _) in zip(given, sides, strict=True)]
    if {kind, *others} != {kind} or not (copied or all(as_is)):
        return None
    native = _formats.kernel_dtype(kind)
    order = None
    steps = [
        own if fits else in_c_order(there, native)
        for fits, (_, there, own) in zip(as_is, sides, strict=True)
    ]
    plan = plan_of(shape, axes, shapes, steps, kind)
    kept = axes
    if copied and plan.awkward and not plan.columns and all(own == shape for own in shapes):
        # Rows that do not lie side by side, nor their neighbours, are copied so that they do.
        order = (*(k for k in range(len(shape)) if k not in axes), *axes)
        shape = tuple(shape[k] for k in order)
        axes = tuple(range(len(shape) - len(axes), len(shape)))
        count = len(sides)
        plan = plan_of(shape, axes, [shape] * count, [in_c_order(shape, native)] * count, kind)
    walked = [k for k in plan.order if shape[k] > 1]
    how = (None, _sums.exact((kind,), result, False), None)
    wide = True if kind in ("float64", "complex128") else None
    rows_shape = [n for k, n in enumerate(shape) if k not in axes]
    if keepdims:
        for k in kept:
            rows_shape.insert(k, 1)
    prepare = tuple(
        None if fits and order is None else Prepare(own, kind, order)
        for fits, own in zip(as_is, given, strict=True)
    )
    view = native if kind in _formats.CODES else None
    roots = np.dtype(np.float32 if result == np.float32 and how[1] is None else np.float64)
    ordered = walked == sorted(walked)
    return Reduction(
        prepare,
        view,
        {len(own) for own in shapes} == {2} and not any(prepare) and view is None,
        plan,
        how,
        wide,
        roots,
        result,
        tuple(rows_shape),
        ordered,
        ordered and roots == result and len(rows_shape) == 1,
        _sums.task(plan, how, wide, len(sides) * native.itemsize, False),
        (len(sides), kind, result),
        [],
    )


def related(
    x: Any,
    y: Any,
    reference: str,
    zero: str,
    axis: Any,
    keepdims: Any,
    dtype: Any,
    out: Any,
    format: Any,
    threads: Any,
) -> Any:
    """RMSE over a named size; None where something is not plain, or refused."""
    # An error is the same either way: what makes the size comes first.
    arrays = (y, x) if reference == "x_hat" else (x, y)
    found = known(arrays, axis, keepdims, dtype, out, format, threads)
    if found is None or reference == "std" or found.key[1].startswith("complex"):
        return None  # some take a walk more
    rows, own = found.plan.rows, _ratios.REFERENCES[reference]
    error = views(found, arrays)
    size = error[0], None, None, None, None
    how = found.how if own == "SQUARES" else (None, True, True)
    values = np.empty(rows, found.dtype if found.dtype == np.float32 else np.float64)
    flags, spare = np.empty(rows, np.uint8), np.zeros((rows, 3))
    _ratios.quotients(
        [_layout.Walk(arrays, found.wide, found.plan) for arrays in (error, size)],
        [found.how, how],
        getattr(_launch.kernel_module("_relative"), own),
        spare,
        values,
        flags,
        threads,
        (found.key, (1, found.key[1], how)),
    )
    if zero != "ieee" and np.count_nonzero(flags):
        if zero == "raise":
            return None
        values[flags > 0] = np.nan
    return finished(found, values, out)


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
    nothing = (False,) * 5
    return _layout.plan(shape, axes, tuple(steps), (size,) * 5, nothing, (is_complex,) * 5)
