"""Every number of a vector in one pass: `describe`, `compare`."""

import math
from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _small, _sums
from rmsfast._inputs import Inputs
from rmsfast._layout import Walk
from rmsfast._partial import BLOCK
from rmsfast.reference.summaries import Comparison, Description

__all__ = ["Comparison", "Description", "compare", "describe"]

Axis = int | tuple[int, ...] | None
STRETCH = 256  # coordinates of each row of a tile that are copied at a time
COPIED_BYTES = 1 << 17  # of a tile of rows that do not lie side by side: in the level 2 cache
LARGEST_TILE = 128  # rows


def describe(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    where: Any = None,
    nan_policy: str = "propagate",
    format: str | None = None,
    threads: int | None = None,
) -> Description:
    """Count, size, mean, spread, extremes and special values of vectors, in one pass.

    Parameters
    ----------
    x : array_like of numbers
        As for `rms`, in any layout and byte order.
    axis : int, tuple of int or None, default -1
        Axes that hold the coordinates of each vector, numbered in C order; None: all.
    where : array_like of bool, broadcastable to `x`
        True keeps a value; what is left out never matters. A mask of `x` does the same.
    nan_policy : {"propagate", "omit", "raise"}
        NaN gives NaN, or is left out, or is refused.
    format, threads
        As for `rms`.

    Returns
    -------
    Description
        Arrays of the shape of `rms(x, axis=axis)`, scalars of one vector: `count`, `rms`, `mean`,
        `std` (ddof 0), `min`, `max`, `peak` (largest absolute value), `peak_index` (the first
        coordinate of it), `peak_share` (peak**2 / sum(|x|**2)), `crest` (peak / rms), `n_nan`,
        `n_inf`, `n_zero`. All but `rms` and the whole numbers are float64. Where no value is kept
        they are NaN and the index is -1; 0/0 is NaN (`peak_share` and `crest` of zeros); where a
        NaN is kept the index is that of the first. The counts are of what `where` chooses.
        Complex numbers have a complex `mean`, the `std` of `numpy.std` and, as they have no
        order, NaN for `min` and `max`; one that is NaN or Inf in a part is so as a whole.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rms`.

    Notes
    -----
    `rms` has the bits of `rms(x)`. Mean and deviation come from sums over blocks of 16384
    coordinates, joined by the formula of Chan, Golub & LeVeque (1983,
    doi:10.1080/00031305.1983.10483115), over the whole range of the dtype. For float64, int32 and
    wider integers the sums are pairs (Ogita, Rump & Oishi 2005, doi:10.1137/030601818): within 4
    ulps, the mean plus 2**-80 of the largest |x|. For narrower floats they are plain float64, and
    bounded by 2**-42 of the largest |x| (mean) and 2**-40 of itself (deviation); 1e-15 is usual. A
    constant vector has deviation 0 and its value as mean. A block is read once more, from cache,
    for the index, and where its mean is large beside its deviation. Complex numbers are read
    twice, each row by one thread, and their sums are pairs. No temporary grows with `x`.

    Examples
    --------
    >>> found = describe([[3.0, -4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    >>> found.rms, found.peak_index, found.peak_share
    (array([2.5, 1. ]), array([1, 0]), array([0.64, 0.25]))
    >>> found.summary()["rms"]["pooled"]  # sqrt((25 + 4) / 8), of all 8 coordinates
    np.float64(1.9039432764659772)
    """
    plain = where is None and format is None and threads is None and nan_policy == "propagate"
    if plain and type(x) is np.ndarray:
        found = _small.summary(DESCRIBE.blocks, DESCRIBE[7:9], axis, x)
        if found is not None:
            return _description(*found)
    inputs = _inputs("describe", (x,), axis, where, nan_policy, format, threads)
    if _launch.kernels() is None:
        return inputs.by_reference()  # type: ignore[no-any-return]
    omit = True if nan_policy == "omit" else None
    how = (omit, _exact(inputs.stored), None)
    reals, counts = _reports(DESCRIBE, inputs, how, int(inputs.dtype == np.float32))
    if nan_policy == "raise":
        _arguments.check_flags(
            "describe", inputs.names, np.asarray(counts[2] > 0, np.uint8), nan_policy
        )
    if inputs.is_complex:  # which have no order
        reals[3] = reals[4] = np.full_like(reals[5], np.nan)[()]
    return _description(reals, counts, (inputs.dtype,), inputs.length)


