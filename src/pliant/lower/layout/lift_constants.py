"""What depends on literals alone is computed once, when a program is loaded: the function is taken apart into a part for then and the rest.

    w_packed = pack(w); y = matmul(x, w_packed)      ->      load: w_packed = pack(w)        rest: y = matmul(x, <w_packed>)

`load` is a function without parameters, whose results are the tensors that the rest needs. In the rest they are literals whose values are
not known yet (`graph/stand_in.py`). `whole` puts the two parts together again, for the text of a program at this stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import node as g
from ...graph.operators import TABLE
from ...graph.stand_in import stand_in
from ...support.record import dataclass
from ...sym.expr import Const, Expr

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A function taken apart: what is done once, the rest, and the arrays that stand in the rest for the results of the first."""

    load: g.Function | None
    rest: g.Function
    derived: tuple[Array, ...]


def known_values(function: g.Function) -> set[g.Value]:
    """The values that are known before the function is called: literals, and what is computed from them alone."""
    known: set[g.Value] = set()
    for n in function.nodes:
        if isinstance(n, g.Const) or (_is_pure(n) and g.node_args(n) and all(a in known for a in g.node_args(n))):
            known.update(n.outs)
    return known


def lift_constants(function: g.Function) -> Lifted:
    """The function taken apart; `load` is None where there is nothing to do beforehand."""
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
    """The two parts as one function again: `rest` calls `load` for the literals that stand in it without values."""
    places = {id(n.array): n for n in rest.nodes if isinstance(n, g.Const)}
    found = [places.get(id(a)) for a in derived]
    outs = tuple(g.Value(r.name, r.annotation) if n is None else n.outs[0] for n, r in zip(found, load.results, strict=True))
    call = g.CallFunction(outs=outs, function=load, args=(), span=rest.span)
    return rest.with_(nodes=(call, *(n for n in rest.nodes if n not in found)))


def _is_pure(n: g.Node) -> bool:
    """Whether a node may be done early: it computes tensors of constant size from its arguments, and nothing else."""
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
