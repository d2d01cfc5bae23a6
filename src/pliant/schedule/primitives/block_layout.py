"""Primitives that change a block's iteration space (transform_block_layout), or reindex its operands (reindex, reindex_cache_read/write).

Together they turn any sum of products into a matrix product (im2col for a convolution): the iterators are fused into rows, columns and
depth, and operands are copied to buffers that these iterators index.
"""

from __future__ import annotations

from ...loop.analysis.nest_shape import iteration_box
from ...loop.analysis.nests import (
    accesses,
    allocation,
    bare_uses,
    base_facts,
    block_names,
    blocks,
    facts_at,
    loop_facts,
    loops_above,
    path_to,
)
from ...loop.buffer import Buffer, Load, Scope
from ...loop.passes.simplify_indices import Simplifier
from ...loop.stmt import Alloc, Block, For, Func, Iter, IterKind, Replacer, Seq, Stmt, Store, seq, walk_stmts, zero
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars, substitute
from ...sym.index_map import IndexMap
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Edit, Forward, fresh_name
from ..errors import own_nest, refuse
from ..invariants import legal
from .cache_stages import check_scope, redirected
from .loops import reassociation
from .wide_copies import FromCopy, as_dtype, wider


@legal
def transform_block_layout(func: Func, block: Block, index_map: IndexMap) -> tuple[Func, Forward]:
    """Replace a block's iterators by an index map of them, and its loops by loops over the new iterators; the instances stay the same.

    The map must be one to one, and no new iterator may combine iterators of several kinds. Raises a ScheduleError otherwise.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.transform_block_layout("c", lambda i, j, k: (j // 4, k, i, j % 4))`

        for j_0, k, i, j_1 in grid(4, 8, n, 4):
            with block("c", "SRSS", j_0, k, i, j_1) as (vj_0, vk, vi, vj_1):
                with init():
                    c[vi, vj_0 * 4 + vj_1] = 0.0
                c[vi, vj_0 * 4 + vj_1] += a[vi, vk] * b[vk, vj_0 * 4 + vj_1]
    """
    what = f"cannot transform the iterators of block `{block.name}`"
    ordered = next((i for i in block.iters if i.kind == "O"), None)
    if ordered is not None:
        raise refuse(f"{what}: its iterator `{ordered.var.name}` is ordered", func, (block, "its instances keep their order"))
    nest = own_nest(func, block, what)
    facts = facts_at(func, next(iter(nest.values()), block))
    layout = index_map.layout([nest[i.var].stop for i in block.iters], facts)
    if isinstance(layout, Refusal) or layout.has_padding(facts):
        reason = layout.reason if isinstance(layout, Refusal) else "an extent is no multiple of what it is divided by"
        raise refuse(
            f"{what} by {index_map}: {reason}", func, *((x, f"extent {x.stop}") for x in nest.values()), help="pad rounds extents up"
        )
    kinds = _kinds(func, block, index_map, what)
    names = _names(block, index_map)
    loops = [For(Var(n), zero(), e, "serial", Seq(())) for n, e in zip(names, layout.shape, strict=True)]
    iters = tuple(Iter(Var(f"v{x.var.name}"), kind, x.var) for x, kind in zip(loops, kinds, strict=True))
    for i, x in zip(iters, loops, strict=True):
        facts = loop_facts(facts, x).with_range(i.var, 0, x.stop - 1)
    old = layout.inverse([i.var for i in iters], facts)
    replacer = Replacer(dict(zip((i.var for i in block.iters), old, strict=True)))
    new: Stmt = block.with_(
        iters=iters,
        body=replacer.stmt(block.body),
        init=None if block.init is None else replacer.stmt(block.init),
        predicate=simplify(replacer.expr(block.predicate), facts),
        reads=None,
        writes=None,
    )
    simplifier = Simplifier(None)
    new = done = simplifier.stmt(new, facts)
    edit = Edit(func)
    edit.moved.update(simplifier.moved)
    for x in reversed(loops):
        new = x.with_(body=new)
    new_loops = tuple(s for s in walk_stmts(new) if isinstance(s, For))[: len(loops)]
    edit.replace(next(iter(nest.values()), block), new)
    edit.move(block, done)
    _forward_loops(edit, block, nest, index_map, new_loops)
    return edit.done(made=new_loops, rounding=_rounding(func, block, nest, index_map))


