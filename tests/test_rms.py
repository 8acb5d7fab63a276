"""`rms` against exact arithmetic, over every dtype, layout, size and range."""

import json
import subprocess
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import mean_square, rounded_root, ulp_error
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import (
    CASE_IDS,
    CASES,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    LAYOUTS,
    NARROW,
    arrays,
    assert_same_bits,
    contents,
    fortran,
    make,
    name_of,
    plain,
)

from rmsfast import _launch, _sums, rms

LENGTHS = [1, 2, 3, 7, 8, 9, 15, 16, 17, 1023, 1024, 1025, 16383, 16384, 16385, 40000]
FORMATS = {"float16": np.uint16, "bfloat16": np.uint16}
FORMATS |= {"float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
WIDE = ("b", "i", "u")  # kinds whose results are float64, with float64 and complex128
TINY = Fraction(np.finfo(np.float64).tiny.item())

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
every_length = pytest.mark.parametrize("length", LENGTHS)
# One of each kind of arithmetic: pairs, plain sums, shifts, tables, exact integers, two parts.
KINDS = [np.dtype(n) for n in ("float64", "float32", "float16", "int16", "int64", "complex128")]
KINDS += [np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e4m3fn)]
every_kind = pytest.mark.parametrize("dtype", KINDS, ids=name_of)
anything = settings(max_examples=60, deadline=None, derandomize=True)


def cases(*profiles):
    chosen = [
        pytest.param(*c, id=i) for c, i in zip(CASES, CASE_IDS, strict=True) if c[1] in profiles
    ]
    return pytest.mark.parametrize(("dtype", "values"), chosen)


def default_dtype(dtype):
    wide = dtype.kind in WIDE or dtype.name in ("float64", "complex128")
    return np.dtype(np.float64 if wide else np.float32)


def assert_root(result, square):
    """Within 0.51 ulp of the root (0.76 for a subnormal float64), infinite beyond the range."""
    if square > Fraction(float(np.finfo(result.dtype).max)) ** 2:
        assert result == np.inf
        return
    subnormal = result.dtype == np.float64 and square < TINY**2
    assert ulp_error(result, square) <= (0.76 if subnormal else 0.51)


def scattered(length, exponents, seed=0):
    """Values of either sign, their exponents spread over a range."""
    rng = np.random.default_rng(seed)
    return np.ldexp(rng.uniform(-1, 1, length), rng.integers(*exponents, size=length))


# Exponents from the smallest subnormal to the largest number, and about where scaling sets in.
RANGES = [(-30, 30), (-1074, 1023), (-1074, -1022), (-1074, -500), (-500, -480), (480, 520)]
RANGES += [(900, 1024)]


# Accuracy ---------------------------------------------------------------------------------------


@cases("normal", "subnormal", "huge", "zeros")
def test_rms_finite_values_is_within_half_an_ulp_of_exact(dtype, values):
    x = make((40,), dtype, values)
    assert_root(rms(x), mean_square(x))


@every_length
@every_kind
def test_rms_any_length_is_within_half_an_ulp_of_exact(dtype, length):
    x = make((length,), dtype, seed=length)
    assert_root(rms(x), mean_square(x))


@every_length
@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.itemsize == 8], ids=name_of)
def test_rms_extreme_integers_of_any_length_is_within_half_an_ulp_of_exact(dtype, length):
    x = np.random.default_rng(length).integers(
        np.iinfo(dtype).min, np.iinfo(dtype).max, size=length, dtype=dtype, endpoint=True
    )
    assert_root(rms(x), mean_square(x))


@every_length
@pytest.mark.parametrize(
    "exponents",
    RANGES,
    ids=str,
)
def test_rms_float64_of_wide_range_is_within_half_an_ulp_of_exact(exponents, length):
    x = scattered(length, exponents, seed=length)
    assert_root(rms(x), mean_square(x))


@pytest.mark.parametrize("exponent", [-1074, -1060, -1022, -700, -485, 0, 485, 700, 1022])
def test_rms_many_rows_of_one_magnitude_are_within_half_an_ulp_of_exact(exponent):
    x = np.ldexp(np.random.default_rng(exponent + 2000).uniform(1, 2, (50, 33)), exponent)
    for result, row in zip(rms(x), x, strict=True):
        assert_root(result, mean_square(row))


def test_rms_many_subnormal_rows_are_within_ulps_of_exact():
    steps = np.random.default_rng(5).integers(0, 40, (500, 5))
    x = steps * 5e-324
    for result, row in zip(rms(x), x, strict=True):
        assert_root(result, mean_square(row))


@pytest.mark.parametrize("dtype", [d for d in FLOATS + NARROW if d.itemsize < 8], ids=name_of)
@pytest.mark.parametrize("length", [1, 9, 1025, 16385])
def test_rms_narrow_values_asked_for_float64_is_within_half_an_ulp_of_exact(dtype, length):
    x = make((length,), dtype, seed=length)
    result = rms(x, dtype=np.float64)
    assert result.dtype == np.float64
    assert_root(result, mean_square(x))


@pytest.mark.parametrize("exponents", [(-149, -126), (-149, 128), (100, 128)], ids=str)
def test_rms_float32_of_wide_range_is_within_half_an_ulp_of_exact(exponents):
    x = scattered(1000, exponents).astype(np.float32)
    assert_root(rms(x), mean_square(x))
    assert_root(rms(x, dtype="float64"), mean_square(x))


