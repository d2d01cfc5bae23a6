"""Structural equality (alpha-equivalence) and hashes of loop programs.

Two programs are the same if they execute the same steps. Names of functions, parameters, variables and buffers, and source locations do
not count; ranges of dims, block names, annotations and the order of parameters do. A symbol that is a plain variable counts as a dim of
the full range. Nested sequences count as one.

    same(a, b); assert_same(a, b)        # the latter names the first path that differs
    structural_hash(func)                # sha256, stable across processes
    promoted_hash(func)                  # the same for programs that differ only in static dims of their parameters
    opened(func)                         # a hash for the same, whatever its blocks are called and its dims may be; and the static dims

All of them use one walk that writes a program as a list of lines. Variables, buffers and distinct expressions are numbered in order of
appearance, so the list is linear in the size of the program even where expressions share subexpressions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from ..dtype import i64
from ..sym.expr import DIM_MAX, Const, Dim, Expr, Var, free_vars
from ..sym.walk import walk
from .buffer import Buffer, Load
from .stmt import Alloc, Block, Call, Check, For, Func, If, Let, Reduce, Region, Seq, Stmt, Store, View, While


def canonical_text(func: Func) -> str:
    """A canonical form: two programs have the same text exactly if they are equal up to names and source lines; for cache keys."""
    return "\n".join(_Writer(func).lines)


def names_of(func: Func) -> tuple[tuple[Var, ...], tuple[Buffer, ...]]:
    """Returns the variables and the buffers of a program in the order in which its canonical text numbers them."""
    writer = _Writer(func)
    return tuple(writer.vars), tuple(writer.buffers)


def structural_hash(func: Func) -> bytes:
    """Returns the sha256 of a program's canonical text: equal for programs that differ only in names and source lines."""
    return hashlib.sha256(canonical_text(func).encode()).digest()


def promoted_hash(func: Func) -> bytes:
    """The sha256 of the canonical text, with the constant extents of parameters replaced by symbols wherever they occur.

    Programs with the same hash become one program once these dims are promoted to arguments. Matmuls of 384 x 1536 and of 576 x 1536
    share it; one of 384 x 384 does not, because there the two dims are equal. An extent of 1 is never promoted, because it decides
    broadcasting.
    """
    return hashlib.sha256("\n".join(_Writer(func, promoted=_promoted(func)).lines).encode()).digest()


def opened(func: Func, hints: Iterable[str] = ()) -> tuple[bytes, tuple[int, ...]]:
    """Returns a hash of the program with its sizes opened, and these sizes in the order of their first use.

    As in `promoted_hash`, constant extents of parameters count as symbols. Names of blocks, ranges of dims, and the annotations `hints` do
    not count either: what holds for such a program holds, more or less well, for all programs of its form.
    """
    promoted = _promoted(func)
    lines = _Writer(func, promoted=promoted, form=frozenset(hints)).lines
    return hashlib.sha256("\n".join(lines).encode()).digest(), tuple(promoted)


def _promoted(func: Func) -> dict[int, str]:
    """Returns a symbol for each constant extent of the parameters, except 1."""
    sizes = [int(e.value) for b in func.buffers for e in b.shape if isinstance(e, Const) and e.value != 1]
    return {size: f"k{n}" for n, size in enumerate(dict.fromkeys(sizes))}


def same(a: Func, b: Func) -> bool:
    """True if two programs have the same structure."""
    return a is b or canonical_text(a) == canonical_text(b)


def assert_same(a: Func, b: Func) -> None:
    """Raises an AssertionError that names the first path where the programs differ; does nothing if they are the same."""
    left, right = _Writer(a, track=True), _Writer(b, track=True)
    if left.lines == right.lines:
        return
    count = min(len(left.lines), len(right.lines))
    first = next((k for k in range(count) if left.lines[k] != right.lines[k]), count)
    for w, other in ((left, right), (right, left)):
        if first >= len(w.lines):
            raise AssertionError(f"programs differ at {other.marks[first][0]}: only one has `{other.shown(first)}`")
    path, there = left.marks[first][0], right.marks[first][0]
    where = path if path == there else f"{path} (there {there})"
    raise AssertionError(f"programs differ at {where}: `{left.shown(first)}` is not `{right.shown(first)}`")


