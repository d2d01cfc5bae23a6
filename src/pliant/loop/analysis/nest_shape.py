"""The shape of the loop nest around a block: a plain nest, an isolated nest, or a box of points.

    for i, j, k in grid(n, 16, 8):
        block(S i, S j, R k)

- Plain (`plain_loops`): one serial loop from 0 per iterator, and nothing else around the block or in the loops. Programs are first written
  like this, and the rules for default schedules start here.
- Isolated (`isolated_loops`): the loops of the iterators contain this block alone, but other loops may surround the nest. Primitives that
  rebuild such a nest need not look at its neighbors.
- Box (`iteration_box`): the loops may be split or fused, but the iterators still run over all points from 0 up to their extents.

Negative answers are values: many blocks are looked at that are not taken. Primitives turn them into errors.
"""

from __future__ import annotations

from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.affine import detect_iter_map
from ...sym.expr import TRUE, Const, Expr, Var, free_vars, substitute
from ...sym.prove import prove_equal
from ..stmt import INSTRUCTION, Block, For, Func, Iter, Seq, Stmt
from .nests import base_facts, blocks, loops_above, path_to, predicate_over_loops


@dataclass(frozen=True, slots=True)
class NotIsolated:
    """A record of why a block is not alone in a nest of serial loops: the reason, and the statements that show it, with notes."""

    reason: str
    at: tuple[tuple[Stmt, str], ...]


def loop_per_iterator(loops: list[For], block: Block) -> dict[Var, For] | Iter:
    """Return the loop whose variable each iterator is; the first iterator that has no loop of its own if there is one."""
    of: dict[Expr, For] = {x.var: x for x in loops}
    loop_of: dict[Var, For] = {}
    for i in block.iters:
        loop = of.get(i.value)
        if loop is None or loop in loop_of.values():
            return i
        loop_of[i.var] = loop
    return loop_of


def plain_loops(func: Func, block: Block) -> dict[Var, For] | Refusal:
    """Return the loop of each iterator if a block is alone in a nest of one serial loop per iterator; else why it is not."""
    loops = loops_above(func, block)
    loop_of = loop_per_iterator(loops, block)
    if isinstance(loop_of, Iter):
        return Refusal(f"iterator `{loop_of.var.name}` of block `{block.name}` is not one loop")
    if block.predicate is not TRUE:
        return Refusal(f"block `{block.name}` has a predicate")
    if len(loops) != len(loop_of):
        return Refusal(f"there are loops around block `{block.name}` that it does not use")
    for x in loops:
        if x.kind != "serial" or blocks(x) != [block] or not (isinstance(x.start, Const) and x.start.value == 0):
            return Refusal(f"loop `{x.var.name}` is not a serial loop from 0 around block `{block.name}` alone")
        if any(not free_vars(x.stop).isdisjoint([y.var]) for y in loops):
            return Refusal(f"the extent of loop `{x.var.name}` depends on another loop")
    if any(not isinstance(s, (For, Seq)) for s in path_to(func, block)) or any(isinstance(x.body, Seq) for x in loops):
        return Refusal(f"block `{block.name}` is not alone in its loops")
    return loop_of


def isolated_loops(func: Func, block: Block) -> dict[Var, For] | NotIsolated:
    """Return the loop of each iterator, outermost loop first, if they are serial loops from 0 around this block alone; else why not."""
    loops = loops_above(func, block)
    loop_of = loop_per_iterator(loops, block)
    if isinstance(loop_of, Iter):
        name = loop_of.var.name
        return NotIsolated(f"its iterator `{name}` is not a loop of its own", ((block, f"{name} = {loop_of.value}"),))
    iterator_of = {x: v for v, x in loop_of.items()}
    variables = {x.var for x in loops}
    inner: Stmt = block
    for x in reversed([x for x in loops if x in iterator_of]):
        name = x.var.name
        if not is_all_of(inner, x.body):
            return NotIsolated(f"there is more in loop `{name}` than this block", ((x, "this loop"), (block, "this block")))
        if x.kind != "serial":
            return NotIsolated(f"loop `{name}` is {x.kind}, not serial", ((x, f"{x.kind}"),))
        varying = next((v for v in (*free_vars(x.start), *free_vars(x.stop)) if v in variables), None)
        if varying is not None or not prove_equal(x.start, x.start - x.start):
            reason = f"its range depends on `{varying.name}`" if varying is not None else "it does not start at 0"
            return NotIsolated(f"loop `{name}` is not plain, {reason}", ((x, f"range {x.start}..{x.stop}"),))
        inner = x
    return {iterator_of[x]: x for x in loops if x in iterator_of}


def is_all_of(inner: Stmt, outer: Stmt) -> bool:
    """True if a statement is the only one of a body."""
    return outer is inner or (isinstance(outer, Seq) and len(outer.body) == 1 and outer.body[0] is inner)


def iteration_box(func: Func, block: Block) -> dict[Var, Expr] | Refusal:
    """Return the extent of each iterator if the instances of a block are all points from 0 up to these extents; else why they are not.

    The reason is empty where the iterators are affine in the loops but do not fill a box.
    """
    shift: dict[Var, Expr] = {}
    extents: dict[Var, Expr] = {}
    for x in loops_above(func, block):
        var = Var(x.var.name)
        extents[var] = substitute(x.extent, shift)
        shift[x.var] = var + substitute(x.start, shift)
    values = [substitute(i.value, shift) for i in block.iters]
    iter_map = detect_iter_map(values, extents, substitute(predicate_over_loops(block), shift), base_facts(func))
    if isinstance(iter_map, Refusal):
        return iter_map
    dependent = {v for e in extents.values() for v in free_vars(e)} & set(extents)
    if not iter_map.surjective or dependent or any(not prove_equal(s, s - s) for s in iter_map.starts):
        return Refusal("")
    return dict(zip((i.var for i in block.iters), iter_map.extents, strict=True))


def iter_named(block: Block, name: str) -> Iter:
    """Return the block's iterator whose variable has that name."""
    return next(i for i in block.iters if i.var.name == name)


def root_nests(func: Func) -> list[Stmt]:
    """Return the statements of a program's body that contain blocks."""
    body = func.body.body if isinstance(func.body, Seq) else (func.body,)
    return [s for s in body if blocks(s)]


def untouched(func: Func) -> list[Block]:
    """Return the blocks that no rule has scheduled yet: all loops around them are serial, and they are no tensor instructions."""
    return [b for b in blocks(func.body) if INSTRUCTION not in b.annotations and all(x.kind == "serial" for x in loops_above(func, b))]


def alone(func: Func, block: Block) -> list[For]:
    """Return the loops that contain no other block than this one, outermost first."""
    return [x for x in loops_above(func, block) if blocks(x) == [block]]
