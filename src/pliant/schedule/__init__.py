"""Schedules: primitives that transform loop programs safely, traces of them, and the default rules.

Names are imported when they are first used. A program that is found in the cache needs `decisions.py` for its key and nothing else of this
package, and importing the rules takes longer than loading its code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .library import default_schedule
    from .schedule import Schedule
    from .trace import Trace

__all__ = ["Schedule", "Trace", "default_schedule"]

_HOME = {"Schedule": ".schedule", "Trace": ".trace", "default_schedule": ".library"}


def __getattr__(name: str) -> Any:
    """The name from the module that defines it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)