class _Writer:
    """Writes a program as canonical lines, names replaced by numbers; with `track`, also the path of each line and its object."""

    def __init__(
        self, func: Func, *, track: bool = False, promoted: Mapping[int, str] | None = None, form: frozenset[str] | None = None
    ) -> None:
        self.promoted = promoted or {}  # constant -> the symbol that replaces it
        self.form = form  # if set, names of blocks, ranges of dims, and annotations of these names are left out
        self.lines: list[str] = []
        self.marks: list[tuple[str, object]] = []
        self.track = track
        self.path: list[str] = []
        self.vars: dict[Var, str] = {}
        self.buffers: dict[Buffer, str] = {}
        self.seen: dict[Expr, str] = {}
        self.count = 0
        self.function(func)

    def shown(self, line: int) -> str:
        """Returns a line of the canonical text in readable form."""
        what = self.marks[line][1]
        return str(what) if isinstance(what, Expr | Buffer) else str(what or self.lines[line])

    def emit(self, line: str, what: object = None) -> None:
        """Appends a line to the canonical text; `what` is the object that it shows."""
        self.lines.append(line)
        if self.track:
            self.marks.append((".".join(self.path) or "function", what))

    def bind(self, var: Var) -> str:
        """Gives a variable that is bound here the next number; returns the number and its dtype as text."""
        if var in self.vars:  # bound again in another scope: expressions over the earlier binding are different ones
            self.seen = {e: n for e, n in self.seen.items() if var not in free_vars(e)}
        self.count += 1
        number = self.vars[var] = f"v{self.count}"
        return f"{number}:{var.dtype.name}"

    def buffer(self, b: Buffer, part: str) -> str:
        """Numbers a buffer that is defined here; the text contains its dtype, scope, shape and strides."""
        shape = self.exprs(b.shape, f"{part}.shape")
        strides = "-" if b.strides is None else self.exprs(b.strides, f"{part}.strides")
        if b in self.buffers:
            self.seen = {e: n for e, n in self.seen.items() if not any(isinstance(x, Load) and x.buffer is b for x in walk(e))}
        self.count += 1
        number = self.buffers[b] = f"b{self.count}"
        return f"{number}:{b.dtype.name} {b.scope} [{shape}] {strides}"

    def use(self, b: Buffer) -> str:
        """The number of a buffer; a free one is written by its name."""
        return self.buffers.get(b) or f"?{b.name}"

    # Expressions.

    def expr(self, e: Expr, part: str) -> str:
        """The number of an expression; emits lines for the subexpressions that are new. A free variable is written by its name."""
        known = self.seen.get(e)
        if known is not None:
            return known
        if isinstance(e, Var):
            number = self.vars.get(e)
            return number if number is not None else f"?{e.name}"  # not memoized: it may be bound later
        if self.promoted and isinstance(e, Const) and e.dtype is i64 and e.value in self.promoted:
            return self.promoted[e.value]
        args = [self.expr(a, part) for a in e.args]
        extra = self.use(e.buffer) if isinstance(e, Load) else "" if e.payload is None else str(e.payload)
        self.count += 1
        number = self.seen[e] = f"e{self.count}"
        self.path.append(part)
        self.emit(f"{number}={type(e).__name__}:{e.dtype.name} {extra} {' '.join(args)}", e)
        self.path.pop()
        return number

    def exprs(self, es: Iterable[Expr], part: str) -> str:
        """Returns the numbers of several expressions, written under the path `part`."""
        return " ".join([self.expr(e, part) for e in es])

    # The function.

    def function(self, func: Func) -> None:
        """Writes the parameters, the attributes and the body."""
        for p in func.params:
            if isinstance(p.value, Var):
                self.emit(f"scalar {self.bind(p.value)} {p.role}", p.value.name)
        for s in func.symbols:
            low, high, step = (s.min, s.max, s.multiple_of) if isinstance(s, Dim) and self.form is None else (0, DIM_MAX, 1)
            self.emit(f"dim {self.bind(s)} {low} {high} {step}", s.contract if isinstance(s, Dim) else s.name)
        for p in func.params:
            if isinstance(p.value, Buffer):
                self.emit(f"tensor {self.buffer(p.value, p.value.name)} {p.role}", f"{p.value} ({p.role})")
            else:
                self.emit(f"scalar {self.vars[p.value]}", p.value.name)
        self.emit(f"attrs {_notes({key: self.attribute(value, func) for key, value in func.attrs.items()})}")
        self.stmt(func.body, "body")

    def attribute(self, value: object, func: Func) -> object:
        """An attribute's value; a table keyed by parameter name (layouts) is keyed by number instead, because names do not count."""
        if not isinstance(value, Mapping):
            return value
        numbers = {b.name: self.use(b) for b in func.buffers}
        return {numbers.get(key, key): entry for key, entry in value.items()}

    def stmt(self, s: Stmt, label: str) -> None:
        """Writes one statement under a path label."""
        self.path.append(label)
        _WRITE[type(s)](self, s)
        self.path.pop()

    def seq(self, s: Seq) -> None:
        flat = _flat(s)
        self.emit(f"seq {len(flat)}", f"{len(flat)} statements")
        for k, inner in enumerate(flat):
            self.stmt(inner, str(k))

    def loop(self, s: For) -> None:
        bounds = self.exprs((s.start, s.stop), "bounds")
        self.emit(
            f"for {self.bind(s.var)} {bounds} {s.kind} {_notes(s.annotations)}",
            f"{s.kind} loop {s.var.name} {_notes(s.annotations)}".strip(),
        )
        self.stmt(s.body, f"for {s.var.name}")

    def block(self, s: Block) -> None:
        values = self.exprs((i.value for i in s.iters), "values")
        iters = " ".join([f"{i.kind}{self.bind(i.var)}" for i in s.iters])
        name = repr(s.name) if self.form is None else ""
        self.emit(f"block {name} {iters} = {values}", f'block {s.name} "{"".join(i.kind for i in s.iters)}"')
        self.emit(f"where {self.expr(s.predicate, 'where')}", s.predicate)
        for word, regions in (("reads", s.reads), ("writes", s.writes)):
            self.emit(f"{word} {'-' if regions is None else len(regions)}", f"{word}: {'derived' if regions is None else len(regions)}")
            for r in regions or ():
                self.region(word, r)
        self.emit(f"notes {_notes({k: v for k, v in s.annotations.items() if k not in (self.form or ())})}")
        self.emit(f"init {s.init is not None}", "init" if s.init is not None else "no init")
        if s.init is not None:
            self.stmt(s.init, f"block {s.name}.init")
        self.stmt(s.body, f"block {s.name}")

    def region(self, word: str, r: Region) -> None:
        self.emit(f"region {self.use(r.buffer)} {self.exprs(r.starts, word)} : {self.exprs(r.extents, word)}", f"{word} {r.buffer.name}")

    def store(self, s: Store) -> None:
        self.emit(f"store {self.use(s.buffer)} {self.exprs(s.indices, 'index')} = {self.expr(s.value, 'value')}", f"store {s.buffer.name}")

    def reduce(self, s: Reduce) -> None:
        c = s.combiner
        targets = " ".join([f"{self.use(t.buffer)}[{self.exprs(t.indices, 'index')}]" for t in s.targets])
        values = self.exprs(s.values, "value")
        left, right = ([self.bind(v) for v in side] for side in (c.left, c.right))
        results = self.exprs(c.result, "combiner")
        self.emit(f"reduce {c.name} {targets} {values} {left} {right} {results}", f"reduce {c.name} {s.targets[0].buffer.name}")

    def let(self, s: Let) -> None:
        value = self.expr(s.value, "value")
        self.emit(f"let {self.bind(s.var)} {value}", f"let {s.var.name}")

    def alloc(self, s: Alloc) -> None:
        self.emit(f"alloc {self.buffer(s.buffer, 'alloc')}", f"alloc {s.buffer} {s.buffer.scope}")

    def view(self, s: View) -> None:
        source = f"{self.use(s.source)}[{self.exprs(s.start, 'start')}]"
        self.emit(f"view {self.buffer(s.buffer, 'view')} {source}", f"view {s.buffer} of {s.source.name}")

    def if_(self, s: If) -> None:
        self.emit(f"if {self.expr(s.cond, 'condition')} {s.orelse is not None}", "if" if s.orelse is None else "if with else")
        self.stmt(s.then, "if")
        if s.orelse is not None:
            self.stmt(s.orelse, "else")

    def while_(self, s: While) -> None:
        self.emit(f"while {self.expr(s.cond, 'condition')}", "while")
        self.stmt(s.body, "while")

    def call(self, s: Call) -> None:
        args = [self.use(a) if isinstance(a, Buffer) else self.expr(a, "argument") for a in s.args]
        self.emit(f"call {structural_hash(s.func).hex()} {args} {self.exprs(s.dims, 'dims')}", f"call {s.func.name}")

    def check(self, s: Check) -> None:
        self.emit(
            f"check {self.expr(s.cond, 'condition')} {self.exprs(s.values, 'value')} {s.message!r} {s.help!r} {s.kind}",
            f"check {s.message}",
        )


_WRITE: dict[type[Stmt], Any] = {
    Seq: _Writer.seq,
    For: _Writer.loop,
    Block: _Writer.block,
    Store: _Writer.store,
    Reduce: _Writer.reduce,
    Let: _Writer.let,
    Alloc: _Writer.alloc,
    View: _Writer.view,
    If: _Writer.if_,
    While: _Writer.while_,
    Call: _Writer.call,
    Check: _Writer.check,
}


def _flat(s: Seq) -> list[Stmt]:
    """Returns the statements of a sequence with nested sequences flattened."""
    return [x for inner in s.body for x in (_flat(inner) if isinstance(inner, Seq) else [inner])]


def _notes(notes: Mapping[str, Any]) -> str:
    """Annotations as text, sorted by key."""
    return " ".join(f"{k}={notes[k]!r}" for k in sorted(notes)) if notes else ""
