"""LLVM code generation for statements of loop programs (without blocks): stores, lets, ifs, serial loops, calls, checks.

A failure returns from the function at once: the caller checks the code, and the error record says what happened. Vector
loops and parallel loops are in `llvm_vector.py` and `llvm_parallel.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtype import i64, u8
from ..loop import stmt as S
from ..loop.buffer import Buffer, has_load
from ..loop.passes.settle_lanes import settle_lanes
from ..loop.passes.unroll import unroll
from ..support.errors import Error, InternalError
from ..sym import expr as E
from ..sym.expr import Expr, Not, Var, free_vars, product
from .llvm_errors import ERROR_VALUES, Failures, ModuleState
from .llvm_instruction import emit_instruction
from .llvm_types import NO_MEMORY, Val

_COMBINERS: dict[str, type[E.Binary]] = {"add": E.Add, "mul": E.Mul, "min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}


class Statements(Failures):
    """Emits statements as LLVM instructions; subclasses add vector and parallel loops."""

    def __init__(self, state: ModuleState, func: S.Func) -> None:
        super().__init__(state)
        self.func = func
        self.is_host = func.attrs.host
        self.serial_depth = 0  # number of serial loops around the present statement
        self.cancel_nest = 1  # an outermost serial loop polls the cancel flag if loops are nested this deep in it: a flat one ends soon

    def stmt(self, s: S.Stmt) -> None:
        """Emit a statement; an error raised inside gets the statement's source position."""
        emit = _EMIT.get(type(s))
        if emit is None:
            raise InternalError(f"{type(s).__name__} reaches the code generator")
        try:
            emit(self, s)
        except Error as error:
            raise error.at(s.span) from error.__cause__

    def vector_loop(self, s: S.For) -> None:
        """Emit a loop whose iterations are SIMD lanes.

        A subclass implements it (`llvm_vector.py`), here it raises NotImplementedError.
        """
        raise NotImplementedError

    def parallel_loop(self, s: S.For) -> None:
        """Emit a loop that the thread pool runs.

        A subclass implements it (`llvm_parallel.py`), here it raises NotImplementedError.
        """
        raise NotImplementedError

    def know_at_least_zero(self, var: Var) -> None:
        """Record the fact that a variable, which is a dim, is not negative."""
        self._known.append(lambda facts: facts.with_range(var, 0, None))

    # Straight-line statements.

    def _seq(self, s: S.Seq) -> None:
        for inner in s.body:
            self.stmt(inner)

    def _store(self, s: S.Store) -> None:
        self.store(s.buffer, s.indices, self.expr(s.value))

    def _reduce(self, s: S.Reduce) -> None:
        name = s.combiner.name
        if not s.combiner.result:
            (target,) = s.targets
            if name == "fma":
                value: Expr = E.Fma(s.values[0], s.values[1], target)
            else:
                value = _COMBINERS[name](target, s.values[0])
            self.store(target.buffer, target.indices, self.expr(value))
            return
        combiner = s.combiner
        operands = [self.expr(e) for e in (*s.targets, *s.values)]
        with self.scope(*combiner.left, *combiner.right, open=True):
            for var, value_ in zip((*combiner.left, *combiner.right), operands, strict=True):
                self._bind_value(var, value_)
            results = [self.expr(e) for e in combiner.result]
        for target, result in zip(s.targets, results, strict=True):
            self.store(target.buffer, target.indices, result)

    def _let(self, s: S.Let) -> None:
        self._bind_value(s.var, self.expr(s.value))
        self.depth[s.var] = self.depth_of(s.value)
        if s.var.dtype.is_int and not has_load(s.value):
            self.definitions[s.var] = s.value

    def _bind_value(self, var: Var, value: Val) -> None:
        self.bind(var, value)
        if value.lanes:
            self.varying.add(var)
        else:
            self.varying.discard(var)

    def _alloc(self, s: S.Alloc) -> None:
        buffer = s.buffer
        if buffer.scope == "workspace":
            self._workspace(s)
        elif buffer.scope == "stack" and buffer not in self.pointers:
            self.allocate_stack(buffer)

    def _workspace(self, s: S.Alloc) -> None:
        """Set the pointer of the call's workspace, which a host function allocates first; emits a check of its size.

        Raises an InternalError for a workspace buffer elsewhere.
        """
        if not self.is_host or s.buffer.dtype is not u8 or len(self.scopes) != 1:
            raise InternalError(f"workspace buffer `{s.buffer.name}` was not lifted into the memory plan of the host program")
        size = self.expr(product(s.buffer.shape))
        available = self.value(f"load i64, ptr {self.offset('%ctx', self.ctx.workspace_size)}, align 8", i64)
        self.fail_unless(self.compare("icmp sle", size, available), lambda: self.set_code(NO_MEMORY))
        pointer = self.raw(f"load ptr, ptr {self.offset('%ctx', self.ctx.workspace)}, align {self.target.pointer_bits // 8}, !align !1")
        self.pointers[s.buffer] = pointer

    # Choices and loops.

    def _if(self, s: S.If) -> None:
        c = self.expr(s.cond)
        if c.lanes:
            self._masked(c, s.cond, s.then)
            if s.orelse is not None:
                self._masked(self.not_(c), Not(s.cond), s.orelse)
            return
        then, join = self.new_label("then"), self.new_label("join")
        orelse = self.new_label("else") if s.orelse is not None else join
        self.branch_if(c, then, orelse)
        for label, condition, body in ((then, s.cond, s.then), (orelse, Not(s.cond), s.orelse)):
            if body is not None:
                self.start_block(label)
                with self.scope():
                    self.know(condition)
                    self.stmt(body)
                self.branch(join)
        self.start_block(join)

    def _masked(self, c: Val, condition: Expr, body: S.Stmt) -> None:
        """Emit `body` for the lanes where `c` holds, under a branch that skips it if there are none; `condition` is not used."""
        active = c if self.mask is None else self.binary("and", c, self.mask)
        then, join = self.new_label("then"), self.new_label("join")
        self.branch_if(self.any_lane(active), then, join)
        self.start_block(then)
        with self.scope(), self.active(active):
            self.stmt(body)
        self.branch(join)
        self.start_block(join)

    def _while(self, s: S.While) -> None:
        head, body, done = self.new_label("head"), self.new_label("body"), self.new_label("done")
        self.branch(head)
        self.start_block(head)
        with self.scope():
            if not self.serial_depth and self._nest(s) >= self.cancel_nest:
                self.look_at_cancel()
            c = self.expr(s.cond)
            self.branch_if(c, body, done)
            self.start_block(body)
            self.loop_depth += 1
            self.serial_depth += 1
            with self.scope():
                self.stmt(s.body)
            self.loop_depth -= 1
            self.serial_depth -= 1
            self.branch(head)
        self.start_block(done)

    def _for(self, s: S.For) -> None:
        if S.is_instruction(s):
            if not emit_instruction(self, s):  # the passes left the marked loop as it was: lower it now
                self.stmt(settle_lanes(unroll(self.func.with_(body=S.without_mark(s)))).body)
        elif s.kind == "vector" and self.lanes and self.extent_of(s) is not None:
            self.one_by_one(s)
        elif s.kind == "vector" and not self.lanes:
            self.vector_loop(s)
        elif s.kind == "parallel" and not self.lanes:
            self.parallel_loop(s)
        elif s.kind == "unroll":
            raise InternalError(f"loop `{s.var.name}` was not unrolled")
        else:
            self.serial(s)

    def extent_of(self, s: S.For) -> tuple[int, int] | None:
        """Return start and extent of a loop if both are constants here, else None."""
        start, stop = self.number_of(s.start), self.number_of(s.stop)
        return None if start is None or stop is None else (start, max(0, stop - start))

    def one_by_one(self, s: S.For) -> None:
        """Emit a vector loop of constant extent inside of another one: unrolled, each iteration over the outer loop's lanes."""
        constant = self.extent_of(s)
        assert constant is not None
        start, extent = constant
        for n in range(start, start + extent):
            self.iteration(s, n)

    def iteration(self, s: S.For, number: int) -> None:
        """Emit the body of a loop with a constant for its variable."""
        with self.scope(s.var, open=True):
            self.numbers[s.var] = number
            self.stmt(s.body)
        del self.numbers[s.var]

    def serial(self, s: S.For) -> None:
        """Emit a serial loop; an outermost one with nested loops polls the cancel flag."""
        outermost = not self.serial_depth and not self.lanes and self._nest(s.body) >= self.cancel_nest

        def body() -> None:
            self.know_range(s.var, s.start, s.stop)
            if outermost:
                self.look_at_cancel()
            self.serial_depth += 1
            self.stmt(s.body)
            self.serial_depth -= 1

        constant = self.extent_of(s)
        self.loop(s.var, self.expr(s.start), self.expr(s.stop), body, certain=constant is not None and constant[1] > 0)

    def _nest(self, s: S.Stmt) -> int:
        """Return the nesting depth of the loops in the emitted code; unrolled loops and vector loops of constant extent do not count."""
        below = max((self._nest(x) for x in S.children(s)), default=0)
        if isinstance(s, S.For):
            return below + (s.kind != "unroll" and not (s.kind == "vector" and self.extent_of(s) is not None))
        return below + isinstance(s, S.While)

    def loop(self, var: Var, start: Val, stop: Val, body: Callable[[], None], certain: bool = False, step: int = 1) -> None:
        """Emit a loop: `body` for var = start, start + step, … below stop; `certain` if there is at least one iteration."""
        top, latch, done = self.new_label("loop"), self.new_label("latch"), self.new_label("done")
        before = self.label
        if certain:
            self.branch(top)
        else:
            self.branch_if(self.compare("icmp slt", start, stop), top, done)
        self.start_block(top)
        following = self.name()
        index = self.value(f"phi i64 [ {start.ref}, %{before} ], [ {following}, %{latch} ]", i64)
        self.loop_depth += 1
        with self.scope(var):
            self.bind(var, index)
            self.varying.discard(var)
            self.depth[var] = self.loop_depth
            body()
        self.loop_depth -= 1
        self.branch(latch)
        self.start_block(latch)
        self.line(f"{following} = add nsw i64 {index.ref}, {step}")
        self.branch_if(self.compare("icmp slt", Val(following, i64), stop), top, done)
        self.start_block(done)

    # Checks and calls.

    def _check(self, s: S.Check) -> None:
        if s.kind == "assume":
            self._assume(s.cond)
            return
        site = self.state.site(s)

        def fail() -> str:
            values = [self.expr(v) for v in s.values[:ERROR_VALUES]]
            words = [self.cast(v, i64).ref for v in values] + ["0"] * (ERROR_VALUES - len(values))
            self.line(f'call void @"pliant.fail"(ptr %ctx, i64 2, i64 {site}, {", ".join(f"i64 {v}" for v in words)})')
            return "2"

        self.fail_unless(self.expr(s.cond), fail)
        self.know(s.cond)

    def _assume(self, condition: Expr) -> None:
        """Note an assumed condition. `m == n // 8` defines `m`, so that indices are simplified through it as through a let."""
        var, value = condition.args if isinstance(condition, E.Eq) else (condition, condition)
        if isinstance(var, Var) and var.dtype.is_int and not has_load(value) and var not in free_vars(self.resolve(value)):
            self.definitions.setdefault(var, value)
        else:
            self.know(condition)

    def _launch(self, s: S.Call) -> None:
        name = self.state.inner(s.func)
        buffers = [f"ptr {self.pointer(a)}" for a in s.args if isinstance(a, Buffer)]
        scalars = [self.expr(a).typed for a in (*s.dims, *(a for a in s.args if isinstance(a, Expr)))]
        if self.is_host:
            self.look_at_cancel()
            kernel = self._kernel_index(s.func)
            self._profile(kernel, 0)
        self.loads.clear()
        code = self.raw(f"call i32 {name}({', '.join(['ptr %ctx', *buffers, *scalars])})")
        if self.is_host:
            self._profile(kernel, 1)
        self.answer(code)

    def _kernel_index(self, func: S.Func) -> int:
        if func.name not in self.state.kernels:
            self.state.kernels.append(func.name)
        return self.state.kernels.index(func.name)

    def _profile(self, kernel: int, phase: int) -> None:
        self.line(f'call void @"pliant.profile"(ptr %ctx, i64 {kernel}, i64 {phase})')


_EMIT: dict[type[S.Stmt], Callable[[Any, Any], None]] = {
    S.Seq: Statements._seq,
    S.Store: Statements._store,
    S.Reduce: Statements._reduce,
    S.Let: Statements._let,
    S.Alloc: Statements._alloc,
    S.View: lambda self, s: self.view(s),
    S.If: Statements._if,
    S.While: Statements._while,
    S.For: Statements._for,
    S.Call: Statements._launch,
    S.Check: Statements._check,
}
