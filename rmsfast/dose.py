"""Edits in doses of the RMS and what becomes of them: `apply_dose` and its kin, `round_to`."""

from typing import Any, NamedTuple

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _small_doses, _sums
from rmsfast._dose_report import Array, DosePrediction, DoseReport, unknown
from rmsfast._dosing import STORAGE, Dosing, Edit, Way

Axis = int | tuple[int, ...] | None
# Options of calls that _small_doses may answer.
USUAL_SCALE = "rms"
USUAL = (
    "none", -1, None, "unit", None, "float32", "cast_then_add", "nearest_even", None, 0, "ieee",
    "raise", None,
)  # fmt: skip


class DoseResult(NamedTuple):
    """Edited rows, and the report of them (None with ``report="none"``)."""

    after: Array
    report: DoseReport | None


def apply_dose(
    h: Any,
    direction: Any,
    /,
    alpha: Any,
    *,
    axis: Axis = -1,
    scale: Any = "rms",
    scale_name: str | None = None,
    direction_scale: str = "unit",
    storage: Any = None,
    edit_format: str = "float32",
    path: str = "cast_then_add",
    rounding: str = "nearest_even",
    seed: int | None = None,
    first_row: int = 0,
    overflow: str = "ieee",
    zero: str = "raise",
    rows: Any = None,
    where: Any = None,
    out: np.ndarray | None = None,
    format: Any = None,
    report: str = "rows",
    threads: int | None = None,
) -> DoseResult:
    """Edit rows by alpha * RMS(h) along a direction, and report what was stored.

    Parameters
    ----------
    h : array_like, shape (..., d), floating dtype
        Rows, the clean state once rounded to `storage`. Modified only with ``out=h``.
    direction : array_like, shape (d,) or one that goes with `h`
        Finite and nonzero; scaled to unit RMS in float64. With ``direction_scale="as_is"`` its
        RMS must be 1 within 1e-6, or the spacing of its own format.
    alpha : array_like, one number or one a row
        Dose; finite, of either sign. Rows with 0 keep their bits.
    axis, format, threads
        As for `rms`. With axes other than the last, `direction` has the shape of these axes.
    scale : "rms" or array_like, one number or one a row
        Size of an edit of alpha 1: RMS of the clean row, or numbers that `scale_name` describes.
    storage : {None, "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}
        Format of the result, by default that of `h`.
    edit_format : "float64" or one of the above
        Format in which the edit is made, to nearest even.
    path : {"cast_then_add", "add_then_cast"}
        Round the edit to `storage` before it is added, or add it as it is made. The sum is
        rounded once in either case.
    rounding : {"nearest_even", "toward_zero", "stochastic"}
        How clean state, edit and sum are rounded to `storage`.
    seed : int
        Of stochastic rounding, which depends on it and on row and coordinate alone.
    first_row : int, default 0
        Number of the first row of `h` in C order, where `h` is a block of a larger array: the
        rows of a block then get the bits that they get in the whole.
    overflow : {"ieee", "saturate", "raise"}
        See `round_to`. With "raise" a dry pass comes first.
    zero : {"raise", "keep"}
        Rows whose clean state is 0 are refused with ``scale="rms"``, or kept as they are.
    rows, where : array_like of bool
        The rows to edit, broadcastable to the shape of ``rms(h)``; the coordinates to edit,
        broadcastable to `h`. RMS, direction and report go by these coordinates alone.
    out : ndarray of the shape of `h` and the dtype of the result
        `h` itself, or apart from it.
    report : {"rows", "none"}

    Returns
    -------
    DoseResult
        ``after`` in the format of `storage` (codes for codes given with `format`, and
        records for records of codes, of this format), and the ``report``, a `DoseReport` or None.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        For arguments that are not as above, before anything is written; for a zero row, a sum
        beyond `storage` under "raise", or float64 rows without a `storage`.

    Notes
    -----
    ``after = round(c + round(e))`` with ``e = float64(alpha * RMS(c) / RMS(direction)) *
    direction``, all in float64, made in `edit_format`. Where the sum is inexact in float64 it is
    made odd, so that it is rounded once (Boldo & Melquiond 2008, doi:10.1109/TC.2007.70819).
    The bits of the result depend on nothing else. Reports are sums of float64, of float32 for
    blocks of 1024 coordinates of moderate bfloat16 rows: within 1e-5 of themselves, angles
    within 1e-3 degrees.

    Examples
    --------
    >>> after, report = apply_dose([[3.0, 4.0, 0.0, 0.0]], [1, 1, -1, -1], 0.1, storage="float16")
    >>> after
    array([[ 3.25,  4.25, -0.25, -0.25]], dtype=float16)
    >>> report.rms_requested, report.rms_realised
    (array([0.25]), array([0.25]))
    """
    function = "apply_dose"
    _arguments.check_choice(function, "report", report, ("rows", "none"))
    options = (
        report, axis, scale_name, direction_scale, storage, edit_format, path, rounding, seed,
        first_row, overflow, zero, threads,
    )  # fmt: skip
    ints = type(axis) is type(first_row) is int
    if scale is USUAL_SCALE and rows is where is None and ints and options == USUAL:
        after = _small_doses.dosed(h, direction, alpha, format, out)
        if after is not None:
            return DoseResult(after, None)
    dosing = Dosing(function, ("h",), (h,), axis, rows, where, format, threads)
    edit = Edit(
        dosing, direction, direction_scale, scale, scale_name, storage, edit_format, path, rounding,
        seed, overflow, zero, first_row,
    )  # fmt: skip
    alphas = _arguments.finite_numbers(function, "alpha", alpha, dosing.rows_shape)
    alphas = dosing.masked(alphas)[:, np.newaxis]
    given, dtype = dosing.sources[0].array, edit.dtype(format)
    if out is not None:
        _arguments.check_result(function, out, given, dtype)
        dosing.keep_apart(out)
    edit.refuse(alphas)
    after = _layout.lines(given.shape, dtype) if out is None else out
    result = after.reshape(dosing.shape)
    found = edit.run(alphas, result, report == "rows", _sums.streams(out, given))
    if report == "none":
        return DoseResult(after, None)
    found = {name: v[..., 0] for name, v in found.items()}
    where_from = ("in memory, after the edit", "h in the storage format, before the edit")
    return DoseResult(after, DoseReport(edit.header(*where_from), **found))


