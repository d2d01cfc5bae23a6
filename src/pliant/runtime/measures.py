"""The types of what an executable tells of itself: its cost and its profile, as far as users need them.

The classes are `ProgramCost` (program_cost.py) and `Profile` (report/profile.py), which the runtime does not import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Counts(Protocol):
    """The cost of a call for concrete dims."""

    @property
    def operations(self) -> int:
        """The number of arithmetic operations."""

    @property
    def read(self) -> int:
        """The number of bytes read."""

    @property
    def written(self) -> int:
        """The number of bytes written."""


class Cost(Protocol):
    """The cost of a call as formulas of the dims: prints as text, and is called with dims."""

    def __call__(self, **dims: int) -> Counts:
        """Returns the cost for these dims; raises a ShapeError for missing and unknown ones."""


class Launch(Protocol):
    """One launch of a kernel: its begin and duration in nanoseconds."""

    @property
    def kernel(self) -> str:
        """The name of the kernel."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The user's layers that it computes."""

    @property
    def begin(self) -> int:
        """Nanoseconds from the call to its begin."""

    @property
    def duration(self) -> int:
        """Nanoseconds from its begin to its end."""

    @property
    def operations(self) -> int | None:
        """The number of arithmetic operations, if it is known."""

    @property
    def bytes(self) -> int | None:
        """The number of bytes moved, if it is known."""

    @property
    def samples(self) -> tuple[int, ...]:
        """Its duration in each run."""


class Profile(Protocol):
    """The times of the fastest of several runs: prints as a table by kernel."""

    @property
    def dims(self) -> Mapping[str, int]:
        """The values of the dims."""

    @property
    def threads(self) -> int:
        """The number of threads."""

    @property
    def wall(self) -> int:
        """Nanoseconds from the call to its end."""

    @property
    def runs(self) -> int:
        """The number of runs."""

    @property
    def walls(self) -> tuple[int, ...]:
        """The nanoseconds of each run."""

    @property
    def launches(self) -> Sequence[Launch]:
        """The launches of kernels, in their order."""

    @property
    def in_kernels(self) -> int:
        """The nanoseconds spent in kernels."""

    def by_kernel(self) -> Mapping[str, Sequence[Launch]]:
        """Returns the launches of each kernel; kernels that take the most time come first."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace for Perfetto or Chrome."""


class Provenance(Protocol):
    """What an executable was compiled from, as far as it asks it (provenance.py)."""

    @property
    def cost(self) -> Cost:
        """The cost of a call."""

    def save(self, f: Any, path: str | os.PathLike[str], targets: Sequence[str]) -> None:
        """Writes the executable's artifact."""

    def reduce(self, f: Any) -> tuple[Any, ...]:
        """Returns what a pickle of the executable holds."""

    def profile(self, f: Any, args: Sequence[Any], named: Mapping[str, Any], runs: int | None) -> Profile:
        """Runs the program and measures its kernels."""

    def report(self, f: Any, path: str | os.PathLike[str]) -> None:
        """Writes the HTML report."""
