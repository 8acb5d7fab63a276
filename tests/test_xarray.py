"""xarray objects: dimensions by name, labels kept, the bits of the calls on bare arrays."""

import numpy as np
import pytest
from zoo import assert_same_bits, make

import rmsfast

xr = pytest.importorskip("xarray")
import rmsfast.xarray as labelled  # noqa: E402

DIMS = ("time", "level", "place")
SHAPE = (3, 4, 5)


def holders():
    yield pytest.param(lambda x: x, id="numpy")
    yield pytest.param(lambda x: x.chunk({"time": 2, "place": 3}), id="dask")


every_holder = pytest.mark.parametrize("held", list(holders()))


@pytest.fixture
def x():
    pytest.importorskip("dask")
    coords = {"time": [10, 20, 30], "place": list("abcde"), "run": 7}
    attrs = {"units": "m"}
    values = make(SHAPE, np.float32)
    return xr.DataArray(values, dims=DIMS, coords=coords, attrs=attrs, name="height")


def check(found, values, dims, x):
    """Values of the same bits, and the labels that are left."""
    assert found.dims == dims
    assert found.name == x.name
    assert found.attrs == x.attrs
    assert set(found.coords) == {c for c in x.coords if set(x[c].dims) <= set(dims)}
    assert_same_bits(np.asarray(found.values), np.asarray(values))


@every_holder
@pytest.mark.parametrize(
    ("dim", "axis", "dims"),
    [
        ("time", 0, ("level", "place")),
        (["place", "time"], (0, 2), ("level",)),
        (None, None, ()),
        (..., None, ()),
    ],
)
def test_rms_along_dimensions_keeps_labels_of_the_others(x, held, dim, axis, dims):
    found = labelled.rms(held(x), dim=dim)
    assert (found.chunks is None) == (held(x).chunks is None)
    check(found, rmsfast.rms(x.values, axis=axis), dims, x)


def test_rms_with_keepdims_leaves_dimensions_of_length_one(x):
    found = labelled.rms(x, dim="level", keepdims=True)
    assert found.dims == DIMS
    assert_same_bits(found.values, rmsfast.rms(x.values, axis=1, keepdims=True))


@every_holder
def test_rms_takes_weights_and_where_by_names_of_dimensions(x, held):
    weights = xr.DataArray(make(SHAPE, np.float64) ** 2, dims=DIMS).transpose()
    where = xr.DataArray([True, False, True, True, True], dims="place", coords={"place": x.place})
    found = labelled.rms(held(x), dim=("time", "place"), weights=weights, where=where)
    expected = rmsfast.rms(
        x.values, axis=(0, 2), weights=weights.transpose(*DIMS).values, where=where.values
    )
    check(found, expected, ("level",), x)


@pytest.mark.parametrize(
    ("skipna", "policy"), [(None, "propagate"), (False, "propagate"), (True, "omit")]
)
@every_holder
def test_rms_under_skipna_omits_nan_if_true(x, held, skipna, policy):
    x[1, 2, 3] = np.nan
    found = labelled.rms(held(x), dim="place", skipna=skipna)
    check(found, rmsfast.rms(x.values, nan_policy=policy), ("time", "level"), x)


@every_holder
def test_rmse_pairs_dimensions_by_name(x, held):
    x_hat = (x + 1).transpose("place", "time", "level")
    check(
        labelled.rmse(held(x), held(x_hat), dim="level"),
        rmsfast.rmse(x.values, x.values + 1, axis=1),
        ("time", "place"),
        x,
    )


@every_holder
def test_rmse_against_an_array_without_the_reduced_dimension_repeats_it(x, held):
    mean = x.mean("level")
    check(
        labelled.rmse(held(x), mean, dim="level"),
        rmsfast.rmse(x.values, np.repeat(mean.values[:, None], 4, 1), axis=1),
        ("time", "place"),
        x,
    )


def test_rmse_of_more_dimensions_in_the_second_has_them_all(x):
    found = labelled.rmse(x.isel(time=0), x, dim="place")
    assert set(found.dims) == {"time", "level"}
    expected = rmsfast.rmse(x.values[0], x.values)
    assert_same_bits(found.transpose("time", "level").values, expected)


def test_rmse_against_a_number_is_that_of_bare_arrays(x):
    check(labelled.rmse(x, 0.5, dim="time"), rmsfast.rmse(x.values, 0.5, axis=0), DIMS[1:], x)


def test_rmse_of_arrays_of_different_names_has_none(x):
    assert labelled.rmse(x, x.rename("other"), dim="time").name is None


@every_holder
@pytest.mark.parametrize("reference", ["x", "range"])
def test_relative_rmse_has_bits_of_bare_arrays(x, held, reference):
    found = labelled.relative_rmse(held(x), x + 1, dim="time", reference=reference)
    expected = rmsfast.relative_rmse(x.values, x.values + 1, axis=0, reference=reference)
    check(found, expected, DIMS[1:], x)


