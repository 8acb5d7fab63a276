"""Summaries of the rows of the tensors of a file: `describe`, `row_rms`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rmsfast.files._open import StrPath, open_tensors
from rmsfast.files._rows import Progress, checked_axis, kept, reason, room, rows, select, teller
from rmsfast.files._tensors import Array, Tensor
from rmsfast.reductions import rms

# The code of infinity without its sign.
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float8_e5m2": 0x7C}
_PIECE = 1 << 17  # values looked at in one go


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
    path: StrPath,
    *,
    tensor: str | None = None,
    axis: int = -1,
    format: str | None = None,
    progress: Progress | None = None,
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
    progress : callable, optional
        Called with the number of bytes done and that of all, after each block.

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
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]]))
    ...     [summary] = describe(f"{folder}/h.npy")
    >>> summary.row_rms_min, summary.row_rms_max
    (2.5, 5.0)
    """
    if tensor is None:
        tensors = [each.reinterpreted(format) for each in open_tensors(path)]
        told = teller(progress, tensors)
        return [_summary(each, axis, told) for each in tensors]
    chosen = select(path, tensor, format)
    summary = _summary(chosen, axis, teller(progress, [chosen]))
    if summary.error is not None:
        raise ValueError(f"{path}: tensor {tensor!r}: {summary.error}")
    return [summary]


def row_rms(
    path: StrPath,
    *,
    tensor: str | None = None,
    axis: int = -1,
    format: str | None = None,
    progress: Progress | None = None,
) -> Array:
    """Root mean square of each row of a tensor of a file.

    Parameters
    ----------
    path, axis, format, progress
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
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]]))
    ...     row_rms(f"{folder}/h.npy")
    array([2.5, 5. ])
    """
    chosen = select(path, tensor, format)
    try:
        return _row_rms(chosen, axis, teller(progress, [chosen]))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: tensor {chosen.name!r}: {reason(error)}") from error


def _row_rms(tensor: Tensor, axis: int, told: Callable[[int], None]) -> Array:
    if tensor.source is None or tensor.stored is None:
        raise ValueError(tensor.error)
    if 0 in tensor.shape:
        return np.asarray(rms(tensor.read(), axis=axis, format=tensor.format))
    result: Array | None = None
    for box, _, found in rows(tensor, axis, None, told):
        if found is not None:
            if result is None:
                result = room(kept(tensor.shape, checked_axis(tensor, axis)), found.dtype)
            result[box] = found
    assert result is not None
    return result


def _summary(tensor: Tensor, axis: int, told: Callable[[int], None]) -> Summary:
    summary = Summary(tensor.name, tensor.shape, tensor.dtype, axis)
    if tensor.error is not None:
        return replace(summary, error=tensor.error)
    try:
        if 0 in tensor.shape:  # no rows, or rows without coordinates
            shape = np.moveaxis(np.empty(tensor.shape), axis, -1).shape
            return replace(summary, rows=math.prod(shape[:-1]))
        return _counted(tensor, axis, told, summary)
    except (TypeError, ValueError) as error:
        return replace(summary, error=reason(error))


