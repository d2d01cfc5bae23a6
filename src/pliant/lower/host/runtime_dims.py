"""Dims of a host program that are known only while it runs: what binds them, and memory under shapes that have them.

A number that a kernel has counted is bound by a `let` and checked to be within its capacity. Memory that is planned for the capacity
gets its true shape by a view, which stands right behind the check of the last dim that the shape needs:

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
from ...sym.expr import Const, Dim, Expr, Le, Var, all_of, free_vars
from .argument_checks import contract_check
from .capacity import Limits, at_capacity


@dataclass(slots=True)
class RunTimeDims:
    """The dims that are bound so far; see the module."""

    limits: Limits  # what each of them is at most
    bound: dict[Var, tuple[Stmt, list[Stmt]]] = field(default_factory=dict)  # what binds one, and views that wait for that
    memory: dict[Buffer, Buffer] = field(default_factory=dict)  # of such a view: what it is a view of, in which there is room for more

    def at_capacity(self, t: g.Tensor) -> g.Tensor:
        """The largest tensor that a value may be."""
        return at_capacity(t, self.limits)

    def whole(self, b: Buffer) -> Buffer:
        """All of the memory that a buffer lies in."""
        return self.memory.get(b, b)

    def bind(self, dim: Var, most: Expr, value: Expr, span: Span | None) -> list[Stmt]:
        """The statements that give a dim its value."""
        message = f"`{dim.name}` is {{0}}, and can be at most {{1}}"
        check = Check(all_of(Le(Const(0, i64), dim), Le(dim, most)), message, (dim, most), "", "check", span)
        self.bound[dim] = (check, [])
        return [Let(dim, value), *([contract_check(dim)] if isinstance(dim, Dim) else []), check]

    def part(self, whole: Buffer, name: str, shape: tuple[Expr, ...]) -> Buffer:
        """Memory of a capacity under the shape that a value has."""
        used = frozenset().union(*(free_vars(e) for e in shape))
        last = next((v for v in reversed(self.bound) if v in used), None)
        if last is None or whole.shape == shape:
            return whole
        made = Buffer(name, whole.dtype, shape, scope=whole.scope)
        fits = [Le(e, most) for e, most in zip(shape, whole.shape, strict=True) if e is not most and not isinstance(e, Var)]
        checks = [Check(c, f"the room of `{name}` is too small: {{0}} elements where {{1}} are", c.args) for c in fits]
        self.bound[last][1].extend([*checks, View(made, whole, tuple(Const(0, i64) for _ in whole.shape))])
        self.memory[made] = whole
        return made

    def with_views(self, s: Stmt) -> Stmt:
        """The statement with each view behind what defines the dims of its shape."""
        s = map_children(s, self.with_views)
        if not isinstance(s, Seq):
            return s
        waiting = dict(self.bound.values())
        return Seq(tuple(x for c in s.body for x in (c, *waiting.get(c, ()))))


def counted_by(t: g.Tensor, counts: Sequence[Expr]) -> tuple[int | None, ...]:
    """For each dim of a result the number of the count that it is; nothing where none is one."""
    number = {e: i for i, e in enumerate(counts)}
    if t.dtype.bits < 8 and t.shape and t.shape[-1] in number:
        raise UnsupportedError(f"a result of {t} whose last dim is known only while the program runs", facts=[f"{t.dtype} is packed"])
    return tuple(map(number.get, t.shape)) if not number.keys().isdisjoint(t.shape) else ()
