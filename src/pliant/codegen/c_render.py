"""The C code generator: loop programs in, C99 text out.

Every program becomes an inner function, which takes its buffers as pointers and its symbols and scalars as values; an exported one has an
outer function too, with the signature of docs/design/0001-abi.md. Loops run serially, whatever their kind: a vector or parallel loop is
legal only if that gives the same.

    module = render([f], target("c"))
    module.text                       # one file, which needs no library
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from ..dtype import DType, bool_, f64, i64, u8
from ..loop.buffer import Buffer, Load
from ..loop.lowering import Machine, Watch, lower_func
from ..loop.stmt import Alloc, Call, Check, For, Func, If, Let, Reduce, Seq, Stmt, Store, View, While, is_instruction, walk_stmts
from ..support.errors import InternalError, UnsupportedError
from ..support.names import unused_name
from ..support.record import dataclass
from ..sym import expr as E
from ..sym.bounds import int_range
from ..sym.expr import Const, Expr, Var, product
from ..sym.facts import DIM_MAX
from ..sym.poly import to_expr
from ..target.instructions import Instruction
from .c_expr import Expressions
from .c_instruction import c_call, c_headers, c_places
from .c_types import INT32, Val, c_type, helpers_for, literal, memory_type

# Passes that C does without: loops run serially, and math functions and storage types are C functions, smaller than code at each use.
NOT_NEEDED = ("choose_grain", "outline_parallel", "expand_math", "decode_storage")
_COMBINERS: dict[str, type[E.Binary]] = {"add": E.Add, "mul": E.Mul, "min": E.Min, "max": E.Max, "and": E.And, "or": E.Or}
_NO_VALUES = "(const int64_t[6]){0}"


@dataclass(frozen=True, slots=True)
class CModule:
    """Generated code: the text, the exported names, and what the numbers of checks mean."""

    text: str
    exports: tuple[str, ...]
    sites: tuple[Check, ...]  # error[1] of a failed check is an index into it


def render(funcs: Sequence[Func], linkage: str = "", watch: Watch | None = None) -> CModule:
    """The C text of `funcs`, exported under their names, and of what they call; `linkage` may be `static `."""
    names = tuple(f.name for f in funcs)
    if len(set(names)) != len(names):
        raise InternalError(f"exported functions must have different names: {', '.join(names)}")
    state = State({*names}, watch)
    for f in funcs:
        inner = state.inner(f)
        state.functions.append(_outer(f, inner, linkage, state))
    functions = _called(state.functions)
    text = [*c_headers(state.instructions), *helpers_for(["prelude", *functions]), *functions, ""]
    return CModule("\n\n".join(text), names, tuple(state.sites))


@dataclass(slots=True)
class State:
    """What the functions of a module share."""

    used: set[str]
    watch: Watch | None
    sites: list[Check] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    names: dict[Func, str] = field(default_factory=dict)  # the inner function of each program
    math: dict[tuple[str, DType], str] = field(default_factory=dict)  # the C function of each expanded function
    instructions: list[Instruction] = field(default_factory=list)  # whose C forms are used

    def inner(self, func: Func) -> str:
        """The C name of a program's inner function; its text is made if it is not there."""
        if func not in self.names:
            if "external" in func.attrs:
                raise UnsupportedError(f"`{func.name}` is a function outside of the program, which C code cannot call", where=func.span)
            plain = re.sub(r"\W", "_", func.name, flags=re.ASCII)
            self.names[func] = unused_name(f"f_{plain}", self.used)
            lowered = lower_func(func, Machine(lanes=1), self.watch, NOT_NEEDED)
            self.functions.append(_Function(self, lowered).text(self.names[func]))
        return self.names[func]

    def function(self, fn: str, d: DType) -> str:
        """The C name of an expanded function: code is smaller than with its definition at every use."""
        if (fn, d) not in self.math:
            from ..sym.functions import definition

            name = self.math[fn, d] = unused_name(f"pl_{fn.replace('.', '_')}_{d}", self.used)
            params, body = definition(fn, d)
            at = Expressions(self.function)
            at.vars = {p: Val(at.name(p.name), c_type(d)) for p in params}
            at.begin(body)
            result = at.expr(body)
            head = f"static {c_type(d)} {name}({', '.join(f'{v.type} {v.text}' for v in at.vars.values())}) {{"
            self.functions.append("\n".join([head, *at.lines, f"  return {result.text};", "}"]))
        return self.math[fn, d]

    def site(self, check: Check) -> int:
        """The number of a check."""
        if check not in self.sites:
            self.sites.append(check)
        return self.sites.index(check)


