"""A program: graph functions and the loop programs they call, as one text that can be printed, read and edited.

    p = pliant.parse(str(p))       # structurally the same

The text is a Python file: dims, then kernels, then functions, the entry last.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .graph import node as g
from .graph.node import Callee, Function
from .loop.stmt import Func
from .lower.callee import callee_of, func_of
from .support.errors import Error


@dataclass(frozen=True, slots=True)
class Program:
    """An entry function, with everything it calls."""

    entry: Function

    @staticmethod
    def of(entry: Function) -> Program:
        """The program whose entry is this graph function."""
        return Program(entry)

    @staticmethod
    def of_kernel(func: Func) -> Program:
        """The program that does nothing but call one loop program: `out` parameters are results, `inout` ones are state."""
        params: list[g.Value] = []
        outs: list[g.Value] = []
        for p in callee_of(func).params:
            if p.shape is None:
                params.append(g.Value(p.name, g.Scalar(p.dtype)))
                continue
            if p.role != "out":
                params.append(g.Value(p.name, g.Tensor(p.dtype, p.shape, state=p.role == "inout")))
            if p.role != "in":
                outs.append(g.Value(p.name, g.Tensor(p.dtype, p.shape, state=p.role == "inout")))
        call = g.CallLoop(outs=tuple(outs), callee=callee_of(func), args=tuple(params), dims=func.symbols, span=func.span)
        return Program(Function(func.name, tuple(params), (call,), tuple(outs), span=func.span))

    @property
    def kernels(self) -> tuple[Func, ...]:
        """The loop programs that are called, each once, callees of theirs left to them."""
        return tuple({func_of(c): None for c in callees(self.entry)})

    @property
    def constants(self) -> tuple[Any, ...]:
        """The arrays of the literal tensors, in order of appearance; code refers to them by number."""
        return tuple({id(a): a for a in _constants(self.entry)}.values())

    @staticmethod
    def parse(text: str, file: str = "<text>") -> Program:
        """The program that printed text stands for; nothing is executed."""
        from .graph.parse import parse_module as parse_functions
        from .loop.parse import parse_module as parse_kernels

        try:
            tree = ast.parse(text)
        except SyntaxError as e:
            raise Error(f"this is not Python syntax: {e.msg}", facts=[f"{file}, line {e.lineno}"]) from None
        kernels = parse_kernels(text, file)
        functions = parse_functions(text, {name: callee_of(f) for name, f in kernels.items()}, file)
        last = next((n.name for n in reversed(tree.body) if isinstance(n, ast.FunctionDef)), None)
        if last is None:
            raise Error("there is no function in this text", facts=[f"{file} has {len(tree.body)} statements"])
        return Program(functions[last]) if last in functions else Program.of_kernel(kernels[last])

    def __str__(self) -> str:
        from .graph.printer import print_function

        return print_function(self.entry)


def _constants(function: Function) -> Iterator[Any]:
    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.Const):
            yield n.array
        elif isinstance(n, g.CallFunction):
            yield from _constants(n.function)


def callees(function: Function) -> list[Callee]:
    """The loop programs that a function and the functions it calls use, in order of first use."""
    found: dict[Callee, None] = {}
    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.CallLoop):
            found.setdefault(n.callee)
        elif isinstance(n, g.CallFunction):
            found.update(dict.fromkeys(callees(n.function)))
    return list(found)
