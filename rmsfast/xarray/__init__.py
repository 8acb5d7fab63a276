"""The functions of rmsfast on xarray objects: dimensions by name, labels kept.

Arguments and results are those of the functions of the same name in `rmsfast`, with `dim` in place
of `axis` and `skipna` in place of `nan_policy`; without `out` and `threads`. What Dask holds stays
lazy (`rmsfast.dask`).
"""

from collections.abc import Hashable
from typing import Any

from rmsfast._extras import needed

needed("rmsfast.xarray", "xarray", "xarray")

import xarray as xr  # noqa: E402

import rmsfast  # noqa: E402
from rmsfast.xarray import _calls  # noqa: E402
from rmsfast.xarray._calls import Dims, Labelled  # noqa: E402

__all__ = [
    "compare",
    "describe",
    "relative_rmse",
    "rms",
    "rms_norm",
    "rms_windows",
    "rmse",
    "scale_to_rms",
    "unit_rms",
]


def rms(
    x: Labelled,
    /,
    *,
    dim: Dims,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    skipna: bool | None = None,
    dtype: Any = None,
    format: Any = None,
) -> Labelled:
    """Root mean square along named dimensions, as `rmsfast.rms`.

    Parameters
    ----------
    x : DataArray or Dataset of numbers
        In NumPy or Dask arrays. Of a Dataset, each variable by itself.
    dim : name, iterable of names, None or ...
        Dimensions that hold the coordinates of each vector; None or ...: all. There is no
        default: `rmsfast` takes the last, xarray all.
    where, weights : DataArray
        With dimensions of `x`, in any order; or an array broadcastable to `x` by place.
    skipna : bool, optional
        True leaves NaN out; None and False propagate it.
    keepdims, dtype, format
        As for `rmsfast.rms`.

    Returns
    -------
    DataArray or Dataset, in the unit of `x`
        With name and attributes of `x`, and the coordinates of the dimensions that are left.

    Raises
    ------
    TypeError, ValueError
        As `rmsfast.rms`, for names that are not among the dimensions, and, from xarray, for
        indexes that differ: no point is left out unnoticed (``join="exact"``).

    Examples
    --------
    >>> import xarray as xr
    >>> x = xr.DataArray([[3.0, 4.0], [6.0, 8.0]], dims=("time", "place"))
    >>> rms(x, dim="place", weights=xr.DataArray([1.0, 0.0], dims="place")).values
    array([3., 6.])
    """
    options = {"nan_policy": _calls.policy("rms", skipna), "dtype": dtype, "format": format}
    return _calls.reduced("rms", (x,), dim, keepdims, {"where": where, "weights": weights}, options)


def rmse(
    x: Labelled,
    x_hat: Any,
    /,
    *,
    dim: Dims,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    skipna: bool | None = None,
    dtype: Any = None,
    format: Any = None,
) -> Labelled:
    """Root mean square error along named dimensions, as `rmsfast.rmse`.

    Parameters
    ----------
    x, x_hat : DataArray or Dataset of numbers
        Paired by the names of their dimensions, which may be missing in one. Two Datasets must
        have the same variables. `x_hat` may be a number.
    dim, where, weights, skipna, keepdims, dtype, format
        As for `rms`; `where` and `weights` with dimensions of either.

    Returns
    -------
    DataArray or Dataset, in the unit of `x`
        As `rms`; without a name if the two have different ones.

    Raises
    ------
    TypeError, ValueError
        As `rms`.

    Examples
    --------
    >>> import xarray as xr
    >>> x = xr.DataArray([[3.0, 4.0], [6.0, 8.0]], dims=("time", "place"))
    >>> rmse(x, x.isel(time=0), dim="place").values
    array([0.        , 3.53553391])
    """
    options = {"nan_policy": _calls.policy("rmse", skipna), "dtype": dtype, "format": format}
    around = {"where": where, "weights": weights}
    return _calls.reduced("rmse", (x, x_hat), dim, keepdims, around, options)


