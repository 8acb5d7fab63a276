"""round_to: every code of every format, every way of rounding, and what is too large."""

import ml_dtypes
import numpy as np
import pytest
import zoo
from exact import FORMATS, fractions
from formats import CODES, DTYPES, LIMITS, philox, rounded, spacing, stored, words
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import LAYOUTS, assert_same_bits, plain
from zoo import arrays as any_array

from rmsfast import reference, round_to

SMALL = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
MODES = ["nearest_even", "toward_zero", "stochastic"]

REAL = [dtype for dtype in zoo.DTYPES if dtype.kind != "c"]

every_format = pytest.mark.parametrize("format", LIMITS)
every_small = pytest.mark.parametrize("format", SMALL)
either = pytest.mark.parametrize(
    "function", [round_to, reference.round_to], ids=["compiled", "reference"]
)
every_mode = pytest.mark.parametrize("mode", MODES)


def codes(format):
    """Every number of a small format."""
    dtype = DTYPES[format]
    return np.arange(2 ** (8 * dtype.itemsize), dtype=CODES[dtype.itemsize]).view(dtype)


def call(x, format, mode="nearest_even", **options):
    return round_to(x, format, rounding=mode, seed=7 if mode == "stochastic" else None, **options)


def assert_same_numbers(actual, expected):
    """Same dtype and bits, but that any NaN of the right sign will do."""
    assert actual.dtype == expected.dtype
    missing = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(actual.astype(np.float32)), missing)
    np.testing.assert_array_equal(
        np.signbit(actual.astype(np.float32)), np.signbit(expected.astype(np.float32))
    )
    assert_same_bits(actual[~missing], expected[~missing])


# To nearest, against ml_dtypes ------------------------------------------------------------------


@every_small
@every_mode
def test_round_to_own_format_keeps_every_code(format, mode):
    x = codes(format)
    assert_same_numbers(call(x, format, mode), x)


@every_small
@pytest.mark.parametrize("source", SMALL)
def test_round_to_of_every_code_of_another_format_is_that_of_ml_dtypes(source, format):
    x = codes(source)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float32).astype(DTYPES[format])
    assert_same_numbers(round_to(x, format), expected)


@every_small
@pytest.mark.parametrize("low", [0, 1, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
def test_round_to_of_float32_is_that_of_ml_dtypes(format, low):
    dropped = {"bfloat16": 16, "float16": 13, "float8_e4m3fn": 20, "float8_e5m2": 21}[format]
    upper = np.arange(2**16, dtype=np.uint32) << 16
    x = (upper | np.uint32(low if dropped >= 16 else low % 2**dropped)).view(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(DTYPES[format])
    assert_same_numbers(round_to(x, format), expected)


def test_round_to_takes_a_format_by_its_name_or_as_a_dtype():
    for format in (ml_dtypes.bfloat16, DTYPES["bfloat16"], np.dtype([("bfloat16", np.uint16)])):
        found = round_to(np.float32([1.001]), format)
        assert_same_numbers(found, np.array([1], DTYPES["bfloat16"]))
    with pytest.raises(ValueError, match=r"round_to: format must be one of .+, got 'float64'"):
        round_to([1.0], np.float64)


def test_round_to_bfloat16_of_critical_float32_has_known_codes():
    v = [0.2691408770292272, 1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 3.3895314e38, 1e-41]
    found = round_to(np.array(v, np.float32), "bfloat16").view(np.uint16)
    assert found.tolist() == [0x3E8A, 0x3F80, 0x3F82, 0xBF80, 0x7F7F, 0x0000]


def test_round_to_bfloat16_of_nan_and_infinity_stays_what_it_is():
    bits = [0x7FFF8C22, 0x7F800001, 0xFF800001, 0x7F800000, 0xFF800000, 0x7F7FFFFF]
    v = np.array(bits, np.uint32).view(np.float32)
    for mode, last in (("nearest_even", 0x7F80), ("toward_zero", 0x7F7F), ("stochastic", 0x7F80)):
        found = call(v, "bfloat16", mode).view(np.uint16).tolist()
        assert found == [0x7FC0, 0x7FC0, 0xFFC0, 0x7F80, 0xFF80, last]


# In every way, against exact multiples of the spacing -------------------------------------------


def values(format, rng, count=3000):
    """Float64 over the whole range of a format and beyond, half of them beside its ties."""
    _, least = FORMATS[format]
    top = int(np.ceil(np.log2(LIMITS[format][2])))
    v = np.ldexp(rng.uniform(1, 2, count), rng.integers(least - 3, top + 2, count))
    step = spacing(v, format)
    ties = (np.floor(v / step) + rng.choice([0.0, 0.5, 1.0], count)) * step
    beside = ties + rng.integers(-2, 3, count) * np.spacing(ties)
    return rng.choice([-1.0, 1.0], count) * np.where(np.arange(count) % 2, beside, v)


@every_format
@every_mode
@pytest.mark.parametrize("overflow", ["ieee", "saturate"])
def test_round_to_of_float64_is_the_multiple_of_the_spacing(format, mode, overflow):
    v = values(format, np.random.default_rng(3))
    v[:4] = [0.0, -0.0, np.inf, -np.inf]
    drawn = words(7, v.size)
    expected, _ = rounded(v, format, mode, drawn, overflow)
    assert_same_numbers(call(v, format, mode, overflow=overflow), stored(expected, format))


@every_format
def test_round_to_of_integers_is_nearest_of_exact(format):
    # In float64 each would become a tie.
    fraction = LIMITS[format][0]
    top = min(62, int(np.log2(LIMITS[format][2])))
    x = (2 << fraction) + 1 << top - fraction - 2
    v = np.array([x + 1, x - 1, x, -x - 1], np.int64)
    unit = 2 << top - fraction - 2
    lower = x - unit // 2
    even = lower if lower // unit % 2 == 0 else lower + unit
    expected = [lower + unit, lower, even, -lower - unit]
    assert [int(e) for e in fractions(round_to(v, format))] == expected


def test_round_to_of_float64_is_not_done_twice():
    v = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8 - 2.0**-40])
    assert round_to(v, "bfloat16").astype(float).tolist() == [1.0078125, 1.0078125]
    twice = v.astype(np.float32).astype(ml_dtypes.bfloat16)
    assert twice.astype(float).tolist() == [1.0, 1.015625]


# Random numbers ---------------------------------------------------------------------------------


def test_philox_of_the_tests_gives_the_published_words():
    # Known answers of Random123 1.14, kat_vectors, philox4x32-10.
    assert [int(w[0]) for w in philox([0], 0)] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 2**64 - 1
    expected = [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert [int(w[0]) for w in philox([ones], ones, ones)] == expected
    found = philox([0x85A308D3243F6A88], 0x299F31D0A4093822, 0x0370734413198A2E)
    assert [int(w[0]) for w in found] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_round_to_stochastic_is_without_bias():
    x = np.full(1 << 18, 1 + 0.3 * 2**-7)
    found = call(x, "bfloat16", "stochastic").astype(np.float64)
    assert set(np.unique(found)) == {1.0, 1 + 2**-7}
    share = (found > 1).mean()
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / x.size)


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 3, 2**63 + 1, 2**64 - 1])
def test_round_to_stochastic_takes_seeds_of_64_bits(seed):
    x = np.random.default_rng(0).normal(size=40)
    expected, _ = rounded(x, "bfloat16", "stochastic", words(seed, x.size))
    found = round_to(x, "bfloat16", rounding="stochastic", seed=seed)
    assert_same_bits(found, stored(expected, "bfloat16"))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_round_to_stochastic_depends_on_the_place_in_c_order(layout):
    x = layout(np.random.default_rng(0).normal(size=(5, 7, 3)))
    expected = call(plain(x), "float16", "stochastic")
    assert_same_bits(call(x, "float16", "stochastic"), expected)


