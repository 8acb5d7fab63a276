"""Dask arrays: the bits of the same call on the whole array, whatever the chunks."""

import math
import os
import signal
import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact import mean_square, ulp_error
from processes import run
from zoo import assert_same_bits, make

import rmsfast.files
from rmsfast._partial import BLOCK

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402

import rmsfast.dask as lazily  # noqa: E402
from rmsfast.dask import _graphs, _states, _windows, files  # noqa: E402

SHAPE = (5, 34)
CHUNKS = [  # whole, of size 1 and uneven, along either axis and both
    (5, 34),
    (1, 34),
    (5, 1),
    (2, 7),
    ((1, 3, 1), (1, 30, 3)),
    (4, 33),
]


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("distributed")
    with files.cluster(workers=2) as client:
        yield client


@pytest.fixture(scope="module")
def arrays():
    x = make(SHAPE, np.float32)
    y = (x + 0.125 * make(SHAPE, np.float32, seed=1)).astype(np.float32)
    rng = np.random.default_rng(2)
    return x, y, rng.random(SHAPE) < 0.8, rng.random(SHAPE)


def cut(array, chunks):
    return da.from_array(array, chunks=chunks)


def check(lazy, expected):
    """Shape, dtype and meta are known beforehand, and the values have the same bits."""
    expected = np.asarray(expected)
    assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
    assert type(lazy._meta) is np.ndarray
    assert (lazy._meta.ndim, lazy._meta.dtype, lazy._meta.size) == (
        expected.ndim,
        expected.dtype,
        expected.ndim == 0,
    )
    assert_same_bits(np.asarray(lazy.compute()), expected)


# Chunks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_rms_of_chunks_has_bits_of_whole_array(arrays, chunks, axis, keepdims):
    x = arrays[0]
    options = {"axis": axis, "keepdims": keepdims}
    check(lazily.rms(cut(x, chunks), **options), rmsfast.rms(x, **options))


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_rms_of_weighted_chunks_has_bits_of_whole_array(arrays, chunks):
    x, _, where, weights = arrays
    found = lazily.rms(cut(x, chunks), where=where, weights=cut(weights, (3, 8)))
    check(found, rmsfast.rms(x, where=where, weights=weights))


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
def test_rmse_of_arrays_in_different_chunks_has_bits_of_whole_arrays(arrays, chunks):
    x, y, *_ = arrays
    check(lazily.rmse(cut(x, chunks), cut(y, (3, 8))), rmsfast.rmse(x, y))


@pytest.mark.parametrize("x_hat", [0.5, np.float32(0.5), np.ones(34, np.float32)])
def test_rmse_against_a_number_or_vector_has_bits_of_whole_array(arrays, x_hat):
    x = arrays[0]
    check(lazily.rmse(cut(x, (2, 7)), x_hat), rmsfast.rmse(x, x_hat))


@pytest.mark.parametrize("reference", ["x", "x_hat", "mean", "range", "std", "max"])
@pytest.mark.parametrize("chunks", [(1, 34), (2, 7)], ids=str)
def test_relative_rmse_of_chunks_has_bits_of_whole_array(arrays, reference, chunks):
    x, y, *_ = arrays
    options = {"reference": reference}
    check(
        lazily.relative_rmse(cut(x, chunks), y, **options), rmsfast.relative_rmse(x, y, **options)
    )


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("chunks", [(1, 34), (2, 7)], ids=str)
def test_relative_rmse_over_an_array_has_bits_of_whole_array(arrays, keepdims, chunks):
    x, y, *_ = arrays
    sizes = rmsfast.rms(x, keepdims=keepdims, dtype="float64")
    found = lazily.relative_rmse(cut(x, chunks), y, reference=sizes, keepdims=keepdims)
    check(found, rmsfast.relative_rmse(x, y, reference=sizes, keepdims=keepdims))


