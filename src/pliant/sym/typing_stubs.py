"""Type stubs of the languages for type checkers: dtypes are classes, a tensor is its dtype, a dim is an integer.

Nothing here exists at run time (`spec.py` imports it under TYPE_CHECKING only). To a checker a parameter `a: Tensor[f32, n]` has the type
`f32`, and so has its element `a[i]`. So the operations on elements type-check, and operands of different dtypes are an error as they are
in the language. Loop variables and block iterators are `int`.

    def f(a: Tensor[f32, n], b: Tensor[i32, n]) -> None:
        a[0] = a[1] * 2.0          # fine
        a[0] = a[1] * b[1]         # error: unsupported operand types
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self, SupportsIndex

Index = SupportsIndex | slice


class Scalar:
    """The base of the dtypes for type checkers: a scalar or a tensor of one dtype."""

    def __init__(self, value: Scalar | float) -> None: ...
    def __getitem__(self, index: Index | tuple[Index, ...]) -> Self:
        raise NotImplementedError

    def __setitem__(self, index: Index | tuple[Index, ...], value: Self | float) -> None: ...

    # Graph programs use the shape and its extents.
    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of a tensor, for type checkers."""
        raise NotImplementedError

    # Written out, because checkers do not report "unsupported operand types" for an alias.
    def __add__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __radd__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __sub__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __rsub__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __mul__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __rmul__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __truediv__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __rtruediv__(self, other: Self | float) -> Self:
        raise NotImplementedError

    def __lt__(self, other: Self | float) -> bool:
        raise NotImplementedError

    def __le__(self, other: Self | float) -> bool:
        raise NotImplementedError

    def __gt__(self, other: Self | float) -> bool:
        raise NotImplementedError

    def __ge__(self, other: Self | float) -> bool:
        raise NotImplementedError

    def _unary(self) -> Self:
        raise NotImplementedError

    __neg__ = __pos__ = __abs__ = _unary

    def __matmul__(self, other: Self) -> Self:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError

    def __ne__(self, other: object) -> bool:
        raise NotImplementedError

    def __round__(self, ndigits: None = None) -> Self:
        raise NotImplementedError


class Integer(Scalar):
    """The base of the integer dtypes for type checkers: an index, a loop bound, bits."""

    def __index__(self) -> int:
        raise NotImplementedError

    def __floordiv__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rfloordiv__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __mod__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rmod__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __and__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rand__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __or__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __ror__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __xor__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rxor__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __lshift__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rlshift__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rshift__(self, other: Self | int) -> Self:
        raise NotImplementedError

    def __rrshift__(self, other: Self | int) -> Self:
        raise NotImplementedError

    __invert__ = Scalar._unary


class bool_(Scalar):
    """The dtype `bool_` for type checkers: a bool, or a tensor of bools. It can be a condition."""

    def __bool__(self) -> bool:
        raise NotImplementedError


class i8(Integer): ...


class i16(Integer): ...


class i32(Integer): ...


class i64(Integer): ...


class u8(Integer): ...


class u16(Integer): ...


class u32(Integer): ...


class u64(Integer): ...


class f16(Scalar): ...


class bf16(Scalar): ...


class f32(Scalar): ...


class f64(Scalar): ...


# Storage types: a load gives the wider type, and a store takes it.


class i2(i8): ...


class i4(i8): ...


class u2(u8): ...


class u4(u8): ...


class f4e2m1(f32): ...


class f8e4m3(f32): ...


class f8e4m3fn(f32): ...


class f8e4m3fnuz(f32): ...


class f8e5m2(f32): ...


class f8e5m2fnuz(f32): ...


class f8e8m0(f32): ...


class Result(bool_, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64):
    """The result of calling a kernel or a function: inside a function a tensor of any dtype, outside an array or a tuple of them."""

    def _any(self, other: Any) -> Any:
        raise NotImplementedError

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = _any
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _any
    __lt__ = __le__ = __gt__ = __ge__ = _any
    __getitem__ = _any

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError


class DimInt(int):
    """A dim for type checkers: an integer that is known at run time."""

    name: str
    min: int
    max: int
    multiple_of: int
    contract: str

    def __new__(cls, *args: Any) -> Self:
        raise NotImplementedError
