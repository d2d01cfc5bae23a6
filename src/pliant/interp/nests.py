"""Placement of block inits and independence of loops, as the interpreter needs them.

for i: for k: block(S i, R k, init)     the init of the block runs before `k`, as the nest: block(S i){init}
for k: for i: block(S i, R k, init)     before `k`, as the nest: for i: block(S i){init}
for f: block(S f // 4, R f % 4, init)   in the instance itself, where the R iterator is 0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from ..loop.stmt import Alloc, Block, Call, For, If, Let, Seq, Stmt, View, children, exprs, walk_stmts
from ..support.record import dataclass
from ..sym.conditions import all_of, conjuncts
from ..sym.expr import Expr, Var, free_vars


@dataclass(slots=True)
class Inits:
    """Where the inits of a program's reductions run: in nests before loops, or inline in an instance of their block."""

    before: dict[For, list[Stmt]] = field(default_factory=dict)
    inline: dict[Block, Literal["always", "where_zero"]] = field(default_factory=dict)


def place_inits(body: Stmt) -> Inits:
    """Decides where the init of each reduction block runs, so that it runs once per element."""
    inits = Inits()
    _place(body, [], inits)
    return inits


def _place(s: Stmt, path: list[Stmt], inits: Inits) -> None:
    """Decides where the inits in `s` run; `path` are the loops, ifs and lets around it."""
    if isinstance(s, Block):
        if s.init is not None:
            _place_block(s, path, inits)
        path = []  # a block hides the loops around it
    elif isinstance(s, (For, If)):
        path = [*path, s]
    lets: list[Stmt] = []
    for child in children(s):
        _place(child, path + lets, inits)
        if isinstance(child, Let):
            lets.append(child)


def _place_block(block: Block, path: list[Stmt], inits: Inits) -> None:
    """Decides where a block's init runs: in a nest before its outermost reduction loop, or inline; adds that to `inits`."""
    origin = _origins(path)
    reduced = _loops_of((i.value for i in block.iters if i.kind != "S"), origin)
    spatial = _loops_of((i.value for i in block.iters if i.kind == "S"), origin)
    at = next((n for n, s in enumerate(path) if isinstance(s, For) and s.var in reduced), None)
    if at is None:
        inits.inline[block] = "always"
        return
    outermost = path[at]
    assert isinstance(outermost, For)
    left_out = {s.var for s in path[at:] if isinstance(s, For) and s.var not in spatial}  # loops that are not repeated around the init
    if outermost.var in spatial or _entangled(path[at + 1 :], left_out, spatial, origin):
        inits.inline[block] = "where_zero"
        return
    hidden = frozenset(left_out) | {i.var for i in block.iters if i.kind != "S"}
    assert block.init is not None
    nest: Stmt = Block(
        f"{block.name}_init",
        tuple(i for i in block.iters if i.kind == "S"),
        block.init,
        predicate=all_of(*(c for c in conjuncts(block.predicate) if _loops_of([c], origin).isdisjoint(hidden))),
        span=block.init.span or block.span,
    )
    for s in reversed(path[at + 1 :]):
        if isinstance(s, For) and s.var in spatial:
            nest = s.with_(body=nest)
        elif isinstance(s, Let) and _loops_of([s.value], origin).isdisjoint(hidden):
            nest = Seq((s, nest))
        elif isinstance(s, If) and _loops_of([s.cond], origin).isdisjoint(hidden) and _holds(s.then, block):
            nest = s.with_(then=nest, orelse=None)
        elif isinstance(s, If) and _loops_of([s.cond], origin).isdisjoint(hidden):
            nest = s.with_(then=Seq(()), orelse=nest)
    inits.before.setdefault(outermost, []).append(nest)


def _holds(s: Stmt, block: Block) -> bool:
    """True if `s` contains the block."""
    return any(x is block for x in walk_stmts(s))


def _entangled(inner: list[Stmt], left_out: set[Var], spatial: set[Var], origin: dict[Var, frozenset[Var]]) -> bool:
    """True if spatial loops inside have bounds that depend on loops that are left out, so that they cannot be repeated alone."""
    return any(isinstance(s, For) and s.var in spatial and not _loops_of((s.start, s.stop), origin).isdisjoint(left_out) for s in inner)


def _origins(path: list[Stmt]) -> dict[Var, frozenset[Var]]:
    """Returns for each let on the path the loop variables that it depends on."""
    origin: dict[Var, frozenset[Var]] = {}
    for s in path:
        if isinstance(s, Let):
            origin[s.var] = frozenset(_loops_of([s.value], origin))
    return origin


def _loops_of(values: Iterator[Expr] | list[Expr] | tuple[Expr, ...], origin: dict[Var, frozenset[Var]]) -> set[Var]:
    """Returns the loop variables that values depend on, directly or through lets."""
    loops: set[Var] = set()
    for value in values:
        for v in free_vars(value):
            loops |= origin.get(v, frozenset((v,)))
    return loops


def independent(loop: For) -> bool:
    """True if the iterations may run in any order: by the loop's kind, or because it feeds only S iterators of the one block inside it."""
    if loop.kind == "parallel" or loop.kind.startswith("gpu"):
        return True
    s: Stmt = loop.body
    while not isinstance(s, Block):
        match s:
            case For():
                s = s.body
            case If(_, then, None):
                s = then
            case Seq((only,)):
                s = only
            case _:
                return False
    fed = {i.kind for i in s.iters if loop.var in free_vars(i.value)}
    return fed == {"S"}


def may_run_as_lanes(loop: For) -> bool:
    """True if all iterations can run at once, statement by statement: a vector loop or independent iterations, and no call inside.

    Memory inside must have the same shape and start for all of them.
    """
    if loop.kind != "vector" and not independent(loop):
        return False
    inside: set[Var] = set()
    local: set[object] = set()
    shaped: list[Alloc | View] = []
    for s in walk_stmts(loop):
        match s:
            case Call():
                return False
            case For() | Let():
                inside.add(s.var)
            case Block():
                inside.update(i.var for i in s.iters)
            case Alloc() | View():
                shaped.append(s)
                local.add(s.buffer)
    return all(
        all(free_vars(e).isdisjoint(inside) and not _reads(e) for e in exprs(s)) and not (isinstance(s, View) and s.source in local)
        for s in shaped
    )


def _reads(e: Expr) -> bool:
    """True if `e` loads from memory."""
    return type(e).__name__ == "Load" or any(_reads(a) for a in e.args)


def loop_depth(s: Stmt) -> int:
    """Returns the largest number of nested loops in `s`."""
    return isinstance(s, For) + max((loop_depth(c) for c in children(s)), default=0)
