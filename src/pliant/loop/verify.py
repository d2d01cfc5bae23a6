"""Verifier of loop programs: `verify(func)` runs on kernels as they are written, and after every pass.

Afterwards these hold: every variable and buffer is defined once on its path from the root and used only in scope; a block uses nothing
but its iterators and values that the surrounding loops cannot change; dtypes and ranks agree; inputs are not written; iterator bindings
are independent quasi-affine maps; an init uses no reduction iterator; no memory access is provably wrong (`verify_memory.py`); and the
claims of block iterators are proved (`verify_blocks.py`).

A mistake in a statement with a source location is an Error at that line; elsewhere it is an InternalError with the path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dtype import bool_, i64
from ..support.errors import Error, counted
from ..support.refusal import Refusal
from ..sym.conditions import all_of
from ..sym.expr import FALSE, TRUE, Const, Dim, Eq, Expr, FloorMod, Le, Var, free_vars, substitute
from . import stmt as S
from .buffer import MOST_STACK, Buffer, loaded_dtype, may_be_seen_as, stack_bytes
from .verify_blocks import check_claims
from .verify_memory import check_memory
from .verify_races import check_races
from .verify_scope import OpenBlock, ScopeVerifier

if TYPE_CHECKING:
    from ..sym.facts import Facts

_BOOLEAN = ("and", "or")  # combiners of bools; the others are of numbers


def verify(func: S.Func, given: Expr = TRUE, *, claims: bool = True) -> None:
    """Raises an error that says what is wrong with the program, if anything is: names, dtypes, memory, claims, unwritten outputs.

    `given` is a condition on its dims that all callers check. Without `claims`, the iterator kinds of blocks are trusted. A program marked
    as scheduled is compiled as it is, so nothing relies on its claims: they are rejected only if they are plainly false.
    """
    _Verifier(func, given).run()
    check_memory(func, given)
    if claims:
        check_claims(func, certain=func.attrs.scheduled)
    _check_written(func)


def verify_written(func: S.Func, given: Expr = TRUE) -> None:
    """Verifies a program that a user wrote: all that `verify` does, and races of concurrent loops and the stack size.

    Raises if it is invalid.
    """
    verify(func, given)
    check_races(func)
    _check_stack(func)


def _check_stack(func: S.Func) -> None:
    """Raises an error if the stack buffers exceed the limit.

    Primitives keep the limit themselves (`schedule/invariants.py`). Programs in checked mode may exceed it by their shadow memory.
    """
    total = 0
    for s in S.walk_stmts(func.body):
        if isinstance(s, S.Alloc):
            total += stack_bytes(s.buffer)
            if total > MOST_STACK:
                raise Error(
                    f"buffers on the stack take {total:,} bytes with `{s.buffer.name}`, of {MOST_STACK:,} at most",
                    where=s.span or func.span,
                    help='allocate large buffers in the workspace: alloc(..., scope="workspace")',
                )


def _check_written(func: S.Func) -> None:
    """Raises an error for an output that no statement writes."""
    views = {s.buffer: s.source for s in S.walk_stmts(func.body) if isinstance(s, S.View)}
    written = {b for s in S.walk_stmts(func.body) for b in S.writes(s)}
    for b in list(written):
        while b in views:
            b = views[b]
            written.add(b)
    for p in func.params:
        if p.role == "out" and p.value not in written and not func.attrs.entry and func.attrs.external is None:
            raise Error(
                f"nothing is written to the output `{p.value.name}`",
                where=func.span,
                help=f"store to every element of `{p.value.name}`, or annotate it with InOut[...]",
            )


class _Verifier(ScopeVerifier):
    """Verifies a loop program: checks each statement against the names that are in scope."""

    def run(self) -> None:
        """Checks the parameters and the whole body; raises an error if the program is not valid."""
        seen: set[Buffer | Var] = set()
        for p in self.func.params:
            if p.value in seen:
                raise self.fail(f"parameter `{p.value.name}` is there twice")
            seen.add(p.value)
            self.visible[p.value] = True
            if isinstance(p.value, Buffer):
                self.buffer(p.value)
                if p.role == "in":
                    self.readonly.add(p.value)
            elif p.role != "in":
                raise self.fail(f"scalar parameter `{p.value.name}` is not an input")
        for s in self.func.symbols:
            if s.dtype is not i64:
                raise self.fail(f"dim `{s.name}` is {s.dtype}, not i64")
            self.visible[s] = True
        self.stmt(self.func.body, "body")

    # Statements.

    def stmt(self, s: S.Stmt, label: str) -> None:
        """Raises an error if a statement is not valid; `label` is its part of the path in messages."""
        around = self.stmt_now
        self.path.append(label)
        self.stmt_now = s
        _CHECK[type(s)](self, s)
        self.path.pop()
        self.stmt_now = around

    def inner(self, s: S.Stmt, label: str, *, repeated: bool = False) -> None:
        """Checks a statement in a scope of its own."""
        with self.scope(repeated=repeated):
            self.stmt(s, label)

    def seq(self, s: S.Seq) -> None:
        for k, inner in enumerate(s.body):
            self.stmt(inner, str(k))

    def loop(self, s: S.For) -> None:
        """Raises an error if a loop is not valid: its bounds, kind, variable or body."""
        for e in (s.start, s.stop):
            self.expr(e, i64, f"a bound of loop `{s.var.name}`")
        if s.kind not in ("serial", "parallel", "vector", "unroll") and not s.kind.startswith("gpu."):
            raise self.fail(f'there is no kind of loop "{s.kind}"')
        if s.var.dtype is not i64:
            raise self.fail(f"loop variable `{s.var.name}` is {s.var.dtype}, not i64")
        with self.scope(repeated=True):
            self.define(s.var, fixed=False)
            self.loops[s.var] = s
            around = self.threads
            self.threads = (*around, s) if s.kind == "parallel" else around
            self.stmt(s.body, f"for {s.var.name}")
            self.threads = around
            del self.loops[s.var]

    def block(self, s: S.Block) -> None:
        """Raises an error if a block is not valid: its iterators, predicate, regions, init, or body.

        The body is checked in a scope without the surrounding loops.
        """
        for i in s.iters:
            self.expr(i.value, i64, f"the value of iterator `{i.var.name}`")
            if i.kind not in ("S", "R", "O") or i.var.dtype is not i64:
                raise self.fail(f'iterator `{i.var.name}` of kind "{i.kind}" and type {i.var.dtype}: kinds are S, R, O, the type is i64')
        self.bindings(s)
        around, hidden, loops = self.visible, self.hidden, self.loops
        self.blocks.append(OpenBlock(s, tuple(loops.values())))
        self.hidden = hidden | {v for v, fixed in around.items() if not fixed}
        self.loops = {}
        with self.scope(repeated=True):
            self.visible = {v: fixed for v, fixed in around.items() if fixed}
            for i in s.iters:
                self.define(i.var, fixed=False)
            self.expr(s.predicate, bool_, "the predicate")
            for r in (*(s.reads or ()), *(s.writes or ())):
                self.region(r)
            if s.init is not None:
                self.init(s, s.init)
            self.inner(s.body, f"block {s.name}")
        self.blocks.pop()
        self.visible, self.hidden, self.loops = around, hidden, loops

    def init(self, s: S.Block, init: S.Stmt) -> None:
        """Raises an error if an init is not valid; it sees the spatial iterators only."""
        spatial = dict(self.visible)
        for i in s.iters:
            if i.kind != "S":
                del self.visible[i.var]
                self.hidden.add(i.var)
        try:
            self.inner(init, f"block {s.name}.init")
        finally:
            self.visible = spatial
            self.hidden -= {i.var for i in s.iters}

    def bindings(self, s: S.Block) -> None:
        """Raises an error unless the values of a block's iterators are independent quasi-affine maps of the loops."""
        values = [i.value for i in s.iters]
        if all(v in self.loops for v in values) and len(set(values)) == len(values):
            return  # the common case: each is a different loop variable
        from ..sym.affine import detect_iter_map  # imported here: most programs do not need the prover

        from_zero = {v: Var(v.name) for v in self.loops}  # the same loops, counted from 0
        shift: dict[Var, Expr] = {v: from_zero[v] + f.start if not _is_zero(f.start) else from_zero[v] for v, f in self.loops.items()}
        extents = {from_zero[v]: substitute(f.extent, shift) for v, f in self.loops.items()}
        predicate = substitute(s.predicate, {i.var: i.value for i in s.iters})
        mapping = detect_iter_map([substitute(v, shift) for v in values], extents, substitute(predicate, shift), self.facts())
        if isinstance(mapping, Refusal):
            shown = ", ".join(f"{i.var.name} = {i.value}" for i in s.iters)
            raise self.fail(
                f"the iterators of block `{s.name}` are not independent: {mapping.reason}",
                [f"bindings: {shown}"],
                "each iterator is a loop variable, or part of one, that no other iterator uses",
            )

    def facts(self) -> Facts:
        """Returns the facts about the variables around a block's loops: the iterators and loops of the blocks around it."""
        from ..sym.facts import EMPTY

        facts = EMPTY
        for outer in self.blocks:
            for f in outer.loops:
                facts = facts.with_loop(f.var, f.extent, f.start)
            for i in outer.block.iters:
                facts = facts.with_equal(i.var, i.value)
        return facts

    def region(self, r: S.Region) -> None:
        """Raises an error unless a region that a block declares has a buffer in scope, and i64 starts and extents, one per dimension."""
        self.use(r.buffer)
        self.indices(r.buffer, r.starts)
        self.indices(r.buffer, r.extents, "an extent")
        for e in (*r.starts, *r.extents):
            self.expr(e, i64, "a region")

    def written(self, buffer: Buffer) -> None:
        """Raises an error if a buffer may not be written here, because it is an input or not in scope."""
        self.use(buffer)
        if buffer in self.readonly:
            help_ = "annotate the parameter with Out[...] (written only) or InOut[...] (read and written)"
            raise self.fail(f"`{buffer.name}` is an input and cannot be written", help=help_)

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> None:
        """Raises an error unless the target of a write may be written and has one i64 index per dimension."""
        self.written(buffer)
        self.indices(buffer, indices)
        for i in indices:
            self.expr(i, i64, "an index")

    def store(self, s: S.Store) -> None:
        self.place(s.buffer, s.indices)
        self.expr(s.value, loaded_dtype(s.buffer.dtype), f"the value stored to `{s.buffer.name}`")

    def reduce(self, s: S.Reduce) -> None:
        """Raises an error if a reduction is not valid: its targets, its combiner, or the dtypes of its values."""
        for t in s.targets:
            self.place(t.buffer, t.indices)
        c = s.combiner
        if c.name in S.NAMED_COMBINERS:
            count = 2 if c.name == "fma" else 1
            if len(s.targets) != 1 or len(s.values) != count:
                raise self.fail(f"reduction `{c.name}` has one target and {count} values")
            d = s.targets[0].dtype
            if (d is bool_) != (c.name in _BOOLEAN) or (c.name == "fma" and not d.is_float):
                raise self.fail(f"there is no reduction `{c.name}` of {d}")
        else:
            self.combiner(s)
        for v in s.values:
            dtype = s.targets[0].dtype if c.name in S.NAMED_COMBINERS else None
            self.expr(v, dtype, f"the value reduced into `{s.targets[0].buffer.name}`")

    def combiner(self, s: S.Reduce) -> None:
        """Raises an error unless a lambda combiner has as many arguments and results as targets, of the same dtypes.

        Its results may use only its arguments.
        """
        c = s.combiner
        types = [t.dtype for t in s.targets]
        for what, parts in (("left", c.left), ("right", c.right), ("results", c.result), ("values", s.values)):
            if [e.dtype for e in parts] != types:
                raise self.fail(
                    f"the {what} of the combiner do not fit its targets", [f"targets: {types}", f"{what}: {[e.dtype for e in parts]}"]
                )
        own = {*c.left, *c.right}
        for e in c.result:
            for v in free_vars(e) - own:
                raise self.fail(f"the combiner uses `{v.name}`, which is not one of its arguments")

    def let(self, s: S.Let) -> None:
        self.expr(s.value, s.var.dtype, f"the value of `{s.var.name}`")
        self.define(s.var, fixed=not self.repeated)

    def alloc(self, s: S.Alloc) -> None:
        """Raises an error if an allocation is not valid, then brings its name into scope.

        It must not be in scope global; stack and register buffers must have a constant size.
        """
        b = s.buffer
        for e in S.exprs(s):
            self.expr(e, i64, f"an extent of `{b.name}`")
        self.buffer(b)
        if b.scope == "global":
            raise self.fail(f"`{b.name}` is allocated in scope global, which only parameters have")
        if b.scope in ("stack", "register"):
            for e in b.shape:
                if not _is_constant(e):
                    help_ = f'allocate in the workspace: alloc(..., scope="workspace"), or make `{e}` a constant'
                    raise self.fail(f"`{b.name}` in scope {b.scope} has no constant size", [f"an extent is `{e}`"], help_)
        if b.scope == "register":
            self.registers[b] = self.threads
        self.define(b, fixed=not self.repeated or self.unchanging(b.shape))

    def view(self, s: S.View) -> None:
        """Raises an error if a view is not valid (source, start, shape, strides, dtype), then brings its name into scope.

        It must not begin inside a byte; a view of an input is read-only.
        """
        b, source = s.buffer, s.source
        self.use(source)
        self.indices(source, s.start)
        for e in S.exprs(s):
            self.expr(e, i64, f"a number of view `{b.name}`")
        self.buffer(b)
        if not may_be_seen_as(source.dtype, b.dtype):
            raise self.fail(f"view `{b.name}` of {source.dtype} is {b.dtype}: only u8 bytes can be seen as another type")
        place = source.flat_index(s.start)
        if source.dtype.bits < 8 and isinstance(place, Const) and place.value % source.dtype.per_byte:
            raise self.fail(f"view `{b.name}` begins inside of a byte", [f"it starts at element {place} of {source.dtype}"])
        self.define(b, fixed=not self.repeated or (self.visible[source] and self.unchanging((*s.start, *b.shape))))
        if source in self.readonly:
            self.readonly.add(b)

    def if_(self, s: S.If) -> None:
        self.expr(s.cond, bool_, "the condition")
        self.inner(s.then, "if")
        if s.orelse is not None:
            self.inner(s.orelse, "else")

    def while_(self, s: S.While) -> None:
        self.expr(s.cond, bool_, "the condition")
        self.inner(s.body, "while", repeated=True)

    def check(self, s: S.Check) -> None:
        self.expr(s.cond, bool_, "the condition")
        for v in s.values:
            self.expr(v, i64, "a value of the message")
        self.guard = all_of(self.guard, s.cond)

    def call(self, s: S.Call) -> None:
        """Raises an error if a call is not valid: arguments, dims, contracts of dims, or a buffer passed twice and written there."""
        f = s.func
        if len(s.args) != len(f.params) or len(s.dims) != len(f.symbols):
            taken = f"{counted(len(f.params), 'argument')} and {counted(len(f.symbols), 'dim')}"
            raise self.fail(f"`{f.name}` takes {taken}, not {len(s.args)} and {len(s.dims)}")
        for d in s.dims:
            self.expr(d, i64, "a dim")
        binding: dict[Var, Expr] = dict(zip(f.symbols, s.dims, strict=True))
        for p, a in zip(f.params, s.args, strict=True):
            if isinstance(p.value, Var) and isinstance(a, Expr):
                self.expr(a, p.value.dtype, f"argument `{p.value.name}`")
                binding[p.value] = a
        for p, a in zip(f.params, s.args, strict=True):
            self.argument(p, a, binding)
        for sym, value in zip(f.symbols, s.dims, strict=True):
            self.contract(f, sym, value)
        buffers = [(p, a) for p, a in zip(f.params, s.args, strict=True) if isinstance(a, Buffer)]
        for k, (p, a) in enumerate(buffers):
            for q, b in buffers[:k]:
                if a is b and (p.role != "in" or q.role != "in"):
                    raise self.fail(f"`{a.name}` is passed to `{f.name}` twice, and written there", help="parameters must not overlap")

    def argument(self, p: S.Param, a: Buffer | Expr, binding: dict[Var, Expr]) -> None:
        """Raises an error if an argument does not fit its parameter: kind, role, dtype, rank, or a shape that provably differs."""
        if isinstance(p.value, Var) or not isinstance(a, Buffer):
            if isinstance(p.value, Var) == isinstance(a, Expr):
                return
            raise self.fail(f"argument `{p.value.name}`: a tensor and a number are exchanged")
        self.use(a)
        if p.role != "in":
            self.written(a)
        facts = [f"given: `{a}`", f"expected: `{p.value}`"]
        if a.dtype is not p.value.dtype or a.ndim != p.value.ndim:
            raise self.fail(f"argument `{p.value.name}` does not fit", facts)
        pairs = [*zip(a.shape, p.value.shape, strict=True)]
        if p.value.strides is not None or a.strides is not None:
            pairs += zip(a.element_strides(), p.value.element_strides(), strict=True)
        for actual, declared in pairs:
            if _differ(actual, substitute(declared, binding)):
                raise self.fail(f"argument `{p.value.name}` does not fit: {actual} is not {substitute(declared, binding)}", facts)

    def contract(self, f: S.Func, symbol: Var, value: Expr) -> None:
        """Raises an error unless a dim is provably in the callee's range; only for calls in a user's source."""
        if not isinstance(symbol, Dim) or self.stmt_now is None or self.stmt_now.span is None or value is symbol:
            return
        rules = [
            Le(Const(symbol.min, i64), value) if symbol.min > 0 else TRUE,
            Le(value, Const(symbol.max, i64)) if symbol.max < Dim("").max else TRUE,
            Eq(FloorMod(value, Const(symbol.multiple_of, i64)), Const(0, i64)) if symbol.multiple_of > 1 else TRUE,
        ]
        for rule in rules:
            if rule is not TRUE and not _holds(rule, self.guard):
                raise self.fail(
                    f"the call may break the contract of `{f.name}`: {symbol.contract}",
                    [f"`{symbol.name}` is `{value}` here"],
                    f'make sure of it: check({rule}, "...")',
                )


