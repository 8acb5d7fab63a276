"""Whole files of edited rows: the bits of the call in memory, complete or as they were."""

import os
import re

import ml_dtypes
import numpy as np
import pytest
from test_files import only
from test_files_formats import values_of
from test_files_writing import numbers, write

import rmsfast
from rmsfast import files
from rmsfast.files import (
    Tensor,
    _tensors,
    apply_dose,
    measure_dose,
    open_tensors,
    predict_dose,
    writing,
)

pytest.importorskip("h5py")

U = np.linspace(-1.0, 2.0, 24)


@pytest.fixture(autouse=True)
def small_boxes(monkeypatch):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 400)


def check(path, out, x, direction, alpha, **options):
    """Compare a file of edited rows and its report with those of the array."""
    report = apply_dose(path, out, direction, alpha, **options)
    after, expected = rmsfast.apply_dose(x, direction, alpha, **options)
    found = numbers(only(open_tensors(out)))
    assert (found.dtype, found.tobytes()) == (after.dtype, after.tobytes())
    place = f"in {os.fspath(out)}, after the edit"
    assert report.header == {**expected.header, "measured_at": place}
    for name in report.names():
        np.testing.assert_array_equal(getattr(report, name), getattr(expected, name), name)


@pytest.mark.parametrize("rounding", ["nearest_even", "stochastic"])
@pytest.mark.parametrize(
    ("name", "dtype"), [("x.npy", "float32"), ("x.safetensors", ml_dtypes.bfloat16)]
)
def test_file_dose_has_the_bits_and_report_of_the_array(tmp_path, name, dtype, rounding):
    x = values_of((50, 24), dtype)
    path = write(tmp_path / name, x)
    seed = 7 if rounding == "stochastic" else None
    check(path, tmp_path / f"out{path.suffix}", x, U, 0.03, rounding=rounding, seed=seed)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_file_dose_along_any_axis_numbers_rows_as_the_array(tmp_path, axis, order):
    x = values_of((6, 8, 10), "float32")
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))
    rows = tuple(n for k, n in enumerate(x.shape) if k != axis)
    alpha = np.linspace(-0.1, 0.1, np.prod(rows)).reshape(rows)
    direction = U[: x.shape[axis]]
    options = {"storage": "bfloat16", "rounding": "stochastic", "seed": 3, "axis": axis}
    options |= {"scale": 2.0 + alpha, "scale_name": "by hand"}
    check(tmp_path / "x.npy", tmp_path / "y.safetensors", x, direction, alpha, **options)


def test_file_dose_of_several_tensors_joins_their_rows(tmp_path):
    a, b = values_of((5, 24), "float32"), values_of((2, 3, 24), "float16")
    whole = {"a": a, "b": b}
    tensors = [Tensor(name, x.shape, x.dtype.name) for name, x in whole.items()]
    with writing(tmp_path / "x.h5", tensors) as put:
        for name, x in whole.items():
            put(name, tuple(slice(0, n) for n in x.shape), x)
    report = apply_dose(tmp_path / "x.h5", tmp_path / "y.safetensors", U, 0.1)
    found = {tensor.name: tensor.read() for tensor in open_tensors(tmp_path / "y.safetensors")}
    parts = [rmsfast.apply_dose(x, U, 0.1) for x in (a, b)]
    for x, part in zip("ab", parts, strict=True):
        np.testing.assert_array_equal(found[x], part.after)
    joined = np.concatenate([part.report.rms_realised.ravel() for part in parts])
    np.testing.assert_array_equal(report.rms_realised, joined)
    assert (report.header["rows"], report.header["formats"]["storage"]) == (11, "float32, float16")


def test_file_dose_of_a_block_takes_the_number_of_its_first_row():
    x = values_of((9, 24), "float32")
    options = {"storage": "bfloat16", "rounding": "stochastic", "seed": 3}
    whole = rmsfast.apply_dose(x, U, 0.1, **options).after
    block = rmsfast.apply_dose(x[4:], U, 0.1, first_row=4, **options).after
    assert block.tobytes() == whole[4:].tobytes()
    predicted = rmsfast.predict_dose(x[4:], U, [0.1], first_row=4, **options)
    realised = rmsfast.apply_dose(x, U, 0.1, **options).report.rms_realised[4:]
    np.testing.assert_array_equal(predicted.rms_realised[:, 0], realised)


