"""Imports the inputs and initializers of a graph: names, types, dims, and inputs fixed by the caller.

A dim keeps its name, and equal names are the same dim. A dim without a name is named after its input: `x_0`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtype import ALL, DType
from ...graph.node import Tensor
from ...support.errors import ModelFileError, UnsupportedError
from ...support.names import identifier, unused_name
from ...sym.expr import Dim, Expr, const
from .dtypes import dtype_of, type_name
from .external import Folder
from .items import WIDE, Item, Maybe, Narrow, Sequence, fills_bytes, numbers
from .tensors import read_tensor

if TYPE_CHECKING:
    from .importer import Importer, Scope

MOST_DIMS = 64  # the largest rank of an input; numpy 2 arrays have no more
TEXTS = "programs have no texts: pliant.onnxruntime.InferenceSession(…) works on them between programs"


def initializers(graph: Any, folder: Folder | None) -> dict[str, Item]:
    """Returns the initializers (weights) of a graph by name; sparse ones become dense.

    Raises ModelFileError for a name that is given twice.
    """
    items: dict[str, Item] = {}
    for proto in graph.initializer:
        if not proto.name or proto.name in items:
            raise ModelFileError(f'onnx: an initializer has the name "{proto.name}"{" of another one" if proto.name else ""}')
        items[proto.name] = numbers(read_tensor(proto, f'initializer "{proto.name}"', folder), proto.name)
    for sparse in graph.sparse_initializer:
        name = sparse.values.name
        if not name or name in items:
            raise ModelFileError(f'onnx: a sparse initializer has the name "{name}"')
        items[name] = numbers(dense(sparse, f'sparse initializer "{name}"', folder), name)
    return items


def dense(proto: Any, what: str, folder: Folder | None) -> np.ndarray[Any, Any]:
    """Converts a sparse tensor to a dense array; raises ModelFileError if an index is out of range or the array is too large."""
    from .tensors import elements

    values, indices = read_tensor(proto.values, what, folder), read_tensor(proto.indices, f"the indices of {what}", folder)
    shape = tuple(int(n) for n in proto.dims)
    dtype = dtype_of(proto.values.data_type)
    assert dtype is not None
    count = elements(shape, dtype, what)
    if count > 1 << 30:
        raise ModelFileError(f"onnx: {what} has the shape {shape}, which is too large")
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        if indices.size and (indices.min() < 0 or (indices >= np.asarray(shape)).any()):
            raise ModelFileError(f"onnx: {what} has an index outside of its shape")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if indices.size else indices.reshape(-1)
    flat = np.zeros(count, values.dtype)
    if indices.ndim != 1 or values.shape != indices.shape or (indices.size and not 0 <= indices.min() <= indices.max() < count):
        raise ModelFileError(f"onnx: {what} has indices that do not fit its values")
    flat[indices] = values
    return flat.reshape(shape)


def declared(importer: Importer, graph: Any, scope: Scope) -> None:
    """Adds the inputs of the model as parameters, except those with an initializer and those fixed by the caller.

    Raises ModelFileError for a name that is given twice, UnsupportedError if the caller fixes an unknown input.
    """
    dims: dict[str, Expr] = {}
    seen: set[str] = set()
    for proto in graph.input:
        if not proto.name or proto.name in seen:
            raise ModelFileError(f'onnx: an input has the name "{proto.name}"{" of another one" if proto.name else ""}')
        seen.add(proto.name)
        if proto.name in importer.given:
            scope.items[proto.name] = given(importer.given[proto.name], proto.name)
        elif proto.name not in scope.items:
            annotation = tensor_type(proto.type, proto.name, dims)
            if proto.name in importer.shapes:
                annotation = Tensor(annotation.dtype, tuple(map(const, importer.shapes[proto.name])))
            narrow = None if fills_bytes(annotation.dtype, annotation.shape) else annotation.dtype
            if narrow is not None:
                annotation = Tensor(ALL[WIDE[narrow.name]], annotation.shape)
            param = importer.builder.param(identifier(proto.name), annotation)
            scope.items[proto.name] = param if narrow is None else Narrow(param, narrow)
    unknown = sorted(set(importer.given) - seen)
    if unknown:
        raise UnsupportedError(f'onnx: the model has no input "{unknown[0]}"', facts=[f"its inputs are {', '.join(sorted(seen))}"])


def given(value: Any, name: str) -> Item:
    """Returns the item for an input that the caller fixed: an array, a list of arrays (a sequence), or None (an empty optional).

    Raises UnsupportedError for an array of other elements than numbers and bools.
    """
    if value is None:
        return Maybe(None)
    if isinstance(value, list | tuple) and all(isinstance(v, np.ndarray) for v in value):
        return Sequence(tuple(given(v, name) for v in value))
    array = np.array(value)
    if array.dtype.kind not in "biufV":
        raise UnsupportedError(f'onnx: the value given for "{name}" is {array.dtype}, which is not supported')
    array.setflags(write=False)
    return numbers(array, name)


def tensor_type(proto: Any, name: str, dims: dict[str, Expr]) -> Tensor:
    """Returns the annotation of an input; raises UnsupportedError if its type is not supported or its rank is not known."""
    kind = proto.WhichOneof("value")
    if kind == "optional_type" and proto.optional_type.elem_type.WhichOneof("value") == "tensor_type":
        help_ = f'pliant.from_onnx("model.onnx", values={{"{name}": array}}) fixes it; None leaves it out'
        raise UnsupportedError(f'onnx: input "{name}" is optional', help=help_)
    if kind != "tensor_type":
        word = (kind or "of no type").removesuffix("_type")
        help_ = f'pliant.from_onnx("model.onnx", values={{"{name}": value}}) fixes it'
        raise UnsupportedError(f'onnx: input "{name}" is {word}, which is not supported', help=help_)
    dtype = element_type(proto.tensor_type.elem_type, f'input "{name}"')
    if not proto.tensor_type.HasField("shape"):
        raise UnsupportedError(f'onnx: input "{name}" has no shape: its rank must be known')
    declared_dims = proto.tensor_type.shape.dim
    if len(declared_dims) > MOST_DIMS:
        raise ModelFileError(f'onnx: input "{name}" has {len(declared_dims)} dims')
    return Tensor(dtype, tuple(_dim(d, name, k, dims) for k, d in enumerate(declared_dims)))


def element_type(number: int, what: str) -> DType:
    """Returns the dtype of an ONNX element type; raises if it is not supported."""
    dtype = dtype_of(number)
    if dtype is None:
        kind = ModelFileError if number == 0 or type_name(number).startswith("type ") else UnsupportedError
        help_ = TEXTS if type_name(number) == "string" else ""
        raise kind(f"onnx: {what} has elements of {type_name(number)}, which is not supported", help=help_)
    return dtype


def _dim(proto: Any, name: str, k: int, dims: dict[str, Expr]) -> Expr:
    """Returns the dim `k` of input `name`: a constant, or the symbolic dim of its name, which `dims` collects.

    Raises ModelFileError for a number out of range.
    """
    if proto.WhichOneof("value") == "dim_value":
        if not -1 <= proto.dim_value < 1 << 31:
            raise ModelFileError(f'onnx: dim {k} of input "{name}" is {proto.dim_value}')
        if proto.dim_value >= 0:
            return const(int(proto.dim_value))
    named = any(c.isalnum() for c in proto.dim_param)  # exporters write `?` or -1 for dims without a name
    key = proto.dim_param if named else f"{name}_{k}"
    if key not in dims:
        dims[key] = Dim(unused_name(identifier(key), {d.name for d in dims.values() if isinstance(d, Dim)}))
    return dims[key]
