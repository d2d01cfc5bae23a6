"""Cursors: how an edit of a program tells where each statement went.

A cursor of a pure primitive is the statement itself (a `For` or a `Block`): statements are compared by identity, so nothing else is needed
to point at one. An edit rebuilds the path from the change to the root and returns `(func, forward)`. `forward(statement)` is the statement
of the new program that took its place; it raises a `ScheduleError` with the reason if there is none.

    edit = Edit(func)
    edit.replace(loop, new_loop)                  # a whole subtree; its inside went where `edit.moved` says
    func, forward = edit.done(made=(new_loop,))
    forward(block_inside)

`Schedule` composes the forwards of its edits and hands out `Handle`s, which stay valid as long as their statements exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from ..loop.analysis.nests import bound_value, index
from ..loop.buffer import Buffer
from ..loop.stmt import Alloc, Block, For, Func, If, Iter, Let, Replacer, Seq, Stmt, View, map_children, seq, walk_stmts
from ..support.errors import ScheduleError
from ..support.record import dataclass
from ..sym.expr import Expr, Var
from ..sym.facts import Facts

EMPTY = Seq(())  # replacing a statement by it removes the statement


@dataclass(frozen=True, slots=True)
class Forward:
    """A record of one edit: where each statement went, which are gone and why, which are new, and how results may round differently."""

    moved: Mapping[Stmt, Stmt]
    dead: Mapping[Stmt, str]
    made: tuple[Stmt, ...] = ()
    rounding: str = ""  # how results may differ in their last bits; "" if they do not
    tails: tuple[Stmt, ...] = ()  # the remainder loops among the created statements

    def __call__(self, s: Stmt) -> Stmt:
        """Return the statement that an old statement `s` became through the edit, `s` itself if it stayed.

        Raise ScheduleError if it is gone.
        """
        reason = self.dead.get(s)
        if reason is not None:
            raise ScheduleError(reason)
        return self.moved.get(s, s)


def compose(first: Forward, second: Forward) -> Forward:
    """Return one `Forward` for two edits, `first` and then `second`."""
    moved = {old: second.moved.get(new, new) for old, new in first.moved.items() if new not in second.dead}
    dead = dict(first.dead) | {old: second.dead[new] for old, new in first.moved.items() if new in second.dead}
    for old, new in second.moved.items():
        moved.setdefault(old, new)
    for old, reason in second.dead.items():
        if old not in moved:
            dead.setdefault(old, reason)
    made = tuple(second(s) for s in first.made) + second.made
    tails = tuple(second(s) for s in first.tails) + second.tails
    return Forward(moved, dead, made, "; ".join(r for r in (first.rounding, second.rounding) if r), tails)


class Edit:
    """A set of replacements of statements in one program, applied together by `done`; it tracks where every statement goes."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.replaced: dict[Stmt, Stmt] = {}
        self.moved: dict[Stmt, Stmt] = {}
        self.dead: dict[Stmt, str] = {}

    def replace(self, old: Stmt, new: Stmt) -> None:
        """Put `new` in the place of `old`; `EMPTY` removes it, together with loops left without a body."""
        self.replaced[old] = new

    def move(self, old: Stmt, new: Stmt) -> None:
        """Record that `new` takes the place of `old`: handles of `old` will refer to `new`."""
        self.moved[old] = new

    def kill(self, stmts: Iterable[Stmt], reason: str) -> None:
        """Record that these statements are gone: a handle of one of them raises an error with the reason."""
        for s in stmts:
            self.dead[s] = reason

    def done(self, made: tuple[Stmt, ...] = (), rounding: str = "", tails: tuple[Stmt, ...] = ()) -> tuple[Func, Forward]:
        """Apply all replacements; return the new program, and the `Forward` that tells where its old statements went."""
        above = index(self.func.body).parents
        touched: set[Stmt] = set()
        for s in self.replaced:
            while s in above and above[s] not in touched:
                s = above[s]
                touched.add(s)
        func = self.func.with_(body=self._visit(self.func.body, touched))
        alive = {x for new in self.replaced.values() for x in walk_stmts(new)} | {self.moved[s] for s in touched if s in self.moved}
        moved: dict[Stmt, Stmt] = {}
        for s in (*touched, *(x for old in self.replaced for x in walk_stmts(old))):
            if s in self.dead or s in alive:
                continue
            end = s
            while end in self.moved and end not in alive:
                end = self.moved[end]
            if end in alive:
                moved[s] = end
            else:
                self.dead[s] = "the part of the program it was in was replaced"
        return func, Forward(moved, self.dead, made, rounding, tails)

    def _visit(self, s: Stmt, touched: set[Stmt]) -> Stmt:
        new = self.replaced.get(s)
        if new is None:
            if s not in touched:
                return s
            new = _tidy(map_children(s, lambda x: self._visit(x, touched)))
            if new is not s:
                self.moved[s] = new
        return new


