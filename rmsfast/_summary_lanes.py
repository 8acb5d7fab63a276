"""What the accumulators of `describe` and `compare` have in common.

The squares are those of `Sum`, in the same lanes and the same tree as for `rms` and `rmse`, so
they have the same bits. What else is wanted of an element is taken while it is in a register.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._lanes import FAR, NEAR, offsets_of, partial_fields, prefetch, valid_lanes
from rmsfast._memory import component_bytes
from rmsfast._terms import INF, Sum
from rmsfast._vectors import (
    AHEAD_FAR,
    AHEAD_NEAR,
    F32,
    F64,
    I32,
    I64,
    LANES,
    Emitter,
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
    b, wide = em.b, em.vector(F64)
    if kind == "float32" and valid is None and em.lanes > 1:
        # Loaded twice: to widen a half of a register takes one instruction more.
        half = Emitter(em.context, b, em.lanes // 2)
        places = offset, b.add(offset, I64(em.lanes * 2))
        halves = [half.widen(kind, half.stored(kind, pointer, p))[0] for p in places]
        return (em.join(halves), None), em.stored(kind, pointer, offset)
    narrow = em.stored(kind, pointer, offset, valid)
    narrow = narrow if kind == "float32" else em.narrow_float(kind, narrow)
    return (b.fpext(narrow, wide), None), narrow


class Lanes:
    """Accumulators of a run in memory, LANES lanes or one counter each, and how they are added to.

    starts: the name, type and first value of each; I64 is a counter. step(em, now, values, own,
    valid): the accumulators after one vector of every array, as `read` gives it.
    """

    def __init__(self, total, starts, step):
        self.total, self.starts, self.step = total, starts, step

    @property
    def size(self):
        """Bytes."""
        return 8 * LANES * len(self.starts)

    def cell(self, em, state, name, first=0):
        """Pointer to lanes of an accumulator from `first` on."""
        kind, _ = self.starts[name]
        place = 8 * LANES * list(self.starts).index(name)
        if kind is I64:  # of all lanes
            return em.b.bitcast(em.b.gep(state, [I64(place)]), I64.as_pointer())
        place = I64(place + first * (4 if kind is F32 else 8))
        return em.b.bitcast(em.b.gep(state, [place]), em.vector(kind).as_pointer())

    def get(self, em, state, name, first=0):
        v = em.b.load(self.cell(em, state, name, first))
        v.align = 8
        return v

    def clear(self, em, state):
        for name, (kind, start) in self.starts.items():
            value = I64(start) if kind is I64 else em.fill(kind, start)
            em.b.store(value, self.cell(em, state, name)).align = 8

    def all(self, context, builder, state):
        """All lanes of every accumulator."""
        em = Emitter(context, builder, LANES)
        return em, {name: self.get(em, state, name) for name in self.starts}

    def add(self, context, builder, state, pointers, count):
        """Add a run that begins in lane 0 and is in cache: it is walked once for some lanes."""
        width = lanes_at_once(context, self.total)
        for first in range(0, LANES, width):
            self.walk(Emitter(context, builder, width), state, pointers, count, first)

    def walk(self, em, state, pointers, count, first):
        b, arrays = em.b, self.total.arrays
        cells = {}
        for name in self.starts:
            cells[name] = cgutils.alloca_once_value(b, self.get(em, state, name, first))

        def add(index, valid):
            now = {name: b.load(cell) for name, cell in cells.items()}
            values, own = read(em, self.total, pointers, index, valid)
            for name, v in self.step(em, now, values, own, valid).items():
                b.store(v, cells[name])

        whole = b.lshr(count, I64(LANES.bit_length() - 1))
        with cgutils.for_range(b, whole) as loop:
            start = b.mul(loop.index, I64(LANES))
            for array, p, o in zip(arrays, pointers, offsets_of(b, arrays, start), strict=True):
                if o is not None and first == 0:
                    for line in range(0, LANES * component_bytes(array), 64):
                        prefetch(em, p, b.add(o, I64(AHEAD_FAR + line)), FAR)
                        prefetch(em, p, b.add(o, I64(AHEAD_NEAR + line)), NEAR)
            add(b.add(start, I64(first)), None)
        rest = b.and_(count, I64(LANES - 1))
        with b.if_then(b.icmp_signed(">", rest, I64(first)), likely=False):
            index = b.add(b.sub(count, rest), I64(first))
            add(index, valid_lanes(em, b.sub(rest, I64(first))))
        for name, cell in cells.items():
            b.store(b.load(cell), self.cell(em, state, name, first)).align = 8


def lanes_at_once(context, total):
    """Lanes whose accumulators stay in registers, of which AVX-512 has twice as many."""
    if x86_has(context, "avx512vl"):
        return LANES // 2 if total.exact else LANES
    return LANES // 4 if total.exact else LANES // 2


def both(em, mask, other):
    """The lanes of both masks (None: all)."""
    return mask if other is None else other if mask is None else em.b.and_(mask, other)


def counted(em, counter, mask):
    """A counter, which takes no register of vectors, more by how many lanes the mask has."""
    bits = em.b.bitcast(mask, ir.IntType(em.lanes))
    more = em.call(f"llvm.ctpop.i{em.lanes}", bits.type, bits)
    return em.b.add(counter, em.b.zext(more, I64))


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
    return dict.fromkeys(names, (F64, 0.0))


def square_starts(total):
    return {name: (F64, start) for name, start in total.components.items()}


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


def furthest(em, v, sign):
    """The least or largest of all lanes, as float64."""

    def beyond(p, q):
        return (em.b.select(em.b.fcmp_ordered(sign, q[0], p[0]), q[0], p[0]),)

    (found,) = em.lanes_tree([(v,)], beyond)
    return found if found.type is F64 else em.b.fpext(found, F64)


def some(em, mask):
    """1 if the mask has a lane, else 0."""
    bits = em.b.bitcast(mask, ir.IntType(em.lanes))
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


AT_ONCE = 4  # vectors that are looked at before a branch


@intrinsic
def first_of_size(typingctx, formats, how, pointers, size, count):
    """Index of the first x - y (y None: x) of a run with that absolute value; -1: of the first NaN.

    A NaN that is kept has no other size beside it: it is the only one looked for.
    """
    signature = types.intp(formats, how, pointers, types.float64, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, LANES)
        total = Sum(signature.args[0].instance_type, signature.args[1])
        pointers, count = cgutils.unpack_tuple(builder, args[2]), args[4]
        single = total.y is None and component_of(total.x) in SINGLE
        size = em.splat(builder.fptrunc(args[3], F32) if single else args[3])
        found = cgutils.alloca_once_value(builder, count)
        code = ir.IntType(AT_ONCE * LANES)

        def matches(start, valid):
            """Mask of the sought among LANES elements."""
            values, (x, _) = read(em, total, pointers, start, valid)
            keep, _, _ = total.keep(em, values, valid)
            v = x if single else total.value(em, values, None)[0]
            absolute = em.call(f"llvm.fabs.v{LANES}f{32 if single else 64}", v.type, v)
            match = builder.fcmp_unordered("ueq", absolute, size)
            return both(em, match, keep if keep is not None else valid)

        def note(start, masks):
            bits = builder.bitcast(em.join(masks), ir.IntType(LANES * len(masks)))
            some = builder.icmp_unsigned("!=", bits, bits.type(0))
            with builder.if_then(some, likely=False):
                wide = builder.zext(bits, code) if len(masks) < AT_ONCE else bits
                place = em.call(f"llvm.cttz.i{code.width}", code, wide, ir.IntType(1)(1))
                builder.store(builder.add(start, place), found)
            return some

        whole = builder.udiv(count, I64(AT_ONCE * LANES))
        with cgutils.for_range(builder, whole) as loop:
            start = builder.mul(loop.index, I64(AT_ONCE * LANES))
            places = [builder.add(start, I64(k * LANES)) for k in range(AT_ONCE)]
            some = note(start, [matches(place, None) for place in places])
            with builder.if_then(some, likely=False):
                loop.do_break()
        first = builder.mul(whole, I64(AT_ONCE * LANES))
        none = builder.icmp_signed("==", builder.load(found), count)
        rest = builder.select(none, builder.sub(count, first), I64(0))
        runs = builder.udiv(builder.add(rest, I64(LANES - 1)), I64(LANES))
        with cgutils.for_range(builder, runs) as loop:
            start = builder.add(first, builder.mul(loop.index, I64(LANES)))
            some = note(start, [matches(start, valid_lanes(em, builder.sub(count, start)))])
            with builder.if_then(some, likely=False):
                loop.do_break()
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
