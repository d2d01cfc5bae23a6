"""Assembly of a program with LLVM, shared by the CPU and the wasm backend: kernels compile in the background, then one link step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from ..codegen.background_compile import BackgroundCompile
from ..codegen.kernel_code import KernelCode
from ..loop.lowering import Watch
from ..loop.stmt import Func
from ..runtime.blob import Blob
from ..target import Target
from .base import Code

Link = Callable[[Sequence[bytes], Sequence[str]], Blob]  # (objects, exported names) -> one blob


class LlvmAssembly:
    """A program during LLVM code generation: LLVM emits its objects, and `link` joins them."""

    def __init__(self, target: Target, level: int, link: Link, watch: Watch | None = None) -> None:
        self.pieces, self.link = BackgroundCompile(target, level, watch), link

    def __enter__(self) -> Self:
        self.pieces.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.pieces.__exit__(kind, error, trace)

    @property
    def cache_key(self) -> str | None:
        """The machine and the optimization level."""
        return f"{self.pieces.target!r} level {self.pieces.level}"

    def kernel(self, func: Func, name: str = "") -> None:
        """Start compiling a kernel in the background."""
        self.pieces.kernel(func, name)

    def add(self, func: Func, code: KernelCode) -> None:
        """Add a kernel that is compiled already."""
        self.pieces.add(func, code)

    def code_of(self, func: Func) -> KernelCode | None:
        """Return the code of a kernel of the finished program, if it stands alone."""
        return self.pieces.code_of(func)

    def finish(self, entries: Sequence[Func]) -> Code:
        """Compile the host program, wait for the kernels, link everything into one blob, and return it with its tables."""
        module, objects = self.pieces.finish(entries)
        return Code(self.link(objects, module.exports), module.sites, module.kernels, module.parallel)
