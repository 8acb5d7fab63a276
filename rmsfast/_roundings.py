"""Rounding to a storage format in several ways, and runs of arrays rounded so.

To nearest (ties to even), toward zero, or stochastic: away from zero with a probability that is
the distance to the code below, in codes. The random number of element i of an array is a word of
Philox 4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405) with counter i and the seed as
its key: it depends on nothing else.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._edges import LINE, Edges, Pending, stream
from rmsfast._memory import component_bytes
from rmsfast._runs import valid_lanes
from rmsfast._stores import encoded, narrowed
from rmsfast._vectors import (
    BYTES,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    STORED,
    Emitter,
    bits_of,
    component_of,
)

NEAREST, ZERO, STOCHASTIC = range(3)
OWN, EDIT, SUM = range(3)  # the random word that rounds a value, an edit of it, and their sum
INF = float("inf")
# Bits of the fraction, least normal exponent, largest number, and what is too large to nearest.
LIMITS = {
    "float32": (23, -126, (2 - 2.0**-23) * 2.0**127, (2 - 2.0**-24) * 2.0**127),
    "float16": (10, -14, 65504.0, 65520.0),
    "bfloat16": (7, -126, (2 - 2.0**-7) * 2.0**127, (2 - 2.0**-8) * 2.0**127),
    "float8_e4m3fn": (3, -6, 448.0, 464.0 + 2.0**-44),  # 464 is a tie, and 448 even
    "float8_e5m2": (2, -14, 57344.0, 61440.0),
}


class Way:
    """How to round, known when running: the mode, whether to saturate, the random words."""

    def __init__(self, em, mode, saturate, key, first):
        """first: the number of the first element of the run in the caller's array."""
        self.em, self.key, self.first = em, key, first
        b = em.b
        self.zero = b.icmp_signed("==", mode, I64(ZERO))
        self.stochastic = b.icmp_signed("==", mode, I64(STOCHASTIC))
        self.directed = b.icmp_signed("!=", mode, I64(NEAREST))
        self.saturate = b.icmp_signed("!=", saturate, I64(0))
        self.words = [cgutils.alloca_once_value(b, em.fill(I32, 0)) for _ in (OWN, EDIT, SUM)]

    def draw(self, index):
        """Make the random words of the lanes from element `index` of the run on."""
        em, b = self.em, self.em.b
        with b.if_then(self.stochastic, likely=False):
            lanes = ir.Constant(em.vector(I64), list(range(em.lanes)))
            counter = b.add(lanes, em.splat(b.add(self.first, index)))
            for cell, word in zip(self.words, philox(em, self.key, counter), strict=False):
                b.store(word, cell)

    def rounded(self, kind, v, word):
        """Codes of float64 lanes (odd where they are not exact), and a mask of what overflows."""
        em, b = self.em, self.em.b
        if kind == "float64":
            return v, em.fill(I1, 0)
        _, _, largest, too_large = LIMITS[kind]
        size = em.absolute(v)
        over = b.fcmp_ordered(">=", size, em.like(v, too_large))
        above = b.fcmp_ordered(">", size, em.like(v, largest))
        clamp = b.and_(above, em.splat(self.saturate))
        clamped = b.select(clamp, self.signed(em.like(v, largest), v), v)
        beyond = cgutils.alloca_once_value(b, over)
        codes = cgutils.alloca_once_value(b, ir.Constant(em.vector(STORED[kind]), None))
        with b.if_else(self.directed, likely=False) as (directed, nearest):
            with directed:
                rounded, over = self.on_grid(kind, v, size, word)
                bits = b.bitcast(b.fptrunc(rounded, em.vector(F32)), em.vector(I32))
                found = b.bitcast(bits, em.vector(F32))
                b.store(found if kind == "float32" else encoded(em, kind, bits), codes)
                b.store(over, beyond)
            with nearest:
                b.store(narrowed(em, kind, clamped), codes)
        over = b.load(beyond)
        if kind != "float8_e4m3fn":  # infinity is a number of the others
            over = b.and_(over, b.fcmp_ordered("<", size, em.like(v, INF)))
        return b.load(codes), over

    def on_grid(self, kind, v, size, word):
        """Numbers of the format, toward zero or stochastic, and a mask of what overflows."""
        em, b = self.em, self.em.b
        fraction, least, largest, _ = LIMITS[kind]
        integers = em.vector(I64)
        exponent = b.lshr(b.bitcast(size, integers), em.fill(I64, 52))
        floor, top = em.fill(I64, 1023 + least), em.fill(I64, 1023 + 130)
        exponent = b.select(b.icmp_signed(">", exponent, floor), exponent, floor)
        exponent = b.select(b.icmp_signed("<", exponent, top), exponent, top)
        # The spacing of the codes here is 2**unit; added to a number of 52 bits more, all below
        # a unit is lost.
        unit = b.sub(exponent, em.fill(I64, 1023 + fraction))

        def power(n):
            return b.bitcast(b.shl(b.add(n, em.fill(I64, 1023)), em.fill(I64, 52)), v.type)

        step = power(unit)
        grid = b.fmul(power(b.add(unit, em.fill(I64, 52))), em.like(v, 1.5))
        below = b.fsub(b.fadd(size, grid), grid)
        zero = em.like(v, 0.0)
        excess = b.select(b.fcmp_ordered(">", below, size), step, zero)
        below = b.fsub(below, excess)
        rest = b.fmul(b.fsub(size, below), power(b.sub(em.fill(I64, 32), unit)))
        drawn = b.uitofp(b.load(self.words[word]), v.type)
        away = b.and_(b.fcmp_ordered(">", rest, drawn), em.splat(self.stochastic))
        found = b.fadd(below, b.select(away, step, zero))
        over = b.fcmp_ordered(">", found, em.like(v, largest))
        # Toward zero, what is finite stays so, as IEEE 754 has it.
        finite = b.fcmp_ordered("<", size, em.like(v, INF))
        stop = b.or_(em.splat(self.saturate), b.and_(em.splat(self.zero), finite))
        end = b.select(stop, em.like(v, largest), em.like(v, INF))
        return self.signed(b.select(over, end, found), v), over

    def signed(self, size, v):
        return self.em.call(f"llvm.copysign.v{self.em.lanes}f64", v.type, size, v)


