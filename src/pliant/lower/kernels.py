"""Loop programs of a function made ready for code generation: scheduled for the target, their workspace lifted, equal ones shared."""

from __future__ import annotations

from ..graph import node as g
from ..graph.ops.stage import Stage
from ..loop.buffer import Buffer
from ..loop.stmt import Func
from ..loop.structural import structural_hash
from ..schedule.library import default_schedule
from ..sym.expr import Expr, substitute
from ..target import Target
from .callee import callee_of, func_of
from .from_ops import func_of_stages
from .lift_workspace import lift_workspace


class Kernels:
    """The loop programs of one compilation, by structure: what is scheduled once serves every call of its like."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.ready: dict[bytes, tuple[Func, tuple[Buffer, ...]]] = {}

    def function(self, f: g.Function) -> g.Function:
        """The function with each of its loop programs ready."""
        return f.with_(nodes=tuple(self.node(n) for n in f.nodes))

    def node(self, n: g.Node) -> g.Node:
        match n:
            case g.CallLoop():
                return self.call(n)
            case g.If():
                return n.with_(then=self.body(n.then), orelse=self.body(n.orelse))
            case g.While():
                return n.with_(cond=self.body(n.cond), body=self.body(n.body))
        return n

    def body(self, b: g.Body) -> g.Body:
        return g.Body(b.params, tuple(self.node(n) for n in b.nodes), b.results)

    def call(self, n: g.CallLoop) -> g.Node:
        func, scratch = self.make_ready(func_of(n.callee))
        values = dict(zip(func.symbols, n.dims, strict=True))
        extra = tuple(g.Value(b.name, g.Tensor(b.dtype, tuple(substitute(e, values) for e in b.shape))) for b in scratch)
        return n.with_(callee=callee_of(func), outs=(*n.outs, *extra))

    def make_ready(self, func: Func) -> tuple[Func, tuple[Buffer, ...]]:
        """The scheduled program that serves `func`, and what of its parameters is scratch memory."""
        key = structural_hash(func)
        if key not in self.ready:
            scheduled, _ = default_schedule(func, self.target)
            self.ready[key] = lift_workspace(scheduled)
        return self.ready[key]

    def copy(self, t: g.Tensor) -> tuple[Func, tuple[Expr, ...]]:
        """A loop program that copies a tensor, and the values of its symbols: the variables of the shape."""
        stage = Stage("copy", t.dtype, t.shape, lambda i, r, read: read(0, *i))
        func, _ = func_of_stages("copy", (Buffer("x0", t.dtype, t.shape),), (stage,), 1)
        return self.make_ready(func)[0], func.symbols  # an equal one may be ready, over other variables
