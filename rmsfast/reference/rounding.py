"""Rounding to a storage format as such: to nearest, toward zero, at random."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmsfast.reference._formats import FORMATS, encode
from rmsfast.reference._numbers import Array, high_and_low
from rmsfast.reference._problem import check_choice, read, refuse, storage_of

__all__ = ["round_to"]

STORAGE = ("float32", *FORMATS)
LOW = np.uint64(0xFFFFFFFF)


@np.errstate(all="ignore")
def round_to(
    x: ArrayLike, format: str, /, *, rounding: str = "nearest_even", seed: int | None = None,
    overflow: str = "ieee", threads: int | None = None,
) -> Array:  # fmt: skip
    """Values of a storage format: whole multiples of its spacing at each x.

    >>> round_to([65519.0, 65520.0, 1e-9], "float16").tolist()
    [65504.0, inf, 0.0]
    """
    function = "round_to"
    if threads is not None and not (isinstance(threads, int | np.integer) and threads >= 1):
        raise ValueError(f"{function}: threads must be None or an int >= 1, got {threads!r}")
    check_choice(function, "format", format, STORAGE)
    check_choice(function, "rounding", rounding, ("nearest_even", "toward_zero", "stochastic"))
    check_choice(function, "overflow", overflow, ("ieee", "saturate", "raise"))
    key = _key(function, seed, rounding == "stochastic")
    given = read(function, "x", x).values
    if given.dtype.kind == "c":
        raise TypeError(f"{function}: x must be real, got dtype {given.dtype}")
    dtype = storage_of(function, format, STORAGE)[1]
    v = _odd(given)
    word = words(key, 0, v.size)[0].reshape(v.shape) if rounding == "stochastic" else None
    result, beyond = rounded(v, format, rounding, overflow == "saturate", word)
    if overflow == "raise":
        refuse(function, f"x must fit into {format}", beyond)
    return result.astype(dtype) if format == "float32" else encode(result, format).view(dtype)


def rounded(v: Array, format: str, rounding: str, saturate: bool, word: Any) -> tuple[Array, Array]:
    """Float64 rounded to a format, as float64, and a mask of what lay beyond it.

    word: random numbers of 32 bits, for stochastic rounding.
    """
    _, _, largest, infinite = _limits(format)
    size, special, step = np.abs(v), np.isinf(v), spacing(v, format)
    steps = np.where(special, np.inf, size / step)
    if rounding == "nearest_even":
        steps = np.rint(steps)
    elif rounding == "toward_zero":
        steps = np.floor(steps)
    else:
        steps = np.floor(steps) + ((steps - np.floor(steps)) * 2.0**32 > word)
    size = steps * step
    beyond = size > largest
    stop = saturate | ((rounding == "toward_zero") & ~special)
    size = np.where(beyond, np.where(stop, largest, np.inf if infinite else np.nan), size)
    return np.copysign(size, v), beyond & ~(special & infinite)


def spacing(v: Array, format: str) -> Array:
    """The spacing of a format at each value."""
    fraction, least, *_ = _limits(format)
    exponent = np.where(v == 0, least, np.frexp(v)[1] - 1)
    return np.asarray(np.ldexp(1.0, np.maximum(exponent, least) - fraction))


def _limits(format: str) -> tuple[int, int, float, bool]:
    """Bits of the fraction, least normal exponent, largest number, whether there is infinity."""
    if format == "float32":
        return 23, -126, float(np.finfo(np.float32).max), True
    f = FORMATS[format]
    infinite = f.overflow != f.nan
    exponent, fraction = divmod(f.overflow - 1, 1 << f.fraction_bits)
    whole = fraction + (1 << f.fraction_bits)
    largest = whole * 2.0 ** (exponent - f.bias - f.fraction_bits)
    return f.fraction_bits, 1 - f.bias, largest, infinite


def _odd(values: Array) -> Array:
    """As float64, with an odd last bit where that is not exact: it still rounds as the value."""
    return make_odd(*high_and_low(values))


def make_odd(high: Array, low: Array) -> Array:
    """High, with an odd last bit where there is a low part to it."""
    bits = np.atleast_1d(high).view(np.int64)
    opposed = np.signbit(high) != np.signbit(low)
    bits = np.where((low == 0) | (low != low), bits, (bits - opposed) | 1)
    return bits.view(np.float64).reshape(high.shape)


def _key(function: str, seed: object, needed: bool) -> int:
    if seed is None:
        if needed:
            required = "be an int with rounding='stochastic'"
            raise ValueError(f"{function}: seed must {required}, got None")
        return 0
    try:
        key = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{function}: seed must be None or an int, got {seed!r}") from None
    if not 0 <= key < 2**64:
        raise ValueError(f"{function}: seed must be in [0, 2**64), got {key}")
    return key


def words(key: int, first: int, count: int) -> tuple[Array, Array, Array]:
    """Three words of Philox 4x32-10 for each of `count` counters (Salmon et al. 2011)."""
    counter = np.arange(first, first + count, dtype=np.uint64)
    a, b = counter & LOW, counter >> np.uint64(32)
    c, d = np.zeros_like(a), np.zeros_like(a)
    for k in range(10):
        product, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        low = np.uint64(key + k * 0x9E3779B9 & 0xFFFFFFFF)
        high = np.uint64((key >> 32) + k * 0xBB67AE85 & 0xFFFFFFFF)
        a, b = second >> np.uint64(32) ^ b ^ low, second & LOW
        c, d = product >> np.uint64(32) ^ d ^ high, product & LOW
    return a, b, c
