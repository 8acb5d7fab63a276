"""From dimensions with names to axes in places, and back."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import xarray as xr

import rmsfast
from rmsfast import _arguments

Dims = Hashable | Iterable[Hashable] | None
Labelled = Any  # a DataArray; or a Dataset, each variable of which is taken by itself


def reduced(
    function: str, pair: tuple[Any, ...], dim: Dims, keepdims: bool, around: dict[str, Any],
    options: dict[str, Any],
) -> Labelled:  # fmt: skip
    def one(*pair: Any) -> Any:
        call = Call(function, pair, dim, around, options)
        found = call.result([[]], keep_attrs=True)
        if keepdims:
            found = found.expand_dims(dict.fromkeys(call.core, 1)).transpose(*call.dims)
        return found.rename(call.name)

    return each(function, one, pair)


def scaled(
    function: str, x: Labelled, dim: Dims, around: dict[str, Any], options: dict[str, Any]
) -> Any:
    def one(x: Any) -> Any:
        call = Call(function, (x,), dim, around, options)
        outputs: list[list[Hashable]] = [call.core, []] if options["return_rms"] else [call.core]
        found = call.result(outputs, keep_attrs=True)
        if options["return_rms"]:
            return found[0].transpose(*call.dims).rename(call.name), found[1].rename(call.name)
        return found.transpose(*call.dims).rename(call.name)

    if options["return_rms"] and isinstance(x, xr.Dataset):
        return tuple(each(function, lambda v, k=k: one(v)[k], (x,)) for k in range(2))
    return each(function, one, (x,))


def table(
    function: str, pair: tuple[Any, ...], dim: Dims, where: Any, options: dict[str, Any],
    names: tuple[str, ...],
) -> xr.Dataset:  # fmt: skip
    call = Call(function, pair, dim, {"where": where}, options)
    call.finish = lambda table: tuple(getattr(table, name) for name in names)
    found = call.result([[]] * len(names), keep_attrs=False)
    fields = {name: field.rename(name) for name, field in zip(names, found, strict=True)}
    return xr.Dataset(fields, attrs=pair[0].attrs)


def windows(
    x: Labelled, window: Any, hop: Any, dim: Hashable, options: dict[str, Any]
) -> Labelled:  # fmt: skip
    def one(x: Any) -> Any:
        call = Call("rms_windows", (x,), dim, {}, options)
        if len(call.core) != 1:
            raise _arguments.fail(call.function, "dim", "name one dimension", repr(dim))
        (name,) = call.core
        axis = x.dims.index(name)
        found = call.module(x.data).rms_windows(x.data, window, hop=hop, axis=axis, **options)
        number = found.shape[axis]
        starts = x.isel({name: slice(None, None, window if hop is None else hop)})
        starts = starts.isel({name: slice(number)})
        if starts.sizes[name] < number:  # the last window starts behind the end
            starts = x.isel({name: 0}, drop=True)
        return xr.DataArray(found, starts.coords, x.dims, x.name, x.attrs)

    return each("rms_windows", one, (x,))


def each(function: str, one: Callable[..., Any], pair: tuple[Any, ...]) -> Any:
    """The result of a DataArray, or of each variable of a Dataset."""
    if not isinstance(pair[0], xr.Dataset):
        return one(*pair)
    x, *others = pair
    names = list(x.data_vars)
    for other in others:
        if isinstance(other, xr.Dataset) and set(other.data_vars) != set(names):
            actual = f"{sorted(map(str, other.data_vars))} and {sorted(map(str, names))}"
            raise _arguments.fail(function, "x_hat", "have the variables of x", actual)
    found = {
        name: one(x[name], *(o[name] if isinstance(o, xr.Dataset) else o for o in others))
        for name in names
    }
    return xr.Dataset(found, attrs=x.attrs)


class Call:
    """A call on arrays of which the dimensions have names."""

    def __init__(
        self, function: str, pair: tuple[Any, ...], dim: Dims, around: dict[str, Any],
        options: dict[str, Any],
    ) -> None:  # fmt: skip
        self.function, self.options = function, options
        self.finish: Callable[[Any], Any] = lambda result: result
        if not isinstance(pair[0], xr.DataArray):
            got = type(pair[0]).__name__
            raise TypeError(f"{function}: x must be a DataArray (or a Dataset), got {got}")
        labelled = [a for a in pair if isinstance(a, xr.DataArray)]
        sizes = {d: n for a in labelled for d, n in zip(a.dims, a.shape, strict=True)}
        self.dims = tuple(sizes)
        self.core = core_of(function, dim, self.dims)
        self.lengths = tuple(sizes[d] for d in self.core)
        self.name = pair[0].name if len({a.name for a in labelled}) == 1 else None
        given = dict(zip(("x", "x_hat"), pair, strict=False))
        given |= {name: a for name, a in around.items() if a is not None}
        self.given, self.literal = {}, {}
        for name, a in given.items():
            if name in ("where", "weights") and not isinstance(a, xr.DataArray):
                a = xr.DataArray(np.broadcast_to(a, pair[0].shape), dims=pair[0].dims)
            if not isinstance(a, xr.DataArray):
                self.literal[name] = a
                continue
            beside = [d for d in self.dims if d not in self.core]
            wanted = {"target": beside, "reference": beside, "gain": self.core}
            allowed = wanted.get(name, list(self.dims))
            if not set(a.dims) <= set(allowed) or (name == "gain" and len(a.dims) < len(allowed)):
                requirement = f"have dimensions among {tuple(allowed)}"
                raise _arguments.fail(function, name, requirement, a.dims)
            self.given[name] = a

    def result(self, outputs: list[list[Hashable]], keep_attrs: bool) -> Any:
        """What the function gives for arrays with the reduced dimensions last, labelled again."""
        return xr.apply_ufunc(
            self.on_arrays,
            *self.given.values(),
            input_core_dims=[[d for d in self.core if d in a.dims] for a in self.given.values()],
            output_core_dims=outputs,
            join="exact",
            dask="allowed",
            keep_attrs="override" if keep_attrs else False,
        )

    def on_arrays(self, *arrays: Any) -> Any:
        module = self.module(*arrays)
        given = dict(self.literal)
        for (name, labelled), array in zip(self.given.items(), arrays, strict=True):
            given[name] = (
                array
                if name in ("target", "reference", "gain")
                else self.placed(name, labelled, array)
            )
        first = [given.pop(name) for name in ("x", "x_hat", "target", "gain") if name in given]
        axis = tuple(range(-len(self.core), 0))
        return self.finish(
            getattr(module, self.function)(*first, axis=axis, **given, **self.options)
        )

    def module(self, *arrays: Any) -> Any:
        """Where the function is that takes such arrays."""
        if any(hasattr(a, "dask") for a in arrays):
            from rmsfast import dask

            return dask
        return rmsfast

    def placed(self, name: str, labelled: xr.DataArray, array: Any) -> Any:
        """An array with all reduced dimensions; those of a pair must have their length."""
        own = [d in labelled.dims for d in self.core]
        beside = array.ndim - sum(own)
        places = (slice(None),) * beside + tuple(slice(None) if has else None for has in own)
        array = array[places]
        if name in ("x", "x_hat") and not all(own):
            array = np.broadcast_to(array, array.shape[:beside] + self.lengths)
        return array


def core_of(function: str, dim: Dims, dims: tuple[Hashable, ...]) -> list[Hashable]:
    """The reduced dimensions, in the order that they have in the array."""
    if dim is None or dim is ...:
        return list(dims)
    names = [dim] if isinstance(dim, str) or not isinstance(dim, Iterable) else list(dim)
    if dim in dims:  # a tuple may be a name itself
        names = [dim]
    for name in names:
        if name not in dims:
            raise _arguments.fail(function, "dim", f"be among {dims}", repr(name))
    if len(set(names)) < len(names):
        raise _arguments.fail(function, "dim", "name each dimension once", names)
    return [d for d in dims if d in names]


def policy(function: str, skipna: bool | None) -> str:
    if skipna not in (None, True, False):
        raise TypeError(f"{function}: skipna must be None, True or False, got {skipna!r}")
    return "omit" if skipna else "propagate"
