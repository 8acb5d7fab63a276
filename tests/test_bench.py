"""`rmsfast bench` with the ceilings and problems that it stands on, and the suite in bench/."""

import errno
import json
import math
import os
import sys
import threading
import time
from fractions import Fraction

import exact
import numpy as np
import pytest

import rmsfast
from bench import peers, ratios, scaling, table
from rmsfast import hardware, machine, problems, roofline, visits
from rmsfast.problems import PROBLEMS

testing = pytest.importorskip("click.testing")
pytest.importorskip("rich")

from rmsfast.cli import _options, cli, main  # noqa: E402 - needs click

SMALL = 1 << 14
PLAIN = [p for p in PROBLEMS if p.name in ("rms float32 rows", "unit_rms float32 rows")]


# Problems ---------------------------------------------------------------------------------------


def test_problems_have_names_of_their_own():
    assert len({p.name for p in PROBLEMS}) == len(PROBLEMS)


@pytest.mark.parametrize(
    ("name", "counted"),
    [  # in units of the bytes of x
        ("rms float32 rows", 1),
        ("rms float32 where", 1.25),
        ("rms float32 weights", 2),
        ("rmse float32 rows", 2),
        ("unit_rms float32 rows", 2),
        ("rms_norm float32 in place", 2),
    ],
)
def test_prepare_counts_what_is_read_once_and_what_is_written(name, counted):
    [problem] = (p for p in PROBLEMS if p.name == name)
    case = problems.prepare(problem, SMALL)
    assert case.nbytes == counted * SMALL
    assert case.error <= problem.bound


@pytest.mark.parametrize(
    "value", [Fraction(2), Fraction(1, 3), Fraction(10**40), Fraction(1, 9**99)]
)
def test_root_squared_is_the_value(value):
    assert abs(problems.root(value) ** 2 / value - 1) < Fraction(1, 2**140)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_largest_error_is_that_of_the_oracle(dtype):
    [problem] = (p for p in PROBLEMS if p.name == f"rms {dtype} rows")
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(dtype)
    answer = rmsfast.rms(x)
    answer[1] += 7 * np.spacing(answer[1])
    expected = max(
        exact.ulp_error(r, exact.mean_square(row)) for r, row in zip(answer, x, strict=True)
    )
    assert expected > 6
    assert problems.largest_error(problem, {"x": x}, answer) == pytest.approx(expected, rel=1e-9)


def test_largest_error_of_bfloat16_scaling_is_in_its_own_ulps():
    [problem] = (p for p in PROBLEMS if p.name == "unit_rms bfloat16 rows")
    x = np.array([[0x4040, 0x4080, 0, 0]], np.uint16)  # (3, 4, 0, 0), of RMS 2.5
    answer = np.array([[0x3F9A, 0x3FCD, 0, 0]], np.uint16)  # the nearest to 1.2 and 1.6
    wrong = answer + np.uint16(1)
    ulp = 2.0**-7
    assert problems.largest_error(problem, {"x": x}, answer) == pytest.approx(0.4)
    assert problems.largest_error(problem, {"x": x}, wrong) >= (1.6171875 - 1.6) / ulp - 0.9
    nan = answer.copy()
    nan[0, 0] = 0x7FC0
    assert problems.largest_error(problem, {"x": x}, nan) == math.inf


@pytest.mark.parametrize("unit", [-30, 3])
def test_distance_is_the_difference_in_units(unit):
    exact_value = Fraction(1, 3)
    found = problems.distance(0.375, exact_value, unit)
    assert found == float((Fraction(3, 8) - exact_value) / Fraction(2) ** unit)


def test_mean_square_with_weights_is_exact():
    x, weights = np.array([0.5, -3.0, 2.0**-20]), np.array([0.25, 2.0, 1.0])
    expected = (Fraction(1, 16) + 18 + Fraction(1, 2**40)) / Fraction(13, 4)
    assert problems.mean_square(x, weights) == expected


