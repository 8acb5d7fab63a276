"""Finding the tensors of a path: one file, a folder or pattern of shards, or raw binary."""

from __future__ import annotations

import glob
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from rmsfast._formats import CODES
from rmsfast.files._chunked import hdf5_tensors, zarr_tensors
from rmsfast.files._npy import npy_tensors, npz_tensors
from rmsfast.files._safetensors import index_tensors, safetensors_tensors
from rmsfast.files._tensors import File, Joined, Tensor, brief, mapped

StrPath = str | os.PathLike[str]

_READERS: dict[str, Callable[[Path], list[Tensor]]] = {
    ".npy": npy_tensors,
    ".npz": npz_tensors,
    ".safetensors": safetensors_tensors,
    ".json": index_tensors,
    ".zarr": zarr_tensors,
    ".h5": hdf5_tensors,
    ".hdf5": hdf5_tensors,
}
_ZARR = ("zarr.json", ".zarray", ".zgroup")  # one of them is in every zarr folder


def open_tensors(
    path: StrPath,
    *,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    offset: int = 0,
) -> list[Tensor]:
    """Open the tensors of a file without reading their data.

    Parameters
    ----------
    path : path_like
        A `.npy` (whose one tensor is named after it), `.npz`, `.safetensors`, `.h5` or `.hdf5`
        file, the index (`.json`) of sharded `.safetensors` files, or a `.zarr` folder. A folder
        or a pattern with ``*`` stands for the files in it, in the order of the numbers in their
        names: tensors of the same name are one, joined along the first axis, and so are those of
        `.npy` files, which take the name of the folder. An index in the folder must be true.
    dtype : dtype or str, optional
        Read raw binary files, whatever their suffix, as values of this dtype or storage format.
    shape : sequence of int, optional
        Of each raw file; one length may be -1, for what fills the file. Default: (-1,).
    offset : int, default 0
        Bytes before the values of a raw file.

    Returns
    -------
    list of Tensor
        In the order in which the file stores them. A tensor that cannot be read is among them.

    Raises
    ------
    OSError
        If the file is missing or not readable.
    ValueError
        If the file is empty, truncated, not what its suffix says, or contradicts its header. One
        line, which names the file and the fault.
    ImportError
        If a file needs zarr or h5py, which are not installed.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.zeros((2, 2)))
    ...     [(t.name, t.shape, t.dtype) for t in open_tensors(f"{folder}/h.npy")]
    [('h', (2, 2), 'float64')]
    """
    raw = _raw_reader(dtype, shape, offset)
    path = Path(path)
    is_pattern = any(c in str(path) for c in "*?[") and not path.exists()
    if is_pattern or (path.is_dir() and path.suffix.lower() != ".zarr" and not is_zarr(path)):
        return _shards(path, is_pattern, raw)
    return _file_tensors(path, raw)


def is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in _ZARR)


def _file_tensors(path: Path, raw: Callable[[Path], list[Tensor]] | None) -> list[Tensor]:
    os.stat(path)  # a missing file is an OSError
    try:
        if not path.is_file() and not path.is_dir():
            raise ValueError("not a regular file")
        reader = raw or (zarr_tensors if path.is_dir() else _READERS.get(path.suffix.lower()))
        if reader is None:
            *most, last = _READERS
            raise ValueError(
                f"suffix must be {', '.join(most)} or {last}, or dtype and shape be given for raw "
                f"binary, got {path.suffix!r}"
            )
        return reader(path)
    except ValueError as error:
        text = str(error)
        raise ValueError(text if text.startswith(f"{path}: ") else f"{path}: {brief(text)}") from (
            error
        )
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


# Raw binary -------------------------------------------------------------------------------------


