"""Time each problem in turn with the ceiling of the machine and with its peers; print or store it.

    python -m bench.ratios --only "rms float32|bfloat16" --json bench/results/NAME.json

A share is the rate of a call over the rate of the ceiling just before and after it. Rates on a
shared machine drift by tens of per cent within seconds; ratios taken in turn do not.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench import memory
from bench.peers import as_array, peers_of
from rmsfast import hardware, machine, roofline, visits
from rmsfast.problems import PROBLEMS, Case, Problem, largest_error

MAP = "rms of a memory map"
MAP_BYTES = 400_000_000
SMALL = [1 << 9, 1 << 12, 1 << 16, 1 << 20]  # bytes of the first array, of rows of float32
MAIN = 1 << 26
LARGE = 1 << 28
LEAST_BYTES = 1 << 16  # for less, what counts is the time of a call, and there is no ceiling
LEAST_ROUNDS = 3
SHORT = 0.02  # seconds: libraries whose threads wake slowly may take 5 ms more at first
PATIENCE = 1.5  # seconds for all turns of a pair, and for one peer that had the least rounds
HEADING = """\
Call, size of its first array, and time; from 64 KiB on its rate, and the share of the ceiling that
this is (p10-p90); the largest error; how many times as fast as the fastest NumPy expression and as
the fastest other library it is (below 1: slower).
"""
VERSIONS = (
    *("numpy", "numba", "torch", "jax", "numkong", "numpy-rms", "bottleneck", "numexpr"),
    *("scikit-learn", "numbagg", "xskillscore"),
)


def main() -> int:
    """Measure what was asked for; 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", type=pattern, default="", metavar="PATTERN", help="regular expression"
    )
    parser.add_argument("--rounds", type=count, default=9, metavar="N", help="pairs a problem")
    parser.add_argument("--mib", type=count, metavar="N", help="the only size of the first array")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to store the results")
    options = parser.parse_args()
    only = options.only
    chosen = [problem for problem in PROBLEMS if only.search(problem.name)]
    if not chosen and not only.search(MAP):
        parser.error(f"argument --only: no problem has a name that matches {only.pattern!r}")

    print(HEADING)
    rows = []
    for problem in chosen:
        for size in [options.mib << 20] if options.mib else sizes(problem):
            rows.append(measure(problem, size, options.rounds))
            print(line(rows[-1]), flush=True)
    versions = {name: machine.version(name) for name in VERSIONS}
    results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.machine(),
        "versions": versions,
        "rows": rows,
    }
    if only.search(MAP):
        results[MAP] = {"nbytes": MAP_BYTES, "growth_bytes": memory.growth(MAP_BYTES)}
        print(f"{MAP}: {results[MAP]}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(not all(row["right"] for row in rows))


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{error}, got {text!r}") from None


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def sizes(problem: Problem) -> list[int]:
    """Bytes of the first array: many for rows of float32, one for the rest."""
    plain = (problem.dtype, problem.layout) == ("float32", "rows")
    return [*SMALL, MAIN, LARGE] if plain else [MAIN]


def measure(problem: Problem, size: int, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    threads, ceilings = hardware.threads_for(None), {}
    if size >= LEAST_BYTES:
        nbytes = roofline.working_set(problem, size)
        memory = hardware.well_placed(hardware.working_memory(max(nbytes, MAIN)), nbytes)
        ceilings[threads] = hardware.ceiling(problem.ceiling, nbytes, memory=memory)
        del memory
    entry = visits.Entry(problem, size, ceilings, rounds)
    case = entry.check(problem.arrays(size))
    if ceilings:
        hardware.pair(case.call, ceilings[threads])  # caches settle
    for number in range(visits.TRIES * rounds):
        if entry.is_due(number):
            entry.take(case, PATIENCE)
    row = entry.about | {"size": size} | (entry.rate(threads) if ceilings else {})
    del entry, ceilings  # their memory
    peers = peers_of(problem, case)
    errors = {name: peer_error(problem, case, peer) for name, peer in peers.items()}
    row["peers"] = {
        name: beside_peer(case, peer, rounds) | {"error_ulps": errors[name]}
        for name, peer in peers.items()
    }
    rated = "gb_per_s" in row
    row["seconds"] = row["nbytes"] / row["gb_per_s"] / 1e9 if rated else seconds(case.call)
    return row


def peer_error(problem: Problem, case: Case, peer: Callable[[], Any]) -> float | None:
    """Error of a peer in ulps of the result of the package; None where it overwrites its input."""
    if problem.out == "x":
        return None
    answer = as_array(peer())
    if answer.shape != next(iter(case.arrays.values())).shape:
        answer = answer.astype(problem.answer(case.call()).dtype)
    return largest_error(problem, case.arrays, answer)


def beside_peer(case: Case, peer: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """Time of a peer over that of the call: the median of pairs, each the best of a few turns."""
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < LEAST_ROUNDS or (
        len(times) < rounds and time.perf_counter() - start < PATIENCE
    ):
        turns = [
            [hardware.seconds_each(call, SHORT) for call in (peer, case.call)]
            for _ in range(hardware.TURNS)
        ]
        taken, own = np.min(turns, axis=0)
        times.append(taken / own)
    p10, ratio, p90 = np.quantile(times, [0.1, 0.5, 0.9]).tolist()
    return {"times": ratio, "p10": p10, "p90": p90}


def seconds(call: Callable[[], object]) -> float:
    """Median time of a call."""
    return float(np.median([hardware.seconds_each(call) for _ in range(LEAST_ROUNDS)]))


def best(row: dict[str, Any], names: Sequence[str]) -> str | None:
    """Name of the fastest of some peers of a row."""
    times = {name: peer["times"] for name, peer in row["peers"].items() if name in names}
    return min(times, key=lambda name: times[name], default=None)


def best_numpy(row: dict[str, Any]) -> str | None:
    """Name of the fastest NumPy idiom."""
    return best(row, [name for name in row["peers"] if name.startswith("numpy ")])


def best_peer(row: dict[str, Any]) -> str | None:
    """Name of the fastest other library."""
    return best(row, [name for name in row["peers"] if not name.startswith("numpy ")])


def line(row: dict[str, Any]) -> str:
    """One line of the printed table."""
    cells = f"{row['problem']:30}{roofline.human(row['size']):>8}{row['seconds'] * 1e6:10.1f} us"
    if "share" in row:
        cells += (
            f"{row['gb_per_s']:7.1f} GB/s {row['share']:6.1%} ({row['p10']:.1%}-{row['p90']:.1%})"
        )
    cells += f" {row['error_ulps']:.3f} ulps"
    for name in filter(None, (best_numpy(row), best_peer(row))):
        cells += f", {row['peers'][name]['times']:.3g} x as fast as {name}"
    return cells + " disturbed" * (not row.get("quiet", True)) + " WRONG" * (not row["right"])


if __name__ == "__main__":
    sys.exit(main())
