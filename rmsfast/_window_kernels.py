"""The compiled loops of windows along an axis: additions only, a constant number for each hop.

The axis is cut into *hops*, of which a window covers `window // hop` and the first part of one
more. Hops are cut into *blocks* of `block` hops, counted from the first, so that a window is the
end of one block (sums of its last hops, made from the back), whole blocks, and the beginning of
another (a running sum). No sum is ever subtracted: what has left a window leaves no trace. Where
a block is as long as a window its hops are kept until they are summed from the back; else they
are read twice, so that memory stays small however long the window.

Tiles of neighbouring rows are read together, time after time; where neighbours do not lie side by
side in memory, some times of a tile are first copied so that they do. The order of additions
depends on window, hop and block alone.

`g` is that of _kernels with the strides of the result as its last row, whose axis of time counts
windows. Behind time there may be one axis more, of the `numbers` that are one value.
"""

import numpy as np

from rmsfast._column_lanes import accumulate_columns, clear_columns, whole
from rmsfast._kernels import (
    DOWN,
    DOWN_EXPONENT,
    HIGH,
    LOW,
    UP,
    UP_EXPONENT,
    inner,
    kernel,
    root,
)
from rmsfast._lanes import DEPTH, state_size
from rmsfast._memory import (
    address,
    addresses,
    advance,
    aligned,
    copy_apart,
    moved,
    offsets,
    parts_of,
    put,
    strides_of,
)
from rmsfast._partial import BLOCK, LANES, WIDTH
from rmsfast._scalings import RESULT, result_place
from rmsfast._stores import number_at, scatter
from rmsfast._window_lanes import ABOVE, BELOW, join_columns, root_columns, stepped, sums_at, times

MORE = 6  # states beside those of the hops of a block, and of the sums of blocks


# What the loops pass on: the arrays and what is summed of them, the factors of `accumulate`, the
# geometry, and memory for the times of a tile that are copied, `part` bytes for each array.
#     walk = arrays, how, scale, g, beside, outer, ragged, numbers, length, memory, part
# beside: g of coordinates that were copied.


