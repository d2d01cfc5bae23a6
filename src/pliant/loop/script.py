"""The words of loop programs as Python names, for editors and type checkers: loops, blocks, memory, checks.

A kernel is parsed from its syntax tree and never executed, so these functions do nothing. Their signatures serve editors, linters and
type checkers, and a call from ordinary Python raises an error that explains this. `parse.py` recognizes the words by identity, under any
name that a user gives them.

    @kernel
    def matmul(a: Tensor[f32, n, 128], b: Tensor[f32, 128, 256], c: Out[f32, n, 256]) -> None:
        for i, j, k in grid(n, 256, 128):
            with block("c", "SSR", i, j, k) as (vi, vj, vk):
                with init():
                    c[vi, vj] = 0.0
                c[vi, vj] += a[vi, vk] * b[vk, vj]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from ..sym.script import outside

if TYPE_CHECKING:
    from ..sym.typing_stubs import Scalar, bool_

    T = TypeVar("T", bound=Scalar)
    A = TypeVar("A")
    B = TypeVar("B")
    C = TypeVar("C")
    X = TypeVar("X")
    Y = TypeVar("Y")
    Z = TypeVar("Z")
    Int = SupportsIndex
    Shape = tuple[Int, ...]

# Loops.


def serial(start: Int, stop: Int = 0, /, **annotations: object) -> Iterator[int]:
    """In a kernel: a serial loop like `range`, for loops that carry annotations. Calling it from Python raises an error."""
    outside("serial")


def parallel(start: Int, stop: Int = 0, /, **annotations: object) -> Iterator[int]:
    """In a kernel, a parallel loop: iterations run in any order and at the same time; none may touch what another one writes.

    Calling it from Python raises an error.
    """
    outside("parallel")


def vector(start: Int, stop: Int = 0, /, **annotations: object) -> Iterator[int]:
    """In a kernel, a vector loop: its iterations are SIMD lanes. Calling it from Python raises an error."""
    outside("vector")


def unroll(start: Int, stop: Int = 0, /, **annotations: object) -> Iterator[int]:
    """In a kernel: a loop that is unrolled completely. Calling it from Python raises an error."""
    outside("unroll")


def gpu(axis: str, start: Int, stop: Int = 0, /, **annotations: object) -> Iterator[int]:
    """In a kernel, iterations bound to an axis of a GPU's grid: "block.x", "thread.x", … Calling it from Python raises an error."""
    outside("gpu")


@overload
def grid(a: Int, /) -> Iterator[int]: ...
@overload
def grid(a: Int, b: Int, /) -> Iterator[tuple[int, int]]: ...
@overload
def grid(a: Int, b: Int, c: Int, /) -> Iterator[tuple[int, int, int]]: ...
@overload
def grid(*extents: Int, outermost: str = "serial", innermost: str = "serial") -> Iterator[Any]: ...
def grid(*extents: Int, outermost: str = "serial", innermost: str = "serial") -> Any:
    """In a kernel: nested serial loops; the first is the outermost. In inline functions, the first and the last one may be of another kind.

    Calling it from Python raises an error.
    """
    outside("grid")


# Blocks.


@overload
def block(name: str, kinds: str = "", /) -> AbstractContextManager[None]: ...
@overload
def block(name: str, kinds: str, a: Int, /) -> AbstractContextManager[int]: ...
@overload
def block(name: str, kinds: str, a: Int, b: Int, /) -> AbstractContextManager[tuple[int, int]]: ...
@overload
def block(name: str, kinds: str, a: Int, b: Int, c: Int, /) -> AbstractContextManager[tuple[int, int, int]]: ...
@overload
def block(name: str, kinds: str, a: Int, b: Int, c: Int, d: Int, /) -> AbstractContextManager[tuple[int, int, int, int]]: ...
@overload
def block(name: str, kinds: str, a: Int, b: Int, c: Int, d: Int, e: Int, /, *more: Int) -> AbstractContextManager[Any]: ...
def block(name: str, kinds: str = "", /, *values: Int) -> Any:
    """In a kernel, a unit of computation over iterators: one letter (S spatial, R reduction, O ordered) and one value for each.

    Calling it from Python raises an error.
    """
    outside("block")


def init() -> AbstractContextManager[None]:
    """In a kernel: the statements that run before the first reduction step of a block. Calling it from Python raises an error."""
    outside("init")


