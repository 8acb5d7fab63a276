"""Writing tensors block by block: a file is complete, or as it was before."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from rmsfast._formats import CODES
from rmsfast.files._chunked import FORMAT, library
from rmsfast.files._open import StrPath, is_zarr
from rmsfast.files._safetensors import DTYPES, FORMATS
from rmsfast.files._tensors import Array, Box, Tensor, grown

CHUNK_BYTES = 1 << 20  # of a zarr array
_ALIGNMENT = 64  # bytes, of the data of a .safetensors file

Put = Callable[[str, Box, Array], None]
_Writer = Callable[[StrPath, Path, Sequence[Tensor]], AbstractContextManager[Put]]


@contextmanager
def writing(path: StrPath, tensors: Sequence[Tensor]) -> Iterator[Put]:
    """Write tensors block by block to a file that is either complete or not there.

    The bytes go to a temporary name in the same folder, which replaces `path` once they are on
    disk and every value has been written; a symbolic link is written through. Whatever interrupts
    this, an existing file stays as it was, and unless the process is killed outright nothing else
    is left behind. (Of a `.zarr` folder the old one is renamed before the new one takes its place.)

    Parameters
    ----------
    path : path_like
        `.npy` (for one tensor), `.safetensors`, `.h5`, `.hdf5` or `.zarr`.
    tensors : sequence of Tensor
        Of which name, shape, dtype and format count. bfloat16 and float8 survive in every
        format: as records with a field of that name in `.npy`, by an attribute ``format`` of
        unsigned codes in HDF5 and zarr.

    Yields
    ------
    callable
        ``put(name, box, values)`` writes a box (slices with start and stop) of a tensor. The
        values of narrow formats may be codes or ml_dtypes arrays.

    Raises
    ------
    OSError
        If the file cannot be written; it names `path`.
    ValueError
        If the format cannot hold the tensors, or values are missing at the end.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import open_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(f"{folder}/h.npy", [Tensor("h", (2, 2), "float64")]) as put:
    ...         put("h", (slice(0, 1), slice(0, 2)), np.ones((1, 2)))
    ...         put("h", (slice(1, 2), slice(0, 2)), np.zeros((1, 2)))
    ...     open_tensors(f"{folder}/h.npy")[0].read().tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    writer, tensors = writer_of(path), list(tensors)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            got = type(tensor).__name__
            raise TypeError(f"writing: tensors must be a sequence of Tensor, got {got} in it")
    kinds = {tensor.name: _kind(path, tensor) for tensor in tensors}
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    missing = {name: math.prod(shape) for name, shape in shapes.items()}
    with replacing(path) as temporary, writer(path, temporary, tensors) as put:

        def put_checked(name: str, box: Box, values: Array) -> None:
            lengths = tuple(part.stop - part.start for part in box)
            if values.shape != lengths or values.itemsize != kinds[name].itemsize:
                raise ValueError(
                    f"{path}: tensor {name!r}: values must have shape {lengths} and "
                    f"{kinds[name].itemsize} bytes each, got {values.shape} of {values.dtype}"
                )
            codes = kinds[name].newbyteorder("=" if values.dtype.isnative else "S")
            put(name, box, values.view(codes).astype(kinds[name], copy=False))
            missing[name] -= values.size

        yield put_checked
        for name, count in missing.items():
            if count:
                raise ValueError(f"{path}: tensor {name!r}: {count} values were not written")


def writer_of(path: StrPath) -> _Writer:
    """What writes files with the suffix of `path`."""
    suffix = Path(path).suffix
    writer = _WRITERS.get(suffix.lower())
    if writer is None:
        *most, last = _WRITERS
        raise ValueError(f"{path}: suffix must be {', '.join(most)} or {last}, got {suffix!r}")
    return writer


def _kind(path: StrPath, tensor: Tensor) -> np.dtype[Any]:
    """The dtype that is stored: codes of narrow formats, little-endian."""
    narrow = tensor.dtype in CODES and tensor.dtype != "float16"
    try:
        kind = CODES[tensor.dtype] if narrow else np.dtype(tensor.dtype)
    except TypeError:  # a name that NumPy gives, as void32, but does not take
        kind = np.dtype(np.void)
    if kind.kind not in "biufc":
        raise ValueError(f"{path}: tensor {tensor.name!r}: dtype {tensor.dtype} is not supported")
    return kind.newbyteorder("<")


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """A temporary name beside `path`, for what takes its place at the end."""
    target = Path(os.path.realpath(path))
    # Not built from the name of the target, which may be as long as a name can be.
    temporary, old = (
        target.with_name(f".rmsfast-{secrets.token_hex(8)}{suffix}") for suffix in (".tmp", ".old")
    )
    try:
        yield temporary
        if temporary.is_dir():
            if target.exists() and not is_zarr(target):
                raise ValueError(f"{path}: exists and is not a zarr folder")
            with suppress(FileNotFoundError):
                target.rename(old)
            temporary.rename(target)
        else:
            with suppress(FileNotFoundError):
                shutil.copymode(target, temporary)
            temporary.replace(target)
    except OSError as error:
        if old.exists() and not target.exists():
            old.rename(target)
        if error.filename is not None and str(temporary) not in str(error.filename):
            raise  # of what is read meanwhile
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
        for folder in (temporary, old):
            shutil.rmtree(folder, ignore_errors=True)


