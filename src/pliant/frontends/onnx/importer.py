"""The ONNX importer: translates the nodes of a model, in order, to operators of a graph program.

Each node is validated against its schema. If its inputs are known, it is folded at import time (symbolic shapes by `fold.py`, constants
by the interpreter). Otherwise the rule of its operator emits it. An operator without a rule is expanded by its function body.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from ...dtype import DType
from ...dtype import dtype as to_dtype
from ...graph.builder import Builder
from ...graph.node import Function, Tensor, Value
from ...graph.operators import building
from ...support.errors import Error, ModelFileError, UnsupportedError
from ...support.names import identifier
from ...support.record import dataclass
from ...sym.expr import Const as Literal
from ...sym.expr import Expr
from .check import check_node, schema_of
from .fold import fold
from .functions import body_of, enter_function
from .inputs import TEXTS, declared, initializers
from .items import WIDE, Item, Known, Maybe, Narrow, Sequence, as_expr, as_item, numbers
from .node_context import NeededError, NodeContext
from .reader import Model, domain_of, walk
from .rules import rule_of
from .text_operators import HOST

SMALL = 4096  # the most elements of a constant that is folded at import time; larger ones would slow down the import
LARGEST = (1 << 31) - 1  # the largest dim that programs support
EXPANDED = 10_000  # the most nodes that functions and unrolled loops may add: nested functions can grow exponentially
# Python errors of rules that met unexpected values; they are reported as errors of the model, with the request to report defects.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
# Attributes of com.microsoft that do not change results: buffer sharing, weight prepacking, the type of a mask index.
HARMLESS = frozenset({"past_present_share_buffer", "weight_prepacked", "mask_index_type"})
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Scope:
    """The named values of one ONNX graph or function, nested in an enclosing scope."""

    opsets: Mapping[str, int]
    parent: Scope | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)  # the attributes of the function being expanded
    items: dict[str, Item] = field(default_factory=dict)
    calls: tuple[Any, ...] = ()  # the functions being expanded, outermost first
    absent: frozenset[str] = frozenset()  # optional inputs of the function that the call omits

    def find(self, name: str) -> Item | None:
        """Returns the item of a name in this scope or an enclosing one, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.items:
                return scope.items[name]
            scope = scope.parent
        return None

    def inner(self) -> Scope:
        """Returns a new scope for a subgraph, nested in this one."""
        return Scope(self.opsets, self, self.attributes, {}, self.calls, self.absent)

    def resolved(self, node: Any) -> dict[str, Any]:
        """Returns the attributes of a node; references to function attributes are replaced by the attributes.

        Raises ModelFileError if one is given twice.
        """
        attributes: dict[str, Any] = {}
        for a in node.attribute:
            value = self.attributes.get(a.ref_attr_name) if a.ref_attr_name else a
            if a.name in attributes:
                raise ModelFileError(f'onnx: node "{node.name}" ({node.op_type}): attribute "{a.name}" is given twice')
            if value is not None:
                attributes[a.name] = value
        return attributes


@dataclass(frozen=True, slots=True)
class Output:
    """A record of one output of the model as a range of the program's results: several if it is a sequence."""

    name: str
    first: int
    count: int | None = None  # the length of a sequence
    empty: bool = False  # an optional without a value
    dtype: DType | None = None  # the sub-byte dtype, if the program returns its elements one per byte

    def take(self, results: list[Any]) -> Any:
        """Returns the output of the model, assembled from the results of the program."""
        if self.empty:
            return None
        if self.count is not None:
            return results[self.first : self.first + self.count]
        return results[self.first] if self.dtype is None else results[self.first].astype(self.dtype.numpy())