@every_mode
def test_round_to_by_several_threads_gives_the_same_bits(mode):
    x = np.random.default_rng(0).normal(size=(3, 100_001))
    one = call(x, "bfloat16", mode, threads=1)
    assert_same_bits(call(x, "bfloat16", mode, threads=2), one)
    expected, _ = rounded(x, "bfloat16", mode, words(7, x.size).reshape(x.shape))
    assert_same_bits(one, stored(expected, "bfloat16"))


# Arrays -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_array(dtypes=REAL), st.sampled_from(["float32", "bfloat16"]))
def test_round_to_of_any_array_is_that_of_its_copy(view, format):
    found = round_to(view, format)
    assert found.shape == view.shape
    assert_same_bits(found, round_to(plain(view), format))


def test_round_to_of_no_elements_has_none():
    assert round_to(np.empty((0, 3)), "bfloat16").shape == (0, 3)
    assert round_to(np.empty((3, 0), np.float32), "float16").dtype == np.float16


@every_format
@every_mode
@pytest.mark.parametrize("overflow", ["ieee", "saturate"])
def test_round_to_of_the_reference_has_the_same_bits(format, mode, overflow):
    v = values(format, np.random.default_rng(5), 400)
    v[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]
    seed = 7 if mode == "stochastic" else None
    found = reference.round_to(v, format, rounding=mode, seed=seed, overflow=overflow)
    assert_same_numbers(found, call(v, format, mode, overflow=overflow))


# Refusals ---------------------------------------------------------------------------------------


@either
@pytest.mark.parametrize(
    ("x", "format", "options", "message"),
    [
        ([1.0], "int8", {}, "format must be one of"),
        ([1.0], "bfloat16", {"rounding": "up"}, "rounding must be one of"),
        ([1.0], "bfloat16", {"overflow": "wrap"}, "overflow must be one of"),
        ([1.0], "bfloat16", {"rounding": "stochastic"}, "seed must be an int"),
        ([1.0], "bfloat16", {"seed": -1}, r"seed must be in \[0, 2\*\*64\), got -1"),
        ([1.0, 1e39, -1e39], "bfloat16", {"overflow": "raise"}, "fit into bfloat16.*, got 2"),
        ([np.inf], "float8_e4m3fn", {"overflow": "raise"}, "fit into float8_e4m3fn"),
    ],
)
def test_round_to_refuses_what_it_cannot_do(function, x, format, options, message):
    with pytest.raises(ValueError, match=f"round_to: .*{message}"):
        function(np.array(x), format, **options)


@either
def test_round_to_refuses_complex_numbers_and_seeds_that_are_none(function):
    with pytest.raises(TypeError, match="round_to: x must be real, got"):
        function(np.array([1j]), "bfloat16")
    with pytest.raises(TypeError, match=r"round_to: seed must be None or an int, got 1\.5"):
        function([1.0], "bfloat16", rounding="stochastic", seed=1.5)


def test_round_to_raise_lets_what_rounds_to_the_largest_number_pass():
    x = [65519.0, -65519.0, np.inf, np.nan]
    found = round_to(x, "float16", overflow="raise")
    np.testing.assert_array_equal(found, np.array([65504, -65504, np.inf, np.nan], np.float16))
    with pytest.raises(ValueError, match="got 1 beyond"):
        round_to([65520.0, 1.0], "float16", overflow="raise")
