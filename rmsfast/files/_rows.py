"""Walks over the rows of the tensors of files, a few blocks at a time."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from operator import index
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments
from rmsfast.files import _tensors
from rmsfast.files._open import StrPath, open_tensors
from rmsfast.files._tensors import Array, Box, Tensor, ahead, boxes, brief, touched
from rmsfast.reductions import rms
from rmsfast.running import RunningRMS

Progress = Callable[[int, int], object]  # called with the bytes read so far, and all of them
Names = str | Sequence[str] | None  # of tensors, or patterns of names; None for all

_FUNCTIONS = (
    "rms",
    "rms_windows",
    "describe",
    "compare",
    "scale_to_rms",
    "rms_norm",
    "apply_dose",
    "predict_dose",
    "measure_dose",
)
WRITTEN_VALUES = 1 << 21  # of a box of which as many are made
_NAMES_SHOWN = 8  # in an error text
_ROWS = 1 << 17  # of a box at most, however short: what is told of them takes room too
_SPILLED_BYTES = 1 << 24  # of the values of rows: more are kept in a temporary file


def choose(
    path: StrPath,
    names: Names,
    format: str | None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
) -> list[Tensor]:
    """Open the tensors of these names or patterns, by default all, in the order of the file.

    One that is named must be of the format asked for; others stay as they are labelled.
    """
    tensors = open_tensors(path, dtype=dtype, shape=shape)
    if names is None:
        return [each.reinterpreted(format) for each in tensors]
    wanted = [names] if isinstance(names, str) else list(names)
    found: dict[str, Tensor] = {}
    for name in wanted:
        exact = [each for each in tensors if each.name == name]
        matching = exact or [each for each in tensors if fnmatchcase(each.name, name)]
        if not matching:
            raise _unknown(path, tensors, f"got {name!r}", near=name)
        found |= {each.name: _read_as(path, each, format, bool(exact)) for each in matching}
    return [found[each.name] for each in tensors if each.name in found]


def select(
    path: StrPath,
    names: Names,
    format: str | None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Open the one tensor of that name or pattern, or the only one there is."""
    tensors = choose(path, names, format, dtype, shape)
    if len(tensors) == 1:
        return _read_as(path, tensors[0], format, True)
    wanted = [names] if isinstance(names, str) else names or ()
    fits = f"{' and '.join(map(repr, wanted))} fit{'s' * (len(wanted) == 1)} {len(tensors)}"
    got = fits if wanted else "none was named"
    raise _unknown(path, tensors, got)


def _read_as(path: StrPath, tensor: Tensor, format: str | None, needed: bool) -> Tensor:
    tensor = tensor.reinterpreted(format)
    if needed and format is not None and tensor.error is None and tensor.dtype != format:
        raise ValueError(
            f"{path}: tensor {tensor.name!r}: format must fit the dtype {tensor.dtype}, "
            f"got {format!r}"
        )
    return tensor


def _unknown(path: StrPath, tensors: list[Tensor], got: str, near: str = "") -> ValueError:
    if not tensors:
        return ValueError(f"{path}: holds no tensors")
    listed = ", ".join(repr(tensor.name) for tensor in tensors[:_NAMES_SHOWN])
    if len(tensors) > _NAMES_SHOWN:
        listed += f" and {len(tensors) - _NAMES_SHOWN} more"
        for name in get_close_matches(near, [tensor.name for tensor in tensors], 1):
            got += f", did you mean {name!r}"
    return ValueError(f"{path}: tensor must be one of {listed}, {got}")


def check_readable(path: StrPath, tensors: Iterable[Tensor]) -> None:
    """Refuse tensors that cannot be read."""
    for each in tensors:
        if each.error is not None:
            raise ValueError(f"{path}: tensor {each.name!r}: {each.error}")


def undosed(tensor: Tensor) -> str | None:
    """Why no dose can be given to the rows of a tensor."""
    if tensor.stored is None or tensor.format is not None or tensor.stored.kind == "f":
        return tensor.error
    return f"must have a real floating dtype, got {tensor.dtype}"


def check_any_dosed(path: StrPath, tensors: Iterable[Tensor], names: Names) -> None:
    """Refuse tensors that no dose can be given to, if they are named or there are no others."""
    faults = {each.name: undosed(each) for each in tensors}
    if not faults:
        raise ValueError(f"{path}: holds no tensors")
    named = [names] if isinstance(names, str) else names or ()
    for name, fault in faults.items():
        if fault is not None and (name in named or all(faults.values())):
            raise ValueError(f"{path}: tensor {name!r}: {fault}")


def check_direction(function: str, direction: Any) -> None:
    """Refuse a direction for each row: rows come block by block."""
    if np.ndim(direction) != 1:
        raise _arguments.fail(
            function, "direction", "have one axis", f"shape {np.shape(direction)}"
        )


class _OfCaller(Exception):
    """An error of the caller's own, which is none of the tensor at hand."""


@contextmanager
def telling(
    function: str, progress: Progress | None, tensors: list[Tensor]
) -> Iterator[Callable[[int], None]]:
    """What is called with the bytes of each block, and tells those of all so far.

    What `progress` raises passes all that names errors after tensors.
    """
    if progress is not None and not callable(progress):
        requirement = "must be None or a callable of two numbers"
        raise TypeError(f"{function}: progress {requirement}, got {progress!r}")
    done, total = 0, sum(tensor.nbytes for tensor in tensors)

    def add(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            try:
                progress(done, total)
            except Exception as error:
                raise _OfCaller(error) from error

    try:
        yield add
    except _OfCaller as found:
        (error,) = found.args
        raise error from error.__cause__


@contextmanager
def named_errors(path: StrPath, tensor: Tensor) -> Iterator[None]:
    """Errors name the file and the tensor."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: tensor {tensor.name!r}: {reason(error)}") from error


def reason(error: Exception) -> str:
    text = str(error)
    for function in _FUNCTIONS:
        text = text.removeprefix(f"{function}: ")
    return brief(text)


def placed(error: Exception, box: Box) -> str:
    """The reason, with the first row that it counts in a box by its place in the tensor."""
    text = reason(error)
    found = re.fullmatch(r"(.*, got )\d+ (zero row|beyond it).*, the first at index \((.*)\)", text)
    if found is None:
        return text
    parts = zip(box, found[3].rstrip(",").split(","), strict=True)
    place = tuple(part.start + int(k) for part, k in parts)
    return f"{found[1]}a {'row ' * (found[2] == 'beyond it')}{found[2]} at index {place}"


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


class WholeRows(NamedTuple):
    """A layout that is read by whole rows."""

    order: tuple[int, ...]
    steps: tuple[int, ...]
    cuts: tuple[int, ...]


def whole_rows(tensor: Tensor, k: int | None) -> Iterator[tuple[Box, Array]]:
    """Boxes of whole rows along an axis, read ahead."""
    assert tensor.source is not None
    layout, n = tensor.source, 1 if k is None else tensor.shape[k]
    steps = tuple(n if j == k else step for j, step in enumerate(layout.steps))
    whole = WholeRows(layout.order, steps, (0, n) if k == 0 else layout.cuts)
    most = min(WRITTEN_VALUES, _tensors.BOX_BYTES // tensor.itemsize)
    found = boxes(tensor.shape, whole, max(1, most), None)
    yield from ahead(lambda box: (box, touched(tensor.values(box))), found)


def room(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array for the values of rows, in a temporary file if it is large."""
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    if nbytes <= _SPILLED_BYTES:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="rmsfast-") as file:
        return np.asarray(np.memmap(file, dtype, "w+", shape=shape))
