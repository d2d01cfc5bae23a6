"""Primitives that put a buffer between a block and memory: cache_write, cache_read, set_scope.

`cache_write` makes a write-back block. An epilogue is fused into that block, never into the steps of a reduction.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import i64
from ...loop.analysis.nests import (
    accesses,
    allocation,
    base_facts,
    block_names,
    blocks,
    constant_extent,
    facts_at,
    fed_by,
    loaded,
    loop_facts,
    loops_above,
    path_to,
    unseen_use,
    writers,
)
from ...loop.buffer import SCOPES, Buffer, Load, Scope
from ...loop.stmt import Alloc, Block, For, Func, Iter, Let, Reduce, Replacer, Seq, Stmt, Store, seq, walk_stmts
from ...sym.conditions import all_of, conjuncts
from ...sym.expr import TRUE, Const, Expr, Var, free_vars, substitute
from ...sym.facts import Facts
from ...sym.prove import prove
from ..cursor import Edit, Forward, Mover, fresh_name
from ..errors import refuse
from ..invariants import legal
from ..tile import Tile, inner_loops, nest_of, readable, rebound, spatial_facts, spatial_predicate, tile_of
from .wide_copies import FromCopy, as_dtype, wider


@legal
def cache_write(func: Func, block: Block, at: For | None = None, scope: Scope = "stack") -> tuple[Func, Forward]:
    """Let a block compute a tile (what one iteration of `at` writes) in a buffer of its own, and write it back at the end.

    The new buffer is `…_tile` in the given scope; the block that copies it out is `…_write`. If the block uses, or may keep, the old
    contents of its target, a block `…_read` copies them in first.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.cache_write("c", i, scope="register")`

        for i in range(n):
            c_tile = alloc((1, 16), f32, scope="register")
            for j, k in grid(16, 8):
                with block("c", "SSR", i, j, k) as (vi, vj, vk):
                    with init():
                        c_tile[0, vj] = 0.0
                    c_tile[0, vj] += a[vi, vk] * b[vk, vj]
            for j in range(16):
                with block("c_write", "SS", i, j) as (vi, vj):
                    c[vi, vj] = c_tile[0, vj]
    """
    what = "cache the result of"
    check_scope(func, block, scope, at, f"cannot {what} block `{block.name}`")
    target, inner = single_target(func, block, at, what)
    over_loops = {i.var: i.value for i in block.iters}
    reducing = [x for x in inner if fed_by(block, x) - {"S"}]
    tile = tile_of(func, block, tuple(substitute(e, over_loops) for e in target.indices), inner, what, spatial_facts(func, block, inner))
    bound = rebound(func, block, what)
    shape = tuple(Const(n, i64) for n in tile.extent) or ()
    buffer = Buffer(f"{target.buffer.name}_tile", target.buffer.dtype, shape, None, scope)
    new = redirected(bound.block, target.buffer, buffer, tuple(substitute(e, bound.iters) for e in tile.offset))
    outside = loops_above(func, block)
    spatial_above = [x for x in outside if x.var in bound.iters and x not in reducing]
    iters = tuple(Iter(Var(f"v{x.var.name}"), "S", x.var) for x in spatial_above)
    place: dict[Var, Expr] = {x.var: i.var for x, i in zip(spatial_above, iters, strict=True)}
    spatial = [x for x in inner if x not in reducing]
    outside_place = tuple(substitute(substitute(e, over_loops), place) for e in target.indices)
    tile_place = tuple(substitute(e, place) for e in tile.offset)
    names = block_names(func)

    def copying(suffix: str, store: Store) -> Stmt:
        name = fresh_name(f"{block.name}{suffix}", names)
        own = tuple(Iter(Var(i.var.name), "S", i.value) for i in iters)
        rename = Replacer({old.var: new.var for old, new in zip(iters, own, strict=True)})
        copy = Block(name, own, rename.stmt(store), predicate=rename.expr(spatial_predicate(block, place)), span=block.span)
        return nest_of(spatial, copy)[0]

    back = copying("_write", Store(target.buffer, outside_place, Load(buffer, tile_place)))
    first: tuple[Stmt, ...] = ()
    if _keeps_old(func, block, target.buffer, reducing):
        first = (copying("_read", Store(buffer, tile_place, Load(target.buffer, outside_place))),)
    return insert(func, block, new, inner, (Alloc(buffer), *first), (back,))


def _keeps_old(func: Func, block: Block, target: Buffer, reducing: list[For]) -> bool:
    """True if the result may depend on what the block's target held before: it reads it, or may leave elements of it unwritten."""
    if not isinstance(block.body, Store):
        return False  # the init overwrites every point
    if target in loaded(block.body.value):
        return True
    steps = {i.var for i in block.iters if i.kind != "S"}
    certain = all((constant_extent(func, x) or 0) > 0 for x in reducing) and free_vars(block.predicate).isdisjoint(steps)
    held = any(p.value is target and p.role == "inout" for p in func.params) or any(b is not block for b in writers(func, target))
    return held and not certain


def check_scope(func: Func, block: Block, scope: Scope, at: For | None, what: str) -> None:
    """Raise for an unknown scope, or for a workspace buffer that vector lanes around it would share or whose number is not known before.

    `at` is the loop in which the buffer is made; None for the beginning of the program.
    """
    if scope not in SCOPES or scope == "global":
        raise refuse(f"{what}: scopes are workspace, stack and register, not {scope!r}", func, (block, "this block"))
    around = [*loops_above(func, at), at] if at is not None else []
    lanes = next((x for x in around if x.kind == "vector"), None)
    if lanes is not None and scope == "workspace":
        raise refuse(
            f"{what} in the workspace: the lanes of vector loop `{lanes.var.name}` would share it",
            func,
            (lanes, "vector"),
            help='the scopes "stack" and "register" give each lane memory of its own',
        )
    known = {*func.symbols, *func.scalars}
    odd = next((x for x in around if x.kind == "parallel" and not free_vars(x.extent) <= known), None)
    if odd is not None and scope == "workspace":
        raise refuse(f"{what} in the workspace: how many iterations loop `{odd.var.name}` has is not known before", func, (odd, "parallel"))


@legal
def cache_read(
    func: Func,
    block: Block,
    buffer: str,
    at: For | None = None,
    scope: Scope = "stack",
    order: tuple[int, ...] | None = None,
    dtype: str | None = None,
) -> tuple[Func, Forward]:
    """Let the blocks inside `at` read a tile of a buffer (what one iteration needs) from a copy that is made when the iteration begins.

    `block` is one of the readers; all other readers inside `at` must read the same tile. The copy, and the block that makes it, are called
    `…_copy`. `order` permutes its dimensions. `dtype` is a wider dtype for the copy, so that values are widened once and not at each use.
    Raises a ScheduleError if these conditions do not hold.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.cache_read("c", "b", i)`

        for i in range(n):
            b_copy = alloc((8, 16), f32, scope="stack")
            for b_0, b_1 in grid(8, 16):
                with block("b_copy", "SS", b_0, b_1) as (vb_0, vb_1):
                    b_copy[vb_0, vb_1] = b[vb_0, vb_1]
            for j, k in grid(16, 8):
                with block("c", "SSR", i, j, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0.0
                    c[vi, vj] += a[vi, vk] * b_copy[vk, vj]
    """
    what = f"cannot cache `{buffer}` for block `{block.name}`"
    check_scope(func, block, scope, at, what)
    inner_loops(func, block, at)
    around: Stmt = at.body if at is not None else func.body
    source = next((a.buffer for a in accesses(block) if a.buffer.name == buffer and not a.write), None)
    if source is None:
        reads = ", ".join(sorted({a.buffer.name for a in accesses(block) if not a.write})) or "nothing"
        raise refuse(f"{what}: it does not read it", func, (block, f"reads {reads}"))
    writer = next((b for b in blocks(around) if any(a.buffer is source and a.write for a in accesses(b))), None)
    if writer is not None:
        raise refuse(f"{what}: block `{writer.name}` writes it there", func, (writer, "writes"), (block, "reads"))
    unseen = unseen_use(func, around, source, reads=False)
    if unseen:
        raise refuse(f"{what}: {unseen}", func, (block, "reads"))
    if order is not None and not _is_permutation(order, source.ndim):
        raise refuse(f"{what}: order {order} is no permutation of its {source.ndim} dimensions", func, (block, "this block"))
    wide = wider(func, block, source, dtype, what)
    tiles = {b: _read_tile(func, b, source, at, what) for b in blocks(around) if any(a.buffer is source for a in accesses(b))}
    for b in tiles:
        check_begun_inside(func, b, source, at, what)
    base = tiles[block].base
    _check_known(func, block, around, base, what)
    for b, tile in tiles.items():
        if tile.base != base:
            raise refuse(
                f"{what}: block `{b.name}` reads another part of it", func, (b, f"from {tile.base} on"), (block, f"from {base} on")
            )
    extent = tuple(max(t.extent[d] for t in tiles.values()) for d in range(source.ndim))
    perm = tuple(order) if order is not None else tuple(range(source.ndim))
    copy = Buffer(f"{buffer}_copy", wide, tuple(Const(extent[d], i64) for d in perm), None, scope)
    edit = Edit(func)
    inner = Edit(Func("", (), around))
    for b, tile in tiles.items():
        bound = rebound(func, b, "cache what is read by")
        place = Load(copy, tuple(substitute(tile.offset[d], bound.iters) for d in perm))
        replacer = FromCopy(source, place)
        init = bound.block.init
        new = bound.block.with_(body=replacer.stmt(bound.block.body), init=None if init is None else replacer.stmt(init))
        inner.replace(b, new)
        inner.move(b, new)
    body = inner.done()[0].body
    facts = base_facts(func) if at is None else loop_facts(facts_at(func, at), at)
    nest = _copy_nest(func, block, source, copy, perm, base, extent, facts)
    edit.moved.update(inner.moved)
    edit.replace(around, seq(Alloc(copy), nest, body))
    return edit.done(made=(blocks(nest)[0],))


def check_begun_inside(func: Func, block: Block, source: Buffer, at: For | None, what: str) -> None:
    """Raise if an init that reads the buffer runs before the loop in which its copy is made."""
    if at is None or block.init is None or all(a.buffer is not source for a in accesses(block.with_(body=block.init, init=None))):
        return
    outermost = next((x for x in loops_above(func, block) if fed_by(block, x) - {"S"}), None)
    if outermost is not None and (outermost is at or outermost in loops_above(func, at)):
        raise refuse(
            f"{what}: the init of block `{block.name}` reads `{source.name}` before loop `{at.var.name}`",
            func,
            (outermost, "the init runs before this loop"),
            (at, "it would be made here"),
        )


def _is_permutation(order: object, count: int) -> bool:
    return isinstance(order, (tuple, list)) and all(isinstance(d, int) for d in order) and sorted(order) == list(range(count))


def _check_known(func: Func, block: Block, around: Stmt, parts: tuple[Expr, ...], what: str) -> None:
    """Raise if expressions cannot be evaluated where `around` begins, or would have another value there."""
    lets = {s.var for s in walk_stmts(around) if isinstance(s, Let)}
    inside = next((v for e in parts for v in free_vars(e) if v in lets), None)
    if inside is not None:
        raise refuse(f"{what}: it depends on `{inside.name}`, which is defined inside of the loops", func, (block, "this block"))
    changed = next((x for x in loaded(*parts) if unseen_use(func, around, x, reads=False) or _written_in(around, x)), None)
    if changed is not None:
        raise refuse(f"{what}: which part of it depends on `{changed.name}`, which is written there", func, (block, "this block"))


def _written_in(around: Stmt, buffer: Buffer) -> bool:
    return any(a.write and a.buffer is buffer for b in blocks(around) for a in accesses(b))


def _read_tile(func: Func, block: Block, source: Buffer, at: For | None, what: str) -> Tile:
    places = {a.over_loops() for a in accesses(block) if a.buffer is source}
    if len(places) != 1:
        raise refuse(f"{what}: block `{block.name}` reads it at {len(places)} places, not at one", func, (block, "this block"))
    return tile_of(func, block, places.pop(), inner_loops(func, block, at), "cache what is read by")


def _copy_nest(
    func: Func,
    block: Block,
    source: Buffer,
    copy: Buffer,
    perm: tuple[int, ...],
    base: tuple[Expr, ...],
    extent: tuple[int, ...],
    facts: Facts,
) -> Stmt:
    """Return the loops that fill a copy; `facts` hold at their position, where inner loops may still run zero times."""
    outer = [x for x in loops_above(func, block) if any(x.var in free_vars(e) for e in base)]
    iters = [Iter(Var(f"v{x.var.name}"), "S", x.var) for x in outer]
    where: dict[Var, Expr] = {x.var: i.var for x, i in zip(outer, iters, strict=True)}
    loops = {d: For(Var(f"{source.name}_{d}"), Const(0, i64), Const(extent[d], i64), "serial", Alloc(copy)) for d in perm}
    for x in loops.values():
        facts = loop_facts(facts, x)
    own = {d: Iter(Var(f"v{source.name}_{d}"), "S", loops[d].var) for d in perm}
    below = [d for d in range(source.ndim) if not prove(Const(0, i64) <= base[d], facts)]
    within = [d for d in range(source.ndim) if not prove(base[d] + (extent[d] - 1) < source.shape[d], facts)]
    place = tuple(substitute(base[d], where) + own[d].var for d in range(source.ndim))
    body: Stmt = Block(
        fresh_name(copy.name, block_names(func)),
        (*iters, *(own[d] for d in perm)),
        Store(copy, tuple(own[d].var for d in perm), as_dtype(copy.dtype, Load(source, place))),
        predicate=all_of(
            # The block loads its indices only where its predicate holds, but the copy does so always: guard those loads.
            *dict.fromkeys(c for e in base for c in conjuncts(substitute(readable(e, facts), where)) if c is not TRUE),
            *(Const(0, i64) <= place[d] for d in below),
            *(place[d] < source.shape[d] for d in within),
        ),
        span=block.span,
    )
    for d in reversed(perm):
        body = loops[d].with_(body=body)
    return body


@legal
def set_scope(func: Func, block: Block, buffer: str, scope: Scope) -> tuple[Func, Forward]:
    """Move an allocated buffer that `block` uses to another kind of memory.

    Raises a ScheduleError if its size is not constant there, or if threads share it.

        t = alloc((4,), f32)
        for i in range(4):
            with block("t", "S", i) as vi:
                t[vi] = b[vi, 0] * 2.0
        for i_1, j in grid(n, 4):
            with block("w", "SR", i_1, j) as (vi, vj):
                with init():
                    w[vi] = 0.0
                w[vi] += t[vj]

    -> `s.set_scope("w", "t", "stack")`

        t = alloc((4,), f32, scope="stack")
        for i in range(4):
            with block("t", "S", i) as vi:
                t[vi] = b[vi, 0] * 2.0
        for i_1, j in grid(n, 4):
            with block("w", "SR", i_1, j) as (vi, vj):
                with init():
                    w[vi] = 0.0
                w[vi] += t[vj]
    """
    what = f"cannot put `{buffer}` into scope `{scope}`"
    old = next((a.buffer for a in accesses(block) if a.buffer.name == buffer), None)
    alloc = None if old is None else allocation(func, old)
    if old is None or alloc is None:
        reason = f"block `{block.name}` does not use it" if old is None else "it is a parameter of the program"
        raise refuse(f"{what}: {reason}", func, (block, "this block"))
    check_scope(func, block, scope, next(iter(loops_above(func, alloc)[-1:]), None), what)
    if scope != "workspace" and not all(isinstance(e, Const) for e in old.shape):
        raise refuse(f"{what}: its size is not a constant", func, (block, f"{old!r}"))
    private = set(path_to(func, alloc))
    for b in blocks(func.body):
        if any(a.buffer is old for a in accesses(b)):
            between = next((x for x in loops_above(func, b) if x.kind == "parallel" and x not in private), None)
            if between is not None and scope != "workspace":
                raise refuse(
                    f"{what}: the iterations of parallel loop `{between.var.name}` share it", func, (between, "parallel"), (b, "uses it")
                )
    edit = Edit(func)
    new = Buffer(old.name, old.dtype, old.shape, old.strides, scope)
    edit.replaced[func.body] = Mover(edit.moved, buffers={old: new}).stmt(func.body)
    return edit.done()


def single_target(func: Func, block: Block, at: For | None, what: str) -> tuple[Load, list[For]]:
    """Return the only access that a block writes, and the loops inside `at`; raise unless it is one store, or a reduction with its init."""
    s = block.body
    if isinstance(s, Reduce) and len(s.targets) == 1 and block.init is not None:
        written = s.targets[0]
    elif isinstance(s, Store) and block.init is None:
        written = Load(s.buffer, s.indices)
    else:
        inner_loops(func, block, at)
        raise refuse(
            f"cannot {what} block `{block.name}`: it is neither one store nor one reduction with its init",
            func,
            (block, "this block"),
            help="do this before decompose_reduction" if isinstance(s, Reduce) and block.init is None else "",
        )
    return written, check_targets(func, block, (written,), at, what)


def check_targets(func: Func, block: Block, targets: Sequence[Load], at: For | None, what: str) -> list[For]:
    """Return the loops inside `at`; raise unless no other block there uses the targets and the whole reduction is inside.

    Also raises if a target's indices are not over S iterators alone, are several, or cannot be evaluated where the loops begin.
    """
    inner = inner_loops(func, block, at)
    outer = next((x for x in loops_above(func, block) if x not in inner and fed_by(block, x) - {"S"}), None)
    if outer is not None:
        raise refuse(
            f"cannot {what} block `{block.name}`: loop `{outer.var.name}`, outside of the tile, feeds a reduction iterator",
            func,
            (outer, "feeds a reduction iterator"),
            help="reorder the reduction loops into the tile",
        )
    around: Stmt = inner[0] if inner else block
    steps = {i.var for i in block.iters if i.kind != "S"}
    for target in targets:
        step = next((v for e in target.indices for v in free_vars(e) if v in steps), None)
        if step is not None:  # the copy out of the result runs over S iterators only
            reason = f"where it writes `{target.buffer.name}` depends on `{step.name}`, which is no S iterator"
            raise refuse(f"cannot {what} block `{block.name}`: {reason}", func, (block, "this block"))
        other = next((b for b in blocks(around) if b is not block and any(a.buffer is target.buffer for a in accesses(b))), None)
        if other is not None:
            raise refuse(
                f"cannot {what} block `{block.name}`: block `{other.name}` in the same loops uses `{target.buffer.name}` too",
                func,
                (other, "this block"),
                (block, "and this one"),
            )
        if any(a.buffer is target.buffer and a.indices != target.indices for a in accesses(block)):
            raise refuse(f"cannot {what} block `{block.name}`: it uses `{target.buffer.name}` at several places", func, (block, ""))
        unseen = unseen_use(func, around, target.buffer)
        if unseen:
            raise refuse(f"cannot {what} block `{block.name}`: {unseen}", func, (block, "this block"))
    _check_nest(func, block, around, inner, f"cannot {what} block `{block.name}`")
    places = [e for t in targets for e in t.indices]
    _check_known(func, block, around, (block.predicate, *places), f"cannot {what} block `{block.name}`")
    return inner


def _check_nest(func: Func, block: Block, around: Stmt, inner: list[For], what: str) -> None:
    """Raise if the loops that feed a block's S iterators do not produce the same points without the other loops."""
    path = path_to(func, block)
    between = path[path.index(around) :] if around is not block else []
    if any(not isinstance(s, (For, Seq)) for s in between):
        raise refuse(f"{what}: there is a condition between its loops and it", func, (block, "this block"))
    steps = {x.var for x in inner if fed_by(block, x) - {"S"}}
    lets = {s.var for s in walk_stmts(around) if isinstance(s, Let)}
    values = next((i for i in block.iters if not free_vars(i.value).isdisjoint(lets)), None)
    if values is not None:
        raise refuse(f"{what}: `{values.var.name}` = {values.value} is defined inside of its loops", func, (block, "this block"))
    for x in inner:
        if not fed_by(block, x) - {"S"} and not (free_vars(x.start) | free_vars(x.stop)).isdisjoint(steps | lets):
            raise refuse(
                f"{what}: the range of loop `{x.var.name}` depends on what is inside of the tile", func, (x, f"{x.start}..{x.stop}")
            )


def redirected(block: Block, old: Buffer, new: Buffer, place: tuple[Expr, ...]) -> Block:
    """Return the block with every access to buffer `old` replaced by an access to `new` at the indices `place`."""
    replacer = _Redirect(old, Load(new, place))
    return block.with_(body=replacer.stmt(block.body), init=None if block.init is None else replacer.stmt(block.init))


class _Redirect(Replacer):
    """Replaces every load and store of one buffer by an access to the same element `place` of another."""

    __slots__ = ("old", "place")

    def __init__(self, old: Buffer, place: Load) -> None:
        super().__init__(loads=lambda e: place if e.buffer is old else None)
        self.old = old
        self.place = place

    def target(self, e: Load) -> Load:
        """Return the element that a store writes after the replacement."""
        return self.place if e.buffer is self.old else Replacer.target(self, e)


def insert(
    func: Func,
    block: Block,
    new: Block,
    inner: list[For],
    before: tuple[Stmt, ...],
    after: tuple[Stmt, ...],
    rounding: str = "",
) -> tuple[Func, Forward]:
    """Replace a block, and put statements before and after the loops `inner` around it.

    Return the first block of the last statement as made.
    """
    around: Stmt = inner[0] if inner else block
    edit = Edit(Func("", (), around))
    edit.replace(block, new)
    edit.move(block, new)
    body = edit.done()[0].body
    moved = edit.moved
    edit = Edit(func)
    edit.moved.update(moved)
    edit.replace(around, seq(*before, body, *after))
    return edit.done(made=(blocks(after[-1])[0],), rounding=rounding)
