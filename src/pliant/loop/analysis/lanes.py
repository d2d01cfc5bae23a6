"""What the body of a vector loop does if its iterations are lanes: which accesses depend on the lane, and how.

for j in vector(16):                     # varying: j and t; of the accesses, y and x depend on the lane, w does not
    t = 2 * j + 1
    y[i, j] = x[t, i] * w[i]             # y's elements follow each other: its slope is 1; x's lie 2 * (rows of x) apart
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...support.memos import remembered
from ...support.record import dataclass
from ...sym.expr import Expr, Var, free_vars
from ...sym.poly import Poly, without
from ..buffer import Buffer, has_load, loads_in
from ..stmt import For, If, Let, Reduce, Seq, Stmt, Store, View, exprs, walk_stmts

_ALLOWED = (Seq, Store, Reduce, If)


class Access(NamedTuple):
    """An element that a loop's body reads, writes, or (both) combines with."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class LoopBody:
    """What a vector loop's body is."""

    varying: set[Var]  # variables that may differ from lane to lane
    definitions: dict[Var, Expr]  # lets over indices
    inside: set[Var]  # variables that have values only in the body
    laned: list[Access]  # the accesses whose place depends on the lane
    possible: bool  # whether lanes can do it, as far as the kinds of statements go


@remembered(maxsize=256)  # copies of an unrolled loop share what has no number of theirs
def loop_body(s: For) -> LoopBody:
    """What the body of a vector loop is."""
    varying, definitions, inside, possible = {s.var}, {}, {s.var}, True
    for inner in walk_stmts(s.body):
        if isinstance(inner, (For, Let)):
            inside.add(inner.var)
        if isinstance(inner, Let):
            if not varying.isdisjoint(free_vars(inner.value)):
                varying.add(inner.var)
            if inner.var.dtype.is_int and not has_load(inner.value):
                definitions[inner.var] = inner.value
        elif isinstance(inner, (For, View)):
            possible &= all(varying.isdisjoint(free_vars(e)) for e in exprs(inner))
        elif not isinstance(inner, _ALLOWED):
            possible = False
    touched = list(accesses(s.body))
    laned = [a for a in touched if any(not varying.isdisjoint(free_vars(i)) for i in a.indices)]
    # Lanes that write one element: the last one wins, or adds to what the one before wrote.
    meet = any(a.writes and a not in laned for a in touched)
    return LoopBody(varying, definitions, inside, laned, possible and bool(laned) and not meet)


def accesses(s: Stmt) -> Iterator[Access]:
    """Every element that a statement reads or writes."""
    for inner in walk_stmts(s):
        yield from (Access(e.buffer, e.indices, True, False) for e in loads_in(exprs(inner)))
        if isinstance(inner, Store):
            yield Access(inner.buffer, inner.indices, False, True)
        elif isinstance(inner, Reduce):
            yield from (Access(t.buffer, t.indices, True, True) for t in inner.targets)


def slope(place: Poly, var: Var, varying: set[Var]) -> Poly | None:
    """The distance between the elements of neighboring lanes, of which `place` is the number; None if it is not the same for all."""
    found: Poly = {}
    for m, c in place.items():
        rest = without(m, (var,))
        if any(not varying.isdisjoint(free_vars(a)) for a in (m if rest is None else rest)):
            return None
        if rest is not None:
            found[rest] = c
    return found
