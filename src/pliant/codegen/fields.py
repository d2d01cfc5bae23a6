"""Field names in hand-written LLVM IR: replaced by the offsets of ctypes records before LLVM parses the text.

    %prepare = field ptr %call, CallDescriptor.prepare   ->   %prepare.at = getelementptr i8, ptr %call, i64 40
                                                              %prepare = load ptr, ptr %prepare.at
    %cancel.to = addressof %frame, Frame.ctx.cancel      ->   %cancel.to = getelementptr i8, ptr %frame, i64 40
    mul i64 %index, $sizeof(Worker)                      ->   mul i64 %index, 128
    add i64 %stride, $offsetof(Pool.worker)              ->   add i64 %stride, 640
    icmp eq i64 %kind, $Kind.FLOAT                       ->   icmp eq i64 %kind, 1

Python reads and writes the same records through ctypes, so the two sides cannot disagree about the layout.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping
from typing import Any

_FIELD = re.compile(r"(%[\w.]+) = (?:field (\w+)|addressof) (%[\w.]+), ([\w.]+)")
_CONSTANT = re.compile(r"\$(?:(sizeof|offsetof)\(([\w.]+)\)|([\w.]+))")


def with_fields(text: str, records: Mapping[str, type[ctypes.Structure]], constants: Mapping[str, int | str]) -> str:
    """Return the text with fields, sizes and `$` names replaced; an unknown name is a KeyError or an AttributeError."""

    @functools.cache
    def layout(path: str) -> tuple[int, int]:
        """Return the byte offset of a field, `Record.field.field`, inside of its outermost record, and its size in bytes."""
        name, *fields = path.split(".")
        record: Any = records[name]
        offset = 0
        for field in fields:
            offset += getattr(record, field).offset
            record = dict(record._fields_)[field]
        return offset, ctypes.sizeof(record)

    def access(m: re.Match[str]) -> str:
        name, loaded, record, path = m.groups()
        at = f"{name}.at" if loaded else name
        address = f"{at} = getelementptr i8, ptr {record}, i64 {layout(path)[0]}"
        return f"{address}\n  {name} = load {loaded}, ptr {at}" if loaded else address

    def constant(m: re.Match[str]) -> str:
        function, path, name = m.groups()
        return str(constants[name] if name else layout(path)[function == "sizeof"])

    return _CONSTANT.sub(constant, _FIELD.sub(access, text))
