"""Numbers with an unlimited exponent, and the sums and differences that are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]

LOWEST = np.intc(-(10**7))  # the exponent of 0, inf and NaN: below any other, far from wrapping


@dataclass(frozen=True, slots=True)
class Scaled:
    """An array of numbers, mantissa * 2**exponent."""

    mantissa: Array
    exponent: Array

    @classmethod
    def of(cls, values: ArrayLike, exponent: ArrayLike = 0) -> Scaled:
        mantissa, shift = np.frexp(np.asarray(values))
        special = (mantissa == 0) | ~np.isfinite(mantissa)
        exponent = np.where(special, LOWEST, np.add(shift, exponent, dtype=np.intc))
        return cls(np.asarray(mantissa, np.longdouble), exponent)

    def combine(self, ufunc: np.ufunc, other: Scaled) -> Scaled:
        top = np.maximum(self.exponent, other.exponent)
        pair = (np.ldexp(number.mantissa, number.exponent - top) for number in (self, other))
        return Scaled.of(ufunc(*pair), top)

    def reduce(self, ufunc: np.ufunc) -> Scaled:
        """Reduce the coordinates of each row."""
        top = self.exponent.max(axis=-1, keepdims=True)
        aligned = np.ldexp(self.mantissa, self.exponent - top)
        return Scaled.of(ufunc.reduce(aligned, axis=-1), top[..., 0])

    def __add__(self, other: Scaled) -> Scaled:
        return self.combine(np.add, other)

    def __sub__(self, other: Scaled) -> Scaled:
        return self.combine(np.subtract, other)

    def __mul__(self, other: Scaled) -> Scaled:
        return Scaled(self.mantissa * other.mantissa, self.exponent + other.exponent)

    def __truediv__(self, other: Scaled) -> Scaled:
        return Scaled.of(self.mantissa / other.mantissa, self.exponent - other.exponent)

    def root(self) -> Scaled:
        odd = self.exponent & 1
        return Scaled.of(np.sqrt(np.ldexp(self.mantissa, odd)), (self.exponent - odd) // 2)

    def column(self) -> Scaled:
        """One number per row, shaped to meet the coordinates of that row."""
        return Scaled(self.mantissa[..., None], self.exponent[..., None])

    def values(self) -> Array:
        return np.asarray(np.ldexp(self.mantissa, self.exponent))


def high_and_low(values: Array) -> tuple[Array, Array]:
    """Two float64 per value, their sum exact: a 64-bit integer does not fit into one."""
    high = values.astype(np.float64)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return high, np.zeros(())
    return high, ((values >> 32) * 2.0**32 - high) + (values & 0xFFFFFFFF)


def difference(x: Array, y: Array) -> list[Scaled]:
    """Subtract y from x: the real part, and the imaginary part where there is one."""
    components = []
    for part in ("real", "imag") if "c" in (x.dtype.kind, y.dtype.kind) else ("real",):
        (x_high, x_low), (y_high, y_low) = (high_and_low(getattr(a, part)) for a in (x, y))
        # Quartered where it could overflow; there alone, as it costs tiny values their last bits.
        huge = np.maximum(np.abs(x_high), np.abs(y_high)) > 2.0**1000
        scale = np.where(huge, np.longdouble(0.25), np.longdouble(1))
        exact = (x_high * scale - y_high * scale) + (x_low - y_low) * scale
        components.append(Scaled.of(exact, np.where(huge, np.intc(2), np.intc(0))))
    return components


def components_of(x: Array) -> list[Scaled]:
    return difference(x, np.zeros(()))


def square_of(components: list[Scaled]) -> Scaled:
    """|z|^2 of each coordinate."""
    first, *rest = components
    return sum((part * part for part in rest), start=first * first)


def mean_of(values: Scaled, weights: Scaled) -> Scaled:
    """sum(w v) / sum(w) of each row."""
    return (weights * values).reduce(np.add) / weights.reduce(np.add)


def root_mean_square(components: list[Scaled], weights: Scaled) -> Scaled:
    return mean_of(square_of(components), weights).root()
