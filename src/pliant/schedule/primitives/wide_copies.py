"""Copies of operands in a wider dtype: values are widened once, when the copy is made, instead of at each use.

    c[i, j] += cast(i32, a[i, k]) * …         a: u8
    c[i, j] += cast(i32, a_copy[i, k]) * …    a_copy: i16, made by a_copy[i, k] = cast(i16, a[i, k])

The wider dtype must hold every value of the narrower one, so a cast of the copy equals the cast of the value, and nothing is rounded. A
copy of a storage type holds what a load of it gives: i4 can be copied as i8 or wider, and stays i4 if no dtype is given.
"""

from __future__ import annotations

from ...dtype import DType
from ...dtype import dtype as to_dtype
from ...loop.buffer import Buffer, Load, loaded_dtype
from ...loop.stmt import Block, Func, Replacer
from ...support.errors import Error
from ...sym.expr import Cast, Expr
from ..errors import refuse


def wider(func: Func, block: Block, source: Buffer, dtype: str | None, what: str) -> DType:
    """Return the dtype of a copy, by default that of the buffer.

    Raise if there is no such dtype, or it does not hold every value of the buffer.
    """
    try:
        wide, narrow = source.dtype if dtype is None else to_dtype(dtype), source.dtype
    except Error as error:
        raise refuse(f"{what}: {error.what}", func, (block, f"reads {source!r}"), facts=error.facts) from None
    if wide is not narrow and not _holds(wide, narrow):
        raise refuse(f"{what} as {wide}: there are values of {narrow} that it does not hold", func, (block, f"reads {source!r}"))
    return wide


def _holds(wide: DType, narrow: DType) -> bool:
    """True if every value that a load of `narrow` gives is a value of `wide`."""
    loaded = loaded_dtype(narrow)
    if wide.storage:
        return False
    if wide is loaded:
        return True
    if loaded.is_float:
        return wide.is_float and wide.bits > loaded.bits
    return wide.is_int and loaded.is_int and wide.min <= loaded.min and loaded.max <= wide.max


def as_dtype(dtype: DType, value: Expr) -> Expr:
    """Return a value in a dtype; for a storage type, in its compute type, which a store to such a buffer takes."""
    compute = loaded_dtype(dtype)
    return value if value.dtype is compute else Cast(compute, value)


class FromCopy(Replacer):
    """Replaces loads of a buffer by loads of its copy in a wider dtype: a cast takes the wide value, other uses a rounded one."""

    __slots__ = ("place", "source")

    def __init__(self, source: Buffer, place: Load) -> None:
        super().__init__(loads=lambda e: as_dtype(e.dtype, place) if e.buffer is source else None)
        self.source, self.place = source, place

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, Cast) and isinstance(e.args[0], Load) and e.args[0].buffer is self.source:
            return as_dtype(e.dtype, self.place)
        return super()._leaf(e)
