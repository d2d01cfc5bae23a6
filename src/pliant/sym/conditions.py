"""Conjunctions: building a condition from its conjuncts, and taking it apart."""

from __future__ import annotations

from .expr import FALSE, TRUE, And, Expr


def all_of(*conditions: Expr) -> Expr:
    """Returns the conjunction (`and`) of the conditions; TRUE if there are none."""
    result: Expr = TRUE
    for c in conditions:
        if c is FALSE or result is FALSE:
            return FALSE
        if c is not TRUE:
            result = c if result is TRUE else And(result, c)
    return result


def conjuncts(condition: Expr) -> list[Expr]:
    """Returns the conditions that a conjunction joins by `and`, flattened; another condition by itself."""
    return [c for a in condition.args for c in conjuncts(a)] if isinstance(condition, And) else [condition]
