"""Where elements lie: the @intrinsic functions that make pointers and copy runs side by side."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._layout import SWAPPED
from rmsfast._vectors import (
    BYTES,
    F64,
    I1,
    I8,
    I32,
    I64,
    SCRATCH,
    WIDTH,
    Emitter,
    absent,
    bits_of,
    component_of,
)

ARRAYS = 7  # at most, in one walk, with its result


def count_there(arrays, end=None):
    """How many arrays are there, of those before `end`."""
    return sum(not absent(a) for a in tuple(arrays)[:end])


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
def apart(typingctx):
    """Mark the function around as one to call: compiled once, wherever it is used."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
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


def geometry(context, builder, kind, value):
    """Pointer to g[row, axis], from two numbers of the instruction stream."""
    array = context.make_array(kind)(context, builder, value)
    columns = builder.extract_value(array.shape, 1)

    def entry(row, axis):
        return builder.load(
            builder.gep(array.data, [builder.add(builder.mul(I64(row), columns), axis)])
        )

    return entry


@intrinsic
def offsets(typingctx, arrays, g, begin, end, index):
    """Byte offset in each array of position `index` counted in C order over axes of g."""
    signature = types.UniTuple(types.intp, len(arrays))(
        arrays, g, types.intp, types.intp, types.intp
    )

    def codegen(context, builder, signature, args):
        entry = geometry(context, builder, signature.args[1], args[1])
        begin, end, index = args[2:]
        rest = cgutils.alloca_once_value(builder, index)
        sums = [
            None if absent(a) else cgutils.alloca_once_value(builder, I64(0))
            for a in signature.args[0]
        ]
        with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
            axis = builder.sub(builder.sub(end, loop.index), I64(1))
            position = cgutils.alloca_once_value(builder, index)
            builder.store(builder.load(rest), position)
            with builder.if_then(builder.icmp_signed(">", axis, begin)):  # the first needs none
                length, whole = entry(0, axis), builder.load(rest)
                above = builder.udiv(whole, length)
                builder.store(above, rest)
                builder.store(builder.sub(whole, builder.mul(above, length)), position)
            for k, cell in enumerate(sums):
                if cell is not None:
                    step = builder.mul(builder.load(position), entry(k + 1, axis))
                    builder.store(builder.add(builder.load(cell), step), cell)
        found = [I64(0) if cell is None else builder.load(cell) for cell in sums]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@intrinsic
def strides_of(typingctx, arrays, g, axis, times):
    """Bytes of `times` steps along an axis of g in each array; 0 for axis -1."""
    signature = types.UniTuple(types.intp, len(arrays))(arrays, g, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        entry = geometry(context, builder, signature.args[1], args[1])
        found = []
        for k, a in enumerate(signature.args[0]):
            cell = cgutils.alloca_once_value(builder, I64(0))
            if not absent(a):
                with builder.if_then(builder.icmp_signed(">=", args[2], I64(0))):
                    builder.store(builder.mul(args[3], entry(k + 1, args[2])), cell)
            found.append(builder.load(cell))
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@intrinsic
def moved(typingctx, places, steps):
    """Byte offsets, moved by some bytes in each array."""
    signature = places(places, places)

    def codegen(context, builder, signature, args):
        pairs = zip(*(cgutils.unpack_tuple(builder, a) for a in args), strict=True)
        found = [builder.add(place, step) for place, step in pairs]
        return context.make_tuple(builder, signature.return_type, found)

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
        return stack(builder, ir.ArrayType(I8, ARRAYS * 8 * SCRATCH))

    return signature, codegen


@intrinsic
def put(typingctx, memory, k, value):
    """Store a float64 at place k of memory."""
    signature = types.void(types.voidptr, types.intp, types.float64)

    def codegen(context, builder, signature, args):
        p = builder.bitcast(args[0], F64.as_pointer())
        builder.store(args[2], builder.gep(p, [args[1]]))
        return context.get_dummy_value()

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


@intrinsic
def arrive(typingctx, counts, k):
    """Count one more at place k of int64 that threads share; returns how many there were before."""
    signature = types.int64(counts, types.intp)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), I64(1), "seq_cst")

    return signature, codegen


