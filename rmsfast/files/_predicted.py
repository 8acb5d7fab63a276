"""Doses of the rows of whole files: `predict_dose`, `measure_dose`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rmsfast import _formats, dose
from rmsfast._dose_report import DosePrediction, DoseReport
from rmsfast.files._dosed import runs
from rmsfast.files._open import StrPath
from rmsfast.files._pairs import alike, fault_of, pairs
from rmsfast.files._rows import (
    Names,
    Progress,
    check_any_dosed,
    check_direction,
    checked_axis,
    choose,
    kept,
    named_errors,
    placed,
    room,
    telling,
    undosed,
    whole_rows,
)
from rmsfast.files._tensors import Array, Box, Tensor


@dataclass(frozen=True)
class Predicted:
    """What doses would make of the rows of a tensor.

    Attributes
    ----------
    name, shape, dtype
        As in `Tensor`.
    prediction : DosePrediction
        Fields of the shape of the rows, and the alphas along the last axis.
    floor : ndarray
        As `rmsfast.dose_floor` gives it, of the shape of the rows.
    error : str or None
        Why no dose can be given to the tensor, as to integers; there is no prediction then.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    prediction: DosePrediction | None = None
    floor: Array | None = None
    error: str | None = None


@dataclass(frozen=True)
class Measured:
    """The doses that the rows of a tensor received.

    Attributes
    ----------
    name, shape, dtype
        As in `Tensor`, of the clean state.
    report : DoseReport
        Fields of the shape of the rows.
    error : str or None
        As of `Predicted`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    report: DoseReport | None = None
    error: str | None = None


def predict_dose(
    path: StrPath,
    direction: Any,
    alphas: Any,
    /,
    *,
    axis: int = -1,
    storage: str | None = None,
    tolerance: float = 0.1,
    tensor: Names = None,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Predicted]:
    """The reports that `apply_dose` would give for many doses; every value is read once.

    Parameters
    ----------
    path, axis, tensor, format, dtype, shape, progress
        As for `normalize`.
    direction, alphas, storage
        As for `rmsfast.predict_dose`.
    tolerance : float
        Of the floors, as for `rmsfast.dose_floor`.
    **options
        Of `rmsfast.predict_dose`: `scale`, `direction_scale`, `edit_format`, `path`, `rounding`,
        `seed`, `overflow`, `zero`, `threads`.

    Returns
    -------
    list of Predicted

    Raises
    ------
    OSError, TypeError, ValueError, ImportError
        As `normalize`, and as `rmsfast.predict_dose`.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[2.0, -2.0, 2.0, 2.0]], np.float32))
    ...     [found] = predict_dose(f"{folder}/h.npy", [1, -1, 1, 1], [0.03], storage="bfloat16")
    >>> found.prediction.rms_realised
    array([[0.0625]])
    """
    check_direction("predict_dose", direction)
    tensors = choose(path, tensor, format, dtype, shape)
    check_any_dosed(path, tensors, tensor)
    found = []
    dosed = [each for each in tensors if undosed(each) is None]
    with telling("predict_dose", progress, dosed) as told:
        for each in tensors:
            if (why := undosed(each)) is not None:
                found.append(Predicted(each.name, each.shape, each.dtype, error=why))
                continue
            with named_errors(path, each):
                rows = _predicted(each, axis, direction, alphas, storage, tolerance, told, options)
                prediction, floor = rows.table(DosePrediction), rows.values["floor"]
            found.append(Predicted(each.name, each.shape, each.dtype, prediction, floor))
    return found


def measure_dose(
    path: StrPath,
    path_after: StrPath,
    /,
    *,
    measured_at: str,
    clean_source: str,
    axis: int = -1,
    tensor: Names = None,
    format: str | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> list[Measured]:
    """Report the dose that rows received, from files of states before and after an edit.

    Parameters
    ----------
    path, path_after : path_like
        The clean states and those after the edit; their tensors go together as for `compare`.
    measured_at, clean_source : str
        Where they come from, as for `rmsfast.measure_dose`.
    axis, tensor, format, dtype, shape, progress
        As for `normalize`.
    **options
        Of `rmsfast.measure_dose`: `direction`, `alpha`, `scale`, `direction_scale`, `threads`.

    Returns
    -------
    list of Measured

    Raises
    ------
    OSError, TypeError, ValueError, ImportError
        As `normalize`, for tensors that do not go together, and as `rmsfast.measure_dose`.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_npy(f"{folder}/h.npy", np.array([[2.0, -2.0, 2.0, 2.0]], np.float32))
    ...     save_npy(f"{folder}/y.npy", np.array([[2.5, -2.5, 2.5, 2.5]], np.float32))
    ...     [found] = measure_dose(
    ...         f"{folder}/h.npy", f"{folder}/y.npy", direction=[1, -1, 1, 1],
    ...         measured_at="in y.npy", clean_source="h.npy")
    >>> found.report.alpha_projected
    array([0.25])
    """
    if options.get("direction") is not None:
        check_direction("measure_dose", options["direction"])
    found = []
    both = pairs(path, path_after, tensor, format, dtype, shape)
    check_any_dosed(path, [clean for clean, _ in both], tensor)
    dosed = [each for pair in both if undosed(pair[0]) is None for each in pair]
    with telling("measure_dose", progress, dosed) as told:
        for clean, after in both:
            if (why := undosed(clean)) is not None:
                found.append(Measured(clean.name, clean.shape, clean.dtype, error=why))
                continue
            with named_errors(path, clean):
                rows = _measured(clean, after, axis, measured_at, clean_source, told, options)
                report = rows.table(DoseReport)
            found.append(Measured(clean.name, clean.shape, clean.dtype, report))
    return found


Report = TypeVar("Report", bound=DoseReport)


class _Rows:
    """Fields with a value for each row of a tensor, filled block by block."""

    def __init__(self, tensor: Tensor, axis: int) -> None:
        self.axis = checked_axis(tensor, axis)
        self.shape = kept(tensor.shape, self.axis)
        self.header: dict[str, Any] = {}
        self.values: dict[str, Array] = {}

    def put(self, box: Box, found: dict[str, Any]) -> None:
        """Take the fields of the rows of a box, and the header of the first."""
        header = found.pop("header")
        self.header = self.header or header
        rows = kept(box, self.axis)
        for name, given in found.items():
            part = np.asarray(given)
            if name not in self.values:
                self.values[name] = room(self.shape + part.shape[len(self.shape) :], part.dtype)
            self.values[name][rows] = part

    def table(self, kind: type[Report]) -> Report:
        """The report of all rows."""
        if not self.values:
            raise ValueError("holds no values")
        fields = {name: self.values[name] for name in kind.names()}
        return kind({**self.header, "rows": math.prod(self.shape)}, **fields)


def _predicted(
    tensor: Tensor, axis: int, direction: Any, alphas: Any, storage: str | None, tolerance: float,
    told: Callable[[int], None], options: dict[str, Any],
) -> _Rows:  # fmt: skip
    """What `rmsfast.predict_dose` and `dose_floor` tell of the rows of a tensor."""
    rows = _Rows(tensor, axis)
    for first, box, values in runs(tensor, rows.axis):
        try:
            tried = dose.predict_dose(
                values, direction, alphas, axis=axis, storage=storage, format=tensor.format,
                first_row=first, **options,
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(placed(error, kept(box, rows.axis))) from error
        floor = dose.dose_floor(
            _formats.decoded(values, str(tensor.format)),
            storage=storage or tensor.format or tensor.dtype, tolerance=tolerance, axis=axis,
            threads=options.get("threads"),
        )  # fmt: skip
        rows.put(box, tried.to_dict() | {"floor": floor})
        told(values.nbytes)
    return rows


def _measured(
    clean: Tensor, after: Tensor, axis: int, measured_at: str, clean_source: str,
    told: Callable[[int], None], options: dict[str, Any],
) -> _Rows:  # fmt: skip
    """What `rmsfast.measure_dose` tells of the rows of two tensors."""
    if why := fault_of(clean, after):
        raise ValueError(why)
    rows = _Rows(clean, axis)
    for box, values in whole_rows(clean, rows.axis):
        before, behind, codes = alike(clean, after, values, after.values(box))
        report = dose.measure_dose(
            before, behind, measured_at=measured_at, clean_source=clean_source, axis=axis,
            format=codes, **options,
        )  # fmt: skip
        rows.put(box, report.to_dict())
        told(before.nbytes + behind.nbytes)
    return rows
