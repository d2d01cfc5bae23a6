"""Folds data movement (slice, permute, any program that is one load) into the index expressions of the template that reads or writes it.

A template comes with its schedule, so other programs cannot fuse into it. But it may declare operands whose memory order is free because
it touches each element once (attribute `moved` of its loop program). A data movement of such an operand becomes part of the load indices.
A result that is only permuted is stored at its permuted place.

    q = permute(x, (1, 0, 2)); y = attention(q, …)      ->      y = attention(x, …)       # x[i, h, d] where it had q[h, i, d]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...graph import node as g
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Block, For, Func, Param, Replacer, Seq, Stmt, Store, map_children, seq
from ...support.record import dataclass
from ...sym.expr import TRUE, Const, Expr, Var, substitute
from ...sym.walk import walk
from ..callee import callee_of, func_of
from .merge import merge
from .node_lists import Users, map_node_lists, users_of


def fold_data_movement(function: g.Function) -> g.Function:
    """Returns the function with data movements folded into templates, also inside branches and loops."""
    return map_node_lists(function, lambda nodes, results: moves_into_templates(nodes, users_of(nodes, results)))


def moves_into_templates(nodes: Sequence[g.Node], users: Users) -> tuple[g.Node, ...]:
    """Returns the nodes with data movements folded into templates, where the template alone reads, or makes, the moved value."""
    maker = {v: n for n in nodes for v in n.outs}
    stands: dict[g.Node, tuple[g.Node, ...]] = {}
    for n in nodes:
        if isinstance(n, g.CallLoop) and _free(n):
            before, after = _before(n, maker, users), _after(n, users)
            if before or after:
                stands |= dict.fromkeys((*before, *after), ()) | {n: (_joined(before, n, after),)}
    return tuple(m for n in nodes for m in stands.get(n, (n,)))


def _free(n: g.CallLoop) -> set[Param]:
    """Returns the parameters whose memory order is free; none if the host program has to copy an argument for its strides."""
    func = func_of(n.callee)
    inputs = [p for p in func.params if p.role != "out"]
    for p, a in zip(inputs, n.args, strict=True):
        if isinstance(p.value, Buffer) and isinstance(a, g.Value) and a.tensor.strides != p.value.strides:
            return set()  # the host program makes a contiguous copy of such an argument
    return {p for p in func.params if p.value.name in func.attrs.moved}


def _before(n: g.CallLoop, maker: dict[g.Value, g.Node], users: Users) -> list[g.CallLoop]:
    """Returns the chains of data movements that produce free arguments, producers first."""
    free = _free(n)
    inputs = [p for p in func_of(n.callee).params if p.role != "out"]
    fixed = {a for p, a in zip(inputs, n.args, strict=True) if p not in free}
    reached = [a for a in n.args if isinstance(a, g.Value) and a not in fixed]
    moves: list[g.CallLoop] = []
    for value in reached:
        move = maker.get(value)
        if isinstance(move, g.CallLoop) and move not in moves and is_move(move) and all(u is n or u in moves for u in users[value]):
            moves.append(move)
            reached += [a for a in move.args if isinstance(a, g.Value)]
    return moves[::-1]


def _after(n: g.CallLoop, users: Users) -> list[g.CallLoop]:
    """Returns the calls that only permute a result of `n` and are its single reader, so that its stores can do the permutation."""
    written = [p for p in func_of(n.callee).params if p.role != "in"]
    only = [users.get(out, []) for p, out in zip(written, n.outs, strict=True) if p in _free(n)]
    return [u[0] for u in only if len(u) == 1 and isinstance(u[0], g.CallLoop) and is_move(u[0], permutes=True)]


def is_move(n: g.CallLoop, permutes: bool = False) -> bool:
    """True if a call only copies elements of one tensor to other indices; with `permutes`, only if it permutes whole dims."""
    func = func_of(n.callee)
    tensors = [p for p in func.params if isinstance(p.value, Buffer)]
    values = [*n.outs, *(a for a in n.args if isinstance(a, g.Value))]
    if len(tensors) != 2 or any(map(g.is_state, values)) or func.attrs.scheduled:
        return False
    move = _Move.of(func.body)
    return move is not None and (not permutes or move.permutes())


@dataclass(frozen=True, slots=True)
class _Move:
    """A loop program that only moves data: each iteration does `target[at] = source`."""

    target: Buffer
    at: tuple[Var, ...]
    source: Load

    def permutes(self) -> bool:
        """True if the nest copies the whole source and only permutes its dims."""
        indices, extents = self.source.indices, dict(zip(self.at, self.target.shape, strict=True))
        same = all(extents.get(i) is e for i, e in zip(indices, self.source.buffer.shape, strict=True) if isinstance(i, Var))
        return same and set(indices) == set(self.at) and len(indices) == len(self.at)

    @staticmethod
    def of(s: Stmt) -> _Move | None:
        """Returns the data movement that a statement is; None for any other statement."""
        nest = one_store(s)
        if nest is None:
            return None
        iters, store = nest
        source = store.value
        at = tuple(e for e in store.indices if isinstance(e, Var))
        plain = len(set(at)) == len(store.indices) == len(iters)
        if not plain or not isinstance(source, Load) or any(isinstance(e, Load) for index in source.indices for e in walk(index)):
            return None
        return _Move(store.buffer, at, source)


def one_store(s: Stmt) -> tuple[dict[Var, Expr], Store] | None:
    """Returns the iterators with their extents and the store of a loop nest that is one store.

    None for any other statement, and for a block with a predicate, an init, or iterators that are not loops from 0.
    """
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
    """Returns the template call `n` with the data movements folded into its loads and stores."""
    moved = [out for m in after for out in m.outs]
    kept = [out for out in n.outs if not any(out in m.args for m in after)]
    call = merge([*before, n, *after], [*kept, *moved])
    func = func_of(n.callee)
    folded = _in_place(func_of(call.callee)).with_(name=func.name, attrs=func.attrs.with_(moved=()))
    return replace(call, callee=callee_of(folded))


def _in_place(func: Func) -> Func:
    """Removes the data movements from a merged program by substituting their indices into the loads and stores between them."""
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
