"""Lets a pass create replacement nodes by calling `ops`, as users do: emits them at the place of the rewritten node.

with building(InPlace(rewriter, node)):
    y = ops.add(ops.mul(a, b), c)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...support.errors import Error
from ..node import Node, Value
from ..ops.shape import ScalarAttrs
from ..rewrite import Rewriter


class InPlace:
    """A builder that emits operators through a `Rewriter` at the node `near`; raises if deduction fails."""

    def __init__(self, rewriter: Rewriter, near: Node) -> None:
        self.rewriter, self.near = rewriter, near

    def op(self, name: str, args: Sequence[Value], attrs: Any = None) -> tuple[Value, ...]:
        """Emits an operator and returns its results."""
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
