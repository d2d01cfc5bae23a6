"""Different dims with one name are told apart in contracts, formulas, dims and messages; names that Python could not have are refused."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, dim, f32, function, kernel, ops

n, other = dim("n", max=64), dim("n", max=32, multiple_of=4)


@function
def outer(x: Tensor[f32, n], y: Tensor[f32, other]) -> Tensor[f32, n]:
    table = ops.reshape(x, (n, 1)) * ops.reshape(y, (1, other))
    return ops.sum(ops.exp(table) + table, axis=1) / ops.max(table, axis=1)


@kernel
def table(x: Tensor[f32, n], y: Tensor[f32, other], z: Out[f32, n, other]) -> None:
    for i in range(n):
        for j in range(other):
            z[i, j] = x[i] * y[j]


def test_contracts_dims_and_formulas() -> None:
    f = pliant.compile(outer)
    assert [d.name for d in f.dims] == ["n", "n_1"]
    text = str(f.contract)
    assert "y: Tensor[f32, n_1]" in text and "n in 0..64" in text and "n_1 in 0..32 step 4" in text
    assert "n_1" in str(f.workspace)
    assert f.workspace(n=3, n_1=8) > 0 and f.workspace.max == f.workspace(n=64, n_1=32)
    assert f.contract.check({"x": (3,), "y": (8,)}) == {"n": 3, "n_1": 8}


def test_messages_tell_them_apart() -> None:
    f = pliant.compile(outer)
    with pytest.raises(pliant.ShapeError, match=r"argument `y`: dim 0, `n_1` = 6 is outside its contract: n_1 in 0..32 step 4"):
        f(np.ones(3, np.float32), np.ones(6, np.float32))


def test_dims_are_bound_by_these_names() -> None:
    f = pliant.compile(outer, dims={"n_1": 8})
    assert [str(d) for d in f.dims] == ["n in 0..64"]
    x, y = np.array([1, 2], np.float32), np.arange(8, dtype=np.float32)
    wide = np.outer(x, y)
    np.testing.assert_allclose(f(x, y), (np.exp(wide) + wide).sum(1) / wide.max(1), rtol=1e-5)
    assert [str(d) for d in pliant.compile(outer, dims={"n": "n_1"}).dims] == ["n_1 in 0..32 step 4"]


def test_kernels() -> None:
    f = pliant.compile(table)
    assert [d.name for d in f.dims] == ["n", "n_1"]
    assert f(np.ones(2, np.float32), np.ones(4, np.float32)).shape == (2, 4)
    assert str(f.outputs[0]) == "z: Tensor[f32, n, n_1]"


# Contracts of callees.

wide, small = dim("n"), dim("k", min=1, max=64, multiple_of=8)


@kernel
def copied(x: Tensor[f32, small], y: Out[f32, small]) -> None:
    for i in range(small):
        y[i] = x[i]


@function
def inner(x: Tensor[f32, small]) -> Tensor[f32, small]:
    return ops.softmax(x)


@function
def calls(x: Tensor[f32, wide], z: Tensor[f32, wide * 2]) -> tuple[Tensor[f32, wide], Tensor[f32, wide * 2]]:
    return inner(x), copied(z)


@function
def may_call(x: Tensor[f32, wide], b: pliant.bool_) -> Tensor[f32, wide]:
    y = x
    if b:
        y = copied(x)
    return y


def test_what_callees_ask_of_dims_is_in_the_contract() -> None:
    f = pliant.compile(calls)
    assert [str(d) for d in f.dims] == ["n in 1..32 step 8"]  # k in 1..64 step 8 for n, and for 2 * n
    assert f.workspace.max == f.workspace(n=32)
    x, z = np.zeros(8, np.float32), np.arange(16, dtype=np.float32)
    np.testing.assert_array_equal(f(x, z)[1], z)
    for size in (0, 4, 40):
        with pytest.raises(pliant.ShapeError, match=rf"argument `x`: dim 0, `n` = {size} is outside its contract: n in 1\.\.32") as error:
            f(np.zeros(size, np.float32), np.zeros(2 * size, np.float32))
        assert "it is asked for inside: " in error.value.help


def test_what_only_a_branch_asks_is_checked_there() -> None:
    f = pliant.compile(may_call)
    assert [str(d) for d in f.dims] == ["n in 0.."]
    assert f(np.zeros(3, np.float32), False).shape == (3,)
    with pytest.raises(pliant.ShapeError, match=r"copied: dim 0 of argument `x` is 3, and the contract says k in 1..64 step 8"):
        f(np.zeros(3, np.float32), True)
