"""Whether a program can fail: renderers give only those that can a way to say so."""

from __future__ import annotations

from ..stmt import Call, Check, Func, walk_stmts


def can_fail(func: Func) -> bool:
    """Whether a program can answer with an error: an entry function, and one with checks, its own or of those that it calls."""
    return func.attrs.entry or any(
        (isinstance(s, Check) and s.kind != "assume") or (isinstance(s, Call) and can_fail(s.func)) for s in walk_stmts(func.body)
    )
