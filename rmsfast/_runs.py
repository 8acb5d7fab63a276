"""Runs of elements of a row: how they are read, fetched ahead, and added to a state in registers.

The same loads serve rows, columns, summaries and scaled writes. States are those of `_lanes`.
"""

from llvmlite import ir
from numba.core import cgutils

from rmsfast._memory import component_bytes
from rmsfast._vectors import (
    AHEAD_FAR,
    AHEAD_NEAR,
    F64,
    I1,
    I32,
    I64,
    LANES,
    WIDTH,
    Emitter,
    absent,
    component_of,
    x86_has,
)


def offsets_of(builder, arrays, index):
    """Byte offset of element `index` in each array that is there."""
    return [None if absent(a) else builder.mul(index, I64(component_bytes(a))) for a in arrays]


def load_all(em, total, pointers, index, valid):
    offsets = offsets_of(em.b, total.arrays, index)
    return [
        o and (em.stored if k in total.codes else em.load)(component_of(a), p, o, valid)
        for k, (a, p, o) in enumerate(zip(total.arrays, pointers, offsets, strict=True))
    ]


def load_terms(em, total, pointers, index, valid):
    values = load_all(em, total, pointers, index, valid)
    for k, v in enumerate(values[:2]):
        if v is not None and total.real(k):  # stands twice: as itself, and for an imaginary 0
            numbers = ir.Constant(em.vector(I64), list(range(em.lanes)))
            odd = em.b.trunc(em.b.add(em.splat(index), numbers), em.vector(I1))
            zero = em.like(v[0], 0.0)
            values[k] = tuple(part and em.b.select(odd, zero, part) for part in v)
    return values


def scale_factors(em, scale, value):
    if absent(scale):
        return None
    return [em.splat(part) for part in cgutils.unpack_tuple(em.b, value)]


NEAR, FAR = 3, 2  # caches that a line is fetched into: of level 1, of level 2