_CHECK: dict[type[S.Stmt], Callable[[_Verifier, Any], None]] = {
    S.Seq: _Verifier.seq,
    S.For: _Verifier.loop,
    S.Block: _Verifier.block,
    S.Store: _Verifier.store,
    S.Reduce: _Verifier.reduce,
    S.Let: _Verifier.let,
    S.Alloc: _Verifier.alloc,
    S.View: _Verifier.view,
    S.If: _Verifier.if_,
    S.While: _Verifier.while_,
    S.Call: _Verifier.call,
    S.Check: _Verifier.check,
}


def _is_constant(e: Expr) -> bool:
    """True if an expression simplifies to a constant."""
    from ..sym.simplify import simplify

    return isinstance(e, Const) or isinstance(simplify(e), Const)


def _differ(a: Expr, b: Expr) -> bool:
    """True if two extents are provably different; False if that is not known."""
    from ..sym.simplify import simplify

    return a is not b and simplify(Eq(a, b)) is FALSE


def _holds(rule: Expr, guard: Expr) -> bool:
    """True if the rule provably follows from `guard`, the checks before this statement."""
    from ..sym.facts import EMPTY
    from ..sym.prove import prove

    return prove(rule, EMPTY.with_condition(guard) if guard is not TRUE else EMPTY)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
