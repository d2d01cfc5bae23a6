"""`Ctx`, the context record that every compiled function gets as its first argument, and the return codes.

The layout is the one of docs/design/0001-abi.md; this is the only Python description of it. Compiled functions are
`i32 f(Ctx *ctx, void **buffers, int64_t *dims)`.

    ctx = Ctx()
    ctx.cancel = ctypes.addressof(flag)
    code = entry(ctypes.addressof(ctx), ctypes.addressof(buffers), ctypes.addressof(dims))
    if code == Code.CHECK:
        site, found = ctx.error[1], ctx.error[2]
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import TYPE_CHECKING

ERROR_VALUES = 6  # values in an error record, after the code and the check site
WORKSPACE_ALIGNMENT = 64  # a cache line and the widest vector: compiled code relies on it


class Code(IntEnum):
    """Return code of a compiled function; anything but OK is an error."""

    OK = 0
    CANCELLED = 1
    CHECK = 2
    NO_MEMORY = 3
    BAD_CALL = 4
    OUTSIDE = 5  # a foreign call failed: error[1] is the call, error[2] the number of an exception or the function's return code


class Ctx(ctypes.Structure):
    """The context of one call; function pointers are plain addresses."""

    if TYPE_CHECKING:
        workspace: int | None
        workspace_size: int
        alloc: int | None
        parallel_for: int | None
        profile: int | None
        cancel: int | None
        pool: int | None
        error: ctypes.Array[ctypes.c_int64]

    _fields_ = [
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_int64),
        ("alloc", ctypes.c_void_p),
        ("parallel_for", ctypes.c_void_p),
        ("profile", ctypes.c_void_p),
        ("cancel", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("error", ctypes.c_int64 * (2 + ERROR_VALUES)),
    ]


# Prototypes. `Entry` releases the GIL; `ShortEntry` keeps it, which is cheaper, for functions that return within a microsecond.
Entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
ShortEntry = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
Body = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
ParallelFor = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
Alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
Profile = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
