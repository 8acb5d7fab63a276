"""The compiled loops of `compare`: blocks of pairs, how they are joined, what is reported.

A *match* is the state of a run of pairs: the sum of squares of x - y as in a partial (high, low,
exponent) and how many pairs are kept; in the same form the sums of squares of x and of y, of
x * y and of y - x; the largest |x - y| and its first index; how many pairs are equal, and how many
were left out for NaN; and the length of the run, kept or not. It is a tuple of float64; runs are
joined in order. Blocks are copied as for `describe`.
"""

import math

import numpy as np

from rmsfast._describe_kernels import (
    BEATEN,
    NEUTRAL,
    NOTED_INDEX,
    NOTES,
    copy_rows,
    one_nan,
    room_of,
    row_pointers,
    squares_checked,
    stretch_of,
)
from rmsfast._kernels import (
    HIGH,
    LOW,
    add_pairs,
    add_scaled,
    divide_pairs,
    hot,
    inner,
    kernel,
    root,
    root_pair,
    rounded,
    two_sum,
)
from rmsfast._lanes import two_product
from rmsfast._match_lanes import (
    add_products,
    clear_products,
    products_size,
    reduce_products,
    tell_products,
    worst_of,
)
from rmsfast._memory import addresses, advance, aligned, offsets, parts_of, rare, there
from rmsfast._partial import BLOCK, WIDTH
from rmsfast._summary_lanes import element, first_of_size, formats_of

NEAR = 2.0**-400  # sums from here to 1 / NEAR have products and quotients in range
MATCH_FIELDS = 21
MATCHES, WORST, WORST_INDEX, EQUAL, DROPPED, LENGTH = 3, 16, 17, 18, 19, 20


@inner
def products_rescaled(formats, how, pointers, count, x_shift, y_shift):
    """Sum of x * 2**x_shift * y * 2**y_shift as a pair with its exponent."""
    rare()
    s = c = 0.0
    for i in range(count):
        kept, x, y = element(formats, how, pointers, i)
        if kept != 0.0:
            p, lost = two_product(math.ldexp(x, x_shift), math.ldexp(y, y_shift))
            s, more = two_sum(s, p)
            c += lost + more
    s, c = add_pairs(s, c, 0.0, 0.0)
    return s, c, float(x_shift + y_shift)


@inner
def errors_rescaled(formats, how, pointers, count):
    """Sum of y - x as a pair with its exponent, where it left the range of float64."""
    rare()
    s = c = 0.0
    for i in range(count):
        kept, x, y = element(formats, how, pointers, i)
        if kept != 0.0:
            d, low = two_sum(math.ldexp(y, -20), -math.ldexp(x, -20))
            s, more = two_sum(s, d)
            c += low + more
    if not math.isfinite(s):
        return s, 0.0, 0.0
    s, c = add_pairs(s, c, 0.0, 0.0)
    return s, c, -20.0


@hot
def pairs_checked(
    formats, arrays, hows, wide, walk, memory, bases, start, count, x_plain, y_plain, x, y,
    product, product_low, bias, bias_low,
):  # fmt: skip
    """Sums of x * y and of y - x as pairs with exponents."""
    if wide is None:
        return product, product_low, 0.0, bias, bias_low, 0.0
    e = bias_e = 0.0
    how, (g, outer, awkward), (place, part) = (hows[0], hows[1], None), walk, memory
    if x[0] == 0.0 or y[0] == 0.0:
        e = NEUTRAL
    elif (
        not (LOW <= x_plain <= HIGH and LOW <= y_plain <= HIGH)
        and math.isfinite(x[0])
        and math.isfinite(y[0])
    ):
        x_shift = (int(x[2]) - math.frexp(x[0])[1]) // 2
        y_shift = (int(y[2]) - math.frexp(y[0])[1]) // 2
        pointers = row_pointers(arrays, g, outer, awkward, bases, start, count, place, part)
        product, product_low, e = products_rescaled(formats, how, pointers, count, x_shift, y_shift)
    if not math.isfinite(bias):
        pointers = row_pointers(arrays, g, outer, awkward, bases, start, count, place, part)
        bias, bias_low, bias_e = errors_rescaled(formats, how, pointers, count)
    return product, product_low, e, bias, bias_low, bias_e


