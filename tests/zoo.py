"""An array zoo: every dtype, memory layout and kind of value that the package has to answer for.

    @pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
    @pytest.mark.parametrize("values", PROFILES)
    @pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
    def test_rms_any_layout_gives_same_bits(dtype, values, layout):
        view = layout(make((3, 5), dtype, values))
        assert_same_bits(rms(view), rms(plain(view)))

or, for shapes, dtypes, layouts and bit patterns that nobody thought of,

    @given(arrays())
    def test_rms_any_array_gives_same_bits(view):
        assert_same_bits(rms(view), rms(plain(view)))
"""

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

Array = NDArray[Any]

BOOLEAN = [np.dtype(bool)]
INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")]
COMPLEX = [np.dtype(name) for name in ("complex64", "complex128")]
NARROW = [np.dtype(getattr(ml_dtypes, n)) for n in ("bfloat16", "float8_e4m3fn", "float8_e5m2")]
DTYPES = BOOLEAN + INTEGERS + FLOATS + COMPLEX + NARROW

SHAPES = [(), (1,), (7,), (3, 5), (5, 1), (2, 3, 4), (2, 3, 1, 5)]


def name_of(dtype: np.dtype[Any]) -> str:
    """Readable test id (ml_dtypes dtypes have no telling `str`)."""
    return np.dtype(dtype).name


# Values -----------------------------------------------------------------------------------------

PROFILES = ("normal", "nan", "inf", "subnormal", "huge", "zeros")


