"""How `describe` and `compare` are made: states of blocks, their totals, what is told of rows."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums
from rmsfast._inputs import Inputs
from rmsfast._layout import Walk
from rmsfast._partial import BLOCK, WIDTH
from rmsfast.reference.summaries import Comparison, Description

STRETCH = 256  # coordinates of each row of a tile that are copied at a time
COPIED_BYTES = 1 << 17  # of a tile of rows that do not lie side by side: in the level 2 cache
LARGEST_TILE = 128  # rows
# Rows that lie side by side are told of WIDTH at a time where they are short, and leave enough
# units for all threads.
LONGEST, LEAST_TILES = 4096, 4


class Report(NamedTuple):
    """Kernels and layout of a summary."""

    blocks: str
    fold: str
    totals: str
    pairs: str  # in place of `blocks`, for complex numbers
    mean: int  # which of the real numbers is complex then
    reals: int
    counts: int
    nothing: tuple[float, ...]  # the state of no coordinates


ZERO = (0.0, 0.0, 1.0e6)  # a sum of nothing, with an exponent that yields to any other
DESCRIBE = Report(
    "describe_blocks", "fold_moments", "describe_totals", "describe_complex", 1, 8, 5,
    (*ZERO, 0.0, 0.0, 0.0, 0.0, *ZERO[1:], np.inf, -np.inf, 0.0, 0.0, 0.0, -1.0, 0.0),
)  # fmt: skip
COMPARE = Report(
    "compare_blocks", "fold_matches", "compare_totals", "compare_complex", 6, 9, 4,
    (*ZERO, 0.0, *ZERO, *ZERO, *ZERO, *ZERO, -1.0, -1.0, 0.0, 0.0, 0.0),
)  # fmt: skip


class Made(NamedTuple):
    """How a summary is made of arrays, and told."""

    function: str
    names: tuple[str, ...]
    nan_policy: str
    length: int
    report: Report
    how: Any
    dtypes: tuple[np.dtype, ...]  # of the roots
    single: int  # bits: which of them are float32
    is_complex: bool


def made_of(inputs: Inputs) -> Made:
    kinds, policy = [inputs.stored], inputs.nan_policy
    omit = True if policy == "omit" else None
    if inputs.function == "compare":
        kinds += [inputs.stored[:1], inputs.stored[1:]]
        omit = True if policy != "propagate" else None
    dtypes = (inputs.dtype, *(np.dtype(_formats.result_kind(k)) for k in kinds[1:]))
    exact = [_sums.exact(k, np.dtype(_formats.result_kind(k)), False) for k in kinds]
    single = sum((dtype == np.float32) << k for k, dtype in enumerate(dtypes))
    report, how = COMPARE, (omit, *exact)
    if inputs.function == "describe":
        report, how = DESCRIBE, (omit, *exact, None)
    told = inputs.function, inputs.names, policy, inputs.length
    return Made(*told, report, how, dtypes, single, inputs.is_complex)


def table(inputs: Inputs) -> Any:
    """What is told of each row, as the caller is given it."""
    made = made_of(inputs)
    return told(made, *_reports(made, inputs))


def told(made: Made, reals: list[Any], counts: list[Any]) -> Any:
    """The table of these numbers; the last refusal."""
    describes = made.report is DESCRIBE
    if made.nan_policy == "raise":
        flags = np.asarray(counts[2 if describes else 3] > 0, np.uint8)
        _arguments.check_flags(made.function, made.names, flags, made.nan_policy)
    if describes and made.is_complex:  # which have no order
        reals[3] = reals[4] = np.full_like(reals[5], np.nan)[()]
    return (description if describes else comparison)(reals, counts, made.dtypes, made.length)


def description(
    reals: list[Any] | np.ndarray, counts: list[Any] | np.ndarray, dtypes: tuple[np.dtype, ...],
    length: int,
) -> Description:  # fmt: skip
    roots, mean, std, least, most, peak, share, crest = reals
    count, index, n_nan, n_inf, n_zero = counts
    return Description(
        count=count,
        rms=_formats.rounded(roots, dtypes[0])[()],
        mean=mean,
        std=std,
        min=least,
        max=most,
        peak=peak,
        peak_index=index,
        peak_share=share,
        crest=crest,
        n_nan=n_nan,
        n_inf=n_inf,
        n_zero=n_zero,
        _roots=roots[np.newaxis],
        _length=length,
    )


def comparison(
    reals: list[Any] | np.ndarray, counts: list[Any] | np.ndarray, dtypes: tuple[np.dtype, ...],
    length: int,
) -> Comparison:  # fmt: skip
    count, index, n_equal, _ = counts
    narrow: Any
    if isinstance(reals, np.ndarray) and dtypes[0] == dtypes[1] == dtypes[2]:
        roots, narrow = reals[:3], _formats.rounded(reals[:4], dtypes[0])
    else:
        roots, kinds = np.stack(list(reals[:3])), (*dtypes, dtypes[0])
        narrow = [_formats.rounded(v, kind)[()] for v, kind in zip(reals, kinds, strict=False)]
    decibels, cosine, bias, worst, scale = reals[4:]
    return Comparison(
        count=count,
        rmse=narrow[0],
        rms_x=narrow[1],
        rms_x_hat=narrow[2],
        relative_rmse=narrow[3],
        sqnr_db=decibels,
        cosine=cosine,
        bias=bias,
        max_abs_error=worst,
        max_error_index=index,
        n_equal=n_equal,
        fitted_scale=scale,
        _roots=roots,
        _length=length,
    )


def _reports(made: Made, inputs: Inputs) -> tuple[list[Any], list[Any]]:
    """Real and whole numbers that are reported of each row, in the shape of the result."""
    rows, report = math.prod(inputs.rows_shape), made.report
    reals, counts = np.empty((report.reals, rows)), np.empty((report.counts, rows), np.int64)
    found, order = list(reals), None
    if inputs.is_complex:
        found[report.mean] = np.empty(rows, np.complex128)
    if rows:
        walk = _layout.walk(inputs.shape, inputs.axes, inputs.operands())
        order = walk.plan
        if inputs.is_complex:
            _fill_complex(made, inputs, walk, reals, counts, found[report.mean])
        else:
            _fill(made, walk, _alone(inputs, walk), reals, counts, inputs.threads)

    def shaped(row: np.ndarray) -> Any:
        found = row if order is None else _layout.in_order(row, order)
        return np.ascontiguousarray(found).reshape(inputs.rows_shape)[()]

    return [shaped(r) for r in found], [shaped(c) for c in counts]


def block_states(
    inputs: Inputs, runs: Callable[[int], Iterable[tuple[int, int]]]
) -> Iterator[tuple[int, np.ndarray]]:
    """The states of blocks of rows of real numbers, rows in C order x blocks x fields.

    `runs` tells, of so many blocks, the first of neighbours, with which each comes, and how many.
    """
    made = made_of(inputs)
    walk = _layout.walk(inputs.shape, inputs.axes, inputs.operands())
    tiles, rows, fields = _Tiles.of(walk), walk.plan.rows, len(made.report.nothing)
    alone, nowhere = _alone(inputs, walk), (np.empty((0, 0)), np.empty((0, 0), np.int64))
    for first, count in runs(tiles.blocks):
        states = np.empty((rows * count, fields))
        args = tiles.arguments(made, walk, alone, 0, first, count, states, *nowhere)
        units = tiles.groups * count
        _launch.launch(made.report.blocks, args, units, tiles.unit_bytes, inputs.threads)
        shape = (rows, count, fields)
        yield first, _layout.in_order(states.reshape(shape), walk.plan).reshape(shape)


def reports_of(made: Made, totals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Real and whole numbers that are reported of the states of rows."""
    rows, report = len(totals), made.report
    reals, counts = np.empty((report.reals, rows)), np.empty((report.counts, rows), np.int64)
    args = (totals, made.single, 0, reals, counts, 0, rows)
    _launch.call(_launch.kernel(report.totals), args)
    return reals, counts