@pytest.mark.parametrize(("bad", "kind"), [(-1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_apply_dose_first_row_that_is_no_number_of_a_row_is_refused(bad, kind):
    with pytest.raises(kind, match=r"^apply_dose: first_row must be "):
        rmsfast.apply_dose(np.ones((1, 24), "f4"), U, 0.1, first_row=bad)


@pytest.mark.parametrize(
    ("fault", "options", "message"),
    [
        (0.0, {}, r"h must be nonzero .*, got a zero row at index \(40,\)"),
        (
            60000.0,
            {"overflow": "raise", "storage": "float16"},
            r"h must fit .*, got a row beyond it at index \(40,\)",
        ),
        (1.0, {"path": "sideways"}, "path must be "),
        (1.0, {"storage": "int8"}, "storage must be "),
    ],
    ids=["zero", "overflow", "path", "storage"],
)
def test_file_dose_refused_leaves_the_old_file_and_nothing_else(tmp_path, fault, options, message):
    x = values_of((50, 24), "float32")
    x[40] = fault
    path, out = write(tmp_path / "x.npy", x), write(tmp_path / "y.npy", np.ones((1, 2)))
    with pytest.raises(ValueError, match=rf"x\.npy: tensor 'x': {message}"):
        apply_dose(path, out, U, 0.1, **options)
    assert np.load(out).tolist() == [[1, 1]]
    assert sorted(os.listdir(tmp_path)) == ["x.npy", "y.npy"]


def test_file_dose_tells_its_progress_to_the_total(tmp_path):
    path, told = write(tmp_path / "x.npy", values_of((10, 24), "float32")), []
    apply_dose(path, path, U, 0.1, progress=lambda *each: told.append(each))
    assert told == [(384, 960), (768, 960), (960, 960)]


def check_fields(found, expected):
    assert found.header == expected.header
    for name in expected.names():
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


@pytest.mark.parametrize(("rounding", "seed"), [("nearest_even", None), ("stochastic", 3)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_file_prediction_is_that_of_the_array(tmp_path, axis, rounding, seed):
    options = {"axis": axis, "storage": "bfloat16", "rounding": rounding, "seed": seed}
    x, alphas = values_of((6, 8, 10), "float32"), [0.1, -0.01]
    np.save(tmp_path / "x.npy", np.asarray(x, order="F"))
    u = U[: x.shape[axis]]
    [found] = predict_dose(tmp_path / "x.npy", u, alphas, **options)
    check_fields(found.prediction, rmsfast.predict_dose(x, u, alphas, **options))
    np.testing.assert_array_equal(found.floor, rmsfast.dose_floor(x, axis=axis))


def test_file_prediction_of_codes_has_floors_of_their_numbers(tmp_path):
    x = values_of((20, 24), ml_dtypes.bfloat16)
    [found] = predict_dose(write(tmp_path / "x.safetensors", x), U, [0.03])
    check_fields(found.prediction, rmsfast.predict_dose(x, U, [0.03]))
    np.testing.assert_array_equal(found.floor, rmsfast.dose_floor(x))


def test_file_measurement_is_that_of_the_arrays(tmp_path):
    told = {"measured_at": "in y", "clean_source": "x"}
    clean, after = values_of((20, 24), ml_dtypes.bfloat16), values_of((20, 24), "float32", seed=1)
    paths = write(tmp_path / "x.safetensors", clean), write(tmp_path / "y.npy", after)
    [found] = measure_dose(*paths, direction=U, alpha=0.1, **told)
    check_fields(found.report, rmsfast.measure_dose(clean, after, direction=U, alpha=0.1, **told))


@pytest.mark.parametrize(
    ("direction", "options", "fault"),
    [
        (np.ones((20, 24)), {}, "predict_dose: direction must have one axis, got shape (20, 24)"),
        (U[:3], {}, "tensor 'x': direction must have shape (24,), or one that goes with "),
        (U, {"rounding": "stochastic"}, "seed must be an int"),
        (U, {"tensor": "z*"}, "x.npy: tensor must be one of 'x', got 'z*'"),
    ],
)
def test_file_prediction_refusal_is_one_line(tmp_path, direction, options, fault):
    path = write(tmp_path / "x.npy", values_of((20, 24), "float32"))
    with pytest.raises(ValueError, match=re.escape(fault)):
        predict_dose(path, direction, [0.1], **options)


# Progress, of everything that reads files by blocks ---------------------------------------------

READ = {"measured_at": "here", "clean_source": "here"}
CALLS = {  # by name: of a path, one to write to, and progress
    "describe": lambda x, _, told: files.describe(x, progress=told),
    "describe_rows": lambda x, _, told: files.describe_rows(x, progress=told),
    "compare": lambda x, _, told: files.compare(x, x, progress=told),
    "compare_rows": lambda x, _, told: files.compare_rows(x, x, progress=told),
    "row_rms": lambda x, _, told: files.row_rms(x, progress=told),
    "rms_windows": lambda x, _, told: files.rms_windows(x, 2, progress=told),
    "normalize": lambda x, out, told: files.normalize(x, out, progress=told),
    "rms_norm": lambda x, out, told: files.rms_norm(x, out, progress=told),
    "apply_dose": lambda x, out, told: apply_dose(x, out, U, 0.1, progress=told),
    "predict_dose": lambda x, _, told: predict_dose(x, U, [0.1], progress=told),
    "measure_dose": lambda x, _, told: measure_dose(x, x, **READ, progress=told),
}


@pytest.mark.parametrize("function", CALLS)
def test_progress_that_cannot_be_called_is_refused_before_any_work(tmp_path, function):
    path = write(tmp_path / "x.npy", values_of((9, 24), "float32"))
    message = f"{function}: progress must be None or a callable of two numbers, got True"
    with pytest.raises(TypeError, match=f"^{message}$"):
        CALLS[function](path, tmp_path / "out.npy", True)
    assert os.listdir(tmp_path) == ["x.npy"]


@pytest.mark.parametrize("function", CALLS)
def test_progress_that_raises_ends_the_call_with_its_own_error(tmp_path, function):
    path = write(tmp_path / "x.npy", values_of((9, 24), "float32"))
    error = ValueError("enough")

    def progress(_done, _total):
        raise error from KeyError("its cause")

    with pytest.raises(ValueError, match="enough") as raised:
        CALLS[function](path, tmp_path / "out.npy", progress)
    assert raised.value is error
    assert isinstance(error.__cause__, KeyError)
    assert os.listdir(tmp_path) == ["x.npy"]
