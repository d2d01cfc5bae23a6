"""The graph in the report: which launch reads which, groups of a large program, and the picture."""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import Any

import numpy as np
import pytest
from test_report import check

import pliant
from pliant import Tensor, dim, f32, nn, ops
from pliant.report import graph
from pliant.report.facts import Facts, facts_of
from pliant.report.graph import Group, groups_of, sources_of_launches
from pliant.report.graph_picture import BOX, GAP, _places, _rows, graph_picture
from pliant.report.profile import Launch, Limits

n = dim("n", max=64)
rng = np.random.default_rng(1)


class Block(nn.Module):
    def __init__(self) -> None:
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return ops.softmax(self.down(ops.softmax(self.up(x)))) + x


class Residual(nn.Module):
    def __init__(self) -> None:
        self.blocks = nn.ModuleList([Block(), Block()])
        self.load_state_dict({name: rng.standard_normal(p.shape) for name, p in self.named_parameters()})

    def forward(self, x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture(scope="module")
def facts() -> Facts:
    f = pliant.compile(Residual())
    return facts_of(f, f._provenance)


def test_launches_read_what_they_need(facts: Facts) -> None:
    """In each block a launch reads the one before it; the second block also reads the result of the first one at its end."""
    names = [s.name for s in facts.steps]
    half = len(names) // 2
    assert names[:half] == names[half:] and names[0] == "linear" and half in (4, 5)
    reads = sources_of_launches(facts)
    assert reads[0] == set() and all(i - 1 in reads[i] for i in range(1, len(names)))
    end_of_first, end = half - 1, len(names) - 1
    assert reads[end] == {end - 1, end_of_first} and all(reads[i] == {i - 1} for i in range(1, end))


def test_groups_are_launches_or_parts_of_layers(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    single = groups_of(facts)
    assert [g.launches for g in single] == [[i] for i in range(len(facts.steps))]
    assert [set(g.sources) for g in single] == sources_of_launches(facts)
    monkeypatch.setattr(graph, "MOST_GROUPS", 2)
    half = len(facts.steps) // 2
    assert groups_of(facts) == [
        Group(list(range(half)), "blocks.0", []),
        Group(list(range(half, 2 * half)), "blocks.1", [0]),
    ]


def test_launches_without_layers_that_are_too_many(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_GROUPS", 3)
    flat = [dataclasses.replace(s, node=s.node and s.node.with_(origin=(f"l{i}",))) for i, s in enumerate(facts.steps)]
    groups = groups_of(dataclasses.replace(facts, steps=flat))
    assert [len(g.launches) for g in groups] == [1, 1, len(flat) - 2]


def test_boxes_lie_below_what_they_read() -> None:
    """A diamond, and an edge from its top to its end that passes through two rows."""
    boxes, edges = _places([Group([0], "", []), Group([1], "", [0]), Group([2], "", [0]), Group([3], "", [1, 2]), Group([4], "", [0, 3])])
    assert [b.row for b in boxes] == [0, 1, 1, 2, 3] and [len(e) for e in edges] == [2, 2, 2, 2, 4, 2]
    rows = _rows([*boxes, *(p for e in edges for p in e[1:-1])])
    assert [len(row) for row in rows] == [1, 3, 2, 1]
    for row in rows:
        ends = [(p.x - p.width / 2, p.x + p.width / 2) for p in row]
        assert all(right + GAP <= left for (_, right), (left, _) in itertools.pairwise(ends)), "nothing overlaps"


def test_the_picture(facts: Facts) -> None:
    plain = str(graph_picture(facts))
    check(plain)
    assert plain.count('class="node"') == len(facts.steps) and plain.count('class="edge"') == sum(map(len, sources_of_launches(facts)))
    assert "%" not in plain and "A box is a launch." in plain
    times = [Launch(s.name, s.layers, 0, 100 * (i + 1)) for i, s in enumerate(facts.steps)]
    timed = str(graph_picture(dataclasses.replace(facts, times=times, machine=Limits(1.0, 1.0))))
    check(timed)
    heat = [float(h) for h in re.findall(r'fill-opacity="([\d.]+)"', timed)]
    assert heat == pytest.approx([(i + 1) / len(times) for i in range(len(times))], abs=1e-3)
    total = sum(range(1, len(times) + 1))
    assert re.findall(r'text-anchor="end">([\d.]+%)<', timed) == [f"{(i + 1) / total:.1%}" for i in range(len(times))]
    assert f'width="{BOX}"' in timed


def test_a_program_with_branches_has_a_graph() -> None:
    @pliant.function
    def branch(x: Tensor[f32, n, 8], flag: Tensor[pliant.bool_]) -> Tensor[f32, n, 8]:
        a = ops.softmax(x)
        if flag:
            b = ops.softmax(ops.exp(a))
        else:
            b = ops.exp(a)
        return ops.softmax(b)

    f = pliant.compile(branch)
    x = facts_of(f, f._provenance)
    reads = sources_of_launches(x)
    assert reads[0] == set() and len(reads[-1]) >= 2 and all(max(r, default=-1) < i for i, r in enumerate(reads))
    check(str(graph_picture(x)))
