"""Sizes at which dims of a model agree that differ in general: multiples of a power of two, for nets that halve and double images.

fitting_multiple(n, m)      # 32: n and m are equal wherever every dim in them is a multiple of 32; None if nothing is found
"""

from __future__ import annotations

import math

from ...sym.expr import Const, Dim, Eq, Expr, FloorDiv, Var, free_vars, substitute
from ...sym.prove import prove
from ...sym.shorten import shorten
from ...sym.walk import walk

LARGEST = 1 << 12


def fitting_multiple(a: Expr, b: Expr) -> int | None:
    """Returns the smallest number above 1 such that `a` and `b` are proved to be equal if all their dims are multiples of it.

    It looks at divisors of the least common multiple of the constants by which the expressions divide. None if none of them is proved, or
    if that multiple is above 4096.
    """
    a, b = shorten(a), shorten(b)
    divisors = [n.args[1].value for e in (a, b) for n in walk(e) if isinstance(n, FloorDiv) and isinstance(n.args[1], Const)]
    most = math.lcm(*(int(d) for d in divisors if d > 0)) if divisors else 1
    if most > LARGEST:
        return None
    return next((m for m in range(2, most + 1) if most % m == 0 and _equal_at_multiples(a, b, m)), None)


def _equal_at_multiples(a: Expr, b: Expr, multiple: int) -> bool:
    """True if `a` and `b` are proved to be equal wherever each of their dims is a positive multiple of `multiple`."""
    at: dict[Var, Expr] = {v: Dim(v.name, min=1) * multiple for v in free_vars(a) | free_vars(b)}
    return prove(Eq(substitute(a, at), substitute(b, at)))


def fit_text(a: Expr, b: Expr) -> str:
    """Returns a sentence that says at multiples of which number `a` and `b` are equal; empty if `fitting_multiple` finds none."""
    multiple = fitting_multiple(a, b)
    if multiple is None:
        return ""
    names = sorted({v.name for v in free_vars(a) | free_vars(b)})
    return f"they are equal where {' and '.join(names)} {'is a multiple' if len(names) == 1 else 'are multiples'} of {multiple}"
