"""The compiled loops of `describe`: blocks, how they are joined, what is reported.

A *moment* is the state of a run of x: its sum of squares as in a partial (high, low, exponent)
and how many values are kept; then, of the values times 2**exponent, the sum and the sum of
squares about the mean, both as pairs; the least and the largest value; how many are 0, NaN and
infinite; the index of the first largest |x|; and the length of the run, kept or not. It is a
tuple of float64; runs are joined in order.

A block that does not lie side by side, or not in native byte order, is copied to memory of the
thread first; so are the rows of a tile where they are columns in memory. Then all is in cache,
and may be walked again.
"""

import math

import numpy as np
from numba import prange

from rmsfast._kernels import (
    HIGH,
    LOW,
    add_pairs,
    add_scaled,
    checked_squares,
    divide_pairs,
    hot,
    inner,
    parallel,
    root,
    root_of_pair,
    rounded,
    serial,
    two_sum,
)
from rmsfast._lanes import two_product
from rmsfast._layout import APART
from rmsfast._memory import (
    ARRAYS,
    addresses,
    aligned,
    apart,
    copy_apart,
    moved,
    offsets,
    parts_of,
    rare,
    strides_of,
)
from rmsfast._partial import BLOCK
from rmsfast._summary_lanes import (
    centred_squares,
    element,
    first_of_size,
    formats_of,
    moments,
    special_values,
)

NEUTRAL = 1.0e6  # the exponent of sums that are 0: it yields to any other
MOMENT_FIELDS = 16
(SQUARES, SQUARES_LOW, SQUARES_EXPONENT, COUNT, TOTAL, TOTAL_LOW, CENTRED, CENTRED_LOW, EXPONENT,
 LEAST, MOST, ZEROS, NANS, INFS, INDEX, LENGTH) = range(MOMENT_FIELDS)  # fmt: skip


# ----------------------------------------------------------------------------- where


@inner
def copy_rows(arrays, g, outer, awkward, bases, rows, start, count, memory, part, room):
    """Copy a block of each row of a tile side by side, the rows `room` elements apart."""
    apart()
    last = g.shape[1] - 1
    strides, run, done = strides_of(arrays, g, -1, 1), 1, 0
    if last >= outer:
        strides, run = strides_of(arrays, g, last, 1), g[0, last]
    steps = strides_of(arrays, g, outer - 1, 1)
    while done < count:
        n = min(count - done, run - (start + done) % run)
        places = moved(bases, offsets(arrays, g, outer, last + 1, start + done))
        copy_apart(arrays, places, strides, steps, awkward, n, rows, memory, part, done, room)
        done += n


@inner
def room_of(length):
    """Elements from one copied row to the next: not a power of two, as caches dislike."""
    return min(length, BLOCK) + 64


# --------------------------------------------------------------------------- describe


@inner
def moments_rescaled(formats, how, pointers, count, kept, peak):
    """Sum and sum of squares about the mean, as pairs, of values scaled to at most 1."""
    rare()
    shift = -math.frexp(peak)[1]
    s = c = q = q_low = mean = mean_low = 0.0
    for sweep in range(2):
        for i in range(count):
            keep, v, _ = element(formats, how, pointers, i)
            if keep == 0.0:
                continue
            v = math.ldexp(v, shift)
            if sweep == 0:
                s, lost = two_sum(s, v)
                c += lost
            else:
                d, low = two_sum(v, -mean)
                d, low = two_sum(d, low - mean_low)
                p, lost = two_product(d, d)
                q, more = two_sum(q, p)
                q_low += more + (lost + 2.0 * d * low)
        mean, mean_low = divide_pairs(s, c, kept, 0.0)
    s, c = add_pairs(s, c, 0.0, 0.0)
    return s, c, q, q_low, float(shift)


