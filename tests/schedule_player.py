"""Random schedules: every primitive of `Schedule`, with arguments that are often legal and sometimes nonsense.

player = Player(func, seed); player.play(5); player.s.trace
"""

from __future__ import annotations

import os
import random
from typing import Any

from pliant.loop.analysis.nests import accesses, fed_by
from pliant.loop.buffer import Buffer
from pliant.loop.stmt import Alloc, Block, Func, Reduce, Store, walk_stmts
from pliant.schedule import Schedule
from pliant.schedule.auto_tensorize import auto_tensorize
from pliant.support.errors import ScheduleError
from pliant.sym.expr import TRUE, Mul, free_vars
from pliant.target import target
from pliant.target.instructions import INSTRUCTIONS

COMMON = target("llvm:x86-64-v3")  # the same on every machine, so that a seed is the same schedule
SCOPES = ["stack", "stack", "register", "workspace"]
NONSENSE: list[Any] = [0, -1, True, 2.5, "shared", "", None, (), (1, 2), 10**9, object()]
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


class Player:
    """Calls random methods of a schedule."""

    def __init__(self, func: Func, seed: int) -> None:
        self.random = random.Random(f"schedule {seed}")
        self.s = Schedule(func, seed=seed)
        self.pool: list[Any] = []  # every handle that was ever made
        self.tried: list[str] = []  # the moves, for the message of a failure
        self.refused = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    def names(self) -> list[str]:
        return [b.name for b in walk_stmts(self.s.program.body) if isinstance(b, Block)]

    def play(self, steps: int) -> None:
        """Make moves; what is refused has to be refused in words."""
        for _ in range(steps):
            names = self.names()
            if not names:
                return
            move = self.pick(FOCUS) if FOCUS and self.chance(0.4) else self.pick(MOVES)
            name = self.aimed(move, names)
            loops = list(self.s.loops(name))
            self.pool += loops
            if loops and self.chance(0.04):
                loops = [*loops, self.pick(self.pool)]
            if not loops and move not in WITHOUT_LOOPS:
                continue
            self.tried.append(f"{move.__name__} {name}")
            try:
                move(self, name, loops)
            except ScheduleError as error:
                self.tried[-1] += " (refused)"
                self.refused += 1
                assert error.what and "Traceback" not in str(error)

    def aimed(self, move: Any, names: list[str]) -> str:
        """A block for a move: most often one that it may be for, and that moves before were about."""
        fits = AIMS.get(move)
        if fits is not None and self.chance(0.85):
            names = [b.name for b in walk_stmts(self.s.program.body) if isinstance(b, Block) and fits(b)] or names
        return str(self.pick(names))

    def feeding(self, name: str, loops: list[Any], kind: str) -> list[Any]:
        """The loops that feed iterators of a kind alone, most often; all loops where there are none."""
        block = self.block(name)
        found = [x for x in loops if x.alive and fed_by(block, x.loop) == {kind}] if block is not None and self.chance(0.85) else []
        return found or loops

    def block(self, name: str) -> Block | None:
        """The block of that name, without a line in the trace."""
        return next((b for b in walk_stmts(self.s.program.body) if isinstance(b, Block) and b.name == name), None)

    def odd(self, usual: Any) -> Any:
        """The usual argument, or nonsense now and then."""
        return self.pick(NONSENSE) if self.chance(0.02) else usual

    def at(self, loops: list[Any]) -> Any:
        """None, or one of the loops."""
        return self.pick([None, *loops])

    def buffers(self, name: str) -> list[Buffer]:
        return [a.buffer for a in accesses(self.s.block(name).block)]

    # Loops.

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

    # Where blocks are.

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

    # Reductions.

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
            later = self.pick([Player.begin, Player.begin, Player.decompose, Player.write_cache, Player.factor])
            then = self.pick([name, total.block.name])
            later(self, then, list(self.s.loops(then)))

    # Memory.

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

    def lanes_then_cache(self, name: str, loops: list[Any]) -> None:
        """A loop of lanes, then something at it."""
        self.s.vectorize(loops[-1])
        later = [Player.write_cache, Player.read_cache, Player.factor, Player.decompose, Player.begin, Player.blockize, Player.partition]
        self.pick(later)(self, name, [self.s.loops(name)[-1]])

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

    # Instructions, choices.

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


MOVES = [
    *[Player.split] * 5,
    *[Player.fuse] * 2,
    *[Player.join] * 2,
    *[Player.reorder] * 4,
    *[Player.vectorize] * 2,
    *[Player.parallel] * 2,
    Player.unroll,
    Player.parts,
    *[Player.tile_and_kind] * 2,
    *[Player.partition] * 2,
    Player.pieces,
    Player.unit_loop,
    Player.annotate,
    Player.unannotate,
    Player.ask,
    Player.go_on_in_a_copy,
    *[Player.inline] * 2,
    *[Player.move] * 4,
    *[Player.compact] * 2,
    *[Player.blockize] * 2,
    *[Player.blockize_several] * 2,
    *[Player.roll] * 2,
    *[Player.decompose] * 2,
    *[Player.begin] * 2,
    Player.contract,
    *[Player.factor] * 4,
    *[Player.write_cache] * 3,
    *[Player.read_cache] * 3,
    Player.lanes_then_cache,
    Player.scope,
    Player.widen,
    *[Player.layout] * 2,
    Player.iterators,
    Player.reindex,
    Player.reindex_by_map,
    *[Player.pad] * 2,
    Player.tensorize,
    Player.auto_tensorize,
    *[Player.sample] * 2,
    Player.sample_location,
    Player.sample_kind,
]
WITHOUT_LOOPS = {
    Player.inline,
    Player.contract,
    Player.layout,
    Player.iterators,
    Player.scope,
    Player.widen,
    Player.reindex,
    Player.reindex_by_map,
    Player.pad,
    Player.sample_location,
}


def is_sum(b: Block) -> bool:
    """A reduction with an init."""
    return b.init is not None and isinstance(b.body, Reduce)


def is_product(b: Block) -> bool:
    """A sum of products, or what is cut out of a padded one."""
    return isinstance(b.body, Reduce) and isinstance(b.body.values[0], Mul)


def is_store(b: Block) -> bool:
    """One store."""
    return isinstance(b.body, Store)


def has_predicate(b: Block) -> bool:
    """Guarded."""
    return b.predicate is not TRUE


# The blocks that a move is for.
AIMS: dict[Any, Any] = {
    Player.begin: is_sum,
    Player.decompose: lambda b: b.init is not None,
    Player.factor: is_sum,
    Player.parts: is_sum,
    Player.contract: is_product,
    Player.pad: lambda b: is_product(b) or b.name.endswith("_pad"),
    Player.tensorize: is_product,
    Player.auto_tensorize: is_product,
    Player.inline: is_store,
    Player.compact: lambda b: any(a.buffer.scope != "global" for a in accesses(b)),
    Player.partition: has_predicate,
}
# Moves to make more often, by name: what `tools/mutants.py` asks for when it changed a primitive.
FOCUS = [getattr(Player, name) for name in os.environ.get("PLIANT_FOCUS", "").split()]
