"""Search spaces of modules: schedules that are drawn are legal and right, choices replay, and what is found serves compilations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant.autotuning import FALLBACK, _modules
from pliant.interp.loop import run_loop
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.program import Program
from pliant.schedule import Schedule, Trace
from pliant.schedule.decisions import Decision, DecisionError
from pliant.schedule.domains import Choices, PerfectTiles, Value
from pliant.schedule.records import FILE, CarriedRecords, KernelKey, Record, nearest, parse
from pliant.schedule.schedule import BlockHandle
from pliant.schedule.spaces.module import DECLARED
from pliant.schedule.spaces.modules import generic
from pliant.schedule.spaces.replay import is_known, known, named, numbered
from pliant.support.errors import Error, ScheduleError
from pliant.support.random import Stream
from pliant.target import target
from pliant.tune import Space, module, mutator
from pliant.tune.database import Database
from pliant.tune.module_space import ModuleSpace
from pliant.tune.modules import inline, rfactor, threads_and_vectors, tiling
from pliant.tune.mutators import move_factor, mutated, step
from pliant.tune.reference import in_f64
from pliant.tune.rule_space import RuleSpace, sums_by_size
from pliant.tune.runner import Trial
from pliant.tune.tasks import samples_of, tasks_of
from pliant.tune.tuner import Tuner
from pliant.tune.worker import _inexact
from search_spaces import A, B, X, depthwise, int8_dense, masked, norms, product, rows, triangle, two_sums, variance
from tuning_kernels import matmul, own_cache

AVX2 = target("x86-64-v3")
HERE = target("native")
SMALL = Space([inline, tiling("SSRS"), threads_and_vectors])


@module(version="1")
def halves(s: Schedule, block: BlockHandle) -> Iterator[Schedule]:
    """The first loop as it is, or in two halves."""
    yield s
    s.split(s.loops(block)[0], None, 2)
    yield s


def computed(func: Any, *arguments: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    result = np.full(shape, np.nan, np.float32)
    run_loop(func, [*arguments, result], order="shuffled")
    return result


@pytest.mark.parametrize("structure", ["SSRS", "SSRSRS"])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_drawn_is_legal_and_right(structure: str, seed: int) -> None:
    space = Space([inline, tiling(structure), threads_and_vectors])
    s = space.draw(product, seed, AVX2)
    verify(s.func, claims=False)
    np.testing.assert_allclose(computed(s.program, A, B, shape=(13, 40)), A.astype(float) @ B * 2 + 1, rtol=1e-5)
    assert_same(Trace.from_json(s.trace.to_json()).schedule(product.func).program, s.program)
    s = space.draw(variance, seed, AVX2)
    verify(s.func, claims=False)
    expected = 70 * X.astype(float).var(1)
    np.testing.assert_allclose(computed(s.program, X, shape=(3, 20)), expected, rtol=1e-5)
    assert s.rounding == []


def test_remaining_rows_of_any_loop_are_tiled() -> None:
    x, w = X[:, :50, :].reshape(-1)[:1280].reshape(8, 10, 16), B.reshape(-1)[:144].reshape(3, 3, 16)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(float), (3, 3), axis=(0, 1))
    for choices in ({"y.rows0": 1, "y.rows1": 5}, {"y.rows0": 4, "y.rows1": 1}, {"y.lane": 1, "y.rows2": 1, "y.rows0": 4}):
        s = SMALL.schedule(depthwise, {"y.lane": 2, "y.vectors": 1, **choices}, AVX2)
        verify(s.func, claims=False)
        found = computed(s.program, x, w, shape=(6, 8, 16))
        np.testing.assert_allclose(found, np.einsum("ijcpq,pqc->ijc", windows, w), rtol=1e-5)


@pytest.mark.parametrize("structure", ["RS", "SRSS", "SSRRS"])
def test_any_structure(structure: str) -> None:
    s = Space([tiling(structure), threads_and_vectors]).draw(product, 1, AVX2)
    verify(s.func, claims=False)
    assert "c_tile" in str(s.program)
    np.testing.assert_allclose(computed(s.program, A, B, shape=(13, 40)), A.astype(float) @ B * 2 + 1, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_instructions_and_lanes_are_legal_and_right(seed: int) -> None:
    s = generic().draw(int8_dense, seed, AVX2)
    verify(s.func, claims=False)
    a, b = np.arange(192, dtype=np.uint8).reshape(6, 32), (np.arange(768) % 251 - 125).astype(np.int8).reshape(32, 24)
    result = np.zeros((6, 24), np.int32)
    run_loop(s.program, [a, b, result], order="shuffled")
    np.testing.assert_array_equal(result, a.astype(int) @ b)
    s = Space(generic().modules, bits="any").draw(norms, seed, AVX2)
    verify(s.func, claims=False)
    np.testing.assert_allclose(computed(s.program, X[0, :48, :6].T.copy(), shape=(6,)), X[0, :48, :6].astype(float).sum(0), rtol=1e-6)


def test_a_drawn_schedule_has_the_bits_of_the_default(tmp_path: Path) -> None:
    with own_cache(tmp_path):
        for kernel, arguments, seed in ((product, (A, B), 0), (variance, (X,), 0)):
            drawn = pliant.compile(generic().draw(kernel, seed))(*arguments)
            assert np.array_equal(drawn, pliant.compile(kernel)(*arguments))


class Empty:
    """A database without anything."""

    def trials(self, task: str) -> dict[str, Any]:
        return {}

    def task(self, task: str) -> None:
        return None

    def records(self, form: str) -> list[Record]:
        return []


EMPTY: Any = Empty()
C = np.random.default_rng(3).random((10, 70, 12), np.float32)
ROWS = np.arange(10)[:, None, None] * 7
UP_TO = np.where(np.arange(70)[None, :, None] <= ROWS, C, 0).astype(float).sum(1)
OFF_THE_RULES = (
    (masked, C, (UP_TO,)),
    (two_sums, C, (C.astype(float).sum(1), (C.astype(float) ** 2).sum(1))),
    (triangle, C.transpose(0, 2, 1).copy(), (UP_TO,)),
)


@pytest.mark.parametrize(("kernel", "x", "expected"), OFF_THE_RULES, ids=lambda v: getattr(getattr(v, "func", None), "name", ""))
def test_the_net_below_the_rules(kernel: Any, x: np.ndarray, expected: tuple[np.ndarray, ...], tmp_path: Path) -> None:
    """What only the last rule takes is searched in the space of modules: schedules with tiles, with the bits of the default."""
    rules = RuleSpace.of(kernel.func, HERE, {})
    assert FALLBACK in rules.why
    with own_cache(tmp_path):
        space = _modules(rules, None, kernel)
        assert space is not None
        s = space.schedule(kernel, {"y.fission": 0} if kernel is two_sums else {}, seed=2)
        assert "_tile" in str(s.program) and s.rounding == []
        default, tiled = (pliant.compile(f)(x) for f in (kernel, s))
    for a, b, e in zip(*(r if isinstance(r, tuple) else (r,) for r in (default, tiled)), expected, strict=True):
        assert np.array_equal(a, b)
        np.testing.assert_allclose(b, e, rtol=1e-5)


def test_what_a_rule_takes_is_searched_in_its_decisions() -> None:
    rules = RuleSpace.of(matmul.func, HERE, {})
    assert _modules(rules, None, matmul) is None
    own = Space([inline])
    assert _modules(rules, own, matmul) is own, "a kernel that was passed with a space"
    assert _modules(rules, own, "model.onnx") is None


def test_sums_that_depend_on_sizes_are_left_to_the_rules() -> None:
    """Short rows are summed in one part, long ones in several: one schedule of modules cannot have the bits of both."""
    assert sums_by_size(RuleSpace.of(rows.func, HERE, {}))
    assert not sums_by_size(RuleSpace.of(matmul.func, HERE, {})) and not sums_by_size(RuleSpace.of(norms.func, HERE, {}))
    tasks, _ = tasks_of(Program.of_kernel(rows.func), HERE, [{"n": 2, "m": 9}])
    unused: Any = None
    state = Tuner(tasks, HERE, EMPTY, unused, 0.0, modules=lambda rules: SMALL).states[0]
    assert "another order for some sizes" in state.problem
    anything = Space(SMALL.modules, bits="any")
    assert Tuner(tasks, HERE, EMPTY, unused, 0.0, modules=lambda rules: anything).states[0].problem == ""


def test_a_broken_module_is_told() -> None:
    @module
    def broken(s: Schedule, block: BlockHandle) -> Iterator[Any]:
        yield s.program

    with pytest.raises(ScheduleError, match="a module yields schedules"):
        Space([broken]).draw(matmul)
    unused: Any = None
    tasks, _ = tasks_of(Program.of_kernel(norms.func), HERE, [{}])
    (state,) = Tuner(tasks, HERE, EMPTY, unused, 0.0, modules=lambda rules: Space([broken])).states
    assert "a module yields schedules" in state.problem and state.record is None
    del DECLARED["broken"]


def test_a_record_of_modules_serves_its_sizes_alone() -> None:
    record = Record(KernelKey("f" * 64, (20, 40)), {"0.lane": 1}, 0.5, (), 1e-6, modules=("inline",))
    assert nearest(record.key, [record]) == (record, "")
    assert nearest(record.key._replace(sizes=(20, 41)), [record]) is None
    assert nearest(record.key._replace(sizes=(20, 41)), [record._replace(modules=())]) is not None
    assert parse(record.line()) == record


def test_choices_have_names_and_replay() -> None:
    space = SMALL
    s = space.draw(product, 1, AVX2)
    values = {d.name: d.value for d in s.decisions}
    assert {"c.vectors", "c.rows0"} <= values.keys()
    assert_same(space.schedule(product, values, AVX2).program, s.program)
    other = space.schedule(product, {"c.vectors": values["c.vectors"] % 2 + 1, "c.rows0": 2}, AVX2)
    assert str(other.program) != str(s.program)
    with pytest.raises(DecisionError, match="cannot be 99"):
        space.schedule(product, {"c.vectors": 99}, AVX2)
    with pytest.raises(DecisionError, match="no module makes"):
        space.schedule(product, {"c.colour": 1}, AVX2)


def test_a_module_forks_and_refuses() -> None:
    """What it yields is a choice; where a primitive refuses, what it has yielded before counts."""

    @module
    def stops(s: Schedule, block: BlockHandle) -> Iterator[Schedule]:
        yield s
        s.vectorize(s.loops(block)[0])
        yield s

    space = Space([halves])
    plain, split = (space.schedule(matmul, {"c.halves": k}, AVX2).program for k in (0, 1))
    assert str(plain) != str(split) and len(Schedule(split).loops("c")) == len(Schedule(plain).loops("c")) + 1
    assert [d.name for d in Space([stops]).draw(matmul, 0, AVX2).decisions] == [], "the second way is refused: no choice"
    del DECLARED["stops"]


def test_records_name_modules_with_their_versions() -> None:
    assert Space([halves, tiling("SSRSRS")]).names() == ("halves@1", "tiling_SSRSRS")
    assert known("halves@1") is halves and known("tiling_SSRSRS").name == "tiling_SSRSRS"
    assert not any(map(is_known, ("halves@2", "halves", "tiling_SSR", "tiling_", "gone")))
    assert Space([halves], bits="any").names() == (), "other bits are never recorded"


def test_what_reorders_a_sum_is_not_taken() -> None:
    @module
    def backwards(s: Schedule, block: BlockHandle) -> Iterator[Schedule]:
        *_, k = s.loops(block)
        outer, inner = s.split(k, None, 4)
        s.reorder(inner, outer)
        yield s

    kept = Space([backwards]).draw(matmul, 0, AVX2)
    taken = Space([backwards], bits="any").draw(matmul, 0, AVX2)
    assert kept.rounding == [] and len(kept.loops("c")) == 3
    assert taken.rounding and len(taken.loops("c")) == 4
    del DECLARED["backwards"]


def test_what_is_no_module_or_no_space() -> None:
    with pytest.raises(ScheduleError, match="made of modules"):
        Space([halves.function])  # type: ignore[list-item]
    with pytest.raises(ScheduleError, match="cannot be a module"):
        module(lambda s: s)
    with pytest.raises(ScheduleError, match="no structure"):
        tiling("SSR")
    with pytest.raises(ScheduleError, match="only loop programs"):
        generic().draw(3)


class Tiles:
    """A runner for which every schedule with a tile takes half of the default's time; programs are loop programs."""

    def __init__(self) -> None:
        self.count = 0

    def arguments(self, sets: Any) -> None: ...

    def start(self, programs: Any, seconds: float) -> None:
        ratio = 0.5 if "c_tile" in str(programs[-1]) else 1.0
        self.answer = Trial("ok", (((1e-5,) * 3, (ratio * 1e-5,) * 3),))
        self.count += 1

    def finish(self) -> Trial:
        return self.answer

    def measure(self, programs: Any, seconds: float) -> Trial:
        self.start(programs, seconds)
        return self.finish()


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.tune.strategy.FIRST", 4)
    monkeypatch.setattr("pliant.tune.strategy.MOST", 8)


