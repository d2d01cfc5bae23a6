"""Is every access inside of its buffer? `accesses(func)` says of each one: proven, guarded, or unproved.

    for i in range(n):
        y[i] = x[i]                                     # proven: i < n by the loop
        if i + 1 < n: z[i] = x[i + 1]                   # guarded: a condition around it, with the loops, proves it
        w[i] = x[t[i]]                                  # unproved: t may hold anything

A condition guards if it is an `if`, an arm of a select, the left side of `and`/`or`, a predicate of a block, a `while`, or a
`check` that comes before. Views and arguments of calls are looked at as well: a view has to lie in the memory it views, an argument
has to have the extents its parameter says, and the callee's contract has to hold; the callee is then looked at by itself.

What a load gives is a number without a name: it gets one when it is first read, and another one after a write to its buffer.
So a condition on a loaded index serves until somebody may have changed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from ...dtype import i64
from ...support.record import dataclass
from ...support.source import Span
from ...sym import expr as E
from ...sym.expr import DIM_MAX, FALSE, TRUE, Const, Dim, Expr, Var, free_vars, rewrite, substitute, walk
from ...sym.facts import EMPTY, Facts
from ...sym.prove import prove
from ...sym.simplify import simplify
from ..buffer import Buffer, Load
from ..passes.lower_blocks import lower_blocks
from ..passes.written import memory_size, reach
from ..stmt import Alloc, Call, Check, For, Func, If, Let, Param, Reduce, Seq, Stmt, Store, View, While, exprs, walk_stmts, zero

Status = Literal["proven", "guarded", "unproved"]
SPLITS = 9  # nested case distinctions; each decides a comparison of dims, so few are possible


@dataclass(frozen=True, slots=True)
class Access:
    """An access, and what is known of it: `condition` is what could not be shown."""

    func: str
    buffer: str
    index: str
    kind: Literal["load", "store", "reduce", "view", "call"]
    status: Status
    condition: str = ""
    span: Span | None = None

    def __str__(self) -> str:
        where = f"{self.span.file}:{self.span.line}: " if self.span is not None else ""
        why = f": cannot show {self.condition}" if self.condition else ""
        return f"{where}{self.kind} of `{self.buffer}[{self.index}]` in `{self.func}` is {self.status}{why}"


def accesses(func: Func, given: Iterable[Expr] = ()) -> list[Access]:
    """Every access of a loop program and of those that it calls, in order, with its status.

    `given` are conditions on its symbols that whoever calls it makes sure of.
    """
    return _accesses(func, given, loops_first=True)


def unproved_accesses(func: Func, given: Iterable[Expr] = ()) -> list[Access]:
    """The accesses of a loop program that nothing shows to be in range."""
    return [a for a in _accesses(func, given, loops_first=False) if a.status == "unproved"]


def _accesses(func: Func, given: Iterable[Expr], *, loops_first: bool) -> list[Access]:
    """What the loops alone cannot show costs the most to try: unless `loops_first`, proven and guarded are not told apart."""
    done: dict[Func, None] = {}
    left, found = [func], []
    while left:
        f = left.pop(0)
        if f not in done:
            done[f] = None
            proof = _Proof(lower_blocks(f), given if f is func else (), loops_first)
            found += proof.run()
            left += proof.callees
    return found


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop around a place."""

    var: Var
    start: Expr
    stop: Expr


@dataclass(frozen=True, slots=True)
class _Fits:
    """A size of memory that there is: it is no larger than addresses are."""

    size: Expr


_Item = _Loop | _Fits | Expr


@dataclass(frozen=True, slots=True)
class _Known:
    """What holds at a place, in order: the loops around it, and the conditions."""

    items: tuple[_Item, ...] = ()

    def also(self, item: _Item) -> _Known:
        return self if item is TRUE else _Known((*self.items, item))

    def shows(self, claim: Expr, *, conditions: bool, cases: int = SPLITS) -> bool:
        """Whether the claim follows, with the conditions or from the loops alone; by cases, where extents and indices are selects."""
        items = [x for x in self.items if conditions or isinstance(x, _Loop | _Fits)]
        return self._follows(claim, items, EMPTY, cases)

    def _follows(self, claim: Expr, items: list[_Item], case: Facts, cases: int) -> bool:
        facts = case
        for x in items:
            if isinstance(x, _Loop):
                if simplify(E.Lt(x.start, x.stop), facts) is FALSE:
                    return True  # nothing runs here in this case
                facts = facts.with_loop(x.var, simplify(x.stop - x.start, facts), x.start)
            elif isinstance(x, _Fits):
                facts = facts.with_no_wrap(x.size)
            else:
                condition = simplify(x, facts)
                if condition is FALSE:
                    return True  # nothing runs here in this case
                facts = facts.with_condition(condition if isinstance(x, E.Or) else x)  # of an alternative, what is left of it
        if prove(claim, facts) or prove(claim, facts.with_definitions()):
            return True
        if not cases:
            return False
        for c in dict.fromkeys(_choices(claim, items)):
            if not isinstance(simplify(c, case), Const):
                return all(self._follows(claim, items, case.with_condition(way), cases - 1) for way in (c, E.Not(c)))
        return False


