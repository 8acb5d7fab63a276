"""Summaries of plain arrays of rows of one block; see _small."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _formats, _launch, _sums
from rmsfast._partial import BLOCK
from rmsfast._small import Side, nbytes
from rmsfast._small_reductions import Reduction, reduction, views

NO_STATES = np.empty((0, 0))  # of rows of one block


class Summary(NamedTuple):
    """Every number of rows, or of pairs of rows, of one block."""

    reduction: Reduction
    plan: tuple[Any, ...]  # arguments of the kernel, from how to sum on
    dtypes: tuple[np.dtype, ...]  # of the roots


def summary(
    blocks: str, fields: tuple[int, int], axis: Any, *given: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[np.dtype, ...], int] | None:
    """What kernel `blocks` tells of each row, `fields` real and whole numbers.

    And the dtypes of the roots, and the length of a row. None where an array is not small or plain.
    """
    if axis is not None and type(axis) is not int:
        return None
    found = summary_plan(axis, *[(a.dtype, a.shape, a.strides) for a in given])
    if found is None:
        return None
    plain, plan, dtypes = found
    rows, arrays = plain.plan.rows, views(plain, given)
    reals, counts = np.empty((fields[0], rows)), np.empty((fields[1], rows), np.int64)
    args = (arrays, *plan, NO_STATES, reals, counts)
    row_bytes = sum(a.nbytes for a in given) // rows
    _launch.launch(blocks, args, rows, row_bytes, None, (plain.key, plan[0]))
    shape = plain.shape
    return reals.reshape(-1, *shape), counts.reshape(-1, *shape), dtypes, plan[-8]


@lru_cache(maxsize=1024)
def summary_plan(axis: int | None, *sides: Side) -> Summary | None:
    plain = reduction(axis, False, None, None, *sides)
    if plain is None or plain.plan.awkward or not plain.ordered:
        return None
    if sum(map(nbytes, sides)) >= _launch.PARALLEL_BYTES:
        return None
    wide, (g, outer, awkward) = plain.wide, (plain.plan.g, plain.plan.outer, plain.plan.awkward)
    length = plain.plan.length
    kinds = tuple(str(_formats.kind_of(dtype, None)) for dtype, _, _ in sides)
    if length > BLOCK or any(kind.startswith("complex") for kind in kinds):
        return None
    each = [kinds] if len(kinds) == 1 else [kinds, kinds[:1], kinds[1:]]
    dtypes = tuple(np.dtype(_formats.result_kind(k)) for k in each)
    exact = [_sums.exact(k, dtype, False) for k, dtype in zip(each, dtypes, strict=True)]
    how = (None, *exact, *[None] * (len(kinds) == 1))
    alone: tuple[Any, ...] = ()
    for own, other in ((1, 2), (2, 1)) if len(kinds) == 2 else ():
        alone += (g[[0, own, 3, other, *range(4, len(g))]], outer, awkward)
    single = sum((dtype == np.float32) << k for k, dtype in enumerate(dtypes))
    plan = (how, wide, g, outer, awkward, *alone, length, 1, 1, 0, 0, 0, 1, single)
    return Summary(plain, plan, dtypes)
