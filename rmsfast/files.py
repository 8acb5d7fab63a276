"""Named tensors in `.npy` and `.safetensors` files, by read-only memory map.

Nothing is copied, no pickle is ever loaded, and neither torch nor ml_dtypes is needed: bfloat16 and
float8 tensors are given as their codes with the name of their format, which is how `rmsfast.rms`
takes them. Whatever a header claims is checked against the file before any data is touched.
"""

from __future__ import annotations

import errno
import io
import json
import math
import mmap
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from rmsfast._formats import CODES
from rmsfast.reductions import rms

__all__ = ["Summary", "Tensor", "describe", "open_tensors", "row_rms", "save_npy"]

Array = NDArray[Any]

# The code of infinity without its sign.
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float8_e5m2": 0x7C}
_SAFETENSORS_DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2",
    "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip
_SAFETENSORS_FORMATS = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_SAFETENSORS_HEADER_LIMIT = 100_000_000  # what the format allows
_NPY_HEADER_LIMIT = 1 << 16  # well above the 10 000 characters that NumPy's reader parses
_PIECE = 1 << 17  # values looked at in one go
_NAMES_SHOWN = 8  # in an error text


@dataclass(frozen=True, eq=False)
class Tensor:
    """A named array of a file.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : str
        NumPy's name, or that of the storage format; the file's own name where there is no other.
    data : ndarray or None
        Read-only view of the memory map, possibly unaligned or of foreign byte order; unsigned
        codes where `format` is given. None where the tensor cannot be read.
    format : str or None
        What to pass to `rmsfast.rms` as ``format=``.
    error : str or None
        Why the tensor cannot be read.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: Array | None = None
    format: str | None = None
    error: str | None = None

    def reinterpreted(self, format: str | None) -> Tensor:
        """Read plain codes as numbers of `format`; a tensor of another kind stays as it is."""
        if format is None or self.data is None or self.format is not None:
            return self
        stored = self.data.dtype
        if stored.kind not in "uV" or stored.itemsize != CODES[format].itemsize:
            return self
        codes = self.data if stored.kind == "u" else self.data.view(f"u{stored.itemsize}")
        return replace(self, dtype=format, data=codes, format=format)


def open_tensors(path: str | os.PathLike[str]) -> list[Tensor]:
    """Open the tensors of a file without reading their data.

    Parameters
    ----------
    path : path_like
        A `.npy` file, whose one tensor is named after it, or a `.safetensors` file.

    Returns
    -------
    list of Tensor
        In the order in which the file stores them. A tensor that cannot be read is among them.

    Raises
    ------
    OSError
        If the file is missing, a directory or not readable.
    ValueError
        If the file is empty, truncated, not what its suffix says, or contradicts its header. One
        line, which names the file and the fault.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.zeros((2, 2)))
    ...     [(t.name, t.shape, t.dtype) for t in open_tensors(f"{folder}/h.npy")]
    [('h', (2, 2), 'float64')]
    """
    path = Path(path)
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    try:
        if not stat.S_ISREG(mode):
            raise ValueError("not a regular file")
        if path.suffix.lower() not in (".npy", ".safetensors"):
            raise ValueError(f"suffix must be .npy or .safetensors, got {path.suffix!r}")
        mapped = _memory_map(path)
        if path.suffix.lower() == ".npy":
            return [_npy_tensor(mapped, path.stem)]
        return _safetensors_tensors(mapped)
    except ValueError as error:
        raise ValueError(f"{path}: {_brief(error)}") from error


def _brief(value: object) -> str:
    """One short line for an error text; exceptions can quote a whole header."""
    text = " ".join(str(value).split()) or type(value).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."


def _memory_map(path: Path) -> mmap.mmap:
    """Every check relies on the length of the map: a file may still be growing or shrinking."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ValueError("file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:  # that of mmap does not name the file
        raise OSError(error.errno, error.strerror, str(path)) from error


