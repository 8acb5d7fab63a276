"""Every format that is read: the same tensors, in blocks, chunks and shards; damage named."""

import json
import os
import struct
import tempfile
import zipfile

import numpy as np
import pytest
from processes import run
from test_files import entry, only, safetensors

from rmsfast import rms
from rmsfast.files import _tensors, describe, open_tensors, row_rms, save_npy
from rmsfast.files._tensors import boxes

zarr = pytest.importorskip("zarr")
h5py = pytest.importorskip("h5py")


def values_of(shape, dtype="float32", seed=0):
    values = 100 * np.random.default_rng(seed).normal(size=shape)
    return values.astype(dtype)


def gathered(tensor, axis=None, nbytes=None):
    """The tensor put together from its blocks, each of whose values must come once."""
    found = np.zeros(tensor.shape, tensor.stored.newbyteorder("="))
    seen = np.zeros(tensor.shape, int)
    for box, values in tensor.blocks(axis, nbytes):
        found[box] = values
        seen[box] += 1
    assert (seen == 1).all()
    return found


# Each format, made by its own library -----------------------------------------------------------


def as_npy(folder, x):
    np.save(folder / "x.npy", x)
    return folder / "x.npy"


def as_npy_in_fortran_order(folder, x):
    return as_npy(folder, np.asfortranarray(x))


def as_npy_big_endian(folder, x):
    return as_npy(folder, x.astype(x.dtype.newbyteorder(">")))


def as_npz(folder, x):
    np.savez(folder / "x.npz", x=x)
    return folder / "x.npz"


def as_compressed_npz(folder, x):
    np.savez_compressed(folder / "x.npz", x=np.asfortranarray(x))
    return folder / "x.npz"


def as_safetensors(folder, x):
    code = {"float32": "F32", "int16": "I16", "float64": "F64"}[x.dtype.name]
    content = safetensors({"x": entry(code, x.shape, 0, x.nbytes)}, x.tobytes())
    (folder / "m.safetensors").write_bytes(content)
    return folder / "m.safetensors"


def as_zarr_2(folder, x):
    array = zarr.create_array(
        folder / "x.zarr", shape=x.shape, chunks=(5,) * x.ndim, dtype=x.dtype, zarr_format=2
    )
    array[...] = x
    return folder / "x.zarr"


def as_zarr_3_in_shards(folder, x):
    group = zarr.create_group(folder / "g.zarr")
    array = group.create_array(
        "x", shape=x.shape, chunks=(2,) * x.ndim, shards=(6,) * x.ndim, dtype=x.dtype
    )
    array[...] = x
    return folder / "g.zarr"


def as_hdf5(folder, x):
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = x
    return folder / "x.h5"


def as_chunked_hdf5(folder, x):
    with h5py.File(folder / "x.hdf5", "w") as file:
        chunks = (3,) * x.ndim if x.ndim else None
        file.create_dataset("x", data=x, chunks=chunks, maxshape=(None,) * x.ndim or None)
    return folder / "x.hdf5"


def as_npy_shards(folder, x):
    (folder / "x").mkdir()
    for k, part in enumerate(np.array_split(x, 12)):  # of which the last come after the tenth
        np.save(folder / "x" / f"part-{k}.npy", part)
    return folder / "x"


def as_safetensors_shards(folder, x):
    for k, part in enumerate(np.array_split(x, 3)):
        (folder / f"{k}").mkdir()
        as_safetensors(folder / f"{k}", part).rename(folder / f"shard-{k}.safetensors")
    return folder / "shard-*.safetensors"