# Machine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("", {}, 8 << 20),
        ("0::/a\n", {"a/memory.max": "max", "a/memory.current": "1"}, 8 << 20),
        ("0::/a\n", {"memory.max": "3000000", "memory.current": "1000000"}, 2_000_000),
        (
            "0::/\n",
            {
                "memory.max": "300",
                "memory.current": "250",
                "memory.stat": "anon 1\ninactive_file 40",
            },
            90,
        ),
        (
            "4:memory:/b\n2:cpu:/\n",
            {"memory/b/memory.limit_in_bytes": "70", "memory/b/memory.usage_in_bytes": "80"},
            0,
        ),
    ],
    ids=["none", "unbounded", "of a group above", "with file cache", "version 1"],
)
def test_usable_memory_is_the_least_that_is_left(tmp_path, groups, files, free):
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:    8192 kB\n")
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    paths = (tmp_path / name for name in ("meminfo", "groups", "."))
    assert machine.usable_memory(*map(str, paths)) == free


@pytest.mark.parametrize("quick", [True, False])
def test_working_sets_stay_within_a_share_of_usable_memory(monkeypatch, quick):
    monkeypatch.setattr(machine, "usable_memory", lambda: 40 << 20)
    monkeypatch.setattr(machine, "cache_bytes", lambda: {"L1": 1 << 15, "L3": 1 << 25})
    sizes = roofline.working_sets(quick)
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1 << 14, 10 << 20)
    assert roofline.warnings(sizes) == [
        "the largest working set, 10 MiB, is less than 4 x the last-level cache of 32 MiB: its "
        "rates are partly those of the cache"
    ]


def test_warnings_are_none_where_the_largest_working_set_is_memory(monkeypatch):
    monkeypatch.setattr(machine, "cache_bytes", lambda: {"L1": 1 << 15, "L3": 1 << 20})
    assert roofline.warnings([1 << 22]) == []


# Ceilings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("nbytes", [1, 3000, 1 << 16, 3 << 16])
def test_sweeps_write_and_copy_their_working_set_and_no_more(monkeypatch, nbytes, threads):
    monkeypatch.setattr(hardware, "LEAST_SWEPT", 0)
    monkeypatch.setattr(hardware, "LEAST_BYTES", 1)
    memory = hardware.working_memory(3 << 16, threads)
    for sweep in hardware.sweeps(nbytes, threads, memory=memory):
        memory[:] = 7
        sweep.run()
        touched = np.count_nonzero(memory != 7)
        # Written are ones; a copy of sevens shows nothing.
        assert touched == 0 or sweep.kind == "write"
        if sweep.kind == "write":
            assert nbytes <= touched * 8 // 7 + 8 < memory.size * 8 // 7 + 16


def test_copy_leaves_the_source_in_the_target():
    memory = hardware.working_memory(1 << 16)
    half = memory.size // 2
    for sweep in hardware.sweeps(1 << 16, kind="copy", memory=memory):
        memory[:half], memory[half:] = 3, 5
        sweep.run()
        assert np.count_nonzero(memory == 3) >= half + (1 << 15)


# The report -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report():
    return roofline.measure(quick=True, problems=PLAIN, sizes=[SMALL, 1 << 20], rounds=1)


def test_measure_has_a_row_for_each_problem_size_and_number_of_threads(report):
    threads = sorted({1, rmsfast.get_num_threads()})
    found = [(r["problem"], r["working_set"], r["threads"]) for r in report["rows"]]
    assert sorted(found) == sorted(
        (p.name, size, count) for p in PLAIN for size in (SMALL, 1 << 20) for count in threads
    )


def test_measure_states_ceiling_error_and_what_is_kept_apart(report):
    assert json.loads(json.dumps(report)) == report
    assert all(row["right"] and row["nbytes"] == row["working_set"] for row in report["rows"])
    assert [row["ceiling"].split(",")[0] for row in report["rows"][::2]] == ["read", "copy"] * 2
    assert report["first_touch"]["seconds"] > 0
    assert report["first_call_seconds"].keys() == {p.name for p in PLAIN}
    assert "count what they read and what they write" in report["convention"]
    for title in ("share", "p10-p90", "ulps"):
        assert f"{title}: " in report["convention"]
        assert title in roofline.ROW_TITLES
    assert len(report["ceilings"]) == 2 * len({row["threads"] for row in report["rows"]})


