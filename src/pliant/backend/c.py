"""The C backend: the host program and all kernels become one C99 source file, which any compiler builds without libraries."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..codegen.c_files import c_files
from ..codegen.c_render import render
from ..codegen.kernel_code import KernelCode
from ..loop.lowering import Watch
from ..loop.stmt import Func
from ..runtime.blob import Blob
from ..support.errors import InternalError
from ..target import Target
from .base import Assembly, Backend, Code, Exported


class CAssembly:
    """A program during C code generation; `finish` renders its whole text."""

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    @property
    def cache_key(self) -> str | None:
        """None: kernels are text of the whole program."""
        return None

    def kernel(self, func: Func, name: str = "") -> None:
        """Do nothing: `finish` finds the kernels through the host program that calls them."""

    def add(self, func: Func, code: KernelCode) -> None:
        """Raise an InternalError: no kernel has code apart from the program."""
        raise InternalError(f"`{func.name}` has no C code apart from its program")

    def code_of(self, func: Func) -> KernelCode | None:
        """Return None: no kernel has code apart from the program."""
        return None

    def finish(self, entries: Sequence[Func]) -> Code:
        """Render the host program and its kernels as one C text.

        Return it as the blob, where an export's offset is the position of its definition.
        """
        module = render(entries, watch=self.watch)
        text = module.text.encode()
        exports = {name: text.index(f"int32_t {name}(Ctx *ctx".encode()) for name in module.exports}
        return Code(Blob(text, exports, "c"), module.sites, (), parallel=False)


class C(Backend):
    """The backend for C99 source, for machines that another compiler generates code for."""

    writes_host = True

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """Return a program that becomes a blob of the form `c`; `level` is ignored, it is chosen with the C compiler."""
        return CAssembly(watch)

    def files(self, program: Exported, inside: bool | None = None) -> dict[str, bytes]:
        """Return the source and its header, and the weights in a file of their own if they are not in the source.

        `inside` puts the weights into the source; None does so unless they are large.
        """
        return c_files(program.name, program.host, program.package.interface, program.constants, inside)


BACKEND = C()
