"""The C backend: the host program and all kernels become one C99 source text, which any compiler builds and no library completes."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..codegen.c_files import c_files
from ..codegen.c_render import render
from ..loop.lowering import Watch
from ..loop.stmt import Func
from ..runtime.blob import Blob
from ..target import Target
from .base import Assembly, Backend, Code, Exported


class CAssembly:
    """A program whose text is written at once, when it is finished."""

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def kernel(self, func: Func) -> None:
        """Kernels are written with the host program that calls them."""

    def finish(self, entries: Sequence[Func]) -> Code:
        """Everything as one text."""
        module = render(entries, watch=self.watch)
        text = module.text.encode()
        exports = {name: text.index(f"int32_t {name}(Ctx *ctx".encode()) for name in module.exports}
        return Code(Blob(text, exports, "c"), module.sites, (), parallel=False)


class C(Backend):
    """C99 source for machines that another compiler makes code for."""

    writes_host = True

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """A program that becomes a blob of the form `c`; the level is the other compiler's to choose."""
        return CAssembly(watch)

    def files(self, program: Exported, inside: bool | None = None) -> dict[str, bytes]:
        """The source and its header; weights are `inside` of the source unless they are large."""
        return c_files(program.name, program.host, program.package.interface, program.constants, inside)


BACKEND = C()
