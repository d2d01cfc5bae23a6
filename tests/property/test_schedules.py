"""No accepted schedule changes a result beyond what it declares: random sequences of primitives, and the default rules.

Bit for bit, in shuffled order, for odd, prime, tiny and zero dims; where a schedule declared another rounding, within the
error bound of a sum in any order.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

import generate_loops
from counts import count
from schedule_kernels import KERNELS, kernel, make_arguments, pack, unpack

from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import Block, Func, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.schedule import Schedule, Trace, default_schedule
from pliant.schedule.nest import accesses
from pliant.support.errors import ScheduleError
from pliant.target import target

DIMS = [0, 1, 1, 2, 3, 5, 7, 12, 17, 33]
BATCH = 20
TARGETS = ["llvm:x86-64-v3", "llvm:x86-64-v4", "wasm+simd128"]


def compare(func: Func, scheduled: Func, arguments: list[Any], dims: list[int], rounding: list[str], seed: int) -> None:
    """Fails with the text of the scheduled program when it computes something else."""
    expected, found = [generate_loops.clone(a) for a in arguments], [generate_loops.clone(a) for a in arguments]
    run_loop(func, expected, dims)
    of = dict(zip((v.name for v in func.symbols), dims, strict=True))
    values = [of[v.name] for v in scheduled.symbols]  # layouts may change their order
    if "layouts" in scheduled.attrs:
        found = pack(scheduled, found, values)
    run_loop(scheduled, found, values, order="shuffled", seed=seed)
    if "layouts" in scheduled.attrs:
        found = unpack(scheduled, found, expected)
    for p, a, b in zip(func.params, expected, found, strict=True):
        a, b = (np.asarray(x) for x in (a, b))
        if a.dtype.kind == "V":  # bf16
            a, b = a.astype(np.float32), b.astype(np.float32)
        if rounding and a.dtype.kind == "f":
            same = np.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True)
        else:
            same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        assert same, f"`{p.value}` differs for dims {dims} in\n{print_func(scheduled)}"


class Player:
    """Calls random methods of a schedule with arguments that are often legal."""

    def __init__(self, func: Func, seed: int) -> None:
        self.random = random.Random(seed)
        self.s = Schedule(func)
        self.refused = 0

    def names(self) -> list[str]:
        return [b.name for b in walk_stmts(self.s.program.body) if isinstance(b, Block)]

    def play(self, steps: int) -> None:
        for _ in range(steps):
            name = self.random.choice(self.names())
            loops = list(self.s.loops(name))
            if not loops:
                continue
            try:
                self.random.choice(MOVES)(self, name, loops)
            except ScheduleError as error:
                self.refused += 1
                assert error.what and "Traceback" not in str(error)

    def split(self, name: str, loops: list[Any]) -> None:
        factors = self.random.choice([(2,), (3,), (4,), (16,), (None, 2, 3), (8, 4), (1,)])
        self.s.split(self.random.choice(loops), *factors, tail=self.random.choice(["guard", "guard", "cut", "balance"]))

    def fuse(self, name: str, loops: list[Any]) -> None:
        start = self.random.randrange(max(1, len(loops) - 1))
        self.s.fuse(*loops[start : start + self.random.choice([2, 2, 3])])

    def join(self, name: str, loops: list[Any]) -> None:
        names = self.names()
        other = names[(names.index(name) + self.random.choice([1, 1, 2])) % len(names)]
        depth = self.random.randrange(len(loops))
        self.s.join(loops[depth], self.s.loops(other)[depth] if depth < len(self.s.loops(other)) else self.random.choice(loops))

    def reorder(self, name: str, loops: list[Any]) -> None:
        self.s.reorder(*self.random.sample(loops, min(len(loops), self.random.choice([2, 2, 3, 4]))))

    def kind(self, name: str, loops: list[Any]) -> None:
        how = self.random.choice([self.s.vectorize, self.s.parallel, self.s.unroll])
        how(loops[-1] if self.random.random() < 0.5 else self.random.choice(loops))

    def partition(self, name: str, loops: list[Any]) -> None:
        self.s.partition(self.random.choice(loops))

    def inline(self, name: str, loops: list[Any]) -> None:
        self.random.choice([self.s.compute_inline, self.s.reverse_compute_inline])(name)

    def decompose(self, name: str, loops: list[Any]) -> None:
        how = self.random.choice([self.s.decompose_reduction, self.s.begin_reduction])
        how(name, self.random.choice(loops))

    def contract(self, name: str, loops: list[Any]) -> None:
        self.s.contract(name)

    def cache(self, name: str, loops: list[Any]) -> None:
        at = self.random.choice([None, *loops])
        if self.random.random() < 0.6:
            self.s.cache_write(name, at, scope=self.random.choice(["stack", "register"]))
        else:
            self.s.cache_read(name, self.random.choice("abxwtcue"), at)

    def factor(self, name: str, loops: list[Any]) -> None:
        self.s.rfactor(name, self.random.choice(loops), self.random.choice([None, *loops]))

    def move(self, name: str, loops: list[Any]) -> None:
        other = self.random.choice(self.names())
        how = self.random.choice([self.s.compute_at, self.s.compute_at, self.s.reverse_compute_at])
        how(other, self.random.choice(loops))

    def scope(self, name: str, loops: list[Any]) -> None:
        self.s.set_scope(name, self.random.choice("tuec"), self.random.choice(["stack", "workspace"]))

    def layout(self, name: str, loops: list[Any]) -> None:
        buffer = self.random.choice([a.buffer for a in accesses(self.s.block(name).block)])
        maps = MAPS.get(buffer.ndim, ["lambda a: (a,)"])
        self.s.transform_layout(buffer.name, self.random.choice(maps), self.random.choice([None, None, 0, 3]), block=name)

    def iterators(self, name: str, loops: list[Any]) -> None:
        count = len(self.s.block(name).block.iters)
        self.s.transform_block_layout(name, self.random.choice(MAPS.get(count, ["lambda a, b, c, d: (b, a, d * 3 + c)"])))

    def reindex(self, name: str, loops: list[Any]) -> None:
        self.s.reindex(name, self.random.choice([a.buffer.name for a in accesses(self.s.block(name).block)]))

    def pad(self, name: str, loops: list[Any]) -> None:
        count = len(self.s.block(name).block.iters)
        if self.random.random() < 0.6:
            self.s.pad(name, *(self.random.choice([1, 1, 2, 4, 5]) for _ in range(count)))
        else:
            self.s.decompose_padding(name)

    def blockize(self, name: str, loops: list[Any]) -> None:
        self.s.blockize(self.random.choice(loops))

    def tensorize(self, name: str, loops: list[Any]) -> None:
        with self.s.attempt():
            loop = self.random.choice(loops)
            _, inner = self.s.split(loop, self.random.choice([4, 8]), tail="cut")
            below = [h for h in self.s.loops(name) if h is not inner]
            self.s.reorder(below[-1], inner) if self.s.loops(name)[-1] is not inner else None
            if self.random.random() < 0.7:
                self.s.contract(name)
            self.s.tensorize(inner, self.random.choice(["fma.f32x4", "fma.f32x8"]))

    def sample(self, name: str, loops: list[Any]) -> None:
        if self.random.random() < 0.3:
            self.s.sample_compute_location(name)
            return
        loop = self.random.choice(loops)
        factors = self.random.choice([self.s.sample_tile, self.s.sample_perfect_tile])(loop, 2)
        self.s.split(loop, *factors, tail=self.s.sample_categorical(("guard", "cut", "balance")))

    def annotate(self, name: str, loops: list[Any]) -> None:
        self.s.annotate(self.random.choice(loops), "hint", self.random.randrange(9))


MAPS = {
    1: ["lambda a: (a // 4, a % 4)", "lambda a: (a % 3, a // 3)", "lambda a: (a // 6, a // 2 % 3, a % 2)"],
    2: [
        "lambda a, b: (b, a)",
        "lambda a, b: (b // 16, a, b % 16)",
        "lambda a, b: (b // 4, a // 3, b % 4, a % 3)",
        "lambda a, b: (a * 40 + b,)",
    ],
    3: [
        "lambda a, b, c: (b, a, c // 4, c % 4)",
        "lambda a, b, c: (c // 8, a, b, c % 8)",
        "lambda a, b, c: (b, a, c)",
        "lambda a, b, c: (b // 2, a * 12 + c, b % 2)",
    ],
}
MOVES = [
    Player.split,
    Player.split,
    Player.split,
    Player.fuse,
    Player.join,
    Player.join,
    Player.reorder,
    Player.reorder,
    Player.kind,
    Player.kind,
    Player.partition,
    Player.inline,
    Player.decompose,
    Player.decompose,
    Player.contract,
    Player.cache,
    Player.cache,
    Player.factor,
    Player.move,
    Player.move,
    Player.scope,
    Player.annotate,
    Player.layout,
    Player.layout,
    Player.iterators,
    Player.reindex,
    Player.pad,
    Player.pad,
    Player.blockize,
    Player.tensorize,
    Player.sample,
]


@pytest.mark.parametrize("first", range(0, count(600, 100_000), BATCH))
def test_random_schedules_keep_the_meaning(first: int) -> None:
    for seed in range(first, first + BATCH):
        func = kernel(sorted(KERNELS)[seed % len(KERNELS)])
        player = Player(func, seed)
        player.play(player.random.randint(1, 8))
        s = player.s
        verify(s.program)
        again = Trace.from_json(s.trace.to_json()).apply(func)
        assert_same(s.program, again)
        for _ in range(2):
            dims = {v.name: player.random.choice(DIMS) for v in func.symbols}
            arguments = make_arguments(func, dims, seed)
            compare(func, s.program, arguments, [dims[v.name] for v in func.symbols], s.rounding, seed)


@pytest.mark.parametrize("first", range(0, count(100, 10_000), BATCH))
def test_default_rules_keep_the_meaning(first: int) -> None:
    for seed in range(first, first + BATCH):
        func = generate_loops.make_program(seed)
        scheduled, why = default_schedule(func, target(TARGETS[seed % len(TARGETS)]))
        assert scheduled.attrs["scheduled"] and why
        verify(scheduled)
        for n in range(2):
            arguments, dims = generate_loops.make_arguments(func, seed * 2 + n)
            compare(func, scheduled, arguments, dims, ["sums by lanes"] if "rows" in why or "matmul" in why else [], seed)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_default_rules_on_the_kernels(name: str, to: str) -> None:
    func = kernel(name)
    scheduled, _ = default_schedule(func, target(to))
    verify(scheduled)
    assert_same(scheduled, parse_module(print_func(scheduled))[func.name])
    rng = random.Random(name)
    for seed in range(6):
        dims = {v.name: rng.choice([*DIMS, 50, 100]) for v in func.symbols}
        compare(func, scheduled, make_arguments(func, dims, seed), [dims[v.name] for v in func.symbols], ["fma"], seed)
