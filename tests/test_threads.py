"""Threads: how many, whose, and that they change nothing but the time."""

import json
import os
import subprocess
import sys

import numba
import numpy as np
import pytest
from processes import check_large, layers, run

import rmsfast
from rmsfast import _launch
from rmsfast._parallel import TRIES, give_way, leave, processor


@pytest.fixture
def automatic():
    yield
    rmsfast.set_num_threads(None)


# ------------------------------------------------------------------- concurrent callers


@pytest.fixture(scope="module", params=layers())
def on_layer(request):
    """A threading layer, and what a process that chose it prints."""
    printed = run(
        """
        import json
        from concurrent.futures import ThreadPoolExecutor
        import numba
        import rmsfast
        from processes import check_large
        before = rmsfast.show_config("dicts")["threads"]["layer"]
        numba.set_num_threads(1)
        check_large()
        after = rmsfast.show_config("dicts")["threads"]["layer"]
        kept = numba.get_num_threads()
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(check_large) for _ in range(40)]
        failed = sum(call.exception() is not None for call in calls)
        found = {"shown": [before, after], "threads": kept, "failed": failed}
        print(json.dumps(found | {"layer": numba.threading_layer()}))
        """,
        NUMBA_THREADING_LAYER=request.param,
        NUMBA_NUM_THREADS=3,
    )
    return request.param, json.loads(printed)


def test_rms_called_by_four_threads_at_once_answers_each(on_layer):
    layer, found = on_layer
    assert (found["layer"], found["failed"]) == (layer, 0)


def test_rms_while_another_region_runs_takes_the_serial_kernel():
    with _launch._region:
        check_large()


