"""The NumPy definitions against exact arithmetic and values worked out by hand."""

import math
import re
import subprocess
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import (
    fractions,
    mean_square,
    mean_square_error,
    relative_square_error,
    rounded_root,
    signed_square,
    ulp_error,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import (
    CASE_IDS,
    CASES,
    COMPLEX,
    DTYPES,
    LAYOUTS,
    NARROW,
    arrays,
    assert_same_bits,
    contents,
    make,
    name_of,
    plain,
)

import rmsfast
from rmsfast.reference import relative_rmse, rms, rms_norm, rmse, scale_to_rms, unit_rms
from rmsfast.reference._formats import decode, encode

# Where numpy.longdouble has more bits than float64 the last rounding dominates. Elsewhere float64
# arithmetic adds, for the rows of up to 1000 values used here, a few units in the last place.
NARROW_TOLERANCE = 8.0
TOLERANCE = 0.51 if np.finfo(np.longdouble).nmant > 52 else NARROW_TOLERANCE
FORMATS = {"float16": np.uint16, "bfloat16": np.uint16}
FORMATS |= {"float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}

anything = settings(max_examples=100, deadline=None, derandomize=True)


def format_dtype(format: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, format, format))


@pytest.fixture(params=["longdouble", "float64"])
def accumulator(request, monkeypatch):
    """Run with the `numpy.longdouble` of this machine, and as if it were no wider than float64."""
    monkeypatch.setattr(np, "longdouble", getattr(np, request.param))
    return TOLERANCE if request.param == "longdouble" else NARROW_TOLERANCE


def assert_root(result, square, tolerance):
    """Within `tolerance` ulps of the root, or infinite where that is beyond the largest number."""
    if square > Fraction(np.finfo(result.dtype).max.item()) ** 2:
        assert result == np.inf
    else:
        assert ulp_error(result, square) <= tolerance


# The oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [2.0, 5e-324, 3e-310, 1e308, 0.1, 2.0**-1000])
def test_ulp_error_of_ieee_square_root_is_at_most_half(value):
    root = np.sqrt(np.float64(value))
    assert ulp_error(root, Fraction(value)) <= 0.5
    assert rounded_root(Fraction(value)) == root
    assert ulp_error(np.nextafter(root, 0), Fraction(value)) >= 0.5
    assert ulp_error(np.nextafter(root, np.inf), Fraction(value)) >= 0.5


@pytest.mark.parametrize(
    ("result", "square", "format", "expected"),
    [
        (1 + 2.0**-52, Fraction(1), "float64", 1),
        (1.0, Fraction(1), "float64", 0),
        (3.0, Fraction(4), "bfloat16", 64),
        (1e-45, Fraction(0), "float32", 2.0**149 * 1e-45),
        (1.0, Fraction(-1), "float32", 2.0**24),
        (math.inf, Fraction(1), "float16", math.inf),
    ],
)
def test_ulp_error_worked_values_are_exact(result, square, format, expected):
    assert ulp_error(result, square, format) == expected


# Accuracy and range -----------------------------------------------------------------------------


def cases(*profiles):
    chosen = [
        pytest.param(*c, id=i) for c, i in zip(CASES, CASE_IDS, strict=True) if c[1] in profiles
    ]
    return pytest.mark.parametrize(("dtype", "values"), chosen)


@cases("normal", "subnormal", "huge", "zeros")
def test_rms_finite_values_is_within_ulps_of_exact(dtype, values, accumulator):
    x = make((40,), dtype, values)
    assert_root(rms(x), mean_square(x), accumulator)


@cases("normal", "subnormal", "huge", "zeros")
def test_rmse_finite_values_is_within_ulps_of_exact(dtype, values, accumulator):
    x, x_hat = make((40,), dtype, values), make((40,), dtype, values, seed=7)
    assert_root(rmse(x, x_hat), mean_square_error(x, x_hat), accumulator)


@pytest.mark.parametrize("exponent", [-1074, -1060, -1022, -700, -485, 0, 485, 700, 1022])
def test_rms_any_power_of_two_is_within_ulps_of_exact(exponent, accumulator):
    x = np.ldexp(np.random.default_rng(exponent + 2000).uniform(1, 2, 33), exponent)
    assert ulp_error(rms(x), mean_square(x)) <= accumulator


def test_rms_values_of_every_size_is_within_ulps_of_exact(accumulator):
    x = np.ldexp(1.1, np.arange(-1074, 1024))
    assert ulp_error(rms(x), mean_square(x)) <= accumulator


def test_rms_long_rows_is_within_ulps_of_exact():
    x = np.random.default_rng(3).standard_normal((4, 1000))
    errors = [ulp_error(r, mean_square(row)) for r, row in zip(rms(x), x, strict=True)]
    assert max(errors) <= TOLERANCE


@pytest.mark.parametrize("value", [0.1, 1 / 3, 5e-324, 1e-310, 1.797e308, -7.0])
@pytest.mark.parametrize("count", [1, 3, 100])
def test_rms_constant_row_is_the_constant(value, count):
    assert rms(np.full(count, value)) == abs(value)


@anything
@given(arrays(max_dims=1, min_dims=1, max_side=12, finite=True))
def test_rms_any_finite_vector_is_within_ulps_of_exact(x):
    assert_root(rms(x), mean_square(x), TOLERANCE)


@anything
@given(st.data(), st.sampled_from(DTYPES), st.sampled_from(DTYPES), st.integers(1, 6))
def test_rmse_any_two_dtypes_is_within_ulps_of_exact(data, first, second, length):
    x = data.draw(contents(first, (length,), finite=True))
    x_hat = data.draw(contents(second, (length,), finite=True))
    result = rmse(x, x_hat)
    assert_root(result, mean_square_error(x, x_hat), TOLERANCE)
    assert_same_bits(rmse(x_hat, x), result)


@pytest.mark.parametrize(
    ("x", "x_hat", "square"),
    [
        (np.array([2**63 - 1]), np.array([2**63 - 6], np.uint64), 25),
        (np.array([-(2**63)]), np.array([2**64 - 1], np.uint64), (2**64 - 1 + 2**63) ** 2),
        (np.array([2**53 + 1]), np.array([2.0**53]), 1),
        (np.array([-1]), np.array([-1 + 2.0**-53]), Fraction(1, 2**106)),
        (np.array([2**63 - 1]), np.array([2.0**63]), 1),
        (np.array([True, False]), np.array([False, False]), Fraction(1, 2)),
        (np.array([0], np.uint8), np.array([16], np.uint8), 256),
    ],
)
def test_rmse_integers_never_wrap(x, x_hat, square, accumulator):
    assert ulp_error(rmse(x, x_hat), Fraction(square)) <= accumulator


def test_rmse_huge_opposites_do_not_overflow(accumulator):
    x = np.array([1e308, 0.0, 0.0, 0.0])
    assert ulp_error(rmse(x, -x), mean_square_error(x, -x)) <= accumulator


def test_rmse_beyond_largest_float_is_inf():
    assert rmse([1.7e308], [-1.7e308]) == np.inf


def test_rmse_tiny_difference_beside_huge_equal_values_is_kept(accumulator):
    x, x_hat = np.array([1e308, 5e-324]), np.array([1e308, 0.0])
    assert ulp_error(rmse(x, x_hat), mean_square_error(x, x_hat)) <= accumulator


def test_rms_weights_of_any_size_are_within_ulps_of_exact(accumulator):
    x = np.array([1e200, 1e-10, -3.0, 5e-324])
    w = np.array([1e-300, 1e300, 1.0, 1.7e308])
    assert ulp_error(rms(x, weights=w), mean_square(x, w)) <= max(2, accumulator)


def test_rms_weights_are_the_weights_of_squares():
    x, w = np.array([3.0, 4.0]), np.array([1, 3])
    assert rms(x, weights=w) == rounded_root(Fraction(9 + 3 * 16, 4))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300, 1e-160, 1e160])
