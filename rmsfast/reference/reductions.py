"""Root mean squares of vectors and of their differences."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rmsfast.reference._numbers import (
    Array,
    Scaled,
    components_of,
    difference,
    mean_of,
    root_mean_square,
    square_of,
)
from rmsfast.reference._problem import Axis, Problem, check_choice, prepare, real_values, refuse


@np.errstate(all="ignore")
def rms(
    x: ArrayLike, /, *, axis: Axis = -1, keepdims: bool = False, where: ArrayLike | None = None,
    weights: ArrayLike | None = None, nan_policy: str = "propagate",
    dtype: DTypeLike | None = None, out: Array | None = None, format: str | None = None,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """Root mean square, sqrt(sum(w |x|^2) / sum(w)), with all w = 1 unless given.

    >>> float(rms([3.0, 4.0, 0.0, 0.0]))
    2.5
    """
    options = (axis, dtype, out, format, threads, where, weights, nan_policy, bool(keepdims))
    problem = prepare("rms", {"x": x}, *options)
    size = root_mean_square(components_of(problem.rows(0)), problem.weights)
    return problem.store([size.values()])


@np.errstate(all="ignore")
def rmse(
    x: ArrayLike, x_hat: ArrayLike, /, *, axis: Axis = -1, keepdims: bool = False,
    where: ArrayLike | None = None, weights: ArrayLike | None = None,
    nan_policy: str = "propagate", dtype: DTypeLike | None = None, out: Array | None = None,
    format: str | None = None, threads: int | None = None,
) -> Any:  # fmt: skip
    """Root mean square error, RMS(x - x_hat).

    >>> float(rmse([4.0, 25.0, 0.75, 11.0], [3.0, 21.0, -1.25, 13.0]))
    2.5
    """
    options = (axis, dtype, out, format, threads, where, weights, nan_policy, bool(keepdims))
    problem = prepare("rmse", {"x": x, "x_hat": x_hat}, *options)
    error = root_mean_square(difference(problem.rows(0), problem.rows(1)), problem.weights)
    return problem.store([error.values()])


@np.errstate(all="ignore")
def relative_rmse(
    x: ArrayLike, x_hat: ArrayLike, /, *, reference: str | ArrayLike, zero: str = "raise",
    axis: Axis = -1, keepdims: bool = False, where: ArrayLike | None = None,
    weights: ArrayLike | None = None, nan_policy: str = "propagate",
    dtype: DTypeLike | None = None, out: Array | None = None, format: str | None = None,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """Relative error, RMSE(x, x_hat) / reference: the name of a size, or an array of sizes.

    "x" is RMS(x), "x_hat" RMS(x_hat), "mean" |mean(x)|, "range" max(x) - min(x), "max" max(|x|)
    and "std" sqrt(mean(|x - mean(x)|^2)), all over the same points.

    >>> float(relative_rmse([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 5.0], reference="x"))
    1.0
    """
    function, names = "relative_rmse", ("x", "x_hat", "mean", "range", "std", "max")
    check_choice(function, "zero", zero, ("raise", "ieee", "nan"))
    if isinstance(reference, str):
        check_choice(function, "reference", reference, names)
    options = (axis, dtype, out, format, threads, where, weights, nan_policy, bool(keepdims))
    problem = prepare(function, {"x": x, "x_hat": x_hat}, *options)
    if isinstance(reference, str):
        size = _reference_size(problem, reference)
    else:
        sizes = real_values(function, "reference", reference, problem.shape)
        refuse(function, "reference must have no negative value", sizes < 0)
        size = Scaled.of(sizes.astype(np.float64).reshape(problem.keep.shape[:-1]))
    undefined = problem.zeros(size, zero, "reference must have no zero") & (zero == "nan")
    error = root_mean_square(difference(problem.rows(0), problem.rows(1)), problem.weights)
    return problem.store([np.where(undefined, np.nan, (error / size).values())])


def _reference_size(problem: Problem, reference: str) -> Scaled:
    """Size of each row by name."""
    x, weights = problem.rows(int(reference == "x_hat")), problem.weights
    if reference in ("x", "x_hat"):
        return root_mean_square(components_of(x), weights)
    if reference == "mean":
        return square_of([mean_of(part, weights) for part in components_of(x)]).root()
    if reference == "max":
        return square_of(components_of(x)).reduce(np.maximum).root()
    # Measured from a value of the row itself, a constant row is exactly 0 throughout.
    first = np.take_along_axis(x, problem.keep.argmax(axis=-1)[..., None], axis=-1)
    shifted = difference(x, np.where(problem.keep, first, x))
    if reference == "std":
        centred = [part - mean_of(part, weights).column() for part in shifted]
        return root_mean_square(centred, weights)
    if len(shifted) > 1:
        raise TypeError("relative_rmse: reference must not be 'range' where x is complex, got both")
    return shifted[0].reduce(np.maximum) - shifted[0].reduce(np.minimum)
