"""The arguments of an edit, checked and made uniform, and the runs of its kernels."""

import math
import sys
from typing import Any

import numpy as np

from rmsfast import _arguments, _formats, _launch, _layout, _sums
from rmsfast._dose_report import REFERENCES, Array, DoseReport
from rmsfast.reductions import rms

STORAGE = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
EDIT_FORMATS = ("float64", *STORAGE)
PATHS = ("cast_then_add", "add_then_cast")
FIRST = 1 | 1 << _layout.SWAPPED  # bits of `awkward` about the rows themselves
LINE = 32  # coordinates that the quick loop edits at once


class Way:
    """How numbers are rounded to a storage format."""

    def __init__(self, function: str, rounding: str, seed: int | None, overflow: str) -> None:
        modes = ("nearest_even", "toward_zero", "stochastic")
        _arguments.check_choice(function, "rounding", rounding, modes)
        _arguments.check_choice(function, "overflow", overflow, ("ieee", "saturate", "raise"))
        self.seed = _arguments.seed(function, seed, rounding == "stochastic")
        self.names = {"rounding": rounding, "overflow": overflow, "seed": self.seed}
        bits = self.seed or 0
        bits -= bits >> 63 << 64  # as an int64
        self.codes = (modes.index(rounding), int(overflow == "saturate"), bits)  # for the kernels


