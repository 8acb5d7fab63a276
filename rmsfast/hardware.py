"""What this machine can do: measured rates of reading, copying, writing and calculating.

A rate is in GB/s of 1e9 bytes. A read counts the bytes of its input once, a write those of its
output once, a copy both; what the hardware reads beyond that, as the lines that an ordinary store
has to fetch first, is not counted. On a shared machine only ratios of times taken in turn mean
anything: `pair` takes them.
"""

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rmsfast import _launch

__all__ = ["ceiling", "ceilings", "pair", "peak"]

Bytes = NDArray[np.uint8]
Kind = Literal["read", "copy", "write"]
T = TypeVar("T")

LINE = 64
PIECE = 16384  # bytes that a thread visits in one go, as one, two or four rows side by side
HUGE_PAGE = 1 << 21
# Seconds: a smaller working set is swept repeatedly, so that waking the threads does not count.
LEAST_SWEPT = 0.00025
LEAST_BYTES = 1 << 26  # swept at least, so that what a cache keeps settles
LEAST_TIMED = 0.001  # seconds: shorter calls are timed many at a time, and caches settle
PLACES = 8  # in which a small working set is tried
THREADS = "/proc/self/task"  # a folder for each thread of the process
LEAST_CHOSEN = 0.06  # seconds for the choice of a method
STEPS = 1_000_000  # of a loop that calculates
TURNS = 3  # of a call and the ceiling, of which the best make a pair
# Seconds: where it takes longer it counts little that threads wake, and what caches held before.
WAKING = 0.005
SETTLING = 3  # passes until a last-level cache keeps what others had driven from it
SHORT = 0.02  # seconds of a pair from which on it has no further turn
# Share of its CPUs that a sweep must have had for its time to say something about the machine.
BUSY = 0.9


class Sweep(NamedTuple):
    """One method over memory of its own, ready to be timed."""

    method: str
    kind: Kind
    threads: int
    nbytes: int  # counted in one run
    run: Callable[[], None]


class Pair(NamedTuple):
    """Time of a call and of the ceiling in turn with it, in seconds."""

    call: float
    ceiling: float
    quiet: bool  # whether the ceiling had its CPUs to itself


def peak(threads: int | None = None, *, rounds: int = 5) -> float:
    """Measure the rate of float64 multiply-adds that need no memory, in 1e9 operations a second.

    A multiply-add counts as two operations. It is the flat part of a roofline.

    Examples
    --------
    >>> peak(1, rounds=1) > 0
    True
    """
    from rmsfast import _sweeps

    last = np.empty(threads_for(threads))
    run = functools.partial(alone, last.size, _sweeps.multiply_adds, STEPS, 0.5, last)
    run()
    best = min(seconds(run) for _ in range(rounds))
    return 2 * _sweeps.CHAINS * _sweeps.LANES * STEPS * last.size / best / 1e9


def threads_for(threads: int | None) -> int:
    """Threads to measure with: those asked for, or all, as far as there are so many."""
    import numba

    available: int = min(_launch.threads_for(None), numba.get_num_threads())
    return min(threads or available, available)


def aligned_empty(nbytes: int) -> Bytes:
    """Uninitialised bytes that start a line after where a huge page may.

    A read that prefetches is 15 % faster than from the first line of a page.
    """
    raw = np.empty(nbytes + HUGE_PAGE, np.uint8)
    start = (LINE - raw.ctypes.data) % HUGE_PAGE
    return raw[start : start + nbytes]


