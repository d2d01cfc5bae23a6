"""Primitives on reductions: decompose_reduction, begin_reduction, contract (FMA contraction).

They change how a reduction is initialized, and how it rounds.
"""

from __future__ import annotations

from ...loop.analysis.nests import (
    accesses,
    block_names,
    blocks,
    constant_extent,
    facts_at,
    fed_by,
    loaded,
    loops_above,
    path_to,
    repeats,
    unseen_use,
    visible,
)
from ...loop.buffer import Load
from ...loop.stmt import NAMED_COMBINERS, Block, For, Func, Iter, Let, Reduce, Replacer, Seq, Store, seq, walk_stmts
from ...sym.expr import Const, Expr, Mul, Var, free_vars, substitute
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Edit, Forward, compose, fresh_name
from ..dependence import bare_statement
from ..errors import refuse
from ..invariants import legal
from ..tile import inner_loops, nest_of


@legal
def decompose_reduction(func: Func, block: Block, loop: For) -> tuple[Func, Forward]:
    """Move the init of a reduction into a block of its own, `…_init`, in a nest just before `loop`.

    All its reduction loops must be in `loop`. Raises a ScheduleError otherwise.

        for i in range(n):
            for k in range(8):
                with block("w", "SR", i, k) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += a[vi, vk]

    -> `s.decompose_reduction("w", k)`

        for i in range(n):
            with block("w_init", "S", i) as vi:
                w[vi] = 0.0
            for k in range(8):
                with block("w", "SR", i, k) as (vi, vk):
                    w[vi] += a[vi, vk]
    """
    what = f"cannot decompose the reduction of block `{block.name}`"
    if block.init is None:
        raise refuse(f"{what}: it has no init", func, (block, "this block"))
    inside = [loop, *inner_loops(func, block, loop)]
    reducing = [x for x in loops_above(func, block) if fed_by(block, x) - {"S"}]
    outer = next((x for x in reducing if x not in inside), None)
    if outer is not None:
        raise refuse(
            f"{what} at loop `{loop.var.name}`: loop `{outer.var.name}` outside of it feeds a reduction iterator",
            func,
            (outer, "feeds a reduction iterator"),
            (loop, "the init would be here, and run again"),
            help=f"decompose it at `{outer.var.name}`, or reorder the loops",
        )
    before = inside[: inside.index(reducing[0])] if reducing else inside
    again = next((x for x in before if repeats(func, block, x)), None)
    if again is not None:
        raise refuse(
            f"{what} at loop `{loop.var.name}`: it begins anew in every iteration of loop `{again.var.name}`",
            func,
            (again, "feeds no iterator of the block"),
        )
    spatial = [x for x in inside if fed_by(block, x) == {"S"}]
    mixed = next((x for x in inside if len(fed_by(block, x)) > 1), None)
    if mixed is not None:
        raise refuse(f"{what}: loop `{mixed.var.name}` feeds S and R iterators", func, (mixed, "this loop"))
    hidden = {x.var for x in inside} - {x.var for x in spatial}
    for x in spatial:
        if not (free_vars(x.start) | free_vars(x.stop)).isdisjoint(hidden):
            raise refuse(f"{what}: the range of loop `{x.var.name}` depends on a reduction loop", func, (x, f"{x.start}..{x.stop}"))
    path = path_to(func, block)
    between = path[path.index(loop) :]
    odd = next((s for s in between if not isinstance(s, (For, Seq))), None)
    if odd is not None:
        raise refuse(f"{what}: there is a condition between loop `{loop.var.name}` and the block", func, (loop, ""), (block, ""))
    _check_begun_before(func, block, loop, what)
    names = block_names(func)
    iters = tuple(Iter(Var(i.var.name), i.kind, i.value) for i in block.iters if i.kind == "S")
    replacer = Replacer({old.var: new.var for old, new in zip((i for i in block.iters if i.kind == "S"), iters, strict=True)})
    predicate = replacer.expr(block.init_predicate)
    init = Block(fresh_name(f"{block.name}_init", names), iters, replacer.stmt(block.init), predicate=predicate, span=block.init.span)
    nest, _ = nest_of(spatial, init, kinds=True)
    edit = Edit(func)
    update = block.with_(init=None)
    inner = Edit(Func("", (), loop))
    inner.replace(block, update)
    inner.move(block, update)
    new, _ = inner.done()
    edit.moved.update(inner.moved)
    edit.replace(loop, seq(nest, new.body))
    return edit.done(made=(blocks(nest)[0],))


