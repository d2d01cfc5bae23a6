"""Random calls of the primitives on loops, and what they refuse."""

from __future__ import annotations

from typing import Any

from pliant.loop.analysis.nests import blocks
from pliant.loop.stmt import Seq

from .base import NONSENSE, Aim, Move, Moves, Refused, has_predicate


class LoopMoves(Moves):
    """Moves on loops."""

    def split(self, name: str, loops: list[Any]) -> None:
        factors = self.pick([(2,), (3,), (4,), (16,), (5,), (None, 2, 3), (8, 4), (4, 3), (1,), (None, 1, 4)])
        if self.chance(0.02):
            factors = (self.odd(4), self.pick(NONSENSE))
        self.s.split(self.pick(loops), *factors, tail=self.odd(self.pick(["guard", "guard", "guard", "cut", "balance"])))

    def fuse(self, name: str, loops: list[Any]) -> None:
        loops = self.feeding(name, loops, self.pick("SSR"))
        start = self.random.randrange(max(1, len(loops) - 1))
        self.s.fuse(*loops[start : start + self.pick([2, 2, 2, 3])])

    def join(self, name: str, loops: list[Any]) -> None:
        names = self.names()
        other = names[(names.index(name) + self.pick([1, 1, 2])) % len(names)]
        theirs = self.s.loops(other)
        depth = 0 if self.chance(0.7) else self.random.randrange(len(loops))
        self.s.join(loops[depth], theirs[depth] if depth < len(theirs) else self.pick(loops))

    def fission(self, name: str, loops: list[Any]) -> None:
        """A loop around several statements, made so if need be, as two loops; then most often something with one or both of them."""
        if not any(isinstance(x.loop.body, Seq) for x in loops if x.alive):
            self.pick([self.join, lambda *_: self.s.loop_partition(loops[-1], 2, None)])(name, loops)
            loops = list(self.s.loops(name)) or loops
        loop = self.pick([x for x in loops if x.alive and isinstance(x.loop.body, Seq)] or loops)
        inside = [b.name for s in loop.loop.body.body[:-1] for b in blocks(s)] if isinstance(loop.loop.body, Seq) else []
        parts = self.s.fission(loop, self.odd(self.pick(inside if inside and self.chance(0.9) else self.names())))
        if self.chance(0.7):
            later = [self.s.vectorize, self.s.unroll, self.s.parallel, lambda x: self.s.split(x, 2), lambda _: self.s.join(*parts)]
            self.pick(later)(self.pick(parts))

    def reorder(self, name: str, loops: list[Any]) -> None:
        self.s.reorder(*self.random.sample(loops, min(len(loops), self.pick([2, 2, 3, 4]))))

    def innermost(self, loops: list[Any]) -> Any:
        return loops[-1] if self.chance(0.6) else self.pick(loops)

    def vectorize(self, name: str, loops: list[Any]) -> None:
        loop = self.feeding(name, loops, "S")[-1] if self.chance(0.7) else self.pick(loops)
        if loop is not loops[-1] and self.chance(0.7):
            self.s.reorder(loops[-1], loop)
        self.s.vectorize(loop)

    def parallel(self, name: str, loops: list[Any]) -> None:
        loop = self.feeding(name, loops, "S")[0] if self.chance(0.7) else self.pick(loops)
        if self.chance(0.5):
            self.s.parallel(loop)
        else:
            self.s.parallel(loop, grain=self.odd(self.pick([1, 2, 8, 0])))

    def unroll(self, name: str, loops: list[Any]) -> None:
        self.s.unroll(self.innermost(loops))

    def tile_and_kind(self, name: str, loops: list[Any]) -> None:
        """Split, and give the inner loop a kind: where guards and lanes meet."""
        outer, inner = self.s.split(self.pick(loops), self.pick([2, 4, 8]), tail=self.pick(["guard", "guard", "cut"]))[:2]
        self.pick([self.s.vectorize, self.s.unroll, lambda x: self.s.parallel(outer)])(inner)

    def partition(self, name: str, loops: list[Any]) -> None:
        self.s.partition(self.pick(loops))

    def pieces(self, name: str, loops: list[Any]) -> None:
        """A loop in pieces, and most often something done to one of them."""
        lengths = self.pick([(2, None), (None, 3), (2, None, 2), (1, None, 1), (3, 1, None), (4, 8), (2, 3, 7), (5, 7), (20, 20)])
        pieces = self.s.loop_partition(self.pick(loops), *(lengths if self.chance(0.97) else (self.odd(2), self.pick(NONSENSE))))
        if self.chance(0.5):
            piece = self.pick(pieces)
            self.pick([self.s.vectorize, self.s.unroll, self.s.parallel, lambda x: self.s.split(x, 2), self.s.blockize])(piece)

    def unit_loop(self, name: str, loops: list[Any]) -> None:
        """A loop of one iteration, and most often something done to it."""
        unit = self.s.add_unit_loop(self.pick([name, *loops]))
        if self.chance(0.6):
            around = self.s.loops(name)
            later = [self.s.vectorize, self.s.unroll, self.s.parallel, lambda x: self.s.reorder(*around[::-1]), self.s.blockize]
            self.pick([*later, lambda x: self.s.fuse(*around[:2]), lambda x: self.s.cache_write(name, x)])(unit)

    def unannotate(self, name: str, loops: list[Any]) -> None:
        at = self.pick([*loops, name])
        self.s.annotate(at, "hint", 3)
        self.s.unannotate(at, self.odd(self.pick(["hint", "hint", "note"])))

    def ask(self, name: str, loops: list[Any]) -> None:
        """What the blocks around are; then something with one of them."""
        at = self.pick([None, name, *loops])
        asked = [self.s.output_blocks, lambda: self.s.child_blocks(at), lambda: self.s.producers(name), lambda: self.s.consumers(name)]
        blocks = self.pick(asked)()
        if blocks and self.chance(0.7):
            self.pick([self.s.compute_inline, lambda b: self.s.annotate(b, "hint", 1), lambda b: self.s.compute_at(b, self.pick(loops))])(
                self.pick(blocks)
            )

    def go_on_in_a_copy(self, name: str, loops: list[Any]) -> None:
        """From here on, what is done is done to a copy, with the handles of before; the first schedule keeps its program."""
        before, self.s = self.s, self.s.copy()
        program = before.program
        try:
            self.split(name, loops)
        finally:
            assert before.program is program

    def annotate(self, name: str, loops: list[Any]) -> None:
        where = self.pick([*loops, name])
        value = self.pick([0, 3, True, False, "text", 1.5, None, (1, 2), self.odd(7)])
        self.s.annotate(where, self.pick(["hint", "contract", "reassociate", "note"]), value)


