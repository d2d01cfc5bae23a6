"""What a package computes once, before it is first called: its literals in the layouts that its kernels want.

literals = all_literals(package, program.constants)
f = Executable(package, constants=package.interface.memory(literals))
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .executable import Executable
from .interface import Output
from .package import Package

_ALIGNMENT = 64


def all_literals(package: Package, literals: Sequence[Any]) -> list[Any]:
    """The literals of a program, and behind them the arrays that its package computes from them."""
    if package.load is None:
        return list(literals)
    load = Executable(package.load, constants=package.load.interface.memory(literals))
    return [*literals, *load.run({}, out=_side_by_side(load.outputs)).values()]


def _side_by_side(outputs: Sequence[Output]) -> dict[str, Any]:
    """Memory for the outputs in one piece: the system gives large pages to large pieces only, and those are read faster."""
    import numpy as np

    from ..dtype import ALL

    kinds = {o.name: ALL[o.dtype] for o in outputs}
    shapes = {o.name: kinds[o.name].array_shape(tuple(map(int, o.shape))) for o in outputs}
    sizes = {name: math.prod(shape) * kinds[name].numpy().itemsize for name, shape in shapes.items()}
    whole = np.empty(sum(-(-size // _ALIGNMENT) for size in sizes.values()) * _ALIGNMENT + _ALIGNMENT, np.uint8)
    at = -whole.ctypes.data % _ALIGNMENT
    found = {}
    for name, shape in shapes.items():
        found[name] = whole[at : at + sizes[name]].view(kinds[name].numpy()).reshape(shape)
        at += -(-sizes[name] // _ALIGNMENT) * _ALIGNMENT
    return found
