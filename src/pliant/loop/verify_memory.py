"""Rejects provable memory errors: accesses out of range, reads of unwritten memory, and races of parallel loops.

Only certain mistakes are rejected. *Out of range* needs a witness: values of the dims and loop variables for which the statement runs and
the index is outside. It is searched at the corners of the loops for small dims, and the error shows it. *Unwritten* means that no write
can precede the read. *Races* are writes in a parallel or vector loop to an element that does not depend on the loop's variable.

The walk carries the surrounding loops and conditions, and the values of iterators and lets in terms of loop variables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..dtype import bool_, i64
from ..support.errors import Error, InternalError
from ..support.record import dataclass
from ..sym import expr as E
from ..sym.expr import TRUE, Const, Dim, Expr, Var, free_vars, substitute
from ..sym.walk import walk
from .buffer import Buffer, Load
from .stmt import Alloc, Block, Call, Check, For, Func, If, Let, Reduce, Seq, Stmt, Store, View, While, exprs, walk_stmts

CONCURRENT = ("parallel", "vector")  # loop kinds whose iterations are not ordered; "gpu.*" is too
Witness = tuple[dict[Var, int], int, int]  # values of dims and loop variables; of the index; of the extent


@dataclass(frozen=True, slots=True)
class Place:
    """A record of a statement's context: surrounding loops, conditions that hold, and the values of iterators and lets."""

    loops: tuple[For, ...] = ()
    guards: tuple[Expr, ...] = ()  # conditions on dims and loop variables that hold here
    values: dict[Var, Expr] | None = None  # the values of iterators and lets
    unknown: bool = False  # inside of a while loop, which may not run at all

    def see(self, e: Expr) -> Expr:
        """Returns `e` in terms of dims, scalars and loop variables: iterators and lets are replaced by their values."""
        return substitute(e, self.values) if self.values else e

    def bind(self, values: dict[Var, Expr]) -> Place:
        """Returns the context with the values of further iterators or lets."""
        return replace(self, values={**(self.values or {}), **{v: self.see(e) for v, e in values.items()}})

    def given(self, condition: Expr) -> Place:
        """Returns the context in which `condition` holds too."""
        return self if condition is TRUE else replace(self, guards=(*self.guards, self.see(condition)))


def check_memory(func: Func, given: Expr = TRUE) -> None:
    """Raises an error if memory is provably misused for some dims that satisfy `given`: accesses out of range, unwritten reads, races."""
    memory = _Memory(func)
    memory.visit(func.body, Place().given(given))