FORMATS = {
    make.__name__.removeprefix("as_"): make
    for make in (
        as_npy, as_npy_in_fortran_order, as_npy_big_endian, as_npz, as_compressed_npz,
        as_safetensors, as_zarr_2, as_zarr_3_in_shards, as_hdf5, as_chunked_hdf5, as_npy_shards,
        as_safetensors_shards,
    )
}  # fmt: skip
SHAPES = [(13,), (13, 7), (5, 6, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_open_tensors_every_format_gives_the_values(tmp_path, make, shape):
    x = values_of(shape)
    tensor = only(open_tensors(make(tmp_path, x)))
    assert (tensor.name, tensor.shape, tensor.dtype, tensor.format) == ("x", shape, "float32", None)
    np.testing.assert_array_equal(tensor.read(), x)


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("nbytes", [1, 200, 10**6])
@pytest.mark.parametrize("make", FORMATS.values(), ids=FORMATS)
def test_blocks_of_every_format_hold_every_value_once(tmp_path, make, nbytes, axis):
    x = values_of((5, 6, 8))
    tensor = only(open_tensors(make(tmp_path, x)))
    np.testing.assert_array_equal(gathered(tensor, axis, nbytes), x)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1, 3), (1,), ()], ids=str)
@pytest.mark.parametrize(
    "make", [as_npy, as_npz, as_compressed_npz, as_safetensors, as_hdf5], ids=lambda m: m.__name__
)
def test_open_tensors_few_or_no_values_are_read(tmp_path, make, shape):
    x = values_of(shape)
    x = x if shape else np.array(x)
    tensor = only(open_tensors(make(tmp_path, x)))
    np.testing.assert_array_equal(gathered(tensor), x)
    np.testing.assert_array_equal(tensor.read(), x)


def test_open_tensors_nested_arrays_are_named_by_their_path(tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    for name in ("b/y", "a"):
        group.create_array(name, shape=(2,), dtype="i4")
    with h5py.File(tmp_path / "g.h5", "w") as file:
        file["b/y"], file["a"] = [1, 2], [3]
        file["elsewhere"] = h5py.ExternalLink("other.h5", "x")
    assert [t.name for t in open_tensors(tmp_path / "g.zarr")] == ["a", "b/y"]
    assert [t.name for t in open_tensors(tmp_path / "g.h5")] == ["a", "b/y"]


def test_open_tensors_npz_lists_every_member(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(2), b=np.array([None]))
    a, b = open_tensors(tmp_path / "x.npz")
    assert (a.name, a.error) == ("a", None)
    assert (b.name, b.error) == ("b", "holds pickled Python objects, which are never loaded")


def test_open_tensors_text_in_hdf5_is_listed_with_reason(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["names"], file["nothing"] = ["a", "b"], h5py.Empty("f4")
    names, nothing = open_tensors(tmp_path / "x.h5")
    assert names.error == "dtype object is not supported"
    assert nothing.error == "holds no array"


# Raw binary -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(-1, 3), (4, -1), (4, 3)], ids=str)
def test_open_tensors_raw_binary_takes_shape_dtype_and_offset(tmp_path, shape):
    x = values_of((4, 3), ">f8")
    (tmp_path / "x.raw").write_bytes(b"header" + x.tobytes())
    tensor = only(open_tensors(tmp_path / "x.raw", dtype=">f8", shape=shape, offset=6))
    assert (tensor.name, tensor.dtype) == ("x", "float64")
    np.testing.assert_array_equal(tensor.read(), x)


def test_open_tensors_raw_binary_of_a_format_has_its_codes(tmp_path):
    (tmp_path / "x.bin").write_bytes(bytes([0x40, 0x40, 0x80, 0x40]))
    tensor = only(open_tensors(tmp_path / "x.bin", dtype="bfloat16"))
    assert (tensor.shape, tensor.dtype, tensor.format) == ((2,), "bfloat16", "bfloat16")
    assert tensor.read().tolist() == [0x4040, 0x4080]


def test_open_tensors_raw_shards_are_one_tensor(tmp_path):
    x = values_of((6, 4))
    for k in range(3):
        (tmp_path / f"{k}.bin").write_bytes(x[2 * k : 2 * k + 2].tobytes())
    tensor = only(open_tensors(tmp_path, dtype="float32", shape=(-1, 4)))
    np.testing.assert_array_equal(gathered(tensor), x)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            {"dtype": "f8"},
            r"x\.bin: shape \(1,\) of float64 takes 8 bytes, the file has 12$",
        ),
        ({"dtype": "f4", "shape": (4,)}, r"x\.bin: shape \(4,\) of float32 takes 16 bytes, "),
        (
            {"dtype": "f4", "shape": (1,), "offset": 4},
            r"takes 4 bytes, the file has 8 after the first 4$",
        ),
        ({"dtype": "f4", "offset": 99}, r"x\.bin: offset 99 is beyond the 12 bytes of the file"),
        ({"dtype": object}, "open_tensors: dtype must be one of numbers, got object"),
        ({"dtype": "f4", "shape": (-1, -1)}, "open_tensors: shape must be non-negative, one -1"),
        ({"dtype": "f4", "offset": -4}, "open_tensors: offset must be non-negative, got -4"),
        ({"shape": (3,)}, "open_tensors: dtype must be given for raw binary, got None"),
    ],
    ids=["size", "shape", "rest", "offset", "object", "two unknown", "negative", "no dtype"],
)
def test_open_tensors_raw_binary_that_does_not_fit_raises(tmp_path, options, fault):
    (tmp_path / "x.bin").write_bytes(bytes(12))
    with pytest.raises(ValueError, match=fault):
        open_tensors(tmp_path / "x.bin", **options)


