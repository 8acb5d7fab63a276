"""What this machine can do: measured rates of reading, copying and writing, and its description.

A rate is in GB/s of 1e9 bytes. A read counts the bytes of its input once, a write those of its
output once, a copy both. On a shared machine only ratios of times taken in turn mean anything:
`paired` takes them.
"""

import functools
import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmsfast import _launch

__all__ = ["ceiling", "ceilings", "machine", "paired"]

Kind = Literal["read", "copy", "write"]

# Bytes of one vector. Whole cache lines are read and stored 10 % faster than halves with AVX-512.
LINE = 64
# Bytes a thread visits in one go, as one, two or four rows side by side.
PIECE = 16384
LINES_AT_ONCE = 4
# Bytes: a smaller working set is swept repeatedly, so that the launch does not count.
LEAST_SWEPT = 1 << 25
# Share of its CPUs that a sweep must have had for its time to say something about the machine.
BUSY = 0.9
# Pairs taken, at most, for each one wanted.
TRIES = 10


class Method(NamedTuple):
    """One way of passing over memory."""

    kind: Kind
    rows: int = 1  # streams of consecutive cache lines that a thread follows in turn
    ahead: int = 0  # bytes by which a software prefetch runs ahead of the loads
    streaming: bool = False  # stores that bypass the caches


METHODS = {
    "read, 1 row": Method("read", rows=1),
    "read, 2 rows": Method("read", rows=2),
    "read, 4 rows": Method("read", rows=4),
    "read, prefetched": Method("read", ahead=2048),
    "copy, ordinary stores": Method("copy"),
    "copy, streaming stores": Method("copy", streaming=True),
    "write, ordinary stores": Method("write"),
    "write, streaming stores": Method("write", streaming=True),
}


class Sweep(NamedTuple):
    """One method over buffers of its own, ready to be timed."""

    method: str
    threads: int
    nbytes: int  # counted in one run
    run: Callable[[], None]


class Pair(NamedTuple):
    """Time of a call and of the ceiling around it, in seconds."""

    call: float
    ceiling: float


