"""Merges several calls of loop programs into one call of a program that does their work in sequence.

The merged program has the blocks of its members with temporary buffers between them. The default schedule rules then inline elementwise
blocks and keep the result of a reduction in registers until its epilogue. These rules need blocks of a single store, so lets are
substituted, and the index checks of a gather move into a loop nest of their own before it.
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
    """Returns one call that does the work of the members in sequence and has the results `outs`, new versions of state first.

    Other results of the members become workspace of the merged program; checks of all but the last member run in nests of their own.
    """
    inner = {v for m in members for v in m.outs}
    sources: dict[g.Value, Buffer | Var] = {}
    names: set[str] = set()
    block_names: set[str] = set()  # a set of its own: block names are part of the structural hash, names of values are not
    body: list[Stmt] = []
    for m in members:
        for a in m.args:
            if isinstance(a, g.Value) and a not in inner and a not in sources:
                sources[a] = _source(a, names)
    local: dict[g.Value, Buffer | Var] = dict(sources)
    updated = {out: a for m in members for out, a in _updates(m)}
    local |= {out: sources[a] for out, a in updated.items()}
    for m in members:
        for out in [v for v in m.outs if v not in updated]:
            is_result = out in outs
            buffer = Buffer(unused_name(out.name, names), out.tensor.dtype, out.tensor.shape, scope="global" if is_result else "workspace")
            local[out] = buffer
            if not is_result:
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
    """Returns the pairs (new version of a state, the version it updates) of a call."""
    inputs, outs, pairs = iter(m.args), iter(m.outs), []
    for p in func_of(m.callee).params:
        old = next(inputs) if p.role != "out" else None
        new = next(outs) if p.role != "in" else None
        if isinstance(old, g.Value) and new is not None:
            pairs.append((new, old))
    return pairs


def _without_lets(s: Stmt) -> Stmt:
    """Returns the statement with lets substituted in those blocks whose body is lets and one last statement."""
    s = map_children(s, _without_lets)
    if not isinstance(s, Block) or not isinstance(s.body, Seq) or not all(isinstance(x, Let) for x in s.body.body[:-1]):
        return s
    lets: dict[Var, Expr] = {}
    for x in s.body.body[:-1]:
        assert isinstance(x, Let)
        lets[x.var] = substitute(x.value, lets)
    return s.with_(body=Replacer(lets).stmt(s.body.body[-1]))


def _checks_first(s: Stmt) -> Stmt:
    """Splits a nest whose block checks and then stores into two nests: one that checks, then one that stores.

    In a sequence, each nest is split. Anything else is returned as it is.
    """
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
    for loop in (x for x in loops if x.var not in used):  # the original nest checks nothing if one of its loops is empty
        runs = simplify(Lt(loop.start, loop.stop))
        tests = tests if runs is TRUE else If(runs, tests)
    stores: Stmt = inner.with_(body=store)
    for loop in reversed(loops):
        stores = loop.with_(body=stores)
    return seq(tests, stores)


def _arguments(m: g.CallLoop, local: dict[g.Value, Buffer | Var]) -> list[Buffer | Expr]:
    """Returns the buffers and scalars to pass to one of the merged programs, in the order of its parameters."""
    inputs, outs = iter(m.args), iter(v for v in m.outs if v not in dict(_updates(m)))
    return [
        local[next(outs)] if p.role == "out" else (local[a] if isinstance(a := next(inputs), g.Value) else a)
        for p in func_of(m.callee).params
    ]


def _source(v: g.Value, names: set[str]) -> Buffer | Var:
    """Returns a new parameter of the merged program, a buffer or a scalar, for a value that comes from outside of the group."""
    a = v.annotation
    if isinstance(a, g.Tensor):
        return Buffer(unused_name(v.name, names), a.dtype, a.shape, a.strides)
    assert isinstance(a, g.Scalar)
    return Var(unused_name(v.name, names), a.dtype)


def _rename_blocks(s: Stmt, names: set[str]) -> Stmt:
    s = map_children(s, lambda x: _rename_blocks(x, names))
    return s.with_(name=unused_name(s.name, names)) if isinstance(s, Block) else s
