"""Outlines the body of every parallel loop into a function over a range of iterations, which a launch hands to threads in chunks.

    for i in parallel(n, grain=g):                   for i in parallel(n, grain=g):
        for k in range(m):                               sums_i(x, y, m, i, i + 1)
            y[i] += x[i, k]                 ->
                                                     def sums_i(x, y, m, begin, end):           # attribute: chunk
                                                         for i in range(begin, end):
                                                             check(0 <= i and i <= n - 1, ..., kind="assume")
                                                             for k in range(m):
                                                                 y[i] += x[i, k]

Afterwards a parallel loop is a *launch*: its body is one call of such a function, for one iteration. The attribute `chunk` says that one
call for several iterations equals one call for each, so a renderer may pass whole chunks. Everything that the body uses becomes a
parameter, under the name that it has outside:

- Buffers. No two parameters alias: where the body uses several views of a buffer, the buffer is passed and the function makes the views
  again. Renderers rely on parameters being disjoint.
- Variables, including those that appear in facts. What the caller knows of them (ranges of loops, conditions, lets over sizes) is assumed
  in the function, because the code of the body relies on it: for indices that fit 32 bits, for strides, for rows that exist.

A parallel loop inside of another parallel loop, or of a vector loop, becomes serial: all threads are busy already. So does a loop whose
iterations are not proved to own the bytes that they write (`analysis/byte_ownership.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...support.errors import UnsupportedError
from ...support.names import unused_name
from ...sym.expr import Const, Eq, Expr, Var, free_vars
from .. import stmt as S
from ..analysis.byte_ownership import owns_bytes
from ..analysis.known import Known, not_negative, within
from ..attributes import FuncAttrs
from ..buffer import Buffer, has_load, loads_in


def is_launch(s: S.Stmt) -> bool:
    """True if a loop hands chunks of iterations to an outlined function."""
    return isinstance(s, S.For) and s.kind == "parallel" and isinstance(s.body, S.Call) and s.body.func.attrs.chunk


def chunks(func: S.Func) -> list[S.Func]:
    """Returns the outlined loop bodies that a function launches on threads."""
    return [s.body.func for s in S.walk_stmts(func.body) if is_launch(s) and isinstance(s, S.For) and isinstance(s.body, S.Call)]


def outline_parallel(func: S.Func) -> S.Func:
    """Returns the function with the body of each parallel loop moved to a function of its own, which threads run in chunks.

    A parallel loop whose iterations may write the same byte, and one inside a vector or parallel loop, becomes serial.
    """
    if not any(_is_parallel(s) and not is_launch(s) for s in S.walk_stmts(func.body)):
        return func
    return func.with_(body=_Outliner(func).stmt(func.body))


def _is_parallel(s: S.Stmt) -> bool:
    """True if a statement is a parallel loop."""
    return isinstance(s, S.For) and s.kind == "parallel"


def _serial(s: S.Stmt) -> S.Stmt:
    """Returns the statement with its parallel loops made serial."""
    s = S.map_children(s, _serial)
    return _one_by_one(s) if isinstance(s, S.For) and _is_parallel(s) else s


def _one_by_one(s: S.For) -> S.For:
    """Returns the loop as a serial one, without a grain (iterations per chunk)."""
    return s.with_(kind="serial", annotations={k: v for k, v in s.annotations.items() if k != "grain"})


class _Outliner:
    """Replaces parallel loops by launches of outlined bodies; tracks the facts and names in scope."""

    def __init__(self, func: S.Func) -> None:
        self.func = func
        self.symbols = func.symbols
        self.known = Known(func.symbols)
        self.lets: dict[Var, S.Let] = {}
        self.views: dict[Buffer, S.View] = {}
        # Everything in scope, in the order of binding: the parameters of outlined functions come in this order.
        self.order: dict[Var | Buffer, None] = dict.fromkeys((*func.buffers, *func.symbols, *func.scalars))
        self.names = {func.name}

    def stmt(self, s: S.Stmt) -> S.Stmt:
        """Returns the statement with its parallel loops replaced by launches."""
        match s:
            case S.Seq():
                return self.sequence(s)
            case S.For() if is_launch(s):
                return s
            case S.For(kind="vector"):
                return _serial(s)
            case S.For(kind="parallel"):
                uses = _uses(s.body)
                return self.launch(s, uses) if owns_bytes(self.known, s, uses.all_written) else self.stmt(_one_by_one(s))
            case S.For():
                self.order[s.var] = None
                return self.known.map_inner(s, self.stmt)
            case S.If() | S.While():
                return self.known.map_inner(s, self.stmt)
        return s

    def sequence(self, s: S.Seq) -> S.Stmt:
        """Returns the statements with their parallel loops replaced by launches; each sees the names and checks of those before it."""
        body: list[S.Stmt] = []
        for n, x in enumerate(s.body):
            if isinstance(x, S.View) and any(map(has_load, S.exprs(x))):
                return S.seq(*body, self.sequence(S.Seq(_with_named_numbers(x, s.body[n + 1 :]))))
            match x:
                case S.Let():
                    self.order[x.var] = None
                    self.lets[x.var] = x
                    self.known.let(x.var, x.value)
                case S.Alloc():
                    self.order[x.buffer] = None
                case S.View():
                    self.order[x.buffer] = None
                    self.views[x.buffer] = x
                case S.Check():
                    self.known.condition(x.cond)
            body.append(self.stmt(x))
        return s if all(a is b for a, b in zip(body, s.body, strict=True)) else S.seq(*body)

    # Launches.

    def launch(self, s: S.For, uses: _Uses) -> S.Stmt:
        """Returns the launch that replaces a parallel loop: a call of a new function that holds the loop's body."""
        body = _serial(s.body) if uses.nested else s.body
        memory = self.memory(s, body, uses)
        needed = {*uses.vars, *memory.sizes} - {s.var}
        assumed = self.closure(needed, within(s))
        needed.discard(s.var)
        constant = [self.lets[v] for v in self.order if v in needed and v in self.lets and isinstance(self.lets[v].value, Const)]
        needed -= {x.var for x in constant}
        symbols = [v for v in self.symbols if any(v in _sizes(p.value) for p in memory.params)]
        scalars = [v for v in self.order if isinstance(v, Var) and v in needed and v not in symbols]
        begin, end = Var("begin"), Var("end")
        defined = [Eq(v, value) for v, value in self.known.lets.items() if v in needed]
        of_itself = not_negative(symbols)  # known inside of the function anyway
        facts = [*defined, *(e for e in assumed if e not in of_itself)]
        if memory.replaced:
            body = S.Replacer(buffers=memory.replaced).stmt(body)
        loop = S.For(s.var, begin, end, "serial", S.seq(*map(_assume, _usable([within(s)])), body), span=s.span)
        params = [*memory.params, *(S.Param(v) for v in (*scalars, begin, end))]
        attrs = FuncAttrs(chunk=True, scheduled=True, host=self.func.attrs.host)
        name = unused_name(f"{self.func.name}_{s.var.name}", self.names)
        chunk = S.Func(name, tuple(params), S.seq(*constant, *map(_assume, facts), *memory.views, loop), attrs, self.func.span)
        args: tuple[Buffer | Expr, ...] = (*memory.args, *scalars, s.var, s.var + 1)
        return s.with_(body=S.Call(chunk, args, chunk.symbols, s.span))  # parameters have the names of the variables passed

    def closure(self, needed: set[Var], own: Expr) -> list[Expr]:
        """The conditions on needed variables; adds to `needed` their variables and those in the values of lets, until nothing changes."""
        grown = True
        needed |= free_vars(own) if not has_load(own) else set()
        while grown:
            more = {v for x in needed if x in self.known.lets for v in free_vars(self.known.lets[x])}
            for e in self.known.conditions:
                if not free_vars(e).isdisjoint(needed):
                    more |= free_vars(e)
            grown = not more <= needed
            needed |= more
        return [e for e in self.known.conditions if not free_vars(e).isdisjoint(needed)]

    def memory(self, s: S.For, body: S.Stmt, uses: _Uses) -> _Memory:
        """Returns the buffers that an outlined body uses, as arguments and parameters; raises UnsupportedError for a register buffer."""
        used, written = uses.buffers, uses.written
        groups: dict[Buffer, list[Buffer]] = {}
        for b in self.order:
            if isinstance(b, Buffer) and b in used:
                if b.scope == "register":
                    raise UnsupportedError(f"register buffer `{b.name}` is used inside of the parallel loop `{s.var.name}`", where=s.span)
                groups.setdefault(self.root(b), []).append(b)
        args: list[Buffer] = []
        params: list[S.Param] = []
        views: list[S.View] = []
        replaced: dict[Buffer, Buffer] = {}
        for root, names in groups.items():
            passed = names[0] if len(names) == 1 else root
            args.append(passed)
            params.append(S.Param(_global(passed, replaced), "in" if written.isdisjoint(names) else "inout"))
            for b in names if len(names) > 1 else ():
                views += [v for v in self.chain(b) if v not in views]
        for v in (*views, *(x for x in S.walk_stmts(body) if isinstance(x, S.View))) if replaced else ():
            if v.source in replaced:
                _global(v.buffer, replaced)
        remade = [v.with_(buffer=replaced.get(v.buffer, v.buffer), source=replaced.get(v.source, v.source)) for v in views]
        sizes = {v for p in params for v in _sizes(p.value)} | {v for x in views for e in S.exprs(x) for v in free_vars(e)}
        return _Memory(args, params, remade, replaced, sizes)

    def root(self, b: Buffer) -> Buffer:
        """Returns the buffer that owns the memory of `b`: the source of its chain of views."""
        while b in self.views:
            b = self.views[b].source
        return b

    def chain(self, b: Buffer) -> list[S.View]:
        """Returns the views that lead from the owner of the memory to `b`, in order."""
        if b not in self.views:
            return []
        return [*self.chain(self.views[b].source), self.views[b]]


