"""Results whose size only a run tells: outputs are cut, kernels get the dim, memory is planned for the most, mistakes are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled as compiled_graph
from compiled_graphs import host_of, interpret_host
from pliant import Tensor, bool_, dim, f32, function, i64, ops
from pliant.graph.parse import parse_module
from pliant.graph.printer import print_function
from pliant.graph.structural import assert_same
from pliant.loop.analysis.proof import unproved_accesses
from pliant.support.errors import Error

n = dim("n", max=1000)
u = dim("u")
v = dim("v")


@function
def chosen(x: Tensor[f32, n, 8], keep: Tensor[bool_, n]) -> tuple[Tensor[i64, u, 1], Tensor[f32, u, 8], Tensor[f32, 8, u], Tensor[f32, 8]]:
    rows = ops.nonzero(keep, count=u)
    part = ops.exp(ops.take(x, ops.reshape(rows, (u,))))
    return rows, part, ops.permute(part, (1, 0)), ops.sum(part, axis=0)


@pytest.fixture(scope="module")
def compiled() -> Any:
    return pliant.compile(chosen)


@pytest.mark.parametrize("size", [0, 1, 5, 37, 1000])
@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_outputs_have_the_size_that_was_counted(compiled: Any, size: int, density: float) -> None:
    rng = np.random.default_rng(size)
    x, keep = rng.standard_normal((size, 8)).astype(np.float32), rng.random(size) < density
    rows, part, turned, total = compiled(x, keep)
    want = np.exp(x[keep])
    np.testing.assert_array_equal(rows[:, 0], np.flatnonzero(keep))
    np.testing.assert_allclose(part, want, rtol=1e-6)
    np.testing.assert_allclose(turned, want.T, rtol=1e-6)
    np.testing.assert_allclose(total, want.sum(0), rtol=1e-5, atol=1e-6)


def test_given_memory_has_the_capacity(compiled: Any) -> None:
    x, keep = np.ones((4, 8), np.float32), np.array([True, False, True, False])
    memory = np.zeros((4, 8), np.float32)
    part = compiled(x, keep, out=(None, memory, None, None))[1]
    assert part.shape == (2, 8) and np.shares_memory(part, memory)
    with pytest.raises(Error, match="shape is"):
        compiled(x, keep, out=(None, np.zeros((2, 8), np.float32), None, None))


def test_the_contract_has_the_dims_of_the_arguments(compiled: Any) -> None:
    assert [s.name for s in compiled.dims] == ["n"]
    assert compiled.interface.counts == ("u",)
    assert "u: counted while it runs" in str(compiled.contract)
    assert compiled.contract.check({"x": (5, 8), "keep": (5,)}) == {"n": 5}
    assert compiled.workspace.max == compiled.workspace(n=1000)


def test_torch_results_are_cut_too(compiled: Any) -> None:
    torch = pytest.importorskip("torch")
    part = compiled(torch.ones((3, 8)), torch.tensor([True, False, True]))[1]
    assert isinstance(part, torch.Tensor) and tuple(part.shape) == (2, 8)


def test_text_reads_back_the_same() -> None:
    again = parse_module(print_function(chosen.graph), {})["chosen"]
    assert_same(again, chosen.graph)
    assert "ops.nonzero(keep, count=u)" in print_function(chosen.graph)


@function
def twice(x: Tensor[f32, n]) -> Tensor[i64, v, 1]:
    places = ops.reshape(ops.nonzero(x, count=u), (u,))
    return ops.nonzero(ops.take(x, places) > 1.0, count=v)


@function
def calls(x: Tensor[f32, n]) -> Tensor[i64, v, 1]:
    return ops.match_cast(ops.add(twice(x), 1), Tensor[i64, v, 1])


def test_a_size_may_depend_on_another_one() -> None:
    x = np.array([0, 2, 0.5, 0, 3, 0, 0.1, 4], np.float32)
    for f in (twice, calls):
        found = pliant.compile(f)(x)
        np.testing.assert_array_equal(found[:, 0] - (f is calls), [0, 2, 4])


@function
def first(x: Tensor[f32, n, 4], count: i64) -> Tensor[f32, u, 4]:
    return ops.neg(ops.prefix(x, ops.bind_dim(count, u, most=n)))


def test_a_number_becomes_a_dim() -> None:
    f, x = pliant.compile(first), np.arange(20, dtype=np.float32).reshape(5, 4)
    np.testing.assert_array_equal(f(x, 3), -x[:3])
    assert f(x, 0).shape == (0, 4)
    for wrong in (6, -1):
        with pytest.raises(Error, match=f"`u` (is|=) {wrong}"):
            f(x, wrong)


def test_a_size_grows_by_arithmetic() -> None:
    @function
    def longer(x: Tensor[f32, n]) -> Tensor[f32, u + n]:
        return ops.concat([ops.masked_select(x, x > 0.0, count=u), x])

    x = np.array([1, -1, 2], np.float32)
    np.testing.assert_array_equal(pliant.compile(longer)(x), [1, 2, 1, -1, 2])


def test_sizes_differ_from_round_to_round_of_a_loop() -> None:
    @function
    def peel(x: Tensor[f32, n]) -> Tensor[f32]:
        k, total = 0, ops.full([], 0.0)
        while k < 3:
            total = total + ops.sum(ops.masked_select(x, x > ops.cast(k, f32), count=u))
            k = k + 1
        return total

    x = np.array([0.5, 1.5, 2.5, 3.5], np.float32)
    assert float(pliant.compile(peel)(x)) == 8 + 7.5 + 6


def test_every_access_of_the_host_program_is_shown() -> None:
    for f in (chosen, twice, first):
        assert not [a for a in unproved_accesses(host_of(f.graph).run) if a.kind in ("view", "call")]


@pytest.mark.parametrize("checked", [False, True])
def test_an_index_outside_is_named(checked: bool) -> None:
    @function
    def put(x: Tensor[f32, n], places: Tensor[i64, v, 1], new: Tensor[f32, v]) -> Tensor[f32, n]:
        return ops.scatter_nd(x, places, new)

    f = pliant.compile(put, checked=checked)
    x, new = np.zeros(4, np.float32), np.ones(2, np.float32)
    np.testing.assert_array_equal(f(x, np.array([[-1], [0]]), new), [1, 0, 0, 1])
    for wrong in (4, -5):
        with pytest.raises(Error, match=f"scatter_nd: index {wrong} is outside of dim 0, which has 4 elements"):
            f(x, np.array([[0], [wrong]]), new)


def test_branches_and_loops_over_values_of_such_a_size() -> None:
    @function
    def work(x: Tensor[f32, n], t: f32) -> tuple[Tensor[f32, u], Tensor[f32, u], Tensor[f32, u]]:
        some = ops.masked_select(x, x > 0.0, count=u)
        if t < 1.0:
            y = some * 2.0
            z = y
        else:
            y = ops.cumsum(some)
            z = some
        k = 0
        w = some
        while k < 3:
            w = w + z
            k = k + 1
        return y, w, some

    f, host = compiled_graph(work.graph, poison=True), host_of(work.graph, poison=True)
    for x in (np.array([1, -1, 2, 3], np.float32), np.full(6, -1, np.float32), np.zeros(0, np.float32)):
        some = x[x > 0]
        for t in (0.5, 2.0):
            y = some * 2 if t < 1 else np.cumsum(some)
            w = some + 3 * (y if t < 1 else some)
            for found in (f(x, t), interpret_host(host, [x, t])):
                for a, b in zip(found, (y, w, some), strict=True):
                    np.testing.assert_array_equal(a, b)
