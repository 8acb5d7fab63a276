"""The arguments of a scaling, checked and made uniform, and its result written."""

import math
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums

CASTS, EPS_MODES = ("after_gain", "before_gain"), ("inside", "outside", "max")


class Scaled:
    """The arguments of a scaling, checked and made uniform."""

    def __init__(
        self,
        function: str,
        x: Any,
        axis: Any,
        where: Any,
        out: Any,
        dtype: Any,
        format: str | None,
        return_rms: bool,
        threads: int | None,
        totals: np.ndarray | None = None,
    ) -> None:
        self.function, self.given, self.return_rms, self.threads = function, x, return_rms, threads
        self.totals = totals  # partials of the rows in C order, of which x is a part; None: to sum
        format = _arguments.format_of(function, format)
        self.options = {"axis": axis, "out": out, "dtype": dtype, "format": format}
        self.options |= {"return_rms": return_rms}
        self.chosen = where
        source = _arguments.source(function, "x", x, format)
        _arguments.check_threads(function, threads)
        axis = _arguments.whole_axis(function, axis)
        self.shape, self.axes = _arguments.common_shape(
            function, ("x",), [source.array.shape], axis
        )
        self.kind = source.kind
        self.array = source.array.reshape(self.shape) if not source.array.shape else source.array
        given_kind = self.kind
        if self.array.nbytes <= _formats.SMALL_BYTES and given_kind in _formats.INTEGERS:
            (self.array,), (self.kind,) = _formats.cast(
                [self.array], (given_kind,), _formats.common((given_kind,))
            )
        self.rows_shape = tuple(n for k, n in enumerate(self.shape) if k not in self.axes)
        if any(self.shape[k] == 0 for k in self.axes) and 0 not in self.rows_shape:
            raise _arguments.fail(
                function, "x", "have a coordinate along axis", f"shape {self.shape}"
            )
        self.masks = _arguments.kept(function, [source], where, self.shape)
        if isinstance(out, np.ndarray):
            self.masks = [
                (m.copy() if np.may_share_memory(m, out) else m, kind) for m, kind in self.masks
            ]
        self.result_kind, self.dtype = self._result_format(source, dtype, format)
        self.result_shape = source.array.shape
        if out is not None:
            _arguments.check_result(function, out, source.array, self.dtype)
        self.out = out

    def _result_format(
        self, source: _arguments.Source, dtype: Any, format: str | None
    ) -> tuple[str, np.dtype]:
        """Storage format and dtype of the result: those of x unless named."""
        is_complex = self.kind.startswith("complex")
        if dtype is None:
            if not is_complex and self.kind not in _formats.NARROW | {"float64"}:
                return "float64", np.dtype(np.float64)
            own = source.array.dtype
            return self.kind, _formats.scaled_dtype(self.function, own, self.kind, format)
        if is_complex:
            try:
                found = np.dtype(dtype)
            except TypeError:
                raise TypeError(
                    f"{self.function}: dtype must be complex where x is, got {dtype!r}"
                ) from None
            if found.name not in ("complex64", "complex128"):
                raise TypeError(f"{self.function}: dtype must be complex where x is, got {found}")
            return found.name, found.newbyteorder("=")
        found = _arguments.result_dtype(self.function, dtype, "float64")
        return found.name, found

    def targets(self, zero: str, target: Any) -> np.ndarray:
        """The RMS that each row shall have."""
        _arguments.check_choice(self.function, "zero", zero, ("raise", "zero", "nan"))
        return _arguments.numbers(self.function, "target", target, self.rows_shape)

    def result(self, zero: str, target: Any) -> Any:
        """The rows over their RMS, times target."""
        function, targets = self.function, self.targets(zero, target)
        if _launch.kernels() is None:
            first = () if function == "unit_rms" else (target,)
            return self.by_reference(*first, zero=zero, where=self.chosen)
        return self.written(None, targets, zero, "PLAIN", 0.0, 0.0, None)

    def gain(
        self, gain: Any, eps: Any, gain_offset: Any, cast: str, eps_mode: str
    ) -> tuple[tuple[np.ndarray, str] | None, float, float]:
        """The gain and its format, eps and the offset of the gain, checked."""
        function = self.function
        _arguments.check_choice(function, "cast", cast, CASTS)
        _arguments.check_choice(function, "eps_mode", eps_mode, EPS_MODES)
        eps = _arguments.number(function, "eps", eps)
        if eps < 0:
            raise _arguments.fail(function, "eps", "be finite and >= 0", eps)
        gain_offset = _arguments.number(function, "gain_offset", gain_offset)
        if gain is None and gain_offset != 0:
            raise _arguments.fail(function, "gain_offset", "be 0 without a gain", gain_offset)
        if self.kind.startswith("complex"):
            raise TypeError(f"{function}: x must be real, got dtype {self.array.dtype}")
        found = _arguments.gain(
            function, gain, self.shape, self.axes, self.options["format"], self.kind
        )
        return found, eps, gain_offset

    def normalized(self, gain: Any, eps: Any, gain_offset: Any, cast: str, eps_mode: str) -> Any:
        """The rows over the root of their mean square and eps, times the gain."""
        found, eps, gain_offset = self.gain(gain, eps, gain_offset, cast, eps_mode)
        if found is not None and self.out is not None and np.may_share_memory(found[0], self.out):
            found = found[0].copy(), found[1]
        if _launch.kernels() is None:
            return self.by_reference(
                gain, eps=eps, gain_offset=gain_offset, cast=cast, eps_mode=eps_mode
            )
        target, late = 1.0, cast == "after_gain"
        if found is not None and found[0].ndim == 0 and late:  # one number: part of the factor
            target = float(found[0].astype(np.float64)) + gain_offset
            found = None
        if found is not None:
            found = _layout.along(found[0], self.shape, self.axes), found[1]
        targets = np.broadcast_to(target, self.rows_shape)
        before = None if late else True
        return self.written(found, targets, "nan", eps_mode.upper(), eps, gain_offset, before)

    def written(
        self,
        gain: tuple[np.ndarray, str] | None,
        targets: np.ndarray,
        zero: str,
        mode: str,
        eps: float,
        offset: float,
        cast: bool | None,
    ) -> Any:
        """The result, by one pass over rows that lie side by side, else by two."""
        result = self.out
        if result is None:
            result = np.empty(self.result_shape, self.dtype)
        rows = math.prod(self.rows_shape)
        wide = self.result_kind in ("float64", "complex128")
        kinds = (self.kind,)
        narrow = np.dtype(np.float64 if wide else _formats.result_kind(kinds))
        exact = _sums.exact(kinds, narrow, False)
        sizes = np.empty(rows, _formats.result_kind(kinds)) if self.return_rms else None
        plan = None
        if result.size:
            job = _Job(self, result, gain, mode, eps, offset, cast, exact)
            plan = job.run(targets, zero, sizes)
        answer = result if self.result_shape or self.out is not None else result[()]
        if sizes is None:
            return answer
        ordered = sizes.reshape(self.rows_shape) if plan is None else _layout.in_order(sizes, plan)
        return answer, ordered.copy() if self.rows_shape else ordered[()]

    def by_reference(self, *first: Any, **options: Any) -> Any:
        """The answer of the NumPy implementation."""
        from rmsfast import reference

        return getattr(reference, self.function)(self.given, *first, **self.options, **options)


