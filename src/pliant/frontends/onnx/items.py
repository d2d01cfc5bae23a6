"""What the names of an ONNX graph stand for while it is imported.

    item = Value                a value of the graph program
         | Known(array)         a tensor whose elements are known: numbers, or expressions over dims (object arrays)
         | Sequence(items)      a list of tensors: its length is known, so it is taken apart while importing
         | Maybe(item or None)  an optional
         | Narrow(value, dtype) elements of less than a byte, one in each byte, where their rows do not fill bytes

Shapes are tensors in ONNX. As arrays of expressions they are computed while importing, so that what is reshaped by them keeps its symbols.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dtype import ALL, DType, i64
from ...dtype import dtype as to_dtype
from ...graph.node import Scalar, Value
from ...support.record import dataclass
from ...sym.expr import Const, Expr
from ...sym.simplify import simplify

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """A tensor with known elements: an array of numbers, or one of objects (integers, bools and expressions)."""

    array: Array
    dtype: DType
    name: str = ""

    @property
    def symbolic(self) -> bool:
        """True where an element is an expression."""
        return bool(self.array.dtype == object)


@dataclass(frozen=True, eq=False, slots=True)
class Sequence:
    """A sequence of tensors."""

    items: tuple[Any, ...]
    dtype: DType | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Maybe:
    """An optional, which may be empty."""

    item: Any


@dataclass(frozen=True, eq=False, slots=True)
class Narrow:
    """A value of bytes whose elements are those of a smaller dtype."""

    value: Value
    dtype: DType


Item = Value | Known | Sequence | Maybe | Narrow
WIDE = {"i4": "i8", "i2": "i8", "u4": "u8", "u2": "u8", "f4e2m1": "f8e4m3fn"}  # types of a byte that have all elements of a smaller one


def fills_bytes(dtype: DType, shape: tuple[Any, ...]) -> bool:
    """Whether rows of this dtype are known to end with a byte."""
    last = shape[-1] if shape else 1
    last = last.value if isinstance(last, Const) else last
    return dtype.bits >= 8 or (isinstance(last, int) and last % dtype.per_byte == 0)


def numbers(array: Array, name: str = "") -> Known:
    """A tensor of numbers."""
    return Known(array, to_dtype(array.dtype), name)


def known(elements: Any, dtype: DType = i64) -> Known:
    """A tensor of numbers and expressions; of numbers alone where all expressions turn out to be some."""
    array = np.asarray(elements, object)
    plain = np.frompyfunc(_plain, 1, 1)(array) if array.ndim else np.asarray(_plain(array[()]), object)
    if any(isinstance(e, Expr) for e in plain.flat):
        return Known(plain, dtype)
    return Known(plain.astype(dtype.numpy()), dtype)


def _plain(element: Any) -> Any:
    if not isinstance(element, Expr):
        return element.item() if isinstance(element, np.generic) else element
    done = simplify(element)
    return done.value if isinstance(done, Const) else done


def as_item(value: Any) -> Item:
    """What an operator resulted in; a host scalar that is known in terms of dims is a known tensor."""
    a = value.annotation if isinstance(value, Value) else None
    if isinstance(a, Scalar) and a.value is not None:
        return known(a.value, a.dtype)
    assert isinstance(value, Item)
    return value


def as_expr(element: Any, dtype: DType) -> Expr:
    """An element as an expression."""
    return element if isinstance(element, Expr) else Const(element, dtype)


BOOL = ALL["bool"]
