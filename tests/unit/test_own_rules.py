"""Rules that users declare: where they stand, that they win where they match, what they leave alone, and what the cache knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Refusal, ScheduleError, Tensor, block, dim, f32, grid, kernel, select
from pliant.pipeline import compile_program
from pliant.program import Program
from pliant.runtime import code_cache
from pliant.schedule.library.table import CPU, DECLARED, rules_for
from pliant.target import target

n = dim("n")


@kernel
def smooth(x: Tensor[f32, n, 30], y: Out[f32, n, 30]) -> None:
    for i, t in grid(n, 30):
        with block("y", "SO", i, t) as (vi, vt):
            y[vi, vt] = select(vt == 0, x[vi, vt], y[vi, vt - 1] * 0.5 + x[vi, vt] * 0.5)


@kernel
def doubled(x: Tensor[f32, n, 40], y: Out[f32, n, 40]) -> None:
    for i, j in grid(n, 40):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = x[vi, vj] * 2.0


@pytest.fixture(autouse=True)
def _no_rules_left() -> Iterator[None]:
    yield
    DECLARED.clear()


def recurrence(func: Any, block: Any, target: Any) -> Any:
    kinds = [i.kind for i in block.iters]
    if sorted(kinds) != ["O", "S"]:
        return Refusal("no recurrence")
    return tuple(block.iters[kinds.index(kind)].var.name for kind in "OS")


def chunks(s: Any, roles: Any, decide: Any) -> str:
    steps, rows = (s.loop(decide.block, iterator) for iterator in roles)
    chunk, row = s.split(rows, None, decide("rows", (4, 8), 8))
    s.reorder(chunk, steps, row)
    s.unroll(row)
    s.parallel(chunk)
    return "in chunks"


def elementwise(func: Any, block: Any, target: Any) -> Any:
    return block if all(i.kind == "S" for i in block.iters) else Refusal("no map")


def expected(x: Any) -> Any:
    y = x.copy()
    for t in range(1, x.shape[1]):
        y[:, t] = y[:, t - 1] * np.float32(0.5) + x[:, t] * np.float32(0.5)
    return y


def test_a_rule_takes_what_no_built_in_rule_takes() -> None:
    assert "fallback" in pliant.explain(pliant.compile(smooth))
    pliant.rule(match=recurrence, version="1")(chunks)
    x = np.random.default_rng(1).standard_normal((77, 30)).astype(np.float32)
    for count in (4, 8):
        f = pliant.compile(smooth, decisions={"y.rows": count})
        assert "in chunks" in pliant.explain(f) and f"y.rows = {count}, of 4, 8" in pliant.explain(f)
        np.testing.assert_array_equal(f(x), expected(x))


def test_a_rule_wins_where_it_says_so_and_leaves_what_it_does_not_match() -> None:
    def plain(s: Any, roles: Any, decide: Any) -> str:
        s.split(s.loops(decide.block)[1], None, 8)
        return "my own way"

    pliant.rule(match=elementwise, before="elementwise", name="mine", version="1")(plain)
    text = pliant.explain(pliant.compile(doubled))
    assert "my own way" in text and "elementwise:" not in text and "fallback" not in text
    assert "my own way" not in pliant.explain(pliant.compile(smooth))
    x = np.arange(120, dtype=np.float32).reshape(3, 40)
    np.testing.assert_array_equal(pliant.compile(doubled)(x), x * 2)


def test_a_rule_that_refuses_after_all_leaves_no_trace() -> None:
    def refusing(s: Any, roles: Any, decide: Any) -> str:
        s.split(s.loops(decide.block)[1], None, 8)
        raise ScheduleError("not today")

    pliant.rule(match=elementwise, before="elementwise", version="1")(refusing)
    text = pliant.explain(pliant.compile(doubled))
    assert "not refusing: not today" in text and "elementwise: `y` as one flat vector loop" in text


def test_where_rules_stand() -> None:
    machine = target("llvm:x86-64-v3")
    before_phase = pliant.rule(match=recurrence, before="products", name="first", version="1")(chunks)
    pliant.rule(match=recurrence, before="matmul", name="second", version="1")(chunks)
    names = [(r.name, r.phase) for r in rules_for(machine)]
    assert names.index(("first", "first")) < names.index(("one row", "products")) < names.index(("second", "products"))
    assert names.index(("second", "products")) + 1 == names.index(("matmul", "products"))
    pliant.unregister_rule(before_phase)
    assert len(rules_for(machine)) == len(CPU) + 1


def test_a_rule_declared_again_takes_the_place_of_the_first() -> None:
    pliant.rule(match=recurrence, version="1")(chunks)
    pliant.rule(match=recurrence, version="2")(chunks)
    assert len(DECLARED) == 1


def test_names_that_cannot_be() -> None:
    with pytest.raises(ScheduleError, match="there is no rule or phase `matmull`") as error:
        pliant.rule(match=recurrence, before="matmull")
    assert "did you mean matmul" in str(error.value)
    with pytest.raises(ScheduleError, match="there is a built-in rule or phase `rows`"):
        pliant.rule(match=recurrence, name="rows")(chunks)


def test_the_cache_knows_versions_of_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[bytes] = []
    monkeypatch.setattr(code_cache, "get", lambda key: keys.append(key))
    monkeypatch.setattr(code_cache, "put", lambda key, package: None)
    for version in ("1", "2", None):
        pliant.rule(match=recurrence, version=version)(chunks)
        compile_program(Program.of_kernel(smooth.func))
    programs = [key for key in keys if not key.startswith(b"kernel\n")]
    assert len(programs) == 2 and programs[0] != programs[1]  # without a version nothing is looked up
    kernels = [key for key in keys if key.startswith(b"kernel\n")]
    assert len(kernels) == 2 and kernels[0] != kernels[1]


def test_cached_code_of_a_rule_is_not_taken_without_it() -> None:
    pliant.rule(match=recurrence, version="1")(chunks)
    assert "in chunks" in pliant.explain(pliant.compile(smooth))
    DECLARED.clear()
    assert "in chunks" not in pliant.explain(pliant.compile(smooth))
