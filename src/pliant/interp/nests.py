"""What the interpreter must know of the loops around blocks: where an init runs, and which loops have independent iterations.

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
from ..sym.expr import Expr, Var, all_of, conjuncts, free_vars


@dataclass(slots=True)
class Inits:
    """The inits of a program: nests to run before loops, and what instances do themselves."""

    before: dict[For, list[Stmt]] = field(default_factory=dict)
    inline: dict[Block, Literal["always", "where_zero"]] = field(default_factory=dict)


def place_inits(body: Stmt) -> Inits:
    """Where each block's init runs."""
    inits = Inits()
    _place(body, [], inits)
    return inits


def _place(s: Stmt, path: list[Stmt], inits: Inits) -> None:
    if isinstance(s, Block):
        if s.init is not None:
            _place_block(s, path, inits)
        path = []  # the iterators of a block hide the loops outside of it
    elif isinstance(s, (For, If)):
        path = [*path, s]
    lets: list[Stmt] = []
    for child in children(s):
        _place(child, path + lets, inits)
        if isinstance(child, Let):
            lets.append(child)


def _place_block(block: Block, path: list[Stmt], inits: Inits) -> None:
    origin = _origins(path)
    reduced = _loops_of((i.value for i in block.iters if i.kind != "S"), origin)
    spatial = _loops_of((i.value for i in block.iters if i.kind == "S"), origin)
    at = next((n for n, s in enumerate(path) if isinstance(s, For) and s.var in reduced), None)
    if at is None:
        inits.inline[block] = "always"
        return
    outermost = path[at]
    assert isinstance(outermost, For)
    left_out = {s.var for s in path[at:] if isinstance(s, For) and s.var not in spatial}  # they are not around the init
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
    return any(x is block for x in walk_stmts(s))


def _entangled(inner: list[Stmt], left_out: set[Var], spatial: set[Var], origin: dict[Var, frozenset[Var]]) -> bool:
    """Whether spatial loops inside have bounds that depend on loops left out: there is no nest of them alone."""
    return any(isinstance(s, For) and s.var in spatial and not _loops_of((s.start, s.stop), origin).isdisjoint(left_out) for s in inner)


def _origins(path: list[Stmt]) -> dict[Var, frozenset[Var]]:
    """The loop variables that the lets on the way down are made of."""
    origin: dict[Var, frozenset[Var]] = {}
    for s in path:
        if isinstance(s, Let):
            origin[s.var] = frozenset(_loops_of([s.value], origin))
    return origin


def _loops_of(values: Iterator[Expr] | list[Expr] | tuple[Expr, ...], origin: dict[Var, frozenset[Var]]) -> set[Var]:
    found: set[Var] = set()
    for value in values:
        for v in free_vars(value):
            found |= origin.get(v, frozenset((v,)))
    return found


def independent(loop: For) -> bool:
    """Whether the iterations may run in any order: by the loop's kind, or because it only feeds S iterators of a sole block."""
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
    """Whether all iterations can be done at once, statement by statement: what the body needs must have one shape for all."""
    if loop.kind != "vector" and not independent(loop):
        return False
    inside: set[Var] = set()
    made: set[object] = set()
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
                made.add(s.buffer)
    return all(
        all(free_vars(e).isdisjoint(inside) and not _reads(e) for e in exprs(s)) and not (isinstance(s, View) and s.source in made)
        for s in shaped
    )


def _reads(e: Expr) -> bool:
    return type(e).__name__ == "Load" or any(_reads(a) for a in e.args)


def loop_depth(s: Stmt) -> int:
    """The largest number of loops around one statement of `s`."""
    return isinstance(s, For) + max((loop_depth(c) for c in children(s)), default=0)
