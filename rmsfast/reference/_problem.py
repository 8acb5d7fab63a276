"""The arguments of a call, checked: what is reduced, and where the result goes."""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rmsfast.reference._formats import COMPLEX, FLOATS, FORMATS, decode, round_to_storage
from rmsfast.reference._numbers import Array, Scaled

Shape = tuple[int, ...]
Axis = int | Shape | None
Storage = tuple[str, np.dtype[Any]]  # name of a format, and the dtype that holds it


def check_choice(function: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{function}: {name} must be one of {allowed}, got {value!r}")


def refuse(function: str, requirement: str, bad: Array) -> None:
    """Raise where anything is bad, with the count and the first index."""
    if bad.any():
        count, first = np.count_nonzero(bad), np.unravel_index(np.argmax(bad), bad.shape)
        index = tuple(map(int, first))
        raise ValueError(f"{function}: {requirement}, got {count}, the first at index {index}")


class Input(NamedTuple):
    stored: Array
    format: str
    values: Array  # booleans and integers as they are, all else as float64 or complex128
    masked: Array


def read(function: str, name: str, x: ArrayLike, format: str | None = None) -> Input:
    try:
        stored = np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        raise ValueError(f"{function}: {name} must be rectangular, got a ragged list") from None
    dtype, own = stored.dtype, stored.dtype.name
    if dtype.names is not None and len(dtype.names) == 1 and dtype.names[0] in FORMATS:
        (field,) = dtype.names  # a record of a code, named after its format
        own = field if dtype[0].newbyteorder("=") == FORMATS[field].codes else own
    if format is not None:
        codes = FORMATS[format].codes
        readable = (codes, codes.newbyteorder("S"), np.dtype((np.void, codes.itemsize)))
        own = format if dtype in readable else own
    if own in FORMATS and dtype.type is not np.float16:
        codes = FORMATS[own].codes if dtype.isnative else FORMATS[own].codes.newbyteorder("S")
        values = decode(stored if dtype.kind == "u" else stored.view(codes), own)
    elif dtype.kind in "biu":
        values = stored.astype(own, copy=False)
    elif own in FLOATS:
        values = stored.astype(np.float64, copy=False)
    elif own in COMPLEX:
        values = stored.astype(np.complex128, copy=False)
    else:
        raise TypeError(
            f"{function}: {name} must have a boolean, integer, real or complex dtype of at most "
            "64 bits a number (convert it with astype, or name the format='bfloat16' that codes "
            f"are in), got dtype {own}"
        )
    masked = np.ma.getmaskarray(x) if isinstance(x, np.ma.MaskedArray) else np.zeros((), bool)
    return Input(stored, own, values, masked)


def real_values(function: str, name: str, value: ArrayLike, shape: Shape) -> Array:
    """Real values of an argument other than the data, in the given shape."""
    values = read(function, name, value).values
    if values.dtype.kind == "c":
        raise TypeError(f"{function}: {name} must be real, got dtype {values.dtype}")
    try:
        return np.broadcast_to(values, shape)
    except ValueError:
        raise ValueError(
            f"{function}: {name} must be broadcastable to shape {shape}, got shape {values.shape}"
        ) from None


class Layout(NamedTuple):
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


def layout_of(function: str, axis: Axis, shapes: list[Shape]) -> Layout:
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
    layout = Layout(shape, reduced if shape else [], kept)
    if 0 in layout.lengths(layout.reduced) and 0 not in layout.lengths(kept):
        raise ValueError(f"{function}: x must have vectors of length >= 1, got shape {shape}")
    return layout


def storage_of(function: str, dtype: DTypeLike, allowed: tuple[str, ...]) -> Storage:
    """Name and dtype of a requested result format."""
    try:
        name = dtype if isinstance(dtype, str) and dtype in FORMATS else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in allowed:
        raise TypeError(f"{function}: dtype must be one of {', '.join(allowed)}, got {name}")
    if name not in FORMATS or name == "float16":
        return name, np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            f"{function}: dtype must be one NumPy has (pip install ml_dtypes), got {name}"
        ) from None
    return name, np.dtype(getattr(ml_dtypes, name))


def precision_of(inputs: list[Input]) -> Storage:
    """Storage of a reduction of these inputs."""
    wide = any(x.values.dtype.kind in "biu" or x.stored.dtype.char in "dD" for x in inputs)
    name = "float64" if wide else "float32"
    return name, np.dtype(name)


def check_out(function: str, out: Any, shape: Shape, dtype: np.dtype[Any], x: Array) -> None:
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


