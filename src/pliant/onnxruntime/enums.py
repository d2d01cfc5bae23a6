"""The enumerations of onnxruntime, with its values; most have no effect here."""

from __future__ import annotations

import enum


class _Named(enum.IntEnum):
    """The base of the enumerations: members are integers, shown by name (`ExecutionMode.ORT_PARALLEL`)."""

    __str__ = enum.Enum.__str__


class GraphOptimizationLevel(_Named):
    """An enumeration of the levels of optimization; without effect, because every program is optimized in full."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Named):
    """An enumeration of the modes of execution; without effect: kernels run in sequence, each with all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Named):
    """An enumeration of the orders of nodes; without effect, because the compiler chooses the order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(_Named):
    """An enumeration of the kinds of allocators, without effect."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(_Named):
    """An enumeration of the kinds of memory, without effect."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(_Named):
    """An enumeration of the kinds of a device's memory, without effect."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5
