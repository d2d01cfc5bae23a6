"""Primitives that move whole blocks to other loops: compute_at and reverse_compute_at.

The loops of a moved block are rebuilt over the region that one iteration of the target loop reads (or has produced).
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.nests import (
    Access,
    accesses,
    allocation,
    bare_uses,
    blocks,
    bound_value,
    facts_at,
    fed_by,
    loop_facts,
    loops_above,
    path_to,
    plain_iters,
    readers,
    visible,
    writers,
)
from ...loop.buffer import Buffer
from ...loop.stmt import Block, For, Func, Iter, Reduce, Seq, Stmt, Store, seq, walk_stmts
from ...sym.conditions import all_of
from ...sym.expr import TRUE, Const, Expr, Var, substitute
from ...sym.prove import prove, prove_equal
from ..cursor import EMPTY, Edit, Forward, compose
from ..dependence import contains_stmt, dependence
from ..errors import refuse
from ..invariants import legal
from ..ranges import Range, covering_range
from .cache_stages import check_begun_inside


@legal
def compute_at(func: Func, block: Block, loop: For) -> tuple[Func, Forward]:
    """Compute a producer inside `loop`, before everything else there: each iteration computes what it reads.

    All readers must be in the loop. Raises a ScheduleError otherwise.

        t = alloc((n,), f32)
        for i in range(n):
            with block("t", "S", i) as vi:
                t[vi] = v[vi] * 2.0
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] + 1.0

    -> `s.compute_at("t", i_1)`

        t = alloc((n,), f32)
        for i_1 in range(n):
            with block("t", "S", i_1) as vi:
                t[vi] = v[vi] * 2.0
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] + 1.0
    """
    what, target = movable(func, block, loop, after=True)
    users = check_readers(func, block, loop, target, what)
    places = [a for b in users for a in accesses(b) if a.buffer is target.buffer and not a.write]
    ranges = [covering_range(func, loop, places, d, target.buffer) for d in range(target.buffer.ndim)]
    if allocation(func, target.buffer) is None and not _covers(func, loop, ranges, target.buffer):
        what += f": it writes `{target.buffer.name}`, a parameter of the program"
        raise refuse(f"{what}, and the loop is not known to read all of it", func, (block, "this block"))
    return moved(func, block, loop, target, ranges, front=True, what=what)


def check_readers(func: Func, block: Block, loop: For, target: Access, what: str) -> list[Block]:
    """Return the blocks that read what a block writes.

    Raise unless there are some, all inside the loop, and the block's inputs stay unchanged.
    """
    order = blocks(func.body)
    users = readers(func, target.buffer)
    outside = next((b for b in users if not contains_stmt(loop, b)), None)
    if outside is not None or not users:
        reason = f"block `{outside.name}` reads `{target.buffer.name}` outside of it" if outside else f"nobody reads `{target.buffer.name}`"
        raise refuse(f"{what}: {reason}", func, (outside or block, "here"), (loop, "this loop"))
    for a in accesses(block):
        later = next((b for b in writers(func, a.buffer) if order.index(b) > order.index(block)), None)
        if later is not None and not a.write:
            raise refuse(
                f"{what}: block `{later.name}` changes `{a.buffer.name}`, which it reads", func, (later, "writes"), (block, "reads")
            )
    for b in users:
        check_begun_inside(func, b, target.buffer, loop, what)
    return users


def movable(func: Func, block: Block, loop: For, *, after: bool) -> tuple[str, Access]:
    """Check the conditions that both moves share; return the text for refusals and the block's write access.

    These are how the block writes, who uses its memory, and where the loop is (`after` the block, or before it). Raises a ScheduleError if
    one does not hold.
    """
    what = f"cannot compute block `{block.name}` at loop `{loop.var.name}`"
    target = _target(func, block, what)
    for s in (block, loop):
        if any(not isinstance(x, (For, Seq)) for x in path_to(func, s)):
            raise refuse(f"{what}: {'it' if s is block else 'the loop'} stands under a condition", func, (s, "here"))
    _check_whole(func, block, target, what)
    _check_blocks_only(func, block, what)
    _check_place(func, block, loop, what, after)
    return what, target


def _check_whole(func: Func, block: Block, target: Access, what: str) -> None:
    """Raise if a block's loops cover only a part of what it writes: the move would compute the rest as well."""
    loops = {x.var: x for x in loops_above(func, block)}
    value = {i.var: i.value for i in block.iters}
    facts = facts_at(func, block)
    for v, extent in zip(target.indices, target.buffer.shape, strict=True):
        x = next((x for var, x in loops.items() if var is value[v]), None)  # type: ignore[index]
        if x is not None and not (prove_equal(x.start, Const(0, i64), facts) and prove_equal(x.stop, extent, facts)):
            raise refuse(f"{what}: it does not write all of `{target.buffer.name}`", func, (x, f"of {extent}"), (block, "this block"))


