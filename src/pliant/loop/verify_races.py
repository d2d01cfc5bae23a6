"""Race detection by example: rejects a `parallel` or `vector` loop in a user's program if two of its iterations provably conflict.

The program is run on small dims, tracking indices only. The elements that each iteration of such a loop reads and writes are recorded,
as far as dims and loop variables determine them. Two iterations that touch an element that one of them writes are a witness against a
parallel loop. They are one against a vector loop if lockstep execution would change the order of the accesses: all lanes finish a
statement before the next one starts, and all lanes load before any of them stores. Data-dependent accesses are left to checked mode
(`passes/add_checks.py`).

    for i in parallel(n - 1):
        y[i + 1] = y[i]                 # for n = 3: iteration i = 0 writes `y[1]`, which iteration i = 1 reads
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..support.errors import Error
from ..sym import expr as E
from ..sym.expr import Expr, Var
from .buffer import Buffer, Load
from .passes.lower_blocks import lower_blocks
from .stmt import Alloc, For, Func, If, Let, Reduce, Seq, Stmt, Store, View, While, exprs, walk_stmts
from .verify_memory import CONCURRENT, compute, dim_points

# Limits that keep verification fast; a race that needs more than this is not found here, but in checked mode.
STEPS = 1500  # accesses recorded for one choice of dims
ROUNDS = 20_000  # iterations of all loops for one choice of dims, because loops may run without accessing anything
CHOICES = 5  # choices of dims


def check_races(func: Func) -> None:
    """Raises an error for a concurrent loop whose iterations conflict for some dims: it runs the control flow for a few small dims."""
    if not any(isinstance(s, For) and _concurrent(s) for s in walk_stmts(func.body)):
        return
    plain = lower_blocks(func)
    for k, point in enumerate(dim_points(list(func.symbols))):
        if k == CHOICES:
            return
        try:
            _Run(func, point).stmt(plain.body, ())
        except _Enough:
            continue


def _concurrent(s: For) -> bool:
    """True if iterations of a loop may run at the same time."""
    return s.kind in CONCURRENT or s.kind.startswith("gpu.")


class _Enough(Exception):
    """Raised when a run exceeds its limit of steps."""


Place = tuple[Buffer, int, tuple[int, ...] | int]  # the buffer, the number of its lifetime (allocation), and the element


class _Touch(NamedTuple):
    """A record of one access by an iteration; `way` is the path from the loop to the statement, i.e. the time of the access in lockstep."""

    iteration: int
    write: bool
    way: tuple[int, ...]
    shown: str


class _Open(NamedTuple):
    """A record of a parallel or vector loop that is running, with the accesses seen so far."""

    loop: For
    depth: int  # length of the path to it
    seen: dict[Place, list[_Touch]]


class _Run:
    """Runs a program's control flow on concrete dims, and records which iteration accesses which element."""

    def __init__(self, func: Func, dims: dict[Var, int]) -> None:
        self.func = func
        self.dims = dims
        self.values: dict[Var, int] = dict(dims)
        self.open: list[_Open] = []
        self.views: dict[Buffer, View] = {}
        self.starts: dict[Buffer, tuple[int, ...] | None] = {}
        self.lives: dict[Buffer, int] = {}
        self.steps = self.rounds = 0

    def number(self, e: Expr) -> int | None:
        """Returns the value of an expression under the current variables, or None if it depends on data."""
        return compute(e, self.values)

    def stmt(self, s: Stmt, way: tuple[int, ...]) -> None:
        """Runs a statement at the path `way`, recording its accesses; what depends on data is skipped."""
        match s:
            case Seq():
                for k, x in enumerate(s.body):
                    self.stmt(x, (*way, k))
            case For():
                self.loop(s, way)
            case If():
                self.reads(s, way)
                truth = self.number(s.cond)
                taken = None if truth is None else s.then if truth else s.orelse
                if taken is not None:
                    self.stmt(taken, (*way, 0))
            case Let():
                self.reads(s, way)
                value = self.number(s.value)
                self.values.pop(s.var, None)
                if value is not None:
                    self.values[s.var] = value
            case Alloc():
                self.lives[s.buffer] = self.lives.get(s.buffer, 0) + 1
            case View():
                self.views[s.buffer] = s
                start = [self.number(e) for e in s.start]
                self.starts[s.buffer] = None if None in start else tuple(x for x in start if x is not None)
            case Store():
                self.reads(s, way)
                self.touch(s, s.buffer, s.indices, True, way)
            case Reduce():
                self.reads(s, way)
                for write in (False, True):
                    for t in s.targets:
                        self.touch(s, t.buffer, t.indices, write, way)
            case While():
                pass  # the number of iterations depends on data

    def loop(self, s: For, way: tuple[int, ...]) -> None:
        """Runs a loop, unless its bounds depend on data; raises _Enough beyond ROUNDS iterations."""
        start, stop = self.number(s.start), self.number(s.stop)
        if start is None or stop is None:
            return
        if _concurrent(s):
            self.open.append(_Open(s, len(way), {}))
        for k in range(start, stop):
            self.rounds += 1
            if self.rounds > ROUNDS:
                raise _Enough
            self.values[s.var] = k
            self.stmt(s.body, (*way, k))
        self.values.pop(s.var, None)
        if _concurrent(s):
            self.open.pop()

    def reads(self, s: Stmt, way: tuple[int, ...]) -> None:
        """Records the elements that a statement loads."""
        for e in exprs(s):
            for x in self.loads(e):
                self.touch(s, x.buffer, x.indices, False, way)

    def loads(self, e: Expr) -> Iterator[Load]:
        """The loads that are evaluated; arms whose condition depends on data are skipped."""
        if isinstance(e, E.Select | E.And | E.Or):
            yield from self.loads(e.args[0])
            truth = self.number(e.args[0])
            if truth is None:
                return
            if isinstance(e, E.Select):
                yield from self.loads(e.args[1 if truth else 2])
            elif bool(truth) == isinstance(e, E.And):
                yield from self.loads(e.args[1])
            return
        for a in e.args:
            yield from self.loads(a)
        if isinstance(e, Load):
            yield e

    def touch(self, s: Stmt, b: Buffer, indices: tuple[Expr, ...], write: bool, way: tuple[int, ...]) -> None:
        """Records an access by the concurrent loops around it; raises an error if it conflicts with one of another iteration.

        Does nothing if no such loop runs or the element depends on data; raises _Enough beyond STEPS accesses. Two reads do not conflict.
        """
        if not self.open:
            return
        self.steps += 1
        if self.steps > STEPS:
            raise _Enough
        at = [self.number(e) for e in indices]
        place = None if None in at else self.place(b, tuple(x for x in at if x is not None))
        if place is None:
            return
        shown = f"{b.name}[{', '.join(map(str, at)) or '()'}]"
        for o in self.open:
            inner = self.values[o.loop.var]
            new = _Touch(inner, write, way[o.depth + 1 :], shown)
            touches = o.seen.setdefault(place, [])
            for old in touches:
                if old.iteration != inner and (write or old.write) and not _legal(o.loop, old, new):
                    raise self.error(s, o.loop, old, new)
            if new not in touches:
                touches.append(new)

    def place(self, b: Buffer, indices: tuple[int, ...]) -> Place | None:
        """Returns an element as a position in the buffer that owns its memory; None if views make that depend on data."""
        if b not in self.views and b not in (v.source for v in self.views.values()):
            return b, self.lives.get(b, 0), indices
        flat = self.flat(b, indices)
        while flat is not None and b in self.views:
            source, start = self.views[b].source, self.starts[b]
            first = None if start is None or source.dtype is not b.dtype else self.flat(source, start)
            flat = None if first is None else flat + first
            b = source
        return None if flat is None else (b, self.lives.get(b, 0), flat)

    def flat(self, b: Buffer, indices: tuple[int, ...]) -> int | None:
        """The flat index of an element, or None if the strides depend on data."""
        strides = [self.number(e) for e in b.element_strides()]
        return None if None in strides else sum(i * s for i, s in zip(indices, strides, strict=True) if s is not None)

    def error(self, s: Stmt, loop: For, old: _Touch, new: _Touch) -> Error:
        """Returns the error that shows two conflicting accesses by different iterations."""
        name = loop.var.name
        dims = ", ".join(f"{v.name} = {k}" for v, k in self.dims.items())
        word = {False: "reads", True: "writes"}
        first, second = (f"iteration {name} = {x.iteration} {word[x.write]}" for x in (old, new))
        conflict = f"{first} `{old.shown}`, which {second}"
        kind = "parallel" if loop.kind != "vector" else "vector"
        return Error(
            f"iterations of the {loop.kind} loop `{name}` depend on each other",
            where=s.span or loop.span,
            facts=[f"for {dims}: {conflict}" if dims else conflict],
            help=f"make it serial: for {name} in range(...); a {kind} loop is for iterations that keep to elements of their own",
        )


def _legal(loop: For, old: _Touch, new: _Touch) -> bool:
    """True if concurrent execution keeps the order of two accesses; `old` is by an earlier iteration."""
    if loop.kind != "vector":
        return False
    return old.way < new.way or (old.way == new.way and new.write and not old.write)
