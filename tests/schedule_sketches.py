"""Schedules of which every step is legal, of many kinds: a primitive that refuses one of them refuses too much.

    check_all([sketch(seed) for seed in range(20)])

Each kind is a small program with random extents, dtypes and combiners, and steps whose conditions hold by how the program is written.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pliant.loop.stmt import Block, walk_stmts
from schedule_checks import Sketch
from schedule_kernels import parse

DIMS = 'n = dim("n")\nm = dim("m")\n'
TAILS = ["guard", "guard", "cut"]


class Kind(Sketch):
    """A sketch with a program of its own."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, random.Random(f"sketch {seed}")
        self.func = parse(self.text())
        self.begin()

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, probability: float = 0.5) -> bool:
        return self.random.random() < probability

    def text(self) -> str:
        """The program."""
        raise NotImplementedError

    def lanes(self, loop: Any) -> None:
        """Something that is legal for a loop of constant extent which feeds S iterators alone, innermost."""
        self.pick(self.s.vectorize, self.s.unroll)(loop)


SUM = """
n = dim("n")
m = dim("m")
@kernel
def summed(x: Tensor[{dtype}, {a}, {k}], y: Out[{dtype}, {a}]) -> None:
    for i, k in grid({a}, {k}):
        with block("y", "SR", i, k) as (vi, vk):
            with init():
                y[vi] = {zero}
            y[vi] {step}
"""


class Rows(Kind):
    """A reduction of rows: lanes, parts, a first element, an init of its own, in a wider dtype."""

    def text(self) -> str:
        self.dtype = self.pick("f32", "f32", "i32", "f64")
        combiner = self.pick("add", "add", "max", "min")
        value = self.pick("x[vi, vk]", "x[vi, vk] * x[vi, vk]")
        step = f"+= {value}" if combiner == "add" else f"= {combiner}(y[vi], {value})"
        start = {"add": "0", "max": "-3", "min": "3"}[combiner]  # which is no identity of max and min
        zero = start if self.dtype[0] == "i" else f"{start}.0"
        self.combiner, self.rows, self.length = combiner, self.pick("n", "5", "1"), self.pick("12", "12", "m")
        return SUM.format(dtype=self.dtype, a=self.rows, k=self.length, zero=zero, step=step)

    def steps(self) -> None:
        s, known = self.s, self.length != "m"
        i, k = s.loops("y")
        how = self.pick(*["lanes"] * 3, *["parts"] * 2, "first", "init", "tile", "turned", "contract")
        if how == "lanes":
            k0, k1 = s.split(k, self.pick(2, 3, 4, 8))
            at = i if self.rows == "n" else self.pick(None, i)
            s.rfactor("y", k0 if known and self.chance(0.3) else k1, at, scope=self.pick("workspace", "stack"))
        elif how == "parts" and self.combiner == "add":
            s.sum_in_parts("y", s.split(k, self.pick(2, 3, 4), tail=self.pick(*TAILS))[0])
        elif how == "first" and self.combiner == "add" and known:
            s.begin_reduction("y", k)
            if self.chance():
                s.unroll(s.loops("y")[-1])
        elif how == "contract" and self.dtype[0] == "f" and self.combiner == "add" and "*" in str(self.func):
            s.contract("y")
        elif how == "turned":
            s.reorder(k, i)
            s.decompose_reduction("y", k)
            self.pick(s.vectorize, s.parallel)(s.loops("y")[-1])
        elif how == "tile" and self.rows != "1":  # whose tile is one element, whatever the factor is
            i0, i1 = s.split(i, self.pick(2, 4))
            s.reorder(i0, k, i1)
            s.cache_write("y", i0, scope=self.pick("stack", "workspace"))
            self.lanes(s.loops("y")[-1])
        else:
            s.decompose_reduction("y", self.pick(i, k))
            if self.chance():
                s.parallel(s.loops("y")[0])


