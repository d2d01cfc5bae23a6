"""The modules of search spaces that come with Pliant, as users import them (`docs/tuning.md`).

from pliant.tune.modules import inline, tiling, threads_and_vectors
"""

from ..schedule.spaces.modules import compute_location, fission, generic, inline, rfactor, tensor_tiling, threads_and_vectors, tiling

__all__ = ["compute_location", "fission", "generic", "inline", "rfactor", "tensor_tiling", "threads_and_vectors", "tiling"]
