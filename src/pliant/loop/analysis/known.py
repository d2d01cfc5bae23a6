"""What a walk over statements knows at a place: ranges of the loops around it, conditions that hold, and what lets stand for.

    known = Known(func.symbols)
    with known.scope():
        known.loop(s)                       # start <= var < stop
        known.condition(Lt(i, n))
        known.let(m, n // 8)
        known.proves(Lt(i * 8, m * 64))

Nothing is kept of what reads memory, because memory may change while the fact is used. Facts are made when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ...dtype import i64
from ...sym.expr import Const, Dim, Expr, Le, Var, all_of, substitute
from ...sym.facts import EMPTY, Facts
from ...sym.flat import flat_poly
from ...sym.poly import Poly, poly_of
from ...sym.prove import prove
from ..buffer import has_load
from ..stmt import For


def within(loop: For) -> Expr:
    """The condition that the variable of a loop is in its range."""
    return all_of(Le(loop.start, loop.var), Le(loop.var, loop.stop - 1))


def not_negative(symbols: Iterable[Var]) -> list[Expr]:
    """What every dim is; a `Dim` says so itself."""
    return [Le(Const(0, i64), v) for v in symbols if not isinstance(v, Dim)]


class Known:
    """Conditions that hold, in the order in which they became known, and the values of lets of whole numbers."""

    def __init__(self, symbols: Iterable[Var] = ()) -> None:
        self.conditions: list[Expr] = not_negative(symbols)
        self.lets: dict[Var, Expr] = {}  # as they are written

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Conditions that become known inside are forgotten after."""
        count = len(self.conditions)
        try:
            yield
        finally:
            del self.conditions[count:]

    def loop(self, s: For) -> None:
        """Inside of a loop."""
        self.condition(within(s))

    def condition(self, e: Expr) -> None:
        """Where a condition holds."""
        if not has_load(e):
            self.conditions.append(e)

    def let(self, var: Var, value: Expr) -> None:
        """After a let."""
        if var.dtype.is_int and not has_load(value):
            self.lets[var] = value

    @contextmanager
    def supposing(self, lets: Mapping[Var, Expr]) -> Iterator[None]:
        """Inside, these lets are known as well."""
        outside = self.lets
        self.lets = {**outside, **lets} if lets else outside
        try:
            yield
        finally:
            self.lets = outside

    def facts(self) -> Facts:
        """Everything known here."""
        facts = EMPTY
        for e in self.conditions:
            facts = facts.with_condition(e)
        return facts

    def resolve(self, e: Expr) -> Expr:
        """`e` with what lets stand for."""
        while (changed := substitute(e, self.lets)) is not e:
            e = changed
        return e

    def proves(self, condition: Expr) -> bool:
        """Whether a condition certainly holds."""
        return prove(self.resolve(condition), self.facts())

    def flat(self, indices: Iterable[Expr], strides: Iterable[Expr]) -> Poly:
        """The number of an element from the start of its buffer."""
        return flat_poly(indices, strides, lambda e: poly_of(self.resolve(e)))
