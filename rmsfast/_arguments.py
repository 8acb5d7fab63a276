"""Arguments made uniform, and every refusal: `function: argument must requirement, got actual`."""

import math
from functools import lru_cache
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.exceptions import AxisError

from rmsfast import _formats

NAN_POLICIES = ("propagate", "omit", "raise")


class Source(NamedTuple):
    """An input array as the kernels take it."""

    array: np.ndarray  # as it came, at least 0-d
    kind: str  # storage format
    mask: np.ndarray | None  # True where a masked array hides a value


def fail(function: str, argument: str, requirement: str, actual: object) -> ValueError:
    return ValueError(f"{function}: {argument} must {requirement}, got {actual}")


def source(function: str, argument: str, x: Any, format: str | None) -> Source:
    """Any array_like as an array of a known storage format."""
    found = None if isinstance(x, np.ndarray) else torch_tensor(function, argument, x)
    if found is not None:
        x, name = found
        format = format or name
    mask = None
    if isinstance(x, np.ma.MaskedArray) and x.mask is not np.ma.nomask:
        mask = np.asarray(x.mask)
    try:
        array = np.asarray(x)
        if array.dtype.kind == "O" and not array.ndim and not isinstance(x, np.ndarray):
            raise TypeError  # an object that is no array
    except (ValueError, TypeError) as error:
        if "inhomogeneous" in str(error):
            raise fail(function, argument, "be an array", "rows of different lengths") from None
        raise TypeError(
            f"{function}: {argument} must be an array, got {type(x).__name__}"
        ) from None
    kind = _formats.kind_of(array.dtype, format)
    if kind is None:
        raise TypeError(dtype_message(function, argument, array.dtype, format))
    return Source(array, kind, mask)


def torch_tensor(function: str, argument: str, x: Any) -> tuple[np.ndarray, str | None] | None:
    try:
        return _formats.from_torch(x)
    except (TypeError, RuntimeError) as error:
        place = getattr(x, "device", "?")
        if str(place) == "cpu":
            layout = getattr(x, "layout", None)
            dense = str(layout) == "torch.strided"
            raise TypeError(
                f"{function}: {argument} must be a dense real or complex tensor, "
                f"got {getattr(x, 'dtype', error) if dense else layout}"
            ) from None
        raise TypeError(
            f"{function}: {argument} must be a CPU tensor, got one on {place} (use .cpu())"
        ) from None


def dtype_message(function: str, argument: str, dtype: np.dtype, format: str | None) -> str:
    if format is not None:
        size = 8 * _formats.CODES[format].itemsize
        return (
            f"{function}: {argument} must hold codes of {size} bits (uint{size}) "
            f"for format={format!r}, got {dtype}"
        )
    remedy = ""
    if dtype.type is np.void and dtype.names is None and dtype.itemsize in (1, 2):
        example = "bfloat16" if dtype.itemsize == 2 else "float8_e4m3fn"
        remedy = f"; name its format, for example format={example!r}"
    elif dtype.kind in "fc":
        remedy = "; use .astype('float64')" if dtype.kind == "f" else "; use .astype('complex128')"
    elif dtype.kind == "O":
        remedy = "; use .astype(float)"
    return (
        f"{function}: {argument} must have a boolean, integer, floating or complex dtype, "
        f"got {dtype}{remedy}"
    )


@lru_cache(maxsize=1024)
def axes_of(function: str, axis: int | tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """The reduced axes, ascending; a 0-d input is a vector of one coordinate."""
    if axis is None or (ndim == 0 and axis == ()):
        return tuple(range(max(ndim, 1)))
    ndim = max(ndim, 1)
    found = []
    for k in axis if isinstance(axis, tuple) else (axis,):
        if not -ndim <= k < ndim:
            raise AxisError(f"{function}: axis must be in [-{ndim}, {ndim}), got {k}")
        found.append(k % ndim)
    if len(set(found)) != len(found):
        raise fail(function, "axis", "name each axis once", axis)
    return tuple(sorted(found))


def whole_axis(function: str, axis: Any) -> int | tuple[int, ...] | None:
    """The axis in ints, since 1.0 is the same key as 1; lists of ints are not taken for tuples."""
    try:
        if axis is None:
            return None
        return tuple(map(index, axis)) if isinstance(axis, tuple) else index(axis)
    except TypeError:
        raise TypeError(
            f"{function}: axis must be an int, a tuple of ints or None, got {axis!r}"
        ) from None


def one_axis(function: str, axis: Any) -> int:
    """An axis that is the only one."""
    if axis is None or isinstance(axis, tuple):
        raise TypeError(f"{function}: axis must be an int, got {axis!r}")
    found = whole_axis(function, axis)
    assert isinstance(found, int)
    return found


def result_dtype(function: str, dtype: Any, default: str) -> np.dtype:
    """The dtype of a reduction's result."""
    if dtype is None:
        return np.dtype(default)
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if isinstance(name, str) and name in _formats.CODES:
        return _formats.ml_dtype(function, name)
    try:
        found: np.dtype = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"{function}: dtype must be a real floating dtype, got {dtype!r}") from None
    found = found.newbyteorder("=")
    if found.name in _formats.CODES or found in (np.float16, np.float32, np.float64):
        return found
    raise TypeError(
        f"{function}: dtype must be a real floating dtype of at most 64 bits, got {found}"
    )


