"""Prover for polynomial inequalities: searches a proof of p >= 0 as a sum of known inequalities.

To show p >= 0, a term of p is cancelled with a known inequality h >= 0 that has this term with the same sign: p = p' + k * r * h with k >
0 and r a product of atoms that is not negative; then p' >= 0 is sufficient. Known inequalities are those of the facts (`i <= n - 1`) and
the definitions of atoms (`4 * (x // 4) <= x`). If nothing cancels any more, the ranges of the atoms decide, and `min`, `max` and `select`
are split into cases. True is a proof; False only says that none was found.

    i*m + j < n*m  when i < n, j < m:   n*m - i*m - j - 1  ->  n*m - i*m - m  ->  0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import combinations
from math import gcd

from . import expr as E
from .bounds import exact, int_range, multiple, poly_interval
from .expr import Expr
from .facts import Facts
from .poly import Mono, Poly, add, atoms, constant, mono_order, multiply, poly_of, quotient, replace, scale, without
from .refute import refuted

# Limits of the search, to bound compile time.
STEPS = 80  # polynomials tried in one proof, over all of its cases
SPLITS = 3  # nested case splits
REMAINDERS = 8  # remainders that are expanded in one polynomial


def nonneg(p: Poly, facts: Facts) -> bool:
    """True if `p`, as an integer, is proved to be at least 0 for all values that the facts allow."""
    if poly_interval(p, facts)[0] >= 0:
        return True
    key = frozenset(p.items())
    cache = facts.cache("prove")
    proved: bool | None = cache.get(key)
    if proved is None:
        cache.put(key, False)  # a proof must not use its own claim
        proved = cache.put(key, not refuted(p, facts) and _proven(p, facts))
    return proved


def _proven(p: Poly, facts: Facts) -> bool:
    """Returns True if one of the proof methods shows p >= 0; cheap ones are tried first."""
    # Proofs needed inside of a case split get fewer splits of their own; otherwise the number of cases would explode.
    most = SPLITS if facts.cases < 2 else 2
    if _with_cases(p, facts, most, [STEPS]) or _by_ends(p, facts):
        return True
    return facts.effort > 0 and (_without_quotient(p, facts) or _shortest_first(p, facts))


def _with_cases(p: Poly, facts: Facts, most: int, left: list[int]) -> bool:
    """Searches for a proof, with case splits if it finds none; `left` are the steps that remain."""
    half = [left[0] // 2]  # a fruitless search leaves half of the steps for the others
    left[0] -= half[0]
    if _Search(facts, half, p).prove(p) or _scaled(p, facts, left):
        return True
    left[0] += half[0]
    if facts.cases >= most or left[0] <= 0:
        return False
    for atom in atoms(p):
        if type(atom) in (E.Min, E.Max, E.Select):
            return all(_with_cases(replace(p, atom, value), under(), most, left) for value, under in _cases(atom, facts))
    return False


def _scaled(p: Poly, facts: Facts, left: list[int]) -> bool:
    """Multiplies p by the divisor d > 0 of an x // d in it: p >= 0 exactly if d*p + d - 1 >= 0, where d * (x // d) can cancel."""
    for atom in atoms(p):
        if type(atom) is E.FloorDiv and int_range(atom.args[1], facts)[0] > 0:
            flat = _flat_quotient(atom, facts)
            if flat is not None and _scaled(replace(p, atom, {(flat,): 1}), facts, left):
                return True
            d = _integer(atom.args[1], facts)
            q = add(multiply(p, d), add(d, constant(-1)))
            # First without rounding to a multiple: the rounded form may need more than the definition of the quotient gives.
            if poly_interval(q, facts)[0] >= 0 or _Search(facts, left, q).cancel(q) or _Search(facts, left, q).prove(q):
                return True
    return False


def _without_quotient(p: Poly, facts: Facts) -> bool:
    """Removes a quotient with d > 0: x // d <= r exactly if x < d * (r + 1), and x // d >= r exactly if x >= d * r.

    Both are equivalences, so only the first quotient is tried.
    """
    for m, c in p.items():
        atom = m[0] if len(m) == 1 and abs(c) == 1 else None
        if type(atom) is not E.FloorDiv or int_range(atom.args[1], facts)[0] <= 0 or sum(atom in n for n in p) > 1:
            continue
        x, d = (_integer(a, facts) for a in atom.args)
        others = {n: k for n, k in p.items() if n is not m}
        q = add(multiply(others, d), x, c)
        return nonneg(q if c > 0 else add(q, add(d, constant(-1))), facts)
    return False