class _Memory(NamedTuple):
    """A record of an outlined body's buffers: arguments, parameters, views to make again, replacements, and variables in sizes."""

    args: list[Buffer]
    params: list[S.Param]
    views: list[S.View]
    replaced: dict[Buffer, Buffer]
    sizes: set[Var]


def _global(b: Buffer, replaced: dict[Buffer, Buffer]) -> Buffer:
    """Returns a buffer as a parameter of global scope, because the caller owns its memory; records the replacement in `replaced`."""
    if b.scope != "global" and b not in replaced:
        replaced[b] = Buffer(b.name, b.dtype, b.shape, b.strides)
    return replaced.get(b, b)


def _sizes(b: Buffer | Var) -> set[Var]:
    """The variables in the shape and strides of a buffer."""
    return {v for e in (*b.shape, *(b.strides or ())) for v in free_vars(e)} if isinstance(b, Buffer) else set()


def _with_named_numbers(view: S.View, rest: tuple[S.Stmt, ...]) -> tuple[S.Stmt, ...]:
    """A view and the statements after it, with lets for those of its sizes and offsets that are loaded from memory.

    An outlined body may have to make the view again. By then memory may have changed, so the values must be named.
    """
    b = view.buffer
    names = {e: Var(f"{b.name}_size", e.dtype) for e in dict.fromkeys(S.exprs(view)) if has_load(e)}
    start, shape = (tuple(names.get(e, e) for e in numbers) for numbers in (view.start, b.shape))
    strides = None if b.strides is None else tuple(names.get(e, e) for e in b.strides)
    named = Buffer(b.name, b.dtype, shape, strides, b.scope)
    lets = (S.Let(v, e, view.span) for e, v in names.items())
    replacer = S.Replacer(buffers={b: named})
    return (*lets, view.with_(buffer=named, start=start), *map(replacer.stmt, rest))


