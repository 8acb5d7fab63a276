"""Calls beside the ceiling of the machine, in rounds through a table of problems.

What is measured drifts: the clock of the processor, the neighbours of a virtual machine, where
arrays happen to lie in memory. Pairs taken one after another, of the same arrays, agree with each
other far better than two runs do. So each problem is visited once in a round, with arrays made
anew, and the spread of its visits is that of what is reported.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from rmsfast import _launch, hardware
from rmsfast.hardware import Pair, Sweep
from rmsfast.problems import Arrays, Case, Problem, case_of

__all__ = ["Entry", "page_faults", "take_turns", "threads_set"]

TRIES = 2  # times as many rounds as asked for, for what was disturbed in one
PLACES = 1 << 16  # of 16 bytes, as many as may lie before the arrays of a round


class Entry:
    """A problem of some size, and its pairs with the ceiling for each number of threads."""

    def __init__(
        self, problem: Problem, nbytes: int, ceilings: Mapping[int, Sweep], rounds: int
    ) -> None:
        self.problem = problem
        self.nbytes = nbytes  # of the first array
        self.ceilings = ceilings
        self.rounds = rounds  # in which it is visited, and quiet pairs that there should be
        self.pairs: dict[int, list[Pair]] = {threads: [] for threads in ceilings}
        self.faults = dict.fromkeys(ceilings, 0)
        self.about: dict[str, Any] = {}

    def lacking(self) -> list[int]:
        """Numbers of threads with fewer quiet pairs than there should be."""
        return [n for n, pairs in self.pairs.items() if len(undisturbed(pairs)) < self.rounds]

    def is_due(self, number: int) -> bool:
        """Whether to visit it in the round of this number, from 0."""
        disturbed = number < TRIES * self.rounds and self.lacking()
        return number < self.rounds or bool(disturbed)

    def visit(self, arrays: Arrays) -> None:
        """Check the answer at the first time, and take a pair where one lacks."""
        self.take(self.check(arrays))

    def check(self, arrays: Arrays) -> Case:
        """Make the call; measure the error of the answer at the first time."""
        first = not self.about
        case = case_of(self.problem, arrays, check=first)
        if first:
            self.about = {
                "problem": self.problem.name,
                "function": self.problem.function,
                "dtype": self.problem.dtype,
                "layout": self.problem.layout,
                "operations": self.problem.operations * next(iter(case.arrays.values())).size,
                "error_ulps": case.error,
                "right": case.error <= self.problem.bound,
                "nbytes": case.nbytes,
            }
        return case

    def take(self, case: Case, short: float = hardware.SHORT) -> None:
        """Take a pair with each number of threads for which one lacks; see `hardware.pair`."""
        for threads in self.lacking():
            with threads_set(threads):
                before = page_faults()
                self.pairs[threads].append(hardware.pair(case.call, self.ceilings[threads], short))
                self.faults[threads] += page_faults() - before

    def rate(self, threads: int) -> dict[str, Any]:
        """Rate of the call, and its ratio to the ceiling: the median of the visits, and a spread.

        Of quiet pairs, if there are as many as there should be, else of all.
        """
        ceiling, pairs = self.ceilings[threads], undisturbed(self.pairs[threads])
        quiet = len(pairs) >= self.rounds
        taken = np.array(pairs if quiet else self.pairs[threads])
        rates, reached = self.about["nbytes"] / taken[:, 0], ceiling.nbytes / taken[:, 1]
        p10, share, p90 = quantiles((rates / reached).tolist())
        return {
            "gb_per_s": float(np.median(rates / 1e9)),
            "ceiling": ceiling.method,
            "ceiling_gb_per_s": float(np.median(reached / 1e9)),
            "share": share,
            "p10": p10,
            "p90": p90,
            "pairs": len(taken),
            "quiet": quiet,
            "page_faults": self.faults[threads],
        }


def take_turns(entries: Sequence[Entry]) -> None:
    """Visit each entry once a round; a disturbed one in up to `TRIES` times as many rounds."""
    sharing: dict[tuple[Any, int, bool], list[Entry]] = {}
    for entry in entries:
        writes = entry.problem.out == "x"  # over arrays that others are to find as they were made
        sharing.setdefault((entry.problem.arrays, entry.nbytes, writes), []).append(entry)
    places = np.random.default_rng(0)
    for number in range(TRIES * max(entry.rounds for entry in entries)):
        # Where arrays lie decides how well a cache holds them: here elsewhere in each round.
        before_them = np.empty(16 * int(places.integers(PLACES)), np.uint8)
        for (make, nbytes, _), group in sharing.items():
            visited = [e for e in group if e.is_due(number)]
            arrays = make(nbytes) if visited else {}
            for entry in visited:
                entry.visit(arrays)
            del arrays
        del before_them


def quantiles(ratios: Sequence[float]) -> list[float]:
    """10th percentile, median and 90th percentile of what a visit gives.

    Interpolated between a few visits they would lie too close together: these are without bias.
    """
    found: list[float]
    found = np.quantile(np.array(ratios), [0.1, 0.5, 0.9], method="median_unbiased").tolist()
    return found


def undisturbed(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs whose ceiling had its CPUs to itself."""
    return [pair for pair in pairs if pair.quiet]


@contextmanager
def threads_set(count: int) -> Iterator[None]:
    """A number of threads for calls that do not name one."""
    before = _launch.set_threads(count)
    try:
        yield
    finally:
        _launch.set_threads(before)


def page_faults() -> int:
    """Page faults of this process so far, 0 where they are not counted."""
    with suppress(ImportError):
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_minflt + usage.ru_majflt
    return 0
