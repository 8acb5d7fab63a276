"""The loop that runs kernels on many threads, and how these come to run side by side.

A thread that is woken may be put on the processor of the one that woke it, which then waits for it
without giving way: for milliseconds, in virtual machines of few processors at most calls after a
pause (to Linux an idle virtual processor looks like one that another machine took away). So the
first thread gives way until the others have begun, and one that begins on its processor leaves.
"""

import sys

from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._compiler import exchange_threads, run_entry

I32, I64, ADDRESS = ir.IntType(32), ir.IntType(64), ir.IntType(8).as_pointer()
LINUX = sys.platform == "linux"
MASK_WORDS = 16  # of a set of processors, as many as those of the C library hold
TRIES = 64  # times to give way to a thread; it may be on its way to another processor
# Nanoseconds: by then others than such a thread have had this processor, and may have it for
# milliseconds each time. There may be fewer threads than were asked for.
PATIENCE = 500_000
MONOTONIC = 1  # that clock of Linux


def system(b, name, *args):
    """Call a function of the C library that returns an int."""
    kind = ir.FunctionType(I32, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args)


def nanoseconds(b, place):
    """Time now, by way of a place for two words."""
    system(b, "clock_gettime", I32(MONOTONIC), b.bitcast(place, ADDRESS))
    whole, rest = (b.load(b.gep(place, [I64(0), I64(k)])) for k in range(2))
    return b.add(b.mul(whole, I64(10**9)), rest)


@intrinsic
def word(typingctx, job, k):
    """Word k of a job, which is at an address."""

    def codegen(context, b, signature, args):
        return b.load(b.gep(b.inttoptr(args[0], I64.as_pointer()), [args[1]]))

    return types.intp(job, types.intp), codegen


@intrinsic
def processor(typingctx):
    """The processor that the thread is on, -1 where that is not known."""

    def codegen(context, b, signature, args):
        return b.sext(system(b, "sched_getcpu"), I64) if LINUX else I64(-1)

    return types.intp(), codegen


@intrinsic
def count_in(typingctx, counter):
    """Add one to the counter at an address."""

    def codegen(context, b, signature, args):
        b.atomic_rmw("add", b.inttoptr(args[0], I64.as_pointer()), I64(1), "monotonic")
        return context.get_dummy_value()

    return types.void(counter), codegen


@intrinsic
def give_way(typingctx, counter, count):
    """Let threads run that wait for this processor, until so many are counted in or it is late."""

    def codegen(context, b, signature, args):
        if not LINUX:
            return context.get_dummy_value()
        place = b.inttoptr(args[0], I64.as_pointer())
        clock = cgutils.alloca_once(b, ir.ArrayType(I64, 2))
        late = b.add(nanoseconds(b, clock), I64(PATIENCE))
        with cgutils.for_range(b, I64(TRIES)) as loop:
            there = b.load_atomic(place, "monotonic", 8)
            with b.if_then(b.icmp_signed(">=", there, args[1])):
                loop.do_break()
            system(b, "sched_yield")
            with b.if_then(b.icmp_signed(">", nanoseconds(b, clock), late)):
                loop.do_break()
        return context.get_dummy_value()

    return types.void(counter, count), codegen


@intrinsic
def leave(typingctx, number):
    """Go on on another processor than this one, if there is another; any will do afterwards."""

    def codegen(context, b, signature, args):
        if not LINUX:
            return context.get_dummy_value()
        mask = cgutils.alloca_once(b, ir.ArrayType(I64, MASK_WORDS))
        given = I32(0), I64(8 * MASK_WORDS), b.bitcast(mask, ADDRESS)
        none, most = I32(0), I64(64 * MASK_WORDS)
        with b.if_then(b.icmp_unsigned("<", args[0], most)):
            known = b.icmp_signed(">=", system(b, "sched_getaffinity", *given), none)
            with b.if_then(known):
                place = b.gep(mask, [I64(0), b.lshr(args[0], I64(6))])
                own = b.load(place)
                bit = b.shl(I64(1), b.and_(args[0], I64(63)))
                b.store(b.and_(own, b.not_(bit)), place)
                system(b, "sched_setaffinity", *given)  # refused if none is left
                b.store(own, place)
                system(b, "sched_setaffinity", *given)
        return context.get_dummy_value()

    return types.void(number), codegen


@njit(nogil=True, error_model="numpy", no_cfunc_wrapper=True, parallel=True)
def in_parallel(entry, args, job):
    """Run the units of a job on some of Numba's threads, a run of them on each.

    The caller's number of threads stays. More and shorter runs take up to a tenth longer.
    """
    begin, end, threads, asleep = word(job, 1), word(job, 2), word(job, 3), word(job, 4)
    begun = job + 8 * 5
    home = processor() if asleep else -1
    before = exchange_threads(threads)
    for k in prange(threads):
        if asleep:
            count_in(begun)
            if k == 0:
                give_way(begun, threads)
            elif processor() == home:
                leave(home)
        first = begin + (end - begin) * k // threads
        run_entry(entry, args, first, begin + (end - begin) * (k + 1) // threads)
        if asleep and k == 0:
            give_way(begun, threads)
    exchange_threads(before)