def _by_ends(p: Poly, facts: Facts) -> bool:
    """With v >= min(a, b) and c > 0: c*v + r is never negative if neither c*a + r nor c*b + r is. Likewise for v <= max(a, b) and c < 0."""
    for m, c in p.items():
        if len(m) != 1 or sum(m[0] in n for n in p) > 1:
            continue
        least, most = facts.ends.get(m[0], (None, None))
        end, kind = (least, E.Min) if c > 0 else (most, E.Max)
        if type(end) is kind:
            return all(nonneg(replace(p, m[0], _integer(arm, facts)), facts) for arm in end.args)
    return False


def _flat_quotient(e: Expr, facts: Facts) -> Expr | None:
    """x // (a * b) for x // a // b, if both divisors are positive and their product does not wrap; else None."""
    x, b = e.args
    if type(x) is not E.FloorDiv or int_range(x.args[1], facts)[0] <= 0:
        return None
    d = E.Mul(x.args[1], b)
    return E.FloorDiv(x.args[0], d) if exact(poly_of(d), d.dtype, facts) else None


def _cases(atom: Expr, facts: Facts) -> list[tuple[Poly, Callable[[], Facts]]]:
    """The values that an atom may have, each with the facts of that case (built on demand, because the first case often fails)."""
    if type(atom) is E.Select:
        c, a, b = atom.args
        arms = [(a, c), (b, E.Not(c))]
    else:
        a, b = atom.args
        first, second = (a, b) if type(atom) is E.Min else (b, a)
        arms = [(first, E.Le(a, b)), (second, E.Le(b, a))]
    return [(_integer(value, facts), partial(facts.with_case, condition)) for value, condition in arms]


def _integer(e: Expr, facts: Facts) -> Poly:
    """A polynomial that equals `e` as an integer: that of `e`, or `e` itself as an atom if it might wrap."""
    p = poly_of(e)
    return p if exact(p, e.dtype, facts) else {(e,): 1}


def _shortest_first(p: Poly, facts: Facts) -> bool:
    """Best-first search without remainders, from the shortest polynomial reached so far: it goes less deep than `_Search`."""
    p = without_remainders(p, facts)
    search = _Search(facts, [0], p)
    waiting: list[tuple[int, int, int, Poly]] = [(0, 0, 0, p)]
    seen: set[frozenset[tuple[Mono, int]]] = set()
    for _ in range(facts.effort):
        if not waiting:
            break
        for q in search.steps(heappop(waiting)[3]):
            short = search.tighten(q)
            if poly_interval(short, facts)[0] >= 0:
                return True
            key = frozenset(short.items())
            if key not in seen:
                seen.add(key)
                heappush(waiting, (len(short), sum(map(abs, short.values())), len(seen), short))
    return False


class _Search:
    """A depth-first search for a proof of p >= 0: it cancels terms with known inequalities."""

    def __init__(self, facts: Facts, left: list[int], p: Poly) -> None:
        self.facts = facts
        self.left = left  # the steps that remain, shared by all cases of a proof
        self.degree = max((3, *map(len, p)))  # bounds the degree, because inequalities multiplied with each other would grow forever
        self.seen: set[frozenset[tuple[Mono, int]]] = set()

    def prove(self, p: Poly) -> bool:
        """True if `p` is at least 0 by ranges, or by canceling terms."""
        p = self.tighten(p)
        if poly_interval(p, self.facts)[0] >= 0:
            return True
        key = frozenset(p.items())
        if key in self.seen or self.left[0] <= 0:
            return False
        self.seen.add(key)
        self.left[0] -= 1
        return self.cancel(p)

    def cancel(self, p: Poly) -> bool:
        """Returns True if `p` >= 0 is provable by canceling one of its terms."""
        return any(self.prove(q) for q in self.steps(p))

    def steps(self, p: Poly) -> Iterator[Poly]:
        """Yields the polynomials that remain after canceling one term of `p` by a known inequality, in all ways up to a degree."""
        for m in sorted((m for m in p if m), key=mono_order, reverse=True):
            for h, part in self._known(m):
                rest = without(m, part)
                if rest is None or len(rest) + max(map(len, h)) > self.degree:
                    continue
                sign = self._sign(rest)
                if sign * p[m] * h[part] > 0:
                    yield self._cancel(p, m, h, part, rest, sign)

    def _cancel(self, p: Poly, m: Mono, h: Poly, part: Mono, rest: Mono, sign: int) -> Poly:
        """`p` (scaled) minus a multiple of `h` that cancels the term `m`."""
        return add(scale(p, abs(h[part])), multiply({rest: sign}, h), -abs(p[m]))

    def _sign(self, m: Mono) -> int:
        """1 if the product of atoms is never negative, -1 if never positive, 0 if unknown."""
        lo, hi = poly_interval({m: 1}, self.facts) if m else (1, 1)
        return 1 if lo >= 0 else -1 if hi <= 0 else 0

    def _known(self, m: Mono) -> list[tuple[Poly, Mono]]:
        """The known inequalities that contain a divisor of `m` as a term, each with that divisor."""
        used = self.facts.used
        parts: dict[Mono, None] = {(a,): None for a in m}
        if 1 < len(m) <= 4:
            for size in range(2, len(m) + 1):
                parts.update(dict.fromkeys(combinations(m, size)))
        usable = [(h, part) for part in parts for h in used.get(part, ())]
        for atom in dict.fromkeys(m):
            for h in definition(atom, self.facts):
                usable += [(h, part) for part in parts if part in h and atom in part]
        return usable

    def tighten(self, p: Poly) -> Poly:
        """Divides by the common divisor of all terms, rounding the constant down."""
        return tightened(p, self.facts)


