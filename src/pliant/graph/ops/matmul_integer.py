"""Matmul of 8-bit integer matrices with zero points, in i32, as ONNX's MatMulInteger.

    ops.matmul_integer(a, b)                   # u8 or i8 (…, m, k) x (…, k, n) -> i32 (…, m, n)
    ops.matmul_integer(a, b, a_zero, b_zero)   # (a - a_zero) @ (b - b_zero)

Zero points are applied outside of the sum of products, so that it maps to the dot-product instructions of CPUs:

    (a - a0) @ (b - b0) = a @ b - a0 * (sums of b's columns) - (sums of (a - a0)'s rows) * b0

i32 arithmetic wraps, so both sides are equal for all zero points. Sums over a weight are computed once, when a program is loaded.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dtype import i8, i32, u8
from ..deduce import Deduction
from ..node import Annotation, Tensor, Value
from ..operators import Array, OpCall, operator, tensor_of
from .compare import cast
from .elementwise import mul, sub
from .linalg import PLAIN, matmul_stages, product_shape
from .reduce import sum as sum_of
from .shape import reshape


def _deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    for k in (0, 1):
        if d.tensor(k).dtype not in (i8, u8):
            help_ = "cast both to i32 and use ops.matmul"
            raise d.error(f"matmul_integer: `{d.args[k].name}` is {d.tensor(k).dtype}, not i8 or u8", arg=k, help=help_)
    return (Tensor(i32, product_shape(d, PLAIN)),)


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    return [np.matmul(args[0].astype(np.int32), args[1].astype(np.int32))]


@operator(deduce=_deduce, reference=_reference, stages=matmul_stages, arity=2)
def matmul_integer(op: OpCall, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """The i32 matmul of u8 or i8 matrices, each minus its zero point.

    A zero point is one number, or one for each row of `a` and each column of `b`: of one dim, or (…, m, 1) and (…, 1, n).
    """
    x, y = op.operands((a, b))
    total: Any = op.emit(x, y)
    left = None if a_zero is None else _column(op.operand(a_zero, tensor_of(x.annotation).dtype))
    if left is not None:
        total = sub(total, mul(left, sum_of(_wide(y), axis=-2, keepdims=True)))
    if b_zero is not None:
        rows = _wide(x) if left is None else sub(_wide(x), left)
        right = _wide(op.operand(b_zero, tensor_of(y.annotation).dtype))
        total = sub(total, mul(sum_of(rows, axis=-1, keepdims=True), right))
    return total


def _column(zero: Value) -> Any:
    """Returns the zero points of rows as an i32 column, which broadcasts along the rows."""
    wide = _wide(zero)
    return reshape(wide, (-1, 1)) if len(tensor_of(zero.annotation).shape) == 1 else wide


def _wide(x: Value) -> Any:
    to: Any = i32
    return cast(x, to)