@pytest.mark.parametrize("reference", ["x", "mean", "std", "max"])
@pytest.mark.parametrize("chunks", [(2, 7), ((1, 3, 1), (1, 30, 3))], ids=str)
def test_relative_rmse_of_complex_chunks_has_bits_of_whole_array(reference, chunks):
    x, y = (make(SHAPE, np.complex128, seed=k) for k in range(2))
    x[3, 20], y[4, 2] = complex(1, np.nan), np.inf
    for axis in (-1, 0):
        options = {"reference": reference, "axis": axis, "nan_policy": "omit"}
        found = lazily.relative_rmse(cut(x, chunks), y, **options)
        check(found, rmsfast.relative_rmse(x, y, **options))


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**1021])
@pytest.mark.parametrize("reference", ["mean", "std", "max"])
def test_relative_rmse_of_complex_chunks_at_the_ends_of_the_range_is_that_of_others(
    scale, reference
):
    x = make((2, 20), np.complex128) + 1
    x, y = x / 8, (x + 1j) / 8
    found = lazily.relative_rmse(cut(scale * x, (2, 3)), scale * y, reference=reference)
    expected = rmsfast.relative_rmse(x, y, reference=reference)
    np.testing.assert_allclose(found.compute(), expected, rtol=4e-16)


def test_rms_of_three_axes_cut_everywhere_has_bits_of_whole_array():
    x = make((4, 6, 5), np.float64)
    for axis in (1, (0, 2), (1, 2), None):
        check(lazily.rms(cut(x, (3, 4, 2)), axis=axis), rmsfast.rms(x, axis=axis))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_rms_of_any_dtype_has_bits_of_whole_array(dtype):
    x = make(SHAPE, dtype)
    check(lazily.rms(cut(x, (2, 7))), rmsfast.rms(x))


def test_rms_of_codes_takes_their_format():
    codes = make(SHAPE, ml_dtypes.bfloat16).view(np.uint16)
    check(lazily.rms(cut(codes, (2, 7)), format="bfloat16"), rmsfast.rms(codes, format="bfloat16"))


def test_rms_of_masked_chunks_leaves_out_what_they_hide(arrays):
    x = np.ma.masked_array(arrays[0], arrays[2])
    check(lazily.rms(cut(x, (2, 7))), rmsfast.rms(x))


def test_rms_of_unequal_chunks_is_no_mean_of_their_roots():
    found = lazily.rms(cut(np.array([3.0, 3.0, 3.0, 3.0, 0.0]), 4))
    assert ulp_error(found.compute(), Fraction(36, 5)) <= 0.51


def test_rms_of_chunks_beyond_the_squares_of_float64_is_finite():
    x = np.array([3e200, 4e200, 1e-200, 0.0])
    assert ulp_error(lazily.rms(cut(x, 2)).compute(), mean_square(x)) <= 0.51


def test_rms_of_a_number_is_its_size():
    check(lazily.rms(da.from_array(np.float64(-3.0))), np.float64(3.0))


def test_rms_of_chunks_without_rows_is_empty():
    check(lazily.rms(da.zeros((0, 4), chunks=(1, 2))), np.zeros(0))


def test_rms_of_an_empty_chunk_is_that_of_the_others(arrays):
    x = arrays[0]
    assert_same_bits(lazily.rms(cut(x, ((5,), (0, 30, 0, 4)))).compute(), rmsfast.rms(x))


# Scalings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(1, 34), (2, 7), ((1, 3, 1), (1, 30, 3))], ids=str)
@pytest.mark.parametrize("axis", [-1, None])
def test_scalings_of_chunks_have_bits_of_whole_array(arrays, chunks, axis):
    x, _, where, _ = arrays
    lazy, targets = cut(x, chunks), 2 * rmsfast.rms(x, axis=axis)
    check(
        lazily.unit_rms(lazy, axis=axis, where=where), rmsfast.unit_rms(x, axis=axis, where=where)
    )
    check(
        lazily.scale_to_rms(lazy, targets, axis=axis), rmsfast.scale_to_rms(x, targets, axis=axis)
    )
    gain = x[0] if axis == -1 else x
    check(lazily.rms_norm(lazy, gain, axis=axis), rmsfast.rms_norm(x, gain, axis=axis))


