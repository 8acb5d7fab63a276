"""Calls on plain arrays: what they need, kept from one call to the next.

Checking the arguments of a call takes longer than the answer for a small array. Here the shapes,
strides and dtypes of arrays and the options that were found good once are the key to a plan;
whatever is not plain gives None before anything is written, and takes the long way.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _ratios, _sums
from rmsfast._partial import BLOCK

ALONE = object()  # in place of a second array
ONE = np.ones(1)
NO_STATES = np.empty((0, 0))  # of rows of one block
CODED_BYTES = 1 << 13  # arrays of codes that are sooner converted than others, which takes longer
ZEROS = ("raise", "zero", "nan")
KEPT = 1024  # calls
Side = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]
# Bytes, and what runs on one thread: with which arguments, units, rows, dtype of the roots; the
# plan where the kernels do not see arrays as they are, or the roots are not the result.
Call = tuple[int, Callable[..., None], _launch.Args, int, int, np.dtype, "Reduction | None"]

# By axis, format and arrays; else with the default options.
_calls: dict[tuple[Any, ...], Call] = {}


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


def nbytes(side: Side) -> int:
    return math.prod(side[1]) * side[0].itemsize


def in_c_order(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    return np.empty(shape, dtype).strides


# ------------------------------------------------------------------------------ reductions


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
    call: list[Call]  # once it was called, if one thread does the task


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
        if type(x) is np.ndarray and y is ALONE:
            key = axis, format, x.dtype, x.shape, x.strides
        elif type(x) is type(y) is np.ndarray:
            key = axis, format, x.dtype, x.shape, x.strides, y.dtype, y.shape, y.strides
        call = _calls.get(key)
    if call is None or call[0] >= _launch.PARALLEL_BYTES:
        arrays = (x,) if y is ALONE else (x, y)
        found = known(arrays, axis, keepdims, dtype, out, format, threads)
        if found is None:
            return None
        if call is not None or not found.call or found.call[0][0] >= _launch.PARALLEL_BYTES:
            return first_reduced(found, arrays, out, threads, key)
        call = found.call[0]
    _, run, args, units, rows, roots_dtype, other = call
    roots, found = np.empty(rows, roots_dtype), found or other
    if found is None:
        seen = x[0], None if y is ALONE else y[0], None, None, None
        run(seen, *args, roots, None, 0, units)
        return roots
    arrays = (x,) if y is ALONE else (x, y)
    run(views(found, arrays), *args, roots, None, 0, units)
    return roots if found.as_is and out is None else finished(found, roots, out)


def first_reduced(
    found: Reduction, arrays: tuple[Any, ...], out: Any, threads: int | None, key: tuple[Any, ...]
) -> Any:
    """As `reduced`, where the call is not kept yet, or done by many threads."""
    seen, roots = views(found, arrays), np.empty(found.plan.rows, found.roots)
    if found.task is None:
        walk = _layout.Walk(seen, found.wide, found.plan)
        _sums.roots(walk, found.how, roots, None, threads)
    else:
        name, args, units, unit_bytes = found.task
        whole = (seen, *args, roots, None)
        _launch.launch(name, whole, units, unit_bytes, threads, found.key)
        if units * unit_bytes < _launch.PARALLEL_BYTES:
            run = _launch.compiled(_launch.kernel(name), whole, found.key)
            other = None if found.in_rows and found.as_is else found
            found.call[:] = [(units * unit_bytes, run, args, units, len(roots), found.roots, other)]
            if len(_calls) >= KEPT:
                _calls.clear()
            if key:
                _calls[key] = found.call[0]
    return finished(found, roots, out)


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


# -------------------------------------------------------------------------------- scalings


class Summary(NamedTuple):
    """Every number of rows, or of pairs of rows, of one block."""

    reduction: Reduction
    plan: tuple[Any, ...]  # arguments of the kernel, from how to sum on
    dtypes: tuple[np.dtype, ...]  # of the roots


def summary(
    blocks: str, fields: tuple[int, int], axis: Any, *given: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[np.dtype, ...], int] | None:
    """What kernel `blocks` tells of each row, `fields` real and whole numbers.

    And the dtypes of the roots, and the length of a row. None where an array is not small or plain.
    """
    if axis is not None and type(axis) is not int:
        return None
    found = summary_plan(axis, *[(a.dtype, a.shape, a.strides) for a in given])
    if found is None:
        return None
    plain, plan, dtypes = found
    rows, arrays = plain.plan.rows, views(plain, given)
    reals, counts = np.empty((fields[0], rows)), np.empty((fields[1], rows), np.int64)
    module = _launch.kernel_module("_describe_kernels" if len(given) == 1 else "_compare_kernels")
    args = (arrays, *plan, NO_STATES, reals, counts, 0, rows)
    _launch.call(getattr(module, blocks), args, (plain.key, plan[0]))
    shape = plain.shape
    return reals.reshape(-1, *shape), counts.reshape(-1, *shape), dtypes, plan[-8]


@lru_cache(maxsize=1024)
def summary_plan(axis: int | None, *sides: Side) -> Summary | None:
    plain = reduction(axis, False, None, None, *sides)
    if plain is None or plain.plan.awkward or not plain.ordered:
        return None
    if sum(map(nbytes, sides)) >= _launch.PARALLEL_BYTES:
        return None
    wide, (g, outer, awkward) = plain.wide, (plain.plan.g, plain.plan.outer, plain.plan.awkward)
    length = plain.plan.length
    kinds = tuple(str(_formats.kind_of(dtype, None)) for dtype, _, _ in sides)
    if length > BLOCK or any(kind.startswith("complex") for kind in kinds):
        return None
    each = [kinds] if len(kinds) == 1 else [kinds, kinds[:1], kinds[1:]]
    dtypes = tuple(np.dtype(_formats.result_kind(k)) for k in each)
    exact = [_sums.exact(k, dtype, False) for k, dtype in zip(each, dtypes, strict=True)]
    how = (None, *exact, *[None] * (len(kinds) == 1))
    alone: tuple[Any, ...] = ()
    for own, other in ((1, 2), (2, 1)) if len(kinds) == 2 else ():
        alone += (g[[0, own, 3, other, *range(4, len(g))]], outer, awkward)
    single = sum((dtype == np.float32) << k for k, dtype in enumerate(dtypes))
    plan = (how, wide, g, outer, awkward, *alone, length, 1, 1, 0, 0, 0, 1, single)
    return Summary(plain, plan, dtypes)


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
    types, share = (key, found.gain, cast), _sums.SCALED_BYTES
    _launch.launch("scale_rows", args, plan.rows, row_bytes, threads, types, share)
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