@pytest.mark.parametrize("name", ["x", "x_hat", "mean", "range", "std", "max"])
def test_relative_rmse_named_reference_is_within_ulps_of_exact(name, scale, accumulator):
    rng = np.random.default_rng(5)
    x, x_hat = scale * (2 + rng.standard_normal(25)), scale * (2 + rng.standard_normal(25))
    w = rng.integers(1, 5, 25)
    result = relative_rmse(x, x_hat, reference=name, weights=w)
    # The mean and the deviations from it add rounding errors of the size of u * max |x|.
    slack = 8 if name in ("mean", "std") and accumulator > 1 else 1
    assert ulp_error(result, relative_square_error(x, x_hat, name, w)) <= accumulator * slack


def test_relative_rmse_number_is_within_ulps_of_exact(accumulator):
    x, x_hat = make((30,), "float64"), make((30,), "float64", seed=1)
    result = relative_rmse(x, x_hat, reference=0.7)
    assert ulp_error(result, relative_square_error(x, x_hat, Fraction(0.7))) <= accumulator


def test_relative_rmse_subnormal_sizes_keep_their_digits(accumulator):
    x, x_hat = np.full(8, 5e-324), np.array([5e-324] * 7 + [0.0])
    result = relative_rmse(x, x_hat, reference="x")
    assert ulp_error(result, Fraction(1, 8)) <= accumulator


