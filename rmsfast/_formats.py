"""Storage formats: how each is named, viewed by the kernels, and what its results are."""

import sys
from functools import lru_cache
from typing import Any

import numpy as np

from rmsfast._extras import needed

# Floats that NumPy or Numba cannot compute with travel to kernels and .npy files as records of
# their code, whose one field is named after the format.
CODES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.uint16),
    "bfloat16": np.dtype(np.uint16),
    "float8_e4m3fn": np.dtype(np.uint8),
    "float8_e5m2": np.dtype(np.uint8),
}
NARROW = frozenset(CODES) | {"float32", "complex64"}
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float8_e4m3fn": 0.125, "float8_e5m2": 0.25}
SMALL_BYTES = 1 << 16  # arrays that are cheaper to convert than to compile for
SMALL_INTEGERS = frozenset({"bool", "int8", "uint8", "int16", "uint16"})
INTEGERS = SMALL_INTEGERS | {"int32", "uint32", "int64", "uint64"}
NUMPY = INTEGERS | {"float16", "float32", "float64", "complex64", "complex128"}


@lru_cache(maxsize=256)
def kind_of(dtype: np.dtype, format: str | None) -> str | None:
    """Name of the storage format of an array, None if there is none of that kind."""
    record = record_kind(dtype)
    if format is not None:
        codes = CODES[format]
        fits = dtype.kind in "uV" and dtype.itemsize == codes.itemsize and dtype.names is None
        return format if fits or format in (dtype.name, record) else None
    if record is not None:
        return record
    # One name a platform: int64 is both `long` and `long long`, and each prints as itself.
    name = (
        dtype.name
        if dtype.kind not in "iu"
        else f"{'u' * (dtype.kind == 'u')}int{8 * dtype.itemsize}"
    )
    if name in NUMPY:
        return name
    return name if name in CODES and dtype.itemsize == CODES[name].itemsize else None


def named(format: Any) -> Any:
    """The name of a storage format given as a dtype, of torch too; anything else as it is."""
    if format is None or isinstance(format, str):
        return format
    if str(format).startswith("torch."):
        return str(format).removeprefix("torch.")
    try:
        return kind_of(np.dtype(format), None) or format
    except (TypeError, ValueError):
        return format


def record_kind(dtype: np.dtype) -> str | None:
    """The format that the one field of a record is named after, as in .npy files; else None."""
    if dtype.names is None or len(dtype.names) != 1 or dtype.itemsize > 2:
        return None
    (name,) = dtype.names
    return name if dtype[name].newbyteorder("=") == CODES.get(name) else None


@lru_cache(maxsize=64)
def kernel_dtype(kind: str) -> np.dtype:
    """The native dtype as which the kernels see a storage format."""
    if kind == "hidden":  # a mask whose True leaves out
        return np.dtype([(kind, np.uint8)])
    return np.dtype([(kind, CODES[kind])]) if kind in CODES else np.dtype(kind)


def result_kind(kinds: tuple[str, ...]) -> str:
    """Default result format of a reduction: float32 if all input is narrower than float64."""
    return "float32" if NARROW.issuperset(kinds) else "float64"


def common(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Formats that hold the same values and that fewer kernels serve: for small arrays.

    The bits of a result do not depend on it: whatever the kernels read is float64 to them.
    """
    if NARROW.issuperset(kinds) and "complex64" not in kinds:
        return ("float32",) * len(kinds)
    keep = {"int64", "uint64", "float64", "complex64", "complex128"}
    return tuple(k if k in keep else "float64" for k in kinds)


def cast(
    arrays: list[np.ndarray], kinds: tuple[str, ...], wanted: tuple[str, ...]
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    """Arrays in other formats that hold all their values."""
    found = []
    for a, kind, to in zip(arrays, kinds, wanted, strict=True):
        a = a if kind == to else decoded(a, kind)
        with np.errstate(invalid="ignore"):  # of signalling NaN
            found.append(a.astype(to, copy=False))
    return found, wanted


def decoded(array: np.ndarray, kind: str) -> np.ndarray:
    """An array that NumPy can compute with, of the same values."""
    if kind not in CODES:
        return array
    codes = array.view(CODES[kind].newbyteorder("=" if array.dtype.isnative else "S"))
    codes = codes.astype(CODES[kind])
    if kind == "float8_e5m2":  # the upper byte of a float16
        return (codes.astype(np.uint16) << 8).view(np.float16)
    if kind == "bfloat16":
        return (codes.astype(np.uint32) << 16).view(np.float32)
    if kind == "float16":
        return codes.view(np.float16)
    half = ((codes & 0x80).astype(np.uint16) << 8) | ((codes & 0x7F).astype(np.uint16) << 7)
    values = half.view(np.float16).astype(np.float32) * np.float32(
        256
    )  # exponent bias 7 read as 15
    return np.where((codes & 0x7F) == 0x7F, np.copysign(np.float32(np.nan), values), values)


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Float64 rounded once, to nearest even; ml_dtypes alone would go by way of float32."""
    with np.errstate(all="ignore"):
        if dtype.itemsize < 4 and dtype != np.float16 and values.dtype == np.float64:
            single = values.astype(np.float32)
            back = single.astype(np.float64)
            # Made odd where it is not exact, float32 tells the second rounding its side.
            bits = single.view(np.uint32) - (np.abs(back) > np.abs(values))
            bits |= (back != values) & np.isfinite(values)
            values = bits.astype(np.uint32).view(np.float32)
        return values.astype(dtype)


def ml_dtype(function: str, kind: str) -> np.dtype:
    """The NumPy dtype of a storage format, from ml_dtypes where NumPy has none."""
    if kind not in CODES or kind == "float16":
        return np.dtype(kind)
    ml_dtypes = needed(f"{function}: a {kind} array", "ml_dtypes", "formats")
    found: np.dtype = np.dtype(getattr(ml_dtypes, kind))
    return found


def scaled_dtype(function: str, dtype: np.dtype, kind: str, format: str | None) -> np.dtype:
    """The dtype of a result in the format of an array: codes and records stay what they are."""
    if dtype.names is not None or (format is not None and dtype.kind in "uV"):
        return dtype.newbyteorder("=")
    return ml_dtype(function, kind)


def from_torch(x: Any) -> tuple[np.ndarray, str | None] | None:
    """A CPU tensor as an array on the same memory and its format, None for other objects."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(x, torch.Tensor):
        return None
    names = {
        torch.bfloat16: ("bfloat16", torch.int16),
        torch.float8_e4m3fn: ("float8_e4m3fn", torch.uint8),
        torch.float8_e5m2: ("float8_e5m2", torch.uint8),
    }
    x = x.detach().resolve_conj().resolve_neg()
    if x.dtype not in names:
        return x.numpy(), None
    name, codes = names[x.dtype]
    return x.view(codes).numpy().view(CODES[name]), name
