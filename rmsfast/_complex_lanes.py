"""What `describe` and `compare` take from a run of complex numbers: the @intrinsic functions.

Real and imaginary parts lie in turn, so the even lanes of a vector hold the ones, the odd lanes
the others. What is found is right where no number that is kept is NaN, infinite or far from 1.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from rmsfast._runs import fetch_ahead, load_terms, valid_lanes
from rmsfast._summary_lanes import (
    add_to_pair,
    both,
    count_start,
    counted,
    further,
    pair_starts,
    total_count,
    tuple_of,
)
from rmsfast._terms import Sum
from rmsfast._vectors import F64, I1, I32, I64, WIDTH, Emitter

NUMBER = types.float64


def swapped(em, v):
    """Each part beside the other of its value."""
    other = ir.Constant(em.vector(I32), [k ^ 1 for k in range(em.lanes)])
    return em.b.shuffle_vector(v, v, other)


def squared(em, v):
    """The squared size of values, in both lanes."""
    squares = em.b.fmul(v, v)
    return em.b.fadd(squares, swapped(em, squares))


def none_of(em, v):
    """Lanes of values with two parts that are 0."""
    size = em.absolute(v)
    return em.b.fcmp_ordered("==", em.b.fadd(size, swapped(em, size)), em.like(v, 0.0))


class Run:
    """The vectors of a run; first: whether it is not in cache yet."""

    def __init__(self, context, builder, arrays, how, first=False):
        self.em, self.total, self.first = Emitter(context, builder), Sum(arrays, how), first

    def walk(self, pointers, count, start, step):
        """Accumulators after all vectors, float64 or counters.

        step(now, values, keep, kept): those that are new; keep: the lanes that masks leave (None:
        all), kept: those of them that there are.
        """
        em, b = self.em, self.em.b
        pointers = cgutils.unpack_tuple(b, pointers)
        cells = {name: cgutils.alloca_once_value(b, v) for name, v in start.items()}

        def add(index, valid):
            values = load_terms(em, self.total, pointers, index, valid)
            keep, _, _ = self.total.keep(em, values, valid)
            now = {name: b.load(cell) for name, cell in cells.items()}
            for name, v in step(now, values, keep, valid if keep is None else keep).items():
                b.store(v, cells[name])

        with cgutils.for_range(b, b.udiv(count, I64(WIDTH))) as loop:
            index = b.mul(loop.index, I64(WIDTH))
            if self.first:
                fetch_ahead(em, self.total, pointers, index, WIDTH)
            add(index, None)
        rest = b.and_(count, I64(WIDTH - 1))
        with b.if_then(b.icmp_signed(">", rest, I64(0)), likely=False):
            add(b.sub(count, rest), valid_lanes(em, rest))
        return {name: b.load(cell) for name, cell in cells.items()}

    def chosen(self, pair, keep):
        """Parts of a pair, 0 in lanes that are left out."""
        if keep is None:
            return pair
        return tuple(p and self.em.b.select(keep, p, self.em.like(p, 0.0)) for p in pair)

    def add(self, now, name, v, e):
        """A sum, a pair where it is exact, and v + e."""
        return add_to_pair(self.em, now, name, v, e, self.total.exact)

    def sums(self, *names):
        """Accumulators of sums."""
        starts = pair_starts(names, self.total.exact)
        return {name: self.em.fill(F64, start) for name, start in starts.items()}

    def parts(self, end, name):
        """The sums of the even and of the odd lanes, as pairs."""
        zero = self.em.like(end[name], 0.0)
        halves = [self.em.halve(v) for v in (end[name], end.get(name + "_low", zero))]
        found = []
        for pair in zip(*halves, strict=True):
            found += self.em.fast_two_sum(*self.em.lanes_tree([pair], self.em.add_compensated))
        return found

    def whole(self, end, name):
        """The sum of all lanes, as a pair."""
        pair = end[name], end.get(name + "_low", self.em.like(end[name], 0.0))
        return self.em.fast_two_sum(*self.em.lanes_tree([pair], self.em.add_compensated))

    def largest(self, v):
        return self.em.call(f"llvm.vector.reduce.fmax.v{WIDTH}f64", F64, v)

    def values(self, end, name):
        """Values that a counter of lanes has met."""
        return self.em.b.fmul(total_count(self.em, end[name]), F64(0.5))

    def count(self):
        kind, zero = count_start(F64)
        return self.em.fill(kind, zero)

    def counted(self, now, name, mask, kept):
        mask = both(self.em, mask, kept)
        return {name: counted(self.em, now[name], self.em.fill(I1, 1) if mask is None else mask)}


@intrinsic
def sums_of_values(typingctx, arrays, how, pointers, count):
    """Of a run of x, in this order.

    How many values are kept, and 0; the sums of the real and of the imaginary parts, as pairs; the
    largest size of a part, and the largest squared size.
    """
    signature = types.UniTuple(NUMBER, 8)(arrays, how, pointers, types.intp)

    def codegen(context, builder, signature, args):
        run = Run(context, builder, *signature.args[:2], first=True)
        em, zero = run.em, run.em.fill(F64, 0.0)

        def step(now, values, keep, kept):
            v, e = run.chosen(values[0], keep)
            new = run.add(now, "sum", v, e)
            new["top"] = further(em, ">", now["top"], em.absolute(v), None)
            new["size"] = further(em, ">", now["size"], squared(em, v), None)
            new |= run.counted(now, "zeros", none_of(em, v), kept)
            return new | run.counted(now, "kept", None, kept)

        start = run.sums("sum") | {"top": zero, "size": zero}
        start |= {"zeros": run.count(), "kept": run.count()}
        end = run.walk(args[2], args[3], start, step)
        found = [run.values(end, name) for name in ("kept", "zeros")]
        found += run.parts(end, "sum")
        found += [run.largest(end[name]) for name in ("top", "size")]
        return tuple_of(context, em, signature, found)

    return signature, codegen


@intrinsic
def spread_of_values(typingctx, arrays, how, pointers, means, count):
    """Sums of squares about the means of real and imaginary parts, all of them pairs."""
    signature = types.UniTuple(NUMBER, 4)(arrays, how, pointers, means, types.intp)

    def codegen(context, builder, signature, args):
        run = Run(context, builder, *signature.args[:2])
        em, means = run.em, cgutils.unpack_tuple(builder, args[3])
        odd = ir.Constant(em.vector(I1), [k % 2 for k in range(WIDTH)])
        centre, centre_low = (
            builder.select(odd, em.splat(imaginary), em.splat(real))
            for real, imaginary in zip(means[:2], means[2:], strict=True)
        )

        def step(now, values, _keep, kept):
            v, _ = values[0]
            if not run.total.exact:
                d, _ = run.chosen((builder.fsub(v, centre), None), kept)
                return {"sum": builder.fadd(now["sum"], builder.fmul(d, d))}
            d, low = em.two_sum(v, builder.fneg(centre))
            d, low = em.two_sum(d, builder.fsub(low, centre_low))
            d, low = run.chosen((d, low), kept)
            p, lost = em.two_product(d, d)
            lost = builder.fadd(lost, builder.fmul(builder.fadd(d, d), low))
            return run.add(now, "sum", p, lost)

        end = run.walk(args[2], args[4], run.sums("sum"), step)
        return tuple_of(context, em, signature, run.parts(end, "sum"))

    return signature, codegen


@intrinsic
def sums_of_pairs(typingctx, arrays, how, pointers, count):
    """Of a run of pairs, in this order.

    How many are kept, and equal; the sums of the real and of the imaginary parts of x - y and that
    of the products of parts, as pairs; the largest size of a part of x, and of y; the largest
    squared size of x - y.
    """
    signature = types.UniTuple(NUMBER, 11)(arrays, how, pointers, types.intp)

    def codegen(context, builder, signature, args):
        run = Run(context, builder, *signature.args[:2], first=True)
        em, zero, b = run.em, run.em.fill(F64, 0.0), builder

        def step(now, values, keep, kept):
            x, y = (run.chosen(v, keep) for v in values[:2])
            d, low = run.total.difference(em, x, y)
            new = run.add(now, "error", d, low)
            if run.total.exact:
                p, lost = em.two_product(x[0], y[0])
                for v, e in ((x[0], y[1]), (y[0], x[1])):
                    lost = lost if e is None else b.fadd(lost, b.fmul(v, e))
                new |= run.add(now, "product", p, lost)
            else:
                new |= run.add(now, "product", b.fmul(x[0], y[0]), None)
            for name, v in (("x", em.absolute(x[0])), ("y", em.absolute(y[0]))):
                new[name] = further(em, ">", now[name], v, None)
            new["size"] = further(em, ">", now["size"], squared(em, d), None)
            new |= run.counted(now, "equal", none_of(em, d), kept)
            return new | run.counted(now, "kept", None, kept)

        start = run.sums("error", "product") | dict.fromkeys(("x", "y", "size"), zero)
        start |= {"equal": run.count(), "kept": run.count()}
        end = run.walk(args[2], args[3], start, step)
        found = [run.values(end, name) for name in ("kept", "equal")]
        found += [*run.parts(end, "error"), *run.whole(end, "product")]
        found += [run.largest(end[name]) for name in ("x", "y", "size")]
        return tuple_of(context, em, signature, found)

    return signature, codegen


@intrinsic
def next_of_size(typingctx, arrays, how, pointers, first, count, least):
    """Place of the first value, of those from `first` on, whose squared size is not below `least`.

    Of x, or of x - y where there are two; `count` where there is none.
    """
    signature = types.intp(arrays, how, pointers, types.intp, types.intp, NUMBER)

    def codegen(context, builder, signature, args):
        run = Run(context, builder, *signature.args[:2])
        em, b = run.em, builder
        pointers, first, count = cgutils.unpack_tuple(b, args[2]), args[3], args[4]
        least = em.splat(args[5])
        found = cgutils.alloca_once_value(b, count)
        left = b.sub(count, first)
        runs = b.udiv(b.add(left, I64(WIDTH - 1)), I64(WIDTH))
        with cgutils.for_range(b, runs) as loop:
            index = b.add(first, b.mul(loop.index, I64(WIDTH)))
            valid = valid_lanes(em, b.sub(count, index))
            values = load_terms(em, run.total, pointers, index, valid)
            keep, _, _ = run.total.keep(em, values, valid)
            size = squared(em, run.total.value(em, values, None)[0])
            mask = both(em, b.fcmp_ordered(">=", size, least), valid if keep is None else keep)
            bits = b.bitcast(mask, ir.IntType(WIDTH))
            with b.if_then(b.icmp_unsigned("!=", bits, bits.type(0)), likely=False):
                lane = em.call(f"llvm.cttz.i{WIDTH}", bits.type, bits, I1(1))
                b.store(b.add(index, b.zext(lane, I64)), found)
                loop.do_break()
        return b.load(found)

    return signature, codegen
