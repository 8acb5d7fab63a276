"""The compiled loops of relative errors: what an error is divided by, and the quotient."""

import math

import numpy as np

from rmsfast._kernels import (
    DOWN,
    DOWN_EXPONENT,
    UP,
    add_pairs,
    add_scaled,
    divide_pairs,
    gather,
    hot,
    inner,
    kernel,
    load,
    root_of_pair,
    root_pair,
    rounded,
    two_sum,
)
from rmsfast._lanes import term, two_product
from rmsfast._memory import offsets, scratch_space
from rmsfast._vectors import SCRATCH

SQUARES, MEAN, RANGE, MAX, DEVIATION, NUMBER = range(6)  # what a reference is made of


@inner
def mean_pair(p):
    """Sum / weight as a pair with an exponent."""
    high, low, e = p[0], p[1], p[2] - p[5]
    if abs(high) < 2.0**-400:  # the quotient would lose digits where it is subnormal
        high, low, e = high * UP, low * UP, e + 900.0
    h, low = divide_pairs(high, low, p[3], p[4])
    return h, low, e


@inner
def largest_of(least, most):
    """The larger size of two ends, as a pair with an exponent."""
    if least[0] != least[0]:  # both are
        return least[0], 0.0, 0.0
    a, a_low = least if least[0] >= 0.0 else (-least[0], -least[1])
    b, b_low = most if most[0] >= 0.0 else (-most[0], -most[1])
    if b > a or (b == a and b_low > a_low):
        a, a_low = b, b_low
    return a, a_low if math.isfinite(a) else 0.0, 0.0