# Shards -----------------------------------------------------------------------------------------


def write_index(folder, places):
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


def write_two_shards(folder):
    for name, value in (("a", 3), ("b", 4)):
        content = safetensors({name: entry("U8", [1], 0, 1)}, bytes([value]))
        (folder / f"{name}.safetensors").write_bytes(content)


def test_open_tensors_index_gives_tensors_of_its_shards(tmp_path):
    write_two_shards(tmp_path)
    path = write_index(tmp_path, {"b": "b.safetensors", "a": "a.safetensors"})
    assert [(t.name, t.read().tolist()) for t in open_tensors(path)] == [("a", [3]), ("b", [4])]


def test_open_tensors_folder_lists_tensors_of_other_names_apart(tmp_path):
    write_two_shards(tmp_path)
    assert [t.name for t in open_tensors(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("places", "fault"),
    [
        ({"a": "b.safetensors"}, "the shard 'b.safetensors' does not hold tensor 'a'"),
        ({"a": "c.safetensors"}, "the shard 'c.safetensors' is missing"),
        ({"a": "../a.safetensors"}, "index must name .safetensors files beside it, got '../a.saf"),
        ({"a": 3}, "index must have a weight_map from tensors to files"),
        ([], "index must have a weight_map from tensors to files"),
    ],
    ids=["wrong shard", "missing shard", "other folder", "number", "list"],
)
def test_open_tensors_lying_index_raises(tmp_path, places, fault):
    write_two_shards(tmp_path)
    path = write_index(tmp_path, places)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        open_tensors(path)
    assert str(caught.value).startswith(f"{path}: {fault}")


@pytest.mark.parametrize("given", [".", "m.safetensors.index.json"])
def test_open_tensors_folder_or_index_without_a_shard_raises(tmp_path, given):
    write_two_shards(tmp_path)
    places = {"a": "a.safetensors", "c": "c.safetensors"}
    index = tmp_path / "m.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        open_tensors(tmp_path / given)
    assert str(caught.value) == f"{index}: the shard 'c.safetensors' is missing"


def test_open_tensors_shards_of_other_row_shape_raise(tmp_path):
    np.save(tmp_path / "1.npy", np.zeros((2, 3)))
    np.save(tmp_path / "2.npy", np.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"2\.npy: tensor '2' must have the dtype and row sha"):
        open_tensors(tmp_path)


# Boxes ------------------------------------------------------------------------------------------


def test_boxes_of_chunks_are_read_in_order_and_whole():
    array = np.zeros((100, 40))
    source = _tensors.Joined((), (0, 100), (0, 1), (7, 16))
    for box in boxes(array.shape, source, 7 * 16 * 3, None):
        assert all(part.start % step == 0 for part, step in zip(box, (7, 16), strict=True))
        array[box] += 1
    assert (array == 1).all()


def test_boxes_of_long_rows_follow_one_another_along_the_axis():
    source = _tensors.Joined((), (0, 50_000), (0, 1), (1, 1))
    found = list(boxes((50_000, 5), source, 100_000, 0))
    assert [(box[0].start, box[0].stop) for box in found] == [
        (0, 16384), (16384, 32768), (32768, 49152), (49152, 50_000)
    ]  # fmt: skip
    assert {(box[1].start, box[1].stop) for box in found} == {(0, 5)}


def test_boxes_of_very_many_rows_keep_few_at_a_time(monkeypatch):
    monkeypatch.setattr(_tensors, "ROWS", 10)
    source = _tensors.Joined((), (0, 6), (0, 1), (1, 1))
    found = list(boxes((6, 25), source, 20, 0))
    assert [box[1].start for box in found] == sorted(box[1].start for box in found)
    assert max(box[1].stop - box[1].start for box in found) == 10


def test_boxes_of_long_rows_stored_one_after_the_other_follow_the_storage():
    source = _tensors.Joined((), (0, 3), (0, 1), (1, 1))
    found = list(boxes((3, 50_000), source, 40_000, 1))
    starts = [50_000 * box[0].start + box[1].start for box in found]
    assert starts == sorted(starts)
    assert {box[0].stop - box[0].start for box in found} == {1}


# Damage -----------------------------------------------------------------------------------------


def cut(path, count=20):
    os.truncate(path, os.path.getsize(path) - count)
    return path


def as_damaged_zip(folder):
    path = as_compressed_npz(folder, values_of((60_000, 3)))
    content = bytearray(path.read_bytes())
    content[500_000:500_100] = bytes(100)
    path.write_bytes(content)
    return path


def as_zip_with_a_lying_header(folder):
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9,)}"
        content = np.lib.format.magic(1, 0) + struct.pack("<H", len(header)) + header
        archive.writestr("x.npy", content + bytes(8))
    return folder / "x.npz"