def odd(em, s, error):
    """A sum whose error is known, as float64 that is odd where it is not exact."""
    b = em.b
    inexact = b.fcmp_ordered("one", error, em.like(error, 0.0))
    bits, integers = b.bitcast(s, em.vector(I64)), em.vector(I64)
    opposed = b.icmp_signed("<", b.xor(bits, b.bitcast(error, integers)), em.fill(I64, 0))
    bits = b.sub(bits, b.zext(b.and_(inexact, opposed), integers))
    return b.bitcast(b.or_(bits, b.zext(inexact, integers)), s.type)


def philox(em, key, counter):
    """Four random words of 32 bits for each lane of a counter of 64 bits."""
    b, words, wide = em.b, em.vector(I32), em.vector(I64)
    high = em.fill(I64, 32)
    c = [b.trunc(counter, words), b.trunc(b.lshr(counter, high), words)]
    c += [em.fill(I32, 0)] * 2
    keys = [b.trunc(key, I32), b.trunc(b.lshr(key, I64(32)), I32)]
    for _ in range(10):
        product = [
            b.mul(b.zext(c[k], wide), em.fill(I64, factor))
            for k, factor in ((0, 0xD2511F53), (2, 0xCD9E8D57))
        ]
        lows = [b.trunc(p, words) for p in product]
        highs = [b.trunc(b.lshr(p, high), words) for p in product]
        k0, k1 = (em.splat(k) for k in keys)
        c = [b.xor(b.xor(highs[1], c[1]), k0), lows[1], b.xor(b.xor(highs[0], c[3]), k1), lows[0]]
        keys = [b.add(k, I32(w)) for k, w in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)]
    return c


