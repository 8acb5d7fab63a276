"""Exact root mean squares: an oracle in integer and rational arithmetic only.

Every stored number is an integer times a power of two, so a mean of squares is an exact
`Fraction`. Its root is irrational: a quantity is therefore given as its exact *square*, and
`ulp_error` measures a floating-point result against the root of it, which `math.isqrt` yields to
as many bits as the comparison needs.

    assert ulp_error(rms(x), mean_square(x)) <= 0.51
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

# format: (bits of precision, exponent of the smallest subnormal)
FORMATS = {
    "float64": (53, -1074),
    "float32": (24, -149),
    "float16": (11, -24),
    "bfloat16": (8, -133),
    "float8_e4m3fn": (4, -9),
    "float8_e5m2": (3, -16),
}
_BITS = 200  # carried beyond the precision of the format that a result is compared in

Dyadic = tuple[list[int], int]  # integers and a common exponent: value[i] = integers[i] * 2**e


def integers(values: Any, format: str | None = None) -> Dyadic:
    """Finite real values of any supported dtype, flattened in C order.

    `format` names the storage format that unsigned or void values are codes of.
    """
    array = np.asarray(values)
    if format is not None and array.dtype.kind in "uV":
        array = array.view(np.float16 if format == "float16" else getattr(ml_dtypes, format))
    if array.dtype.kind in "biu":
        return [int(value) for value in array.ravel().tolist()], 0
    mantissas, exponents = np.frexp(array.astype(np.float64).ravel())
    if not np.isfinite(mantissas).all():
        raise ValueError("integers: values must be finite")
    # np.frexp gives 0 the exponent 0, which must not stretch the common denominator of tiny rows.
    least = int(exponents.min(initial=2000, where=mantissas != 0)) - 53
    whole = np.ldexp(mantissas, 53).astype(np.int64).tolist()
    shifts = np.where(mantissas != 0, exponents - 53 - least, 0).tolist()
    return [m << shift for m, shift in zip(whole, shifts, strict=True)], least


def parts(values: Any, format: str | None = None) -> list[Dyadic]:
    """Real part and, of complex values, imaginary part."""
    array = np.asarray(values)
    if array.dtype.kind == "c":
        return [integers(array.real), integers(array.imag)]
    return [integers(array, format)]


def fractions(values: Any, format: str | None = None) -> list[Fraction]:
    """Exact values, one `Fraction` each."""
    mantissas, exponent = integers(values, format)
    return [_scaled(m, exponent) for m in mantissas]


def mean(values: Any, weights: Any = None, *, format: str | None = None) -> Fraction:
    """sum(w x) / sum(w) of real values."""
    mantissas, exponent = integers(values, format)
    return _weighted(mantissas, exponent, weights)


def mean_square(values: Any, weights: Any = None, *, format: str | None = None) -> Fraction:
    """RMS squared: sum(w |x|^2) / sum(w)."""
    return sum(
        (_weighted([m * m for m in mantissas], 2 * exponent, weights)
         for mantissas, exponent in parts(values, format)),
        start=Fraction(0),
    )  # fmt: skip


def mean_square_error(
    x: Any, x_hat: Any, weights: Any = None, *, format: str | None = None
) -> Fraction:
    """RMSE squared; `x_hat` is broadcast to the shape of `x`."""
    x_hat = np.broadcast_to(np.asarray(x_hat), np.shape(x))
    x_parts, x_hat_parts = parts(x, format), parts(x_hat, format)
    size = np.size(x)
    for real in (x_parts, x_hat_parts):
        real += [([0] * size, 0)] * (max(len(x_parts), len(x_hat_parts)) - len(real))
    total = Fraction(0)
    for (a, a_exponent), (b, b_exponent) in zip(x_parts, x_hat_parts, strict=True):
        e = min(a_exponent, b_exponent)
        pairs = zip(a, b, strict=True)
        errors = [(m << (a_exponent - e)) - (n << (b_exponent - e)) for m, n in pairs]
        total += _weighted([d * d for d in errors], 2 * e, weights)
    return total


def relative_square_error(
    x: Any, x_hat: Any, reference: str | Fraction, weights: Any = None, *, format: str | None = None
) -> Fraction:
    """Relative RMSE squared, over a size of real `x` by name or over a given number."""
    error = mean_square_error(x, x_hat, weights, format=format)
    if not isinstance(reference, str):
        return error / Fraction(reference) ** 2
    if reference in ("x", "x_hat"):
        return error / mean_square(x if reference == "x" else x_hat, weights, format=format)
    if reference == "mean":
        return error / mean(x, weights, format=format) ** 2
    if reference == "std":
        variance = mean_square(x, weights, format=format) - mean(x, weights, format=format) ** 2
        return error / variance
    values = fractions(x, format)
    if reference == "range":
        return error / (max(values) - min(values)) ** 2
    if reference == "max":
        return error / max(map(abs, values)) ** 2
    raise ValueError(f"relative_square_error: unknown reference {reference!r}")


def ulp_error(result: Any, square: Fraction, dtype: Any = None) -> float:
    """|result - sqrt(square)| in units in the last place of `dtype` at the exact root.

    `dtype` (a dtype or the name of a format) defaults to the dtype of `result`. The unit is that
    of the binade of the root, or the smallest subnormal. A negative `square` stands for a negative
    root. A result that is not finite is infinitely far away.
    """
    name = dtype if isinstance(dtype, str) else np.dtype(dtype or result.dtype).name
    value = float(result)
    if not math.isfinite(value):
        return math.inf
    if square < 0:
        value, square = -value, -square
    precision, least = FORMATS[name]
    root, exponent = _root(square, precision + _BITS)
    unit = max(root.bit_length() + exponent - precision, least) if root else least
    distance = abs(Fraction(value) - _scaled(root, exponent))
    return float(distance / _scaled(1, unit))


def signed_square(value: Fraction) -> Fraction:
    """The square that stands for a root of the sign of `value` in `ulp_error`."""
    return value * abs(value)


def rounded_root(square: Fraction, format: str = "float64") -> float:
    """Nearest value of a format to sqrt(square), ties to even (too large a value is not capped)."""
    precision, least = FORMATS[format]
    root, exponent = _root(square, precision + _BITS)
    unit = max(root.bit_length() + exponent - precision, least)
    return float(round(_scaled(root, exponent) / _scaled(1, unit)) * _scaled(1, unit))


def _weighted(mantissas: Sequence[int], exponent: int, weights: Any) -> Fraction:
    """Weighted mean of mantissas * 2**exponent, with as many weights."""
    if weights is None:
        return _scaled(sum(mantissas), exponent) / len(mantissas)
    w, _ = integers(weights)
    total = sum(m * n for m, n in zip(mantissas, w, strict=True))
    return _scaled(total, exponent) / sum(w)


def _scaled(mantissa: int, exponent: int) -> Fraction:
    return Fraction(mantissa << max(exponent, 0), 1 << max(-exponent, 0))


def _root(square: Fraction, bits: int) -> tuple[int, int]:
    """Mantissa of at least `bits` bits and exponent of sqrt(square), rounded down."""
    p, q = square.numerator, square.denominator
    shift = max(0, 2 * bits - p.bit_length() + q.bit_length()) + 1
    shift += shift % 2
    return math.isqrt((p << shift) // q), -shift // 2
