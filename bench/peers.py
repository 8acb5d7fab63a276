"""The problems in other libraries, each at its best idiom: one table at the end.

A peer is made from the arrays of a problem, which go by name, and is a call without arguments:
what a library wants to hold, such as a tensor that shares the memory of an array, is made before
anything is timed. A library that is not installed is an absent peer, not a failure.
"""

import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from bench import numpy_idioms as np_
from rmsfast.problems import WINDOW, Array, Case, Problem, widen

Call = Callable[[], Any]
Peer = Callable[..., Call]


LEAST_PARALLEL = 1 << 18  # bytes, from which hand-made threads are faster


def peers_of(problem: Problem, case: Case) -> dict[str, Call]:
    """Peers that are installed, ready to be timed on the arrays of a case."""
    found = {}
    for name, peer in PEERS.get(problem.name, {}).items():
        try:
            found[name] = peer(**case.arrays)
        except ModuleNotFoundError:
            continue
    return found


def as_array(result: Any) -> Array:
    """Answer of a peer as a NumPy array, bfloat16 as codes."""
    if type(result).__module__ == "torch" and str(result.dtype) == "torch.bfloat16":
        import torch

        return result.view(torch.int16).numpy().view(np.uint16)
    array = np.asarray(result)
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def numpy(idiom: Callable[..., Array]) -> Peer:
    """Make a peer of a NumPy idiom."""
    return lambda **arrays: functools.partial(idiom, **arrays)


# torch ------------------------------------------------------------------------------------------


def tensor(array: Array) -> Any:
    """Torch tensor that shares the memory of an array; codes become bfloat16."""
    import torch

    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_rms(axis: int | None = -1) -> Peer:
    """Norm, which is accumulated in float32 where that is wider."""

    def make(x: Array) -> Call:
        import torch

        t = tensor(x)
        wide = torch.float32 if t.element_size() < 4 else t.dtype
        root = (x.size if axis is None else x.shape[axis]) ** 0.5
        return lambda: torch.linalg.vector_norm(t, dim=axis, dtype=wide).div_(root)

    return make


def torch_rmse(x: Array, x_hat: Array) -> Call:
    """Norm of the difference, in float32 at least."""
    import torch

    t, u = tensor(x), tensor(x_hat)
    root = x.shape[-1] ** 0.5
    wide = torch.float32 if t.element_size() < 4 else t.dtype
    return lambda: torch.linalg.vector_norm(t.to(wide) - u.to(wide), dim=-1).div_(root)


def torch_norm(x: Array, gain: Array | None = None, out: Array | None = None) -> Call:
    """Fused RMSNorm, in float32 at least."""
    import torch

    t, g = tensor(x), None if gain is None else tensor(gain)
    eps = 0.0 if gain is None else 1e-6
    shape = x.shape[-1:]
    if g is None or g.dtype == t.dtype:
        normed: Call = lambda: torch.nn.functional.rms_norm(t, shape, g, eps)  # noqa: E731
    else:
        normed = lambda: torch.nn.functional.rms_norm(t.to(g.dtype), shape, g, eps)  # noqa: E731
    if out is None:
        return normed
    target = tensor(out)
    return lambda: target.copy_(normed())


# jax --------------------------------------------------------------------------------------------


def jax_call(function: Callable[..., Any]) -> Peer:
    """Make a peer of a function of JAX arrays and the module jax.numpy, compiled."""

    def make(**arrays: Array) -> Call:
        import jax
        import jax.numpy as jnp
        import ml_dtypes

        jax.config.update("jax_enable_x64", True)
        given = {
            name: jnp.asarray(a.view(ml_dtypes.bfloat16) if a.dtype == np.uint16 else a)
            for name, a in arrays.items()
            if name != "out"  # arrays of JAX cannot be written to
        }
        compiled = jax.jit(functools.partial(function, jnp))
        return lambda: compiled(**given).block_until_ready()

    return make


def jax_wide(jnp: Any, x: Any) -> Any:
    """At least float32."""
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)