@hot
def moments_in_range(formats, how, pointers, count, p, s, low, least, most):
    """Sum and sum of squares about the mean, as pairs, of a block of squares p and sum s + low.

    Where the mean is small beside the spread the second is the difference of two sums, which
    then loses next to nothing: 40 of the 106 bits of pairs, or one of the 53 of plain sums.
    Elsewhere the block, which is in cache, is walked again.
    """
    if least == most:
        return s, low, 0.0, 0.0, NEUTRAL if least == 0.0 else 0.0
    q, q_low, mean, mean_low = difference_of_sums(how[1], p[0], p[1], s, low, p[3])
    if not q >= (0.5 if how[1] is None else 2.0**-40) * p[0] and math.isfinite(p[0]):
        q, q_low = walk_again(formats, how, pointers, mean, mean_low, count)
    return s, low, q, q_low, 0.0


@inner
def walk_again(formats, how, pointers, mean, mean_low, count):
    return centred_squares(formats, how, pointers, mean, mean_low, count)


@hot
def difference_of_sums(exact, squares, squares_low, s, low, kept):
    """Squares - s * s / kept and the mean s / kept, as pairs if the sums are."""
    if exact is None:
        mean = s / kept
        return squares - mean * s, 0.0, mean, 0.0
    mean, mean_low = divide_pairs(s, low, kept, 0.0)
    h, h_low = two_product(mean, s)
    h_low += mean * low + mean_low * s
    q, q_low = add_pairs(squares, squares_low, -h, -h_low)
    return q, q_low, mean, mean_low


@hot
def moments_checked(formats, how, wide, pointers, count, p, s, low, least, most):
    """The same, scaled where the squares left the range of float64."""
    if wide is None:
        return moments_in_range(formats, how, pointers, count, p, s, low, least, most)
    peak = max(-least, most)
    if LOW <= p[0] <= HIGH or not 0.0 < peak < np.inf or p[0] != p[0]:
        return moments_in_range(formats, how, pointers, count, p, s, low, least, most)
    return moments_rescaled(formats, how, pointers, count, p[3], peak)


@hot
def squares_checked(arrays, how, wide, g, outer, awkward, bases, start, count, p):
    if wide is None:
        return p
    everywhere = awkward | APART if awkward else 0
    padded = (*p, 0.0, 0.0, 0.0, 0.0)
    return checked_squares(arrays, how, None, g, outer, everywhere, bases, start, count, padded)[:8]


@inner
def count_specials(formats, how, pointers, count):
    rare()
    return special_values(formats, how, pointers, count)


@hot
def moment_of(formats, arrays, how, wide, g, outer, awkward, bases, pointers, start, count, beaten):
    """The moment of a block; no index is looked for where no |x| is larger than `beaten`."""
    found = moments(formats, how, pointers, count)
    p, (s, low, least, most, zeros) = found[:8], found[8:]
    nans, infs, index, kept, length = p[6], 0.0, -1, p[3], float(count)
    if kept == 0.0:
        return (
            0.0, 0.0, NEUTRAL, 0.0, 0.0, 0.0, 0.0, 0.0, NEUTRAL, least, most, 0.0, nans, 0.0,
            -1.0, length,
        )  # fmt: skip
    s, low, q, q_low, e = moments_checked(
        formats, how, wide, pointers, count, p, s, low, least, most
    )
    p = squares_checked(arrays, how, wide, g, outer, awkward, bases, start, count, p)
    peak = max(-least, most)
    if p[0] != p[0] or peak == np.inf:
        seen, infs = count_specials(formats, how, pointers, count)
        nans = max(nans, seen)
    if p[0] != p[0]:
        s = q = least = most = peak = np.nan
    if not peak <= beaten:
        index = first_of_size(formats, how, pointers, peak if peak == peak else -1.0, count)
    return (
        p[0], p[1], p[2], kept, s, low, q, q_low, e, least, most, zeros, nans, infs,
        float(index), length,
    )  # fmt: skip


