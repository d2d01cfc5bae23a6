"""LLVM code generation for parallel loops whose body was outlined into a function over a range (`loop/passes/outline_parallel.py`).

    for i in parallel(n): f(x, m, i, i + 1)     ->     env = {x, m}
                                                       n <= grain ? f(ctx, env, 0, n) : ctx->parallel_for(ctx, f, env, n, grain)

The function becomes two: one that the thread pool calls, which loads the arguments from an environment in the caller's frame, and one
that takes them as parameters, so that pointers can be `noalias`. Parameters that its code does not use are not passed: some serve
only as facts for range analysis.
"""

from __future__ import annotations

from ..dtype import i64
from ..loop.buffer import Buffer
from ..loop.passes.outline_parallel import is_launch
from ..loop.stmt import Call, For, Func, Seq
from ..support.errors import InternalError
from ..sym.expr import Expr, Var, wrap
from .llvm_errors import ModuleState
from .llvm_types import Val, register_type, symbol_text
from .llvm_vector import VectorLoops


class ParallelLoops(VectorLoops):
    """Emits parallel loops as calls of the runtime's `parallel_for`."""

    def parallel_loop(self, s: For) -> None:
        call = s.body
        if not is_launch(s) or not isinstance(call, Call):
            raise InternalError(f"parallel loop `{s.var.name}` was not outlined")
        self.state.parallel = True
        start, stop = self.expr(s.start), self.expr(s.stop)
        extent = self.binary("sub", stop, start)
        chunk = _Chunk(self.state, call.func)
        parameters = chunk.emit(start)
        arguments: dict[Buffer | Var, Buffer | Expr] = dict(zip(call.func.symbols, call.dims, strict=True))
        arguments |= {p.value: a for p, a in zip(call.func.params, call.args, strict=True)}
        slots = [self._operand(arguments[p]) for p in parameters] + ([] if start.is_literal else [start.typed])
        environment = self.alloca(f"[{max(1, len(slots))} x i64]", 8)
        launch, done = self.new_label("launch"), self.new_label("done")
        self.branch_if(self.compare("icmp sgt", extent, Val("0", i64)), launch, done)
        self.start_block(launch)
        with self.scope():
            for n, operand in enumerate(slots):
                self.line(f"store {operand}, ptr {self.offset(environment, 8 * n)}, align 8")
            grain = self.expr(wrap(s.annotations["grain"], i64))
            alone, pool, joined = self.new_label("alone"), self.new_label("pool"), self.new_label("joined")
            self.branch_if(self.compare("icmp sle", extent, grain), alone, pool)
            cc = f"{self.target.call_conv} " if self.target.call_conv else ""
            self.start_block(alone)
            here = self.raw(f"call {cc}i32 {chunk.symbol}(ptr %ctx, ptr {environment}, i64 0, {extent.typed})")
            self.branch(joined)
            self.start_block(pool)
            width = self.target.pointer_bits // 8
            parallel_for = self.raw(f"load ptr, ptr {self.offset('%ctx', self.ctx.parallel_for)}, align {width}")
            operands = f"ptr %ctx, ptr {chunk.symbol}, ptr {environment}, {extent.typed}, {grain.typed}"
            there = self.raw(f"call {cc}i32 {parallel_for}({operands})")
            self.branch(joined)
            self.start_block(joined)
            self.answer(self.raw(f"phi i32 [ {here}, %{alone} ], [ {there}, %{pool} ]"))
            self.branch(done)
        self.start_block(done)
        self.loads.clear()

    def _operand(self, argument: Buffer | Expr) -> str:
        return f"ptr {self.pointer(argument)}" if isinstance(argument, Buffer) else self.expr(argument).typed


class _Chunk(ParallelLoops):
    """Renders the outlined body of a parallel loop as a function. Its environment holds the captured values, in order of first use."""

    def __init__(self, state: ModuleState, func: Func) -> None:
        super().__init__(state, func)
        self.alias = "" if self.is_host else " noalias"
        self.is_host = False
        self.cancel_nest = 2  # the pool polls the flag before each chunk, so only nested loops need to
        self.taken: dict[Buffer | Var, str] = {}
        stem = state.unique(func.name)
        self.symbol, self.inner_name = symbol_text(stem), symbol_text(stem + ".inner")

    def emit(self, start: Val) -> list[Buffer | Var]:
        """Append both functions to the module; returns the parameters that are passed, in order. Iterations count from `start` on."""
        *before, loop = self.func.body.body if isinstance(self.func.body, Seq) else (self.func.body,)
        assert isinstance(loop, For)
        for v in self.func.symbols:
            self.know_at_least_zero(v)
        for s in before:
            self.stmt(s)
        self.loop(loop.var, Val("%begin", i64), Val("%end", i64), lambda: self.stmt(loop.body))
        self.line("ret i32 0")
        self.state.functions += [self._inner_text(), self._outer_text(start)]
        return list(self.taken)

    def capture(self, var: Var) -> Val:
        value = self.bound[var] = Val(self._take(var), var.dtype)
        return value

    def capture_buffer(self, buffer: Buffer) -> str:
        pointer = self.pointers[buffer] = self._take(buffer)
        return pointer

    def _take(self, parameter: Buffer | Var) -> str:
        name = self.taken[parameter] = f"%c{len(self.taken)}"
        return name

    def _types(self) -> list[str]:
        return ["ptr" if isinstance(p, Buffer) else register_type(p.dtype) for p in self.taken]

    def _inner_text(self) -> str:
        parameters = ["ptr %ctx", "i64 %begin", "i64 %end"]
        parameters += [f"{t}{self.alias if t == 'ptr' else ''} %c{n}" for n, t in enumerate(self._types())]
        return self.function_text(f"internal i32 {self.inner_name}({', '.join(parameters)}) noinline")

    def _outer_text(self, start: Val) -> str:
        """Return the function that the thread pool calls: it loads the arguments from the environment and calls the inner function.

        Iterations of the pool count from 0; `start` is added to them.
        """
        lines, operands = [], ["ptr %ctx", "i64 %begin", "i64 %end"]
        for n, t in enumerate([*self._types(), *([] if start.is_literal else ["i64"])]):
            lines.append(f"  %p{n} = getelementptr i8, ptr %environment, i64 {8 * n}")
            lines.append(f"  %c{n} = load {t}, ptr %p{n}, align 8")
            operands.append(f"{t} %c{n}")
        if start.ref != "0":
            first = start.ref if start.is_literal else operands.pop().split()[1]
            lines += [f"  %first = add i64 %begin, {first}", f"  %last = add i64 %end, {first}"]
            operands[1:3] = ["i64 %first", "i64 %last"]
        cc = f"{self.target.call_conv} " if self.target.call_conv else ""
        head = f"define internal {cc}i32 {self.symbol}(ptr %ctx, ptr %environment, i64 %begin, i64 %end) {{"
        call = f"  %code = call i32 {self.inner_name}({', '.join(operands)})"
        return "\n".join([head, "entry:", *lines, call, "  ret i32 %code", "}"])
