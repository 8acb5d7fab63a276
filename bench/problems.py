"""The problems that are timed, in one table at the end: arrays, call, NumPy idiom and ceiling.

Arrays go by the names of the parameters. A problem whose function, or one of its parameters, is
not in the package is an absent row, not a failure.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import rmsfast
from bench import squares
from tests import exact

Array = NDArray[Any]
Arrays = dict[str, Array]

COLUMNS = 1024
BLOCK_ROWS = 4096  # drawn at random, then repeated: an array is made in a moment
SAMPLE = 4  # rows of an answer that are checked
POSITIONAL = ("x", "x_hat", "gain")


@dataclass(frozen=True, eq=False)  # told apart, and hashed, by identity
class Problem:
    """One row of the table of results."""

    name: str
    function: str
    arrays: Callable[[int], Arrays]  # made from the bytes of x
    peers: Mapping[str, Callable[..., object]]  # the same answer in other libraries
    options: Mapping[str, Any] = field(default_factory=dict)
    ceiling: Literal["read", "copy"] | None = "read"
    out: Literal["new", "answer", "x"] = "answer"  # where a timed call writes
    bound: float = 0.51  # ulps


@dataclass(frozen=True)
class Case:
    """A problem with its arrays made and its answer known: calls that are ready to be timed."""

    call: Callable[[], object]
    peers: dict[str, Callable[[], object]]
    nbytes: int  # counted in one call
    error: float  # the largest in a sample of rows, in ulps


def available(problem: Problem) -> bool:
    """Whether the package has the function, and the function the parameters."""
    function = getattr(rmsfast, problem.function, None)
    needed = {*problem.arrays(1), *problem.options}
    return function is not None and needed <= set(inspect.signature(function).parameters)


def prepare(problem: Problem, nbytes: int) -> Case:
    """Make the arrays, call once, and measure the error of the answer."""
    arrays = problem.arrays(nbytes)
    positional = [arrays[name] for name in POSITIONAL if name in arrays]
    keywords = {name: array for name, array in arrays.items() if name not in POSITIONAL}
    function = getattr(rmsfast, problem.function)
    call = functools.partial(function, *positional, **keywords, **problem.options)
    answer = call()
    error = largest_error(problem, arrays, answer)
    if problem.out == "x":
        call = functools.partial(call, out=arrays["x"])
    elif problem.out == "answer" and isinstance(answer, np.ndarray):
        call = functools.partial(call, out=answer)
    given = dict(arrays)
    if problem.ceiling == "copy" and problem.out != "new":
        given["out"] = call.keywords["out"]
    peers = {name: functools.partial(peer, **given) for name, peer in problem.peers.items()}
    copied = 2 * arrays["x"].nbytes
    read = sum(array.nbytes for array in arrays.values())
    return Case(call, peers, copied if problem.ceiling == "copy" else read, error)


def largest_error(problem: Problem, arrays: Arrays, answer: Any) -> float:
    """Error of a sample of rows of an answer, in ulps."""
    axis = problem.options.get("axis", -1)
    format = problem.options.get("format")
    expected = getattr(squares, problem.function)
    scaled = np.shape(answer) == arrays["x"].shape
    kind = format if scaled and format else answer.dtype.name
    count = len(as_rows(arrays["x"], axis))
    errors = []
    for row in np.linspace(0, count - 1, min(count, SAMPLE)).astype(int):
        given = {
            name: array if name == "gain" else decode(as_rows(array, axis)[row], format)
            for name, array in arrays.items()
        }
        got = decode(as_rows(answer, axis)[row], format) if scaled else np.ravel(answer)[[row]]
        pairs = zip(got, expected(**given), strict=True)
        errors += [exact.ulp_error(value, square, kind) for value, square in pairs]
    return max(errors)


def as_rows(array: Array, axis: int | None) -> Array:
    """View whose rows are the vectors along an axis."""
    if axis is None or array.ndim == 1:
        return array.reshape(1, -1)
    return array.T if axis == 0 else array


def decode(array: Array, format: str | None) -> Array:
    """Values of an array of bfloat16 codes; other arrays as they are."""
    return widen(array) if format == "bfloat16" else array


def widen(codes: Array) -> Array:
    """Float32 values of bfloat16 codes, in the way that NumPy does fastest."""
    halves = np.zeros((*codes.shape, 2), np.uint16)
    halves[..., 1] = codes  # little-endian
    return halves.view(np.float32)[..., 0]


def narrow(values: Array) -> Array:
    """Float32 values cut off to bfloat16 codes."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


# Arrays -----------------------------------------------------------------------------------------