def jax_rms(axis: int | None = -1) -> Peer:
    """Fused by the compiler."""
    return jax_call(lambda jnp, x: jnp.sqrt(jnp.mean(jax_wide(jnp, x) ** 2, axis=axis)))


def jax_rmse(jnp: Any, x: Any, x_hat: Any) -> Any:
    """Fused by the compiler."""
    return jnp.sqrt(jnp.mean((jax_wide(jnp, x) - jax_wide(jnp, x_hat)) ** 2, axis=-1))


def jax_scaled(axis: int = -1) -> Peer:
    """Fused by the compiler."""

    def scaled(jnp: Any, x: Any, gain: Any = None) -> Any:
        wide = jax_wide(jnp, x)
        eps = 0 if gain is None else 1e-6
        wide = wide / jnp.sqrt(jnp.mean(wide**2, axis=axis, keepdims=True) + eps)
        if gain is not None:
            wide = wide * (gain if axis == -1 else gain[:, None])
        return wide.astype(x.dtype)

    return jax_call(scaled)


# The rest ---------------------------------------------------------------------------------------


def numkong(x: Array, x_hat: Array | None = None) -> Call:
    """Norms of rows, or distances of pairs, by hand-made threads that take blocks of rows."""
    import ml_dtypes
    import numkong as nk

    given = [a for a in (x, x_hat) if a is not None]
    views = [a.view(ml_dtypes.bfloat16) if a.dtype == np.uint16 else a for a in given]
    root = x.shape[-1] ** 0.5

    def size(*arrays: Any) -> Array:
        return np.asarray(nk.norm(*arrays, -1) if x_hat is None else nk.euclidean(*arrays))

    if x.nbytes < LEAST_PARALLEL:
        whole = [nk.Tensor(view) for view in views]
        return lambda: size(*whole) / root
    count = os.cpu_count() or 1
    pool = ThreadPoolExecutor(count)
    blocks = [[nk.Tensor(part) for part in np.array_split(view, count)] for view in views]
    return lambda: np.concatenate([*pool.map(size, *blocks)]) / root


def numkong_all(x: Array) -> Call:
    """One norm."""
    import numkong as nk

    t = nk.Tensor(x.ravel())
    root = x.size**0.5
    return lambda: nk.norm(t) / root


def numpy_rms(x: Array) -> Call:
    """One window a row."""
    import numpy_rms

    return lambda: numpy_rms.rms(x, x.shape[-1])[:, 0]


def bottleneck(axis: int) -> Peer:
    """Sum of squares, in the dtype of x."""

    def make(x: Array) -> Call:
        import bottleneck

        return lambda: np.sqrt(bottleneck.ss(x, axis) / x.shape[axis])

    return make


def bottleneck_omit(x: Array) -> Call:
    """One temporary."""
    import bottleneck

    return lambda: np.sqrt(bottleneck.nanmean(x * x, -1))


def numbagg_omit(x: Array) -> Call:
    """One temporary."""
    import numbagg

    return lambda: np.sqrt(numbagg.nanmean(x * x, axis=-1))


def numexpr(formula: str, axis: int = 1) -> Peer:
    """Root of a sum that numexpr forms, over the length."""

    def make(**arrays: Array) -> Call:
        import numexpr

        text = f"sum({formula}, axis={axis})"
        count = arrays["x"].shape[axis]
        return lambda: np.sqrt(numexpr.evaluate(text, local_dict=arrays) / count)

    return make


def numexpr_scaled(x: Array, out: Array, gain: Array | None = None) -> Call:
    """The product by numexpr, the sums by NumPy."""
    import numexpr

    formula = "x * r" if gain is None else "x * r * gain"
    eps = x.dtype.type(0 if gain is None else 1e-6)

    def call() -> Array:
        r = (1 / np.sqrt(np.vecdot(x, x) / x.shape[-1] + eps))[:, np.newaxis]
        return numexpr.evaluate(formula, local_dict={"x": x, "r": r, "gain": gain}, out=out)

    return call