MOVES: list[Move] = [
    *[LoopMoves.split] * 5,
    *[LoopMoves.fuse] * 2,
    *[LoopMoves.join] * 2,
    *[LoopMoves.fission] * 2,
    *[LoopMoves.reorder] * 4,
    *[LoopMoves.vectorize] * 2,
    *[LoopMoves.parallel] * 2,
    LoopMoves.unroll,
    *[LoopMoves.tile_and_kind] * 2,
    *[LoopMoves.partition] * 2,
    LoopMoves.pieces,
    LoopMoves.unit_loop,
    LoopMoves.annotate,
    LoopMoves.unannotate,
    LoopMoves.ask,
    LoopMoves.go_on_in_a_copy,
]
AIMS: dict[Move, Aim] = {
    LoopMoves.partition: has_predicate,
}
REFUSALS: list[Refused] = [
    ("matmul", "", "s.split(i, 0)", "cannot split loop `i` by 0", "grid(n, 40, 12)"),
    ("matmul", "s.unroll(k)", "s.split(k, 4)", "it is unroll, not serial", "unroll(12)"),
    ("matmul", "", "s.split(j, 3, 8)", "the parts do not cover it", "grid(n, 40, 12)"),
    ("matmul", "", "s.split(j, 50, tail='cut')", "nothing would be left for the main loop", "grid(n, 40, 12)"),
    ("matmul", "", "s.split(i, 4, tail='none')", "there is no tail='none'", "grid(n, 40, 12)"),
    ("matmul", "", "s.split(j, 4, tail='none')", "there is no tail='none'", "grid(n, 40, 12)"),
    ("matmul", "", "s.partition(i)", "no predicate depends on it", "grid(n, 40, 12)"),
    ("matmul", "k0, k1 = s.split(k, 5)", "s.partition(k0)", "block `c` has an init", "grid(n, 40, 3, 5)"),
    ("matmul", "s.parallel(i)", "s.partition(i)", "it is parallel", "parallel(n)"),
    ("matmul", "", "s.fuse(i)", "fewer than two loops", "grid(n, 40, 12)"),
    ("matmul", "", "s.fuse(i, k)", "not all of the outer one's body", "grid(n, 40, 12)"),
    ("matmul", "", "s.fuse(j, k)", "feed S and R iterators of block `c`", "grid(n, 40, 12)"),
    ("chain", "", "s.join(s.loops('t')[0], s.loops('t')[1])", "do not stand in one sequence", "grid(n, m)"),
    ("chain", "", "s.join(s.loops('u')[0], i)", "do not stand in one sequence, the first before the second", "grid(n, m)"),
    ("stencil", "", "s.join(i, s.loops('out')[0])", "they do not run over the same range", "grid(n + 2, 3)"),
    ("chain", "s.parallel(i)", "s.join(i, s.loops('u')[0])", "it is parallel, not serial", "parallel(n)"),
    ("chain", "", "s.join(i, s.loops('out')[0])", "block `u`, which is between them, uses `t`", 'block("u", "SS"'),
    (
        "softmax",
        "s.join(s.loops('total')[0], s.loops('out')[0])",
        "s.join(s.loops('total')[1], s.loops('out')[1])",
        "block `out` touches elements of `total` that block `total` touches in later iterations",
        "range(m)",
    ),
    ("chain", "", "s.fission(i, 't')", "nothing comes after it", "grid(n, m)"),
    ("chain", "s.join(i, s.loops('u')[0])", "s.fission(i, 'out')", "it is not inside of the loop", 'block("out", "SS"'),
    ("chain", "s.join(i, s.loops('u')[0]); s.parallel(i)", "s.fission(i, 't')", "it is parallel, not serial", "parallel(n)"),
    (
        "chain",
        "s.compute_at('t', s.loops('u')[0]); s.compact('t', 't', s.loops('u')[0])",
        "s.fission(s.loops('u')[0], 't')",
        "both parts use `t`, which each iteration allocates",
        "range(n)",
    ),
    (
        "matmul",
        "s.reorder(k, i, j); s.loop_partition(i, 5, None)",
        "s.fission(k, 'c')",
        "block `c_part1` touches elements of `c` that block `c` touches in later iterations",
        "range(12)",
    ),
    ("matmul", "", "s.reorder(i, i)", "give each loop once", "grid(n, 40, 12)"),
    ("chain", "", "s.reorder(i, s.loops('out')[1])", "are not one nest", "grid(n, m)"),
    ("scan", "o, p = s.split(j, 2)", "s.reorder(p, o)", "has an ordered iterator", 'block("out", "SO"'),
    ("matmul", "", "s.unroll(i)", "its extent is not a constant", "grid(n, 40, 12)"),
    ("matmul", "s.parallel(i)", "s.unroll(i)", "its extent is not a constant", "parallel(n)"),
    ("matmul", "s.vectorize(s.reorder(k, j) or j)", "s.unroll(j)", "it is vector, not serial", "vector(40)"),
    ("matmul", "", "s.vectorize(j)", "there are loops inside of it", "grid(n, 40, 12)"),
    ("matmul", "", "s.vectorize(k)", "`k` feeds a reduction iterator of block `c`", 'block("c", "SSR"'),
    ("scan", "", "s.vectorize(j)", "`j` feeds an ordered iterator of block `out`", 'block("out", "SO"'),
    ("matmul", "", "s.parallel(k)", "`k` feeds a reduction iterator", "grid(n, 40, 12)"),
    ("matmul", "s.parallel(i)", "s.parallel(j)", "loop `i` is parallel already", "parallel(n)"),
    ("matmul", "s.unroll(j)", "s.parallel(k)", "loop `j` is unroll already", "unroll(40)"),
    ("matmul", "", "s.loop_partition(k, None, 12)", "nothing would be left for the piece None", "grid(n, 40, 12)"),
    ("matmul", "", "s.loop_partition(k, 4, 4)", "they are 8 iterations together", "grid(n, 40, 12)"),
    ("matmul", "", "s.loop_partition(i, 4, 4)", "they are 8 iterations together", "grid(n, 40, 12)"),
    ("matmul", "", "s.loop_partition(k, None, 4, None)", "two or more positive numbers are expected", "grid(n, 40, 12)"),
    ("matmul", "", "s.unannotate('c', 'hint')", "there is no such annotation", 'block("c", "SSR"'),
    ("matmul", "s.annotate(k, 'hint', 1)", "s.unannotate(k, 'note')", "cannot remove 'note' from loop `k`", "serial(12, hint=1)"),
    ("chain", "s.annotate('t', 'hint', 1); s.unannotate('t', 'hint')", "s.unannotate('t', 'hint')", "such annotation", 'block("t", "SS"'),
    ("chain", "s.vectorize(j)", "s.add_unit_loop('t')", "inside of vector loop `j`", "vector(m)"),
    ("matmul", "s.reorder(k, j); s.vectorize(j)", "s.add_unit_loop('c')", "inside of vector loop `j`", "vector(40)"),
    ("transpose", "s.vectorize(j)", "s.add_unit_loop('out')", "inside of vector loop `j`", "vector(n)"),
]
