"""Facts about variables that simplification and proofs use: ranges, divisibility, equalities, conditions.

A `Facts` is immutable; each `with_…` returns a larger one and is memoized, so entering the same scope again is free and finds its caches
filled. Ranges are inclusive; a loop `for i in range(n)` is `with_loop(i, n)`. A variable without facts has its dtype's range; a `Dim`
carries its own range and divisibility.

    >>> n, i = Dim("n"), Var("i"); f = Facts().with_loop(i, n)
    >>> f.range_of(i), f.range_of(n)
    ((0, 2147483646), (1, 2147483647))
"""

from __future__ import annotations

import functools
import threading
from math import lcm
from typing import Any

from ..dtype import DType
from ..support.memos import when_forgetting
from .expr import DIM_MAX, And, Const, Dim, Eq, Expr, FloorDiv, FloorMod, Le, Lt, Max, Min, Ne, Not, Or, Sub, Var, free_vars
from .poly import Mono, Poly, add, constant, order, poly_of
from .walk import walk

_CACHE_LIMIT = 20_000  # entries of one memo; bounds memory in long-running processes
_CHILDREN_LIMIT = 64  # nested scopes memoized in one


class Cache(dict[Any, Any]):
    """A dict for memoization that is cleared when it is full, so that memory stays bounded."""

    def put(self, key: Any, value: Any) -> Any:
        """Stores `value` under `key` and returns it."""
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[key] = value
        return value


