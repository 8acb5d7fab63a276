"""Storage formats: how each is named, viewed by the kernels, and what its results are."""

import sys
from functools import lru_cache

import numpy as np

# Floats that NumPy or Numba cannot compute with travel as records of their code, whose
# one field is named after the format.
CODES = {
    "float16": np.dtype(np.uint16),
    "bfloat16": np.dtype(np.uint16),
    "float8_e4m3fn": np.dtype(np.uint8),
    "float8_e5m2": np.dtype(np.uint8),
}
NARROW = frozenset(CODES) | {"float32", "complex64"}
SMALL_INTEGERS = frozenset({"bool", "int8", "uint8", "int16", "uint16"})
NUMPY = SMALL_INTEGERS | {
    "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128",
}  # fmt: skip


@lru_cache(maxsize=256)
def kind_of(dtype: np.dtype, format: str | None) -> str | None:
    """Name of the storage format of an array, None if there is none of that kind."""
    if format is not None:
        codes = CODES[format]
        fits = dtype.kind in "uV" and dtype.itemsize == codes.itemsize and dtype.names is None
        return format if fits or dtype.name == format else None
    # One name a platform: int64 is both `long` and `long long`, and each prints as itself.
    name = dtype.name if dtype.kind not in "iu" else f"{'u' * (dtype.kind == 'u')}int{8 * dtype.itemsize}"
    if name in NUMPY:
        return name
    return name if name in CODES and dtype.itemsize == CODES[name].itemsize else None


@lru_cache(maxsize=64)
def kernel_dtype(kind: str) -> np.dtype:
    """The native dtype as which the kernels see a storage format."""
    if kind == "hidden":  # a mask whose True leaves out
        return np.dtype([(kind, np.uint8)])
    return np.dtype([(kind, CODES[kind])]) if kind in CODES else np.dtype(kind)


def result_kind(kinds: tuple[str, ...]) -> str:
    """Default result format of a reduction: float32 if all input is narrower than float64."""
    return "float32" if NARROW.issuperset(kinds) else "float64"


def ml_dtype(function: str, kind: str) -> np.dtype:
    """The NumPy dtype of a storage format, from ml_dtypes where NumPy has none."""
    if kind not in CODES or kind == "float16":
        return np.dtype(kind)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(
            f"{function}: a {kind} array needs the package ml_dtypes (pip install 'rmsfast[formats]')"
        ) from None
    return np.dtype(getattr(ml_dtypes, kind))


def from_torch(x: object) -> tuple[np.ndarray, str | None] | None:
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
