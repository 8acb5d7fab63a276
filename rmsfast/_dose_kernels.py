"""The compiled loops over edited rows and over rounded arrays.

`g` is that of _kernels, for (h, u, after, where, result) and more masks; among the arrays the
result is left out.
"""

import math

import numpy as np
from numba import njit

from rmsfast._compiler import Compiler
from rmsfast._dose_fields import CLEAN, COUNT, write_fields
from rmsfast._dose_lines import LINE, QUICK_LEAST, QUICK_MOST, padded, quick_run
from rmsfast._doses import clear, dose_run, new_state, plain_run, totals
from rmsfast._edges import fence, pending_line, write_pending
from rmsfast._kernels import fold, gather, hot, inner, kernel, sum_block, sum_rows
from rmsfast._lanes import columns_tuple, field_space, lane_states
from rmsfast._layout import APART
from rmsfast._memory import (
    address,
    addresses,
    advance,
    fetch,
    moved,
    offsets,
    rare,
    scratch_space,
    strides_of,
)
from rmsfast._partial import BLOCK
from rmsfast._partial import EMPTY as NOTHING
from rmsfast._roundings import begins_line, deliver, round_run, tally
from rmsfast._scalings import RESULT, TOGETHER, has_zero_row, result_place
from rmsfast._stores import scatter
from rmsfast._vectors import SCRATCH, WIDTH

AFTER = 4  # place of the result of an edit
INPUTS = ~(1 << AFTER)  # bits of what is awkward, but for the result
PLAIN = (None, None, None)  # sums of float64
SIZE = (1 << 63) - 1  # bits of |v|, which are in order as integers
PARTS = 2.0**-90, 2.0**90
LEAST_PART, MOST_PART = (int(np.float64(v).view(np.int64)) for v in PARTS)


# Counting references of arrays is atomic, and would take half the time of short rows.
bare = njit(
    nogil=True, error_model="numpy", no_cfunc_wrapper=True, pipeline_class=Compiler, _nrt=False
)


@hot
def after_place(result, g, begin, end, index):
    """Byte offset in the result of a position counted in C order over axes of g."""
    return offsets((None, None, None, None, result), g, begin, end, index)[AFTER]


@inner
def scatter_run(source, result, g, outer, base, first, count, itemsize):
    """Copy a run to coordinates of a row of the result that do not lie side by side."""
    rare()
    last = g.shape[1] - 1
    done = 0
    while done < count:
        n = count - done
        if last >= outer:
            n = min(n, g[0, last] - (first + done) % g[0, last])
        place = base + after_place(result, g, outer, last + 1, first + done)
        stride = g[AFTER + 1, last] if last >= outer else 0
        scatter(advance(source, done * itemsize), result, place, stride, n)
        done += n


@hot
def edit_row(
    state, arrays, single, result, report, g, outer, awkward, bases, base, row, length, factor,
    edited, quick, way, ahead, writes, streaming, pending,
):  # fmt: skip
    """Edit a row piece by piece, add its sums to the state, write what comes of it if asked."""
    memory = scratch_space(0)
    target = advance(memory, AFTER * 8 * SCRATCH)
    itemsize = result.itemsize
    for first in range(0, length, SCRATCH):
        n = min(SCRATCH, length - first)
        if awkward & INPUTS == 0:
            pointers = addresses(arrays, bases, first)
        else:
            pointers = gather(arrays, g, outer, awkward | APART, bases, first, n, memory)
        place = base + first * itemsize
        ragged = single is not None and n % LINE > 0
        direct = quick and report is None and writes and (awkward >> AFTER) & 1 == 0 and not ragged
        if streaming and not begins_line(result, place):  # `deliver` completes the lines
            direct = False
        end = address(result, place) if direct else target
        past = direct and streaming
        if quick and single is not None:
            clean = padded(pointers[0], n, memory) if ragged else pointers[0]
            quick_run(
                state, arrays[0], arrays[1], single, report, (clean, pointers[1]), end, past,
                factor, way[4] != 0, ahead, first, n,
            )  # fmt: skip
        elif quick and report is None:
            plain_run(
                arrays[0], arrays[1], result, pointers, end, past, factor, way[4] != 0, ahead, n
            )
        else:
            dose_run(
                state, arrays, result, report, pointers, target, factor, edited, way,
                (way[5] + row) * length, first, n,
            )  # fmt: skip
        if direct:
            continue
        if writes and (awkward >> AFTER) & 1:
            scatter_run(target, result, g, outer, base, first, n, itemsize)
        elif writes:
            deliver(target, result, place, n * itemsize, streaming, pending)


