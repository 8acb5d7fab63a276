"""Rates of the package beside what the machine can do, from caches to memory: `rmsfast bench`.

A report is a dict that goes to JSON as it is: the machine, what was measured apart, the ceilings
of each working set and number of threads, and a row for each call in each of them.
"""

import functools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rmsfast import _launch, hardware, machine
from rmsfast.hardware import Sweep
from rmsfast.problems import PROBLEMS, Arrays, Problem, case_of, counted
from rmsfast.visits import Entry, page_faults, take_turns

__all__ = ["compare", "failed", "measure"]

Report = dict[str, Any]

CONVENTION = (
    "A GB is 1e9 bytes. A reduction counts each array that it reads once; a scaling and a copy "
    "count what they read and what they write. Gains, and what the hardware reads before it "
    "writes, are not counted. A copy has half of the working set as source, half as target. The "
    "ceiling is a simple sweep timed in turn with the call: a read for what only reads, a copy for "
    "what writes. share: rate of the call over the ceiling, the median of its visits; p10-p90: its "
    "spread over them; ulps: the largest error. Small working sets show the cost of a call. A "
    "share above 100% means that the call beat the simple sweep. In a row with a * other work took "
    "CPUs from the calls."
)
# Of a last-level cache whose size cannot be read.
USUAL_CACHE = 1 << 25
# Times the last-level cache that a working set should have to be called memory.
FAR = 4
# Share of the usable memory for a working set: arrays, as much for sweeps, and what makes them.
PART = 4
QUICK_BYTES = 1 << 28
QUICK_DTYPES = ("float32", "bfloat16")
ROUNDS = 9
QUICK_ROUNDS, FEWEST_ROUNDS = 7, 5  # of a short run, and in its largest working set
WIDTH = 80
ROW_TITLES = (
    f"{'call':28}{'threads':>8}{'GB/s':>8}{'ceiling':>8}{'share':>8}{'p10-p90':>12}{'ulps':>6}"
)
RATIO_TITLES = f"{'call':28}{'size':>9}{'threads':>8}{'ratio':>7}{'p10-p90':>13}{'rates':>8}"


def measure(
    *,
    quick: bool = False,
    problems: Sequence[Problem] = PROBLEMS,
    sizes: Sequence[int] | None = None,
    rounds: int | None = None,
    show: Callable[[str], object] = str,
) -> Report:
    """Time each problem in each working set with each number of threads, beside the ceiling.

    Parameters
    ----------
    quick : bool, default False
        Few working sets, thread counts, rounds and dtypes: some seconds once all is compiled.
    problems : sequence of Problem, default all
    sizes : sequence of int, default from half of the first cache to `FAR` times the last, bytes
    rounds : int, default 9; 7 if quick, 5 then in the largest working set
        Visits of each problem, in rounds through all of them.
    show : callable
        Is given the lines of a report that people read, as they come.

    Returns
    -------
    dict
    """
    sizes = working_sets(quick) if sizes is None else sizes
    threads = thread_counts(quick)
    chosen = [p for p in problems if not quick or is_quick(p)]
    report: Report = {"convention": CONVENTION, "quick": quick, "warnings": warnings(sizes)}
    report["first_call_seconds"] = {p.name: first_calls(p) for p in chosen}
    report["first_touch"] = first_touch(min(max(sizes), QUICK_BYTES))
    report["peak"] = {str(count): hardware.peak(count) for count in threads}
    report["machine"] = machine.machine()
    for line in heading(report, sizes):
        show(line)
    report["ceilings"] = []
    entries: dict[int, list[Entry]] = {}
    memory = hardware.working_memory(max(sizes))
    for size in sizes:
        found, best = ceilings(size, threads, hardware.well_placed(memory, size))
        report["ceilings"] += found
        entries[size] = [
            Entry(
                p,
                size_of_first(p, size),
                {n: best[p.ceiling, n] for n in threads},
                rounds or rounds_of(quick, size == max(sizes)),
            )
            for p in chosen
        ]
    take_turns([entry for group in entries.values() for entry in group])
    report["rows"] = [
        {"working_set": size, "threads": count} | entry.about | entry.rate(count)
        for size, group in entries.items()
        for entry in group
        for count in threads
    ]
    report["ceilings"] = [raised(found, report["rows"]) for found in report["ceilings"]]
    report["peak"] = {n: max(rate, hardware.peak(int(n))) for n, rate in report["peak"].items()}
    for line in table_lines(report):
        show(line)
    return report


# What is measured ---------------------------------------------------------------------------------


def is_quick(problem: Problem) -> bool:
    """Whether a problem belongs to the short run."""
    return problem.layout == "rows" and problem.dtype in QUICK_DTYPES


