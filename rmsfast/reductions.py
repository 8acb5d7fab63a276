"""Root mean squares: `rms`, `rmse`, `relative_rmse`."""

import math
from typing import Any

import numpy as np

from rmsfast import _arguments, _launch, _layout, _ratios, _small_reductions, _sums
from rmsfast._inputs import Inputs

Axis = int | tuple[int, ...] | None


def rms(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    nan_policy: str = "propagate",
    dtype: Any = None,
    out: np.ndarray | None = None,
    format: Any = None,
    threads: int | None = None,
) -> Any:
    """Root mean square, sqrt(mean(|x|**2)), weighted sqrt(sum(w |x|**2) / sum(w)).

    Parameters
    ----------
    x : array_like of numbers
        Any layout and byte order; never modified. bool, integers, float16/32/64, complex64/128,
        bfloat16, float8_e4m3fn, float8_e5m2; masked arrays, pandas by position, torch CPU tensors.
    axis : int, tuple of int or None, default -1
        Axes that hold the coordinates of each vector; None: all. A number is a vector of one.
    where : array_like of bool, broadcastable to `x`
        True keeps a value; what is left out never matters. A mask of `x` does the same.
    weights : array_like of real numbers, broadcastable to `x`
        w >= 0 and finite; 0 leaves the value out.
    nan_policy : {"propagate", "omit", "raise"}
        NaN gives NaN, or is left out (a NaN weight too), or is refused.
    keepdims, dtype, out, threads
        `keepdims` and `out` as in NumPy; `dtype` of the result, real floating; at most so many
        `threads`, which changes the time, never the bits.
    format : {"bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"} or such a dtype
        What the unsigned integers (or void) in `x` are the codes of. Records of one field that
        is named after a format, as NumPy loads them from .npy files, need no telling.

    Returns
    -------
    scalar or ndarray, in the unit of `x`
        Shape of `x` without `axis`. float64 for float64, complex128, integers and bool, float32
        for all that is narrower. NaN where no value is kept; NaN beats Inf.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        Before any work, for other dtypes (long double), shapes or options, and for an axis of
        length 0; after it, for NaN or weights that are refused. `out` is then untouched.

    Notes
    -----
    Within 0.51 ulp of the exact value (0.76 if a subnormal float64), with weights 2 ulp, over the
    whole range of the dtype: sums as pairs (Ogita, Rump & Oishi 2005, doi:10.1137/030601818) and
    their root (Lefevre et al. 2023, doi:10.1145/3568672), but plain float64 sums for float32
    results. No temporary grows with `x`, save where lists are made arrays.

    Examples
    --------
    >>> rms([[3.0, 4.0, 0.0, 0.0], [-3.0, -4.0, 0.0, 0.0]])
    array([2.5, 2.5])
    """
    if where is weights is None and nan_policy == "propagate":
        result = _small_reductions.reduced(
            x, _small_reductions.ALONE, axis, keepdims, dtype, out, format, threads
        )
        if result is not None:
            return result
    inputs = Inputs(
        "rms", (x,), axis, keepdims, where, weights, nan_policy, dtype, out, format, threads
    )
    if _launch.kernels() is None:
        return inputs.by_reference()
    return inputs.result(*_roots(inputs))


def rmse(
    x: Any,
    x_hat: Any,
    /,
    *,
    axis: Axis = -1,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    nan_policy: str = "propagate",
    dtype: Any = None,
    out: np.ndarray | None = None,
    format: Any = None,
    threads: int | None = None,
) -> Any:
    """Root mean square error, sqrt(mean(|x - x_hat|**2)), weighted as `rms`.

    Parameters
    ----------
    x, x_hat : array_like of numbers
        In one unit, of any two dtypes that `rms` takes. Along `axis` their lengths must agree;
        other axes may be 1 or missing in one: (n, d) against (d,) is one vector against n, and
        (n, 1) against (n,) is refused. A number stands for a vector of its value.
    axis, keepdims, where, weights, nan_policy, dtype, out, format, threads
        As for `rms`. `where` and `weights` are broadcastable to the common shape; "omit" and
        masks leave out a pair where either value is missing; `format` is that of both.

    Returns
    -------
    scalar or ndarray, in the unit of `x`
        Common shape without `axis`. float32 if both dtypes are narrower than float64 and not
        integers, else float64. NaN where no pair is kept, and for Inf - Inf.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rms`, and for shapes that do not pair, both named in the message.

    Notes
    -----
    Differences are exact before they are squared, those of unsigned and 64-bit integers
    included: nothing wraps, and cancellation costs nothing. Then the sums, the error bound of
    0.51 ulp (weighted 2 ulp) and the memory of `rms` (Ogita, Rump & Oishi 2005; Lefevre et al.
    2023). A float32 result comes from float64 differences. To the bit,
    ``rmse(x, y) == rmse(y, x)`` and ``rmse(x, 0) == rms(x)``.

    Examples
    --------
    >>> rmse([3.0, 4.0, 0.0, 0.0], 0.0)
    np.float64(2.5)
    >>> rmse(np.uint8([1, 1]), np.uint8([2, 8]))
    np.float64(5.0)
    """
    if where is weights is None and nan_policy == "propagate":
        result = _small_reductions.reduced(x, x_hat, axis, keepdims, dtype, out, format, threads)
        if result is not None:
            return result
    inputs = Inputs(
        "rmse", (x, x_hat), axis, keepdims, where, weights, nan_policy, dtype, out, format, threads
    )
    if _launch.kernels() is None:
        return inputs.by_reference()
    return inputs.result(*_roots(inputs))


