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

from rmsfast._partial import EXTENT_FIELDS
from rmsfast._vectors import (
    AHEAD_FAR,
    AHEAD_NEAR,
    BYTES,
    COMPLEX,
    EXACT,
    F64,
    I1,
    I8,
    I32,
    I64,
    LANES,
    SCRATCH,
    WIDTH,
    Emitter,
    absent,
    bits_of,
    component_of,
    kind_of,
)

INF = float("inf")


class Sum:
    """What is summed, known from the types of the arguments: w * (x - y)**2 and its weight.

    arrays: types of x, y (None: 0), partner (of x, only looked at for NaN), where, weights.
    how: types of three flags, None for no: omit (NaN is left out), exact (sums are pairs),
    extent (not squares: the sum of w * x itself, and the least and the largest x).
    """

    codes = 3  # the array that is not read as numbers: where

    def __init__(self, arrays, how):
        self.arrays = tuple(None if absent(a) else a for a in arrays)
        self.x, self.y, self.partner, self.where, self.weights = self.arrays
        self.omit, self.exact, self.extent = (not absent(flag) for flag in how)
        self.counted = self.omit or self.where is not None
        self.masked = self.counted or self.weights is not None or self.extent
        weighted = self.weights is not None
        names = ["sum"] + ["sum_low"] * self.exact
        names += ["weight"] * (weighted or self.counted)
        names += ["weight_low"] * (weighted and self.exact)
        names += ["dropped"] * self.omit + ["bad"] * weighted
        if self.extent:
            names += ["least", "least_low", "most", "most_low"]
        self.components = {name: {"least": INF, "most": -INF}.get(name, 0.0) for name in names}

    def size(self, em, v):
        return em.absolute(v) if self.extent else v

    def kind(self, array):
        return component_of(array)

    # Emission: `values` are (value, error) pairs of vectors, one an array, None if absent.

    def keep(self, em, values, valid):
        """Masks of lanes: kept, NaN dropped, bad weight (None: all, none, none)."""
        b, (x, y, partner, where, weights) = em.b, values
        keep = valid if self.masked else None
        if where is not None:
            sign = "==" if kind_of(self.where) == "hidden" else "!="
            chosen = b.icmp_unsigned(sign, where, em.like(where, 0))
            keep = chosen if keep is None else b.and_(keep, chosen)
        bad = dropped = None
        if weights is not None:
            w = weights[0]
            below = b.fcmp_unordered("<", w, em.like(w, 0.0))
            above = b.fcmp_ordered("==", w, em.like(w, float("inf")))
            bad = b.or_(below, above)
            if self.omit:
                bad = b.and_(bad, b.fcmp_ordered("ord", w, w))
            bad = bad if keep is None else b.and_(bad, keep)
            nonzero = b.fcmp_unordered("!=", w, em.like(w, 0.0))
            keep = nonzero if keep is None else b.and_(keep, nonzero)
        if self.omit:
            seen = [b.fcmp_ordered("ord", v[0], v[0]) for v in (x, y, partner, weights) if v]
            present = seen[0]
            for more in seen[1:]:
                present = b.and_(present, more)
            if kind_of(self.x) in COMPLEX:  # a complex value counts as a whole
                swap = ir.Constant(ir.VectorType(I32, em.lanes), [i ^ 1 for i in range(em.lanes)])
                present = b.and_(present, b.shuffle_vector(present, present, swap))
            dropped = b.not_(present) if keep is None else b.and_(keep, b.not_(present))
            keep = present if keep is None else b.and_(keep, present)
        return keep, dropped, bad

    def difference(self, em, x, y):
        """X - y as a pair (error None: none, or not wanted)."""
        (v, e), (w, f) = x, y
        if not self.exact or self.integers():
            return em.b.fsub(v, w), None
        d, low = em.two_sum(v, em.b.fneg(w))
        if e is None and f is None:
            return d, low
        e = em.like(v, 0.0) if e is None else e
        e = e if f is None else em.b.fsub(e, f)
        return em.fast_two_sum(d, em.b.fadd(low, e))

    def integers(self):
        """Whether differences of x and y are exact in float64."""
        small = EXACT | {"int32", "uint32"}
        return {self.kind(self.x), self.kind(self.y)} <= small

    def value(self, em, values, scale):
        """X - y as a pair; scale: factors of the inputs and of what comes of them."""

        def times(v, factor):
            return v and tuple(part and em.b.fmul(part, factor) for part in v)

        x, y = values[:2]
        if scale is None:
            return x if y is None else self.difference(em, x, y)
        x, y = times(x, scale[0]), times(y, scale[0])
        return times(x if y is None else self.difference(em, x, y), scale[1])

    def step(self, em, sums, values, valid, scale):
        """The components after one vector of every array."""
        b = em.b
        keep, dropped, bad = self.keep(em, values, valid)
        y, weights = values[1], values[4]
        v, e = self.value(em, values, scale)
        if keep is not None:
            v = b.select(keep, v, em.like(v, 0.0))
            e = e and b.select(keep, e, em.like(e, 0.0))
        w = weights and b.select(keep, weights[0], em.like(weights[0], 0.0))
        new = dict(sums)
        if self.extent:
            self.add_extent(em, new, v, e, w, keep)
        elif self.exact:
            self.add_exact(em, new, v, e, w)
        elif w is not None:
            new["sum"] = b.fadd(sums["sum"], b.fmul(w, b.fmul(v, v)))
            new["weight"] = b.fadd(sums["weight"], w)
        elif y is None and em.fused:  # the square is exact: the same bits with or without fma
            new["sum"] = em.fma(v, v, sums["sum"])
        else:
            new["sum"] = b.fadd(sums["sum"], b.fmul(v, v))
        one, zero = em.like(v, 1.0), em.like(v, 0.0)
        if w is None and self.counted:
            count = one if keep is None else b.select(keep, one, zero)
            new["weight"] = b.fadd(sums["weight"], count)
        for name, mask in (("dropped", dropped), ("bad", bad)):
            if name in new:
                new[name] = b.fadd(sums[name], b.select(mask, one, zero))
        return new

    def add_exact(self, em, new, v, e, w):
        """Add w * (v + e)**2 to the pairs of sums (e**2 is below their last bit)."""
        b = em.b
        if w is None:
            # As two_sum of the sum and v * v, whose rounding error one fma takes along.
            s, p = new["sum"], b.fmul(v, v)
            t = b.fadd(s, p)
            z = b.fsub(t, s)
            low = em.square_minus(v, p, z)
            low = b.fadd(low, b.fsub(s, b.fsub(t, z)))
            low = low if e is None else b.fadd(low, b.fmul(b.fadd(v, v), e))
            new["sum"], new["sum_low"] = t, b.fadd(new["sum_low"], low)
            return
        p, low = em.two_product(v, v)
        low = low if e is None else b.fadd(low, b.fmul(b.fadd(v, v), e))
        p, error = em.two_product(w, p)
        low = b.fadd(error, b.fmul(w, low))
        new["weight"], lost = em.two_sum(new["weight"], w)
        new["weight_low"] = b.fadd(new["weight_low"], lost)
        new["sum"], lost = em.two_sum(new["sum"], p)
        new["sum_low"] = b.fadd(new["sum_low"], b.fadd(low, lost))

    def add_extent(self, em, new, v, e, w, keep):
        b = em.b
        p, low = v, e
        if w is not None:
            p, low = em.two_product(w, v)
            low = low if e is None else b.fadd(low, b.fmul(w, e))
            new["weight"], lost = em.two_sum(new["weight"], w)
            new["weight_low"] = b.fadd(new["weight_low"], lost)
        new["sum"], lost = em.two_sum(new["sum"], p)
        new["sum_low"] = b.fadd(new["sum_low"], lost if low is None else b.fadd(low, lost))
        e = em.like(v, 0.0) if e is None else e
        for name, worst, sign in (("least", INF, "<"), ("most", -INF, ">")):
            u = v if keep is None else b.select(keep, v, em.like(v, worst))
            pair = self.further(em, sign, (new[name], new[name + "_low"]), (u, e))
            new[name], new[name + "_low"] = pair

    def further(self, em, sign, p, q):
        """The pair that lies further out; NaN is furthest."""
        b = em.b
        beyond = b.or_(b.fcmp_ordered(sign, q[0], p[0]), b.fcmp_unordered("uno", q[0], q[0]))
        level = b.and_(b.fcmp_ordered("==", q[0], p[0]), b.fcmp_ordered(sign, q[1], p[1]))
        beyond = b.or_(beyond, level)
        return b.select(beyond, q[0], p[0]), b.select(beyond, q[1], p[1])

    def total(self, em, parts, add_tree):
        """The fields of a partial from components; add_tree sums tuples of parts."""
        b = em.b

        def plain(p, q):
            return (b.fadd(p[0], q[0]),)

        def as_field(name):
            if name + "_low" not in parts:
                (top,) = add_tree([(v,) for v in parts[name]], plain)
                return top, em.like(top, 0.0)
            pairs = list(zip(parts[name], parts[name + "_low"], strict=True))
            top, lost = add_tree(pairs, em.add_compensated)
            high, low = em.fast_two_sum(top, lost)
            # Of an infinite sum the plain addition tells Inf from NaN; pairs do not.
            finite = b.fcmp_ordered("<", self.size(em, top), em.like(top, INF))
            return b.select(finite, high, top), b.select(finite, low, em.like(top, 0.0))

        fields = {"sum": as_field("sum")}
        if "weight" in parts:
            fields["weight"] = as_field("weight")
        for name in ("dropped", "bad"):
            if name in parts:
                fields[name] = as_field(name)
        for name, sign in (("least", "<"), ("most", ">")):
            if name in parts:
                pairs = list(zip(parts[name], parts[name + "_low"], strict=True))
                fields[name] = add_tree(pairs, lambda p, q, sign=sign: self.further(em, sign, p, q))
        return fields


