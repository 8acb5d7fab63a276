"""What an edit makes of a run of a row: stored values, and the sums that a report needs.

Per coordinate: clean state c (h in the storage format), request q = u times the factor of the
row, edit e (q in the format that edits are made in), rounded request r (e in the storage format),
and stored state a = c + r or c + e, rounded once, or a state that is given.

A *state* is memory of float64, WIDTH lanes for each of SUMS. In general all is done in float64;
rows of bfloat16 of moderate size, edited in the usual way, are done in float32.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._memory import component_bytes, stack
from rmsfast._roundings import EDIT, LIMITS, OWN, SUM, Way, for_lanes, odd, store_lanes
from rmsfast._runs import FAR, prefetch
from rmsfast._stores import narrowed
from rmsfast._terms import Sum
from rmsfast._vectors import (
    F32,
    F64,
    I1,
    I32,
    I64,
    WIDTH,
    Emitter,
    absent,
    component_of,
    kind_of,
)

SUMS = (
    "clean",  # c**2
    "after",  # a**2
    "realised",  # (a - c)**2
    "error",  # (a - c - q)**2
    "rounded",  # r**2
    "rounding",  # (r - q)**2
    "along",  # (a - c) * u
    "turn",  # (a - c) * c
    "unchanged",  # counts: a == c though q is not 0
    "wrong_sign",  # (a - c) * q < 0
    "overflow",
    "nonfinite",
    "count",  # of kept coordinates
    "peak",  # largest |c|, and the first place of it
    "peak_index",
    "worst",  # largest |a - c - q|
    "worst_index",
)
# Sums start from -0.0, as in _lanes.
STARTS = tuple(-1.0 if name in ("peak", "worst") else -0.0 for name in SUMS)
EDIT_FORMATS = ("float64", *LIMITS)
LANES = 16  # that are edited at once where there is no report


class Cells:
    """The sums of a state in registers, lanes of float64 or of float32."""

    def __init__(self, em, element, names):
        self.em, self.element, self.names = em, element, names
        self.suffix = f"v{em.lanes}f{64 if element is F64 else 32}"
        starts = (em.fill(element, STARTS[SUMS.index(name)]) for name in names)
        cells = (cgutils.alloca_once_value(em.b, start) for start in starts)
        self.cells = dict(zip(names, cells, strict=True))

    def get(self, name):
        return self.em.b.load(self.cells[name])

    def put(self, name, v):
        self.em.b.store(v, self.cells[name])

    def add(self, name, v, w):
        """Add v * w."""
        total = self.get(name)
        if self.em.fused:
            self.put(name, self.em.call(f"llvm.fma.{self.suffix}", v.type, v, w, total))
        else:
            self.put(name, self.em.b.fadd(total, self.em.b.fmul(v, w)))

    def count(self, name, mask):
        b, total = self.em.b, self.get(name)
        self.put(name, b.select(mask, b.fadd(total, self.em.like(total, 1.0)), total))

    def further(self, name, v, index, keep=None):
        """Keep the largest |v|, the first of equals, and its index."""
        b, largest = self.em.b, self.get(name)
        size = self.em.call(f"llvm.fabs.{self.suffix}", v.type, v)
        beyond = b.fcmp_ordered(">", size, largest)
        beyond = beyond if keep is None else b.and_(beyond, keep)
        self.put(name, b.select(beyond, size, largest))
        self.put(name + "_index", b.select(beyond, index, self.get(name + "_index")))

    def beside(self, v, u, q, factor):
        """V - q, where q is u times factor: in float32 without the rounding of q."""
        if self.element is F64 or not self.em.fused:
            return self.em.b.fsub(v, q)
        return self.em.call(f"llvm.fma.{self.suffix}", v.type, self.em.b.fneg(u), factor, v)

    def compare(self, c, a, q, r, u, factor):
        """Add the products of an edit, in which what is not kept is 0; its error."""
        b, zero = self.em.b, self.em.like(c, 0.0)
        d = b.fsub(a, c)
        error, rounding = self.beside(d, u, q, factor), self.beside(r, u, q, factor)
        self.add("after", a, a)
        self.add("realised", d, d)
        self.add("error", error, error)
        self.add("rounded", r, r)
        self.add("rounding", rounding, rounding)
        self.add("along", d, u)
        self.add("turn", d, c)
        if "wrong_sign" in self.names:
            self.count("wrong_sign", b.fcmp_ordered("<", b.fmul(d, q), zero))
        return error


def state_pointer(em, state, name):
    lanes = em.b.bitcast(state, ir.VectorType(F64, WIDTH).as_pointer())
    return em.b.gep(lanes, [I64(SUMS.index(name))])


@intrinsic
def new_state(typingctx, unused):
    """Memory on the stack for a state."""
    signature = types.voidptr(unused)

    def codegen(context, builder, signature, args):
        return stack(builder, ir.ArrayType(F64, len(SUMS) * WIDTH))

    return signature, codegen


@intrinsic
def clear(typingctx, state):
    """Make a state one of nothing."""
    signature = types.void(types.voidptr)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        for name, start in zip(SUMS, STARTS, strict=True):
            builder.store(em.fill(F64, start), state_pointer(em, args[0], name)).align = 8
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def totals(typingctx, state):
    """Each of SUMS over the lanes of a state; of the largest the first, and its place."""
    signature = types.UniTuple(types.float64, len(SUMS))(types.voidptr)

    def codegen(context, builder, signature, args):
        em, found = Emitter(context, builder), {}

        def lanes(name):
            v = builder.load(state_pointer(em, args[0], name))
            v.align = 8
            return v

        def further(p, q):
            (v, i), (w, j) = p, q
            beyond = builder.and_(builder.fcmp_ordered("==", v, w), builder.fcmp_ordered("<", j, i))
            beyond = builder.or_(builder.fcmp_ordered(">", w, v), beyond)
            return builder.select(beyond, w, v), builder.select(beyond, j, i)

        for name in ("peak", "worst"):
            pair = lanes(name), lanes(name + "_index")
            found[name], found[name + "_index"] = em.lanes_tree([pair], further)
        plain = [name for name in SUMS if name not in found]
        for k in range(0, len(plain), WIDTH):
            names = plain[k : k + WIDTH]
            rows = [(lanes(name),) for name in names]
            rows += [(em.fill(F64, 0.0),)] * (WIDTH - len(rows))
            (sums,) = em.rows_tree(rows, lambda p, q: (builder.fadd(p[0], q[0]),))
            for i, name in enumerate(names):
                found[name] = builder.extract_element(sums, I32(i))
        return context.make_tuple(builder, signature.return_type, [found[n] for n in SUMS])

    return signature, codegen


def load_lanes(em, array, pointer, index, valid):
    """Values of a run of an array, stored lanes and float64."""
    kind, offset = component_of(array), em.b.mul(index, I64(component_bytes(array)))
    stored = em.stored(kind, pointer, offset, valid)
    return stored, em.widen(kind, stored)[0]


class Dose:
    """An edit in float64, known from the types of (h, u, after, where, -, masks), the result."""

    def __init__(self, arrays, result):
        arrays = tuple(None if absent(a) else a for a in arrays)
        self.h, self.u, self.given = arrays[:3]
        self.masks = {k: a for k, a in enumerate(arrays) if k in Sum.codes and a is not None}
        self.kind = component_of(result)
        self.cast = self.given is None and component_of(self.h) != self.kind

    def request(self, em, edit_format, q):
        """The request in the format that edits are made in, to nearest."""
        b, cell = em.b, cgutils.alloca_once_value(em.b, q)
        for k, kind in enumerate(EDIT_FORMATS[1:], 1):
            with b.if_then(b.icmp_signed("==", edit_format, I64(k))):
                b.store(em.widen(kind, narrowed(em, kind, q))[0], cell)
        return b.load(cell)

    def kept(self, em, pointers, index, valid):
        """Mask of the lanes that count (None: all)."""
        keep = valid
        for k, mask in self.masks.items():
            stored = em.stored("bool", pointers[k], index, valid)
            sign = "==" if kind_of(mask) == "hidden" else "!="
            chosen = em.b.icmp_unsigned(sign, stored, em.like(stored, 0))
            keep = chosen if keep is None else em.b.and_(keep, chosen)
        return keep


@intrinsic
def dose_run(
    typingctx, state, arrays, result, report, pointers, target, factor, edited, way, place, first,
    count,
):  # fmt: skip
    """target[0:count] = a of a run of a row; with a report, its sums are added to the state.

    edited: whether the row is edited at all; way: mode, saturate, seed, add_first, edit_format,
    first_row; place: number of the first element of the row in the caller's array; first: of the
    run, in the row.
    """
    signature = types.void(
        types.voidptr, arrays, result, report, pointers, types.voidptr, types.float64,
        types.boolean, types.UniTuple(types.int64, 6), types.intp, types.intp, types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        b, em = builder, Emitter(context, builder)
        dose = Dose(*signature.args[1:3])
        reported = not absent(signature.args[3])
        pointers, target = cgutils.unpack_tuple(b, args[4]), args[5]
        factor, edited = em.splat(args[6]), em.splat(args[7])
        mode, saturate, seed, add_first, edit_format, _ = cgutils.unpack_tuple(b, args[8])
        place, first, count = args[9:]
        way = Way(em, mode, saturate, seed, b.add(place, first))
        add_first = em.splat(b.icmp_signed("!=", add_first, I64(0)))
        cells = Cells(em, F64, SUMS if reported else ())
        for name in cells.names:
            v = b.load(state_pointer(em, args[0], name))
            v.align = 8
            cells.put(name, v)
        numbers = ir.Constant(em.vector(F64), [float(k) for k in range(WIDTH)])
        zero = em.fill(F64, 0.0)

        def run(index, valid):
            way.draw(index)
            keep = dose.kept(em, pointers, index, valid)
            code, c = load_lanes(em, dose.h, pointers[0], index, valid)
            over = None
            if dose.cast:
                code, over = way.rounded(dose.kind, c, OWN)
                c = em.widen(dose.kind, code)[0]
            _, u = load_lanes(em, dose.u, pointers[1], index, valid)
            q = b.select(edited, b.fmul(u, factor), zero)
            e = dose.request(em, edit_format, q)
            rounded, lost = way.rounded(dose.kind, e, EDIT)
            r = em.widen(dose.kind, rounded)[0]
            if dose.given is None:
                s, error = em.two_sum(c, b.select(add_first, e, r))
                changed, more = way.rounded(dose.kind, odd(em, s, error), SUM)
                edits = edited if keep is None else b.and_(edited, keep)
                changed = b.select(edits, changed, code)
                store_lanes(em, dose.kind, target, index, changed, valid)
                a = em.widen(dose.kind, changed)[0]
                lost = b.or_(more, b.and_(lost, b.not_(add_first)))
                lost = b.and_(lost, edits)
                over = lost if over is None else b.or_(over, lost)
            else:
                _, a = load_lanes(em, dose.given, pointers[2], index, valid)
                over = b.and_(finite(em, c), b.not_(finite(em, a)))
            if not reported:
                return
            count = em.fill(I1, 1)
            if keep is not None:
                c, a, q, r, u = (b.select(keep, v, zero) for v in (c, a, q, r, u))
                over, count = b.and_(over, keep), keep
            place = b.fadd(numbers, em.splat(b.sitofp(b.add(first, index), F64)))
            cells.add("clean", c, c)
            error = cells.compare(c, a, q, r, u, factor)
            asked = b.fcmp_ordered("one", q, zero)
            cells.count("unchanged", b.and_(asked, b.fcmp_ordered("==", a, c)))
            cells.further("peak", c, place, keep)
            cells.further("worst", error, place, keep)
            cells.count("overflow", over)
            cells.count("nonfinite", b.not_(finite(em, a)))
            cells.count("count", count)

        for_lanes(em, count, run)
        for name in cells.names:
            b.store(cells.get(name), state_pointer(em, args[0], name)).align = 8
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def plain_run(typingctx, h, u, result, pointers, target, past, factor, in_single, ahead, count):
    """`dose_run` to nearest, cast first, of rows that are finite, without masks or a report.

    past: whether the target begins a cache line, and what is written goes past the caches;
    in_single: whether edits are made in float32, not float64; ahead: bytes from here to rows that
    come later, which are fetched meanwhile.
    """
    signature = types.void(
        h, u, result, pointers, types.voidptr, types.boolean, types.float64, types.boolean,
        types.intp, types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        b, em = builder, Emitter(context, builder, lanes=LANES)
        (h, u), kind = signature.args[:2], component_of(signature.args[2])
        pointers, target, past = cgutils.unpack_tuple(b, args[3]), args[4], args[5]
        factor, in_single, ahead, count = em.splat(args[6]), em.splat(args[7]), args[8], args[9]

        def run(index, valid):
            offset = b.mul(index, I64(component_bytes(h)))
            prefetch(em, pointers[0], b.add(offset, ahead), FAR)
            code = em.stored(kind, pointers[0], offset, valid)
            q = b.fmul(load_lanes(em, u, pointers[1], index, valid)[1], factor)
            if kind == "float32":  # whose sums are rounded once
                changed = b.fadd(code, b.fptrunc(q, code.type))
            else:  # whose sums are exact in float64
                made = b.fpext(b.fptrunc(q, em.vector(F32)), q.type)
                r = em.widen(kind, narrowed(em, kind, b.select(in_single, made, q)))[0]
                changed = narrowed(em, kind, b.fadd(em.widen(kind, code)[0], r))
            if valid is not None:
                store_lanes(em, kind, target, index, changed, valid)
                return
            with b.if_else(past) as (yes, no):
                with yes:
                    store_lanes(em, kind, target, index, changed, None, past=True)
                with no:
                    store_lanes(em, kind, target, index, changed, None)

        for_lanes(em, count, run)
        return context.get_dummy_value()

    return signature, codegen


def finite(em, v):
    return em.b.fcmp_ordered("<", em.absolute(v), em.like(v, float("inf")))
