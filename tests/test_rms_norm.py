"""`rms_norm` against exact arithmetic and against the formulas of those who named it."""

import inspect
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import fractions, mean_square, signed_square, ulp_error
from hypothesis import given, settings
from hypothesis import strategies as st
from zoo import (
    FLOATS,
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

from rmsfast import _launch, rms, rms_norm, unit_rms

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
EVERY = [np.dtype(n) for n in ("float64", "float32", "float16")] + [BFLOAT16]
every_float = pytest.mark.parametrize("dtype", EVERY, ids=name_of)
every_cast = pytest.mark.parametrize("cast", ["after_gain", "before_gain"])
every_mode = pytest.mark.parametrize("eps_mode", ["inside", "outside", "max"])
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def gain_of(length, dtype, seed=17):
    """Gains about 1, of either sign."""
    rng = np.random.default_rng(seed)
    return (rng.uniform(0.5, 2, length) * rng.choice([-1, 1], length)).astype(dtype)


def root(square):
    """Square root of a fraction to 300 bits."""
    shift = 600 + 2 * max(0, square.denominator.bit_length() - square.numerator.bit_length())
    return Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << shift // 2)


def divisor_square(row, eps, eps_mode):
    """Square of what a row is divided by."""
    square, eps = mean_square(row), Fraction(eps)
    return {
        "inside": lambda: square + eps,
        "outside": lambda: (root(square) + eps) ** 2,
        "max": lambda: max(square, eps**2),
    }[eps_mode]()


def assert_normed(result, row, limit, gain=None, eps=1e-6, eps_mode="inside", offset=0.0):
    """Each value within so many ulps of gain * x / divisor; the offset is added in float64."""
    square = divisor_square(row, eps, eps_mode)
    gains = np.ones(row.size) if gain is None else np.asarray(gain).astype(np.float64) + offset
    gains = np.broadcast_to(gains, row.shape)
    for value, x, g in zip(result, fractions(row), fractions(gains), strict=True):
        assert ulp_error(value, signed_square(x * g) / square) <= limit


def normalised(x, eps):
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


# Signature and worked values --------------------------------------------------------------------


def test_rms_norm_signature_takes_arrays_by_position_and_options_by_name():
    parameters = inspect.signature(rms_norm).parameters
    options = {
        "eps": 1e-6, "axis": -1, "gain_offset": 0.0, "cast": "after_gain", "eps_mode": "inside",
        "out": None, "dtype": None, "format": None, "return_rms": False, "threads": None,
    }  # fmt: skip
    assert list(parameters) == ["x", "gain", *options]
    assert {n: parameters[n].default for n in options} == options
    assert all(parameters[n].kind is inspect.Parameter.KEYWORD_ONLY for n in options)
    assert parameters["x"].kind is inspect.Parameter.POSITIONAL_ONLY
    assert parameters["gain"].default is None


def test_rms_norm_gain_goes_by_name_too():
    x, gain = make((3, 7), np.float64), gain_of(7, np.float64)
    assert_same_bits(rms_norm(x, gain=gain), rms_norm(x, gain))


@pytest.mark.parametrize(
    ("eps_mode", "expected"),
    [("inside", 0.5**0.5), ("outside", 0.999000999000999), ("max", 1.0)],
)
def test_rms_norm_eps_mode_places_eps(eps_mode, expected):
    x = np.array([[1e-3, -1e-3]])
    result = rms_norm(x, np.ones(2), eps=1e-6, eps_mode=eps_mode)
    np.testing.assert_allclose(result, [[expected, -expected]], rtol=1e-15)
    if eps_mode == "inside":
        assert_same_bits(rms_norm(x, np.ones(2)), result)


@pytest.mark.parametrize("dtype", [*EVERY, np.dtype(ml_dtypes.float8_e4m3fn)], ids=name_of)
def test_rms_norm_default_eps_is_the_same_for_every_dtype(dtype):
    # 0.058349609375 is exact in bfloat16; in float8 0.0546875 is.
    value = 0.0546875 if dtype.itemsize == 1 else 0.058349609375
    x = (np.where(np.arange(32) % 2, -1.0, 1.0)[None, :] * value).astype(dtype)
    result = rms_norm(x, dtype=np.float64)
    expected = value / math.sqrt(value**2 + 1e-6)
    np.testing.assert_array_max_ulp(np.abs(result), np.full((1, 32), expected), 2)
    assert_same_bits(result, rms_norm(x.astype(np.float64)))
    assert_same_bits(result, rms_norm(x, eps=1e-6, dtype=np.float64))


def test_rms_norm_default_eps_on_bfloat16_is_not_that_of_the_format():
    x = np.where(np.arange(32) % 2, -1.0, 1.0)[None, :] * 0.058349609375
    result = rms_norm(x.astype(BFLOAT16), dtype=np.float32)
    np.testing.assert_allclose(np.abs(result), 0.9998531755297382, rtol=1e-7)
    torch_eps = rms_norm(x.astype(np.float32), eps=float(np.finfo(np.float32).eps))
    np.testing.assert_allclose(np.abs(torch_eps), 0.9999824937634019, rtol=1e-7)


@pytest.mark.parametrize(
    ("cast", "codes"),
    [
        ("after_gain", [0x3EF0, 0x3F70, 0x3FB4, 0xBFF0]),
        ("before_gain", [0x3EF0, 0x3F70, 0x3FB3, 0xBFF0]),
    ],
)
def test_rms_norm_cast_order_shows_in_the_last_bit(cast, codes):
    x = np.array([[1.0, 2.0, 3.0, -4.0]], np.float32)
    gain = np.full(4, 1.28125, np.float32)
    out = np.zeros((1, 4), BFLOAT16)
    result = rms_norm(x, gain, cast=cast, dtype="bfloat16", out=out)
    assert result is out
    assert result.view(np.uint16).tolist() == [codes]
    assert_same_bits(rms_norm(x, np.float32(1.28125), cast=cast, dtype="bfloat16"), result)


# Presets ----------------------------------------------------------------------------------------
# Written out in float64, whose results round to the format as the exact ones do.


def states(dtype):
    """Rows of hidden states, of sizes from 1e-4 to 10."""
    scale = np.geomspace(1e-4, 10, 60)[:, None]
    return (make((60, 96), np.float64, seed=8) * scale).astype(dtype)


@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16)], ids=name_of)
@pytest.mark.parametrize("eps", [1e-6, 1e-5])
def test_rms_norm_llama_rounds_before_the_gain(dtype, eps):
    x, weight = states(dtype), gain_of(96, dtype)
    hidden = normalised(x, eps).astype(dtype)
    expected = (weight.astype(np.float64) * hidden.astype(np.float64)).astype(dtype)
    assert_same_bits(rms_norm(x, weight, eps=eps, cast="before_gain"), expected)
    assert np.any(rms_norm(x, weight, eps=eps) != expected)


