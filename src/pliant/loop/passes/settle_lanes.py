"""Decides which vector loops run as SIMD lanes; the others become serial, which every legal vector loop allows.

    for j in vector(n):                                  if 0 < n:
        check(i < m, "...")                                  check(i < m, "...")
        y[j * s] += x[j]                        ->       if s != 0:
                                                             for j in vector(n):
                                                                 y[j * s] += x[j]
                                                         else:
                                                             for j in range(n):
                                                                 y[j * s] += x[j]

Leading checks of a body that do not depend on the lane are hoisted out of the loop. A loop is not vectorized if it contains calls or
other checks, if lanes write the same element, or if its lanes are scattered over a register buffer. Where this depends on strides that
are only known at run time, both versions are emitted (loop versioning). Afterwards a renderer can vectorize every vector loop without a
check. A loop of one iteration is unrolled. Loops nested in a vectorized loop are left alone: a renderer that has vectorized the outer
loop runs them serially. So are the loops of tensor instructions.
"""

from __future__ import annotations

from itertools import takewhile

from ...dtype import i64
from ...sym.conditions import all_of
from ...sym.expr import FALSE, TRUE, Const, Expr, Lt, Ne, Var, binary, free_vars
from ...sym.poly import poly_of, to_expr
from ..analysis.known import Known
from ..analysis.lanes import Access, accesses, loop_body, slope
from ..buffer import Buffer, has_load, loaded
from ..stmt import Check, For, Func, If, Let, Seq, Stmt, View, While, exprs, is_instruction, map_children, seq, walk_stmts
from .unroll import unroll


def settle_lanes(func: Func) -> Func:
    """Returns the function in which every vector loop that remains can run as SIMD lanes; others become serial or unrolled."""
    if not any(isinstance(s, For) and s.kind == "vector" for s in walk_stmts(func.body)):
        return func
    settler = _Settler(func)
    body = settler.stmt(func.body)
    if body is func.body:
        return func
    after = func.with_(body=body)
    # The constants that unrolling substitutes may decide about the vector loops inside.
    return settle_lanes(unroll(after)) if settler.unrolled else after


class _Settler:
    """Walks down to the vector loops of a function, with the facts that hold there, and decides how each can run."""

    def __init__(self, func: Func) -> None:
        self.known = Known(func.symbols)
        self.roots: dict[Buffer, Buffer] = {}  # view -> the buffer that owns its memory
        self.unrolled = False

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case For() if is_instruction(s):
                return s
            case For(kind="vector"):
                return self.vector(s)
            case For() | If() | While():
                return self.known.map_inner(s, self.stmt)
            case Seq():
                return map_children(s, self.stmt)
            case Let():
                self.known.let(s.var, s.value)
            case Check():
                self.known.condition(s.cond)
            case View():
                self.roots[s.buffer] = self.roots.get(s.source, s.source)
        return s

    # Vector loops.

    def vector(self, s: For) -> Stmt:
        """Returns a vector loop in the form in which it can run; its loop-invariant checks are hoisted before it."""
        checks, s = self.checks_apart(s)
        settled = self.settled(s)
        return seq(If(Lt(s.start, s.stop), seq(*checks)), settled) if checks else settled

    def settled(self, s: For) -> Stmt:
        """Returns the loop as SIMD lanes, as serial iterations, or as an `if` that chooses between both at run time."""
        extent = poly_of(self.known.resolve(s.extent))
        if not any(extent) and extent.get((), 0) <= 1:
            return self.written_out(s)
        body = loop_body(s)
        with self.known.supposing(body.definitions):
            conditions = [c for a in body.laned if (c := self.apart(a, s.var, body.varying)) is not TRUE] if body.possible else [FALSE]
            unsure = [c for c in conditions if c is FALSE or not self.known.proves(c)]
        if not unsure:
            return s
        if all(c is not FALSE and body.inside.isdisjoint(free_vars(c)) and not has_load(c) for c in unsure):
            return If(all_of(*unsure), s, self.one_by_one(s))
        return self.one_by_one(s)

    def one_by_one(self, s: For) -> Stmt:
        """The loop as a serial one; unrolled if its lanes are elements of a register buffer, because those need constant indices."""
        known = not any(poly_of(self.known.resolve(s.extent)))  # if it is not constant, the renderer reports the register index
        if known and any(a.buffer.scope == "register" for a in loop_body(s).laned):
            return self.written_out(s)
        return self.stmt(s.with_(kind="serial"))

    def written_out(self, s: For) -> Stmt:
        """Returns the loop with the kind `unroll`, and notes that the function has loops to unroll."""
        self.unrolled = True
        return s.with_(kind="unroll")

    def apart(self, access: Access, var: Var, varying: set[Var]) -> Expr:
        """The condition under which lanes may make an access: lanes must not reduce into the same element, or leave a register's row."""
        if access.buffer.scope == "register":
            moving = [i for i in access.indices if not varying.isdisjoint(free_vars(self.known.resolve(i)))]
            place = poly_of(self.known.resolve(moving[0])) if len(moving) == 1 else {}
            if len(moving) == 1 and moving[0] is not access.indices[-1]:  # lanes go across the rows of a register tile
                return FALSE if access.writes or place.get((var,)) != 1 else TRUE
            return TRUE if len(moving) == 1 and slope(place, var, varying) == {(): 1} else FALSE
        if not (access.reads and access.writes):
            return TRUE
        distance = slope(self.known.flat(access.indices, access.buffer.element_strides()), var, varying)
        return FALSE if distance is None else binary(Ne, to_expr(distance, i64), Const(0, i64))

    def checks_apart(self, s: For) -> tuple[list[Stmt], For]:
        """The leading checks of a loop's body that do not depend on the iteration, and the loop without them."""
        body = s.body.body if isinstance(s.body, Seq) else (s.body,)
        checks = list(takewhile(lambda x: isinstance(x, Check) and all(s.var not in free_vars(e) for e in exprs(x)), body))
        if not checks:
            return [], s
        read = {b for x in checks for e in exprs(x) for b in loaded(e)}
        written = {self.roots.get(a.buffer, a.buffer) for a in accesses(s.body) if a.writes}
        apart = written.isdisjoint(self.roots.get(b, b) for b in read) and not any(isinstance(x, View) for x in walk_stmts(s.body))
        return (checks, s.with_(body=seq(*body[len(checks) :]))) if apart else ([], s)