@inner
def join_moments(p, q):
    """The moment of two neighbouring runs (Chan, Golub & LeVeque 1983)."""
    s, s_low, s_e = add_scaled(p[0], p[1], p[2], q[0], q[1], q[2])
    kept = p[COUNT] + q[COUNT]
    e = min(p[EXPONENT], q[EXPONENT])
    a, a_low, m, m_low = scaled_moment(p, int(e - p[EXPONENT]))
    b, b_low, n, n_low = scaled_moment(q, int(e - q[EXPONENT]))
    h, low, _ = add_scaled(a, a_low, e, b, b_low, e)
    m, m_low = add_pairs(m, m_low, n, n_low)
    if p[COUNT] > 0.0 and q[COUNT] > 0.0:
        a, a_low = divide_pairs(a, a_low, p[COUNT], 0.0)
        b, b_low = divide_pairs(b, b_low, q[COUNT], 0.0)
        d, _ = add_pairs(b, b_low, -a, -a_low)
        m, m_low = add_pairs(m, m_low, d * d * (p[COUNT] * (q[COUNT] / kept)), 0.0)
    first, second = size_of_peak(p), size_of_peak(q)
    index = p[INDEX]
    if index < 0.0 or second > first or (second != second and first == first):
        index = q[INDEX] + p[LENGTH] if q[INDEX] >= 0.0 else p[INDEX]
    return (
        s, s_low, s_e, kept, h, low, m, m_low, e,
        further_out(p[LEAST], q[LEAST], 1.0), further_out(p[MOST], q[MOST], -1.0),
        p[ZEROS] + q[ZEROS], p[NANS] + q[NANS], p[INFS] + q[INFS], index, p[LENGTH] + q[LENGTH],
    )  # fmt: skip


@inner
def scaled_moment(p, shift):
    if shift == 0:
        return p[TOTAL], p[TOTAL_LOW], p[CENTRED], p[CENTRED_LOW]
    return (
        math.ldexp(p[TOTAL], shift), math.ldexp(p[TOTAL_LOW], shift),
        math.ldexp(p[CENTRED], 2 * shift), math.ldexp(p[CENTRED_LOW], 2 * shift),
    )  # fmt: skip


@hot
def size_of_peak(p):
    return max(-p[LEAST], p[MOST]) if p[MOST] == p[MOST] else np.nan


@inner
def further_out(a, b, sign):
    """The lesser (sign 1) or greater (sign -1); NaN is furthest."""
    return b if sign * b < sign * a or b != b else a


@hot
def describe_row(p, single, reals, counts, row):
    """Store what is reported of a moment."""
    kept, least, most = p[COUNT], p[LEAST], p[MOST]
    counts[0, row], counts[1, row] = int(kept), int(p[INDEX])
    counts[2, row], counts[3, row], counts[4, row] = int(p[NANS]), int(p[INFS]), int(p[ZEROS])
    if kept == 0.0:
        for i in range(8):
            reals[i, row] = np.nan
        return
    size = root((p[0], p[1], p[2], kept, 0.0, 0.0, 0.0, 0.0), single)
    peak = abs(size_of_peak(p))
    if p[2] == 0.0 and p[EXPONENT] == 0.0 and p[TOTAL_LOW] == 0.0 and p[CENTRED_LOW] == 0.0:
        mean, deviation = p[TOTAL] / kept, math.sqrt(p[CENTRED] / kept)
        share = peak * peak / (p[0] + p[1])
    else:
        mean, deviation, share = precise_row(p, peak)
    if least == most:
        mean, deviation = least, peak - peak
    crest = math.sqrt(share * kept)
    if not (deviation == deviation and crest == crest):
        size, mean, deviation = one_nan(size), one_nan(mean), one_nan(deviation)
        share, crest = one_nan(share), one_nan(crest)
    reals[0, row], reals[1, row], reals[2, row] = size, mean, deviation
    reals[3, row], reals[4, row], reals[5, row] = least, most, peak
    reals[6, row], reals[7, row] = share, crest