def _description(
    reals: list[Any], counts: list[Any], dtypes: tuple[np.dtype, ...], length: int
) -> Description:
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


def compare(
    x: Any,
    x_hat: Any,
    /,
    *,
    axis: Axis = -1,
    where: Any = None,
    nan_policy: str = "propagate",
    format: str | None = None,
    threads: int | None = None,
) -> Comparison:
    """Sizes, errors and likeness of pairs of vectors, in one pass.

    Parameters
    ----------
    x, x_hat : array_like of numbers
        The vectors and what stands for them, paired as for `rmse`.
    axis, where, nan_policy, format, threads
        As for `describe`; "omit" and masks leave out a pair where either value is missing.

    Returns
    -------
    Comparison
        Arrays of the shape of `rmse(x, x_hat, axis=axis)`, scalars of one pair of vectors:
        `count`, `rmse`, `rms_x`, `rms_x_hat`, `relative_rmse` (over RMS(x)), `sqnr_db` (signal to
        quantisation noise, 20 log10(rms_x / rmse)), `cosine`, `bias` (mean of x_hat - x),
        `max_abs_error`, `max_error_index` (the first coordinate of it), `n_equal` (pairs of equal
        numbers), `fitted_scale` (<x, x_hat> / <x_hat, x_hat>, what to multiply x_hat by). All but
        the roots, their ratio and the whole numbers are float64. Where no pair is kept they are
        NaN and the index is -1; 0/0 is NaN (`cosine`, `fitted_scale` of zeros), but `sqnr_db` of
        equal vectors is inf, zeros included; where an error is NaN the index is that of the first.
        Of complex numbers `bias` is complex, and <x, x_hat> is the real part of
        sum(x * conj(x_hat)): `cosine` and the real `fitted_scale` are those of the real vectors
        of twice as many coordinates.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmse`.

    Notes
    -----
    `rmse`, `rms_x`, `rms_x_hat` have the bits and dtypes of `rmse(x, x_hat)`, `rms(x)`,
    `rms(x_hat)` over the same pairs, `relative_rmse` those of `relative_rmse` under
    ``zero="ieee"`` where both dtypes are alike (else within 1 ulp; the rms of a real vector beside
    a complex one within 0.51). Sums of products and errors are
    pairs (Ogita, Rump & Oishi 2005, doi:10.1137/030601818), plain float64 for floats narrower than
    that: `cosine` is within 2**-50, at worst 2**-42 for these, `fitted_scale` within as much of
    rms_x / rms_x_hat, `bias` of rmse, `sqnr_db` within 1e-11. Memory and passes as `describe`.

    Examples
    --------
    >>> found = compare([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 5.0])
    >>> found.relative_rmse, found.max_error_index, found.n_equal, found.fitted_scale
    (np.float64(1.0), np.int64(3), np.int64(3), np.float64(0.5))
    """
    plain = where is None and format is None and threads is None and nan_policy == "propagate"
    if plain and type(x) is type(x_hat) is np.ndarray:
        found = _small.summary(COMPARE.blocks, COMPARE[7:9], axis, x, x_hat)
        if found is not None:
            return _comparison(*found)
    inputs = _inputs("compare", (x, x_hat), axis, where, nan_policy, format, threads)
    if _launch.kernels() is None:
        return inputs.by_reference()  # type: ignore[no-any-return]
    omit = True if nan_policy != "propagate" else None
    kinds = inputs.stored, inputs.stored[:1], inputs.stored[1:]
    hows = (omit, *map(_exact, kinds))
    dtypes = [np.dtype(_formats.result_kind(k)) for k in kinds]
    dtypes[0] = inputs.dtype
    single = sum((dtype == np.float32) << k for k, dtype in enumerate(dtypes))
    reals, counts = _reports(COMPARE, inputs, hows, single)
    dropped = np.asarray(counts[3] > 0, np.uint8)
    _arguments.check_flags("compare", inputs.names, dropped, nan_policy)
    return _comparison(reals, counts, tuple(dtypes), inputs.length)


