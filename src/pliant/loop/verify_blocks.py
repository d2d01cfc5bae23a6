"""Dependence analysis of blocks: proves what the kinds of their iterators claim (`docs/design/0017-what-a-block-claims.md`).

    S   two instances that differ in an S iterator touch no element that either of them writes
    R   instances that differ in R iterators alone meet only in targets of reductions, by one combiner, at a place that no R iterator
        moves; nothing else reads these targets
    O   nothing: ordered instances may do what they like

An instance is one value of all iterators; running it twice is no conflict. Instances are compared within one lifetime of the buffer and
one instance of the enclosing block: loops outside of the allocation, or of that block, have the same value for both. Memory that a block
allocates itself is private to an instance.

A claim holds if the indices determine the S iterators: each is an index itself (nearly always), or follows from the indices
(`analysis/separate.py`). A claim that cannot be proved is rejected, whether it is false or only out of reach: the program is legal with
"O".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..dtype import bool_, i64
from ..support.errors import Error, InternalError
from ..support.record import dataclass
from ..sym.expr import DIM_MAX, TRUE, Const, Dim, Expr, Le, Not, Var, free_vars, product, rewrite, substitute, walk
from .buffer import Buffer, Load, loaded
from .stmt import (
    Alloc,
    Block,
    Call,
    Combiner,
    For,
    Func,
    If,
    Iter,
    Let,
    Reduce,
    Seq,
    Stmt,
    Store,
    View,
    While,
    children,
    exprs,
    walk_stmts,
    writes,
    zero,
)

if TYPE_CHECKING:
    from ..sym.facts import Facts


def check_claims(func: Func, *, certain: bool = False) -> None:
    """Raises an error for a block whose claims cannot be proved; if `certain`, only for claims that are plainly false.

    A schedule keeps the meaning of a program whose claims were proved, but the proofs may not succeed on its indices.
    """
    if any(type(s) is Block for s in walk_stmts(func.body)):
        _Claims(func, certain).visit(func.body, _Around())


def shared_memory(func: Func, loop: For, views: Iterable[View]) -> list[Buffer]:
    """The buffers that iterations of a loop may share, i.e. not proved to be accessed at disjoint elements; `views` are those in scope."""
    claims = _Claims(func)
    claims.views.update((v.buffer, v) for v in views)
    counter = Var(loop.var.name)
    body = Block("", (Iter(loop.var, "S", counter),), loop.body)  # treats each iteration as a block instance
    around = _Around((loop.with_(var=counter, body=body),))
    accesses = _Collector(claims, body)
    shared: list[Buffer] = []
    for root, places in accesses.by_memory().items():
        try:
            claims.memory_apart(body, root, places, _moving(around.loops), around, accesses)
        except Error:
            shared.append(root)
    return shared


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops and lets around a block, up to the enclosing block."""

    loops: tuple[For, ...] = ()
    lets: dict[Var, Expr] | None = None

    def see(self, e: Expr) -> Expr:
        """`e` with lets replaced by their values."""
        return substitute(e, self.lets) if self.lets else e