@pytest.mark.parametrize("chunks", [(1, 34), (2, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint16, [("bfloat16", np.uint16)]], ids=["uint", "record"])
def test_unit_rms_of_codes_gives_codes(chunks, dtype):
    codes = make(SHAPE, ml_dtypes.bfloat16).view(dtype)
    found = lazily.unit_rms(cut(codes, chunks), format="bfloat16")
    check(found, rmsfast.unit_rms(codes, format="bfloat16"))


def test_scale_to_rms_takes_lazy_targets_and_gives_lazy_sizes(arrays):
    x = arrays[0]
    lazy = cut(x, (2, 7))
    found, sizes = lazily.scale_to_rms(lazy, lazily.rms(lazy), return_rms=True)
    check(sizes, rmsfast.rms(x))
    assert found.chunks == lazy.chunks
    check(found, rmsfast.scale_to_rms(x, rmsfast.rms(x)))


def test_rms_norm_of_cut_rows_takes_number_and_offset_for_gain(arrays):
    x = arrays[0]
    options = {"gain_offset": 1.0, "dtype": "float64", "eps_mode": "max"}
    check(lazily.rms_norm(cut(x, (2, 7)), 2.0, **options), rmsfast.rms_norm(x, 2.0, **options))


@pytest.mark.parametrize("chunks", [(1, 34), (2, 7)], ids=str)
def test_unit_rms_of_zero_rows_does_as_told(arrays, chunks):
    x = arrays[0].copy()
    x[1] = 0.0
    lazy = cut(x, chunks)
    with pytest.raises(ValueError, match=r"unit_rms: x must be nonzero .* got 1 zero row"):
        lazily.unit_rms(lazy).compute()
    for zero in ("zero", "nan"):
        check(lazily.unit_rms(lazy, zero=zero), rmsfast.unit_rms(x, zero=zero))


def test_unit_rms_of_a_number_is_its_sign():
    check(lazily.unit_rms(da.from_array(np.float64(-3.0))), np.float64(-1.0))


class Source:
    """What Dask reads an array from: counts how often each chunk is."""

    def __init__(self, array):
        self.array, self.reads = array, {}
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __getitem__(self, box):
        self.reads[str(box)] = self.reads.get(str(box), 0) + 1
        return self.array[box]


@pytest.mark.parametrize(
    ("chunks", "rechunked", "times"),
    [((1, 34), (1, 34), 1), ((5, 7), (5, 7), 2), ((5, 7), (5, 3), 2)],
)
def test_unit_rms_reads_chunks_of_cut_rows_twice(arrays, chunks, rechunked, times):
    source = Source(arrays[0])
    lazy = da.from_array(source, chunks=chunks).rechunk(rechunked)
    source.reads.clear()  # of nothing, for the meta
    found = lazily.unit_rms(lazy, return_rms=True)
    assert source.reads == {}
    for each, expected in zip(
        dask.compute(*found), rmsfast.unit_rms(arrays[0], return_rms=True), strict=True
    ):
        assert_same_bits(each, expected)
    assert set(source.reads.values()) == {times}


# Every number -----------------------------------------------------------------------------------

ROUNDED = {"mean", "std", "peak_share", "crest", "sqnr_db", "cosine", "bias", "fitted_scale"}


def check_table(lazy, expected):
    """Every field is as on the whole array; means and what is made of them within some ulps."""
    found = lazy.compute()
    assert type(found) is type(expected)
    assert found._length == expected._length
    for name in expected.names():
        actual, wanted = getattr(found, name), getattr(expected, name)
        assert getattr(lazy, name).dtype == actual.dtype == wanted.dtype
        assert getattr(lazy, name).shape == actual.shape == wanted.shape
        if name in ROUNDED:
            np.testing.assert_allclose(actual, wanted, rtol=1e-13, atol=1e-15, err_msg=name)
        else:
            assert_same_bits(actual, wanted)


@pytest.fixture(scope="module")
def peculiar(arrays):
    """Rows with a NaN, with Inf, of zeros, constant, and with a largest value that comes twice."""
    x = np.vstack([arrays[0], arrays[0][:2]])
    x[0, [30, 9]] = -50.0, 50.0
    x[1, 3] = x[1, 20] = np.nan
    x[2, 33], x[3], x[4] = np.inf, 0.0, 2.0
    return x


@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("chunks", [(1, 34), (7, 1), ((1, 4, 2), (1, 30, 3))], ids=str)
def test_tables_of_chunks_are_those_of_whole_array(peculiar, chunks, axis):
    x, y = peculiar, (peculiar + np.float32(0.25)).astype(np.float32)
    check_table(lazily.describe(cut(x, chunks), axis=axis), rmsfast.describe(x, axis=axis))
    check_table(lazily.compare(cut(x, chunks), y, axis=axis), rmsfast.compare(x, y, axis=axis))


def test_tables_of_chunks_omit_nan_as_told(peculiar):
    lazy, options = cut(peculiar, (2, 5)), {"nan_policy": "omit"}
    check_table(lazily.describe(lazy, **options), rmsfast.describe(peculiar, **options))


def test_describe_of_chunks_that_end_on_blocks_has_bits_of_whole_array():
    x = make((2, 3 * BLOCK + 5), np.float32)
    found = lazily.describe(cut(x, (1, BLOCK))).compute()
    expected = rmsfast.describe(x)
    for name in expected.names():
        assert_same_bits(getattr(found, name), getattr(expected, name))


def test_describe_under_raise_refuses_nan_when_computed(peculiar):
    found = lazily.describe(cut(peculiar, (7, 5)), nan_policy="raise")
    with pytest.raises(ValueError, match="describe: x must hold no NaN"):
        found.compute()


def test_lazy_table_is_a_dask_collection(arrays):
    lazy = lazily.describe(cut(arrays[0], (2, 7)))
    assert dask.is_dask_collection(lazy)
    held = lazy.persist()
    together, peak = dask.compute(held, held.peak)
    assert_same_bits(together.peak, peak)
    assert repr(lazy) == "<lazy Description: 5 rows of 34>"
    assert "crest" in dir(lazy)
    with pytest.raises(AttributeError):
        lazy.bias  # noqa: B018


# Blocks -----------------------------------------------------------------------------------------


def partials_of(x, chunks, axis):
    call = _graphs.Call("rms", {"x": cut(x, chunks)}, {"nan_policy": "propagate"}, axis)
    task = call.task(_states.SQUARES)
    return task.lead, call.totals(task, *[]).compute()["state"].reshape(-1, 8)


@pytest.mark.parametrize(
    ("shape", "axis", "chunks"),
    [
        ((2, 9 * BLOCK + 5), -1, (1, 2 * BLOCK)),
        ((9 * BLOCK + 5, 2), 0, (BLOCK, 1)),
        ((72, BLOCK // 8), None, (8, BLOCK // 8)),
    ],
)
def test_rms_of_chunks_that_end_on_blocks_adds_up_the_same_partials(shape, axis, chunks):
    x = make(shape, np.float64)
    lead, partials = partials_of(x, chunks, axis)
    assert lead is not None
    assert_same_bits(partials, partials_of(x, shape, axis)[1])


def test_rms_of_too_many_blocks_joins_those_of_a_chunk(monkeypatch):
    x = make((2, 9 * BLOCK + 5), np.float64)
    monkeypatch.setattr(_graphs, "APART_BYTES", 500)
    assert partials_of(x, (1, 2 * BLOCK), -1)[0] is None
    check(lazily.rms(cut(x, (1, 2 * BLOCK))), rmsfast.rms(x))


# Memory -----------------------------------------------------------------------------------------


@pytest.fixture
def held(monkeypatch):
    """Bytes that each task holds at most beside its result, as tasks run."""
    found = []

    def measured(task):
        def run(*blocks, **options):
            task(*blocks, **options)
            tracemalloc.start()
            try:
                result = task(*blocks, **options)
                found.append(tracemalloc.get_traced_memory()[1] - result.nbytes)
            finally:
                tracemalloc.stop()
            return result

        return run

    for name in ("states", "combined", "roots", "ratios", "table", "whole", "whole_table"):
        monkeypatch.setattr(_states, name, measured(getattr(_states, name)))
    monkeypatch.setattr(_states, "scaled", measured(_states.scaled))
    monkeypatch.setattr(_windows, "_part", measured(_windows._part))
    return found


HOLDING = {
    "rms": lambda x, axis: lazily.rms(x, axis=axis, nan_policy="omit"),
    "over_std": lambda x, axis: lazily.relative_rmse(x, 0.5, reference="std", axis=axis),
    "over_array": lambda x, axis: lazily.relative_rmse(
        x, 0.5, reference=da.ones(x.shape[1 + axis], chunks=-1), axis=axis
    ),
    "unit_rms": lambda x, axis: lazily.unit_rms(x, axis=axis),
    "scale_to_rms": lambda x, axis: lazily.scale_to_rms(
        x, da.ones(x.shape[1 + axis], chunks=-1), axis=axis
    ),
    "describe": lambda x, axis: lazily.describe(x, axis=axis),
    "compare": lambda x, axis: lazily.compare(x, 0.5, axis=axis),
    "windows": lambda x, axis: lazily.rms_windows(x, 3, hop=1, axis=axis, nan_policy="raise"),
    "rounded_windows": lambda x, axis: lazily.rms_windows(x, 4, axis=axis, dtype="float16"),
}


MANY = 130_000  # of which 9 bytes each are more than a mebibyte


@pytest.mark.parametrize(
    ("name", "shape", "chunks", "axis"),
    [
        *((name, (MANY, 4), (MANY, 2), -1) for name in HOLDING),
        *((name, (MANY, 4), (MANY, 4), -1) for name in HOLDING),
        *((name, (4, MANY), (2, MANY), -2) for name in ("rms", "over_std", "unit_rms", "describe")),
    ],
    ids=str,
)
def test_task_holds_its_chunk_result_and_less_than_a_mebibyte(held, name, shape, chunks, axis):
    x = cut(make(shape, np.float32), chunks)
    HOLDING[name](x, axis).compute()
    assert held
    assert max(held) < 1 << 20


@pytest.fixture
def few_at_a_time(monkeypatch):
    for module in (_states, _windows):
        for name in {"NUMBERS", "ROWS", "STATES"} & set(vars(module)):
            monkeypatch.setattr(module, name, 3)


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("chunks", [(5, 34), (4, 33), (5, 7)], ids=str)
@pytest.mark.parametrize("axis", [-1, 0])
def test_calls_in_pieces_of_few_rows_have_bits_of_whole_array(arrays, peculiar, chunks, axis):
    x, y, where, weights = arrays
    lazy, sizes = cut(x, chunks), rmsfast.rms(x, axis=axis)
    options = {"axis": axis, "where": where, "weights": weights}
    check(lazily.rms(lazy, **options, keepdims=True), rmsfast.rms(x, **options, keepdims=True))
    for reference in ("x", "std", "max", sizes):
        options = {"axis": axis, "reference": reference}
        check(lazily.relative_rmse(lazy, y, **options), rmsfast.relative_rmse(x, y, **options))
    options = {"axis": axis, "return_rms": True}
    for found, expected in zip(
        lazily.scale_to_rms(lazy, cut(sizes, -1), **options),
        rmsfast.scale_to_rms(x, sizes, **options),
        strict=True,
    ):
        check(found, expected)
    gain = x[0] if axis == -1 else x[:, 0]
    check(lazily.rms_norm(lazy, gain, axis=axis), rmsfast.rms_norm(x, gain, axis=axis))
    check_table(
        lazily.describe(cut(peculiar, chunks), axis=axis), rmsfast.describe(peculiar, axis=axis)
    )
    for dtype in (None, "float16"):
        options = {"axis": axis, "hop": 2, "edge": "centered", "dtype": dtype}
        check(lazily.rms_windows(lazy, 4, **options), rmsfast.rms_windows(x, 4, **options))


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((2, 9 * BLOCK + 5), (2, 2 * BLOCK)), ((4, 6 * BLOCK), (3, 5 * BLOCK + 2))],
)
def test_calls_in_pieces_of_few_blocks_have_bits_of_whole_array(shape, chunks):
    x = make(shape, np.float32)
    check(lazily.rms(cut(x, chunks)), rmsfast.rms(x))
    check_table(lazily.describe(cut(x, chunks)), rmsfast.describe(x))


def test_task_of_many_rows_counts_all_that_it_refuses():
    x = np.ones((20_000, 4), np.float32)
    x[15_000:15_003] = 0.0
    for chunks in ((20_000, 4), (20_000, 2)):
        with pytest.raises(ValueError, match=r"got 3 zero rows, the first at index \(15000,\)"):
            lazily.unit_rms(cut(x, chunks)).compute()


# What is lazy -----------------------------------------------------------------------------------


def untouched(shape, chunks, dtype=np.float32):
    def fail(_):
        raise AssertionError("computed")

    return da.map_blocks(
        fail,
        da.zeros(shape, dtype=dtype, chunks=chunks),
        dtype=dtype,
        meta=np.zeros((0,) * len(shape), dtype),
    )


@pytest.mark.parametrize("chunks", [(1, 34), (2, 7)], ids=str)
def test_graph_of_a_call_computes_nothing(chunks):
    x = untouched(SHAPE, chunks)
    found = [
        lazily.rms(x),
        lazily.rmse(x, x + 1),
        lazily.relative_rmse(x, x + 1, reference="std"),
        lazily.relative_rmse(x, x, reference=lazily.rms(x)),
    ]
    assert [f.shape for f in found] == [(5,)] * 4
    assert [f.shape for f in lazily.unit_rms(x, return_rms=True)] == [SHAPE, (5,)]
    assert lazily.describe(x).rms.shape == lazily.compare(x, x).rmse.shape == (5,)
    assert lazily.rms_norm(x, x[0]).shape == lazily.scale_to_rms(x, x[:, 0]).shape == SHAPE
    with pytest.raises(AssertionError, match="computed"):
        found[0].compute()


def test_meta_of_map_blocks_over_a_public_function_is_found():
    x = da.zeros((4, 6), dtype=np.float16, chunks=(2, 6))
    found = da.map_blocks(rmsfast.rms, x, drop_axis=1)
    assert found.dtype == np.float32
    assert found.compute().tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (TypeError, "rms: x must have a boolean, int", lambda x: lazily.rms(x.astype(object))),
        (ValueError, "rms: x must have known chunk sizes", lambda x: lazily.rms(x[x > 0])),
        (ValueError, "rms: x must have a coordinate", lambda x: lazily.rms(x[:, :0])),
        (ValueError, "rmse: x and x_hat must have equal", lambda x: lazily.rmse(x, x[:, :1])),
        (TypeError, "rms: where must be boolean", lambda x: lazily.rms(x, where=x)),
        (ValueError, "rms: nan_policy must be", lambda x: lazily.rms(x, nan_policy="drop")),
        (np.exceptions.AxisError, "rms: axis must be", lambda x: lazily.rms(x, axis=2)),
        (ValueError, "unit_rms: zero must be", lambda x: lazily.unit_rms(x, zero=0)),
        (ValueError, "scale_to_rms: target must", lambda x: lazily.scale_to_rms(x, x)),
        (ValueError, "rms_norm: gain must be", lambda x: lazily.rms_norm(x, x)),
        (ValueError, "rms_norm: eps must be", lambda x: lazily.rms_norm(x, eps=-1)),
        (
            ValueError,
            "relative_rmse: reference must be one of",
            lambda x: lazily.relative_rmse(x, x, reference="sd"),
        ),
        (
            TypeError,
            "relative_rmse: x must be real for reference='range', got a complex dtype",
            lambda x: lazily.relative_rmse(x * 1j, x, reference="range"),
        ),
    ],
)
def test_call_with_bad_arguments_is_refused_at_once(error, text, call):
    with pytest.raises(error, match=text):
        call(untouched(SHAPE, (2, 7)))