def _raw_reader(
    dtype: Any, shape: Sequence[int] | None, offset: int
) -> Callable[[Path], list[Tensor]] | None:
    """What reads raw binary as told, None if nothing was told."""
    if dtype is None:
        if shape is not None or offset:
            raise ValueError("open_tensors: dtype must be given for raw binary, got None")
        return None
    format = dtype if isinstance(dtype, str) and dtype in CODES else getattr(dtype, "name", None)
    format = format if format in CODES and format != "float16" else None
    try:
        stored = CODES[format].newbyteorder("<") if format else np.dtype(dtype)
    except TypeError:
        raise TypeError(
            "open_tensors: dtype must be one of NumPy or a storage format, "
            f"got {brief(repr(dtype))}"
        ) from None
    lengths = tuple(int(n) for n in ((-1,) if shape is None else shape))
    if stored.hasobject or not stored.itemsize:
        raise ValueError(f"open_tensors: dtype must be one of numbers, got {stored}")
    if lengths.count(-1) > 1 or min(lengths, default=0) < -1:
        raise ValueError(f"open_tensors: shape must be non-negative, one -1 at most, got {lengths}")
    if offset < 0:
        raise ValueError(f"open_tensors: offset must be non-negative, got {offset}")

    def read(path: Path) -> list[Tensor]:
        file = File.of(path)
        rest = file.size - offset
        if rest < 0:
            raise ValueError(f"offset {offset} is beyond the {file.size} bytes of the file")
        known = math.prod(n for n in lengths if n >= 0) * stored.itemsize
        found = tuple(rest // known if n < 0 and known else max(n, 0) for n in lengths)
        tensor = Tensor(path.stem, found, format or stored.name, format=format)
        needed = math.prod(found) * stored.itemsize
        if needed != rest:
            past = f" after the first {offset}" * (offset > 0)
            raise ValueError(
                f"shape {found} of {tensor.dtype} takes {needed} bytes, the file has {rest}{past}"
            )
        return [mapped(tensor, file, offset, stored)]

    return read


# Shards -----------------------------------------------------------------------------------------


def _shards(
    path: Path, is_pattern: bool, raw: Callable[[Path], list[Tensor]] | None
) -> list[Tensor]:
    """The tensors of the files of a folder or pattern; what has the same name is joined."""
    names = glob.glob(str(path)) if is_pattern else [str(each) for each in path.iterdir()]
    suffixes = _READERS.keys() - {".json"}
    files = [Path(name) for name in names if raw or Path(name).suffix.lower() in suffixes]
    files = [file for file in files if not file.name.startswith(".")]
    if not files:
        raise ValueError(f"{path}: holds no files of tensors")
    if not (is_pattern or raw):
        for index in sorted(path.glob("[!.]*.safetensors.index.json")):
            _file_tensors(index, raw)  # which refuses a missing shard
    files.sort(key=lambda file: [int(t) if t.isdigit() else t for t in _split(file.name)])
    parts: dict[str, list[tuple[Path, Tensor]]] = {}
    for file in files:
        for tensor in _file_tensors(file, raw):
            own = raw or file.suffix.lower() == ".npy"
            parts.setdefault(path.stem if own else tensor.name, []).append((file, tensor))
    return [_joined(name, found) for name, found in parts.items()]


def _split(name: str) -> list[str]:
    """Text and numbers in turn, so that shard 10 comes after shard 9."""
    return re.split(r"(\d+)", name)


def _joined(name: str, parts: list[tuple[Path, Tensor]]) -> Tensor:
    first = replace(parts[0][1], name=name)
    if len(parts) == 1:
        return first
    kind = (first.dtype, first.stored, first.shape[1:])
    sources = []
    for file, tensor in parts:
        if tensor.error is not None:
            return replace(first, stored=None, source=None, error=f"{file.name}: {tensor.error}")
        if not tensor.shape or (tensor.dtype, tensor.stored, tensor.shape[1:]) != kind:
            raise ValueError(
                f"{file}: tensor {tensor.name!r} must have the dtype and row shape of the shard "
                f"before, {first.dtype} {first.shape[1:]}, got {tensor.dtype} {tensor.shape}"
            )
        assert tensor.source is not None
        sources.append(tensor.source)
    cuts = tuple(accumulate((tensor.shape[0] for _, tensor in parts), initial=0))
    order = sources[0].order
    steps = tuple(map(math.lcm, *(source.steps for source in sources)))
    source = Joined(tuple(sources), cuts, order, steps)
    return replace(first, shape=(cuts[-1], *first.shape[1:]), source=source)
