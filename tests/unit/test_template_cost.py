"""Templates, and the cost of programs as formulas."""

from __future__ import annotations

import numpy as np
import pytest

import pliant
from pliant import Kernel, Out, Tensor, block, dim, f32, function, grid, init, kernel, ops, template

n = dim("n")
k = dim("k")


@template(width=(4, 8))
def matmul(width: int, scale: float = 1.0) -> Kernel:
    @kernel
    def matmul(a: Tensor[f32, n, k], b: Tensor[f32, k, width], c: Out[f32, n, width]) -> None:
        for i, j, r in grid(n, width, k):
            with block("c", "SSR", i, j, r) as (vi, vj, vr):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vr] * b[vr, vj] * scale

    return matmul


def test_a_template_makes_each_kernel_once() -> None:
    assert matmul(4) is matmul(width=4) is not matmul(8)
    assert matmul(4, scale=2.0) is not matmul(4)
    a, b = np.ones((3, 5), np.float32), np.ones((5, 8), np.float32)
    assert (matmul(8, scale=2.0)(a, b) == 10).all()
    assert [v.func.buffers[1].shape[1].value for v in matmul.variants()] == [4, 8]


def test_wrong_parameters() -> None:
    with pytest.raises(pliant.Error, match="width = 5 is not a choice") as error:
        matmul(5)
    assert "width is one of 4, 8" in str(error.value) and "test_template_cost.py" in str(error.value)
    with pytest.raises(pliant.Error, match="missing a required argument: 'width'"):
        matmul()
    with pytest.raises(pliant.Error, match="has no parameter `wide`"):
        template(wide=(1, 2))(lambda width: None)


def test_the_cost_of_a_matmul_is_known_by_hand() -> None:
    f = pliant.compile(matmul(8))
    counts = f.cost(n=10, k=7)
    assert counts.operations == 10 * 8 * 7 * 3  # two products and a sum
    assert counts.written == 10 * 8 * 4
    assert counts.read >= (10 * 7 + 7 * 8) * 4
    with pytest.raises(pliant.ShapeError, match="the cost depends on dim `k`"):
        f.cost(n=10)


def test_the_cost_of_a_function_sums_its_fused_programs_under_its_dims() -> None:
    @function
    def f(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 64]:
        return ops.mul(ops.add(x, x), x)

    assert pliant.compile(f).cost(n=3) == (3 * 64 * 2, 3 * 64 * 4, 3 * 64 * 4)  # one program: no traffic between the two
    assert pliant.compile(f, dims={"n": 5}).cost() == (5 * 64 * 2, 5 * 64 * 4, 5 * 64 * 4)
