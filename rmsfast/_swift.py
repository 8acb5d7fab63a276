"""Whole lines of 16-bit formats that are scaled by float32 arithmetic, a few in float64."""

from llvmlite import ir
from numba.core import cgutils

from rmsfast._edges import LINE
from rmsfast._runs import valid_lanes
from rmsfast._vectors import (
    F32,
    F64,
    HALF,
    I1,
    I16,
    I32,
    I64,
    Emitter,
    bits_of,
    component_of,
    has_feature,
    x86_has,
)

LEAST = 2.0**-50  # of x times its factor, and of gains
GAINS = 1 << 14  # gains that are arranged at a time
SPREAD = 2.01 * 2.0**-24  # how far a product of a factor, rounded twice, may be from the true one
PLACES = 13  # of a gain whose products with float16 are exact
SPARE = 8  # numbers between the even and the odd gains, which the last vector may reach into


class Swift:
    """Lines of bfloat16 or float16 by float32, where that is as good as float64.

    A result of float32 is a few last places from the true one at most. Where all that lies as
    near has the same code, so has the true one. Lines where it has not, or with what is not
    finite or comes near the subnormals of float32, are done in float64.
    """

    @staticmethod
    def serves(em, scaling):
        kind, gain = scaling.kind, scaling.gain and component_of(scaling.gain)
        can = em.fused and has_feature(em.context, "f16c") and kind in ("bfloat16", "float16")
        gains = {None, kind} if scaling.cast else {None, kind, "float32"}
        return can and component_of(scaling.x) == kind and gain in gains and scaling.high is None

    def __init__(self, em, scaling, factor, gains, count):
        """gains: a pointer to what `arrange` left for a run of `count`."""
        self.b, b = em.b, em.b
        self.words = 32 if x86_has(em.context, "avx512bw") else 16  # codes of a vector
        self.em = Emitter(em.context, b, self.words // 2)
        self.kind, self.cast = scaling.kind, scaling.cast
        self.gains = b.gep(gains, [I64(LINE)]) if scaling.gain else None
        self.late = scaling.gain and not scaling.cast  # gains come before rounding
        self.odd = odd_gains(b, count)
        high = b.extract_value(factor, 0)
        size = em.absolute(high)
        spread, self.usual = F64(SPREAD), I1(1)
        if self.gains:
            spread = b.load(b.bitcast(gains, F64.as_pointer()))
            self.usual = b.fcmp_ordered("<", spread, F64(1.0))
        for sign, bound in ((">", 2.0**-60), ("<", 2.0**60)):
            self.usual = b.and_(self.usual, b.fcmp_ordered(sign, size, F64(bound)))
        self.factor = self.em.splat(b.fptrunc(high, F32))
        # Products of bfloat16 stay above 2**-100; those of float16 do anyway.
        self.least = None
        if self.kind == "bfloat16":
            bits = b.bitcast(b.fptrunc(b.fdiv(F64(LEAST), size), F32), I32)
            self.least = b.trunc(b.lshr(bits, I32(16)), I16)
            self.spread = 5 if self.late else 3  # last places of float32
            return
        around = [b.fmul(spread, F64(k)) for k in (-1, 1)]
        around = [b.fmul(high, b.fadd(F64(1.0), part)) for part in around]
        self.around = [self.em.splat(b.fptrunc(part, F32)) for part in around]

    def line(self, pointer, index, count):
        """`count` codes, and whether one is in doubt."""
        b = self.b
        parts = [self.part(pointer, b.add(index, I64(k))) for k in range(0, count, self.words)]
        codes, unlike, small = zip(*parts, strict=True)
        doubt = b.or_(self.any(self.em.tree(list(unlike), b.or_)), b.not_(self.usual))
        if self.least is not None:
            v = self.em.tree(list(small), self.smaller)
            below = b.icmp_unsigned("<", v, self.em.splat(self.least, v.type.count))
            doubt = b.or_(doubt, self.any(below))
        return self.em.join(codes), doubt

    def any(self, mask):
        whole = ir.IntType(16 * self.words)
        lanes = ir.VectorType(ir.IntType(whole.width // mask.type.count), mask.type.count)
        return self.b.icmp_unsigned("!=", self.b.bitcast(self.b.sext(mask, lanes), whole), whole(0))

    def smaller(self, p, q):
        return self.b.select(self.b.icmp_unsigned("<", p, q), p, q)

    def part(self, pointer, index):
        """The codes of a vector, where they are in doubt, and what orders x by size, 0 last."""
        b = self.b
        codes = self.load(self.em.vector(I16, self.words), pointer, b.mul(index, I64(2)))
        numbers, gains, small = self.singles(codes), self.gains_at(index), None
        if self.kind == "float16":
            if self.late:  # what leaves the range here is beyond the result too
                numbers = self.products(numbers, gains)
            low, high = (
                self.halves([b.fmul(v, factor) for v in numbers]) for factor in self.around
            )
            unlike = b.icmp_unsigned("!=", low, high)
        else:
            small = b.and_(codes, self.em.like(codes, 0x7FFF))
            small = b.sub(small, self.em.like(codes, 1))
            y = [b.fmul(v, self.factor) for v in numbers]
            low, unlike = self.nearest(self.products(y, gains) if self.late else y)
        if gains and self.cast:  # the product of two codes is exact
            y = self.products(self.singles(low), gains)
            low = self.halves(y) if self.kind == "float16" else self.nearest_even(y)
        return low, unlike, small

    def products(self, v, w):
        return [self.b.fmul(*pair) for pair in zip(v, w, strict=True)]

    def gains_at(self, index):
        """Float32 of the gains of a vector, arranged as `singles` does."""
        b, n = self.b, self.words // 2
        if self.gains is None:
            return None
        if self.kind == "float16":
            places = [index, b.add(index, I64(n))]
        else:
            turned, half = b.trunc(index, I1), b.lshr(index, I64(1))
            other = b.add(half, self.odd)
            places = [
                b.select(turned, other, half), b.select(turned, b.add(half, I64(1)), other)
            ]  # fmt: skip
        kind = self.em.vector(F32)
        return [self.load(kind, self.gains, b.mul(place, I64(4))) for place in places]

    def load(self, kind, pointer, offset):
        v = self.b.load(self.b.bitcast(self.b.gep(pointer, [offset]), kind.as_pointer()))
        v.align = 1
        return v

    def singles(self, codes):
        """Float32 of codes: the even and the odd of bfloat16, the halves of float16."""
        em, b, n = self.em, self.b, self.words // 2
        if self.kind == "bfloat16":
            return em.pair_of(b.bitcast(codes, em.vector(I32)))
        runs = (ir.Constant(em.vector(I32), list(range(k, k + n))) for k in (0, n))
        return [em.half(b.shuffle_vector(codes, codes, run)) for run in runs]

    def halves(self, y):
        """The float16 nearest to float32."""
        em, b = self.em, self.b
        return em.join([b.bitcast(b.fptrunc(v, em.vector(HALF)), em.vector(I16)) for v in y])

    def nearest(self, y):
        """The bfloat16 nearest to float32, and where another is within the spread."""
        em, b = self.em, self.b
        least = 0x8000 - self.spread  # added to the smallest that y may stand for
        low, high = self.split([b.add(self.bits(v), em.fill(I32, least)) for v in y])
        return high, b.icmp_unsigned(">", low, em.like(low, 0xFFFF - 2 * self.spread))

    def nearest_even(self, y):
        """The bfloat16 nearest to float32, the even of two as near."""
        em, b = self.em, self.b
        bits = [self.bits(v) for v in y]
        last = [b.and_(b.lshr(v, em.like(v, 16)), em.like(v, 1)) for v in bits]
        bits = [b.add(b.add(v, em.like(v, 0x7FFF)), u) for v, u in zip(bits, last, strict=True)]
        return self.split(bits)[1]

    def bits(self, v):
        return self.b.bitcast(v, self.em.vector(I32))

    def split(self, bits):
        """The lower and the upper words of even and odd lanes, in order."""
        em, b = self.em, self.b
        even, odd = bits
        upper, lower = em.like(odd, 0xFFFF0000), em.like(even, 0xFFFF)
        shift = em.like(even, 16)
        low = b.or_(b.and_(even, lower), b.shl(odd, shift))
        high = b.or_(b.lshr(even, shift), b.and_(odd, upper))
        return [b.bitcast(v, em.vector(I16, self.words)) for v in (low, high)]


def odd_gains(b, count):
    """The place of the first gain of an odd coordinate in what `arrange` leaves."""
    return b.add(b.lshr(count, I64(1)), I64(SPARE))


def arrange(em, scaling, pointer, offset, count, memory):
    """Leave float32 of offset + gain in memory, from its second line on.

    Of bfloat16 those of even coordinates come first. NaN become the usual one: of others a carry
    of the rounding could make a number. In the first line stands how far products of float16 may
    be from the true ones, nearer where float32 holds x times any of the gains, or 1 where gains
    do not serve.
    """
    b, kind = em.b, component_of(scaling.gain)
    single, halved = em.vector(F32), scaling.kind == "bfloat16"
    serve, exact = (cgutils.alloca_once_value(b, em.fill(I1, 1)) for _ in range(2))
    first = b.gep(memory, [I64(LINE)])
    with cgutils.for_range(b, b.udiv(b.add(count, I64(em.lanes - 1)), I64(em.lanes))) as loop:
        index = b.mul(loop.index, I64(em.lanes))
        valid = valid_lanes(em, b.sub(count, index))
        v = em.load(kind, pointer, b.mul(index, I64(bits_of(kind) // 8)), valid)[0]
        v = b.fptrunc(b.fadd(v, em.splat(offset)), single)
        v = b.select(b.fcmp_unordered("uno", v, v), em.fill(F32, float("nan")), v)
        parts, places = [v], [index]
        if halved:
            parts, half = em.halve(v), b.lshr(index, I64(1))
            places = [half, b.add(half, odd_gains(b, count))]
            # What may leave the normal numbers of float32 does not serve.
            wide = em.absolute(b.fpext(v, em.vector(F64)))
            zero = b.fcmp_ordered("==", wide, em.like(wide, 0.0))
            large = b.fcmp_unordered(">=", wide, em.like(wide, LEAST))
            fits = b.or_(b.or_(zero, large), b.not_(valid))
            b.store(b.and_(b.load(serve), fits), serve)
        else:
            bits = b.and_(b.bitcast(v, em.vector(I32)), em.fill(I32, (1 << 24 - PLACES) - 1))
            short = b.icmp_unsigned("==", bits, em.fill(I32, 0))
            b.store(b.and_(b.load(exact), short), exact)
        for part, place in zip(parts, places, strict=True):
            p = b.gep(first, [b.mul(place, I64(4))])
            b.store(part, b.bitcast(p, part.type.as_pointer())).align = 4
    serve, exact = (
        em.call(f"llvm.vector.reduce.and.v{em.lanes}i1", I1, b.load(cell))
        for cell in (serve, exact)
    )
    if scaling.cast:  # what is rounded has no gain yet; its product with a sum is not exact
        serve, exact = b.and_(serve, b.fcmp_ordered("==", offset, F64(0.0))), I1(1)
    spread = b.select(exact, F64(SPREAD), F64(2 * SPREAD))
    spread = b.select(serve, spread, F64(1.0))
    b.store(spread, b.bitcast(memory, F64.as_pointer()))
