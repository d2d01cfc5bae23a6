"""Operators that are not supported, run in Python by onnx.reference, where the user has asked for it.

What such a node results in is inferred by the package onnx; a shape that it cannot tell is refused by name.
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
    """The results of a node, computed by onnx.reference at every call."""
    from onnx.reference import ReferenceEvaluator

    model = _model(site)
    evaluator = ReferenceEvaluator(model)
    names = [n for n in site.node.input if n]

    def run(*arrays: Any) -> Any:
        found: Any = evaluator.run(None, dict(zip(names, arrays, strict=True)))
        return tuple(found) if len(found) > 1 else found[0]

    run.__name__ = site.op.lower()
    values = [site.x(k) for k in range(len(site.items)) if site.has(k)]
    return site.importer.builder.call_host(run, values, _results(site, model))


def _model(site: NodeContext) -> Any:
    """A model of the node alone."""
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
    inferred = load_onnx().shape_inference.infer_shapes(model)
    found = []
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
        found.append(Tensor(element_type(t.elem_type, f"a result of {site}"), tuple(shape)))
    return found
