"""The calls that are timed, in one table at the end: function, arrays, ceiling and exact answer.

Arrays go by the names of the parameters; the first is the one that is meant where a size is given.
A problem whose function is not in the package is an absent row, not a failure.
"""

import functools
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

import rmsfast
from rmsfast import hardware

__all__ = ["PROBLEMS", "Case", "Problem", "largest_error", "prepare"]

Array = NDArray[Any]
Arrays = dict[str, Array]

COLUMNS = 1024
LEAST_ROWS = 8  # of an array of less than 1024 columns
BLOCK_ROWS = 4096  # drawn at random once, then repeated: an array is made in a moment
SAMPLE = 4  # rows of an answer that are checked
ALPHA = 0.03  # of a dosed edit
CHANNELS, WINDOW = 384, 4096  # of a recording; times of its windows
LONG = 1 << 17  # coordinates from which rational arithmetic takes too long
# format: (bits of precision, exponent of the smallest subnormal)
FORMATS = {
    "float64": (53, -1074),
    "float32": (24, -149),
    "float16": (11, -24),
    "bfloat16": (8, -133),
}


@dataclass(frozen=True, eq=False)  # told apart, and hashed, by identity
class Problem:
    """One row of a table of results."""

    function: str
    dtype: str
    layout: str  # what else there is to the arrays and the options
    arrays: Callable[[int], Arrays]  # made from the bytes of the first
    exact: Callable[..., list[Fraction]]  # the answer for one row of each array
    operations: int  # useful ones, for each coordinate
    options: Mapping[str, Any] = field(default_factory=dict)
    ceiling: hardware.Kind = "read"
    out: Literal["new", "again", "x"] = "new"  # where a timed call writes; again: to one array
    answer: Callable[[Any], Any] = lambda result: result  # what of a result is checked
    bound: float = 0.51  # ulps

    @property
    def name(self) -> str:
        """What the row is called."""
        return f"{self.function} {self.dtype} {self.layout}"


class Case(NamedTuple):
    """A problem with its arrays made and its answer known: a call that is ready to be timed."""

    call: Callable[[], object]
    arrays: Arrays  # with `out`, where the call writes to one
    nbytes: int  # counted in one call
    error: float  # the largest in a sample of rows, in ulps; NaN if it was not asked for


def prepare(problem: Problem, nbytes: int) -> Case:
    """Make the arrays, the first of a size, and measure the error of the answer."""
    return case_of(problem, problem.arrays(nbytes))


def case_of(problem: Problem, arrays: Arrays, *, check: bool = True) -> Case:
    """Make the call that is to be timed, and measure the error of the answer if asked for."""
    arrays = dict(arrays)  # the output is that of this case alone
    function = getattr(rmsfast, problem.function)
    positional, named = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in arrays:
            if parameter.kind == parameter.KEYWORD_ONLY:
                named[name] = arrays[name]
            else:
                positional.append(arrays[name])
    call = functools.partial(function, *positional, **named, **problem.options)
    answer: Any = problem.answer(call()) if check or problem.out == "again" else None
    error = largest_error(problem, arrays, answer) if check else math.nan
    first = next(iter(arrays.values()))
    if problem.out != "new":
        arrays["out"] = first if problem.out == "x" else answer
        call = functools.partial(call, out=arrays["out"])
    return Case(call, arrays, counted(problem, arrays), error)


def counted(problem: Problem, arrays: Arrays) -> int:
    """Bytes of a call: of each array read once, or of the first read and written."""
    if problem.ceiling == "copy":
        return 2 * next(iter(arrays.values())).nbytes
    return sum(array.nbytes for name, array in arrays.items() if name != "out")


def largest_error(problem: Problem, arrays: Arrays, answer: Any) -> float:
    """Error of a sample of rows of an answer, in ulps of its format."""
    axis = problem.options.get("axis", -1)
    first = next(iter(arrays.values()))
    scaled = np.shape(answer) == first.shape
    precision, least = FORMATS[problem.dtype if scaled else str(answer.dtype)]
    count = len(as_rows(first, axis))
    errors = []
    for row in np.linspace(0, count - 1, min(count, SAMPLE)).astype(int):
        given = {
            name: decode(as_rows(array, axis)[row] if array.shape == first.shape else array)
            for name, array in arrays.items()
            if name != "out"
        }
        several = np.ndim(answer) == first.ndim  # a value for each coordinate, or window
        got = decode(as_rows(answer, axis)[row]) if several else np.ravel(answer)[[row]]
        for value, exact in zip(got.tolist(), problem.exact(**given), strict=True):
            unit = max(math.frexp(float(exact))[1] - precision, least)
            errors.append(distance(value, exact, unit) if math.isfinite(value) else math.inf)
    return max(errors)


