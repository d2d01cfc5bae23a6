"""The table of import rules: (domain, operator) -> a function that emits the node and returns its results.

    @rule("Relu")
    def relu(site):
        return ops.relu(site.x(0))

Users add rules for operators of their own domains: `@pliant.frontends.onnx.rule("Foo", domain="my.domain")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .node_context import NodeContext

Rule = Callable[[NodeContext], Any]  # returns a value, a known tensor, or several of them; None for an unsupported result
RULES: dict[tuple[str, str], Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Decorator: registers a function as the import rule of these operators, in place of an earlier one; returns the function."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[domain, name] = function
        return function

    return add
