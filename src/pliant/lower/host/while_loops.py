"""Lowers graph while loops into the host program: loop-carried values get buffers that each iteration reads and then overwrites.

    while k < times:                 k_carried[()] = 1; copy(x, y_carried); go[()] = True
        y = y @ x                    while go[()]:
        k += 1                           k = k_carried[()]
                                         go[()] = k < times
                                         if go[()]:
                                             k_1 = k_carried[()]
                                             matmul(y_carried, x, y_1); copy(y_1, y_carried); k_carried[()] = k_1 + 1

State is carried in place: every iteration updates the same memory. Liveness: a value from before the loop that the loop uses stays alive
until the loop ends, because the next iteration uses it again. A value that an iteration computes is alive only within that iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...dtype import bool_
from ...graph import node as g
from ...graph.node import is_state
from ...loop.buffer import Buffer
from ...loop.stmt import If, Seq, Stmt, Store, While
from ...sym.expr import TRUE

if TYPE_CHECKING:
    from .host_nodes import NodeEmitter


def emit_while(run: NodeEmitter, n: g.While) -> list[Stmt]:
    """Returns the host statements of a graph's while loop: they run its condition and body on buffers for the carried values."""
    known = len(run.temps)
    carried = [run.buffer(v) if is_state(v) else run.temporary(out.name, _memory(out)) for v, out in zip(n.init, n.outs, strict=True)]
    go = run.temporary("go", g.Tensor(bool_, ()))
    before = [*run.poison_new(known), Store(go, (), TRUE)]
    for value, buffer in zip(n.init, carried, strict=True):
        before += [] if is_state(value) else run.copy(value, buffer)
    run.step += 1
    first = run.step
    cond = [*_bind(run, n.cond.params, carried), *run.nodes(n.cond.nodes)]
    run.step += 1
    cond += [Store(go, (), run.scalar(n.cond.results[0])), *run.poison_dead()]
    body = [*_bind(run, n.body.params, carried), *run.nodes(n.body.nodes), *_next_round(run, n, carried)]
    run.step += 1
    _keep(run, first, [go, *carried])
    loop = While(go.load(), Seq((*cond, If(go.load(), Seq(tuple(body)), None, n.span))), n.span)
    return [*before, loop, *_bind(run, n.outs, carried), *run.poison_dead()]


def _memory(value: g.Value) -> g.Tensor:
    a = value.annotation
    assert isinstance(a, g.Tensor | g.Scalar)
    return g.Tensor(a.dtype, a.shape if isinstance(a, g.Tensor) else ())


def _bind(run: NodeEmitter, values: Sequence[g.Value], carried: Sequence[Buffer]) -> list[Stmt]:
    """Binds the values to the carried buffers.

    Returns the lets of scalars: they are loaded now, because the buffers change before their uses.
    """
    lets: list[Stmt] = []
    for value, buffer in zip(values, carried, strict=True):
        if isinstance(value.annotation, g.Scalar):
            lets.append(run.let(value, buffer.load()))
        else:
            run.values[value] = buffer
    return lets


def _next_round(run: NodeEmitter, n: g.While, carried: Sequence[Buffer]) -> list[Stmt]:
    """Returns statements that copy the results of an iteration into the carried buffers.

    One that aliases another carried buffer is saved first.
    """
    run.step += 1
    known = len(run.temps)
    lets: list[Stmt] = []
    aside: list[Stmt] = []
    moves: list[Stmt] = []
    homes = {run.home[b]: b for out, b in zip(n.outs, carried, strict=True) if not is_state(out)}
    for result, target in zip(n.body.results, carried, strict=True):
        if is_state(result):
            continue
        if isinstance(result.annotation, g.Scalar):
            lets.append(run.let(result, run.scalar(result)))
            moves.append(Store(target, (), run.scalar(result)))
            continue
        source = run.buffer(result)
        home = run.home.get(source)
        if home is run.home[target]:  # the result already is in the carried buffer, possibly under another shape
            continue
        if home in homes:
            saved = run.temporary(result.name, g.Tensor(source.dtype, source.shape))
            aside.append(run.copy_tensor(source, saved))
            source = saved
        moves.append(run.copy_tensor(source, target))
    return [*run.poison_new(known), *lets, *aside, *moves, *run.poison_dead()]


def _keep(run: NodeEmitter, first: int, used: Sequence[Buffer]) -> None:
    """Extends the lifetimes of buffers from before the loop that are used inside it to the end of the loop."""
    for buffer in used:
        if buffer in run.home:
            run.home[buffer].last = run.step
    for temp in run.temps:
        if temp.first < first <= temp.last:
            temp.last = run.step
