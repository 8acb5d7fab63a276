"""Lane accumulators of rows that are columns in memory, many rows at a time.

The same `step` and the same tree as in _lanes, so a row has the same bits either way.
"""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._lanes import COMING, DEPTH, store_fields
from rmsfast._memory import component_bytes
from rmsfast._runs import NEAR, load_terms, prefetch, scale_factors, valid_lanes
from rmsfast._terms import Sum
from rmsfast._vectors import (
    F64,
    I1,
    I32,
    I64,
    LANES,
    SIGNED,
    WIDTH,
    Emitter,
    absent,
    component_of,
)

PAIRED = 16  # columns of integers of which two coordinates are read at once


@intrinsic
def whole(typingctx, arrays, how):
    """Whether sums are integers, the same in any order: then one lane will do for a column."""
    signature = types.boolean(arrays, how)

    def codegen(context, builder, signature, args):
        return I1(Sum(*signature.args).whole)

    return signature, codegen


@intrinsic
def clear_columns(typingctx, state, component, count, arrays, how):
    """Make `count` sums of a state ones of nothing; component: bytes from one to the next."""
    signature = types.void(types.voidptr, types.intp, types.intp, arrays, how)

    def codegen(context, builder, signature, args):
        for k, start in enumerate(Sum(*signature.args[3:]).components.values()):
            first = builder.gep(args[0], [builder.mul(args[1], I64(k))])
            first = builder.bitcast(first, F64.as_pointer())
            with cgutils.for_range(builder, args[2]) as loop:
                builder.store(F64(start), builder.gep(first, [loop.index]))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def accumulate_columns(
    typingctx, state, component, arrays, how, pointers, scale, steps, ahead, count
):
    """Add one coordinate of `count` neighbouring rows to one lane of the state of a tile.

    scale: None, or the factors of `accumulate`.
    steps: None, or DEPTH coordinates are added, bytes from one to the next for each array.
    component: bytes from one component of the state to the next; ahead: bytes from here to
    the coordinates that come next, which are fetched meanwhile, for each array.
    """
    signature = types.void(
        types.voidptr, types.intp, arrays, how, pointers, scale, steps, ahead, types.intp
    )

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[2:4])
        pointers, ahead = (cgutils.unpack_tuple(builder, args[k]) for k in (4, 7))
        steps, count = None, args[8]
        if not absent(signature.args[6]):
            steps = cgutils.unpack_tuple(builder, args[6])
        size, lanes = component_bytes(total.x), WIDTH
        if total.whole:
            lanes = WIDTH if steps is None else PAIRED
            add = integer_columns(em, total, args[0], pointers[0], steps and steps[0])
        else:
            scale = scale_factors(em, signature.args[5], args[5])
            add = float_columns(em, total, args[:2], pointers, steps, scale)

        step = max(lanes, 64 // size)  # columns of a cache line
        whole = builder.udiv(count, I64(step))
        far = I64(COMING // size // step)
        far = builder.select(builder.icmp_signed("<", far, whole), far, whole)
        last = builder.sub(whole, far)
        # First the lines that are `far` away in these coordinates are fetched, at the end those
        # that come next.
        with cgutils.for_range(builder, I64(2)) as turn:
            second = builder.icmp_signed("==", turn.index, I64(1))
            begin = builder.select(second, last, I64(0))
            end = builder.select(second, whole, last)
            coming = []
            for array, p, away in zip(total.arrays, pointers, ahead, strict=True):
                width = 0 if array is None else step * component_bytes(array)
                beyond = builder.sub(away, builder.mul(last, I64(width)))
                away = builder.select(second, beyond, builder.mul(far, I64(width)))
                coming.append(builder.gep(p, [away]))
            coming = runs_of(em, coming, steps)
            with cgutils.for_range(builder, end, begin) as loop:
                index = builder.mul(loop.index, I64(step))
                fetch_columns(em, total, coming, index, step)
                for k in range(0, step, lanes):
                    add(builder.add(index, I64(k)), None)
        done = builder.mul(whole, I64(step))
        more = builder.lshr(builder.sub(count, done), I64(lanes.bit_length() - 1))
        with cgutils.for_range(builder, more) as loop:
            add(builder.add(done, builder.mul(loop.index, I64(lanes))), None)
        rest = builder.and_(count, I64(lanes - 1))
        few = builder.lshr(builder.add(rest, I64(WIDTH - 1)), I64(WIDTH.bit_length() - 1))
        with cgutils.for_range(builder, few) as loop:
            behind = builder.sub(rest, builder.mul(loop.index, I64(WIDTH)))
            add(builder.sub(count, behind), valid_lanes(em, behind))
        return context.get_dummy_value()

    return signature, codegen


def depth_of(steps):
    """Coordinates that are added at once."""
    return 1 if steps is None else DEPTH


def cells_of(em, state, element, offset):
    """Pointer to a vector of a state."""
    return em.b.bitcast(em.b.gep(state, [offset]), em.vector(element).as_pointer())


def runs_of(em, pointers, steps):
    """Pointers to each of the coordinates that are added at once."""
    runs = [pointers]
    for _ in range(depth_of(steps) - 1):
        runs.append([em.b.gep(p, [s]) for p, s in zip(runs[-1], steps, strict=True)])
    return runs


def fetch_columns(em, total, runs, index, count):
    """Fetch `count` columns from an index on."""
    for pointers in runs:
        for array, p in zip(total.arrays, pointers, strict=True):
            if array is not None:
                size = component_bytes(array)
                place = em.b.mul(index, I64(size))
                for line in range(0, count * size, 64):
                    prefetch(em, p, em.b.add(place, I64(line)), NEAR)


def float_columns(em, total, state, pointers, steps, scale):
    """How coordinates of the columns from an index on, as many as a vector has, are added."""
    b, runs = em.b, runs_of(em, pointers, steps)

    def add(index, valid):
        sums, cells = {}, {}
        for k, name in enumerate(total.components):
            offset = b.add(b.mul(state[1], I64(k)), b.mul(index, I64(8)))
            cells[name] = cells_of(em, state[0], F64, offset)
            sums[name] = b.load(cells[name])
            sums[name].align = 8
        before = sums
        for pointers in runs:
            values = load_terms(em, total, pointers, index, valid)
            sums = total.step(em, sums, values, valid, scale)
        for name, cell in cells.items():
            v = sums[name]
            if valid is not None:  # what lies behind may be in use: Inf + 0 leaves NaN
                v = b.select(valid, v, before[name])
            b.store(v, cell).align = 8

    return add


def integer_columns(em, total, state, pointer, step):
    """The same of integers whose squares add up in int64; of PAIRED columns where steps are."""
    b, kind, depth = em.b, component_of(total.x), depth_of(step)
    size, many = component_bytes(total.x), Emitter(em.context, b, PAIRED)

    def add_to(index, sums):
        for k, v in enumerate(sums):
            cell = cells_of(em, state, I64, b.mul(b.add(index, I64(k * WIDTH)), I64(8)))
            before = b.load(cell)
            before.align = 8
            b.store(b.add(before, v), cell).align = 8

    def each(times, body, sums):
        """Sums after the coordinates, some at a time."""
        cells = [cgutils.alloca_once_value(b, v) for v in sums]
        with cgutils.for_range(b, I64(depth // times)) as loop:
            at = pointer
            if step is not None:
                at = b.gep(pointer, [b.mul(step, b.mul(loop.index, I64(times)))])
            for cell, v in zip(cells, body(at), strict=True):
                b.store(b.add(b.load(cell), v), cell)
        return [b.load(cell) for cell in cells]

    def add(index, valid):
        offset = b.mul(index, I64(size))

        def some(at):
            v = em.stored(kind, at, offset, valid)
            v = (b.sext if kind in SIGNED else b.zext)(v, em.vector(I32))
            return [b.zext(b.mul(v, v), em.vector(I64))]

        def pairs(at):
            first, second = (many.stored(kind, p, offset) for p in (at, b.gep(at, [step])))
            found = many.square_columns(kind, first, second)
            return [found, b.lshr(found, many.like(found, 32))]

        zero = em.fill(I64, 0)
        if step is None or valid is not None:
            add_to(index, each(1, some, [zero]))
            return
        both, upper = each(2, pairs, [zero, zero])
        lower = b.sub(both, b.shl(upper, many.like(upper, 32)))
        add_to(index, many.columns_in_order(lower, upper))

    return add


@intrinsic
def reduce_columns(typingctx, state, component, arrays, how, tile, lanes, count, fields):
    """Partials of WIDTH neighbouring columns, FIELDS runs of WIDTH float64 in `fields`.

    tile: bytes from one lane of the state to the next; lanes: how many, where sums are integers.
    """
    signature = types.void(
        types.voidptr, types.intp, arrays, how, types.intp, types.intp, types.intp,
        types.voidptr,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[2:4])

        def lane_of(k, lane):
            offset = builder.add(builder.mul(args[1], I64(k)), builder.mul(args[4], lane))
            v = builder.load(cells_of(em, args[0], I64 if total.whole else F64, offset))
            v.align = 8
            return v

        if total.whole:
            cell = cgutils.alloca_once_value(builder, em.fill(I64, 0))
            with cgutils.for_range(builder, args[5]) as loop:
                builder.store(builder.add(builder.load(cell), lane_of(0, loop.index)), cell)
            parts = {"sum": [builder.uitofp(builder.load(cell), em.vector(F64))]}
        else:
            parts = {
                name: [lane_of(k, I64(lane)) for lane in range(LANES)]
                for k, name in enumerate(total.components)
            }
        found = total.total(em, parts, em.tree)
        store_fields(em, total, found, args[6], args[7])
        return context.get_dummy_value()

    return signature, codegen
