"""How compiled kernels are found, compiled and run.

Kernels come in twos: `name`, serial, and `name_parallel`, the same loop under `prange`.
Only one parallel region runs at a time in a process: whoever finds it taken, and every
forked child, runs the serial one, which gives the same bits.
"""

import hashlib
import math
import os
import sys
import threading
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

SOURCES = ("_partial.py", "_vectors.py", "_lanes.py", "_stores.py", "_kernels.py", "_scalings.py")
PARALLEL_BYTES = 1 << 20  # less work is done sooner than a second thread is woken
SHARE_BYTES = 1 << 18  # work handed to a thread at a time
SLICE_BYTES = 1 << 27  # work between two looks at Ctrl-C

_compiling = threading.RLock()
_region = threading.Lock()
_state: dict[str, Any] = {"threads": None, "forked": False, "warned": False}


def kernels() -> ModuleType | None:
    """The module of compiled loops, None (after one warning) where Numba cannot be had."""
    return sys.modules.get("rmsfast._kernels") or _load()


def kernel(name: str) -> Any:
    """A compiled function by its name."""
    module = kernel_module("_kernels")
    return getattr(module, name, None) or getattr(kernel_module("_scalings"), name)


def kernel_module(name: str) -> ModuleType:
    return sys.modules["rmsfast." + name]


@cache
def _load() -> ModuleType | None:
    with _compiling:
        try:
            from numba import config
        except ImportError as error:
            _warn(f"Numba cannot be imported ({error}): rmsfast answers with NumPy, slowly")
            return None
        before = config.CACHE_DIR
        # Numba looks only at the file of a cached function, so a change of another source
        # would be overlooked: a folder for each state of all of them.
        config.CACHE_DIR = cache_folder() or ""
        try:
            from rmsfast import _kernels, _scalings  # noqa: F401
        finally:
            config.CACHE_DIR = before
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_in_child
            )
        return _kernels


def _in_child() -> None:
    """A forked child has none of its parent's threads: fresh locks, no parallel regions."""
    global _compiling, _region
    _compiling, _region = threading.RLock(), threading.Lock()
    _state["forked"] = True


def _warn(message: str) -> None:
    if not _state["warned"]:
        _state["warned"] = True
        warnings.warn(message, RuntimeWarning, stacklevel=4)


@cache
def source_digest() -> str:
    """Digest of every file that compiled code depends on."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()[:16]


def cache_folder() -> str | None:
    """Folder for compiled code that can be written, None if there is none."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    bases = [chosen] if chosen else [os.path.join(os.path.dirname(__file__), "__pycache__"), home]
    for base in bases:
        folder = os.path.join(base, f"rmsfast-{source_digest()}")
        try:
            os.makedirs(folder, exist_ok=True)
            probe = os.path.join(folder, f".probe-{os.getpid()}-{threading.get_ident()}")
            with open(probe, "wb"):
                pass
            os.unlink(probe)
        except OSError:
            continue
        return folder
    return None


# ------------------------------------------------------------------------------ threads


def available_threads() -> int:
    """Processors that this process may use: its affinity, and its share of a cgroup."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:
        count = os.cpu_count() or 1
    return max(1, min(count, _quota() or count))


@cache
def _quota() -> int | None:
    """Whole processors of the CPU quota of the control group, None without one."""
    for quota, period in (
        ("/sys/fs/cgroup/cpu.max", None),
        ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
    ):
        try:
            words = Path(quota).read_text().split()
            words += Path(period).read_text().split() if period else []
            if words[0] not in ("max", "-1"):
                return max(1, math.ceil(int(words[0]) / int(words[1])))
        except (OSError, ValueError, IndexError):
            continue
    return None


def threads_for(threads: int | None) -> int:
    chosen = threads or _state["threads"]
    return min(chosen, available_threads()) if chosen else available_threads()


# ------------------------------------------------------------------------------- launch


def launch(
    name: str, args: tuple[Any, ...], units: int, unit_bytes: int, threads: int | None = None
) -> None:
    """Run a kernel on units 0 to `units`, in slices short enough to interrupt."""
    serial = kernel(name)
    work = units * unit_bytes
    if work < PARALLEL_BYTES:
        call(serial, args + (0, units))
        return
    workers = 1 if _state["forked"] else threads_for(threads)
    step = max(1, SLICE_BYTES // max(1, unit_bytes))
    for begin in range(0, units, step):
        end = min(begin + step, units)
        if workers > 1 and end - begin > 1 and _region.acquire(blocking=False):
            try:
                share = max(1, min(SHARE_BYTES // max(1, unit_bytes), -(-(end - begin) // workers)))
                _parallel(kernel(name + "_parallel"), args + (begin, end, share), workers)
            finally:
                _region.release()
        else:
            call(serial, args + (begin, end))


def call(kernel: Any, args: tuple[Any, ...]) -> None:
    """Call a compiled function, compiling it first where it does not fit yet."""
    try:
        kernel(*args)
    except TypeError:
        _compile(kernel, args)
        kernel(*args)


def _compile(kernel: Any, args: tuple[Any, ...]) -> None:
    """Add the one specialisation that serves all arrays of these formats."""
    import numba

    signature = tuple(_numba_type(numba, a) for a in args)
    with _compiling:
        kernel.disable_compile(False)
        try:
            kernel.compile(signature)
        except (OSError, EOFError, ValueError, ImportError, AttributeError, KeyError, TypeError) as error:
            # A cache that is full, cut off or not ours must not stop an answer.
            from numba.core.caching import NullCache

            if isinstance(kernel._cache, NullCache):
                raise
            _warn(f"compiled code cannot be kept in {cache_folder()} ({type(error).__name__}: {error})")
            kernel._cache = NullCache()
            kernel.compile(signature)
        finally:
            kernel.disable_compile()


def _numba_type(numba: Any, value: Any) -> Any:
    """Type of an argument; in a tuple are input arrays: read-only, any stride or alignment."""
    types = numba.types
    if isinstance(value, tuple):
        return types.Tuple([_numba_type(numba, v) if not isinstance(v, np.ndarray) else types.Array(
            numba.from_dtype(v.dtype), 1, "A", readonly=True, aligned=False) for v in value])
    if isinstance(value, np.ndarray):
        return types.Array(numba.from_dtype(value.dtype), value.ndim, "C", readonly=not value.flags.writeable)
    return types.intp if type(value) is int else numba.typeof(value)


def _parallel(kernel: Any, args: tuple[Any, ...], workers: int) -> None:
    """Call a parallel kernel; the caller's Numba and multiprocessing settings stay."""
    import multiprocessing

    import numba

    undecided = multiprocessing.get_start_method(allow_none=True) is None
    before = numba.get_num_threads()
    numba.set_num_threads(min(workers, numba.config.NUMBA_NUM_THREADS))
    try:
        call(kernel, args)
    finally:
        numba.set_num_threads(before)
        # Starting Numba's threads fixes the start method; the choice is the caller's.
        if undecided:
            multiprocessing.set_start_method(None, force=True)  # type: ignore[arg-type]