def row_norms(x: Array) -> Call:
    """Scikit-learn's sums of squares."""
    from sklearn.utils.extmath import row_norms

    return lambda: np.sqrt(row_norms(x, squared=True) / x.shape[-1])


def sklearn_rmse(x: Array, x_hat: Array) -> Call:
    """Scikit-learn reduces axis 0."""
    from sklearn.metrics import root_mean_squared_error

    return lambda: root_mean_squared_error(x.T, x_hat.T, multioutput="raw_values")


def sklearn_scaled(x: Array, **_out: Array) -> Call:
    """Scikit-learn scales rows to length 1, into new memory; in place by NumPy to RMS 1."""
    from sklearn.preprocessing import normalize

    root = x.dtype.type(x.shape[-1] ** 0.5)

    def call() -> Array:
        scaled = normalize(x)
        scaled *= root
        return scaled

    return call


def librosa(hop: int) -> Peer:
    """Eight channels at a time, for the frames are copied; in float32."""

    def make(x: Array) -> Call:
        from librosa.feature import rms

        options = {"frame_length": min(WINDOW, len(x)), "hop_length": hop, "center": False}
        parts = [x.T[k : k + 8] for k in range(0, x.shape[1], 8)]
        return lambda: np.concatenate([rms(y=part, **options)[:, 0] for part in parts]).T

    return make


def xskillscore(x: Array, x_hat: Array) -> Call:
    """Labelled arrays."""
    import xarray
    import xskillscore

    a, b = (xarray.DataArray(v, dims=("row", "column")) for v in (x, x_hat))
    return lambda: xskillscore.rmse(a, b, dim="column").values


def windowed(hop: int) -> dict[str, Peer]:
    """Peers of windows of a recording."""
    reshaped = {"numpy reshape": numpy(np_.windows_as_rows)} if hop == WINDOW else {}
    return {
        "numpy mean": numpy(np_.mean_windows(hop)),
        "numpy einsum": numpy(np_.windows(hop)),
        **reshaped,
        "librosa": librosa(hop),
    }


# The table --------------------------------------------------------------------------------------

ROWS = {
    "numpy vecdot": numpy(np_.vecdot),
    "numpy einsum": numpy(np_.einsum),
    "numpy norm": numpy(np_.norm),
    "numpy mean": numpy(np_.mean),
    "torch": torch_rms(),
    "jax": jax_rms(),
    "NumKong": numkong,
    "bottleneck": bottleneck(-1),
    "numexpr": numexpr("x * x"),
    "scikit-learn": row_norms,
}
NARROW = {"torch": torch_rms(), "jax": jax_rms(), "NumKong": numkong}
ALL = {
    "numpy vdot": numpy(np_.vdot),
    "numpy norm": numpy(np_.norm_all),
    "torch": torch_rms(None),
    "jax": jax_rms(None),
    "NumKong": numkong_all,
}
PAIRS = {
    "numpy vecdot": numpy(np_.pairs),
    "numpy mean": numpy(np_.mean_pairs),
    "torch": torch_rmse,
    "jax": jax_call(jax_rmse),
    "NumKong": numkong,
    "numexpr": numexpr("(x - x_hat) ** 2"),
    "scikit-learn": sklearn_rmse,
    "xskillscore": xskillscore,
}
NARROW_PAIRS = {"torch": torch_rmse, "jax": jax_call(jax_rmse), "NumKong": numkong}
SCALED = {
    "numpy multiply": numpy(np_.scaled),
    "torch": torch_norm,
    "jax": jax_scaled(),
    "numexpr": numexpr_scaled,
}
NARROW_SCALED = {"torch": torch_norm, "jax": jax_scaled()}
SCALED_COLUMNS = {"numpy einsum": numpy(np_.scaled_columns), "jax": jax_scaled(0)}


