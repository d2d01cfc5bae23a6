"""Schedules: primitives that transform loop programs safely, traces of them, and the default rules.

Names are imported on first use. A program found in the code cache needs only `decisions.py` of this package, for its cache key, and
importing the rules takes longer than loading its code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .library import default_schedule
    from .schedule import Schedule
    from .trace import Trace

__all__ = ["Schedule", "Trace", "default_schedule"]

_HOME = {"Schedule": ".schedule", "Trace": ".trace", "default_schedule": ".library"}  # public name -> module that defines it


def __getattr__(name: str) -> Any:
    """Import a public name of the package at its first use, from the module that defines it. Raises an AttributeError for other names."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)
