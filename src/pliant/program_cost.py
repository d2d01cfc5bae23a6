"""`f.cost`: arithmetic operations and memory traffic of a program, as formulas over its dims.

print(f.cost)        # operations: n * 65536, read: n * 512 + 131072 bytes, written: n * 1024 bytes
f.cost(n=128)        # Counts(operations=8388608, read=196608, written=131072)
"""

from __future__ import annotations

import operator
from functools import cached_property
from typing import NamedTuple

from .compilation import State
from .dtype import i64
from .graph.annotation import annotation_vars
from .graph.node import CallLoop, walk_nodes
from .loop.analysis.operation_count import Cost
from .loop.analysis.operation_count import cost as loop_cost
from .lower.callee import func_of
from .pipeline import run_steps, steps_to
from .program import Program
from .runtime.contract import READABLE
from .support.errors import ShapeError, UnsupportedError
from .support.html_table import html_table
from .support.source import caller_span
from .sym.exact import exact
from .sym.expr import DIM_MAX, Const, Dim, Expr, Var, free_vars, substitute
from .sym.simplify import simplify
from .target import target


class Counts(NamedTuple):
    """The cost of a program for concrete dims; bytes are compulsory traffic: each kernel moves every element that it touches once."""

    operations: int
    read: int
    written: int


class ProgramCost:
    """The symbolic cost of a program: prints as formulas, and can be called with dims for numbers. It is computed lazily."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @cached_property
    def _calls(self) -> list[tuple[Cost, dict[Var, Expr]]]:
        """The cost of each fused loop program over its own symbols, and the values of these over the program's dims.

        Raises UnsupportedError if a literal size is too large for a formula.
        """
        function = run_steps(State(self._program.entry, target("native"), self._program.constants), steps_to("without_fma")).function
        calls = [n for n in walk_nodes(function.nodes) if isinstance(n, CallLoop)]
        costs = []
        for n in calls:
            func = func_of(n.callee)
            one = loop_cost(func)
            if not one.exact:
                raise UnsupportedError(f"the cost of `{func.name}` is beyond what formulas can hold: its literal sizes are too large")
            costs.append((one, dict(zip(func.symbols, n.dims, strict=True))))
        return costs

    @cached_property
    def formulas(self) -> Cost:
        """Operations, bytes read and bytes written, summed over the fused loop programs; both branches of an `if` count."""
        sums: list[Expr] = [Const(0, i64)] * 3
        for one, dims in self._calls:
            sums = [a + substitute(b, dims) for a, b in zip(sums, one.counts, strict=True)]
        operations, read, written = (simplify(e) for e in sums)
        return Cost(operations, read, written)

    @cached_property
    def _dims(self) -> dict[str, Var]:
        """The dims that the cost formulas depend on, by name."""
        every = (v for one, dims in self._calls for e in one.counts for s in free_vars(e) for v in free_vars(dims.get(s, s)))
        return {v.name: v for v in every}

    @property
    def _declared(self) -> list[str]:
        """The names of the dims of the program's parameters, in order."""
        return list(dict.fromkeys(v.name for p in self._program.entry.params for v in annotation_vars(p.annotation)))

    def __call__(self, **dims: int) -> Counts:
        """Returns the cost for concrete dims, computed with Python integers, so it cannot overflow.

        Raises ShapeError for a missing or unknown dim, and for a value outside of its contract.
        """
        names = self._dims
        missing = [name for name in names if name not in dims]
        if missing:
            known = ", ".join(sorted(names))
            raise ShapeError(f"the cost depends on dim `{missing[0]}`", where=caller_span(), facts=[f"it is a formula of {known}"])
        declared = {*self._declared, *names}
        if unknown := [name for name in dims if name not in declared]:
            facts = [f"the dims are: {', '.join(sorted(declared)) or 'none'}"]
            raise ShapeError(f"dim `{unknown[0]}` is no dim of the contract", where=caller_span(), facts=facts)
        values = {v: _size(v, dims[name]) for name, v in names.items()}
        sums = [0, 0, 0]
        for one, symbols in self._calls:
            inside = {s: exact(e, values) for s, e in symbols.items() if free_vars(e) <= values.keys()}
            sums = [a + exact(e, inside) for a, e in zip(sums, one.counts, strict=True)]
        return Counts(*sums)

    def __str__(self) -> str:
        c = self.formulas
        return f"operations: {c.operations}, read: {c.read} bytes, written: {c.written} bytes"

    def __repr__(self) -> str:
        dims = ", ".join(f"{name}=..." for name in self._declared)
        return f"<cost of {self._program.entry.name}: print it, or call it with ({dims})>"

    def _repr_html_(self) -> str:
        """Returns the formulas as a table, which notebooks show; one too long to read is replaced by the call that evaluates it."""
        call = f"cost({', '.join(f'{name}=...' for name in self._declared)})"
        try:
            c = self.formulas
        except UnsupportedError as problem:
            return html_table(self._program.entry.name, (), [("cost", problem.what)])
        named = ((name, str(e)) for name, e in (("operations", c.operations), ("bytes read", c.read), ("bytes written", c.written)))
        rows = [(name, text if len(text) <= READABLE else f"as {call} says") for name, text in named]
        return html_table(self._program.entry.name, (), rows)


def _size(dim: Var, value: object) -> int:
    """Returns the value of a dim as an int; raises ShapeError if it is no integer or not within its contract."""
    try:
        size = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"dim `{dim.name}` is {value!r}, expected a whole number", where=caller_span()) from None
    low, high, step = (dim.min, dim.max, dim.multiple_of) if isinstance(dim, Dim) else (0, DIM_MAX, 1)
    if not low <= size <= high or size % step:
        contract = dim.contract if isinstance(dim, Dim) else f"{dim.name} in {low}..{high}"
        raise ShapeError(f"{dim.name} = {size} is outside its contract {contract}", where=caller_span())
    return size
