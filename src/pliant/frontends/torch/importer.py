"""The importer of ATen graphs: translates the nodes of a graph, in order, to operators of a graph program.

Shapes are deduced anew by our operators, so that they hold for every size; of torch's own deduction only dtypes are used. Operators
without a rule are listed all at once before anything is built.

    importer = Importer("model")
    with importer.builder:
        importer.values[placeholder] = importer.builder.param("x", annotation)
        results = importer.nodes(graph)
"""

from __future__ import annotations

import operator
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ...graph.builder import Builder
from ...graph.node import Scalar, Tensor, Value
from ...support.errors import Error, UnsupportedError
from ...support.names import identifier
from ...support.source import Span
from ...sym.expr import Expr
from .dtypes import array_of
from .registry import HARMLESS
from .rules import rule_of
from .site import Site
from .sizes import QUESTIONS, asked, computed, functions

# Operators that only assert what torch assumed about values; their conditions on sizes are checked by our own operators.
ASSERTIONS = frozenset(
    {"aten._assert_scalar", "aten._assert_async", "aten._assert_tensor_metadata", "aten.sym_constrain_range",
     "aten.sym_constrain_range_for_size", "aten._functional_assert_scalar"}
)  # fmt: skip
# Python errors of rules that met unexpected values; they are reported as errors of the model, with the request to report defects.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_FRAME = re.compile(r'File "([^"]*)", line (\d+), in [^\n]*\n\s*([^\n]*)')


class Importer:
    """Builds one graph function from an ATen graph: each node becomes operators by the rule of its operator."""

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)
        self.values: dict[Any, Any] = {}  # graph node -> value, size, number, or a list of these
        self._literals: dict[int, tuple[Any, Value]] = {}
        self.layer = ""

    def literal(self, tensor: Any, name: str = "const") -> Value:
        """Returns a torch tensor as a literal of the program, over the same memory; the same literal each time for one tensor."""
        if id(tensor) not in self._literals:
            pending, self.builder.hint = self.builder.hint, identifier(name)
            self._literals[id(tensor)] = (tensor, self.builder.literal(array_of(tensor)))
            self.builder.hint = pending
        return self._literals[id(tensor)][1]

    def nodes(self, module: Any, until: Any = None) -> Any:
        """Imports the nodes of a graph module, whose placeholders have values already; returns what its output node returns.

        Each call of an operator becomes operators by its rule. Raises UnsupportedError for what a rule does not support, and if there is no
        output node.
        """
        for node in module.graph.nodes:
            if node.op == "output":
                return self.argument(node.args[0])
            if node.op == "get_attr":
                self.values[node] = self._attribute(module, node)
            elif node.op == "call_function":
                self.builder.span = span_of(node)
                self.layer = layer_of(node)
                self.builder.origin = (self.layer,) if self.layer else ()
                self.values[node] = self._call(node)
        raise UnsupportedError("torch: the graph has no output")

    def _attribute(self, module: Any, node: Any) -> Any:
        """Returns what a `get_attr` node reads from the module: a literal for a tensor, other objects as they are."""
        import torch

        found = module
        for part in node.target.split("."):
            found = getattr(found, part)
        return self.literal(found, node.name) if isinstance(found, torch.Tensor) else found

    def argument(self, value: Any) -> Any:
        """Returns an argument of a node with nodes replaced by their values, in lists and tuples too."""
        if isinstance(value, list | tuple):
            return [self.argument(v) for v in value]
        if isinstance(value, slice):
            return slice(*map(self.argument, (value.start, value.stop, value.step)))
        return self.values[value] if _is_node(value) else value

    def _call(self, node: Any) -> Any:
        """Returns the value of a call: an operator's by its rule, a size for functions and questions about sizes, None for assertions."""
        if node.target is operator.getitem:
            items, k = self.argument(node.args[0]), node.args[1]
            return items[k]
        args = tuple(self.argument(a) for a in node.args)
        name = operator_name(node.target)
        if not name:
            return computed(node.target, args)
        if name in QUESTIONS:
            return asked(name, args)
        if name in ASSERTIONS:
            return None
        return self._emitted(node, name)

    def _emitted(self, node: Any, name: str) -> Any:
        """Returns the results of a node by the rule of its operator, with the arguments bound by the schema.

        Raises UnsupportedError, which names the node, if the rule fails, or ignores an argument that is not the default.
        """
        rule = rule_of(name)
        assert rule is not None, "missing operators are listed before"
        fakes: dict[str, Any] = {}
        site = Site(self, node, name, fakes)
        given: dict[str, Any] = {}
        site.args = given
        for parameter, raw in _bound(node):
            fakes[parameter.name] = fake_of(raw)
            value = self.argument(raw)
            given[parameter.name] = value
            if parameter.name not in rule.names and parameter.name not in HARMLESS and raw != _default(parameter):
                raise site.unsupported(f"`{parameter.name}` is not supported")
        try:
            return rule.function(site, **{k: v for k, v in given.items() if k in rule.names})
        except Error as error:
            raise site.named(error) from None
        except _MISTAKES as problem:
            if os.environ.get("PLIANT_DEBUG") == "1":
                raise
            help_ = "this is a defect of Pliant: please report it"
            raise site.unsupported(f"it cannot be imported: {type(problem).__name__}: {str(problem)[:200]}", help=help_) from problem

    def tensor(self, value: Any) -> Value:
        """Returns a result as a tensor of its own: host scalars and sizes become tensors without dims."""
        from .emit import ops

        if isinstance(value, Expr | bool | int | float):
            value = self.builder.scalar(value) if isinstance(value, Expr) else ops.constant(value)
        if isinstance(value.annotation, Tensor) and not value.annotation.state:
            return value  # type: ignore[no-any-return]
        return ops.reshape(value, () if isinstance(value.annotation, Scalar) else value.tensor.shape)  # type: ignore[no-any-return]

    def results(self, values: Iterable[Any]) -> list[Value]:
        """Returns tensors that are distinct and no parameters, as a function has to return: others are copied."""
        from .emit import ops

        found: list[Value] = []
        for value in values:
            tensor = self.tensor(value)
            if tensor in self.builder._params or tensor in found:
                tensor = ops.reshape(tensor, tensor.tensor.shape)
            found.append(tensor)
        return found