class Importer:
    """Builds one graph function from an ONNX model: each node becomes operators by its import rule, or is folded at import time."""

    def __init__(self, model: Model, values: Mapping[str, Any] | None = None, fallback: bool = False) -> None:
        self.model, self.given, self.fallback = model, dict(values or {}), fallback
        self.shapes: Mapping[str, tuple[int, ...]] = {}  # the shapes of inputs whose dims the caller fixed
        self.builder = Builder(identifier(model.proto.graph.name or "model"))
        self._literals: list[dict[int, tuple[Known, Value]]] = [{}]
        self.outputs: list[Output] = []
        self._left = sum(1 for _ in walk(model.proto)) + EXPANDED
        self.named_dims: dict[str, Expr] = {}  # printed dim -> dim, for shape inference of operators that run in Python
        self.sources: dict[str, tuple[str, ...]] = {}  # value -> the values that it is computed from
        self.assumed: list[Expr] = []  # conditions on dims under which the program is equivalent to the model

    def run(self) -> Function:
        """Imports the model; returns its graph function. Raises UnsupportedError or ModelFileError if it cannot be imported."""
        list_missing(self.model, self.fallback)
        graph, scope = self.model.proto.graph, Scope(self.model.opsets)
        scope.items.update(initializers(graph, self.model.folder))
        with self.builder:
            declared(self, graph, scope)
            self.nodes(graph.node, scope)
            if not graph.output:
                raise ModelFileError("onnx: the graph has no outputs")
            results: list[Value] = []
            for o in graph.output:
                self._result(o.name, scope, results)
        names = [identifier(o.name) if o.count is None else f"{identifier(o.name)}_{k}" for o in self.outputs for k in range(_size(o))]
        return self.builder.finish(results, {"outputs": tuple(names)})

    def _result(self, name: str, scope: Scope, results: list[Value]) -> None:
        """Appends the results of the program for one output of the model. Raises ModelFileError if nothing computes it."""
        item = scope.find(name)
        if item is None:
            raise ModelFileError(f'onnx: nothing computes the output "{name}"')
        while isinstance(item, Maybe) and item.item is not None:
            item = item.item
        parts = item.items if isinstance(item, Sequence) else () if isinstance(item, Maybe) else (item,)
        count, narrow = len(parts) if isinstance(item, Sequence) else None, item.dtype if isinstance(item, Narrow) else None
        self.outputs.append(Output(name, len(results), count, isinstance(item, Maybe), narrow))
        results += [self._copied(self.value(part), results) for part in parts]

    def _copied(self, value: Value, results: list[Value]) -> Value:
        """Returns `value`, or a copy if it is a parameter, a literal scalar or another result: results must be distinct tensors."""
        if isinstance(value.annotation, Tensor) and value not in self.builder._params and value not in results:
            return value
        from .emit import ops

        copy: Value = ops.reshape(value, tuple(value.annotation.shape) if isinstance(value.annotation, Tensor) else ())
        return copy

    # Nodes.

    def nodes(self, nodes: Any, scope: Scope) -> None:
        """Imports ONNX nodes in order, into the graph function being built."""
        for node in nodes:
            self.node(node, scope)

    def node(self, node: Any, scope: Scope) -> None:
        """Imports one node and defines the names of its results; errors name the node."""
        domain = domain_of(node.domain)
        self._left -= 1
        if self._left < 0:
            raise ModelFileError(f"onnx: the functions and loops of the model expand to more than {EXPANDED} nodes")
        items = [self._input(name, node, scope) for name in node.input]
        while items and items[-1] is None:
            items.pop()
        version = scope.opsets.get(domain)
        if version is None:
            if (domain, node.op_type, node.overload) not in self.model.functions and domain != "com.microsoft":
                raise ModelFileError(f'onnx: node "{node.name}" ({node.op_type}): the model imports no version of the domain "{domain}"')
            version = 1
        site = NodeContext(self, scope, node, version, domain, items)
        outer, self.builder.origin = self.builder.origin, self.builder.origin or ((node.name,) if node.name else ())
        try:
            results = self._computed(site)
        except Error as error:
            raise site.named(error) from None
        except RecursionError:
            raise site.wrong("functions or graphs are nested too deeply") from None
        except _MISTAKES as problem:
            help_ = "where the model is right, this is a defect of Pliant: please report it"
            raise site.wrong(f"it cannot be imported: {type(problem).__name__}: {str(problem)[:200]}", help=help_) from problem
        finally:
            self.builder.origin = outer
        self._define(site, results)

    def _input(self, name: str, node: Any, scope: Scope) -> Item | None:
        """Returns the item of an input name; None for an omitted input. Raises ModelFileError if the name is not defined."""
        if not name:
            return None
        item = scope.find(name)
        if item is None and name in scope.absent:
            return None
        if item is None:
            raise ModelFileError(
                f'onnx: node "{node.name or next(iter(node.output), "")}" ({node.op_type}): nothing before it computes its input "{name}"'
            )
        return item

    def _define(self, site: NodeContext, found: list[Any]) -> None:
        """Defines the names of a node's results.

        Raises ModelFileError if a name is defined twice, UnsupportedError if a result is not supported.
        """
        names = site.node.output
        if len(names) > len(found) and any(names[len(found) :]):
            raise site.unsupported(f'its result "{names[len(found)]}" is not supported')
        sources = tuple(dict.fromkeys(site.node.input))
        for name, item in zip(names, found, strict=False):
            if not name:
                continue
            if name in site.scope.items:
                raise site.wrong(f'"{name}" is computed twice')
            if item is None:
                raise site.unsupported(f'its result "{name}" is not supported')
            large = [n.value for n in _dims_of(item) if isinstance(n, Literal) and n.value > LARGEST]
            if large:
                raise site.wrong(f'its result "{name}" has a dim of {large[0]} elements')
            site.scope.items[name] = as_item(item)
            self.sources[name] = sources

    def _computed(self, site: NodeContext) -> list[Any]:
        """Expands a function of the model, or validates and emits the node; returns its results."""
        function = self.model.functions.get((site.domain, site.op, site.node.overload))
        if function is not None:
            return enter_function(self, site, function)
        check_node(site)
        return self._narrow(site, self._emitted(site))

    def _narrow(self, site: NodeContext, found: list[Any]) -> list[Any]:
        """Marks results as sub-byte (`Narrow`) if the schema gives them the type of a sub-byte operand, which is computed in bytes."""
        narrow = {k: i.dtype for k, i in enumerate(site.items) if isinstance(i, Narrow | Known) and i.dtype.bits < 8}
        schema = schema_of(site.op, site.version, site.domain) if narrow else None
        if schema is None:
            return found
        types = {schema.inputs[min(k, len(schema.inputs) - 1)].type_str: dtype for k, dtype in narrow.items()}
        for k, item in enumerate(found):
            dtype = types.get(schema.outputs[min(k, len(schema.outputs) - 1)].type_str)
            if dtype is not None and isinstance(item, Value) and item.tensor.dtype.name == WIDE[dtype.name]:
                found[k] = Narrow(item, dtype)
        return found

    def _emitted(self, site: NodeContext) -> list[Any]:
        """Returns the results of a validated node: folded, evaluated over constants, or emitted by its rule."""
        folded = fold(site)
        if folded is not None:
            return list(folded)
        rule = rule_of(site.domain, site.op)
        if rule is None:
            return self._without_rule(site)
        inner = any(a.type in (5, 10) for a in site.attributes.values())  # a subgraph may use values that are not known
        codes = site.op == "DequantizeLinear" and not site.domain  # not folded: the pass `integer_products` needs the integer codes
        if site.items and not inner and not codes and all(i is None or _is_literal(i) for i in site.items):
            constants = self._evaluated(site, rule)
            if constants is not None:
                return constants
        results = _listed(rule(site))
        if site.domain == "com.microsoft":
            site.check_read(HARMLESS)
        return results

    def _without_rule(self, site: NodeContext) -> list[Any]:
        """Returns the results of a node whose operator has no rule: expanded by its function body, or run by the fallback.

        Raises UnsupportedError if it has neither.
        """
        from .functions import expanded

        results = expanded(self, site)
        if results is not None:
            return results
        if self.fallback and not site.domain:
            from .fallback import by_reference

            return list(by_reference(site))
        raise site.unsupported("the operator is not supported", help='pliant.from_onnx("model.onnx", fallback=True) runs it in Python')

    def _evaluated(self, site: NodeContext, rule: Any) -> list[Any] | None:
        """Folds a node over constants by the interpreter, and returns its results.

        None if a result is too large or not a tensor, or if the rule needs a value that is known only at run time.
        """
        from ...interp.graph import run_graph

        outer, literals, scratch = self.builder, self._literals, Builder("constants")
        self.builder, self._literals = scratch, [{}]
        try:
            with building(scratch):
                results = _listed(rule(site))
        except NeededError:
            return None
        finally:
            self.builder, self._literals = outer, literals
        values = [v for v in results if isinstance(v, Value)]
        if not all(isinstance(v, Value | Known) for v in results) or not all(_is_small(v) for v in values):
            return None
        arrays = dict(zip(values, run_graph(scratch.finish(values), []), strict=True))
        return [numbers(arrays[v]) if isinstance(v, Value) else v for v in results]

    # Values.

    def value(self, item: Item, site: NodeContext | None = None) -> Value:
        """Converts an item to a value of the program; a literal is emitted at its first use. Raises ModelFileError for sequences."""
        if isinstance(item, Value):
            return item
        if isinstance(item, Narrow):
            return item.value
        if isinstance(item, Maybe) and item.item is not None:
            return self.value(item.item, site)
        if not isinstance(item, Known):
            what = "an empty optional" if isinstance(item, Maybe) else "a sequence"
            raise ModelFileError(f"onnx: {site or 'the model'}: {what} where a tensor is expected")
        for frame in self._literals:
            if id(item) in frame:
                return frame[id(item)][1]
        with building(self.builder):
            value = self._symbolic(item) if item.symbolic else self._literal(item)
        self._literals[-1][id(item)] = (item, value)
        return value

    def _literal(self, item: Known) -> Value:
        """Emits a literal for a known tensor of numbers."""
        pending, self.builder.hint = self.builder.hint, identifier(item.name) if item.name else "const"
        array, dtype = item.array, item.dtype
        if dtype.bits < 8:  # graph literals cannot be packed, so sub-byte elements are widened to bytes
            wide = to_dtype(WIDE[dtype.name]).numpy()
            array = array.astype(np.float32 if dtype.is_float else wide).astype(wide)
        value = self.builder.literal(np.ascontiguousarray(array).reshape(array.shape))
        self.builder.hint = pending
        return value

    def _symbolic(self, item: Known) -> Value:
        """Emits a known tensor of expressions: a host scalar, or a concat of host scalars."""
        from .emit import ops

        if item.array.ndim == 0:
            return self.builder.scalar(as_expr(item.array[()], item.dtype))
        parts = [ops.reshape(self.builder.scalar(as_expr(e, item.dtype)), (1,)) for e in item.array.flat]
        flat: Value = ops.concat(parts, axis=0)
        value: Value = ops.reshape(flat, item.array.shape) if item.array.ndim > 1 else flat
        return value

    # Subgraphs of nodes.

    def body(self, graph: Any, scope: Scope, items: Mapping[str, Item]) -> list[Item]:
        """Imports a subgraph of a node at the current place of the builder; returns its results.

        Raises ModelFileError if nothing computes one of them.
        """
        inner = scope.inner()
        inner.items.update(initializers(graph, self.model.folder))
        inner.items.update(items)
        self.nodes(graph.node, inner)
        results = []
        for o in graph.output:
            item = inner.find(o.name)
            if item is None:
                raise ModelFileError(f'onnx: nothing computes the output "{o.name}" of the graph "{graph.name}"')
            results.append(item)
        return results

    def open(self, *args: Any, **named: Any) -> None:
        """Begins a body of an `if` or a loop; literals emitted in it are visible only there."""
        self.builder.open(*args, **named)
        self._literals.append({})

    def close(self, results: list[Value]) -> Any:
        """Ends a body and its scope of literals; returns what `Builder.close` returns."""
        self._literals.pop()
        return self.builder.close(results)

    def mark(self) -> tuple[int, int]:
        """Returns the nesting depth of the builder; `back_to` returns to it after a failed attempt."""
        return len(self.builder._frames), len(self._literals)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Discards the bodies that were begun after `mark`."""
        del self.builder._frames[mark[0] :], self._literals[mark[1] :]

    def leave(self) -> dict[int, tuple[Known, Value]]:
        """Takes the innermost body's literals off the stack and returns them; `enter` puts them back."""
        return self._literals.pop()

    def enter(self, literals: dict[int, tuple[Known, Value]]) -> None:
        """Puts back the literals of a body that `leave` took off."""
        self._literals.append(literals)

    def declared_rank(self, name: str, scope: Scope) -> int | None:
        """Returns the rank that the main graph declares for a value, or None."""
        if scope.parent is not None or scope.calls:
            return None
        graph = self.model.proto.graph
        shapes = [v.type.tensor_type for v in (*graph.value_info, *graph.output) if v.name == name]
        return next((len(t.shape.dim) for t in shapes if t.HasField("shape")), None)

    def needed(self, site: NodeContext, k: int) -> NeededError:
        """Returns the error for an input that must be known at import time; it names the model inputs that determine it."""
        roots = self._roots(site.node.input[k])
        error = NeededError(
            f"onnx: {site}: input {k} must be known when the model is imported",
            facts=[f'"{site.node.input[k]}" is computed from {", ".join(roots)}'] if roots else [],
            help=f'pliant.from_onnx("model.onnx", values={{"{roots[0]}": array}}) fixes an input' if roots else "",
        )
        error.inputs = tuple(roots)
        return error

    def _roots(self, name: str) -> list[str]:
        """Returns the names of the model inputs that a value is computed from."""
        inputs = {i.name for i in self.model.proto.graph.input}
        roots: dict[str, None] = {}
        todo, seen = [name], set()
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in self.sources:
                todo += self.sources[at]
            elif at in inputs:
                roots[at] = None
        return list(roots)