def test_measure_states_no_ceiling_below_that_of_a_row(monkeypatch):
    monkeypatch.setattr(hardware, "rates", lambda sweeps, _: [1.0] * len(sweeps))  # as if disturbed
    peaks = iter([1.0, 3.0])
    monkeypatch.setattr(hardware, "peak", lambda _: next(peaks))
    monkeypatch.setattr(roofline, "thread_counts", lambda _: [1])
    shown = []
    found = roofline.measure(quick=True, problems=PLAIN, sizes=[SMALL], rounds=1, show=shown.append)
    assert found["peak"] == {"1": 3.0}
    [ceiling] = found["ceilings"]
    reads, copies = found["rows"]
    for row in (reads, copies):
        assert ceiling[row["ceiling"]] == row["ceiling_gb_per_s"]
    above, *_, last = shown[shown.index("\nceilings, working set 16 KiB") + 1 :]
    assert above == f"1 thread, GB/s: read {reads['ceiling_gb_per_s']:.1f}"
    assert last.startswith(copies["problem"])


def test_raised_takes_the_rows_of_its_working_set_and_threads():
    ceiling = {"nbytes": 8, "threads": 2, "read, 1 row": 12.0, "copy, ordinary stores": 50.0}
    rows = [
        {"working_set": size, "threads": threads, "ceiling": name, "ceiling_gb_per_s": rate}
        for size, threads, name, rate in [
            (8, 2, "read, 1 row", 700.0),
            (8, 2, "read, 1 row", 600.0),
            (8, 2, "copy, ordinary stores", 40.0),
            (8, 1, "read, 1 row", 800.0),
            (4, 2, "read, 1 row", 900.0),
        ]
    ]
    assert roofline.raised(ceiling, rows) == ceiling | {"read, 1 row": 700.0}


def test_measure_leaves_the_number_of_threads(report):
    assert report["rows"]
    assert rmsfast.get_num_threads() == roofline.thread_counts(quick=True)[-1]


def test_measure_marks_a_wrong_answer(monkeypatch):
    monkeypatch.setattr(problems, "largest_error", lambda *_: 3.0)
    shown = []
    found = roofline.measure(
        quick=True, problems=PLAIN[:1], sizes=[SMALL], rounds=1, show=shown.append
    )
    assert not any(row["right"] for row in found["rows"])
    assert shown[-1].endswith("WRONG")


@pytest.mark.parametrize(
    ("share", "text"), [(0.003, "0.3%"), (0.096, "9.6%"), (0.1, "10%"), (1.052, "105%")]
)
def test_percent_has_a_decimal_below_ten(share, text):
    assert roofline.percent(share) == text


def row(share, p10, p90, rate=10.0, problem="rms float32 rows", quiet=True):
    about = {"problem": problem, "working_set": 1 << 20, "threads": 2, "quiet": quiet}
    return about | {"share": share, "p10": p10, "p90": p90, "gb_per_s": rate}


def test_compare_gives_ratios_of_shares_with_their_spread():
    old = {"rows": [row(0.8, 0.75, 1.0), row(0.5, 0.5, 0.5, problem="gone")]}
    new = {"rows": [row(0.4, 0.25, 0.5, rate=20.0)]}
    [ratio] = roofline.compare(old, new)
    assert (ratio["ratio"], ratio["low"], ratio["rate_ratio"]) == (0.5, 0.25, 2.0)
    assert ratio["high"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("low", "high", "quiet", "agree"),
    [(0.9, 1.1, True, 1), (1.0, 1.0, True, 1), (1.01, 1.2, True, 0), (0.9, 1.1, False, 0)],
)
def test_agreeing_counts_undisturbed_ratios_that_may_be_one(low, high, quiet, agree):
    assert roofline.agreeing([{"low": low, "high": high, "quiet": quiet}]) == agree


SWEEP = hardware.Sweep("read, 1 row", "read", 1, 1, lambda: None)