class _Job:
    """One scaling, ready to run on arrays that are not empty."""

    def __init__(
        self,
        scaled: Scaled,
        result: np.ndarray,
        gain: tuple[np.ndarray, str] | None,
        mode: str,
        eps: float,
        offset: float,
        cast: bool | None,
        exact: bool | None,
    ) -> None:
        self.scaled, self.gain, self.cast, self.offset = scaled, gain, cast, offset
        self.result = result.reshape(scaled.shape) if not result.shape else result
        self.mode, self.eps = getattr(_launch.kernel_module("_scalings"), mode), eps
        self.how = (None, exact, None)
        self.streaming = _sums.streams(scaled.out, scaled.array)
        self.out_operand = (self.result, scaled.result_kind)

    def run(self, targets: np.ndarray, zero: str, sizes: np.ndarray | None) -> _layout.Plan:
        """Write the result, sizes in the order of walking of the plan that is returned."""
        scaled = self.scaled
        x = (scaled.array, scaled.kind)
        together = [x, self.gain, None, None, None, self.out_operand]
        walk = _layout.walk(scaled.shape, scaled.axes, together)
        plan = walk.plan
        many = plan.rows >= 4 * _launch.threads_for(scaled.threads) or plan.length <= 1 << 14
        if scaled.totals is None and not scaled.masks and not plan.awkward and many:
            self._rows(walk, targets, zero, sizes)
            return plan
        sums = _layout.walk(
            scaled.shape, scaled.axes, [x, None, None, *_layout.around(scaled.masks)]
        )
        self._elements(sums, targets, zero, sizes)
        return sums.plan

    def _rows(
        self, walk: _layout.Walk, targets: np.ndarray, zero: str, sizes: np.ndarray | None
    ) -> None:
        plan, threads = walk.plan, self.scaled.threads
        arrays = (walk.arrays[0], None, None, None, None)
        row_bytes = plan.length * _sums.element_bytes(walk)
        if zero == "raise":
            flags = np.zeros(plan.rows, np.uint8)
            args: tuple[Any, ...] = (arrays, plan.g, plan.outer, plan.length, flags)
            _launch.launch("zero_rows", args, plan.rows, min(row_bytes, 512), threads)
            self._refuse_zero(flags, plan)
        fill = np.nan if zero == "nan" else 0.0
        args = (
            arrays,
            self.how,
            True if self.scaled.kind in ("float64", "complex128") else None,
            walk.arrays[:5],
            self.cast,
            walk.arrays[5],
            plan.g,
            plan.outer,
            0,
        )
        args += (plan.length, self.mode, self.eps, fill, _targets(targets, plan), self.offset)
        args += (sizes, self.streaming, False)
        _launch.launch("scale_rows", args, plan.rows, row_bytes, threads)

    def _elements(
        self, sums: _layout.Walk, targets: np.ndarray, zero: str, sizes: np.ndarray | None
    ) -> None:
        scaled, plan = self.scaled, sums.plan
        wide = {scaled.kind, scaled.result_kind} & {"float64", "complex128"}
        high, low, shift = (np.empty(plan.rows) if k == 0 or wide else None for k in range(3))
        fill = np.nan if zero == "nan" else 0.0
        wanted = _targets(targets, plan)
        flags = np.zeros(plan.rows, np.uint8)
        totals = None
        if scaled.totals is not None:
            rows = np.arange(plan.rows).reshape(scaled.rows_shape)
            totals = scaled.totals[_layout.to_walk(rows, plan)]
        for piece in _sums.pieces([sums]):
            part = slice(piece.first_row, piece.first_row + piece.rows)
            if totals is None:
                found = _sums.partials([sums], [self.how], piece, scaled.threads)[0]
            else:
                found = totals[part]
            flags[part] = (found[:, 0] == 0) & (found[:, 3] > 0)
            some = wanted if len(wanted) == 1 else wanted[part]
            own = None if sizes is None else sizes[part]
            args: tuple[Any, ...] = (found, self.mode, self.eps, fill, some)
            args += tuple(v if v is None else v[part] for v in (high, low, shift))
            args += (own,)
            _launch.call(_launch.kernel("factors"), (*args, 0, piece.rows))
        if zero == "raise":
            self._refuse_zero(flags, plan)
        lengths = [1 if k in scaled.axes else n for k, n in enumerate(scaled.shape)]
        operands: list[_layout.Operand] = [(scaled.array, scaled.kind), self.gain]
        for values in (high, low, shift):
            if values is None or (values is shift and not values.any()):
                operands.append(None)
                continue
            rows = _layout.in_order(values, plan).reshape(lengths)
            operands.append((np.broadcast_to(rows, scaled.shape), "float64"))
        walk = _layout.walk(scaled.shape, (), [*operands, self.out_operand])
        whole = walk.plan
        apart, g = whole.ragged, whole.g
        if not g.size:  # one number
            g = np.array([[1], [0], [0], [0], [0], [0], [0]], np.int64)
        splat = g[3, -1] == 0
        relevant = apart & (0b100011 if splat else -1)
        step = 1024 if relevant else 1 << 14
        length = int(g[0, -1])
        steps = -(-length // step)
        args = (
            walk.arrays[:5],
            (*walk.arrays[:2], None, None, None),
            self.cast,
            walk.arrays[5],
            g,
            apart,
        )
        args += (step, self.offset, self.streaming)
        unit_bytes = min(step, length) * (scaled.array.itemsize + self.result.itemsize)
        units = scaled.array.size * (1 + scaled.kind.startswith("complex")) // length * steps
        _launch.launch("scale_elements", args, units, unit_bytes, scaled.threads)
        left_out = bool(scaled.masks) or scaled.totals is not None  # which may be Inf or NaN
        if zero == "zero" and left_out and flags.any():
            rows = _layout.in_order(flags, plan).reshape(lengths) != 0
            np.copyto(self.result, np.zeros((), self.result.dtype), where=rows)

    def _refuse_zero(self, flags: np.ndarray, plan: _layout.Plan) -> None:
        if flags.any():
            found = _layout.in_order(flags, plan)
            raise _arguments.zero_rows(self.scaled.function, "x", found)


def _targets(targets: np.ndarray, plan: _layout.Plan) -> np.ndarray:
    """One number, or one for each row in the order of walking."""
    if targets.size and all(s == 0 for s in targets.strides):
        return np.array([targets[(0,) * targets.ndim]])
    return _layout.to_walk(targets, plan)