def test_relative_rmse_references_of_complex_values_are_moduli():
    x, x_hat = np.array([3j, 4, -3j, 4]), np.array([3j, 4, -3j, 0])
    sizes = {"x": Fraction(50, 4), "mean": 4, "max": 16, "std": Fraction(50, 4) - 4}
    for name, square in sizes.items():
        result = relative_rmse(x, x_hat, reference=name)
        assert ulp_error(result, Fraction(16, 4) / square) <= TOLERANCE


@cases("normal", "subnormal", "huge")
def test_unit_rms_finite_values_is_within_ulps_of_exact(dtype, values, accumulator):
    x = make((24,), dtype, values)
    square = mean_square(x)
    for part in ("real", "imag") if dtype.kind == "c" else ("real",):
        stored = [signed_square(value) / square for value in fractions(getattr(x, part))]
        result = getattr(unit_rms(x), part)
        errors = [ulp_error(r, q, result.dtype) for r, q in zip(result, stored, strict=True)]
        assert max(errors) <= accumulator


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("values", ["subnormal", "huge"])
@pytest.mark.usefixtures("accumulator")
def test_unit_rms_extreme_rows_have_rms_one(dtype, values):
    result = unit_rms(make((5, 64), dtype, values))
    # Rounding moves each coordinate, and so the size, by half of eps at most.
    assert np.abs(rms(result, dtype="float64") - 1).max() <= ml_dtypes.finfo(dtype).eps


def test_scale_to_rms_targets_of_any_size_are_within_ulps_of_exact(accumulator):
    x = np.array([[3e-310, 4e-310], [3e307, -4e307], [3.0, 4.0]])
    targets = np.array([1e300, -1e-300, 5e-324])
    result = scale_to_rms(x, targets)
    for row, got, target in zip(x, result, targets, strict=True):
        for value, r in zip(fractions(row), got, strict=True):
            exact = signed_square(value * Fraction(target)) / mean_square(row)
            assert ulp_error(r, exact) <= accumulator + 0.25 * (target == 5e-324)


# Values worked out by hand ----------------------------------------------------------------------


def test_rms_worked_example_is_two_and_a_half():
    assert rms([3.0, 4.0, 0.0, 0.0]) == 2.5
    assert rms([-3.0, -4.0, 0.0, 0.0]) == 2.5


def test_unit_rms_worked_example_has_length_two():
    assert unit_rms([3.0, 4.0, 0.0, 0.0]).tolist() == [1.2, 1.6, 0.0, 0.0]


def test_scale_to_rms_worked_example_has_requested_rms():
    edit = scale_to_rms([3.0, 4.0, 0.0, 0.0], 0.03 * 2)
    np.testing.assert_allclose(edit, [0.072, 0.096, 0, 0], rtol=1e-15)


def test_rms_of_lists_and_numbers_is_their_rms():
    assert rms(np.float64(-5.0)) == 5.0
    assert rms([3, 4]) == rounded_root(Fraction(25, 2))
    assert rmse([4, 25, 0.75, 11], [3, 21, -1.25, 13]) == 2.5


@pytest.mark.parametrize("axis", [0, -1, 1, (0, 2), (2, 0), (-1, 0), None, ()], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_rms_any_axis_is_the_textbook_formula(axis, keepdims):
    x = np.arange(24.0).reshape(2, 3, 4)
    expected = np.sqrt(np.mean(x**2, axis=axis, keepdims=keepdims))
    result = rms(x, axis=axis, keepdims=keepdims)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "size"),
    [("x", 10**0.5), ("x_hat", 2.0), ("mean", 3.0), ("range", 2.0), ("std", 1.0), ("max", 4.0)],
)
def test_relative_rmse_name_chooses_the_denominator(name, size):
    error = 2**0.5  # of (2, 4) against (2, 2)
    assert relative_rmse([2, 4], [2, 2], reference=name) == pytest.approx(error / size, rel=1e-15)


@pytest.mark.parametrize(
    ("name", "size"),
    [("x", 10**0.5 / 8), ("mean", 0.375), ("range", 0.25), ("std", 0.125), ("max", 0.5)],
)
def test_relative_rmse_reference_is_of_the_kept_points(name, size):
    x, where = [99.0, 0.25, 0.5], [False, True, True]
    result = relative_rmse(x, [0.0, 0.0, 0.5], reference=name, where=where)
    assert result == pytest.approx(0.25 / 2**0.5 / size, rel=1e-15)


