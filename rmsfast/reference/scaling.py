"""Vectors scaled by their root mean square."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from rmsfast.reference._formats import FORMATS, decode, round_to_storage
from rmsfast.reference._numbers import Array, Scaled, components_of, mean_of, root_mean_square
from rmsfast.reference._problem import (
    Axis,
    Problem,
    check_choice,
    precision_of,
    prepare,
    real_values,
)


@np.errstate(all="ignore")
def unit_rms(
    x: ArrayLike, /, *, axis: Axis = -1, zero: str = "raise", where: ArrayLike | None = None,
    out: Array | None = None, dtype: DTypeLike | None = None, format: str | None = None,
    return_rms: bool = False, threads: int | None = None,
) -> Any:  # fmt: skip
    """Vectors of RMS 1, x / RMS(x).

    >>> unit_rms([3.0, 4.0, 0.0, 0.0])
    array([1.2, 1.6, 0. , 0. ])
    """
    options = (axis, dtype, out, format, threads, where)
    return _scale("unit_rms", x, 1.0, zero, return_rms, options)


@np.errstate(all="ignore")
def scale_to_rms(
    x: ArrayLike, /, target: ArrayLike, *, axis: Axis = -1, zero: str = "raise",
    where: ArrayLike | None = None, out: Array | None = None, dtype: DTypeLike | None = None,
    format: str | None = None, return_rms: bool = False, threads: int | None = None,
) -> Any:  # fmt: skip
    """Vectors of RMS |target|, target * x / RMS(x).

    >>> scale_to_rms([3.0, 4.0, 0.0, 0.0], 5.0)
    array([6., 8., 0., 0.])
    """
    options = (axis, dtype, out, format, threads, where)
    return _scale("scale_to_rms", x, target, zero, return_rms, options)


def _scale(
    function: str, x: ArrayLike, target: ArrayLike, zero: str, return_rms: bool, options: Any
) -> Any:
    check_choice(function, "zero", zero, ("raise", "zero", "nan"))
    problem = prepare(function, {"x": x}, *options)
    layout, (data,) = problem.layout, problem.inputs
    targets = real_values(function, "target", target, layout.lengths(layout.kept))
    wanted = Scaled.of(targets.astype(np.float64)).column()
    size = root_mean_square(components_of(problem.rows(0)), problem.weights)
    zeros = problem.zeros(size, zero, "x must have no zero row")[..., None]
    parts = [part * wanted / size.column() for part in components_of(layout.rows(data.values))]
    fill = np.nan if zero == "nan" else 0.0
    result = problem.store([layout.restore(np.where(zeros, fill, p.values())) for p in parts])
    return (result, _rounded_size(problem, size)) if return_rms else result


def _rounded_size(problem: Problem, size: Scaled) -> Any:
    return round_to_storage(size.values(), precision_of(problem.inputs)[0])[()]


@np.errstate(all="ignore")
def rms_norm(
    x: ArrayLike, /, gain: ArrayLike | None = None, *, eps: float = 1e-6, axis: Axis = -1,
    gain_offset: float = 0.0, cast: str = "after_gain", eps_mode: str = "inside",
    out: Array | None = None, dtype: DTypeLike | None = None, format: str | None = None,
    return_rms: bool = False, threads: int | None = None,
) -> Any:  # fmt: skip
    """RMSNorm, (gain + gain_offset) * x / sqrt(mean(x^2) + eps).

    With `eps_mode` "outside" the divisor is RMS(x) + eps, with "max" max(RMS(x), eps). `cast`
    "before_gain" rounds to the result dtype before the gain as well as after it.

    >>> rms_norm([3.0, 4.0, 0.0, 0.0], 10.0, eps=0.0)
    array([12., 16.,  0.,  0.])
    """
    function = "rms_norm"
    check_choice(function, "cast", cast, ("after_gain", "before_gain"))
    check_choice(function, "eps_mode", eps_mode, ("inside", "outside", "max"))
    if not (isinstance(eps, Real) and 0 <= eps < math.inf):
        raise ValueError(f"{function}: eps must be a finite number >= 0, got {eps!r}")
    if not (isinstance(gain_offset, Real) and math.isfinite(gain_offset)):
        raise ValueError(f"{function}: gain_offset must be a finite number, got {gain_offset!r}")
    if gain is None and gain_offset != 0:
        raise ValueError(f"{function}: gain_offset must be 0 without a gain, got {gain_offset!r}")
    problem = prepare(function, {"x": x}, axis, dtype, out, format, threads)
    format, dtype = problem.storage
    if dtype.kind == "c":
        raise TypeError(f"{function}: x must be real, got dtype {dtype}")
    layout, least = problem.layout, Scaled.of(float(eps))
    (values,) = components_of(problem.rows(0))
    mean_square = mean_of(values * values, problem.weights)
    size = mean_square.root()
    divisor = {
        "inside": (mean_square + least).root(),
        "outside": size + least,
        "max": size.combine(np.maximum, least),
    }[eps_mode]
    result = values / divisor.column()
    if gain is not None:
        if cast == "before_gain":
            rounded = round_to_storage(result.values(), format)
            result = Scaled.of(decode(rounded, format) if format in FORMATS else rounded)
        gains = real_values(function, "gain", gain, layout.lengths(layout.reduced)).reshape(-1)
        factors = Scaled.of(gains.astype(np.float64)) + Scaled.of(float(gain_offset))
        result = result * factors
    scaled = problem.store([layout.restore(result.values())])
    return (scaled, _rounded_size(problem, size)) if return_rms else scaled