@hot
def mean_square(only, g, outer, awkward, bases, length):
    """Sum of squares and count of the kept coordinates of a row."""
    p = NOTHING
    for start in range(0, length, BLOCK):
        n = min(length - start, BLOCK)
        q = sum_block(only, PLAIN, None, g, outer, awkward & INPUTS, bases, start, n)
        p = fold(p, q[:8]) if start else q[:8]
    return p[0], p[3]


@bare
def dose_rows(
    arrays, single, result, cast, report, g, outer, awkward, length, alphas, scales, units, sizes,
    requests, quick, way, reals, wholes, writes, streaming, refuse, begin, end,
):  # fmt: skip
    """result[row] = the edited row; fields row * n + k of a report, of alpha k of n.

    cast: True where the clean state is h rounded, None where it is h. scales: of each row, none
    for the RMS of the clean state. units: what the direction is divided by. sizes: its RMS as it
    was given. requests: the RMS of each row of the direction, where that is the edit itself.
    Of alphas, scales, units, sizes and requests, one serves all rows or each has its own. quick:
    whether _dose_lines.quick_run serves moderate rows or, where single is None, _doses.plain_run
    finite ones. refuse: as in _scalings.scale_rows.
    """
    if refuse and has_zero_row(arrays, g, outer, length, begin, end):
        return True
    state, only = new_state(0), (arrays[0], None, None, arrays[3], None, *arrays[5:])
    states, fields, pending = lane_states(only, PLAIN), field_space(0), pending_line(0)
    ahead = WIDTH * g[1, outer - 1] if outer else 0
    together = 1
    if cast is None and length <= TOGETHER // WIDTH and awkward & INPUTS == 0:
        together = WIDTH
    for row in range(begin, end):
        bases = offsets(arrays, g, 0, outer, row)
        base = after_place(result, g, 0, outer, row)
        if cast is None:
            i = (row - begin) % together
            if together > 1 and i == 0:
                n = min(together, end - row)
                sum_rows(only, PLAIN, g, outer, length, row, n, states, fields)
            if together > 1:
                p = columns_tuple(fields, i)
                square, count = p[0], p[3]
            else:
                square, count = mean_square(only, g, outer, awkward, bases, length)
        else:
            clear(state)
            edit_row(
                state, arrays, single, result, True, g, outer, awkward, bases, base, row, length,
                0.0, False, False, way, 0, False, False, pending,
            )  # fmt: skip
            found = totals(state)
            square, count = found[CLEAN], found[COUNT]
        own = math.sqrt(square / count)
        given = scales[row % len(scales)] if len(scales) else own
        unit = units[row % len(units)]
        for k in range(alphas.shape[1]):
            alpha = alphas[row % len(alphas), k]
            scale = given if requests is None else unit
            edited = alpha != 0.0 and scale != 0.0
            factor = alpha * scale / unit if edited else 0.0
            usual = quick and edited and own < np.inf and abs(factor) < np.inf
            if single is not None:
                usual = usual and min(own, abs(factor)) >= QUICK_LEAST
                usual = usual and max(own, abs(factor)) <= QUICK_MOST
            clear(state)
            edit_row(
                state, arrays, single, result, report, g, outer, awkward, bases, base, row, length,
                factor, edited, usual, way, ahead, writes, streaming, pending,
            )  # fmt: skip
            if report is not None:
                if requests is not None:  # the dose is what comes of the edit
                    alpha *= requests[row % len(requests)] / given
                write_fields(
                    totals(state), square, count, alpha, given, sizes[row % len(sizes)], unit,
                    reals, wholes, row * alphas.shape[1] + k,
                )  # fmt: skip
    if streaming:
        write_pending(pending)
        fence()
    return False


