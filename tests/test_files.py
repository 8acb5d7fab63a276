"""Reading, refusing, summarising and writing files."""

import errno
import io
import json
import math
import mmap
import os
import re
import stat
import struct
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from numpy.lib import format as npy

from rmsfast.files import _rows, _tables, _tensors, describe, open_tensors, row_rms, save_npy

# Files made by hand -----------------------------------------------------------------------------


def safetensors(header, data=b"", length=None):
    """Bytes of a file; `header` is an object to write as JSON, or the bytes themselves."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, *offsets):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def npy_bytes(header, data=b"", version=(1, 0)):
    """Bytes of a file; `header` is a dict to write as a literal, or the bytes themselves."""
    text = header if isinstance(header, bytes) else repr(header).encode()
    return (
        npy.magic(*version)
        + struct.pack("<H" if version == (1, 0) else "<I", len(text))
        + text
        + data
    )


def literal(descr="<f8", shape=(2,), fortran_order=False):
    return {"descr": descr, "fortran_order": fortran_order, "shape": shape}


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def write_array(tmp_path):
    def write_array(array, name="x.npy"):
        path = tmp_path / name
        np.save(path, array)
        return path

    return write_array


def only(items):
    [item] = items
    return item


# Codes of the rows (3, 4) and (6, 8).
STORED = {
    "F64": ("float64", None, np.array([3, 4, 6, 8], "<f8")),
    "F32": ("float32", None, np.array([3, 4, 6, 8], "<f4")),
    "F16": ("float16", None, np.array([0x4200, 0x4400, 0x4600, 0x4800], "<u2")),
    "BF16": ("bfloat16", "bfloat16", np.array([0x4040, 0x4080, 0x40C0, 0x4100], "<u2")),
    "F8_E4M3": ("float8_e4m3fn", "float8_e4m3fn", np.array([0x44, 0x48, 0x4C, 0x50], "u1")),
    "F8_E5M2": ("float8_e5m2", "float8_e5m2", np.array([0x42, 0x44, 0x46, 0x48], "u1")),
    "I8": ("int8", None, np.array([3, -4, 6, -8], "i1")),
    "U8": ("uint8", None, np.array([3, 4, 6, 8], "u1")),
    "I16": ("int16", None, np.array([3, -4, 6, -8], "<i2")),
    "U16": ("uint16", None, np.array([3, 4, 6, 8], "<u2")),
    "I32": ("int32", None, np.array([3, -4, 6, -8], "<i4")),
    "U32": ("uint32", None, np.array([3, 4, 6, 8], "<u4")),
    "I64": ("int64", None, np.array([3, -4, 6, -8], "<i8")),
    "U64": ("uint64", None, np.array([3, 4, 6, 8], "<u8")),
}
NAN, INF = math.nan, math.inf
RMS_3_4, RMS_6_8 = math.sqrt(12.5), math.sqrt(50.0)


def safetensors_of(code):
    data = STORED[code][2].tobytes()
    return safetensors({"h": entry(code, [2, 2], 0, len(data))}, data)


# open_tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", STORED)
def test_open_tensors_each_safetensors_dtype_is_named_and_viewed(write, code):
    dtype, format, stored = STORED[code]
    tensor = only(open_tensors(write("m.safetensors", safetensors_of(code))))
    assert (tensor.name, tensor.shape, tensor.dtype, tensor.format, tensor.error) == (
        "h",
        (2, 2),
        dtype,
        format,
        None,
    )
    assert tensor.read().tobytes() == stored.tobytes()


def test_open_tensors_bool_is_viewed(write):
    content = safetensors({"mask": entry("BOOL", [3], 0, 3)}, b"\1\0\1")
    tensor = only(open_tensors(write("m.safetensors", content)))
    assert tensor.dtype == "bool"
    assert tensor.read().tolist() == [True, False, True]


@pytest.mark.parametrize("padding", range(8))
def test_open_tensors_unaligned_safetensors_data_is_viewed(write, padding):
    text = json.dumps({"h": entry("F64", [2], 0, 16)}).encode() + b" " * padding
    content = safetensors(text, np.array([3.0, 4.0]).tobytes())
    tensor = only(open_tensors(write("m.safetensors", content)))
    assert tensor.read().tolist() == [3.0, 4.0]


def test_open_tensors_data_is_read_only_view_of_map(write):
    tensor = only(open_tensors(write("m.safetensors", safetensors_of("F32"))))
    base = tensor.read()
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    assert isinstance(base, mmap.mmap)
    assert not tensor.read().flags.writeable


def test_open_tensors_safetensors_metadata_is_no_tensor(write):
    header = {"__metadata__": {"format": "pt"}, "h": entry("U8", [1], 0, 1)}
    assert only(open_tensors(write("m.safetensors", safetensors(header, b"\3")))).name == "h"


def test_open_tensors_safetensors_come_in_stored_order(write):
    header = {"b": entry("U8", [1], 1, 2), "a": entry("U8", [1], 0, 1), "c": entry("U8", [0], 2, 2)}
    tensors = open_tensors(write("m.safetensors", safetensors(header, b"\1\2")))
    assert [tensor.name for tensor in tensors] == ["a", "b", "c"]


def test_open_tensors_safetensors_without_tensors_gives_none(write):
    assert open_tensors(write("m.safetensors", safetensors({}))) == []


@pytest.mark.parametrize("code", ["C128", "F4", "F6_E2M3", "F8_E8M0", "new"])
def test_open_tensors_unsupported_safetensors_dtype_is_listed(write, code):
    header = {"odd": entry(code, [2], 0, 7), "h": entry("U8", [1], 7, 8)}
    odd, h = open_tensors(write("m.safetensors", safetensors(header, bytes(8))))
    assert (odd.dtype, odd.stored, odd.error) == (code, None, f"dtype {code} is not supported")
    with pytest.raises(ValueError, match=f"tensor 'odd': dtype {code} is not supported"):
        odd.read()
    assert h.error is None


@pytest.mark.parametrize("shape", [[1] * 65, [0, 2**62, 2**62], [0, 2**70]])
def test_open_tensors_shape_beyond_numpy_is_listed(write, shape):
    size = math.prod(shape)
    content = safetensors({"h": entry("U8", shape, 0, size)}, bytes(size))
    tensor = only(open_tensors(write("m.safetensors", content)))
    assert tensor.stored is None
    assert tensor.error.startswith("not an array that NumPy can hold: ")


def test_open_tensors_file_of_safetensors_library_is_read(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7, np.int64)}
    library.save_file(arrays, tmp_path / "m.safetensors", {"made by": "the library"})
    tensors = {tensor.name: tensor for tensor in open_tensors(tmp_path / "m.safetensors")}
    assert tensors.keys() == arrays.keys()
    np.testing.assert_array_equal(tensors["a"].read(), arrays["a"], strict=True)
    np.testing.assert_array_equal(tensors["b"].read(), arrays["b"], strict=True)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.arange(3, dtype=np.complex64),
        np.array(3.0),
        np.zeros((0, 3)),
        np.zeros((3, 0), np.float16),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(2, [("é", "f4"), ("日", "f4")]),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}{array.strides}",
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0:UserWarning")
def test_open_tensors_npy_is_viewed(write_array, array):
    tensor = only(open_tensors(write_array(array)))
    assert (tensor.name, tensor.shape, tensor.dtype) == ("x", array.shape, array.dtype.name)
    assert tensor.read().tolist() == array.tolist()
    assert tensor.read().flags.f_contiguous == array.flags.f_contiguous


def test_open_tensors_npy_version_2_is_viewed(write):
    content = npy_bytes(literal(), np.array([3.0, 4.0]).tobytes(), version=(2, 0))
    assert only(open_tensors(write("x.npy", content))).read().tolist() == [3.0, 4.0]


def test_open_tensors_upper_case_suffix_is_read(write):
    content = npy_bytes(literal(), np.array([3.0, 4.0]).tobytes())
    assert only(open_tensors(write("X.NPY", content))).name == "X"


def test_open_tensors_pickled_objects_are_listed_not_loaded(write_array):
    array = np.array([1, "a"], object)
    tensor = only(open_tensors(write_array(array)))
    assert (tensor.shape, tensor.dtype, tensor.stored) == ((2,), "object", None)
    assert tensor.error == "holds pickled Python objects, which are never loaded"


def of_h(dtype, shape, *offsets, size=1):
    return safetensors({"h": entry(dtype, shape, *offsets)}, bytes(size))


def of_a_and_b(a, b, size):
    return safetensors({"a": entry("U8", [2], *a), "b": entry("U8", [2], *b)}, bytes(size))


GOOD_NPY = npy_bytes(literal(), bytes(16))
HEADER = "not a valid .npy header: "
DAMAGED_NPY = {  # content, and how the text goes on after the name of the file
    "empty": (b"", "file is empty"),
    "zip archive": (b"PK\3\4" + bytes(60), HEADER + "the magic string is not correct"),
    "magic cut": (GOOD_NPY[:5], HEADER + "EOF: reading magic string"),
    "header cut": (GOOD_NPY[:40], HEADER + "EOF: reading array header"),
    "version": (npy_bytes(literal(), version=(9, 9)), HEADER + "version 9.9 is unknown"),
    "header length": (
        npy.magic(2, 0) + b"\xff" * 4 + GOOD_NPY[10:],
        HEADER + "EOF: reading array header, expected 4294967295 bytes",
    ),
    "header large": (
        npy_bytes(repr(literal()).encode() + b" " * 20_000),
        HEADER + "Header info length (200",
    ),
    "no literal": (npy_bytes(b"import os"), HEADER),
    "function call": (npy_bytes(b"print()"), HEADER + "malformed node"),
    "brackets": (npy_bytes(b"(" * 9000), HEADER),
    "open string": (npy_bytes(b"{'''"), HEADER),
    "a list": (npy_bytes(b"[]"), HEADER + "Header is not a dictionary: []"),
    "keys": (npy_bytes({1: 2, "a": 3}), HEADER),
    "descr": (npy_bytes(literal("<q9")), HEADER),
    "descr type": (npy_bytes(literal(((),))), HEADER),
    "shape type": (npy_bytes(literal(shape=(2.0,))), HEADER + "shape is not valid: (2.0,)"),
    "negative shape": (
        npy_bytes(literal(shape=(-1, -2)), bytes(16)),
        "shape must not be negative, got (-1, -2)",
    ),
    "data cut": (
        GOOD_NPY[:-1],
        "truncated: shape (2,) of float64 takes 16 bytes, 15 follow the header",
    ),
    "no data": (
        GOOD_NPY[:-16],
        "truncated: shape (2,) of float64 takes 16 bytes, 0 follow the header",
    ),
    "lying shape": (
        npy_bytes(literal(shape=(1,)), bytes(16)),
        "longer than its header says: shape (1,) of float64 takes 8 bytes, 16 follow the header",
    ),
    "overflowing shape": (
        npy_bytes(literal(shape=(2**32, 2**32)), bytes(16)),
        "truncated: shape (4294967296, 4294967296) of float64 takes 147573952589676412928 bytes",
    ),
    "endless shape": (npy_bytes(literal(shape=(10**4000, 10**4000))), "Exceeds the limit"),
}

JSON = "not a valid safetensors header: "
PARTS = "tensor 'h' must have dtype, shape and two data_offsets"
NUMBERS = "tensor 'h' must have non-negative integers as shape and data_offsets, got "
DAMAGED_SAFETENSORS = {
    "empty": (b"", "file is empty"),
    "7 bytes": (bytes(7), "truncated: 7 bytes are too few for a safetensors header"),
    "header cut": (
        safetensors_of("F32")[:30],
        "truncated or not safetensors: the header takes ",
    ),
    "header length": (
        safetensors({}, length=2**64 - 1),
        "truncated or not safetensors: the header takes 18446744073709551623 bytes, the file has ",
    ),
    "zip archive": (b"PK\3\4 archive", "truncated or not safetensors: the header takes "),
    "header length 0": (bytes(16), JSON + "Expecting value"),
    "not JSON": (safetensors(b"{'h': 1}"), JSON + "Expecting property name"),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), JSON + "'utf-8' codec can't decode byte 0xff"),
    "UTF-16": (safetensors("{}".encode("utf-16")), JSON + "'utf-8' codec can't decode"),
    "deep": (safetensors(b"[" * 100_000), JSON + "maximum recursion depth exceeded"),
    "long number": (safetensors(b"[%s]" % (b"1" * 5000)), JSON + "Exceeds the limit"),
    "a list": (safetensors([]), JSON + "not a JSON object"),
    "same name twice": (safetensors(b'{"h": 1, "h": 2}'), JSON + "the name 'h' occurs twice"),
    "no entry": (safetensors({"h": 1}), PARTS),
    "no dtype": (safetensors({"h": {"shape": [], "data_offsets": [0, 1]}}), PARTS),
    "shape a number": (of_h("U8", 1, 0, 1), PARTS),
    "three offsets": (of_h("U8", [1], 0, 1, 1), PARTS),
    "negative shape": (of_h("U8", [-1, -1], 0, 1), NUMBERS + "[-1, -1] and [0, 1]"),
    "fractional shape": (of_h("U8", [1.0], 0, 1), NUMBERS + "[1.0] and [0, 1]"),
    "true as a length": (of_h("U8", [True], 0, 1), NUMBERS + "[True] and [0, 1]"),
    "negative offset": (of_h("U8", [1], -1, 0), NUMBERS + "[1] and [-1, 0]"),
    "text as offset": (of_h("U8", [1], "0", 1), NUMBERS + "[1] and ['0', 1]"),
    "begin after end": (of_h("U8", [1], 1, 0), "tensor 'h' begins at 1, after its end at 0"),
    "wrong item size": (
        of_h("F32", [2], 0, 4, size=4),
        "tensor 'h' of dtype F32 and shape (2,) takes 8 bytes, its data_offsets span 4",
    ),
    "shape wraps 64 bits": (
        of_h("U8", [2**32, 2**32], 0, 0, size=0),
        "tensor 'h' of dtype U8 and shape (4294967296, 4294967296) takes 18446744073709551616 ",
    ),
    "data cut": (
        of_h("F32", [2], 0, 8, size=7),
        "truncated: data of 1 tensors takes 8 bytes, 7 follow the header",
    ),
    "unknown dtype beyond the file": (
        of_h("F4", [2], 0, 2**63),
        "truncated: data of 1 tensors takes 9223372036854775808 bytes, 1 follow the header",
    ),
    "bytes left over": (
        of_h("U8", [1], 0, 1, size=3),
        "longer than its header says: data of 1 tensors takes 1 bytes, 3 follow the header",
    ),
    "overlap": (of_a_and_b((0, 2), (1, 3), 3), "tensor 'b' overlaps the one before it"),
    "same data twice": (of_a_and_b((0, 2), (0, 2), 2), "tensor 'b' overlaps the one before it"),
    "hole": (of_a_and_b((0, 2), (3, 5), 5), "tensor 'b' leaves a hole after the one before it"),
    "name is long": (safetensors({"h" * 1000: 1}), "tensor 'hhh"),
    "name breaks lines": (safetensors({"\n\x1b[2J": 1}), r"tensor '\n\x1b[2J' must have dtype"),
}

SUFFIXES = (
    "suffix must be .npy, .npz, .safetensors, .json, .zarr, .h5 or .hdf5, or dtype and shape be "
    "given for raw binary, got "
)
DAMAGED = {
    f"{name}: {what}": (name, content, fault)
    for name, cases in (("x.npy", DAMAGED_NPY), ("m.safetensors", DAMAGED_SAFETENSORS))
    for what, (content, fault) in cases.items()
} | {
    "csv": ("x.csv", b"1,2", SUFFIXES + "'.csv'"),
    "no suffix": ("x", b"1,2", SUFFIXES + "''"),
}


@pytest.mark.parametrize(("name", "content", "fault"), DAMAGED.values(), ids=DAMAGED)
def test_open_tensors_damaged_file_raises_one_line_with_file_and_fault(write, name, content, fault):
    path = write(name, content)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        open_tensors(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: {fault}")
    assert text.isprintable()
    assert len(text) < len(str(path)) + 310


@pytest.mark.parametrize("name", ["x.npy", "m.safetensors", "x.csv"])
def test_open_tensors_missing_file_raises(tmp_path, name):
    with pytest.raises(FileNotFoundError) as caught:
        open_tensors(tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)


def test_open_tensors_unreadable_file_raises_error_that_names_it(write_array, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    path = write_array(np.zeros(2))
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(PermissionError) as caught:
        open_tensors(path)
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("name", ["x.npy", "folder"])
def test_open_tensors_folder_without_tensors_raises(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "notes.txt").touch()
    with pytest.raises(ValueError, match=rf"{name}: holds no files of tensors$"):
        open_tensors(tmp_path / name)


def test_open_tensors_device_raises():
    with pytest.raises(ValueError, match=r"not a regular file$"):
        open_tensors(os.devnull)


def test_read_of_file_that_changed_since_it_was_opened_raises(write_array):
    path = write_array(np.zeros(2))
    before = only(open_tensors(path))
    np.save(path, np.zeros(3))
    with pytest.raises(ValueError, match=r"x\.npy: changed while it was read$"):
        before.read()


def test_open_tensors_failing_map_raises_error_that_names_file(write_array, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    path = write_array(np.zeros(2))
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(OSError, match="No such device") as caught:
        open_tensors(path)
    assert caught.value.filename == str(path)


# describe ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", STORED)
def test_describe_each_safetensors_dtype_gives_row_rms(write, code):
    summary = only(describe(write("m.safetensors", safetensors_of(code))))
    assert summary.dtype == STORED[code][0]
    assert summary.rows == 2
    assert summary.row_rms_min == pytest.approx(RMS_3_4, rel=2e-16)
    assert summary.row_rms_max == pytest.approx(RMS_6_8, rel=2e-16)


def test_describe_summary_holds_every_number(write_array):
    path = write_array(np.array([[1.0, -1.0], [0.0, -0.0], [7.0, 7.0]]))
    summary = only(describe(path))
    assert (summary.name, summary.shape, summary.dtype) == ("x", (3, 2), "float64")
    assert (summary.axis, summary.rows) == (-1, 3)
    assert summary.rms == pytest.approx(math.sqrt(50 / 3), rel=4e-16)
    assert (summary.row_rms_min, summary.row_rms_median, summary.row_rms_max) == (0, 1, 7)
    assert (summary.zero_rows, summary.nan_rows, summary.inf_rows) == (1, 0, 0)
    assert summary.error is None


def test_describe_whole_rms_is_that_of_all_values(write_array):
    assert only(describe(write_array(np.array([[1.0, 1.0], [7.0, 7.0]])))).rms == 5.0


@pytest.mark.parametrize(
    ("axis", "low", "high"),
    [
        (-1, math.sqrt(4.5), math.sqrt(8.0)),
        (1, math.sqrt(4.5), math.sqrt(8.0)),
        (0, 0.0, RMS_3_4),
        (-2, 0.0, RMS_3_4),
    ],
)
def test_describe_axis_chooses_rows(write_array, axis, low, high):
    summary = only(describe(write_array(np.array([[3.0, 0.0], [4.0, 0.0]])), axis=axis))
    assert (summary.axis, summary.rows) == (axis, 2)
    assert summary.row_rms_min == pytest.approx(low, rel=2e-16)
    assert summary.row_rms_max == pytest.approx(high, rel=2e-16)


def test_describe_rows_of_many_axes_are_counted(write_array):
    assert only(describe(write_array(np.ones((2, 3, 5, 7))), axis=1)).rows == 70


@pytest.mark.parametrize(
    "array", [np.array(-3.0), np.array([-3.0]), np.array([3.0, -3.0])], ids=["0-d", "1", "2"]
)
def test_describe_at_most_one_axis_is_one_row(write_array, array):
    summary = only(describe(write_array(array)))
    assert (summary.rows, summary.rms, summary.row_rms_median) == (1, 3.0, 3.0)


@pytest.mark.parametrize(
    ("shape", "axis", "rows"),
    [((0,), -1, 1), ((0, 5), -1, 0), ((5, 0), -1, 5), ((5, 0), 0, 0), ((0, 0), -1, 0)],
)
def test_describe_empty_tensor_has_no_rms(write_array, shape, axis, rows):
    summary = only(describe(write_array(np.zeros(shape)), axis=axis))
    assert (summary.rows, summary.zero_rows, summary.error) == (rows, 0, None)
    assert (
        summary.rms is summary.row_rms_min is summary.row_rms_median is summary.row_rms_max is None
    )


@pytest.mark.parametrize(
    ("rows", "median"),
    [
        ([1.0], 1.0),
        ([4.0, 1.0], 2.5),
        ([4.0, 1.0, 3.0], 3.0),
        ([1.7e308, 1.7e308], 1.7e308),
        ([1.6e308, 1.7e308], 1.65e308),
        ([5e-324, 5e-324], 5e-324),
        ([math.inf, 1.0], math.inf),
        ([math.inf, math.inf, math.nan], math.inf),
        ([math.nan, 2.0, math.nan], 2.0),
    ],
)
def test_describe_median_is_over_rows_without_nan(write_array, rows, median):
    summary = only(describe(write_array(np.array(rows)[:, None])))
    assert summary.row_rms_median == pytest.approx(median, rel=2e-16)


def test_describe_very_many_rows_are_kept_in_a_file(write_array, monkeypatch):
    values = np.random.default_rng(0).normal(size=(501, 1))
    values[7], values[9] = NAN, 0.0
    path = write_array(values)
    monkeypatch.setattr(_rows, "_SPILLED_BYTES", 64)
    monkeypatch.setattr(_tables, "ROWS", 100)
    summary = only(describe(path))
    known = np.abs(values[~np.isnan(values)])
    assert (summary.rows, summary.nan_rows, summary.zero_rows) == (501, 1, 1)
    assert (summary.row_rms_min, summary.row_rms_max) == (known.min(), known.max())
    assert summary.row_rms_median == np.median(known)


def test_describe_only_nan_rows_have_no_statistics(write_array):
    summary = only(describe(write_array(np.full((2, 3), math.nan))))
    assert math.isnan(summary.rms)
    assert summary.row_rms_min is summary.row_rms_median is summary.row_rms_max is None
    assert summary.nan_rows == 2


NOT_FINITE = np.array([[NAN, 1], [INF, 1], [-INF, 1], [NAN, -INF], [NAN, NAN], [1, 1]])


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("order", ["C", "F"])
def test_describe_finds_the_peak_and_its_share(write_array, axis, order):
    x = np.random.default_rng(0).standard_normal((5, 6, 7))
    x[3, 4, 5] = -50
    x[1, 2, 3] = np.nan
    summary = only(describe(write_array(np.asarray(x, order=order)), axis=axis))
    squares = np.square(np.moveaxis(x, axis, -1)).reshape(-1, x.shape[axis])
    shares = squares.max(-1) / squares.sum(-1)
    assert (summary.peak, summary.peak_index) == (50, (3, 4, 5))
    assert summary.peak_share_max == pytest.approx(np.nanmax(shares), rel=1e-14)


def test_describe_of_rows_in_parts_finds_the_peak(write_array, monkeypatch):
    monkeypatch.setattr(_tensors, "BOX_BYTES", 1000)
    x = np.zeros((2, 3000), np.float32)
    x[0, [7, 2900]], x[1, 1500] = [1, -3], 2
    summary = only(describe(write_array(x)))
    assert (summary.peak, summary.peak_index, summary.zero_rows) == (3, (0, 2900), 0)
    assert summary.peak_share_max == pytest.approx(1, rel=1e-15)


def test_describe_of_only_nan_has_no_peak(write_array):
    summary = only(describe(write_array(np.array([[np.nan, 2]]))))
    assert (summary.peak, summary.peak_index, summary.peak_share_max) == (None, None, None)


# Codes of the same rows: NaN, 1, +Inf, -Inf.
NOT_FINITE_CODES = {
    "F16": np.array([0x7E01, 0x3C00, 0x7C00, 0xFC00], "<u2"),
    "BF16": np.array([0xFF81, 0x3F80, 0x7F80, 0xFF80], "<u2"),
    "F8_E5M2": np.array([0x7F, 0x3C, 0x7C, 0xFC], "u1"),
}


@pytest.mark.parametrize("dtype", ["f2", ">f4", "f8", "c8", ">c16"])
def test_describe_rows_with_nan_and_inf_count_in_both(write_array, dtype):
    summary = only(describe(write_array(NOT_FINITE.astype(dtype))))
    assert (summary.nan_rows, summary.inf_rows) == (3, 3)
    assert (summary.row_rms_min, summary.row_rms_max) == (1, INF)


@pytest.mark.parametrize("code", NOT_FINITE_CODES)
def test_describe_codes_with_nan_and_inf_count_in_both(write, code):
    nan, one, inf, minus_inf = NOT_FINITE_CODES[code]
    rows = np.array([[nan, one], [inf, one], [minus_inf, one], [nan, minus_inf], [nan, nan]])
    content = safetensors({"h": entry(code, [5, 2], 0, rows.nbytes)}, rows.tobytes())
    summary = only(describe(write("m.safetensors", content)))
    assert (summary.nan_rows, summary.inf_rows) == (3, 3)


def test_describe_float8_e4m3fn_has_nan_and_no_inf(write):
    content = safetensors({"h": entry("F8_E4M3", [2, 2], 0, 4)}, bytes([0x7F, 0xFF, 0x7E, 0x80]))
    summary = only(describe(write("m.safetensors", content)))
    assert (summary.nan_rows, summary.inf_rows) == (1, 0)
    assert summary.row_rms_max == pytest.approx(448 / math.sqrt(2), rel=2e-16)


@pytest.mark.parametrize("order", ["C", "F"])
def test_describe_infinity_is_found_anywhere_in_long_nan_rows(write_array, order):
    array = np.zeros((3, 300_000), np.float32, order=order)
    array[:2, 7] = NAN
    array[1, -1] = INF
    summary = only(describe(write_array(array)))
    assert (summary.zero_rows, summary.nan_rows, summary.inf_rows) == (1, 2, 1)


def test_describe_infinity_is_found_in_any_of_many_nan_rows(write_array):
    array = np.full((300, 2, 1000), NAN, np.float32)
    array[::3, 1, 5] = INF
    summary = only(describe(write_array(array)))
    assert (summary.nan_rows, summary.inf_rows) == (600, 100)


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "c16"])
def test_describe_row_whose_rms_rounds_to_zero_is_no_zero_row(write_array, dtype):
    array = np.zeros((3, 100), dtype)
    array[1, 50] = 5e-324
    summary = only(describe(write_array(array)))
    assert (summary.row_rms_max, summary.zero_rows) == (0, 2)


@pytest.mark.parametrize("code", ["F16", "BF16", "F8_E4M3", "F8_E5M2"])
def test_describe_smallest_codes_are_no_zero_row(write, code):
    zero = np.zeros((2, 64), STORED[code][2].dtype)
    zero[1, 5] = 1
    zero[0, 6] = 1 << (8 * zero.itemsize - 1)  # -0
    content = safetensors({"h": entry(code, [2, 64], 0, zero.nbytes)}, zero.tobytes())
    assert only(describe(write("m.safetensors", content))).zero_rows == 1


@pytest.mark.parametrize("dtype", ["<u2", ">u2", "V2"])
def test_describe_format_reads_codes(write_array, dtype):
    codes = STORED["BF16"][2].astype("<u2" if dtype == "V2" else dtype).reshape(2, 2)
    summary = only(describe(write_array(codes.view(dtype)), format="bfloat16"))
    assert summary.dtype == "bfloat16"
    assert summary.row_rms_max == pytest.approx(RMS_6_8, rel=2e-16)


def test_describe_format_leaves_other_tensors_as_labelled(write):
    header = {
        "codes": entry("U16", [1], 0, 2),
        "half": entry("F16", [1], 2, 4),
        "brain": entry("BF16", [1], 4, 6),
        "bytes": entry("U8", [2], 6, 8),
    }
    data = struct.pack("<HHHBB", 0x4040, 0x4200, 0x4040, 3, 3)
    summaries = describe(write("m.safetensors", safetensors(header, data)), format="bfloat16")
    assert [s.dtype for s in summaries] == ["bfloat16", "float16", "bfloat16", "uint8"]
    assert [s.rms for s in summaries] == [3, 3, 3, 3]


MIXED = safetensors(
    {
        "odd": entry("F4", [2], 0, 1),
        "vector": entry("U8", [2], 1, 3),
        "h": entry("U8", [2, 1], 3, 5),
    },
    bytes([0, 3, 4, 6, 8]),
)


def test_describe_unreadable_tensor_is_listed_with_reason(write):
    odd, vector, h = describe(write("m.safetensors", MIXED))
    assert (odd.name, odd.shape, odd.dtype) == ("odd", (2,), "F4")
    assert odd.error == "dtype F4 is not supported"
    assert (vector.error, h.error) == (None, None)


def test_describe_axis_out_of_range_is_the_reason_of_that_tensor(write):
    _, vector, h = describe(write("m.safetensors", MIXED), axis=1)
    assert re.fullmatch("axis must .*, got 1", vector.error)
    assert h.error is None


def test_describe_axis_out_of_range_of_empty_tensor_is_listed(write_array):
    assert "axis 2 is out of bounds" in only(describe(write_array(np.zeros((0, 2))), axis=2)).error


@pytest.mark.parametrize(
    "array",
    [np.array(["x"]), np.array(["2020-01-01"], "M8[D]"), np.zeros(1, [("a", "f4")])],
    ids=lambda array: array.dtype.str,
)
def test_describe_dtype_without_rms_is_listed_with_reason(write_array, array):
    summary = only(describe(write_array(array)))
    assert array.dtype.name in summary.error or str(array.dtype) in summary.error
    assert summary.error.isprintable()


def test_describe_named_tensor_is_the_only_one(write):
    assert only(describe(write("m.safetensors", MIXED), tensor="h")).row_rms_max == 8.0


@pytest.mark.parametrize(
    ("tensor", "axis", "fault"),
    [
        ("none", -1, "tensor must be one of 'odd', 'vector', 'h', got 'none'"),
        ("odd", -1, "tensor 'odd': dtype F4 is not supported"),
        ("vector", 1, "tensor 'vector': axis must .*, got 1"),
    ],
)
def test_describe_named_tensor_without_rms_raises(write, tensor, axis, fault):
    path = write("m.safetensors", MIXED)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: {fault}$"):
        describe(path, tensor=tensor, axis=axis)


# row_rms ----------------------------------------------------------------------------------------


def test_row_rms_unpadded_bfloat16_safetensors_gives_float32(write):
    text = json.dumps({"h": entry("BF16", [2, 2], 0, 8)}).encode()
    assert len(text) % 2 == 1  # so the codes are not aligned
    path = write("m.safetensors", safetensors(text, STORED["BF16"][2].tobytes()))
    expected = np.array([RMS_3_4, RMS_6_8], np.float32)
    np.testing.assert_array_equal(row_rms(path), expected, strict=True)


def test_row_rms_axis_and_format_choose_rows_and_dtype(write_array):
    path = write_array(np.array([[0x4040, 0x40C0], [0x4080, 0x4100]], np.uint16))
    expected = np.array([RMS_3_4, RMS_6_8], np.float32)
    np.testing.assert_array_equal(row_rms(path, axis=0, format="bfloat16"), expected, strict=True)


@pytest.mark.parametrize(("function", "tensor"), [(describe, "x"), (row_rms, "x"), (row_rms, None)])
def test_format_that_does_not_fit_the_chosen_tensor_raises(write_array, function, tensor):
    path = write_array(np.zeros(2, np.float32))
    fault = "tensor 'x': format must fit the dtype float32, got 'bfloat16'"
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: {fault}$"):
        function(path, tensor=tensor, format="bfloat16")


def test_row_rms_one_row_gives_0d_array(write_array):
    np.testing.assert_array_equal(
        row_rms(write_array(np.array([3, -3]))), np.array(3.0), strict=True
    )


def test_row_rms_named_tensor_is_read(write):
    assert row_rms(write("m.safetensors", MIXED), tensor="h").tolist() == [6, 8]


def test_row_rms_format_that_the_tensor_already_has_is_accepted(write):
    path = write("m.safetensors", safetensors_of("F16"))
    assert row_rms(path, format="float16").tolist() == [np.float32(RMS_3_4), np.float32(RMS_6_8)]


@pytest.mark.parametrize(
    ("tensor", "fault"),
    [
        (None, "tensor must be one of 'odd', 'vector', 'h', none was named"),
        ("odd", "tensor 'odd': dtype F4 is not supported"),
    ],
)
def test_row_rms_without_one_readable_tensor_raises(write, tensor, fault):
    path = write("m.safetensors", MIXED)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        row_rms(path, tensor=tensor)
    assert str(caught.value) == f"{path}: {fault}"


def test_row_rms_many_tensors_are_listed_in_part(write):
    header = {f"t{i}": entry("U8", [1], i, i + 1) for i in range(12)}
    path = write("m.safetensors", safetensors(header, bytes(12)))
    with pytest.raises(ValueError, match=r"one of 't0', .*, 't7' and 4 more, none was named$"):
        row_rms(path)


def test_row_rms_file_without_tensors_raises(write):
    path = write("m.safetensors", safetensors({}))
    with pytest.raises(ValueError, match=r"m\.safetensors: holds no tensors$"):
        row_rms(path)


def test_row_rms_rows_without_coordinates_raise(write_array):
    path = write_array(np.zeros((5, 0)))
    with pytest.raises(ValueError, match=r"x\.npy: tensor 'x': .*0"):
        row_rms(path)


# save_npy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12.0)[::2],
        np.arange(3, dtype=">f8"),
        np.array(3.0),
        np.zeros((0, 3), np.float16),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}{array.strides}",
)
def test_save_npy_array_comes_back(tmp_path, array):
    save_npy(tmp_path / "out.npy", array)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), array, strict=True)


def test_save_npy_bytes_are_those_of_numpy(tmp_path):
    array, expected = np.arange(6.0).reshape(2, 3), io.BytesIO()
    np.save(expected, array)
    save_npy(tmp_path / "out.npy", array)
    assert (tmp_path / "out.npy").read_bytes() == expected.getvalue()


def test_save_npy_existing_file_is_replaced_not_rewritten(write_array):
    path = write_array(np.zeros(2))
    before = only(open_tensors(path)).read()
    save_npy(path, np.array([1.0, 2.0, 3.0]))
    assert before.tolist() == [0, 0]
    assert np.load(path).tolist() == [1, 2, 3]
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    "interruption", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()]
)
def test_save_npy_interrupted_leaves_old_file_and_nothing_else(
    write_array, monkeypatch, interruption
):
    def interrupt(_):
        raise interruption

    path = write_array(np.zeros(2))
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(type(interruption)):
        save_npy(path, np.ones(3))
    assert np.load(path).tolist() == [0, 0]
    assert os.listdir(path.parent) == [path.name]


def test_save_npy_bytes_are_on_disk_before_the_name(write_array, monkeypatch):
    path = write_array(np.zeros(2))
    sizes = []
    monkeypatch.setattr(os, "fsync", lambda fd: sizes.append((os.fstat(fd).st_size, np.load(path))))
    save_npy(path, np.ones(3))
    [(size, old)] = sizes
    assert (size, old.tolist()) == (path.stat().st_size, [0, 0])


def test_save_npy_mode_of_existing_file_is_kept(write_array):
    path = write_array(np.zeros(2))
    path.chmod(0o640)
    save_npy(path, np.ones(3))
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_save_npy_mode_of_new_file_is_that_of_any_other(tmp_path):
    (tmp_path / "other").touch()
    save_npy(tmp_path / "out.npy", np.ones(3))
    assert (tmp_path / "out.npy").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_save_npy_symbolic_link_is_written_through(tmp_path):
    (tmp_path / "far").mkdir()
    link = tmp_path / "out.npy"
    link.symlink_to(tmp_path / "far" / "real.npy")
    save_npy(link, np.ones(3))
    assert link.is_symlink()
    assert np.load(tmp_path / "far" / "real.npy").tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["absent/out.npy", "file/out.npy", "folder.npy"])
def test_save_npy_impossible_path_raises_error_that_names_it(tmp_path, name):
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="directory") as caught:
        save_npy(tmp_path / name, np.ones(3))
    assert caught.value.filename == str(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder.npy"]


def test_save_npy_longest_name_is_written(tmp_path):
    path = tmp_path / ("n" * 251 + ".npy")
    save_npy(path, np.ones(3))
    assert np.load(path).tolist() == [1, 1, 1]


def test_save_npy_objects_raise(tmp_path):
    with pytest.raises(
        ValueError, match=r"^save_npy: array must not hold Python objects, got object$"
    ):
        save_npy(tmp_path / "out.npy", np.array([None]))
    assert os.listdir(tmp_path) == []


def test_reading_ahead_that_a_reader_gives_up_ends_there():
    begun, ended, trouble = Event(), Event(), []

    def make(place):
        if place == 2:  # at work while the first is used
            begun.wait(10)
            try:
                found.close()
            except RuntimeError as error:
                trouble.append(error)
            ended.set()
        return place

    found = _tensors.ahead(make, range(9))
    assert next(found) == 0
    begun.set()
    assert ended.wait(10)
    assert (trouble, list(found)) == ([], [])
