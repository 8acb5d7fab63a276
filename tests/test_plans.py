"""Plans of plain calls, kept from call to call: the answers and refusals of the long way."""

import itertools

import numpy as np
import pytest

import rmsfast
from rmsfast import _small, _small_reductions, _small_scalings

X = np.random.default_rng(3).standard_normal((6, 5, 40)).astype(np.float32)
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

    rmsfast.rms(ROW)  # which has a plan from here on
    short = refusal()
    the_long_way()
    assert short == refusal()


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


def test_rms_of_more_kinds_of_arrays_than_are_kept_is_that_of_each(monkeypatch):
    monkeypatch.setattr(_small, "KEPT", 2)
    for rows in (1, 2, 3, 1, 2, 3):
        x = np.full((rows, 8), float(rows), np.float32)
        assert np.array_equal(rmsfast.rms(x), [rows] * rows)


def test_plan_of_complex_rows_reads_both_parts_side_by_side():
    z = np.zeros((6, 40), np.complex64)
    plan = _small_reductions.reduction(-1, False, None, None, (z.dtype, z.shape, z.strides)).plan
    assert (plan.length, plan.awkward) == (80, 0)