@pytest.mark.parametrize("format", ["float32", *FORMATS])
@every_kind
def test_rms_result_of_narrower_dtype_is_within_half_an_ulp_of_exact(dtype, format):
    x = make((20, 3), dtype)
    result = rms(x, dtype=format)
    assert result.dtype.name == format
    for value, row in zip(result, x, strict=True):
        assert ulp_error(value, mean_square(row)) <= 0.51


def test_rms_result_of_bfloat16_is_rounded_once():
    # Rounded to float32 first, each would become a tie between two bfloat16 and go to even.
    x = np.array([[1 + 2.0**-8 + 2.0**-40], [1 + 3 * 2.0**-8 - 2.0**-40]])
    assert rms(x, dtype="bfloat16").astype(float).tolist() == [1.0078125, 1.0078125]


@pytest.mark.parametrize("format", FORMATS)
def test_rms_every_code_of_a_format_is_its_magnitude(format):
    codes = np.arange(2 ** (8 * np.dtype(FORMATS[format]).itemsize)).astype(FORMATS[format])
    dtype = np.dtype(getattr(ml_dtypes, format, format))
    result = rms(codes[:, None], format=format)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.abs(codes.view(dtype).astype(np.float32)))


def test_rms_float32_result_at_a_tie_is_even():
    # (2k, 4k, 4k, 0) has RMS 3k, halfway between two float32 for this k.
    k = 2**23 + 1
    x = np.array([2 * k, 4 * k, 4 * k, 0], np.float32)
    assert rms(x) == rounded_root(mean_square(x), "float32")


# Range and identities ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, -7.0, 5e-324, 1e-323, 1e-310, 1e-200, 1e200, 1.797e308, 2.0**-485]
)
@pytest.mark.parametrize("length", [1, 2, 3, 10, 100, 16385])
def test_rms_constant_row_is_the_constant(value, length):
    assert rms(np.full(length, value)) == abs(value)


@pytest.mark.parametrize("value", [1e-45, 1e-39, 0.1, -3.3, 3.4e38])
def test_rms_constant_float32_row_is_the_constant(value):
    x = np.full((9, 1000), value, np.float32)
    assert_same_bits(rms(x), np.abs(x[:, 0]))


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d.itemsize == 8], ids=name_of)
def test_rms_constant_row_of_extreme_integers_is_the_constant(dtype):
    info = np.iinfo(dtype)
    for value in (info.min, info.max):
        assert rms(np.full(1000, value, dtype)) == float(abs(int(value)))


@pytest.mark.parametrize(
    ("small", "large"),
    [(5e-324, 1.797e308), (1e-200, 1e200), (1e-310, 1.0), (1.0, 1e200), (0.0, 1e-200)],
)
def test_rms_mixture_of_magnitudes_is_within_half_an_ulp_of_exact(small, large):
    x = np.full(20000, small)
    x[[3, 17000]] = large
    assert_root(rms(x), mean_square(x))


@pytest.mark.parametrize("position", [0, 5, 16383, 16384, 39999])
def test_rms_one_value_among_zeros_is_within_half_an_ulp_of_exact(position):
    x = np.zeros((3, 40000))
    x[:, position] = [1e-200, 1e200, 5e-324]
    for result, row in zip(rms(x), x, strict=True):
        assert_root(result, mean_square(row))


@pytest.mark.parametrize("exponent", [-900, -301, -1, 1, 302, 950])
@pytest.mark.parametrize("length", [5, 16385])
def test_rms_times_power_of_two_scales_without_error(exponent, length):
    x = np.random.default_rng(1).uniform(1, 2, (3, length))
    assert_same_bits(rms(np.ldexp(x, exponent)), np.ldexp(rms(x), exponent))


def test_rms_of_negated_rows_is_the_same():
    x = make((4, 100), np.float64)
    assert_same_bits(rms(-x), rms(x))


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX + NARROW, ids=name_of)
def test_rms_zero_row_is_positive_zero(dtype):
    assert_same_bits(rms(make((2, 5), dtype, "zeros")), np.zeros(2, default_dtype(dtype)))


@given(st.data())
@anything
def test_rms_any_finite_float64_row_is_within_half_an_ulp_of_exact(data):
    shape = (data.draw(st.integers(1, 40)),)
    x = data.draw(contents(np.dtype(np.float64), shape, finite=True))
    assert_root(rms(x), mean_square(x))


@given(arrays(min_dims=1, max_dims=1, max_side=30, finite=True))
@anything
def test_rms_any_finite_row_is_within_half_an_ulp_of_exact(x):
    assert_root(rms(x), mean_square(x))


# Not finite -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([np.inf, 1.0], np.inf),
        ([1.0, -np.inf], np.inf),
        ([np.inf, -np.inf], np.inf),
        ([np.nan, 1.0], np.nan),
        ([np.nan, np.inf], np.nan),
        ([-np.inf, 0.0, np.nan], np.nan),
        ([0.0, -0.0], 0.0),
        ([np.inf, 1e200], np.inf),
        ([np.nan, 1e-200], np.nan),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_rms_nan_beats_infinity_beats_numbers(row, expected, dtype):
    x = np.array(row).astype(dtype) if dtype is np.float64 else np.clip(row, None, 9).astype(dtype)
    if dtype is not np.float64 and expected == np.inf:
        x[np.isinf(np.array(row))] = np.inf
    np.testing.assert_equal(float(rms(x)), expected)


