"""The context of one ATen node during import: what torch deduced for it, dtype promotion by torch's rule, and errors that name the node.

    def add(site, self, other, alpha=1):
        a, b = site.promoted("self", "other")

Errors say which operator, in which layer of the model, on which line of the user's source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...dtype import DType, bool_, f64, i64
from ...graph.node import Scalar, Tensor, Value
from ...graph.operators import tensor_of
from ...support.errors import Error, UnsupportedError
from ...sym.expr import Expr
from .dtypes import dtype_of
from .emit import ops
from .symbols import plain

if TYPE_CHECKING:
    from .importer import Importer


class Site:
    """An ATen node being imported: its operator, its arguments by name (`args`), and these as torch sees them (`fakes`)."""

    def __init__(self, importer: Importer, node: Any, name: str, fakes: dict[str, Any]) -> None:
        self.importer, self.node, self.op = importer, node, name
        self.fakes = fakes  # the arguments as torch sees them: fake tensors, symbolic integers, numbers

    def __str__(self) -> str:
        layer = self.importer.layer
        return f"{self.op}{f' in `{layer}`' if layer else ''}"

    def unsupported(self, what: str, **more: Any) -> UnsupportedError:
        """Returns (and does not raise) the UnsupportedError for a use of the operator that is not supported, with the user's line."""
        return UnsupportedError(f"torch: {self}: {what}", where=self.importer.builder.span, **more)

    def named(self, error: Error) -> Error:
        """Returns an operator's error as an UnsupportedError about this node of the model; one that names torch already stays."""
        if error.what.startswith("torch: "):
            return error
        facts = error.facts
        return UnsupportedError(f"torch: {self}: {error.what}", where=self.importer.builder.span, facts=facts, help=error.help)

    # Results.

    @property
    def val(self) -> Any:
        """The result as torch deduced it: a fake tensor, a symbolic number, or a list of these."""
        return self.node.meta["val"]

    def dtype(self, k: int | None = None) -> DType:
        """Returns the dtype that torch deduced for the result, or for result `k` of several.

        Raises UnsupportedError if programs have no such elements.
        """
        val = self.val if k is None else self.val[k]
        return dtype_of(val.dtype)

    def cast(self, x: Any, to: DType) -> Any:
        """Returns a value as a tensor of a dtype; Python numbers become literals, and expressions become tensors without dims."""
        if isinstance(x, Expr):
            scalar = self.importer.builder.scalar(x)
            x = ops.reshape(scalar if x.dtype is to else ops.cast(scalar, to), ())
        if not isinstance(x, Value):
            return ops.constant(_number(x, to), to)
        return x if _dtype(x) is to else ops.cast(x, to)

    # Promotion.

    def promoted(self, *names: str) -> list[Any]:
        """Returns these arguments as tensors of the dtype that torch computes the operator in: its promotion of them."""
        to = self.common(*names)
        return [self.cast(self.args[n], to) for n in names]

    def common(self, *names: str) -> DType:
        """Returns the dtype to which torch promotes these arguments, which depends on their dtypes, and on whether they are numbers."""
        from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
        from torch._prims_common import elementwise_dtypes

        fakes = [self.fakes[n] for n in names]
        _, result = elementwise_dtypes(*fakes, type_promotion_kind=KIND.DEFAULT)
        return dtype_of(result)

    args: dict[str, Any]


def shape(x: Any) -> tuple[Any, ...]:
    """Returns the extents of a value: integers where they are constant, else expressions over dims."""
    return tuple(plain(n) for n in tensor_of(x.annotation).shape)


def rank(x: Any) -> int:
    """Returns the number of dims of a value."""
    return len(tensor_of(x.annotation).shape)


def normal(axis: int, dims: int) -> int:
    """Returns an axis counted from the start; torch allows 0 and -1 for a tensor without dims."""
    return axis + max(dims, 1) if axis < 0 else axis


def axes(dim: Any, dims: int) -> list[int]:
    """Returns axes counted from the start, of one number or a list; all of them for None or an empty list."""
    if dim is None or dim == []:
        return list(range(dims))
    return [normal(a, dims) for a in (dim if isinstance(dim, list | tuple) else [dim])]


def _dtype(x: Value) -> DType:
    """Returns the dtype of a tensor or scalar value."""
    a = x.annotation
    assert isinstance(a, Tensor | Scalar)
    return a.dtype


def _number(x: Any, to: DType) -> Any:
    """Returns a Python number as one that a literal of the dtype can have; integers wrap around."""
    if to is bool_:
        return bool(x)
    return float(x) if to.is_float else to.wrap(int(x))


dtype_in = _dtype
INDEX, DOUBLE = i64, f64
