"""What a session tells about its model: inputs and outputs, and the facts of the file."""

from __future__ import annotations

from typing import Any

from ..frontends.onnx.dtypes import dtype_of, schema_name, type_name
from ..frontends.onnx.reader import load_onnx


class NodeArg:
    """A record of an input or output of a model: its name, its type as text, and its shape of sizes, names, and None for unknown dims."""

    def __init__(self, name: str, type: str, shape: list[Any]) -> None:
        self.name, self.type, self.shape = name, type, shape

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """A record of what a model file says about itself: producer, domain, descriptions, version, names, and entries by key."""

    def __init__(self, proto: Any) -> None:
        self.producer_name: str = proto.producer_name
        self.graph_name: str = proto.graph.name
        self.domain: str = proto.domain
        self.description: str = proto.doc_string
        self.graph_description: str = proto.graph.doc_string
        self.version: int = proto.model_version
        self.custom_metadata_map: dict[str, str] = {entry.key: entry.value for entry in proto.metadata_props}


def node_arg(info: Any) -> NodeArg:
    """Returns the record of an input or output from its ValueInfoProto; the shape is empty for what is no tensor."""
    return NodeArg(info.name, _type_text(info.type), [_dim(d) for d in info.type.tensor_type.shape.dim])


def _dim(dim: Any) -> int | str | None:
    """Returns a dim as applications see it: its size, its name, or None.

    None is a dim without size and name, and a negative size, which some exporters write for one that they do not know.
    """
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param or None


def _type_text(of: Any) -> str:
    """Returns a type as ONNX writes it: `tensor(float)`, `seq(tensor(int64))`, `map(string,tensor(float))`."""
    kind = of.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({_type_text(of.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_text(of.optional_type.elem_type)})"
    if kind == "map_type":
        return f"map({type_name(of.map_type.key_type)},{_type_text(of.map_type.value_type)})"
    number = (of.sparse_tensor_type if kind == "sparse_tensor_type" else of.tensor_type).elem_type
    known = dtype_of(number)
    name = f"tensor({type_name(number)})" if known is None else schema_name(known)
    return f"sparse_{name}" if kind == "sparse_tensor_type" else name


def output_infos(proto: Any) -> list[Any]:
    """Returns the ValueInfoProtos of a model's outputs; types that the file leaves open are inferred, or stay open if that fails."""
    outputs = list(proto.graph.output)
    if all(o.type.WhichOneof("value") for o in outputs):
        return outputs
    onnx = load_onnx()
    try:
        inferred = {o.name: o for o in onnx.shape_inference.infer_shapes(proto).graph.output}
    except Exception:  # of the C++ library, for a node that it does not know
        return outputs
    return [inferred.get(o.name, o) for o in outputs]
