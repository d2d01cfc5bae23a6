"""Tiles: the part of a buffer that one iteration of a loop touches, and blocks whose iterators are the loops themselves.

A block may use only its iterators, so a block that works on a tile needs iterators that locate it inside the tile. `rebound` gives it one
iterator for each loop that it depends on:

    for i_0 in range(4): for i_1 in range(6): block(S i = i_0 * 6 + i_1): c[i] = …
    for i_0 in range(4): for i_1 in range(6): block(S vi_0 = i_0, S vi_1 = i_1): c[vi_0 * 6 + vi_1] = …
"""

from __future__ import annotations

from ..loop.analysis.nests import bound_inside, facts_at, fed_by, loop_facts, loops_above
from ..loop.buffer import Load
from ..loop.stmt import Block, For, Func, Iter, Replacer, Stmt
from ..support.record import dataclass
from ..sym.bounds import bounds
from ..sym.conditions import all_of
from ..sym.expr import TRUE, And, Const, Expr, Not, Or, Select, Var, free_vars, substitute
from ..sym.facts import Facts
from ..sym.prove import prove
from ..sym.simplify import simplify
from ..sym.walk import walk
from .errors import refuse


@dataclass(frozen=True, slots=True)
class Tile:
    """A record of the part of a buffer that inner loops touch: for each dimension its start, an element's offset in it, and its size."""

    base: tuple[Expr, ...]  # over the loops outside
    offset: tuple[Expr, ...]  # over the loops inside
    extent: tuple[int, ...]


def inner_loops(func: Func, block: Block, at: For | None) -> list[For]:
    """Return the loops around a block that are inside `at`; all of them if `at` is None.

    Raises a ScheduleError if `at` is not around the block.
    """
    above = loops_above(func, block)
    if at is None:
        return above
    if at not in above:
        raise refuse(f"loop `{at.var.name}` is not around block `{block.name}`", func, (at, "this loop"), (block, "this block"))
    return above[above.index(at) + 1 :]


def spatial_predicate(block: Block, iters: dict[Var, Expr]) -> Expr:
    """Return the part of a block's predicate without reduction iterators, over other iterators of the same loops."""
    return substitute(block.init_predicate, {i.var: substitute(i.value, iters) for i in block.iters})


def spatial_facts(func: Func, block: Block, inner: list[For]) -> Facts:
    """Return the facts that hold around a block without those `inner` loops that feed reductions."""
    return extended(facts_at(func, inner[0] if inner else block), [x for x in inner if not fed_by(block, x) - {"S"}])


def tile_of(func: Func, block: Block, indices: tuple[Expr, ...], inner: list[For], verb: str, facts: Facts | None = None) -> Tile:
    """Return the tile that `indices` (over loops) traverse in the inner loops; raise unless its size is a constant."""
    facts = facts_at(func, block) if facts is None else facts
    starts = {x.var: x.start for x in inner}
    loose = {x.var for x in inner}
    base, offset, extent = [], [], []
    for e in indices:
        b = simplify(_settled(e, starts), facts)
        o = simplify(e - b, facts)
        high = bounds(o, facts)[1]
        own = bound_inside(block)
        # A tile of more than 2^20 elements along one dim is no tile: the bound comes from the range of a dynamic size.
        if not free_vars(o) <= loose or free_vars(b) & own or not prove(Const(0, o.dtype) <= o, facts) or high is None or high > 1 << 20:
            raise refuse(
                f"cannot {verb} block `{block.name}`: the part of the buffer that it touches has no constant size",
                func,
                (block, f"index {e} from {b} on"),
                facts=[f"inner loops: {', '.join(f'{x.var.name} in {x.start}..{x.stop}' for x in inner)}"],
                help='split the loops by constants, with tail="cut" or tail="balance"',
            )
        base.append(b)
        offset.append(o)
        extent.append(int(high) + 1)
    return Tile(tuple(base), tuple(offset), tuple(extent))


def _settled(e: Expr, starts: dict[Var, Expr]) -> Expr:
    while not free_vars(e).isdisjoint(starts):
        e = substitute(e, starts)
    return e


@dataclass(frozen=True, slots=True)
class Rebound:
    """A record of a block rewritten to have one iterator for each loop that it depends on, and the iterator of each loop variable."""

    block: Block
    iters: dict[Var, Expr]


