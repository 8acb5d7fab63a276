"""Relative errors: an error and the size that it is divided by, from the same walk."""

import math
from typing import Any

import numpy as np

from rmsfast import _launch, _layout, _sums
from rmsfast._inputs import Inputs

# What each reference divides by; the first two are roots of sums of squares themselves.
REFERENCES = {
    "x": "SQUARES",
    "x_hat": "SQUARES",
    "mean": "MEAN",
    "range": "RANGE",
    "std": "DEVIATION",
    "max": "MAX",
}


def ratios(
    inputs: Inputs, reference: Any, numbers: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """RMSE / reference of each row, and flags (4: the reference is 0)."""
    kernels = _launch.kernel_module("_kernels")
    rows = math.prod(inputs.rows_shape)
    found, flags = np.empty(rows), np.zeros(rows, np.uint8)
    if rows == 0:
        return found.reshape(inputs.rows_shape), flags.reshape(inputs.rows_shape)
    omit = True if inputs.nan_policy != "propagate" else None
    exact = _sums.exact(inputs.kinds, inputs.dtype, inputs.weights is not None)
    operands = inputs.operands()
    errors = _layout.walk(inputs.shape, inputs.axes, operands)
    plan = errors.plan
    walks = [errors]
    hows: list[_sums.How] = [(omit, exact, None)]
    kind = getattr(kernels, REFERENCES[reference] if numbers is None else "NUMBER")
    spare = np.zeros((rows, 2))  # a number of the row and its exponent
    if numbers is not None:
        spare[:, 0] = _layout.to_walk(numbers, plan)
    if numbers is None:
        x, y = operands[:2] if reference != "x_hat" else operands[1::-1]
        own = [x, None, y if omit else None, *operands[3:]]
        extent = (omit, True, True)
        if reference == "std":
            centre, lost = _centres(inputs, own, extent, plan)
            own[1] = (centre, "float64")
            spare = lost
        own_walk = _layout.walk(inputs.shape, inputs.axes, own, plan.order)
        walks.append(own_walk)
        own_exact = exact if reference != "std" else True
        hows.append(
            (omit, own_exact, None) if kind in (kernels.SQUARES, kernels.DEVIATION) else extent
        )
    for piece in _sums.pieces(walks):
        part = slice(piece.first_row, piece.first_row + piece.rows)
        sums = _sums.partials(walks, hows, piece, inputs.threads)
        args = (sums[0], sums[-1], kind, spare[part], found[part], flags[part], 0, piece.rows)
        _launch.call(kernels.ratios, args)
    return _layout.in_order(found, plan), _layout.in_order(flags, plan)


def _centres(
    inputs: Inputs, operands: list[_layout.Operand], how: _sums.How, plan: _layout.Plan
) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each row, broadcast to the shape of x, and its rounding errors."""
    walk = _layout.walk(inputs.shape, inputs.axes, operands, plan.order)
    means, errors = np.empty(plan.rows), np.empty((plan.rows, 2))
    for piece in _sums.pieces([walk]):
        part = slice(piece.first_row, piece.first_row + piece.rows)
        found = _sums.partials([walk], [how], piece, inputs.threads)[0]
        _launch.call(_launch.kernel("means"), (found, means[part], errors[part], 0, piece.rows))
    lengths = [1 if k in inputs.axes else n for k, n in enumerate(inputs.shape)]
    return np.broadcast_to(_layout.in_order(means, plan).reshape(lengths), inputs.shape), errors
