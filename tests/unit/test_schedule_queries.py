"""Questions to a schedule about its blocks, copies of schedules, and the choices of tiles with a constraint."""

from __future__ import annotations

from math import prod

import pytest

from pliant.loop.structural import assert_same
from pliant.schedule import Schedule, Trace
from pliant.support.errors import ScheduleError
from schedule_invariant import check_schedule
from schedule_kernels import kernel


def names(handles: tuple[object, ...]) -> list[str]:
    return [h.block.name for h in handles]  # type: ignore[attr-defined]


def test_who_feeds_whom() -> None:
    s = Schedule(kernel("softmax"))
    assert names(s.child_blocks()) == ["top", "e", "total", "out"]
    assert names(s.producers("e")) == ["top"] and names(s.producers("top")) == []
    assert names(s.consumers("e")) == ["total", "out"] and names(s.producers("out")) == ["e", "total"]
    assert names(s.output_blocks()) == ["out"] and names(s.consumers("out")) == []


def test_an_init_apart_is_a_producer() -> None:
    s = Schedule(kernel("matmul"))
    assert names(s.producers("c")) == []
    s.decompose_reduction("c", s.loop("c", "vk"))
    assert names(s.producers("c")) == ["c_init"] and names(s.consumers("c_init")) == ["c"]
    assert names(s.output_blocks()) == ["c_init", "c"]


def test_blocks_inside_of_blocks() -> None:
    s = Schedule(kernel("matmul"))
    i, j, _k = s.loops("c")
    assert names(s.child_blocks(i)) == ["c"] and s.child_blocks("c") == ()
    outer = s.blockize(j)
    assert names(s.child_blocks(i)) == ["c_o"] and names(s.child_blocks(outer)) == ["c"]


def test_queries_are_entries_of_the_trace() -> None:
    s = Schedule(kernel("chain"))
    (t,) = s.producers("u")
    (out,) = s.output_blocks()
    s.compute_at(t, s.loop("u", "vi"))
    s.annotate(out, "hint", 1)
    assert 't, = s.producers("u")' in str(s.trace) and "out, = s.output_blocks()" in str(s.trace)
    check_schedule(kernel("chain"), s)


def test_a_copy_goes_its_own_way() -> None:
    s = Schedule(kernel("matmul"))
    i, j, k = s.loops("c")
    a, b = s.sample_perfect_tile(j, 2)
    other = s.copy()
    s.split(j, a, b)
    before = s.program
    other.reorder(k, i)  # handles of before are known to both
    other.contract("c")
    other.split(j, a, b)
    assert s.program is before and str(s.program) != str(other.program)
    assert str(other.trace).splitlines()[:2] == str(s.trace).splitlines()[:2]
    check_schedule(kernel("matmul"), other)
    check_schedule(kernel("matmul"), s)
    assert s.rounding == [] and len(other.rounding) == 1


def test_what_one_made_later_is_unknown_to_the_other() -> None:
    s = Schedule(kernel("matmul"))
    other = s.copy()
    i, j, _k = s.loops("c")
    with pytest.raises(ScheduleError, match="`i` belongs to another schedule"):
        other.unroll(i)
    factors = s.sample_perfect_tile(j, 2)
    columns = other.loop("c", "vj")
    other.split(columns, *factors)  # numbers like others there
    assert str(factors[0]) in str(other.trace) and other.trace.decisions == ()
    check_schedule(kernel("matmul"), other)


def test_copies_of_copies_draw_the_same_choices() -> None:
    s = Schedule(kernel("panels"), seed=7)
    j = s.loop("c", "vj")
    first, second = s.copy(), s.copy().copy()
    assert first.sample_tile(j, 3) == second.sample_tile(j, 3)


@pytest.mark.parametrize("seed", range(30))
def test_partitioned_tiles(seed: int) -> None:
    s = Schedule(kernel("panels"), seed=seed)  # 96 columns
    position = seed % 3
    factors = s.sample_partitioned_tile(s.loop("c", "vj"), 3, position, 8, max_innermost=16)
    assert prod(factors) == 96 and prod(factors[position:]) % 8 == 0 and factors[-1] <= 16
    s.split(s.loop("c", "vj"), *factors)
    trace = Trace.from_json(s.trace.to_json())
    assert_same(trace.apply(kernel("panels")), s.program)
    for decision in [(96, 1, 1), (5,), (1, 1, 96), (4, 3, 8), 7]:
        again = Schedule(kernel("panels"), decisions=[decision])
        found = again.sample_partitioned_tile(again.loop("c", "vj"), 3, position, 8, max_innermost=16)
        assert prod(found) == 96 and prod(found[position:]) % 8 == 0 and found[-1] <= 16
        assert decision != (4, 3, 8) or found == decision


def test_partitioned_tiles_that_cannot_be() -> None:
    s = Schedule(kernel("matmul"))
    i, j, _k = s.loops("c")
    with pytest.raises(ScheduleError, match="a multiple of 16: that does not divide its extent"):
        s.sample_partitioned_tile(j, 2, 1, 16)
    with pytest.raises(ScheduleError, match="its extent is no positive constant"):
        s.sample_partitioned_tile(i, 2, 1, 4)
    with pytest.raises(ScheduleError, match="there is no part 2 of 2"):
        s.sample_partitioned_tile(j, 2, 2, 4)
    with pytest.raises(ScheduleError, match="not of 0"):
        s.sample_partitioned_tile(j, 2, 1, 0)


@pytest.mark.parametrize(
    ("name", "block", "iterator", "lengths"),
    [
        ("matmul", "c", "vi", (2, None, 2)),
        ("matmul", "c", "vk", (1, None, 3)),
        ("matmul", "c", "vk", (4, 8)),
        ("scan", "out", "vj", (None, 2)),
        ("conv", "out", "vr", (1, 1, 1)),
    ],
)
def test_pieces_of_loops(name: str, block: str, iterator: str, lengths: tuple[int | None, ...]) -> None:
    s = Schedule(kernel(name))
    pieces = s.loop_partition(s.loop(block, iterator), *lengths)
    assert len(pieces) == len(lengths)
    check_schedule(kernel(name), s)
    assert s.rounding == []
