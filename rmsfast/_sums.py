"""Sums of squares of rows: which kernel, and in which pieces."""

from typing import Any

import numpy as np

from rmsfast import _launch, _partial
from rmsfast._layout import TILE, Walk
from rmsfast._partial import BLOCK

How = tuple[bool | None, bool | None]  # omit NaN, exact sums (True or None)
UNITS = 4096  # blocks whose partials are kept before they are folded


def element_bytes(walk: Walk) -> int:
    return sum(a.itemsize for a in walk.arrays if a is not None)


def roots(walk: Walk, how: How, out: np.ndarray, flags: np.ndarray | None, threads: int | None) -> None:
    """out[row] = sqrt(sum / weight), in the order of walking."""
    plan = walk.plan
    many = plan.rows >= 4 * _launch.threads_for(threads)
    if not plan.columns and (many or plan.length <= 2 * BLOCK):
        args = (walk.arrays, how, walk.wide, plan.g, plan.outer, plan.awkward, plan.length, out, flags)
        _launch.launch("row_roots", args, plan.rows, plan.length * element_bytes(walk), threads)
        return
    finish(partials(walk, how, threads), out, flags)


def finish(totals: np.ndarray, out: np.ndarray, flags: np.ndarray | None) -> None:
    _launch.call(_launch.kernels().roots, (totals, out, flags, 0, len(totals)))


def partials(walk: Walk, how: How, threads: int | None) -> np.ndarray:
    """The partial of every row, in the order of walking."""
    plan = walk.plan
    blocks = -(-plan.length // BLOCK)
    at_once = min(blocks, max(1, UNITS // plan.rows))
    totals = None
    for first in range(0, blocks, at_once):
        found = _blocks(walk, how, first, min(at_once, blocks - first), threads)
        if blocks == 1:
            return found
        totals = _partial.empty(plan.rows) if totals is None else totals
        _launch.call(
            _launch.kernels().fold_partials, (found, len(found) // plan.rows, totals, 0, plan.rows)
        )
    return totals


def _blocks(walk: Walk, how: How, first: int, blocks: int, threads: int | None) -> np.ndarray:
    """Partials of blocks first to first + blocks of every row, row after row."""
    plan = walk.plan
    found = np.empty((plan.rows * blocks, _partial.FIELDS))
    block_bytes = min(plan.length, BLOCK) * element_bytes(walk)
    if plan.columns:
        columns = int(plan.g[0, plan.outer - 1])
        tile = min(TILE, -(-columns // 8) * 8)
        units = plan.rows // columns * -(-columns // tile) * blocks
        args: tuple[Any, ...] = (walk.arrays, how, walk.wide, plan.g, plan.outer, plan.ragged, plan.length, first, blocks)
        _launch.launch("column_partials", (*args, tile, found), units, block_bytes * tile, threads)
    else:
        args = (walk.arrays, how, walk.wide, plan.g, plan.outer, plan.awkward, plan.length, first, blocks)
        _launch.launch("row_partials", (*args, found), plan.rows * blocks, block_bytes, threads)
    return found
