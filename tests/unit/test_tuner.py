"""The search: it finds the best candidate of a known landscape, keeps nothing wrong, and does nothing twice."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, Tensor, dim, f32, function, kernel, ops
from pliant.schedule.domains import Value
from pliant.schedule.records import FILE, Record, kernel_key
from pliant.support.errors import Error, ScheduleError
from pliant.target import target
from pliant.tune.cost_model import Ridge
from pliant.tune.database import Database, Outcome, vector_text
from pliant.tune.rule_space import RuleSpace
from pliant.tune.runner import Trial
from pliant.tune.tasks import samples_of, tasks_of
from pliant.tune.tuner import Tuner
from pliant.tune.whole_program import compare
from tuning_kernels import matmul, own_cache, task

n = dim("n")
A, B, C = (np.random.default_rng(k).random((24, width), np.float32) for k, width in ((0, 24), (1, 24), (2, 40)))


@function
def net(x: Tensor[f32, n, 24]) -> Tensor[f32, n, 40]:
    return ops.relu(ops.relu(x @ ops.constant(A)) @ ops.constant(B)) @ ops.constant(C)


@kernel
def updates(x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    for i in range(n):
        y[i] = y[i] + x[i]


HERE = target("native")
Landscape = Callable[[Mapping[str, Value]], "Trial"]


def took(ratio: float) -> Trial:
    return Trial("ok", (((1e-5,) * 3, (ratio * 1e-5,) * 3),))


class Fake:
    """A runner that computes what a candidate takes from its decisions, and the compiler that goes with it."""

    def __init__(self, landscape: Landscape) -> None:
        self.landscape, self.count, self.seen = landscape, 0, []  # type: ignore[var-annotated]

    def arguments(self, sets: Any) -> None:
        assert all(isinstance(a, np.ndarray) for one in sets for a in one)

    def start(self, programs: Any, seconds: float) -> None:
        self.count += 1
        self.seen.append(vector_text(programs[-1]))
        self.answer = self.landscape(programs[-1])

    def finish(self) -> Trial:
        return self.answer

    def measure(self, programs: Any, seconds: float) -> Trial:
        self.start(programs, seconds)
        return self.finish()

    def compiled(self, func: Any, machine: Any, decisions: Any) -> Any:
        return dict(decisions.values)


def search(database: Database, landscape: Landscape, seconds: float = 600.0, size: int = 5) -> tuple[Tuner, Fake]:
    fake = Fake(landscape)
    runner: Any = fake
    tuner = Tuner([task(size)], HERE, database, runner, time.monotonic() + seconds, compile=fake.compiled)
    tuner.run()
    return tuner, fake


def bowl(decisions: Mapping[str, Value]) -> Trial:
    """The best tile is 3x2, whatever the default is, and unrolling costs."""
    rows, vectors = decisions.get("c.tile", (8, 1))  # type: ignore[misc]
    return took(0.7 + 0.02 * (abs(int(rows) - 3) + abs(int(vectors) - 2)) + 0.05 * (decisions.get("c.unroll", 1) != 1))


def test_the_best_of_a_landscape_becomes_the_record(tmp_path: Path) -> None:
    with Database(tmp_path / FILE) as database:
        tuner, _ = search(database, bowl)
        (state,) = tuner.states
        assert state.finished and dict(state.best()[0])["0.tile"] == (3, 2)
        (record,) = database.records()
        assert record.decisions["0.tile"] == (3, 2) and record.ratio == pytest.approx(0.7)
    with own_cache(tmp_path):
        assert "c.tile = 3x2" in pliant.explain(pliant.compile(matmul))


def test_a_second_run_measures_nothing(tmp_path: Path) -> None:
    with Database(tmp_path / FILE) as database:
        first, fake = search(database, bowl)
        assert fake.count == len(first.states[0].outcomes) + 1 + len(first.states[0].checked)
        second, fake = search(database, bowl)
        assert fake.count == second.candidates == 0
        assert second.states[0].ratio == first.states[0].ratio
        assert search(database, bowl, size=6)[1].count > 0, "other sizes are another task"


def test_a_stopped_search_goes_on(tmp_path: Path) -> None:
    asked = 0

    def stops(decisions: Mapping[str, Value]) -> Trial:
        nonlocal asked
        asked += 1
        if asked == 12:
            raise KeyboardInterrupt
        return bowl(decisions)

    with Database(tmp_path / FILE) as database:
        with pytest.raises(KeyboardInterrupt):
            search(database, stops)
        known = set(database.trials(task().identity))
        assert 8 <= len(known) < 12
        tuner, fake = search(database, bowl)
        again = known & set(fake.seen)
        assert tuner.states[0].finished and len(again) <= 1, "only a winner is measured twice"


@pytest.mark.parametrize("status", ["wrong", "crashed", "timeout", "failed"])
def test_what_fails_is_kept_as_such_and_never_drawn_again(tmp_path: Path, status: Any) -> None:
    """The very best candidate is a wrong one."""

    def seeded(decisions: Mapping[str, Value]) -> Trial:
        return Trial(status, message="seeded") if decisions.get("c.tile") == (3, 2) else bowl(decisions)

    with Database(tmp_path / FILE) as database:
        tuner, fake = search(database, seeded)
        bad = {text for text, o in tuner.states[0].outcomes.items() if o.status == status}
        assert bad and all(json.loads(text)["0.tile"] == [3, 2] for text in bad)
        (record,) = database.records()
        assert record.decisions["0.tile"] != (3, 2) and record.ratio < 1
        assert len(fake.seen) == len(set(fake.seen)) + len(tuner.states[0].checked)
        assert search(database, bowl)[1].count == 0, "also not by a later search"


def test_what_the_rules_refuse_is_kept_as_such(tmp_path: Path) -> None:
    class Strict(Fake):
        def compiled(self, func: Any, machine: Any, decisions: Any) -> Any:
            if decisions.values.get("c.tile", (2, 1))[0] % 2:
                raise ScheduleError("no odd rows")
            return super().compiled(func, machine, decisions)

    with Database(tmp_path / FILE) as database:
        fake = Strict(bowl)
        runner: Any = fake
        tuner = Tuner([task()], HERE, database, runner, time.monotonic() + 600, compile=fake.compiled)
        tuner.run()
        statuses = {o.status for o in tuner.states[0].outcomes.values()}
        assert statuses == {"ok", "illegal"}
        assert all(r.decisions.get("0.tile", (2, 1))[0] % 2 == 0 for r in database.records())  # type: ignore[index]


def test_a_winner_that_only_was_lucky_is_no_record(tmp_path: Path) -> None:
    seen: set[str] = set()

    def lucky(decisions: Mapping[str, Value]) -> Trial:
        text = vector_text(decisions)
        first = text not in seen
        seen.add(text)
        return took(0.5 if first and decisions else 1.0)

    with Database(tmp_path / FILE) as database:
        search(database, lucky)
        assert database.records() == []


def test_a_default_that_fails_ends_its_task(tmp_path: Path) -> None:
    with Database(tmp_path / FILE) as database:
        tuner, fake = search(database, lambda _: Trial("crashed", message="seeded"))
        assert fake.count == 1 and "crashed" in tuner.states[0].problem and not database.records()


def test_the_space_keeps_the_bits() -> None:
    space = RuleSpace.of(matmul.func, HERE, {})
    assert "0.tile" in space.decisions and "0.share" not in space.decisions
    assert all(not d.reorders and d.kind == "schedule" for d in space.decisions.values())
    assert space.changed({"0.tile": space.decisions["0.tile"].default}) == {}, "the default is the empty vector"


def test_the_model_learns_what_it_is_shown() -> None:
    space = RuleSpace.of(matmul.func, HERE, {})
    tiles = [t for t in space.decisions["0.tile"].domain if t != space.decisions["0.tile"].default]
    vectors: list[dict[str, Value]] = [{"0.tile": t} for t in tiles]
    truth = [1.0 + 0.3 * np.log(t[0] / 3) ** 2 + 0.2 * np.log(t[1] / 2) ** 2 for t in tiles]  # not what the distance to the default says
    shown = list(zip(vectors, truth, strict=True))[::2]
    model = Ridge()
    model.fit(space, shown)
    held_out = model.predict(space, vectors[1::2])
    ranks = np.argsort(np.argsort(held_out)), np.argsort(np.argsort(truth[1::2]))
    assert np.corrcoef(*ranks)[0, 1] > 0.6


def test_sizes_are_those_of_the_contract() -> None:
    program = pliant.Program.of_kernel(matmul.func).with_dims({"n": (4, 64)})
    assert samples_of(program, None) == [{"n": 4}, {"n": 16}, {"n": 64}]
    assert samples_of(program, {"n": [8, 8]}) == [{"n": 8}]
    for wrong in ({"n": [3]}, {"n": []}, {"m": [4]}):
        with pytest.raises(Error):
            samples_of(program, wrong)


def _writes(path: Path, task_name: str, count: int) -> None:
    with Database(path) as database:
        for k in range(count):
            database.add_trial(task_name, {"0.tile": (k, 1)}, Outcome("ok", 1.0))
            database.add_record(Record(kernel_key(matmul.func, HERE), {"0.tile": (k, 1)}, 1.0 / (k + 2), (), 1.0))
        os.kill(os.getpid(), signal.SIGTERM if os.name == "nt" else signal.SIGKILL)


def test_two_tuners_write_at_once_and_killed_ones_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / FILE
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_writes, args=(path, name, 40)) for name in ("a", "b")]
    for w in writers:
        w.start()
    for w in writers:
        w.join(120)
        assert w.exitcode != 0, "it was killed before it could close the database"
    with Database(path) as database:
        assert len(database.trials("a")) == len(database.trials("b")) == 40
        (record,) = database.records()
        assert record.decisions == {"0.tile": (39, 1)}, "the faster one stays"


def test_a_real_search_keeps_the_bits(tmp_path: Path) -> None:
    a, b = np.random.default_rng(0).random((5, 16), np.float32), np.random.default_rng(1).random((16, 32), np.float32)
    with own_cache(tmp_path):
        before = pliant.compile(matmul)(a, b)
        seen: list[int] = []
        result = pliant.autotune(matmul, weights={"n": [5]}, minutes=1e-6, progress=lambda t: seen.append(t.candidates))
        assert result.candidates > 0 and seen and "matmul" in str(result)
        (row,) = result.table
        assert row.seconds > 0 and row.calls == 1 and row.problem == ""
        assert np.array_equal(result.apply()(a, b), before)
        result.report(tmp_path / "t.html")
        assert "0.tile" in (tmp_path / "t.html").read_text()
        with pytest.raises(Error, match="minutes"):
            pliant.autotune(matmul, minutes=0)
    with own_cache(tmp_path / "t.html"), pytest.raises(Error, match="cannot be kept"), contextlib.suppress(NotADirectoryError):
        pliant.autotune(matmul, minutes=1)


def test_a_record_may_not_lose_at_one_size(tmp_path: Path) -> None:
    def bends(decisions: Mapping[str, Value]) -> Trial:
        best = bowl(decisions).ratios[0]
        small = 1.2 if decisions.get("c.tile") == (3, 2) else best
        return Trial("ok", (((1e-5,) * 3, (small * 1e-5,) * 3), ((1e-5,) * 3, (best * 0.3e-5,) * 3)))

    with Database(tmp_path / FILE) as database:
        search(database, bends)
        (record,) = database.records()
        assert record.decisions["0.tile"] != (3, 2) and record.ratio < 1


def test_a_program_is_tuned_kernel_by_kernel(tmp_path: Path) -> None:
    """Two layers of one kind are one task; a kernel of the user that changes its argument is none."""
    program = pliant.Program.of(net.graph)
    tasks, left_out = tasks_of(program, HERE, samples_of(program, {"n": [3]}))
    products = [t for t in tasks if "0.tile" in RuleSpace.of(t.func, HERE, {}).decisions]
    assert sorted(t.calls for t in products) == [1, 2] and left_out == []
    assert all(dict(t.samples[0]) == {"n": 3} and len(t.arguments()) == 1 for t in tasks)
    with own_cache(tmp_path), Database(tmp_path / FILE) as database:
        x = np.random.default_rng(0).random((3, 24), np.float32)
        before = pliant.compile(net)(x)
        for t in products:
            database.add_record(Record(t.key, {"0.tile": (2, 1)}, 0.9, t.samples, 1e-6))
        after = pliant.compile(net)
        assert sum(bool(r.record) for r in after.package.interface.rules) == len(products), "the keys are those of a compilation"
        assert np.array_equal(after(x), before)


def test_kernels_that_cannot_be_measured_are_told() -> None:
    program = pliant.Program.of_kernel(updates.func)
    assert tasks_of(program, HERE, [{"n": 3}]) == ([], ["updates: it changes `y` in place"])


def test_records_that_slow_a_program_down_are_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.tune.runner.Runner", lambda: fake)
    monkeypatch.setattr("pliant.tune.tuner.Tuner.__init__.__defaults__", (None, None, Ridge, lambda f, t, d: dict(d.values)))
    for whole, kept in ((1.2, 0), (0.9, 1)):
        fake: Any = _Context(bowl)
        monkeypatch.setattr("pliant.tune.whole_program.compare", lambda *_, whole=whole: whole)
        with own_cache(tmp_path / str(kept)):
            result = pliant.autotune(matmul, weights={"n": [5]}, minutes=5)
            assert result.whole == whole and ("withdrawn" in str(result)) == (kept == 0)
            with Database(tmp_path / str(kept) / FILE) as database:
                assert len(database.records()) == kept


def test_a_whole_program_is_compared() -> None:
    program = pliant.Program.of_kernel(matmul.func)
    ratio = compare(program, HERE, [{"n": 5}])
    assert ratio is not None and 0 < ratio < 100
    assert compare(pliant.Program.of_kernel(updates.func), HERE, [{"n": 5}]) is None


class _Context(Fake):
    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...
