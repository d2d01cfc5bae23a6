"""Random kernels for random schedules: a few stages of blocks, each made of random parts, as the text of a loop program.

A kernel has a few dims (with contracts of their own), inputs that are made as stages ask for them, and stages. A stage writes one
or more whole buffers, which later stages read; what nobody reads is an output. The kinds of stages are those that
schedules have to think about: maps (transposed, shifted, gathered, flattened), reductions with every combiner and with predicates,
tuples reduced by lambdas, scans, histograms, stencils, updates in place, sums that go on. Loops come whole, split with a guard, fused,
or from another start than 0. Every load is in range by construction, for every value of the dims.

    >>> func = make_kernel(7); print(func)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant.loop.stmt import Func
from schedule_kernels import parse

HEAD = """from pliant import InOut, abs, bf16, bool_, combine, f16, f64, i16, i64, inf, min, u32
"""
FLOATS = ["f32"] * 5 + ["f64", "bf16"]
INTS = ["i32"] * 4 + ["i8", "u8", "i64", "i16", "u32"]
EXTENTS = ["n"] * 6 + ["m"] * 5 + ["1", "2", "3", "4", "5", "8", "12", "16", "n + 2", "m + 2", "n * m"]
SMALL = ["m", "m", "3", "4", "5", "8", "n", "1", "16", "m + 2"]
CONTRACTS = ["", "", "", "", ", max=64", ", min=1", ", multiple_of=4", ", min=1, max=64"]


@dataclass
class Value:
    """A buffer that later stages may read."""

    name: str
    dtype: str
    shape: tuple[str, ...]


@dataclass
class Iterator:
    """An iterator of a block: its name, kind, and extent."""

    name: str
    kind: str
    extent: str


@dataclass
class Nest:
    """The loops of a block: each a header, in order; what is bound to the iterators; the conditions that loops leave to the block."""

    loops: list[str] = field(default_factory=list)
    bound: dict[str, str] = field(default_factory=dict)
    guards: list[str] = field(default_factory=list)


def plain(extent: str) -> str:
    """An extent as an operand of a product."""
    return extent if extent.isidentifier() or extent.isdigit() else f"({extent})"


def literal(dtype: str, value: float) -> str:
    """A constant of a dtype as the language writes it."""
    if dtype == "bool_":
        return str(bool(value))
    return repr(float(value)) if dtype[0] in "fb" else str(int(value))


class KernelGenerator:
    """Makes the text of one kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"kernel {seed}")
        self.names = 0
        self.inputs: list[Value] = []
        self.indices: set[str] = set()
        self.values: list[Value] = []  # what stages wrote
        self.states: list[Value] = []  # parameters that are read and written
        self.read: set[str] = set()
        self.body: list[str] = []
        self.notes = ""  # what the next block is annotated with
        self.allocated: dict[str, int] = {}  # the line of the body that allocates a buffer
        self.contracts = {d: self.pick(CONTRACTS) for d in ("n", "m")}

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    def fresh(self, hint: str) -> str:
        self.names += 1
        return f"{hint}{self.names}"

    # What expressions read.

    def index(self, extent: str, its: list[Iterator]) -> str | None:
        """An index into a dim of that extent, in terms of the iterators; None where these make none."""
        same = [i.name for i in its if i.extent == extent]
        if same:
            return str(self.pick(same))
        for i in its:
            if extent == f"{i.extent} + 2":  # a stencil
                return f"{i.name} + {self.pick([0, 1, 2])}"
        a, b = ([i.name for i in its if i.extent == e] for e in ("n", "m"))
        if extent == "n * m" and a and b:
            return f"{a[0]} * m + {b[0]}"
        flat = [i.name for i in its if i.extent == "n * m"]
        if flat and extent in ("n", "m"):
            return f"{flat[0]} // m" if extent == "n" else f"{flat[0]} % m"
        if extent.isdigit():
            size = int(extent)
            if not its or size == 1 or self.chance(0.3):
                return str(self.random.randrange(size))
            return f"{self.pick(its).name} % {size}"
        return None

    def load(self, its: list[Iterator], dtype: str = "") -> tuple[str, str]:
        """A load of something that the iterators can index, and its dtype."""
        if self.chance(0.65):
            known = [*self.values, *self.values, *self.inputs]
            self.random.shuffle(known)
            for v in known:
                if dtype and v.dtype != dtype:
                    continue
                indices = [self.index(e, its) for e in v.shape]
                if all(i is not None for i in indices):
                    self.read.add(v.name)
                    return f"{v.name}[{', '.join(map(str, indices)) or '()'}]", v.dtype
        return self.new_load(its, dtype or self.pick(FLOATS + INTS))

    def new_load(self, its: list[Iterator], dtype: str) -> tuple[str, str]:
        """A load of a new input, indexed by some of the iterators."""
        if len(self.inputs) >= 6:
            return self.constant(dtype), dtype
        used = [i for i in its if self.chance(0.8)] or its[:1]
        self.random.shuffle(used) if self.chance(0.3) else None
        shape, indices = [], []
        for i in used:
            if self.chance(0.12) and "+" not in i.extent and "*" not in i.extent and not i.extent.isdigit():
                shape.append(f"{i.extent} + 2")
                indices.append(f"{i.name} + {self.pick([0, 1, 2])}")
            elif self.chance(0.12) and i.extent in ("n", "m"):  # a gather: some row for each place
                shape.append(i.extent)
                table = Value(self.fresh("t"), self.pick(["i32", "i64"]), (i.extent,))
                self.inputs.append(table)
                self.indices.add(table.name)
                indices.append(f"cast(i64, {table.name}[{i.name}]) % {i.extent}")
            else:
                shape.append(i.extent)
                indices.append(i.name)
        if not used or self.chance(0.08):
            shape.insert(0, "1")
            indices.insert(0, "0")
        made = Value(self.fresh("x"), dtype, tuple(shape))
        self.inputs.append(made)
        return f"{made.name}[{', '.join(indices)}]", dtype

    # Expressions.

    def constant(self, dtype: str) -> str:
        if dtype == "bool_":
            return self.pick(["True", "False"])
        choices = [0, 1, 2, 3, 5] if dtype in ("u8", "u32") else [0, 1, 2, -1, -3, 5]
        return literal(dtype, self.pick(choices) if dtype[0] in "iu" else self.pick([0.5, 1.0, -2.0, 0.25, 3.0]))

    def expr(self, dtype: str, its: list[Iterator], depth: int = 2) -> str:
        """An expression of a dtype over iterators."""
        if dtype == "bool_":
            return self.condition(its)
        if depth == 0 or self.chance(0.35):
            return self.leaf(dtype, its)
        kind = self.random.randrange(8)
        a, b = self.expr(dtype, its, depth - 1), self.expr(dtype, its, depth - 1)
        if kind < 3:
            return f"({a} {self.pick('+-*')} {b})"
        if kind < 5:
            return f"{self.pick(['max', 'min'])}({a}, {b})"
        if kind == 5:
            return f"select({self.condition(its)}, {a}, {b})"
        if kind == 6 and dtype in ("f32", "f64"):
            return self.pick([f"abs({a})", f"exp(min({a}, 1.0))", f"fma({a}, {b}, {self.leaf(dtype, its)})"])
        return f"{a} + {b}"

    def leaf(self, dtype: str, its: list[Iterator]) -> str:
        if self.chance(0.12):
            return self.constant(dtype)
        if self.chance(0.1) and its and dtype != "bool_":
            return f"cast({dtype}, {self.pick(its).name})"
        text, found = self.load(its, dtype if self.chance(0.7) else "")
        if found != dtype and text.lstrip("-")[0].isdigit():  # there is nothing to load; a number has the dtype of what it is cast to
            return self.constant(dtype)
        return text if found == dtype else f"cast({dtype}, {text})"

    def condition(self, its: list[Iterator]) -> str:
        """A condition over iterators and what they load."""
        if its and self.chance(0.6):
            i = self.pick(its)
            limit = self.pick(["1", "2", "4", plain(i.extent)])
            return self.pick([f"{i.name} < {limit}", f"{i.name} % 3 != 1", f"{i.name} % 2 == 0", f"1 <= {i.name}"])
        text, dtype = self.load(its)
        return text if dtype == "bool_" else f"{text} < {self.constant(dtype)}"

    # Loops.

    def nest(self, its: list[Iterator]) -> Nest:
        """Loops for the iterators, in an order that keeps O iterators in theirs."""
        made = Nest()
        groups: list[list[str]] = []
        rest = list(its)
        spatial = [i for i in rest if i.kind == "S" and "*" not in i.extent]
        if len(spatial) >= 2 and self.chance(0.12):
            a, b = spatial[:2]
            v = self.fresh("f")
            groups.append([f"for {v} in serial({plain(a.extent)} * {plain(b.extent)}):"])
            made.bound |= {a.name: f"{v} // {plain(b.extent)}", b.name: f"{v} % {plain(b.extent)}"}
            rest = [i for i in rest if i not in (a, b)]
        for i in rest:
            v = i.name.removeprefix("v") + self.fresh("_")
            how = self.random.random()
            if how < 0.1 and i.kind != "O":
                factor = self.pick([2, 3, 4, 8])
                groups.append([f"for {v}_o in serial(({i.extent} + {factor - 1}) // {factor}):", f"for {v}_i in serial({factor}):"])
                made.bound[i.name] = f"{v}_o * {factor} + {v}_i"
                if not i.extent.isdigit() or int(i.extent) % factor:
                    made.guards.append(f"{i.name} < {i.extent}")
            elif how < 0.2:
                start = self.pick([1, 2, 5])
                groups.append([f"for {v} in serial({start}, {i.extent} + {start}):"])
                made.bound[i.name] = f"{v} - {start}"
            else:
                groups.append([f"for {v} in serial({i.extent}):"])
                made.bound[i.name] = v
        if self.chance(0.3) and not any(i.kind == "O" for i in its):
            self.random.shuffle(groups)
        made.loops = [line for group in groups for line in group]
        return made

    def block(self, name: str, its: list[Iterator], lines: list[str], init: list[str] | None = None, where: str = "") -> None:
        """Add a block in loops of its own."""
        nest = self.nest(its)
        depth = 1
        for line in nest.loops:
            self.body.append("    " * depth + line)
            depth += 1
        kinds = "".join(i.kind for i in its)
        bound = ", ".join(nest.bound[i.name] for i in its)
        names = its[0].name if len(its) == 1 else f"({', '.join(i.name for i in its)})"
        self.body.append(
            "    " * depth + (f'with block("{name}", "{kinds}", {bound}) as {names}:' if its else f'with block("{name}", ""):')
        )
        conditions = [*nest.guards, *([where] if where else [])]
        inner = [f"where({' and '.join(conditions)})"] if conditions else []
        if self.notes:
            inner.append(self.notes)
            self.notes = ""
        if init:
            inner += ["with init():", *(f"    {x}" for x in init)]
        self.body += ["    " * (depth + 1) + x for x in [*inner, *lines]]

    # Stages.

    def out(self, dtype: str, shape: tuple[str, ...], hint: str = "y") -> Value:
        """A buffer to write, before the block that does."""
        made = Value(self.fresh(hint), dtype, shape)
        self.allocated[made.name] = len(self.body)
        self.body.append(f"    {made.name} = alloc(({', '.join(shape)}{',' * (len(shape) == 1)}), {dtype})")
        return made

    def iterators(self, kinds: str, extents: tuple[str, ...]) -> list[Iterator]:
        names = ["vi", "vj", "vk", "vl", "vq"]
        return [Iterator(n, k, e) for n, k, e in zip(names, kinds, extents, strict=False)]

    def shape(self, least: int = 1, most: int = 2) -> tuple[str, ...]:
        made = tuple(self.pick(EXTENTS) for _ in range(self.random.randint(least, most)))
        return made if sum("*" in e for e in made) <= 1 else made[:1]

    def dtype(self) -> str:
        return self.pick([*FLOATS * 2, *INTS, "bool_"])

    def place(self, v: Value, its: list[Iterator]) -> str:
        return f"{v.name}[{', '.join(i.name for i in its) or '()'}]"

    def done(self, *made: Value) -> None:
        self.values += made

    def map_stage(self) -> None:
        y = self.out(self.dtype(), self.shape(1, 3) if self.chance(0.3) else self.shape())
        its = self.iterators("SSS", y.shape)
        place = self.place(y, its)
        value = self.expr(y.dtype, its)
        if self.chance(0.12):
            condition = self.condition(its)
            lines = [f"if {condition}:", f"    {place} = {value}", "else:", f"    {place} = {self.expr(y.dtype, its, 1)}"]
        else:
            lines = [f"{place} = {value}"]
        self.block(y.name, its, lines)
        self.done(y)

    def reduction_stage(self) -> None:
        dtype = self.dtype()
        y = self.out(dtype, self.shape(0, 2))
        reduced = tuple(self.pick(SMALL) for _ in range(self.pick([1, 1, 1, 2])))
        its = self.iterators("S" * len(y.shape) + "R" * len(reduced), (*y.shape, *reduced))
        if self.chance(0.15):
            its = [*its[len(y.shape) :], *its[: len(y.shape)]]  # "RS": the order of iterators is free
        spatial, place = [i for i in its if i.kind == "S"], self.place(y, [i for i in its if i.kind == "S"])
        line, identity = self.combined(dtype, place, its)
        begin = identity if self.chance(0.75) else self.expr(dtype, spatial, 1)
        where = self.predicate([i for i in its if i.kind == "R"]) if self.chance(0.3) else ""
        self.block(y.name, its, [line], [f"{place} = {begin}"], where)
        self.done(y)

    def predicate(self, its: list[Iterator]) -> str:
        """A condition over iterators alone."""
        i = self.pick(its)
        choices = [f"{i.name} % 3 != 1", f"{i.name} % 2 == 0", f"1 <= {i.name}", f"{i.name} < 4", f"2 * {i.name} < {plain(i.extent)}"]
        return str(self.pick(choices))

    def combined(self, dtype: str, place: str, its: list[Iterator]) -> tuple[str, str]:
        """The statement of a reduction, and what changes nothing."""
        if dtype == "bool_":
            word = self.pick(["and", "or"])
            return f"{place} = {place} {word} {self.atom(its)}", str(word == "and")
        name = self.pick(["add", "add", "add", "product", "product", "mul", "min", "max", *(["fma"] if dtype in ("f32", "f64") else [])])
        value = self.expr(dtype, its, 1)
        zero = literal(dtype, 0)
        if name == "product":
            a, b = self.leaf(dtype, its), self.leaf(dtype, its)
            return f"{place} += {a} * {b}", zero
        if name in ("min", "max"):
            limit = "inf" if dtype[0] in "fb" else None
            bits = int("".join(c for c in dtype if c.isdigit()))
            high = limit or str((1 << bits if dtype[0] == "u" else 1 << (bits - 1)) - 1)
            low = f"-{limit}" if limit else ("0" if dtype[0] == "u" else str(-(1 << (bits - 1))))
            return f"{place} = {name}({place}, {value})", high if name == "min" else low
        if name == "fma":
            return f"{place} = fma({self.leaf(dtype, its)}, {value}, {place})", zero
        return f"{place} {'+' if name == 'add' else '*'}= {value}", zero if name == "add" else literal(dtype, 1)

    def atom(self, its: list[Iterator]) -> str:
        return f"({self.condition(its)})"

    def tuple_stage(self) -> None:
        """Several buffers reduced at once by a lambda: where the largest is, online softmax, Welford's variance."""
        shape = self.shape(0, 1)
        its = self.iterators("S" * len(shape) + "R", (*shape, self.pick(SMALL)))
        where = self.predicate(its[-1:]) if self.chance(0.25) else ""
        spatial = its[:-1]
        kind = self.pick(["argmax", "softmax", "welford"])
        if kind == "argmax":
            dtype = self.pick(["i32", "f32", "i8", "f64"])
            ys = [self.out(dtype, shape), self.out("i64", shape)]
            least = "-inf" if dtype[0] == "f" else str(-(1 << (int(dtype[1:]) - 1)))
            begin = [least, "-1"]
            better = self.pick(["a < b", "a < b or (a == b and k < i)"])  # the first of equals, in the order of the loops or in any
            if better == "a < b":
                self.notes = "annotate(reassociate=False)"
            combiner = f"lambda a, i, b, k: (select({better}, b, a), select({better}, k, i))"
            values = [self.leaf(dtype, its), its[-1].name]
        elif kind == "softmax":
            ys = [self.out("f32", shape), self.out("f32", shape)]
            begin = ["-1000.0", "0.0"]
            combiner = "lambda a, s, b, t: (max(a, b), s * exp(a - max(a, b)) + t * exp(b - max(a, b)))"
            values = [f"min({self.leaf('f32', its)}, 100.0)", "1.0"]
        else:
            ys = [self.out("f32", shape) for _ in range(3)]
            begin = ["0.0", "0.0", "0.0"]
            combiner = (
                "lambda c, a, p, d, b, q: (c + d, a + (b - a) * (d / max(c + d, 1.0)), "
                "p + q + (b - a) * (b - a) * (c * (d / max(c + d, 1.0))))"
            )
            values = ["1.0", self.leaf("f32", its), "0.0"]
        places = [self.place(y, spatial) for y in ys]
        line = f"{', '.join(places)} = combine({combiner}, ({', '.join(places)}), ({', '.join(values)}))"
        self.block(ys[0].name, its, [line], [f"{p} = {b}" for p, b in zip(places, begin, strict=True)], where)
        self.done(*ys)

    def scan_stage(self) -> None:
        """An element needs the one before."""
        dtype = self.pick(["f32", "i32", "f64", "i8"])
        y = self.out(dtype, self.shape(1, 2))
        ordered = self.random.randrange(len(y.shape))
        its = self.iterators("".join("O" if d == ordered else "S" for d in range(len(y.shape))), y.shape)
        v = its[ordered].name
        before = ", ".join(f"{i.name} - 1" if i.kind == "O" else i.name for i in its)
        chained = f"select({v} > 0, {y.name}[{before}], {self.constant(dtype)})"
        how = self.pick(["{a} + {b}", "max({a}, {b})", "{a} * 0.5 + {b}" if dtype[0] == "f" else "{a} - {b}"])
        self.block(y.name, its, [f"{self.place(y, its)} = {how.format(a=chained, b=self.expr(dtype, its, 1))}"])
        self.done(y)

    def histogram_stage(self) -> None:
        """A scatter by data, which keeps its order."""
        dtype, size = self.pick(["i32", "f32", "u8"]), self.pick(["3", "5", "8"])
        y = self.out(dtype, (size,))
        (i,) = self.iterators("S", (size,))
        self.block(f"{y.name}_0", [i], [f"{y.name}[vi] = {self.constant(dtype)}"])
        its = self.iterators("OO", self.shape(1, 2))
        text, found = self.load(its, self.pick(["i32", "i64", "u8"]))
        index = f"{text if found == 'i64' else f'cast(i64, {text})'} % {size}"
        line = self.pick(["{p} += {e}", "{p} = max({p}, {e})", "{p} = {e}"])
        self.block(y.name, its, [line.format(p=f"{y.name}[{index}]", e=self.expr(dtype, its, 1))])
        self.done(y)

    def update_stage(self) -> None:
        """A parameter, or what a stage before wrote, changed in place; only where a condition holds, perhaps."""
        known = [v for v in self.values if v.shape]
        if known and self.chance(0.4):
            y = self.pick(known)
        else:
            y = Value(self.fresh("z"), self.pick(FLOATS + INTS), self.shape())
            self.states.append(y)
            self.values.append(y)
        kinds = "S" * len(y.shape)
        reduced = (self.pick(SMALL),) if self.chance(0.4) else ()
        its = self.iterators(kinds + "R" * len(reduced), (*y.shape, *reduced))
        place = self.place(y, its[: len(y.shape)])
        where = self.predicate(its) if self.chance(0.4) else ""
        self.values.remove(y)  # other elements of it are not to be read here
        line = self.combined(y.dtype, place, its)[0]
        if not reduced and self.chance(0.6):
            line = f"{place} = {self.updated(y.dtype, place, its)}"
        self.block(self.fresh(f"{y.name}_u"), its, [line], None, where)
        self.values.append(y)

    def updated(self, dtype: str, place: str, its: list[Iterator]) -> str:
        """A value made of the one before, which is no reduction."""
        e = self.expr(dtype, its, 1)
        if dtype == "bool_":
            return f"{e} or not {place}"
        return str(self.pick([f"{e} - {place}", f"{place} * {place} + {e}", f"select({self.condition(its)}, {e}, {place})", e]))

    def stencil_stage(self) -> None:
        """A window over a padded copy, as convolutions and pools have."""
        dtype, extent = self.pick(["f32", "i32", "i8", "f64"]), self.pick(["n", "m"])
        text, _ = self.new_load([Iterator("vi - 1", "S", extent)], dtype)
        p = self.out(dtype, (f"{extent} + 2",), "p")
        its = self.iterators("S", p.shape)
        self.block(p.name, its, [f"{p.name}[vi] = select(1 <= vi and vi < {extent} + 1, {text}, {self.constant(dtype)})"])
        y = self.out(dtype, (extent,))
        its = self.iterators("SR", (extent, "3"))
        w, _ = self.new_load(its[1:], dtype)
        name = self.pick(["add", "max"])
        line = f"{y.name}[vi] += {p.name}[vi + vj] * {w}" if name == "add" else f"{y.name}[vi] = max({y.name}[vi], {p.name}[vi + vj])"
        self.block(y.name, its, [line], [f"{y.name}[vi] = {literal(dtype, 0)}"])
        self.read.add(p.name)
        self.done(p, y)

    def matmul_stage(self) -> None:
        """A product of matrices, whose parts have the forms that rules look for."""
        dtype, wide = self.pick([("f32", "f32"), ("f32", "f32"), ("f64", "f64"), ("i32", "i32"), ("u8", "i32"), ("i8", "i32")])
        a, b, c = self.pick(["n", "n", "m", "1", "4"]), self.pick(["12", "16", "m", "8", "40"]), self.pick(["4", "8", "m", "12", "5", "1"])
        y = self.out(wide, (a, b))
        its = self.iterators("SSR", (a, b, c))
        left = Value(self.fresh("x"), dtype, (a, c))
        turned = self.chance(0.4)
        right = Value(self.fresh("x"), dtype if self.chance(0.7) or dtype == wide else "i8", (b, c) if turned else (c, b))
        self.inputs += [left, right]
        factors = [f"{left.name}[vi, vk]", f"{right.name}[{'vj, vk' if turned else 'vk, vj'}]"]
        if dtype != wide:
            factors = [f"cast(i32, {x})" for x in factors]
        zero = literal(wide, 0)
        self.block(y.name, its, [f"{y.name}[vi, vj] += {' * '.join(factors)}"], [f"{y.name}[vi, vj] = {zero}"])
        self.done(y)

    def text(self) -> str:
        """The kernel."""
        stages: list[Callable[[], None]] = [
            *[self.map_stage] * 5, *[self.reduction_stage] * 7, *[self.tuple_stage] * 2, *[self.matmul_stage] * 3,
            self.scan_stage, self.histogram_stage, self.stencil_stage, *[self.update_stage] * 3,
        ]  # fmt: skip
        for _ in range(self.pick([1, 1, 2, 2, 2, 3])):
            self.pick(stages)()
        outputs = [v for v in self.values if v not in self.states and (v.name not in self.read or self.chance(0.2))]
        if not outputs and not self.states:
            outputs = self.values[-1:]
        for line in sorted((self.allocated[v.name] for v in outputs), reverse=True):
            del self.body[line]
        ordered = list(self.inputs)
        shapes = "".join(e for v in [*ordered, *self.states, *outputs] for e in v.shape)
        for d in "nm":
            if d not in shapes:
                ordered.append(Value(f"size_{d}", "i8", (d,)))
        params = [f"{v.name}: Tensor[{', '.join((v.dtype, *v.shape))}]" for v in ordered]
        params += [f"{v.name}: InOut[{', '.join((v.dtype, *v.shape))}]" for v in self.states]
        params += [f"{v.name}: Out[{', '.join((v.dtype, *v.shape))}]" for v in outputs]
        dims = "".join(f'{d} = dim("{d}"{c})\n' for d, c in self.contracts.items())
        return f"{dims}@kernel\ndef made({', '.join(params)}) -> None:\n" + "\n".join(self.body) + "\n"


def make_text(seed: int) -> str:
    """The text of the random kernel of a seed."""
    return HEAD + KernelGenerator(seed).text()


def make_kernel(seed: int) -> Func:
    """The random kernel of a seed."""
    return parse(make_text(seed))
