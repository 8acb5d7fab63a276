"""The first call: what it loads, what it compiles, and what happens without Numba."""

import json

import numpy as np
import pytest
from processes import run

import rmsfast


def test_first_call_by_eight_threads_at_once_answers_each(tmp_path):
    program = """
        import sys
        import threading
        from processes import check_light
        sys.setswitchinterval(1e-5)
        start, failed = threading.Barrier(8), []
        threading.excepthook = failed.append
        def work():
            start.wait()
            check_light()
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        """
    run(program, NUMBA_CACHE_DIR=tmp_path)  # all of them compile
    run(program, NUMBA_CACHE_DIR=tmp_path)  # all of them load


def test_first_calls_compile_one_specialisation_for_all_layouts():
    run(
        """
        import numpy as np
        import rmsfast
        from processes import rows
        from rmsfast import _launch
        x = rows(1024)
        frozen, shifted = x.copy(), np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32)
        frozen.flags.writeable = False
        shifted = shifted.reshape(x.shape)
        shifted[...] = x
        expected = 2.5 * np.arange(1, 1025)
        for same in (x, x[:, ::-1], frozen, shifted, np.repeat(x, 2, axis=0)[::2]):
            assert np.array_equal(rmsfast.rms(same), expected)
            assert np.array_equal(rmsfast.rms(same[:3]), expected[:3])
        found = _launch.kernels()
        assert len(found.row_roots.overloads) == 1
        """
    )


def test_call_whose_arguments_do_not_fit_raises_and_compiles_nothing():
    run(
        """
        import numpy as np
        from processes import check_light
        from rmsfast import _launch
        check_light()
        roots = _launch.kernels().roots
        for call in range(2):
            try:
                _launch.compiled(roots, (np.zeros((1, 8)), np.zeros(1), None, 0, 1))("wrong")
            except TypeError:
                continue
            raise AssertionError
        assert len(roots.overloads) == 1
        """
    )


def test_warmup_leaves_nothing_to_compile():
    run(
        """
        import numpy as np
        import rmsfast
        from processes import check_large, check_small
        from rmsfast import _launch
        def codes():  # kernels that were compiled or loaded, for one combination of types each
            kernels = [k for m in _launch._modules for k in vars(m).values()]
            return sum(len(getattr(k, "overloads", ())) for k in kernels)

        rmsfast.warmup(["float32"])
        ready = codes()
        check_small(), check_large()
        x = np.ones((3, 8), np.float32)
        rmsfast.rms(x, axis=None), rmsfast.rms(x, axis=0), rmsfast.rmse(x, x)
        rmsfast.unit_rms(x), rmsfast.rms_norm(x, np.ones(8, np.float32))
        assert codes() == ready > 0
        """
    )


@pytest.mark.parametrize("dtype", ["longdouble", "O", "nonsense", "M8[s]"])
def test_warmup_for_what_rms_does_not_take_is_refused(dtype):
    with pytest.raises(TypeError, match=r"^warmup: dtypes must hold formats that rms takes, got "):
        rmsfast.warmup(["float32", dtype])


def test_warmup_takes_a_lone_name_for_what_it_is():
    with pytest.raises(TypeError, match=r"^warmup: dtypes must hold .+, got 'float12'$"):
        rmsfast.warmup("float12")


# ------------------------------------------------------------------------- without Numba

WITHOUT_NUMBA = "import sys\nsys.modules['numba'] = None\n"


def answers():
    """What calls of all kinds give, and how they refuse."""
    x = np.array([[3.0, 4, 0, 0], [0, 0, 0, 0], [6, 8, 0, 0]])
    gain = np.array([1.0, 2, 1, 1])
    calls = (
        lambda: rmsfast.rms(x),
        lambda: rmsfast.rms(x, axis=None),
        lambda: rmsfast.rms(np.float32(x) * np.float32(1e30)),
        lambda: rmsfast.rms(x * 1e-200),
        lambda: rmsfast.rms(np.array([127, -128], np.int8)),
        lambda: rmsfast.rmse(x, -x),
        lambda: rmsfast.relative_rmse(x, -x, reference="x", zero="nan"),
        lambda: rmsfast.unit_rms(x, zero="zero"),
        lambda: rmsfast.scale_to_rms(x[:1], 5),
        lambda: rmsfast.rms_norm(x, gain, eps=0.75),
        lambda: rmsfast.rms(x, where=x > 3),
        lambda: rmsfast.rms(x[:, :0]),
        lambda: rmsfast.rms(x, axis=2),
        lambda: rmsfast.rms(x, threads=0),
        lambda: rmsfast.rms(x * np.nan, nan_policy="raise"),
        lambda: rmsfast.rms(x, weights=-x),
        lambda: rmsfast.rms(x.astype(object)),
        lambda: rmsfast.rms(x, dtype="int8"),
        lambda: rmsfast.rmse(x, x[:, :3]),
        lambda: rmsfast.relative_rmse(x, -x, reference="x"),
        lambda: rmsfast.relative_rmse(x, -x, reference="y"),
        lambda: rmsfast.unit_rms(x),
        lambda: rmsfast.unit_rms(x, zero="keep"),
        lambda: rmsfast.rms_norm(x * 1j),
        lambda: rmsfast.rms_norm(x, eps=-1),
        lambda: rmsfast.rms_norm(x, gain[:3]),
    )
    found = []
    for call in calls:
        try:
            answer = call()
            found.append(f"{answer.dtype} {np.array_repr(np.round(np.float64(answer), 12))}")
        except Exception as error:
            found.append(f"{type(error).__name__} {str(error).partition(' must ')[0]}")
    return found


def test_answers_and_refusals_without_numba_are_those_with_it():
    ignored = "import warnings\nwarnings.simplefilter('ignore', RuntimeWarning)\n"
    program = "import json; from test_first_call import answers; print(json.dumps(answers()))"
    assert json.loads(run(WITHOUT_NUMBA + ignored + program)) == answers()


@pytest.mark.parametrize(
    ("program", "environment"), [(WITHOUT_NUMBA, {}), ("", {"NUMBA_DISABLE_JIT": 1})]
)
def test_first_call_without_compiled_code_warns_once(program, environment):
    program += "from processes import *; print(warned(check_small) + warned(check_large))"
    assert run(program, **environment) == "1"


def test_show_config_without_numba_says_so():
    program = """
import warnings, rmsfast
warnings.simplefilter("ignore", RuntimeWarning)
found = rmsfast.show_config("dicts")
assert found["processor"] is None and found["cache"]["folder"] is None
"""
    run(WITHOUT_NUMBA + program)
