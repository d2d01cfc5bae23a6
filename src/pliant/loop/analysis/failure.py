"""Which programs can fail; renderers emit an error path only for those."""

from __future__ import annotations

from ..stmt import Call, Check, Func, walk_stmts


def can_fail(func: Func) -> bool:
    """True if a program can return an error: it is an entry function, or it or a callee has a check."""
    return func.attrs.entry or any(
        (isinstance(s, Check) and s.kind != "assume") or (isinstance(s, Call) and can_fail(s.func)) for s in walk_stmts(func.body)
    )
