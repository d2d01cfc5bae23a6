"""The rules of the operators, a file for each family; they are imported when the first one is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..registry import RULES, Rule

_FAMILIES = (
    "elementwise", "activations", "products", "spatial", "norms", "reduce", "shapes", "slicing", "index", "select", "create",
    "quantize", "resize", "images", "control", "recurrent", "sequences", "signal", "sampling", "pooling", "regions", "labels", "trees",
    "microsoft", "microsoft_attention", "microsoft_blocks", "microsoft_gqa", "microsoft_quantized",
)  # fmt: skip


def rule_of(domain: str, op: str) -> Rule | None:
    """The rule of an operator, None where there is none."""
    _load()
    return RULES.get((domain, op))


@cache
def _load() -> None:
    for family in _FAMILIES:
        import_module(f".{family}", __name__)