def _check_begun_before(func: Func, block: Block, loop: For, what: str) -> None:
    """Raise if the init cannot run before `loop`: something it uses is not there yet, or is used or changed inside the loop."""
    assert block.init is not None
    targets = {a.buffer for a in accesses(block) if a.write}
    begins = accesses(block.with_(body=block.init, init=None))
    used = {a.buffer: None for a in begins}
    hidden = next((b for b in used if not visible(func, b, loop)), None)
    if hidden is not None:
        raise refuse(f"{what} at loop `{loop.var.name}`: `{hidden.name}` is allocated inside of it", func, (loop, "the init would be here"))
    let = next((s for s in walk_stmts(loop) if isinstance(s, Let)), None)
    if let is not None:
        raise refuse(f"{what} at loop `{loop.var.name}`: `{let.var.name}` is defined inside of it", func, (loop, "the init would be here"))
    for b in blocks(loop):
        if b is not block and any(a.buffer in targets or (a.write and a.buffer in used) for a in accesses(b)):
            raise refuse(f"{what} at loop `{loop.var.name}`: block `{b.name}` inside of it uses the same buffer", func, (b, "here"))
    unseen = next((why for x in used if (why := unseen_use(func, loop, x))), "")
    if unseen:
        raise refuse(f"{what} at loop `{loop.var.name}`: {unseen}", func, (loop, "here"))


@legal
def begin_reduction(func: Func, block: Block, loop: For) -> tuple[Func, Forward]:
    """Initialize a reduction with its first element, in a block `…_first` just before `loop`, instead of with the neutral element.

    `loop` must be the only loop that feeds reduction iterators, and have at least one iteration. Raises a ScheduleError otherwise.

        for i in range(n):
            for k in range(8):
                with block("w", "SR", i, k) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += a[vi, vk]

    -> `s.begin_reduction("w", k)`

        for i in range(n):
            with block("w_first", "S", i) as vi:
                w[vi] = a[vi, 0]
            for k in range(1, 8):
                with block("w", "SR", i, k) as (vi, vk):
                    w[vi] += a[vi, vk]
    """
    what = f"cannot begin the reduction of block `{block.name}` with its first element"
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.left or len(s.targets) != 1 or not isinstance(block.init, Store):
        raise refuse(f"{what}: it is no reduction with a named combiner and an init", func, (block, "this block"))
    check_same_place(func, block, what)
    combiner = "add" if s.combiner.name == "fma" else s.combiner.name
    if block.init.value is not identity_of(combiner, s.targets[0]):
        raise refuse(f"{what}: its init is not {identity_of(combiner, s.targets[0])}, the neutral element", func, (block, "this block"))
    if not fed_by(block, loop) - {"S"} and constant_extent(func, loop) != 1:
        raise refuse(f"{what}: loop `{loop.var.name}` feeds no reduction iterator", func, (loop, "this loop"), (block, shown_iters(block)))
    again = next((x for x in inner_loops(func, block, loop) if repeats(func, block, x)), None)
    if again is not None:
        raise refuse(f"{what}: every iteration of loop `{again.var.name}` reduces that element", func, (again, "feeds no iterator"))
    other = next((b for b in blocks(loop) if b is not block), None) or bare_statement(loop)
    if other is not None:
        raise refuse(f"{what}: it is not alone in loop `{loop.var.name}`", func, (loop, "this loop"), (other, "would not run for it"))
    reduced = {i.var: substitute(i.value, {loop.var: loop.start}) for i in block.iters if i.kind != "S"}
    around = {x.var for x in loops_above(func, block)}
    if any(not free_vars(e).isdisjoint(around) for e in reduced.values()):
        raise refuse(f"{what}: loop `{loop.var.name}` alone does not make its reduction iterators", func, (loop, ""), (block, "this block"))
    if not free_vars(block.predicate).isdisjoint(reduced):
        raise refuse(f"{what}: its predicate may leave that element out", func, (block, f"where {block.predicate}"))
    if not prove(loop.start < loop.stop, facts_at(func, loop)):
        raise refuse(f"{what}: there may be none", func, (loop, f"range {loop.start}..{loop.stop}"))
    apart, forward = decompose_reduction(func, block, loop)
    init, rest = forward.made[0], forward(loop)
    assert isinstance(init, Block) and isinstance(init.body, Store) and isinstance(rest, For)
    spatial = zip((i.var for i in block.iters if i.kind == "S"), (i.var for i in init.iters), strict=True)
    value = s.values[0] if s.combiner.name != "fma" else Mul(*s.values)
    first = simplify(Replacer({**dict(spatial), **reduced}).expr(value), facts_at(func, loop))
    begun = init.with_(name=fresh_name(f"{block.name}_first", block_names(func)), body=init.body.with_(value=first))
    later = rest.with_(start=simplify(rest.start + 1, facts_at(func, loop)))
    edit = Edit(apart)
    for old, new in ((init, begun), (rest, later)):
        edit.replace(old, new)
        edit.move(old, new)
    exact = combiner != "add" or not s.targets[0].dtype.is_float
    result, second = edit.done(rounding="" if exact else f"block `{block.name}` adds nothing to 0.0, so that -0.0 alone stays -0.0")
    return result, compose(forward, second)


