"""Partials: the mergeable state of a reduction, for arrays, windows, files and chunks.

A partial is a row of FIELDS float64: the sum of squares as a pair high + low with an
exponent (value (high + low) * 2**-exponent), the weight (how many values, or the sum of
their weights) in the same form, the number of NaN left out and of weights refused.
Blocks are folded in index order, so the same blocks give the same bits.
"""

import numpy as np

FIELDS = 8
BLOCK = 16384  # elements
EMPTY = (0.0, 0.0, 1.0e6, 0.0, 0.0, 1.0e6, 0.0, 0.0)


def empty(rows: int) -> np.ndarray:
    """Partials of nothing."""
    return np.tile(np.array(EMPTY), (rows, 1))
