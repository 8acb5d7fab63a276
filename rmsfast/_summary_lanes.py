"""What the accumulators of `describe` and `compare` have in common.

The squares are those of `Sum`, in the same lanes and the same tree as for `rms` and `rmse`, so
they have the same bits. What else is wanted of an element is taken while it is in a register.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._lanes import partial_fields
from rmsfast._memory import component_bytes
from rmsfast._runs import FAR, NEAR, offsets_of, prefetch, valid_lanes
from rmsfast._terms import INF, Sum
from rmsfast._vectors import (
    AHEAD_FAR,
    AHEAD_NEAR,
    BYTES,
    F32,
    F64,
    I1,
    I32,
    I64,
    LANES,
    WIDTH,
    Emitter,
    absent,
    component_of,
    x86_has,
)

SINGLE = {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}


def read(em, total, pointers, index, valid):
    """Values of every array as `Sum` takes them; and x and y in lanes as narrow as hold them."""
    values, own = [], []
    offsets = offsets_of(em.b, total.arrays, index)
    for k, (array, pointer, offset) in enumerate(zip(total.arrays, pointers, offsets, strict=True)):
        value = narrow = None
        if array is not None:
            kind = component_of(array)
            if k in total.codes:
                value = em.stored(kind, pointer, offset, valid)
            elif kind in SINGLE:
                value, narrow = read_single(em, kind, pointer, offset, valid)
            else:
                value = em.load(kind, pointer, offset, valid)
                narrow = value[0]
        values.append(value)
        own.append(narrow)
    return values, own[:2]


def read_single(em, kind, pointer, offset, valid):
    """Lanes of a format no wider than float32, widened; and as float32."""
    b, half = em.b, WIDTH // 2
    if kind == "float32" and valid is None and em.lanes > half and not long_vectors(em.context):
        # Loaded twice: to widen a half of a register takes one instruction more.
        short = Emitter(em.context, b, half)
        places = [b.add(offset, I64(4 * k)) for k in range(0, em.lanes, half)]
        parts = [short.widen(kind, short.stored(kind, pointer, p))[0] for p in places]
        return (em.join(parts), None), em.stored(kind, pointer, offset)
    narrow = em.stored(kind, pointer, offset, valid)
    narrow = narrow if kind == "float32" else em.narrow_float(kind, narrow)
    return (b.fpext(narrow, em.vector(F64)), None), narrow


def read_paired(em, total, pointers, start, parity, valid):
    """As `read`, the even or the odd of twice as many bfloat16, read two at a time as 32 bits."""
    b, values, own = em.b, [], []
    for array, pointer in zip(total.arrays, pointers, strict=True):
        value = narrow = None
        if array is not None:
            twice = Emitter(em.context, b, 2 * em.lanes)
            codes = twice.stored("bfloat16", pointer, b.mul(start, I64(2)), valid)
            narrow = em.pair_of(b.bitcast(codes, em.vector(I32)))[parity]
            value = b.fpext(narrow, em.vector(F64)), None
        values.append(value)
        own.append(narrow)
    return values, own[:2]


def long_vectors(context):
    return x86_has(context, "avx512f")


class Lanes:
    """Accumulators of a run in memory, and how they are added to.

    sums: the first value of each sum of float64, which has LANES lanes. others: type and first
    value of what does not depend on an order, which is of a piece: so many lanes as fill 32 bytes
    with numbers as they are looked at. A run of LANES elements is some pieces; those of bfloat16
    read in pairs are its even and its odd elements. step(em, now, values, own, valid): the
    accumulators after one piece of every array, as `read` gives it.
    """

    def __init__(self, total, sums, others, step):
        self.total, self.sums, self.others, self.step = total, sums, others, step
        narrow = all(component_of(a) in SINGLE for a in total.arrays[:2] if a)
        self.piece = WIDTH if narrow else WIDTH // 2
        self.pieces = LANES // self.piece
        self.paired = total.paired and narrow

    @property
    def size(self):
        """Bytes."""
        return 8 * (LANES * len(self.sums) + self.piece * len(self.others))

    def place(self, em, state, name, first=0):
        """Pointer to lanes of an accumulator, of sums from `first` on, and their type."""
        if name in self.sums:
            return em.b.gep(state, [I64(8 * (LANES * list(self.sums).index(name) + first))]), F64
        place = LANES * len(self.sums) + self.piece * list(self.others).index(name)
        return em.b.gep(state, [I64(8 * place)]), self.others[name][0]

    def get(self, em, state, name, first=0):
        place, kind = self.place(em, state, name, first)
        v = em.b.load(em.b.bitcast(place, em.vector(kind).as_pointer()))
        v.align = 8
        return v

    def put(self, em, state, name, v, first=0):
        place, _ = self.place(em, state, name, first)
        em.b.store(v, em.b.bitcast(place, v.type.as_pointer())).align = 8

    def clear(self, context, builder, state):
        em = Emitter(context, builder, LANES)
        for name, start in self.sums.items():
            self.put(em, state, name, em.fill(F64, start))
        for name, (kind, start) in self.others.items():
            self.put(em, state, name, em.fill(kind, start, self.piece))

    def all(self, context, builder, state):
        """All lanes of every accumulator, those of sums in order."""
        em, few = Emitter(context, builder, LANES), Emitter(context, builder, self.piece)
        end = {name: self.get(few, state, name) for name in self.others}
        for name in self.sums:
            v = self.get(em, state, name)
            if self.paired:
                order = [k // 2 + self.piece * (k % 2) for k in range(LANES)]
                v = builder.shuffle_vector(v, v, ir.Constant(em.vector(I32), order))
            end[name] = v
        return em, end

    def rows(self, em, states, size):
        """Vectors of WIDTH rows, whose states are `size` bytes apart, for `rows_tree`."""
        found = {name: [] for name in (*self.sums, *self.others)}
        for row in range(WIDTH):
            state = em.b.gep(states, [I64(row * size)])
            for name in self.others:
                found[name].append(self.get(em, state, name))
            for name in self.sums:
                vectors = [self.get(em, state, name, k) for k in range(0, LANES, WIDTH)]
                found[name] += em.neighbours(vectors) if self.paired else vectors
        return found

    def add(self, context, builder, state, pointers, count):
        """Add a run that begins in lane 0 and is in cache: it is walked once for some pieces."""
        em, many = Emitter(context, builder, self.piece), self.at_once(context)
        passes = [range(k, k + many) for k in range(0, self.pieces, many)]
        lines = [
            (p, array, line)
            for array, p in zip(self.total.arrays, pointers, strict=True)
            for line in range(0, LANES * component_bytes(array) if array else 0, 64)
        ]
        for k, pieces in enumerate(passes):
            # Memory is asked by all passes alike, since no line comes faster than others.
            far = [v for i, v in enumerate(lines) if i * len(passes) // len(lines) == k]
            self.walk(em, state, pointers, count, pieces, far, lines if k == 0 else ())

    def at_once(self, context):
        """Pieces whose accumulators stay in registers, some of which are needed besides."""
        registers, size = (32, 8) if long_vectors(context) else (16, 4)
        many = self.pieces
        each = len(self.sums) * -(-self.piece // size)
        while many > 1 and each * many + len(self.others) > registers - 4:
            many //= 2
        return many

    def walk(self, em, state, pointers, count, pieces, far, near):
        """Add some pieces of each run of LANES elements; far, near: lines that are fetched."""
        b = em.b
        places = [(name, 0) for name in self.others]
        places += [(name, k * self.piece) for k in pieces for name in self.sums]
        cells = {at: cgutils.alloca_once_value(b, self.get(em, state, *at)) for at in places}

        def add(start, rest):
            for k in pieces:
                own = {name: (name, k * self.piece) for name in self.sums}
                own |= {name: (name, 0) for name in self.others}
                now = {name: b.load(cells[at]) for name, at in own.items()}
                values, narrow, valid = self.read(em, pointers, start, k, rest)
                for name, v in self.step(em, now, values, narrow, valid).items():
                    b.store(v, cells[own[name]])

        whole = b.lshr(count, I64(LANES.bit_length() - 1))
        with cgutils.for_range(b, whole) as loop:
            start = b.mul(loop.index, I64(LANES))
            for lines, ahead, level in ((far, AHEAD_FAR, FAR), (near, AHEAD_NEAR, NEAR)):
                for pointer, array, line in lines:
                    place = b.mul(start, I64(component_bytes(array)))
                    prefetch(em, pointer, b.add(place, I64(ahead + line)), level)
            add(start, None)
        rest = b.and_(count, I64(LANES - 1))
        with b.if_then(b.icmp_signed(">", rest, I64(0)), likely=False):
            add(b.sub(count, rest), rest)
        for at, cell in cells.items():
            self.put(em, state, at[0], b.load(cell), at[1])

    def read(self, em, pointers, start, k, rest):
        """Piece k of LANES elements, of which there are `rest` (None: all), and which are there."""
        b, valid = em.b, None
        if not self.paired:
            first = I64(k * self.piece)
            valid = rest and valid_lanes(em, b.sub(rest, first))
            return *read(em, self.total, pointers, b.add(start, first), valid), valid
        there = rest and valid_lanes(Emitter(em.context, b, LANES), rest)
        valid = rest and valid_lanes(em, b.lshr(b.add(rest, I64(1 - k)), I64(1)))
        return *read_paired(em, self.total, pointers, start, k, there), valid


def both(em, mask, other):
    """The lanes of both masks (None: all)."""
    return mask if other is None else other if mask is None else em.b.and_(mask, other)


def count_start(kind):
    """A counter of numbers of a type: as many lanes, as wide."""
    return (I32 if kind is F32 else I64), 0


def counted(em, counter, mask):
    """A counter more by 1 in the lanes of a mask."""
    return em.b.sub(counter, em.b.sext(mask, counter.type))


def total_count(em, counter):
    """All lanes of a counter, as float64."""
    lanes, bits = counter.type.count, counter.type.element
    whole = em.call(f"llvm.vector.reduce.add.v{lanes}i{bits.width}", bits, counter)
    return em.b.sitofp(whole, F64)


def further(em, sign, old, new, kept):
    beyond = both(em, em.b.fcmp_ordered(sign, new, old), kept)
    return em.b.select(beyond, new, old)


def add_to_pair(em, now, name, v, e, exact):
    """Add v + e to accumulator `name`, which is a pair where `exact`."""
    if not exact:
        return {name: em.b.fadd(now[name], v)}
    high, lost = em.two_sum(now[name], v)
    lost = lost if e is None else em.b.fadd(lost, e)
    return {name: high, name + "_low": em.b.fadd(now[name + "_low"], lost)}


def pair_starts(names, exact):
    names = [part for name in names for part in (name, name + "_low")[: 1 + exact]]
    return dict.fromkeys(names, 0.0)


def pair_total(em, end, name, exact):
    """The sum over all lanes as a pair."""
    b = em.b
    if not exact:
        (top,) = em.lanes_tree([(end[name],)], lambda p, q: (b.fadd(p[0], q[0]),))
        return top, F64(0.0)
    top, lost = em.lanes_tree([(end[name], end[name + "_low"])], em.add_compensated)
    high, low = em.fast_two_sum(top, lost)
    finite = b.fcmp_ordered("<", em.absolute(top), F64(INF))
    return b.select(finite, high, top), b.select(finite, low, F64(0.0))


def furthest(em, vectors, sign, tree):
    """The least or largest of all lanes, as float64."""

    def beyond(p, q):
        return (em.b.select(em.b.fcmp_ordered(sign, q[0], p[0]), q[0], p[0]),)

    (found,) = tree([(v,) for v in vectors], beyond)
    many = isinstance(found.type, ir.VectorType)
    wide = em.vector(F64, found.type.count) if many else F64
    return found if found.type == wide else em.b.fpext(found, wide)


def some(em, mask):
    """1 if the mask has a lane, else 0."""
    bits = em.b.bitcast(mask, ir.IntType(mask.type.count))
    return em.b.zext(em.b.icmp_unsigned("!=", bits, bits.type(0)), I64)


def news(em, total, end, beyond, sign):
    """1 if some lane is beyond what was the largest; 2 if some sum of squares is beyond numbers."""
    special = em.b.fcmp_unordered(sign, end["sum"], em.like(end["sum"], INF))
    return em.b.or_(some(em, beyond), em.b.shl(some(em, special), I64(1)))


def squares_step(em, total, now, values, valid):
    return total.step(em, {name: now[name] for name in total.components}, values, valid, None)


def square_fields(em, total, end, count):
    """The fields of a partial."""
    parts = {name: [end[name]] for name in total.components}
    found = total.total(em, parts, em.lanes_tree)
    return partial_fields(em, total, found, em.b.sitofp(count, F64))[:8]


def tuple_of(context, em, signature, parts):
    return context.make_tuple(em.b, signature.return_type, parts)


@intrinsic
def formats_of(typingctx, arrays):
    """The types of the arrays without the arrays, which would be counted wherever they go."""
    signature = types.TypeRef(arrays)(arrays)

    def codegen(context, builder, signature, args):
        return context.get_dummy_value()

    return signature, codegen


def plain_sum(em, vectors, tree):
    """The sum over all lanes, of float64 or integers."""
    add = em.b.add if isinstance(vectors[0].type.element, ir.IntType) else em.b.fadd
    return tree([(v,) for v in vectors], lambda p, q: (add(p[0], q[0]),))[0]


def tells(formats, hows, wide):
    """Whether what is reported of rows is found for WIDTH of them at once.

    That is where sums are plain and stay in range, and roots are float32.
    """
    kinds = {component_of(a) for a in tuple(formats)[:2] if not absent(a)}
    return kinds <= SINGLE and all(absent(flag) for flag in (wide, *tuple(hows)[1:]))


def put_rows(em, kind, array, row, mask, fields):
    """Store vectors of WIDTH rows in lines of a table: line -> vector, float64 or int64."""
    b = em.b
    table = em.context.make_array(kind)(em.context, b, array)
    data, rows = b.bitcast(table.data, BYTES), b.extract_value(table.shape, 1)
    for line, v in fields.items():
        place = b.add(b.mul(rows, I64(line)), row)
        p = b.bitcast(b.gep(data, [b.mul(place, I64(8))]), v.type.as_pointer())
        letter = "f" if v.type.element is F64 else "i"
        name = f"llvm.masked.store.v{em.lanes}{letter}64.p0"
        em.call(name, ir.VoidType(), v, p, I32(8), mask)


def is_between(em, v, low, high):
    b = em.b
    above = b.fcmp_ordered(">", v, em.like(v, low))
    return b.and_(above, b.fcmp_ordered("<", v, em.like(v, high)))


def left_out(em, rows, mask):
    """Bits of those of the first `rows` rows that a mask does not have."""
    left = em.b.and_(valid_lanes(em, rows), em.b.not_(mask))
    return em.b.zext(em.b.bitcast(left, ir.IntType(em.lanes)), I64)


AT_ONCE = 4  # vectors that are looked at before a branch
NEARLY = 1.0 - 2.0**-22  # what is at least this times as large may be as large after rounding


@intrinsic
def first_of_size(typingctx, formats, how, pointers, size, count):
    """Index of the first x - y (y None: x) of a run with that absolute value; -1: of the first NaN.

    A NaN that is kept has no other size beside it: it is the only one looked for.
    """
    signature = types.intp(formats, how, pointers, types.float64, types.intp)

    def codegen(context, builder, signature, args):
        total = Sum(signature.args[0].instance_type, signature.args[1])
        pointers, count = cgutils.unpack_tuple(builder, args[2]), args[4]
        narrow = all(component_of(a) in SINGLE for a in total.arrays[:2] if a)
        single = narrow and total.y is None
        found = cgutils.alloca_once_value(builder, count)
        em = Emitter(context, builder, LANES)
        piece = Emitter(context, builder, WIDTH if narrow else WIDTH // 2)
        least = builder.fmul(args[3], F64(NEARLY))
        size, least = (builder.fptrunc(v, F32) if narrow else v for v in (args[3], least))

        def compared(em, v, sign, bound, keep):
            absolute = em.call(
                f"llvm.fabs.v{em.lanes}f{32 if v.type.element is F32 else 64}", v.type, v
            )
            return both(em, builder.fcmp_unordered(sign, absolute, em.splat(bound)), keep)

        def matches(start, valid):
            """Mask of the sought among LANES elements."""
            values, (x, _) = read(em, total, pointers, start, valid)
            keep, _, _ = total.keep(em, values, valid)
            v = x if single else total.value(em, values, None)[0]
            keep = keep if keep is not None else valid
            return compared(em, v, "ueq", size if single else args[3], keep)

        def candidates(start, k):
            """Mask of what may be sought in piece k of LANES elements, in any order."""
            if total.paired:
                values, (x, y) = read_paired(piece, total, pointers, start, k, None)
            else:
                place = builder.add(start, I64(k * piece.lanes))
                values, (x, y) = read(piece, total, pointers, place, None)
            keep, _, _ = total.keep(piece, values, None)
            if narrow and y is not None:  # rounded differences are in the order of exact ones
                return compared(piece, builder.fsub(x, y), "uge", least, keep)
            v = x if narrow else total.value(piece, values, None)[0]
            return compared(piece, v, "ueq", size, keep)

        def note(start, masks):
            bits = builder.bitcast(em.join(masks), ir.IntType(LANES * len(masks)))
            with builder.if_then(builder.icmp_unsigned("!=", bits, bits.type(0)), likely=False):
                place = em.call(f"llvm.cttz.i{bits.type.width}", bits.type, bits, ir.IntType(1)(1))
                place = place if place.type is I64 else builder.zext(place, I64)
                builder.store(builder.add(start, place), found)

        def stop(loop):
            """Leave the loop if the sought is found."""
            beside = builder.icmp_signed("!=", builder.load(found), count)
            with builder.if_then(beside, likely=False):
                loop.do_break()

        whole = builder.udiv(count, I64(AT_ONCE * LANES))
        with cgutils.for_range(builder, whole) as loop:
            start = builder.mul(loop.index, I64(AT_ONCE * LANES))
            places = [builder.add(start, I64(k * LANES)) for k in range(AT_ONCE)]
            masks = [candidates(p, k) for p in places for k in range(LANES // piece.lanes)]
            hit = some(piece, piece.tree(masks, builder.or_))
            with builder.if_then(builder.trunc(hit, I1), likely=False):
                note(start, [matches(place, None) for place in places])
                stop(loop)
        first = builder.mul(whole, I64(AT_ONCE * LANES))
        none = builder.icmp_signed("==", builder.load(found), count)
        rest = builder.select(none, builder.sub(count, first), I64(0))
        runs = builder.udiv(builder.add(rest, I64(LANES - 1)), I64(LANES))
        with cgutils.for_range(builder, runs) as loop:
            start = builder.add(first, builder.mul(loop.index, I64(LANES)))
            note(start, [matches(start, valid_lanes(em, builder.sub(count, start)))])
            stop(loop)
        return builder.load(found)

    return signature, codegen


@intrinsic
def element(typingctx, formats, how, pointers, index):
    """Element `index` of a run: 1 if it is kept, x and y (y None: 0)."""
    signature = types.UniTuple(types.float64, 3)(formats, how, pointers, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, lanes=1)
        total = Sum(signature.args[0].instance_type, signature.args[1])
        values, _ = read(em, total, cgutils.unpack_tuple(builder, args[2]), args[3], None)
        keep, _, _ = total.keep(em, values, None)
        one, zero = em.fill(F64, 1.0), em.fill(F64, 0.0)
        y = zero if values[1] is None else values[1][0]
        kept = one if keep is None else builder.select(keep, one, zero)
        parts = [builder.extract_element(v, I32(0)) for v in (kept, values[0][0], y)]
        return tuple_of(context, em, signature, parts)

    return signature, codegen
