"""Relative errors: an error and the size that it is divided by, from the same walk."""

import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from rmsfast import _arguments, _launch, _layout, _partial, _sums
from rmsfast._inputs import Inputs
from rmsfast._partial import BLOCK

UNPIECED = 1 << 16  # numbers of each array that stay in cache from one walk to the next
# What each reference divides by; the first two are roots of sums of squares themselves.
REFERENCES = {
    "x": "SQUARES",
    "x_hat": "SQUARES",
    "mean": "MEAN",
    "range": "RANGE",
    "std": "DEVIATION",
    "max": "MAX",
}
ZERO = ("raise", "ieee", "nan")


def numbers(inputs: Inputs, reference: Any) -> np.ndarray | None:
    """The sizes of a reference that is given as numbers, one a row; None for a named one."""
    if not isinstance(reference, str):
        found = _arguments.sizes(inputs.function, reference, inputs.result_shape)
        return found.reshape(inputs.rows_shape)
    _arguments.check_choice(inputs.function, "reference", reference, tuple(REFERENCES))
    if inputs.is_complex and reference == "range":
        raise TypeError(
            f"{inputs.function}: x must be real for reference='range', got a complex dtype"
        )
    return None


def ratios(
    inputs: Inputs, reference: Any, numbers: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """RMSE / reference of each row, and flags (4: the reference is 0)."""
    kernels = _launch.kernel_module("_relative")
    rows = math.prod(inputs.rows_shape)
    found, flags = np.empty(rows), np.zeros(rows, np.uint8)
    if rows == 0:
        return found.reshape(inputs.rows_shape), flags.reshape(inputs.rows_shape)
    omit = True if inputs.nan_policy != "propagate" else None
    exact = _sums.exact(inputs.kinds, inputs.dtype, inputs.weights is not None)
    errors = _layout.walk(inputs.shape, inputs.axes, inputs.operands())
    plan = errors.plan
    walks = [errors]
    hows: list[_sums.How] = [(omit, exact, None)]
    kind = kernels.NUMBER
    spare = np.zeros((rows, 3))  # a number of the row, as a pair and an exponent
    if numbers is not None:
        spare[:, 0] = _layout.to_walk(numbers, plan)
    else:
        own, kind = size_operands(inputs, reference)
        squares = kind in (kernels.SQUARES, kernels.DEVIATION)
        complex_size = is_complex(own) and kind != kernels.SQUARES
        if complex_size:
            spare, centres = _complex_sizes(inputs, own, omit, plan, reference)
        elif reference == "std":
            spare, centres = _centres(inputs, own, omit, plan)
        if reference == "std":
            own[1] = centres
        if complex_size and not squares:
            kind = kernels.NUMBER
        else:
            walks.append(_layout.walk(inputs.shape, inputs.axes, own, plan.order))
            exact = exact if kind == kernels.SQUARES else True
            hows.append((omit, exact, None if squares else True))
    quotients(walks, hows, kind, spare, found, flags, inputs.threads)
    return _layout.in_order(found, plan), _layout.in_order(flags, plan)


def quotients(
    walks: list[_layout.Walk],
    hows: list[_sums.How],
    kind: int,
    spare: np.ndarray,
    found: np.ndarray,
    flags: np.ndarray,
    threads: int | None,
    keys: tuple[Hashable, ...] = (),
) -> None:
    """Errors over sizes, and flags, of walks of errors and of what sizes are made of.

    `keys` as for `_launch.compiled`, of the types of each walk.
    """
    plan, divide = walks[0].plan, _launch.kernel("ratios")
    keys = keys or (None,) * len(walks)
    if plan.length <= BLOCK and plan.rows * plan.length <= UNPIECED and not plan.columns:
        pairs = zip(walks, hows, keys, strict=True)
        sums = [_sums.rows_of(w, h, 0, plan.rows, 0, 1, threads, key) for w, h, key in pairs]
        args = (sums[0], sums[-1], kind, spare, found, flags, 0, plan.rows)
        _launch.call(divide, args, found.dtype)
        return
    for piece in _sums.pieces(walks):
        part = slice(piece.first_row, piece.first_row + piece.rows)
        sums = _sums.partials(walks, hows, piece, threads, keys)
        args = (sums[0], sums[-1], kind, spare[part], found[part], flags[part], 0, piece.rows)
        _launch.call(divide, args, found.dtype)


def size_operands(inputs: Inputs, reference: str) -> tuple[list[_layout.Operand], int]:
    """What is walked for a reference, and the kind of size that is made of it."""
    x, y = zip(inputs.arrays, inputs.kinds, strict=True)
    x, y = (y, x) if reference == "x_hat" else (x, y)
    # Beside complex numbers real ones are walked alike: as two numbers a value.
    both = inputs.nan_policy != "propagate" or inputs.is_complex
    own = [x, None, y if both else None, *inputs.operands()[3:]]
    return own, getattr(_launch.kernel_module("_relative"), REFERENCES[reference])


def is_complex(operands: list[_layout.Operand]) -> bool:
    return operands[0] is not None and operands[0][1].startswith("complex")


Centres = tuple[np.ndarray, _layout.Operand]  # means of rows: what rounding took, broadcast to x


def _centres(
    inputs: Inputs, operands: list[_layout.Operand], omit: bool | None, plan: _layout.Plan
) -> Centres:
    walk = _layout.walk(inputs.shape, inputs.axes, operands, plan.order)
    means, lost = np.empty(plan.rows), np.zeros((plan.rows, 3))
    for piece in _sums.pieces([walk]):
        part = slice(piece.first_row, piece.first_row + piece.rows)
        found = _sums.partials([walk], [(omit, True, True)], piece, inputs.threads)[0]
        _launch.call(_launch.kernel("means"), (found, means[part], lost[part], 0, piece.rows))
    return lost, _spread(means, inputs, plan)


def _complex_sizes(
    inputs: Inputs,
    operands: list[_layout.Operand],
    omit: bool | None,
    plan: _layout.Plan,
    reference: str,
) -> Centres:
    """|mean| or the largest |z| of each row instead, where these are the reference."""
    walk = _layout.walk(inputs.shape, inputs.axes, operands, plan.order)
    sizes, means = np.zeros((plan.rows, 3)), np.full((plan.rows, 2), np.nan)
    args = (
        *complex_args(walk, omit),
        True if reference == "max" else None,
        sizes,
        means if reference == "std" else None,
    )
    row_bytes = walk.plan.length * _sums.element_bytes(walk)
    _launch.launch("complex_sizes", args, plan.rows, row_bytes, inputs.threads)
    return sizes, _spread(means.view(np.complex128)[:, 0], inputs, plan)


def complex_args(walk: _layout.Walk, omit: bool | None) -> _launch.Args:
    """What kernels of complex references are told of a walk."""
    plan = walk.plan
    how = omit, True, None
    return walk.arrays, how, plan.g, plan.outer, plan.awkward | _layout.APART, plan.length


def complex_states(walk: _layout.Walk, omit: bool | None) -> np.ndarray:
    """The states of rows, in the order of walking, on this thread."""
    states = np.empty((walk.plan.rows, len(_partial.EMPTY_COMPLEX)))
    row_bytes = walk.plan.length * _sums.element_bytes(walk)
    args = (*complex_args(walk, omit), states)
    _launch.launch("complex_states", args, walk.plan.rows, row_bytes, 1)
    return states


def sizes_of_complex(states: np.ndarray, reference: str) -> tuple[np.ndarray, np.ndarray]:
    """As `_complex_sizes`, of the states of rows; the means are complex."""
    rows = len(states)
    sizes, means = np.zeros((rows, 3)), np.full((rows, 2), np.nan)
    largest, centres = (
        (True if reference == "max" else None),
        (means if reference == "std" else None),
    )
    _launch.call(_launch.kernel("sizes_of_complex"), (states, largest, sizes, centres, 0, rows))
    return sizes, means.view(np.complex128)[:, 0]


def _spread(means: np.ndarray, inputs: Inputs, plan: _layout.Plan) -> _layout.Operand:
    lengths = [1 if k in inputs.axes else n for k, n in enumerate(inputs.shape)]
    means = _layout.in_order(means, plan).reshape(lengths)
    return np.broadcast_to(means, inputs.shape), means.dtype.name