def prefetch(em, pointer, offset, level):
    place = em.b.gep(pointer, [offset])
    em.call("llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(level), I32(1))


def valid_lanes(em, remaining):
    """Mask of the first `remaining` lanes."""
    numbers = ir.Constant(em.vector(I64), list(range(em.lanes)))
    return em.b.icmp_signed("<", numbers, em.splat(remaining))


def accumulate_integers(em, total, state, pointer, count):
    """As `accumulate`, for squares that are added as integers; lanes hold bits of int64."""
    b, kind = em.b, component_of(total.x)
    size, step = component_bytes(total.x), 2 * LANES
    wide = em.vector(I64)
    places = [b.bitcast(b.gep(state, [I64(u)]), wide.as_pointer()) for u in range(LANES // WIDTH)]
    loaded = [b.load(p) for p in places]
    for v in loaded:
        v.align = 8
    cells = [cgutils.alloca_once_value(b, v) for v in loaded]
    em = Emitter(em.context, b, step)

    def add(start, valid):
        offset = b.mul(start, I64(size))
        if valid is None:
            for line in range(0, step * size, 64):
                prefetch(em, pointer, b.add(offset, I64(AHEAD_FAR + line)), FAR)
        squares = em.square_integers(kind, em.stored(kind, pointer, offset, valid))
        squares = b.bitcast(squares, wide)
        low = b.and_(squares, em.fill(I64, 2**32 - 1, WIDTH))
        high = b.lshr(squares, em.fill(I64, 32, WIDTH))
        for cell, v in zip(cells, (low, high), strict=True):
            b.store(b.add(b.load(cell), v), cell)

    whole = b.udiv(count, I64(step))
    with cgutils.for_range(b, whole) as loop:
        add(b.mul(loop.index, I64(step)), None)
    rest = b.and_(count, I64(step - 1))
    with b.if_then(b.icmp_signed(">", rest, I64(0)), likely=False):
        add(b.sub(count, rest), valid_lanes(em, rest))
    for cell, place in zip(cells, places, strict=True):
        b.store(b.load(cell), place).align = 8


def fetch_ahead(em, total, pointers, start, count):
    """Fetch what a run comes to some time after the `count` elements from `start` on."""
    for array, p, offset in zip(
        total.arrays, pointers, offsets_of(em.b, total.arrays, start), strict=True
    ):
        if offset is not None:
            for line in range(0, count * component_bytes(array), 64):
                prefetch(em, p, em.b.add(offset, I64(AHEAD_FAR + line)), FAR)
                prefetch(em, p, em.b.add(offset, I64(AHEAD_NEAR + line)), NEAR)


def load_state(em, state, first, count):
    """`count` vectors of a state."""
    vectors = [em.b.load(em.b.gep(state, [I64(first + k)])) for k in range(count)]
    for v in vectors:
        v.align = 8
    return vectors


def store_state(em, state, first, vectors):
    for k, v in enumerate(vectors):
        em.b.store(v, em.b.gep(state, [I64(first + k)])).align = 8


def load_as(em, element, pointer):
    v = em.b.load(em.b.bitcast(pointer, em.vector(element).as_pointer()))
    v.align = 1
    return v


def nothing(total):
    """What the components of a sum start from.

    Sums do from -0.0: LLVM clears 0.0 in halves of a vector, and a vector loaded from two stores
    waits until both, and the streaming stores before them, are in memory.
    """
    return [value or (0.0 if total.whole else -0.0) for value in total.components.values()]


class Adder:
    """A state in registers, and the runs of LANES elements of one row that are added to it.

    fresh: it begins as one of nothing, and is not read, which would wait for the stores before.
    """

    def __init__(self, context, builder, total, state, pointers, fresh=False):
        # Processors with vectors of 32 bytes are slow in parting what fills two of them.
        lanes = WIDTH if x86_has(context, "avx512f") else WIDTH // 2
        self.em, self.total, self.pointers = Emitter(context, builder, lanes), total, pointers
        self.state = builder.bitcast(state, self.em.vector(F64).as_pointer())
        self.scale, self.vectors = None, LANES // lanes
        begin = [self.em.fill(F64, v) for v in nothing(total) for _ in range(self.vectors)]
        if not fresh:
            begin = self.arranged(load_state(self.em, self.state, 0, len(begin)))
        self.cells = [cgutils.alloca_once_value(builder, v) for v in begin]

    def arranged(self, vectors):
        """Vectors of the state as `add` takes them."""
        return vectors

    def in_order(self, vectors):
        """The vectors of which `arranged` made these."""
        return vectors

    def fetch(self, start, count):
        """Fetch what comes some time after the `count` elements from `start` on."""
        fetch_ahead(self.em, self.total, self.pointers, start, count)

    def add(self, start):
        """Add the elements from `start` on."""
        self.add_some(start, None)

    def add_some(self, start, count):
        """Add the first `count` of them."""
        for u in range(self.vectors):
            first = I64(u * self.em.lanes)
            valid = count and valid_lanes(self.em, self.em.b.sub(count, first))
            index = self.em.b.add(start, first)
            values = load_terms(self.em, self.total, self.pointers, index, valid)
            self.step(u, values, valid)

    def step(self, u, values, valid=None):
        """Add a vector of every array to vector u of each component."""
        b, own = self.em.b, self.cells[u :: self.vectors]
        cells = dict(zip(self.total.components, own, strict=True))
        sums = {name: b.load(cell) for name, cell in cells.items()}
        for name, v in self.total.step(self.em, sums, values, valid, self.scale).items():
            b.store(v, cells[name])

    def close(self):
        vectors = self.in_order([self.em.b.load(cell) for cell in self.cells])
        store_state(self.em, self.state, 0, vectors)


class PairAdder(Adder):
    """The same of bfloat16, read two at a time as 32 bits.

    Shifts and masks make float32 of those, and need no instruction that moves numbers from one
    part of a vector to another; the lanes are parted into even and odd ones meanwhile.
    """

    def arranged(self, vectors):
        return self.em.alternate(vectors)

    def in_order(self, vectors):
        return self.em.neighbours(vectors)

    def add(self, start):
        em, b = self.em, self.em.b
        for u in range(0, self.vectors, 2):
            offset = b.mul(b.add(start, I64(u * em.lanes)), I64(2))
            pairs = [
                array and em.pair_of(load_as(em, I32, b.gep(p, [offset])))
                for array, p in zip(self.total.arrays, self.pointers, strict=True)
            ]
            for k in range(2):
                values = [pair and (b.fpext(pair[k], em.vector(F64)), None) for pair in pairs]
                self.step(u + k, values)
