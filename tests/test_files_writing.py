"""Files written block by block, and whole files of scaled rows: complete, or as they were."""

import os
import signal
import subprocess
import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest
from processes import PACKAGE
from test_files import only
from test_files_formats import gathered, values_of

from rmsfast import files, rms, rms_norm, scale_to_rms
from rmsfast.files import Tensor, _tensors, describe, normalize, open_tensors, save_npy, writing

h5py = pytest.importorskip("h5py")
zarr = pytest.importorskip("zarr")

SUFFIXES = [".npy", ".safetensors", ".h5", ".hdf5", ".zarr"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
DTYPES = ["bool", "int8", "uint64", "float16", "float32", "float64", "complex64", *NARROW]


def write(path, x, name="x", rows=3):
    """Write an array, a few rows at a time."""
    with writing(path, [Tensor(name, x.shape, x.dtype.name)]) as put:
        for first in range(0, len(x), rows):
            part = x[first : first + rows]
            box = (slice(first, first + len(part)), *(slice(0, n) for n in x.shape[1:]))
            put(name, box, part)
    return path


def numbers(tensor):
    """The values of a tensor as numbers; codes as those of ml_dtypes."""
    values = tensor.read()
    return values.view(getattr(ml_dtypes, tensor.format)) if tensor.format else values


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_writing_every_format_and_dtype_comes_back(tmp_path, suffix, dtype):
    x = values_of((7, 5), getattr(ml_dtypes, dtype) if dtype in NARROW else dtype)
    tensor = only(open_tensors(write(tmp_path / f"x{suffix}", x)))
    assert (tensor.name, tensor.shape, tensor.dtype) == ("x", (7, 5), dtype)
    np.testing.assert_array_equal(numbers(tensor), x)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_writing_narrow_values_are_described_as_numbers(tmp_path, suffix):
    x = np.array([[3, 4, 0, 0]], ml_dtypes.bfloat16)
    [found] = describe(write(tmp_path / f"x{suffix}", x))
    assert (found.error, found.dtype, found.rms) == (None, "bfloat16", 2.5)


def test_writing_bfloat16_to_npy_can_be_loaded_by_numpy_and_taken_as_it_is(tmp_path):
    x = np.array([[3, 4, 0, 0]], ml_dtypes.bfloat16)
    loaded = np.load(write(tmp_path / "x.npy", x))
    assert rms(loaded).tolist() == [2.5]
    np.save(tmp_path / "y.npy", scale_to_rms(loaded, 5.0))
    [found] = describe(tmp_path / "y.npy")
    assert (found.dtype, found.rms) == ("bfloat16", 5.0)


def test_writing_of_what_is_no_tensor_is_refused_before_any_work(tmp_path):
    with (
        pytest.raises(TypeError, match=r"^writing: tensors must be .+ of Tensor, got str in it$"),
        writing(tmp_path / "x.npy", {"x": np.zeros(3)}),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (4, 0)], ids=str)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_writing_few_or_no_rows_comes_back(tmp_path, suffix, shape):
    x = values_of(shape)
    np.testing.assert_array_equal(only(open_tensors(write(tmp_path / f"x{suffix}", x))).read(), x)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_writing_takes_swapped_and_strided_values(tmp_path, suffix):
    x = values_of((6, 8), ">f8")[:, ::2]
    tensor = only(open_tensors(write(tmp_path / f"x{suffix}", x)))
    np.testing.assert_array_equal(tensor.read(), x)


def test_writing_boxes_of_three_axes_lie_where_they_belong(tmp_path):
    x = values_of((4, 6, 5))
    with writing(tmp_path / "x.npy", [Tensor("x", x.shape, "float32")]) as put:
        for i in range(0, 4, 2):
            for j in range(0, 6, 3):
                box = (slice(i, i + 2), slice(j, j + 3), slice(0, 5))
                put("x", box, x[box])
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x)