def working_memory(nbytes: int, threads: int | None = None) -> Bytes:
    """Memory for sweeps over working sets up to a size, first touched by the threads themselves."""
    count = threads_for(threads)
    step = 2 * count * PIECE  # one more than needed, as fewer threads may round up further
    memory = aligned_empty(-(-nbytes // step) * step + step + HUGE_PAGE)
    # Pages are placed where the thread that first touches them runs.
    next(sweeps(memory.size - memory.size % step, count, "write", memory)).run()
    return memory


def sweeps(
    nbytes: int,
    threads: int | None = None,
    kind: Kind | None = None,
    memory: Bytes | None = None,
) -> Iterator[Sweep]:
    """Yield the methods (of one kind) over a working set: a copy reads half of it into the other.

    The share of a thread is rounded up to whole pieces. Both halves start on a huge page: where
    the pages of a small working set lie decides how well a cache holds it.
    """
    from rmsfast import _sweeps

    threads = threads_for(threads)
    memory = working_memory(nbytes, threads) if memory is None else memory
    seen = np.zeros(threads, np.uint64)
    for number, (name, method) in enumerate(_sweeps.METHODS.items()):
        if kind not in (None, method.kind):
            continue
        halves = 2 if method.kind == "copy" else 1
        share = -(-nbytes // (halves * threads * _sweeps.STRIDE)) * _sweeps.STRIDE
        piece = min(PIECE, share)
        size = threads * -(-share // piece) * piece
        second = -(-size // HUGE_PAGE) * HUGE_PAGE * (halves - 1)
        x, y = memory[:size], memory[second : second + size]
        run = functools.partial(alone, threads, _sweeps.sweep, x, y, piece, number, seen)
        repeats = enough(run, max(1, LEAST_BYTES // size))
        swept, last = halves * size * repeats, functools.partial(run, repeats)
        yield Sweep(name, cast(Kind, method.kind), threads, swept, last)


def well_placed(memory: Bytes, nbytes: int) -> Bytes:
    """Part of some memory in which one thread sweeps a working set that is much smaller fastest.

    How well a cache holds it depends on where its pages lie: a bad place is half as fast.
    """
    apart = memory.size // PLACES // HUGE_PAGE * HUGE_PAGE
    if apart < nbytes + 2 * HUGE_PAGE:
        return memory
    parts = [memory[place * apart :] for place in range(PLACES)]
    kinds: tuple[Kind, ...] = ("read", "copy")
    tried = [next(sweeps(nbytes, 1, kind, part)) for kind in kinds for part in parts]
    found = np.reshape(rates(tried, 3), (len(kinds), PLACES)).sum(axis=0)
    return parts[int(found.argmax())]


def enough(run: Callable[[int], None], repeats: int) -> int:
    """Repeats that take at least `LEAST_SWEPT`, or those given; one try may be disturbed."""
    once = functools.partial(run, repeats)
    taken = seconds(once)
    if taken < SHORT / 2:
        taken = min(taken, seconds(once))
    return repeats if taken >= LEAST_SWEPT else enough(run, 2 * repeats)


def alone(threads: int, kernel: Any, *args: Any) -> None:
    """Run a kernel on some threads as the one parallel region of the process."""
    import numba

    with _launch.parallel_region():
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            _launch.call(kernel, args)
        finally:
            numba.set_num_threads(before)
    _launch.note_awake()


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def rates(methods: Sequence[Sweep], rounds: int) -> list[float]:
    """Bytes per second of each method at best, all of them timed in turn.

    Short ones have more rounds: where methods are close, luck would choose between them.
    """
    start = time.perf_counter()
    times: list[list[float]] = []
    while len(times) < rounds or time.perf_counter() - start < LEAST_CHOSEN:
        times.append([seconds(sweep.run) for sweep in methods])
    counted = np.array([sweep.nbytes for sweep in methods])
    return (counted / np.min(times, axis=0)).tolist()  # type: ignore[no-any-return]


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


def ceiling(
    kind: Kind,
    nbytes: int,
    threads: int | None = None,
    *,
    memory: Bytes | None = None,
    rounds: int = 9,
) -> Sweep:
    """Return the fastest method of a kind at this size, a call to be timed beside another."""
    methods = list(sweeps(nbytes, threads, kind, memory))
    measured = rates(methods, rounds)
    return methods[measured.index(max(measured))]


def pair(call: Callable[[], object], ceiling: Sweep, short: float = SHORT) -> Pair:
    """Time a call and the ceiling in turn; a pair of short ones is the best of `TURNS` turns.

    What disturbs a machine only ever takes time, so the best of a few turns is what it can do, and
    as both have as many tries at the same moment, neither is favoured. What disturbs longer ones
    disturbs each of their turns.
    """

    def turn() -> Pair:
        wall, quiet = busy_seconds(ceiling)
        return Pair(seconds_each(call), wall, quiet)

    taken = turns(turn, short)
    best = min(taken, key=lambda pair: pair.ceiling)
    return best._replace(call=min(pair.call for pair in taken))


def turns(turn: Callable[[], T], short: float) -> list[T]:
    """Results of `TURNS` turns if they are short, else of as many as begin in time."""
    start = time.perf_counter()
    found = [turn()]
    while len(found) < TURNS and time.perf_counter() - start < short:
        found.append(turn())
    return found


def seconds_each(call: Callable[[], object], short: float = WAKING) -> float:
    """Wall time of a call; of one that takes less than `LEAST_TIMED`, in as many in a row.

    A short call counts once caches have settled, as a sweep does.
    """
    taken = seconds(call)
    if taken < short:
        for _ in range(SETTLING):
            taken = seconds(call)
        count = math.ceil(LEAST_TIMED / taken)
        if count > 1:
            taken = seconds(lambda: [call() for _ in range(count)]) / count
    return taken


def busy_seconds(sweep: Sweep) -> tuple[float, bool]:
    """Wall time of a sweep, and whether its threads had their CPUs to themselves meanwhile.

    A short sweep counts once threads are awake and caches have settled.
    """
    for _ in range(1 + SETTLING):
        cpu = cpu_seconds()
        wall = seconds(sweep.run)
        busy = cpu_seconds() - cpu >= BUSY * sweep.threads * wall
        if wall > WAKING:
            break
    return wall, busy


def cpu_seconds() -> float:
    """CPU time of all threads so far.

    The clock of a process lags by up to a tick of milliseconds for threads that are running on
    other CPUs; Linux tells the exact time of each by a clock of its own.
    """
    try:
        return sum(time.clock_gettime(~int(name) << 3 | 6) for name in os.listdir(THREADS))
    except OSError:  # another system, or a thread that has just ended
        return time.process_time()
