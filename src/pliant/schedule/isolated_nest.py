"""Isolated nests: each iterator of a block is one loop, and the loops contain nothing else.

    for i, j, k in grid(n, 16, 8):
        block(S i, S j, R k)

Primitives that rebuild such a nest (another iteration space, padded extents) need not look at its neighbors.
"""

from __future__ import annotations

from ..loop.analysis.nests import base_facts, loops_above, predicate_over_loops
from ..loop.stmt import Block, For, Func, Seq, Stmt
from ..support.record import dataclass
from ..support.refusal import Refusal
from ..sym.affine import detect_iter_map
from ..sym.expr import Expr, Var, free_vars, substitute
from ..sym.prove import prove_equal
from .errors import check_serial, refuse


def own_nest(func: Func, block: Block, what: str) -> dict[Var, For]:
    """Return the loop of each iterator, outermost loop first; raise unless they are serial loops from 0 around this block alone."""
    loops = loops_above(func, block)
    of = {x.var: x for x in loops}
    iterator_of: dict[For, Var] = {}
    for i in block.iters:
        loop = of.get(i.value) if isinstance(i.value, Var) else None
        if loop is None or loop in iterator_of:
            raise refuse(f"{what}: its iterator `{i.var.name}` is not a loop of its own", func, (block, f"{i.var.name} = {i.value}"))
        iterator_of[loop] = i.var
    nest = [x for x in loops if x in iterator_of]
    inner: Stmt = block
    for x in reversed(nest):
        if not is_all_of(inner, x.body):
            raise refuse(f"{what}: there is more in loop `{x.var.name}` than this block", func, (x, "this loop"), (block, "this block"))
        check_serial(func, x, "make anew")
        varying = next((v for v in (*free_vars(x.start), *free_vars(x.stop)) if v in of), None)
        if varying is not None or not prove_equal(x.start, x.start - x.start):
            reason = f"its range depends on `{varying.name}`" if varying is not None else "it does not start at 0"
            raise refuse(f"{what}: loop `{x.var.name}` is not plain, {reason}", func, (x, f"range {x.start}..{x.stop}"))
        inner = x
    return {iterator_of[x]: x for x in nest}


def is_all_of(inner: Stmt, outer: Stmt) -> bool:
    """True if a statement is the only one of a body."""
    return outer is inner or (isinstance(outer, Seq) and len(outer.body) == 1 and outer.body[0] is inner)


@dataclass(frozen=True, slots=True)
class Box:
    """The iteration domain of a block as a box: all points from 0 up to the extents."""

    extents: dict[Var, Expr]


def box_of(func: Func, block: Block, what: str) -> Box:
    """Return the iteration domain of a block; raise if its instances are not all points of one box."""
    loops = loops_above(func, block)
    shift: dict[Var, Expr] = {}
    extents: dict[Var, Expr] = {}
    for x in loops:
        var = Var(x.var.name)
        extents[var] = substitute(x.extent, shift)
        shift[x.var] = var + substitute(x.start, shift)
    values = [substitute(i.value, shift) for i in block.iters]
    iter_map = detect_iter_map(values, extents, substitute(predicate_over_loops(block), shift), base_facts(func))
    inner = {v for e in extents.values() for v in free_vars(e)} & set(extents)
    if isinstance(iter_map, Refusal) or not iter_map.surjective or inner or any(not prove_equal(s, s - s) for s in iter_map.starts):
        raise refuse(
            f"{what}: the points of its iterators are not a box from 0 on",
            func,
            (block, ", ".join(f"{i.var.name} = {i.value}" for i in block.iters)),
            facts=[iter_map.reason] if isinstance(iter_map, Refusal) else [],
        )
    return Box(dict(zip((i.var for i in block.iters), iter_map.extents, strict=True)))
