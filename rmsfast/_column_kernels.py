"""The compiled loops over rows that are columns in memory, read in tiles of neighbours.

`g` is that of _kernels; bit k of `ragged` says that neighbouring rows of array k do not lie side
by side, and so on as for `awkward`. A tile is `tile` rows, or what is left of a run of them.
"""

import numpy as np

from rmsfast._column_lanes import accumulate_columns, clear_columns, reduce_columns, whole
from rmsfast._kernels import checked, inner, kernel, store_found, store_roots
from rmsfast._lanes import DEPTH, columns_tuple, field_space, state_size
from rmsfast._layout import APART
from rmsfast._memory import (
    address,
    addresses,
    advance,
    aligned,
    arrive,
    fetch,
    moved,
    offsets,
    scratch_space,
    strides_of,
)
from rmsfast._partial import BLOCK, EXTENT_FIELDS
from rmsfast._vectors import LANES, SCRATCH, WIDTH

SUMS = 16384  # of a tile that are added to at a time: they stay in the level 2 cache


@inner
def sum_tile(
    arrays, how, g, outer, ragged, bases, start, stop, columns, state, gap, tile, part, parts
):
    """Sums of coordinates start to stop of neighbouring rows in the lanes of a tile.

    Only in one of `parts` like parts of the lanes, and in one lane where sums are integers.
    gap: bytes from one component of the state to the next.
    """
    lanes = LANES // parts
    own, each = part * lanes, tile * 8
    if whole(arrays, how):
        state, each = advance(state, part * tile * 8), 0
    else:
        state = advance(state, own * tile * 8)
    clear_columns(state, gap, tile if each == 0 else lanes * tile, arrays, how)
    memory = scratch_space(0)
    end, last = g.shape[1], outer - 1
    strides = strides_of(arrays, g, last, 1)
    first = start
    if ragged == 0 and end == outer + 1:
        # DEPTH coordinates of a lane in turn: its sums stay in registers meanwhile.
        first = stop - (stop - start) % (DEPTH * LANES)
        steps = strides_of(arrays, g, outer, LANES)
        beside = strides_of(arrays, g, outer, 1)
        some = min(lanes, max(1, SUMS // tile))  # lanes that are added to at a time
        below = strides_of(arrays, g, outer, DEPTH * LANES - some + 1)
        for lane0 in range(0, lanes, some):
            for j in range(start + own + lane0, first, DEPTH * LANES):
                for k in range(some):
                    places = moved(bases, offsets(arrays, g, outer, end, j + k))
                    pointers = addresses(arrays, places, 0)
                    ahead = beside if k < some - 1 else below
                    accumulate_columns(
                        advance(state, (lane0 + k) * each), gap, arrays, how, pointers, None,
                        steps, ahead, columns,
                    )  # fmt: skip
    ahead, further = strides_of(arrays, g, end - 1, DEPTH), strides_of(arrays, g, last, SCRATCH)
    for j in range(first, stop):
        lane = j % LANES - own
        if 0 <= lane < lanes:
            places = moved(bases, offsets(arrays, g, outer, end, j))
            for c in range(0, columns, SCRATCH):
                n = min(SCRATCH, columns - c)
                pointers = fetch(arrays, places, strides, ragged, n, memory, 0)
                at = advance(state, lane * each + c * 8)
                accumulate_columns(at, gap, arrays, how, pointers, None, None, ahead, n)
                places = moved(places, further)


@kernel
def column_partials(
    arrays, how, wide, g, outer, ragged, length, base, first, blocks, tile, parts, shared, arrived,
    partials, begin, end,
):  # fmt: skip
    """partials[(row - row0) * blocks + k] = the partial of block first + k of a row.

    A unit is one of `parts` of the lanes of one block of a tile: `tile` rows that are neighbours in
    memory, read one coordinate after the other. Tiles are counted from `base`, whose first row is
    row0. If there are several parts, whoever comes last of a block, as told by `arrived`, takes
    the sums of all from `shared`.
    """
    columns = g[0, outer - 1]
    tiles = (columns + tile - 1) // tile
    row0 = base // tiles * columns + base % tiles * tile
    lanes = parts if whole(arrays, how) else LANES
    gap = max(1, len(arrived)) * lanes * tile * 8
    memory = np.empty((state_size(arrays, how) * lanes * tile if parts == 1 else 0) + WIDTH)
    fields = np.empty((EXTENT_FIELDS, WIDTH))
    for unit in range(begin, end):
        group, part = unit // parts, unit % parts
        block, above = group % blocks, base + group // blocks
        t, prefix = above % tiles, above // tiles
        start = (first + block) * BLOCK
        stop = min(length, start + BLOCK)
        row = prefix * columns + t * tile
        n = min(tile, columns - t * tile)
        bases = offsets(arrays, g, 0, outer, row)
        state = aligned(memory)  # here, so that the memory is kept while the loop runs
        if parts > 1:
            state = advance(aligned(shared), group * lanes * tile * 8)
        sum_tile(
            arrays, how, g, outer, ragged, bases, start, stop, n, state, gap, tile, part, parts
        )
        if parts > 1 and arrive(arrived, group) < parts - 1:
            continue
        for c in range(0, n, WIDTH):
            reduce_columns(
                advance(state, c * 8), gap, arrays, how, tile * 8, lanes, stop - start,
                address(fields, 0),
            )  # fmt: skip
            for i in range(min(WIDTH, n - c)):
                p = columns_tuple(address(fields, 0), i)
                own = offsets(arrays, g, 0, outer, row + c + i)
                p = checked(
                    arrays,
                    how,
                    wide,
                    arrays[4],
                    how[2],
                    g,
                    outer,
                    ragged | APART,
                    own,
                    start,
                    stop - start,
                    p,
                )
                store_found(partials, (row + c + i - row0) * blocks + block, p, how)


@kernel
def column_roots(arrays, how, wide, g, outer, ragged, length, tile, out, flags, begin, end):
    """out[row] = sqrt(sum / weight) of rows of one block; a unit is a tile."""
    columns = g[0, outer - 1]
    tiles = (columns + tile - 1) // tile
    lanes = 1 if whole(arrays, how) else LANES
    gap = lanes * tile * 8
    memory = np.empty(state_size(arrays, how) * lanes * tile + WIDTH)
    fields = field_space(0)
    for unit in range(begin, end):
        t = unit % tiles
        row, n = unit // tiles * columns + t * tile, min(tile, columns - t * tile)
        bases = offsets(arrays, g, 0, outer, row)
        state = aligned(memory)
        sum_tile(arrays, how, g, outer, ragged, bases, 0, length, n, state, gap, tile, 0, 1)
        for c in range(0, n, WIDTH):
            at, some = advance(state, c * 8), min(WIDTH, n - c)
            reduce_columns(at, gap, arrays, how, tile * 8, lanes, length, fields)
            store_roots(
                arrays, how, wide, g, outer, ragged | APART, length, out, flags, row + c, some,
                fields,
            )  # fmt: skip