@pytest.mark.parametrize("dtype", [BFLOAT16, np.dtype(np.float16)], ids=name_of)
def test_rms_norm_gemma_adds_one_to_the_gain_and_rounds_once(dtype):
    x, weight = states(dtype), gain_of(96, dtype)
    expected = (normalised(x, 1e-6) * (1.0 + weight.astype(np.float64))).astype(dtype)
    assert_same_bits(rms_norm(x, weight, gain_offset=1.0), expected)
    rounded_gain = (dtype.type(1) + weight).astype(np.float64)
    assert np.any((normalised(x, 1e-6) * rounded_gain).astype(dtype) != expected)


def test_rms_norm_t5_with_half_weight_rounds_before_the_gain():
    x, weight = states(np.float16), gain_of(96, np.float16)
    hidden = normalised(x, 1e-6).astype(np.float16)
    expected = (weight.astype(np.float64) * hidden.astype(np.float64)).astype(np.float16)
    assert_same_bits(rms_norm(x, weight, cast="before_gain"), expected)


def test_rms_norm_t5_with_single_weight_gives_single():
    x, weight = states(np.float16), gain_of(96, np.float32)
    hidden = normalised(x, 1e-6).astype(np.float32)
    expected = (weight.astype(np.float64) * hidden.astype(np.float64)).astype(np.float32)
    result = rms_norm(x, weight, cast="before_gain", dtype=np.float32)
    assert_same_bits(result, expected)


@every_float
def test_rms_norm_torch_rounds_once_with_eps_of_the_accumulator(dtype):
    eps = float(np.finfo(np.float64 if dtype == np.float64 else np.float32).eps)
    x, weight = states(dtype), gain_of(96, dtype)
    expected = (normalised(x, eps) * weight.astype(np.float64)).astype(dtype)
    result = rms_norm(x, weight, eps=eps)
    if dtype == np.float64:
        np.testing.assert_array_max_ulp(result, expected, 3)
    else:
        assert_same_bits(result, expected)


@every_float
def test_rms_norm_onnx_rounds_before_the_scale(dtype):
    x, scale = states(dtype), gain_of(96, dtype)
    hidden = normalised(x, 1e-5).astype(dtype)
    expected = (hidden.astype(np.float64) * scale.astype(np.float64)).astype(dtype)
    result = rms_norm(x, scale, eps=1e-5, cast="before_gain")
    if dtype == np.float64:
        np.testing.assert_array_max_ulp(result, expected, 3)
    else:
        assert_same_bits(result, expected)


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16"])
def test_rms_norm_torch_agrees_with_torch_itself(name):
    torch = pytest.importorskip("torch")
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    x, weight = states(dtype), gain_of(96, dtype)
    wide = (torch.from_numpy(a.astype(np.float64)) for a in (x, weight))
    tensor, gain = (a.to(getattr(torch, name)) for a in wide)
    theirs = torch.nn.functional.rms_norm(tensor, (96,), gain, 1e-6).to(torch.float64).numpy()
    ours = rms_norm(tensor, gain, eps=1e-6)
    assert_same_bits(ours, rms_norm(x, weight, eps=1e-6))
    rtol = {"float64": 1e-14, "float32": 1e-6, "bfloat16": 2.0**-7}[name]
    np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=rtol)