def can_fail(func: Func) -> bool:
    """Whether a program can answer with an error; others return nothing."""
    return bool(func.attrs.get("entry")) or any(
        isinstance(s, Check) or (isinstance(s, Call) and can_fail(s.func)) for s in walk_stmts(func.body)
    )


def _outer(func: Func, inner: str, linkage: str, state: State) -> str:
    """The exported function: takes what the inner one wants from the arrays of the ABI."""
    entry = bool(func.attrs.get("entry"))  # the first buffer of an entry function is the `dims` array itself
    args = ["dims"] if entry else []
    args += [f"({pointer_type(b.dtype, func.role(b) == 'in')})buffers[{n}]" for n, b in enumerate(func.buffers[entry:])]
    at = Expressions(state.function)
    for n, v in enumerate((*func.symbols, *func.scalars)):
        slot = Val(f"pl_f64_from_bits((uint64_t)dims[{n}])", "double") if v.dtype.is_float else Val(f"dims[{n}]", "int64_t")
        args.append(at.cast(slot, f64 if v.dtype.is_float else i64, v.dtype).text)
    fails = can_fail(func)
    call = f"{inner}({', '.join([*(['ctx'] if fails else []), *args])})"
    unused = [f"(void){name};" for name in ("ctx", "buffers", "dims") if not re.search(rf"\b{name}\b", call)]
    body = f"return {call};" if fails else f"{call}; return 0;"
    head = f"{linkage}int32_t {func.name}(Ctx *ctx, void **buffers, int64_t *dims)"
    declared = "" if linkage else f"{head};\n"
    return f"{declared}{head} {{ {' '.join([*unused, body])} }}"


def pointer_type(d: DType, constant: bool, by_bytes: bool = False) -> str:
    """The type of a pointer to elements."""
    return f"{'const ' * constant}{'uint8_t' if by_bytes else memory_type(d)} *"


