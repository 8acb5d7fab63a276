"""Each problem in NumPy, in the ways that people write it and the fastest that are known.

The arrays go by the names of the parameters of the problem; scalings write to `out` if given.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from rmsfast.problems import ALPHA, WINDOW, Array, widen

ROOM = 1 << 29  # bytes of a temporary


def vecdot(x: Array) -> Array:
    """Without a temporary."""
    return np.sqrt(np.vecdot(x, x) / x.shape[-1])


def einsum(x: Array) -> Array:
    """Without a temporary; the axes are taken in memory order."""
    return np.sqrt(np.einsum("ij,ij->i", x, x) / x.shape[-1])


def norm(x: Array) -> Array:
    """One temporary."""
    return np.linalg.norm(x, axis=-1) / np.sqrt(x.dtype.type(x.shape[-1]))


def mean(x: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.mean(x * x, axis=-1))


def vdot(x: Array) -> Any:
    """One dot product of all."""
    return np.sqrt(np.vdot(x, x) / x.size)


def norm_all(x: Array) -> Any:
    """Another dot product."""
    return np.linalg.norm(x) / np.sqrt(x.size)


def half(x: Array) -> Array:
    """Squares in float16 would overflow."""
    return vecdot(x.astype(np.float32))


def codes(x: Array) -> Array:
    """Rows of bfloat16 codes."""
    return vecdot(widen(x))


def integer(x: Array) -> Array:
    """Exact sums in int64."""
    return np.sqrt(np.einsum("ij,ij->i", x, x, dtype=np.int64) / x.shape[-1])


def sliding(hop: int, x: Array) -> Array:
    """Windows along axis 0, as a view."""
    return sliding_window_view(x, min(WINDOW, len(x)), axis=0)[::hop]


def mean_windows(hop: int) -> Callable[[Array], Array]:
    """As most people write it: squares of integers would wrap. In parts beyond some GiB."""

    def call(x: Array) -> Array:
        view = sliding(hop, x)
        step = max(1, ROOM // (8 * view[:1].size))
        parts = (view[k : k + step] for k in range(0, len(view), step))
        means = [np.mean(part.astype(np.float64) ** 2, axis=-1) for part in parts]
        return np.sqrt(np.concatenate(means))

    return call


def windows(hop: int) -> Callable[[Array], Array]:
    """Exact sums without a temporary."""

    def call(x: Array) -> Array:
        view = sliding(hop, x)
        return np.sqrt(np.einsum("ijk,ijk->ij", view, view, dtype=np.int64) / view.shape[-1])

    return call


def windows_as_rows(x: Array) -> Array:
    """Faster still, of whole windows that do not overlap."""
    rows = x.reshape(-1, min(WINDOW, len(x)), x.shape[1])
    return np.sqrt(np.einsum("ijk,ijk->ik", rows, rows, dtype=np.int64) / rows.shape[1])


def columns(x: Array) -> Array:
    """Faster than vecdot."""
    return np.sqrt(np.einsum("ij,ij->j", x, x) / x.shape[0])


def mean_columns(x: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.mean(x * x, axis=0))


def pairs(x: Array, x_hat: Array) -> Array:
    """One temporary."""
    return vecdot(x - x_hat)


def mean_pairs(x: Array, x_hat: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.mean((x - x_hat) ** 2, axis=-1))


def half_pairs(x: Array, x_hat: Array) -> Array:
    """Differences in float32: float16 would round them."""
    return vecdot(np.subtract(x, x_hat, dtype=np.float32))


def codes_pairs(x: Array, x_hat: Array) -> Array:
    """Pairs of rows of bfloat16 codes."""
    return pairs(widen(x), widen(x_hat))


def masked(x: Array, where: Array) -> Array:
    """Three times as fast as mean(x * x, where=where), and wrong where NaN is masked."""
    kept = x * where
    return np.sqrt(np.vecdot(kept, kept) / np.count_nonzero(where, axis=-1))


def mean_masked(x: Array, where: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.mean(x * x, axis=-1, where=where))


def weighted(x: Array, weights: Array) -> Array:
    """Without a temporary."""
    return np.sqrt(np.einsum("ij,ij,ij->i", weights, x, x) / weights.sum(axis=-1))


def average(x: Array, weights: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.average(x * x, axis=-1, weights=weights))


def omitting(x: Array) -> Array:
    """Faster than nanmean."""
    present = x == x
    kept = np.where(present, x, np.float32(0))
    return np.sqrt(np.vecdot(kept, kept) / np.count_nonzero(present, axis=-1))


def nanmean(x: Array) -> Array:
    """As most people write it."""
    return np.sqrt(np.nanmean(x * x, axis=-1))


def described(x: Array) -> Array:
    """RMS, mean, standard deviation, extremes and the place of the largest."""
    rms, centre = vecdot(x), x.mean(axis=-1)
    np.sqrt(rms * rms - centre * centre), x.min(axis=-1), x.max(axis=-1)
    np.abs(x).argmax(axis=-1), x.shape[-1] - np.count_nonzero(x, axis=-1)
    return rms


def compared(x: Array, x_hat: Array) -> Array:
    """RMSE, sizes, cosine, bias, the largest error and its place, equals."""
    error = x_hat - x
    rmse, rms_x, rms_x_hat = vecdot(error), vecdot(x), vecdot(x_hat)
    np.vecdot(x, x_hat) / (rms_x * rms_x_hat * x.shape[-1]), error.mean(axis=-1)
    np.abs(error).argmax(axis=-1), np.count_nonzero(error == 0, axis=-1)
    return rmse


def dosed(h: Array, direction: Array, out: Array) -> Array:
    """One outer product, and one sum."""
    unit = direction / vecdot(direction)
    np.multiply(ALPHA * vecdot(h)[:, np.newaxis], unit, out=out)
    return np.add(out, h, out=out)


def codes_dosed(h: Array, direction: Array, out: Array) -> Array:
    """Rows of bfloat16 codes, rounded to nearest even."""
    wide = widen(h)
    return rounded(dosed(wide, direction, np.empty_like(wide)), out)


def scaled(x: Array, gain: Array | None = None, out: Array | None = None) -> Array:
    """One multiplication by a reciprocal, faster than a division, and one by the gain."""
    eps = 0 if gain is None else 1e-6
    reciprocal = 1 / np.sqrt(np.vecdot(x, x) / x.shape[-1] + x.dtype.type(eps))
    out = np.multiply(x, reciprocal[:, np.newaxis], out=out)
    return out if gain is None else np.multiply(out, gain, out=out)


def half_scaled(x: Array, out: Array, gain: Array | None = None) -> Array:
    """One temporary in float32."""
    wide = x.astype(np.float32)
    out[...] = scaled(wide, gain, wide)
    return out


def codes_scaled(x: Array, out: Array, gain: Array | None = None) -> Array:
    """Rows of bfloat16 codes, rounded to nearest even."""
    wide = widen(x)
    return rounded(scaled(wide, gain, wide), out)


def rounded(wide: Array, out: Array) -> Array:
    """Float32 values rounded to bfloat16 codes, nearest even; the values are lost."""
    bits = wide.view(np.uint32)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return np.right_shift(bits, 16, out=out, casting="unsafe")


def scaled_columns(x: Array, out: Array, gain: Array | None = None) -> Array:
    """Along axis 0."""
    eps = 0 if gain is None else 1e-6
    reciprocal = 1 / np.sqrt(np.einsum("ij,ij->j", x, x) / x.shape[0] + x.dtype.type(eps))
    np.multiply(x, reciprocal, out=out)
    return out if gain is None else np.multiply(out, gain[:, np.newaxis], out=out)