@pytest.mark.parametrize(
    ("alone", "quiet"),
    [((True, True, True), True), ((False, True, False), True), ((True, False, True), False)],
)
def test_pair_takes_the_best_of_turns(monkeypatch, alone, quiet):
    ceilings = iter(zip([3.0, 2.0, 4.0], alone, strict=True))
    calls = iter([0.5, 0.4, 0.3])
    monkeypatch.setattr(hardware, "busy_seconds", lambda _: next(ceilings))
    monkeypatch.setattr(hardware, "seconds", lambda _: next(calls))
    assert hardware.pair(lambda: None, SWEEP) == hardware.Pair(0.3, 2.0, quiet)


def test_pair_takes_one_turn_of_long_calls(monkeypatch):
    monkeypatch.setattr(hardware, "busy_seconds", lambda _: (2.0, True))
    calls = iter([0.5])
    monkeypatch.setattr(hardware, "seconds", lambda _: next(calls))
    assert hardware.pair(lambda: None, SWEEP, 0.0) == hardware.Pair(0.5, 2.0, True)


def test_seconds_each_times_many_short_calls_at_once(monkeypatch):
    taken = iter([4e-4, 3e-4, 1e-4, 5e-5, 2e-4])  # as a cache settles
    calls = []

    def seconds(call):
        call()
        return next(taken)

    monkeypatch.setattr(hardware, "seconds", seconds)
    assert hardware.seconds_each(lambda: calls.append(1)) == pytest.approx(2e-4 / 20)
    assert len(calls) == 4 + 20  # 20 of 50 us take as long as is needed


def test_cpu_seconds_counts_other_threads_at_once():
    def spin():
        while not done.is_set():
            pass

    done = threading.Event()
    spinning = threading.Thread(target=spin)
    before, own = hardware.cpu_seconds(), time.thread_time()
    spinning.start()
    while hardware.cpu_seconds() - before <= 1.5 * (time.thread_time() - own):
        pass  # for ever, if the clock told of this thread alone
    done.set()
    spinning.join()


# Visits -----------------------------------------------------------------------------------------


@pytest.fixture
def disturbed(monkeypatch):
    """The first pair of each call is disturbed, and half as fast; says what was called."""
    calls = {}

    def pair(call, _ceiling, _short):
        calls.setdefault(id(call.func), []).append(call.keywords.get("x", call.args[0]))
        first = len(calls[id(call.func)]) == 1
        return hardware.Pair(4.0 if first else 2.0, 1.0, not first)

    monkeypatch.setattr(hardware, "pair", pair)
    return calls


def entry(problem, rounds):
    return visits.Entry(problem, SMALL, {1: SWEEP._replace(nbytes=SMALL)}, rounds)


@pytest.mark.usefixtures("disturbed")
def test_take_turns_makes_up_for_what_was_disturbed():
    visited = entry(PLAIN[0], rounds=3)
    visits.take_turns([visited])
    assert [pair.quiet for pair in visited.pairs[1]] == [False, True, True, True]
    found = visited.rate(1)
    assert (found["share"], found["p10"], found["pairs"], found["quiet"]) == (0.5, 0.5, 3, True)


def test_take_turns_ends_though_all_is_disturbed(monkeypatch):
    monkeypatch.setattr(hardware, "pair", lambda *_: hardware.Pair(2.0, 1.0, False))
    visited = entry(PLAIN[0], rounds=3)
    visits.take_turns([visited])
    assert len(visited.pairs[1]) == 6
    assert not visited.rate(1)["quiet"]


def test_take_turns_shares_arrays_in_a_round_and_makes_them_anew_in_the_next(disturbed):
    rows, columns = (p for p in PROBLEMS if p.name in ("rms float32 rows", "rms float32 axis=0"))
    assert rows.arrays is columns.arrays
    visits.take_turns([entry(rows, 2), entry(columns, 2)])
    [used] = disturbed.values()  # of one function
    assert used[0] is used[1]
    assert used[1] is not used[2]
    np.testing.assert_array_equal(used[1], used[2])


def test_take_turns_of_what_writes_in_place_leaves_the_arrays_of_others(disturbed):
    names = ("rms float32 rows", "unit_rms float32 in place", "rms float32 axis=0")
    visits.take_turns([entry(p, 1) for p in PROBLEMS if p.name in names])
    (rows, columns, *_), (written, *_) = disturbed.values()
    assert rows is columns
    assert written is not rows