class _Function(Expressions):
    """The inner function of a program."""

    def __init__(self, state: State, func: Func) -> None:
        super().__init__(state.function)
        self.state, self.func = state, func
        self.pointers: dict[Buffer, str] = {}
        self.cells: dict[Buffer, dict[int, str]] = {}  # register buffers as variables, by element number
        self.constant = {b for b in func.buffers if func.role(b) == "in"}
        self.by_bytes = _seen_as_several_types(func)
        self.scattered = _without_constant_places(func)  # register buffers that are arrays

    def text(self, name: str) -> str:
        """The whole function."""
        func = self.func
        fails = can_fail(func)
        params = ["Ctx *ctx"] if fails else []
        for b in func.buffers:
            self.pointers[b] = self.name(b.name)
            restrict = "" if func.attrs.get("host") or func.attrs.get("entry") else "restrict "
            params.append(f"{pointer_type(b.dtype, b in self.constant)}{restrict}{self.pointers[b]}")
        for v in func.symbols:  # dims are never more
            self.facts = self.facts.with_range(v, 0, DIM_MAX)
        for v in (*func.symbols, *func.scalars):
            self.vars[v] = Val(self.name(v.name), self.type_of(v))
            params.append(f"{self.vars[v].type} {self.vars[v].text}")
        for b in (b for b in func.buffers if b in self.by_bytes and memory_type(b.dtype) != "uint8_t"):
            name, self.pointers[b] = self.pointers[b], self.name(b.name)
            self.line(
                f"{pointer_type(b.dtype, b in self.constant, True)}{self.pointers[b]} = ({pointer_type(u8, b in self.constant)}){name};"
            )
        self.stmt(func.body)
        if fails:
            self.line("return 0;")
        lines, used = _without_unused([x for line in self.lines for x in self._declared(line)])
        unused = [f"  (void){p.split()[-1].lstrip('*')};" for p in params if not used[p.split()[-1].lstrip("*")]]
        head = f"static {'int32_t' if fails else 'void'} {name}({', '.join(params) or 'void'}) {{"
        return "\n".join([head, *unused, *lines, "}"])

    def type_of(self, v: Var) -> str:
        """The C type of a variable."""
        low, high = int_range(v, self.facts) if v.dtype is i64 else (0, 0)
        return "int32_t" if v.dtype is i64 and INT32[0] <= low and high <= INT32[1] else c_type(v.dtype)

    def bind(self, v: Var, value: Val) -> None:
        """Declares a variable that keeps its value."""
        name = self.name(v.name)
        self.line(f"const {value.type} {name} = {value.text};")
        self.vars[v] = Val(name, value.type)

    # Memory.

    def flat(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Expr:
        return buffer.flat_index(indices)

    def place(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """An element as C names it, where it has a type of its own there."""
        if buffer in self.cells:
            number = self.flat(buffer, indices)
            assert isinstance(number, Const)
            return self.cell(buffer, number.value)
        return f"{self.pointers[buffer]}[{self.expr(self.flat(buffer, indices)).text}]"

    def cell(self, buffer: Buffer, number: int) -> str:
        """The variable of an element of a register buffer."""
        return self.cells[buffer].setdefault(number, f"{self.pointers[buffer]}_{number}")

    def address(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        """Where an element lies, in memory that is seen by bytes."""
        at = self.expr(self.flat(buffer, indices) * buffer.dtype.itemsize)
        return self.pointers[buffer] if at.text == "0" else f"{self.pointers[buffer]} + {at.at(1)}"

    def load(self, e: Load) -> Val:
        d = e.buffer.dtype
        if d.storage:
            number = self.expr(self.flat(e.buffer, e.indices)).text
            return Val(f"pl_load_{d}({self.pointers[e.buffer]}, (size_t)({number}))", c_type(e.dtype))
        if e.buffer in self.by_bytes and d.itemsize > 1:
            return Val(f"pl_read_{d}({self.address(e.buffer, e.indices)})", c_type(d))
        place = self.place(e.buffer, e.indices)
        return Val(f"{place} != 0", "bool", 0) if d is bool_ else Val(place, c_type(d))

    def store(self, buffer: Buffer, indices: tuple[Expr, ...], value: Val) -> None:
        """Writes an element."""
        d = buffer.dtype
        if d.storage:
            number = self.expr(self.flat(buffer, indices)).text
            self.line(f"pl_store_{d}({self.pointers[buffer]}, (size_t)({number}), {value.text});")
        elif buffer in self.by_bytes and d.itemsize > 1:
            self.line(f"pl_write_{d}({self.address(buffer, indices)}, {value.text});")
        else:
            self.line(f"{self.place(buffer, indices)} = {value.text};")

    # Statements.

    def stmt(self, s: Stmt) -> None:
        """Writes a statement."""
        match s:
            case Seq():
                for inner in s.body:
                    self.stmt(inner)
            case Store():
                self.begin(s.value, self.flat(s.buffer, s.indices))
                self.store(s.buffer, s.indices, self.expr(s.value))
            case Reduce():
                self._reduce(s)
            case Let():
                self.begin(s.value)
                value = self.expr(s.value)
                self.bind(s.var, value)
                if s.var.dtype is i64:
                    self.facts = self.facts.with_range(s.var, *int_range(s.value, self.facts))
            case Alloc():
                self._alloc(s.buffer)
            case View():
                self._view(s)
            case For():
                self._for(s)
            case While():
                self._while(s)
            case If():
                self._if(s)
            case Call():
                self._launch(s)
            case Check():
                self._check(s)
            case _:
                raise InternalError(f"{type(s).__name__} has no C code")

    def block(self, s: Stmt) -> None:
        """A statement between braces, one step further in."""
        self.indent += 1
        self.stmt(s)
        self.indent -= 1

    def _reduce(self, s: Reduce) -> None:
        combiner = s.combiner
        if not combiner.result:
            (target,) = s.targets
            whole: Expr = (
                E.Fma(s.values[0], s.values[1], target) if combiner.name == "fma" else _COMBINERS[combiner.name](target, s.values[0])
            )
            self.stmt(Store(target.buffer, target.indices, whole))
            return
        self.line("{")
        self.indent += 1
        self.begin(*s.targets, *s.values)
        for v, e in zip((*combiner.left, *combiner.right), (*s.targets, *s.values), strict=True):
            self.bind(v, self.expr(e))
        self.begin(*combiner.result, *(self.flat(t.buffer, t.indices) for t in s.targets))
        results = [self.settle(self.expr(e)) for e in combiner.result]
        for t, result in zip(s.targets, results, strict=True):
            self.store(t.buffer, t.indices, result)
        self.indent -= 1
        self.line("}")

    def _alloc(self, b: Buffer) -> None:
        self.pointers[b] = name = self.name(b.name)
        if b.scope == "workspace":
            if not self.func.attrs.get("host") or b.dtype is not u8:
                raise InternalError(f"workspace buffer `{b.name}` was not lifted into the memory plan of the host program")
            self.begin(*b.shape)
            self.line(f"if ({self.expr(product(b.shape)).at(1)} > ctx->workspace_size) return pl_fail(ctx, 3, 0, {_NO_VALUES});")
            self.line(f"uint8_t *{name} = ctx->workspace;")
            return
        sizes = [e.value for e in b.shape if isinstance(e, Const)]
        steps = [e.value for e in b.element_strides() if isinstance(e, Const)]
        if not len(sizes) == len(steps) == len(b.shape):
            raise InternalError(f"`{b.name}` on the stack has a size that is no constant: {b}")
        elements = max(1, 1 + sum((n - 1) * step for n, step in zip(sizes, steps, strict=True)))
        if b.scope == "register" and b not in self.scattered and b not in self.by_bytes and not b.dtype.storage:
            self.cells[b] = {}
            self.line(f"@{name}")  # replaced by the declarations once all elements are known
        elif b in self.by_bytes or b.dtype.storage:
            packed = " = {0}" if b.dtype.bits < 8 else ""  # a store reads what its byte holds besides
            self.line(f"uint8_t {name}[{(elements * b.dtype.bits + 7) // 8}]{packed};")
        else:
            self.line(f"{memory_type(b.dtype)} {name}[{elements}];")

    def _declared(self, line: str) -> list[str]:
        """A line; the one that stands for a register buffer as the declarations of its variables."""
        if "@" not in line:
            return [line]
        space, _, name = line.partition("@")
        (b,) = (b for b in self.cells if self.pointers[b] == name)
        return [f"{space}{memory_type(b.dtype)} {cell} = 0;" for cell in self.cells[b].values()]

    def _view(self, s: View) -> None:
        constant = s.source in self.constant
        if constant:
            self.constant.add(s.buffer)
        number = self.flat(s.source, s.start)
        by_bytes = s.buffer in self.by_bytes
        if by_bytes or s.source.dtype.storage:
            bits = s.source.dtype.bits
            number = number * (bits // 8) if bits >= 8 else number * bits // 8  # views begin at whole bytes
        self.begin(number)
        at = self.expr(number)
        start = self.pointers[s.source] if at.text == "0" else f"{self.pointers[s.source]} + {at.at(1)}"
        name = self.pointers[s.buffer] = self.name(s.buffer.name)
        self.line(f"{pointer_type(s.buffer.dtype, constant, by_bytes)}const {name} = {start};")

    def _for(self, s: For) -> None:
        performed = c_places(s) if is_instruction(s) else None
        if performed is None:
            self._loop(s)
            return
        instruction, places = performed
        self.state.instructions.append(instruction)
        starts = [to_expr(p.start, i64) for p in places]
        if instruction.c_if:
            self.line(f"#if {instruction.c_if}")
        self.begin(*starts)
        pointers = {p.parameter.name: self._operand(p.buffer, start, not p.written) for p, start in zip(places, starts, strict=True)}
        self.line(f"{c_call(instruction, pointers)};")
        if instruction.c_if:
            self.line("#else")
            self._loop(s)
            self.line("#endif")

    def _operand(self, b: Buffer, start: Expr, constant: bool) -> str:
        """The address of an operand of an instruction, as a pointer to its elements."""
        by_bytes = b in self.by_bytes
        at = self.expr(start * b.dtype.itemsize if by_bytes else start)
        place = f"({self.pointers[b]} + {at.at(1)})"
        return f"(({pointer_type(b.dtype, constant)}){place})" if by_bytes else place

    def _loop(self, s: For) -> None:
        if isinstance(s.start, Const) and isinstance(s.stop, Const) and s.stop.value - s.start.value <= 1:
            if s.stop.value > s.start.value:  # a loop of one iteration
                self.vars[s.var] = literal(s.start)
                self.stmt(s.body)
            return
        self.begin(s.start, s.stop)
        start, stop = self.expr(s.start), self.expr(s.stop)
        low, high = int_range(s.start, self.facts)[0], int_range(s.stop, self.facts)[1]
        before, self.facts = self.facts, self.facts.with_range(s.var, low, high - 1)
        type_ = "int32_t" if start.type == stop.type == "int32_t" else "int64_t"
        if not isinstance(s.stop, (Const, Var)):
            stop = self.settle(stop, f"{s.var.name}_end")
        name = self.name(s.var.name)
        self.vars[s.var] = Val(name, type_)
        self.line(f"for ({type_} {name} = {start.text}; {name} < {stop.at(1)}; ++{name}) {{")
        self.block(s.body)
        self.line("}")
        self.facts = before

    def _while(self, s: While) -> None:
        self.line("for (;;) {")
        self.indent += 1
        self.begin(s.cond)
        self.line(f"if (!({self.expr(s.cond).text})) break;")
        self.stmt(s.body)
        self.indent -= 1
        self.line("}")

    def _if(self, s: If) -> None:
        self.begin(s.cond)
        self.line(f"if ({self.expr(s.cond).text}) {{")
        self.block(s.then)
        if s.orelse is not None:
            self.line("} else {")
            self.block(s.orelse)
        self.line("}")

    def _check(self, s: Check) -> None:
        self.begin(s.cond, *s.values)
        cond = self.expr(s.cond)
        self.line(f"if (!{cond.at(2)}) {{")
        self.indent += 1
        # Casts are implicit here; what a check tells are at most six values.
        values = ", ".join(self.cast(self.expr(v), v.dtype, i64).text for v in s.values[:6]) or "0"
        self.line(f"return pl_fail(ctx, 2, {self.state.site(s)}, (const int64_t[6]){{{values}}});")
        self.indent -= 1
        self.line("}")

    def _launch(self, s: Call) -> None:
        name = self.state.inner(s.func)
        exprs = (*s.dims, *(a for a in s.args if isinstance(a, Expr)))
        self.begin(*exprs)
        buffers = [a for a in s.args if isinstance(a, Buffer)]
        args = [self._argument(a, p, s.func) for a, p in zip(buffers, s.func.buffers, strict=True)]
        args += [self.expr(e).text for e in exprs]
        if self.func.attrs.get("host"):
            self.line(f"if (*ctx->cancel != 0) return pl_fail(ctx, 1, 0, {_NO_VALUES});")
        if not can_fail(s.func):
            self.line(f"{name}({', '.join(args)});")
            return
        code = self.name("code")
        self.line(f"const int32_t {code} = {name}({', '.join(['ctx', *args])});")
        self.line(f"if ({code} != 0) return {code};")

    def _argument(self, a: Buffer, p: Buffer, callee: Func) -> str:
        if a in self.by_bytes or a.dtype is not p.dtype:
            constant = "const " * (callee.role(p) == "in")
            return f"({pointer_type(p.dtype, bool(constant))})({constant}void *)({self.pointers[a]})"
        return self.pointers[a]


def _seen_as_several_types(func: Func) -> set[Buffer]:
    """Buffers whose memory is seen under several dtypes: C may assume that pointers to different types do not meet, except by bytes."""
    root: dict[Buffer, Buffer] = {}
    for s in walk_stmts(func.body):
        if isinstance(s, View):
            root[s.source] = root.get(s.source, s.source)
            root[s.buffer] = root[s.source]
    kinds: dict[Buffer, set[str]] = {}
    for b, r in root.items():
        kinds.setdefault(r, set()).add(memory_type(b.dtype))
    return {b for b, r in root.items() if len(kinds[r]) > 1}


def _without_constant_places(func: Func) -> set[Buffer]:
    """Register buffers with an index that is no constant: unrolling gives them constants."""
    found: set[Buffer] = set()
    for s in walk_stmts(func.body):
        places = [Load(s.buffer, s.indices)] if isinstance(s, Store) else list(s.targets) if isinstance(s, Reduce) else []
        loads = [e for own in _own_exprs(s) for e in E.walk(own) if isinstance(e, Load)]
        found |= {e.buffer for e in (*places, *loads) if not isinstance(e.buffer.flat_index(e.indices), Const)}
        found |= {s.source} if isinstance(s, View) else {a for a in s.args if isinstance(a, Buffer)} if isinstance(s, Call) else set()
    return {b for b in found if b.scope == "register"}


def _own_exprs(s: Stmt) -> tuple[Expr, ...]:
    from ..loop.stmt import exprs

    return (*exprs(s), *s.combiner.result) if isinstance(s, Reduce) else exprs(s)


_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_DECLARED = re.compile(r"^ *(?!return )(?:const )?\w+ (?:\*const )?(\w+)(?:\[\d+\])?(?: = .*)?;$")
_ASSIGNED = re.compile(r"^ *(\w+)(?:\[[^=]*\])? = .*;$")


def _without_unused(lines: list[str]) -> tuple[list[str], Counter[str]]:
    """The lines without variables that nobody reads, and how often each word is left. What is computed has no effect."""
    while True:
        uses = Counter(w for line in lines for w in _WORD.findall(line))
        assigned = [(m := _ASSIGNED.match(line)) and m[1] for line in lines]
        declared = [(m := _DECLARED.match(line)) and m[1] for line in lines]
        writes = Counter(assigned)
        # What is written by a pointer is somebody's memory.
        unread = {n for n, line in zip(declared, lines, strict=True) if n and uses[n] == 1 + (0 if "*const" in line else writes[n])}
        if not unread:
            return lines, uses
        lines = [line for line, a, d in zip(lines, assigned, declared, strict=True) if not unread.intersection((a, d))]


def _called(functions: list[str]) -> list[str]:
    """The functions, each of which stands before its callers, without those that nobody calls."""
    kept: list[str] = []
    words: set[str] = set()
    for text in reversed(functions):
        name = text.partition("(")[0].split()[-1]
        if not text.startswith("static ") or name in words or not name.startswith(("f_", "pl_")):
            kept.append(text)
            words.update(_WORD.findall(text))
    return kept[::-1]
