"""What runs in the tasks of Dask: the states of chunks, how they are joined, what is made of them.

A *state* is a row of float64 that stands for a run of a row of the array: partials, moments or
matches, as the kernels know them. Chunks hand on arrays of states, of a dtype with one field, in
the place that their coordinates have in the array, so that Dask keeps books of the axes as usual.
Kernels run on the thread of the task: Dask's own threads are the parallelism.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _partial, _ratios, _reports, _sums
from rmsfast._inputs import Inputs
from rmsfast._scaled import Scaled
from rmsfast.dask._pieces import (
    ROWS,
    STATES,
    Array,
    boxes,
    by_rows,
    rows_of,
    upright,
    without,
)

AROUND = ("where", "weights", "nan_policy", "dtype", "format")


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
COMPLEX = Form(("fold_complex",), (_partial.EMPTY_COMPLEX,))
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


def whole(*blocks: Any, task: Task, dtype: np.dtype, keepdims: bool, **options: Any) -> Any:
    """The results of a reduction of whole rows: those of the public function."""
    parts = [only(block) for block in blocks]
    out = np.empty(_one_a_row(parts, task), dtype)
    if "reference" in task.names:
        parts[-1] = upright(parts[-1], task.axes, out.ndim)

    def fill(out: Array, *blocks: Array) -> None:
        _public(blocks, task, keepdims=True, out=out, **options)

    return without(by_rows(fill, out, parts, task.axes, STATES), task.axes, keepdims)


def _public(blocks: Sequence[Any], task: Task, **options: Any) -> Any:
    import rmsfast

    given = task.given(blocks)
    pair = [given.pop(name) for name in ("x", "x_hat") if name in given]
    function = getattr(rmsfast, task.function)
    return function(*pair, axis=task.axes, threads=1, **given, **options)


def _one_a_row(blocks: Sequence[Any], task: Task) -> list[int]:
    """The shape of a chunk, of length 1 along reduced axes."""
    given = task.given(blocks)
    shape = np.broadcast_shapes(*(np.shape(given[n]) for n in ("x", "x_hat") if n in given))
    return [1 if k in task.axes else n for k, n in enumerate(shape)]


def scaled(
    *blocks: Any, function: str, names: tuple[str, ...], options: dict[str, Any], dtype: np.dtype
) -> Any:
    """A chunk scaled: of whole rows by the public function, else by the partials of its rows."""
    import rmsfast

    given = dict(zip(names, blocks, strict=True))
    x, axes = given["x"], options["axis"]
    around = {"gain": given.pop("gain")} if "gain" in given else {}
    if "target" in given:
        given["target"] = upright(given["target"], axes, x.ndim)
    names = tuple(given)

    def fill(out: Array, *blocks: Array) -> None:
        given = options | around | dict(zip(names, blocks, strict=True))
        x, partials = given.pop("x"), given.pop("partials", None)
        if "target" in given and np.ndim(given["target"]):
            given["target"] = without(given["target"], axes, False)
        if partials is None:
            getattr(rmsfast, function)(x, out=out, threads=1, **given)
            return
        made = {name: given.pop(name) for name in ("axis", "dtype", "format")}
        job = Scaled(
            function, x, where=None, out=out, return_rms=False, threads=1,
            totals=totals(partials), **made,
        )  # fmt: skip
        if function == "rms_norm":
            job.normalized(given.pop("gain", None), **given)
        else:
            job.result(given["zero"], given.get("target", 1.0))

    return by_rows(fill, np.empty(x.shape, dtype), list(given.values()), axes, ROWS)


# States -----------------------------------------------------------------------------------------


def states(*blocks: Any, task: Task) -> Array:
    """The states of the rows of a chunk: one of all its coordinates, or one a block."""
    _launch.kernels()
    parts = [only(block) for block in blocks]
    lengths, given = _one_a_row(parts, task), task.given(parts)
    shape = np.broadcast_shapes(*(np.shape(given[n]) for n in ("x", "x_hat") if n in given))
    numbers = 1 + any(np.iscomplexobj(given[n]) for n in ("x", "x_hat") if n in given)
    count = -(-math.prod(shape[k] for k in task.axes) * numbers // _partial.BLOCK)
    if task.lead is not None:
        lengths[task.lead] = count
    out = np.empty(lengths, task.form.dtype)
    if 0 in shape:
        out["state"] = np.concatenate(task.form.nothing)
        return out
    fill = partial(_fill_peaks if task.form.peak else _fill_sums, task=task)
    return by_rows(fill, out, parts, task.axes, max(1, STATES // count))


def _fill_sums(out: Array, *blocks: Any, task: Task) -> None:
    """Partials of the errors or values, then of the reference."""
    first = 0
    parts = zip(_walks(task, blocks), *task.form[:2], strict=True)
    for (walk, how), kernel, empty in parts:
        every, fields = _sums.everything(walk.plan), len(empty)
        place = slice(first, first + fields)
        first += fields
        if task.lead is None:
            if kernel == "fold_complex":
                found = _ratios.complex_states(walk, how[0])
            else:
                (found,) = _sums.partials([walk], [how], every, 1)
            found = _layout.in_order(found[:, np.newaxis], walk.plan)
            _put(found, out, task, 0, place)
            continue
        for block, count in _runs(-(-walk.plan.length // _partial.BLOCK), walk.plan.rows):
            found = _sums.blocks_of(walk, how, every, block, count, 1)
            found = found.reshape(walk.plan.rows, count, fields)
            _put(_layout.in_order(found, walk.plan), out, task, block, place)


def _walks(task: Task, blocks: Sequence[Any]) -> Iterator[tuple[_layout.Walk, _sums.How]]:
    centres = blocks[-1] if task.names[-1] == "centres" else None
    inputs = task.inputs(blocks)
    omit = True if inputs.nan_policy != "propagate" else None
    exact = _sums.exact(inputs.kinds, inputs.dtype, inputs.weights is not None)
    walk = _layout.walk(inputs.shape, inputs.axes, inputs.operands())
    if task.form not in (EXTENTS, COMPLEX):
        yield walk, (omit, exact, None)
    if task.reference is None:
        return
    own, _ = _ratios.size_operands(inputs, task.reference)
    extents = None if task.form.folds[-1] == "fold_partials" else True
    if centres is not None:
        means = rounded_means(centres)[0].reshape(centres.shape)
        own[1] = np.broadcast_to(means, inputs.shape), means.dtype.name
    exact = True if extents or centres is not None else exact
    yield _layout.walk(inputs.shape, inputs.axes, own, walk.plan.order), (omit, exact, extents)


def _fill_peaks(out: Array, *blocks: Any, task: Task) -> None:
    """States with the index of the largest."""
    inputs, given = task.inputs(blocks), task.given(blocks)
    starts = [int(given.get(f"start{k}", [0])[0]) for k in task.axes]
    rows = math.prod(inputs.rows_shape)
    total = None if task.lead is not None else nothing(task.form, rows)
    for block, found in _reports.block_states(inputs, partial(_runs, rows=rows)):
        _in_whole_rows(found, block, inputs.shape, task, starts)
        if total is None:
            _put(found.reshape(*inputs.rows_shape, *found.shape[1:]), out, task, block)
        else:
            fold(found, task.form, total)
    if total is not None:
        _put(total.reshape(*inputs.rows_shape, 1, -1), out, task)


def _runs(blocks: int, rows: int) -> Iterator[tuple[int, int]]:
    """The first and the number of neighbouring blocks, of which so many rows have few states."""
    step = max(1, STATES // rows)
    return ((first, min(step, blocks - first)) for first in range(0, blocks, step))


def _put(found: Array, out: Array, task: Task, first: int = 0, fields: slice = slice(None)) -> None:
    """Store states, axes of rows x blocks x fields, where the axes are."""
    rows, (count, _) = out.ndim - len(task.axes), found.shape[-2:]
    lengths = [count if k == task.lead else 1 for k in task.axes]
    found = found.reshape(*found.shape[:rows], *lengths, found.shape[-1])
    place = [slice(None)] * out.ndim
    if task.lead is not None:
        place[task.lead] = slice(first, first + count)
    out["state"][(*place, fields)] = np.moveaxis(found, range(rows, out.ndim), task.axes)


def _in_whole_rows(
    found: Array, block: int, shape: tuple[int, ...], task: Task, starts: list[int]
) -> None:
    """Have indices in states of blocks of a chunk count from the start of whole rows."""
    *_, field, length = task.form.places()
    index = found[..., field].astype(np.int64)
    index += _partial.BLOCK * np.arange(block, block + found.shape[1])
    places = np.unravel_index(np.maximum(index, 0), [shape[k] for k in task.axes])
    places = tuple(place + start for place, start in zip(places, starts, strict=True))
    whole_index = np.ravel_multi_index(places, task.lengths)
    found[..., field] = np.where(found[..., field] < 0, -1, whole_index)
    found[..., length] = 0.0  # or it would be added to the indices of later runs


def nothing(form: Form, rows: int) -> Array:
    """States of no coordinates."""
    return np.tile(np.concatenate(form.nothing), (rows, 1))


def fold(found: Array, form: Form, total: Array) -> None:
    """Add the states of neighbouring runs, rows x runs x fields, to those before, in order."""
    rows, runs = found.shape[:2]
    before = _peaks(total, form) if form.peak else ()
    first = 0
    for kernel, empty in zip(form.folds, form.nothing, strict=True):
        end = first + len(empty)
        part = np.ascontiguousarray(found[..., first:end]).reshape(rows * runs, end - first)
        own = np.ascontiguousarray(total[:, first:end])
        _launch.call(_launch.kernel(kernel), (part, runs, own, 0, rows))
        total[:, first:end] = own
        first = end
    if form.peak:  # the least index of the largest: runs need not lie one after the other
        pairs = zip(before, _peaks(found, form), strict=True)
        sizes, index = (np.column_stack(pair) for pair in pairs)
        peak = _peaks(total, form)[0][:, np.newaxis]
        where = (index >= 0) & ((sizes == peak) | (np.isnan(sizes) & np.isnan(peak)))
        least = np.where(where, index, np.inf).min(axis=1)
        total[:, form.places()[2]] = np.where(np.isfinite(least), least, -1.0)


def _peaks(found: Array, form: Form) -> tuple[Array, Array]:
    """The largest sizes in states, and their indices."""
    least, most, field, _ = form.places()
    with np.errstate(invalid="ignore"):
        sizes = np.maximum(np.abs(found[..., least]), np.abs(found[..., most]))
    return sizes, found[..., field].copy()


def same(records: Array, **_: Any) -> Array:
    """Part of a reduction: states that are handed on as they are."""
    return records


def combined(records: Array, axis: tuple[int, ...], form: Form, **_: Any) -> Array:
    """The states of rows of which these are the runs, in the order of their places."""
    _launch.kernels()
    out = np.empty([1 if k in axis else n for k, n in enumerate(records.shape)], form.dtype)
    runs = math.prod(records.shape[k] for k in axis)
    fill = partial(_combine, axis=axis, form=form)
    return by_rows(fill, out, [records], axis, max(1, STATES // runs))


def _combine(out: Array, records: Array, axis: tuple[int, ...], form: Form) -> None:
    total, ndim = nothing(form, out.size), records.ndim
    lengths = [n if k in axis else 1 for k, n in enumerate(records.shape)]
    others = tuple(k for k in range(ndim) if k not in axis)
    for box in boxes(lengths, max(1, STATES // out.size)):
        found = records["state"][rows_of(box, others)]
        found = np.moveaxis(found, axis, range(ndim - len(axis), ndim))
        fold(found.reshape(out.size, -1, found.shape[-1]), form, total)
    out["state"] = total.reshape(*out.shape, -1)


# Results ----------------------------------------------------------------------------------------


def roots(records: Any, task: Task, dtype: np.dtype, single: bool, keepdims: bool) -> Any:
    """Root mean squares of partials; the last refusals."""
    records = only(records)

    def fill(out: Array, records: Array) -> None:
        found = totals(records)
        sizes, flags = np.empty(len(found), np.float32 if single else np.float64), _flags(found)
        _sums.finish(found, sizes, flags)
        _result(sizes, flags, out, task)

    out = by_rows(fill, np.empty(records.shape, dtype), [records], task.axes, STATES)
    return without(out, task.axes, keepdims)


def ratios(
    records: Any, *around: Any, task: Task, dtype: np.dtype, zero: str, keepdims: bool
) -> Any:
    """Relative errors of partials; around: states of centres, or the size itself."""
    blocks = [only(records), *map(only, around)]
    out = np.empty(blocks[0].shape, dtype)
    if task.reference is None:
        blocks[1] = upright(blocks[1], task.axes, out.ndim)
    fill = partial(_fill_ratios, task=task, zero=zero)
    return without(by_rows(fill, out, blocks, task.axes, STATES), task.axes, keepdims)


def _fill_ratios(out: Array, records: Array, *around: Array, task: Task, zero: str) -> None:
    found = totals(records)
    kernels = _launch.kernel_module("_relative")
    kind, numbers = kernels.NUMBER, np.zeros((len(found), 3))
    if task.reference is None:
        numbers[:, 0] = _arguments.sizes(task.function, around[0], out.shape).reshape(-1)
    else:
        kind = getattr(kernels, _ratios.REFERENCES[task.reference])
        if around:
            numbers = rounded_means(around[0])[1]
    parts = np.split(found, [_partial.FIELDS], axis=1) if task.reference else [found]
    errors, sizes = (np.ascontiguousarray(part) for part in (parts[0], parts[-1]))
    if task.form.folds[-1] == "fold_complex":
        assert task.reference is not None
        kind, numbers = kernels.NUMBER, _ratios.sizes_of_complex(sizes, task.reference)[0]
    quotients, flags = np.empty(len(found)), _flags(found)
    _launch.call(kernels.ratios, (errors, sizes, kind, numbers, quotients, flags, 0, len(found)))
    if zero != "ieee" and (flags & 4).any():
        if zero == "raise":
            zeros = without((flags & 4).reshape(out.shape), task.axes, False)
            raise _arguments.zero_rows(task.function, "reference", zeros)
        quotients[(flags & 4) > 0] = np.nan
    _result(quotients, flags, out, task)


def records_of(table: Any, dtype: np.dtype) -> Any:
    """The fields of a table, and its roots, as one structured array."""
    records = np.empty(np.shape(table.count), dtype)
    for name in table.names():
        records[name] = getattr(table, name)
    records["roots"] = np.moveaxis(np.asarray(table._roots), 0, -1)
    return records


def whole_table(*blocks: Any, task: Task, dtype: np.dtype) -> Any:
    """What the public function tells of a chunk of whole rows."""
    parts = [only(block) for block in blocks]

    def fill(out: Array, *blocks: Array) -> None:
        out[...] = records_of(_public(blocks, task), dtype).reshape(out.shape)

    out = np.empty(_one_a_row(parts, task), dtype)
    # Half as many, as those of complex numbers come twice.
    return without(by_rows(fill, out, parts, task.axes, STATES // 2), task.axes, False)


def table(records: Any, task: Task, made: _reports.Made, dtype: np.dtype) -> Any:
    """What is told of the states of whole rows."""
    records = only(records)

    def fill(out: Array, records: Array) -> None:
        numbers = (list(each) for each in _reports.reports_of(made, totals(records)))
        out[...] = records_of(_reports.told(made, *numbers), dtype).reshape(out.shape)

    out = by_rows(fill, np.empty(records.shape, dtype), [records], task.axes, STATES)
    return without(out, task.axes, False)


def totals(records: Array) -> Array:
    """The states of whole rows as the kernels take them, one a row."""
    _launch.kernels()
    found = records["state"]
    return np.ascontiguousarray(found).reshape(-1, found.shape[-1])


def rounded_means(extents: Array) -> tuple[Array, Array]:
    """Means of rows, and what rounding took from them."""
    found = totals(extents)
    if extents.dtype == COMPLEX.dtype:
        lost, means = _ratios.sizes_of_complex(found, "std")
        return means, lost
    means, lost = np.empty(len(found)), np.zeros((len(found), 3))
    _launch.call(_launch.kernel("means"), (found, means, lost, 0, len(found)))
    return means, lost


def _flags(found: Array) -> Array:
    return np.zeros(len(found), np.uint8)


def _result(found: Array, flags: Array, out: Array, task: Task) -> None:
    names = tuple(name for name in ("x", "x_hat") if name in task.names or name in task.options)
    _arguments.check_flags(task.function, names, flags, task.options["nan_policy"])
    if found.dtype != out.dtype:
        found = _formats.rounded(found, out.dtype)
    out[...] = found.reshape(out.shape)
