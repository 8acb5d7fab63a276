"""Plans of plain calls, kept from call to call: the answers and refusals of the long way."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import rmsfast
from rmsfast import _launch, _small, _small_reductions, _small_scalings

X = np.random.default_rng(3).standard_normal((6, 5, 40)).astype(np.float32)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
GAIN = np.linspace(0.5, 2, 80)
CODES = (X.view(np.uint32) >> 16).astype(np.uint16)
LAYOUTS = {
    "rows": X,
    "fortran": np.asfortranarray(X),
    "transposed": X.transpose(1, 2, 0),
    "every other": X[:, :, ::2],
    "wide": X.astype(np.float64),
    "swapped": X.astype(">f4"),
}
SHORT_WAYS = [
    (_small_reductions, "reduced"),
    (_small_reductions, "related"),
    (_small_scalings, "scaled"),
]


@pytest.fixture
def the_long_way(monkeypatch):
    """A function that makes every plain call go the long way from then on."""

    def turn():
        for module, name in SHORT_WAYS:
            monkeypatch.setattr(module, name, lambda *_args, **_options: None)

    return turn


def same(a, b):
    assert type(a) is type(b)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reductions_of_plain_arrays_give_bits_of_the_long_way(layout, the_long_way):
    x = LAYOUTS[layout]
    choices = list(itertools.product([-1, 0, 1, (0, 2), None], [False, True], [None, "float64"]))

    def answers():
        for axis, keepdims, dtype in choices:
            options = {"axis": axis, "keepdims": keepdims, "dtype": dtype}
            yield rmsfast.rms(x, **options)
            yield rmsfast.rmse(x, x[::-1] + x.dtype.type(1), **options)
            for reference in ("x", "x_hat", "max"):
                yield rmsfast.relative_rmse(x, x[::-1], reference=reference, **options)

    short = list(answers())
    the_long_way()
    for a, b in zip(short, answers(), strict=True):
        same(a, b)


@pytest.mark.parametrize("other", [X[:1], X[0], X[0, 0], X[:, 1:2]], ids=lambda a: str(a.shape))
def test_rmse_of_plain_arrays_broadcast_gives_bits_of_the_long_way(other, the_long_way):
    short = rmsfast.rmse(X, other), rmsfast.relative_rmse(other, X, reference="x_hat")
    the_long_way()
    same(short[0], rmsfast.rmse(X, other))
    same(short[1], rmsfast.relative_rmse(other, X, reference="x_hat"))


@pytest.mark.parametrize("reference", ["mean", "range", "std"])
def test_relative_rmse_of_other_sizes_gives_bits_of_the_long_way(reference, the_long_way):
    short = rmsfast.relative_rmse(X, X[::-1], reference=reference)
    the_long_way()
    same(short, rmsfast.relative_rmse(X, X[::-1], reference=reference))


@pytest.mark.parametrize("function", ["unit_rms", "scale_to_rms", "rms_norm"])
@pytest.mark.parametrize("way", ["new", "apart", "in place", "codes"])
def test_scalings_of_plain_arrays_give_bits_of_the_long_way(function, way, the_long_way):
    first = {"unit_rms": (), "scale_to_rms": (2.5,), "rms_norm": (np.linspace(1, 2, 40),)}[function]

    def answer():
        x = (CODES if way == "codes" else X).copy()
        out = {"new": None, "apart": np.empty_like(x), "in place": x, "codes": x}[way]
        format = "bfloat16" if way == "codes" else None
        result = getattr(rmsfast, function)(x, *first, out=out, format=format)
        assert out is None or result is out
        return result

    short = answer()
    the_long_way()
    same(short, answer())


def test_reductions_of_plain_arrays_write_to_out():
    out = np.empty((6, 5), np.float32)
    assert rmsfast.rms(X, out=out) is out
    same(out, rmsfast.rms(X))
    assert rmsfast.relative_rmse(X, 2 * X, reference="x", out=out) is out
    np.testing.assert_array_equal(out, 1)


@pytest.mark.parametrize("zero", ["ieee", "nan"])
def test_relative_rmse_of_plain_zero_rows_follows_zero(zero):
    x = np.zeros((2, 4), np.float32)
    found = rmsfast.relative_rmse(x, np.float32([[1] * 4, [0] * 4]), reference="x", zero=zero)
    np.testing.assert_array_equal(found, [np.inf if zero == "ieee" else np.nan, np.nan])


@pytest.mark.parametrize(("zero", "fill"), [("zero", 0), ("nan", np.nan)])
def test_unit_rms_of_plain_zero_row_follows_zero(zero, fill):
    x = np.zeros((2, 4), np.float32)
    x[1] = 3
    np.testing.assert_array_equal(rmsfast.unit_rms(x, zero=zero), [[fill] * 4, [1] * 4])


ROW = np.ones((3, 8), np.float32)
REPEATED = np.lib.stride_tricks.as_strided(ROW.copy(), (3, 8), (0, 4))
REFUSED = [
    ("rms", (ROW,), {"axis": 2}),
    ("rms", (ROW,), {"axis": 1.0}),
    ("rms", (ROW,), {"axis": (0, 1.0)}),
    ("rms", (ROW,), {"axis": (1, 1)}),
    ("rms", (ROW,), {"dtype": "int8"}),
    ("rms", (ROW,), {"dtype": []}),
    ("rms", (ROW,), {"format": "bfloat16"}),
    ("rms", (ROW,), {"format": ["bfloat16"]}),
    ("rms", (ROW,), {"threads": 0}),
    ("rms", (ROW,), {"threads": True}),
    ("rms", (ROW,), {"out": np.empty(2, np.float32)}),
    ("rms", (ROW,), {"out": np.empty(3)}),
    ("rms", (ROW,), {"out": [0.0] * 3}),
    ("rms", (ROW,), {"out": ROW[:, 0]}),
    ("rms", (np.empty((3, 0)),), {}),
    ("rmse", (ROW, ROW[:, :7]), {}),
    ("relative_rmse", (ROW, ROW), {"reference": "size"}),
    ("relative_rmse", (0 * ROW, ROW), {"reference": "x"}),
    ("unit_rms", (ROW,), {"zero": "keep"}),
    ("unit_rms", (ROW * [[1], [0], [1]],), {}),
    ("unit_rms", (ROW,), {"out": np.empty((3, 8))}),
    ("unit_rms", (ROW[:2],), {"out": ROW[1:]}),
    ("unit_rms", (REPEATED,), {"out": REPEATED}),
    ("rms_norm", (ROW, np.ones(7)), {}),
    ("rms_norm", (ROW,), {"eps": -1.0}),
    ("rms_norm", (ROW,), {"out": ROW[:, ::-1]}),
]


@pytest.mark.parametrize(("function", "arrays", "options"), REFUSED)
def test_refusals_have_the_text_of_the_long_way(function, arrays, options, the_long_way):
    def refusal():
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(rmsfast, function)(*arrays, **options)
        return type(caught.value), str(caught.value)

    # Of which there are plans from here on.
    rmsfast.rms(ROW), rmsfast.unit_rms(ROW, out=ROW + 1), rmsfast.rms_norm(ROW, ROW[0])
    short = refusal()
    the_long_way()
    assert short == refusal()


@pytest.mark.parametrize("cast", ["after_gain", "before_gain"])
@pytest.mark.parametrize(
    ("kind", "gain"),
    [
        ("bfloat16", GAIN[:40].astype(BFLOAT16)),
        ("bfloat16", GAIN[:40].astype(np.float16)),
        ("float16", GAIN[:40].astype(np.float16)),
        ("float32", GAIN[:40].astype(BFLOAT16)),
        ("float32", GAIN[:40].astype(">f4")),
        ("float32", GAIN[::-2]),
    ],
    ids=lambda a: a if isinstance(a, str) else a.dtype.str,
)
def test_rms_norm_of_plain_gain_gives_bits_of_the_long_way(kind, gain, cast, the_long_way):
    x = X.astype(kind)
    short = rmsfast.rms_norm(x, gain, cast=cast, gain_offset=0.5)
    the_long_way()
    same(short, rmsfast.rms_norm(x, gain, cast=cast, gain_offset=0.5))


def test_rms_norm_takes_a_gain_of_signalling_nan_without_a_warning():
    gain = np.array([0x3F800000, 0x7F800001], np.uint32).view(np.float32)
    np.testing.assert_array_equal(rmsfast.rms_norm(np.ones(2), gain, eps=0.0), [1, np.nan])


def test_rms_norm_reads_the_gain_at_each_call():
    gain = np.ones(4)
    for factor in (1.0, 2.0, 3.0):
        gain[:] = factor
        np.testing.assert_array_equal(rmsfast.rms_norm(np.ones(4), gain, eps=0.0), [factor] * 4)


def test_rms_norm_takes_a_gain_that_the_result_replaces():
    gain = np.array([1.0, 2.0, 3.0, 4.0])
    rmsfast.rms_norm(np.full(4, 5.0), gain, eps=0.0, out=gain)
    np.testing.assert_array_equal(gain, [1, 2, 3, 4])


def test_scale_to_rms_takes_the_target_of_each_call():
    for target in (1.0, 2.0, np.float64(-3.0)):
        np.testing.assert_array_equal(rmsfast.scale_to_rms(np.ones(4), target), [target] * 4)


def test_unit_rms_of_the_same_bytes_in_other_formats_is_that_of_each():
    codes = np.array([1.0, 1.0, -1.0, 1.0], np.float16).view(np.uint16)
    for _ in range(2):
        for format in ("float16", "bfloat16"):
            one = {"float16": 0x3C00, "bfloat16": 0x3F80}[format]
            signs = [one, one, one | 0x8000, one]
            np.testing.assert_array_equal(rmsfast.unit_rms(codes, format=format), signs)


@pytest.mark.parametrize("length", [16_384, 16_385, 100_003])
def test_scalings_of_one_long_plain_row_give_bits_of_the_long_way(length, the_long_way):
    x = np.random.default_rng(5).standard_normal(length).astype(np.float32)
    short = rmsfast.unit_rms(x)
    the_long_way()
    same(short, rmsfast.unit_rms(x))


@pytest.mark.parametrize("part", ["x", "out"])
def test_unit_rms_of_unaligned_arrays_follows_calls_of_aligned_ones(part):
    x, out = np.full((2, 4), 3.0), np.empty((2, 4))
    rmsfast.unit_rms(x, out=out)
    memory = np.zeros(65, np.uint8)[1:].view(np.float64).reshape(2, 4)
    if part == "x":
        memory[...] = x
        np.testing.assert_array_equal(rmsfast.unit_rms(memory, out=out), np.ones((2, 4)))
    else:
        with pytest.raises(ValueError, match=r"^unit_rms: out must be aligned "):
            rmsfast.unit_rms(x, out=memory)


def test_unit_rms_of_a_masked_array_follows_calls_of_plain_ones():
    x = np.array([[3.0, 3.0, 3.0, 9.0]])
    rmsfast.unit_rms(x)
    np.testing.assert_array_equal(rmsfast.unit_rms(np.ma.array(x, mask=x > 5)), [[1, 1, 1, 3]])


def test_unit_rms_of_a_small_array_is_shared_once_small_is_less(monkeypatch):
    x = X.copy()
    expected = rmsfast.unit_rms(x)
    monkeypatch.setattr(_launch, "PARALLEL_BYTES", 1)
    same(rmsfast.unit_rms(x, threads=2), expected)
    x[3, 2] = 0
    with pytest.raises(ValueError, match=r"first at index \(3, 2\)$"):
        rmsfast.unit_rms(x)


@pytest.mark.parametrize("function", ["unit_rms", "scale_to_rms"])
def test_scalings_refused_for_a_zero_row_leave_out_untouched(function):
    x = np.ones((3, 8), np.float32)
    x[2] = 0
    out = np.full_like(x, 7)
    first = () if function == "unit_rms" else (2.0,)
    for target in (out, x):
        before = target.copy()
        with pytest.raises(ValueError, match=f"^{function}: x must be nonzero .* index \\(2,\\)$"):
            getattr(rmsfast, function)(x, *first, out=target)
        same(target, before)


def test_rms_norm_refuses_a_read_only_array_in_place():
    x = np.ones((3, 8), np.float32)
    x.flags.writeable = False
    with pytest.raises(
        ValueError, match=r"^rms_norm: out must be writeable, got a read-only array$"
    ):
        rmsfast.rms_norm(x, out=x)


def test_rms_of_one_kind_of_array_is_planned_once():
    _small_reductions._calls.clear()
    _small_reductions.reduction.cache_clear()
    for _ in range(3):
        rmsfast.rms(ROW)
        rmsfast.rms(2 * ROW, axis=0)
    assert _small_reductions.reduction.cache_info().misses == 2


def test_rms_first_called_with_out_is_kept_as_others_are():
    _small_reductions._calls.clear()
    _small_reductions.reduction.cache_clear()
    rmsfast.rms(ROW, out=np.empty(len(ROW), np.float32))
    assert not _small_reductions._calls
    rmsfast.rms(ROW)
    assert len(_small_reductions._calls) == 1


def test_rms_of_more_kinds_of_arrays_than_are_kept_is_that_of_each(monkeypatch):
    monkeypatch.setattr(_small, "KEPT", 2)
    for rows in (1, 2, 3, 1, 2, 3):
        x = np.full((rows, 8), float(rows), np.float32)
        assert np.array_equal(rmsfast.rms(x), [rows] * rows)


def test_plan_of_complex_rows_reads_both_parts_side_by_side():
    z = np.zeros((6, 40), np.complex64)
    plan = _small_reductions.reduction(-1, False, None, None, (z.dtype, z.shape, z.strides)).plan
    assert (plan.length, plan.awkward) == (80, 0)