def _kinds(func: Func, block: Block, map: IndexMap, what: str) -> list[IterKind]:
    """Return the kind of each new iterator: that of the old ones it is made of, S if of none; raise if these have several kinds."""
    kind_of = dict(zip(map.inputs, (i.kind for i in block.iters), strict=True))
    new_kinds: list[IterKind] = []
    for e in map.results:
        kinds = {kind_of[v] for v in free_vars(e) if v in kind_of}
        if len(kinds) > 1:
            shown = ", ".join(f"{i.kind} {i.var.name}" for i in block.iters)
            raise refuse(f"{what}: {e} is made of iterators of several kinds", func, (block, shown))
        new_kinds.append(kinds.pop() if kinds else "S")
    return new_kinds


def _names(block: Block, map: IndexMap) -> list[str]:
    """Return names for the new loops: those of the loops they are made of, numbered if one was split."""
    name = {v: str(i.value) for v, i in zip(map.inputs, block.iters, strict=True)}
    bases = ["_".join(name[v] for v in map.inputs if v in free_vars(e)) or "u" for e in map.results]
    return [b if bases.count(b) == 1 else f"{b}_{bases[:n].count(b)}" for n, b in enumerate(bases)]


def _forward_loops(edit: Edit, block: Block, nest: dict[Var, For], map: IndexMap, made: tuple[For, ...]) -> None:
    """Move handles of loops that only moved to the new loops, and kill the others."""
    for v, i in zip(map.inputs, block.iters, strict=True):
        at = next((x for e, x in zip(map.results, made, strict=True) if e is v), None)
        if at is not None:
            edit.move(nest[i.var], at)
        else:
            edit.kill([nest[i.var]], f"the loops of block `{block.name}` were made anew by {map}")


def _rounding(func: Func, block: Block, nest: dict[Var, For], map: IndexMap) -> str:
    """Return how the new order of the reduction changes rounding; "" if the order stays."""
    reducing = {i.var for i in block.iters if i.kind != "S"}
    before = [v for v in nest if v in reducing]
    input_of = dict(zip((i.var for i in block.iters), map.inputs, strict=True))
    after = [e for e in map.results if free_vars(e) & {input_of[v] for v in reducing}]
    if after == [input_of[v] for v in before] or not before:
        return ""
    return reassociation(func, block)


@legal
def reindex(func: Func, block: Block, buffer: str, scope: Scope = "workspace", dtype: str | None = None) -> tuple[Func, Forward]:
    """Let a block use a copy of a buffer that its iterators index directly: an operand is copied before the loops, a result after.

    The copy, and the block that makes it, are called `…_reindex`. It has one dimension for each iterator in the buffer's indices, in the
    order of the iterators. An operand may be copied to a wider `dtype`, so that values are widened once and not at each use.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.reindex("c", "b")`

        b_reindex = alloc((16, 8), f32)
        for j, k in grid(16, 8):
            with block("b_reindex", "SS", j, k) as (vj, vk):
                b_reindex[vj, vk] = b[vk, vj]
        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b_reindex[vj, vk]
    """
    what = f"cannot reindex `{buffer}` for block `{block.name}`"
    return _reindexed(func, block, buffer, scope, dtype, None, None, what)


@legal
def reindex_cache_read(
    func: Func, block: Block, buffer: str, index_map: IndexMap, scope: Scope = "workspace", dtype: str | None = None
) -> tuple[Func, Forward]:
    """Let a block read an operand from a copy, made before the loops, that an index map of the block's iterators indexes.

    The copy, and the block that makes it, are called `…_reindex`. The map takes all iterators of the block, and may use only those in the
    operand's indices. `dtype` gives the copy a wider dtype.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.reindex_cache_read("c", "b", lambda i, j, k: (j // 4, k, j % 4))`

        b_reindex = alloc((4, 8, 4), f32)
        for j, k in grid(16, 8):
            with block("b_reindex", "SS", j, k) as (vj, vk):
                b_reindex[vj // 4, vk, vj % 4] = b[vk, vj]
        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b_reindex[vj // 4, vk, vj % 4]
    """
    what = f"cannot cache `{buffer}` for block `{block.name}`"
    return _reindexed(func, block, buffer, scope, dtype, index_map, False, what)