def tuned(folder: Path, space: Space) -> Tuner:
    """A search that measures nothing, to its end."""
    program = Program.of_kernel(product.func)
    tasks, _ = tasks_of(program, HERE, samples_of(program, {}))
    runner: Any = Tiles()
    with Database(folder / FILE) as database:
        tuner = Tuner(tasks, HERE, database, runner, time.monotonic() + 600, compile=lambda f, t, d: f, modules=lambda rules: space)  # type: ignore[arg-type, return-value]
        tuner.run()
    return tuner


def test_a_winner_is_a_record_of_modules_and_serves_compilations(tmp_path: Path) -> None:
    with own_cache(tmp_path):
        default = pliant.compile(product)(A, B)
        (state,) = tuned(tmp_path, SMALL).states
        record = state.record
        assert record is not None and record.modules == ("inline", "tiling_SSRS", "threads_and_vectors")
        f = pliant.compile(product)
        assert "tuned" in pliant.explain(f) and np.array_equal(f(A, B), default)
        assert CarriedRecords([record.line()]).records == [], "only the machine that measured it takes it"
        with Database(tmp_path / FILE) as database:
            database.clear()
            broken = {**record.decisions, next(iter(record.decisions)): 77}
            for decisions, modules, reason in ((broken, record.modules, "cannot be 77"), ({}, ("gone@2",), "no module `gone@2`")):
                database.add_record(record._replace(decisions=decisions, modules=modules, ratio=0.1 / (1 + len(modules))))
                told = pliant.explain(pliant.compile(product))
                assert "a record of tuning does not fit" in told and reason in told
                database.clear()


