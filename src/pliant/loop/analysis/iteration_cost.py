"""Rough cost model for one iteration of a loop, as an expression of the dims; it decides the grain of parallel loops.

It counts operations, each times the extents of the loops around it. The estimate is a sum of terms `factor * extent * extent …` in
nanoseconds. A loop variable counts as the middle of its range; an extent that is loaded from memory counts as 64.

    for i in parallel(n): for k in range(m): c[i] += a[i, k]          cost: 1.3 * m
"""

from __future__ import annotations

from collections.abc import Mapping

from ...dtype import i64
from ...sym import expr as E
from ...sym.expr import Const, Expr, Var, substitute
from ...sym.function_names import PRIMITIVE_FUNCTIONS
from ...sym.walk import walk
from ..buffer import Load, has_load
from ..stmt import Block, Call, For, Func, Let, Reduce, Stmt, Store, While, children, exprs

Term = tuple[float, tuple[Expr, ...]]  # nanoseconds, and the extents to multiply them with

_GUESS = Const(64, i64)  # iterations of a loop whose bounds are data; an order of magnitude is enough for a grain
# Nanoseconds of scalar code: relative weights at a few GHz. Grains only need the right order of magnitude.
_OPERATION, _INDEX, _MEMORY, _DIVISION, _FUNCTION = 0.25, 0.05, 0.4, 2.0, 8.0


def iteration_cost(loop: For, lanes: int) -> list[Term]:
    """The cost terms of one iteration, over variables from outside of the loop; a vector register has `lanes` floats."""
    estimate = _Estimate(lanes, {loop.var: _middle(loop, {})})
    estimate.visit(loop.body, 1.0, ())
    merged: dict[tuple[Expr, ...], float] = {}
    for factor, extents in estimate.terms:
        merged[extents] = merged.get(extents, 0.0) + factor
    return [(factor, extents) for extents, factor in merged.items()]


def _middle(loop: For, known: Mapping[Var, Expr]) -> Expr:
    """Returns the middle of a loop's range as a typical value of its variable, or a guess of 64 if the bounds are read from memory."""
    start, stop = substitute(loop.start, dict(known)), substitute(loop.stop, dict(known))
    return _GUESS if has_load(start) or has_load(stop) else (start + stop) // 2


class _Estimate:
    """Adds up the estimated nanoseconds of a loop's body, as terms with the extents of its inner loops."""

    def __init__(self, lanes: int, known: dict[Var, Expr]) -> None:
        self.lanes = lanes
        self.known = known  # variable bound inside -> a typical value in terms of outer variables
        self.terms: list[Term] = []

    def visit(self, s: Stmt, factor: float, extents: tuple[Expr, ...]) -> None:
        """Adds the terms of a statement that runs `factor` times the product of `extents`."""
        own = sum(_expression(e) for e in exprs(s)) + _MEMORY * isinstance(s, (Store, Reduce))
        if own:
            self.terms.append((own * factor, extents))
        if isinstance(s, For):
            extent = substitute(s.extent, self.known)
            self.known[s.var] = _middle(s, self.known)
            if s.kind == "vector":
                factor /= self.lanes
            if isinstance(extent, Const):
                factor *= max(0, extent.value)
            else:
                extents = (*extents, _GUESS if has_load(extent) else extent)
        elif isinstance(s, While):
            factor *= _GUESS.value
        elif isinstance(s, Let):
            value = substitute(s.value, self.known)
            self.known[s.var] = _GUESS if has_load(value) and s.var.dtype is i64 else value
        elif isinstance(s, Block):
            self.known.update({i.var: substitute(i.value, self.known) for i in s.iters})
        elif isinstance(s, Call):
            self._call(s.func, s, factor, extents)
        for inner in children(s):
            self.visit(inner, factor, extents)

    def _call(self, func: Func, s: Call, factor: float, extents: tuple[Expr, ...]) -> None:
        """Adds the cost of a called loop program, with its symbols and scalars bound to the arguments."""
        scalars = (a for a in s.args if isinstance(a, Expr))
        for var, value in zip((*func.symbols, *func.scalars), (*s.dims, *scalars), strict=True):
            bound = substitute(value, self.known)
            self.known[var] = _GUESS if has_load(bound) and var.dtype is i64 else bound
        self.visit(func.body, factor, extents)


def _expression(e: Expr) -> float:
    """Returns the estimated nanoseconds of evaluating an expression in scalar code."""
    total = 0.0
    for node in walk(e):
        if isinstance(node, (Const, Var)):
            continue
        if isinstance(node, Load):
            total += _MEMORY
        elif isinstance(node, (E.Div, E.FloorDiv, E.FloorMod)):
            total += _DIVISION
        elif isinstance(node, E.Call):
            total += _DIVISION if node.payload in PRIMITIVE_FUNCTIONS else _FUNCTION
        else:
            total += _INDEX if node.dtype is i64 else _OPERATION
    return total
