"""Random uses of tensor instructions and sampled choices, and what tensorize refuses."""

from __future__ import annotations

from typing import Any

from pliant.loop.stmt import Reduce
from pliant.schedule.auto_tensorize import auto_tensorize
from pliant.target import target
from pliant.target.instructions import INSTRUCTIONS

from .base import Aim, Move, Refused, is_product
from .reductions import ReductionMoves

COMMON = target("llvm:x86-64-v3")  # the same on every machine, so that a seed is the same schedule


class ChoiceMoves(ReductionMoves):
    """Instructions and choices."""

    def tensorize(self, name: str, loops: list[Any]) -> None:
        with self.s.attempt():
            _, inner = self.s.split(self.pick(self.feeding(name, loops, "S")), self.pick([4, 8]), tail="cut")[:2]
            here = self.s.loops(name)
            if here[-1] is not inner:
                after = here[here.index(inner) + 1 :] if inner in here else here[-1:]  # it may be a loop of another block
                self.s.reorder(*after, inner)
            if self.chance(0.7):
                self.s.contract(name)
            if self.chance(0.7):
                self.s.decompose_reduction(name, self.pick(self.feeding(name, list(here), "R")))
            self.s.tensorize(inner, self.odd(self.pick(["fma.f32x4", "fma.f32x8", self.instruction(name)])))

    def auto_tensorize(self, name: str, loops: list[Any]) -> None:
        auto_tensorize(self.s, name, self.instruction(name), in_registers=self.pick((0, 0, 1, 3)))

    def instruction(self, name: str) -> str:
        """An instruction: mostly one that common machines have and that sums into what a block sums into, whatever its factors are.

        The factors of many programs are not those that it takes (signs, 7 bits), which has to be refused.
        """
        body = self.s.block(name).block.body
        result = body.targets[0].dtype if isinstance(body, Reduce) else None
        near = [n for n, i in INSTRUCTIONS.items() if i.is_on(COMMON) and f"c: InOut[{result}," in i.description]
        return str(self.pick(near if near and self.chance(0.8) else list(INSTRUCTIONS)))

    def sample(self, name: str, loops: list[Any]) -> None:
        loop = self.pick(loops)
        if self.chance(0.25):
            most = self.pick([1, 4, 64])
            inner = self.pick([1, 2, 2, 3, 4, self.odd(8)])
            factors = self.s.sample_partitioned_tile(loop, self.pick([2, 2, 3]), self.pick([0, 1, 1, 2]), inner, max_innermost=most)
        elif self.chance(0.5):
            factors = self.s.sample_tile(loop, self.pick([2, 2, 3]), max_factor=self.pick([4, 16, 64]))
        else:
            factors = self.s.sample_perfect_tile(loop, self.pick([2, 2, 3]), max_innermost=self.pick([1, 4, 64]))
        made = self.s.split(loop, *factors, tail=self.s.sample_categorical(("guard", "cut", "balance")))
        if self.chance(0.5):
            how = self.pick([self.s.unroll, self.s.vectorize, self.s.parallel])
            how(self.pick(made))
        elif self.chance(0.5):
            self.s.reorder(*self.random.sample(made, 2))

    def sample_location(self, name: str, loops: list[Any]) -> None:
        self.s.sample_compute_location(name)

    def sample_kind(self, name: str, loops: list[Any]) -> None:
        self.s.cache_write(name, self.at(loops), scope=self.s.sample_categorical(("stack", "workspace"), (0.3, 0.7)))


MOVES: list[Move] = [
    ChoiceMoves.tensorize,
    ChoiceMoves.auto_tensorize,
    *[ChoiceMoves.sample] * 2,
    ChoiceMoves.sample_location,
    ChoiceMoves.sample_kind,
]
WITHOUT_LOOPS: set[Move] = {ChoiceMoves.sample_location}
AIMS: dict[Move, Aim] = {
    ChoiceMoves.tensorize: is_product,
    ChoiceMoves.auto_tensorize: is_product,
}
REFUSALS: list[Refused] = [
    (
        "matmul",
        "o, p = s.split(j, 8); s.reorder(o, k, p)",
        "s.tensorize(p, 'fma.f32x8')",
        "it combines by add, the instruction by fma",
        "grid(",
    ),
    (
        "matmul",
        "o, p = s.split(j, 8); s.reorder(o, k, p)",
        "s.tensorize(p, 'fma.f32x4')",
        "its loops are S 8, the instruction's are S 4",
        "grid(",
    ),
    (
        "matmul",
        "s.contract('c'); o, p = s.split(j, 8); s.reorder(o, k, p)",
        "s.tensorize(p, 'fma')",
        "there is no such instruction",
        "grid(",
    ),
    (
        "matmul",
        "s.contract('c'); o, p = s.split(j, 8); s.reorder(o, k, p); s.transform_layout('b', lambda k, n: (n, k))",
        "s.tensorize(p, 'fma.f32x8')",
        "do not lie 1 apart in memory",
        "grid(",
    ),
    ("matmul", "s.contract('c')", "s.tensorize(j, 'fma.f32x8')", "it is not loops around one block without init", "grid("),
]
