"""`rmse` against exact arithmetic: exact differences, pairs of shapes, dtypes and layouts."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import mean_square, mean_square_error, ulp_error
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import (
    CASE_IDS,
    CASES,
    DTYPES,
    LAYOUTS,
    NARROW,
    assert_same_bits,
    contents,
    make,
    name_of,
    plain,
)

from rmsfast import _launch, rms, rmse

LENGTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 1023, 1024, 1025, 16383, 16384, 16385, 40000]
TINY = Fraction(np.finfo(np.float64).tiny.item())
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
every_length = pytest.mark.parametrize("length", LENGTHS)
# One of each kind of difference: exact pair, float64, shifts, small and large integers, two parts.
KINDS = [np.dtype(n) for n in ("float64", "float32", "int16", "int64", "complex128")] + [BFLOAT16]
every_kind = pytest.mark.parametrize("dtype", KINDS, ids=name_of)
# Fewer where a mask or weights join them: each combination is compiled anew.
every_masked = pytest.mark.parametrize(
    "dtype", [np.float64, np.int16, np.complex128, BFLOAT16], ids=name_of
)
anything = settings(max_examples=60, deadline=None, derandomize=True)


def cases(*profiles):
    chosen = [
        pytest.param(*c, id=i) for c, i in zip(CASES, CASE_IDS, strict=True) if c[1] in profiles
    ]
    return pytest.mark.parametrize(("dtype", "values"), chosen)


def named(name):
    return np.dtype(getattr(ml_dtypes, name, name))


def assert_root(result, square):
    """Within 0.51 ulp of the root (0.76 for a subnormal float64), infinite beyond the range."""
    largest = Fraction(float(np.finfo(result.dtype).max))
    if square > (largest * (1 + Fraction(1, 2**54))) ** 2:
        assert result == np.inf
        return
    subnormal = result.dtype == np.float64 and square < TINY**2
    assert ulp_error(result, square) <= (0.76 if subnormal else 0.51)


def scattered(shape, exponents, seed=0):
    """Values of either sign, their exponents spread over a range."""
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.uniform(-1, 1, shape), rng.integers(*exponents, size=shape))


# Accuracy ---------------------------------------------------------------------------------------


@cases("normal", "subnormal", "huge", "zeros")
def test_rmse_finite_values_is_within_half_an_ulp_of_exact(dtype, values):
    x, x_hat = make((40,), dtype, values), make((40,), dtype, values, seed=7)
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))


@every_length
@every_kind
def test_rmse_any_length_is_within_half_an_ulp_of_exact(dtype, length):
    x, x_hat = make((length,), dtype, seed=length), make((length,), dtype, seed=length + 1)
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))


@every_length
def test_rmse_of_neighbouring_numbers_is_within_half_an_ulp_of_exact(length):
    x = make((length,), np.float64, seed=length)
    x_hat = np.nextafter(x, make((length,), np.float64, seed=1))
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))


@pytest.mark.parametrize("integer", [np.int32, np.int64, np.uint64], ids=name_of)
def test_rmse_of_infinity_beside_integers_is_infinite(integer):
    x = np.array([np.inf, 1.0])
    assert rmse(x, np.array([3, 2**31 - 1], integer)) == np.inf


@pytest.mark.parametrize("exponent", [-1074, -1030, -600, 0, 600, 1022])
def test_rmse_under_cancellation_is_within_half_an_ulp_of_exact(exponent):
    rng = np.random.default_rng(exponent + 2000)
    x = np.ldexp(rng.uniform(1, 2, (40, 9)), exponent)
    x_hat = x * (1 + rng.choice([0, 2.0**-52, 2.0**-40, 2.0**-20, 2.0**-3], x.shape))
    for result, a, b in zip(rmse(x, x_hat), x, x_hat, strict=True):
        assert_root(result, mean_square_error(a, b))


@pytest.mark.parametrize("gap", [2.0**-54, 2.0**-60, 2.0**-200, 5e-324])
def test_rmse_of_difference_beyond_float64_is_within_half_an_ulp_of_exact(gap):
    """Differences that float64 cannot hold: a rounded one would be off by up to half an ulp."""
    rng = np.random.default_rng(6)
    x, x_hat = rng.uniform(1, 2, (200, 2)), rng.uniform(0.3, 3, (200, 2)) * gap
    for result, a, b in zip(rmse(x, x_hat), x, x_hat, strict=True):
        assert_root(result, mean_square_error(a, b))


@pytest.mark.parametrize(
    "exponents", [(-1074, 1023), (-1074, -1022), (-1074, -500), (-500, -480), (900, 1022)], ids=str
)
@pytest.mark.parametrize("length", [3, 1000, 16385])
def test_rmse_of_wide_range_is_within_half_an_ulp_of_exact(exponents, length):
    x, x_hat = scattered(length, exponents), scattered(length, exponents, seed=1)
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, *NARROW], ids=name_of)
@pytest.mark.parametrize("result", ["float32", "float64", "bfloat16"])
def test_rmse_narrow_values_asked_for_any_dtype_is_within_half_an_ulp_of_exact(dtype, result):
    x, x_hat = make((20, 37), dtype), make((20, 37), dtype, seed=3)
    values = rmse(x, x_hat, dtype=result)
    assert values.dtype.name == result
    for value, a, b in zip(values, x, x_hat, strict=True):
        assert ulp_error(value, mean_square_error(a, b)) <= 0.51


def test_rmse_float32_of_any_magnitudes_asked_for_float64_is_within_half_an_ulp_of_exact():
    """Exponents more than 29 apart: the difference is no float64."""
    x = scattered((200, 2), (-149, 127)).astype(np.float32)
    x_hat = scattered((200, 2), (-149, 127), seed=4).astype(np.float32)
    for value, a, b in zip(rmse(x, x_hat, dtype="float64"), x, x_hat, strict=True):
        assert_root(value, mean_square_error(a, b))


@given(st.data())
@anything
def test_rmse_any_finite_float64_pair_is_within_half_an_ulp_of_exact(data):
    shape = (data.draw(st.integers(1, 30)),)
    x = data.draw(contents(np.dtype(np.float64), shape, finite=True))
    x_hat = data.draw(contents(np.dtype(np.float64), shape, finite=True))
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))


@given(st.data())
@anything
def test_rmse_any_finite_pair_of_one_dtype_is_within_half_an_ulp_of_exact(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = (data.draw(st.integers(1, 20)),)
    x, x_hat = (data.draw(contents(dtype, shape, finite=True)) for _ in range(2))
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))


# Integers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind in "iu"], ids=name_of)
def test_rmse_of_extreme_integers_does_not_wrap(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x, x_hat = np.array([[low, high, 0, high]] * 3, dtype), np.array([high, low, low, 1], dtype)
    for result in rmse(x, x_hat):
        assert_root(result, mean_square_error(x[0], x_hat))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32])
@pytest.mark.parametrize("distance", [0, 1, 3, 1000])
def test_rmse_of_large_integers_close_together_is_exact(dtype, distance):
    x = np.full(1000, np.iinfo(dtype).max, dtype)
    assert rmse(x, x - dtype(distance)) == distance


def test_rmse_of_integer_pairs_that_differ_in_the_last_bit_is_exact():
    x = np.random.default_rng(9).integers(-(2**63), 2**63 - 1, (50, 64))
    assert_same_bits(rmse(x, x ^ 1), np.ones(50))


# Every dtype appears, and every kind of arithmetic beside another.
MIXED = [
    ("int64", "uint64"),
    ("uint64", "float64"),
    ("int64", "float32"),
    ("int8", "uint8"),
    ("bool", "int16"),
    ("uint16", "int32"),
    ("uint32", "float16"),
    ("float32", "float64"),
    ("float16", "bfloat16"),
    ("float8_e4m3fn", "float8_e5m2"),
    ("complex64", "float32"),
    ("complex128", "int64"),
]
every_mixture = pytest.mark.parametrize("kinds", MIXED, ids="-".join)


@every_mixture
@pytest.mark.parametrize("values", ["normal", "huge"])
def test_rmse_of_mixed_dtypes_is_within_half_an_ulp_of_exact(kinds, values):
    x, x_hat = (make((40,), named(k), values, seed=n) for n, k in enumerate(kinds))
    narrow = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64"}
    result = rmse(x, x_hat)
    assert result.dtype == (np.float32 if narrow.issuperset(kinds) else np.float64)
    assert_root(result, mean_square_error(x, x_hat))


@pytest.mark.parametrize("kinds", [MIXED[0], MIXED[2], MIXED[8], MIXED[11]], ids="-".join)
def test_rmse_of_mixed_dtypes_is_symmetric_to_the_bit(kinds):
    x, x_hat = (make((40,), named(k), "huge", seed=n) for n, k in enumerate(kinds))
    assert_same_bits(rmse(x_hat, x), rmse(x, x_hat))


def test_rmse_of_int64_and_uint64_extremes_is_within_half_an_ulp_of_exact():
    x = np.array([-(2**63), 2**63 - 1, -1, 0, 2**53 + 1])
    x_hat = np.array([2**64 - 1, 2**63, 2**64 - 1, 1, 2**53 + 2], np.uint64)
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat))
    assert_root(rmse(x[3:], x_hat[3:]), Fraction(1))


def test_rmse_of_uint64_and_float64_is_exact():
    x = np.full(9, 2**64 - 1, np.uint64)
    assert rmse(x, np.full(9, 2.0**64)) == 1


# Identities -------------------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("length", [5, 1025])
def test_rmse_is_symmetric_to_the_bit(dtype, length):
    x, x_hat = make((3, length), dtype), make((3, length), dtype, "huge", seed=1)
    assert_same_bits(rmse(x, x_hat), rmse(x_hat, x))


@every_dtype
@pytest.mark.parametrize("values", ["normal", "huge"])
def test_rmse_from_zero_has_bits_of_rms(dtype, values):
    x = make((3, 1030), dtype, values)
    assert_same_bits(rmse(x, np.zeros_like(x)), rms(x))
    assert_same_bits(rmse(np.zeros_like(x), x), rms(x))


@pytest.mark.parametrize("exponents", [(-1074, -1022), (-1074, 1023), (900, 1023)], ids=str)
def test_rmse_from_zero_of_wide_range_has_bits_of_rms(exponents):
    x = scattered((5, 17000), exponents)
    assert_same_bits(rmse(x, np.zeros(17000)), rms(x))


@pytest.mark.parametrize(("dtype", "zero"), [(np.float64, 0.0), (np.float64, 0), (BFLOAT16, 0)])
def test_rmse_from_the_number_zero_has_bits_of_rms(dtype, zero):
    x = make((3, 40), dtype)
    assert_same_bits(rmse(x, zero), rms(x))
    assert_same_bits(rmse(zero, x), rms(x))


@cases("normal", "subnormal", "huge", "zeros")
def test_rmse_from_itself_is_zero(dtype, values):
    x = make((3, 1030), dtype, values)
    assert_same_bits(rmse(x, x.copy()), np.zeros(3, rms(x).dtype))
    assert_same_bits(rmse(x, x), np.zeros(3, rms(x).dtype))


@pytest.mark.parametrize("exponent", [-1074, -1000, -900, 0, 123, 124, 500, 1023])
def test_rmse_from_itself_at_any_magnitude_is_zero(exponent):
    x = np.array([2.0**exponent, -(2.0**exponent), 0.0])
    assert_same_bits(rmse(x, x.copy()), np.float64(0))


@pytest.mark.parametrize("real", [np.float32, np.float64, np.int16])
def test_rmse_of_complex_against_real_takes_no_imaginary_part(real):
    x, x_hat = np.array([1 + 2j, 3 - 1j], np.complex64), np.array([1, 2], real)
    assert rmse(x, x_hat) == rmse(x_hat, x) == np.sqrt(rmse(x, x_hat).dtype.type(3))


@pytest.mark.parametrize("exponent", [-900, -301, 1, 302, 950])
def test_rmse_times_power_of_two_scales_without_error(exponent):
    rng = np.random.default_rng(1)
    x, x_hat = rng.uniform(1, 2, (2, 3, 16385))
    scaled = rmse(np.ldexp(x, exponent), np.ldexp(x_hat, exponent))
    assert_same_bits(scaled, np.ldexp(rmse(x, x_hat), exponent))


@pytest.mark.parametrize("shift", [1.0, -0.75, 2.0**-40])
def test_rmse_of_constant_shift_is_the_shift(shift):
    x = np.random.default_rng(2).integers(0, 1000, (3, 1000)) * 1.0
    assert_same_bits(rmse(x, x + shift), np.full(3, abs(shift)))


# Range and special values -----------------------------------------------------------------------


def test_rmse_of_difference_beyond_the_range_is_finite_where_the_mean_is():
    x, x_hat = np.zeros((2, 20000)), np.zeros((2, 20000))
    x[:, 9], x_hat[:, 9] = [1.7e308, -1.7e308], [-1.7e308, 1.7e308]
    for result in rmse(x, x_hat):
        assert_root(result, mean_square_error(x[0], x_hat[0]))


def test_rmse_beyond_the_largest_number_is_infinite():
    x = np.full(5, 1.7e308)
    assert rmse(x, -x) == np.inf
    np.testing.assert_equal(rmse(np.stack([x, -x]), x), [0.0, np.inf])


def test_rmse_of_float32_beyond_float32_is_infinite_and_finite_as_float64():
    x = np.full(5, 3e38, np.float32)
    assert rmse(x, -x) == np.inf
    assert rmse(x, -x, dtype="float64") == 2 * float(x[0])


@pytest.mark.parametrize(
    ("x", "x_hat", "expected"),
    [
        (np.inf, 1.0, np.inf),
        (-np.inf, 1.0, np.inf),
        (np.inf, -np.inf, np.inf),
        (np.inf, np.inf, np.nan),
        (-np.inf, -np.inf, np.nan),
        (np.nan, 1.0, np.nan),
        (np.nan, np.inf, np.nan),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
@pytest.mark.parametrize("length", [1, 9, 20000])
def test_rmse_of_special_values_follows_their_difference(x, x_hat, expected, dtype, length):
    left, right = np.ones((2, 3, length)).astype(dtype)
    left[:, length // 2], right[:, length // 2] = x, x_hat
    for a, b in [(left, right), (right, left)]:
        np.testing.assert_equal(rmse(a, b).astype(float), np.full(3, expected))


def test_rmse_nan_beats_infinity_in_other_coordinates():
    np.testing.assert_equal(rmse([np.inf, np.nan, 1.0], [0.0, 0.0, 0.0]), np.nan)
    np.testing.assert_equal(rmse([np.inf, 1.0], [0.0, np.nan]), np.nan)


# Shapes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "axis", "expected"),
    [
        ((4, 5), (5,), -1, (4,)),
        ((4, 5), (1, 5), -1, (4,)),
        ((1, 5), (4, 5), -1, (4,)),
        ((1, 5), (5,), -1, (1,)),
        ((4, 1, 5), (3, 5), -1, (4, 3)),
        ((4, 5), (4, 1), 0, (5,)),
        ((2, 4, 5), (4, 5), (-1, -2), (2,)),
        ((2, 4, 5), (4, 5), 1, (2, 5)),
        ((2, 4, 5), (2, 1, 5), (0, 2), (4,)),
        ((4, 5), (4, 5), None, ()),
        ((5,), (5,), 0, ()),
        ((), (), -1, ()),
    ],
)
@every_kind
def test_rmse_other_axes_are_broadcast(left, right, axis, expected, dtype):
    x, x_hat = make(left, dtype), make(right, dtype, seed=5)
    shape = np.broadcast_shapes(left, right)
    whole = rmse(np.broadcast_to(x, shape).copy(), np.broadcast_to(x_hat, shape).copy(), axis=axis)
    result = rmse(x, x_hat, axis=axis)
    assert np.shape(result) == expected
    assert_same_bits(result, whole)
    assert_same_bits(rmse(x_hat, x, axis=axis), whole)
    kept = rmse(x, x_hat, axis=axis, keepdims=True)
    assert kept.ndim == max(len(left), len(right))
    assert_same_bits(kept.reshape(expected), whole)


@pytest.mark.parametrize(
    ("left", "right", "axis"),
    [
        ((100, 1), (100,), -1),
        ((100,), (100, 1), -1),
        ((4, 5), (4, 1), -1),
        ((4, 5), (4,), -1),
        ((4, 5), (5,), 0),
        ((4, 5), (1, 5), 0),
        ((4, 5), (5,), None),
        ((4, 5), (1, 5), None),
        ((4, 5), (5, 4), -1),
        ((4, 5), (3, 5), -1),
        ((1,), (2,), -1),
        ((4, 0), (4, 1), -1),
        ((2, 4, 5), (2, 3, 5), (0, 2)),
    ],
)
def test_rmse_shapes_that_do_not_pair_are_refused_with_both(left, right, axis):
    with pytest.raises(ValueError, match=r"^rmse: x and x_hat must .+, got ") as refusal:
        rmse(np.ones(left), np.ones(right), axis=axis)
    assert f"{left}" in str(refusal.value)
    assert f"{right}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("left", "right", "axis", "expected"),
    [
        ((0, 4), (4,), -1, (0,)),
        ((0, 4), (1, 4), -1, (0,)),
        ((0, 0), (0, 0), -1, (0,)),
        ((3, 0), (3, 0), 0, (0,)),
        ((1, 0), (3, 1), 0, None),
    ],
)
def test_rmse_empty_result_needs_no_coordinates(left, right, axis, expected):
    x, x_hat = np.ones(left, np.float16), np.ones(right, np.float32)
    if expected is None:
        with pytest.raises(ValueError, match=r"^rmse: "):
            rmse(x, x_hat, axis=axis)
    else:
        result = rmse(x, x_hat, axis=axis)
        assert (result.shape, result.dtype) == (expected, np.float32)


def test_rmse_of_sequences_and_numbers_is_taken_as_of_arrays():
    assert rmse([4, 25, 0.75, 11], [3, 21, -1.25, 13]) == 2.5
    assert rmse(3, -1) == 4
    assert isinstance(rmse(3, -1), np.float64)
    assert isinstance(rmse(np.float32([1, 2]), np.float32([2, 3])), np.float32)


def test_rmse_of_pandas_pairs_by_position():
    pandas = pytest.importorskip("pandas")
    x, x_hat = pandas.Series([1.0, 2.0], index=[0, 1]), pandas.Series([1.0, 4.0], index=[1, 0])
    assert rmse(x, x_hat) == np.sqrt(2.0)


@pytest.mark.parametrize("name", ["float64", "bfloat16", "float8_e4m3fn"])
def test_rmse_of_torch_tensors_has_bits_of_the_arrays(name):
    torch = pytest.importorskip("torch")
    x, x_hat = (make((6, 37), named(name), seed=seed) for seed in (0, 1))
    tensors = [torch.from_numpy(a.astype(np.float64)).to(getattr(torch, name)) for a in (x, x_hat)]
    assert_same_bits(rmse(*tensors), rmse(x, x_hat))
    assert_same_bits(rmse(tensors[0], x_hat), rmse(x, x_hat))


def test_rmse_out_is_filled_and_returned():
    x, x_hat = make((4, 5), np.float64), make((4, 5), np.float64, seed=1)
    out = np.zeros((4, 1))
    assert rmse(x, x_hat, keepdims=True, out=out) is out
    assert_same_bits(out[:, 0], rmse(x, x_hat))


@pytest.mark.parametrize("format", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_rmse_codes_with_format_give_bits_of_the_format(format):
    x, x_hat = make((6, 37), named(format)), make((6, 37), named(format), seed=1)
    codes = np.dtype(f"uint{8 * x.itemsize}")
    expected = rmse(x, x_hat)
    assert_same_bits(rmse(x.view(codes), x_hat.view(codes), format=format), expected)
    assert_same_bits(rmse(x, x_hat.view(f"V{x.itemsize}"), format=format), expected)


# Layouts, splits and threads --------------------------------------------------------------------


@every_layout
@every_kind
@pytest.mark.parametrize("axis", [-1, 0])
def test_rmse_any_layout_gives_same_bits(dtype, layout, axis):
    x, x_hat = make((6, 37), dtype), make((6, 37), dtype, seed=1)
    view, other = layout(x), layout(x_hat)
    expected = rmse(plain(view), plain(other), axis=axis)
    assert_same_bits(rmse(view, other, axis=axis), expected)
    assert_same_bits(rmse(view, plain(other), axis=axis), expected)
    assert_same_bits(rmse(plain(view), other, axis=axis), expected)
    assert_same_bits(rmse(other, view, axis=axis), expected)


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 2), None])
@pytest.mark.parametrize("dtype", [np.float64, np.complex64], ids=name_of)
def test_rmse_any_axis_gives_bits_of_rows(dtype, axis):
    x, x_hat = make((5, 6, 7), dtype), make((5, 6, 7), dtype, seed=1)
    reduced = {a % 3 for a in ((0, 1, 2) if axis is None else np.atleast_1d(axis).tolist())}
    kept = [k for k in range(3) if k not in reduced]
    rows = [
        a.transpose(kept + sorted(reduced)).reshape([a.shape[k] for k in kept] + [-1])
        for a in (x, x_hat)
    ]
    assert_same_bits(rmse(x, x_hat, axis=axis), rmse(*rows))


@every_kind
@pytest.mark.parametrize("shape", [(1, 8), (17, 5), (1025, 300), (16385, 9)])
def test_rmse_columns_give_bits_of_rows(dtype, shape):
    x, x_hat = make(shape, dtype), make(shape, dtype, seed=1)
    rows = rmse(np.ascontiguousarray(x.T), np.ascontiguousarray(x_hat.T))
    assert_same_bits(rmse(x, x_hat, axis=0), rows)
    assert_same_bits(rmse(x, np.asfortranarray(x_hat), axis=0), rows)


def test_rmse_columns_of_extreme_magnitudes_give_bits_of_rows():
    x, x_hat = np.random.default_rng(4).uniform(-1, 1, (2, 17000, 40))
    exponents = np.random.default_rng(5).integers(-1074, 1023, 40)
    x, x_hat = np.ldexp(x, exponents), np.ldexp(x_hat, exponents)
    x[:, 5], x[:, 20], x[:, 21], x_hat[9, 21] = 0.0, 5e-324, 1.797e308, -1.797e308
    x[9, 30], x_hat[16500, 31], x[4, 32:34] = np.nan, np.inf, [np.inf, np.nan]
    rows = rmse(np.ascontiguousarray(x.T), np.ascontiguousarray(x_hat.T))
    assert_same_bits(rmse(x, x_hat, axis=0), rows)


def test_rmse_columns_against_one_column_give_bits_of_rows():
    x, x_hat = make((3000, 30), np.float64), make((3000, 1), np.float64, seed=1)
    rows = rmse(np.ascontiguousarray(x.T), x_hat[:, 0])
    assert_same_bits(rmse(x, x_hat, axis=0), rows)


def test_rmse_row_by_row_gives_same_bits():
    x, x_hat = make((9, 20000), np.float64), make((9, 20000), np.float64, seed=1)
    rows = [rmse(a, b) for a, b in zip(x, x_hat, strict=True)]
    assert_same_bits(rmse(x, x_hat), np.array(rows))


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 200_003), -1), ((300, 1031), -1), ((1031, 300), 0)]
)
@pytest.mark.parametrize("dtype", [np.float64, BFLOAT16], ids=name_of)
def test_rmse_any_thread_count_gives_same_bits(dtype, shape, axis, monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1 << 20)
    x, x_hat = make(shape, dtype), make(shape, dtype, seed=1)
    serial = rmse(x, x_hat, axis=axis, threads=1)
    for threads in (2, None):
        assert_same_bits(rmse(x, x_hat, axis=axis, threads=threads), serial)


def test_rmse_leaves_its_inputs_unchanged():
    x, x_hat = make((5, 6), np.float64), make((6,), np.float64, seed=1)
    where, weights = x > -0.5, np.abs(x_hat)
    before = [a.tobytes() for a in (x, x_hat, where, weights)]
    rmse(x, x_hat, where=where, weights=weights, nan_policy="omit")
    assert [a.tobytes() for a in (x, x_hat, where, weights)] == before


# Kept points, weights and NaN -------------------------------------------------------------------


def keep(shape, seed=11):
    """About two thirds kept; of several rows the second none at all."""
    kept = np.random.default_rng(seed).random(shape) < 0.67
    kept[..., :1] = True
    if len(shape) > 1:
        kept[1] = False
    return kept


@every_masked
@pytest.mark.parametrize("length", [1, 37, 16385])
def test_rmse_where_counts_kept_pairs_only(dtype, length):
    x, x_hat = make((3, length), dtype), make((3, length), dtype, seed=1)
    where = keep((3, length))
    result = rmse(x, x_hat, where=where)
    assert np.isnan(result[1])
    for row in (0, 2):
        kept = where[row]
        assert_root(result[row], mean_square_error(x[row][kept], x_hat[row][kept]))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rmse_left_out_pairs_never_matter(value):
    x, x_hat = make((4, 1030), np.float64), make((4, 1030), np.float64, seed=1)
    where = keep((4, 1030))
    expected = rmse(x, x_hat, where=where)
    for a, b in [(np.where(where, x, value), x_hat), (x, np.where(where, x_hat, value))]:
        assert_same_bits(rmse(a, b, where=where), expected)
        assert_same_bits(rmse(a, b, where=where, nan_policy="raise"), expected)


@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("shape", [(), (7,), (6, 1), (6, 7)])
def test_rmse_where_is_broadcast(shape, axis):
    x, x_hat = make((6, 7), np.float64), make((6, 7), np.float64, seed=1)
    where = keep(shape) if shape else np.True_
    whole = np.broadcast_to(where, x.shape).copy()
    assert_same_bits(rmse(x, x_hat, axis=axis, where=where), rmse(x, x_hat, axis=axis, where=whole))


def test_rmse_mask_of_either_array_leaves_the_pair_out():
    x, x_hat = make((4, 37), np.float64), make((4, 37), np.float64, seed=1)
    first, second, third = (keep((4, 37), seed=seed) for seed in (1, 2, 3))
    masked, masked_hat = np.ma.array(x, mask=~first), np.ma.array(x_hat, mask=~second)
    assert_same_bits(rmse(masked, x_hat), rmse(x, x_hat, where=first))
    assert_same_bits(rmse(x, masked_hat), rmse(x, x_hat, where=second))
    assert_same_bits(rmse(masked, masked_hat), rmse(x, x_hat, where=first & second))
    every = rmse(x, x_hat, where=first & second & third)
    assert_same_bits(rmse(masked, masked_hat, where=third), every)


def test_rmse_mask_of_reference_row_leaves_its_coordinates_out():
    x = make((4, 37), np.float64)
    row, mask = make((37,), np.float64, seed=1), ~keep((37,))
    assert_same_bits(rmse(x, np.ma.array(row, mask=mask)), rmse(x, row, where=~mask))


@every_masked
@pytest.mark.parametrize("length", [1, 1025, 16385])
def test_rmse_weights_are_within_two_ulps_of_exact(dtype, length):
    x, x_hat = make((length,), dtype), make((length,), dtype, seed=1)
    weights = np.random.default_rng(3).integers(0, 9, length) + (np.arange(length) == 0)
    weights = weights * np.random.default_rng(4).uniform(0.1, 10, length)
    result = rmse(x, x_hat, weights=weights)
    assert ulp_error(result, mean_square_error(x, x_hat, weights)) <= 2


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_rmse_weights_of_any_magnitude_are_within_two_ulps_of_exact(scale):
    rng = np.random.default_rng(8)
    x, x_hat = rng.standard_normal((2, 50))
    weights = rng.integers(1, 9, 50) * scale
    result = rmse(x, x_hat, weights=weights)
    assert ulp_error(result, mean_square_error(x, x_hat, weights)) <= 2


def test_rmse_weights_of_close_pairs_are_within_two_ulps_of_exact():
    x = make((1000,), np.float64)
    x_hat = np.nextafter(x, 0)
    weights = np.random.default_rng(4).uniform(0.1, 10, 1000)
    assert ulp_error(rmse(x, x_hat, weights=weights), mean_square_error(x, x_hat, weights)) <= 2


def test_rmse_is_symmetric_to_the_bit_with_where_and_weights():
    x, x_hat = make((4, 1030), np.float64), make((4, 1030), np.float64, seed=1)
    options = {"where": keep((4, 1030)), "weights": np.abs(make((1030,), np.float64, seed=2))}
    assert_same_bits(rmse(x, x_hat, **options), rmse(x_hat, x, **options))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16, np.complex128], ids=name_of)
@pytest.mark.parametrize("axis", [-1, 0, None])
def test_rmse_omit_leaves_out_pairs_with_a_nan_in_either(dtype, axis):
    x, x_hat = make((5, 40), dtype), make((5, 40), dtype, seed=1)
    x[:, ::7], x_hat[:, 3::5], x[1] = np.nan, np.nan, np.nan
    wide = np.complex128 if np.dtype(dtype).kind == "c" else np.float64
    both = ~np.isnan(x.astype(wide)) & ~np.isnan(x_hat.astype(wide))
    result = rmse(x, x_hat, axis=axis, nan_policy="omit")
    assert_same_bits(result, rmse(x, x_hat, axis=axis, where=both))
    assert_same_bits(rmse(x_hat, x, axis=axis, nan_policy="omit"), result)
    if axis == -1:
        assert np.isnan(result[1])
        assert_root(result[0], mean_square_error(x[0][both[0]], x_hat[0][both[0]]))


def test_rmse_omit_keeps_nan_that_the_difference_makes():
    """inf - inf is no missing value."""
    np.testing.assert_equal(rmse([np.inf, 1.0], [np.inf, 2.0], nan_policy="omit"), np.nan)


def test_rmse_omit_of_mixed_dtypes_sees_nan_of_either():
    x, x_hat = np.arange(40), make((40,), np.float64, "nan")
    kept = ~np.isnan(x_hat)
    expected = mean_square_error(x[kept], x_hat[kept])
    assert_root(rmse(x, x_hat, nan_policy="omit"), expected)
    assert_root(rmse(x_hat, x, nan_policy="omit"), expected)


def test_rmse_omit_takes_nan_weights_as_missing():
    weights = np.array([np.nan, 0, 1, 2, 3, 4.0])
    x = np.array([10, 20, 30, 40, 50, np.nan])
    x_hat = np.array([12, 25, 29, 42, np.nan, 50.0])
    result = rmse(x_hat, x, weights=weights, nan_policy="omit")
    assert ulp_error(result, Fraction(3)) <= 2


def test_rmse_of_where_equals_rms_of_difference_where_it_is_exact():
    x, x_hat = np.arange(12.0).reshape(3, 4), np.arange(12.0)[::-1].reshape(3, 4)
    where = np.array([True, False, True, True])
    for value, row in zip(rmse(x, x_hat, where=where), x - x_hat, strict=True):
        assert_root(value, mean_square(row[where]))


# Worked values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "x_hat", "axis", "square"),
    [
        (np.uint8([0, 10, 255, 200]), np.uint8([16, 20, 0, 250]), -1, [67881 / 4]),
        (np.array([[1, 2], [3, 4]]), np.array([[2, 1], [0, 4]]), None, [11 / 4]),
        (np.array([[1, 2], [3, 4]]), np.array([[2, 1], [0, 4]]), 0, [5.0, 0.5]),
        (np.int32([46341, 0]), np.int32([0, 0]), -1, [46341**2 / 2]),
        (np.bool_([True, False, True]), np.bool_([True, True, False]), -1, [2 / 3]),
        (np.complex64([1, 1j]), np.complex64([0, 0]), -1, [1.0]),
    ],
    ids=["unsigned", "whole", "columns", "int32", "bool", "complex"],
)
def test_rmse_where_naive_code_fails_is_right(x, x_hat, axis, square):
    np.testing.assert_array_equal(np.atleast_1d(rmse(x, x_hat, axis=axis)), np.sqrt(square))


def test_rmse_of_a_batch_is_not_the_mean_of_its_parts():
    errors = np.array([3.0, 3.0, 3.0, 3.0, 0.0])
    assert rmse(errors, np.zeros(5)) == np.sqrt(7.2)