def draw(nbytes: int, kind: str, columns: int = COLUMNS, seed: int = 0) -> Array:
    """Draw standard normal rows in a format, or int16 rows over the whole range."""
    itemsize = 2 if kind == "bfloat16" else np.dtype(kind).itemsize
    shape = (max(1, nbytes // (itemsize * columns)), columns)
    rng = np.random.default_rng(seed)
    block = (min(shape[0], BLOCK_ROWS), columns)
    if kind == "int16":
        values = rng.integers(-(2**15), 2**15, block, dtype=np.int16)
    elif kind == "float64":
        values = rng.standard_normal(block)
    else:
        values = rng.standard_normal(block, dtype=np.float32)
        values = narrow(values) if kind == "bfloat16" else values.astype(kind)
    return np.resize(values, shape)


def rows(kind: str) -> Callable[[int], Arrays]:
    """One array of rows."""
    return lambda nbytes: {"x": draw(nbytes, kind)}


def pairs(kind: str) -> Callable[[int], Arrays]:
    """Two arrays of rows."""
    return lambda nbytes: {"x": draw(nbytes, kind), "x_hat": draw(nbytes, kind, seed=1)}


def with_gain(kind: str) -> Callable[[int], Arrays]:
    """One array of rows, and a gain for each column."""
    gain_kind = "float32" if kind == "bfloat16" else kind
    gain = np.linspace(0.5, 2.0, COLUMNS).astype(gain_kind)
    return lambda nbytes: {"x": draw(nbytes, kind), "gain": gain}


def long_row(nbytes: int) -> Arrays:
    """One vector."""
    return {"x": draw(nbytes, "float32").ravel()}


def transposed(nbytes: int) -> Arrays:
    """Vectors that lie side by side in memory: the transposed view of 1024 long rows."""
    return {"x": draw(nbytes, "float32").reshape(COLUMNS, -1).T}


def tall(nbytes: int) -> Arrays:
    """One array in C order with a gain for each row, for work along axis 0."""
    x = draw(nbytes, "float32")
    return {"x": x, "gain": np.linspace(0.5, 2.0, len(x), dtype=np.float32)}


def masked(nbytes: int) -> Arrays:
    """Rows of which 70 % are kept."""
    x = draw(nbytes, "float32")
    return {"x": x, "where": np.resize(np.random.default_rng(1).random(1 << 20) < 0.7, x.shape)}


def weighted(nbytes: int) -> Arrays:
    """Rows with weights between 0 and 1."""
    x = draw(nbytes, "float32")
    weights = np.random.default_rng(1).random(1 << 20, dtype=np.float32)
    return {"x": x, "weights": np.resize(weights, x.shape)}


def with_missing(nbytes: int) -> Arrays:
    """Rows of which 1 % is NaN."""
    x = draw(nbytes, "float32")
    x[np.resize(np.random.default_rng(1).random(1 << 20) < 0.01, x.shape)] = np.nan
    return {"x": x}


def small(_nbytes: int) -> Arrays:
    """Eight rows of 64: what is timed is the call."""
    return {"x": draw(8 * 64 * 4, "float32", columns=64)}


# The best NumPy idioms: of several ways to write each, the one measured fastest -------------------


def numpy_rows(x: Array) -> Array:
    """Faster than einsum, linalg.norm and mean(x * x)."""
    return np.sqrt(np.vecdot(x, x) / x.shape[-1])


def numpy_all(x: Array) -> Any:
    """One dot product."""
    return np.sqrt(np.vdot(x, x) / x.size)


def numpy_half_rows(x: Array) -> Array:
    """Squares in float16 would overflow."""
    return numpy_rows(x.astype(np.float32))


def numpy_codes_rows(x: Array) -> Array:
    """Rows of bfloat16 codes."""
    return numpy_rows(widen(x))


def numpy_integer_rows(x: Array) -> Array:
    """Exact sums in int64."""
    return np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.int64) / x.shape[-1])


def numpy_columns(x: Array) -> Array:
    """Faster than mean(x * x, axis=0) and vecdot."""
    return np.sqrt(np.einsum("ij,ij->j", x, x) / x.shape[0])


def numpy_transposed(x: Array) -> Array:
    """Einsum takes the axes in memory order by itself."""
    return np.sqrt(np.einsum("ij,ij->i", x, x) / x.shape[-1])


def numpy_small(x: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.mean(x * x, axis=1))


def numpy_pairs(x: Array, x_hat: Array) -> Array:
    """One temporary."""
    return numpy_rows(x - x_hat)


def numpy_half_pairs(x: Array, x_hat: Array) -> Array:
    """Differences in float32: float16 would round them."""
    return numpy_rows(np.subtract(x, x_hat, dtype=np.float32))


def numpy_codes_pairs(x: Array, x_hat: Array) -> Array:
    """Pairs of rows of bfloat16 codes."""
    return numpy_pairs(widen(x), widen(x_hat))


def numpy_where(x: Array, where: Array) -> Array:
    """Three times as fast as mean(x * x, where=where), and wrong where NaN is masked."""
    kept = x * where
    return np.sqrt(np.vecdot(kept, kept) / np.count_nonzero(where, axis=-1))


def numpy_weights(x: Array, weights: Array) -> Array:
    """Without a temporary."""
    return np.sqrt(np.einsum("ij,ij,ij->i", weights, x, x) / weights.sum(axis=-1))


