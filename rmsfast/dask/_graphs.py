"""From a call to a graph: chunks that match, states of chunks, a tree that joins them, results.

Data is never gathered into other chunks, only cut finer where two arrays differ. Where no reduced
axis is cut, each chunk holds whole rows, and is a call of the public function.
"""

import math
from copy import copy
from functools import partial
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import Alias, DataNode, convert_legacy_graph
from dask.base import clone_key
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

from rmsfast import _arguments, _launch, _ratios, _reports, _sums
from rmsfast._inputs import Inputs
from rmsfast._partial import BLOCK
from rmsfast._scaled import Scaled
from rmsfast.dask import _states
from rmsfast.dask._states import COMPLEX, EXTENTS, MATCHES, MOMENTS, SQUARES, Form, Task
from rmsfast.dask._tables import LazyTable, record_dtype
from rmsfast.reference.summaries import Comparison, Description

APART_BYTES = 1 << 26  # of states of the rows of a chunk: beyond, chunks join those of their blocks

Labels = tuple[int, ...]


class Call:
    """A reduction of Dask arrays: arguments checked, chunks matched."""

    def __init__(
        self, function: str, given: dict[str, Any], options: dict[str, Any], axis: Any,
        keepdims: bool = False,
    ) -> None:  # fmt: skip
        self.function, self.keepdims = function, keepdims
        found = {name: lazy(function, name, a) for name, a in given.items() if a is not None}
        arrays = {name: a for name, a in found.items() if isinstance(a, da.Array)}
        self.options = options | {name: a for name, a in found.items() if name not in arrays}
        alike = {name: like(a) for name, a in found.items()}
        pair = tuple(alike.pop(name) for name in ("x", "x_hat") if name in found)
        alike |= {name: options.get(name) for name in ("nan_policy", "dtype", "format")}
        absent = {"where": None, "weights": None, "out": None, "threads": None}
        self.checked = Inputs(function, pair, axis, keepdims, **absent | alike)
        self.axes, ndim = self.checked.axes, len(self.checked.shape)
        if self.checked.scalar:
            arrays = {name: a.reshape(1) for name, a in arrays.items()}
        self.every = tuple(range(ndim))
        self.rows = tuple(k for k in self.every if k not in self.axes)
        self.out = self.every if keepdims and not self.checked.scalar else self.rows
        self.match(arrays)
        if self.cut and _launch.kernels() is None:  # whole rows, for want of states
            self.match({name: a.rechunk(self.uncut(a)) for name, a in self.arrays.items()})

    def match(self, arrays: dict[str, Any]) -> None:
        """Cut chunks finer where those of two arrays differ."""
        self.arrays = arrays
        chunks, matched = da.unify_chunks(*self.operands(), warn=False)
        self.arrays = dict(zip(arrays, matched, strict=True))
        self.chunks = [chunks[k] for k in self.every]
        self.cut = [k for k in self.axes if len(self.chunks[k]) > 1]
        self.blocks = self.ends_on_blocks()

    def uncut(self, array: Any) -> dict[int, int]:
        return {k - len(self.every): -1 for k in self.axes if k >= len(self.every) - array.ndim}

    def ends_on_blocks(self) -> dict[int, tuple[int, ...]]:
        """The axis along which chunks end on blocks, and how many each has; else empty."""
        shape, long = self.checked.shape, [k for k in self.axes if self.checked.shape[k] > 1]
        if len(self.cut) != 1 or self.cut != long[:1]:
            return {}
        lengths = self.chunks[long[0]]
        step = math.prod(shape[k] for k in long[1:]) * (1 + self.checked.is_complex)
        if any(n * step % BLOCK for n in lengths[:-1]):
            return {}
        return {long[0]: tuple(-(-n * step // BLOCK) for n in lengths)}

    # Graphs -------------------------------------------------------------------------------------

    def whole(self, *more: Any, names: tuple[str, ...] = (), **options: Any) -> Any:
        """The results of chunks that hold whole rows."""
        task = self.task(SQUARES)._replace(names=(*self.arrays, *names))
        task = task._replace(options=self.options | options)
        dtype, keepdims = self.checked.dtype, len(self.out) == len(self.every)
        function = partial(_states.whole, task=task, dtype=dtype, keepdims=keepdims)
        return self.blockwise(function, self.out, dtype, *self.operands(), *more)

    def task(self, form: Form, reference: str | None = None) -> Task:
        rows = math.prod(max(self.chunks[k]) for k in self.rows)
        lead = None
        whole = form.folds[-1] == COMPLEX.folds[0]  # which has a state for a run of any length
        for axis, counts in self.blocks.items() if not whole else ():
            if rows * sum(counts) * form.dtype.itemsize <= APART_BYTES:
                lead = axis
        names = tuple(self.arrays)
        return Task(self.function, names, self.axes, self.options, form, lead, reference)

    def totals(self, task: Task, *more: Any) -> Any:
        """States of whole rows, of length 1 along the reduced axes."""
        lengths = {} if task.lead is None else self.blocks
        dtype = task.form.dtype
        found = self.blockwise(
            partial(_states.states, task=task), self.every, dtype, *self.operands(), *more,
            lengths=lengths,
        )  # fmt: skip
        join = partial(_states.combined, form=task.form)
        return da.reduction(
            found,
            _states.same,
            join,
            axis=self.axes,
            keepdims=True,
            dtype=dtype,
            combine=join if task.lead is None else _states.same,
            meta=found._meta,
            name=f"rmsfast-{self.function}",
        )

    def result(self, function: Any, *operands: Any) -> Any:
        """What a function makes of the states of whole rows."""
        return self.blockwise(function, self.out, self.checked.dtype, *operands)

    def blockwise(
        self, function: Any, out: Labels, dtype: np.dtype, *operands: Any,
        lengths: dict[int, tuple[int, ...]] | None = None,
    ) -> Any:  # fmt: skip
        """What a function makes of blocks, along reduced axes one element a chunk."""
        chunks = {k: (1,) * len(c) if k in self.axes else c for k, c in enumerate(self.chunks)}
        chunks |= lengths or {}
        if lengths is None:
            chunks |= dict.fromkeys(self.axes, (1,))
        return da.blockwise(
            function,
            out,
            *operands,
            adjust_chunks={k: chunks[k] for k in out},
            align_arrays=False,
            dtype=dtype,
            meta=np.empty((0,) * len(out), dtype),
            token=f"rmsfast-{self.function}",
        )

    def operands(self) -> list[Any]:
        """Arrays and the labels of their axes in turn, as Dask takes them."""
        return [each for pair in self.pairs() for each in pair]

    def pairs(self) -> list[tuple[Any, Labels]]:
        last = len(self.every)
        return [(a, self.every[last - a.ndim :]) for a in self.arrays.values()]

    def again(self) -> "Call":
        """The call on arrays that are computed, or read, once more."""
        other = copy(self)
        other.arrays = {name: computed_again(a) for name, a in self.arrays.items()}
        return other


def roots(call: Call, found: Any = None) -> Any:
    """Root mean squares; found: states of rows that are cut, if there are some already."""
    if not call.cut:
        return call.whole()
    task, dtype = call.task(SQUARES), call.checked.dtype
    found = call.totals(task) if found is None else found
    kinds, weighted = call.checked.stored, call.checked.weights is not None
    single = dtype == np.float32 and _sums.exact(kinds, dtype, weighted) is None
    finish = partial(_states.roots, task=task, dtype=dtype, single=single, keepdims=call.keepdims)
    return call.result(finish, found, call.every)


def ratios(call: Call, reference: Any, zero: str) -> Any:
    """Relative errors."""
    function, checked = call.function, call.checked
    _arguments.check_choice(function, "zero", zero, _ratios.ZERO)
    more: list[Any] = []
    if not isinstance(reference, str):
        size = reference if isinstance(reference, da.Array) else np.asarray(reference)
        size = lazy(function, "reference", size)
        _ratios.numbers(checked, like(size))
        labels = call.out[len(call.out) - size.ndim :]
        chunks = {n: call.chunks[k] for n, k in enumerate(labels) if size.shape[n] > 1}
        more = [size.rechunk(chunks), labels]
        if not call.cut:
            return call.whole(*more, names=("reference",), zero=zero)
        task = call.task(SQUARES)
        found = call.totals(task)
    else:
        _ratios.numbers(checked, reference)
        if not call.cut:
            return call.whole(reference=reference, zero=zero)
        squares = reference in ("x", "x_hat", "std")
        extents = COMPLEX if checked.stored[0].startswith("complex") else EXTENTS
        second = SQUARES if squares else extents
        form = Form(SQUARES.folds + second.folds, SQUARES.nothing + second.nothing)
        task = call.task(form, reference)
        if reference == "std":
            first = call.again()
            more = [first.totals(first.task(extents, reference)), call.every]
            around = task._replace(names=(*task.names, "centres"))
            found = call.totals(around, *more)
        else:
            found = call.totals(task)
    finish = partial(
        _states.ratios, task=task, dtype=checked.dtype, zero=zero, keepdims=call.keepdims
    )
    return call.result(finish, found, call.every, *more)


def scaled(
    function: str, x: Any, where: Any, axis: Any, arrays: dict[str, Any], options: dict[str, Any],
    return_rms: bool,
) -> Any:  # fmt: skip
    """Arrays scaled along axis; arrays: a target or gain."""
    x = lazy(function, "x", x)
    if x.ndim == 0:
        found = scaled(function, x.reshape(1), where, axis, arrays, options, return_rms)
        return tuple(a.reshape(()) for a in found) if return_rms else found.reshape(())
    where = None if where is None else lazy(function, "where", where)
    arrays = {name: a for name, a in arrays.items() if a is not None}
    for name, a in arrays.items():
        if isinstance(a, da.Array) or np.ndim(a):
            arrays[name] = lazy(function, name, a)
    around = {name: options.pop(name) for name in ("dtype", "format")}
    checked = Scaled(
        function, like(x), axis, where if where is None else like(where), out=None,
        return_rms=return_rms, threads=None, **around,
    )  # fmt: skip
    alike = {name: like(a) for name, a in arrays.items()}
    if function == "rms_norm":
        checked.gain(alike.get("gain"), **options)
    else:
        checked.targets(options["zero"], alike.get("target", 1.0))
    wide = "float64" if checked.result_kind in ("float64", "complex128") else None
    call = Call(
        function,
        {"x": x, "where": where},
        {"nan_policy": "propagate", "dtype": wide, "format": around["format"]},
        axis,
        keepdims=True,
    )
    given = {"axis": checked.axes, **around, **options}
    operands = dict(zip(call.arrays, call.pairs(), strict=True))
    for name, array in arrays.items():
        if not isinstance(array, da.Array):
            given[name] = array
            continue
        places = call.axes if name == "gain" else call.rows
        places = places[len(places) - array.ndim :]
        chunks = {n: call.chunks[k] for n, k in enumerate(places) if array.shape[n] > 1}
        operands[name] = array.rechunk(chunks), places
    found = None
    if call.cut:
        first = call.again()
        found = first.totals(first.task(SQUARES))
        operands.pop("where", None)
        operands["partials"] = found, call.every
    task = partial(
        _states.scaled, function=function, names=tuple(operands), options=given,
        dtype=checked.dtype,
    )  # fmt: skip
    pairs = [each for pair in operands.values() for each in pair]
    lengths = dict(enumerate(call.chunks))
    result = call.blockwise(task, call.every, checked.dtype, *pairs, lengths=lengths)
    if not return_rms:
        return result
    kinds = {"nan_policy": "propagate", "dtype": None, "format": around["format"]}
    alone = Call("rms", dict(call.arrays), kinds, axis)
    if call.cut and alone.checked.dtype != call.checked.dtype:  # of which states are others
        alone, found = alone.again(), None
    return result, roots(alone, found)


def tables(call: Call) -> LazyTable:
    """Descriptions and comparisons."""
    made, labels = _reports.made_of(call.checked), call.rows
    kind = Description if call.function == "describe" else Comparison
    dtype = record_dtype(kind, made.dtypes, made.is_complex)
    if not call.cut:
        task = call.task(MOMENTS)
        records = call.blockwise(
            partial(_states.whole_table, task=task, dtype=dtype), labels, dtype, *call.operands()
        )
        return LazyTable(kind, records, made.length)
    if made.is_complex:
        got = f"{len(call.chunks[call.cut[0]])} chunks"
        requirement = f"be in one chunk along axis {call.cut[0]} where numbers are complex"
        raise _arguments.fail(call.function, " and ".join(call.arrays), requirement, got)
    lengths = tuple(call.checked.shape[k] for k in call.axes)
    task = call.task(MOMENTS if call.function == "describe" else MATCHES)
    task = task._replace(lengths=lengths)
    starts: list[Any] = []
    for k in call.cut:
        first = np.cumsum((0, *call.chunks[k][:-1]))
        starts += [da.from_array(first, chunks=1), (k,)]
        task = task._replace(names=(*task.names, f"start{k}"))
    finish = partial(_states.table, task=task, made=made, dtype=dtype)
    records = call.blockwise(finish, labels, dtype, call.totals(task, *starts), call.every)
    return LazyTable(kind, records, made.length)


def computed_again(array: Any) -> Any:
    """An array of the same values by tasks of other names; what is in memory is shared.

    Dask would keep what two passes share from the first to the second. (Its own `clone` does not
    rename what tasks take where a layer is written out, as those of `rechunk` are.)
    """
    given = dict(array.__dask_graph__())
    tasks = convert_legacy_graph(given)  # without the futures of a cluster
    names = {key: clone_key(key, "rmsfast") for key, t in tasks.items() if type(t) is not DataNode}
    graph = {key: value for key, value in given.items() if key not in names}
    graph |= {name: tasks[key].substitute(names, name) for key, name in names.items()}
    for key in set(flatten(array.__dask_keys__())) - names.keys():
        graph[clone_key(key, "rmsfast")] = Alias(clone_key(key, "rmsfast"), key)
    name = clone_key(array.name, "rmsfast")
    layers = HighLevelGraph.from_collections(name, graph)
    return da.Array(layers, name, array.chunks, meta=array._meta)


def lazy(function: str, argument: str, given: Any) -> Any:
    """A Dask array of known shape; numbers stay as they are."""
    if type(given) in (int, float, complex):
        return given
    if not isinstance(given, da.Array):
        given = given if isinstance(given, np.ndarray) else np.asarray(given)
        given = da.from_array(given, chunks=-1)
    if any(math.isnan(n) for n in given.shape):
        requirement = "have known chunk sizes (use .compute_chunk_sizes())"
        raise _arguments.fail(function, argument, requirement, f"shape {given.shape}")
    return given


def like(given: Any) -> Any:
    """What stands for an array while arguments are checked: its shape and dtype, in no memory."""
    if isinstance(given, da.Array):
        return np.broadcast_to(np.zeros((), given.dtype), given.shape)
    return given
