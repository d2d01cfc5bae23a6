"""Turns the workspace allocations of a loop program into parameters, so that the host program's memory plan places them.

    def f(x, y):                                def f(x, y, t):                    # t: out
        t = alloc((n,), f32, "workspace")   ->      for i in range(n): t[i] = …
        for i in range(n): t[i] = …

An allocation inside parallel loops needs separate memory per iteration. The parameter then has a leading dimension for each of these
loops, and the program is lowered to plain loops: a block cannot hold a view that changes with an outer loop variable.
"""

from __future__ import annotations

from ...loop.buffer import Buffer
from ...loop.passes.lower_blocks import lower_blocks
from ...loop.stmt import Alloc, For, Func, Param, Replacer, Seq, Stmt, View, map_children, seq, walk_stmts
from ...support.errors import UnsupportedError
from ...sym.expr import Const, free_vars, product


def lift_workspace(func: Func) -> tuple[Func, tuple[Buffer, ...]]:
    """Returns `func` with its workspace as additional `out` parameters, and the buffers of these parameters.

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
        if isinstance(s, For) and s.kind == "parallel":
            around = (*around, s)
        return map_children(s, lambda x: visit(x, around))

    if any(s.kind == "parallel" and any(map(_is_workspace, walk_stmts(s))) for s in walk_stmts(func.body) if isinstance(s, For)):
        func = lower_blocks(func)
    body = seq(visit(func.body, ()))
    if not scratch:
        return func, ()
    params = (*func.params, *(Param(b, "out") for b in scratch))
    return func.with_(params=params, body=Replacer(buffers=lifted).stmt(body)), tuple(scratch)


def _is_workspace(s: Stmt) -> bool:
    return isinstance(s, Alloc) and s.buffer.scope == "workspace"