@inner
def note_products(formats, hows, state, pointers, start, count, news, notes, r):
    """Keep what is new in a stretch: its largest error if that is the largest, or its first NaN."""
    rare()
    how, beaten = (hows[0], hows[1], None), notes[r, BEATEN]
    if beaten != beaten:
        return
    if news >= 2:
        worst = np.nan
        index = first_of_size(formats, how, pointers, -1.0, count)
    else:
        worst = worst_of(formats, hows, state)
        index = first_of_size(formats, how, pointers, worst, count)
    notes[r, NOTED_INDEX], notes[r, BEATEN] = start + index, worst


@hot
def match_of(
    formats, arrays, hows, wide, walk, x_walk, y_walk, memory, found, bases, row, start, count,
    index,
):  # fmt: skip
    """The state of a block of pairs; walks: geometry, number of row axes, what is awkward."""
    p, x, y = found[:8], (found[8], found[9], 0.0), (found[10], found[11], 0.0)
    product, product_low, bias, bias_low, worst, equal = found[12:]
    kept, dropped, length = p[3], p[6], float(count)
    if kept == 0.0:
        return (
            0.0, 0.0, NEUTRAL, 0.0, 0.0, 0.0, NEUTRAL, 0.0, 0.0, NEUTRAL, 0.0, 0.0, NEUTRAL,
            0.0, 0.0, 0.0, -1.0, -1.0, 0.0, dropped, length,
        )  # fmt: skip
    p, x, y = sums_checked(
        arrays, hows, wide, walk, x_walk, y_walk, bases, row, start, count, p, x, y, worst
    )
    product, product_low, e, bias, bias_low, bias_e = pairs_checked(
        formats, arrays, hows, wide, walk, memory, bases, start, count, found[8], found[10], x, y,
        product, product_low, -bias, -bias_low,
    )  # fmt: skip
    if p[0] != p[0]:
        worst = np.nan
    return (
        p[0], p[1], p[2], kept, x[0], x[1], x[2], y[0], y[1], y[2], product, product_low, e,
        bias, bias_low, bias_e, worst, index, equal, dropped, length,
    )  # fmt: skip


@hot
def sums_checked(
    arrays, hows, wide, walk, x_walk, y_walk, bases, row, start, count, p, x, y, worst
):  # fmt: skip
    """The sums of squares of x - y, x and y, anew where they left the range of float64."""
    if wide is None:
        return p, x, y
    kept, dropped = p[3], p[6]
    if worst != 0.0:
        g, outer, awkward = walk
        p = squares_checked(
            arrays, (hows[0], hows[1], None), wide, g, outer, awkward, bases, start, count, p
        )
    own = (arrays[0], None, arrays[1], *arrays[3:])
    other = (arrays[1], None, arrays[0], *arrays[3:])
    x = side_checked(
        own, (hows[0], hows[2], None), wide, x_walk, row, start, count, x, kept, dropped
    )
    y = side_checked(
        other, (hows[0], hows[3], None), wide, y_walk, row, start, count, y, kept, dropped
    )
    return p, x, y


@hot
def side_checked(arrays, how, wide, walk, row, start, count, s, kept, dropped):
    if LOW <= s[0] <= HIGH:
        return s
    g, outer, awkward = walk
    bases = offsets(arrays, g, 0, outer, row)
    p = (s[0], s[1], s[2], kept, 0.0, 0.0, dropped, 0.0)
    return squares_checked(arrays, how, wide, g, outer, awkward, bases, start, count, p)[:3]


@inner
def join_matches(p, q):
    """The state of two neighbouring runs of pairs."""
    a = add_scaled(p[0], p[1], p[2], q[0], q[1], q[2])
    x = add_scaled(p[4], p[5], p[6], q[4], q[5], q[6])
    y = add_scaled(p[7], p[8], p[9], q[7], q[8], q[9])
    product = add_scaled(p[10], p[11], p[12], q[10], q[11], q[12])
    bias = add_scaled(p[13], p[14], p[15], q[13], q[14], q[15])
    worst, index = p[WORST], p[WORST_INDEX]
    if q[WORST] > worst or (q[WORST] != q[WORST] and worst == worst):
        worst, index = q[WORST], q[WORST_INDEX] + p[LENGTH]
    return (
        a[0], a[1], a[2], p[MATCHES] + q[MATCHES], x[0], x[1], x[2], y[0], y[1], y[2],
        product[0], product[1], product[2], bias[0], bias[1], bias[2], worst, index,
        p[EQUAL] + q[EQUAL], p[DROPPED] + q[DROPPED], p[LENGTH] + q[LENGTH],
    )  # fmt: skip


