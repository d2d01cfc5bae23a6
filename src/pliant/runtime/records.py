"""The records that the native way into a program (codegen/enter.py, codegen/call.py) reads and writes.

This is the only description of their layout: the native code takes the offsets of its fields from here. Fields are
numbers or addresses of 8 bytes where nothing else is said.

    CallDescriptor (one for each program)  -> Host (one for the process), Plan (one for each argument and output)
                                 -> Frame (one for each running call; free ones are a list)
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

from .ctx import Ctx

LARGE = 1 << 16  # outputs of so many bytes begin at a page
# Not just at a cache line: numpy's large arrays begin 16 bytes behind a page. Results that began 64 bytes behind one would be stored to the
# places in their pages that are loaded from next; processors compare these places first, and loads would wait.
PAGE = 4096


class Kind(IntEnum):
    """What an argument is."""

    TENSOR = 0
    FLOAT = 1
    INTEGER = 2


class Launch(IntEnum):
    """How many threads the parallel loops of a program use: it has none, it depends on the caller, it is fixed."""

    NONE = 0
    CHOSEN = 1
    FIXED = 2


def _words(*names: str) -> list[tuple[str, Any]]:
    return [(name, ctypes.c_int64) for name in names]


class Array(ctypes.Structure):
    """numpy's array object, as its binary interface has it (see host.py, which tries it out)."""

    _fields_ = [
        ("references", ctypes.c_int64),
        ("type", ctypes.c_int64),
        ("address", ctypes.c_int64),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64),
        ("strides", ctypes.c_int64),
        ("base", ctypes.c_int64),
        ("dtype", ctypes.c_int64),
        ("flags", ctypes.c_int32),
    ]


class Watch(ctypes.Structure):
    """Ctrl-C: the main thread, whether a watcher was started or cannot be, and the cancel flag of the main thread's calls."""

    _fields_ = _words("main", "tried", "flag")


class Plan(ctypes.Structure):
    """What is wanted of an argument or an output; `buffer` and `dims` are where its address and its shape or value go.

    `alias` is the argument whose memory an output is, or -1; `low` and `high` are the limits of an integer.
    """

    _fields_ = _words("kind", "dtype", "rank", "flags", "itemsize", "low", "high", "buffer", "dims", "alias")


class Frame(ctypes.Structure):
    """The memory of one call: `objects` are its arguments and outputs, `ranges` the bytes that they occupy.

    `memory` is a list of what the program asked for while it ran; `epoch` and `within` say which choice of threads the
    context was made for; `flag` is the cancel flag of calls outside of the main thread.
    """

    _fields_ = [
        ("ctx", Ctx),
        *_words("flag", "next", "buffers", "dims", "objects", "ranges", "room", "epoch", "within", "memory", "allocate", "free"),
    ]


class CallDescriptor(ctypes.Structure):
    """A program: `names` are those of its arguments, `frames` the list of free frames, `slow_path` and `failed` Python callables."""

    _fields_ = _words(
        *("host", "inputs", "outputs", "plans", "names", "prepare", "run", "need"),
        *("launch", "frames", "slow_path", "failed"),
    )


class Host(ctypes.Structure):
    """Objects and functions of Python and numpy, and what the whole process has once."""

    _fields_ = _words(
        *("array_type", "float_type", "int_type", "tuple_type", "none", "true", "false", "out"),
        *("increment", "decrement", "save_thread", "restore_thread", "thread_id", "vectorcall", "clear_error", "new_bytes"),
        *("new_tuple", "set_item", "get_item", "tuple_size", "float_value", "int_value", "new_array"),
        *("set_base", "byte"),
        *("context_value", "within", "epoch", "watch"),
    )


RECORDS = {record.__name__: record for record in (Array, Watch, Plan, Frame, CallDescriptor, Host)}