def as_zarr_without_metadata(folder):
    path = as_zarr_2(folder, values_of((6, 6)))
    (path / ".zarray").write_text("{}")
    return path


def as_text(name):
    def make(folder):
        (folder / name).write_text("no such format")
        return folder / name

    make.__name__ = f"text as {name}"
    return make


DAMAGED = {
    "npz cut": (lambda f: cut(as_npz(f, values_of((4, 3)))), "not a valid .npz archive: "),
    "npz lying": (as_zip_with_a_lying_header, "member 'x.npy': truncated: shape (9,) of float64"),
    "npz text": (as_text("x.npz"), "not a valid .npz archive: "),
    "zarr file": (as_text("x.zarr"), "not a zarr folder"),
    "zarr metadata": (as_zarr_without_metadata, "not a valid zarr folder: "),
    "h5 cut": (lambda f: cut(as_hdf5(f, values_of((400, 3)))), "not a valid HDF5 file: "),
    "h5 text": (as_text("x.h5"), "not a valid HDF5 file: "),
    "index text": (as_text("x.json"), "not a valid index: "),
}


@pytest.mark.parametrize(("make", "fault"), DAMAGED.values(), ids=DAMAGED)
def test_open_tensors_damaged_file_is_named_with_its_fault(tmp_path, make, fault):
    path = make(tmp_path)
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        open_tensors(path)
    assert str(caught.value).startswith(f"{path}: {fault}")
    assert str(caught.value).isprintable()


def as_zarr_with_a_damaged_chunk(folder):
    path = as_zarr_2(folder, values_of((6, 6)))
    chunk = next(file for file in path.iterdir() if file.name == "0.0")
    chunk.write_bytes(chunk.read_bytes()[:9])
    return path


@pytest.mark.parametrize("make", [as_damaged_zip, as_zarr_with_a_damaged_chunk])
def test_read_of_damaged_values_is_named_with_its_fault(tmp_path, make):
    path = make(tmp_path)
    tensor = only(open_tensors(path))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared below
        gathered(tensor)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).isprintable()


def with_metadata(path, key, value):
    """A zarr array of version 3 whose metadata claim something else."""
    found = json.loads((path / "zarr.json").read_text())
    found[key] = value
    (path / "zarr.json").write_text(json.dumps(found))
    return path


def test_open_tensors_zarr_shape_beyond_numpy_is_listed(tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=values_of((6, 6)), chunks=(3, 3))
    path = with_metadata(tmp_path / "x.zarr", "shape", [2**64, 6])
    tensor = only(open_tensors(path))
    assert tensor.error.startswith("not an array that NumPy can hold: ")
    assert only(describe(path)).error == tensor.error


