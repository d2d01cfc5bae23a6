"""The LLVM backend for WebAssembly: the host program and all kernels become one module that imports nothing."""

from __future__ import annotations

from ..codegen.link_wasm import link_blob
from ..loop.lowering import Watch
from ..target import Target
from .base import Assembly, Backend
from .llvm import LlvmAssembly


class Wasm(Backend):
    """wasm32: LLVM's wasm objects, linked by ourselves."""

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """A program that becomes a blob of the form `wasm`."""
        return LlvmAssembly(target, level, link_blob, watch)


WASM = Wasm()