class _Memory:
    """Checks a program's memory accesses: no read of memory that nothing can have written, and no access known to be out of range."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.root: dict[Buffer, Buffer] = {}  # view -> the buffer that owns its memory
        self.starts: dict[Buffer, tuple[Expr, ...]] = {}  # view -> the indices where it starts, in terms of loop variables
        self.home: dict[Buffer, int] = {}  # buffer -> the number of loops around its allocation
        self.undefined = {p.value for p in func.params if p.role == "out" and isinstance(p.value, Buffer)}
        self.done: set[Buffer] = set()  # the buffers that may have been written so far
        self.pending: list[set[Buffer]] = []  # for each surrounding loop: the buffers that it writes
        self.symbols = func.symbols

    def fail(self, s: Stmt, what: str, facts: Sequence[str] = (), help: str = "") -> Error:
        """Returns the error about a statement; an InternalError if it has no place in the user's source."""
        if s.span is not None:
            return Error(what, where=s.span, facts=facts, help=help)
        return InternalError(f"{what}, in `{self.func.name}`", facts=facts)

    def memory(self, b: Buffer) -> Buffer:
        """Returns the buffer that owns the memory of `b`: the source of a view, else `b` itself."""
        return self.root.get(b, b)

    # The walk, in order of execution.

    def visit(self, s: Stmt, at: Place) -> Place:
        """Raises an error if `s` misuses memory; returns the context of the statement after it."""
        match s:
            case Seq():
                for inner in s.body:
                    at = self.visit(inner, at)
                return at
            case For():
                self.reads(s, at)
                self.inside(s.body, replace(at, loops=(*at.loops, s.with_(start=at.see(s.start), stop=at.see(s.stop)))), loop=True)
            case While():
                self.reads(s, at)
                self.inside(s.body, replace(at, unknown=True), loop=True)
            case If():
                self.reads(s, at)
                self.inside(s.then, at.given(s.cond))
                if s.orelse is not None:
                    self.inside(s.orelse, at.given(E.Not(s.cond)))
            case Block():
                self.block(s, at)
            case Let():
                self.reads(s, at)
                return at.bind({s.var: s.value})
            case Check():
                self.reads(s, at)
                return at.given(s.cond)
            case Alloc():
                self.undefined.add(s.buffer)
                self.home[s.buffer] = len(at.loops)
            case View():
                self.root[s.buffer] = self.memory(s.source)
                self.starts[s.buffer] = (*self.starts.get(s.source, ()), *(at.see(e) for e in s.start))
            case _:
                self.access(s, at)
        return at

    def inside(self, s: Stmt, at: Place, *, loop: bool = False) -> None:
        """Visits a nested statement.

        For the body of a loop, with its writes noted as `pending`, since they precede reads of the next iteration.
        """
        if loop:
            self.pending.append(self.writes_in(s))
        self.visit(s, at)
        if loop:
            self.pending.pop()

    def block(self, s: Block, at: Place) -> None:
        """Visits the init and the body of a block, each under its predicate."""
        inner = at.bind({i.var: i.value for i in s.iters})
        if s.init is not None:
            self.visit(s.init, inner.given(s.init_predicate))
        self.visit(s.body, inner.given(s.predicate))

    # Reads and writes.

    def reads(self, s: Stmt, at: Place) -> None:
        """Raises an error if a load in the expressions of `s` is out of range or reads unwritten memory."""
        for e in exprs(s):
            self.loads(s, e, at)

    def loads(self, s: Stmt, e: Expr, at: Place) -> None:
        """Raises an error for an invalid load in `e`; those in an arm of a select are checked only where the arm is taken."""
        if isinstance(e, E.Select):
            self.loads(s, e.args[0], at)
            self.loads(s, e.args[1], at.given(e.args[0]))
            self.loads(s, e.args[2], at.given(E.Not(e.args[0])))
            return
        if isinstance(e, E.And | E.Or):
            self.loads(s, e.args[0], at)
            self.loads(s, e.args[1], at.given(e.args[0] if isinstance(e, E.And) else E.Not(e.args[0])))
            return
        for a in e.args:
            if a.args:
                self.loads(s, a, at)
        if isinstance(e, Load):
            self.was_written(s, e.buffer)
            self.in_range(s, e.buffer, e.indices, at)

    def access(self, s: Stmt, at: Place) -> None:
        """Raises an error if a store, reduction or call misuses memory; notes what it writes as written."""
        if not isinstance(s, Reduce | Store | Call):
            return
        self.reads(s, at)
        if isinstance(s, Reduce):
            for t in s.targets:
                self.was_written(s, t.buffer)
        if isinstance(s, Call):
            for p, a in zip(s.func.params, s.args, strict=True):
                if isinstance(a, Buffer) and p.role != "out":
                    self.was_written(s, a)
        for buffer, indices in _targets(s):
            if indices is not None:
                self.in_range(s, buffer, indices, at)
            self.no_race(s, buffer, indices or (), at)
            self.done.add(self.memory(buffer))

    def writes_in(self, s: Stmt) -> set[Buffer]:
        """Returns the memory that `s` may initialize.

        This is what calls write, and what a store writes, unless its value always reads the same buffer. Reductions do not count: they read
        their targets.
        """
        views = {x.buffer: x.source for x in walk_stmts(s) if isinstance(x, View)}
        initialized: set[Buffer] = set()
        for x in walk_stmts(s):
            if isinstance(x, Store | Call):
                own = {n.buffer for n in _certain_loads(x.value)} if isinstance(x, Store) else set()
                for b, _ in _targets(x):
                    if b not in own:
                        while b in views:
                            b = views[b]
                        initialized.add(self.memory(b))
        return initialized

    def was_written(self, s: Stmt, buffer: Buffer) -> None:
        """Raises an error for a read of memory that cannot have been written."""
        b = self.memory(buffer)
        if b in self.undefined and b not in self.done and not any(b in p for p in self.pending):
            what = "an output, undefined on entry" if b not in self.home else "allocated, its contents undefined"
            help_ = "give it a first value: with init(): ... at the head of the block" if isinstance(s, Reduce) else "store to it first"
            if b not in self.home:
                help_ += ", or annotate the parameter with InOut[...]"
            raise self.fail(s, f"`{buffer.name}` is read before anything is written to it", [f"`{b.name}` is {what}"], help_)

    # Races.

    def no_race(self, s: Stmt, buffer: Buffer, indices: tuple[Expr, ...], at: Place) -> None:
        """Raises an error if every iteration of a concurrent loop writes the same element, or neighbors write the same byte."""
        numbers = exprs(s) if isinstance(s, Call) else indices  # the part that a callee writes may depend on any of its scalars
        place = (*(at.see(i) for i in numbers), *self.starts.get(buffer, ()))
        used = frozenset().union(*(free_vars(e) for e in (*place, *at.guards)))
        for loop in reversed(at.loops):  # an index also depends on what the bounds of its loops depend on
            if loop.var in used:
                used |= free_vars(loop.start) | free_vars(loop.stop)
        for depth, loop in enumerate(at.loops):
            if not (loop.kind in CONCURRENT or loop.kind.startswith("gpu.")) or at.unknown:
                continue
            if loop.var in used:
                self.no_shared_byte(s, buffer, indices, at, depth)
                continue
            if depth < self.home.get(self.memory(buffer), 0) or (isinstance(loop.extent, Const) and loop.extent.value <= 1):
                continue
            facts = [f"its place does not depend on `{loop.var.name}`"]
            if isinstance(s, Reduce):
                help_ = f"make the loop over `{loop.var.name}` serial, or reduce into parts of their own and join them afterwards"
                raise self.fail(s, f"a reduction over the {loop.kind} loop `{loop.var.name}`", facts, help_)
            help_ = f"index with `{loop.var.name}`, or allocate the buffer inside of the loop"
            raise self.fail(
                s, f"every iteration of the {loop.kind} loop `{loop.var.name}` writes the same place of `{buffer.name}`", facts, help_
            )

    def no_shared_byte(self, s: Stmt, buffer: Buffer, indices: tuple[Expr, ...], at: Place, depth: int) -> None:
        """Raises an error if neighboring iterations of a parallel loop write elements of the same byte."""
        loop, per = at.loops[depth], buffer.dtype.per_byte
        if per == 1 or loop.kind == "vector" or not indices or any(loop.var in free_vars(g) for g in at.guards):
            return
        if depth < self.home.get(self.memory(buffer), 0) or (isinstance(loop.extent, Const) and loop.extent.value < per):
            return
        from ..sym.poly import poly_of

        place = poly_of(buffer.flat_index(tuple(at.see(i) for i in indices)))
        starts = self.starts.get(buffer, ())
        if any(loop.var in free_vars(e) for e in (*starts, *(a for m in place for a in m if a is not loop.var))):
            return
        step = place.get((loop.var,), 0)
        if abs(step) < per and not any(loop.var in m for m in place if m != (loop.var,)):
            raise self.fail(
                s,
                f"iterations of the {loop.kind} loop `{loop.var.name}` write the same byte of `{buffer.name}`",
                [f"{per} elements of {buffer.dtype} are in a byte, and iterations that follow each other write {abs(step)} apart"],
                f"split the loop by {per} (or a multiple) and make the outer one {loop.kind}",
            )

    # Ranges.

    def in_range(self, s: Stmt, buffer: Buffer, indices: tuple[Expr, ...], at: Place) -> None:
        """Raises an error if some loop iteration and dims are found for which the access is out of range; only in a user's source."""
        if s.span is None or at.unknown:  # generated programs may rely on facts about dims that are not visible here
            return
        for index, extent in zip(indices, buffer.shape, strict=True):
            seen, limit = at.see(index), at.see(extent)
            if _plainly_inside(seen, limit, at):
                continue
            example = witness(seen, limit, at, self.symbols)
            if example is not None:
                point, value, bound = example
                names = [f"{v.name} = {point[v]}" for v in point if v in free_vars(seen) | free_vars(limit) or v in self.symbols]
                where = f"for {', '.join(names)}: " if names else ""
                raise self.fail(
                    s,
                    f"`{buffer.name}[{', '.join(map(str, indices))}]` is out of range",
                    [f"{where}`{index}` is {value}, the extent is {bound}"],
                    "shorten the loop, or put the access under a condition",
                )


