"""What a statement reads and writes, as boxes: the index of each access with the variables that run inside eliminated.

    for j in range(4): y[i, j] = x[i + j] + t[x[i]]        over i:   reads x[i : i + 4], t[:]   writes y[i, 0:4]

A box covers every access and may be larger: several accesses of one buffer become one box, an index that depends on data
covers the whole dim. Guards (ifs, predicates, conditions of `select`) make boxes smaller where they bound the index.
Buffers that exist only inside of the statement are left out. Boxes assume what the verifier checks: that accesses are in range.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import DIM_MAX, TRUE, And, Const, Dim, Expr, Max, Min, Not, Or, Select, Var, free_vars, substitute, walk
from ...sym.facts import EMPTY, Facts
from ...sym.prove import prove
from ...sym.region import lower, upper
from ...sym.simplify import simplify
from ..buffer import Buffer, Load
from ..stmt import Alloc, Block, Call, For, Func, If, Let, Reduce, Region, Seq, Stmt, Store, View, While, exprs


@dataclass(frozen=True, slots=True)
class Regions:
    """The boxes that a statement reads and writes, one for each buffer."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]


def regions(s: Stmt, facts: Facts = EMPTY) -> Regions:
    """The boxes of a statement over the variables that are free in it; for a block, over its iterators."""
    walker = _Walker()
    if isinstance(s, Block):
        for i in s.iters:
            if i.var not in facts.ends:  # indices are sums and products of what memory can have; they do not overflow
                facts = facts.with_range(i.var, -DIM_MAX, DIM_MAX)
        walker.inside(s, facts)
    else:
        walker.stmt(s, facts)
    return Regions(tuple(walker.reads.values()), tuple(walker.writes.values()))


def symbol_facts(func: Func) -> Facts:
    """What is known of a program's symbols: dims are not negative."""
    facts = EMPTY
    for v in func.symbols:
        if not isinstance(v, Dim):
            facts = facts.with_range(v, 0, DIM_MAX)
    return facts


