"""The elements that a block's instances touch: its accesses over its iterators and its inner loops, with guards and combiners.

`verify_blocks.py` proves from these that instances are independent. Memory that a block allocates itself is private to an instance, and
is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...dtype import bool_
from ...support.record import dataclass
from ...sym.expr import TRUE, Expr, Not, Var, substitute
from ...sym.walk import walk
from ..buffer import Buffer, Load, loaded
from ..stmt import Alloc, Block, Call, Combiner, For, If, Let, Reduce, Seq, Stmt, Store, View, While, exprs, zero


@dataclass(frozen=True, slots=True)
class Around:
    """A record of the loops and lets around a block, up to the enclosing block."""

    loops: tuple[For, ...] = ()
    lets: dict[Var, Expr] | None = None

    def see(self, e: Expr) -> Expr:
        """Returns `e` with the variables of surrounding lets replaced by their values."""
        return substitute(e, self.lets) if self.lets else e


class Access(NamedTuple):
    """A record of one element that a block reads or writes, indexed by its iterators and the loops inside of it."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool
    at: Stmt
    inner: tuple[For, ...]  # loops inside of the block
    guards: tuple[Expr, ...]  # conditions inside of the block
    combiner: Combiner | None = None  # of the reduction, if the element is its target
    init: bool = False


def combiner_key(c: Combiner | None) -> object:
    """Returns a key that is equal for combiners whose reductions into one element may be mixed; fma counts as add."""
    return c.name if c is not None and not c.result and c.name != "fma" else "add" if c is not None and c.name == "fma" else c


class Collector:
    """Collects the accesses of a block to those buffers that it writes and that outlive one instance of it."""

    def __init__(self, b: Block, views: Mapping[Buffer, View]) -> None:
        self.block = b
        self.views: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {v: (s.source, s.start) for v, s in views.items()}
        self.inside: set[Buffer] = set()  # views made inside of the block
        self.own: set[Buffer] = set()  # buffers allocated inside of the block: private to an instance
        self.found: list[Found] = [Found(Store(_NO_BUFFER, (), b.predicate, b.span), (), (), {}, False)]
        if b.init is not None:
            self.walk(b.init, Found(b.init, init=True))
        self.walk(b.body, Found(b.body))

    def walk(self, s: Stmt, at: Found) -> Found:
        """Records the statements in `s`, each with its context, and returns the context of the statement after it."""
        match s:
            case Seq():
                inner = at
                for x in s.body:
                    inner = self.walk(x, inner)
                return at
            case Let():
                self.found.append(at._replace(stmt=s))
                return at.bind({s.var: s.value})
            case Alloc():
                self.own.add(s.buffer)
                return at
            case View():
                self.views[s.buffer] = (s.source, tuple(at.see(e) for e in s.start))
                self.inside.add(s.buffer)
                return at
        self.found.append(at._replace(stmt=s))
        match s:
            case For():
                self.walk(s.body, at._replace(inner=(*at.inner, s.with_(start=at.see(s.start), stop=at.see(s.stop)))))
            case While():
                self.walk(s.body, at)
            case If():
                self.walk(s.then, at.given(s.cond))
                if s.orelse is not None:
                    self.walk(s.orelse, at.given(Not(s.cond)))
            case Block():
                inner = at.bind({i.var: i.value for i in s.iters})
                if s.init is not None:
                    self.walk(s.init, inner)
                self.walk(s.body, inner.given(s.predicate))
        return at

    def memory(self, b: Buffer) -> Buffer:
        """Returns the buffer that owns the memory of `b`: the source of its chain of views."""
        while b in self.views:
            b = self.views[b][0]
        return b

    def one_by_one(self, b: Buffer) -> bool:
        """True if different indices of a buffer are different elements, the same ones for all instances."""
        if b in self.inside:
            return False
        return b.strides is None or (b.scope == "global" and b not in self.views) or _strides_nest(b)

    def by_memory(self) -> dict[Buffer, list[Access]]:
        """Returns the accesses to each buffer that is written, by the buffer that owns the memory, each once.

        Memory private to an instance is left out.
        """
        written: dict[Buffer, dict[object, Access]] = {}
        for f in self.found:
            for a in f.writes():
                root = self.memory(a.buffer)
                if root not in self.own:
                    written.setdefault(root, {}).setdefault((a.buffer, a.indices, True, combiner_key(a.combiner), a.init, a.guards), a)
        if not written:
            return {}
        names = {*written, *(v for v in self.views if self.memory(v) in written)}
        for f in self.found:
            for a in f.reads(names):
                written[self.memory(a.buffer)].setdefault((a.buffer, a.indices, False, None, a.init, a.guards), a)
        return {root: list(places.values()) for root, places in written.items()}


