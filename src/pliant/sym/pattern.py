"""Pattern matching on expressions, and rewrite rules made of patterns.

A pattern is written like an expression, of pattern variables (`x`), literals (`c` matches any literal, `lit(0.0)` exactly these bits) and
node classes. A rule says: where the pattern matches an expression of one of its dtypes and the condition holds, the result has the same
value. Commutative nodes match in both orders.

    rule("and-self", INT, op(BitAnd, x, x), x)        # x & x -> x
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..dtype import DType, bool_
from . import expr as E
from .expr import Const, Expr
from .facts import Facts

Bindings = dict[str, Expr]  # pattern variable -> the expression that it matched
Condition = Callable[[Bindings, Facts], bool]


class Pattern:
    """A pattern for expressions: a tree of node classes over pattern variables and literals."""

    __slots__ = ("args", "head", "name", "value")

    def __init__(self, head: type[Expr] | None, args: tuple[Pattern, ...] = (), name: str = "", value: Any = None) -> None:
        self.head = head  # a node class; Const for a literal; None for a variable
        self.args = args
        self.name = name  # the name of a variable, of a literal to bind, or of a function
        self.value = value  # the value of a literal, or a function that computes it from the bindings

    def match(self, e: Expr, found: Bindings) -> Iterator[Bindings]:
        """Yields the ways in which `e` matches the pattern, each as a binding of the pattern variables."""
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
        """Yields the bindings with which the operands from number `i` on match their patterns."""
        if i == len(args):
            yield found
            return
        for more in self.args[i].match(args[i], found):
            yield from self._match_args(args, i + 1, more)

    def build(self, found: Bindings, dtype: DType) -> Expr:
        """The expression that this pattern builds from bindings; its literals have the dtype `dtype`."""
        if self.head is None:
            return found[self.name]
        if self.head is Const:
            if self.name:
                return found[self.name]
            if self.value is True or self.value is False:
                return Const(self.value, bool_)
            return Const(self.value(found) if callable(self.value) else self.value, dtype)
        args = [a.build(found, dtype) for a in self.args]
        return E.Call(self.name, *args) if self.head is E.Call else self.head(*args)

    def variables(self) -> list[Pattern]:
        """Returns the pattern variables, one leaf for each name."""
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
    """Returns a pattern for a node of this class whose operands match patterns."""
    return Pattern(head, args)


def lit(value: Any) -> Pattern:
    """A literal of this value; in a result also a function that computes the value from the bindings."""
    return Pattern(Const, value=value)


def call(fn: str, *args: Pattern) -> Pattern:
    """Returns a pattern for a call of the math function `fn` whose operands match patterns."""
    return Pattern(E.Call, args, fn)


class Rule:
    """A rewrite rule: pattern -> result, for operands of some dtypes, if a condition holds."""

    __slots__ = ("dtypes", "name", "pattern", "result", "when")

    def __init__(self, name: str, dtypes: tuple[DType, ...], pattern: Pattern, result: Pattern, when: Condition | None = None) -> None:
        self.name = name
        self.dtypes = dtypes
        self.pattern = pattern
        self.result = result
        self.when = when

    def apply(self, e: Expr, facts: Facts) -> Expr | None:
        """Returns the node `e` rewritten by the rule, or None if the rule does not apply."""
        for bindings in self.pattern.match(e, {}):
            dtype = operand_dtype(bindings)
            if dtype in self.dtypes and (self.when is None or self.when(bindings, facts)):
                return self.result.build(bindings, dtype)
        return None

    def __repr__(self) -> str:
        return f"{self.name}: {self.pattern} -> {self.result}"


def operand_dtype(found: Bindings) -> DType:
    """The dtype that a rule applies to: that of `x`; a rule without `x` is about bools."""
    return found["x"].dtype if "x" in found else bool_