def numpy_omit(x: Array) -> Array:
    """Faster than nanmean(x * x)."""
    present = x == x
    kept = np.where(present, x, np.float32(0))
    return np.sqrt(np.vecdot(kept, kept) / np.count_nonzero(present, axis=-1))


def numpy_scaled(x: Array, out: Array, gain: Array | None = None) -> None:
    """One multiplication by a reciprocal, faster than a division, and one by the gain."""
    eps = 0 if gain is None else 1e-6
    reciprocal = 1 / np.sqrt(np.vecdot(x, x) / x.shape[-1] + x.dtype.type(eps))
    np.multiply(x, reciprocal[:, np.newaxis], out=out)
    if gain is not None:
        np.multiply(out, gain, out=out)


def numpy_half_scaled(x: Array, out: Array, gain: Array | None = None) -> None:
    """One temporary in float32."""
    wide = x.astype(np.float32)
    numpy_scaled(wide, wide, gain)
    out[...] = wide


def numpy_codes_scaled(x: Array, out: Array, gain: Array | None = None) -> None:
    """Rows of bfloat16 codes, rounded to nearest even."""
    wide = widen(x)
    numpy_scaled(wide, wide, gain)
    bits = wide.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    np.right_shift(bits, 16, out=out, casting="unsafe")


def numpy_scaled_columns(x: Array, out: Array, gain: Array | None = None) -> None:
    """Along axis 0."""
    eps = 0 if gain is None else 1e-6
    reciprocal = 1 / np.sqrt(np.einsum("ij,ij->j", x, x) / x.shape[0] + x.dtype.type(eps))
    np.multiply(x, reciprocal, out=out)
    if gain is not None:
        np.multiply(out, gain[:, np.newaxis], out=out)


# The table --------------------------------------------------------------------------------------

CODES = {"format": "bfloat16"}
ALONG_0 = {"axis": 0}


def scalings(
    function: str,
    arrays: Callable[[str], Callable[[int], Arrays]],
    along_0: Callable[[int], Arrays],
) -> list[Problem]:
    """Problems of a function that reads x and writes as much."""
    scaling = functools.partial(Problem, function=function, ceiling="copy")
    single = arrays("float32")
    numpy = {"numpy": numpy_scaled}
    return [
        scaling(f"{function} float32", arrays=single, peers=numpy),
        scaling(f"{function} float64", arrays=arrays("float64"), peers=numpy),
        scaling(
            f"{function} float16", arrays=arrays("float16"), peers={"numpy": numpy_half_scaled}
        ),
        scaling(
            f"{function} bfloat16",
            arrays=arrays("bfloat16"),
            peers={"numpy": numpy_codes_scaled},
            options=CODES,
        ),
        scaling(f"{function} float32 in place", arrays=single, peers=numpy, out="x"),
        scaling(
            f"{function} float32 axis=0",
            arrays=along_0,
            peers={"numpy": numpy_scaled_columns},
            options=ALONG_0,
        ),
        scaling(
            f"{function} float32 without out",
            arrays=single,
            peers={"x.copy()": lambda x, **_gain: x.copy()},
            out="new",
        ),
    ]


PROBLEMS = [
    Problem("rms float32 rows", "rms", rows("float32"), {"numpy": numpy_rows}),
    Problem("rms float32 one long row", "rms", long_row, {"numpy": numpy_all}),
    Problem("rms float32 axis=None", "rms", rows("float32"), {"numpy": numpy_all}, {"axis": None}),
    Problem("rms float64 rows", "rms", rows("float64"), {"numpy": numpy_rows}),
    Problem("rms float16 rows", "rms", rows("float16"), {"numpy": numpy_half_rows}),
    Problem("rms bfloat16 rows", "rms", rows("bfloat16"), {"numpy": numpy_codes_rows}, CODES),
    Problem("rms int16 rows", "rms", rows("int16"), {"numpy": numpy_integer_rows}),
    Problem("rms float32 axis=0", "rms", rows("float32"), {"numpy": numpy_columns}, ALONG_0),
    Problem("rms float32 transposed", "rms", transposed, {"numpy": numpy_transposed}),
    Problem("rms float32 8 x 64", "rms", small, {"numpy": numpy_small}, ceiling=None, out="new"),
    Problem("rms float32 where", "rms", masked, {"numpy": numpy_where}),
    Problem("rms float32 weights", "rms", weighted, {"numpy": numpy_weights}, bound=2.0),
    Problem("rms float32 omit", "rms", with_missing, {"numpy": numpy_omit}, {"nan_policy": "omit"}),
    Problem("rmse float32", "rmse", pairs("float32"), {"numpy": numpy_pairs}),
    Problem("rmse float64", "rmse", pairs("float64"), {"numpy": numpy_pairs}),
    Problem("rmse float16", "rmse", pairs("float16"), {"numpy": numpy_half_pairs}),
    Problem("rmse bfloat16", "rmse", pairs("bfloat16"), {"numpy": numpy_codes_pairs}, CODES),
    *scalings("unit_rms", rows, rows("float32")),
    *scalings("rms_norm", with_gain, tall),
]
