"""join fuses two neighboring loops over the same range into one (loop fusion); fission cuts one loop into two (loop distribution).

    for i in range(n): A(i)
    for i in range(n): B(i)          <- join, fission ->          for i in range(n): A(i); B(i)

After join, B uses what A leaves in registers or in the L1 cache at once, instead of after a whole pass. After fission, each loop is
scheduled on its own: one is parallel or vector where the other cannot be, or both have fewer streams.
"""

from __future__ import annotations

from ...loop.analysis.nests import accesses, blocks, control_loads, facts_at, index
from ...loop.stmt import Alloc, Block, For, Func, Seq, Stmt, children, seq
from ...sym.expr import Var
from ...sym.prove import prove_equal
from ..cursor import EMPTY, Edit, Forward, Mover
from ..dependence import backward_dependence, contains_stmt
from ..errors import check_serial, refuse
from ..invariants import legal


@legal
def join(func: Func, first: For, second: For) -> tuple[Func, Forward]:
    """Fuse two loops over the same range: each iteration runs the first loop's body, then the second's.

    The loops must be in one sequence; statements between them move before both. Raises a ScheduleError if these conditions do not hold.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0
        for i_1, j in grid(n, 16):
            with block("c", "SS", i_1, j) as (vi, vj):
                c[vi, vj] = w[vi]

    -> `s.join(i, i_1)`

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0
            for j in range(16):
                with block("c", "SS", i, j) as (vi, vj):
                    c[vi, vj] = w[vi]
    """
    what = f"cannot join loops `{first.var.name}` and `{second.var.name}`"
    for x in (first, second):
        check_serial(func, x, "join")
    _check_between(func, first, second, what)
    facts = facts_at(func, first)
    if not prove_equal(first.start, second.start, facts) or not prove_equal(first.stop, second.stop, facts):
        ranges = ((x, f"range {x.start}..{x.stop}") for x in (first, second))
        raise refuse(f"{what}: they do not run over the same range", func, *ranges, help="split cuts loops to the same number of parts")
    edit = Edit(func)
    new = first.with_(body=seq(first.body, Mover(edit.moved, {second.var: first.var}).stmt(second.body)))
    edit.replace(first, EMPTY)
    edit.replace(second, new)
    edit.move(first, new)
    edit.move(second, new)
    result, forward = edit.done(made=(new,))
    early = blocks(first.body)
    late = [b for x in blocks(second.body) if isinstance(b := forward(x), Block)]
    conflict = backward_dependence(result, new, early, late)
    if conflict is not None:
        raise refuse(f"{what}: {conflict.reason}", func, (first, "this loop"), (second, "and this one"))
    return result, forward


@legal
def fission(func: Func, loop: For, after: Block | For) -> tuple[Func, Forward]:
    """Cut a loop into two: the first runs its body as far as `after`, for all iterations, and the second runs the rest.

    `after` is in the body of the loop, at any depth; the cut is behind the whole statement of the body that holds it.

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0
            for j in range(16):
                with block("c", "SS", i, j) as (vi, vj):
                    c[vi, vj] = w[vi]

    -> `s.fission(i, "w")`

        for i in range(n):
            with block("w", "S", i) as vi:
                w[vi] = v[vi] * 2.0
        for i, j in grid(n, 16):
            with block("c", "SS", i, j) as (vi, vj):
                c[vi, vj] = w[vi]
    """
    what = f"cannot cut loop `{loop.var.name}` after {f'loop `{after.var.name}`' if isinstance(after, For) else f'block `{after.name}`'}"
    check_serial(func, loop, "cut")
    body = loop.body.body if isinstance(loop.body, Seq) else (loop.body,)
    if not all(map(_is_nest, body)):
        raise refuse(f"{what}: there are other statements than loops and blocks in it", func, (loop, "this loop"))
    cut = next((n for n, s in enumerate(body, 1) if contains_stmt(s, after)), None)
    if cut is None or not any(blocks(s) for s in body[cut:]):
        reason = "it is not inside of the loop" if cut is None else "nothing comes after it"
        raise refuse(f"{what}: {reason}", func, (loop, "this loop"), (after, "after this"))
    early, late = ([b for s in part for b in blocks(s)] for part in (body[:cut], body[cut:]))
    front = {a.buffer for b in early for a in accesses(b)}
    behind = {a.buffer for b in late for a in accesses(b)}
    own = [s for s in body[:cut] if isinstance(s, Alloc) and s.buffer in behind]
    shared = next((s.buffer for s in own if s.buffer in front), None)
    if shared is not None:
        raise refuse(
            f"{what}: both parts use `{shared.name}`, which each iteration allocates",
            func,
            (loop, "this loop"),
            help="the second loop would need the buffers of all iterations: cut the loop before compact or cache_write puts one into it",
        )
    # The pairs whose order changes are those of join: an iteration of the rest, and a later one of the first part.
    conflict = backward_dependence(func, loop, early, late)
    if conflict is not None:
        raise refuse(f"{what}: {conflict.reason}", func, (loop, "this loop"), (conflict.at, "here"))
    edit = Edit(func)
    first = loop.with_(body=seq(*(s for s in body[:cut] if s not in own)))
    var = Var(loop.var.name, loop.var.dtype)
    rest = Mover(edit.moved, {loop.var: var}).stmt(seq(*own, *body[cut:]))
    second = loop.with_(var=var, body=rest)
    edit.replace(loop, seq(first, second))
    edit.move(loop, first)
    return edit.done(made=(first, second))


def _check_between(func: Func, first: For, second: For, what: str) -> None:
    """Raise unless the loops are in one sequence, in this order, and the first can run after the statements between them.

    These must be loops and blocks that use no buffer which the first loop writes, and write none which it uses.
    """
    above = index(func.body).parents
    scope = above.get(first)
    if not isinstance(scope, Seq) or above.get(second) is not scope or scope.body.index(first) >= scope.body.index(second):
        raise refuse(f"{what}: they do not stand in one sequence, the first before the second", func, (first, "first"), (second, "second"))
    between = scope.body[scope.body.index(first) + 1 : scope.body.index(second)]
    if not all(map(_is_nest, (first, *between, second))):
        raise refuse(f"{what}: there are other statements than loops and blocks", func, (first, "from here"), (second, "to here"))
    mine = [a for b in blocks(first) for a in accesses(b)]
    late = {b for s in between for b in control_loads(s)}
    early = control_loads(first)
    changed = next((a.buffer for a in mine if a.write and a.buffer in late), None)
    changed = changed or next((a.buffer for s in between for b in blocks(s) for a in accesses(b) if a.write and a.buffer in early), None)
    if changed is not None:
        raise refuse(f"{what}: the range of a loop reads `{changed.name}`, which is written between them", func, (first, "first"))
    for b in (b for s in between for b in blocks(s)):
        used = next((a.buffer for a in accesses(b) for x in mine if a.buffer is x.buffer and (a.write or x.write)), None)
        if used is not None:
            places = (b, "between them"), (first, "uses it")
            raise refuse(f"{what}: block `{b.name}`, which is between them, uses `{used.name}`", func, *places)


def _is_nest(s: Stmt) -> bool:
    """True if a statement consists only of loops and blocks, so that all its accesses are known."""
    return isinstance(s, Block | Alloc) or (isinstance(s, For | Seq) and all(map(_is_nest, children(s))))
