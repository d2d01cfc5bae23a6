"""One node while it is imported: its inputs and attributes, each checked when it is asked for, and errors that name the node.

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
# The numbers of AttributeProto.AttributeType, and the field that holds each.
_FLOAT, _INT, _STRING, _TENSOR, _GRAPH, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 4, 5, 6, 7, 8


class NeededError(UnsupportedError):
    """What must be known while importing is known only at run time: the values of graph inputs, or dims of theirs."""

    inputs: tuple[str, ...] = ()
    dims: bool = False


class NodeContext:
    """A node that is being imported; see the module."""

    def __init__(self, importer: Importer, scope: Scope, node: Any, version: int, domain: str, items: list[Item | None]) -> None:
        self.importer, self.scope, self.node = importer, scope, node
        self.op: str = node.op_type
        self.domain, self.version = domain, version
        self.items: list[Any] = list(items)
        self.attributes: dict[str, Any] = scope.resolved(node)
        self.asked: set[str] = set()  # the attributes that its rule has read

    # Errors.

    def __str__(self) -> str:
        domain = f"{self.domain}." if self.domain else ""
        return f'node "{self.label}" ({domain}{self.op}, opset {self.version})'

    @property
    def label(self) -> str:
        """What the node is called: its name, or that of its first result."""
        return str(self.node.name or next(iter(self.node.output), ""))

    def wrong(self, what: str, **more: Any) -> ModelFileError:
        """An error of the model."""
        return ModelFileError(f"onnx: {self}: {what}", **more)

    def unsupported(self, what: str, **more: Any) -> UnsupportedError:
        """Something that the standard has and we do not."""
        return UnsupportedError(f"onnx: {self}: {what}", **more)

    def require(self, holds: bool, what: str) -> None:
        """Raises an error of the model where something does not hold."""
        if not holds:
            raise self.wrong(what)

    def named(self, error: Error) -> Error:
        """An error of an operator, with this node before it."""
        if error.what.startswith("onnx: "):
            return error
        kind = UnsupportedError if isinstance(error, UnsupportedError) else ModelFileError
        return kind(f"onnx: {self}: {error.what}", facts=error.facts, help=error.help)

    def check(self, holds: Expr, what: str) -> None:
        """What is taken for granted about dims, checked when the program runs."""
        from .emit import ops

        self.importer.assumed.append(holds)
        there = ops.full((simplify(Select(holds, const(1), const(0))),), 0.0)
        self.importer.builder.match_cast(there, Tensor(there.tensor.dtype, (const(1),)), f"onnx: {self}: {what}")

    def check_read(self, harmless: frozenset[str]) -> None:
        """Raises where an attribute that says something has not been read: of a domain without schemas nobody else would notice."""
        for name, attribute in self.attributes.items():
            value = next((getattr(attribute, f) for k, f in ((1, "f"), (2, "i"), (3, "s")) if attribute.type == k), True)
            if name not in self.asked and name not in harmless and value not in (0, b"", b"NONE"):
                raise self.unsupported(f'attribute "{name[:80]}" is not supported')

    # Inputs.

    def has(self, k: int) -> bool:
        """Whether input `k` is given."""
        return k < len(self.items) and self.items[k] is not None

    def item(self, k: int) -> Item:
        """Input `k`, whatever it is."""
        found: Item | None = self.items[k] if k < len(self.items) else None
        if found is None:
            raise self.wrong(f"input {k} is missing")
        return found

    def x(self, k: int) -> Any:
        """Input `k` as a value of the program."""
        return self.importer.value(self.item(k), self)

    def get(self, k: int) -> Any:
        """Input `k` as a value of the program, None where it is not given."""
        return self.x(k) if self.has(k) else None

    def xs(self) -> list[Any]:
        """All inputs as values."""
        return [self.x(k) for k in range(len(self.items))]

    def tensor(self, k: int) -> Tensor:
        """The annotation of input `k`."""
        found = self.item(k)
        if isinstance(found, Known):
            return Tensor(found.dtype, tuple(const(int(n)) for n in found.array.shape))
        if isinstance(found, Narrow):
            return Tensor(found.dtype, tensor_of(found.value.annotation).shape)
        if isinstance(found, Maybe | Sequence):
            raise self.wrong(f"input {k} is a {type(found).__name__.lower()}, a tensor is expected")
        return tensor_of(found.annotation)

    def rank(self, k: int) -> int:
        """The number of dims of input `k`."""
        return len(self.tensor(k).shape)

    def dtype(self, k: int) -> DType:
        """The dtype of input `k`."""
        return self.tensor(k).dtype

    def shape(self, k: int) -> tuple[Any, ...]:
        """The extents of input `k`: integers and expressions."""
        from ...sym.expr import Const

        return tuple(n.value if isinstance(n, Const) else n for n in self.tensor(k).shape)

    def known(self, k: int) -> Array:
        """Input `k` as an array of numbers: an error where it is known only at run time."""
        found = self.item(k)
        if isinstance(found, Known) and not found.symbolic:
            return found.array
        raise self.importer.needed(self, k)

    def known_ints(self, k: int) -> list[int]:
        """Input `k` as integers."""
        array = self.known(k)
        self.require(
            array.dtype.kind in "iu" and array.ndim <= 1, f"input {k} is {array.dtype} of shape {array.shape}, not a list of integers"
        )
        return [int(n) for n in array.reshape(-1)]

    def number(self, k: int) -> Any:
        """Input `k` as one number."""
        array = self.known(k)
        self.require(array.size == 1, f"input {k} has {array.size} elements, one is expected")
        return array.reshape(-1)[0].item()

    def dims(self, k: int) -> list[Any]:
        """Input `k`, a shape, as integers and expressions; as values where it is known only at run time."""
        found = self.item(k)
        if isinstance(found, Known):
            self.require(found.array.ndim <= 1 and found.dtype.is_int, f"input {k} is not a list of integers")
            return [n if isinstance(n, Expr) else int(n) for n in found.array.reshape(-1)]
        raise self.importer.needed(self, k)

    def settle(self, k: int, *dims: Any) -> None:
        """Says what the last dims of input `k` must be, None where anything will do; what is not known of them is checked at run time."""
        t = self.tensor(k)
        said = [const(n) if isinstance(n, int) else n for n in dims]
        if len(t.shape) < len(said) or not isinstance(self.items[k], Value):
            return
        head, last = t.shape[: len(t.shape) - len(said)], t.shape[len(t.shape) - len(said) :]
        new = (*head, *(n if m is None or isinstance(n, Const) else m for n, m in zip(last, said, strict=True)))
        if new != t.shape:
            self.items[k] = self.importer.builder.match_cast(self.items[k], Tensor(t.dtype, new), f"onnx: {self}: input {k}")

    def needed_dim(self, what: str) -> NeededError:
        """The error for a dim that must be known when the model is imported."""
        error = NeededError(f"onnx: {self}: {what}", help="the dims of the inputs must be numbers in the model")
        error.dims = True
        return error

    def run_time_dims(self, k: int, most: Any) -> list[Any]:
        """Input `k`, a shape, as integers and expressions; what only a run tells becomes new dims, which are at most `most`."""
        found = self.item(k)
        if isinstance(found, Known):
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
        found = self.attributes.get(name)
        self.asked.add(name)
        if found is not None and found.type != kind:
            raise self.wrong(f'attribute "{name}" is not {word}')
        return found

    def integer(self, name: str, default: Any) -> Any:
        """An integer attribute."""
        found = self._attribute(name, _INT, "an integer")
        return default if found is None else int(found.i)

    def real(self, name: str, default: Any) -> Any:
        """A float attribute."""
        found = self._attribute(name, _FLOAT, "a float")
        return default if found is None else float(found.f)

    def text(self, name: str, default: str, *choices: str) -> str:
        """A text attribute, one of the choices where there are some."""
        found = self._attribute(name, _STRING, "a text")
        value = default if found is None else bytes(found.s).decode(errors="replace")
        if choices and value not in choices:
            raise self.unsupported(f'{name} "{value}" is not supported', help=f"supported: {', '.join(choices)}")
        return value

    def ints(self, name: str, default: T) -> list[Any] | T:
        """A list of integers."""
        found = self._attribute(name, _INTS, "a list of integers")
        return default if found is None else [int(n) for n in found.ints]

    def floats(self, name: str, default: T) -> list[Any] | T:
        """A list of floats."""
        found = self._attribute(name, _FLOATS, "a list of floats")
        return default if found is None else [float(n) for n in found.floats]

    def texts(self, name: str, default: T) -> list[str] | T:
        """A list of texts."""
        found = self._attribute(name, _STRINGS, "a list of texts")
        return default if found is None else [bytes(s).decode(errors="replace") for s in found.strings]

    def graph(self, name: str) -> Any:
        """A graph attribute, which must be there."""
        found = self._attribute(name, _GRAPH, "a graph")
        if found is None:
            raise self.wrong(f'attribute "{name}" is missing')
        return found.g

    def array(self, name: str) -> Array | None:
        """A tensor attribute."""
        from .tensors import read_tensor

        found = self._attribute(name, _TENSOR, "a tensor")
        return None if found is None else read_tensor(found.t, f'attribute "{name}" of {self}', self.importer.model.folder)

    def normal(self, axis: Any, rank: Any) -> Any:
        """An axis counted from the start, which must be one of the tensor's."""
        if not -rank <= axis < rank:
            raise self.wrong(f"axis {axis} of a tensor with {rank} dims")
        return axis + rank if axis < 0 else axis

    def axis(self, name: str, rank: Any, default: Any = None) -> Any:
        """An attribute that is an axis."""
        found = self.integer(name, default)
        if found is None:
            raise self.wrong(f'attribute "{name}" is missing')
        return self.normal(found, rank)

    def dtype_attribute(self, name: str, default: DType | None = None) -> DType:
        """An attribute that is a data type."""
        number = self.integer(name, None)
        if number is None:
            if default is None:
                raise self.wrong(f'attribute "{name}" is missing')
            return default
        found = dtype_of(number)
        if found is None:
            raise self.unsupported(f'attribute "{name}": {type_name(number)} is not supported')
        return found

    def value_of(self, item: Item) -> Value:
        """An item as a value of the program."""
        return self.importer.value(item, self)