@inner
def add_run(state, walk, pointers, steps, count, columns, tile):
    """Add coordinates of neighbouring rows to one lane; steps: bytes from one to the next."""
    arrays, how, scale = walk[:3]
    done, spread = 0, 1
    while done + DEPTH <= count:
        if whole(arrays, how):  # in any order: memory is read faster in several places at once
            spread = min(LANES, (count - done) // DEPTH)
        apart = times(steps, spread)
        for k in range(spread):
            places = stepped(pointers, steps, k)
            ahead = times(steps, 1 if k < spread - 1 else (DEPTH - 1) * spread + 1)
            accumulate_columns(state, tile * 8, arrays, how, places, scale, apart, ahead, columns)
        pointers = stepped(pointers, steps, DEPTH * spread)
        done += DEPTH * spread
    ahead = times(steps, DEPTH)
    for _ in range(done, count):
        accumulate_columns(state, tile * 8, arrays, how, pointers, scale, None, ahead, columns)
        pointers = stepped(pointers, steps, 1)


@inner
def hold(walk, bases, columns, tile, begin):
    """Copy some times of a tile from `begin` on; returns which."""
    arrays, _, _, g, _, outer, ragged, numbers, length, memory, part = walk
    room = numbers * tile
    end = min(begin + part // (8 * room), length)
    places = moved(bases, offsets(arrays, g, outer, outer + 1, begin))
    across, along = strides_of(arrays, g, outer - 1, 1), strides_of(arrays, g, outer, 1)
    for k in range(numbers):
        copy_apart(
            arrays, places, across, along, ragged, columns, end - begin, memory, part, k * tile,
            room,
        )  # fmt: skip
        places = moved(places, strides_of(arrays, g, g.shape[1] - 1, 1))
    return begin, end


@inner
def add_times(state, walk, bases, columns, tile, held, begin, end):
    """Add times begin to end of a tile to a state; returns which times are held in memory."""
    arrays, _, _, g, beside, outer, ragged, numbers, _, memory, part = walk
    if ragged == 0:
        pointers = addresses(arrays, moved(bases, offsets(arrays, g, outer, outer + 1, begin)), 0)
        steps = strides_of(arrays, g, outer, 1)
        add_run(state, walk, pointers, steps, end - begin, columns, tile)
        return held
    steps = strides_of(arrays, beside, 0, 1)
    while begin < end:
        if not held[0] <= begin < held[1]:
            held = hold(walk, bases, columns, tile, begin)
        last = min(end, held[1])
        pointers = parts_of(arrays, memory, part, (begin - held[0]) * numbers * tile)
        add_run(state, walk, pointers, steps, (last - begin) * numbers, columns, tile)
        begin = last
    return held


@inner
def add_span(state, piece, walk, bases, columns, tile, held, begin, end):
    """As `add_times`, for times that may lie beyond the ends, or be many: errors add up."""
    begin, end = max(begin, 0), min(end, walk[8])
    if end - begin <= BLOCK:
        return add_times(state, walk, bases, columns, tile, held, begin, end)
    for start in range(begin, end, BLOCK):
        clear_columns(piece, tile * 8, tile, walk[0], walk[1])
        stop = min(start + BLOCK, end)
        held = add_times(piece, walk, bases, columns, tile, held, start, stop)
        join_columns(state, state, piece, tile * 8, walk[0], walk[1], columns)
    return held


@inner
def store_roots(state, walk, wide, values, row, result, place, stride, columns, tile):
    """Roots of a state of windows of so many values; which sums left the range."""
    arrays, how, _, _, _, _, _, numbers = walk[:8]
    counts = (columns, values * numbers)
    if wide is None:
        root_columns(state, tile * 8, arrays, how, numbers, counts, None, None, result, row)
        flags = 0
    else:
        flags = root_columns(state, tile * 8, arrays, how, numbers, counts, LOW, HIGH, result, row)
    scatter(row, result, place, stride, columns)
    return flags


@inner
def mend_roots(state, walk, values, result, place, stride, columns, tile):
    """The roots that were marked, from sums at another scale."""
    arrays, how, scale, _, _, _, _, numbers = walk[:8]
    up = scale[1] != 1.0
    mark, exponent = (BELOW, UP_EXPONENT) if up else (ABOVE, DOWN_EXPONENT)
    for c in range(columns):
        at = place + c * stride
        if number_at(result, at) == mark:
            s, low, w = sums_at(state, tile * 8, arrays, how, float(values * numbers), c)
            r = root((s, low, float(exponent), w / numbers, 0.0, 0.0, 0.0, 0.0), False)
            put(address(result, at), 0, r if r == r else np.nan)
    return 0


@inner
def emit(state, walk, scale, wide, values, row, result, place, stride, columns, tile):
    if scale is None:
        return store_roots(state, walk, wide, values, row, result, place, stride, columns, tile)
    return mend_roots(state, walk, values, result, place, stride, columns, tile)


@inner
def run_windows(
    walk, scale, wide, bases, result, start, stride, across, columns, tile, window, hop, before,
    block, first, last, space,
):  # fmt: skip
    """Roots of windows first to last of a tile; which sums left the range (see root_columns).

    start: byte of the result of window 0; stride, across: from window to window, row to row.
    """
    arrays, how, length = walk[0], walk[1], walk[8]
    each, whole, rest = tile * 8, window // hop, window % hop
    size = state_size(arrays, how) * each
    kept, between = block == whole, whole // block
    slots = space  # a state for each hop of a block; then for each block of a window
    sums, turns = advance(slots, block * size), between + 1
    more = advance(sums, turns * size)
    begun, spare, found = more, advance(more, size), advance(more, 2 * size)
    middle, piece, row = (
        advance(more, 3 * size), advance(more, 4 * size), advance(more, 5 * size)
    )  # fmt: skip
    held, flags = (0, 0), 0
    clear_columns(begun, tile * 8, tile, arrays, how)
    head = (first // block + 1) * block  # the hop that goes next to the running sum
    if kept:
        for i in range(block):
            slot, at = advance(slots, i * size), (first + i) * hop - before
            clear_columns(slot, tile * 8, tile, arrays, how)
            held = add_span(slot, piece, walk, bases, columns, tile, held, at, at + hop)
    while head < last + whole:
        k = head - whole  # the window that ends with this hop's first part
        i = k % block
        if k >= first and i == 0:
            if not kept:
                for j in range(block):
                    slot, at = advance(slots, j * size), (k + j) * hop - before
                    clear_columns(slot, tile * 8, tile, arrays, how)
                    held = add_span(slot, piece, walk, bases, columns, tile, held, at, at + hop)
            for j in range(block - 2, -1, -1):
                slot = advance(slots, j * size)
                join_columns(slot, slot, advance(slot, size), each, arrays, how, columns)
            clear_columns(middle, tile * 8, tile, arrays, how)
            for b in range(k // block + 1, k // block + between):
                total = advance(sums, b % turns * size)
                join_columns(middle, middle, total, each, arrays, how, columns)
        at = head * hop - before
        slot = advance(slots, i * size)
        own = slot if kept else spare
        if k >= first:
            join_columns(found, slot, begun, each, arrays, how, columns)
            if not kept:
                join_columns(found, found, middle, each, arrays, how, columns)
        clear_columns(own, tile * 8, tile, arrays, how)
        if rest:
            held = add_span(own, piece, walk, bases, columns, tile, held, at, at + rest)
        if k >= first:
            if rest:
                join_columns(found, found, own, each, arrays, how, columns)
            opened = k * hop - before
            values = min(opened + window, length) - max(opened, 0)
            place = start + k * stride
            flags |= emit(
                found, walk, scale, wide, values, row, result, place, across, columns, tile
            )
        held = add_span(own, piece, walk, bases, columns, tile, held, at + rest, at + hop)
        join_columns(begun, begun, own, each, arrays, how, columns)
        head += 1
        if head % block == 0:
            total = advance(sums, (head // block - 1) % turns * size)
            clear_columns(total, tile * 8, tile, arrays, how)
            join_columns(total, total, begun, each, arrays, how, columns)
            clear_columns(begun, tile * 8, tile, arrays, how)
            if k >= first and i + 1 < block:
                join_columns(middle, middle, total, each, arrays, how, columns)
    return flags


@kernel
def window_roots(
    arrays, how, wide, g, beside, outer, ragged, numbers, length, window, hop, before,
    block, first, windows, run, tile, part, result, begin, end,
):  # fmt: skip
    """Roots of windows first to first + windows of every row, `run` windows of a tile a unit.

    Window k begins at time k * hop - before, and ends where the row does.
    """
    columns = g[0, outer - 1]
    tiles, runs = (columns + tile - 1) // tile, (windows + run - 1) // run
    size = state_size(arrays, how) * tile
    states = np.empty((block + window // hop // block + 1 + MORE) * size + WIDTH)
    copies = np.empty(part * len(arrays) if ragged else 0, np.uint8)
    for unit in range(begin, end):
        above, t = unit // tiles, unit % tiles
        turn, above = above % runs, above // runs
        row, n = above * columns + t * tile, min(tile, columns - t * tile)
        bases = offsets(arrays, g, 0, outer, row)
        start = result_place(result, g, 0, outer, row)
        stride, across = g[RESULT + 1, outer], g[RESULT + 1, outer - 1]
        a, space = first + turn * run, aligned(states)
        b, memory = min(a + run, first + windows), address(copies, 0)
        walk = (arrays, how, None, g, beside, outer, ragged, numbers, length, memory, part)
        left = run_windows(
            walk, None, wide, bases, result, start, stride, across, n, tile, window, hop, before,
            block, a, b, space,
        )  # fmt: skip
        if wide is not None:
            for k in range(2):
                if left >> k & 1:
                    scale = (1.0, UP) if k == 0 else (DOWN, 1.0)
                    again = (
                        arrays, how, scale, g, beside, outer, ragged, numbers, length, memory, part
                    )  # fmt: skip
                    run_windows(
                        again, scale, wide, bases, result, start, stride, across, n, tile, window,
                        hop, before, block, a, b, space,
                    )  # fmt: skip
