"""What a backend is: the interface between the pipeline and the makers of code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from ..loop.lowering import Watch
from ..loop.stmt import Check, Func
from ..runtime.blob import Blob
from ..runtime.package import Package
from ..schedule.decisions import OfKernel
from ..schedule.library import default_schedule
from ..support.record import dataclass
from ..target import Target

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Code:
    """A finished program: its code, and what the numbers in it mean."""

    blob: Blob
    sites: tuple[Check, ...]  # `error[1]` of a failed check is an index into it
    kernels: tuple[str, ...]  # the kernel of a profile event is an index into it
    parallel: bool  # whether it may call `parallel_for`


class Assembly(Protocol):
    """One program on its way to code. Leaving the context stops what is still at work."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def kernel(self, func: Func) -> None:
        """Takes a scheduled loop program that the host program will call; its code may be made at once, in the background."""

    def finish(self, entries: Sequence[Func]) -> Code:
        """Takes the host program (`prepare`, `size`, `run`, loop programs that call the kernels) and gives everything as one blob."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A compiled program that is to become files."""

    name: str  # what files and functions are called by
    target: Target
    package: Package
    constants: tuple[Array, ...]  # in the layouts that the code reads
    host: tuple[Func, ...]  # `shapes` (of arguments, from dims), `prepare`, `size`, `run`; empty unless the backend writes them down


class Backend(ABC):
    """How the programs of one kind of target become code. Backends have no state: what a program needs is in its `Assembly`."""

    writes_host: ClassVar[bool] = False  # whether files are made of the host program instead of the blob

    def schedule(self, func: Func, target: Target, decisions: OfKernel | None = None) -> tuple[Func, str]:
        """The loop program scheduled by the default rules of this kind of target, and why; `decisions` has its choices then."""
        return default_schedule(func, target, decisions)

    @abstractmethod
    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """A program to be filled with kernels and finished; `level` is how hard a compiler behind the backend tries (0 to 3).

        `watch` is told of the passes that each loop program goes through before its code is written (`loop/lowering.py`).
        """

    @abstractmethod
    def files(self, program: Exported) -> dict[str, bytes]:
        """The files that run without Pliant, by name."""
