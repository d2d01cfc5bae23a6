"""Which variables must agree where two places are one place?

    y[i * 4 + j] and y[i' * 4 + j'], with j and j' in 0..4         i = i', then j = j'
    y[v // n, v % n] and y[v' // n, v' % n]                        the digits agree, so v = v'
    y[i + n] and y[i'], with i and i' in 0..n                      never one place

Both places are over variables of their own; `twins` has the second place's variable for each one of the first. What is learned is
that terms `c * a + rest` and `c * a' + rest'` are equal only where `a = a'`, because the rests differ by less than `c`; that a number
is known by its digits; and what can be proved outright.
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
    """The unknown variables that may differ from their twins where `first`, over the variables, is `second`, over the twins.

    The answer is empty where all of them agree, and where the two can never be one place.
    """
    return _Learner(unknown, twins, facts).run(first, second)


class _Learner:
    def __init__(self, unknown: Iterable[Var], twins: Mapping[Var, Expr], facts: Facts) -> None:
        self.unknown = set(unknown)
        self.twins = dict(twins)
        self.facts = facts
        self.same: dict[Expr, None] = {}  # parts of the first place that agree with their twins

    def run(self, first: Sequence[Expr], second: Sequence[Expr]) -> set[Var]:
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
                pairs.append((x, self._twin(x)))  # a sum tells of its terms
                progress = True
        for v in list(self.unknown):
            if prove_equal(v, self.twins[v], self.facts):
                self.unknown.discard(v)
        return self.unknown

    def _twin(self, e: Expr) -> Expr:
        return simplify(substitute(e, self.twins), self.facts)

    def _difference(self, a: Expr, b: Expr) -> Poly:
        """The difference of two equal indices, with twins of factors that are known to agree written as one; 0 where it may wrap."""
        d = add(poly_of(a), poly_of(b), -1)
        for x in self.same:
            d = replace(d, self._twin(x), {(x,): 1})
        return d if exact(d, i64, self.facts) else {}

    def _never(self, a: Expr, b: Expr) -> bool:
        d = self._difference(a, b)
        if not d:
            return False
        e = to_expr(d, i64)
        return prove(Lt(_ZERO, e), self.facts) or prove(Lt(e, _ZERO), self.facts)

    def _learn(self, a: Expr, b: Expr) -> bool:
        """Takes what one pair of equal indices tells; whether that was anything."""
        d = self._difference(a, b)
        for x in dict.fromkeys(x for m in d for x in m):
            if x in self.same or free_vars(x).isdisjoint(self.unknown):
                continue
            if self._agrees(d, x, self._twin(x)):
                self._note(x)
                return True
        return False

    def _note(self, x: Expr) -> None:
        self.same[x] = None
        if isinstance(x, Var):
            self.unknown.discard(x)

    def _agrees(self, d: Poly, x: Expr, twin: Expr) -> bool:
        """Whether 0 = c * (x - twin) + rest, with a rest smaller than c, is what `d` says."""
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
        """Numbers whose digits are known to agree: `x // b` with `x % b`, and `x // (b * c)` with `x // b % c`."""
        found: list[Expr] = []
        for low in self.same:
            if not isinstance(low, FloorMod) or not prove(Lt(_ZERO, low.args[1]), self.facts):
                continue
            x, base = low.args
            ways = [(x, base), *([(x.args[0], product((x.args[1], base)))] if isinstance(x, FloorDiv) else [])]
            for high in self.same:
                if isinstance(high, FloorDiv) and any(high.args[0] is y and prove_equal(high.args[1], b, self.facts) for y, b in ways):
                    found.append(x)
        return found


def _coefficient(d: Poly, x: Expr) -> Poly | None:
    """What `x` is multiplied with, if it is a factor once."""
    found: Poly = {}
    for m, k in d.items():
        if x in m:
            if m.count(x) > 1:
                return None
            found[tuple(a for a in m if a is not x)] = k
    return found or None


def _negative(p: Poly | None) -> Poly | None:
    return None if p is None else scale(p, -1)
