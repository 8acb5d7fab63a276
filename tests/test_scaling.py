"""`unit_rms` and `scale_to_rms` against exact arithmetic, over every dtype, layout and range."""

import inspect
import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import FORMATS, fractions, mean_square, parts, signed_square, ulp_error
from hypothesis import given, settings
from numpy.exceptions import AxisError
from zoo import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    NARROW,
    arrays,
    assert_same_bits,
    fortran,
    make,
    name_of,
    plain,
    strided,
)

from rmsfast import _launch, rms, scale_to_rms, unit_rms

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
CODED = {"float16": np.uint16, "bfloat16": np.uint16}
CODED |= {"float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
# One of each kind of arithmetic: pairs, plain sums, shifts, exact integers, two parts.
KINDS = [np.dtype(n) for n in ("float64", "float32", "int16", "complex64")] + [BFLOAT16]
every_kind = pytest.mark.parametrize("dtype", KINDS, ids=name_of)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
real_floats = pytest.mark.parametrize("dtype", FLOATS + NARROW, ids=name_of)
both_functions = pytest.mark.parametrize(
    "scale", [unit_rms, lambda x, **options: scale_to_rms(x, 1.0, **options)],
    ids=["unit_rms", "scale_to_rms"],
)  # fmt: skip


def storage(dtype):
    """Dtype of the result of a scaling."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float64) if dtype.kind in "biu" else dtype.newbyteorder("=")


def exact_square(value, square, target=1):
    """The signed square that stands for target * value / sqrt(square)."""
    return signed_square(Fraction(target) * value) / square


def assert_scaled(result, row, limit, target=1.0, kept=None):
    """Each value within so many ulps of target * row / RMS(row), each part of it if complex."""
    result, row = np.asarray(result), np.asarray(row)
    square = mean_square(row if kept is None else row[kept])
    target = Fraction(target)
    halves = [result.real, result.imag] if result.dtype.kind == "c" else [result]
    for found, (mantissas, exponent) in zip(halves, parts(row), strict=True):
        scale = Fraction(2) ** exponent
        for value, m in zip(found.ravel(), mantissas, strict=True):
            wanted = exact_square(m * scale, square, target)
            assert ulp_error(value, wanted, found.dtype) <= limit


def nonzero(shape, dtype, profile="normal", seed=0):
    """Values of a dtype, no row of which is zero."""
    x = make(shape, dtype, profile, seed)
    x[..., 0] = np.ones((), x.dtype) if profile == "normal" else x[..., 0]
    return x


def assert_refused(call, exception, message):
    with pytest.raises(exception) as refusal:
        call()
    assert type(refusal.value) is exception
    assert str(refusal.value) == message


# Signatures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "first"), [(unit_rms, ["x"]), (scale_to_rms, ["x", "target"])]
)
def test_scaling_signature_takes_x_by_position_and_options_by_name(function, first):
    parameters = inspect.signature(function).parameters
    assert list(parameters) == [
        *first, "axis", "zero", "where", "out", "dtype", "format", "return_rms", "threads",
    ]  # fmt: skip
    defaults = {n: p.default for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert defaults == {
        "axis": -1, "zero": "raise", "where": None, "out": None, "dtype": None, "format": None,
        "return_rms": False, "threads": None,
    }  # fmt: skip
    assert parameters["x"].kind is inspect.Parameter.POSITIONAL_ONLY


def test_scale_to_rms_target_goes_by_name_too():
    np.testing.assert_array_equal(scale_to_rms([3.0, 4.0, 0.0, 0.0], target=5.0), [6, 8, 0, 0])


# Worked values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.complex128])
def test_unit_rms_worked_example_is_right(dtype):
    result = unit_rms(np.array([3, 4, 0, 0], dtype))
    np.testing.assert_array_equal(result, np.array([1.2, 1.6, 0, 0], storage(dtype)))


@pytest.mark.parametrize("alpha", [0.03, -0.03])
def test_scale_to_rms_signed_target_keeps_its_sign(alpha):
    row = [2.0, -2.0, 2.0, 2.0]
    np.testing.assert_array_equal(scale_to_rms(row, 2 * alpha), alpha * np.array(row))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.ones((1, 4096), np.float16), np.ones((1, 4096), np.float16)),
        (np.full((1, 8), 1e-4, np.float16), np.ones((1, 8), np.float16)),
        (np.array([[600.0, 800.0]], np.float16), np.float16([[0.72**0.5, 1.28**0.5]])),
        (np.array([[1] * 10, [3] * 10], ">f4"), np.ones((2, 10), np.float32)),
        (np.array([[300, -400]], ">i2"), np.array([[0.72**0.5, -(1.28**0.5)]])),
        (np.array([[3.0, 4.0]], ">f8"), np.array([[0.72**0.5, 1.28**0.5]])),
        (np.array([[1, 1j]]), np.array([[1, 1j]])),
    ],
    ids=["f16-count", "f16-underflow", "f16-overflow", ">f4", ">i2", ">f8", "complex"],
)
def test_unit_rms_where_naive_code_fails_is_right(x, expected):
    result = unit_rms(x)
    assert result.dtype == expected.dtype
    assert result.dtype.isnative
    if result.dtype.kind == "c":
        np.testing.assert_array_equal(result, expected)
    else:
        np.testing.assert_array_max_ulp(result, expected, 1)


def test_unit_rms_flipped_rows_are_flipped():
    x = np.arange(1.0, 7.0).reshape(2, 3)
    assert_same_bits(unit_rms(x[::-1, ::-1]), unit_rms(x)[::-1, ::-1].copy())
    assert unit_rms(np.arange(6.0).reshape(2, 3)[::-1, ::-1])[1, 2] == 0


def test_unit_rms_result_has_rms_one_and_length_root_d():
    u = unit_rms(make((5, 1000), np.float64, seed=3))
    np.testing.assert_array_max_ulp(rms(u), np.ones(5), 1)
    np.testing.assert_allclose(np.sqrt((u * u).sum(axis=-1)), math.sqrt(1000), rtol=1e-14)


# Accuracy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 63, 64, 65, 1025])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_unit_rms_random_rows_are_within_half_an_ulp_of_exact(dtype, length):
    x = make((3, length), dtype, seed=length)
    for result, row in zip(unit_rms(x), x, strict=True):
        assert_scaled(result, row, 0.51)


def test_unit_rms_row_of_several_blocks_is_within_half_an_ulp_of_exact():
    x = make((20000,), np.float64, seed=6)
    result = unit_rms(x)
    square = mean_square(x)
    for i in range(0, x.size, 97):
        wanted = exact_square(Fraction(float(x[i])), square)
        assert ulp_error(result[i], wanted) <= 0.51


@every_dtype
def test_unit_rms_of_any_dtype_is_within_half_an_ulp_of_exact(dtype):
    x = nonzero((4, 33), dtype)
    result, sizes = unit_rms(x, return_rms=True)
    assert result.dtype == storage(dtype)
    for values, row in zip(result, x, strict=True):
        assert_scaled(values, row, 0.51)
    assert_same_bits(sizes, rms(x))


@every_dtype
def test_unit_rms_of_many_rows_writes_each_within_half_an_ulp_of_exact(dtype):
    x = nonzero((300, 1000), dtype)  # rows are summed while others are written
    result = unit_rms(x, out=np.full(x.shape, np.nan, storage(dtype)))
    assert np.isfinite(result).all()
    for row in (0, 150, 299):
        assert_scaled(result[row], x[row], 0.51)


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.itemsize == 8], ids=name_of)
def test_unit_rms_extreme_integers_are_within_half_an_ulp_of_exact(dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(3).integers(info.min, info.max, (3, 33), dtype, endpoint=True)
    x[:, 0], x[:, 1] = info.min, info.max
    for values, row in zip(unit_rms(x), x, strict=True):
        assert_scaled(values, row, 0.51)


@pytest.mark.parametrize("target", [0.1, 7.0, -1e-3, 1e5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scale_to_rms_random_rows_are_within_half_an_ulp_of_exact(dtype, target):
    x = make((3, 50), dtype, seed=9)
    for result, row in zip(scale_to_rms(x, target), x, strict=True):
        assert_scaled(result, row, 0.51, target)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("stored", [np.float64, np.float32], ids=name_of)
def test_unit_rms_dtype_argument_is_rounded_once_from_exact(stored, dtype):
    x = make((4, 33), stored, seed=1)
    result = unit_rms(x, dtype=dtype)
    assert result.dtype.name == dtype
    for values, row in zip(result, x, strict=True):
        assert_scaled(values, row, 0.51)


@pytest.mark.parametrize("profile", ["subnormal", "huge"])
@real_floats
def test_unit_rms_extreme_rows_are_within_an_ulp_of_exact(dtype, profile):
    x = make((4, 33), dtype, profile)
    for values, row in zip(unit_rms(x), x, strict=True):
        assert_scaled(values, row, 0.51 if FORMATS[dtype.name][0] < 24 else 1)


MAGNITUDES = [5e-324, 1e-323, 1e-310, 2.3e-308, 1e-200, 1e-154, 1e154, 1e200, 1.797e308]


@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_unit_rms_float64_rows_of_any_magnitude_are_within_an_ulp_of_exact(magnitude):
    x = np.random.default_rng(2).uniform(-1, 1, 33) * magnitude
    x[0] = magnitude
    result = unit_rms(x)
    assert_scaled(result, x, 1)
    np.testing.assert_array_max_ulp(rms(result), 1.0, 1)


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("target", [1e300, 1e-300, 1e-310, -1.0, 5e-324, 1.797e308])
def test_scale_to_rms_any_magnitude_to_any_target_is_within_an_ulp_of_exact(magnitude, target):
    x = np.random.default_rng(2).uniform(-1, 1, 33) * magnitude
    x[0], x[1] = magnitude, 0.0
    square = mean_square(x)
    largest = max(map(abs, fractions(x))) ** 2 * Fraction(target) ** 2 / square
    if largest >= (Fraction(2) ** 1024 - Fraction(2) ** 969) ** 2:  # too large for float64
        result = scale_to_rms(x, target)
        assert np.isinf(result).any()
        finite = np.isfinite(result)
        result, x = result[finite], x[finite]
        for value, exact in zip(result, fractions(x), strict=True):
            assert ulp_error(value, exact_square(exact, square, Fraction(target))) <= 1
        return
    assert_scaled(scale_to_rms(x, target), x, 1, target)


@pytest.mark.parametrize("magnitude", [1e-45, 1e-40, 1e-38, 1e-20, 1e20, 3e38])
@pytest.mark.parametrize("target", [1.0, 1e38, 1e-38, 1e-42])
def test_scale_to_rms_float32_any_magnitude_to_any_target_is_within_an_ulp_of_exact(
    magnitude, target
):
    x = (np.random.default_rng(2).uniform(-1, 1, 33) * magnitude).astype(np.float32)
    x[0] = np.float32(magnitude)
    assert_scaled(scale_to_rms(x, target), x, 1, target)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "complex64"])
def test_scale_to_rms_narrow_zeros_stay_beside_what_is_beyond_the_range(dtype):
    x = np.array([[0.0, 1.0, -1.0]]).astype(storage(dtype))
    np.testing.assert_equal(scale_to_rms(x, 1e300).real.astype(float), [[0.0, np.inf, -np.inf]])


@pytest.mark.parametrize("target", [1e300, -1e-300])
@pytest.mark.parametrize("dtype", ["int16", "int64", "float32", "bfloat16"])
def test_scale_to_rms_narrow_rows_to_any_float64_target_are_right(dtype, target):
    value = 2**62 + 1 if dtype == "int64" else 1  # that float64 does not hold
    x = np.full((1, 40_000), value, dtype if "int" in dtype else storage(dtype))  # not to be cast
    result = scale_to_rms(x, target, dtype="float64")
    np.testing.assert_array_max_ulp(result, np.full(x.shape, target), 1)


@pytest.mark.parametrize("columns", [True, False])
def test_unit_rms_row_of_mixed_magnitudes_is_within_an_ulp_of_exact(columns):
    rng = np.random.default_rng(12)
    x = np.ldexp(rng.uniform(-1, 1, (6, 40)), rng.integers(-1074, 1023, (6, 40)))
    result = unit_rms(x.T.copy(), axis=0).T if columns else unit_rms(x)
    for values, row in zip(result, x, strict=True):
        assert_scaled(values, row, 1)


@pytest.mark.parametrize(("small", "large"), [(5e-324, 1.797e308), (1e-200, 1e200), (1e-310, 1.0)])
def test_unit_rms_small_beside_large_is_within_an_ulp_of_exact(small, large):
    x = np.array([small, -small, large, 0.0])
    assert_scaled(unit_rms(x), x, 1)


# Identities -------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-1000, -500, -301, -1, 1, 302, 700, 1000])
@pytest.mark.parametrize("axis", [-1, 0])
def test_unit_rms_times_power_of_two_gives_same_bits(exponent, axis):
    x = np.random.default_rng(1).uniform(1, 2, (5, 37))
    assert_same_bits(unit_rms(np.ldexp(x, exponent), axis=axis), unit_rms(x, axis=axis))


@pytest.mark.parametrize("exponent", [-1070, -1060, -1040])
def test_unit_rms_subnormal_row_gives_bits_of_its_integers(exponent):
    x = np.random.default_rng(1).integers(1, 2**20, (5, 37)).astype(np.float64)
    assert_same_bits(unit_rms(np.ldexp(x, exponent)), unit_rms(x))


@pytest.mark.parametrize("exponent", [-140, -60, 1, 60, 100])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=name_of)
def test_unit_rms_narrow_times_power_of_two_gives_same_bits(exponent, dtype):
    whole = np.random.default_rng(1).integers(1, 128, (5, 37)).astype(np.float32)
    if dtype == BFLOAT16 and exponent < -133:
        exponent = -133
    scaled = np.ldexp(whole, exponent).astype(dtype)
    assert_same_bits(unit_rms(scaled), unit_rms(whole.astype(dtype)))


@both_functions
@every_kind
def test_scaling_of_negated_rows_is_negated(dtype, scale):
    x = nonzero((3, 37), dtype)
    assert_same_bits(scale(-x), -scale(x))


@pytest.mark.parametrize("value", [0.1, -1 / 3, 5e-324, 1e-310, 1.797e308, 1e200])
@pytest.mark.parametrize("length", [1, 3, 100])
def test_unit_rms_constant_row_is_ones(value, length):
    np.testing.assert_array_equal(unit_rms(np.full(length, value)), np.full(length, np.sign(value)))


@pytest.mark.parametrize("value", [0.1, 1e-45, 3e38])
def test_unit_rms_constant_float32_row_is_ones(value):
    np.testing.assert_array_equal(unit_rms(np.full((2, 9), value, np.float32)), np.ones((2, 9)))


def test_scale_to_rms_of_target_one_is_unit_rms():
    x = make((5, 37), np.float64)
    assert_same_bits(scale_to_rms(x, 1), unit_rms(x))


def test_scale_to_rms_of_its_own_size_is_the_row():
    # A row (v, -v) has RMS |v| exactly.
    v = np.random.default_rng(3).standard_normal(50)
    x = np.stack([v, -v], axis=1)
    assert_same_bits(scale_to_rms(x, np.abs(v)), x)


# Targets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [float, int, np.float32, np.float64, np.array, lambda t: [t]])
def test_scale_to_rms_target_may_be_any_number(kind):
    x = make((1, 7), np.float64)
    assert_same_bits(scale_to_rms(x, kind(3)), scale_to_rms(x, 3.0))


@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (4, 5)])
@pytest.mark.parametrize("layout", [plain, fortran, strided])
def test_scale_to_rms_target_is_broadcast_to_the_result_of_rms(shape, layout):
    x = layout(make((4, 5, 6), np.float64))
    target = np.asarray(1 + np.arange(math.prod(shape), dtype=np.float64).reshape(shape))
    result = scale_to_rms(x, target)
    whole = np.broadcast_to(target, (4, 5))
    for i, j in itertools.product(range(4), range(5)):
        assert_same_bits(result[i, j], scale_to_rms(x[i, j].copy(), whole[i, j]))


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 0)])
def test_scale_to_rms_target_belongs_to_the_axes_that_stay(axis):
    x = make((3, 4, 5), np.float64)
    target = 1.0 + np.arange(np.size(rms(x, axis=axis))).reshape(np.shape(rms(x, axis=axis)))
    result = scale_to_rms(x, target, axis=axis)
    np.testing.assert_array_max_ulp(rms(result, axis=axis), target, 1)


def test_scale_to_rms_target_of_zero_gives_zeros():
    np.testing.assert_array_equal(scale_to_rms([[3.0, -4.0]], 0.0), [[0.0, 0.0]])


def test_scale_to_rms_target_of_nan_gives_nan_in_its_row_alone():
    result = scale_to_rms([[3.0, -3.0], [2.0, 2.0]], [np.nan, 1.0])
    np.testing.assert_array_equal(result, [[np.nan, np.nan], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("target", "exception", "message"),
    [
        ([1.0, 2.0], ValueError, "target must be broadcastable to shape (3,), got shape (2,)"),
        (np.ones((3, 1)), ValueError,
         "target must be broadcastable to shape (3,), got shape (3, 1)"),
        (1j, TypeError, "target must be real, got dtype complex128"),
        (None, TypeError, None),
        ("big", TypeError, None),
    ],
)  # fmt: skip
def test_scale_to_rms_target_that_does_not_fit_is_refused(target, exception, message):
    with pytest.raises(exception) as refusal:
        scale_to_rms(np.ones((3, 4)), target)
    text = str(refusal.value)
    assert text.startswith("scale_to_rms: target must ")
    assert "\n" not in text
    assert message is None or text == f"scale_to_rms: {message}"


# Zero rows --------------------------------------------------------------------------------------


@both_functions
@every_kind
@pytest.mark.parametrize("axis", [-1, 0])
def test_scaling_zero_rows_are_refused_with_count_and_first_index(dtype, axis, scale):
    x = nonzero((6, 37), dtype)
    x[2] = x[4] = np.zeros((), dtype)
    given, name = (x if axis == -1 else x.T), ("scale_to_rms", "unit_rms")[scale is unit_rms]
    actual = "got 2 zero rows, the first at index (2,)"
    message = f"{name}: x must be nonzero under zero='raise', {actual}"
    out = np.full(given.shape, 7, storage(dtype))
    before = out.tobytes()
    assert_refused(lambda: scale(given, axis=axis), ValueError, message)
    assert_refused(lambda: scale(given, axis=axis, out=out), ValueError, message)
    assert out.tobytes() == before


@pytest.mark.parametrize("axis", [-1, 1, (0, 2)])
def test_unit_rms_first_zero_row_has_the_index_of_the_result_of_rms(axis):
    x = fortran(make((3, 4, 5), np.float64))
    at = {-1: (slice(None), 2), 1: (1, slice(None), slice(2, 4)), (0, 2): (slice(None), 3)}[axis]
    x[at] = 0
    zero = np.argwhere(rms(x, axis=axis) == 0)
    count, first = len(zero), tuple(zero[0].tolist())
    with pytest.raises(
        ValueError, match=rf"got {count} zero rows?, the first at index "
    ) as refusal:
        unit_rms(x, axis=axis)
    assert str(refusal.value).endswith(f"index {first}")


@pytest.mark.parametrize(("x", "axis"), [(np.zeros(4), -1), (np.zeros((2, 2)), None), (0.0, -1)])
def test_unit_rms_one_zero_vector_is_refused_without_an_index(x, axis):
    message = r"^unit_rms: x must be nonzero under zero='raise', got 1 zero rows?$"
    with pytest.raises(ValueError, match=message):
        unit_rms(x, axis=axis)


@pytest.mark.parametrize("n", [1, 100_003])
def test_unit_rms_in_place_refusal_leaves_x_untouched(n):
    x = np.ones((n + 1, 7), np.float32)
    x[-1] = 0
    before = x.copy()
    with pytest.raises(ValueError, match=rf"got 1 zero rows?, the first at index \({n},\)"):
        unit_rms(x, out=x)
    assert_same_bits(x, before)


@both_functions
@every_kind
@pytest.mark.parametrize(("zero", "fill"), [("zero", 0.0), ("nan", np.nan)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_scaling_zero_rows_are_filled_as_asked(dtype, axis, zero, fill, scale):
    x = nonzero((4, 37), dtype)
    expected = scale(x).astype(np.complex64 if dtype.kind == "c" else np.float64)
    x[1] = np.zeros((), dtype)
    result = scale(x, zero=zero) if axis == -1 else scale(x.T, zero=zero, axis=0).T
    wide = result.astype(expected.dtype)
    if dtype.kind == "c":
        assert np.isnan(wide[1]).all() if zero == "nan" else not wide[1].any()
    else:
        np.testing.assert_array_equal(wide[1], np.full(37, fill))
    np.testing.assert_array_equal(wide[[0, 2, 3]], expected[[0, 2, 3]])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_unit_rms_zeros_of_either_sign_have_the_same_bits_in_any_layout(dtype):
    x = np.array([[0.0, -0.0, 0.0], [-0.0, -0.0, -0.0]]).astype(storage(dtype))
    expected = unit_rms(x, zero="zero")
    assert_same_bits(np.ascontiguousarray(unit_rms(fortran(x), zero="zero")), expected)
    assert_same_bits(unit_rms(np.ascontiguousarray(x.T), axis=0, zero="zero").T.copy(), expected)


def test_unit_rms_row_that_is_merely_tiny_is_no_zero_row():
    np.testing.assert_array_equal(unit_rms([0.0, 0.0, 0.0, 5e-324]), [0, 0, 0, 2])
    # The RMS itself rounds to 0.
    x = np.zeros(64)
    x[5] = 5e-324
    assert rms(x) == 0
    assert unit_rms(x)[5] == 8


def test_unit_rms_zeros_of_either_sign_make_a_zero_row():
    with pytest.raises(ValueError, match="1 zero row"):
        unit_rms([[0.0, -0.0], [1.0, 0.0]])


def test_unit_rms_kept_zeros_make_a_zero_row():
    x, where = np.array([[0.0, 0.0, 5.0], [3.0, 3.0, 5.0]]), [True, True, False]
    with pytest.raises(ValueError, match=r"got 1 zero rows?, the first at index \(0,\)"):
        unit_rms(x, where=where)
    np.testing.assert_array_equal(unit_rms(x, where=where, zero="nan")[0], [np.nan] * 3)
    np.testing.assert_array_equal(unit_rms(x, where=where, zero="zero")[0], [0.0] * 3)
    np.testing.assert_array_equal(unit_rms(x, where=where, zero="zero")[1], [1, 1, 5 / 3])


@pytest.mark.parametrize("value", [np.inf, np.nan, -np.inf])
def test_unit_rms_zero_row_filled_with_zero_hides_values_that_are_left_out(value):
    x = np.array([[0.0, 0.0, value]])
    result = unit_rms(x, where=[True, True, False], zero="zero")
    np.testing.assert_array_equal(result, [[0.0, 0.0, 0.0]])


# Not finite -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", [*FLOATS, BFLOAT16], ids=name_of)
def test_unit_rms_row_with_nan_is_nan(dtype, axis):
    x = nonzero((4, 37), dtype)
    expected = unit_rms(x)
    x[1, 5] = x[2, 0] = np.nan
    x[2, 1] = np.inf
    result = unit_rms(x) if axis == -1 else unit_rms(x.T, axis=0).T
    assert np.isnan(result[1:3].astype(np.float32)).all()
    assert_same_bits(result[[0, 3]], expected[[0, 3]])


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", [*FLOATS, BFLOAT16], ids=name_of)
def test_unit_rms_row_with_infinity_is_zero_beside_nan(dtype, axis):
    # As x / inf in IEEE arithmetic.
    x = np.array([[1.0, -2.0, np.inf, 0.0], [-np.inf, 3.0, -4.0, np.inf]]).astype(dtype)
    result = unit_rms(x) if axis == -1 else unit_rms(x.T.copy(), axis=0).T
    expected = np.array([[0.0, -0.0, np.nan, 0.0], [np.nan, 0.0, -0.0, np.nan]])
    np.testing.assert_array_equal(result.astype(np.float64), expected)


def test_scaling_special_rows_come_with_their_rms():
    x = np.array([[np.nan, 1.0], [np.inf, 1.0], [0.0, 0.0], [3.0, 3.0]])
    _, sizes = unit_rms(x, zero="nan", return_rms=True)
    np.testing.assert_array_equal(sizes, [np.nan, np.inf, 0.0, 3.0])


# where and masks --------------------------------------------------------------------------------


@every_kind
def test_unit_rms_where_makes_the_size_and_scales_the_whole_row(dtype):
    x = nonzero((3, 37), dtype)
    where = np.random.default_rng(7).random((3, 37)) < 0.6
    where[:, 0] = True
    result, sizes = unit_rms(x, where=where, return_rms=True)
    for values, row, kept in zip(result, x, where, strict=True):
        assert_scaled(values, row, 0.51, kept=kept)
    assert_same_bits(sizes, rms(x, where=where))


@pytest.mark.parametrize("shape", [(1,), (7,), (5, 1), (6, 5, 7), (6, 1, 1)])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_unit_rms_where_is_broadcast(shape, axis):
    x = make((6, 5, 7), np.float64)
    where = np.random.default_rng(5).random(shape) < 0.8
    whole = np.broadcast_to(where, x.shape).copy()
    options = {"axis": axis, "zero": "nan"}
    assert_same_bits(unit_rms(x, where=where, **options), unit_rms(x, where=whole, **options))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_unit_rms_where_of_one_complex_value_scales_both_its_parts(shape):
    x = np.full(shape, 3.0 + 4.0j)
    out = np.full(shape, 7.0 + 7.0j)
    unit_rms(x, where=True, out=out)
    np.testing.assert_array_max_ulp(out.reshape(-1).view(np.float64), np.array([0.6, 0.8]), 1)


def test_unit_rms_where_of_all_true_gives_bits_of_none():
    x = make((5, 37), np.float64)
    assert_same_bits(unit_rms(x, where=True), unit_rms(x))


@pytest.mark.parametrize("zero", ["raise", "zero", "nan"])
def test_unit_rms_where_leaving_nothing_gives_nan_not_a_zero_row(zero):
    x = np.array([[1.0, 2.0], [3.0, 3.0]])
    result, sizes = unit_rms(x, where=[[False], [True]], zero=zero, return_rms=True)
    np.testing.assert_array_equal(result, [[np.nan, np.nan], [1.0, 1.0]])
    np.testing.assert_array_equal(sizes, [np.nan, 3.0])


def test_unit_rms_values_left_out_do_not_spoil_the_row():
    x = np.array([[2.0, np.nan, -2.0, np.inf]])
    result = unit_rms(x, where=[True, False, True, False])
    np.testing.assert_array_equal(result, [[1.0, np.nan, -1.0, np.inf]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=name_of)
def test_unit_rms_masked_array_is_where_not_mask(dtype):
    x, mask = make((4, 37), dtype), np.random.default_rng(5).random((4, 37)) < 0.4
    masked = np.ma.array(x, mask=mask)
    result = unit_rms(masked)
    assert type(result) is np.ndarray
    assert_same_bits(result, unit_rms(x, where=~mask))
    second = np.arange(37) % 3 > 0
    assert_same_bits(unit_rms(masked, where=second), unit_rms(x, where=~mask & second))


@both_functions
@pytest.mark.parametrize(
    ("where", "exception"),
    [
        (np.ones(4, int), TypeError),
        (np.ones(3, bool), ValueError),
        (np.ones((2, 3, 4), bool), ValueError),
    ],
)
def test_scaling_where_that_does_not_fit_is_refused(where, exception, scale):
    message = r"^(unit_rms|scale_to_rms): where must [^\n]+, got [^\n]+$"
    with pytest.raises(exception, match=message):
        scale(np.ones((3, 4)), where=where)


# Shapes and axes --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (-1, 0), (1, 2), (0, 1, 2), None, np.int64(1)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16], ids=name_of)
def test_unit_rms_any_axis_of_any_layout_gives_bits_of_rows(dtype, axis):
    x = nonzero((5, 6, 7), dtype)
    reduced = {int(a) % 3 for a in ((0, 1, 2) if axis is None else np.atleast_1d(axis).tolist())}
    order = [k for k in range(3) if k not in reduced] + sorted(reduced)
    rows = x.transpose(order).reshape(-1, math.prod(x.shape[k] for k in reduced))
    expected = unit_rms(rows.copy()).reshape([x.shape[k] for k in order])
    expected = expected.transpose(np.argsort(order))
    for layout in LAYOUTS.values():
        if layout is not LAYOUTS["repeated"]:
            assert_same_bits(unit_rms(layout(x), axis=axis), expected)


@pytest.mark.parametrize("dtype", KINDS, ids=name_of)
@pytest.mark.parametrize("shape", [(17, 5), (1025, 30), (16385, 9), (3, 300)])
def test_unit_rms_columns_give_bits_of_rows(dtype, shape):
    x = nonzero(shape, dtype)
    x[0] = 1
    result, sizes = unit_rms(x, axis=0, return_rms=True)
    rows, row_sizes = unit_rms(np.ascontiguousarray(x.T), return_rms=True)
    assert_same_bits(result, rows.T)
    assert_same_bits(sizes, row_sizes)


@pytest.mark.parametrize("x", [np.float64(-5.0), -5.0, -5, np.array(-5.0)], ids=repr)
@pytest.mark.parametrize("axis", [None, -1, 0, (0,)])
def test_unit_rms_number_is_a_vector_of_one_coordinate(x, axis):
    result, size = unit_rms(x, axis=axis, return_rms=True)
    assert_same_bits(result, np.float64(-1.0))
    assert_same_bits(size, np.float64(5.0))
    assert np.shape(scale_to_rms(x, 3.0, axis=axis)) == ()


def test_unit_rms_number_of_any_float_dtype_keeps_it():
    for dtype in FLOATS + COMPLEX:
        assert unit_rms(dtype.type(3)) == 1
        assert unit_rms(dtype.type(3)).dtype == dtype


@pytest.mark.parametrize(
    ("shape", "axis"), [((0, 4), -1), ((0, 0), -1), ((0, 0), 0), ((4, 0), 0), ((2, 0, 0), 1)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, BFLOAT16])
@both_functions
def test_scaling_without_rows_needs_no_coordinates(shape, axis, dtype, scale):
    result, sizes = scale(np.empty(shape, dtype), axis=axis, return_rms=True)
    assert (result.shape, result.dtype) == (shape, storage(dtype))
    assert_same_bits(sizes, rms(np.empty(shape, dtype), axis=axis))


@pytest.mark.parametrize(("shape", "axis"), [((2, 0), -1), ((0,), -1), ((0, 3), 0), ((3, 0), None)])
@both_functions
def test_scaling_empty_vector_is_refused(shape, axis, scale):
    with pytest.raises(ValueError, match=r"^(unit_rms|scale_to_rms): x must .+, got [^\n]+$"):
        scale(np.empty(shape), axis=axis)


# Layouts and threads ----------------------------------------------------------------------------


@every_layout
@pytest.mark.parametrize("axis", [-1, 0, None])
@every_kind
def test_unit_rms_any_layout_gives_bits_of_the_c_copy(dtype, axis, layout):
    view = layout(nonzero((6, 37), dtype))
    before, flags = view.tobytes("A"), str(view.flags)
    result, sizes = unit_rms(view, axis=axis, zero="nan", return_rms=True)
    expected, wanted = unit_rms(plain(view), axis=axis, zero="nan", return_rms=True)
    assert_same_bits(result, expected)
    assert_same_bits(sizes, wanted)
    assert (view.tobytes("A"), str(view.flags)) == (before, flags)


@given(arrays(dtypes=[np.dtype(np.float64), np.dtype(np.float32), BFLOAT16]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_unit_rms_any_array_gives_bits_of_the_c_copy(view):
    assert_same_bits(unit_rms(view, zero="nan"), unit_rms(plain(view), zero="nan"))


@given(arrays(dtypes=[np.dtype(np.float64)], min_dims=1, max_dims=1, max_side=20, finite=True))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_unit_rms_any_finite_row_is_within_an_ulp_of_exact(x):
    if x.any():
        assert_scaled(unit_rms(x), x, 1)


def test_unit_rms_row_by_row_gives_same_bits():
    x = make((9, 2000), np.float64)
    assert_same_bits(unit_rms(x), np.array([unit_rms(row) for row in x]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("length", [9, 83])
def test_unit_rms_unusual_rows_among_others_give_bits_of_each_alone(dtype, length):
    x = nonzero((29, length), dtype)
    x[3], x[9, 5], x[12, 7] = 0, np.nan, np.inf
    x[18], x[19] = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    expected = np.array([unit_rms(row, zero="nan") for row in x])
    assert_same_bits(unit_rms(x, zero="nan"), expected)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((3, 200_003), -1), ((700, 1031), -1), ((1031, 700), 0), ((3, 200_003), None)],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=name_of)
def test_unit_rms_any_thread_count_gives_same_bits(dtype, shape, axis, monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1 << 20)
    x = make(shape, dtype)
    serial, sizes = unit_rms(x, axis=axis, threads=1, return_rms=True)
    for threads in (2, None):
        result, again = unit_rms(x, axis=axis, threads=threads, return_rms=True)
        assert_same_bits(result, serial)
        assert_same_bits(again, sizes)
    if axis == 0:
        assert_same_bits(unit_rms(np.ascontiguousarray(x.T), threads=1).T, serial)


# Results past the caches ------------------------------------------------------------------------

# (dtype, length of rows): not a divisor of a cache line, so that rows start at each place in one.
LARGE = [(np.float64, 509), (np.float32, 1021), (np.float32, 7), (BFLOAT16, 2039)]
LARGE += [(np.dtype(ml_dtypes.float8_e5m2), 4093), (np.float16, 2039)]
every_large = pytest.mark.parametrize(("dtype", "length"), LARGE, ids=str)


def large(dtype, length):
    """Rows of more than 4 MiB together."""
    rows = (9 << 19) // (length * np.dtype(dtype).itemsize) + 1
    return nonzero((rows, length), dtype, seed=length)


def in_pieces(function, x):
    """The result from pieces too small for another way of writing."""
    step = max(1, (1 << 18) // x[:1].nbytes)
    return np.concatenate([function(x[k : k + step]) for k in range(0, len(x), step)])


@every_large
@pytest.mark.parametrize("threads", [1, 2])
def test_unit_rms_large_result_gives_bits_of_small_ones(dtype, length, threads):
    x = large(dtype, length)
    expected = in_pieces(lambda piece: unit_rms(piece, threads=1), x)
    for out in (None, np.empty_like(x)):
        assert_same_bits(unit_rms(x, out=out, threads=threads), expected)


@pytest.mark.parametrize("offset", range(18))
@pytest.mark.parametrize(("dtype", "length"), [*LARGE[:2], LARGE[3], LARGE[5]], ids=str)
def test_unit_rms_large_result_starting_anywhere_is_complete(dtype, length, offset):
    x = large(dtype, length)
    memory = np.full(x.size + 64, 7, x.dtype)
    out = memory[offset : offset + x.size].reshape(x.shape)
    assert unit_rms(x, out=out) is out
    assert_same_bits(out, in_pieces(lambda piece: unit_rms(piece, threads=1), x))
    assert (memory[:offset] == 7).all()
    assert (memory[offset + x.size :] == 7).all()


@pytest.mark.parametrize("offset", [0, 1, 3])
@pytest.mark.parametrize(("dtype", "length"), [LARGE[0], LARGE[1], LARGE[3]], ids=str)
def test_unit_rms_large_in_place_gives_bits_of_small_ones(dtype, length, offset):
    x = large(dtype, length)
    expected = in_pieces(lambda piece: unit_rms(piece, threads=1), x)
    memory = np.empty(x.size + 64, x.dtype)
    place = memory[offset : offset + x.size].reshape(x.shape)
    place[...] = x
    assert unit_rms(place, out=place) is place
    assert_same_bits(place, expected)


@pytest.mark.parametrize("order", [1, -1])
def test_unit_rms_large_rows_apart_leave_what_lies_between_alone(order):
    x = large(np.float32, 1021)
    memory = np.full((len(x), 1021 + 5), 7, np.float32)
    out = memory[::order, 3:-2]
    unit_rms(x, out=out)
    assert_same_bits(out, in_pieces(lambda piece: unit_rms(piece, threads=1), x))
    assert (memory[:, :3] == 7).all()
    assert (memory[:, -2:] == 7).all()


def test_unit_rms_large_columns_give_bits_of_rows():
    x = nonzero((1500, 801), np.float32)
    expected = in_pieces(unit_rms, np.ascontiguousarray(x.T)).T
    assert_same_bits(unit_rms(x, axis=0), expected)
    assert_same_bits(unit_rms(fortran(x), axis=0), expected)


def test_unit_rms_long_vector_in_place_gives_bits_of_serial():
    x = make((1_300_003,), np.float32)
    expected = unit_rms(x, threads=1)
    assert unit_rms(x, out=x) is x
    assert_same_bits(x, expected)


# out --------------------------------------------------------------------------------------------


@both_functions
@every_kind
@pytest.mark.parametrize("axis", [-1, 0, None])
def test_scaling_out_apart_is_filled_and_returned(dtype, axis, scale):
    x = nonzero((4, 37), dtype)
    expected = scale(x, axis=axis)
    out = np.full(x.shape, 7, storage(dtype))
    assert scale(x, axis=axis, out=out) is out
    assert_same_bits(out, expected)


@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("layout", ["c", "fortran", "strided", "reversed", "transposed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_unit_rms_in_place_gives_bits_of_apart(dtype, layout, axis):
    x = LAYOUTS[layout](nonzero((4, 37), dtype))
    expected, sizes = unit_rms(x, axis=axis, return_rms=True)
    result, again = unit_rms(x, axis=axis, out=x, return_rms=True)
    assert result is x
    assert_same_bits(x, expected)
    assert_same_bits(again, sizes)


@pytest.mark.parametrize("axis", [-1, 0, (0, 2)])
@pytest.mark.parametrize("layout", ["c", "fortran", "strided", "reversed", "transposed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_unit_rms_out_of_any_layout_is_filled(dtype, layout, axis):
    x = nonzero((4, 5, 17), dtype)
    out = LAYOUTS[layout](np.full(x.shape, 7, dtype))
    assert unit_rms(x, axis=axis, out=out) is out
    assert_same_bits(out, unit_rms(x, axis=axis))


def test_unit_rms_strided_out_leaves_what_lies_between_alone():
    memory = np.full((4, 37, 2), 7.0)
    x = make((4, 37), np.float64)
    unit_rms(x, out=memory[..., 0])
    assert_same_bits(memory[..., 0], unit_rms(x))
    assert (memory[..., 1] == 7).all()


def test_unit_rms_out_between_the_elements_of_x_is_taken():
    memory = make((4, 37, 2), np.float64)
    expected = unit_rms(memory[..., 0].copy())
    unit_rms(memory[..., 0], out=memory[..., 1])
    assert_same_bits(memory[..., 1], expected)


@pytest.mark.parametrize("where", [None, True])
def test_unit_rms_out_that_is_where_in_place_scales_by_the_old_values(where):
    x = make((3, 40_000), np.float64)
    expected = unit_rms(x.copy(), where=where)
    unit_rms(x, where=where, out=x)
    assert_same_bits(x, expected)


def test_unit_rms_of_a_repeated_row_writes_every_row():
    x = np.broadcast_to(np.array([3.0, 4.0, 0.0, 0.0]), (5, 4))
    np.testing.assert_array_equal(unit_rms(x), [[1.2, 1.6, 0, 0]] * 5)
    assert not x.flags.writeable


def test_unit_rms_number_into_out_is_written():
    out = np.array(7.0)
    result = unit_rms(-5.0, out=out)
    assert out == -1.0
    assert result is out


def test_unit_rms_out_with_dtype_takes_that_dtype():
    x, out = make((4, 37), np.float64), np.zeros((4, 37), np.float16)
    assert unit_rms(x, dtype="float16", out=out) is out
    assert_same_bits(out, unit_rms(x, dtype=np.float16))


def test_unit_rms_out_of_another_dtype_at_the_place_of_x_is_refused():
    x = np.ones((4, 8))
    out = x.view(np.float32)[:, :8]
    with pytest.raises(ValueError, match=r"^unit_rms: out must .+, got partial overlap$"):
        unit_rms(x, dtype=np.float32, out=out)


OVERLAPPING = {
    "shifted": lambda m: (m[:30].reshape(5, 6), m[1:31].reshape(5, 6)),
    "shifted rows": lambda m: (m[:30].reshape(5, 6), m[6:36].reshape(5, 6)),
    "reversed": lambda m: (m[:36].reshape(6, 6), m[:36].reshape(6, 6)[::-1]),
    "transposed": lambda m: (m[:36].reshape(6, 6), m[:36].reshape(6, 6).T),
}


@both_functions
@pytest.mark.parametrize("pair", OVERLAPPING.values(), ids=OVERLAPPING)
def test_scaling_out_that_overlaps_x_in_part_is_refused(pair, scale):
    memory = make((64,), np.float64)
    before = memory.copy()
    x, out = pair(memory)
    match = r"^(unit_rms|scale_to_rms): out must be x itself or apart from it, got partial overlap$"
    with pytest.raises(ValueError, match=match):
        scale(x, out=out)
    assert_same_bits(memory, before)


@both_functions
@pytest.mark.parametrize(
    ("out", "exception", "requirement"),
    [
        (np.full((3, 5), 7.0), ValueError, r"have shape \(3, 4\), got \(3, 5\)"),
        (np.full(4, 7.0), ValueError, r"have shape \(3, 4\), got \(4,\)"),
        (np.full((3, 4), 7, np.float32), TypeError, "have dtype float64, got float32"),
        (np.full((3, 4), 7, np.int64), TypeError, "have dtype float64, got int64"),
        (np.full((3, 4), 7, ">f8"), (TypeError, ValueError), ".+, got .+"),
        (LAYOUTS["unaligned"](np.full((3, 4), 7.0)), ValueError, "be aligned.+, got .+"),
        (LAYOUTS["read_only"](np.full((3, 4), 7.0)), ValueError, "be writeable, got .+"),
        ([[0.0] * 4] * 3, TypeError, "be a numpy array, got list"),
    ],
)
def test_scaling_out_that_does_not_fit_is_refused(out, exception, requirement, scale):
    before = np.asarray(out).tobytes()
    with pytest.raises(exception, match=rf"^(unit_rms|scale_to_rms): out must {requirement}$"):
        scale(np.ones((3, 4)), out=out)
    assert np.asarray(out).tobytes() == before


# dtype, format and codes ------------------------------------------------------------------------


@pytest.mark.parametrize("format", CODED)
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("layout", ["c", "fortran", "strided", "reversed"])
def test_unit_rms_codes_come_back_as_codes(format, axis, layout):
    x = nonzero((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    x[0] = 1
    expected = unit_rms(x, axis=axis)
    codes = LAYOUTS[layout](x.view(CODED[format]))
    assert_same_bits(unit_rms(codes, axis=axis, format=format), expected.view(CODED[format]))


@pytest.mark.parametrize("format", CODED)
def test_unit_rms_void_codes_come_back_as_void(format):
    x = nonzero((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    void = x.view(f"V{x.itemsize}")
    result = unit_rms(void, format=format)
    assert result.dtype == void.dtype
    assert_same_bits(result.view(CODED[format]), unit_rms(x).view(CODED[format]))


@pytest.mark.parametrize("format", CODED)
def test_unit_rms_records_named_after_a_format_come_back_as_such(format):
    x = nonzero((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    code = np.dtype(CODED[format])
    records = x.view([(format, code)])
    for stored in (records, records.astype([(format, code.newbyteorder("S"))])):
        result = unit_rms(stored)
        assert result.dtype == records.dtype
        assert_same_bits(result.view(x.dtype), unit_rms(x))
    assert unit_rms(records, out=records) is records
    assert_same_bits(records.view(x.dtype), unit_rms(x))


@pytest.mark.parametrize("dtype", ["V2", [("bfloat16", np.uint16)]], ids=["void", "record"])
def test_unit_rms_codes_of_a_row_of_zeros_become_zero_whatever_is_left_out(dtype):
    x = np.array([[0, 0, np.nan], [1, 1, 5]], BFLOAT16).view(dtype)
    where = [True, True, False]
    result = unit_rms(x, where=where, zero="zero", format="bfloat16").view(BFLOAT16)
    np.testing.assert_array_equal(result, [[0, 0, 0], [1, 1, 5]])


@pytest.mark.parametrize("format", CODED)
def test_unit_rms_array_of_a_format_that_is_named_keeps_its_dtype(format):
    x = nonzero((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    assert_same_bits(unit_rms(x, format=format), unit_rms(x))


def test_unit_rms_codes_into_out_are_written_as_codes():
    codes = nonzero((6, 37), BFLOAT16).view(np.uint16)
    out = np.zeros_like(codes)
    assert unit_rms(codes, format="bfloat16", out=out) is out
    assert_same_bits(out, unit_rms(codes, format="bfloat16"))
    assert unit_rms(codes, format="bfloat16", out=codes) is codes
    assert_same_bits(codes, out)


def test_unit_rms_codes_of_foreign_byte_order_come_back_native():
    codes = nonzero((6, 37), BFLOAT16).view(np.uint16)
    result = unit_rms(codes.astype(">u2"), format="bfloat16")
    assert result.dtype.isnative
    assert_same_bits(result, unit_rms(codes, format="bfloat16"))


def test_unit_rms_codes_with_dtype_give_that_dtype():
    x = nonzero((6, 37), BFLOAT16)
    result = unit_rms(x.view(np.uint16), format="bfloat16", dtype=np.float32)
    assert_same_bits(result, unit_rms(x, dtype=np.float32))


@pytest.mark.parametrize("dtype", ["complex128", np.complex64, ">c16"])
def test_unit_rms_complex_dtype_argument_names_the_result(dtype):
    x = make((3, 17), np.complex64)
    result = unit_rms(x, dtype=dtype)
    assert result.dtype == np.dtype(dtype).newbyteorder("=")
    for values, row in zip(result, x, strict=True):
        assert_scaled(values, row, 0.51)


@both_functions
@pytest.mark.parametrize(
    ("x", "dtype", "message"),
    [
        (np.ones(3), "int16", "be a real floating dtype of at most 64 bits, got int16"),
        (np.ones(3), "complex64", "be a real floating dtype of at most 64 bits, got complex64"),
        (np.ones(3), "no such", "be a real floating dtype, got 'no such'"),
        (np.ones(3, "c8"), "float32", "be complex where x is, got float32"),
        (np.ones(3, "c8"), "bfloat16", "be complex where x is, got bfloat16"),
        (np.ones(3, "c8"), "no such", "be complex where x is, got 'no such'"),
    ],
)  # fmt: skip
def test_scaling_dtype_that_does_not_fit_is_refused(x, dtype, message, scale):
    name = "unit_rms" if scale is unit_rms else "scale_to_rms"
    assert_refused(lambda: scale(x, dtype=dtype), TypeError, f"{name}: dtype must {message}")


@both_functions
@pytest.mark.parametrize(
    ("options", "exception", "requirement"),
    [
        ({"zero": "ieee"}, ValueError, r"zero must be one of 'raise', 'zero', 'nan', got 'ieee'"),
        ({"zero": None}, ValueError, r"zero must be one of 'raise', 'zero', 'nan', got None"),
        ({"axis": 2}, AxisError, r"axis must be in \[-2, 2\), got 2"),
        ({"axis": (0, -2)}, ValueError, r"axis must name each axis once, got \(0, -2\)"),
        ({"axis": 0.5}, TypeError, r"axis must be an int, a tuple of ints or None, got 0.5"),
        ({"threads": 0}, ValueError, "threads must be None or an int >= 1, got 0"),
        ({"threads": 1.5}, TypeError, "threads must be None or an int >= 1, got 1.5"),
        ({"format": "float12"}, ValueError, "format must be None or one of .+, got 'float12'"),
        ({"format": "bfloat16"}, TypeError, "x must hold codes of 16 bits .+, got float64"),
    ],
)  # fmt: skip
def test_scaling_option_that_does_not_fit_is_refused(options, exception, requirement, scale):
    out = np.full((3, 4), 7.0)
    with pytest.raises(exception, match=rf"^(unit_rms|scale_to_rms): {requirement}$"):
        scale(np.ones((3, 4)), out=out, **options)
    assert (out == 7).all()


@both_functions
@pytest.mark.parametrize(
    "x", [np.array(["a"]), np.ones(3, np.longdouble), np.array(["2020"], "M8[D]"), [[1, 2], [3]],
          np.array([1, None])],
    ids=["str", "longdouble", "datetime", "ragged", "object"],
)  # fmt: skip
def test_scaling_of_what_is_no_array_of_numbers_is_refused(x, scale):
    with pytest.raises((TypeError, ValueError), match=r"^(unit_rms|scale_to_rms): x must [^\n]+$"):
        scale(x)


# return_rms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
@pytest.mark.parametrize("layout", [plain, fortran, strided])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_unit_rms_return_rms_is_what_rms_gives(dtype, layout, axis):
    x = layout(nonzero((4, 5, 6), dtype))
    result, sizes = unit_rms(x, axis=axis, return_rms=True)
    assert_same_bits(sizes, rms(x, axis=axis))
    assert type(sizes) is type(rms(x, axis=axis))
    assert_same_bits(result, unit_rms(x, axis=axis))


def test_scale_to_rms_return_rms_is_that_of_x_not_of_the_result():
    result, sizes = scale_to_rms([[3.0, 4.0, 0.0, 0.0]], 5.0, return_rms=True)
    np.testing.assert_array_equal(sizes, [2.5])
    np.testing.assert_array_equal(result, [[6.0, 8.0, 0.0, 0.0]])


def test_unit_rms_return_rms_with_narrower_dtype_is_that_of_rms():
    x = make((4, 37), np.float64)
    _, sizes = unit_rms(x, dtype="float32", return_rms=True)
    assert_same_bits(sizes, rms(x))


# Containers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [[3, 4], (3.0, -4.0), [[3, 4], [6, 8]], [True, False], range(1, 4)])
def test_unit_rms_sequence_is_taken_as_array(x):
    assert_same_bits(unit_rms(x), unit_rms(np.asarray(x)))
    assert unit_rms(x).dtype == np.float64


def test_unit_rms_pandas_is_taken_by_position():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"b": [3.0, 6.0], "a": [4.0, 8.0]}, index=[7, 3])
    result = unit_rms(frame)
    assert type(result) is np.ndarray
    assert_same_bits(result, unit_rms(np.array([[3.0, 4.0], [6.0, 8.0]])))


def test_unit_rms_memory_map_gives_an_ordinary_array(tmp_path):
    x = make((50, 70), np.float32)
    (tmp_path / "odd.bin").write_bytes(b"\0" + x.tobytes())
    mapped = np.memmap(tmp_path / "odd.bin", x.dtype, "r", offset=1, shape=x.shape)
    result = unit_rms(mapped)
    assert not isinstance(result, np.memmap)
    assert_same_bits(result, unit_rms(x))


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
def test_unit_rms_torch_tensor_gives_bits_of_the_array(name):
    torch = pytest.importorskip("torch")
    x = make((6, 37), np.dtype(getattr(ml_dtypes, name, name)))
    tensor = torch.from_numpy(x.astype(np.float64)).to(getattr(torch, name))
    assert_same_bits(unit_rms(tensor), unit_rms(x))
    assert_same_bits(unit_rms(tensor.T, axis=0), unit_rms(x).T)


def test_unit_rms_read_only_rows_are_right_and_stay_so():
    y = np.arange(6.0).reshape(2, 3)
    y.setflags(write=False)
    expected = [np.arange(3) / math.sqrt(5 / 3), np.arange(3, 6) / math.sqrt(50 / 3)]
    np.testing.assert_array_max_ulp(unit_rms(y), np.array(expected), 1)
    np.testing.assert_array_equal(y, [[0, 1, 2], [3, 4, 5]])
    assert not y.flags.writeable
