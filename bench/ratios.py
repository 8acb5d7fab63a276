"""Time each problem in turn with the ceiling of the machine, and print or store the ratios.

    python -m bench.ratios --only "rms float32|bfloat16" --json bench/results/NAME.json

A ratio is the rate of a call over the rate of the ceiling just before and after it. Rates on a
shared machine drift by tens of per cent within seconds; ratios taken in turn do not.
"""

import argparse
import functools
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rmsfast
from bench import memory
from bench.problems import PROBLEMS, Case, Problem, available, prepare
from rmsfast import hardware

SPEEDUP = "speed-up over "
MAP = "rms of a memory map"
MAP_BYTES = 400_000_000
PEER_ROUNDS = 5
COLUMNS = {
    "gb_per_s": ("GB/s", ".1f"),
    "ceiling_gb_per_s": ("ceiling", ".1f"),
    "ratio": ("ratio", ".3f"),
    "p10": ("p10", ".3f"),
    "p90": ("p90", ".3f"),
    "error_ulps": ("ulps", ".5f"),
}
LEAST_TIMED = 0.002  # seconds: shorter calls are timed many at a time


def main() -> int:
    """Measure what was asked for; 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="regular expression")
    parser.add_argument("--rounds", type=int, default=15, metavar="N", help="pairs a problem")
    parser.add_argument("--mib", type=int, default=192, metavar="N", help="size of x")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to store the results")
    options = parser.parse_args()

    print(f"{'problem':32}{''.join(f'{title:>9}' for title, _ in COLUMNS.values())}")
    rows = []
    for problem in PROBLEMS:
        if not re.search(options.only, problem.name):
            continue
        if not available(problem):
            print(f"{problem.name:32} absent")
            continue
        rows.append(measure(problem, options.mib << 20, options.rounds))
        print(line(rows[-1]), flush=True)
    results: dict[str, Any] = {"machine": hardware.machine(), "mib": options.mib, "rows": rows}
    if re.search(options.only, MAP) and hasattr(rmsfast, "rms"):
        results[MAP] = {"nbytes": MAP_BYTES, "growth_bytes": memory.growth(MAP_BYTES)}
        print(f"{MAP}: {results[MAP]}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return int(not all(row["right"] for row in rows))


def measure(problem: Problem, nbytes: int, rounds: int) -> dict[str, Any]:
    """One row of the table."""
    case = prepare(problem, nbytes)
    row = {"problem": problem.name, "error_ulps": case.error, "right": case.error <= problem.bound}
    if problem.ceiling is not None:
        row |= beside_ceiling(case, ceiling_of(problem.ceiling, case.nbytes), rounds)
    for name, peer in case.peers.items():
        row[SPEEDUP + name] = speedup(case.call, peer)
    return row


def beside_ceiling(case: Case, ceiling: hardware.Sweep, rounds: int) -> dict[str, Any]:
    """Rate of a call, and its ratio to the ceiling."""
    pairs, quiet = hardware.paired(case.call, ceiling, rounds)
    calls, ceilings = np.array(pairs).T
    ratios = (case.nbytes / calls) / (ceiling.nbytes / ceilings)
    p10, ratio, p90 = np.quantile(ratios, [0.1, 0.5, 0.9]).tolist()
    return {
        "nbytes": case.nbytes,
        "gb_per_s": float(np.median(case.nbytes / calls / 1e9)),
        "ceiling": ceiling.method,
        "ceiling_gb_per_s": float(np.median(ceiling.nbytes / ceilings / 1e9)),
        "ratio": ratio,
        "p10": p10,
        "p90": p90,
        "pairs": len(pairs),
        "quiet": quiet,
    }


@functools.lru_cache(maxsize=1)  # neighbours in the table have the same; its buffers are large
def ceiling_of(kind: hardware.Kind, counted: int) -> hardware.Sweep:
    """Return the fastest way to read, or copy, as many bytes."""
    return hardware.ceiling(kind, counted // 2 if kind == "copy" else counted)


def speedup(call: Callable[[], object], peer: Callable[[], object]) -> float:
    """Time of a peer over that of the call, both taken in turn."""
    peer()
    count = max(1, round(LEAST_TIMED / hardware.seconds(call)))

    def seconds(repeated: Callable[[], object]) -> float:
        return hardware.seconds(lambda: [repeated() for _ in range(count)])

    return statistics.median(seconds(peer) / seconds(call) for _ in range(PEER_ROUNDS))


def line(row: dict[str, Any]) -> str:
    """One line of the printed table."""
    cells = [
        f"{format(row[key], spec) if key in row else '':>9}" for key, (_, spec) in COLUMNS.items()
    ]
    notes = [
        f"{value:.3g} x {key.removeprefix(SPEEDUP)}"
        for key, value in row.items()
        if key.startswith(SPEEDUP)
    ]
    notes += ["disturbed"] * (not row.get("quiet", True)) + ["WRONG"] * (not row["right"])
    return f"{row['problem']:32}{''.join(cells)}  {', '.join(notes)}"


if __name__ == "__main__":
    sys.exit(main())
