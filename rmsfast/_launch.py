"""How compiled kernels are found, compiled and run.

A kernel does a range of *units*: rows, blocks or tiles. One loop under `prange` gives each thread
a range. Only one such parallel region runs at a time in a process: whoever finds it taken, and
every child forked from a process that had started Numba's threads, calls the kernel for all units,
which gives the same bits.

Numba's own dispatch is left out. It would compile a specialisation for each memory layout
of the arguments, or, told not to, still do so for whoever calls while another thread
compiles.
"""

import math
import os
import sys
import threading
import warnings
from array import array
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from rmsfast import _forks

MODULES = (  # those that define kernels
    "_kernels",
    "_column_kernels",
    "_scalings",
    "_relative",
    "_continued",
    "_describe_kernels",
    "_compare_kernels",
    "_complex_kernels",
    "_dose_kernels",
    "_window_kernels",
    "_parallel",
)
# Less work is done sooner than a second thread is woken: measured by bench/scaling.py on two CPUs,
# threads pay from 1.7 to 2.9 MiB in calls after a pause, and from 0.3 to 1.1 MiB while awake.
PARALLEL_BYTES = 1 << 21
AWAKE_BYTES = 3 << 18
AWAKE = 0.001  # seconds that threads look for more work before they sleep; GNU OpenMP's 2 or more
WORTH_WAKING = 1 << 26  # bytes of calls that follow one another so soon, after which more will come
SLICE_BYTES = 1 << 27  # work of a thread between two looks at Ctrl-C

Args = tuple[Any, ...]

_region = threading.Lock()  # held while a parallel region runs
_modules: tuple[ModuleType, ...] | None = None  # empty where Numba cannot be had
_compiled: dict[tuple[Any, Hashable], Callable[..., None]] = {}
_threads: int | None = None  # as chosen by set_num_threads
_may_start = True  # whether parallel regions may be entered in this process
_started = 0  # threads of Numba's, once it has some
_warned = False
_awake_until = 0.0  # when threads that no one calls go to sleep
_follow_until = 0.0  # until when a call follows the last one
_followed = 0  # bytes of such calls on one thread


# --------------------------------------------------------------------------------- loading


def kernels() -> ModuleType | None:
    """Return the module of compiled loops, None (after one warning) where Numba cannot be had."""
    modules = _load() if _modules is None else _modules
    return modules[0] if modules else None


@cache
def kernel(name: str) -> Any:
    """Return a kernel by its name."""
    return next(getattr(m, name) for m in _modules or () if hasattr(m, name))


def kernel_module(name: str) -> ModuleType:
    """Return a module that defines kernels."""
    return sys.modules["rmsfast." + name]


def _load() -> tuple[ModuleType, ...]:
    global _modules, _may_start
    with _forks.compiling:
        if _modules is None:
            trouble = _numba_trouble()
            if trouble:
                _modules = ()
                _warn(f"{trouble}: rmsfast answers with NumPy, slowly")
            else:
                # Threads that Numba had started before this module was imported may be
                # those of the process that this one was forked from.
                processes = sys.modules.get("multiprocessing.process")
                if numba_threads() and processes and processes.parent_process():
                    _may_start = False
                _modules = tuple(import_module("rmsfast." + name) for name in MODULES)
        return _modules


def _numba_trouble() -> str:
    """Why Numba cannot be had, empty if it can."""
    try:
        from numba import config
    except Exception as error:  # whatever a half-installed or outdated package raises
        return f"Numba cannot be imported ({error})"
    return "Numba is disabled by NUMBA_DISABLE_JIT" if config.DISABLE_JIT else ""