# Accuracy ---------------------------------------------------------------------------------------


@every_mode
@pytest.mark.parametrize("length", [1, 7, 8, 9, 65])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rms_norm_random_rows_are_within_half_an_ulp_of_exact(dtype, length, eps_mode):
    x, gain = make((3, length), dtype, seed=length), gain_of(length, dtype)
    for result, row in zip(rms_norm(x, gain, eps_mode=eps_mode), x, strict=True):
        assert_normed(result, row, 0.51, gain, eps_mode=eps_mode)
    for result, row in zip(rms_norm(x, eps_mode=eps_mode), x, strict=True):
        assert_normed(result, row, 0.51, eps_mode=eps_mode)


@pytest.mark.parametrize("offset", [1.0, -0.3, 1e10])
@pytest.mark.parametrize("gain", ["array", "number"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rms_norm_gain_offset_is_added_in_float64(dtype, gain, offset):
    x = make((3, 33), dtype)
    gain = gain_of(33, dtype) if gain == "array" else dtype(0.1)
    for result, row in zip(rms_norm(x, gain, gain_offset=offset), x, strict=True):
        assert_normed(result, row, 0.51, gain, offset=offset)


def test_rms_norm_gain_offset_keeps_what_the_gain_format_would_lose():
    # In bfloat16 1 + 15.8125 = 16.8125 would become 16.75 or 16.875.
    gain = np.full(4, 15.8125).astype(BFLOAT16)
    assert float(gain[0]) == 15.8125
    assert float(gain[0] + BFLOAT16.type(1)) != 16.8125
    x = np.full((1, 4), 3, BFLOAT16)
    result = rms_norm(x, gain, gain_offset=1.0, eps=0.0, dtype=np.float64)
    np.testing.assert_array_equal(result, [[16.8125] * 4])


@pytest.mark.parametrize("eps", [0.0, 5e-324, 1e-300, 1e-12, 1e-5, 1.0, 1e300])
@every_mode
def test_rms_norm_any_eps_is_within_half_an_ulp_of_exact(eps, eps_mode):
    x = make((2, 17), np.float64, seed=5)
    for result, row in zip(rms_norm(x, eps=eps, eps_mode=eps_mode), x, strict=True):
        limit = 1 if eps == 1e300 else 0.51
        assert_normed(result, row, limit, eps=eps, eps_mode=eps_mode)


MAGNITUDES = [5e-324, 1e-310, 1e-200, 1e-154, 1e-3, 1e154, 1e200, 1.797e308]


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("eps", [0.0, 5e-324, 1e-300, 1e-6, 1e300])
@every_mode
def test_rms_norm_rows_of_any_magnitude_are_within_an_ulp_of_exact(magnitude, eps, eps_mode):
    x = np.random.default_rng(2).uniform(-1, 1, 17) * magnitude
    x[0] = magnitude
    result = rms_norm(x, eps=eps, eps_mode=eps_mode)
    assert_normed(result, x, 1, eps=eps, eps_mode=eps_mode)


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("gain", [1e300, 1e-300, 1e-310, -3.0])
@pytest.mark.parametrize("many", [True, False])
def test_rms_norm_gain_of_any_magnitude_is_within_an_ulp_of_exact(magnitude, gain, many):
    x = np.random.default_rng(2).uniform(-1, 1, 17) * magnitude
    x[0] = magnitude
    result = rms_norm(x, np.full(17, gain) if many else gain, eps=0.0)
    assert_normed(result, x, 1, gain, eps=0.0)


@pytest.mark.parametrize("magnitude", [1e-45, 1e-40, 1e-20, 1e20, 3e38])
@pytest.mark.parametrize("eps", [0.0, 1e-45, 1e-6])
def test_rms_norm_float32_rows_of_any_magnitude_are_within_an_ulp_of_exact(magnitude, eps):
    x = (np.random.default_rng(2).uniform(-1, 1, 33) * magnitude).astype(np.float32)
    x[0] = np.float32(magnitude)
    assert_normed(rms_norm(x, eps=eps), x, 1, eps=eps)
    assert_normed(rms_norm(x, gain_of(33, np.float32), eps=eps), x, 1, gain_of(33, np.float32), eps)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
@pytest.mark.parametrize("stored", [np.float32, BFLOAT16], ids=name_of)
def test_rms_norm_dtype_argument_is_rounded_once_from_exact(stored, dtype):
    x, gain = make((3, 33), stored), gain_of(33, np.float32)
    result = rms_norm(x, gain, dtype=dtype)
    assert result.dtype.name == dtype
    for values, row in zip(result, x, strict=True):
        assert_normed(values, row, 0.51, gain)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_rms_norm_of_many_rows_of_integers_writes_each(dtype):
    x = make((300, 1000), dtype)  # rows are summed while others are written
    result = rms_norm(x, out=np.full(x.shape, np.nan))
    assert np.isfinite(result).all()
    for row in (0, 150, 299):
        assert_normed(result[row], x[row], 0.51)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.uint16])
