"""What this machine can do: measured rates of reading, copying, writing and calculating.

A rate is in GB/s of 1e9 bytes. A read counts the bytes of its input once, a write those of its
output once, a copy both; what the hardware reads beyond that, as the lines that an ordinary store
has to fetch first, is not counted. On a shared machine only ratios of times taken in turn mean
anything: `paired` takes them.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rmsfast import _launch

__all__ = ["ceiling", "ceilings", "paired", "peak"]

Bytes = NDArray[np.uint8]
Kind = Literal["read", "copy", "write"]

# Bytes of one vector. Whole cache lines are read and stored 10 % faster than halves with AVX-512.
LINE = 64
# Bytes a thread visits in one go, as one, two or four rows side by side.
PIECE = 16384
LINES_AT_ONCE = 4
STRIDE = LINE * LINES_AT_ONCE
# Bytes: a smaller working set is swept repeatedly, so that waking the threads does not count.
LEAST_SWEPT = 1 << 27
# Doubles in a vector and vectors in flight of a loop that calculates: 14 of the 16 registers of
# AVX2, and nearly enough to hide the latency of two AVX-512 units.
LANES = 8
CHAINS = 7
STEPS = 1_000_000
# Seconds of a sweep in which the time until all threads have woken does not count.
WAKING = 0.002
TURNS = 3  # of a call and the ceiling, of which the best make a pair
SHORT = 0.01  # seconds of both: what disturbs longer ones disturbs each of their turns
# Share of its CPUs that a sweep must have had for its time to say something about the machine.
BUSY = 0.9


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
    kind: Kind
    threads: int
    nbytes: int  # counted in one run
    run: Callable[[], None]


class Pair(NamedTuple):
    """Time of a call and of the ceiling in turn with it, in seconds."""

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


@functools.cache
def compiled_multiply_adds() -> Callable[..., None]:
    """Return run(steps, factor, last): as many multiply-adds of `CHAINS` vectors by each thread."""
    from llvmlite import ir
    from numba import njit, prange, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    double = ir.DoubleType()
    vector = ir.VectorType(double, LANES)
    lane = ir.IntType(32)

    @intrinsic
    def chains(_typingctx: Any, steps: Any, factor: Any) -> Any:
        """Sum of independent chains of c = c * factor + factor."""

        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            steps, factor = args
            first = ir.Constant(lane, 0)
            one = builder.insert_element(ir.Constant(vector, None), factor, first)
            zeros = ir.Constant(ir.VectorType(lane, LANES), [0] * LANES)
            factors = builder.shuffle_vector(one, one, zeros)
            kept = [cgutils.alloca_once_value(builder, factors) for _ in range(CHAINS)]
            with cgutils.for_range(builder, steps):
                for slot in kept:
                    product = builder.fmul(builder.load(slot), factors, flags=["contract"])
                    builder.store(builder.fadd(product, factors, flags=["contract"]), slot)
            total = functools.reduce(builder.fadd, [builder.load(slot) for slot in kept])
            lanes = [
                builder.extract_element(total, ir.Constant(lane, index)) for index in range(LANES)
            ]
            return functools.reduce(builder.fadd, lanes)

        return types.float64(types.intp, types.float64), codegen

    @njit(parallel=True, nogil=True)
    def run(steps: int, factor: float, last: Any) -> None:
        for thread in prange(last.size):
            last[thread] = chains(steps, factor)

    return cast(Callable[..., None], run)


def peak(threads: int | None = None, *, rounds: int = 5) -> float:
    """Measure the rate of float64 multiply-adds that need no memory, in 1e9 operations a second.

    A multiply-add counts as two operations. It is the flat part of a roofline.

    Examples
    --------
    >>> peak(1, rounds=1) > 0
    True
    """
    run = compiled_multiply_adds()
    last = np.empty(threads_for(threads))
    alone(run, STEPS, 0.5, last)
    best = min(seconds(lambda: alone(run, STEPS, 0.5, last)) for _ in range(rounds))
    return 2 * CHAINS * LANES * STEPS * last.size / best / 1e9


def threads_for(threads: int | None) -> int:
    """Threads to measure with: those asked for, or all, as far as there are so many."""
    import numba

    available: int = min(_launch.threads_for(None), numba.get_num_threads())
    return min(threads or available, available)


def aligned_empty(nbytes: int) -> Bytes:
    """Uninitialised bytes that start on a cache line."""
    raw = np.empty(nbytes + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + nbytes]


def working_memory(nbytes: int, threads: int | None = None) -> Bytes:
    """Memory for sweeps over working sets up to a size, first touched by the threads themselves."""
    count = threads_for(threads)
    step = 2 * count * PIECE  # one more than needed, as fewer threads may round up further
    memory = aligned_empty(-(-nbytes // step) * step + step)
    # Pages are placed where the thread that first touches them runs.
    next(sweeps(memory.size, count, "write", memory)).run()
    return memory


def sweeps(
    nbytes: int,
    threads: int | None = None,
    kind: Kind | None = None,
    memory: Bytes | None = None,
) -> Iterator[Sweep]:
    """Yield the methods (of one kind) over a working set: a copy reads half of it into the other.

    The share of a thread is rounded up to whole pieces.
    """
    threads = threads_for(threads)
    sweep = compiled_sweep()
    memory = working_memory(nbytes, threads) if memory is None else memory
    seen = np.zeros(threads, np.uint64)
    for number, (name, method) in enumerate(METHODS.items()):
        if kind not in (None, method.kind):
            continue
        halves = 2 if method.kind == "copy" else 1
        share = -(-nbytes // (halves * threads * STRIDE)) * STRIDE
        piece = min(PIECE, share)
        size = threads * -(-share // piece) * piece
        x, y = memory[:size], memory[-size:]
        repeats = max(1, LEAST_SWEPT // size)
        run = functools.partial(alone, sweep, x, y, piece, number, repeats, seen)
        yield Sweep(name, method.kind, threads, halves * size * repeats, run)


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
    """Bytes per second of each method at best, all of them timed in turn."""
    for sweep in methods:
        sweep.run()
    times = np.array([[seconds(sweep.run) for sweep in methods] for _ in range(rounds)])
    counted = np.array([sweep.nbytes for sweep in methods])
    return (counted / times.min(axis=0)).tolist()  # type: ignore[no-any-return]


def ceilings(nbytes: int, threads: int | None = None, *, rounds: int = 9) -> dict[str, float]:
    """Measure the rates at which this machine reads, copies and writes a working set.

    Parameters
    ----------
    nbytes : int
        Bytes of the working set, of which a copy reads one half and writes the other.
    threads : int or None, default None
        Threads that share the work; None means all.
    rounds : int, default 9
        Times that each method runs, in turn with the others; the best counts.

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
    measured = rates(methods, rounds)
    return {sweep.method: rate / 1e9 for sweep, rate in zip(methods, measured, strict=True)}


