"""Lane analysis of vector loops: which accesses depend on the lane, and with which stride.

for j in vector(16):                     # varying: j and t; of the accesses, y and x depend on the lane, w does not
    t = 2 * j + 1
    y[i, j] = x[t, i] * w[i]             # y is contiguous: its slope is 1; x is strided: 2 * (elements in a row of x)
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

_ALLOWED = (Seq, Store, Reduce, If)  # statements that lanes can execute, beside loops, lets and views


class Access(NamedTuple):
    """A record of an element that a loop's body accesses: whether it is read, written, or both (a reduction)."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    reads: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class LoopBody:
    """A record of the facts about a vector loop's body that vectorization needs."""

    varying: set[Var]  # variables whose values may differ from lane to lane
    definitions: dict[Var, Expr]  # lets of index expressions
    inside: set[Var]  # variables that are bound in the body
    laned: list[Access]  # the accesses whose address depends on the lane
    possible: bool  # True if no kind of statement in it prevents vectorization


@remembered(maxsize=256)  # copies of an unrolled loop share the statements that do not use its variable
def loop_body(s: For) -> LoopBody:
    """Returns the facts about the body of a vector loop: which variables differ between lanes, and which accesses are vectors."""
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
    # If lanes write the same element, their order matters: the last one wins, or adds to what the previous one wrote.
    conflict = any(a.writes and a not in laned for a in touched)
    return LoopBody(varying, definitions, inside, laned, possible and bool(laned) and not conflict)


def accesses(s: Stmt) -> Iterator[Access]:
    """Yields every element access of a statement, those of nested statements included."""
    for inner in walk_stmts(s):
        yield from (Access(e.buffer, e.indices, True, False) for e in loads_in(exprs(inner)))
        if isinstance(inner, Store):
            yield Access(inner.buffer, inner.indices, False, True)
        elif isinstance(inner, Reduce):
            yield from (Access(t.buffer, t.indices, True, True) for t in inner.targets)


def slope(place: Poly, var: Var, varying: set[Var]) -> Poly | None:
    """The element stride between neighboring lanes for an access at flat index `place`; None if it is not the same for all lanes."""
    stride: Poly = {}
    for m, c in place.items():
        rest = without(m, (var,))
        if any(not varying.isdisjoint(free_vars(a)) for a in (m if rest is None else rest)):
            return None
        if rest is not None:
            stride[rest] = c
    return stride