@pytest.mark.parametrize("chunks", [(1, 34), (2, 7)], ids=str)
def test_rms_under_raise_refuses_nan_when_computed(arrays, chunks):
    x = arrays[0].copy()
    x[3, 20] = np.nan
    with pytest.raises(ValueError, match="rms: x must hold no NaN under nan_policy='raise'"):
        lazily.rms(cut(x, chunks), nan_policy="raise").compute()
    check(lazily.rms(cut(x, chunks), nan_policy="omit"), rmsfast.rms(x, nan_policy="omit"))


def test_calls_without_numba_are_those_of_the_reference():
    program = """
        import warnings
        warnings.simplefilter("ignore")
        import dask, dask.array as da, numpy as np, xarray as xr
        from rmsfast import dask as lazily, reference, xarray as labelled
        dask.config.set(scheduler="synchronous")
        x = np.arange(-35.0, 35.0, dtype="f4").reshape(5, 14)
        y = x + np.float32(0.5)
        a, b = (da.from_array(each, chunks=((1, 3, 1), (5, 9))) for each in (x, y))
        along = xr.DataArray(a, dims=("time", "place"))
        check = np.testing.assert_array_equal
        check(lazily.rms(a), reference.rms(x))
        check(lazily.rms(a, axis=None), reference.rms(x, axis=None))
        std = {"reference": "std"}
        check(lazily.relative_rmse(a, b, **std), reference.relative_rmse(x, y, **std))
        check(lazily.unit_rms(a), reference.unit_rms(x))
        check(lazily.rms_norm(a, axis=0), reference.rms_norm(x, axis=0))
        check(lazily.describe(a).peak_index, reference.describe(x).peak_index)
        check(lazily.compare(a, b).bias, reference.compare(x, y).bias)
        check(lazily.rms_windows(a, 4), reference.rms_windows(x, 4))
        check(labelled.rms(along, dim="time"), reference.rms(x, axis=0))
        check(labelled.unit_rms(along, dim="place"), reference.unit_rms(x))
    """
    run(program, NUMBA_DISABLE_JIT=1)


