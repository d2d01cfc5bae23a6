"""Fields of records in hand-written LLVM IR: written by name, and replaced by what LLVM knows.

    %prepare = field ptr %gate, CallDescriptor.prepare        ->   %prepare.at = getelementptr i8, ptr %gate, i64 40
                                                         %prepare = load ptr, ptr %prepare.at
    %cancel.to = place %frame, Frame.ctx.cancel     ->   %cancel.to = getelementptr i8, ptr %frame, i64 40

The offsets are those of the ctypes records, so that the two sides cannot disagree.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping
from typing import Any

_FIELD = re.compile(r"(%[\w.]+) = field (\w+) (%[\w.]+), ([\w.]+)")
_PLACE = re.compile(r"(%[\w.]+) = place (%[\w.]+), ([\w.]+)")


def with_fields(text: str, records: Mapping[str, type[ctypes.Structure]]) -> str:
    """The text with fields of these records as address computations and loads."""

    @functools.cache
    def offset(path: str) -> int:
        name, *fields = path.split(".")
        found: Any = records[name]
        total = 0
        for field in fields:
            total += getattr(found, field).offset
            found = dict(found._fields_)[field]
        return total

    def field(m: re.Match[str]) -> str:
        at = f"{m[1]}.at"
        return f"{at} = getelementptr i8, ptr {m[3]}, i64 {offset(m[4])}\n  {m[1]} = load {m[2]}, ptr {at}"

    def place(m: re.Match[str]) -> str:
        return f"{m[1]} = getelementptr i8, ptr {m[2]}, i64 {offset(m[3])}"

    return _PLACE.sub(place, _FIELD.sub(field, text))
