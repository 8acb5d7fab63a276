"""`relative_rmse` against exact arithmetic: named references, zero references, range."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import mean, mean_square, mean_square_error, relative_square_error, ulp_error
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import LAYOUTS, assert_same_bits, contents, make, name_of, plain

from rmsfast import _launch, _sums, relative_rmse, rms, rmse

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
KINDS = [np.dtype(n) for n in ("float64", "float32", "int16", "uint64")] + [BFLOAT16]
EXACT = ("x", "x_hat", "range", "max")  # references promised to an ulp
NAMES = (*EXACT, "mean", "std")

every_name = pytest.mark.parametrize("reference", NAMES)
every_exact = pytest.mark.parametrize("reference", EXACT)
every_kind = pytest.mark.parametrize("dtype", KINDS, ids=name_of)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def pair(shape, dtype=np.float64, seed=0):
    """Two arrays apart from each other and from zero."""
    return make(shape, dtype, seed=seed), make(shape, dtype, seed=seed + 100)


def keep(shape, seed=11):
    """About two thirds kept; of several rows the second none at all."""
    kept = np.random.default_rng(seed).random(shape) < 0.67
    kept[..., :2] = True
    if len(shape) > 1:
        kept[1] = False
    return kept


def weighing(shape, seed=13):
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 5, shape) * rng.uniform(0.5, 20, shape)
    weights[..., :2] = 1
    return weights


# Accuracy ---------------------------------------------------------------------------------------


@every_exact
@every_kind
@pytest.mark.parametrize("length", [2, 3, 9, 17, 1025, 16385, 40000])
def test_relative_rmse_is_within_an_ulp_of_exact(dtype, reference, length):
    x, x_hat = pair((length,), dtype, seed=length)
    result = relative_rmse(x, x_hat, reference=reference)
    assert result.dtype == rmse(x, x_hat).dtype
    assert ulp_error(result, relative_square_error(x, x_hat, reference)) <= 1


@every_exact
@pytest.mark.parametrize(
    "exponents", [(-1074, -1022), (-600, -400), (-300, 300), (500, 1022), (1000, 1022)], ids=str
)
def test_relative_rmse_of_any_magnitude_is_within_an_ulp_of_exact(reference, exponents):
    rng = np.random.default_rng(2)
    x, x_hat = np.ldexp(rng.uniform(-1, 1, (2, 10, 50)), rng.integers(*exponents, (2, 10, 50)))
    results = relative_rmse(x, x_hat, reference=reference)
    for result, a, b in zip(results, x, x_hat, strict=True):
        assert ulp_error(result, relative_square_error(a, b, reference)) <= 1


@every_exact
def test_relative_rmse_of_close_pairs_is_within_an_ulp_of_exact(reference):
    x = np.random.default_rng(3).standard_normal((20, 33))
    x_hat = np.nextafter(x, 0)
    results = relative_rmse(x, x_hat, reference=reference)
    for result, a, b in zip(results, x, x_hat, strict=True):
        assert ulp_error(result, relative_square_error(a, b, reference)) <= 1


@every_exact
def test_relative_rmse_of_integers_beyond_float64_is_within_an_ulp_of_exact(reference):
    x = [10193784536274387971, 3373967109564994710, 6507713470880542431]
    x = np.array(x, np.uint64)
    x_hat = np.roll(x, 1)
    result = relative_rmse(x, x_hat, reference=reference)
    assert ulp_error(result, relative_square_error(x, x_hat, reference)) <= 1


@pytest.mark.parametrize("reference", ["x", "x_hat", "max"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_relative_rmse_of_complex_is_within_an_ulp_of_exact(reference, dtype):
    x, x_hat = pair((37,), dtype)
    error = mean_square_error(x, x_hat)
    if reference == "max":
        size = max(mean_square(value) for value in x)
    else:
        size = mean_square(x if reference == "x" else x_hat)
    assert ulp_error(relative_rmse(x, x_hat, reference=reference), error / size) <= 1


@pytest.mark.parametrize("length", [3, 40, 20000])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_relative_rmse_over_mean_of_complex_follows_its_formula(length, scale):
    x, x_hat = (scale * (a + 1) for a in pair((length,), np.complex128))
    square = mean_square_error(x, x_hat) / (mean(x.real) ** 2 + mean(x.imag) ** 2)
    assert ulp_error(relative_rmse(x, x_hat, reference="mean"), square) <= 2


@pytest.mark.parametrize("length", [3, 40, 20000])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_relative_rmse_over_std_of_complex_follows_its_formula(length, scale):
    x, x_hat = (scale * a for a in pair((length,), np.complex128))
    variance = mean_square(x) - mean(x.real) ** 2 - mean(x.imag) ** 2
    square = mean_square_error(x, x_hat) / variance
    assert ulp_error(relative_rmse(x, x_hat, reference="std"), square) <= 2


@pytest.mark.parametrize("largest", [1.7e308 * (1 + 1j), 5e-324 * (2 + 1j)])
def test_relative_rmse_over_max_of_complex_at_the_ends_of_the_range_is_exact(largest):
    x = np.array([largest, 0.5 * largest.real, 0])
    square = mean_square(x) / mean_square(x[:1])
    assert ulp_error(relative_rmse(x, 0, reference="max"), square) <= 1


@pytest.mark.parametrize(  # not all combinations: each compiles kernels of its own
    ("reference", "nan_policy", "length"),
    [
        ("x", "propagate", 20000),
        ("x_hat", "omit", 40),
        ("mean", "omit", 20000),
        ("std", "propagate", 40),
        ("max", "omit", 40),
    ],
)
def test_relative_rmse_of_real_beside_complex_takes_no_imaginary_part(
    reference, nan_policy, length
):
    x, z = make((3, length), np.float64), make((3, length), np.complex128)
    x[1, 3], z[2, 4] = np.nan, complex(1, np.nan)
    wide = x.astype(np.complex128)
    options = {"reference": reference, "nan_policy": nan_policy, "zero": "ieee"}
    np.testing.assert_array_max_ulp(
        relative_rmse(x, z, **options), relative_rmse(wide, z, **options), 1
    )
    np.testing.assert_array_max_ulp(
        relative_rmse(z, x, **options), relative_rmse(z, wide, **options), 1
    )


@pytest.mark.parametrize("number", [3, 2.5, 1e-300, 5e-324, 1e300, np.float32(0.1)])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_relative_rmse_over_a_number_is_within_an_ulp_of_exact(number, scale):
    x, x_hat = (scale * a for a in pair((37,)))
    square = relative_square_error(x, x_hat, Fraction(float(number)))
    result = relative_rmse(x, x_hat, reference=number)
    if square > Fraction(np.finfo(np.float64).max.item()) ** 2:
        assert result == np.inf
    else:
        assert ulp_error(result, square) <= 1


def test_relative_rmse_over_an_array_is_within_an_ulp_of_exact():
    x, x_hat = pair((4, 37))
    sizes = np.array([0.1, 3.0, 1e200, 1e-200])
    results = relative_rmse(x, x_hat, reference=sizes)
    for result, a, b, size in zip(results, x, x_hat, sizes.tolist(), strict=True):
        assert ulp_error(result, relative_square_error(a, b, Fraction(size))) <= 1


@every_kind
@pytest.mark.parametrize("reference", ["mean", "std"])
def test_relative_rmse_over_mean_and_std_is_close_to_exact(dtype, reference):
    """A mean may cancel: the bound is for rows whose mean and spread are of one size."""
    x, x_hat = pair((1000,), dtype)
    if dtype.kind == "f" or dtype == BFLOAT16:
        x = (x.astype(np.float64) + 2).astype(dtype)
    square = relative_square_error(x, x_hat, reference)
    result = relative_rmse(x, x_hat, reference=reference, dtype="float64")
    assert ulp_error(result, square) <= 16


@pytest.mark.parametrize("shift", [1e6, -1e9])
def test_relative_rmse_over_std_far_from_zero_is_close_to_exact(shift):
    """sqrt(mean(x^2) - mean(x)^2) in float64 keeps not one digit here."""
    x = np.random.default_rng(4).standard_normal(500) + shift
    x_hat = x + 1
    result = relative_rmse(x, x_hat, reference="std")
    assert ulp_error(result, relative_square_error(x, x_hat, "std")) <= 16


@pytest.mark.parametrize("reference", ["x", "x_hat"])
@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_relative_rmse_of_any_finite_pair_is_within_an_ulp_of_exact(reference, data):
    shape = (data.draw(st.integers(1, 12)),)
    x = data.draw(contents(np.dtype(np.float64), shape, finite=True))
    x_hat = data.draw(contents(np.dtype(np.float64), shape, finite=True))
    result = relative_rmse(x, x_hat, reference=reference, zero="ieee")
    if not (x if reference == "x" else x_hat).any():
        np.testing.assert_equal(result, np.inf if (x != x_hat).any() else np.nan)
        return
    square = relative_square_error(x, x_hat, reference)
    if square > Fraction(np.finfo(np.float64).max.item()) ** 2:
        assert result == np.inf
    else:
        assert ulp_error(result, square) <= 1


# Identities -------------------------------------------------------------------------------------


@every_name
@pytest.mark.parametrize("exponent", [-900, -301, 1, 302, 950])
def test_relative_rmse_of_pairs_times_power_of_two_is_the_same(reference, exponent):
    rng = np.random.default_rng(1)
    x, x_hat = rng.uniform(1, 2, (2, 3, 1025))
    scaled = [np.ldexp(a, exponent) for a in (x, x_hat)]
    expected = relative_rmse(x, x_hat, reference=reference)
    assert_same_bits(relative_rmse(*scaled, reference=reference), expected)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1e200])
def test_relative_rmse_over_x_of_tiny_and_huge_rows_is_right(scale):
    x = np.array([2.0, 4.0, 4.0, 0.0]) * scale
    assert relative_rmse(x, x * 2, reference="x") == 1
    assert relative_rmse(x, x * 2, reference="x_hat") == 0.5


def test_relative_rmse_does_not_overflow_where_its_parts_do():
    x = np.array([1.7e308, 0.0])
    assert relative_rmse(x, -x, reference="x") == 2
    assert relative_rmse(x, -x, reference="max") == 2**0.5
    y = np.array([1.7e308, -1.7e308])
    assert relative_rmse(y, -y, reference="range") == 1


@every_name
@pytest.mark.parametrize("scale", [5e-324, 1e-200, 1.0, 1e100, 1e200, 1e308])
def test_relative_rmse_from_itself_is_zero(reference, scale):
    x = np.array([[1.0, 0.5, 0.0], [-1.0, -0.75, 0.0]]) * scale
    assert_same_bits(relative_rmse(x, x, reference=reference), np.zeros(2))


def test_relative_rmse_from_zero_over_x_is_one():
    x, _ = pair((3, 40))
    assert_same_bits(relative_rmse(x, np.zeros_like(x), reference="x"), np.ones(3))
    assert_same_bits(relative_rmse(np.zeros_like(x), x, reference="x_hat"), np.ones(3))


def test_relative_rmse_over_one_has_bits_of_rmse():
    x, x_hat = pair((3, 1025))
    assert_same_bits(relative_rmse(x, x_hat, reference=1.0), rmse(x, x_hat))
    assert_same_bits(relative_rmse(x, x_hat, reference=np.ones(3)), rmse(x, x_hat))


@pytest.mark.parametrize("reference", [None, "mse", "rms", "X", ""])
def test_relative_rmse_unknown_reference_is_refused(reference):
    with pytest.raises((ValueError, TypeError), match=r"^relative_rmse: reference must .+, got "):
        relative_rmse([1.0], [2.0], reference=reference)


def test_relative_rmse_without_reference_is_refused():
    with pytest.raises(TypeError, match="reference"):
        relative_rmse([1.0], [2.0])


# Zero references --------------------------------------------------------------------------------

X = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 5.0]])
X_HAT = np.array([[1.0, 1.0], [0.0, 0.0], [5.0, 6.0]])
IEEE = {
    "x": [np.inf, np.nan, 0.02**0.5],
    "x_hat": [1.0, np.nan, (1 / 61) ** 0.5],
    "mean": [np.inf, np.nan, 0.02**0.5],
    "range": [np.inf, np.nan, np.inf],
    "std": [np.inf, np.nan, np.inf],
    "max": [np.inf, np.nan, 0.02**0.5],
}
ZEROS = {"x": [0, 1], "x_hat": [1], "mean": [0, 1], "range": [0, 1, 2], "std": [0, 1, 2]}
ZEROS["max"] = [0, 1]


@every_name
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_relative_rmse_zero_reference_under_ieee_is_infinite_or_nan(reference, dtype):
    x, x_hat = X.astype(dtype), X_HAT.astype(dtype)
    result = relative_rmse(x, x_hat, reference=reference, zero="ieee")
    np.testing.assert_allclose(result, IEEE[reference], rtol=2e-7 if dtype == np.float32 else 4e-16)


@every_name
def test_relative_rmse_zero_reference_under_nan_is_nan(reference):
    result = relative_rmse(X, X_HAT, reference=reference, zero="nan")
    expected = np.array(IEEE[reference])
    expected[ZEROS[reference]] = np.nan
    np.testing.assert_allclose(result, expected, rtol=4e-16)


@every_name
def test_relative_rmse_zero_reference_is_refused_with_count_and_first_index(reference):
    zeros = ZEROS[reference]
    text = rf"^relative_rmse: .+ must .+, got {len(zeros)}\b.+\b{zeros[0]}\b[^\n]*$"
    out = np.full(3, -7.0)
    with pytest.raises(ValueError, match=text):
        relative_rmse(X, X_HAT, reference=reference, out=out)
    assert out.tolist() == [-7.0] * 3


def test_relative_rmse_first_index_of_zero_reference_is_of_all_axes():
    x = np.ones((2, 3, 4))
    x[1, 2] = 0
    with pytest.raises(ValueError, match=r"^relative_rmse: .+ must .+, got 1\b.+\(1, 2\)"):
        relative_rmse(x, np.ones(4), reference="x")


@pytest.mark.parametrize("zero", ["raise", "ieee", "nan"])
def test_relative_rmse_given_zero_reference_follows_zero(zero):
    def call():
        return relative_rmse(X, X_HAT, reference=[0.0, 0.0, 1.0], zero=zero)

    if zero == "raise":
        with pytest.raises(ValueError, match=r"^relative_rmse: .+ must .+, got 2\b.+\b0\b"):
            call()
    else:
        expected = [np.inf if zero == "ieee" else np.nan, np.nan, 0.5**0.5]
        np.testing.assert_array_equal(call(), expected)


@every_name
@pytest.mark.parametrize("tiny", [5e-324, 1e-310, 1e-200])
def test_relative_rmse_tiny_reference_is_not_zero(tiny, reference):
    x, x_hat = np.array([tiny, tiny, 0.0]), np.array([tiny, 0.0, 0.0])
    result = relative_rmse(x, x_hat, reference=reference)
    assert ulp_error(result, relative_square_error(x, x_hat, reference)) <= 2


def test_relative_rmse_empty_result_has_no_zero_reference():
    result = relative_rmse(np.empty((0, 3)), np.empty((0, 3)), reference="x")
    assert (result.shape, result.dtype) == ((0,), np.float64)


@pytest.mark.parametrize("value", ["skip", None, "zero"])
def test_relative_rmse_unknown_zero_is_refused(value):
    message = r"^relative_rmse: zero must be one of 'raise', 'ieee', 'nan', got "
    with pytest.raises(ValueError, match=message):
        relative_rmse([1.0], [2.0], reference="x", zero=value)


# Special values ---------------------------------------------------------------------------------


@every_name
def test_relative_rmse_nan_gives_nan(reference):
    x, x_hat = pair((3, 10))
    expected = relative_rmse(x, x_hat, reference=reference)
    x[0, 3], x_hat[2, 1] = np.nan, np.nan
    expected[[0, 2]] = np.nan
    assert_same_bits(np.isnan(relative_rmse(x, x_hat, reference=reference)), np.isnan(expected))
    assert relative_rmse(x, x_hat, reference=reference)[1] == expected[1]


@pytest.mark.parametrize(
    ("reference", "expected"), [("x", np.inf), ("x_hat", np.nan), ("max", np.inf)]
)
def test_relative_rmse_infinity_follows_the_quotient(reference, expected):
    x, x_hat = np.array([1.0, 2.0]), np.array([1.0, np.inf])
    np.testing.assert_equal(relative_rmse(x, x_hat, reference=reference), expected)


def test_relative_rmse_over_nan_is_nan_and_over_infinity_zero():
    result = relative_rmse([[1.0], [1.0]], [[2.0], [2.0]], reference=[np.nan, np.inf])
    np.testing.assert_equal(result, [np.nan, 0.0])


# Kept points, weights, NaN ----------------------------------------------------------------------


@every_name
@pytest.mark.parametrize("dtype", [np.float64, BFLOAT16], ids=name_of)
def test_relative_rmse_takes_the_reference_over_kept_points(reference, dtype):
    x, x_hat = pair((3, 40), dtype)
    where = keep((3, 40))
    result = relative_rmse(x, x_hat, reference=reference, where=where, zero="nan")
    assert np.isnan(result[1])
    for row in (0, 2):
        kept = where[row]
        square = relative_square_error(x[row][kept], x_hat[row][kept], reference)
        assert ulp_error(result[row], square) <= (1 if reference in EXACT else 64)


@every_name
def test_relative_rmse_left_out_values_never_matter(reference):
    x, x_hat = pair((4, 40))
    where = keep((4, 40))
    options = {"reference": reference, "where": where, "zero": "nan"}
    expected = relative_rmse(x, x_hat, **options)
    for value in (np.nan, np.inf, 1e300):
        hidden = np.where(where, x, value), np.where(where, x_hat, -value)
        assert_same_bits(relative_rmse(*hidden, **options), expected)


@every_name
def test_relative_rmse_takes_the_reference_over_weighted_points(reference):
    x, x_hat = pair((40,))
    weights = weighing((40,))
    weights[3:6], x[4] = 0, 50
    result = relative_rmse(x, x_hat, reference=reference, weights=weights)
    kept = weights > 0
    square = relative_square_error(
        x[kept], x_hat[kept], reference, None if reference in ("range", "max") else weights[kept]
    )
    if reference in ("range", "max"):
        square *= mean_square_error(x[kept], x_hat[kept], weights[kept])
        square /= mean_square_error(x[kept], x_hat[kept])
    assert ulp_error(result, square) <= (2 if reference in EXACT else 64)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300])
def test_relative_rmse_weights_of_any_magnitude_are_within_two_ulps(scale):
    x, x_hat = pair((40,))
    weights = np.random.default_rng(8).integers(1, 9, 40) * scale
    result = relative_rmse(x, x_hat, reference="x", weights=weights)
    assert ulp_error(result, relative_square_error(x, x_hat, "x", weights)) <= 2


@every_name
def test_relative_rmse_omit_leaves_pairs_out_of_the_reference_too(reference):
    x, x_hat = pair((4, 40))
    x[:, ::7], x_hat[:, 3::5], x[1] = np.nan, np.nan, np.nan
    both = ~np.isnan(x) & ~np.isnan(x_hat)
    result = relative_rmse(x, x_hat, reference=reference, nan_policy="omit", zero="nan")
    expected = relative_rmse(x, x_hat, reference=reference, where=both, zero="nan")
    assert_same_bits(result, expected)
    assert np.isnan(result).tolist() == [False, True, False, False]


def test_relative_rmse_row_left_empty_is_nan_and_no_zero_reference():
    x, x_hat = pair((3, 40))
    where = keep((3, 40))
    result = relative_rmse(x, x_hat, reference="x", where=where)
    assert np.isnan(result).tolist() == [False, True, False]


@every_name
def test_relative_rmse_mask_of_either_array_leaves_the_pair_out(reference):
    x, x_hat = pair((4, 40))
    first, second = keep((4, 40), seed=1), keep((4, 40), seed=2)
    first[1] = second[1] = True
    masked = np.ma.array(x, mask=~first), np.ma.array(x_hat, mask=~second)
    expected = relative_rmse(x, x_hat, reference=reference, where=first & second)
    assert_same_bits(relative_rmse(*masked, reference=reference), expected)


def test_relative_rmse_nan_is_refused_on_request():
    x, x_hat = pair((4, 40))
    x[2, 3] = np.nan
    with pytest.raises(ValueError, match=r"^relative_rmse: x.* must .+, got "):
        relative_rmse(x, x_hat, reference="x", nan_policy="raise")


# Shapes, layouts, threads -----------------------------------------------------------------------


@every_name
@every_layout
@pytest.mark.parametrize("axis", [-1, 0])
def test_relative_rmse_any_layout_gives_same_bits(reference, layout, axis):
    x, x_hat = (layout(a) for a in pair((6, 37)))
    options = {"reference": reference, "axis": axis, "zero": "nan"}
    expected = relative_rmse(plain(x), plain(x_hat), **options)
    assert_same_bits(relative_rmse(x, x_hat, **options), expected)


@every_name
@pytest.mark.parametrize("shape", [(2, 8), (1025, 300), (16385, 9)])
def test_relative_rmse_columns_give_bits_of_rows(reference, shape):
    x, x_hat = pair(shape)
    rows = [np.ascontiguousarray(a.T) for a in (x, x_hat)]
    expected = relative_rmse(*rows, reference=reference)
    assert_same_bits(relative_rmse(x, x_hat, reference=reference, axis=0), expected)


def test_relative_rmse_columns_in_tiles_beside_others_give_bits_of_rows(monkeypatch):
    monkeypatch.setattr(_sums, "SPLIT_NUMBERS", 1)
    monkeypatch.setattr(_sums, "CACHED_BYTES", 1)
    x, x_hat = pair((8, 4096))
    where = np.ones(4096, bool)  # so that errors and sizes are walked in plans of their own
    rows = [np.ascontiguousarray(a.T) for a in (x, x_hat)]
    expected = relative_rmse(*rows, reference="x")
    others = np.asfortranarray(x_hat)
    assert_same_bits(relative_rmse(x, others, reference="x", axis=0, where=where), expected)


@every_name
@pytest.mark.parametrize("axis", [-1, 0, None])
def test_relative_rmse_any_thread_count_gives_same_bits(reference, axis, monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1 << 20)
    x, x_hat = pair((300, 1031))
    serial = relative_rmse(x, x_hat, reference=reference, axis=axis, threads=1)
    for threads in (2, None):
        parallel = relative_rmse(x, x_hat, reference=reference, axis=axis, threads=threads)
        assert_same_bits(parallel, serial)


@every_name
def test_relative_rmse_row_by_row_gives_same_bits(reference):
    x, x_hat = pair((5, 2000))
    rows = [relative_rmse(a, b, reference=reference) for a, b in zip(x, x_hat, strict=True)]
    assert_same_bits(relative_rmse(x, x_hat, reference=reference), np.array(rows))


@every_name
@pytest.mark.parametrize("axis", [0, (0, 2), (-1, 1), None])
def test_relative_rmse_any_axis_gives_bits_of_rows(reference, axis):
    x, x_hat = pair((5, 6, 7))
    reduced = {a % 3 for a in ((0, 1, 2) if axis is None else np.atleast_1d(axis).tolist())}
    kept = [k for k in range(3) if k not in reduced]
    rows = [
        a.transpose(kept + sorted(reduced)).reshape([a.shape[k] for k in kept] + [-1])
        for a in (x, x_hat)
    ]
    result = relative_rmse(x, x_hat, reference=reference, axis=axis)
    assert_same_bits(result, relative_rmse(*rows, reference=reference))
    kept_dims = relative_rmse(x, x_hat, reference=reference, axis=axis, keepdims=True)
    assert kept_dims.shape == tuple(1 if k in reduced else n for k, n in enumerate(x.shape))
    assert_same_bits(kept_dims.reshape(np.shape(result)), result)


@every_name
def test_relative_rmse_against_one_row_takes_the_reference_of_each_row(reference):
    x, _ = pair((4, 37))
    row = make((37,), np.float64, seed=9)
    for left, right in [(x, row), (row, x), (x[:, None], x[:3])]:
        result = relative_rmse(left, right, reference=reference)
        whole = np.broadcast_arrays(left, right)
        expected = relative_rmse(*(a.copy() for a in whole), reference=reference)
        assert_same_bits(result, expected)


@pytest.mark.parametrize(
    ("reference", "keepdims", "shape"),
    [
        (2.0, False, (4, 3)),
        ([1.0, 2.0, 4.0], False, (4, 3)),
        ([[1.0], [2.0], [4.0], [8.0]], False, (4, 3)),
        (np.float32([1, 2, 4])[:, None], True, (4, 3, 1)),
    ],
)
def test_relative_rmse_reference_array_is_broadcast_to_the_result(reference, keepdims, shape):
    x, x_hat = pair((4, 3, 5))
    result = relative_rmse(x, x_hat, reference=reference, keepdims=keepdims)
    error = rmse(x, x_hat, keepdims=keepdims)
    assert result.shape == shape
    assert_same_bits(result, error / np.asarray(reference, np.float64))  # powers of two


@pytest.mark.parametrize("reference", [[1.0, 2.0], np.ones((2, 4, 3)), ["a", "b", "c"], [1j]])
def test_relative_rmse_reference_array_that_does_not_fit_is_refused(reference):
    x, x_hat = pair((4, 3, 5))
    with pytest.raises((ValueError, TypeError), match=r"^relative_rmse: reference must .+, got "):
        relative_rmse(x, x_hat, reference=reference)


def test_relative_rmse_shapes_that_do_not_pair_are_refused_with_both():
    text = r"^relative_rmse: x and x_hat must .+, got .*\(100, 1\).*\(100,\)"
    with pytest.raises(ValueError, match=text):
        relative_rmse(np.ones((100, 1)), np.ones(100), reference="x")


def test_relative_rmse_of_range_of_complex_is_refused():
    with pytest.raises(TypeError, match=r"^relative_rmse: .+ must .+range.+, got "):
        relative_rmse([1j, 2.0], [1.0, 2.0], reference="range")


def test_relative_rmse_out_is_filled_and_returned():
    x, x_hat = pair((4, 37))
    out = np.zeros(4)
    assert relative_rmse(x, x_hat, reference="x", out=out) is out
    assert_same_bits(out, relative_rmse(x, x_hat, reference="x"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_relative_rmse_dtype_argument_names_the_result(dtype):
    x, x_hat = pair((37,), np.float32)
    result = relative_rmse(x, x_hat, reference="x", dtype=dtype)
    assert result.dtype.name == dtype
    assert ulp_error(result, relative_square_error(x, x_hat, "x")) <= 1


def test_relative_rmse_of_narrow_input_gives_float32_scalar():
    result = relative_rmse(np.float16([3, 4]), np.float16([3, 5]), reference="x")
    assert type(result) is np.float32
    assert type(relative_rmse([3, 4], [3, 5], reference="x")) is np.float64


@pytest.mark.parametrize("format", ["bfloat16", "float8_e4m3fn"])
def test_relative_rmse_codes_with_format_give_bits_of_the_format(format):
    x, x_hat = pair((6, 37), getattr(ml_dtypes, format))
    codes = f"uint{8 * x.itemsize}"
    expected = relative_rmse(x, x_hat, reference="range")
    result = relative_rmse(x.view(codes), x_hat.view(codes), reference="range", format=format)
    assert_same_bits(result, expected)


# Worked values ----------------------------------------------------------------------------------


def test_relative_rmse_divides_by_the_size_it_names():
    x, x_hat = np.array([5.0, 30.0, 50.0, 60.0, 45.0]), np.array([3.0, 44.0, 57.0, 57.0, 35.5])
    error = Fraction(34825, 500)  # 4 + 196 + 49 + 9 + 90.25 over 5
    squares = {
        "x": Fraction(1810),
        "x_hat": mean_square(x_hat),
        "mean": Fraction(38) ** 2,
        "range": Fraction(55) ** 2,
        "std": 1810 - mean(x) ** 2,
        "max": Fraction(60) ** 2,
    }
    for reference, square in squares.items():
        assert ulp_error(relative_rmse(x, x_hat, reference=reference), error / square) <= 1
    assert ulp_error(rms(x), squares["x"]) <= 0.51


@pytest.mark.parametrize("reference", ["x", "range"])
def test_relative_rmse_of_whole_array_is_not_the_mean_of_rows(reference):
    x, x_hat = np.array([[1.0, 3.0], [0.0, 8.0]]), np.array([[1.0, 5.0], [0.0, 8.0]])
    size = {"x": Fraction(74, 4), "range": Fraction(64)}[reference]
    result = relative_rmse(x, x_hat, reference=reference, axis=None)
    assert ulp_error(result, 1 / size) <= 1


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_relative_rmse_of_walks_that_join_other_axes_is_that_of_copies(axis):
    rng = np.random.default_rng(42)
    x = np.asfortranarray(rng.normal(size=(7, 4, 49)))
    y = rng.normal(size=(7, 4, 49))[..., ::-1]
    found = relative_rmse(x, y, reference="x", axis=axis)
    copies = relative_rmse(x.copy("C"), y.copy("C"), reference="x", axis=axis)
    np.testing.assert_array_equal(found, copies)
