"""The C code generator: renders loop programs as C99 text.

Every program becomes an inner function, which takes its buffers as pointers and its symbols and scalars as values. An exported one has an
outer function too, with the signature of docs/design/0001-abi.md. Passes over loop programs (`loop/lowering.py`) have lowered what C has no
construct for, so each statement becomes a few lines.

    module = render([f])
    module.text                       # one file, which needs no library
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from ..dtype import DType, bool_, f64, i64, u8
from ..loop.analysis.aliases import seen_as_several_types
from ..loop.analysis.failure import can_fail
from ..loop.buffer import Buffer, Load
from ..loop.lowering import Machine, Watch, lower_func
from ..loop.passes.name_shared import named
from ..loop.passes.settle_unit_loops import is_unit
from ..loop.passes.written import memory_size
from ..loop.stmt import Alloc, Call, Check, For, Func, If, Let, Param, Seq, Stmt, Store, View, While, is_instruction, without_mark
from ..support.errors import InternalError, UnsupportedError
from ..support.names import unused_name
from ..support.record import dataclass
from ..sym.bounds import int_range
from ..sym.expr import Const, Expr, Var, product
from ..sym.facts import DIM_MAX
from ..target.instructions import Instruction
from .c_expr import Expressions, converted
from .c_instruction import c_headers, c_operands, c_places
from .c_types import Val, c_type, helpers_for, memory_type

# Passes that C does not need: loops run serially, and math functions and storage types are C functions, smaller than inlined code.
NOT_NEEDED = ("choose_grain", "settle_lanes", "outline_parallel", "expand_math", "decode_storage")
_NO_VALUES = "(const int64_t[6]){0}"
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_CONSTANT = re.compile(r" *const [\w *]+?\b(?:const )?(\w+) = .*;$")  # a line that defines a local constant


@dataclass(frozen=True, slots=True)
class CModule:
    """The generated C code of a program: the text, the exported names, and the table of its run-time checks."""

    text: str
    exports: tuple[str, ...]
    sites: tuple[Check, ...]  # error[1] of a failed check is an index into it


def render(funcs: Sequence[Func], linkage: str = "", watch: Watch | None = None) -> CModule:
    """Render `funcs`, exported under their names, and their callees; `linkage` may be `static `. Raises if two have the same name."""
    names = tuple(f.name for f in funcs)
    if len(set(names)) != len(names):
        raise InternalError(f"exported functions must have different names: {', '.join(names)}")
    state = State({*names}, watch)
    for f in funcs:
        inner = state.inner(f)
        state.functions.append(_outer(f, inner, linkage))
    text = [*c_headers(state.instructions), *helpers_for(["prelude", *state.functions]), *state.functions, ""]
    return CModule("\n\n".join(text), names, tuple(state.sites))


@dataclass(slots=True)
class State:
    """The state that the C functions of one module share during rendering: check sites, names, finished texts."""

    used: set[str]
    watch: Watch | None
    sites: dict[Check, int] = field(default_factory=dict)  # the number of each check
    functions: list[str] = field(default_factory=list)
    names: dict[Func, str] = field(default_factory=dict)  # the inner function of each program
    math: dict[tuple[str, DType], str] = field(default_factory=dict)  # the C function of each expanded function
    instructions: list[Instruction] = field(default_factory=list)  # whose C forms are used

    def inner(self, func: Func) -> str:
        """Return the C name of a program's inner function; renders it at first use. Raises an UnsupportedError for an external function."""
        if func not in self.names:
            if func.attrs.external is not None:
                raise UnsupportedError(f"`{func.name}` is a function outside of the program, which C code cannot call", where=func.span)
            plain = re.sub(r"\W", "_", func.name, flags=re.ASCII)
            self.names[func] = unused_name(f"f_{plain}", self.used)
            lowered = lower_func(func, Machine(lanes=1), self.watch, NOT_NEEDED, source=True)
            self.functions.append(_Function(self, lowered).text(self.names[func]))
        return self.names[func]

    def function(self, fn: str, d: DType) -> str:
        """Return the C name of a math function without a C operator; renders it at first use. Code is smaller than inlined at each use."""
        if (fn, d) not in self.math:
            from ..sym.functions import definition

            name = self.math[fn, d] = unused_name(f"pl_{fn.replace('.', '_')}_{d}", self.used)
            params, body = definition(fn, d)
            lets, (result,) = named(body)
            func = Func(fn, tuple(map(Param, params)), Seq(tuple(lets)))
            self.functions.append(_Function(self, func).text(name, result))
        return self.math[fn, d]


