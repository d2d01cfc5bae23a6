"""compact: shrinks a buffer to the part that one iteration of a loop uses, and allocates it inside the loop.

`compute_at` leaves the buffer of a producer at full size, although every iteration uses another part. If an iteration reads only what it
has written itself, memory for one iteration is enough. Since every iteration then has memory of its own, iterations may run in parallel.
"""

from __future__ import annotations

from ...loop.analysis.nests import (
    Access,
    accesses,
    allocation,
    blocks,
    facts_at,
    fed_by,
    loaded,
    loop_facts,
    loops_above,
    path_to,
    plain_iters,
    repeats,
    unseen_use,
)
from ...loop.buffer import Buffer, Load, Scope
from ...loop.stmt import Alloc, Block, For, Func, Reduce, Replacer, Seq, Stmt, seq, walk_stmts
from ...support.refusal import Refusal as NoMap
from ...sym.affine import detect_iter_map
from ...sym.conditions import conjuncts
from ...sym.expr import Const, Expr, Le, Lt, Var, free_vars, substitute
from ...sym.facts import Facts
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import EMPTY, Edit, Forward
from ..dependence import contains_stmt
from ..errors import refuse
from ..invariants import legal
from ..ranges import Range, covering_range
from ..tile import extended, inner_loops, rebound_over
from .cache_stages import check_scope


@legal
def compact(func: Func, block: Block, buffer: str, loop: For, scope: Scope | None = None) -> tuple[Func, Forward]:
    """Shrink a buffer that `block` uses to what one iteration of `loop` uses of it, and allocate it there.

    All users of the buffer must be inside the loop, and the first of them must write, in every iteration, all that the others read. The
    buffer keeps its scope, or gets `scope`; on the stack and in registers its size must be a constant. Raises a ScheduleError if these
    conditions do not hold.

        t = alloc((n, 16), f32)
        for i in range(n):
            for j in range(16):
                with block("t", "SS", i, j) as (vi, vj):
                    t[vi, vj] = b[0, vj] * v[vi]
            for j_1 in range(16):
                with block("c", "SS", i, j_1) as (vi, vj):
                    c[vi, vj] = t[vi, vj] + 1.0

    -> `s.compact("c", "t", i, scope="stack")`

        for i in range(n):
            t = alloc((1, 16), f32, scope="stack")
            for j in range(16):
                with block("t", "SS", i, j) as (vi, vj):
                    t[0, vj] = b[0, vj] * v[vi]
            for j_1 in range(16):
                with block("c", "SS", i, j_1) as (vi, vj):
                    c[vi, vj] = t[0, vj] + 1.0
    """
    what = f"cannot compact `{buffer}` at loop `{loop.var.name}`"
    old = next((a.buffer for a in accesses(block) if a.buffer.name == buffer), None)
    alloc = None if old is None else allocation(func, old)
    if old is None or alloc is None:
        reason = f"block `{block.name}` does not use it" if old is None else "it is a parameter of the program"
        raise refuse(f"{what}: {reason}", func, (block, "this block"))
    if contains_stmt(loop, alloc):
        raise refuse(f"{what}: it is allocated inside of it already", func, (loop, "this loop"))
    scope = old.scope if scope is None else scope
    check_scope(func, block, scope, loop, what)
    users = _users(func, old, loop, what)
    _check_written_first(func, old, loop, users, what)
    places = [a for b in users for a in accesses(b) if a.buffer is old]
    ranges = [covering_range(func, loop, places, d, old) for d in range(old.ndim)]
    facts = loop_facts(facts_at(func, loop), loop)
    shape = tuple(simplify(r.extent, facts) for r in ranges)
    _check_shape(func, loop, shape, scope, what)
    new = Buffer(old.name, old.dtype, shape, None, scope)
    edit = Edit(func)
    inner = Edit(Func("", (), loop.body))
    for b in users:
        moved = _rebased(func, loop, b, old, new, ranges, what)
        inner.replace(b, moved)
        inner.move(b, moved)
    body = inner.done()[0].body
    edit.moved.update(inner.moved)
    edit.replace(alloc, EMPTY)
    edit.replace(loop.body, seq(Alloc(new), body))
    return edit.done()


