"""Sums of squares that go on from one call to the next: the lanes of blocks not yet full.

The coordinates of a row arrive in pieces of any length. Each is added to the lane that it
has in its block, so the lanes are those of the whole block at once, and so are the bits. A
block that leaves the range of float64 is summed anew at another scale (see `checked` in
_kernels); what has gone by cannot be, so where that may happen all scales are kept.

The lanes of all rows are one array of float64: for every scale, component and lane
`stride` columns, one a row.
"""

import numpy as np

from rmsfast._column_lanes import accumulate_columns, reduce_columns
from rmsfast._kernels import (
    DOWN,
    DOWN_EXPONENT,
    HIGH,
    LOW,
    UP,
    UP_EXPONENT,
    fold,
    inner,
    kernel,
    load,
    store,
)
from rmsfast._lanes import DEPTH, accumulate, columns_tuple, state_size
from rmsfast._memory import (
    address,
    addresses,
    advance,
    fetch,
    moved,
    offsets,
    scratch_space,
    strides_of,
)
from rmsfast._partial import CONTINUED_TILE, EXTENT_FIELDS, LANES, WIDTH

RUN = 64  # coordinates that stay in cache from one scale to the next


@inner
def continue_tile(arrays, how, scale, g, outer, ragged, bases, position, count, columns, at, gap):
    """Add coordinates of neighbouring rows to lanes, the first to that of `position`.

    gap: bytes from one lane to the next.
    """
    memory = scratch_space(0)
    end, last = g.shape[1], outer - 1
    strides = strides_of(arrays, g, last, 1)
    first = 0
    if ragged == 0 and end == outer + 1:
        # DEPTH coordinates of one lane in turn: its sums stay in registers meanwhile.
        first = count - count % (DEPTH * LANES)
        steps = strides_of(arrays, g, outer, LANES)
        beside = strides_of(arrays, g, outer, 1)
        below = strides_of(arrays, g, outer, (DEPTH - 1) * LANES + 1)
        for j in range(0, first, DEPTH * LANES):
            for k in range(LANES):
                places = moved(bases, offsets(arrays, g, outer, end, j + k))
                pointers = addresses(arrays, places, 0)
                lane = advance(at, (position + j + k) % LANES * gap)
                ahead = beside if k < LANES - 1 else below
                accumulate_columns(
                    lane, LANES * gap, arrays, how, pointers, scale, steps, ahead, columns
                )
    ahead = strides_of(arrays, g, end - 1, DEPTH)
    for j in range(first, count):
        places = moved(bases, offsets(arrays, g, outer, end, j))
        pointers = fetch(arrays, places, strides, ragged, columns, memory, 0)
        lane = advance(at, (position + j) % LANES * gap)
        accumulate_columns(lane, LANES * gap, arrays, how, pointers, scale, None, ahead, columns)


@inner
def continue_row(arrays, how, scale, g, outer, bases, position, count, at):
    """The same for one row whose coordinates lie side by side."""
    head = min(count, -position % LANES)
    continue_tile(arrays, how, scale, g, outer, 0, bases, position, head, 1, at, 8)
    accumulate(at, arrays, how, addresses(arrays, bases, head), scale, count - head)


@inner
def continue_scale(
    arrays, how, scale, g, outer, ragged, straight, bases, position, count, columns, at, gap
):
    if straight:
        continue_row(arrays, how, scale, g, outer, bases, position, count, at)
    else:
        continue_tile(
            arrays, how, scale, g, outer, ragged, bases, position, count, columns, at, gap
        )


@kernel
def continue_sums(
    arrays, how, wide, g, outer, ragged, straight, position, count, columns, stride, lanes,
    begin, end,
):  # fmt: skip
    """Add `count` coordinates of the rows of tiles begin to end to their lanes."""
    size = state_size(arrays, how) * LANES * stride
    for unit in range(begin, end):
        c = unit * CONTINUED_TILE
        n = min(CONTINUED_TILE, columns - c)
        row = offsets(arrays, g, 0, outer, c)
        if wide is None:
            at = address(lanes, c * 8)
            continue_scale(
                arrays, how, None, g, outer, ragged, straight, row, position, count, n, at,
                stride * 8,
            )  # fmt: skip
            continue
        for start in range(0, count, RUN):
            bases = moved(row, offsets(arrays, g, outer, g.shape[1], start))
            for k in range(3):
                scale = (DOWN if k == 2 else 1.0, UP if k == 1 else 1.0)
                at = address(lanes, (k * size + c) * 8)
                continue_scale(
                    arrays, how, scale, g, outer, ragged, straight, bases, position + start,
                    min(RUN, count - start), n, at, stride * 8,
                )  # fmt: skip


@kernel
def close_sums(arrays, how, wide, stride, lanes, totals, begin, end):
    """Fold the partials of the lanes of rows begin to end into their totals.

    Of the arrays only the types matter.
    """
    size = state_size(arrays, how) * LANES * stride
    fields = np.empty((3, EXTENT_FIELDS * WIDTH))
    for c in range(begin, end, WIDTH):
        for k in range(1 if wide is None else 3):
            at, found = address(lanes, (k * size + c) * 8), address(fields[k], 0)
            reduce_columns(at, LANES * stride * 8, arrays, how, stride * 8, LANES, 0, found)
        for i in range(min(WIDTH, end - c)):
            p = columns_tuple(address(fields[0], 0), i)[:8]
            exponent = 0
            if wide is not None and not LOW <= p[0] <= HIGH:
                low = p[0] < LOW
                p = columns_tuple(address(fields[1 if low else 2], 0), i)[:8]
                exponent = UP_EXPONENT if low else DOWN_EXPONENT
            q = (p[0], p[1], p[2] + exponent, p[3], p[4], p[5], p[6], p[7])
            store(totals, c + i, fold(load(totals, c + i), q))
