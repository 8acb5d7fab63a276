"""Windows along an axis of the tensors of files: `rms_windows`."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from rmsfast import _launch, windows
from rmsfast._window_sums import Windows, along
from rmsfast.files._open import StrPath
from rmsfast.files._rows import Names, Progress, checked_axis, named_errors, room, select, telling
from rmsfast.files._tensors import BOX_BYTES, Array, Box, Tensor, ahead, touched
from rmsfast.running import RunningRMS

_MERGED = 64  # segments of a window, whose sums are merged for every window


def rms_windows(
    path: StrPath,
    window: int,
    *,
    hop: int | None = None,
    axis: int = 0,
    edge: str = "valid",
    tensor: Names = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    format: str | None = None,
    progress: Progress | None = None,
) -> Array:
    """Root mean square of windows along an axis of a tensor of a file, such as a recording.

    Parameters
    ----------
    path : path_like
        As for `open_tensors`.
    window, hop, edge
        As for `rmsfast.rms_windows`.
    axis : int, default 0
        The axis along which windows lie: the first of a recording (time, channel).
    tensor : str, optional
        Name of the tensor, or a pattern that only it fits; needed where the file has several.
    dtype, shape
        Of raw binary, as for `open_tensors`: ``dtype="int16", shape=(-1, 384)``.
    format, progress
        As for `describe`.

    Returns
    -------
    ndarray, in the unit of the tensor
        Windows x channels: shape of the tensor with the number of windows along `axis`, dtype
        as `rmsfast.rms_windows` gives it; a large one lies in a temporary file.

    Raises
    ------
    OSError, ValueError
        As `describe`, and as `rmsfast.rms_windows` for windows.

    Notes
    -----
    Values are read in storage order, once but for those that windows of two blocks share. Windows
    longer than a block (32 MiB) are made of the sums of their parts.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import save_npy
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.array([[3, 0], [4, 0], [1, 0], [1, 0]], np.int16).tofile(f"{folder}/x.bin")
    ...     rms_windows(f"{folder}/x.bin", 2, dtype="int16", shape=(-1, 2))
    array([[3.53553391, 0.        ],
           [1.        , 0.        ]])
    """
    chosen = select(path, tensor, format, dtype, shape)
    with telling("rms_windows", progress, [chosen]) as told, named_errors(path, chosen):
        return _windows(chosen, window, hop, axis, edge, told)


def _windows(
    tensor: Tensor, window: int, hop: int | None, axis: int, edge: str, told: Callable[[int], None]
) -> Array:
    if tensor.source is None or tensor.stored is None:
        raise ValueError(tensor.error)
    k = checked_axis(tensor, axis)
    if k is None or 0 in tensor.shape or _launch.kernels() is None:
        whole = tensor.read()
        return np.asarray(
            windows.rms_windows(whole, window, hop=hop, axis=axis, edge=edge, format=tensor.format)
        )
    # What is refused, and the dtype of the result, do not depend on the values.
    like = np.broadcast_to(np.zeros((), tensor.stored), tensor.shape)
    asked = windows.Windowed("rms_windows", like, window, hop, axis, edge, tensor.format, None)
    result = room(asked.result_shape, asked.default)
    times = math.prod(tensor.shape) // tensor.shape[k]
    segments = 2 * -(-asked.window // asked.hop)
    long = asked.window * times * tensor.itemsize > BOX_BYTES and segments <= _MERGED
    for place, found in (_merged if long else _sliding)(tensor, k, asked, told):
        result[place] = found
    return result


def _sliding(
    tensor: Tensor, axis: int, asked: windows.Windowed, told: Callable[[int], None]
) -> Iterator[tuple[Box, Array]]:
    """Windows box by box: those that start in one, with what they need behind it."""
    every, block = asked.windows, asked.block()

    def number(time: int) -> int:
        """Windows before a time, in whole blocks, for the bits of one call."""
        if time in (0, every.length):
            return every.number if time else 0
        return min(-(-(time + every.before) // (every.hop * block)) * block, every.number)

    def parts() -> Iterator[tuple[Box, int, int]]:
        for box in tensor.boxes(axis):
            first, last = number(box[axis].start), number(box[axis].stop)
            if first < last:
                yield box, first, last

    def read(part: tuple[Box, int, int]) -> tuple[Box, Windows, Array]:
        box, first, last = part
        times, own = every.some(first, last)
        values = touched(tensor.values((*box[:axis], times, *box[axis + 1 :])))
        return (*box[:axis], slice(first, last), *box[axis + 1 :]), own, values

    done, total = 0, tensor.nbytes
    for place, own, values in ahead(read, parts()):
        yield place, asked.part(values, own)
        nbytes = min(values.nbytes, total - done)
        done += nbytes
        told(nbytes)
    told(total - done)


def _merged(
    tensor: Tensor, axis: int, asked: windows.Windowed, told: Callable[[int], None]
) -> Iterator[tuple[Box, Array]]:
    """Windows from the sums of segments, between all places where one starts or ends."""
    every = asked.windows
    spans = [every.span(k) for k in range(every.number)]
    cuts = sorted({place for span in spans for place in span} | {every.length})
    segments: deque[tuple[int, RunningRMS]] = deque()  # in which windows are that do not end yet
    running, coming, k = RunningRMS(0), 0, 0
    for box, values in tensor.blocks(axis):
        begin, end = box[axis].start, box[axis].stop
        if begin == 0:
            segments.clear()
            running, coming, k = RunningRMS(0), 0, 0
        at = begin
        while at < end:
            while cuts[coming] <= at:
                coming += 1
            stop = min(end, cuts[coming])
            part = values[along(values, axis, slice(at - begin, stop - begin))]
            running.update(np.moveaxis(part, axis, 0), format=tensor.format)
            at = stop
            if at < cuts[coming]:
                continue
            start = cuts[coming - 1] if coming else 0
            segments.append((start, running))
            running = RunningRMS(0)
            while k < every.number and spans[k][1] <= at:
                first, last = spans[k]
                own = [each for place, each in segments if first <= place < last]
                found = np.full((), np.nan)
                place = (*box[:axis], slice(k, k + 1), *box[axis + 1 :])
                if own:
                    total = copy.deepcopy(own[0])
                    for each in own[1:]:
                        total.merge(each)
                    found = np.expand_dims(total.value(), axis)
                yield place, found
                k += 1
            while segments and k < every.number and segments[0][0] < spans[k][0]:
                segments.popleft()
        told(values.nbytes)
