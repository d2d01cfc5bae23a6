"""Random calls of the primitives on buffers, layouts and iterators, and what they refuse."""

from __future__ import annotations

from typing import Any

from pliant.loop.analysis.nests import accesses
from pliant.loop.stmt import Alloc, walk_stmts
from pliant.sym.expr import free_vars

from .base import Aim, Move, Refused, is_product
from .loops import LoopMoves

SCOPES = ["stack", "stack", "register", "workspace"]
MAPS = {
    1: ["lambda a: (a // 4, a % 4)", "lambda a: (a % 3, a // 3)", "lambda a: (a // 6, a // 2 % 3, a % 2)", "lambda a: (a, 0)"],
    2: [
        "lambda a, b: (b, a)",
        "lambda a, b: (b // 16, a, b % 16)",
        "lambda a, b: (b // 4, a // 3, b % 4, a % 3)",
        "lambda a, b: (a * 40 + b,)",
        "lambda a, b: (a * 12 + b,)",
        "lambda a, b: (a, b // 8, b % 8)",
    ],
    3: [
        "lambda a, b, c: (b, a, c // 4, c % 4)",
        "lambda a, b, c: (c // 8, a, b, c % 8)",
        "lambda a, b, c: (b, a, c)",
        "lambda a, b, c: (b // 2, a * 12 + c, b % 2)",
    ],
}
FOUR = ["lambda a, b, c, d: (b, a, d * 3 + c)", "lambda a, b, c, d: (d, b, a, c)"]


class MemoryMoves(LoopMoves):
    """Moves on buffers, layouts and iterators."""

    def write_cache(self, name: str, loops: list[Any]) -> None:
        self.s.cache_write(name, self.at(self.feeding(name, loops, "S")), scope=self.odd(self.pick(SCOPES)))

    def read_cache(self, name: str, loops: list[Any]) -> None:
        read = [a.buffer for a in accesses(self.s.block(name).block) if not a.write]
        buffer = self.odd(self.pick(read or self.buffers(name)).name)
        options: dict[str, Any] = {}
        ndim = next((b.ndim for b in self.buffers(name) if b.name == buffer), 1)
        if self.chance(0.25):
            options["order"] = self.odd(tuple(self.random.sample(range(ndim), ndim)))
        if self.chance(0.2):
            options["dtype"] = self.odd(self.pick(["f32", "f64", "i32", "i16"]))
        self.s.cache_read(name, buffer, self.at(loops), scope=self.odd(self.pick(SCOPES)), **options)

    def scope(self, name: str, loops: list[Any]) -> None:
        allocated = [s.buffer.name for s in walk_stmts(self.s.program.body) if isinstance(s, Alloc)]
        self.s.set_scope(name, self.odd(self.pick(allocated or ["t"])), self.odd(self.pick(SCOPES)))

    def widen(self, name: str, loops: list[Any]) -> None:
        self.s.widen(name, self.odd(self.pick(["f64", "f64", "f64", "f64", "f32", "f16", "i64"])), buffer=self.chance(0.6))

    def layout(self, name: str, loops: list[Any]) -> None:
        buffer = self.pick(self.buffers(name))
        maps = MAPS.get(buffer.ndim, FOUR if buffer.ndim == 4 else ["lambda a: (a,)"])
        block = {"block": name} if self.chance(0.8) else {}
        self.s.transform_layout(buffer.name, self.pick(maps), self.odd(self.pick([None, None, 0, 3])), **block)

    def iterators(self, name: str, loops: list[Any]) -> None:
        count = len(self.s.block(name).block.iters)
        self.s.transform_block_layout(name, self.pick(MAPS.get(count, FOUR)))

    def reindex(self, name: str, loops: list[Any]) -> None:
        options = {"dtype": self.pick(["f32", "f64", "i32"])} if self.chance(0.15) else {}
        self.s.reindex(name, self.pick(self.buffers(name)).name, scope=self.odd(self.pick(["workspace", "workspace", "stack"])), **options)

    def reindex_by_map(self, name: str, loops: list[Any]) -> None:
        """A copy with an index map of its own: of the iterators that index the buffer, most often."""
        block = self.s.block(name).block
        access = self.pick(accesses(block))
        used = [n for n, i in enumerate(block.iters) if any(i.var in free_vars(e) for e in access.indices)]
        used = used if self.chance(0.9) else list(range(len(block.iters)))
        inputs = [f"x{n}" for n in range(len(block.iters))]
        results = self.random.sample([inputs[n] for n in used], len(used))
        if results and self.chance(0.7):
            x, size = results.pop(0), self.pick([2, 3, 4])
            results = [f"{x} // {size}", *results, f"{x} % {size}"]
        index_map = f"lambda {', '.join(inputs)}: ({''.join(f'{r}, ' for r in results)})" if inputs else "lambda: ()"
        scope = self.odd(self.pick(["workspace", "workspace", "stack"]))
        how = self.s.reindex_cache_write if access.write != self.chance(0.05) else self.s.reindex_cache_read
        how(name, access.buffer.name, index_map, scope=scope)

    def pad(self, name: str, loops: list[Any]) -> None:
        count = len(self.s.block(name).block.iters)
        if self.chance(0.65):
            self.s.pad(name, *(self.odd(self.pick([1, 1, 2, 4, 5])) for _ in range(count)))
        else:
            self.s.decompose_padding(name)


