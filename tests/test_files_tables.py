"""Every number of a tensor and of its rows: `describe`, `compare`, and their row tables."""

import dataclasses
import json
import mmap
import threading

import numpy as np
import pytest
from test_files import entry, only, safetensors
from test_files_formats import (
    as_chunked_hdf5,
    as_npy,
    as_npy_big_endian,
    as_npy_in_fortran_order,
    as_npy_shards,
    as_zarr_2,
    values_of,
)

import rmsfast
from rmsfast import _launch, files
from rmsfast.files import _rows, _tables, _tensors, save_npy

FORMATS = [as_npy, as_npy_big_endian, as_npy_in_fortran_order, as_npy_shards, as_zarr_2]
every_format = pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
SHAPE = (13, 8, 21)


@pytest.fixture(params=[200, 1 << 25], ids=["parts of rows", "whole"])
def box_bytes(request, monkeypatch):
    monkeypatch.setattr(_tensors, "BOX_BYTES", request.param)


def same(found, expected):
    assert type(found) is type(expected)
    for name in expected.names():
        a, b = np.asarray(getattr(found, name)), np.asarray(getattr(expected, name))
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        rtol = 2e-7 if a.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12, err_msg=name)


def c_order(x, axis):
    """The values as one vector, the rows one after the other."""
    return np.moveaxis(x, axis, -1).reshape(-1)


@pytest.mark.usefixtures("box_bytes")
@pytest.mark.parametrize("axis", [0, -1])
@every_format
def test_file_describe_tells_every_number_of_all_values(tmp_path, make, axis):
    x = values_of(SHAPE)
    x[3, 2, 1], x[7, 5, 5] = 1e4, -1e4
    found = only(files.describe(make(tmp_path, x), axis=axis))
    same(found.whole, rmsfast.describe(c_order(x, axis)))
    assert found.peak_index == (3, 2, 1)


@pytest.mark.usefixtures("box_bytes")
@pytest.mark.parametrize("axis", [0, 1])
@every_format
def test_describe_rows_of_a_file_are_those_of_the_array(tmp_path, make, axis):
    x = values_of(SHAPE)
    same(files.describe_rows(make(tmp_path, x), axis=axis), rmsfast.describe(x, axis=axis))


@pytest.mark.usefixtures("box_bytes")
@pytest.mark.parametrize("make", [as_npy, as_npy_in_fortran_order, as_chunked_hdf5])
def test_file_describe_names_the_rows_to_look_at(tmp_path, make):
    x = values_of(SHAPE) * np.random.default_rng(1).permutation(104).reshape(13, 8, 1).astype("f4")
    x[2, 3, 4] = np.nan
    found = only(files.describe(make(tmp_path, x))).worst
    expected = rmsfast.describe(x).worst(10)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found["row"], expected["row"])
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-12)


@pytest.mark.usefixtures("box_bytes")
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("make", [as_npy, as_npy_in_fortran_order, as_zarr_2])
def test_file_compare_tells_every_number_of_all_values_and_rows(tmp_path, make, axis):
    x, y = values_of(SHAPE), values_of(SHAPE, seed=1)
    y[5], y[7, 5, 5] = x[5], -1e4
    save_npy(tmp_path / "y.npy", y)
    path = make(tmp_path, x)
    found = only(files.compare(path, tmp_path / "y.npy", axis=axis))
    same(found.whole, rmsfast.compare(c_order(x, axis), c_order(y, axis)))
    expected = rmsfast.compare(x, y, axis=axis)
    np.testing.assert_array_equal(found.worst["row"], expected.worst(10)["row"])
    same(files.compare_rows(path, tmp_path / "y.npy", axis=axis), expected)


def test_file_describe_of_equal_peaks_gives_the_first_in_c_order(tmp_path, monkeypatch):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 64)
    x = np.zeros((6, 5, 4), np.float32)
    x[1, 4, 3], x[4, 0, 0] = -3, 3  # the second is stored first
    found = only(files.describe(as_npy_in_fortran_order(tmp_path, x)))
    assert found.whole.peak_index == np.ravel_multi_index((1, 4, 3), x.shape)


def test_file_describe_joins_the_numbers_of_very_many_boxes(tmp_path, monkeypatch):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 64)
    monkeypatch.setattr(_tables, "AT_ONCE", 3)
    x = values_of((50, 4))
    same(only(files.describe(as_npy(tmp_path, x))).whole, rmsfast.describe(x, axis=None))


@pytest.mark.parametrize("make", [as_npy, as_zarr_2])
def test_file_describe_has_the_same_bits_on_any_number_of_threads(tmp_path, monkeypatch, make):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 2000)
    path = make(tmp_path, values_of((60, 300)))
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(_launch, "_threads", threads)
        monkeypatch.setattr(_launch, "thread_limits", lambda: [(8, "processors")])
        found.append(only(files.describe(path)))
    assert found[0] == found[1]
    for name in found[0].whole.names():
        assert getattr(found[0].whole, name).tobytes() == getattr(found[1].whole, name).tobytes()