@cases("nan", "inf")
def test_rms_rows_with_special_values_are_nan_or_infinite(dtype, values):
    x = make((6, 7), dtype, values)
    complex_inf = dtype.kind == "c" and values == "inf"
    wide = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
    with_nan = np.isnan(wide).any(axis=-1)
    with_inf = np.isinf(wide).any(axis=-1)
    assert complex_inf or with_nan.any() or with_inf.any()
    result = rms(x)
    np.testing.assert_array_equal(np.isnan(result), with_nan)
    np.testing.assert_array_equal(np.isinf(result), with_inf & ~with_nan)


@pytest.mark.parametrize("position", [0, 7, 16384, 39999])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rms_special_value_anywhere_in_a_long_row_is_seen(position, dtype):
    x = np.ones((3, 40000), dtype)
    x[:, position] = [np.nan, np.inf, -np.inf]
    np.testing.assert_equal(rms(x).tolist(), [np.nan, np.inf, np.inf])
    np.testing.assert_equal(rms(fortran(x)).tolist(), [np.nan, np.inf, np.inf])


def test_rms_special_values_in_one_row_leave_the_others_alone():
    x = make((20, 33), np.float64)
    expected = rms(x)
    x[3, 5], x[7, 0] = np.nan, np.inf
    expected[[3, 7]] = np.nan, np.inf
    assert_same_bits(rms(x), expected)
    assert_same_bits(rms(fortran(x)), expected)


# Layouts, splits and threads --------------------------------------------------------------------


@every_layout
@cases("normal", "nan", "inf", "subnormal", "huge")
def test_rms_any_layout_gives_same_bits(dtype, values, layout):
    view = layout(make((6, 37), dtype, values))
    assert_same_bits(rms(view), rms(plain(view)))


@every_layout
@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (-1, 0), (1, 2), None])
@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.complex64], ids=name_of)
def test_rms_any_axis_of_any_layout_gives_bits_of_rows(dtype, axis, layout):
    view = layout(make((5, 6, 7), dtype))
    reduced = {a % 3 for a in ((0, 1, 2) if axis is None else np.atleast_1d(axis).tolist())}
    kept = [k for k in range(3) if k not in reduced]
    rows = plain(view).transpose(kept + sorted(reduced))
    rows = rows.reshape([view.shape[k] for k in kept] + [-1]).copy()
    assert_same_bits(rms(view, axis=axis), rms(rows))


@given(arrays(), st.data())
@anything
def test_rms_any_array_along_any_axes_gives_bits_of_rows(view, data):
    reduced = data.draw(st.sets(st.integers(0, max(view.ndim, 1) - 1), min_size=1))
    kept = [k for k in range(view.ndim) if k not in reduced]
    rows = plain(view)
    if view.ndim:
        rows = rows.transpose(kept + sorted(reduced))
    rows = rows.reshape([view.shape[k] for k in kept] + [-1]).copy()
    assert_same_bits(rms(view, axis=tuple(reduced)), rms(rows))


@every_length
@pytest.mark.parametrize("columns", [1, 3, 4, 9, 300])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=name_of)
def test_rms_columns_give_bits_of_rows(dtype, columns, length):
    if length * columns > 2**20:
        columns = 17
    x = make((length, columns), dtype, seed=length)
    assert_same_bits(rms(x, axis=0), rms(np.ascontiguousarray(x.T)))


@pytest.mark.parametrize("dtype", [d for d in KINDS if d.name not in ("float64", "float32")],
                         ids=name_of)  # fmt: skip
@pytest.mark.parametrize("shape", [(1, 8), (17, 5), (1025, 255), (16385, 9)])
def test_rms_columns_of_any_dtype_give_bits_of_rows(dtype, shape):
    x = make(shape, dtype)
    assert_same_bits(rms(x, axis=0), rms(np.ascontiguousarray(x.T)))


def test_rms_columns_of_extreme_magnitudes_give_bits_of_rows():
    rng = np.random.default_rng(4)
    x = np.ldexp(rng.uniform(-1, 1, (17000, 40)), rng.integers(-1074, 1023, 40))
    x[:, 5], x[:, 20], x[:, 21] = 0.0, 5e-324, 1.797e308
    x[9, 30], x[16500, 31], x[4, 32:34] = np.nan, np.inf, [np.inf, np.nan]
    assert_same_bits(rms(x, axis=0), rms(np.ascontiguousarray(x.T)))


def test_rms_middle_axis_gives_bits_of_rows():
    x = make((3, 1000, 70), np.float64)
    assert_same_bits(rms(x, axis=1), rms(np.ascontiguousarray(x.swapaxes(1, 2))))


@every_kind
def test_rms_row_by_row_gives_same_bits(dtype):
    x = make((9, 2000), dtype)
    assert_same_bits(rms(x), np.array([rms(row) for row in x]))


