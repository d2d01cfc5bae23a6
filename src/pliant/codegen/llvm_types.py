"""Types of the LLVM code generator: LLVM type names, literals, values in registers, and the layout of `Ctx`.

A value in a register is a `Val`: its LLVM text, its dtype, and its lanes (0 for a scalar). In registers a
bool is an `i1`, and the half types f16 and bf16 are their 16 bits (`i16`): arithmetic on them widens to f32 and rounds
back anyway, and a copy of bits preserves every NaN. In memory a bool is a byte. Storage types exist
in memory only (`llvm_storage.py`).

    >>> Val("%v1", f32, 8).type
    '<8 x float>'
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..dtype import DType, bf16, f16
from ..support.errors import InternalError
from ..sym.expr import Const
from ..target import Target

HALVES = (f16, bf16)
WORKSPACE_ALIGN = 64  # what the runtime guarantees for the workspace; stack buffers have the same
CANCELLED, CHECK, NO_MEMORY = 1, 2, 3  # codes of runtime/ctx.py

_REGISTER = {
    "bool": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "u8": "i8",
    "u16": "i16",
    "u32": "i32",
    "u64": "i64",
    "f16": "i16",
    "bf16": "i16",
    "f32": "float",
    "f64": "double",
}
_SUFFIX = {"float": "f32", "double": "f64"}


def register_type(dtype: DType, lanes: int = 0) -> str:
    """Return the LLVM type of a value of `dtype` in a register, a vector if `lanes` is not 0; raises an InternalError for storage types."""
    scalar = _REGISTER.get(dtype.name)
    if scalar is None:
        raise InternalError(f"a value of the storage type {dtype} in a register")
    return f"<{lanes} x {scalar}>" if lanes else scalar


def memory_type(dtype: DType, lanes: int = 0) -> str:
    """Return the LLVM type of an element of `dtype` in memory; a sub-byte element has the type of its byte."""
    scalar = "i8" if dtype.name == "bool" or dtype.storage else register_type(dtype)
    return f"<{lanes} x {scalar}>" if lanes else scalar


def overload(type_name: str) -> str:
    """Return an LLVM type as it appears in the name of an overloaded intrinsic: `<8 x float>` is `v8f32`."""
    if type_name.startswith("<"):
        lanes, _, element = type_name[1:-1].partition(" x ")
        return f"v{lanes}{overload(element)}"
    return "p0" if type_name == "ptr" else _SUFFIX.get(type_name, type_name)


class Val(NamedTuple):
    """A value in a register (or a literal): its LLVM text, dtype and lanes."""

    ref: str
    dtype: DType
    lanes: int = 0

    @property
    def type(self) -> str:
        """The LLVM type, for example `<8 x float>`."""
        return register_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        """LLVM type and text, as an operand is written: `<8 x float> %v1`."""
        return f"{register_type(self.dtype, self.lanes)} {self.ref}"

    @property
    def is_literal(self) -> bool:
        """True if this is a scalar literal."""
        return self.ref[0] != "%" and not self.lanes


def float_literal(value: float) -> str:
    """Return a float or double as an exact LLVM literal: the bits of the double."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def literal(c: Const) -> Val:
    """Return a constant of a program as an LLVM literal."""
    if c.dtype in HALVES:
        return Val(str(c.payload), c.dtype)
    if c.dtype.is_float:
        return Val(float_literal(c.value), c.dtype)
    return Val(str(c.value).lower(), c.dtype)


class CtxLayout(NamedTuple):
    """Byte offsets of the fields of `Ctx` (docs/design/0001-abi.md)."""

    workspace: int
    workspace_size: int
    alloc: int
    parallel_for: int
    profile: int
    cancel: int
    pool: int
    error: int


_LAYOUTS = {64: CtxLayout(0, 8, 16, 24, 32, 40, 48, 56), 32: CtxLayout(0, 8, 16, 20, 24, 28, 32, 40)}


def ctx_layout(target: Target) -> CtxLayout:
    """Return the layout of `Ctx` for the target's pointer width."""
    return _LAYOUTS[target.pointer_bits]


def symbol_text(name: str) -> str:
    """Return a global name as LLVM text, quoted and escaped, so that any name is valid."""
    escaped = "".join(ch if ch.isalnum() or ch in "._$-" else "".join(f"\\{b:02X}" for b in ch.encode()) for ch in name)
    return f'@"{escaped}"'
