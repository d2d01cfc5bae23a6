"""The importer: ONNX nodes, one after the other, become operators of a graph program.

For each node: its form is compared with the schema; over tensors that are known it is computed here and now (shapes: `fold.py`, constants:
the interpreter); else the rule of its operator emits it; an operator without a rule, but with a body of other operators, is that body.
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
from ...support.record import dataclass
from ...sym.expr import Const as Literal
from ...sym.expr import Expr
from .check import check_node, schema_of
from .fold import fold
from .functions import body_of, enter_function
from .inputs import TEXTS, declared, identifier, initializers
from .items import WIDE, Item, Known, Maybe, Narrow, Sequence, as_expr, as_item, numbers
from .node_context import NeededError, NodeContext
from .reader import Model, domain_of, walk
from .rules import rule_of
from .text_operators import HOST

SMALL = 4096  # elements of what is computed while importing
LARGEST = (1 << 31) - 1  # of one dim
EXPANDED = 10_000  # nodes that functions and unrolled loops may add
# What Python says of values that no rule has thought of: a mistake of the model, as long as nobody shows that it is one of ours.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
# Attributes of com.microsoft that change no result: how memory is shared, what weights were made for, what a mask is called.
HARMLESS = frozenset({"past_present_share_buffer", "weight_prepacked", "mask_index_type"})
Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Scope:
    """The names of one graph or function, inside of those around it."""

    opsets: Mapping[str, int]
    parent: Scope | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)  # of the function that is being imported
    items: dict[str, Item] = field(default_factory=dict)
    calls: tuple[Any, ...] = ()  # the functions around
    absent: frozenset[str] = frozenset()  # inputs of the function that the call leaves out

    def find(self, name: str) -> Item | None:
        """What a name stands for, here or outside."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.items:
                return scope.items[name]
            scope = scope.parent
        return None

    def inner(self) -> Scope:
        """The scope of a graph inside."""
        return Scope(self.opsets, self, self.attributes, {}, self.calls, self.absent)

    def resolved(self, node: Any) -> dict[str, Any]:
        """The attributes of a node, those that refer to the function's attributes replaced by them."""
        found: dict[str, Any] = {}
        for a in node.attribute:
            given = self.attributes.get(a.ref_attr_name) if a.ref_attr_name else a
            if a.name in found:
                raise ModelFileError(f'onnx: node "{node.name}" ({node.op_type}): attribute "{a.name}" is given twice')
            if given is not None:
                found[a.name] = given
        return found


@dataclass(frozen=True, slots=True)
class Output:
    """One output of the model: which results of the program it is made of, a list of them if it is a sequence."""

    name: str
    first: int
    count: int | None = None  # of the sequence's tensors
    empty: bool = False  # an optional without a value
    dtype: DType | None = None  # of elements below a byte that are given one in each byte

    def take(self, results: list[Any]) -> Any:
        """The output from the results of the program."""
        if self.empty:
            return None
        if self.count is not None:
            return results[self.first : self.first + self.count]
        return results[self.first] if self.dtype is None else results[self.first].astype(self.dtype.numpy())