def _outer(func: Func, inner: str, linkage: str) -> str:
    """Return the exported function, which unpacks the arrays of the ABI and calls the inner function."""
    entry = func.attrs.entry  # the first buffer of an entry function is the `dims` array itself
    args = ["ctx"] * can_fail(func) + ["dims"] * entry
    args += [f"({pointer_type(b.dtype, func.role(b) == 'in')})buffers[{n}]" for n, b in enumerate(func.buffers[entry:])]
    for n, v in enumerate((*func.symbols, *func.scalars)):
        slot = Val(f"pl_f64_from_bits((uint64_t)dims[{n}])", "double") if v.dtype.is_float else Val(f"dims[{n}]", "int64_t")
        args.append(converted(slot, f64 if v.dtype.is_float else i64, v.dtype).text)
    call = f"{inner}({', '.join(args)})"
    unused = [f"(void){name};" for name in ("ctx", "buffers", "dims") if name not in _WORD.findall(call)]
    body = f"return {call};" if can_fail(func) else f"{call}; return 0;"
    head = f"{linkage}int32_t {func.name}(Ctx *ctx, void **buffers, int64_t *dims)"
    declared = "" if linkage else f"{head};\n"
    return f"{declared}{head} {{ {' '.join([*unused, body])} }}"


def pointer_type(d: DType, constant: bool, by_bytes: bool = False) -> str:
    """Return the type of a pointer to elements; `by_bytes` if the buffer is accessed as several types."""
    return f"{'const ' * constant}{'uint8_t' if by_bytes else memory_type(d)} *"


