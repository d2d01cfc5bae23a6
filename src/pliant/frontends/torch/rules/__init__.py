"""The import rules of ATen operators, one file per family; all files are imported at the first lookup."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from ..registry import RULES, Rule

_FAMILIES = ("elementwise", "activations", "products", "spatial", "norms", "reduce", "shapes", "index", "create", "images", "select")


def rule_of(name: str) -> Rule | None:
    """Returns the import rule of an operator, or None; `aten.view_copy` has that of `aten.view`: values are never aliased."""
    _load()
    return RULES.get(name) or RULES.get(name.removesuffix("_copy"))


@cache
def _load() -> None:
    """Imports all files of rules, which register them; only once."""
    for family in _FAMILIES:
        import_module(f".{family}", __name__)
