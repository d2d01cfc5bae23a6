"""Hash-consing: structurally equal expressions are one object, found in a table of weak references.

`==` on expressions is therefore identity, and walks memoize on nodes.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from ..dtype import DType
from ..support.memos import when_forgetting

if TYPE_CHECKING:
    from .expr import Expr

T = TypeVar("T", bound="Expr")

_table: dict[tuple[Any, ...], weakref.ref[Any]] = {}  # the hash-consing table
_lock = threading.RLock()  # held while the table is changed
_FEW = 1 << 14  # a table smaller than this is not worth sweeping
_room = _FEW  # the table is swept when it grows beyond this


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _sweep() -> None:
    """Removes the entries of dead expressions from the table, and sets the size at which it is swept again.

    It is no finalizer, because Python drops exceptions raised in one, a Ctrl-C among them. An entry holds its operands, whose entries are
    older, so one walk from the youngest to the oldest finds all dead entries.
    """
    global _room
    keys = list(_table)
    while keys:
        key = keys.pop()
        if _table[key]() is None:
            del _table[key]
    _room = max(_FEW, 2 * len(_table))


@when_forgetting
def _forget() -> None:
    with _lock:
        _sweep()


def memo_of(node: Expr) -> dict[Any, Any]:
    """Return the memo of an expression; create it if it has none. Another thread may create it at the same time: then both get one."""
    memo = node.memo
    if memo is None:
        with _lock:
            memo = node.memo
            if memo is None:
                memo = node.memo = {}
    return memo


def hash_consed(cls: type[T], dtype: DType, payload: Any, args: tuple[Expr, ...]) -> T:
    """Return the expression of this class, dtype, payload and operands; create it if nobody holds one.

    Payloads are compared by `==`, so floats are passed as their bits: 0.0 and -0.0 would be one expression.
    """
    key = (cls, dtype, payload, args)
    entry = _table.get(key)
    if entry is not None:
        known: T | None = entry()
        if known is not None:
            return known
    node = object.__new__(cls)
    set_ = object.__setattr__
    set_(node, "dtype", dtype)
    set_(node, "payload", payload)
    set_(node, "args", args)
    set_(node, "key", key)
    set_(node, "memo", None)
    with _lock:
        raced = _table.get(key)
        first: T | None = None if raced is entry or raced is None else raced()
        if first is not None:  # another thread has created it meanwhile
            return first
        _table[key] = weakref.ref(node)
        if len(_table) > _room:
            _sweep()
    return node
