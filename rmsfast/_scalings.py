"""The compiled loops that scale rows: a row's size from its partial, then one write.

`g` is that of _kernels with one row more: the strides of the result. The others are those
of (x, gain, -, -, -) where whole rows are scaled, and of (x, gain, high, low, shift) where
every element is.
"""

import math

import numpy as np

from rmsfast._edges import fence, pending_line, write_pending
from rmsfast._kernels import (
    HIGH,
    add_pairs,
    add_run,
    add_scaled,
    divide_pairs,
    fold,
    hot,
    inner,
    kernel,
    load,
    root,
    root_pair,
    sum_block,
    sum_rows,
)
from rmsfast._lanes import (
    cleared,
    factors_of,
    field_space,
    found_at,
    lane_states,
    reduce_rows,
    state_of,
)
from rmsfast._memory import (
    address,
    addresses,
    advance,
    apart,
    fetch,
    moved,
    offsets,
    put,
    scratch_space,
    strides_of,
    summon,
)
from rmsfast._partial import BLOCK
from rmsfast._partial import EMPTY as NOTHING
from rmsfast._stores import (
    PACKED,
    any_nonzero,
    arrange_gains,
    gain_space,
    number_at,
    scatter,
    write_run,
)
from rmsfast._swift import GAINS
from rmsfast._vectors import AHEAD_FAR, SCRATCH, WIDTH

RESULT = 5  # place among the arrays
PLAIN, INSIDE, OUTSIDE, MAX = range(4)  # what becomes of eps
TOGETHER = 1 << 15  # numbers of neighbouring rows that stay in cache until they are scaled
LEAST = 2.0**-800  # sums and factors down to here, and up to 1 / LEAST, need no care
SOON = 16  # rows whose first numbers are on their way while one is looked at
SAFE = 900  # binary exponents of factors that leave room for any x, and for the low part


@inner
def add_eps(h, low, e, eps):
    """A pair with an exponent, and eps; a small row keeps its exponent while eps fits there."""
    if 0.0 < e < 2000.0 and math.ldexp(eps, int(e)) < HIGH:
        h, low = add_pairs(h, low, math.ldexp(eps, int(e)), 0.0)
        return h, low, e
    return add_scaled(h, low, e, eps, 0.0, 0.0)


@inner
def size_of(p, mode, eps):
    """The size that a row is divided by, as a pair with an exponent."""
    if mode == INSIDE and eps > 0.0:
        q, low = divide_pairs(p[0], p[1], p[3], p[4])
        q, low, e = add_eps(q, low, p[2] - p[5], eps)
        return root_pair((q, low, e, 1.0, 0.0, 0.0, 0.0, 0.0))
    h, low, e = root_pair(p)
    if mode == OUTSIDE:
        return add_eps(h, low, e, eps)
    if mode == MAX and h < math.ldexp(eps, int(e)):
        return eps, 0.0, 0.0
    return h, low, e


@inner
def factor_of(p, mode, eps, target):
    """Target / size as (high, low, before, after): x is multiplied by before, (high + low), after.

    before and after are powers of two, other than 1 only where the factor alone would leave
    the range of float64.
    """
    h, low, e = size_of(p, mode, eps)
    if h == 0.0 or not math.isfinite(h) or target == 0.0 or not math.isfinite(target):
        return (target / h if h != 0.0 or p[0] != p[0] else np.nan), 0.0, 1.0, 1.0
    t, exponent = math.frexp(target)
    fraction, shift = math.frexp(h)
    q, q_low = divide_pairs(t, 0.0, fraction, math.ldexp(low, -shift))
    exponent += int(e) - shift
    # Most of an exponent beyond SAFE goes to x first: in that case x lies as far from 1 the
    # other way, or what it loses is lost in the result too.
    before = after = 0
    if abs(exponent) > SAFE:
        sign = 1 if exponent > 0 else -1
        before = sign * min(abs(exponent) - SAFE, 1000)
        rest = exponent - before
        exponent = sign * min(abs(rest), SAFE)
        after = rest - exponent
    high, q_low = math.ldexp(q, exponent), math.ldexp(q_low, exponent)
    return high, q_low, math.ldexp(1.0, before), math.ldexp(1.0, after)


@inner
def joined(before, after):
    """Two powers of two as one number (see Scaling.shifts)."""
    return PACKED * (math.frexp(before)[1] - 1) + (math.frexp(after)[1] - 1)


