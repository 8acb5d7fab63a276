"""What `describe` and `compare` tell of the rows of files, a box at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Generic, TypeVar

import numpy as np

from rmsfast import _launch
from rmsfast.files import _tensors
from rmsfast.files._rows import kept, room
from rmsfast.files._tensors import Array, Box, Layout, ahead, boxes
from rmsfast.reference._tables import RowTable, scalars, with_rows

WORST = 10  # rows of a tensor that are named
AT_ONCE = 256  # boxes whose numbers are kept before they are joined
THREADS = 8  # at most: more would wait for each other in Python
ROWS = 1 << 16  # of a box: what is told of them takes room too
HELD_BYTES = 1 << 26  # of chunks that are held at the same time
LEAST_BYTES = 1 << 24  # of a box: less is done as soon as handed over

Table = TypeVar("Table", bound=RowTable)


def tables(
    shape: tuple[int, ...],
    layout: Layout,
    itemsize: int,
    axis: int | None,
    table_of: Callable[[Box, int | None], Table],
    told: Callable[[int], None],
) -> Iterator[tuple[Box, Table]]:
    """Boxes of rows in turn, and what is told of them; parts of the same rows are joined.

    Threads take the boxes, read them and compute on them: one reads while another computes, nothing
    is handed over but results, and each page is mapped and released by the thread that needs it.
    """
    length = 1 if axis is None else shape[axis]
    count, chunk = math.prod(shape), math.prod(layout.steps) * itemsize
    # Larger boxes take less Python; those of chunks are held in memory. The number of threads has
    # no part in it, as what is told of all rows depends on the boxes, in the last bits.
    most = _tensors.BOX_BYTES * (1 if chunk > itemsize or _launch.kernels() is None else 2)
    most = min(most, max(LEAST_BYTES, count * itemsize // THREADS)) // itemsize
    places = list(boxes(shape, layout, max(1, min(most, ROWS * length)), axis))
    threads = threads_of(max(most * itemsize, chunk) if chunk > itemsize else 0)

    def made(box: Box) -> tuple[Box, Table]:
        return box, table_of(box, 1)

    if len(places) == 1:
        found: Iterable[tuple[Box, Table]] = [(places[0], table_of(places[0], None))]
    else:
        found = ahead(made, places, threads)
    seen, done = None, 0
    for box, here in found:
        seen = here if seen is None else type(here).joined([seen, here], [0, done])
        done += 1 if axis is None else box[axis].stop - box[axis].start
        if done == length:
            yield kept(box, axis), seen
            seen, done = None, 0
        told(math.prod(part.stop - part.start for part in box) * itemsize)


def threads_of(held: int) -> int:
    """How many threads take boxes that hold so many bytes each: two at least, if there is room."""
    if _launch.kernels() is None:  # NumPy's temporary arrays are many times as large
        return 1
    threads = min(max(2, _launch.threads_for(None)), THREADS)
    return min(threads, max(1, HELD_BYTES // held)) if held else threads


def gathered(found: Iterable[tuple[Box, Table]], shape: tuple[int, ...]) -> Table:
    """All rows in one table, whose arrays are in temporary files if they are large."""
    rows: dict[str, Any] = {}
    for box, table in found:
        for name, values in [*table.to_dict().items(), ("_roots", table._roots)]:
            inside = (slice(None),) * (np.ndim(values) - len(box))  # of the several roots
            if name not in rows:
                rows[name] = room((*np.shape(values)[: len(inside)], *shape), values.dtype)
            rows[name][inside + box] = values
    return scalars(type(table)(_length=table._length, **rows))


class Whole(Generic[Table]):
    """What is told of all rows of a tensor as one vector, and which rows deserve a look."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.parts: list[Table] = []
        self.table: Any = None  # of the rows that deserve a look
        self.rows = np.empty(0, np.intp)

    def add(self, box: Box, table: Table) -> None:
        here, index = table.pooled(), table._index
        place = int(getattr(here, index))
        if place >= 0:
            row, coordinate = divmod(place, table._length)
            place = int(self.numbers(box, np.array([row]))[0]) * table._length + coordinate
        fields: dict[str, Any] = {index: np.int64(place)}
        self.parts.append(replace(here, **fields))
        if len(self.parts) == AT_ONCE:
            self.parts = [self.pooled()]
        self._look_at(box, table)

    def pooled(self) -> Table:
        """All rows as one vector; what comes first in C order is the first of equals."""
        first, *_ = parts = sorted(self.parts, key=lambda part: int(getattr(part, part._index)))
        return type(first).joined(parts, [0] * len(parts)) if len(parts) > 1 else first

    def _look_at(self, box: Box, table: Table) -> None:
        """Keep the rows of the largest root mean square, those with NaN first."""
        if len(self.rows) == WORST and np.max(table._roots[0]) <= _ranks(self.table)[-1]:
            return
        ranks = _ranks(table)
        least = np.partition(ranks, -WORST)[-WORST] if len(ranks) > WORST else 0.0
        near = np.flatnonzero(ranks >= least)  # few are sorted
        first = near[np.argsort(-ranks[near], kind="stable")[:WORST]]
        found, rows = _chosen(table, first), self.numbers(box, first)
        if self.table is not None:
            found = type(table).concatenate([self.table, found])
            rows = np.concatenate([self.rows, rows])
        order = np.lexsort((rows, -_ranks(found)))[:WORST]
        self.table, self.rows = _chosen(found, order), rows[order]

    def numbers(self, box: Box, rows: Array) -> Array:
        """Rows of a box as numbered in C order of all rows."""
        if not box:
            return rows
        places = np.unravel_index(rows, [part.stop - part.start for part in box])
        starts = [part.start for part in box]
        there = tuple(place + start for place, start in zip(places, starts, strict=True))
        return np.asarray(np.ravel_multi_index(there, self.shape), np.intp)

    def worst(self) -> Array:
        """Those rows as records, with their index in front."""
        places = np.unravel_index(self.rows, self.shape) if self.shape else [self.rows]
        return with_rows(self.table.to_records(), np.stack(places, axis=-1))


def _ranks(table: Any) -> Array:
    """The larger, the more a row deserves a look: NaN, then Inf, then by size."""
    sizes: Array = table._roots[0].reshape(-1)
    return np.nan_to_num(sizes, nan=np.inf, posinf=np.finfo(np.float64).max)


def _chosen(table: Table, rows: Array) -> Table:
    """Some rows of a table, one axis in place of all."""
    fields: dict[str, Any] = {n: np.ravel(value)[rows] for n, value in table.to_dict().items()}
    return replace(table, _roots=table._roots.reshape(len(table._roots), -1)[:, rows], **fields)
