"""The compiled loops: which runs of elements are summed, and what becomes of the sums.

A *partial* is a tuple of float64: the sum as a pair with an exponent (its value
is (high + low) * 2**-exponent), the weight (count of values, or sum of weights) in the
same form, the number of NaN left out and of bad weights. Every row is cut into blocks of
BLOCK elements, whose partials are folded in order.

Arrays arrive as one-dimensional views of any stride; where their elements lie is told by
`g`: row 0 the shape, the others the strides in bytes of x, y, partner, where, weights and
more masks. The first `outer` axes count rows, the others coordinates in C order. Bit k of
`awkward` says that the coordinates of array k do not lie side by side, bit SWAPPED + k that
its bytes are swapped.
"""

import math

import numpy as np
from numba import njit

from rmsfast._compiler import Compiler
from rmsfast._lanes import (
    accumulate,
    cleared,
    columns_tuple,
    field_space,
    found_at,
    lane_states,
    numbers_of_value,
    reduce_lanes,
    reduce_rows,
    roots_of,
    term,
    two_product,
)
from rmsfast._layout import APART
from rmsfast._memory import (
    addresses,
    apart,
    fetch,
    moved,
    offsets,
    rare,
    scratch_space,
    strides_of,
)
from rmsfast._partial import BLOCK
from rmsfast._partial import EMPTY as NOTHING
from rmsfast._vectors import SCRATCH, WIDTH

LOW, HIGH = 2.0**-860, 2.0**980  # sums of squares that lost nothing to the range of float64
UP, DOWN = 2.0**900, 2.0**-600  # exact factors for blocks beyond
UP_EXPONENT, DOWN_EXPONENT = 1800, -1200

# Callees have no entry from Python: they are parts (see `_compiler`). What is not forced inline
# says so, or it would take that over from its caller.
WITHIN = {
    "pipeline_class": Compiler,
    "nogil": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,  # the caller keeps arrays alive: counting their references is atomic, and slow
}
inner = njit(forceinline=False, **WITHIN)
hot = njit(forceinline=True, **WITHIN)
kernel = njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, pipeline_class=Compiler)


# ------------------------------------------------------------------------------ pairs


@inner
def two_sum(a, b):
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


@inner
def add_pairs(ah, al, bh, bl):
    s, e = two_sum(ah, bh)
    t, f = two_sum(al, bl)
    e += t
    h = s + e
    e = (e - (h - s)) + f
    s = h + e
    return s, e - (s - h)


@inner
def add_scaled(ah, al, ae, bh, bl, be):
    """Sum of two pairs with exponents; the smaller exponent (larger range) is kept."""
    rare()
    e = min(ae, be)
    if ae != e:
        ah, al = math.ldexp(ah, int(e - ae)), math.ldexp(al, int(e - ae))
    if be != e:
        bh, bl = math.ldexp(bh, int(e - be)), math.ldexp(bl, int(e - be))
    s = ah + bh
    if not math.isfinite(s):
        return s, 0.0, e
    h, low = add_pairs(ah, al, bh, bl)
    return h, low, e


@inner
def fold(a, b):
    """The partial of two neighbouring runs."""
    s, sl, se = add_scaled(a[0], a[1], a[2], b[0], b[1], b[2])
    w, wl, we = add_scaled(a[3], a[4], a[5], b[3], b[4], b[5])
    return s, sl, se, w, wl, we, a[6] + b[6], a[7] + b[7]


@inner
def divide_pairs(ah, al, bh, bl):
    """Quotient of two pairs as a pair."""
    q = ah / bh
    if not math.isfinite(q) or q == 0.0:
        return q, 0.0
    p, e = two_product(q, bh)
    low = (((ah - p) - e) + al - q * bl) / bh
    h = q + low
    return h, low - (h - q)


@inner
def root_of_pair(q, low):
    """Square root of a pair as a pair."""
    h = math.sqrt(q)
    if h == 0.0 or not math.isfinite(h):
        return h, 0.0
    s, f = two_product(h, h)
    return h, (((q - s) - f) + low) / (2.0 * h)


@inner
def root_pair(p):
    """sqrt(sum / weight) of a partial as a pair with an exponent (value * 2**-exponent)."""
    rare()
    q, low = divide_pairs(p[0], p[1], p[3], p[4])
    e = p[2] - p[5]
    if int(e) % 2:
        q, low, e = 2.0 * q, 2.0 * low, e + 1.0
    h, low = root_of_pair(q, low)
    return h, low, e / 2.0