def rebound(func: Func, block: Block, verb: str) -> Rebound:
    """Return the block over iterators that are its loops; raise if a loop feeds iterators of several kinds."""
    loops = loops_above(func, block)
    over_loops = rebound_over(block, [x.var for x in loops])
    if over_loops is None:
        mixed = next(x for x in loops if len(fed_by(block, x)) > 1)
        raise refuse(
            f"cannot {verb} block `{block.name}`: loop `{mixed.var.name}` feeds iterators of several kinds",
            func,
            (mixed, "this loop"),
            (block, ", ".join(f"{i.kind} {i.var.name} = {i.value}" for i in block.iters)),
        )
    return over_loops


def rebound_over(block: Block, loops: list[Var]) -> Rebound | None:
    """Return the block over iterators that are the loop variables `loops`; None if one of them feeds iterators of several kinds."""
    iters: list[Iter] = []
    var_of: dict[Var, Expr] = {}
    for x in loops:
        kinds = {i.kind for i in block.iters if x in free_vars(i.value)}
        if len(kinds) > 1:
            return None
        for kind in kinds:
            var = Var(f"v{x.name}")
            iters.append(Iter(var, kind, x))
            var_of[x] = var
    # Conditions on a reduction iterator must stay conditions on one. Otherwise they would also guard the init, which would then run at
    # fewer points than before.
    fixed = [i for i in block.iters if i.kind != "S" and free_vars(i.value).isdisjoint(loops)]
    replacer = Replacer({i.var: substitute(i.value, var_of) for i in block.iters if i not in fixed})
    new = block.with_(
        iters=(*iters, *fixed),
        predicate=replacer.expr(block.predicate),
        body=replacer.stmt(block.body),
        init=None if block.init is None else replacer.stmt(block.init),
        reads=None,
        writes=None,
    )
    return Rebound(new, var_of)


def nest_of(loops: list[For], body: Stmt, kinds: bool = False) -> tuple[Stmt, dict[Var, Expr]]:
    """Return new loops like `loops` around `body` (which uses the old variables), and the new variables; `kinds` keeps loop kinds."""
    fresh: dict[Var, Expr] = {x.var: Var(x.var.name, x.var.dtype) for x in loops}
    replacer = Replacer(fresh)
    s = replacer.stmt(body)
    for x in reversed(loops):
        var = fresh[x.var]
        assert isinstance(var, Var)
        annotations = dict(x.annotations) if kinds else {}
        kind = x.kind if kinds else "serial"
        s = For(var, replacer.expr(x.start), replacer.expr(x.stop), kind, s, annotations, x.span)
    return s, fresh


def extended(facts: Facts, loops: list[For]) -> Facts:
    """Return `facts` with start <= variable < stop of each loop added; a stop that contains a select is left out (`loop_facts`)."""
    for x in loops:
        facts = loop_facts(facts, x)
    return facts


def readable(e: Expr, facts: Facts) -> Expr:
    """Return the condition under which every load in `e` is in bounds; TRUE if that is proved.

    x[t[i - 1]] for i in 0..n        0 <= i - 1, if t has n elements
    """
    if not any(isinstance(node, Load) for node in walk(e)):
        return TRUE
    if isinstance(e, (Select, And, Or)):  # lazy operands: only the one taken is read
        c = e.args[0]
        first = readable(c, facts)
        then, orelse = facts.with_condition(c), facts.with_condition(Not(c))
        if isinstance(e, Select):
            arms = readable(e.args[1], then), readable(e.args[2], orelse)
        elif isinstance(e, And):
            arms = readable(e.args[1], then), TRUE
        else:
            arms = TRUE, readable(e.args[1], orelse)
        return all_of(first, TRUE if arms == (TRUE, TRUE) else Select(c, *arms))
    parts = [readable(a, facts) for a in e.args]
    if isinstance(e, Load):
        for i, n in zip(e.indices, e.buffer.shape, strict=True):
            parts += [] if prove(Const(0, i.dtype) <= i, facts) else [Const(0, i.dtype) <= i]
            parts += [] if prove(i < n, facts) else [i < n]
    return all_of(*parts)