def test_relative_rmse_takes_a_labelled_reference(x):
    size = labelled.rms(x, dim="time").transpose()
    found = labelled.relative_rmse(x, x + 1, dim="time", reference=size)
    expected = rmsfast.relative_rmse(x.values, x.values + 1, axis=0, reference=size.values.T)
    check(found, expected, DIMS[1:], x)


@every_holder
def test_scalings_keep_every_label(x, held):
    targets = xr.DataArray([1.0, 2.0, 3.0], dims="time", coords={"time": x.time})
    found = labelled.scale_to_rms(held(x), targets, dim=("place", "level"))
    check(found, rmsfast.scale_to_rms(x.values, targets.values, axis=(1, 2)), DIMS, x)
    found, sizes = labelled.unit_rms(held(x), dim="time", return_rms=True)
    check(found, rmsfast.unit_rms(x.values, axis=0), DIMS, x)
    check(sizes, rmsfast.rms(x.values, axis=0), DIMS[1:], x)
    gain = xr.DataArray([1.0, 2.0, 3.0, 4.0], dims="level")
    found = labelled.rms_norm(held(x), gain, dim="level")
    check(found, rmsfast.rms_norm(x.values, gain.values, axis=1), DIMS, x)


@every_holder
def test_describe_gives_a_dataset_of_its_fields(x, held):
    found = labelled.describe(held(x), dim=("place", "time"))
    expected = rmsfast.describe(x.values, axis=(0, 2))
    assert tuple(found.data_vars) == expected.names()
    assert found.attrs == x.attrs
    for name in ("rms", "peak", "peak_index", "count"):
        assert found[name].dims == ("level",)
        assert_same_bits(found[name].values, getattr(expected, name))


def test_compare_gives_a_dataset_of_its_fields(x):
    found = labelled.compare(x, x + 1, dim="place")
    expected = rmsfast.compare(x.values, x.values + 1)
    assert tuple(found.data_vars) == expected.names()
    assert_same_bits(found.rmse.values, expected.rmse)
    assert list(found.time.values) == [10, 20, 30]


def test_rms_of_a_dataset_is_that_of_its_variables(x):
    data = xr.Dataset({"height": x, "depth": -2 * x}, attrs={"source": "here"})
    found = labelled.rms(data, dim="time")
    assert found.attrs == data.attrs
    for name in ("height", "depth"):
        xr.testing.assert_identical(found[name], labelled.rms(data[name], dim="time"))
    both = labelled.rmse(data, data + 1, dim="time")
    xr.testing.assert_equal(both.depth, labelled.rmse(data.depth, data.depth + 1, dim="time"))


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (TypeError, "rms: x must be a DataArray", lambda x: labelled.rms(x.values, dim="time")),
        (ValueError, "rms: dim must be among", lambda x: labelled.rms(x, dim="day")),
        (ValueError, "rms: dim must name", lambda x: labelled.rms(x, dim=["time", "time"])),
        (TypeError, "rms: skipna must", lambda x: labelled.rms(x, dim="time", skipna="yes")),
        (
            ValueError,
            "scale_to_rms: target must",
            lambda x: labelled.scale_to_rms(x, x, dim="time"),
        ),
        (ValueError, "rms_norm: gain must", lambda x: labelled.rms_norm(x, x, dim="time")),
        (
            ValueError,
            "x_hat must have the",
            lambda x: labelled.rmse(x.to_dataset(), (-x).rename("a").to_dataset(), dim="time"),
        ),
        (
            xr.AlignmentError,
            "align",
            lambda x: labelled.rmse(x, x.assign_coords(time=[1, 2, 3]), dim="place"),
        ),
    ],
)
def test_call_with_bad_arguments_is_refused(x, error, text, call):
    with pytest.raises(error, match=text):
        call(x)


@pytest.mark.parametrize("chunks", [None, {"time": 5}])
@pytest.mark.parametrize("edge", ["valid", "centered"])
def test_rms_windows_labels_windows_by_the_value_at_which_they_start(chunks, edge):
    values = make((12, 2), np.float32)
    coords = {"time": np.arange(12) * 10, "place": ["a", "b"]}
    x = xr.DataArray(values, coords, ("time", "place"), "wave", {"u": "m"})
    x = x if chunks is None else x.chunk(chunks)
    found = labelled.rms_windows(x, 4, dim="time", hop=2, edge=edge)
    expected = rmsfast.rms_windows(values, 4, hop=2, axis=0, edge=edge)
    assert (found.dims, found.name, found.attrs) == (x.dims, "wave", {"u": "m"})
    np.testing.assert_array_equal(found.time, 20 * np.arange(len(expected)))
    np.testing.assert_array_equal(found.values, expected)


def test_rms_windows_of_more_than_one_dimension_is_refused():
    x = xr.DataArray(np.ones((3, 4)), dims=("time", "place"))
    with pytest.raises(ValueError, match="rms_windows: dim must name one dimension"):
        labelled.rms_windows(x, 2, dim=None)
