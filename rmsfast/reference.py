"""The definitions in plain NumPy, written to be read: clarity first, temporaries allowed.

These functions say what the compiled ones compute, and answer where Numba cannot be imported.
Every number is held as mantissa times power of two (`_Scaled`), so no square, product or quotient
can leave the range of the format; only the result is rounded to a storage format. Sums run in
`numpy.longdouble`: where it is no wider than float64, last digits differ, the range does not.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]
Axis = int | Shape | None
Storage = tuple[str, np.dtype[Any]]  # name of a format, and the dtype that holds it

__all__ = ["relative_rmse", "rms", "rms_norm", "rmse", "scale_to_rms", "unit_rms"]


# Numbers with an unlimited exponent -------------------------------------------------------------

_LOWEST = np.intc(-(10**7))  # the exponent of 0, inf and NaN: below any other, far from wrapping


@dataclass(frozen=True, slots=True)
class _Scaled:
    """An array of numbers, mantissa * 2**exponent."""

    mantissa: Array
    exponent: Array

    @classmethod
    def of(cls, values: ArrayLike, exponent: ArrayLike = 0) -> _Scaled:
        mantissa, shift = np.frexp(np.asarray(values))
        special = (mantissa == 0) | ~np.isfinite(mantissa)
        exponent = np.where(special, _LOWEST, np.add(shift, exponent, dtype=np.intc))
        return cls(np.asarray(mantissa, np.longdouble), exponent)

    def combine(self, ufunc: np.ufunc, other: _Scaled) -> _Scaled:
        top = np.maximum(self.exponent, other.exponent)
        pair = (np.ldexp(number.mantissa, number.exponent - top) for number in (self, other))
        return _Scaled.of(ufunc(*pair), top)

    def reduce(self, ufunc: np.ufunc) -> _Scaled:
        """Reduce the coordinates of each row."""
        top = self.exponent.max(axis=-1, keepdims=True)
        aligned = np.ldexp(self.mantissa, self.exponent - top)
        return _Scaled.of(ufunc.reduce(aligned, axis=-1), top[..., 0])

    def __add__(self, other: _Scaled) -> _Scaled:
        return self.combine(np.add, other)

    def __sub__(self, other: _Scaled) -> _Scaled:
        return self.combine(np.subtract, other)

    def __mul__(self, other: _Scaled) -> _Scaled:
        return _Scaled(self.mantissa * other.mantissa, self.exponent + other.exponent)

    def __truediv__(self, other: _Scaled) -> _Scaled:
        return _Scaled.of(self.mantissa / other.mantissa, self.exponent - other.exponent)

    def root(self) -> _Scaled:
        odd = self.exponent & 1
        return _Scaled.of(np.sqrt(np.ldexp(self.mantissa, odd)), (self.exponent - odd) // 2)

    def column(self) -> _Scaled:
        """One number per row, shaped to meet the coordinates of that row."""
        return _Scaled(self.mantissa[..., None], self.exponent[..., None])

    def values(self) -> Array:
        return np.asarray(np.ldexp(self.mantissa, self.exponent))


def _high_and_low(values: Array) -> tuple[Array, Array]:
    """Two float64 per value, their sum exact: a 64-bit integer does not fit into one."""
    high = values.astype(np.float64)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return high, np.zeros(())
    return high, ((values >> 32) * 2.0**32 - high) + (values & 0xFFFFFFFF)


def _difference(x: Array, y: Array) -> list[_Scaled]:
    """Subtract y from x: the real part, and the imaginary part where there is one."""
    components = []
    for part in ("real", "imag") if "c" in (x.dtype.kind, y.dtype.kind) else ("real",):
        (x_high, x_low), (y_high, y_low) = (_high_and_low(getattr(a, part)) for a in (x, y))
        # Quartered where it could overflow; there alone, as it costs tiny values their last bits.
        huge = np.maximum(np.abs(x_high), np.abs(y_high)) > 2.0**1000
        scale = np.where(huge, np.longdouble(0.25), np.longdouble(1))
        difference = (x_high * scale - y_high * scale) + (x_low - y_low) * scale
        components.append(_Scaled.of(difference, np.where(huge, np.intc(2), np.intc(0))))
    return components


def _components(x: Array) -> list[_Scaled]:
    return _difference(x, np.zeros(()))


def _square(components: list[_Scaled]) -> _Scaled:
    """|z|^2 of each coordinate."""
    first, *rest = components
    return sum((part * part for part in rest), start=first * first)


def _mean(values: _Scaled, weights: _Scaled) -> _Scaled:
    """sum(w v) / sum(w) of each row."""
    return (weights * values).reduce(np.add) / weights.reduce(np.add)


def _root_mean_square(components: list[_Scaled], weights: _Scaled) -> _Scaled:
    return _mean(_square(components), weights).root()


# Storage formats --------------------------------------------------------------------------------


class _Format(NamedTuple):
    codes: np.dtype[Any]
    bias: int
    fraction_bits: int
    overflow: int  # code of what is too large: infinity, or NaN where there is no infinity
    nan: int


_FORMATS = {
    "float16": _Format(np.dtype(np.uint16), 15, 10, 0x7C00, 0x7E00),
    "bfloat16": _Format(np.dtype(np.uint16), 127, 7, 0x7F80, 0x7FC0),
    "float8_e4m3fn": _Format(np.dtype(np.uint8), 7, 3, 0x7F, 0x7F),
    "float8_e5m2": _Format(np.dtype(np.uint8), 15, 2, 0x7C, 0x7E),
}
_FLOATS = ("float64", "float32", *_FORMATS)
_COMPLEX = ("complex128", "complex64")


def _decode(codes: Array, format: str) -> Array:
    f = _FORMATS[format]
    sign_bit = 8 * f.codes.itemsize - 1
    magnitude = (codes & ((1 << sign_bit) - 1)).astype(np.intc)
    exponent, fraction = magnitude >> f.fraction_bits, magnitude & ((1 << f.fraction_bits) - 1)
    significand = fraction + (np.minimum(exponent, 1) << f.fraction_bits)
    power = np.maximum(exponent, 1) - f.bias - f.fraction_bits
    values = np.ldexp(significand.astype(np.float64), power)
    values = np.where(magnitude == f.overflow, np.inf, values)
    values = np.where((magnitude > f.overflow) | (magnitude == f.nan), np.nan, values)
    return np.asarray(np.copysign(values, 1.0 - 2.0 * (codes >> sign_bit)))


def _encode(values: Array, format: str) -> Array:
    """Codes of float64 values, rounded once to nearest, ties to even."""
    f = _FORMATS[format]
    size = np.where(np.isfinite(values), np.abs(values), 0.0)
    # Binade 0 holds the subnormals too. What rounds up to the next binade carries into its code.
    binade = np.frexp(np.maximum(size, 2.0 ** (1 - f.bias)))[1] - 2 + f.bias
    steps = np.rint(np.ldexp(size, f.fraction_bits - 1 + f.bias - binade)).astype(np.intc)
    magnitude = np.minimum(steps + (binade << f.fraction_bits), f.overflow)
    magnitude = np.where(np.isinf(values), f.overflow, magnitude)
    magnitude = np.where(np.isnan(values), f.nan, magnitude)
    sign = np.signbit(values).astype(f.codes) << (8 * f.codes.itemsize - 1)
    return np.asarray(magnitude.astype(f.codes) | sign)


def _round(values: Array, format: str) -> Array:
    """Round real values to a format; to a narrow one as codes."""
    if format in _FORMATS:
        return _encode(values.astype(np.float64), format)
    return np.asarray(values, format)


# Arguments --------------------------------------------------------------------------------------


def _choice(function: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{function}: {name} must be one of {allowed}, got {value!r}")


def _refuse(function: str, requirement: str, bad: Array) -> None:
    """Raise where anything is bad, with the count and the first index."""
    if bad.any():
        count, first = np.count_nonzero(bad), np.unravel_index(np.argmax(bad), bad.shape)
        index = tuple(map(int, first))
        raise ValueError(f"{function}: {requirement}, got {count}, the first at index {index}")


class _Input(NamedTuple):
    stored: Array
    format: str
    values: Array  # booleans and integers as they are, all else as float64 or complex128
    masked: Array


def _read(function: str, name: str, x: ArrayLike, format: str | None = None) -> _Input:
    try:
        stored = np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{function}: {name} must be rectangular, got a ragged list") from None
    dtype, own = stored.dtype, stored.dtype.name
    if format is not None:
        codes = _FORMATS[format].codes
        readable = (codes, codes.newbyteorder("S"), np.dtype((np.void, codes.itemsize)))
        own = format if dtype in readable else own
    if own in _FORMATS and dtype.type is not np.float16:
        values = _decode(stored if dtype.kind == "u" else stored.view(_FORMATS[own].codes), own)
    elif dtype.kind in "biu":
        values = stored.astype(own, copy=False)
    elif own in _FLOATS:
        values = stored.astype(np.float64, copy=False)
    elif own in _COMPLEX:
        values = stored.astype(np.complex128, copy=False)
    else:
        raise TypeError(
            f"{function}: {name} must have a boolean, integer, real or complex dtype of at most "
            "64 bits a number (convert it with astype, or name the format='bfloat16' that codes "
            f"are in), got dtype {own}"
        )
    masked = np.ma.getmaskarray(x) if isinstance(x, np.ma.MaskedArray) else np.zeros((), bool)
    return _Input(stored, own, values, masked)


def _broadcast(function: str, name: str, value: ArrayLike, shape: Shape) -> Array:
    """Real values of an argument other than the data, in the given shape."""
    values = _read(function, name, value).values
    if values.dtype.kind == "c":
        raise TypeError(f"{function}: {name} must be real, got dtype {values.dtype}")
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ValueError(
            f"{function}: {name} must be broadcastable to shape {shape}, got shape {values.shape}"
        ) from None


class _Layout(NamedTuple):
    """Which axes are reduced: a row is one vector, its coordinates in C order come last."""

    shape: Shape
    reduced: list[int]
    kept: list[int]

    def lengths(self, axes: list[int]) -> Shape:
        return tuple(self.shape[axis] for axis in axes)

    def rows(self, array: Array) -> Array:
        moved = np.broadcast_to(array, self.shape).transpose(*self.kept, *self.reduced)
        # Where there is no row the length of one is free, and 1 spares every special case.
        length = max(1, math.prod(self.lengths(self.reduced)))
        return moved.reshape(*self.lengths(self.kept), length)

    def restore(self, rows: Array) -> Array:
        order = [*self.kept, *self.reduced]
        return rows.reshape(self.lengths(order)).transpose(np.argsort(order))


def _layout(function: str, axis: Axis, shapes: list[Shape]) -> _Layout:
    """Normalise `axis` and pair the shapes; refuse vectors without coordinates."""
    ndim = max(1, *map(len, shapes))
    named = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    try:
        reduced = sorted({operator.index(a) % ndim for a in named})
    except TypeError:
        raise TypeError(
            f"{function}: axis must be an int, a tuple of ints or None, got {axis!r}"
        ) from None
    if len(reduced) < len(named) or not all(-ndim <= a < ndim for a in named):
        raise np.exceptions.AxisError(
            f"{function}: axis must name different axes out of {ndim}, got {axis}"
        )
    paired = shapes[:1] if shapes[-1] == () else shapes  # a lone number goes with everything
    padded = [(1,) * (ndim - len(shape)) + shape for shape in paired]
    for a, lengths in enumerate(map(set, zip(*padded, strict=True))):
        if len(lengths) > 1 and (a in reduced or len(lengths - {1}) > 1):
            raise ValueError(
                f"{function}: x_hat must have the lengths of x along the reduced axes, and those "
                f"or 1 along the others, got shapes {shapes[0]} and {shapes[1]}"
            )
    shape = np.broadcast_shapes(*paired)
    kept = [a for a in range(len(shape)) if a not in reduced]
    layout = _Layout(shape, reduced if shape else [], kept)
    if 0 in layout.lengths(layout.reduced) and 0 not in layout.lengths(kept):
        raise ValueError(f"{function}: x must have vectors of length >= 1, got shape {shape}")
    return layout


def _dtype(function: str, dtype: DTypeLike, allowed: tuple[str, ...]) -> Storage:
    """Name and dtype of a requested result format."""
    try:
        name = dtype if isinstance(dtype, str) and dtype in _FORMATS else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in allowed:
        raise TypeError(f"{function}: dtype must be one of {', '.join(allowed)}, got {name}")
    if name not in _FORMATS or name == "float16":
        return name, np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            f"{function}: dtype must be one NumPy has (pip install ml_dtypes), got {name}"
        ) from None
    return name, np.dtype(getattr(ml_dtypes, name))


def _precision(inputs: list[_Input]) -> Storage:
    """Storage of a reduction of these inputs."""
    wide = any(x.values.dtype.kind in "biu" or x.stored.dtype.char in "dD" for x in inputs)
    name = "float64" if wide else "float32"
    return name, np.dtype(name)


def _check_out(function: str, out: Any, shape: Shape, dtype: np.dtype[Any], x: Array) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{function}: out must be an ndarray, got {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"{function}: out must have shape {shape} and dtype {dtype}, got shape {out.shape} "
            f"and dtype {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError(f"{function}: out must be writeable, got a read-only array")
    same = (out.ctypes.data, out.shape, out.strides) == (x.ctypes.data, x.shape, x.strides)
    if not same and np.shares_memory(out, x):
        raise ValueError(f"{function}: out must be an input or apart from it, got partial overlap")


class _Problem(NamedTuple):
    """A call whose arguments are checked: what is reduced, and where the result goes."""

    function: str
    inputs: list[_Input]
    layout: _Layout
    keep: Array  # rows: which points count
    weights: _Scaled  # rows: how much they count, 0 where they do not
    storage: Storage
    shape: Shape
    out: Any

    def rows(self, index: int) -> Array:
        """Rows of an input, 0 at the points that do not count."""
        values = self.layout.rows(self.inputs[index].values)
        return np.where(self.keep, values, values.dtype.type(0))

    def zeros(self, size: _Scaled, zero: str, requirement: str) -> Array:
        """Rows of size 0, which zero="raise" refuses; a row without points has no size."""
        found = np.asarray((size.mantissa == 0) & self.keep.any(axis=-1))
        if zero == "raise":
            _refuse(self.function, requirement, found)
        return found

    def store(self, components: list[Array]) -> Any:
        """Round once; no dimension left gives a NumPy scalar."""
        format, dtype = self.storage
        if dtype.kind == "c":
            result = np.empty(components[0].shape, dtype)
            result.real, result.imag = components
        else:
            result = _round(components[0], format).view(dtype)
        if self.out is None:
            return result.reshape(self.shape)[()]
        np.asarray(self.out)[...] = result.reshape(self.shape)
        return self.out


def _points(
    function: str, inputs: dict[str, _Input], shape: Shape, where: Any, weights: Any, policy: str
) -> tuple[Array, Array]:
    """Tell which points count, and how much."""
    keep = np.ones(shape, bool)
    if where is not None:
        if (dtype := np.asarray(where).dtype).kind != "b":
            raise TypeError(f"{function}: where must be boolean, got dtype {dtype}")
        keep &= _broadcast(function, "where", where, shape)
    for data in inputs.values():
        keep &= ~data.masked
    weight = np.ones(shape)
    if weights is not None:
        weight = _broadcast(function, "weights", weights, shape).astype(np.float64)
        keep &= ~np.ma.getmask(weights)
        if policy == "omit":
            keep &= ~np.isnan(weight)
        bad = keep & ~((weight >= 0) & np.isfinite(weight))
        _refuse(function, "weights must have no negative or non-finite value", bad)
        keep &= weight > 0
    for name, data in inputs.items():
        missing = np.isnan(data.values)
        if policy == "omit":
            keep &= ~missing
        elif policy == "raise":
            _refuse(function, f"{name} must have no NaN", keep & missing)
    return keep, np.where(keep, weight, 0.0)


def _prepare(
    function: str, arrays: dict[str, ArrayLike], axis: Axis, dtype: DTypeLike | None, out: Any,
    format: str | None, threads: int | None, where: Any = None, weights: Any = None,
    nan_policy: str = "propagate", keepdims: bool | None = None,
) -> _Problem:  # fmt: skip
    """Check the arguments of a reduction or, where keepdims is None, of a scaling."""
    _choice(function, "nan_policy", nan_policy, ("propagate", "omit", "raise"))
    if threads is not None and not (isinstance(threads, int | np.integer) and threads >= 1):
        raise ValueError(f"{function}: threads must be None or an int >= 1, got {threads!r}")
    if format is not None:
        _choice(function, "format", format, tuple(_FORMATS))
    named = {name: _read(function, name, x, format) for name, x in arrays.items()}
    x, *_ = inputs = list(named.values())
    if format is not None and all(data.format != format for data in inputs):
        raise TypeError(
            f"{function}: x must hold {_FORMATS[format].codes} or void codes of {format!r}, "
            f"got dtype {x.stored.dtype}"
        )
    layout = _layout(function, axis, [data.stored.shape for data in inputs])
    shape, allowed = layout.shape, _FLOATS
    if keepdims is not None:
        # A Python number has no precision of its own: it goes by that of x.
        python = (bool, int, float, complex)
        typed = [data for data, given in zip(inputs, arrays.values(), strict=True)
                 if type(given) not in python]  # fmt: skip
        storage = _precision(typed or [x])
        lengths = (1 if a in layout.reduced else n for a, n in enumerate(shape))
        shape = tuple(lengths) if keepdims else layout.lengths(layout.kept)
    elif x.values.dtype.kind in "biu":
        storage = "float64", np.dtype(np.float64)
    else:
        storage = x.format, x.stored.dtype.newbyteorder("=")
        allowed = _COMPLEX if x.format in _COMPLEX else _FLOATS
    if dtype is not None:
        storage = _dtype(function, dtype, allowed)
    if out is not None:
        for data in inputs:
            _check_out(function, out, shape, storage[1], data.stored)
    keep, weight = _points(function, named, layout.shape, where, weights, nan_policy)
    rows = layout.rows(keep), _Scaled.of(layout.rows(weight))
    return _Problem(function, inputs, layout, *rows, storage, shape, out)


# The definitions --------------------------------------------------------------------------------


@np.errstate(all="ignore")
def rms(
    x: ArrayLike, /, *, axis: Axis = -1, keepdims: bool = False, where: ArrayLike | None = None,
    weights: ArrayLike | None = None, nan_policy: str = "propagate",
    dtype: DTypeLike | None = None, out: Array | None = None, format: str | None = None,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """Root mean square, sqrt(sum(w |x|^2) / sum(w)), with all w = 1 unless given.

    >>> float(rms([3.0, 4.0, 0.0, 0.0]))
    2.5
    """
    options = (axis, dtype, out, format, threads, where, weights, nan_policy, bool(keepdims))
    problem = _prepare("rms", {"x": x}, *options)
    size = _root_mean_square(_components(problem.rows(0)), problem.weights)
    return problem.store([size.values()])


@np.errstate(all="ignore")
def rmse(
    x: ArrayLike, x_hat: ArrayLike, /, *, axis: Axis = -1, keepdims: bool = False,
    where: ArrayLike | None = None, weights: ArrayLike | None = None,
    nan_policy: str = "propagate", dtype: DTypeLike | None = None, out: Array | None = None,
    format: str | None = None, threads: int | None = None,
) -> Any:  # fmt: skip
    """Root mean square error, RMS(x - x_hat).

    >>> float(rmse([4.0, 25.0, 0.75, 11.0], [3.0, 21.0, -1.25, 13.0]))
    2.5
    """
    options = (axis, dtype, out, format, threads, where, weights, nan_policy, bool(keepdims))
    problem = _prepare("rmse", {"x": x, "x_hat": x_hat}, *options)
    error = _root_mean_square(_difference(problem.rows(0), problem.rows(1)), problem.weights)
    return problem.store([error.values()])


@np.errstate(all="ignore")
def relative_rmse(
    x: ArrayLike, x_hat: ArrayLike, /, *, reference: str | ArrayLike, zero: str = "raise",
    axis: Axis = -1, keepdims: bool = False, where: ArrayLike | None = None,
    weights: ArrayLike | None = None, nan_policy: str = "propagate",
    dtype: DTypeLike | None = None, out: Array | None = None, format: str | None = None,
    threads: int | None = None,
) -> Any:  # fmt: skip
    """Relative error, RMSE(x, x_hat) / reference: the name of a size, or an array of sizes.

    "x" is RMS(x), "x_hat" RMS(x_hat), "mean" |mean(x)|, "range" max(x) - min(x), "max" max(|x|)
    and "std" sqrt(mean(|x - mean(x)|^2)), all over the same points.

    >>> float(relative_rmse([3.0, 4.0, 0.0, 0.0], [3.0, 4.0, 0.0, 5.0], reference="x"))
    1.0
    """
    function, names = "relative_rmse", ("x", "x_hat", "mean", "range", "std", "max")
    _choice(function, "zero", zero, ("raise", "ieee", "nan"))
    if isinstance(reference, str):
        _choice(function, "reference", reference, names)
    options = (axis, dtype, out, format, threads, where, weights, nan_policy, bool(keepdims))
    problem = _prepare(function, {"x": x, "x_hat": x_hat}, *options)
    if isinstance(reference, str):
        size = _reference_size(problem, reference)
    else:
        sizes = _broadcast(function, "reference", reference, problem.shape)
        _refuse(function, "reference must have no negative value", sizes < 0)
        size = _Scaled.of(sizes.astype(np.float64).reshape(problem.keep.shape[:-1]))
    undefined = problem.zeros(size, zero, "reference must have no zero") & (zero == "nan")
    error = _root_mean_square(_difference(problem.rows(0), problem.rows(1)), problem.weights)
    return problem.store([np.where(undefined, np.nan, (error / size).values())])


def _reference_size(problem: _Problem, reference: str) -> _Scaled:
    """Size of each row by name."""
    x, weights = problem.rows(int(reference == "x_hat")), problem.weights
    if reference in ("x", "x_hat"):
        return _root_mean_square(_components(x), weights)
    if reference == "mean":
        return _square([_mean(part, weights) for part in _components(x)]).root()
    if reference == "max":
        return _square(_components(x)).reduce(np.maximum).root()
    # Measured from a value of the row itself, a constant row is exactly 0 throughout.
    first = np.take_along_axis(x, problem.keep.argmax(axis=-1)[..., None], axis=-1)
    shifted = _difference(x, np.where(problem.keep, first, x))
    if reference == "std":
        centred = [part - _mean(part, weights).column() for part in shifted]
        return _root_mean_square(centred, weights)
    if len(shifted) > 1:
        raise TypeError("relative_rmse: reference must not be 'range' where x is complex, got both")
    return shifted[0].reduce(np.maximum) - shifted[0].reduce(np.minimum)


@np.errstate(all="ignore")
def unit_rms(
    x: ArrayLike, /, *, axis: Axis = -1, zero: str = "raise", where: ArrayLike | None = None,
    out: Array | None = None, dtype: DTypeLike | None = None, format: str | None = None,
    return_rms: bool = False, threads: int | None = None,
) -> Any:  # fmt: skip
    """Vectors of RMS 1, x / RMS(x).

    >>> unit_rms([3.0, 4.0, 0.0, 0.0])
    array([1.2, 1.6, 0. , 0. ])
    """
    options = (axis, dtype, out, format, threads, where)
    return _scale("unit_rms", x, 1.0, zero, return_rms, options)


@np.errstate(all="ignore")
def scale_to_rms(
    x: ArrayLike, /, target: ArrayLike, *, axis: Axis = -1, zero: str = "raise",
    where: ArrayLike | None = None, out: Array | None = None, dtype: DTypeLike | None = None,
    format: str | None = None, return_rms: bool = False, threads: int | None = None,
) -> Any:  # fmt: skip
    """Vectors of RMS |target|, target * x / RMS(x).

    >>> scale_to_rms([3.0, 4.0, 0.0, 0.0], 5.0)
    array([6., 8., 0., 0.])
    """
    options = (axis, dtype, out, format, threads, where)
    return _scale("scale_to_rms", x, target, zero, return_rms, options)


def _scale(
    function: str, x: ArrayLike, target: ArrayLike, zero: str, return_rms: bool, options: Any
) -> Any:
    _choice(function, "zero", zero, ("raise", "zero", "nan"))
    problem = _prepare(function, {"x": x}, *options)
    layout, (data,) = problem.layout, problem.inputs
    targets = _broadcast(function, "target", target, layout.lengths(layout.kept))
    wanted = _Scaled.of(targets.astype(np.float64)).column()
    size = _root_mean_square(_components(problem.rows(0)), problem.weights)
    zeros = problem.zeros(size, zero, "x must have no zero row")[..., None]
    parts = [part * wanted / size.column() for part in _components(layout.rows(data.values))]
    fill = np.nan if zero == "nan" else 0.0
    result = problem.store([layout.restore(np.where(zeros, fill, p.values())) for p in parts])
    return (result, _rounded_size(problem, size)) if return_rms else result


def _rounded_size(problem: _Problem, size: _Scaled) -> Any:
    return _round(size.values(), _precision(problem.inputs)[0])[()]


@np.errstate(all="ignore")
def rms_norm(
    x: ArrayLike, /, gain: ArrayLike | None = None, *, eps: float = 1e-6, axis: Axis = -1,
    gain_offset: float = 0.0, cast: str = "after_gain", eps_mode: str = "inside",
    out: Array | None = None, dtype: DTypeLike | None = None, format: str | None = None,
    return_rms: bool = False, threads: int | None = None,
) -> Any:  # fmt: skip
    """RMSNorm, (gain + gain_offset) * x / sqrt(mean(x^2) + eps).

    With `eps_mode` "outside" the divisor is RMS(x) + eps, with "max" max(RMS(x), eps). `cast`
    "before_gain" rounds to the result dtype before the gain as well as after it.

    >>> rms_norm([3.0, 4.0, 0.0, 0.0], 10.0, eps=0.0)
    array([12., 16.,  0.,  0.])
    """
    function = "rms_norm"
    _choice(function, "cast", cast, ("after_gain", "before_gain"))
    _choice(function, "eps_mode", eps_mode, ("inside", "outside", "max"))
    if not (isinstance(eps, Real) and 0 <= eps < math.inf):
        raise ValueError(f"{function}: eps must be a finite number >= 0, got {eps!r}")
    if not (isinstance(gain_offset, Real) and math.isfinite(gain_offset)):
        raise ValueError(f"{function}: gain_offset must be a finite number, got {gain_offset!r}")
    if gain is None and gain_offset != 0:
        raise ValueError(f"{function}: gain_offset must be 0 without a gain, got {gain_offset!r}")
    problem = _prepare(function, {"x": x}, axis, dtype, out, format, threads)
    format, dtype = problem.storage
    if dtype.kind == "c":
        raise TypeError(f"{function}: x must be real, got dtype {dtype}")
    layout, least = problem.layout, _Scaled.of(float(eps))
    (values,) = _components(problem.rows(0))
    mean_square = _mean(values * values, problem.weights)
    size = mean_square.root()
    divisor = {
        "inside": (mean_square + least).root(),
        "outside": size + least,
        "max": size.combine(np.maximum, least),
    }[eps_mode]
    result = values / divisor.column()
    if gain is not None:
        if cast == "before_gain":
            rounded = _round(result.values(), format)
            result = _Scaled.of(_decode(rounded, format) if format in _FORMATS else rounded)
        gains = _broadcast(function, "gain", gain, layout.lengths(layout.reduced)).reshape(-1)
        factors = _Scaled.of(gains.astype(np.float64)) + _Scaled.of(float(gain_offset))
        result = result * factors
    scaled = problem.store([layout.restore(result.values())])
    return (scaled, _rounded_size(problem, size)) if return_rms else scaled