def test_quantiles_of_few_visits_are_the_extremes():
    assert visits.quantiles([3.0, 1.0, 2.0, 5.0, 4.0]) == [1.0, 3.0, 5.0]


@pytest.mark.parametrize(("least", "status"), [(None, 0), (0.6, 0), (0.7, 1)])
def test_bench_compare_fails_where_all_of_the_spread_is_less(tmp_path, capsys, least, status):
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps({"rows": [row(0.8, 0.75, 1.0)]}))
    new.write_text(json.dumps({"rows": [row(0.4, 0.25, 0.5)]}))
    under = [] if least is None else ["--fail-under", str(least)]
    assert main(["bench", "--compare", str(old), str(new), *under]) == status
    lines = capsys.readouterr().out.splitlines()
    expected = ["rms", "float32", "rows", "1", "MiB", "2", "0.500", "0.250-0.667", "1.000"]
    assert lines[1].split() == expected + ["FAILED"] * status
    assert lines[2:] == [
        "median of 1 ratios of shares of the ceiling, new over old: 0.500",
        ("" if least is None else f"{status} of 1 below {least}; ")
        + "0 of 1 are 1 within their spread",
    ]


@pytest.mark.parametrize("disturbed", ["old", "new"])
def test_bench_compare_neither_fails_nor_agrees_by_disturbed_rows(tmp_path, capsys, disturbed):
    for name, share in (("old", 0.5), ("new", 0.25)):
        rows = [row(0.5, 0.5, 0.5, problem="same")]
        rows += [row(share, share, share, problem="less", quiet=name != disturbed)]
        rows += [row(0.5, 0.5, 0.5, problem="same too", quiet=name != disturbed)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"rows": rows}))
    files = [str(tmp_path / f"{name}.json") for name in ("old", "new")]
    assert main(["bench", "--compare", *files, "--fail-under", "0.9"]) == 0
    titles, same, too, less, _, verdict = capsys.readouterr().out.splitlines()
    assert titles.split()[-1] == "rates"
    assert (same.split()[0], too.split()[-1], less.split()[-1]) == ("same", "*", "*")
    assert less.startswith("less")
    assert verdict == "0 of 3 below 0.9; 1 of 1 are 1 within their spread (2 disturbed, *)"


@pytest.mark.parametrize(
    "damage",
    [
        *({"share": value} for value in (0, -0.5, math.nan, math.inf, "0.5", None, 10**400)),
        {"p10": 0.0},
        {"gb_per_s": 0.0},
        {"working_set": "1 MiB"},
        {"problem": ["rms"]},
        {"quiet": None},
    ],
    ids=str,
)
def test_bench_compare_names_a_damaged_file(tmp_path, monkeypatch, capsys, damage):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "whole.json").write_text(json.dumps({"rows": [row(0.5, 0.5, 0.5)]}))
    (tmp_path / "damaged.json").write_text(json.dumps({"rows": [row(0.5, 0.5, 0.5) | damage]}))
    assert main(["bench", "--compare", "whole.json", "damaged.json"]) == 2
    expected = "rmsfast: damaged.json: not a file that rmsfast bench --json wrote\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize("missing", list(row(1, 1, 1)))
