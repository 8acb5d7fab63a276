"""What of a run lies before and after the whole cache lines of its target.

Where runs of a target follow each other in memory, lines at their ends belong to two of them. Such
a line is kept until the next run completes it, so that it goes past the caches as the others do:
stored in two parts, it would have to be read first, which takes a fifth of the time of rows of
4 KiB.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._memory import stack
from rmsfast._vectors import BYTES, F32, I8, I32, I64

LINE = 64  # bytes that a streaming store fills at once: a cache line


class Pending:
    """Memory of a line that is not yet whole, and the address at which it would continue.

    The line has a line of room on both sides: what belongs to it is stored with its neighbours.
    """

    SIZE = 3 * LINE + 8

    def __init__(self, builder, memory):
        self.b, self.memory = builder, memory
        address = builder.gep(memory, [I64(3 * LINE)])
        self.address = builder.bitcast(address, I64.as_pointer())
        self.line = builder.gep(memory, [I64(LINE)])

    @classmethod
    def new(cls, builder):
        pending = cls(builder, stack(builder, ir.ArrayType(I8, cls.SIZE)))
        pending.forget()
        return pending

    def forget(self):
        self.b.store(I64(0), self.address)

    def write(self):
        """Write what there is of the line, if anything, by ordinary stores."""
        b = self.b
        end = b.load(self.address)
        with b.if_then(b.icmp_unsigned("!=", end, I64(0)), likely=False):
            size = b.and_(end, I64(LINE - 1))
            target = b.inttoptr(b.sub(end, size), BYTES)
            cgutils.raw_memcpy(b, target, self.line, size, 1)
            self.forget()


class Edges:
    """The ends of a run of `count` elements of some bytes, of which `head` precede whole lines."""

    def __init__(self, em, size, target, count, streaming, pending):
        """pending: what is kept from the run before, and for the one after."""
        self.em, self.b, self.size, b = em, em.b, size, em.b
        self.target, self.count, self.pending = target, count, pending
        start = b.ptrtoint(target, I64)
        self.before = b.and_(start, I64(LINE - 1))  # bytes of the first line that are of others
        odd = b.icmp_unsigned("!=", b.urem(start, I64(size)), I64(0))
        self.streaming = b.and_(streaming, b.not_(odd))
        self.short = b.icmp_signed("<", count, I64(em.lanes))
        head = b.udiv(b.and_(b.neg(start), I64(LINE - 1)), I64(size))
        head = b.select(self.streaming, head, I64(0))
        self.head = b.select(self.short, I64(0), head)
        self.lines = b.udiv(b.sub(count, self.head), I64(em.lanes))
        done = b.add(self.head, b.mul(self.lines, I64(em.lanes)))
        self.rest = b.sub(count, done)
        follows = b.icmp_unsigned("==", b.load(pending.address), start)
        self.completes = b.and_(b.and_(follows, self.streaming), b.not_(self.short))
        with b.if_then(b.not_(self.completes)):
            pending.write()
        pending.forget()

    def write(self, store):
        """Write both ends; store(index, pointer): a line of results, of which they are a part."""
        b = self.b
        with cgutils.for_range(b, I64(2)) as loop:
            last = b.trunc(loop.index, ir.IntType(1))
            n = b.select(last, self.rest, self.head)
            with b.if_then(b.icmp_signed(">", n, I64(0))):
                size = b.mul(n, I64(self.size))
                index = b.select(last, b.sub(self.count, I64(self.em.lanes)), I64(0))
                # So that what precedes a whole line ends where that begins, and what follows the
                # last one begins with a line.
                place = b.select(last, size, b.sub(I64(2 * LINE), size))
                store(index, b.gep(self.pending.memory, [place]))
                self.deliver(last, n, size)

    def deliver(self, last, n, size):
        """Write n results, complete the line before them, or keep them."""
        b = self.b
        first = b.select(last, b.sub(self.count, n), I64(0))
        target = b.gep(self.target, [b.mul(first, I64(self.size))])
        source = b.gep(self.pending.memory, [b.select(last, I64(LINE), b.sub(I64(2 * LINE), size))])
        keeps = b.and_(last, self.streaming)
        completes = b.and_(b.not_(last), self.completes)
        with b.if_then(keeps):
            b.store(b.add(b.ptrtoint(target, I64), size), self.pending.address)
        with b.if_then(completes):
            line = ir.VectorType(F32, LINE // 4).as_pointer()
            words = b.load(b.bitcast(self.pending.line, line))
            words.align = LINE
            whole = b.gep(self.target, [b.neg(self.before)])
            stream(self.em, words, whole)
        with b.if_then(b.not_(b.or_(keeps, completes))):
            cgutils.raw_memcpy(b, target, source, size, 1)


def stream(em, v, pointer):
    """Store a whole line past the caches."""
    b = em.b
    words = b.bitcast(v, ir.VectorType(F32, LINE // 4))
    # LLVM knows of no streaming stores of float16: the fence keeps it from these.
    words = em.call("llvm.arithmetic.fence.v16f32", words.type, words)
    store = b.store(words, b.bitcast(pointer, words.type.as_pointer()))
    store.align = LINE
    store.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(I32, 1)]))


@intrinsic
def pending_line(typingctx, unused):
    """Memory on the stack for a line of a target that runs have in common; see `Edges`."""
    signature = types.voidptr(unused)

    def codegen(context, builder, signature, args):
        return Pending.new(builder).memory

    return signature, codegen


@intrinsic
def write_pending(typingctx, memory):
    """Write the line that no run has completed."""
    signature = types.void(types.voidptr)

    def codegen(context, builder, signature, args):
        Pending(builder, args[0]).write()
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fence(typingctx):
    """Wait until streaming stores can be seen by others."""
    signature = types.void()

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return signature, codegen
