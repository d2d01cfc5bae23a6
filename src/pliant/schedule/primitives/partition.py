"""Loop partitioning: cuts a loop into consecutive loops where predicates become false (partition), or by lengths (loop_partition).

    for i in range(n)        ->        for i in range(min(2, n)); for i in range(min(2, n), …); …

The pieces run in the order of the loop, so iterations need not be independent. Of the pieces of a reduction, only the first has the init.
"""

from __future__ import annotations

import itertools

from ...dtype import i64
from ...loop.analysis.nests import block_names, blocks, facts_at, fed_by, loop_facts, loops_above, loops_in, predicate_over_loops
from ...loop.stmt import Block, For, Func, Stmt, map_children, seq
from ...sym.bounds import poly_interval
from ...sym.conditions import all_of, conjuncts
from ...sym.expr import Expr, Le, Lt, Max, Min, Var, free_vars, substitute
from ...sym.facts import Facts
from ...sym.poly import to_expr
from ...sym.prove import prove, prove_equal
from ...sym.simplify import simplify
from ..cursor import Copier, Edit, Forward
from ..dependence import bare_statement, linear
from ..errors import check_serial, refuse
from ..invariants import legal
from ..tile import rebound_over
from .split import is_factor, without_inits


@legal
def loop_partition(func: Func, loop: For, *lengths: int | None) -> tuple[Func, Forward]:
    """Cut a loop into consecutive loops of the given lengths; None (at most one) takes what the others leave.

    If the loop may have fewer iterations than the lengths, the pieces before the rest take theirs first. The blocks of all pieces but the
    first are called `…_part1`, …. A predicate is dropped from a piece whose range proves it. Raises a ScheduleError if the lengths do not
    fit the extent.

        for i in range(n):
            for k in range(8):
                with block("w", "SR", i, k) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += a[vi, vk]

    -> `s.loop_partition(k, 2, None, 1)`

        for i in range(n):
            for k in range(2):
                with block("w", "SR", i, k) as (vi, vk):
                    with init():
                        w[vi] = 0.0
                    w[vi] += a[vi, vk]
            for k in range(2, 7):
                with block("w_part1", "SR", i, k) as (vi, vk):
                    w[vi] += a[vi, vk]
            for k in range(7, 8):
                with block("w_part2", "SR", i, k) as (vi, vk):
                    w[vi] += a[vi, vk]
    """
    what = f"cannot partition loop `{loop.var.name}` into pieces of {', '.join(map(str, lengths)) or 'no length'}"
    check_serial(func, loop, "partition")
    if len(lengths) < 2 or lengths.count(None) > 1 or not all(n is None or is_factor(n) for n in lengths):
        hint = "None as one of the lengths is what remains"
        raise refuse(f"{what}: two or more positive numbers are expected, or None once", func, (loop, "this loop"), help=hint)
    facts = facts_at(func, loop)
    points = _points(loop, lengths, facts)
    if None not in lengths and not prove_equal(points[-1], loop.stop, facts):
        raise refuse(
            f"{what}: they are {sum(n or 0 for n in lengths)} iterations together",
            func,
            (loop, f"extent {loop.extent}"),
            help="None as one of the lengths is what remains",
        )
    points[-1] = loop.stop
    empty = next((n for n, (a, b) in zip(lengths, itertools.pairwise(points), strict=True) if prove_equal(a, b, facts)), 0)
    if empty != 0:  # copies of all blocks that never run can only be a mistake
        raise refuse(f"{what}: nothing would be left for the piece {empty}", func, (loop, f"extent {loop.extent}"))
    edit = Edit(func)
    names = block_names(func)
    pieces: list[For] = []
    for k, (start, stop) in enumerate(itertools.pairwise(points)):
        whole = loop
        if k > 0:
            copy = Copier(names, f"_part{k}").copy(loop)
            assert isinstance(copy, For)
            begun = {new for old, new in zip(blocks(loop), blocks(copy), strict=True) if fed_by(old, loop) and "S" not in fed_by(old, loop)}
            whole = without_inits(copy, begun) if begun else copy
        piece = whole.with_(start=start, stop=stop)
        pieces.append(piece.with_(body=_relieved(piece.body, loop_facts(facts, piece), edit.moved)))
    edit.replace(loop, seq(*pieces))
    edit.move(loop, pieces[0])
    return edit.done(made=tuple(pieces))


def _points(loop: For, lengths: tuple[int | None, ...], facts: Facts) -> list[Expr]:
    """Return where the pieces begin and where the last one ends; they stay within the loop and in order, even if it is shorter."""
    points: list[Expr] = [loop.start]
    total = 0
    for k, n in enumerate(lengths):
        if n is None or None in lengths[:k]:
            after = sum(m for m in lengths[k + 1 :] if m is not None)
            end = simplify(Max(points[-1], loop.stop - after), facts)
        else:
            total += n
            end = simplify(Min(loop.start + total, loop.stop), facts)
        points.append(end)
    return points


def _relieved(s: Stmt, facts: Facts, moved: dict[Stmt, Stmt]) -> Stmt:
    """Return a copy of a statement whose outermost blocks have lost the conjuncts of their predicates that provably hold in every instance.

    `moved` gets the new version of each statement down to these blocks, also where nothing is dropped.
    """
    if isinstance(s, For):
        facts = loop_facts(facts, s)
    if isinstance(s, Block):
        values = {i.var: i.value for i in s.iters}
        new: Stmt = s.with_(predicate=all_of(*(c for c in conjuncts(s.predicate) if not prove(substitute(c, values), facts))))
    else:
        new = map_children(s, lambda x: _relieved(x, facts, moved))
    moved[s] = new
    return new