def tightened(p: Poly, facts: Facts) -> Poly:
    """A polynomial that is at least 0 exactly where `p` is: divided by the common divisor of all terms, its constant rounded down.

    n + 7 - 8 * q >= 0, n a multiple of 4    ->    n + 4 - 8 * q >= 0
    """
    g = 0
    for m, c in p.items():
        if m:
            term = abs(c)
            for atom in m:
                term *= multiple(atom, facts)
            g = gcd(g, term)
            if g == 1:
                return p
    if g == 0:
        return p
    rest = p.get((), 0) // g * g
    p = {m: c for m, c in p.items() if m}
    if rest:
        p[()] = rest
    common = gcd(*p.values())
    return {m: c // common for m, c in p.items()} if common > 1 else p


def definition(atom: Expr, facts: Facts) -> tuple[Poly, ...]:
    """The inequalities that define an atom: a quotient, remainder, minimum or maximum."""
    kind = type(atom)
    if kind not in (E.FloorDiv, E.FloorMod, E.Min, E.Max):
        return ()
    cache = facts.cache("definition")
    inequalities: tuple[Poly, ...] | None = cache.get(atom)
    if inequalities is None:
        cache.put(atom, ())  # `exact` may need it recursively
        inequalities = cache.put(atom, tuple(_definition(atom, facts)))
    return inequalities


def _definition(atom: Expr, facts: Facts) -> list[Poly]:
    """Returns the inequalities that define a min, max, quotient or remainder, as polynomials >= 0."""
    me: Poly = {(atom,): 1}
    sides = [_integer(a, facts) for a in atom.args]
    if type(atom) is E.Min:
        return [add(s, me, -1) for s in sides]
    if type(atom) is E.Max:
        return [add(me, s, -1) for s in sides]
    a, d = sides
    least = int_range(atom.args[1], facts)[0]
    ends = _factored_ends(a, d, facts)
    # 0 <= a < d * e excludes d = 0.
    if least < 0 or (least == 0 and not (ends and int_range(atom.args[0], facts)[0] >= 0)):
        return []
    if type(atom) is E.FloorDiv:
        rest = add(a, multiply(d, me), -1)  # 0 <= a - d*q < d
        # The goal of a proof is rounded to multiples too, so what it is proved from must not be weaker.
        known = [tightened(rest, facts), tightened(add(add(d, constant(-1)), rest, -1), facts)]
        return [*known, *(add(add(e, constant(-1)), me, -1) for e in ends)]
    inequalities = [add(add(d, constant(-1)), me, -1)]
    if int_range(atom.args[0], facts)[0] >= 0:
        inequalities.append(add(a, me, -1))
    return inequalities


def _factored_ends(a: Poly, d: Poly, facts: Facts) -> list[Poly]:
    """The e in known ends a < d * e, so that a // d < e; such ends come from fusing loops over d and e.

    It also follows from d * (a // d) <= a, but only in a polynomial in which every other term has the factor d.

        f // (w + 2) + r < h + 4   when f < (h + 2) * (w + 2), r < 3
    """
    if all(not m for m in d):
        return []  # `tighten` handles constant divisors
    known = [h for m in a if m for h in facts.used.get(m, ()) if h[m] * a[m] < 0]  # h = end - 1 - a
    return [e for h in known if (e := quotient(add(add(h, a), constant(1)), d)) is not None]


def without_remainders(p: Poly, facts: Facts) -> Poly:
    """The same integer with a - d * (a // d) in place of a % d (d > 0), so that remainders and quotients of one number cancel."""
    from .simplify import simplify  # imported here: it uses this module

    for _ in range(REMAINDERS):
        remainder = next((a for a in atoms(p) if type(a) is E.FloorMod and int_range(a.args[1], facts)[0] > 0), None)
        if remainder is None:
            break
        a, d = (_integer(x, facts) for x in remainder.args)
        whole = _integer(simplify(E.FloorDiv(*remainder.args), facts), facts)
        p = replace(p, remainder, add(a, multiply(d, whole), -1))
    return p
