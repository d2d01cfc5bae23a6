"""Scalar replacement: every element of a register buffer becomes a 0-d buffer of its own, i.e. a local variable in source text.

    acc = alloc((2, 2), f32, scope="register")          acc_0 = alloc((), f32, scope="register")
    acc[0, 0] = 0.0                             ->      acc_3 = alloc((), f32, scope="register")
    acc[1, 1] = acc[0, 0]                               acc_0[()] = 0.0
                                                        acc_3[()] = acc_0[()]

Unrolling has made the indices constants. A buffer stays whole if it has another index, if it is viewed or passed to a call, or if a
tensor instruction uses it.
"""

from __future__ import annotations

from ...sym.expr import Const
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Call, Func, Replacer, Seq, Stmt, Store, View, exprs, is_instruction, walk_stmts


def split_registers(func: Func) -> Func:
    """The function with register buffers split into scalars, where all of their indices are constants."""
    registers = {s.buffer for s in walk_stmts(func.body) if isinstance(s, Alloc) and s.buffer.scope == "register" and s.buffer.ndim}
    whole = {b for s in walk_stmts(func.body) for b in _needed_whole(s)}
    whole |= {e.buffer for s in walk_stmts(func.body) for e in accesses(s) if e.buffer in registers and _number(e) is None}
    parts: dict[Buffer, dict[int, Buffer]] = {b: {} for b in registers - whole if not b.dtype.storage}
    if not parts:
        return func
    return func.with_(body=_Splitter(func.body, parts).stmt(func.body))


def accesses(s: Stmt) -> list[Load]:
    """Returns the elements that a statement itself loads or stores, without nested statements."""
    loads = [e for own in exprs(s) for e in walk(own) if isinstance(e, Load)]
    return [Load(s.buffer, s.indices), *loads] if isinstance(s, Store) else loads


def _needed_whole(s: Stmt) -> list[Buffer]:
    """Returns the buffers that a statement uses as a whole, not by element: views, calls and tensor instructions."""
    if isinstance(s, View):
        return [s.source]
    if isinstance(s, Call):
        return [a for a in s.args if isinstance(a, Buffer)]
    if is_instruction(s):
        inside = list(walk_stmts(s))
        targets = [t.buffer for x in inside for t in getattr(x, "targets", ())]
        return [*targets, *(e.buffer for x in inside for e in accesses(x))]
    return []


def _number(e: Load) -> int | None:
    """The flat index of an element if it is a constant, else None."""
    flat = e.buffer.flat_index(e.indices)
    return flat.value if isinstance(flat, Const) else None


class _Splitter(Replacer):
    """Replaces each element of the split register buffers by a scalar register buffer of its own."""

    __slots__ = ("parts",)

    def __init__(self, body: Stmt, parts: dict[Buffer, dict[int, Buffer]]) -> None:
        super().__init__(loads=self.part)
        self.parts = parts
        for s in walk_stmts(body):  # collected first, because allocations precede the accesses
            for e in accesses(s):
                self.part(e)

    def part(self, e: Load) -> Load:
        """Returns the scalar that replaces an element; the element itself if its buffer is not split."""
        number = _number(e) if e.buffer in self.parts else None
        if number is None:
            return e
        b = e.buffer
        return Load(self.parts[b].setdefault(number, Buffer(f"{b.name}_{number}", b.dtype, (), None, "register")), ())

    def target(self, e: Load) -> Load:
        return self.part(Replacer.target(self, e))

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer in self.parts:
            return Seq(tuple(s.with_(buffer=b) for _, b in sorted(self.parts[s.buffer].items())))
        return Replacer.stmt(self, s)
