"""Types of the C code generator: C names, literals, typed expressions, and the helper functions of `c_helpers.h`.

In C code a bool is a `bool`, and f16 and bf16 are their 16 bits (`uint16_t`). In memory a bool and an element of a storage type are bytes.
An i64 that provably fits into 32 bits is an `int32_t` (see `Val.type`): microcontrollers add it in one instruction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from ..dtype import DType, bool_, f32, i64
from ..loop.passes.widen_halves import HALVES as HALVES
from ..support.errors import InternalError
from ..sym.expr import Const

INT32 = (-(2**31), 2**31 - 1)
_C_NAMES = {"bool": "bool", "f16": "uint16_t", "bf16": "uint16_t", "f32": "float", "f64": "double"}


class Val(NamedTuple):
    """A C expression: its text, its C type, and its precedence (2 a name or a call, 1 a unary operator or a cast, 0 anything else)."""

    text: str
    type: str
    level: int = 2

    def at(self, level: int) -> str:
        """Return the text, in parentheses if its precedence is lower than `level`."""
        return self.text if self.level >= level else f"({self.text})"


def c_type(d: DType) -> str:
    """Return the C type of a value; raises an InternalError for storage types, which have no values."""
    if d.storage:
        raise InternalError(f"a value of the storage type {d} in C code")
    return _C_NAMES.get(d.name) or f"{'u' if d.kind == 'u' else ''}int{d.bits}_t"


def memory_type(d: DType) -> str:
    """Return the C type of an element in memory; a sub-byte element has the type of its byte."""
    return "uint8_t" if d is bool_ or d.storage else c_type(d)


def arithmetic_type(d: DType) -> str:
    """Return the unsigned type for integer sums and products: never below 32 bits, which C promotes to int, whose overflow is undefined."""
    return "uint64_t" if d.bits == 64 else "uint32_t"


def literal(c: Const) -> Val:
    """Return a constant of a program; finite floats are written in hexadecimal, which is exact."""
    d, value = c.dtype, c.value
    if d is bool_:
        return Val("true" if value else "false", "bool")
    if d in HALVES:
        return Val(f"(uint16_t)0x{c.payload:04x}u", "uint16_t", 1)
    if d.is_float:
        if not math.isfinite(value):
            return Val(f"pl_{d}_from_bits({hex(c.payload)}u{'ll' if d.bits == 64 else ''})", c_type(d))
        mantissa, exponent = float(value).hex().split("p")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return Val(f"{mantissa}p{exponent}{'f' if d is f32 else ''}", c_type(d), 1 if mantissa[0] == "-" else 2)
    if d is i64 and INT32[0] < value <= INT32[1]:
        return Val(str(value), "int32_t", 1 if value < 0 else 2)
    if d.kind == "u":
        return Val({64: f"UINT64_C({value})", 32: f"{value}u"}.get(d.bits, str(value)), c_type(d))
    if value == d.min and d.bits >= 32:
        return Val(f"INT{d.bits}_MIN", c_type(d))
    return Val(f"INT64_C({value})" if d is i64 else str(value), c_type(d), 1 if value < 0 and d is not i64 else 2)


_TYPE = re.compile(r"^//= (\w+) ?(.*)$", re.MULTILINE)
_SECTION = re.compile(r"^//: (\S+)(?: for (.+))?\n", re.MULTILINE)
_WORD = re.compile(r"\$([A-Z]+|t)")
_NAME = re.compile(r"\bprelude\b|\bpl_\w+")


@cache
def helper_texts() -> dict[str, str]:
    """Return the helper functions of `c_helpers.h` by name, with templates instantiated, callees before callers."""
    source = (files(__package__) / "c_helpers.h").read_text(encoding="utf-8")
    types = {t: {"t": t, **dict(word.split("=") for word in words.split())} for t, words in _TYPE.findall(source)}
    texts: dict[str, str] = {}
    parts = _SECTION.split(source)[1:]
    for name, of, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        for words in [types[t] for t in of.split()] if of else [{}]:
            filled = [_WORD.sub(lambda m, words=words: words[m[1]], part) for part in (name, text.strip())]
            texts[filled[0]] = filled[1]
    return texts


def helpers_for(text: Iterable[str]) -> list[str]:
    """Return the helper functions that some text calls, directly or indirectly."""
    known = helper_texts()
    wanted: set[str] = set()
    open_ = [name for part in text for name in _NAME.findall(part)]
    while open_:
        name = open_.pop()
        if name in known and name not in wanted:
            wanted.add(name)
            open_ += _NAME.findall(known[name])
    return [body for name, body in known.items() if name in wanted]
