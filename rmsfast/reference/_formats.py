"""Storage formats in integer arithmetic: codes to values and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rmsfast.reference._numbers import Array


class Format(NamedTuple):
    codes: np.dtype[Any]
    bias: int
    fraction_bits: int
    overflow: int  # code of what is too large: infinity, or NaN where there is no infinity
    nan: int


FORMATS = {
    "float16": Format(np.dtype(np.uint16), 15, 10, 0x7C00, 0x7E00),
    "bfloat16": Format(np.dtype(np.uint16), 127, 7, 0x7F80, 0x7FC0),
    "float8_e4m3fn": Format(np.dtype(np.uint8), 7, 3, 0x7F, 0x7F),
    "float8_e5m2": Format(np.dtype(np.uint8), 15, 2, 0x7C, 0x7E),
}
FLOATS = ("float64", "float32", *FORMATS)
COMPLEX = ("complex128", "complex64")


def decode(codes: Array, format: str) -> Array:
    f = FORMATS[format]
    sign_bit = 8 * f.codes.itemsize - 1
    magnitude = (codes & ((1 << sign_bit) - 1)).astype(np.intc)
    exponent, fraction = magnitude >> f.fraction_bits, magnitude & ((1 << f.fraction_bits) - 1)
    significand = fraction + (np.minimum(exponent, 1) << f.fraction_bits)
    power = np.maximum(exponent, 1) - f.bias - f.fraction_bits
    values = np.ldexp(significand.astype(np.float64), power)
    values = np.where(magnitude == f.overflow, np.inf, values)
    values = np.where((magnitude > f.overflow) | (magnitude == f.nan), np.nan, values)
    return np.asarray(np.copysign(values, 1.0 - 2.0 * (codes >> sign_bit)))


def encode(values: Array, format: str) -> Array:
    """Codes of float64 values, rounded once to nearest, ties to even."""
    f = FORMATS[format]
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    # Binade 0 holds the subnormals too. What rounds up to the next binade carries into its code.
    binade = np.frexp(np.maximum(size, 2.0 ** (1 - f.bias)))[1] - 2 + f.bias
    steps = np.rint(np.ldexp(size, f.fraction_bits - 1 + f.bias - binade)).astype(np.intc)
    magnitude = np.minimum(steps + (binade << f.fraction_bits), f.overflow)
    magnitude = np.where(np.isinf(values), f.overflow, magnitude)
    magnitude = np.where(np.isnan(values), f.nan, magnitude)
    sign = np.signbit(values).astype(f.codes) << (8 * f.codes.itemsize - 1)
    return np.asarray(magnitude.astype(f.codes) | sign)


def round_to_storage(values: Array, format: str) -> Array:
    """Round real values to a format; to a narrow one as codes."""
    if format in FORMATS:
        return encode(values.astype(np.float64), format)
    return np.asarray(values, format)
