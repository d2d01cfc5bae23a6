"""Shorter forms of expressions for people: nested floor divisions become one.

    (((h + 1) // 2 + 1) // 2 + 1) // 2  ->  (h + 7) // 8

The value is the same unless an intermediate sum overflows, so programs keep the form that they have.
"""

from __future__ import annotations

from typing import Any

from .expr import Add, Const, Expr, FloorDiv, Sub
from .walk import fold_up


def shorten(e: Expr) -> Expr:
    """Returns an expression of the same value that is shorter to read."""
    short: Expr = fold_up(e, "shorten", _shorten_node)
    return short


def _shorten_node(node: Expr, below: list[Any]) -> Expr:
    node = node.with_args(tuple(below)) if below else node
    if not isinstance(node, FloorDiv):
        return node
    outer, (rest, added) = _positive(node.args[1]), _without_constant(node.args[0])
    inner = _positive(rest.args[1]) if isinstance(rest, FloorDiv) else None
    if outer is None or inner is None or not isinstance(rest, FloorDiv):
        return node
    base, offset = _without_constant(rest.args[0])
    total = offset + added * inner
    return (base + total if total > 0 else base - -total if total else base) // (inner * outer)


def _positive(e: Expr) -> int | None:
    return e.value if isinstance(e, Const) and isinstance(e.value, int) and e.value > 0 else None


def _without_constant(e: Expr) -> tuple[Expr, int]:
    """Returns an expression without an integer that is added at its end, and that integer."""
    last = e.args[1] if isinstance(e, Add | Sub) else None
    if not isinstance(last, Const) or not isinstance(last.value, int):
        return e, 0
    return e.args[0], last.value if isinstance(e, Add) else -last.value
