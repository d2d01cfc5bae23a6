"""`Backend`, the interface between the pipeline and the code generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from ..codegen.kernel_code import KernelCode
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
    """A finished program as the backend returns it: its code, and the tables that the numbers in it index."""

    blob: Blob
    sites: tuple[Check, ...]  # `error[1]` of a failed check is an index into it
    kernels: tuple[str, ...]  # the kernel of a profile event is an index into it
    parallel: bool  # True if it may call `parallel_for`


class Assembly(Protocol):
    """The interface of one program during code generation, a context manager; leaving it stops compilations that are still running."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    @property
    def cache_key(self) -> str | None:
        """What the code of a kernel depends on besides the kernel, as a text; None if kernels have no code apart from their program."""

    def kernel(self, func: Func, name: str = "") -> None:
        """Add a scheduled kernel that the host program will call; the backend may compile it at once, in the background.

        `name` stands for its content: it is different for each kernel of a program, and the same in all programs.
        """

    def add(self, func: Func, code: KernelCode) -> None:
        """Add a kernel with the code that `code_of` gave in another compilation; of `func` only the parameters count."""

    def code_of(self, func: Func) -> KernelCode | None:
        """Return the code of a kernel of the finished program, for others; None if it has none apart from its program."""

    def finish(self, entries: Sequence[Func]) -> Code:
        """Return the whole program as one blob; `entries` are the loop programs of the host: `prepare`, `size` and `run`."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A record of a compiled program that `pliant.export` writes as files."""

    name: str  # prefix of the names of files and functions
    target: Target
    package: Package
    constants: tuple[Array, ...]  # in the layouts that the code reads
    host: tuple[Func, ...]  # `shapes` (of arguments, from dims), `prepare`, `size`, `run`; empty unless `Backend.writes_host`
    variants: tuple[Exported, ...] = ()  # the same program for `Backend.variants`, in that order
    chat: bytes | None = None  # of a language model: the JSON that a page needs to chat with it


class Backend(ABC):
    """The base class of code generation for one kind of target. It has no state: that of one program is in its `Assembly`."""

    writes_host: ClassVar[bool] = False  # True if files are made from the host program instead of the blob

    def schedule(self, func: Func, target: Target, decisions: OfKernel | None = None) -> tuple[Func, str]:
        """Return the loop program scheduled by the default rules of this kind of target, and why; records the choices in `decisions`."""
        return default_schedule(func, target, decisions)

    @abstractmethod
    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """Return an empty program to add kernels to; `level` is the optimization level (0 to 3) of the compiler behind the backend.

        `watch` is called after each lowering pass with the pass and the program before and after it (`loop/lowering.py`).
        """

    def variants(self, target: Target) -> Mapping[str, Target]:
        """Return further targets that an export for `target` contains code for, by what is appended to the name of their files."""
        return {}

    @abstractmethod
    def files(self, program: Exported) -> dict[str, bytes]:
        """Return the files of a program that runs without Pliant: name -> content."""
