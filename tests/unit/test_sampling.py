"""Sampled choices: decisions apart from the trace, repaired where they do not fit, drawn from a seeded stream."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from pliant.interp.loop import run_loop
from pliant.loop.structural import assert_same
from pliant.loop.verify import verify
from pliant.schedule import Schedule, Trace
from pliant.support.errors import ScheduleError
from pliant.support.random import Stream
from schedule_kernels import kernel, make_arguments


def sampled(decisions: tuple[object, ...] = (), seed: int = 0) -> Schedule:
    s = Schedule(kernel("matmul"), decisions=decisions, seed=seed)  # type: ignore[arg-type]
    i, j, k = s.loops("c")
    j_0, j_1 = s.split(j, *s.sample_perfect_tile(j, 2))
    i_0, i_1 = s.split(i, *s.sample_tile(i, 2, max_factor=8), tail=s.sample_categorical(("guard", "cut")))
    s.reorder(i_0, j_0, k, i_1, j_1)
    return s


def test_a_choice_is_referred_to_by_the_trace() -> None:
    s = sampled(((5, 8), (6,), 1))
    assert str(s.trace) == (
        'i, j, k = s.loops("c")\n'
        't, t2 = s.sample_perfect_tile(j, 2, max_innermost=64, name="c.tile_j")\n'
        "j, j_1 = s.split(j, t, t2)\n"
        '_, t3 = s.sample_tile(i, 2, max_factor=8, name="c.tile_i")\n'
        't4 = s.sample_categorical(("guard", "cut"), name="matmul.choice")\n'
        "i, i_1 = s.split(i, None, t3, tail=t4)\n"
        "s.reorder(i, j, k, i_1, j_1)"
    )
    assert s.trace.decisions == ((5, 8), (6,), 1)
    names: dict[str, object] = {"s": Schedule(kernel("matmul"), decisions=s.trace.decisions)}
    exec(str(s.trace), names)
    assert_same(names["s"].program, s.program)  # type: ignore[attr-defined]


def test_other_decisions_make_another_schedule() -> None:
    trace = Trace.from_json(sampled(((5, 8), (6,), 1)).trace.to_json())
    assert_same(trace.apply(kernel("matmul")), sampled(((5, 8), (6,), 1)).program)
    other = trace.apply(kernel("matmul"), decisions=((10, 4), (3,), 0))
    assert_same(other, sampled(((10, 4), (3,), 0)).program)
    assert "grid((n + 2) // 3, 10, 12, 3, 4)" in str(other)


def test_without_decisions_the_seed_decides() -> None:
    trace = sampled().trace.undecided()
    assert trace.decisions == ()
    assert_same(trace.apply(kernel("matmul"), seed=3), trace.apply(kernel("matmul"), seed=3))
    texts = {str(trace.apply(kernel("matmul"), seed=n)) for n in range(12)}
    assert len(texts) > 4


@pytest.mark.parametrize("seed", range(8))
def test_sampled_schedules_keep_the_meaning(seed: int) -> None:
    s = sampled(seed=seed)
    verify(s.program)
    tile, (inner,), _ = s.trace.decisions
    assert prod(tile) == 40 and tile[-1] <= 64 and 1 <= inner <= 8
    for n in (0, 1, 7, 13):
        expected = make_arguments(kernel("matmul"), {"n": n})
        found = [a.copy() for a in expected]
        run_loop(kernel("matmul"), expected)
        run_loop(s.program, found)
        np.testing.assert_array_equal(expected[2], found[2])


@pytest.mark.parametrize(
    ("decision", "repaired"), [((5, 8), (5, 8)), ((4, 12), (4, 10)), ((1, 100), (1, 40)), ((7,), (40, 1)), ((3, 0), (40, 1)), (9, (40, 1))]
)
def test_a_stale_decision_is_repaired(decision: object, repaired: tuple[int, ...]) -> None:
    s = Schedule(kernel("matmul"), decisions=(decision,))  # type: ignore[arg-type]
    assert s.sample_perfect_tile(s.loops("c")[1], 2) == repaired
    assert s.trace.decisions == (repaired,)


def test_compute_location() -> None:
    words = []
    for n in range(4):
        s = Schedule(kernel("chain"), decisions=(n,))
        words.append(s.sample_compute_location("t"))
        verify(s.program)
        assert_same(Trace.from_json(s.trace.to_json()).apply(kernel("chain")), s.program)
        expected = make_arguments(kernel("chain"), {"n": 3, "m": 5})
        found = [a.copy() for a in expected]
        run_loop(kernel("chain"), expected)
        run_loop(s.program, found)
        np.testing.assert_array_equal(expected[2], found[2])
    assert words == ["root", "inline", "i", "j"]


def test_probabilities() -> None:
    counts = [0, 0, 0]
    for seed in range(200):
        value = Schedule(kernel("matmul"), seed=seed).sample_categorical((0, 1, 2), probabilities=(0.0, 3.0, 1.0))
        counts[value] += 1
    assert counts[0] == 0 and 120 < counts[1] < 180


def test_refusals_point_at_the_loop() -> None:
    s = Schedule(kernel("matmul"))
    i, _, _ = s.loops("c")
    with pytest.raises(ScheduleError, match="its extent is no positive constant") as caught:
        s.sample_perfect_tile(i, 2)
    assert "^^^" in str(caught.value) and "sample_tile takes any extent" in str(caught.value)
    with pytest.raises(ScheduleError, match="chooses among numbers and texts"):
        s.sample_categorical(())
    with pytest.raises(ScheduleError, match="3 candidates have 2 probabilities"):
        s.sample_categorical((1, 2, 3), probabilities=(0.5, 0.5))
    assert s.trace.decisions == ()


def test_an_attempt_takes_its_choices_back() -> None:
    s = Schedule(kernel("matmul"))
    _, j, _ = s.loops("c")
    with pytest.raises(ScheduleError), s.attempt():
        s.split(j, *s.sample_perfect_tile(j, 2))
        s.vectorize(j)
    assert s.trace.decisions == () and len(s.trace.entries) == 1


def test_streams_are_the_same_everywhere() -> None:
    stream = Stream(7)
    assert [stream.below(1000) for _ in range(4)] == [Stream(7, n).below(1000) for n in range(4)]
    assert Stream(7).fork("a").word() != Stream(7).fork("b").word() != Stream(8).fork("b").word()
    assert sorted({Stream(n).below(5) for n in range(100)}) == [0, 1, 2, 3, 4]
