"""From an exported program to a graph function: parameters, nodes, results, and which sizes of 1 are in the contract."""

from __future__ import annotations

from typing import Any

from ...graph.annotation import substitute_annotation
from ...graph.node import Function, Tensor
from ...graph.verify import verify
from ...support.errors import Error
from ...support.names import identifier, unused_name
from ...sym.expr import Dim, Expr, Var, const
from ...sym.simplify import simplify
from .export import Names, exported
from .importer import Importer, list_missing
from .signature import Signature
from .trees import calling


def imported(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Function:
    """Returns the graph function of a module or an ExportedProgram, verified.

    Raises UnsupportedError if torch cannot export it, or if operators have no rule: then the error lists all of them.
    """
    program, names, texts = exported(model, args, kwargs, dynamic_shapes)
    list_missing(program.graph)
    name = identifier(type(model).__name__) if not hasattr(model, "graph_signature") else "model"
    return import_program(program, names, texts, name)


def import_program(program: Any, names: Names, texts: list[str], name: str) -> Function:
    """Returns the graph function of a decomposed ExportedProgram, verified.

    A dim gets the lower bound 1 where only tracing assumed 2, if the function holds for 1, too. Raises UnsupportedError for what is not
    supported.
    """
    signature = Signature(program, names, texts)
    function = _function(signature, name)
    holding = frozenset(n for n in signature.assumed if _holds_for_one(signature, function, name, n))
    if holding:
        lowered: dict[Var, Expr] = {
            d: Dim(d.name, 1, d.max) for e in signature.dims.values() for d in [e] if isinstance(d, Dim) and d.name in holding
        }
        from ...graph.rewrite import Renamer

        function = Renamer(dims=lowered).function(function)
    verify(function)
    return function


def _function(signature: Signature, name: str) -> Function:
    """Returns the graph function of a program, without verifying it: parameters, nodes, results, and how it is called."""
    importer = Importer(name)
    with importer.builder:
        signature.declare(importer)
        found = importer.nodes(signature.program.graph_module)
        pairs = signature.results(found)
        importer.builder.span, importer.builder.origin = None, ()
        kept = [(v, s) for v, s in pairs if v is not None and hasattr(s.arg, "name") and not hasattr(s.arg, "value")]
        results = importer.results(v for v, _ in kept)
    taken: set[str] = set()
    outputs = tuple(unused_name(identifier(s.arg.name), taken) for _, s in kept)
    return importer.builder.finish(results, {"outputs": outputs, "calling": calling(signature)})


def _holds_for_one(signature: Signature, function: Function, name: str, dim: str) -> bool:
    """True if deduction with a dim of 1 gives the annotations that the function has with 1 in its place.

    False if that deduction fails, or if there is no such dim.
    """
    try:
        other = _function(Signature(signature.program, signature.names, signature.texts, frozenset({dim})), name)
    except Error:
        return False
    var = next((e for e in signature.dims.values() if isinstance(e, Dim) and e.name == dim), None)
    if var is None:
        return False
    ours = [substitute_annotation(v.annotation, {var: const(1)}) for v in function.results]
    return [_shape(a) for a in ours] == [_shape(v.annotation) for v in other.results]


def _shape(annotation: Any) -> tuple[str, ...]:
    """Returns the dtype and extents of a result as text, which does not tell dims of the same name apart."""
    assert isinstance(annotation, Tensor)
    return (str(annotation.dtype), *(str(simplify(e)) for e in annotation.shape))
