"""Pliant from scratch: the core idea in one file, to be read from top to bottom, and run.

    python docs/from_scratch.py

A compiler usually wants to know how large things are. This one keeps sizes as symbols: `n` and `m` stay letters in shapes, in loop bounds
and in the machine code, and one compiled function serves every size. We need five things: (1) symbolic scalars, (2) a small language of
loops, (3) an interpreter that says what programs mean, (4) a schedule, which rewrites a program into a faster one and refuses to
rewrite it into a wrong one, and (5) code generation. Pliant has the same parts, in the folders sym, loop, interp, schedule, codegen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace

import llvmlite.binding as llvm
import numpy as np

# 1. Symbolic scalars. A shape such as (n, m) and an index such as i*m + j are values: sums of products of names, in a normal form,
# so that two expressions are equal exactly when they are the same object to `==`. Proofs become subtraction: a - b is 0 or it is not.


@dataclass(frozen=True)
class Floor:
    """`a // by`, rounded down: the one thing here that is no sum of products, and so is treated like a name."""

    a: Sym
    by: int

    def __str__(self) -> str:
        return f"floor({self.a} / {self.by})"


@dataclass(frozen=True)
class Sym:
    """The terms of a sum: `2*i*m + 1` is {("i", "m"): 2, (): 1}, kept sorted."""

    terms: tuple[tuple[tuple[str | Floor, ...], int], ...]

    @staticmethod
    def make(terms: list[tuple[tuple[str | Floor, ...], int]]) -> Sym:
        total: dict[tuple[str | Floor, ...], int] = {}
        for factors, count in terms:
            key = tuple(sorted(factors, key=str))
            total[key] = total.get(key, 0) + count
        return Sym(tuple(sorted(((k, c) for k, c in total.items() if c), key=str)))

    def __add__(self, other: Sym | int) -> Sym:
        return Sym.make([*self.terms, *sym(other).terms])

    def __mul__(self, other: Sym | int) -> Sym:
        return Sym.make([(f + g, c * d) for f, c in self.terms for g, d in sym(other).terms])

    def __sub__(self, other: Sym | int) -> Sym:
        return self + sym(other) * -1

    def __floordiv__(self, by: int) -> Sym:
        return Sym.make([((Floor(self, by),), 1)])

    def replace(self, name: str, new: Sym) -> Sym:
        """This expression with `new` in place of a name."""
        result = sym(0)
        for factors, count in self.terms:
            term = sym(count)
            for f in factors:
                term *= f.a.replace(name, new) // f.by if isinstance(f, Floor) else new if f == name else sym(f)
            result += term
        return result

    def value(self, env: dict[str, int]) -> int:
        """The number it is when its names have these values."""
        total = 0
        for factors, count in self.terms:
            for f in factors:
                count *= f.a.value(env) // f.by if isinstance(f, Floor) else env[f]
            total += count
        return total

    def __str__(self) -> str:
        shown = ["*".join([*([str(c)] if c != 1 or not fs else []), *(str(f) for f in fs)]) for fs, c in self.terms]
        return " + ".join(shown) or "0"


def sym(value: Sym | str | int) -> Sym:
    """A name or a number as a symbolic scalar."""
    return value if isinstance(value, Sym) else Sym.make([((value,), 1) if isinstance(value, str) else ((), value)])


i, j, n, m = (sym(name) for name in "ijnm")
assert (i + 1) * m + j - (i * m + j) == m  # the distance between two rows is m, whatever m will be

# 2. The language of loops: elements of flat buffers (f32), sums and products of them, stores, and counted loops. A program is data.


@dataclass(frozen=True)
class Load:
    buffer: str
    index: Sym


@dataclass(frozen=True)
class Op:
    symbol: str  # + or *
    a: Value
    b: Value


Value = Load | Op


@dataclass(frozen=True)
class Store:
    buffer: str
    index: Sym
    value: Value


@dataclass(frozen=True)
class For:
    var: str
    extent: Sym
    body: tuple[For | Store, ...]
    lanes: int = 0  # above 0: the iterations are the lanes of vector instructions


def text(s: For | Store | Value, indent: str = "") -> str:
    """A program as people read it."""
    match s:
        case For():
            kind = "vector" if s.lanes else "range"
            return f"{indent}for {s.var} in {kind}({s.extent}):\n" + "\n".join(text(b, indent + "    ") for b in s.body)
        case Store():
            return f"{indent}{s.buffer}[{s.index}] = {text(s.value)}"
        case Load():
            return f"{s.buffer}[{s.index}]"
    return f"({text(s.a)} {s.symbol} {text(s.b)})"


# y = x * w + b for a matrix of n rows and m columns: w has an element for each column, b one for each row.
at = i * m + j
program = For("i", n, (For("j", m, (Store("y", at, Op("+", Op("*", Load("x", at), Load("w", j)), Load("b", i))),)),))

# 3. The interpreter: what programs mean. It is slow and obviously right, and therefore the judge of everything that follows.

Memory = dict[str, np.ndarray]


def interpret(s: For | Store | Value, env: dict[str, int], memory: Memory) -> np.float32 | None:
    match s:
        case For():
            for k in range(s.extent.value(env)):
                for b in s.body:
                    interpret(b, {**env, s.var: k}, memory)
        case Store():
            memory[s.buffer][s.index.value(env)] = interpret(s.value, env, memory)
        case Load():
            return memory[s.buffer][s.index.value(env)]
        case Op():
            a, b = interpret(s.a, env, memory), interpret(s.b, env, memory)
            return a + b if s.symbol == "+" else a * b
    return None


# 4. The schedule. Each step takes a program to a program with the same meaning; a step that could change the meaning is refused.


def put(s: For | Store | Value, name: str, new: Sym) -> For | Store | Value:
    """`s` with `new` in place of a name."""
    match s:
        case For():
            return replace(s, extent=s.extent.replace(name, new), body=tuple(put(b, name, new) for b in s.body))
        case Store():
            return Store(s.buffer, s.index.replace(name, new), put(s.value, name, new))
        case Load():
            return Load(s.buffer, s.index.replace(name, new))
    return Op(s.symbol, put(s.a, name, new), put(s.b, name, new))


def split(loop: For, factor: int) -> tuple[For, For]:
    """One loop as two nested ones, and a loop over the rest: m need not be a multiple. Always legal, as the order stays the same."""
    whole, outer, inner = loop.extent // factor, loop.var + "o", loop.var + "i"
    tiles = tuple(put(b, loop.var, sym(outer) * factor + sym(inner)) for b in loop.body)
    rest = tuple(put(b, loop.var, whole * factor + sym(inner)) for b in loop.body)
    return For(outer, whole, (For(inner, sym(factor), tiles),)), For(inner, loop.extent - whole * factor, rest)


def vectorize(loop: For) -> For:
    """The iterations at once, as lanes: legal only if no iteration reads or writes what another one writes."""
    if not all(isinstance(s, Store) for s in loop.body):
        raise ValueError(f"cannot vectorize {loop.var}: only the innermost loop becomes vectors")
    written = {s.buffer: s.index for s in loop.body}
    for buffer, index in (access for s in loop.body for access in elements(s)):
        step = stride(index, loop.var)  # a difference of two symbolic scalars: it holds for every n and m, or it is no number
        if buffer in written and (index != written[buffer] or step != sym(1)):
            raise ValueError(f"cannot vectorize {loop.var}: {buffer}[{index}] may be what another iteration writes")
        if step not in (sym(0), sym(1)):
            raise ValueError(f"cannot vectorize {loop.var}: {buffer}[{index}] moves by {step}")
    if any(names for names, _ in loop.extent.terms):
        raise ValueError(f"cannot vectorize {loop.var}: {loop.extent} is no number, and lanes have to be counted")
    return replace(loop, lanes=loop.extent.value({}))


def stride(index: Sym, var: str) -> Sym:
    return index.replace(var, sym(var) + 1) - index


def elements(s: Store | Value) -> list[tuple[str, Sym]]:
    """What a statement touches."""
    if isinstance(s, Op):
        return elements(s.a) + elements(s.b)
    return [(s.buffer, s.index), *(elements(s.value) if isinstance(s, Store) else [])]


tiles, rest = split(program.body[0], 8)
scheduled = replace(program, body=(replace(tiles, body=(vectorize(tiles.body[0]),)), rest))
print(text(program), "\n\n# split by 8, tiles vectorized:\n" + text(scheduled), sep="")

running_sum = For("j", sym(8), (Store("y", j + 1, Op("+", Load("y", j), Load("x", j))),))
try:
    vectorize(running_sum)
    raise AssertionError("this would be wrong, and must be refused")
except ValueError as refusal:
    print(f"\nrefused: {refusal}")

# 5. Code generation: LLVM's language as text. Bounds and addresses are computed from n and m, which arrive as arguments.


class Emitter:
    def __init__(self, buffers: list[str], dims: list[str]) -> None:
        self.lines, self.count, self.block = [], 0, "entry"
        self.names = {d: self.new("load i64, ptr " + self.new(f"getelementptr i64, ptr %dims, i64 {k}")) for k, d in enumerate(dims)}
        self.base = {b: self.new("load ptr, ptr " + self.new(f"getelementptr ptr, ptr %bufs, i64 {k}")) for k, b in enumerate(buffers)}

    def new(self, what: str) -> str:
        self.count += 1
        self.lines.append(f"  %v{self.count} = {what}")
        return f"%v{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def number(self, s: Sym) -> str:
        total = "0"
        for factors, count in s.terms:
            product = str(count)
            for f in factors:
                factor = self.new(f"sdiv i64 {self.number(f.a)}, {f.by}") if isinstance(f, Floor) else self.names[f]
                product = self.new(f"mul i64 {product}, {factor}")
            total = self.new(f"add i64 {total}, {product}")
        return total

    def address(self, buffer: str, index: Sym) -> str:
        return self.new(f"getelementptr float, ptr {self.base[buffer]}, i64 {self.number(index)}")

    def value(self, e: Value, lanes: int, var: str) -> str:
        kind = f"<{lanes} x float>" if lanes else "float"
        if isinstance(e, Op):
            a, b = self.value(e.a, lanes, var), self.value(e.b, lanes, var)
            return self.new(f"{'fadd' if e.symbol == '+' else 'fmul'} {kind} {a}, {b}")
        if lanes and stride(e.index, var) == sym(0):  # one element for all lanes
            first = self.new(f"insertelement {kind} poison, float {self.value(e, 0, var)}, i64 0")
            return self.new(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
        return self.new(f"load {kind}, ptr {self.address(e.buffer, e.index)}, align 4")

    def statement(self, s: For | Store, lanes: int = 0, var: str = "") -> None:
        if isinstance(s, Store):
            kind = f"<{lanes} x float>" if lanes else "float"
            self.lines.append(f"  store {kind} {self.value(s.value, lanes, var)}, ptr {self.address(s.buffer, s.index)}, align 4")
        elif s.lanes:
            self.names[s.var] = "0"  # the first lane; the others follow it in memory
            for b in s.body:
                self.statement(b, s.lanes, s.var)
        else:
            self.loop(s)

    def loop(self, s: For) -> None:
        stop, before, k = self.number(s.extent), self.block, self.count
        self.names[s.var] = f"%i{k}"
        self.lines.append(f"  br label %head{k}")
        self.label(f"head{k}")
        self.lines += [f"  %i{k} = phi i64 [ 0, %{before} ], [ %next{k}, %back{k} ]", f"  %more{k} = icmp slt i64 %i{k}, {stop}"]
        self.lines.append(f"  br i1 %more{k}, label %body{k}, label %end{k}")
        self.label(f"body{k}")
        for b in s.body:
            self.statement(b)
        self.lines.append(f"  br label %back{k}")
        self.label(f"back{k}")
        self.lines += [f"  %next{k} = add i64 %i{k}, 1", f"  br label %head{k}"]
        self.label(f"end{k}")


def compile_loops(s: For, buffers: list[str], dims: list[str]) -> Callable[[dict[str, int], Memory], None]:
    """A native function `f(buffers, dims)` for every value of the dims."""
    e = Emitter(buffers, dims)
    e.statement(s)
    module = llvm.parse_assembly("define void @f(ptr %bufs, ptr %dims) {\nentry:\n" + "\n".join(e.lines) + "\n  ret void\n}\n")
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    native = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))

    def call(env: dict[str, int], memory: Memory, engine: object = engine) -> None:  # the engine owns the code: it has to live on
        pointers = (ctypes.c_void_p * len(buffers))(*(memory[b].ctypes.data for b in buffers))
        native(pointers, (ctypes.c_int64 * len(dims))(*(env[d] for d in dims)))

    return call


llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
f = compile_loops(scheduled, ["x", "w", "b", "y"], ["n", "m"])

# The proof of the pudding: native code equals the interpreter of the *unscheduled* program, bit for bit, for every size we try.
rng = np.random.default_rng(0)
sizes = [(0, 5), (3, 0), (1, 1), (2, 7), (3, 8), (5, 9), (4, 64), (7, 100)]
for rows, columns in sizes:
    env = {"n": rows, "m": columns}
    memory = {name: rng.standard_normal(k).astype(np.float32) for name, k in [("x", rows * columns), ("w", columns), ("b", rows)]}
    expected, got = np.zeros(rows * columns, np.float32), np.zeros(rows * columns, np.float32)
    interpret(program, env, {**memory, "y": expected})
    f(env, {**memory, "y": got})
    assert expected.tobytes() == got.tobytes(), (rows, columns)
print(f"\none compiled function, every n and m: equal to the interpreter for {len(sizes)} shapes, bit for bit")
