"""Edits of bfloat16 rows in float32, a cache line at a time: quick, and as good as in float64.

The request is one product of float32, at most SURE last places from the one rounded from
float64; where that could matter for the bfloat16 next to it, the line is done in float64. The
sum of two bfloat16 in float32 can be rounded again (24 >= 2 * 8 + 2: Figueroa 1995).

Sums have LANES lanes, so that all of a report stay in the registers of any processor, and add up
alike; the edits themselves have as many lanes as a register holds.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._doses import Cells, state_pointer
from rmsfast._roundings import store_lanes
from rmsfast._runs import FAR, prefetch
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
    Emitter,
    absent,
    bits_of,
    x86_has,
)

LINE = 32  # coordinates of a cache line
LANES = 8
SURE = 5  # last places of float32
QUICK_SUMS = ("after", "realised", "error", "rounded", "rounding", "along", "turn")
# RMS and factors of rows whose squares are far from the ends of the range of float32.
QUICK_LEAST, QUICK_MOST = 2.0**-30, 2.0**30
# The largest error of a piece is found by 18 bits of it, for the others say in which line it is.
LINES = SCRATCH // LINE
ROUNDED = 2 * SCRATCH  # bytes from an edited piece to its rounded requests


class Lines:
    """Lines of bfloat16 as vectors of float32: even and odd coordinates of each part."""

    def __init__(self, em):
        self.em, self.b = em, em.b
        self.narrow = Emitter(em.context, em.b, lanes=2 * em.lanes)  # a part of a line
        self.parts = LINE // self.narrow.lanes
        self.floats, self.integers = em.vector(F32), em.vector(I32)
        self.codes = self.narrow.vector(I16)
        self.above = em.fill(I32, 0xFFFF0000)
        if em.lanes > LANES:  # held, or LLVM would make a permutation of masks and shifts: slower
            self.above = self.held(0xFFFF0000, self.integers)

    def held(self, bits, kind):
        """A constant that loops keep: LLVM would look it up, by its address, every time."""
        return self.b.bitcast(self.em.splat(self.hidden(I32(bits))), kind)

    def hidden(self, bits):
        """A number of which LLVM knows nothing."""
        call = ir.InlineAsm(ir.FunctionType(I32, [I32]), "", "=r,0", side_effect=False)
        return self.b.call(call, [bits])

    def place(self, pointer, number, stride=2 * LINE):
        return self.b.gep(pointer, [self.b.mul(number, I64(stride))])

    def load(self, pointer):
        """The codes of each part."""
        size = 2 * self.narrow.lanes
        return [self.narrow.stored("bfloat16", pointer, I64(size * j)) for j in range(self.parts)]

    def singles_places(self):
        """Bytes of a line of float32 from which on even and odd coordinates of each part lie."""
        size = 4 * self.em.lanes
        return [I64(size * j + side) for j in range(self.parts) for side in (0, 2 * LINE)]

    def load_singles(self, pointer):
        """Float32 that lie parted in even and odd coordinates of the line."""
        return [self.em.stored("float32", pointer, place) for place in self.singles_places()]

    def store_singles(self, pointer, vectors):
        for place, v in zip(self.singles_places(), vectors, strict=True):
            p = self.b.bitcast(self.b.gep(pointer, [place]), v.type.as_pointer())
            self.b.store(v, p).align = 4

    def store(self, pointer, parts, past=False):
        for j, codes in enumerate(parts):
            index = I64(self.narrow.lanes * j)
            store_lanes(self.narrow, "bfloat16", pointer, index, codes, None, past)

    def split(self, parts):
        """Float32 of codes."""
        vectors = []
        for codes in parts:
            words = self.b.bitcast(codes, self.integers)
            vectors += [self.b.shl(words, self.em.like(words, 16)), self.upper(words)]
        return [self.b.bitcast(v, self.floats) for v in vectors]

    def upper(self, v):
        return self.b.and_(v, self.above)

    def words(self, vectors, upper):
        """The upper or the lower 16 bits of float32."""
        b, em, parts = self.b, self.em, []
        vectors = [b.bitcast(v, self.integers) for v in vectors]
        for even, odd in zip(vectors[::2], vectors[1::2], strict=True):
            if upper:
                both = b.or_(b.lshr(even, em.like(even, 16)), self.upper(odd))
            else:
                both = b.or_(b.and_(even, b.not_(self.above)), b.shl(odd, em.like(odd, 16)))
            parts.append(b.bitcast(both, self.codes))
        return parts

    def nearest(self, vectors, tie):
        """Float32 as bfloat16, up to a tie, and words that are at most 2 * SURE close to one."""
        b = self.b
        bits = [b.add(b.bitcast(v, self.integers), tie) for v in vectors]
        return [b.bitcast(self.upper(v), self.floats) for v in bits], self.words(bits, False)

    def nearest_even(self, vectors, one):
        """Codes of float32; one: held, or LLVM would make a mask of what is 0 or 1."""
        b, parts = self.b, []
        for low, code in zip(self.words(vectors, False), self.words(vectors, True), strict=True):
            tie = b.sub(self.narrow.like(code, 0x8000), b.and_(code, one))
            over = self.unsigned("usub.sat", low, tie)
            parts.append(b.add(code, self.unsigned("umin", over, one)))
        return parts

    def unsigned(self, name, v, w):
        return self.em.call(f"llvm.{name}.v{v.type.count}i16", v.type, v, w)

    def mask(self, lanes):
        """Bits of a line from the lanes of its parts."""
        return self.b.bitcast(self.narrow.join(lanes), I32)

    def any(self, lanes):
        return self.em.call(f"llvm.vector.reduce.or.v{self.narrow.lanes}i1", I1, lanes)


def most(em, vectors, sign=">"):
    """The largest of each lane, of whole numbers."""
    vectors = list(vectors)
    while len(vectors) > 1:
        v, w, *rest = vectors
        vectors = [*rest, em.b.select(em.b.icmp_unsigned(sign, v, w), v, w)]
    return vectors[0]


def reduced(em, kind, v):
    name = f"llvm.vector.reduce.{kind}.v{v.type.count}i{v.type.element.width}"
    return em.call(name, v.type.element, v)


def first_cell(em, state, name):
    return em.b.bitcast(state_pointer(em, state, name), F64.as_pointer())


class Piece:
    """Whole lines of a row, and what is found in them."""

    def __init__(self, em, single, clean, direct, target, factor, first):
        """single, direct: the direction as `quick_run` takes it, and in float64."""
        self.em, self.b, self.lines = em, em.b, Lines(em)
        if x86_has(em.context, "avx512bw"):
            self.wide = Lines(Emitter(em.context, em.b, 2 * LANES))
        else:
            self.wide = self.lines
        self.single, self.words = single
        self.clean, self.direct, self.target, self.first = clean, direct, target, first
        self.rounded = em.b.gep(target, [I64(ROUNDED)])
        self.factor, self.scale = factor, em.splat(em.b.fptrunc(factor, F32))
        self.size_bits = self.wide.held(0x7FFF7FFF, self.wide.codes)

    def singles(self, lines, k):
        return lines.load_singles(lines.place(self.single, k, 4 * LINE))

    def states(self, k):
        """Clean and edited state of line k."""
        pointers = (self.clean, self.target)
        return [self.lines.split(self.lines.load(self.lines.place(p, k))) for p in pointers]

    def requests(self, k, j, in_single):
        """Codes of the rounded requests of part j of a line, each from float64."""
        b, em = self.b, self.wide.narrow
        offset = b.add(b.mul(k, I64(8 * LINE)), I64(8 * em.lanes * j))
        q = b.fmul(em.stored("float64", self.direct, offset), em.splat(self.factor))
        made = b.fpext(b.fptrunc(q, em.vector(F32)), q.type)
        return narrowed(em, "bfloat16", b.select(em.splat(in_single), made, q))

    def edit(self, number, past, in_single, ahead, reported):
        """Write the edited lines; the largest |c| of each lane, its line, and what is unchanged."""
        b, lines = self.b, self.wide
        em = lines.em
        # Hidden, or the sums would take theirs from the wider one, which is not at hand there.
        scale = b.bitcast(b.fptrunc(self.factor, F32), I32)
        scale = em.splat(b.bitcast(lines.hidden(scale), F32))
        tie = lines.held(0x8000 + SURE, lines.integers)
        near, one = (lines.held(n * 0x10001, lines.codes) for n in (2 * SURE, 1))
        zero = ir.Constant(lines.codes, None)
        unchanged = cgutils.alloca_once_value(b, I32(0))
        peak, peak_line, at = (cgutils.alloca_once_value(b, zero) for _ in range(3))
        with cgutils.for_range(b, number) as loop:
            k = loop.index
            here, place = lines.place(self.clean, k), lines.place(self.target, k)
            prefetch(em, here, ahead, FAR)
            r, low = lines.nearest([b.fmul(v, scale) for v in self.singles(lines, k)], tie)
            cells = [cgutils.alloca_once_value(b, v) for v in r]
            some = lines.any(b.icmp_unsigned("<=", most(em, low, "<"), near))
            with b.if_then(some, likely=False):
                mended = [
                    b.select(b.icmp_unsigned("<=", v, near), self.requests(k, j, in_single), code)
                    for j, (v, code) in enumerate(zip(low, lines.words(r, True), strict=True))
                ]
                for v, cell in zip(lines.split(mended), cells, strict=True):
                    b.store(v, cell)
            r, codes = [b.load(cell) for cell in cells], lines.load(here)
            sums = [b.fadd(v, w) for v, w in zip(lines.split(codes), r, strict=True)]
            changed = lines.nearest_even(sums, one)
            with b.if_else(past) as (yes, no):
                with yes:
                    lines.store(place, changed, past=True)
                with no:
                    lines.store(place, changed)
            if reported:
                lines.store_singles(lines.place(self.rounded, k, 4 * LINE), r)
                same = [b.icmp_unsigned("==", v, w) for v, w in zip(codes, changed, strict=True)]
                same = b.and_(lines.mask(same), b.load(b.gep(self.words, [k])))
                same = em.call("llvm.ctpop.i32", I32, same)
                b.store(b.add(b.load(unchanged), same), unchanged)
                size, largest = most(em, self.sizes(codes)), b.load(peak)
                above = b.icmp_signed(">", size, largest)
                b.store(b.select(above, size, largest), peak)
                b.store(b.select(above, b.load(at), b.load(peak_line)), peak_line)
                b.store(b.add(b.load(at), em.like(zero, 1)), at)
        return b.load(peak), b.load(peak_line), b.load(unchanged)

    def sizes(self, codes):
        return [self.b.and_(v, self.size_bits) for v in codes]

    def peak(self, largest, line):
        """The largest |c|, and the first coordinate of it."""
        b, em, lines = self.b, self.em, self.wide
        size = reduced(em, "umax", largest)
        equal = b.icmp_unsigned("==", largest, lines.narrow.splat(size))
        k = b.zext(reduced(em, "umin", b.select(equal, line, em.like(line, LINES))), I64)
        found = self.sizes(lines.load(lines.place(self.clean, k)))
        found = lines.mask([b.icmp_unsigned("==", v, lines.narrow.splat(size)) for v in found])
        index = b.zext(em.call("llvm.cttz.i32", I32, found, I1(0)), I64)
        value = b.fpext(b.bitcast(b.shl(b.zext(size, I32), I32(16)), F32), F64)
        return value, b.add(b.mul(k, I64(LINE)), index)

    def sum(self, number, sums):
        """Add the products of an edit; the line of the largest error."""
        b, em, lines = self.b, self.em, self.lines
        worst = cgutils.alloca_once_value(b, em.fill(I32, 0))
        left = cgutils.alloca_once_value(b, em.fill(I32, LINES - 1))
        bits = lines.held(0x80000000 - LINES, lines.integers)
        with cgutils.for_range(b, number) as loop:
            (c, a), u = self.states(loop.index), self.singles(lines, loop.index)
            q = [b.fmul(v, self.scale) for v in u]
            r = lines.load_singles(lines.place(self.rounded, loop.index, 4 * LINE))
            errors = [sums.compare(*v, self.scale) for v in zip(c, a, q, r, u, strict=True)]
            errors = [b.and_(b.bitcast(v, lines.integers), bits) for v in errors]
            key = b.or_(most(em, errors), b.load(left))
            b.store(most(em, [key, b.load(worst)]), worst)
            b.store(b.sub(b.load(left), em.fill(I32, 1)), left)
        key = b.and_(reduced(em, "umax", b.load(worst)), I32(LINES - 1))
        return b.zext(b.sub(I32(LINES - 1), key), I64)

    def worst(self, k, sums):
        """The largest error of line k, and the first coordinate of it there."""
        b, em = self.b, self.em
        (c, a), places = self.states(k), []
        d = [b.fsub(v, w) for v, w in zip(a, c, strict=True)]
        pairs = zip(d, self.singles(self.lines, k), strict=True)
        errors = [sums.beside(v, u, b.fmul(u, self.scale), self.scale) for v, u in pairs]
        bits = em.fill(I32, 0x7FFFFFFF)
        errors = [b.and_(b.bitcast(v, bits.type), bits) for v in errors]
        largest = em.splat(reduced(em, "umax", most(em, errors)))
        for j, v in enumerate(errors):
            numbers = [LINE // 2 * (j // 2) + 2 * i + j % 2 for i in range(LANES)]
            equal = b.icmp_unsigned("==", v, largest)
            places.append(b.select(equal, ir.Constant(v.type, numbers), em.like(v, LINE)))
        index = b.zext(reduced(em, "umin", most(em, places, "<")), I64)
        index = b.add(b.mul(k, I64(LINE)), index)
        c, a = (self.number("bfloat16", p, index) for p in (self.clean, self.target))
        q = b.fmul(self.number("float64", self.direct, index), self.factor)
        return em.call("llvm.fabs.f64", F64, b.fsub(b.fsub(a, c), q)), index

    def number(self, kind, pointer, index):
        one = Emitter(self.em.context, self.b, lanes=1)
        v, _ = one.load(kind, pointer, self.b.mul(index, I64(bits_of(kind) // 8)))
        return self.b.extract_element(v, I32(0))

    def raise_to(self, state, name, value, index):
        """Let a value be the largest of a state, if it is larger."""
        b, cell = self.b, first_cell(self.em, state, name)
        with b.if_then(b.fcmp_ordered(">", value, b.load(cell))):
            b.store(value, cell)
            index = b.sitofp(b.add(self.first, index), F64)
            b.store(index, first_cell(self.em, state, name + "_index"))


@intrinsic
def quick_run(
    typingctx, state, h, u, single, report, pointers, target, past, factor, in_single, ahead,
    first, count,
):  # fmt: skip
    """`dose_run` of bfloat16 to nearest, cast first, of whole lines.

    single: u as float32, each line parted in even and odd coordinates, then for each line the
    bits of what is not 0 in it. target: with a report, there is room for the rounded requests
    ROUNDED bytes on. past: whether it begins a cache line, and lines of it go past the caches.

    in_single: whether edits are made in float32, not float64; ahead: bytes from here to rows
    that come later, which are fetched meanwhile.
    """
    signature = types.void(
        types.voidptr, h, u, single, report, pointers, types.voidptr, types.boolean, types.float64,
        types.boolean, types.intp, types.intp, types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        b, em = builder, Emitter(context, builder, lanes=LANES)
        state, reported = args[0], not absent(signature.args[4])
        (clean, direct), target, past = cgutils.unpack_tuple(b, args[5]), args[6], args[7]
        factor, in_single, ahead, first, count = args[8:]
        array = context.make_array(signature.args[3])(context, b, args[3])
        data = b.bitcast(array.data, BYTES)
        # After all the lines, a word for each, that is after 32 of 33 parts of the array.
        words = b.mul(b.udiv(b.extract_value(array.shape, 0), I64(LINE + 1)), I64(LINE))
        words = b.add(words, b.udiv(first, I64(LINE)))
        words = b.bitcast(b.gep(data, [b.mul(words, I64(4))]), I32.as_pointer())
        single = b.gep(data, [b.mul(first, I64(4))])
        number = b.udiv(b.add(count, I64(LINE - 1)), I64(LINE))
        piece = Piece(em, (single, words), clean, direct, target, factor, first)
        largest, line, unchanged = piece.edit(number, past, in_single, ahead, reported)
        if not reported:
            return context.get_dummy_value()
        piece.raise_to(state, "peak", *piece.peak(largest, line))
        sums = Cells(em, F32, QUICK_SUMS)
        worst = piece.worst(piece.sum(number, sums), sums)
        for name in sums.names:
            pointer = state_pointer(em, state, name)
            known = b.load(pointer)
            known.align = 8
            more = b.fpext(sums.get(name), em.vector(F64))
            b.store(b.fadd(known, more), pointer).align = 8
        cell = first_cell(em, state, "unchanged")
        b.store(b.fadd(b.load(cell), b.uitofp(unchanged, F64)), cell)
        piece.raise_to(state, "worst", *worst)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def padded(typingctx, pointer, count, memory):
    """Copy bfloat16 to memory (they may be there already), up to a whole line with zeros."""
    signature = types.voidptr(types.voidptr, types.intp, types.voidptr)

    def codegen(context, builder, signature, args):
        pointer, count, memory = args
        size = builder.mul(count, I64(2))
        cgutils.raw_memmove(builder, memory, pointer, size, 1)
        cgutils.memset(builder, builder.gep(memory, [size]), I64(2 * LINE), 0)
        return memory

    return signature, codegen