def _warn(message: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(message, RuntimeWarning, stacklevel=5)


# ----------------------------------------------------------------------------------- forks


def numba_threads() -> str | None:
    """Numba's threading layer, None as long as it has not started any threads."""
    numba = sys.modules.get("numba")
    try:
        return str(numba.threading_layer()) if numba else None
    except (ValueError, AttributeError):  # not started; not imported to its end
        return None


def _in_child() -> None:
    global _region, _may_start
    _region = threading.Lock()  # its holder, if any, is not here
    if numba_threads():  # nor are these
        _may_start = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


# --------------------------------------------------------------------------------- threads


def set_threads(threads: int | None) -> int | None:
    """Choose the number of threads of calls that do not name one, and return the last choice."""
    global _threads
    before, _threads = _threads, threads
    return before


def threads_for(threads: int | None) -> int:
    """Threads for a call that asked for so many, or left it open."""
    available = int(min(free_processors()[0], lasting_limit()))
    return min(threads or _threads or available, available)


def thread_limits() -> list[tuple[int, str]]:
    """List what bounds the number of threads, and the name of it, the tightest first."""
    return sorted((free_processors(), *lasting_limits()), key=lambda limit: limit[0])


def free_processors() -> tuple[int, str]:
    """Number of processors that this process may run on at present, and what bounds it."""
    try:
        return len(os.sched_getaffinity(0)), "processor affinity"
    except AttributeError:
        return os.cpu_count() or 1, "processors"


@cache
def lasting_limit() -> float:
    """Return the tightest of the bounds that hold as long as the process."""
    return min((count for count, _ in lasting_limits()), default=math.inf)


@cache
def lasting_limits() -> list[tuple[int, str]]:
    """List the bounds that hold as long as the process."""
    limits = []
    if quota := cpu_quota():
        limits.append((quota, "CPU quota of the control group"))
    with suppress(KeyError, ValueError):
        limits.append((max(1, int(os.environ["NUMBA_NUM_THREADS"])), "NUMBA_NUM_THREADS"))
    return limits


@cache
def cpu_quota(groups: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int | None:
    """Processors that the control groups of this process allow, None if they set no bound."""
    quotas = []
    for folder in control_groups("cpu", groups, root):
        words = _text(os.path.join(folder, "cpu.max")).split()  # version 2
        words += _text(os.path.join(folder, "cpu.cfs_quota_us")).split()  # version 1
        words += _text(os.path.join(folder, "cpu.cfs_period_us")).split()
        if len(words) == 2 and words[0] not in ("max", "-1"):
            quotas.append(max(1, math.ceil(int(words[0]) / int(words[1]))))
    return min(quotas, default=None)


def control_groups(controller: str, groups: str, root: str) -> Iterator[str]:
    """Yield the folders of the control groups that bind this process: its own, and those above."""
    for line in _text(groups).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue  # version 1, of something else
        base = os.path.join(root, controller) if controllers else root
        while True:
            yield os.path.join(base, path.strip("/"))
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


# ---------------------------------------------------------------------------------- launch


def launch(
    name: str,
    args: Args,
    units: int,
    unit_bytes: int,
    threads: int | None = None,
    key: Hashable = None,
) -> None:
    """Run a kernel on units 0 to `units`, in slices short enough to interrupt.

    `key` as for `compiled`.
    """
    whole = (*args, 0, units)
    run = compiled(kernel(name), whole, key)
    if share_pays(units * unit_bytes, threads):
        run_shared(run, args, units, unit_bytes, threads)
    else:
        run(*whole)


def share_pays(nbytes: int, threads: int | None) -> bool:
    """Whether many threads do so much work sooner than one, the time to wake them included."""
    global _follow_until, _followed
    if not AWAKE_BYTES <= nbytes < PARALLEL_BYTES or (threads or _threads) == 1:
        return nbytes >= PARALLEL_BYTES
    now = perf_counter()
    if now < _awake_until:
        return True
    # Whether more calls follow is not known. To wake threads once as much time was lost without
    # them as that takes is never twice as slow as what was best.
    if now > _follow_until:
        _followed = 0
    _follow_until = now + AWAKE
    _followed += nbytes
    return _followed >= WORTH_WAKING


def run_shared(
    run: Callable[..., None], args: Args, units: int, unit_bytes: int, threads: int | None
) -> None:
    """Run compiled code on units 0 to `units`, by many threads if there are some."""
    global _followed
    workers = threads_for(threads) if _may_start else 1
    if workers == 1:
        _followed = 0  # there is none to wake
    step = max(1, SLICE_BYTES // max(1, unit_bytes)) * workers
    for begin in range(0, units, step):
        end = min(begin + step, units)
        if workers > 1 and end - begin > 1 and _region.acquire(False):
            try:
                if there := _started or _start_threads():
                    _in_parallel(run, args, begin, end, min(workers, there, end - begin))
                    continue
            finally:
                _region.release()
        run(*args, begin, end)


def parallel_region() -> threading.Lock:
    """The lock of the one parallel region of this process."""
    return _region


def _in_parallel(run: Callable[..., None], args: Args, begin: int, end: int, workers: int) -> None:
    """Run a kernel on many threads, each on one run of the units."""
    job = _job()
    job[1], job[2], job[3] = begin, end, workers
    job[4], job[5] = perf_counter() > _awake_until, 0
    run(*args, -1, job.buffer_info()[0])
    note_awake()


def note_awake() -> None:
    """Note that Numba's threads have just worked."""
    global _awake_until
    _awake_until = perf_counter() + AWAKE


@cache
def _job() -> "array[int]":
    """The job of the parallel region, of which there is one at a time; see `_compiler`."""
    from rmsfast._compiler import address

    loop = kernel("in_parallel")
    compiled(loop, (0,) * 3)
    return array("q", [address(next(iter(loop.overloads.values()))), 0, 0, 0, 0, 0])


def _start_threads() -> int:
    """Start Numba's threads, and return how many; 0 where it has none to offer."""
    global _started, _may_start
    import multiprocessing

    import numba

    with _forks.compiling:
        undecided = multiprocessing.get_start_method(allow_none=True) is None
        try:
            numba.get_num_threads()
            _started = int(numba.config.NUMBA_NUM_THREADS)
        except ValueError as error:
            _may_start = False
            _warn(f"Numba has no threads ({' '.join(str(error).split())}): rmsfast uses one")
        finally:
            if undecided:  # Numba has fixed the start method, a choice of the caller's
                multiprocessing.set_start_method(None, force=True)
    return _started


# --------------------------------------------------------------------------------- compile


def call(kernel: Any, args: Args, key: Hashable = None) -> None:
    """Run a compiled kernel; `key` as for `compiled`."""
    compiled(kernel, args, key)(*args)


def compiled(kernel: Any, args: Args, key: Hashable = None) -> Callable[..., None]:
    """Find the machine code for arguments of these types, arrays of any stride and alignment.

    `key` stands for the types where the caller knows something that tells them apart sooner.
    """
    known = kernel, _types(args) if key is None else key
    return _compiled.get(known) or _compile(known, args)


def _types(args: Args) -> tuple[Any, ...]:
    return tuple([
        a.dtype if isinstance(a, np.ndarray) else _types(a) if type(a) is tuple else type(a)
        for a in args
    ])  # fmt: skip


def _compile(known: tuple[Any, Hashable], args: Args) -> Callable[..., None]:
    kernel = known[0]
    signature = tuple(_numba_type(a) for a in args)
    with _forks.compiling:
        if known not in _compiled:
            _attach_cache(kernel)
            _compiled[known] = _specialise(kernel, signature)
        return _compiled[known]


def _specialise(kernel: Any, signature: tuple[Any, ...]) -> Callable[..., None]:
    """Load or compile; a cache that fails must not stop an answer."""
    from numba.core.errors import NumbaError

    for mend in (kernel._cache.flush, kernel._cache.disable):
        try:
            return kernel.compile(signature)  # type: ignore[no-any-return]
        except NumbaError:
            raise
        except Exception as error:  # a damaged file raises whatever its bytes lead to
            # A file that cannot be read is replaced; code that cannot be kept was compiled.
            if mend == kernel._cache.disable or signature in kernel.overloads:
                _warn(f"compiled code cannot be kept in {kernel._cache.cache_path} ({error})")
                mend = kernel._cache.disable
            with suppress(OSError):
                mend()
    return kernel.compile(signature)  # type: ignore[no-any-return]


def _attach_cache(kernel: Any) -> None:
    from rmsfast import _cache

    if isinstance(kernel._cache, _cache.KernelCache):
        return
    if _cache.folder():
        kernel._cache = _cache.KernelCache(kernel.py_func)
    else:
        _warn("compiled code cannot be kept: NUMBA_CACHE_DIR should name a folder to write to")


def _numba_type(value: Any) -> Any:
    """Type of an argument; in a tuple are input arrays: read-only, any stride or alignment."""
    from numba import from_dtype, typeof, types

    def array(a: np.ndarray, layout: str, **flags: bool) -> Any:
        return types.Array(from_dtype(a.dtype), a.ndim, layout, **flags)

    if isinstance(value, tuple):
        return types.Tuple([
            array(v, "A", readonly=True, aligned=False) if isinstance(v, np.ndarray) else typeof(v)
            for v in value
        ])  # fmt: skip
    if isinstance(value, np.ndarray):
        return array(value, "C")
    return types.intp if type(value) is int else typeof(value)
