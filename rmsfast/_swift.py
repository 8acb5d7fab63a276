"""Whole lines of 16-bit formats that are scaled by float32 arithmetic, a few in float64."""

from llvmlite import ir

from rmsfast._vectors import (
    F32,
    F64,
    HALF,
    I16,
    I32,
    I64,
    STORED,
    Emitter,
    bits_of,
    component_of,
    has_feature,
    x86_has,
)


class Swift:
    """Lines of bfloat16 or float16 by float32, where that is as good as float64.

    Every product is formed twice, with factors a little below and above the true one. Where
    both give the same code, so does what lies between. Lines where they do not, or with what
    is not finite or comes near the subnormals of float32, are done in float64.
    """

    @staticmethod
    def serves(em, scaling):
        kind, gain = scaling.kind, scaling.gain and component_of(scaling.gain)
        can = em.fused and has_feature(em.context, "f16c") and kind in ("bfloat16", "float16")
        gains = {None, kind} if scaling.cast else {None, kind, "float32"}
        return can and component_of(scaling.x) == kind and gain in gains and scaling.high is None

    def __init__(self, em, scaling, factor, offset):
        self.b, b = em.b, em.b
        self.words = 32 if x86_has(em.context, "avx512bw") else 16  # codes of a vector
        self.em = Emitter(em.context, b, self.words // 2)
        self.kind, self.cast = scaling.kind, scaling.cast
        self.gain = scaling.gain and component_of(scaling.gain)
        high = b.extract_value(factor, 0)
        size = em.absolute(high)
        plain = b.fcmp_ordered("==", offset, F64(0.0))
        self.usual = plain
        if not self.cast:
            self.usual = b.or_(plain, b.fcmp_ordered("==", offset, F64(1.0)))
        for sign, bound in ((">", 2.0**-60), ("<", 2.0**60)):
            self.usual = b.and_(self.usual, b.fcmp_ordered(sign, size, F64(bound)))
        # The factor and a product are rounded, 1 + gain and one more product, 2**-24 each.
        spread = (4.01 if self.gain and not self.cast else 2.01) * 2.0**-24
        around = [b.fptrunc(b.fmul(high, F64(1.0 + k * spread)), F32) for k in (-1, 1)]
        self.around = [self.em.splat(part) for part in around]
        self.offset = self.em.splat(b.fptrunc(offset, F32))
        # Products of bfloat16 stay above 2**-100; those of float16 do anyway.
        least = least_gain = I16(0)
        if self.kind == "bfloat16":
            bits = b.bitcast(b.fptrunc(b.fdiv(F64(2.0**-50), size), F32), I32)
            least = b.trunc(b.lshr(bits, I32(16)), I16)
            least_gain = b.select(plain, I16((127 - 50) << 7), I16(0))
        if self.gain == "float32":
            least_gain = b.shl(b.zext(least_gain, I32), I32(16))
        self.least, self.least_gain = least, least_gain

    def line(self, pointers, index, count):
        """`count` codes, and whether one is in doubt."""
        b = self.b
        parts = [self.part(pointers, b.add(index, I64(k))) for k in range(0, count, self.words)]
        codes, unlike, small, small_gain = zip(*parts, strict=True)
        doubt = b.or_(self.any(self.em.tree(list(unlike), b.or_)), b.not_(self.usual))
        for sizes, least in ((small, self.least), (small_gain, self.least_gain)):
            if sizes[0] is not None:
                v = self.em.tree(list(sizes), self.smaller)
                below = b.icmp_unsigned("<", v, self.em.splat(least, v.type.count))
                doubt = b.or_(doubt, self.any(below))
        return self.em.join(codes), doubt

    def any(self, mask):
        whole = ir.IntType(16 * self.words)
        lanes = ir.VectorType(ir.IntType(whole.width // mask.type.count), mask.type.count)
        return self.b.icmp_unsigned("!=", self.b.bitcast(self.b.sext(mask, lanes), whole), whole(0))

    def part(self, pointers, index):
        """The codes of a vector, and where they are in doubt: unlike, x or the gain small."""
        b = self.b
        numbers, small = self.numbers(self.kind, pointers[0], index)
        gains, small_gain = self.numbers(self.gain, pointers[1], index)
        if self.gain and not self.cast:
            gains = [b.fadd(g, self.offset) for g in gains]
            if self.kind == "float16":  # what leaves the range here is beyond the result too
                numbers, gains = self.products(numbers, gains), None
        y = [[b.fmul(v, factor) for v in numbers] for factor in self.around]
        if gains and not self.cast:
            y = [self.products(own, gains) for own in y]
        low, high = (self.nearest(own) for own in y)
        unlike = b.icmp_unsigned("!=", low, high)
        if self.gain and self.cast:  # the product of two codes is exact
            low = self.nearest(self.products(self.singles(low), gains), even=True)
        return low, unlike, small, small_gain

    def products(self, v, w):
        return [self.b.fmul(*pair) for pair in zip(v, w, strict=True)]

    def numbers(self, kind, pointer, index):
        """Float32 of a vector, arranged as `singles` does, and its least size but for 0.

        The size is None where nothing is too small: results of float16 become 0 before.
        """
        em, b, n = self.em, self.b, self.words // 2
        if kind is None:
            return None, None
        element, place = STORED[kind], b.mul(index, I64(bits_of(kind) // 8))
        if kind != "float32":
            codes = self.load(em.vector(element, self.words), pointer, place)
            return self.singles(codes), self.size(codes)
        halves = [self.load(em.vector(F32), pointer, b.add(place, I64(4 * k))) for k in (0, n)]
        sizes = [self.size(b.bitcast(v, em.vector(I32))) for v in halves]
        small = sizes[0] and self.smaller(*sizes)
        return em.alternate(halves) if self.kind == "bfloat16" else halves, small

    def load(self, kind, pointer, offset):
        v = self.b.load(self.b.bitcast(self.b.gep(pointer, [offset]), kind.as_pointer()))
        v.align = 1
        return v

    def size(self, bits):
        """What orders numbers by size, 0 last."""
        if self.kind == "float16":
            return None
        most = (1 << bits.type.element.width - 1) - 1
        return self.b.sub(self.b.and_(bits, self.em.like(bits, most)), self.em.like(bits, 1))

    def smaller(self, p, q):
        return self.b.select(self.b.icmp_unsigned("<", p, q), p, q)

    def singles(self, codes):
        """Float32 of codes: the even and the odd of bfloat16, the halves of float16."""
        em, b, n = self.em, self.b, self.words // 2
        if self.kind == "bfloat16":
            return em.pair_of(b.bitcast(codes, em.vector(I32)))
        runs = (ir.Constant(em.vector(I32), list(range(k, k + n))) for k in (0, n))
        return [em.half(b.shuffle_vector(codes, codes, run)) for run in runs]

    def nearest(self, y, even=False):
        """The codes nearest to float32 as `singles` gives them; even: of two as near the even."""
        em, b = self.em, self.b
        if self.kind == "float16":
            return em.join([b.bitcast(b.fptrunc(v, em.vector(HALF)), em.vector(I16)) for v in y])
        bits = [b.bitcast(v, em.vector(I32)) for v in y]
        if even:
            last = [b.and_(b.lshr(v, em.like(v, 16)), em.like(v, 1)) for v in bits]
            bits = [b.add(b.add(v, em.like(v, 0x7FFF)), u) for v, u in zip(bits, last, strict=True)]
        else:
            bits = [b.add(v, em.like(v, 0x8000)) for v in bits]
        low = b.lshr(bits[0], em.like(bits[0], 16))
        high = b.and_(bits[1], em.like(bits[1], 0xFFFF0000))
        return b.bitcast(b.or_(low, high), em.vector(I16, self.words))