def test_rms_gives_the_region_back():
    check_large()
    assert not _launch._region.locked()


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still at the time in its list, and threads that sleep."""
    now = [100.0]
    monkeypatch.setattr(_launch, "perf_counter", lambda: now[0])
    for name in ("_awake_until", "_follow_until", "_followed"):
        monkeypatch.setattr(_launch, name, 0)
    return now


@pytest.mark.usefixtures("clock")
def test_share_pays_for_a_call_of_megabytes_only():
    assert _launch.share_pays(_launch.PARALLEL_BYTES, None)
    assert not _launch.share_pays(_launch.PARALLEL_BYTES - 1, None)


def test_share_pays_for_less_while_threads_are_awake(clock):
    _launch.note_awake()
    assert not _launch.share_pays(_launch.AWAKE_BYTES, 1)
    assert _launch.share_pays(_launch.AWAKE_BYTES, None)
    assert not _launch.share_pays(_launch.AWAKE_BYTES - 1, None)
    clock[0] += 2 * _launch.AWAKE
    assert not _launch.share_pays(_launch.AWAKE_BYTES, None)


def test_share_pays_where_many_calls_follow_one_another(clock):
    alone = 0
    while not _launch.share_pays(_launch.AWAKE_BYTES, None):
        clock[0] += _launch.AWAKE / 2
        alone += _launch.AWAKE_BYTES
    assert alone < _launch.WORTH_WAKING <= alone + _launch.AWAKE_BYTES


def test_share_pays_for_none_of_many_calls_with_pauses(clock):
    for _ in range(_launch.WORTH_WAKING // _launch.AWAKE_BYTES + 1):
        clock[0] += 2 * _launch.AWAKE
        assert not _launch.share_pays(_launch.AWAKE_BYTES, None)


def test_rms_of_calls_that_follow_one_another_gives_same_bits():
    x = np.random.default_rng(5).standard_normal((300, 1024), np.float32)
    check_large()
    shared = [rmsfast.rms(x) for _ in range(3)]
    assert len({found.tobytes() for found in [*shared, rmsfast.rms(x, threads=1)]}) == 1


@pytest.mark.skipif(rmsfast.get_num_threads() == 1, reason="there is one thread")
def test_rms_after_a_pause_counts_its_threads_in(monkeypatch):
    check_large()  # threads are started, and awake: they are not counted
    job = _launch._job()
    job[5] = -1
    monkeypatch.setattr(_launch, "_awake_until", 0.0)
    check_large()
    assert job[5] == job[3] == rmsfast.get_num_threads()


@numba.njit
def leave_this():
    leave(processor())


@pytest.mark.skipif(sys.platform != "linux", reason="no affinity of threads elsewhere")
@pytest.mark.parametrize("count", [1, None], ids=["one", "all"])
def test_leave_keeps_the_processors_of_a_thread(count):
    own = os.sched_getaffinity(0)
    allowed = set(sorted(own)[:count])
    try:
        os.sched_setaffinity(0, allowed)
        leave_this()
        assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, own)


@numba.njit
def give_way_for_one(counter):
    give_way(counter, 1)


@pytest.mark.skipif(sys.platform != "linux", reason="does nothing elsewhere")
def test_give_way_beside_a_busy_process_ends_before_all_its_tries():
    import resource

    def switches():
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        return usage.ru_nvcsw + usage.ru_nivcsw

    own, counter = os.sched_getaffinity(0), np.zeros(1, np.int64)
    give_way_for_one(counter.ctypes.data)  # compiled
    os.sched_setaffinity(0, {min(own)})
    busy = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"],
                            stdout=subprocess.PIPE)  # fmt: skip
    try:
        busy.stdout.readline()
        before = switches()
        give_way_for_one(counter.ctypes.data)  # no one counts in
        assert switches() - before < TRIES // 2
    finally:
        busy.kill()
        busy.communicate()
        os.sched_setaffinity(0, own)


def test_rms_leaves_the_number_of_numba_threads(on_layer):
    assert on_layer[1]["threads"] == 1


def test_rms_leaves_the_start_method_to_the_caller():
    run(
        """
        import multiprocessing
        from processes import check_large
        check_large()
        assert multiprocessing.get_start_method(allow_none=True) is None
        multiprocessing.set_start_method("spawn")
        """
    )


def test_rms_keeps_a_start_method_that_was_chosen():
    run(
        """
        import multiprocessing
        from processes import check_large
        multiprocessing.set_start_method("spawn")
        check_large()
        assert multiprocessing.get_start_method() == "spawn"
        """
    )


def test_rms_without_any_threading_layer_answers_with_one_warning():
    printed = run(
        """
        from processes import check_large, warned
        print(warned(check_large) + warned(check_large))
        """,
        NUMBA_THREADING_LAYER="none",
    )
    assert printed == "1"


# --------------------------------------------------------------------------------- bits


@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rms_of_any_thread_count_has_the_same_bits(dtype, axis):
    x = np.random.default_rng(3).normal(size=(700, 801)).astype(dtype)
    one, *others = (np.asarray(rmsfast.rms(x, axis=axis, threads=n)) for n in (1, 2, 3, None))
    assert {other.tobytes() for other in others} == {one.tobytes()}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_unit_rms_of_any_thread_count_has_the_same_bits(dtype):
    x = np.random.default_rng(4).normal(size=(700, 801)).astype(dtype)
    assert rmsfast.unit_rms(x, threads=1).tobytes() == rmsfast.unit_rms(x).tobytes()


def bits(dtype):
    x = np.random.default_rng(5).normal(size=(50, 333)).astype(dtype)
    x[0, 0], x[1] = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    return [rmsfast.rms(x).tobytes().hex(), rmsfast.unit_rms(x).tobytes().hex()]


FLOATS = ["float16", "float32", "float64"]


@pytest.fixture(scope="module")
def on_a_bare_processor():
    program = "import json; from test_threads import *; print(json.dumps([*map(bits, FLOATS)]))"
    return dict(zip(FLOATS, json.loads(run(program, NUMBA_CPU_NAME="generic")), strict=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_on_a_bare_processor_has_the_same_bits(on_a_bare_processor, dtype):
    assert on_a_bare_processor[dtype] == bits(dtype)


# ------------------------------------------------------------------------ thread counts


@pytest.mark.usefixtures("automatic")
def test_set_num_threads_of_one_is_what_get_num_threads_gives():
    rmsfast.set_num_threads(1)
    assert rmsfast.get_num_threads() == 1


@pytest.mark.usefixtures("automatic")
def test_set_num_threads_beyond_the_limit_is_capped():
    before = rmsfast.get_num_threads()
    rmsfast.set_num_threads(before + 100)
    assert rmsfast.get_num_threads() == before


@pytest.mark.parametrize("threads", [0, -1])
def test_set_num_threads_below_one_is_refused(threads):
    message = f"set_num_threads: threads must be None or an int >= 1, got {threads}"
    with pytest.raises(ValueError, match=f"^{message}$"):
        rmsfast.set_num_threads(threads)


@pytest.mark.parametrize("threads", [1.0, True, "2"])
def test_set_num_threads_of_no_integer_is_refused(threads):
    with pytest.raises(TypeError, match=r"^set_num_threads: threads must be None or an int >= 1"):
        rmsfast.set_num_threads(threads)


def test_get_num_threads_of_a_process_bound_to_one_processor_is_one():
    run(
        """
        import os, rmsfast
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        assert rmsfast.get_num_threads() == 1
        assert rmsfast.show_config("dicts")["threads"]["why"] == "processor affinity"
        """
    )


def test_get_num_threads_respects_numba_num_threads():
    run("import rmsfast; assert rmsfast.get_num_threads() == 1", NUMBA_NUM_THREADS=1)


def quota(tmp_path, groups, files):
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return _launch.cpu_quota(str(tmp_path / "cgroup"), str(tmp_path / "root"))


@pytest.mark.parametrize(
    ("text", "cpus"), [("150000 100000", 2), ("1000 100000", 1), ("max 1", None)]
)
def test_cpu_quota_of_a_container_is_rounded_up(tmp_path, text, cpus):
    assert quota(tmp_path, "0::/\n", {"cpu.max": text}) == cpus


def test_cpu_quota_is_that_of_the_tightest_group_above(tmp_path):
    files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "cpu.max": "900000 100000"}
    assert quota(tmp_path, "0::/a/b\n", files) == 3


def test_cpu_quota_of_version_1_groups_is_read(tmp_path):
    files = {"cpu/a/cpu.cfs_quota_us": "400000", "cpu/a/cpu.cfs_period_us": "100000"}
    assert quota(tmp_path, "4:cpu,cpuacct:/a\n3:memory:/a\n", files) == 4


def test_cpu_quota_of_unbounded_version_1_groups_is_none(tmp_path):
    files = {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}
    assert quota(tmp_path, "4:cpu,cpuacct:/\n", files) is None


# ------------------------------------------------------------------------------- Ctrl-C


@pytest.mark.parametrize("axis", [-1, None])
def test_rms_of_a_huge_array_is_interrupted_and_leaves_all_usable(axis):
    run(
        f"""
        import signal
        import numba, numpy as np, rmsfast
        from processes import check_large
        from rmsfast import _launch
        x = np.broadcast_to(np.ones(1 << 20, np.float32), (1 << 22, 1 << 20))  # hours of work
        check_large()
        before = numba.get_num_threads()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        try:
            rmsfast.rms(x, axis={axis})
        except KeyboardInterrupt:
            pass
        assert not _launch._region.locked()
        assert numba.get_num_threads() == before
        check_large()
        """,
        timeout=60,
    )


# -------------------------------------------------------------------------- show_config


def test_show_config_names_what_a_report_needs():
    found = rmsfast.show_config("dicts")
    assert list(found) == ["versions", "processor", "threads", "cache"]
    assert found["versions"]["rmsfast"] == rmsfast.__version__
    assert found["versions"]["numpy"] == np.__version__
    assert found["threads"]["count"] == rmsfast.get_num_threads()


def test_show_config_prints_what_it_returns(capsys):
    assert rmsfast.show_config() is None
    assert json.loads(capsys.readouterr().out) == rmsfast.show_config("dicts")


def test_show_config_of_unknown_mode_is_refused():
    with pytest.raises(ValueError, match=r"^show_config: mode must be one of .*, got 'yaml'$"):
        rmsfast.show_config("yaml")


def test_show_config_names_the_threading_layer_once_it_is_started(on_layer):
    layer, found = on_layer
    assert found["shown"] == [None, layer]


def rmsfast_command(*words):
    command = [sys.executable, "-m", "rmsfast", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_info_json_has_the_sections_of_show_config():
    printed = json.loads(rmsfast_command("info", "--json").stdout)
    assert printed["versions"] == rmsfast.show_config("dicts")["versions"]


def test_info_lists_every_fact_on_a_line():
    printed = rmsfast_command("info").stdout
    facts = [fact for section in rmsfast.show_config("dicts").values() for fact in section]
    assert all(f"\n  {fact} " in printed for fact in facts)


def test_main_thread_is_not_needed_for_a_first_call():
    run(
        """
        import threading
        from processes import check_large
        failed = []
        threading.excepthook = failed.append
        thread = threading.Thread(target=check_large)
        thread.start()
        thread.join()
        assert not failed
        """
    )
