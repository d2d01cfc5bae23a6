"""Vector loops: iterations become lanes.

A constant extent of up to 64 is one group of that many lanes (a power of two, else several groups), which LLVM splits over
registers. Other loops are cut into groups of one register's lanes; the rest is one masked group where the machine has masked
loads and stores for the elements, else a scalar loop:

    for j in vector(n):                     for j0 in 0, 8, … while j0 + 8 <= n:  y[j0 : j0+8] = f(x[j0 : j0+8])
        y[j] = f(x[j])             ->       y[j0 : n] = f(x[j0 : n])             (masked)

Checks that come out the same for all iterations are made once, before the loop. A loop that cannot be lanes (it has calls or other
checks inside, lanes write the same element, its lanes are rows of a register buffer) is run one iteration after the other, which is
what a legal vector loop means anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from ..dtype import i32, i64
from ..loop.buffer import Buffer, Load, has_load, loaded_dtype
from ..loop.stmt import Check, For, If, Let, Reduce, Seq, Stmt, Store, View, exprs, seq, walk_stmts
from ..support.memos import remembered
from ..support.record import dataclass
from ..sym.expr import FALSE, TRUE, Const, Eq, Expr, FloorMod, Lt, Ne, Var, all_of, binary, free_vars, walk
from ..sym.poly import Poly, to_expr, without
from .llvm_address import Lanes
from .llvm_stmt import Statements
from .llvm_types import Val

MAX_LANES = 64
_ALLOWED = (Seq, Store, Reduce, If)


class Access(NamedTuple):
    """An element that a loop's body reads, writes, or (both) combines with."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    reads: bool
    writes: bool