def _comparison(
    reals: list[Any], counts: list[Any], dtypes: tuple[np.dtype, ...], length: int
) -> Comparison:
    count, index, n_equal, _ = counts
    errors, x_size, x_hat_size, relative, decibels, cosine, bias, worst, scale = reals
    return Comparison(
        count=count,
        rmse=_formats.rounded(errors, dtypes[0])[()],
        rms_x=_formats.rounded(x_size, dtypes[1])[()],
        rms_x_hat=_formats.rounded(x_hat_size, dtypes[2])[()],
        relative_rmse=_formats.rounded(relative, dtypes[0])[()],
        sqnr_db=decibels,
        cosine=cosine,
        bias=bias,
        max_abs_error=worst,
        max_error_index=index,
        n_equal=n_equal,
        fitted_scale=scale,
        _roots=np.stack([errors, x_size, x_hat_size]),
        _length=length,
    )


def _inputs(
    function: str, given: tuple[Any, ...], axis: Axis, where: Any, nan_policy: str,
    format: str | None, threads: int | None,
) -> Inputs:  # fmt: skip
    inputs = Inputs(
        function, given, axis, False, where, None, nan_policy, None, None, format, threads
    )
    inputs.options = {
        name: inputs.options[name] for name in ("axis", "where", "nan_policy", "format")
    }
    return inputs


def _exact(kinds: tuple[str, ...]) -> bool | None:
    return _sums.exact(kinds, np.dtype(_formats.result_kind(kinds)), False)


class Report(NamedTuple):
    """Kernels and layout of a summary."""

    blocks: str
    fold: str
    totals: str
    pairs: str  # in place of `blocks`, for complex numbers
    mean: int  # which of the real numbers is complex then
    sums: tuple[int, ...]  # the places of its sum in a state: high, low, exponent
    squares: tuple[int, ...]  # those of the sums of squares begin here
    reals: int
    counts: int
    nothing: tuple[float, ...]  # the state of no coordinates


DROPPED = 19  # place in a state of pairs: how many were left out for NaN
ZERO = (0.0, 0.0, 1.0e6)  # a sum of nothing, with an exponent that yields to any other
DESCRIBE = Report(
    "describe_blocks", "fold_moments", "describe_totals", "describe_complex", 1, (4, 5, 8), (0,),
    8, 5,
    (*ZERO, 0.0, 0.0, 0.0, 0.0, *ZERO[1:], np.inf, -np.inf, 0.0, 0.0, 0.0, -1.0, 0.0),
)  # fmt: skip
COMPARE = Report(
    "compare_blocks", "fold_matches", "compare_totals", "compare_complex", 6, (13, 14, 15),
    (0, 4, 7), 9, 4,
    (*ZERO, 0.0, *ZERO, *ZERO, *ZERO, *ZERO, -1.0, -1.0, 0.0, 0.0, 0.0),
)  # fmt: skip


def _reports(report: Report, inputs: Inputs, how: Any, single: int) -> tuple[list[Any], list[Any]]:
    """Real and whole numbers that are reported of each row, in the shape of the result."""
    rows = math.prod(inputs.rows_shape)
    reals, counts = np.empty((report.reals, rows)), np.empty((report.counts, rows), np.int64)
    found, order = list(reals), None
    if inputs.is_complex:
        found[report.mean] = np.empty(rows, np.complex128)
    if rows:
        walk = _layout.walk(inputs.shape, inputs.axes, inputs.operands())
        order = walk.plan
        if inputs.is_complex:
            states, imaginary = _complex_states(report, inputs, walk, how)
            for part in (found[report.mean].imag, found[report.mean].real):
                args = (states, single, 0, reals, counts, 0, rows)
                states[:, report.sums], imaginary = imaginary, states[:, report.sums]
                _launch.call(_launch.kernel(report.totals), args)
                part[:] = reals[report.mean]
        else:
            _fill(report, walk, how, _alone(inputs, walk), single, reals, counts, inputs.threads)

    def shaped(row: np.ndarray) -> Any:
        found = row if order is None else _layout.in_order(row, order)
        return np.ascontiguousarray(found).reshape(inputs.rows_shape)[()]

    return [shaped(r) for r in found], [shaped(c) for c in counts]