def test_rms_norm_integers_give_float64(dtype):
    x = make((4, 33), dtype)
    x[:, 0] = 1
    result = rms_norm(x, gain_of(33, np.float64))
    assert result.dtype == np.float64
    for values, row in zip(result, x, strict=True):
        assert_normed(values, row, 0.51, gain_of(33, np.float64))


@pytest.mark.parametrize("exponent", [-900, -30, 1, 400])
def test_rms_norm_times_power_of_two_with_eps_scaled_gives_same_bits(exponent):
    x = np.random.default_rng(1).uniform(1, 2, (5, 37))
    expected = rms_norm(x, eps=0.25, eps_mode="outside")
    eps = math.ldexp(0.25, exponent)
    assert_same_bits(rms_norm(np.ldexp(x, exponent), eps=eps, eps_mode="outside"), expected)


@every_mode
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_rms_norm_without_eps_and_gain_is_unit_rms(dtype, eps_mode):
    x = make((5, 37), dtype)
    assert_same_bits(rms_norm(x, eps=0.0, eps_mode=eps_mode), unit_rms(x))


def test_rms_norm_result_of_large_eps_has_no_unit_rms():
    assert rms(rms_norm(np.full(4, 0.5), eps=0.75)) == 0.5


@given(arrays(dtypes=[np.dtype(np.float64)], min_dims=1, max_dims=1, max_side=12, finite=True),
       st.sampled_from([0.0, 5e-324, 1e-6, 1e200]))  # fmt: skip
@settings(max_examples=60, deadline=None, derandomize=True)
def test_rms_norm_any_finite_row_is_within_an_ulp_of_exact(x, eps):
    if x.any():
        assert_normed(rms_norm(x, eps=eps), plain(x), 1, eps=eps)


# Casts ------------------------------------------------------------------------------------------


def rounded_fraction(value, dtype):
    """The number of a format nearest to a fraction, neither subnormal nor too large."""
    bits = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}[dtype.name]
    if not value:
        return Fraction(0)
    exponent = math.frexp(float(value))[1] - bits
    unit = Fraction(2) ** exponent
    return round(value / unit) * unit


@every_float
def test_rms_norm_before_gain_rounds_twice_exactly(dtype):
    x, gain = make((3, 40), dtype, seed=4), gain_of(40, dtype)
    result = rms_norm(x, gain, cast="before_gain").astype(np.float64)
    for values, row in zip(result, x, strict=True):
        size = root(mean_square(row) + Fraction(1e-6))
        for value, a, g in zip(values, fractions(row), fractions(gain), strict=True):
            hidden = rounded_fraction(a / size, dtype)
            assert Fraction(float(value)) == rounded_fraction(hidden * g, dtype)


def test_rms_norm_before_gain_rounds_the_row_to_the_result_dtype_not_to_that_of_x():
    x, gain = make((3, 40), np.float32, seed=4), gain_of(40, np.float32)
    hidden = normalised(x, 1e-6).astype(BFLOAT16).astype(np.float64)
    expected = (hidden * gain.astype(np.float64)).astype(BFLOAT16)
    assert_same_bits(rms_norm(x, gain, cast="before_gain", dtype="bfloat16"), expected)


def test_rms_norm_before_gain_adds_the_offset_in_float64():
    x, gain = states(BFLOAT16), gain_of(96, BFLOAT16)
    hidden = normalised(x, 1e-6).astype(BFLOAT16).astype(np.float64)
    expected = (hidden * (1.0 + gain.astype(np.float64))).astype(BFLOAT16)
    assert_same_bits(rms_norm(x, gain, cast="before_gain", gain_offset=1.0), expected)


@every_float
def test_rms_norm_cast_does_not_matter_without_gain(dtype):
    x = make((3, 40), dtype)
    assert_same_bits(rms_norm(x, cast="before_gain"), rms_norm(x))
    assert_same_bits(rms_norm(x, np.ones(40, dtype), cast="before_gain"), rms_norm(x))


@every_cast
def test_rms_norm_gain_too_large_for_the_format_gives_infinity(cast):
    x = np.array([[1.0, -1.0]], np.float16)
    result = rms_norm(x, np.array([1e5, 1e5]), eps=0.0, cast=cast)
    np.testing.assert_array_equal(result, [[np.inf, -np.inf]])


