"""The launches of a compiled program: which kernel runs at each step, for which of the user's layers, and at what cost.

for step in steps(provenance):
    step.name, step.layers, step.cost(dims)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph.node import CallLoop, Value, walk_nodes
from ..loop.analysis.operation_count import cost as loop_cost
from ..loop.stmt import Call, Func, walk_stmts
from ..lower.callee import func_of
from ..provenance import Provenance
from ..support.record import dataclass
from ..sym.exact import exact
from ..sym.expr import Expr, Var, free_vars, substitute


@dataclass(frozen=True, slots=True)
class Step:
    """A record of one kernel launch by the host program; a copy that the compiler inserted has no node."""

    func: Func  # the kernel as it is compiled
    node: CallLoop | None  # the scheduled call
    logical: CallLoop | None  # the same call before scheduling

    @property
    def name(self) -> str:
        """The name of the launched kernel."""
        return self.func.name

    @property
    def layers(self) -> tuple[str, ...]:
        """The user's layers that the kernel computes; empty for a copy."""
        return self.node.origin if self.node is not None else ()

    def cost(self, dims: Mapping[Var, int]) -> tuple[int, int] | None:
        """Returns the floating-point operations and bytes moved for these dims.

        None if they are unknown, if they depend on other variables, or if a literal of their formulas may have overflowed.
        """
        call = self.logical or self.node
        if call is None:
            return None
        func = func_of(call.callee)
        symbolic, values = loop_cost(func), dict(zip(func.symbols, call.dims, strict=True))
        if not symbolic.exact:
            return None
        formulas: list[Expr] = [substitute(e, values) for e in (symbolic.operations, symbolic.bytes)]
        if any(v not in dims for e in formulas for v in free_vars(e)):
            return None
        operations, moved = (exact(e, dims) for e in formulas)
        return operations, moved


def steps(provenance: Provenance, names: Sequence[str] | None = None) -> list[Step]:
    """Returns the launches in host program order, of the shape variant whose kernels have these names, else of the first variant."""
    state = provenance.lowered
    assert state.host is not None
    logical = _by_result(provenance.fused.function.nodes)
    calls = (s.func for s in walk_stmts(state.host.run.body) if isinstance(s, Call))
    variants = [[_step(next(calls), node, logical) for node in launches] for launches in state.host.launches]
    return next((v for v in variants if names is not None and [s.name for s in v] == list(names)), variants[0])


def _step(func: Func, node: CallLoop | None, logical: Mapping[Value, CallLoop]) -> Step:
    """Returns the record of a kernel call in the host program."""
    return Step(func, node, logical.get(node.outs[0]) if node is not None and node.outs else None)


def _by_result(nodes: tuple[object, ...]) -> dict[Value, CallLoop]:
    """Returns each call by its first result; scheduling does not change the results, so scheduled calls are found by it."""
    return {n.outs[0]: n for n in walk_nodes(nodes) if isinstance(n, CallLoop) and n.outs}  # type: ignore[arg-type]