@legal
def partition(func: Func, loop: For) -> tuple[Func, Forward]:
    """Peel off the iterations where predicates of blocks may fail: a main loop without predicates, and the remainder (`…_rest`).

    There is no remainder if no block would run in it: a loop whose variable alone decides simply ends earlier.

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
    check_serial(func, loop, "partition")
    conditions = [c for b in blocks(loop.body) for c in conjuncts(predicate_over_loops(b)) if loop.var in free_vars(c)]
    begun = next((b for b in blocks(loop.body) if b.init is not None and fed_by(b, loop) - {"S"}), None)
    if not conditions or begun is not None:
        raise refuse(
            f"{what}: " + ("no predicate depends on it" if not conditions else f"block `{begun.name if begun else ''}` has an init"),
            func,
            (loop, "this loop"),
            help="" if not conditions else "decompose_reduction takes the init out",
        )
    at: Expr = loop.stop
    outside = facts_at(func, loop)
    inside = outside
    for x in loops_in(loop):
        inside = loop_facts(inside, x)
    inner = {x.var for x in loops_in(loop.body)}
    for c in conditions:
        first = _first_failure(c, loop.var, inner, inside)
        if first is None:
            raise refuse(f"{what}: no bound on `{loop.var.name}` is known from which on {c} may fail", func, (loop, "this loop"))
        at = Min(at, first) if not prove(first <= at, outside) else first
    ends = _ends_there(loop)
    at = simplify(at if ends else Max(at, loop.start), outside)
    edit = Edit(func)
    main = For(loop.var, loop.start, at, "serial", loop.body, loop.annotations, loop.span)
    main = main.with_(body=_relieved(loop.body, loop_facts(outside, main), edit.moved))
    edit.move(loop, main)
    if ends:
        edit.replace(loop, main)
        return edit.done(made=(main,))
    rest = Copier(block_names(func), "_rest").copy(loop)
    assert isinstance(rest, For)
    rest = rest.with_(start=at, stop=_last_end(loop, inner, inside, outside))
    above = [x.var for x in loops_above(func, loop)]
    # If the start of the rest depends on outer loops, iterator bindings that add both cannot be proved independent: bind loops instead.
    if not free_vars(at).isdisjoint(above):
        rest = rest.with_(body=_over_loops(rest.body, [*above, rest.var]))
    edit.replace(loop, seq(main, rest))
    return edit.done(made=(main, rest))


def _over_loops(s: Stmt, loops: list[Var]) -> Stmt:
    """Return a statement whose blocks have one iterator for each loop around them, where that is possible."""
    if isinstance(s, Block):
        bound = rebound_over(s, loops)
        return s if bound is None else bound.block
    inside = [*loops, s.var] if isinstance(s, For) else loops
    return map_children(s, lambda x: _over_loops(x, inside))


def _ends_there(loop: For) -> bool:
    """True if no block runs after the first failure: all blocks have the same conditions, and inner loops do not change them."""
    if bare_statement(loop.body) is not None or any(_begins_anyway(b) for b in blocks(loop.body)):
        return False
    inner = {x.var for x in loops_in(loop.body)}
    own = [{c for c in conjuncts(predicate_over_loops(b)) if loop.var in free_vars(c)} for b in blocks(loop.body)]
    return all(o == own[0] and all(inner.isdisjoint(free_vars(c)) for c in o) for o in own)


def _begins_anyway(b: Block) -> bool:
    """True if a block's init runs even where its predicate is false for every point of its reduction."""
    steps = {i.var for i in b.iters if i.kind != "S"}
    return b.init is not None and not free_vars(b.predicate).isdisjoint(steps)


def _last_end(loop: For, inner: set[Var], inside: Facts, outside: Facts) -> Expr:
    """Return an end of the loop after which no block can run; the loop's own end if none is known."""
    if bare_statement(loop.body) is not None or any(_begins_anyway(b) for b in blocks(loop.body)):
        return loop.stop
    ends: set[Expr] = set()
    for b in blocks(loop.body):
        own = [c for c in conjuncts(predicate_over_loops(b)) if loop.var in free_vars(c)]
        failures = [e for c in own if (e := _first_failure(c, loop.var, inner, inside, always=True)) is not None]
        ends.add(failures[0] if len(failures) == 1 else loop.stop)
    end = ends.pop()
    return loop.stop if ends or prove(loop.stop <= end, outside) else simplify(Min(loop.stop, end), outside)


def _first_failure(condition: Expr, v: Var, inner: set[Var], facts: Facts, always: bool = False) -> Expr | None:
    """Return the smallest `v` for which `condition`, c*v + rest < limit, may be false (with `always`: must be); None if unknown."""
    if not isinstance(condition, (Lt, Le)):
        return None
    a, b = condition.args
    c = linear(simplify(a - b, facts), v)
    if c is None or set(c[0]) != {()} or c[0][()] < 1:
        return None
    step = c[0][()]
    loose = {m: k for m, k in c[1].items() if any(free_vars(x) & inner for x in m)}
    reach = poly_interval(loose, facts)[0 if always else 1]
    fixed = to_expr({m: -k for m, k in c[1].items() if m not in loose}, i64)
    slack = fixed - reach - (0 if isinstance(condition, Le) else 1)
    return simplify((slack + step) // step, facts)
