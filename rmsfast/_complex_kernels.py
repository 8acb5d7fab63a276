"""The compiled loops of `describe` and `compare` of complex numbers: what their sums leave open.

The sums of squares are those of `rms` and `rmse`. The rest comes from runs of SCRATCH numbers, the
real and imaginary parts in turn, which are copied where they do not lie side by side and walked
twice: for what is largest, and about the mean. Runs with NaN, infinities or numbers far from 1 are
walked number by number, at a scale at which nothing leaves the range. Runs are joined as the
moments and matches of real rows, in order, and so are the blocks of a row.
"""

import math

import numpy as np

from rmsfast._compare_kernels import DROPPED, MATCHES, WORST, join_matches, pack_match
from rmsfast._complex_lanes import next_of_size, spread_of_values, sums_of_pairs, sums_of_values
from rmsfast._describe_kernels import MOST, NEUTRAL, join_moments, pack_moment
from rmsfast._kernels import (
    add_pairs,
    add_scaled,
    divide_pairs,
    gather,
    hot,
    inner,
    kernel,
    rounded,
    sum_block,
    two_sum,
)
from rmsfast._lanes import term, two_product
from rmsfast._layout import APART
from rmsfast._memory import addresses, offsets, rare, scratch_space
from rmsfast._partial import BLOCK
from rmsfast._relative import size_of_complex
from rmsfast._vectors import SCRATCH

ZERO = (0.0, 0.0, NEUTRAL)
NO_MOMENT = (*ZERO, 0.0, 0.0, 0.0, 0.0, 0.0, NEUTRAL, np.inf, -np.inf, 0.0, 0.0, 0.0, -1.0, 0.0)
NO_MATCH = (*ZERO, 0.0, *ZERO, *ZERO, *ZERO, *ZERO, -1.0, -1.0, 0.0, 0.0, 0.0)
ONE = (1.0, 1.0)
SMALL, LARGE = 2.0**-400, 2.0**400  # sizes of numbers whose products stay in range
NEARLY = 1.0 - 2.0**-40  # of a squared size: what is smaller is not the largest after rounding
TINY = 2.0**-900  # squares down to here have all their digits


@hot
def is_near(top):
    """Whether numbers of at most this size may be multiplied as they are."""
    return top == 0.0 or SMALL <= top <= LARGE


@inner
def scale_of(top):
    """Exponent of a factor that brings numbers of at most this size near 1, and the factor."""
    if is_near(top) or not math.isfinite(top):
        return 0, 1.0
    shift = min(-math.frexp(top)[1], 1000)
    return shift, math.ldexp(1.0, shift)


@hot
def beyond(peak, re, re_low, im, im_low):
    """|z| if it is larger than `peak`, else -1; NaN is largest, and is not beyond itself."""
    # |z| is at most the root of 2 times the larger part.
    if 1.5 * max(abs(re), abs(im)) < peak and re == re and im == im:
        return -1.0
    return size_beyond(peak, re, re_low, im, im_low)


@inner
def size_beyond(peak, re, re_low, im, im_low):
    rare()
    if peak != peak:
        return -1.0
    if re != re or im != im:
        return np.nan
    h, low, e = size_of_complex((re, re_low), (im, im_low), 0.0)
    size = rounded(h, low, e)
    return size if size > peak else -1.0


@inner
def bar_of(peak):
    """Pair that a squared size must reach for its root to be rounded to more than `peak`."""
    if not peak > 0.0:
        return -1.0, 0.0
    half = math.ldexp(1.0, math.frexp(peak)[1] - 54)
    q, low = two_product(peak, peak)
    return q, low + 2.0 * half * peak - q * 2.0**-95  # which leaves room for what is lost here


@hot
def reaches(a, a_low, b, b_low, bar, bar_low):
    p, p_low = two_product(a, a)
    q, q_low = two_product(b, b)
    p, lost = two_sum(p, q)
    low = lost + (p_low + q_low) + 2.0 * (a * a_low + b * b_low)
    return (p - bar) + (low - bar_low) >= 0.0