def _view(
    tensor: Tensor, mapped: mmap.mmap, begin: int, dtype: np.dtype[Any], order: Literal["C", "F"]
) -> Tensor:
    """Give `tensor` its data, or the reason why NumPy cannot form such an array."""
    try:
        data = np.ndarray(tensor.shape, dtype, buffer=mapped, offset=begin, order=order)
    except (TypeError, ValueError, OverflowError) as error:  # 65 axes, (0, 2**62, 2**62), ...
        return replace(tensor, error=f"not an array that NumPy can hold: {error}")
    return replace(tensor, data=data)


# .npy -------------------------------------------------------------------------------------------


def _npy_tensor(mapped: mmap.mmap, name: str) -> Tensor:
    # A copy of the beginning, so that a lying length cannot make NumPy read the whole file.
    start = io.BytesIO(mapped[:_NPY_HEADER_LIMIT])
    try:
        version = npy.read_magic(start)
        if version == (1, 0):
            header = npy.read_array_header_1_0(start)
        elif version in ((2, 0), (3, 0)):  # 3.0 differs in the encoding of field names alone
            header = npy.read_array_header_2_0(start)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} is unknown")
    except Exception as error:  # damaged text brings up nearly every type there is
        raise ValueError(f"not a valid .npy header: {_brief(error)}") from error
    shape, fortran_order, dtype = header
    shape = tuple(map(int, shape))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape must not be negative, got {shape}")
    tensor = Tensor(name, shape, dtype.name)
    if dtype.hasobject:
        return replace(tensor, error="holds pickled Python objects, which are never loaded")
    begin = start.tell()
    _check_size(f"shape {shape} of {dtype.name}", math.prod(shape) * dtype.itemsize, mapped, begin)
    return _view(tensor, mapped, begin, dtype, "F" if fortran_order else "C")


def _check_size(what: str, needed: int, mapped: mmap.mmap, begin: int) -> None:
    present = len(mapped) - begin
    if needed != present:
        fault = "truncated" if needed > present else "longer than its header says"
        raise ValueError(f"{fault}: {what} takes {needed} bytes, {present} follow the header")


# .safetensors -----------------------------------------------------------------------------------