# Gain -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [float, int, np.float32, np.float64, np.array, BFLOAT16.type])
@every_cast
def test_rms_norm_gain_may_be_any_number(kind, cast):
    x = make((3, 7), np.float64)
    assert_same_bits(rms_norm(x, kind(3), cast=cast), rms_norm(x, np.full(7, 3.0), cast=cast))


PAIRS = [(np.float32, BFLOAT16), (np.float32, np.float64), (BFLOAT16, np.float32)]
PAIRS += [(BFLOAT16, np.float64), (np.float64, np.float32), (np.float64, np.int16)]


@pytest.mark.parametrize(("dtype", "gain_dtype"), PAIRS, ids=str)
@every_cast
def test_rms_norm_gain_of_another_dtype_is_taken_at_its_value(dtype, gain_dtype, cast):
    x = make((3, 37), dtype)
    gain = (8 * gain_of(37, np.float64)).astype(gain_dtype)
    result = rms_norm(x, gain, cast=cast)
    assert result.dtype == dtype
    assert_same_bits(result, rms_norm(x, gain.astype(np.float64), cast=cast))
    if cast == "after_gain":
        for values, row in zip(result, x, strict=True):
            assert_normed(values, row, 0.51, gain)


@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n != "repeated"])
@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
def test_rms_norm_gain_of_any_layout_gives_same_bits(layout, axis):
    x = make((3, 4, 5), np.float64)
    axes = range(3) if axis is None else sorted(a % 3 for a in np.atleast_1d(axis).tolist())
    gain = gain_of(tuple(x.shape[k] for k in axes), np.float64)
    expected = rms_norm(x, gain, axis=axis)
    assert_same_bits(rms_norm(x, LAYOUTS[layout](gain), axis=axis), expected)
    view = LAYOUTS[layout](x)
    assert_same_bits(rms_norm(view, LAYOUTS[layout](gain), axis=axis), expected)


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (2, 0), (1, 2), None])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
@every_cast
def test_rms_norm_any_axis_with_its_gain_gives_bits_of_rows(dtype, axis, cast):
    x = make((5, 6, 7), dtype)
    reduced = sorted({a % 3 for a in ((0, 1, 2) if axis is None else np.atleast_1d(axis).tolist())})
    order = [k for k in range(3) if k not in reduced] + reduced
    lengths = [x.shape[k] for k in reduced]
    gain = gain_of(lengths, dtype)
    rows = x.transpose(order).reshape(-1, math.prod(lengths)).copy()
    expected = rms_norm(rows, gain.reshape(-1), cast=cast, gain_offset=0.5)
    expected = expected.reshape([x.shape[k] for k in order]).transpose(np.argsort(order))
    for view in (x, fortran(x), strided(x)):
        assert_same_bits(rms_norm(view, gain, axis=axis, cast=cast, gain_offset=0.5), expected)


def test_rms_norm_gain_special_values_stay_in_their_coordinate():
    x = make((3, 5), np.float64)
    expected = rms_norm(x, np.full(5, 2.0))
    result = rms_norm(x, [2.0, np.nan, np.inf, 0.0, 2.0])
    assert np.isnan(result[:, 1]).all()
    np.testing.assert_array_equal(result[:, 2], np.copysign(np.inf, x[:, 2]))
    np.testing.assert_array_equal(result[:, 3], np.zeros(3))
    assert_same_bits(result[:, [0, 4]], expected[:, [0, 4]])


@pytest.mark.parametrize("cast", ["after_gain", "before_gain"])
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
def test_rms_norm_gain_nan_of_any_payload_gives_nan(dtype, cast):
    bits = [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001]  # the second is what GPUs make
    gain = np.resize(np.array(bits, np.uint32), 64).view(np.float32)
    assert np.isnan(rms_norm(make((3, 64), dtype), gain, cast=cast).astype(np.float64)).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rms_norm_gain_zero_gives_zero_without_nan(dtype):
    x = make((3, 37), dtype)
    assert not rms_norm(x, 0.0).any()
    assert not rms_norm(x, np.zeros(37)).any()
    assert not rms_norm(x, np.ones(37), gain_offset=-1.0).any()


# Zero rows and special values -------------------------------------------------------------------


@every_mode
@every_float
@pytest.mark.parametrize("axis", [-1, 0])
def test_rms_norm_zero_row_is_zero_with_eps_and_nan_without(dtype, eps_mode, axis):
    x = make((3, 37), dtype)
    x[1] = 0
    given_x = x if axis == -1 else x.T.copy()
    for eps, expected in ((1e-6, 0.0), (0.0, np.nan)):
        result, sizes = rms_norm(given_x, eps=eps, eps_mode=eps_mode, axis=axis, return_rms=True)
        rows = result if axis == -1 else result.T
        np.testing.assert_array_equal(rows[1].astype(np.float64), np.full(37, expected))
        assert np.isfinite(rows[[0, 2]].astype(np.float64)).all()
        assert sizes[1] == 0