class Problem(NamedTuple):
    """A call whose arguments are checked: what is reduced, and where the result goes."""

    function: str
    inputs: list[Input]
    layout: Layout
    keep: Array  # rows: which points count
    weights: Scaled  # rows: how much they count, 0 where they do not
    storage: Storage
    shape: Shape
    out: Any

    def rows(self, index: int) -> Array:
        """Rows of an input, 0 at the points that do not count."""
        values = self.layout.rows(self.inputs[index].values)
        return np.where(self.keep, values, values.dtype.type(0))

    def zeros(self, size: Scaled, zero: str, requirement: str) -> Array:
        """Rows of size 0, which zero="raise" refuses; a row without points has no size."""
        found = np.asarray((size.mantissa == 0) & self.keep.any(axis=-1))
        if zero == "raise":
            refuse(self.function, requirement, found)
        return found

    def store(self, components: list[Array]) -> Any:
        """Round once; no dimension left gives a NumPy scalar."""
        format, dtype = self.storage
        if dtype.kind == "c":
            result = np.empty(components[0].shape, dtype)
            result.real, result.imag = components
        else:
            result = round_to_storage(components[0], format).view(dtype)
        if self.out is None:
            return result.reshape(self.shape)[()]
        np.asarray(self.out)[...] = result.reshape(self.shape)
        return self.out


def points(
    function: str, inputs: dict[str, Input], shape: Shape, where: Any, weights: Any, policy: str
) -> tuple[Array, Array]:
    """Tell which points count, and how much."""
    keep = np.ones(shape, bool)
    if where is not None:
        if (dtype := np.asarray(where).dtype).kind != "b":
            raise TypeError(f"{function}: where must be boolean, got dtype {dtype}")
        keep &= real_values(function, "where", where, shape)
    for data in inputs.values():
        keep &= ~data.masked
    weight = np.ones(shape)
    if weights is not None:
        weight = real_values(function, "weights", weights, shape).astype(np.float64)
        keep &= ~np.ma.getmask(weights)
        if policy == "omit":
            keep &= ~np.isnan(weight)
        bad = keep & ~((weight >= 0) & np.isfinite(weight))
        refuse(function, "weights must have no negative or non-finite value", bad)
        keep &= weight > 0
    for name, data in inputs.items():
        missing = np.isnan(data.values)
        if policy == "omit":
            keep &= ~missing
        elif policy == "raise":
            refuse(function, f"{name} must have no NaN", keep & missing)
    return keep, np.where(keep, weight, 0.0)


def prepare(
    function: str, arrays: dict[str, ArrayLike], axis: Axis, dtype: DTypeLike | None, out: Any,
    format: str | None, threads: int | None, where: Any = None, weights: Any = None,
    nan_policy: str = "propagate", keepdims: bool | None = None,
) -> Problem:  # fmt: skip
    """Check the arguments of a reduction or, where keepdims is None, of a scaling."""
    check_choice(function, "nan_policy", nan_policy, ("propagate", "omit", "raise"))
    if threads is not None and not (isinstance(threads, int | np.integer) and threads >= 1):
        raise ValueError(f"{function}: threads must be None or an int >= 1, got {threads!r}")
    if format is not None:
        check_choice(function, "format", format, tuple(FORMATS))
    named = {name: read(function, name, x, format) for name, x in arrays.items()}
    x, *_ = inputs = list(named.values())
    if format is not None and all(data.format != format for data in inputs):
        raise TypeError(
            f"{function}: x must hold {FORMATS[format].codes} or void codes of {format!r}, "
            f"got dtype {x.stored.dtype}"
        )
    layout = layout_of(function, axis, [data.stored.shape for data in inputs])
    shape, allowed = layout.shape, FLOATS
    if keepdims is not None:
        # A Python number has no precision of its own: it goes by that of x.
        python = (bool, int, float, complex)
        typed = [data for data, given in zip(inputs, arrays.values(), strict=True)
                 if type(given) not in python]  # fmt: skip
        storage = precision_of(typed or [x])
        lengths = (1 if a in layout.reduced else n for a, n in enumerate(shape))
        shape = tuple(lengths) if keepdims else layout.lengths(layout.kept)
    elif x.values.dtype.kind in "biu":
        storage = "float64", np.dtype(np.float64)
    else:
        storage = x.format, x.stored.dtype.newbyteorder("=")
        allowed = COMPLEX if x.format in COMPLEX else FLOATS
    if dtype is not None:
        storage = storage_of(function, dtype, allowed)
    if out is not None:
        for data in inputs:
            check_out(function, out, shape, storage[1], data.stored)
    keep, weight = points(function, named, layout.shape, where, weights, nan_policy)
    rows = layout.rows(keep), Scaled.of(layout.rows(weight))
    return Problem(function, inputs, layout, *rows, storage, shape, out)
