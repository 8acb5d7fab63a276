"""What the results of `describe` and `compare` can do: records, statistics, text."""

import numpy as np
import pytest

from rmsfast import Comparison, Description, compare, describe

ROWS = 40
rng = np.random.default_rng(0)
X = rng.standard_normal((ROWS, 30)) * np.geomspace(1, 100, ROWS)[:, np.newaxis] + 0.5
X_HAT = X + 0.1 * rng.standard_normal(X.shape)
X_HAT[7], X[9] = X[7], 0.0
TABLES = {"describe": lambda *axis: describe(X, axis=axis[0] if axis else -1)}
TABLES |= {"compare": lambda *axis: compare(X, X_HAT, axis=axis[0] if axis else -1)}
every_table = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)


@every_table
def test_to_dict_holds_the_fields_in_order(make):
    table = make()
    assert tuple(table.to_dict()) == table.names()
    assert not any(name.startswith("_") for name in table.names())
    assert table.to_dict()["count"] is table.count


@every_table
def test_fields_cannot_be_replaced(make):
    with pytest.raises(AttributeError):
        make().count = 0


@every_table
def test_to_records_has_a_record_a_row(make):
    table = make()
    records = table.to_records()
    assert records.shape == (ROWS,)
    assert records.dtype.names == table.names()
    for name in table.names():
        np.testing.assert_array_equal(records[name], getattr(table, name))


@every_table
def test_pooled_equals_the_result_over_the_whole_array(make):
    pooled, whole = make().pooled(), make(None)
    for name, value in whole.to_dict().items():
        assert getattr(pooled, name) == pytest.approx(value, rel=1e-12, abs=1e-13), name


def test_pooled_of_float32_rows_is_not_the_mean_of_roots():
    found = describe(np.float32([[3, 3, 3, 3], [0, 0, 0, 0]])).pooled()
    assert found.rms == np.float32(np.sqrt(4.5))
    assert found.rms.dtype == np.float32


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_pooled_of_any_magnitude_stays_in_range(scale):
    found, whole = describe(X * scale).pooled(), describe(X * scale, axis=None)
    assert (found.rms, found.std) == pytest.approx((whole.rms, whole.std), rel=1e-13)


def test_pooled_leaves_out_rows_without_values():
    where = np.ones(X.shape, bool)
    where[[0, 5]] = False
    found, whole = (describe(X, axis=a, where=where) for a in (-1, None))
    pooled = found.pooled()
    assert (pooled.count, pooled.peak_index) == (whole.count, whole.peak_index)
    assert pooled.mean == pytest.approx(whole.mean, rel=1e-12)
    nothing = describe(X, where=np.zeros(X.shape, bool)).pooled()
    assert (nothing.count, nothing.peak_index) == (0, -1)
    assert np.isnan(nothing.rms)


@every_table
def test_concatenate_of_blocks_of_rows_is_the_whole(make):
    whole = make()
    kind = type(whole)
    if kind is Description:
        parts = [describe(X[:13]), describe(X[13]), describe(X[14:])]
    else:
        pairs = [(X[:13], X_HAT[:13]), (X[13], X_HAT[13]), (X[14:], X_HAT[14:])]
        parts = [compare(*pair) for pair in pairs]
    joined = kind.concatenate(parts)
    for name in whole.names():
        np.testing.assert_array_equal(getattr(joined, name), getattr(whole, name))
    assert str(joined.pooled()) == str(whole.pooled())


@every_table
@pytest.mark.parametrize("cuts", [[7], [1, 2, 29]], ids=str)
def test_joined_parts_of_rows_are_the_rows(make, cuts):
    whole, starts = make(), [0, *cuts]
    pieces = zip(np.split(X, cuts, 1), np.split(X_HAT, cuts, 1), strict=True)
    is_description = type(whole) is Description
    parts = [describe(p) if is_description else compare(p, q) for p, q in pieces]
    joined = type(whole).joined(parts, starts)
    for name in whole.names():
        a, b = getattr(joined, name), getattr(whole, name)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13, err_msg=name)


