"""The memory of one call: context, pointers, dims, workspace.

An executable keeps a few slots and reuses a free one for each call, so that calls from several threads never share one.

    slot = Slot(layout, constants)
    slot.dims[0] = n
    code = prepare(*slot.addresses)
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..support.errors import OutOfMemoryError
from ..support.source import caller_span
from .ctx import ERROR_VALUES, WORKSPACE_ALIGNMENT, Alloc, Ctx
from .interface import Interface
from .threads import Launcher


class Layout:
    """Where the regions of `dims` begin, and which buffers are inputs, outputs and constants."""

    __slots__ = ("b", "buffers", "c", "constants", "d", "e", "inputs", "read_cd", "scalars", "total")

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
        self.read_cd = struct.Struct(f"={sum(ranks) + 1}q")


class Slot:
    """The memory of one call."""

    __slots__ = (
        *("__weakref__", "addresses", "buffers", "call", "call_address", "ctx", "dims", "dynamic"),
        *("flag", "launcher", "objects", "room", "workspace"),
    )

    def __init__(self, layout: Layout, constants: Sequence[int]) -> None:
        self.ctx = Ctx()
        self.flag = ctypes.c_int32(0)
        self.buffers = (ctypes.c_size_t * max(1, layout.buffers))()
        self.buffers[layout.constants : layout.buffers] = list(constants)
        self.dims = (ctypes.c_int64 * layout.total)()
        self.addresses = tuple(ctypes.addressof(m) for m in (self.ctx, self.buffers, self.dims))
        self.room = 0  # bytes of workspace there are
        self.workspace: Any = None
        self.dynamic: list[Any] = []  # what the program asked for while it ran
        self.launcher: Launcher | None = None
        self.call: Any = None  # the record of the short way in, which marshal.py makes
        self.call_address = 0
        self.objects: Any = None
        self.ctx.cancel = ctypes.addressof(self.flag)
        self.ctx.alloc = _ALLOC_ADDRESS
        _SLOTS[self.addresses[0]] = self

    def use(self, launcher: Launcher) -> None:
        """Run parallel loops by `launcher` from now on."""
        self.launcher = launcher
        self.ctx.parallel_for, self.ctx.pool = launcher.parallel_for, launcher.pool

    def reserve(self, size: int) -> None:
        """Have a workspace of at least `size` bytes."""
        self.workspace = None  # first give back what is too small
        self.room = 0
        self.workspace, address = aligned_bytes(size)
        self.room = size
        self.ctx.workspace, self.ctx.workspace_size = address, size

    def take_error(self) -> tuple[int, list[int]]:
        """The site and the values of the error record, which is empty again after."""
        record = list(self.ctx.error)
        ctypes.memset(ctypes.addressof(self.ctx.error), 0, ctypes.sizeof(self.ctx.error))
        return record[1], record[2 : 2 + ERROR_VALUES]


def aligned_bytes(size: int) -> tuple[Any, int]:
    """Fresh memory, and the address in it that is aligned as workspaces are."""
    try:
        memory = np.empty(size + WORKSPACE_ALIGNMENT, np.uint8)
    except MemoryError:
        raise OutOfMemoryError(f"no memory for a workspace of {size} bytes", where=caller_span()) from None
    address = memory.ctypes.data
    return memory, address + -address % WORKSPACE_ALIGNMENT


_SLOTS: weakref.WeakValueDictionary[int, Slot] = weakref.WeakValueDictionary()  # by the address of the context


def _alloc(ctx: int, size: int) -> int | None:
    """`Ctx.alloc`: memory that lives until the call is over, or null."""
    slot = _SLOTS.get(ctx)
    if slot is None or size < 0:
        return None
    try:
        memory, address = aligned_bytes(size)
    except (MemoryError, ValueError):
        return None
    slot.dynamic.append(memory)
    return address


_ALLOC = Alloc(_alloc)
_ALLOC_ADDRESS = ctypes.cast(_ALLOC, ctypes.c_void_p).value
