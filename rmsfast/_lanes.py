"""Lane accumulators: the @intrinsic functions that kernels call on a run of elements.

A *state* is memory of float64: for every component that a sum needs (see `components`),
LANES lanes; in a column sum, LANES lanes of every column of a tile. `accumulate` adds a
run of one row to it, `accumulate_columns` one coordinate of many rows; both end in the
same `step`, and `reduce_lanes` / `reduce_columns` in the same tree. So a row has the same
bits whichever way it lies in memory.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._memory import stack
from rmsfast._partial import EXTENT_FIELDS
from rmsfast._runs import Adder, PairAdder, accumulate_integers, load_terms, nothing, scale_factors
from rmsfast._terms import Sum
from rmsfast._vectors import (
    F64,
    I1,
    I32,
    I64,
    LANES,
    WIDTH,
    Emitter,
    absent,
)

DEPTH = 4  # coordinates of a lane that are added at once where rows are columns in memory
COMING = 2048  # bytes of each of them that are fetched meanwhile


def lanes_of(em, total, v):
    """Lanes of a state, loaded, as float64."""
    return em.b.uitofp(em.b.bitcast(v, em.vector(I64)), v.type) if total.whole else v


@intrinsic
def accumulate(typingctx, state, arrays, how, pointers, scale, count):
    """Add a run of `count` elements of one row, starting in lane 0, to a state."""
    signature = types.void(types.voidptr, arrays, how, pointers, scale, types.intp)

    def codegen(context, builder, signature, args):
        total, pointers = Sum(*signature.args[1:3]), cgutils.unpack_tuple(builder, args[3])
        state, count, plain = args[0], args[5], absent(signature.args[4])
        whole = builder.lshr(count, I64(LANES.bit_length() - 1))
        if total.whole:
            em = Emitter(context, builder)
            state = builder.bitcast(state, em.vector(F64).as_pointer())
            accumulate_integers(em, total, state, pointers[0], count)
            return context.get_dummy_value()

        def add_whole(adder):
            with cgutils.for_range(builder, whole) as loop:
                start = builder.mul(loop.index, I64(LANES))
                adder.fetch(start, LANES)
                adder.add(start)

        if total.paired and plain:
            pairs = PairAdder(context, builder, total, state, pointers)
            add_whole(pairs)
            pairs.close()
        adder = Adder(context, builder, total, state, pointers)
        adder.scale = scale_factors(adder.em, signature.args[4], args[4])
        if not (total.paired and plain):
            add_whole(adder)
        rest = builder.and_(count, I64(LANES - 1))
        with builder.if_then(builder.icmp_signed(">", rest, I64(0)), likely=False):
            adder.add_some(builder.sub(count, rest), rest)
        adder.close()
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def lane_states(typingctx, arrays, how):
    """Memory on the stack for the states of WIDTH rows."""
    signature = types.voidptr(arrays, how)

    def codegen(context, builder, signature, args):
        size = len(Sum(*signature.args).components) * LANES
        return stack(builder, ir.ArrayType(F64, WIDTH * size))

    return signature, codegen


def state_at(builder, states, total, row):
    size = 8 * LANES * len(total.components)
    return builder.gep(states, [builder.mul(row, I64(size))])


@intrinsic
def state_of(typingctx, states, arrays, how, row):
    """Pointer to the state of a row among others."""
    signature = types.voidptr(types.voidptr, arrays, how, types.intp)

    def codegen(context, builder, signature, args):
        return state_at(builder, args[0], Sum(*signature.args[1:3]), args[3])

    return signature, codegen


@intrinsic
def cleared(typingctx, states, arrays, how, row):
    """Pointer to the state of a row among others, made one of nothing."""
    signature = types.voidptr(types.voidptr, arrays, how, types.intp)

    def codegen(context, builder, signature, args):
        total = Sum(*signature.args[1:3])
        state, begin = state_at(builder, args[0], total, args[3]), nothing(total)
        vectors = builder.bitcast(state, ir.VectorType(F64, WIDTH).as_pointer())
        for k in range(len(begin) * LANES // WIDTH):
            value = ir.Constant(ir.VectorType(F64, WIDTH), [begin[k * WIDTH // LANES]] * WIDTH)
            builder.store(value, builder.gep(vectors, [I64(k)])).align = 8
        return state

    return signature, codegen


def partial_fields(em, total, fields, count):
    """The fields of a partial, in order."""
    zero = em.like(count, 0.0)
    weight = fields.get("weight", (count, zero))
    if total.complex:  # two stored numbers are one value
        weight = [em.b.fmul(v, em.like(v, 0.5)) for v in weight]
    dropped, bad = fields.get("dropped", (zero,)), fields.get("bad", (zero,))
    extent = [*fields["least"], *fields["most"]] if total.extent else [zero] * 4
    return [*fields["sum"], zero, *weight, zero, dropped[0], bad[0], *extent]


@intrinsic
def reduce_lanes(typingctx, state, arrays, how, count):
    """The partial of a state of one row; `count` elements were added."""
    signature = types.UniTuple(types.float64, EXTENT_FIELDS)(types.voidptr, arrays, how, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[1:3])
        vectors = LANES // WIDTH
        state = builder.bitcast(args[0], em.vector(F64).as_pointer())
        parts = {}
        for k, name in enumerate(total.components):
            parts[name] = [
                builder.load(builder.gep(state, [I64(k * vectors + u)])) for u in range(vectors)
            ]
            for v in parts[name]:
                v.align = 8
            parts[name] = [lanes_of(em, total, v) for v in parts[name]]
        fields = total.total(em, parts, em.lanes_tree)
        count = builder.sitofp(args[3], F64)
        return context.make_tuple(
            builder, signature.return_type, partial_fields(em, total, fields, count)
        )

    return signature, codegen


@intrinsic
def reduce_rows(typingctx, states, arrays, how, count, fields):
    """Partials of WIDTH rows of `count` elements, FIELDS runs of WIDTH float64 in `fields`."""
    signature = types.void(types.voidptr, arrays, how, types.intp, types.voidptr)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[1:3])
        each = len(total.components) * LANES // WIDTH  # vectors of a row
        states = builder.bitcast(args[0], em.vector(F64).as_pointer())
        parts = {name: [] for name in total.components}
        for row in range(WIDTH):
            for k, name in enumerate(total.components):
                for u in range(LANES // WIDTH):
                    place = I64(row * each + k * LANES // WIDTH + u)
                    v = builder.load(builder.gep(states, [place]))
                    v.align = 8
                    parts[name].append(lanes_of(em, total, v))
        found = total.total(em, parts, em.rows_tree)
        store_fields(em, total, found, args[3], args[4])
        return context.get_dummy_value()

    return signature, codegen


def store_fields(em, total, found, count, fields):
    """Store partials side by side; count: elements that were added to each."""
    b = em.b
    out = b.bitcast(fields, em.vector(F64).as_pointer())
    count = em.splat(b.sitofp(count, F64))
    for k, v in enumerate(partial_fields(em, total, found, count)):
        b.store(v, b.gep(out, [I64(k)])).align = 8


@intrinsic
def roots_of(typingctx, fields, out, least, most):
    """Root of sum / weight of WIDTH partials, behind their fields; whether all were usual.

    out: an array of the type that they are for. Usual: sums from `least` to `most` (None: any).
    """
    signature = types.boolean(types.voidptr, out, least, most)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        p = builder.bitcast(args[0], em.vector(F64).as_pointer())
        field = [builder.load(builder.gep(p, [I64(k)])) for k in range(5)]
        for v in field:
            v.align = 8
        s, s_low, _, w, w_low = field
        r = em.square_root(builder.fdiv(s, w))
        if signature.args[1].dtype.bitwidth == 64:
            r = em.refined(r, (s, s_low), (w, w_low))
        r = builder.select(builder.fcmp_ordered("ord", r, r), r, em.like(r, float("nan")))
        builder.store(r, builder.gep(p, [I64(EXTENT_FIELDS)])).align = 8
        if absent(signature.args[2]):
            return I1(1)
        usual = builder.and_(
            builder.fcmp_ordered(">=", s, em.splat(args[2])),
            builder.fcmp_ordered("<=", s, em.splat(args[3])),
        )
        usual = builder.and_(usual, builder.fcmp_ordered("<=", w, em.splat(args[3])))
        return em.call(f"llvm.vector.reduce.and.v{WIDTH}i1", I1, usual)

    return signature, codegen


@intrinsic
def state_size(typingctx, arrays, how):
    """Number of float64 of a state for each lane."""
    signature = types.intp(arrays, how)

    def codegen(context, builder, signature, args):
        return I64(len(Sum(*signature.args).components))

    return signature, codegen


@intrinsic
def numbers_of_value(typingctx, arrays, how):
    """Stored numbers that are one value: 2 where an array is complex, else 1."""
    signature = types.intp(arrays, how)

    def codegen(context, builder, signature, args):
        return I64(2 if Sum(*signature.args).complex else 1)

    return signature, codegen


@intrinsic
def field_space(typingctx, unused):
    """Memory on the stack for the fields of WIDTH partials, and what is found from them."""
    signature = types.voidptr(unused)

    def codegen(context, builder, signature, args):
        return stack(builder, ir.ArrayType(F64, (EXTENT_FIELDS + 2) * WIDTH))

    return signature, codegen


@intrinsic
def factors_of(typingctx, fields, targets, inside, outside, least, low, high):
    """Factor target / size of WIDTH partials, as pairs behind their fields; whether all are usual.

    size = max(sqrt(sum / weight + inside) + outside, least). Usual: sums and factors that are
    from `low` to `high`.
    """
    number = types.float64
    signature = types.boolean(types.voidptr, types.voidptr, *[number] * 5)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        p, t = (builder.bitcast(a, em.vector(F64).as_pointer()) for a in args[:2])
        inside, outside, least, low, high = (em.splat(a) for a in args[2:])
        zero = em.like(inside, 0.0)

        def load(pointer, k):
            v = builder.load(builder.gep(pointer, [I64(k)]))
            v.align = 8
            return v

        s = load(p, 0)
        q = em.divide_pairs((s, load(p, 1)), (load(p, 3), load(p, 4)))
        size = em.root_of_pair(em.add_pairs(q, (inside, zero)))
        size = em.add_pairs(size, (outside, zero))
        more = builder.fcmp_ordered("<", size[0], least)
        size = [builder.select(more, v, own) for v, own in zip((least, zero), size, strict=True)]
        factor = em.divide_pairs((load(t, 0), zero), size)
        for k, v in enumerate(factor):
            builder.store(v, builder.gep(p, [I64(EXTENT_FIELDS + k)])).align = 8
        usual = builder.fcmp_ordered("ord", s, s)
        for v in (s, em.absolute(factor[0])):
            usual = builder.and_(usual, builder.fcmp_ordered(">=", v, low))
            usual = builder.and_(usual, builder.fcmp_ordered("<=", v, high))
        return em.call(f"llvm.vector.reduce.and.v{WIDTH}i1", I1, usual)

    return signature, codegen


@intrinsic
def found_at(typingctx, fields, k, row):
    """What `roots_of` (k = 0) or `factors_of` (0 high, 1 low) found for a row."""
    signature = types.float64(types.voidptr, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        p = builder.bitcast(args[0], F64.as_pointer())
        k = builder.mul(builder.add(args[1], I64(EXTENT_FIELDS)), I64(WIDTH))
        return builder.load(builder.gep(p, [builder.add(k, args[2])]))

    return signature, codegen


@intrinsic
def columns_tuple(typingctx, fields, column):
    """The partial of one column of `fields`, runs of WIDTH float64."""
    signature = types.UniTuple(types.float64, EXTENT_FIELDS)(types.voidptr, types.intp)

    def codegen(context, builder, signature, args):
        p = builder.bitcast(args[0], F64.as_pointer())
        found = [
            builder.load(builder.gep(p, [builder.add(args[1], I64(k * WIDTH))]))
            for k in range(EXTENT_FIELDS)
        ]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@intrinsic
def term(typingctx, arrays, how, pointers, index, scale):
    """Element `index` of a run: 1 if it is kept, x - y as a pair times scale, its weight."""
    signature = types.UniTuple(types.float64, 4)(arrays, how, pointers, types.intp, scale)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, lanes=1)
        total = Sum(*signature.args[:2])
        values = load_terms(em, total, cgutils.unpack_tuple(builder, args[2]), args[3], None)
        keep, _, _ = total.keep(em, values, None)
        v, e = total.value(em, values, scale_factors(em, signature.args[4], args[4]))
        one, zero = em.fill(F64, 1.0), em.fill(F64, 0.0)
        kept = one if keep is None else builder.select(keep, one, zero)
        weight = one if values[4] is None else values[4][0]
        parts = [kept, v, zero if e is None else e, weight]
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_element(p, I32(0)) for p in parts]
        )

    return signature, codegen


@intrinsic
def two_product(typingctx, a, b):
    """A * b as a pair, exactly."""
    signature = types.UniTuple(types.float64, 2)(types.float64, types.float64)

    def codegen(context, builder, signature, args):
        pair = Emitter(context, builder).two_product(*args)
        return context.make_tuple(builder, signature.return_type, pair)

    return signature, codegen
