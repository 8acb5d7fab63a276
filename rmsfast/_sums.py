"""Sums of squares of rows: which kernel, and in which pieces."""

from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np

from rmsfast import _formats, _launch, _partial
from rmsfast._layout import LEAST_TILE, TILE, WIDE_TILE, Plan, Walk
from rmsfast._partial import BLOCK, LANES, WIDTH

# Flags, True or None: omit NaN, exact sums, extents (mean, least, largest) for squares.
How = tuple[bool | None, bool | None, bool | None]
STREAMING_BYTES = 1 << 22  # larger results of scalings may go past the caches
CACHED_BYTES = 1 << 22  # of input: in the level 2 caches from one walk to the next
PIECE_ROWS = 1 << 15  # rows whose partials are kept at a time
SPLIT_NUMBERS = 1 << 20  # of columns that are read from memory, and lanes shared among threads
UNITS = 4096  # blocks whose partials are kept before they are folded


def exact(kinds: tuple[str, ...], dtype: np.dtype, weighted: bool) -> bool | None:
    """Whether sums must be kept as pairs (True or None, as the kernels take it)."""
    if dtype == np.float32 and _formats.NARROW.issuperset(kinds):
        return None
    return None if _formats.SMALL_INTEGERS.issuperset(kinds) and not weighted else True


def streams(out: np.ndarray | None, x: np.ndarray) -> bool:
    """Whether a result goes past the caches: not where it stands in them already.

    What is in place does, and so does what is new, whose pages the system clears one by one.
    """
    if out is None or out.nbytes < STREAMING_BYTES:
        return False
    return not np.may_share_memory(out, x)


def element_bytes(walk: Walk) -> int:
    return sum([a.itemsize for a in walk.arrays if a is not None])


class Task(NamedTuple):
    """A kernel of roots, what it is told between the arrays and the result, and its units."""

    name: str
    args: _launch.Args
    units: int
    unit_bytes: int


def task(plan: Plan, how: How, wide: bool | None, itemsize: int, few: bool) -> Task | None:
    """How rows are summed and rooted in one go, None if they are in pieces; few: even if few."""
    args: _launch.Args = (how, wide, plan.g, plan.outer)
    row_bytes = plan.length * itemsize
    if plan.columns:
        tile, args = group_rows(plan)[0], (*args, plan.ragged, plan.length)
        tiles = everything(plan).groups
        if plan.length > BLOCK or lane_parts(plan, tiles, None) > 1:
            return None
        return Task("column_roots", (*args, tile), tiles, row_bytes * tile)
    if not plan.columns and (few or plan.length <= 2 * BLOCK):
        return Task("row_roots", (*args, plan.awkward, plan.length), plan.rows, row_bytes)
    return None


def roots(
    walk: Walk, how: How, out: np.ndarray, flags: np.ndarray | None, threads: int | None
) -> None:
    """out[row] = sqrt(sum / weight), in the order of walking."""
    plan = walk.plan
    many = plan.rows >= 4 * _launch.threads_for(threads)
    found = task(plan, how, walk.wide, element_bytes(walk), many)
    if found:
        args = (walk.arrays, *found.args, out, flags)
        _launch.launch(found.name, args, found.units, found.unit_bytes, threads)
        return
    for piece in pieces([walk]):
        totals = partials([walk], [how], piece, threads)[0]
        rows = slice(piece.first_row, piece.first_row + piece.rows)
        finish(totals, out[rows], flags if flags is None else flags[rows])


def finish(totals: np.ndarray, out: np.ndarray, flags: np.ndarray | None) -> None:
    _launch.call(_launch.kernel("roots"), (totals, out, flags, 0, len(totals)))


class Piece(NamedTuple):
    """A run of rows: whole tiles where they are columns in memory."""

    first_group: int
    groups: int
    first_row: int
    rows: int


