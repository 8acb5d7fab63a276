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

from rmsfast._kernels import (
    HIGH,
    LOW,
    add_pairs,
    add_scaled,
    checked_squares,
    divide_pairs,
    hot,
    inner,
    kernel,
    root,
    root_of_pair,
    rounded,
    two_sum,
)
from rmsfast._lanes import two_product
from rmsfast._layout import APART
from rmsfast._memory import (
    addresses,
    advance,
    aligned,
    apart,
    copy_apart,
    moved,
    offsets,
    parts_of,
    rare,
    strides_of,
    there,
)
from rmsfast._moment_lanes import (
    add_moments,
    add_spread,
    clear_moments,
    clear_spread,
    moments_size,
    peak_of,
    reduce_moments,
    reduce_spread,
    special_values,
    tell_moments,
)
from rmsfast._partial import BLOCK, WIDTH
from rmsfast._summary_lanes import element, first_of_size, formats_of

STRETCH = 1024  # coordinates that are walked more than once while in the level 1 cache
COPIED = 256  # as many of each row of a tile, which is copied: it takes fewer pages of memory
NEUTRAL = 1.0e6  # the exponent of sums that are 0: it yields to any other
MOMENT_FIELDS = 16
(SQUARES, SQUARES_LOW, SQUARES_EXPONENT, COUNT, TOTAL, TOTAL_LOW, CENTRED, CENTRED_LOW, EXPONENT,
 LEAST, MOST, ZEROS, NANS, INFS, INDEX, LENGTH) = range(MOMENT_FIELDS)  # fmt: skip
# What is noted of a row beside its lanes: AGAIN, whether it is to be walked about its mean.
NOTES = 7
(NOTED_NANS, NOTED_INFS, NOTED_INDEX, BEATEN, CENTRE, CENTRE_LOW, AGAIN) = range(NOTES)


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
def stretch_of(awkward):
    return STRETCH if awkward == 0 else COPIED


@inner
def room_of(length):
    """Elements from one copied row to the next: not a power of two, as caches dislike."""
    return min(length, COPIED) + 16


WHOLE = 2.0**53  # from here on several 64-bit integers are one float64

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


@inner
def row_pointers(arrays, g, outer, awkward, bases, start, count, place, part):
    """Pointers to a block of one row, side by side."""
    rare()
    if awkward == 0:
        return addresses(arrays, bases, start)
    copy_rows(arrays, g, outer, awkward, bases, 1, start, count, place, part, 0)
    return parts_of(arrays, place, part, 0)


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
def squares_checked(arrays, how, wide, g, outer, awkward, bases, start, count, p):
    if wide is None:
        return p
    everywhere = awkward | APART if awkward else 0
    padded = (*p, 0.0, 0.0, 0.0, 0.0)
    return checked_squares(arrays, how, None, g, outer, everywhere, bases, start, count, padded)[:8]


@inner
def note_moments(formats, how, state, pointers, start, count, news, notes, r):
    """Keep what is new in a stretch: its peak if that is the largest, its NaN and infinities."""
    rare()
    if news >= 2:
        nans, infs = special_values(formats, how, pointers, count)
        notes[r, NOTED_NANS] += nans
        notes[r, NOTED_INFS] += infs
        if nans > 0.0 and how[0] is None and notes[r, BEATEN] == notes[r, BEATEN]:
            notes[r, NOTED_INDEX] = start + first_of_size(formats, how, pointers, -1.0, count)
            notes[r, BEATEN] = np.nan  # by nothing any more
    if news % 2 and notes[r, BEATEN] == notes[r, BEATEN]:
        peak = peak_of(formats, how, state)
        notes[r, NOTED_INDEX] = start + first_of_size(formats, how, pointers, peak, count)
        notes[r, BEATEN] = peak


@hot
def spread_of(how, wide, p, s, low, least, most):
    """Sum of squares about the mean as a pair; -1 and the mean if it is to be walked for.

    Where the mean is small beside the spread it is the difference of two sums, which then loses
    next to nothing: 40 of the 106 bits of pairs, or one of the 53 of plain sums.
    """
    if p[3] == 0.0 or (least == most and (how[1] is None or abs(least) < WHOLE)):
        return 0.0, 0.0, 0.0, 0.0
    if wide is not None and (p[0] < LOW or HIGH < p[0] < np.inf):  # see moment_of
        return 0.0, 0.0, 0.0, 0.0
    q, q_low, mean, mean_low = difference_of_sums(how[1], p[0], p[1], s, low, p[3])
    if not q >= (0.5 if how[1] is None else 2.0**-40) * p[0] and math.isfinite(p[0]):
        return -1.0, 0.0, mean, mean_low
    return q, q_low, 0.0, 0.0


