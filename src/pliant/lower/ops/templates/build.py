"""Building blocks of templates: the operator they are built for (Site), loop nests, and mutable variables of a loop program (Cell).

nest((n, m), lambda i: Store(y, i, x.load(*i)))             # for i in range(n): for j in range(m): …
block("copy", "SS", (n, m), lambda v: Store(y, v, x.load(*v)))
count = Cell("count", i64)                                  # Alloc(count.buffer); count.set(const(0)); count.get
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....dtype import DType, i64
from ....loop.buffer import Buffer
from ....loop.inline import compile_time
from ....loop.stmt import Alloc, Block, For, Iter, IterKind, LoopKind, Stmt, Store, seq
from ....support.record import dataclass
from ....sym.expr import Cast, Const, Expr, Var

Indices = tuple[Expr, ...]
ZERO, ONE = Const(0, i64), Const(1, i64)


@dataclass(frozen=True, slots=True)
class Site:
    """An operator for which a template builds a loop program.

    Arguments are buffers, or expressions for scalars and literals. A result of data-dependent size has its capacity as shape; the program
    stores the actual number of elements in `counts`, buffers of one element. State that is updated is both an argument and a result.
    """

    name: str
    args: tuple[Any, ...]  # Buffer | Expr; Any, because the loop language indexes and spreads what mypy would not
    outs: tuple[Any, ...]
    counts: tuple[Any, ...]
    attrs: Any

    def buffer(self, k: int) -> Buffer:
        """Returns argument `k`, which must be a tensor and not a literal number."""
        arg = self.args[k]
        assert isinstance(arg, Buffer)
        return arg

    def read(self, k: int, *indices: Expr) -> Expr:
        """Returns an element of argument `k`."""
        arg = self.args[k]
        return arg.load(*indices) if isinstance(arg, Buffer) else arg


@compile_time
def converted(dtype: DType, e: Expr) -> Expr:
    """Casts an expression if its dtype differs."""
    return e if e.dtype is dtype else Cast(dtype, e)


@compile_time
def numbered(values: tuple[Any, ...]) -> tuple[tuple[int, Any], ...]:
    """Returns the elements of a tuple with their numbers."""
    return tuple(enumerate(values))


@compile_time
def count_of(values: tuple[Any, ...]) -> int:
    """Returns the number of elements of a tuple."""
    return len(values)


def variables(count: int, prefix: str = "") -> tuple[Var, ...]:
    """Returns new loop variables: i, j, k, …"""
    return tuple(Var(f"{prefix}{'ijklmnop'[i % 8]}{i // 8 or ''}", i64) for i in range(count))


def nest(extents: Sequence[Expr], body: Callable[[Indices], Stmt], outer: LoopKind = "serial", inner: LoopKind = "serial") -> Stmt:
    """Returns a loop nest over extents; the outermost loop has the kind `outer`, the innermost (if there are several) `inner`."""
    over = variables(len(extents))
    stmt = body(over)
    for depth, (v, extent) in reversed(list(enumerate(zip(over, extents, strict=True)))):
        stmt = For(v, ZERO, extent, outer if depth == 0 else inner if depth == len(extents) - 1 else "serial", stmt)
    return stmt


def block(name: str, kinds: str, extents: Sequence[Expr], body: Callable[[Indices], Stmt]) -> Stmt:
    """Returns a block inside its own loop nest; `kinds` has a letter for each iterator: S spatial, O ordered."""
    letters: dict[str, IterKind] = {"S": "S", "O": "O"}
    inner = variables(len(extents), "v")

    def around(over: Indices) -> Stmt:
        iters = tuple(Iter(v, letters[kind], value) for v, kind, value in zip(inner, kinds, over, strict=True))
        return Block(name, iters, body(inner))

    return nest(extents, around)


class Cell:
    """A mutable scalar variable of a loop program: a buffer of one element on the stack."""

    def __init__(self, name: str, dtype: DType = i64) -> None:
        self.buffer = Buffer(name, dtype, (ONE,), scope="stack")

    def new(self, value: Expr) -> Stmt:
        """Returns the statements that allocate it and store its first value."""
        return seq(Alloc(self.buffer), self.set(value))

    def set(self, value: Expr) -> Stmt:
        """Returns the statement that assigns a value."""
        return Store(self.buffer, (ZERO,), value)

    @property
    def get(self) -> Expr:
        """The expression that loads its value."""
        return self.buffer.load(ZERO)
