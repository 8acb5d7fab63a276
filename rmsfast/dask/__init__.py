"""The functions of rmsfast on Dask arrays: lazy, in chunks of any shape, on any scheduler.

Arguments and results are those of the functions of the same name in `rmsfast`, without `out` and
`threads`: inside a task the loops run on the thread of the task. Arguments are checked at once;
data is looked at when the result is computed, and what is then refused (a NaN, a zero row) is told
by the chunk that holds it, with indices that count from its first row.
"""

from typing import Any

from rmsfast._extras import needed

needed("rmsfast.dask", "dask.array", "dask")

from rmsfast.dask import _graphs, _windows  # noqa: E402
from rmsfast.dask._tables import LazyTable  # noqa: E402

__all__ = [
    "LazyTable",
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

Axis = int | tuple[int, ...] | None


def rms(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    nan_policy: str = "propagate",
    dtype: Any = None,
    format: Any = None,
) -> Any:
    """Root mean square, as `rmsfast.rms`.

    Parameters
    ----------
    x : dask.array.Array of numbers
        Of known chunk sizes; what `rmsfast.rms` takes becomes one chunk.
    where, weights : dask.array.Array or array_like, broadcastable to `x`
        Of any chunks.
    axis, keepdims, nan_policy, dtype, format
        As for `rmsfast.rms`.

    Returns
    -------
    dask.array.Array, in the unit of `x`
        Shape and dtype as `rmsfast.rms` gives them.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmsfast.rms`: what shapes, dtypes and options show at once, the rest when computed.

    Notes
    -----
    Data stays in its chunks (and is cut finer where those of two arrays differ); each is read
    once. Rows that lie in one chunk are a call of `rmsfast.rms`. Of rows that are cut, a chunk
    hands on one partial of 64 bytes a row, or one for each block of 16384 coordinates where its
    ends lie on blocks; a tree joins them in the order of their places. In the second case the
    bits are those of `rmsfast.rms` on the whole array by construction (up to 2**20 blocks in the
    rows of a chunk together), else as often as sums agree that are kept to about 2**-104: in all
    of 25 000 rows cut at random.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array([[3.0, 4.0, 0.0, 0.0], [6.0, 8.0, 0.0, 0.0]], chunks=(1, 3))
    >>> rms(x).compute()
    array([2.5, 5. ])
    """
    given = {"x": x, "where": where, "weights": weights}
    options = {"nan_policy": nan_policy, "dtype": dtype, "format": format}
    return _graphs.roots(_graphs.Call("rms", given, options, axis, keepdims))


def rmse(
    x: Any,
    x_hat: Any,
    /,
    *,
    axis: Axis = -1,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    nan_policy: str = "propagate",
    dtype: Any = None,
    format: Any = None,
) -> Any:
    """Root mean square error, as `rmsfast.rmse`.

    Parameters
    ----------
    x, x_hat : dask.array.Array of numbers
        Of known chunk sizes, not necessarily the same; one may be what `rmsfast.rmse` takes.
    where, weights, axis, keepdims, nan_policy, dtype, format
        As for `rms`.

    Returns
    -------
    dask.array.Array, in the unit of `x`
        Shape and dtype as `rmsfast.rmse` gives them.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmsfast.rmse`, when `rms` does.

    Notes
    -----
    As for `rms`.

    Examples
    --------
    >>> import dask.array as da
    >>> rmse(da.from_array([3.0, 4.0, 0.0, 0.0], chunks=1), 0.0).compute()
    np.float64(2.5)
    """
    given = {"x": x, "x_hat": x_hat, "where": where, "weights": weights}
    options = {"nan_policy": nan_policy, "dtype": dtype, "format": format}
    return _graphs.roots(_graphs.Call("rmse", given, options, axis, keepdims))


def relative_rmse(
    x: Any,
    x_hat: Any,
    /,
    *,
    reference: Any,
    zero: str = "raise",
    axis: Axis = -1,
    keepdims: bool = False,
    where: Any = None,
    weights: Any = None,
    nan_policy: str = "propagate",
    dtype: Any = None,
    format: Any = None,
) -> Any:
    """Root mean square error over a named size, as `rmsfast.relative_rmse`.

    Parameters
    ----------
    x, x_hat, where, weights, axis, keepdims, nan_policy, dtype, format
        As for `rmse`.
    reference : str or array_like
        As for `rmsfast.relative_rmse`; an array may be one of Dask.
    zero : {"raise", "ieee", "nan"}
        As for `rmsfast.relative_rmse`.

    Returns
    -------
    dask.array.Array, a pure number, of the shape and dtype of `rmse`

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmsfast.relative_rmse`, when `rms` does.

    Notes
    -----
    As for `rms`; a partial takes 128 bytes, 160 for "mean", "range" and "max". Under "std" rows
    that are cut into chunks are read twice, first for their means.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array([3.0, 4.0, 0.0, 0.0], chunks=3)
    >>> relative_rmse(x, x + da.from_array([0, 0, 0, 5], chunks=3), reference="x").compute()
    np.float64(1.0)
    """
    given = {"x": x, "x_hat": x_hat, "where": where, "weights": weights}
    options = {"nan_policy": nan_policy, "dtype": dtype, "format": format}
    call = _graphs.Call("relative_rmse", given, options, axis, keepdims)
    return _graphs.ratios(call, reference, zero)


def unit_rms(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    zero: str = "raise",
    where: Any = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
) -> Any:
    """Scale vectors to unit RMS, as `rmsfast.unit_rms`.

    Parameters
    ----------
    x : dask.array.Array of numbers
        Of known chunk sizes; never modified.
    where : dask.array.Array or array_like of bool, broadcastable to `x`
    axis, zero, dtype, format, return_rms
        As for `rmsfast.unit_rms`.

    Returns
    -------
    dask.array.Array, a pure number
        Shape and chunks of `x`, dtype as `rmsfast.unit_rms` gives it.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        As `rmsfast.unit_rms`: what shapes, dtypes and options show at once, the rest when computed.

    Notes
    -----
    The bits are those of `rmsfast.unit_rms` on the whole array wherever those of `rms` are. Rows
    that are cut into chunks make their data be read, or computed, **twice**: what is kept in
    memory between the two are 64 bytes a row, not the data. Where computing `x` costs more than
    memory, call ``x.persist()`` before.

    Examples
    --------
    >>> import dask.array as da
    >>> unit_rms(da.from_array([3.0, 4.0, 0.0, 0.0], chunks=3)).compute()
    array([1.2, 1.6, 0. , 0. ])
    """
    options = {"zero": zero, "dtype": dtype, "format": format}
    return _graphs.scaled("unit_rms", x, where, axis, {}, options, return_rms)


def scale_to_rms(
    x: Any,
    /,
    target: Any,
    *,
    axis: Axis = -1,
    zero: str = "raise",
    where: Any = None,
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
) -> Any:
    """Scale vectors to a given RMS, as `rmsfast.scale_to_rms`.

    Parameters
    ----------
    x, axis, zero, where, dtype, format, return_rms
        As for `unit_rms`.
    target : array_like or dask.array.Array of real numbers
        As for `rmsfast.scale_to_rms`.

    Returns
    -------
    dask.array.Array, in the unit of `target`
        As `unit_rms`.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        As `rmsfast.scale_to_rms`, when `unit_rms` does.

    Notes
    -----
    As for `unit_rms`: rows that are cut into chunks are read **twice**.

    Examples
    --------
    >>> import dask.array as da
    >>> scale_to_rms(da.from_array([3.0, 4.0, 0.0, 0.0], chunks=3), 5.0).compute()
    array([6., 8., 0., 0.])
    """
    options = {"zero": zero, "dtype": dtype, "format": format}
    return _graphs.scaled("scale_to_rms", x, where, axis, {"target": target}, options, return_rms)


def rms_norm(
    x: Any,
    /,
    gain: Any = None,
    *,
    eps: float = 1e-6,
    axis: Axis = -1,
    gain_offset: float = 0.0,
    cast: str = "after_gain",
    eps_mode: str = "inside",
    dtype: Any = None,
    format: Any = None,
    return_rms: bool = False,
) -> Any:
    """RMSNorm, as `rmsfast.rms_norm`.

    Parameters
    ----------
    x, axis, dtype, format, return_rms
        As for `unit_rms`; real.
    gain : array_like or dask.array.Array of real numbers
        As for `rmsfast.rms_norm`.
    eps, gain_offset, cast, eps_mode
        As for `rmsfast.rms_norm`.

    Returns
    -------
    dask.array.Array
        Shape and chunks of `x`, dtype as `rmsfast.rms_norm` gives it.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError, ImportError
        As `rmsfast.rms_norm`, at once.

    Notes
    -----
    As for `unit_rms`: rows that are cut into chunks are read **twice**.

    Examples
    --------
    >>> import dask.array as da
    >>> rms_norm(da.from_array([3.0, 4.0, 0.0, 0.0], chunks=3), eps=0.0).compute()
    array([1.2, 1.6, 0. , 0. ])
    """
    options = {"eps": eps, "gain_offset": gain_offset, "cast": cast, "eps_mode": eps_mode}
    options |= {"dtype": dtype, "format": format}
    return _graphs.scaled("rms_norm", x, None, axis, {"gain": gain}, options, return_rms)


def describe(
    x: Any,
    /,
    *,
    axis: Axis = -1,
    where: Any = None,
    nan_policy: str = "propagate",
    format: Any = None,
) -> LazyTable:
    """Count, size, mean, spread, extremes and special values, as `rmsfast.describe`.

    Parameters
    ----------
    x : dask.array.Array of numbers
        Of known chunk sizes; complex numbers, and `where` beside them, in one chunk along `axis`.
    where : dask.array.Array or array_like of bool, broadcastable to `x`
    axis, nan_policy, format
        As for `rmsfast.describe`.

    Returns
    -------
    LazyTable
        The fields of `rmsfast.Description` as Dask arrays; its `compute` gives one.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmsfast.describe`, when `rms` does.

    Notes
    -----
    Each chunk is read once. Of rows that are cut into chunks a chunk hands on 128 bytes a row;
    where its ends lie on blocks of 16384 coordinates so much a block, and every bit is then that
    of `rmsfast.describe` on the whole array. Elsewhere roots, extremes, indices and counts have
    these bits as often as those of `rms` do, and means and deviations stay within their bounds.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array([[3.0, -4.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]], chunks=(1, 3))
    >>> found = describe(x)
    >>> found.rms.compute(), found.compute().peak_index
    (array([2.5, 1. ]), array([1, 0]))
    """
    options = {"nan_policy": nan_policy, "format": format}
    return _graphs.tables(_graphs.Call("describe", {"x": x, "where": where}, options, axis))


def compare(
    x: Any,
    x_hat: Any,
    /,
    *,
    axis: Axis = -1,
    where: Any = None,
    nan_policy: str = "propagate",
    format: Any = None,
) -> LazyTable:
    """Sizes, errors and likeness of pairs of vectors, as `rmsfast.compare`.

    Parameters
    ----------
    x, x_hat : dask.array.Array of numbers
        As for `rmse`; complex numbers, and what is beside them, in one chunk along `axis`.
    where, axis, nan_policy, format
        As for `describe`.

    Returns
    -------
    LazyTable
        The fields of `rmsfast.Comparison` as Dask arrays; its `compute` gives one.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmsfast.compare`, when `rms` does.

    Notes
    -----
    As for `describe`, with 168 bytes.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.from_array([3.0, 4.0, 0.0, 0.0], chunks=3)
    >>> compare(x, x + da.from_array([0, 0, 0, 5], chunks=3)).compute().max_error_index
    np.int64(3)
    """
    given = {"x": x, "x_hat": x_hat, "where": where}
    options = {"nan_policy": nan_policy, "format": format}
    return _graphs.tables(_graphs.Call("compare", given, options, axis))


def rms_windows(
    x: Any,
    /,
    window: int,
    *,
    hop: int | None = None,
    axis: int = -1,
    edge: str = "valid",
    nan_policy: str = "propagate",
    dtype: Any = None,
    format: Any = None,
) -> Any:
    """Root mean square of windows along an axis, as `rmsfast.rms_windows`.

    Parameters
    ----------
    x, axis, nan_policy, dtype, format
        As for `rms`.
    window, hop, edge
        As for `rmsfast.rms_windows`.

    Returns
    -------
    dask.array.Array, in the unit of `x`
        Shape and dtype as `rmsfast.rms_windows` gives them.

    Raises
    ------
    TypeError, ValueError, numpy.exceptions.AxisError
        As `rmsfast.rms_windows`, when `rms` does.

    Notes
    -----
    A task has the windows that start in a chunk, and the values of later chunks that these need:
    chunks much longer than `window` cost little more than their own values. Values are within
    the bound of `rmsfast.rms_windows`, and as tasks begin with whole blocks of windows their
    bits are those of one call, but for the rare tie that is rounded the other way.

    Examples
    --------
    >>> import dask.array as da
    >>> rms_windows(da.from_array([3.0, 4.0, 0.0, 0.0, 1.0, 1.0], chunks=2), 4, hop=2).compute()
    array([2.5       , 0.70710678])
    """
    return _windows.windows(x, window, hop, axis, edge, nan_policy, dtype, format)
