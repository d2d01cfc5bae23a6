"""Facts about machines: the `Target` record and the names users write for it."""

from .machine import Caches, Target
from .names import KINDS, OSES, TABLE, known_names, target

__all__ = ["KINDS", "OSES", "TABLE", "Caches", "Target", "known_names", "target"]