@pytest.mark.parametrize("offset", [1, 2, 3, 5])
def test_rms_row_starting_anywhere_gives_same_bits(offset):
    x = make((30000,), np.float32)
    assert_same_bits(rms(x[offset:]), rms(x[offset:].copy()))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 300_003), -1),  # few long rows: split
        ((700, 1031), -1),  # many rows
        ((1031, 700), 0),  # columns
        ((3, 300_003), 0),  # short columns
        ((3, 300_003), None),
        ((8, 1031, 90), (0, 2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=name_of)
def test_rms_any_thread_count_gives_same_bits(dtype, shape, axis, monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1 << 20)
    x = make(shape, dtype)
    serial = rms(x, axis=axis, threads=1)
    for threads in (2, 7, None):
        assert_same_bits(rms(x, axis=axis, threads=threads), serial)
    serial_rows = np.moveaxis(x, axis, -1).copy() if isinstance(axis, int) else None
    if serial_rows is not None and axis == 0:
        assert_same_bits(serial, rms(serial_rows, threads=1))


@pytest.mark.parametrize("parts", [2, 16])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16], ids=name_of)
def test_rms_columns_whose_lanes_are_shared_give_bits_of_rows(dtype, parts, monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1)
    monkeypatch.setattr(_launch, "AWAKE_BYTES", 1)
    monkeypatch.setattr(_sums, "lane_parts", lambda *_: parts)
    x = make((16_500, 21), dtype)
    assert_same_bits(rms(x, axis=0), rms(np.ascontiguousarray(x.T)))


def test_rms_repeated_calls_give_same_bits():
    x = make((3, 1_000_003), np.float32)
    results = [rms(x, axis=axis) for axis in (-1, None) for _ in range(10)]
    for repeated, first in zip(results, [results[0]] * 10 + [results[10]] * 10, strict=True):
        assert_same_bits(repeated, first)


def test_rms_same_shape_in_turn_of_layouts_keeps_them_apart():
    c = np.arange(8.0).reshape(2, 4)
    squares = [[8.0, 13.0, 20.0, 29.0], [3.5, 31.5], [1.0], [2.0, 26.0], [3.5, 3.5, 3.5]]
    views = [c.T, fortran(c), np.ones((1, 1)), c[:, ::2], np.broadcast_to(c[:1], (3, 4))]
    for view, expected in [*zip(views, squares, strict=True)] * 2:
        np.testing.assert_array_equal(rms(view), np.sqrt(expected))
    for view, expected in [*zip(views, squares, strict=True)][::-1]:
        np.testing.assert_array_equal(rms(view), np.sqrt(expected))


# Shapes, axes, out and dtype --------------------------------------------------------------------


@every_dtype
def test_rms_default_result_dtype_follows_storage(dtype):
    assert rms(make((2, 3), dtype)).dtype == default_dtype(dtype)
    assert rms(make((2, 0, 3), dtype)).dtype == default_dtype(dtype)


@every_dtype
def test_rms_foreign_byte_order_gives_native_result(dtype):
    assert rms(LAYOUTS["byte_swapped"](make((2, 3), dtype))).dtype.isnative


@pytest.mark.parametrize("dtype", ["float64", np.float32, "float16", ">f8", float])
@pytest.mark.parametrize("shape", [(3, 4), (4,)])
def test_rms_dtype_argument_names_the_result(shape, dtype):
    result = rms(np.full(shape, 3), dtype=dtype)
    assert result.dtype == np.dtype(dtype).newbyteorder("=")
    assert np.all(result == 3)


