"""`describe` and `compare` against NumPy in float64 and exact arithmetic."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import (
    fractions,
    mean,
    mean_square,
    mean_square_error,
    signed_square,
    ulp_error,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import CASES, COMPLEX, DTYPES, LAYOUTS, arrays, assert_same_bits, make, name_of

from rmsfast import _launch, compare, describe, reference, relative_rmse, rms, rmse
from rmsfast._partial import BLOCK

REAL = [dtype for dtype in DTYPES if dtype not in COMPLEX]
REAL_CASES = [(dtype, profile) for dtype, profile in CASES if dtype not in COMPLEX]
REAL_IDS = [f"{name_of(dtype)}-{profile}" for dtype, profile in REAL_CASES]
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
few = settings(max_examples=40, deadline=None, derandomize=True)
LENGTH = 2 * BLOCK + 1003  # three blocks, the last of them short


def deviation_square(x):
    """Variance with ddof 0."""
    return mean_square(x) - mean(x) ** 2


def product(x, x_hat):
    return sum(a * b for a, b in zip(fractions(x), fractions(x_hat), strict=True))


def cosine_square(x, x_hat):
    size = mean_square(x) * mean_square(x_hat) * np.size(x) ** 2
    return signed_square(product(x, x_hat)) / size


def rows_of_all_sorts(dtype):
    """Many rows: some zero, constant, far from 0, with an infinity, with NaN, of few values."""
    x = np.random.default_rng(4).standard_normal((43, 333)).astype(dtype)
    x[3], x[11], x[17], x[12] = 0, -3, x[17] + np.asarray(9, dtype), np.round(x[12].astype(float))
    x[20, 330], x[21, 7], x[40, 332] = np.inf, np.nan, 50
    return x


def same_as_alone(found, alone):
    """Whether the fields of rows are those of each alone."""
    for k, one in enumerate(alone):
        for name in found.names():
            assert_same_bits(getattr(found, name)[k], getattr(one, name))


def same_fields(actual, expected):
    for name in expected.names():
        assert_same_bits(getattr(actual, name), getattr(expected, name))


# Describe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "profile"), REAL_CASES, ids=REAL_IDS)
def test_describe_of_any_values_agrees_with_numpy(dtype, profile):
    x = make((6, 45), dtype, profile, seed=3)
    found, values = describe(x), x.astype(np.float64)
    np.testing.assert_array_equal(found.min, values.min(-1))
    np.testing.assert_array_equal(found.max, values.max(-1))
    np.testing.assert_array_equal(found.peak, np.abs(values).max(-1))
    np.testing.assert_array_equal(found.peak_index, np.abs(values).argmax(-1))
    np.testing.assert_array_equal(found.n_zero, (values == 0).sum(-1))
    np.testing.assert_array_equal(found.n_nan, np.isnan(values).sum(-1))
    np.testing.assert_array_equal(found.n_inf, np.isinf(values).sum(-1))
    np.testing.assert_array_equal(found.count, 45)
    assert_same_bits(found.rms, rms(x))


@pytest.mark.parametrize("profile", ["normal", "huge"])
@pytest.mark.parametrize("dtype", REAL, ids=name_of)
def test_describe_of_finite_values_has_exact_sums(dtype, profile):
    for row in make((3, 45), dtype, profile, seed=4):
        found, square = describe(row), mean_square(row)
        assert ulp_error(found.mean, signed_square(mean(row))) <= 4 + 2**-20
        assert ulp_error(found.std, deviation_square(row)) <= 4
        peak = max(map(abs, fractions(row)))
        assert ulp_error(found.crest, peak**2 / square) <= 4
        assert ulp_error(found.peak_share, (peak**2 / square / 45) ** 2) <= 4


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bfloat16"])
def test_describe_of_long_row_joins_blocks(dtype):
    x = (np.random.default_rng(0).normal(3, 50, (2, LENGTH))).astype(dtype)
    found = describe(x)
    for k in range(2):
        assert ulp_error(found.mean[k], signed_square(mean(x[k]))) <= 32
        assert ulp_error(found.std[k], deviation_square(x[k])) <= 32
    np.testing.assert_array_equal(found.peak_index, np.abs(x.astype(float)).argmax(-1))
    assert_same_bits(found.rms, rms(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [200, LENGTH])
def test_describe_of_small_spread_about_large_mean_does_not_cancel(dtype, length):
    x = (2.0**20 + np.random.default_rng(1).integers(-9, 9, length) / 8).astype(dtype)
    found = describe(x)
    assert ulp_error(found.mean, mean(x) ** 2) <= 1
    assert ulp_error(found.std, deviation_square(x)) <= 1000 if dtype == "float32" else 4


def test_describe_of_float64_spread_in_last_bits_does_not_cancel():
    x = 1.0 + np.random.default_rng(2).integers(0, 5, 3000) * 2.0**-52
    assert ulp_error(describe(x).std, deviation_square(x)) <= 4


@pytest.mark.parametrize("value", [0.1, -1e300, 5e-324, 3.0])
@pytest.mark.parametrize("length", [7, LENGTH])
def test_describe_of_constant_row_has_no_deviation(value, length):
    found = describe(np.full(length, value))
    assert (found.mean, found.std, found.min, found.max) == (value, 0.0, value, value)
    assert found.crest == pytest.approx(1, rel=1e-15)


@pytest.mark.parametrize("exponent", [-1060, -700, -480, 0, 480, 700, 1019])
@pytest.mark.parametrize("length", [5, BLOCK + 5])
def test_describe_of_any_magnitude_stays_in_range(exponent, length):
    x = np.ldexp(np.random.default_rng(3).uniform(-4, 8, length), exponent)
    found = describe(x)
    assert ulp_error(found.mean, signed_square(mean(x))) <= 2
    assert ulp_error(found.std, deviation_square(x)) <= 4
    peak = max(map(abs, fractions(x)))
    assert ulp_error(found.peak_share, (peak**2 / mean_square(x) / length) ** 2) <= 4


def test_describe_of_blocks_of_different_magnitude_joins_them():
    x = np.concatenate([np.full(BLOCK, 1e-200), np.full(BLOCK, 1e200), np.zeros(BLOCK)])
    found = describe(x)
    assert ulp_error(found.mean, mean(x) ** 2) <= 1
    assert ulp_error(found.std, deviation_square(x)) <= 4
    assert (found.peak, found.peak_index, found.n_zero) == (1e200, BLOCK, BLOCK)


@pytest.mark.parametrize("places", [[5, 9], [BLOCK - 1, BLOCK], [70, 2 * BLOCK + 1], [LENGTH - 1]])
def test_describe_of_equal_peaks_gives_the_first(places):
    x = np.zeros(LENGTH, np.float32)
    x[places] = [-3, 3][: len(places)]
    assert describe(x).peak_index == places[0]


def test_describe_of_zero_row_has_no_crest():
    found = describe(np.zeros((2, 9)))
    np.testing.assert_array_equal([found.crest, found.peak_share], np.nan)
    np.testing.assert_array_equal([found.mean, found.std, found.peak, found.peak_index], 0)


def test_describe_of_infinite_values_follows_numpy():
    found = describe([[1.0, np.inf], [np.inf, -np.inf], [np.inf, np.inf]])
    np.testing.assert_array_equal(found.mean, [np.inf, np.nan, np.inf])
    np.testing.assert_array_equal(found.std, np.nan)
    np.testing.assert_array_equal(found.crest, np.nan)
    np.testing.assert_array_equal(found.peak_index, [1, 0, 0])
    np.testing.assert_array_equal(found.n_inf, [1, 2, 2])


def test_describe_of_long_row_with_an_infinity_has_an_infinite_mean():
    x = np.ones(LENGTH)
    x[7] = -np.inf
    found = describe(x)
    assert (found.mean, found.min, found.peak_index) == (-np.inf, -np.inf, 7)
    assert np.isnan(found.std)


@pytest.mark.parametrize("length", [20, LENGTH])
def test_describe_with_nan_propagates_it(length):
    x = np.ones(length)
    x[[7, length - 3]] = np.nan
    x[9] = np.inf
    found = describe(x)
    for name in ("rms", "mean", "std", "min", "max", "peak", "peak_share", "crest"):
        assert np.isnan(getattr(found, name)), name
    assert (found.count, found.n_nan, found.n_inf, found.peak_index) == (length, 2, 1, 7)


def test_describe_omitting_nan_equals_describe_of_the_rest():
    x = make((1, 3000), np.float32, "nan", seed=1)[0]
    found, rest = describe(x, nan_policy="omit"), describe(x[~np.isnan(x)])
    assert found.mean == pytest.approx(rest.mean, rel=1e-13)
    assert found.std == pytest.approx(rest.std, rel=1e-13)
    assert (found.count, found.min, found.max) == (rest.count, rest.min, rest.max)
    assert found.n_nan == np.isnan(x).sum()
    assert x[found.peak_index] == rest.max or -x[found.peak_index] == -rest.min


def test_describe_refusing_nan_tells_how_many_rows():
    message = r"describe: x must hold no NaN under nan_policy='raise', got NaN in 1 of 2 rows"
    with pytest.raises(ValueError, match=message):
        describe([[1.0, np.nan], [1.0, 2.0]], nan_policy="raise")


def test_describe_of_what_where_leaves_out_is_blind():
    x, where = np.float32([[1, np.nan, -5, np.inf, 0]]), [True, False, True, False, False]
    found = describe(x, where=where)
    expected = {"count": 2, "mean": -2, "std": 3, "min": -5, "max": 1, "peak": 5, "peak_index": 2}
    expected |= {"n_nan": 0, "n_inf": 0, "n_zero": 0, "peak_share": 25 / 26}
    assert {name: getattr(found, name)[0] for name in expected} == expected


@pytest.mark.parametrize("nan_policy", ["propagate", "omit"])
def test_describe_of_row_without_values_is_nan(nan_policy):
    x = [[np.nan, np.nan], [1.0, 2.0]]
    found = describe(x, where=[[nan_policy == "omit"], [True]], nan_policy=nan_policy)
    assert (found.count[0], found.peak_index[0], found.n_zero[0]) == (0, -1, 0)
    for name in ("rms", "mean", "std", "min", "max", "peak", "peak_share", "crest"):
        assert np.isnan(getattr(found, name)[0]), name


def test_describe_of_masked_array_leaves_out_what_is_hidden():
    x = np.ma.masked_array([1.0, 2.0, 9.0], [False, False, True])
    found = describe(x)
    assert (found.count, found.max, found.mean) == (2, 2, 1.5)


@every_layout
@pytest.mark.parametrize("axis", [-1, 0, None, (0, 2)])
def test_describe_of_any_layout_has_the_same_bits(layout, axis):
    x = layout(make((40, 6, 70), np.float64, seed=5))
    same_fields(describe(x, axis=axis), describe(np.array(x, np.float64, order="C"), axis=axis))


def test_describe_of_an_infinity_in_a_later_block_has_infinite_mean():
    x = np.ones(LENGTH)
    x[BLOCK + 7] = -np.inf
    found = describe(x)
    assert (found.mean, found.peak_index) == (-np.inf, BLOCK + 7)


def test_describe_along_long_columns_has_the_bits_of_rows():
    x = make((BLOCK + 77, 37), np.float32, seed=6)
    x[100, 5], x[BLOCK + 8, 6] = 1e6, -1e6
    found = describe(x, axis=0)
    same_fields(found, describe(np.ascontiguousarray(x.T)))
    np.testing.assert_array_equal(found.peak_index[5:7], [100, BLOCK + 8])


@pytest.mark.parametrize("shape", [(600, 1024), (3, 400_000)])
def test_describe_of_any_threads_has_the_same_bits(shape):
    x = make(shape, np.float32, seed=7)
    same_fields(describe(x, threads=2), describe(x, threads=1))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_describe_of_many_rows_has_the_bits_of_each_alone(dtype):
    x = rows_of_all_sorts(dtype)
    same_as_alone(describe(x), map(describe, x))


def test_describe_of_many_rows_about_a_large_mean_does_not_cancel():
    x = np.random.default_rng(5).standard_normal((40, 100)).astype(np.float32) + np.float32(100)
    expected = [math.sqrt(deviation_square(row)) for row in x]
    np.testing.assert_allclose(describe(x).std, expected, rtol=1e-13)


def test_describe_of_codes_equals_describe_of_values():
    x = make((5, 9000), ml_dtypes.bfloat16, seed=8)
    same_fields(describe(x.view(np.uint16), format="bfloat16"), describe(x.astype(np.float32)))


def test_describe_of_vector_gives_scalars():
    found = describe([3, 4, 0, 0])
    assert {type(getattr(found, name)) for name in found.names()} == {np.float64, np.int64}
    assert (found.rms, found.peak_share, found.crest) == (2.5, 0.64, 1.6)


def test_describe_of_no_rows_is_empty():
    assert describe(np.empty((0, 5))).rms.shape == (0,)


def test_describe_of_empty_vector_is_refused():
    with pytest.raises(ValueError, match="describe: x must have a coordinate along axis"):
        describe(np.empty((3, 0)))


@few
@given(arrays(dtypes=REAL, max_side=4))
def test_describe_of_any_array_agrees_with_reference(x):
    found, expected = describe(x), reference.describe(x)
    for name in expected.names():
        a, b = np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        limit = np.nan_to_num(1e-13 * np.asarray(expected.peak), posinf=0.0)
        limit = limit + (2e-7 if name == "rms" else 1e-12) * np.nan_to_num(np.abs(b), posinf=0.0)
        with np.errstate(invalid="ignore"):
            close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= limit)
        assert close.all(), name


# Compare ----------------------------------------------------------------------------------------


def test_compare_of_known_pair_gives_every_number():
    found = compare([[3.0, 4.0, 0.0, 0.0]], [[3.0, 2.0, 0.0, 4.0]])
    expected = {"count": 4, "rmse": math.sqrt(5), "rms_x": 2.5, "rms_x_hat": math.sqrt(29) / 2}
    expected |= {"relative_rmse": math.sqrt(5) / 2.5, "sqnr_db": 10 * math.log10(25 / 20)}
    expected |= {"cosine": 17 / math.sqrt(25 * 29), "bias": 0.5, "max_abs_error": 4.0}
    expected |= {"max_error_index": 3, "n_equal": 2, "fitted_scale": 17 / 29}
    assert {k: v[0] for k, v in found.to_dict().items()} == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("dtype", REAL, ids=name_of)
@pytest.mark.parametrize("profile", ["normal", "huge"])
def test_compare_of_finite_values_has_exact_sums(dtype, profile):
    pair = [make((3, 45), dtype, profile, seed) for seed in (1, 2)]
    if profile == "huge" and dtype.kind not in "biu":  # so that their differences are finite
        pair = [(a / dtype.type(4)).astype(dtype) for a in pair]
    for x, x_hat in zip(*pair, strict=True):
        found, size = compare(x, x_hat), mean_square(x_hat) * 45
        error = mean_square_error(x, x_hat)
        assert ulp_error(found.rmse, error) <= 0.51
        assert ulp_error(found.relative_rmse, error / mean_square(x)) <= 1
        assert abs(Fraction(float(found.cosine)) ** 2 - abs(cosine_square(x, x_hat))) < 2**-42
        scale = product(x, x_hat) / size
        bound = math.sqrt(mean_square(x) / mean_square(x_hat)) * 2.0**-42
        assert abs(Fraction(float(found.fitted_scale)) - scale) <= bound
        exact_bias = mean(x_hat) - mean(x)
        assert abs(Fraction(float(found.bias)) - exact_bias) <= 2.0**-42 * Fraction(
            float(found.rmse)
        )
        decibels = 10 * math.log10(mean_square(x) / error)
        assert found.sqnr_db == pytest.approx(decibels, abs=1e-10)
        gaps = np.abs(np.float64(x) - np.float64(x_hat))
        assert (found.max_abs_error, found.max_error_index) == (gaps.max(), gaps.argmax())
        same = [a == b for a, b in zip(fractions(x), fractions(x_hat), strict=True)]
        assert found.n_equal == sum(same)


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float64", "float32"), ("int16",) * 2])
@pytest.mark.parametrize("axis", [-1, 0, None])
def test_compare_has_the_bits_of_the_single_functions(dtypes, axis):
    x, x_hat = (make((20, 200), dtype, seed=k) for k, dtype in enumerate(dtypes))
    found = compare(x, x_hat, axis=axis)
    assert_same_bits(found.rmse, rmse(x, x_hat, axis=axis))
    assert_same_bits(found.rms_x, rms(x, axis=axis))
    assert_same_bits(found.rms_x_hat, rms(x_hat, axis=axis))
    if dtypes[0] == dtypes[1]:
        assert_same_bits(
            found.relative_rmse, relative_rmse(x, x_hat, reference="x", zero="ieee", axis=axis)
        )


def test_compare_with_bfloat16_copy_gives_its_rounding_error():
    x = np.random.default_rng(4).standard_normal((4, 5000)).astype(np.float32)
    x_hat = x.astype(ml_dtypes.bfloat16)
    found = compare(x, x_hat)
    for k in range(4):
        a, b = x[k].astype(np.float64), x_hat[k].astype(np.float64)
        noise, signal = math.fsum((a - b) ** 2), math.fsum(a**2)
        assert found.relative_rmse[k] == pytest.approx(math.sqrt(noise / signal), rel=1e-7)
        assert found.sqnr_db[k] == pytest.approx(10 * math.log10(signal / noise), rel=1e-12)
    assert (found.relative_rmse < 2.0**-8).all()  # half a step of 8 bits, at worst
    assert (found.cosine > 1 - 2.0**-16).all()


def test_compare_of_equal_rows_is_without_noise():
    found = compare(np.float32([[1, -2, 3], [0, 0, 0]]), np.float32([[1, -2, 3], [0, 0, 0]]))
    np.testing.assert_array_equal(found.sqnr_db, np.inf)
    np.testing.assert_array_equal(found.relative_rmse, [0, np.nan])
    np.testing.assert_array_equal(found.cosine, [1, np.nan])
    np.testing.assert_array_equal(found.fitted_scale, [1, np.nan])
    np.testing.assert_array_equal(found.n_equal, 3)
    np.testing.assert_array_equal(found.max_error_index, 0)


def test_compare_with_zero_rows_is_ieee():
    found = compare([[0.0, 0.0], [1.0, 2.0]], [[1.0, 2.0], [0.0, 0.0]])
    np.testing.assert_array_equal(found.relative_rmse, [np.inf, 1])
    np.testing.assert_array_equal(found.sqnr_db, [-np.inf, 0])
    np.testing.assert_array_equal(found.cosine, np.nan)
    np.testing.assert_array_equal(found.fitted_scale, [0, np.nan])


@pytest.mark.parametrize(("p", "q"), [(-700, -700), (700, 700), (900, -900), (-1050, 1000)])
@pytest.mark.parametrize("length", [5, BLOCK + 5])
def test_compare_of_any_magnitude_stays_in_range(p, q, length):
    rng = np.random.default_rng(5)
    x, x_hat = (np.ldexp(rng.uniform(-4, 8, length), e) for e in (p, q))
    found = compare(x, x_hat)
    assert abs(Fraction(float(found.cosine)) ** 2 - abs(cosine_square(x, x_hat))) < 2**-48
    assert (
        abs(Fraction(float(found.bias)) - (mean(x_hat) - mean(x)))
        <= abs(mean(x_hat) - mean(x)) / 2**50
    )
    assert_same_bits(found.rms_x, rms(x))
    assert_same_bits(found.rms_x_hat, rms(x_hat))


def test_compare_of_differences_beyond_the_range_keeps_the_bias():
    found = compare([1e308, -1e308], [-1e308, 1e307])
    assert (found.max_abs_error, found.max_error_index) == (np.inf, 0)
    assert found.bias == pytest.approx(-4.5e307, rel=1e-15)
    assert found.cosine == pytest.approx(-1.1 / math.sqrt(2 * 1.01), rel=1e-14)


def test_compare_of_unsigned_integers_does_not_wrap():
    found = compare(np.uint8([0, 16]), np.uint8([16, 0]))
    assert (found.rmse, found.bias, found.max_abs_error) == (16, 0, 16)


def test_compare_of_large_integers_tells_unequal_from_equal():
    x = np.array([2**60, 2**60, -(2**62)])
    found = compare(x, x + np.array([1, 0, 0]))
    assert (found.n_equal, found.max_abs_error, found.max_error_index) == (2, 1, 0)
    assert found.bias == pytest.approx(1 / 3, rel=1e-15)


@pytest.mark.parametrize("places", [[5, 9], [BLOCK - 1, BLOCK], [70, 2 * BLOCK + 1], [LENGTH - 1]])
def test_compare_of_equal_errors_gives_the_first(places):
    x = np.ones(LENGTH, np.float32)
    x_hat = x.copy()
    x_hat[places] += [-3, 3][: len(places)]
    found = compare(x, x_hat)
    assert (found.max_error_index, found.n_equal) == (places[0], LENGTH - len(places))


def test_compare_with_nan_propagates_it():
    found = compare([1.0, np.nan, 3.0, np.inf], [1.0, 2.0, np.nan, np.inf])
    for name in ("rmse", "relative_rmse", "sqnr_db", "cosine", "bias", "max_abs_error"):
        assert np.isnan(getattr(found, name)), name
    assert (found.count, found.max_error_index, found.n_equal) == (4, 1, 2)


def test_compare_omitting_nan_leaves_out_pairs():
    found = compare([1.0, np.nan, 3.0], [2.0, 2.0, np.nan], nan_policy="omit")
    assert (found.count, found.rmse, found.rms_x, found.rms_x_hat, found.bias) == (1, 1, 1, 2, 1)


def test_compare_refusing_nan_names_both():
    message = "compare: x and x_hat must hold no NaN under nan_policy='raise', got NaN in 1 of 1"
    with pytest.raises(ValueError, match=message):
        compare([1.0, 2.0], [np.nan, 2.0], nan_policy="raise")


def test_compare_of_row_without_pairs_is_nan():
    found = compare([[1.0, 2.0]], [[1.0, 3.0]], where=False * np.ones((1, 2), bool))
    assert (found.count[0], found.max_error_index[0], found.n_equal[0]) == (0, -1, 0)
    for name in ("rmse", "rms_x", "relative_rmse", "sqnr_db", "cosine", "bias", "fitted_scale"):
        assert np.isnan(getattr(found, name)[0]), name


@every_layout
def test_compare_of_any_layout_has_the_same_bits(layout):
    x, x_hat = (layout(make((40, 6, 70), np.float32, seed=k)) for k in (1, 2))
    expected = compare(*(np.array(a, np.float32, order="C") for a in (x, x_hat)), axis=(0, 2))
    same_fields(compare(x, x_hat, axis=(0, 2)), expected)


@pytest.mark.parametrize("shape", [(600, 1024), (3, 400_000)])
def test_compare_of_any_threads_has_the_same_bits(shape):
    x, x_hat = (make(shape, np.float32, seed=k) for k in (1, 2))
    same_fields(compare(x, x_hat, threads=2), compare(x, x_hat, threads=1))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_compare_of_many_rows_has_the_bits_of_each_alone(dtype):
    x = rows_of_all_sorts(dtype)
    y = np.roll(x, 5, axis=0)
    y[30] = x[30]
    same_as_alone(compare(x, y), map(compare, x, y))


def test_compare_of_errors_alike_in_float32_gives_the_larger():
    x, y = np.ones(200, np.float32), np.ones(200, np.float32)
    y[[10, 100]] = 2.0**-30, 0.0
    assert compare(x, y).max_error_index == 100


def test_compare_of_one_row_with_many_pairs_it_with_each():
    x, x_hat = make((4, 6), np.float64, seed=1), make((6,), np.float64, seed=2)
    same_fields(compare(x, x_hat), compare(x, np.tile(x_hat, (4, 1))))
    with pytest.raises(ValueError, match="compare: x and x_hat must have equal lengths"):
        compare(np.ones((6, 1)), np.ones(6))


@few
@given(arrays(dtypes=[np.dtype("f4"), np.dtype("f8")], max_side=4), st.integers(0, 9))
def test_compare_of_any_array_agrees_with_reference(x, seed):
    x_hat = np.where(np.random.default_rng(seed).random(x.shape) < 0.5, x, make(x.shape, "f4"))
    found, expected = compare(x, x_hat), reference.compare(x, x_hat)
    scale = np.nan_to_num(np.asarray(expected.rms_x / np.float64(1)), posinf=0.0).max(initial=0)
    for name in expected.names():
        a, b = np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        loose = {"cosine": 1e-12, "sqnr_db": 1e-10, "bias": 1e-12 * scale}.get(name, 0.0)
        finite = np.isfinite(a) & np.isfinite(b)
        if name != "fitted_scale":
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            np.testing.assert_allclose(a[finite], b[finite], rtol=2e-7, atol=loose)


# Without Numba ----------------------------------------------------------------------------------


def test_summaries_without_numba_are_those_of_the_reference(monkeypatch):
    x, x_hat = make((3, 8), np.float64, seed=1), make((3, 8), np.float64, seed=2)
    compiled = describe(x), compare(x, x_hat)
    monkeypatch.setattr(_launch, "kernels", lambda: None)
    found = describe(x, threads=1), compare(x, x_hat, threads=1)  # by no plan that is kept
    same_fields(found[0], reference.describe(x))
    same_fields(found[1], reference.compare(x, x_hat))
    for table, plain in zip(compiled, found, strict=True):
        for name, pooled in plain.pooled().to_dict().items():
            assert getattr(table.pooled(), name) == pytest.approx(pooled, rel=1e-13), name


def test_describe_of_integers_that_float64_takes_for_one_has_their_deviation():
    x = np.array([2**62 + 1, 2**62 + 7, 2**62 + 4])
    assert describe(x).std == pytest.approx(6**0.5, rel=1e-15)
    assert describe(x[[0, 0, 0]]).std == 0