class Maps(Kind):
    """A chain of maps: inlined, moved, joined, fused, made lanes and threads, in other layouts."""

    def text(self) -> str:
        self.a, self.b = self.pick("n", "n", "6"), self.pick("m", "16", "12")
        self.turned = self.chance(0.3)
        read = "t[vj, vi]" if self.turned else "t[vi, vj]"
        shape = (self.b, self.a) if self.turned else (self.a, self.b)
        return f"""
{DIMS}@kernel
def maps(x: Tensor[f32, {shape[0]}, {shape[1]}], y: Tensor[f32, {self.b}], out: Out[f32, {self.a}, {self.b}]) -> None:
    t = alloc(({shape[0]}, {shape[1]}), f32)
    for i, j in grid({shape[0]}, {shape[1]}):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] * 2.0
    u = alloc(({self.a}, {self.b}), f32)
    for i, j in grid({self.a}, {self.b}):
        with block("u", "SS", i, j) as (vi, vj):
            u[vi, vj] = {read} + y[vj]
    for i, j in grid({self.a}, {self.b}):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = max(u[vi, vj], 0.0) + u[vi, vj]
"""

    def steps(self) -> None:
        self.moved = False
        for step in (self.first, self.second, self.last, self.layout):
            if self.chance(0.7):
                step()

    def first(self) -> None:
        """What becomes of the first map."""
        s = self.s
        how = self.pick("inline", "reverse", "at", "join", "turn")
        self.moved = how in ("at", "join")
        if how == "inline":
            s.compute_inline("t")
        elif how == "reverse":
            s.reverse_compute_inline("u")
            s.transform_block_layout("t", "lambda a, b: (b, a)")
        elif how == "at":
            loops = s.loops("u")
            at = self.pick(*loops)
            s.compute_at("t", at)
            if self.chance():
                s.compact("u", "t", at)
        elif how == "join" and not self.turned:
            s.join(s.loops("t")[0], s.loops("u")[0])
        else:
            s.reorder(*s.loops("t")[::-1])

    def second(self) -> None:
        """What becomes of the second map."""
        s = self.s
        if "u" not in [b.name for b in self.blocks()]:
            return
        how = self.pick(*(["read", "reindex"] if self.moved else ["inline", "at", "write", "read", "reindex", "group"]))
        if how == "inline":
            s.compute_inline("u")
        elif how == "at":
            s.reverse_compute_at("out", self.pick(*s.loops("u")))
        elif how == "write":
            s.cache_write("u", s.loops("u")[-1 if self.b == "m" else 0], scope=self.pick("stack", "workspace"))
        elif how == "read":
            s.cache_read("out", "u", s.loops("out")[-1], scope=self.pick("workspace", "stack"), order=self.pick(None, (1, 0)))
        elif how == "reindex":
            s.reindex("u", self.pick("y", "u"))
        else:
            s.blockize("u", "out")

    def layout(self) -> None:
        """How a tensor lies in memory."""
        maps = ["lambda a, b: (b, a)", "lambda a, b: (b // 4, a, b % 4)", "lambda a, b: (a // 3, b, a % 3)"]
        self.s.transform_layout(self.pick("x", "out"), self.pick(*maps))

    def blocks(self) -> list[Block]:
        return [s for s in walk_stmts(self.s.program.body) if isinstance(s, Block)]

    def last(self) -> None:
        """Loops of the last map."""
        s = self.s
        loops = s.loops("out")
        if len(loops) != 2 or not self.alone(loops[0]) or any(b.name == "u_o" for b in self.blocks()):
            return
        how = self.pick("fuse", "lanes", "threads", "pieces", "unit", "partition", "blockize", "nothing")
        if how == "fuse":
            together = s.fuse(*loops)
            if self.a == "6" and self.b != "m":
                s.split(together, self.pick(4, 8), tail=self.pick(*TAILS))
        elif how == "lanes":
            self.lanes(s.split(loops[1], self.pick(4, 8), tail=self.pick(*TAILS, "balance"))[1])
        elif how == "threads":
            s.parallel(loops[0], grain=self.pick(1, 2))
        elif how == "pieces":
            extent = {"m": None, "16": 16, "12": 12}[self.b]
            pieces = s.loop_partition(loops[1], *((2, None) if extent is None else self.pick((3, None), (1, None, 2), (4, extent - 4))))
            self.pick(s.vectorize, s.parallel, lambda x: s.split(x, 2))(pieces[-1]) if extent else None
        elif how == "unit":
            s.add_unit_loop(self.pick("out", *loops))
        elif how == "partition":
            outer = s.split(loops[1], self.pick(4, 5))[0]
            if self.b == "m":
                s.partition(outer)
        elif how == "blockize":
            s.blockize(loops[1])

    def alone(self, loop: Any) -> bool:
        """Whether a loop is around one block alone."""
        return sum(isinstance(s, Block) for s in walk_stmts(loop.loop.body)) == 1