def _covers(func: Func, loop: For, ranges: list[Range], buffer: Buffer) -> bool:
    """True if the iterations of an outermost loop take the rows of a buffer one after the other, each as a whole."""
    if not ranges or loops_above(func, loop):
        return False
    rows = ranges[0] == Range(loop.var, Const(1, i64)) and loop.start is Const(0, i64) and loop.stop is buffer.shape[0]
    return rows and all(r == Range(Const(0, i64), n) for r, n in zip(ranges[1:], buffer.shape[1:], strict=True))


def _check_blocks_only(func: Func, block: Block, what: str) -> None:
    """Raise if statements outside of blocks use a buffer of the block: nothing is known about their order."""
    bare = bare_uses(func)
    used = next((a.buffer for a in accesses(block) if a.buffer in (bare.reads if a.write else bare.writes)), None)
    if used is not None:
        raise refuse(f"{what}: statements outside of blocks use `{used.name}`", func, (block, "this block"))


@legal
def reverse_compute_at(func: Func, block: Block, loop: For) -> tuple[Func, Forward]:
    """Compute an elementwise consumer inside `loop`, after everything else there: each iteration consumes what it has produced.

    Raises a ScheduleError unless the block reads one buffer that the loop writes, elementwise and whole.

        t = alloc((n,), f32)
        for i in range(n):
            with block("t", "S", i) as vi:
                t[vi] = v[vi] * 2.0
        for i_1 in range(n):
            with block("w", "S", i_1) as vi:
                w[vi] = t[vi] + 1.0

    -> `s.reverse_compute_at("w", i)`

        t = alloc((n,), f32)
        for i in range(n):
            with block("t", "S", i) as vi:
                t[vi] = v[vi] * 2.0
            with block("w", "S", i) as vi:
                w[vi] = t[vi] + 1.0
    """
    what, own = movable(func, block, loop, after=False)
    producers = [b for b in blocks(loop) if any(x.write and any(y.buffer is x.buffer for y in accesses(block)) for x in accesses(b))]
    if not producers:
        raise refuse(f"{what}: nothing in the loop writes what it reads", func, (block, "this block"), (loop, "this loop"))
    order = blocks(func.body)
    last = max(order.index(b) for b in blocks(loop))
    for a in accesses(block):
        foreign = next((b for b in writers(func, a.buffer) if b is not block and last < order.index(b) < order.index(block)), None)
        if foreign is not None:
            raise refuse(f"{what}: block `{foreign.name}`, which comes after the loop, writes `{a.buffer.name}`", func, (foreign, "writes"))
        early = next((b for b in order[last + 1 : order.index(block)] if a.write and any(x.buffer is a.buffer for x in accesses(b))), None)
        if early is not None:
            raise refuse(f"{what}: block `{early.name}`, which comes before it, uses `{a.buffer.name}`", func, (early, "uses"))
    buffers = {x.buffer for b in producers for x in accesses(b) if x.write} & {y.buffer for y in accesses(block)}
    if any(i.kind != "S" for i in block.iters) or len(buffers) != 1:
        raise refuse(f"{what}: it is not an elementwise reader of one buffer that the loop writes", func, (block, "this block"))
    buffer = buffers.pop()
    other = next((b for b in writers(func, buffer) if b not in producers), None)
    if other is not None or any(p.value is buffer and p.role == "inout" for p in func.params):
        reason = f"block `{other.name}` outside of the loop" if other is not None else "the caller"
        raise refuse(f"{what}: `{buffer.name}`, which it reads, is also written by {reason}", func, (loop, "this loop"), (block, "reads"))
    reads = [a for a in accesses(block) if a.buffer is buffer]
    iters = plain_iters(reads[0].indices, block)
    if iters is None or len(iters) != len(block.iters) or any(a.indices != reads[0].indices for a in reads):
        raise refuse(f"{what}: it does not read `{buffer.name}` at its iterators, each once", func, (block, "this block"))
    extent_of = dict(zip(own.indices, own.buffer.shape, strict=True))
    facts = facts_at(func, block)
    part = next((v for v, n in zip(iters, buffer.shape, strict=True) if not prove_equal(extent_of[v], n, facts)), None)
    if part is not None:
        raise refuse(f"{what}: it reads a part of `{buffer.name}`", func, (block, f"`{part.name}` is below {extent_of[part]}"))
    writes = [a for b in producers for a in accesses(b) if a.buffer is buffer and a.write]
    ranges = [covering_range(func, loop, writes, d, buffer) for d in range(buffer.ndim)]
    _check_partition(func, block, loop, buffer, writes, ranges, what)
    of = dict(zip(iters, ranges, strict=True))
    placed = Access(buffer, tuple(iters), True, block)
    first, forward = _hoisted(func, own.buffer, loop)
    new_block, new_loop = forward(block), forward(loop)
    assert isinstance(new_block, Block) and isinstance(new_loop, For)
    result, second = moved(first, new_block, new_loop, placed, [of[v] for v in iters], front=False, what=what)
    return result, compose(forward, second)


