"""Summaries of the rows of the tensors of a file: `describe`, `row_rms`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmsfast import summaries
from rmsfast.files._open import StrPath, open_tensors
from rmsfast.files._rows import Progress, checked_axis, kept, reason, room, rows, select, teller
from rmsfast.files._tensors import Array, Tensor
from rmsfast.reductions import rms

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
    peak : float or None
        Largest absolute value in the rows that have no NaN; None where there is no such row, and
        for complex numbers.
    peak_index : tuple of int or None
        Where it is first found in a row; of equal rows the first.
    peak_share_max : float or None
        Largest share that one coordinate has of the sum of squares of its row.
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
    peak: float | None = None
    peak_index: tuple[int, ...] | None = None
    peak_share_max: float | None = None
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


class _Seen(NamedTuple):
    """What has been seen of each row of a box."""

    zero: NDArray[np.bool_]  # every coordinate is 0
    inf: NDArray[np.bool_]
    peak: Array  # the largest absolute value
    place: Array  # its coordinate

    def joined(self, more: _Seen, done: int) -> _Seen:
        """The same of rows of which `more` was seen after `done` coordinates."""
        beyond = ~np.isnan(self.peak) & ~(more.peak <= self.peak)
        return _Seen(
            self.zero & more.zero,
            self.inf | more.inf,
            np.where(beyond, more.peak, self.peak),
            np.where(beyond, more.place + done, self.place),
        )


def _seen(tensor: Tensor, values: Array, axis: int) -> _Seen:
    is_complex = values.dtype.kind == "c"
    parts = [
        summaries.describe(part, axis=axis, format=tensor.format)
        for part in ((values.real, values.imag) if is_complex else (values,))
    ]
    zero = np.logical_and.reduce([part.n_zero == part.count for part in parts])
    inf = np.logical_or.reduce([part.n_inf > 0 for part in parts])
    peak = np.full(zero.shape, np.nan) if is_complex else np.asarray(parts[0].peak)
    return _Seen(zero, inf, peak, np.asarray(parts[0].peak_index))


def _counted(tensor: Tensor, axis: int, told: Callable[[int], None], summary: Summary) -> Summary:
    """The summary of a tensor that has values; each is read once."""
    k = checked_axis(tensor, axis)
    length = 1 if k is None else tensor.shape[k]
    every = room(kept(tensor.shape, k), np.float64)
    zero_rows = nan_rows = inf_rows = 0
    peak, index, share = -1.0, None, -1.0
    seen, done = None, 0  # of the rows of which parts have been seen, and how long these are
    for box, values, found in rows(tensor, axis, "float64", told):
        here = _seen(tensor, values, axis)
        seen = here if seen is None else seen.joined(here, done)
        done += 1 if k is None else values.shape[k]
        if found is None:
            continue
        every[box] = found
        zero_rows += int(np.count_nonzero(seen.zero))
        nan_rows += int(np.count_nonzero(np.isnan(found)))
        inf_rows += int(np.count_nonzero(seen.inf))
        if (largest := np.fmax.reduce(seen.peak, axis=None)) > peak:
            peak, row = float(largest), np.argwhere(seen.peak == largest)[0]
            place = [part.start + i for part, i in zip(box, row.tolist(), strict=True)]
            if k is not None:
                place.insert(k, int(seen.place[tuple(row)]))
            index = tuple(place)
        with np.errstate(all="ignore"):
            shares = np.square(seen.peak / found) / length
        share = float(np.fmax.reduce(shares, axis=None, initial=share))
        seen, done = None, 0
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
    )


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
