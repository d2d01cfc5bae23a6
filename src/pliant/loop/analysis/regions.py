"""Region inference: the boxes of each buffer that a statement reads and writes, with the variables bound inside eliminated.

    for j in range(4): y[i, j] = x[i + j] + t[x[i]]        over i:   reads x[i : i + 4], t[:]   writes y[i, 0:4]

A box covers every access and may be larger: the accesses to one buffer are merged into one box, and a data-dependent index covers
the whole dim. Guards (ifs, predicates, conditions of `select`) tighten a box where they bound the index. Buffers that are allocated
inside the statement are left out. Boxes are valid only for accesses that are in range, which the verifier checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from ...dtype import i64
from ...support.record import dataclass
from ...sym.expr import DIM_MAX, TRUE, And, Const, Dim, Expr, Max, Min, Not, Or, Select, Var, free_vars, substitute
from ...sym.facts import EMPTY, Facts
from ...sym.prove import prove
from ...sym.region import lower, upper
from ...sym.simplify import simplify
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Block, Call, For, Func, If, Let, Reduce, Region, Seq, Stmt, Store, View, While, exprs


@dataclass(frozen=True, slots=True)
class Regions:
    """A record of the boxes that a statement reads and writes, one per buffer."""

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]


def regions(s: Stmt, facts: Facts = EMPTY) -> Regions:
    """The boxes of a statement over its free variables; for a block, over its iterators."""
    walker = _Walker()
    if isinstance(s, Block):
        for i in s.iters:
            if i.var not in facts.ends:  # an index addresses memory, so it is in this range
                facts = facts.with_range(i.var, -DIM_MAX, DIM_MAX)
        walker.inside(s, facts)
    else:
        walker.stmt(s, facts)
    return Regions(tuple(walker.reads.values()), tuple(walker.writes.values()))


def symbol_facts(func: Func) -> Facts:
    """Returns the facts about a program's symbols: those that are not declared dims are from 0 to DIM_MAX."""
    facts = EMPTY
    for v in func.symbols:
        if not isinstance(v, Dim):
            facts = facts.with_range(v, 0, DIM_MAX)
    return facts


@dataclass(slots=True)
class _Walker:
    """Collects the boxes of elements that a statement reads and writes. `inner` are the variables to eliminate from their bounds."""

    reads: dict[Buffer, Region] = field(default_factory=dict)
    writes: dict[Buffer, Region] = field(default_factory=dict)
    inner: tuple[Var, ...] = ()
    values: dict[Var, Expr] = field(default_factory=dict)  # iterators and lets -> their values
    sources: dict[Buffer, Buffer] = field(default_factory=dict)  # views -> the buffers that they are views of
    local: set[Buffer] = field(default_factory=set)

    def stmt(self, s: Stmt, facts: Facts) -> None:
        """Extends the boxes by all accesses in a statement, where `facts` hold."""
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
        """Extends the boxes by the accesses in a block's init and body, under its predicates."""
        if block.init is not None:
            self.stmt(block.init, self.under(block.init_predicate, facts))
        self.stmt(block.body, self.under(block.predicate, facts))

    def under(self, condition: Expr, facts: Facts) -> Facts:
        """Returns the facts with a block's condition added."""
        return facts if condition is TRUE else facts.with_condition(self.over(condition))

    def simple(self, s: Stmt, facts: Facts) -> None:
        """Extends the boxes by the accesses of a statement that contains no other statements; records lets, local buffers and views."""
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
        """`e` with iterators and lets replaced by their values."""
        return substitute(e, self.values)

    def loads(self, values: Iterable[Expr], facts: Facts) -> None:
        """Extends the boxes by the loads in expressions; a load in an arm of a select counts only where its condition holds."""
        for e in values:
            self.expr(e, facts)

    def expr(self, e: Expr, facts: Facts) -> None:
        """Extends the boxes by the loads in one expression."""
        if not any(isinstance(n, Load) for n in walk(e)):
            return
        if isinstance(e, (Select, And, Or)):
            first, *arms = e.args
            self.expr(first, facts)
            cond = self.over(first)
            under = [facts.with_condition(Not(cond)) if isinstance(e, Or) else facts.with_condition(cond)]
            under += [facts.with_condition(Not(cond))] * (len(arms) - 1)
            for arm, arm_facts in zip(arms, under, strict=True):
                self.expr(arm, arm_facts)
            return
        self.loads(e.args, facts)
        if isinstance(e, Load):
            self.touch(self.reads, e, facts)

    def touch(self, into: dict[Buffer, Region], place: Load, facts: Facts) -> None:
        """Extends the box of a buffer in `into` by one element access; for a view, by the whole source.

        Buffers allocated inside are left out. A dim whose index is loaded from memory counts as a whole.
        """
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
        """Clamps a bound to the buffer's edge if it consists of dims alone; a clamp would only make others longer."""
        return self.simplified(kind(bound, limit), facts) if all(isinstance(v, Dim) for v in free_vars(bound)) else bound

    def simplified(self, e: Expr, facts: Facts) -> Expr:
        """Simplifies `e` by the facts, unless that expresses a dim by a variable bound inside, as `n == tile * 6 + 1` would."""
        simple = simplify(e, facts)
        return simple if free_vars(simple).isdisjoint(self.inner) else simplify(e)

    def outer(self, e: Expr) -> Expr:
        """Returns the bound after an assertion: it must not use a variable that is bound inside."""
        assert free_vars(e).isdisjoint(self.inner), f"{e} still depends on inner variables"
        return e

    def whole(self, into: dict[Buffer, Region], buffer: Buffer) -> None:
        """Extends the box of a buffer in `into` to the whole buffer."""
        buffer = self.sources.get(buffer, buffer)
        if buffer not in self.local:
            self.join(into, buffer, tuple(Const(0, i64) for _ in buffer.shape), buffer.shape)

    def join(self, into: dict[Buffer, Region], buffer: Buffer, starts: tuple[Expr, ...], ends: tuple[Expr, ...]) -> None:
        """Merges a box into the one recorded for the buffer: the smallest box around both."""
        old = into.get(buffer)
        if old is not None:
            before = tuple(simplify(a + n) for a, n in zip(old.starts, old.extents, strict=True))
            starts = tuple(_least(a, b) for a, b in zip(old.starts, starts, strict=True))
            ends = tuple(_most(a, b) for a, b in zip(before, ends, strict=True))
        into[buffer] = Region(buffer, starts, tuple(simplify(b - a) for a, b in zip(starts, ends, strict=True)))


def _reads(e: Expr) -> bool:
    """True if `e` loads from memory."""
    return any(isinstance(n, Load) for n in walk(e))


def _least(a: Expr, b: Expr) -> Expr:
    """The smaller of two bounds, as a `min` if neither is provably smaller."""
    return a if prove(a <= b) else b if prove(b <= a) else simplify(Min(a, b))


def _most(a: Expr, b: Expr) -> Expr:
    """The larger of two bounds, as a `max` if neither is provably larger."""
    return a if prove(b <= a) else b if prove(a <= b) else simplify(Max(a, b))
