"""Edits of bfloat16 rows in float32, a cache line at a time: quick, and as good as in float64.

The request is one product of float32, at most SURE last places from the one rounded from
float64; where that could matter for the bfloat16 next to it, the line is done in float64. The
sum of two bfloat16 in float32 can be rounded again (24 >= 2 * 8 + 2: Figueroa 1995).
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._doses import Cells, state_pointer
from rmsfast._lanes import FAR, prefetch
from rmsfast._roundings import for_lanes, store_lanes
from rmsfast._stores import narrowed
from rmsfast._vectors import (
    BYTES,
    F32,
    F64,
    I1,
    I16,
    I32,
    I64,
    SCRATCH,
    WIDTH,
    Emitter,
    absent,
    bits_of,
)

LINE = 32  # coordinates of a cache line
SURE = 5  # last places of float32
QUICK_SUMS = (
    "after", "realised", "error", "rounded", "rounding", "along", "turn", "wrong_sign",
)  # fmt: skip
# RMS and factors of rows whose squares are far from the ends of the range of float32.
QUICK_LEAST, QUICK_MOST = 2.0**-30, 2.0**30
# The largest error of a piece is found by 17 bits of it, for the others say where it is.
PLACES = 2 * SCRATCH // LINE


class Halves:
    """A line of bfloat16 as float32, the even and the odd coordinates."""

    def __init__(self, em):
        self.em, self.b = em, em.b
        self.floats, self.integers = em.vector(F32), em.vector(I32)
        self.line = ir.VectorType(I16, LINE)

    def split(self, codes):
        """Float32 of a line of codes."""
        b, codes = self.b, self.b.bitcast(codes, self.integers)
        even = b.shl(codes, self.em.like(codes, 16))
        odd = b.and_(codes, self.em.like(codes, 0xFFFF0000))
        return [b.bitcast(v, self.floats) for v in (even, odd)]

    def words(self, pair, half):
        """The lower (half 0) or upper 16 bits of float32, in the order of the line."""
        even, odd = (self.b.bitcast(v, self.line) for v in pair)
        order = [2 * k + half + LINE * j for k in range(LINE // 2) for j in (0, 1)]
        return self.b.shuffle_vector(even, odd, ir.Constant(ir.VectorType(I32, LINE), order))

    def nearest(self, pair):
        """Float32 as bfloat16, up to a tie, and a mask of what is close to one."""
        b, em = self.b, self.em
        low = b.sub(self.words(pair, 0), ir.Constant(self.line, [0x8000 - SURE] * LINE))
        close = b.icmp_unsigned("<=", low, ir.Constant(self.line, [2 * SURE] * LINE))
        bits = [b.bitcast(v, self.integers) for v in pair]
        bits = [b.add(v, em.like(v, 0x8000)) for v in bits]
        bits = [b.and_(v, em.like(v, 0xFFFF0000)) for v in bits]
        return [b.bitcast(v, self.floats) for v in bits], close

    def nearest_even(self, pair):
        """Codes of float32."""
        b = self.b
        low, code = self.words(pair, 0), self.words(pair, 1)
        last = b.and_(code, ir.Constant(self.line, [1] * LINE))
        half = b.sub(ir.Constant(self.line, [0x8000] * LINE), last)
        return b.add(code, b.zext(b.icmp_unsigned(">", low, half), self.line))


class Extremes:
    """What a line adds to a state beside sums: what is unchanged, and the largest."""

    def __init__(self, em, whole):
        self.em, self.whole, self.b = em, whole, em.b
        self.line = whole.vector(I16)
        self.unchanged = cgutils.alloca_once_value(em.b, I32(0))
        self.peak, self.peak_line = (
            cgutils.alloca_once_value(em.b, ir.Constant(self.line, None)) for _ in range(2)
        )
        self.worst = cgutils.alloca_once_value(em.b, em.fill(I32, 0))

    def add(self, codes, changed, errors, number, asked):
        """number: of the line in the piece; asked: bits of the coordinates that are edited."""
        em, b = self.em, self.b
        same = b.bitcast(b.icmp_unsigned("==", codes, changed), I32)
        same = em.call("llvm.ctpop.i32", I32, b.and_(same, asked))
        b.store(b.add(b.load(self.unchanged), same), self.unchanged)
        size = b.and_(codes, ir.Constant(self.line, [0x7FFF] * LINE))
        largest = b.load(self.peak)
        above = b.icmp_unsigned(">", size, largest)
        b.store(b.select(above, size, largest), self.peak)
        lines = self.whole.splat(b.trunc(number, I16))
        b.store(b.select(above, lines, b.load(self.peak_line)), self.peak_line)
        place = b.sub(I32(PLACES - 1), b.shl(b.trunc(number, I32), I32(1)))
        for k, error in enumerate(errors):
            key = b.bitcast(error, em.vector(I32))
            key = b.and_(key, em.like(key, 0x80000000 - PLACES))
            key = b.or_(key, em.splat(b.sub(place, I32(k))))
            worst = b.load(self.worst)
            b.store(b.select(b.icmp_unsigned(">", key, worst), key, worst), self.worst)

    def first(self, em, v, largest, numbers):
        """The least of the numbers of the lanes that are the largest."""
        kind = numbers.type
        lanes = em.b.icmp_unsigned("==", v, em.splat(largest))
        found = em.b.select(lanes, numbers, ir.Constant(kind, [2**15 - 1] * kind.count))
        name = f"llvm.vector.reduce.umin.v{kind.count}i{kind.element.width}"
        return em.b.zext(em.call(name, kind.element, found), I64)

    def largest(self):
        """The largest |c| as float64, and its place in the piece."""
        b, v = self.b, self.b.load(self.peak)
        code = self.em.call(f"llvm.vector.reduce.umax.v{LINE}i16", I16, v)
        numbers = b.shl(b.load(self.peak_line), ir.Constant(self.line, [5] * LINE))
        numbers = b.add(numbers, ir.Constant(self.line, list(range(LINE))))
        value = b.bitcast(b.shl(b.zext(code, I32), I32(16)), F32)
        return b.fpext(value, F64), self.first(self.whole, v, code, numbers)

    def furthest(self):
        """The place of the largest error in the piece."""
        b, v = self.b, self.b.load(self.worst)
        key = self.em.call(f"llvm.vector.reduce.umax.v{self.em.lanes}i32", I32, v)
        numbers = ir.Constant(self.em.vector(I32), list(range(self.em.lanes)))
        lane = self.first(self.em, v, key, numbers)
        place = b.zext(b.sub(I32(PLACES - 1), b.and_(key, I32(PLACES - 1))), I64)
        number, half = b.lshr(place, I64(1)), b.and_(place, I64(1))
        within = b.add(b.shl(lane, I64(1)), half)
        return b.add(b.mul(number, I64(LINE)), within)


def fold_quick(em, cells, extremes, state, first, error_at):
    """Add what was found in a piece to a state; error_at(place) is the error in float64."""
    b = em.b
    parts = [ir.Constant(ir.VectorType(I32, WIDTH), list(range(k, k + WIDTH))) for k in (0, WIDTH)]
    for name in cells.names:
        v = b.fpext(cells.get(name), em.vector(F64))
        low, high = (b.shuffle_vector(v, v, part) for part in parts)
        pointer = state_pointer(em, state, name)
        known = b.load(pointer)
        known.align = 8
        b.store(b.fadd(known, b.fadd(low, high)), pointer).align = 8

    def cell(name):  # the first lane
        return b.bitcast(state_pointer(em, state, name), F64.as_pointer())

    count = b.uitofp(b.load(extremes.unchanged), F64)
    b.store(b.fadd(b.load(cell("unchanged")), count), cell("unchanged"))
    place = extremes.furthest()
    error = em.call("llvm.fabs.f64", F64, error_at(place))
    for name, (value, index) in (("peak", extremes.largest()), ("worst", (error, place))):
        with b.if_then(b.fcmp_ordered(">", value, b.load(cell(name)))):
            b.store(value, cell(name))
            b.store(b.sitofp(b.add(first, index), F64), cell(name + "_index"))


@intrinsic
def quick_run(
    typingctx, state, h, u, single, report, pointers, target, past, factor, in_single, ahead,
    first, count,
):  # fmt: skip
    """`dose_run` of bfloat16 to nearest, cast first.

    single: u as float32, each line parted in even and odd coordinates, then for each line the
    bits of what is not 0 in it. past: whether the target begins a cache line, and lines of it go
    past the caches.

    in_single: whether edits are made in float32, not float64; ahead: bytes from here to rows
    that come later, which are fetched meanwhile.
    """
    signature = types.void(
        types.voidptr, h, u, single, report, pointers, types.voidptr, types.boolean, types.float64,
        types.boolean, types.intp, types.intp, types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        b, em = builder, Emitter(context, builder, lanes=LINE // 2)
        whole = Emitter(context, builder, lanes=LINE)
        halves = Halves(em)
        reported = not absent(signature.args[4])
        pointers, target, past = cgutils.unpack_tuple(b, args[5]), args[6], args[7]
        factor, in_single, ahead, first, count = args[8:]
        array = context.make_array(signature.args[3])(context, b, args[3])
        data = b.bitcast(array.data, BYTES)
        # After all the lines, a word for each, that is after 32 of 33 parts of the array.
        words = b.mul(b.udiv(b.extract_value(array.shape, 0), I64(LINE + 1)), I64(LINE))
        words = b.gep(data, [b.mul(b.add(words, b.udiv(first, I64(LINE))), I64(4))])
        single = b.gep(data, [b.mul(first, I64(4))])
        scale = em.splat(b.fptrunc(factor, F32))
        cells = Cells(em, F32, QUICK_SUMS if reported else ())
        extremes = Extremes(em, whole) if reported else None

        def number_at(pointer, kind, place):
            one = Emitter(context, builder, lanes=1)
            v, _ = one.load(kind, pointer, b.mul(place, I64(bits_of(kind) // 8)))
            return b.extract_element(v, I32(0))

        def error_at(place):
            c, u = (
                number_at(pointers[k], kind, place) for k, kind in ((0, "bfloat16"), (1, "float64"))
            )
            realised = b.fsub(number_at(target, "bfloat16", place), c)
            return b.fsub(realised, b.fmul(u, factor))

        def requests(index):
            """Codes of the rounded requests, each from float64."""
            p = b.gep(pointers[1], [b.mul(index, I64(8))])
            u = b.load(b.bitcast(p, whole.vector(F64).as_pointer()))
            u.align = 1
            q = b.fmul(u, whole.splat(factor))
            made = b.fpext(b.fptrunc(q, whole.vector(F32)), q.type)
            return narrowed(whole, "bfloat16", b.select(whole.splat(in_single), made, q))

        def run(index, valid):
            offset = b.mul(index, I64(2))
            prefetch(em, pointers[0], b.add(offset, ahead), FAR)
            codes = whole.stored("bfloat16", pointers[0], offset, valid)
            c = halves.split(codes)
            u = [
                em.stored("float32", single, b.mul(b.add(index, I64(k)), I64(4)))
                for k in (0, em.lanes)
            ]
            q = [b.fmul(v, scale) for v in u]
            r, close = halves.nearest(q)
            cells_r = [cgutils.alloca_once_value(b, v) for v in r]
            some = em.call(f"llvm.vector.reduce.or.v{LINE}i1", I1, close)
            with b.if_then(some, likely=False):
                mended = b.select(close, requests(index), halves.words(r, 1))
                for v, cell in zip(halves.split(mended), cells_r, strict=True):
                    b.store(v, cell)
            r = [b.load(cell) for cell in cells_r]
            changed = halves.nearest_even([b.fadd(*pair) for pair in zip(c, r, strict=True)])
            if valid is None:
                with b.if_then(past):
                    place = b.bitcast(b.gep(target, [offset]), changed.type.as_pointer())
                    store = b.store(changed, place)
                    store.align = 2 * LINE
                    one = b.module.add_metadata([ir.Constant(I32, 1)])
                    store.set_metadata("nontemporal", one)
                with b.if_then(b.not_(past)):
                    store_lanes(whole, "bfloat16", target, index, changed, None)
            else:
                store_lanes(whole, "bfloat16", target, index, changed, valid)
            if not reported:
                return
            a = halves.split(changed)
            errors = [cells.compare(c[k], a[k], q[k], r[k], u[k], scale) for k in (0, 1)]
            number = b.udiv(index, I64(LINE))
            asked = b.load(b.gep(b.bitcast(words, I32.as_pointer()), [number]))
            extremes.add(codes, changed, errors, number, asked)

        for_lanes(whole, count, run)
        if reported:
            fold_quick(em, cells, extremes, args[0], first, error_at)
        return context.get_dummy_value()

    return signature, codegen
