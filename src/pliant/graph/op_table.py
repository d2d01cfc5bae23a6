"""`TABLE`: what the compiler knows about each operator, by name.

A family is imported when one of its operators is looked up, so programs without graph operators import none.

    TABLE["matmul"].deduce(deduction, attrs)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..sym.expr import Var
from . import opset
from .node import MatchCast, Node, Op, Value, is_state
from .operators import DECLARED, OpDef


class _Table(Mapping[str, OpDef]):
    """A mapping of all declared operators by name; families are imported at the first use."""

    def __getitem__(self, name: str) -> OpDef:
        if name not in DECLARED:
            opset.import_operator(name)
        return DECLARED[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_all())

    def __len__(self) -> int:
        return len(_all())


def _all() -> dict[str, OpDef]:
    """Imports all families of operators; returns the operators by name."""
    for name in opset.__all__:
        opset.import_operator(name)
    return DECLARED


TABLE = _Table()


def defined_dims(name: str, attrs: Any) -> tuple[Var, ...]:
    """Returns the dims that an operator with these attributes defines, such as the number of nonzero elements."""
    return tuple(getattr(attrs, field) for field in TABLE[name].defines)


def node_defines(node: Node) -> tuple[Var, ...]:
    """Returns the dims that an operator node or a match_cast defines; none for other nodes."""
    if isinstance(node, Op):
        return defined_dims(node.op, node.attrs)
    return node.defines if isinstance(node, MatchCast) else ()


def updated_state(node: Node) -> Value | None:
    """Returns the state argument that an operator consumes and updates; None if it updates none."""
    return node.args[0] if isinstance(node, Op) and TABLE[node.op].updates and is_state(node.args[0]) else None
