"""The jobs of `rmsfast.files` on zarr folders, on whatever runs Dask's graphs.

Inside ``with cluster("local"):`` or the client of a cluster its workers do the work, else the
threads of this process. Workers must see the folders under the same paths.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.utils import get_scheduler_lock

from rmsfast import _arguments
from rmsfast._extras import needed
from rmsfast.dask import compare as compare_rows
from rmsfast.dask import describe as describe_rows
from rmsfast.dask import scale_to_rms
from rmsfast.files import Difference, Summary, Tensor
from rmsfast.files._chunked import Chunked, library
from rmsfast.files._open import StrPath, is_zarr
from rmsfast.files._pairs import difference, named, pairs
from rmsfast.files._rows import Names, check_readable, checked_axis, choose, kept, reason
from rmsfast.files._scaled import scaled_like
from rmsfast.files._summaries import summarised
from rmsfast.files._tensors import Box
from rmsfast.files._writers import replacing, zarr_arrays
from rmsfast.summaries import Comparison, Description

__all__ = ["cluster", "compare", "describe", "lazy", "normalize"]

CHUNK_BYTES = 1 << 25  # of a task, unless a chunk of the folder is larger
# Of the workers of a local cluster: Dask would have them give freed memory back at once, and get
# every page of the next chunk anew, which takes as long as reading it.
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 25)}


@contextmanager
def cluster(address: str = "local", *, workers: int | None = None) -> Iterator[Any]:
    """Run Dask's graphs on a cluster for the time of a `with` block.

    Parameters
    ----------
    address : str, default "local"
        "local": worker processes of one thread each on this machine, which import the script
        that starts them: it has to start under ``if __name__ == "__main__":``. Else the address
        of a scheduler, as ``tcp://host:8786``.
    workers : int, optional
        How many, on this machine; by default one for each processor.

    Yields
    ------
    distributed.Client

    Raises
    ------
    OSError
        If no scheduler answers at the address.
    ImportError
        If the package distributed is not installed.
    """
    distributed = needed("cluster", "distributed", "dask")
    own: Any = nullcontext(address)
    if address == "local":
        with dask.config.set({"distributed.nanny.pre-spawn-environ": MALLOC}):
            own = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, dashboard_address=None
            )
    with own as place:
        try:
            client = distributed.Client(place)
        except OSError as error:
            what = f"no scheduler answers: {error}"
            raise OSError(errno.ETIMEDOUT, what, address) from error
        with client:
            yield client


def lazy(tensor: Tensor, axis: int = -1) -> Any:
    """A tensor of a zarr folder as a Dask array.

    Parameters
    ----------
    tensor : Tensor
        As `rmsfast.files.open_tensors` gives them; codes where it has a `format`.
    axis : int, default -1
        Along which a chunk shall hold whole rows, where they are short enough.

    Returns
    -------
    dask.array.Array
        In whole chunks of the folder, of up to 32 MiB.

    Raises
    ------
    ValueError
        If the tensor cannot be read, or is not of a zarr folder.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import open_tensors, writing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(f"{folder}/x.zarr", [Tensor("x", (2, 4), "float32")]) as put:
    ...         put("x", (slice(0, 2), slice(0, 4)), np.ones((2, 4), np.float32))
    ...     float(lazy(open_tensors(f"{folder}/x.zarr")[0]).sum().compute())
    8.0
    """
    source = tensor.source
    if tensor.error is not None:
        raise ValueError(f"lazy: tensor {tensor.name!r}: {tensor.error}")
    if not isinstance(source, Chunked) or tensor.stored is None:
        raise ValueError(f"lazy: tensor {tensor.name!r} must be of a zarr folder")
    steps = source.steps
    wanted: list[Any] = ["auto"] * len(steps)
    if steps:
        row = tensor.shape[axis] * np.prod(steps, dtype=float) / steps[axis]
        if row * tensor.itemsize <= CHUNK_BYTES:
            wanted[axis] = -1
    options = {"shape": tensor.shape, "dtype": tensor.stored, "previous_chunks": steps}
    chunks = da.core.normalize_chunks(wanted, limit=CHUNK_BYTES, **options)
    meta = np.empty((0,) * len(steps), tensor.stored)
    return da.from_array(_Readable(tensor), chunks=chunks, name=False, meta=meta)


class _Readable:
    """A tensor as Dask reads arrays: by slices."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.shape, self.ndim = tensor, tensor.shape, len(tensor.shape)
        self.dtype = tensor.stored

    def __getitem__(self, box: Any) -> Any:
        bounds = (s.indices(n)[:2] for s, n in zip(box, self.shape, strict=True))
        return self.tensor.values(tuple(slice(*b) for b in bounds))