@every_mode
@every_cast
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_rms_norm_nan_and_infinity_spoil_their_rows_alone(dtype, axis, cast, eps_mode):
    x, gain = np.abs(make((5, 6), dtype)), np.abs(gain_of(6, dtype))
    expected = rms_norm(x, gain, eps_mode=eps_mode, cast=cast)
    x[1, 2], x[3, 4], x[4, 0], x[4, 1] = np.nan, np.inf, np.inf, np.nan
    options = {"eps_mode": eps_mode, "cast": cast}
    by_rows = rms_norm(x, gain, **options)
    result = by_rows if axis == -1 else rms_norm(x.T.copy(), gain, axis=0, **options).T
    wide = result.astype(np.float64)
    assert np.isnan(wide[[1, 4]]).all()
    np.testing.assert_array_equal(wide[3], [0, 0, 0, 0, np.nan, 0])
    assert_same_bits(result[[0, 2]], expected[[0, 2]])


# Shapes, out and return_rms ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS + NARROW, ids=name_of)
def test_rms_norm_result_has_the_dtype_and_shape_of_x(dtype):
    for shape in ((), (5,), (2, 5), (2, 3, 5)):
        result = rms_norm(make(shape, dtype), np.float32(2))
        assert (np.shape(result), result.dtype) == (shape, dtype)


@pytest.mark.parametrize("axis", [None, -1, 0])
def test_rms_norm_number_is_a_vector_of_one_coordinate(axis):
    result, size = rms_norm(-5.0, 3.0, eps=0.0, axis=axis, return_rms=True)
    assert_same_bits(result, np.float64(-3.0))
    assert_same_bits(size, np.float64(5.0))


@pytest.mark.parametrize(
    ("shape", "axis", "lengths"), [((0, 4), -1, 4), ((0, 0), -1, 0), ((0, 0), 0, 0)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16, np.int8])
def test_rms_norm_without_rows_needs_no_coordinates(shape, axis, lengths, dtype):
    x = np.empty(shape, dtype)
    result, sizes = rms_norm(x, np.ones(lengths), axis=axis, return_rms=True)
    assert (result.shape, result.dtype) == (shape, np.float64 if dtype is np.int8 else dtype)
    assert_same_bits(sizes, rms(x, axis=axis))


@pytest.mark.parametrize("axis", [-1, 0, (0, 2), None])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
@every_mode
def test_rms_norm_return_rms_is_that_of_x_without_eps(dtype, axis, eps_mode):
    x = make((4, 5, 6), dtype)
    options = {"axis": axis, "eps": 0.5, "eps_mode": eps_mode}
    result, sizes = rms_norm(x, return_rms=True, **options)
    assert_same_bits(sizes, rms(x, axis=axis))
    assert_same_bits(result, rms_norm(x, **options))


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("layout", ["c", "fortran", "strided", "reversed"])
@every_cast
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_rms_norm_in_place_gives_bits_of_apart(dtype, cast, layout, axis):
    x = LAYOUTS[layout](make((4, 37), dtype))
    gain = gain_of(x.shape[axis], dtype)
    expected = rms_norm(x, gain, axis=axis, cast=cast)
    out = LAYOUTS[layout](np.full(x.shape, 7, dtype))
    assert rms_norm(x, gain, axis=axis, cast=cast, out=out) is out
    assert rms_norm(x, gain, axis=axis, cast=cast, out=x) is x
    assert_same_bits(out, expected)
    assert_same_bits(x, expected)


@pytest.mark.parametrize("rows", [1, 4])
def test_rms_norm_gain_that_shares_memory_with_out_is_right_or_refused(rows):
    x, memory = make((rows, 7), np.float64), np.empty((rows, 7))
    memory[0] = gain_of(7, np.float64)
    expected = rms_norm(x, memory[0].copy())
    try:
        rms_norm(x, memory[0], out=memory)
    except ValueError as error:
        found = str(error)
    else:
        found = None
        assert_same_bits(memory, expected)
    assert found is None or found.startswith("rms_norm: out must ")


def test_rms_norm_leaves_its_inputs_unchanged():
    x, gain = make((5, 6), np.float64), gain_of(6, np.float64)
    x.flags.writeable = gain.flags.writeable = False
    before = x.tobytes(), gain.tobytes()
    rms_norm(x, gain, gain_offset=1.0)
    assert (x.tobytes(), gain.tobytes()) == before


def test_rms_norm_codes_come_back_as_codes():
    x, gain = make((4, 37), BFLOAT16), gain_of(37, BFLOAT16)
    expected = rms_norm(x, gain)
    codes = x.view(np.uint16)
    assert_same_bits(rms_norm(codes, gain, format="bfloat16"), expected.view(np.uint16))
    assert rms_norm(codes, gain, format="bfloat16", out=codes) is codes
    assert_same_bits(codes, expected.view(np.uint16))


