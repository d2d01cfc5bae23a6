"""Fallback for unsupported operators, if the user enables it: runs them in Python by onnx.reference.

The package onnx infers the types and shapes of the results; a shape that it cannot infer is an error that names the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...graph.node import Tensor, Value
from ...sym.expr import Const, Expr, const
from .functions import _resolved, _type_of
from .inputs import element_type
from .reader import load_onnx

if TYPE_CHECKING:
    from .node_context import NodeContext


def by_reference(site: NodeContext) -> tuple[Value, ...]:
    """Emits a host call that runs the node by onnx.reference; returns its results."""
    from onnx.reference import ReferenceEvaluator

    model = _model(site)
    evaluator = ReferenceEvaluator(model)
    names = [n for n in site.node.input if n]

    def run(*arrays: Any) -> Any:
        results: Any = evaluator.run(None, dict(zip(names, arrays, strict=True)))
        return tuple(results) if len(results) > 1 else results[0]

    run.__name__ = site.op.lower()
    values = [site.x(k) for k in range(len(site.items)) if site.has(k)]
    return site.importer.builder.call_host(run, values, _results(site, model))


def _model(site: NodeContext) -> Any:
    """Returns an ONNX model with only this node, for onnx's reference evaluator."""
    onnx = load_onnx()
    node = _resolved(site)
    graph = onnx.GraphProto(name="fallback", node=[node])
    dims: dict[str, Expr] = site.importer.named_dims
    for name, item in zip(node.input, site.items, strict=False):
        if name:
            proto = _type_of(item)
            for d, n in zip(proto.tensor_type.shape.dim, site.importer.value(item, site).tensor.shape, strict=True):
                if not isinstance(n, Const):
                    d.dim_param = str(n)
                    dims[str(n)] = n
            graph.input.add(name=name, type=proto)
    for name in node.output:
        graph.output.add(name=name)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(site.domain, site.version)])


def _results(site: NodeContext, model: Any) -> list[Tensor]:
    """Returns the annotations of the node's results, by onnx's shape inference; raises UnsupportedError if a dim cannot be inferred."""
    inferred = load_onnx().shape_inference.infer_shapes(model)
    tensors = []
    for info in inferred.graph.output:
        t = info.type.tensor_type
        if not t.HasField("shape"):
            raise site.unsupported("the shape of its result cannot be told, so it cannot be run in Python either")
        shape: list[Expr] = []
        for d in t.shape.dim:
            known = site.importer.named_dims.get(d.dim_param)
            if not d.HasField("dim_value") and known is None:
                raise site.unsupported("a dim of its result cannot be told, so it cannot be run in Python either")
            shape.append(const(int(d.dim_value)) if known is None else known)
        tensors.append(Tensor(element_type(t.elem_type, f"a result of {site}"), tuple(shape)))
    return tensors
