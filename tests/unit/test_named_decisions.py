"""Decisions of schedules by name: what sampling primitives write is the record that rules write, and is asked for the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, block, dim, f32, grid, init, kernel, select
from pliant.loop.structural import assert_same
from pliant.schedule import Schedule, Trace
from pliant.schedule.decisions import Decision, Drawn
from pliant.schedule.library import default_family
from pliant.support.errors import ScheduleError
from pliant.support.random import Stream
from pliant.target import target
from schedule_kernels import kernel as program

n = dim("n")


def tiled(**named: Any) -> Schedule:
    s = Schedule(program("matmul"), **named)
    i, j, k = s.loops("c")
    j_0, j_1 = s.split(j, *s.sample_perfect_tile(j, 2))
    i_0, i_1 = s.split(i, *s.sample_tile(i, 2, max_factor=8), tail=s.sample_categorical(("guard", "cut"), name="c.tail"))
    s.reorder(i_0, j_0, k, i_1, j_1)
    return s


def test_a_choice_is_a_record_with_a_name_and_a_domain() -> None:
    s = tiled(seed=4)
    tile, rows, tail = s.decisions
    assert all(isinstance(d, Decision) for d in s.decisions)
    assert [d.name for d in s.decisions] == ["c.tile_j", "c.tile_i", "c.tail"]
    assert set(tile.domain) == {(1, 40), (2, 20), (4, 10), (5, 8), (8, 5), (10, 4), (20, 2), (40, 1)}
    assert rows.domain.size == 8 and list(tail.domain) == ["guard", "cut"]
    assert all(d.value == d.default and not d.reorders and d.kind == "schedule" for d in s.decisions)


def test_values_are_taken_by_name() -> None:
    s = tiled(decisions={"c.tile_j": (5, 8), "matmul.c.tail": "cut"}, seed=4)
    assert {d.name: d.value for d in s.decisions if d.name != "c.tile_i"} == {"c.tile_j": (5, 8), "c.tail": "cut"}
    assert s.decisions[1].value == tiled(seed=4).decisions[1].value  # drawn from the seed as without names
    assert s.decisions[0].default == tiled(seed=4).decisions[0].value and s.decisions[0].asked_as == "c.tile_j"
    again = tiled(decisions={d.name: d.value for d in s.decisions})
    assert_same(again.program, s.program)
    assert again.func and s.func


def test_one_decision_of_a_trace_is_changed_by_name() -> None:
    trace = Trace.from_json(tiled(decisions=((5, 8), (6,), 1)).trace.to_json())
    changed = trace.apply(program("matmul"), decisions={"c.tail": "guard"})
    assert_same(changed, tiled(decisions=((5, 8), (6,), 0)).program)
    assert_same(trace.apply(program("matmul"), decisions={}), trace.apply(program("matmul")))
    s = trace.schedule(program("matmul"), decisions={"c.tile_j": [10, 4]})  # as JSON has tuples
    assert s.trace.decisions == ((10, 4), (6,), 1)


@pytest.mark.parametrize(
    ("decisions", "what", "more"),
    [
        ({"c.tile_j": (5, 9)}, "decision `c.tile_j` cannot be 5x9 in `matmul`", "it may be 40x1, 20x2"),
        ({"c.tile_j": 8}, "decision `c.tile_j` cannot be 8", "it may be 40x1, 20x2"),
        ({"c.tile_i": (9,)}, "decision `c.tile_i` cannot be 9", "it may be 1, 2, 3"),
        ({"c.tail": "balance"}, "decision `c.tail` cannot be balance", "it may be guard, cut"),
        ({"c.tail": True}, "decision `c.tail` cannot be True", "it may be guard, cut"),
        ({"c.tile": (5, 8)}, "no choice of this schedule makes a decision `c.tile`", "did you mean `c.tile_"),
        ({"x": 1}, "no choice of this schedule makes a decision `x`", "s.decisions lists those that it has made"),
        ({"other.matmul.c.tail": "cut"}, "no choice of this schedule makes a decision `other.matmul.c.tail`", "`matmul.c.tail`"),
        ({3: 1}, "the name of a decision is a text, not 3", "<block>.<what>"),
        ({"c.tail": 1.5}, "decision `c.tail` cannot be 1.5", "whole number"),
    ],
)
def test_names_and_values_that_are_none_are_refused(decisions: dict[str, Any], what: str, more: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        tiled(decisions=decisions).func  # noqa: B018
    assert what in caught.value.what and more in str(caught.value)
    with pytest.raises(ScheduleError) as caught:
        tiled(seed=1).trace.apply(program("matmul"), decisions=decisions)
    assert what in caught.value.what


def test_a_refused_value_leaves_the_schedule_as_it_was() -> None:
    s = Schedule(program("matmul"), decisions={"c.tile_j": (3, 3)})
    _, j, _ = s.loops("c")
    for _ in range(2):
        with pytest.raises(ScheduleError, match="cannot be 3x3") as caught:
            s.sample_perfect_tile(j, 2)
        assert "test_named_decisions.py" in str(caught.value)
    assert s.decisions == () and len(s.trace.entries) == 1


def test_names_are_unique() -> None:
    s = Schedule(program("matmul"))
    _, j, _ = s.loops("c")
    for _ in range(3):
        s.sample_perfect_tile(j, 2)
        s.sample_categorical((1, 2))
    s.sample_tile(j, 2, name="c.tile_j")
    names = ["c.tile_j", "matmul.choice", "c.tile_j2", "matmul.choice2", "c.tile_j3", "matmul.choice3", "c.tile_j4"]
    assert [d.name for d in s.decisions] == names
    with pytest.raises(ScheduleError, match="'tile' is no name of a decision"):
        s.sample_tile(j, 2, name="tile")


def test_locations_are_words() -> None:
    s = Schedule(program("chain"), decisions={"t.location": "j"})
    assert s.sample_compute_location("t") == "j"
    assert list(s.decisions[0].domain) == ["root", "inline", "i", "j"] and s.trace.decisions == (3,)


def test_attempts_and_copies() -> None:
    s = Schedule(program("matmul"), decisions={"c.tile_j": (5, 8), "c.tile_j2": (10, 4)})
    _, j, _ = s.loops("c")
    with pytest.raises(ScheduleError), s.attempt():
        s.sample_perfect_tile(j, 2)
        s.vectorize(s.loops("c")[0])
        s.split(j, 7, tail="none")
    assert s.decisions == ()
    assert s.sample_perfect_tile(j, 2) == (5, 8)
    other = s.copy()
    assert other.sample_perfect_tile(j, 2) == (10, 4) and len(s.decisions) == 1
    assert other.func
    with pytest.raises(ScheduleError, match=r"no choice of this schedule makes a decision `c\.tile_j2`"):
        s.func  # noqa: B018


@kernel
def dot(a: Tensor[f32, 6, 48], b: Tensor[f32, 48, 8], c: Out[f32, 6, 8]) -> None:
    for i, j, k in grid(6, 8, 48):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


def test_choices_that_reorder_a_sum_say_so() -> None:
    s = Schedule(dot)
    i, j, k = s.loops("c")
    i_0, i_1 = s.split(i, *s.sample_perfect_tile(i, 2))
    k_0, k_1 = s.split(k, *s.sample_perfect_tile(k, 2))
    s.reorder(i_0, j, k_0, i_1, k_1)  # terms of each sum are added in the same order
    s.contract("c")  # other bits, whatever was chosen
    assert [d.reorders for d in s.decisions] == [False, False]
    parts = s.copy()
    parts.sum_in_parts("c", k_0)
    assert [d.reorders for d in parts.decisions] == [False, True]
    assert [d.reorders for d in s.decisions] == [False, False]
    s.rfactor("c", k_1)
    assert [d.reorders for d in s.decisions] == [False, True]


def test_a_choice_that_the_caller_knows_to_reorder() -> None:
    s = Schedule(dot)
    _, _, k = s.loops("c")
    parts = s.sample_categorical((2, 4), name="c.parts", reorders=True)
    if parts == 2:
        s.rfactor("c", s.split(k, None, 2)[1])
    assert s.decisions[0].reorders
    again = Trace.from_json(s.trace.to_json()).schedule(dot)
    assert again.decisions[0].reorders


def ordered(func: Any, block: Any, target: Any) -> Any:
    kinds = "".join(i.kind for i in block.iters)
    return block.iters[0].var.name if kinds == "SO" else pliant.Refusal("it is no recurrence")


@kernel
def smooth(x: Tensor[f32, 50, 96], y: Out[f32, 50, 96]) -> None:
    for j, t in grid(96, 50):
        with block("y", "SO", j, t) as (vj, vt):
            y[vt, vj] = select(vt == 0, x[vt, vj], y[vt - 1, vj] * 0.9 + x[vt, vj] * 0.1)


@pytest.fixture
def sampling_rule() -> Iterator[None]:
    @pliant.rule(match=ordered, before="convolutions", version="1")
    def sampled_recurrence(s: Schedule, columns: str, decide: Any) -> str:
        loop = s.loop(decide.block, columns)
        chunk, lane = s.split(loop, *s.sample_perfect_tile(loop, 2, max_innermost=32, name=f"{decide.block}.columns"))
        s.reorder(chunk, *s.loops(decide.block, "vt"), lane)
        s.vectorize(lane)
        decide("share", domain=("threads", "none"), default="none")
        return "recurrence by columns"

    yield
    pliant.unregister_rule(sampled_recurrence)


@pytest.mark.usefixtures("sampling_rule")
def test_what_a_rule_samples_is_a_decision_like_those_it_asks_for() -> None:
    x = np.random.default_rng(1).standard_normal((50, 96)).astype(np.float32)
    f = pliant.compile(smooth, decisions={"y.columns": (12, 8), "y.share": "threads"})
    text = pliant.explain(f)
    assert "  y.columns = 12x8, of 96x1, 48x2, 32x3, 24x4, 16x6, 12x8, 8x12, 6x16, 4x24, 3x32\n" in text
    assert "  y.share = threads, of threads, none" in text
    assert f(x).tobytes() == pliant.compile(smooth)(x).tobytes()
    with pytest.raises(ScheduleError, match=r"decision `y\.columns` cannot be 5x5 in `smooth`"):
        pliant.compile(smooth, decisions={"y.columns": (5, 5)})
    with pytest.raises(ScheduleError, match=r"no rule makes a decision `y\.column`"):
        pliant.compile(smooth, decisions={"y.column": (12, 8)})


@pytest.mark.usefixtures("sampling_rule")
def test_what_a_rule_samples_can_be_drawn_and_asked_for_again() -> None:
    machine = target("llvm:x86-64-v3")
    texts = set()
    for seed in range(6):
        drawn = Drawn("smooth", Stream(seed))
        family = default_family(smooth.func, machine, drawn)
        assert set(drawn.vector()) == {"y.columns", "y.share"}
        asked = pliant.schedule.decisions.Decisions(drawn.vector()).of_kernel("smooth")
        assert_same(default_family(smooth.func, machine, asked).program(), family.program())
        texts.add(str(family.program()))
    assert len(texts) > 1
