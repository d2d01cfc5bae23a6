"""Expands ONNX functions: a node becomes the nodes of a function of the model, or of the standard's definition of its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...graph.node import Tensor
from ...graph.operators import tensor_of
from ...sym.expr import Const, const
from .check import schema_of
from .dtypes import number_of
from .items import Item, Known, Maybe, Narrow, Sequence
from .reader import DEEPEST, domain_of, load_onnx, read_opsets

if TYPE_CHECKING:
    from .importer import Importer
    from .node_context import NodeContext


# Operators whose bodies depend on attributes and types. The package onnx builds these bodies in native code that does not validate its
# input, so only operators are listed for which `check.py` and `_CHOICES` validate everything that this code reads.
_MADE = {
    "Attention", "CausalConvWithState", "CenterCropPad", "FlexAttention", "GroupNormalization", "LinearAttention",
    "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SoftmaxCrossEntropyLoss",
}  # fmt: skip
# The values of their string attributes, the default first. For any other value that code takes one of the branches, without a word.
_CHOICES = {
    "CausalConvWithState": ("activation", "none", "silu", "swish"),
    "LinearAttention": ("update_rule", "gated_delta", "linear", "gated", "delta"),
    "NegativeLogLikelihoodLoss": ("reduction", "mean", "none", "sum"),
    "SoftmaxCrossEntropyLoss": ("reduction", "mean", "none", "sum"),
}


def body_of(domain: str, op: str, version: int) -> bool:
    """True if the standard defines the operator as a function of other operators, and `expanded` may use it.

    That is so for each body that is fixed, but of those that depend on attributes and types only for the operators in `_MADE`.
    """
    schema = schema_of(op, version, domain)
    return schema is not None and (schema.has_function or (schema.has_context_dependent_function and op in _MADE))


def expanded(importer: Importer, site: NodeContext) -> list[Item | None] | None:
    """Expands a node by the standard's function body of its operator; returns its results, or None if there is no body.

    Raises NeededError if the body depends on a dim that is not known, UnsupportedError for a string attribute that the standard has no
    meaning for.
    """
    schema = schema_of(site.op, site.version, site.domain)
    if schema is None or not body_of(site.domain, site.op, site.version):
        return None
    if not site.domain and site.op in _CHOICES:
        name, *values = _CHOICES[site.op]
        site.text(name, values[0], *values)
    onnx = load_onnx()
    function = onnx.FunctionProto()
    versions = [v for v in schema.all_function_opset_versions if v <= site.version] or schema.all_function_opset_versions
    newest = max(versions)
    if newest in schema.function_opset_versions:
        function.ParseFromString(schema.get_function_with_opset_version(newest))
    else:
        types = [_type_of(i).SerializeToString() for i in site.items]
        function.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(newest, _resolved(site).SerializeToString(), types)
        )
        if not function.node:  # onnx returns no body if it needs a dim that is not known
            raise site.needed_dim("the dims of its operands must be known")
    if not any(domain_of(e.domain) == "" for e in function.opset_import):
        own = site.importer.model.opsets.get("", onnx.defs.onnx_opset_version())
        function.opset_import.add(domain="", version=own if site.domain else newest)
    return enter_function(importer, site, function, {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name})


def _resolved(site: NodeContext) -> Any:
    """Returns a copy of the node in which references to function attributes are replaced by the attributes."""
    node = load_onnx().NodeProto()
    node.CopyFrom(site.node)
    del node.attribute[:]
    for name, attribute in site.attributes.items():
        node.attribute.add().CopyFrom(attribute)
        node.attribute[-1].name = name
    return node


def _type_of(item: Item | None) -> Any:
    """Returns the TypeProto of an item; symbolic dims are left unknown, sequences and optionals have no type."""
    onnx = load_onnx()
    proto = onnx.TypeProto()
    if item is None or isinstance(item, Maybe | Sequence):
        return proto
    if isinstance(item, Known):
        tensor = Tensor(item.dtype, tuple(map(const, item.array.shape)))
    else:
        tensor = Tensor(item.dtype, tensor_of(item.value.annotation).shape) if isinstance(item, Narrow) else tensor_of(item.annotation)
    proto.tensor_type.elem_type = number_of(tensor.dtype)
    proto.tensor_type.shape.SetInParent()
    for n in tensor.shape:
        d = proto.tensor_type.shape.dim.add()
        if isinstance(n, Const):
            d.dim_value = n.value
    return proto


def enter_function(importer: Importer, site: NodeContext, function: Any, defaults: dict[str, Any] | None = None) -> list[Item | None]:
    """Imports the nodes of a function in place of its call; returns the results, None for one that is not computed.

    Raises ModelFileError for recursion, and for too many inputs.
    """
    from .importer import Scope

    key = (function.domain, function.name, function.overload)
    if site.domain == function.domain and any(k == key for k in site.scope.calls) and defaults is None:
        raise site.wrong(f'the function "{function.name}" calls itself')
    if len(site.scope.calls) >= DEEPEST:
        raise site.wrong(f"functions call each other deeper than {DEEPEST}")
    if len(site.items) > len(function.input):
        raise site.wrong(f"it has {len(site.items)} inputs, the function takes {len(function.input)}")
    attributes = {a.name: a for a in function.attribute_proto} | (defaults or {}) | site.attributes
    opsets = {**site.importer.model.opsets, **read_opsets(function.opset_import, "the function")}
    scope = Scope(opsets, None, attributes, {}, (*site.scope.calls, key))
    for name, item in zip(function.input, site.items, strict=False):
        if item is not None:
            scope.items[name] = item
    absent = {name for name in function.input if name not in scope.items}
    scope.absent = frozenset(absent)
    importer.nodes(function.node, scope)
    results = [scope.find(name) for name in function.output]
    for k, (name, item) in enumerate(zip(function.output, results, strict=True)):
        if item is None and k < len(site.node.output) and site.node.output[k] and defaults is None:
            raise site.wrong(f'nothing in the function computes its result "{name}"')
    return results
