"""Profiles: every launch with its layers and cost, as a table and as a trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, State, Tensor, dim, f32, function, kernel, nn, ops
from pliant.report import profile as module
from pliant.report.profile import Launch, Limits, Profile
from pliant.report.threads import Span, ThreadTimes

n = dim("n", max=4096)
rng = np.random.default_rng(1)


class Block(nn.Module):
    def __init__(self) -> None:
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.down(ops.exp(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        self.blocks = nn.ModuleList([Block(), Block()])
        self.load_state_dict({name: rng.standard_normal(p.shape) for name, p in self.named_parameters()})

    def forward(self, x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def taken() -> Profile:
    f = pliant.compile(Model(), threads=2)
    return f.profile(np.ones((5, 8), np.float32), runs=2)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "limits", lambda threads: Limits(1e11, 1e10))


def test_launches_know_their_layers(taken: Profile) -> None:
    layers = [x.layers for x in taken.launches]
    assert len({layer for found in layers for layer in found}) >= 4
    assert {"blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"} <= {layer for found in layers for layer in found}
    assert taken.dims == {"n": 5} and taken.threads == 2 and taken.runs == 2


def test_times_are_in_order_and_inside_of_the_run(taken: Profile) -> None:
    ends = [x.begin + x.duration for x in taken.launches]
    assert all(x.duration > 0 for x in taken.launches) and ends[-1] <= taken.wall and 0 < taken.in_kernels <= taken.wall
    assert all(end <= x.begin for end, x in zip(ends, taken.launches[1:], strict=False))


def test_operations_are_those_of_the_products(taken: Profile) -> None:
    """Four products of 5 x 8 x 16, each with a bias, and ten times 16 exponentials."""
    products = 4 * (2 * 5 * 8 * 16) + 2 * 5 * (16 + 8)
    assert products < sum(x.operations or 0 for x in taken.launches) < products + 2 * 5 * 16 * 60


def test_a_result_does_not_depend_on_being_profiled() -> None:
    f = pliant.compile(Model())
    x = rng.standard_normal((3, 8)).astype(np.float32)
    before = f(x)
    f.profile(x)
    assert np.array_equal(f(x), before)


def test_state_is_updated_once() -> None:
    @kernel
    def add(by: Tensor[f32, n], total: InOut[f32, n]) -> None:
        for i in range(n):
            total[i] = total[i] + by[i]

    @function
    def step(total: State[f32, n], by: Tensor[f32, n]) -> State[f32, n]:
        return add(by, total)

    total = np.zeros(4, np.float32)
    assert pliant.compile(step).profile(by=np.ones(4, np.float32), total=total).runs == 1
    assert total.tolist() == [1] * 4


def test_a_program_without_state_runs_once_more(taken: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    f = pliant.compile(Model())
    record = module.record_run
    monkeypatch.setattr(module, "record_run", lambda *args: (seen.append(1), record(*args))[1])
    assert f.profile(np.ones((5, 8), np.float32), runs=2).runs == 2 and len(seen) == 3


def test_a_loaded_program_is_profiled_as_well(tmp_path: Path, taken: Profile) -> None:
    pliant.compile(Model()).save(tmp_path / "m.pliant")
    loaded = pliant.load(tmp_path / "m.pliant").profile(np.ones((5, 8), np.float32))
    assert [(x.kernel, x.layers, x.operations) for x in loaded.launches] == [(x.kernel, x.layers, x.operations) for x in taken.launches]


MADE = Profile(
    "net",
    {"n": 2},
    1,
    3,
    10_000,
    (
        Launch("linear", ("a.b.c",), 1_000, 2_000, 20_000, 4_000),
        Launch("linear", ("a.b.d",), 3_000, 1_000, 10_000, 1_000),
        Launch("copy", (), 5_000, 4_000),
    ),
)


def test_the_table() -> None:
    """20,000 operations at 1e11 a second are 200 ns, 4,000 bytes at 1e10 are 400 ns: these bind; of 3,000 ns they are a sixth."""
    assert str(MADE).splitlines() == [
        "net (n = 2): 0.010 ms with 1 thread",
        "kernel           calls     ms  share  operations     memory  of limit",
        "copy                 1  0.004  40.0%",
        "linear               2  0.003  30.0%  10 GFLOP/s  1.67 GB/s       17%",
        "between kernels         0.003  30.0%",
        "limits: 100 GFLOP/s, 10 GB/s",
    ]


def test_the_share_of_the_limit() -> None:
    assert MADE.launches[0].of_limit(Limits(1e11, 1e10)) == pytest.approx(0.2)
    assert MADE.launches[2].of_limit(Limits(1e11, 1e10)) is None


def test_the_time_above_the_limit() -> None:
    """The memory of the first launch takes 400 of its 2,000 ns; a launch that is faster than the limit has none above it."""
    assert MADE.launches[0].above_limit(Limits(1e11, 1e10)) == 1_600 and MADE.launches[0].above_limit(Limits(1e9, 1e10)) == 0
    assert MADE.launches[2].above_limit(Limits(1e11, 1e10)) is None


def test_every_run_is_a_sample(taken: Profile) -> None:
    assert len(taken.walls) == 2 and min(taken.walls) == taken.wall
    assert all(len(x.samples) == 2 and x.samples[0] == x.duration for x in taken.launches)
    assert "the fastest of 2 runs (median " in str(taken)


def test_the_trace(tmp_path: Path) -> None:
    MADE.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    shown = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert shown == [
        ("a", 1, 1.0, 3.0),
        ("a.b", 1, 1.0, 3.0),
        ("a.b.c", 1, 1.0, 2.0),
        ("a.b.d", 1, 3.0, 1.0),
        ("linear", 2, 1.0, 2.0),
        ("linear", 2, 3.0, 1.0),
        ("copy", 2, 5.0, 4.0),
    ]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"net (n = 2)", "layers", "kernels"}


def test_threads_in_the_trace(tmp_path: Path) -> None:
    """They are another process, because they come from another run."""
    spans = (Span(0, 0, 1_000, 500, 400, 2), Span(1, 0, 1_200, 300, 300, 1))
    replace(MADE, by_thread=ThreadTimes(5_000, ("linear",), spans)).save(tmp_path / "trace.json")
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["pid"] == 2 and e["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"], e["args"]["chunks"]) for e in events] == [
        ("linear", 0, 1.0, 0.5, 2),
        ("linear", 1, 1.2, 0.3, 1),
    ]


def test_spans_of_paths_with_slashes() -> None:
    spans = module._layer_spans([Launch("k", ("/a/b.0/Add",), 1, 2), Launch("k", ("/a/c",), 4, 1)])
    assert spans == [("/a", 1, 4), ("/a/b", 1, 2), ("/a/b.0", 1, 2), ("/a/b.0/Add", 1, 2), ("/a/c", 4, 1)]
