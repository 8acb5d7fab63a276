"""What runs in the tasks of Dask: the states of chunks, how they are joined, what is made of them.

A *state* is a row of float64 that stands for a run of a row of the array: partials, moments or
matches, as the kernels know them. Chunks hand on arrays of states, of a dtype with one field, in
the place that their coordinates have in the array, so that Dask keeps books of the axes as usual.
Kernels run on the thread of the task: Dask's own threads are the parallelism.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _partial, _ratios, _reports, _sums
from rmsfast._inputs import Inputs
from rmsfast._scaled import Scaled

Array = np.ndarray
AROUND = ("where", "weights", "nan_policy", "dtype", "format")
PIECE = 1 << 12  # rows of which numbers are held beside what becomes of them


class Form(NamedTuple):
    """What a state is made of: for each part, the kernel that joins runs, and that of nothing."""

    folds: tuple[str, ...]
    nothing: tuple[tuple[float, ...], ...]
    # The module of the fields, those of the largest size, of the index where it is, of the length.
    peak: tuple[str, ...] = ()

    def places(self) -> list[int]:
        module, *names = self.peak
        return [getattr(_launch.kernel_module(module), name) for name in names]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype([("state", np.float64, (sum(map(len, self.nothing)),))])


SQUARES = Form(("fold_partials",), (_partial.EMPTY,))
EXTENTS = Form(("fold_extents",), (_partial.EMPTY_EXTENT,))
MOMENTS = Form(
    ("fold_moments",),
    (_reports.DESCRIBE.nothing,),
    ("_describe_kernels", "LEAST", "MOST", "INDEX", "LENGTH"),
)
MATCHES = Form(
    ("fold_matches",),
    (_reports.COMPARE.nothing,),
    ("_compare_kernels", "WORST", "WORST", "WORST_INDEX", "LENGTH"),
)


class Task(NamedTuple):
    """A reduction as its tasks see it."""

    function: str
    names: tuple[str, ...]  # of the arrays of which a task is given blocks, in order
    axes: tuple[int, ...]  # that are reduced
    options: dict[str, Any]  # arguments that are no arrays
    form: Form
    lead: int | None = None  # axis along which every block is handed on by itself, if chunks allow
    reference: str | None = None  # size whose states follow those of the errors
    lengths: tuple[int, ...] = ()  # of whole rows, where states tell indices

    def inputs(self, blocks: Sequence[Any]) -> Inputs:
        given = self.given(blocks)
        pair = tuple(given[name] for name in ("x", "x_hat") if name in given)
        around: dict[str, Any] = {name: given.get(name) for name in AROUND}
        return Inputs(
            self.function, pair, axis=self.axes, keepdims=True, out=None, threads=1, **around
        )

    def given(self, blocks: Sequence[Any]) -> dict[str, Any]:
        return dict(zip(self.names, map(only, blocks), strict=True)) | self.options


def only(block: Any) -> Any:
    """The one block along contracted axes, which Dask hands over in lists."""
    while isinstance(block, list):
        (block,) = block
    return block


def whole(*blocks: Any, task: Task, **options: Any) -> Any:
    """The result of a reduction of whole rows: that of the public function."""
    import rmsfast

    given = task.given(blocks)
    pair = [given.pop(name) for name in ("x", "x_hat") if name in given]
    function = getattr(rmsfast, task.function)
    return function(*pair, axis=task.axes, threads=1, **given, **options)


def scaled(*blocks: Any, function: str, names: tuple[str, ...], options: dict[str, Any]) -> Any:
    """A chunk scaled: of whole rows by the public function, else by the partials of its rows."""
    import rmsfast

    given = dict(zip(names, blocks, strict=True)) | options
    x, partials = given.pop("x"), given.pop("partials", None)
    if partials is None:
        return getattr(rmsfast, function)(x, threads=1, **given)
    around = {name: given.pop(name) for name in ("axis", "dtype", "format")}
    if 0 in x.shape:
        return np.empty(x.shape, around["dtype"])
    job = Scaled(
        function, x, where=None, out=None, return_rms=False, threads=1, totals=totals(partials),
        **around,
    )  # fmt: skip
    if function == "rms_norm":
        return job.normalized(given.pop("gain", None), **given)
    return job.result(given["zero"], given.get("target", 1.0))


# States -----------------------------------------------------------------------------------------


def states(*blocks: Any, task: Task) -> Array:
    """The states of the rows of a chunk: one of all its coordinates, or one a block."""
    given = task.given(blocks)
    shape = np.broadcast_shapes(*(np.shape(given[n]) for n in ("x", "x_hat") if n in given))
    kept = [1 if k in task.axes else n for k, n in enumerate(shape)]
    if 0 in shape:
        found = np.tile(np.concatenate(task.form.nothing), (*kept, 1))
    else:
        _launch.kernels()
        if task.form.peak:
            found = _in_whole_rows(_reports.block_states(task.inputs(blocks)), shape, task, given)
        else:
            found = beside(list(_squares(task, blocks)))
        if task.lead is None:
            found = joined(found, task.form)
        else:  # rows x blocks, to where the axis is
            kept[task.lead] = found.shape[1]
            before = sum(k not in task.axes for k in range(task.lead))
            rows = [n for k, n in enumerate(shape) if k not in task.axes]
            found = np.moveaxis(found.reshape(*rows, *found.shape[1:]), -2, before)
    return packed(found.reshape(*kept, found.shape[-1]), task.form)


def _squares(task: Task, blocks: Sequence[Any]) -> Iterator[Array]:
    """Partials, rows x blocks x fields, of the errors or values, then of the reference."""
    centres = only(blocks[-1]) if task.names[-1] == "centres" else None
    inputs = task.inputs(blocks)
    omit = True if inputs.nan_policy != "propagate" else None
    exact = _sums.exact(inputs.kinds, inputs.dtype, inputs.weights is not None)
    walk = _layout.walk(inputs.shape, inputs.axes, inputs.operands())

    def partials(walk: _layout.Walk, how: _sums.How) -> Array:
        count = -(-walk.plan.length // _partial.BLOCK)
        found = _sums.blocks_of(walk, how, _sums.everything(walk.plan), 0, count, 1)
        shape = (walk.plan.rows, count, found.shape[-1])
        return _layout.in_order(found.reshape(shape), walk.plan).reshape(shape)

    if task.form != EXTENTS:
        yield partials(walk, (omit, exact, None))
    if task.reference is None:
        return
    own, _ = _ratios.size_operands(inputs, task.reference)
    extents = None if task.form.folds[-1] == "fold_partials" else True
    if centres is not None:
        means = rounded_means(centres)[0].reshape(centres.shape)
        own[1] = np.broadcast_to(means, inputs.shape), "float64"
    exact = True if extents or centres is not None else exact
    walk = _layout.walk(inputs.shape, inputs.axes, own, walk.plan.order)
    yield partials(walk, (omit, exact, extents))


def _in_whole_rows(
    found: Array, shape: tuple[int, ...], task: Task, given: dict[str, Any]
) -> Array:
    """States of blocks of a chunk with indices that count from the start of whole rows."""
    *_, field, length = task.form.places()
    starts = [int(given.get(f"start{k}", [0])[0]) for k in task.axes]
    for part in pieces(len(found), found.shape[1]):
        index = found[part, :, field].astype(np.int64) + _partial.BLOCK * np.arange(found.shape[1])
        places = np.unravel_index(np.maximum(index, 0), [shape[k] for k in task.axes])
        places = tuple(place + start for place, start in zip(places, starts, strict=True))
        whole_index = np.ravel_multi_index(places, task.lengths)
        found[part, :, field] = np.where(found[part, :, field] < 0, -1, whole_index)
    found[..., length] = 0.0  # or it would be added to the indices of later runs
    return found


def pieces(rows: int, size: int = 1) -> Iterator[slice]:
    """So few rows at a time that numbers of them, of this size, take next to no room."""
    step = max(1, PIECE // size)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def beside(parts: list[Array]) -> Array:
    return np.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def packed(found: Array, form: Form) -> Array:
    records: Array = np.ascontiguousarray(found).view(form.dtype)[..., 0]
    return records


def joined(found: Array, form: Form) -> Array:
    """Fold the states of neighbouring runs, rows x runs x fields, in order."""
    _launch.kernels()
    rows, runs = found.shape[:2]
    if runs == 1:
        return found[:, 0]
    parts, first = [], 0
    for fold, nothing in zip(form.folds, form.nothing, strict=True):
        end = first + len(nothing)
        part = found[..., first:end].reshape(rows * runs, end - first)
        total = np.tile(np.array(nothing), (rows, 1))
        args = (np.ascontiguousarray(part), runs, total, 0, rows)
        _launch.call(_launch.kernel(fold), args)
        parts.append(total)
        first = end
    total = beside(parts)
    if form.peak:
        total[:, form.places()[2]] = _first_peak(found, total, form)
    return total


def _first_peak(found: Array, total: Array, form: Form) -> Array:
    """The least index among runs of the largest size: runs need not lie one after the other."""
    least, most, field, _ = form.places()
    with np.errstate(invalid="ignore"):
        sizes, peak = (
            np.maximum(np.abs(s[..., least]), np.abs(s[..., most])) for s in (found, total)
        )
    peak = peak[:, np.newaxis]
    index = found[..., field]
    first = (index >= 0) & ((sizes == peak) | (np.isnan(sizes) & np.isnan(peak)))
    least_index = np.where(first, index, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least_index), least_index, -1.0)


def same(records: Array, **_: Any) -> Array:
    """Part of a reduction: states that are handed on as they are."""
    return records


def combined(records: Array, axis: tuple[int, ...], form: Form, **_: Any) -> Array:
    """The states of rows of which these are the runs, in the order of their places."""
    kept = [1 if k in axis else n for k, n in enumerate(records.shape)]
    ndim = records.ndim
    runs = np.moveaxis(records["state"], axis, range(ndim - len(axis), ndim))
    rows = np.prod([n for k, n in enumerate(records.shape) if k not in axis], dtype=int)
    found = runs.reshape(rows, -1 if rows else 0, runs.shape[-1])
    return packed(joined(found, form).reshape(*kept, runs.shape[-1]), form)


# Results ----------------------------------------------------------------------------------------


def roots(records: Any, task: Task, dtype: np.dtype, single: bool, keepdims: bool) -> Any:
    """Root mean squares of partials; the last refusals."""
    found = totals(records)
    out, flags = np.empty(len(found), np.float32 if single else np.float64), _flags(found)
    _sums.finish(found, out, flags)
    return _result(out, flags, only(records), task, dtype, keepdims)


def ratios(
    records: Any, *around: Any, task: Task, dtype: np.dtype, zero: str, keepdims: bool
) -> Any:
    """Relative errors of partials; around: states of centres, or the size itself."""
    found = totals(records)
    kernels = _launch.kernel_module("_relative")
    kind, numbers = kernels.NUMBER, np.zeros((len(found), 3))
    if task.reference is None:
        shape = _shape(only(records), task, keepdims)
        sizes = _arguments.sizes(task.function, only(around[0]), shape)
        numbers[:, 0] = sizes.reshape(-1)
    else:
        kind = getattr(kernels, _ratios.REFERENCES[task.reference])
        if around:
            numbers = rounded_means(around[0])[1]
    parts = np.split(found, [_partial.FIELDS], axis=1) if task.reference else [found]
    errors, sizes = (np.ascontiguousarray(part) for part in (parts[0], parts[-1]))
    out, flags = np.empty(len(found)), _flags(found)
    _launch.call(kernels.ratios, (errors, sizes, kind, numbers, out, flags, 0, len(found)))
    if zero != "ieee" and (flags & 4).any():
        if zero == "raise":
            shape = _shape(only(records), task, False)
            raise _arguments.zero_rows(task.function, "reference", (flags & 4).reshape(shape))
        out[(flags & 4) > 0] = np.nan
    return _result(out, flags, only(records), task, dtype, keepdims)


def records_of(table: Any, dtype: np.dtype) -> Any:
    """The fields of a table, and its roots, as one structured array."""
    records = np.empty(np.shape(table.count), dtype)
    for name in table.names():
        records[name] = getattr(table, name)
    records["roots"] = np.moveaxis(np.asarray(table._roots), 0, -1)
    return records[()]  # a scalar of one row


def whole_table(*blocks: Any, task: Task, dtype: np.dtype) -> Any:
    """What the public function tells of a chunk of whole rows, some of them at a time."""
    shape = np.broadcast_shapes(*(np.shape(only(block)) for block in blocks))
    rows = [k for k in range(len(shape)) if k not in task.axes]
    count = math.prod(shape[k] for k in rows)
    if count <= PIECE:
        return records_of(whole(*blocks, task=task), dtype)
    axis = max(rows, key=lambda k: shape[k])
    records = np.empty([shape[k] for k in rows], dtype)
    for part in pieces(shape[axis], count // shape[axis]):
        some = [_along(only(block), axis - len(shape), part) for block in blocks]
        place = (slice(None),) * rows.index(axis)
        records[(*place, part)] = records_of(whole(*some, task=task), dtype)
    return records


def _along(block: Array, axis: int, part: slice) -> Array:
    """Part of a block along an axis counted from the last, along which it may be broadcast."""
    if block.ndim < -axis or block.shape[axis] == 1:
        return block
    places: list[Any] = [slice(None)] * block.ndim
    places[axis] = part
    found: Array = block[tuple(places)]
    return found


def table(records: Any, task: Task, made: _reports.Made, dtype: np.dtype) -> Any:
    """What is told of the states of whole rows."""
    found = totals(records)
    result = np.empty(len(found), dtype)
    for part in pieces(len(found)):
        numbers = (list(each) for each in _reports.reports_of(made, found[part]))
        result[part] = records_of(_reports.told(made, *numbers), dtype)
    return result.reshape(_shape(only(records), task, False))[()]


def totals(records: Any) -> Array:
    """The states of whole rows as the kernels take them, one a row."""
    _launch.kernels()
    found = only(records)["state"]
    return np.ascontiguousarray(found).reshape(-1, found.shape[-1])


def rounded_means(extents: Any) -> tuple[Array, Array]:
    """Means of rows, and what rounding took from them."""
    found = totals(extents)
    means, lost = np.empty(len(found)), np.zeros((len(found), 3))
    _launch.call(_launch.kernel("means"), (found, means, lost, 0, len(found)))
    return means, lost


def _flags(found: Array) -> Array:
    return np.zeros(len(found), np.uint8)


def _shape(records: Array, task: Task, keepdims: bool) -> tuple[int, ...]:
    if keepdims:
        return records.shape
    return tuple(n for k, n in enumerate(records.shape) if k not in task.axes)


def _result(
    out: Array, flags: Array, records: Array, task: Task, dtype: np.dtype, keepdims: bool
) -> Any:
    names = tuple(name for name in ("x", "x_hat") if name in task.names or name in task.options)
    _arguments.check_flags(task.function, names, flags, task.options["nan_policy"])
    if out.dtype != dtype:
        out = _formats.rounded(out, dtype)
    return out.reshape(_shape(records, task, keepdims))[()]
