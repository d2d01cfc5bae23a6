"""Cuts register tiles that are larger than the register file of the machine into groups of columns that fit.

    acc = alloc((6, 64), f32, scope="register")           for g in range(4):
    for r in unroll(6):                                       acc = alloc((6, 16), f32, scope="register")
        for x in vector(64): acc[r, x] = 0.0                  for r in unroll(6):
    for k in range(n):                                            for x in vector(16): acc[r, x] = 0.0
        for r in unroll(6):                           ->      for k in range(n):
            for x in vector(64):                                  for r in unroll(6):
                acc[r, x] += a[r, k] * b[k, x]                        for x in vector(16):
    ...                                                                   acc[r, x] += a[r, k] * b[k, g * 16 + x]
                                                              ...

So a kernel that brings its own schedule can have a tile for the largest register file, and does not spill on other machines: 6 x 64 sums
are 24 of 32 AVX-512 registers, but 48 where AVX2 has 16. The columns are independent (each statement touches only its own), so every
element is computed by the same operations in the same order. Tiles that default rules choose fit their machine already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import Add, Const, Expr, Var, free_vars
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, For, Func, Let, Reduce, Replacer, Seq, Stmt, Store, View, exprs, is_instruction, map_children, walk_stmts

SPARE = 4  # registers for operands: two vectors of a row of the right side, a broadcast, and one that is on its way


def narrow_register_tiles(func: Func, lanes: int, registers: int) -> Func:
    """The function with register tiles of at most `registers` vectors; a machine with 0 registers is one that nothing is known about."""
    if not registers or not any(isinstance(s, Alloc) and s.buffer.scope == "register" for s in walk_stmts(func.body)):
        return func
    viewed = {b for s in walk_stmts(func.body) if isinstance(s, View) for b in (s.buffer, s.source)}
    return func.with_body(_Narrower(lanes, registers, viewed).stmt(func.body))


@dataclass(frozen=True, slots=True)
class _Narrower:
    lanes: int
    registers: int
    viewed: set[Buffer]  # buffers that may share memory with others

    def stmt(self, s: Stmt) -> Stmt:
        s = map_children(s, self.stmt)
        if not isinstance(s, Seq):
            return s
        for at in reversed(range(len(s.body))):
            alloc = s.body[at]
            if (
                isinstance(alloc, Alloc)
                and (width := self.columns(alloc.buffer))
                and _is_columnwise(s.body[at + 1 :], alloc.buffer, self.viewed)
            ):
                return s.with_(body=(*s.body[:at], _in_groups(alloc, s.body[at + 1 :], width)))
        return s

    def columns(self, b: Buffer) -> int:
        """The number of columns of a group, or 0 if the tile fits the registers or cannot be cut."""
        if b.scope != "register" or b.ndim != 2 or b.strides is not None or b.dtype.bits not in (32, 64):
            return 0
        if not all(isinstance(e, Const) for e in b.shape):
            return 0
        rows, columns = (int(e.value) for e in b.shape if isinstance(e, Const))
        lanes = max(self.lanes * 32 // b.dtype.bits, 1)
        if rows * -(-columns // lanes) <= self.registers:
            return 0
        groups = (g for g in range(columns - lanes, 0, -lanes) if columns % g == 0)
        return next((g for g in groups if rows * (g // lanes) <= self.registers - SPARE), 0)


def _is_columnwise(body: Iterable[Stmt], tile: Buffer, viewed: set[Buffer]) -> bool:
    """True if the statements can run for some columns of the tile before others: each touches its own column in everything that is written.

    Loops over columns are vector loops with the tile's columns as their extent, and hold stores and reductions alone.
    """
    written: dict[Buffer, set[tuple[int, Expr]]] = {}
    reads: list[tuple[Load, Var | None]] = []
    for s, x in _leaves(body, None, tile.shape[-1]):
        if s is None:
            return False
        if isinstance(s, Store | Reduce):
            target = s.targets[0] if isinstance(s, Reduce) else Load(s.buffer, s.indices)
            place = _column(target, x)
            if place is None or (isinstance(s, Reduce) and len(s.targets) > 1):
                return False
            written.setdefault(target.buffer, set()).add(place)
        reads += ((e, x) for root in exprs(s) for e in walk(root) if isinstance(e, Load))
    for load, x in reads:
        if load.buffer.scope == "register" and load.buffer is not tile:
            return False  # its columns would be at indices that are no constants
        if load.buffer is tile or load.buffer in written:
            place = _column(load, x)
            if place is None:
                return False
            written.setdefault(load.buffer, set()).add(place)
    if any(b.scope == "register" and b is not tile for b in written):
        return False
    return all(len(places) == 1 and b not in viewed for b, places in written.items()) and written.get(tile, set()) <= {(1, Const(0, i64))}


def _leaves(body: Iterable[Stmt], x: Var | None, columns: Expr) -> Iterator[tuple[Stmt | None, Var | None]]:
    """The simple statements and loops of a body, with the variable of the loop over columns around them; None for what is not allowed."""
    for s in body:
        if isinstance(s, Seq):
            yield from _leaves(s.body, x, columns)
        elif isinstance(s, For) and not is_instruction(s) and x is None and s.kind in ("serial", "unroll", "vector"):
            wide = s.kind == "vector"
            if wide and not (isinstance(s.start, Const) and s.start.value == 0 and s.stop is columns):
                yield None, None
            yield s, None
            yield from _leaves((s.body,), s.var if wide else None, columns)
        elif (isinstance(s, Store | Reduce) and x is not None) or (isinstance(s, Let) and x is None):
            yield s, x
        else:
            yield None, None


def _column(load: Load, x: Var | None) -> tuple[int, Expr] | None:
    """The dim of an element along which columns are next to each other, and the index of column 0 there; None if there is no such dim."""
    for dim, index in enumerate(load.indices):
        if index is x:
            return dim, Const(0, i64)
        if isinstance(index, Add) and index.args[1] is x and x not in free_vars(index.args[0]):
            return dim, index.args[0]
    return None


def _in_groups(alloc: Alloc, body: tuple[Stmt, ...], width: int) -> Stmt:
    """Returns a serial loop over groups of `width` columns, with a tile of one group, and vector loops over the columns of that group."""
    old = alloc.buffer
    rows, columns = old.shape
    assert isinstance(columns, Const)
    tile = Buffer(old.name, old.dtype, (rows, Const(width, i64)), scope=old.scope)
    group = Var("group", i64)

    def narrowed(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind != "vector":
            return map_children(s, narrowed)
        own = Replacer(vars={s.var: group * width + s.var}, loads=lambda e: Load(tile, (e.indices[0], s.var)) if e.buffer is old else None)

        def target(e: Load) -> Load:
            return Load(tile, (own.expr(e.indices[0]), s.var)) if e.buffer is old else own.target(e)

        def leaf(inner: Stmt) -> Stmt:
            if isinstance(inner, Store):
                place = target(Load(inner.buffer, inner.indices))
                return inner.with_(buffer=place.buffer, indices=place.indices, value=own.expr(inner.value))
            if isinstance(inner, Reduce):
                return inner.with_(targets=tuple(map(target, inner.targets)), values=tuple(map(own.expr, inner.values)))
            return map_children(inner, leaf)

        return s.with_(stop=Const(width, i64), body=leaf(s.body))

    inside = Seq((alloc.with_(buffer=tile), *map(narrowed, body)))
    return For(group, Const(0, i64), Const(int(columns.value) // width, i64), "serial", inside)
