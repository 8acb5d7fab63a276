"""What `compare` takes from a run of pairs: the @intrinsic functions on lanes in memory."""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._summary_lanes import (
    SINGLE,
    Lanes,
    add_to_pair,
    both,
    counted,
    further,
    furthest,
    news,
    pair_starts,
    pair_total,
    square_fields,
    square_starts,
    squares_step,
    tuple_of,
)
from rmsfast._terms import INF, Sum
from rmsfast._vectors import F64, I64, LANES, Emitter, component_of


def lanes_of_products(formats, hows):
    """Squares of x - y, of x and of y; x * y and x - y; the largest |x - y|; how many are equal.

    hows: omit, and whether the squares of x - y, of x and of y are exact.
    """
    formats, hows = tuple(formats), tuple(hows)
    total = Sum(formats, (hows[0], hows[1], None))
    exact = total.exact
    sides = [  # of values that are chosen beforehand
        Sum((array, None, None, None, None), (None, flag, None))
        for array, flag in zip(formats[:2], hows[2:4], strict=True)
    ]
    alike = component_of(total.x) in SINGLE and component_of(total.y) in SINGLE
    starts = square_starts(total) | pair_starts(["product", "error"], exact)
    for side, part in zip(sides, "xy", strict=True):
        starts |= pair_starts([part], side.exact)
    starts |= {"most": (F64, -INF), "equal": (I64, 0)}

    def step(em, now, values, own, valid):
        b = em.b
        new = squares_step(em, total, now, values, valid)
        keep, _, _ = total.keep(em, values, valid)
        kept = keep if keep is not None else valid

        def chosen(pair):
            if keep is None:
                return pair
            return tuple(p and b.select(keep, p, em.like(p, 0.0)) for p in pair)

        x, y = chosen(values[0]), chosen(values[1])
        for side, part, v in zip(sides, "xy", (x, y), strict=True):
            old = {n: now[n.replace("sum", part)] for n in side.components}
            sums = side.step(em, old, (v, None, None, None, None), None, None)
            new |= {n.replace("sum", part): s for n, s in sums.items()}
        d = total.difference(em, values[0], values[1])
        new |= add_to_pair(em, now, "error", *chosen(d), exact)
        if exact:
            p, low = em.two_product(x[0], y[0])
            for v, e in ((x[0], y[1]), (y[0], x[1])):
                low = low if e is None else b.fadd(low, b.fmul(v, e))
            new |= add_to_pair(em, now, "product", p, low, exact)
        elif em.fused:  # the product is exact: the same bits with or without fma
            new["product"] = em.fma(x[0], y[0], now["product"])
        else:
            new["product"] = b.fadd(now["product"], b.fmul(x[0], y[0]))
        size = em.absolute(d[0]) if exact else b.fmul(d[0], d[0])
        new["most"] = further(em, ">", now["most"], size, kept)
        equal = b.fcmp_ordered("==", *(own if alike else (values[0][0], values[1][0])))
        lows = [e for _, e in values[:2] if e is not None]
        if lows:
            lows += [em.like(lows[0], 0.0)]
            equal = b.and_(equal, b.fcmp_ordered("==", *lows[:2]))
        new["equal"] = counted(em, now["equal"], both(em, equal, kept))
        return new

    lanes = Lanes(total, starts, step)
    lanes.pairs = {"x": sides[0].exact, "y": sides[1].exact, "product": exact, "error": exact}
    return lanes


def largest_error(em, lanes, end):
    """The largest |x - y|, which is the root of its square, rounded, unless that left the range."""
    most = furthest(em, end["most"], ">")
    return most if lanes.total.exact else em.call("llvm.sqrt.f64", F64, most)


@intrinsic
def products_size(typingctx, formats, hows):
    """Bytes of the lanes of products."""
    signature = types.intp(formats, hows)

    def codegen(context, builder, signature, args):
        return I64(lanes_of_products(signature.args[0].instance_type, signature.args[1]).size)

    return signature, codegen


@intrinsic
def clear_products(typingctx, formats, hows, state):
    signature = types.void(formats, hows, types.voidptr)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_products(signature.args[0].instance_type, signature.args[1])
        lanes.clear(Emitter(context, builder, LANES), args[2])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def add_products(typingctx, formats, hows, state, pointers, beaten, count):
    """Add a run of pairs.

    1 if some |x - y| is larger than `beaten`; and 2 if some sum of squares of x - y is NaN.
    """
    signature = types.intp(formats, hows, types.voidptr, pointers, types.float64, types.intp)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_products(signature.args[0].instance_type, signature.args[1])
        lanes.add(context, builder, args[2], cgutils.unpack_tuple(builder, args[3]), args[5])
        em, end = lanes.all(context, builder, args[2])
        beaten = args[4]
        if not lanes.total.exact:
            beaten = builder.fmul(beaten, em.call("llvm.fabs.f64", F64, beaten))
        beyond = builder.fcmp_ordered(">", end["most"], em.splat(beaten))
        return news(em, lanes.total, end, beyond, "uno")

    return signature, codegen


@intrinsic
def worst_of(typingctx, formats, hows, state):
    """The largest |x - y| so far."""
    signature = types.float64(formats, hows, types.voidptr)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_products(signature.args[0].instance_type, signature.args[1])
        em, end = lanes.all(context, builder, args[2])
        return largest_error(em, lanes, end)

    return signature, codegen


@intrinsic
def reduce_products(typingctx, formats, hows, state, count):
    """Of `count` pairs, in this order.

    The partial of x - y; the sums of x**2, y**2, x * y and x - y as pairs; the largest |x - y|;
    how many pairs are equal.
    """
    signature = types.UniTuple(types.float64, 18)(formats, hows, types.voidptr, types.intp)

    def codegen(context, builder, signature, args):
        lanes = lanes_of_products(signature.args[0].instance_type, signature.args[1])
        em, end = lanes.all(context, builder, args[2])
        found = square_fields(em, lanes.total, end, args[3])
        for name, is_pair in lanes.pairs.items():
            found += pair_total(em, end, name, is_pair)
        found += [largest_error(em, lanes, end), builder.sitofp(end["equal"], F64)]
        return tuple_of(context, em, signature, found)

    return signature, codegen