@legal
def contract(func: Func, block: Block) -> tuple[Func, Forward]:
    """FMA contraction of a sum of products: `c += a * b` becomes `c = fma(a, b, c)`, with one rounding instead of two.

    Raises a ScheduleError for other bodies, and for a block annotated contract=False.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.contract("c")`

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] = fma(a[vi, vk], b[vk, vj], c[vi, vj])
    """
    s = block.body
    fits = isinstance(s, Reduce) and s.combiner.name == "add" and isinstance(s.values[0], Mul) and s.values[0].dtype.is_float
    if not fits:
        raise refuse(f"cannot contract block `{block.name}`: its body is not a sum of products of floats", func, (block, "this block"))
    assert isinstance(s, Reduce)
    if not block.annotations.get("contract", True):
        raise refuse(f"cannot contract block `{block.name}`: it is annotated contract=False", func, (block, "this block"))
    edit = Edit(func)
    new = block.with_(body=s.with_(combiner=NAMED_COMBINERS["fma"], values=s.values[0].args))
    edit.replace(block, new)
    edit.move(block, new)
    return edit.done(rounding=f"block `{block.name}` rounds once for each product and sum")


def shown_iters(block: Block) -> str:
    """Return the iterators of a block and their bindings as text."""
    return ", ".join(f"{i.kind} {i.var.name} = {i.value}" for i in block.iters)


def check_same_place(func: Func, block: Block, what: str) -> None:
    """Raise if a reduction's init writes another element than its update, or if its values depend on its target."""
    s, init = block.body, block.init
    assert isinstance(s, Reduce) and isinstance(init, Store)
    target = s.targets[0]
    if init.buffer is not target.buffer or init.indices != target.indices:
        raise refuse(f"{what}: its init writes another place than its reduction", func, (block, "this block"))
    if target.buffer in loaded(*s.values, block.predicate, init.value):
        raise refuse(f"{what}: what it adds depends on what it has so far", func, (block, f"reads `{target.buffer.name}`"))


def identity_of(combiner: str, target: Load) -> Expr:
    """Return the neutral element of a combiner in the target's dtype, such as 0 for `add` and -inf for `max`."""
    d = target.dtype
    if combiner in ("min", "max"):
        least = float("inf") if d.is_float else d.max
        most = -float("inf") if d.is_float else d.min
        return Const(least if combiner == "min" else most, d)
    return Const({"add": 0, "mul": 1, "and": True, "or": False}[combiner], d)