class Access(NamedTuple):
    """An element that a block touches, over its iterators and the loops inside of it."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    write: bool
    at: Stmt
    inner: tuple[For, ...]  # loops inside of the block
    guards: tuple[Expr, ...]  # conditions inside of the block
    combiner: Combiner | None = None  # of the reduction, if the element is its target
    init: bool = False


class _Claims:
    """The walk over a program's blocks."""

    def __init__(self, func: Func, certain: bool = False) -> None:
        self.func = func
        self.certain = certain
        self.home: dict[Buffer, int] = {}  # buffer -> the number of loops around its allocation, up to the enclosing block
        self.views: dict[Buffer, View] = {}

    def fail(self, s: Stmt, b: Block, what: str, facts: Sequence[str], help: str) -> Error:
        """The error for a statement of a block."""
        span = s.span or b.span
        if span is not None:
            return Error(what, where=span, facts=facts, help=help)
        return InternalError(f"{what}, in `{self.func.name}`", facts=facts)

    def memory(self, b: Buffer) -> Buffer:
        """The buffer that owns the memory of `b`."""
        while b in self.views:
            b = self.views[b].source
        return b

    # The walk.

    def visit(self, s: Stmt, around: _Around) -> _Around:
        """Checks the blocks in `s`, and returns what is around the statements after it."""
        match s:
            case Seq():
                inner = around
                for x in s.body:
                    inner = self.visit(x, inner)
                return around if inner.lets is around.lets else inner
            case For():
                self.visit(s.body, _Around((*around.loops, s), around.lets))
            case Block():
                self.block(s, around)
                home, self.home = self.home, {}  # for nested blocks, loops outside of this one have one value
                for x in children(s):
                    self.visit(x, _Around(lets=around.lets))
                self.home = home
            case Let():
                return replace(around, lets={**(around.lets or {}), s.var: around.see(s.value)})
            case Alloc():
                self.home[s.buffer] = len(around.loops)
            case View():
                self.views[s.buffer] = s
            case If():
                self.visit(s.then, around)
                if s.orelse is not None:
                    self.visit(s.orelse, around)
            case While():
                self.visit(s.body, around)
        return around

    def block(self, b: Block, around: _Around) -> None:
        """Checks the claims of one block."""
        kinds = {i.kind for i in b.iters}
        if kinds <= {"O"}:
            return
        collector = _Collector(self, b)
        places = collector.by_memory()
        if "S" in kinds:
            self.spatial(b, around, collector, places)
        if "R" in kinds:
            self.reducing(b, places)

    # S.

    def spatial(self, b: Block, around: _Around, found: _Collector, touched: dict[Buffer, list[Access]]) -> None:
        """Checks that instances that differ in S iterators share no element that one of them writes."""
        for root, places in touched.items():
            own = _moving(around.loops[self.home.get(root, 0) :])
            if own:
                self.memory_apart(b, root, places, own, around, found)

    def memory_apart(self, b: Block, root: Buffer, places: list[Access], own: tuple[For, ...], around: _Around, found: _Collector) -> None:
        """Checks the S claim for one piece of memory: tries the cheap tests, then the prover on each pair of a write and an access."""
        variables = {x.var for x in own}
        unknown = [i for i in b.iters if i.kind == "S" and not free_vars(around.see(i.value)).isdisjoint(variables)]
        if not unknown:
            return
        writes = [a for a in places if a.write]
        buffers = {a.buffer for a in places}
        plain = len(buffers) == 1 and found.one_by_one(next(iter(buffers)))
        if plain and (_told_at_once(unknown, places) or _told_by_sums(b, unknown, places, own, around)):
            return
        if self.certain and not any(i.var not in _vars(w) for w in writes for i in unknown):
            return
        for w in writes:
            for a in places:
                left = _Instances(self, b, around, own, found).left(w, a, unknown, flat=not plain)
                if left:
                    raise self.spatial_error(
                        b, w, a, next(i for i in unknown if i.var in left or not left.isdisjoint(free_vars(around.see(i.value))))
                    )

    def spatial_error(self, b: Block, w: Access, a: Access, i: Iter) -> Error:
        """The error for two accesses that may conflict."""
        name, place = i.var.name, _shown(w)
        ordered = f'write "O" for `{name}`: ordered instances run one after the other, and may read what earlier ones wrote'
        if a.write:
            what = f"instances of block `{b.name}` that differ in the spatial iterator `{name}` may write one element of `{w.buffer.name}`"
            reduction = w.combiner is not None or a.combiner is not None
            if _depends_on_data(w) or _depends_on_data(a):
                facts = [f"the place `{place if _depends_on_data(w) else _shown(a)}` depends on data"]
            elif i.var not in _vars(w) and w is a:
                facts = [f"the place `{place}` does not depend on `{name}`"]
                if reduction:
                    return self.fail(w.at, b, what, facts, f'write "R" for `{name}`, which is reduced over')
                ordered += f'; or "R", and combine: {place} += ...'
            else:
                facts = [f"it writes `{place}`" + (f" and `{_shown(a)}`" if _shown(a) != place else "")]
            return self.fail(w.at, b, what, facts, ordered)
        what = f"block `{b.name}` reads elements of `{a.buffer.name}` that instances of other `{name}` write, and `{name}` is spatial"
        return self.fail(a.at, b, what, [f"it writes `{place}` and reads `{_shown(a)}`"], ordered)

    # R.

    def reducing(self, b: Block, touched: dict[Buffer, list[Access]]) -> None:
        """Checks that instances that differ in R iterators alone share only targets of reductions."""
        for places in touched.values():
            combiners: dict[object, Access] = {}
            for a in places:
                if a.init:
                    continue
                if not a.write:
                    raise self.reads_target(b, a)
                if a.combiner is None:
                    raise self.stores_in_reduction(b, a)
                self.fixed_target(b, a)
                combiners.setdefault(_key(a.combiner), a)
                if len(combiners) > 1:
                    what = f"block `{b.name}` combines `{a.buffer.name}` in two ways, and its instances may run in any order"
                    facts = [f"`{_shown(x)}` by {_name(x.combiner)}" for x in combiners.values()]
                    raise self.fail(a.at, b, what, facts, 'write "O" instead of "R": ordered instances run one after the other')

    def fixed_target(self, b: Block, a: Access) -> None:
        """Raises an error if the target of a reduction depends on an R iterator."""
        moving = [i.var for i in b.iters if i.kind == "R" and i.var in _vars(a)]
        if moving:
            name = moving[0].name
            what = f"the place of a reduction in block `{b.name}` depends on the reduction iterator `{name}`"
            help_ = f'write "O" for `{name}` (in order), or "S" if every instance has a place of its own'
            raise self.fail(a.at, b, what, [f"it reduces into `{_shown(a)}`"], help_)

    def stores_in_reduction(self, b: Block, a: Access) -> Error:
        """The error for a plain store in a reduction block."""
        what = f"block `{b.name}` stores to `{a.buffer.name}` for every {_reduced(b)}, which is reduced over"
        facts = [f"it writes `{_shown(a)}`", "instances of a reduction run in any order, and join what they have by a combiner"]
        help_ = f'combine: {_shown(a)} += ..., or write "O" (in order) or "S" (each its own element) instead of "R"'
        return self.fail(a.at, b, what, facts, help_)

    def reads_target(self, b: Block, a: Access) -> Error:
        """The error for a read of a reduction's target."""
        what = f"block `{b.name}` reads `{a.buffer.name}`, which it reduces into"
        facts = [f"it reads `{_shown(a)}`", f"instances of other {_reduced(b)} change it, in any order"]
        return self.fail(a.at, b, what, facts, 'write "O" instead of "R", or combine all values at once: combine(lambda ..., ...)')


