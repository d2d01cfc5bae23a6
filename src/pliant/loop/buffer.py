"""Buffers (the memory that loop programs read and write) and `Load` (the expression that reads an element).

A buffer has a dtype, a symbolic shape, strides (in elements; row-major contiguous by default) and a scope:

    global      an argument: memory of the caller
    workspace   memory of the call (`Ctx.workspace`), any size, shared by the threads of a launch
    stack       private to one iteration of the enclosing parallel loop; constant size
    register    like stack, and every index is a constant once loops are unrolled: never in memory

Elements smaller than a byte are packed: element number k of the whole buffer starts at bit `k * bits`, low bits first. A parameter of
such a type has rows of whole bytes (its last dim is a multiple of the number of elements in a byte); local buffers may have any shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import prod
from typing import Literal

from ..dtype import DType, dtype, i64, u8
from ..support.record import dataclass
from ..sym.expr import Const, Expr, product
from ..sym.hash_consing import hash_consed
from ..sym.walk import fold_up

Scope = Literal["global", "workspace", "stack", "register"]
SCOPES: tuple[Scope, ...] = ("global", "workspace", "stack", "register")
# The stack bytes that all buffers of a program may take together. Threads have 512 KiB of stack on some systems, and a wasm module has
# 256 KiB in all. A stack overflow would end the process.
MOST_STACK = 1 << 17

_WIDENED = {"i4": "i8", "i2": "i8", "u4": "u8", "u2": "u8"}  # storage type -> compute type; the small floats become f32


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """A multi-dimensional array in memory (name, dtype, shape, strides, scope); compared by identity."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...] | None = None
    scope: Scope = "global"
    _strides: list[tuple[Expr, ...]] = field(default_factory=list, repr=False)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def element_strides(self) -> tuple[Expr, ...]:
        """Returns the strides in elements: the buffer's own if it has some, else the row-major contiguous ones."""
        if self.strides is not None:
            return self.strides
        if not self._strides:
            self._strides.append(tuple(product(self.shape[i + 1 :]) for i in range(self.ndim)))
        return self._strides[0]

    def flat_index(self, indices: tuple[Expr, ...]) -> Expr:
        """Returns the expression of an element's flat index, in elements from the buffer's start."""
        total: Expr = Const(0, i64)
        for index, stride in zip(indices, self.element_strides(), strict=True):
            total = total + index * stride
        return total

    def load(self, *indices: Expr) -> Load:
        """Returns the expression that loads the element at `indices`."""
        return Load(self, indices)

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def stack_bytes(buffer: Buffer) -> int:
    """The stack bytes of a stack or register buffer of constant size, else 0; registers count, because they may be spilled."""
    if buffer.scope not in ("stack", "register") or not all(isinstance(e, Const) for e in buffer.shape):
        return 0
    return -(-prod(int(e.value) for e in buffer.shape if isinstance(e, Const)) * buffer.dtype.bits // 8)


def loaded_dtype(stored: DType) -> DType:
    """The compute type of a loaded element: storage types are widened."""
    if not stored.storage:
        return stored
    return dtype(_WIDENED.get(stored.name, "f32"))


def code_type(stored: DType) -> DType:
    """The unsigned integer type of the codes of a storage type."""
    return u8 if stored.bits == 8 else dtype(f"u{stored.bits}")


def may_be_seen_as(source: DType, seen: DType) -> bool:
    """True if a view may give memory another type: bytes may be viewed as any type, a storage type as its codes or as bytes."""
    return seen is source or source is u8 or (source.storage and seen in (code_type(source), u8))


class Load(Expr):
    """An expression: the element of `buffer` at `indices` (i64, one for each dimension)."""

    __slots__ = ()

    def __new__(cls, buffer: Buffer, indices: tuple[Expr, ...]) -> Load:
        return hash_consed(cls, loaded_dtype(buffer.dtype), buffer, indices)

    @property
    def buffer(self) -> Buffer:
        """The buffer that is read."""
        buffer: Buffer = self.payload
        return buffer

    @property
    def indices(self) -> tuple[Expr, ...]:
        """The position, one i64 expression for each dimension."""
        return self.args


def has_load(e: Expr) -> bool:
    """True if `e` reads memory (memoized)."""
    answer: bool = fold_up(e, "load", lambda node, below: isinstance(node, Load) or any(below))
    return answer


def loads_in(expressions: Iterable[Expr]) -> list[Load]:
    """The loads in expressions, each once; subexpressions without loads are skipped."""
    stack = [e for e in expressions if has_load(e)]
    seen, loads = set(stack), []
    while stack:
        e = stack.pop()
        if isinstance(e, Load):
            loads.append(e)
        for a in e.args:
            if a not in seen and has_load(a):
                seen.add(a)
                stack.append(a)
    return loads


def loaded(e: Expr) -> frozenset[Buffer]:
    """The buffers that an expression reads (memoized)."""
    buffers: frozenset[Buffer] = fold_up(e, "loaded", _loaded)
    return buffers


_NOTHING: frozenset[Buffer] = frozenset()


def _loaded(e: Expr, below: list[frozenset[Buffer]]) -> frozenset[Buffer]:
    """The union of the buffers below a node and its own; returns one of the sets itself where that is the union."""
    sets = [x for x in below if x]
    if isinstance(e, Load):
        sets.append(frozenset((e.buffer,)))
    return sets[0] if len(sets) == 1 else _NOTHING.union(*sets)