# Layouts, threads, large results ----------------------------------------------------------------


@every_layout
@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, BFLOAT16], ids=name_of)
def test_rms_norm_any_layout_gives_bits_of_the_c_copy(dtype, axis, layout):
    view = layout(make((6, 37), dtype))
    gain = gain_of(view.shape if axis is None else view.shape[axis], dtype)
    result, sizes = rms_norm(view, gain, axis=axis, return_rms=True)
    expected, wanted = rms_norm(plain(view), gain, axis=axis, return_rms=True)
    assert_same_bits(result, expected)
    assert_same_bits(sizes, wanted)


# Lengths that do not divide a cache line, so that rows start at each place in one.
LARGE = [(np.float64, 509), (np.float32, 1021), (BFLOAT16, 2039)]
every_large = pytest.mark.parametrize(("dtype", "length"), LARGE, ids=str)


def large(dtype, length):
    """Rows of more than 4 MiB together, and their gain."""
    rows = (9 << 19) // (length * np.dtype(dtype).itemsize) + 1
    return make((rows, length), dtype, seed=length), gain_of(length, dtype)


def in_pieces(x, gain, **options):
    """The result from pieces too small for another way of writing."""
    step = max(1, (1 << 18) // x[:1].nbytes)
    pieces = range(0, len(x), step)
    return np.concatenate([rms_norm(x[k : k + step], gain, threads=1, **options) for k in pieces])


@every_large
@every_cast
@pytest.mark.parametrize("threads", [1, 2])
def test_rms_norm_large_result_gives_bits_of_small_ones(dtype, length, threads, cast):
    x, gain = large(dtype, length)
    expected = in_pieces(x, gain, cast=cast, gain_offset=1.0)
    for out in (None, np.empty_like(x)):
        result = rms_norm(x, gain, out=out, cast=cast, gain_offset=1.0, threads=threads)
        assert_same_bits(result, expected)


@pytest.mark.parametrize("offset", range(18))
@every_large
def test_rms_norm_large_result_starting_anywhere_is_complete(dtype, length, offset):
    x, gain = large(dtype, length)
    memory = np.full(x.size + 64, 7, x.dtype)
    out = memory[offset : offset + x.size].reshape(x.shape)
    assert rms_norm(x, gain, out=out) is out
    assert_same_bits(out, in_pieces(x, gain))
    assert (memory[:offset] == 7).all()
    assert (memory[offset + x.size :] == 7).all()


@every_large
def test_rms_norm_large_in_place_gives_bits_of_small_ones(dtype, length):
    x, gain = large(dtype, length)
    expected = in_pieces(x, gain)
    assert rms_norm(x, gain, out=x) is x
    assert_same_bits(x, expected)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 200_003), -1), ((1031, 700), 0), ((3, 200_003), None)]
)
def test_rms_norm_any_thread_count_gives_same_bits(shape, axis, monkeypatch):
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1 << 20)
    x = make(shape, np.float32)
    gain = gain_of(shape if axis is None else shape[axis], np.float32)
    serial = rms_norm(x, gain, axis=axis, threads=1)
    for threads in (2, None):
        assert_same_bits(rms_norm(x, gain, axis=axis, threads=threads), serial)


# Refusals ---------------------------------------------------------------------------------------

REFUSED = [
    ({"eps": -1e-6}, ValueError, "eps must be finite and >= 0, got -1e-06"),
    ({"eps": math.inf}, ValueError, None),
    ({"eps": math.nan}, ValueError, None),
    ({"eps": "1e-6"}, TypeError, "eps must be a number, got str"),
    ({"eps": None}, TypeError, "eps must be a number, got NoneType"),
    ({"eps": [1e-6, 1e-6]}, TypeError, "eps must be a number, got list"),
    ({"gain_offset": math.inf}, ValueError, "gain_offset must be finite, got inf"),
    ({"gain_offset": math.nan}, ValueError, "gain_offset must be finite, got nan"),
    ({"gain_offset": None}, TypeError, "gain_offset must be a number, got NoneType"),
    ({"gain": None, "gain_offset": 1.0}, ValueError,
     "gain_offset must be 0 without a gain, got 1.0"),
    ({"cast": "once"}, ValueError, "cast must be one of 'after_gain', 'before_gain', got 'once'"),
    ({"cast": None}, ValueError, "cast must be one of 'after_gain', 'before_gain', got None"),
    ({"eps_mode": "in"}, ValueError,
     "eps_mode must be one of 'inside', 'outside', 'max', got 'in'"),
    ({"gain": np.ones(3)}, ValueError, "gain must be a number or have shape (4,), got shape (3,)"),
    ({"gain": np.ones(1)}, ValueError, "gain must be a number or have shape (4,), got shape (1,)"),
    ({"gain": (4,)}, ValueError, "gain must be a number or have shape (4,), got the shape itself "
     "(which coordinates make a row is told by axis)"),
    ({"gain": np.ones((3, 4))}, ValueError,
     "gain must be a number or have shape (4,), got shape (3, 4)"),
    ({"gain": np.ones(4), "axis": None}, ValueError,
     "gain must be a number or have shape (3, 4), got shape (4,)"),
    ({"gain": np.ones(4), "axis": 0}, ValueError,
     "gain must be a number or have shape (3,), got shape (4,)"),
    ({"gain": np.ones(4, complex)}, TypeError, "gain must be real, got dtype complex128"),
    ({"gain": 1j}, TypeError, "gain must be real, got dtype complex128"),
    ({"gain": np.array(["a"] * 4)}, TypeError, None),
    ({"x": np.ones((3, 4), np.complex64)}, TypeError, "x must be real, got dtype complex64"),
    ({"x": np.ones((3, 4), complex)}, TypeError, "x must be real, got dtype complex128"),
    ({"x": np.ones((3, 0))}, ValueError, None),
    ({"dtype": "int32"}, TypeError,
     "dtype must be a real floating dtype of at most 64 bits, got int32"),
    ({"dtype": "complex64"}, TypeError,
     "dtype must be a real floating dtype of at most 64 bits, got complex64"),
    ({"threads": 0}, ValueError, "threads must be None or an int >= 1, got 0"),
    ({"format": "float12"}, ValueError, None),
]  # fmt: skip