def _hoisted(func: Func, buffer: Buffer, before: Stmt) -> tuple[Func, Forward]:
    """Return the program with the allocation of a buffer moved before the statement `before` that will write it, if it comes later."""
    edit = Edit(func)
    alloc = allocation(func, buffer)
    order = list(walk_stmts(func.body))
    if alloc is not None and order.index(alloc) > order.index(before):
        scope = next(s for s in reversed(path_to(func, alloc)) if isinstance(s, Seq))
        rest = [s for s in scope.body if s is not alloc]
        at = next(n for n, s in enumerate(rest) if contains_stmt(s, before))
        edit.replace(scope, Seq((*rest[:at], alloc, *rest[at:])))
    return edit.done()


def _check_partition(func: Func, block: Block, loop: For, buffer: Buffer, writes: list[Access], ranges: list[Range], what: str) -> None:
    """Raise unless each iteration of the loops around finishes one box of the buffer.

    Otherwise the consumer would read unfinished elements.
    """
    around = [*loops_above(func, loop), loop]
    for b in {a.block for a in writes}:
        late = next((x for x in around if fed_by(b, x) - {"S"}), None)
        if late is not None:
            raise refuse(
                f"{what}: the reduction of block `{b.name}` goes on in other iterations of `{late.var.name}`", func, (late, "here")
            )
    facts = loop_facts(facts_at(func, loop), loop)
    if len({a.indices for a in writes}) > 1 or any(
        not prove(a_lo + r.extent <= n, facts) for r, n in zip(ranges, buffer.shape, strict=True) for a_lo in (r.lo,)
    ):
        raise refuse(f"{what}: what an iteration writes of `{buffer.name}` is not one box inside of it", func, (loop, "this loop"))


def _target(func: Func, block: Block, what: str) -> Access:
    """Return the only access that the block writes, indexed by its S iterators; raise if it is not so."""
    places = {(a.buffer, a.indices): a for a in accesses(block) if a.write}
    simple = isinstance(block.body, (Store, Reduce)) and len(places) == 1
    target = next(iter(places.values()), None)
    iters = None if target is None else plain_iters(target.indices, block)
    spatial = {i.var for i in block.iters if i.kind == "S"}
    if not simple or target is None or iters is None or set(iters) != spatial or any(i.kind == "O" for i in block.iters):
        raise refuse(f"{what}: it does not write one buffer at its S iterators, each once", func, (block, "this block"))
    other = next((b for b in writers(func, target.buffer) if b is not block), None)
    if other is not None:
        raise refuse(f"{what}: block `{other.name}` writes `{target.buffer.name}` too", func, (other, "the other writer"))
    if block.predicate is not TRUE:
        raise refuse(f"{what}: it has a predicate", func, (block, f"where {block.predicate}"))
    if any(len(fed_by(block, x)) > 1 for x in loops_above(func, block)):
        raise refuse(f"{what}: one of its loops feeds S and R iterators", func, (block, "this block"))
    return target


