"""What templates are made with: the site they are built for, nests of loops, and variables of a loop program.

nest((n, m), lambda i: Store(y, i, x.load(*i)))             # for i in range(n): for j in range(m): …
block("copy", "SS", (n, m), lambda v: Store(y, v, x.load(*v)))
count = Cell("count", i64)                                  # Alloc(count.buffer); count.set(const(0)); count.get
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....dtype import DType, i64
from ....loop.buffer import Buffer
from ....loop.stmt import Alloc, Block, For, Iter, IterKind, LoopKind, Stmt, Store, seq
from ....support.record import dataclass
from ....sym.expr import Const, Expr, Var

Indices = tuple[Expr, ...]
ZERO, ONE = Const(0, i64), Const(1, i64)


@dataclass(frozen=True, slots=True)
class Site:
    """An operator for which a loop program is built.

    Arguments are buffers, or expressions where they are scalars or literals. Results of a size that is known only at run time have
    their capacity as shape, and what they hold is counted in `counts`, buffers of one element. State that is updated is both an
    argument and a result.
    """

    name: str
    args: tuple[Buffer | Expr, ...]
    outs: tuple[Buffer, ...]
    counts: tuple[Buffer, ...]
    attrs: Any

    def buffer(self, k: int) -> Buffer:
        """Argument `k`, which is a tensor with dims."""
        found = self.args[k]
        assert isinstance(found, Buffer)
        return found

    def read(self, k: int, *indices: Expr) -> Expr:
        """An element of argument `k`."""
        found = self.args[k]
        return found.load(*indices) if isinstance(found, Buffer) else found


def variables(count: int, prefix: str = "") -> tuple[Var, ...]:
    """New loop variables: i, j, k, …"""
    return tuple(Var(f"{prefix}{'ijklmnop'[i % 8]}{i // 8 or ''}", i64) for i in range(count))


def nest(extents: Sequence[Expr], body: Callable[[Indices], Stmt], outer: LoopKind = "serial", inner: LoopKind = "serial") -> Stmt:
    """Loops over extents; the outermost is of the kind `outer`, the innermost (if there are several) of the kind `inner`."""
    over = variables(len(extents))
    made = body(over)
    for depth, (v, extent) in reversed(list(enumerate(zip(over, extents, strict=True)))):
        made = For(v, ZERO, extent, outer if depth == 0 else inner if depth == len(extents) - 1 else "serial", made)
    return made


def block(name: str, kinds: str, extents: Sequence[Expr], body: Callable[[Indices], Stmt]) -> Stmt:
    """A block over loops of its own; `kinds` has a letter for each: S spatial, O ordered."""
    letters: dict[str, IterKind] = {"S": "S", "O": "O"}
    inner = variables(len(extents), "v")

    def around(over: Indices) -> Stmt:
        iters = tuple(Iter(v, letters[kind], value) for v, kind, value in zip(inner, kinds, over, strict=True))
        return Block(name, iters, body(inner))

    return nest(extents, around)


class Cell:
    """A variable of a loop program: one element on the stack."""

    def __init__(self, name: str, dtype: DType = i64) -> None:
        self.buffer = Buffer(name, dtype, (ONE,), scope="stack")

    def new(self, value: Expr) -> Stmt:
        """Its allocation and first value."""
        return seq(Alloc(self.buffer), self.set(value))

    def set(self, value: Expr) -> Stmt:
        """Gives it another value."""
        return Store(self.buffer, (ZERO,), value)

    @property
    def get(self) -> Expr:
        """Its value now."""
        return self.buffer.load(ZERO)
