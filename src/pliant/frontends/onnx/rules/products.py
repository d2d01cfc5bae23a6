"""Matrix operators: MatMul, Gemm, Einsum, Det, MatMulInteger."""

from __future__ import annotations

from typing import Any

from ....dtype import i8, i32, u8
from ....sym.expr import Const
from ..emit import ops
from ..loops import Loop
from ..node_context import NodeContext
from ..registry import rule
from .extents import total


@rule("MatMul")
def matmul(site: NodeContext) -> Any:
    """Imports MatMul: the matrix product, also of vectors."""
    return product(site.x(0), site.x(1), site.rank(0), site.rank(1))


def product(x: Any, y: Any, x_rank: int, y_rank: int) -> Any:
    """Returns `x @ y` with numpy's semantics: a vector is a row on the left, a column on the right."""
    x = ops.unsqueeze(x, 0) if x_rank == 1 else x
    y = ops.unsqueeze(y, 1) if y_rank == 1 else y
    result = ops.matmul(x, y)
    result = ops.squeeze(result, -1) if y_rank == 1 else result
    return ops.squeeze(result, -1 if y_rank == 1 else -2) if x_rank == 1 else result


@rule("Gemm")
def gemm(site: NodeContext) -> Any:
    """Imports Gemm: alpha * A' @ B' + beta * C, where ' is an optional transpose."""
    of = site.dtype(0)
    alpha, beta = site.real("alpha", 1.0), site.real("beta", 1.0)
    result: Any = ops.matmul(site.x(0), site.x(1), transpose_a=bool(site.integer("transA", 0)), transpose_b=bool(site.integer("transB", 0)))
    result = _times(result, alpha, of)
    return ops.add(result, _times(site.x(2), beta, of)) if site.has(2) and beta != 0 else result


def _times(x: Any, factor: float, of: Any) -> Any:
    """Returns `x` times a number; integers are computed in f64 and cast back."""
    if factor == 1.0:
        return x
    return ops.mul(x, factor) if of.is_float else ops.cast(ops.mul(ops.cast(x, "f64"), factor), of)


@rule("Einsum")
def einsum(site: NodeContext) -> Any:
    """Imports Einsum: the Einstein sum of an equation."""
    return ops.einsum(site.text("equation", "").replace(" ", ""), *site.xs())


@rule("Det")
def det(site: NodeContext) -> Any:
    """Imports Det: the determinant of square matrices, by Gaussian elimination with partial pivoting in a loop over columns.

    Raises NeededError if it is not known whether they are square, ModelFileError if they are not.
    """
    *batch, n, m = site.tensor(0).shape
    if n is not m and not (isinstance(n, Const) and isinstance(m, Const)):
        raise site.needed_dim(f"matrices of {n} by {m}: both dims must be known")
    site.require(n is m, f"matrices of {n} by {m}")
    of = site.dtype(0)
    count = total(batch)
    whole = Loop(site)
    start = [ops.reshape(site.x(0), (count, n, n)), ops.ones((count,), of)]
    with whole.body() as number:
        matrix, product_ = (whole.carry(v) for v in start)
        rows, at = ops.arange(n), ops.reshape(number, ())
        column = ops.take(matrix, at, 2)  # [batch, n]
        best = ops.argmax(ops.where(ops.less(rows, at), -1.0, ops.abs(column)), axis=1, keepdims=True)  # [batch, 1]
        places = ops.where(ops.equal(rows, at), best, ops.where(ops.equal(rows, best), at, rows))
        swapped = ops.gather(matrix, ops.expand(ops.unsqueeze(places, 2), (count, n, n)), 1)
        top = ops.take(swapped, at, 1)  # [batch, n]
        pivot = ops.take(top, at, 1)  # [batch]
        sign = ops.where(ops.equal(ops.squeeze(best, 1), at), ops.constant(1.0, of), ops.constant(-1.0, of))
        quotient = ops.div(ops.take(swapped, at, 2), ops.unsqueeze(ops.where(ops.equal(pivot, 0.0), 1.0, pivot), 1))
        factor = ops.where(ops.greater(rows, at), quotient, 0.0)
        whole.set(1, ops.sub(swapped, ops.mul(ops.unsqueeze(factor, 2), ops.unsqueeze(top, 1))))
        whole.set(2, ops.mul(product_, ops.mul(pivot, sign)))
    final = whole.finish(lambda now: ops.less(now[0], n))
    return ops.reshape(final[2], tuple(batch))


@rule("MatMulInteger")
def matmul_integer(site: NodeContext) -> Any:
    """Imports MatMulInteger: an integer matmul in i32, with zero points subtracted from both operands."""
    return integer_product(site, (0, 2), (1, 3))


def integer_product(site: NodeContext, left: tuple[int, int], right: tuple[int, int]) -> Any:
    """Emits an integer matmul in i32; `left` and `right` are the input numbers of an operand and its zero point."""
    (a, a_zero), (b, b_zero) = left, right
    if min(site.rank(a), site.rank(b)) > 1 and {site.dtype(a), site.dtype(b)} <= {i8, u8}:
        return ops.matmul_integer(site.x(a), site.x(b), *(site.x(k) if site.has(k) else None for k in (a_zero, b_zero)))
    return product(centered(site, *left, row=True), centered(site, *right, row=False), site.rank(a), site.rank(b))


def centered(site: NodeContext, k: int, zero: int, row: bool) -> Any:
    """Returns input `k` minus its zero point, as i32; one zero point per row of the left operand (`row`) becomes a column."""
    x: Any = ops.cast(site.x(k), i32)
    if not site.has(zero):
        return x
    z: Any = ops.cast(site.x(zero), i32)
    if row and site.rank(zero) == 1:
        z = ops.unsqueeze(z, 1) if site.shape(zero) != (1,) else z
    return ops.sub(x, z)
