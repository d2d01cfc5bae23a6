"""Turns the workspace allocations of a loop program into parameters, so that the host program's memory plan places them.

    def f(x, y):                                def f(x, y, t):                    # t: out
        t = alloc((n,), f32, "workspace")   ->      for i in range(n): t[i] = …
        for i in range(n): t[i] = …

An allocation inside parallel loops needs separate memory per iteration. The parameter then has a leading dimension for each of these
loops, and the program is lowered to plain loops: a block cannot hold a view that changes with an outer loop variable. A loop with the
annotation `workspaces` runs groups of iterations, and iterations of one group share their memory.
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.buffer import Buffer
from ...loop.passes.lower_blocks import lower_blocks
from ...loop.stmt import Alloc, For, Func, Param, Replacer, Seq, Stmt, View, map_children, seq, walk_stmts
from ...support.errors import UnsupportedError
from ...sym.expr import Const, Max, Min, Var, free_vars, product
from ...sym.simplify import simplify


def lift_workspace(func: Func) -> tuple[Func, tuple[Buffer, ...]]:
    """Returns `func` with its workspace as additional `out` parameters, and the buffers of these parameters.

    Workspace that a parallel loop allocates has a part for each iteration, or for each group if the loop is annotated with `workspaces`.
    Raises UnsupportedError if a workspace size depends on a value known only inside the loops.
    """
    scratch: list[Buffer] = []
    lifted: dict[Buffer, Buffer] = {}
    known = {*func.symbols, *func.scalars}

    def visit(s: Stmt, around: tuple[For, ...]) -> Stmt:
        if isinstance(s, Alloc) and _is_workspace(s):
            b = s.buffer
            own = b.shape
            if around and b.dtype.bits < 8:  # parallel iterations must not share a byte, so each part is rounded up to whole bytes
                per = b.dtype.per_byte
                own = (((product(b.shape) + (per - 1)) // per) * per,)
            whole = Buffer(b.name, b.dtype, (*(loop.extent for loop in around), *own))
            scratch.append(whole)
            unknown = [v for e in whole.shape for v in free_vars(e) if v not in known]
            if unknown:
                raise UnsupportedError(
                    f"`{b.name}` has a size that is known only while `{func.name}` runs: it depends on `{unknown[0].name}`",
                    where=s.span or func.span,
                    help="allocate it outside of loops, with a size in terms of dims",
                )
            lifted[b] = Buffer(b.name, b.dtype, b.shape, b.strides) if around else whole
            start = (*(loop.var - loop.start for loop in around), *(Const(0, e.dtype) for e in own))
            return View(lifted[b], whole, start, s.span) if around else Seq(())
        if isinstance(s, For) and s.kind == "parallel" and any(map(_is_workspace, walk_stmts(s))):
            s = _grouped(s)
            around = (*around, s)
        return map_children(s, lambda x: visit(x, around))

    if any(s.kind == "parallel" and any(map(_is_workspace, walk_stmts(s))) for s in walk_stmts(func.body) if isinstance(s, For)):
        func = lower_blocks(func)
    body = seq(visit(func.body, ()))
    if not scratch:
        return func, ()
    params = (*func.params, *(Param(b, "out") for b in scratch))
    return func.with_(params=params, body=Replacer(buffers=lifted).stmt(body)), tuple(scratch)


def _grouped(s: For) -> For:
    """Returns a parallel loop over at most as many groups of iterations as its annotation `workspaces` allows; itself if it has none.

        for i in parallel(n, workspaces=16):            size = max((n + 15) // 16, 1)
            …                                   ->      for group in parallel((n + size - 1) // size):
                                                            for i in range(group * size, min(group * size + size, n)):
                                                                …

    Iterations of a group run one after the other, in one workspace that stays in the cache.
    """
    most = s.annotations.get("workspaces")
    if most is None:
        return s
    size = simplify(Max((s.extent + (most - 1)) // most, Const(1, i64)))
    group = Var(f"{s.var.name}_group")
    first = s.start + group * size
    inner = s.with_(start=first, stop=Min(first + size, s.stop), kind="serial", annotations={})
    rest = {k: v for k, v in s.annotations.items() if k != "workspaces"}
    return For(group, Const(0, i64), simplify((s.extent + (size - 1)) // size), "parallel", inner, rest)


def _is_workspace(s: Stmt) -> bool:
    return isinstance(s, Alloc) and s.buffer.scope == "workspace"
