"""Traces with other decisions: each vector of decisions is a program that means the same, or a refusal that names the entry.

Sketches as a search uses them (tiles in the order SSRSRS with a write-back, a convolution, a softmax whose stages are computed
somewhere, an elementwise program) are replayed with hundreds of random vectors: factors of 1 among them, numbers that fit nowhere, too few.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from counts import FIRST, count
from pliant.loop.stmt import Func
from pliant.loop.structural import assert_same
from pliant.schedule import Schedule, Trace
from pliant.schedule.decisions import DecisionError
from pliant.support.errors import ModelFileError, ScheduleError
from pliant.support.random import Stream
from schedule_invariant import check_schedule, check_text
from schedule_kernels import kernel, parse

MATMUL = parse("""
@kernel
def product(a: Tensor[f32, 12, 8], b: Tensor[f32, 8, 20], c: Out[f32, 12, 20]) -> None:
    for i, j, k in grid(12, 20, 8):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]
""")
CONV = parse("""
@kernel
def conv(x: Tensor[i32, 3, 8, 10], w: Tensor[i32, 6, 3, 3, 3], y: Out[i32, 6, 6, 8]) -> None:
    for o, p, q, c, r, t in grid(6, 6, 8, 3, 3, 3):
        with block("y", "SSSRRR", o, p, q, c, r, t) as (vo, vp, vq, vc, vr, vt):
            with init():
                y[vo, vp, vq] = 0
            y[vo, vp, vq] += x[vc, vp + vr, vq + vt] * w[vo, vc, vr, vt]
""")
SOFTMAX = parse("""
@kernel
def softmax(x: Tensor[f32, 6, 12], out: Out[f32, 6, 12]) -> None:
    top = alloc((6,), f32)
    for i, k in grid(6, 12):
        with block("top", "SR", i, k) as (vi, vk):
            with init():
                top[vi] = -3.0e38
            top[vi] = max(top[vi], x[vi, vk])
    e = alloc((6, 12), f32)
    for i, j in grid(6, 12):
        with block("e", "SS", i, j) as (vi, vj):
            e[vi, vj] = exp(x[vi, vj] - top[vi])
    total = alloc((6,), f32)
    for i, k in grid(6, 12):
        with block("total", "SR", i, k) as (vi, vk):
            with init():
                total[vi] = 0.0
            total[vi] += e[vi, vk]
    for i, j in grid(6, 12):
        with block("out", "SS", i, j) as (vi, vj):
            out[vi, vj] = e[vi, vj] / total[vi]
""")
PAIR = parse("""
@kernel
def pair(x: Tensor[i32, 12, 8], y: Out[i32, 12, 8]) -> None:
    t = alloc((12, 8), i32)
    for i, j in grid(12, 8):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = x[vi, vj] * 3
    for i, j in grid(12, 8):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = t[vi, vj] + 1
