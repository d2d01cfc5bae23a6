"""The contract of an executable (shapes and the values of its dims), and the size of its workspace as a formula.

print(f.contract)
# mlp
#   x: Tensor[f32, n, 64]
#   -> y: Tensor[f32, n, 256]
#   n in 8..4096 step 8
#   workspace: 512*n bytes, at most 2097152
f.contract.check({"x": (16, 64)})     # {"n": 16}, or the ShapeError that a call would raise
f.workspace(n=128)                    # 65536
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..support.errors import ShapeError
from ..support.html_table import html_table
from ..support.source import caller_span
from .interface import Interface

READABLE = 160  # characters of a formula that is shown; those of whole networks have a hundred thousand


def workspace_text(interface: Interface) -> str:
    """Return the formula of the workspace's size; one too long to read is replaced by the call that computes it."""
    if len(interface.workspace) <= READABLE:
        return f"{interface.workspace} bytes"
    dims = ", ".join(f"{symbol.name}=…" for symbol in interface.symbols)
    return f"as many bytes as workspace({dims}) says"


class _Program(Protocol):
    """The part of an executable that a contract uses."""

    interface: Interface

    def symbols_of(self, shapes: Mapping[str, Any]) -> dict[str, int]: ...

    def workspace_of(self, symbols: Sequence[int]) -> int: ...


class Contract:
    """Arguments, outputs and dims of a program: prints them, and checks shapes against them."""

    def __init__(self, program: _Program) -> None:
        self._program = program

    def check(self, shapes: Mapping[str, Any]) -> dict[str, int]:
        """Return the values of the dims for these shapes of the arguments; raises the error that a call with them would raise."""
        return self._program.symbols_of(shapes)

    def __str__(self) -> str:
        interface = self._program.interface
        lines = [interface.name]
        lines += [f"  {x}" for x in interface.inputs]
        lines += [f"  -> {y}" for y in interface.outputs]
        lines += [f"  {symbol}" for symbol in interface.symbols]
        lines += [f"  {relation}" for relation in interface.relations]
        lines += [f"  {count}: counted while it runs" for count in interface.counts]
        most = f", at most {interface.workspace_max}" if interface.workspace_max is not None else ""
        lines.append(f"  workspace: {workspace_text(interface)}{most}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        interface = self._program.interface
        results = ", ".join(map(str, interface.outputs))
        ranges = "; ".join(map(str, (*interface.symbols, *interface.relations)))
        return f"<contract of {interface.name}({', '.join(map(str, interface.inputs))}) -> {results}{'; ' if ranges else ''}{ranges}>"

    def _repr_html_(self) -> str:
        """Return the contract as a table, which notebooks show."""
        interface = self._program.interface
        parts = (
            ("argument", interface.inputs),
            ("result", interface.outputs),
            ("dim", interface.symbols),
            ("relation", interface.relations),
        )
        rows = [(kind, str(item)) for kind, items in parts for item in items]
        rows += [("count", f"{count}: counted while it runs") for count in interface.counts]
        return html_table(interface.name, (), [*rows, ("workspace", workspace_text(interface))])


class Workspace:
    """The size of the memory that a call needs besides its arguments and outputs: prints as a formula, callable with dims."""

    def __init__(self, program: _Program) -> None:
        self._program = program

    @property
    def max(self) -> int | None:
        """Bytes for the largest dims of the contract; None if a dim has no maximum."""
        return self._program.interface.workspace_max

    def __call__(self, *unnamed: int, **dims: int) -> int:
        """Return the size of the workspace in bytes for these values of the dims.

        Raises a ShapeError for a missing or unknown dim, and for a value outside of the contract.
        """
        symbols = self._program.interface.symbols
        known = [s.name for s in symbols]
        if unnamed:
            way = ", ".join(f"{name}=..." for name in known)
            raise ShapeError("dims are given by name", where=caller_span(), help=f"write workspace({way})")
        wrong = [n for n in dims if n not in known] or [n for n in known if n not in dims]
        if wrong:
            problem = "is no dim of the contract" if wrong[0] in dims else "is missing"
            dims_text = ", ".join(known) or "none"
            raise ShapeError(f"dim `{wrong[0]}` {problem}", where=caller_span(), facts=[f"the dims are: {dims_text}"])
        values = [_whole(name, dims[name]) for name in known]
        for symbol, value in zip(symbols, values, strict=True):
            if not symbol.admits(value):
                raise ShapeError(f"{symbol.name} = {value} is outside its contract {symbol}", where=caller_span())
        return self._program.workspace_of(values)

    def __str__(self) -> str:
        return self._program.interface.workspace

    def __repr__(self) -> str:
        return f"<workspace: {workspace_text(self._program.interface)}>"


def _whole(name: str, value: object) -> int:
    """Return the value of a dim as an int; accepts numpy's integers, raises `ShapeError` for other types."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ShapeError(f"dim `{name}` is {value!r}, expected a whole number", where=caller_span()) from None