def _choices(claim: Expr, items: list[_Item]) -> Iterator[Expr]:
    """Conditions on dims on which selects and alternatives depend, in a claim and in what is known: a case of them holds everywhere."""
    inside = [e for x in reversed(items) for e in ((x.stop, x.start) if isinstance(x, _Loop) else () if isinstance(x, _Fits) else (x,))]
    for e in (claim, *inside):
        for node in walk(e):
            if isinstance(node, E.Select | E.Or) and all(isinstance(v, Dim) for v in free_vars(node.args[0])):
                yield from _atoms(node.args[0])


def _atoms(condition: Expr) -> Iterator[Expr]:
    """The comparisons that a condition is made of: each of them known, it is known too, and so are others made of them."""
    if isinstance(condition, E.And | E.Or | E.Not):
        for a in condition.args:
            yield from _atoms(a)
    else:
        yield condition


class _Proof:
    def __init__(self, func: Func, given: Iterable[Expr], loops_first: bool) -> None:
        self.func = func
        self.loops_first = loops_first
        self.span = func.span
        self.known = _Known(tuple(given))
        for v in func.symbols:  # every dim is at least 0, also one that is a plain variable
            if not isinstance(v, Dim):
                self.known = self.known.also(_Loop(v, zero(), Const(DIM_MAX + 1, i64)))
        self.values: dict[Var, Expr] = {}  # of lets, over dims, loop variables and names of loads
        self.names: dict[Load, Var] = {}  # what a place in memory holds now
        self.count = 0
        self.root: dict[Buffer, Buffer] = {}
        self.found: list[Access] = []
        self.callees: dict[Func, None] = {}
        # Shapes of a host program are those of a graph's values, which are shapes by deduction and the checks it asks for.
        views = [s.buffer for s in walk_stmts(func.body) if isinstance(s, View)] if func.attrs.host else []
        self.extents = [E.Le(zero(), e) for e in dict.fromkeys(e for b in views for e in b.shape) if e.args]

    def run(self) -> list[Access]:
        self.stmt(self.func.body)
        return self.found

    # Values.

    def see(self, e: Expr) -> Expr:
        """`e` with lets and loads replaced by what they stand for here."""

        def leaf(x: Expr) -> Expr | None:
            if isinstance(x, Var):
                return self.values.get(x, x)
            if isinstance(x, Load):
                place = Load(x.buffer, tuple(self.see(i) for i in x.indices))
                if place not in self.names:
                    self.count += 1  # a name of its own: terms are sorted by names
                    self.names[place] = Var(f"{x.buffer.name}[…{self.count}]", x.dtype)
                return self.names[place]
            return None

        return rewrite(e, leaf)

    def memory(self, b: Buffer) -> Buffer:
        return self.root.get(b, b)

    def changed(self, buffers: Iterable[Buffer]) -> None:
        """Forget what these buffers hold."""
        roots = {self.memory(b) for b in buffers}
        self.names = {load: v for load, v in self.names.items() if self.memory(load.buffer) not in roots}

    @contextmanager
    def under(self, *conditions: Expr) -> Iterator[None]:
        """Where the conditions hold."""
        kept = self.known
        for c in conditions:
            self.known = self.known.also(self.see(c))
        yield
        self.known = kept

    # Statements.

    def stmt(self, s: Stmt) -> None:
        around = self.span
        self.span = s.span or around
        match s:
            case Seq():
                for inner in s.body:
                    self.stmt(inner)
            case For():
                self.loop(s)
            case While():
                self.changed(_written(s.body))
                self.loads(s.cond)
                with self.under(s.cond):
                    self.stmt(s.body)
                self.known = self.known.also(self.see(E.Not(s.cond)))
            case If():
                self.loads(s.cond)
                for condition, body in ((s.cond, s.then), (E.Not(s.cond), s.orelse)):
                    if body is not None:
                        with self.under(condition):
                            self.stmt(body)
            case Let():
                self.loads(s.value)
                self.values[s.var] = self.see(s.value)
            case Check():
                self.loads(s.cond)
                self.known = self.known.also(self.see(s.cond))
            case _:
                self.access(s)
        self.span = around

    def loop(self, s: For) -> None:
        self.loads(s.start)
        self.loads(s.stop)
        start, stop = self.see(s.start), self.see(s.stop)
        if isinstance(start, Const) and isinstance(stop, Const) and stop.value <= start.value:
            return  # it never runs
        self.changed(_written(s.body))
        kept = self.known
        self.known = kept.also(_Loop(s.var, start, stop))
        self.stmt(s.body)
        self.known = kept

    def access(self, s: Stmt) -> None:
        for e in exprs(s):
            self.loads(e)
        match s:
            case Store():
                self.element("store", s.buffer, s.indices)
                self.changed([s.buffer])
            case Reduce():
                for t in s.targets:
                    self.element("reduce", t.buffer, t.indices)
                self.changed([t.buffer for t in s.targets])
            case Alloc():
                self.changed([s.buffer])
            case View():
                self.root[s.buffer] = self.memory(s.source)
                self.view(s)
            case Call():
                self.call(s)
                self.changed([a for p, a in _buffers(s) if p.role != "in"])

    def loads(self, e: Expr) -> None:
        """The loads in `e`, each under the conditions on which it is read."""
        if isinstance(e, E.Select):
            c, a, b = e.args
            self.loads(c)
            with self.under(c):
                self.loads(a)
            with self.under(E.Not(c)):
                self.loads(b)
            return
        if isinstance(e, E.And | E.Or):
            self.loads(e.args[0])
            with self.under(e.args[0] if isinstance(e, E.And) else E.Not(e.args[0])):
                self.loads(e.args[1])
            return
        for a in e.args:
            if a.args or isinstance(a, Load):
                self.loads(a)
        if isinstance(e, Load):
            self.element("load", e.buffer, e.indices)

    # Conditions.

    def element(self, kind: Literal["load", "store", "reduce"], b: Buffer, indices: tuple[Expr, ...]) -> None:
        wanted = [c for i, extent in zip(indices, b.shape, strict=True) for c in (E.Le(zero(), i), E.Lt(i, extent))]
        self.show(kind, b.name, ", ".join(map(str, indices)), wanted)

    def view(self, s: View) -> None:
        """The view is empty or lies inside of what it views, taken as a whole from its start."""
        source, view = s.source, s.buffer
        if self.func.attrs.host and source in self.func.buffers:
            return  # a bare pointer: its size is what the function that checks the arguments has found
        low, high = reach(view)
        start = source.flat_index(s.start)
        first, last = start, start
        if view.dtype is source.dtype:
            first, last = start + low, start + high
        elif view.dtype.bits >= 8:
            size = view.dtype.bits // 8
            first, last = start + low * size, start + (high + 1) * size - 1
        else:
            first, last = start + low * view.dtype.bits // 8, start + high * view.dtype.bits // 8
        some = [E.Lt(zero(), e) for e in view.shape]
        with self.under(*some, *self.extents):
            self.known = self.known.also(_Fits(self.see(memory_size(source))))
            wanted: list[Expr] = [E.Le(zero(), first), E.Lt(last, memory_size(source))]
            self.show("view", source.name, ", ".join(map(str, s.start)), wanted)

    def call(self, s: Call) -> None:
        """Shapes and strides are what the parameters say, the callee's dims are in their contract."""
        callee = s.func
        self.callees.setdefault(callee)
        binding: dict[Var, Expr] = dict(zip(callee.symbols, s.dims, strict=True))
        binding |= {p.value: a for p, a in zip(callee.params, s.args, strict=True) if isinstance(p.value, Var) and isinstance(a, Expr)}
        for p, a in _buffers(s):
            assert isinstance(p.value, Buffer)
            pairs = [*zip(a.shape, p.value.shape, strict=True)]
            if a.strides is not None or p.value.strides is not None:
                pairs += zip(a.element_strides(), p.value.element_strides(), strict=True)
            wanted = [E.Eq(given, substitute(want, binding)) for given, want in pairs]
            self.show("call", a.name, f"{callee.name}: {p.value.name}", [w for w in wanted if w.args[0] is not w.args[1]])
        for symbol, value in zip(callee.symbols, s.dims, strict=True):
            self.show("call", symbol.name, callee.name, _contract(symbol, value))

    def show(self, kind: Literal["load", "store", "reduce", "view", "call"], name: str, index: str, wanted: Sequence[Expr]) -> None:
        """Notes whether all of the conditions hold here."""
        status: Status = "proven"
        missing = ""
        for condition in wanted:
            seen = self.see(condition)
            if self.known.shows(seen, conditions=not self.loops_first):
                continue
            status = "guarded"
            if not self.known.shows(seen, conditions=self.loops_first):
                status, missing = "unproved", str(condition)
                break
        self.found.append(Access(self.func.name, name, index, kind, status, missing, self.span))


def _contract(symbol: Var, value: Expr) -> Sequence[Expr]:
    """What a callee may assume of a dim."""
    low, high, step = (symbol.min, symbol.max, symbol.multiple_of) if isinstance(symbol, Dim) else (0, DIM_MAX, 1)
    inside = [E.Le(Const(low, i64), value), E.Le(value, Const(high, i64))]
    return inside if step == 1 else [*inside, E.Eq(E.FloorMod(value, Const(step, i64)), zero())]


def _written(s: Stmt) -> list[Buffer]:
    """The buffers that a statement writes, those that it allocates included, and what their views are of."""
    found: list[Buffer] = []
    for x in walk_stmts(s):
        match x:
            case Store():
                found.append(x.buffer)
            case Reduce():
                found += [t.buffer for t in x.targets]
            case Alloc():
                found.append(x.buffer)
            case View():
                found += [x.buffer, x.source]  # by whatever name it is written
            case Call():
                found += [a for p, a in _buffers(x) if p.role != "in"]
    return found


def _buffers(s: Call) -> list[tuple[Param, Buffer]]:
    return [(p, a) for p, a in zip(s.func.params, s.args, strict=True) if isinstance(a, Buffer)]
