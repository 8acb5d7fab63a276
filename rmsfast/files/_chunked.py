"""Tensors of zarr and HDF5 files, read in whole chunks by zarr and h5py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rmsfast._extras import needed
from rmsfast._formats import CODES
from rmsfast.files._tensors import Array, Box, File, Tensor, brief, held

FORMAT = "format"  # attribute that names the format of codes


@dataclass(frozen=True, eq=False)
class Chunked:
    """An array of a library, of which a chunk is decoded whole."""

    array: Any  # a zarr.Array or h5py.Dataset
    place: str  # for error texts
    steps: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        return tuple(range(len(self.steps)))

    @property
    def cuts(self) -> tuple[int, ...]:
        return (0, *self.array.shape[:1])

    def read(self, box: Box) -> Array:
        try:
            return np.asarray(self.array[box])
        except Exception as error:  # whatever a codec makes of damaged bytes
            raise ValueError(f"{self.place} cannot be read: {brief(error)}") from error


def zarr_tensors(path: Path) -> list[Tensor]:
    """The arrays of a zarr folder of version 2 or 3, those of nested groups included."""
    zarr = library("zarr")
    if not path.is_dir():
        raise ValueError("not a zarr folder")
    try:
        root = zarr.open(path, mode="r")
        if isinstance(root, zarr.Array):
            arrays = [(path.stem, root)]
        else:
            members = sorted(root.members(max_depth=None))
            arrays = [(name, a) for name, a in members if isinstance(a, zarr.Array)]
        return [_tensor(path, name, a, a.shards or a.chunks) for name, a in arrays]
    except Exception as error:  # damaged metadata brings up nearly every type there is
        raise ValueError(f"not a valid zarr folder: {brief(error)}") from error


def hdf5_tensors(path: Path) -> list[Tensor]:
    """The datasets of an HDF5 file, those of nested groups included."""
    h5py = library("h5py")
    size = File.of(path).size
    try:
        datasets = list(_datasets(h5py, h5py.File(path, "r"), ""))
        for name, dataset in datasets:
            begin = dataset.id.get_offset() if dataset.shape is not None else None
            if begin is not None and begin + dataset.id.get_storage_size() > size:
                raise ValueError(f"truncated: dataset {name!r} ends beyond the file")
        return [_tensor(path, name, d, d.chunks) for name, d in datasets]
    except Exception as error:
        raise ValueError(f"not a valid HDF5 file: {brief(error)}") from error


def _datasets(h5py: Any, group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Datasets in the order of names; links to other places are not followed."""
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        found = group[name]
        if isinstance(found, h5py.Group):
            yield from _datasets(h5py, found, f"{prefix}{name}/")
        elif isinstance(found, h5py.Dataset):
            yield prefix + name, found


def _tensor(path: Path, name: str, array: Any, chunks: tuple[int, ...] | None) -> Tensor:
    dtype = array.dtype
    if array.shape is None:
        return Tensor(name, (), dtype.name, error="holds no array")
    tensor = Tensor(name, tuple(map(int, array.shape)), str(getattr(dtype, "name", dtype)))
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        return replace(tensor, error=f"dtype {tensor.dtype} is not supported")
    format = array.attrs.get(FORMAT)
    if isinstance(format, str) and format in CODES and dtype == CODES[format]:
        tensor = replace(tensor, dtype=format, format=format)
    steps = tuple(max(1, n) for n in chunks or (1,) * len(tensor.shape))
    source = Chunked(array, f"{path}: tensor {name!r}", steps)
    return held(replace(tensor, stored=dtype, source=source))


def library(name: str) -> Any:
    return needed("files: this file", name, "files")