def _certain_loads(e: Expr) -> Iterator[Load]:
    """Yields the loads that are evaluated whenever `e` is, i.e. not under a condition."""
    if isinstance(e, Load):
        yield e
    for a in e.args[:1] if isinstance(e, E.Select | E.And | E.Or) else e.args:
        yield from _certain_loads(a)


def _targets(s: Stmt) -> list[tuple[Buffer, tuple[Expr, ...] | None]]:
    """Returns the elements that a statement writes, as buffers and indices; None for the indices if they are unknown."""
    if isinstance(s, Store):
        return [(s.buffer, s.indices)]
    if isinstance(s, Reduce):
        return [(t.buffer, t.indices) for t in s.targets]
    if isinstance(s, Call):
        return [(a, None) for p, a in zip(s.func.params, s.args, strict=True) if isinstance(a, Buffer) and p.role != "in"]
    return []


def _plainly_inside(index: Expr, extent: Expr, at: Place) -> bool:
    """True for the common cases, without a search: a loop variable from 0 to the extent, or a constant."""
    if isinstance(index, Const):
        return isinstance(extent, Const) and 0 <= index.value < extent.value
    return any(index is f.var and isinstance(f.start, Const) and f.start.value >= 0 and f.stop is extent for f in at.loops)


def witness(index: Expr, extent: Expr, at: Place, symbols: Sequence[Var]) -> Witness | None:
    """Returns values of dims and loop variables for which the access runs with `index` outside of 0..extent-1, and both values.

    None if a search of corners finds none, or if data decides.
    """
    known = {*symbols, *(f.var for f in at.loops)}
    parts = [index, extent, *at.guards, *(e for f in at.loops for e in (f.start, f.stop))]
    nodes = [n for e in parts for n in walk(e)]
    if any(free_vars(e) - known for e in parts) or any(isinstance(n, Load) for n in nodes):
        return None
    used = frozenset().union(*(free_vars(e) for e in parts))
    # With conditions, searching a few corners is cheaper than the proof that would avoid the search.
    few = sum(f.var in used for f in at.loops) <= 4
    if not (few and any(isinstance(n, E.Select | E.And | E.Or) for n in nodes)) and _proved(index, extent, at):
        return None
    for point in dim_points([v for v in symbols if v in used]):
        example = _corner(index, extent, at, point, used)
        if example is not None:
            return example
    return None