def distance(value: float, exact: Fraction, unit: int) -> float:
    """|value - exact| / 2**unit, in integers, which need no common divisors."""
    top, bottom = value.as_integer_ratio()
    apart = abs(top * exact.denominator - bottom * exact.numerator)
    return (apart << max(0, -unit)) / (bottom * exact.denominator << max(0, unit))


def as_rows(array: Array, axis: int | None) -> Array:
    """View whose rows are the vectors along an axis."""
    if axis is None or array.ndim == 1:
        return array.reshape(1, -1)
    return array.T if axis == 0 else array


def decode(array: Array) -> Array:
    """Values of an array of bfloat16 codes; other arrays as they are."""
    return widen(array) if array.dtype == np.uint16 else array


def widen(codes: Array) -> Array:
    """Float32 values of bfloat16 codes, in the way that NumPy does fastest."""
    halves = np.zeros((*codes.shape, 2), np.uint16)
    halves[..., 1] = codes  # little-endian
    return halves.view(np.float32)[..., 0]


def narrow(values: Array) -> Array:
    """Float32 values cut off to bfloat16 codes."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


# Exact answers for one row of each array ----------------------------------------------------------


def root(square: Fraction) -> Fraction:
    """Square root to 150 bits."""
    shift = 150 + max(0, square.denominator.bit_length() - square.numerator.bit_length())
    return Fraction(math.isqrt((square.numerator << 2 * shift) // square.denominator), 1 << shift)


def whole(*arrays: Array) -> tuple[list[list[int]], int]:
    """Numbers of some arrays as integers, and by what they have been multiplied.

    Sums of integers take a tenth of the time of those of fractions.
    """
    ratios = [[value.as_integer_ratio() for value in array.tolist()] for array in arrays]
    unit = max((denominator for row in ratios for _, denominator in row), default=1)
    return [[top * (unit // bottom) for top, bottom in row] for row in ratios], unit


def mean_square(x: Array, weights: Array | None = None) -> Fraction:
    """Mean of the squares, with weights or without."""
    [numbers], unit = whole(x)
    [heavy], _ = whole(np.ones(x.size, np.int8) if weights is None else weights)
    total = sum(weight * number * number for weight, number in zip(heavy, numbers, strict=True))
    return Fraction(total, unit * unit * sum(heavy))


def exact_rms(x: Array, where: Array | None = None, weights: Array | None = None) -> list[Fraction]:
    """Root of the mean of the squares kept; NaN is left out."""
    if x.size >= LONG:
        return [root(sum_of_many_squares(x) / x.size)]
    kept = ~np.isnan(x) if where is None else where & ~np.isnan(x)
    return [root(mean_square(x[kept], None if weights is None else weights[kept]))]


def sum_of_many_squares(x: Array) -> Fraction:
    """Sum of the squares of float32 numbers, to 1e-15: 1e-8 ulps of a float32 root.

    The squares are exact in float64; NumPy adds each part pairwise and fsum the parts exactly.
    """
    if x.dtype != np.float32:
        raise TypeError(f"sum_of_many_squares: x must be float32, got {x.dtype}")
    parts = np.array_split(x.ravel(), x.size // LONG)
    return Fraction(math.fsum(float(np.square(part, dtype=np.float64).sum()) for part in parts))


def exact_windows(hop: int, x: Array) -> list[Fraction]:
    """RMS of windows of integers, of which the last may be cut."""
    sums = [0, *np.cumsum(np.square(x, dtype=np.int64)).tolist()]
    starts = range(0, max(len(x) - WINDOW, 0) + hop, hop)
    ends = [min(start + WINDOW, len(x)) for start in starts]
    pairs = zip(starts, ends, strict=True)
    return [root(Fraction(sums[end] - sums[start], end - start)) for start, end in pairs]


def exact_rmse(x: Array, x_hat: Array) -> list[Fraction]:
    """Root of the mean of the squared differences."""
    rows, unit = whole(x, x_hat)
    total = sum((a - b) ** 2 for a, b in zip(*rows, strict=True))
    return [root(Fraction(total, unit * unit * x.size))]


def exact_unit_rms(x: Array) -> list[Fraction]:
    """Coordinates over their RMS."""
    [rms] = exact_rms(x)
    return [Fraction(value) / rms for value in x.tolist()]


def exact_rms_norm(x: Array, gain: Array, eps: float = 1e-6) -> list[Fraction]:
    """Coordinates times their gain, over the root of their mean square plus eps."""
    size = root(mean_square(x) + Fraction(eps))
    pairs = zip(x.tolist(), gain.tolist(), strict=True)
    return [Fraction(value) * Fraction(factor) / size for value, factor in pairs]


def exact_after_dose(dtype: str, h: Array, direction: Array) -> list[Fraction]:
    """Coordinates plus the edit that was asked for, rounded to float32 and to the format."""
    [rms], [length] = exact_rms(h), exact_rms(direction)
    scale = Fraction(ALPHA) * rms / length
    edits = np.array([float(scale * Fraction(value)) for value in direction.tolist()], np.float32)
    if dtype == "bfloat16":
        bits = edits.view(np.uint32)
        edits = widen((bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16))
    pairs = zip(h.tolist(), edits.tolist(), strict=True)
    return [Fraction(value) + Fraction(edit) for value, edit in pairs]


# Arrays -----------------------------------------------------------------------------------------


def draw(nbytes: int, dtype: str, seed: int = 0) -> Array:
    """Standard normal rows in a format, or int16 rows over the whole range.

    Rows have 1024 coordinates, or fewer so that there are eight.
    """
    block = drawn(dtype, seed)
    columns = min(COLUMNS, max(1, nbytes // (LEAST_ROWS * block.itemsize)))
    shape = (max(1, nbytes // (block.itemsize * columns)), columns)
    return np.resize(block[: min(shape[0], BLOCK_ROWS) * columns], shape)


@functools.cache
def drawn(dtype: str, seed: int) -> Array:
    """Values of a block of rows."""
    rng = np.random.default_rng(seed)
    count = BLOCK_ROWS * COLUMNS
    if dtype == "int16":
        return rng.integers(-(2**15), 2**15, count, dtype=np.int16)
    if dtype == "float64":
        return rng.standard_normal(count)
    single = rng.standard_normal(count, dtype=np.float32)
    return narrow(single) if dtype == "bfloat16" else single.astype(dtype)


@functools.cache  # problems with the same arrays have the same function that makes them
def rows(dtype: str) -> Callable[[int], Arrays]:
    """One array of rows."""
    return lambda nbytes: {"x": draw(nbytes, dtype)}


@functools.cache
def pairs(dtype: str) -> Callable[[int], Arrays]:
    """Two arrays of rows."""
    return lambda nbytes: {"x": draw(nbytes, dtype), "x_hat": draw(nbytes, dtype, seed=1)}


@functools.cache
def with_gain(dtype: str, axis: int = -1, least: float = 0.5) -> Callable[[int], Arrays]:
    """One array of rows, and a gain for each coordinate along an axis."""

    def make(nbytes: int) -> Arrays:
        x = draw(nbytes, dtype)
        gain = np.linspace(least, 1 / least, x.shape[axis])
        return {"x": x, "gain": gain.astype("float32" if dtype == "bfloat16" else dtype)}

    return make


def long_row(nbytes: int) -> Arrays:
    """One vector."""
    return {"x": draw(nbytes, "float32").ravel()}


def transposed(nbytes: int) -> Arrays:
    """Vectors that lie side by side in memory: the transposed view of long rows."""
    x = draw(nbytes, "float32")
    return {"x": x.reshape(x.shape[::-1]).T}


def masked(nbytes: int) -> Arrays:
    """Rows of which 70 % are kept."""
    x = draw(nbytes, "float32")
    return {"x": x, "where": np.resize(np.random.default_rng(1).random(1 << 20) < 0.7, x.shape)}


def weighted(nbytes: int) -> Arrays:
    """Rows with weights between 0 and 1."""
    x = draw(nbytes, "float32")
    weights = np.random.default_rng(1).random(1 << 20, dtype=np.float32)
    return {"x": x, "weights": np.resize(weights, x.shape)}


@functools.cache
def with_direction(dtype: str) -> Callable[[int], Arrays]:
    """Rows, and one direction for all of them."""

    def make(nbytes: int) -> Arrays:
        h = draw(nbytes, dtype)
        return {"h": h, "direction": np.linspace(-1.0, 2.0, h.shape[-1], dtype=np.float32)}

    return make


def recording(nbytes: int) -> Arrays:
    """Channels side by side, time after time, of whole windows where there are some."""
    times = max(1, nbytes // (2 * CHANNELS))
    times -= times % WINDOW if times > WINDOW else 0
    return {"x": np.resize(draw(min(nbytes, 1 << 23), "int16"), (times, CHANNELS))}


def with_missing(nbytes: int) -> Arrays:
    """Rows of which 1 % is NaN."""
    x = draw(nbytes, "float32")
    x[np.resize(np.random.default_rng(1).random(1 << 20) < 0.01, x.shape)] = np.nan
    return {"x": x}


# The table --------------------------------------------------------------------------------------


def options_of(dtype: str) -> dict[str, Any]:
    """What a call needs to be told about arrays of a format."""
    return {"format": "bfloat16"} if dtype == "bfloat16" else {}


def scalings(
    function: str,
    arrays: Callable[..., Callable[[int], Arrays]],
    exact: Callable[..., list[Fraction]],
    operations: int,
) -> list[Problem]:
    """Problems of a function that reads x and writes as much."""
    scaling = functools.partial(
        Problem, function, exact=exact, operations=operations, ceiling="copy", out="again"
    )
    single = functools.partial(scaling, dtype="float32", arrays=arrays("float32"))
    columns = steady = arrays("float32")
    if arrays is with_gain:
        columns, steady = arrays("float32", axis=0), arrays("float32", least=1.0)
    return [
        *(
            scaling(dtype=dtype, layout="rows", arrays=arrays(dtype), options=options_of(dtype))
            for dtype in ("float32", "float64", "float16", "bfloat16")
        ),
        single(layout="in place", arrays=steady, out="x"),  # call after call, values must not fade
        single(layout="axis=0", arrays=columns, options={"axis": 0}),
        single(layout="without out", out="new"),
    ]


rms = functools.partial(Problem, "rms", exact=exact_rms, operations=2)
rmse = functools.partial(Problem, "rmse", exact=exact_rmse, operations=3)

PROBLEMS = [
    *(
        rms(dtype, "rows", rows(dtype), options=options_of(dtype))
        for dtype in ("float32", "float64", "float16", "bfloat16", "int16")
    ),
    rms("float32", "one long row", long_row),
    rms("float32", "axis=None", rows("float32"), options={"axis": None}),
    rms("float32", "axis=0", rows("float32"), options={"axis": 0}),
    rms("float32", "transposed", transposed),
    rms("float32", "where", masked),
    rms("float32", "weights", weighted, operations=3, bound=2.0),
    rms("float32", "omit", with_missing, options={"nan_policy": "omit"}),
    *(
        rmse(dtype, "rows", pairs(dtype), options=options_of(dtype))
        for dtype in ("float32", "float64", "float16", "bfloat16")
    ),
    *scalings("unit_rms", rows, exact_unit_rms, operations=3),
    *scalings("rms_norm", with_gain, exact_rms_norm, operations=4),
    *(
        Problem(
            "describe",
            dtype,
            "rows",
            rows(dtype),
            exact_rms,
            operations=7,  # two sums, a square, least, greatest, largest, zeros
            options=options_of(dtype),
            answer=operator.attrgetter("rms"),
        )
        for dtype in ("float32", "bfloat16")
    ),
    *(
        Problem(
            "compare",
            dtype,
            "rows",
            pairs(dtype),
            exact_rmse,
            operations=12,  # a difference, five sums, four products, largest, equals
            options=options_of(dtype),
            answer=operator.attrgetter("rmse"),
        )
        for dtype in ("float32", "bfloat16")
    ),
    *(
        Problem(
            "rms_windows",
            "int16",
            layout,
            recording,
            functools.partial(exact_windows, hop),
            operations=2,
            options={"window": WINDOW, "hop": hop, "axis": 0, "edge": "partial"},
        )
        for layout, hop in (("end to end", WINDOW), ("hop of 1/8", WINDOW // 8))
    ),
    *(
        Problem(
            "apply_dose",
            dtype,
            layout,
            with_direction(dtype),
            functools.partial(exact_after_dose, dtype),
            operations=operations,
            options=options_of(dtype) | {"alpha": ALPHA, "report": report},
            ceiling="copy",
            out="again",
            answer=operator.attrgetter("after"),
        )
        for dtype, layout, report, operations in (
            ("float32", "rows", "none", 4),
            ("bfloat16", "rows", "none", 4),
            ("bfloat16", "reported", "rows", 25),  # nine sums, as many products, two largest
        )
    ),
]