def _users(func: Func, buffer: Buffer, loop: For, what: str) -> list[Block]:
    """Return the blocks that use the buffer; raise unless all are inside the loop and contain no blocks.

    Also raises if one passes it to a call, uses its elements as indices, or reduces into it across iterations of the loop.
    """
    unseen = unseen_use(func, func.body, buffer)
    if unseen:
        raise refuse(f"{what}: {unseen}", func, (loop, "this loop"))
    users = [b for b in blocks(func.body) if any(a.buffer is buffer for a in accesses(b))]
    for b in users:
        if not contains_stmt(loop, b):
            raise refuse(f"{what}: block `{b.name}` uses it outside of the loop", func, (b, "this block"), (loop, "this loop"))
        if any(isinstance(s, Block) and s is not b for s in walk_stmts(b)):
            raise refuse(f"{what}: block `{b.name}`, which uses it, has blocks inside", func, (b, "this block"))
        if any(a.buffer is buffer and len(a.indices) != buffer.ndim for a in accesses(b)):
            raise refuse(f"{what}: block `{b.name}` passes it to a call", func, (b, "this block"))
        late = next((x for x in (*loops_above(func, loop), loop) if fed_by(b, x) - {"S"}), None)
        if late is not None and b.init is not None:  # the init runs before that loop, where the buffer would not exist yet
            raise refuse(
                f"{what}: the reduction of block `{b.name}` goes on in other iterations of `{late.var.name}`", func, (late, "here")
            )
        if any(buffer in loaded(*a.indices) for a in accesses(b)):
            raise refuse(f"{what}: block `{b.name}` uses its elements as indices", func, (b, "this block"))
    return users


def _check_written_first(func: Func, buffer: Buffer, loop: For, users: list[Block], what: str) -> None:
    """Raise if an iteration may read what it has not written: the first user must write all that the others read."""
    first, *others = users
    if any(not isinstance(s, (For, Seq)) for s in _between(func, loop, first)):
        raise refuse(f"{what}: block `{first.name}`, which writes it first, stands under a condition", func, (first, "this block"))
    own = _part(loop, first)
    early = next((b for b in others if _part(loop, b) is own), None)
    if early is not None:
        reason = f"blocks `{first.name}` and `{early.name}` take turns in it"
        raise refuse(f"{what}: {reason}", func, (first, "uses it first"), (early, "in the same loops"))
    written = _written_box(func, buffer, loop, first, what)
    facts = loop_facts(facts_at(func, loop), loop)
    for b in others:
        reads = [a for a in accesses(b) if a.buffer is buffer and not a.write]
        for d, (box, extent) in enumerate(zip(written, buffer.shape, strict=True)):
            r = covering_range(func, loop, reads, d, buffer) if reads else box
            # No block reads out of bounds, so a box that reaches the ends of the buffer covers reads without a better bound.
            begins = prove(box.lo <= r.lo, facts) or prove(box.lo <= 0, facts)
            end = box.lo + box.extent
            if not begins or not (prove(r.lo + r.extent <= end, facts) or prove(extent <= end, facts)):
                raise refuse(
                    f"{what}: block `{b.name}` may read what block `{first.name}` has not written in the same iteration",
                    func,
                    (b, f"reads from {r.lo} on, {r.extent} elements"),
                    (first, f"writes from {box.lo} on, {box.extent} elements"),
                )


def _between(func: Func, loop: For, block: Block) -> list[Stmt]:
    path = path_to(func, block)
    return path[path.index(loop) + 1 :]


def _part(loop: For, block: Block) -> Stmt:
    """Return the direct child statement of a loop's body that contains the block."""
    body = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    return next(s for s in body if contains_stmt(s, block))


def _written_box(func: Func, buffer: Buffer, loop: For, block: Block, what: str) -> list[Range]:
    """Return the box that a block writes in each iteration of the loop; raise unless it writes every element of it."""
    places = {a.indices for a in accesses(block) if a.buffer is buffer and a.write}
    iters = plain_iters(next(iter(places)), block) if len(places) == 1 else None
    reads = any(a.buffer is buffer and not a.write for a in accesses(block)) and not (isinstance(block.body, Reduce) and block.init)
    steps = [i for i in block.iters if i.kind != "S"] if block.init is None else []
    if iters is None or reads or steps:
        reason = "reads it" if reads or (places and iters and steps) else "does not write it at its iterators, each once"
        raise refuse(f"{what}: block `{block.name}`, which is the first to use it, {reason}", func, (block, "this block"))
    limits = {c for v, n in zip(iters, buffer.shape, strict=True) for c in (Le(n - n, v), Lt(v, n))}
    facts = loop_facts(facts_at(func, loop), loop)
    known = {simplify(c) for c in limits}
    odd = next((c for c in conjuncts(block.predicate) if simplify(c) not in known and not _is_true(c)), None)
    if odd is not None:
        raise refuse(f"{what}: block `{block.name}`, which writes it first, has a predicate", func, (block, f"where {odd}"))
    inner = inner_loops(func, block, loop)
    spatial = [x for x in inner if "S" in fed_by(block, x)]
    again = next((x for x in inner if repeats(func, block, x) and not prove(x.start < x.stop, extended(facts, inner))), None)
    varying = next((x for x in spatial if (free_vars(x.start) | free_vars(x.stop)) & {y.var for y in inner}), None)
    if again is not None or varying is not None:
        x = again or varying
        assert x is not None
        reason = "may run zero times" if again is not None else "has a range that depends on other loops"
        raise refuse(f"{what}: loop `{x.var.name}` around block `{block.name}` {reason}", func, (x, f"range {x.start}..{x.stop}"))
    return _box(func, block, [i.value for v in iters for i in block.iters if i.var is v], spatial, facts, what)


