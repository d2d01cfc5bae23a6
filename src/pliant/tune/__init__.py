"""Autotuning: searches the decisions of kernels for the fastest ones, by measuring (`docs/design/0029-tuning.md`).

The function is `pliant.autotune`. This package has its parts: the space of a kernel, cost model, strategy, measuring in a child process,
and the database of what was found. It stands above the pipeline; compilations read records through `schedule/records.py`. The language of
spaces (`module`, `Space`) is in `schedule/spaces/`, since compilations replay what was found.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..schedule.spaces.module import Module, module
    from ..schedule.spaces.space import Space
    from .cost_model import CostModel, Ridge
    from .mutators import mutator
    from .strategy import Descent, Evolution, Strategy

__all__ = ["CostModel", "Descent", "Evolution", "Module", "Ridge", "Space", "Strategy", "module", "mutator"]

_HOME = {
    **dict.fromkeys(("CostModel", "Ridge"), ".cost_model"),
    **dict.fromkeys(("Descent", "Evolution", "Strategy"), ".strategy"),
    **dict.fromkeys(("Module", "module"), "..schedule.spaces.module"),
    "mutator": ".mutators",
    "Space": "..schedule.spaces.space",
}


def __getattr__(name: str) -> Any:
    """Import a public name of the package at its first use, from the module that defines it. Raises an AttributeError for other names."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)