@hot
def result_place(result, g, begin, end, index):
    """Byte offset in the result of a position counted in C order over axes of g."""
    return offsets((None, None, None, None, None, result), g, begin, end, index)[RESULT]


@inner
def parted(shift):
    before = math.floor(shift / PACKED + 0.5)
    return math.ldexp(1.0, int(before)), math.ldexp(1.0, int(shift - PACKED * before))


@inner
def row_partial(arrays, how, wide, g, outer, awkward, bases, length):
    """The partial of a row."""
    apart()
    p = NOTHING
    for start in range(0, length, BLOCK):
        n = min(length - start, BLOCK)
        q = sum_block(arrays, how, wide, g, outer, awkward, bases, start, n)
        p = fold(p, q[:8]) if start else q[:8]
    return p


@inner
def is_zero(arrays, g, outer, length, row):
    """Whether all numbers of a row, side by side, are 0."""
    pointers = addresses(arrays, offsets(arrays, g, 0, outer, row), 0)
    summon(advance(pointers[0], SOON * g[1, outer - 1] if outer else 0))
    return not any_nonzero(arrays[0], pointers[0], length)


@inner
def has_zero_row(arrays, g, outer, length, begin, end):
    """Whether there is a row of zeros."""
    row = begin
    while row < end and not is_zero(arrays, g, outer, length, row):
        row += 1
    return row < end


@kernel
def scale_rows(
    arrays, how, wide, writes, cast, result, g, outer, awkward, length, mode, eps, zero, targets,
    offset, sizes, streaming, refuse, begin, end,
):  # fmt: skip
    """result[row] = row * target / size for rows whose numbers lie side by side; sizes[row] = RMS.

    zero: the factor of a row of zeros. refuse: return True before anything is written if there is
    such a row, for calls that are not shared among threads.
    """
    if refuse and has_zero_row(arrays, g, outer, length, begin, end):
        return True
    inside, outside = (eps if mode == INSIDE else 0.0), (eps if mode == OUTSIDE else 0.0)
    least = eps if mode == MAX else 0.0
    states, fields, wanted = lane_states(arrays, how), field_space(0), scratch_space(0)
    pending, gains = pending_line(0), gain_space(0)
    ahead = WIDTH * g[1, outer - 1] if outer else 0
    together = WIDTH if length <= TOGETHER // WIDTH and awkward == 0 and end - begin > 1 else 1
    for first in range(begin, end, together):
        usual, n = False, min(together, end - first)
        if together > 1:
            if first == begin:
                sum_rows(arrays, how, g, outer, length, first, n, states, fields)
            else:  # the sums of these rows were made while those before them were written
                reduce_rows(states, arrays, how, length, fields)
            for i in range(WIDTH):
                put(wanted, i, targets[(first + i) % len(targets)])
            usual = factors_of(fields, wanted, inside, outside, least, LEAST, 1.0 / LEAST)
        for row in range(first, first + n):
            bases = offsets(arrays, g, 0, outer, row)
            if usual and sizes is None:
                i = row - first
                factor = (found_at(fields, 0, i), found_at(fields, 1, i), 1.0, 1.0)
            else:
                p = row_partial(arrays, how, wide, g, outer, awkward, bases, length)
                if sizes is not None:
                    sizes[row] = root(p, sizes.itemsize == 4)
                factor = (zero, zero, 1.0, 1.0)
                if p[0] != 0.0 or mode != PLAIN:
                    factor = factor_of(p, mode, eps, targets[row % len(targets)])
            place = result_place(result, g, 0, outer, row)
            later, count = row + together, 0
            if together > 1 and later < end:
                count = length
            coming = offsets(arrays, g, 0, outer, min(later, end - 1))
            state = state_of(states, arrays, how, row - first)
            added = 0
            for start in range(0, length, GAINS):
                n = min(length - start, GAINS)
                pointers = addresses(writes, bases, start)
                target = addresses((result,), (place,), start)[0]
                if row == begin or length > GAINS:
                    arrange_gains(writes, result, cast, pointers, offset, n, gains)
                added = write_run(
                    writes, result, cast, pointers, target, factor, offset, gains, n, ahead,
                    streaming, pending,
                    (state, arrays, how, addresses(arrays, coming, 0), count),
                )  # fmt: skip
            if added < count:
                if added == 0:
                    cleared(states, arrays, how, row - first)
                add_run(state, arrays, how, addresses(arrays, coming, added), None, count - added)
    if streaming:
        write_pending(pending)
        fence()
    return False