@legal
def reindex_cache_write(func: Func, block: Block, buffer: str, index_map: IndexMap, scope: Scope = "workspace") -> tuple[Func, Forward]:
    """Let a block compute its result in a buffer that an index map of its iterators indexes; it is copied out after the loops.

    The buffer, and the block that copies it out, are called `…_reindex`. The map takes all iterators of the block, and uses the S ones.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.reindex_cache_write("c", "c", lambda i, j, k: (j // 4, i, j % 4))`

        c_reindex = alloc((4, n, 4), f32)
        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c_reindex[vj // 4, vi, vj % 4] = 0.0
                c_reindex[vj // 4, vi, vj % 4] += a[vi, vk] * b[vk, vj]
        for i, j in grid(n, 16):
            with block("c_reindex", "SS", i, j) as (vi, vj):
                c[vi, vj] = c_reindex[vj // 4, vi, vj % 4]
    """
    what = f"cannot cache the result `{buffer}` of block `{block.name}`"
    return _reindexed(func, block, buffer, scope, None, index_map, True, what)


def _reindexed(
    func: Func, block: Block, buffer: str, scope: Scope, dtype: str | None, map_: IndexMap | None, writing: bool | None, what: str
) -> tuple[Func, Forward]:
    """Copy an operand or a result to a buffer indexed by a map of the block's iterators; without a map, by the iterators in order.

    `writing` says whether the buffer must be a result (True) or an operand (False); None takes either. Returns the program, and the Forward
    with the copying block.
    """
    check_scope(func, block, scope, None, what)
    uses = [a for a in accesses(block) if a.buffer.name == buffer]
    places = {a.indices for a in uses}
    if len(places) != 1:
        reason = "it does not use it" if not places else f"it uses it at {len(places)} places, not at one"
        raise refuse(f"{what}: {reason}", func, (block, "this block"))
    source, place, writes = uses[0].buffer, uses[0].indices, any(a.write for a in uses)
    if writing is not None and writing is not writes:
        raise refuse(f"{what}: it {'reads' if writing else 'writes'} it", func, (block, "this block"))
    around = path_to(func, block)
    root: Stmt = next((x for x in around if isinstance(x, For)), block)
    _check_alone(func, block, root, source, writes, what)
    extents = iteration_box(func, block)
    if isinstance(extents, Refusal):
        bindings = ", ".join(f"{i.var.name} = {i.value}" for i in block.iters)
        reasons = [extents.reason] if extents.reason else []
        raise refuse(f"{what}: the points of its iterators are not a box from 0 on", func, (block, bindings), facts=reasons)
    used = {v for e in place for v in free_vars(e)}
    used_iters = [i for i in block.iters if i.var in used]
    lost = next((i for i in block.iters if writes and ((i.kind == "S") != (i.var in used))), None)
    if lost is not None or any(isinstance(e, Load) for p in place for e in _nodes(p)):
        reason = (
            f"iterator `{lost.var.name}` does not tell the elements that it writes apart" if lost else "its indices are read from memory"
        )
        raise refuse(f"{what}: {reason}", func, (block, f"{buffer}[{', '.join(map(str, place))}]"))
    _check_range(func, block, source, place, {i.var: extents[i.var] for i in used_iters}, what)
    if writes and dtype is not None:
        raise refuse(f"{what} as {dtype}: it is a result, of which every element is stored once", func, (block, "writes it"))
    here, shape = _places(func, block, used_iters, extents, map_, what)
    size = next((e for e in shape if not isinstance(e, Const)), None)
    if scope != "workspace" and size is not None:
        raise refuse(f"{what} in scope {scope}: its size would be no constant", func, (block, f"an extent is {size}"))
    copy = Buffer(f"{buffer}_reindex", wider(func, block, source, dtype, what), shape, None, scope)
    new = (redirected(block, source, copy, here) if writes else _reading(block, source, Load(copy, here))).with_(reads=None, writes=None)
    nest = _copy_nest(func, block, used_iters, extents, source, place, Load(copy, here), writes)
    edit = Edit(func)
    inner = Edit(Func("", (), root))
    inner.replace(block, new)
    inner.move(block, new)
    body = inner.done()[0].body
    edit.moved.update(inner.moved)
    edit.replace(root, seq(Alloc(copy), *((body, nest) if writes else (nest, body))))
    return edit.done(made=(blocks(nest)[0],))