""")


def multi_level_tiles(s: Schedule) -> None:
    i, j, k = s.loops("c")
    i0, i1, i2, i3 = s.split(i, *s.sample_perfect_tile(i, 4))
    j0, j1, j2, j3 = s.split(j, *s.sample_perfect_tile(j, 4))
    k0, k1 = s.split(k, *s.sample_perfect_tile(k, 2))
    s.reorder(i0, j0, i1, j1, k0, i2, j2, k1, i3, j3)
    write = s.cache_write("c", j1)
    s.decompose_reduction("c", k0)
    *_, a, b = s.loops(write)
    s.parallel(s.fuse(i0, j0))
    s.vectorize(b)
    s.unroll(a)
    s.vectorize(j3)
    s.unroll(i3)


def tiles_of_a_convolution(s: Schedule) -> None:
    o, p, q, c, r, t = s.loops("y")
    o0, o1 = s.split(o, *s.sample_perfect_tile(o, 2))
    p0, p1 = s.split(p, *s.sample_perfect_tile(p, 2))
    q0, q1 = s.split(q, None, s.sample_categorical((1, 2, 4, 8)))
    c0, c1 = s.split(c, *s.sample_perfect_tile(c, 2))
    s.reorder(o0, p0, q0, c0, c1, r, t, o1, p1, q1)
    s.cache_read("y", "w", c0)
    s.cache_write("y", q0, scope="stack")
    s.decompose_reduction("y", c0)
    s.vectorize(q1)
    s.unroll(s.fuse(r, t))
    s.parallel(s.fuse(o0, p0))


def stages_somewhere(s: Schedule) -> None:
    i, j = s.loops("out")
    i0, i1 = s.split(i, *s.sample_perfect_tile(i, 2))
    j0, j1 = s.split(j, *s.sample_perfect_tile(j, 2))
    for stage in ("total", "e", "top"):
        s.sample_compute_location(stage)
    s.parallel(i0)
    s.vectorize(j1)
    assert i1 and j0


def stages_in_tiles(s: Schedule) -> None:
    i, j = s.loops("y")
    i0, i1 = s.split(i, *s.sample_perfect_tile(i, 2))
    j0, j1 = s.split(j, *s.sample_perfect_tile(j, 2))
    s.reorder(i0, j0, i1, j1)
    s.compute_at("t", j0)
    _, _, rows, columns = s.loops("t")
    s.vectorize(columns)
    s.unroll(rows)
    s.vectorize(j1)
    s.parallel(s.fuse(i0, j0))


def flat(s: Schedule) -> None:
    joined = s.fuse(*s.loops("t"))
    chunk, lane = s.split(joined, *s.sample_tile(joined, 2, max_factor=16), tail=s.sample_categorical(("guard", "cut")))
    s.vectorize(lane)
    s.parallel(chunk)
    s.split(s.loops("y")[0], *s.sample_tile(s.loops("y")[0], 3, max_factor=5), tail=s.sample_categorical(("guard", "cut", "balance")))


def tiles_of_any_rows(s: Schedule) -> None:
    i, j, k = s.loops("c")
    j0, j1 = s.split(j, *s.sample_perfect_tile(j, 2))
    i0, i1 = s.split(i, *s.sample_tile(i, 2, max_factor=8), tail=s.sample_categorical(("guard", "cut", "balance")))
    s.reorder(i0, j0, k, i1, j1)
    s.blockize(i1)


SKETCHES: dict[str, tuple[Func, Callable[[Schedule], None], float]] = {  # the part of the vectors that must be accepted
    "matmul": (MATMUL, multi_level_tiles, 1.0),
    "conv": (CONV, tiles_of_a_convolution, 1.0),
    "softmax": (SOFTMAX, stages_somewhere, 0.5),
    "pair": (PAIR, stages_in_tiles, 1.0),
    "flat": (PAIR, flat, 0.5),
    "rows": (kernel("matmul"), tiles_of_any_rows, 0.3),
}


def sketch(name: str) -> tuple[Func, Trace]:
    """A program and the trace of one schedule of it, read from its text."""
    func, make, _ = SKETCHES[name]
    for seed in range(40):
        s = Schedule(func, seed=seed)
        try:
            make(s)
        except ScheduleError:
            continue
        return func, Trace.from_json(s.trace.to_json())
    raise AssertionError("no schedule of this sketch is accepted")


def vector(trace: Trace, rng: random.Random) -> list[Any]:
    """Decisions of the right kinds: often ones, sometimes far from anything that fits, sometimes not enough of them."""
    numbers = [1, 1, 1, 2, 3, 4, 5, 6, 8, 12, 20, 64, 0, -3, 10**9]
    made: list[Any] = []
    for d in trace.decisions:
        parts = len(d) + rng.choice([0, 0, 0, 0, -1, 1]) if isinstance(d, tuple) else 0
        made.append(tuple(rng.choice(numbers) for _ in range(parts)) if isinstance(d, tuple) else rng.choice([0, 1, 2, 3, 4, 7, -1]))
    return made[: len(made) - rng.choice([0, 0, 0, 1])]


def replayed(func: Func, trace: Trace, decisions: list[Any], seed: int) -> Schedule | str:
    """The schedule that decisions make of a trace, or the refusal, which names an entry."""
    s = Schedule(func, decisions=decisions, seed=seed)
    try:
        trace.replay(s)
    except ScheduleError as error:
        found = re.match(r"entry (\d+) of the trace, (.*): ", error.what)
        assert found, error.what
        assert str(trace.entries[int(found[1]) - 1]) in error.what
        return error.what
    return s


@pytest.mark.parametrize("name", SKETCHES)
def test_other_decisions(name: str) -> None:
    func, trace = sketch(name)
    rng = random.Random(f"{name}{FIRST or ''}")
    made: dict[str, Schedule] = {}
    refused: Counter[str] = Counter()
    total = count(60, 2000)
    for seed in range(total):
        s = replayed(func, trace, vector(trace, rng), seed)
        if isinstance(s, str):
            refused[s] += 1
            continue
        check_text(func, s)
        assert_same(trace.apply(func, decisions=s.trace.decisions), s.program)
        made.setdefault(str(s.program), s)
    accepted = total - sum(refused.values())
    assert accepted >= total * SKETCHES[name][2], refused.most_common(3)
    for s in rng.sample(list(made.values()), min(len(made), count(3, 60))):
        check_schedule(func, s)


@pytest.mark.parametrize("name", SKETCHES)
def test_the_same_decisions(name: str) -> None:
    func, trace = sketch(name)
    first = replayed(func, trace, list(trace.decisions), 0)
    assert not isinstance(first, str)
    assert first.trace == trace
    check_schedule(func, first)


@pytest.mark.parametrize("name", SKETCHES)
def test_decisions_by_name(name: str) -> None:
    """What a search does: take the records of one schedule, draw another value for some of the names, replay."""
    func, trace = sketch(name)
    start, stream = trace.schedule(func), Stream(f"{name}{FIRST or ''}")
    assert [d.domain.encode(d.value) for d in start.decisions] == list(trace.decisions)
    accepted = 0
    for seed in range(count(20, 500)):
        fork = stream.fork(str(seed))
        changed = {d.name: d.domain.draw(fork) for d in start.decisions if fork.below(2)}
        try:
            s = trace.schedule(func, decisions=changed)
        except DecisionError as error:  # an earlier choice has changed the domain of a later one
            assert "cannot be" in error.what
            continue
        except ScheduleError:
            continue
        accepted += 1
        check_text(func, s)
        values = {d.name: d.value for d in s.decisions}
        assert values == {**values, **changed}
        assert_same(trace.undecided().apply(func, decisions=values), s.program)
    assert accepted


@pytest.mark.parametrize("wrong", ["x", None, 2.5, True, [1, "x"], (1, None), {}, (1, (2, 3)), [[1]], b"1", float("nan")])
def test_decisions_of_wrong_types_are_refused_at_their_entry(wrong: Any) -> None:
    func, trace = sketch("matmul")
    given = [trace.decisions[0], wrong]
    with pytest.raises(ScheduleError, match=r"^entry 4 of the trace, .*s\.sample_perfect_tile\(j, 4, .*: .*is no decision"):
        trace.apply(func, decisions=given)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"name": 3}, "3 is no name of a decision"),
        ({"name": "tile"}, "'tile' is no name of a decision"),
        ({"name": "a.b.tile"}, "'a.b.tile' is no name of a decision"),
        ({"name": ["c.tile"]}, "is no name of a decision"),
        ({"reorders": "yes"}, "reorders is True or False, not 'yes'"),
        ({"nothing": 1}, "with other arguments than it takes"),
    ],
)
def test_names_of_untrusted_traces_are_checked(wrong: dict[str, Any], what: str) -> None:
    func, trace = sketch("matmul")
    data = json.loads(trace.to_json())
    data["entries"][1]["kwargs"].update(wrong)
    with pytest.raises(ScheduleError, match=r"^entry 2 of the trace, .*") as caught:
        Trace.from_json(json.dumps(data)).apply(func)
    assert what in caught.value.what


def test_traces_without_names_can_be_read() -> None:
    func, trace = sketch("matmul")
    data = json.loads(trace.to_json())
    data["version"] = 1
    for e in data["entries"]:
        e["kwargs"].pop("name", None)
    old = Trace.from_json(json.dumps(data))
    s = old.schedule(func)
    assert_same(s.program, trace.apply(func))
    assert [d.name for d in s.decisions] == ["c.tile_i", "c.tile_j", "c.tile_k"]


def test_too_many_decisions() -> None:
    func, trace = sketch("matmul")
    with pytest.raises(ScheduleError, match="4 decisions for a trace with 3 choices"):
        trace.apply(func, decisions=[*trace.decisions, 1])


def test_a_split_gives_all_its_loops_whatever_the_factors() -> None:
    """A factor of 1 dropped a loop from the write-back, so that a third of the vectors of this sketch could not be replayed."""
    func, trace = sketch("matmul")
    program = trace.apply(func, decisions=[(12, 1, 1, 1), (20, 1, 1, 1), (8, 1)])
    assert "vector(1)" in str(program) and "unroll(1)" in str(program)
    s = Schedule(func)
    assert len(s.split(s.loops("c")[0], 12, 1, 1)) == 3
    assert str(s.loops("c")) == "(<loop i>, <loop i_1>, <loop i_2>, <loop j>, <loop k>)"


def mutated(rng: random.Random, value: Any) -> Any:
    """A JSON value with one thing in it changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: mutated(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        n = rng.randrange(len(value))
        if rng.random() < 0.25:
            return [*value[:n], *value[n + 1 :]] if rng.random() < 0.5 else [*value[:n], value[n], *value[n:]]
        return [*value[:n], mutated(rng, value[n]), *value[n + 1 :]]
    others = [0, -1, 7, 10**30, 1.5, "", "c", "loops", "attempt", "func", None, True, [], {}, [1, [2]], {"handle": 1, "name": "j"}]
    return rng.choice(others)


@pytest.mark.parametrize("name", SKETCHES)
def test_a_trace_with_something_changed_is_refused_or_right(name: str) -> None:
    func, trace = sketch(name)
    text, rng = trace.to_json(), random.Random(f"{name}{FIRST or ''}")
    for _ in range(count(60, 3000)):
        changed = json.loads(text)
        for _ in range(rng.choice([1, 1, 2])):
            changed = mutated(rng, changed)
        try:
            other = Trace.from_json(json.dumps(changed))
            s = Schedule(func, decisions=other.decisions)
            other.replay(s)
        except ModelFileError as error:
            assert error.what
        except ScheduleError as error:
            assert re.match(r"entry \d+ of the trace, |\d+ decisions for", error.what), error.what
        else:
            check_text(func, s)
