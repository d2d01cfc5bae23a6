"""What templates are written with: the operator that one is built for (Site), and functions that inline functions call while parsed.

A template returns an inline function without parameters, in the loop language, over the buffers of its site (`loop.inline`):

    def copied(site):
        x, y = site.args[0], site.outs[0]

        @inline
        def copy():
            for i in grid(*y.shape, outermost="parallel"):
                y[*i] = converted(f32, x[*i])

        return copy
"""

from __future__ import annotations

from typing import Any

from ....dtype import DType, i64
from ....loop.buffer import Buffer
from ....loop.inline import compile_time
from ....support.record import dataclass
from ....sym.expr import Cast, Const, Expr

Indices = tuple[Expr, ...]
ONE = Const(1, i64)


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
        """Returns an element of argument `k`; the argument itself if it is a scalar or literal."""
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
