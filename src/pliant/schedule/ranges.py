"""Range analysis: the range of a buffer dimension that one iteration of a loop touches, as a start and a number of elements.

    for i in range(n): for j in range(4): … t[i * 4 + j] … t[i * 4 + j + 2]      at loop i: from i * 4 on, 6 elements

Ranges are never too small: if nothing is known about an index, the range is the whole dimension.
"""

from __future__ import annotations

from dataclasses import field

from ..dtype import i64
from ..loop.analysis.nests import Access, bound_inside, bound_value, facts_at, loop_facts
from ..loop.buffer import Buffer
from ..loop.stmt import For, Func
from ..support.record import dataclass
from ..sym.expr import Const, Expr, free_vars, substitute
from ..sym.facts import Facts
from ..sym.poly import poly_of
from ..sym.prove import prove
from ..sym.simplify import simplify
from .tile import inner_loops


@dataclass(frozen=True, slots=True)
class Range:
    """A record of a range of integers, lo .. lo + extent - 1, with symbolic ends."""

    lo: Expr
    extent: Expr
    inner: bool = field(default=False, compare=False)  # True if loops inside the given one vary the index, even if only over one value


def covering_range(func: Func, loop: For, places: list[Access], d: int, buffer: Buffer) -> Range:
    """Return a range that covers what the accesses touch of a dimension in one iteration; the whole dimension if nothing is known."""
    whole = Range(Const(0, i64), buffer.shape[d])
    facts = loop_facts(facts_at(func, loop), loop)
    result: Range | None = None
    for a in places:
        if len(a.indices) != buffer.ndim:
            return whole
        touched = index_range(func, loop, a, a.over_loops()[d], facts)
        result = touched if result is None else _hull(result, touched, facts) if touched is not None else None
        if result is None:
            return whole
    return result or whole


def _hull(a: Range, b: Range, facts: Facts) -> Range | None:
    """Return the range from the lower start to the higher end; None if the order of starts or ends is not known."""
    lo = _ordered(a.lo, b.lo, facts)
    hi = _ordered(a.lo + a.extent, b.lo + b.extent, facts)
    return Range(lo[0], simplify(hi[1] - lo[0], facts), a.inner or b.inner) if lo and hi else None


def _ordered(a: Expr, b: Expr, facts: Facts) -> tuple[Expr, Expr] | None:
    return (a, b) if prove(a <= b, facts) else (b, a) if prove(b <= a, facts) else None


def index_range(func: Func, loop: For, a: Access, e: Expr, facts: Facts) -> Range | None:
    """Return the range of an index in one iteration of `loop`; None unless the index grows with every inner loop variable."""
    inner = inner_loops(func, a.block, loop)
    for x in inner:
        facts = loop_facts(facts, x)
    varies = any(x.var in free_vars(e) for x in inner)
    e = bound_value(e, facts)
    if free_vars(e) & bound_inside(a.block):
        return None
    lo = hi = e
    for x in reversed(inner):
        if x.var not in free_vars(e):
            continue
        for m, c in poly_of(e).items():
            has = [v for v in m if x.var in free_vars(v)]
            if has and (c < 0 or has != [x.var] or any(not prove(Const(0, i64) <= v, facts) for v in m)):
                return None
        lo, hi = substitute(lo, {x.var: x.start}), substitute(hi, {x.var: x.stop - 1})
    outside = loop_facts(facts_at(func, loop), loop)
    return Range(bound_value(lo, outside), simplify(hi - lo + 1, outside), varies)
