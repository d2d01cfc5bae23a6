"""The import rules of ONNX operators, one file per family; all files are imported at the first lookup."""

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
    """Returns the import rule of an ONNX operator, or None."""
    _load()
    return RULES.get((domain, op))


@cache
def _load() -> None:
    for family in _FAMILIES:
        import_module(f".{family}", __name__)