@inner
def precise_row(p, peak):
    """Mean, standard deviation and share of the peak, from pairs with exponents."""
    rare()
    h, low = divide_pairs(p[TOTAL], p[TOTAL_LOW], p[COUNT], 0.0)
    mean = rounded(h, low, p[EXPONENT])
    h, low = divide_pairs(p[CENTRED], p[CENTRED_LOW], p[COUNT], 0.0)
    h, low = root_of_pair(h, low)
    fraction, shift = math.frexp(peak)
    share = math.ldexp(fraction * fraction / (p[0] + p[1]), int(p[2]) + 2 * shift)
    return mean, rounded(h, low, p[EXPONENT]), share


@hot
def one_nan(v):
    """The value, NaN without its bits."""
    return v if v == v else np.nan


@hot
def pack_moment(states, k, p):
    for i in range(MOMENT_FIELDS):
        states[k, i] = p[i]


@inner
def moment_at(states, k):
    return (
        states[k, 0], states[k, 1], states[k, 2], states[k, 3], states[k, 4], states[k, 5],
        states[k, 6], states[k, 7], states[k, 8], states[k, 9], states[k, 10], states[k, 11],
        states[k, 12], states[k, 13], states[k, 14], states[k, 15],
    )  # fmt: skip


@serial
def describe_blocks(
    arrays, how, wide, g, outer, awkward, length, tile, columns, part, row0, first, blocks, single,
    states, reals, counts, begin, end,
):  # fmt: skip
    """states[(row - row0) * blocks + k] = the moment of block first + k of a row.

    A unit is one block of a tile: `tile` rows that are neighbours in memory, of each run of
    `columns` rows. Where it is awkward, each array is copied to `part` bytes of memory first.
    Where a row is one block, what is reported of it is stored instead.
    """
    room, tiles = room_of(length), -(-columns // tile)
    memory = np.empty(part // 8 * ARRAYS + 8)
    formats = formats_of(arrays)
    above = row0 // columns * tiles + row0 % columns // tile
    row, beaten = -1, -1.0
    for unit in range(begin, end):
        block, group = unit % blocks, above + unit // blocks
        start = (first + block) * BLOCK
        count = min(BLOCK, length - start)
        top = group // tiles * columns + group % tiles * tile
        rows = min(tile, columns - group % tiles * tile)
        place = aligned(memory)  # here, so that the memory is kept while the loop runs
        if awkward != 0:
            bases = offsets(arrays, g, 0, outer, top)
            copy_rows(arrays, g, outer, awkward, bases, rows, start, count, place, part, room)
        for r in range(rows):
            beaten = beaten if top + r == row else -1.0
            row = top + r
            bases = offsets(arrays, g, 0, outer, row)
            if awkward != 0:
                pointers = parts_of(arrays, place, part, r * room)
            else:
                pointers = addresses(arrays, bases, start)
            p = moment_of(
                formats, arrays, how, wide, g, outer, awkward, bases, pointers, start, count, beaten
            )
            if blocks == 1 and length <= BLOCK:
                describe_row(p, single, reals, counts, row)
            else:
                beaten = max(beaten, size_of_peak(p))
                pack_moment(states, (row - row0) * blocks + block, p)


@parallel
def describe_blocks_parallel(
    arrays, how, wide, g, outer, awkward, length, tile, columns, part, row0, first, blocks, single,
    states, reals, counts, begin, end, share,
):  # fmt: skip
    for k in prange((end - begin + share - 1) // share):
        a = begin + k * share
        b = min(a + share, end)
        describe_blocks(
            arrays, how, wide, g, outer, awkward, length, tile, columns, part, row0, first, blocks,
            single, states, reals, counts, a, b,
        )  # fmt: skip


@serial
def fold_moments(states, blocks, totals, begin, end):
    """Fold the blocks of each row, in order, into its total."""
    for row in range(begin, end):
        p = moment_at(totals, row)
        for k in range(row * blocks, (row + 1) * blocks):
            p = join_moments(p, moment_at(states, k))
        pack_moment(totals, row, p)


@serial
def describe_totals(totals, single, row0, reals, counts, begin, end):
    for row in range(begin, end):
        describe_row(moment_at(totals, row), single, reals, counts, row0 + row)