def test_joined_parts_keep_constant_rows_and_nan():
    x = np.full((3, 9), 0.1)
    x[1, 4], x[2, 7] = np.nan, np.inf
    joined = Description.joined([describe(x[:, :5]), describe(x[:, 5:])], [0, 5])
    np.testing.assert_array_equal(joined.mean, [0.1, np.nan, np.inf])
    np.testing.assert_array_equal(joined.std, [0, np.nan, np.nan])
    np.testing.assert_array_equal(joined.peak_index, [0, 4, 7])
    np.testing.assert_array_equal(joined.rms, [0.1, np.nan, np.inf])


def test_concatenate_of_rows_of_different_length_is_refused():
    with pytest.raises(ValueError, match=r"parts must have rows of one length, got \[2, 3\]"):
        Description.concatenate([describe(np.ones((2, 3))), describe(np.ones((2, 2)))])
    with pytest.raises(ValueError, match="got no parts"):
        Comparison.concatenate([])


@every_table
def test_summary_gives_statistics_of_each_field(make):
    table = make()
    summary = table.summary()
    assert tuple(summary) == table.names()
    for name, found in summary.items():
        values = getattr(table, name)
        known = values[~np.isnan(values)]
        assert found["count"] == known.size
        known = known[np.isfinite(known)]
        assert known.size >= ROWS - 2
        if found["max"] < np.inf:
            marks = [found[key] for key in ("min", "p1", "p50", "p99", "max")]
            np.testing.assert_allclose(marks, np.percentile(known, [0, 1, 50, 99, 100]), rtol=1e-12)


def test_summary_pools_from_sums():
    summary = compare(X, X_HAT).summary()
    assert summary["rmse"]["pooled"] == pytest.approx(compare(X, X_HAT, axis=None).rmse)
    assert summary["rmse"]["pooled"] > np.mean(compare(X, X_HAT).rmse)


def test_worst_puts_the_largest_first():
    found = describe(X).worst(3)
    np.testing.assert_array_equal(found["row"], np.argsort(-describe(X).rms)[:3])
    assert found.dtype.names == ("row", *Description.names())
    assert len(describe(X).worst(1000)) == ROWS


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("cosine", lambda t: t.cosine),
        ("bias", lambda t: -np.abs(t.bias)),
        ("fitted_scale", lambda t: -np.abs(t.fitted_scale - 1)),
        ("sqnr_db", lambda t: t.sqnr_db),
        ("max_abs_error", lambda t: -t.max_abs_error),
    ],
)
def test_worst_by_a_field_puts_what_is_bad_first(by, order):
    table = compare(np.delete(X, 9, 0), np.delete(X_HAT, 9, 0))
    expected = np.argsort(order(table), kind="stable")[:4]
    np.testing.assert_array_equal(table.worst(4, by=by)["row"], expected)


def test_worst_puts_undefined_rows_before_all():
    assert compare(X, X_HAT).worst(1, by="cosine")["row"] == 9


def test_worst_of_several_axes_gives_their_indices():
    x = np.zeros((2, 3, 4))
    x[1, 2] = 5
    np.testing.assert_array_equal(describe(x).worst(1)["row"], [[1, 2]])


def test_worst_by_an_unknown_field_names_the_fields():
    with pytest.raises(ValueError, match=r"worst: by must be one of count, rms, .*, got 'size'"):
        describe(X).worst(1, by="size")


@pytest.mark.parametrize("rows", [1, 5, 32, 33, 5000])
@pytest.mark.parametrize("kind", ["str", "html"])
def test_text_has_at_most_forty_lines(rows, kind):
    x = np.ones((rows, 4), np.float32)
    for table in (describe(x), compare(x, x)):
        text = str(table) if kind == "str" else table._repr_html_().replace("<tr>", "\n<tr>")
        assert 3 <= len(text.splitlines()) <= 40
        assert f"{rows} row" in text
        assert all(name in text for name in table.names())


def test_text_of_one_vector_is_its_numbers():
    assert str(describe([3.0, 4.0, 0.0, 0.0])).splitlines() == [
        "Description: 1 row of 4",
        "row  count  rms  mean    std  min  max  peak  peak_index  peak_share  crest  n_nan  n_inf"
        "  n_zero",
        "  0      4  2.5  1.75  1.785    0    4     4           1        0.64    1.6      0      0"
        "       2",
    ]
