"""Moves (slices, permutes, whatever is one load) done where a template reads or writes what is moved, instead of in memory.

A template is scheduled as it stands, so nothing joins it; but it may say of operands that it touches each element once, so that it does
not matter how they lie (`moved` of its loop program). A move of such an operand is done in the indices of its loads; a result that is
only permuted is stored at its place at once.

    q = permute(x, (1, 0, 2)); y = attention(q, …)      ->      y = attention(x, …)       # x[i, h, d] where it had q[h, i, d]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...graph import node as g
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Block, For, Func, Param, Replacer, Seq, Stmt, Store, map_children, seq
from ...support.record import dataclass
from ...sym.expr import TRUE, Const, Expr, Var, substitute, walk
from ..callee import callee_of, func_of
from .merge import merge
from .node_lists import Users, map_node_lists, users_of


def fold_data_movement(function: g.Function) -> g.Function:
    """The function whose templates do moves in their own loads and stores, also inside bodies."""
    return map_node_lists(function, lambda nodes, results: moves_into_templates(nodes, users_of(nodes, results)))


def moves_into_templates(nodes: Sequence[g.Node], users: Users) -> tuple[g.Node, ...]:
    """The nodes without moves of what a template reads or writes, where nobody else reads what is moved."""
    maker = {v: n for n in nodes for v in n.outs}
    stands: dict[g.Node, tuple[g.Node, ...]] = {}
    for n in nodes:
        if isinstance(n, g.CallLoop) and _free(n):
            before, after = _before(n, maker, users), _after(n, users)
            if before or after:
                stands |= dict.fromkeys((*before, *after), ()) | {n: (_joined(before, n, after),)}
    return tuple(m for n in nodes for m in stands.get(n, (n,)))


def _free(n: g.CallLoop) -> set[Param]:
    """The parameters that may lie in any order, of a call whose other arguments lie as its program takes them."""
    func = func_of(n.callee)
    given = [p for p in func.params if p.role != "out"]
    for p, a in zip(given, n.args, strict=True):
        if isinstance(p.value, Buffer) and isinstance(a, g.Value) and a.tensor.strides != p.value.strides:
            return set()  # the host program makes a copy for it
    return {p for p in func.params if p.value.name in func.attrs.moved}


def _before(n: g.CallLoop, maker: dict[g.Value, g.Node], users: Users) -> list[g.CallLoop]:
    """The moves that lead to arguments, in order."""
    free = _free(n)
    given = [p for p in func_of(n.callee).params if p.role != "out"]
    fixed = {a for p, a in zip(given, n.args, strict=True) if p not in free}
    reached = [a for a in n.args if isinstance(a, g.Value) and a not in fixed]
    found: list[g.CallLoop] = []
    for value in reached:
        made = maker.get(value)
        if isinstance(made, g.CallLoop) and made not in found and is_move(made) and all(u is n or u in found for u in users[value]):
            found.append(made)
            reached += [a for a in made.args if isinstance(a, g.Value)]
    return found[::-1]


def _after(n: g.CallLoop, users: Users) -> list[g.CallLoop]:
    """The permutations of results."""
    written = [p for p in func_of(n.callee).params if p.role != "in"]
    only = [users.get(out, []) for p, out in zip(written, n.outs, strict=True) if p in _free(n)]
    return [u[0] for u in only if len(u) == 1 and isinstance(u[0], g.CallLoop) and is_move(u[0], permutes=True)]


def is_move(n: g.CallLoop, permutes: bool = False) -> bool:
    """Whether a call stores elements of one tensor at other indices; if it `permutes`, all of them, their indices in another order."""
    func = func_of(n.callee)
    tensors = [p for p in func.params if isinstance(p.value, Buffer)]
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    if len(tensors) != 2 or any(map(g.is_state, values)) or func.attrs.scheduled:
        return False
    move = _Move.of(func.body)
    return move is not None and (not permutes or move.permutes())


@dataclass(frozen=True, slots=True)
class _Move:
    """A nest of loops that does `target[at] = source`."""

    target: Buffer
    at: tuple[Var, ...]
    source: Load

    def permutes(self) -> bool:
        """Whether all elements of the source are moved, their indices in another order."""
        indices, extents = self.source.indices, dict(zip(self.at, self.target.shape, strict=True))
        same = all(extents.get(i) is e for i, e in zip(indices, self.source.buffer.shape, strict=True) if isinstance(i, Var))
        return same and set(indices) == set(self.at) and len(indices) == len(self.at)

    @staticmethod
    def of(s: Stmt) -> _Move | None:
        found = one_store(s)
        if found is None:
            return None
        iters, store = found
        source = store.value
        at = tuple(e for e in store.indices if isinstance(e, Var))
        plain = len(set(at)) == len(store.indices) == len(iters)
        if not plain or not isinstance(source, Load) or any(isinstance(e, Load) for index in source.indices for e in walk(index)):
            return None
        return _Move(store.buffer, at, source)


def one_store(s: Stmt) -> tuple[dict[Var, Expr], Store] | None:
    """The iterators, with their extents, and the store of a nest of loops that does nothing else."""
    loops: dict[Expr, For] = {}
    while isinstance(s, For):
        loops[s.var] = s
        s = s.body
    if not isinstance(s, Block) or s.predicate is not TRUE or s.init is not None or not isinstance(s.body, Store):
        return None
    if not all(i.value in loops and _starts_at_0(loops[i.value]) for i in s.iters):
        return None
    return {i.var: loops[i.value].extent for i in s.iters}, s.body


def _starts_at_0(loop: For) -> bool:
    return isinstance(loop.start, Const) and loop.start.value == 0


def _joined(before: Sequence[g.CallLoop], n: g.CallLoop, after: Sequence[g.CallLoop]) -> g.CallLoop:
    """The call that does the moves in its own loads and stores."""
    moved = [out for m in after for out in m.outs]
    kept = [out for out in n.outs if not any(out in m.args for m in after)]
    call = merge([*before, n, *after], [*kept, *moved])
    func = func_of(n.callee)
    made = _in_place(func_of(call.callee)).with_(name=func.name, attrs=func.attrs.with_(moved=()))
    return replace(call, callee=callee_of(made))


def _in_place(func: Func) -> Func:
    """A program of moves and of what is between them, without the moves."""
    assert isinstance(func.body, Seq)
    moves = {s: move for s in func.body.body if (move := _Move.of(s)) is not None}
    into = {m.target: m for m in moves.values() if m.target not in func.buffers}
    out_of = {m.source.buffer: m for m in moves.values() if m.target in func.buffers}

    def read(load: Load) -> Expr | None:
        move = into.get(load.buffer)
        return None if move is None else replacer.expr(substitute(move.source, dict(zip(move.at, load.indices, strict=True))))

    def write(s: Stmt) -> Stmt:
        s = map_children(s, write)
        if not isinstance(s, Store) or s.buffer not in out_of:
            return s
        move = out_of[s.buffer]
        place = dict(zip(move.source.indices, s.indices, strict=True))
        return s.with_(buffer=move.target, indices=tuple(place[v] for v in move.at))

    replacer = Replacer(loads=read)
    gone = {*into, *out_of}
    rest = [s for s in func.body.body if s not in moves and not (isinstance(s, Alloc) and s.buffer in gone)]
    return func.with_(body=write(replacer.stmt(seq(*rest))))
