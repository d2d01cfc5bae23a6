"""The LLVM code generator: renders loop programs as LLVM IR text, and compiles them to blobs.

Every program becomes an inner function, which takes its buffers as `noalias` pointers and its symbols and scalars as
values; calls between programs go to it. An exported program has an outer function too, with the signature of
docs/design/0001-abi.md, which loads these arguments from its arrays.

    module = generate([f], target("native"))
    module.text                       # LLVM IR
    blob = compile_module(module)     # code that the runtime maps

Text is written directly: a program of three loops takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..dtype import f64, i64
from ..loop.lowering import Machine, lower_func
from ..loop.stmt import Check, For, Func, While, walk_stmts
from ..runtime.blob import Blob
from ..support.errors import InternalError
from ..support.record import dataclass
from ..target import Target
from .llvm_build import Declarations
from .llvm_errors import ModuleState
from .llvm_float import Floats
from .llvm_parallel import ParallelLoops
from .llvm_types import Val, ctx_layout, register_type, symbol_text

_SMALL = 8  # statements up to which a callee without loops is always inlined: the call would cost more than its body


@dataclass(frozen=True, slots=True)
class Module:
    """A generated LLVM module: the text, the exported names, and the tables that numbers in its code index."""

    text: str
    target: Target
    exports: tuple[str, ...]
    sites: tuple[Check, ...]  # error[1] of a failed check is an index into it
    kernels: tuple[str, ...]  # so is the kernel of a profile event into this
    parallel: bool  # True if anything in it calls `parallel_for`


def generate(funcs: Sequence[Func], target: Target, exports: Sequence[str] | None = None) -> Module:
    """Render `funcs` and their callees as LLVM IR; `exports` names those with an outer function (all by default).

    Raises an InternalError if it names one twice or one that is not in `funcs`.
    """
    names = tuple(f.name for f in funcs) if exports is None else tuple(exports)
    if len(set(names)) != len(names) or not {f.name for f in funcs} >= set(names):
        raise InternalError(f"exported functions must be given, each once: {', '.join(names)}")
    state = State(target, Declarations(target))
    state.used.update(names)
    for f in funcs:
        state.function(f, exported=f.name in names)
    return state.module(names)


def compile_module(module: Module, level: int = 2) -> Blob:
    """Compile a module to machine code for a CPU, ready to be mapped."""
    from .emit import emit_object
    from .link_elf import link

    return link(emit_object(module.text, module.target, level), module.exports)


def machine_of(target: Target) -> Machine:
    """Return the facts about a target that the lowering passes use: the f32 lanes of a vector register, and the number of registers."""
    return Machine(lanes=max(1, target.vector_bits // 32), registers=target.n_vector_registers)


class State(ModuleState):
    """An LLVM module under construction; each called loop program is rendered once."""

    def inner(self, func: Func) -> str:
        name = self.names.get(func)
        if name is None:
            name = self.names[func] = symbol_text(self.unique(f"{func.name}.inner"))
            if func.attrs.external is not None:
                self.functions.append(_thunk(func, name, self))
            else:
                _Function(self, lower_func(func, machine_of(self.target), self.watch), name).emit()
        self.called[name] = None
        return name

    def function(self, func: Func, exported: bool) -> None:
        """Render a loop program; if it is exported, also a wrapper function with the calling convention of the ABI."""
        inner = self.inner(func)
        if exported:
            self.functions.append(_outer(func, inner, self.target, self.declarations))

    def text(self, elsewhere: Iterable[str] = ()) -> str:
        """Return the LLVM IR so far; the inner functions named in `elsewhere` are defined in other modules."""
        others = [f"declare hidden i32 {name}({self.signatures[name]})" for name in elsewhere]
        return "\n\n".join([*self.declarations.lines.values(), *others, _helpers(self.target), *self.functions, _METADATA])

    def module(self, exports: tuple[str, ...], elsewhere: Iterable[str] = ()) -> Module:
        """Return the generated LLVM text with its tables as a `Module`."""
        return Module(self.text(elsewhere), self.target, exports, tuple(self.sites), tuple(self.kernels), self.parallel)


class _Function(ParallelLoops):
    """Renders one loop program as an internal LLVM function, without the calling convention of the ABI."""

    def __init__(self, state: ModuleState, func: Func, name: str) -> None:
        super().__init__(state, func)
        self.text_name = name

    def emit(self) -> None:
        """Generate the LLVM function, and append its text to the module."""
        func = self.func
        parameters = ["ptr %ctx"]
        for n, b in enumerate(func.buffers):
            self.pointers[b] = f"%b{n}"
            # Legal for kernels, which get disjoint memory. An output of a host program may alias the state argument that it updates.
            alias = "" if self.is_host else " noalias readonly" if func.role(b) == "in" else " noalias"
            parameters.append(f"ptr{alias} %b{n}")
        for n, v in enumerate((*func.symbols, *func.scalars)):
            self.bind(v, Val(f"%s{n}", v.dtype))
            self.depth[v] = 0
            parameters.append(f"{register_type(v.dtype)} %s{n}")
        for v in func.symbols:
            self.know_at_least_zero(v)
        self.stmt(func.body)
        self.line("ret i32 0")
        inline = "alwaysinline" if _is_small(func) else "noinline"
        self.state.signatures[self.text_name] = ", ".join(p.split()[0] for p in parameters)
        self.state.functions.append(self.function_text(f"{self.state.linkage} i32 {self.text_name}({', '.join(parameters)}) {inline}"))


def _is_small(func: Func) -> bool:
    statements = list(walk_stmts(func.body))
    return len(statements) <= _SMALL and not any(isinstance(s, (For, While)) for s in statements)


def _outer(func: Func, inner: str, target: Target, declarations: Declarations) -> str:
    """Return the exported function, which loads the arguments of the inner one from the arrays of the ABI."""
    b = Floats(declarations)
    operands = ["ptr %ctx"]
    width = target.pointer_bits // 8
    entry = func.attrs.entry  # the first buffer of an entry function is the `dims` array itself
    if entry:
        operands.append("ptr %dims")
    for n, _ in enumerate(func.buffers[entry:]):
        slot = b.offset("%buffers", n * width)
        operands.append("ptr " + b.raw(f"load ptr, ptr {slot}, align {width}"))
    for n, v in enumerate((*func.symbols, *func.scalars)):
        slot = b.offset("%dims", 8 * n)
        stored = f64 if v.dtype.is_float else i64
        loaded = b.value(f"load {register_type(stored)}, ptr {slot}, align 8", stored)
        operands.append(b.cast(loaded, v.dtype).typed)
    code = b.raw(f"call i32 {inner}({', '.join(operands)})")
    b.line(f"ret i32 {code}")
    convention = f"{target.call_conv} " if target.call_conv else ""
    head = f"define {convention}i32 {symbol_text(func.name)}(ptr %ctx, ptr %buffers, ptr %dims) {{"
    return "\n".join([head, "entry:", *b.lines, "}"])


def _thunk(func: Func, name: str, state: ModuleState) -> str:
    """Return the inner function of a foreign call: it calls, by the ABI, the function whose address its first buffer holds."""
    b, target = Floats(state.declarations), state.target
    width = target.pointer_bits // 8
    tensors = func.buffers[1:]
    values = (*func.symbols, *func.scalars)
    b.line(f"%buffers = alloca [{len(tensors) + 1} x ptr], align {width}")
    b.line(f"%dims = alloca [{len(values) + 1} x i64], align 8")
    for n in range(len(tensors)):
        b.line(f"store ptr %b{n + 1}, ptr {b.offset('%buffers', n * width)}, align {width}")
    for n, v in enumerate(values):
        stored = b.cast(Val(f"%s{n}", v.dtype), f64 if v.dtype.is_float else i64)
        b.line(f"store {stored.typed}, ptr {b.offset('%dims', 8 * n)}, align 8")
    address = b.raw(f"load ptr, ptr %b0, align {width}")
    convention = f"{target.call_conv} " if target.call_conv else ""
    code = b.raw(f"call {convention}i32 {address}(ptr %ctx, ptr %buffers, ptr %dims)")
    failed, wide = b.raw(f"icmp ne i32 {code}, 0"), b.raw(f"sext i32 {code} to i64")
    b.line(f"br i1 {failed}, label %failed, label %out")
    tell = f'call void @"pliant.fail"(ptr %ctx, i64 5, i64 {func.attrs.external}, i64 {wide}{", i64 0" * 5})'
    parameters = [f"ptr %b{n}" for n in range(len(tensors) + 1)] + [f"{register_type(v.dtype)} %s{n}" for n, v in enumerate(values)]
    parameters.insert(0, "ptr %ctx")
    state.signatures[name] = ", ".join(p.split()[0] for p in parameters)
    head = f"define {state.linkage} i32 {name}({', '.join(parameters)}) noinline {{"
    return "\n".join([head, "entry:", *b.lines, "failed:", f"  {tell}", "  br label %out", "out:", f"  ret i32 {code}", "}"])


def _helpers(target: Target) -> str:
    ctx = ctx_layout(target)
    values = ", ".join(f"i64 %v{n}" for n in range(6))
    stores = "\n".join(
        f"  %p{n} = getelementptr i8, ptr %ctx, i64 {ctx.error + 16 + 8 * n}\n  store i64 %v{n}, ptr %p{n}, align 8" for n in range(6)
    )
    convention = f"{target.call_conv} " if target.call_conv else ""
    return _HELPERS.format(values=values, stores=stores, cc=convention, error=ctx.error, site=ctx.error + 8, profile=ctx.profile)


# Several threads may fail: the one whose compare-and-swap succeeds writes the rest of the error record.
_HELPERS = """define internal void @"pliant.fail"(ptr %ctx, i64 %code, i64 %site, {values}) cold noinline {{
  %error = getelementptr i8, ptr %ctx, i64 {error}
  %pair = cmpxchg ptr %error, i64 0, i64 %code seq_cst seq_cst
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %write, label %out
write:
  %at = getelementptr i8, ptr %ctx, i64 {site}
  store i64 %site, ptr %at, align 8
{stores}
  br label %out
out:
  ret void
}}

define internal void @"pliant.profile"(ptr %ctx, i64 %kernel, i64 %phase) {{
  %at = getelementptr i8, ptr %ctx, i64 {profile}
  %hook = load ptr, ptr %at
  %there = icmp ne ptr %hook, null
  br i1 %there, label %tell, label %out
tell:
  call {cc}void %hook(ptr %ctx, i64 %kernel, i64 %phase)
  br label %out
out:
  ret void
}}"""

_METADATA = """!0 = !{!"branch_weights", i32 1000000, i32 1}
!1 = !{i64 64}"""