@inner
def rounded(h, low, e):
    """The float64 nearest to (h + low) * 2**-e, rounded once even where it is subnormal."""
    rare()
    if e == 0.0 or not math.isfinite(h) or h == 0.0:
        return h + low
    k = int(e)
    if math.ldexp(h, -k) >= 2.2250738585072014e-308:
        return math.ldexp(h + low, -k)
    spacing = math.ldexp(1.0, k - 1074)
    grid = 1.5 * 2.0**52 * spacing
    t, rest = two_sum(grid, h)
    base = t - grid
    rest += low
    if rest > 0.5 * spacing:
        base += spacing
    elif rest < -0.5 * spacing:
        base -= spacing
    return math.ldexp(base, -k)


@inner
def root(p, single):
    """sqrt(sum / weight) of a partial."""
    if p[2] != 0.0 or p[5] != 0.0:
        return rounded(*root_pair(p))
    r = math.sqrt(p[0] / p[3])
    if single or not 0.0 < r < np.inf:  # the float32 nearest to r is what is asked for
        return r
    # One Newton step: the residual sum - weight * r**2 is exact to a pair's last bit.
    t, t_low = two_product(r, r)
    u, u_low = two_product(p[3], t)
    residual = (((p[0] - u) - u_low) + (p[1] - p[3] * t_low)) - p[4] * t
    return r + residual * (r * (0.5 / p[0]))


@hot
def finish(p, out, flags, row):
    """Store the root of a partial; flags: 1 if NaN was dropped, 2 if a weight was bad."""
    r = root(p, out.itemsize == 4)
    out[row] = r if r == r else np.nan  # one NaN, whatever its bits were in the input
    if flags is not None:
        flags[row] = (p[6] > 0.0) + 2 * (p[7] > 0.0)


@hot
def usual_roots(fields, out, wide):
    if wide is None:
        return roots_of(fields, out, None, None)
    return roots_of(fields, out, LOW, HIGH)


@hot
def load(partials, k):
    return (
        partials[k, 0], partials[k, 1], partials[k, 2], partials[k, 3],
        partials[k, 4], partials[k, 5], partials[k, 6], partials[k, 7],
    )  # fmt: skip


@hot
def store(partials, k, p):
    partials[k, 0], partials[k, 1], partials[k, 2], partials[k, 3] = p[0], p[1], p[2], p[3]
    partials[k, 4], partials[k, 5], partials[k, 6], partials[k, 7] = p[4], p[5], p[6], p[7]


@hot
def store_found(partials, k, p, how):
    """Store a partial with its extents, if there are any."""
    store(partials, k, p)
    if how[2] is not None:
        partials[k, 8], partials[k, 9], partials[k, 10], partials[k, 11] = p[8], p[9], p[10], p[11]


# --------------------------------------------------------------------------- row sums


@inner
def add_run(state, arrays, how, pointers, scale, count):
    """Add a run of a row that lies side by side to a state."""
    apart()
    accumulate(state, arrays, how, pointers, scale, count)


@inner
def sum_run(arrays, how, bases, start, count):
    """The partial of a run of a row that lies side by side."""
    state = cleared(lane_states(arrays, how), arrays, how, 0)
    add_run(state, arrays, how, addresses(arrays, bases, start), None, count)
    return reduce_lanes(state, arrays, how, count)


@inner
def gather(arrays, g, outer, apart, bases, first, count, memory):
    """Pointers to `count` coordinates of a row from `first` on, copied side by side if `apart`."""
    rare()
    last = g.shape[1] - 1
    strides, length, done = strides_of(arrays, g, last if last >= outer else -1, 1), count, 0
    if last >= outer:
        length = min(length, g[0, last] - first % g[0, last])
    places = moved(bases, offsets(arrays, g, outer, last + 1, first))
    pointers = fetch(arrays, places, strides, apart, length, memory, 0)
    done = length
    while done < count:
        length = min(count - done, g[0, last])
        places = moved(bases, offsets(arrays, g, outer, last + 1, first + done))
        fetch(arrays, places, strides, apart, length, memory, done)
        done += length
    return pointers


@inner
def sum_awkward(arrays, how, g, outer, apart, bases, start, count, scale):
    """The partial of a run of a row of any layout and byte order."""
    rare()
    memory = scratch_space(0)
    state = cleared(lane_states(arrays, how), arrays, how, 0)
    for first in range(start, start + count, SCRATCH):
        n = min(SCRATCH, start + count - first)
        pointers = gather(arrays, g, outer, apart, bases, first, n, memory)
        add_run(state, arrays, how, pointers, scale, n)
    return reduce_lanes(state, arrays, how, count)


