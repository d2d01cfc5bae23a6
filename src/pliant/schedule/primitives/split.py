"""split: turns a loop into a nest, with three ways to handle an extent that is no multiple of the factors (the tail).

    guard     for i_0, i_1: where(i_0 * 6 + i_1 < n)                          a predicate in every instance
    cut       for i_0 in range(n // 6), i_1 in range(6); for i_r in range(n % 6)
    balance   for i_0 in range(about n // 6), i_1 in range(6); then tiles of constant sizes: 7 = 4 + 3, 8 = 4 + 4, 9 = 5 + 4, …

`balance` makes every body a constant size, so all of them unroll. A loop that feeds a reduction is cut in order: the init stays with the
main loop, which comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, get_args

from ...dtype import i64
from ...loop.analysis.nests import block_around, block_names, blocks, bound_value, facts_at, fed_by, loaded, loops_above, loops_in
from ...loop.stmt import Block, For, Func, If, Let, Stmt, map_children, seq, walk_stmts, zero
from ...sym.conditions import all_of
from ...sym.expr import Const, Eq, Expr, Select, Var, free_vars, substitute
from ...sym.facts import DIM_MAX, Facts
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Copier, Edit, Forward, Mover
from ..dependence import bare_statement
from ..errors import check_serial, refuse
from ..invariants import legal
from ..loop_names import part_names, tail_name
from ..tile import rebound_over

Tail = Literal["guard", "cut", "balance"]


@legal
def split(func: Func, loop: For, *factors: int | None, tail: Tail = "guard") -> tuple[Func, Forward]:
    """Split a loop into a nest of loops of the given extents, outermost first; None (at most one, first) is whatever remains.

    `tail` handles an extent that is not a multiple of the factors: `guard` adds a predicate to the blocks, `cut` makes a remainder loop
    (its blocks are called `…_rest`), `balance` divides the last whole tile and the remainder into two tiles of about the same size (6 + 1 =
    4 + 3). The tiles of each size are a loop of constant extent inside (`…_tail4`, …). Raises a ScheduleError for factors that do not fit
    the extent or the tail.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0

    -> `s.split(i, 4, tail="cut")`

        for i_0, i_1 in grid(n // 4, 4):
            with block("w", "S", i_0 * 4 + i_1) as vi:
                w[vi] = v[vi] * 2.0
        for i_r in range(n % 4):
            with block("w_rest", "S", n // 4 * 4 + i_r) as vi:
                w[vi] = v[vi] * 2.0
    """
    check_serial(func, loop, "split")
    if tail not in get_args(Tail):
        raise refuse(
            f"cannot split loop `{loop.var.name}`: there is no tail={tail!r}", func, (loop, ""), help='tails are "guard", "cut", "balance"'
        )
    facts = facts_at(func, loop)
    extent = simplify(loop.extent, facts)
    outer, inner = _extents(func, loop, factors, extent, facts)
    size = prod(inner)
    edit = Edit(func)
    count = simplify((extent + (size - 1)) // size, facts) if outer is None else Const(outer, i64)
    whole = simplify(extent // size, facts)
    rest = simplify(extent % size, facts)
    if isinstance(rest, Const) and rest.value == 0 and (outer is None or prove(Eq(extent, Const(outer * size, i64)), facts)):
        new = _nest(edit, loop, inner, count, size, None, facts)
        tails: list[Stmt] = []
    elif tail == "guard":
        new = _nest(edit, loop, inner, count, size, extent, facts)
        tails = []
    elif outer is not None:
        raise refuse(
            f"cannot split loop `{loop.var.name}` with tail={tail!r}: the outermost factor must be None",
            func,
            (loop, f"extent {extent}"),
            help='tail="guard" takes any factors',
        )
    else:
        if isinstance(whole, Const) and whole.value == 0:
            raise refuse(
                f"cannot split loop `{loop.var.name}` by {size} with tail={tail!r}: nothing would be left for the main loop",
                func,
                (loop, f"extent {extent}"),
                help="use a smaller factor",
            )
        if tail == "balance" and not isinstance(rest, Const):
            return _balance(func, loop, inner, size, extent)
        new = _nest(edit, loop, inner, whole, size, None, facts)
        suffix = "_rest" if tail == "cut" else f"_tail{rest}"
        tails = [_tail(func, loop, simplify(loop.start + whole * size, facts), rest, block_names(func), suffix)]
    edit.replace(loop, seq(new[0], *tails))
    edit.move(loop, new[0])
    return edit.done(made=tuple(new), tails=tuple(tails))


def _extents(func: Func, loop: For, factors: Sequence[int | None], extent: Expr, facts: Facts) -> tuple[int | None, list[int]]:
    """Return the extent of the outermost loop (None for whatever remains) and those of the inner loops; raise for illegal factors."""
    wanted = (None, *factors) if len(factors) == 1 and factors[0] is not None else factors
    inner = [f for f in wanted[1:] if f is not None]
    if len(inner) != len(wanted) - 1 or not inner or any(f is not None and not is_factor(f) for f in wanted):
        raise refuse(
            f"cannot split loop `{loop.var.name}` by {', '.join(map(str, factors)) or 'nothing'}",
            func,
            (loop, "this loop"),
            facts=["factors are positive whole numbers; only the first one may be None"],
        )
    outer, size = wanted[0], prod(inner)
    if size * (outer or 1) > DIM_MAX:
        raise refuse(f"cannot split loop `{loop.var.name}` by {', '.join(map(str, factors))}: no loop is that long", func, (loop, ""))
    if outer is not None and not prove(extent <= outer * size, facts):
        raise refuse(
            f"cannot split loop `{loop.var.name}` by {', '.join(map(str, factors))}: the parts do not cover it",
            func,
            (loop, f"extent {extent}"),
            facts=[f"{' * '.join(str(f) for f in (outer, *inner))} = {outer * size}"],
            help="use None as the first factor",
        )
    return outer, inner


def is_factor(f: object) -> bool:
    """True if `f` is a positive int (and no bool)."""
    return isinstance(f, int) and not isinstance(f, bool) and f >= 1


def _nest(edit: Edit, loop: For, inner: Sequence[int], count: Expr, size: int, guard: Expr | None, facts: Facts) -> list[For]:
    """Return the nested loops that replace `loop` in a split, outermost first, with the body in the innermost one.

    `guard` is the number of iterations beyond which the body does not run; None if they are whole tiles.
    """
    vars_ = [Var(name) for name in part_names(edit.func, loop, len(inner) + 1)]
    position: Expr = zero()
    step = size
    for v, f in zip(vars_, (1, *inner), strict=True):
        step //= f
        position = position + v * step
    for v, stop in zip(vars_, (count, *(Const(f, i64) for f in inner)), strict=True):
        facts = facts.with_range(v, 0, stop - 1)
    at = bound_value(loop.start + position, facts)
    body = Mover(edit.moved, {loop.var: at}).stmt(loop.body)
    if guard is not None:
        outer = block_around(edit.func, loop)  # inside a block, its iterators are visible and the loops around it are not
        above = [*(i.var for i in (outer.iters if outer else ())), *(x.var for x in loops_above(edit.func, loop)), *vars_]
        body = guarded(edit, body, at, simplify(loop.start + guard, facts), above)
    loops: list[For] = []
    for v, f in reversed(list(zip(vars_[1:], inner, strict=True))):
        body = For(v, zero(), Const(f, i64), "serial", body, span=loop.span)
        loops.append(body)
    loops.append(For(vars_[0], zero(), count, "serial", body, span=loop.span))
    return loops[::-1]


def guarded(edit: Edit, body: Stmt, position: Expr, stop: Expr, above: list[Var]) -> Stmt:
    """Return `body`, run only where position < stop: as a predicate of its blocks, or under an if where there are other statements.

    Raises if the iterators of a block cannot express the condition. `above` are the variables of the loops around.
    """
    if bare_statement(body) is not None or any(isinstance(s, Let) for s in walk_stmts(body)):
        return If(position < stop, body)
    known = {*edit.func.symbols, *edit.func.scalars}

    def add(s: Stmt) -> Stmt:
        new = map_children(s, add) if not isinstance(s, Block) else _guarded_block(s, position, stop, [*above, *_vars(body)], known)
        if new is None:
            old = next(b for b in walk_stmts(edit.func.body) if isinstance(b, Block) and isinstance(s, Block) and b.name == s.name)
            raise refuse(
                f"cannot guard block `{old.name}`: its iterators do not tell which iteration it is in",
                edit.func,
                (old, ", ".join(f"{i.kind} {i.var.name} = {i.value}" for i in old.iters)),
                help='tail="cut" needs no guard',
            )
        edit.moved[s] = new
        return new

    return add(body)


def _vars(s: Stmt) -> list[Var]:
    return [x.var for x in loops_in(s)]


def _guarded_block(b: Block, position: Expr, stop: Expr, loops: list[Var], known: set[Var]) -> Block | None:
    """Add the predicate position < stop to a block, over its iterators or over its loops as iterators; None if neither is possible."""
    for i in b.iters:
        offset = simplify(i.value - position)
        if free_vars(offset) | free_vars(stop) <= known:
            return b.with_(predicate=_also(b.predicate, i.var < simplify(stop + offset)))
    bound = rebound_over(b, loops)
    if bound is not None:
        condition = substitute(position < stop, bound.iters)
        if free_vars(condition) <= known | {i.var for i in bound.block.iters}:
            return bound.block.with_(predicate=_also(bound.block.predicate, condition))
    return None


def _also(predicate: Expr, guard: Expr) -> Expr:
    """Return both conditions; a predicate with loads comes second, because its loads may be out of bounds where the guard is false."""
    return all_of(guard, predicate) if loaded(predicate) else all_of(predicate, guard)


def _balance(func: Func, loop: For, inner: Sequence[int], size: int, extent: Expr) -> tuple[Func, Forward]:
    """Return the split into whole tiles and, for each smaller size, a loop over its tiles."""
    facts = facts_at(func, loop)
    rest = simplify(extent % size, facts)
    edit = Edit(func)
    pairs = all_of(Const(size, i64) <= extent, zero() < rest, rest < size - 1)
    whole = simplify(extent // size, facts)
    main = whole - Select(pairs, Const(1, i64), zero()) if size > 2 else whole
    new = _nest(edit, loop, inner, main, size, None, facts)
    names = block_names(func)
    tails: list[Stmt] = []
    for t in range(size - 1, 0, -1):
        outer = For(Var(tail_name(func, loop, "t")), zero(), _tile_count(t, size, extent, rest), "serial", loop.body, span=loop.span)
        start = simplify(loop.start + main * size + _tile_offset(t, size, extent, rest) + outer.var * t, facts)
        tails.append(outer.with_(body=_tail(func, loop, start, Const(t, i64), names, f"_tail{t}")))
    edit.replace(loop, seq(new[0], *tails))
    edit.move(loop, new[0])
    return edit.done(made=tuple(new), tails=tuple(tails))


def _tile_count(t: int, size: int, extent: Expr, rest: Expr) -> Expr:
    """Return the number of tiles of `t` iterations after the whole ones: size + rest = t + t, t + (t - 1) or (t + 1) + t, or rest alone."""
    alone: Expr = Select(Eq(rest, Const(t, i64)), Const(1, i64), zero())
    paired: Expr = zero()
    for r, n in ((2 * t + 1 - size, 1), (2 * t - 1 - size, 1), (2 * t - size, 2)):
        if 1 <= r <= size - 2:
            paired = Select(Eq(rest, Const(r, i64)), Const(n, i64), paired)
    if t == size - 1:  # (t + 1) + t is a whole tile and the rest alone
        paired = Select(Eq(rest, Const(t, i64)), Const(1, i64), paired)
    return Select(extent < size, alone, paired)


def _tile_offset(t: int, size: int, extent: Expr, rest: Expr) -> Expr:
    """Return the offset of the first tile of `t` iterations after the main tiles: behind the larger tile if it is the second of two."""
    r = 2 * t + 1 - size
    if not 1 <= r <= size - 2:
        return zero()
    return Select(all_of(Const(size, i64) <= extent, Eq(rest, Const(r, i64))), Const(t + 1, i64), zero())


def _tail(func: Func, loop: For, base: Expr, extent: Expr, names: set[str], suffix: str) -> For:
    """Return a copy of the loop for the remaining `extent` iterations, from `base` on.

    The copy has no inits of reductions that the main loop has started.
    """
    copier = Copier(names, suffix)
    copy = copier.copy(loop)
    assert isinstance(copy, For)
    var = Var(tail_name(func, loop, "r"))
    copy = For(var, zero(), extent, "serial", Mover({}, {copy.var: base + var}).stmt(copy.body), span=loop.span)
    later = {new for old, new in zip(blocks(loop), blocks(copy), strict=True) if fed_by(old, loop) and "S" not in fed_by(old, loop)}
    return without_inits(copy, later) if later else copy


def without_inits(s: For, later: set[Block]) -> For:
    """Return a loop whose blocks `later` continue reductions that an earlier loop has started."""
    edit = Edit(Func("", (), s))
    for b in later:
        edit.replace(b, b.with_(init=None))
    body = edit.done()[0].body
    assert isinstance(body, For)
    return body