def _places(
    func: Func, block: Block, kept: list[Iter], extents: dict[Var, Expr], map_: IndexMap | None, what: str
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the indices of an element of the copy, over the iterators, and the copy's shape.

    Raise if the map does not fit the iterators.
    """
    if map_ is None:
        return tuple(i.var for i in kept), tuple(extents[i.var] for i in kept)
    if len(map_.inputs) != len(block.iters):
        raise refuse(f"{what} by {map_}: block `{block.name}` has {len(block.iters)} iterators", func, (block, "this block"))
    of = dict(zip(map_.inputs, (i.var for i in block.iters), strict=True))
    used = {of[v] for e in map_.results for v in free_vars(e) if v in of}
    foreign = next((v for v in used if all(i.var is not v for i in kept)), None)
    if foreign is not None:
        raise refuse(f"{what} by {map_}: iterator `{foreign.name}` does not index it", func, (block, "this block"))
    inputs = tuple(v for v, own in of.items() if any(i.var is own for i in kept))
    layout = IndexMap(inputs, map_.results).layout([extents[of[v]] for v in inputs], base_facts(func))
    if isinstance(layout, Refusal):
        raise refuse(f"{what} by {map_}: {layout.reason}", func, (block, ", ".join(f"{i.var.name} < {extents[i.var]}" for i in kept)))
    return layout.map.apply([of[v] for v in inputs]), layout.shape


def _reading(block: Block, source: Buffer, place: Load) -> Block:
    """Return the block with all its reads of `source` replaced by reads of the copy at `place`."""
    replacer = FromCopy(source, place)
    return block.with_(body=replacer.stmt(block.body), init=None if block.init is None else replacer.stmt(block.init))


def _nodes(e: Expr) -> list[Expr]:
    return [e, *(x for a in e.args for x in _nodes(a))]


def _check_alone(func: Func, block: Block, root: Stmt, source: Buffer, writes: bool, what: str) -> None:
    """Raise if another block or a bare statement may change (or, for a result, use) the buffer while this block runs.

    Also raises if the buffer is allocated inside the loops, the block is under a condition, or it continues a reduction that others began.
    `writes` says that it is the block's result.
    """
    alloc = allocation(func, source)
    if alloc is not None and any(x in path_to(func, alloc) for x in loops_above(func, block)):
        raise refuse(f"{what}: `{source.name}` is allocated inside the loops", func, (block, "this block"))
    conditional = next((x for x in path_to(func, block) if not isinstance(x, (For, Seq))), None)
    if conditional is not None:
        raise refuse(f"{what}: it is inside of something other than loops", func, (block, "this block"))
    bare = bare_uses(func)
    if source in bare.writes or (writes and source in bare.reads):
        raise refuse(f"{what}: statements outside of blocks use it", func, (block, "this block"))
    if writes and block.init is None and any(a.buffer is source and not a.write for a in accesses(block)):
        raise refuse(f"{what}: it continues a reduction that others have begun there", func, (block, "reads it, and has no init"))
    for b in blocks(root):
        other = next((a for a in accesses(b) if b is not block and a.buffer is source and (writes or a.write)), None)
        if other is not None:
            raise refuse(f"{what}: block `{b.name}` in the same loops uses it too", func, (b, "this block"), (block, "and this one"))


def _check_range(func: Func, block: Block, source: Buffer, place: tuple[Expr, ...], extents: dict[Var, Expr], what: str) -> None:
    """Raise unless all indices are in bounds: the copy also runs where the other loops of the block are empty."""
    facts = base_facts(func)
    for v, e in extents.items():
        facts = facts.with_range(v, 0, e - 1)
    for e, n in zip(place, source.shape, strict=True):
        if not prove(zero() <= e, facts) or not prove(e < n, facts):
            raise refuse(f"{what}: it is not known that {e} is always within 0..{n}", func, (block, f"uses {source!r}"))


def _copy_nest(
    func: Func,
    block: Block,
    kept: list[Iter],
    extents: dict[Var, Expr],
    source: Buffer,
    place: tuple[Expr, ...],
    here: Load,
    writes: bool,
) -> Stmt:
    """Return a loop nest with one block that copies an operand into its copy, or with `writes` a result out of it."""
    loops = [For(Var(i.var.name.removeprefix("v") or i.var.name), zero(), extents[i.var], "serial", Seq(())) for i in kept]
    iters = tuple(Iter(Var(i.var.name), "S", x.var) for i, x in zip(kept, loops, strict=True))
    fresh: dict[Var, Expr] = {i.var: own.var for i, own in zip(kept, iters, strict=True)}
    there = tuple(substitute(e, fresh) for e in place)
    copy, at = here.buffer, tuple(substitute(e, fresh) for e in here.indices)
    store = Store(source, there, Load(copy, at)) if writes else Store(copy, at, as_dtype(copy.dtype, Load(source, there)))
    nest: Stmt = Block(fresh_name(copy.name, block_names(func)), iters, store, span=block.span)
    for x in reversed(loops):
        nest = x.with_(body=nest)
    return nest