@inner
def sum_weighted(arrays, how, g, outer, apart, bases, start, count, p):
    """The partial of a block whose weighted squares leave the range, term by term.

    Every term is a fraction and an exponent; all are brought to the largest exponent.
    A complex value is two terms, which are kept or left out together and share its weight.
    """
    rare()
    memory, numbers = scratch_space(0), numbers_of_value(arrays, how)
    top = weight_top = -100000
    for sweep in range(2):
        s = c = w = wc = special = 0.0
        for first in range(start, start + count, SCRATCH):
            n = min(SCRATCH, start + count - first)
            pointers = gather(arrays, g, outer, apart, bases, first, n, memory)
            for i in range(n):
                kept, v, e, weight = term(arrays, how, pointers, i, (1.0, 1.0))
                if numbers == 2:
                    kept *= term(arrays, how, pointers, i ^ 1, (1.0, 1.0))[0]
                if kept == 0.0 or not math.isfinite(weight) or weight < 0.0:
                    continue
                shift = 0
                if not math.isfinite(v):  # a difference beyond the range, or Inf or NaN
                    kept, v, e, weight = term(arrays, how, pointers, i, (0.25, 1.0))
                    shift = 2
                weight, weight_exponent = math.frexp(weight)
                weight_top = max(weight_top, weight_exponent)
                if not math.isfinite(v):
                    special += abs(v)
                    v = e = 0.0
                v, exponent = math.frexp(v)
                exponent += shift
                both = 2 * exponent + weight_exponent
                if v != 0.0:
                    top = max(top, both)
                if sweep == 1:
                    q, low = two_product(v, v)
                    low += 2.0 * v * math.ldexp(e, shift - exponent)
                    q, more = two_product(weight, q)
                    down = max(both - top, -2000)
                    s, lost = two_sum(s, math.ldexp(q, down))
                    c += math.ldexp(more + weight * low, down) + lost
                    w, lost = two_sum(
                        w, math.ldexp(weight, max(weight_exponent - weight_top, -2000))
                    )
                    wc += lost
    if special != 0.0:
        s, c = special, 0.0
    halved = numbers - 1 - weight_top
    return s, c, -float(top), w, wc, float(halved), p[6], p[7], p[8], p[9], p[10], p[11]


@inner
def sum_squares_rescaled(arrays, how, g, outer, apart, bases, start, count, p):
    """The partial of a block that left the range, at a scale where nothing is lost."""
    rare()
    scale, exponent = ((1.0, UP), UP_EXPONENT) if p[0] < LOW else ((DOWN, 1.0), DOWN_EXPONENT)
    p = sum_awkward(arrays, how, g, outer, apart, bases, start, count, scale)
    return p[0], p[1], p[2] + exponent, p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11]


@inner
def extent_rescaled(arrays, how, g, outer, apart, bases, start, count, p):
    """The extent of a block whose sum left the range."""
    rare()
    q = sum_awkward(arrays, how, g, outer, apart, bases, start, count, (DOWN, 1.0))
    if not math.isfinite(q[0]):
        return p
    return q[0], q[1], DOWN_EXPONENT / 2, p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11]


@inner
def checked_squares(arrays, how, weights, g, outer, apart, bases, start, count, p):
    if LOW <= p[0] <= HIGH and p[3] <= HIGH:
        return p
    if weights is None:
        return sum_squares_rescaled(arrays, how, g, outer, apart, bases, start, count, p)
    return sum_weighted(arrays, how, g, outer, apart, bases, start, count, p)


@inner
def checked(arrays, how, wide, weights, extent, g, outer, apart, bases, start, count, p):
    """A partial, anew where the range of float64 was left; what follows a None is not compiled."""
    if wide is None:
        return p
    if extent is None:
        return checked_squares(arrays, how, weights, g, outer, apart, bases, start, count, p)
    if math.isfinite(p[0]):
        return p
    return extent_rescaled(arrays, how, g, outer, apart, bases, start, count, p)


@hot
def sum_block(arrays, how, wide, g, outer, awkward, bases, start, count):
    """The partial of one block."""
    if awkward == 0:
        p = sum_run(arrays, how, bases, start, count)
    else:
        p = sum_awkward(arrays, how, g, outer, awkward | APART, bases, start, count, None)
    apart = awkward | APART if awkward else 0
    return checked(arrays, how, wide, arrays[4], how[2], g, outer, apart, bases, start, count, p)


