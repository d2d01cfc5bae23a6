"""The same wasm module with an imported, shared memory, so that several threads have instances of it over one memory.

    shared = with_shared_memory(link_wasm(objects, exports))

The memory becomes the import `env.memory`, shared, with at least as many pages as the module had. `__stack_pointer` is exported, because
each thread but one sets it to the end of a stack of its own. Nothing else changes: code, data, table and addresses are those of the module.
"""

from __future__ import annotations

from .link_wasm import MAGIC, PAGES, Reader, Section, leb, sized, vector

_SHARED = 3  # limits with a maximum, of a shared memory


def with_shared_memory(module: bytes) -> bytes:
    """Return a module of `link_wasm` with two changes: it imports its memory, as the shared `env.memory`, and exports its stack pointer."""
    sections = _sections(module)
    limits = bytes([_SHARED]) + leb(memory_pages(module)) + leb(PAGES)
    del sections[Section.MEMORY]
    sections[Section.IMPORT] = vector([sized(b"env") + sized(b"memory") + b"\x02" + limits])
    exports = Reader(sections[Section.EXPORT])
    count = exports.unsigned()
    sections[Section.EXPORT] = leb(count + 1) + exports.data[exports.at :] + sized(b"__stack_pointer") + b"\x03" + leb(0)
    return MAGIC + b"".join(bytes([number]) + sized(sections[number]) for number in sorted(sections))


def memory_pages(module: bytes) -> int:
    """Return how many pages of 64 KiB the memory of a module has at first; the module is one that `link_wasm` wrote."""
    memory = Reader(_sections(module)[Section.MEMORY])
    memory.bytes(2)  # one memory, without a maximum
    return memory.unsigned()


def _sections(module: bytes) -> dict[int, bytes]:
    """Return the contents of the sections of a wasm module, by section number."""
    reader = Reader(module)
    reader.at = len(MAGIC)
    sections: dict[int, bytes] = {}
    while reader:
        number = reader.byte()
        sections[number] = reader.sized().data
    return sections
