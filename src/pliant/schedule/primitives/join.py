"""join: fuses two neighboring loops over the same range into one (loop fusion).

The second loop then uses what the first leaves in registers or in the L1 cache at once, instead of after a whole pass.
"""

from __future__ import annotations

from ...loop.analysis.nests import accesses, blocks, facts_at, index
from ...loop.stmt import Alloc, Block, For, Func, Seq, Stmt, children, seq
from ...sym.prove import prove_equal
from ..cursor import EMPTY, Edit, Forward, Mover
from ..dependence import backward_dependence
from ..errors import check_serial, refuse
from ..invariants import legal


@legal
def join(func: Func, first: For, second: For) -> tuple[Func, Forward]:
    """Fuse two loops over the same range: each iteration runs the first loop's body, then the second's.

    The loops must be in one sequence; statements between them move before both.

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


def _check_between(func: Func, first: For, second: For, what: str) -> None:
    """Raise unless the loops are in one sequence, in this order, and the first can run after the statements between them."""
    above = index(func.body).parents
    scope = above.get(first)
    if not isinstance(scope, Seq) or above.get(second) is not scope or scope.body.index(first) >= scope.body.index(second):
        raise refuse(f"{what}: they do not stand in one sequence, the first before the second", func, (first, "first"), (second, "second"))
    between = scope.body[scope.body.index(first) + 1 : scope.body.index(second)]
    if not all(map(_is_nest, (first, *between, second))):
        raise refuse(f"{what}: there are other statements than loops and blocks", func, (first, "from here"), (second, "to here"))
    mine = [a for b in blocks(first) for a in accesses(b)]
    for b in (b for s in between for b in blocks(s)):
        used = next((a.buffer for a in accesses(b) for x in mine if a.buffer is x.buffer and (a.write or x.write)), None)
        if used is not None:
            places = (b, "between them"), (first, "uses it")
            raise refuse(f"{what}: block `{b.name}`, which is between them, uses `{used.name}`", func, *places)


def _is_nest(s: Stmt) -> bool:
    """True if a statement consists only of loops and blocks, so that all its accesses are known."""
    return isinstance(s, Block | Alloc) or (isinstance(s, For | Seq) and all(map(_is_nest, children(s))))