def test_modules_without_a_version_leave_no_record(tmp_path: Path) -> None:
    @module
    def anonymous(s: Schedule, block: BlockHandle) -> Iterator[Schedule]:
        yield s

    tuner = tuned(tmp_path, Space([anonymous, *SMALL.modules]))
    assert tuner.states[0].ratio < 1
    with Database(tmp_path / FILE) as database:
        assert database.records() == []
    del DECLARED["anonymous"]


def test_the_reference_is_the_kernel_in_f64() -> None:
    verify(in_f64(variance.func))
    exact = 70 * X.astype(float).var(1)
    np.testing.assert_array_equal(computed(in_f64(variance.func), X, shape=(3, 20)), exact.astype(np.float32))
    a, b = A[:, :16].copy(), B[:16, :32].copy()
    result = np.zeros((13, 32), np.float32)
    run_loop(in_f64(matmul.func), [a, b, result], [13])
    np.testing.assert_array_equal(result, (a.astype(float) @ b).astype(np.float32))


def test_other_bits_are_measured_against_the_reference() -> None:
    exact = np.linspace(1, 2, 50, dtype=np.float32)
    far, near = exact + np.float32(1e-5), exact + np.float32(2e-7)
    nan = np.where(exact > 1.5, np.nan, exact).astype(np.float32)

    def told(usual: np.ndarray, own: np.ndarray, reference: np.ndarray = exact) -> str:
        return _inexact([lambda: usual, lambda: own], lambda: reference, ())

    assert told(exact, near) == told(far, near) == told(near, exact) == told(nan, nan, nan) == ""
    assert "its error is 1e-05" in told(near, far) and "infinities" in told(nan, exact, nan)
    assert "not that of the default" in told(np.arange(3), np.arange(3) + 1, np.arange(3))


