"""Windows along an axis of a Dask array: each task has the values that its windows need."""

from functools import partial
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np

from rmsfast import _arguments, _launch
from rmsfast._window_sums import Windows, along
from rmsfast.dask._graphs import lazy, like
from rmsfast.dask._pieces import NUMBERS, STATES, by_rows
from rmsfast.windows import Windowed


def windows(
    x: Any, window: Any, hop: Any, axis: Any, edge: str, nan_policy: str, dtype: Any, format: Any
) -> Any:
    """Root mean squares of windows, in chunks of those that start in one of `x`."""
    x = lazy("rms_windows", "x", x)
    asked = Windowed("rms_windows", like(x), window, hop, axis, edge, format, None)
    _arguments.check_choice(asked.function, "nan_policy", nan_policy, _arguments.NAN_POLICIES)
    found = _arguments.result_dtype(asked.function, dtype, asked.default)
    x = x.reshape(asked.shape)
    every, k = asked.windows, asked.axis
    block = asked.block(omit=nan_policy == "omit")
    ends = np.cumsum(x.chunks[k])[:-1]
    # In whole blocks, for the bits of one call; NumPy, without kernels, takes the whole axis.
    cuts = -(-(ends + every.before) // (every.hop * block)) * block
    cuts = np.minimum(cuts, every.number) if _launch.kernels() else cuts[:0]
    bounds = sorted({0, *cuts.tolist(), every.number}) if every.number else [0, 0]
    given = {"window": window, "hop": hop, "edge": edge, "format": format, "block": block}
    parts = []
    for first, last in pairwise(bounds):
        times, own = every.some(first, last) if last else (slice(0, every.length), every)
        values = x[along(x, k, times)].rechunk({k: -1})
        chunks = (*values.chunks[:k], (last - first,), *values.chunks[k + 1 :])
        task = partial(_part, axis=k, own=own, nan_policy=nan_policy, dtype=found, **given)
        meta = np.empty((0,) * x.ndim, found)
        parts.append(values.map_blocks(task, chunks=chunks, dtype=found, meta=meta))
    return da.concatenate(parts, axis=k)


def _part(
    x: Any, *, window: Any, hop: Any, axis: int, edge: str, format: Any, own: Windows,
    nan_policy: str, dtype: np.dtype, block: int,
) -> Any:  # fmt: skip
    """The windows of a part of the axis, in pieces where they are rounded to another dtype."""
    checked = Windowed("rms_windows", x, window, hop, axis, edge, format, 1, own)
    out = np.empty(checked.result_shape, dtype)
    alone = checked.writes_to(out)
    step, most = max(1, own.number), NUMBERS
    if not alone and _launch.kernels():
        step = -(-min(step, STATES) // block) * block
        most = max(1, NUMBERS // step)

    def fill(out: np.ndarray, x: np.ndarray) -> None:
        for first in range(0, own.number, step):
            last = min(first + step, own.number)
            times, some = own.some(first, last)
            values, place = x[along(x, axis, times)], out[along(out, axis, slice(first, last))]
            part = Windowed("rms_windows", values, window, hop, axis, edge, format, 1, some)
            if alone and nan_policy == "raise":
                part.refuse_nan(part.result("propagate", dtype, place))
            else:
                part.result(nan_policy, dtype, place)

    return by_rows(fill, out, [x], (axis,), most)
