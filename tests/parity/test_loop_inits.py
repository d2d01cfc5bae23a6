"""Where an init runs, in every arrangement of loops: native code against the interpreter against numpy, also for empty sums."""

from __future__ import annotations

import numpy as np
import pytest

from native_loops import Lifted
from pliant.interp.loop import run_loop
from pliant.loop.parse import parse_module

HEAD = """
from pliant import *
n = dim("n")
k = dim("k")
@kernel
def f(x: Tensor[f32, n, 4, k], y: Out[f32, n]) -> None:
"""
BODY = """
with block("y", "SRR", {i}, {j}, {l}) as (vi, vj, vl):
    {where}
    with init():
        y[vi] = 1.0
    y[vi] += x[vi, vj, vl]
"""
# loops, outermost first (variable, extent); the values of i, j, l; a predicate
NESTS = {
    "spatial outside": ([("i", "n"), ("j", "4"), ("l", "k")], ("i", "j", "l"), "True"),
    "spatial inside": ([("l", "k"), ("j", "4"), ("i", "n")], ("i", "j", "l"), "True"),
    "spatial between": ([("l", "k"), ("i", "n"), ("j", "4")], ("i", "j", "l"), "True"),
    "fused with a reduction, inside": ([("l", "k"), ("g", "n * 4")], ("g // 4", "g % 4", "l"), "True"),
    "fused and cut, inside": ([("l", "k"), ("o", "(n * 4 + 2) // 3"), ("g", "3")], ("(o * 3 + g) // 4", "(o * 3 + g) % 4", "l"), "vi < n"),
    "guards of both": (
        [("lo", "(k + 1) // 2"), ("io", "(n + 2) // 3"), ("li", "2"), ("j", "4"), ("ii", "3")],
        ("io * 3 + ii", "j", "lo * 2 + li"),
        "vi < n and vl < k",
    ),
}


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 4, 0), (0, 4, 2), (1, 4, 1), (7, 4, 2)])
def test_every_output_starts_from_its_init(name: str, shape: tuple[int, int, int]) -> None:
    loops, (i, j, last), where = NESTS[name]
    lines = [f"{'    ' * d}for {v} in range({e}):" for d, (v, e) in enumerate(loops)]
    block = BODY.format(i=i, j=j, l=last, where=f"where({where})")
    lines += ["    " * len(loops) + line for line in block.strip("\n").splitlines()]
    text = HEAD + "\n".join("    " + line for line in lines)
    func = parse_module(text)["f"]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    expected = 1 + x.sum((1, 2))
    for options in ({}, {"lanes": False}, {"order": "shuffled"}):
        y = np.zeros(shape[0], np.float32)
        run_loop(func, [x, y], **options)  # type: ignore[arg-type]
        assert y.tolist() == expected.tolist(), options
    y = np.zeros(shape[0], np.float32)
    assert Lifted([func], 0).call(func, [x, y], [shape[0], shape[2]]) == 0
    assert y.tolist() == expected.tolist()


IDLE = """
from pliant import *
n = dim("n")
k = dim("k")
@kernel
def f(x: Tensor[f32, n, k], y: InOut[f32, n]) -> None:
    for {first} in range({first_extent}):
        for {second} in range({second_extent}):
            for {third} in range({third_extent}):
                if r == 1:
                    with block("y", "SR", i, l) as (vi, vl):
                        with init():
                            y[vi] = 1.0
                        y[vi] += x[vi, vl]
"""


@pytest.mark.parametrize("order", ["ilr", "irl", "ril", "lir", "lri", "rli"])
@pytest.mark.parametrize("shape", [(3, 5), (3, 0), (0, 2)])
def test_conditions_on_a_loop_that_feeds_no_iterator(order: str, shape: tuple[int, int]) -> None:
    """Where that loop is inside of the reduction, its condition is none of the init's."""
    extents = {"i": "n", "l": "k", "r": "2"}
    names = dict(zip(("first", "second", "third"), order, strict=True))
    func = parse_module(IDLE.format(**names, **{f"{w}_extent": extents[v] for w, v in names.items()}))["f"]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = []
    for options in ({}, {"lanes": False}):
        y = np.zeros(shape[0], np.float32)
        run_loop(func, [x, y], **options)  # type: ignore[arg-type]
        found.append(y)
    y = np.zeros(shape[0], np.float32)
    assert Lifted([func], 1).call(func, [x, y], shape) == 0
    for result in (*found, y):
        np.testing.assert_array_equal(result, 1 + x.sum(1))
