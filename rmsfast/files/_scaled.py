"""Files written anew, row by row: `normalize`, `rms_norm`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, scaling
from rmsfast.files._open import StrPath
from rmsfast.files._rows import (
    WRITTEN_VALUES,
    Names,
    Progress,
    check_readable,
    checked_axis,
    choose,
    kept,
    named_errors,
    placed,
    room,
    rows,
    telling,
    whole_rows,
)
from rmsfast.files._tensors import Array, Box, Tensor
from rmsfast.files._writers import writing
from rmsfast.scaling import scale_to_rms

# Boxes of a tensor, their values, and the RMS of the rows that begin there.
Blocks = Callable[[Tensor, Callable[[int], None]], Iterator[tuple[Box, Array, Array]]]


def normalize(
    path: StrPath,
    out: StrPath,
    *,
    target: float = 1.0,
    axis: int = -1,
    zero: str = "raise",
    tensor: Names = None,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> int:
    """Scale each row of the tensors of a file to RMS `target`, as `rmsfast.scale_to_rms` does.

    Parameters
    ----------
    path, axis, format, progress
        As for `describe`.
    tensor : str or sequence of str, optional
        Names of the tensors to write, or patterns of names with ``*``, ``?`` and ``[]``; all by
        default.
    dtype, shape
        Of raw binary, as for `open_tensors`.
    out : path_like
        `.npy`, `.safetensors`, `.h5`, `.hdf5` or `.zarr`; replaced once it is complete. It may
        be `path` itself.
    target : float, default 1.0
        The RMS of every row.
    zero : {"raise", "zero", "nan"}
        What becomes of rows of zeros.

    Returns
    -------
    int
        How many rows hold NaN or Inf. They are written with NaN.

    Raises
    ------
    OSError, ValueError
        As `describe`, for a tensor that cannot be read, for zero rows, and if `out` cannot be
        written or cannot hold the tensors; an existing file is then as it was.

    Notes
    -----
    Values have the format of the input (integers become float64) and the bits that
    `scale_to_rms` gives. Rows too long to be held are read twice, and their float64 values are
    within 2 ulp.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import open_tensors, save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0]]))
    ...     odd = normalize(f"{folder}/h.npy", f"{folder}/u.npy")
    ...     open_tensors(f"{folder}/u.npy")[0].read()
    array([[1.2, 1.6, 0. , 0. ]])
    >>> odd
    0
    """
    _arguments.check_choice("normalize", "zero", zero, ("raise", "zero", "nan"))
    target = _arguments.number("normalize", "target", target)
    tensors = choose(path, tensor, format, dtype, shape)

    def scaled(each: Tensor, told: Callable[[int], None]) -> Iterator[tuple[Box, Array, Array]]:
        return _scaled_blocks(each, axis, target, zero, told)

    return _write("normalize", path, out, tensors, scaled, progress)


def rms_norm(
    path: StrPath,
    out: StrPath,
    gain: Any = None,
    *,
    eps: float = 1e-6,
    axis: int = -1,
    gain_offset: float = 0.0,
    cast: str = "after_gain",
    eps_mode: str = "inside",
    tensor: Names = None,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> int:
    """Apply RMSNorm to each row of the tensors of a file, as `rmsfast.rms_norm` does.

    Parameters
    ----------
    path, out, axis, tensor, format, dtype, shape, progress
        As for `normalize`.
    gain : array_like, shape (d,), or a number, optional
    eps, gain_offset, cast, eps_mode
        As for `rmsfast.rms_norm`.

    Returns
    -------
    int
        As `normalize`.

    Raises
    ------
    OSError, TypeError, ValueError
        As `normalize` and `rmsfast.rms_norm`; an existing file is then as it was.

    Notes
    -----
    Values have the format of the input (integers become float64) and the bits that
    `rmsfast.rms_norm` gives. A row is held in memory whole.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import open_tensors, save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0]]))
    ...     odd = rms_norm(f"{folder}/h.npy", f"{folder}/y.npy", [1, 2, 3, 4], eps=0)
    ...     open_tensors(f"{folder}/y.npy")[0].read()
    array([[1.2, 3.2, 0. , 0. ]])
    """
    tensors = choose(path, tensor, format, dtype, shape)

    def normed(each: Tensor, told: Callable[[int], None]) -> Iterator[tuple[Box, Array, Array]]:
        for box, values in whole_rows(each, checked_axis(each, axis)):
            yield box, *scaling.rms_norm(
                values, gain, eps=eps, axis=axis, gain_offset=gain_offset, cast=cast,
                eps_mode=eps_mode, format=each.format, return_rms=True,
            )  # fmt: skip
            told(values.nbytes)

    return _write("rms_norm", path, out, tensors, normed, progress)


def _write(
    function: str, path: StrPath, out: StrPath, tensors: list[Tensor], blocks: Blocks,
    progress: Progress | None,
) -> int:  # fmt: skip
    """Write what becomes of each tensor, block by block; how many rows are not finite."""
    check_readable(path, tensors)
    odd, like = 0, [scaled_like(each) for each in tensors]
    with telling(function, progress, tensors) as told, writing(out, like) as put:
        for each in tensors:
            with named_errors(path, each):
                for box, values, sizes in blocks(each, told):
                    put(each.name, box, values)
                    odd += int(np.count_nonzero(~np.isfinite(sizes)))
    return odd


def scaled_like(tensor: Tensor) -> Tensor:
    """What becomes of a tensor whose rows are scaled."""
    assert tensor.stored is not None
    return (
        replace(tensor, dtype="float64")
        if tensor.stored.kind in "biu" and (tensor.format is None)
        else tensor
    )


def _scaled_blocks(
    tensor: Tensor, axis: int, target: float, zero: str, told: Callable[[int], None]
) -> Iterator[tuple[Box, Array, Array]]:
    assert tensor.stored is not None
    if 0 in tensor.shape:
        return
    k = checked_axis(tensor, axis)
    sizes: Array | None = None
    for box, values in tensor.blocks(k, WRITTEN_VALUES * tensor.stored.itemsize):
        if k is None or values.shape[k] == tensor.shape[k]:
            try:
                scaled, own = scale_to_rms(
                    values, target, axis=axis, zero=zero, format=tensor.format, return_rms=True
                )
            except ValueError as error:
                raise ValueError(placed(error, kept(box, k))) from error
            yield box, scaled, own
        else:
            if sizes is None:
                sizes = _sizes(tensor, axis, zero)
            own = sizes[kept(box, k)]
            scaled = _divided(tensor, values, np.expand_dims(own, k), target)
            yield box, scaled, own if box[k].start == 0 else np.empty(0)
        told(values.nbytes)


def _sizes(tensor: Tensor, axis: int, zero: str) -> Array:
    """The RMS of every row, and 1 for that of a zero row that is kept."""
    sizes = room(kept(tensor.shape, checked_axis(tensor, axis)), np.float64)
    for box, _, found in rows(tensor, axis, "float64", lambda _: None):
        if found is not None:
            if zero == "raise" and not found.all():
                raise _arguments.zero_rows("scale_to_rms", "x", found == 0)
            sizes[box] = np.where(found == 0, 1.0, found) if zero == "zero" else found
    return sizes


def _divided(tensor: Tensor, values: Array, sizes: Array, target: float) -> Array:
    """Values over sizes, rounded once to the format of the tensor."""
    kind = tensor.format or str(_formats.kind_of(values.dtype, None))
    with np.errstate(invalid="ignore"):  # 0/0 of zero rows that become NaN
        wide = _formats.decoded(values, kind) / sizes * target
    scaled = scaled_like(tensor).dtype
    return _formats.rounded(wide, _formats.ml_dtype("normalize", scaled))
