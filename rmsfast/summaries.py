"""Every number of a vector in one pass: `describe`, `compare`."""

from typing import Any

import numpy as np

from rmsfast import _launch, _reports, _small_summaries
from rmsfast._inputs import Inputs
from rmsfast._reports import COMPARE, DESCRIBE
from rmsfast.reference.summaries import Comparison, Description

__all__ = ["Comparison", "Description", "compare", "describe"]

Axis = int | tuple[int, ...] | None


def describe(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    where: Any = None,
    nan_policy: str = "propagate",
    format: Any = None,
    threads: int | None = None,
) -> Description:
    """Count, size, mean, spread, extremes and special values of vectors, in one pass.

    Parameters
    ----------
    x : array_like of numbers
        As for `rms`, in any layout and byte order.
    axis : int, tuple of int or None, default -1
        Axes that hold the coordinates of each vector, numbered in C order; None: all.
    where : array_like of bool, broadcastable to `x`
        True keeps a value; what is left out never matters. A mask of `x` does the same.
    nan_policy : {"propagate", "omit", "raise"}
        NaN gives NaN, or is left out, or is refused.
    format, threads
        As for `rms`.

    Returns
    -------
    Description
        Arrays of the shape of `rms(x, axis=axis)`, scalars of one vector: `count`, `rms`, `mean`,
        `std` (ddof 0), `min`, `max`, `peak` (largest absolute value), `peak_index` (the first
        coordinate of it), `peak_share` (peak**2 / sum(|x|**2)), `crest` (peak / rms), `n_nan`,
        `n_inf`, `n_zero`. All but `rms` and the whole numbers are float64. Where no value is kept
        they are NaN and the index is -1; 0/0 is NaN (`peak_share` and `crest` of zeros); where a
        NaN is kept the index is that of the first. The counts are of what `where` chooses.
        Complex numbers have a complex `mean`, the `std` of `numpy.std` and, as they have no
        order, NaN for `min` and `max`; one that is NaN or Inf in a part is so as a whole.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rms`.

    Notes
    -----
    `rms` has the bits of `rms(x)`. Mean and deviation come from sums over blocks of 16384
    coordinates, joined by the formula of Chan, Golub & LeVeque (1983,
    doi:10.1080/00031305.1983.10483115), over the whole range of the dtype. For float64, int32 and
    wider integers the sums are pairs (Ogita, Rump & Oishi 2005, doi:10.1137/030601818): within 4
    ulps, the mean plus 2**-80 of the largest |x|. For narrower floats they are plain float64, and
    bounded by 2**-42 of the largest |x| (mean) and 2**-40 of itself (deviation); 1e-15 is usual. A
    constant vector has deviation 0 and its value as mean. A block is read once more, from cache,
    for the index, and where its mean is large beside its deviation. Complex numbers are read
    twice, each row by one thread, and their sums are pairs. No temporary grows with `x`.

    Examples
    --------
    >>> found = describe([[3.0, -4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    >>> found.rms, found.peak_index, found.peak_share
    (array([2.5, 1. ]), array([1, 0]), array([0.64, 0.25]))
    >>> found.summary()["rms"]["pooled"]  # sqrt((25 + 4) / 8), of all 8 coordinates
    np.float64(1.9039432764659772)
    """
    plain = where is None and format is None and threads is None and nan_policy == "propagate"
    if plain and type(x) is np.ndarray:
        found = _small_summaries.summary(
            DESCRIBE.blocks, (DESCRIBE.reals, DESCRIBE.counts), axis, x
        )
        if found is not None:
            return _reports.description(*found)
    inputs = _inputs("describe", (x,), axis, where, nan_policy, format, threads)
    if _launch.kernels() is None:
        return inputs.by_reference()  # type: ignore[no-any-return]
    told: Description = _reports.table(inputs)
    return told


def compare(
    x: Any,
    x_hat: Any,
    /,
    *,
    axis: Axis = -1,
    where: Any = None,
    nan_policy: str = "propagate",
    format: Any = None,
    threads: int | None = None,
) -> Comparison:
    """Sizes, errors and likeness of pairs of vectors, in one pass.

    Parameters
    ----------
    x, x_hat : array_like of numbers
        The vectors and what stands for them, paired as for `rmse`.
    axis, where, nan_policy, format, threads
        As for `describe`; "omit" and masks leave out a pair where either value is missing.

    Returns
    -------
    Comparison
        Arrays of the shape of `rmse(x, x_hat, axis=axis)`, scalars of one pair of vectors:
        `count`, `rmse`, `rms_x`, `rms_x_hat`, `relative_rmse` (over RMS(x)), `sqnr_db` (signal to
        quantisation noise, 20 log10(rms_x / rmse)), `cosine`, `bias` (mean of x_hat - x),
        `max_abs_error`, `max_error_index` (the first coordinate of it), `n_equal` (pairs of equal
        numbers), `fitted_scale` (<x, x_hat> / <x_hat, x_hat>, what to multiply x_hat by). All but
        the roots, their ratio and the whole numbers are float64. Where no pair is kept they are
        NaN and the index is -1; 0/0 is NaN (`cosine`, `fitted_scale` of zeros), but `sqnr_db` of
        equal vectors is inf, zeros included; where an error is NaN the index is that of the first.
        Of complex numbers `bias` is complex, and <x, x_hat> is the real part of
        sum(x * conj(x_hat)): `cosine` and the real `fitted_scale` are those of the real vectors
        of twice as many coordinates.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmse`.

    Notes
    -----
    `rmse`, `rms_x`, `rms_x_hat` have the bits and dtypes of `rmse(x, x_hat)`, `rms(x)`,
    `rms(x_hat)` over the same pairs, `relative_rmse` those of `relative_rmse` under
    ``zero="ieee"`` where both dtypes are alike (else within 1 ulp, or 2**-42 of itself where only
    `x` is narrower than float64; the rms of a real vector beside a complex one within 0.51). Sums
    of products and errors are
    pairs (Ogita, Rump & Oishi 2005, doi:10.1137/030601818), plain float64 for floats narrower than
    that: `cosine` is within 2**-50, at worst 2**-42 for these, `fitted_scale` within as much of
    rms_x / rms_x_hat, `bias` of rmse, `sqnr_db` within 1e-11. Memory and passes as `describe`.

    Examples
    --------
    >>> found = compare([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 5.0])
    >>> found.relative_rmse, found.max_error_index, found.n_equal, found.fitted_scale
    (np.float64(1.0), np.int64(3), np.int64(3), np.float64(0.5))
    """
    plain = where is None and format is None and threads is None and nan_policy == "propagate"
    if plain and type(x) is type(x_hat) is np.ndarray:
        found = _small_summaries.summary(
            COMPARE.blocks, (COMPARE.reals, COMPARE.counts), axis, x, x_hat
        )
        if found is not None:
            return _reports.comparison(*found)
    inputs = _inputs("compare", (x, x_hat), axis, where, nan_policy, format, threads)
    if _launch.kernels() is None:
        return inputs.by_reference()  # type: ignore[no-any-return]
    told: Comparison = _reports.table(inputs)
    return told


def _inputs(
    function: str, given: tuple[Any, ...], axis: Axis, where: Any, nan_policy: str,
    format: str | None, threads: int | None,
) -> Inputs:  # fmt: skip
    inputs = Inputs(
        function, given, axis, False, where, None, nan_policy, None, None, format, threads
    )
    inputs.options = {
        name: inputs.options[name] for name in ("axis", "where", "nan_policy", "format")
    }
    return inputs
