"""Children of fork get answers, whatever the parent was doing."""

import pytest
from processes import layers, run

# Ends a child that hangs, and has the parent see how its children ended.
FORK = """
import os, signal, threading, time
from processes import check_large, check_small, rows

def fork(*checks):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            for check in checks:
                check()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    return pid

def join(*pids):
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
"""


def run_with_forks(program, **environment):
    # From Python 3.12 on a fork beside threads warns.
    run(
        FORK + "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n" + program,
        **environment,
    )


@pytest.mark.parametrize("layer", layers())
def test_rms_in_a_child_and_a_grandchild_forked_after_a_call_answers(layer):
    program = """
check_large()
join(fork(check_large, lambda: check_small("float64")))
join(fork(lambda: join(fork(check_large))))
check_large()
"""
    run_with_forks(program, NUMBA_THREADING_LAYER=layer)


@pytest.mark.parametrize("layer", layers())
def test_rms_in_a_child_forked_before_any_call_uses_threads_of_its_own(layer):
    program = """
import rmsfast
from rmsfast import _launch

def check():
    check_large()
    assert rmsfast.get_num_threads() == 1 or _launch.numba_threads()

join(fork(check))
check_large()
"""
    run_with_forks(program, NUMBA_THREADING_LAYER=layer)


@pytest.mark.parametrize("layer", layers())
def test_rms_in_children_forked_during_calls_of_another_thread_answers(layer):
    program = """
check_large()
done = threading.Event()

def work():
    while not done.is_set():
        check_large()

thread = threading.Thread(target=work, daemon=True)
thread.start()
for _ in range(10):
    join(fork(check_large))
done.set()
thread.join()
"""
    run_with_forks(program, NUMBA_THREADING_LAYER=layer)


def test_rms_in_a_child_forked_during_the_first_call_of_another_thread_answers(tmp_path):
    program = """
from rmsfast import _launch
thread = threading.Thread(target=check_small, daemon=True)
thread.start()
while not _launch._modules:  # loaded, about to compile
    time.sleep(0.01)
time.sleep(0.5)
child = fork(check_small)
thread.join()
join(child)
"""
    run_with_forks(program, NUMBA_CACHE_DIR=tmp_path)


def test_rms_in_a_child_forked_while_the_caller_compiles_answers():
    program = """
import numba
import rmsfast

def double(x):
    return 2 * x

done = threading.Event()

def work():
    while not done.is_set():
        numba.njit(double)(1.0)

thread = threading.Thread(target=work, daemon=True)
thread.start()
for _ in range(5):
    time.sleep(0.05)
    join(fork(check_small))
done.set()
thread.join()
"""
    run_with_forks(program)


@pytest.mark.parametrize("layer", layers())
def test_rms_imported_in_a_worker_after_parallel_code_of_the_parent_answers(layer):
    program = """
import multiprocessing, sys
import numba

@numba.njit(parallel=True)
def spin(n):
    total = 0
    for i in numba.prange(n):
        total += i
    return total

spin(1000)
assert "rmsfast" not in sys.modules
worker = multiprocessing.get_context("fork").Process(target=check_large)
worker.start()
worker.join()
assert worker.exitcode == 0
"""
    run_with_forks(program, NUMBA_THREADING_LAYER=layer)


def test_rms_in_a_pool_of_each_start_method_answers(tmp_path):
    script = tmp_path / "pools.py"
    script.write_text(
        """
import multiprocessing
import warnings
from processes import check_large

if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)
    check_large()
    for method in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context(method).Pool(2) as pool:
            pool.map(check_large, ["float32"] * 2)
"""
    )
    run(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