@bare
def part_lines(given, lines, single, begin, end):
    """lines: what is given in float64, and zeros; single: that as _dose_lines.quick_run takes it.

    Return whether it can take these numbers.
    """
    least, most = SIZE, 0
    for line in range(begin, end):
        values, numbers = given[0][LINE * line :], lines[LINE * line :]
        count = min(len(values), LINE)
        for k in range(count):
            numbers[k] = values[k]
        for k in range(count, LINE):
            numbers[k] = 0.0
        if single is not None:
            halves, there = single[LINE * line :], 0
            for k in range(LINE):
                size = np.float64(numbers[k]).view(np.int64) & SIZE
                there |= (size > 0) << k
                least = min(least, (size - 1) & SIZE)  # of numbers that are not 0
                most = max(most, size)
            for k in range(LINE // 2):
                halves[k], halves[LINE // 2 + k] = numbers[2 * k], numbers[2 * k + 1]
            single[LINE * end + line] = np.uint32(there).view(np.float32)
    return LEAST_PART <= least < most < MOST_PART


@bare
def round_elements(arrays, result, g, apart, step, way, overflows, begin, end):
    """result = arrays[0] rounded, run after run along the last axis of g, `step` at a time.

    overflows[unit]: how many elements of a unit overflow.
    """
    memory = scratch_space(0)
    scattered = (apart >> RESULT) & 1
    last = g.shape[1] - 1
    length = g[0, last]
    steps = (length + step - 1) // step
    strides = strides_of(arrays, g, last, 1)
    for unit in range(begin, end):
        row = unit // steps
        start = (unit - row * steps) * step
        found = 0
        for first in range(start, min(start + step, length), SCRATCH):
            n = min(SCRATCH, length - first)
            places = moved(offsets(arrays, g, 0, last, row), strides_of(arrays, g, last, first))
            pointers = fetch(arrays, places, strides, apart, n, memory, 0)
            place = result_place(result, g, 0, last, row) + first * g[RESULT + 1, last]
            target = address(result, place)
            if scattered:
                target = advance(memory, RESULT * 8 * SCRATCH)
            found += round_run(arrays[0], result, pointers[0], target, way, row * length + first, n)
            if scattered:
                scatter(target, result, place, g[RESULT + 1, last], n)
        overflows[unit] = found


@inner
def lost_square(t):
    """Mean square of what rounding to integers does to normal numbers of deviation t."""
    if t > 1.0:
        return 1.0 / 12.0  # to 3e-9
    if t < 0.06:
        return t * t  # none reaches one half
    total, k, sign = 1.0 / 12.0, 1, -1.0
    while k * t < 1.2:
        total += sign / (math.pi * k) ** 2 * math.exp(-2.0 * (math.pi * k * t) ** 2)
        k, sign = k + 1, -sign
    return total


@inner
def floor_of(counts, least, fraction, size, allowed):
    """The dose at which the mean square of what is lost is `allowed` of that of the edit."""
    number = counts.sum()
    if not 0.0 < size < np.inf:
        return np.nan
    if allowed <= 0.0:
        return np.inf
    square = 0.0
    for e in range(len(counts)):
        square += counts[e] * math.ldexp(1.0, 2 * (e + least - fraction))
    high = math.sqrt(square / number / 12.0 / allowed) / size
    low = 0.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        lost = 0.0
        for e in range(len(counts)):
            if counts[e] > 0:
                t = middle * size / math.ldexp(1.0, e + least - fraction)
                lost += counts[e] / number * lost_square(t) / (t * t)
        if lost > allowed:
            low = middle
        else:
            high = middle
    return high


@kernel
def dose_floors(
    arrays, result, g, outer, awkward, length, least, fraction, allowed, floors, begin, end
):
    """floors[row] = the smallest dose; result: of the storage format."""
    memory = scratch_space(0)
    target = advance(memory, RESULT * 8 * SCRATCH)
    counts = np.empty(256, np.int64)
    for row in range(begin, end):
        bases = offsets(arrays, g, 0, outer, row)
        counts[:] = 0
        square = 0.0
        for first in range(0, length, SCRATCH):
            n = min(SCRATCH, length - first)
            if awkward == 0:
                pointers = addresses(arrays, bases, first)
            else:
                pointers = gather(arrays, g, outer, awkward | APART, bases, first, n, memory)
            round_run(arrays[0], result, pointers[0], target, (0, 0, 0), 0, n)
            square += tally(result, target, n, least, address(counts, 0))
        floors[row] = floor_of(counts, least, fraction, math.sqrt(square / length), allowed)