def _strides_nest(b: Buffer) -> bool:
    """True if each stride is at least the span of the dims after it, so that different indices are different elements."""
    from ..sym.poly import add, multiply, poly_of

    assert b.strides is not None
    spans = [multiply(poly_of(n), poly_of(t)) for n, t in zip(b.shape, b.strides, strict=True)]
    gaps = [add(poly_of(t), span, -1) for t, span in zip(b.strides, spans[1:], strict=False)]
    last = poly_of(b.strides[-1]) if b.strides else {}
    return all(gap.keys() <= {()} and gap.get((), 0) >= 0 for gap in gaps) and last.keys() == {()} and last[()] >= 1


def _reduced(b: Block) -> str:
    """The names of the R iterators, for messages."""
    return ", ".join(f"`{i.var.name}`" for i in b.iters if i.kind == "R")


def _told_at_once(unknown: list[Iter], places: list[Access]) -> bool:
    """True if every S iterator is an index in the same dimension of all accesses: the common case."""
    first = places[0].indices
    if all(a.indices == first for a in places[1:]):
        return all(i.var in first for i in unknown)
    return all(any(all(a.indices[d] is i.var for a in places) for d in range(len(first))) for i in unknown)


def _told_by_sums(b: Block, unknown: list[Iter], places: list[Access], own: tuple[For, ...], around: _Around) -> bool:
    """True if sums such as `v0 * 16 + v1 * 8 + v2`, the same in all accesses, determine the S iterators.

    This decides the indices of tiles without the prover.
    """
    first = places[0].indices
    if any(a.indices != first for a in places[1:]) or any(loaded(e) for e in first):
        return False
    # Variable that may differ between instances -> the largest difference of its values.
    widths: dict[Var, int | None] = {x.var: _width(x) for a in places for x in a.inner}
    loops = {x.var: _width(x) for x in own}
    for i in b.iters:
        value = around.see(i.value)
        if not free_vars(value).isdisjoint(loops):
            widths[i.var] = loops.get(value) if isinstance(value, Var) else None
    left = {i.var for i in unknown}
    progress = True
    while left and progress:
        determined = [v for e in first for v in _leading(e, widths)]
        progress = bool(determined)
        for v in determined:
            widths.pop(v, None)
            left.discard(v)
    return not left


