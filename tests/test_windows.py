"""rms_windows and agc: every window as if it stood alone, and what cuts, overlaps or is missing."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import mean_square, ulp_error
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run
from zoo import LAYOUTS, assert_same_bits, make, plain

from rmsfast import _launch, _window_sums, agc, reference, rms, rms_windows

BLOCK = 16384  # values that are summed before sums are folded
BOUND = 0.51


def spans(length, window, hop, edge):
    """First and last (exclusive) value of every window."""
    if edge == "valid":
        starts = range(0, length - window + 1, hop)
    elif edge == "partial":
        starts = range(0, math.ceil(max(length - window, 0) / hop) * hop + 1, hop)
    else:
        starts = range(-(window // 2), length - window // 2, hop)
    return [(max(start, 0), min(start + window, length)) for start in starts]


def signal(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "int16":
        return rng.integers(-(2**15), 2**15, shape).astype(dtype)
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(dtype)


def exact_squares(x, cuts):
    """Sums of squares of runs of one row, as integers over a power of two."""
    found = [Fraction(0)]
    for value in np.asarray(x).tolist():
        found.append(found[-1] + Fraction(value) ** 2)
    return [(found[end] - found[begin]) / (end - begin) for begin, end in cuts]


def assert_exact(result, x, cuts):
    """Every window of rows within the bound."""
    assert result.shape == (*x.shape[:-1], len(cuts))
    for values, row in zip(result.reshape(-1, len(cuts)), x.reshape(-1, x.shape[-1]), strict=True):
        squares = exact_squares(row, cuts)
        assert max(map(ulp_error, values, squares), default=0.0) <= BOUND


WINDOWS = [
    (1, 1), (1, 3), (5, 5), (8, 1), (30, 7), (30, 30), (64, 8), (100, 250), (127, 13),
]  # fmt: skip


@pytest.mark.parametrize("edge", ["valid", "partial", "centered"])
@pytest.mark.parametrize(("window", "hop"), WINDOWS)
@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
def test_rms_windows_of_random_signals_are_exact_on_both_axes(dtype, window, hop, edge):
    x = signal((260, 130), dtype)  # too large for a conversion that spares compiling
    cuts = spans(260, window, hop, edge)
    result = rms_windows(x, window, hop=hop, axis=0, edge=edge)
    assert result.dtype == (np.float32 if dtype == "float32" else np.float64)
    cuts = [(begin, end) for begin, end in cuts if begin < end]
    assert_exact(result[: len(cuts), ::43].T, x[:, ::43].T, cuts)
    assert np.isnan(result[len(cuts) :]).all()  # behind the end
    rows = np.ascontiguousarray(x.T)
    assert_same_bits(rms_windows(rows, window, hop=hop, edge=edge), plain(result.T))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("window", "hop"),
    [(BLOCK + 5, 1), (BLOCK + 5, 4000), (17_000, 17_000), (17_000, 16_997), (BLOCK + 5, 18_000)],
)
@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
def test_rms_windows_longer_than_a_block_are_exact_on_both_axes(dtype, window, hop, axis):
    x = signal((36_000, 17), dtype)
    result = rms_windows(x if axis == 0 else plain(x.T), window, hop=hop, axis=axis)
    rows = result.T if axis == 0 else result
    cuts = spans(36_000, window, hop, "valid")
    assert rows.shape == (17, len(cuts))
    for k in range(0, len(cuts), max(1, len(cuts) // 3)):
        begin, end = cuts[k]
        for row in (0, 16):
            assert ulp_error(rows[row, k], mean_square(x[begin:end, row])) <= BOUND


@pytest.mark.parametrize("columns", [3, 16, 45, 64])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_rms_windows_of_small_integers_are_exact_at_their_extremes(dtype, columns):
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max + 1, (22_000, columns))
    x[:5000] = x[5000:10_000:2] = limits.min
    sums = np.cumsum(np.vstack([np.zeros(columns, np.int64), x * x]), axis=0)
    for window, hop in ((5001, 5001), (5001, 1003), (37, 21), (3, 2)):
        result = rms_windows(x.astype(dtype), window, hop=hop, axis=0)
        cuts = spans(len(x), window, hop, "valid")[:: max(1, 300 // window)]
        assert len(result) == len(spans(len(x), window, hop, "valid"))
        for k in (0, columns - 1):
            squares = [Fraction(int(sums[b, k] - sums[a, k]), b - a) for a, b in cuts]
            errors = map(ulp_error, result[:: max(1, 300 // window), k], squares)
            assert max(errors) <= BOUND


def test_rms_windows_of_integers_whose_squares_exceed_2_to_53_are_exact():
    window = 2**23 + 5
    x = np.full(window + 4, -(2**15), np.int16)
    x[3:7] = 1, 181, 32_767, 2
    result = rms_windows(x, window, hop=4)
    total = int(np.square(x[7:window], dtype=np.int64).sum())
    for k, value in enumerate(result):
        ends = np.concatenate([x[4 * k : 7], x[window : 4 * k + window]]).astype(np.int64)
        assert ulp_error(value, Fraction(total + int(ends @ ends), window)) <= BOUND


def test_rms_windows_longer_than_what_is_kept_are_exact():
    x = signal((4, 12_000), "float64")
    window = 9000  # of hops of 1: blocks are read twice
    cuts = spans(12_000, window, 1, "centered")
    result = rms_windows(x, window, hop=1, edge="centered")
    some = slice(None, None, 997)
    assert_exact(plain(result[:, some]), x, cuts[some])


def test_rms_windows_of_one_long_row_side_by_side_are_exact():
    x = signal(20_000, "float64")
    result = rms_windows(x, 40, hop=3, edge="centered")
    assert_exact(result, x, spans(20_000, 40, 3, "centered"))


@pytest.mark.parametrize(
    ("edge", "window", "hop", "count"),
    [
        ("valid", 3, 3, 3), ("valid", 3, 2, 4), ("valid", 10, 1, 1), ("valid", 4, 20, 1),
        ("partial", 3, 3, 4), ("partial", 3, 2, 5), ("partial", 11, 4, 1), ("partial", 10, 4, 1),
        ("centered", 3, 3, 4), ("centered", 50, 1, 10), ("centered", 3, 11, 1),
    ],
)  # fmt: skip
def test_rms_windows_number_follows_the_edge(edge, window, hop, count):
    x = np.arange(20.0).reshape(10, 2)
    result = rms_windows(x, window, hop=hop, axis=0, edge=edge)
    assert result.shape == (count, 2)
    expected = [rms(x[a:b], axis=0) for a, b in spans(10, window, hop, edge)]
    np.testing.assert_allclose(result, expected, rtol=2**-52)


@pytest.mark.parametrize("rows", [10, 70_000])
def test_rms_windows_partial_that_begins_behind_the_end_is_nan(rows):
    x = np.ones((rows, 2))
    result = rms_windows(x, 3, hop=rows + 5, axis=0, edge="partial")
    np.testing.assert_array_equal(result, [[1, 1], [np.nan, np.nan]])
    np.testing.assert_array_equal(rms_windows(x, 3, hop=rows + 5, axis=0), [[1, 1]])


@pytest.mark.parametrize("window", [19, 20, 21, 10**12])
def test_rms_windows_centered_and_longer_than_the_axis_hold_it_all(window):
    x = np.arange(1.0, 11.0)
    result = rms_windows(x, window, hop=1, edge="centered")
    expected = [rms(x[a:b]) for a, b in spans(10, window, 1, "centered")]
    np.testing.assert_allclose(result, expected, rtol=2**-52)
    np.testing.assert_allclose(agc(x, window), x / expected, rtol=2**-51)


def test_rms_windows_without_hop_lie_end_to_end_with_the_bits_of_rms():
    x = signal((980, 6), "float64")
    expected = rms(x[:900].reshape(9, 100, 6), axis=1)
    assert_same_bits(rms_windows(x, 100, axis=0), expected)


def test_rms_windows_after_a_loud_stretch_lose_nothing():
    x = np.r_[np.full(1000, 1e8), np.full(1000, 1e-3)]
    result = rms_windows(x, 10, hop=1)
    assert (result[:991] == 1e8).all()
    assert (result[1000:] == 1e-3).all()
    assert result.min() == 1e-3


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e-160, 1e160, 1e200, 1.7e308])
def test_rms_windows_over_the_range_of_float64_are_exact(size):
    x = np.ones((4, 300))
    x[1, 100:200] = size
    x[2] = size * np.linspace(0.5, 1.0, 300)
    x[3, 150:] = 0.0
    result = rms_windows(x, 20, hop=2)
    cuts = spans(300, 20, 2, "valid")
    for values, row in zip(result, x, strict=True):
        errors = [
            ulp_error(v, mean_square(row[a:b])) for v, (a, b) in zip(values, cuts, strict=True)
        ]
        assert max(errors) <= (0.76 if size < 1e-300 else BOUND)


def test_rms_windows_do_not_wrap_integers():
    x = np.full((9000, 5), -(2**15), np.int16)
    assert (rms_windows(x, 1000, hop=10, axis=0) == 2.0**15).all()
    assert (rms_windows(np.full(300, 2**64 - 1, np.uint64), 7, hop=2) == 2.0**64).all()


@pytest.mark.parametrize("hop", [1, 10, 30])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rms_windows_with_nan_and_inf_spoil_the_windows_that_hold_them(dtype, hop):
    x = np.ones((200, 90), dtype)
    x[50, 3], x[120, 3], x[125, 3], x[125, 4] = np.nan, np.inf, np.nan, -np.inf
    result = rms_windows(x, 10, hop=hop, axis=0, edge="centered")
    cuts = spans(200, 10, hop, "centered")
    for k, column in ((3, x[:, 3]), (4, x[:, 4])):
        expected = [np.sqrt(np.mean(column[a:b] ** 2)) for a, b in cuts]
        np.testing.assert_array_equal(result[:, k], expected)
    assert (np.delete(result, [3, 4], 1) == 1.0).all()


def test_rms_windows_omit_leaves_out_nan_and_gives_nan_for_none():
    x = np.r_[3.0, np.nan, 4.0, np.nan, np.nan, 2.0]
    result = rms_windows(x, 2, hop=1, nan_policy="omit")
    np.testing.assert_array_equal(result, [3, 4, 4, np.nan, 2])
    whole = np.where(np.isnan(x), 0, 1j * x)
    np.testing.assert_array_equal(
        rms_windows(np.where(np.isnan(x), complex(np.nan, 1), whole), 2, hop=1, nan_policy="omit"),
        result,
    )


def test_rms_windows_raise_counts_the_windows_with_nan():
    x = np.ones((20, 3))
    x[4, 1] = np.nan
    out = np.zeros((19, 3))
    message = r"rms_windows: x must hold no NaN under nan_policy='raise', got NaN in 2 of 57 rows"
    with pytest.raises(ValueError, match=message):
        rms_windows(x, 2, hop=1, axis=0, nan_policy="raise", out=out)
    assert not out.any()
    hidden = np.ma.masked_invalid(x)
    assert rms_windows(hidden, 1, axis=0, nan_policy="raise")[4, 0] == 1.0


def test_rms_windows_masks_are_left_out():
    x = np.ma.masked_array([1.0, 100.0, 1.0, np.nan], [False, True, False, True])
    np.testing.assert_array_equal(rms_windows(x, 2, hop=1), [1, 1, 1])
    np.testing.assert_array_equal(rms_windows(x, 1), [1, np.nan, 1, np.nan])


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("hop", [2, 6])
def test_rms_windows_any_layout_gives_same_bits(layout, hop):
    view = layout(make((7, 150, 40), "float32"))
    for axis in (0, 1, 2):
        expected = rms_windows(plain(view), 6, hop=hop, axis=axis)
        assert_same_bits(rms_windows(view, 6, hop=hop, axis=axis), expected)


@pytest.mark.parametrize(
    "dtype", [bool, "uint8", "int64", "float16", "complex64", ml_dtypes.bfloat16]
)
def test_rms_windows_of_any_dtype_are_those_of_the_reference(dtype):
    x = (50 * np.random.default_rng(0).standard_normal((40, 6))).astype(dtype)
    for window, hop in ((9, 2), (4, 4), (3, 5)):
        result = rms_windows(x, window, hop=hop, axis=0, edge="centered")
        expected = reference.rms_windows(x, window, hop=hop, axis=0, edge="centered")
        assert result.dtype == expected.dtype
        np.testing.assert_allclose(result, expected, rtol=1e-7 if result.itemsize == 4 else 1e-15)


def test_rms_windows_of_codes_are_those_of_their_values():
    values = make((300, 4), ml_dtypes.bfloat16)
    result = rms_windows(values.view(np.uint16), 7, hop=2, axis=0, format="bfloat16")
    assert_same_bits(result, rms_windows(values.astype(np.float32), 7, hop=2, axis=0))


def test_rms_windows_same_bits_for_any_threads_and_rows():
    x = signal((3000, 70), "float64")
    expected = rms_windows(x, 30, hop=4, axis=0, threads=1)
    assert_same_bits(rms_windows(x, 30, hop=4, axis=0, threads=2), expected)
    assert_same_bits(rms_windows(x[:, 5:6], 30, hop=4, axis=0), plain(expected[:, 5:6]))


def test_rms_windows_out_takes_the_result():
    x = signal((300, 40), "float64")
    expected = rms_windows(x, 9, hop=1, axis=0, edge="centered")
    for out in (np.empty((300, 40)), np.empty((40, 300)).T, np.empty((300, 80))[:, ::2]):
        assert rms_windows(x, 9, hop=1, axis=0, edge="centered", out=out) is out
        assert_same_bits(plain(out), expected)
    assert rms_windows(x, 9, hop=1, axis=0, edge="centered", out=x) is x
    assert_same_bits(x, expected)


def test_rms_windows_dtype_rounds_once():
    x = signal((5, 100), "float64")
    half = rms_windows(x, 10, dtype="float16")
    assert_same_bits(half, rms_windows(x, 10).astype(np.float16))


def test_rms_windows_of_a_number_and_of_nothing():
    np.testing.assert_array_equal(rms_windows(-3.0, 1), [3.0])
    assert rms_windows(np.empty((0, 5)), 2).shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"window": 0}, ValueError, "window must be an int >= 1, got 0"),
        ({"window": 2.0}, TypeError, "window must be an int >= 1, got 2.0"),
        ({"window": True}, TypeError, "window must be an int >= 1, got True"),
        ({"window": 2, "hop": -1}, ValueError, "hop must be an int >= 1, got -1"),
        ({"window": 2, "hop": "3"}, TypeError, "hop must be an int >= 1, got '3'"),
        ({"window": 6}, ValueError, "window must be at most the length of the axis, 5, with "),
        ({"window": 2, "axis": None}, TypeError, "axis must be an int, got None"),
        ({"window": 2, "axis": (0,)}, TypeError, r"axis must be an int, got \(0,\)"),
        ({"window": 2, "axis": 2}, np.exceptions.AxisError, "axis must be in"),
        ({"window": 2, "edge": "same"}, ValueError, "edge must be one of 'valid', 'partial', "),
        ({"window": 2, "out": np.empty((4, 3))}, ValueError, "out must have shape"),
    ],
)
def test_rms_windows_refuses_in_one_line(options, error, message):
    window = options.pop("window")
    with pytest.raises(error, match=f"^rms_windows: {message}") as found:
        rms_windows(np.ones((4, 5)), window, **options)
    assert "\n" not in str(found.value)


def test_rms_windows_of_an_empty_axis_are_refused_unless_there_are_none():
    with pytest.raises(ValueError, match="x must have a coordinate along axis"):
        rms_windows(np.empty((3, 0)), 2, edge="partial")
    assert rms_windows(np.empty((3, 0)), 2, edge="centered").shape == (3, 0)


def test_rms_windows_show_the_dead_and_the_noisy_channel_of_a_probe():
    rate, channels, dead, noisy = 300, 384, 191, 77  # a hundredth of the rate of a recording
    rng = np.random.default_rng(0)
    x = rng.normal(0, 20, (10 * rate, channels))
    x[:, dead], x[:, noisy] = 0, rng.normal(0, 300, 10 * rate)
    levels = rms_windows(x.round().astype(np.int16), 3 * rate, axis=0, edge="partial")
    assert levels.shape == (4, channels)
    assert (levels[:, dead] == 0).all()
    typical = np.median(levels, axis=1, keepdims=True)
    assert [set(np.flatnonzero(row > 5)) for row in levels / typical] == [{noisy}] * 4
    assert [set(np.flatnonzero(row < 0.2)) for row in levels / typical] == [{dead}] * 4


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 60),
    st.sampled_from(["valid", "partial", "centered"]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_rms_windows_any_cut_gives_the_windows(length, window, hop, edge, seed):
    x = np.random.default_rng(seed).standard_normal((length, 3))
    if edge == "valid" and window > length:
        return
    result = rms_windows(x, window, hop=hop, axis=0, edge=edge)
    expected = [
        rms(x[a:b], axis=0) if a < b else np.full(3, np.nan)
        for a, b in spans(length, window, hop, edge)
    ]
    np.testing.assert_allclose(result, expected, rtol=2**-52)


# agc --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["int16", "float32", "float64"])
def test_agc_divides_by_the_rms_of_the_window_around(dtype, axis):
    x = signal((120, 150), dtype)
    found, gain = agc(x, 15, axis=axis, return_gain=True)
    assert found.dtype == (np.float32 if dtype == "float32" else np.float64)
    rows, scaled = (np.moveaxis(a, axis, -1)[7] for a in (x, found))
    for value, own, (a, b) in zip(scaled, rows, spans(len(rows), 15, 1, "centered"), strict=True):
        square = Fraction(own.item()) ** 2 / mean_square(rows[a:b])
        assert ulp_error(abs(value), square) <= (1.6 if dtype != "float32" else BOUND)
        assert np.sign(value) == np.sign(own)
    np.testing.assert_allclose(found, x * gain, rtol=2.0 ** (-22 if dtype == "float32" else -51))


def test_agc_with_a_hop_interpolates_between_centres():
    x = np.r_[np.full(20, 2.0), np.full(20, 6.0)]
    sizes = rms_windows(x, 4, hop=8, edge="centered")
    between = np.interp(np.arange(40), np.arange(0, 40, 8), sizes)
    np.testing.assert_allclose(agc(x, 4, hop=8), x / between, rtol=1e-15)
    x[16:24] = [1e8] * 4 + [1e-3] * 4
    sizes = rms_windows(x, 1, hop=8, edge="centered")
    assert (agc(x, 1, hop=8)[::8] == 1.0).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_agc_with_a_hop_divides_rows_of_any_layout_in_place_too(axis, monkeypatch):
    monkeypatch.setattr("rmsfast._gains.PIECE", 1 << 10)  # many pieces
    x = signal((501, 40), "float64")
    x = x if axis == 0 else plain(x.T)
    sizes = np.moveaxis(rms_windows(x, 9, hop=6, axis=axis, edge="centered"), axis, -1)
    centres = np.arange(0, 501, 6)
    between = [np.interp(np.arange(501), centres, row) for row in sizes]
    found, gain = agc(x, 9, hop=6, axis=axis, return_gain=True)
    np.testing.assert_allclose(np.moveaxis(gain, axis, -1), 1 / np.array(between), rtol=2.0**-49)
    np.testing.assert_allclose(found, x * gain, rtol=2.0**-51)
    agc(x, 9, hop=6, axis=axis, out=x)
    assert_same_bits(x, found)


@pytest.mark.parametrize("hop", [1, 5])
def test_agc_of_subnormal_values_is_that_of_the_same_times_a_power_of_two(hop):
    x = np.random.default_rng(0).integers(-99, 100, 400).astype(np.float64)
    x[100:200], x[250:] = 0, x[250:] * 2.0**1000
    expected = agc(x, 7, hop=hop)
    np.testing.assert_allclose(agc(x * 2.0**-1074, 7, hop=hop), expected, rtol=2.0**-50)


def test_agc_zero_windows_are_kept_made_nan_or_refused():
    x = np.r_[np.ones(6), np.zeros(5), -np.ones(3)]
    kept, gain = agc(x, 3, return_gain=True)
    assert (kept[7:10] == 0).all()
    assert (gain[7:10] == 1).all()
    assert np.isnan(agc(x, 3, zero="nan")).nonzero()[0].tolist() == [7, 8, 9]
    out = np.full(14, 7.0)
    message = r"agc: x must be nonzero under zero='raise', got 3 zero windows, the first at index "
    with pytest.raises(ValueError, match=message + r"\(7,\)$"):
        agc(x, 3, zero="raise", out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_agc_in_place_gives_the_bits_of_a_new_array(axis, monkeypatch):
    monkeypatch.setattr("rmsfast._gains.PIECE", 1 << 10)  # many pieces
    x = signal((700, 40), "float64")
    expected = agc(x, 9, axis=axis)
    assert_same_bits(expected, np.ascontiguousarray(agc(x.T.copy(), 9, axis=1 - axis).T))
    assert agc(x, 9, axis=axis, out=x) is x
    assert_same_bits(x, expected)


def test_agc_of_tiny_windows_keeps_their_digits():
    x = np.r_[np.full(30, 3e-318), np.zeros(30), 5e-324, np.zeros(29), np.full(10, 1e300)]
    found = agc(x, 10)
    assert (found[:20] == 1.0).all()
    assert found[60] == pytest.approx(math.sqrt(10), rel=2**-51)
    assert found[95] == 1.0


def test_agc_of_complex_values_keeps_their_phase():
    x = np.array([3 + 4j, -6 + 8j, complex(np.inf, 0), 1j, 1j])
    found = agc(x, 1)
    np.testing.assert_allclose(found[[0, 1, 3]], [0.6 + 0.8j, -0.6 + 0.8j, 1j], rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_agc_of_narrow_formats_rounds_once(dtype):
    x = make((3, 50), dtype)
    found = agc(x, 7)
    assert found.dtype == dtype
    wide = agc(x.astype(np.float32), 7, dtype="float64")
    assert_same_bits(found, agc(x.astype(np.float32), 7, dtype=dtype))
    unit = 2.0 ** (-11 if dtype == "float16" else -8)
    np.testing.assert_allclose(found.astype(float), wide, rtol=1.01 * unit, atol=1e-30)


def test_agc_refuses_in_one_line():
    with pytest.raises(ValueError, match=r"^agc: zero must be one of 'keep', 'nan', 'raise', got"):
        agc(np.ones(3), 2, zero="zero")
    with pytest.raises(ValueError, match=r"^agc: window must be an int >= 1, got 0$"):
        agc(np.ones(3), 0)
    x = np.ones(9)
    with pytest.raises(ValueError, match=r"^agc: out must be x itself or apart from it"):
        agc(x[:8], 2, out=x[1:])


# Without Numba ----------------------------------------------------------------------------------


def test_windows_without_numba_are_those_with_it(monkeypatch):
    x = signal((50, 4), "float32")
    x[20:35, 1] = 0
    with_numba = rms_windows(x, 6, hop=4, axis=0, edge="centered"), agc(x, 5, axis=0)
    monkeypatch.setattr(_launch, "kernels", lambda: None)
    without = rms_windows(x, 6, hop=4, axis=0, edge="centered"), agc(x, 5, axis=0)
    for one, other in zip(with_numba, without, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-7)


def test_windows_without_numba_refuse_and_fill_alike(monkeypatch):
    x = np.r_[1.0, np.nan, 0.0, 0.0]
    monkeypatch.setattr(_launch, "kernels", lambda: None)
    with pytest.raises(ValueError, match="x must have no NaN, got 1"):
        rms_windows(x, 2, nan_policy="raise")
    np.testing.assert_array_equal(rms_windows(x, 1, nan_policy="omit"), [1, np.nan, 0, 0])
    np.testing.assert_array_equal(rms_windows(x, 1, hop=3, edge="partial"), [1, 0])
    with pytest.raises(ValueError, match="x must have no zero window, got 2"):
        agc(x, 1, zero="raise")


def test_reference_windows_of_nothing_are_none():
    assert reference.rms_windows(np.empty((3, 0)), 2, edge="centered").shape == (3, 0)


def test_window_kernel_keeps_short_windows_only():
    series = _window_sums.Series((np.ones((3, 10)), "float64"), [], 1, None)
    for window, kept in ((1000, True), (1_000_000, False)):
        windows = _window_sums.windows_of(10**7, window, 1, "valid")
        assert (_window_sums.block_of(series, windows, True) == window) is kept


def test_windows_in_many_python_threads_give_same_bits():
    program = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from rmsfast import rms_windows
x = np.random.default_rng(0).standard_normal((3000, 64))
calls = lambda _: rms_windows(x, 50, hop=5, axis=0).tobytes()
with ThreadPoolExecutor(4) as pool:
    print(len(set(pool.map(calls, range(8)))))
"""
    assert run(program) == "1"
