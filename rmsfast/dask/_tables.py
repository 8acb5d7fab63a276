"""Results with one lazy value a row in every field."""

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
from dask.base import DaskMethodsMixin

WHOLE = {"count", "peak_index", "n_nan", "n_inf", "n_zero", "max_error_index", "n_equal"}
ROOTS = ("rms", "rmse", "rms_x", "rms_x_hat")
MEANS = ("mean", "bias")


class LazyTable(DaskMethodsMixin):  # type: ignore[misc]
    """A Description or Comparison that is yet to be computed.

    It has the fields of that class as Dask arrays. What computes, persists or visualises Dask
    arrays does so with it as a whole, and each chunk is then read once for all fields.

    Attributes
    ----------
    records : dask.array.Array
        One structured value a row: the fields, and `roots`, which are not yet rounded.

    Examples
    --------
    >>> import dask.array as da
    >>> from rmsfast.dask import describe
    >>> found = describe(da.from_array([3.0, -4.0, 0.0, 0.0], chunks=3))
    >>> found.peak.compute(), found.compute().peak_index
    (np.float64(4.0), np.int64(1))
    """

    __dask_optimize__ = staticmethod(da.Array.__dask_optimize__)
    __dask_scheduler__ = staticmethod(da.Array.__dask_scheduler__)

    def __init__(self, kind: Any, records: Any, length: int) -> None:
        self.kind, self.records, self.length = kind, records, length

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.kind.names():
            raise AttributeError(name)
        return self.records[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.kind.names()]

    def __repr__(self) -> str:
        rows = "x".join(map(str, self.records.shape)) or "1"
        return f"<lazy {self.kind.__name__}: {rows} rows of {self.length}>"

    def __dask_graph__(self) -> Any:
        return self.records.__dask_graph__()

    def __dask_keys__(self) -> Any:
        return self.records.__dask_keys__()

    def __dask_layers__(self) -> Any:
        return self.records.__dask_layers__()

    def __dask_tokenize__(self) -> Any:
        return self.kind, self.records, self.length

    def __dask_postcompute__(self) -> Any:
        finish, args = self.records.__dask_postcompute__()
        return _computed, (finish, args, self.kind, self.length)

    def __dask_postpersist__(self) -> Any:
        rebuild, args = self.records.__dask_postpersist__()
        return _rebuilt, (rebuild, args, self.kind, self.length)


def record_dtype(kind: Any, dtypes: tuple[np.dtype, ...], is_complex: bool) -> np.dtype:
    """Of the records of a table; dtypes: of its roots."""
    of_roots = dict(zip(ROOTS[:1] if len(dtypes) == 1 else ROOTS[1:], dtypes, strict=True))
    of_roots["relative_rmse"] = dtypes[0]
    if is_complex:
        of_roots[MEANS[len(dtypes) > 1]] = np.dtype(np.complex128)
    fields: list[Any] = [
        (name, np.int64 if name in WHOLE else of_roots.get(name, np.float64))
        for name in kind.names()
    ]
    return np.dtype([*fields, ("roots", np.float64, (len(dtypes),))])


def _computed(results: Any, finish: Callable[..., Any], args: Any, kind: Any, length: int) -> Any:
    records = np.asarray(finish(results, *args))
    fields = {name: np.ascontiguousarray(records[name]) for name in kind.names()}
    fields = {name: a.reshape(records.shape)[()] for name, a in fields.items()}
    roots = np.ascontiguousarray(np.moveaxis(records["roots"], -1, 0))
    return kind(_roots=roots, _length=length, **fields)


def _rebuilt(
    graph: Any, rebuild: Callable[..., Any], args: Any, kind: Any, length: int, **options: Any
) -> LazyTable:
    return LazyTable(kind, rebuild(graph, *args, **options), length)