def _width(loop: For) -> int | None:
    """The largest difference between two values of a loop's variable, if constant."""
    extent = loop.extent
    return max(0, int(extent.value) - 1) if isinstance(extent, Const) else None


def _leading(e: Expr, widths: dict[Var, int | None]) -> list[Var]:
    """The variables that a sum determines: those whose coefficient exceeds all that the smaller terms can add up to."""
    from ..sym.poly import poly_of

    terms: list[tuple[int, Var]] = []
    for m, c in poly_of(e).items():
        if all(free_vars(x).isdisjoint(widths) for x in m):
            continue  # the same in both instances
        if len(m) != 1 or not isinstance(m[0], Var) or abs(c) >= DIM_MAX:
            return []
        terms.append((abs(int(c)), m[0]))
    terms.sort(key=lambda t: t[0], reverse=True)
    determined: list[Var] = []
    for k, (c, v) in enumerate(terms):
        below = [(d, widths[u]) for d, u in terms[k + 1 :]]
        if any(w is None for _, w in below) or sum(d * w for d, w in below if w is not None) >= c:
            break
        determined.append(v)
    return determined


def _moving(loops: tuple[For, ...]) -> tuple[For, ...]:
    """The loops that may run more than once."""
    return tuple(x for x in loops if not (isinstance(x.extent, Const) and x.extent.value <= 1))


def _vars(a: Access) -> set[Var]:
    """The variables in the indices of an access."""
    return {v for e in a.indices for v in free_vars(e)}


def _depends_on_data(a: Access) -> bool:
    """True if an index is loaded from memory."""
    return any(loaded(e) for e in a.indices)


def _shown(a: Access) -> str:
    """An access as text."""
    return f"{a.buffer.name}[{', '.join(map(str, a.indices)) or '()'}]"


def _name(c: Combiner | None) -> str:
    """A combiner's name, for messages."""
    return "a store" if c is None else f"`{c.name}`" if c.name != "lambda" else "a lambda"


def _key(c: Combiner | None) -> object:
    """A key that is equal for combiners that may be mixed: fma adds."""
    return c.name if c is not None and not c.result and c.name != "fma" else "add" if c is not None and c.name == "fma" else c


class _Collector:
    """The accesses of a block to memory that it writes and that outlives an instance."""

    def __init__(self, claims: _Claims, b: Block) -> None:
        self.block = b
        self.views: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {v: (s.source, s.start) for v, s in claims.views.items()}
        self.inside: set[Buffer] = set()  # views made inside of the block
        self.own: set[Buffer] = set()  # buffers allocated inside of the block: private to an instance
        self.found: list[_Found] = [_Found(Store(_NO_BUFFER, (), b.predicate, b.span), (), (), {}, False)]
        if b.init is not None:
            self.walk(b.init, _Found(b.init, init=True))
        self.walk(b.body, _Found(b.body))

    def walk(self, s: Stmt, at: _Found) -> _Found:
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
        """The buffer that owns the memory of `b`."""
        while b in self.views:
            b = self.views[b][0]
        return b

    def one_by_one(self, b: Buffer) -> bool:
        """True if different indices of a buffer are different elements, the same ones for all instances."""
        if b in self.inside:
            return False
        return b.strides is None or (b.scope == "global" and b not in self.views) or _strides_nest(b)

    def by_memory(self) -> dict[Buffer, list[Access]]:
        """The accesses to each buffer that is written, each once, without memory that is private to an instance."""
        written: dict[Buffer, dict[object, Access]] = {}
        for f in self.found:
            for a in f.writes():
                root = self.memory(a.buffer)
                if root not in self.own:
                    written.setdefault(root, {}).setdefault((a.buffer, a.indices, True, _key(a.combiner), a.init, a.guards), a)
        if not written:
            return {}
        names = {*written, *(v for v in self.views if self.memory(v) in written)}
        for f in self.found:
            for a in f.reads(names):
                written[self.memory(a.buffer)].setdefault((a.buffer, a.indices, False, None, a.init, a.guards), a)
        return {root: list(places.values()) for root, places in written.items()}


