"""Memory that a program sees under several types: views of bytes as numbers, of elements as their codes.

A language with rules about aliasing (C) may assume that pointers to different types never meet: a renderer treats such memory apart.
"""

from __future__ import annotations

from collections.abc import Callable

from ...dtype import DType
from ..buffer import Buffer
from ..stmt import Func, View, walk_stmts


def seen_as_several_types(func: Func, type_of: Callable[[DType], str]) -> set[Buffer]:
    """The buffers that share memory with one of another type; `type_of` says which dtypes are one type to the asker."""
    root: dict[Buffer, Buffer] = {}
    for s in walk_stmts(func.body):
        if isinstance(s, View):
            root[s.source] = root.get(s.source, s.source)
            root[s.buffer] = root[s.source]
    types: dict[Buffer, set[str]] = {}
    for b, r in root.items():
        types.setdefault(r, set()).add(type_of(b.dtype))
    return {b for b, r in root.items() if len(types[r]) > 1}
