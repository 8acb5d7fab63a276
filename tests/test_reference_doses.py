"""Doses where Numba cannot be imported, against the same emulation."""

import numpy as np
import pytest
from formats import stored
from test_dose import (
    FLOORS,
    MODES,
    PATHS,
    SEED,
    assert_report,
    assert_values,
    emulated,
    rows,
    special_rows,
)
from zoo import assert_same_bits

from rmsfast import _launch, apply_dose, dose_floor, measure_dose, predict_dose


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch):
    monkeypatch.setattr(_launch, "_modules", ())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("storage", ["float32", "bfloat16", "float8_e4m3fn"])
def test_apply_dose_without_numba_is_the_emulation(storage, path, mode):
    h, u = stored(rows(), storage), rows((203,), 1)
    alpha = np.array([0.5, 0.1, -0.03, 0.003, 0.0, 1e-5])
    expected, fields = emulated(h, u, alpha, storage, path, mode)
    seed = SEED if mode == "stochastic" else None
    after, report = apply_dose(h, u, alpha, path=path, rounding=mode, seed=seed)
    assert_values(after, expected, storage)
    assert_report(report, fields)
    predicted = predict_dose(h, u, [0.1, 0.5], path=path, rounding=mode, seed=seed)
    assert predicted.cosine[0, 1] == report.cosine[0]


def test_apply_dose_without_numba_keeps_what_is_not_edited():
    h = special_rows()
    assert_same_bits(apply_dose(h, np.ones(70), 0.5, rows=False).after, h)
    keep = np.arange(70) > 6
    after = apply_dose(h, np.ones(70), 0.5, where=keep, report="none").after
    assert_same_bits(np.ascontiguousarray(after[:, ~keep]), np.ascontiguousarray(h[:, ~keep]))
    assert (after != h)[:, keep].any()


def test_apply_dose_without_numba_counts_an_infinity_as_unchanged():
    h = np.array([[np.inf, 1, 2, 3]], np.float16)
    assert apply_dose(h, np.ones(4), 0.5).report.frac_unchanged[0] == 0.25


def test_apply_dose_without_numba_reports_what_is_beyond_a_format_without_infinity_as_nan():
    h, u = stored([[440.0, 1, 2, 3]], "float8_e4m3fn"), np.ones(4)
    report = apply_dose(h, u, 0.5).report
    assert (report.n_overflow[0], report.max_error_index[0]) == (1, 3)
    assert np.isnan([report.rms_after, report.rms_realised]).all()
    report = apply_dose(h, u, 4.0, edit_format="float8_e4m3fn").report
    assert (report.top_index[0], report.max_error_index[0]) == (0, -1)
    assert np.isnan([report.rms_rounded_request, report.max_abs_error]).all()


def test_apply_dose_without_numba_along_any_axis_edits_in_place():
    h, u = stored(rows((5, 4, 6)), "float16"), rows((5, 6), 1)
    expected = apply_dose(h.transpose(1, 0, 2).reshape(4, 30), u.ravel(), 0.1).after
    assert apply_dose(h, u, 0.1, axis=(0, 2), out=h).after is h
    assert_same_bits(np.ascontiguousarray(h.transpose(1, 0, 2)).reshape(4, 30), expected)


def test_apply_dose_without_numba_refuses_as_ever():
    h = np.ones((3, 8), np.float16)
    h[1] = 0
    with pytest.raises(ValueError, match=r"apply_dose: h must be nonzero .* 1 zero row"):
        apply_dose(h, np.ones(8), 0.1)
    with pytest.raises(ValueError, match="apply_dose: h must fit into float16"):
        apply_dose(h + 60000, np.ones(8), 0.5, overflow="raise")
    assert apply_dose(h[:0], np.ones(8), 0.1).report.cosine.shape == (0,)


def test_measure_dose_without_numba_takes_a_request():
    clean, u = rows((4, 50)), rows((4, 50), 1)
    sources = {"measured_at": "in memory", "clean_source": "before"}
    report = measure_dose(clean, clean + u, requested=u, **sources)
    np.testing.assert_allclose(report.rms_requested, np.sqrt(np.mean(u**2, axis=-1)), rtol=1e-12)
    np.testing.assert_allclose(report.cosine, 1.0)
    assert np.isnan(measure_dose(clean, clean + u, **sources).cosine).all()


@pytest.mark.parametrize(("storage", "expected"), FLOORS.items())
def test_dose_floor_without_numba_of_normal_rows_is_known(storage, expected):
    floor = dose_floor(rows((8, 4096)), storage=storage)
    np.testing.assert_allclose(np.median(floor), expected, rtol=0.04)


def test_dose_floor_without_numba_along_an_axis_is_that_of_rows():
    h = rows((6, 5)).astype(np.float32)
    h[:, 1], h[2, 3] = 0, np.inf
    found = dose_floor(h, axis=0, tolerance=0.3)
    np.testing.assert_array_equal(np.isnan(found), [False, True, False, True, False])
    np.testing.assert_array_equal(found[0], dose_floor(h[:, 0].copy(), tolerance=0.3))
    assert np.isinf(dose_floor(h[0], storage="float8_e5m2", tolerance=0.01))
    assert dose_floor(h[:0]).shape == (0,)
