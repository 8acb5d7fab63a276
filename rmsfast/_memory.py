"""Where elements lie: the @intrinsic functions that make pointers and copy runs side by side."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._vectors import (
    BYTES,
    I1,
    I8,
    I64,
    SCRATCH,
    absent,
    bits_of,
    component_of,
)


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
