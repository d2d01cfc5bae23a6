"""Turns a package into an executable: computes its packed weights once (its `load` program) and collects the constants of its code.

f = open_package(package, program.constants, program.functions, threads=2)
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

from ..support.mapped import mapped_pages
from .ctx import Profile
from .executable import Executable
from .interface import Output
from .measures import Provenance
from .package import Package

_ALIGNMENT = 64  # of each array: a cache line, and the widest vector load


def open_package(
    package: Package,
    literals: Sequence[Any],
    functions: Sequence[Any] = (),
    threads: int | None = None,
    provenance: Provenance | None = None,
) -> Executable:
    """Return the executable of a package, given the literals and the Python functions of its program."""
    return Executable(package, threads=threads, constants=constants_of(package, literals, functions), provenance=provenance)


def constants_of(package: Package, literals: Sequence[Any], functions: Sequence[Any] = ()) -> list[Any]:
    """Return the arrays that a package's code reads: literals, packed weights that its `load` computes from them, function addresses.

    Raises a ValueError if the literals do not fit the package: they may come from different files.
    """
    if package.load is not None:
        literals = [*literals, *_packed(package.load, _fitting(package.load, literals))]
    return _fitting(package, literals, functions)


def _packed(package: Package, literals: Sequence[Any]) -> list[Any]:
    """Run a `load` program and return its results.

    Literals may be views of a mapped file, whose pages become memory of the process as they are read. They are given back after each
    kernel, so that there is never more of the file in memory than one kernel reads, beside the results.
    """
    load = Executable(package, constants=literals)
    out = _side_by_side(load.outputs)
    release = mapped_pages(literals)
    if release is None:
        return list(load.run({}, out=out).values())
    release()  # what the compiler has read
    hook = Profile(lambda ctx, kernel, phase: release() if phase else None)
    address = ctypes.cast(hook, ctypes.c_void_p).value
    assert address is not None
    return load._caller.call_profiled((), address, [out[o.name] for o in load.outputs])


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