def store_lanes(em, kind, pointer, index, v, valid, past=False):
    """Stored lanes written side by side, those of `valid` only (None: all, or past the caches)."""
    b = em.b
    place = b.gep(pointer, [b.mul(index, I64(bits_of(kind) // 8))])
    place = b.bitcast(place, v.type.as_pointer())
    if valid is None:
        store = b.store(v, place)
        store.align = em.lanes * bits_of(kind) // 8 if past else 1
        if past:
            one = b.module.add_metadata([ir.Constant(I32, 1)])
            store.set_metadata("nontemporal", one)
        return
    letter = "f" if STORED[kind] in (F32, F64) else "i"
    name = f"llvm.masked.store.v{em.lanes}{letter}{bits_of(kind)}.p0"
    em.call(name, ir.VoidType(), v, place, I32(1), valid)


def for_lanes(em, count, emit):
    """emit(index, valid) for runs of lanes: whole vectors (valid None), then what is left."""
    b = em.b
    whole = b.udiv(count, I64(em.lanes))
    with cgutils.for_range(b, whole) as loop:
        emit(b.mul(loop.index, I64(em.lanes)), None)
    done = b.mul(whole, I64(em.lanes))
    rest = b.sub(count, done)
    with b.if_then(b.icmp_signed(">", rest, I64(0))):
        emit(done, valid_lanes(em, rest))


@intrinsic
def round_run(typingctx, x, result, pointer, target, way, first, count):
    """target[0:count] = rounded x, side by side; how many overflow.

    way: mode, whether to saturate, seed; first: the number of the first element.
    """
    signature = types.intp(
        x, result, types.voidptr, types.voidptr, types.UniTuple(types.int64, 3), types.intp,
        types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        source, kind = component_of(signature.args[0]), component_of(signature.args[1])
        mode, saturate, seed = cgutils.unpack_tuple(builder, args[4])
        way = Way(em, mode, saturate, seed, args[5])
        overflows = cgutils.alloca_once_value(builder, em.fill(I64, 0))

        def run(index, valid):
            way.draw(index)
            offset = builder.mul(index, I64(component_bytes(signature.args[0])))
            v, error = em.load(source, args[2], offset, valid)
            v = v if error is None else odd(em, v, error)
            codes, over = way.rounded(kind, v, OWN)
            over = builder.zext(over, em.vector(I64))
            builder.store(builder.add(builder.load(overflows), over), overflows)
            store_lanes(em, kind, args[3], index, codes, valid)

        for_lanes(em, args[6], run)
        name = f"llvm.vector.reduce.add.v{em.lanes}i64"
        return em.call(name, I64, builder.load(overflows))

    return signature, codegen


@intrinsic
def tally(typingctx, array, pointer, count, least, counts):
    """Count `count` numbers by the exponent of their spacing, from `least` on; sum of squares."""
    signature = types.float64(array, types.voidptr, types.intp, types.intp, types.voidptr)

    def codegen(context, builder, signature, args):
        b, em = builder, Emitter(context, builder, lanes=1)
        kind = component_of(signature.args[0])
        _, pointer, count, least, counts = args
        counts = b.bitcast(counts, I64.as_pointer())
        total = cgutils.alloca_once_value(b, F64(0.0))
        with cgutils.for_range(b, count) as loop:
            offset = b.mul(loop.index, I64(bits_of(kind) // 8))
            v = b.extract_element(em.load(kind, pointer, offset)[0], I32(0))
            b.store(b.fadd(b.load(total), b.fmul(v, v)), total)
            exponent = b.and_(b.lshr(b.bitcast(v, I64), I64(52)), I64(0x7FF))
            bin = b.sub(b.sub(exponent, I64(1023)), least)
            bin = b.select(b.icmp_signed(">", bin, I64(0)), bin, I64(0))
            bin = b.select(b.icmp_signed("<", bin, I64(255)), bin, I64(255))
            cell = b.gep(counts, [bin])
            b.store(b.add(b.load(cell), I64(1)), cell)
        return b.load(total)

    return signature, codegen


@intrinsic
def begins_line(typingctx, array, offset):
    """Whether a cache line begins at a byte offset of an array."""
    signature = types.boolean(array, types.intp)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.add(builder.ptrtoint(data, I64), args[1])
        return builder.icmp_unsigned("==", builder.and_(place, I64(LINE - 1)), I64(0))

    return signature, codegen


@intrinsic
def deliver(typingctx, source, array, offset, size, streaming, pending):
    """Copy `size` bytes to a byte offset of an array, whole cache lines past the caches or not.

    pending: as for `write_run`.
    """
    signature = types.void(
        types.voidptr, array, types.intp, types.intp, types.boolean, types.voidptr
    )

    def codegen(context, builder, signature, args):
        source, _, offset, size, streaming, pending = args
        data = context.make_array(signature.args[1])(context, builder, args[1]).data
        target = builder.gep(builder.bitcast(data, BYTES), [offset])
        em = Emitter(context, builder, lanes=LINE)
        edges = Edges(em, 1, target, size, streaming, Pending(builder, pending))
        lines = em.vector(I8).as_pointer()

        def load(index):
            v = builder.load(builder.bitcast(builder.gep(source, [index]), lines))
            v.align = 1
            return v

        def store(index, pointer):
            builder.store(load(index), builder.bitcast(pointer, lines)).align = 1

        with builder.if_else(builder.and_(edges.streaming, builder.not_(edges.short))) as (
            past,
            through,
        ):
            with past:
                edges.write(store)
                with cgutils.for_range(builder, edges.lines) as loop:
                    index = builder.add(edges.head, builder.mul(loop.index, I64(LINE)))
                    stream(em, load(index), builder.gep(target, [index]))
            with through:
                cgutils.raw_memcpy(builder, target, source, size, 1)
        return context.get_dummy_value()

    return signature, codegen
