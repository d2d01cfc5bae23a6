"""Expands math functions into the arithmetic that defines them; only primitive functions (abs, floor, ceil, round, trunc, sqrt) remain.

    y[v] = rsqrt(x[v])                ->      y[v] = 1.0 / sqrt(x[v])
    y[v] = sigmoid(x[v])              ->      y[v] = select(x[v] < 0.0, …, 1.0) / (1.0 + …)         (… is e^-|x|, about 25 operations)

The definitions are expressions (`sym/functions/`), the same on every machine. So a renderer needs no math library, and the interpreter
computes what native code computes, bit for bit. Common subexpressions stay shared by hash-consing, and renderers compute each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...sym.expr import Call, Expr
from ...sym.function_names import PRIMITIVE_FUNCTIONS
from ...sym.walk import fold_up
from ..stmt import Func, Reduce, Replacer, Stmt, exprs, map_children, walk_stmts


def expand_math(func: Func) -> Func:
    """The function without calls of math functions that are defined by expressions; its callees are not changed."""
    if not any(_concerned(s) for s in walk_stmts(func.body)):
        return func
    from ...sym.functions import expand  # imported here: most programs call no such function, and the definitions are ten modules

    return func.with_(body=_Expander(expand).stmt(func.body))


def _exprs(s: Stmt) -> tuple[Expr, ...]:
    """Returns the expressions of a statement, including those in the lambda of a reduction's combiner."""
    return (*exprs(s), *s.combiner.result) if isinstance(s, Reduce) else exprs(s)


def _concerned(s: Stmt) -> bool:
    """True if a statement calls a math function that is not primitive."""
    return any(map(has_function, _exprs(s)))


def has_function(e: Expr) -> bool:
    """True if `e` calls a math function that is not primitive."""
    return bool(fold_up(e, "math", lambda node, below: (type(node) is Call and node.payload not in PRIMITIVE_FUNCTIONS) or any(below)))


class _Expander(Replacer):
    """Replaces calls of math functions by their definitions."""

    def __init__(self, expand: Callable[[Expr, dict[Expr, Expr]], Expr]) -> None:
        super().__init__()
        self._expand = expand

    def expr(self, e: Expr) -> Expr:
        return self._expand(e, self._memo) if has_function(e) else e

    def stmt(self, s: Stmt) -> Stmt:
        if not _concerned(s):
            return map_children(s, self.stmt)
        s = super().stmt(s)
        if isinstance(s, Reduce) and s.combiner.result:
            return s.with_(combiner=replace(s.combiner, result=tuple(map(self.expr, s.combiner.result))))
        return s