def _complex_states(
    report: Report, inputs: Inputs, walk: Walk, how: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The states of the rows, and for the imaginary parts the sum that a state has one of."""
    plan, omit = walk.plan, how[0]
    first, second, _, *around = inputs.operands()
    sides = [[first, None, second, *around], [second, None, first, *around]] if second else []
    walks = [walk, *(_layout.walk(inputs.shape, inputs.axes, s, plan.order) for s in sides)]
    hows: list[_sums.How] = [(omit, exact, None) for exact in how[1 : len(walks) + 1]]
    states, imaginary = np.empty((plan.rows, len(report.nothing))), np.empty((plan.rows, 3))
    args: tuple[Any, ...] = (
        walk.arrays, (omit if second else None, True, None), plan.g, plan.outer,
        plan.awkward | _layout.APART, plan.length,
    )  # fmt: skip
    args += (states, imaginary) if second else (bool(omit), states, imaginary)
    row_bytes = plan.length * _sums.element_bytes(walk)
    _launch.launch(report.pairs, args, plan.rows, row_bytes, inputs.threads)
    for piece in _sums.pieces(walks):
        rows = slice(piece.first_row, piece.first_row + piece.rows)
        for place, sums in zip(
            report.squares, _sums.partials(walks, hows, piece, inputs.threads), strict=True
        ):
            states[rows, place : place + 3] = sums[:, :3]
            if second and place == 0:
                states[rows, DROPPED] = sums[:, 6]
    return states, imaginary


def _alone(inputs: Inputs, walk: Walk) -> tuple[Any, ...]:
    """Where each of a pair lies, as if it stood alone: geometry, row axes, what is awkward."""
    first, second, _, *around = inputs.operands()
    found: list[Any] = []
    for one, other in ((first, second), (second, first)) if second else ():
        own = [one, None, other, *around]
        plan = _layout.walk(inputs.shape, inputs.axes, own, walk.plan.order).plan
        found += [plan.g, plan.outer, plan.awkward]
    return tuple(found)


def _fill(
    report: Report, walk: Walk, how: Any, alone: tuple[Any, ...], single: int,
    reals: np.ndarray, counts: np.ndarray, threads: int | None,
) -> None:  # fmt: skip
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
    if plan.awkward:
        room = max(min(size, STRETCH) * tile + 16 * tile, size)  # for tiles, or a block of a row
        part = -(-room * itemsize // 64) * 64
    tiles, blocks = -(-columns // tile), -(-plan.length // BLOCK)
    groups = plan.rows // columns * tiles
    step = groups if blocks == 1 else max(1, _sums.UNITS // tile)
    unit_bytes = size * _sums.element_bytes(walk) * tile

    def start(group: int) -> int:
        return group // tiles * columns + group % tiles * tile

    for group in range(0, groups, step):
        count = min(step, groups - group)
        first = start(group)
        rows = (plan.rows if group + count == groups else start(group + count)) - first
        at_once = min(blocks, max(1, _sums.UNITS // rows))
        states = np.empty((rows * at_once if blocks > 1 else 1, len(report.nothing)))
        totals = np.tile(np.array(report.nothing), (rows if blocks > 1 else 0, 1))
        for block in range(0, blocks, at_once):
            n = min(at_once, blocks - block)
            args = (
                walk.arrays, how, walk.wide, plan.g, plan.outer, plan.awkward, *alone,
                plan.length, tile, columns, part, first, block, n, single, states, reals, counts,
            )  # fmt: skip
            _launch.launch(report.blocks, args, count * n, unit_bytes, threads)
            if blocks > 1:
                _launch.call(_launch.kernel(report.fold), (states, n, totals, 0, rows))
        if blocks > 1:
            args = (totals, single, first, reals, counts, 0, rows)
            _launch.call(_launch.kernel(report.totals), args)