def test_relative_rmse_array_has_the_shape_of_the_result():
    x, x_hat = np.zeros((3, 2)), np.full((3, 2), 6.0)
    by_row = relative_rmse(x, x_hat, reference=[1.0, 2.0, 3.0])
    assert by_row.tolist() == [6, 3, 2]
    kept = relative_rmse(x, x_hat, reference=[[1.0], [2.0], [3.0]], keepdims=True)
    assert kept.tolist() == [[6], [3], [2]]


@pytest.mark.parametrize(
    ("eps_mode", "divisor"),
    [
        ("inside", math.sqrt(2.5**2 + 0.75**2)),
        ("outside", 2.5 + 0.75**2),
        ("max", 2.5),
    ],
)
def test_rms_norm_eps_mode_chooses_the_divisor(eps_mode, divisor):
    result = rms_norm([3.0, 4.0, 0.0, 0.0], eps=0.75**2, eps_mode=eps_mode)
    np.testing.assert_allclose(result, [3 / divisor, 4 / divisor, 0, 0], rtol=1e-15)


def test_rms_norm_eps_mode_max_keeps_small_rows_small():
    assert rms_norm([0.25, -0.25], eps=0.5, eps_mode="max").tolist() == [0.5, -0.5]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_rms_norm_gain_and_offset_are_within_ulps_of_exact(dtype, accumulator):
    x = make((16,), format_dtype(dtype))
    gain = make((16,), "float32", seed=2)
    square = mean_square(x) + Fraction(1e-3)
    result = rms_norm(x, gain, eps=1e-3, gain_offset=1.0)
    for value, g, r in zip(fractions(x), fractions(gain), result, strict=True):
        assert ulp_error(r, signed_square(value * (1 + g)) / square) <= accumulator


def test_rms_norm_cast_before_gain_rounds_twice():
    x, gain = np.array([[1.0, 2.0, 3.0, -4.0]], np.float32), np.full(4, 1.28125, np.float32)
    once = rms_norm(x, gain, dtype="bfloat16")
    twice = rms_norm(x, gain, dtype="bfloat16", cast="before_gain")
    assert once.view(np.uint16).tolist() == [[0x3EF0, 0x3F70, 0x3FB4, 0xBFF0]]
    assert twice.view(np.uint16).tolist() == [[0x3EF0, 0x3F70, 0x3FB3, 0xBFF0]]


def test_rms_norm_gain_has_the_shape_of_the_reduced_axes():
    x, gain = np.ones((2, 3, 4)), np.arange(8.0).reshape(2, 4)
    result = rms_norm(x, gain, axis=(2, 0), eps=0)
    assert_same_bits(result, np.broadcast_to(gain[:, None], x.shape).copy())


def test_rms_norm_zero_row_with_eps_zero_is_nan():
    assert np.isnan(rms_norm([0.0, 0.0], eps=0)).all()
    assert rms_norm([0.0, 0.0]).tolist() == [0, 0]


def test_scaling_with_return_rms_gives_the_rms_without_eps():
    x = np.array([[3.0, 4.0], [6.0, 8.0]], np.float16)
    for _, size in (
        unit_rms(x, return_rms=True),
        scale_to_rms(x, 2, return_rms=True),
        rms_norm(x, eps=1.0, return_rms=True),
    ):
        assert_same_bits(size, rms(x))


# NaN, infinity, zero, empty ---------------------------------------------------------------------


def test_rms_nan_beats_infinity():
    x = [[np.inf, 1.0], [np.nan, 1.0], [np.nan, -np.inf], [0.0, -0.0]]
    np.testing.assert_array_equal(rms(x), [np.inf, np.nan, np.nan, 0.0])
    np.testing.assert_array_equal(rmse(x, np.inf), [np.nan, np.nan, np.nan, np.inf])


def test_rms_omit_leaves_nan_out():
    x = [[2.0, np.nan, 4.0], [np.nan] * 3]
    np.testing.assert_array_equal(rms(x, nan_policy="omit"), [math.sqrt(10), np.nan])


def test_rmse_omit_drops_pairs():
    x, x_hat = [1.0, np.nan, 5.0, 9.0], [4.0, 0.0, np.nan, 12.0]
    assert rmse(x, x_hat, nan_policy="omit") == 3
    assert relative_rmse(x, x_hat, reference="max", nan_policy="omit") == 3 / 9


def test_rms_what_where_leaves_out_never_matters():
    x, where = [[3.0, np.nan, 4.0], [np.inf, 2.0, 2.0]], [[True, False, True], [False, True, True]]
    for policy in ("propagate", "omit", "raise"):
        result = rms(x, where=where, nan_policy=policy)
        assert result.tolist() == [rounded_root(Fraction(25, 2)), 2]


