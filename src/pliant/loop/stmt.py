"""The IR of loop programs: functions over buffers, made of loops and blocks. Grammar and semantics.

    func   = Func(name, params, body, attrs)
    param  = Param(value, role)                        value: a Buffer, or a Var that is a scalar; role: in | out | inout
    s      = For(var, start, stop, kind, body)         kind: serial | parallel | vector | unroll | gpu.<axis>
                                                      annotations["grain"]: iterations of a chunk, a number or an i64 expression
           | Block(name, iters, body, init, predicate, reads, writes)
           | Store(buffer, indices, value)
           | Reduce(combiner, targets, values)         targets = combiner(targets, values)
           | Let(var, value)                           in scope to the end of the enclosing Seq
           | Alloc(buffer)                             likewise; contents undefined
           | View(buffer, source, start)               likewise; `buffer` names part of `source`'s memory
           | If(cond, then, orelse)
           | While(cond, body)
           | Call(func, args, dims)                    another loop program; `dims` are the values of its symbols
           | Check(cond, message, values)              a run-time check: the program fails with the message if `cond` is false;
                                                      of kind "assume": a fact; only interpreter and checked mode test it
           | Seq(body)
    iter   = Iter(var, kind, value)                    kind: S spatial | R reduction | O ordered
    region = Region(buffer, starts, extents)
    combiner = Combiner(name, left, right, result)     name: add mul min max and or fma, or a lambda's

Semantics:
- The symbols of a function are the variables in its parameters' shapes and strides that are not scalar parameters, in order of
  appearance. They are passed by value (`dims` of the ABI: symbols, then scalars). Every dim is >= 0. A loop whose stop is not above its
  start runs zero times. `start` and `stop` are evaluated once. Loop variables and indices are i64; the code generator narrows them where
  a proof allows it.
- serial, unroll: iterations run in order. vector: the iterations are SIMD lanes in lockstep, i.e. all lanes of a statement finish before
  the next statement starts (a program is legal only if that equals the serial order). parallel: iterations run in any order and at the
  same time; no iteration may read or write what another one writes. gpu.*: like parallel.
- Elements of storage types (`dtype.py`) are widened by a load and rounded by a store. If they are smaller than a byte, a store is a
  read-modify-write of the whole byte. So in a parallel loop iterations must own whole bytes: none may touch an element in a byte that
  another one writes. (The verifier rejects certain mistakes; a loop that is not proved to be legal runs serially.) Lanes of a vector loop
  may share bytes. A view begins at a whole byte. Bytes (u8) may be viewed as elements of any type, elements of a storage type as their
  codes (unsigned integers of the same width) or as bytes.
- A block runs `body` once for each iteration of its loops where `predicate` holds, with its iterators bound to their values: one
  instance. Inside it may use only its iterators, the parameters, the symbols, lets from outside of all loops, and buffers whose address
  and shape no surrounding loop changes. S instances are independent: none touches an element that another one writes (within one lifetime
  of its buffer). R instances may be reordered as a schedule declares: they share only targets of reductions, at indices that do not
  depend on R iterators. O instances keep their order and may read what earlier ones wrote. The verifier proves these claims
  (`verify_blocks.py`).
- `init` runs once for each value of the S iterators, just before the outermost loop that feeds an R iterator, also when that loop runs
  zero times: an empty sum is what init says. (If that loop feeds S iterators too, init runs where every R iterator is 0.) In a block of S
  iterators alone it runs in the instance. It sees the S iterators only, and runs where those conjuncts of the predicate hold that depend
  on S iterators only.
- `reads` and `writes` cover everything that the body and init touch; they are derived when not written.
- Reduce with a named combiner: add, mul, min, max, and, or: `t = op(t, v)`; fma: `t = fma(v0, v1, t)`. A lambda combines tuples:
  left variables are bound to the targets, right ones to the values, and all results are computed before any is stored.
- Out parameters are undefined on entry and completely written on return. No two parameters alias unless both are `in`. The attribute
  `counted={"y": "count"}` of a function says that only the first `count[()]` slices of the output `y` along its first dim are written.
- The annotation `instruction="name"` of a loop says that the tensor instruction `name` performs the whole loop. The loop keeps its
  meaning: a code generator that lacks the instruction, or no longer recognizes it, compiles the loop. Passes that only prepare code leave
  the inside of such a loop as it is.
- An access outside of a buffer's shape is undefined; checked mode and the verifier exist to find it.

Statements are immutable and compared by identity: two equal loops are two loops. `loop.structural` compares by structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal, Self

from ..dtype import i64
from ..support.record import dataclass
from ..support.source import Span
from ..sym.conditions import all_of, conjuncts
from ..sym.expr import TRUE, Const, Expr, Var, free_vars
from ..sym.walk import rewrite, walk
from .attributes import NO_ATTRS, FuncAttrs
from .buffer import Buffer, Load

INSTRUCTION = "instruction"  # the annotation of loops that a tensor instruction performs

LoopKind = Literal["serial", "parallel", "vector", "unroll"] | str
IterKind = Literal["S", "R", "O"]
Role = Literal["in", "out", "inout"]
CheckKind = Literal["check", "shape", "assume"]


class Stmt:
    """A statement; immutable, compared by identity."""

    __slots__ = ()
    span: Span | None

    def with_(self, **changes: Any) -> Self:
        """This statement with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False, slots=True)