class Dosing:
    """Rows with masks, scales and a direction; `states` are h, or rows before and after."""

    def __init__(
        self, function: str, names: tuple[str, ...], states: tuple[Any, ...], axis: Any, rows: Any,
        where: Any, format: str | None, threads: int | None,
    ) -> None:  # fmt: skip
        self.function, self.names, self.threads = function, names, threads
        format = _arguments.format_of(function, format)
        _arguments.check_threads(function, threads)
        self.sources = [
            _arguments.state(function, name, a, format)
            for name, a in zip(names, states, strict=True)
        ]
        shapes = [s.array.shape for s in self.sources]
        axis = _arguments.whole_axis(function, axis)
        self.shape, self.axes = _arguments.common_shape(function, names, shapes, axis)
        self.arrays = [np.broadcast_to(s.array, self.shape) for s in self.sources]
        self.lengths = tuple(self.shape[k] for k in self.axes)
        self.rows_shape = tuple(n for k, n in enumerate(self.shape) if k not in self.axes)
        if 0 in self.lengths and 0 not in self.rows_shape:
            raise _arguments.fail(
                function, names[0], "have a coordinate along axis", f"shape {shapes[0]}"
            )
        self.masks = _arguments.kept(function, self.sources, where, self.shape)
        self.rows = _arguments.row_mask(function, rows, self.rows_shape)
        self.direction_kind, self.note = "none", "none"
        self.rms_u = self.unit = np.full(self.rows_shape, np.nan)
        self.request: Array | None = None  # RMS of each row of the direction that is the edit
        self.lines: Array | None = None  # of one direction for all rows, in whole lines

    # ------------------------------------------------------------------ size and direction

    def scale_by(self, scale: Any, name: str | None) -> None:
        """Choose the size of an edit of alpha 1: the RMS of each clean row, or given numbers."""
        function = self.function
        if isinstance(scale, str):
            _arguments.check_choice(function, "scale", scale, ("rms",))
            if name is not None:
                raise _arguments.fail(
                    function, "scale_name", "be None with scale='rms'", repr(name)
                )
            self.scales, self.scale_name = None, "RMS of the clean row"
            return
        _arguments.check_sentence(function, "scale_name", name)
        found = _arguments.finite_numbers(function, "scale", scale, self.rows_shape)
        if (found < 0).any():
            raise _arguments.fail(function, "scale", "be non-negative", found.min())
        self.scales, self.scale_name = found, str(name)

    def along(self, direction: Any, direction_scale: str) -> None:
        """Choose the direction: one for all rows, of the shape of the reduced axes, or many."""
        function = self.function
        _arguments.check_choice(function, "direction_scale", direction_scale, ("unit", "as_is"))
        sizes = self._read("direction", direction)
        if (sizes == 0).any():
            raise _arguments.fail(function, "direction", "be nonzero", "a vector of zeros")
        self.unit, self.note = self.rms_u, "scaled to unit RMS"
        if direction_scale == "as_is":
            self.unit, self.note = np.ones(self.rows_shape), "as given"
            off = sizes[np.argmax(np.abs(sizes - 1))] if sizes.size else 1.0
            kind = self.direction_kind
            if abs(off - 1) > max(1e-6, _formats.EPSILON.get(kind, 0.0)):
                requirement = "have an RMS of 1 with direction_scale='as_is'"
                raise _arguments.fail(function, "direction", requirement, f"RMS {off:.9g}")

    def along_request(self, requested: Any) -> None:
        """The direction is the edit itself."""
        self._read("requested", requested)
        self.request = self.rms_u
        self.rms_u = self.unit = np.where(self.request == 0, 1.0, self.request)
        self.note = "that of the request, scaled to unit RMS"

    def along_nothing(self) -> None:
        """Without a direction: as if it were 0."""
        self.direction = self._shared(np.zeros(self.lengths))

    def _read(self, name: str, given: Any) -> Array:
        """The RMS of a direction for each row that has one; what the kernels read is set."""
        source = _arguments.real(self.function, name, given)
        array, kind = source.array, source.kind
        options: dict[str, Any] = {"dtype": "float64", "threads": self.threads}
        keep = _layout.chosen(self.masks)
        if array.shape == self.lengths or (self.lengths == (1,) and not array.ndim):
            (values,), _ = _formats.cast([array], (kind,), ("float64",))
            values = values.reshape(self.lengths)
            self.direction = self._shared(values)
            array, own = self.direction[0], values
        else:
            array = _arguments.vectors(self.function, name, array, self.shape, self.axes)
            self.direction, own = (array, kind), None
            options["format"] = kind if kind in _formats.CODES else None
        if math.prod(self.rows_shape) == 0:
            sizes = np.ones(self.rows_shape)
        elif keep is None and own is not None:
            sizes = rms(own, axis=None, threads=self.threads)
        else:
            sizes = rms(array, axis=self.axes, where=keep, **options)
        self.direction_kind, self.rms_u = kind, np.broadcast_to(sizes, self.rows_shape)
        if self.rows is None and keep is None:
            sizes = np.ravel(sizes)
        else:
            meant = np.ones(self.rows_shape, bool) if self.rows is None else self.rows
            sizes = self.rms_u[meant if keep is None else meant & keep.any(axis=self.axes)]
        if not np.isfinite(sizes).all():
            raise _arguments.fail(self.function, name, "be finite", "NaN or infinity")
        return sizes

    def _shared(self, values: Array) -> tuple[Array, str]:
        """One direction for all rows, in float64, for the kernels readable to a whole line."""
        self.lines = lines = np.zeros(-(-values.size // LINE) * LINE)
        own = lines[: values.size].reshape(self.lengths)
        own[...] = values
        return _layout.along(own, self.shape, self.axes), "float64"

    def masked(self, alphas: Array) -> Array:
        """Alphas in C order of the rows, 0 for those that are not meant; one if it serves all."""
        if self.rows is not None:
            alphas = np.where(self.rows, alphas, 0.0)
        return _one_or_all(alphas)

    def keep_apart(self, out: Array) -> None:
        """Copy what is read while `out` is written."""
        if np.may_share_memory(self.direction[0], out):
            self.direction = self.direction[0].copy(), self.direction[1]
        self.masks = [
            (m.copy() if np.may_share_memory(m, out) else m, kind) for m, kind in self.masks
        ]

    # ----------------------------------------------------------------------------- running

    def walk(self, storage: str, result: Array | None) -> tuple[_layout.Walk, Array]:
        """Rows in the order of the caller's, and an array of the storage format for the types."""
        kinds = [s.kind for s in self.sources]
        operands: list[_layout.Operand] = [(self.arrays[0], kinds[0]), self.direction]
        operands += [(self.arrays[1], kinds[1]) if len(kinds) > 1 else None]
        operands += _layout.around(self.masks, None if result is None else (result, storage))
        order = tuple(k for k in range(len(self.shape)) if k not in self.axes)
        walk = _layout.walk(self.shape, self.axes, operands, order)
        target = walk.arrays[4]
        if target is None:
            target = np.zeros(1, _formats.kernel_dtype(storage))
        return walk._replace(arrays=(*walk.arrays[:4], None, *walk.arrays[5:])), target

    def run(
        self, storage: str, alphas: Array, way: tuple[int, ...], result: Array | None = None,
        report: bool = True, streaming: bool = False,
    ) -> dict[str, Array]:  # fmt: skip
        """The fields of each row and alpha (of none without a report); result is written if given.

        alphas: one row of them, or one for each row; way: as _doses.dose_run takes it.
        """
        if _launch.kernels() is None:
            return self._by_reference(storage, alphas, way, result)
        rows, across = math.prod(self.rows_shape), alphas.shape[1]
        reals = wholes = None
        if report:
            reals, wholes = _pages(rows * across)
        if rows:
            walk, target = self.walk(storage, result)
            plan, cast = walk.plan, self.arrays[1:] == [] and self.sources[0].kind != storage
            quick = self._quick(storage, way)
            single = self._single(storage, quick)
            quick = quick and (single is None or single.size > 0)
            args = (
                walk.arrays, single, target, True if cast else None, True if report else None,
                plan.g, plan.outer, plan.awkward, plan.length, alphas,
                np.zeros(0) if self.scales is None else _one_or_all(self.scales),
                _one_or_all(self.unit), _one_or_all(self.rms_u),
                None if self.request is None else _one_or_all(self.request),
                quick, way, reals, wholes, result is not None,
                streaming, False,
            )  # fmt: skip
            row_bytes = plan.length * (_sums.element_bytes(walk) + target.itemsize)
            _launch.launch("dose_rows", args, rows, row_bytes * across, self.threads)
        if reals is None or wholes is None:
            return {}
        module, shape = _launch.kernel_module("_dose_fields"), (*self.rows_shape, across)
        found = dict(zip((*module.REALS, *module.WHOLES), (*reals, *wholes), strict=True))
        return {name: v[: rows * across].reshape(shape) for name, v in found.items()}

    def _by_reference(
        self, storage: str, alphas: Array, way: tuple[int, ...], result: Array | None
    ) -> dict[str, Array]:
        """As `run`, by the definition in NumPy; the fields are always made."""
        from rmsfast.reference import doses

        shape = (*self.rows_shape, alphas.shape[1])
        if not math.prod(shape):
            return {name: np.zeros(shape) for name in DoseReport.names()}
        kept, order = _layout.chosen(self.masks), self._order()
        given = [
            self._as_rows(_formats.decoded(a, s.kind))
            for a, s in zip(self.arrays, self.sources, strict=True)
        ]
        rows = given[0].shape
        keep = np.ones(rows, bool) if kept is None else kept.transpose(order).reshape(rows)
        scales = None if self.scales is None else self.scales.reshape(-1)
        u = self._as_rows(_formats.decoded(*self.direction))
        units, sizes = self.unit.reshape(-1), self.rms_u.reshape(-1)
        cast = len(given) == 1 and self.sources[0].kind != storage
        found = []
        for alpha in np.broadcast_to(alphas, (rows[0], alphas.shape[1])).T:
            asked = units if self.request is not None else scales
            c, q, r, a, lost, edited = doses.edit(
                given[0], u, alpha, asked, units, keep, storage, doses.Way(*way), cast
            )
            if len(given) > 1:
                a, lost = given[1], np.isfinite(c) & ~np.isfinite(given[1])
            if self.request is not None:
                own = np.sqrt(np.mean(c * c, axis=-1, where=keep)) if scales is None else scales
                alpha = alpha * self.request.reshape(-1) / own
            found.append(doses.fields(c, q, r, a, lost, u, keep, alpha, scales, sizes, units))
            if result is not None:
                whole = [self.shape[k] for k in order]
                target = result.transpose(order)
                codes = doses.codes(a, storage).view(target.dtype).reshape(whole)
                if cast:
                    target[...] = codes
                else:  # what is not edited keeps its bits
                    np.copyto(target, self.arrays[0].transpose(order).astype(target.dtype))
                    np.copyto(target, codes, where=edited.reshape(whole))
        return {name: np.stack([f[name] for f in found], -1).reshape(shape) for name in found[0]}

    def _order(self) -> tuple[int, ...]:
        """The axes, those of the rows first."""
        return (*(k for k in range(len(self.shape)) if k not in self.axes), *self.axes)

    def _as_rows(self, values: Array) -> Array:
        """Numbers as float64, a row after the other."""
        rows = math.prod(self.rows_shape), math.prod(self.lengths)
        return values.astype(np.float64).transpose(self._order()).reshape(rows)

    def _quick(self, storage: str, way: tuple[int, ...]) -> bool:
        """Whether edits are of the usual kind: _doses.plain_run serves, or a faster one."""
        mode, saturate, _, add_first, edit_format, _ = way
        if mode or self.masks or [s.kind for s in self.sources] != [storage] or edit_format > 1:
            return False
        if storage == "bfloat16":
            return add_first == 0 and self.lines is not None
        return saturate == 0 and (add_first == 0 or (storage == "float32" and edit_format == 1))

    def _single(self, storage: str, quick: bool) -> Array | None:
        """The direction as _dose_lines.quick_run takes it; empty where that cannot serve."""
        if storage != "bfloat16":
            return None
        if not quick or self.lines is None:
            return np.zeros(0, np.float32)
        return parted(self.lines, storage)[1]

    def floors(self, storage: str, tolerance: float) -> Array:
        """The smallest dose of each row."""
        rows = math.prod(self.rows_shape)
        floors = np.empty(rows)
        if rows and not _launch.kernels():
            from rmsfast.reference import doses

            h = _formats.decoded(self.arrays[0], self.sources[0].kind)
            return doses.floors(self._as_rows(h), storage, tolerance)
        if rows:
            self.along_nothing()
            walk, target = self.walk(storage, None)
            fraction, least, *_ = _launch.kernel_module("_roundings").LIMITS[storage]
            own = 0.29 * 2.0**-fraction
            plan, arrays = walk.plan, (walk.arrays[0], None, None, None, None)
            args = (
                arrays, target, plan.g, plan.outer, plan.awkward & FIRST, plan.length, least,
                fraction, tolerance**2 - own**2, floors,
            )  # fmt: skip
            row_bytes = plan.length * self.arrays[0].itemsize
            _launch.launch("dose_floors", args, rows, row_bytes, self.threads)
        return floors

    # --------------------------------------------------------------------------- reporting

    def header(self, storage: str, measured_at: str, clean_source: str) -> dict[str, Any]:
        """What the numbers of a report mean."""
        sizes = _one_or_all(self.rms_u)
        sizes = sizes[np.isfinite(sizes)]
        names = ("rmsfast", "numpy", "numba")
        versions = {n: sys.modules[n].__version__ for n in names if n in sys.modules}
        return {
            "function": self.function,
            "measured_at": measured_at,
            "clean_source": clean_source,
            "rows": math.prod(self.rows_shape),
            "coordinates": math.prod(self.lengths),
            "formats": {
                **{name: s.kind for name, s in zip(self.names, self.sources, strict=True)},
                "direction": self.direction_kind,
                "storage": storage,
                "report": "float64",
            },
            "scale": self.scale_name,
            "direction": {
                "scaling": self.note,
                "rms": [float(f()) for f in (sizes.min, sizes.max)] if sizes.size else None,
            },
            "masks": {
                "rows": "none" if self.rows is None else f"{self.rows.sum()} rows kept",
                "coordinates": "given" if self.masks else "none",
            },
            "references": REFERENCES,
            "versions": versions,
        }


class Edit:
    """How a dose is made and stored: its arguments, checked."""

    def __init__(
        self, dosing: Dosing, direction: Any, direction_scale: str, scale: Any,
        scale_name: str | None, storage: str | None, edit_format: str, path: str, rounding: str,
        seed: int | None, overflow: str, zero: str, first_row: int = 0,
    ) -> None:  # fmt: skip
        function, own = dosing.function, dosing.sources[0].kind
        self.dosing = dosing
        if storage is None and own == "float64":
            raise _arguments.fail(function, "storage", "be named where h is float64", None)
        self.storage = own if storage is None else _formats.named(storage)
        _arguments.check_choice(function, "storage", self.storage, STORAGE)
        _arguments.check_choice(function, "edit_format", edit_format, EDIT_FORMATS)
        _arguments.check_choice(function, "path", path, PATHS)
        _arguments.check_choice(function, "zero", zero, ("raise", "keep"))
        rounded = Way(function, rounding, seed, overflow)
        made = PATHS.index(path), EDIT_FORMATS.index(edit_format)
        self.way = (*rounded.codes, *made, _arguments.first_row(function, first_row))
        dosing.scale_by(scale, scale_name)
        dosing.along(direction, direction_scale)
        self.refuses_overflow = overflow == "raise"
        self.refuses_zero = zero == "raise" and dosing.scales is None
        self.names = {"path": path, **rounded.names, "zero": zero}
        self.edit_format = edit_format

    def dtype(self, format: str | None) -> np.dtype[Any]:
        """Dtype of the result: that of codes for codes, if they are of its format."""
        source = self.dosing.sources[0]
        function, own = self.dosing.function, source.array.dtype
        if self.storage == source.kind:
            return _formats.scaled_dtype(function, own, self.storage, format)
        return _formats.ml_dtype(function, self.storage)

    def run(
        self,
        alphas: Array,
        result: Array | None = None,
        report: bool = True,
        streaming: bool = False,
    ) -> dict[str, Array]:
        return self.dosing.run(self.storage, alphas, self.way, result, report, streaming)

    def refuse(self, alphas: Array) -> None:
        """Raise for rows of zeros and for overflow, before anything is written."""
        dosing = self.dosing
        if not dosing.shape or 0 in dosing.shape:
            return
        if self.refuses_overflow:
            self.check(self.run(alphas))
        elif self.refuses_zero:
            flags = self._zero_rows()
            if flags is None:
                self.check(self.run(alphas))
            else:
                self._refuse_zero(flags)

    def check(self, fields: dict[str, Array]) -> None:
        """Raise for what the report of a dry run shows."""
        if self.refuses_zero:
            self._refuse_zero(fields["rms_clean"][..., 0] == 0)
        if self.refuses_overflow:
            lost = fields["n_overflow"].max(axis=-1)
            if lost.any():
                raise _arguments.overflown(self.dosing.function, "h", lost, self.storage)

    def _zero_rows(self) -> Array | None:
        """Flags of rows of zeros by their first nonzero value, None if that does not tell."""
        dosing = self.dosing
        if _launch.kernels() is None:
            return None
        walk, _ = dosing.walk(self.storage, None)
        plan, source = walk.plan, dosing.sources[0]
        if plan.awkward & FIRST or dosing.masks or source.kind != self.storage:
            return None
        flags = np.zeros(plan.rows, np.uint8)
        arrays = (walk.arrays[0], None, None, None, None)
        args = (arrays, plan.g, plan.outer, plan.length, flags)
        row_bytes = min(plan.length * dosing.arrays[0].itemsize, 512)
        _launch.launch("zero_rows", args, plan.rows, row_bytes, dosing.threads)
        return flags

    def _refuse_zero(self, flags: Array) -> None:
        flags = flags.reshape(self.dosing.rows_shape) != 0
        if self.dosing.rows is not None:
            flags = flags & self.dosing.rows
        if flags.any():
            raise _arguments.zero_rows(self.dosing.function, "h", flags)

    def header(self, measured_at: str, clean_source: str) -> dict[str, Any]:
        found = self.dosing.header(self.storage, measured_at, clean_source)
        found["formats"]["edit"] = self.edit_format
        return {**found, **self.names}


def parted(values: Array, storage: str) -> tuple[Array, Array | None]:
    """A direction in float64, in whole lines; as _dose_lines.quick_run takes it for bfloat16.

    The second is empty if it cannot. Signalling NaN bring no warning.
    """
    count, single = -(-values.size // LINE), None
    lines = np.empty(count * LINE)
    if storage == "bfloat16":
        single = np.empty(count * (LINE + 1), np.float32)
    args = (values,), lines, single, 0, count
    key = "lines", values.dtype, storage == "bfloat16"
    fits = _launch.compiled(_launch.kernel("part_lines"), args, key)(*args)
    return lines, single if single is None or fits else np.empty(0, np.float32)


def _pages(count: int) -> tuple[Array, Array]:
    """Memory for `count` numbers of each field, float64 and int64, in few and large pages.

    The fields are apart by an odd number of cache lines, so that they fit into a cache together.
    """
    module, stride = _launch.kernel_module("_dose_fields"), (-(-count // 8) | 1) * 8
    return np.empty((len(module.REALS), stride)), np.empty((len(module.WHOLES), stride), np.int64)


def _one_or_all(values: Array) -> Array:
    """One number, or one for each row in C order."""
    if values.size and not any(values.strides):
        return np.array([values[(0,) * values.ndim]])
    return np.ascontiguousarray(values).reshape(-1)
