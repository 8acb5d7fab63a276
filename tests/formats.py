"""Rounding to storage formats, written for the tests: multiples of a spacing, in float64.

`rounded` is exact: a float64 over a power of two is one too, and so is every result.
"""

import ml_dtypes
import numpy as np

# Bits of the fraction, least normal exponent, largest number, whether there is an infinity.
LIMITS = {
    "float32": (23, -126, float(np.finfo(np.float32).max), True),
    "float16": (10, -14, 65504.0, True),
    "bfloat16": (7, -126, float(ml_dtypes.finfo(ml_dtypes.bfloat16).max), True),
    "float8_e4m3fn": (3, -6, 448.0, False),
    "float8_e5m2": (2, -14, 57344.0, True),
}
DTYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in LIMITS}
CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}
OWN, EDIT, SUM = range(3)  # which random word rounds a number, an edit of it, their sum


def spacing(v, format):
    """Of the numbers of a format around v."""
    fraction, least, *_ = LIMITS[format]
    return np.ldexp(1.0, np.maximum(np.frexp(v)[1] - 1, least) - fraction)


def rounded(v, format, mode="nearest_even", words=None, overflow="ieee"):
    """Float64 values of a format next to v, and where they overflow."""
    v = np.asarray(v, np.float64)
    if format == "float64":
        return v, np.zeros(v.shape, bool)
    *_, largest, has_infinity = LIMITS[format]
    with np.errstate(all="ignore"):
        step = spacing(v, format)
        steps = np.abs(v) / step
        if mode == "nearest_even":
            steps = np.rint(steps)
        elif mode == "toward_zero":
            steps = np.floor(steps)
        else:
            steps = np.floor(steps) + ((steps % 1) * 2.0**32 > words)
        size = steps * step
        infinite = np.isinf(v)
        over = (size > largest) & ~(infinite & has_infinity)
        beyond = np.inf if has_infinity else np.nan
        stop = overflow == "saturate" or (mode == "toward_zero" and ~infinite)
        size = np.where(size > largest, np.where(stop, largest, beyond), size)
        return np.copysign(size, v), over


def stored(values, format):
    """Values of a format in its dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32).astype(DTYPES[format])


def words(seed, count, which=OWN):
    """Philox 4x32-10 (Salmon et al. 2011): a word for each of `count` counters."""
    return philox(np.arange(count, dtype=np.uint64), seed)[which]


def philox(counter, key, high=0):
    """Four words of the counters (64 bits, and 64 more of value `high`) under a key of 64 bits."""
    mask = np.uint64(0xFFFFFFFF)
    counter = np.atleast_1d(np.asarray(counter, np.uint64))
    c = [counter & mask, counter >> np.uint64(32)]
    c += [np.full(counter.shape, high & 0xFFFFFFFF, np.uint64),
          np.full(counter.shape, high >> 32, np.uint64)]  # fmt: skip
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first = c[0] * np.uint64(0xD2511F53)
        second = c[2] * np.uint64(0xCD9E8D57)
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            second & mask,
            (first >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            first & mask,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c
