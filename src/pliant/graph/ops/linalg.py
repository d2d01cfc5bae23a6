"""Matrix products: matmul (with broadcast batch dims), linear and outer. 16-bit floats are summed in f32.

ops.matmul(a, b)             # (…, m, k) x (…, k, n) -> (…, m, n); also written a @ b
ops.matmul(a, b, transpose_b=True)   # (…, m, k) x (…, n, k): without a copy of the operand
ops.linear(x, weight, bias)  # x @ weight.T + bias, with the weight as (out, in), as in torch
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import bool_
from ...dtype import dtype as to_dtype
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Add, Cast, Const, Eq, Expr, Mul
from ..annotation import decide
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, emit, operator, tensor_of
from ..stage import Indices, Stage
from .elementwise import project
from .reduce import accumulator
from .shape import reshape

T = TypeVar("T")
_SHAPES_HELP = "the last dim of the first must be the second-last of the second: (m, k) @ (k, n)"


def _numbers(d: Deduction) -> None:
    d.same_dtype()
    if d.tensor(0).dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help="cast them first: ops.cast(x, i32)")


@dataclass(frozen=True, slots=True)
class MatmulAttrs:
    """The attributes of `matmul`: whether the last two dims of each operand are transposed."""

    transpose_a: bool = False
    transpose_b: bool = False


PLAIN = MatmulAttrs()


def _matrix(shape: tuple[Expr, ...], transposed: bool) -> tuple[Expr, Expr]:
    """Returns the numbers of rows and columns of a matmul operand, after its transpose."""
    return (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])


def product_shape(d: Deduction, how: MatmulAttrs) -> tuple[Expr, ...]:
    """Returns the shape of the matrix product of an operator's two arguments, batch dims broadcast; raises if they do not fit.

    They do not fit if one has fewer than two dims, or if the columns of the first are not as many as the rows of the second.
    """
    a, b = d.tensor(0), d.tensor(1)
    for k, t in enumerate((a, b)):
        if len(t.shape) < 2:
            help_ = "ops.reshape can add one"
            raise d.error(f"{d.what}: `{d.args[k].name}` has {counted(len(t.shape), 'dim')}, at least 2 are needed", arg=k, help=help_)
    message = f"{{0}} columns of `{d.args[0].name}` meet {{1}} rows of `{d.args[1].name}`"
    (rows, inner), (other, columns) = _matrix(a.shape, how.transpose_a), _matrix(b.shape, how.transpose_b)
    d.equal(inner, other, message, help=_SHAPES_HELP)
    return (*d.broadcast(a.shape[:-2], b.shape[:-2]), rows, columns)


def _deduce_matmul(d: Deduction, attrs: MatmulAttrs | None) -> tuple[Annotation, ...]:
    _numbers(d)
    return (Tensor(d.tensor(0).dtype, product_shape(d, attrs or PLAIN)),)


def _contract(
    out: Tensor, extent: Expr, factors: Callable[..., tuple[Expr, Expr]], finish: Callable[..., Expr] | None
) -> tuple[Stage, ...]:
    """Returns the stages of a sum of products in the accumulator's dtype, followed by `finish` and a cast if they are needed.

    `factors` returns the two factors of element i at index k of the sum.
    """
    wide = accumulator(out.dtype)

    def value(i: Indices, r: Indices, read: Callable[..., Expr]) -> Expr:
        a, b = (f if f.dtype is wide else Cast(wide, f) for f in factors(i, r[0], read))
        return Mul(a, b)

    total = Stage("dot", wide, out.shape, value, (extent,), "add", Const(0, wide))
    if finish is None and wide is out.dtype:
        return (total,)

    def last(i: Indices, r: Indices, read: Callable[..., Expr]) -> Expr:
        result = read("dot", *i) if finish is None else finish(read("dot", *i), i, read)
        return result if wide is out.dtype else Cast(out.dtype, result)

    return (total, Stage("out", out.dtype, out.shape, last))


def matmul_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: MatmulAttrs | None) -> tuple[Stage, ...]:
    """Returns the stages that compute a matrix product; 16-bit floats are summed in f32."""
    a, b = args
    batch = outs[0].shape[:-2]
    how = attrs or PLAIN

    def factors(i: Indices, k: Expr, read: Callable[..., Expr]) -> tuple[Expr, Expr]:
        left = (k, i[-2]) if how.transpose_a else (i[-2], k)
        right = (i[-1], k) if how.transpose_b else (k, i[-1])
        return (
            read(0, *project(a.shape[:-2], batch, i[:-2]), *left),
            read(1, *project(b.shape[:-2], batch, i[:-2]), *right),
        )

    return _contract(outs[0], _matrix(a.shape, how.transpose_a)[1], factors, None)


def _wide(x: Array) -> Array:
    return x.astype(accumulator(to_dtype(x.dtype)).numpy())


def _matmul_reference(args: Sequence[Array], attrs: MatmulAttrs | None) -> list[Array]:
    how = attrs or PLAIN
    a = np.swapaxes(args[0], -1, -2) if how.transpose_a else args[0]
    b = np.swapaxes(args[1], -1, -2) if how.transpose_b else args[1]
    return [np.matmul(_wide(a), _wide(b)).astype(args[0].dtype)]


@operator(deduce=_deduce_matmul, reference=_matmul_reference, stages=matmul_stages, attrs=MatmulAttrs, arity=2)
def matmul(op: OpCall, x: T, y: T, transpose_a: bool = False, transpose_b: bool = False) -> T:
    """The matrix product `x @ y`; dims before the last two broadcast. With `transpose_b`, `y` is (…, n, k); `transpose_a` likewise.

    Without a transpose, a tensor of one dim is a row on the left and a column on the right; the result does not have that dim. Raises a
    ShapeError if the columns of `x` are not as many as the rows of `y`.
    """
    a, b = op.operands((x, y))
    attrs = MatmulAttrs(transpose_a, transpose_b) if transpose_a or transpose_b else None
    left, right = tensor_of(a.annotation).shape, tensor_of(b.annotation).shape
    row, column = len(left) == 1, len(right) == 1
    if attrs is not None or not (row or column):
        return op.emit(a, b, attrs=attrs)
    if (
        left and right and decide(Eq(left[-1], right[max(len(right) - 2, 0)])) is False
    ):  # before the reshapes, so that the error names the user's shapes
        facts = [f"`{v.name}` is {v.annotation}" for v in (a, b)]
        raise ShapeError(
            f"{op.name}: {left[-1]} columns of `{a.name}` meet {right[max(len(right) - 2, 0)]} rows of `{b.name}`", facts=facts
        )
    product = op.emit(reshape(a, (1, *left)) if row else a, reshape(b, (*right, 1)) if column else b)
    shape = tensor_of(product.annotation).shape
    return reshape(product, shape[: len(shape) - row - column] + (shape[-1:] if row and not column else ()))


def _deduce_linear(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    _numbers(d)
    x, weight = d.tensor(0), d.rank(1, 2)
    if not x.shape:
        raise d.error(f"linear: `{d.args[0].name}` has no dims", arg=0)
    message = f"{{0}} columns of `{d.args[0].name}` meet {{1}} columns of the weight `{d.args[1].name}`"
    d.equal(x.shape[-1], weight.shape[1], message)
    if len(d.args) == 3:
        d.equal(d.rank(2, 1).shape[0], weight.shape[0], "the bias has {0} elements, the weight {1} rows", arg=2)
    return (Tensor(x.dtype, (*x.shape[:-1], weight.shape[0])),)


def _linear_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: Any) -> tuple[Stage, ...]:
    def factors(i: Indices, k: Expr, read: Callable[..., Expr]) -> tuple[Expr, Expr]:
        return read(0, *i[:-1], k), read(1, i[-1], k)

    def add_bias(total: Expr, i: Indices, read: Callable[..., Expr]) -> Expr:
        bias = read(2, i[-1])
        return Add(total, bias if bias.dtype is total.dtype else Cast(total.dtype, bias))

    return _contract(outs[0], args[0].shape[-1], factors, add_bias if len(args) == 3 else None)


def _linear_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    product = np.matmul(_wide(args[0]), _wide(args[1]).T)
    return [(product + _wide(args[2]) if len(args) == 3 else product).astype(args[0].dtype)]


@operator(deduce=_deduce_linear, reference=_linear_reference, stages=_linear_stages, arity=(2, 3))
def linear(op: OpCall, x: T, weight: T, bias: T | None = None) -> T:
    """`x @ weight.T + bias`, with the weight as (out, in)."""
    return op.emit(*((x, weight) if bias is None else (x, weight, bias)))


@composite
def outer(op: OpCall, x: T, y: T) -> T:
    """The outer product of `x` (n) and `y` (m): (n, m). Raises a ShapeError for tensors of other ranks."""
    a, b = op.operands((x, y))
    for v in (a, b):
        if len(tensor_of(v.annotation).shape) != 1:
            raise ShapeError("outer takes two tensors of one dim", facts=[f"`{v.name}` is {v.annotation}"])
    return emit("mul", (reshape(a, (-1, 1)), reshape(b, (1, -1))))