def as_npz_with_an_entry_before_the_file(folder):
    path = as_npz(folder, values_of((4, 3)))
    content = bytearray(path.read_bytes())
    end = content.rindex(b"PK\5\6")  # whose directory then begins later than it does
    place = int.from_bytes(content[end + 16 : end + 20], "little")
    content[end + 16 : end + 20] = (place + 1000).to_bytes(4, "little")
    path.write_bytes(content)
    return path


def test_open_tensors_npz_entry_outside_the_file_is_named(tmp_path):
    path = as_npz_with_an_entry_before_the_file(tmp_path)
    with pytest.raises(OSError, match="Invalid argument") as caught:
        open_tensors(path)
    assert caught.value.filename == str(path)


def test_describe_damaged_chunk_is_the_reason_of_that_tensor(tmp_path):
    summary = only(describe(as_zarr_with_a_damaged_chunk(tmp_path)))
    assert "tensor 'x' cannot be read: " in summary.error


def test_reading_without_h5py_names_the_remedy(tmp_path):
    path = as_hdf5(tmp_path, values_of(3))
    program = f"""
        import sys
        sys.modules["h5py"] = None
        from rmsfast import files
        try:
            files.open_tensors({str(path)!r})
        except ImportError as error:
            print(error)
    """
    assert run(program).endswith("needs the package h5py (pip install 'rmsfast[files]')")


# Each chunk once --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
def test_describe_decodes_each_chunk_once(tmp_path, monkeypatch, axis):
    from zarr.core.codec_pipeline import BatchedCodecPipeline

    x = values_of((4096, 600), "int16")
    array = zarr.create_array(tmp_path / "x.zarr", shape=x.shape, chunks=(512, 256), dtype="int16")
    array[...] = x
    decoded = []
    original = BatchedCodecPipeline.decode_batch

    async def decode_batch(self, batch):
        batch = list(batch)
        decoded.extend(batch)
        return await original(self, batch)

    monkeypatch.setattr(BatchedCodecPipeline, "decode_batch", decode_batch)
    monkeypatch.setattr(_tensors, "BOX_BYTES", 1 << 20)
    describe(tmp_path / "x.zarr", axis=axis)
    assert len(decoded) == 8 * 3


def test_describe_unpacks_a_compressed_member_once(tmp_path, monkeypatch):
    made, original = [], tempfile.mkstemp

    def mkstemp(**options):
        made.append(original(**options))
        return made[-1]

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    monkeypatch.setattr(_tensors, "BOX_BYTES", 2000)
    describe(as_compressed_npz(tmp_path, values_of((60, 300))))
    assert len(made) == 1


# Larger than memory -----------------------------------------------------------------------------


def test_describe_file_several_times_the_memory_that_is_left(tmp_path):
    header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 18, 1024)}
    with open(tmp_path / "x.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + (1 << 30))  # zeros, which take no room on disk
    program = f"""
        import re, resource
        from pathlib import Path
        import numpy as np
        from rmsfast import describe, files
        describe(np.ones((3000, 1024), "f4"))  # compiled, and threads started
        text = Path("/proc/self/status").read_text()
        for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            used = 1024 * int(re.search(name + r":\\s*(\\d+)", text)[1])
            resource.setrlimit(limit, (used + (300 << 20),) * 2)
        [summary] = files.describe({str(tmp_path / "x.npy")!r})
        print(summary.rows, summary.zero_rows)
    """
    assert run(program) == "262144 262144"


def test_row_rms_of_rows_longer_than_a_box_has_the_bits_of_one_call(tmp_path, monkeypatch):
    x = values_of((40_000, 30))
    save_npy(tmp_path / "x.npy", x)
    monkeypatch.setattr(_tensors, "BOX_BYTES", 100_000)
    np.testing.assert_array_equal(row_rms(tmp_path / "x.npy", axis=0), rms(x, axis=0))
    np.testing.assert_array_equal(row_rms(tmp_path / "x.npy", axis=1), rms(x, axis=1))