@pytest.mark.parametrize("shape", [(), (3,), (3, 4), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_rms_default_axis_is_the_last(shape, keepdims):
    x = make(shape, np.float32)
    result = rms(x, keepdims=keepdims)
    assert result.shape == shape[:-1] + (1,) * (keepdims and len(shape) > 0)
    assert_same_bits(result, rms(x, axis=len(shape) - 1 if shape else 0, keepdims=keepdims))


@pytest.mark.parametrize(
    ("axis", "shape", "kept"),
    [
        (0, (3, 4, 5), (1, 3, 4, 5)),
        (-2, (2, 3, 5), (2, 3, 1, 5)),
        ((1, 3), (2, 4), (2, 1, 4, 1)),
        ((-1, 0), (3, 4), (1, 3, 4, 1)),
        ((0, 1, 2, 3), (), (1, 1, 1, 1)),
        (None, (), (1, 1, 1, 1)),
        ((2,), (2, 3, 5), (2, 3, 1, 5)),
        (np.int64(1), (2, 4, 5), (2, 1, 4, 5)),
    ],
)
def test_rms_reduced_axes_leave_the_result_shape(axis, shape, kept):
    x = make((2, 3, 4, 5), np.int16)
    assert np.shape(rms(x, axis=axis)) == shape
    assert np.shape(rms(x, axis=axis, keepdims=True)) == kept
    assert_same_bits(rms(x, axis=axis, keepdims=True).reshape(shape), rms(x, axis=axis))


@pytest.mark.parametrize("axis", [None, -1, 0, (0,)])
@pytest.mark.parametrize("x", [np.float64(-5.0), -5.0, -5, np.array(-5.0)], ids=repr)
def test_rms_number_is_a_vector_of_one_coordinate(x, axis):
    assert_same_bits(rms(x, axis=axis), np.float64(5.0))
    assert isinstance(rms(x, axis=axis), np.float64)


@pytest.mark.parametrize(("dtype", "scalar"), [(np.float32, np.float32), (np.int8, np.float64)])
def test_rms_vector_gives_a_numpy_scalar(dtype, scalar):
    x = np.array([3, 4, 0, 0], dtype)
    assert type(rms(x)) is scalar
    assert type(rms(x.reshape(2, 2), axis=None)) is scalar
    assert rms(x) == 2.5


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((0, 4), -1, (0,)),
        ((0, 0), -1, (0,)),
        ((0, 0), 0, (0,)),
        ((4, 0), 0, (0,)),
        ((0, 3, 4), (1, 2), (0,)),
        ((2, 0, 0), 1, (2, 0)),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_rms_empty_result_needs_no_coordinates(shape, axis, expected, dtype):
    result = rms(np.empty(shape, dtype), axis=axis)
    assert (result.shape, result.dtype) == (expected, default_dtype(np.dtype(dtype)))
    kept = rms(np.empty(shape, dtype), axis=axis, keepdims=True)
    assert kept.ndim == len(shape)
    assert kept.size == 0


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [-1, 0, (0, 1), None])
def test_rms_out_is_filled_and_returned(axis, keepdims):
    x = make((4, 5), np.float64)
    expected = rms(x, axis=axis, keepdims=keepdims)
    out = np.full(np.shape(expected), -1.0)
    assert rms(x, axis=axis, keepdims=keepdims, out=out) is out
    assert_same_bits(out, expected)


@every_layout
def test_rms_out_of_any_layout_is_filled(layout):
    if layout in (LAYOUTS["repeated"], LAYOUTS["read_only"], LAYOUTS["byte_swapped"]):
        layout = plain
    x = make((4, 5, 3), np.float32)
    out = layout(np.zeros((4, 5), np.float32))
    assert rms(x, out=out) is out
    assert_same_bits(out, rms(x))


def test_rms_out_with_dtype_takes_that_dtype():
    x = make((4, 5), np.float64)
    out = np.zeros(4, np.float16)
    assert_same_bits(rms(x, dtype="float16", out=out), rms(x, dtype=np.float16))


def test_rms_out_may_be_the_input_itself():
    x = make((6, 1), np.float64)
    expected = np.abs(x)
    assert rms(x, keepdims=True, out=x) is x
    assert_same_bits(x, expected)


# Storage formats and containers -----------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("axis", [-1, 0])
def test_rms_codes_with_format_give_bits_of_the_format(format, axis):
    x = make((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    codes = x.view(FORMATS[format])
    void = x.view(f"V{x.itemsize}")
    expected = rms(x, axis=axis)
    for given_codes in (codes, void, x, fortran(codes)):
        assert_same_bits(rms(given_codes, axis=axis, format=format), expected)


@pytest.mark.parametrize("format", ["float16", "bfloat16"])
def test_rms_codes_of_foreign_byte_order_are_swapped(format):
    x = make((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    swapped = x.view(np.uint16).astype(np.dtype(np.uint16).newbyteorder("S"))
    assert_same_bits(rms(swapped, format=format), rms(x))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("order", ["=", "S"])
def test_rms_records_named_after_a_format_give_its_bits(format, order):
    x = make((6, 37), np.dtype(getattr(ml_dtypes, format, format)))
    code = np.dtype(FORMATS[format])
    records = x.view([(format, code)]).astype([(format, code.newbyteorder(order))])
    assert_same_bits(rms(records), rms(x))
    assert_same_bits(rms(records, format=format), rms(x))
    assert_same_bits(rms(fortran(records), axis=0), rms(x, axis=0))


def test_rms_without_format_takes_codes_for_integers():
    assert rms(np.full(3, 0x4040, np.uint16)) == 0x4040
    for format in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert rms(np.full(3, 0x4040, np.uint16), format=format) == 3


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([3, 4], 12.5),
        ([3.0, -4.0], 12.5),
        ((True, False, False, False), 0.25),
        ([[3, 4], [6, 8]], [12.5, 50.0]),
        ([3 + 4j, 0], 12.5),
        (range(3), 5 / 3),
    ],
    ids=repr,
)
def test_rms_sequence_is_taken_as_array(x, expected):
    np.testing.assert_array_equal(rms(x), np.sqrt(expected))


def test_rms_pandas_is_taken_by_position():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"b": [3.0, 6.0], "a": [4.0, 8.0]}, index=[7, 3])
    np.testing.assert_array_equal(rms(frame), np.sqrt([12.5, 50.0]))
    np.testing.assert_array_equal(rms(frame, axis=0), np.sqrt([22.5, 40.0]))
    assert rms(frame["a"]) == np.sqrt(40.0)
    assert type(rms(frame)) is np.ndarray


@pytest.mark.parametrize(
    "name",
    ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int16", "bool",
     "complex64"],
)  # fmt: skip
def test_rms_torch_tensor_gives_bits_of_the_array(name):
    torch = pytest.importorskip("torch")
    x = make((6, 37), np.dtype(getattr(ml_dtypes, name, name)))
    wide = torch.from_numpy(x.astype(np.float32 if x.dtype in NARROW else x.dtype))
    tensor = wide.to(getattr(torch, name))
    assert_same_bits(rms(tensor), rms(x))
    assert_same_bits(rms(tensor.T, axis=0), rms(x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, ml_dtypes.bfloat16])
def test_rms_memory_map_gives_bits_of_the_array(dtype, tmp_path):
    x = make((50, 70), dtype)
    x.tofile(tmp_path / "x.bin")
    (tmp_path / "odd.bin").write_bytes(b"\0" + x.tobytes())
    mapped = np.memmap(tmp_path / "x.bin", x.dtype, "r", shape=x.shape)
    odd = np.memmap(tmp_path / "odd.bin", x.dtype, "r", offset=1, shape=x.shape)
    for view in (mapped, odd):
        for axis in (-1, 0, None):
            result = rms(view, axis=axis)
            assert not isinstance(result, np.memmap)
            assert_same_bits(result, rms(x, axis=axis))


@every_layout
@pytest.mark.parametrize("axis", [-1, 0])
def test_rms_leaves_its_input_unchanged(layout, axis):
    view = layout(make((5, 6), np.float64))
    before, flags = view.tobytes("A"), str(view.flags)
    rms(view, axis=axis)
    assert (view.tobytes("A"), str(view.flags)) == (before, flags)