@inner
def largest_of_run(arrays, how, pointers, n, beaten, size, nothing):
    """The largest |z| of a run and its index, from its squared size; -1 for both if it is beaten.

    z: values of x, or of x - y. nothing: whether all are 0. Their squares are compared first; of
    those that come near the largest the roots, which are rounded once, decide.
    """
    peak = index = -1.0
    if nothing and beaten >= 0.0:
        return peak, index
    if beaten * beaten > TINY and beaten > 0.0 and size < beaten * beaten * NEARLY:
        return peak, index
    least = size * NEARLY if size > TINY else 0.0
    bar, bar_low = bar_of(beaten) if size > TINY else (-1.0, 0.0)
    i = next_of_size(arrays, how, pointers, 0, n, least)
    while i < n:
        i -= i % 2
        _, a, a_low, _ = term(arrays, how, pointers, i, ONE)
        _, b, b_low, _ = term(arrays, how, pointers, i + 1, ONE)
        if reaches(a, a_low, b, b_low, bar, bar_low):
            found = size_beyond(peak, a, a_low, b, b_low)
            if found != -1.0:
                peak, index = found, float(i // 2)
                if size > TINY:
                    bar, bar_low = bar_of(peak)
            if nothing:
                break
        i = next_of_size(arrays, how, pointers, i + 2, n, least)
    return peak, index


@inner
def settled(s, c):
    """A sum as a pair; where it is not finite its low part tells nothing."""
    return add_pairs(s, c, 0.0, 0.0) if math.isfinite(s) else (s, 0.0)


@hot
def run_of(arrays, g, outer, awkward, bases, first, n, memory):
    """Pointers to numbers of a row that lie side by side."""
    if awkward == 0:
        return addresses(arrays, bases, first)
    return gather(arrays, g, outer, awkward | APART, bases, first, n, memory)


# --------------------------------------------------------------------------- describe


@hot
def value_at(arrays, how, pointers, i, scale, omit):
    """Whether a value is chosen, whether it is kept, and its two parts."""
    chosen, a, _, _ = term(arrays, how, pointers, i, scale)
    _, b, _, _ = term(arrays, how, pointers, i + 1, scale)
    return chosen != 0.0, chosen != 0.0 and not (omit and (a != a or b != b)), a, b


@inner
def moments_of_run(arrays, how, pointers, n, omit, beaten):
    """The moments of the real and of the imaginary parts; least and most are of -|z| and |z|.

    They tell no peak where that is surely below one of the row before, `beaten`.
    """
    kept, zeros, s, s_low, t, t_low, top, size = sums_of_values(arrays, how, pointers, n)
    if kept == 0.0 or not is_near(top) or not math.isfinite(s + t):
        return moments_of_values(arrays, how, pointers, n, omit)
    u, u_low = divide_pairs(s, s_low, kept, 0.0)
    v, v_low = divide_pairs(t, t_low, kept, 0.0)
    p, p_low, q, q_low = spread_of_values(arrays, how, pointers, (u, u_low, v, v_low), n)
    peak, index = largest_of_run(arrays, how, pointers, n, beaten, size, zeros == kept)
    least, most = (0.0 - peak, peak) if index >= 0.0 else (np.inf, -np.inf)
    length = float(n // 2)
    return (
        (
            0.0, 0.0, NEUTRAL, kept, s, s_low, p, p_low, 0.0, least, most, zeros, 0.0, 0.0, index,
            length,
        ),
        (
            0.0, 0.0, NEUTRAL, kept, t, t_low, q, q_low, 0.0, least, most, zeros, 0.0, 0.0, index,
            length,
        ),
    )  # fmt: skip


@inner
def moments_of_values(arrays, how, pointers, n, omit):
    """The same of any numbers, one by one."""
    rare()
    kept = zeros = nans = infs = top = 0.0
    peak, index = -1.0, -1.0
    for i in range(0, n, 2):
        chosen, keep, a, b = value_at(arrays, how, pointers, i, ONE, omit)
        if not chosen:
            continue
        nans += a != a or b != b
        infs += abs(a) == np.inf or abs(b) == np.inf
        if not keep:
            continue
        kept += 1.0
        zeros += a == 0.0 and b == 0.0
        top = max(top, abs(a), abs(b))
        size = beyond(peak, a, 0.0, b, 0.0)
        if size != -1.0:
            peak, index = size, float(i // 2)
    if kept == 0.0:
        none = (
            0.0, 0.0, NEUTRAL, 0.0, 0.0, 0.0, 0.0, 0.0, NEUTRAL, np.inf, -np.inf, 0.0, nans, infs,
            -1.0, float(n // 2),
        )  # fmt: skip
        return none, none
    shift, factor = scale_of(top)
    s = s_low = t = t_low = u = u_low = v = v_low = p = p_low = q = q_low = 0.0
    for sweep in range(2):
        for i in range(0, n, 2):
            _, keep, a, b = value_at(arrays, how, pointers, i, (factor, 1.0), omit)
            if not keep:
                continue
            if sweep == 0:
                s, lost = two_sum(s, a)
                s_low += lost
                t, lost = two_sum(t, b)
                t_low += lost
            else:
                p, p_low = add_square(p, p_low, a, u, u_low)
                q, q_low = add_square(q, q_low, b, v, v_low)
        if sweep == 0:
            s, s_low = settled(s, s_low)
            t, t_low = settled(t, t_low)
            u, u_low = divide_pairs(s, s_low, kept, 0.0)
            v, v_low = divide_pairs(t, t_low, kept, 0.0)
    if peak != peak:
        s = t = np.nan
    e = float(shift)
    return (
        (
            0.0, 0.0, NEUTRAL, kept, s, s_low, p, p_low, e, 0.0 - peak, peak, zeros, nans, infs,
            index, float(n // 2),
        ),
        (
            0.0, 0.0, NEUTRAL, kept, t, t_low, q, q_low, e, 0.0 - peak, peak, zeros, nans, infs,
            index, float(n // 2),
        ),
    )  # fmt: skip


@hot
def add_square(q, q_low, v, mean, mean_low):
    """Add (v - mean)**2 to a sum kept as a pair."""
    d, low = two_sum(v, -mean)
    d, low = two_sum(d, low - mean_low)
    p, lost = two_product(d, d)
    q, more = two_sum(q, p)
    return q, q_low + (more + (lost + 2.0 * d * low))


@kernel
def describe_complex(
    arrays, how, wide, g, outer, awkward, length, row0, first, blocks, states, imaginary, begin, end
):  # fmt: skip
    """states[(row - row0) * blocks + k] = the moment of block first + k of a row, a unit.

    Its sums are those of the real parts, but its squares those of both; in `imaginary` are those
    of the imaginary parts.
    """
    memory = scratch_space(0)
    for unit in range(begin, end):
        row, start = row0 + unit // blocks, (first + unit % blocks) * BLOCK
        count = min(BLOCK, length - start)
        bases = offsets(arrays, g, 0, outer, row)
        p = q = NO_MOMENT
        for done in range(start, start + count, SCRATCH):
            n = min(SCRATCH, start + count - done)
            pointers = run_of(arrays, g, outer, awkward, bases, done, n, memory)
            re, im = moments_of_run(
                arrays, (None, how[1], None), pointers, n, how[0] is not None, p[MOST]
            )
            p, q = join_moments(p, re), join_moments(q, im)
        pack_moment(states, unit, p)
        pack_moment(imaginary, unit, q)
        squares = sum_block(
            arrays, (how[0], how[1], None), wide, g, outer, awkward, bases, start, count
        )
        states[unit, 0], states[unit, 1], states[unit, 2] = squares[:3]


# ---------------------------------------------------------------------------- compare


@hot
def number_at(arrays, pointers, i, scale):
    """The two parts of x, and of y, as float64."""
    own = (arrays[0], None, arrays[1], *arrays[3:])
    other = (arrays[1], None, arrays[0], *arrays[3:])
    how = (None, None, None)
    at = (pointers[0], pointers[2], pointers[1], *pointers[3:])
    there = (pointers[1], pointers[2], pointers[0], *pointers[3:])
    return (
        term(own, how, at, i, scale[0])[1], term(own, how, at, i + 1, scale[0])[1],
        term(other, how, there, i, scale[1])[1], term(other, how, there, i + 1, scale[1])[1],
    )  # fmt: skip


@inner
def match_of_run(arrays, how, pointers, n, beaten):
    """The match of a run of pairs without its squares, and the imaginary part of its bias.

    It tells no largest error where that is surely below one of the row before, `beaten`.
    """
    kept, equal, s, s_low, t, t_low, p, p_low, x_top, y_top, size = sums_of_pairs(
        arrays, how, pointers, n
    )
    near = is_near(x_top) and is_near(y_top)
    if kept == 0.0 or not near or not math.isfinite(s + t + p):
        return match_of_values(arrays, how, pointers, n)
    worst, index = largest_of_run(arrays, how, pointers, n, beaten, size, equal == kept)
    e = NEUTRAL if x_top == 0.0 or y_top == 0.0 else 0.0
    return (
        0.0, 0.0, NEUTRAL, kept, 0.0, 0.0, NEUTRAL, 0.0, 0.0, NEUTRAL, p, p_low, e, 0.0 - s,
        0.0 - s_low, 0.0, worst, index, equal, 0.0, float(n // 2),
    ), (0.0 - t, 0.0 - t_low, 0.0)  # fmt: skip


@inner
def match_of_values(arrays, how, pointers, n):
    """The same of any pairs, one by one."""
    rare()
    kept = equal = x_top = y_top = 0.0
    worst, index = -1.0, -1.0
    for i in range(0, n, 2):
        keep, a, a_low, _ = term(arrays, how, pointers, i, ONE)
        both, b, b_low, _ = term(arrays, how, pointers, i + 1, ONE)
        if keep * both == 0.0:
            continue
        kept += 1.0
        x, x_im, y, y_im = number_at(arrays, pointers, i, (ONE, ONE))
        x_top, y_top = max(x_top, abs(x), abs(x_im)), max(y_top, abs(y), abs(y_im))
        same = x == y and x_im == y_im  # but for what 64-bit integers have beyond float64
        equal += same and not (0.0 < abs(a) < np.inf or 0.0 < abs(b) < np.inf)
        gap = beyond(worst, a, a_low, b, b_low)
        if gap != -1.0:
            worst, index = gap, float(i // 2)
    shift, factor = scale_of(max(x_top, y_top))
    x_shift, x_factor = scale_of(x_top)
    y_shift, y_factor = scale_of(y_top)
    s = s_low = t = t_low = p = p_low = 0.0
    for i in range(0, n, 2):
        keep, a, a_low, _ = term(arrays, how, pointers, i, (factor, 1.0))
        both, b, b_low, _ = term(arrays, how, pointers, i + 1, (factor, 1.0))
        if keep * both == 0.0:
            continue
        s, lost = two_sum(s, -a)
        s_low += lost - a_low
        t, lost = two_sum(t, -b)
        t_low += lost - b_low
        x, x_im, y, y_im = number_at(arrays, pointers, i, ((x_factor, 1.0), (y_factor, 1.0)))
        for u, v in ((x, y), (x_im, y_im)):
            product, lost = two_product(u, v)
            p, more = two_sum(p, product)
            p_low += lost + more
    s, s_low = settled(s, s_low)
    t, t_low = settled(t, t_low)
    p, p_low = settled(p, p_low)
    e = NEUTRAL if x_top == 0.0 or y_top == 0.0 else float(x_shift + y_shift)
    return (
        0.0, 0.0, NEUTRAL, kept, 0.0, 0.0, NEUTRAL, 0.0, 0.0, NEUTRAL, p, p_low, e, s, s_low,
        float(shift), worst, index, equal, 0.0, float(n // 2),
    ), (t, t_low, float(shift))  # fmt: skip


@kernel
def compare_complex(
    arrays, hows, wide, g, outer, awkward, x_g, x_outer, x_awkward, y_g, y_outer, y_awkward,
    length, row0, first, blocks, states, imaginary, begin, end,
):  # fmt: skip
    """As `describe_complex`, of pairs: matches, and such of which only the bias tells.

    x_g, y_g and so on: as if x, or y, stood alone.
    """
    memory = scratch_space(0)
    how, x_how, y_how = (
        (hows[0], hows[1], None), (hows[0], hows[2], None), (hows[0], hows[3], None),
    )  # fmt: skip
    x, y = (arrays[0], None, arrays[1], *arrays[3:]), (arrays[1], None, arrays[0], *arrays[3:])
    for unit in range(begin, end):
        row, start = row0 + unit // blocks, (first + unit % blocks) * BLOCK
        count = min(BLOCK, length - start)
        bases = offsets(arrays, g, 0, outer, row)
        p, q = NO_MATCH, ZERO
        for done in range(start, start + count, SCRATCH):
            n = min(SCRATCH, start + count - done)
            pointers = run_of(arrays, g, outer, awkward, bases, done, n, memory)
            match, bias = match_of_run(arrays, how, pointers, n, p[WORST])
            p = join_matches(p, match)
            q = add_scaled(q[0], q[1], q[2], bias[0], bias[1], bias[2])
        pack_match(states, unit, p)
        pack_match(imaginary, unit, NO_MATCH)
        imaginary[unit, MATCHES] = p[MATCHES]
        imaginary[unit, 13], imaginary[unit, 14], imaginary[unit, 15] = q
        sums = sum_block(arrays, how, wide, g, outer, awkward, bases, start, count)
        states[unit, 0], states[unit, 1], states[unit, 2] = sums[:3]
        states[unit, DROPPED] = sums[6]
        bases = offsets(x, x_g, 0, x_outer, row)
        sums = sum_block(x, x_how, wide, x_g, x_outer, x_awkward, bases, start, count)
        states[unit, 4], states[unit, 5], states[unit, 6] = sums[:3]
        bases = offsets(y, y_g, 0, y_outer, row)
        sums = sum_block(y, y_how, wide, y_g, y_outer, y_awkward, bases, start, count)
        states[unit, 7], states[unit, 8], states[unit, 9] = sums[:3]
