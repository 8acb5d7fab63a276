"""Exact answers for one row, each given as its square with the sign of the root."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests import exact

Array = NDArray[Any]

LONG = 1 << 17  # coordinates from which rational arithmetic takes too long


def rms(x: Array, where: Array | None = None, weights: Array | None = None) -> list[Fraction]:
    """Mean of the squares kept; NaN is left out."""
    if x.size >= LONG:
        return [sum_of_many_squares(x) / x.size]
    kept = ~np.isnan(x) if where is None else where & ~np.isnan(x)
    return [exact.mean_square(x[kept], None if weights is None else weights[kept])]


def rmse(x: Array, x_hat: Array) -> list[Fraction]:
    """Mean of the squared differences."""
    return [exact.mean_square_error(x, x_hat)]


def unit_rms(x: Array) -> list[Fraction]:
    """Coordinates over their RMS."""
    return [exact.signed_square(value) / mean for mean in rms(x) for value in exact.fractions(x)]


def rms_norm(x: Array, gain: Array, eps: float = 1e-6) -> list[Fraction]:
    """Coordinates times their gain, over the root of their mean square plus eps."""
    mean = exact.mean_square(x) + Fraction(eps)
    pairs = zip(exact.fractions(x), exact.fractions(gain), strict=True)
    return [exact.signed_square(value * factor) / mean for value, factor in pairs]


def sum_of_many_squares(x: Array) -> Fraction:
    """Sum of the squares of float32 numbers, to 1e-15: 1e-8 ulps of a float32 root.

    The squares are exact in float64; NumPy adds each part pairwise and fsum the parts exactly.
    """
    if x.dtype != np.float32:
        raise TypeError(f"sum_of_many_squares: x must be float32, got {x.dtype}")
    parts = np.array_split(x.ravel(), x.size // LONG)
    return Fraction(math.fsum(float(np.square(part, dtype=np.float64).sum()) for part in parts))
