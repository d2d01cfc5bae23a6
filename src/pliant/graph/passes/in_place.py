"""Operators emitted where a pass rewrites a node, so that a pass calls `ops` as users do.

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
    """Emits what operators are made of in place of a node; what does not fit there is an error."""

    def __init__(self, rewriter: Rewriter, near: Node) -> None:
        self.rewriter, self.near = rewriter, near

    def op(self, name: str, args: Sequence[Value], attrs: Any = None) -> tuple[Value, ...]:
        """The results of an operator."""
        found = self.rewriter.make(name, args, attrs, self.near)
        if found is None:
            raise Error(f"{name} does not fit here")
        return found

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        """A literal tensor."""
        return self.rewriter.constant(array, "const", self.near.origin, self.near.span)

    literal = constant

    def scalar(self, value: Any) -> Value:
        """A host scalar."""
        return self.op("scalar", (), ScalarAttrs(value))[0]
