"""What has to hold for every accepted schedule, checked for many at a time: their native code is one module.

An accepted schedule verifies, prints and parses back, replays from JSON, from Python and from its decisions, compiles, equals its own
interpretation bit for bit (in order, in shuffled order, as native code), and equals the program that it was made from: bit for bit,
or within the error of the order of sums that it declares.

    wrong = check_all([Played(func, seed), …])          # random schedules
    wrong = check_all([Ruled(func, seed, target), …])   # what the default rules make of programs
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from error_bounds import Bounds
from generate_loops import clone
from generate_loops import make_arguments as loop_arguments
from native_loops import Lifted, poisoned, same_bits
from pliant.codegen.llvm import generate
from pliant.interp.loop import run_loop
from pliant.loop.buffer import Buffer
from pliant.loop.parse import parse_module
from pliant.loop.printer import print_func
from pliant.loop.stmt import Alloc, Block, Func, Replacer, Stmt, map_children, walk_stmts
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify, verify_written
from pliant.lower.host.lift_workspace import lift_workspace
from pliant.schedule import Schedule, Trace, default_schedule
from pliant.support.errors import ScheduleError, UnsupportedError
from pliant.sym.expr import Dim
from pliant.target import target
from schedule_kernels import kernel, make_arguments, pack, unpack
from schedule_player import Player

DIMS = [0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 33]


class Wrong(AssertionError):
    """A program that breaks a promise: what kind of promise, for which seed, and how to see it."""

    def __init__(self, kind: str, seed: int, detail: str) -> None:
        self.kind, self.seed = kind, seed
        super().__init__(f"{kind} (seed {seed}): {detail}")


class Case:
    """A program before and after, and what was declared about it."""

    program: Func
    rounding: Sequence[str] = ()
    sizes: Sequence[int] = DIMS

    def __init__(self, func: Func, seed: int) -> None:
        self.func, self.seed = func, seed
        self.random = random.Random(f"case {seed}")

    def make(self) -> None:
        """Make the program."""

    def story(self) -> str:
        """How the program was made."""
        return ""

    def wrong(self, kind: str, detail: Any) -> Wrong:
        return Wrong(kind, self.seed, f"{str(detail)[:3000]}\n{self.story()}\nprogram:\n{print_func(self.program)}")

    def check_text(self) -> None:
        """It verifies, prints and parses back."""
        try:
            verify_written(self.func)
        except Exception as error:
            raise self.wrong("not verified before", error) from error
        try:
            verify(self.program, claims=False)  # as the compiler does: blocks claim what they claimed before
        except Exception as error:
            raise self.wrong("not verified", error) from error
        try:
            assert_same(self.program, parse_module(print_func(self.program))[self.program.name])
        except Exception as error:
            raise self.wrong("not parsed back", f"{type(error).__name__}: {error}") from error

    # Runs.

    def dims(self) -> dict[str, int]:
        return {v.name: self.random.choice([d for d in self.sizes if fits(v, d)]) for v in self.func.symbols}

    def arguments(self, n: int) -> tuple[list[Any], dict[str, int]]:
        """The arguments of a run, and the values of the dims."""
        dims = self.dims()
        whole = bool(self.rounding)
        return make_arguments(self.func, dims, self.seed * 7 + n, whole=whole and n == 0, special=not whole and n == 1), dims

    def check_runs(self, native: Lifted, compiled: Func, rounds: int = 2) -> None:
        """It computes what the program computed, and native code does what the interpreter does."""
        for n in range(rounds):
            arguments, dims = self.arguments(n)
            self.check_run(arguments, dims, native, compiled, n)

    def check_run(self, arguments: list[Any], dims: dict[str, int], native: Lifted, compiled: Func, n: int) -> None:
        expected = [clone(a) for a in arguments]
        order = [dims[v.name] for v in self.func.symbols]
        run_loop(self.func, expected, order)
        values = [dims[v.name] for v in self.program.symbols]  # layouts may change their order
        begin = pack(self.program, arguments, values)
        found = [clone(a) for a in begin]
        try:
            run_loop(self.program, found, values)
        except Exception as error:
            raise self.wrong("run fails", f"dims {dims}: {type(error).__name__}: {error}") from error
        self.check_same(expected, found, arguments, order, dims)
        found = unpack(self.program, found, expected)  # what stands in padding that nobody reads is free
        shuffled = [clone(a) for a in begin]
        run_loop(self.program, shuffled, values, order="shuffled", seed=self.seed)
        self.agree("shuffled order", found, unpack(self.program, shuffled, expected), dims)
        threads = 1 + (self.seed + n) % 2
        mine = [clone(a) for a in begin]
        code = native.call(compiled, mine, values, threads)
        if code != 0:
            raise self.wrong("native code fails", f"dims {dims}: code {code}")
        self.agree(f"native code on {threads} threads", found, unpack(self.program, mine, expected), dims)

    def agree(self, what: str, expected: list[Any], found: list[Any], dims: dict[str, int]) -> None:
        for p, a, b in zip(self.program.params, expected, found, strict=True):
            if not same_bits(a, b):
                raise self.wrong(f"{what} differs from the interpreter", f"`{p.value}`, dims {dims}\n{difference(a, b)}")

    def check_same(self, expected: list[Any], found: list[Any], arguments: list[Any], order: list[int], dims: dict[str, int]) -> None:
        """The results are those of the program before, as far as the schedule declares."""
        try:
            mine = unpack(self.program, found, expected)
        except AssertionError as error:
            raise self.wrong("wrong padding", f"dims {dims}") from error
        different = [(p.value, a, b) for p, a, b in zip(self.func.params, expected, mine, strict=True) if not same_bits(a, b)]
        if not different:
            return
        rounding = self.rounding
        if not rounding:
            b, x, y = different[0]
            raise self.wrong("wrong", f"`{b}`, dims {dims}\n{difference(x, y)}")
        bounds = Bounds(self.func).run(arguments, order)
        for b, x, y in different:
            if bounds.exact and not np.array_equal(x, y):
                raise self.wrong("wrong, where sums are exact", f"`{b}`, dims {dims}, {rounding}\n{difference(x, y)}")
            if bounds.error is None:
                continue
            if not b.dtype.is_float:
                raise self.wrong("wrong, where only floats may differ", f"`{b}`, dims {dims}\n{difference(x, y)}")
            if not within(x, y, bounds.error[b.name]):
                raise self.wrong("wrong beyond the error of the order", f"`{b}`, dims {dims}, {rounding}\n{difference(x, y)}")


class Played(Case):
    """A random schedule of a program."""

    def __init__(self, func: Func, seed: int) -> None:
        super().__init__(func, seed)
        self.player = Player(func, seed)
        self.program = func

    def make(self) -> None:
        """Play; anything but a refusal in words is a failure."""
        steps = self.random.choice([1, 2, 4, 6, 8, 10, 12, 16])
        try:
            self.player.play(steps)
        except Exception as error:
            self.program = self.player.s.program
            raise self.wrong("raw error", f"{type(error).__name__}: {error} ({frames(error)})") from error
        self.program, self.rounding = self.player.s.program, self.player.s.rounding

    def story(self) -> str:
        return f"moves: {', '.join(self.player.tried)}\ntrace:\n{self.player.s.trace}"

    def check_text(self) -> None:
        super().check_text()
        trace = self.player.s.trace
        try:
            assert_same(self.program, Trace.from_json(trace.to_json()).apply(self.func))
        except Exception as error:
            raise self.wrong("not replayed from JSON", f"{type(error).__name__}: {error}") from error
        try:
            s = Schedule(self.func, decisions=trace.decisions)
            exec(str(trace), {"s": s})
            assert_same(self.program, s.program)
        except Exception as error:
            raise self.wrong("not replayed from Python", f"{type(error).__name__}: {error}") from error
        self.check_order()
        if trace.decisions:
            self.check_names(trace)
            self.check_other_decisions(trace)

    def check_order(self) -> None:
        """A block that forbids another order of its sums has none, unless the schedule changed that annotation."""
        if '"reassociate"' in str(self.player.s.trace):
            return
        fixed = {b.name for b in walk_stmts(self.func.body) if isinstance(b, Block) and not b.annotations.get("reassociate", True)}
        changed = [name for name in fixed if f"block `{name}` sums in another order" in self.player.s.rounding]
        if changed:
            raise self.wrong("another order", f"{changed} are annotated reassociate=False")

    def check_names(self, trace: Trace) -> None:
        """The same decisions by name make the same program, and each is one of its domain."""
        made = self.player.s.decisions
        assert [d.domain.encode(d.value) for d in made] == list(trace.decisions)
        assert all(d.value in d.domain and d.default in d.domain for d in made)
        try:
            assert_same(self.program, trace.undecided().apply(self.func, decisions={d.name: d.value for d in made}))
        except Exception as error:
            raise self.wrong("not replayed by name", f"{type(error).__name__}: {error}") from error

    def check_other_decisions(self, trace: Trace) -> None:
        """Other decisions make another program that verifies, or are refused in words."""
        for _ in range(3):
            other = [self.other(d) for d in trace.decisions]
            try:
                verify(trace.apply(self.func, decisions=other), claims=False)
            except ScheduleError as error:
                assert error.what
            except Exception as error:
                raise self.wrong("other decisions", f"{other}: {type(error).__name__}: {error} ({frames(error)})") from error

    def other(self, decision: Any) -> Any:
        if isinstance(decision, tuple):
            return tuple(self.random.choice([1, 1, 2, 3, 4, 8, d]) for d in decision)
        return self.random.randrange(4)


class Ruled(Case):
    """What the default rules make of a program for a target."""

    rounding = ("the default rules sum by lanes and in parts, and contract",)
    sizes = (*DIMS, 50, 64, 100)

    def __init__(self, func: Func, seed: int, to: str) -> None:
        super().__init__(func, seed)
        self.program, self.to, self.why = func, to, ""

    def make(self) -> None:
        """Schedule it."""
        try:
            self.program, self.why = default_schedule(self.func, target(self.to))
        except Exception as error:
            raise self.wrong("raw error", f"{type(error).__name__}: {error} ({frames(error)})") from error

    def story(self) -> str:
        return f"for {self.to}: {self.why}"


class RuledLoops(Ruled):
    """What the default rules make of a random loop program."""

    def make(self) -> None:
        super().make()
        if "rows" not in self.why and "matmul" not in self.why:
            self.rounding = ()

    def arguments(self, n: int) -> tuple[list[Any], dict[str, int]]:
        made, dims = loop_arguments(self.func, self.seed * 2 + n)
        return made, {v.name: d for v, d in zip(self.func.symbols, dims, strict=True)}


class Sketch(Case):
    """A schedule of the kind that people write, with random factors: every step of it is legal, and has to be accepted."""

    def __init__(self, seed: int) -> None:
        super().__init__(kernel("epilogue" if seed % 2 else "matmul"), seed)
        self.begin()

    def begin(self) -> None:
        """Begin with the program as it is."""
        self.program = self.func
        self.s = Schedule(self.func)

    def make(self) -> None:
        """Make it; a refusal is a failure."""
        try:
            self.steps()
        except ScheduleError as error:
            self.program = self.s.program
            raise self.wrong("refused", error) from error
        self.program, self.rounding = self.s.program, self.s.rounding

    def story(self) -> str:
        return f"trace:\n{self.s.trace}"

    def steps(self) -> None:
        """A tiled product, and what comes after it."""
        s, pick = self.s, self.random.choice
        if self.seed % 2:
            pick([lambda: s.compute_inline("d"), lambda: s.reverse_compute_inline("out")])()
        i, j, k = s.loops("c")
        i0, i1 = s.split(i, pick([1, 2, 3, 4, 6]), tail=pick(["guard", "cut", "balance"]))[:2]
        j0, j1 = s.split(j, pick([4, 8, 20]))
        k0, k1 = s.split(k, pick([2, 3, 4, 12]))
        s.reorder(j0, i0, k0, k1, i1, j1) if pick([True, False]) else s.reorder(i0, j0, k0, i1, k1, j1)
        if pick([True, False]):
            s.contract("c")
        at, threads = s.loops("c")[1], pick([True, False])
        if pick([True, False]):
            s.cache_write("c", at, scope="stack" if threads else pick(["stack", "workspace"]))  # threads share the workspace
        if pick([True, False]):
            s.cache_read("c", "b", pick([at, k0]), order=pick([None, (1, 0)]))
        if pick([True, False]):
            s.decompose_reduction("c", k0)
        if pick([True, False]):
            s.transform_layout("b", pick(["lambda a, b: (b, a)", "lambda a, b: (b // 8, a, b % 8)"]))
        pick([s.vectorize, s.unroll])(j1)
        if threads:
            s.parallel(s.loops("c")[0], grain=pick([1, 2]))


def frames(error: BaseException) -> str:
    """The innermost calls of an error."""
    places = traceback.extract_tb(error.__traceback__)[-3:]
    return ", ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in places)


def within(a: Any, b: Any, bound: Any) -> bool:
    """Whether two arrays differ by no more than a bound; where that is not finite, anything goes."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        return bool(np.all((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound) | ~np.isfinite(bound)))


