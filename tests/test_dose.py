"""apply_dose, predict_dose, measure_dose, dose_floor against an emulation in float64."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from exact import fractions
from formats import CODES, DTYPES, EDIT, LIMITS, OWN, SUM, philox, rounded, spacing, stored
from zoo import LAYOUTS, assert_same_bits, plain

from rmsfast import apply_dose, dose_floor, measure_dose, predict_dose, rms, round_to
from rmsfast.reference.doses import floors

BF16 = DTYPES["bfloat16"]
MODES = ["nearest_even", "toward_zero", "stochastic"]
PATHS = ["cast_then_add", "add_then_cast"]
SEED = 11
FLOAT_FIELDS = (
    "rms_clean", "rms_after", "top_energy_share", "alpha_requested", "rms_requested",
    "rms_rounded_request", "relative_rmse_rounded", "rms_realised", "alpha_size",
    "alpha_projected", "rms_off_direction", "relative_rmse_realised", "cosine", "frac_unchanged",
    "frac_wrong_sign", "max_abs_error",
)  # fmt: skip
COUNTS = ("top_index", "n_overflow", "n_nonfinite")
SOURCES = {"measured_at": "in memory", "clean_source": "before the edit"}


def rows(shape=(6, 203), seed=0, size=1.0):
    return size * np.random.default_rng(seed).standard_normal(shape)


@np.errstate(all="ignore")
def emulated(h, u, alpha, storage, path="cast_then_add", mode="nearest_even", edit="float32",
             overflow="ieee"):  # fmt: skip
    """After, and what reports say, of rows of float64: the definitions, in float64."""
    h, u = np.asarray(h, np.float64), np.asarray(u, np.float64)
    words = [w.reshape(h.shape) for w in philox(np.arange(h.size), SEED)]
    c, lost = rounded(h, storage, mode, words[OWN], overflow)
    size = np.sqrt(np.mean(c**2, axis=-1, keepdims=True))
    alpha = np.broadcast_to(alpha, h.shape[:-1])[..., None]
    unit = u / np.sqrt(np.mean(u**2))
    q = alpha * size / np.sqrt(np.mean(u**2)) * u
    e, _ = rounded(q, edit)
    r, more = rounded(e, storage, mode, words[EDIT], overflow)
    a, most = rounded(c + (r if path == "cast_then_add" else e), storage, mode, words[SUM],
                      overflow)  # fmt: skip
    a = np.where(alpha == 0, c, a)
    lost = lost | ((most | (more & (path == "cast_then_add"))) & (alpha != 0))
    return a, report_of(c, a, q, r, unit, size, alpha, lost)


def report_of(c, a, q, r, unit, size, alpha, lost=None):
    def root(v):
        return np.sqrt(np.mean(v**2, axis=-1))

    d, size, alpha = a - c, size[..., 0], alpha[..., 0]
    along = np.mean(d * unit, axis=-1)
    asked = np.abs(alpha) * size
    return {
        "rms_clean": root(c),
        "rms_after": root(a),
        "top_index": np.argmax(np.abs(c), axis=-1),
        "top_energy_share": np.max(c**2, axis=-1) / np.sum(c**2, axis=-1),
        "alpha_requested": alpha,
        "rms_requested": asked,
        "rms_rounded_request": root(r),
        "relative_rmse_rounded": root(r - q) / asked,
        "rms_realised": root(d),
        "alpha_size": root(d) / size,
        "alpha_projected": along / size,
        "rms_off_direction": root(d - along[..., None] * unit),
        "relative_rmse_realised": root(d - q) / asked,
        "cosine": np.mean(d * q, axis=-1) / (root(d) * root(q)),
        "frac_unchanged": np.mean((d == 0) & (q != 0), axis=-1),
        "frac_wrong_sign": np.mean(d * q < 0, axis=-1),
        "angle_deg": np.degrees(np.arccos(np.clip(
            np.mean(a * c, axis=-1) / (root(a) * root(c)), -1, 1))),
        "max_abs_error": np.max(np.abs(d - q), axis=-1),
        "error": np.abs(d - q),
        "n_overflow": np.sum(lost, axis=-1) if lost is not None else None,
        "n_nonfinite": np.sum(~np.isfinite(a), axis=-1),
    }  # fmt: skip


def assert_report(report, expected, rtol=1e-9):
    """Every field; a sum that cancels is known to a part of what is added."""
    scale = expected["rms_clean"]
    for name in FLOAT_FIELDS:
        atol = {
            "rms_off_direction": 1e-3 * rtol**0.5 * expected["rms_realised"],
            "alpha_projected": rtol * np.abs(expected["alpha_requested"]),
            "max_abs_error": rtol / 10 * expected["rms_requested"],
        }.get(name, 0.0)
        found, known = getattr(report, name), expected[name]
        off = np.abs(found - known) > rtol * np.abs(known) + atol + 1e-15
        assert not (off | (np.isnan(found) != np.isnan(known))).any(), (name, found, known)
    np.testing.assert_allclose(report.angle_deg, expected["angle_deg"], atol=1e-3)
    for name in COUNTS:
        if expected[name] is not None:
            np.testing.assert_array_equal(getattr(report, name), expected[name], err_msg=name)
    found = np.take_along_axis(
        expected["error"], np.asarray(report.max_error_index)[..., None], axis=-1
    )[..., 0]
    np.testing.assert_allclose(found, expected["max_abs_error"], rtol=1e-5, atol=1e-7 * scale.max())


def assert_values(after, expected, storage):
    assert_same_bits(after, stored(expected, storage))


# The emulation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("storage", LIMITS)
def test_apply_dose_is_the_emulation_in_every_way(storage, path, mode):
    h = stored(rows(), storage)
    u = rows((203,), 1)
    alpha = np.array([0.5, 0.1, -0.03, 0.003, 0.0, 1e-5])
    expected, fields = emulated(h, u, alpha, storage, path, mode)
    after, report = apply_dose(h, u, alpha, path=path, rounding=mode,
                               seed=SEED if mode == "stochastic" else None)  # fmt: skip
    assert_values(after, expected, storage)
    quick = (storage, path, mode) == ("bfloat16", "cast_then_add", "nearest_even")
    assert_report(report, fields, rtol=1e-5 if quick else 1e-9)


@pytest.mark.parametrize("edit", ["float32", "float64"])
def test_apply_dose_quick_rows_have_the_bits_of_the_emulation(edit):
    # So many that the requests whose rounding float32 leaves open are among them.
    h = stored(rows((40, 4109)), "bfloat16")
    h[:, 5:9] = -0.0
    u = rows((4109,), 1)
    u[::7] = 0
    alpha = np.geomspace(3.0, 1e-6, 40) * np.where(np.arange(40) % 2, 1, -1)
    expected, fields = emulated(h, u, alpha, "bfloat16", edit=edit)
    after, report = apply_dose(h, u, alpha, edit_format=edit)
    assert_values(after, expected, "bfloat16")
    assert_report(report, fields, rtol=1e-5)


@pytest.mark.parametrize("size", [2.0**-126, 2.0**-60, 2.0**-31, 2.0**31, 2.0**60, 2.0**120])
def test_apply_dose_to_rows_of_any_size_is_the_emulation(size):
    h = stored(rows(size=size), "bfloat16")
    u = rows((203,), 1)
    expected, fields = emulated(h, u, 0.03, "bfloat16")
    after, report = apply_dose(h, u, 0.03)
    assert_values(after, expected, "bfloat16")
    for name in ("relative_rmse_realised", "alpha_projected", "cosine", "angle_deg"):
        np.testing.assert_allclose(getattr(report, name), fields[name], rtol=1e-4)


@pytest.mark.parametrize("edit", ["float32", "float64"])
@pytest.mark.parametrize("storage", ["float32", "bfloat16", "float8_e4m3fn"])
def test_apply_dose_without_a_report_has_the_bits_of_the_emulation(storage, edit):
    h = stored(rows((20, 1037)), storage)
    h[:, 5:9] = -0.0
    u = rows((1037,), 1)
    u[::7] = 0
    alpha = np.geomspace(3.0, 1e-6, 20) * np.where(np.arange(20) % 2, 1, -1)
    expected, _ = emulated(h, u, alpha, storage, edit=edit)
    after, report = apply_dose(h, u, alpha, edit_format=edit, report="none")
    assert_values(after, expected, storage)
    assert report is None


def test_apply_dose_without_a_report_keeps_rows_that_are_not_finite():
    h = stored(rows((3, 70)), "float32")
    h[0, 3], h[1, 4], h[2, 5] = np.inf, -np.inf, np.nan
    expected, _ = apply_dose(h, rows((70,), 1), 0.1)
    assert_same_bits(apply_dose(h, rows((70,), 1), 0.1, report="none").after, expected)


@pytest.mark.parametrize("edit", ["float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_apply_dose_makes_the_edit_in_the_format_named(edit):
    h, u = stored(rows(), "float32"), rows((203,), 1)
    expected, fields = emulated(h, u, 0.1, "float32", "add_then_cast", edit=edit)
    after, report = apply_dose(h, u, 0.1, path="add_then_cast", edit_format=edit)
    assert_values(after, expected, "float32")
    np.testing.assert_allclose(report.rms_realised, fields["rms_realised"], rtol=1e-9)


# One correctly rounded addition -----------------------------------------------------------------


def sums(c, e, **options):
    """Rows of one coordinate c, edited by e itself."""
    size = {"scale": 1.0, "scale_name": "one", "edit_format": "float64", "path": "add_then_cast"}
    return apply_dose(c[:, None], [1.0], e, report="none", **size, **options).after[:, 0]


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("storage", LIMITS)
def test_apply_dose_sum_is_rounded_once_from_the_exact(storage, mode):
    rng = np.random.default_rng(0)
    dtype, least = DTYPES[storage], -LIMITS[storage][1]
    c = rng.integers(0, 2 ** (8 * dtype.itemsize), 600, dtype=CODES[dtype.itemsize]).view(dtype)
    c = c[np.isfinite(c.astype(np.float32))]
    top = int(np.log2(LIMITS[storage][2]))
    e = np.ldexp(rng.uniform(1, 2, c.size), rng.integers(-least - 12, top - 1, c.size))
    # Beside a tie, all float64 can say of the sum is that it is the tie.
    tie = stored(e, storage).astype(np.float64)
    e = np.where(np.arange(c.size) % 2, e, tie + spacing(tie, storage) / 2)
    e *= rng.choice([-1, 1], c.size)
    found = sums(c, e, rounding=mode).astype(np.float64)
    for a, x, y in zip(found, fractions(c), fractions(e), strict=True):
        assert a == nearest(x + y, storage, mode)


def nearest(value, storage, mode):
    """The number of a format next to an exact one."""
    fraction, least, largest, infinite = LIMITS[storage]
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, least) - fraction)
    steps = round(size / step) if mode == "nearest_even" else math.floor(size / step)
    if steps * step > Fraction(largest):
        if mode == "toward_zero":
            return math.copysign(largest, value)
        return math.copysign(math.inf, value) if infinite else math.nan
    return math.copysign(float(steps * step), value)


# Rows that keep their bits ----------------------------------------------------------------------


def special_rows():
    """Bfloat16 rows with zeros of both signs, subnormal numbers, infinity and NaN payloads."""
    codes = stored(rows((4, 70)), "bfloat16").view(np.uint16)
    codes[:, :6] = [0x8000, 0x0000, 0x0001, 0x8003, 0x7F80, 0xFFC5]
    return codes.view(BF16)


@pytest.mark.parametrize(
    "options",
    [{"alpha": 0.0}, {"alpha": -0.0}, {"alpha": 0.5, "rows": False},
     {"alpha": 0.5, "where": np.zeros(70, bool)}],
    ids=["zero", "minus zero", "rows", "where"],
)  # fmt: skip
def test_apply_dose_leaves_what_is_not_edited_bit_for_bit(options):
    h = special_rows()
    after, report = apply_dose(h, np.ones(70), **options)
    assert_same_bits(after, h)
    assert not np.asarray(report.alpha_requested).any() or "where" in options


def test_apply_dose_edits_the_rows_and_coordinates_that_are_kept():
    h = stored(rows((4, 70)), "bfloat16")
    u, alpha = rows((70,), 1), np.array([0.1, 0.2, 0.3, 0.4])
    meant, keep = np.array([True, False, True, True]), np.arange(70) % 3 > 0
    h[:, ~keep] = special_rows()[:, ~keep]
    expected = np.array(h)
    fields = {}
    for k in np.flatnonzero(meant):
        part, found = emulated(h[k, keep][None], u[keep], alpha[k], "bfloat16")
        expected[k, keep] = stored(part[0], "bfloat16")
        fields[k] = found
    h[1] = 0  # not meant, so not refused
    expected[1] = 0
    after, report = apply_dose(h, u, alpha, rows=meant, where=keep)
    assert_same_bits(after, expected)
    for k, found in fields.items():
        for name in ("rms_clean", "rms_realised", "relative_rmse_realised", "alpha_projected"):
            np.testing.assert_allclose(getattr(report, name)[k], found[name][0], rtol=1e-9)
        assert np.flatnonzero(keep)[found["top_index"][0]] == report.top_index[k]
    assert report.alpha_requested.tolist() == [0.1, 0.0, 0.3, 0.4]
    assert np.isnan(report.relative_rmse_realised[1])


def test_apply_dose_with_a_mask_of_its_own_for_each_row_scales_the_direction_there():
    h, u = rows((3, 50)), rows((50,), 1)
    keep = np.random.default_rng(5).random((3, 50)) < 0.6
    masked = np.ma.array(h.astype(np.float32), mask=~keep)
    after, report = apply_dose(masked, u, 0.1)
    for k in range(3):
        part, found = emulated(h[k, keep[k]][None].astype(np.float32), u[keep[k]], 0.1, "float32")
        np.testing.assert_array_equal(after[k, keep[k]], part[0])
        np.testing.assert_allclose(report.rms_requested[k], found["rms_requested"][0])
    np.testing.assert_array_equal(after[~keep], h.astype(np.float32)[~keep])


# Layouts, axes, threads -------------------------------------------------------------------------


def report_bytes(report):
    return b"".join(np.asarray(getattr(report, name)).tobytes() for name in report.names())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("in_place", [False, True], ids=["new", "in place"])
def test_apply_dose_to_any_layout_gives_the_same_bits(layout, in_place):
    view = layout(stored(rows((5, 4, 70)), "bfloat16"))
    expected, reference = apply_dose(plain(view), rows((70,), 1), 0.05)
    in_place = in_place and view.flags.writeable and view.flags.aligned
    after, report = apply_dose(view, rows((70,), 1), 0.05, out=view if in_place else None)
    assert (after is view) == in_place
    assert_same_bits(plain(after), expected)
    assert report_bytes(report) == report_bytes(reference)


@pytest.mark.parametrize("axis", [0, 1, (0, 2), None, (2, 1)])
def test_apply_dose_along_any_axis_is_that_of_rows(axis):
    h = stored(rows((5, 6, 7)), "bfloat16")
    axes = tuple(sorted(range(3) if axis is None else {a % 3 for a in np.atleast_1d(axis)}))
    kept = [a for a in range(3) if a not in axes]
    u = rows([h.shape[a] for a in axes], 1)
    flat = h.transpose(*kept, *axes).reshape(-1, u.size)
    expected, _ = apply_dose(flat, u.ravel(), 0.1)
    after, report = apply_dose(h, u, 0.1, axis=axis)
    found = np.ascontiguousarray(after.transpose(*kept, *axes)).reshape(flat.shape)
    assert_same_bits(found, expected)
    assert report.rms_clean.shape == tuple(h.shape[a] for a in kept)


def test_apply_dose_with_a_direction_for_each_layer_is_that_of_each():
    h = stored(rows((3, 4, 70)), "bfloat16")
    u = rows((3, 1, 70), 1).astype(np.float32)
    after, report = apply_dose(h, u, 0.05)
    for k in range(3):
        own, found = apply_dose(h[k], u[k, 0], 0.05)
        assert_same_bits(after[k], own)
        np.testing.assert_allclose(report.cosine[k], found.cosine, rtol=1e-5)


def test_apply_dose_and_its_report_are_the_same_for_any_number_of_threads():
    h, u = stored(rows((600, 1030)), "bfloat16"), rows((1030,), 1)
    one, first = apply_dose(h, u, 0.01, threads=1)
    two, second = apply_dose(h, u, 0.01, threads=2)
    assert_same_bits(one, two)
    assert report_bytes(first) == report_bytes(second)


@pytest.mark.parametrize("storage", ["float32", "bfloat16"])
def test_apply_dose_small_calls_have_the_bits_of_others(storage):
    h, u = stored(rows((3, 4, 70)), storage), rows((70,), 1)
    for given, format in ((h, None), (h.view(f"u{h.itemsize}"), storage)):
        if format == "float32":
            continue
        expected, _ = apply_dose(given, u, -0.05, format=format)
        after, report = apply_dose(given, u, -0.05, format=format, report="none")
        assert report is None
        assert after.dtype == given.dtype
        assert_same_bits(after, expected)
        out = np.empty_like(given)
        again = apply_dose(given, u, -0.05, format=format, report="none", out=out).after
        assert again is out
        assert_same_bits(out, expected)
    assert apply_dose(h, u, -0.05, report="none", out=h).after is h
    assert_same_bits(h.view(given.dtype) if storage == "bfloat16" else h, expected)


def test_apply_dose_small_calls_are_refused_like_others():
    h, u = np.ones((3, 8), np.float32), np.ones(8)
    h[1] = 0
    out = np.full_like(h, 7)
    with pytest.raises(ValueError, match=r"apply_dose: h must be nonzero .* 1 zero row"):
        apply_dose(h, u, 0.1, report="none", out=out)
    assert (out == 7).all()
    signalling = np.full(8, 0x7F800001, np.uint32).view(np.float32)
    refused = (0 * u, "must be nonzero"), (np.nan * u, "must be finite"), (signalling, "finite")
    for bad, message in refused:
        with pytest.raises(ValueError, match=message):
            apply_dose(h + 1, bad, 0.1, report="none")
    with pytest.raises(ValueError, match="partial overlap"):
        apply_dose(h[:2], u, 0.1, report="none", out=h[1:])
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writeable"):
        apply_dose(h + 1, u, 0.1, report="none", out=out)


@pytest.mark.parametrize("odd", [0.0, -(2.0**-90), 2.0**90, 2.0**-1060])
def test_apply_dose_small_calls_along_any_direction_are_the_emulation(odd):
    h, u = stored(rows((3, 70)), "bfloat16"), rows((70,), 1)
    u[[3, 66]] = odd
    after, _ = apply_dose(h, u, 0.05, report="none")
    assert_values(after, emulated(h, u, 0.05, "bfloat16")[0], "bfloat16")


def test_apply_dose_small_calls_read_alpha_and_direction_each_time():
    h, u = np.full((1, 4), 2.0, np.float32), np.ones(4)
    for alpha in (0.5, np.float64(-1.0), 2):
        for sign in (1, -1):
            u[:] = sign
            after, _ = apply_dose(h, u, alpha, report="none")
            np.testing.assert_array_equal(after, [[2 + 2 * sign * alpha] * 4])


def test_apply_dose_by_a_number_beyond_float64_is_refused():
    with pytest.raises(TypeError, match=r"^apply_dose: alpha must be an array, got int$"):
        apply_dose(np.ones((1, 4), np.float32), np.ones(4), 10**400, report="none")


def test_apply_dose_of_codes_gives_codes():
    h, u = stored(rows(), "bfloat16"), rows((203,), 1)
    expected, _ = apply_dose(h, u, 0.1)
    after, _ = apply_dose(h.view(np.uint16), u, 0.1, format="bfloat16")
    assert after.dtype == np.uint16
    assert_same_bits(after.view(BF16), expected)


def test_apply_dose_of_records_named_after_a_format_gives_such_records():
    h, u = stored(rows(), "bfloat16"), rows((203,), 1)
    record, narrow = np.dtype([("bfloat16", np.uint16)]), stored(u, "bfloat16")
    for report in ("rows", "none"):
        after, _ = apply_dose(h.view(record), narrow.view(record), 0.1, report=report)
        expected, _ = apply_dose(h, narrow, 0.1)
        assert after.dtype == record
        assert_same_bits(after.view(BF16), expected)
    other, _ = apply_dose(h.view(record), u, 0.1, storage=np.float16)
    assert other.dtype == np.float16


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_apply_dose_to_another_storage_rounds_the_state_first(dtype):
    h, u = rows().astype(dtype), rows((203,), 1)
    for mode in MODES:
        options = {"rounding": mode, "seed": SEED if mode == "stochastic" else None}
        clean = round_to(h, "float16", **options)
        expected, _ = apply_dose(clean, u, 0.1, **options)
        after, report = apply_dose(h, u, 0.1, storage="float16", **options)
        assert_same_bits(after, expected)
        np.testing.assert_allclose(report.rms_clean, rms(clean), rtol=1e-6)


def test_apply_dose_of_no_rows_has_no_rows():
    after, report = apply_dose(np.empty((0, 4), BF16), np.ones(4), 0.1)
    assert after.shape == (0, 4)
    assert report.cosine.shape == (0,)
    assert apply_dose(np.empty((0, 0), np.float16), np.empty(0), 0.1).after.shape == (0, 0)
    assert predict_dose(np.empty((0, 4), BF16), np.ones(4), [0.1]).cosine.shape == (0, 1)


@pytest.mark.parametrize("offset", [0, 1, 8, 17])
@pytest.mark.parametrize(
    ("dtype", "length", "report"),
    [(np.float32, 1021, "none"), (BF16, 2048, "none"), (BF16, 2039, "rows")],
    ids=str,
)
def test_apply_dose_large_result_starting_anywhere_is_complete(dtype, length, report, offset):
    h = np.resize(rows((64, length)), (1200, length)).astype(dtype)
    u = rows((length,), 1)
    memory = np.full(h.size + 64, 7, dtype)
    out = memory[offset : offset + h.size].reshape(h.shape)
    assert apply_dose(h, u, 0.05, out=out, report=report).after is out
    few = apply_dose(h[:64], u, 0.05, report=report).after
    assert_same_bits(out, np.resize(few, h.shape))
    assert (memory[:offset] == 7).all()
    assert (memory[offset + h.size :] == 7).all()


# What the dose does -----------------------------------------------------------------------------


TABLE = {  # of normal rows of 4096 in bfloat16: as published for such rows, to two digits
    0.1: (0.017, 1.000, 1.000, 0.9999),
    0.03: (0.055, 1.002, 1.000, 0.9985),
    0.01: (0.166, 1.013, 0.999, 0.986),
    0.003: (0.487, 1.048, 0.930, 0.887),
    0.001: (0.799, 0.826, 0.519, 0.630),
    0.0003: (0.940, 0.484, 0.175, 0.361),
}


def test_predict_dose_of_bfloat16_rows_is_the_known_table():
    h = stored(rows((48, 4096)), "bfloat16")
    u = rows((48, 4096), 1)
    alphas = np.array(list(TABLE))
    found = predict_dose(h, u, alphas)
    assert abs(np.median(found.relative_rmse_rounded) - 0.0017) < 0.0001
    columns = (
        (found.relative_rmse_realised, 0.001),
        (found.rms_realised / found.rms_requested, 0.005),
        (found.alpha_projected / alphas, 0.005),
        (found.cosine, 0.002),
    )
    for k, (column, within) in enumerate(columns):
        expected = [row[k] for row in TABLE.values()]
        np.testing.assert_allclose(np.median(column, axis=0), expected, atol=within, rtol=0)


@pytest.mark.parametrize(
    ("mode", "relative", "projected"),
    [("nearest_even", 0.487, 0.930), ("toward_zero", 1.14, 1.07), ("stochastic", 0.73, 0.996)],
)
def test_predict_dose_shows_what_the_rounding_mode_does(mode, relative, projected):
    h = stored(rows((48, 4096)), "bfloat16")
    u = rows((48, 4096), 1)
    found = predict_dose(h, u, 0.003, rounding=mode, seed=0)
    assert abs(np.median(found.relative_rmse_realised) - relative) < 0.01
    assert abs(np.median(found.alpha_projected) / 0.003 - projected) < 0.02
    shrunk = np.median(found.rms_after / found.rms_clean)
    assert abs(shrunk - (0.9972 if mode == "toward_zero" else 1.0)) < 0.0004


def test_predict_dose_is_the_report_of_apply_dose_to_the_bit():
    h, u = stored(rows((5, 300)), "bfloat16"), rows((300,), 1)
    alphas = [0.1, -0.02, 0.0]
    found = predict_dose(h, u, alphas, rows=[True, True, False, True, True])
    assert found.cosine.shape == (5, 3)
    for k, alpha in enumerate(alphas):
        report = apply_dose(h, u, alpha, rows=[True, True, False, True, True]).report
        for name in report.names():
            assert_same_bits(getattr(found, name)[:, k].copy(), getattr(report, name))
    one = predict_dose(h[0], u, 0.1)
    assert one.cosine.shape == ()


def test_apply_dose_of_the_seed_example_requests_what_it_says():
    h = np.full((1, 4), 2.0, BF16)
    after, report = apply_dose(h, [1.0, -1.0, 1.0, -1.0], 0.03)
    assert report.rms_requested[0] == pytest.approx(0.06)
    assert after.astype(float).tolist() == [[2.0625, 1.9375, 2.0625, 1.9375]]
    assert report.rms_realised[0] == 0.0625
    assert report.rms_rounded_request[0] == np.float64(0.06).astype(BF16)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predict_dose_shares_of_no_coordinates_are_positive_zeros(dtype):
    h = np.array([[1.0, -2.0, 3.0, -4.0]], dtype)
    report = predict_dose(h, h[0], [0.5], storage="float32")
    shares = np.array([report.frac_unchanged, report.frac_wrong_sign])
    assert not shares.any()
    assert not np.signbit(shares).any()


def test_apply_dose_smaller_than_half_a_step_is_not_realised():
    h = np.full((1, 4), 2.0**20, np.float32)
    after, report = apply_dose(h, np.ones(4, np.float32), 2032 / 2**20, storage="bfloat16")
    assert after.astype(float).tolist() == [[1048576.0] * 4]
    assert report.rms_requested.tolist() == [2032.0]
    assert (report.rms_realised[0], report.alpha_projected[0]) == (0.0, 0.0)
    assert (report.frac_unchanged[0], report.relative_rmse_realised[0]) == (1.0, 1.0)
    assert np.isnan(report.cosine[0])


@pytest.mark.parametrize(
    ("h", "u", "alpha", "edited"),
    [
        ([[1, -1, 1, -1], [2, 2, 2, 2]], [1, 1, -1, -1], 0.5,
         [[1.5, -0.5, 0.5, -1.5], [3, 3, 1, 1]]),
        ([[1, -1], [1024, 1024]], [1, -1], 0.25, [[1.25, -1.25], [1280, 768]]),
    ],
)  # fmt: skip
def test_apply_dose_is_relative_to_each_row(h, u, alpha, edited):
    after, report = apply_dose(np.float32(h), np.float32(u), alpha, storage="bfloat16")
    assert after.astype(float).tolist() == edited
    assert report.alpha_size.tolist() == [alpha] * 2
    np.testing.assert_allclose(report.alpha_projected, alpha, rtol=1e-15)


def test_measure_dose_shows_an_edit_that_was_added_twice():
    clean, u = rows((3, 64)), rows((64,), 1)
    once = apply_dose(clean, u, 0.5, storage="float32").after.astype(np.float64) - clean
    report = measure_dose(clean, clean + 2 * once, direction=u, alpha=0.5, **SOURCES)
    np.testing.assert_allclose(report.alpha_projected, 1.0, rtol=1e-6)
    np.testing.assert_allclose(report.cosine, 1.0, rtol=1e-6)


def test_apply_dose_by_given_scales_edits_all_rows_alike():
    h = stored(np.array([[1.0, 1.0], [64.0, 64.0]]), "float16")
    scale = {"scale": [2.0, 4.0], "scale_name": "median of the layer"}
    after, report = apply_dose(h, [1.0, -1.0], 0.5, **scale)
    assert after.astype(float).tolist() == [[2.0, 0.0], [66.0, 62.0]]
    assert report.rms_requested.tolist() == [1.0, 2.0]
    assert report.alpha_size.tolist() == [0.5, 0.5]
    assert report.header["scale"] == "median of the layer"


# States captured elsewhere ----------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["bfloat16", "float32"])
def test_measure_dose_of_edited_rows_is_their_report(storage):
    h, u, alpha = stored(rows(), storage), rows((203,), 1), np.geomspace(1e-3, 1, 6)
    after, given = apply_dose(h, u, alpha)
    _, fields = emulated(h, u, alpha, storage)
    report = measure_dose(h, after, direction=u, alpha=alpha, **SOURCES)
    assert_report(report, fields)
    for name in ("rms_realised", "alpha_projected", "frac_unchanged"):
        np.testing.assert_allclose(getattr(report, name), getattr(given, name), rtol=1e-5)
    assert report.header["measured_at"] == SOURCES["measured_at"]
    assert report.header["clean_source"] == SOURCES["clean_source"]


def test_measure_dose_of_requested_rows_takes_dose_and_direction_from_them():
    clean, u = rows((4, 50)), rows((4, 50), 1)
    u[3] = 0
    after = clean + u
    report = measure_dose(clean, after, requested=u, **SOURCES)
    size = np.sqrt(np.mean(u**2, axis=-1))
    np.testing.assert_allclose(report.rms_requested, size, rtol=1e-12)
    np.testing.assert_allclose(report.alpha_requested, size / rms(clean), rtol=1e-12)
    np.testing.assert_allclose(report.cosine[:3], 1.0)
    assert np.all(report.max_abs_error < 1e-15)
    exact = measure_dose(np.zeros((2, 3)), u[:2, :3], requested=u[:2, :3], **SOURCES)
    assert exact.max_abs_error.tolist() == [0.0, 0.0]


def test_measure_dose_without_a_request_knows_sizes_alone():
    clean, after = rows((3, 20)), rows((3, 20), 1)
    report = measure_dose(clean, after, **SOURCES)
    np.testing.assert_allclose(report.rms_realised, np.sqrt(np.mean((after - clean) ** 2, -1)))
    for name in ("alpha_projected", "rms_requested", "cosine", "max_abs_error", "frac_unchanged"):
        assert np.isnan(getattr(report, name)).all()
        assert np.isnan(report.summary()[name]["pooled"])
    assert np.isnan(report.summary()["alpha_size"]["pooled"])
    u = rows((20,), 2)
    along = measure_dose(clean, after, direction=u, **SOURCES)
    unit = u / np.sqrt(np.mean(u**2))
    expected = np.mean((after - clean) * unit, axis=-1) / np.sqrt(np.mean(clean**2, axis=-1))
    np.testing.assert_allclose(along.alpha_projected, expected)
    assert np.isnan(along.relative_rmse_realised).all()


def test_measure_dose_counts_what_is_lost():
    clean = np.array([[1.0, 2.0, np.inf, 4.0]], np.float32)
    after = np.array([[np.inf, np.nan, np.inf, 4.0]], np.float32)
    report = measure_dose(clean, after, **SOURCES)
    assert (report.n_overflow[0], report.n_nonfinite[0]) == (2, 3)


def test_apply_dose_counts_an_infinity_as_unchanged():
    h = np.array([[np.inf, 1, 2, 3]], np.float16)
    assert apply_dose(h, np.ones(4), 0.5).report.frac_unchanged[0] == 0.25


def test_apply_dose_to_rows_without_numbers_has_no_largest():
    report = apply_dose(np.full((1, 4), np.nan, np.float16), np.ones(4), 0.5).report
    assert (report.top_index[0], report.max_error_index[0]) == (-1, -1)
    assert np.isnan([report.top_energy_share, report.max_abs_error]).all()


# Overflow, zero rows, refusals ------------------------------------------------------------------


def test_apply_dose_beyond_the_format_is_infinite_saturated_or_refused():
    h, u = np.full((2, 8), 60000, np.float16), np.ones(8)
    h[0] = 1
    after, report = apply_dose(h, u, 0.5)
    assert np.isinf(after[1]).all()
    assert report.n_overflow.tolist() == [0, 8]
    assert report.n_nonfinite.tolist() == [0, 8]
    after, report = apply_dose(h, u, 0.5, overflow="saturate")
    assert after[1].tolist() == [65504] * 8
    assert (report.n_overflow[1], report.n_nonfinite[1]) == (8, 0)
    out = np.zeros_like(h)
    with pytest.raises(ValueError, match=r"apply_dose: h must fit into float16 .* got 8 beyond it"):
        apply_dose(h, u, 0.5, overflow="raise", out=out)
    assert not out.any()
    with pytest.raises(ValueError, match="predict_dose: h must fit into float16"):
        predict_dose(h, u, [0.1, 0.5], overflow="raise")
    assert apply_dose(h, u, 0.05, overflow="raise").report.n_overflow.tolist() == [0, 0]


@pytest.mark.parametrize("storage", ["float32", "float8_e5m2"])
def test_apply_dose_to_zero_rows_is_refused_or_keeps_them(storage):
    h = np.ones((3, 8), np.float32)
    h[1] = [0.0, -0.0] * 4
    h[2] = 1e-9  # 0 in float8
    out, bad = np.full(h.shape, 7, DTYPES[storage]), "1 zero row" if storage == "float32" else "2"
    with pytest.raises(ValueError, match=rf"apply_dose: h must be nonzero .* {bad}.*\(1,\)"):
        apply_dose(h, np.ones(8), 0.1, storage=storage, out=out)
    assert (out == 7).all()
    after, report = apply_dose(h, np.ones(8), 0.1, storage=storage, zero="keep")
    assert_same_bits(after[1], h[1].astype(DTYPES[storage]))
    assert report.rms_realised[1] == 0
    assert np.isnan(report.alpha_size[1])
    scaled = apply_dose(h, np.ones(8), 0.5, storage=storage, scale=1.0, scale_name="one").after
    assert scaled[1].tolist() == [0.5] * 8


REFUSED = {
    "a zero direction": ({"direction": np.zeros(4)}, "direction must be nonzero"),
    "a NaN direction": ({"direction": [1, 2, np.nan, 4]}, "direction must be finite"),
    "a short direction": ({"direction": np.ones(3)}, r"direction must have shape \(4,\)"),
    "a direction that is not a unit": (
        {"direction_scale": "as_is", "direction": [2.0] * 4}, "have an RMS of 1 .* got RMS 2"),
    "an infinite alpha": ({"alpha": np.inf}, "alpha must be finite, got inf"),
    "alphas of another shape": ({"alpha": [1, 2, 3]}, "alpha must be broadcastable"),
    "an unknown storage": ({"storage": "float64"}, "storage must be one of"),
    "an unknown path": ({"path": "add"}, "path must be one of"),
    "an unknown edit format": ({"edit_format": "int8"}, "edit_format must be one of"),
    "no seed": ({"rounding": "stochastic"}, "seed must be an int"),
    "a scale without a name": ({"scale": 1.0}, "scale_name must be a non-empty string"),
    "a name without a scale": ({"scale_name": "x"}, "scale_name must be None"),
    "a negative scale": ({"scale": -1.0, "scale_name": "x"}, "scale must be non-negative"),
    "an unknown report": ({"report": "all"}, "report must be one of"),
    "a small out": ({"out": np.zeros((1, 4), np.float32)}, "out must have shape"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_apply_dose_refuses(options, message):
    arguments = {"direction": np.ones(4), "alpha": 0.1} | options
    h = np.ones((2, 4), np.float32)
    with pytest.raises(ValueError, match=f"^apply_dose: .*{message}"):
        apply_dose(h, arguments.pop("direction"), **arguments)


def test_apply_dose_of_float64_needs_a_storage():
    with pytest.raises(ValueError, match="apply_dose: storage must be named where h is float64"):
        apply_dose(np.ones((2, 4)), np.ones(4), 0.1)


@pytest.mark.parametrize("h", [np.ones((2, 4), int), np.ones((2, 4), complex)])
def test_apply_dose_of_other_numbers_is_a_type_error(h):
    with pytest.raises(TypeError, match="apply_dose: h must"):
        apply_dose(h, np.ones(4), 0.1, storage="float16")


def test_apply_dose_refuses_partial_overlap_and_masks_that_are_numbers():
    h = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="out must be x itself or apart from it"):
        apply_dose(h[:2], np.ones(4), 0.1, out=h[1:])
    with pytest.raises(TypeError, match="apply_dose: rows must be boolean"):
        apply_dose(h, np.ones(4), 0.1, rows=[1, 0, 1])
    with pytest.raises(TypeError, match="apply_dose: where must be boolean"):
        apply_dose(h, np.ones(4), 0.1, where=[1, 0, 1, 1])


def test_measure_dose_wants_to_know_where_states_come_from():
    x = np.ones((2, 4), np.float32)
    for missing in SOURCES:
        with pytest.raises(ValueError, match=f"measure_dose: {missing} must be a non-empty"):
            measure_dose(x, x, **{**SOURCES, missing: " "})
    with pytest.raises(ValueError, match="direction must be given where alpha is"):
        measure_dose(x, x, alpha=0.1, **SOURCES)
    with pytest.raises(ValueError, match="requested must be None where direction is given"):
        measure_dose(x, x, requested=x, direction=x, **SOURCES)


def test_apply_dose_as_is_takes_a_unit_direction_in_its_own_format():
    u = rows((64,), 1)
    u = (u / np.sqrt(np.mean(u**2))).astype(BF16)
    report = apply_dose(rows((2, 64)), u, 0.1, storage="float32", direction_scale="as_is").report
    size = np.sqrt(np.mean(u.astype(np.float64) ** 2))
    np.testing.assert_allclose(report.rms_requested, 0.1 * size * report.rms_clean, rtol=1e-12)
    assert report.header["direction"]["rms"][0] == pytest.approx(size)


def test_apply_dose_in_place_takes_a_direction_out_of_the_rows():
    h = stored(rows((4, 40)), "float32")
    expected, _ = apply_dose(h, h[2].copy(), 0.1)
    after, _ = apply_dose(h, h[2], 0.1, out=h)
    assert_same_bits(after, expected)


# The smallest dose ------------------------------------------------------------------------------


FLOORS = {"bfloat16": 0.017, "float16": 0.0021, "float8_e4m3fn": 0.30, "float32": 2.6e-7}


@pytest.mark.parametrize(("storage", "expected"), FLOORS.items())
def test_dose_floor_of_normal_rows_is_known(storage, expected):
    floor = dose_floor(rows((8, 4096)), storage=storage)
    np.testing.assert_allclose(np.median(floor), expected, rtol=0.04)


@pytest.mark.parametrize("tolerance", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("storage", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_dose_floor_is_a_dose_that_is_realised_within_the_tolerance(storage, tolerance):
    h = rows((16, 4096)) * np.geomspace(0.01, 3.0, 4096)
    floor = dose_floor(h, storage=storage, tolerance=tolerance)
    found = apply_dose(h, rows((16, 4096), 1), floor, storage=storage).report
    np.testing.assert_allclose(np.median(found.relative_rmse_realised), tolerance, rtol=0.06)


def test_dose_floor_of_rows_that_have_none():
    h = np.ones((4, 8), np.float32)
    h[0], h[1, 0], h[2, 0] = 0, np.nan, np.inf
    assert np.isnan(dose_floor(h)[:3]).all()
    assert np.isinf(dose_floor(h, storage="float8_e5m2", tolerance=0.01)[3])
    assert dose_floor(h[3]).shape == ()
    with pytest.raises(ValueError, match="dose_floor: tolerance must be between 0 and 1, got 1"):
        dose_floor(h, tolerance=1.0)


@pytest.mark.parametrize("tolerance", [0.02, 0.3])
@pytest.mark.parametrize("storage", FLOORS)
def test_dose_floor_is_that_of_the_definition(storage, tolerance):
    h = rows((4, 300)) * np.geomspace(1e-4, 30.0, 300)
    expected = floors(h, storage, tolerance)
    np.testing.assert_allclose(dose_floor(h, storage=storage, tolerance=tolerance), expected, 1e-6)


def test_dose_floor_along_an_axis_is_that_of_rows():
    h = rows((30, 5)).astype(np.float32)
    np.testing.assert_array_equal(dose_floor(h, axis=0), dose_floor(np.ascontiguousarray(h.T)))


# Reports ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report():
    h = stored(rows((4, 64)), "bfloat16")
    return apply_dose(h, rows((64,), 1), [0.1, 0.0, -0.1, 1e-9]).report


def test_dose_report_states_what_its_numbers_mean(report):
    header = report.header
    assert header["formats"] == {
        "h": "bfloat16", "direction": "float64", "edit": "float32", "storage": "bfloat16",
        "report": "float64",
    }  # fmt: skip
    assert (header["rows"], header["coordinates"]) == (4, 64)
    assert (header["path"], header["rounding"]) == ("cast_then_add", "nearest_even")
    assert header["references"]["relative_rmse_realised"] == "rms_requested"
    assert header["scale"] == "RMS of the clean row"
    assert set(header["versions"]) == {"rmsfast", "numpy", "numba"}


def test_dose_report_as_records_dict_and_json_holds_every_field(report):
    records, fields = report.to_records(), report.to_dict()
    assert records.shape == (4,)
    assert (*records.dtype.names,) == report.names()
    read = json.loads(report.to_json())
    assert list(read) == ["header", *report.names()]
    for name in report.names():
        np.testing.assert_array_equal(records[name], fields[name])
        expected = [v if np.isfinite(v) else None for v in fields[name].tolist()]
        assert read[name] == expected


def test_dose_report_in_brief_is_twelve_lines(report):
    lines = str(report).splitlines()
    assert len(lines) == 12
    assert lines[0] == "DoseReport: 4 rows of 64, bfloat16, cast_then_add, nearest_even"
    assert lines[5].split() == ["alpha_requested", "-0.1", "5e-10", "0.1"]


def test_dose_report_summary_counts_what_is_known(report):
    found = report.summary()
    assert tuple(found) == report.names()
    assert found["relative_rmse_realised"]["count"] == 3
    expected = np.sqrt(np.mean(report.rms_realised**2))
    assert found["rms_realised"]["pooled"] == pytest.approx(expected)
    assert found["rms_realised"]["max"] == report.rms_realised.max()
    assert set(found["cosine"]) == {"count", "min", "p1", "p50", "p99", "max", "pooled"}


def test_dose_report_summary_pools_all_rows_as_one():
    h, u = stored(rows((5, 64)), "float16"), rows((64,), 1)
    alpha = np.array([0.1, 0.0, -0.2, 1e-5, 0.03])
    after, report = apply_dose(h, u, alpha)
    found = {name: each["pooled"] for name, each in report.summary().items()}
    c, a = h.astype(np.float64), after.astype(np.float64)
    size = np.sqrt(np.mean(c**2, axis=1, keepdims=True))
    edit = size * u / np.sqrt(np.mean(u**2))  # of alpha 1
    q, edited = alpha[:, None] * edit, alpha != 0
    every = report_of(*(v.reshape(1, -1) for v in (c, a, q, q, edit)), np.ones((1, 1)),
                      np.ones((1, 1)))  # fmt: skip
    for name in ("rms_clean", "rms_after", "top_index", "top_energy_share", "rms_realised",
                 "cosine", "frac_unchanged", "frac_wrong_sign", "max_abs_error",
                 "n_nonfinite"):  # fmt: skip
        assert found[name] == pytest.approx(every[name][0], rel=1e-9), name
    assert found["angle_deg"] == pytest.approx(every["angle_deg"][0], rel=1e-5)
    assert found["n_overflow"] == 0
    d, asked = (a - c)[edited], np.sqrt(np.mean(q[edited] ** 2))
    error = np.sqrt(np.mean((d - q[edited]) ** 2))
    assert found["relative_rmse_realised"] == pytest.approx(error / asked, rel=1e-9)
    assert found["rms_requested"] == pytest.approx(np.sqrt(np.mean(q**2)), rel=1e-9)
    whole = np.sum(edit[edited] ** 2)
    projected = np.sum(d * edit[edited]) / whole
    assert found["alpha_projected"] == pytest.approx(projected, rel=1e-9)
    assert found["alpha_size"] == pytest.approx(np.sqrt(np.sum(d**2) / whole), rel=1e-9)
    assert np.argmax(np.abs(a - c - q)) == found["max_error_index"]


def test_dose_report_summary_of_masked_rows_pools_what_needs_no_count():
    report = apply_dose(rows((3, 16)), np.ones(16), 0.1, storage="float16",
                        where=np.arange(16) > 3).report  # fmt: skip
    found = report.summary()
    assert found["max_abs_error"]["pooled"] == report.max_abs_error.max()
    assert found["n_nonfinite"]["pooled"] == 0
    assert np.isnan(found["rms_clean"]["pooled"])


def test_dose_report_worst_rows_are_those_furthest_from_the_request(report):
    # Where nothing was asked for, the error is not known: such rows come first.
    assert report.worst(2)["row"].tolist() == [1, 3]
    assert report.worst(1, by="rms_realised")["row"].tolist() == [np.argmax(report.rms_realised)]


def test_predict_dose_print_has_a_line_of_medians_for_each_dose():
    h, u = np.float32([[2, -2, 2, 2], [4, -4, 4, 4], [8, 8, 8, 8]]), [1, -1, 1, 1]
    found = predict_dose(h, u, [1.0, -0.5], storage="bfloat16")
    *_, titles, first, second = str(found).splitlines()
    columns = titles.split()
    lines = [dict(zip(columns, line.split(), strict=True)) for line in (first, second)]
    shown = [(line["alpha_requested"], line["rms_requested"]) for line in lines]
    assert shown == [("1", "4"), ("-0.5", "2")]


@pytest.mark.parametrize(
    ("alphas", "shapes"), [(0.5, [(3,)]), ([0.5], [(3,)]), ([0.5, 1.0], [(3,), (3,)])]
)
def test_predict_dose_by_alpha_gives_the_reports_of_apply_dose(alphas, shapes):
    h, u = np.float32([[2, -2, 2, 2], [4, -4, 4, 4], [8, 8, 8, 8]]), [1, -1, 1, 1]
    reports = predict_dose(h, u, alphas, storage="bfloat16").by_alpha()
    assert [report.rms_clean.shape for report in reports] == shapes
    for alpha, report in zip(np.atleast_1d(alphas), reports, strict=True):
        expected = apply_dose(h, u, alpha, storage="bfloat16").report
        np.testing.assert_array_equal(report.to_records(), expected.to_records())