def check_out(function: str, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{function}: out must be a numpy array, got {type(out).__name__}")
    if out.shape != shape:
        raise fail(function, "out", f"have shape {shape}", out.shape)
    if out.dtype != dtype:
        raise TypeError(f"{function}: out must have dtype {dtype}, got {out.dtype}")
    if not out.flags.writeable:
        raise fail(function, "out", "be writeable", "a read-only array")
    if out.size > 1 and any(n > 1 and s == 0 for n, s in zip(out.shape, out.strides, strict=True)):
        raise fail(function, "out", "have a place for each element", f"strides {out.strides}")


def check_threads(function: str, threads: Any) -> None:
    if threads is None:
        return
    try:
        count = index(threads)
    except TypeError:
        count = None
    if count is None or isinstance(threads, bool):
        raise TypeError(f"{function}: threads must be None or an int >= 1, got {threads!r}")
    if count < 1:
        raise fail(function, "threads", "be None or an int >= 1", threads)


def count(function: str, argument: str, given: Any) -> int:
    """A number of things, at least one."""
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"{function}: {argument} must be an int >= 1, got {given!r}")
    if (found := index(given)) < 1:
        raise fail(function, argument, "be an int >= 1", found)
    return found


def check_choice(function: str, argument: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise fail(function, argument, "be one of " + ", ".join(map(repr, choices)), repr(value))


def common_shape(
    function: str, names: tuple[str, ...], shapes: list[tuple[int, ...]], axis: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of one array or a pair, and the reduced axes: along these nothing is broadcast.

    A 0-d array stands for a vector of one coordinate, beside another for any vector.
    """
    ndim = max(map(len, shapes))
    axes = axes_of(function, axis, ndim)
    shapes = [s for s in shapes if s] or [(1,)]
    if len(shapes) == 1:
        return shapes[0], axes
    left, right = ((-1,) * (ndim - len(s)) + s for s in shapes)  # -1: no such axis
    actual = f"shapes {shapes[0]} and {shapes[1]}"
    shape = []
    for k, (m, n) in enumerate(zip(left, right, strict=True)):
        if k in axes and m != n:
            requirement = "have equal lengths along the reduced axes"
            raise ValueError(
                f"{function}: {names[0]} and {names[1]} must {requirement}, got {actual}"
            )
        if m != n and m not in (1, -1) and n not in (1, -1):
            raise ValueError(f"{function}: {names[0]} and {names[1]} must match, got {actual}")
        shape.append(n if m == -1 or (m == 1 and n != -1) else m)
    return tuple(shape), axes


def weak_numbers(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """A Python number beside an array takes the width of its dtype, as in NumPy (NEP 50)."""
    if len(given) < 2 or all(isinstance(a, (int, float, complex)) for a in given):
        return given
    found = []
    for a, other in (given, given[::-1]):
        if type(a) in (int, float, complex):
            kind = str(_formats.named(getattr(other, "dtype", None)))
            narrow = kind in _formats.NARROW
            single = np.complex64 if isinstance(a, complex) else np.float32
            a = single(a) if narrow else a
        found.append(a)
    return tuple(found)


Mask = tuple[np.ndarray, str]  # True keeps (bool) or leaves out (hidden)


def kept(function: str, sources: list[Source], where: Any, shape: tuple[int, ...]) -> list[Mask]:
    """What is kept: `where`, and masks of hidden values; for small arrays all in one."""
    hidden = [np.broadcast_to(s.mask, shape) for s in sources if s.mask is not None]
    chosen = []
    if where is not None:
        try:
            given = np.asarray(where)
        except ValueError:
            raise fail(
                function, "where", "be a boolean array", "rows of different lengths"
            ) from None
        if given.dtype != np.bool_:
            raise TypeError(f"{function}: where must be boolean, got dtype {given.dtype}")
        chosen = [broadcast(function, "where", given, shape)]
    if hidden and math.prod(shape) <= _formats.SMALL_BYTES:
        chosen, hidden = [np.logical_and.reduce([*chosen, *(~m for m in hidden)])], []
    return [(m, "bool") for m in chosen] + [(m, "hidden") for m in hidden]


def weights(function: str, given: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, str] | None:
    if given is None:
        return None
    found = source(function, "weights", given, None)
    if found.kind.startswith("complex"):
        raise TypeError(f"{function}: weights must have a real dtype, got {found.array.dtype}")
    array, kind = found.array, found.kind
    if array.nbytes <= _formats.SMALL_BYTES:
        (array,), (kind,) = _formats.cast([array], (kind,), ("float64",))
    return broadcast(function, "weights", array, shape), kind


def sizes(function: str, reference: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The named denominator given as numbers, one for each result."""
    found = numbers(function, "reference", reference, shape)
    if (found < 0).any():
        raise fail(function, "reference", "be non-negative", found.min())
    return found


def numbers(function: str, argument: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Real numbers as float64, one for each element of a shape."""
    found = source(function, argument, given, None)
    if found.kind.startswith("complex"):
        raise TypeError(f"{function}: {argument} must be real, got dtype {found.array.dtype}")
    values = _formats.decoded(found.array, found.kind).astype(np.float64)
    return broadcast(function, argument, values, shape)


def number(function: str, argument: str, given: Any) -> float:
    """A finite real number."""
    try:
        if isinstance(given, str | bytes):
            raise TypeError
        value = float(given)
    except (TypeError, ValueError):
        raise TypeError(
            f"{function}: {argument} must be a number, got {type(given).__name__}"
        ) from None
    if not math.isfinite(value):
        raise fail(function, argument, "be finite", value)
    return value


def finite_numbers(function: str, argument: str, given: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite real numbers as float64, one for each element of a shape."""
    found = numbers(function, argument, given, shape)
    if not np.isfinite(found).all():
        bad = found[~np.isfinite(found)][0]
        raise fail(function, argument, "be finite", bad)
    return found


def real(function: str, argument: str, given: Any, format: str | None = None) -> Source:
    """A real array."""
    found = source(function, argument, given, format)
    if found.kind.startswith("complex"):
        raise TypeError(f"{function}: {argument} must be real, got dtype {found.array.dtype}")
    return found


def state(function: str, argument: str, given: Any, format: str | None) -> Source:
    """An array of floating numbers: integers are stored in no format that rounds."""
    found = real(function, argument, given, format)
    if found.kind in _formats.INTEGERS:
        raise TypeError(
            f"{function}: {argument} must have a floating dtype, got {found.array.dtype}"
        )
    return found


def vectors(
    function: str, argument: str, array: np.ndarray, shape: tuple[int, ...], axes: tuple[int, ...]
) -> np.ndarray:
    """Vectors of whole length, one for all rows or one for each, in the common shape."""
    lengths = tuple(shape[k] for k in axes)
    padded = (1,) * (len(shape) - array.ndim) + array.shape
    fits = len(padded) == len(shape) and all(
        m == n if k in axes else m in (1, n)
        for k, (m, n) in enumerate(zip(padded, shape, strict=True))
    )
    if not fits:
        requirement = f"have shape {lengths}, or one that goes with {shape}"
        raise fail(function, argument, requirement, f"shape {array.shape}")
    return np.broadcast_to(array, shape)


def row_mask(function: str, given: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Which rows are meant, None for all."""
    if given is None:
        return None
    found = np.asarray(given)
    if found.dtype != np.bool_:
        raise TypeError(f"{function}: rows must be boolean, got dtype {found.dtype}")
    return broadcast(function, "rows", found, shape)


def seed(function: str, given: Any, needed: bool) -> int | None:
    """The key of random numbers."""
    if given is None:
        if needed:
            raise fail(function, "seed", "be an int with rounding='stochastic'", None)
        return None
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"{function}: seed must be None or an int, got {given!r}")
    if not 0 <= (found := index(given)) < 2**64:
        raise fail(function, "seed", "be in [0, 2**64)", found)
    return found


def first_row(function: str, given: Any) -> int:
    """The number of the first row of a block."""
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise TypeError(f"{function}: first_row must be an int, got {given!r}")
    if not 0 <= (found := index(given)) < 2**63:
        raise fail(function, "first_row", "be in [0, 2**63)", found)
    return found


def gain(
    function: str,
    given: Any,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    format: str | None,
    kind_of_x: str,
) -> tuple[np.ndarray, str] | None:
    """The gain: a number, or an array of the shape of the reduced axes."""
    if given is None:
        return None
    found = source(function, "gain", given, None)
    if format is not None and found.array.dtype == _formats.CODES[format]:
        raise TypeError(
            f"{function}: gain must be an array of numbers, got {found.array.dtype} codes"
        )
    if found.kind.startswith("complex"):
        raise TypeError(f"{function}: gain must be real, got dtype {found.array.dtype}")
    wanted = tuple(shape[k] for k in axes)
    if found.array.ndim and found.array.shape != wanted:
        actual = f"shape {found.array.shape}"
        if isinstance(given, tuple) and given and given == shape[-len(given) :]:
            actual = "the shape itself (which coordinates make a row is told by axis)"
        raise fail(function, "gain", f"be a number or have shape {wanted}", actual)
    array, kind = found.array, found.kind
    half = kind_of_x in ("float16", "bfloat16")
    if array.ndim and half and kind == kind_of_x:
        return np.ascontiguousarray(array, array.dtype.newbyteorder("=")), kind
    if array.nbytes <= _formats.SMALL_BYTES:
        single = bool(array.ndim) and half and kind in _formats.NARROW
        to = ("float32" if single else "float64",)
        (array,), (kind,) = _formats.cast([array], (kind,), to)
    return array, kind


def check_overlap(function: str, out: np.ndarray, x: np.ndarray) -> None:
    """Out may be x itself, element upon element, not a shifted view of it."""
    if not np.may_share_memory(out, x):
        return
    same = (
        out.ctypes.data == x.ctypes.data and out.strides == x.strides and out.itemsize == x.itemsize
    )
    if same and out.shape == x.shape:
        return
    try:
        overlap = np.shares_memory(out, x, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        overlap = True
    if overlap:
        raise fail(function, "out", "be x itself or apart from it", "partial overlap")


def zero_rows(function: str, argument: str, flags: np.ndarray) -> ValueError:
    """The refusal of zero rows: how many, and where the first is."""
    first = tuple(int(k) for k in np.argwhere(flags)[0])
    count = int(np.count_nonzero(flags))
    rows = "1 zero row" if count == 1 else f"{count} zero rows"
    place = f", the first at index {first}" if flags.ndim else ""
    return fail(function, argument, "be nonzero under zero='raise'", rows + place)


def overflown(function: str, argument: str, found: np.ndarray, format: str) -> ValueError:
    """The refusal of numbers beyond a format: how many, and where the first is."""
    count = int(found.sum())
    place = f", the first at index {tuple(int(k) for k in np.argwhere(found)[0])}"
    place = place if found.ndim else ""
    actual = f"{count} beyond it{place}"
    return fail(function, argument, f"fit into {format} under overflow='raise'", actual)


def check_sentence(function: str, argument: str, given: Any) -> None:
    if not isinstance(given, str) or not given.strip():
        raise fail(function, argument, "be a non-empty string", repr(given))


def check_result(function: str, out: Any, x: np.ndarray, dtype: np.dtype) -> None:
    """`out` of a function that writes as many elements as it reads from x."""
    check_out(function, out, x.shape, dtype)
    check_overlap(function, out, x)
    if not out.flags.aligned or not out.dtype.isnative:
        raise fail(function, "out", "be aligned and of native byte order", "one that is not")


def doses(function: str, argument: str, given: Any) -> np.ndarray:
    """Finite numbers along one axis, or a single one."""
    found = real(function, argument, given).array
    if found.ndim > 1:
        raise fail(function, argument, "have at most one dimension", f"shape {found.shape}")
    return finite_numbers(function, argument, given, found.shape)


def format_of(function: str, format: Any) -> str | None:
    """The name of the format that codes are in, None where they are not told to be codes."""
    name = _formats.named(format)
    if name is None or (isinstance(name, str) and name in _formats.CODES):
        return name
    raise fail(function, "format", f"be None or one of {', '.join(_formats.CODES)}", repr(format))


def check_flags(function: str, names: tuple[str, ...], flags: np.ndarray, nan_policy: str) -> None:
    """The refusals that only a look at every value can make."""
    if (flags & 2).any():
        actual = "a negative, infinite or NaN weight"
        raise fail(function, "weights", "be non-negative and finite", actual)
    if nan_policy == "raise" and (flags & 1).any():
        count = int(np.count_nonzero(flags & 1))
        raise fail(
            function,
            " and ".join(names),
            "hold no NaN under nan_policy='raise'",
            f"NaN in {count} of {flags.size} rows",
        )


def broadcast(function: str, argument: str, a: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    try:
        return np.broadcast_to(a, shape)
    except ValueError:
        raise fail(
            function, argument, f"be broadcastable to shape {shape}", f"shape {a.shape}"
        ) from None
