"""Moves computations on literals (such as weight packing) to load time: splits a function into a `load` function and the rest.

    w_packed = pack(w); y = matmul(x, w_packed)      ->      load: w_packed = pack(w)        rest: y = matmul(x, <w_packed>)

`load` has no parameters; its results are the tensors that the rest needs. In the rest they are literals whose values are not known yet
(`graph/stand_in.py`). `whole` joins the two parts again, to print the program at this stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import node as g
from ...graph.op_table import TABLE
from ...graph.stand_in import stand_in
from ...support.record import dataclass
from ...sym.expr import Const, Expr

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A split function: `load` runs once, `rest` at every call; `derived` are the placeholders in `rest` for the results of `load`."""

    load: g.Function | None
    rest: g.Function
    derived: tuple[Array, ...]


def known_values(function: g.Function) -> set[g.Value]:
    """Returns the values that do not depend on arguments: literals, and pure computations on literals."""
    known: set[g.Value] = set()
    for n in function.nodes:
        if isinstance(n, g.Const) or (_is_pure(n) and g.node_args(n) and all(a in known for a in g.node_args(n))):
            known.update(n.outs)
    return known


def lift_constants(function: g.Function) -> Lifted:
    """Splits a function into the part that depends on literals alone, run once at load time, and the rest.

    Without such a part, `load` is None and `rest` the function itself.
    """
    known = known_values(function)
    literals = {out for n in function.nodes if isinstance(n, g.Const) for out in n.outs}
    early = [n for n in function.nodes if n.outs and all(v in known and v not in literals for v in n.outs)]
    late = [n for n in function.nodes if n not in set(early)]
    needed = {v for n in late for v in g.all_uses(n)} | set(function.results)
    crossing = [v for n in early for v in n.outs if v in needed]
    if not crossing:
        return Lifted(None, function, ())
    derived = {v: _stand_in(v.tensor) for v in crossing}
    consts = [n for n in function.nodes if isinstance(n, g.Const)]
    used = {a for n in early for a in g.node_args(n)}
    load = g.Function(
        name=f"{function.name}_load",
        params=(),
        nodes=(*(n for n in consts if n.outs[0] in used), *early),
        results=tuple(crossing),
        span=function.span,
    )
    stand_ins = [g.Const(outs=(v,), array=a) for v, a in derived.items()]
    rest = [n for n in late if not isinstance(n, g.Const) or n.outs[0] in needed]
    return Lifted(load, function.with_(nodes=(*stand_ins, *rest)), tuple(derived.values()))


def whole(rest: g.Function, load: g.Function, derived: Sequence[Array]) -> g.Function:
    """Joins the two parts: `rest` calls `load` in place of its placeholder literals."""
    places = {id(n.array): n for n in rest.nodes if isinstance(n, g.Const)}
    stand_ins = [places.get(id(a)) for a in derived]
    outs = tuple(g.Value(r.name, r.annotation) if n is None else n.outs[0] for n, r in zip(stand_ins, load.results, strict=True))
    call = g.CallFunction(outs=outs, function=load, args=(), span=rest.span)
    return rest.with_(nodes=(call, *(n for n in rest.nodes if n not in stand_ins)))


def _is_pure(n: g.Node) -> bool:
    """True if a node may run at load time: it only computes tensors of constant size from its arguments, and has no checks."""
    if any(not isinstance(v.annotation, g.Tensor) or v.annotation.state or not _constant(v.annotation.shape) for v in n.outs):
        return False
    if n.requires:
        return False
    if isinstance(n, g.CallLoop):
        return _constant(n.dims) and all(isinstance(a, g.Value) for a in n.args) and all(v.tensor.dtype.bits >= 8 for v in n.outs)
    return isinstance(n, g.Op) and TABLE[n.op].view


def _constant(parts: tuple[Expr, ...]) -> bool:
    return all(isinstance(e, Const) for e in parts)


def _stand_in(t: g.Tensor) -> Array:
    shape = tuple(int(e.value) for e in t.shape if isinstance(e, Const))
    return stand_in(t.dtype.numpy(), shape)