def _alone(inputs: Inputs, walk: Walk) -> tuple[Any, ...]:
    """Where each of a pair lies, as if it stood alone: geometry, row axes, what is awkward."""
    first, second, _, *around = inputs.operands()
    found: list[Any] = []
    for one, other in ((first, second), (second, first)) if second else ():
        own = [one, None, other, *around]
        plan = _layout.walk(inputs.shape, inputs.axes, own, walk.plan.order).plan
        found += [plan.g, plan.outer, plan.awkward]
    return tuple(found)


class _Tiles(NamedTuple):
    """Groups of rows that are walked together: tiles of neighbours in memory, or single rows."""

    tile: int
    columns: int  # neighbours of which tiles are cut
    part: int  # bytes that an array is copied to, 0 where its rows lie side by side
    groups: int
    blocks: int
    unit_bytes: int

    @classmethod
    def of(cls, walk: Walk) -> "_Tiles":
        plan = walk.plan
        size = min(plan.length, BLOCK)
        itemsize = max(a.itemsize for a in walk.arrays if a is not None)
        tile = columns = 1
        part = 0
        if plan.columns:
            columns = int(plan.g[0, plan.outer - 1])
            line = 64 // itemsize
            tile = COPIED_BYTES // (min(size, STRETCH) * _sums.element_bytes(walk))
            tile = min(columns, max(line, min(tile, LARGEST_TILE) // line * line))
        elif not plan.awkward and plan.outer and plan.length <= LONGEST:
            columns = int(plan.g[0, plan.outer - 1])
            tile = WIDTH if columns >= LEAST_TILES * WIDTH else 1
        if plan.awkward:
            # For tiles, or a block of a row.
            room = max(min(size, STRETCH) * tile + 16 * tile, size)
            part = -(-room * itemsize // 64) * 64
        groups = plan.rows // columns * -(-columns // tile)
        blocks = -(-plan.length // BLOCK)
        return cls(tile, columns, part, groups, blocks, size * _sums.element_bytes(walk) * tile)

    def start(self, group: int) -> int:
        """The first row of a group."""
        tiles = -(-self.columns // self.tile)
        return group // tiles * self.columns + group % tiles * self.tile

    def arguments(
        self, made: Made, walk: Walk, alone: tuple[Any, ...], first: int, block: int, blocks: int,
        states: np.ndarray, reals: np.ndarray, counts: np.ndarray,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Of the kernel, for rows from `first` on and `blocks` blocks from `block` on."""
        plan = walk.plan
        return (
            walk.arrays, made.how, walk.wide, plan.g, plan.outer, plan.awkward, *alone, plan.length,
            self.tile, self.columns, self.part, first, block, blocks, made.single, states, reals,
            counts,
        )  # fmt: skip


def _fill(
    made: Made, walk: Walk, alone: tuple[Any, ...], reals: np.ndarray, counts: np.ndarray,
    threads: int | None,
) -> None:  # fmt: skip
    report, rows, tiles = made.report, walk.plan.rows, _Tiles.of(walk)
    blocks, groups = tiles.blocks, tiles.groups
    step = groups if blocks == 1 else max(1, _sums.UNITS // tiles.tile)
    for group in range(0, groups, step):
        count = min(step, groups - group)
        first = tiles.start(group)
        n_rows = (rows if group + count == groups else tiles.start(group + count)) - first
        at_once = min(blocks, max(1, _sums.UNITS // n_rows))
        # Where there is no room for states, what is reported is stored at once.
        states = np.empty((n_rows * at_once if blocks > 1 else 0, len(report.nothing)))
        totals = np.tile(np.array(report.nothing), (n_rows if blocks > 1 else 0, 1))
        for block in range(0, blocks, at_once):
            n = min(at_once, blocks - block)
            args = tiles.arguments(made, walk, alone, first, block, n, states, reals, counts)
            _launch.launch(report.blocks, args, count * n, tiles.unit_bytes, threads)
            if blocks > 1:
                _launch.call(_launch.kernel(report.fold), (states, n, totals, 0, n_rows))
        if blocks > 1:
            args = (totals, made.single, first, reals, counts, 0, n_rows)
            _launch.call(_launch.kernel(report.totals), args)


def _fill_complex(
    made: Made, inputs: Inputs, walk: Walk, reals: np.ndarray, counts: np.ndarray, mean: np.ndarray
) -> None:
    """As `_fill`, with the complex number of each row in `mean`."""
    report, plan, threads = made.report, walk.plan, inputs.threads
    blocks, nothing = -(-plan.length // BLOCK), np.array(report.nothing)
    units = _sums.UNITS // 2  # of two states each
    at_once, step = min(blocks, units), max(1, units // blocks)
    unit_bytes = min(plan.length, BLOCK) * _sums.element_bytes(walk)
    fold, tell = _launch.kernel(report.fold), _launch.kernel(report.totals)
    common: tuple[Any, ...] = walk.arrays, made.how, walk.wide, plan.g, plan.outer, plan.awkward
    common += (*_alone(inputs, walk), plan.length)
    for first in range(0, plan.rows, step):
        rows = min(step, plan.rows - first)
        totals = [np.tile(nothing, (rows if blocks > 1 else 0, 1)) for _ in range(2)]
        for block in range(0, blocks, at_once):
            n = min(at_once, blocks - block)
            states = [np.empty((rows * n, len(nothing))) for _ in range(2)]
            args = (*common, first, block, n, *states)
            _launch.launch(report.pairs, args, rows * n, unit_bytes, threads)
            for own, total in zip(states, totals, strict=True) if blocks > 1 else ():
                _launch.call(fold, (own, n, total, 0, rows))
        real, imaginary = totals if blocks > 1 else states
        if made.report is DESCRIBE:  # squares about the mean of both parts
            a, b = real[:, 6], imaginary[:, 6]
            both = a + b
            back = both - a
            real[:, 7] += imaginary[:, 7] + ((a - (both - back)) + (b - back))
            real[:, 6] = both
        part = slice(first, first + rows)
        for total, own in ((imaginary, mean.imag), (real, mean.real)):
            _launch.call(tell, (total, made.single, first, reals, counts, 0, rows))
            own[part] = reals[report.mean, part]
