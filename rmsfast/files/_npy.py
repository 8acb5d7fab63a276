"""Tensors of `.npy` and `.npz` files; no pickle is ever loaded."""

from __future__ import annotations

import io
import math
import os
import tempfile
import threading
import weakref
import zipfile
import zlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from rmsfast._formats import CODES
from rmsfast.files._tensors import Array, Box, File, Mapped, Tensor, brief, mapped

HEADER_LIMIT = 1 << 16  # well above the 10 000 characters that NumPy's reader parses
# What zipfile raises: NotImplementedError for an unknown compression, RuntimeError for encryption.
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
_LOCAL_HEADER = 30  # bytes before the names in a zip archive
_COPIED = 1 << 20  # bytes unpacked at a time


def npy_tensors(path: Path) -> list[Tensor]:
    """The one tensor of a `.npy` file, named after it."""
    file = File.of(path)
    return [npy_tensor(file, path.stem, 0, file.size)]


def npy_tensor(file: File, name: str, first: int, last: int) -> Tensor:
    """The tensor of the `.npy` format between two bytes of a file."""
    start = io.BytesIO(file.map(first, min(first + HEADER_LIMIT, last)))
    tensor, dtype, fortran = header(start, name, last - first)
    return tensor if dtype is None else mapped(tensor, file, first + start.tell(), dtype, fortran)


def header(start: IO[bytes], name: str, size: int) -> tuple[Tensor, np.dtype[Any] | None, bool]:
    """The tensor of a header, without values; the dtype as stored, and whether in Fortran order.

    size: bytes of the whole. The dtype is None where the tensor cannot be read.
    """
    try:
        version = npy.read_magic(start)
        if version == (1, 0):
            found = npy.read_array_header_1_0(start)
        elif version in ((2, 0), (3, 0)):  # 3.0 differs in the encoding of field names alone
            found = npy.read_array_header_2_0(start)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} is unknown")
    except Exception as error:  # damaged text brings up nearly every type there is
        raise ValueError(f"not a valid .npy header: {brief(error)}") from error
    shape, fortran, dtype = found
    shape = tuple(map(int, shape))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape must not be negative, got {shape}")
    tensor = Tensor(name, shape, dtype.name)
    if dtype.hasobject:
        fault = "holds pickled Python objects, which are never loaded"
        return replace(tensor, error=fault), None, fortran
    check_size(
        f"shape {shape} of {dtype.name}", math.prod(shape) * dtype.itemsize, size - start.tell()
    )
    tensor = named(tensor, dtype)
    return tensor, dtype[0] if tensor.format else dtype, fortran


def named(tensor: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Records with one field, named after a format, hold its codes: `.npy` has no other place."""
    names = dtype.names or ()
    if len(names) != 1 or names[0] not in CODES or dtype[0].newbyteorder("=") != CODES[names[0]]:
        return tensor
    return replace(tensor, dtype=names[0], format=names[0])


def check_size(what: str, needed: int, present: int) -> None:
    if needed != present:
        fault = "truncated" if needed > present else "longer than its header says"
        raise ValueError(f"{fault}: {what} takes {needed} bytes, {present} follow the header")


# .npz -------------------------------------------------------------------------------------------


class _Packed:
    """A compressed member, which is unpacked to a temporary file when it is first looked at."""

    def __init__(self, file: File, member: str, start: int, like: Mapped) -> None:
        self.file, self.member, self.start, self.like = file, member, start, like
        self.order, self.steps, self.cuts = like.order, like.steps, like.cuts
        self.lock = threading.Lock()  # several threads may look first

    def read(self, box: Box) -> Array:
        with self.lock:
            copied = self._unpacked
        return copied.read(box)

    @cached_property
    def _unpacked(self) -> Mapped:
        handle, name = tempfile.mkstemp(prefix="rmsfast-")
        weakref.finalize(self, os.unlink, name)
        self.file.map(0, 1)  # is it still the same file?
        try:
            with (
                os.fdopen(handle, "wb") as copy,
                zipfile.ZipFile(self.file.path) as archive,
                archive.open(self.member) as member,
            ):
                while piece := member.read(_COPIED):
                    copy.write(piece)
        except DAMAGED as error:
            fault = f"member {self.member!r}: {brief(error)}"
            raise ValueError(f"{self.file.path}: {fault}") from error
        copied = File.of(Path(name))
        if copied.size < self.start + math.prod(self.like.shape) * self.like.dtype.itemsize:
            raise ValueError(f"{self.file.path}: member {self.member!r}: truncated")
        return replace(self.like, file=copied, begin=self.start)


def npz_tensors(path: Path) -> list[Tensor]:
    """The tensors of a `.npz` file, members that are not `.npy` left out."""
    file = File.of(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise ValueError("a name occurs twice")
            return [
                _member_tensor(archive, member, file)
                for member in members
                if member.filename.endswith(".npy")
            ]
    except DAMAGED as error:
        raise ValueError(f"not a valid .npz archive: {brief(error)}") from error


def _member_tensor(archive: zipfile.ZipFile, member: zipfile.ZipInfo, file: File) -> Tensor:
    name = member.filename.removesuffix(".npy")
    try:
        with archive.open(member) as stream:
            start = io.BytesIO(stream.read(HEADER_LIMIT))
        tensor, dtype, fortran = header(start, name, member.file_size)
        if dtype is None:
            return tensor
        if member.compress_type == zipfile.ZIP_STORED:
            lengths = file.map(member.header_offset, member.header_offset + _LOCAL_HEADER)
            extra = sum(int.from_bytes(lengths[k : k + 2], "little") for k in (26, 28))
            begin = member.header_offset + _LOCAL_HEADER + extra
            if begin + member.file_size > file.size:
                raise ValueError("truncated")
            return mapped(tensor, file, begin + start.tell(), dtype, fortran)
    except ValueError as error:
        raise ValueError(f"member {member.filename!r}: {error}") from error
    tensor = mapped(tensor, file, start.tell(), dtype, fortran)
    if not isinstance(tensor.source, Mapped):
        return tensor
    packed = _Packed(file, member.filename, start.tell(), tensor.source)
    return replace(tensor, source=packed)