@kernel
def row_roots(arrays, how, wide, g, outer, awkward, length, out, flags, begin, end):
    """out[row] = sqrt(sum / weight) of rows begin to end of `length` coordinates."""
    if awkward == 0 and length <= BLOCK and end - begin >= WIDTH // 2:
        short_roots(arrays, how, wide, g, outer, length, out, flags, begin, end)
        return
    for row in range(begin, end):
        bases = offsets(arrays, g, 0, outer, row)
        p = NOTHING
        for start in range(0, length, BLOCK):
            q = sum_block(
                arrays, how, wide, g, outer, awkward, bases, start, min(length - start, BLOCK)
            )
            p = fold(p, q[:8]) if start else q[:8]
        finish(p, out, flags, row)


@hot
def sum_rows(arrays, how, g, outer, length, first, n, states, fields):
    """Partials, WIDTH side by side in `fields`, of n rows of one block from `first` on."""
    for i in range(WIDTH):
        state = cleared(states, arrays, how, i)
        if i < n:
            pointers = addresses(arrays, offsets(arrays, g, 0, outer, first + i), 0)
            add_run(state, arrays, how, pointers, None, length)
    reduce_rows(states, arrays, how, length, fields)


@inner
def short_roots(arrays, how, wide, g, outer, length, out, flags, begin, end):
    """As `row_roots`, for rows of one block: the sums of WIDTH rows are rooted at once."""
    states, fields = lane_states(arrays, how), field_space(0)
    for first in range(begin, end, WIDTH):
        n = min(WIDTH, end - first)
        sum_rows(arrays, how, g, outer, length, first, n, states, fields)
        store_roots(arrays, how, wide, g, outer, 0, length, out, flags, first, n, fields)


@hot
def store_roots(arrays, how, wide, g, outer, apart, length, out, flags, first, n, fields):
    """The roots of n rows of one block from `first` on, whose partials stand in `fields`."""
    usual = usual_roots(fields, out, wide)
    for i in range(n):
        if usual and flags is None:
            out[first + i] = found_at(fields, 0, i)
        else:
            p = columns_tuple(fields, i)
            bases = offsets(arrays, g, 0, outer, first + i)
            p = checked(arrays, how, wide, arrays[4], how[2], g, outer, apart, bases, 0, length, p)
            finish(p[:8], out, flags, first + i)


@kernel
def row_partials(
    arrays, how, wide, g, outer, awkward, length, base, first, blocks, partials, begin, end
):
    """partials[unit] = partial of block first + unit % blocks of row `base` + unit // blocks."""
    for unit in range(begin, end):
        row = unit // blocks
        start = (first + unit - row * blocks) * BLOCK
        row += base
        bases = offsets(arrays, g, 0, outer, row)
        n = min(length - start, BLOCK)
        p = sum_block(arrays, how, wide, g, outer, awkward, bases, start, n)
        store_found(partials, unit, p, how)


# ------------------------------------------------------------------------------ finish


@kernel
def fold_partials(partials, blocks, totals, begin, end):
    """Fold the blocks of each row, in order, into its total."""
    for row in range(begin, end):
        p = load(totals, row)
        for k in range(row * blocks, (row + 1) * blocks):
            p = fold(p, load(partials, k))
        store(totals, row, p)


@kernel
def fold_extents(partials, blocks, totals, begin, end):
    """Fold the extents of the blocks of each row, in order, into its total."""
    for row in range(begin, end):
        for k in range(row * blocks, (row + 1) * blocks):
            store(totals, row, fold(load(totals, row), load(partials, k)))
            keep_further(totals, row, partials, k, 8, 1.0)
            keep_further(totals, row, partials, k, 10, -1.0)


@inner
def keep_further(totals, row, partials, k, i, sign):
    """The lesser (sign 1) or greater (sign -1) pair of fields i, i + 1; NaN is furthest."""
    p, q = sign * totals[row, i], sign * partials[k, i]
    lower = q == p and sign * partials[k, i + 1] < sign * totals[row, i + 1]
    if q < p or q != q or lower:
        totals[row, i], totals[row, i + 1] = partials[k, i], partials[k, i + 1]


@kernel
def roots(partials, out, flags, begin, end):
    """out[row] = sqrt(sum / weight) of a partial."""
    for row in range(begin, end):
        finish(load(partials, row), out, flags, row)
