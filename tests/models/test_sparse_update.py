"""Work on the rows that changed: nonzero -> gather rows -> matmul -> scatter into state, where few have; all rows otherwise.

The number of rows is known only while the program runs, and everything runs in one native program: its size is that of what
changed, its memory is planned for all rows.
"""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled, host_of, interpret_host, lowered
from pliant import InOut, State, Tensor, bool_, dim, f32, function, kernel, ops
from pliant.graph.node import CallLoop, walk_nodes
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph

n = dim("n", max=4096)
u = dim("u")


@kernel
def overwrite(y: Tensor[f32, n, 24], state: InOut[f32, n, 24]) -> None:
    for i in range(n):
        for j in range(24):
            state[i, j] = y[i, j]


@function
def refresh(
    x: Tensor[f32, n, 40], changed: Tensor[bool_, n], w: Tensor[f32, 40, 24], state: State[f32, n, 24], t: f32
) -> State[f32, n, 24]:
    density = ops.mean(ops.cast(changed, f32))
    if density < t:
        rows = ops.reshape(ops.nonzero(changed, count=u), (u,))
        part = ops.matmul(ops.take(x, rows), w)
        state = ops.index_put(state, part, rows)
    else:
        state = overwrite(ops.matmul(x, w), state)
    return state


def arguments(size: int, density: float) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    x, w = rng.standard_normal((size, 40)).astype(np.float32), rng.standard_normal((40, 24)).astype(np.float32)
    return [x, rng.random(size) < density, w, rng.standard_normal((size, 24)).astype(np.float32)]


def expected(x: np.ndarray, changed: np.ndarray, w: np.ndarray, state: np.ndarray, t: float) -> np.ndarray:
    """The new state, in plain numpy."""
    new = (x.astype(np.float64) @ w).astype(np.float32)
    few = bool(changed.astype(np.float32).mean(dtype=np.float32) < np.float32(t)) if len(changed) else False
    return np.where(changed[:, None], new, state) if few else new


CASES = [(1, 0.0), (7, 0.4), (64, 0.1), (64, 0.9), (200, 0.0), (333, 0.2), (0, 0.0)]


@pytest.mark.parametrize("checked", [False, True], ids=["poisoned", "checked"])
def test_one_native_program_serves_every_density(checked: bool) -> None:
    verify(refresh.graph)
    f = compiled(refresh.graph, poison=True, checked=checked)
    for size, density in CASES:
        x, changed, w, state = arguments(size, density)
        want = expected(x, changed, w, state, 0.5)
        found = f(x, changed, w, state, 0.5)
        assert found is state
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_interpreters_agree() -> None:
    host = host_of(refresh.graph)
    for size, density in CASES[:4]:
        x, changed, w, state = arguments(size, density)
        want = expected(x, changed, w, state, 0.5)
        for run in (lambda *a: run_graph(refresh.graph, a), lambda *a: interpret_host(host, a)):
            (found,) = run(x, changed, w, state.copy(), 0.5)
            np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


def test_it_is_a_few_kernels_and_no_python() -> None:
    state = lowered(refresh.graph)
    called = [n.callee.name for n in walk_nodes(state.function.nodes) if isinstance(n, CallLoop)]
    assert called == ["cast_mean_less", "nonzero", "take", "matmul", "index_put", "matmul_overwrite"]
    assert not state.functions and state.foreign_calls is None
    assert state.host is not None
    assert sorted(str(t.bytes) for t in state.host.temporaries) == ["1", "4", "8", "n * 160", "n * 8", "n * 96"]


def test_memory_is_planned_for_all_rows() -> None:
    f = pliant.compile(refresh)
    assert f.workspace(n=4096) >= 4096 * (8 + 40 * 4)
    assert f.workspace.max is not None
    x, changed, w, state = arguments(50, 0.3)
    f(x, changed, w, state, 0.5)
    assert [s.name for s in f.dims] == ["n"]