def relative_rmse(
    x: Any,
    x_hat: Any,
    /,
    *,
    reference: Any,
    zero: str = "raise",
    axis: Axis = -1,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    nan_policy: str = "propagate",
    dtype: Any = None,
    out: np.ndarray | None = None,
    format: Any = None,
    threads: int | None = None,
) -> Any:
    """Root mean square error over a named size, RMSE(x, x_hat) / reference.

    Parameters
    ----------
    x, x_hat
        As for `rmse`.
    reference : str or array_like
        What the error is divided by, over the same kept and weighted values; no default:

        ========= =========================================================
        "x"       RMS(x) = sqrt(mean(|x|**2)): the relative Euclidean error
        "x_hat"   RMS(x_hat)
        "mean"    |mean(x)|
        "range"   max(x) - min(x), real dtypes only
        "std"     sqrt(mean(|x - mean(x)|**2)), ddof 0
        "max"     max(|x|)
        an array  its numbers, >= 0, broadcastable to the result
        ========= =========================================================
    zero : {"raise", "ieee", "nan"}
        A reference of exactly 0 is refused (with how many, and the first index), gives inf
        (NaN for 0/0), or NaN. Small references are used as they are.
    axis, keepdims, where, weights, nan_policy, dtype, out, format, threads
        As for `rmse`.

    Returns
    -------
    scalar or ndarray, a pure number, of the shape and dtype of `rmse`; NaN where no pair is kept

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmse`, and for a zero reference under "raise".

    Notes
    -----
    Within 1 ulp of the exact quotient (weighted 2 ulp) for "x", "x_hat", "range", "max" and
    arrays: sums and quotient stay pairs (Ogita, Rump & Oishi 2005; Lefevre et al. 2023). "mean"
    and "std" lose what the mean itself loses by cancellation. Memory as `rms`.

    Examples
    --------
    >>> relative_rmse([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 5.0], reference="x")
    np.float64(1.0)
    """
    function = "relative_rmse"
    _arguments.check_choice(function, "zero", zero, _ratios.ZERO)
    named = type(reference) is str and reference in _ratios.REFERENCES
    if named and where is weights is None and nan_policy == "propagate":
        result = _small_reductions.related(
            x, x_hat, reference, zero, axis, keepdims, dtype, out, format, threads
        )
        if result is not None:
            return result
    inputs = Inputs(
        function,
        (x, x_hat),
        axis,
        keepdims,
        where,
        weights,
        nan_policy,
        dtype,
        out,
        format,
        threads,
    )
    inputs.options |= {"reference": reference, "zero": zero}
    numbers = _ratios.numbers(inputs, reference)
    if _launch.kernels() is None:
        return inputs.by_reference()
    ratios, flags = _ratios.ratios(inputs, reference, numbers)
    _arguments.check_flags(function, inputs.names, flags, nan_policy)
    if zero != "ieee" and (flags & 4).any():
        if zero == "raise":
            raise _arguments.zero_rows(function, "reference", flags & 4)
        ratios[(flags & 4) > 0] = np.nan
    return inputs.result(ratios, None)


def _roots(inputs: Inputs) -> tuple[np.ndarray, np.ndarray | None]:
    """sqrt(sum / weight) of each row of the result, and flags where something can be refused."""
    exact = _sums.exact(inputs.kinds, inputs.dtype, inputs.weights is not None)
    single = inputs.dtype == np.float32 and exact is None
    rows = math.prod(inputs.rows_shape)
    roots = np.empty(rows, np.float32 if single else np.float64)
    omit = True if inputs.nan_policy != "propagate" else None
    flags = np.zeros(rows, np.uint8) if omit or inputs.weights is not None else None
    if rows:
        walk = _layout.walk(inputs.shape, inputs.axes, inputs.operands())
        _sums.roots(walk, (omit, exact, None), roots, flags, inputs.threads)
        roots = _layout.in_order(roots, walk.plan)
    return roots, flags
