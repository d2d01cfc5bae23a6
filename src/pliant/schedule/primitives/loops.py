"""Primitives on loops: split, partition, fuse, reorder, unroll, vectorize, parallel, annotate.

Each is a pure function `(func, loop, …) -> (func, forward)`; `forward.made` holds the loops it made, in the order of the
results of the method of `Schedule`. Loops that only feed S iterators may run in any order; the order of a reduction is kept
unless `reorder` is asked to change it, and then the change of rounding is declared.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Literal

from ...dtype import i64
from ...loop.stmt import Block, For, Func, If, Let, Reduce, Stmt, Store, map_children, seq, walk_stmts
from ...sym.bounds import poly_interval
from ...sym.expr import Const, Eq, Expr, Le, Lt, Max, Min, Select, Var, all_of, free_vars, product, substitute
from ...sym.facts import Facts
from ...sym.poly import to_expr
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..cursor import Copier, Edit, Forward, Mover
from ..dependence import Conflict, bare_statement, cross_dependence, dependence, linear
from ..legal import legal
from ..nest import (
    block_names,
    blocks,
    conjuncts,
    constant_extent,
    facts_at,
    fed_by,
    loop_facts,
    loops_above,
    loops_in,
    predicate_over_loops,
)
from ..refusal import refuse
from ..tile import rebound_over

Tail = Literal["guard", "cut", "balance"]
MAX_UNROLL = 256


def zero() -> Expr:
    """The index 0."""
    return Const(0, i64)


@legal
def split(func: Func, loop: For, *factors: int | None, tail: Tail = "guard") -> tuple[Func, Forward]:
    """Split a loop into a nest of loops of the given extents, outermost first; None (at most one, first) is what remains.

    `tail` says what becomes of an extent that is not a multiple of the factors: `guard` adds a predicate to the blocks,
    `cut` makes a remainder loop (its blocks are called `…_rest`), `balance` shares the last whole tile out with what remains
    as two tiles of about the same size (6 + 1 = 4 + 3); the tiles of each size are a loop of constant extent inside (`…_tail4`, …).

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0

    -> `s.split(i, 4, tail="cut")`

        for i_0, i_1 in grid(n // 4, 4):
            with block("w", "S", i_0 * 4 + i_1) as vi:
                w[vi] = v[vi] * 2.0
        for i_r in range(n % 4):
            with block("w_rest", "S", i_r + n // 4 * 4) as vi:
                w[vi] = v[vi] * 2.0
    """
    wanted = (None, *factors) if len(factors) == 1 and factors[0] is not None else factors
    _check_serial(func, loop, "split")
    inner = [f for f in wanted[1:] if f is not None]
    if len(inner) != len(wanted) - 1 or not inner or any(f is not None and (not isinstance(f, int) or f < 1) for f in wanted):
        raise refuse(
            f"cannot split loop `{loop.var.name}` by {', '.join(map(str, factors)) or 'nothing'}",
            func,
            (loop, "this loop"),
            facts=["factors are positive whole numbers; only the first one may be None"],
        )
    facts = facts_at(func, loop)
    extent = simplify(loop.extent, facts)
    size = 1
    for f in inner:
        size *= f
    outer = wanted[0]
    if outer is not None and not prove(extent <= outer * size, facts):
        raise refuse(
            f"cannot split loop `{loop.var.name}` by {', '.join(map(str, factors))}: the parts do not cover it",
            func,
            (loop, f"extent {extent}"),
            facts=[f"{' * '.join(str(f) for f in (outer, *inner))} = {outer * size}"],
            help="use None as the first factor",
        )
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
    elif tail in ("cut", "balance"):
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
    else:
        raise refuse(
            f"cannot split loop `{loop.var.name}`: there is no tail={tail!r}", func, (loop, ""), help='tails are "guard", "cut", "balance"'
        )
    edit.replace(loop, seq(new[0], *tails))
    edit.move(loop, new[0])
    return edit.done(made=tuple(new))


def _nest(edit: Edit, loop: For, inner: Sequence[int], count: Expr, size: int, guard: Expr | None, facts: Facts) -> list[For]:
    """The loops in place of `loop`, outermost first."""
    vars_ = [Var(f"{loop.var.name}_{n}") for n in range(len(inner) + 1)]
    position: Expr = zero()
    step = size
    for v, f in zip(vars_, (1, *inner), strict=True):
        step //= f
        position = position + v * step
    for v, stop in zip(vars_, (count, *(Const(f, i64) for f in inner)), strict=True):
        facts = facts.with_range(v, 0, stop - 1)
    mover = Mover(edit.moved, {loop.var: simplify(loop.start + position, facts)})
    body = mover.stmt(loop.body)
    if guard is not None:
        above = [*(x.var for x in loops_above(edit.func, loop)), *vars_]
        body = guarded(edit, body, simplify(loop.start + position, facts), simplify(loop.start + guard, facts), above)
    made: list[For] = []
    for v, f in reversed(list(zip(vars_[1:], inner, strict=True))):
        body = For(v, zero(), Const(f, i64), "serial", body, span=loop.span)
        made.append(body)
    made.append(For(vars_[0], zero(), count, "serial", body, span=loop.span))
    return made[::-1]


def guarded(edit: Edit, body: Stmt, position: Expr, stop: Expr, above: list[Var]) -> Stmt:
    """`body` where position < stop: as a predicate of its blocks where their iterators can tell, else under an if."""
    if bare_statement(body) is not None or any(isinstance(s, Let) for s in walk_stmts(body)):
        return If(position < stop, body)

    def add(s: Stmt) -> Stmt:
        new = map_children(s, add) if not isinstance(s, Block) else _guarded_block(s, position, stop, [*above, *_vars(body)])
        if new is not s:
            edit.moved[s] = new.then if isinstance(new, If) and isinstance(s, Block) else new
        return new

    return add(body)


def _vars(s: Stmt) -> list[Var]:
    return [x.var for x in loops_in(s)]


def _guarded_block(b: Block, position: Expr, stop: Expr, loops: list[Var]) -> Stmt:
    for i in b.iters:
        offset = simplify(i.value - position)
        if free_vars(offset).isdisjoint(loops) and free_vars(stop).isdisjoint(loops):
            return b.with_(predicate=all_of(b.predicate, i.var < simplify(stop + offset)))
    bound = rebound_over(b, loops)
    if bound is not None:
        condition = substitute(position < stop, bound.iters)
        if free_vars(condition).isdisjoint(loops):
            return bound.block.with_(predicate=all_of(bound.block.predicate, condition))
    return If(position < stop, b)


def _balance(func: Func, loop: For, inner: Sequence[int], size: int, extent: Expr) -> tuple[Func, Forward]:
    """The loop over whole tiles, and for each smaller size a loop over its tiles."""
    facts = facts_at(func, loop)
    rest = simplify(extent % size, facts)
    edit = Edit(func)
    pairs = all_of(Const(size, i64) <= extent, zero() < rest, rest < size - 1)
    main = simplify(extent // size, facts)
    new = _nest(edit, loop, inner, main - Select(pairs, Const(1, i64), zero()) if size > 2 else main, size, None, facts)
    names = block_names(func)
    tails: list[Stmt] = []
    for t in range(size - 1, 0, -1):
        outer = For(Var(f"{loop.var.name}_t"), zero(), _tile_count(t, size, extent, rest), "serial", loop.body, span=loop.span)
        start = loop.stop - _tile_distance(t, size, extent, rest) + outer.var * t
        tails.append(outer.with_(body=_tail(func, loop, start, Const(t, i64), names, f"_tail{t}")))
    edit.replace(loop, seq(new[0], *tails))
    edit.move(loop, new[0])
    return edit.done(made=tuple(new))


def _tile_count(t: int, size: int, extent: Expr, rest: Expr) -> Expr:
    """How many tiles of `t` iterations come after the whole ones: size + rest = t + t, t + (t - 1) or (t + 1) + t, or the rest alone."""
    alone: Expr = Select(Eq(rest, Const(t, i64)), Const(1, i64), zero())
    paired: Expr = zero()
    for r, n in ((2 * t + 1 - size, 1), (2 * t - 1 - size, 1), (2 * t - size, 2)):
        if 1 <= r <= size - 2:
            paired = Select(Eq(rest, Const(r, i64)), Const(n, i64), paired)
    if t == size - 1:  # (t + 1) + t is a whole tile and the rest alone
        paired = Select(Eq(rest, Const(t, i64)), Const(1, i64), paired)
    return Select(extent < size, alone, paired)


def _tile_distance(t: int, size: int, extent: Expr, rest: Expr) -> Expr:
    """How far before the end the first tile of `t` iterations begins."""
    paired: Expr = Const(t, i64)
    for r, n in ((2 * t - 1 - size, 2 * t - 1), (2 * t - size, 2 * t)):
        if 1 <= r <= size - 2:
            paired = Select(Eq(rest, Const(r, i64)), Const(n, i64), paired)
    return Select(extent < size, Const(t, i64), paired) if isinstance(paired, Select) else paired


def _tail(func: Func, loop: For, base: Expr, extent: Expr, names: set[str], suffix: str) -> For:
    copier = Copier(names, suffix)
    copy = copier.copy(loop)
    assert isinstance(copy, For)
    var = Var(f"{loop.var.name}_r")
    at: Expr = base if isinstance(extent, Const) and extent.value == 1 else base + var
    copy = For(var, zero(), extent, "serial", Mover({}, {copy.var: at}).stmt(copy.body), span=loop.span)
    later = {new for old, new in zip(blocks(loop), blocks(copy), strict=True) if fed_by(old, loop) - {"S"}}
    return _without_inits(copy, later) if later else copy


def _without_inits(s: For, later: set[Block]) -> For:
    """The main loop has begun the reductions of these blocks already."""
    edit = Edit(Func("", (), s))
    for b in later:
        edit.replace(b, b.with_(init=None))
    body = edit.done()[0].body
    assert isinstance(body, For)
    return body


@legal
def partition(func: Func, loop: For) -> tuple[Func, Forward]:
    """Cut a loop where the predicates of its blocks stop to hold everywhere: a main loop without them, and the rest (`…_rest`).

        for i in range((n + 3) // 4):
            for j in range(4):
                with block("w", "S", i * 4 + j) as vi:
                    where(vi < n)
                    w[vi] = v[vi] * 2.0

    -> `s.partition(i)`

        for i, j in grid(n // 4, 4):
            with block("w", "S", i * 4 + j) as vi:
                w[vi] = v[vi] * 2.0
        for i in range(n // 4, (n + 3) // 4):
            for j in range(4):
                with block("w_rest", "S", i * 4 + j) as vi:
                    where(vi < n)
                    w[vi] = v[vi] * 2.0
    """
    what = f"cannot partition loop `{loop.var.name}`"
    _check_serial(func, loop, "partition")
    found = [c for b in blocks(loop.body) for c in conjuncts(predicate_over_loops(b)) if loop.var in free_vars(c)]
    begun = next((b for b in blocks(loop.body) if b.init is not None and fed_by(b, loop) - {"S"}), None)
    if not found or begun is not None:
        raise refuse(
            f"{what}: " + ("no predicate depends on it" if not found else f"block `{begun.name if begun else ''}` has an init"),
            func,
            (loop, "this loop"),
            help="" if not found else "decompose_reduction takes the init out",
        )
    at: Expr = loop.stop
    outside = facts_at(func, loop)
    inside = outside
    for x in loops_in(loop):
        inside = loop_facts(inside, x)
    for c in found:
        first = _first_failure(c, loop.var, {x.var for x in loops_in(loop.body)}, inside)
        if first is None:
            raise refuse(f"{what}: no bound on `{loop.var.name}` is known from which on {c} may fail", func, (loop, "this loop"))
        at = Min(at, first) if not prove(first <= at, outside) else first
    at = simplify(Max(at, loop.start), outside)
    edit = Edit(func)
    main = For(loop.var, loop.start, at, "serial", loop.body, loop.annotations, loop.span)
    facts = loop_facts(outside, main)

    def relieved(s: Stmt, facts: Facts) -> Stmt:
        if isinstance(s, For):
            facts = loop_facts(facts, s)
        if isinstance(s, Block):
            values = {i.var: i.value for i in s.iters}
            new: Stmt = s.with_(predicate=all_of(*(c for c in conjuncts(s.predicate) if not prove(substitute(c, values), facts))))
        else:
            new = map_children(s, lambda x: relieved(x, facts))
        edit.moved[s] = new
        return new

    main = main.with_(body=relieved(loop.body, facts))
    rest = Copier(block_names(func), "_rest").copy(loop)
    assert isinstance(rest, For)
    rest = rest.with_(start=at)
    edit.replace(loop, seq(main, rest))
    edit.move(loop, main)
    return edit.done(made=(main, rest))


def _first_failure(condition: Expr, v: Var, inner: set[Var], facts: Facts) -> Expr | None:
    """The smallest value of `v` for which `condition`, which is c*v + rest < limit, may fail."""
    if not isinstance(condition, (Lt, Le)):
        return None
    a, b = condition.args
    c = linear(simplify(a - b, facts), v)
    if c is None or set(c[0]) != {()} or c[0][()] < 1:
        return None
    step = c[0][()]
    loose = {m: k for m, k in c[1].items() if any(free_vars(x) & inner for x in m)}
    most = poly_interval(loose, facts)[1]
    fixed = to_expr({m: -k for m, k in c[1].items() if m not in loose}, i64)
    slack = fixed - most - (0 if isinstance(condition, Le) else 1)
    return simplify((slack + step) // step, facts)


@legal
def fuse(func: Func, *loops: For) -> tuple[Func, Forward]:
    """Join perfectly nested loops into one; the outer one advances when the inner one has gone through.

    The new loop runs over the product of the extents; `i` becomes `f // m`, `j` becomes `f % m`.

        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    -> `s.fuse(i, j)`

        for i_j in range(m * n):
            with block("y", "SS", i_j // m, i_j % m) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0
    """
    if len(loops) < 2:
        raise refuse("cannot fuse fewer than two loops", func, *((x, "") for x in loops))
    for x in loops:
        _check_serial(func, x, "fuse")
    for outer, inner in itertools.pairwise(loops):
        if outer.body is not inner:
            raise refuse(
                f"cannot fuse loops `{outer.var.name}` and `{inner.var.name}`: the inner one is not all of the outer one's body",
                func,
                (outer, "outer"),
                (inner, "inner"),
                help="reorder brings loops of one nest next to each other",
            )
        for x in loops:
            if x.var in free_vars(inner.start) | free_vars(inner.stop):
                raise refuse(
                    f"cannot fuse loops `{outer.var.name}` and `{inner.var.name}`: the inner extent depends on `{x.var.name}`",
                    func,
                    (inner, f"extent {inner.extent}"),
                )
    for b in blocks(loops[-1].body):
        if b.init is not None and len({k for x in loops for k in fed_by(b, x)}) > 1:
            raise refuse(
                f"cannot fuse loops that feed S and R iterators of block `{b.name}`: its init would not run where the reduction is empty",
                func,
                *((x, f"feeds {', '.join(sorted(fed_by(b, x)))}") for x in loops),
                help="decompose_reduction takes the init out",
            )
    edit = Edit(func)
    extents = [simplify(x.extent, facts_at(func, x)) for x in loops]
    for x, e in zip(loops, extents, strict=True):
        if not prove(zero() <= e, facts_at(func, loops[0])):
            raise refuse(f"cannot fuse loop `{x.var.name}`: its extent may be negative", func, (x, f"extent {e}"))
    var = Var("_".join(x.var.name for x in loops))
    stop = simplify(product(tuple(extents)), facts_at(func, loops[0]))
    facts = facts_at(func, loops[0]).with_range(var, 0, stop - 1)
    values: dict[Var, Expr] = {}
    rest: Expr = var
    for x, e in zip(reversed(loops[1:]), reversed(extents[1:]), strict=True):
        values[x.var] = simplify(x.start + rest % e, facts)
        rest = rest // e
    values[loops[0].var] = simplify(loops[0].start + rest, facts)
    new = For(var, zero(), stop, "serial", Mover(edit.moved, values).stmt(loops[-1].body), span=loops[0].span)
    edit.replace(loops[0], new)
    for x in loops:
        edit.move(x, new)
    return edit.done(made=(new,))


@legal
def reorder(func: Func, *loops: For) -> tuple[Func, Forward]:
    """Put loops of one nest into the given order, outermost first; loops between them that are not named stay where they are.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.reorder(k, i)`

        for k, j, i in grid(8, 16, n):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]
    """
    chain = _chain(func, loops)
    named = [x for x in chain if x in loops]
    order = iter(loops)
    wanted = [next(order) if x in loops else x for x in chain]
    seen: set[Var] = {x.var for x in chain}
    for x in wanted:
        inner = (free_vars(x.start) | free_vars(x.stop)) & seen
        if inner:
            raise refuse(
                f"cannot reorder: the range of loop `{x.var.name}` depends on `{next(iter(inner)).name}`, which would be inside of it",
                func,
                (x, f"range {x.start}..{x.stop}"),
            )
        seen.discard(x.var)
    rounding = _check_order(func, chain, wanted, named)
    edit = Edit(func)
    body: Stmt = chain[-1].body
    for x in reversed(wanted):
        body = x.with_(body=body)
        edit.move(x, body)
    edit.replace(chain[0], body)
    made = tuple(edit.moved[x] for x in loops)
    return edit.done(made=made, rounding=rounding)


def _chain(func: Func, loops: Sequence[For]) -> list[For]:
    """The loops from the outermost to the innermost of `loops`, each the only statement of the one before."""
    if len(set(loops)) != len(loops) or not loops:
        raise refuse("cannot reorder: give each loop once", func, *((x, "") for x in dict.fromkeys(loops)))
    depth = {x: len(loops_above(func, x)) for x in loops}
    by_depth = sorted(loops, key=lambda x: depth[x])
    chain = [by_depth[0]]
    while chain[-1] is not by_depth[-1]:
        body = chain[-1].body
        if not isinstance(body, For):
            raise refuse(
                f"cannot reorder: loops `{by_depth[0].var.name}` and `{by_depth[-1].var.name}` are not one nest",
                func,
                *((x, "") for x in loops),
                facts=[f"the body of `{chain[-1].var.name}` is not one loop"],
            )
        chain.append(body)
    missing = [x for x in loops if x not in chain]
    if missing:
        raise refuse(f"cannot reorder: loop `{missing[0].var.name}` is not in the nest of `{by_depth[0].var.name}`", func, (missing[0], ""))
    return chain


def _check_order(func: Func, before: list[For], after: list[For], named: list[For]) -> str:
    """Refuse an order that changes the meaning; say how one changes the rounding."""
    inside = blocks(before[-1].body)
    moved = [x for n, x in enumerate(before) if after[n] is not x]
    if not moved:
        return ""
    if len(inside) != 1 or bare_statement(before[-1].body) is not None:
        for x in moved:
            found = cross_dependence(func, x) if len(inside) > 1 else Conflict(x, "its body is not made of blocks")
            if found is not None:
                raise refuse(f"cannot reorder loop `{x.var.name}`: {found.reason}", func, (x, "this loop"), (found.at, "here"))
    rounding = ""
    for b in inside:
        feeding = [x for x in before if fed_by(b, x) - {"S"}]
        if feeding == [x for x in after if x in feeding]:
            continue
        if any("O" in fed_by(b, x) for x in feeding):
            raise refuse(f"cannot reorder: block `{b.name}` has an ordered iterator", func, (b, "its instances keep their order"))
        rounding = rounding or reassociation(func, b)
    return rounding


def reassociation(func: Func, b: Block) -> str:
    """What another order of a block's reduction does to its results, "" when nothing; refused where the block forbids it."""
    for s in walk_stmts(b.body):
        exact = not isinstance(s, (Reduce, Store)) or (
            isinstance(s, Reduce)
            and (s.combiner.name in ("min", "max", "and", "or") or all(not t.dtype.is_float for t in s.targets))
            and not s.combiner.left
        )
        if not exact:
            if not b.annotations.get("reassociate", True):
                raise refuse(
                    f"cannot change the order in which block `{b.name}` sums: it is annotated reassociate=False", func, (b, "this block")
                )
            return f"block `{b.name}` sums in another order"
    return ""


@legal
def unroll(func: Func, loop: For) -> tuple[Func, Forward]:
    """Unroll a loop of constant extent.

        for i, j, k in grid(n, 16, 8):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]

    -> `s.unroll(k)`

        for i, j in grid(n, 16):
            for k in unroll(8):
                with block("c", "SSR", i, j, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0.0
                    c[vi, vj] += a[vi, vk] * b[vk, vj]
    """
    extent = constant_extent(func, loop)
    if extent is None or extent > MAX_UNROLL:
        raise refuse(
            f"cannot unroll loop `{loop.var.name}`: its extent is {'not a constant' if extent is None else f'more than {MAX_UNROLL}'}",
            func,
            (loop, f"extent {loop.extent}"),
            help="split the loop by a small constant and unroll the inner one",
        )
    return _with_kind(func, loop, "unroll")


@legal
def vectorize(func: Func, loop: For) -> tuple[Func, Forward]:
    """Run the iterations of an innermost loop as lanes of vectors; a dynamic extent is strip-mined with a masked tail.

        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    -> `s.vectorize(j)`

        for i in range(n):
            for j in vector(m):
                with block("y", "SS", i, j) as (vi, vj):
                    y[vi, vj] = x[vi, vj] * 2.0
    """
    if loops_in(loop.body) or any(isinstance(s, For) for b in blocks(loop.body) for s in walk_stmts(b)):
        raise refuse(
            f"cannot vectorize loop `{loop.var.name}`: there are loops inside of it",
            func,
            (loop, "this loop"),
            help="reorder it to the innermost place",
        )
    _check_independent(func, loop, "vectorize")
    return _with_kind(func, loop, "vector")


@legal
def parallel(func: Func, loop: For, grain: int | Expr | None = None) -> tuple[Func, Forward]:
    """Run the iterations of a loop on the threads; `grain` iterations at least are handed out together.

        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    -> `s.parallel(i, grain=8)`

        for i in parallel(n, grain=8):
            for j in range(m):
                with block("y", "SS", i, j) as (vi, vj):
                    y[vi, vj] = x[vi, vj] * 2.0
    """
    nested = next((x for x in (*loops_above(func, loop), *loops_in(loop.body)) if x.kind == "parallel"), None)
    outside = next((x for x in loops_above(func, loop) if x.kind in ("vector", "unroll")), None)
    if nested is not None or outside is not None:
        other = nested or outside
        assert other is not None
        raise refuse(
            f"cannot run loop `{loop.var.name}` in parallel: loop `{other.var.name}` is {other.kind} already",
            func,
            (loop, "this loop"),
            (other, f"{other.kind} already"),
            help="fuse the two loops and make the result parallel" if nested else "",
        )
    _check_independent(func, loop, "run in parallel")
    annotations = dict(loop.annotations) if grain is None else {**loop.annotations, "grain": grain}
    return _with_kind(func, loop, "parallel", annotations)


@legal
def annotate(func: Func, at: For | Block, key: str, value: Any) -> tuple[Func, Forward]:
    """Attach a remark to a loop or a block; None takes it away.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0

    -> `s.annotate("w", "hint", 1)`

        for i in range(n):
            with block("w", "S", i) as vi:
                annotate(hint=1)
                w[vi] = v[vi] * 2.0
    """
    annotations = {k: v for k, v in at.annotations.items() if k != key} | ({} if value is None else {key: value})
    edit = Edit(func)
    new = at.with_(annotations=annotations)
    edit.replace(at, new)
    edit.move(at, new)
    return edit.done()


def _with_kind(func: Func, loop: For, kind: str, annotations: dict[str, Any] | None = None) -> tuple[Func, Forward]:
    _check_serial(func, loop, {"unroll": "unroll", "vector": "vectorize"}.get(kind, "run in parallel"))
    edit = Edit(func)
    new = loop.with_(kind=kind, annotations=dict(loop.annotations) if annotations is None else annotations)
    edit.replace(loop, new)
    edit.move(loop, new)
    return edit.done()


def _check_serial(func: Func, loop: For, verb: str) -> None:
    if loop.kind != "serial":
        raise refuse(f"cannot {verb} loop `{loop.var.name}`: it is {loop.kind}, not serial", func, (loop, f"{loop.kind}"))


def _check_independent(func: Func, loop: For, verb: str) -> None:
    found = dependence(func, loop)
    if found is not None:
        raise refuse(f"cannot {verb} loop `{loop.var.name}`: {found.reason}", func, (loop, "this loop"), (found.at, "here"))
