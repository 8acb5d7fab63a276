"""Threads, compilation ahead of time, and what a report of a problem should state."""

import os
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch
from rmsfast._dosing import STORAGE
from rmsfast.dose import apply_dose
from rmsfast.reductions import rms, rmse
from rmsfast.scaling import rms_norm, unit_rms
from rmsfast.summaries import compare, describe
from rmsfast.windows import rms_windows

PACKAGES = ("numpy", "numba", "llvmlite", "ml_dtypes", "tbb")
FEATURES = ("sse2", "avx", "avx2", "avx512f", "fma", "f16c", "neon")


def set_num_threads(threads: int | None, /) -> None:
    """Choose the number of threads of all calls that do not name one.

    Parameters
    ----------
    threads : int or None
        At least 1; more than `get_num_threads` gives by default are not used. None: as many
        as the process may use by its affinity, the CPU quota of its control group and
        NUMBA_NUM_THREADS.

    Raises
    ------
    TypeError, ValueError
        If `threads` is neither None nor an integer >= 1.

    Notes
    -----
    The number changes the time that a call takes, never the bits of its result. Numba's own
    number of threads stays as it is.

    Examples
    --------
    >>> import rmsfast
    >>> rmsfast.set_num_threads(1)
    >>> rmsfast.get_num_threads()
    1
    >>> rmsfast.set_num_threads(None)
    """
    _arguments.check_threads("set_num_threads", threads)
    _launch.set_threads(threads)


def get_num_threads() -> int:
    """Return the number of threads of a large enough call that does not name one.

    Examples
    --------
    >>> import rmsfast
    >>> rmsfast.get_num_threads() >= 1
    True
    """
    return _launch.threads_for(None)


def warmup(dtypes: Any = ("float32", "float64")) -> None:
    """Compile, or load, what the functions need, ahead of a call.

    Run while an image is built, it leaves the code in the cache that `show_config` names, for
    processors of the same kind. Code for masks, weights and NaN policies is still compiled
    when it is first asked for.

    Parameters
    ----------
    dtypes : dtype or str, or several of them
        Storage formats of the arrays to come: names as "float16" or "bfloat16", or dtypes.

    Raises
    ------
    TypeError
        If one of them is not a dtype that the package reads.
    """
    alone = isinstance(dtypes, str) or not isinstance(dtypes, Iterable)
    dtypes = [dtypes] if alone else list(dtypes)
    kinds = [_formats.kind_of(_dtype(given), None) for given in dtypes]
    for given, kind in zip(dtypes, kinds, strict=True):
        if kind is None:
            raise TypeError(f"warmup: dtypes must hold formats that rms takes, got {given!r}")
    for kind in kinds:
        _warm(str(kind))


def _dtype(given: Any) -> np.dtype:
    given = _formats.named(given)
    if given in _formats.CODES:
        return _formats.ml_dtype("warmup", given)
    try:
        found: np.dtype = np.dtype(given)
    except TypeError:
        return np.dtype(object)  # which is refused
    return found


def _warm(kind: str) -> None:
    """Call everything once on an array large enough for two threads, once on a small one."""
    dtype = _formats.ml_dtype("warmup", kind)
    x = np.ones((2 * _launch.PARALLEL_BYTES // (1024 * dtype.itemsize), 1024), dtype)
    for axis in (-1, 0, None):
        rms(x, axis=axis, threads=2)
    rms(x[:8], axis=0)  # columns of one tile have a kernel of their own
    rmse(x, x, threads=2)
    unit_rms(x, threads=2)
    rms_windows(x, 16, hop=8, axis=0, threads=2)
    if not kind.startswith("complex"):
        rms_norm(x, np.ones(1024, dtype), threads=2)
        describe(x, threads=2)
        compare(x, x, threads=2)
    if kind in STORAGE:
        for report in ("rows", "none"):
            apply_dose(x, np.ones(1024), 0.1, report=report, threads=2)


def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Print what the package runs on, or return it as a dict.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print indented JSON, or return the same content.

    Returns
    -------
    dict or None
        versions: of Python and of the packages, None for those that are not installed;
        processor: the name and features that code is compiled for; threads: their number, what
        decides it, and the threading layer (None until the first call that uses threads);
        cache: the folder of compiled code (None: nothing is kept), its state, files and bytes.

    Raises
    ------
    ValueError
        If `mode` is neither of the two.
    """
    _arguments.check_choice("show_config", "mode", mode, ("stdout", "dicts"))
    found = {
        "versions": _versions(),
        "processor": _processor(),
        "threads": _thread_settings(),
        "cache": _cache_state(),
    }
    if mode == "dicts":
        return found
    import json

    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return None


def _versions() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    own = sys.modules["rmsfast"].__version__
    found: dict[str, str | None] = {"rmsfast": own, "python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _processor() -> dict[str, Any] | None:
    if _launch.kernels() is None:
        return None
    from numba.core.registry import cpu_target

    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    return {"name": name, "features": [f for f in FEATURES if f"+{f}" in features.split(",")]}


def _thread_settings() -> dict[str, Any]:
    limit, why = _launch.thread_limits()[0]
    count = get_num_threads()
    return {
        "count": count,
        "why": why if count == limit else "set_num_threads",
        "layer": _launch.numba_threads(),
    }


def _cache_state() -> dict[str, Any]:
    folder = None
    if _launch.kernels() is not None:
        from rmsfast import _cache

        folder = _cache.folder()
    if folder is None:
        return {"folder": None, "state": "nothing is kept", "files": 0, "bytes": 0}
    with os.scandir(folder) as entries:
        sizes = [entry.stat().st_size for entry in entries if entry.is_file()]
    state = "writable" if _cache.is_writable(folder) else "read-only"
    return {"folder": folder, "state": state, "files": len(sizes), "bytes": sum(sizes)}