# Schedulers -------------------------------------------------------------------------------------


def test_rms_on_threads_has_bits_of_whole_array(arrays):
    x = arrays[0]
    with dask.config.set(scheduler="threads"):
        check(lazily.rms(cut(x, (1, 3))), rmsfast.rms(x))


def test_rms_on_a_cluster_has_bits_of_whole_array(arrays, cluster):
    x = arrays[0]
    for chunks in CHUNKS[3:5]:
        found = cluster.compute(lazily.rms(cut(x, chunks))).result()
        assert_same_bits(found, rmsfast.rms(x))


def test_rms_after_a_worker_was_killed_has_bits_of_whole_array(cluster, tmp_path):
    x, mark = make((4, 4 * BLOCK), np.float64), tmp_path / "killed"

    def killing(block, block_info=None):
        if block_info[0]["chunk-location"] == (2, 2):
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                return block
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    whole = da.map_blocks(killing, cut(x, (1, BLOCK)), dtype=x.dtype, meta=np.zeros((0, 0)))
    found = cluster.compute(lazily.rms(whole)).result()
    assert mark.exists()
    assert_same_bits(found, rmsfast.rms(x))


def test_unit_rms_of_what_a_cluster_holds_has_bits_of_whole_array(arrays, cluster):
    x = arrays[0]
    held = cluster.persist(cut(x, (2, 7)))
    assert_same_bits(cluster.compute(lazily.unit_rms(held)).result(), rmsfast.unit_rms(x))


