"""Checked mode: instruments a program so that it fails with a message wherever it would do something undefined.

    for i in range(n):                for i in range(n):
        y[i] = x[i + k]         ->        check(0 <= i + k and i + k < m, "`x[i + k]` is out of range in `f`: …", i + k, m)
                                          y[i] = x[i + k]

It detects: an access outside of a buffer's shape, a view outside of the memory that it views, overflow in index arithmetic, a negative
extent, an integer division or remainder by zero, a read of an element that was never written (of local memory or of an output), an output
that is not completely written, call arguments that do not have the callee's shape, and iterations of a parallel or vector loop that
depend on each other. Expressions that are evaluated only under a condition (an arm of a select, the right side of `and` and `or`, an
`if`) are checked only under it.

Blocks are lowered before, and calls are inlined, so that every access is checked in its context. Vector and unrolled loops run serially,
and registers are on the stack. Parallel loops stay parallel if their iterations are proved to be independent; else they run serially with
race detection (`track_races.py`; not for vector loops that contain calls). The checks rely on as little analysis as possible: ranges of
variables only remove checks of overflow and division, and only constant indices skip a bounds check.
"""

from __future__ import annotations

from ...dtype import i64
from ...sym import expr as E
from ...sym.bounds import int_range
from ...sym.conditions import all_of
from ...sym.expr import TRUE, Const, Expr, Var, free_vars, substitute
from ...sym.walk import walk
from .. import stmt as S
from ..buffer import Buffer, Load
from ..stmt import exprs as exprs_of
from ..verify_blocks import shared_memory
from ..verify_memory import CONCURRENT
from .check_exprs import VALUES, ExprChecks
from .instantiate import instantiate
from .lower_blocks import lower_blocks
from .track_races import Race, new_race
from .written import Track, for_all, new_track, reach


def add_checks(func: S.Func) -> S.Func:
    """Returns the program with run-time checks of indices, arithmetic, reads of undefined memory, and races; it needs shadow memory."""
    return func.with_(body=_Checks(func).function())


