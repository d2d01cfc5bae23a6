"""Shadow memory in checked mode: one byte per element says whether the element has been written.

    t = alloc((4,), f32, scope="stack")      t_written = alloc((4,), u8, scope="stack"); all zero
    t[i] = x                            ->   t[i] = x; t_written[i] = 1
    y = t[j]                                 check(t_written[j] != 0, "`t[j]` is read and was never written"); y = t[j]

A shadow has one byte for each element of the allocated buffer (the root). Views share the shadow of their root. Only bytes (u8) can be
viewed as another type, so an element of such a view covers several elements of the root, or shares one with other elements.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dtype import i64, u8
from ...support.record import dataclass
from ...sym.conditions import all_of
from ...sym.expr import Const, Expr, Max, Min, Ne, Var, product
from ..buffer import Buffer
from ..stmt import Alloc, For, Stmt, Store, seq, zero


@dataclass(frozen=True, slots=True)
class Track:
    """A record of where a buffer is in its root's memory (`base` in elements of the root), and of the root's shadow bytes, if any."""

    root: Buffer
    base: Expr
    shadow: Buffer | None

    def size(self) -> Expr:
        """Returns the number of elements of the memory that the buffer is a part of."""
        return memory_size(self.root)

    def scaled(self, buffer: Buffer, elements: Expr) -> Expr:
        """Converts a number of elements of `buffer` to elements of the root, rounded down; the root holds bytes if their dtypes differ."""
        if buffer.dtype is self.root.dtype:
            return elements
        bits = buffer.dtype.bits
        return elements * (bits // 8) if bits >= 8 else elements * bits // 8

    def width(self, buffer: Buffer) -> int:
        """The number of root elements that one element of `buffer` covers."""
        return 1 if buffer.dtype is self.root.dtype else max(1, buffer.dtype.bits // 8)

    def places(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[tuple[Expr]]:
        """The indices of the shadow bytes of one element of `buffer`."""
        first = self.base + self.scaled(buffer, buffer.flat_index(indices))
        return [(first + k if k else first,) for k in range(self.width(buffer))]

    def mark(self, buffer: Buffer, indices: tuple[Expr, ...], value: int = 1) -> list[Stmt]:
        """Returns the statements that set the shadow bytes of an element: 1 for written, 0 for not written."""
        if self.shadow is None:
            return []
        return [Store(self.shadow, place, Const(value, u8)) for place in self.places(buffer, indices)]

    def is_written(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        """Returns the condition that all shadow bytes of an element say that it was written."""
        assert self.shadow is not None
        return all_of(*(Ne(self.shadow.load(*place), Const(0, u8)) for place in self.places(buffer, indices)))


def memory_size(buffer: Buffer) -> Expr:
    """The number of elements of memory that a buffer spans."""
    if buffer.strides is None:
        return product(buffer.shape)
    return reach(buffer)[1] + 1


def reach(buffer: Buffer) -> tuple[Expr, Expr]:
    """The lowest and the highest element that a non-empty buffer touches, relative to its start."""
    if buffer.strides is None:
        return zero(), product(buffer.shape) - 1
    low: Expr = zero()
    high: Expr = zero()
    for extent, stride in zip(buffer.shape, buffer.element_strides(), strict=True):
        last = (extent - 1) * stride
        low, high = low + Min(last, zero()), high + Max(last, zero())
    return low, high


def new_track(buffer: Buffer, *, private: bool, value: int = 0) -> tuple[Track, list[Stmt]]:
    """Returns a track with a new shadow for a root, and the statements that allocate it and set all its bytes to `value` (0: unwritten).

    The shadow is on the stack if `private`, else in the workspace.
    """
    shadow = Buffer(f"{buffer.name}_written", u8, (memory_size(buffer),), scope="stack" if private else "workspace")
    at = Var("at", i64)
    fill = For(at, zero(), shadow.shape[0], "serial", Store(shadow, (at,), Const(value, u8)))
    return Track(buffer, zero(), shadow), [Alloc(shadow), fill]


def for_all(buffer: Buffer, body: list[Stmt], variables: Sequence[Var]) -> Stmt:
    """Returns nested loops over all elements of a buffer around the statements `body`."""
    nest = seq(*body)
    for var, extent in zip(reversed(variables), reversed(buffer.shape), strict=True):
        nest = For(var, zero(), extent, "serial", nest)
    return nest
