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

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..support.errors import Error, InternalError
from ..sym.expr import DIM_MAX, Const, Expr, Var, free_vars
from .analysis.block_accesses import Access, Around, Collector, combiner_key
from .buffer import Buffer, loaded
from .stmt import (
    Alloc,
    Block,
    Combiner,
    For,
    Func,
    If,
    Iter,
    Let,
    Seq,
    Stmt,
    View,
    While,
    children,
    walk_stmts,
)

if TYPE_CHECKING:
    pass


def check_claims(func: Func, *, certain: bool = False) -> None:
    """Raises an error for a block whose claims cannot be proved; if `certain`, only for claims that are plainly false.

    A schedule keeps the meaning of a program whose claims were proved, but the proofs may not succeed on its indices.
    """
    if any(type(s) is Block for s in walk_stmts(func.body)):
        _Claims(func, certain).visit(func.body, Around())


def shared_memory(func: Func, loop: For, views: Iterable[View]) -> list[Buffer]:
    """The buffers that iterations of a loop may share, i.e. not proved to be accessed at disjoint elements; `views` are those in scope."""
    claims = _Claims(func)
    claims.views.update((v.buffer, v) for v in views)
    counter = Var(loop.var.name)
    body = Block("", (Iter(loop.var, "S", counter),), loop.body)  # treats each iteration as a block instance
    around = Around((loop.with_(var=counter, body=body),))
    accesses = Collector(body, claims.views)
    shared: list[Buffer] = []
    for root, places in accesses.by_memory().items():
        try:
            claims.memory_apart(body, root, places, _moving(around.loops), around, accesses)
        except Error:
            shared.append(root)
    return shared


class _Claims:
    """Checks for each block of a program that its iterator kinds (S, R, O) are true of its accesses."""

    def __init__(self, func: Func, certain: bool = False) -> None:
        self.func = func
        self.certain = certain
        self.home: dict[Buffer, int] = {}  # buffer -> the number of loops around its allocation, up to the enclosing block
        self.views: dict[Buffer, View] = {}

    def fail(self, s: Stmt, b: Block, what: str, facts: Sequence[str], help: str) -> Error:
        """Returns the error about a statement of a block; an InternalError if it has no place in the user's source."""
        span = s.span or b.span
        if span is not None:
            return Error(what, where=span, facts=facts, help=help)
        return InternalError(f"{what}, in `{self.func.name}`", facts=facts)

    # The walk.

    def visit(self, s: Stmt, around: Around) -> Around:
        """Raises an error for a false claim of a block in `s`; returns the loops and lets around the statements after it."""
        match s:
            case Seq():
                inner = around
                for x in s.body:
                    inner = self.visit(x, inner)
                return around if inner.lets is around.lets else inner
            case For():
                self.visit(s.body, Around((*around.loops, s), around.lets))
            case Block():
                self.block(s, around)
                home, self.home = self.home, {}  # for nested blocks, loops outside of this one have one value
                for x in children(s):
                    self.visit(x, Around(lets=around.lets))
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

    def block(self, b: Block, around: Around) -> None:
        """Raises an error unless the kinds of a block's iterators are true of its accesses; nothing is claimed by ordered ones."""
        kinds = {i.kind for i in b.iters}
        if kinds <= {"O"}:
            return
        collector = Collector(b, self.views)
        places = collector.by_memory()
        if "S" in kinds:
            self.spatial(b, around, collector, places)
        if "R" in kinds:
            self.reducing(b, places)

    # S.

    def spatial(self, b: Block, around: Around, found: Collector, touched: dict[Buffer, list[Access]]) -> None:
        """Raises an error unless instances that differ in S iterators provably share no element that one of them writes."""
        for root, places in touched.items():
            own = _moving(around.loops[self.home.get(root, 0) :])
            if own:
                self.memory_apart(b, root, places, own, around, found)

    def memory_apart(self, b: Block, root: Buffer, places: list[Access], own: tuple[For, ...], around: Around, found: Collector) -> None:
        """Raises an error unless the S claim holds for one piece of memory.

        It tries the cheap tests, then the prover on each pair of a write and an access.
        """
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
        from .analysis.instances import Instances  # imported here: most blocks do not need the prover

        for w in writes:
            for a in places:
                left = Instances(self.func, b, around, own, found).left(w, a, unknown, flat=not plain)
                if left:
                    raise self.spatial_error(
                        b, w, a, next(i for i in unknown if i.var in left or not left.isdisjoint(free_vars(around.see(i.value))))
                    )

    def spatial_error(self, b: Block, w: Access, a: Access, i: Iter) -> Error:
        """Returns the error for two accesses of instances that may conflict, though iterator `i` is S (spatial)."""
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
        """Raises an error unless instances that differ in R iterators alone share only targets of reductions, each by one combiner."""
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
                combiners.setdefault(combiner_key(a.combiner), a)
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
        """Returns the error for a plain store in a reduction block."""
        what = f"block `{b.name}` stores to `{a.buffer.name}` for every {_reduced(b)}, which is reduced over"
        facts = [f"it writes `{_shown(a)}`", "instances of a reduction run in any order, and join what they have by a combiner"]
        help_ = f'combine: {_shown(a)} += ..., or write "O" (in order) or "S" (each its own element) instead of "R"'
        return self.fail(a.at, b, what, facts, help_)

    def reads_target(self, b: Block, a: Access) -> Error:
        """Returns the error for a reduction block that reads the buffer it reduces into."""
        what = f"block `{b.name}` reads `{a.buffer.name}`, which it reduces into"
        facts = [f"it reads `{_shown(a)}`", f"instances of other {_reduced(b)} change it, in any order"]
        return self.fail(a.at, b, what, facts, 'write "O" instead of "R", or combine all values at once: combine(lambda ..., ...)')


def _reduced(b: Block) -> str:
    """Returns the names of a block's R iterators as text for messages."""
    return ", ".join(f"`{i.var.name}`" for i in b.iters if i.kind == "R")


def _told_at_once(unknown: list[Iter], places: list[Access]) -> bool:
    """True if every S iterator is itself an index, in the same dimension of all accesses: the common case."""
    first = places[0].indices
    if all(a.indices == first for a in places[1:]):
        return all(i.var in first for i in unknown)
    return all(any(all(a.indices[d] is i.var for a in places) for d in range(len(first))) for i in unknown)


def _told_by_sums(b: Block, unknown: list[Iter], places: list[Access], own: tuple[For, ...], around: Around) -> bool:
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
    """The largest difference between two values of a loop's variable; None if the extent is not constant."""
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
    """Returns the variables that occur in the indices of an access."""
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
