"""Prover: `prove(e, facts)` is True if the condition always holds; False only means that no proof was found.

>>> n, m, i, j = Dim("n"), Dim("m"), Var("i"), Var("j")
>>> prove(i * m + j < n * m, Facts().with_loop(i, n).with_loop(j, m))
True
"""

from __future__ import annotations

from . import expr as E
from .expr import TRUE, Expr
from .facts import EMPTY, Facts
from .simplify import simplify


def prove(e: Expr, facts: Facts = EMPTY) -> bool:
    """True if the condition is proved for all values that the facts allow; False if no proof was found."""
    kind = type(e)
    if kind is E.And:
        return prove(e.args[0], facts) and prove(e.args[1], facts.with_condition(e.args[0]))
    if kind is E.Or:
        return prove(e.args[0], facts) or prove(e.args[1], facts.with_condition(E.Not(e.args[0])))
    return simplify(e, facts) is TRUE


def prove_equal(a: Expr, b: Expr, facts: Facts = EMPTY) -> bool:
    """True if `a == b` is proved for all values that the facts allow; False if no proof was found."""
    return a is b or simplify(a, facts) is simplify(b, facts) or prove(E.Eq(a, b), facts)