def _usable(conditions: Iterable[Expr]) -> list[Expr]:
    """The conditions that do not read memory."""
    return [e for e in conditions if not has_load(e)]


def _assume(condition: Expr) -> S.Check:
    """Returns a `Check` that states a fact to rely on; no code tests it."""
    return S.Check(condition, "the caller knows this", kind="assume")


class _Uses(NamedTuple):
    """A record of what a body uses: outer variables and buffers, those it writes, and whether it contains parallel loops."""

    vars: set[Var]
    buffers: set[Buffer]
    written: set[Buffer]
    all_written: set[Buffer]
    nested: bool


def _uses(body: S.Stmt) -> _Uses:
    """Returns which outer variables and buffers a loop's body reads and writes."""
    read: set[Expr] = set()
    touched: set[Buffer] = set()
    written: set[Buffer] = set()
    bound: set[Var] = set()
    inside: dict[Buffer, Buffer | None] = {}  # bound in the body: the source of a view, None for an allocation
    nested = False
    for s in S.walk_stmts(body):
        read.update(S.exprs(s))
        match s:
            case S.For() | S.Let():
                bound.add(s.var)
                nested = nested or _is_parallel(s)
            case S.Call():
                touched.update(a for a in s.args if isinstance(a, Buffer))
                written.update(S.writes(s))
            case S.View():
                touched.add(s.source)
                inside[s.buffer] = s.source
            case S.Alloc():
                inside[s.buffer] = None
            case _:
                written.update(S.writes(s))
    used: set[Var] = set().union(*map(free_vars, read))
    touched = (touched | written | {e.buffer for e in loads_in(read)}) - inside.keys()
    homes: set[Buffer] = set()
    for b in written:
        home: Buffer | None = b
        while home is not None and home in inside:
            home = inside[home]
        homes.add(home if home is not None else b)
    return _Uses(used - bound, touched, homes & touched, written, nested)