def profiles_of(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Kinds of value a dtype can hold: integers have no NaN, float8_e4m3fn has no infinity."""
    if dtype.kind in "biu":
        return ("normal", "huge", "zeros")
    return tuple(p for p in PROFILES if p != "inf" or dtype.name != "float8_e4m3fn")


CASES = [(dtype, profile) for dtype in DTYPES for profile in profiles_of(dtype)]
CASE_IDS = [f"{name_of(dtype)}-{profile}" for dtype, profile in CASES]


def make(shape: Sequence[int], dtype: Any, profile: str = "normal", seed: int = 0) -> Array:
    """Array of a dtype holding one kind of value, the same for the same arguments.

    "nan" and "inf" are normal values, about every third of them replaced, infinities of either
    sign; "subnormal" lies below the smallest normal number, "huge" up to the largest number;
    "zeros" has both signs of zero.
    """
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(seed)
    if dtype.kind == "c":
        part = np.dtype(f"float{4 * dtype.itemsize}")
        result = np.empty(tuple(shape), dtype)
        result.real = make(shape, part, profile, seed)
        result.imag = make(shape, part, profile, seed + 1)
        return result
    if dtype.kind in "biu":
        return _whole_numbers(rng, tuple(shape), dtype, profile)
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    signs = rng.choice([-1.0, 1.0], size=tuple(shape))
    values: Array
    match profile:
        case "zeros":
            values = 0.0 * signs
        case "subnormal":
            steps = rng.integers(1, min(2**50, round(1 / float(info.eps))), size=tuple(shape))
            values = signs * steps * float(info.smallest_subnormal)
        case "huge":
            values = signs * float(info.max) * rng.uniform(0.5, 1.0, size=tuple(shape))
        case "normal" | "nan" | "inf":
            values = rng.standard_normal(tuple(shape))
        case _:
            raise ValueError(f"make: unknown profile {profile!r}")
    values = np.asarray(values)
    if profile in ("nan", "inf"):
        special = np.nan if profile == "nan" else np.inf
        replaced = np.arange(values.size).reshape(values.shape) % 3 == 0
        values = np.where(replaced, special * signs, values)
    return values.astype(dtype)


def _whole_numbers(rng: np.random.Generator, shape: Any, dtype: Any, profile: str) -> Array:
    if profile == "zeros":
        return np.zeros(shape, dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, size=shape) > 0)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if profile == "huge":
        return np.asarray(rng.choice(np.array([low, high, high - 1], dtype), size=shape))
    return np.asarray(rng.integers(max(low, -100), 101, size=shape)).astype(dtype)


# Layouts ----------------------------------------------------------------------------------------


def plain(array: Array) -> Array:
    """Independent copy: same values, C order, native byte order, aligned, writeable."""
    return np.array(array, array.dtype.newbyteorder("="), order="C", copy=True)


def fortran(array: Array) -> Array:
    """First axis fastest, last axis slowest."""
    return np.array(array, order="F")


def strided(array: Array) -> Array:
    """Every second element of the last axis of something larger."""
    wide = np.repeat(array[..., None], 2, axis=-1)
    wide[..., 1] = np.ones((), array.dtype)
    return wide[..., 0]


def reversed_(array: Array) -> Array:
    """Negative strides on every axis."""
    backwards = (slice(None, None, -1),) * array.ndim
    return np.array(array[backwards])[backwards] if array.ndim else array


def transposed(array: Array) -> Array:
    """First axis fastest, the others as in C order."""
    if array.ndim < 2:
        return array
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 0, -1)), -1, 0)


def repeated(array: Array) -> Array:
    """First row repeated with stride 0. The one layout whose values differ from its argument."""
    return np.broadcast_to(array[:1], array.shape) if array.ndim else array


def read_only(array: Array) -> Array:
    """Not writeable."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def unaligned(array: Array) -> Array:
    """One byte off any alignment."""
    memory = np.empty(array.nbytes + 1, np.uint8)
    view = np.ndarray(array.shape, array.dtype, memory, offset=1)
    view[...] = array
    return view


def byte_swapped(array: Array) -> Array:
    """Foreign byte order (ml_dtypes know but the native one)."""
    if array.dtype in NARROW:
        return array
    return array.astype(array.dtype.newbyteorder("S"))


Layout = Callable[[Array], Array]

LAYOUTS: dict[str, Layout] = {
    "c": plain,
    "fortran": fortran,
    "strided": strided,
    "reversed": reversed_,
    "transposed": transposed,
    "repeated": repeated,
    "read_only": read_only,
    "unaligned": unaligned,
    "byte_swapped": byte_swapped,
}


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Same type, dtype, shape and bytes: tells -0 from 0 and compares NaN too."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    assert actual.tobytes() == expected.tobytes(), f"{actual!r} is not {expected!r}"


# Strategies -------------------------------------------------------------------------------------


@st.composite
def arrays(
    draw: st.DrawFn,
    *,
    dtypes: Sequence[np.dtype[Any]] = tuple(DTYPES),
    layouts: Sequence[str] = tuple(LAYOUTS),
    min_dims: int = 0,
    max_dims: int = 4,
    min_side: int = 1,
    max_side: int = 6,
    finite: bool = False,
) -> Array:
    """Arrays of any dtype in any layout, drawn over all bit patterns (or over the finite ones)."""
    dtype = draw(st.sampled_from(list(dtypes)))
    shape = draw(
        hnp.array_shapes(min_dims=min_dims, max_dims=max_dims, min_side=min_side, max_side=max_side)
    )
    array = draw(contents(dtype, shape, finite=finite))
    return LAYOUTS[draw(st.sampled_from(list(layouts)))](array)


def contents(
    dtype: np.dtype[Any], shape: tuple[int, ...], *, finite: bool = False
) -> st.SearchStrategy[Array]:
    """C-contiguous arrays of one dtype and shape."""
    if dtype not in NARROW:
        elements = {"allow_nan": False, "allow_infinity": False} if finite else None
        if dtype.kind in "biu":
            elements = None
        return hnp.arrays(dtype, shape, elements=elements)
    codes = np.dtype(f"uint{8 * dtype.itemsize}")
    allowed = np.arange(2 ** (8 * dtype.itemsize), dtype=codes)
    if finite:
        allowed = allowed[np.isfinite(allowed.view(dtype).astype(np.float32))]
    picks = hnp.arrays(np.intp, shape, elements=st.integers(0, len(allowed) - 1))
    return picks.map(lambda index: np.asarray(allowed[index]).view(dtype))
