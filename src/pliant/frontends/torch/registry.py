"""The table of import rules: an operator's name without its overload -> a function that emits it and returns its results.

    @rule("aten.relu")
    def relu(site, self):
        return ops.relu(self)

A rule's parameters are named as in the operator's schema. It leaves out those that it ignores: an error says so if a call gives one of
them another value than its default, unless it is in HARMLESS. Users add rules for their own operators:
`@pliant.frontends.torch.rule("mylib.foo")`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]

# Parameters that say where and how a tensor lies in memory: results of programs are contiguous, on the CPU.
HARMLESS = frozenset({"layout", "device", "pin_memory", "non_blocking", "memory_format", "cudnn_enable", "cudnn_enabled"})


@dataclass(frozen=True, slots=True)
class Rule:
    """An import rule: the function, and the names of the operator's parameters that it reads."""

    function: Function
    names: frozenset[str]


RULES: dict[str, Rule] = {}


def rule(*operators: str) -> Callable[[Function], Function]:
    """Decorator: registers a function as the import rule of these operators, such as "aten.relu", for all their overloads.

    Returns the function. It replaces a rule that an operator has already.
    """

    def add(function: Function) -> Function:
        """Registers the function under each of the operators; returns it."""
        names = frozenset(list(inspect.signature(function).parameters)[1:])
        for operator in operators:
            RULES[operator] = Rule(function, names)
        return function

    return add
