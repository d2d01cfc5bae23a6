"""Replaces a workspace buffer of a kernel by the output that its last block computes from it elementwise.

    e = alloc((n, m), f32, "workspace")                       for i in parallel(n):
    for i in parallel(n):                                         for j in vector(m): out[i, j] = exp(x[i, j])
        for j in vector(m): e[i, j] = exp(x[i, j])        ->      for j in range(m): total[i] += out[i, j]
        for j in range(m): total[i] += e[i, j]                    for j in vector(m): out[i, j] = out[i, j] / total[i]
        for j in vector(m): out[i, j] = e[i, j] / total[i]

The kernel then touches one buffer instead of two, so a row stays in the cache. This is legal if the last block reads the workspace at the
very index that it writes, all other accesses come before that block, and different iterations of shared outer loops touch disjoint parts.
"""

from __future__ import annotations

from ...loop.analysis.nests import Access, accesses, bare_uses, blocks, loops_above
from ...loop.buffer import Buffer
from ...loop.stmt import Alloc, Func, Replacer, Seq, Stmt, Store, seq
from ...sym.expr import Const, Expr, FloorDiv, FloorMod, Var, free_vars


def reuse_outputs(func: Func) -> Func:
    """Returns `func` with workspace buffers replaced by outputs where that is legal."""
    if not isinstance(func.body, Seq):
        return func
    bare = bare_uses(func)
    for s in func.body.body:
        if isinstance(s, Alloc) and s.buffer.scope == "workspace" and s.buffer not in bare.reads:
            out = next((o for o in _outputs(func) if o not in bare.reads and _may_hold(func, o, s.buffer)), None)
            if out is not None:
                func = func.with_(body=Replacer(buffers={s.buffer: out}).stmt(_without(func.body, s)))
    return func


def _outputs(func: Func) -> list[Buffer]:
    return [p.value for p in func.params if p.role == "out" and isinstance(p.value, Buffer)]


def _without(body: Stmt, s: Alloc) -> Stmt:
    assert isinstance(body, Seq)
    return seq(*(x for x in body.body if not (isinstance(x, Alloc) and x.buffer is s.buffer)))


def _may_hold(func: Func, out: Buffer, work: Buffer) -> bool:
    """True if `out` may hold the contents of `work` until the block that writes `out`: equal types and shapes, and computed in place."""
    if out.dtype is not work.dtype or out.shape != work.shape or out.strides is not None or work.strides is not None:
        return False
    order = blocks(func.body)
    using = [b for b in order if any(a.buffer is work for a in accesses(b))]
    last = [b for b in order if any(a.buffer is out for a in accesses(b))]
    if len(last) != 1 or len(using) < 2 or using[-1] is not last[0] or not isinstance(last[0].body, Store):
        return False
    places = [a for a in accesses(last[0]) if a.buffer in (work, out)]
    written = next(a for a in places if a.write)
    in_place = all(a.indices == written.indices and a.write == (a.buffer is out) for a in places)
    return in_place and all(_apart(func, a, written) for b in using[:-1] for a in accesses(b) if a.buffer is work)


def _apart(func: Func, a: Access, written: Access) -> bool:
    """True if different iterations of the loops around both accesses touch disjoint parts."""
    around = [x.var for x in loops_above(func, a.block) if x in loops_above(func, written.block)]
    shared = [(e, w) for e, w in zip(a.over_loops(), written.over_loops(), strict=True) if not free_vars(w).isdisjoint(around)]
    return all(e is w for e, w in shared) and all(_told_by(v, [w for _, w in shared]) for v in around)


def _told_by(v: Var, indices: list[Expr]) -> bool:
    """True if the indices determine the loop variable: it is one of them, or both its quotient and its remainder are."""
    if v in indices:
        return True
    by = {e.args[1] for e in indices if isinstance(e, FloorDiv) and e.args[0] is v and isinstance(e.args[1], Const)}
    return any(isinstance(e, FloorMod) and e.args[0] is v and e.args[1] in by for e in indices)
