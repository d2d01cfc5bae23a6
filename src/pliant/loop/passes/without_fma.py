"""Removes FMA contraction for machines without fused multiply-add: applies `sym.unfuse` to every expression, in callees too.

    y[v] = muladd(x[v], w[v], tanh(x[v]))      ->      y[v] = x[v] * w[v] + tanh(x[v], fused=False)

The program states which operations round, so the interpreter gives the same bits as native code. An explicit `fma` stays.
"""

from __future__ import annotations

from dataclasses import replace

from ...sym.expr import Expr
from ...sym.unfuse import unfuse
from ..stmt import Call, Func, Reduce, Replacer, Stmt, exprs, walk_stmts


def without_fma(func: Func, made: dict[Func, Func] | None = None) -> Func:
    """The program, and its callees, with no `muladd` and no function that needs FMA; the same object if there are none.

    `made` memoizes the functions that are done.
    """
    made = {} if made is None else made
    if func not in made:
        made[func] = func.with_(body=_Unfused(made).stmt(func.body)) if _has_fma(func, made) else func
    return made[func]


def _has_fma(func: Func, made: dict[Func, Func]) -> bool:
    """True if a program or one of its callees contains an expression that `unfuse` changes."""
    return any(
        any(unfuse(e) is not e for e in _exprs(s)) or (isinstance(s, Call) and without_fma(s.func, made) is not s.func)
        for s in walk_stmts(func.body)
    )


def _exprs(s: Stmt) -> tuple[Expr, ...]:
    """Returns the expressions of a statement, including those in the lambda of a reduction's combiner."""
    return (*exprs(s), *s.combiner.result) if isinstance(s, Reduce) else exprs(s)


class _Unfused(Replacer):
    """Replaces FMAs by products and sums (`unfuse`), in all expressions and in called functions."""

    def __init__(self, made: dict[Func, Func]) -> None:
        super().__init__()
        self.made = made

    def expr(self, e: Expr) -> Expr:
        return unfuse(e, self._memo)

    def stmt(self, s: Stmt) -> Stmt:
        s = super().stmt(s)
        if isinstance(s, Reduce) and s.combiner.result:
            return s.with_(combiner=replace(s.combiner, result=tuple(map(self.expr, s.combiner.result))))
        return s.with_(func=without_fma(s.func, self.made)) if isinstance(s, Call) else s
