"""Several calls of loop programs as one: the program that does what they do one after the other.

The merged program has the blocks of its members, with buffers between them; the default rules inline the elementwise ones and keep a
reduction's result in registers until its epilogue. For that blocks are one store where they can be: lets are put in, and what a gather
checks of its indices is checked in loops of their own, before.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...graph import node as g
from ...loop.buffer import Buffer
from ...loop.passes.instantiate import instantiate
from ...loop.stmt import Alloc, Block, Check, For, Func, If, Let, Param, Replacer, Seq, Stmt, Store, exprs, map_children, seq
from ...support.names import unused_name
from ...sym.expr import TRUE, Expr, Lt, Var, free_vars, substitute
from ...sym.simplify import simplify
from ..callee import callee_of, func_of
from ..ops.lower_ops import free_variables


def merge(members: Sequence[g.CallLoop], outs: Sequence[g.Value]) -> g.CallLoop:
    """One call that does what the members do one after the other and gives `outs` of theirs, new versions of state before others."""
    made = {v for m in members for v in m.outs}
    sources: dict[g.Value, Buffer | Var] = {}
    names: set[str] = set()
    block_names: set[str] = set()  # apart: a block's name tells equal programs from others, a value's does not
    body: list[Stmt] = []
    for m in members:
        for a in m.args:
            if isinstance(a, g.Value) and a not in made and a not in sources:
                sources[a] = _source(a, names)
    local: dict[g.Value, Buffer | Var] = dict(sources)
    updated = {out: a for m in members for out, a in _updates(m)}
    local |= {out: sources[a] for out, a in updated.items()}
    for m in members:
        for out in [v for v in m.outs if v not in updated]:
            kept = out in outs
            buffer = Buffer(unused_name(out.name, names), out.tensor.dtype, out.tensor.shape, scope="global" if kept else "workspace")
            local[out] = buffer
            if not kept:
                body.append(Alloc(buffer))
        part = _rename_blocks(instantiate(func_of(m.callee), _arguments(m, local), m.dims), block_names)
        body.append(_checks_first(_without_lets(part)) if m is not members[-1] else part)
    params = tuple(Param(s, "inout" if v in updated.values() else "in") for v, s in sources.items())
    written = tuple(Param(local[v], "out") for v in outs if v not in updated)
    func = Func("_".join(m.callee.name for m in members)[:60], (*params, *written), seq(*body))
    extra = tuple(v for v in free_variables(func.body) if v not in func.symbols and v not in func.scalars)
    func = func.with_(params=(*params, *(Param(v) for v in extra), *written))
    return g.CallLoop(
        outs=tuple(outs),
        requires=tuple({r.cond: r for m in members for r in m.requires}.values()),
        origin=tuple(dict.fromkeys(o for m in members for o in m.origin)),
        span=members[-1].span,
        callee=callee_of(func),
        args=(*sources, *extra),
        dims=func.symbols,
    )


def _updates(m: g.CallLoop) -> list[tuple[g.Value, g.Value]]:
    """The new versions of state that a call gives, each with the one that it updates."""
    given, outs, found = iter(m.args), iter(m.outs), []
    for p in func_of(m.callee).params:
        old = next(given) if p.role != "out" else None
        new = next(outs) if p.role != "in" else None
        if isinstance(old, g.Value) and new is not None:
            found.append((new, old))
    return found


def _without_lets(s: Stmt) -> Stmt:
    """The statement with blocks of lets and a store as the store alone."""
    s = map_children(s, _without_lets)
    if not isinstance(s, Block) or not isinstance(s.body, Seq) or not all(isinstance(x, Let) for x in s.body.body[:-1]):
        return s
    lets: dict[Var, Expr] = {}
    for x in s.body.body[:-1]:
        assert isinstance(x, Let)
        lets[x.var] = substitute(x.value, lets)
    return s.with_(body=Replacer(lets).stmt(s.body.body[-1]))


def _checks_first(s: Stmt) -> Stmt:
    """A nest whose block checks something and stores, as two: loops that check, then the nest that stores."""
    loops: list[For] = []
    inner: Stmt = s
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    if isinstance(s, Seq):
        return seq(*map(_checks_first, s.body))
    if not isinstance(inner, Block) or inner.predicate is not TRUE or not isinstance(inner.body, Seq):
        return s
    *checks, store = inner.body.body
    of = {i.var: i.value for i in inner.iters}
    if not isinstance(store, Store) or not all(isinstance(c, Check) for c in checks) or not all(isinstance(v, Var) for v in of.values()):
        return s
    checked = [Replacer(of).stmt(c) for c in checks]
    used = {v for c in checked for e in exprs(c) for v in free_vars(e)}
    tests: Stmt = seq(*checked)
    for loop in reversed([x for x in loops if x.var in used]):
        tests = loop.with_(body=tests)
    for loop in (x for x in loops if x.var not in used):  # where one of them has no rounds, nothing is checked
        runs = simplify(Lt(loop.start, loop.stop))
        tests = tests if runs is TRUE else If(runs, tests)
    stores: Stmt = inner.with_(body=store)
    for loop in reversed(loops):
        stores = loop.with_(body=stores)
    return seq(tests, stores)


def _arguments(m: g.CallLoop, local: dict[g.Value, Buffer | Var]) -> list[Buffer | Expr]:
    given, outs = iter(m.args), iter(v for v in m.outs if v not in dict(_updates(m)))
    return [
        local[next(outs)] if p.role == "out" else (local[a] if isinstance(a := next(given), g.Value) else a)
        for p in func_of(m.callee).params
    ]


def _source(v: g.Value, names: set[str]) -> Buffer | Var:
    a = v.annotation
    if isinstance(a, g.Tensor):
        return Buffer(unused_name(v.name, names), a.dtype, a.shape, a.strides)
    assert isinstance(a, g.Scalar)
    return Var(unused_name(v.name, names), a.dtype)


def _rename_blocks(s: Stmt, names: set[str]) -> Stmt:
    s = map_children(s, lambda x: _rename_blocks(x, names))
    return s.with_(name=unused_name(s.name, names)) if isinstance(s, Block) else s
