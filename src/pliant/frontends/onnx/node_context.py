"""The context of one node during import: typed, checked access to its inputs and attributes, and errors that name the node.

    def softmax(site):
        return ops.softmax(site.x(0), axis=site.axis("axis", site.rank(0), -1))

Errors begin with the node: `onnx: node "/layer3/Resize" (Resize, opset 18): …`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...dtype import DType, i64
from ...graph.node import Tensor, Value
from ...graph.operators import tensor_of
from ...support.errors import Error, ModelFileError, UnsupportedError
from ...sym.expr import Const, Expr, Select, const
from ...sym.simplify import simplify
from .dtypes import dtype_of, type_name
from .items import Item, Known, Maybe, Narrow, Sequence

if TYPE_CHECKING:
    from .importer import Importer, Scope

T = TypeVar("T")
Array = np.ndarray[Any, Any]
# Values of AttributeProto.AttributeType.
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 5, 6, 7, 8


class NeededError(UnsupportedError):
    """A value needed at import time is known only at run time; `inputs` are the model inputs to fix, `dims` if their dims suffice."""

    inputs: tuple[str, ...] = ()
    dims: bool = False


class NodeContext:
    """An ONNX node being imported: checked access to its inputs and attributes, and errors that name the node."""

    def __init__(self, importer: Importer, scope: Scope, node: Any, version: int, domain: str, items: list[Item | None]) -> None:
        self.importer, self.scope, self.node = importer, scope, node
        self.op: str = node.op_type
        self.domain, self.version = domain, version
        self.items: list[Any] = list(items)
        self.attributes: dict[str, Any] = scope.resolved(node)
        self.asked: set[str] = set()  # the names of the attributes that the rule has read

    # Errors.

    def __str__(self) -> str:
        domain = f"{self.domain}." if self.domain else ""
        return f'node "{self.label}" ({domain}{self.op}, opset {self.version})'

    @property
    def label(self) -> str:
        """The name of the ONNX node, or of its first result if it has none."""
        return str(self.node.name or next(iter(self.node.output), ""))

    def wrong(self, what: str, **more: Any) -> ModelFileError:
        """Returns the ModelFileError for an invalid model, which names the node."""
        return ModelFileError(f"onnx: {self}: {what}", **more)

    def unsupported(self, what: str, **more: Any) -> UnsupportedError:
        """Returns the UnsupportedError for a feature of the standard that is not supported, which names the node."""
        return UnsupportedError(f"onnx: {self}: {what}", **more)

    def require(self, holds: bool, what: str) -> None:
        """Raises a ModelFileError about the model unless `holds`."""
        if not holds:
            raise self.wrong(what)

    def named(self, error: Error) -> Error:
        """Returns an operator's error as an error about this node of the model."""
        if error.what.startswith("onnx: "):
            return error
        kind = UnsupportedError if isinstance(error, UnsupportedError) else ModelFileError
        return kind(f"onnx: {self}: {error.what}", facts=error.facts, help=error.help)

    def check(self, holds: Expr, what: str) -> None:
        """Records an assumption about dims, and emits a run-time check of it."""
        from .emit import ops

        self.importer.assumed.append(holds)
        # A match_cast checks shapes only, so the condition becomes the extent of a tensor: 1 if it holds, else 0.
        witness = ops.full((simplify(Select(holds, const(1), const(0))),), 0.0)
        self.importer.builder.match_cast(witness, Tensor(witness.tensor.dtype, (const(1),)), f"onnx: {self}: {what}")

    def check_read(self, harmless: frozenset[str]) -> None:
        """Raises UnsupportedError if the rule ignored an attribute with a non-default value; needed for domains without schemas."""
        for name, attribute in self.attributes.items():
            value = next((getattr(attribute, f) for k, f in ((1, "f"), (2, "i"), (3, "s")) if attribute.type == k), True)
            if name not in self.asked and name not in harmless and value not in (0, b"", b"NONE"):
                raise self.unsupported(f'attribute "{name[:80]}" is not supported')

    # Inputs.

    def has(self, k: int) -> bool:
        """True if input `k` is present."""
        return k < len(self.items) and self.items[k] is not None

    def item(self, k: int) -> Item:
        """Returns input `k` of any kind; raises ModelFileError if it is missing."""
        item: Item | None = self.items[k] if k < len(self.items) else None
        if item is None:
            raise self.wrong(f"input {k} is missing")
        return item

    def x(self, k: int) -> Any:
        """Returns input `k` as a value of the graph program."""
        return self.importer.value(self.item(k), self)

    def get(self, k: int) -> Any:
        """Returns input `k` as a value of the graph program; None if it is omitted."""
        return self.x(k) if self.has(k) else None

    def xs(self) -> list[Any]:
        """Returns all inputs as values of the graph program."""
        return [self.x(k) for k in range(len(self.items))]

    def tensor(self, k: int) -> Tensor:
        """Returns the tensor annotation of input `k`: dtype and shape; raises ModelFileError for a sequence or an optional."""
        item = self.item(k)
        if isinstance(item, Known):
            return Tensor(item.dtype, tuple(const(int(n)) for n in item.array.shape))
        if isinstance(item, Narrow):
            return Tensor(item.dtype, tensor_of(item.value.annotation).shape)
        if isinstance(item, Maybe | Sequence):
            raise self.wrong(f"input {k} is a {type(item).__name__.lower()}, a tensor is expected")
        return tensor_of(item.annotation)

    def rank(self, k: int) -> int:
        """Returns the number of dims of input `k`."""
        return len(self.tensor(k).shape)

    def dtype(self, k: int) -> DType:
        """Returns the dtype of input `k`."""
        return self.tensor(k).dtype

    def shape(self, k: int) -> tuple[Any, ...]:
        """Returns the extents of input `k`: integers, and expressions over dims."""
        from ...sym.expr import Const

        return tuple(n.value if isinstance(n, Const) else n for n in self.tensor(k).shape)

    def known(self, k: int) -> Array:
        """Returns input `k` as a numeric array; raises NeededError if it is known only at run time."""
        item = self.item(k)
        if isinstance(item, Known) and not item.symbolic:
            return item.array
        raise self.importer.needed(self, k)

    def known_ints(self, k: int) -> list[int]:
        """Returns input `k` as a list of integers.

        Raises NeededError if it is known only at run time, ModelFileError if it is no list of integers.
        """
        array = self.known(k)
        self.require(
            array.dtype.kind in "iu" and array.ndim <= 1, f"input {k} is {array.dtype} of shape {array.shape}, not a list of integers"
        )
        return [int(n) for n in array.reshape(-1)]

    def number(self, k: int) -> Any:
        """Returns input `k` as one Python number.

        Raises NeededError if it is known only at run time, ModelFileError if it has another number of elements.
        """
        array = self.known(k)
        self.require(array.size == 1, f"input {k} has {array.size} elements, one is expected")
        return array.reshape(-1)[0].item()

    def dims(self, k: int) -> list[Any]:
        """Returns input `k`, a shape, as integers and expressions; raises NeededError if it is known only at run time."""
        item = self.item(k)
        if isinstance(item, Known):
            self.require(item.array.ndim <= 1 and item.dtype.is_int, f"input {k} is not a list of integers")
            return [n if isinstance(n, Expr) else int(n) for n in item.array.reshape(-1)]
        raise self.importer.needed(self, k)

    def settle(self, k: int, *dims: Any) -> None:
        """Asserts symbolic dims at the end of input `k` by a match_cast (None for any value); the rule itself checks constant ones."""
        t = self.tensor(k)
        expected = [const(n) if isinstance(n, int) else n for n in dims]
        if len(t.shape) < len(expected) or not isinstance(self.items[k], Value):
            return
        head, last = t.shape[: len(t.shape) - len(expected)], t.shape[len(t.shape) - len(expected) :]
        new = (*head, *(n if m is None or isinstance(n, Const) else m for n, m in zip(last, expected, strict=True)))
        if new != t.shape:
            self.items[k] = self.importer.builder.match_cast(self.items[k], Tensor(t.dtype, new), f"onnx: {self}: input {k}")

    def needed_dim(self, what: str) -> NeededError:
        """Returns the error for a dim that must be known at import time."""
        error = NeededError(f"onnx: {self}: {what}", help="the dims of the inputs must be numbers in the model")
        error.dims = True
        return error

    def run_time_dims(self, k: int, most: Any) -> list[Any]:
        """Returns input `k`, a shape, as integers and expressions; extents known only at run time become new dims of at most `most`.

        Raises NeededError if the number of extents is not known.
        """
        item = self.item(k)
        if isinstance(item, Known):
            return self.dims(k)
        from .emit import ops

        value, shape = self.x(k), self.shape(k)
        if len(shape) > 1 or not all(isinstance(n, int) for n in shape):
            raise self.importer.needed(self, k)
        wide = value if self.dtype(k) is i64 else ops.cast(value, i64)
        parts = [wide] if not shape else [ops.reshape(ops.slice(wide, 0, i, i + 1), ()) for i in range(shape[0])]
        return [ops.bind_dim(p, most=most).annotation.value for p in parts]

    # Attributes.

    def _attribute(self, name: str, kind: int, word: str) -> Any:
        """Returns the attribute of that name, or None, and records that it was read; raises ModelFileError if it has another type."""
        proto = self.attributes.get(name)
        self.asked.add(name)
        if proto is not None and proto.type != kind:
            raise self.wrong(f'attribute "{name}" is not {word}')
        return proto

    def integer(self, name: str, default: Any) -> Any:
        """Returns an integer attribute of the node, or the default."""
        proto = self._attribute(name, _INT, "an integer")
        return default if proto is None else int(proto.i)

    def real(self, name: str, default: Any) -> Any:
        """Returns a float attribute of the node, or the default."""
        proto = self._attribute(name, _FLOAT, "a float")
        return default if proto is None else float(proto.f)

    def text(self, name: str, default: str, *choices: str) -> str:
        """Returns a string attribute, or the default; raises UnsupportedError if it is not one of the choices, if there are any."""
        proto = self._attribute(name, _STRING, "a text")
        value = default if proto is None else bytes(proto.s).decode(errors="replace")
        if choices and value not in choices:
            raise self.unsupported(f'{name} "{value}" is not supported', help=f"supported: {', '.join(choices)}")
        return value

    def ints(self, name: str, default: T) -> list[Any] | T:
        """Returns an attribute that is a list of integers, or the default."""
        proto = self._attribute(name, _INTS, "a list of integers")
        return default if proto is None else [int(n) for n in proto.ints]

    def floats(self, name: str, default: T) -> list[Any] | T:
        """Returns an attribute that is a list of floats, or the default."""
        proto = self._attribute(name, _FLOATS, "a list of floats")
        return default if proto is None else [float(n) for n in proto.floats]

    def texts(self, name: str, default: T) -> list[str] | T:
        """Returns an attribute that is a list of strings, or the default."""
        proto = self._attribute(name, _STRINGS, "a list of texts")
        return default if proto is None else [bytes(s).decode(errors="replace") for s in proto.strings]

    def graph(self, name: str) -> Any:
        """Returns a graph attribute (subgraph); raises if it is missing."""
        proto = self._attribute(name, _GRAPH, "a graph")
        if proto is None:
            raise self.wrong(f'attribute "{name}" is missing')
        return proto.g

    def array(self, name: str) -> Array | None:
        """Returns a tensor attribute as an array, or None if it is missing."""
        from .tensors import read_tensor

        proto = self._attribute(name, _TENSOR, "a tensor")
        return None if proto is None else read_tensor(proto.t, f'attribute "{name}" of {self}', self.importer.model.folder)

    def normal(self, axis: Any, rank: Any) -> Any:
        """Returns an axis counted from the start; raises ModelFileError if it is out of range."""
        if not -rank <= axis < rank:
            raise self.wrong(f"axis {axis} of a tensor with {rank} dims")
        return axis + rank if axis < 0 else axis

    def axis(self, name: str, rank: Any, default: Any = None) -> Any:
        """Returns an attribute that is an axis, counted from the start.

        Raises ModelFileError if it is missing without a default, or out of range.
        """
        number = self.integer(name, default)
        if number is None:
            raise self.wrong(f'attribute "{name}" is missing')
        return self.normal(number, rank)

    def dtype_attribute(self, name: str, default: DType | None = None) -> DType:
        """Returns an attribute that is a data type.

        Raises ModelFileError if it is missing without a default, UnsupportedError if the type is not supported.
        """
        number = self.integer(name, None)
        if number is None:
            if default is None:
                raise self.wrong(f'attribute "{name}" is missing')
            return default
        dtype = dtype_of(number)
        if dtype is None:
            raise self.unsupported(f'attribute "{name}": {type_name(number)} is not supported')
        return dtype

    def value_of(self, item: Item) -> Value:
        """Returns an item as a value of the graph program; known tensors become literals."""
        return self.importer.value(item, self)
