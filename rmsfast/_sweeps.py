"""The compiled loops that measure the machine: passing over memory, and calculating without it."""

import functools
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._edges import fence

I8, I32, I64 = (ir.IntType(bits) for bits in (8, 32, 64))
# Bytes of one vector. Whole cache lines are read and stored 10 % faster than halves with AVX-512.
LINE = 64
LINES = ir.VectorType(I64, LINE // 8)
LINES_AT_ONCE = 4
STRIDE = LINE * LINES_AT_ONCE
# Doubles in a vector and vectors in flight of a loop that calculates: 14 of the 16 registers of
# AVX2, and nearly enough to hide the latency of two AVX-512 units.
LANES = 8
CHAINS = 7
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)

parallel = njit(nogil=True, no_cfunc_wrapper=True, parallel=True)


class Method(NamedTuple):
    """One way of passing over memory."""

    kind: str
    rows: int = 1  # streams of consecutive cache lines that a thread follows in turn
    ahead: int = 0  # bytes by which a software prefetch runs ahead of the loads
    streaming: bool = False  # stores that bypass the caches


METHODS = {
    "read, 1 row": Method("read", rows=1),
    "read, 2 rows": Method("read", rows=2),
    "read, 4 rows": Method("read", rows=4),
    "read, prefetched": Method("read", ahead=2048),
    "copy, ordinary stores": Method("copy"),
    "copy, streaming stores": Method("copy", streaming=True),
    "write, ordinary stores": Method("write"),
    "write, streaming stores": Method("write", streaming=True),
}


# Memory -----------------------------------------------------------------------------------------


@parallel
def sweep(x, y, piece, method, seen, repeats):
    """Visit x and y piece by piece, again and again; seen.size threads get equal shares.

    All methods are compiled together and chosen at run time: three seconds once. `piece` is an
    argument because LLVM unrolls loops of known length, which takes three times as long to
    compile and runs no faster.
    """
    share = x.size // seen.size
    for thread in prange(seen.size):
        bits = np.uint64(0)
        for _ in range(repeats):
            for start in range(thread * share, (thread + 1) * share, piece):
                bits |= visit(x, y, start, piece, method)
        fence()
        seen[thread] = bits


@intrinsic
def visit(typingctx, x, y, start, piece, method):
    """Visit x[start : start + piece] and the same part of y by the method of this number.

    The result depends on all that was read.
    """

    def codegen(context, builder, signature, args):
        *arrays, start, piece, method = args
        source, target = (
            builder.bitcast(
                builder.gep(context.make_array(kind)(context, builder, array).data, [start]),
                LINES.as_pointer(),
            )
            for kind, array in zip(signature.args, arrays, strict=False)
        )
        seen = cgutils.alloca_once_value(builder, I64(0))
        done = builder.append_basic_block("done")
        switch = builder.switch(method, done)
        for index, known in enumerate(METHODS.values()):
            block = builder.append_basic_block()
            switch.add_case(I64(index), block)
            builder.position_at_end(block)
            builder.store(visit_piece(builder, source, target, piece, known), seen)
            builder.branch(done)
        builder.position_at_end(done)
        return builder.load(seen)

    return types.uint64(x, y, start, piece, method), codegen


def visit_piece(builder, source, target, piece, method):
    """Visit the lines of a piece and return the OR of all that was read."""
    none = ir.Constant(LINES, None)
    seen = [cgutils.alloca_once_value(builder, none) for _ in range(LINES_AT_ONCE)]  # registers
    steps = LINES_AT_ONCE // method.rows
    row_lines = builder.udiv(piece, I64(LINE * method.rows))
    with cgutils.for_range(builder, builder.udiv(row_lines, I64(steps))) as loop:
        first = builder.mul(loop.index, I64(steps))
        for row in range(method.rows):
            start = builder.add(first, builder.mul(row_lines, I64(row)))
            for step in range(steps):
                index = [builder.add(start, I64(step))]
                read, written = builder.gep(source, index), builder.gep(target, index)
                visit_line(builder, read, written, seen[row * steps + step], method)
    total = functools.reduce(builder.or_, [builder.load(kept) for kept in seen])
    return functools.reduce(builder.or_, lanes(builder, total))


def visit_line(builder, source, target, kept, method):
    """Read a line into `kept`, copy it, or write one."""
    if method.ahead:
        prefetch(builder, builder.gep(source, [I64(method.ahead // LINE)]))
    ones = LINES([1] * LINES.count)
    value = ones if method.kind == "write" else builder.load(source, align=LINE)
    if method.kind == "read":
        builder.store(builder.or_(builder.load(kept), value), kept)
        return
    store = builder.store(value, target, align=LINE)
    if method.streaming:
        store.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))


def prefetch(builder, pointer):
    """Ask for a line in the first cache."""
    signature = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, I8.as_pointer()), I32(0), I32(3), I32(1)])


def lanes(builder, vector):
    """Elements of a vector."""
    return [builder.extract_element(vector, I32(lane)) for lane in range(vector.type.count)]


# Arithmetic -------------------------------------------------------------------------------------


@parallel
def multiply_adds(steps, factor, last):
    """As many multiply-adds of `CHAINS` vectors by each thread."""
    for thread in prange(last.size):
        last[thread] = chains(steps, factor)


@intrinsic
def chains(typingctx, steps, factor):
    """Sum of independent chains of c = c * factor + factor."""

    def codegen(context, builder, signature, args):
        steps, factor = args
        one = builder.insert_element(ir.Constant(DOUBLES, None), factor, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, LANES), None)
        factors = builder.shuffle_vector(one, one, zeros)
        kept = [cgutils.alloca_once_value(builder, factors) for _ in range(CHAINS)]
        with cgutils.for_range(builder, steps):
            for slot in kept:
                product = builder.fmul(builder.load(slot), factors, flags=["contract"])
                builder.store(builder.fadd(product, factors, flags=["contract"]), slot)
        total = functools.reduce(builder.fadd, [builder.load(slot) for slot in kept])
        return functools.reduce(builder.fadd, lanes(builder, total))

    return types.float64(types.intp, types.float64), codegen
