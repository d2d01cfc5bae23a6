"""Computes f16 and bf16 arithmetic in f32 and rounds each result, as the language defines it (`sym/expr.py`).

    y[i] = x[i] * x[i]        # f16        ->      y[i] = cast(f16, cast(f32, x[i]) * cast(f32, x[i]))
    y[i] = -x[i]                           ->      y[i] = bitcast(f16, bitcast(u16, x[i]) ^ 0x8000)

Afterwards half floats are only loaded, stored, selected, cast and bitcast, so a renderer needs no half arithmetic: to it they are 16
bits. Reductions are expanded before, except those inside of tensor instructions.
"""

from __future__ import annotations

from ...dtype import bf16, f16, f32, u16
from ...sym import expr as E
from ...sym.expr import Bitcast, Cast, Const, Expr
from ...sym.walk import fold_up, rewrite
from ..stmt import Func, Replacer, Stmt, is_instruction

HALVES = (f16, bf16)
_COMPUTED = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max, E.Fma, E.Call, E.Compare)  # operations that are computed in f32
_SIGN = Const(0x8000, u16)  # negation flips the sign bit, which is exact for every value and keeps a NaN as it is


def widen_halves(func: Func) -> Func:
    """Returns the function with all arithmetic on f16 and bf16 done in f32, each result rounded back.

    Tensor instructions are not changed.
    """
    return func.with_body(_Widened().stmt(func.body))


class _Widened(Replacer):
    """Rewrites arithmetic on half floats to f32, except inside of tensor instructions."""

    def expr(self, e: Expr) -> Expr:
        return widened(e, self._memo)

    def stmt(self, s: Stmt) -> Stmt:
        return s if is_instruction(s) else Replacer.stmt(self, s)


def widened(e: Expr, memo: dict[Expr, Expr] | None = None) -> Expr:
    """Returns `e` with its arithmetic on half floats done in f32, and each result but those of comparisons rounded back.

    A negation flips the sign bit. `memo` may be shared between calls.
    """
    memo = {} if memo is None else memo

    def leaf(node: Expr) -> Expr | None:
        if not has_halves(node):
            return node
        if not isinstance(node, (*_COMPUTED, E.Neg)) or node.args[0].dtype not in HALVES:
            return None
        args = [rewrite(a, leaf, memo) for a in node.args]
        if isinstance(node, E.Neg):
            return Bitcast(node.dtype, E.BitXor(Bitcast(u16, args[0]), _SIGN))
        wide = tuple(Const(a.value, f32) if isinstance(a, Const) else Cast(f32, a) for a in args)
        result = E.Call(node.fn, *wide) if isinstance(node, E.Call) else type(node)(*wide)
        return result if isinstance(node, E.Compare) else Cast(node.dtype, result)

    return rewrite(e, leaf, memo)


def has_halves(e: Expr) -> bool:
    """True if `e` contains a half float (memoized)."""
    return bool(fold_up(e, "halves", lambda node, below: node.dtype in HALVES or any(below)))
