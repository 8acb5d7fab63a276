"""Two files beside each other: `compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rmsfast import _formats
from rmsfast.files._open import StrPath, open_tensors
from rmsfast.files._rows import Progress, checked_axis, kept, reason, room, select, teller
from rmsfast.files._summaries import median
from rmsfast.files._tensors import Array, Box, Tensor, ahead, boxes, touched
from rmsfast.reductions import rms, rmse
from rmsfast.running import RunningRMS, RunningRMSE

_BOX_BYTES = 1 << 22  # of the two together: they are looked at three times, so in cache
_CHUNK_VALUES = 1 << 22  # of whole chunks of both


@dataclass(frozen=True)
class Difference:
    """How far a tensor of one file is from that of the same name in another.

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


def compare(
    path: StrPath,
    path_hat: StrPath,
    *,
    tensor: str | None = None,
    axis: int = -1,
    format: str | None = None,
    progress: Progress | None = None,
) -> list[Difference]:
    """Compare the tensors of two files row by row; every value is read once.

    Parameters
    ----------
    path, path_hat : path_like
        As for `open_tensors`, of any two formats. Tensors go together by name; of files that hold
        one tensor each, these two.
    tensor, axis, format, progress
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
    >>> difference.rmse, difference.relative_rmse
    (2.5, 1.0)
    """
    left, right = (
        [each.reinterpreted(format) for each in open_tensors(p)] for p in (path, path_hat)
    )
    if len(left) == len(right) == 1:
        pairs = [(left[0], right[0])]
    else:
        named = {each.name: each for each in right}
        pairs = [(each, named.get(each.name, _missing(each))) for each in left]
    if tensor is not None:
        chosen = select(path, tensor, format).name
        pairs = [pair for pair in pairs if pair[0].name == chosen]
    told = teller(progress, [each for pair in pairs for each in pair])
    return [_difference(x, x_hat, axis, told) for x, x_hat in pairs]


def _missing(tensor: Tensor) -> Tensor:
    return Tensor(tensor.name, (), "-", error="is not in the second file")


def _difference(x: Tensor, x_hat: Tensor, axis: int, told: Callable[[int], None]) -> Difference:
    found = Difference(x.name, x.shape, x.dtype, x_hat.dtype, axis)
    for each in (x, x_hat):
        if each.error is not None:
            return replace(found, error=each.error)
    if x.shape != x_hat.shape:
        return replace(found, error=f"has shape {x_hat.shape} in the second file")
    if 0 in x.shape:
        return replace(found, rows=math.prod(kept(x.shape, checked_axis(x, axis))))
    try:
        return _measured(x, x_hat, axis, told, found)
    except (TypeError, ValueError, ImportError) as error:
        return replace(found, error=reason(error))


def _measured(
    x: Tensor, x_hat: Tensor, axis: int, told: Callable[[int], None], found: Difference
) -> Difference:
    shape = kept(x.shape, checked_axis(x, axis))
    errors, sizes, sizes_hat = (room(shape, np.float64) for _ in range(3))
    for box, values in _rows(x, x_hat, axis, told):
        errors[box], sizes[box], sizes_hat[box] = values
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
    )


@dataclass(frozen=True)
class _Both:
    """How two sources are walked together: in whole chunks of both, in the order of the first."""

    order: tuple[int, ...]
    steps: tuple[int, ...]
    cuts: tuple[int, ...]


def _blocks(x: Tensor, x_hat: Tensor, axis: int | None) -> Iterator[tuple[Box, Array, Array]]:
    """Boxes of two tensors of one shape, read ahead."""
    assert x.source is not None
    assert x_hat.source is not None
    steps = tuple(map(math.lcm, x.source.steps, x_hat.source.steps))
    if math.prod(steps) > _CHUNK_VALUES:  # then chunks of the second are decoded repeatedly
        steps = x.source.steps
    cuts = tuple(sorted({*x.source.cuts, *x_hat.source.cuts}))
    most = max(1, _BOX_BYTES * math.prod(x.shape) // (x.nbytes + x_hat.nbytes))
    walk = boxes(x.shape, _Both(x.source.order, steps, cuts), most, axis)
    read = ((box, touched(x.values(box)), touched(x_hat.values(box))) for box in walk)
    yield from ahead(read)


def _rows(
    x: Tensor, x_hat: Tensor, axis: int, told: Callable[[int], None]
) -> Iterator[tuple[Box, tuple[Array, Array, Array]]]:
    """Boxes of rows, and their RMSE and RMS in both files."""
    k = checked_axis(x, axis)
    format = x.format if x.format == x_hat.format else None
    running = RunningRMSE(0, dtype="float64")
    sizes = [RunningRMS(0, dtype="float64") for _ in range(2)]
    for box, a, b in _blocks(x, x_hat, k):
        nbytes = a.nbytes + b.nbytes
        if format is None:  # codes of two formats
            a, b = (
                v.view(_formats.ml_dtype("compare", t.format)) if t.format else v
                for v, t in ((a, x), (b, x_hat))
            )
        if k is None or a.shape[k] == x.shape[k]:
            yield (
                kept(box, k),
                (
                    rmse(a, b, axis=axis, dtype="float64", format=format),
                    rms(a, axis=axis, dtype="float64", format=format),
                    rms(b, axis=axis, dtype="float64", format=format),
                ),
            )
        else:
            if box[k].start == 0:
                running = RunningRMSE(0, dtype="float64")
                sizes = [RunningRMS(0, dtype="float64") for _ in range(2)]
            a, b = np.moveaxis(a, k, 0), np.moveaxis(b, k, 0)
            running.update(a, b, format=format)
            for size, values in zip(sizes, (a, b), strict=True):
                size.update(values, format=format)
            if box[k].stop == x.shape[k]:
                yield kept(box, k), (running.value(), sizes[0].value(), sizes[1].value())
        told(nbytes)