class For(Stmt):
    """`for var in start..stop`."""

    var: Var
    start: Expr
    stop: Expr
    kind: LoopKind
    body: Stmt
    annotations: Mapping[str, Any] = field(default_factory=dict)
    span: Span | None = None

    @property
    def extent(self) -> Expr:
        """The number of iterations (if not negative)."""
        return self.stop - self.start


@dataclass(frozen=True, eq=False, slots=True)
class Iter:
    """An iterator of a block: its variable, its kind, and the value that it is bound to, in terms of loop variables."""

    var: Var
    kind: IterKind
    value: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A box of a buffer: a start and an extent for each dimension."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Block(Stmt):
    """A unit of computation over iterators; schedules move it as a whole."""

    name: str
    iters: tuple[Iter, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr = TRUE
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)
    span: Span | None = None

    @property
    def init_predicate(self) -> Expr:
        """The conjuncts of the predicate without reduction iterators: they guard the init, which also runs for an empty sum."""
        reduced = {i.var for i in self.iters if i.kind != "S"}
        if reduced.isdisjoint(free_vars(self.predicate)):
            return self.predicate
        return all_of(*(c for c in conjuncts(self.predicate) if reduced.isdisjoint(free_vars(c))))


@dataclass(frozen=True, eq=False, slots=True)
class Store(Stmt):
    """`buffer[indices] = value`."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Combiner:
    """How a reduction combines a new value with its accumulator: a named operation, or a lambda over tuples."""

    name: str
    left: tuple[Var, ...] = ()
    right: tuple[Var, ...] = ()
    result: tuple[Expr, ...] = ()


NAMED_COMBINERS: dict[str, Combiner] = {n: Combiner(n) for n in ("add", "mul", "min", "max", "and", "or", "fma")}


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(Stmt):
    """`targets = combiner(targets, values)`."""

    combiner: Combiner
    targets: tuple[Load, ...]
    values: tuple[Expr, ...]
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Let(Stmt):
    """`var = value`, to the end of the enclosing Seq."""

    var: Var
    value: Expr
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Alloc(Stmt):
    """A new buffer, to the end of the enclosing Seq."""

    buffer: Buffer
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class View(Stmt):
    """`buffer` names the memory of `source` from the element `start` on, with the shape and strides of `buffer`."""

    buffer: Buffer
    source: Buffer
    start: tuple[Expr, ...]
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class If(Stmt):
    """`then` if `cond` holds, else `orelse`."""

    cond: Expr
    then: Stmt
    orelse: Stmt | None = None
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class While(Stmt):
    """`body` as long as `cond` holds."""

    cond: Expr
    body: Stmt
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Call(Stmt):
    """A call of another loop program: an argument for each parameter, a value for each symbol."""

    func: Func
    args: tuple[Buffer | Expr, ...]
    dims: tuple[Expr, ...]
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Check(Stmt):
    """Fails the program with `message` (its `{0}`, `{1}`, … replaced by the i64 `values`) unless `cond` holds."""

    cond: Expr
    message: str
    values: tuple[Expr, ...] = ()
    help: str = ""
    kind: CheckKind = "check"  # the error class, or "assume" for a fact that is not tested
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Seq(Stmt):
    """Statements in order; the scope of the lets, allocations and views among them."""

    body: tuple[Stmt, ...]
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Param:
    """A parameter: a buffer that is read, written or both, or a scalar."""

    value: Buffer | Var
    role: Role = "in"


@dataclass(frozen=True, eq=False, slots=True)
class Func:
    """A loop program."""

    name: str
    params: tuple[Param, ...]
    body: Stmt
    attrs: FuncAttrs = NO_ATTRS
    span: Span | None = None

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffer parameters in order: the `buffers` of the ABI."""
        return tuple(p.value for p in self.params if isinstance(p.value, Buffer))

    @property
    def scalars(self) -> tuple[Var, ...]:
        """The scalar parameters in order."""
        return tuple(p.value for p in self.params if isinstance(p.value, Var))

    @property
    def symbols(self) -> tuple[Var, ...]:
        """The variables that occur in the shapes and strides of parameters, in order of appearance, without scalar parameters."""
        scalars = set(self.scalars)
        symbols: dict[Var, None] = {}
        for b in self.buffers:
            for e in (*b.shape, *(b.strides or ())):
                for node in walk(e) if e.args else (e,):
                    if isinstance(node, Var) and node not in scalars:
                        symbols.setdefault(node)
        return tuple(symbols)

    def role(self, buffer: Buffer) -> Role:
        """Returns the role of a buffer parameter: "in", "out" or "inout"."""
        return next(p.role for p in self.params if p.value is buffer)

    def with_(self, **changes: Any) -> Func:
        """This function with some fields changed."""
        return replace(self, **changes)

    def with_body(self, body: Stmt) -> Func:
        """Returns this function with another body; the function itself if `body` is the body that it has."""
        return self if body is self.body else replace(self, body=body)

    def __repr__(self) -> str:
        from .printer import print_func

        return print_func(self)


