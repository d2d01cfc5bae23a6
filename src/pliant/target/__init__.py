"""Facts about machines: the `Target` record and the names users write for it."""

from .machine import Caches, Kind, Target
from .names import OSES, TABLE, known_names, target

__all__ = ["OSES", "TABLE", "Caches", "Kind", "Target", "known_names", "target"]