@intrinsic
def summon(typingctx, pointer):
    """Fetch the cache line of a pointer meanwhile."""
    signature = types.void(types.voidptr)

    def codegen(context, builder, signature, args):
        arguments = [args[0], I32(0), I32(3), I32(1)]
        Emitter(context, builder).call("llvm.prefetch.p0", ir.VoidType(), *arguments)
        return context.get_dummy_value()

    return signature, codegen


def copy_strided(builder, element, source, stride, count, swap, target):
    """Copy `count` elements, `stride` bytes apart, side by side, in native byte order."""

    def load(p, swap):
        v = builder.load(builder.bitcast(p, element.as_pointer()))
        v.align = 1
        return builder.bswap(v) if swap else v

    def copy(swap):
        one = load(source, swap)
        same = builder.icmp_signed("==", stride, I64(0))
        with builder.if_else(same, likely=False) as (fill, walk):
            with fill, cgutils.for_range(builder, count) as loop:
                builder.store(one, builder.gep(target, [loop.index]))
            with walk, cgutils.for_range(builder, count) as loop:
                v = load(builder.gep(source, [builder.mul(loop.index, stride)]), swap)
                builder.store(v, builder.gep(target, [loop.index]))

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

    Arrays whose bit k in `apart` is set are copied side by side to their part of
    `memory`, from its element `done` on; bit SWAPPED + k says that their bytes are swapped.
    """
    places = types.UniTuple(types.intp, len(arrays))
    signature = types.UniTuple(types.voidptr, len(arrays))(
        arrays, places, places, types.intp, types.intp, types.voidptr, types.intp
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
            with builder.if_then(bit(builder, apart, k)):
                element = ir.IntType(bits_of(component_of(a)))
                target = builder.gep(builder.bitcast(part, element.as_pointer()), [done])
                stride = builder.extract_value(strides, k)
                swap = bit(builder, apart, SWAPPED + k)
                copy_strided(builder, element, source, stride, count, swap, target)
                builder.store(part, pointer)
            pointers.append(builder.load(pointer))
        return context.make_tuple(builder, signature.return_type, pointers)

    return signature, codegen


def bit(builder, word, k):
    return builder.trunc(builder.lshr(word, I64(k)), I1)


SOON = 64  # coordinates that are on their way to the level 2 cache while one is copied
SHIFT = WIDTH.bit_length() - 1


def prefetch(em, place):
    em.call("llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(2), I32(1))


@intrinsic
def copy_apart(
    typingctx, arrays, offsets, strides, steps, swapped, count, rows, memory, part, first, room
):
    """Copy `count` coordinates of `rows` rows of each array, in native byte order.

    They are `strides` bytes apart from byte `offsets`, and `steps` from row to row. Coordinate
    i of row r goes to element first + i + r * room of `part` bytes of `memory` for each array.
    Bit SWAPPED + k of `swapped` says that the bytes of array k are swapped.
    """
    places = types.UniTuple(types.intp, len(arrays))
    signature = types.void(
        arrays, places, places, places, types.intp, types.intp, types.intp, types.voidptr,
        types.intp, types.intp, types.intp,
    )  # fmt: skip

    def codegen(context, builder, signature, args):
        values, offsets, strides, steps, swapped, count, rows, memory, part, first, room = args
        em = Emitter(context, builder)
        for k, a in enumerate(signature.args[0]):
            if absent(a):
                continue
            element = ir.IntType(bits_of(component_of(a)))
            data = context.make_array(a)(context, builder, builder.extract_value(values, k)).data
            source = builder.gep(builder.bitcast(data, BYTES), [builder.extract_value(offsets, k)])
            stride, step = (builder.extract_value(t, k) for t in (strides, steps))
            target = builder.gep(
                memory, [builder.mul(part, I64(count_there(signature.args[0], k)))]
            )
            target = builder.gep(builder.bitcast(target, element.as_pointer()), [first])

            def cell(i, r, source=source, apart=(stride, step), lanes=element):
                place = builder.add(builder.mul(i, apart[0]), builder.mul(r, apart[1]))
                return builder.bitcast(builder.gep(source, [place]), lanes.as_pointer())

            def copy(swap, first, last, element=element, cell=cell, target=target):
                """Coordinates and rows from `first` to `last`, one by one."""
                with cgutils.for_range(builder, builder.sub(last[0], first[0])) as outer:
                    i = builder.add(outer.index, first[0])
                    ahead = builder.bitcast(cell(builder.add(i, I64(SOON)), first[1]), BYTES)
                    prefetch(em, ahead)
                    with cgutils.for_range(builder, builder.sub(last[1], first[1])) as loop:
                        r = builder.add(loop.index, first[1])
                        v = builder.load(cell(i, r))
                        v.align = 1
                        v = builder.bswap(v) if swap else v
                        builder.store(
                            v, builder.gep(target, [builder.add(i, builder.mul(r, room))])
                        )

            def turn(last, element=element, cell=cell, target=target):
                """As `copy`, from 0 on, WIDTH of each at once, of rows that are neighbours."""
                lanes = em.vector(element)
                with cgutils.for_range(builder, builder.lshr(last[0], I64(SHIFT))) as outer:
                    i = builder.shl(outer.index, I64(SHIFT))
                    with cgutils.for_range(builder, builder.lshr(last[1], I64(SHIFT))) as loop:
                        r, loaded = builder.shl(loop.index, I64(SHIFT)), []
                        for n in range(WIDTH):
                            at = builder.add(i, I64(n))
                            ahead = cell(builder.add(at, I64(SOON)), r)
                            prefetch(em, builder.bitcast(ahead, BYTES))
                            loaded.append(builder.load(cell(at, r, lanes=lanes)))
                            loaded[-1].align = 1
                        for n, v in enumerate(em.transposed(loaded)):
                            place = builder.mul(builder.add(r, I64(n)), room)
                            p = builder.gep(target, [builder.add(i, place)])
                            builder.store(v, builder.bitcast(p, lanes.as_pointer())).align = 1

            def whole(copy=copy, turn=turn, step=step, size=element.width // 8):
                beside = builder.icmp_signed("==", step, I64(size))
                turned = [
                    builder.select(beside, builder.and_(n, I64(-WIDTH)), I64(0))
                    for n in (count, rows)
                ]
                turn(turned)
                copy(False, (I64(0), turned[1]), (turned[0], rows))
                copy(False, (turned[0], I64(0)), (count, rows))

            if element.width == 8:
                whole()
                continue
            with builder.if_else(bit(builder, swapped, SWAPPED + k), likely=False) as (yes, no):
                with yes:
                    copy(True, (I64(0), I64(0)), (count, rows))
                with no:
                    whole()
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def there(typingctx, arrays):
    """How many arrays are there, each of which has a part of a memory."""
    signature = types.intp(arrays)

    def codegen(context, builder, signature, args):
        return I64(count_there(signature.args[0]))

    return signature, codegen


@intrinsic
def parts_of(typingctx, arrays, memory, part, first):
    """Pointers to element `first` of each array's part of `memory`."""
    signature = types.UniTuple(types.voidptr, len(arrays))(
        arrays, types.voidptr, types.intp, types.intp
    )

    def codegen(context, builder, signature, args):
        memory, part, first = args[1:]
        pointers = []
        for k, a in enumerate(signature.args[0]):
            if absent(a):
                pointers.append(ir.Constant(BYTES, None))
                continue
            offset = builder.mul(first, I64(component_bytes(a)))
            before = count_there(signature.args[0], k)
            offset = builder.add(offset, builder.mul(part, I64(before)))
            pointers.append(builder.gep(memory, [offset]))
        return context.make_tuple(builder, signature.return_type, pointers)

    return signature, codegen
