"""Summaries of the rows of the tensors of a file: `describe`, `describe_rows`, `row_rms`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any

import numpy as np

from rmsfast import summaries
from rmsfast.files._open import StrPath
from rmsfast.files._rows import (
    Names,
    Progress,
    checked_axis,
    choose,
    kept,
    named_errors,
    reason,
    room,
    rows,
    select,
    telling,
)
from rmsfast.files._tables import Whole, gathered, tables
from rmsfast.files._tensors import Array, Box, Tensor, touched
from rmsfast.reductions import rms
from rmsfast.summaries import Description

_PIECE = 1 << 17  # values looked at in one go
_COPIED = 1 << 20  # values of which there may be a copy


@dataclass(frozen=True)
class Summary:
    """What `rmsfast.describe` tells of a tensor: of all its values, and of its rows.

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
    peak : float or None
        Largest absolute value in the rows that have no NaN; None where there is no such row.
    peak_index : tuple of int or None
        Where it is first found in a row; of equal rows the first.
    peak_share_max : float or None
        Largest share that one coordinate has of the sum of squares of its row.
    error : str or None
        Why the tensor could not be summarised; nothing but name, shape and dtype holds then.
    whole : Description or None
        Every number of all values as one vector, the rows one after the other in C order; of one
        row. None where there are no values. Like `worst` it is an attribute but no field of the
        dataclass, so that the fields can be written as JSON.
    worst : structured ndarray or None
        The rows to look at, as ``Description.worst()`` gives them: up to 10, of the largest root
        mean square, those with NaN before all, with their indices.
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
    peak: float | None = None
    peak_index: tuple[int, ...] | None = None
    peak_share_max: float | None = None
    error: str | None = None
    whole: InitVar[Description | None] = None
    worst: InitVar[Array | None] = None

    def __post_init__(self, whole: Description | None, worst: Array | None) -> None:
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "worst", worst)


