"""Dependence analysis: which variables must be equal where two accesses touch the same element?

    y[i * 4 + j] and y[i' * 4 + j'], with j and j' in 0..4         i = i', then j = j'
    y[v // n, v % n] and y[v' // n, v' % n]                        the digits agree, so v = v'
    y[i + n] and y[i'], with i and i' in 0..n                      never one place

Each access uses its own variables; `twins` maps the variables of the first to those of the second. Three arguments are used. First,
`c * a + rest` and `c * a' + rest'` are equal only if `a = a'`, when the rests differ by less than `c`. Second, a number is
determined by its quotient and remainder. Third, what the prover shows directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...dtype import i64
from ...sym.bounds import exact
from ...sym.expr import Const, Expr, FloorDiv, FloorMod, Lt, Var, free_vars, product, substitute
from ...sym.facts import Facts
from ...sym.poly import Poly, add, poly_of, replace, scale, to_expr
from ...sym.prove import prove, prove_equal
from ...sym.simplify import simplify

_ZERO = Const(0, i64)


def apart(first: Sequence[Expr], second: Sequence[Expr], unknown: Iterable[Var], twins: Mapping[Var, Expr], facts: Facts) -> set[Var]:
    """The unknown variables that may differ from their twins where the index `first` equals `second`, its twin.

    The set is empty if all of them must agree, and if the two accesses can never touch the same element.
    """
    return _Learner(unknown, twins, facts).run(first, second)


class _Learner:
    """Derives, from two accesses being the same element, which variables of the two instances must be equal, until nothing new follows."""

    def __init__(self, unknown: Iterable[Var], twins: Mapping[Var, Expr], facts: Facts) -> None:
        self.unknown = set(unknown)
        self.twins = dict(twins)
        self.facts = facts
        self.same: dict[Expr, None] = {}  # subexpressions of the first index that equal their twins

    def run(self, first: Sequence[Expr], second: Sequence[Expr]) -> set[Var]:
        """Returns the variables that are not shown to equal their twins if the indices are equal; none if the indices never are."""
        pairs = [(simplify(a, self.facts), simplify(b, self.facts)) for a, b in zip(first, second, strict=True)]
        progress = True
        while progress and self.unknown:
            progress = False
            for a, b in pairs:
                if self._never(a, b):
                    return set()
                progress |= self._learn(a, b)
            for x in [x for x in self._wholes() if x not in self.same]:
                self._note(x)
                pairs.append((x, self._twin(x)))  # if it is a sum, its terms can be separated next
                progress = True
        for v in list(self.unknown):
            if prove_equal(v, self.twins[v], self.facts):
                self.unknown.discard(v)
        return self.unknown

    def _twin(self, e: Expr) -> Expr:
        """Returns `e` with the variables of the first access replaced by those of the second."""
        return simplify(substitute(e, self.twins), self.facts)

    def _difference(self, a: Expr, b: Expr) -> Poly:
        """The difference of two equal indices, after replacing twins of parts known to agree; empty if it may wrap."""
        d = add(poly_of(a), poly_of(b), -1)
        for x in self.same:
            d = replace(d, self._twin(x), {(x,): 1})
        return d if exact(d, i64, self.facts) else {}

    def _never(self, a: Expr, b: Expr) -> bool:
        """True if the two indices provably differ."""
        d = self._difference(a, b)
        if not d:
            return False
        e = to_expr(d, i64)
        return prove(Lt(_ZERO, e), self.facts) or prove(Lt(e, _ZERO), self.facts)

    def _learn(self, a: Expr, b: Expr) -> bool:
        """Derives one equality from a pair of equal indices; returns False if nothing new follows."""
        d = self._difference(a, b)
        for x in dict.fromkeys(x for m in d for x in m):
            if x in self.same or free_vars(x).isdisjoint(self.unknown):
                continue
            if self._agrees(d, x, self._twin(x)):
                self._note(x)
                return True
        return False

    def _note(self, x: Expr) -> None:
        """Records that the expression `x` has the same value in both instances."""
        self.same[x] = None
        if isinstance(x, Var):
            self.unknown.discard(x)

    def _agrees(self, d: Poly, x: Expr, twin: Expr) -> bool:
        """True if `d = 0` means 0 = c * (x - twin) + rest with |rest| < c, so that x = twin."""
        c = _coefficient(d, x)
        if c is None or c != _negative(_coefficient(d, twin)):
            return False
        rest = {m: k for m, k in d.items() if x not in m and twin not in m}
        size = to_expr(c, i64)
        if not prove(Lt(_ZERO, size), self.facts):
            size, rest = to_expr(scale(c, -1), i64), scale(rest, -1)
            if not prove(Lt(_ZERO, size), self.facts):
                return False
        if not rest:
            return True
        e = to_expr(rest, i64)
        return prove(Lt(e, size), self.facts) and prove(Lt(_ZERO - size, e), self.facts)

    def _wholes(self) -> list[Expr]:
        """The numbers whose digits agree: from `x // b` with `x % b`, and from `x // (b * c)` with `x // b % c`."""
        numbers: list[Expr] = []
        for low in self.same:
            if not isinstance(low, FloorMod) or not prove(Lt(_ZERO, low.args[1]), self.facts):
                continue
            x, base = low.args
            ways = [(x, base), *([(x.args[0], product((x.args[1], base)))] if isinstance(x, FloorDiv) else [])]
            for high in self.same:
                if isinstance(high, FloorDiv) and any(high.args[0] is y and prove_equal(high.args[1], b, self.facts) for y, b in ways):
                    numbers.append(x)
        return numbers


def _coefficient(d: Poly, x: Expr) -> Poly | None:
    """The coefficient of `x` in `d`, or None if `x` does not occur or occurs as a power."""
    coefficient: Poly = {}
    for m, k in d.items():
        if x in m:
            if m.count(x) > 1:
                return None
            coefficient[tuple(a for a in m if a is not x)] = k
    return coefficient or None


def _negative(p: Poly | None) -> Poly | None:
    """The negated polynomial; None stays None."""
    return None if p is None else scale(p, -1)
