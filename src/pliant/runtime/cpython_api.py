"""Addresses of CPython's and numpy's C API that the native fast path of a call uses, verified before first use.

    process = host()                       # None if Python or numpy differ from what is expected: then calls take the slow path
    f = process and builtin(descriptor)    # a builtin function that calls the program of a CallDescriptor

Python's functions are those of its documented C API; numpy's come from the function table that it exports to C extensions. Before the
fast path relies on them, the fields of known arrays are compared with what numpy itself reports, and an array is created.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np

from .interrupt import WATCH
from .native_library import immortal, native
from .records import Array, ArrayFlag, CallDescriptor, Host
from .threads import EPOCH, WITHIN

_ARRAY_TYPE, _NEW_FROM_DESCR, _SET_BASE = 2, 94, 282  # indices in numpy's table of exported functions and types
_FASTCALL_KEYWORDS = 0x0080 | 0x0002  # METH_FASTCALL | METH_KEYWORDS

_PYTHON = {
    "increment": "Py_IncRef",
    "decrement": "Py_DecRef",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
    "thread_id": "PyThread_get_thread_ident",
    "vectorcall": "PyObject_Vectorcall",
    "clear_error": "PyErr_Clear",
    "new_bytes": "PyBytes_FromStringAndSize",
    "new_tuple": "PyTuple_New",
    "set_item": "PyTuple_SetItem",
    "get_item": "PyTuple_GetItem",
    "tuple_size": "PyTuple_Size",
    "float_value": "PyFloat_AsDouble",
    "int_value": "PyLong_AsLongLongAndOverflow",
    "context_value": "PyContextVar_Get",
}


class _MethodDef(ctypes.Structure):
    """CPython's `PyMethodDef`: the description of a builtin function."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


@functools.cache
def host() -> Host | None:
    """Return the record of this process, or None if Python or numpy differ from what is expected."""
    if sys.implementation.name != "cpython" or object.__basicsize__ != Array.address.offset or not arrays_are_as_expected():
        return None
    arrays = _numpy_functions()
    try:
        functions = {field: function_address(getattr(ctypes.pythonapi, name)) for field, name in _PYTHON.items()}
    except AttributeError:
        return None
    if arrays is None:
        return None
    objects = {
        "array_type": np.ndarray,
        "float_type": float,
        "int_type": int,
        "tuple_type": tuple,
        "none": None,
        "true": True,
        "false": False,
        "out": immortal(sys.intern("out")),
        "within": WITHIN,
        "byte": immortal(np.dtype(np.uint8)),
    }
    process = {"epoch": ctypes.addressof(EPOCH), "watch": ctypes.addressof(WATCH)}
    return immortal(Host(**functions, **arrays, **{name: id(value) for name, value in objects.items()}, **process))


def builtin(gate: CallDescriptor) -> Any:
    """Return a builtin function that calls the program of a descriptor and keeps it alive.

    Returns None if ctypes does not keep the record's address where native code reads it.
    """
    if ctypes.c_size_t.from_address(id(gate) + Array.address.offset).value != ctypes.addressof(gate):
        return None
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(_method()), gate, None)


@functools.cache
def _method() -> _MethodDef:
    doc = b"Run the program; `out` gives the memory of the results (one array, or a tuple of them)."
    return immortal(_MethodDef(b"__call__", native().address("call"), _FASTCALL_KEYWORDS, doc))


def function_address(function: Any) -> int:
    """Return the machine address of a function of a shared library (a ctypes function)."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def arrays_are_as_expected() -> bool:
    """True if the fields of known numpy arrays have the offsets and values that `Array` expects."""
    base = np.zeros((4, 5), np.int16)
    frozen = np.frombuffer(b"12345678", np.uint8)
    samples: list[np.ndarray[Any, Any]] = [base, base[1:, ::2], base[::-1], np.zeros(3)[2:], np.zeros((0, 2)), np.array(1.0), frozen]
    return object.__basicsize__ == Array.address.offset and all(map(_is_as_expected, samples))


def _is_as_expected(x: np.ndarray[Any, Any]) -> bool:
    fields = Array.from_address(id(x))

    def numbers(address: int) -> tuple[int, ...]:
        return tuple((ctypes.c_int64 * x.ndim).from_address(address)) if x.ndim else ()

    if (fields.type, fields.address, fields.rank, fields.dtype) != (id(type(x)), x.ctypes.data, x.ndim, id(x.dtype)):
        return False
    return bool(fields.flags == x.flags.num and numbers(fields.shape) == x.shape and numbers(fields.strides) == x.strides)


def _numpy_functions() -> dict[str, int] | None:
    """Return the addresses of PyArray_NewFromDescr and PyArray_SetBaseObject, or None if a trial call does not work as expected."""
    core = getattr(np, "_core", None) or np.core
    capsule = getattr(core.multiarray, "_ARRAY_API", None)
    if type(capsule).__name__ != "PyCapsule":
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = (ctypes.c_size_t * (_SET_BASE + 1)).from_address(pointer(capsule, None))
    if table[_ARRAY_TYPE] != id(np.ndarray):
        return None
    words = (
        ctypes.c_void_p,
        ctypes.py_object,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
    )
    make = ctypes.PYFUNCTYPE(ctypes.py_object, *words)(table[_NEW_FROM_DESCR])
    set_base = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object)(table[_SET_BASE])
    dtype, shape = np.dtype(np.float32), (ctypes.c_int64 * 2)(3, 5)
    memory = np.zeros(60, np.uint8)

    def new(address: int | None, flags: int) -> np.ndarray[Any, Any]:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))  # the function steals a reference
        return make(id(np.ndarray), dtype, 2, ctypes.addressof(shape), None, address, flags, None)  # type: ignore[no-any-return]

    whole, part = new(None, 0), new(memory.ctypes.data, ArrayFlag.PLAIN)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # so does this one
    owns_base = set_base(part, memory) == 0 and part.base is memory
    good = all(type(x) is np.ndarray and x.shape == (3, 5) and x.dtype is dtype and x.flags.carray for x in (whole, part))
    return {"new_array": table[_NEW_FROM_DESCR], "set_base": table[_SET_BASE]} if good and owns_base and whole.flags.owndata else None
