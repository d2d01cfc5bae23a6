"""Parallel loops: the body becomes a function of its own that the thread pool calls for chunks of iterations.

    for i in parallel(n): S        ->      env = {what S uses from outside}
                                           n <= grain ? body(ctx, env, 0, n) : ctx->parallel_for(ctx, body, env, n, grain)

What the body uses is found while it is emitted: a variable or buffer that it does not know is *captured*, that is, stored
in the caller's frame and passed on. The body is two functions: one that the pool calls, which loads the captured values,
and one that takes them as parameters, so that pointers can be `noalias`. A parallel loop inside of another one runs serially, and so
does one whose iterations are not known to write bytes of their own (`llvm_owned.py`). The grain was chosen before (`choose_grain`).
"""

from __future__ import annotations

from ..dtype import i64
from ..loop.buffer import Buffer
from ..loop.stmt import For
from ..support.errors import UnsupportedError
from ..support.record import dataclass
from ..sym.expr import Var, wrap
from .llvm_owned import owns_bytes
from .llvm_types import Val, symbol_text
from .llvm_vector import VectorLoops


@dataclass(frozen=True, slots=True)
class Captured:
    """A value that an outlined body takes from its parent: the operand there, and the name of the parameter."""

    operand: str  # in the parent, with its type
    type: str
    name: str
    root: Buffer | None = None


class ParallelLoops(VectorLoops):
    """Emits parallel loops."""

    def parallel_loop(self, s: For) -> None:
        if not owns_bytes(self, s):
            self.serial(s)
            return
        self.state.parallel = True
        start, stop = self.expr(s.start), self.expr(s.stop)
        extent = self.binary("sub", stop, start)
        body = _Body(self, s)
        slots = body.emit(start)
        environment = self.alloca(f"[{max(1, len(slots))} x i64]", 8)
        launch, done = self.new_label("launch"), self.new_label("done")
        self.branch_if(self.compare("icmp sgt", extent, Val("0", i64)), launch, done)
        self.start_block(launch)
        with self.scope():
            for n, captured in enumerate(slots):
                self.line(f"store {captured.operand}, ptr {self.offset(environment, 8 * n)}, align 8")
            grain = self.expr(wrap(s.annotations["grain"], i64))
            alone, pool, joined = self.new_label("alone"), self.new_label("pool"), self.new_label("joined")
            self.branch_if(self.compare("icmp sle", extent, grain), alone, pool)
            cc = f"{self.target.call_conv} " if self.target.call_conv else ""
            self.start_block(alone)
            here = self.raw(f"call {cc}i32 {body.symbol}(ptr %ctx, ptr {environment}, i64 0, {extent.typed})")
            self.branch(joined)
            self.start_block(pool)
            width = self.target.pointer_bits // 8
            parallel_for = self.raw(f"load ptr, ptr {self.offset('%ctx', self.ctx.parallel_for)}, align {width}")
            operands = f"ptr %ctx, ptr {body.symbol}, ptr {environment}, {extent.typed}, {grain.typed}"
            there = self.raw(f"call {cc}i32 {parallel_for}({operands})")
            self.branch(joined)
            self.start_block(joined)
            self.answer(self.raw(f"phi i32 [ {here}, %{alone} ], [ {there}, %{pool} ]"))
            self.branch(done)
        self.start_block(done)
        self.loads.clear()


class _Body(ParallelLoops):
    """The body of a parallel loop as a function over a range of iterations."""

    def __init__(self, parent: ParallelLoops, s: For) -> None:
        super().__init__(parent.state, parent.func)
        self.parent = parent
        self.loop_stmt = s
        self.is_host = False
        self.cancel_nest = 2  # the pool looks at the flag before each chunk
        stem = self.state.unique(f"{parent.func.name}.{s.var.name}")
        self.symbol = symbol_text(stem)
        self.inner_name = symbol_text(stem + ".inner")
        self.slots: list[Captured] = []
        self.numbers = dict(parent.numbers)
        self.definitions = dict(parent.definitions)
        self.roots = dict(parent.roots)
        self.depth = dict.fromkeys(parent.depth, 0)
        self._known = list(parent._known)

    def emit(self, start: Val) -> list[Captured]:
        """Append both functions to the module; what the parent has to store in the environment, in order."""
        s = self.loop_stmt
        first = start if start.is_literal else Val(self._parameter(start.typed, start.type), i64)

        def body() -> None:
            at = self.value_of(step)
            self.bind(s.var, at if first.ref == "0" else self.binary("add", at, first))
            self.depth[s.var] = self.loop_depth
            self.know_range(s.var, s.start, s.stop)
            self.stmt(s.body)

        step = Var(s.var.name)
        self.loop(step, Val("%begin", i64), Val("%end", i64), body)
        self.line("ret i32 0")
        self.state.functions += [self._inner_text(), self._outer_text()]
        return self.slots

    def parallel_loop(self, s: For) -> None:
        self.serial(s)

    def capture(self, var: Var) -> Val:
        value = self.parent.value_of(var)
        if not value.is_literal:
            value = Val(self._parameter(value.typed, value.type), var.dtype)
        self.bound[var] = value
        return value

    def capture_buffer(self, buffer: Buffer) -> str:
        if buffer.scope == "register":
            raise UnsupportedError(f"register buffer `{buffer.name}` is used inside of the parallel loop `{self.loop_stmt.var.name}`")
        found = self._parameter(f"ptr {self.parent.pointer(buffer)}", "ptr", self.roots.get(buffer, buffer))
        self.pointers[buffer] = found
        return found

    def _parameter(self, operand: str, type_name: str, root: Buffer | None = None) -> str:
        self.slots.append(Captured(operand, type_name, f"%c{len(self.slots)}", root))
        return self.slots[-1].name

    def _inner_text(self) -> str:
        roots = [c.root for c in self.slots if c.root is not None]
        parameters = ["ptr %ctx", "i64 %begin", "i64 %end"]
        for c in self.slots:
            # Two names for parts of one buffer may overlap.
            alias = " noalias" if c.root is not None and roots.count(c.root) == 1 and not self.parent.is_host else ""
            parameters.append(f"{c.type}{alias} {c.name}")
        return self.function_text(f"internal i32 {self.inner_name}({', '.join(parameters)}) noinline")

    def _outer_text(self) -> str:
        lines, operands = [], ["ptr %ctx", "i64 %begin", "i64 %end"]
        for n, c in enumerate(self.slots):
            lines.append(f"  %p{n} = getelementptr i8, ptr %environment, i64 {8 * n}")
            lines.append(f"  %c{n} = load {c.type}, ptr %p{n}, align 8")
            operands.append(f"{c.type} %c{n}")
        cc = f"{self.target.call_conv} " if self.target.call_conv else ""
        head = f"define internal {cc}i32 {self.symbol}(ptr %ctx, ptr %environment, i64 %begin, i64 %end) {{"
        call = f"  %code = call i32 {self.inner_name}({', '.join(operands)})"
        return "\n".join([head, "entry:", *lines, call, "  ret i32 %code", "}"])
