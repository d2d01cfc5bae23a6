"""Schedules: primitives that transform loop programs safely, traces of them, and the default rules."""

from .library import default_schedule
from .schedule import Schedule
from .trace import Trace

__all__ = ["Schedule", "Trace", "default_schedule"]