def difference(a: Any, b: Any) -> str:
    """The first places where two arrays differ."""
    a, b = np.asarray(a), np.asarray(b)
    places = np.argwhere(np.atleast_1d((a != b) & ~((a != a) & (b != b))))[:4]
    shown = [f"{list(map(int, p))}: {np.atleast_1d(a)[tuple(p)]} expected, {np.atleast_1d(b)[tuple(p)]} found" for p in places]
    return "\n".join(shown) or "signs of zeros differ"


def fits(v: Any, value: int) -> bool:
    """Whether a dim's contract allows a value."""
    return not isinstance(v, Dim) or (v.min <= value <= v.max and value % v.multiple_of == 0)


def check_all(cases: Sequence[Case], level: int = 0) -> list[Wrong]:
    """Everything that is wrong with some programs."""
    found: list[Wrong] = []
    good: list[Case] = []
    for c in cases:
        try:
            c.make()
            c.check_text()
            good.append(c)
        except Wrong as wrong:
            found.append(wrong)
    native, programs = compile_together(good, level, found)
    for p, program in programs.items():
        assert native is not None
        try:
            p.check_runs(native, program)
        except Wrong as wrong:
            found.append(wrong)
    return found


def compile_together(cases: Sequence[Case], level: int, found: list[Wrong]) -> tuple[Lifted | None, dict[Case, Func]]:
    """The native code of all programs in one module, and the program that it has for each."""
    made: dict[Case, Func] = {}
    for p in cases:
        named = poisoned(p.program.with_(name=f"p{p.seed}"), p.seed % 3 == 0)
        try:
            made[p] = compilable(named)
        except Exception as error:
            found.append(p.wrong("not compiled", f"{type(error).__name__}: {error}"))
    try:
        return (Lifted(list(made.values()), level) if made else None), made
    except Exception as error:
        raise AssertionError(f"no module of seeds {[p.seed for p in made]}") from error


def compilable(func: Func) -> Func:
    """The program, of which code can be made.

    The scope `register` is a promise that the rest of a schedule keeps: that loops around get unrolled. Where it was not kept,
    the code generator says so in words, and the buffers go to the stack.
    """
    try:
        generate([lift_workspace(func)[0]], target("native"))
        return func
    except UnsupportedError as error:
        if not error.what.startswith("register buffer"):
            raise
    found = [s.buffer for s in walk_stmts(func.body) if isinstance(s, Alloc) and s.buffer.scope == "register"]
    buffers = {b: Buffer(b.name, b.dtype, b.shape, b.strides, "stack") for b in found}

    def stack(s: Stmt) -> Stmt:
        return s.with_(buffer=buffers[s.buffer]) if isinstance(s, Alloc) and s.buffer in buffers else map_children(s, stack)

    made = func.with_(body=Replacer(buffers=buffers).stmt(stack(func.body)))
    generate([lift_workspace(made)[0]], target("native"))
    return made