@dataclass(slots=True)
class _Walker:
    """Walks statements with what is known there; `inner` are the variables to eliminate."""

    reads: dict[Buffer, Region] = field(default_factory=dict)
    writes: dict[Buffer, Region] = field(default_factory=dict)
    inner: tuple[Var, ...] = ()
    values: dict[Var, Expr] = field(default_factory=dict)  # iterators and lets
    sources: dict[Buffer, Buffer] = field(default_factory=dict)  # views -> whose memory they name
    local: set[Buffer] = field(default_factory=set)

    def stmt(self, s: Stmt, facts: Facts) -> None:
        match s:
            case For():
                self.loads((s.start, s.stop), facts)
                start, stop = self.over(s.start), self.over(s.stop)
                self.inner = (*self.inner, s.var)
                self.stmt(s.body, facts.with_loop(s.var, simplify(stop - start, facts), start))
            case Block():
                self.loads((*(i.value for i in s.iters), s.predicate), facts)
                self.values |= {i.var: self.over(i.value) for i in s.iters}
                self.inside(s, facts)
            case If():
                self.loads((s.cond,), facts)
                cond = self.over(s.cond)
                self.stmt(s.then, facts.with_condition(cond))
                if s.orelse is not None:
                    self.stmt(s.orelse, facts.with_condition(Not(cond)))
            case Seq():
                for x in s.body:
                    self.stmt(x, facts)
            case While():
                self.loads((s.cond,), facts)
                self.stmt(s.body, facts)
            case _:
                self.simple(s, facts)

    def inside(self, block: Block, facts: Facts) -> None:
        """The init and the body of a block."""
        if block.init is not None:
            self.stmt(block.init, self.under(block.init_predicate, facts))
        self.stmt(block.body, self.under(block.predicate, facts))

    def under(self, condition: Expr, facts: Facts) -> Facts:
        """Also a condition of a block."""
        return facts if condition is TRUE else facts.with_condition(self.over(condition))

    def simple(self, s: Stmt, facts: Facts) -> None:
        """A statement without others inside."""
        self.loads(exprs(s), facts)
        match s:
            case Let():
                self.values[s.var] = self.over(s.value)
            case Alloc():
                self.local.add(s.buffer)
            case View():
                self.sources[s.buffer] = self.sources.get(s.source, s.source)
            case Store():
                self.touch(self.writes, Load(s.buffer, s.indices), facts)
            case Reduce():
                for t in s.targets:
                    self.touch(self.reads, t, facts)
                    self.touch(self.writes, t, facts)
            case Call():
                for p, a in zip(s.func.params, s.args, strict=True):
                    if isinstance(a, Buffer):
                        for into in ([self.reads] if p.role != "out" else []) + ([self.writes] if p.role != "in" else []):
                            self.whole(into, a)

    def over(self, e: Expr) -> Expr:
        """`e` with iterators and lets replaced by what they are bound to."""
        return substitute(e, self.values)

    def loads(self, values: Iterable[Expr], facts: Facts) -> None:
        """The reads of expressions, each under the conditions around it."""
        for e in values:
            self.expr(e, facts)

    def expr(self, e: Expr, facts: Facts) -> None:
        if not any(isinstance(n, Load) for n in walk(e)):
            return
        if isinstance(e, (Select, And, Or)):
            first, *arms = e.args
            self.expr(first, facts)
            cond = self.over(first)
            under = [facts.with_condition(Not(cond)) if isinstance(e, Or) else facts.with_condition(cond)]
            under += [facts.with_condition(Not(cond))] * (len(arms) - 1)
            for arm, known in zip(arms, under, strict=True):
                self.expr(arm, known)
            return
        self.loads(e.args, facts)
        if isinstance(e, Load):
            self.touch(self.reads, e, facts)

    def touch(self, into: dict[Buffer, Region], place: Load, facts: Facts) -> None:
        """Adds an access."""
        if place.buffer in self.sources:
            self.whole(into, place.buffer)
            return
        if place.buffer in self.local:
            return
        starts: list[Expr] = []
        ends: list[Expr] = []
        for index, size in zip(place.indices, place.buffer.shape, strict=True):
            index = self.over(index)
            if _reads(index):
                starts.append(Const(0, i64))
                ends.append(size)
            else:
                starts.append(self.clamped(Max, lower(index, facts, self.inner), Const(0, i64), facts))
                ends.append(self.simplified(self.clamped(Min, upper(index, facts, self.inner), size - 1, facts) + 1, facts))
        self.join(into, place.buffer, tuple(map(self.outer, starts)), tuple(map(self.outer, ends)))

    def clamped(self, kind: type[Max | Min], bound: Expr, limit: Expr, facts: Facts) -> Expr:
        """A bound made of dims alone, cut at the buffer's edge; one that moves with outer variables is left as simple as it is."""
        return self.simplified(kind(bound, limit), facts) if all(isinstance(v, Dim) for v in free_vars(bound)) else bound

    def simplified(self, e: Expr, facts: Facts) -> Expr:
        """`e` made simpler by what is known there, unless that tells a dim by what is bound inside: `n == tile * 6 + 1`."""
        found = simplify(e, facts)
        return found if free_vars(found).isdisjoint(self.inner) else simplify(e)

    def outer(self, e: Expr) -> Expr:
        """A bound must not use what is bound inside; if one does, that is a mistake of the elimination."""
        assert free_vars(e).isdisjoint(self.inner), f"{e} still depends on inner variables"
        return e

    def whole(self, into: dict[Buffer, Region], buffer: Buffer) -> None:
        """Adds all of a buffer."""
        buffer = self.sources.get(buffer, buffer)
        if buffer not in self.local:
            self.join(into, buffer, tuple(Const(0, i64) for _ in buffer.shape), buffer.shape)

    def join(self, into: dict[Buffer, Region], buffer: Buffer, starts: tuple[Expr, ...], ends: tuple[Expr, ...]) -> None:
        """The smallest box around the one that is known of the buffer and another."""
        old = into.get(buffer)
        if old is not None:
            before = tuple(simplify(a + n) for a, n in zip(old.starts, old.extents, strict=True))
            starts = tuple(_least(a, b) for a, b in zip(old.starts, starts, strict=True))
            ends = tuple(_most(a, b) for a, b in zip(before, ends, strict=True))
        into[buffer] = Region(buffer, starts, tuple(simplify(b - a) for a, b in zip(starts, ends, strict=True)))


def _reads(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in walk(e))


def _least(a: Expr, b: Expr) -> Expr:
    return a if prove(a <= b) else b if prove(b <= a) else simplify(Min(a, b))


def _most(a: Expr, b: Expr) -> Expr:
    return a if prove(b <= a) else b if prove(a <= b) else simplify(Max(a, b))