def test_writing_safetensors_is_read_by_the_library(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    a, b = values_of((3, 5), "int8"), values_of((4,), "float64")
    with writing(
        tmp_path / "m.safetensors", [Tensor("a", (3, 5), "int8"), Tensor("b", (4,), "float64")]
    ) as put:
        put("b", (slice(0, 4),), b)
        put("a", (slice(0, 3), slice(0, 5)), a)
    found = library.load_file(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(found["a"], a)
    np.testing.assert_array_equal(found["b"], b)


def test_writing_npy_is_read_by_numpy(tmp_path):
    x = values_of((7, 5), ml_dtypes.bfloat16)
    found = np.load(write(tmp_path / "x.npy", x))
    np.testing.assert_array_equal(found["bfloat16"].view(ml_dtypes.bfloat16), x)


# Refusals and interruptions ---------------------------------------------------------------------


def test_writing_values_left_out_leaves_the_old_file_and_nothing_else(tmp_path):
    path = write(tmp_path / "x.npy", np.zeros((2, 2)))
    with (
        pytest.raises(ValueError, match=r"x\.npy: tensor 'x': 2 values were not written$"),
        writing(path, [Tensor("x", (2, 2), "float64")]) as put,
    ):
        put("x", (slice(0, 1), slice(0, 2)), np.ones((1, 2)))
    assert np.load(path).tolist() == [[0, 0], [0, 0]]
    assert os.listdir(tmp_path) == ["x.npy"]


def write_half(path, interruption):
    with writing(path, [Tensor("x", (2, 2), "float64")]) as put:
        put("x", (slice(0, 1), slice(0, 2)), np.ones((1, 2)))
        raise interruption


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), OSError(28, "No space left")])
def test_writing_interrupted_leaves_the_old_file_and_nothing_else(tmp_path, suffix, interruption):
    path = write(tmp_path / f"x{suffix}", np.zeros((2, 2)))
    with pytest.raises(type(interruption)):
        write_half(path, interruption)
    assert only(open_tensors(path)).read().tolist() == [[0, 0], [0, 0]]
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_writing_replaces_the_old_file(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", np.zeros((2, 2)))
    assert only(open_tensors(write(path, np.ones((1, 3))))).read().tolist() == [[1, 1, 1]]
    assert os.listdir(tmp_path) == [path.name]


def test_writing_zarr_does_not_replace_another_folder(tmp_path):
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "precious").touch()
    with pytest.raises(ValueError, match=r"x\.zarr: exists and is not a zarr folder$"):
        write(tmp_path / "x.zarr", np.zeros((2, 2)))
    assert os.listdir(tmp_path) == ["x.zarr"]
    assert os.listdir(tmp_path / "x.zarr") == ["precious"]


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".h5", ".zarr"])
def test_writing_killed_in_the_middle_leaves_the_old_file(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix}", np.zeros((2, 2)))
    program = f"""
        import sys, time
        import numpy as np
        from rmsfast.files import Tensor, writing
        with writing({str(path)!r}, [Tensor("x", (2, 2), "float64")]) as put:
            put("x", (slice(0, 1), slice(0, 2)), np.ones((1, 2)))
            print("half", flush=True)
            time.sleep(100)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as child:
        assert child.stdout.readline() == "half\n"
        child.send_signal(signal.SIGKILL)
    assert only(open_tensors(path)).read().tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("name", "tensors", "fault"),
    [
        ("x.txt", [Tensor("x", (2,), "float32")], "suffix must be .npy, .safetensors, .h5, .hdf5"),
        ("x.npz", [], "suffix must be "),
        ("x.npy", [], "a .npy file holds one tensor, got 0"),
        ("x.h5", [Tensor("x", (2,), "<M8[s]")], "tensor 'x': dtype <M8[s] is not supported"),
        ("x.h5", [Tensor("x", (2,), "void32")], "tensor 'x': dtype void32 is not supported"),
        (
            "x.safetensors",
            [Tensor("x", (2,), "complex128")],
            "tensor 'x': .safetensors has no dtype complex128",
        ),
    ],
    ids=["suffix", "npz", "count", "dates", "void", "complex128"],
)
def test_writing_what_the_format_cannot_hold_is_refused(tmp_path, name, tensors, fault):
    with (
        pytest.raises(ValueError) as caught,  # noqa: PT011 - the text is compared below
        writing(tmp_path / name, tensors),
    ):
        pass
    assert str(caught.value).startswith(f"{tmp_path / name}: {fault}")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("values", [np.ones((2, 1)), np.ones((1, 2), "f4")], ids=["shape", "width"])
def test_writing_values_that_do_not_fit_are_refused(tmp_path, values):
    with (
        pytest.raises(ValueError, match=r"tensor 'x': values must have shape \(1, 2\) and 8 bytes"),
        writing(tmp_path / "x.npy", [Tensor("x", (2, 2), "float64")]) as put,
    ):
        put("x", (slice(0, 1), slice(0, 2)), values)


# normalize --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16"])
def test_normalize_gives_the_bits_of_scale_to_rms(tmp_path, suffix, dtype):
    x = values_of((50, 6), getattr(ml_dtypes, dtype) if dtype in NARROW else dtype)
    write(tmp_path / "in.safetensors", x)
    normalize(tmp_path / "in.safetensors", tmp_path / f"out{suffix}", target=2.0)
    tensor = only(open_tensors(tmp_path / f"out{suffix}"))
    expected = scale_to_rms(x, 2.0)
    assert tensor.dtype == expected.dtype.name
    np.testing.assert_array_equal(numbers(tensor), expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_normalize_any_axis_and_order_gives_the_bits_of_scale_to_rms(
    tmp_path, monkeypatch, axis, order
):
    x = values_of((20, 8, 30))
    np.save(tmp_path / "x.npy", np.asarray(x, order=order))
    monkeypatch.setattr(_tensors, "BOX_BYTES", 4000)
    normalize(tmp_path / "x.npy", tmp_path / "y.npy", axis=axis)
    found = np.load(tmp_path / "y.npy")
    assert found.flags.f_contiguous == (order == "F")
    np.testing.assert_array_max_ulp(found, scale_to_rms(x, 1.0, axis=axis), 1)


def test_normalize_rows_longer_than_a_box_are_within_two_ulps(tmp_path, monkeypatch):
    x = values_of((5000, 3), "float64")
    x[:, 1] *= 1e-290
    x[:, 2] *= 1e290
    save_npy(tmp_path / "x.npy", x)
    monkeypatch.setattr(_tensors, "BOX_BYTES", 4000)
    normalize(tmp_path / "x.npy", tmp_path / "y.npy", axis=0)
    expected = scale_to_rms(x, 1.0, axis=0)
    np.testing.assert_array_max_ulp(np.load(tmp_path / "y.npy"), expected, 2)


def test_normalize_in_place_replaces_the_file(tmp_path):
    path = write(tmp_path / "x.h5", values_of((50, 6)))
    normalize(path, path)
    np.testing.assert_allclose(rms(gathered(only(open_tensors(path)))), 1, rtol=1e-6)
    assert os.listdir(tmp_path) == ["x.h5"]


@pytest.mark.parametrize("limit", [8, 1 << 20])
@pytest.mark.parametrize(("zero", "value"), [("zero", 0.0), ("nan", np.nan)])
def test_normalize_zero_rows_become_what_was_asked_for(tmp_path, monkeypatch, zero, value, limit):
    save_npy(tmp_path / "x.npy", np.array([[0.0, 0.0], [3.0, 3.0]]))
    monkeypatch.setattr(_tensors, "BOX_BYTES", limit)
    normalize(tmp_path / "x.npy", tmp_path / "y.npy", zero=zero)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [[value, value], [1, 1]])


@pytest.mark.parametrize("limit", [8, 1 << 20])
@pytest.mark.parametrize("zero", ["zero", "nan"])
def test_normalize_counts_rows_with_nan_or_inf_and_no_zero_row(tmp_path, monkeypatch, zero, limit):
    x = np.array([[0.0, 0.0], [3.0, np.nan], [np.inf, 1.0], [2.0, 2.0], [np.nan, np.inf]])
    save_npy(tmp_path / "x.npy", x)
    monkeypatch.setattr(_tensors, "BOX_BYTES", limit)
    assert normalize(tmp_path / "x.npy", tmp_path / "y.npy", zero=zero) == 3


@pytest.mark.parametrize("limit", [8, 1 << 20])
def test_normalize_zero_rows_are_refused_and_leave_nothing(tmp_path, monkeypatch, limit):
    save_npy(tmp_path / "x.npy", np.array([[3.0, 3.0], [0.0, 0.0]]))
    monkeypatch.setattr(_tensors, "BOX_BYTES", limit)
    with pytest.raises(ValueError, match=r"x\.npy: tensor 'x': .*must be nonzero under zero="):
        normalize(tmp_path / "x.npy", tmp_path / "y.npy")
    assert os.listdir(tmp_path) == ["x.npy"]


def test_normalize_unreadable_tensor_is_refused_before_work(tmp_path):
    np.save(tmp_path / "x.npy", np.array([None]))
    with pytest.raises(ValueError, match=r"x\.npy: tensor 'x': holds pickled Python objects"):
        normalize(tmp_path / "x.npy", tmp_path / "y.npy")
    assert os.listdir(tmp_path) == ["x.npy"]


def test_normalize_tells_its_progress_in_bytes(tmp_path, monkeypatch):
    write(tmp_path / "x.npy", values_of((10, 4)))
    monkeypatch.setattr(_tensors, "BOX_BYTES", 64)
    told = []
    normalize(tmp_path / "x.npy", tmp_path / "y.npy", progress=lambda *each: told.append(each))
    assert told == [(64, 160), (128, 160), (160, 160)]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rms_norm_has_the_bits_of_the_array(tmp_path, monkeypatch, dtype, axis):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 200)
    x = values_of((50, 6), getattr(ml_dtypes, dtype) if dtype in NARROW else dtype)
    gain = np.linspace(-1, 2, x.shape[axis])
    path = write(tmp_path / "x.safetensors", x)
    files.rms_norm(path, tmp_path / "y.npy", gain, axis=axis, gain_offset=1.0)
    expected = rms_norm(x, gain, axis=axis, gain_offset=1.0)
    found = numbers(only(open_tensors(tmp_path / "y.npy")))
    assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
