"""Fusion: elementwise loop programs join the loop program that produces what they read, or that reads what they produce.

What may join is decided by what the loops are (`loop.analysis.pattern`), not by what an operator was called:
- an elementwise consumer joins the producer of one of its arguments (a matmul, a reduction, another elementwise program), reading
  it at the very index it writes: an epilogue;
- an elementwise producer joins its consumer, unless that is matmul-like, which would compute it again for each tile: a prologue.
The value between the two must have no other use. A group has at most one program that is more than elementwise.

    c = matmul(a, b); s = silu(c); y = mul(s, u)      ->      y = matmul_silu_mul(a, b, u)

The merged program has the blocks of its members, with buffers between them; the default rules inline the elementwise ones and keep a
reduction's result in registers until its epilogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..graph import node as g
from ..loop.analysis.pattern import Kind, pattern_kind, reads_elementwise
from ..loop.buffer import Buffer
from ..loop.passes.instantiate import instantiate
from ..loop.stmt import Alloc, Block, Func, Param, Stmt, map_children, seq
from ..sym.expr import Expr, Var
from .callee import callee_of, func_of
from .from_ops import free_variables

CHEAP = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE)


def fuse(function: g.Function) -> g.Function:
    """The function with groups of its loop programs merged, also inside bodies."""
    return function.with_(nodes=_fuse_nodes(function.nodes, function.results))


def _fuse_nodes(nodes: Sequence[g.Node], results: Sequence[g.Value]) -> tuple[g.Node, ...]:
    nodes = tuple(_fuse_inside(n) for n in nodes)
    groups = _Groups(nodes, results)
    for n in nodes:
        if isinstance(n, g.CallLoop):
            groups.join(n)
    return tuple(merged for n in nodes for merged in groups.emit(n))


def _fuse_inside(n: g.Node) -> g.Node:
    match n:
        case g.If():
            return n.with_(then=_fuse_body(n.then), orelse=_fuse_body(n.orelse))
        case g.While():
            return n.with_(cond=_fuse_body(n.cond), body=_fuse_body(n.body))
    return n


def _fuse_body(b: g.Body) -> g.Body:
    return g.Body(b.params, _fuse_nodes(b.nodes, b.results), b.results)


@dataclass(slots=True, eq=False)
class _Group:
    nodes: list[g.CallLoop]
    anchor: bool  # whether one of the programs is more than elementwise


@dataclass(slots=True)
class _Groups:
    """Which nodes of a list are merged; a group stands where its last node stood."""

    nodes: Sequence[g.Node]
    results: Sequence[g.Value]
    users: dict[g.Value, list[g.Node | None]] = field(default_factory=dict)
    maker: dict[g.Value, g.CallLoop] = field(default_factory=dict)
    group: dict[g.CallLoop, _Group] = field(default_factory=dict)
    kind: dict[g.CallLoop, Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for n in self.nodes:
            for v in _all_uses(n):
                self.users.setdefault(v, []).append(n)
            if isinstance(n, g.CallLoop) and _may_join(n):
                self.kind[n] = pattern_kind(func_of(n.callee))
                self.group[n] = _Group([n], self.kind[n] not in CHEAP)
                self.maker.update((out, n) for out in n.outs)
        for v in self.results:
            self.users.setdefault(v, []).append(None)

    def join(self, n: g.CallLoop) -> None:
        """Has the makers of the node's arguments join its group where that is right."""
        if n not in self.group or self.kind[n] not in (*CHEAP, Kind.REDUCTION):
            return
        for position, value in enumerate(n.args):
            made = self.maker.get(value) if isinstance(value, g.Value) else None
            if made is None or len(made.outs) != 1 or self.users[value] != [n]:  # type: ignore[index]
                continue
            mine, other = self.group[n], self.group[made]
            if mine is other or (mine.anchor and other.anchor) or not self.fits(made, n, position):
                continue
            mine.nodes = other.nodes + mine.nodes
            mine.anchor = mine.anchor or other.anchor
            self.group.update((member, mine) for member in other.nodes)

    def fits(self, made: g.CallLoop, n: g.CallLoop, position: int) -> bool:
        """Whether the producer's program can be computed together with the consumer's."""
        if not self.group[made].anchor:
            return self.kind[made] in CHEAP
        return self.kind[n] in (Kind.ELEMENTWISE, Kind.BROADCAST) and reads_elementwise(func_of(n.callee), position)

    def emit(self, n: g.Node) -> tuple[g.Node, ...]:
        """What stands in the place of `n`: itself, nothing, or the group that ends with it."""
        if not isinstance(n, g.CallLoop) or n not in self.group:
            return (n,)
        group = self.group[n]
        if group.nodes[-1] is not n:
            return ()
        order = {m: i for i, m in enumerate(self.nodes)}
        members = sorted(group.nodes, key=order.__getitem__)
        return (n,) if len(members) == 1 else (merge(members),)