def save_npy(path: StrPath, array: Array) -> None:
    """Write a `.npy` file that is either complete or not there, as `writing` does.

    Parameters
    ----------
    path : path_like
    array : ndarray

    Raises
    ------
    OSError
        If the file cannot be written; it names `path`.
    ValueError
        If `array` holds Python objects.
    """
    if array.dtype.hasobject:
        raise ValueError(f"save_npy: array must not hold Python objects, got {array.dtype}")
    array = np.asarray(array, order="C")
    with replacing(path) as temporary, _flushed(temporary) as file:
        npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(array))
        file.write(array.data)


@contextmanager
def _flushed(path: Path) -> Iterator[IO[bytes]]:
    """A new file whose bytes are on disk at the end."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _put_runs(file: IO[bytes], begin: int, shape: tuple[int, ...], box: Box, values: Array) -> None:
    """Write a box of an array in C order that begins at a byte of a file."""
    if not values.size:
        return
    k = max((k for k, n in enumerate(shape) if values.shape[k] < n), default=0)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    values = np.ascontiguousarray(values)
    for index in np.ndindex(values.shape[:k]):
        starts = [part.start for part in box]
        starts[:k] = [start + i for start, i in zip(starts[:k], index, strict=True)]
        place = sum(start * stride for start, stride in zip(starts, strides, strict=True))
        file.seek(begin + place * values.itemsize)
        file.write(values[index].data)


# Formats ----------------------------------------------------------------------------------------


@contextmanager
def _npy(path: StrPath, temporary: Path, tensors: Sequence[Tensor]) -> Iterator[Put]:
    if len(tensors) != 1:
        raise ValueError(f"{path}: a .npy file holds one tensor, got {len(tensors)}")
    (tensor,) = tensors
    kind = _kind(path, tensor)
    stored = np.dtype([(tensor.dtype, kind)]) if tensor.dtype != kind.name else kind
    # As the source has it: boxes come in its order.
    fortran = tensor.source is not None and tensor.source.order[:1] > (0,)
    with _flushed(temporary) as file:
        header = {
            "descr": npy.dtype_to_descr(stored),
            "fortran_order": fortran,
            "shape": tensor.shape,
        }
        npy.write_array_header_1_0(file, header)
        begin = file.tell()

        def put(_name: str, box: Box, values: Array) -> None:
            if fortran:
                _put_runs(file, begin, tensor.shape[::-1], box[::-1], values.T)
            else:
                _put_runs(file, begin, tensor.shape, box, values)

        yield put


@contextmanager
def _safetensors(path: StrPath, temporary: Path, tensors: Sequence[Tensor]) -> Iterator[Put]:
    codes = {np.dtype(dtype).name: code for code, dtype in DTYPES.items() if code not in FORMATS}
    codes |= {format: code for code, format in FORMATS.items()}
    header, begins, position = {}, {}, 0
    # Wide values first: each tensor then lies at a multiple of its item size.
    for tensor in sorted(tensors, key=lambda t: -_kind(path, t).itemsize):
        if tensor.dtype not in codes:
            raise ValueError(
                f"{path}: tensor {tensor.name!r}: .safetensors has no dtype {tensor.dtype}"
            )
        begins[tensor.name] = position
        position += math.prod(tensor.shape) * _kind(path, tensor).itemsize
        header[tensor.name] = {
            "dtype": codes[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": [begins[tensor.name], position],
        }
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    with _flushed(temporary) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        start = file.tell()

        def put(name: str, box: Box, values: Array) -> None:
            _put_runs(file, start + begins[name], shapes[name], box, values)

        yield put


@contextmanager
def _hdf5(path: StrPath, temporary: Path, tensors: Sequence[Tensor]) -> Iterator[Put]:
    h5py = library("h5py")
    with h5py.File(temporary, "x") as file:
        for tensor in tensors:
            dataset = file.create_dataset(
                tensor.name, tensor.shape, _kind(path, tensor), chunks=_chunks(tensor)
            )
            _name_format(dataset, tensor)

        def put(name: str, box: Box, values: Array) -> None:
            file[name][box] = values

        yield put
    _synced(temporary)


@contextmanager
def _zarr(path: StrPath, temporary: Path, tensors: Sequence[Tensor]) -> Iterator[Put]:
    with zarr_arrays(path, temporary, tensors) as group:

        def put(name: str, box: Box, values: Array) -> None:
            group[name][box] = values

        yield put


@contextmanager
def zarr_arrays(path: StrPath, temporary: Path, tensors: Sequence[Tensor]) -> Iterator[Any]:
    """A zarr group with an array for each tensor, on disk once the block is left."""
    zarr = library("zarr")
    group = zarr.create_group(temporary)
    for tensor in tensors:
        kind = _kind(path, tensor)
        most = CHUNK_BYTES // kind.itemsize
        axes = range(len(tensor.shape))[::-1]
        ones = [1] * len(tensor.shape)
        lengths = [max(1, n) for n in tensor.shape]
        chunks = _chunks(tensor) or tuple(grown(ones, lengths, ones, axes, most))
        array = group.create_array(tensor.name, shape=tensor.shape, chunks=chunks, dtype=kind)
        _name_format(array, tensor)
    yield group
    for file in temporary.rglob("*"):
        if file.is_file():
            _synced(file)


def _chunks(tensor: Tensor) -> tuple[int, ...] | None:
    """The chunks of the source, if it has any."""
    steps = tensor.source.steps if tensor.source else ()
    return steps if max(steps, default=1) > 1 else None


def _name_format(stored: Any, tensor: Tensor) -> None:
    if tensor.dtype in CODES and tensor.dtype != "float16":
        stored.attrs[FORMAT] = tensor.dtype


def _synced(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


_WRITERS: dict[str, _Writer] = {
    ".npy": _npy,
    ".safetensors": _safetensors,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
}