def _counted(tensor: Tensor, axis: int, told: Callable[[int], None], summary: Summary) -> Summary:
    """The summary of a tensor that has values; each is read once."""
    k = checked_axis(tensor, axis)
    every = room(kept(tensor.shape, k), np.float64)
    zero_rows = nan_rows = inf_rows = 0
    zero = inf = np.zeros(0, np.bool_)  # of the rows of which parts have been seen
    for box, values, found in rows(tensor, axis, "float64", told):
        part = found
        if part is None or (k is not None and values.shape[k] < tensor.shape[k]):
            part = np.asarray(rms(values, axis=axis, dtype="float64", format=tensor.format))
        zero_here, inf_here = _zero_rows(values, part, axis), _inf_rows(tensor, values, part, axis)
        if k is not None and values.shape[k] < tensor.shape[k] and zero.shape == zero_here.shape:
            zero_here, inf_here = zero & zero_here, inf | inf_here
        zero, inf = zero_here, inf_here
        if found is not None:
            every[box] = found
            zero_rows += int(np.count_nonzero(zero))
            nan_rows += int(np.count_nonzero(np.isnan(found)))
            inf_rows += int(np.count_nonzero(inf))
            zero = inf = np.zeros(0, np.bool_)
    known = every.size - nan_rows
    return replace(
        summary,
        rows=every.size,
        rms=float(rms(every, axis=None)),  # the mean square of equally long rows
        row_rms_min=float(np.fmin.reduce(every, axis=None)) if known else None,
        row_rms_median=median(every.reshape(-1), known) if known else None,
        row_rms_max=float(np.fmax.reduce(every, axis=None)) if known else None,
        zero_rows=zero_rows,
        nan_rows=nan_rows,
        inf_rows=inf_rows,
    )


def _zero_rows(values: Array, found: Array, axis: int) -> NDArray[np.bool_]:
    """Rows whose every coordinate is 0; only a wide RMS is so small that it rounds to 0."""
    zero: NDArray[np.bool_] = found == 0
    if values.dtype.name in ("float64", "complex128"):
        zero &= ~_rows_with(partial(np.not_equal, 0), values, axis, zero)
    return zero


def _inf_rows(tensor: Tensor, values: Array, found: Array, axis: int) -> NDArray[np.bool_]:
    """Rows with an infinity, which NaN hides in their RMS."""
    test = partial(_is_infinite, tensor.format)
    return np.isinf(found) | _rows_with(test, values, axis, np.isnan(found))


def _rows_with(
    test: Callable[[Array], Array], data: Array, axis: int, selected: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which of the selected rows hold a value that passes the test, looked at in pieces."""
    rows = np.moveaxis(np.atleast_1d(data), axis, -1)[None]  # one axis of rows at least
    found: NDArray[np.bool_] = np.zeros(rows.shape[:-1], np.bool_)
    indices = np.nonzero(selected[None])
    length = rows.shape[-1]
    step = max(1, _PIECE // length)
    for i in range(0, len(indices[0]), step):
        block = tuple(index[i : i + step] for index in indices)
        for j in range(0, length, _PIECE):
            found[block] |= test(rows[..., j : j + _PIECE][block]).any(axis=-1)
    return found.reshape(selected.shape)


def _is_infinite(format: str | None, values: Array) -> Array:
    if format is None:
        return np.isinf(values)
    if format == "float8_e4m3fn":  # has no infinity
        return np.zeros(values.shape, np.bool_)
    without_sign: Array = values & (np.iinfo(values.dtype).max >> 1)
    return np.asarray(without_sign == _INFINITY[format])


def median(values: Array, count: int) -> float:
    """Of so many values that are not NaN; halved before it is added, to stay finite."""
    low = _nth(values, (count - 1) // 2)
    high = low if count % 2 else _nth(values, count // 2)
    return low if low == high else low / 2 + high / 2


def _nth(values: Array, n: int) -> float:
    """The n-th smallest of non-negative values, of which no copy is made.

    Their bits are in the order of the values, NaN after all, and are found 16 at a time.
    """
    bits, found = values.view(np.uint64), 0
    for shift in (48, 32, 16, 0):
        counts = np.zeros(1 << 16, np.int64)
        for i in range(0, len(bits), _PIECE):
            piece = bits[i : i + _PIECE]
            if shift < 48:
                piece = piece[piece >> np.uint64(shift + 16) == found]
            digits = (piece >> np.uint64(shift)) & np.uint64(0xFFFF)
            counts += np.bincount(digits.astype(np.int64), minlength=len(counts))
        below = np.cumsum(counts)
        digit = int(np.searchsorted(below, n, "right"))
        n -= int(below[digit] - counts[digit])
        found = found << 16 | digit
    return float(np.uint64(found).view(np.float64))
