"""Random calls of the primitives that move, inline and enclose blocks, and what they refuse."""

from __future__ import annotations

from typing import Any

from pliant.loop.analysis.nests import accesses
from pliant.loop.stmt import Alloc, Block, walk_stmts

from .base import Aim, Move, Refused, is_store
from .memory import MemoryMoves


class BlockMoves(MemoryMoves):
    """Moves of blocks."""

    def inline(self, name: str, loops: list[Any]) -> None:
        self.pick([self.s.compute_inline, self.s.reverse_compute_inline])(name)

    def move(self, name: str, loops: list[Any]) -> None:
        """A block to a loop of one that reads what it writes, or writes what it reads."""
        mine = self.block(name)
        assert mine is not None
        touched = {a.buffer: a.write for a in accesses(mine)}
        writers, readers = [], []
        for other in (self.block(n) for n in self.names()):
            if other is None or other is mine:
                continue
            found = {a.buffer: a.write for a in accesses(other)}
            if any(w and b in touched for b, w in found.items()):
                writers.append(other.name)
            if any(w and b in found for b, w in touched.items()):
                readers.append(other.name)
        if writers and self.chance(0.5):
            self.s.compute_at(self.pick(writers), self.pick(loops))
        elif readers and self.chance(0.8):
            self.s.reverse_compute_at(self.pick(readers), self.pick(loops))
        else:
            self.pick([self.s.compute_at, self.s.reverse_compute_at])(self.pick(self.names()), self.pick(loops))

    def compact(self, name: str, loops: list[Any]) -> None:
        """A producer to a loop of its reader and less memory for what it makes; then threads, most often."""
        mine = self.block(name)
        assert mine is not None
        allocated = {s.buffer for s in walk_stmts(self.s.program.body) if isinstance(s, Alloc)}
        used = list(dict.fromkeys(a.buffer for a in accesses(mine) if a.buffer in allocated)) or self.buffers(name)
        buffer = self.pick(used)
        loop = loops[0] if self.chance(0.5) else self.pick(loops)
        if self.chance(0.7):
            makers = [b.name for b in walk_stmts(self.s.program.body) if isinstance(b, Block) and b is not mine]
            writing = [n for n in makers if any(a.write and a.buffer is buffer for a in accesses(self.s.block(n).block))]
            self.s.compute_at(self.pick(writing or makers or [name]), loop)
        self.s.compact(name, self.odd(buffer.name), loop, self.odd(self.pick([None, None, "stack", "register", "workspace"])))
        if self.chance(0.7):
            self.s.parallel(self.pick(self.s.loops(name)[:2]))

    def roll(self, name: str, loops: list[Any]) -> None:
        """A producer of a block to its outermost loop, most often, with a buffer that rolls; then a split, now and then."""
        makers = self.s.producers(name)
        maker = self.pick(makers) if makers and self.chance(0.9) else self.pick(self.names())
        self.s.rolling_buffer(maker, loops[0] if self.chance(0.8) else self.pick(loops))
        if self.chance(0.5):
            self.pick([self.s.split, self.s.loop_partition])(self.s.loops(name)[0], 3, *([None] if self.chance(0.3) else []))

    def blockize(self, name: str, loops: list[Any]) -> None:
        """Also with guards before, and more splits after."""
        with_guard = self.chance(0.5)
        loop = self.innermost(loops)
        if with_guard:
            loop = self.s.split(loop, self.pick([2, 3, 4]))[-1]
        self.s.blockize(loop)
        if self.chance(0.5):
            names = self.names()
            inner = self.s.loops(self.pick([n for n in names if n.startswith(name)] or names))
            if len(inner) > 1 and self.chance(0.4):
                start = self.random.randrange(len(inner) - 1)
                self.s.fuse(*inner[start : start + 2])
            elif inner:
                self.s.split(self.pick(inner), self.pick([2, 3, 4]), tail=self.pick(["guard", "guard", "cut"]))

    def blockize_several(self, name: str, loops: list[Any]) -> None:
        """Blocks side by side as one; then something around it, most often."""
        names = self.names()
        at = names.index(name)
        together = [self.pick(loops)] if self.chance(0.4) else names[at : at + self.pick([1, 2, 2, 3])]
        outer = self.s.blockize(*together)
        around = self.s.loops(outer)
        if around and self.chance(0.6):
            self.pick([self.s.parallel, self.s.unroll, lambda x: self.s.split(x, 2), lambda x: self.s.reorder(*around[::-1])])(
                self.pick(around)
            )


