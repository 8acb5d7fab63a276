"""What `describe` takes from a run of elements: the @intrinsic functions on lanes in memory."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._lanes import partial_fields
from rmsfast._memory import stack
from rmsfast._runs import valid_lanes
from rmsfast._summary_lanes import (
    SINGLE,
    Lanes,
    add_to_pair,
    both,
    count_start,
    counted,
    further,
    furthest,
    is_between,
    left_out,
    news,
    pair_starts,
    pair_total,
    plain_sum,
    put_rows,
    square_fields,
    squares_step,
    tells,
    total_count,
    tuple_of,
)
from rmsfast._terms import INF, Sum
from rmsfast._vectors import F32, F64, I8, I64, Emitter, component_of


def lanes_of_moments(formats, how):
    """Squares, values, the least and the largest value, and how many are 0."""
    total = Sum(formats, how)
    own = F32 if component_of(total.x) in SINGLE else F64
    sums = total.components | pair_starts(["first"], total.exact)
    others = {"least": (own, INF), "most": (own, -INF), "zeros": count_start(own)}

    def step(em, now, values, own, valid):
        b, x = em.b, own[0]
        new = squares_step(em, total, now, values, valid)
        keep, _, _ = total.keep(em, values, valid)
        v, e = values[0]
        if keep is not None:
            v = b.select(keep, v, em.like(v, 0.0))
            e = e and b.select(keep, e, em.like(e, 0.0))
        new |= add_to_pair(em, now, "first", v, e, total.exact)
        kept = keep if keep is not None else valid
        new["least"] = further(em, "<", now["least"], x, kept)
        new["most"] = further(em, ">", now["most"], x, kept)
        zero = b.fcmp_ordered("==", x, em.like(x, 0.0))
        new["zeros"] = counted(em, now["zeros"], both(em, zero, kept))
        return new

    return Lanes(total, sums, others, step)


def lanes_of_spread(formats, how, mean=None):
    """Squares about the mean, which is a pair."""
    total = Sum(formats, how)

    def step(em, now, values, own, valid):
        b, (centre, centre_low) = em.b, (em.splat(part) for part in mean)
        keep, _, _ = total.keep(em, values, valid)
        kept = keep if keep is not None else valid
        v, e = values[0]
        if not total.exact:  # one rounding more, but the same bits without fused arithmetic
            v = b.fsub(v, centre)
            v = v if kept is None else b.select(kept, v, em.like(v, 0.0))
            return {"sum": b.fadd(now["sum"], b.fmul(v, v))}
        v, low = em.two_sum(v, b.fneg(centre))
        low = b.fsub(low if e is None else b.fadd(low, e), centre_low)
        v, low = em.two_sum(v, low)  # the mean may be as near as its own low part
        if kept is not None:
            v, low = (b.select(kept, part, em.like(v, 0.0)) for part in (v, low))
        new = dict(now)
        total.add_exact(em, new, v, low, None)
        return new

    return Lanes(total, pair_starts(["sum"], total.exact), {}, step)


@intrinsic
def moments_size(typingctx, formats, how):
    """Bytes of the lanes of moments and, behind them, of the spread."""
    signature = types.intp(formats, how)

    def codegen(context, builder, signature, args):
        arrays, how = signature.args[0].instance_type, signature.args[1]
        return I64(lanes_of_moments(arrays, how).size + lanes_of_spread(arrays, how).size)

    return signature, codegen


def spread_behind(builder, arrays, how, state):
    return builder.gep(state, [I64(lanes_of_moments(arrays, how).size)])


@intrinsic
def clear_moments(typingctx, formats, how, state):
    signature = types.void(formats, how, types.voidptr)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_moments(signature.args[0].instance_type, signature.args[1])
        lanes.clear(context, builder, args[2])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_moments(typingctx, formats, how, state, pointers, beaten, count):
    """Add a run to moments.

    1 if some |x| is larger than `beaten`; and 2 if some sum of squares is Inf or NaN.
    """
    signature = types.intp(formats, how, types.voidptr, pointers, types.float64, types.intp)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_moments(signature.args[0].instance_type, signature.args[1])
        lanes.add(context, builder, args[2], cgutils.unpack_tuple(builder, args[3]), args[5])
        em, end = lanes.all(context, builder, args[2])
        least, most = end["least"], end["most"]
        narrow = most.type.element is F32
        beaten = builder.fptrunc(args[4], F32) if narrow else args[4]
        beaten = em.splat(beaten, most.type.count)
        beyond = builder.or_(
            builder.fcmp_ordered(">", most, beaten),
            builder.fcmp_ordered("<", least, builder.fneg(beaten)),
        )
        return news(em, lanes.total, end, beyond, "==")

    return signature, codegen


def extremes(em, least, most, tree):
    return furthest(em, least, "<", tree), furthest(em, most, ">", tree)


@intrinsic
def peak_of(typingctx, formats, how, state):
    """The largest |x| so far."""
    signature = types.float64(formats, how, types.voidptr)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_moments(signature.args[0].instance_type, signature.args[1])
        em, end = lanes.all(context, builder, args[2])
        least, most = extremes(em, [end["least"]], [end["most"]], em.lanes_tree)
        below = builder.fneg(least)
        return builder.select(builder.fcmp_ordered(">", below, most), below, most)

    return signature, codegen


@intrinsic
def reduce_moments(typingctx, formats, how, state, count):
    """Of `count` elements: the partial, sum of x as a pair, least and largest x, how many are 0.

    Where NaN is kept it shows in the sums alone.
    """
    signature = types.UniTuple(types.float64, 13)(formats, how, types.voidptr, types.intp)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_moments(signature.args[0].instance_type, signature.args[1])
        em, end = lanes.all(context, builder, args[2])
        found = square_fields(em, lanes.total, end, args[3])
        found += pair_total(em, end, "first", lanes.total.exact)
        found += extremes(em, [end["least"]], [end["most"]], em.lanes_tree)
        return tuple_of(context, em, signature, [*found, total_count(em, end["zeros"])])

    return signature, codegen


@intrinsic
def clear_spread(typingctx, formats, how, state):
    signature = types.void(formats, how, types.voidptr)

    def codegen(context, builder, signature, args):
        arrays, how = signature.args[0].instance_type, signature.args[1]
        state = spread_behind(builder, arrays, how, args[2])
        lanes_of_spread(arrays, how).clear(context, builder, state)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_spread(typingctx, formats, how, state, pointers, mean, mean_low, count):
    """Add (x - mean)**2 of a run; the mean is a pair."""
    number = types.float64
    signature = types.void(formats, how, types.voidptr, pointers, number, number, types.intp)

    def codegen(context, builder, signature, args):
        arrays, how = signature.args[0].instance_type, signature.args[1]
        state = spread_behind(builder, arrays, how, args[2])
        pointers = cgutils.unpack_tuple(builder, args[3])
        lanes_of_spread(arrays, how, args[4:6]).add(context, builder, state, pointers, args[6])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def reduce_spread(typingctx, formats, how, state):
    """Sum of (x - mean)**2 as a pair."""
    signature = types.UniTuple(types.float64, 2)(formats, how, types.voidptr)

    def codegen(context, builder, signature, args):
        arrays, how = signature.args[0].instance_type, signature.args[1]
        lanes = lanes_of_spread(arrays, how)
        em, end = lanes.all(context, builder, spread_behind(builder, arrays, how, args[2]))
        return tuple_of(context, em, signature, pair_total(em, end, "sum", lanes.total.exact))

    return signature, codegen


@intrinsic
def tell_moments(
    typingctx, formats, how, wide, states, spreads, first, count, rows, reals, counts, row
):  # fmt: skip
    """What is reported of up to WIDTH rows of one block, from `row` on; bits of what is left out.

    spreads: in its first line, from `first` on, sums of squares about the mean that are known, -1.0
    for others. Rows are left out that
    have no value, are zero or not finite, or are to be walked about their mean; so are all where
    nothing is gained (see `tells`). The index of the peak is stored by others.
    """
    signature = types.intp(
        formats, how, wide, types.voidptr, spreads, types.intp, types.intp, types.intp, reals,
        counts, types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        arrays, how = signature.args[0].instance_type, signature.args[1]
        if not tells(arrays, how, signature.args[2]):
            return I64(-1)
        b, em, lanes = builder, Emitter(context, builder), lanes_of_moments(arrays, how)
        parts = lanes.rows(em, args[3], lanes.size + lanes_of_spread(arrays, how).size)
        fields = lanes.total.total(
            em, {name: parts[name] for name in lanes.total.components}, em.rows_tree
        )
        whole = em.splat(args[6])
        squares, _, _, kept, _, _, dropped, _ = partial_fields(
            em, lanes.total, fields, b.sitofp(whole, em.vector(F64))
        )[:8]
        s = plain_sum(em, parts["first"], em.rows_tree)
        least, most = extremes(em, parts["least"], parts["most"], em.rows_tree)
        zeros = plain_sum(em, parts["zeros"], em.rows_tree)
        table = context.make_array(signature.args[4])(context, builder, args[4])
        known = b.bitcast(b.gep(table.data, [args[5]]), squares.type.as_pointer())
        known = b.load(known)
        known.align = 8
        mean = b.fdiv(s, kept)
        centred = b.fsub(squares, b.fmul(mean, s))
        near = b.fcmp_ordered(">=", centred, b.fmul(em.like(squares, 0.5), squares))
        walked = b.fcmp_ordered(">=", known, em.like(known, 0.0))
        level = b.fcmp_ordered("==", least, most)
        usual = b.and_(is_between(em, squares, 0.0, INF), b.or_(level, b.or_(near, walked)))
        usual = b.and_(usual, b.fcmp_ordered(">", kept, em.like(kept, 0.0)))
        deviation = em.square_root(b.fdiv(b.select(walked, known, centred), kept))
        below = b.fneg(least)
        peak = b.select(b.fcmp_ordered(">", below, most), below, most)
        share = b.fdiv(b.fmul(peak, peak), squares)
        found = {
            0: em.square_root(b.fdiv(squares, kept)),
            1: b.select(level, least, mean),
            2: b.select(level, em.like(mean, 0.0), deviation),
            3: least,
            4: most,
            5: peak,
            6: share,
            7: em.square_root(b.fmul(share, kept)),
        }
        stored = b.and_(usual, valid_lanes(em, args[7]))
        put_rows(em, signature.args[8], args[8], args[10], stored, found)
        longs = whole.type
        numbers = {
            0: b.fptosi(kept, longs) if lanes.total.counted else whole,
            2: b.fptosi(dropped, longs) if lanes.total.omit else em.fill(I64, 0),
            3: em.fill(I64, 0),
            4: b.sext(zeros, longs),
        }
        put_rows(em, signature.args[9], args[9], args[10], stored, numbers)
        return left_out(em, args[7], usual)

    return signature, codegen


@intrinsic
def special_values(typingctx, formats, how, pointers, count):
    """How many x of a run are NaN, and how many infinite, of those that `where` chooses."""
    signature = types.UniTuple(types.float64, 2)(formats, how, pointers, types.intp)

    def codegen(context, builder, signature, args):
        total = Sum(signature.args[0].instance_type, (None, None, None))

        def step(em, now, values, own, valid):
            x = own[0]
            keep, _, _ = total.keep(em, values, valid)
            kept = keep if keep is not None else valid
            infinite = builder.or_(
                builder.fcmp_ordered("==", x, em.like(x, INF)),
                builder.fcmp_ordered("==", x, em.like(x, -INF)),
            )
            nan = builder.fcmp_unordered("uno", x, x)
            return {
                "nan": counted(em, now["nan"], both(em, nan, kept)),
                "inf": counted(em, now["inf"], both(em, infinite, kept)),
            }

        count = count_start(F32 if component_of(total.x) in SINGLE else F64)
        lanes = Lanes(total, {}, {"nan": count, "inf": count}, step)
        state = stack(builder, ir.ArrayType(I8, lanes.size))
        lanes.clear(context, builder, state)
        lanes.add(context, builder, state, cgutils.unpack_tuple(builder, args[2]), args[3])
        em, end = lanes.all(context, builder, state)
        return tuple_of(context, em, signature, [total_count(em, v) for v in end.values()])

    return signature, codegen