def is_instruction(s: Stmt) -> bool:
    """True if a tensor instruction performs the whole statement."""
    return isinstance(s, For) and INSTRUCTION in s.annotations


def without_mark(loop: For) -> For:
    """Returns the loop without the annotation that a tensor instruction performs it."""
    return loop.with_(annotations={k: v for k, v in loop.annotations.items() if k != INSTRUCTION})


def seq(*body: Stmt) -> Stmt:
    """The statements as one statement: nested sequences are joined, a single statement stays as it is."""
    flat: list[Stmt] = []
    for s in body:
        flat.extend(s.body if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def children(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside `s`, in order of execution."""
    # Tests of the class one by one take half the time of a `match`, and this is called for every statement of every walk.
    if isinstance(s, Seq):
        return s.body
    if isinstance(s, For):
        return (s.body,)
    if isinstance(s, Block):
        return (s.init, s.body) if s.init is not None else (s.body,)
    if isinstance(s, If):
        return (s.then, s.orelse) if s.orelse is not None else (s.then,)
    if isinstance(s, While):
        return (s.body,)
    return ()


def walk_stmts(s: Stmt) -> Iterator[Stmt]:
    """Every statement of `s`, outer before inner, in order."""
    stack = [s]
    while stack:
        node = stack.pop()
        yield node
        inside = children(node)
        if inside:
            stack.extend(reversed(inside))


def exprs(s: Stmt) -> tuple[Expr, ...]:
    """The expressions directly in `s` (not those of nested statements), including the indices of its targets."""
    match s:
        case For():
            grain = s.annotations.get("grain")
            return (s.start, s.stop, grain) if isinstance(grain, Expr) else (s.start, s.stop)
        case Block():
            regions = (*(s.reads or ()), *(s.writes or ()))
            return (*(i.value for i in s.iters), s.predicate, *(e for r in regions for e in (*r.starts, *r.extents)))
        case Store():
            return (*s.indices, s.value)
        case Reduce():
            return (*(e for t in s.targets for e in t.indices), *s.values)
        case Let():
            return (s.value,)
        case Alloc():
            return (*s.buffer.shape, *(s.buffer.strides or ()))
        case View():
            return (*s.start, *s.buffer.shape, *(s.buffer.strides or ()))
        case If() | While():
            return (s.cond,)
        case Call():
            return (*(a for a in s.args if isinstance(a, Expr)), *s.dims)
        case Check():
            return (s.cond, *s.values)
    return ()


def writes(s: Stmt) -> Iterator[Buffer]:
    """The buffers that `s` itself writes (without nested statements)."""
    match s:
        case Store():
            yield s.buffer
        case Reduce():
            yield from (t.buffer for t in s.targets)
        case Call():
            yield from (a for p, a in zip(s.func.params, s.args, strict=True) if isinstance(a, Buffer) and p.role != "in")


def map_children(s: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """`s` with `f` applied to each statement directly inside; `s` itself if nothing changed."""
    match s:
        case Seq():
            body = tuple(f(x) for x in s.body)
            return s if all(a is b for a, b in zip(body, s.body, strict=True)) else s.with_(body=seq_body(body))
        case Block():
            init = f(s.init) if s.init is not None else None
            inner = f(s.body)
            return s if init is s.init and inner is s.body else s.with_(init=init, body=inner)
        case If():
            then = f(s.then)
            orelse = f(s.orelse) if s.orelse is not None else None
            return s if then is s.then and orelse is s.orelse else s.with_(then=then, orelse=orelse)
        case For() | While():
            inner = f(s.body)
            return s if inner is s.body else s.with_(body=inner)
    return s


def seq_body(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The statements of a sequence with nested sequences joined."""
    return tuple(x for s in body for x in (s.body if isinstance(s, Seq) else (s,)))


@dataclass(slots=True)
class Replacer:
    """Rebuilds statements with variables, buffers and loads replaced; bound variables and the shapes of buffers stay as they are."""

    vars: Mapping[Var, Expr] = field(default_factory=dict)
    buffers: Mapping[Buffer, Buffer] = field(default_factory=dict)
    loads: Callable[[Load], Expr | None] | None = None  # called first; the indices are already rewritten
    _memo: dict[Expr, Expr] = field(default_factory=dict)

    def expr(self, e: Expr) -> Expr:
        """Returns `e` with variables, buffers and loads replaced."""
        return rewrite(e, self._leaf, self._memo)

    def _leaf(self, e: Expr) -> Expr | None:
        """Returns the replacement of a variable or load; None for other nodes."""
        if isinstance(e, Var):
            return self.vars.get(e, e)
        if isinstance(e, Load):
            load = Load(self.buffers.get(e.buffer, e.buffer), tuple(self.expr(i) for i in e.indices))
            replacement = self.loads(load) if self.loads else None
            return load if replacement is None else replacement
        return None

    def target(self, e: Load) -> Load:
        """Returns the element that a store or reduction writes, with its buffer and indices replaced."""
        return Load(self.buffers.get(e.buffer, e.buffer), tuple(self.expr(i) for i in e.indices))

    def region(self, r: Region) -> Region:
        """Returns a region with its buffer, starts and extents replaced."""
        return Region(self.buffers.get(r.buffer, r.buffer), tuple(self.expr(e) for e in r.starts), tuple(self.expr(e) for e in r.extents))

    def stmt(self, s: Stmt) -> Stmt:
        """Returns `s` with variables, buffers and loads replaced everywhere in it."""
        s = map_children(s, self.stmt)
        b = self.buffers
        match s:
            case For():
                grain = s.annotations.get("grain")
                notes = {**s.annotations, "grain": self.expr(grain)} if isinstance(grain, Expr) else s.annotations
                return s.with_(start=self.expr(s.start), stop=self.expr(s.stop), annotations=notes)
            case Block():
                return s.with_(
                    iters=tuple(Iter(i.var, i.kind, self.expr(i.value)) for i in s.iters),
                    predicate=self.expr(s.predicate),
                    reads=None if s.reads is None else tuple(self.region(r) for r in s.reads),
                    writes=None if s.writes is None else tuple(self.region(r) for r in s.writes),
                )
            case Store():
                place = self.target(Load(s.buffer, s.indices))
                return s.with_(buffer=place.buffer, indices=place.indices, value=self.expr(s.value))
            case Reduce():
                return s.with_(targets=tuple(self.target(t) for t in s.targets), values=tuple(self.expr(v) for v in s.values))
            case Let():
                return s.with_(value=self.expr(s.value))
            case Alloc():
                return s.with_(buffer=b.get(s.buffer, s.buffer))
            case View():
                return s.with_(
                    buffer=b.get(s.buffer, s.buffer), source=b.get(s.source, s.source), start=tuple(self.expr(e) for e in s.start)
                )
            case If() | While():
                return s.with_(cond=self.expr(s.cond))
            case Call():
                args = tuple(b.get(a, a) if isinstance(a, Buffer) else self.expr(a) for a in s.args)
                return s.with_(args=args, dims=tuple(self.expr(e) for e in s.dims))
            case Check():
                return s.with_(cond=self.expr(s.cond), values=tuple(self.expr(e) for e in s.values))
        return s


def zero() -> Expr:
    """Returns the i64 literal 0, an index."""
    return Const(0, i64)