def operator_name(target: Any) -> str:
    """Returns the name of an operator without its overload, `aten.linear`; empty for Python functions."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name).replace("::", ".")
    namespace = getattr(target, "namespace", None)  # of higher-order operators
    return f"{namespace}.{target.name()}" if namespace is not None and callable(getattr(target, "name", None)) else ""


def missing(graph: Any) -> list[Any]:
    """Returns the nodes of a graph that cannot be imported: operators and functions without a rule, and calls of modules."""
    return [n for n in graph.nodes if n.op == "call_function" and not _is_supported(n.target)] + [
        n for n in graph.nodes if n.op == "call_module"
    ]


def _is_supported(target: Any) -> bool:
    """True for an operator with a rule, an assertion, a question about a tensor, and a function of sizes that is known."""
    name = operator_name(target)
    if not name:
        return target is operator.getitem or target in functions()
    return name in QUESTIONS or name in ASSERTIONS or rule_of(name) is not None


def list_missing(graph: Any) -> None:
    """Raises an UnsupportedError that lists all operators of a graph without a rule, each with a place; does nothing if there are none."""
    nodes = missing(graph)
    if not nodes:
        return
    counts = Counter(operator_name(n.target) or str(n.target) for n in nodes)
    facts = []
    for name, number in sorted(counts.items()):
        first = next(n for n in nodes if (operator_name(n.target) or str(n.target)) == name)
        span, layer = span_of(first), layer_of(first)
        place = f", {span.file}:{span.line}: {span.text.strip()}" if span is not None else ""
        facts.append(f"{name}: {number} {'node' if number == 1 else 'nodes'}{f', in `{layer}`' if layer else ''}{place}")
    what = f"{len(counts)} operators of the model are" if len(counts) > 1 else "an operator of the model is"
    raise UnsupportedError(f"torch: {what} not supported", facts=facts, help="pliant.frontends.torch.rule adds an operator")


def layer_of(node: Any) -> str:
    """Returns the path of the user's module that a node comes from: `encoder.layers.3.linear1`; empty for the model itself."""
    stack = node.meta.get("nn_module_stack") or {}
    path = str(next(reversed(stack.values()))[0]) if stack else ""
    return path.removeprefix("L['self']").removeprefix(".")


def span_of(node: Any) -> Span | None:
    """Returns the innermost line outside of torch's own files that a node comes from; None if its stack trace has none."""
    import torch

    inside = os.path.dirname(torch.__file__)
    frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or "") if not f[0].startswith(inside)]
    if not frames:
        return None
    file, line, text = frames[-1]
    return Span(file, int(line), 0, len(text), text)


def fake_of(raw: Any) -> Any:
    """Returns an argument of a node as torch sees it: nodes become their fake values."""
    if isinstance(raw, list | tuple):
        return [fake_of(v) for v in raw]
    return raw.meta.get("val") if _is_node(raw) else raw


def _is_node(value: Any) -> bool:
    """True for a node of a torch graph."""
    return hasattr(value, "meta") and hasattr(value, "all_input_nodes")


def _bound(node: Any) -> list[tuple[Any, Any]]:
    """Returns the parameters of a node's operator with its arguments; parameters that are not given have their default, else None."""
    pairs = []
    for k, parameter in enumerate(node.target._schema.arguments):
        raw = node.args[k] if k < len(node.args) else node.kwargs.get(parameter.name, _default(parameter))
        pairs.append((parameter, raw))
    return pairs


def _default(parameter: Any) -> Any:
    """Returns the default of a schema's parameter, None if it has none."""
    return parameter.default_value if parameter.has_default_value() else None
