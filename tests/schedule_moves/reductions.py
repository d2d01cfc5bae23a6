"""Random calls of the primitives on reductions, and what they refuse."""

from __future__ import annotations

from typing import Any

from .base import Aim, Move, Refused, is_product, is_sum
from .blocks import BlockMoves


class ReductionMoves(BlockMoves):
    """Moves on reductions."""

    def decompose(self, name: str, loops: list[Any]) -> None:
        self.s.decompose_reduction(name, self.pick(loops))
        if self.chance(0.3):
            self.write_cache(name, list(self.s.loops(name)))

    def begin(self, name: str, loops: list[Any]) -> None:
        self.s.begin_reduction(name, self.pick(self.feeding(name, loops, self.pick("RRRS"))))

    def contract(self, name: str, loops: list[Any]) -> None:
        self.s.contract(name)

    def parts(self, name: str, loops: list[Any]) -> None:
        loop = self.pick(self.feeding(name, loops, "R"))
        if self.chance(0.6):
            loop = self.s.split(loop, self.pick([2, 3, 4]), tail=self.pick(["guard", "guard", "cut"]))[0]
        self.s.sum_in_parts(name, loop, scope=self.odd(self.pick(["stack", "stack", "workspace", "register"])))

    def factor(self, name: str, loops: list[Any]) -> None:
        loop = self.pick(self.feeding(name, loops, "R"))
        if self.chance(0.4):
            parts = self.s.split(loop, self.pick([2, 3, 4, 8]), tail=self.pick(["guard", "guard", "cut"]))
            loop = self.pick(parts[:2])
            loops = list(self.s.loops(name))
        at = None if self.chance(0.4) else self.pick(self.feeding(name, loops, "S"))
        total = self.s.rfactor(name, loop, at, scope=self.odd(self.pick(["stack", "workspace", "workspace", "workspace", "register"])))
        if self.chance(0.4):
            later = self.pick([self.begin, self.begin, self.decompose, self.write_cache, self.factor])
            then = self.pick([name, total.block.name])
            later(then, list(self.s.loops(then)))

    def lanes_then_cache(self, name: str, loops: list[Any]) -> None:
        """A loop of lanes, then something at it."""
        self.s.vectorize(loops[-1])
        later = [
            self.write_cache,
            self.read_cache,
            self.factor,
            self.decompose,
            self.begin,
            self.blockize,
            self.partition,
        ]
        self.pick(later)(name, [self.s.loops(name)[-1]])


MOVES: list[Move] = [
    ReductionMoves.parts,
    *[ReductionMoves.decompose] * 2,
    *[ReductionMoves.begin] * 2,
    ReductionMoves.contract,
    *[ReductionMoves.factor] * 4,
    ReductionMoves.lanes_then_cache,
]
WITHOUT_LOOPS: set[Move] = {ReductionMoves.contract}
AIMS: dict[Move, Aim] = {
    ReductionMoves.begin: is_sum,
    ReductionMoves.decompose: lambda b: b.init is not None,
    ReductionMoves.factor: is_sum,
    ReductionMoves.parts: is_sum,
    ReductionMoves.contract: is_product,
}
REFUSALS: list[Refused] = [
    ("chain", "", "s.decompose_reduction('t', i)", "it has no init", 'block("t", "SS"'),
    ("matmul", "s.reorder(k, j)", "s.decompose_reduction('c', j)", "loop `k` outside of it feeds a reduction iterator", "grid(n, 12, 40)"),
    ("softmax", "", "s.decompose_reduction('total', i)", "is not around block `total`", "grid(n, m)"),
    ("chain", "", "s.begin_reduction('t', i)", "no reduction with a named combiner and an init", 'block("t", "SS"'),
    ("softmax", "", "s.begin_reduction('top', s.loops('top')[1])", "its init is not f32(-inf)", 'block("top", "SR"'),
    ("softmax", "", "s.begin_reduction('total', s.loops('total')[1])", "there may be none", "grid(n, m)"),
    ("matmul", "o, p = s.split(k, 4)", "s.begin_reduction('c', o)", "loop `k_0` alone does not make its", 'block("c", "SSR"'),
    ("matmul_i32", "", "s.contract('c')", "not a sum of products of floats", 'block("c", "SSR"'),
    ("softmax", "", "s.contract('total')", "not a sum of products of floats", 'block("total", "SR"'),
    ("matmul", "s.annotate('c', 'contract', False)", "s.contract('c')", "annotated contract=False", 'block("c", "SSR"'),
    ("matmul", "", "s.sum_in_parts('c', j)", "loop `j` does not feed reduction iterators alone", "grid(n, 40, 12)"),
    ("columns", "", "s.sum_in_parts('out', s.loops('out')[1])", "it is no sum or product with an init", 'block("out", "SR"'),
    ("matmul", "", "s.sum_in_parts('c', k, scope='shared')", "scopes are workspace, stack and register", 'block("c", "SSR"'),
    ("matmul", "", "s.rfactor('c', j)", "does not feed reduction iterators alone", "grid(n, 40, 12)"),
    ("matmul_i32", "", "s.rfactor('c', k)", "its extent is not a constant", "grid(n, m, p)"),
    (
        "matmul",
        "s.decompose_reduction('c', k)",
        "s.rfactor('c', k)",
        "not one reduction with its init",
        'block("c", "SSR"',
    ),
]
