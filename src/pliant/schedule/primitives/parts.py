"""The primitive that sums in parts: what one iteration of a loop sums begins anew, and is then added to the sum of those before.

The rounding error of a sum grows with the number of terms that are added one after the other; in parts, with the length of a part and with
their number. Memory is that of one part, however many there are, so the number of parts need not be known.
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.nests import block_names, facts_at, fed_by, loops_above, predicate_over_loops
from ...loop.buffer import Buffer, Load, Scope
from ...loop.stmt import NAMED_COMBINERS, Alloc, Block, For, Func, Iter, Reduce, Replacer, Store
from ...sym.expr import Const, Expr, Le, Lt, Var, all_of, conjuncts, free_vars, substitute
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Forward, fresh_name
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

    `loop` and the loops inside of it feed reduction iterators or S iterators, none both; the block that adds the parts is `…_sum`, and has
    the init that the block had.

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
                        w_part[0] = 0.0
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
        init=Store(buffer, place, Const(_IDENTITIES[combiner], target.dtype)),
        predicate=all_of(*(substitute(e, bound.iters) for e in firsts), *conjuncts(new.predicate)),
    )
    kept = [x for x in above if x.var in bound.iters and (x in outer or x not in reducing)]
    iters = tuple(Iter(Var(f"v{x.var.name}"), "R" if x in outer else "S", x.var) for x in kept)
    where: dict[Var, Expr] = {x.var: i.var for x, i in zip(kept, iters, strict=True)}
    values = {v: substitute(e, where) for v, e in over_loops.items()}
    total = Block(
        fresh_name(f"{block.name}_sum", block_names(func)),
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


_IDENTITIES = {"add": 0, "fma": 0, "mul": 1}


def _begins(func: Func, block: Block, inner: list[For]) -> tuple[list[Expr], list[Expr]]:
    """The conditions, over loops, without which a part has no terms: of the predicate what it does not change, and what holds at its first.

    Where elements of a tile differ in that, an empty part is added as well as any other.
    """
    starts = {x.var: x.start for x in inner if fed_by(block, x) - {"S"}}
    lanes = {x.var for x in inner} - starts.keys()
    facts = facts_at(func, block)
    kept: list[Expr] = []
    firsts: list[Expr] = []
    for c in conjuncts(predicate_over_loops(block)):
        changing = free_vars(c) & starts.keys()
        if not changing:
            kept.append(c)
        elif lanes.isdisjoint(free_vars(c)) and all(_fails_for_good(c, v) for v in changing):
            firsts.append(simplify(substitute(c, starts), facts))
    return kept, [c for c in firsts if not prove(c, facts)]


def _fails_for_good(condition: Expr, v: Var) -> bool:
    """Whether a condition that fails for some value of `v` fails for all that follow."""
    parts = linear(condition.args[0] - condition.args[1], v) if isinstance(condition, Lt | Le) else None
    return parts is not None and set(parts[0]) == {()} and parts[0][()] > 0