def component_bytes(array):
    return bits_of(component_of(array)) // 8


def stack(builder, size):
    """Memory of the function's frame, not cleared (cgutils clears: slow to compile if large)."""
    with builder.goto_entry_block():
        memory = builder.alloca(size)
        memory.align = 64
    return builder.bitcast(memory, BYTES)


@intrinsic
def rare(typingctx):
    """Mark the function around as for the rare case: short code, compiled soon."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        builder.function.attributes.add("optsize")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def address(typingctx, array, offset):
    """Pointer to a byte offset from the first element of an array."""
    signature = types.voidptr(array, types.intp)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.gep(builder.bitcast(data, BYTES), [args[1]])

    return signature, codegen


@intrinsic
def addresses(typingctx, arrays, bases, start):
    """Pointers to element `start` of a row of each array that begins at a byte offset."""
    signature = types.UniTuple(types.voidptr, len(arrays))(arrays, bases, types.intp)

    def codegen(context, builder, signature, args):
        pointers = []
        for k, a in enumerate(signature.args[0]):
            if absent(a):
                pointers.append(ir.Constant(BYTES, None))
                continue
            array = context.make_array(a)(context, builder, builder.extract_value(args[0], k))
            offset = builder.mul(args[2], I64(component_bytes(a)))
            offset = builder.add(builder.extract_value(args[1], k), offset)
            pointers.append(builder.gep(builder.bitcast(array.data, BYTES), [offset]))
        return context.make_tuple(builder, signature.return_type, pointers)

    return signature, codegen


@intrinsic
def scratch_space(typingctx, unused):
    """Memory on the stack for SCRATCH elements of each array."""
    signature = types.voidptr(unused)

    def codegen(context, builder, signature, args):
        return stack(builder, ir.ArrayType(I8, 6 * 8 * SCRATCH))

    return signature, codegen


@intrinsic
def aligned(typingctx, array):
    """Pointer to the first whole cache line of an array of float64."""
    signature = types.voidptr(array)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        past = builder.and_(builder.neg(builder.ptrtoint(data, I64)), I64(63))
        return builder.gep(builder.bitcast(data, BYTES), [past])

    return signature, codegen


@intrinsic
def advance(typingctx, pointer, offset):
    """Pointer moved by a number of bytes."""
    signature = types.voidptr(types.voidptr, types.intp)

    def codegen(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return signature, codegen


def copy_strided(builder, element, source, stride, count, swap, target):
    """Copy `count` elements, `stride` bytes apart, side by side, in native byte order."""

    def copy(swap):
        with cgutils.for_range(builder, count) as loop:
            p = builder.gep(source, [builder.mul(loop.index, stride)])
            v = builder.load(builder.bitcast(p, element.as_pointer()))
            v.align = 1
            builder.store(builder.bswap(v) if swap else v, builder.gep(target, [loop.index]))

    if element.width == 8:
        copy(False)
        return
    with builder.if_else(swap) as (yes, no):
        with yes:
            copy(True)
        with no:
            copy(False)


@intrinsic
def fetch(typingctx, arrays, offsets, strides, apart, count, memory, done):
    """Pointers to `count` elements of each array, `strides` bytes apart from byte `offsets`.

    Arrays whose bit k + 1 in `apart` is set are copied side by side to their part of
    `memory`, from its element `done` on; bit k + 9 says that their bytes are swapped.
    """
    five = types.UniTuple(types.intp, 5)
    signature = types.UniTuple(types.voidptr, len(arrays))(
        arrays, five, five, types.intp, types.intp, types.voidptr, types.intp
    )

    def codegen(context, builder, signature, args):
        values, offsets, strides, apart, count, memory, done = args
        pointers = []
        for k, a in enumerate(signature.args[0]):
            if absent(a):
                pointers.append(ir.Constant(BYTES, None))
                continue
            data = context.make_array(a)(context, builder, builder.extract_value(values, k)).data
            source = builder.gep(builder.bitcast(data, BYTES), [builder.extract_value(offsets, k)])
            part = builder.gep(memory, [I64(k * 8 * SCRATCH)])
            pointer = cgutils.alloca_once_value(builder, source)
            with builder.if_then(bit(builder, apart, k + 1)):
                element = ir.IntType(bits_of(component_of(a)))
                target = builder.gep(builder.bitcast(part, element.as_pointer()), [done])
                stride = builder.extract_value(strides, k)
                swap = bit(builder, apart, k + 9)
                copy_strided(builder, element, source, stride, count, swap, target)
                builder.store(part, pointer)
            pointers.append(builder.load(pointer))
        return context.make_tuple(builder, signature.return_type, pointers)

    return signature, codegen


def bit(builder, word, k):
    return builder.trunc(builder.lshr(word, I64(k)), I1)


def offsets_of(builder, arrays, index):
    """Byte offset of element `index` in each array that is there."""
    return [None if absent(a) else builder.mul(index, I64(component_bytes(a))) for a in arrays]


def load_all(em, total, pointers, index, valid):
    offsets = offsets_of(em.b, total.arrays, index)
    return [
        o and (em.stored if k == total.codes else em.load)(component_of(a), p, o, valid)
        for k, (a, p, o) in enumerate(zip(total.arrays, pointers, offsets, strict=True))
    ]


def scale_factors(em, scale, value):
    if absent(scale):
        return None
    return [em.splat(part) for part in cgutils.unpack_tuple(em.b, value)]


DEPTH = 4  # coordinates of a lane that are added at once where rows are columns in memory
NEAR, FAR = 3, 2  # caches that a line is fetched into: of level 1, of level 2


def prefetch(em, pointer, offset, level):
    place = em.b.gep(pointer, [offset])
    em.call("llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(level), I32(1))


def valid_lanes(em, remaining):
    """Mask of the first `remaining` lanes."""
    numbers = ir.Constant(em.vector(I64), list(range(em.lanes)))
    return em.b.icmp_signed("<", numbers, em.splat(remaining))


@intrinsic
def accumulate(typingctx, state, arrays, how, pointers, scale, count):
    """Add a run of `count` elements of one row, starting in lane 0, to a state."""
    signature = types.void(types.voidptr, arrays, how, pointers, scale, types.intp)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[1:3])
        pointers = cgutils.unpack_tuple(builder, args[3])
        scale = scale_factors(em, signature.args[4], args[4])
        state = builder.bitcast(args[0], em.vector(F64).as_pointer())
        count, vectors = args[5], LANES // WIDTH
        cells = {}
        for k, name in enumerate(total.components):
            for u in range(vectors):
                v = builder.load(builder.gep(state, [I64(k * vectors + u)]))
                v.align = 8
                cells[name, u] = cgutils.alloca_once_value(builder, v)

        def add(start, u, valid):
            index = builder.add(start, I64(u * WIDTH))
            values = load_all(em, total, pointers, index, valid)
            sums = {name: builder.load(cells[name, u]) for name in total.components}
            for name, v in total.step(em, sums, values, valid, scale).items():
                builder.store(v, cells[name, u])

        whole = builder.lshr(count, I64(LANES.bit_length() - 1))
        with cgutils.for_range(builder, whole) as loop:
            start = builder.mul(loop.index, I64(LANES))
            for array, p, o in zip(
                total.arrays, pointers, offsets_of(builder, total.arrays, start), strict=True
            ):
                if o is not None:
                    for line in range(0, LANES * component_bytes(array), 64):
                        prefetch(em, p, builder.add(o, I64(AHEAD_FAR + line)), FAR)
                        prefetch(em, p, builder.add(o, I64(AHEAD_NEAR + line)), NEAR)
            for u in range(vectors):
                add(start, u, None)
        rest = builder.and_(count, I64(LANES - 1))
        with builder.if_then(builder.icmp_signed(">", rest, I64(0)), likely=False):
            start = builder.sub(count, rest)
            for u in range(vectors):
                add(start, u, valid_lanes(em, builder.sub(rest, I64(u * WIDTH))))
        for k, name in enumerate(total.components):
            for u in range(vectors):
                store = builder.store(
                    builder.load(cells[name, u]), builder.gep(state, [I64(k * vectors + u)])
                )
                store.align = 8
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def lane_state(typingctx, arrays, how):
    """Memory on the stack for the state of one row, of nothing."""
    signature = types.voidptr(arrays, how)

    def codegen(context, builder, signature, args):
        components = Sum(*signature.args).components
        size = len(components) * LANES
        memory = stack(builder, ir.ArrayType(F64, size))
        vectors = builder.bitcast(memory, ir.VectorType(F64, WIDTH).as_pointer())
        for k in range(size // WIDTH):
            start = list(components.values())[k * WIDTH // LANES]
            value = ir.Constant(ir.VectorType(F64, WIDTH), [start] * WIDTH)
            builder.store(value, builder.gep(vectors, [I64(k)])).align = 8
        return memory

    return signature, codegen


def partial_fields(em, total, fields, count):
    """The fields of a partial, in order."""
    zero = em.like(count, 0.0)
    weight = fields.get("weight", (count, zero))
    if kind_of(total.x) in COMPLEX:  # two stored numbers are one value
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
        fields = total.total(em, parts, em.lanes_tree)
        count = builder.sitofp(args[3], F64)
        return context.make_tuple(
            builder, signature.return_type, partial_fields(em, total, fields, count)
        )

    return signature, codegen


@intrinsic
def state_size(typingctx, arrays, how):
    """Number of float64 of a state for each lane."""
    signature = types.intp(arrays, how)

    def codegen(context, builder, signature, args):
        return I64(len(Sum(*signature.args).components))

    return signature, codegen


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
def accumulate_columns(typingctx, state, component, arrays, how, pointers, steps, ahead, count):
    """Add one coordinate of `count` neighbouring rows to one lane of the state of a tile.

    steps: None, or DEPTH coordinates are added, bytes from one to the next for each array.
    component: bytes from one component of the state to the next; ahead: bytes from here to
    the coordinates of x that come some calls later.
    """
    signature = types.void(
        types.voidptr, types.intp, arrays, how, pointers, steps, types.intp, types.intp
    )

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder)
        total = Sum(*signature.args[2:4])
        runs = [cgutils.unpack_tuple(builder, args[4])]
        if not absent(signature.args[5]):
            steps = cgutils.unpack_tuple(builder, args[5])
            for _ in range(DEPTH - 1):
                runs.append([builder.gep(p, [s]) for p, s in zip(runs[-1], steps, strict=True)])
        ahead, count = args[6], args[7]
        size = component_bytes(total.x)

        def add(index, valid):
            sums, cells = {}, {}
            for k, name in enumerate(total.components):
                offset = builder.add(builder.mul(args[1], I64(k)), builder.mul(index, I64(8)))
                p = builder.gep(args[0], [offset])
                cells[name] = builder.bitcast(p, em.vector(F64).as_pointer())
                sums[name] = builder.load(cells[name])
                sums[name].align = 8
            for pointers in runs:
                values = load_all(em, total, pointers, index, valid)
                sums = total.step(em, sums, values, valid, None)
            for name, cell in cells.items():
                builder.store(sums[name], cell).align = 8

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
        count = em.splat(builder.sitofp(args[5], F64))
        out = builder.bitcast(args[6], em.vector(F64).as_pointer())
        for k, v in enumerate(partial_fields(em, total, found, count)):
            builder.store(v, builder.gep(out, [I64(k)])).align = 8
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def term(typingctx, arrays, how, pointers, index, scale):
    """Element `index` of a run: 1 if it is kept, x - y as a pair times scale, its weight."""
    signature = types.UniTuple(types.float64, 4)(arrays, how, pointers, types.intp, scale)

    def codegen(context, builder, signature, args):
        em = Emitter(context, builder, lanes=1)
        total = Sum(*signature.args[:2])
        values = load_all(em, total, cgutils.unpack_tuple(builder, args[2]), args[3], None)
        keep, _, _ = total.keep(em, values, None)
        v, e = total.value(em, values, scale_factors(em, signature.args[4], args[4]))
        one, zero = em.fill(F64, 1.0), em.fill(F64, 0.0)
        parts = [builder.select(keep, one, zero), v, zero if e is None else e, values[4][0]]
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
