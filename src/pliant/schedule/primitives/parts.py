"""The primitive that sums in parts: each iteration of a loop starts a new partial sum, which is then added to the total.

The rounding error of a sum grows with the number of terms added one after the other; in parts, it grows with the length of a part and
with the number of parts. Memory is that of one part, so the number of parts may be dynamic.
"""

from __future__ import annotations

from ...dtype import DType, i64
from ...loop.analysis.nests import block_names, facts_at, fed_by, loops_above, predicate_over_loops
from ...loop.buffer import Buffer, Load, Scope
from ...loop.stmt import NAMED_COMBINERS, Alloc, Block, For, Func, Iter, Reduce, Replacer, Store
from ...sym.conditions import all_of, conjuncts
from ...sym.expr import Const, Expr, Le, Lt, Var, free_vars, substitute
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Forward, marked_name
from ..dependence import linear
from ..errors import refuse
from ..invariants import legal
from ..tile import inner_loops, nest_of, rebound, tile_of
from .cache_stages import check_scope, insert, redirected, single_target
from .loops import reassociation
from .reduction import check_same_place


@legal
def sum_in_parts(func: Func, block: Block, loop: For, scope: Scope = "stack") -> tuple[Func, Forward]:
    """Sum in parts: each iteration of `loop` sums into a buffer of its own, `…_part`, which is then added to the result.

    `loop` must feed only reduction iterators, and no loop inside it may feed both R and S iterators. The block that adds the parts is
    `…_sum`, and has the init of the original block. Raises a ScheduleError if these conditions do not hold.

        for i in range(n):
            for k, l in grid(2, 4):
                with block("w", "SR", i, k * 4 + l) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += a[vi, vk]

    -> `s.sum_in_parts("w", k)`

        for i, k in grid(n, 2):
            w_part = alloc((1,), f32, scope="stack")
            for l in range(4):
                with block("w", "SSR", i, k, l) as (vi, vk, vl):
                    with init():
                        w_part[0] = -0.0
                    w_part[0] += a[vi, vk * 4 + vl]
            with block("w_sum", "SR", i, k) as (vi, vk):
                with init():
                    w[vi] = 0.0
                w[vi] += w_part[0]
    """
    what = "sum in parts"
    check_scope(func, block, scope, loop, f"cannot {what} block `{block.name}`")
    inner = inner_loops(func, block, loop)
    above = loops_above(func, block)
    reducing = [x for x in above if fed_by(block, x) - {"S"}]
    if fed_by(block, loop) != {"R"} or loop not in reducing:
        raise refuse(
            f"cannot {what} block `{block.name}`: loop `{loop.var.name}` does not feed reduction iterators alone",
            func,
            (loop, "this loop"),
            (block, ", ".join(f"{i.kind} {i.var.name} = {i.value}" for i in block.iters)),
        )
    first = above.index(reducing[0])
    target, _ = single_target(func, block, above[first - 1] if first else None, f"{what}")
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name not in _IDENTITIES or not isinstance(block.init, Store):
        raise refuse(f"cannot {what} block `{block.name}`: it is no sum or product with an init", func, (block, "this block"))
    check_same_place(func, block, f"cannot {what} block `{block.name}`")
    combiner = "add" if s.combiner.name == "fma" else s.combiner.name
    over_loops = {i.var: i.value for i in block.iters}
    bound = rebound(func, block, what)
    outer = [x for x in reducing if x not in inner]
    tile = tile_of(func, block, tuple(substitute(e, over_loops) for e in target.indices), inner, what)
    buffer = Buffer(f"{target.buffer.name}_part", target.dtype, tuple(Const(n, i64) for n in tile.extent), None, scope)
    begun = {bound.iters[x.var] for x in outer}
    place = tuple(substitute(e, bound.iters) for e in tile.offset)
    same, firsts = _begins(func, block, inner)
    new = redirected(bound.block, target.buffer, buffer, place)
    new = new.with_(
        iters=tuple(Iter(i.var, "S", i.value) if i.var in begun else i for i in new.iters),
        init=Store(buffer, place, _identity(s.combiner.name, target.dtype)),
        predicate=all_of(*(substitute(e, bound.iters) for e in firsts), *conjuncts(new.predicate)),
    )
    outside = [x for x in above if x.var in bound.iters and (x in outer or x not in reducing)]
    iters = tuple(Iter(Var(f"v{x.var.name}"), "R" if x in outer else "S", x.var) for x in outside)
    where: dict[Var, Expr] = {x.var: i.var for x, i in zip(outside, iters, strict=True)}
    values = {v: substitute(e, where) for v, e in over_loops.items()}
    total = Block(
        marked_name(block.name, "_sum", block_names(func)),
        iters,
        Reduce(
            NAMED_COMBINERS[combiner],
            (Load(target.buffer, tuple(substitute(e, values) for e in target.indices)),),
            (Load(buffer, tuple(substitute(e, where) for e in tile.offset)),),
        ),
        Replacer(values).stmt(block.init),
        predicate=all_of(*(substitute(e, where) for e in (*firsts, *same))),
        span=block.span,
    )
    nest, _ = nest_of([x for x in inner if x not in reducing], total)
    return insert(func, block, new, inner, (Alloc(buffer),), (nest,), reassociation(func, block))


_IDENTITIES = {"add": 0, "fma": 0, "mul": 1}  # what a part starts with: adding (or multiplying) it changes nothing


def _identity(combiner: str, dtype: DType) -> Const:
    """Return what a part starts with: -0.0 for a sum of floats, because -0.0 + x is x, so an unrolled sum needs no addition for it.

    A part of nothing but -0.0 is -0.0 then, and adding it to the result, which has its own init, gives the same bits. Sums of products
    start with 0.0: their tiles have no register left for a literal.
    """
    return Const(-0.0 if combiner == "add" and dtype.is_float else _IDENTITIES[combiner], dtype)


def _begins(func: Func, block: Block, inner: list[For]) -> tuple[list[Expr], list[Expr]]:
    """Return the conditions, over loops, under which a part has terms: those constant over the part, and those at its first term.

    If elements of a tile differ in such a condition, it is dropped; adding an empty part is harmless.
    """
    starts = {x.var: x.start for x in inner if fed_by(block, x) - {"S"}}
    lanes = {x.var for x in inner} - starts.keys()
    facts = facts_at(func, block)
    constant: list[Expr] = []
    firsts: list[Expr] = []
    for c in conjuncts(predicate_over_loops(block)):
        changing = free_vars(c) & starts.keys()
        if not changing:
            constant.append(c)
        elif lanes.isdisjoint(free_vars(c)) and all(_fails_for_good(c, v) for v in changing):
            firsts.append(simplify(substitute(c, starts), facts))
    return constant, [c for c in firsts if not prove(c, facts)]


def _fails_for_good(condition: Expr, v: Var) -> bool:
    """True if a condition that is false for some value of `v` stays false for all larger ones."""
    parts = linear(condition.args[0] - condition.args[1], v) if isinstance(condition, Lt | Le) else None
    return parts is not None and set(parts[0]) == {()} and parts[0][()] > 0