@hot
def moment_of(
    arrays, formats, how, wide, found, q, q_low, notes, r, walk, bases, start, count
):  # fmt: skip
    """The moment of a block, from what its lanes add up to."""
    p, (s, low, least, most, zeros) = found[:8], found[8:]
    g, outer, awkward, place, part = walk
    nans, infs, index = max(p[6], notes[r, NOTED_NANS]), notes[r, NOTED_INFS], notes[r, NOTED_INDEX]
    kept, length, e = p[3], float(count), 0.0
    if kept == 0.0:
        return (
            0.0, 0.0, NEUTRAL, 0.0, 0.0, 0.0, 0.0, 0.0, NEUTRAL, least, most, 0.0, nans, 0.0,
            -1.0, length,
        )  # fmt: skip
    if least == most == 0.0:
        e = NEUTRAL
    if wide is not None:
        peak = max(-least, most)
        if not LOW <= p[0] <= HIGH and 0.0 < peak < np.inf and p[0] == p[0]:
            pointers = row_pointers(arrays, g, outer, awkward, bases, start, count, place, part)
            s, low, q, q_low, e = moments_rescaled(formats, how, pointers, count, kept, peak)
    p = squares_checked(arrays, how, wide, g, outer, awkward, bases, start, count, p)
    if p[0] != p[0]:
        s = q = least = most = np.nan
    return (
        p[0], p[1], p[2], kept, s, low, q, q_low, e, least, most, zeros, nans, infs, index, length,
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
    # A constant, unless 64-bit integers differ by what float64 lacks.
    if least == most and (single or peak < WHOLE or not deviation > peak * 2.0**-92):
        mean, deviation = least, peak - peak
    if share > 1.0:  # the size of a complex number is rounded
        share = 1.0
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


@kernel
def describe_blocks(
    arrays, how, wide, g, outer, awkward, length, tile, columns, part, row0, first, blocks, single,
    states, reals, counts, begin, end,
):  # fmt: skip
    """states[(row - row0) * blocks + k] = the moment of block first + k of a row.

    A unit is one block of a tile: `tile` rows that are neighbours in memory, of each run of
    `columns` rows. A tile is walked stretch by stretch. Where it is awkward, each array is copied
    to `part` bytes of memory first. Where there is no room for states, what is reported of rows
    of one block is stored instead, of WIDTH rows at once where it is usual.
    """
    room, tiles, formats = room_of(length), -(-columns // tile), formats_of(arrays)
    stretch = stretch_of(awkward)
    memory = np.empty(part // 8 * there(arrays) + 8)
    size = moments_size(formats, how)
    lanes = np.zeros((tile + WIDTH) * size // 8)  # of whole groups of rows
    notes, spreads = np.empty((tile, NOTES)), np.empty((2, tile + WIDTH))
    above = row0 // columns * tiles + row0 % columns // tile
    row, beaten = -1, -1.0
    for unit in range(begin, end):
        block, group = unit % blocks, above + unit // blocks
        start = (first + block) * BLOCK
        count = min(BLOCK, length - start)
        top = group // tiles * columns + group % tiles * tile
        rows = min(tile, columns - group % tiles * tile)
        place, state = aligned(memory), aligned(lanes)  # here: kept while the loop runs
        walk = g, outer, awkward, place, part
        beaten = beaten if top == row and rows == 1 else -1.0
        row = top
        for r in range(rows):
            clear_moments(formats, how, advance(state, r * size))
            notes[r, NOTED_NANS] = notes[r, NOTED_INFS] = notes[r, AGAIN] = 0.0
            notes[r, NOTED_INDEX], notes[r, BEATEN], spreads[0, r] = -1.0, beaten, -1.0
        again = False
        for sweep in range(2):
            for done in range(0, count, stretch):
                n = min(stretch, count - done)
                bases = offsets(arrays, g, 0, outer, top)
                if awkward != 0:
                    copy_rows(
                        arrays, g, outer, awkward, bases, rows, start + done, n, place, part, room
                    )
                for r in range(rows):
                    if awkward != 0:
                        pointers = parts_of(arrays, place, part, r * room)
                    else:
                        bases = offsets(arrays, g, 0, outer, top + r)
                        pointers = addresses(arrays, bases, start + done)
                    own = advance(state, r * size)
                    if sweep == 0:
                        beaten = notes[r, BEATEN]
                        news = add_moments(formats, how, own, pointers, beaten, n)
                        if news:
                            note_moments(formats, how, own, pointers, done, n, news, notes, r)
                    elif notes[r, AGAIN]:
                        add_spread(
                            formats, how, own, pointers, notes[r, CENTRE], notes[r, CENTRE_LOW], n
                        )
            for r in range(rows):
                if sweep and notes[r, AGAIN]:
                    own = advance(state, r * size)
                    spreads[0, r], spreads[1, r] = reduce_spread(formats, how, own)
            odd = -1
            for r in range(rows):
                own = advance(state, r * size)
                if r % WIDTH == 0 and rows > 1 and len(states) == 0:
                    odd = tell_moments(
                        formats, how, wide, own, spreads, r, count, rows - r, reals, counts, top + r
                    )
                if odd >> r % WIDTH & 1 == 0:
                    counts[1, top + r] = int(notes[r, NOTED_INDEX])
                    continue
                if sweep and not notes[r, AGAIN]:
                    continue
                found = reduce_moments(formats, how, own, count)
                q, q_low = spreads[0, r], spreads[1, r]
                if not sweep:
                    q, q_low, mean, mean_low = spread_of(
                        how, wide, found[:8], found[8], found[9], found[10], found[11]
                    )
                    if q == -1.0:
                        notes[r, CENTRE], notes[r, CENTRE_LOW] = mean, mean_low
                        notes[r, AGAIN], again = 1.0, True
                        clear_spread(formats, how, own)
                        continue
                bases = offsets(arrays, g, 0, outer, top + r)
                p = moment_of(
                    arrays, formats, how, wide, found, q, q_low, notes, r, walk, bases, start, count
                )  # fmt: skip
                if len(states) == 0:
                    describe_row(p, single, reals, counts, top + r)
                else:
                    pack_moment(states, (top + r - row0) * blocks + block, p)
            if not again:
                break
        beaten = notes[0, BEATEN]


@kernel
def fold_moments(states, blocks, totals, begin, end):
    """Fold the blocks of each row, in order, into its total."""
    for row in range(begin, end):
        p = moment_at(totals, row)
        for k in range(row * blocks, (row + 1) * blocks):
            p = join_moments(p, moment_at(states, k))
        pack_moment(totals, row, p)


@kernel
def describe_totals(totals, single, row0, reals, counts, begin, end):
    for row in range(begin, end):
        describe_row(moment_at(totals, row), single, reals, counts, row0 + row)
