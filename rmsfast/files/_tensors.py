"""Tensors of files: what they are, where their values come from, and in which order.

A *source* gives the values of a box of a tensor. Boxes follow the storage order and the chunks
of the file, are bounded in bytes, and are read once, by threads that run ahead.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from threading import get_ident
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmsfast._formats import CODES
from rmsfast._partial import BLOCK

Array = NDArray[Any]
Box = tuple[slice, ...]  # of every axis, with start and stop

BOX_BYTES = 1 << 25
ROWS = 1 << 16  # whose sums are kept at a time, where rows are longer than a box
PAGE = 4096


class Layout(Protocol):
    """In which boxes values are read."""

    @property
    def order(self) -> tuple[int, ...]:
        """Axes, from that along which storage goes slowest."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Lengths of a chunk, the least that is read; 1 without chunks."""

    @property
    def cuts(self) -> tuple[int, ...]:
        """Places along the first axis where boxes end: 0, ..., its length."""


class Source(Layout, Protocol):
    """Where the values of a tensor come from."""

    def read(self, box: Box) -> Array:
        """Values of a box: a view of a memory map, or an array that holds them."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named array of a file.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : str
        NumPy's name, or that of the storage format; the file's own name where there is no other.
    stored : dtype or None
        As which NumPy sees the values, possibly of foreign byte order; unsigned codes where
        `format` is given. None where the tensor cannot be read.
    format : str or None
        What to pass to `rmsfast.rms` as ``format=``.
    error : str or None
        Why the tensor cannot be read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    stored: np.dtype[Any] | None = None
    format: str | None = None
    error: str | None = None
    source: Source | None = field(default=None, repr=False)

    @property
    def itemsize(self) -> int:
        """Bytes of a value; 0 where the tensor cannot be read."""
        return self.stored.itemsize if self.stored is not None else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the values, as they are in memory."""
        return math.prod(self.shape) * self.itemsize

    def reinterpreted(self, format: str | None) -> Tensor:
        """Read plain codes as numbers of `format`; a tensor of another kind stays as it is."""
        if format is None or self.stored is None or self.format is not None:
            return self
        if self.stored.kind not in "uV" or self.stored.itemsize != CODES[format].itemsize:
            return self
        codes = self.stored if self.stored.kind == "u" else np.dtype(f"u{self.stored.itemsize}")
        return replace(self, dtype=format, stored=codes, format=format)

    def read(self) -> Array:
        """All values: of a file that is mapped to memory a read-only view, else a new array."""
        return self.values(tuple(slice(0, n) for n in self.shape))

    def blocks(
        self, axis: int | None = None, nbytes: int | None = None
    ) -> Iterator[tuple[Box, Array]]:
        """The values in storage order, a box at a time, read ahead in a thread.

        Parameters
        ----------
        axis : int, optional
            Boxes hold whole rows along this axis where these are short enough. Where they are
            not, the parts of the same rows follow one another.
        nbytes : int, optional
            Of a box, at most, but for one chunk of the file.

        Yields
        ------
        box : tuple of slice
        values : ndarray
            Not to be written to, nor kept: what has been used is released.
        """
        yield from ahead(lambda box: (box, touched(self.values(box))), self.boxes(axis, nbytes))

    def boxes(self, axis: int | None = None, nbytes: int | None = None) -> Iterator[Box]:
        """The boxes of `blocks`."""
        if self.source is None or self.stored is None:
            raise ValueError(f"tensor {self.name!r}: {self.error}")
        most = min(nbytes or BOX_BYTES, BOX_BYTES) // self.stored.itemsize
        return boxes(self.shape, self.source, max(1, most), axis)

    def values(self, box: Box) -> Array:
        """The values of a box, as `read` gives all."""
        if self.source is None or self.stored is None:
            raise ValueError(f"tensor {self.name!r}: {self.error}")
        values = self.source.read(box)
        return values if values.dtype == self.stored else values.view(self.stored)


# Boxes ------------------------------------------------------------------------------------------


def boxes(shape: Sequence[int], source: Layout, most: int, axis: int | None) -> Iterator[Box]:
    """Boxes of at most so many elements, in storage order; along `axis` whole, or part by part."""
    if math.prod(shape) == 0:
        return
    walk = list(source.order)
    size = grown(source.steps, shape, source.steps, walk[::-1], most)
    if axis is not None and size[axis] < shape[axis]:
        step, faster = source.steps[axis], walk[walk.index(axis) + 1 :]
        walk.remove(axis)
        size = grown(source.steps, shape, source.steps, faster[::-1], min(most, ROWS * step))
        size = grown(size, shape, source.steps, [axis], most)
        whole = math.lcm(step, BLOCK)
        if size[axis] > whole:  # blocks of the sums that do not reach across boxes are faster
            size[axis] -= size[axis] % whole
        walk.append(axis)
    cuts = [source.cuts if k == 0 else (0, n) for k, n in enumerate(shape)]
    parts = [
        [slice(i, min(i + size[k], end)) for begin, end in pairwise(cuts[k])
         for i in range(begin, end, size[k])]
        for k in walk
    ]  # fmt: skip
    back = [walk.index(k) for k in range(len(shape))]
    for box in product(*parts):
        yield tuple(box[k] for k in back)


