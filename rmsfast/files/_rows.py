"""Walks over the rows of the tensors of files, a few blocks at a time."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from operator import index
from typing import Any

import numpy as np

from rmsfast import _arguments
from rmsfast.files._open import StrPath, open_tensors
from rmsfast.files._tensors import Array, Box, Tensor, brief
from rmsfast.reductions import rms
from rmsfast.running import RunningRMS

Progress = Callable[[int, int], object]  # called with the bytes read so far, and all of them

_NAMES_SHOWN = 8  # in an error text
_ROWS = 1 << 17  # of a box at most, however short: what is told of them takes room too
_SPILLED_BYTES = 1 << 24  # of the values of rows: more are kept in a temporary file


def select(
    path: StrPath,
    name: str | None,
    format: str | None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Find the tensor of that name, or the only one, which must be of the format asked for."""
    tensors = open_tensors(path, dtype=dtype, shape=shape)
    named = tensors if name is None else [each for each in tensors if each.name == name]
    if len(named) == 1:
        tensor = named[0].reinterpreted(format)
        if format is not None and tensor.error is None and tensor.dtype != format:
            raise ValueError(
                f"{path}: tensor {tensor.name!r}: format must fit the dtype {tensor.dtype}, "
                f"got {format!r}"
            )
        return tensor
    if not tensors:
        raise ValueError(f"{path}: holds no tensors")
    listed = ", ".join(repr(tensor.name) for tensor in tensors[:_NAMES_SHOWN])
    if len(tensors) > _NAMES_SHOWN:
        listed += f" and {len(tensors) - _NAMES_SHOWN} more"
    got = "none was named" if name is None else f"got {name!r}"
    raise ValueError(f"{path}: tensor must be one of {listed}, {got}")


def teller(progress: Progress | None, tensors: list[Tensor]) -> Callable[[int], None]:
    """What is called with the bytes of each block, and tells those of all so far."""
    done, total = 0, sum(tensor.nbytes for tensor in tensors)

    def add(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    return add


def reason(error: Exception) -> str:
    text = str(error)
    for function in ("rms", "describe", "compare", "rms_windows", "scale_to_rms", "apply_dose"):
        text = text.removeprefix(f"{function}: ")
    return brief(text)


def checked_axis(tensor: Tensor, axis: int) -> int | None:
    """The axis counted from the first, None for a tensor without axes."""
    try:
        (found,) = _arguments.axes_of("rms", index(axis), len(tensor.shape))
    except TypeError:
        raise TypeError(f"rms: axis must be an int, got {axis!r}") from None
    return found if tensor.shape else None


def kept(parts: tuple[Any, ...], axis: int | None) -> tuple[Any, ...]:
    """A shape or box without the axis."""
    return parts if axis is None else parts[:axis] + parts[axis + 1 :]


def rows(
    tensor: Tensor, axis: int, dtype: str | None, told: Callable[[int], None]
) -> Iterator[tuple[Box, Array, Array | None]]:
    """Boxes of rows in turn: which rows, a part of them, and their RMS when it was the last."""
    k = checked_axis(tensor, axis)
    running = RunningRMS(0, dtype=dtype)
    length = 1 if k is None else tensor.shape[k]
    for box, values in tensor.blocks(k, _ROWS * length * tensor.itemsize):
        found: Array | None
        if k is None or values.shape[k] == tensor.shape[k]:
            found = np.asarray(rms(values, axis=axis, dtype=dtype, format=tensor.format))
        else:
            if box[k].start == 0:
                running = RunningRMS(0, dtype=dtype)
            running.update(np.moveaxis(values, k, 0), format=tensor.format)
            found = np.asarray(running.value()) if box[k].stop == tensor.shape[k] else None
        yield kept(box, k), values, found
        told(values.nbytes)


def room(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array for the values of rows, in a temporary file if it is large."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if nbytes <= _SPILLED_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="rmsfast-") as file:
        return np.asarray(np.memmap(file, dtype, "w+", shape=shape))
