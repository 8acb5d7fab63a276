"""The compiled loops over rows that are columns in memory, read in tiles of neighbours.

`g` is that of _kernels; bit k of `ragged` says that neighbouring rows of array k do not lie side
by side, and so on as for `awkward`. A tile is `tile` rows, or what is left of a run of them.
"""

import numpy as np

from rmsfast._column_lanes import accumulate_columns, clear_columns, reduce_columns, whole
from rmsfast._kernels import checked, inner, kernel, store_found, store_roots
from rmsfast._lanes import (
    DEPTH,
    columns_tuple,
    field_space,
    state_size,
)
from rmsfast._layout import APART
from rmsfast._memory import (
    address,
    addresses,
    advance,
    aligned,
    fetch,
    moved,
    offsets,
    scratch_space,
    strides_of,
)
from rmsfast._partial import BLOCK, EXTENT_FIELDS
from rmsfast._vectors import LANES, WIDTH


@inner
def sum_tile(arrays, how, g, outer, ragged, bases, start, stop, columns, lanes, tile):
    """Sums of coordinates start to stop of neighbouring rows in the lanes of a tile."""
    many = 1 if whole(arrays, how) else LANES
    clear_columns(lanes, many * tile, arrays, how)
    memory = scratch_space(0)
    end, last = g.shape[1], outer - 1
    strides = strides_of(arrays, g, last, 1)
    first = start
    if ragged == 0 and end == outer + 1:
        # DEPTH coordinates of one lane in turn: its sums stay in registers meanwhile.
        first = stop - (stop - start) % (DEPTH * LANES)
        steps = strides_of(arrays, g, outer, LANES)
        beside = strides_of(arrays, g, outer, 1)
        below = strides_of(arrays, g, outer, (DEPTH - 1) * LANES + 1)
        for j in range(start, first, DEPTH * LANES):
            for lane in range(LANES):
                places = moved(bases, offsets(arrays, g, outer, end, j + lane))
                pointers = addresses(arrays, places, 0)
                at = advance(lanes, lane % many * tile * 8)
                ahead = beside if lane < LANES - 1 else below
                accumulate_columns(
                    at, many * tile * 8, arrays, how, pointers, None, steps, ahead, columns
                )
    ahead = strides_of(arrays, g, end - 1, DEPTH)
    for j in range(first, stop):
        places = moved(bases, offsets(arrays, g, outer, end, j))
        pointers = fetch(arrays, places, strides, ragged, columns, memory, 0)
        at = advance(lanes, (j % many) * tile * 8)
        accumulate_columns(at, many * tile * 8, arrays, how, pointers, None, None, ahead, columns)


@kernel
def column_partials(
    arrays, how, wide, g, outer, ragged, length, base, first, blocks, tile, partials, begin, end
):
    """partials[(row - row0) * blocks + k] = the partial of block first + k of a row.

    A unit is one block of a tile: `tile` rows that are neighbours in memory, read one
    coordinate after the other. Tiles are counted from `base`, whose first row is row0.
    """
    columns = g[0, outer - 1]
    tiles = (columns + tile - 1) // tile
    row0 = base // tiles * columns + base % tiles * tile
    many = 1 if whole(arrays, how) else LANES
    memory = np.empty(state_size(arrays, how) * many * tile + WIDTH)
    fields = np.empty((EXTENT_FIELDS, WIDTH))
    for unit in range(begin, end):
        block, above = unit % blocks, base + unit // blocks
        t, prefix = above % tiles, above // tiles
        start = (first + block) * BLOCK
        stop = min(length, start + BLOCK)
        row = prefix * columns + t * tile
        n = min(tile, columns - t * tile)
        bases = offsets(arrays, g, 0, outer, row)
        state = aligned(memory)  # here, so that the memory is kept while the loop runs
        sum_tile(arrays, how, g, outer, ragged, bases, start, stop, n, state, tile)
        for c in range(0, n, WIDTH):
            lanes = advance(state, c * 8)
            reduce_columns(
                lanes, many * tile * 8, arrays, how, tile * 8, stop - start, address(fields, 0)
            )
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
    many = 1 if whole(arrays, how) else LANES
    memory = np.empty(state_size(arrays, how) * many * tile + WIDTH)
    fields = field_space(0)
    for unit in range(begin, end):
        t = unit % tiles
        row, n = unit // tiles * columns + t * tile, min(tile, columns - t * tile)
        bases = offsets(arrays, g, 0, outer, row)
        state = aligned(memory)
        sum_tile(arrays, how, g, outer, ragged, bases, 0, length, n, state, tile)
        for c in range(0, n, WIDTH):
            lanes, some = advance(state, c * 8), min(WIDTH, n - c)
            reduce_columns(lanes, many * tile * 8, arrays, how, tile * 8, length, fields)
            store_roots(
                arrays, how, wide, g, outer, ragged | APART, length, out, flags, row + c, some,
                fields,
            )  # fmt: skip
