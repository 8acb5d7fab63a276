"""Two files beside each other: `compare`, `compare_rows`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import InitVar, dataclass, replace
from typing import Any

import numpy as np

from rmsfast import _formats, summaries
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
    select,
    telling,
)
from rmsfast.files._summaries import Told, median
from rmsfast.files._tables import Whole, gathered, tables
from rmsfast.files._tensors import Array, Box, Tensor, touched
from rmsfast.reductions import rms
from rmsfast.summaries import Comparison

_CHUNK_VALUES = 1 << 22  # of whole chunks of both


@dataclass(frozen=True)
class Difference:
    """What `rmsfast.compare` tells of a tensor of one file and that of the same name in another.

    Attributes
    ----------
    name, shape : as in `Tensor`
    dtype, dtype_hat : str
        Of the tensor in the first and in the second file.
    axis : int
        The axis that holds the coordinates of a row.
    rows : int
    rmse, rms_x, rms_x_hat : float or None
        Of the whole tensors; None where they have no values.
    relative_rmse : float or None
        rmse / rms_x; inf over a tensor of zeros, NaN for 0/0.
    row_rmse_min, row_rmse_median, row_rmse_max : float or None
        Over the rows whose RMSE is not NaN; None where there is no such row.
    equal_rows : int
        Rows of RMSE 0.
    nan_rows : int
        Rows of RMSE NaN.
    error : str or None
        Why the two could not be compared.
    whole : Comparison or None
        Every number of all values as one pair of vectors, the rows one after the other in C
        order; of one row. None where there are no values. Like `worst` it is an attribute but no
        field of the dataclass.
    worst : structured ndarray or None
        The rows to look at, as ``Comparison.worst()`` gives them: up to 10, of the largest RMSE,
        those with NaN before all, with their indices.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    dtype_hat: str
    axis: int
    rows: int = 0
    rmse: float | None = None
    rms_x: float | None = None
    rms_x_hat: float | None = None
    relative_rmse: float | None = None
    row_rmse_min: float | None = None
    row_rmse_median: float | None = None
    row_rmse_max: float | None = None
    equal_rows: int = 0
    nan_rows: int = 0
    error: str | None = None
    whole: InitVar[Comparison | None] = None
    worst: InitVar[Array | None] = None

    def __post_init__(self, whole: Comparison | None, worst: Array | None) -> None:
        object.__setattr__(self, "whole", whole)
        object.__setattr__(self, "worst", worst)


