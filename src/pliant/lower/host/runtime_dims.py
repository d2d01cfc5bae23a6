"""Data-dependent dims of a host program: emits their binding, and the views that give memory its true shape.

A number that a kernel counted is bound by a `let` and checked against its capacity. Memory is planned for the capacity and gets its true
shape by a view. The view comes right after the check of the last dim that its shape needs:

    u = u_count[()]
    check(0 <= u and u <= n * 4, …)
    rows = view(rows_all[0, 0], (u, 8))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...dtype import i64
from ...graph import node as g
from ...loop.buffer import Buffer
from ...loop.stmt import Check, Let, Seq, Stmt, View, map_children
from ...support.errors import UnsupportedError
from ...support.source import Span
from ...sym.conditions import all_of
from ...sym.expr import Const, Dim, Expr, Le, Var, free_vars
from .argument_checks import contract_check
from .capacity import Limits, at_capacity


@dataclass(slots=True)
class RunTimeDims:
    """The state of the dims that are known only at run time: which are bound so far, and the views whose shapes depend on them."""

    limits: Limits  # the upper bound of each run-time dim
    bound: dict[Var, tuple[Stmt, list[Stmt]]] = field(default_factory=dict)  # dim -> (statement that completes its binding, views after it)
    memory: dict[Buffer, Buffer] = field(default_factory=dict)  # view -> the buffer of full capacity behind it

    def at_capacity(self, t: g.Tensor) -> g.Tensor:
        """Returns the tensor annotation with each run-time dim replaced by its upper bound."""
        return at_capacity(t, self.limits)

    def whole(self, b: Buffer) -> Buffer:
        """Returns the buffer of full capacity that a view with run-time dims is a part of; other buffers are returned unchanged."""
        return self.memory.get(b, b)

    def bind(self, dim: Var, most: Expr, value: Expr, span: Span | None) -> list[Stmt]:
        """Returns the statements that bind a dim to a value and check it against its contract and its upper bound.

        Notes the dim as bound.
        """
        message = f"`{dim.name}` is {{0}}, and can be at most {{1}}"
        check = Check(all_of(Le(Const(0, i64), dim), Le(dim, most)), message, (dim, most), "", "check", span)
        self.bound[dim] = (check, [])
        return [Let(dim, value), *([contract_check(dim)] if isinstance(dim, Dim) else []), check]

    def part(self, whole: Buffer, name: str, shape: tuple[Expr, ...]) -> Buffer:
        """Returns a view of `whole` (which has the capacity) with the true shape; `whole` itself if the shape has no run-time dim.

        The view and its checks are queued after the binding of the last dim in its shape.
        """
        used = frozenset().union(*(free_vars(e) for e in shape))
        last = next((v for v in reversed(self.bound) if v in used), None)
        if last is None or whole.shape == shape:
            return whole
        view = Buffer(name, whole.dtype, shape, scope=whole.scope)
        fits = [Le(e, most) for e, most in zip(shape, whole.shape, strict=True) if e is not most and not isinstance(e, Var)]
        checks = [Check(c, f"`{name}` is larger than its capacity: {{0}} elements along a dim, at most {{1}}", c.args) for c in fits]
        self.bound[last][1].extend([*checks, View(view, whole, tuple(Const(0, i64) for _ in whole.shape))])
        self.memory[view] = whole
        return view

    def with_views(self, s: Stmt) -> Stmt:
        """Returns the statement with each view inserted after the statement that binds the last dim of its shape."""
        s = map_children(s, self.with_views)
        if not isinstance(s, Seq):
            return s
        waiting = dict(self.bound.values())
        return Seq(tuple(x for c in s.body for x in (c, *waiting.get(c, ()))))


def counted_by(t: g.Tensor, counts: Sequence[Expr]) -> tuple[int | None, ...]:
    """Returns for each dim of a result the index of its count, or None; an empty tuple if no dim is a count.

    Raises UnsupportedError for a packed sub-byte result whose last dim is a count.
    """
    number = {e: i for i, e in enumerate(counts)}
    if t.dtype.bits < 8 and t.shape and t.shape[-1] in number:
        raise UnsupportedError(f"a result of {t} whose last dim is known only while the program runs", facts=[f"{t.dtype} is packed"])
    return tuple(map(number.get, t.shape)) if not number.keys().isdisjoint(t.shape) else ()
