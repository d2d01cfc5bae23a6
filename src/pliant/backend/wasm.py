"""The LLVM backend for WebAssembly: the host program and all kernels become one module without imports."""

from __future__ import annotations

from collections.abc import Sequence

from ..codegen import fused_probe, serial_for, thread_pool
from ..codegen.emit import emit_object
from ..codegen.export_description import data_files
from ..codegen.link_wasm import link_blob
from ..loop.lowering import Watch
from ..runtime.blob import Blob
from ..target import Target
from .base import Assembly, Backend, Exported
from .llvm_assembly import LlvmAssembly


class Wasm(Backend):
    """The backend for wasm32: LLVM emits wasm objects, and our own linker joins them."""

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        """Return a program that becomes a blob of the form `wasm`.

        The module exports a `serial_for`, which an embedder without threads puts into the function table as `Ctx.parallel_for`. With
        `atomics` it exports a thread pool as well.
        """
        own = [serial_for.serial_for_text(target)]
        names = [serial_for.NAME]
        if target.has_fma:
            own.append(fused_probe.TEXT)
            names.append(fused_probe.NAME)
        if "atomics" in target.features:
            own.append(thread_pool.thread_pool_text(target))
            names += thread_pool.NAMES

        def link(objects: Sequence[bytes], exports: Sequence[str]) -> Blob:
            return link_blob([*objects, *(emit_object(text, target) for text in own)], [*exports, *names])

        return LlvmAssembly(target, level, link, watch)

    def files(self, program: Exported) -> dict[str, bytes]:
        """Return the files of an exported program: the wasm module, its description and its constants."""
        blob, interface = program.package.blob, program.package.interface
        entries = {entry: entry for entry in blob.exports}
        return {f"{program.name}.wasm": blob.code, **data_files(program.name, program.target, interface, program.constants, entries)}


BACKEND = Wasm()