def _all_uses(n: g.Node) -> list[g.Value]:
    inner = [v for b in g.bodies(n) for m in b.nodes for v in _all_uses(m)]
    return [*g.node_args(n), *inner, *(v for b in g.bodies(n) for v in b.results)]


def _may_join(n: g.CallLoop) -> bool:
    """State keeps its place in the order, and a program that was scheduled by hand is compiled as it stands."""
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    state = any(isinstance(v.annotation, g.Tensor) and v.annotation.state for v in values)
    return not state and not func_of(n.callee).attrs.get("scheduled")


def merge(members: Sequence[g.CallLoop]) -> g.CallLoop:
    """One call that does what the members do one after the other; the results are those of the last."""
    last = members[-1]
    made = {v for m in members for v in m.outs}
    sources: dict[g.Value, Buffer | Var] = {}
    names, block_names = _Names(), _Names()  # apart: a block's name tells equal programs from others, a value's does not
    body: list[Stmt] = []
    for m in members:
        for a in m.args:
            if isinstance(a, g.Value) and a not in made and a not in sources:
                sources[a] = _source(a, names)
    local: dict[g.Value, Buffer | Var] = dict(sources)
    for m in members:
        for out in m.outs:
            buffer = Buffer(names.new(out.name), out.tensor.dtype, out.tensor.shape, scope="global" if m is last else "workspace")
            local[out] = buffer
            if m is not last:
                body.append(Alloc(buffer))
        body.append(_rename_blocks(instantiate(func_of(m.callee), _arguments(m, local), m.dims), block_names))
    params = tuple(Param(s) for s in sources.values())
    written = tuple(Param(local[v], "out") for v in last.outs)
    func = Func("_".join(m.callee.name for m in members)[:60], (*params, *written), seq(*body))
    extra = tuple(v for v in free_variables(func.body) if v not in func.symbols and v not in func.scalars)
    func = func.with_(params=(*params, *(Param(v) for v in extra), *written))
    return g.CallLoop(
        outs=last.outs,
        requires=tuple(r for m in members for r in m.requires),
        origin=tuple(dict.fromkeys(o for m in members for o in m.origin)),
        span=last.span,
        callee=callee_of(func),
        args=(*sources, *extra),
        dims=func.symbols,
    )


def _arguments(m: g.CallLoop, local: dict[g.Value, Buffer | Var]) -> list[Buffer | Expr]:
    given, outs = iter(m.args), iter(m.outs)
    return [
        local[next(outs)] if p.role == "out" else (local[a] if isinstance(a := next(given), g.Value) else a)
        for p in func_of(m.callee).params
    ]


def _source(v: g.Value, names: _Names) -> Buffer | Var:
    a = v.annotation
    if isinstance(a, g.Tensor):
        return Buffer(names.new(v.name), a.dtype, a.shape, a.strides)
    assert isinstance(a, g.Scalar)
    return Var(names.new(v.name), a.dtype)


class _Names:
    """Names that are each given once."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def new(self, name: str) -> str:
        found, number = name, 1
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self.taken.add(found)
        return found


def _rename_blocks(s: Stmt, names: _Names) -> Stmt:
    s = map_children(s, lambda x: _rename_blocks(x, names))
    return s.with_(name=names.new(s.name)) if isinstance(s, Block) else s