def test_bench_compare_names_a_file_in_which_something_is_missing(
    tmp_path, monkeypatch, capsys, missing
):
    monkeypatch.chdir(tmp_path)
    found = row(0.5, 0.5, 0.5)
    del found[missing]
    (tmp_path / "x.json").write_text(json.dumps({"rows": [found]}))
    assert main(["bench", "--compare", "x.json", "x.json"]) == 2
    expected = "rmsfast: x.json: not a file that rmsfast bench --json wrote\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--fail-under", "0.9"], "bench: --fail-under needs --compare"),
        (["--compare", "a", "b", "--quick"], "bench: --compare goes with --fail-under only"),
        *(
            (
                ["--compare", "empty.json", "empty.json", f"--fail-under={least}"],
                f"bench: --fail-under must be finite and > 0, got {float(least)}",
            )
            for least in ("0", "-1", "nan", "inf")
        ),
        (
            ["--compare", "rows.json"],
            "Option '--compare' requires 2 arguments (see rmsfast bench --help)",
        ),
        (["--json", "absent/x.json"], "absent/x.json: no such folder"),
        (["--json", "folder"], "folder: Is a directory"),
        (["--plot", "folder.png"], "folder.png: Is a directory"),
        (
            ["--json", "x.png", "--plot", "./x.png"],
            "bench: --json and --plot must name two files, got x.png and ./x.png",
        ),
        (["--plot", "x.pdf"], "x.pdf: a plot must end in .png, got '.pdf'"),
        (["--compare", "rows.json", "a"], "rows.json: not a file that rmsfast bench --json wrote"),
        (["--compare", "empty.json", "empty.json"], "bench: the two files have no row in common"),
        (["--compare", "absent.json", "a"], "absent.json: No such file or directory"),
    ],
)
def test_bench_refusal_is_one_line(tmp_path, monkeypatch, capsys, arguments, fault):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(roofline, "measure", None)
    for name in ("folder", "folder.png"):
        (tmp_path / name).mkdir()
    (tmp_path / "rows.json").write_text('{"rows": [1]}')
    (tmp_path / "empty.json").write_text('{"rows": []}')
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr() == ("", f"rmsfast: {fault}\n")


def test_bench_refuses_a_file_that_cannot_be_written_before_it_measures(monkeypatch, capsys):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(roofline, "measure", None)
    assert main(["bench", "--json", "x.json"]) == 2
    assert capsys.readouterr() == ("", "rmsfast: x.json: Permission denied\n")


def test_check_writable_leaves_files_as_they_were(tmp_path):
    (tmp_path / "old.json").write_text("old")
    _options.check_writable(str(tmp_path / "old.json"), str(tmp_path / "new.json"), None)
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old"


def test_bench_prints_and_stores_a_report(tmp_path, monkeypatch, report):
    def measure(*, quick, show):
        show(f"quick is {quick}")
        return report

    monkeypatch.setattr(roofline, "measure", measure)
    monkeypatch.chdir(tmp_path)
    result = testing.CliRunner().invoke(cli, ["bench", "--quick", "--json", "x.json"])
    assert (result.exit_code, result.stdout) == (0, "quick is True\n")
    assert json.loads((tmp_path / "x.json").read_text()) == report


def test_lines_of_a_report_fit_80_columns():
    shown = []
    roofline.measure(quick=True, problems=PLAIN[:1], sizes=[SMALL], rounds=1, show=shown.append)
    lines = [line for text in shown for line in text.splitlines()]
    assert max(map(len, lines)) <= 80


def test_bench_plot_is_a_picture_800_pixels_wide(tmp_path, report):
    pytest.importorskip("matplotlib")
    from rmsfast import plots

    plots.report(report, str(tmp_path / "x.png"))
    header = (tmp_path / "x.png").read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert int.from_bytes(header[16:20], "big") == 800


@pytest.mark.parametrize(
    ("rates", "expected"), [((32.0, 64.0), "60"), ((3.0, 90.0), "50"), ((0.3, 900.0), "100")]
)
def test_ticks_of_rates_are_plain_numbers(rates, expected):
    pytest.importorskip("matplotlib")
    from rmsfast.plots import _bench, _figure

    drawn = _figure.figure([3.0])
    axes = drawn.add_subplot()
    axes.plot([1, 2], rates)
    axes.set_yscale("log")
    _bench.plain_along(axes)
    drawn.canvas.draw()
    low, high = axes.get_ylim()
    both = zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    shown = [label.get_text() for place, label in both if low <= place <= high]
    assert expected in shown
    assert len(shown) > 2
    assert [f"{float(text):g}" for text in shown] == shown


def test_plot_draws_the_ceilings_of_the_report(report):
    pytest.importorskip("matplotlib")
    from rmsfast.plots import _bench, _figure

    axes = _figure.figure([5.0]).add_subplot()
    most = [c for c in report["ceilings"] if c["threads"] == report["ceilings"][-1]["threads"]]
    rows = [row for row in report["rows"] if row["threads"] == most[-1]["threads"]]
    _bench.roofline(axes, report, rows, most)
    labels = axes.get_legend_handles_labels()[1]
    for kind in ("read", "copy"):
        assert f"{kind}: {_bench.best_of(kind, most[-1]):.0f} GB/s" in labels
        reached = [row["ceiling_gb_per_s"] for row in rows if row["ceiling"].startswith(kind)]
        assert max(_bench.best_of(kind, ceiling) for ceiling in most) >= max(reached)


