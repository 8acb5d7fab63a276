"""`describe` and `compare` of complex numbers, against NumPy and exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from exact import (
    fractions,
    mean,
    mean_square,
    mean_square_error,
    rounded_root,
    signed_square,
    ulp_error,
)
from test_summaries import same_fields
from zoo import assert_same_bits, make

from rmsfast import compare, describe, reference, relative_rmse, rms, rmse
from rmsfast._partial import BLOCK

LENGTH = BLOCK + 1003  # complex numbers: three blocks of stored ones
C16 = np.complex128


def both_parts(*arrays):
    """The exact values of real and imaginary parts, one after the other."""
    return [np.concatenate([a.real, a.imag]) for a in arrays]


def product(x, x_hat):
    pairs = zip(*map(fractions, both_parts(x, x_hat)), strict=True)
    return sum(a * b for a, b in pairs)


# describe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["normal", "nan", "inf", "zeros", "subnormal"])
def test_describe_of_complex_values_agrees_with_numpy(profile):
    z = make((6, 45), C16, profile, seed=3)
    z[:, ::4] = 2.0**-1060 * (1 + 1j)
    found, sizes = describe(z), np.abs(z)
    np.testing.assert_array_equal(found.count, 45)
    np.testing.assert_array_equal(found.peak_index, sizes.argmax(-1))
    np.testing.assert_array_equal(found.n_nan, np.isnan(z).sum(-1))
    np.testing.assert_array_equal(found.n_inf, np.isinf(z).sum(-1))
    np.testing.assert_array_equal(found.n_zero, (z == 0).sum(-1))
    np.testing.assert_allclose(found.peak, sizes.max(-1), rtol=2**-52, atol=5e-324)
    np.testing.assert_array_equal([found.min, found.max], np.nan)
    assert_same_bits(found.rms, rms(z))


@pytest.mark.parametrize("length", [45, LENGTH])
def test_describe_of_complex_values_has_exact_sums(length):
    z = make((1, length), C16, seed=4)[0] * 3 + (0.5 - 7j)
    found = describe(z)
    assert found.mean.dtype == C16
    variance = mean_square(z) - mean(z.real) ** 2 - mean(z.imag) ** 2
    assert ulp_error(found.mean.real, signed_square(mean(z.real))) <= 1
    assert ulp_error(found.mean.imag, signed_square(mean(z.imag))) <= 1
    assert ulp_error(found.std, variance) <= 4
    peak = max(a * a + b * b for a, b in zip(fractions(z.real), fractions(z.imag), strict=True))
    assert ulp_error(found.peak, peak) <= 0.51
    assert ulp_error(found.crest, peak / mean_square(z)) <= 4
    assert ulp_error(found.peak_share, (peak / mean_square(z) / length) ** 2) <= 8


@pytest.mark.parametrize("exponent", [-1060, -480, 480, 1017])
def test_describe_of_complex_values_of_any_magnitude_stays_in_range(exponent):
    rng = np.random.default_rng(5)
    z = np.empty(2000, C16)
    z.real, z.imag = (np.ldexp(rng.uniform(-4, 8, z.size), exponent) for _ in range(2))
    found = describe(z)
    variance = mean_square(z) - mean(z.real) ** 2 - mean(z.imag) ** 2
    assert ulp_error(found.mean.real, signed_square(mean(z.real))) <= 2
    assert ulp_error(found.mean.imag, signed_square(mean(z.imag))) <= 2
    assert ulp_error(found.std, variance) <= 4


def test_describe_of_constant_complex_row_has_no_deviation():
    found = describe(np.full((2, 3000), 0.1 - 0.3j))
    np.testing.assert_array_equal(found.mean, 0.1 - 0.3j)
    np.testing.assert_array_equal(found.std, 0.0)


def test_describe_of_complex_values_of_one_size_has_the_first_that_is_rounded_up():
    z = np.exp(1j * np.random.default_rng(2).uniform(0, 7, 1500)) * 1.3
    squares = [a * a + b * b for a, b in zip(fractions(z.real), fractions(z.imag), strict=True)]
    sizes = [rounded_root(square) for square in squares]
    found = describe(z)
    assert (found.peak, found.peak_index) == (max(sizes), sizes.index(max(sizes)))


def test_describe_of_single_complex_values_has_shares_of_one_at_most():
    z = make((300, 1), C16, seed=1)
    for found in (describe(z), reference.describe(z), describe(z[0]).pooled()):
        assert np.max(found.peak_share) <= 1
        np.testing.assert_allclose(found.peak_share, 1, rtol=2**-51)


def test_describe_of_complex_spread_in_last_bits_does_not_cancel():
    z = np.empty(3000, C16)
    steps = np.random.default_rng(2).integers(0, 5, (2, 3000)) * 2.0**-52
    z.real, z.imag = 1.0 + steps
    variance = mean_square(z) - mean(z.real) ** 2 - mean(z.imag) ** 2
    assert ulp_error(describe(z).std, variance) <= 4


def test_describe_of_complex_row_with_nan_or_inf_follows_numpy():
    found = describe([[1 + 1j, complex(np.nan, 2), 3j], [1 + 1j, complex(2, -np.inf), 3j]])
    np.testing.assert_array_equal(found.peak_index, [1, 1])
    np.testing.assert_array_equal(found.peak, [np.nan, np.inf])
    np.testing.assert_array_equal(found.mean.real, [np.nan, 1.0])
    np.testing.assert_array_equal(found.mean.imag, [np.nan, -np.inf])
    np.testing.assert_array_equal([found.std, found.crest, found.peak_share], np.nan)


def test_describe_of_equal_complex_sizes_gives_the_first():
    z = np.zeros(LENGTH, C16)
    z[[700, 9000]], z[[701, 9001]] = 5.0, [3 + 4j, 4j - 3]
    assert describe(z).peak_index == 700


def test_describe_of_complex_sizes_an_ulp_apart_gives_the_first_of_the_largest():
    angles = np.random.default_rng(4).uniform(0, 2 * np.pi, 3000)
    z = np.cos(angles) + 1j * np.sin(angles)
    squares = [a * a + b * b for a, b in zip(fractions(z.real), fractions(z.imag), strict=True)]
    sizes = [math.isqrt(s.numerator * 4**200 // s.denominator) / 2**200 for s in squares]
    found = describe(z)
    assert (found.peak, found.peak_index) == (max(sizes), sizes.index(max(sizes)))


def test_describe_of_long_complex_row_has_the_same_bits_on_all_threads():
    z = make((1, 10 * LENGTH), C16, seed=6)[0]
    z[7 * LENGTH] = 99j
    found = describe(z)
    same_fields(found, describe(z, threads=1))
    assert (found.peak_index, found.count) == (7 * LENGTH, z.size)
    assert found.mean == pytest.approx(z.mean(), rel=1e-12)
    assert found.std == pytest.approx(z.std(), rel=1e-12)


def test_describe_of_complex_values_beside_a_far_one_keeps_their_sums():
    z = make((1, 3000), C16, seed=6)[0]
    z[[1500, 1501]] = [2.0**600, -(2.0**600)]
    found = describe(z)
    assert found.mean == pytest.approx(np.delete(z, [1500, 1501]).sum() / z.size, rel=1e-12)
    assert (found.peak, found.peak_index) == (2.0**600, 1500)


def test_describe_of_complex_zeros_has_no_crest():
    found = describe(np.zeros((2, 9), C16))
    np.testing.assert_array_equal([found.crest, found.peak_share], np.nan)
    np.testing.assert_array_equal([found.mean, found.std, found.peak, found.peak_index], 0)


def test_describe_of_complex_values_omits_what_is_nan_in_a_part():
    z = make((3, 60), C16, seed=1)
    z.real[0, 5], z.imag[0, 9], z.imag[1, :] = np.nan, np.nan, np.nan
    where = np.random.default_rng(0).random(60) < 0.7
    where[[5, 9]], where[20] = True, False
    found = describe(z, where=where, nan_policy="omit")
    np.testing.assert_array_equal(found.n_nan, [2, where.sum(), 0])
    np.testing.assert_array_equal(found.count, [where.sum() - 2, 0, where.sum()])
    assert (found.peak_index[1], np.isnan(found.mean[1])) == (-1, True)
    for row in (0, 2):
        kept = where & ~np.isnan(z[row])
        assert found.mean[row] == pytest.approx(z[row, kept].mean(), rel=1e-13)
        assert found.std[row] == pytest.approx(z[row, kept].std(), rel=1e-13)
        assert found.peak_index[row] == np.where(kept, np.abs(z[row]), -1).argmax()
    assert_same_bits(found.rms, rms(z, where=where, nan_policy="omit"))


def test_describe_of_complex_axes_and_layouts_have_the_same_bits():
    z = make((40, 6, 70), C16, seed=5)
    for axis in (0, (0, 2), None):
        expected = describe(z, axis=axis)
        same_fields(describe(np.asfortranarray(z), axis=axis), expected)
        same_fields(describe(z.astype(">c16"), axis=axis), expected)
    assert expected.peak_index == np.abs(z).argmax()


def test_describe_of_complex64_has_the_bits_and_dtypes_of_rms():
    z = make((5, 20_000), np.complex64, seed=8)
    found = describe(z)
    assert_same_bits(found.rms, rms(z))
    assert [v.dtype for v in (found.rms, found.mean, found.std)] == ["f4", "c16", "f8"]
    np.testing.assert_allclose(found.mean, z.astype(C16).mean(-1), rtol=1e-12)


def test_tables_of_complex_rows_pool_and_print_them():
    z = make((50, 30), C16, seed=9) * np.geomspace(1, 100, 50)[:, np.newaxis]
    found, whole = describe(z), describe(z, axis=None)
    for name, value in found.pooled().to_dict().items():
        assert value == pytest.approx(getattr(whole, name), rel=1e-12, nan_ok=True), name
    assert found.worst(1, by="mean")["row"] == np.abs(found.mean).argmax()
    assert found.summary()["mean"]["max"] == np.abs(found.mean).max()
    assert "j" in str(found)


# compare ----------------------------------------------------------------------------------------


def test_compare_of_known_complex_pair_gives_every_number():
    found = compare([[3.0, 4.0j, 0.0, 0.0]], [[3.0, 2.0j, 0.0, 4.0]])
    expected = {"count": 4, "rmse": math.sqrt(5), "rms_x": 2.5, "rms_x_hat": math.sqrt(29) / 2}
    expected |= {"relative_rmse": math.sqrt(5) / 2.5, "sqnr_db": 10 * math.log10(25 / 20)}
    expected |= {"cosine": 17 / math.sqrt(25 * 29), "bias": 1 - 0.5j, "max_abs_error": 4.0}
    expected |= {"max_error_index": 3, "n_equal": 2, "fitted_scale": 17 / 29}
    assert {k: v[0] for k, v in found.to_dict().items()} == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("real", [False, True], ids=["complex", "real"])
@pytest.mark.parametrize("length", [45, LENGTH])
def test_compare_of_complex_values_has_exact_sums(length, real):
    x, x_hat = (make((1, length), C16, seed=k)[0] for k in (1, 2))
    x_hat = x_hat.real if real else x_hat
    found, other = compare(x, x_hat), x_hat.astype(C16)
    error, size = mean_square_error(x, x_hat), mean_square(other) * length
    assert_same_bits(found.rmse, rmse(x, x_hat))
    assert_same_bits(found.rms_x, rms(x))
    assert ulp_error(found.rms_x_hat, mean_square(x_hat)) <= 0.51
    relative = relative_rmse(x, x_hat, reference="x", zero="ieee")
    assert found.relative_rmse == pytest.approx(relative, rel=2**-52)
    assert found.sqnr_db == pytest.approx(10 * math.log10(mean_square(x) / error), abs=1e-11)
    cosine = signed_square(product(x, other)) / (mean_square(x) * length * size)
    assert ulp_error(found.cosine, cosine) <= 8
    assert ulp_error(found.fitted_scale, signed_square(product(x, other) / size)) <= 8
    for bias, a, b in zip(*([v.real, v.imag] for v in (found.bias, x, other)), strict=True):
        assert abs(Fraction(float(bias)) - (mean(b) - mean(a))) <= 2.0**-50 * float(found.rmse)
    gaps = np.abs(x - x_hat)
    assert found.max_abs_error == pytest.approx(gaps.max(), rel=2**-51)
    assert (found.max_error_index, found.n_equal) == (gaps.argmax(), 0)


@pytest.mark.parametrize(("p", "q"), [(-700, -700), (700, 700), (900, -900), (-1050, 1000)])
def test_compare_of_complex_values_of_any_magnitude_stays_in_range(p, q):
    rng = np.random.default_rng(5)
    x, x_hat = (rng.uniform(-4, 8, (2, 900)) for _ in range(2))
    x, x_hat = (np.ldexp(v[0], e) + 1j * np.ldexp(v[1], e) for v, e in ((x, p), (x_hat, q)))
    found = compare(x, x_hat)
    cosine = product(x, x_hat) ** 2 / (mean_square(x) * mean_square(x_hat) * x.size**2)
    assert abs(Fraction(float(found.cosine)) ** 2 - cosine) < 2**-48
    exact = mean(x_hat.imag) - mean(x.imag)
    assert abs(Fraction(float(found.bias.imag)) - exact) <= abs(exact) / 2**50


def test_compare_of_complex_differences_beyond_the_range_keeps_the_bias():
    found = compare([1e308 + 0j, -1e308j], [-1e308 + 0j, 1e307j])
    assert (found.max_abs_error, found.max_error_index) == (np.inf, 0)
    assert found.bias == pytest.approx(-1e308 + 5.5e307j, rel=1e-15)


def test_compare_of_complex_values_finds_errors_whose_squares_are_subnormal():
    errors = np.array([0, 1.2 + 1.2j, 1.23 + 1j, 0]) * 2.0**-537
    found = compare(np.array([1.0, 0, 0, 0]) + errors, [1.0, 0, 0, 0])
    assert (found.max_abs_error, found.max_error_index) == (abs(errors[1]), 1)


def test_compare_of_equal_complex_values_is_without_noise():
    z = [[1 + 2j, -3j, complex(np.inf, 0)][:2], [0, 0]]
    found = compare(z, np.array(z))
    np.testing.assert_array_equal(found.sqnr_db, np.inf)
    np.testing.assert_array_equal(found.n_equal, 2)
    np.testing.assert_array_equal(found.cosine, [1, np.nan])
    assert compare([complex(np.inf, 1), 2.0], [complex(np.inf, 1), 2.0]).n_equal == 2


def test_compare_tells_a_rotated_phase():
    z = make((1, 500), C16, seed=6)[0]
    assert compare(z, 1j * z).cosine == pytest.approx(0, abs=1e-15)
    assert compare(z, -2 * z).fitted_scale == -0.5


def test_compare_of_complex_values_omits_pairs_with_nan_in_a_part():
    x, x_hat = (make((2, 50), C16, seed=k) for k in (1, 2))
    x.imag[0, 3], x_hat.real[0, 7] = np.nan, np.nan
    found, kept = compare(x, x_hat, nan_policy="omit"), np.delete(np.arange(50), [3, 7])
    rest = compare(x[0, kept], x_hat[0, kept])
    for name in rest.names():
        if name != "max_error_index":
            assert getattr(found, name)[0] == pytest.approx(getattr(rest, name), rel=1e-13), name
    assert found.max_error_index[0] == kept[rest.max_error_index]
    plain = compare(x, x_hat)
    assert (plain.max_error_index[0], np.isnan(plain.bias[0])) == (3, True)
    with pytest.raises(ValueError, match="compare: x and x_hat must hold no NaN under nan_policy="):
        compare(x, x_hat, nan_policy="raise")


# reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["normal", "nan", "inf", "zeros"])
def test_reference_of_complex_values_agrees(profile):
    x, x_hat = (make((4, 30), C16, profile, seed=k) for k in (1, 5))
    x_hat[:, 3] = x[:, 3]
    for found, expected in (
        (describe(x), reference.describe(x)),
        (compare(x, x_hat), reference.compare(x, x_hat)),
    ):
        for name in expected.names():
            a, b = getattr(found, name), getattr(expected, name)
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15, err_msg=name)