def dim_points(dims: list[Var]) -> Iterator[dict[Var, int]]:
    """Yields values of the dims to try, each dim within its own contract.

    First all dims take their k-th small value, for each k. Then come up to 16 mixed points of these values.
    The last point has the maximum of each dim.
    """
    choices = [_admitted(d) for d in dims]
    for k in range(max((len(c) for c in choices), default=1)):
        yield {d: c[min(k, len(c) - 1)] for d, c in zip(dims, choices, strict=True)}
    for values in itertools.islice(itertools.product(*choices), 16):
        yield dict(zip(dims, values, strict=True))
    yield {d: d.max // d.multiple_of * d.multiple_of if isinstance(d, Dim) else E.DIM_MAX for d in dims}


def _admitted(d: Var) -> list[int]:
    """Returns a few small values that a dim may have, by its minimum, maximum and divisor."""
    low, high, step = (d.min, d.max, d.multiple_of) if isinstance(d, Dim) else (0, E.DIM_MAX, 1)
    first = -(-low // step) * step
    # A few values at the lower end, and one further up.
    values = [v for v in (first, first + step, first + 2 * step, first + 7 * step) if v <= high]
    return values if first > 0 else [*values[1:], 0]


def _proved(index: Expr, extent: Expr, at: Place) -> bool:
    """True if the index is provably in range, so that no search is needed."""
    from ..sym.facts import EMPTY  # imported here: most programs do not need the prover
    from ..sym.prove import prove

    facts = EMPTY
    for f in at.loops:
        facts = facts.with_loop(f.var, f.extent, f.start)
    for g in at.guards:
        facts = facts.with_condition(g)
    return prove(E.And(E.Le(Const(0, i64), index), E.Lt(index, extent)), facts)


def _corner(index: Expr, extent: Expr, at: Place, point: dict[Var, int], used: frozenset[Var], depth: int = 0) -> Witness | None:
    """The first corner of the loops from `depth` on that is a witness; a loop whose variable is not used has only one corner.

    None if there is none.
    """
    if depth == len(at.loops):
        if not all(compute(g, point) for g in at.guards):
            return None
        value, bound = compute(index, point), compute(extent, point)
        return (dict(point), value, bound) if value is not None and bound is not None and not 0 <= value < bound else None
    loop = at.loops[depth]
    start, stop = compute(loop.start, point), compute(loop.stop, point)
    if start is None or stop is None:
        return None
    ends = (stop - 1, start) if loop.var in used else (start,)
    for value in dict.fromkeys(ends) if stop > start else ():
        example = _corner(index, extent, at, {**point, loop.var: value}, used, depth + 1)
        if example is not None:
            return example
    return None


def compute(e: Expr, point: dict[Var, int]) -> int | None:
    """The value of an integer or bool expression; None if it is of another kind, has a free variable or overflows."""
    if isinstance(e, Const):
        return int(e.value) if not e.dtype.is_float else None
    if isinstance(e, Var):
        return point.get(e)
    if isinstance(e, E.Select):
        condition = compute(e.args[0], point)
        return None if condition is None else compute(e.args[1 if condition else 2], point)
    step = _INTEGER.get(type(e))
    if step is None or not all(a.dtype.is_int or a.dtype is bool_ for a in e.args):
        return None
    args = [compute(a, point) for a in e.args]
    if any(a is None for a in args):
        return None
    value = step(*args)
    if e.dtype.is_int and not e.dtype.min <= value <= e.dtype.max:
        return None
    return value


_INTEGER: dict[type[Expr], Callable[..., int]] = {
    E.Add: lambda a, b: a + b,
    E.Sub: lambda a, b: a - b,
    E.Mul: lambda a, b: a * b,
    E.FloorDiv: lambda a, b: a // b if b else 0,
    E.FloorMod: lambda a, b: a % b if b else 0,
    E.Min: min,
    E.Max: max,
    E.Neg: lambda a: -a,
    E.Not: lambda a: not a,
    E.And: lambda a, b: a and b,
    E.Or: lambda a, b: a or b,
    E.Eq: lambda a, b: a == b,
    E.Ne: lambda a, b: a != b,
    E.Lt: lambda a, b: a < b,
    E.Le: lambda a, b: a <= b,
    E.BitAnd: lambda a, b: a & b,
    E.BitOr: lambda a, b: a | b,
    E.BitXor: lambda a, b: a ^ b,
    E.Cast: lambda a: a,
}