def group_rows(plan: Plan) -> tuple[int, int]:
    """Rows of a group, and of a run of groups of which the last may be shorter."""
    if not plan.columns:
        return 1, 1
    columns = int(plan.g[0, plan.outer - 1])
    tile = LEAST_TILE
    if plan.rows * plan.length >= SPLIT_NUMBERS:
        # Of masks and weights there are sums too, which every thread has in memory.
        tile = TILE // 2 if plan.g[4:].any() else TILE
        units, threads = plan.rows // columns * -(-plan.length // BLOCK), _launch.threads_for(None)
        while tile > WIDE_TILE and units * -(-columns // tile) < threads:
            tile //= 2
        while tile > LEAST_TILE and units * -(-columns // tile) * LANES < 2 * threads:
            tile //= 2
    return min(tile, -(-columns // 8) * 8), columns


def most_parts(plan: Plan) -> int:
    """Parts of the lanes of a tile that may be added up by one thread each."""
    return LANES if plan.rows * plan.length >= SPLIT_NUMBERS else 1


def lane_parts(plan: Plan, units: int, threads: int | None) -> int:
    """Parts of the lanes of so many tiles and blocks, so that all threads have as much to do."""
    parts, most, workers = 1, most_parts(plan), _launch.threads_for(threads)
    while parts < most and units * parts % workers and units * parts < 4 * workers:
        parts *= 2
    return parts


def state_numbers(walk: Walk, how: How) -> int:
    """Sums of a column before its lanes are folded."""
    known = _launch.kernel_module("_terms").Sum(walk.arrays, how)  # of arrays as of their types
    return LANES * len(known.components)


def everything(plan: Plan) -> Piece:
    if not plan.columns:
        return Piece(0, plan.rows, 0, plan.rows)
    size, run = group_rows(plan)
    return Piece(0, plan.rows // run * -(-run // size), 0, plan.rows)


def pieces(walks: list[Walk]) -> Iterator[Piece]:
    """Runs of rows few enough for their partials, and for caches from one walk to the next."""
    plan = walks[0].plan
    whole = everything(plan)
    size, run = group_rows(plan)
    step = PIECE_ROWS // size
    if len(walks) > 1:
        step = min(step, CACHED_BYTES // max(1, size * plan.length * element_bytes(walks[0])))
    step = max(1, step)
    if step < whole.groups:
        shapes = {(w.plan.columns, w.plan.outer, w.plan.g[0].tobytes()) for w in walks}
        step = step if len(shapes) == 1 else whole.groups
    if step >= whole.groups:
        yield whole
        return
    tiles = -(-run // size)

    def start(group: int) -> int:
        return plan.rows if group == whole.groups else group // tiles * run + group % tiles * size

    for group in range(0, whole.groups, step):
        groups = min(step, whole.groups - group)
        yield Piece(group, groups, start(group), start(group + groups) - start(group))


def partials(
    walks: list[Walk],
    hows: list[How],
    piece: Piece,
    threads: int | None,
    keys: tuple[Hashable, ...] = (),
) -> list[np.ndarray]:
    """The partial of every row of a piece, for each walk; blocks are walked in turn.

    `keys` as for `_launch.compiled`, of the types of each walk.
    """
    plan, keys = walks[0].plan, keys or (None,) * len(walks)
    blocks = -(-plan.length // BLOCK)
    if blocks == 1:
        return [
            blocks_of(w, h, piece, 0, 1, threads, key)
            for w, h, key in zip(walks, hows, keys, strict=True)
        ]
    at_once = min(blocks, max(1, UNITS // piece.rows))
    if len(walks) > 1:
        block_bytes = piece.rows * BLOCK * element_bytes(walks[0])
        at_once = min(at_once, max(1, CACHED_BYTES // block_bytes))
    totals = [_partial.empty(piece.rows, fields_of(how)) for how in hows]
    for first in range(0, blocks, at_once):
        n = min(at_once, blocks - first)
        found = [
            blocks_of(w, h, piece, first, n, threads, key)
            for w, h, key in zip(walks, hows, keys, strict=True)
        ]
        for how, total, new in zip(hows, totals, found, strict=True):
            fold = "fold_extents" if how[2] else "fold_partials"
            _launch.call(_launch.kernel(fold), (new, n, total, 0, piece.rows))
    return totals


def fields_of(how: How) -> int:
    return _partial.EXTENT_FIELDS if how[2] else _partial.FIELDS


def blocks_of(
    walk: Walk,
    how: How,
    piece: Piece,
    first: int,
    blocks: int,
    threads: int | None,
    key: Hashable = None,
) -> np.ndarray:
    """Partials of blocks first to first + blocks of every row of a piece, row after row."""
    plan = walk.plan
    if not plan.columns:
        return rows_of(walk, how, piece.first_row, piece.rows, first, blocks, threads, key)
    if piece.rows == plan.rows:  # of which walks of other strides may have other groups
        piece = everything(plan)
    found = np.empty((piece.rows * blocks, fields_of(how)))
    tile, units = group_rows(plan)[0], piece.groups * blocks
    parts = lane_parts(plan, units, threads)
    arrived = np.zeros(0 if parts == 1 else units, np.int64)
    shared = np.empty(arrived.size * state_numbers(walk, how) * tile + WIDTH)
    args: _launch.Args = (walk.arrays, how, walk.wide, plan.g, plan.outer, plan.ragged, plan.length)
    args += (piece.first_group, first, blocks, tile, parts, shared, arrived, found)
    unit_bytes = min(plan.length, BLOCK) * element_bytes(walk) * tile // parts
    _launch.launch("column_partials", args, units * parts, unit_bytes, threads, key)
    return found


def rows_of(
    walk: Walk,
    how: How,
    base: int,
    rows: int,
    first: int,
    blocks: int,
    threads: int | None,
    key: Hashable,
) -> np.ndarray:
    """As `blocks_of`, of rows from `base` on that are no columns."""
    plan, units = walk.plan, rows * blocks
    found = np.empty((units, fields_of(how)))
    args: _launch.Args = (walk.arrays, how, walk.wide, plan.g, plan.outer)
    args += (plan.awkward, plan.length, base, first, blocks, found)
    unit_bytes = min(plan.length, BLOCK) * element_bytes(walk)
    _launch.launch("row_partials", args, units, unit_bytes, threads, key)
    return found