def test_a_space_with_other_bits_is_searched(tmp_path: Path) -> None:
    with own_cache(tmp_path):
        result = pliant.autotune(norms, minutes=1e-6, space=Space([rfactor, *SMALL.modules], bits="any"))
        (row,) = result.table
        assert result.candidates > 0 and row.problem == ""
        with Database(tmp_path / FILE) as database:
            assert database.records() == []
        for s in result.schedules.values():
            np.testing.assert_allclose(pliant.compile(s)(X[0, :48, :6].T.copy()), X[0, :48, :6].astype(float).sum(0), rtol=1e-6)
        with pytest.raises(Error, match="a search takes a"):
            pliant.autotune(norms, space=3)  # type: ignore[arg-type]


def test_vectors_fit_programs_with_other_names() -> None:
    func = product.func
    assert numbered("c_tail5.unroll", func) == "0_tail5.unroll" and numbered("b_copy.lane", func) == "b1_copy.lane"
    vector = {"0_tail5.unroll": 2, "b1_copy.lane": 1, "1.lane": 0}
    assert named(vector, func) == {"c_tail5.unroll": 2, "b_copy.lane": 1, "y.lane": 0}


def test_neighbors_differ_in_a_choice_and_are_legal() -> None:
    space = ModuleSpace.of(product.func, AVX2, generic())
    near = space.around(space.drawn(Stream(0)))
    for stream in map(Stream, range(4)):
        vector = next(near.neighbors(stream))
        assert vector != near.vector
        func, _ = space.candidate(vector)
        verify(func, claims=False)


