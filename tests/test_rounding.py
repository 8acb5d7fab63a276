"""Results rounded once to a storage format, to nearest even: every tie, and both sides of each.

A scaling by exactly 1 shows the rounding alone. A row (v, -v) has RMS |v|, so that
`scale_to_rms` with the target |v| is one; a row whose only kept coordinate is 1 is another, under
which NaN and infinity pass too.
"""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import FORMATS, fractions
from zoo import assert_same_bits

from rmsfast import scale_to_rms, unit_rms

NARROW = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in FORMATS if "64" not in name}
CODES = {1: np.uint8, 2: np.uint16, 4: np.uint32}
SMALL = [name for name in NARROW if name != "float32"]

every_format = pytest.mark.parametrize("format", SMALL)
every_narrow = pytest.mark.parametrize("format", NARROW)


def by_rows(v, format):
    """Values that are finite, each as a row (v, -v) that is given the RMS it has."""
    v = np.asarray(v)
    rows = np.stack([v, -v], axis=1)
    result = scale_to_rms(rows, np.abs(v), zero="zero", dtype=format, threads=1)
    return result[:, 0], result[:, 1]


def by_kept_one(v, format):
    """Any values, in one row of which only a 1 counts."""
    row = np.concatenate([np.ones(1, v.dtype), v])
    with_one = np.arange(row.size) == 0
    return unit_rms(row, where=with_one, dtype=format, threads=1)[1:]


def magnitudes(format):
    """Codes of the numbers >= 0 of a format, ascending, and their exact values as float64.

    One further value stands where the next number would be if the exponent went on.
    """
    dtype = NARROW[format]
    codes = np.arange(2 ** (8 * dtype.itemsize - 1), dtype=CODES[dtype.itemsize])
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype(np.float64)
    codes, values = codes[np.isfinite(values)], values[np.isfinite(values)]
    return codes, np.append(values, 2 * values[-1] - values[-2])


def overflown(format):
    """Code of what is too large: infinity, or NaN where there is none."""
    wide = {"float16": 0x7C00, "bfloat16": 0x7F80}
    return (wide | {"float8_e4m3fn": 0x7F, "float8_e5m2": 0x7C})[format]


def nearest(value, format):
    """The number of a format nearest to an exact value, ties to even, not capped."""
    precision, least = FORMATS[format]
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - precision + 1, least)
    return float(round(value / unit) * unit)


# Ties and their neighbours ----------------------------------------------------------------------


def between(format, side):
    """Float64 values at each midpoint (side 0) or just beside it, and the codes they round to."""
    codes, values = magnitudes(format)
    middle = (values[:-1] + values[1:]) / 2
    assert np.array_equal(middle - values[:-1], values[1:] - middle)  # exact
    upper = np.append(codes[1:], np.array(overflown(format), codes.dtype))
    even = np.where(codes % 2 == 0, codes, upper)
    expected = {-1: codes, 0: even, 1: upper}[side]
    return middle, np.asarray(expected, codes.dtype)


@every_format
@pytest.mark.parametrize("way", [by_rows, by_kept_one])
def test_rounding_every_tie_goes_to_even(format, way):
    middle, expected = between(format, 0)
    result = way(middle, format)
    positive, negative = result if way is by_rows else (result, way(-middle, format))
    dtype = NARROW[format]
    assert_same_bits(positive, expected.view(dtype))
    assert_same_bits(negative, -expected.view(dtype))


@every_format
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("relative", [2.0**-51, 2.0**-40, 2.0**-30, 2.0**-25])
def test_rounding_beside_every_tie_goes_to_the_nearer(format, side, relative):
    # But for the last, float32 loses the difference, from which they would be rounded as ties.
    middle, expected = between(format, side)
    beside = middle * (1 + side * relative)
    positive, negative = by_rows(beside, format)
    assert_same_bits(positive, expected.view(NARROW[format]))
    assert_same_bits(negative, -expected.view(NARROW[format]))


@every_format
def test_rounding_numbers_of_the_format_stay_as_they_are(format):
    codes, values = magnitudes(format)
    positive, negative = by_rows(values[:-1], format)
    assert_same_bits(positive, codes.view(NARROW[format]))
    assert_same_bits(negative, -codes.view(NARROW[format]))


@every_narrow
@pytest.mark.parametrize("spread", ["near one", "subnormal", "whole range"])
def test_rounding_float64_values_is_nearest_of_exact(format, spread):
    precision, least = FORMATS[format]
    info = ml_dtypes.finfo(NARROW[format])
    first, last = {
        "near one": (-2, 3),
        "subnormal": (least - 3, least + precision + 1),
        "whole range": (least - 3, int(np.log2(float(info.max)))),
    }[spread]
    rng = np.random.default_rng(4)
    v = np.ldexp(rng.uniform(1, 2, 500), rng.integers(first, last, 500, endpoint=True))
    v = v[v <= float(info.max)]
    # Half of them near a tie: only the last bits of float64 tell the side.
    unit = np.ldexp(1.0, np.maximum(np.frexp(v)[1] - precision, least))
    tie = (np.floor(v / unit) + 0.5) * unit
    nudge = rng.integers(-3, 4, v.size) * np.spacing(tie)
    v = np.where(np.arange(v.size) % 2 == 0, v, np.minimum(tie + nudge, float(info.max)))
    positive, negative = by_rows(v, format)
    expected = np.array([nearest(value, format) for value in fractions(v)])
    np.testing.assert_array_equal(positive.astype(np.float64), expected)
    np.testing.assert_array_equal(negative.astype(np.float64), -expected)