def scaling_peers(function: str) -> dict[str, Mapping[str, Peer]]:
    """Peers of the problems of a function that reads x and writes as much."""
    half, codes = numpy(np_.half_scaled), numpy(np_.codes_scaled)
    in_place = {name: peer for name, peer in SCALED.items() if name != "jax"}
    return {
        f"{function} float32 rows": SCALED,
        f"{function} float64 rows": SCALED,
        f"{function} float16 rows": {"numpy in float32": half} | NARROW_SCALED,
        f"{function} bfloat16 rows": {"numpy in float32": codes} | NARROW_SCALED,
        f"{function} float32 in place": in_place,
        f"{function} float32 axis=0": SCALED_COLUMNS,
        f"{function} float32 without out": {
            name: peer for name, peer in SCALED.items() if name != "numexpr"
        },
    }


PEERS: dict[str, Mapping[str, Peer]] = {
    "rms float32 rows": ROWS | {"numpy-rms": numpy_rms},
    "rms float64 rows": ROWS,
    "rms float16 rows": {"numpy in float32": numpy(np_.half)} | NARROW,
    "rms bfloat16 rows": {"numpy in float32": numpy(np_.codes)} | NARROW,
    "rms int16 rows": {
        "numpy in int64": numpy(np_.integer),
        "jax": jax_rms(),
        "NumKong": numkong,
    },
    "rms float32 one long row": ALL,
    "rms float32 axis=None": ALL,
    "rms float32 axis=0": {
        "numpy einsum": numpy(np_.columns),
        "numpy mean": numpy(np_.mean_columns),
        "torch": torch_rms(0),
        "jax": jax_rms(0),
        "bottleneck": bottleneck(0),
        "numexpr": numexpr("x * x", axis=0),
    },
    "rms float32 transposed": {
        "numpy einsum": numpy(np_.einsum),
        "numpy vecdot": numpy(np_.vecdot),
        "torch": torch_rms(),
        "bottleneck": bottleneck(-1),
    },
    "rms float32 where": {
        "numpy product": numpy(np_.masked),
        "numpy mean": numpy(np_.mean_masked),
        "jax": jax_call(lambda jnp, x, where: jnp.sqrt(jnp.mean(x * x, axis=-1, where=where))),
    },
    "rms float32 weights": {
        "numpy einsum": numpy(np_.weighted),
        "numpy average": numpy(np_.average),
        "jax": jax_call(
            lambda jnp, x, weights: jnp.sqrt((weights * x * x).sum(-1) / weights.sum(-1))
        ),
    },
    "rms float32 omit": {
        "numpy vecdot": numpy(np_.omitting),
        "numpy nanmean": numpy(np_.nanmean),
        "jax": jax_call(lambda jnp, x: jnp.sqrt(jnp.nanmean(x * x, axis=-1))),
        "bottleneck": bottleneck_omit,
        "numbagg": numbagg_omit,
    },
    "rmse float32 rows": PAIRS,
    "rmse float64 rows": PAIRS,
    "rmse float16 rows": {"numpy in float32": numpy(np_.half_pairs)} | NARROW_PAIRS,
    "rmse bfloat16 rows": {"numpy in float32": numpy(np_.codes_pairs)} | NARROW_PAIRS,
    "describe float32 rows": {"numpy in turn": numpy(np_.described)},
    "describe bfloat16 rows": {"numpy in turn": numpy(lambda x: np_.described(widen(x)))},
    "compare float32 rows": {"numpy in turn": numpy(np_.compared)},
    "compare bfloat16 rows": {
        "numpy in turn": numpy(lambda x, x_hat: np_.compared(widen(x), widen(x_hat)))
    },
    "rms_windows int16 end to end": windowed(WINDOW),
    "rms_windows int16 hop of 1/8": windowed(WINDOW // 8),
    "apply_dose float32 rows": {"numpy add": numpy(np_.dosed)},
    "apply_dose bfloat16 rows": {"numpy add": numpy(np_.codes_dosed)},
    **scaling_peers("unit_rms"),
    **scaling_peers("rms_norm"),
}
for _name in ("unit_rms float32 rows", "unit_rms float64 rows"):
    PEERS[_name] = PEERS[_name] | {"scikit-learn": sklearn_scaled}
