"""Every problem for pytest-benchmark, beside its ceiling and its peers: one group a problem."""

import functools

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.problems import PROBLEMS, Case, Problem, available, prepare
from bench.ratios import ceiling_of

NBYTES = 192 << 20
ROUNDS = 7
SHORT_CALLS = 1000  # in one round, where what is timed is the call itself

prepared = functools.lru_cache(maxsize=1)(prepare)  # the runners of a problem share its arrays
RUNNERS = [
    (problem, runner)
    for problem in PROBLEMS
    if available(problem)
    for runner in ("rmsfast", *problem.peers, *(["ceiling"] if problem.ceiling else []))
]


@pytest.mark.parametrize(
    ("problem", "runner"), RUNNERS, ids=[f"{problem.name}-{runner}" for problem, runner in RUNNERS]
)
def test_speed(problem: Problem, runner: str, benchmark: BenchmarkFixture) -> None:
    """Times one runner on one problem, after its answer was checked."""
    case: Case = prepared(problem, NBYTES)
    assert case.error <= problem.bound
    call, nbytes = {"rmsfast": case.call, **case.peers}.get(runner), case.nbytes
    if runner == "ceiling":
        ceiling = ceiling_of(problem.ceiling, case.nbytes)
        call, nbytes = ceiling.run, ceiling.nbytes
    benchmark.group = problem.name
    benchmark.pedantic(
        call, rounds=ROUNDS, warmup_rounds=1, iterations=1 if problem.ceiling else SHORT_CALLS
    )
    if benchmark.stats:  # none with --benchmark-disable
        benchmark.extra_info["GB/s"] = round(nbytes / benchmark.stats.stats.median / 1e9, 2)
        benchmark.extra_info["error_ulps"] = case.error