def test_rms_mask_is_where_not_mask():
    x = np.ma.array([[3.0, 4.0, 1e20], [1.0, 1.0, 1.0]], mask=[[0, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(rms(x), [rounded_root(Fraction(25, 2)), np.nan])


def test_rmse_masks_are_united():
    x = np.ma.array([1.0, 2.0, 99.0], mask=[0, 0, 1])
    x_hat = np.ma.array([99.0, 5.0, 3.0], mask=[1, 0, 0])
    assert rmse(x, x_hat) == 3


def test_rmse_weight_zero_leaves_the_point_out():
    x, x_hat = [12, 25, 29, 42, np.nan, 50.0], [10, 20, 30, 40, 50, np.nan]
    weights = [np.nan, 0, 1, 2, 3, 4.0]
    result = rmse(x, x_hat, weights=weights, nan_policy="omit")
    assert result == rounded_root(Fraction(1 * 1 + 2 * 4, 3))
    assert rms([np.nan, 2.0], weights=[0, 1]) == 2


def test_rms_masked_weight_leaves_the_point_out():
    assert rms([5.0, 2.0], weights=np.ma.array([9.0, 1.0], mask=[1, 0])) == 2


def test_rms_row_without_points_is_nan():
    assert np.isnan(rms([1.0, 2.0], where=[False, False]))
    assert np.isnan(rms([1.0, 2.0], weights=[0, 0]))
    assert np.isnan(unit_rms([1.0, 2.0], where=[False, False])).all()
    assert np.isnan(relative_rmse([0.0], [1.0], reference="range", where=[False]))


def test_unit_rms_where_chooses_the_size_and_scales_the_whole_row():
    assert unit_rms([2.0, -2.0, 6.0], where=[True, True, False]).tolist() == [1, -1, 3]


@pytest.mark.parametrize(("zero", "expected"), [("zero", 0.0), ("nan", np.nan)])
def test_unit_rms_zero_row_follows_the_policy(zero, expected):
    result = unit_rms([[0.0, -0.0], [5e-324, 0.0]], zero=zero)
    np.testing.assert_array_equal(result, [[expected, expected], [math.sqrt(2), 0]])


@pytest.mark.parametrize("name", ["range", "std"])
def test_relative_rmse_constant_reference_is_zero(name):
    x = [[0.11] * 5, [1e300] * 5, [1.0, 1.0, 1.0, 1.0, 1 + 2**-52]]
    x_hat = [[0.11] * 5, [0.0] * 5, [1.0] * 5]
    result = relative_rmse(x, x_hat, reference=name, zero="ieee")
    expected = math.sqrt(1 / 5) if name == "range" else math.sqrt((1 / 5) / (4 / 25))
    np.testing.assert_allclose(result, [np.nan, np.inf, expected], rtol=1e-15)
    result = relative_rmse(x, x_hat, reference=name, zero="nan")
    np.testing.assert_allclose(result, [np.nan, np.nan, expected], rtol=1e-15)


@pytest.mark.parametrize(
    "call",
    [rms, unit_rms, rms_norm, lambda x: rmse(x, x), lambda x: scale_to_rms(x, 1)],
    ids=["rms", "unit_rms", "rms_norm", "rmse", "scale_to_rms"],
)
@pytest.mark.parametrize("shape", [(2, 0), (0,)])
def test_any_function_empty_vector_is_refused(call, shape):
    with pytest.raises(ValueError, match=r"^\w+: x must have vectors of length >= 1, got shape"):
        call(np.empty(shape))


@pytest.mark.parametrize("shape", [(0, 0), (0, 3)])
def test_any_function_no_vectors_gives_no_results(shape):
    x = np.empty(shape, np.float16)
    assert_same_bits(rms(x), np.empty(0, np.float32))
    assert_same_bits(relative_rmse(x, x, reference="std"), np.empty(0, np.float32))
    assert_same_bits(unit_rms(x), x)
    assert_same_bits(rms_norm(x), x)


# Shapes, layouts, dtypes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "x_hat"),
    [((5, 1), (5,)), ((5,), (5, 1)), ((4, 3), (3, 3)), ((4, 3), (4, 1)), ((), (3,))],
)
def test_rmse_shapes_that_do_not_pair_are_refused(x, x_hat):
    with pytest.raises(ValueError, match="x_hat must have the lengths of x") as error:
        rmse(np.ones(x), np.ones(x_hat))
    assert str(error.value).endswith(f"got shapes {x} and {x_hat}")


@pytest.mark.parametrize(
    ("x", "x_hat", "expected"),
    [((4, 3), (3,), (4,)), ((3,), (4, 3), (4,)), ((4, 1, 3), (5, 3), (4, 5)), ((4, 3), (), (4,))],
)
def test_rmse_other_axes_broadcast(x, x_hat, expected):
    assert rmse(np.ones(x), np.zeros(x_hat)).tolist() == np.ones(expected).tolist()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("dtype", "values"), CASES, ids=CASE_IDS)
def test_any_function_any_layout_gives_same_bits(dtype, values, layout):
    x = layout(make((2, 3, 4), dtype, values))
    copy = plain(x)
    assert_same_bits(rms(x, axis=(0, 2)), rms(copy, axis=(0, 2)))
    assert_same_bits(rmse(x, x[::-1]), rmse(copy, copy[::-1]))
    assert_same_bits(unit_rms(x, zero="nan"), unit_rms(copy, zero="nan"))
    assert_same_bits(plain(x), copy)


@anything
@given(arrays(), st.booleans())
def test_any_function_any_array_gives_same_bits(x, whole):
    axis, copy = None if whole else -1, plain(x)
    assert_same_bits(rms(x, axis=axis), rms(copy, axis=axis))
    assert_same_bits(unit_rms(x, axis=axis, zero="zero"), unit_rms(copy, axis=axis, zero="zero"))
    assert_same_bits(plain(x), copy)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_any_function_result_dtype_follows_the_storage(dtype):
    x = np.ones((2, 3), dtype)
    wide = dtype.kind in "biu" or dtype.name in ("float64", "complex128")
    assert (
        rms(x).dtype == rmse(x, np.ones(3, np.float16)).dtype == ("float64" if wide else "float32")
    )
    assert unit_rms(x).dtype == ("float64" if dtype.kind in "biu" else dtype)


def test_rmse_python_number_leaves_the_precision_of_x():
    x = np.array([1.0, 2.0], np.float32)
    assert_same_bits(rmse(x, 0), rms(x))
    assert rmse(x, np.float64(0)).dtype == np.float64


@pytest.mark.parametrize("dtype", [*FORMATS, "float32", np.float64, float])
def test_rms_dtype_overrides_and_is_rounded_once(dtype):
    x = make((50,), "float64")
    result = rms(x, dtype=dtype)
    assert result.dtype == (format_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype))
    assert ulp_error(result, mean_square(x)) <= 0.51


