"""The errors that an interpreted loop program raises: an index out of range, a failed check."""

from __future__ import annotations

from collections.abc import Callable

from ..loop.buffer import Buffer
from ..loop.stmt import Check
from ..support.errors import Error, ShapeError
from ..support.source import Span
from .memory import Ints


class OutOfRange:
    """A callable that raises the error for an out-of-range access to one buffer at one statement, from the index and the buffer's shape."""

    __slots__ = ("buffer", "span")

    def __init__(self, buffer: Buffer, span: Span | None) -> None:
        self.buffer, self.span = buffer, span

    def __call__(self, index: Ints, shape: Ints) -> None:
        """Raises the out-of-range error for this index of a buffer of this shape."""
        extra = len(shape) - self.buffer.ndim  # a buffer allocated per lane has the lane axes in front
        index, shape = index[extra:], shape[extra:]
        pairs = enumerate(zip(index, shape, strict=True))
        bad = [f"index {d} is {i}, and dim {d} has {n} elements" for d, (i, n) in pairs if not 0 <= i < n]
        shown = ", ".join(map(str, index))
        raise Error(
            f"index [{shown}] is outside of `{self.buffer.name}`, which has shape {list(shape)}",
            where=self.span,
            note="this access",
            facts=bad,
        )

    def of(self, shape: Ints) -> Callable[[Ints], None]:
        """Returns a function that raises the error for an index, for a known shape."""
        return lambda index: self(index, shape)


def out_of_range(buffer: Buffer, span: Span | None) -> OutOfRange:
    """Returns the callable that raises the error for an access to `buffer` at `span`."""
    return OutOfRange(buffer, span)


def failed(check: Check, span: Span | None) -> Callable[..., None]:
    """A function that raises the error for a failed check, from the values of its message."""
    kind = ShapeError if check.kind == "shape" else Error

    def fail(*values: int) -> None:
        raise kind(check.message.format(*values), where=span, help=check.help)

    return fail