class Windows(Kind):
    """A producer that is read through a window: moved, rolled, in less memory, its padding apart."""

    def text(self) -> str:
        self.reach = self.pick(1, 2, 3)
        self.extent = self.pick("n", "n", "14")
        reads = " + ".join(f"t[vi + {k}]" if k else "t[vi]" for k in sorted({0, self.reach}))
        return f"""
{DIMS}@kernel
def windows(x: Tensor[i32, {self.extent}], out: Out[i32, {self.extent}]) -> None:
    t = alloc(({self.extent} + {self.reach},), i32)
    for i in range({self.extent} + {self.reach}):
        with block("t", "S", i) as vi:
            t[vi] = select(1 <= vi and vi < {self.extent} + 1, x[vi - 1], 7)
    for i in range({self.extent}):
        with block("out", "S", i) as vi:
            out[vi] = {reads}
"""

    def steps(self) -> None:
        s = self.s
        (i,) = s.loops("out")
        how = self.pick("roll", "padding", "inline")
        if how == "roll":
            s.rolling_buffer("t", i)
            if self.chance():
                s.split(s.loops("out")[0], self.pick(2, 3))
        elif how == "inline":
            s.compute_inline("t")
            s.split(i, self.pick(4, 5), tail=self.pick(*TAILS, "balance"))
        else:
            s.decompose_padding("t")
            s.parallel(s.loops("out")[0])


class Products(Kind):
    """Products of matrices of integers and floats, with what instructions need."""

    def text(self) -> str:
        self.rows, self.depth = self.pick("n", "n", "6"), self.pick(4, 8, 12)
        self.dtype = self.pick("f32", "f32", "i32")
        zero = "0.0" if self.dtype == "f32" else "0"
        t, n, k = self.dtype, self.rows, self.depth
        return f"""
{DIMS}@kernel
def product(a: Tensor[{t}, {n}, {k}], b: Tensor[{t}, {k}, 16], c: Out[{t}, {n}, 16]) -> None:
    for i, j, k in grid({n}, 16, {k}):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = {zero}
            c[vi, vj] += a[vi, vk] * b[vk, vj]
"""

    def steps(self) -> None:
        s = self.s
        i, j, k = s.loops("c")
        how = self.pick("instruction", "pad", "layout", "copies", "lanes", "iterators", "blockize")
        if how == "instruction" and self.dtype == "f32":
            size = self.pick(4, 8)
            _, j1 = s.split(j, size)
            s.reorder(k, j1)
            s.contract("c")
            if self.chance():
                s.decompose_reduction("c", k)
            s.tensorize(j1, f"fma.f32x{size}")
        elif how == "pad":
            s.pad("c", self.pick(1, 4), self.pick(5, 12), self.pick(1, 1, 5))
        elif how == "layout":
            s.transform_layout("b", self.pick("lambda a, b: (b // 8, a, b % 8)", "lambda a, b: (b, a)", "lambda a, b: (b // 5, a, b % 5)"))
            s.transform_layout("c", "lambda a, b: (a // 4, b, a % 4)")
        elif how == "copies":
            s.reindex("c", self.pick("a", "b"))
            s.reindex_cache_write("c", "c", "lambda i, j, k: (j // 4, i, j % 4)")
        elif how == "lanes":
            k1 = s.split(k, 4)[1]
            s.rfactor("c", k1, self.pick(*([i, j] if self.rows == "n" else [None, i, j])), scope=self.pick("workspace", "stack"))
        elif how == "iterators":
            s.transform_block_layout("c", self.pick("lambda i, j, k: (j // 4, k, i, j % 4)", "lambda i, j, k: (i, k // 2, j, k % 2)"))
        else:
            _, j1 = s.split(j, self.pick(4, 5))
            s.reorder(j1, k) if self.chance() else None
            s.blockize(s.loops("c")[-1])


KINDS: tuple[Callable[[int], Sketch], ...] = (Sketch, Rows, Maps, Windows, Products)


def sketch(seed: int) -> Sketch:
    """The sketch of a seed."""
    return KINDS[seed % len(KINDS)](seed)