_NO_BUFFER = Buffer("", bool_, ())  # the target of a pseudo store that evaluates a block's predicate


class _Found(NamedTuple):
    """A statement in a block, and its context there."""

    stmt: Stmt
    inner: tuple[For, ...] = ()
    guards: tuple[Expr, ...] = ()
    values: dict[Var, Expr] | None = None  # the values of lets, and of iterators of nested blocks
    init: bool = False

    def see(self, e: Expr) -> Expr:
        """`e` in terms of the block's iterators and the loops inside of it."""
        return substitute(e, self.values) if self.values else e

    def bind(self, values: dict[Var, Expr]) -> _Found:
        """The context with the values of lets or iterators added."""
        return self._replace(values={**(self.values or {}), **{v: self.see(e) for v, e in values.items()}})

    def given(self, condition: Expr) -> _Found:
        """The context where a condition holds."""
        return self if condition is TRUE else self._replace(guards=(*self.guards, self.see(condition)))

    def access(self, b: Buffer, indices: tuple[Expr, ...], write: bool, combiner: Combiner | None = None) -> Access:
        """An access of this statement."""
        seen = tuple(self.see(e) for e in indices) if self.values else indices
        return Access(b, seen, write, self.stmt, self.inner, self.guards, combiner, self.init)

    def writes(self) -> Iterator[Access]:
        """The elements that the statement writes."""
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