def test_any_function_vector_gives_a_scalar():
    assert isinstance(rms(np.ones(3, np.float32)), np.float32)
    assert isinstance(rms(np.ones((2, 3)), axis=None), np.float64)
    assert isinstance(rms(np.ones(3), keepdims=True), np.ndarray)


# Storage formats --------------------------------------------------------------------------------


def every_code(format):
    """All codes of a format, and their values by the conversion of the dtype itself."""
    codes = np.arange(2 ** (8 * np.dtype(FORMATS[format]).itemsize), dtype=FORMATS[format])
    with np.errstate(invalid="ignore"):  # signalling NaN
        return codes, codes.view(format_dtype(format)).astype(np.float64)


@pytest.mark.parametrize("format", FORMATS)
def test_decode_every_code_is_its_value(format):
    codes, values = every_code(format)
    decoded = decode(codes, format)
    np.testing.assert_array_equal(decoded, values)
    np.testing.assert_array_equal(np.signbit(decoded), codes >> (8 * codes.itemsize - 1))


@pytest.mark.parametrize("format", FORMATS)
def test_encode_every_value_is_its_code(format):
    codes, values = every_code(format)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values[number], format), codes[number])
    assert np.isnan(decode(encode(values[~number], format), format)).all()


@pytest.mark.parametrize("format", FORMATS)
def test_encode_midpoint_or_too_large_is_rounded_as_by_the_dtype(format):
    _, values = every_code(format)
    finite = np.unique(values[np.isfinite(values)])
    midpoints = (finite[1:] + finite[:-1]) / 2
    beyond = finite[-1] + (finite[-1] - midpoints[-1]) * np.array([0.99, 1.0, 1.01])
    # The dtype rounds by way of float32, which is right for these: none has more than 24 bits.
    every = np.float32([*midpoints, *beyond, *-beyond, np.inf, -np.inf, np.nan, -np.nan])
    with np.errstate(over="ignore"):
        expected = every.astype(format_dtype(format)).view(FORMATS[format])
    np.testing.assert_array_equal(encode(every.astype(np.float64), format), expected)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("side", [-1, 1])
