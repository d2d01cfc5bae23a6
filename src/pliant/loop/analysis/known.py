"""Facts that hold during a walk over statements: ranges of the surrounding loops, conditions, and values of lets.

    known = Known(func.symbols)
    with known.scope():
        known.loop(s)                       # start <= var < stop
        known.condition(Lt(i, n))
        known.let(m, n // 8)
        known.proves(Lt(i * 8, m * 64))

Conditions and values that read memory are dropped, because a store may change them while the fact is in use. `Facts` are only built
when a proof asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from ...dtype import i64
from ...sym.conditions import all_of
from ...sym.expr import Const, Dim, Expr, Le, Not, Var, substitute
from ...sym.facts import EMPTY, Facts
from ...sym.flat import flat_poly
from ...sym.poly import Poly, poly_of
from ...sym.prove import prove
from ..buffer import has_load
from ..stmt import For, If, Stmt, While, map_children


def within(loop: For) -> Expr:
    """Returns the condition start <= variable <= stop - 1 of a loop."""
    return all_of(Le(loop.start, loop.var), Le(loop.var, loop.stop - 1))


def not_negative(symbols: Iterable[Var]) -> list[Expr]:
    """The conditions that symbols are not negative; a `Dim` carries its range itself."""
    return [Le(Const(0, i64), v) for v in symbols if not isinstance(v, Dim)]


class Known:
    """The conditions and integer lets that hold at the current statement of a walk over a program."""

    def __init__(self, symbols: Iterable[Var] = ()) -> None:
        self.conditions: list[Expr] = not_negative(symbols)
        self.lets: dict[Var, Expr] = {}  # not resolved: values may use other lets

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Context manager: conditions that are added inside of it are dropped at its end."""
        count = len(self.conditions)
        try:
            yield
        finally:
            del self.conditions[count:]

    def loop(self, s: For) -> None:
        """Adds the condition that a loop's variable is in its range."""
        self.condition(within(s))

    def condition(self, e: Expr) -> None:
        """Adds a condition that holds from here on; a condition that reads memory is ignored, because memory may change."""
        if not has_load(e):
            self.conditions.append(e)

    def let(self, var: Var, value: Expr) -> None:
        """Records the value of an integer let; a value that reads memory is ignored."""
        if var.dtype.is_int and not has_load(value):
            self.lets[var] = value

    def map_inner(self, s: For | If | While, f: Callable[[Stmt], Stmt]) -> Stmt:
        """`s` with `f` applied to the statements directly inside, each with the facts that hold there; `s` itself if nothing changed."""
        if isinstance(s, If):
            then = self._under(s.cond, s.then, f)
            orelse = None if s.orelse is None else self._under(Not(s.cond), s.orelse, f)
            return s if then is s.then and orelse is s.orelse else s.with_(then=then, orelse=orelse)
        with self.scope():
            if isinstance(s, For):
                self.loop(s)
            return map_children(s, f)

    def _under(self, condition: Expr, s: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
        """Returns `f(s)`, called while `condition` is known to hold."""
        with self.scope():
            self.condition(condition)
            return f(s)

    @contextmanager
    def supposing(self, lets: Mapping[Var, Expr]) -> Iterator[None]:
        """Context manager: these lets are known inside of it."""
        outside = self.lets
        self.lets = {**outside, **lets} if lets else outside
        try:
            yield
        finally:
            self.lets = outside

    def facts(self) -> Facts:
        """Returns the known conditions as a `Facts` object for the prover."""
        facts = EMPTY
        for e in self.conditions:
            facts = facts.with_condition(e)
        return facts

    def resolve(self, e: Expr) -> Expr:
        """`e` with lets replaced by their values, at all depths."""
        while (changed := substitute(e, self.lets)) is not e:
            e = changed
        return e

    def proves(self, condition: Expr) -> bool:
        """True if a condition provably holds."""
        return prove(self.resolve(condition), self.facts())

    def flat(self, indices: Iterable[Expr], strides: Iterable[Expr]) -> Poly:
        """Returns the flat element index of an access as a polynomial, with lets resolved."""
        return flat_poly(indices, strides, lambda e: poly_of(self.resolve(e)))