def working_sets(quick: bool) -> list[int]:
    """Bytes from half of the first cache to what memory allows, or one for each level."""
    cache = machine.cache_bytes() or {"L1": 1 << 15, "L2": 1 << 20}
    largest = FAR * max(cache.values())
    if quick:
        largest = min(largest, QUICK_BYTES)
    usable = machine.usable_memory()
    if usable is not None:
        largest = min(largest, usable // PART)
    inside = [size // 2 for size in cache.values()]
    if not quick:
        inside = [inside[0] << shift for shift in range(0, largest.bit_length(), 2)]
    return [*(size for size in inside if size < largest / 2), largest]


def thread_counts(quick: bool) -> list[int]:
    """One thread, all, and unless quick the powers of two between."""
    most = hardware.threads_for(None)
    between = [] if quick else [1 << shift for shift in range(most.bit_length())]
    return sorted({1, most, *between})


def rounds_of(quick: bool, largest: bool) -> int:
    """Rounds in which a problem of some working set is visited."""
    return (FEWEST_ROUNDS if largest else QUICK_ROUNDS) if quick else ROUNDS


def size_of_first(problem: Problem, working_set: int) -> int:
    """Bytes of the first array of a problem that has a working set."""
    arrays = problem.arrays(1 << 15)
    return working_set * next(iter(arrays.values())).nbytes // counted(problem, arrays)


def working_set(problem: Problem, nbytes: int) -> int:
    """Bytes of the working set of a problem whose first array has a size."""
    arrays = problem.arrays(1 << 15)
    return nbytes * counted(problem, arrays) // next(iter(arrays.values())).nbytes


def warnings(sizes: Sequence[int]) -> list[str]:
    """What a reader of the rates should know."""
    last = max(machine.cache_bytes().values(), default=USUAL_CACHE)
    if max(sizes) >= FAR * last:
        return []
    return [
        f"the largest working set, {human(max(sizes))}, is less than {FAR} x the last-level cache "
        f"of {human(last)}: its rates are partly those of the cache"
    ]


def ceilings(
    size: int, threads: Sequence[int], memory: hardware.Bytes
) -> tuple[list[dict[str, Any]], dict[tuple[str, int], Sweep]]:
    """Rates of all sweeps of a working set, by number of threads, and the best of each kind."""
    found: list[dict[str, Any]] = []
    best: dict[tuple[str, int], Sweep] = {}
    for count in threads:
        sweeps = list(hardware.sweeps(size, count, memory=memory))
        rates = dict(zip((s.method for s in sweeps), hardware.rates(sweeps, 3), strict=True))
        found.append({"nbytes": size, "threads": count} | {m: r / 1e9 for m, r in rates.items()})
        for sweep in sorted(sweeps, key=lambda s: rates[s.method]):
            best[sweep.kind, count] = sweep
    return found, best


def raised(ceiling: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Ceilings of a working set, nowhere below what the same sweeps reached in turn with a row.

    They were measured once, when other work may have taken the CPUs; the rows had many turns.
    """
    found = dict(ceiling)
    for row in rows:
        if (row["working_set"], row["threads"]) == (ceiling["nbytes"], ceiling["threads"]):
            found[row["ceiling"]] = max(found[row["ceiling"]], row["ceiling_gb_per_s"])
    return found


def first_calls(problem: Problem) -> float:
    """Seconds of the first calls on a small and a large array: compiling, or loading."""
    made = (problem.arrays(size) for size in (1 << 12, 4 * _launch.PARALLEL_BYTES))
    return sum(hardware.seconds(functools.partial(call_first, problem, a)) for a in made)


def call_first(problem: Problem, arrays: Arrays) -> None:
    """Call what is to be timed, and before that what makes its output."""
    case_of(problem, arrays, check=False).call()


def first_touch(nbytes: int) -> dict[str, Any]:
    """Cost of the first write to fresh memory, which no timed call pays."""
    fresh = hardware.aligned_empty(nbytes)
    before = page_faults()
    first = hardware.seconds(lambda: fresh.fill(1))
    after = page_faults()
    return {
        "nbytes": nbytes,
        "seconds": first,
        "seconds_again": hardware.seconds(lambda: fresh.fill(1)),
        "page_faults": after - before,
    }


# Two reports --------------------------------------------------------------------------------------


def compare(old: Report, new: Report) -> list[dict[str, Any]]:
    """Ratios of the shares of the ceiling in two reports, new over old, the smallest last.

    A share is a ratio taken in turn with the ceiling, so that a machine which was busier, or a
    faster one, does not count as progress. `low` and `high` bound the ratio: the 10th percentile
    of one share over the 90th of the other. It is `quiet` if neither row was disturbed.
    """
    earlier = {key(row): row for row in old["rows"]}
    both = [(earlier[key(row)], row) for row in new["rows"] if key(row) in earlier]
    ratios = [
        {
            "problem": row["problem"],
            "working_set": row["working_set"],
            "threads": row["threads"],
            "ratio": row["share"] / before["share"],
            "low": row["p10"] / before["p90"],
            "high": row["p90"] / before["p10"],
            "rate_ratio": row["gb_per_s"] / before["gb_per_s"],
            "quiet": row["quiet"] and before["quiet"],
        }
        for before, row in both
    ]
    return sorted(ratios, key=lambda ratio: ratio["ratio"], reverse=True)


def agreeing(ratios: Sequence[dict[str, Any]]) -> int:
    """Count the ratios of undisturbed rows that are 1 within their spread."""
    return sum(ratio["quiet"] and ratio["low"] <= 1 <= ratio["high"] for ratio in ratios)


def key(row: dict[str, Any]) -> tuple[str, int, int]:
    """What makes two rows comparable."""
    return row["problem"], row["working_set"], row["threads"]


def failed(ratios: Sequence[dict[str, Any]], least: float) -> list[dict[str, Any]]:
    """Ratios of undisturbed rows below what is allowed, by more than their spread explains."""
    return [ratio for ratio in ratios if ratio["quiet"] and ratio["high"] < least]


# Lines that people read ---------------------------------------------------------------------------


def human(nbytes: int) -> str:
    """Bytes with a binary unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes} B"


def heading(report: Report, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the machine, what was measured apart, what figures mean, and what comes next."""
    about, touch = report["machine"], report["first_touch"]
    held = ", ".join(f"{level} {human(size)}" for level, size in about["caches"].items())
    memory = human(about["memory_bytes"]) if about["memory_bytes"] else "unknown"
    yield f"{about['cpu']}: {about['cpus_usable']} of {about['cpus']} CPUs, {about['cores']} cores"
    yield f"caches {held or 'unknown'}; memory {memory}; governor {about['governor'] or 'unknown'}"
    yield ", ".join(f"{name} {about[name]}" for name in ("rmsfast", "numpy", "numba", "python"))
    for text in report["warnings"]:
        yield from textwrap.wrap(f"warning: {text}", WIDTH)
    calls = report["first_call_seconds"]
    yield from textwrap.wrap(
        f"Not in the rates: first calls, which compile or load, {sum(calls.values()):.1f} s for "
        f"{len(calls)} problems; first touch of {human(touch['nbytes'])}, "
        f"{touch['seconds']:.3f} s and {touch['page_faults']} page faults "
        f"({touch['seconds_again']:.3f} s when touched again).",
        WIDTH,
    )
    yield from textwrap.wrap(report["convention"], WIDTH)
    each = ", ".join(map(human, sizes))
    coming = f"Now in turn, {len(calls)} problems in working sets of {each}."
    yield from textwrap.wrap(coming, WIDTH)


def table_lines(report: Report) -> Iterator[str]:
    """Yield the rows of each working set below its ceilings."""
    for size in dict.fromkeys(row["working_set"] for row in report["rows"]):
        yield f"\nceilings, working set {human(size)}"
        for ceiling in report["ceilings"]:
            if ceiling["nbytes"] == size:
                yield from ceiling_lines(ceiling)
        yield f"\nworking set {human(size)}"
        yield ROW_TITLES
        yield from (row_line(row) for row in report["rows"] if row["working_set"] == size)


def ceiling_lines(ceiling: dict[str, Any]) -> Iterator[str]:
    """Yield the ceilings of one working set and number of threads."""
    read = max(rate for method, rate in ceiling.items() if method.startswith("read"))
    yield f"{threads_text(ceiling['threads'])}, GB/s: read {read:.1f}"
    for kind in ("copy", "write"):
        ordinary, streaming = (
            ceiling[f"{kind}, {how} stores"] for how in ("ordinary", "streaming")
        )
        yield f"  {kind} {ordinary:.1f} with ordinary stores, {streaming:.1f} with streaming stores"


def threads_text(count: int) -> str:
    """Number of threads in words."""
    return f"{count} thread{'s'[: count > 1]}"


def percent(share: float) -> str:
    """Share of the ceiling to two digits, or one decimal."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"


def row_line(row: dict[str, Any]) -> str:
    """One row of the table."""
    spread = f"{percent(row['p10'])}-{percent(row['p90'])}"
    notes = " *" * (not row["quiet"]) + " WRONG" * (not row["right"])
    return (
        f"{row['problem']:28}{row['threads']:8}{row['gb_per_s']:8.1f}"
        f"{row['ceiling_gb_per_s']:8.1f}{row['share']:8.1%}{spread:>12}"
        f"{row['error_ulps']:6.2f}{notes}"
    )


def ratio_line(ratio: dict[str, Any]) -> str:
    """One row of a comparison."""
    return (
        f"{ratio['problem']:28}{human(ratio['working_set']):>9}{ratio['threads']:8}"
        f"{ratio['ratio']:7.3f}  {ratio['low']:.3f}-{ratio['high']:.3f}{ratio['rate_ratio']:8.3f}"
        + " *"
        * (not ratio["quiet"])
    )


def verdict(ratios: Sequence[dict[str, Any]], least: float | None) -> str:
    """How many ratios are below what is allowed, if anything is said of it, and how many agree."""
    quiet = sum(ratio["quiet"] for ratio in ratios)
    below = (
        "" if least is None else f"{len(failed(ratios, least))} of {len(ratios)} below {least}; "
    )
    notes = f" ({len(ratios) - quiet} disturbed, *)" if quiet < len(ratios) else ""
    return f"{below}{agreeing(ratios)} of {quiet} are 1 within their spread{notes}"
