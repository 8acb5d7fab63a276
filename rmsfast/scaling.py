"""Rows scaled by their size: `unit_rms`, `scale_to_rms`, `rms_norm`."""

from typing import Any

import numpy as np

from rmsfast import _small_scalings
from rmsfast._scaled import CASTS, EPS_MODES, Scaled

Axis = int | tuple[int, ...] | None


def unit_rms(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    zero: str = "raise",
    where: Any = None,
    out: np.ndarray | None = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
    threads: int | None = None,
) -> Any:
    """Scale vectors to unit RMS, x / RMS(x); their Euclidean length is then sqrt(d).

    Parameters
    ----------
    x, axis, format, threads
        As for `rms`. Only with `out` being `x` itself is `x` modified.
    zero : {"raise", "zero", "nan"}
        A vector whose kept values are all exactly 0 is refused (with how many, and the first
        index, nothing written), gives zeros, or NaN. Small vectors are scaled like any other.
    where : array_like of bool, broadcastable to `x`
        The values that make the RMS; the whole vector is divided by it.
    out : ndarray of the shape of `x`
        Takes the result, and is returned. `x` itself, or apart from it.
    dtype : dtype or str
        Dtype of the result: real floating, or complex where `x` is.
    return_rms : bool, default False
        Return ``(result, rms)``, the second as ``rms(x, axis=axis, where=where)``.

    Returns
    -------
    ndarray, a pure number
        Shape and dtype of `x`, in native byte order; float64 for integers and bool; codes for
        codes given with `format`, records for records of codes. NaN throughout where no value is
        kept or one is NaN; beside an Inf, finite values become 0 and Inf becomes NaN.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rms`, for a zero vector under "raise", and for an `out` that overlaps `x` in part.
    ImportError
        For a bfloat16 or float8 result (not codes) without the package ml_dtypes.

    Notes
    -----
    Within 0.51 ulp for float64 and float32 results, 1 ulp at the ends of the range: the factor
    is a pair from the sums of `rms` (Ogita, Rump & Oishi 2005; Lefevre et al. 2023), and each
    value is rounded once, to odd before a narrow format (Boldo & Melquiond 2008,
    doi:10.1109/TC.2007.70819). To the bit, ``unit_rms(2**k * x) == unit_rms(x)``.

    Examples
    --------
    >>> unit_rms([3.0, 4.0, 0.0, 0.0])
    array([1.2, 1.6, 0. , 0. ])
    """
    if where is dtype is None and return_rms is False:
        result = _small_scalings.scaled(x, axis, "plain", zero, 1.0, out, format, threads)
        if result is not None:
            return result
    scaled = Scaled("unit_rms", x, axis, where, out, dtype, format, return_rms, threads)
    return scaled.result(zero=zero, target=1.0)


def scale_to_rms(
    x: Any,
    /,
    target: Any,
    *,
    axis: Axis = -1,
    zero: str = "raise",
    where: Any = None,
    out: np.ndarray | None = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
    threads: int | None = None,
) -> Any:
    """Scale vectors to a given RMS, target * x / RMS(x).

    Parameters
    ----------
    x, axis, zero, where, out, dtype, format, return_rms, threads
        As for `unit_rms`.
    target : array_like of real numbers, broadcastable to the result of ``rms(x)``
        RMS of the result, in the unit that it shall have; one number, or one a vector. A
        negative target turns the vector round.

    Returns
    -------
    ndarray, in the unit of `target`
        Shape, dtype, NaN and Inf as `unit_rms`. A zero vector follows `zero`, whatever its
        target; a NaN target gives NaN.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        As `unit_rms`, and for a target that is complex or does not broadcast.

    Notes
    -----
    One factor, target / RMS(x), is held as a pair and applied as in `unit_rms`, with the same
    error bound. Neither product nor quotient overflows on the way to a result in range.

    Examples
    --------
    >>> scale_to_rms([3.0, 4.0, 0.0, 0.0], 5.0)
    array([6., 8., 0., 0.])
    >>> scale_to_rms([[3.0, 4.0], [1.0, 1.0]], [0.0, -2.0])
    array([[ 0.,  0.],
           [-2., -2.]])
    """
    if where is dtype is None and return_rms is False:
        result = _small_scalings.scaled(x, axis, "plain", zero, target, out, format, threads)
        if result is not None:
            return result
    scaled = Scaled("scale_to_rms", x, axis, where, out, dtype, format, return_rms, threads)
    return scaled.result(zero=zero, target=target)


def rms_norm(
    x: Any,
    /,
    gain: Any = None,
    *,
    eps: float = 1e-6,
    axis: Axis = -1,
    gain_offset: float = 0.0,
    cast: str = "after_gain",
    eps_mode: str = "inside",
    out: np.ndarray | None = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
    threads: int | None = None,
) -> Any:
    """RMSNorm, (gain + gain_offset) * x / sqrt(mean(x**2) + eps).

    Parameters
    ----------
    x, axis, out, dtype, format, threads
        As for `unit_rms`; real.
    gain : array_like of real numbers
        A number, or an array of the shape of the axes in `axis`. None: 1.
    eps : float, default 1e-6
        Finite, >= 0; in the squared unit of `x` with "inside", else in its unit.
    gain_offset : float, default 0.0
        Added to the gain in float64; 1.0 for weights stored as gain - 1.
    cast : {"after_gain", "before_gain"}
        round(gain * y), or round(gain * round(y)) with y = x / size, to the result dtype.
    eps_mode : {"inside", "outside", "max"}
        size = sqrt(mean(x**2) + eps), RMS(x) + eps, or max(RMS(x), eps).
    return_rms : bool, default False
        Return ``(result, rms)``, the second without eps, as ``rms(x, axis=axis)``.

    Returns
    -------
    ndarray
        Shape, dtype, NaN and Inf as `unit_rms`; a zero vector gives zeros, with ``eps=0`` NaN.
        Neither RMS nor unit RMS: ``mean(result**2)`` depends on `eps` and the gain.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        As `unit_rms`, for complex `x`, a gain of another shape, an offset without a gain.

    Notes
    -----
    Sums, eps and gain are in float64 or better, and results rounded once, with the error bound
    of `unit_rms` (Ogita, Rump & Oishi 2005; Lefevre et al. 2023; Boldo & Melquiond 2008). Gemma
    and torch cast after the gain, Gemma with ``gain_offset=1.0``; Llama and ONNX before it, T5
    too where its weight is half precision. All put eps inside; 1e-6 is that of Gemma, T5 and
    some Llamas, 1e-5 of ONNX and other Llamas, ``np.finfo(np.float32).eps`` torch's default for
    float32 and narrower. They add up in float32, so last bits can differ.

    Examples
    --------
    >>> rms_norm([3.0, 4.0, 0.0, 0.0], eps=0.0)
    array([1.2, 1.6, 0. , 0. ])
    """
    if dtype is None and return_rms is False and eps_mode in EPS_MODES and cast in CASTS:
        result = _small_scalings.normalized(
            x, gain, eps, axis, gain_offset, cast, eps_mode, out, format, threads
        )
        if result is not None:
            return result
    scaled = Scaled("rms_norm", x, axis, None, out, dtype, format, return_rms, threads)
    return scaled.normalized(gain, eps, gain_offset, cast, eps_mode)
