"""Tensors of `.safetensors` files, single or in shards that an index lists."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmsfast.files._npy import check_size
from rmsfast.files._tensors import File, Tensor, brief, mapped

DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
    "BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1",
}  # fmt: skip
FORMATS = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
_HEADER_LIMIT = 100_000_000  # what the format allows
_INDEX_LIMIT = 100_000_000


def safetensors_tensors(path: Path) -> list[Tensor]:
    """The tensors of a `.safetensors` file, in the order in which it stores them."""
    file = File.of(path)
    if file.size < 8:
        raise ValueError(f"truncated: {file.size} bytes are too few for a safetensors header")
    begin = 8 + int.from_bytes(file.map(0, 8), "little")
    if begin > file.size:
        raise ValueError(
            f"truncated or not safetensors: the header takes {begin} bytes, "
            f"the file has {file.size}"
        )
    if begin > 8 + _HEADER_LIMIT:
        raise ValueError(f"header must be at most {_HEADER_LIMIT} bytes, got {begin - 8}")
    header = _json_object(file, 8, begin, "safetensors header")
    header.pop("__metadata__", None)

    entries = [_entry(name, value) for name, value in header.items()]
    entries.sort(key=lambda entry: (entry.first, entry.last))
    position = 0  # the format allows neither overlaps nor holes
    for entry in entries:
        if entry.first != position:
            fault = "overlaps" if entry.first < position else "leaves a hole after"
            raise ValueError(f"tensor {entry.tensor.name!r} {fault} the one before it")
        position = entry.last
    check_size(f"data of {len(entries)} tensors", position, file.size - begin)
    return [
        mapped(entry.tensor, file, begin + entry.first, entry.dtype) if entry.dtype
        else entry.tensor
        for entry in entries
    ]  # fmt: skip


def index_tensors(path: Path) -> list[Tensor]:
    """The tensors that the index of sharded `.safetensors` files lists, shard after shard."""
    file = File.of(path)
    if file.size > _INDEX_LIMIT:
        raise ValueError(f"index must be at most {_INDEX_LIMIT} bytes, got {file.size}")
    places = _json_object(file, 0, file.size, "index").get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(p, str) for p in places.values()):
        raise ValueError("index must have a weight_map from tensors to files")
    found = []
    for shard in sorted(set(places.values())):
        if Path(shard).name != shard or Path(shard).suffix != ".safetensors":
            raise ValueError(f"index must name .safetensors files beside it, got {shard!r}")
        try:
            tensors = safetensors_tensors(path.with_name(shard))
        except FileNotFoundError:
            raise ValueError(f"the shard {shard!r} is missing") from None
        except ValueError as error:
            raise ValueError(f"shard {shard!r}: {error}") from error
        wanted = {name for name, place in places.items() if place == shard}
        present = {tensor.name for tensor in tensors}
        if missing := sorted(wanted - present):
            raise ValueError(f"the shard {shard!r} does not hold tensor {missing[0]!r}")
        found += [tensor for tensor in tensors if tensor.name in wanted]
    return found


def _json_object(file: File, begin: int, end: int, what: str) -> dict[str, Any]:
    try:
        found = json.loads(bytes(file.map(begin, end)).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a valid {what}: {brief(error)}") from error
    if not isinstance(found, dict):
        raise ValueError(f"not a valid {what}: not a JSON object")
    return found


class _Entry(NamedTuple):
    first: int
    last: int
    dtype: np.dtype[Any] | None  # None where the tensor cannot be read
    tensor: Tensor


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object, which by the format must not repeat a name."""
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the name {name!r} occurs twice")
        result[name] = value
    return result


def _entry(name: str, entry: object) -> _Entry:
    """Check an entry of the header, as far as it can be checked alone."""
    match entry:
        case {"dtype": str(code), "shape": [*lengths], "data_offsets": [first, last]}:
            shape = tuple(lengths)
        case _:
            raise ValueError(f"tensor {name!r} must have dtype, shape and two data_offsets")
    if not all(type(number) is int and number >= 0 for number in (*shape, first, last)):
        raise ValueError(
            f"tensor {name!r} must have non-negative integers as shape and data_offsets, "
            f"got {lengths} and {[first, last]}"
        )
    if first > last:
        raise ValueError(f"tensor {name!r} begins at {first}, after its end at {last}")
    if code not in DTYPES:
        error = f"dtype {code} is not supported"
        return _Entry(first, last, None, Tensor(name, shape, code, error=error))
    dtype = np.dtype(DTYPES[code])
    format = FORMATS.get(code)
    needed = math.prod(shape) * dtype.itemsize
    if needed != last - first:
        raise ValueError(
            f"tensor {name!r} of dtype {code} and shape {shape} takes {needed} bytes, "
            f"its data_offsets span {last - first}"
        )
    return _Entry(first, last, dtype, Tensor(name, shape, format or dtype.name, format=format))
