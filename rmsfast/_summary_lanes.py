"""What `describe` and `compare` take from a run of elements: the @intrinsic functions.

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


def over_run(em, arrays, pointers, count, starts, step):
    """The accumulators after a run: step(accumulators, index, valid) adds LANES elements.

    starts: what each accumulator begins with. valid: mask of the lanes that there are (None: all).
    """
    b = em.b
    cells = {key: cgutils.alloca_once_value(b, start) for key, start in starts.items()}

    def add(start, valid):
        now = {key: b.load(cell) for key, cell in cells.items()}
        for key, v in step(now, start, valid).items():
            b.store(v, cells[key])

    whole = b.lshr(count, I64(LANES.bit_length() - 1))
    with cgutils.for_range(b, whole) as loop:
        start = b.mul(loop.index, I64(LANES))
        for array, p, o in zip(arrays, pointers, offsets_of(b, arrays, start), strict=True):
            if o is not None:
                for line in range(0, LANES * component_bytes(array), 64):
                    prefetch(em, p, b.add(o, I64(AHEAD_FAR + line)), FAR)
                    prefetch(em, p, b.add(o, I64(AHEAD_NEAR + line)), NEAR)
        add(start, None)
    rest = b.and_(count, I64(LANES - 1))
    with b.if_then(b.icmp_signed(">", rest, I64(0)), likely=False):
        add(b.sub(count, rest), valid_lanes(em, rest))
    return {key: b.load(cell) for key, cell in cells.items()}


def both(em, mask, other):
    """The lanes of both masks (None: all)."""
    return mask if other is None else other if mask is None else em.b.and_(mask, other)


def counted(em, counter, mask):
    """A counter, more by how many lanes the mask has."""
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


def pair_starts(em, names, exact):
    names = [part for name in names for part in (name, name + "_low")[: 1 + exact]]
    return dict.fromkeys(names, em.fill(F64, 0.0))


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


def first_place(em, starts, wanted):
    """The least index in the wanted lanes, of groups of lanes that start there."""
    b, never = em.b, em.fill(I64, 2**62)
    lanes = ir.Constant(em.vector(I64), list(range(em.lanes)))

    def lesser(p, q):
        return (b.select(b.icmp_signed("<", q[0], p[0]), q[0], p[0]),)

    (found,) = em.lanes_tree([(b.select(wanted, b.add(starts, lanes), never),)], lesser)
    return found


def square_starts(em, total):
    return {name: em.fill(F64, start) for name, start in total.components.items()}


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


@intrinsic
def moments(typingctx, formats, how, pointers, count):
    """Of a run: its partial, sum of x as a pair, least and largest x, and how many are 0.

    Where NaN is kept it shows in the sums alone.
    """
    signature = types.UniTuple(types.float64, 13)(formats, how, pointers, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, LANES)
        total = Sum(signature.args[0].instance_type, signature.args[1])
        pointers, count = cgutils.unpack_tuple(builder, args[2]), args[3]
        own = F32 if component_of(total.x) in SINGLE else F64
        starts = square_starts(em, total) | pair_starts(em, ["first"], total.exact)
        starts |= {"least": em.fill(own, INF), "most": em.fill(own, -INF)}
        starts |= {"zeros": I64(0)}

        def step(now, index, valid):
            values, (x, _) = read(em, total, pointers, index, valid)
            new = squares_step(em, total, now, values, valid)
            keep, _, _ = total.keep(em, values, valid)
            v, e = values[0]
            if keep is not None:
                v = builder.select(keep, v, em.like(v, 0.0))
                e = e and builder.select(keep, e, em.like(e, 0.0))
            new |= add_to_pair(em, now, "first", v, e, total.exact)
            kept = keep if keep is not None else valid
            new["least"] = further(em, "<", now["least"], x, kept)
            new["most"] = further(em, ">", now["most"], x, kept)
            zero = builder.fcmp_ordered("==", x, em.like(x, 0.0))
            new["zeros"] = counted(em, now["zeros"], both(em, zero, kept))
            return new

        end = over_run(em, total.arrays, pointers, count, starts, step)
        found = square_fields(em, total, end, count)
        found += pair_total(em, end, "first", total.exact)
        found += [furthest(em, end["least"], "<"), furthest(em, end["most"], ">")]
        return tuple_of(context, em, signature, [*found, builder.sitofp(end["zeros"], F64)])

    return signature, codegen


@intrinsic
def centred_squares(typingctx, formats, how, pointers, mean, mean_low, count):
    """Sum of (x - mean)**2 over a run, as a pair; the mean is one."""
    signature = types.UniTuple(types.float64, 2)(
        formats, how, pointers, types.float64, types.float64, types.intp
    )

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, LANES)
        total = Sum(signature.args[0].instance_type, signature.args[1])
        pointers, count = cgutils.unpack_tuple(builder, args[2]), args[5]
        mean, mean_low = em.splat(args[3]), em.splat(args[4])

        def step(now, index, valid):
            values, _ = read(em, total, pointers, index, valid)
            keep, _, _ = total.keep(em, values, valid)
            kept = keep if keep is not None else valid
            v, e = values[0]
            v, low = em.two_sum(v, builder.fneg(mean)) if total.exact else (
                builder.fsub(v, mean), None
            )  # fmt: skip
            if not total.exact:  # one rounding more, but the same bits without fused arithmetic
                v = v if kept is None else builder.select(kept, v, em.like(v, 0.0))
                return {"sum": builder.fadd(now["sum"], builder.fmul(v, v))}
            low = builder.fsub(low if e is None else builder.fadd(low, e), mean_low)
            v, low = em.two_sum(v, low)  # the mean may be as near as its own low part
            if kept is not None:
                v, low = (builder.select(kept, part, em.like(v, 0.0)) for part in (v, low))
            new = dict(now)
            total.add_exact(em, new, v, low, None)
            return new

        starts = pair_starts(em, ["sum"], total.exact)
        end = over_run(em, total.arrays, pointers, count, starts, step)
        return tuple_of(context, em, signature, pair_total(em, end, "sum", total.exact))

    return signature, codegen


@intrinsic
def special_values(typingctx, formats, how, pointers, count):
    """How many x of a run are NaN, and how many infinite, of those that `where` chooses."""
    signature = types.UniTuple(types.float64, 2)(formats, how, pointers, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, LANES)
        total = Sum(signature.args[0].instance_type, (None, None, None))
        pointers, count = cgutils.unpack_tuple(builder, args[2]), args[3]

        def step(now, index, valid):
            values, (x, _) = read(em, total, pointers, index, valid)
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

        starts = {"nan": I64(0), "inf": I64(0)}
        end = over_run(em, total.arrays, pointers, count, starts, step)
        return tuple_of(
            context,
            em,
            signature,
            [builder.sitofp(end["nan"], F64), builder.sitofp(end["inf"], F64)],
        )

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
def products(typingctx, formats, hows, pointers, count):
    """Of a run of pairs, in this order.

    The partial of x - y; the sums of x**2, y**2, x * y and x - y as pairs; the largest |x - y|
    and its first index; how many pairs are equal. hows: omit, and whether the squares of x - y,
    of x and of y are exact.
    """
    signature = types.UniTuple(types.float64, 19)(formats, hows, pointers, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, LANES)
        arrays, hows = tuple(signature.args[0].instance_type), tuple(signature.args[1])
        total = Sum(arrays, (hows[0], hows[1], None))
        sides = [  # of values that are chosen beforehand
            Sum((array, None, None, None, None), (None, flag, None))
            for array, flag in zip(arrays[:2], hows[2:4], strict=True)
        ]
        pointers, count = cgutils.unpack_tuple(builder, args[2]), args[3]
        exact = total.exact
        alike = component_of(total.x) in SINGLE and component_of(total.y) in SINGLE
        starts = square_starts(em, total) | pair_starts(em, ["product", "error"], exact)
        for side, part in zip(sides, "xy", strict=True):
            starts |= pair_starts(em, [part], side.exact)
        starts |= {"most": em.fill(F64, -INF), "equal": I64(0)}
        starts |= {"place": em.fill(I64, 0)}

        def step(now, index, valid):
            values, own = read(em, total, pointers, index, valid)
            new = squares_step(em, total, now, values, valid)
            keep, _, _ = total.keep(em, values, valid)
            kept = keep if keep is not None else valid

            def chosen(pair):
                if keep is None:
                    return pair
                return tuple(p and builder.select(keep, p, em.like(p, 0.0)) for p in pair)

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
                    low = low if e is None else builder.fadd(low, builder.fmul(v, e))
                new |= add_to_pair(em, now, "product", p, low, exact)
            elif em.fused:  # the product is exact: the same bits with or without fma
                new["product"] = em.fma(x[0], y[0], now["product"])
            else:
                new["product"] = builder.fadd(now["product"], builder.fmul(x[0], y[0]))
            gap = em.absolute(d[0])
            beyond = both(em, builder.fcmp_ordered(">", gap, now["most"]), kept)
            new["most"] = builder.select(beyond, gap, now["most"])
            new["place"] = builder.select(beyond, em.splat(index), now["place"])
            equal = builder.fcmp_ordered("==", *(own if alike else (values[0][0], values[1][0])))
            lows = [e for _, e in values[:2] if e is not None]
            if lows:
                lows += [em.like(lows[0], 0.0)]
                equal = builder.and_(equal, builder.fcmp_ordered("==", *lows[:2]))
            new["equal"] = counted(em, now["equal"], both(em, equal, kept))
            return new

        end = over_run(em, total.arrays, pointers, count, starts, step)
        found = square_fields(em, total, end, count)
        for name, is_pair in (
            ("x", sides[0].exact), ("y", sides[1].exact), ("product", exact), ("error", exact),
        ):  # fmt: skip
            found += pair_total(em, end, name, is_pair)
        worst = furthest(em, end["most"], ">")
        place = first_place(
            em, end["place"], builder.fcmp_ordered("==", end["most"], em.splat(worst))
        )
        found += [worst, *(builder.sitofp(n, F64) for n in (place, end["equal"]))]
        return tuple_of(context, em, signature, found)

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
