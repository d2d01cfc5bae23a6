"""Patterns over expressions and the rules made of them.

A pattern is written like an expression, of free pattern variables (`x`), literals (`c` matches any literal, `lit(0.0)` one of
exactly these bits) and node classes. A rule says: where the pattern matches an expression of one of its dtypes and
the condition holds, the result has the same value. Commutative nodes match in both orders.

    rule("and-self", INT, op(BitAnd, x, x), x)        # x & x -> x
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..dtype import DType, bool_
from . import expr as E
from .expr import Const, Expr
from .facts import Facts

Bindings = dict[str, Expr]
Condition = Callable[[Bindings, Facts], bool]


class Pattern:
    """A tree of node classes over pattern variables and literals."""

    __slots__ = ("args", "head", "name", "value")

    def __init__(self, head: type[Expr] | None, args: tuple[Pattern, ...] = (), name: str = "", value: Any = None) -> None:
        self.head = head  # a node class; Const for literals; None for a variable
        self.args = args
        self.name = name  # of a variable, of a literal to bind, of a function
        self.value = value  # of a literal, or how to compute one from the bindings

    def match(self, e: Expr, found: Bindings) -> Iterator[Bindings]:
        """The ways in which `e` is an instance, each as what the variables stand for."""
        if self.head is None or (self.head is Const and self.name):
            if self.head is Const and type(e) is not Const:
                return
            bound = found.get(self.name)
            if bound is None:
                yield {**found, self.name: e}
            elif bound is e:
                yield found
        elif self.head is Const:
            if type(e) is Const and (e.dtype is bool_) == isinstance(self.value, bool) and Const(self.value, e.dtype) is e:
                yield found
        elif type(e) is self.head and (self.head is not E.Call or e.payload == self.name):
            yield from self._match_args(e.args, 0, found)
            if issubclass(self.head, E.Binary) and self.head.commutative and e.args[0] is not e.args[1]:
                yield from self._match_args(e.args[::-1], 0, found)

    def _match_args(self, args: tuple[Expr, ...], i: int, found: Bindings) -> Iterator[Bindings]:
        if i == len(args):
            yield found
            return
        for more in self.args[i].match(args[i], found):
            yield from self._match_args(args, i + 1, more)

    def build(self, found: Bindings, dtype: DType) -> Expr:
        """The expression of this pattern; `dtype` is that of its literals."""
        if self.head is None:
            return found[self.name]
        if self.head is Const:
            if self.name:
                return found[self.name]
            if self.value is True or self.value is False:
                return Const(self.value, bool_)
            return Const(self.value(found) if callable(self.value) else self.value, dtype)
        args = [a.build(found, dtype) for a in self.args]
        return E.Call(self.name, *args) if self.head is E.Call else self.head(*args)  # type: ignore[arg-type]

    def variables(self) -> list[Pattern]:
        """The leaves that bind something, each name once."""
        if not self.args:
            return [self] if self.name and self.head in (None, Const) else []
        seen: dict[str, Pattern] = {}
        for a in self.args:
            for v in a.variables():
                seen.setdefault(v.name, v)
        return list(seen.values())

    def __repr__(self) -> str:
        if self.head is None or (self.head is Const and self.name):
            return self.name
        if self.head is Const:
            return "computed" if callable(self.value) else repr(self.value)
        return f"{self.name or self.head.__name__}({', '.join(map(repr, self.args))})"


def op(head: type[Expr], *args: Pattern) -> Pattern:
    """A node of a class over patterns."""
    return Pattern(head, args)


def lit(value: Any) -> Pattern:
    """A literal of this value, or in a result: of the value that this function of the bindings gives."""
    return Pattern(Const, value=value)


def call(fn: str, *args: Pattern) -> Pattern:
    """A call of a function."""
    return Pattern(E.Call, args, fn)


class Rule:
    """pattern -> result, for operands of some dtypes, when a condition holds."""

    __slots__ = ("dtypes", "name", "pattern", "result", "when")

    def __init__(self, name: str, dtypes: tuple[DType, ...], pattern: Pattern, result: Pattern, when: Condition | None = None) -> None:
        self.name = name
        self.dtypes = dtypes
        self.pattern = pattern
        self.result = result
        self.when = when

    def apply(self, e: Expr, facts: Facts) -> Expr | None:
        """What this rule makes of the node `e`, or None."""
        for found in self.pattern.match(e, {}):
            of = operand_dtype(found)
            if of in self.dtypes and (self.when is None or self.when(found, facts)):
                return self.result.build(found, of)
        return None

    def __repr__(self) -> str:
        return f"{self.name}: {self.pattern} -> {self.result}"


def operand_dtype(found: Bindings) -> DType:
    """The dtype that a rule speaks of: that of `x`; a rule without `x` is about truth values."""
    return found["x"].dtype if "x" in found else bool_