@pytest.mark.usefixtures("cluster")
def test_normalize_on_a_cluster_writes_what_one_process_does(arrays, tmp_path, capsys):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(tmp_path / "x.zarr", shape=SHAPE, chunks=(2, 34), dtype="float32")
    stored[...] = arrays[0]
    with dask.config.set(scheduler=None):
        files.normalize(tmp_path / "x.zarr", tmp_path / "u.zarr", progress=True)
    shown = capsys.readouterr()
    assert (shown.out, "100% Completed" in shown.err) == ("", True)
    (found,) = rmsfast.files.open_tensors(tmp_path / "u.zarr")
    assert_same_bits(found.read(), rmsfast.unit_rms(arrays[0]))


def test_call_in_a_task_stays_on_its_thread(monkeypatch, arrays):
    monkeypatch.setattr(rmsfast._launch, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(rmsfast._launch, "AWAKE_BYTES", 0)
    monkeypatch.setattr(rmsfast._launch, "_in_parallel", None)
    x = arrays[0]
    lazily.rms(cut(x, (1, 34))).compute()
    assert math.isfinite(lazily.rms(cut(x, (2, 7)), axis=None).compute())


def test_tables_of_complex_numbers_need_rows_in_one_chunk():
    x = make(SHAPE, np.complex64)
    found, expected = lazily.describe(cut(x, (2, 34))).compute(), rmsfast.describe(x)
    for name in expected.names():
        assert_same_bits(getattr(found, name), getattr(expected, name))
    with pytest.raises(ValueError, match="describe: x must be in one chunk along axis 1 where num"):
        lazily.describe(cut(x, (2, 7)))
    with pytest.raises(ValueError, match="describe: x and where must be in one chunk along axis 1"):
        lazily.describe(cut(x, (2, 34)), where=cut(np.ones(SHAPE, bool), (2, 7)))


# Windows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("edge", ["valid", "partial", "centered"])
@pytest.mark.parametrize(("window", "hop"), [(9, 1), (5, 3), (3, 4)])
def test_rms_windows_of_chunks_is_that_of_whole_array(arrays, edge, window, hop):
    x = arrays[0]
    for chunks, axis in (((2, 7), 1), ((5, 1), -1)):
        options = {"hop": hop, "axis": axis, "edge": edge}
        found = lazily.rms_windows(cut(x, chunks), window, **options)
        check(found, rmsfast.rms_windows(x, window, **options))


def test_rms_windows_of_chunks_along_the_first_axis_leaves_nan_out(arrays):
    x = arrays[0].T.copy()
    x[3, 2] = np.nan
    options = {"hop": 2, "axis": 0, "edge": "centered", "nan_policy": "omit"}
    found = lazily.rms_windows(cut(x, (4, 2)), 4, **options)
    check(found, rmsfast.rms_windows(x, 4, **options))


def test_rms_windows_of_chunks_refuses_at_once_what_it_can():
    with pytest.raises(ValueError, match="rms_windows: window must be at most the length"):
        lazily.rms_windows(da.ones(8, chunks=2), 9)
    found = lazily.rms_windows(
        da.from_array(np.float32([1, np.nan]), chunks=1), 1, nan_policy="raise"
    )
    with pytest.raises(ValueError, match="rms_windows: x must"):
        found.compute()


def test_rms_windows_of_chunks_reads_of_each_task_little_more_than_its_chunk():
    read = []

    def noted(block):
        read.append(block.size)
        return block

    x = da.ones(4096, np.float32, chunks=512)
    x = x.map_blocks(noted, dtype=x.dtype, meta=np.empty(0, x.dtype))
    lazily.rms_windows(x, 8)[:64].compute()
    assert read == [512]