def _check_place(func: Func, block: Block, loop: For, what: str, after: bool) -> None:
    """Raise a ScheduleError if the loop is on the wrong side of the block, or if the block cannot see its buffers there.

    The right side is `after` the block, or before it.
    """
    order = blocks(func.body)
    inside = blocks(loop)
    if block in inside:
        raise refuse(f"{what}: it is inside of it already", func, (loop, "this loop"), (block, "this block"))
    first, last = order.index(inside[0]), order.index(inside[-1])
    wrong = order.index(block) > first if after else order.index(block) < last
    if wrong:
        raise refuse(f"{what}: the loop comes {'before' if after else 'after'} it", func, (loop, "this loop"), (block, "this block"))
    unknown = next((a.buffer for a in accesses(block) if not visible(func, a.buffer, loop)), None)
    if unknown is not None:
        raise refuse(f"{what}: `{unknown.name}`, which it uses, is not allocated there", func, (block, "uses it"), (loop, "this loop"))
    if loop.kind in ("vector", "unroll"):
        raise refuse(f"{what}: the loop is {loop.kind}", func, (loop, loop.kind))
    shared = [x for x in path_to(func, block) if isinstance(x, For) and contains_stmt(x, loop)]
    if shared:
        raise refuse(f"{what}: both are inside of loop `{shared[-1].var.name}`", func, (shared[-1], "around both"))


def moved(func: Func, block: Block, loop: For, target: Access, ranges: list[Range], front: bool, what: str) -> tuple[Func, Forward]:
    """Move a block into a loop, to its front or end, with new loops over `ranges` of what it writes.

    Returns the program and the Forward; raises if a parallel or vector loop around it would then have dependent iterations.
    """
    spatial = dict(zip(target.indices, ranges, strict=True))
    facts = loop_facts(facts_at(func, loop), loop)
    loops: list[For] = []
    iters: list[Iter] = []
    limits: list[Expr] = []
    domain = dict(zip(target.indices, target.buffer.shape, strict=True))
    reducing = [x for x in loops_above(func, block) if fed_by(block, x) == {"R"}]
    fresh: dict[Var, Expr] = {x.var: Var(x.var.name) for x in reducing}
    for i in block.iters:
        if i.kind == "S":
            r = spatial[i.var]
            if not r.inner and prove_equal(r.extent, Const(1, i64), facts):
                value = r.lo
            else:
                x = For(Var(i.var.name), Const(0, i64), r.extent, "serial", EMPTY)
                loops.append(x)
                facts = loop_facts(facts, x)
                value = bound_value(r.lo + x.var, facts)
            limits += [] if prove(Const(0, i64) <= value, facts) else [Const(0, i64) <= i.var]
            limits += [] if prove(value < domain[i.var], facts) else [i.var < domain[i.var]]
            iters.append(Iter(i.var, "S", value))
        else:
            iters.append(Iter(i.var, i.kind, substitute(i.value, fresh)))
    for x in reducing:
        var = fresh[x.var]
        assert isinstance(var, Var)
        loops.append(For(var, substitute(x.start, fresh), substitute(x.stop, fresh), x.kind, EMPTY, x.annotations))
    new = block.with_(iters=tuple(iters), predicate=all_of(*limits))
    nest: Stmt = new
    for x in reversed(loops):
        nest = x.with_(body=nest)
    edit = Edit(func)
    edit.replace(block, EMPTY)
    edit.kill(_alone(func, block), f"block `{block.name}` was moved to other loops")
    edit.move(block, new)
    body = seq(nest, loop.body) if front else seq(loop.body, nest)
    placed = loop.with_(body=body)
    edit.replace(loop, placed)
    edit.move(loop, placed)
    result, forward = edit.done()
    around = [x for x in loops_above(result, new) if x.kind in ("parallel", "vector")]
    for x in around:
        conflict = dependence(result, x)
        if conflict is not None:
            raise refuse(
                f"{what}: {conflict.reason}, and loop `{x.var.name}` is {x.kind}", func, (loop, "this loop"), (block, "this block")
            )
    return result, forward


def _alone(func: Func, block: Block) -> list[Stmt]:
    """Return the loops around a block that contain no other block, outermost first."""
    return [s for s in path_to(func, block) if isinstance(s, For) and blocks(s) == [block]]
