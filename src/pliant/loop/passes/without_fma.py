"""Loop programs for machines without fused multiply-add: every expression as `sym.unfuse` has it, in callees too.

    y[v] = muladd(x[v], w[v], tanh(x[v]))      ->      y[v] = x[v] * w[v] + tanh(x[v], fused=False)

What is computed stands in the program, so the interpreter gives the bits of native code. An `fma` stays one.
"""

from __future__ import annotations

from dataclasses import replace

from ...sym.expr import Expr
from ...sym.unfuse import unfuse
from ..stmt import Call, Func, Reduce, Replacer, Stmt, exprs, walk_stmts


def without_fma(func: Func, made: dict[Func, Func] | None = None) -> Func:
    """The program with no `muladd` and no function that needs an fma; the same object when there are none. `made`: what is known."""
    made = {} if made is None else made
    if func not in made:
        made[func] = func.with_(body=_Unfused(made).stmt(func.body)) if _has_fma(func, made) else func
    return made[func]


def _has_fma(func: Func, made: dict[Func, Func]) -> bool:
    """Whether a program, or one that it calls, computes something that has another form."""
    return any(
        any(unfuse(e) is not e for e in _exprs(s)) or (isinstance(s, Call) and without_fma(s.func, made) is not s.func)
        for s in walk_stmts(func.body)
    )


def _exprs(s: Stmt) -> tuple[Expr, ...]:
    return (*exprs(s), *s.combiner.result) if isinstance(s, Reduce) else exprs(s)


class _Unfused(Replacer):
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
