"""Translates the statements of loop programs to Python functions: the interpreter's code writer.

    for i in 0..n: for k in 0..8:                      for t1 in range(0, n):
        block("c", S i, R k):                              <init>
            c[vi] = fma(a[vi, vk], b[vk], c[vi])  ->       for t2 in range(0, 8):
                                                               if not (0 <= t1 < m0_0 ...): fail(...)
                                                               t5 = m0_a[t1, t2] ...

Iterations run one at a time, in program order (or shuffled where order must not matter). Independent iterations run all at once, as lanes
of arrays (`lanes.py`); this gives the same bits, because every lane does the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np

from ..dtype import bool_, i64
from ..loop.buffer import Buffer, has_load
from ..loop.stmt import Alloc, Block, Call, Check, Combiner, For, Func, If, Let, Reduce, Seq, Stmt, Store, View, While
from ..support.errors import Error, InternalError
from ..sym import expr as E
from ..sym.conditions import all_of
from ..sym.expr import TRUE, Const, Expr, Var
from ..sym.semantics import apply, value_of
from . import lanes
from .faults import failed
from .memory import Memory, allocate
from .nests import independent, loop_depth, may_run_as_lanes, place_inits
from .values import SYMBOL_BITS, Values

_NAMED: dict[str, Callable[[Expr, tuple[Expr, ...]], Expr]] = {
    "add": lambda t, v: E.Add(t, *v),
    "mul": lambda t, v: E.Mul(t, *v),
    "min": lambda t, v: E.Min(t, *v),
    "max": lambda t, v: E.Max(t, *v),
    "and": lambda t, v: E.And(t, *v),
    "or": lambda t, v: E.Or(t, *v),
    "fma": lambda t, v: E.Fma(v[0], v[1], t),
}


def wrap64(value: int) -> int:
    """Returns an integer wrapped to the range of i64."""
    return i64.wrap(value)


class Writer(Values):
    """Writes the Python function of one loop program."""

    def __init__(self, func: Func, checked: bool, shuffled: bool, use_lanes: bool, callees: Mapping[Func, Any]) -> None:
        super().__init__(checked)
        self.func = func
        self.shuffled = shuffled
        self.use_lanes = use_lanes and not shuffled
        self.callees = callees
        self.inits = place_inits(func.body)
        self.roots: dict[Buffer, Buffer] = {}  # view -> the buffer that owns its memory
        self.risky = False  # True if two lanes of the current nest may write one element
        self.written: set[str] = set()  # the names of the memories that the current nest of lanes writes

    def program(self) -> tuple[CodeType, dict[str, Any]]:
        """Returns the compiled code of `run(rng, arguments, dims)`, and the globals that it needs."""
        self.line(f"({''.join(self._symbol(v) + ', ' for v in self.func.symbols)}) = dims")
        for n, p in enumerate(self.func.params):
            if isinstance(p.value, Buffer):
                self.line(f"{self._memory(p.value)} = arguments[{n}]")
                self._opened(p.value)
                if p.role == "out":
                    self.line(f"{self.memories[p.value]}.poison()")
            else:
                name = self.names[p.value] = self.fresh("s")
                self.line(f"{name} = {self._converted(f'arguments[{n}]', p.value)}")
        self.stmt(self.func.body)
        source = "def run(rng, arguments, dims):\n" + "\n".join(self.lines) + "\n"
        names = {"np": np, "apply": apply, "value_of": value_of, "wrap64": wrap64, "allocate": allocate, "located": located}
        names |= {
            name: getattr(lanes, name)
            for name in ("chunks", "axis", "load", "load_affine", "store", "store_affine", "reach", "first_of", "lift", "Conflict")
        }
        return compile(source, f"<loop program {self.func.name}>", "exec"), names | self.globals

    def _symbol(self, v: Var) -> str:
        """Returns a new Python name for a symbol of the program, and records it with its bound of bits."""
        name = self.names[v] = self.fresh("s")
        self.bits[name] = SYMBOL_BITS
        return name

    def _memory(self, buffer: Buffer) -> str:
        """Returns a new Python name for a buffer's memory."""
        name = self.memories[buffer] = self.fresh("m")
        return name

    def _opened(self, buffer: Buffer) -> None:
        """Writes assignments of a buffer's array and extents to local names."""
        name = self.memories[buffer]
        self.line(f"{name}_a = {name}.array")
        if self.checked and buffer.ndim and buffer not in self.lane_axes:
            self.line(f"({''.join(f'{name}_{d}, ' for d in range(buffer.ndim))}) = {name}.shape")

    def _converted(self, text: str, v: Var) -> str:
        """The expression that converts a scalar argument to its dtype."""
        if v.dtype is i64:
            return f"wrap64(int({text}))"
        return f"bool({text})" if v.dtype is bool_ else f"value_of({text}, {self.keep(v.dtype, 'd')})"

    # Statements.

    def stmt(self, s: Stmt) -> None:
        """Writes the lines of a statement; raises InternalError for a kind that the interpreter does not know."""
        saved, self.span = self.span, s.span or self.span
        self.memo = {}
        writer = _WRITERS.get(type(s))
        if writer is None:
            raise InternalError(f"the interpreter knows no {type(s).__name__}")
        writer(self, s)
        self.span = saved

    def seq(self, s: Seq) -> None:
        """Writes a sequence."""
        for x in s.body:
            self.stmt(x)

    def let(self, s: Let) -> None:
        """Writes a let; its value must not change when memory does."""
        value = self.kept(s.value)
        self.names[s.var] = self.temp(value, value)
        if self.extents and s.var.dtype is i64 and not has_load(s.value):
            self.values_of[s.var] = s.value
        self.bits[self.names[s.var]] = self.size(value)

    def kept(self, e: Expr) -> str:
        """A name for a value that later statements use; loaded lanes are copied, because they are a view of memory that may change."""
        value = self.value(e)
        return self.temp(f"{value}.copy()", value) if value in self.varying and has_load(e) else value

    def store(self, s: Store) -> None:
        """Writes a store."""
        self.put(s.buffer, s.indices, self.value(s.value))

    def put(self, buffer: Buffer, indices: tuple[Expr, ...], value: str) -> None:
        """Writes `buffer[indices] = value`."""
        memory = self.memories[buffer]
        if not self.extents:
            names = [self.value(i) for i in indices]
            self.check(buffer, names)
            self.line(f"{memory}_a[{', '.join(names) or '()'}] = {value}")
            return
        place = self.place(buffer, indices)
        if buffer not in self.lane_axes:
            self.written.add(self.memories[self.roots.get(buffer, buffer)])
        self.risky |= not self._apart(buffer, indices)
        tail = f"{value}, {self.box()}, {self.mask}, {self.lane_fail(buffer)})"
        if place is not None:
            self.line(f"store_affine({memory}, {place}, {tail}")
        else:
            self.line(f"store({memory}, {self.gathered(buffer, [self.value(i) for i in indices])}, {tail}")

    def _apart(self, buffer: Buffer, indices: tuple[Expr, ...]) -> bool:
        """True if lanes obviously write different elements: each lane axis is an index by itself."""
        rows = [parts[1] for parts in map(self.affine, indices) if parts is not None]
        own = {d for row in rows for d, step in row.items() if len(row) == 1 and step == "1"} | set(range(self.lane_axes.get(buffer, 0)))
        return buffer.strides is None and own.issuperset(range(len(self.axes)))

    def reduce(self, s: Reduce) -> None:
        """Writes a reduction step: the target combined with its values, stored back.

        Raises an Error for a combiner that has no name of its own.
        """
        c = s.combiner
        if c.result:
            self._combine(c, s)
            return
        if c.name not in _NAMED:
            raise Error(f"no combiner `{c.name}`", where=self.span, facts=["named combiners: " + ", ".join(_NAMED)])
        target = s.targets[0]
        self.put(target.buffer, target.indices, self.value(_NAMED[c.name](target, s.values)))

    def _combine(self, c: Combiner, s: Reduce) -> None:
        """Writes a reduction by a lambda; all results are computed before any is stored."""
        for v, e in zip((*c.left, *c.right), (*s.targets, *s.values), strict=True):
            self.names[v] = self.value(e)
        results = [self.value(e) for e in c.result]
        fixed = [self.temp(f"np.array({r})", r) if r in self.varying else r for r in results]
        for t, r in zip(s.targets, fixed, strict=True):
            self.put(t.buffer, t.indices, r)

    def alloc(self, s: Alloc) -> None:
        """Writes an allocation; inside lanes, each lane has its own."""
        shape, strides = self._layout(s.buffer)
        self.lane_axes.pop(s.buffer, None)  # a nest may be written twice: as lanes, and one at a time
        if self.extents:
            active = len(self.axes)
            self.lane_axes[s.buffer] = active
            shape = f"({', '.join(self.extents[:active])}, *{shape})"
            strides = "None"
        name = self._memory(s.buffer)
        self.line(f"{name} = allocate({s.buffer.name!r}, {self.keep(s.buffer.dtype, 'd')}, {shape}, {strides})")
        self._opened(s.buffer)

    def _layout(self, buffer: Buffer) -> tuple[str, str]:
        """Returns the shape and strides of a buffer as Python text."""
        shape = "".join(f"{self.value(e)}, " for e in buffer.shape)
        strides = "".join(f"{self.value(e)}, " for e in buffer.element_strides())
        return f"({shape})", f"({strides})"

    def view(self, s: View) -> None:
        """Writes a view."""
        shape, strides = self._layout(s.buffer)
        source = self.memories[s.source]
        starts = [self.value(e) for e in s.start]
        name = self._memory(s.buffer)
        self.roots[s.buffer] = self.roots.get(s.source, s.source)
        arguments = f"{s.buffer.name!r}, {self.keep(s.buffer.dtype, 'd')}, ({''.join(i + ', ' for i in starts)}), {shape}, {strides}"
        self.line(f"{name} = located({self.keep(self.span, 'at')}, {source}.view, {arguments})")
        self._opened(s.buffer)

    def if_(self, s: If) -> None:
        """Writes a branch: an `if`, or for a condition that differs between lanes, both sides under masks."""
        c = self.kept(s.cond)
        if c in self.varying:
            self._under(self.narrowed(c), s.then)
            if s.orelse is not None:
                self._under(self.narrowed(self.temp(f"~{c}", c)), s.orelse)
            return
        with self.inside(f"if {c}:"):
            self.stmt(s.then)
        if s.orelse is not None:
            with self.inside("else:"):
                self.stmt(s.orelse)

    def _under(self, mask: str, s: Stmt) -> None:
        """Writes a statement under a mask of lanes; it is skipped if no lane is active."""
        with self.inside(f"if {mask}.any():"), self.masked(mask):
            self.stmt(s)

    def while_(self, s: While) -> None:
        """Writes a while loop; lanes that are finished wait for the others."""
        mask = self.fresh("w")
        if self.extents:
            self.line(f"{mask} = np.ones((1,) * {len(self.extents)}, bool)" if self.mask is None else f"{mask} = {self.mask}")
            self.varying.add(mask)
        with self.inside("while True:"), self.masked(mask if self.extents else None):
            c = self.value(s.cond)
            if c in self.varying:
                self.line(f"{mask} = {mask} & {c}")
                self.line(f"if not {mask}.any(): break")
            else:
                self.line(f"if not {c}: break")
            self.stmt(s.body)

    def call(self, s: Call) -> None:
        """Writes a call of another loop program."""
        arguments = "".join(f"{self.memories[a] if isinstance(a, Buffer) else self.value(a)}, " for a in s.args)
        dims = "".join(f"{self.value(e)}, " for e in s.dims)
        self.line(f"{self.keep(self.callees[s.func], 'f')}(rng, ({arguments}), ({dims}), {self.keep(self.span, 'at')})")

    def check_(self, s: Check) -> None:
        """Writes a run-time check."""
        c = self.value(s.cond)
        fail = self.keep(failed(s, self.span), "failed")
        if c not in self.varying:
            with self.inside(f"if not {c}:"):
                self.line(f"{fail}({', '.join(f'int({self.value(v)})' for v in s.values)})")
            return
        bad = self.narrowed(self.temp(f"~{c}", c))
        with self.inside(f"if {bad}.any():"), self.masked(bad):
            self.line(f"{fail}(*first_of({', '.join([bad, *(self.value(v) for v in s.values)])}))")

    # Loops and blocks.

    def for_(self, s: For) -> None:
        """Writes a loop, and the inits that run before it."""
        for nest in self.inits.before.get(s, ()):
            self.stmt(nest)
        self.memo = {}
        if self.extents:
            self._loop_in_lanes(s)
        elif self.use_lanes and may_run_as_lanes(s):
            self._enter_lanes(s)
        else:
            self._loop(s)

    def _loop(self, s: For) -> None:
        """Writes a loop that runs one iteration at a time."""
        start, stop = self.value(s.start), self.value(s.stop)
        name = self._loop_name(s, start, stop)
        span = f"range({start}, {stop})"
        shuffle = self.shuffled and s.kind != "vector" and independent(s)
        with self.inside(f"for {name} in {f'rng.permutation({span}).tolist()' if shuffle else span}:"):
            self.stmt(s.body)

    def _loop_name(self, s: For, start: str, stop: str) -> str:
        """Returns a new Python name for a loop variable."""
        name = self.names[s.var] = self.fresh("i")
        self.bits[name] = max(self.size(start), self.size(stop))
        return name

    def _enter_lanes(self, s: For) -> None:
        """Writes a nest as Python code that runs its iterations all at once, as lanes of NumPy arrays.

        If two lanes may write one element, also writes it one iteration at a time: a `Conflict` restores memory and runs that instead.
        """
        start = len(self.lines)
        self.line("pass")
        self.line("if True:")
        self.depth += 1
        self.risky, self.written = False, set()
        self.extents = ["1"] * loop_depth(s)
        self._axis(s, "1")
        self.extents = []
        self.depth -= 1
        if not self.risky:
            return
        indent, saved = "    " * self.depth, self.fresh("saved")
        self.lines[start] = f"{indent}{saved} = [(m.raw, m.raw.copy()) for m in ({''.join(m + ', ' for m in sorted(self.written))})]"
        self.lines[start + 1] = f"{indent}try:"
        with self.inside("except Conflict:"):
            self.line(f"for raw, old in {saved}: raw[...] = old")
            self.use_lanes = False
            self.memo = {}
            self._loop(s)
            self.use_lanes = True

    def _axis(self, s: For, outer: str) -> None:
        """Writes a loop whose iterations become the next axis of the box of lanes."""
        start, stop = self.value(s.start), self.value(s.stop)
        low, high, size = self.fresh("low"), self.fresh("high"), self.fresh("n")
        position = len(self.axes)
        with self.inside(f"for {low}, {high} in chunks({start}, {stop}, {outer}):"):
            self.line(f"{size} = {high} - {low}")
            self.extents[position] = size
            name = self._loop_name(s, start, stop)
            self.line(f"{name} = axis({low}, {high}, {position}, {len(self.extents)})")
            self.varying.add(name)
            self.bits[low] = self.bits[name]
            self.axes[s.var] = (position, low)
            self.stmt(s.body)
            del self.axes[s.var]
            self.extents[position] = "1"

    def _loop_in_lanes(self, s: For) -> None:
        """Writes a loop inside of lanes: as a further axis, or serially, with a mask if its bounds differ between lanes."""
        start, stop = self.kept(s.start), self.kept(s.stop)
        if start not in self.varying and stop not in self.varying:
            if may_run_as_lanes(s):
                self._axis(s, " * ".join(self.extents))
            else:
                self._loop(s)
            return
        name = self._loop_name(s, start, stop)
        low, high = self.fresh("low"), self.fresh("high")
        self.line(f"{low}, {high} = reach({start}, {stop}, {self.mask})")
        with self.inside(f"for {name} in range({low}, {high}):"):
            self._under(self.narrowed(self.temp(f"({start} <= {name}) & ({name} < {stop})", start, stop)), s.body)

    def block(self, s: Block) -> None:
        """Writes an instance of a block: its iterators, its init where it runs inline, and its body."""
        for i in s.iters:
            self.names[i.var] = self.value(i.value)
            if self.extents:
                self.values_of[i.var] = i.value
        if s.init is not None and s in self.inits.inline:
            first = [E.Eq(i.var, Const(0, i64)) for i in s.iters if i.kind != "S"] if self.inits.inline[s] == "where_zero" else []
            self._guarded(all_of(s.init_predicate, *first), s.init)
        self._guarded(s.predicate, s.body)

    def _guarded(self, predicate: Expr, s: Stmt) -> None:
        """Writes the init or body of a block under a predicate."""
        condition = self.kept(predicate)
        if predicate is TRUE:
            self.stmt(s)
        elif condition in self.varying:
            mask = self.narrowed(condition)
            with self.inside(f"if {mask}.any():"), self.masked(mask):
                self.stmt(s)
        else:
            with self.inside(f"if {condition}:"):
                self.stmt(s)


def located(where: Any, make: Callable[..., Memory], *arguments: Any) -> Memory:
    """Returns the memory that `make` returns; an error of it gets the source position `where`."""
    try:
        return make(*arguments)
    except Error as error:
        raise error.at(where) from None


_WRITERS: dict[type[Stmt], Callable[..., None]] = {
    Seq: Writer.seq,
    Let: Writer.let,
    Store: Writer.store,
    Reduce: Writer.reduce,
    Alloc: Writer.alloc,
    View: Writer.view,
    If: Writer.if_,
    While: Writer.while_,
    Call: Writer.call,
    Check: Writer.check_,
    For: Writer.for_,
    Block: Writer.block,
}
