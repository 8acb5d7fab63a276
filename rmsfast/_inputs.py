"""The arguments of a reduction, checked and made uniform, and its answer."""

import math
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _layout
from rmsfast._layout import Operand


class Inputs:
    """The arguments of a reduction, checked and made uniform."""

    def __init__(
        self,
        function: str,
        given: tuple[Any, ...],
        axis: Any,
        keepdims: bool,
        where: Any,
        weights: Any,
        nan_policy: str,
        dtype: Any,
        out: Any,
        format: str | None,
        threads: int | None,
    ) -> None:
        self.function, self.given, self.nan_policy = function, given, nan_policy
        self.options = {"axis": axis, "keepdims": keepdims, "where": where, "weights": weights}
        format = _arguments.format_of(function, format)
        self.options |= {"nan_policy": nan_policy, "dtype": dtype, "out": out, "format": format}
        self.names = names = ("x", "x_hat")[: len(given)]
        given = _arguments.weak_numbers(given)
        sources = [
            _arguments.source(function, n, a, format) for n, a in zip(names, given, strict=True)
        ]
        _arguments.check_choice(function, "nan_policy", nan_policy, _arguments.NAN_POLICIES)
        _arguments.check_threads(function, threads)
        self.threads = threads
        axis = _arguments.whole_axis(function, axis)
        shapes = [s.array.shape for s in sources]
        self.shape, self.axes = _arguments.common_shape(function, names, shapes, axis)
        self.scalar = not any(shapes)
        self.kinds = self.stored = tuple(s.kind for s in sources)
        self.is_complex = any(kind.startswith("complex") for kind in self.kinds)
        arrays = [s.array for s in sources]
        default = _formats.result_kind(self.kinds)
        if sum(a.nbytes for a in arrays) <= _formats.SMALL_BYTES:
            arrays, self.kinds = _formats.cast(arrays, self.kinds, _formats.common(self.kinds))
        self.arrays = [np.broadcast_to(a, self.shape) for a in arrays]
        self.masks = _arguments.kept(function, sources, where, self.shape)
        self.weights = _arguments.weights(function, weights, self.shape)
        self.dtype = _arguments.result_dtype(function, dtype, default)
        self.length = math.prod(self.shape[k] for k in self.axes)
        self.rows_shape = tuple(n for k, n in enumerate(self.shape) if k not in self.axes)
        self.result_shape = self.rows_shape
        if keepdims:
            self.result_shape = (
                ()
                if self.scalar
                else tuple(1 if k in self.axes else n for k, n in enumerate(self.shape))
            )
        self.out = out
        if out is not None:
            _arguments.check_out(function, out, self.result_shape, self.dtype)
            for s in sources:
                _arguments.check_overlap(function, out, s.array)
        if any(self.shape[k] == 0 for k in self.axes) and 0 not in self.rows_shape:
            raise _arguments.fail(
                function, "x", "have a coordinate along axis", f"shape {shapes[0]}"
            )

    def operands(self) -> list[Operand]:
        """X, x_hat, -, where, weights; an error is the same either way, so formats are ordered."""
        pairs = list(zip(self.arrays, self.kinds, strict=True))
        if self.function == "rmse":
            pairs.sort(key=lambda pair: pair[1])
        return [*[*pairs, None][:2], None, *_layout.around(self.masks, self.weights)]

    def by_reference(self) -> Any:
        """The answer of the NumPy implementation."""
        from rmsfast import reference

        return getattr(reference, self.function)(*self.given, **self.options)

    def result(self, roots: np.ndarray, flags: np.ndarray | None) -> Any:
        """The roots, one a row, as what the caller asked for; the last refusals."""
        if flags is not None:
            _arguments.check_flags(self.function, self.names, flags, self.nan_policy)
        if roots.dtype != self.dtype:
            roots = _formats.rounded(roots, self.dtype)
        result = roots.reshape(self.result_shape)
        if self.out is not None:
            self.out[...] = result
            return self.out
        return result if self.result_shape else result[()]