class Facts:
    """An immutable set of facts about variables and expressions: ranges, divisibility, equalities, inequalities, conditions."""

    __slots__ = (
        *("caches", "cases", "changed", "children", "effort", "ends", "equal"),
        *("inequalities", "known", "multiples", "products", "ranges", "used"),
    )

    def __init__(self) -> None:
        self.ranges: dict[Expr, tuple[int, int]] = {}  # atom -> constant range
        self.products: dict[Mono, tuple[int, int]] = {}  # product of atoms -> constant range, if narrower than the atoms' ranges give
        self.ends: dict[Expr, tuple[Expr | None, Expr | None]] = {}  # variable -> its range as declared
        self.multiples: dict[Expr, int] = {}  # variable -> a divisor of it
        self.equal: dict[Expr, Expr] = {}  # simplified node -> its replacement
        self.inequalities: tuple[Poly, ...] = ()  # each >= 0 as integers
        self.known: dict[Expr, bool] = {}  # simplified condition -> its truth
        self.used: dict[Mono, tuple[Poly, ...]] = {}  # monomial -> the inequalities that contain it
        self.changed: set[Expr] | None = set()  # variables of atoms narrowed since the last propagation; None: any may have changed
        self.cases = 0  # the number of case splits around these facts, in a proof
        self.effort = 0  # extra search steps for proofs that the usual methods do not find
        self.children: dict[Any, Facts] = {}
        self.caches: dict[str, Cache] = {}

    def cache(self, name: str) -> Cache:
        """Returns the memo of the analysis `name` under these facts; it is created at the first use."""
        memo = self.caches.get(name)
        if memo is None:
            memo = self.caches[name] = Cache()
        return memo

    def forget(self) -> None:
        """Drops the memos of these facts and of all facts derived from them."""
        self.children.clear()
        self.caches.clear()

    def range_of(self, atom: Expr) -> tuple[int, int]:
        """The constant range of an atom: the one recorded so far, else that of its dim or dtype; the atom's operands are not analyzed."""
        declared = self.ranges.get(atom)
        if declared is None:
            return (atom.min, atom.max) if isinstance(atom, Dim) else _whole(atom.dtype)
        return declared

    def multiple_of(self, var: Expr) -> int:
        """Returns a number that is known to divide the variable; 1 if nothing is known."""
        return lcm(self.multiples.get(var, 1), var.multiple_of if isinstance(var, Dim) else 1)

    def with_range(self, var: Expr, lo: Expr | int | None, hi: Expr | int | None) -> Facts:
        """Returns these facts with `lo <= var <= hi` added (both ends included; None leaves an end open)."""
        extended = self.children.get(("range", var, lo, hi))
        if extended is None:
            extended = self._copy()
            least, most = _end(lo, var), _end(hi, var)
            if least is not None:
                extended._add_order(least, var, 0)
            if most is not None:
                extended._add_order(var, most, 0)
            extended.ends[var] = (least, most)
            extended = self._remember(("range", var, lo, hi), extended)
        return extended

    def with_loop(self, var: Expr, extent: Expr | int, start: Expr | int = 0) -> Facts:
        """Returns these facts with `start <= var < start + extent` added."""
        end = extent + start - 1 if isinstance(extent, int) and isinstance(start, int) else None
        if end is None:
            size = extent if isinstance(extent, Expr) else Const(extent, var.dtype)
            return self.with_range(var, start, size + start - 1)
        return self.with_range(var, start, end)

    def with_multiple(self, var: Expr, k: int) -> Facts:
        """Returns these facts with the fact that `k` divides `var` added."""
        extended = self.children.get(("multiple", var, k))
        if extended is None:
            extended = self._copy()
            extended.multiples[var] = lcm(extended.multiples.get(var, 1), k)
            extended.changed = None
            extended = self._remember(("multiple", var, k), extended)
        return extended

    def with_condition(self, e: Expr) -> Facts:
        """Returns these facts with the fact that the condition `e` holds added."""
        extended = self.children.get(("condition", e))
        if extended is None:
            extended = self._copy()
            extended._add(e, True)
            extended = self._remember(("condition", e), extended)
        return extended

    def with_case(self, e: Expr) -> Facts:
        """Returns these facts with `e` added, as one case of a proof; counts the depth of case splits."""
        extended = self.children.get(("case", e))
        if extended is None:
            extended = self._copy()
            extended.cases += 1
            extended._add(e, True)
            extended = self._remember(("case", e), extended)
        return extended

    def with_equal(self, a: Expr, b: Expr) -> Facts:
        """Returns these facts with `a == b` added."""
        return self.with_condition(Eq(a, b))

    def with_no_wrap(self, e: Expr) -> Facts:
        """Returns these facts with the fact that the integer expression `e`, as a sum of products, does not leave its range added."""
        extended = self.children.get(("no wrap", e))
        if extended is None:
            from .simplify import simplify

            extended = self._copy()
            p = poly_of(simplify(e, self))
            extended._add_inequality(add(constant(e.dtype.max), p, -1))
            extended._add_inequality(add(p, constant(-e.dtype.min)))
            extended = self._remember(("no wrap", e), extended)
        return extended

    def with_definitions(self) -> Facts:
        """Returns these facts with the definitions of the quotients and remainders in them, so that facts about x % 4 are usable for x.

        Also adds that a minimum is not negative if both of its operands are provably not negative, which ranges alone may not show. Proofs
        have more to try then, and cost more: only for those that are worth it.
        """
        extended = self.children.get("definitions")
        if extended is None:
            from .bounds import exact
            from .inequality import definition, nonneg, without_remainders

            extended = self._copy()
            extended.effort = 200  # steps of the best-first search in `inequality`
            for p in self.inequalities:
                extended._add_inequality(without_remainders(p, self))
            for atom, (lo, hi) in self.ranges.items():
                if type(atom) is FloorMod:
                    remainder = without_remainders({(atom,): 1}, self)
                    extended._add_inequality(add(remainder, constant(-lo)))
                    extended._add_inequality(add(constant(hi), remainder, -1))
            seen: set[Expr] = set()
            while new := [a for p in extended.inequalities for m in p for a in m if type(a) is FloorDiv and a not in seen]:
                seen.update(new)
                for h in [h for a in dict.fromkeys(new) for h in definition(a, extended)]:
                    extended._add_inequality(without_remainders(h, extended))
            for atom in dict.fromkeys(a for p in extended.inequalities for m in p for a in m if type(a) is Min):
                lo, hi = extended.range_of(atom)
                if lo < 0 and all(exact(s, atom.dtype, extended) and nonneg(s, extended) for s in map(poly_of, _parts(atom, Min))):
                    extended._narrow_to(atom, 0, hi)
            extended = self._remember("definitions", extended)
        return extended

    # Construction: only the methods below mutate a Facts, and only before it is shared.

    def _copy(self) -> Facts:
        """Returns a mutable copy of these facts, without memos."""
        new = Facts()
        new.ranges, new.multiples, new.equal = dict(self.ranges), dict(self.multiples), dict(self.equal)
        new.ends, new.products, new.effort, new.cases = dict(self.ends), dict(self.products), self.effort, self.cases
        new.inequalities, new.known = self.inequalities, dict(self.known)
        new.used = dict(self.used)
        new.changed = None if self.changed is None or self.equal else set(self.changed)
        return new

    def _remember(self, key: Any, new: Facts) -> Facts:
        """Completes the extended facts `new` by propagation, memoizes them under `key`, and returns them."""
        new._propagate()
        new.caches.clear()  # results computed while it was incomplete
        if len(self.children) >= _CHILDREN_LIMIT:
            self.children.clear()
        self.children[key] = new
        return new

    def _add(self, e: Expr, truth: bool) -> None:
        """Adds to this mutable copy that the condition `e` has the value `truth`."""
        kind = type(e)
        if kind is Not:
            self._add(e.args[0], not truth)
        elif kind is (And if truth else Or):
            self._add(e.args[0], truth)
            self._add(e.args[1], truth)
        elif kind in (Lt, Le, Eq, Ne) and e.args[0].dtype.is_int:
            self._add_compare(e, truth)
        else:
            self._add_known(e, truth)

    def _add_known(self, e: Expr, truth: bool) -> None:
        """Adds to this mutable copy the truth of a condition that is no integer comparison, as it is."""
        from .simplify import simplify

        simple = simplify(e, self)
        if not isinstance(simple, Const):
            self.known[simple] = truth

    def _add_compare(self, e: Expr, truth: bool) -> None:
        """Adds to this mutable copy that the integer comparison `e` has the value `truth`."""
        a, b = e.args
        kind = type(e)
        if kind in (Eq, Ne):
            if (kind is Eq) == truth:
                self._add_equal(a, b)
            else:
                self._add_unequal(a, b)
        elif truth:
            self._add_order(a, b, 1 if kind is Lt else 0)
        else:
            self._add_order(b, a, 0 if kind is Lt else 1)

    def _add_order(self, a: Expr, b: Expr, gap: int) -> None:
        """Adds a + gap <= b to this mutable copy."""
        from .bounds import exact
        from .simplify import simplify

        a, b = simplify(a, self), simplify(b, self)
        below, above = _parts(a, Max), _parts(b, Min)  # max(x, y) <= b bounds both
        for x in below:
            for y in above:
                p, q = poly_of(x), poly_of(y)
                if exact(p, x.dtype, self) and exact(q, y.dtype, self):
                    self._add_inequality(add(add(q, p, -1), constant(-gap)))
                else:  # it may wrap, so it says nothing about integers; but the same comparison may occur again
                    self._add_known((Lt if gap else Le)(x, y), True)
                    self._add_known((Le if gap else Lt)(y, x), False)

    def _add_equal(self, a: Expr, b: Expr) -> None:
        """Adds a == b to this mutable copy."""
        from .simplify import simplify

        a, b = simplify(a, self), simplify(b, self)
        if a is b:
            return
        rest = simplify(Sub(a, b), self)
        self._add_order(a, b, 0)
        self._add_order(b, a, 0)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, FloorMod) and isinstance(y, Const) and y.value == 0 and isinstance(x.args[1], Const) and x.args[1].value > 0:
                self.multiples[x.args[0]] = lcm(self.multiples.get(x.args[0], 1), x.args[1].value)
                self.changed = None
        self._orient(a, b, poly_of(rest))

    def _orient(self, a: Expr, b: Expr, difference: Poly) -> None:
        """Chooses the direction of a replacement: the youngest variable that can be solved for, else a node by a literal."""
        solvable = [m[0] for m, c in difference.items() if len(m) == 1 and abs(c) == 1 and isinstance(m[0], Var)]
        for var in sorted(solvable, key=order, reverse=True):
            sign = difference[(var,)]
            others = {m: -sign * c for m, c in difference.items() if m != (var,)}
            if any(var in _nodes(atom) for m in others for atom in m):
                continue
            from .poly import to_expr

            self._keep_range(var, others)
            self.equal[var] = to_expr(others, var.dtype)
            self.changed = None
            self.caches.clear()
            return
        for x, y in ((a, b), (b, a)):
            if isinstance(y, Const) and not isinstance(x, Const):
                self.equal[x] = y
                self.changed = None
                self.caches.clear()

    def _keep_range(self, var: Expr, value: Poly) -> None:
        """Keeps the range of a variable that is replaced, as inequalities of its replacement."""
        from .bounds import exact

        if exact(value, var.dtype, self):
            lo, hi = self.range_of(var)
            self._add_inequality(add(value, constant(-lo)))
            self._add_inequality(add(constant(hi), value, -1))

    def _add_unequal(self, a: Expr, b: Expr) -> None:
        """Adds a != b to this mutable copy; also a < b or b < a, if their ranges touch in one value only."""
        from .bounds import bounds
        from .simplify import simplify

        a, b = simplify(a, self), simplify(b, self)
        self._add_known(Eq(a, b), False)
        (alo, ahi), (blo, bhi) = bounds(a, self), bounds(b, self)
        if alo is None or ahi is None or blo is None or bhi is None:
            return
        if alo == bhi:
            self._add_order(b, a, 1)
        elif ahi == blo:
            self._add_order(a, b, 1)

    def _add_inequality(self, p: Poly) -> None:
        """Adds `p >= 0` for a polynomial p to this mutable copy: narrows ranges, and keeps the inequality unless a range says it all."""
        if all(not m for m in p) or p in self.inequalities:
            return
        self.caches.clear()
        if len(p) > 2 or any(len(m) > 1 for m in p) or (len(p) == 2 and () not in p):
            self.inequalities += (p,)
            for m in p:
                if m:
                    self.used[m] = (*self.used.get(m, ()), p)
        self._narrow(p)

    def _narrow(self, p: Poly) -> bool:
        """Narrows the ranges of single atoms by the inequality p >= 0 and the ranges of its other terms; returns True if one changed."""
        from .bounds import mono_range

        changed = False
        most: dict[Mono, int] = {}  # the largest value of each term; recomputed after a change
        for m, c in p.items():
            if not m:
                continue
            if not most:
                for n, d in p.items():
                    most[n] = d * mono_range(n, self)[d > 0] if n else d
                total = sum(most.values())
            rest = total - most[m]  # c * x >= -rest
            if len(m) > 1:
                narrowed = self._narrow_product(m, c, rest)
            else:
                lo, hi = self.range_of(m[0])
                narrowed = self._narrow_to(m[0], max(lo, -(rest // c)) if c > 0 else lo, hi if c > 0 else min(hi, rest // -c))
            if narrowed:
                changed = True
                most = {}
        return changed

    def _narrow_product(self, m: Mono, c: int, rest: int) -> bool:
        """Narrows the range of a product x * y from c * x * y >= -rest; returns True if something changed.

        If that makes x * y >= 1 and neither factor is negative, both are at least 1.
        """
        from .bounds import int_range, poly_interval

        was = poly_interval({m: 1}, self)
        lo, hi = (max(was[0], -(rest // c)), was[1]) if c > 0 else (was[0], min(was[1], rest // -c))
        changed = (lo, hi) != was
        if changed:
            self.products[m] = (lo, hi)
            self._note(*m)
        if lo >= 1 and all(int_range(a, self)[0] >= 0 for a in m):
            for a in m:
                lo, hi = int_range(a, self)
                changed |= self._narrow_to(a, max(lo, 1), hi)
        return changed

    def _narrow_to(self, atom: Expr, lo: int, hi: int) -> bool:
        """Sets the range of an atom, and what the range of a quotient says about its dividend; returns True if it changed."""
        if (lo, hi) == self.range_of(atom):
            return False
        self.ranges[atom] = (lo, hi)
        self._note(atom)
        if type(atom) is FloorDiv and isinstance(atom.args[1], Const) and atom.args[1].value > 0:
            self._narrow_dividend(atom.args[0], atom.args[1].value, lo, hi)
        return True

    def _narrow_dividend(self, x: Expr, d: int, lo: int, hi: int) -> None:
        """Adds to this mutable copy what lo <= x // d <= hi says about x: d*lo <= x < d*(hi + 1)."""
        from .bounds import exact

        p = poly_of(x)
        if exact(p, x.dtype, self):
            self._narrow(add(p, constant(-d * lo)))
            self._narrow(add(constant(d * hi + d - 1), p, -1))

    def _note(self, *atoms: Expr) -> None:
        """Records that facts about expressions with these atoms may have become narrower."""
        self.caches.clear()
        if self.changed is not None:
            for atom in atoms:
                self.changed |= free_vars(atom)
            if not all(map(free_vars, atoms)):  # a load at a constant index has no variables to track
                self.changed = None

    def _propagate(self) -> None:
        """Narrows ranges by inequalities that contain a changed variable, for at most three rounds."""
        for _ in range(3):  # a fixed point is not needed: wider ranges are only less precise
            narrowed = [self._narrow(p) for p in self.inequalities if self._may_narrow(p)]
            if not any(narrowed):
                self.changed = set()
                return

    def _may_narrow(self, p: Poly) -> bool:
        """True if an inequality contains a changed variable."""
        changed = self.changed
        return changed is None or any(not changed.isdisjoint(free_vars(atom)) for m in p for atom in m)


@functools.cache
def _whole(d: DType) -> tuple[int, int]:
    """The range of an integer dtype."""
    return (d.min, d.max)


def _end(value: Expr | int | None, var: Expr) -> Expr | None:
    """An end of a range as an expression; None if it is open, or beyond the dtype's range."""
    if value is None or isinstance(value, Expr):
        return value
    return Const(value, var.dtype) if var.dtype.min <= value <= var.dtype.max else None


def _parts(e: Expr, kind: type[Expr]) -> list[Expr]:
    """Returns the operands of nested minima (or maxima, by `kind`) as a flat list."""
    return [x for a in e.args for x in _parts(a, kind)] if type(e) is kind else [e]


def _nodes(e: Expr) -> set[Expr]:
    """The nodes of an expression."""
    return set(walk(e))


class _Memos(threading.local):
    """The memos of no facts, in one thread."""

    def __init__(self) -> None:
        self.children: dict[Any, Facts] = {}
        self.caches: dict[str, Cache] = {}


class _NoFacts(Facts):
    """No facts. Their memos, and so all facts derived from them, belong to one thread.

    A proof under way leaves a placeholder for its own claim in a memo. Another thread that compiles at the same time would take it for the
    answer.
    """

    __slots__ = ("_memos",)

    def __init__(self) -> None:
        self._memos = _Memos()
        super().__init__()

    @property
    def children(self) -> dict[Any, Facts]:
        return self._memos.children

    @children.setter
    def children(self, memo: dict[Any, Facts]) -> None:
        self._memos.children = memo

    @property
    def caches(self) -> dict[str, Cache]:
        return self._memos.caches

    @caches.setter
    def caches(self, memo: dict[str, Cache]) -> None:
        self._memos.caches = memo


EMPTY: Facts = _NoFacts()
when_forgetting(EMPTY.forget)

__all__ = ["DIM_MAX", "EMPTY", "Cache", "Facts"]