def predict_dose(
    h: Any,
    direction: Any,
    /,
    alphas: Any,
    *,
    axis: Axis = -1,
    scale: Any = "rms",
    scale_name: str | None = None,
    direction_scale: str = "unit",
    storage: Any = None,
    edit_format: str = "float32",
    path: str = "cast_then_add",
    rounding: str = "nearest_even",
    seed: int | None = None,
    first_row: int = 0,
    overflow: str = "ieee",
    zero: str = "raise",
    rows: Any = None,
    where: Any = None,
    format: Any = None,
    threads: int | None = None,
) -> DosePrediction:
    """The reports that `apply_dose` would give for many doses; nothing is written.

    Parameters
    ----------
    h, direction
        As for `apply_dose`, and so are all options.
    alphas : array_like of one dimension, or a number
        Doses, all of them tried on every row.

    Returns
    -------
    DosePrediction
        The fields of `DoseReport` with one axis more, the last: of the length of `alphas`.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `apply_dose`; with ``overflow="raise"`` for a sum beyond `storage` at any dose.

    Notes
    -----
    All doses are tried on a row while it is in cache. The numbers are those of the report of
    `apply_dose`, to the bit.

    Examples
    --------
    >>> h = np.random.default_rng(0).normal(size=4096).astype("float16")
    >>> u = np.random.default_rng(1).normal(size=4096)
    >>> predict_dose(h, u, [0.03, 0.003, 0.0003]).relative_rmse_realised.round(3)
    array([0.007, 0.068, 0.563])
    """
    function = "predict_dose"
    dosing = Dosing(function, ("h",), (h,), axis, rows, where, format, threads)
    edit = Edit(
        dosing, direction, direction_scale, scale, scale_name, storage, edit_format, path, rounding,
        seed, overflow, zero, first_row,
    )  # fmt: skip
    tried = _arguments.doses(function, "alphas", alphas)
    each = np.ascontiguousarray(tried.reshape(1, -1))
    if dosing.rows is not None:
        each = dosing.masked(np.ones(dosing.rows_shape))[:, np.newaxis] * each
    found = edit.run(each)
    edit.check(found)
    if not tried.ndim:
        found = {name: values[..., 0] for name, values in found.items()}
    nowhere = ("nowhere: predicted", "h in the storage format")
    return DosePrediction(edit.header(*nowhere), **found)