@pytest.mark.parametrize("format", SMALL)
@pytest.mark.parametrize("exponent", [-1074, -1000, -300, -160, 160, 300, 1023])
def test_rounding_values_beyond_float32_are_zero_or_too_large(format, exponent):
    v = np.ldexp(np.array([1.0, 1.5]), exponent)
    expected = np.full(2, overflown(format) if exponent > 0 else 0, CODES[NARROW[format].itemsize])
    positive, negative = by_rows(v, format)
    assert_same_bits(positive, expected.view(NARROW[format]))
    assert_same_bits(negative, -expected.view(NARROW[format]))


def test_rounding_bfloat16_of_float64_is_not_done_twice():
    # In float32 each would become a tie between two bfloat16 and go to the wrong one.
    v = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40])
    positive, _ = by_rows(v, "bfloat16")
    assert positive.astype(float).tolist() == [1.0078125, 1.0078125]
    twice = v.astype(np.float32).astype(ml_dtypes.bfloat16)
    assert twice.astype(float).tolist() == [1.0, 1.015625]


# Float32 values against ml_dtypes and NumPy -----------------------------------------------------


def singles(format, low):
    """Float32 of every upper half of the bits and, below it, one that is critical for rounding."""
    dropped = {"bfloat16": 16, "float16": 13, "float8_e4m3fn": 20, "float8_e5m2": 21}[format]
    step = max(dropped - 16, 0)  # where more is dropped, upper halves of all kinds come anyway
    upper = np.arange(2**16, dtype=np.uint32) << 16
    return (upper | np.uint32(low % 2 ** (16 if step else dropped))).view(np.float32)


@every_format
@pytest.mark.parametrize("low", [0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_rounding_float32_values_gives_codes_of_ml_dtypes(format, low):
    v = singles(format, low)
    with np.errstate(all="ignore"):
        expected = v.astype(NARROW[format])
    result = by_kept_one(v, format)
    numbers = ~np.isnan(v)
    assert_same_bits(result[numbers], expected[numbers])
    assert np.isnan(result[~numbers].astype(np.float32)).all()


@every_narrow
def test_rounding_nan_keeps_its_sign_and_loses_its_payload(format):
    bits = np.array([0x7FFF8C22, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x7F80FFFF], np.uint32)
    v = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    result = by_kept_one(v, format)
    assert np.isnan(result.astype(np.float32)).all()
    np.testing.assert_array_equal(np.signbit(result.astype(np.float32)), np.signbit(v))


def test_rounding_nan_to_bfloat16_is_the_canonical_one():
    bits = np.array([0x7FFF8C22, 0x7F800001, 0xFF800001, 0xFFFFFFFF], np.uint32)
    codes = by_kept_one(bits.view(np.float32), "bfloat16").view(np.uint16)
    assert codes.tolist() == [0x7FC0, 0x7FC0, 0xFFC0, 0xFFC0]


@every_format
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_infinity_stays_or_is_nan_where_there_is_none(format, dtype):
    result = by_kept_one(np.array([np.inf, -np.inf], dtype), format).astype(np.float64)
    expected = [np.nan, np.nan] if format == "float8_e4m3fn" else [np.inf, -np.inf]
    np.testing.assert_array_equal(result, expected)


@every_narrow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_keeps_the_sign_of_zero(format, dtype):
    # The last rounds to zero.
    tiny = np.finfo(dtype).smallest_subnormal if dtype is np.float64 else 0.0
    result = by_kept_one(np.array([0.0, -0.0, tiny, -tiny], dtype), format)
    assert_same_bits(result, np.array([0.0, -0.0, 0.0, -0.0]).astype(NARROW[format]))


def test_rounding_bfloat16_bits_of_critical_values_are_exact():
    v = [0.2691408770292272, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 3.3895314e38, 1e-41]
    codes = by_kept_one(np.array(v, np.float32), "bfloat16").view(np.uint16)
    assert codes.tolist() == [0x3E8A, 0x3F80, 0x3F82, 0xBF80, 0x7F7F, 0x0000]
    special = np.array([0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x7F7F7FFF], np.uint32)
    codes = by_kept_one(special.view(np.float32), "bfloat16").view(np.uint16)
    assert codes.tolist() == [0x7F80, 0xFF80, 0x7F80, 0x7F7F]


def test_rounding_bfloat16_subnormals_are_rounded_not_flushed():
    v = np.array([0x00008001, 0x00018000, 0x007FFFFF, 0x00008000], np.uint32).view(np.float32)
    codes = by_kept_one(v, "bfloat16").view(np.uint16)
    assert codes.tolist() == [0x0001, 0x0002, 0x0080, 0x0000]


# Scaled rows ------------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize("length", [1, 7, 63, 64, 65, 200])
def test_rounding_of_scaled_rows_is_nearest_of_exact(format, length):
    # The factor is a power of two: what is rounded is known exactly.
    rng = np.random.default_rng(length)
    x = rng.uniform(-1, 1, length)
    row = np.concatenate([[4.0], x])
    result = scale_to_rms(row, 1.0, where=np.arange(row.size) == 0, dtype=format, threads=1)
    expected = [nearest(value / 4, format) for value in fractions(row)]
    np.testing.assert_array_equal(result.astype(np.float64), expected)


def test_rounding_to_bfloat16_does_not_shrink_a_row():
    k = (np.arange(4096, dtype=np.uint64) * 2654435761) % 4294967296
    x = ((k.astype(np.float64) - 2147483648.0) / 2147483648.0).astype(np.float32)[None, :]
    y = unit_rms(x, dtype="bfloat16").astype(np.float64)
    size = math.sqrt(np.mean(y * y))
    assert abs(size - 0.9999994870283472) < 5e-5