class _Checks(ExprChecks):
    """Rewrites one function with run-time checks; holds the shadow memory and the known ranges at the current statement."""

    def __init__(self, func: S.Func) -> None:
        super().__init__(func.name, func.span)
        self.func = _plain(func)
        self.indexing = _index_vars(self.func.body)
        self.races: list[Race] = []
        self.views: dict[Buffer, S.View] = {}
        self.now = 0  # the number of the current statement, for stamps

    def function(self) -> S.Stmt:
        """Returns the body of the function with checks added."""
        before: list[S.Stmt] = []
        passed = {a for s in S.walk_stmts(self.func.body) if isinstance(s, S.Call) for p, a in _buffers(s) if p.role == "out"}
        for p in self.func.params:
            if not isinstance(p.value, Buffer):
                continue
            if p.role == "out" or (p.role == "inout" and p.value in passed):
                self.tracks[p.value], setup = new_track(p.value, private=False, value=p.role == "inout")
                before += setup
            else:
                self.tracks[p.value] = Track(p.value, S.zero(), None)
        body = self.stmts(self.func.body)
        outs = [p.value for p in self.func.params if p.role == "out" and isinstance(p.value, Buffer)]
        return S.seq(*before, *body, *(self.complete(b) for b in outs))

    # Statements.

    def stmts(self, s: S.Stmt) -> list[S.Stmt]:
        """Returns `s` with the checks that precede it, and the updates of shadow memory that follow it."""
        around, facts = self.span, self.facts
        self.span = s.span or around
        self.now += 1
        match s:
            case S.Seq():
                checked = [x for inner in s.body for x in self.stmts(inner)]
            case S.For():
                checked = [*self.all(exprs_of(s), index=True), self.loop(s)]
            case S.While():
                body = self.inner(s.body)
                checked = [*self.all((s.cond,)), s.with_(body=S.seq(body, *self.all((s.cond,))))]
            case S.If():
                orelse = None if s.orelse is None else self.inner(s.orelse)
                checked = [*self.all((s.cond,)), s.with_(then=self.inner(s.then), orelse=orelse)]
            case S.Call():
                checked = self.call(s)
            case _:
                checked = self.simple(s)
        self.span = around
        if not isinstance(s, S.Seq | S.Let | S.View):
            self.facts = facts
        return checked

    def inner(self, s: S.Stmt) -> S.Stmt:
        """Returns a nested statement with its checks; ranges learned in it are dropped at its end."""
        facts = self.facts
        checked = S.seq(*self.stmts(s))
        self.facts = facts
        return checked

    def loop(self, s: S.For) -> S.Stmt:
        """Returns a loop with its checks, and with race detection if its iterations may share memory.

        Such a loop, and a vector loop, runs serially.
        """
        low, high = int_range(s.start, self.facts)[0], int_range(s.stop, self.facts)[1] - 1
        facts = self.facts
        if low <= high:
            self.facts = facts.with_range(s.var, low, high)
        followed = self.followed(s)
        if not followed:
            body = self.inner(s.body)
            self.facts = facts
            return s.with_(body=body, kind="serial" if s.kind == "vector" else s.kind)
        race, before = new_race(s, followed)
        self.races.append(race)
        now, self.now = self.now, 0
        body = self.inner(s.body)
        self.now = now
        self.races.pop()
        self.facts = facts
        return S.seq(*before, s.with_(body=body, kind="serial"))

    def followed(self, s: S.For) -> list[Track]:
        """The memory that iterations of a concurrent loop may share, as far as the analysis sees; empty if there is none."""
        if s.kind not in CONCURRENT and not s.kind.startswith("gpu."):
            return []
        if s.kind == "vector" and any(isinstance(x, S.Call) for x in S.walk_stmts(s.body)):
            return []
        roots = {self.tracks[b].root for b in shared_memory(self.func, s, self.views.values()) if b in self.tracks}
        return [Track(r, S.zero(), None) for r in roots]

    # Races.

    def access(self, b: Buffer, indices: tuple[Expr, ...], *, read: bool = False) -> list[S.Stmt]:
        """Returns the bounds checks of an access and, for a read in a parallel loop, the race checks and the statements that record it."""
        checks = super().access(b, indices, read=read)
        track = self.tracks[b]
        for race in self.races if read else ():
            if track.root in race.writers:
                for (place,) in track.places(b, indices):
                    checks += [self.race(race, track.root, place, b, indices, write=False), race.read(place, track.root, self.now)]
        return checks

    def wrote(self, b: Buffer, indices: tuple[Expr, ...]) -> list[S.Stmt]:
        """Returns the race checks of a write, and the statements that record the write in shadow memory."""
        checks: list[S.Stmt] = []
        track = self.tracks[b]
        for race in self.races:
            if track.root in race.writers:
                for (place,) in track.places(b, indices):
                    checks.append(self.race(race, track.root, place, b, indices, write=True))
                    mark = race.readers[track.root].load(place)
                    checks.append(self.depends(race, race.may_overwrite(mark, self.now), b, indices, "was read by another one", ()))
                    checks.append(race.wrote(place, track.root, self.now))
        return checks

    def race(self, race: Race, root: Buffer, place: Expr, b: Buffer, indices: tuple[Expr, ...], *, write: bool) -> S.Stmt:
        """Returns the check that no other iteration of the loop has written the element before."""
        stamp = race.writers[root].load(place)
        event = f"was written by {race.loop.var.name} = {{1}}"
        return self.depends(race, race.may_follow(stamp, self.now), b, indices, event, (race.shown(stamp),))

    def depends(self, race: Race, cond: Expr, b: Buffer, indices: tuple[Expr, ...], told: str, values: tuple[Expr, ...]) -> S.Stmt:
        """Returns a race check with the message that iterations of the loop depend on each other."""
        v, shown = race.loop.var, f"`{b.name}[{', '.join(map(str, indices))}]`"
        message = (
            f"iterations of the {race.loop.kind} loop `{v.name}` depend on each other in `{self.name}`: {shown} of {v.name} = {{0}} {told}"
        )
        return self.check(cond, message, (v, *values), "make the loop serial")

    def simple(self, s: S.Stmt) -> list[S.Stmt]:
        """Returns a statement that contains no other statements, with its checks before it and updates of shadow memory around it."""
        match s:
            case S.Let():
                checks = self.all((s.value,), index=s.var in self.indexing)
                self.know(s.var, s.value)
                return [*checks, s]
            case S.Store():
                checks = [*self.access(s.buffer, s.indices), *self.all((s.value,))]
                return [*checks, *self.wrote(s.buffer, s.indices), s, *self.tracks[s.buffer].mark(s.buffer, s.indices)]
            case S.Reduce():
                checks = [*self.all((*s.targets, *s.values)), *self.combiner(s)]
                return [*checks, *(x for t in s.targets for x in self.wrote(t.buffer, t.indices)), s]
            case S.Alloc():
                checks = [*self.all(exprs_of(s), index=True), *self.extents(s.buffer), s]
                self.tracks[s.buffer], shadow = new_track(s.buffer, private=s.buffer.scope == "stack")
                return [*checks, *shadow]
            case S.View():
                return self.view(s)
            case S.Check():
                values = self.all(s.values)
                tested = s.with_(kind="check") if s.kind == "assume" else s
                return [*self.all((s.cond,)), *([S.If(E.Not(s.cond), S.seq(*values))] if values else []), tested]
        return [s]

    def combiner(self, s: S.Reduce) -> list[S.Stmt]:
        """The checks of a combiner's expressions, with its parameters replaced by the values that it combines."""
        c = s.combiner
        values = dict(zip((*c.left, *c.right), (*s.targets, *s.values), strict=True)) if c.result else {}
        return self.all([substitute(e, values) for e in c.result])

    def view(self, s: S.View) -> list[S.Stmt]:
        """Returns a view with checks before it that it lies inside the memory; records its track, from the start of the memory's owner."""
        checks = [*self.all((*s.start, *s.buffer.shape, *(s.buffer.strides or ())), index=True), *self.extents(s.buffer)]
        self.views[s.buffer] = s
        source = self.tracks[s.source]
        start = source.base + source.scaled(s.source, s.source.flat_index(s.start))
        base: Expr = start
        if not isinstance(start, Const | Var):
            base = Var(f"{s.buffer.name}_start", i64)
            checks += [*self.all((start,), index=True), S.Let(base, start)]
            self.know(base, start)
        track = self.tracks[s.buffer] = Track(source.root, base, source.shadow)
        low, high = reach(s.buffer)
        first, last = base + track.scaled(s.buffer, low), base + track.scaled(s.buffer, high) + track.width(s.buffer) - 1
        empty = [E.Eq(e, S.zero()) for e in s.buffer.shape]
        inside = all_of(E.Le(S.zero(), first), E.Lt(last, track.size()))
        some = all_of(*(E.Not(e) for e in empty))
        fits = self.check(
            inside,
            f"view `{s.buffer.name}` leaves the memory of `{source.root.name}` in `{self.name}`: "
            "it takes the elements {0} to {1}, there are {2}",
            (first, last, track.size()),
            "start earlier, or make the view smaller",
        )
        wraps = self.all((first, last), index=True)
        checks.append(S.seq(*wraps, fits) if some is TRUE else S.If(some, S.seq(*wraps, fits)))
        return [*checks, s]

    def extents(self, b: Buffer) -> list[S.Stmt]:
        """Returns checks that the extents of a new buffer are not negative; none for extents whose range shows it."""
        return [
            self.check(E.Le(S.zero(), e), f"extent {d} of `{b.name}`, `{e}`, is {{0}} in `{self.name}`", (e,))
            for d, e in enumerate(b.shape)
            if int_range(e, self.facts)[0] < 0
        ]

    # Calls are inlined: views with the callee's names and shapes, and its body over them.

    def call(self, s: S.Call) -> list[S.Stmt]:
        """Returns the body of a called function, inlined with its checks, after checks of the arguments.

        All its outputs must be written by it.
        """
        checks = [*self.all(s.dims, index=True), *self.all(a for a in s.args if isinstance(a, Expr))]
        callee = s.func
        binding: dict[Var, Expr] = dict(zip(callee.symbols, s.dims, strict=True))
        args: list[Buffer | Expr] = list(s.args)
        for n, (p, a) in enumerate(zip(callee.params, s.args, strict=True)):
            if isinstance(p.value, Var) and isinstance(a, Expr):
                binding[p.value] = a
                if not isinstance(a, Const):  # passed by value: the callee may overwrite the memory it was computed from
                    args[n] = binding[p.value] = var = Var(p.value.name, p.value.dtype)
                    checks.append(S.Let(var, a))
                    self.know(var, a)
        outs: list[Buffer] = []
        for n, (p, a) in enumerate(zip(callee.params, s.args, strict=True)):
            if not isinstance(p.value, Buffer) or not isinstance(a, Buffer):
                continue
            shape = tuple(substitute(e, binding) for e in p.value.shape)
            strides = None if p.value.strides is None else tuple(substitute(e, binding) for e in p.value.strides)
            argument = Buffer(p.value.name, a.dtype, shape, strides, a.scope)
            checks += self.agree(s, a, argument)
            checks += self.view(S.View(argument, a, tuple(S.zero() for _ in a.shape)))
            args[n] = argument
            if p.role == "out":
                outs.append(argument)
        body = instantiate(_plain(callee), args, s.dims)
        around, name = self.indexing, self.name
        self.indexing, self.name = _index_vars(body), callee.name
        checks += [x for b in outs for x in self.forget(b)]
        checks += self.stmts(body)
        checks += [self.complete(b) for b in outs]
        self.indexing, self.name = around, name
        return checks

    def agree(self, s: S.Call, given: Buffer, wanted: Buffer) -> list[S.Stmt]:
        """The checks that an argument has the extents and strides that its parameter declares."""
        pairs = [(f"extent {d}", a, b) for d, (a, b) in enumerate(zip(given.shape, wanted.shape, strict=True))]
        if given.strides is not None or wanted.strides is not None:
            strides = zip(given.element_strides(), wanted.element_strides(), strict=True)
            pairs += [(f"stride {d}", a, b) for d, (a, b) in enumerate(strides)]
        summary = f"argument `{wanted.name}` of `{s.func.name}` does not fit in `{self.name}`"
        return [
            self.check(E.Eq(a, b), f"{summary}: {what} of `{given.name}` is {{0}}, {{1}} is expected", (a, b))
            for what, a, b in pairs
            if a is not b
        ]

    def forget(self, b: Buffer) -> list[S.Stmt]:
        """The statements that mark an output of a callee as unwritten: it is undefined when the call starts."""
        at = [Var(f"i{d}", i64) for d in range(b.ndim)]
        cleared = self.tracks[b].mark(b, tuple(at), 0)
        return [for_all(b, cleared, at)] if cleared else []

    def complete(self, b: Buffer) -> S.Stmt:
        """Returns the statement that checks, at the end, that every element of an output was written."""
        track = self.tracks[b]
        if track.shadow is None:
            return S.Seq(())
        at = [Var(f"i{d}", i64) for d in range(b.ndim)]
        place = ", ".join(f"{{{d}}}" for d in range(min(b.ndim, VALUES)))
        message = f"output `{b.name}` of `{self.name}` is not completely written: nothing is stored to `{b.name}[{place}]`"
        test = self.check(track.is_written(b, tuple(at)), message, at, "an output has a value everywhere on return")
        checked: S.Stmt = test.with_(span=self.span)
        counts = self.func.attrs.counted
        if b.name in counts and b in self.func.buffers:
            count = next(c for c in self.func.buffers if c.name == counts[b.name])
            checked = S.If(E.Lt(at[0], count.load()), checked)
        return for_all(b, [checked], at)