MOVES: list[Move] = [
    *[MemoryMoves.write_cache] * 3,
    *[MemoryMoves.read_cache] * 3,
    MemoryMoves.scope,
    MemoryMoves.widen,
    *[MemoryMoves.layout] * 2,
    MemoryMoves.iterators,
    MemoryMoves.reindex,
    MemoryMoves.reindex_by_map,
    *[MemoryMoves.pad] * 2,
]
WITHOUT_LOOPS: set[Move] = {
    MemoryMoves.layout,
    MemoryMoves.iterators,
    MemoryMoves.scope,
    MemoryMoves.widen,
    MemoryMoves.reindex,
    MemoryMoves.reindex_by_map,
    MemoryMoves.pad,
}
AIMS: dict[Move, Aim] = {
    MemoryMoves.pad: lambda b: is_product(b) or b.name.endswith("_pad"),
}
REFUSALS: list[Refused] = [
    ("matmul", "", "s.cache_write('c')", "has no constant size", 'block("c", "SSR"'),
    ("matmul", "s.reorder(k, i, j)", "s.cache_write('c', i)", "outside of the tile, feeds a reduction iterator", "grid(12, n, 40)"),
    ("matmul", "s.decompose_reduction('c', k)", "s.cache_write('c', j)", "neither one store nor one reduction", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'z', i)", "it does not read it", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'a')", "has no constant size", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'b', i, dtype='bf16')", "values of f32 that it does not hold", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex('c', 'a', dtype='i64')", "values of f32 that it does not hold", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex('c', 'c', dtype='f64')", "it is a result", 'block("c", "SSR"'),
    ("matmul", "", "s.cache_read('c', 'b', i, order=(0, 0))", "no permutation of its 2 dimensions", 'block("c", "SSR"'),
    ("scan", "", "s.cache_read('out', 'out', i)", "block `out` writes it there", 'block("out", "SO"'),
    ("chain", "", "s.set_scope('t', 'x', 'stack')", "a parameter of the program", 'block("t", "SS"'),
    ("chain", "", "s.set_scope('t', 't', 'stack')", "its size is not a constant", 'block("t", "SS"'),
    ("chain", "", "s.set_scope('t', 't', 'global')", "scopes are workspace, stack and register", 'block("t", "SS"'),
    ("matmul", "", "s.reindex_cache_read('c', 'c', lambda i, j, k: (j, i))", "it writes it", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_read('c', 'b', lambda i, j, k: (i, j, k))", "iterator `vi` does not index it", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_read('c', 'b', lambda i, j, k: (j,))", "would come to the same place", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_read('c', 'b', lambda j, k: (j, k))", "block `c` has 3 iterators", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_write('c', 'b', lambda i, j, k: (j, k))", "it reads it", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_write('c', 'c', lambda i, j, k: (j, i), 'stack')", "would be no constant", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex_cache_write('c', 'c', lambda i, j, k: (j, i, k))", "`vk` does not index it", 'block("c", "SSR"'),
    ("softmax", "", "s.widen('total', 'f16')", "f16 is no wider float than f32", 'block("total", "SR"'),
    ("softmax", "", "s.widen('total', 'i64')", "i64 is no wider float than f32", 'block("total", "SR"'),
    ("matmul", "", "s.widen('c')", "its result `c` is a parameter of the program", 'block("c", "SSR"'),
    ("softmax", "", "s.widen('total', buffer=False)", "a reduction, which holds its sum in its buffer", 'block("total", "SR"'),
    ("chain", "", "s.widen('out')", "its result `out` is a parameter of the program", 'block("out", "SS"'),
    ("softmax", "s.annotate('total', 'reassociate', False)", "s.widen('total')", "annotated reassociate=False", 'block("total", "SR"'),
    ("matmul", "", "s.transform_layout('b', lambda k, n: (n,))", "different elements would come to the same place", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_layout('b', lambda k, n: (k, n * 2))", "leaves gaps between the elements", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_layout('b', lambda k: (k,))", "it takes 1 coordinates, not 2", 'block("c", "SSR"'),
    ("matmul_i32", "", "s.transform_layout('b', lambda k, n: (n // 3, k, n % 3), 0.5)", "0.5 is no value of i32", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_layout('z', lambda k, n: (n, k), block='c')", "there is no such buffer", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_block_layout('c', lambda i, j, k: (i, j * 12 + k))", "iterators of several kinds", 'block("c", "SSR"'),
    ("matmul", "", "s.transform_block_layout('c', lambda i, j, k: (i // 4, i % 4, j, k))", "an extent is no multiple", "grid(n, 40, 12)"),
    ("matmul", "s.split(j, 4)", "s.transform_block_layout('c', lambda i, j, k: (j, i, k))", "`vj` is not a loop of its own", 'block("c"'),
    ("scan", "", "s.transform_block_layout('out', lambda i, j: (j, i))", "iterator `vj` is ordered", 'block("out", "SO"'),
    ("matmul", "", "s.transform_block_layout('c', lambda i, j, k: (i, j))", "would come to the same place", "grid(n, 40, 12)"),
    ("matmul", "", "s.reindex('c', 'a', scope='stack')", "its size would be no constant", 'block("c", "SSR"'),
    ("matmul", "", "s.reindex('c', 'z')", "it does not use it", 'block("c", "SSR"'),
    ("matmul", "s.decompose_reduction('c', k)", "s.reindex('c', 'c')", "continues a reduction that others have begun", 'block("c", "SSR"'),
    ("stencil", "", "s.reindex('out', 't')", "it uses it at 2 places, not at one", 'block("out", "S"'),
    ("chain", "s.reverse_compute_at('u', i)", "s.reindex('u', 't')", "block `t` in the same loops uses it too", 'block("t", "SS"'),
    ("matmul", "", "s.pad('c', 4)", "a positive number for each iterator is expected", 'block("c", "SSR"'),
    ("matmul", "", "s.pad('c', 1, 8, 4)", "every extent is a multiple already", "grid(n, 40, 12)"),
    ("chain", "", "s.pad('t', 4, 4)", "it is not a sum with its init", 'block("t", "SS"'),
    ("conv", "", "s.pad('out', 4, 4, 1, 1)", "`p` is not indexed by its iterators", 'block("out", "SSRR"'),
    ("rms_norm", "", "s.pad('ss', 4, 1, 1)", "a positive number for each iterator is expected", 'block("ss", "SR"'),
    ("softmax", "", "s.pad('top', 4, 1)", "it is not a sum with its init", 'block("top", "SR"'),
    ("chain", "", "s.decompose_padding('t')", "does not store select(condition, value, constant)", 'block("t", "SS"'),
    ("conv", "s.split(s.loops('p')[0], 4)", "s.decompose_padding('p')", "does not store select", 'block("p", "SS"'),
    ("scan", "", "s.decompose_padding('out')", "does not store select", 'block("out", "SO"'),
    ("matmul", "o, p = s.split(j, 8); s.blockize(p)", "s.cache_write('c', i)", "it is inside of block `c_o`", 'block("c", "SSR"'),
    ("matmul", "o, p = s.split(j, 8); s.blockize(p)", "s.cache_read('c_o', 'b', i)", "block `c` is inside of it", 'block("c_o"'),
]
