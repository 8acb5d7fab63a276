"""A few rows of a chunk at a time: what a task holds beside its chunk and its result is small."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray
Box = tuple[slice, ...]
NUMBERS = 1 << 16  # that are held
ROWS = NUMBERS >> 3  # of which some numbers each are held
STATES = NUMBERS >> 5  # that are held, each of many numbers


def boxes(lengths: Sequence[int], most: int) -> Iterator[Box]:
    """Neighbouring elements, in C order, of an array of these lengths, so many at most."""
    steps: list[int] = []
    for n in reversed(lengths):
        steps.insert(0, max(1, min(n, most)))
        most //= steps[0]
    starts = (range(0, n, step) for n, step in zip(lengths, steps, strict=True))
    for first in product(*starts):
        ends = map(min, map(sum, zip(first, steps, strict=True)), lengths)
        yield tuple(map(slice, first, ends))


def rows_of(box: Box, axes: tuple[int, ...]) -> Box:
    """A box that holds whole rows, which are along these axes."""
    return tuple(slice(None) if k in axes else part for k, part in enumerate(box))


def part(block: Array, box: Box) -> Any:
    """What a block has in a box: its axes are the last, along some of which it is broadcast."""
    places = zip(block.shape, box[len(box) - block.ndim :], strict=True)
    return block[tuple(slice(None) if n == 1 else place for n, place in places)]


def by_rows(
    fill: Callable[..., Any], out: Array, blocks: Sequence[Array], axes: tuple[int, ...], most: int
) -> Array:
    """`out`, once `fill(out, *blocks)` was called with at most so many rows of all at a time."""
    lengths = [1 if k in axes else n for k, n in enumerate(out.shape)]
    if math.prod(lengths) > most:
        with suppress(ValueError):
            for box in boxes(lengths, most):
                rows = rows_of(box, axes)
                fill(out[rows], *(part(block, rows) for block in blocks))
            return out
    if out.size:
        fill(out, *blocks)  # or once more, for a refusal that counts all rows
    return out


def without(out: Array, axes: tuple[int, ...], keepdims: bool) -> Any:
    """One number a row, in the shape of a result."""
    if keepdims:
        return out
    return out.reshape([n for k, n in enumerate(out.shape) if k not in axes])[()]


def upright(numbers: Array, axes: tuple[int, ...], ndim: int) -> Array:
    """Numbers that are broadcastable to the rows, in as many axes as the array has."""
    if numbers.ndim == ndim:
        return numbers
    missing = ndim - len(axes) - numbers.ndim
    return np.expand_dims(numbers.reshape((1,) * missing + numbers.shape), axes)
