"""`CallFrame`, the memory of one call: context, buffer pointers, dims, workspace.

Its `frame` is the record that native code sees. An executable keeps a few call frames and takes a free one for each call, so
calls from several threads never share one.

    slot = CallFrame(layout, constants)
    slot.dims[0] = n
    code = prepare(*slot.addresses)
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..support.errors import OutOfMemoryError
from ..support.source import caller_span
from .cpython_api import function_address
from .ctx import WORKSPACE_ALIGNMENT
from .interface import Interface
from .native_library import native
from .records import Frame
from .threads import EPOCH, WITHIN, current_launcher


class Layout:
    """Indices in `dims` where its regions A to E begin, and in `buffers` where outputs and constants begin (docs/design/0001-abi.md)."""

    __slots__ = ("b", "buffers", "c", "constants", "d", "e", "inputs", "objects", "read_cd", "scalars", "total")

    def __init__(self, interface: Interface) -> None:
        tensors = [i for i in interface.inputs if i.kind == "tensor"]
        ranks = [len(o.shape) for o in interface.outputs]
        self.scalars = sum(2 * len(i.shape) for i in tensors)
        self.b = self.scalars + len(interface.inputs) - len(tensors)
        self.c = self.b + len(interface.symbols)
        self.d = self.c + sum(ranks)
        self.e = self.d + 1
        self.total = self.e + len(interface.counts)
        self.inputs = len(tensors)
        self.constants = self.inputs + len(interface.outputs)
        self.buffers = self.constants + len(interface.constants)
        self.objects = max(1, len(interface.inputs) + len(interface.outputs))
        self.read_cd = struct.Struct(f"={sum(ranks) + 1}q")


class CallFrame:
    """The memory that one call of a program uses: context, buffer pointers, dims array, workspace."""

    __slots__ = ("address", "addresses", "buffers", "ctx", "dims", "flag", "frame", "held", "within", "workspace")

    def __init__(self, layout: Layout, constants: Sequence[int]) -> None:
        self.buffers = (ctypes.c_size_t * max(1, layout.buffers))()
        self.buffers[layout.constants : layout.buffers] = list(constants)
        self.dims = (ctypes.c_int64 * layout.total)()
        self.held = (ctypes.c_int64 * layout.objects)(), (ctypes.c_int64 * (2 * layout.objects))()
        self.frame = Frame(
            buffers=ctypes.addressof(self.buffers),
            dims=ctypes.addressof(self.dims),
            objects=ctypes.addressof(self.held[0]),
            ranges=ctypes.addressof(self.held[1]),
            epoch=-1,
            allocate=function_address(ctypes.pythonapi.PyMem_RawMalloc),
            free=function_address(ctypes.pythonapi.PyMem_RawFree),
        )
        self.address = ctypes.addressof(self.frame)
        self.flag = self.address + Frame.flag.offset
        self.ctx = self.frame.ctx
        self.ctx.alloc = native().address("allocate")
        self.addresses = self.address, self.frame.buffers, self.frame.dims
        self.workspace: Any = None
        self.within: Any = None  # keeps the object alive whose address is in the frame

    def use_threads(self, count: int | None) -> None:
        """Set the launcher of parallel loops: `count` threads, or the caller's present choice."""
        epoch, self.within = EPOCH.value, WITHIN.get()
        launcher = current_launcher(count)
        self.ctx.parallel_for, self.ctx.pool = launcher
        self.frame.epoch, self.frame.within = epoch, id(self.within)

    @contextmanager
    def watched_loops(self, watch: Callable[[int], int]) -> Iterator[None]:
        """Inside of the block parallel loops go to the function at the address that `watch` makes of that of `parallel_for`."""
        own = self.ctx.parallel_for
        if own is not None:
            self.ctx.parallel_for = watch(own)
        try:
            yield
        finally:
            self.ctx.parallel_for = own

    def reserve(self, size: int) -> None:
        """Allocate a workspace of `size` bytes for the call; the old one is freed first."""
        self.workspace = None  # free the old one first, so that both never exist at once
        self.frame.room = 0
        self.workspace, address = aligned_bytes(size)
        self.frame.room = size
        self.ctx.workspace, self.ctx.workspace_size = address, size

    def take_error(self) -> bytes:
        """Return the error record of the call, and clear it."""
        record = bytes(self.ctx.error)
        ctypes.memset(ctypes.addressof(self.ctx.error), 0, len(record))
        return record


def aligned_bytes(size: int) -> tuple[Any, int]:
    """Allocate memory for a workspace; returns the array that owns it, and the aligned address in it. Raises an OutOfMemoryError."""
    try:
        memory = np.empty(size + WORKSPACE_ALIGNMENT, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(f"no memory for a workspace of {size} bytes", where=caller_span()) from None
    address = memory.ctypes.data
    return memory, address + -address % WORKSPACE_ALIGNMENT
