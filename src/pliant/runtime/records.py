"""Layout of the records that Python shares with the runtime's native code (`runtime/native/*.ll`).

This is their only description. The native code names fields, and codegen/fields.py takes the offsets from here. A field is an
integer or an address of 8 bytes unless its type is given.

    CallDescriptor (one for each program)  -> Host (one for the process), Plan (one for each argument and output)
                                           -> Frame (one for each running call; free ones form a list)
    View (one for each number of threads)  -> Pool (one for the process) with its Job and Workers
"""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag
from typing import Any

from .ctx import Code, Ctx

LARGE = 1 << 16  # outputs of at least this many bytes begin at a page boundary
# A cache-line boundary is not enough: numpy's large arrays begin 16 bytes behind a page boundary. Results that begin 64 bytes behind one
# would be stored to the page offsets that are loaded from next. Processors compare page offsets first (4K aliasing), so such loads
# would wait for these stores.
PAGE = 4096

MAX_THREADS = 256  # workers of the pool; each has a record of 128 bytes, whether it was started or not


class Kind(IntEnum):
    """The kind of an argument in native records: a tensor, a float or an integer."""

    TENSOR = 0
    FLOAT = 1
    INTEGER = 2


class Launch(IntEnum):
    """Source of a program's number of threads: none needed (no parallel loops), the caller's present choice, or fixed by the executable."""

    NONE = 0
    CHOSEN = 1
    FIXED = 2


class ArrayFlag(IntFlag):
    """numpy's flags of arrays (NPY_ARRAY_C_CONTIGUOUS, …) that the runtime reads; PLAIN is all of them."""

    CONTIGUOUS = 0x001
    ALIGNED = 0x100
    WRITABLE = 0x400
    PLAIN = CONTIGUOUS | ALIGNED | WRITABLE


def _words(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_int64) for name in names]


def _pointers(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_void_p) for name in names]


class Array(ctypes.Structure):
    """numpy's array object in its binary interface; cpython_api.py compares it with known arrays before it is used.

    The first two fields are those of every Python object.
    """

    _fields_ = [
        *_words("references", "type", "address"),
        ("rank", ctypes.c_int32),
        *_words("shape", "strides", "base", "dtype"),
        ("flags", ctypes.c_int32),
    ]


class Watch(ctypes.Structure):
    """State of Ctrl-C handling: the main thread's id, whether starting a watcher was tried, the cancel flag of the main thread's calls."""

    _fields_ = _words("main", "tried", "flag")


class Plan(ctypes.Structure):
    """Requirements on an argument or an output; `buffer` and `dims` are the indices that receive its address and its shape or value.

    `alias` is the argument whose memory an output shares (updated state), or -1; `low` and `high` are the limits of an integer.
    """

    _fields_ = _words("kind", "dtype", "rank", "flags", "itemsize", "low", "high", "buffer", "dims", "alias")


class Range(ctypes.Structure):
    """A record for native code: the addresses `begin` <= a < `end` that one argument or output occupies; empty for a number."""

    _fields_ = _words("begin", "end")


class Frame(ctypes.Structure):
    """The memory of one call: `objects` are its arguments and outputs, `ranges` their `Range` records.

    `memory` is the list of blocks that the program allocated while it ran. `epoch` and `within` identify the choice of threads that the
    context was set up for. `flag` is the cancel flag of calls outside of the main thread. `room` is the size of the workspace.
    """

    _fields_ = [
        ("ctx", Ctx),
        *_words("flag", "next", "buffers", "dims", "objects", "ranges", "room", "epoch", "within", "memory", "allocate", "free"),
    ]


class CallDescriptor(ctypes.Structure):
    """A program as native code sees it.

    `names` are those of its arguments, `frames` the list of free frames, `need` the index in dims of the workspace's size;
    `slow_path` and `failed` are Python callables.
    """

    _fields_ = _words(
        *("host", "inputs", "outputs", "plans", "names", "prepare", "run", "need"),
        *("launch", "frames", "slow_path", "failed"),
    )


class Host(ctypes.Structure):
    """A native record of the addresses of objects and functions of Python and numpy, and of process-wide records."""

    _fields_ = _words(
        *("array_type", "float_type", "int_type", "tuple_type", "none", "true", "false", "out"),
        *("increment", "decrement", "save_thread", "restore_thread", "thread_id", "vectorcall", "clear_error", "new_bytes"),
        *("new_tuple", "set_item", "get_item", "tuple_size", "float_value", "int_value", "new_array"),
        *("set_base", "byte"),
        *("context_value", "within", "epoch", "watch"),
    )


class Timespec(ctypes.Structure):
    """`struct timespec` of Linux on 64-bit machines, which `clock_gettime` fills."""

    _fields_ = _words("seconds", "nanoseconds")


class Worker(ctypes.Structure):
    """One worker's record. Times are in ticks, except `ran`, its CPU time in nanoseconds. 128 bytes, so workers share no cache line."""

    _fields_ = [
        ("semaphore", ctypes.c_void_p),
        *_words("asleep", "running", "shed_until", "shed_period", "waited_for", "clock_id", "ran", "allowance", "charged"),
        ("semaphore_memory", ctypes.c_int64 * 6),
    ]


class Job(ctypes.Structure):
    """The loop of the present launch.

    First the arguments of `parallel_for`; then the number of chunks, of chunks per ticket (`batch`) and of tickets (`total`), the number of
    workers that may serve it (`limit`), and the processor that the launcher runs on.
    """

    _fields_ = _words("ctx", "body", "env", "extent", "grain", "chunks", "batch", "total", "limit", "processor")


class Pool(ctypes.Structure):
    """The native record of the thread pool; fields that different threads write are on different cache lines."""

    _fields_ = [
        *_pointers("wait", "post"),
        *_words("workers", "spin", "patience", "stall", "shed"),
        *_pointers("clock", "semaphore"),
        *_words("recent", "rate", "allowance"),
        *_pointers("processor", "step_aside"),
        ("_1", ctypes.c_int64 * 2),
        *_words("busy", "asleep"),
        ("_2", ctypes.c_int64 * 6),
        ("semaphore_memory", ctypes.c_int64 * 8),
        *_words("tickets"),
        ("_3", ctypes.c_int64 * 15),
        *_words("done", "result"),
        ("_4", ctypes.c_int64 * 14),
        ("job", Job),
        ("_5", ctypes.c_int64 * 6),
        ("worker", Worker * MAX_THREADS),
    ]


class View(ctypes.Structure):
    """The record that `Ctx.pool` points at: the pool, and the number of its workers that this call may use."""

    _fields_ = [("pool", ctypes.c_void_p), ("limit", ctypes.c_int64)]


_ALL = (Ctx, Array, Watch, Plan, Range, Frame, CallDescriptor, Host, Timespec, Worker, Pool, View)
RECORDS: dict[str, type[ctypes.Structure]] = {record.__name__: record for record in _ALL}
CONSTANTS: dict[str, int] = {f"{enum.__name__}.{m.name}": m.value for enum in (Code, Kind, Launch, ArrayFlag) for m in enum}
CONSTANTS["ArrayFlag.PLAIN"] = ArrayFlag.PLAIN.value  # iteration skips names of several bits
