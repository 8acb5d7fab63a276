"""What is summed of each element: one vector of every array, and the tree over lanes.

The same instructions serve a run of one row and one coordinate of many rows.
"""

from llvmlite import ir

from rmsfast._vectors import (
    COMPLEX,
    EXACT,
    I32,
    absent,
    component_of,
    kind_of,
)

INF = float("inf")


class Sum:
    """What is summed, known from the types of the arguments: w * (x - y)**2 and its weight.

    arrays: types of x, y (None: 0), partner (of x, only looked at for NaN), where, weights
    and more masks.
    how: types of three flags, None for no: omit (NaN is left out), exact (sums are pairs),
    extent (not squares: the sum of w * x itself, and the least and the largest x).
    """

    codes = frozenset((3, 5, 6))  # arrays that are not read as numbers: where, more masks

    def __init__(self, arrays, how):
        self.arrays = tuple(None if absent(a) else a for a in arrays)
        self.x, self.y, self.partner, self.where, self.weights = self.arrays[:5]
        self.complex = any(kind_of(a) in COMPLEX for a in self.arrays[:3] if a is not None)
        self.omit, self.exact, self.extent = (not absent(flag) for flag in how)
        self.counted = self.omit or self.where is not None
        self.masked = self.counted or self.weights is not None or self.extent
        weighted = self.weights is not None
        names = ["sum"] + ["sum_low"] * (self.exact and not self.whole)
        names += ["weight"] * (weighted or self.counted)
        names += ["weight_low"] * (weighted and self.exact)
        names += ["dropped"] * self.omit + ["bad"] * weighted
        if self.extent:
            names += ["least", "least_low", "most", "most_low"]
        self.components = {name: {"least": INF, "most": -INF}.get(name, 0.0) for name in names}

    @property
    def whole(self):
        """Whether squares of 8 or 16 bits are added as integers, in place of float64."""
        alone = all(a is None for a in self.arrays[1:]) and not self.masked
        return alone and kind_of(self.x) in ("int8", "uint8", "int16")

    @property
    def paired(self):
        """Whether numbers may be read two at a time: bfloat16 alone."""
        alone = not any(self.arrays[2:]) and not self.masked and not self.exact
        return alone and all(kind_of(a) == "bfloat16" for a in self.arrays[:2] if a)

    def real(self, k):
        """Whether array k holds real numbers that are subtracted beside complex ones."""
        return self.complex and k < 2 and kind_of(self.arrays[k]) not in COMPLEX

    def size(self, em, v):
        return em.absolute(v) if self.extent else v

    # Emission: `values` are (value, error) pairs of vectors, one an array, None if absent.

    def keep(self, em, values, valid):
        """Masks of lanes: kept, NaN dropped, bad weight (None: all, none, none)."""
        b, (x, y, partner, _, weights) = em.b, values[:5]
        keep = valid if self.masked else None
        for k in sorted(self.codes):
            if k < len(values) and values[k] is not None:
                sign = "==" if kind_of(self.arrays[k]) == "hidden" else "!="
                chosen = b.icmp_unsigned(sign, values[k], em.like(values[k], 0))
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
            if self.complex:  # a complex value counts as a whole
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
        finite = em.b.fcmp_ordered("<", em.absolute(d), em.like(d, INF))
        low = em.b.select(finite, em.b.fadd(low, e), em.like(d, 0.0))  # of Inf it is NaN
        return em.fast_two_sum(d, low)

    def integers(self):
        """Whether differences of x and y are exact in float64."""
        small = EXACT | {"int32", "uint32"}
        return {component_of(self.x), component_of(self.y)} <= small

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
