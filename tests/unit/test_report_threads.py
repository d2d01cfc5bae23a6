"""The timeline of a report: what each thread did, from the chunks of parallel loops, and how it is drawn."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from test_report import check

import pliant
from pliant import Out, Tensor, dim, f32, function, kernel, parallel
from pliant.report import facts, timeline
from pliant.report.facts import Facts, facts_of
from pliant.report.profile import Limits
from pliant.report.threads import Span, ThreadTimes, _LoopWatch, record_threads, spans_of
from pliant.runtime.ctx import Body, ParallelFor

n = dim("n", max=4096)


@kernel(scheduled=True)
def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in parallel(n, grain=16):
        y[i] = x[i] * 2.0


@kernel
def total(y: Tensor[f32, n], s: Out[f32, 1]) -> None:
    s[0] = 0.0
    for i in range(n):
        s[0] = s[0] + y[i]


@function
def two_kernels(x: Tensor[f32, n]) -> Tensor[f32, 1]:
    return total(double(x))


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    yield pliant.compile(two_kernels, threads=2)


def test_chunks_become_spans() -> None:
    """The first launch had two chunks on thread 7, 10 and 5 ns long, and one on thread 9, 20 ns; the second one had no parallel loop."""
    chunks = [(0, 7, 105, 115), (0, 9, 110, 130), (0, 7, 120, 125)]
    assert spans_of([(2, 35), (40, 50)], chunks, 100, 7) == [
        Span(0, 0, 5, 20, 15, 2),
        Span(1, 0, 10, 20, 20, 1),
        Span(0, 1, 40, 10, 10, 0),
    ]


def test_every_chunk_of_a_run_is_seen(program: Any) -> None:
    x = np.arange(100, dtype=np.float32)
    times = record_threads(program, [x])
    first = [s for s in times.spans if s.launch == 0]
    assert times.kernels == ("double", "total") and sum(s.chunks for s in first) == 7, "100 elements in chunks of 16"
    assert all(s.begin >= 0 and s.begin + s.duration <= times.wall and 0 < s.busy <= s.duration for s in times.spans)
    assert [s.chunks for s in times.spans if s.launch == 1] == [0]
    assert program(x) == x.sum() * 2


def test_loops_inside_of_a_chunk_are_part_of_it() -> None:
    """A `parallel_for` in Python, whose body calls the watched one again, as a nested loop does."""
    chunks: list[tuple[int, int, int, int]] = []

    @ParallelFor  # type: ignore[untyped-decorator]
    def in_order(ctx: int, body: int, env: int, extent: int, grain: int) -> int:
        return next((code for b in range(0, extent, grain) if (code := Body(body)(ctx, env, b, min(b + grain, extent)))), 0)

    ranges = []

    @Body  # type: ignore[untyped-decorator]
    def inner(ctx: int, env: int, begin: int, end: int) -> int:
        ranges.append((begin, end))
        return 0

    @Body  # type: ignore[untyped-decorator]
    def outer(ctx: int, env: int, begin: int, end: int) -> int:
        return int(watched(ctx, ctypes.cast(inner, ctypes.c_void_p), env, 3, 2) or (5 if begin else 0))

    watched = ParallelFor(_LoopWatch(chunks, lambda: 4)(ctypes.cast(in_order, ctypes.c_void_p).value or 0))
    assert watched(None, ctypes.cast(outer, ctypes.c_void_p), None, 2, 1) == 5, "the code of the body is passed on"
    assert [(launch, thread) for launch, thread, _, _ in chunks] == [(4, threading.get_ident())] * 2
    assert ranges == [(0, 2), (2, 3)] * 2


@pytest.fixture
def profiled(program: Any, monkeypatch: pytest.MonkeyPatch) -> Facts:
    monkeypatch.setattr(facts, "limits", lambda threads: Limits(1e11, 1e9))
    program.profile(np.ones(100, np.float32), runs=1)
    return facts_of(program, program._provenance)


def test_a_profile_on_several_threads_has_their_times(profiled: Facts) -> None:
    assert profiled.profile is not None and profiled.profile.by_thread is not None
    picture = str(timeline.timeline(profiled))
    check(picture)
    assert "in which each chunk of a parallel loop is watched" in picture and "thread 0: " in picture
    alone = dataclasses.replace(profiled, profile=dataclasses.replace(profiled.profile, by_thread=None))
    assert "What each thread did is not known" in timeline.timeline(alone) and timeline.timeline(alone).count("<title>") == 2


def test_the_boxes_of_a_timeline(profiled: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1,000 ns, which are 880 units wide: launch 0 from 250 to 500 on thread 1, launch 1 from 500 on, on thread 0."""
    assert profiled.profile is not None
    spans = (Span(1, 0, 250, 250, 200, 3), Span(0, 1, 500, 500, 500, 0))
    made = dataclasses.replace(profiled.profile, by_thread=ThreadTimes(1000, ("double", "total"), spans))
    picture = str(timeline.timeline(dataclasses.replace(profiled, profile=made)))
    boxes = re.findall(r'<rect x="([\d.]+)" y="(\d+)" width="([\d.]+)"', picture)
    assert boxes == [("560.00", "5", "440.00"), ("340.00", "39", "220.00")], "the longest first"
    assert "thread 1: 20%" in picture and "thread 0: 50%" in picture and "250 ns from 250 ns, 3 chunks in 200 ns" in picture
    monkeypatch.setattr(timeline, "MOST_ROWS", 1)
    assert "1 shorter box is not drawn" in timeline.timeline(dataclasses.replace(profiled, profile=made))
