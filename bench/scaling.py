"""Time against rows, columns and threads over four decades, and where threads begin to pay.

    python -m bench.scaling --json bench/results/scaling/NAME.json --plot scaling.png

A time is fitted by a + b n, a for the call and b for each row (or column), with relative errors
as small as can be. Serial and parallel calls are also timed in turn at sizes around the crossover,
back to back, when the threads of the last call are still awake, and each after a pause.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import rmsfast
from rmsfast import _launch, hardware, machine, plots, roofline, visits
from rmsfast.problems import PROBLEMS, prepare

COLUMNS, ROWS = 1024, 16
ROW_COUNTS = np.geomspace(6, 6e4, 13).astype(int)  # up to 240 MB of float32
COLUMN_COUNTS = np.geomspace(1e2, 1e6, 13).astype(int)
AROUND = [1 << shift for shift in range(16, 24)]  # bytes of the first array
CROSSING = (
    *("rms float32 rows", "rms float64 rows", "rms bfloat16 rows", "rmse float32 rows"),
    *("unit_rms float32 rows", "rms_norm bfloat16 rows"),
)
PAUSE = 0.005  # seconds, after which the threads of OpenMP sleep
AWAKE = 5  # calls back to back, of which the best counts


def main() -> None:
    """Measure, print, and store or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to store the results")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="where to draw them")
    options = parser.parse_args()

    threads = roofline.thread_counts(quick=False)
    results = {
        "machine": machine.machine(),
        "rows": series("rows", ROW_COUNTS, lambda n: (n, COLUMNS), threads, options.rounds),
        "columns": series("columns", COLUMN_COUNTS, lambda n: (ROWS, n), threads, options.rounds),
        "crossovers": [crossover(name, options.rounds) for name in CROSSING],
    }
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.plot:
        plots.scaling(results, str(options.plot))


def series(
    name: str,
    counts: Sequence[int],
    shape: Callable[[int], tuple[int, int]],
    threads: Sequence[int],
    rounds: int,
) -> list[dict[str, Any]]:
    """Times of `rms` of float32 against a length of the array, for each number of threads.

    Every round goes through all lengths, so that what disturbs the machine for a moment does not
    count at one of them in every round.
    """
    values = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
    arrays = [np.resize(values, shape(int(n))) for n in counts]
    found = []
    for count in threads:
        with visits.threads_set(count):
            calls = [functools.partial(rmsfast.rms, x) for x in arrays]
            for call in calls:
                call()
            taken = [[hardware.seconds_each(call) for call in calls] for _ in range(rounds)]
        times = np.median(taken, axis=0).tolist()
        call, each, worst = fit(counts, times)
        print(
            f"{name}, {roofline.threads_text(count)}: {call * 1e6:.1f} us + n x "
            f"{each * 1e9:.2f} ns, off by at most {worst:.0%}"
        )
        found.append({
            "threads": count,
            "n": [int(n) for n in counts],
            "seconds": times,
            "call_seconds": call,
            "seconds_each": each,
            "largest_deviation": worst,
        })  # fmt: skip
    return found


def fit(counts: Sequence[int], times: Sequence[float]) -> tuple[float, float, float]:
    """Coefficients a and b of a + b n, not negative, and the largest relative deviation."""
    n, t = np.asarray(counts, float), np.asarray(times)
    (call, each), *_ = np.linalg.lstsq(np.column_stack([1 / t, n / t]), np.ones(len(t)))
    if call < 0:
        call, each = 0.0, 1 / np.mean(n / t)
    return float(call), float(each), float(np.abs((call + each * n) / t - 1).max())


@contextmanager
def parallel_from(nbytes: int) -> Iterator[None]:
    """Another size from which calls run in parallel."""
    before = _launch.AWAKE_BYTES, _launch.PARALLEL_BYTES
    _launch.AWAKE_BYTES = _launch.PARALLEL_BYTES = nbytes
    try:
        yield
    finally:
        _launch.AWAKE_BYTES, _launch.PARALLEL_BYTES = before


def crossover(name: str, rounds: int) -> dict[str, Any]:
    """Times of serial and parallel calls around the size from which the latter are faster.

    Every round goes through all sizes, so that what disturbs the machine for a moment does not
    count at one of them in every round.
    """
    [problem] = (p for p in PROBLEMS if p.name == name)
    cases = [prepare(problem, size) for size in AROUND]
    sizes = [case.nbytes for case in cases]
    with parallel_from(0):
        cases[0].call()  # compile
    found: dict[str, Any] = {"problem": name, "nbytes": sizes, "seconds": {}}
    for label, pause in (("back to back", 0.0), ("after a pause", PAUSE)):
        taken = [[in_turn(case.call, pause) for case in cases] for _ in range(rounds)]
        serial, parallel = np.median(taken, axis=0).T
        found["seconds"][f"serial, {label}"] = serial.tolist()
        found["seconds"][f"parallel, {label}"] = parallel.tolist()
        found[label] = crossing(sizes, np.log(serial / parallel))
        pays = "none" if found[label] is None else roofline.human(found[label])
        print(f"{name}, {label}: parallel pays from {pays}")
    return found


def in_turn(call: Callable[[], object], pause: float) -> list[float]:
    """Times of a call in serial and in parallel; without a pause, the best of those after one."""
    times = []
    for least in (1 << 62, 0):
        with parallel_from(least):
            if pause:
                time.sleep(pause)
            else:
                call()
            turns = 1 if pause else AWAKE
            times.append(min(hardware.seconds(call) for _ in range(turns)))
    return times


def crossing(sizes: Sequence[int], gains: Sequence[float]) -> int | None:
    """Size from which all gains are positive, interpolated; None if the last is not."""
    if gains[-1] <= 0:
        return None
    negative = [index for index, gain in enumerate(gains) if gain <= 0]
    if not negative:
        return sizes[0]
    below = negative[-1]
    share = -gains[below] / (gains[below + 1] - gains[below])
    return round(sizes[below] * (sizes[below + 1] / sizes[below]) ** share)


if __name__ == "__main__":
    main()