@functools.cache
def compiled_sweep() -> Callable[..., None]:
    """Return sweep(x, y, piece, method, repeats, seen); seen.size threads get equal shares.

    All methods are compiled together and chosen at run time: three seconds once. `piece` is an
    argument because LLVM unrolls loops of known length, which takes three times as long to
    compile and runs no faster.
    """
    from llvmlite import ir
    from numba import njit, prange, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    i8, i32, i64 = (ir.IntType(bits) for bits in (8, 32, 64))
    line = ir.VectorType(i64, LINE // 8)

    def number(value: int) -> Any:
        return ir.Constant(i64, value)

    def lines_of(value: int) -> Any:
        return ir.Constant(line, [value] * line.count)

    def prefetch(builder: Any, pointer: Any) -> None:
        signature = ir.FunctionType(ir.VoidType(), [i8.as_pointer(), i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        read_into_l1 = [ir.Constant(i32, flag) for flag in (0, 3, 1)]
        builder.call(function, [builder.bitcast(pointer, i8.as_pointer()), *read_into_l1])

    def visit_line(builder: Any, source: Any, target: Any, kept: Any, method: Method) -> None:
        """Read a line into `kept`, copy it, or write one."""
        if method.ahead:
            prefetch(builder, builder.gep(source, [number(method.ahead // LINE)]))
        value = lines_of(1) if method.kind == "write" else builder.load(source, align=LINE)
        if method.kind == "read":
            builder.store(builder.or_(builder.load(kept), value), kept)
            return
        store = builder.store(value, target, align=LINE)
        if method.streaming:
            store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(i32, 1)]))

    def visit_piece(builder: Any, source: Any, target: Any, piece: Any, method: Method) -> Any:
        """Visit the lines of a piece and return the OR of all that was read."""
        none = lines_of(0)
        seen = [cgutils.alloca_once_value(builder, none) for _ in range(LINES_AT_ONCE)]  # registers
        steps = LINES_AT_ONCE // method.rows
        row_lines = builder.udiv(piece, number(LINE * method.rows))
        with cgutils.for_range(builder, builder.udiv(row_lines, number(steps))) as loop:
            first = builder.mul(loop.index, number(steps))
            for row in range(method.rows):
                start = builder.add(first, builder.mul(row_lines, number(row)))
                for step in range(steps):
                    index = [builder.add(start, number(step))]
                    read, written = builder.gep(source, index), builder.gep(target, index)
                    visit_line(builder, read, written, seen[row * steps + step], method)
        total = functools.reduce(builder.or_, [builder.load(kept) for kept in seen])
        lanes = [
            builder.extract_element(total, ir.Constant(i32, lane)) for lane in range(line.count)
        ]
        return functools.reduce(builder.or_, lanes)

    @intrinsic
    def visit(_typingctx: Any, x: Any, y: Any, start: Any, piece: Any, method: Any) -> Any:
        """Visit x[start : start + piece] and the same part of y by the method of this number."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            *arrays, start, piece, method = args
            source, target = (
                builder.bitcast(
                    builder.gep(context.make_array(kind)(context, builder, array).data, [start]),
                    line.as_pointer(),
                )
                for kind, array in zip(signature.args, arrays, strict=False)
            )
            seen = cgutils.alloca_once_value(builder, number(0))
            done = builder.append_basic_block("done")
            switch = builder.switch(method, done)
            for index, known in enumerate(METHODS.values()):
                block = builder.append_basic_block()
                switch.add_case(number(index), block)
                builder.position_at_end(block)
                builder.store(visit_piece(builder, source, target, piece, known), seen)
                builder.branch(done)
            builder.position_at_end(done)
            return builder.load(seen)

        return types.uint64(x, y, start, piece, method), codegen

    @intrinsic
    def fence(_typingctx: Any) -> Any:
        """Wait until streaming stores have left the core."""

        def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
            builder.fence("seq_cst")
            return context.get_dummy_value()

        return types.void(), codegen

    @njit(parallel=True, nogil=True)
    def sweep(x: Any, y: Any, piece: int, method: int, repeats: int, seen: Any) -> None:
        share = x.size // seen.size
        for thread in prange(seen.size):
            bits = np.uint64(0)
            for _ in range(repeats):
                for start in range(thread * share, (thread + 1) * share, piece):
                    bits |= visit(x, y, start, piece, method)
            fence()
            seen[thread] = bits

    return cast(Callable[..., None], sweep)


def aligned_empty(nbytes: int) -> NDArray[np.uint8]:
    """Uninitialised bytes that start on a cache line."""
    raw = np.empty(nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + nbytes]


def sweeps(nbytes: int, threads: int | None = None, kind: Kind | None = None) -> Iterator[Sweep]:
    """Yield the methods (of one kind), over buffers of `nbytes` rounded up to whole pieces."""
    import numba

    available = numba.get_num_threads()
    threads = min(threads or available, available)
    sweep = compiled_sweep()
    nbytes = -(-nbytes // (threads * PIECE)) * threads * PIECE
    names = list(METHODS)
    seen = np.zeros(threads, np.uint64)
    x = aligned_empty(nbytes)
    y = x if kind == "read" else aligned_empty(nbytes)
    for fresh in (x, y):  # memory is placed where the thread that first touches it runs
        alone(sweep, x, fresh, PIECE, names.index("write, ordinary stores"), 1, seen)
    repeats = -(-LEAST_SWEPT // nbytes) if nbytes < LEAST_SWEPT else 1
    for number, (name, method) in enumerate(METHODS.items()):
        if kind in (None, method.kind):
            counted = nbytes * repeats * (2 if method.kind == "copy" else 1)
            run = functools.partial(alone, sweep, x, y, PIECE, number, repeats, seen)
            yield Sweep(name, threads, counted, run)


def alone(sweep: Callable[..., None], *args: Any) -> None:
    """Run a sweep as the one parallel region of the process."""
    with _launch.parallel_region():
        sweep(*args)


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rates(methods: Sequence[Sweep], rounds: int) -> list[float]:
    """Median bytes per second of each method, all of them timed in turn."""
    for sweep in methods:
        sweep.run()
    times = np.array([[seconds(sweep.run) for sweep in methods] for _ in range(rounds)])
    counted = np.array([sweep.nbytes for sweep in methods])
    return (counted / np.median(times, axis=0)).tolist()  # type: ignore[no-any-return]


def ceilings(nbytes: int, threads: int | None = None, *, rounds: int = 9) -> dict[str, float]:
    """Measure the rates at which this machine reads, copies and writes arrays of a size.

    Parameters
    ----------
    nbytes : int
        Bytes of one array, rounded up to whole pieces of 16 KiB a thread. A copy has two arrays.
    threads : int or None, default None
        Threads that share the work; None means all that Numba has.
    rounds : int, default 9
        Times that each method runs, in turn with the others; the median counts.

    Returns
    -------
    dict of str to float, GB/s
        One entry for each of `METHODS`; the ceiling of a kind is its largest entry.

    Examples
    --------
    >>> measured = ceilings(1 << 16, rounds=1)
    >>> measured["read, 4 rows"] > 0
    True
    """
    methods = list(sweeps(nbytes, threads))
    return {
        sweep.method: rate / 1e9
        for sweep, rate in zip(methods, rates(methods, rounds), strict=True)
    }


def ceiling(kind: Kind, nbytes: int, threads: int | None = None, *, rounds: int = 9) -> Sweep:
    """Return the fastest method of a kind at this size, a call to be timed beside another."""
    methods = list(sweeps(nbytes, threads, kind))
    measured = rates(methods, rounds)
    return methods[measured.index(max(measured))]


def paired(call: Callable[[], object], ceiling: Sweep, rounds: int) -> tuple[list[Pair], bool]:
    """Time a call and the ceiling in turn; each time of the call stands between two of the ceiling.

    Returns
    -------
    pairs : list of Pair
        `rounds` pairs, from at most ten times as many tries. A pair counts only if the
        ceiling had its CPUs to itself before and after the call.
    quiet : bool
        False if that did not give enough pairs: then every pair taken is returned.
    """
    call()
    pairs, undisturbed = [], []
    before, was_quiet = busy_seconds(ceiling)
    for _ in range(TRIES * rounds):
        taken = seconds(call)
        after, is_quiet = busy_seconds(ceiling)
        pairs.append(Pair(taken, (before + after) / 2))
        if was_quiet and is_quiet:
            undisturbed.append(pairs[-1])
        if len(undisturbed) == rounds:
            return undisturbed, True
        before, was_quiet = after, is_quiet
    return pairs, False


def busy_seconds(sweep: Sweep) -> tuple[float, bool]:
    """Wall time of a sweep, and whether its threads had their CPUs to themselves meanwhile."""
    cpu = time.process_time()
    wall = seconds(sweep.run)
    return wall, time.process_time() - cpu >= BUSY * sweep.threads * wall


def machine() -> dict[str, Any]:
    """Describe this machine and the versions that rates depend on; None is what cannot be read.

    Examples
    --------
    >>> machine()["python"] == platform.python_version()
    True
    """
    return {
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_usable": usable_cpus(),
        "caches": caches(),
        "memory_bytes": memory_bytes(),
        "governor": text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge_pages": text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "llvmlite")},
        "threading_layer": threading_layer(),
    }


def text(path: str | Path) -> str | None:
    """Content of a small file, or None where there is none to read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def cpu_model() -> str:
    """Name of the processor as the kernel or the platform gives it."""
    named = re.search(r"^model name\s*:\s*(.+)$", text("/proc/cpuinfo") or "", re.MULTILINE)
    return named.group(1) if named else platform.processor() or platform.machine()


def usable_cpus() -> int | None:
    """Count the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def caches() -> dict[str, str | None]:
    """Size of each cache of the first CPU, such as {"L1 Data": "48K", "L3 Unified": "32768K"}."""
    found = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    return {
        f"L{text(index / 'level')} {text(index / 'type')}": text(index / "size") for index in found
    }


def memory_bytes() -> int | None:
    """Physical memory."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def version(name: str) -> str | None:
    """Version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def threading_layer() -> str | None:
    """Numba's threading layer, known once a parallel kernel has run."""
    try:
        import numba

        return str(numba.threading_layer())
    except (ImportError, ValueError):
        return None