def _safetensors_tensors(mapped: mmap.mmap) -> list[Tensor]:
    if len(mapped) < 8:
        raise ValueError(f"truncated: {len(mapped)} bytes are too few for a safetensors header")
    begin = 8 + int.from_bytes(mapped[:8], "little")
    if begin > len(mapped):
        raise ValueError(
            f"truncated or not safetensors: the header takes {begin} bytes, "
            f"the file has {len(mapped)}"
        )
    if begin > 8 + _SAFETENSORS_HEADER_LIMIT:
        raise ValueError(
            f"header must be at most {_SAFETENSORS_HEADER_LIMIT} bytes, got {begin - 8}"
        )
    try:
        header = json.loads(mapped[8:begin].decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a valid safetensors header: {_brief(error)}") from error
    if not isinstance(header, dict):
        raise ValueError("not a valid safetensors header: not a JSON object")
    header.pop("__metadata__", None)

    entries = [_entry(name, value) for name, value in header.items()]
    entries.sort(key=lambda entry: (entry.first, entry.last))
    position = 0  # the format allows neither overlaps nor holes
    for entry in entries:
        if entry.first != position:
            fault = "overlaps" if entry.first < position else "leaves a hole after"
            raise ValueError(f"tensor {entry.tensor.name!r} {fault} the one before it")
        position = entry.last
    _check_size(f"data of {len(entries)} tensors", position, mapped, begin)
    return [
        _view(entry.tensor, mapped, begin + entry.first, entry.dtype, "C")
        if entry.dtype
        else entry.tensor
        for entry in entries
    ]


class _Entry(NamedTuple):
    first: int
    last: int
    dtype: np.dtype[Any] | None  # None where the tensor cannot be read
    tensor: Tensor


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, which by the format must not repeat a name."""
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the name {name!r} occurs twice")
        result[name] = value
    return result


def _entry(name: str, entry: object) -> _Entry:
    """Check an entry of the header, as far as it can be checked alone."""
    match entry:
        case {"dtype": str(code), "shape": [*lengths], "data_offsets": [first, last]}:
            shape = tuple(lengths)
        case _:
            raise ValueError(f"tensor {name!r} must have dtype, shape and two data_offsets")
    if not all(type(number) is int and number >= 0 for number in (*shape, first, last)):
        raise ValueError(
            f"tensor {name!r} must have non-negative integers as shape and data_offsets, "
            f"got {lengths} and {[first, last]}"
        )
    if first > last:
        raise ValueError(f"tensor {name!r} begins at {first}, after its end at {last}")
    if code not in _SAFETENSORS_DTYPES:
        error = f"dtype {code} is not supported"
        return _Entry(first, last, None, Tensor(name, shape, code, error=error))
    dtype = np.dtype(_SAFETENSORS_DTYPES[code])
    format = _SAFETENSORS_FORMATS.get(code)
    needed = math.prod(shape) * dtype.itemsize
    if needed != last - first:
        raise ValueError(
            f"tensor {name!r} of dtype {code} and shape {shape} takes {needed} bytes, "
            f"its data_offsets span {last - first}"
        )
    return _Entry(first, last, dtype, Tensor(name, shape, format or dtype.name, format=format))


# Summaries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """The root mean squares of a tensor.

    Attributes
    ----------
    name, shape, dtype
        As in `Tensor`.
    axis : int
        The axis that holds the coordinates of a row.
    rows : int
        Number of rows; a 0-d tensor is one row of one coordinate.
    rms : float or None
        RMS of the whole tensor; None where it has no values.
    row_rms_min, row_rms_median, row_rms_max : float or None
        Over the rows that have no NaN, those with Inf included; None where there is no such row.
    zero_rows : int
        Rows in which every coordinate is 0.
    nan_rows, inf_rows : int
        Rows with a NaN, and rows with an infinity; a row with both counts in both.
    error : str or None
        Why the tensor could not be summarised; nothing but name, shape and dtype holds then.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int
    rows: int = 0
    rms: float | None = None
    row_rms_min: float | None = None
    row_rms_median: float | None = None
    row_rms_max: float | None = None
    zero_rows: int = 0
    nan_rows: int = 0
    inf_rows: int = 0
    error: str | None = None


def describe(
    path: str | os.PathLike[str],
    *,
    tensor: str | None = None,
    axis: int = -1,
    format: str | None = None,
) -> list[Summary]:
    """Summarise the row RMS of the tensors of a file; every value is read once.

    Parameters
    ----------
    path : path_like
        As for `open_tensors`.
    tensor : str, optional
        Name of the only tensor to summarise.
    axis : int, default -1
        The axis that holds the coordinates of a row.
    format : {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}, optional
        Read unsigned integers (or void) of the width of this format as its codes, and other
        tensors as they are labelled, unless `tensor` names one.

    Returns
    -------
    list of Summary

    Raises
    ------
    OSError, ValueError
        As `open_tensors`, and if the one tensor asked for does not exist, cannot be read or is
        not of the format asked for.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]]))
    ...     [summary] = describe(f"{folder}/h.npy")
    >>> summary.row_rms_min, summary.row_rms_max
    (2.5, 5.0)
    """
    if tensor is None:
        return [_summary(each.reinterpreted(format), axis) for each in open_tensors(path)]
    summary = _summary(_select(path, tensor, format), axis)
    if summary.error is not None:
        raise ValueError(f"{path}: tensor {tensor!r}: {summary.error}")
    return [summary]


def row_rms(
    path: str | os.PathLike[str],
    *,
    tensor: str | None = None,
    axis: int = -1,
    format: str | None = None,
) -> Array:
    """Root mean square of each row of a tensor of a file.

    Parameters
    ----------
    path, axis, format
        As for `describe`.
    tensor : str, optional
        Name of the tensor; needed where the file has several.

    Returns
    -------
    ndarray
        Shape of the tensor without `axis`, dtype as `rmsfast.rms` gives it.

    Raises
    ------
    OSError, ValueError
        As `describe`, and if the tensor has rows without coordinates.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]]))
    ...     row_rms(f"{folder}/h.npy")
    array([2.5, 5. ])
    """
    chosen = _select(path, tensor, format)
    try:
        return _row_rms(chosen, axis)
    except ValueError as error:
        raise ValueError(f"{path}: tensor {chosen.name!r}: {_brief(error)}") from error


def _select(path: str | os.PathLike[str], name: str | None, format: str | None) -> Tensor:
    """Find the tensor of that name, or the only one, which must be of the format asked for."""
    tensors = open_tensors(path)
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


def _row_rms(tensor: Tensor, axis: int, dtype: str | None = None) -> Array:
    """Row RMS of a tensor; whatever the reason not to have one, a ValueError gives it."""
    if tensor.data is None:
        raise ValueError(tensor.error)
    try:
        return np.asarray(rms(tensor.data, axis=axis, dtype=dtype, format=tensor.format))
    except (TypeError, ValueError) as error:
        raise ValueError(str(error).removeprefix("rms: ")) from error


def _summary(tensor: Tensor, axis: int) -> Summary:
    summary = Summary(tensor.name, tensor.shape, tensor.dtype, axis)
    data = tensor.data
    if data is None:
        return replace(summary, error=tensor.error)
    try:
        if data.size == 0:  # no rows, or rows without coordinates
            return replace(summary, rows=math.prod(np.moveaxis(data, axis, -1).shape[:-1]))
        rows = _row_rms(tensor, axis, "float64")
    except ValueError as error:
        return replace(summary, error=_brief(error))

    is_zero, is_nan = rows == 0, np.isnan(rows)
    zero_rows = int(np.count_nonzero(is_zero))
    if data.dtype.name in ("float64", "complex128"):  # no other RMS is so small that it rounds to 0
        zero_rows -= _count_rows_with(partial(np.not_equal, 0), data, axis, is_zero)
    inf_rows = int(np.count_nonzero(np.isinf(rows)))  # those without a NaN, which hides infinities
    inf_rows += _count_rows_with(partial(_is_infinite, tensor.format), data, axis, is_nan)
    known = rows[~is_nan]
    return replace(
        summary,
        rows=rows.size,
        rms=float(rms(rows, axis=None)),  # the mean square of equally long rows
        row_rms_min=float(known.min()) if known.size else None,
        row_rms_median=_median(known) if known.size else None,
        row_rms_max=float(known.max()) if known.size else None,
        zero_rows=zero_rows,
        nan_rows=int(np.count_nonzero(is_nan)),
        inf_rows=inf_rows,
    )


def _count_rows_with(
    test: Callable[[Array], Array], data: Array, axis: int, selected: NDArray[np.bool_]
) -> int:
    """How many of the selected rows hold a value that passes the test, looked at in pieces."""
    rows = np.moveaxis(np.atleast_1d(data), axis, -1)[None]  # one axis of rows at least
    indices = np.nonzero(selected[None])
    length = rows.shape[-1]
    step = max(1, _PIECE // length)
    count = 0
    for i in range(0, len(indices[0]), step):
        block = tuple(index[i : i + step] for index in indices)
        found = np.zeros(len(block[0]), np.bool_)
        for j in range(0, length, _PIECE):
            found |= test(rows[..., j : j + _PIECE][block]).any(axis=-1)
        count += int(np.count_nonzero(found))
    return count


def _is_infinite(format: str | None, values: Array) -> Array:
    if format is None:
        return np.isinf(values)
    if format == "float8_e4m3fn":  # has no infinity
        return np.zeros(values.shape, np.bool_)
    without_sign: Array = values & (np.iinfo(values.dtype).max >> 1)
    return np.asarray(without_sign == _INFINITY[format])


def _median(values: Array) -> float:
    """Halved before it is added: the sum of two finite numbers may not be finite."""
    middle = [(values.size - 1) // 2, values.size // 2]
    low, high = map(float, np.partition(values, middle)[middle])
    return low if low == high else low / 2 + high / 2


# Writing ----------------------------------------------------------------------------------------


def save_npy(path: str | os.PathLike[str], array: Array) -> None:
    """Write a `.npy` file that is either complete or not there.

    The bytes go to a temporary name in the same folder, which replaces `path` once they are on
    disk; a symbolic link is written through. Whatever interrupts this, an existing file stays as
    it was, and unless the process is killed outright nothing else is left behind.

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
    target = Path(os.path.realpath(path))
    # Not built from the name of the target, which may be as long as a name can be.
    temporary = target.with_name(f".rmsfast-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(array))
            file.write(array.data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(target, temporary)
        temporary.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
