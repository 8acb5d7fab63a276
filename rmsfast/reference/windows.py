"""Root mean squares of windows along an axis, one window after the other."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rmsfast.reference._formats import round_to_storage
from rmsfast.reference._numbers import Array, Scaled, components_of, root_mean_square
from rmsfast.reference._problem import (
    Problem,
    check_choice,
    check_out,
    precision_of,
    prepare,
    refuse,
)


@np.errstate(all="ignore")
def rms_windows(
    x: ArrayLike, /, window: int, *, hop: int | None = None, axis: int = -1, edge: str = "valid",
    nan_policy: str = "propagate", dtype: DTypeLike | None = None, out: Array | None = None,
    format: str | None = None, threads: int | None = None,
) -> Any:  # fmt: skip
    """RMS of x[start:start + window] along an axis, with starts `hop` apart (default: `window`).

    With `edge` "valid" the windows lie within the axis, with "partial" the last may end with it,
    and with "centered" window k has hop * k in its middle; windows end where the axis does.

    >>> rms_windows([3.0, 4.0, 0.0, 0.0, 1.0, 1.0], 2, edge="valid")
    array([3.53553391, 0.        , 1.        ])
    """
    function = "rms_windows"
    check_choice(function, "edge", edge, ("valid", "partial", "centered"))
    check_choice(function, "nan_policy", nan_policy, ("propagate", "omit", "raise"))
    window = check_count(function, "window", window)
    hop = window if hop is None else check_count(function, "hop", hop)
    policy = "omit" if nan_policy == "omit" else "propagate"
    axis = check_axis(function, axis)
    if edge == "centered" and 0 in np.shape(x)[axis:][:1]:  # there are none, of whatever length
        one = np.ones([max(n, 1) for n in np.shape(x)], np.asarray(x).dtype)
        none = rms_windows(one, 1, axis=axis, dtype=dtype, format=format).take([], axis)
        return none if out is None else out
    options = (axis, dtype, None, format, threads, None, None, policy, True)
    problem = prepare(function, {"x": x}, *options)
    length = problem.layout.lengths(problem.layout.reduced)[0] if problem.layout.reduced else 1
    if edge == "valid" and window > length:
        raise ValueError(
            f"{function}: window must be at most the length of the axis, {length}, with "
            f"edge='valid', got {window}"
        )
    starts = range(0, length - window + 1, hop)
    if edge == "partial":
        starts = range(0, max(length - window, 0) + hop, hop)
    elif edge == "centered":
        starts = range(-(window // 2), length - window // 2, hop)
    sizes = sizes_of(problem, starts, window).values()
    if nan_policy == "raise":
        nan = problem.keep & np.isnan(problem.layout.rows(problem.inputs[0].values))
        seen = [nan[..., max(s, 0) : s + window].any(axis=-1) for s in starts]
        refuse(function, "x must have no NaN", np.stack(seen, -1) if seen else nan)
    axis = problem.layout.reduced[0] if problem.layout.reduced else 0
    result = np.moveaxis(sizes, -1, axis)
    if out is not None:
        check_out(function, out, result.shape, problem.storage[1], problem.inputs[0].stored)
    return problem._replace(shape=result.shape, out=out).store([result])


@np.errstate(all="ignore")
def agc(
    x: ArrayLike, /, window: int, *, hop: int | None = None, axis: int = -1, zero: str = "keep",
    out: Array | None = None, dtype: DTypeLike | None = None, return_gain: bool = False,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """Values over the RMS of the window around each, linear between windows `hop` apart.

    >>> agc([2.0, -2.0, 2.0, 8.0, -8.0, 8.0], 1)
    array([ 1., -1.,  1.,  1., -1.,  1.])
    """
    function = "agc"
    check_choice(function, "zero", zero, ("keep", "nan", "raise"))
    window = check_count(function, "window", window)
    hop = 1 if hop is None else check_count(function, "hop", hop)
    problem = prepare(function, {"x": x}, check_axis(function, axis), dtype, out, None, threads)
    layout, (data,) = problem.layout, problem.inputs
    length = layout.lengths(layout.reduced)[0] if layout.reduced else 1
    starts = range(-(window // 2), length - window // 2, hop)
    sizes = sizes_of(problem, starts, window)
    if zero == "raise":
        refuse(function, "x must have no zero window", np.asarray(sizes.mantissa == 0))
    place, rest = np.divmod(np.arange(length), hop)
    before, share = taken(sizes, place), Scaled.of(rest / hop)
    after = taken(sizes, np.minimum(place + 1, len(starts) - 1))
    between = before * (Scaled.of(1.0) - share) + after * share
    divisor = Scaled(
        np.where(rest == 0, before.mantissa, between.mantissa),
        np.where(rest == 0, before.exponent, between.exponent),
    )
    none = np.asarray(divisor.mantissa == 0)
    kept = np.nan if zero == "nan" else 1.0
    gain = np.where(none, kept, (Scaled.of(1.0) / divisor).values())
    scaled = [
        np.where(none, kept * part.values(), (part / divisor).values())
        for part in components_of(layout.rows(data.values))
    ]
    result = problem.store([layout.restore(part) for part in scaled])
    if not return_gain:
        return result
    gains = round_to_storage(layout.restore(gain), precision_of(problem.inputs)[0])
    return result, gains.reshape(problem.shape)[()]


def taken(values: Scaled, places: Array) -> Scaled:
    """Values at places along the last axis."""
    return Scaled(values.mantissa[..., places], values.exponent[..., places])


def sizes_of(problem: Problem, starts: range, window: int) -> Scaled:
    """RMS of the windows of each row, along a last axis."""
    rows, keep = problem.rows(0), problem.keep
    found = []
    for start in starts:
        part = slice(max(start, 0), start + window)
        if start >= rows.shape[-1]:  # a hop behind the end: nothing is kept
            part, keep = slice(0, 1), np.zeros_like(keep)
        found.append(
            root_mean_square(components_of(rows[..., part]), Scaled.of(keep[..., part] * 1.0))
        )
    if not found:
        return Scaled.of(np.zeros((*rows.shape[:-1], 0)))
    return Scaled(
        np.stack([size.mantissa for size in found], -1),
        np.stack([size.exponent for size in found], -1),
    )


def check_count(function: str, name: str, value: Any) -> int:
    """An int of at least 1."""
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{function}: {name} must be an int >= 1, got {value!r}")
    if found < 1:
        raise ValueError(f"{function}: {name} must be an int >= 1, got {found}")
    return found


def check_axis(function: str, axis: Any) -> int:
    """An int: windows lie along one axis."""
    try:
        return operator.index(axis)
    except TypeError:
        raise TypeError(f"{function}: axis must be an int, got {axis!r}") from None
