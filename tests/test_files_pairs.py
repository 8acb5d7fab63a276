"""Two files beside each other."""

import math

import ml_dtypes
import numpy as np
import pytest
from test_files import entry, only, safetensors
from test_files_formats import FORMATS, values_of
from test_files_writing import write

from rmsfast.files import _tensors, compare, save_npy


def mean_square(x):
    """Exact where the values are small integers."""
    return float(np.mean(np.square(x.astype(np.float64))))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("box_bytes", [64, 1 << 20])
@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_compare_gives_errors_of_whole_and_rows(tmp_path, monkeypatch, make, box_bytes, axis):
    monkeypatch.setattr(_tensors, "BOX_BYTES", box_bytes)
    x, y = values_of((13, 7), "int16"), values_of((13, 7), "int16", seed=1)
    y[0] = x[0]
    save_npy(tmp_path / "y.npy", y)
    found = only(compare(make(tmp_path, x), tmp_path / "y.npy", axis=axis))
    rows = np.sqrt(np.mean((x - y).astype(float) ** 2, axis=axis))
    assert (found.name, found.rows, found.error) == ("x", len(rows), None)
    assert found.rmse == pytest.approx(math.sqrt(mean_square(x - y)), rel=4e-16)
    assert found.rms_x == pytest.approx(math.sqrt(mean_square(x)), rel=4e-16)
    assert found.rms_x_hat == pytest.approx(math.sqrt(mean_square(y)), rel=4e-16)
    assert found.relative_rmse == pytest.approx(found.rmse / found.rms_x, rel=1e-15)
    extremes = (found.row_rmse_min, found.row_rmse_median, found.row_rmse_max)
    assert extremes == pytest.approx((rows.min(), np.median(rows), rows.max()), rel=1e-15)
    assert (found.equal_rows, found.nan_rows) == (int(axis == 1), 0)


def test_compare_tensors_go_together_by_name(tmp_path):
    header = {"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 2, 4)}
    other = {"b": entry("U8", [2], 0, 2), "c": entry("U8", [2], 2, 4)}
    (tmp_path / "1.safetensors").write_bytes(safetensors(header, bytes([1, 1, 5, 5])))
    (tmp_path / "2.safetensors").write_bytes(safetensors(other, bytes([2, 2, 3, 3])))
    a, b = compare(tmp_path / "1.safetensors", tmp_path / "2.safetensors")
    assert (a.name, a.error) == ("a", "is not in the second file")
    assert (b.name, b.rmse) == ("b", 3.0)
    assert only(compare(tmp_path / "1.safetensors", tmp_path / "2.safetensors", tensor="b")) == b


def test_compare_a_named_tensor_goes_with_the_only_other_one_of_no_other_name(tmp_path):
    header = {"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 2, 4)}
    (tmp_path / "1.safetensors").write_bytes(safetensors(header, bytes([1, 1, 5, 5])))
    save_npy(tmp_path / "y.npy", np.full(2, 2.0))
    found = only(compare(tmp_path / "1.safetensors", tmp_path / "y.npy", tensor="a"))
    assert (found.name, found.rmse, found.error) == ("a", 1.0, None)
    save_npy(tmp_path / "b.npy", np.full(2, 2.0))  # holds "b"
    found = only(compare(tmp_path / "1.safetensors", tmp_path / "b.npy", tensor="a"))
    assert found.error == "is not in the second file"


def test_compare_codes_of_two_formats(tmp_path):
    write(tmp_path / "x.npy", np.array([[3, 4, 0, 0]], ml_dtypes.bfloat16))
    write(tmp_path / "y.npy", np.array([[0, 0, 0, 0]], ml_dtypes.float8_e5m2))
    found = only(compare(tmp_path / "x.npy", tmp_path / "y.npy"))
    assert (found.dtype, found.dtype_hat, found.rmse) == ("bfloat16", "float8_e5m2", 2.5)


@pytest.mark.parametrize("shape", [(3, 2), (4,)], ids=str)
def test_compare_tensors_of_other_shapes_say_so(tmp_path, shape):
    save_npy(tmp_path / "x.npy", np.zeros((2, 2)))
    save_npy(tmp_path / "y.npy", np.zeros(shape))
    found = only(compare(tmp_path / "x.npy", tmp_path / "y.npy"))
    assert found.error == f"has shape {shape} in the second file"


def test_compare_zeros_and_nan_have_named_ratios(tmp_path):
    save_npy(tmp_path / "x.npy", np.array([[0.0, 0.0], [0.0, math.nan]]))
    found = only(compare(tmp_path / "x.npy", tmp_path / "x.npy"))
    assert (found.equal_rows, found.nan_rows, found.row_rmse_max) == (1, 1, 0)
    assert math.isnan(found.relative_rmse)