def ceiling(kind: Kind, nbytes: int, threads: int | None = None, *, rounds: int = 9) -> Sweep:
    """Return the fastest method of a kind at this size, a call to be timed beside another."""
    methods = list(sweeps(nbytes, threads, kind))
    measured = rates(methods, rounds)
    return methods[measured.index(max(measured))]


def paired(
    call: Callable[[], object], ceiling: Sweep, rounds: int, patience: float = 5.0
) -> tuple[list[Pair], bool]:
    """Time a call and the ceiling in turn; a pair of short ones is the best of `TURNS` turns.

    What disturbs a machine only ever takes time, so the best of a few turns is what it can do, and
    as both have as many tries at the same moment, neither is favoured.

    Returns
    -------
    pairs : list of Pair
        `rounds` pairs. A pair counts only if the ceiling had its CPUs to itself in every turn.
    quiet : bool
        False if there were not enough of these in `patience` seconds: then every pair taken is
        returned, at least `rounds`.
    """
    count = TURNS if seconds(call) + seconds(ceiling.run) < SHORT else 1
    pairs: list[Pair] = []
    undisturbed: list[Pair] = []
    start = time.perf_counter()
    while len(pairs) < rounds or time.perf_counter() - start < patience:
        turns = [(*busy_seconds(ceiling), seconds(call)) for _ in range(count)]
        pairs.append(Pair(min(turn[2] for turn in turns), min(turn[0] for turn in turns)))
        if all(turn[1] for turn in turns):
            undisturbed.append(pairs[-1])
        if len(undisturbed) == rounds:
            return undisturbed, True
    return pairs, False


def busy_seconds(sweep: Sweep) -> tuple[float, bool]:
    """Wall time of a sweep, and whether its threads had their CPUs to themselves meanwhile.

    A short sweep counts the second time, when its threads are awake.
    """
    for _ in range(2):
        cpu = time.process_time()
        wall = seconds(sweep.run)
        busy = time.process_time() - cpu >= BUSY * sweep.threads * wall
        if wall > WAKING:
            break
    return wall, busy