class VectorLoops(Statements):
    """Emits vector loops."""

    def vector_loop(self, s: For) -> None:
        checks, s = self._checks_apart(s)
        if checks:
            self.stmt(If(Lt(s.start, s.stop), seq(*checks)))
        constant = self.extent_of(s)
        if constant is not None and constant[1] <= 1:
            self.one_by_one(s)
            return
        shape = _shape(s)
        varying, laned = shape.varying, shape.laned
        with self.scope():
            self.definitions.update(shape.definitions)  # so that indices are seen through lets
            apart = [self._apart(a, s.var, varying) for a in laned] if shape.possible else [FALSE]
            unsure = [e for e in apart if e is not TRUE and not self.proves(e)]
            possible = all(shape.inside.isdisjoint(free_vars(e)) and not has_load(e) and e is not FALSE for e in unsure)
            in_registers = any(a.buffer.scope == "register" for a in laned)
            whole = constant is not None and (constant[1] <= MAX_LANES or in_registers)
            masks = possible and not whole and self._masks(laned, s.var, varying)
        if not possible and in_registers and constant is not None:
            self.one_by_one(s)
        elif not possible:
            self.serial(s)
        elif whole and constant is not None:
            self._if_apart(unsure, s, lambda: self._groups(s, *constant))
        else:
            widest = max(8 * loaded_dtype(a.buffer.dtype).itemsize for a in laned)
            self._if_apart(unsure, s, lambda: self._strips(s, self.target.vector_bits // widest, masks))

    def _checks_apart(self, s: For) -> tuple[list[Stmt], For]:
        """The checks with which a loop's body begins and that are the same in every iteration, and the loop without them."""
        body = s.body.body if isinstance(s.body, Seq) else (s.body,)
        checks = list(takewhile(lambda x: isinstance(x, Check) and all(s.var not in free_vars(e) for e in exprs(x)), body))
        if not checks:
            return [], s
        read = {n.buffer for x in checks for e in exprs(x) for n in walk(e) if isinstance(n, Load)}
        written = {self.roots.get(a.buffer, a.buffer) for a in _accesses(s.body) if a.writes}
        apart = written.isdisjoint(self.roots.get(b, b) for b in read) and not any(isinstance(x, View) for x in walk_stmts(s.body))
        return (checks, s.with_(body=seq(*body[len(checks) :]))) if apart else ([], s)

    # Which loops can be lanes, and how.

    def _apart(self, access: Access, var: Var, varying: set[Var]) -> Expr:
        """The condition under which the access may be made by lanes: a combination must not meet itself in another one."""
        slope = self._slope(access, var, varying)
        if access.buffer.scope == "register":
            moving = [i for i in access.indices if not varying.isdisjoint(free_vars(self.resolve(i)))]
            if len(moving) == 1 and moving[0] is not access.indices[-1]:  # across rows
                return FALSE if access.writes or self.poly(moving[0]).get((var,)) != 1 else TRUE
            return TRUE if len(moving) == 1 and slope == {(): 1} else FALSE
        if not (access.reads and access.writes):
            return TRUE
        return FALSE if slope is None else binary(Ne, to_expr(slope, i64), Const(0, i64))

    def _if_apart(self, unsure: list[Expr], s: For, lanes: Callable[[], None]) -> None:
        """Lanes where they are apart, which for some strides is known only now; else one iteration after the other."""
        if not unsure:
            lanes()
            return
        together, alone, join = self.new_label("lanes"), self.new_label("alone"), self.new_label("join")
        self.branch_if(self.expr(all_of(*unsure)), together, alone)
        for label, emit in ((together, lanes), (alone, lambda: self.serial(s))):
            self.start_block(label)
            with self.scope():
                emit()
            self.branch(join)
        self.start_block(join)

    def _slope(self, access: Access, var: Var, varying: set[Var]) -> Poly | None:
        """The distance between lanes in elements, None if it is not the same for all."""
        if access.buffer.scope == "register":
            p = self.poly(access.indices[-1])
        else:
            p = self.flat(access.indices, access.buffer.element_strides())
        slope: Poly = {}
        for m, c in p.items():
            rest = without(m, (var,))
            if any(not varying.isdisjoint(free_vars(a)) for a in (m if rest is None else rest)):
                return None
            if rest is not None:
                slope[rest] = c
        return slope

    def _masks(self, laned: list[Access], var: Var, varying: set[Var]) -> bool:
        """Whether a masked group is cheap here: AVX2 has masked rows of 4 and 8 bytes, AVX-512 gathers and scatters of them too."""
        features = self.target.features
        if "avx2" not in features:
            return False
        for a in laned:
            row = self._slope(a, var, varying) in ({(): 1}, {(): -1})
            if a.buffer.dtype.itemsize < 4:
                fine = row and a.buffer.dtype.bits == 8 * a.buffer.dtype.itemsize and "avx512bw" in features
            else:
                fine = row or "avx512f" in features
            if not fine:
                return False
        return True

    # Emitting.

    def _groups(self, s: For, start: int, extent: int) -> None:
        """All lanes of a constant extent, in groups whose sizes are powers of two: LLVM keeps no others in registers."""
        while extent:
            count = min(MAX_LANES, 1 << (extent.bit_length() - 1))
            if count == 1:
                self.iteration(s, start)
            else:
                self._group(s, start, count)
            start, extent = start + count, extent - count

    def _group(self, s: For, first: int | Val, count: int, multiple: int = 1) -> None:
        """The body for `count` lanes from `first` on, which `multiple` divides."""
        start = Var(s.var.name)
        with self.scope(s.var, start, open=True):
            if isinstance(first, int):
                self.numbers[start] = first
            else:
                self.bind(start, first)
                self._known.append(lambda facts: facts.with_multiple(start, multiple))
            self.depth[s.var] = self.depth[start] = self.loop_depth
            self.know_range(s.var, s.start, s.stop)
            self.vector, self.lanes = Lanes(s.var, start, count), count
            self.varying.add(s.var)
            self.stmt(s.body)
            self.vector, self.lanes = None, 0
            self.varying.clear()

    def _strips(self, s: For, lanes: int, masks: bool) -> None:
        """Groups of `lanes` as long as they are full, then the rest."""
        start, stop = self.expr(s.start), self.expr(s.stop)
        extent = self.intrinsic("smax", [self.binary("sub", stop, start), Val("0", i64)])
        rest = self.binary("urem", extent, Val(str(lanes), i64))
        full = self.binary("sub", extent, rest)
        middle = self.binary("add", start, full)
        first = Var(s.var.name)
        multiple = lanes if self.proves(Eq(FloorMod(s.start, Const(lanes, i64)), Const(0, i64))) else 1
        self.loop(first, start, middle, lambda: self._group(s, self.value_of(first), lanes, multiple), step=lanes)
        if self.proves(Eq(FloorMod(s.extent, Const(lanes, i64)), Const(0, i64))):
            return
        if not masks:
            self.loop(s.var, middle, stop, lambda: self.stmt(s.body))
            return
        then, join = self.new_label("rest"), self.new_label("join")
        self.branch_if(self.compare("icmp ne", rest, Val("0", i64)), then, join)
        self.start_block(then)
        with self.scope():
            steps = Val("<" + ", ".join(f"i32 {n}" for n in range(lanes)) + ">", i32, lanes)
            with self.active(self.compare("icmp ult", steps, self.convert("trunc", rest, i32))):
                self._group(s, middle, lanes)
        self.branch(join)
        self.start_block(join)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a vector loop's body is."""

    varying: set[Var]  # variables that may differ from lane to lane
    definitions: dict[Var, Expr]  # lets over indices
    inside: set[Var]  # variables that have values only in the body
    laned: list[Access]  # the accesses whose place depends on the lane
    possible: bool  # as far as the kinds of statements go


@remembered(maxsize=256)  # copies of an unrolled loop share what has no number of theirs
def _shape(s: For) -> _Shape:
    varying, definitions, inside, possible = {s.var}, {}, {s.var}, True
    for inner in walk_stmts(s.body):
        if isinstance(inner, (For, Let)):
            inside.add(inner.var)
        if isinstance(inner, Let):
            if not varying.isdisjoint(free_vars(inner.value)):
                varying.add(inner.var)
            if inner.var.dtype.is_int and not has_load(inner.value):
                definitions[inner.var] = inner.value
        elif isinstance(inner, (For, View)):
            possible &= all(varying.isdisjoint(free_vars(e)) for e in exprs(inner))
        elif not isinstance(inner, _ALLOWED):
            possible = False
    accesses = list(_accesses(s.body))
    laned = [a for a in accesses if any(not varying.isdisjoint(free_vars(i)) for i in a.indices)]
    # Lanes that write one element: the last one wins, or adds to what the one before wrote.
    meet = any(a.writes and a not in laned for a in accesses)
    return _Shape(varying, definitions, inside, laned, possible and bool(laned) and not meet)


def _accesses(s: Stmt) -> Iterator[Access]:
    """Every element that a statement reads or writes."""
    for inner in walk_stmts(s):
        for e in exprs(inner):
            yield from (Access(n.buffer, n.indices, True, False) for n in walk(e) if isinstance(n, Load))
        if isinstance(inner, Store):
            yield Access(inner.buffer, inner.indices, False, True)
        elif isinstance(inner, Reduce):
            yield from (Access(t.buffer, t.indices, True, True) for t in inner.targets)
