"""Turns a package into an executable: computes its packed weights once (its `load` program) and collects the constants of its code.

f = open_package(package, program.constants, program.functions, threads=2)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .executable import Executable
from .interface import Output
from .package import Package

_ALIGNMENT = 64  # of each array: a cache line, and the widest vector load


def open_package(
    package: Package, literals: Sequence[Any], functions: Sequence[Any] = (), threads: int | None = None, provenance: Any = None
) -> Executable:
    """Return the executable of a package, given the literals and the Python functions of its program."""
    return Executable(package, threads=threads, constants=constants_of(package, literals, functions), provenance=provenance)


def constants_of(package: Package, literals: Sequence[Any], functions: Sequence[Any] = ()) -> list[Any]:
    """Return the arrays that a package's code reads: literals, packed weights that its `load` computes from them, function addresses.

    Raises a ValueError if the literals do not fit the package: they may come from different files.
    """
    if package.load is not None:
        load = Executable(package.load, constants=_fitting(package.load, literals))
        literals = [*literals, *load.run({}, out=_side_by_side(load.outputs)).values()]
    return _fitting(package, literals, functions)


def _fitting(package: Package, literals: Sequence[Any], functions: Sequence[Any] = ()) -> list[Any]:
    try:
        arrays = package.interface.memory(literals, functions)
    except IndexError:
        raise ValueError("its code needs constants that are not there") from None
    if any(a.nbytes != c.size for a, c in zip(arrays, package.interface.constants, strict=True)):
        raise ValueError("the constants of its code have other sizes than its tensors")
    return arrays


def _side_by_side(outputs: Sequence[Output]) -> dict[str, Any]:
    """Allocate the outputs in one piece: the system gives huge pages to large pieces only, and those are read faster."""
    import numpy as np

    from ..dtype import ALL

    kinds = {o.name: ALL[o.dtype] for o in outputs}
    shapes = {o.name: kinds[o.name].array_shape(tuple(map(int, o.shape))) for o in outputs}
    sizes = {name: math.prod(shape) * kinds[name].numpy().itemsize for name, shape in shapes.items()}
    whole = np.empty(sum(-(-size // _ALIGNMENT) for size in sizes.values()) * _ALIGNMENT + _ALIGNMENT, np.uint8)
    at = -whole.ctypes.data % _ALIGNMENT
    arrays = {}
    for name, shape in shapes.items():
        arrays[name] = whole[at : at + sizes[name]].view(kinds[name].numpy()).reshape(shape)
        at += -(-sizes[name] // _ALIGNMENT) * _ALIGNMENT
    return arrays