def test_encode_value_next_to_a_midpoint_is_not_rounded_twice(format, side):
    step = float(ml_dtypes.finfo(format_dtype(format)).eps)
    values = np.array([1 + step / 2 + side * 2.0**-40, 1 + 1.5 * step + side * 2.0**-40])
    expected = np.array([1.0, 1 + step] if side < 0 else [1 + step, 1 + 2 * step])
    got = decode(encode(values, format), format)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("layout", ["uint", "void", "byte_swapped", "record", "dtype"])
def test_unit_rms_codes_come_back_as_codes(format, layout):
    stored = make((3, 16), format_dtype(format))
    codes = stored.view(FORMATS[format])
    given = {
        "uint": codes,
        "void": codes.view(f"V{codes.itemsize}"),
        "byte_swapped": codes.astype(codes.dtype.newbyteorder("S")),
        "record": codes.view([(format, codes.dtype)]),
        "dtype": stored,
    }[layout]
    result = unit_rms(given, format=format)
    assert result.dtype == given.dtype.newbyteorder("=")
    assert_same_bits(result.view(codes.dtype), unit_rms(stored).view(codes.dtype))
    assert_same_bits(rms(given, format=format), rms(stored))
    if layout == "record":
        assert_same_bits(rms(given), rms(stored))


def test_rmse_codes_against_values_reads_each_in_its_own_way():
    x = np.array([0x4040, 0x4080], np.uint16)  # 3 and 4
    assert rmse(x, np.float32([3, 2]), format="bfloat16") == np.float32(math.sqrt(2))
    assert rmse(np.float32([3, 2]), x, format="bfloat16") == np.float32(math.sqrt(2))


def test_reference_alone_reads_codes_and_names_the_remedy_for_ml_dtypes():
    code = """if True:
        import sys, types
        import numpy as np
        sys.modules |= {"ml_dtypes": None, "numba": None, "rmsfast": types.ModuleType("rmsfast")}
        sys.modules["rmsfast"].__path__ = [sys.argv[1]]  # the folder, not the package
        from rmsfast import reference as alone
        assert alone.rms(np.array([0x4040, 0x4080], np.uint16), format="bfloat16") ** 2 == 12.5
        try:
            alone.rms([1.0], dtype="bfloat16")
        except ImportError as error:
            print(error)
    """
    command = [sys.executable, "-W", "error", "-c", code, *rmsfast.__path__]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout == (
        "rms: dtype must be one NumPy has (pip install ml_dtypes), got bfloat16\n"
    )


# Refusals ---------------------------------------------------------------------------------------

