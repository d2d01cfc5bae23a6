"""Spaces of schedules: modules that users or Pliant write (`module.py`, `modules/`), and the list of them that is a space (`space.py`).

    space = Space([inline, tiling("SSRS"), threads_and_vectors])
    space.draw(matmul, seed=1).program

Users import all of it from `pliant.tune`. It stands here, among the schedules, because a compilation replays what a search has found.
"""

from .module import Module, module
from .space import Space

__all__ = ["Module", "Space", "module"]
