"""What a package computes once, before it is first called: its literals in the layouts that its kernels want.

literals = all_literals(package, program.constants)
f = Executable(package, constants=package.interface.memory(literals))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .executable import Executable
from .package import Package


def all_literals(package: Package, literals: Sequence[Any]) -> list[Any]:
    """The literals of a program, and behind them the arrays that its package computes from them."""
    if package.load is None:
        return list(literals)
    found = Executable(package.load, constants=package.load.interface.memory(literals))()
    return [*literals, *(found if isinstance(found, tuple) else (found,))]
