"""Flat element index as a polynomial: indices times strides, with quotients and remainders recombined.

>>> i, j = Var("i"), Var("j"); to_expr(flat_poly((i, j), (Const(8, i64), Const(1, i64)), poly_of), i64)
i * 8 + j
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .expr import Expr, FloorDiv, FloorMod
from .poly import Poly, add, multiply, times, without
from .simplify import simplify

_MAX_TERMS = 32  # of an index times a stride; a larger product stays one opaque term, to bound the size of polynomials


def flat_poly(indices: Iterable[Expr], strides: Iterable[Expr], poly: Callable[[Expr], Poly]) -> Poly:
    """The polynomial of an element's flat index; `poly` converts an index or a stride."""
    total: Poly = {}
    for index, stride in zip(indices, strides, strict=True):
        a, b = poly(index), poly(stride)
        if len(a) * len(b) <= _MAX_TERMS:
            total = add(total, multiply(a, b))
        else:
            total = add(total, {(index * stride,): 1})
    return _rejoined(total, poly)


def _rejoined(p: Poly, poly: Callable[[Expr], Poly]) -> Poly:
    """Recombines `a // b * b + a % b` to `a`, so that consecutive iterations of a fused loop are seen to be contiguous."""
    for m, c in p.items():
        for atom in m:
            if not isinstance(atom, FloorMod):
                continue
            a, b = atom.args
            size, rest = poly(b), without(m, (atom,))
            for quotient in (FloorDiv(a, b), simplify(FloorDiv(a, b))) if len(size) == 1 else ():
                ((factor, number),) = size.items()
                other = times(times(rest or (), (quotient,)), factor)
                if p.get(other) == c * number:
                    others = {k: v for k, v in p.items() if k not in (m, other)}
                    return _rejoined(add(others, multiply({rest or (): c}, poly(a))), poly)
    return p