def where(condition: bool | bool_, /) -> None:
    """In a kernel, the block's predicate: it runs only where the condition holds. Calling it from Python raises an error."""
    outside("where")


def reads(*regions: object) -> None:
    """In a kernel: the regions that the block reads, such as `a[vi, 0:128]`; derived if not written.

    Calling it from Python raises an error.
    """
    outside("reads")


def writes(*regions: object) -> None:
    """In a kernel: the regions that the block writes; derived if not written. Calling it from Python raises an error."""
    outside("writes")


def annotate(**annotations: object) -> None:
    """In a kernel: annotations of the block, for schedules. Calling it from Python raises an error."""
    outside("annotate")


# Memory, reductions, checks.


def alloc(shape: Int | Shape, dtype: type[T], /, *, scope: str = "workspace", strides: Shape | None = None) -> T:
    """In a kernel: a new buffer; its contents are undefined. Calling it from Python raises an error."""
    outside("alloc")


@overload
def view(start: T, shape: Int | Shape, /, *, strides: Shape | None = None) -> T: ...
@overload
def view(start: Scalar, shape: Int | Shape, /, *, dtype: type[T], strides: Shape | None = None) -> T: ...
def view(start: Any, shape: Any, /, *, dtype: Any = None, strides: Any = None) -> Any:
    """In a kernel: a view of another buffer's memory from the element `start` on; u8 bytes may be viewed as another dtype.

    Calling it from Python raises an error.
    """
    outside("view")


@overload
def combine(combiner: Callable[[A, X], object], targets: A, values: X, /) -> A: ...
@overload
def combine(combiner: Callable[[A, B, X, Y], tuple[object, object]], targets: tuple[A, B], values: tuple[X, Y], /) -> tuple[A, B]: ...
@overload
def combine(
    combiner: Callable[[A, B, C, X, Y, Z], tuple[object, object, object]], targets: tuple[A, B, C], values: tuple[X, Y, Z], /
) -> tuple[A, B, C]: ...
@overload
def combine(combiner: Callable[..., tuple[object, ...]], targets: A, values: object, /) -> A: ...
def combine(combiner: Any, targets: Any, values: Any, /) -> Any:
    """In a kernel, a reduction of tuples: `m[i], j[i] = combine(lambda a, i, b, k: (...), (m[i], j[i]), (x[i, k], k))`.

    Calling it from Python raises an error.
    """
    outside("combine")


def compute(target: Any, element: Callable[..., object], /) -> Any:
    """Defines a tensor by the formula of its elements: `t = compute((n, m), lambda i, j: x[i, j])`, or `compute(c, lambda i, j: ...)`.

    Only kernels use it: calling it from Python raises an error.
    """
    outside("compute")


def sum_over(element: Callable[..., A], /, *extents: Int) -> A:
    """In a kernel, the sum of a formula over further indices, in a `compute`: `sum_over(lambda k: a[i, k] * b[k, j], 128)`.

    Calling it from Python raises an error.
    """
    outside("sum_over")


def prod_over(element: Callable[..., A], /, *extents: Int) -> A:
    """In a kernel: the product over further indices, in a `compute`. Calling it from Python raises an error."""
    outside("prod_over")


def min_over(element: Callable[..., A], /, *extents: Int) -> A:
    """In a kernel: the minimum over further indices, in a `compute`. Calling it from Python raises an error."""
    outside("min_over")


def max_over(element: Callable[..., A], /, *extents: Int) -> A:
    """In a kernel: the maximum over further indices, in a `compute`. Calling it from Python raises an error."""
    outside("max_over")


def check(condition: bool | bool_, message: str, /, *values: Scalar | int, help: str = "", kind: str = "check") -> None:
    """A run-time check: if the condition is false, the call fails with the message, with `{0}`, `{1}`, … replaced by the values.

    Only kernels use it: calling it from Python raises an error.
    """
    outside("check")


# The words of loop programs. The scalar functions are words of both languages: see `sym.script`.
__all__ = [
    "alloc", "annotate", "block", "check", "combine", "compute", "gpu", "grid", "init", "max_over", "min_over", "parallel", "prod_over",
    "reads", "serial", "sum_over", "unroll", "vector", "view", "where", "writes",
]  # fmt: skip
