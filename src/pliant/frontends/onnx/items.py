"""Items: what a name of an ONNX graph refers to during import.

    item = Value                a value of the graph program
         | Known(array)         a tensor whose elements are known: numbers, or expressions over dims (object arrays)
         | Sequence(items)      a list of tensors; its length is known, so the importer replaces it by its elements
         | Maybe(item or None)  an optional
         | Narrow(value, dtype) sub-byte elements stored one per byte, because their rows do not fill whole bytes

ONNX computes shapes as tensors. The importer evaluates them as arrays of expressions, so a reshape by them keeps symbolic dims.
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
    """A tensor whose elements are known at import: a numeric array, or an object array of integers, bools and expressions over dims."""

    array: Array
    dtype: DType
    name: str = ""

    @property
    def symbolic(self) -> bool:
        """True if an element is an expression."""
        return bool(self.array.dtype == object)


@dataclass(frozen=True, eq=False, slots=True)
class Sequence:
    """An ONNX sequence of tensors, with its length known at import."""

    items: tuple[Any, ...]
    dtype: DType | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Maybe:
    """An ONNX optional, which may be empty (None)."""

    item: Any


@dataclass(frozen=True, eq=False, slots=True)
class Narrow:
    """A tensor of the sub-byte `dtype` that the program stores with one byte per element."""

    value: Value
    dtype: DType


Item = Value | Known | Sequence | Maybe | Narrow
WIDE = {"i4": "i8", "i2": "i8", "u4": "u8", "u2": "u8", "f4e2m1": "f8e4m3fn"}  # sub-byte dtype -> a byte dtype that represents it exactly


def fills_bytes(dtype: DType, shape: tuple[Any, ...]) -> bool:
    """True if rows of this dtype are known to end at a byte boundary, so that they can be packed."""
    last = shape[-1] if shape else 1
    last = last.value if isinstance(last, Const) else last
    return dtype.bits >= 8 or (isinstance(last, int) and last % dtype.per_byte == 0)


def numbers(array: Array, name: str = "") -> Known:
    """Returns a known tensor of numbers from an array."""
    return Known(array, to_dtype(array.dtype), name)


def known(elements: Any, dtype: DType = i64) -> Known:
    """Returns a known tensor of numbers and expressions; a numeric one if all expressions simplify to constants."""
    array = np.asarray(elements, object)
    plain = np.frompyfunc(_plain, 1, 1)(array) if array.ndim else np.asarray(_plain(array[()]), object)
    if any(isinstance(e, Expr) for e in plain.flat):
        return Known(plain, dtype)
    return Known(plain.astype(dtype.numpy()), dtype)


def _plain(element: Any) -> Any:
    """Returns an element as a Python number if it is one, otherwise as a simplified expression."""
    if not isinstance(element, Expr):
        return element.item() if isinstance(element, np.generic) else element
    simple = simplify(element)
    return simple.value if isinstance(simple, Const) else simple


def as_item(value: Any) -> Item:
    """Returns the item for the result of a rule; a host scalar with a symbolic value becomes a known tensor."""
    a = value.annotation if isinstance(value, Value) else None
    if isinstance(a, Scalar) and a.value is not None:
        return known(a.value, a.dtype)
    assert isinstance(value, Item)
    return value


def as_expr(element: Any, dtype: DType) -> Expr:
    """Returns an element of a known tensor as an expression; numbers become literals of the dtype."""
    return element if isinstance(element, Expr) else Const(element, dtype)


BOOL = ALL["bool"]