V = np.arange(1.0, 5.0)
REFUSED = {
    "object": (TypeError, lambda: rms(np.array([1, "a"], object))),
    "text": (TypeError, lambda: rms(["x", "y"])),
    "datetime": (TypeError, lambda: rms(np.array(["2020-01-01"], "M8[D]"))),
    "structured": (TypeError, lambda: rms(np.zeros(2, [("a", "f4")]))),
    "structured_as_codes": (TypeError, lambda: rms(np.zeros(2, [("a", "f2")]), format="float16")),
    "longdouble": (TypeError, lambda: rms(np.zeros(2, "g"))),
    "void_without_format": (TypeError, lambda: rms(np.zeros(2, "V2"))),
    "ragged": (ValueError, lambda: rms([[1, 2], [3]])),
    "axis_too_large": (np.exceptions.AxisError, lambda: rms(V, axis=1)),
    "axis_twice": (np.exceptions.AxisError, lambda: rms([V], axis=(0, -2))),
    "axis_of_a_number": (np.exceptions.AxisError, lambda: rms(1.0, axis=1)),
    "axis_float": (TypeError, lambda: rms(V, axis=1.0)),
    "nan_policy": (ValueError, lambda: rms(V, nan_policy="ignore")),
    "nan_raise": (ValueError, lambda: rms([[1, np.nan]], nan_policy="raise")),
    "nan_raise_pair": (ValueError, lambda: rmse([V], [V * np.nan], nan_policy="raise")),
    "where_dtype": (TypeError, lambda: rms(V, where=[1, 0, 1, 1])),
    "where_shape": (ValueError, lambda: rms(V, where=[True, False])),
    "weights_shape": (ValueError, lambda: rms(V, weights=[1, 2])),
    "weights_negative": (ValueError, lambda: rms(V, weights=[1, -1, 1, 1])),
    "weights_infinite": (ValueError, lambda: rms(V, weights=[1, np.inf, 1, 1])),
    "weights_nan": (ValueError, lambda: rms(V, weights=[1, np.nan, 1, 1])),
    "weights_complex": (TypeError, lambda: rms(V, weights=V * 1j)),
    "dtype_integer": (TypeError, lambda: rms(V, dtype=int)),
    "dtype_unknown": (TypeError, lambda: rms(V, dtype="float7")),
    "dtype_real_for_complex": (TypeError, lambda: unit_rms(V * 1j, dtype="float64")),
    "format_unknown": (ValueError, lambda: rms(V, format="bf16")),
    "format_of_floats": (TypeError, lambda: rms(V, format="bfloat16")),
    "format_of_other_size": (TypeError, lambda: rms(np.zeros(2, "u1"), format="bfloat16")),
    "threads": (ValueError, lambda: rms(V, threads=0)),
    "out_list": (TypeError, lambda: rms([V], out=[0.0])),
    "out_shape": (ValueError, lambda: rms([V], out=np.empty(2))),
    "out_dtype": (ValueError, lambda: rms([V], out=np.empty(1, np.float32))),
    "out_read_only": (ValueError, lambda: rms([V], out=np.broadcast_to(0.0, 1))),
    "out_overlap": (ValueError, lambda: unit_rms(V[1:], out=V[:-1])),
    "zero_policy": (ValueError, lambda: unit_rms(V, zero="ieee")),
    "zero_row": (ValueError, lambda: unit_rms([V, V * 0])),
    "reference_unknown": (ValueError, lambda: relative_rmse(V, V, reference="y")),
    "reference_negative": (ValueError, lambda: relative_rmse(V, V, reference=-1)),
    "reference_zero": (ValueError, lambda: relative_rmse(V * 0, V, reference="x")),
    "reference_shape": (ValueError, lambda: relative_rmse(V, V, reference=V)),
    "range_complex": (TypeError, lambda: relative_rmse(V * 1j, V, reference="range")),
    "target_shape": (ValueError, lambda: scale_to_rms(V, V)),
    "gain_shape": (ValueError, lambda: rms_norm(V, V[1:])),
    "gain_offset": (ValueError, lambda: rms_norm(V, gain_offset=1.0)),
    "eps_negative": (ValueError, lambda: rms_norm(V, eps=-1e-6)),
    "eps_nan": (ValueError, lambda: rms_norm(V, eps=np.nan)),
    "cast": (ValueError, lambda: rms_norm(V, cast="never")),
    "eps_mode": (ValueError, lambda: rms_norm(V, eps_mode="none")),
    "rms_norm_complex": (TypeError, lambda: rms_norm(V * 1j)),
}


@pytest.mark.parametrize(("error", "call"), REFUSED.values(), ids=REFUSED)
def test_any_function_wrong_argument_is_refused_in_one_line(error, call):
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert re.fullmatch(r"\w+: \w+ must .+, got .+", str(caught.value))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: unit_rms([V, V * 0, V * 0]), "got 2, the first at index (1,)"),
        (lambda: unit_rms([[0.0, -0.0]], axis=None), "got 1, the first at index ()"),
        (lambda: rms([V, V * np.nan], nan_policy="raise"), "got 4, the first at index (1, 0)"),
        (lambda: rms([V], weights=-V), "got 4, the first at index (0, 0)"),
        (
            lambda: relative_rmse([V, V], [V, V], reference=[1, 0]),
            "got 1, the first at index (1,)",
        ),
    ],
    ids=["zero_rows", "zero_array", "nan", "weights", "reference"],
)
def test_any_function_refused_data_are_counted_and_located(call, text):
    with pytest.raises(ValueError, match=re.escape(text) + "$"):
        call()


# Output -----------------------------------------------------------------------------------------


def test_rms_out_is_written_and_returned():
    out = np.empty(2, np.float32)
    assert rms([[3.0, 3.0], [4.0, -4.0]], dtype="float32", out=out) is out
    assert out.tolist() == [3, 4]


@pytest.mark.parametrize("dtype", [*NARROW, *COMPLEX, np.dtype(np.float64)], ids=name_of)
def test_unit_rms_out_may_be_x(dtype):
    x = make((3, 4), dtype)
    expected = unit_rms(x)
    assert unit_rms(x, out=x) is x
    assert_same_bits(x, expected)


def test_unit_rms_refusal_leaves_out_untouched():
    x = np.array([[1.0, 2.0], [0.0, 0.0]])
    with pytest.raises(ValueError, match="no zero row"):
        unit_rms(x, out=x)
    assert x.tolist() == [[1, 2], [0, 0]]


def test_any_function_numpy_error_state_does_not_matter():
    x = np.array([[1e308, -1e308], [np.nan, np.inf], [5e-324, 0.0]])
    with np.errstate(all="raise"):
        rms(x)
        rmse(x, -x)
        relative_rmse(x, -x, reference="x_hat")
        unit_rms(x, dtype="float16")
        rms_norm(x, 1e300)
