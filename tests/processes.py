"""Programs in processes of their own, and calls in them whose answers are known."""

import functools
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent


def run(program, *, package=PACKAGE, timeout=120, **environment):
    """Output of a program that ends well and in time; None takes a variable away."""
    environment = os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{TESTS}"} | environment
    environment = {name: str(value) for name, value in environment.items() if value is not None}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(
        command, env=environment, cwd=TESTS, capture_output=True, text=True, timeout=timeout
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-4000:])
    return done.stdout.strip()


@functools.cache
def layers():
    """The threading layers that Numba can load here."""
    from numba.np.ufunc import parallel

    found = ["workqueue"]
    try:
        from numba.np.ufunc import omppool  # noqa: F401

        found.append("omp")
    except ImportError:
        pass
    try:
        parallel._check_tbb_version_compatible()
        from numba.np.ufunc import tbbpool  # noqa: F401

        found.append("tbb")
    except ImportError:
        pass
    return found


def rows(count, dtype="float32", width=1024):
    """Row k is (k + 1) * (3, 4, 0, 0) over and over, of RMS 2.5 (k + 1)."""
    return np.tile([3, 4, 0, 0], (count, width // 4)).astype(dtype) * np.arange(
        1, count + 1, dtype=dtype
    ).reshape(-1, 1)


def check_small(dtype="float32"):
    import rmsfast

    assert rmsfast.rms(rows(3, dtype)).tolist() == [2.5, 5.0, 7.5]


def check_large(dtype="float32"):
    """A call that is large enough for several threads."""
    import rmsfast

    x = rows(1024, dtype)
    assert np.array_equal(rmsfast.rms(x), 2.5 * np.arange(1, 1025))


def check_light(names=("roots",)):
    """Kernels that are soon compiled, on a sum of squares of 25 of 4 coordinates."""
    for name in names:
        assert light(name) == 2.5


def light(name="roots"):
    from rmsfast import _launch, _partial

    partials, totals, out = np.zeros((1, 8)), _partial.empty(1), np.zeros(1)
    partials[:, 0], partials[:, 3] = 25.0, 4.0
    kernel = getattr(_launch.kernels(), name)
    if name == "roots":
        _launch.call(kernel, (partials, out, None, 0, 1))
        return out[0]
    _launch.call(kernel, (partials, 1, totals, 0, 1))
    return (totals[0, 0] / totals[0, 3]) ** 0.5


def warned(call, *args):
    """How many warnings a call gave."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(*args)
    return len(found)