@inner
def size_pair(p, kind, number, number_low, exponent):
    """The size that an error is divided by, as a pair with an exponent."""
    if kind == NUMBER:
        return number, number_low, exponent
    if kind == SQUARES:
        return root_pair(p[:8])
    if kind == DEVIATION:  # about a rounded mean, whose error is `number`
        number = math.ldexp(number, int(p[2]) // 2 - int(exponent))
        q, low = add_pairs(p[0], p[1], -p[3] * number * number, 0.0)
        q, low = (p[0], p[1]) if math.isnan(q) else (max(q, 0.0), low)
        return root_pair((q, low, p[2], p[3], p[4], p[5], p[6], p[7]))
    if p[3] == 0.0:
        return np.nan, 0.0, 0.0
    if kind == MEAN:
        h, low, e = mean_pair(p)
        return (h, low, e) if h >= 0.0 else (-h, -low, e)
    if kind == MAX:
        return largest_of((p[8], p[9]), (p[10], p[11]))
    h, low = add_pairs(p[10], p[11], -p[8], -p[9])
    if math.isfinite(h) or not math.isfinite(p[8]) or not math.isfinite(p[10]):
        return h, low if math.isfinite(h) else 0.0, 0.0
    h, low = add_pairs(0.5 * p[10], 0.5 * p[11], -0.5 * p[8], -0.5 * p[9])
    return h, low, -1.0


@kernel
def ratios(errors, sizes, kind, numbers, out, flags, begin, end):
    """out[row] = root mean square error / size; flags: as for `finish`, 4 if the size is 0."""
    for row in range(begin, end):
        p = load(errors, row)
        h, low, e = root_pair(p)
        size, size_low, size_e = size_pair(
            extent_of(sizes, row), kind, numbers[row, 0], numbers[row, 1], numbers[row, 2]
        )
        q, low = divide_pairs(h, low, size, size_low)
        out[row] = rounded(q, low, e - size_e)
        flags[row] = (p[6] > 0.0) + 2 * (p[7] > 0.0) + 4 * (size == 0.0)


@hot
def extent_of(sizes, row):
    k = sizes.shape[1] - 4  # partials of squares have no extents: their last fields stand in
    p = load(sizes, row)
    return (*p, sizes[row, k], sizes[row, k + 1], sizes[row, k + 2], sizes[row, k + 3])


@kernel
def means(extents, out, errors, begin, end):
    """out[row] = the mean, errors[row] = what rounding took from it, and its exponent."""
    for row in range(begin, end):
        h, low, e = mean_pair(load(extents, row))
        out[row], lost = nearest((h, low), e)
        errors[row, 0], errors[row, 2] = lost[0], e


# ------------------------------------------------------------------- complex references


@inner
def size_of_complex(a, b, e):
    """|a + ib| of two pairs with one exponent, as a pair with an exponent."""
    top = max(abs(a[0]), abs(b[0]))
    if top == 0.0 or not math.isfinite(a[0]) or not math.isfinite(b[0]):
        return abs(a[0]) + abs(b[0]), 0.0, 0.0
    k = math.frexp(top)[1]
    q = low = 0.0
    for high, rest in (a, b):
        high, rest = math.ldexp(high, -k), math.ldexp(rest, -k)
        p, error = two_product(high, high)
        q, low = add_pairs(q, low, p, error + 2.0 * high * rest)
    h, low = root_of_pair(q, low)
    return h, low, e - k


@inner
def complex_sums(arrays, how, g, outer, apart, bases, length, scale):
    """Sums of w re and w im as pairs, of w, and the largest |z| with its exponent."""
    memory = scratch_space(0)
    re = re_low = im = im_low = total = total_low = 0.0
    most, most_low, most_e, reach = 0.0, 0.0, 0.0, 0.0
    for first in range(0, length, SCRATCH):
        n = min(SCRATCH, length - first)
        pointers = gather(arrays, g, outer, apart, bases, first, n, memory)
        for i in range(0, n, 2):
            kept, a, a_low, w = term(arrays, how, pointers, i, scale)
            both, b, b_low, w = term(arrays, how, pointers, i + 1, scale)
            if kept * both == 0.0:
                continue
            p, lost = two_product(w, a)
            re, re_low = add_pairs(re, re_low, p, lost + w * a_low)
            p, lost = two_product(w, b)
            im, im_low = add_pairs(im, im_low, p, lost + w * b_low)
            total, lost = two_sum(total, w)
            total_low += lost
            top = max(abs(a), abs(b))
            if 0.8 * top < reach:  # |z| is at most the root of 2 times as large
                continue
            found = size_of_complex((a, a_low), (b, b_low), 0.0)
            largest = (most, most_low, most_e)
            if is_larger(found, largest):
                most, most_low, most_e = found
                reach = math.ldexp(0.5 * most, -int(most_e))
    return (re, re_low), (im, im_low), (total, total_low), (most, most_low, most_e)


@inner
def is_larger(a, b):
    """Whether one pair with an exponent is larger than another; NaN is largest."""
    shift = int(b[2] - a[2])
    best = math.ldexp(b[0], -shift)
    return a[0] > best or a[0] != a[0] or (a[0] == best and a[1] > math.ldexp(b[1], -shift))


@inner
def complex_run(arrays, how, g, outer, apart, bases, length):
    """As `complex_sums`, and the exponent of the first two."""
    re, im, total, most = complex_sums(arrays, how, g, outer, apart, bases, length, (1.0, 1.0))
    e = 0.0
    if not math.isfinite(re[0]) or not math.isfinite(im[0]):
        e = DOWN_EXPONENT / 2
        re, im, _, _ = complex_sums(arrays, how, g, outer, apart, bases, length, (DOWN, 1.0))
    return re, im, e, total, most


@inner
def store_complex_size(re, im, e, total, most, largest, sizes, centres, row):
    """What `complex_sizes` tells of a row."""
    if total[0] == 0.0:
        sizes[row, 0] = np.nan
        return
    if largest is not None:
        sizes[row, 0], sizes[row, 1], sizes[row, 2] = most
        return
    if max(abs(re[0]), abs(im[0])) < 2.0**-400:
        re, im = (re[0] * UP, re[1] * UP), (im[0] * UP, im[1] * UP)
        e += 900.0
    re = divide_pairs(re[0], re[1], total[0], total[1])
    im = divide_pairs(im[0], im[1], total[0], total[1])
    if centres is not None:
        centres[row, 0], re = nearest(re, e)
        centres[row, 1], im = nearest(im, e)
    sizes[row, 0], sizes[row, 1], sizes[row, 2] = size_of_complex(re, im, e)


@kernel
def complex_sizes(arrays, how, g, outer, apart, length, largest, sizes, centres, begin, end):
    """sizes[row] = the largest |z|, or |mean|, as a pair and an exponent.

    centres (None, or for deviations): the mean; sizes is then what rounding took from it.
    """
    for row in range(begin, end):
        bases = offsets(arrays, g, 0, outer, row)
        re, im, e, total, most = complex_run(arrays, how, g, outer, apart, bases, length)
        store_complex_size(re, im, e, total, most, largest, sizes, centres, row)


@kernel
def complex_states(arrays, how, g, outer, apart, length, states, begin, end):
    """states[row] = what `sizes_of_complex` takes, of a run of a row."""
    for row in range(begin, end):
        bases = offsets(arrays, g, 0, outer, row)
        re, im, e, total, most = complex_run(arrays, how, g, outer, apart, bases, length)
        if e == 0.0 and max(abs(re[0]), abs(im[0])) > 2.0**900:  # so that sums of sums are finite
            re, im, e = (re[0] * DOWN, re[1] * DOWN), (im[0] * DOWN, im[1] * DOWN), -600.0
        store_complex_state(states, row, re, im, e, total, most)


@hot
def store_complex_state(states, row, re, im, e, total, most):
    states[row, 0], states[row, 1], states[row, 2], states[row, 3] = re[0], re[1], im[0], im[1]
    states[row, 4], states[row, 5], states[row, 6] = e, total[0], total[1]
    states[row, 7], states[row, 8], states[row, 9] = most


@hot
def load_complex_state(states, row):
    return (
        (states[row, 0], states[row, 1]), (states[row, 2], states[row, 3]), states[row, 4],
        (states[row, 5], states[row, 6]), (states[row, 7], states[row, 8], states[row, 9]),
    )  # fmt: skip


@kernel
def fold_complex(states, runs, totals, begin, end):
    """Fold the states of the runs of each row, in order, into its total."""
    for row in range(begin, end):
        for k in range(row * runs, (row + 1) * runs):
            p_re, p_im, p_e, p_w, most = load_complex_state(totals, row)
            q_re, q_im, q_e, q_w, other = load_complex_state(states, k)
            re, re_low, e = add_scaled(p_re[0], p_re[1], p_e, q_re[0], q_re[1], q_e)
            im, im_low, _ = add_scaled(p_im[0], p_im[1], p_e, q_im[0], q_im[1], q_e)
            w, w_low, _ = add_scaled(p_w[0], p_w[1], 0.0, q_w[0], q_w[1], 0.0)
            if is_larger(other, most):
                most = other
            store_complex_state(totals, row, (re, re_low), (im, im_low), e, (w, w_low), most)


@kernel
def sizes_of_complex(states, largest, sizes, centres, begin, end):
    """As `complex_sizes`, of the states of rows."""
    for row in range(begin, end):
        re, im, e, total, most = load_complex_state(states, row)
        store_complex_size(re, im, e, total, most, largest, sizes, centres, row)


@inner
def nearest(pair, e):
    """The float64 nearest to a pair with an exponent, and the pair that is left."""
    value = rounded(pair[0], pair[1], e)
    lost = (pair[0] - math.ldexp(value, int(e))) + pair[1]
    return value, (lost if math.isfinite(lost) else 0.0, 0.0)