def describe(
    path: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    progress: bool = False,
) -> list[Summary]:
    """Summarise the row RMS of the tensors of a zarr folder, as `rmsfast.files.describe`.

    Parameters
    ----------
    path, tensor, axis, format
        As for `rmsfast.files.describe`.
    progress : bool, default False
        Show Dask's progress on standard error.

    Returns
    -------
    list of Summary
        Those of `rmsfast.files.describe`.

    Raises
    ------
    OSError, ValueError
        As `rmsfast.files.describe`, and if `path` is not a zarr folder.

    Notes
    -----
    Every value is read once; some 120 bytes a row come to this process.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import writing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(f"{folder}/x.zarr", [Tensor("x", (2, 4), "float32")]) as put:
    ...         put("x", (slice(0, 2), slice(0, 4)), np.full((2, 4), 3, np.float32))
    ...     [summary] = describe(f"{folder}/x.zarr")
    >>> summary.rms, summary.rows
    (3.0, 2)
    """
    _check_folder("describe", path)

    def walk(each: Tensor, axis: int, _: Any) -> Iterator[tuple[Box, Description]]:
        x = _lazy_rows(each, axis)
        found = _computed(describe_rows(x, axis=axis, format=each.format), progress)
        yield _whole(each, axis), found

    tensors = choose(path, tensor, format)
    return summarised(path, tensors, tensor, axis, lambda _: None, walk)


def compare(
    path: StrPath,
    path_hat: StrPath,
    *,
    tensor: Names = None,
    axis: int = -1,
    format: str | None = None,
    progress: bool = False,
) -> list[Difference]:
    """Compare the tensors of two zarr folders, as `rmsfast.files.compare`.

    Parameters
    ----------
    path, path_hat, tensor, axis, format
        As for `rmsfast.files.compare`.
    progress : bool, default False
        Show Dask's progress on standard error.

    Returns
    -------
    list of Difference
        Those of `rmsfast.files.compare`.

    Raises
    ------
    OSError, ValueError
        As `rmsfast.files.compare`, and if a path is not a zarr folder.

    Notes
    -----
    Every value is read once; some 130 bytes a row come to this process.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import writing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(f"{folder}/x.zarr", [Tensor("x", (2, 4), "float32")]) as put:
    ...         put("x", (slice(0, 2), slice(0, 4)), np.full((2, 4), 3, np.float32))
    ...     compare(f"{folder}/x.zarr", f"{folder}/x.zarr")[0].equal_rows
    2
    """
    _check_folder("compare", path)
    _check_folder("compare", path_hat)

    def walk(x: Tensor, x_hat: Tensor, axis: int, _: Any) -> Iterator[tuple[Box, Comparison]]:
        pair = [_lazy_rows(each, axis) for each in (x, x_hat)]
        if x.format != x_hat.format:  # codes of two formats
            pair = [
                a.map_blocks(named, each, dtype=named(a._meta, each).dtype)
                for a, each in zip(pair, (x, x_hat), strict=True)
            ]
        format = x.format if x.format == x_hat.format else None
        found = _computed(compare_rows(*pair, axis=axis, format=format), progress)
        yield _whole(x, axis), found

    found = pairs(path, path_hat, tensor, format, None, None)
    return [difference(*pair, axis, lambda _: None, walk) for pair in found]


