"""Vector building blocks: the LLVM instructions that the kernels are made of.

A row is summed in LANES lanes (element i goes to lane i % LANES). The lanes are added as
a balanced tree of neighbours, and so is every block of a row: the order of additions
depends on the index alone, never on the processor, the threads or the memory layout.

A *pair* is an unevaluated sum high + low of two float64. Sums that must be exact are kept
as pairs by error-free transformations: two_sum (Knuth, TAOCP 2, 4.2.2) and two_product
(one fused multiply-add, or Dekker 1971 where the target has none).

Functions named emit_* write instructions, @intrinsic functions are called from kernels.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from rmsfast._partial import LANES as LANES
from rmsfast._partial import WIDTH as WIDTH

SCRATCH = 1024  # elements copied at a time where a row does not lie side by side
# Bytes: the next rows are on their way to the level 2 and 1 caches while one is summed.
AHEAD_FAR, AHEAD_NEAR = 4096, 1024

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
HALF, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
BYTES = I8.as_pointer()

SIGNED = {"int8", "int16", "int32", "int64"}
EXACT = {"bool", "int8", "uint8", "int16", "uint16"}  # squares add up exactly in float64
COMPLEX = {"complex64": "float32", "complex128": "float64"}
STORED = {
    "bool": I8,
    "hidden": I8,
    **{f"{sign}int{bits}": ir.IntType(bits) for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float8_e4m3fn": I8,
    "float8_e5m2": I8,
    "float16": I16,
    "bfloat16": I16,
    "float32": F32,
    "float64": F64,
}


def kind_of(array):
    """Name of the storage format of an array type; records of one field name theirs."""
    dtype = array.dtype
    return (
        dtype.fields and next(iter(dtype.fields)) if isinstance(dtype, types.Record) else str(dtype)
    )


def component_of(array):
    """Format of what is stored side by side: the real numbers of a complex array."""
    kind = kind_of(array)
    return COMPLEX.get(kind, kind)


def absent(typ):
    """Whether an optional argument was left out (None, so known when compiling)."""
    return isinstance(typ, types.NoneType) or typ is None


def has_feature(context, feature):
    """Whether the target surely has an instruction set; other processors than x86 do."""
    triple, _, features = context.codegen().magic_tuple()
    return not triple.startswith(("x86", "i386", "i686")) or f"+{feature}" in features.split(",")


def x86_has(context, feature):
    """Whether the target is an x86 processor with an instruction set."""
    return context.codegen().magic_tuple()[0].startswith("x86") and has_feature(context, feature)


# Instructions that multiply and add pairs of 16 bits, by the vectors that they take.
MULTIPLY_ADD = (
    ("avx512bw", "llvm.x86.avx512.pmaddw.d.512", 32),
    ("avx2", "llvm.x86.avx2.pmadd.wd", 16),
)


class Emitter:
    """An IR builder with vectors of a given number of lanes: constants, calls, pairs."""

    def __init__(self, context, builder, lanes=WIDTH):
        self.context, self.b, self.lanes = context, builder, lanes
        self.fused = has_feature(context, "fma")

    def vector(self, element, lanes=None):
        return ir.VectorType(element, lanes or self.lanes)

    def fill(self, element, value, lanes=None):
        lanes = lanes or self.lanes
        return ir.Constant(self.vector(element, lanes), [value] * lanes)

    def like(self, v, value):
        """The constant of the type of v, a vector or a number."""
        many = isinstance(v.type, ir.VectorType)
        return ir.Constant(v.type, [value] * v.type.count if many else value)

    def splat(self, scalar, lanes=None):
        lanes = lanes or self.lanes
        empty = ir.Constant(self.vector(scalar.type, lanes), ir.Undefined)
        first = self.b.insert_element(empty, scalar, I32(0))
        return self.b.shuffle_vector(first, empty, self.fill(I32, 0, lanes))

    def call(self, name, result, *args):
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), args)

    def fma(self, a, b, c):
        suffix = f"v{a.type.count}f64" if isinstance(a.type, ir.VectorType) else "f64"
        return self.call(f"llvm.fma.{suffix}", a.type, a, b, c)

    def absolute(self, v):
        suffix = f"v{v.type.count}f64" if isinstance(v.type, ir.VectorType) else "f64"
        return self.call(f"llvm.fabs.{suffix}", v.type, v)

    # ------------------------------------------------------------------ pairs

    def two_sum(self, a, b):
        """A + b as a pair, exactly."""
        s = self.b.fadd(a, b)
        z = self.b.fsub(s, a)
        return s, self.b.fadd(self.b.fsub(a, self.b.fsub(s, z)), self.b.fsub(b, z))

    def fast_two_sum(self, a, b):
        """A + b as a pair, exactly where |a| >= |b|."""
        s = self.b.fadd(a, b)
        return s, self.b.fsub(b, self.b.fsub(s, a))

    def two_product(self, a, b):
        """A * b as a pair, exactly unless it leaves the range of float64."""
        p = self.b.fmul(a, b)
        if self.fused:
            return p, self.fma(a, b, self.b.fneg(p))
        (ah, al), (bh, bl) = self.split(a), self.split(b)
        error = self.b.fsub(self.b.fmul(ah, bh), p)
        error = self.b.fadd(error, self.b.fmul(ah, bl))
        error = self.b.fadd(error, self.b.fmul(al, bh))
        return p, self.b.fadd(error, self.b.fmul(al, bl))

    def square_minus(self, a, p, z):
        """A * a - z, rounded once, where p = fl(a * a) and p - z is exact."""
        if self.fused:
            return self.fma(a, a, self.b.fneg(z))
        return self.b.fadd(self.b.fsub(p, z), self.two_product(a, a)[1])

    def split(self, a):
        """Two halves of 26 bits of a (Dekker)."""
        scaled = self.b.fmul(a, self.like(a, 134217729.0))
        high = self.b.fsub(scaled, self.b.fsub(scaled, a))
        return high, self.b.fsub(a, high)

    def add_compensated(self, a, b):
        """Sum of two pairs that are normalised only at the end: the low parts add plainly."""
        s, e = self.two_sum(a[0], b[0])
        return s, self.b.fadd(self.b.fadd(a[1], b[1]), e)

    def add_pairs(self, a, b):
        """Sum of two pairs as a pair."""
        (s, e), (t, f) = self.two_sum(a[0], b[0]), self.two_sum(a[1], b[1])
        s, e = self.fast_two_sum(s, self.b.fadd(e, t))
        return self.fast_two_sum(s, self.b.fadd(e, f))

    def divide_pairs(self, a, b):
        """Quotient of two pairs as a pair, where it is finite and not 0."""
        q = self.b.fdiv(a[0], b[0])
        p, e = self.two_product(q, b[0])
        low = self.b.fsub(self.b.fsub(a[0], p), e)
        low = self.b.fsub(self.b.fadd(low, a[1]), self.b.fmul(q, b[1]))
        return self.fast_two_sum(q, self.b.fdiv(low, b[0]))

    def root_of_pair(self, a):
        """Square root of a pair as a pair, where it is finite and not 0."""
        h = self.square_root(a[0])
        s, f = self.two_product(h, h)
        low = self.b.fadd(self.b.fsub(self.b.fsub(a[0], s), f), a[1])
        return h, self.b.fdiv(low, self.b.fmul(self.like(h, 2.0), h))

    def square_root(self, v):
        return self.call(f"llvm.sqrt.v{v.type.count}f64", v.type, v)

    def refined(self, r, total, weight):
        """The root r of total / weight after one Newton step, where it is neither 0 nor Inf.

        The residual total - weight * r**2 is exact to a pair's last bit.
        """
        b, (s, s_low), (w, w_low) = self.b, total, weight
        t, t_low = self.two_product(r, r)
        u, u_low = self.two_product(w, t)
        residual = b.fsub(b.fsub(s, u), u_low)
        residual = b.fadd(residual, b.fsub(s_low, b.fmul(w, t_low)))
        residual = b.fsub(residual, b.fmul(w_low, t))
        step = b.fmul(residual, b.fmul(r, b.fdiv(self.like(r, 0.5), s)))
        inside = b.and_(
            b.fcmp_ordered(">", r, self.like(r, 0.0)),
            b.fcmp_ordered("<", r, self.like(r, float("inf"))),
        )
        return b.select(inside, b.fadd(r, step), r)

    # ---------------------------------------------------------------- storage

    def load(self, kind, pointer, offset, keep=None):
        """Lanes of a stored format, widened; lanes not in `keep` are not touched and give 0."""
        return self.widen(kind, self.stored(kind, pointer, offset, keep))

    def stored(self, kind, pointer, offset, keep=None):
        """Lanes as they are stored."""
        element = self.vector(STORED[kind])
        p = self.b.bitcast(self.b.gep(pointer, [offset]), element.as_pointer())
        if keep is None:
            v = self.b.load(p)
            v.align = 1
            return v
        letter = "f" if STORED[kind] in (F32, F64) else "i"
        name = f"llvm.masked.load.v{self.lanes}{letter}{bits_of(kind)}.p0"
        return self.call(name, element, p, I32(1), keep, ir.Constant(element, None))

    def widen(self, kind, v):
        """Stored lanes as float64 and what float64 cannot hold of them (None: nothing)."""
        b, wide = self.b, self.vector(F64)
        if kind == "float64":
            return v, None
        if kind == "bool":
            return b.uitofp(b.icmp_unsigned("!=", v, self.like(v, 0)), wide), None
        if kind in ("int64", "uint64"):
            top = (b.ashr if kind == "int64" else b.lshr)(v, self.like(v, 32))
            top = b.trunc(top, self.vector(I32))
            top = (b.sitofp if kind == "int64" else b.uitofp)(top, wide)
            low = b.uitofp(b.trunc(v, self.vector(I32)), wide)
            return self.fast_two_sum(b.fmul(top, self.like(top, 2.0**32)), low)
        if "int" in kind:
            if bits_of(kind) < 32:
                v = (b.sext if kind in SIGNED else b.zext)(v, self.vector(I32))
                return b.sitofp(v, wide), None
            return (b.sitofp if kind in SIGNED else b.uitofp)(v, wide), None
        return b.fpext(v if kind == "float32" else self.narrow_float(kind, v), wide), None

    def pair_of(self, codes):
        """Float32 of two vectors of bfloat16, read as one of 32 bits: even lanes, odd lanes."""
        b, single = self.b, self.vector(F32)
        upper = b.and_(codes, self.like(codes, 0xFFFF0000))
        return b.bitcast(b.shl(codes, self.like(codes, 16)), single), b.bitcast(upper, single)

    def narrow_float(self, kind, v):
        """Float32 lanes of a float of 8 or 16 bits."""
        b = self.b
        if kind == "bfloat16":
            bits = b.zext(v, self.vector(I32))
            return b.bitcast(b.shl(bits, self.like(bits, 16)), self.vector(F32))
        if kind == "float16":
            return self.half(v)
        codes = b.zext(v, self.vector(I16))
        if kind == "float8_e5m2":  # the upper byte of a float16
            return self.half(b.shl(codes, self.like(codes, 8)))
        sign = b.shl(b.and_(codes, self.like(codes, 0x80)), self.like(codes, 8))
        rest = b.and_(codes, self.like(codes, 0x7F))
        value = self.half(b.or_(sign, b.shl(rest, self.like(codes, 7))))
        value = b.fmul(value, self.like(value, 256.0))  # exponent bias 7 read as 15
        bits = b.bitcast(value, self.vector(I32))
        nan = b.bitcast(b.or_(bits, self.like(bits, 0x7FC00000)), value.type)  # of the sign
        return b.select(b.icmp_unsigned("==", rest, self.like(rest, 0x7F)), nan, value)

    def half(self, v):
        """Float32 lanes of float16 codes, by the processor or by integers: equal values."""
        b, single = self.b, self.vector(F32)
        if has_feature(self.context, "f16c"):
            return b.fpext(b.bitcast(v, self.vector(HALF)), single)
        codes = b.zext(v, self.vector(I32))
        size = b.shl(b.and_(codes, self.like(codes, 0x7FFF)), self.like(codes, 13))
        value = b.fmul(b.bitcast(size, single), self.fill(F32, 2.0**112))
        exponent = b.and_(codes, self.like(codes, 0x7C00))
        special = b.icmp_unsigned("==", exponent, self.like(codes, 0x7C00))
        bits = b.bitcast(value, codes.type)
        bits = b.select(special, b.or_(bits, self.like(codes, 0x7F800000)), bits)
        sign = b.shl(b.and_(codes, self.like(codes, 0x8000)), self.like(codes, 16))
        return b.bitcast(b.or_(bits, sign), single)

    def square_integers(self, kind, v):
        """Squares of pairs of neighbours among integers of at most 16 bits, added: unsigned."""
        b, n = self.b, v.type.count
        v = (b.sext if kind in SIGNED else b.zext)(v, self.vector(I16, n))
        for feature, name, lanes in MULTIPLY_ADD:
            if x86_has(self.context, feature):
                run = [
                    ir.Constant(self.vector(I32, lanes), list(range(k, k + lanes)))
                    for k in range(0, n, lanes)
                ]
                parts = [b.shuffle_vector(v, v, order) for order in run]
                result = self.vector(I32, lanes // 2)
                return self.join([self.call(name, result, part, part) for part in parts])
        even, odd = (b.sext(half, self.vector(I32, n // 2)) for half in self.halve(v))
        return b.add(b.mul(even, even), b.mul(odd, odd))

    def pair_of_integers(self, v):
        """Non-negative int64 as pairs, by numbers whose last bits are halves of v."""
        b, halves = self.b, []
        for half, unit in (
            (b.lshr(v, self.like(v, 32)), 84),
            (b.and_(v, self.like(v, 2**32 - 1)), 52),
        ):
            bits = b.or_(half, self.like(v, (1023 + unit) << 52))
            number = b.bitcast(bits, self.vector(F64))
            halves.append(b.fsub(number, self.like(number, 2.0**unit)))
        return self.fast_two_sum(*halves)

    def square_columns(self, kind, first, second):
        """The same of two vectors, lane by lane, in 64 bits that hold two sums each.

        They stand as `columns_in_order` knows, for an instruction to make pairs of neighbours.
        """
        n = first.type.count
        runs = [range(k, k + 4) for k in (*range(0, n, 8), *range(4, n, 8))]
        order = ir.Constant(
            self.vector(I32, 2 * n), [k + s for r in runs for k in r for s in (0, n)]
        )
        squares = self.square_integers(kind, self.b.shuffle_vector(first, second, order))
        return self.b.bitcast(squares, self.vector(I64, n // 2))

    def columns_in_order(self, lower, upper):
        """Vectors of WIDTH sums in the order of the columns, from those of lower and upper bits."""
        n = lower.type.count
        places = [k % 4 // 2 + k // 8 * 2 + k % 8 // 4 * (n // 2) + k % 2 * n for k in range(2 * n)]
        orders = [places[k : k + WIDTH] for k in range(0, 2 * n, WIDTH)]
        return [
            self.b.shuffle_vector(lower, upper, ir.Constant(self.vector(I32, WIDTH), order))
            for order in orders
        ]

    # ------------------------------------------------------------------ trees

    def halve(self, v):
        """Even lanes and odd lanes of a vector."""
        n = v.type.count
        even, odd = (ir.Constant(ir.VectorType(I32, n // 2), list(range(i, n, 2))) for i in (0, 1))
        return self.b.shuffle_vector(v, v, even), self.b.shuffle_vector(v, v, odd)

    def alternate(self, vectors):
        """Of each two vectors that follow each other, the even lanes and the odd lanes."""
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        return [half for pair in pairs for half in self.halve(self.join(pair))]

    def neighbours(self, vectors):
        """The vectors of which `alternate` made these."""
        n = vectors[0].type.count
        places = [k // 2 + n * (k % 2) for k in range(2 * n)]
        low, high = (ir.Constant(ir.VectorType(I32, n), places[k : k + n]) for k in (0, n))
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        return [self.b.shuffle_vector(p, q, half) for p, q in pairs for half in (low, high)]

    def tree(self, parts, add):
        """Sum of a list as a balanced tree of neighbours."""
        while len(parts) > 1:
            parts = [add(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
        return parts[0]

    def lanes_tree(self, vectors, add):
        """Sum over all lanes, the same tree as `tree` over them; vectors are tuples of parts."""
        joined = [self.join(parts) for parts in zip(*vectors, strict=True)]
        while joined[0].type.count > 1:
            split = [self.halve(v) for v in joined]
            joined = add(tuple(e for e, _ in split), tuple(o for _, o in split))
        return tuple(self.b.extract_element(v, I32(0)) for v in joined)

    def rows_tree(self, vectors, add):
        """As `lanes_tree`, of several rows at once: WIDTH rows of vectors of WIDTH lanes.

        Neighbouring lanes are added, vector by vector, until one vector holds one sum a row.
        """
        order = list(range(2 * WIDTH))
        even, odd = (ir.Constant(ir.VectorType(I32, WIDTH), order[i::2]) for i in (0, 1))
        while len(vectors) > 1:
            vectors = [
                add(
                    *(
                        tuple(self.b.shuffle_vector(p, q, mask) for p, q in zip(a, b, strict=True))
                        for mask in (even, odd)
                    )
                )
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    def transposed(self, rows):
        """Columns of a square of lanes: ever smaller blocks beside its diagonal change places."""
        n, rows = len(rows), list(rows)
        size = n // 2
        while size:
            kept = [k for k in range(n) if not k & size]
            low = [k if not k & size else n + k - size for k in range(n)]
            high = [k + size if not k & size else n + k for k in range(n)]
            masks = [ir.Constant(ir.VectorType(I32, n), order) for order in (low, high)]
            for k in kept:
                pair = rows[k], rows[k + size]
                rows[k], rows[k + size] = (self.b.shuffle_vector(*pair, m) for m in masks)
            size //= 2
        return rows

    def join(self, vectors):
        """One vector of all the lanes."""
        vectors = list(vectors)
        while len(vectors) > 1:
            n = 2 * vectors[0].type.count
            order = ir.Constant(ir.VectorType(I32, n), list(range(n)))
            vectors = [
                self.b.shuffle_vector(vectors[i], vectors[i + 1], order)
                for i in range(0, len(vectors), 2)
            ]
        return vectors[0]


def bits_of(kind):
    stored = STORED[kind]
    return 32 if stored is F32 else 64 if stored is F64 else stored.width
