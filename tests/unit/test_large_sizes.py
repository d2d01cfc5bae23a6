"""Sizes beyond 64 bits: counts are exact, and a product of dims that i64 cannot hold is refused, never wrapped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Error, ShapeError, Tensor, UnsupportedError, dim, f32, function, ops
from pliant.api import program_of
from pliant.frontends.onnx.memory import Peak
from pliant.sym.exact import exact
from pliant.sym.expr import Cast, Dim, Eq, Max, Min, Select, Var, const

MOST = 2**31 - 1
n, m, k, a, b, c = (dim(name) for name in "nmkabc")


@function
def product(x: Tensor[f32, n, k], y: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
    return x @ y


@function
def layers(x: Tensor[f32, n, k], y: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
    return ops.exp(x @ y) @ ops.full([m, m], 2.0)


def test_costs_of_the_largest_dims_are_exact() -> None:
    cost = pliant.compile(product).cost
    found = cost(n=MOST, m=MOST, k=MOST)
    assert found.operations == 2 * MOST**3
    assert found.written == 4 * MOST**2
    assert found.read == 3 * 4 * MOST**2  # the sums are read too
    small = cost(n=3, m=5, k=7)
    assert (small.operations, small.written) == (2 * 3 * 5 * 7, 4 * 15)


def test_costs_of_several_kernels_are_sums_of_exact_ones() -> None:
    cost = pliant.compile(layers).cost
    dims = [{"n": p, "m": q, "k": r} for p, q, r in ((MOST, MOST, MOST), (2**20, 2**21, 2**22), (3, 4, 5))]
    for given in dims:
        found = cost(**given)
        assert found.operations >= 2 * given["n"] * given["m"] * (given["k"] + given["m"])
        assert min(found) > 0


@pytest.mark.parametrize(
    ("dims", "what"),
    [
        ({"n": -1, "m": 1, "k": 1}, "n = -1 is outside its contract"),
        ({"n": 2**31, "m": 1, "k": 1}, "n = 2147483648 is outside its contract"),
        ({"n": 1.5, "m": 1, "k": 1}, "expected a whole number"),
        ({"n": 1, "m": 1, "k": 1, "q": 1}, "`q` is no dim of the contract"),
        ({"n": 1, "m": 1}, "depends on dim `k`"),
    ],
)
def test_costs_of_dims_that_no_call_can_have_are_refused(dims: dict[str, Any], what: str) -> None:
    with pytest.raises(ShapeError, match=what):
        pliant.compile(product).cost(**dims)


def test_literal_sizes_whose_cost_no_formula_holds_are_refused() -> None:
    @function
    def literal(x: Tensor[f32, 2097152, 2097152], y: Tensor[f32, 2097152, 4194304]) -> Tensor[f32, 2097152, 4194304]:
        return x @ y

    with pytest.raises(UnsupportedError, match="beyond what formulas can hold"):
        pliant.compile(literal).cost()


def test_formulas_are_exact_and_mean_what_they_do_in_programs() -> None:
    x, y = Var("x"), Var("y")
    values = {x: 2**62, y: 7}
    assert exact(x * x * 4 - y, values) == 4 * 2**124 - 7
    assert exact((x * x + 63) // 64 * 64 % 5, values) == (2**124 + 63) // 64 * 64 % 5
    assert exact(Select(Eq(y, const(7)), Max(x, y), Min(x, y)), values) == 2**62
    assert exact(x // (y - 7), values) == 0
    assert exact(Cast(x.dtype, Eq(y, const(7))) + 1, values) == 2


def test_a_view_whose_number_of_elements_wraps_is_refused() -> None:
    """2**22 * 2**22 * 2**20 is 0 in 64 bits, as many as an empty tensor has."""

    @function
    def seen(x: Tensor[f32, n], p: Tensor[f32, a, 0], q: Tensor[f32, b, 0], r: Tensor[f32, c, 0]) -> Tensor[f32, c]:
        return ops.sum(ops.reshape(x, [a, b, c]), axis=[0, 1])

    f = pliant.compile(seen)
    assert f.symbols_of({"x": (24,), "p": (2, 0), "q": (3, 0), "r": (4, 0)}) == {"n": 24, "a": 2, "b": 3, "c": 4}
    with pytest.raises(ShapeError, match=r"more than 2\*\*40 elements"):
        f.symbols_of({"x": (0,), "p": (2**22, 0), "q": (2**22, 0), "r": (2**20, 0)})


def test_one_dim_times_huge_literals_is_refused_at_the_border() -> None:
    @function
    def wide(x: Tensor[f32, n, 1]) -> Tensor[f32, n, 2147483647, 2147483647, 2]:
        return ops.expand(ops.reshape(x, [n, 1, 1, 1]), [n, 2147483647, 2147483647, 2])

    f = pliant.compile(wide)
    with pytest.raises(ShapeError, match=r"`result` would have more than 2\*\*40 elements"):
        f(np.zeros((2, 1), np.float32))  # 2 * (2**31 - 1)**2 * 2 * 4 bytes are 2**33 in 64 bits
    with pytest.raises(ShapeError, match=r"more than 2\*\*40 elements"):
        f.workspace(n=1)


def test_literal_shapes_beyond_all_memory_are_refused_when_compiled() -> None:
    @function
    def wide(x: Tensor[f32, 1]) -> Tensor[f32, 2147483647, 2147483647, 4]:
        return ops.expand(ops.reshape(x, [1, 1, 1]), [2147483647, 2147483647, 4])

    with pytest.raises(Error, match="has 18446744056529682436 elements"):
        pliant.compile(wide)


def test_memory_that_a_model_file_asks_for_is_exact() -> None:
    memory = Peak(program_of(layers).entry)
    found = memory.at({"n": MOST, "m": MOST, "k": MOST})
    assert found is not None
    assert found >= 3 * 4 * MOST**2


def test_the_contract_limits_dims_of_costs() -> None:
    few = Dim("few", 2, 64, 2)

    @function
    def narrow(x: Tensor[f32, few]) -> Tensor[f32, few]:
        return ops.exp(x)

    cost = pliant.compile(narrow).cost
    assert cost(few=8).written == 32
    with pytest.raises(ShapeError, match="few = 7 is outside"):
        cost(few=7)
