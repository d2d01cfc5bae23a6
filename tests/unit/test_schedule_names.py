"""The names of loops and blocks that primitives make: short, distinct in a nest, and the same when a trace is replayed."""

from __future__ import annotations

from pliant.loop.analysis.nests import blocks, loops_above
from pliant.loop.printer import print_func
from pliant.loop.stmt import For, Func, walk_stmts
from pliant.schedule import Schedule, Trace
from schedule_kernels import kernel


def loop_names(func: Func, block: str) -> list[str]:
    """Return the names of the loops around a block, outermost first."""
    return [x.var.name for x in loops_above(func, next(b for b in blocks(func.body) if b.name == block))]


def test_the_first_split_numbers_from_zero_and_later_ones_go_on() -> None:
    s = Schedule(kernel("matmul"))
    _, j, _ = s.loops("c")
    j_0, j_1 = s.split(j, 20)
    assert loop_names(s.program, "c") == ["i", "j_0", "j_1", "k"]
    s.split(j_1, 5)
    assert loop_names(s.program, "c") == ["i", "j_0", "j_2", "j_3", "k"]
    s.split(j_0, 1)  # j_1 is free again, but j_2 and j_3 stand inside
    assert loop_names(s.program, "c") == ["i", "j_4", "j_5", "j_2", "j_3", "k"]


def test_tails_of_parts_and_of_tails_have_distinct_short_names() -> None:
    s = Schedule(kernel("matmul"))
    i, _, _ = s.loops("c")
    _, i_1 = s.split(i, 7, tail="cut")
    s.split(i_1, 4, tail="cut")
    s.split(s.loops("c_rest")[0], 2, tail="cut")  # the tail of the first split
    for b in blocks(s.program.body):
        names = loop_names(s.program, b.name)
        assert len(set(names)) == len(names), (b.name, names)
    assert [b.name for b in blocks(s.program.body)] == ["c", "c_rest2", "c_rest", "c_rest3"]
    names = {x.var.name for x in walk_stmts(s.program.body) if isinstance(x, For)}
    assert {"i_2", "i_3", "i_r", "i_r_0", "i_r2"} <= names
    assert max(map(len, names)) <= len("i_r_0")


def test_partial_sums_of_partial_sums_are_numbered() -> None:
    s = Schedule(kernel("rms_norm"))
    i, k = s.loops("ss")
    _, lane = s.split(k, 8)
    s.rfactor("ss", lane, i)
    _, lane = s.split(s.loops("ss_sum")[1], 4)
    s.rfactor("ss_sum", lane, i)
    _, lane = s.split(s.loops("ss_sum2")[1], 2)
    s.rfactor("ss_sum2", lane, i)
    assert [b.name for b in blocks(s.program.body)] == ["ss", "ss_sum", "ss_sum2", "ss_sum3", "out"]
    assert loop_names(s.program, "ss_sum2") == ["i", "k_4", "k_5"]
    replayed = Trace.from_json(s.trace.to_json()).apply(kernel("rms_norm"))
    assert print_func(replayed) == print_func(s.program)