MOVES: list[Move] = [
    *[BlockMoves.inline] * 2,
    *[BlockMoves.move] * 4,
    *[BlockMoves.compact] * 2,
    *[BlockMoves.blockize] * 2,
    *[BlockMoves.blockize_several] * 2,
    *[BlockMoves.roll] * 2,
]
WITHOUT_LOOPS: set[Move] = {BlockMoves.inline}
AIMS: dict[Move, Aim] = {
    BlockMoves.inline: is_store,
    BlockMoves.compact: lambda b: any(a.buffer.scope != "global" for a in accesses(b)),
}
REFUSALS: list[Refused] = [
    ("chain", "", "s.compute_inline('out')", "a parameter of the program", 'block("out", "SS"'),
    ("softmax", "", "s.compute_inline('total')", "not one store over S iterators", 'block("total", "SR"'),
    ("chain", "s.split(i, 4)", "s.compute_inline('t')", "it has a predicate", 'block("t", "SS"'),
    ("epilogue", "", "s.reverse_compute_inline('d')", "an epilogue is applied after the reduction, not in it", 'block("d", "SS"'),
    ("matmul", "", "s.reverse_compute_inline('c')", "not one store over S iterators", 'block("c", "SSR"'),
    ("softmax", "", "s.reverse_compute_inline('out')", "others read `e` too", 'block("out", "SS"'),
    ("chain", "", "s.compact('t', 'x', i)", "it is a parameter of the program", 'block("t", "SS"'),
    ("chain", "", "s.compact('t', 't', i)", "block `u` uses it outside of the loop", 'block("u", "SS"'),
    (
        "chain",
        "s.compute_at('t', s.loop('u', 'vi'))",
        "s.compact('u', 't', s.loop('u', 'vi'), 'stack')",
        "would be no constant",
        "range(n)",
    ),
    (
        "chain",
        "s.compute_at('t', s.loop('u', 'vj'))",
        "s.compact('u', 'u', s.loop('u', 'vi'))",
        "block `out` uses it outside",
        'block("out"',
    ),
    ("stencil", "", "s.rolling_buffer('t', s.loops('out')[0])", "it is not one store at S iterators", 'block("t", "SR"'),
    ("chain", "", "s.rolling_buffer('t', s.loops('u')[0])", "windows of 1 in steps of 1 do not overlap", "grid(n, m)"),
    ("conv", "", "s.rolling_buffer('p', s.loops('out')[1])", "not an outermost serial loop", "grid(n, 5, 3, 3)"),
    ("chain", "", "s.compute_at('out', i)", "the loop comes before it", "grid(n, m)"),
    ("chain", "", "s.compute_at('t', i)", "it is inside of it already", "grid(n, m)"),
    ("softmax", "", "s.compute_at('e', s.loops('total')[0])", "block `out` reads `e` outside of it", 'block("out", "SS"'),
    ("stencil", "", "s.compute_at('t', s.loops('out')[0])", "would not be independent", 'block("t", "SR"'),
    ("chain", "", "s.reverse_compute_at('t', s.loops('out')[0])", "the loop comes after it", "grid(n, m)"),
    ("chain", "", "s.reverse_compute_at('out', i)", "nothing in the loop writes what it reads", "grid(n, m)"),
    ("epilogue", "s.reorder(k, i)", "s.reverse_compute_at('d', k)", "the reduction of block `c` goes on", "grid(12, 40, n)"),
    ("chain", "", "s.blockize('t', 'out')", "block `u` stands in the same loops", 'block("u", "SS"'),
    ("chain", "s.parallel(i)", "s.blockize('t', 'u')", "loop `i` is parallel", "parallel(n)"),
    ("matmul", "s.reorder(k, j); s.split(j, 16, tail='cut')", "s.blockize('c', 'c_rest')", "runs before loop `k`", "grid(n, 12)"),
    ("matmul", "o, p = s.split(j, 16); s.reorder(i, p, o)", "s.blockize(o)", "does not go on in steps of", 'block("c", "SSR"'),
    ("matmul", "s.parallel(i)", "s.blockize(i)", "loop `i` is parallel", "parallel(n)"),
]