class _Instances:
    """Two instances of a block within one lifetime of a buffer: one over the block's variables, the other over their twins."""

    def __init__(self, claims: _Claims, b: Block, around: _Around, own: tuple[For, ...], found: _Collector) -> None:
        self.claims = claims
        self.block = b
        self.found = found
        self.around = around
        self.own = own
        moved = {x.var for x in own}
        self.mixed: dict[Var, Expr] = {}  # iterators that depend on loops outside of the lifetime too: replaced by their values
        self.twins: dict[Var, Expr] = {x.var: Var(x.var.name) for x in own}
        self.iters: list[tuple[Var, Expr]] = []
        for i in b.iters:
            value = around.see(i.value)
            used = free_vars(value)
            if used.isdisjoint(moved):
                self.mixed[i.var] = value
            elif used & {x.var for x in around.loops} <= moved:
                self.iters.append((i.var, value))
                self.twins[i.var] = Var(i.var.name)
            else:
                self.mixed[i.var] = value
        self.names: dict[Load, Var] = {}
        self.bits: dict[Var, int] = {}  # variable for a bit inside of an element -> its number of bits, where element sizes differ
        self.changing: set[Buffer] | None = None

    def see(self, e: Expr) -> Expr:
        """`e` with mixed iterators replaced by their values, and loads by variables."""
        return rewrite(substitute(e, self.mixed), self._name)

    def _name(self, e: Expr) -> Expr | None:
        """The variable that stands for a load; it has a twin if the two instances may load different values."""
        if not isinstance(e, Load):
            return None
        if e not in self.names:
            self.names[e] = var = Var(f"{e.buffer.name}[{len(self.names)}]", e.dtype)
            if not self._stable(e):
                self.twins[var] = Var(var.name, var.dtype)
        return self.names[e]

    def _stable(self, load: Load) -> bool:
        """True if both instances load the same value."""
        if self.changing is None:
            self.changing = {self.found.memory(b) for s in walk_stmts(self.own[0]) for b in writes(s)}
        return self.found.memory(load.buffer) not in self.changing and all(
            free_vars(i).isdisjoint(self.twins)
            and not any(n in self.names and self.names[n] in self.twins for n in walk(i) if isinstance(n, Load))
            for i in load.indices
        )

    def left(self, w: Access, a: Access, unknown: list[Iter], *, flat: bool) -> set[Var]:
        """The variables that may differ between two instances, where one of them writes `w` and the other touches `a`."""
        from .analysis.separate import apart  # imported here: most blocks do not need the prover

        for x in (*w.inner, *a.inner):
            self.twins.setdefault(x.var, Var(x.var.name))
        first, second = self.places(w, a, flat)
        needed: set[Var] = set()
        for i in unknown:
            needed |= free_vars(self.mixed[i.var]) & {x.var for x in self.own} if i.var in self.mixed else {i.var}
        facts = self.facts(w, a)
        twin = [substitute(e, self.twins) for e in second]
        return apart(first, twin, needed, self.twins, facts)

    def places(self, w: Access, a: Access, flat: bool) -> tuple[list[Expr], list[Expr]]:
        """The two accesses as lists of expressions to compare: the indices, or flat positions."""
        if not flat:
            return [self.see(e) for e in w.indices], [self.see(e) for e in a.indices]
        bits = w.buffer.dtype is not a.buffer.dtype or self.found.memory(w.buffer).dtype is not w.buffer.dtype
        return [self.see(self.position(w, bits))], [self.see(self.position(a, bits))]

    def position(self, a: Access, bits: bool) -> Expr:
        """The position in memory, in elements or bits from the start of the memory's owner."""
        unit = a.buffer.dtype.bits if bits else 1
        total = a.buffer.flat_index(a.indices) * unit
        if bits and unit > 1:
            inside = Var("bit")
            self.twins[inside] = Var("bit")
            self.bits[inside] = unit
            total = total + inside
        b = a.buffer
        while b in self.found.views:
            b, start = self.found.views[b]
            total = total + b.flat_index(start) * (b.dtype.bits if bits else 1)
        return total

    def facts(self, w: Access, a: Access) -> Facts:
        """The facts that hold for the two instances."""
        from ..sym.bounds import int_range
        from ..sym.facts import EMPTY
        from ..sym.region import lower, upper

        facts = EMPTY
        for v in self.claims.func.symbols:
            if not isinstance(v, Dim):
                facts = facts.with_range(v, 0, DIM_MAX)
        for e in w.buffer.shape:  # a buffer that is accessed is not empty
            facts = facts.with_condition(Le(Const(1, i64), self.see(e))) if e.args or isinstance(e, Var) else facts
        b, own = self.block, {x.var for x in self.own}
        for x in self.around.loops:
            facts = self.ranged(facts, x, twin=x.var in own)
        for v, unit in self.bits.items():
            facts = self.both(facts, v, zero(), Const(unit - 1, i64))
        for v, value in self.iters:
            named = self.see(value)
            low = lower(named, facts, own)
            least = int_range(named, facts)[0]
            facts = self.both(facts, v, low, upper(named, facts, own))
            if not isinstance(low, Const):  # a bound with selects may be weaker than the constant
                facts = facts.with_condition(least <= v).with_condition(least <= self.twins[v])
        for x in dict.fromkeys((*w.inner, *a.inner)):
            facts = self.ranged(facts, x, twin=True)
        predicate = self.see(b.predicate)
        for condition in (predicate, *map(self.see, w.guards)):
            facts = facts.with_condition(condition) if condition is not TRUE else facts
        for condition in (predicate, *map(self.see, a.guards)):
            facts = facts.with_condition(substitute(condition, self.twins)) if condition is not TRUE else facts
        for buffer in {w.buffer, a.buffer}:
            facts = facts.with_no_wrap(self.see(product(buffer.shape))) if self.bits or len({w.buffer, a.buffer}) > 1 else facts
        return facts

    def ranged(self, facts: Facts, x: For, *, twin: bool) -> Facts:
        """The facts and the range of a loop's variable (and of its twin)."""
        low, high = self.see(self.around.see(x.start)), self.see(self.around.see(x.stop)) - 1
        known = self.both(facts, x.var, low, high) if twin else facts.with_range(x.var, low, high)
        if isinstance(low, Const):
            return known
        from ..sym.prove import prove

        if not prove(zero() <= low, facts):  # the start of a partitioned loop is a select
            return known
        known = known.with_condition(zero() <= x.var)
        return known.with_condition(zero() <= self.twins[x.var]) if twin else known

    def both(self, facts: Facts, v: Var, low: Expr, high: Expr) -> Facts:
        """The facts and the range of a variable and of its twin."""
        facts = facts.with_range(v, low, high)
        return facts.with_range(self.twins[v], substitute(low, self.twins), substitute(high, self.twins))
