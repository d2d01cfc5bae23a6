"""Bounds checking at compile time: `accesses(func)` classifies every memory access as proven, guarded or unproved.

    for i in range(n):
        y[i] = x[i]                                     # proven: i < n by the loop
        if i + 1 < n: z[i] = x[i + 1]                   # guarded: a condition around it, with the loops, proves it
        w[i] = x[t[i]]                                  # unproved: t may hold anything

A guard is an `if`, an arm of a select, the left side of `and`/`or`, the predicate of a block, a `while`, or an earlier `check`.
Views and call arguments are checked too: a view must lie inside the memory that it views, an argument must have the extents that
its parameter declares, and the callee's contract must hold. The callee is then analyzed on its own.

Each loaded value gets a symbolic name at its first read, and a new name after a write to its buffer. So a condition on a loaded
index is usable until a write may have changed that index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from ...dtype import i64
from ...support.record import dataclass
from ...support.source import Span
from ...sym import expr as E
from ...sym.expr import DIM_MAX, FALSE, TRUE, Const, Dim, Expr, Var, free_vars, substitute
from ...sym.facts import EMPTY, Facts
from ...sym.prove import prove
from ...sym.simplify import simplify
from ...sym.walk import rewrite, walk
from ..buffer import Buffer, Load
from ..passes.lower_blocks import lower_blocks
from ..passes.written import memory_size, reach
from ..stmt import Alloc, Call, Check, For, Func, If, Let, Param, Reduce, Seq, Stmt, Store, View, While, exprs, walk_stmts, zero

Status = Literal["proven", "guarded", "unproved"]
SPLITS = 9  # max depth of nested case splits; each split decides a comparison of dims, and few of those appear in one program


@dataclass(frozen=True, slots=True)
class Access:
    """A record of one access with the result of its bounds proof; `condition` is the bound that could not be proved, "" if all were."""

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
    """The accesses of a loop program in program order, then those of its callees, each with the status of its bounds proof.

    "proven" needs only the ranges of loops, "guarded" also conditions around the access; else it is "unproved". `given` are conditions on
    the symbols of `func` that every caller guarantees.
    """
    return _accesses(func, given, loops_first=True)


def unproved_accesses(func: Func, given: Iterable[Expr] = ()) -> list[Access]:
    """The accesses of a loop program that cannot be proved to be in bounds."""
    return [a for a in _accesses(func, given, loops_first=False) if a.status == "unproved"]


def _accesses(func: Func, given: Iterable[Expr], *, loops_first: bool) -> list[Access]:
    """Classifies all accesses of `func` and of its callees.

    Without `loops_first` it does not tell proven from guarded. A failing proof from the loops alone is the most expensive kind.
    """
    visited: dict[Func, None] = {}
    worklist, results = [func], []
    while worklist:
        f = worklist.pop(0)
        if f not in visited:
            visited[f] = None
            proof = _Proof(lower_blocks(f), given if f is func else (), loops_first)
            results += proof.run()
            worklist += proof.callees
    return results


@dataclass(frozen=True, slots=True)
class _Loop:
    """A record of a loop around an access: its variable and bounds."""

    var: Var
    start: Expr
    stop: Expr


@dataclass(frozen=True, slots=True)
class _Fits:
    """A record that memory of this size exists: so the size fits the address space, and computing it does not overflow."""

    size: Expr


_Item = _Loop | _Fits | Expr


@dataclass(frozen=True, slots=True)
class _Known:
    """The facts that hold at an access, outermost first: surrounding loops, sizes of existing memory, and conditions."""

    items: tuple[_Item, ...] = ()

    def also(self, item: _Item) -> _Known:
        """Returns these facts with `item` added; TRUE adds nothing."""
        return self if item is TRUE else _Known((*self.items, item))

    def shows(self, claim: Expr, *, conditions: bool, cases: int = SPLITS) -> bool:
        """True if the claim follows from the loops, and from the conditions if `conditions` is set; selects are split into cases."""
        items = [x for x in self.items if conditions or isinstance(x, _Loop | _Fits)]
        return self._follows(claim, items, EMPTY, cases)

    def _follows(self, claim: Expr, items: list[_Item], case: Facts, cases: int) -> bool:
        """True if the claim follows from `items`, when the conditions decided so far by case splits (`case`) hold."""
        facts = case
        for x in items:
            if isinstance(x, _Loop):
                if simplify(E.Lt(x.start, x.stop), facts) is FALSE:
                    return True  # this code is unreachable in this case
                facts = facts.with_loop(x.var, simplify(x.stop - x.start, facts), x.start)
            elif isinstance(x, _Fits):
                facts = facts.with_no_wrap(x.size)
            else:
                condition = simplify(x, facts)
                if condition is FALSE:
                    return True  # this code is unreachable in this case
                # An `or` is passed simplified, as the alternatives that are left in this case.
                facts = facts.with_condition(condition if isinstance(x, E.Or) else x)
        if prove(claim, facts) or prove(claim, facts.with_definitions()):
            return True
        if not cases:
            return False
        for c in dict.fromkeys(_choices(claim, items)):
            if not isinstance(simplify(c, case), Const):
                return all(self._follows(claim, items, case.with_condition(way), cases - 1) for way in (c, E.Not(c)))
        return False


def _choices(claim: Expr, items: list[_Item]) -> Iterator[Expr]:
    """The comparisons that conditions of selects and first operands of `or`s consist of, in the claim and in the facts.

    Conditions with other variables than dims are left out: dims do not change during a run, so a case split is the same at every access.
    """
    inside = [e for x in reversed(items) for e in ((x.stop, x.start) if isinstance(x, _Loop) else () if isinstance(x, _Fits) else (x,))]
    for e in (claim, *inside):
        for node in walk(e):
            if isinstance(node, E.Select | E.Or) and all(isinstance(v, Dim) for v in free_vars(node.args[0])):
                yield from _atoms(node.args[0])


def _atoms(condition: Expr) -> Iterator[Expr]:
    """The comparisons that a condition consists of; deciding them decides the condition, and others that share them."""
    if isinstance(condition, E.And | E.Or | E.Not):
        for a in condition.args:
            yield from _atoms(a)
    else:
        yield condition


class _Proof:
    """Walks one function, tracks the known facts, and tries to prove for each access that it is in bounds."""

    def __init__(self, func: Func, given: Iterable[Expr], loops_first: bool) -> None:
        self.func = func
        self.loops_first = loops_first
        self.span = func.span
        self.known = _Known(tuple(given))
        for v in func.symbols:  # dims are never negative, also those that are plain variables
            if not isinstance(v, Dim):
                self.known = self.known.also(_Loop(v, zero(), Const(DIM_MAX + 1, i64)))
        self.values: dict[Var, Expr] = {}  # values of lets, in terms of dims, loop variables and named loads
        self.names: dict[Load, Var] = {}  # the symbolic name of the value that a memory location holds now
        self.count = 0
        self.root: dict[Buffer, Buffer] = {}
        self.found: list[Access] = []
        self.callees: dict[Func, None] = {}
        # The shapes in a host program are those of graph values: shape deduction and its checks make them non-negative.
        views = [s.buffer for s in walk_stmts(func.body) if isinstance(s, View)] if func.attrs.host else []
        self.extents = [E.Le(zero(), e) for e in dict.fromkeys(e for b in views for e in b.shape) if e.args]

    def run(self) -> list[Access]:
        """Analyzes the whole body; returns a record for each access."""
        self.stmt(self.func.body)
        return self.found

    # Values.

    def see(self, e: Expr) -> Expr:
        """`e` with lets replaced by their values and loads by their symbolic names."""

        def leaf(x: Expr) -> Expr | None:
            if isinstance(x, Var):
                return self.values.get(x, x)
            if isinstance(x, Load):
                place = Load(x.buffer, tuple(self.see(i) for i in x.indices))
                if place not in self.names:
                    self.count += 1  # a unique name, because terms are sorted by name
                    self.names[place] = Var(f"{x.buffer.name}[…{self.count}]", x.dtype)
                return self.names[place]
            return None

        return rewrite(e, leaf)

    def memory(self, b: Buffer) -> Buffer:
        """Returns the buffer that owns the memory of `b`: the source of a view, else `b` itself."""
        return self.root.get(b, b)

    def changed(self, buffers: Iterable[Buffer]) -> None:
        """Drops the names of values loaded from these buffers, because the buffers may have been written."""
        roots = {self.memory(b) for b in buffers}
        self.names = {load: v for load, v in self.names.items() if self.memory(load.buffer) not in roots}

    @contextmanager
    def under(self, *conditions: Expr) -> Iterator[None]:
        """Context manager: the conditions are known inside of it."""
        outside = self.known
        for c in conditions:
            self.known = self.known.also(self.see(c))
        yield
        self.known = outside

    # Statements.

    def stmt(self, s: Stmt) -> None:
        """Records the accesses in a statement, and the facts that hold after it."""
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
        """Analyzes a loop's body with the loop's range known; a loop that provably has no iterations is skipped."""
        self.loads(s.start)
        self.loads(s.stop)
        start, stop = self.see(s.start), self.see(s.stop)
        if isinstance(start, Const) and isinstance(stop, Const) and stop.value <= start.value:
            return  # the loop has no iterations
        self.changed(_written(s.body))
        outside = self.known
        self.known = outside.also(_Loop(s.var, start, stop))
        self.stmt(s.body)
        self.known = outside

    def access(self, s: Stmt) -> None:
        """Records the accesses of a statement that contains no other statements."""
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
        """Records the loads in `e`, each with the conditions under which it is evaluated."""
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
        """Records an access to one element: every index must be within its dim."""
        bounds = [c for i, extent in zip(indices, b.shape, strict=True) for c in (E.Le(zero(), i), E.Lt(i, extent))]
        self.show(kind, b.name, ", ".join(map(str, indices)), bounds)

    def view(self, s: View) -> None:
        """Records a view: it has to be empty, or lie inside the memory that it views."""
        source, view = s.source, s.buffer
        if self.func.attrs.host and source in self.func.buffers:
            return  # a bare pointer to an argument: the function that checks arguments has checked its size
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
        not_empty = [E.Lt(zero(), e) for e in view.shape]
        with self.under(*not_empty, *self.extents):
            self.known = self.known.also(_Fits(self.see(memory_size(source))))
            bounds: list[Expr] = [E.Le(zero(), first), E.Lt(last, memory_size(source))]
            self.show("view", source.name, ", ".join(map(str, s.start)), bounds)

    def call(self, s: Call) -> None:
        """Records a call: arguments have the shapes and strides that the parameters declare, dims satisfy the callee's contract."""
        callee = s.func
        self.callees.setdefault(callee)
        binding: dict[Var, Expr] = dict(zip(callee.symbols, s.dims, strict=True))
        binding |= {p.value: a for p, a in zip(callee.params, s.args, strict=True) if isinstance(p.value, Var) and isinstance(a, Expr)}
        for p, a in _buffers(s):
            assert isinstance(p.value, Buffer)
            pairs = [*zip(a.shape, p.value.shape, strict=True)]
            if a.strides is not None or p.value.strides is not None:
                pairs += zip(a.element_strides(), p.value.element_strides(), strict=True)
            equalities = [E.Eq(actual, substitute(declared, binding)) for actual, declared in pairs]
            self.show("call", a.name, f"{callee.name}: {p.value.name}", [w for w in equalities if w.args[0] is not w.args[1]])
        for symbol, value in zip(callee.symbols, s.dims, strict=True):
            self.show("call", symbol.name, callee.name, _contract(symbol, value))

    def show(self, kind: Literal["load", "store", "reduce", "view", "call"], name: str, index: str, wanted: Sequence[Expr]) -> None:
        """Records an access as proven (by the loops alone), guarded (with conditions), or unproved.

        An unproved one names the first condition that does not follow.
        """
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
    """The conditions that a callee assumes of a dim: its range, and the number that it is a multiple of."""
    low, high, step = (symbol.min, symbol.max, symbol.multiple_of) if isinstance(symbol, Dim) else (0, DIM_MAX, 1)
    inside = [E.Le(Const(low, i64), value), E.Le(value, Const(high, i64))]
    return inside if step == 1 else [*inside, E.Eq(E.FloorMod(value, Const(step, i64)), zero())]


def _written(s: Stmt) -> list[Buffer]:
    """The buffers that a statement writes or allocates, and the sources of the views in it."""
    buffers: list[Buffer] = []
    for x in walk_stmts(s):
        match x:
            case Store():
                buffers.append(x.buffer)
            case Reduce():
                buffers += [t.buffer for t in x.targets]
            case Alloc():
                buffers.append(x.buffer)
            case View():
                buffers += [x.buffer, x.source]  # a write through a view changes its source, and the other way round
            case Call():
                buffers += [a for p, a in _buffers(x) if p.role != "in"]
    return buffers


def _buffers(s: Call) -> list[tuple[Param, Buffer]]:
    """The buffer arguments of a call, each with its parameter."""
    return [(p, a) for p, a in zip(s.func.params, s.args, strict=True) if isinstance(a, Buffer)]