def list_missing(model: Model, fallback: bool = False) -> None:
    """Raises an UnsupportedError that lists all unsupported operators of the model, before the import starts.

    Does nothing if there are none. With `fallback`, operators that onnx.reference runs count as supported.
    """
    missing: Counter[str] = Counter()
    example: dict[str, str] = {}
    for _, node in walk(model.proto):
        domain = domain_of(node.domain)
        if (domain, node.op_type, node.overload) in model.functions or _runs(model, domain, node.op_type, fallback):
            continue
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        missing[name] += 1
        example.setdefault(name, node.name or next(iter(node.output), ""))
    if not missing:
        return
    facts = [f'{name}: {number} {"node" if number == 1 else "nodes"}, "{example[name]}"' for name, number in sorted(missing.items())]
    help_ = "pliant.frontends.onnx.rule adds an operator"
    if not fallback and any("." not in name for name in missing):
        help_ = f"fallback=True (--fallback) runs those of ONNX itself in Python, by onnx.reference; {help_}"
    if any(("", name) in HOST for name in missing):
        help_ = TEXTS
    what = f"{len(missing)} operators of the model are" if len(missing) > 1 else "an operator of the model is"
    raise UnsupportedError(f"onnx: {what} not supported", facts=facts, help=help_)


def _runs(model: Model, domain: str, op: str, fallback: bool) -> bool:
    """True if the operator has a rule or a function body, or the fallback can run it."""
    return rule_of(domain, op) is not None or body_of(domain, op, model.opsets.get(domain, 1)) or (fallback and not domain)


def _dims_of(item: Any) -> tuple[Expr, ...]:
    """Returns the dims of a tensor value; empty for other items."""
    return item.annotation.shape if isinstance(item, Value) and isinstance(item.annotation, Tensor) else ()


def _size(output: Output) -> int:
    """Returns the number of program results that an output of the model consists of."""
    return 0 if output.empty else 1 if output.count is None else output.count


def _is_literal(item: Item) -> bool:
    """True if an item is a small literal tensor."""
    return isinstance(item, Known) and not item.symbolic and item.array.size <= SMALL and not item.dtype.storage


def _listed(found: Any) -> list[Any]:
    """Returns the results of an import rule as a list."""
    return list(found) if isinstance(found, tuple | list) else [found]


def _is_small(value: Value) -> bool:
    """True if a value is a tensor of constant shape that is small enough to be folded."""
    a = value.annotation
    if not isinstance(a, Tensor):
        return False
    sizes = [n.value for n in a.shape if isinstance(n, Literal)]
    return len(sizes) == len(a.shape) and math.prod(sizes) <= SMALL and not a.dtype.storage
