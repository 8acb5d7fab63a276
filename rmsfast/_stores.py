"""Scaled writes: the @intrinsic functions that turn a run of x into a run of the result.

y = x * (high + low) * gain, in float64 or pairs, rounded to the storage format once.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._edges import LINE, Edges, Pending, stream
from rmsfast._memory import component_bytes, stack
from rmsfast._runs import FAR, Adder, PairAdder, load_all, prefetch, valid_lanes
from rmsfast._swift import GAINS, SPARE, Swift, arrange
from rmsfast._terms import Sum
from rmsfast._vectors import (
    BYTES,
    F32,
    F64,
    HALF,
    I1,
    I16,
    I32,
    I64,
    LANES,
    STORED,
    Emitter,
    absent,
    bits_of,
    component_of,
    has_feature,
)

INF = float("inf")
PACKED = 4096  # exponents before and after travel as PACKED * before + after

# Formats of 8 bits: bits of the fraction, least normal exponent, largest value, its excess.
FLOAT8 = {
    "float8_e4m3fn": (3, -6, 448.0, 0x7F),
    "float8_e5m2": (2, -14, 57344.0, 0x7C),
}


def narrowed(em, kind, v):
    """Float64 lanes rounded to a storage format, to nearest even, from their full precision."""
    b = em.b
    if kind == "float64":
        return v
    single = b.fptrunc(v, em.vector(F32))
    if kind == "float32":
        return single
    bits = b.bitcast(single, em.vector(I32))
    # Rounding twice is wrong only where float32 lies halfway between two codes; there, and
    # where codes are subnormal, float32 is first made odd if it is not exact (Boldo and
    # Melquiond 2008: then the second rounding sees which side the value is on).
    size = b.and_(bits, em.like(bits, 0x7FFFFFFF))
    dropped = {"bfloat16": 16, "float16": 13, "float8_e4m3fn": 20, "float8_e5m2": 21}[kind]
    least = {"bfloat16": 0, "float16": 113, "float8_e4m3fn": 121, "float8_e5m2": 113}[kind] << 23
    halfway = b.icmp_unsigned(
        "==", b.and_(bits, em.like(bits, (1 << dropped) - 1)), em.like(bits, 1 << (dropped - 1))
    )
    small = b.icmp_unsigned("<", size, em.like(size, least))
    some = em.call(f"llvm.vector.reduce.or.v{em.lanes}i1", I1, b.or_(halfway, small))
    cell = cgutils.alloca_once_value(b, bits)
    with b.if_then(some, likely=False):
        back = b.fpext(single, em.vector(F64))
        beyond = b.fcmp_ordered(">", em.absolute(back), em.absolute(v))
        inexact = b.fcmp_ordered("one", back, v)
        odd = b.sub(bits, b.zext(beyond, bits.type))
        b.store(b.or_(odd, b.zext(inexact, bits.type)), cell)
    return encoded(em, kind, b.load(cell))


def encoded(em, kind, bits):
    """Codes of float32 bits, rounded to nearest even."""
    b = em.b
    size = b.and_(bits, em.like(bits, 0x7FFFFFFF))
    nan = b.icmp_unsigned(">", size, em.like(size, 0x7F800000))
    sign = b.lshr(b.and_(bits, em.like(bits, 0x80000000)), em.like(bits, 32 - bits_of(kind)))
    if kind == "bfloat16":
        even = b.and_(b.lshr(size, em.like(size, 16)), em.like(size, 1))
        code = b.lshr(b.add(b.add(size, em.like(size, 0x7FFF)), even), em.like(size, 16))
        code = b.select(nan, em.like(code, 0x7FC0), code)
    elif kind == "float16":
        code = half_code(em, size)
        code = b.select(nan, em.like(code, 0x7E00), code)
    else:
        code = float8_code(em, kind, size)
        code = b.select(nan, em.like(code, 0x7F if kind.endswith("fn") else 0x7E), code)
    return b.trunc(b.or_(code, sign), em.vector(STORED[kind]))


def half_code(em, size):
    """Float16 codes of the bits of non-negative float32."""
    b = em.b
    if has_feature(em.context, "f16c"):
        half = b.fptrunc(b.bitcast(size, em.vector(F32)), em.vector(HALF))
        return b.zext(b.bitcast(half, em.vector(I16)), size.type)
    even = b.and_(b.lshr(size, em.like(size, 13)), em.like(size, 1))
    normal = b.sub(b.add(b.add(size, em.like(size, 0xFFF)), even), em.like(size, 112 << 23))
    normal = b.lshr(normal, em.like(size, 13))
    # Adding 0.5 shifts a subnormal code to the end of the fraction, rounded by the processor.
    half = em.fill(F32, 0.5)
    shifted = b.bitcast(b.fadd(b.bitcast(size, em.vector(F32)), half), size.type)
    subnormal = b.sub(shifted, em.like(size, 126 << 23))
    code = b.select(b.icmp_unsigned("<", size, em.like(size, 113 << 23)), subnormal, normal)
    over = b.icmp_unsigned(">=", size, em.like(size, 0x477FF000))
    return b.select(over, em.like(code, 0x7C00), code)


def float8_code(em, kind, size):
    """Float8 codes of the bits of non-negative float32."""
    b = em.b
    fraction, least, largest, excess = FLOAT8[kind]
    exponent = b.and_(size, em.like(size, 0x7F800000))
    floor = em.like(size, (127 + least) << 23)
    exponent = b.select(b.icmp_unsigned(">", exponent, floor), exponent, floor)
    exponent = b.select(
        b.icmp_unsigned("<", exponent, em.like(size, 200 << 23)), exponent, em.like(size, 200 << 23)
    )
    # A number whose last bit is worth the spacing of the codes here, and half as much again.
    grid = b.bitcast(
        b.add(exponent, em.like(size, ((23 - fraction) << 23) | 0x400000)), em.vector(F32)
    )
    v = b.bitcast(size, em.vector(F32))
    v = b.fsub(b.fadd(v, grid), grid)
    over = b.fcmp_ordered(">", v, em.like(v, largest))
    v = b.fmul(v, em.like(v, 2.0 ** (-126 - least)))
    code = b.lshr(b.bitcast(v, size.type), em.like(size, 23 - fraction))
    return b.select(over, em.like(code, excess), code)


class Scaling:
    """What is written, from the types of (x, gain, high, low, shift) and the result.

    high (and low, and shift) are arrays where every element has a factor of its own, None
    where one factor serves a run. cast: None if rounding comes last, else before the gain.
    """

    codes: frozenset[int] = frozenset()

    def __init__(self, arrays, result, cast):
        self.arrays = tuple(None if absent(a) else a for a in arrays)
        self.x, self.gain, self.high, self.low, self.shift = self.arrays
        self.kind = component_of(result)
        self.cast = not absent(cast)
        self.pairs = self.kind == "float64"

    def value(self, em, values, factor):
        """The stored result of one vector."""
        b, (x, gain, high, low, shift) = em.b, values
        v, e = x
        if high is not None:
            factor = [high[0], low and low[0], shift and self.shifts(em, shift[0])]
        high, low, shift = factor
        if shift is not None:
            v, e = b.fmul(v, shift[0]), e and b.fmul(e, shift[0])
        if not self.pairs:
            y = b.fmul(v, high)
        else:
            y, error = em.two_product(v, high)
            error = b.fadd(error, b.fmul(v, low))
            if e is not None:
                error = b.fadd(error, b.fmul(e, high))
        if gain is None or self.cast:
            y = self.joined(em, y, error) if self.pairs else y
            y = y if shift is None else b.fmul(y, shift[1])
        if gain is None:
            return narrowed(em, self.kind, y)
        if self.cast:
            y = b.fmul(em.widen(self.kind, narrowed(em, self.kind, y))[0], gain[0])
        elif self.pairs:
            if shift is not None:
                y, error = b.fmul(y, shift[1]), b.fmul(error, shift[1])
            y, more = em.two_product(y, gain[0])
            y = self.joined(em, y, b.fadd(more, b.fmul(error, gain[0])))
        else:
            y = b.fmul(y, gain[0])
        return narrowed(em, self.kind, y)

    def shifts(self, em, shift):
        """The powers of two before and after, from PACKED * exponent + exponent."""
        b = em.b
        steps = em.call(
            f"llvm.floor.v{em.lanes}f64", shift.type,
            b.fadd(b.fmul(shift, em.like(shift, 1.0 / PACKED)), em.like(shift, 0.5)),
        )  # fmt: skip
        rest = b.fsub(shift, b.fmul(steps, em.like(shift, float(PACKED))))
        powers = []
        for exponent in (steps, rest):
            bits = b.fptosi(exponent, em.vector(I64))
            bits = b.shl(b.add(bits, em.like(bits, 1023)), em.like(bits, 52))
            powers.append(b.bitcast(bits, shift.type))
        return powers

    def joined(self, em, y, error):
        """Y + error, where y is finite."""
        finite = em.b.fcmp_ordered("<", em.absolute(y), em.like(y, INF))
        return em.b.select(finite, em.b.fadd(y, error), y)


SMALL, LARGER = 2.0**-960, 2.0**600  # sizes below which a quotient may lose digits; a factor


class Division:
    """The same of x over sizes, from the types of (x, left, right, share).

    A size is left + (right - left) * share; right may be None, or share, which then is one
    number for a run. Where x has the range of float64, sizes below SMALL are given LARGER times
    as large, and negative.
    """

    codes: frozenset[int] = frozenset()
    gain = cast = None

    def __init__(self, arrays, result):
        self.arrays = tuple(None if absent(a) else a for a in arrays)
        self.x, self.high, self.right, _ = self.arrays
        self.kind = component_of(result)
        self.careful = component_of(self.x) == "float64"

    def value(self, em, values, factor):
        """The stored result of one vector; factor: size for 0, share."""
        b, (x, left, right, share) = em.b, values
        v, left, up = x[0], left[0], None
        zero, one = em.like(left, 0.0), em.like(left, 1.0)
        ends = [left]
        if right is not None:
            share = factor[1] if share is None else share[0]
            centre = b.fcmp_ordered("==", share, zero)  # of the window on the left
            ends.append(b.select(centre, left, right[0]))
        if self.careful:
            tiny = [b.fcmp_ordered("<=", end, zero) for end in ends]
            up = tiny[0] if right is None else b.and_(*tiny)
            for k, end in enumerate(ends):
                large = b.fneg(end)
                own = b.select(tiny[k], b.fmul(large, em.like(end, 1.0 / LARGER)), end)
                ends[k] = b.select(up, large, own)
        size = ends[0]
        if right is not None:
            between = b.fadd(b.fmul(size, b.fsub(one, share)), b.fmul(ends[1], share))
            size = b.select(centre, size, between)
        none = b.fcmp_ordered("==", size, zero)
        if up is not None:
            up = b.and_(up, b.not_(none))
            v = b.select(up, b.fmul(v, em.like(v, LARGER)), v)
        return narrowed(em, self.kind, b.fdiv(v, b.select(none, factor[0], size)))


def scaling_of(arrays, result, cast):
    return Division(arrays, result) if len(arrays) == 4 else Scaling(arrays, result, cast)


@intrinsic
def write_run(
    typingctx, arrays, result, cast, pointers, target, factor, offset, gains, count, ahead,
    streaming, pending, beside,
):  # fmt: skip
    """target[0:count] = round(x * factor * (offset + gain)), side by side; or see Division.

    factor: (high, low, before, after), used where arrays hold none; offset: added to the gain
    in float64; gains: the sums as `arrange_gains` leaves them. ahead: bytes from here to the x of
    later runs, which are fetched meanwhile. streaming: whole cache lines go past the caches, but
    for the last, which is kept in `pending` for a run that follows (`write_pending` and `fence`
    afterwards). beside: None, or (state, arrays, how, pointers, count) of a run as for
    `accumulate`, or of 0 elements. As many as are returned are added line by line to a state of
    nothing: so memory is read and written, and the processor calculates, all at the same time.
    """
    signature = types.intp(
        arrays, result, cast, pointers, types.voidptr, types.UniTuple(types.float64, 4),
        types.float64, types.voidptr, types.intp, types.intp, types.boolean, types.voidptr, beside,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        scaling = scaling_of(*signature.args[:3])
        size = bits_of(scaling.kind) // 8
        em = Emitter(context, builder, lanes=LINE // size)
        pointers = cgutils.unpack_tuple(builder, args[3])
        target = args[4]
        gains, count, ahead, past, pending = args[7:12]
        edges = Edges(em, size, target, count, past, Pending(builder, pending))
        adder, together = None, I64(0)
        if not absent(signature.args[12]):
            state, _, _, coming, more = cgutils.unpack_tuple(builder, args[12])
            coming = cgutils.unpack_tuple(builder, coming)
            adder = adder_of(context, builder, signature.args[12][1:3], state, coming)
            together = together if adder is None else more
        x_size = component_bytes(scaling.x)
        high, low, before, after = cgutils.unpack_tuple(builder, args[5])
        wide = "float64" in (component_of(scaling.x), scaling.kind)
        if not wide:  # one factor for all, finite: one that leaves no room is beyond the result too
            both = builder.fmul(before, after)
            both = builder.select(builder.fcmp_ordered("<", both, F64(1.0)), both, F64(1.0))
            high, low = (builder.fmul(v, both) for v in (high, low))
        shift = [em.splat(part) for part in (before, after)] if wide else None
        factor = [em.splat(high), em.splat(low), shift]
        offset = em.splat(args[6])
        element = em.vector(STORED[scaling.kind])

        def value(index, valid):
            values = load_all(em, scaling, pointers, index, valid)
            if scaling.gain is not None:
                values[1] = (builder.fadd(values[1][0], offset), None)
            return scaling.value(em, values, factor)

        def place(index):
            p = builder.gep(target, [builder.mul(index, I64(size))])
            return builder.bitcast(p, element.as_pointer())

        swift = None
        if Swift.serves(em, scaling):
            swift = Swift(em, scaling, args[5], gains, count)

        def store_edge(index, pointer):
            pointer = builder.bitcast(pointer, element.as_pointer())
            if swift is None:
                builder.store(value(index, None), pointer).align = 1
                return
            codes, doubt = swift.line(pointers[0], index, em.lanes)
            builder.store(codes, pointer).align = 1
            with builder.if_then(doubt, likely=False):
                builder.store(value(index, None), pointer).align = 1

        # Up to the first whole line of the target, then lines, then the rest.
        head, lines = edges.head, edges.lines
        with builder.if_else(edges.short) as (few, many):
            with few:
                letter = "f" if STORED[scaling.kind] in (F32, F64) else "i"
                name = f"llvm.masked.store.v{em.lanes}{letter}{8 * size}.p0"
                valid = valid_lanes(em, count)
                v = value(I64(0), valid)
                em.call(name, ir.VoidType(), v, place(I64(0)), I32(1), valid)
            with many:
                edges.write(store_edge)

        def index_of(k):
            return builder.add(head, builder.mul(k, I64(em.lanes)))

        def store_line(v, index):
            with builder.if_else(edges.streaming) as (past, through):
                with past:
                    stream(em, v, place(index))
                with through:
                    builder.store(v, place(index)).align = 1

        # Lines that are written at a time beside runs of LANES elements that are added.
        at_once = max(LANES // em.lanes, 1)
        both = builder.select(builder.icmp_signed(">", together, I64(0)), I64(-at_once), I64(0))

        def each_line(first, many, body):
            done = builder.and_(many, both)
            if adder is not None:
                with cgutils.for_range(builder, builder.udiv(done, I64(at_once))) as loop:
                    k = builder.mul(loop.index, I64(at_once))
                    start = builder.mul(builder.add(first, k), I64(em.lanes))
                    adder.fetch(start, at_once * em.lanes)
                    for run in range(0, at_once * em.lanes, LANES):
                        adder.add(builder.add(start, I64(run)))
                    for line in range(at_once):
                        own = builder.add(k, I64(line))
                        body(own, index_of(builder.add(first, own)))
            with cgutils.for_range(builder, builder.sub(many, done)) as loop:
                k = builder.add(done, loop.index)
                index = index_of(builder.add(first, k))
                far = builder.add(ahead, builder.mul(index, I64(x_size)))
                for step in range(0, em.lanes * x_size, LINE):
                    prefetch(em, pointers[0], builder.add(far, I64(step)), FAR)
                body(k, index)

        if swift is None:
            each_line(I64(0), lines, lambda _, i: store_line(value(i, None), i))
        else:
            doubts = cgutils.alloca_once(builder, I64)

            def store_swiftly(k, index):
                codes, doubt = swift.line(pointers[0], index, em.lanes)
                with builder.if_else(doubt, likely=False) as (unsure, sure):
                    with unsure:
                        bit = builder.shl(I64(1), k)
                        builder.store(builder.or_(builder.load(doubts), bit), doubts)
                    with sure:
                        store_line(codes, index)

            # Lines in doubt are done after 64 others, so that these keep their registers.
            groups = builder.udiv(builder.add(lines, I64(63)), I64(64))
            with cgutils.for_range(builder, groups) as group:
                first = builder.mul(group.index, I64(64))
                many = builder.sub(lines, first)
                many = builder.select(builder.icmp_signed("<", many, I64(64)), many, I64(64))
                builder.store(I64(0), doubts)
                each_line(first, many, store_swiftly)
                left = em.call("llvm.ctpop.i64", I64, builder.load(doubts))
                with cgutils.for_range(builder, left):
                    left = builder.load(doubts)
                    k = em.call("llvm.cttz.i64", I64, left, I1(1))
                    builder.store(builder.and_(left, builder.sub(left, I64(1))), doubts)
                    index = index_of(builder.add(first, k))
                    builder.store(value(index, None), place(index)).align = 1
        if adder is None:
            return I64(0)
        adder.close()
        return builder.mul(builder.and_(lines, both), I64(em.lanes))

    return signature, codegen


@intrinsic
def gain_space(typingctx, unused):
    """Memory on the stack for what `arrange_gains` leaves of GAINS gains."""
    signature = types.voidptr(unused)

    def codegen(context, builder, signature, args):
        return stack(builder, ir.ArrayType(F32, LINE // 4 + GAINS + 2 * SPARE))

    return signature, codegen


@intrinsic
def arrange_gains(typingctx, arrays, result, cast, pointers, offset, count, memory):
    """Leave the gains of a run (at most GAINS) in memory as `write_run` takes them."""
    signature = types.void(arrays, result, cast, pointers, types.float64, types.intp, types.voidptr)

    def codegen(context, builder, signature, args):
        scaling = scaling_of(*signature.args[:3])
        em = Emitter(context, builder)
        if scaling.gain is not None and Swift.serves(em, scaling):
            arrange(em, scaling, builder.extract_value(args[3], 1), *args[4:])
        return context.get_dummy_value()

    return signature, codegen


def adder_of(context, builder, signature, state, pointers):
    """What adds to the state of a row; None for squares that are added as integers."""
    total = Sum(*signature)
    if total.whole:
        return None
    kind = PairAdder if total.paired else Adder
    return kind(context, builder, total, state, pointers, fresh=True)


@intrinsic
def scatter(typingctx, source, result, offset, stride, count):
    """Copy a run to elements of the result, `stride` bytes apart."""
    signature = types.void(types.voidptr, result, types.intp, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        element = ir.IntType(bits_of(component_of(signature.args[1])))
        data = context.make_array(signature.args[1])(context, builder, args[1]).data
        target = builder.gep(builder.bitcast(data, BYTES), [args[2]])
        source = builder.bitcast(args[0], element.as_pointer())
        with cgutils.for_range(builder, args[4]) as loop:
            v = builder.load(builder.gep(source, [loop.index]))
            p = builder.gep(target, [builder.mul(loop.index, args[3])])
            builder.store(v, builder.bitcast(p, element.as_pointer())).align = 1
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def number_at(typingctx, array, offset):
    """The float64 at a byte offset of an array; 0 where there is none."""
    signature = types.float64(array, types.intp)

    def codegen(context, builder, signature, args):
        if absent(signature.args[0]):
            return F64(0.0)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        p = builder.gep(builder.bitcast(data, BYTES), [args[1]])
        return builder.load(builder.bitcast(p, F64.as_pointer()))

    return signature, codegen


@intrinsic
def any_nonzero(typingctx, array, pointer, count):
    """Whether one of `count` stored numbers side by side is not 0 (NaN is not)."""
    signature = types.boolean(array, types.voidptr, types.intp)

    def codegen(context, builder, signature, args):
        kind = component_of(signature.args[0])
        element = ir.IntType(bits_of(kind))
        ignore = element(2 ** (element.width - 1)) if "float" in kind else element(0)  # the sign
        p = builder.bitcast(args[1], element.as_pointer())
        found = cgutils.alloca_once_value(builder, ir.IntType(1)(0))
        with cgutils.for_range(builder, args[2]) as loop:
            v = builder.load(builder.gep(p, [loop.index]))
            v.align = 1
            v = builder.and_(v, builder.not_(ignore))
            nonzero = builder.icmp_unsigned("!=", v, element(0))
            with builder.if_then(nonzero):
                builder.store(ir.IntType(1)(1), found)
                loop.do_break()
        return builder.load(found)

    return signature, codegen
