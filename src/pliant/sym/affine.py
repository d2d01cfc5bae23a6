"""Quasi-affine iterator maps: are the bindings of a block independent maps of its loops?

A binding may split loop variables (`i // 4`, `i % 4`), fuse them (`i * 4 + j`), shift, stride and reverse them. The bindings are
independent if no part of a loop variable is used twice. Then different loop iterations give different block instances exactly if every
part is used (`injective`), and every point of the box of extents is an instance exactly if nothing is skipped (`surjective`).

    v0 = i // 4, v1 = i % 4      with i < 16:          extents 4 and 4, both injective and surjective
    v0 = i * 4 + j               with j < 4, i < n:    extent n * 4
    v0 = i, v1 = 2 * i           refused: both depend on i

Terms: a *mark* is a loop variable or a fused sum with an extent; a *split* is (mark // lower) % extent; a sum is scale * split + … +
base, sorted so that each scale is at least the span of the splits below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ..support.record import dataclass
from ..support.refusal import Refusal
from . import expr as E
from .bounds import exact, int_range
from .conditions import conjuncts
from .expr import TRUE, Const, Expr, FloorDiv, FloorMod, Le, Lt, Min, Var, free_vars
from .facts import EMPTY, Facts
from .poly import Poly, add, poly_of, quotient, to_expr
from .prove import prove, prove_equal
from .simplify import simplify
from .walk import walk


@dataclass(eq=False)
class Mark:
    """A value that runs through 0..extent-1, in iterator detection: a loop variable, or a sum of splits fused into one."""

    source: Var | IterSum
    extent: Expr
    uses: list[Split] = field(default_factory=list)


@dataclass(frozen=True)
class Split:
    """A part of a loop's value in iterator detection: `(mark // lower) % extent * scale`."""

    mark: Mark
    lower: Expr
    extent: Expr
    scale: Expr


@dataclass(frozen=True)
class IterSum:
    """A sum of splits and a base; the split of the largest scale is first."""

    splits: tuple[Split, ...]
    base: Expr


@dataclass(frozen=True)
class IterMap:
    """The result of iterator detection: independent bindings, where binding k runs within starts[k] .. starts[k] + extents[k] - 1."""

    sums: tuple[IterSum, ...]
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    injective: bool
    surjective: bool

    @property
    def bijective(self) -> bool:
        """True if each point of the box of extents is exactly one loop iteration."""
        return self.injective and self.surjective


class _NotAffine(Exception):
    """Raised if a binding is not quasi-affine in the loop variables; the message is the reason."""


def linear(e: Expr, over: Sequence[Var]) -> tuple[dict[Var, Expr], Expr] | None:
    """(coefficients, constant) with e = sum of coefficient * variable + constant modulo 2^bits, neither containing `over`; else None."""
    coefficients: dict[Var, Poly] = {}
    rest: Poly = {}
    variables = set(over)
    for m, c in poly_of(e).items():
        inside = [a for a in m if not free_vars(a).isdisjoint(variables)]
        if not inside:
            rest = add(rest, {m: c})
        elif len(inside) == 1 and isinstance(inside[0], Var):
            others = tuple(a for a in m if a is not inside[0])
            coefficients[inside[0]] = add(coefficients.get(inside[0], {}), {others: c})
        else:
            return None
    return {v: to_expr(p, e.dtype) for v, p in coefficients.items()}, to_expr(rest, e.dtype)


def detect_iter_map(
    bindings: Sequence[Expr], loops: Mapping[Var, Expr], predicate: Expr | None = None, facts: Facts = EMPTY
) -> IterMap | Refusal:
    """The bindings as independent maps of loops from 0 to their extents, where the predicate holds; or a refusal with the reason."""
    alone = _alone(bindings, loops, facts) if predicate in (None, TRUE) else set()
    for var, extent in loops.items():
        if var not in alone:
            facts = facts.with_loop(var, extent)
    facts = _with_divisors(bindings, loops, facts)
    try:
        return _Detector(loops, predicate, facts, alone).detect(bindings)
    except _NotAffine as failure:
        return Refusal(str(failure))


def _with_divisors(bindings: Sequence[Expr], loops: Mapping[Var, Expr], facts: Facts) -> Facts:
    """Adds that divisors are positive: a loop over d * q runs only if neither is 0."""
    for d in dict.fromkeys(n.args[1] for e in bindings for n in walk(e) if type(n) in (FloorDiv, FloorMod)):
        zero = Const(0, d.dtype)
        if isinstance(d, Const) or not free_vars(d).isdisjoint(loops) or prove(Lt(zero, d), facts) or not prove(Le(zero, d), facts):
            continue
        if any(exact_quotient(simplify(extent, facts), d, facts) is not None for extent in loops.values()):
            facts = facts.with_condition(Lt(zero, d))
    return facts


