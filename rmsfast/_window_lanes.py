"""Sums of windows: the @intrinsic functions that add states of a tile, and root them.

A state holds one lane of every column of a tile (see _lanes): for each component, `tile`
float64.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._terms import Sum
from rmsfast._vectors import F32, F64, I1, I32, I64, WIDTH, Emitter, absent

BELOW, ABOVE = -1.0, -2.0  # in place of a root whose sum left the range: no root is negative
INF = float("inf")


def vectors_of(em, total, state, component, index):
    """Pointers to the vector at column `index` of each component."""
    found = {}
    for k, name in enumerate(total.components):
        offset = em.b.add(em.b.mul(component, I64(k)), em.b.mul(index, I64(8)))
        element = I64 if total.whole else F64
        found[name] = em.b.bitcast(em.b.gep(state, [offset]), em.vector(element).as_pointer())
    return found


def load_vectors(em, pointers):
    found = {name: em.b.load(p) for name, p in pointers.items()}
    for v in found.values():
        v.align = 8
    return found


def whole_vectors(builder, count):
    return builder.lshr(builder.add(count, I64(WIDTH - 1)), I64(WIDTH.bit_length() - 1))


@intrinsic
def stepped(typingctx, pointers, steps, times):
    """Pointers moved by `times` steps of some bytes each."""
    signature = pointers(pointers, steps, types.intp)

    def codegen(context, builder, signature, args):
        pairs = zip(*(cgutils.unpack_tuple(builder, a) for a in args[:2]), strict=True)
        found = [builder.gep(p, [builder.mul(s, args[2])]) for p, s in pairs]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@intrinsic
def times(typingctx, steps, count):
    """Bytes of `count` steps."""
    signature = steps(steps, types.intp)

    def codegen(context, builder, signature, args):
        found = [builder.mul(s, args[1]) for s in cgutils.unpack_tuple(builder, args[0])]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@intrinsic
def join_columns(typingctx, target, a, b, component, arrays, how, count):
    """target = a + b for the states of `count` columns; low parts of pairs add plainly."""
    pointer = types.voidptr
    signature = types.void(pointer, pointer, pointer, types.intp, arrays, how, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[4:6])
        with cgutils.for_range(builder, whole_vectors(builder, args[6])) as loop:
            index = builder.mul(loop.index, I64(WIDTH))
            cells, left, right = (
                vectors_of(em, total, state, args[3], index) for state in args[:3]
            )
            left, right = load_vectors(em, left), load_vectors(em, right)
            add = builder.add if total.whole else builder.fadd
            new = {name: add(left[name], right[name]) for name in left}
            if "sum_low" in new:
                pairs = ((side["sum"], side["sum_low"]) for side in (left, right))
                new["sum"], new["sum_low"] = em.add_compensated(*pairs)
            for name, v in new.items():
                builder.store(v, cells[name]).align = 8
        return context.get_dummy_value()

    return signature, codegen


def sums_of(em, total, parts, count):
    """The sum as a pair that is normalised, and the weight."""
    b = em.b
    if total.whole:
        return *em.pair_of_integers(parts["sum"]), count
    high, low = parts["sum"], em.like(parts["sum"], 0.0)
    if total.exact:
        # Of an infinite sum the plain addition tells Inf from NaN; pairs do not.
        finite = b.fcmp_ordered("<", high, em.like(high, INF))
        pair = em.fast_two_sum(high, parts["sum_low"])
        high, low = b.select(finite, pair[0], high), b.select(finite, pair[1], low)
    return high, low, parts.get("weight", count)


@intrinsic
def root_columns(
    typingctx, state, component, arrays, how, numbers, count, least, most, out, target
):
    """Roots of numbers * sum / weight of `count` columns, as numbers of the type of `out`.

    numbers: of which so many are one value; count: columns, and the weight where none is summed.
    Sums below `least` and above `most` (None: any go) give BELOW and ABOVE; returned are 1 for
    the one and 2 for the other, added.
    """
    signature = types.intp(
        types.voidptr, types.intp, arrays, how, types.float64,
        types.UniTuple(types.intp, 2), least, most, out, types.voidptr,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[2:4])
        single = signature.args[8].dtype.bitwidth == 32
        columns, values = cgutils.unpack_tuple(builder, args[5])
        part = em.splat(builder.fdiv(F64(1.0), args[4]))  # 1 or 1/2: exact
        analytic = em.splat(builder.sitofp(values, F64))
        flags = cgutils.alloca_once_value(builder, I64(0))
        target = builder.bitcast(args[9], em.vector(F32 if single else F64).as_pointer())
        with cgutils.for_range(builder, whole_vectors(builder, columns)) as loop:
            index = builder.mul(loop.index, I64(WIDTH))
            parts = load_vectors(em, vectors_of(em, total, args[0], args[1], index))
            s, low, weight = sums_of(em, total, parts, analytic)
            weight = builder.fmul(weight, part)
            r = em.square_root(builder.fdiv(s, weight))
            if not single:
                r = em.refined(r, (s, low), (weight, em.like(weight, 0.0)))
            r = builder.select(builder.fcmp_ordered("ord", r, r), r, em.like(r, float("nan")))
            if not absent(signature.args[6]):
                below = builder.fcmp_ordered("<", s, em.splat(args[6]))
                above = builder.fcmp_unordered(">", s, em.splat(args[7]))
                lanes = builder.sub(columns, index)
                there = builder.icmp_signed(
                    "<", ir.Constant(em.vector(I64), list(range(WIDTH))), em.splat(lanes)
                )
                for k, (mask, mark) in enumerate(((below, BELOW), (above, ABOVE))):
                    r = builder.select(mask, em.like(r, mark), r)
                    some = em.call(
                        f"llvm.vector.reduce.or.v{WIDTH}i1", I1, builder.and_(mask, there)
                    )
                    bits = builder.shl(builder.zext(some, I64), I64(k))
                    builder.store(builder.or_(builder.load(flags), bits), flags)
            if single:
                r = builder.fptrunc(r, em.vector(F32))
            builder.store(r, builder.gep(target, [loop.index])).align = 4
        return builder.load(flags)

    return signature, codegen


@intrinsic
def sums_at(typingctx, state, component, arrays, how, count, column):
    """Sum as a pair, and weight (`count` where none is summed), of one column."""
    signature = types.UniTuple(types.float64, 3)(
        types.voidptr, types.intp, arrays, how, types.float64, types.intp
    )

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, lanes=1)
        total = Sum(*signature.args[2:4])
        parts = load_vectors(em, vectors_of(em, total, args[0], args[1], args[5]))
        found = sums_of(em, total, parts, em.splat(args[4]))
        return context.make_tuple(
            builder, signature.return_type, [builder.extract_element(v, I32(0)) for v in found]
        )

    return signature, codegen
