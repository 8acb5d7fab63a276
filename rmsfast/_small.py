"""What calls on plain arrays share.

Checking the arguments of a call takes longer than the answer for a small array. Here the shapes,
strides and dtypes of arrays and the options that were found good once are the key to a plan;
whatever is not plain gives None before anything is written, and takes the long way.
"""

import math
from typing import Any

import numpy as np

KEPT = 1024  # calls
Side = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]


def writable(out: Any, x: np.ndarray) -> bool:
    """Whether a result may be written to a plain array, which is x or apart from it."""
    if type(out) is not np.ndarray or not out.flags.behaved:
        return False
    return out is x or not np.may_share_memory(out, x)


def nbytes(side: Side) -> int:
    return math.prod(side[1]) * side[0].itemsize


def in_c_order(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    return np.empty(shape, dtype).strides