def _plain(func: S.Func) -> S.Func:
    """The function without blocks, unrolled loops and registers, so that every access is a plain statement."""
    lowered = lower_blocks(func)
    stack = {
        s.buffer: Buffer(s.buffer.name, s.buffer.dtype, s.buffer.shape, s.buffer.strides, "stack")
        for s in S.walk_stmts(lowered.body)
        if isinstance(s, S.Alloc) and s.buffer.scope == "register"
    }

    def serial(s: S.Stmt) -> S.Stmt:
        s = S.map_children(s, serial)
        return s.with_(kind="serial") if isinstance(s, S.For) and s.kind == "unroll" else s

    return lowered.with_(body=S.Replacer(buffers=stack).stmt(serial(lowered.body)))


def _index_vars(s: S.Stmt) -> frozenset[Var]:
    """Returns the variables from which indices, loop bounds and shapes are computed."""
    used: set[Var] = set()
    lets: list[S.Let] = []
    for x in S.walk_stmts(s):
        parts = exprs_of(x)
        if isinstance(x, S.Let):
            lets.append(x)
        elif isinstance(x, S.For | S.Alloc | S.View | S.Call):
            used.update(*map(free_vars, parts))
        elif isinstance(x, S.Store):
            used.update(*map(free_vars, x.indices))
        elif isinstance(x, S.Reduce):
            used.update(*(free_vars(i) for t in x.targets for i in t.indices))
        used.update(*(free_vars(n) for e in parts for n in walk(e) if isinstance(n, Load)))
    for let in reversed(lets):
        if let.var in used:
            used.update(free_vars(let.value))
    return frozenset(used)


def _buffers(s: S.Call) -> list[tuple[S.Param, Buffer]]:
    """The buffer arguments of a call, each with its parameter."""
    return [(p, a) for p, a in zip(s.func.params, s.args, strict=True) if isinstance(a, Buffer)]
