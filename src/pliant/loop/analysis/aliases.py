"""Alias analysis: memory that a program accesses under several types (views of bytes as numbers, of elements as their codes).

C compilers assume that pointers to different types do not alias, so a renderer has to treat such memory specially.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dtype import DType
from ..buffer import Buffer
from ..stmt import Func, View, walk_stmts


def seen_as_several_types(func: Func, type_of: Callable[[DType], str]) -> set[Buffer]:
    """The buffers that share memory with a buffer of another type; `type_of` maps each dtype to the type of the target language."""
    root: dict[Buffer, Buffer] = {}
    for s in walk_stmts(func.body):
        if isinstance(s, View):
            root[s.source] = root.get(s.source, s.source)
            root[s.buffer] = root[s.source]
    types: dict[Buffer, set[str]] = {}
    for b, r in root.items():
        types.setdefault(r, set()).add(type_of(b.dtype))
    return {b for b, r in root.items() if len(types[r]) > 1}
