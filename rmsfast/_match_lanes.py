"""What `compare` takes from a run of pairs: the @intrinsic functions on lanes in memory."""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._lanes import partial_fields
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
from rmsfast._vectors import F32, F64, I64, Emitter, component_of


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
    sums = total.components | pair_starts(["product", "error"], exact)
    for side, part in zip(sides, "xy", strict=True):
        sums |= pair_starts([part], side.exact)
    others = {"most": (F64, -INF), "equal": count_start(F32 if alike else F64)}

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
            found = side.step(em, old, (v, None, None, None, None), None, None)
            new |= {n.replace("sum", part): s for n, s in found.items()}
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

    lanes = Lanes(total, sums, others, step)
    lanes.pairs = {"x": sides[0].exact, "y": sides[1].exact, "product": exact, "error": exact}
    return lanes


def largest_error(em, lanes, end):
    """The largest |x - y|, which is the root of its square, rounded, unless that left the range."""
    most = furthest(em, [end["most"]], ">", em.lanes_tree)
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
        lanes.clear(context, builder, args[2])
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
        most = end["most"]
        beyond = builder.fcmp_ordered(">", most, em.splat(beaten, most.type.count))
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
        found += [largest_error(em, lanes, end), total_count(em, end["equal"])]
        return tuple_of(context, em, signature, found)

    return signature, codegen


@intrinsic
def tell_products(typingctx, formats, hows, wide, states, near, count, rows, reals, counts, row):
    """What is reported of up to WIDTH rows of one block, from `row` on; bits of what is left out.

    In place of decibels the power of the signal over that of the noise. Rows are left out with
    sums of squares that are not from `near` to 1 / `near`; so are all where nothing is gained (see
    `tells`). The index of the largest error is stored by others.
    """
    signature = types.intp(
        formats, hows, wide, types.voidptr, types.float64, types.intp, types.intp, reals, counts,
        types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        arrays, hows = signature.args[0].instance_type, signature.args[1]
        if not tells(arrays, hows, signature.args[2]):
            return I64(-1)
        b, em, lanes = builder, Emitter(context, builder), lanes_of_products(arrays, hows)
        parts = lanes.rows(em, args[3], lanes.size)
        fields = lanes.total.total(
            em, {name: parts[name] for name in lanes.total.components}, em.rows_tree
        )
        whole = em.splat(args[5])
        errors, _, _, kept, _, _, dropped, _ = partial_fields(
            em, lanes.total, fields, b.sitofp(whole, em.vector(F64))
        )[:8]
        x, y, product, error = (
            plain_sum(em, parts[name], em.rows_tree) for name in ("x", "y", "product", "error")
        )
        equal = plain_sum(em, parts["equal"], em.rows_tree)
        most = furthest(em, parts["most"], ">", em.rows_tree)
        usual = b.fcmp_ordered(">", kept, em.like(kept, 0.0))
        high = b.fdiv(F64(1.0), args[4])
        for v in (errors, x, y):
            usual = b.and_(usual, b.fcmp_ordered(">", v, em.splat(args[4])))
            usual = b.and_(usual, b.fcmp_ordered("<", v, em.splat(high)))
        zero, one = em.like(kept, 0.0), em.like(kept, 1.0)
        roots = [em.root_of_pair(em.divide_pairs((v, zero), (kept, zero))) for v in (errors, x)]
        bias = em.divide_pairs((b.fneg(error), zero), (kept, zero))
        cosine = b.fdiv(product, em.square_root(b.fmul(x, y)))
        cosine = b.select(b.fcmp_ordered("<", cosine, one), cosine, one)
        cosine = b.select(b.fcmp_ordered(">", cosine, b.fneg(one)), cosine, b.fneg(one))
        found = {
            **{k: em.square_root(b.fdiv(v, kept)) for k, v in enumerate((errors, x, y))},
            3: b.fadd(*em.divide_pairs(*roots)),
            4: b.fdiv(x, errors),
            5: cosine,
            6: b.fadd(*bias),
            7: em.square_root(most),
            8: b.fdiv(product, y),
        }
        stored = b.and_(usual, valid_lanes(em, args[6]))
        put_rows(em, signature.args[7], args[7], args[9], stored, found)
        longs = whole.type
        numbers = {
            0: b.fptosi(kept, longs) if lanes.total.counted else whole,
            2: b.sext(equal, longs),
            3: b.fptosi(dropped, longs) if lanes.total.omit else em.fill(I64, 0),
        }
        put_rows(em, signature.args[8], args[8], args[9], stored, numbers)
        return left_out(em, args[6], usual)

    return signature, codegen
