"""Edits in doses of the RMS as such: states, what is asked of them, what is stored."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmsfast.reference._formats import FORMATS, encode
from rmsfast.reference._numbers import Array
from rmsfast.reference.rounding import make_odd, rounded, spacing, words

MODES = ("nearest_even", "toward_zero", "stochastic")
EDIT_FORMATS = ("float64", "float32", *FORMATS)
OWN, EDIT, SUM = range(3)  # the random word that rounds a value, an edit of it, and their sum


class Way(NamedTuple):
    """How edits are made and rounded: numbers of options, in the order of the public ones."""

    mode: int
    saturate: int
    seed: int
    add_first: int
    edit_format: int
    first_row: int


@np.errstate(all="ignore")
def edit(
    h: Array, u: Array, alpha: Array, scale: Array | None, unit: Array, keep: Array, storage: str,
    way: Way, cast: bool,
) -> tuple[Array, ...]:  # fmt: skip
    """Clean, requested, rounded and edited rows in float64; masks of what overflows, is edited.

    h, u: rows and their directions; alpha, scale (None: RMS of the clean row), unit (what u is
    divided by): of each row; keep: mask of what is edited; cast: whether h is rounded first.
    """
    mode = MODES[way.mode]
    random: list[Array | None] = [None] * 3
    if mode == "stochastic":
        start = way.first_row * h.shape[-1]
        random = [w.reshape(h.shape) for w in words(way.seed % 2**64, start, h.size)]

    def stored(v: Array, word: int) -> tuple[Array, Array]:
        if storage == "float64":
            return v, np.zeros(v.shape, bool)
        return rounded(v, storage, mode, bool(way.saturate), random[word])

    c, lost = stored(h, OWN) if cast else (h, np.zeros(h.shape, bool))
    if scale is None:
        scale = np.sqrt((np.where(keep, c, 0.0) ** 2).sum(axis=-1) / keep.sum(axis=-1))
    some = ((alpha != 0) & (scale != 0))[:, np.newaxis]
    q = np.where(some, u * (alpha * scale / unit)[:, np.newaxis], 0.0)
    name = EDIT_FORMATS[way.edit_format]
    e = q if name == "float64" else rounded(q, name, MODES[0], False, None)[0]
    r, more = stored(e, EDIT)
    part = e if way.add_first else r
    total = c + part
    low = total - c
    low = (c - (total - low)) + (part - low)
    a, most = stored(make_odd(total, low), SUM)
    edited = some & keep
    lost |= edited & (most | (more & (way.add_first == 0)))
    return c, q, r, np.where(edited, a, c), lost, edited


@np.errstate(all="ignore")
def fields(
    c: Array, q: Array, r: Array, a: Array, lost: Array, u: Array, keep: Array, alpha: Array,
    scale: Array | None, rms_u: Array, unit: Array,
) -> dict[str, Array]:  # fmt: skip
    """The fields of a report; alpha, scale (None: RMS of the clean row), rms_u, unit: of each row.

    rms_u: RMS of the direction as it was given; unit: what it is divided by.
    """
    count = keep.sum(axis=-1)
    c, q, r, a, u = (np.where(keep, v, 0.0) for v in (c, q, r, a, u))

    def mean(v: Array) -> Array:
        return np.asarray(v.sum(axis=-1) / count)

    def root(v: Array) -> Array:
        return np.asarray(np.sqrt(mean(v * v)))

    d, clean = a - c, root(c)
    size = (clean if scale is None else scale) * (rms_u / unit)  # RMS of an edit of alpha 1
    requested, realised, error = np.abs(alpha) * size, root(d), np.abs(d - q)
    along = mean(d * u) / rms_u
    off = d - (along / rms_u)[:, np.newaxis] * u
    length = np.sqrt((c * c).sum(axis=-1))
    forward = (d * c).sum(axis=-1) / length
    sideways = np.sqrt(np.maximum((d * d).sum(axis=-1) - forward**2, 0.0))
    angle = np.degrees(np.arctan2(sideways, length + forward))
    peak, worst = (np.where(keep & (v == v), np.abs(v), -1.0) for v in (c, error))
    largest, most = peak.max(axis=-1), worst.max(axis=-1)  # below 0 where there is no number
    return {
        "rms_clean": clean,
        "rms_after": root(a),
        "top_index": np.where(largest < 0, -1, peak.argmax(axis=-1)),
        "top_energy_share": largest**2 / (c * c).sum(axis=-1),
        "alpha_requested": alpha + np.zeros(count.shape),
        "rms_requested": requested,
        "rms_rounded_request": root(r),
        "relative_rmse_rounded": root(r - q) / requested,
        "rms_realised": realised,
        "alpha_size": realised / size,
        "alpha_projected": along / size,
        "rms_off_direction": root(off),
        "relative_rmse_realised": root(d - q) / requested,
        "cosine": np.clip(np.sign(alpha) * along / realised, -1.0, 1.0),
        "frac_unchanged": mean((a == c) & (q != 0)),
        "frac_wrong_sign": mean(d * q < 0),
        "angle_deg": np.where((a == 0).all(axis=-1), np.nan, angle),
        "max_abs_error": np.where(most < 0, np.nan, most),
        "max_error_index": np.where(most < 0, -1, worst.argmax(axis=-1)),
        "n_overflow": (lost & keep).sum(axis=-1),
        "n_nonfinite": (~np.isfinite(a) & keep).sum(axis=-1),
    }


def codes(values: Array, storage: str) -> Array:
    """Values of a storage format as it stores them."""
    return encode(values, storage) if storage in FORMATS else values.astype(storage)


@np.errstate(all="ignore")
def floors(h: Array, storage: str, tolerance: float) -> Array:
    """The dose of each row whose edit is expected to be realised within a tolerance.

    Of an edit of deviation s the mean square of what is lost, over s**2, is to be tolerance**2, of
    which rounding the edit itself takes its part (see `rmsfast.dose_floor`).
    """
    allowed = tolerance**2 - (0.29 * float(spacing(np.array(1.0), storage))) ** 2
    c, _ = rounded(h, storage, MODES[0], False, None)
    found = np.full(len(c), np.nan)
    for k, row in enumerate(c):
        size = np.sqrt(np.mean(row * row))
        if not 0 < size < np.inf:
            continue
        steps, counts = np.unique(spacing(row, storage), return_counts=True)
        shares = counts / row.size
        low, high = 0.0, np.inf
        if allowed > 0:
            high = np.sqrt((shares * steps**2).sum() / 12 / allowed) / size
        for _ in range(50 if allowed > 0 else 0):
            middle = 0.5 * (low + high)
            s = middle * size
            lost = (shares * (steps / s) ** 2 * lost_square(s / steps)).sum()
            low, high = (middle, high) if lost > allowed else (low, middle)
        found[k] = high
    return found


def lost_square(t: Array) -> Array:
    """Mean square of what rounding to integers does to normal numbers of deviation t."""
    k = np.arange(1, 40)
    waves = (-1.0) ** k / (np.pi * k) ** 2 * np.exp(-2 * (np.pi * k * t[..., np.newaxis]) ** 2)
    return np.where(t < 0.06, t * t, 1 / 12 + waves.sum(axis=-1))