@pytest.mark.parametrize(("options", "exception", "message"), REFUSED, ids=str)
def test_rms_norm_argument_that_does_not_fit_is_refused(options, exception, message):
    x = options.get("x", np.ones((3, 4)))
    out = np.full((3, 4), 7.0)
    options = {"gain": 1.0, "out": None if "x" in options else out} | options
    with pytest.raises(exception, match=r"\Arms_norm: [^\n]+ must [^\n]+, got [^\n]+\Z") as refusal:
        rms_norm(x, **{name: value for name, value in options.items() if name != "x"})
    assert type(refusal.value) is exception
    assert message is None or str(refusal.value) == f"rms_norm: {message}"
    assert (out == 7).all()


@pytest.mark.parametrize("shift", [1, 6])
def test_rms_norm_out_that_overlaps_x_in_part_is_refused(shift):
    memory = make((64,), np.float64)
    before = memory.copy()
    x, out = memory[:30].reshape(5, 6), memory[shift : 30 + shift].reshape(5, 6)
    message = r"^rms_norm: out must be x itself or apart from it, got partial overlap$"
    with pytest.raises(ValueError, match=message):
        rms_norm(x, np.ones(6), out=out)
    assert_same_bits(memory, before)


@pytest.mark.parametrize(
    ("out", "exception", "message"),
    [
        (np.zeros((4, 3)), ValueError, "out must have shape (3, 4), got (4, 3)"),
        (np.zeros((3, 4), np.float32), TypeError, "out must have dtype float64, got float32"),
        (LAYOUTS["read_only"](np.zeros((3, 4))), ValueError,
         "out must be writeable, got a read-only array"),
    ],
)  # fmt: skip
def test_rms_norm_out_that_does_not_fit_is_refused(out, exception, message):
    with pytest.raises(exception) as refusal:
        rms_norm(np.ones((3, 4)), out=out)
    assert str(refusal.value) == f"rms_norm: {message}"
    assert not out.any()


@pytest.mark.parametrize("option", ["zero", "where", "keepdims", "nan_policy", "weights"])
def test_rms_norm_option_of_other_functions_is_unknown(option):
    with pytest.raises(TypeError, match="unexpected keyword"):
        rms_norm(np.ones(3), **{option: None})


def test_rms_norm_masked_array_takes_kept_values_for_the_size():
    x, mask = make((4, 37), np.float64), np.random.default_rng(5).random((4, 37)) < 0.4
    result = rms_norm(np.ma.array(x, mask=mask), eps=0.0)
    assert_same_bits(result, unit_rms(x, where=~mask))


@every_mode
@pytest.mark.parametrize("gain", [None, 2.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rms_norm_gives_what_the_formula_gives(dtype, gain, eps_mode):
    x = states(dtype).astype(np.float64)
    size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
    divisor = {
        "inside": np.sqrt(size**2 + 0.01), "outside": size + 0.01, "max": np.maximum(size, 0.01)
    }[eps_mode]  # fmt: skip
    result = rms_norm(states(dtype), gain, eps=0.01, eps_mode=eps_mode)
    np.testing.assert_allclose(result, (gain or 1.0) * x / divisor, rtol=np.finfo(dtype).eps * 3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rms_norm_gain_and_eps_near_the_ends_of_the_range_cancel(dtype):
    x = np.array([[3.0, -4.0, 0.0]], dtype)
    result = rms_norm(x, np.full(3, 1e300), eps=1e300, eps_mode="outside")
    np.testing.assert_array_max_ulp(result, x, 1)