# Kept points ------------------------------------------------------------------------------------


MASKED = [np.dtype(n) for n in ("float64", "float32", "int16", "complex64")]
MASKED += [np.dtype(ml_dtypes.bfloat16)]
every_masked = pytest.mark.parametrize("dtype", MASKED, ids=name_of)


def keep(shape, seed=11):
    """About two thirds kept; of several rows the second none at all."""
    kept = np.random.default_rng(seed).random(shape) < 0.67
    kept[..., :1] = True
    if len(shape) > 1:
        kept[1] = False
    return kept


@every_masked
@pytest.mark.parametrize("length", [1, 9, 37, 1025, 16385])
def test_rms_where_counts_kept_values_only(dtype, length):
    x, where = make((3, length), dtype, "normal"), keep((3, length))
    result = rms(x, where=where)
    assert result.dtype == default_dtype(dtype)
    assert np.isnan(result[1])
    for row in (0, 2):
        assert_root(result[row], mean_square(x[row][where[row]]))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 5e-324])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=name_of)
def test_rms_left_out_values_never_matter(dtype, value):
    x, where = make((4, 1030), dtype), keep((4, 1030))
    expected = rms(np.where(where, x, x.dtype.type(1)), where=where)
    with np.errstate(over="ignore"):
        hidden = np.where(where, x, np.array(value).astype(dtype))
    assert_same_bits(rms(hidden, where=where), expected)
    assert_same_bits(rms(hidden, where=where, nan_policy="raise"), expected)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 1), (6, 5, 7), (6, 1, 1)])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_rms_where_is_broadcast(shape, axis):
    x, where = make((6, 5, 7), np.float64), keep(shape) if shape else np.True_
    whole = np.broadcast_to(where, x.shape).copy()
    assert_same_bits(rms(x, axis=axis, where=where), rms(x, axis=axis, where=whole))
    total = rms(np.where(whole, x, np.nan), axis=axis, where=where)
    assert_same_bits(total, rms(x, axis=axis, where=whole))


@every_layout
@pytest.mark.parametrize("axis", [-1, 0, (0, 2)])
def test_rms_where_of_any_layout_gives_same_bits(layout, axis):
    x, where = layout(make((6, 5, 7), np.float64)), layout(keep((6, 5, 7)))
    assert_same_bits(rms(x, axis=axis, where=where), rms(plain(x), axis=axis, where=plain(where)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=name_of)
@pytest.mark.parametrize("shape", [(9, 5), (1025, 300), (16385, 9)])
def test_rms_where_on_columns_gives_bits_of_rows(dtype, shape):
    x, where = make(shape, dtype), keep(shape)
    rows = rms(np.ascontiguousarray(x.T), where=np.ascontiguousarray(where.T))
    assert_same_bits(rms(x, axis=0, where=where), rows)


def test_rms_where_with_any_thread_count_gives_same_bits(monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1 << 20)
    x, where = make((300, 1031), np.float64), keep((300, 1031))
    serial = rms(x, where=where, threads=1)
    assert_same_bits(rms(x, where=where, threads=2), serial)
    assert_same_bits(rms(np.asfortranarray(x), where=where, threads=2), serial)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16], ids=name_of)
def test_rms_where_leaving_nothing_is_nan(dtype):
    x = make((3, 5), dtype)
    assert np.isnan(rms(x, where=False)).all()
    assert np.isnan(rms(x, axis=None, where=np.zeros(5, bool)))


def test_rms_where_all_true_changes_no_exact_result():
    x = np.array([[3.0, 4.0, 0.0, 0.0], [1e200] * 4, [5e-324] * 4])
    assert_same_bits(rms(x, where=True), np.array([2.5, 1e200, 5e-324]))


@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("dtype", [np.float64, np.int16], ids=name_of)
def test_rms_masked_array_is_where_not_mask(dtype, axis):
    x, where = make((4, 37), dtype), keep((4, 37))
    masked = np.ma.array(x, mask=~where)
    result = rms(masked, axis=axis)
    assert not isinstance(result, np.ma.MaskedArray)
    assert_same_bits(result, rms(x, axis=axis, where=where))
    second = keep((37,), seed=2)
    both = rms(x, axis=axis, where=where & second)
    assert_same_bits(rms(masked, axis=axis, where=second), both)


def test_rms_masked_array_without_mask_is_the_array():
    x = make((4, 5), np.float64)
    assert_same_bits(rms(np.ma.array(x)), rms(x))


def test_rms_masked_values_do_not_leak():
    m = np.ma.array([[3.0, 4.0, 1e20], [1.0, 1.0, 1.0]], mask=[[0, 0, 1], [1, 1, 1]])
    np.testing.assert_equal(rms(m), [np.sqrt(12.5), np.nan])
    i = np.ma.array(np.full((1, 4), 30000, np.int16), mask=[[0, 0, 0, 1]])
    np.testing.assert_equal(rms(i), [30000.0])


# Weights ----------------------------------------------------------------------------------------


