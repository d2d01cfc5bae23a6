"""Traces a module into a graph function: calls `forward` once with symbolic values.

The annotations of `forward` declare the inputs, as for `@function`. The module's attribute `inputs` declares them if a size is known
only when the module is created. A parameter with neither keeps its default.

    class Head(nn.Module):
        def __init__(self, width: int) -> None:
            self.norm = nn.LayerNorm(width)
            self.inputs = {"x": Tensor[f32, n, width]}

        def forward(self, x):
            return {"normal": self.norm(x)}        # results may have names
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import GenericAlias
from typing import Any

from ...dtype import DType, bool_
from ...graph.annotation import Fit, subsumes
from ...graph.node import Annotation, Function, Scalar, Tensor, Tuple, Value, annotation_exprs
from ...graph.ops.calls import annotation_of
from ...graph.verify import verify
from ...support.errors import Error, ShapeError
from ...support.source import Span
from ...sym.spec import TensorSpec
from .module import Module
from .tracer import Tracer, tracing


def trace(module: Module) -> Function:
    """Traces the `forward` of a module into a graph function, and verifies it.

    Raises an Error if an annotation is missing or does not hold.
    """
    where = _definition(module)
    written = _annotations(module, where)
    parameters = _inputs(module, written, where)
    tracer = Tracer(_name(module), module, where)
    values = {name: tracer.param(name, annotation) for name, annotation in parameters.items()}
    for annotation in parameters.values():
        tracer.check_dims(annotation_exprs(annotation), where)
    with tracing(tracer):
        returned = module(**values)
        results, names = _results(returned, where)
        promise = written.get("return")
        if isinstance(promise, TensorSpec) or getattr(promise, "__origin__", None) is tuple:
            results = _promised(tracer, results, _annotation(promise, "return", where), where)
    function = tracer.finish(results, {"outputs": tuple(names) or ("",) * len(results)})
    verify(function)
    return function


def _name(module: Module) -> str:
    """The function name for a module class, in snake case: `mini_lm` for `MiniLM`."""
    text = type(module).__name__
    broken = [
        "_" + c if c.isupper() and i and not text[i - 1].isupper() and text[i - 1] != "_" else c for i, c in enumerate(text)
    ]  # fmt: skip
    return "".join(broken).lower()


def _definition(module: Module) -> Span | None:
    """Returns the source span of the module's `forward`, or None if its source is not available."""
    import linecache

    code = type(module).forward.__code__
    text = linecache.getline(code.co_filename, code.co_firstlineno).rstrip("\n")
    indent = len(text) - len(text.lstrip())
    return Span(code.co_filename, code.co_firstlineno, indent, len(text.rstrip()), text) if text else None


def _annotations(module: Module, where: Span | None) -> Mapping[str, Any]:
    """Returns the annotations of `forward`; string annotations are evaluated. Raises an Error if that fails."""
    kind = type(module)
    try:
        return inspect.get_annotations(kind.forward, locals=dict(kind._scope), eval_str=True)
    except Exception as problem:
        raise Error(f"an annotation of `{kind.__name__}.forward` cannot be read: {problem}", where=where) from None


def _inputs(module: Module, written: Mapping[str, Any], where: Span | None) -> dict[str, Annotation]:
    """Returns the annotations of the values that `forward` is called with, by parameter name.

    Raises an Error for a parameter without an annotation or a default, and for an unknown name in `inputs`.
    """
    annotations: dict[str, Annotation] = {}
    parameters = inspect.signature(module.forward).parameters
    for name, p in parameters.items():
        spec = module.inputs.get(name, written.get(name))
        if spec is not None and spec is not Any and (name in module.inputs or p.default is p.empty or isinstance(spec, TensorSpec)):
            annotations[name] = _annotation(spec, name, where)
        elif p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise Error(
                f"parameter `{name}` of `{type(module).__name__}.forward` has no annotation",
                where=where,
                help=f'write {name}: Tensor[f32, n, 64], or set self.inputs = {{"{name}": Tensor[f32, n, 64]}}',
            )
    unknown = [name for name in module.inputs if name not in parameters]
    if unknown:
        raise Error(f"`inputs` names `{unknown[0]}`, which `{type(module).__name__}.forward` does not take", where=where)
    return annotations


def _annotation(said: Any, name: str, where: Span | None) -> Annotation:
    """Converts a declared annotation of parameter `name` to a graph annotation; raises if it is none."""
    if isinstance(said, Tensor | Scalar | Tuple):
        return said
    if isinstance(said, TensorSpec):
        return annotation_of(said, f"`{name}`")
    if isinstance(said, DType) or said is bool:
        return Scalar(bool_ if said is bool else said)
    if isinstance(said, GenericAlias) and said.__origin__ is tuple:
        return Tuple(tuple(_annotation(a, name, where) for a in said.__args__))
    shown = getattr(said, "__name__", None) or repr(said)
    raise Error(f"`{shown}` is no annotation for `{name}`", where=where, help="write Tensor[f32, n, 64], State[...], or a dtype")


def _results(found: Any, where: Span | None) -> tuple[list[Value], list[str]]:
    """Returns the values that `forward` returned, and their names if it returned a dictionary; raises an Error if one is no value."""
    names = list(found) if isinstance(found, Mapping) else []
    values = list(found.values()) if isinstance(found, Mapping) else list(found) if isinstance(found, tuple | list) else [found]
    wrong = [v for v in values if not isinstance(v, Value)]
    if wrong or not values:
        shown = f"an object of type `{type(wrong[0]).__name__}`" if wrong else "nothing"
        raise Error(f"`forward` returns {shown}", where=where, help="return a tensor, a tuple of tensors, or a dictionary of them")
    wrong_names = [n for n in names if not isinstance(n, str) or not n.isidentifier()]
    if wrong_names:
        raise Error(f"a result is named like a Python variable, not {wrong_names[0]!r}", where=where)
    return values, names


def _promised(tracer: Tracer, results: Sequence[Value], promise: Annotation, where: Span | None) -> list[Value]:
    """Returns the results, checked against the return annotation, with a match_cast where only run time can decide.

    Raises a ShapeError if one does not fit.
    """
    expected = promise.items if isinstance(promise, Tuple) else (promise,)
    if len(expected) != len(results):
        raise Error(f"`forward` returns {len(results)} values, its annotation has {len(expected)}", where=where)
    checked = []
    for value, annotation in zip(results, expected, strict=True):
        tracer.check_dims(annotation_exprs(annotation), where)
        match = subsumes(annotation, value.annotation)
        if match.fit is Fit.CHECK:
            value = tracer.match_cast(value, annotation, f"the result is promised as {annotation}")
        elif match.fit is not Fit.HOLDS:
            raise ShapeError(
                "`forward` does not return what its annotation says",
                where=where,
                facts=[f"`{value.name}` is {value.annotation}", f"the annotation says {annotation}", match.reason],
            )
        checked.append(value)
    return checked