def describe(
    path: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[Summary]:
    """Summarise the tensors of a file and their rows; every value is read once.

    Threads, two at least and up to as many as `rmsfast.get_num_threads` tells, take blocks in the
    order of storage; each reads its blocks and computes on them.

    Parameters
    ----------
    path : path_like
        As for `open_tensors`.
    tensor : str or sequence of str, optional
        Names of the tensors to summarise, or patterns of names with ``*``, ``?`` and ``[]``.
    axis : int, default -1
        The axis that holds the coordinates of a row.
    format : {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}, optional
        Read unsigned integers (or void) of the width of this format as its codes, and other
        tensors as they are labelled, unless `tensor` names one.
    dtype, shape
        Of raw binary, as for `open_tensors`.
    progress : callable, optional
        Called with the number of bytes done and that of all, after each block. What it raises
        ends the call.

    Returns
    -------
    list of Summary

    Raises
    ------
    OSError, ValueError
        As `open_tensors`, and if a tensor that is named does not exist, cannot be read or is
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
    >>> summary.whole.mean, summary.whole.n_zero, summary.worst["row"]
    (np.float64(2.625), np.int64(4), array([1, 0]))
    """
    tensors = choose(path, tensor, format, dtype, shape)
    with telling("describe", progress, tensors) as told:
        return summarised(path, tensors, tensor, axis, told, _described)


Told = Callable[[int], None]
Walk = Callable[[Tensor, int, Told], Iterator[tuple[Box, Description]]]


def summarised(
    path: StrPath, tensors: list[Tensor], tensor: Names, axis: int, told: Told, walk: Walk
) -> list[Summary]:
    """Summaries of tensors; walk: gives boxes of their rows, and what is told of them."""
    found = [_summary(each, axis, told, walk) for each in tensors]
    named = [] if tensor is None else [tensor] if isinstance(tensor, str) else tensor
    for summary in found:
        if summary.error is not None and summary.name in named:
            raise ValueError(f"{path}: tensor {summary.name!r}: {summary.error}")
    return found


def row_rms(
    path: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Array:
    """Root mean square of each row of a tensor of a file.

    Parameters
    ----------
    path, axis, format, dtype, shape, progress
        As for `describe`.
    tensor : str, optional
        Name of the tensor, or a pattern that only it fits; needed where the file has several.

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
    chosen = select(path, tensor, format, dtype, shape)
    with telling("row_rms", progress, [chosen]) as told, named_errors(path, chosen):
        return _row_rms(chosen, axis, told)


def describe_rows(
    path: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Description:
    """What `rmsfast.describe` tells of each row of a tensor of a file.

    Parameters
    ----------
    path, tensor, axis, format, dtype, shape, progress
        As for `row_rms`.

    Returns
    -------
    Description
        Of the shape of the tensor without `axis`. Large arrays are in temporary files, so that
        any number of rows fits.

    Raises
    ------
    OSError, ValueError
        As `row_rms`.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]]))
    ...     describe_rows(f"{folder}/h.npy").peak
    array([4., 8.])
    """
    chosen = select(path, tensor, format, dtype, shape)
    with telling("describe_rows", progress, [chosen]) as told, named_errors(path, chosen):
        if chosen.error is not None:
            raise ValueError(chosen.error)
        if 0 in chosen.shape:
            return summaries.describe(chosen.read(), axis=axis, format=chosen.format)
        shape = kept(chosen.shape, checked_axis(chosen, axis))
        return gathered(_described(chosen, axis, told), shape)


def _row_rms(tensor: Tensor, axis: int, told: Told) -> Array:
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


def _summary(tensor: Tensor, axis: int, told: Told, walk: Walk) -> Summary:
    summary = Summary(tensor.name, tensor.shape, tensor.dtype, axis)
    if tensor.error is not None:
        return replace(summary, error=tensor.error)
    try:
        if 0 in tensor.shape:  # no rows, or rows without coordinates
            shape = np.moveaxis(np.empty(tensor.shape), axis, -1).shape
            return replace(summary, rows=math.prod(shape[:-1]))
        return _counted(summary, walk(tensor, axis, told), checked_axis(tensor, axis))
    except (TypeError, ValueError) as error:
        return replace(summary, error=reason(error))


def _described(tensor: Tensor, axis: int, told: Told) -> Iterator[tuple[Box, Description]]:
    """Boxes of rows of a tensor that has values, and what is told of them."""
    assert tensor.source is not None

    def table_of(box: Box, threads: int | None) -> Description:
        values = touched(tensor.values(box))
        return summaries.describe(values, axis=axis, format=tensor.format, threads=threads)

    k = checked_axis(tensor, axis)
    return tables(tensor.shape, tensor.source, tensor.itemsize, k, table_of, told)


def _counted(
    summary: Summary, found_rows: Iterable[tuple[Box, Description]], k: int | None
) -> Summary:
    """The summary of a tensor that has values."""
    shape = kept(summary.shape, k)
    every, whole = room(shape, np.float64), Whole[Description](shape)
    zero_rows = nan_rows = inf_rows = 0
    peak, index, share = -1.0, None, -1.0
    for box, table in found_rows:
        whole.add(box, table)
        every[box] = found = table._roots[0]
        zero_rows += int(np.count_nonzero(table.n_zero == table.count))
        nan_rows += int(np.count_nonzero(np.isnan(found)))
        inf_rows += int(np.count_nonzero(table.n_inf))
        if (largest := np.fmax.reduce(table.peak, axis=None)) > peak:
            peak, row = float(largest), np.argwhere(table.peak == largest)[0]
            place = [part.start + i for part, i in zip(box, row.tolist(), strict=True)]
            if k is not None:
                place.insert(k, int(np.asarray(table.peak_index)[tuple(row)]))
            index = tuple(place)
        share = float(np.fmax.reduce(table.peak_share, axis=None, initial=share))
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
        peak=None if index is None else peak,
        peak_index=index,
        peak_share_max=None if share < 0 else min(share, 1.0),
        whole=whole.pooled(),
        worst=whole.worst(),
    )


def median(values: Array, count: int) -> float:
    """Of so many values that are not NaN; halved before it is added, to stay finite."""
    first, last = (count - 1) // 2, count // 2
    if len(values) <= _COPIED:
        low, high = (float(v) for v in np.partition(values, (first, last))[[first, last]])
    else:
        low = _nth(values, first)
        high = low if count % 2 else _nth(values, last)
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