def exact_quotient(a: Expr, b: Expr, facts: Facts) -> Expr | None:
    """The q with a = b * q as integers, if it is a polynomial; else None."""
    p, d = poly_of(a), poly_of(b)
    q = quotient(p, d) if exact(p, a.dtype, facts) and exact(d, b.dtype, facts) else None
    return None if q is None else to_expr(q, a.dtype)


def _alone(bindings: Sequence[Expr], loops: Mapping[Var, Expr], facts: Facts) -> set[Var]:
    """The loops that are a binding by themselves, in no other one, and whose extents share no variables with the others.

    This is the common, cheap case.
    """
    used = [free_vars(e) for e in bindings]
    candidates = {e for e in bindings if isinstance(e, Var) and e in loops and sum(e in u for u in used) == 1}
    candidates = {v for v in candidates if int_range(loops[v], facts)[1] > 1}  # a variable that can only be 0 is simplified away
    others = {*loops, *(v for x, extent in loops.items() if x not in candidates for v in free_vars(extent))}
    return {v for v in candidates if free_vars(loops[v]).isdisjoint(others)}


class _Detector:
    """Converts bindings of iterators to sums of splits of loop variables, and checks how they use the loops."""

    def __init__(self, loops: Mapping[Var, Expr], predicate: Expr | None, facts: Facts, alone: set[Var]) -> None:
        self.facts = facts
        self.alone = alone
        self.inside = facts if predicate is None else facts.with_condition(predicate)  # the facts inside of an instance
        self.loops = {v: Mark(v, simplify(extent, facts)) for v, extent in loops.items()}
        self.fused: dict[frozenset[tuple[Mark, Expr, Expr, Expr]], Mark] = {}
        self.limits: list[tuple[IterSum, Expr]] = []  # conditions sum < limit of the predicate
        self.matched: set[int] = set()  # the limits that bound a binding
        self.unmatched = 0  # the number of conjuncts of the predicate that cut holes
        for part in conjuncts(TRUE if predicate is None else predicate):
            self._limit(part)

    def detect(self, bindings: Sequence[Expr]) -> IterMap:
        """The map of all bindings; raises `_NotAffine` if they are not independent."""
        sums = [self._atom(e) if e in self.alone else self._ordered(self._sum(simplify(e, self.facts)), str(e)) for e in bindings]
        extents = []
        for s in sums:
            extent = self._span(s)
            for end in self._limits_of(s):
                extent = simplify(Min(extent, end), self.facts)
            for split in s.splits:
                split.mark.uses.append(split)
            extents.append(extent)
        injective = self._check_uses()
        no_holes = self.unmatched == 0 and len(self.matched) == len(self.limits)
        surjective = no_holes and all(self._compact(s) for s in sums)
        return IterMap(tuple(sums), tuple(s.base for s in sums), tuple(extents), injective, surjective)

    # The predicate.

    def _limit(self, part: Expr) -> None:
        """Records a conjunct `sum < limit` whose limit has no loop variable; any other conjunct only removes points."""
        simple = simplify(part, self.facts)
        if simple is TRUE:
            return
        if type(simple) in (Lt, Le):
            left, right = simple.args
            if free_vars(right).isdisjoint(self.loops):
                limit = right if type(simple) is Lt else E.Add(right, Const(1, right.dtype))
                try:
                    s = self._ordered(self._sum(left), str(left))
                except _NotAffine:
                    self.unmatched += 1
                    return
                limit = simplify(E.Sub(limit, s.base), self.facts)
                self.limits.append((IterSum(s.splits, Const(0, limit.dtype)), limit))
                return
        self.unmatched += 1

    def _limits_of(self, s: IterSum) -> list[Expr]:
        """Returns the upper ends (exclusive) that the predicate sets for a sum of splits."""
        ends: list[Expr] = []
        for i, (limited, limit) in enumerate(self.limits):
            part = self._upper_part(s, limited)
            if part is not None:
                self.matched.add(i)
                ends.append(E.Mul(limit, part))
        return ends

    def _upper_part(self, s: IterSum, limited: IterSum) -> Expr | None:
        """The scale k if `s` is k * limited + smaller parts; else None."""
        n = len(limited.splits)
        if n == 0 or len(s.splits) < n:
            return None
        ratio: Expr | None = None
        for mine, its in zip(s.splits[:n], limited.splits, strict=True):
            if mine.mark is not its.mark or not self._same(mine.lower, its.lower) or not self._same(mine.extent, its.extent):
                return None
            k = self._quotient(mine.scale, its.scale)
            if k is None or (ratio is not None and not self._same(ratio, k)):
                return None
            ratio = k
        below = s.splits[n:]
        if below and ratio is not None and not self._at_most(self._span(IterSum(below, s.base)), ratio):
            return None
        return ratio

    # Expressions to sums.

    def _sum(self, e: Expr) -> IterSum:
        """Returns an expression as a sum of splits; raises _NotAffine if it is none."""
        if free_vars(e).isdisjoint(self.loops):
            return IterSum((), e)
        p = poly_of(e)
        if not exact(p, e.dtype, self.facts):
            raise _NotAffine(f"`{e}` may overflow {e.dtype}")
        base: Poly = {}
        scales: dict[Expr, Poly] = {}  # i * (w + 2) is expanded to i*w + i*2: collect one split of scale w + 2
        for m, c in p.items():
            inside = [a for a in m if not free_vars(a).isdisjoint(self.loops)]
            if not inside:
                base = add(base, {m: c})
            elif len(inside) > 1:
                raise _NotAffine(f"`{e}` multiplies loop variables")
            else:
                others = tuple(a for a in m if a is not inside[0])
                scales[inside[0]] = add(scales.get(inside[0], {}), {others: c})
        splits: list[Split] = []
        for atom, factor in scales.items():
            scale, part = to_expr(factor, e.dtype), self._atom(atom)
            base = add(base, poly_of(simplify(E.Mul(part.base, scale), self.facts)))
            splits += [Split(s.mark, s.lower, s.extent, simplify(E.Mul(s.scale, scale), self.facts)) for s in part.splits]
        return IterSum(tuple(splits), simplify(to_expr(base, e.dtype), self.facts))

    def _atom(self, a: Expr) -> IterSum:
        """Returns a loop variable, quotient or remainder as a sum of splits; raises _NotAffine if it is none."""
        zero, one = Const(0, a.dtype), Const(1, a.dtype)
        if isinstance(a, Var):
            mark = self.loops[a]
            return IterSum((Split(mark, one, mark.extent, one),), zero)
        if type(a) not in (FloorDiv, FloorMod):
            raise _NotAffine(f"`{a}` is not quasi-affine in the loop variables")
        x, d = a.args
        if not free_vars(d).isdisjoint(self.loops) or not prove(Lt(zero, d), self.inside):
            raise _NotAffine(f"the divisor of `{a}` is not a positive number that the loops leave alone")
        s = self._ordered(self._sum(x), str(x))
        single = len(s.splits) == 1 and self._same(s.splits[0].scale, one) and self._same(s.base, zero)
        one_split = s.splits[0] if single else self._fuse(s, x)
        above = self._quotient(one_split.extent, d)
        if above is None:
            if prove(Le(one_split.extent, d), self.inside):  # the quotient is 0, the remainder is the whole value
                return IterSum((), zero) if type(a) is FloorDiv else IterSum((one_split,), zero)
            raise _NotAffine(f"`{a}`: {d} does not divide the extent {one_split.extent} of `{x}`")
        if type(a) is FloorMod:
            return IterSum((Split(one_split.mark, one_split.lower, d, one),), zero)
        lower = simplify(E.Mul(one_split.lower, d), self.facts)
        return IterSum((Split(one_split.mark, lower, above, one),), zero)

    def _fuse(self, s: IterSum, x: Expr) -> Split:
        """Returns a sum whose splits leave no gaps as one split of a new mark; raises _NotAffine if there are gaps."""
        one = Const(1, x.dtype)
        if not self._same(s.base, Const(0, x.dtype)):
            raise _NotAffine(f"`{x}` does not start at 0")
        if not self._compact(s):
            raise _NotAffine(f"the parts of `{x}` leave gaps")
        key = frozenset((p.mark, p.lower, p.extent, p.scale) for p in s.splits)
        mark = self.fused.get(key)
        if mark is None:
            extent = self._span(s)
            for end in self._limits_of(s):
                extent = simplify(Min(extent, end), self.facts)
            mark = self.fused[key] = Mark(s, extent)
        return Split(mark, one, mark.extent, one)

    def _ordered(self, s: IterSum, shown: str) -> IterSum:
        """The sum with positive, falling scales, each at least the span of the splits below; raises `_NotAffine` if they overlap."""
        base, splits = s.base, []
        for p in s.splits:
            if prove(Le(p.scale, Const(-1, p.scale.dtype)), self.facts):  # a reversed loop: count from its other end
                top = E.Mul(E.Sub(p.extent, Const(1, p.extent.dtype)), p.scale)
                base = simplify(E.Add(base, top), self.facts)
                p = Split(p.mark, p.lower, p.extent, simplify(E.Neg(p.scale), self.facts))
            if not self._same(p.extent, Const(1, p.extent.dtype)):
                splits.append(p)
        ordered: list[Split] = []
        while splits:
            below = IterSum(tuple(reversed(ordered)), base)
            next_up = [p for p in splits if all(q is p or self._at_most(p.scale, q.scale) for q in splits)]
            fits = [p for p in next_up if self._at_most(self._span(below), p.scale)]
            if not fits:
                raise _NotAffine(f"the parts of `{shown}` overlap")
            ordered.append(fits[0])
            splits.remove(fits[0])
        return IterSum(tuple(reversed(ordered)), base)

    def _span(self, s: IterSum) -> Expr:
        """The extent of an ordered sum: its greatest value without the base, plus 1."""
        if not s.splits:
            return Const(1, s.base.dtype)
        total: Expr = Const(1, s.base.dtype)
        for p in s.splits:
            total = E.Add(total, E.Mul(E.Sub(p.extent, Const(1, p.extent.dtype)), p.scale))
        return simplify(total, self.facts)

    def _compact(self, s: IterSum) -> bool:
        """True if a sum has no gaps."""
        expected: Expr = Const(1, s.base.dtype)
        for p in reversed(s.splits):
            if not self._same(p.scale, expected):
                return False
            expected = simplify(E.Mul(p.scale, p.extent), self.facts)
        return True

    # Each part of each mark must be used once.

    def _check_uses(self) -> bool:
        """True if every part of every mark is used; raises `_NotAffine` if one is used twice."""
        injective = True
        for mark in reversed(self.fused.values()):  # a fused mark consists of older marks
            if mark.uses and isinstance(mark.source, IterSum):
                injective &= self._cover(mark)
                for p in mark.source.splits:
                    p.mark.uses.append(p)
        for mark in self.loops.values():
            injective &= self._cover(mark)
        return injective

    def _cover(self, mark: Mark) -> bool:
        """False if a part of the mark is unused; raises `_NotAffine` if one is used twice."""
        rest, complete = list(mark.uses), True
        expected: Expr = Const(1, mark.extent.dtype)
        while rest:
            first = next((p for p in rest if all(q is p or self._at_most(p.lower, q.lower) for q in rest)), None)
            if first is None or not self._at_most(expected, first.lower):
                raise _NotAffine(f"{self._show(mark)} is used twice: the bindings depend on each other")
            complete &= self._same(expected, first.lower)
            expected = simplify(E.Mul(first.lower, first.extent), self.facts)
            rest.remove(first)
        return complete and self._same(expected, mark.extent)

    def _show(self, mark: Mark) -> str:
        """Returns the name of a mark for messages."""
        return f"`{mark.source.name}`" if isinstance(mark.source, Var) else "a fused loop"

    # Arithmetic on factors.

    def _same(self, a: Expr, b: Expr) -> bool:
        """True if two factors are provably equal inside of an instance."""
        return prove_equal(a, b, self.inside)

    def _at_most(self, a: Expr, b: Expr) -> bool:
        """True if a <= b provably holds inside of an instance."""
        if prove(Le(a, b), self.inside):
            return True
        times = exact_quotient(b, a, self.inside)  # a <= a * q for a positive q
        return times is not None and all(prove(Lt(Const(0, e.dtype), e), self.inside) for e in (times, a))

    def _quotient(self, a: Expr, b: Expr) -> Expr | None:
        """Returns a / b if b is positive and divides a provably; else None."""
        positive = int_range(b, self.inside)[0] > 0
        whole = exact_quotient(a, b, self.inside) if positive or prove(Lt(Const(0, b.dtype), b), self.inside) else None
        if whole is not None:
            return simplify(whole, self.inside)
        if not positive or not prove_equal(FloorMod(a, b), Const(0, a.dtype), self.inside):
            return None
        return simplify(FloorDiv(a, b), self.inside)
