"""The table of rules: by domain and operator, a function from a site to what the node results in.

    @rule("Relu")
    def relu(site):
        return ops.relu(site.x(0))

Users add rules for operators of their own domains: `@pliant.frontends.onnx.rule("Foo", domain="my.domain")`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .node_context import NodeContext

Rule = Callable[[NodeContext], Any]  # a value, a known tensor, or several of them; None stands for a result that is not supported
RULES: dict[tuple[str, str], Rule] = {}


def rule(*names: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Makes a function the rule of the operators with these names."""

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[domain, name] = function
        return function

    return add