def measure_dose(
    clean: Any,
    after: Any,
    /,
    *,
    direction: Any = None,
    alpha: Any = None,
    requested: Any = None,
    measured_at: str,
    clean_source: str,
    axis: Axis = -1,
    scale: Any = "rms",
    scale_name: str | None = None,
    direction_scale: str = "unit",
    rows: Any = None,
    where: Any = None,
    format: Any = None,
    threads: int | None = None,
) -> DoseReport:
    """Report the dose that rows received, from states captured before and after an edit.

    Parameters
    ----------
    clean, after : array_like, shape (..., d), floating dtypes
        The states. What is asked of them is compared with their exact difference.
    direction, alpha : array_like
        As for `apply_dose`; a direction without alpha gives `alpha_projected` alone.
    requested : array_like
        The edit itself, in place of both: its unit vector is the direction, and its RMS over
        `scale` the dose.
    measured_at : str
        Where `after` was captured, for example "output of block 17, before the norm".
    clean_source : str
        Where `clean` comes from, for example "same forward pass, cloned before the edit".
    axis, scale, scale_name, direction_scale, rows, where, format, threads
        As for `apply_dose`. Rows left out by `rows` are reported as edited by 0.

    Returns
    -------
    DoseReport
        The rounded request is that of the format of `after`, to nearest even. `n_overflow`
        counts what was finite and is not any more.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `apply_dose`; for alpha without a direction, or `requested` beside one of them.

    Examples
    --------
    >>> clean = np.full((1, 4), 2.0**20, np.float32)
    >>> report = measure_dose(clean, clean, direction=np.ones(4), alpha=2032 / 2**20,
    ...                       measured_at="in memory", clean_source="the same array")
    >>> report.rms_requested, report.rms_realised
    (array([2032.]), array([0.]))
    """
    function = "measure_dose"
    for name, given in (("measured_at", measured_at), ("clean_source", clean_source)):
        _arguments.check_sentence(function, name, given)
    if alpha is not None and direction is None:
        raise _arguments.fail(function, "direction", "be given where alpha is", None)
    if requested is not None and direction is not None:
        raise _arguments.fail(function, "requested", "be None where direction is given", "both")
    names, states = ("clean", "after"), (clean, after)
    dosing = Dosing(function, names, states, axis, rows, where, format, threads)
    dosing.scale_by(scale, scale_name)
    alphas = np.zeros(dosing.rows_shape)
    if requested is not None:
        dosing.along_request(requested)
        alphas = np.ones(dosing.rows_shape)
    elif direction is None:
        dosing.along_nothing()
    else:
        dosing.along(direction, direction_scale)
        if alpha is not None:
            alphas = _arguments.finite_numbers(function, "alpha", alpha, dosing.rows_shape)
    alphas = dosing.masked(alphas)
    way = Way(function, "nearest_even", None, "ieee")
    storage = dosing.sources[1].kind
    found = dosing.run(storage, alphas[:, np.newaxis], (*way.codes, 0, 0, 0))
    found = {name: v[..., 0] for name, v in found.items()}
    if alpha is None and requested is None:
        found |= unknown(found)
    header = dosing.header(storage, measured_at, clean_source)
    return DoseReport(header, **found)


def dose_floor(
    h: Any,
    /,
    *,
    storage: Any = "bfloat16",
    tolerance: float = 0.1,
    axis: Axis = -1,
    threads: int | None = None,
) -> Any:
    """Smallest dose that a storage format is expected to give within a tolerance.

    Expected over edits that are spread over the coordinates like noise, as no direction is known
    here. One with much of its energy on massive coordinates, where the format has wide spacings,
    needs more: `predict_dose` tells of a given direction.

    Parameters
    ----------
    h : array_like, shape (..., d), floating dtype
        Clean rows, rounded to `storage`.
    storage : {"bfloat16", "float32", "float16", "float8_e4m3fn", "float8_e5m2"}
    tolerance : float
        Largest `relative_rmse_realised` that will do; between 0 and 1.
    axis, threads
        As for `rms`.

    Returns
    -------
    float64 or ndarray of float64, shape of ``rms(h)``
        |alpha| of each row, in units of its RMS; inf if rounding the edit alone exceeds the
        tolerance, NaN for rows of zeros and rows that are not finite.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `apply_dose`, and for a tolerance out of range.

    Notes
    -----
    The edit of a coordinate is taken to be normal with standard deviation s = alpha * RMS(h),
    and the stored sum to be the nearest multiple of D, the spacing of the format at the clean
    coordinate. Then the error squared is on average ``D**2 / 12 + D**2 / pi**2 * sum over k >= 1
    of (-1)**k / k**2 * exp(-2 * (pi * k * s / D)**2)`` (Widrow & Kollar, Quantization Noise,
    2008, ch. 4): all of s**2 where s is far below D, D**2 / 12 where it is far above. Its mean
    over the row, over s**2, makes tolerance**2 together with (0.29 * 2**-fraction bits)**2: the
    rounding of the edit itself, and the wider spacing where the edit makes a coordinate larger.
    Simulated doses of normal rows along normal directions are within 5 % of the tolerance, 8 % for
    one of 0.05 in float8; along one direction, and with massive coordinates, they may be anywhere.

    Examples
    --------
    >>> h, u = np.random.default_rng(0).normal(size=(2, 4096))
    >>> dose_floor(h).round(4), dose_floor(h, storage="float16").round(4)
    (np.float64(0.0167), np.float64(0.0021))
    >>> h[0], u[0] = 400, 10
    >>> floor = dose_floor(h)
    >>> predict_dose(h, u, floor, storage="bfloat16").relative_rmse_realised.round(2)
    np.float64(0.18)
    """
    function = "dose_floor"
    storage = _formats.named(storage)
    _arguments.check_choice(function, "storage", storage, STORAGE)
    tolerance = _arguments.number(function, "tolerance", tolerance)
    if not 0 < tolerance < 1:
        raise _arguments.fail(function, "tolerance", "be between 0 and 1", tolerance)
    dosing = Dosing(function, ("h",), (h,), axis, None, None, None, threads)
    floors = dosing.floors(storage, tolerance).reshape(dosing.rows_shape)
    return floors if dosing.rows_shape else floors[()]


