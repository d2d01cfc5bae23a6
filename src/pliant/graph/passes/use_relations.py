"""Replaces dims that are declared equal to an expression of others, `dim("n", eq=2 * m)`: one dim less, and nothing left to prove.

    def f(x: Tensor[f32, n], y: Tensor[f32, m])      ->      def f(x: Tensor[f32, 2 * m], y: Tensor[f32, m])

The shape of the argument is then checked against the expression. What the contract of the replaced dim says (range, divisibility) is
kept as a relation. Orders, `dim("m", le=n)`, stay relations of the function; `lower.ops.relations_to_calls` hands them to loop programs.
"""

from __future__ import annotations

from ...sym.expr import DIM_MAX, Const, Dim, Eq, Expr, FloorMod, Le, Var, const, free_vars
from ..annotation import decide
from ..node import Function, relation, relations
from ..rewrite import Renamer


def use_relations(function: Function) -> Function:
    """Substitutes dims by the expressions that they are declared equal to; returns the same object if there are none."""
    while (equality := next((e for r in relations(function) if (e := _solved(r.cond)) is not None), None)) is not None:
        dim, value = equality
        renamed = Renamer(dims={dim: value}).function(function)
        kept = [relation(c) for c in _contract(dim, value) if not decide(c)]
        function = renamed.with_(attrs={**renamed.attrs, "relations": (*relations(renamed), *kept)})
    return function


def _solved(condition: Expr) -> tuple[Var, Expr] | None:
    """The dim and its value if a relation is an equality with a dim on one side; the younger one if there are two."""
    if not isinstance(condition, Eq):
        return None
    sides = [(v, e) for v, e in (condition.args, condition.args[::-1]) if isinstance(v, Var) and v not in free_vars(e)]
    return max(sides, key=lambda side: side[0].payload[1], default=None)


def _contract(dim: Var, value: Expr) -> list[Expr]:
    """The conditions that the contract of a dim puts on the expression in its place."""
    if not isinstance(dim, Dim) or isinstance(value, Const):
        return []  # a number was checked against the contract where it was bound
    most = [Le(value, const(dim.max))] if dim.max != DIM_MAX else []  # a shape such as (2 * m,) is not limited to that either
    return [Le(const(dim.min), value), *most, Eq(FloorMod(value, const(dim.multiple_of)), const(0))]