def normalize(
    path: StrPath,
    out: StrPath,
    *,
    target: float = 1.0,
    axis: int = -1,
    zero: str = "raise",
    tensor: Names = None,
    format: str | None = None,
    progress: bool = False,
) -> int:
    """Scale each row of the tensors of a zarr folder, as `rmsfast.files.normalize`.

    Parameters
    ----------
    path, target, axis, zero, tensor, format
        As for `rmsfast.files.normalize`.
    out : path_like
        A `.zarr` folder, written by all workers at once; replaced once it is complete. It may be
        `path` itself.
    progress : bool, default False
        Show Dask's progress on standard error.

    Returns
    -------
    int
        As `rmsfast.files.normalize`: how many rows hold NaN or Inf.

    Raises
    ------
    OSError, ValueError
        As `rmsfast.files.normalize`, and if a path is not a zarr folder.

    Notes
    -----
    Rows longer than a chunk (see `lazy`) are read twice.

    Examples
    --------
    >>> import tempfile
    >>> from rmsfast.files import writing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with writing(f"{folder}/x.zarr", [Tensor("x", (2, 4), "float32")]) as put:
    ...         put("x", (slice(0, 2), slice(0, 4)), np.full((2, 4), 3, np.float32))
    ...     odd = normalize(f"{folder}/x.zarr", f"{folder}/y.zarr", target=2.0)
    ...     describe(f"{folder}/y.zarr")[0].row_rms_max
    2.0
    """
    _check_folder("normalize", path)
    if Path(out).suffix.lower() != ".zarr":
        raise ValueError(f"normalize: out must end in .zarr, got {str(out)!r}")
    _arguments.check_choice("normalize", "zero", zero, ("raise", "zero", "nan"))
    target = _arguments.number("normalize", "target", target)
    tensors = choose(path, tensor, format)
    check_readable(path, tensors)
    odd = 0
    with (
        replacing(out) as temporary,
        zarr_arrays(out, temporary, [scaled_like(each) for each in tensors]) as group,
    ):
        zarr = library("zarr")
        for each in tensors:
            if 0 in each.shape:
                continue
            options: dict[str, Any] = {"axis": axis, "zero": zero, "format": each.format}
            try:
                x = lazy(each, axis)
                scaled, sizes = scale_to_rms(x, target, return_rms=True, **options)
                stored = zarr.open_array(temporary / group[each.name].path, mode="r+")
                # Two tasks must not write to one chunk at a time.
                shared = any(
                    n % step
                    for lengths, step in zip(scaled.chunks, stored.chunks, strict=True)
                    for n in lengths[:-1]
                )
                lock = get_scheduler_lock(collection=scaled) if shared else nullcontext()
                found = da.map_blocks(
                    _stored, scaled, da.expand_dims(sizes, axis) if x.ndim else sizes,
                    target=stored, axis=axis, lock=lock, chunks=(1,) * x.ndim,
                    meta=np.empty((0,) * x.ndim, np.int64),
                )  # fmt: skip
                odd += int(_computed(found.sum(), progress))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: tensor {each.name!r}: {reason(error)}") from error
    return odd


def _stored(
    scaled: Any, sizes: Any, *, target: Any, axis: int, lock: Any, block_info: Any
) -> np.ndarray:
    """Write rows, or parts of them; how many that begin there are not finite."""
    place = tuple(slice(*ends) for ends in block_info[0]["array-location"])
    with lock:
        target[place] = scaled
    begin = not place or place[axis].start == 0
    return np.full((1,) * len(place), np.count_nonzero(~np.isfinite(sizes)) if begin else 0)


def _check_folder(function: str, path: StrPath) -> None:
    if not is_zarr(Path(path)):
        raise ValueError(f"{function}: path must be a zarr folder, got {str(path)!r}")


def _lazy_rows(tensor: Tensor, axis: int) -> Any:
    """A tensor as a Dask array, complex numbers in chunks of whole rows."""
    x = lazy(tensor, axis)
    return x.rechunk({axis: -1}) if x.dtype.kind == "c" and x.ndim else x


def _whole(tensor: Tensor, axis: int) -> Box:
    """The box of all rows."""
    return tuple(slice(0, n) for n in kept(tensor.shape, checked_axis(tensor, axis)))


def _computed(wanted: Any, progress: bool) -> Any:
    """What Dask makes of a collection, on the current client if there is one."""
    if not progress:
        return dask.compute(wanted)[0]
    distributed: Any = sys.modules.get("distributed")
    client = None
    with suppress(AttributeError, ValueError):  # not imported, no client
        client = distributed.Client.current()
    if client is None:
        from dask.diagnostics import ProgressBar

        with ProgressBar(out=sys.stderr):
            return dask.compute(wanted)[0]
    future = client.compute(wanted)
    with redirect_stdout(sys.stderr):
        distributed.progress(future, notebook=False)
    return future.result()