class Importer:
    """Builds one graph function from a model; see the module."""

    def __init__(self, model: Model, values: Mapping[str, Any] | None = None, fallback: bool = False) -> None:
        self.model, self.given, self.fallback = model, dict(values or {}), fallback
        self.shapes: Mapping[str, tuple[int, ...]] = {}  # of inputs whose dims are fixed
        self.builder = Builder(identifier(model.proto.graph.name or "model"))
        self._literals: list[dict[int, tuple[Known, Value]]] = [{}]
        self.outputs: list[Output] = []
        self._left = sum(1 for _ in walk(model.proto)) + EXPANDED
        self.named_dims: dict[str, Expr] = {}  # by their text, for operators that run in Python
        self.sources: dict[str, tuple[str, ...]] = {}  # by the name of a value: those that it is computed from
        self.assumed: list[Expr] = []  # conditions on dims under which the program is the model

    def run(self) -> Function:
        """The graph function of the model."""
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
        """Adds the results of the program that an output is made of."""
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
        """A result as a tensor that no parameter and no other result is."""
        if isinstance(value.annotation, Tensor) and value not in self.builder._params and value not in results:
            return value
        from .emit import ops

        copy: Value = ops.reshape(value, tuple(value.annotation.shape) if isinstance(value.annotation, Tensor) else ())
        return copy

    # Nodes.

    def nodes(self, nodes: Any, scope: Scope) -> None:
        """Imports nodes in their order."""
        for node in nodes:
            self.node(node, scope)

    def node(self, node: Any, scope: Scope) -> None:
        """Imports one node, and gives names to its results."""
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
        kept, self.builder.origin = self.builder.origin, self.builder.origin or ((node.name,) if node.name else ())
        try:
            found = self._computed(site)
        except Error as error:
            raise site.named(error) from None
        except RecursionError:
            raise site.wrong("functions or graphs are nested too deeply") from None
        except _MISTAKES as problem:
            help_ = "where the model is right, this is a defect of Pliant: please report it"
            raise site.wrong(f"it cannot be imported: {type(problem).__name__}: {str(problem)[:200]}", help=help_) from problem
        finally:
            self.builder.origin = kept
        self._define(site, found)

    def _input(self, name: str, node: Any, scope: Scope) -> Item | None:
        if not name:
            return None
        found = scope.find(name)
        if found is None and name in scope.absent:
            return None
        if found is None:
            raise ModelFileError(
                f'onnx: node "{node.name or next(iter(node.output), "")}" ({node.op_type}): nothing before it computes its input "{name}"'
            )
        return found

    def _define(self, site: NodeContext, found: list[Any]) -> None:
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
        function = self.model.functions.get((site.domain, site.op, site.node.overload))
        if function is not None:
            return enter_function(self, site, function)
        check_node(site)
        return self._narrow(site, self._emitted(site))

    def _narrow(self, site: NodeContext, found: list[Any]) -> list[Any]:
        """Results that have the type of an operand of less than a byte, which was computed with in bytes, are of that type too."""
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
        folded = fold(site)
        if folded is not None:
            return list(folded)
        rule = rule_of(site.domain, site.op)
        if rule is None:
            return self._without_rule(site)
        inner = any(a.type in (5, 10) for a in site.attributes.values())  # a graph inside may use what is not known
        codes = site.op == "DequantizeLinear" and not site.domain  # stay beside what they stand for: products are made of them
        if site.items and not inner and not codes and all(i is None or _is_literal(i) for i in site.items):
            found = self._evaluated(site, rule)
            if found is not None:
                return found
        made = _listed(rule(site))
        if site.domain == "com.microsoft":
            site.check_read(HARMLESS)
        return made

    def _without_rule(self, site: NodeContext) -> list[Any]:
        from .functions import expanded

        found = expanded(self, site)
        if found is not None:
            return found
        if self.fallback and not site.domain:
            from .fallback import by_reference

            return list(by_reference(site))
        raise site.unsupported("the operator is not supported", help="from_onnx(…, fallback=True) runs it in Python")

    def _evaluated(self, site: NodeContext, rule: Any) -> list[Any] | None:
        """The results over constants, computed by the interpreter: None where they are too many."""
        from ...interp.graph import run_graph

        kept, literals, scratch = self.builder, self._literals, Builder("constants")
        self.builder, self._literals = scratch, [{}]
        try:
            with building(scratch):
                found = _listed(rule(site))
        except NeededError:
            return None
        finally:
            self.builder, self._literals = kept, literals
        values = [v for v in found if isinstance(v, Value)]
        if not all(isinstance(v, Value | Known) for v in found) or not all(_is_small(v) for v in values):
            return None
        arrays = dict(zip(values, run_graph(scratch.finish(values), []), strict=True))
        return [numbers(arrays[v]) if isinstance(v, Value) else v for v in found]

    # Values.

    def value(self, item: Item, site: NodeContext | None = None) -> Value:
        """An item as a value of the program; literals are emitted where they are first used."""
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
            made = self._symbolic(item) if item.symbolic else self._literal(item)
        self._literals[-1][id(item)] = (item, made)
        return made

    def _literal(self, item: Known) -> Value:
        kept, self.builder.hint = self.builder.hint, identifier(item.name) if item.name else "const"
        array, dtype = item.array, item.dtype
        if dtype.bits < 8:  # literals have no packed form
            wide = to_dtype(WIDE[dtype.name]).numpy()
            array = array.astype(np.float32 if dtype.is_float else wide).astype(wide)
        made = self.builder.literal(np.ascontiguousarray(array).reshape(array.shape))
        self.builder.hint = kept
        return made

    def _symbolic(self, item: Known) -> Value:
        from .emit import ops

        if item.array.ndim == 0:
            return self.builder.scalar(as_expr(item.array[()], item.dtype))
        parts = [ops.reshape(self.builder.scalar(as_expr(e, item.dtype)), (1,)) for e in item.array.flat]
        flat: Value = ops.concat(parts, axis=0)
        made: Value = ops.reshape(flat, item.array.shape) if item.array.ndim > 1 else flat
        return made

    # Graphs inside of nodes.

    def body(self, graph: Any, scope: Scope, items: Mapping[str, Item]) -> list[Item]:
        """The results of a graph that stands inside of a node, its nodes emitted at the place where the builder is."""
        inner = scope.inner()
        inner.items.update(initializers(graph, self.model.folder))
        inner.items.update(items)
        self.nodes(graph.node, inner)
        found = []
        for o in graph.output:
            item = inner.find(o.name)
            if item is None:
                raise ModelFileError(f'onnx: nothing computes the output "{o.name}" of the graph "{graph.name}"')
            found.append(item)
        return found

    def open(self, *args: Any, **named: Any) -> None:
        """Begins a body of an `if` or a loop."""
        self.builder.open(*args, **named)
        self._literals.append({})

    def close(self, results: list[Value]) -> Any:
        """Ends a body."""
        self._literals.pop()
        return self.builder.close(results)

    def mark(self) -> tuple[int, int]:
        """Where the builder is, so that what is begun and fails can be left."""
        return len(self.builder._frames), len(self._literals)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Leaves bodies that were begun after `mark`."""
        del self.builder._frames[mark[0] :], self._literals[mark[1] :]

    def leave(self) -> dict[int, tuple[Known, Value]]:
        """The literals of the innermost body, which is left for a moment; `enter` comes back to it."""
        return self._literals.pop()

    def enter(self, literals: dict[int, tuple[Known, Value]]) -> None:
        """Comes back to a body."""
        self._literals.append(literals)

    def declared_rank(self, name: str, scope: Scope) -> int | None:
        """The number of dims that the model's own graph declares for a value, None where it declares none."""
        if scope.parent is not None or scope.calls:
            return None
        graph = self.model.proto.graph
        shapes = [v.type.tensor_type for v in (*graph.value_info, *graph.output) if v.name == name]
        return next((len(t.shape.dim) for t in shapes if t.HasField("shape")), None)

    def needed(self, site: NodeContext, k: int) -> NeededError:
        """The error for an input that must be known while importing."""
        roots = self._roots(site.node.input[k])
        error = NeededError(
            f"onnx: {site}: input {k} must be known when the model is imported",
            facts=[f'"{site.node.input[k]}" is computed from {", ".join(roots)}'] if roots else [],
            help=f'from_onnx(…, values={{"{roots[0]}": array}}) fixes an input' if roots else "",
        )
        error.inputs = tuple(roots)
        return error

    def _roots(self, name: str) -> list[str]:
        """The inputs of the model that a value is computed from."""
        inputs = {i.name for i in self.model.proto.graph.input}
        found: dict[str, None] = {}
        todo, seen = [name], set()
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in self.sources:
                todo += self.sources[at]
            elif at in inputs:
                found[at] = None
        return list(found)


def list_missing(model: Model, fallback: bool = False) -> None:
    """Names every operator that nobody knows, before any work."""
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
    return rule_of(domain, op) is not None or body_of(domain, op, model.opsets.get(domain, 1)) or (fallback and not domain)


def _dims_of(item: Any) -> tuple[Expr, ...]:
    return item.annotation.shape if isinstance(item, Value) and isinstance(item.annotation, Tensor) else ()


def _size(output: Output) -> int:
    """How many results of the program an output is made of."""
    return 0 if output.empty else 1 if output.count is None else output.count


def _is_literal(item: Item) -> bool:
    """Whether an item is a tensor of few numbers."""
    return isinstance(item, Known) and not item.symbolic and item.array.size <= SMALL and not item.dtype.storage


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple | list) else [found]


def _is_small(value: Value) -> bool:
    a = value.annotation
    if not isinstance(a, Tensor):
        return False
    sizes = [n.value for n in a.shape if isinstance(n, Literal)]
    return len(sizes) == len(a.shape) and math.prod(sizes) <= SMALL and not a.dtype.storage


def expr_or_int(e: Expr) -> Any:
    """An expression, or the integer that it is."""
    return e.value if isinstance(e, Literal) else e