def round_to(
    x: Any,
    /,
    format: Any,
    *,
    rounding: str = "nearest_even",
    seed: int | None = None,
    overflow: str = "ieee",
    threads: int | None = None,
) -> Array:
    """Round to a storage format, once.

    Parameters
    ----------
    x : array_like, real
        Numbers of any dtype, in any layout; read once, never modified.
    format : {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"} or such a dtype
        Format of the result.
    rounding : {"nearest_even", "toward_zero", "stochastic"}
        Stochastic: away from zero with a probability of the distance to the number below, in
        units of the spacing there, to 32 bits.
    seed : int in [0, 2**64)
        Of stochastic rounding: element i of `x` in C order always gets the same random number.
    overflow : {"ieee", "saturate", "raise"}
        What is beyond the largest number becomes infinity, or NaN in float8_e4m3fn, which has
        none (toward zero: the largest number); or it, and infinity, become the largest number;
        or it is refused. Rounding comes first: 65519 is 65504 in float16.
    threads : int or None
        As for `rms`.

    Returns
    -------
    ndarray of the shape of `x`
        bfloat16 and float8 as dtypes of the package ml_dtypes.

    Raises
    ------
    TypeError, ValueError
        For complex `x`, an unknown option, stochastic rounding without a seed, and overflow
        under "raise".
    ImportError
        For bfloat16 and float8 without the package ml_dtypes.

    Notes
    -----
    float64 and integers of 64 bits are rounded directly, never by way of float32. NaN stays NaN,
    with its sign; zeros keep theirs. To nearest, float32 gives the bits of ml_dtypes. Random
    numbers are words of Philox 4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405).

    Examples
    --------
    >>> round_to([1 + 2**-8, 1 + 2**-8 + 2**-40], "bfloat16").astype(float)
    array([1.       , 1.0078125])
    """
    function = "round_to"
    source = _arguments.real(function, "x", x)
    format = _formats.named(format)
    _arguments.check_choice(function, "format", format, STORAGE)
    way = Way(function, rounding, seed, overflow)
    _arguments.check_threads(function, threads)
    dtype = _formats.ml_dtype(function, format)
    if _launch.kernels() is None:
        from rmsfast import reference

        return reference.round_to(x, format, rounding=rounding, seed=seed, overflow=overflow)
    result = np.empty(source.array.shape, dtype)
    if result.size == 0:
        return result
    array, rounded = (a if a.ndim else a.reshape(1) for a in (source.array, result))
    kind = source.kind
    if array.nbytes <= _formats.SMALL_BYTES and kind not in ("int64", "uint64"):
        (array,), (kind,) = _formats.cast([array], (kind,), ("float64",))
    operands: list[_layout.Operand] = [(array, kind), None, None, None, None]
    order = tuple(range(array.ndim)) if rounding == "stochastic" else None
    walk = _layout.walk(array.shape, (), [*operands, (rounded, format)], order)
    plan = walk.plan
    g = plan.g if plan.outer else np.array([[1], *[[0]] * 6], np.int64)
    length = int(g[0, -1])
    step = min(length, 1 << 14)
    units = array.size // length * -(-length // step)
    overflows = np.zeros(units, np.int64)
    args = (walk.arrays[:5], walk.arrays[5], g, plan.ragged, step, way.codes, overflows)
    unit_bytes = step * (array.itemsize + result.itemsize)
    _launch.launch("round_elements", args, units, unit_bytes, threads)
    if overflow == "raise" and overflows.any():
        raise _arguments.overflown(function, "x", overflows.sum(), format)
    return result
