"""Checked mode for expressions: the `Check` statements that must pass where an expression is evaluated.

    x[i // k]   ->   check(k != 0, …); check(0 <= i // k and i // k < n, …)
    select(c, x[i], 0.0)   ->   if c: check(0 <= i and i < n, …)

The walk follows evaluation: an operand that is evaluated only under a condition is checked only under it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...dtype import i64
from ...support.source import Span
from ...sym import expr as E
from ...sym.bounds import int_range
from ...sym.expr import Const, Expr, Var, free_vars
from ...sym.facts import EMPTY, Facts
from ..buffer import Buffer, Load
from ..stmt import Check, If, Stmt, seq, zero
from .written import Track

# The help texts of the errors.
OUT_OF_RANGE = "shorten the loop, or put the access under a condition"
NEVER_WRITTEN = "store to it first, or give it a first value by an init"
DIVISION = "check the divisor before, or divide under a condition"
OVERFLOW = "compute it from smaller numbers; arithmetic that may wrap is done in unsigned types"
VALUES = 6  # the number of values that an error record has room for


class ExprChecks:
    """Builds the run-time checks of expressions; holds the state of the walk: program name, source line, known ranges, shadow memory."""

    def __init__(self, name: str, span: Span | None) -> None:
        self.name = name
        self.span = span
        self.facts: Facts = EMPTY
        self.tracks: dict[Buffer, Track] = {}

    def know(self, var: Var, value: Expr) -> None:
        """Records the range of a variable that has just been assigned a value."""
        if var.dtype.is_int:
            bounds = int_range(value, self.facts)
            if bounds != (var.dtype.min, var.dtype.max):
                self.facts = self.facts.with_range(var, *bounds)

    def all(self, found: Iterable[Expr], *, index: bool = False) -> list[Stmt]:
        """Returns the checks of several expressions that are evaluated together, each check once; `index` adds overflow checks."""
        checks: list[Stmt] = []
        seen: set[tuple[Expr, bool]] = set()
        for e in found:
            checks += self.expr(e, index, seen)
        return checks

    def expr(self, e: Expr, index: bool, done: set[tuple[Expr, bool]]) -> list[Stmt]:
        """The checks of one expression; `index` adds overflow checks, `done` are the subexpressions that are already checked here."""
        if not e.args or (e, index) in done:
            if isinstance(e, Load) and (e, index) not in done:  # of a 0-d buffer
                done.add((e, index))
                return self.access(e.buffer, (), read=True)
            return []
        done.add((e, index))
        if isinstance(e, E.Select):
            c, a, b = e.args
            checks = self.expr(c, index, done)
            then, orelse = self.expr(a, index, set(done)), self.expr(b, index, set(done))
            if then or orelse:
                checks.append(If(c, seq(*then), seq(*orelse) if orelse else None) if then else If(E.Not(c), seq(*orelse)))
            return checks
        if isinstance(e, E.And | E.Or):
            a, b = e.args
            checks = self.expr(a, index, done)
            right = self.expr(b, index, set(done))
            if right:
                checks.append(If(a if isinstance(e, E.And) else E.Not(a), seq(*right)))
            return checks
        if isinstance(e, Load):
            return self.access(e.buffer, e.indices, read=True)
        checks = [x for a in e.args for x in self.expr(a, index, done)]
        if isinstance(e, E.FloorDiv | E.FloorMod) and e.dtype.is_int:
            checks += self.divisor(e)
        if index:
            checks += self.overflow(e)
        return checks

    def divisor(self, e: Expr) -> list[Stmt]:
        """Returns the check that a divisor is not zero; none if its range excludes that."""
        a, b = e.args
        low, high = int_range(b, self.facts)
        if low > 0 or high < 0:
            return []
        message = f"`{e}` divides by zero in `{self.name}`: `{a}` is {{0}}, `{b}` is 0"
        return [self.check(E.Ne(b, Const(0, b.dtype)), message, (_wide(a),), DIVISION)]

    def overflow(self, e: Expr) -> list[Stmt]:
        """The check that a sum or product in an index does not overflow, unless ranges exclude that."""
        d = e.dtype
        if d.kind != "i" or not isinstance(e, E.Add | E.Sub | E.Neg | E.Mul):
            return []
        a, b = e.args if len(e.args) == 2 else (Const(0, d), e.args[0])
        (alo, ahi), (blo, bhi) = int_range(a, self.facts), int_range(b, self.facts)
        if isinstance(e, E.Mul):
            ends = [x * y for x in (alo, ahi) for y in (blo, bhi)]
        elif isinstance(e, E.Add):
            ends = [alo + blo, ahi + bhi]
        else:
            ends = [alo - bhi, ahi - blo]
        if d.min <= min(ends) and max(ends) <= d.max:
            return []
        message = f"the index computation `{e}` overflows {d} in `{self.name}`: its operands are {{0}} and {{1}}"
        return [self.check(_exact(e, a, b), message, (_wide(a), _wide(b)), OVERFLOW)]

    def access(self, b: Buffer, indices: tuple[Expr, ...], *, read: bool = False) -> list[Stmt]:
        """The checks of an access: its indices are valid and in bounds, and an element that is read has been written."""
        checks = self.all(indices, index=True)
        shown = f"`{b.name}[{', '.join(map(str, indices))}]`"
        for d, (i, extent) in enumerate(zip(indices, b.shape, strict=True)):
            if isinstance(i, Const) and isinstance(extent, Const) and 0 <= i.value < extent.value:
                continue
            which = f"index {d}" if len(indices) > 1 else "the index"
            free = sorted((free_vars(i) | free_vars(extent)) - {i, extent}, key=lambda v: v.name)
            named = [v for v in free if v.dtype is i64][: VALUES - 2]
            where = "".join(f", {v.name} = {{{n}}}" for n, v in enumerate(named, 2))
            message = f"{shown} is out of range in `{self.name}`: {which} is {{0}}, the extent is {{1}}{where}"
            checks.append(self.check(E.And(E.Le(zero(), i), E.Lt(i, extent)), message, (i, extent, *named), OUT_OF_RANGE))
        track = self.tracks[b]
        if read and track.shadow is not None:
            place = ", ".join(f"{{{d}}}" for d in range(min(len(indices), VALUES)))
            message = f"{shown} is read in `{self.name}` and was never written: the element is `{b.name}[{place}]`"
            checks.append(self.check(track.is_written(b, indices), message, indices, NEVER_WRITTEN))
        return checks

    def check(self, cond: Expr, message: str, values: Iterable[Expr], help_: str = "") -> Check:
        """Returns a `Check` statement at the current source line."""
        return Check(cond, message, tuple(values)[:VALUES], help_, span=self.span)


def _wide(e: Expr) -> Expr:
    """Returns `e` as i64, the type of the values in error records."""
    return e if e.dtype is i64 else E.Cast(i64, e)


def _exact(e: Expr, a: Expr, b: Expr) -> Expr:
    """The condition that `e`, computed with wraparound, equals the exact sum, difference or product of `a` and `b`."""
    d = e.dtype
    zero_ = Const(0, d)
    if isinstance(e, E.Mul):  # no overflow if dividing gives the other factor back; -1 * min is excluded, since min // -1 wraps too
        wraps = E.And(E.Eq(a, Const(-1, d)), E.Eq(b, Const(d.min, d)))
        back = E.And(E.Eq(E.FloorMod(e, a), zero_), E.Eq(E.FloorDiv(e, a), b))
        return E.Or(E.Eq(a, zero_), E.And(E.Not(wraps), back))
    differ = E.BitXor(a, b)  # negative if the signs differ
    # A sum overflows if the operands have one sign and the result has the other (a difference: if they differ, and it has that of b).
    same = E.BitNot(E.BitXor(a, e))
    return E.Lt(E.BitOr(differ if isinstance(e, E.Add) else E.BitNot(differ), same), zero_)