def _is_true(c: Expr) -> bool:
    return isinstance(c, Const) and bool(c.value)


def _box(func: Func, block: Block, values: list[Expr], loops: list[For], facts: Facts, what: str) -> list[Range]:
    """Return the box that the values traverse in the loops; raise if they do not take all of its points."""
    fresh = {x.var: Var(x.var.name) for x in loops}
    shift: dict[Var, Expr] = {x.var: fresh[x.var] + x.start for x in loops}
    iter_map = detect_iter_map([substitute(v, shift) for v in values], {fresh[x.var]: x.extent for x in loops}, facts=facts)
    if isinstance(iter_map, NoMap) or not iter_map.surjective:
        reason = f"what block `{block.name}` writes of it in an iteration is not a box"
        raise refuse(f"{what}: {reason}", func, (block, ", ".join(f"{i.var.name} = {i.value}" for i in block.iters)))
    return [Range(lo, n) for lo, n in zip(iter_map.starts, iter_map.extents, strict=True)]


def _check_shape(func: Func, loop: For, shape: tuple[Expr, ...], scope: Scope, what: str) -> None:
    """Raise if the size of the buffer varies with the loops, or is no constant although the scope needs one."""
    known = {*func.symbols, *func.scalars}
    for e in shape:
        if not free_vars(e) <= known:
            raise refuse(f"{what}: an iteration uses {e} elements, which changes with the loops", func, (loop, "this loop"))
        if scope != "workspace" and not isinstance(e, Const):
            hint = 'scope="workspace" takes any size'
            raise refuse(f"{what} in scope {scope}: its size would be no constant", func, (loop, f"uses {e} elements"), help=hint)


class _Rebase(Replacer):
    """Redirects accesses of `old` to `new`, each at the indices in `places`."""

    __slots__ = ("old", "places")

    def __init__(self, old: Buffer, places: dict[tuple[Expr, ...], Load]) -> None:
        super().__init__(loads=self._place)
        self.old, self.places = old, places

    def _place(self, e: Load) -> Load | None:
        return self.places.get(e.indices) if e.buffer is self.old else None

    def target(self, e: Load) -> Load:
        """Return the element that a store writes after the replacement."""
        return self.places[e.indices] if e.buffer is self.old else Replacer.target(self, e)


def _rebased(func: Func, loop: For, block: Block, old: Buffer, new: Buffer, ranges: list[Range], what: str) -> Block:
    """Return the block with its accesses to `old` at the same elements of `new`, which begins where the ranges do.

    Raises a ScheduleError if the place of an access within the ranges is not known.
    """
    facts = facts_at(func, block)
    outside = {x.var for x in (*loops_above(func, loop), loop)}
    inside = {x.var for x in inner_loops(func, block, loop)}
    places: dict[tuple[Expr, ...], Load] = {}
    over_loops = False
    for a in accesses(block):
        if a.buffer is not old:
            continue
        offsets = [_offset(a, d, r.lo, outside, facts) for d, r in enumerate(ranges)]
        far = next((e for e in offsets if free_vars(e) & outside), None)
        if far is not None:
            raise refuse(
                f"{what}: the index of block `{block.name}` within the part of one iteration is not known",
                func,
                (block, f"at {far}"),
            )
        over_loops |= any(free_vars(e) & inside for e in offsets)
        places[a.indices] = Load(new, tuple(offsets))
    plain = block.with_(reads=None, writes=None)
    replacer = _Rebase(old, places)
    moved = plain.with_(
        body=replacer.stmt(block.body),
        init=None if block.init is None else replacer.stmt(block.init),
        predicate=replacer.expr(block.predicate),
    )
    if not over_loops:
        return moved
    loops = loops_above(func, block)
    bound = rebound_over(moved, [x.var for x in loops])
    if bound is None:
        mixed = next(x for x in loops if len(fed_by(block, x)) > 1)
        raise refuse(
            f"{what}: loop `{mixed.var.name}` feeds iterators of several kinds", func, (mixed, "this loop"), (block, "of this block")
        )
    return _replaced(bound.block, Replacer(bound.iters))


def _replaced(block: Block, replacer: Replacer) -> Block:
    """Return the block with everything inside replaced; the bindings of its iterators stay."""
    return block.with_(
        body=replacer.stmt(block.body),
        init=None if block.init is None else replacer.stmt(block.init),
        predicate=replacer.expr(block.predicate),
        reads=None,
        writes=None,
    )


def _offset(a: Access, d: int, lo: Expr, outside: set[Var], facts: Facts) -> Expr:
    """Return the distance of an index from the start of its range: over the block's iterators if possible, else over the inner loops."""
    if free_vars(lo).isdisjoint(outside):
        return simplify(a.indices[d] - lo) if not (isinstance(lo, Const) and lo.value == 0) else a.indices[d]
    return simplify(a.over_loops()[d] - lo, facts)