def test_legend_of_the_roofline_covers_no_mark(report):
    pytest.importorskip("matplotlib")
    from rmsfast.plots import _bench, _figure

    drawn = _figure.figure([5.0])
    axes = drawn.add_subplot()
    most = [row for row in report["rows"] if row["threads"] == report["rows"][-1]["threads"]]
    _bench.roofline(axes, report, most, report["ceilings"])
    drawn.canvas.draw()
    assert axes.get_legend().get_window_extent().y1 < axes.get_window_extent().y0


# The suite in bench/ ----------------------------------------------------------------------------


def test_table_in_readme_is_that_of_the_newest_result_file():
    assert table.parts(table.README.read_text())[1] == table.table(*table.newest())


def test_peers_stand_for_problems_that_exist():
    assert peers.PEERS.keys() <= {p.name for p in PROBLEMS}


@pytest.mark.parametrize(
    "problem", [p for p in PROBLEMS if p.name in peers.PEERS], ids=lambda p: p.name
)
def test_numpy_idioms_answer_their_problem(problem):
    case = problems.prepare(problem, SMALL)
    idioms = {n: p for n, p in peers.PEERS[problem.name].items() if n.startswith("numpy ")}
    assert idioms
    for peer in idioms.values():
        error = ratios.peer_error(problem, case, peer(**case.arrays))
        assert error is None if problem.out == "x" else error < 16


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["--only", "("], "argument --only: missing ), unterminated subpattern at position 0, got"),
        (["--only", "nosuch"], "argument --only: no problem has a name that matches 'nosuch'"),
        (["--rounds", "0"], "argument --rounds: must be a whole number from 1 on, got '0'"),
        (["--mib", "x"], "argument --mib: must be a whole number from 1 on, got 'x'"),
    ],
)
def test_ratios_of_wrong_options_are_refused_in_one_line(arguments, refusal, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ratios.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        ratios.main()
    assert ended.value.code == 2
    assert refusal in capsys.readouterr().err.splitlines()[-1]


def test_measure_of_ratios_has_every_installed_peer_and_its_error():
    [problem] = (p for p in PROBLEMS if p.name == "rms int16 rows")
    row = ratios.measure(problem, 1 << 12, rounds=1)
    assert row["right"]
    assert "ceiling" not in row  # of a call that is shorter than the launch of a sweep
    idiom = row["peers"]["numpy in int64"]
    assert idiom["times"] > 0
    assert idiom["error_ulps"] <= 1
    assert ratios.best_numpy(row) == "numpy in int64"
    assert json.loads(json.dumps(row)) == row


def test_peers_of_leaves_out_a_library_that_is_missing(monkeypatch):
    def missing(**_arrays):
        raise ModuleNotFoundError("no such library")

    monkeypatch.setitem(peers.PEERS, PLAIN[0].name, {"missing": missing, "here": lambda x: x.sum})
    assert list(peers.peers_of(PLAIN[0], problems.prepare(PLAIN[0], SMALL))) == ["here"]


def test_fit_finds_the_cost_of_a_call_and_of_each_row():
    n = np.array([1, 10, 100, 10_000])
    call, each, worst = scaling.fit(n, 3e-6 + 2e-9 * n)
    assert (call, each) == (pytest.approx(3e-6), pytest.approx(2e-9))
    assert worst < 1e-9


@pytest.mark.parametrize(
    ("gains", "size"),
    [
        ([-1, -1, 1, 2], 2**11.5),
        ([1, -1, 0.5, 2], 2 ** (11 + 2 / 3)),  # the last change counts
        ([1, 1, 1, 1], 2**10),
        ([1, 1, 1, -1], None),
    ],
)
def test_crossing_is_where_gains_become_positive_for_good(gains, size):
    found = scaling.crossing([1 << 10, 1 << 11, 1 << 12, 1 << 13], gains)
    assert found == (None if size is None else round(size))
