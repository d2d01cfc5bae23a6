"""What a program costs, as formulas of its dims: operations, and bytes to and from memory. For `f.cost(n=128)`.

print(f.cost)        # operations: n * 65536, read: n * 512 + 131072 bytes, written: n * 1024 bytes
f.cost(n=128)        # Counts(operations=8388608, read=196608, written=131072)
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from .dtype import i64
from .graph.node import CallLoop, walk_nodes
from .loop.analysis.cost import Cost
from .loop.analysis.cost import cost as loop_cost
from .lower.callee import func_of
from .pipeline import STEPS, State, run_steps
from .program import Program
from .support.errors import ShapeError
from .support.source import caller_span
from .sym.expr import Const, Expr, Var, free_vars, substitute
from .sym.semantics import evaluate
from .sym.simplify import simplify
from .target import target


class Counts(NamedTuple):
    """The cost for certain dims; bytes are those that must move when caches do the rest."""

    operations: int
    read: int
    written: int


class ProgramCost:
    """The cost of a program: text as formulas, callable for numbers. Worked out when it is first asked for."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @cached_property
    def formulas(self) -> Cost:
        """Operations, bytes read and bytes written, summed over the fused loop programs; both arms of an `if` count."""
        steps = STEPS[: [s.name for s in STEPS].index("schedule")]
        function = run_steps(State(self._program.entry, target("native"), self._program.constants), steps).function
        sums: list[Expr] = [Const(0, i64)] * 3
        for n in walk_nodes(function.nodes):
            if isinstance(n, CallLoop):
                func = func_of(n.callee)
                one, dims = loop_cost(func), dict(zip(func.symbols, n.dims, strict=True))
                sums = [a + substitute(b, dims) for a, b in zip(sums, (one.operations, one.read, one.written), strict=True)]
        return Cost(*(simplify(e) for e in sums))

    def __call__(self, **dims: int) -> Counts:
        """The cost for these values of the dims."""
        formulas = (self.formulas.operations, self.formulas.read, self.formulas.written)
        names: dict[str, Var] = {v.name: v for e in formulas for v in free_vars(e)}
        missing = [name for name in names if name not in dims]
        if missing:
            known = ", ".join(sorted(names))
            raise ShapeError(f"the cost depends on dim `{missing[0]}`", where=caller_span(), facts=[f"it is a formula of {known}"])
        values = {v: dims[name] for name, v in names.items()}
        return Counts(*(int(evaluate(e, values)) for e in formulas))

    def __str__(self) -> str:
        c = self.formulas
        return f"operations: {c.operations}, read: {c.read} bytes, written: {c.written} bytes"

    def __repr__(self) -> str:
        return f"<cost of {self._program.entry.name}>"