def _tidy(s: Stmt) -> Stmt:
    if isinstance(s, Seq):
        return seq(*s.body) if len(s.body) != 0 else s
    if isinstance(s, For) and is_empty(s.body):
        return EMPTY
    if isinstance(s, If) and is_empty(s.then) and s.orelse is None:
        return EMPTY
    return s


def is_empty(s: Stmt) -> bool:
    """True if a statement is an empty sequence."""
    return isinstance(s, Seq) and not s.body


class Mover(Replacer):
    """A `Replacer` that records where each statement went, and simplifies iterator bindings if it has facts."""

    __slots__ = ("facts", "moved")

    def __init__(
        self,
        moved: dict[Stmt, Stmt],
        vars: Mapping[Var, Expr] | None = None,
        buffers: Mapping[Buffer, Buffer] | None = None,
        facts: Facts | None = None,
    ) -> None:
        super().__init__(vars or {}, buffers or {})
        self.moved = moved
        self.facts = facts

    def stmt(self, s: Stmt) -> Stmt:
        """Return `s` with variables and buffers replaced; record in `moved` what each statement in it became."""
        new = Replacer.stmt(self, s)
        if self.facts is not None and isinstance(new, Block):
            new = new.with_(iters=tuple(Iter(i.var, i.kind, bound_value(i.value, self.facts)) for i in new.iters))
        self.moved[s] = new
        return new


@dataclass
class Copier:
    """Copies statements with new loop variables, iterators, lets, buffers and block names, so that a copy can stand beside the original."""

    names: set[str]  # block names in use; names of copies are added
    suffix: str
    vars: dict[Var, Expr] = field(default_factory=dict)
    buffers: dict[Buffer, Buffer] = field(default_factory=dict)

    def copy(self, s: Stmt) -> Stmt:
        """Return a copy of `s` with all binders renewed, and the replacements in `vars` and `buffers` made."""
        self._bind(s)
        return self._rename(Replacer(self.vars, self.buffers).stmt(s))

    def _bind(self, s: Stmt) -> None:
        for x in walk_stmts(s):
            match x:
                case For() | Let():
                    self.vars[x.var] = Var(x.var.name, x.var.dtype)
                case Block():
                    self.vars.update({i.var: Var(i.var.name, i.var.dtype) for i in x.iters})
                case Alloc() | View():
                    shape = tuple(Replacer(self.vars).expr(e) for e in x.buffer.shape)
                    self.buffers[x.buffer] = Buffer(x.buffer.name, x.buffer.dtype, shape, x.buffer.strides, x.buffer.scope)

    def _rename(self, s: Stmt) -> Stmt:
        s = map_children(s, self._rename)
        match s:
            case For() | Let():
                return s.with_(var=self.vars[s.var])
            case Block():
                iters = tuple(Iter(self._var(i.var), i.kind, i.value) for i in s.iters)
                return s.with_(name=marked_name(s.name, self.suffix, self.names), iters=iters)
        return s

    def _var(self, v: Var) -> Var:
        new = self.vars[v]
        assert isinstance(new, Var)
        return new


def fresh_name(wanted: str, taken: set[str]) -> str:
    """Return `wanted`, with a number appended if it is taken, and mark the name as taken."""
    name, n = wanted, 1
    while name in taken:
        n += 1
        name = f"{wanted}{n}"
    taken.add(name)
    return name


def marked_name(name: str, mark: str, taken: set[str]) -> str:
    """Return `name` with a suffix such as `_sum`; a name that has the suffix already is numbered: `c_sum`, `c_sum2`, not `c_sum_sum`.

    A suffix that ends in a number (`_tail3`) is repeated, because `c_tail32` would read as a tail of 32.
    """
    stem, again, number = name.rpartition(mark)
    marked = bool(stem and again) and not mark[-1:].isdigit() and (not number or number.isdigit())
    return fresh_name(f"{stem if marked else name}{mark}", taken)