def _strides_nest(b: Buffer) -> bool:
    """True if each stride is at least the span of the dims after it, so that different indices are different elements."""
    from ...sym.poly import add, multiply, poly_of

    assert b.strides is not None
    spans = [multiply(poly_of(n), poly_of(t)) for n, t in zip(b.shape, b.strides, strict=True)]
    gaps = [add(poly_of(t), span, -1) for t, span in zip(b.strides, spans[1:], strict=False)]
    last = poly_of(b.strides[-1]) if b.strides else {}
    return all(gap.keys() <= {()} and gap.get((), 0) >= 0 for gap in gaps) and last.keys() == {()} and last[()] >= 1


_NO_BUFFER = Buffer("", bool_, ())  # the target of a pseudo store that evaluates a block's predicate


class Found(NamedTuple):
    """A record of a statement in a block with its context: loops and conditions around it, and the values of lets."""

    stmt: Stmt
    inner: tuple[For, ...] = ()
    guards: tuple[Expr, ...] = ()
    values: dict[Var, Expr] | None = None  # the values of lets, and of iterators of nested blocks
    init: bool = False

    def see(self, e: Expr) -> Expr:
        """Returns `e` in terms of the block's iterators and the loops inside of it."""
        return substitute(e, self.values) if self.values else e

    def bind(self, values: dict[Var, Expr]) -> Found:
        """Returns the context with the values of further lets or iterators."""
        return self._replace(values={**(self.values or {}), **{v: self.see(e) for v, e in values.items()}})

    def given(self, condition: Expr) -> Found:
        """Returns the context in which `condition` holds too."""
        return self if condition is TRUE else self._replace(guards=(*self.guards, self.see(condition)))

    def access(self, b: Buffer, indices: tuple[Expr, ...], write: bool, combiner: Combiner | None = None) -> Access:
        """Returns a record of an access that this statement makes."""
        seen = tuple(self.see(e) for e in indices) if self.values else indices
        return Access(b, seen, write, self.stmt, self.inner, self.guards, combiner, self.init)

    def writes(self) -> Iterator[Access]:
        """Yields the elements that the statement itself writes."""
        s = self.stmt
        if isinstance(s, Store):
            if s.buffer is not _NO_BUFFER:
                yield self.access(s.buffer, s.indices, True)
        elif isinstance(s, Reduce):
            for t in s.targets:
                yield self.access(t.buffer, t.indices, True, s.combiner)
        elif isinstance(s, Call):
            for p, a in zip(s.func.params, s.args, strict=True):
                if isinstance(a, Buffer) and p.role != "in":
                    yield self.all_of(a, True)

    def reads(self, names: set[Buffer]) -> Iterator[Access]:
        """The elements of some buffers that the statement reads, without the targets of its own reduction."""
        for e in exprs(self.stmt):
            if not names.isdisjoint(loaded(e)):
                for node in walk(e):
                    if isinstance(node, Load) and node.buffer in names:
                        yield self.access(node.buffer, node.indices, False)
        if isinstance(self.stmt, Call):
            for p, a in zip(self.stmt.func.params, self.stmt.args, strict=True):
                if isinstance(a, Buffer) and p.role == "in" and a in names:
                    yield self.all_of(a, False)

    def all_of(self, b: Buffer, write: bool) -> Access:
        """An access to any element of a buffer, because a callee may touch all of it."""
        loops = [For(Var(f"at{d}"), zero(), e, "serial", self.stmt) for d, e in enumerate(b.shape)]
        return Access(b, tuple(x.var for x in loops), write, self.stmt, (*self.inner, *loops), self.guards, None, self.init)
