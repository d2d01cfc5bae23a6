"""Race check for sub-byte buffers: does each iteration of a parallel loop own the bytes that it writes?

A store to an element smaller than a byte is a read-modify-write of its byte, so two threads must never write the same byte. The
check: all elements that iteration `i` touches lie in its own range, from `c * i` to `c * (i + 1)`, where `c` elements are a whole
number of bytes.

    for i in parallel(n): for j in range(32): q[i, j] = …       # u4[n, 32]: c is 32, j is below it
"""

from __future__ import annotations

from collections.abc import Iterable

from ...dtype import i64
from ...sym.conditions import all_of
from ...sym.expr import Const, Eq, Expr, FloorMod, Le, Lt, Not, free_vars
from ...sym.poly import Poly, add, to_expr
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Call, For, If, Let, Reduce, Stmt, Store, View, children, exprs, walk_stmts
from .known import Known

Stretch = tuple[Expr, int]  # elements per iteration, and the number of the stretch that belongs to iteration 0


def owns_bytes(known: Known, s: For, written: Iterable[Buffer]) -> bool:
    """True if no byte of packed elements is written by one iteration of `s` and touched by another.

    `known` is what holds around the loop. `written` are the buffers that its body writes, including views and its own allocations.
    """
    narrow = {b for b in written if b.dtype.bits < 8}
    if not narrow:
        return True
    with known.scope():
        known.loop(s)
        return _Ownership(known, s).holds(narrow)


class _Ownership:
    """Analysis of one parallel loop over sub-byte elements: the stretch of elements that each iteration touches."""

    def __init__(self, known: Known, s: For) -> None:
        self.known, self.loop = known, s
        self.private = {x.buffer for x in walk_stmts(s.body) if isinstance(x, Alloc)}
        self.views = {x.buffer: x for x in walk_stmts(s.body) if isinstance(x, View)}

    def home(self, b: Buffer) -> Buffer:
        """Returns the buffer that owns the memory of `b`, following the views in the loop's body."""
        while b in self.views:
            b = self.views[b].source
        return b

    def holds(self, written: set[Buffer]) -> bool:
        """True if all accesses to each buffer lie in the same stretch, one that is proved to belong to the iteration."""
        homes = {self.home(b) for b in written} - self.private
        touched: dict[Buffer, set[Stretch | None]] = {b: set() for b in homes}
        self._visit(self.loop.body, touched)
        return all(len(stretches) == 1 and None not in stretches for stretches in touched.values())

    def _visit(self, s: Stmt, found: dict[Buffer, set[Stretch | None]]) -> None:
        """Records the stretch of every access, with the facts that hold at it; None is an access that may be anywhere."""
        known = self.known
        touched = [(n.buffer, n.indices) for e in exprs(s) for n in walk(e) if isinstance(n, Load)]
        if isinstance(s, Store):
            touched.append((s.buffer, s.indices))
        elif isinstance(s, Reduce):
            touched += [(t.buffer, t.indices) for t in s.targets]
        elif isinstance(s, Call):
            for a in s.args:
                if isinstance(a, Buffer) and self.home(a) in found:
                    found[self.home(a)].add(None)
        elif isinstance(s, Let):
            known.let(s.var, s.value)
        for buffer, indices in touched:
            if self.home(buffer) in found:
                found[self.home(buffer)].add(self._stretch(buffer, indices))
        for n, inner in enumerate(children(s)):
            with known.scope():
                if isinstance(s, For):
                    known.loop(s)
                elif isinstance(s, If):
                    known.condition(s.cond if n == 0 else Not(s.cond))
                self._visit(inner, found)

    def _stretch(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Stretch | None:
        """Returns the stretch of elements that an access is in, or None if it is not provably the iteration's own."""
        place = self._place(buffer, indices)
        var = self.loop.var
        if place is None:
            return None
        slope: Poly = {}
        rest: Poly = {}
        for m, c in place.items():
            if var in m:
                slope = add(slope, {tuple(a for a in m if a is not var): c})
            else:
                rest[m] = c
            if sum(a is var for a in m) > 1 or any(a is not var and var in free_vars(a) for a in m):
                return None
        size = to_expr(slope, i64)
        first = rest.get((), 0) // size.value if isinstance(size, Const) and size.value else 0
        offset = to_expr(add(rest, slope, -first), i64)
        inside = all_of(Le(Const(0, i64), offset), Lt(offset, size))
        whole = Eq(FloorMod(size, Const(buffer.dtype.per_byte, i64)), Const(0, i64))
        return (size, first) if self.known.proves(whole) and self.known.proves(inside) else None

    def _place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Poly | None:
        """The flat element number of an access in the buffer that owns the memory; None where a view changes the element size."""
        place = self.known.flat(indices, buffer.element_strides())
        view = self.views.get(buffer)
        if view is None:
            return place
        start = self._place(view.source, view.start) if view.source.dtype.bits == buffer.dtype.bits else None
        return None if start is None else add(place, start)
