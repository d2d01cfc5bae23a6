"""Transposed reads of a register buffer: with `j` the lane, `tile[j, 3]` is a column of a square of registers.

All columns of a square are computed at once, by a transpose in log2(n) steps of shuffles, and reused until a row is written:

    a0 a1 a2 a3        a0 b0 a2 b2        a0 b0 c0 d0
    b0 b1 b2 b3   ->   a1 b1 a3 b3   ->   a1 b1 c1 d1        each row is one shuffle of two rows
    c0 c1 c2 c3        c0 d0 c2 d2        a2 b2 c2 d2
    d0 d1 d2 d3        c1 d1 c3 d3        a3 b3 c3 d3
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..loop.buffer import Buffer, Load
from .llvm_types import memory_type

if TYPE_CHECKING:
    from .llvm_memory import Memory


class Across(NamedTuple):
    """A transposed read of a register tile: the row that each lane reads, and the element that all lanes read in their rows."""

    rows: tuple[tuple[int, ...], ...]
    element: int


def across(b: Memory, e: Load) -> Across | None:
    """Return the rows of a transposed read: one leading index is the lane plus a constant, the others are constants; else None."""
    lead: list[int] = []
    at = None
    for k, index in enumerate(e.indices):
        p = b.poly(index)
        stride, first = b.lane_stride(p), b.first_lane(p)
        if stride not in (0, 1) or any(first) or (stride and (at is not None or k == len(e.indices) - 1)):
            return None
        at = k if stride else at
        lead.append(first.get((), 0))
    if at is None:
        return None
    *outer, element = lead
    return Across(tuple((*outer[:at], outer[at] + n, *outer[at + 1 :]) for n in range(b.lanes)), element)


def column(b: Memory, buffer: Buffer, place: Across) -> str:
    """Emit the column of a transposed read, in its memory type; transposes the square if that was not done."""
    begin = place.element // b.lanes * b.lanes
    key = ("across", buffer, place.rows, begin, b.register_writes.get(buffer, 0))
    columns: list[str] | None = b.recall(key)
    if columns is None:
        whole = memory_type(buffer.dtype, b.lanes)
        rows = [b.register_row(buffer, row, begin, b.lanes) for row in place.rows]
        loaded = [b.raw(f"load {whole}, ptr {row}, align {buffer.dtype.itemsize}") for row in rows]
        columns = transposed(b, whole, loaded)
        b.remember(key, columns, ())
    return columns[place.element - begin]


def transposed(b: Memory, whole: str, rows: list[str]) -> list[str]:
    """Transpose a square of registers: step k swaps bit k of the row with bit k of the lane."""
    count, bit = len(rows), 1
    while bit < count:
        low = ", ".join(f"i32 {n if not n & bit else count + n - bit}" for n in range(count))
        high = ", ".join(f"i32 {n + bit if not n & bit else count + n}" for n in range(count))
        following = list(rows)
        for n in range(count):
            if not n & bit:
                pair = f"{whole} {rows[n]}, {whole} {rows[n | bit]}"
                following[n] = b.raw(f"shufflevector {pair}, <{count} x i32> <{low}>")
                following[n | bit] = b.raw(f"shufflevector {pair}, <{count} x i32> <{high}>")
        rows, bit = following, 2 * bit
    return rows
