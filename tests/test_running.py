"""RunningRMS and RunningRMSE: the bits of one call, however the data is cut."""

import json
import math
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import run

from rmsfast import RunningRMS, RunningRMSE, rms, rmse

BLOCK = 16384  # coordinates that are summed before sums are folded


def normal(shape, dtype="float64", seed=0):
    values = 100 * np.random.default_rng(seed).normal(size=shape)
    return values.astype(dtype)


def fed(running, *arrays, cuts):
    """The object after pieces of arrays, cut along their first axis."""
    for pieces in zip(*(np.split(a, cuts) for a in arrays), strict=True):
        assert running.update(*pieces) is running
    return running


def assert_same_bits(actual, expected):
    assert (type(actual), actual.dtype, actual.shape) == (
        type(expected),
        expected.dtype,
        expected.shape,
    )
    assert actual.tobytes() == expected.tobytes()


CUTS = [[], [1, 2, 15, 40], [BLOCK], [BLOCK - 1, BLOCK + 1], [3, 2 * BLOCK + 5], [20_000, 20_000]]


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("shape", [(40_000,), (40_000, 3)], ids=str)
@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_running_rms_updates_in_order_give_bits_of_one_call(dtype, axis, shape, cuts):
    x = normal(shape, dtype)
    assert_same_bits(fed(RunningRMS(axis), x, cuts=cuts).value(), rms(x, axis=axis))


@pytest.mark.parametrize("dtype", ["uint64", "complex64", ml_dtypes.bfloat16])
def test_running_rms_any_dtype_gives_bits_of_one_call(dtype):
    x = normal((17_000, 3), dtype)
    assert_same_bits(fed(RunningRMS(0), x, cuts=[7, 16_390]).value(), rms(x, axis=0))


@pytest.mark.parametrize("columns", [8, 513, 1200])
def test_running_rms_many_columns_give_bits_of_one_call(columns):
    x = normal((700, columns))
    assert_same_bits(fed(RunningRMS(0), x, cuts=[100, 333]).value(), rms(x, axis=0))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 50_000), max_size=6), st.integers(0, 2**32 - 1))
def test_running_rms_any_cuts_give_bits_of_one_call(cuts, seed):
    x = normal(50_000, seed=seed)
    assert_same_bits(fed(RunningRMS(), x, cuts=sorted(cuts)).value(), rms(x))


RANGES = {
    "tiny": [1e-200, 3e-170],
    "huge": [1e200, 3e170],
    "tiny then huge": [1e-200, 1e200],
    "huge then zero": [1e300, 0.0],
    "one then huge": [1.0, 1e250],
    "subnormal": [5e-324, 5e-324],
    "zero": [0.0, 0.0],
    "nan beside inf": [math.nan, math.inf],
}


@pytest.mark.parametrize("values", RANGES.values(), ids=RANGES)
def test_running_rms_whole_range_of_float64_gives_bits_of_one_call(values):
    x = np.repeat(values, 10_000)[:, None] * np.array([1.0, -3.0, 0.5])
    assert_same_bits(fed(RunningRMS(0), x, cuts=[9_000, 11_000]).value(), rms(x, axis=0))


@pytest.mark.parametrize("cuts", [[4], [1, 2, 15], [9, 12, 30]], ids=str)
@pytest.mark.parametrize("place", [0, 5, 15, 31])
def test_running_rms_infinity_among_cuts_gives_bits_of_one_call(place, cuts):
    x = normal(40)
    x[place] = math.inf
    assert_same_bits(fed(RunningRMS(), x, cuts=cuts).value(), rms(x))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_running_rmse_cancelling_pairs_give_bits_of_one_call(scale):
    x = normal((20_000, 2)) * scale
    y = x * (1 + 2.0**-40 * normal((20_000, 2), seed=1))
    y[:100] = x[:100]
    assert_same_bits(fed(RunningRMSE(0), x, y, cuts=[50, 18_000]).value(), rmse(x, y, axis=0))


def test_running_rmse_two_dtypes_give_bits_of_one_call():
    x, y = normal(20_000, "float64"), normal(20_000, "int16", seed=1)
    assert_same_bits(fed(RunningRMSE(), x, y, cuts=[5, 17_000]).value(), rmse(x, y))


def test_running_rmse_complex_beside_real_gives_bits_of_one_call():
    x, y = normal((9_000, 2), "complex64"), normal((9_000, 2), ml_dtypes.bfloat16, seed=1)
    assert_same_bits(fed(RunningRMSE(0), x, y, cuts=[101]).value(), rmse(x, y, axis=0))