def test_mutators_change_choices_by_steps() -> None:
    tile = Decision("c.outer0", (4, 6), PerfectTiles(24, 2, 64), (4, 6))
    moved = {move_factor(tile, Stream(n)) for n in range(40)}
    assert moved == {None, (2, 12), (8, 3), (12, 2)}, "a factor 2 or 3 moved to the other part, or nothing"
    rows = Decision("c.rows0", 4, Choices((1, 2, 4, 8)), 1)
    assert {step(rows, Stream(n)) for n in range(40)} == {None, 2, 8}
    word = Decision("c.tail", "cut", Choices(("cut", "guard")), "cut")
    assert move_factor(word, Stream(0)) is step(word, Stream(0)) is None
    assert {mutated(word, Stream(n)) for n in range(9)} == {"cut", "guard"}, "drawn where no mutator answers"


def test_a_mutator_of_a_user_goes_first_and_may_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.tune.mutators.DECLARED", {})
    rows = Decision("c.rows0", 4, Choices((1, 2, 4, 8, 16)), 1)

    @mutator
    def far(decision: Decision, stream: Stream) -> Value | None:
        return 16 if decision.name == "c.rows0" else 3

    assert {mutated(rows, Stream(n)) for n in range(9)} == {16}
    assert {mutated(replace(rows, name="c.rows1"), Stream(n)) for n in range(40)} <= {1, 2, 4, 8, 16}


def test_the_search_keeps_what_it_measured(tmp_path: Path) -> None:
    tuner = tuned(tmp_path, SMALL)
    (state,) = tuner.states
    assert state.finished and 8 <= len(state.outcomes) < 16
    again = tuned(tmp_path, SMALL)
    assert again.candidates == 0 and again.states[0].outcomes.keys() == state.outcomes.keys()
    assert again.states[0].record == state.record