@kernel
def factors(partials, mode, eps, zero, targets, high, low, shift, sizes, begin, end):
    """The factor of each row; where low is None, high alone, which is all that float32 needs."""
    for row in range(begin, end):
        p = load(partials, row)
        if sizes is not None:
            sizes[row] = root(p, sizes.itemsize == 4)
        factor = (zero, 0.0, 1.0, 1.0)
        if p[0] != 0.0 or p[3] == 0.0 or mode != PLAIN:
            factor = factor_of(p, mode, eps, targets[row % len(targets)])
        high[row] = factor[0]
        if low is None:  # a factor that leaves no room is beyond the result too
            high[row] *= min(factor[2] * factor[3], 1.0)
        else:
            low[row], shift[row] = factor[1], joined(factor[2], factor[3])


@inner
def write_piece(
    writes, cast, result, g, apart, row, first, n, factor, offset, streaming, memory, pending
):
    """Elements first to first + n of a run; by way of `memory` where they lie apart."""
    last = g.shape[1] - 1
    strides = strides_of(writes, g, last, 1)
    places = moved(offsets(writes, g, 0, last, row), strides_of(writes, g, last, first))
    place = result_place(result, g, 0, last, row) + first * g[RESULT + 1, last]
    scattered = (apart >> RESULT) & 1
    target = advance(memory, RESULT * 8 * SCRATCH) if scattered else address(result, place)
    pointers = fetch(writes, places, strides, apart, n, memory, 0)
    past = streaming and scattered == 0
    gains = gain_space(0)
    arrange_gains(writes, result, cast, pointers, offset, n, gains)
    write_run(
        writes, result, cast, pointers, target, factor, offset, gains, n, AHEAD_FAR, past, pending,
        None,
    )  # fmt: skip
    if scattered:
        scatter(target, result, place, g[RESULT + 1, last], n)


@kernel
def scale_elements(writes, single, cast, result, g, apart, step, offset, streaming, begin, end):
    """Result = x * (high + low) * shift, run after run along the last axis, `step` at a time."""
    memory, pending = scratch_space(0), pending_line(0)
    last = g.shape[1] - 1
    length = g[0, last]
    steps = (length + step - 1) // step
    own = g[3, last] == 0
    for unit in range(begin, end):
        row = unit // steps
        first = (unit - row * steps) * step
        n = min(step, length - first)
        if own:
            places = offsets(writes, g, 0, last, row)
            h, low, s = (
                number_at(writes[2], places[2]),
                number_at(writes[3], places[3]),
                number_at(writes[4], places[4]),
            )
            before, after = parted(s)
            factor = (h, low, before, after)
            write_piece(
                single, cast, result, g, apart, row, first, n, factor, offset, streaming, memory,
                pending,
            )  # fmt: skip
        else:
            factor = (1.0, 0.0, 1.0, 1.0)
            write_piece(
                writes, cast, result, g, apart, row, first, n, factor, offset, streaming, memory,
                pending,
            )  # fmt: skip
    if streaming:
        write_pending(pending)
        fence()


@kernel
def divide_elements(writes, shares, result, g, apart, step, zero, streaming, begin, end):
    """Result = x / size (see Division), `step` at a time; zero: size in place of 0.

    shares: None, or those of runs, which are the same along the last axis.
    """
    memory, pending = scratch_space(0), pending_line(0)
    last = g.shape[1] - 1
    length = g[0, last]
    steps = (length + step - 1) // step
    for unit in range(begin, end):
        row = unit // steps
        first = (unit - row * steps) * step
        share = 0.0
        if shares is not None:
            share = number_at(shares, offsets((None, None, None, shares), g, 0, last, row)[3])
        factor = (zero, share, 1.0, 1.0)
        n = min(step, length - first)
        write_piece(
            writes, None, result, g, apart, row, first, n, factor, 0.0, streaming, memory, pending
        )
    if streaming:
        write_pending(pending)
        fence()


@kernel
def zero_rows(arrays, g, outer, length, flags, begin, end):
    """flags[row] = 1 where all numbers of a row, side by side, are 0."""
    for row in range(begin, end):
        flags[row] = is_zero(arrays, g, outer, length, row)