def test_file_describe_fault_met_by_a_thread_is_the_reason_of_the_tensor(tmp_path, monkeypatch):
    def fail(*_):
        raise ValueError("cannot be read")

    monkeypatch.setattr(_tensors, "BOX_BYTES", 64)
    save_npy(tmp_path / "x.npy", np.ones((50, 4)))
    monkeypatch.setattr(_tensors.Mapped, "read", fail)
    assert only(files.describe(tmp_path / "x.npy")).error == "cannot be read"


def test_file_describe_tells_its_progress_on_the_thread_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 64)
    save_npy(tmp_path / "x.npy", np.ones((50, 4)))
    told = []

    def progress(done, total):
        told.append((done, total, threading.get_ident()))

    files.describe(tmp_path / "x.npy", progress=progress)
    assert [done for done, _, _ in told] == [*range(128, 1600, 128), 1600]
    assert {(total, thread) for _, total, thread in told} == {(1600, threading.get_ident())}


def test_describe_rows_of_very_many_rows_are_kept_in_files(tmp_path, monkeypatch):
    monkeypatch.setattr(_rows, "_SPILLED_BYTES", 64)
    monkeypatch.setattr(_tables, "ROWS", 7)
    x = values_of((50, 4))
    found = files.describe_rows(as_npy(tmp_path, x))
    base = found.peak
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base, mmap.mmap)
    same(found, rmsfast.describe(x))


def test_file_summaries_have_json_fields_beside_their_tables(tmp_path):
    save_npy(tmp_path / "x.npy", np.array([[3.0, 4.0, 0.0, 0.0]]))
    for found in (
        only(files.describe(tmp_path / "x.npy")),
        only(files.compare(tmp_path / "x.npy", tmp_path / "x.npy")),
    ):
        assert not {"whole", "worst"} & json.loads(json.dumps(dataclasses.asdict(found))).keys()
        assert found.whole.count == 4
        assert len(found.worst) == 1


def test_file_describe_of_complex_values_tells_sizes(tmp_path):
    z = values_of((9, 6), "float64") + 1j * values_of((9, 6), "float64", seed=1)
    save_npy(tmp_path / "z.npy", z)
    found = only(files.describe(tmp_path / "z.npy"))
    assert found.peak == pytest.approx(np.abs(z).max(), rel=1e-15)
    assert found.peak_index == np.unravel_index(np.abs(z).argmax(), z.shape)
    same(found.whole, rmsfast.describe(z, axis=None))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)], ids=str)
def test_file_describe_without_values_has_no_tables(tmp_path, shape):
    save_npy(tmp_path / "x.npy", np.empty(shape))
    for found in (
        only(files.describe(tmp_path / "x.npy")),
        only(files.compare(tmp_path / "x.npy", tmp_path / "x.npy")),
    ):
        assert found.whole is found.worst is None


@pytest.mark.parametrize("shape", [(), (1,), (1, 3)], ids=str)
def test_file_tables_of_one_row_are_scalars_or_of_one(tmp_path, shape):
    x = np.full(shape, 3.0)
    np.save(tmp_path / "x.npy", x)
    same(files.describe_rows(tmp_path / "x.npy"), rmsfast.describe(x))
    same(files.compare_rows(tmp_path / "x.npy", tmp_path / "x.npy"), rmsfast.compare(x, x))
    found = only(files.describe(tmp_path / "x.npy"))
    assert (found.whole.mean, found.worst["row"].tolist()) == (3.0, [0])


def test_row_tables_of_no_rows_are_empty(tmp_path):
    save_npy(tmp_path / "x.npy", np.empty((0, 3)))
    assert files.describe_rows(tmp_path / "x.npy").rms.shape == (0,)
    assert files.compare_rows(tmp_path / "x.npy", tmp_path / "x.npy").rmse.shape == (0,)


def test_row_tables_that_cannot_be_told_name_file_and_tensor(tmp_path):
    header = {"odd": entry("F4", [2], 0, 1), "h": entry("U8", [2], 1, 3)}
    (tmp_path / "m.safetensors").write_bytes(safetensors(header, bytes(3)))
    save_npy(tmp_path / "y.npy", np.zeros(3))
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=r"m\.safetensors: tensor 'odd': dtype F4 is not suppor"):
        files.describe_rows(path, tensor="odd")
    with pytest.raises(ValueError, match=r"m\.safetensors: tensor must be one of 'odd', 'h', none"):
        files.describe_rows(path)
    with pytest.raises(ValueError, match=r"tensor 'h': axis must .*, got 1"):
        files.describe_rows(path, tensor="h", axis=1)
    with pytest.raises(ValueError, match=r"tensor 'h': has shape \(3,\) in the second"):
        files.compare_rows(path, tmp_path / "y.npy", tensor="h")