def relative_rmse(
    x: Labelled,
    x_hat: Any,
    /,
    *,
    reference: str,
    zero: str = "raise",
    dim: Dims,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    skipna: bool | None = None,
    dtype: Any = None,
    format: Any = None,
) -> Labelled:
    """Root mean square error over a named size, as `rmsfast.relative_rmse`.

    Parameters
    ----------
    x, x_hat, dim, where, weights, skipna, keepdims, dtype, format
        As for `rmse`.
    reference : str or DataArray
        As for `rmsfast.relative_rmse`; a DataArray has dimensions of the result.
    zero : {"raise", "ieee", "nan"}
        As for `rmsfast.relative_rmse`.

    Returns
    -------
    DataArray or Dataset, a pure number; otherwise as `rmse`

    Raises
    ------
    TypeError, ValueError
        As `rmse` and `rmsfast.relative_rmse`.

    Examples
    --------
    >>> import xarray as xr
    >>> x = xr.DataArray([3.0, 4.0, 0.0, 0.0], dims="place")
    >>> float(relative_rmse(x, x + [0, 0, 0, 5], dim="place", reference="x"))
    1.0
    """
    policy = _calls.policy("relative_rmse", skipna)
    options = {"nan_policy": policy, "dtype": dtype, "format": format, "zero": zero}
    around = {"where": where, "weights": weights, "reference": reference}
    return _calls.reduced("relative_rmse", (x, x_hat), dim, keepdims, around, options)


def unit_rms(
    x: Labelled,
    /,
    *,
    dim: Dims,
    zero: str = "raise",
    where: Any = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
) -> Any:
    """Scale vectors along named dimensions to unit RMS, as `rmsfast.unit_rms`.

    Parameters
    ----------
    x, dim, where
        As for `rms`.
    zero, dtype, format, return_rms
        As for `rmsfast.unit_rms`.

    Returns
    -------
    DataArray or Dataset, a pure number
        With dimensions, coordinates, name and attributes of `x`.

    Raises
    ------
    TypeError, ValueError, ImportError
        As `rms` and `rmsfast.unit_rms`.

    Examples
    --------
    >>> import xarray as xr
    >>> unit_rms(xr.DataArray([3.0, 4.0, 0.0, 0.0], dims="place"), dim="place").values
    array([1.2, 1.6, 0. , 0. ])
    """
    options = {"zero": zero, "dtype": dtype, "format": format, "return_rms": return_rms}
    return _calls.scaled("unit_rms", x, dim, {"where": where}, options)


def scale_to_rms(
    x: Labelled,
    /,
    target: Any,
    *,
    dim: Dims,
    zero: str = "raise",
    where: Any = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
) -> Any:
    """Scale vectors along named dimensions to a given RMS, as `rmsfast.scale_to_rms`.

    Parameters
    ----------
    x, dim, zero, where, dtype, format, return_rms
        As for `unit_rms`.
    target : number or DataArray
        With dimensions of `x` other than `dim`.

    Returns
    -------
    DataArray or Dataset, in the unit of `target`; otherwise as `unit_rms`

    Raises
    ------
    TypeError, ValueError, ImportError
        As `unit_rms`.

    Examples
    --------
    >>> import xarray as xr
    >>> x = xr.DataArray([3.0, 4.0, 0.0, 0.0], dims="place")
    >>> scale_to_rms(x, 5.0, dim="place").values
    array([6., 8., 0., 0.])
    """
    options = {"zero": zero, "dtype": dtype, "format": format, "return_rms": return_rms}
    return _calls.scaled("scale_to_rms", x, dim, {"where": where, "target": target}, options)


def rms_norm(
    x: Labelled,
    /,
    gain: Any = None,
    *,
    dim: Dims,
    eps: float = 1e-6,
    gain_offset: float = 0.0,
    cast: str = "after_gain",
    eps_mode: str = "inside",
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
) -> Any:
    """RMSNorm along named dimensions, as `rmsfast.rms_norm`.

    Parameters
    ----------
    x, dim, dtype, format, return_rms
        As for `unit_rms`.
    gain : number or DataArray
        With the dimensions in `dim`.
    eps, gain_offset, cast, eps_mode
        As for `rmsfast.rms_norm`.

    Returns
    -------
    DataArray or Dataset, as `unit_rms`

    Raises
    ------
    TypeError, ValueError, ImportError
        As `unit_rms` and `rmsfast.rms_norm`.

    Examples
    --------
    >>> import xarray as xr
    >>> rms_norm(xr.DataArray([3.0, 4.0, 0.0, 0.0], dims="place"), dim="place", eps=0.0).values
    array([1.2, 1.6, 0. , 0. ])
    """
    options = {"eps": eps, "gain_offset": gain_offset, "cast": cast, "eps_mode": eps_mode}
    options |= {"dtype": dtype, "format": format, "return_rms": return_rms}
    return _calls.scaled("rms_norm", x, dim, {"gain": gain}, options)


