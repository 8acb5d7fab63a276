"""Every problem for pytest-benchmark, beside its ceiling and its peers: one group a problem."""

import functools
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.peers import PEERS, peers_of
from rmsfast import hardware
from rmsfast.problems import PROBLEMS, Problem, prepare

NBYTES = 64 << 20
ROUNDS = 7

prepared = functools.lru_cache(maxsize=1)(prepare)  # the runners of a problem share its arrays
RUNNERS = [
    (problem, runner)
    for problem in PROBLEMS
    for runner in ("rmsfast", *PEERS.get(problem.name, {}), "ceiling")
]


@pytest.mark.parametrize(
    ("problem", "runner"), RUNNERS, ids=[f"{problem.name}-{runner}" for problem, runner in RUNNERS]
)
def test_speed(problem: Problem, runner: str, benchmark: BenchmarkFixture) -> None:
    """Times one runner on one problem, after its answer was checked."""
    case = prepared(problem, NBYTES)
    assert case.error <= problem.bound
    nbytes = case.nbytes
    call: Callable[[], object] = case.call
    if runner == "ceiling":
        ceiling = hardware.ceiling(problem.ceiling, nbytes)
        call, nbytes = ceiling.run, ceiling.nbytes
    elif runner != "rmsfast":
        peers = peers_of(problem, case)
        if runner not in peers:
            pytest.skip(f"{runner} is not installed")
        call = peers[runner]
    benchmark.group = problem.name
    benchmark.pedantic(call, rounds=ROUNDS, warmup_rounds=1)
    if benchmark.stats:  # none with --benchmark-disable
        benchmark.extra_info["GB/s"] = round(nbytes / benchmark.stats.stats.median / 1e9, 2)
        benchmark.extra_info["error_ulps"] = case.error