def compare(
    path: StrPath,
    path_hat: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[Difference]:
    """Compare the tensors of two files and their rows; every value is read once.

    Parameters
    ----------
    path, path_hat : path_like
        As for `open_tensors`, of any two formats. Tensors go together by name; the only tensor of
        the second file, if it has the name of no other, with the only one of the first or the only
        one that `tensor` names.
    tensor, axis, format, dtype, shape, progress
        As for `describe`.

    Returns
    -------
    list of Difference
        For each tensor of the first file. One that cannot be compared is among them.

    Raises
    ------
    OSError, ValueError
        As `describe`.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/x.npy", np.array([[3.0, 4.0, 0.0, 0.0]]))
    ...     save_npy(f"{folder}/y.npy", np.zeros((1, 4)))
    ...     [difference] = compare(f"{folder}/x.npy", f"{folder}/y.npy")
    >>> difference.rmse, difference.relative_rmse, difference.whole.max_abs_error
    (2.5, 1.0, np.float64(4.0))
    """
    found = pairs(path, path_hat, tensor, format, dtype, shape)
    with telling("compare", progress, [each for pair in found for each in pair]) as told:
        return [difference(x, x_hat, axis, told, _compared) for x, x_hat in found]


def compare_rows(
    path: StrPath,
    path_hat: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """What `rmsfast.compare` tells of each row of a tensor of a file and that in another.

    Parameters
    ----------
    path, path_hat, axis, format, dtype, shape, progress
        As for `compare`.
    tensor : str, optional
        Name of the tensor, or a pattern that only it fits; needed where the first file has several.

    Returns
    -------
    Comparison
        Of the shape of the tensor without `axis`. Large arrays are in temporary files, so that
        any number of rows fits.

    Raises
    ------
    OSError, ValueError
        As `describe`, and if the two cannot be compared.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/x.npy", np.array([[3.0, 4.0, 0.0, 0.0]]))
    ...     save_npy(f"{folder}/y.npy", np.zeros((1, 4)))
    ...     compare_rows(f"{folder}/x.npy", f"{folder}/y.npy").max_error_index
    array([1])
    """
    name = select(path, tensor, format, dtype, shape).name
    [(x, x_hat)] = pairs(path, path_hat, (name,), format, dtype, shape)
    with telling("compare_rows", progress, [x, x_hat]) as told, named_errors(path, x):
        if fault := fault_of(x, x_hat):
            raise ValueError(fault)
        if 0 in x.shape:
            return _table_of(x, x_hat, axis, x.read(), x_hat.read())
        shape = kept(x.shape, checked_axis(x, axis))
        return gathered(_compared(x, x_hat, axis, told), shape)


def pairs(
    path: StrPath,
    path_hat: StrPath,
    tensor: Names,
    format: str | None,
    dtype: Any,
    shape: Sequence[int] | None,
) -> list[tuple[Tensor, Tensor]]:
    """The tensors of two files that go together: by name, or the only ones to choose from."""
    left, right = (choose(each, None, format, dtype, shape) for each in (path, path_hat))
    chosen = left if tensor is None else choose(path, tensor, format, dtype, shape)
    named = {each.name: each for each in right}
    others = {each.name for each in left} - {each.name for each in chosen}
    if len(chosen) == len(right) == 1 and not named.keys() & others:
        return [(chosen[0], right[0])]
    return [(each, named.get(each.name, _missing(each))) for each in chosen]


def _missing(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, (), "-", error="is not in the second file")


Walk = Callable[[Tensor, Tensor, int, Told], Iterator[tuple[Box, Comparison]]]


def difference(x: Tensor, x_hat: Tensor, axis: int, told: Told, walk: Walk) -> Difference:
    """The difference of two tensors; walk: gives boxes of rows, and what is told of them."""
    found = Difference(x.name, x.shape, x.dtype, x_hat.dtype, axis)
    if fault := fault_of(x, x_hat):
        return replace(found, error=fault)
    if 0 in x.shape:
        return replace(found, rows=math.prod(kept(x.shape, checked_axis(x, axis))))
    try:
        return _measured(found, walk(x, x_hat, axis, told), checked_axis(x, axis))
    except (TypeError, ValueError, ImportError) as error:
        return replace(found, error=reason(error))


def fault_of(x: Tensor, x_hat: Tensor) -> str | None:
    """Why two tensors cannot be compared."""
    unread = x.error or x_hat.error
    if unread is None and x.shape != x_hat.shape:
        return f"has shape {x_hat.shape} in the second file"
    return unread


def _measured(
    found: Difference, found_rows: Iterable[tuple[Box, Comparison]], k: int | None
) -> Difference:
    """The difference of tensors that have values."""
    shape = kept(found.shape, k)
    errors, sizes, sizes_hat = (room(shape, np.float64) for _ in range(3))
    every = Whole[Comparison](shape)
    for box, table in found_rows:
        errors[box], sizes[box], sizes_hat[box] = table._roots
        every.add(box, table)
    nan_rows = equal_rows = 0
    for part in np.array_split(errors.reshape(-1), -(-errors.size // (1 << 20))):
        nan_rows += int(np.count_nonzero(np.isnan(part)))
        equal_rows += int(np.count_nonzero(part == 0))
    known = errors.size - nan_rows
    # The mean squares of equally long rows.
    whole, size, size_hat = (rms(each, axis=None) for each in (errors, sizes, sizes_hat))
    with np.errstate(all="ignore"):
        relative = float(whole / size)
    return replace(
        found,
        rows=errors.size,
        rmse=float(whole),
        rms_x=float(size),
        rms_x_hat=float(size_hat),
        relative_rmse=relative,
        row_rmse_min=float(np.fmin.reduce(errors, axis=None)) if known else None,
        row_rmse_median=median(errors.reshape(-1), known) if known else None,
        row_rmse_max=float(np.fmax.reduce(errors, axis=None)) if known else None,
        equal_rows=equal_rows,
        nan_rows=nan_rows,
        whole=every.pooled(),
        worst=every.worst(),
    )


@dataclass(frozen=True)
class _Both:
    """How two sources are walked together: in whole chunks of both, in the order of the first."""

    order: tuple[int, ...]
    steps: tuple[int, ...]
    cuts: tuple[int, ...]


def _both(x: Tensor, x_hat: Tensor) -> _Both:
    assert x.source is not None
    assert x_hat.source is not None
    steps = tuple(map(math.lcm, x.source.steps, x_hat.source.steps))
    if math.prod(steps) > _CHUNK_VALUES:  # then chunks of the second are decoded repeatedly
        steps = x.source.steps
    cuts = tuple(sorted({*x.source.cuts, *x_hat.source.cuts}))
    return _Both(x.source.order, steps, cuts)


def _compared(x: Tensor, x_hat: Tensor, axis: int, told: Told) -> Iterator[tuple[Box, Comparison]]:
    """Boxes of rows, and what is told of them."""

    def table_of(box: Box, threads: int | None) -> Comparison:
        a, b = touched(x.values(box)), touched(x_hat.values(box))
        return _table_of(x, x_hat, axis, a, b, threads)

    k, itemsize = checked_axis(x, axis), x.itemsize + x_hat.itemsize
    return tables(x.shape, _both(x, x_hat), itemsize, k, table_of, told)


def _table_of(
    x: Tensor, x_hat: Tensor, axis: int, a: Array, b: Array, threads: int | None = None
) -> Comparison:
    a, b, format = alike(x, x_hat, a, b)
    return summaries.compare(a, b, axis=axis, format=format, threads=threads)


def alike(x: Tensor, x_hat: Tensor, a: Array, b: Array) -> tuple[Array, Array, str | None]:
    """Values of both, and the format of their codes; numbers where they have two formats."""
    if x.format == x_hat.format:
        return a, b, x.format
    return named(a, x), named(b, x_hat), None


def named(values: Array, tensor: Tensor) -> Array:
    """Values of a dtype that names their format, as codes stand beside those of another."""
    return values.view(_formats.ml_dtype("compare", tensor.format)) if tensor.format else values