def describe(
    x: xr.DataArray,
    /,
    *,
    dim: Dims,
    where: Any = None,
    skipna: bool | None = None,
    format: Any = None,
) -> xr.Dataset:
    """Every number of vectors along named dimensions, as `rmsfast.describe`.

    Parameters
    ----------
    x : DataArray of real numbers
    dim, where, skipna, format
        As for `rms`.

    Returns
    -------
    Dataset
        The fields of `rmsfast.Description` as variables, with the coordinates that are left and
        the attributes of `x`. Indices count along `dim` in the order that its dimensions have
        in `x`.

    Raises
    ------
    TypeError, ValueError
        As `rms` and `rmsfast.describe`.

    Examples
    --------
    >>> import xarray as xr
    >>> found = describe(xr.DataArray([3.0, -4.0, 0.0, 0.0], dims="place"), dim="place")
    >>> float(found.peak), int(found.peak_index)
    (4.0, 1)
    """
    options = {"nan_policy": _calls.policy("describe", skipna), "format": format}
    return _calls.table("describe", (x,), dim, where, options, rmsfast.Description.names())


def compare(
    x: xr.DataArray,
    x_hat: Any,
    /,
    *,
    dim: Dims,
    where: Any = None,
    skipna: bool | None = None,
    format: Any = None,
) -> xr.Dataset:
    """Every number of pairs of vectors along named dimensions, as `rmsfast.compare`.

    Parameters
    ----------
    x, x_hat : DataArray of real numbers
        Paired as for `rmse`.
    dim, where, skipna, format
        As for `rmse`.

    Returns
    -------
    Dataset
        The fields of `rmsfast.Comparison` as variables, otherwise as `describe`.

    Raises
    ------
    TypeError, ValueError
        As `rmse` and `rmsfast.compare`.

    Examples
    --------
    >>> import xarray as xr
    >>> x = xr.DataArray([3.0, 4.0, 0.0, 0.0], dims="place")
    >>> int(compare(x, x + [0, 0, 0, 5], dim="place").max_error_index)
    3
    """
    options = {"nan_policy": _calls.policy("compare", skipna), "format": format}
    return _calls.table("compare", (x, x_hat), dim, where, options, rmsfast.Comparison.names())


def rms_windows(
    x: Labelled,
    /,
    window: int,
    *,
    dim: Hashable,
    hop: int | None = None,
    edge: str = "valid",
    skipna: bool | None = None,
    dtype: Any = None,
    format: Any = None,
) -> Labelled:
    """Root mean square of windows along a named dimension, as `rmsfast.rms_windows`.

    Parameters
    ----------
    x, skipna, dtype, format
        As for `rms`.
    dim : name
        The dimension along which windows lie.
    window, hop, edge
        As for `rmsfast.rms_windows`: numbers of values.

    Returns
    -------
    DataArray or Dataset, in the unit of `x`
        With name and attributes of `x`. The coordinates along `dim` are those of the value at
        which a window starts, or of that in the middle where windows are "centered"; there are
        none if the last window starts behind the end.

    Raises
    ------
    TypeError, ValueError
        As `rmsfast.rms_windows`, and for a name that is not among the dimensions.

    Examples
    --------
    >>> import xarray as xr
    >>> x = xr.DataArray([3.0, 4.0, 0.0, 0.0, 1.0, 1.0], coords={"time": range(6)})
    >>> rms_windows(x, 4, dim="time", hop=2).to_series().to_dict()
    {0: 2.5, 2: 0.7071067811865476}
    """
    options = {"edge": edge, "nan_policy": _calls.policy("rms_windows", skipna)}
    return _calls.windows(x, window, hop, dim, options | {"dtype": dtype, "format": format})
