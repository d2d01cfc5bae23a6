"""Replaces the variables of loops of at most one iteration by their starts, and makes such loops serial.

    for i_0 in range(8):                        for i_0 in range(8):
        for i_1 in range(1):            ->          for i_1 in range(1):
            for i_2 in vector(1):                       y[i_0] = x[i_0]
                y[i_0 + i_1 + i_2] = x[i_0 + i_1 + i_2]

Schedules keep unit loops in the values of iterators, so that a program has the same form for any split factor
(`schedule/primitives/split.py`). Code does not need them: indices become as if they were absent, and LLVM removes a loop that runs once.
Blocks are lowered before.
"""

from __future__ import annotations

from ...sym.bounds import int_range
from ...sym.expr import Const, Expr, Select, Var, free_vars
from ...sym.facts import Facts
from ...sym.simplify import simplify
from ...sym.walk import walk
from ..analysis.scope_facts import base_facts
from ..buffer import Load
from ..stmt import For, Func, Replacer, Stmt, is_instruction, map_children


def settle_unit_loops(func: Func) -> Func:
    """Substitutes the start for the variable of each loop that runs at most once.

    Such a parallel loop becomes serial, and a vector loop of exactly one iteration is replaced by its body; other loops stay. Tensor
    instructions are not changed.
    """
    starts: dict[Var, Expr] = {}
    facts = base_facts(func)

    def visit(s: Stmt) -> Stmt:
        if is_instruction(s):
            return s
        if not isinstance(s, For) or not _runs_at_most_once(s, facts):
            return map_children(s, visit)
        starts[s.var] = _Settled(starts).expr(s.start)
        if s.kind == "vector" and is_unit(s):
            return visit(s.body)
        alone = s.with_(kind="serial") if s.kind == "parallel" else s  # one iteration cannot be distributed
        return map_children(alone, visit)

    body = visit(func.body)
    return func if not starts else func.with_(body=_Settled(starts).stmt(body))


def is_unit(loop: For) -> bool:
    """True if a loop provably has exactly one iteration."""
    if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
        return bool(loop.stop.value - loop.start.value == 1)
    extent = simplify(loop.extent)
    return isinstance(extent, Const) and extent.value == 1


def _runs_at_most_once(loop: For, facts: Facts) -> bool:
    """True if range analysis shows at most one iteration; bounds that are loaded are excluded, because memory may change."""
    if any(isinstance(e, (Load, Select)) for e in (*walk(loop.start), *walk(loop.stop))):
        return False
    return int_range(loop.extent, facts)[1] <= 1


class _Settled(Replacer):
    """Replaces loop variables by the starts of their loops, and simplifies the integer expressions and conditions that contain one."""

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, (Var, Load)) or e.dtype.is_float or free_vars(e).isdisjoint(self.vars):
            return Replacer._leaf(self, e)
        return simplify(e.with_args(tuple(self.expr(a) for a in e.args)))
