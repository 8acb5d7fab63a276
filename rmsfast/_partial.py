"""Partials: the mergeable state of a reduction, for arrays, windows, files and chunks.

A partial is a row of FIELDS float64: the sum of squares as a pair high + low with an
exponent (value (high + low) * 2**-exponent), the weight (how many values, or the sum of
their weights) in the same form, the number of NaN left out and of weights refused.
Blocks are folded in index order, so the same blocks give the same bits.
"""

import numpy as np

FIELDS = 8
EXTENT_FIELDS = 12  # and the least and largest value, as pairs; the sum is not of squares
BLOCK = 16384  # elements
LANES = 16  # running sums of a block
WIDTH = 8  # lanes of one vector: one AVX-512 register, two AVX2, four SSE2 or NEON
CONTINUED_TILE = 512  # rows whose lanes stay in cache while sums are continued
EMPTY = (0.0, 0.0, 1.0e6, 0.0, 0.0, 1.0e6, 0.0, 0.0)  # exponents that yield to any other
EMPTY_EXTENT = (*EMPTY, np.inf, 0.0, -np.inf, 0.0)
# Sums of real and imaginary parts as pairs, their exponent, the weight; the largest |z|.
EMPTY_COMPLEX = (0.0, 0.0, 0.0, 0.0, 1.0e6, 0.0, 0.0, 0.0, 0.0, 0.0)


def empty(rows: int, fields: int = FIELDS) -> np.ndarray:
    """Partials of nothing."""
    return np.tile(np.array(EMPTY if fields == FIELDS else EMPTY_EXTENT), (rows, 1))