class _Function(Expressions):
    """Renders one loop program as a static C function."""

    def __init__(self, state: State, func: Func) -> None:
        super().__init__(state.function)
        self.state, self.func = state, func
        self.lines: list[str] = []
        self.indent = 1
        self.pointers: dict[Buffer, str] = {}  # a register buffer without dims is a variable
        self.constant = {b for b in func.buffers if func.role(b) == "in"}
        self.by_bytes = seen_as_several_types(func, memory_type)

    def text(self, name: str, result: Expr | None = None) -> str:
        """Return the text of the whole C function; one for a math function returns the expression `result`."""
        func, fails = self.func, can_fail(self.func)
        params = {"ctx": "Ctx *"} if fails else {}
        restrict = "" if func.attrs.host or func.attrs.entry else "restrict "
        for b in func.buffers:
            self.pointers[b] = parameter = self.name(b.name)
            params[parameter] = f"{pointer_type(b.dtype, b in self.constant)}{restrict}"
            if b in self.by_bytes and memory_type(b.dtype) != "uint8_t":
                self.pointers[b] = f"(({pointer_type(u8, b in self.constant)}){parameter})"
        for v in func.symbols:  # the contract of dims
            self.facts = self.facts.with_range(v, 0, DIM_MAX)
        for v in (*func.symbols, *func.scalars):
            self.vars[v] = Val(self.name(v.name), "int32_t" if v.dtype is i64 and self.fits(v) else c_type(v.dtype))
            params[self.vars[v].text] = f"{self.vars[v].type} "
        self.stmt(func.body)
        if fails or result is not None:
            self.line(f"return {'0' if result is None else self.expr(result).text};")
        lines, words = _without_unread(self.lines)
        unused = [f"  (void){p};" for p in params if p not in words]
        returned = "int32_t" if fails else "void" if result is None else c_type(result.dtype)
        head = f"static {returned} {name}({', '.join(t + p for p, t in params.items()) or 'void'}) {{"
        return "\n".join([head, *unused, *lines, "}"])

    def line(self, text: str) -> None:
        """Append a line of C with the present indentation."""
        self.lines.append("  " * self.indent + text)

    def block(self, head: str, body: Stmt, orelse: Stmt | None = None) -> None:
        """Write `head { body }` with the body indented, and the statement `orelse` in an else branch if there is one."""
        self.line(f"{head} {{")
        self.indent += 1
        self.stmt(body)
        self.indent -= 1
        if orelse is not None:
            self.block("} else", orelse)
        else:
            self.line("}")

    def constant_named(self, wanted: str, value: Val) -> Val:
        """Append the definition of a local C constant; returns it."""
        name = self.name(wanted)
        self.line(f"const {value.type} {name} = {value.text};")
        return Val(name, value.type)

    # Memory.

    def offset(self, buffer: Buffer, number: Expr) -> str:
        """Return a pointer to element `number`; for sub-byte types and buffers accessed by bytes, to its byte."""
        bits = buffer.dtype.bits
        if buffer in self.by_bytes or buffer.dtype.storage:
            number = number * (bits // 8) if bits >= 8 else number * bits // 8  # views begin at whole bytes
        at = self.expr(number)
        return self.pointers[buffer] if at.text == "0" else f"{self.pointers[buffer]} + {at.at(1)}"

    def accessor(self, b: Buffer, indices: tuple[Expr, ...]) -> tuple[str, str, str] | None:
        """Return the load helper, the store helper and their first arguments for an element without a C lvalue; None if it has one."""
        number = b.flat_index(indices)
        if b.dtype.storage:
            return f"pl_load_{b.dtype}", f"pl_store_{b.dtype}", f"{self.pointers[b]}, (size_t)({self.expr(number).text})"
        if b in self.by_bytes and b.dtype.itemsize > 1:
            return f"pl_read_{b.dtype}", f"pl_write_{b.dtype}", self.offset(b, number)
        return None

    def place(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """Return the C lvalue of a buffer's element."""
        return self.pointers[b] if _is_variable(b) else f"{self.pointers[b]}[{self.expr(b.flat_index(indices)).text}]"

    def _load(self, e: Load) -> Val:
        helpers = self.accessor(e.buffer, e.indices)
        if helpers:
            return Val(f"{helpers[0]}({helpers[2]})", c_type(e.dtype))
        place = self.place(e.buffer, e.indices)
        return Val(f"{place} != 0", "bool", 0) if e.dtype is bool_ and not _is_variable(e.buffer) else Val(place, c_type(e.dtype))

    def _store(self, s: Store) -> None:
        value, helpers = self.expr(s.value).text, self.accessor(s.buffer, s.indices)
        self.line(f"{helpers[1]}({helpers[2]}, {value});" if helpers else f"{self.place(s.buffer, s.indices)} = {value};")

    def _alloc(self, s: Alloc) -> None:
        b = s.buffer
        self.pointers[b] = name = self.name(b.name)
        if b.scope == "workspace":
            if not self.func.attrs.host or b.dtype is not u8:
                raise InternalError(f"workspace buffer `{b.name}` was not lifted into the memory plan of the host program")
            self.line(f"if ({self.expr(product(b.shape)).at(1)} > ctx->workspace_size) return pl_fail(ctx, 3, 0, {_NO_VALUES});")
            self.line(f"uint8_t *{name} = ctx->workspace;")
            return
        size = memory_size(b)
        if not isinstance(size, Const):
            raise InternalError(f"`{b.name}` on the stack has a size that is no constant: {b}")
        elements = max(1, size.value)
        if _is_variable(b):
            self.line(f"{c_type(b.dtype)} {name} = 0;")
        elif b in self.by_bytes or b.dtype.storage:
            packed = " = {0}" if b.dtype.bits < 8 else ""  # a store reads the other elements of its byte
            self.line(f"uint8_t {name}[{(elements * b.dtype.bits + 7) // 8}]{packed};")
        else:
            self.line(f"{memory_type(b.dtype)} {name}[{elements}];")

    def _view(self, s: View) -> None:
        if s.source in self.constant:
            self.constant.add(s.buffer)
        start = self.offset(s.source, s.source.flat_index(s.start))
        self.pointers[s.buffer] = name = self.name(s.buffer.name)
        self.line(f"{pointer_type(s.buffer.dtype, s.buffer in self.constant, s.buffer in self.by_bytes)}const {name} = {start};")

    # Statements.

    def stmt(self, s: Stmt) -> None:
        """Append the C code of a statement to the function; raises an InternalError for a kind without C code."""
        match s:
            case Seq():
                outside = self.facts
                for inner in s.body:
                    self.stmt(inner)
                self.facts = outside  # a copy of the sequence may bind the names to other values
            case Store():
                self._store(s)
            case Let():
                self.vars[s.var] = self.constant_named(s.var.name, self.expr(s.value))
                if s.var.dtype.is_int:
                    self.facts = self.facts.with_range(s.var, *int_range(s.value, self.facts))
            case Alloc():
                self._alloc(s)
            case View():
                self._view(s)
            case For() if is_instruction(s):
                self._instruction(s)
            case For():
                self._for(s)
            case While():
                self.block(f"while ({self.expr(s.cond).text})", s.body)
            case If():
                self.block(f"if ({self.expr(s.cond).text})", s.then, s.orelse)
            case Call():
                self._launch(s)
            case Check():
                # The ABI's error record holds six values.
                values = ", ".join(converted(self.expr(v), v.dtype, i64).text for v in s.values[:6]) or "0"
                fail = f"pl_fail(ctx, 2, {self.state.sites.setdefault(s, len(self.state.sites))}, (const int64_t[6]){{{values}}})"
                self.line(f"if (!{self.expr(s.cond).at(2)}) return {fail};")
            case _:
                raise InternalError(f"{type(s).__name__} has no C code")

    def _for(self, s: For) -> None:
        if is_unit(s):
            self.vars[s.var] = self.expr(s.start)
            self.stmt(s.body)
            return
        start, stop = self.expr(s.start), self.expr(s.stop)
        if not isinstance(s.stop, (Const, Var)):  # evaluate it once, not in each iteration
            stop = self.constant_named(f"{s.var.name}_end", stop)
        type_ = "int32_t" if start.type == stop.type == "int32_t" else "int64_t"
        self.vars[s.var] = Val(self.name(s.var.name), type_)
        name, outside = self.vars[s.var].text, self.facts
        self.facts = outside.with_range(s.var, int_range(s.start, outside)[0], int_range(s.stop, outside)[1] - 1)
        self.block(f"for ({type_} {name} = {start.text}; {name} < {stop.at(1)}; ++{name})", s.body)
        self.facts = outside

    def _instruction(self, s: For) -> None:
        """Write the C form of a tensor instruction, and under `#else` its loop, lowered like any other.

        Only the C form is written if it needs no condition, only the loop if there is no C form.
        """
        performed = c_places(s)
        if performed is not None:
            instruction, places = performed
            self.state.instructions.append(instruction)
            if instruction.c_if:
                self.line(f"#if {instruction.c_if}")
            self.line(c_operands(instruction, places, self.operand))
            if not instruction.c_if:
                return
            self.line("#else")
        self.stmt(lower_func(self.func.with_(body=without_mark(s)), Machine(lanes=1), None, (*NOT_NEEDED, "unroll"), source=True).body)
        if performed is not None:
            self.line("#endif")

    def operand(self, b: Buffer, start: Expr, constant: bool) -> str:
        """Return the address of an instruction's operand, as a pointer to its elements."""
        place = f"({self.offset(b, start)})"
        return f"(({pointer_type(b.dtype, constant)}){place})" if b in self.by_bytes else place

    def _launch(self, s: Call) -> None:
        name = self.state.inner(s.func)
        buffers = [a for a in s.args if isinstance(a, Buffer)]
        args = ["ctx"] * can_fail(s.func) + [self._argument(a, p, s.func) for a, p in zip(buffers, s.func.buffers, strict=True)]
        args += [self.expr(e).text for e in (*s.dims, *(a for a in s.args if isinstance(a, Expr)))]
        if self.func.attrs.host:
            self.line(f"if (*ctx->cancel != 0) return pl_fail(ctx, 1, 0, {_NO_VALUES});")
        if not can_fail(s.func):
            self.line(f"{name}({', '.join(args)});")
            return
        code = self.constant_named("code", Val(f"{name}({', '.join(args)})", "int32_t")).text
        self.line(f"if ({code} != 0) return {code};")

    def _argument(self, a: Buffer, p: Buffer, callee: Func) -> str:
        if a in self.by_bytes or a.dtype is not p.dtype:
            constant = "const " * (callee.role(p) == "in")
            return f"({pointer_type(p.dtype, bool(constant))})({constant}void *)({self.pointers[a]})"
        return self.pointers[a]


def _is_variable(b: Buffer) -> bool:
    """True if a buffer is a single register, which is a local variable in C."""
    return b.scope == "register" and not b.ndim and not b.dtype.storage


def _without_unread(lines: list[str]) -> tuple[list[str], set[str]]:
    """Return the lines without unused constants, such as sizes that only a view's shape names, and the identifiers in them."""
    used: list[str] = []
    words: set[str] = set()
    for line in reversed(lines):
        constant = _CONSTANT.match(line)
        if not constant or constant[1] in words:
            used.append(line)
            words.update(_WORD.findall(line))
    return used[::-1], words