@inner
def decibels(x, x_e, y, y_e):
    """10 log10 of x * 2**-x_e over y * 2**-y_e."""
    if x != x or y != y or not math.isfinite(x + y):
        return 10.0 * math.log10(x / y)
    if x == 0.0 or y == 0.0:
        return np.inf if y == 0.0 else -np.inf
    x, k = math.frexp(x)
    y, n = math.frexp(y)
    return 10.0 * (math.log10(x / y) + (k - n - int(x_e) + int(y_e)) * math.log10(2.0))


@inner
def cosine_of(product, e, x, x_e, y, y_e):
    if x == 0.0 or y == 0.0 or not math.isfinite(x) or not math.isfinite(y):
        return np.nan
    x, k = math.frexp(x)
    y, n = math.frexp(y)
    k += n - int(x_e) - int(y_e)
    both = x * y
    if k % 2:
        both, k = 2.0 * both, k - 1
    product, n = math.frexp(product)
    found = math.ldexp(product / math.sqrt(both), n - int(e) - k // 2)
    return max(-1.0, min(1.0, found))


@inner
def quotient_of(a, e, b, b_e):
    if b == 0.0 or not math.isfinite(a) or not math.isfinite(b):
        return a / b if b != 0.0 else np.nan
    a, k = math.frexp(a)
    b, n = math.frexp(b)
    return math.ldexp(a / b, k - n - int(e) + int(b_e))


@hot
def likeness(p):
    """Decibels of signal over noise, cosine, and scale that fits best."""
    errors, x, y, product = p[0] + p[1], p[4] + p[5], p[7] + p[8], p[10] + p[11]
    inside = min(errors, x, y) > NEAR and max(errors, x, y) < 1.0 / NEAR
    if inside and p[2] == 0.0 and p[6] == 0.0 and p[9] == 0.0 and p[12] == 0.0:
        cosine = max(-1.0, min(1.0, product / math.sqrt(x * y)))
        return 10.0 * math.log10(x / errors), cosine, product / y
    return likeness_beyond(p)


@inner
def likeness_beyond(p):
    """The same where a product or quotient may leave the range."""
    rare()
    errors, x, y, product = p[0] + p[1], p[4] + p[5], p[7] + p[8], p[10] + p[11]
    cosine = cosine_of(product, p[12], x, p[6], y, p[9])
    return decibels(x, p[6], errors, p[2]), cosine, quotient_of(product, p[12], y, p[9])


@hot
def compare_row(p, single, reals, counts, row):
    """Store what is reported of a row of pairs; bits of `single`: roots rounded to float32."""
    kept = p[MATCHES]
    counts[0, row], counts[1, row] = int(kept), int(p[WORST_INDEX])
    counts[2, row], counts[3, row] = int(p[EQUAL]), int(p[DROPPED])
    if kept == 0.0:
        for i in range(9):
            reals[i, row] = np.nan
        return
    a = (p[0], p[1], p[2], kept, 0.0, 0.0, 0.0, 0.0)
    b = (p[4], p[5], p[6], kept, 0.0, 0.0, 0.0, 0.0)
    c = (p[7], p[8], p[9], kept, 0.0, 0.0, 0.0, 0.0)
    reals[0, row] = root(a, single & 1)
    reals[1, row] = root(b, single & 2)
    reals[2, row] = root(c, single & 4)
    h, low, e = root_pair(a)
    size, size_low, size_e = root_pair(b)
    h, low = divide_pairs(h, low, size, size_low)
    reals[3, row] = rounded(h, low, e - size_e)
    h, low = divide_pairs(p[13], p[14], kept, 0.0)
    reals[6, row] = rounded(h, low, p[15])
    reals[7, row] = p[WORST]
    reals[4, row], reals[5, row], reals[8, row] = likeness(p)
    for i in range(9):
        reals[i, row] = one_nan(reals[i, row])


@hot
def pack_match(states, k, p):
    for i in range(MATCH_FIELDS):
        states[k, i] = p[i]


@inner
def match_at(states, k):
    return (
        states[k, 0], states[k, 1], states[k, 2], states[k, 3], states[k, 4], states[k, 5],
        states[k, 6], states[k, 7], states[k, 8], states[k, 9], states[k, 10], states[k, 11],
        states[k, 12], states[k, 13], states[k, 14], states[k, 15], states[k, 16],
        states[k, 17], states[k, 18], states[k, 19], states[k, 20],
    )  # fmt: skip


@kernel
def compare_blocks(
    arrays, hows, wide, g, outer, awkward, x_g, x_outer, x_awkward, y_g, y_outer, y_awkward,
    length, tile, columns, part, row0, first, blocks, single, states, reals, counts, begin, end,
):  # fmt: skip
    """As `describe_blocks`, of pairs; x_g, y_g and so on: as if x, or y, stood alone."""
    room, tiles, formats = room_of(length), -(-columns // tile), formats_of(arrays)
    stretch = stretch_of(awkward)
    memory = np.empty(part // 8 * there(arrays) + 8)
    size = products_size(formats, hows)
    lanes = np.zeros((tile + WIDTH) * size // 8)  # of whole groups of rows
    notes = np.empty((tile, NOTES))
    above = row0 // columns * tiles + row0 % columns // tile
    walk, x_walk, y_walk = (g, outer, awkward), (x_g, x_outer, x_awkward), (y_g, y_outer, y_awkward)
    row, beaten = -1, -1.0
    for unit in range(begin, end):
        block, group = unit % blocks, above + unit // blocks
        start = (first + block) * BLOCK
        count = min(BLOCK, length - start)
        top = group // tiles * columns + group % tiles * tile
        rows = min(tile, columns - group % tiles * tile)
        place, state = aligned(memory), aligned(lanes)  # here: kept while the loop runs
        beaten = beaten if top == row and rows == 1 else -1.0
        row = top
        for r in range(rows):
            clear_products(formats, hows, advance(state, r * size))
            notes[r, NOTED_INDEX], notes[r, BEATEN] = -1.0, beaten
        for done in range(0, count, stretch):
            n = min(stretch, count - done)
            if awkward != 0:
                bases = offsets(arrays, g, 0, outer, top)
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
                news = add_products(formats, hows, own, pointers, notes[r, BEATEN], n)
                if news:
                    note_products(formats, hows, own, pointers, done, n, news, notes, r)
        odd = -1
        for r in range(rows):
            own = advance(state, r * size)
            if r % WIDTH == 0 and rows > 1 and len(states) == 0:
                odd = tell_products(
                    formats, hows, wide, own, NEAR, count, rows - r, reals, counts, top + r
                )
            if odd >> r % WIDTH & 1 == 0:
                counts[1, top + r] = int(notes[r, NOTED_INDEX])
                reals[4, top + r] = 10.0 * math.log10(reals[4, top + r])
                continue
            found = reduce_products(formats, hows, own, count)
            bases = offsets(arrays, g, 0, outer, top + r)
            p = match_of(
                formats, arrays, hows, wide, walk, x_walk, y_walk, (place, part), found, bases,
                top + r, start, count, notes[r, NOTED_INDEX],
            )  # fmt: skip
            if len(states) == 0:
                compare_row(p, single, reals, counts, top + r)
            else:
                pack_match(states, (top + r - row0) * blocks + block, p)
        beaten = notes[0, BEATEN]


@kernel
def fold_matches(states, blocks, totals, begin, end):
    """Fold the blocks of each row, in order, into its total."""
    for row in range(begin, end):
        p = match_at(totals, row)
        for k in range(row * blocks, (row + 1) * blocks):
            p = join_matches(p, match_at(states, k))
        pack_match(totals, row, p)


@kernel
def compare_totals(totals, single, row0, reals, counts, begin, end):
    for row in range(begin, end):
        compare_row(match_at(totals, row), single, reals, counts, row0 + row)