def test_running_rms_value_is_exact():
    assert RunningRMS().update([3, 4]).update([[0, 0]]).value() == 2.5


LAYOUTS = {
    "every other": lambda x: x[:, ::2],
    "reversed": lambda x: x[::-1],
    "Fortran": np.asfortranarray,
    "swapped": lambda x: x.astype(x.dtype.newbyteorder("S")),
    "three axes": lambda x: x.reshape(-1, 5, 4)[:, ::2, 1:],
    "transposed": lambda x: x.reshape(-1, 5, 4).transpose(0, 2, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("axis", [None, 0])
def test_running_rms_any_layout_gives_bits_of_one_call(axis, layout):
    x = layout(normal((18_000, 20)))
    assert_same_bits(fed(RunningRMS(axis), x, cuts=[17_000]).value(), rms(x, axis=axis))


def test_running_rms_array_too_large_to_copy_is_taken_in_c_order():
    x = normal((3, 300, 500)).transpose(0, 2, 1)
    assert_same_bits(RunningRMS().update(x).value(), rms(x, axis=None))


@pytest.mark.parametrize("axis", [None, 0])
def test_running_rms_masked_values_never_matter(axis):
    x = normal((20_000, 2))
    mask = np.random.default_rng(1).random(x.shape) < 0.3
    x[mask] = math.nan
    running = fed(RunningRMS(axis), np.ma.array(x, mask=mask), cuts=[300, 18_000])
    assert_same_bits(running.value(), rms(x, axis=axis, where=~mask))


def test_running_rms_where_in_some_updates_only_gives_bits_of_one_call():
    x, where = normal((20_000, 2)), np.ones((20_000, 2), bool)
    where[:5_000, 0] = False
    running = RunningRMS(0).update(x[:5_000], where=where[:5_000]).update(x[5_000:])
    assert_same_bits(running.value(), rms(x, axis=0, where=where))


def test_running_rms_no_kept_value_is_nan():
    assert math.isnan(RunningRMS().update([1.0, 2.0], where=[False, False]).value())


def test_running_rms_value_leaves_the_object_as_it_was():
    x = normal(30_000)
    running = RunningRMS().update(x[:100])
    running.value()
    assert_same_bits(running.update(x[100:]).value(), rms(x))


def test_running_rms_dtype_of_value_is_that_asked_for():
    x = normal(30_000, "float32")
    running = fed(RunningRMS(dtype="float64"), x, cuts=[77])
    assert_same_bits(running.value(), rms(x, dtype="float64"))


def test_running_rms_codes_are_read_as_their_format():
    codes = np.array([0x4040, 0x4080], np.uint16)
    assert RunningRMS().update(codes, format="bfloat16").value() == np.float32(12.5**0.5)


# merge ------------------------------------------------------------------------------------------


def test_merge_of_integers_gives_bits_of_one_call():
    x = normal((50_000, 2), "int32")
    merged = RunningRMS(0)
    for piece in np.split(x, [100, 100, 17_000, 40_000]):
        assert merged.merge(RunningRMS(0).update(piece)) is merged
    assert_same_bits(merged.value(), rms(x, axis=0))


def test_merge_of_whole_blocks_gives_bits_of_one_call():
    x = normal(2 * BLOCK)
    merged = RunningRMS().update(x[:BLOCK]).merge(RunningRMS().update(x[BLOCK:]))
    assert_same_bits(merged.value(), rms(x))


def test_merge_into_empty_object_takes_the_other_over():
    assert RunningRMS().merge(RunningRMS().update([3.0, 4.0])).value() == 12.5**0.5


def test_merge_of_empty_object_changes_nothing():
    assert RunningRMS().update([3.0, 4.0]).merge(RunningRMS()).value() == 12.5**0.5


def test_merge_leaves_the_other_as_it_was():
    x = normal(30_000)
    other = RunningRMS().update(x[:100])
    RunningRMS().update(x).merge(other)
    assert_same_bits(other.update(x[100:]).value(), rms(x))


def test_merge_weighs_by_count_not_by_object():
    merged = RunningRMS().update([1.0] * 3).merge(RunningRMS().update([5.0]))
    assert merged.value() == 7**0.5


def test_update_after_merge_goes_on():
    assert RunningRMS().update([3]).merge(RunningRMS().update([4])).update([0, 0]).value() == 2.5


@pytest.mark.parametrize(
    ("other", "error", "fault"),
    [
        (3, TypeError, "other must be a RunningRMS, got int"),
        (RunningRMSE(), TypeError, "other must be a RunningRMS, got RunningRMSE"),
        (RunningRMS(0), ValueError, "other must have axis=None and dtype=None, got axis=0 and"),
        (RunningRMS().update(normal(3, "f4")), TypeError, "data must have the dtype of the first"),
    ],
    ids=["int", "RMSE", "axis", "dtype"],
)
def test_merge_of_what_does_not_go_together_is_refused(other, error, fault):
    running = RunningRMS().update([3.0, 4.0])
    with pytest.raises(error, match=f"^RunningRMS.merge: {fault}"):
        running.merge(other)
    assert running.value() == 12.5**0.5


# Keeping ----------------------------------------------------------------------------------------


def by_pickle(running):
    return pickle.loads(pickle.dumps(running))


def by_json(running):
    return type(running).from_state(json.loads(json.dumps(running.state(), allow_nan=False)))


@pytest.mark.parametrize("kept", [by_pickle, by_json])
@pytest.mark.parametrize("axis", [None, 0])
def test_kept_object_goes_on_with_the_same_bits(axis, kept):
    x = normal((40_000, 3))
    x[:, 1] *= 1e200
    x[:, 2] = math.nan
    before = RunningRMS(axis).update(x[:20_000])
    assert_same_bits(kept(before).update(x[20_000:]).value(), rms(x, axis=axis))


@pytest.mark.parametrize("kept", [by_pickle, by_json])
def test_kept_object_before_any_value_is_empty(kept):
    assert kept(RunningRMSE(0, dtype="float16")).update([[3]], [[1]]).value() == np.float16([2])


@pytest.mark.parametrize(
    "change",
    [{"class": "RunningRMSE"}, {"totals": ["0x1p0"]}, {"lanes": [1]}, {"axis": 1}, {"shape": None}],
    ids=str,
)
def test_from_state_of_something_else_is_refused(change):
    state = RunningRMS().update([3.0, 4.0]).state() | change
    with pytest.raises(
        ValueError, match=r"^RunningRMS\.from_state: state must be that of a RunningRMS, got "
    ):
        RunningRMS.from_state(state)


# Refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [[], [np.zeros(0)]], ids=["no update", "empty update"])
def test_value_before_any_value_is_refused(updates):
    running = fed(RunningRMS(), *updates, cuts=[]) if updates else RunningRMS()
    with pytest.raises(
        ValueError, match=r"^RunningRMS\.value: data must have arrived, got no value yet$"
    ):
        running.value()


@pytest.mark.parametrize("axis", [-1, 1, (0,), 0.0, False])
def test_running_axis_other_than_none_and_0_is_refused(axis):
    with pytest.raises(ValueError, match=r"^RunningRMS: axis must be None or 0, got "):
        RunningRMS(axis)


@pytest.mark.parametrize(
    ("x", "options", "error", "fault"),
    [
        (np.zeros((1, 2), "f4"), {}, TypeError, "data must have the dtype of the first update, "),
        (np.zeros((1, 3)), {}, ValueError, r"data must hold vectors of shape \(2,\), got shape "),
        ([["a", "b"]], {}, TypeError, "x must have a boolean, integer, floating or complex dtype"),
        (np.ones((1, 2)), {"where": [1, 1]}, TypeError, "where must be boolean"),
        (np.ones((1, 2)), {"threads": 0}, ValueError, "threads must be None or an int >= 1"),
        (np.ones((1, 2)), {"format": "f8"}, ValueError, "format must be None or one of"),
    ],
    ids=["dtype", "shape", "text", "where", "threads", "format"],
)
def test_refused_update_leaves_the_object_as_it_was(x, options, error, fault):
    running = RunningRMS(0).update([[3.0, 1.0], [4.0, 1.0]])
    with pytest.raises(error, match=f"^RunningRMS.update: {fault}"):
        running.update(x, **options)
    assert running.value().tolist() == [12.5**0.5, 1.0]


def test_running_rmse_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match=r"^RunningRMSE\.update: x and x_hat must have equal len"):
        RunningRMSE().update([1.0, 2.0], [1.0])


def test_running_rms_without_numba_answers_over_the_whole_range():
    program = """
        import warnings
        warnings.simplefilter("ignore")
        import numpy as np
        from rmsfast import RunningRMS
        tail = RunningRMS(0).update([[4e200, 4e-200]])
        running = RunningRMS(0).update([[3e200, 3e-200]]).merge(tail).update(np.zeros((2, 2)))
        np.testing.assert_allclose(running.value(), [2.5e200, 2.5e-200])
    """
    run(program, NUMBA_DISABLE_JIT=1)