def weighing(shape, dtype=np.float64, seed=13):
    """Weights of any size a dtype can hold well, about a fifth of them 0; row 1 has none."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 5, shape) * rng.uniform(0.5, 20, shape)
    weights[..., 0] = 1
    if len(shape) > 1:
        weights[1] = 0
    return weights.astype(dtype)


def assert_weighted(result, square):
    assert ulp_error(result, square) <= 2


@every_masked
@pytest.mark.parametrize("length", [1, 9, 1025, 16385])
def test_rms_weights_are_within_two_ulps_of_exact(dtype, length):
    x, weights = make((3, length), dtype), weighing((3, length))
    result = rms(x, weights=weights)
    assert result.dtype == default_dtype(dtype)
    assert np.isnan(result[1])
    for row in (0, 2):
        assert_weighted(result[row], mean_square(x[row], weights[row]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool", "bfloat16"])
def test_rms_weights_of_any_real_dtype_are_taken(dtype):
    x = make((37,), np.float64)
    weights = weighing((37,), np.dtype(getattr(ml_dtypes, dtype, dtype)))
    assert_weighted(rms(x, weights=weights), mean_square(x, weights))


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e100, 1e300, 5e-324])
@pytest.mark.parametrize("size", [1e-200, 5e-324, 1.0, 1e200])
def test_rms_weights_of_any_magnitude_are_within_two_ulps_of_exact(scale, size):
    rng = np.random.default_rng(8)
    x, weights = rng.uniform(1, 2, 50) * size, rng.integers(1, 9, 50) * scale
    assert_weighted(rms(x, weights=weights), mean_square(x, weights))


def test_rms_weights_of_mixed_magnitude_are_within_two_ulps_of_exact():
    x, weights = scattered(1000, (-1000, 1000)), np.abs(scattered(1000, (-1000, 1000), seed=2))
    assert_weighted(rms(x, weights=weights), mean_square(x, weights))


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_rms_weights_of_complex_values_beyond_the_range_are_within_two_ulps_of_exact(size):
    rng = np.random.default_rng(9)
    x, weights = make((20000,), np.complex128), rng.uniform(1, 9, 20000)
    x[:300] *= size  # one block leaves the range, one does not
    assert_weighted(rms(x, weights=weights), mean_square(x, weights))
    assert_weighted(rms(x[:300], weights=weights[:300]), mean_square(x[:300], weights[:300]))


def test_rms_omit_with_weights_leaves_out_complex_values_as_a_whole_beyond_the_range():
    x = np.array([3e200 + 4e200j, complex(1e200, np.nan), complex(np.nan, 1e200)])
    result = rms(x, weights=[1.0, 2.0, 3.0], nan_policy="omit")
    assert_weighted(result, mean_square(x[:1]))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_rms_weight_zero_leaves_the_point_out(value):
    x, weights = make((4, 50), np.float64), weighing((4, 50))
    expected = rms(x, weights=weights)
    x[weights == 0] = value
    assert_same_bits(rms(x, weights=weights), expected)
    assert_same_bits(rms(x, weights=weights, nan_policy="raise"), expected)


@pytest.mark.parametrize("exponent", [-30, 1, 40])
def test_rms_weights_times_power_of_two_give_same_bits(exponent):
    x, weights = make((4, 50), np.float64), weighing((4, 50))
    expected = rms(x, weights=weights)
    assert_same_bits(rms(x, weights=np.ldexp(weights, exponent)), expected)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 1), (6, 5, 7)])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_rms_weights_are_broadcast(shape, axis):
    x = make((6, 5, 7), np.float64)
    weights = weighing(shape) if shape else np.float64(2.5)
    whole = np.broadcast_to(weights, x.shape).copy()
    assert_same_bits(rms(x, axis=axis, weights=weights), rms(x, axis=axis, weights=whole))


@every_layout
@pytest.mark.parametrize("axis", [-1, 0])
def test_rms_weights_of_any_layout_give_same_bits(layout, axis):
    x, weights = layout(make((6, 37), np.float64)), layout(weighing((6, 37)))
    expected = rms(plain(x), axis=axis, weights=plain(weights))
    assert_same_bits(rms(x, axis=axis, weights=weights), expected)


def test_rms_weights_on_columns_give_bits_of_rows():
    x, weights = make((1025, 30), np.float64), weighing((1025, 30))
    rows = rms(np.ascontiguousarray(x.T), weights=np.ascontiguousarray(weights.T))
    assert_same_bits(rms(x, axis=0, weights=weights), rows)


def test_rms_weights_with_where_count_what_both_keep():
    x, weights, where = make((3, 50), np.float64), weighing((3, 50)), keep((3, 50))
    weights[:, 5], where[:, 5] = [np.nan, np.inf, -1.0], False
    result = rms(x, weights=weights, where=where)
    for row in (0, 2):
        kept = where[row]
        assert_weighted(result[row], mean_square(x[row][kept], weights[row][kept]))
    assert np.isnan(result[1])


def test_rms_weights_of_a_broadcast_row_are_right():
    x = np.broadcast_to(np.array([3.0, 4.0]), (5, 2))
    weights = np.broadcast_to(np.array([1.0, 3.0]), (5, 2))
    np.testing.assert_array_max_ulp(rms(x, weights=weights), np.full(5, np.sqrt(14.25)), 2)
    assert not x.flags.writeable


# NaN policy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in MASKED if d.kind != "i"], ids=name_of)
@pytest.mark.parametrize("axis", [-1, 0, None])
def test_rms_omit_is_where_not_nan(dtype, axis):
    x = make((5, 40), dtype, "nan")
    x[1] = np.nan
    wide = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
    result = rms(x, axis=axis, nan_policy="omit")
    assert_same_bits(result, rms(x, axis=axis, where=~np.isnan(wide)))
    if axis == -1:
        assert np.isnan(result[1])
        kept = x[0][~np.isnan(wide[0])]
        assert_root(result[0], mean_square(kept))


def test_rms_omit_of_integers_changes_nothing():
    x = make((5, 40), np.int16)
    assert_same_bits(rms(x, nan_policy="omit"), rms(x))


def test_rms_omit_keeps_infinity():
    np.testing.assert_equal(rms([[np.nan, np.inf], [np.nan, 3.0]], nan_policy="omit"), [np.inf, 3])


def test_rms_omit_of_extreme_magnitudes_is_within_half_an_ulp_of_exact():
    x = scattered(1000, (-1074, 1023))
    gaps = np.insert(x, [0, 5, 700, 1000], np.nan)
    assert_root(rms(gaps, nan_policy="omit"), mean_square(x))


def test_rms_omit_with_weights_takes_nan_weights_as_missing():
    x = np.array([1.0, 2.0, 3.0, np.nan, 5.0])
    weights = np.array([1.0, np.nan, 2.0, 1.0, 0.0])
    result = rms(x, weights=weights, nan_policy="omit")
    assert_weighted(result, mean_square([1.0, 3.0], [1.0, 2.0]))


def test_rms_propagate_is_nan_where_a_kept_value_is():
    x = np.array([[2.0, np.nan, 4.0], [np.nan] * 3])
    np.testing.assert_equal(rms(x), [np.nan, np.nan])
    np.testing.assert_equal(rms(x, nan_policy="omit"), [np.sqrt(10.0), np.nan])


def test_rms_raise_without_nan_changes_nothing():
    x = make((5, 40), np.float64, "inf")
    assert_same_bits(rms(x, nan_policy="raise"), rms(x))


# Worked values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "axis", "expected"),
    [
        (np.array([[600, 800]], np.float16), -1, np.float32(500_000**0.5)),
        (np.ones((1, 4096), np.float16), -1, 1.0),
        (np.full((1, 8), 1e-4, np.float16), -1, float(np.float16(1e-4))),
        (np.array([[-32768, -32768, 32767, 0]], np.int16), -1, (3221159937 / 4) ** 0.5),
        (np.array([[-128, 127, 0, -128]], np.int8), -1, (48897 / 4) ** 0.5),
        (np.array([[3 + 4j, 0], [1, 1j]]), -1, [12.5**0.5, 1.0]),
        (np.arange(6.0).reshape(2, 3)[::-1, ::-1], -1, [(50 / 3) ** 0.5, (5 / 3) ** 0.5]),
        (np.array([[300, -400]], ">i2"), -1, 125_000**0.5),
        (np.array([[3, 4]], ">f8"), -1, 12.5**0.5),
        (np.array([[1] * 10, [3] * 10], ">f4"), -1, [1.0, 3.0]),
        (np.vstack([np.full((1, 2), 4096), np.ones((4096, 2))]).astype(np.float32), 0, 64.0),
    ],
    ids=["f16-overflow", "f16-count", "f16-underflow", "i16", "i8", "complex", "flipped", ">i2",
         ">f8", ">f4", "f32-columns"],
)  # fmt: skip
def test_rms_where_naive_code_fails_is_right(x, axis, expected):
    result = rms(x, axis=axis)
    np.testing.assert_array_equal(result, np.broadcast_to(expected, result.shape))


# Memory -----------------------------------------------------------------------------------------

MAPPED = [
    "rms(x, axis=None)",
    "rms(x)",
    "rms(x, axis=0)",
    "rms(x.T, axis=None)",
    "rms(x[::-1, ::2], axis=None)",
    "rms(x.view('>f8'), axis=None)",
    "rms(x.view('>f8'), axis=0)",
    "rms(x, axis=None, where=x[:, :1] > 0)",
    "rms(x, axis=None, weights=x[:, :1] ** 2)",
    "rms(x, axis=None, nan_policy='omit')",
    "rmse(x[::2], x[1::2], axis=None)",
    "rmse(x[::2], x[1::2].view('>f8'), axis=0)",
]
# Limited is private memory that may be written, of which pages read from a file are no part.
LIMITED = """
import json, resource, sys
import numpy as np
from rmsfast import rms, rmse
x = np.memmap(sys.argv[1], "<f8", "r").reshape(-1, 512)
calls = json.loads(sys.argv[2])
def run(call, x):
    try:
        return bool(np.all(np.isfinite(eval(call)) | (">" in call)))
    except MemoryError:
        return False
for call in calls:
    run(call, x[:4096])
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + 32 * 2**20,) * 2)
print(json.dumps({call: run(call, x) for call in ["np.ones(5 * 2**20)", *calls]}))
"""


@pytest.fixture(scope="module")
def within_limit(tmp_path_factory):
    """Whether each call reads a map of 96 MiB in 32 MiB, from one process for all."""
    path = tmp_path_factory.mktemp("mapped") / "x.bin"
    part = np.random.default_rng(0).standard_normal(2**20)
    with path.open("wb") as file:
        for _ in range(12):
            part.tofile(file)
    command = [sys.executable, "-W", "error", "-c", LIMITED, path, json.dumps(MAPPED)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    path.unlink()
    return json.loads(run.stdout)


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on private memory alone")


@linux
@pytest.mark.parametrize("call", MAPPED)
def test_rms_of_memory_map_takes_no_memory_that_grows(call, within_limit):
    assert within_limit[call]


@linux
def test_memory_limit_of_these_tests_holds(within_limit):
    assert not within_limit["np.ones(5 * 2**20)"]
