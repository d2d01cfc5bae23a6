"""Lets a pass create replacement nodes by calling `ops`, as users do: emits them at the place of the rewritten node.

replacement(rewriter, node, lambda node: ops.add(ops.mul(node.args[0], b), c))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...support.errors import Error
from ..node import Node, Op, Value
from ..operators import building
from ..ops.shape import ScalarAttrs
from ..rewrite import Rewriter


class InPlace:
    """An `Emitter` for passes: emits operators through a `Rewriter` at the place of the node `near`; raises if deduction fails."""

    def __init__(self, rewriter: Rewriter, near: Node) -> None:
        self.rewriter, self.near = rewriter, near

    def op(self, name: str, args: Sequence[Value], attrs: Any = None) -> tuple[Value, ...]:
        """Emits an operator and returns its results; raises Error if deduction fails."""
        results = self.rewriter.make(name, args, attrs, self.near)
        if results is None:
            raise Error(f"{name} does not fit here")
        return results

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        """Emits a literal tensor."""
        return self.rewriter.constant(array, "const", self.near.origin, self.near.span)

    literal = constant

    def scalar(self, value: Any) -> Value:
        """Emits a host scalar."""
        return self.op("scalar", (), ScalarAttrs(value))[0]


def replacement(rewriter: Rewriter, node: Op, make: Callable[[Op], Value | None]) -> Sequence[Value] | None:
    """Returns the replacement of a node that `make` builds by calling `ops`; None if it fails or has another annotation."""
    with building(InPlace(rewriter, node)):  # type: ignore[arg-type]
        try:
            result = make(node)
        except Error:
            return None
    return None if result is None or result.annotation != node.outs[0].annotation else (result,)