def grown(
    size: Sequence[int], shape: Sequence[int], steps: Sequence[int], axes: Iterable[int], most: int
) -> list[int]:
    """Lengths of a box, stretched along some axes in turn to at most so many elements."""
    found = list(size)
    for k in axes:
        others = math.prod(found) // found[k]
        if others * shape[k] > most:
            found[k] = steps[k] * max(1, most // (others * steps[k]))
            break
        found[k] = shape[k]
    return found


P = TypeVar("P")
T = TypeVar("T")


def ahead(make: Callable[[P], T], places: Iterable[P], threads: int = 1) -> Iterator[T]:
    """What is made of each place, in order: by threads, while what came before is used."""
    made: deque[Future[T]] = deque()
    own: set[int] = set()
    readers = ThreadPoolExecutor(threads, "rmsfast-reader", lambda: own.add(get_ident()))
    try:
        for place in places:
            made.append(readers.submit(make, place))
            if len(made) > threads + 1:
                yield made.popleft().result()
        while made:
            yield made.popleft().result()
    finally:
        # Whichever thread collects what was given up closes it, and a reader cannot await itself.
        readers.shutdown(wait=get_ident() not in own, cancel_futures=True)


def touched(values: Array) -> Array:
    """The values, each page of a memory map looked at: it is read by this thread, now."""
    if values.size:
        flat = values.transpose(sorted(range(values.ndim), key=lambda k: -values.strides[k]))
        flat = flat.reshape(-1) if flat.flags.c_contiguous else flat
        flat.view(np.uint8)[..., ::PAGE].max()
    return values


# Files ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class File:
    """A file of which every check and every look at the data sees the same state."""

    path: Path
    size: int
    state: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> File:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a regular file")
        if found.st_size == 0:
            raise ValueError("file is empty")
        return cls(path, found.st_size, _state(found))

    def map(self, begin: int, end: int) -> memoryview:
        """Bytes of the file, by memory map: they are read when looked at."""
        before = begin - begin % mmap.ALLOCATIONGRANULARITY
        try:
            with self.path.open("rb") as file:
                if _state(os.fstat(file.fileno())) != self.state:
                    raise ValueError(f"{self.path}: changed while it was read")
                length = max(1, end - before)
                mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=before)
        except OSError as error:  # that of mmap does not name the file
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        return memoryview(mapped)[begin - before : end - before]


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True, eq=False)
class Mapped:
    """An array that lies side by side in a file."""

    file: File
    begin: int  # byte of its first element
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        return (1,) * len(self.shape)

    @property
    def cuts(self) -> tuple[int, ...]:
        return (0, *self.shape[:1])

    def read(self, box: Box) -> Array:
        shape = tuple(part.stop - part.start for part in box)
        if 0 in shape:
            return np.empty(shape, self.dtype)
        strides = [0] * len(shape)
        step = self.dtype.itemsize
        for k in reversed(self.order):
            strides[k] = step
            step *= self.shape[k]
        first = sum(part.start * s for part, s in zip(box, strides, strict=True))
        last = sum((part.stop - 1) * s for part, s in zip(box, strides, strict=True))
        begin = self.begin + first
        span = self.file.map(begin, self.begin + last + self.dtype.itemsize)
        return np.ndarray(shape, self.dtype, span, strides=strides)


@dataclass(frozen=True, eq=False)
class Joined:
    """Arrays of several files, one after the other along their first axis."""

    sources: tuple[Source, ...]
    cuts: tuple[int, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]

    def read(self, box: Box) -> Array:
        found = []
        for source, (begin, end) in zip(self.sources, pairwise(self.cuts), strict=True):
            start, stop = max(box[0].start, begin), min(box[0].stop, end)
            if start < stop:
                found.append(source.read((slice(start - begin, stop - begin), *box[1:])))
        return found[0] if len(found) == 1 else np.concatenate(found)


def brief(value: object) -> str:
    """One short line for an error text; exceptions can quote a whole header."""
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."


def mapped(
    tensor: Tensor, file: File, begin: int, dtype: np.dtype[Any], fortran: bool = False
) -> Tensor:
    """Give `tensor` its values, which lie side by side from a byte of a file on."""
    axes = tuple(range(len(tensor.shape)))
    source = Mapped(file, begin, dtype, tensor.shape, axes[::-1] if fortran else axes)
    return held(replace(tensor, stored=dtype, source=source))


def held(tensor: Tensor) -> Tensor:
    """The tensor, or the reason why NumPy cannot form such an array."""
    try:
        if 0 in tensor.shape:
            np.empty(tensor.shape, tensor.stored)
        np.broadcast_to(np.empty((), tensor.stored), tensor.shape)
    except (TypeError, ValueError, OverflowError) as error:  # 65 axes, (0, 2**62, 2**62), ...
        fault = f"not an array that NumPy can hold: {brief(error)}"
        return replace(tensor, stored=None, source=None, error=fault)
    return tensor
