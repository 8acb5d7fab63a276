"""Lane accumulators of rows that are columns in memory, many rows at a time.

The same `step` and the same tree as in _lanes, so a row has the same bits either way.
"""

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._lanes import (
    DEPTH,
    FAR,
    load_terms,
    prefetch,
    scale_factors,
    store_fields,
    valid_lanes,
)
from rmsfast._memory import component_bytes
from rmsfast._terms import Sum
from rmsfast._vectors import (
    F64,
    I64,
    LANES,
    WIDTH,
    Emitter,
    absent,
)


@intrinsic
def clear_columns(typingctx, state, component, arrays, how):
    """Make the state of a tile one of nothing; component: float64 from one to the next."""
    signature = types.void(types.voidptr, types.intp, arrays, how)

    def codegen(context, builder, signature, args):
        state = builder.bitcast(args[0], F64.as_pointer())
        for k, start in enumerate(Sum(*signature.args[2:4]).components.values()):
            first = builder.mul(args[1], I64(k))
            with cgutils.for_range(builder, args[1]) as loop:
                builder.store(F64(start), builder.gep(state, [builder.add(first, loop.index)]))
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
    the coordinates of x that come some calls later.
    """
    signature = types.void(
        types.voidptr, types.intp, arrays, how, pointers, scale, steps, types.intp, types.intp
    )

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[2:4])
        runs = [cgutils.unpack_tuple(builder, args[4])]
        scale = scale_factors(em, signature.args[5], args[5])
        if not absent(signature.args[6]):
            steps = cgutils.unpack_tuple(builder, args[6])
            for _ in range(DEPTH - 1):
                runs.append([builder.gep(p, [s]) for p, s in zip(runs[-1], steps, strict=True)])
        ahead, count = args[7], args[8]
        size = component_bytes(total.x)

        def add(index, valid):
            sums, cells = {}, {}
            for k, name in enumerate(total.components):
                offset = builder.add(builder.mul(args[1], I64(k)), builder.mul(index, I64(8)))
                p = builder.gep(args[0], [offset])
                cells[name] = builder.bitcast(p, em.vector(F64).as_pointer())
                sums[name] = builder.load(cells[name])
                sums[name].align = 8
            before = sums
            for pointers in runs:
                values = load_terms(em, total, pointers, index, valid)
                sums = total.step(em, sums, values, valid, scale)
            for name, cell in cells.items():
                v = sums[name]
                if valid is not None:  # what lies behind may be in use: Inf + 0 leaves NaN
                    v = builder.select(valid, v, before[name])
                builder.store(v, cell).align = 8

        step = max(WIDTH, 64 // size)  # columns of a cache line
        whole = builder.udiv(count, I64(step))
        with cgutils.for_range(builder, whole) as loop:
            index = builder.mul(loop.index, I64(step))
            for pointers in runs:
                prefetch(em, pointers[0], builder.add(ahead, builder.mul(index, I64(size))), FAR)
            for k in range(0, step, WIDTH):
                add(builder.add(index, I64(k)), None)
        done = builder.mul(whole, I64(step))
        more = builder.lshr(builder.sub(count, done), I64(WIDTH.bit_length() - 1))
        with cgutils.for_range(builder, more) as loop:
            add(builder.add(done, builder.mul(loop.index, I64(WIDTH))), None)
        rest = builder.and_(count, I64(WIDTH - 1))
        with builder.if_then(builder.icmp_signed(">", rest, I64(0)), likely=False):
            add(builder.sub(count, rest), valid_lanes(em, rest))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def reduce_columns(typingctx, state, component, arrays, how, tile, count, fields):
    """Partials of WIDTH neighbouring columns, FIELDS runs of WIDTH float64 in `fields`.

    tile: bytes from one lane of the state to the next.
    """
    signature = types.void(
        types.voidptr, types.intp, arrays, how, types.intp, types.intp,
        types.voidptr,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[2:4])
        parts = {}
        for k, name in enumerate(total.components):
            parts[name] = []
            for lane in range(LANES):
                offset = builder.add(builder.mul(args[1], I64(k)), builder.mul(args[4], I64(lane)))
                p = builder.bitcast(builder.gep(args[0], [offset]), em.vector(F64).as_pointer())
                v = builder.load(p)
                v.align = 8
                parts[name].append(v)
        found = total.total(em, parts, em.tree)
        store_fields(em, total, found, args[5], args[6])
        return context.get_dummy_value()

    return signature, codegen
