"""Files of edited rows: `apply_dose`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, dose
from rmsfast._dose_report import DoseReport
from rmsfast.files._open import StrPath
from rmsfast.files._rows import (
    Names,
    Progress,
    check_any_dosed,
    check_direction,
    check_readable,
    checked_axis,
    choose,
    kept,
    placed,
    reason,
    room,
    telling,
    undosed,
    whole_rows,
)
from rmsfast.files._tensors import Array, Box, Tensor
from rmsfast.files._writers import writing


def apply_dose(
    file: StrPath,
    out: StrPath,
    direction: Any,
    alpha: Any,
    /,
    *,
    axis: int = -1,
    scale: Any = "rms",
    scale_name: str | None = None,
    direction_scale: str = "unit",
    storage: str | None = None,
    edit_format: str = "float32",
    path: str = "cast_then_add",
    rounding: str = "nearest_even",
    seed: int | None = None,
    overflow: str = "ieee",
    zero: str = "raise",
    tensor: Names = None,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> DoseReport:
    """Edit each row of the tensors of a file along a direction, as `rmsfast.apply_dose` does.

    Tensors of integers and complex numbers are written as they are, unless one is named.

    Parameters
    ----------
    file : path_like
        As `path` of `normalize`; so are `tensor`, `format`, `dtype`, `shape` and `progress`.
    out : path_like
        As for `normalize`; it may be `file` itself.
    direction : array_like, shape (d,)
    alpha, scale : one number, or one a row
        Broadcastable to the rows of each tensor.
    axis : int, default -1
        Rows lie along it, and are held in memory whole.
    scale_name, direction_scale, storage, edit_format, path, rounding, seed, overflow, zero, threads
        As for `rmsfast.apply_dose`.

    Returns
    -------
    DoseReport
        Of the rows of the tensor; of several that are edited one after the other, along one axis.

    Raises
    ------
    OSError, TypeError, ValueError, ImportError
        As `normalize`, and as `rmsfast.apply_dose`; `out` is then as it was.

    Notes
    -----
    Values and report have the bits that `rmsfast.apply_dose` gives for each tensor as a whole.
    Each block of rows is read once; with ``overflow="raise"`` what was written before the refusal
    is discarded.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import open_tensors, save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[3.0, 4.0, 0.0, 0.0]], np.float16))
    ...     report = apply_dose(f"{folder}/h.npy", f"{folder}/e.npy", [1, 1, -1, -1], 0.1)
    ...     open_tensors(f"{folder}/e.npy")[0].read()
    array([[ 3.25,  4.25, -0.25, -0.25]], dtype=float16)
    >>> report.rms_realised
    array([0.25])
    """
    _arguments.check_choice("apply_dose", "zero", zero, ("raise", "keep"))
    tensors = choose(file, tensor, format, dtype, shape)
    check_readable(file, tensors)
    check_any_dosed(file, tensors, tensor)
    options: dict[str, Any] = {
        "scale_name": scale_name, "direction_scale": direction_scale, "storage": storage,
        "edit_format": edit_format, "path": path, "rounding": rounding, "seed": seed,
        "overflow": overflow, "threads": threads,
    }  # fmt: skip
    edits = [
        _edit(file, each, axis, direction, alpha, scale, options)
        for each in tensors
        if undosed(each) is None
    ]
    fields: dict[str, Array] = {}
    for name in DoseReport.names():
        kind = getattr(edits[0].tried, name).dtype
        fields[name] = room((sum(each.rows for each in edits),), kind)
    edited = {e.tensor.name: replace(e.tensor, dtype=_formats(e)["storage"]) for e in edits}
    before, like = 0, [edited.get(each.name, each) for each in tensors]
    with telling("apply_dose", progress, tensors) as told, writing(out, like) as put:
        for same in tensors:
            if same.name not in edited:
                for box, values in same.blocks():
                    put(same.name, box, values)
                    told(values.nbytes)
        for each in edits:
            for first, box, values in runs(each.tensor, each.axis):
                rows = slice(first, first + math.prod(kept(values.shape, each.axis)))
                sized = scale if isinstance(scale, str) else each.part(each.scales, rows, values)
                try:
                    after, report = dose.apply_dose(
                        values, direction, each.part(each.alphas, rows, values), axis=axis,
                        scale=sized, first_row=first, zero=zero, format=each.tensor.format,
                        **options,
                    )  # fmt: skip
                except ValueError as error:
                    name = each.tensor.name
                    text = f"tensor {name!r}: {placed(error, kept(box, each.axis))}"
                    raise ValueError(f"{file}: {text}") from error
                put(each.tensor.name, box, after)
                there = slice(before + rows.start, before + rows.stop)
                for name, found in fields.items():
                    found[there] = np.ravel(getattr(report, name))
                told(values.nbytes)
            before += each.rows
    if len(edits) == 1:
        fields = {name: found.reshape(edits[0].alphas.shape) for name, found in fields.items()}
    texts = [_formats(each) for each in edits]
    formats = {name: ", ".join(dict.fromkeys(t[name] for t in texts)) for name in texts[0]}
    header = {**edits[0].tried.header, "measured_at": f"in {os.fspath(out)}, after the edit"}
    return DoseReport({**header, "rows": before, "formats": formats, "zero": zero}, **fields)


class _Edit(NamedTuple):
    """The edit of a tensor, its arguments checked."""

    tensor: Tensor
    axis: int | None
    alphas: Array  # of the shape of the rows
    scales: Array
    tried: DoseReport  # of one row

    @property
    def rows(self) -> int:
        return self.alphas.size

    def part(self, numbers: Array, rows: slice, values: Array) -> Array:
        """One number for each row of a block."""
        return numbers.reshape(-1)[rows].reshape(kept(values.shape, self.axis))


def _edit(
    file: StrPath, tensor: Tensor, axis: int, direction: Any, alpha: Any, scale: Any,
    options: Mapping[str, Any],
) -> _Edit:  # fmt: skip
    """Check the arguments on the tensor, and try them on a row of ones."""
    try:
        k = checked_axis(tensor, axis)
        shape = kept(tensor.shape, k)
        alphas = _arguments.finite_numbers("apply_dose", "alpha", alpha, shape)
        sized = scale if isinstance(scale, str) else 1.0
        scales = np.ones(()) if sized is scale else _sizes(scale, shape)
        row = np.ones((1, 1 if k is None else tensor.shape[k]), tensor.stored)
        check_direction("apply_dose", direction)
        tried = dose.apply_dose(
            row, direction, 0.0, scale=sized, zero="keep", format=tensor.format, **options
        ).report
    except (TypeError, ValueError) as error:
        raise type(error)(f"{file}: tensor {tensor.name!r}: {reason(error)}") from error
    assert tried is not None
    return _Edit(tensor, k, alphas, scales, tried)


def _sizes(scale: Any, shape: tuple[int, ...]) -> Array:
    found = _arguments.finite_numbers("apply_dose", "scale", scale, shape)
    if (found < 0).any():
        raise _arguments.fail("apply_dose", "scale", "be non-negative", found.min())
    return found


def _formats(edit: _Edit) -> dict[str, str]:
    found: dict[str, str] = edit.tried.header["formats"]
    return found


def runs(tensor: Tensor, axis: int | None) -> Iterator[tuple[int, Box, Array]]:
    """Boxes of whole rows that follow one another in C order, and the first row of each."""
    shape = kept(tensor.shape, axis)
    for box, values in whole_rows(tensor, axis):
        for run in _runs(box, tensor.shape, axis):
            starts = tuple(part.start for part in kept(run, axis))
            first = np.ravel_multi_index(starts, shape) if starts else 0
            part = tuple(
                slice(r.start - b.start, r.stop - b.start) for r, b in zip(run, box, strict=True)
            )
            yield int(first), run, values[part]


def _runs(box: Box, shape: tuple[int, ...], axis: int | None) -> Iterator[Box]:
    """The parts of a box of whole rows that follow one another in C order."""
    others = [k for k in range(len(shape)) if k != axis]
    partial = [k for k in others if box[k].stop - box[k].start < shape[k]]
    apart = [k for k in others if partial and k < partial[-1]]
    for index in np.ndindex(*(box[k].stop - box[k].start for k in apart)):
        run = list(box)
        for k, i in zip(apart, index, strict=True):
            run[k] = slice(box[k].start + i, box[k].start + i + 1)
        yield tuple(run)
