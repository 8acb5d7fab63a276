"""Every number of a vector, or of a pair of vectors, at once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmsfast.reference._formats import round_to_storage
from rmsfast.reference._numbers import (
    Array,
    Scaled,
    components_of,
    difference,
    mean_of,
    root_mean_square,
)
from rmsfast.reference._problem import Axis, Problem, precision_of, prepare
from rmsfast.reference._tables import Parts, RowTable, scalars

__all__ = ["Comparison", "Description", "compare", "describe"]

Table = TypeVar("Table", bound=RowTable)


@dataclass(frozen=True, eq=False, repr=False)
class Description(RowTable):
    """What `describe` tells of each row.

    Attributes
    ----------
    count : int
        Values kept.
    rms : float
        As `rms` gives it, dtype included.
    mean : float64, or complex128 for complex numbers
    std : float64
        Of the values kept; ddof 0, for complex numbers as `numpy.std`.
    min, max, peak : float64
        Least and largest value, NaN for complex numbers; and largest absolute value.
    peak_index : int
        The first coordinate where |x| is `peak`, as float64; of the first NaN if there is one; -1
        where no value is kept.
    peak_share : float64
        peak**2 / sum(x**2), from 1 / count to 1.
    crest : float64
        peak / rms, from 1 to sqrt(count).
    n_nan, n_inf, n_zero : int
        Of the points that `where` chooses; NaN counts even if it is left out.
    """

    _concern: ClassVar[dict[str, Any]] = {"mean": np.abs, "min": np.negative}
    _index = "peak_index"
    _picture: ClassVar[str] = "describe"

    count: Any
    rms: Any
    mean: Any
    std: Any
    min: Any
    max: Any
    peak: Any
    peak_index: Any
    peak_share: Any
    crest: Any
    n_nan: Any
    n_inf: Any
    n_zero: Any

    @classmethod
    @np.errstate(all="ignore")
    def _joined(cls, parts: Parts, length: int) -> Description:
        size, mean = parts.root(parts.roots[0]), parts.mean(parts["mean"])
        spread = parts.root(parts["std"], np.abs(parts["mean"] - mean))
        peak, index = parts.extreme("peak", "peak_index")
        crest = peak / size
        return cls(
            count=parts.total,
            rms=size.astype(parts["rms"].dtype),
            mean=mean,
            std=spread,
            min=parts.least(parts["min"]),
            max=-parts.least(-parts["max"]),
            peak=peak,
            peak_index=index,
            peak_share=np.minimum(crest * crest / parts.total, 1.0),
            crest=crest,
            **{name: parts[name].sum(axis=0) for name in ("n_nan", "n_inf", "n_zero")},
            _roots=size[np.newaxis],
            _length=length,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(RowTable):
    """What `compare` tells of each row.

    Attributes
    ----------
    count : int
        Pairs kept.
    rmse, rms_x, rms_x_hat : float
        As `rmse(x, x_hat)`, `rms(x)` and `rms(x_hat)` give them, dtype included, over the pairs
        kept.
    relative_rmse : float
        rmse / rms_x; inf over a zero row, NaN for 0/0.
    sqnr_db : float64
        Signal to quantisation noise, 20 log10(rms_x / rmse); inf where the rows are equal.
    cosine : float64
        <x, x_hat> / (|x| |x_hat|), for complex numbers of the real part of the product, so that
        a rotation of phase counts; NaN where one is a zero row.
    bias : float64, or complex128 for complex numbers
        mean(x_hat - x).
    max_abs_error : float64
        Largest |x - x_hat|.
    max_error_index : int
        The first coordinate of that error, as float64; of the first NaN if there is one; -1 where
        no pair is kept.
    n_equal : int
        Pairs of equal numbers.
    fitted_scale : float64
        <x, x_hat> / <x_hat, x_hat>, of the real part: x_hat times this real number is closest
        to x.
    """

    _concern: ClassVar[dict[str, Any]] = {
        "bias": np.abs,
        "cosine": np.negative,
        "sqnr_db": np.negative,
        "n_equal": np.negative,
        "fitted_scale": lambda scale: np.abs(scale - 1.0),
    }
    _index = "max_error_index"
    _picture: ClassVar[str] = "compare"

    count: Any
    rmse: Any
    rms_x: Any
    rms_x_hat: Any
    relative_rmse: Any
    sqnr_db: Any
    cosine: Any
    bias: Any
    max_abs_error: Any
    max_error_index: Any
    n_equal: Any
    fitted_scale: Any

    @classmethod
    @np.errstate(all="ignore")
    def _joined(cls, parts: Parts, length: int) -> Comparison:
        errors, x, x_hat = (parts.root(part) for part in parts.roots)
        worst, index = parts.extreme("max_abs_error", "max_error_index")
        shares = parts.roots[1] / x, parts.roots[2] / x_hat
        # Of a zero row the cosine is not defined, its product is 0.
        products = np.where((shares[0] == 0) | (shares[1] == 0), 0.0, parts["cosine"])
        cosine = np.clip(parts.mean(products * shares[0] * shares[1]), -1.0, 1.0)
        cosine = np.where((x == 0) | (x_hat == 0), np.nan, cosine)
        relative, scale = errors / x, np.where(x == 0, 0.0, cosine) * (x / x_hat)
        return cls(
            count=parts.total,
            rmse=errors.astype(parts["rmse"].dtype),
            rms_x=x.astype(parts["rms_x"].dtype),
            rms_x_hat=x_hat.astype(parts["rms_x_hat"].dtype),
            relative_rmse=relative.astype(parts["relative_rmse"].dtype),
            sqnr_db=np.where(errors == 0, np.inf, -20.0 * np.log10(relative)),
            cosine=cosine,
            bias=parts.mean(parts["bias"]),
            max_abs_error=worst,
            max_error_index=index,
            n_equal=parts["n_equal"].sum(axis=0),
            fitted_scale=scale,
            _roots=np.stack([errors, x, x_hat]),
            _length=length,
        )


@np.errstate(all="ignore")
def describe(
    x: ArrayLike, /, *, axis: Axis = -1, where: ArrayLike | None = None,
    nan_policy: str = "propagate", format: str | None = None, threads: int | None = None,
) -> Description:  # fmt: skip
    """Count, size, mean, spread, extremes and special values of each vector.

    >>> describe([3.0, -4.0, 0.0, 0.0]).peak_index
    np.int64(1)
    """
    options = (axis, None, None, format, threads, where, None)
    problem = prepare("describe", {"x": x}, *options, nan_policy, False)
    chosen = prepare("describe", {"x": x}, *options, "propagate", False).keep
    data, keep = problem.layout.rows(problem.inputs[0].values), problem.keep
    count = np.count_nonzero(keep, axis=-1)
    kept = problem.rows(0)
    values = components_of(kept)
    # Measured from a value of the row itself, a constant row is exactly 0 throughout.
    first = np.take_along_axis(kept, keep.argmax(axis=-1)[..., None], axis=-1)
    shifted = difference(kept, np.where(keep, first, kept))
    centred = [part - mean_of(part, problem.weights).column() for part in shifted]
    deviation = root_mean_square(centred, problem.weights).values()
    mean = _complex([mean_of(part, problem.weights).values() for part in values])
    size = root_mean_square(values, problem.weights)
    missing = (keep & np.isnan(data)).any(axis=-1) | (count == 0)
    if len(values) > 1:  # complex numbers have no order
        number, least, most = data, np.full(count.shape, np.nan), np.full(count.shape, np.nan)
        sizes = _sizes(components_of(data))
        peak = _extreme(np.fmax, sizes, keep, -np.inf)
        mean = np.where(missing, complex(np.nan, np.nan), mean)
    else:
        number = data.astype(np.float64)
        least = np.where(missing, np.nan, _extreme(np.fmin, number, keep, np.inf))
        most = np.where(missing, np.nan, _extreme(np.fmax, number, keep, -np.inf))
        sizes = np.abs(number)
        peak = np.maximum(np.abs(least), np.abs(most))
    peak = np.where(missing, np.nan, peak)
    index = _first_largest(sizes, keep, count)
    crest = Scaled.of(peak) / size
    share = crest * crest / Scaled.of(count.astype(np.float64))
    roots = np.where(count == 0, np.nan, size.values())
    found = {
        "count": count,
        "rms": round_to_storage(roots, problem.storage[0]),
        "mean": np.where(least == most, least, mean),
        "std": np.where(count == 0, np.nan, deviation),
        "min": least,
        "max": most,
        "peak": peak,
        "peak_index": index,
        "peak_share": np.minimum(share.values(), 1.0),  # of complex numbers the peak is rounded
        "crest": crest.values(),
        "n_nan": np.count_nonzero(chosen & np.isnan(number), axis=-1),
        "n_inf": np.count_nonzero(chosen & np.isinf(number), axis=-1),
        "n_zero": np.count_nonzero(chosen & (number == 0), axis=-1),
    }
    return _table(Description, problem, found, [roots])


@np.errstate(all="ignore")
def compare(
    x: ArrayLike, x_hat: ArrayLike, /, *, axis: Axis = -1, where: ArrayLike | None = None,
    nan_policy: str = "propagate", format: str | None = None, threads: int | None = None,
) -> Comparison:  # fmt: skip
    """Sizes, errors and likeness of each pair of vectors.

    >>> float(compare([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 5.0]).relative_rmse)
    1.0
    """
    options = (axis, None, None, format, threads, where, None, nan_policy, False)
    problem = prepare("compare", {"x": x, "x_hat": x_hat}, *options)
    keep, weights = problem.keep, problem.weights
    count = np.count_nonzero(keep, axis=-1)
    kept = problem.rows(0), problem.rows(1)
    errors, (a, b) = difference(*kept), map(components_of, kept)
    roots = [root_mean_square(parts, weights) for parts in (errors, a, b)]
    product = mean_of(_sum([p * q for p, q in zip(a, b, strict=False)]), weights)
    relative = roots[0] / roots[1]
    cosine = product / (roots[1] * roots[2])
    scale = product / (roots[2] * roots[2])
    decibels = 20 * (np.log10(relative.mantissa) + relative.exponent * np.log10(np.longdouble(2)))
    same_bits = np.logical_and.reduce([part.mantissa == 0 for part in errors])
    equal = same_bits & keep | (kept[0] == kept[1]) & keep
    gaps = _sizes(errors)
    worst = np.where(count == 0, np.nan, np.where(keep, gaps, 0.0).max(axis=-1))
    same = roots[0].mantissa == 0
    values = [np.where(count == 0, np.nan, root.values()) for root in roots]
    kinds = [precision_of([data])[0] for data in problem.inputs]
    joint = problem.storage[0]
    rounded = (round_to_storage(v, k) for v, k in zip(values, (joint, *kinds), strict=True))
    found = {
        "count": count,
        **dict(zip(("rmse", "rms_x", "rms_x_hat"), rounded, strict=True)),
        "relative_rmse": round_to_storage(relative.values(), joint),
        "sqnr_db": np.where(count == 0, np.nan, np.where(same, np.inf, -decibels)),
        "cosine": np.clip(cosine.values(), -1.0, 1.0),
        "bias": _complex([np.negative(mean_of(part, weights).values()) for part in errors]),
        "max_abs_error": worst,
        "max_error_index": _first_largest(gaps, keep, count),
        "n_equal": np.count_nonzero(equal, axis=-1),
        "fitted_scale": scale.values(),
    }
    return _table(Comparison, problem, found, values)


def _complex(parts: list[Array]) -> Array:
    """Real numbers, or complex ones of two parts."""
    if len(parts) == 1:
        return parts[0]
    found = np.empty(parts[0].shape, np.complex128)
    found.real, found.imag = parts
    return found


def _sum(parts: list[Scaled]) -> Scaled:
    return sum(parts[1:], start=parts[0])


def _sizes(parts: list[Scaled]) -> Array:
    """|z|, NaN where a part is NaN."""
    if len(parts) == 1:
        return np.abs(parts[0].values().astype(np.float64))
    return _sum([part * part for part in parts]).root().values().astype(np.float64)


def _extreme(ufunc: np.ufunc, values: Array, keep: Array, start: float) -> Array:
    return np.asarray(ufunc.reduce(np.where(keep, values, start), axis=-1))


def _first_largest(sizes: Array, keep: Array, count: Array) -> Array:
    """Index of the first largest size that counts, or of the first NaN; -1: none counts."""
    index = np.where(keep, sizes, -1.0).argmax(axis=-1)
    return np.where(count == 0, -1, index)


def _table(
    kind: type[Table], problem: Problem, found: dict[str, Array], roots: list[Array]
) -> Table:
    """Fields of the shape of the result; all but the roots and the counts are float64."""
    shape = problem.shape
    values = {
        name: v.astype(np.float64 if v.dtype == np.longdouble else v.dtype).reshape(shape)
        for name, v in found.items()
    }
    layout = problem.layout
    stacked = np.asarray(roots, np.float64).reshape(len(roots), *shape)
    return scalars(
        kind(_roots=stacked, _length=math.prod(layout.lengths(layout.reduced)), **values)
    )
