"""The modules that come with Pliant, each a file. `generic()` is the space of them, for kernels that no rule takes."""

from ....support.errors import ScheduleError
from ..module import Module
from ..space import Space
from .compute_location import compute_location
from .fission import fission
from .inline import inline
from .rfactor import rfactor
from .tensor_tiling import tensor_tiling
from .threads_and_vectors import threads_and_vectors
from .tiling import tiling

PLAIN = (fission, inline, compute_location, tensor_tiling, rfactor, threads_and_vectors)  # modules without parameters


def module_named(name: str) -> Module | None:
    """Return the module of Pliant that has a name, as `tiling_SSRS` has; None if there is none."""
    if name.startswith("tiling_"):
        try:
            return tiling(name.removeprefix("tiling_"))
        except ScheduleError:
            return None
    return next((m for m in PLAIN if m.name == name), None)


def generic() -> Space:
    """Return the space for kernels that no rule takes."""
    return Space([fission, inline, compute_location, tensor_tiling, rfactor, tiling("SSRS"), threads_and_vectors])


__all__ = ["compute_location", "fission", "generic", "inline", "module_named", "rfactor", "tensor_tiling", "threads_and_vectors", "tiling"]
