"""Parses the expressions of graph functions: turns the Python syntax tree into nodes. User code is not executed.

An expression evaluates to one of: a graph `Value`; a scalar over dims (`Expr`); a Python number, string, tuple or list of these; an
array; an annotation. `sym.parse` evaluates expressions of dims and numbers alone; all others become operators and calls.

    x @ w + 1.0        ->  matmul, const, add
    x.shape[0] * 2     ->  the expression n * 2
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtype import DType
from ..dtype import dtype as to_dtype
from ..support.errors import Error, UnsupportedError
from ..support.record import dataclass
from ..support.resolve import Source, near
from ..support.source import Span
from ..sym.expr import Const, Expr
from ..sym.parse import ExprParser, Open
from ..sym.parse_tables import FUNCTION_NAMES
from ..sym.spec import Marker, Strides, TensorSpec, make_spec, strides
from . import opset as ops
from .builder import Builder
from .indexing import index_steps
from .node import Annotation, Callee, Function, Scalar, Shape, Tensor, Tuple, Value
from .operators import operator_name
from .ops.calls import annotation_of
from .parse_for import list_comprehension

_OPERATORS: dict[type[ast.AST], str] = {
    ast.MatMult: "matmul",
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder",
    ast.USub: "neg",
    ast.Not: "logical_not",
    ast.And: "logical_and",
    ast.Or: "logical_or",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_ON_VALUES = {"min": "minimum", "max": "maximum", "abs": "abs"}  # Python functions on tensors -> operators
ANNOTATIONS = (Tensor, Shape, Scalar, Tuple)


@dataclass(frozen=True, slots=True)
class Unusable:
    """A placeholder for a name that must not be used here (e.g. assigned in one branch only), with the error for its use."""

    what: str
    notes: tuple[tuple[Span, str], ...] = ()
    facts: tuple[str, ...] = ()
    help: str = ""


class _Scalars(ExprParser):
    """Parses scalar expressions over dims; names are looked up in the graph function."""

    def __init__(self, owner: Expressions) -> None:
        super().__init__(owner.source)
        self.owner = owner

    def lookup(self, node: ast.Name) -> object:
        return self.owner.lookup(node)

    def subscript(self, node: ast.Subscript) -> Any:
        return self.literal(node, self.owner.subscript(node, ""))


class Expressions:
    """Evaluates the Python expressions of one graph function; `parse_stmt.Statements` adds statements."""

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.names: dict[str, Any] = {}
        self._scalars = _Scalars(self)

    def error(self, node: ast.AST, what: str, *, facts: list[str] | None = None, help: str = "", note: str = "") -> Error:
        """Returns a user error located at `node`."""
        return Error(what, where=self.source.span(node), facts=facts or [], help=help, note=note)

    # Names.

    def lookup(self, node: ast.Name) -> Any:
        """Returns the value of a name: local names first, then those of the enclosing scope.

        Raises if there is none, if the name is the function's own, or if it must not be used here.
        """
        if node.id in self.names:
            local = self.names[node.id]
            if isinstance(local, Unusable):
                raise Error(local.what, where=self.source.span(node), notes=local.notes, facts=local.facts, help=local.help)
            return local
        if node.id == self.builder.name:
            raise self.error(node, f"`{node.id}` calls itself", help="graph functions do not recurse; use `while`")
        if node.id in self.source.scope:
            return self.source.scope[node.id]
        raise self.source.undefined(node, self.names)

    def resolve(self, node: ast.expr) -> Any:
        """Returns the object that a name or dotted name refers to; raises if there is none."""
        if isinstance(node, ast.Name):
            return self.lookup(node)
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            if owner is ops and node.attr not in ops.__all__:
                raise self.error(node, f"there is no operator `{node.attr}`", help=near(node.attr, ops.__all__) or "see pliant.ops")
            if isinstance(owner, Value):
                raise self._no_attribute(node, owner)
            return self._member(node, owner)
        if isinstance(node, ast.Subscript):
            return self.evaluate(node)
        raise self.error(node, f"`{ast.unparse(node)}` cannot be called", help="call an operator, a kernel or a function by its name")

    def _member(self, node: ast.Attribute, owner: Any) -> Any:
        """The attribute of a Python object; raises if it has none of that name."""
        if not hasattr(owner, node.attr):
            raise self.error(node, f"`{ast.unparse(node.value)}` has no `{node.attr}`", help=near(node.attr, dir(owner)))
        return getattr(owner, node.attr)

    def _no_attribute(self, node: ast.Attribute, owner: Value) -> Error:
        """Returns the error for an attribute that tensors do not have."""
        help_ = f"write ops.{node.attr}({ast.unparse(node.value)}, ...)" if node.attr in ops.__all__ else "a tensor has `shape` and `dtype`"
        return self.error(node, f"a tensor has no `{node.attr}`", facts=[f"`{owner.name}` is {owner.annotation}"], help=help_)

    # Evaluation.

    def evaluate(self, node: ast.expr, hint: str = "") -> Any:
        """Evaluates an expression: operators and calls become nodes. `hint` is the preferred name of its value.

        Returns a graph value, a Python object, or an expression over dims; raises for syntax that graph functions do not have.
        """
        if self._is_scalar(node):
            return self._scalar(node)
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.lookup(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Tuple(elts):
                return tuple(self.evaluate(e) for e in elts)
            case ast.List(elts):
                return [self.evaluate(e) for e in elts]
            case ast.Subscript():
                return self.subscript(node, hint)
            case ast.BinOp(left, op, right):
                return self._operator(node, type(op), [left, right], hint)
            case ast.UnaryOp(op, operand):
                if isinstance(op, ast.UAdd):
                    return self.evaluate(operand, hint)
                return self._operator(node, type(op), [operand], hint)
            case ast.BoolOp(op, values):
                first = values[0]
                result = self.evaluate(first)
                for v in values[1:]:
                    result = self._emit(node, _OPERATORS[type(op)], [(first, result), (v, self.evaluate(v))], hint)
                return result
            case ast.Compare(left, [ast.Is() | ast.IsNot() as op], [ast.Constant(None)]):
                return (self.evaluate(left) is None) == isinstance(op, ast.Is)
            case ast.Compare(left, [op], [right]):
                return self._operator(node, type(op), [left, right], hint)
            case ast.Call():
                return self._call(node, hint)
            case ast.ListComp():
                return list_comprehension(self, node)
            case ast.IfExp(test, body, orelse):
                return self.evaluate(body if self._chosen(test) else orelse, hint)
        raise UnsupportedError(
            f"`{ast.unparse(node)}` is not part of graph functions",
            where=self.source.span(node),
            help="write operators, calls of kernels and functions, `if` and `while`",
        )

    def _chosen(self, test: ast.expr) -> bool:
        """Returns the value of the condition of `a if test else b`; raises if it is known only at run time."""
        chosen = self.evaluate(test)
        if isinstance(chosen, bool):
            return chosen
        help_ = "ops.where(c, a, b) chooses by element; an `if` statement runs one of two branches"
        raise self.error(test, "this condition is known only at run time", help=help_)

    def _is_scalar(self, node: ast.expr) -> bool:
        """True if the expression consists of dims and numbers alone."""
        match node:
            case ast.Constant(value):
                return isinstance(value, bool | int | float)
            case ast.Name(name):
                target = self.names.get(name, self.source.scope.get(name))
                return isinstance(target, Expr | bool | int | float) and not isinstance(target, np.generic)
            case ast.Attribute(base):
                return not isinstance(self._peek(base), Value) and isinstance(self._peek(node), bool | int | float)
            case ast.BinOp(left, op, right):
                return not isinstance(op, ast.MatMult) and self._is_scalar(left) and self._is_scalar(right)
            case ast.UnaryOp(_, operand):
                return self._is_scalar(operand)
            case ast.BoolOp(_, values):
                return all(map(self._is_scalar, values))
            case ast.Compare(left, _, comparators):
                return all(map(self._is_scalar, [left, *comparators]))
            case ast.IfExp(test, body, orelse):
                return all(map(self._is_scalar, [test, body, orelse]))
            case ast.Subscript(ast.Attribute(_, "shape"), index):
                return self._is_scalar(index)
            case ast.Call(ast.Name() | ast.Attribute() as func, args, []):
                target = self._peek(func)
                known = isinstance(target, DType) or id(target) in FUNCTION_NAMES
                start = 1 if FUNCTION_NAMES.get(id(target)) in ("cast", "bitcast") else 0
                return known and all(map(self._is_scalar, args[start:]))
        return False

    def _peek(self, node: ast.expr) -> Any:
        """Returns the object that a dotted name refers to, or None if there is none; never raises."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, self.source.scope.get(node.id))
        return getattr(self._peek(node.value), node.attr, None) if isinstance(node, ast.Attribute) else None

    def _scalar(self, node: ast.expr) -> Any:
        """Evaluates an expression over dims and numbers; constants become Python numbers."""
        scalar = self._scalars.value(node)
        if isinstance(scalar, Open):
            return scalar.number if scalar.number is not None else scalar.build(scalar.default)
        if isinstance(scalar, Const) and isinstance(scalar.value, bool):
            return scalar.value
        return scalar

    def _attribute(self, node: ast.Attribute) -> Any:
        """Evaluates a dotted name; tensors have `shape` and `dtype`. Raises an Error for an attribute that does not exist."""
        owner = self.evaluate(node.value)
        if isinstance(owner, Value):
            if node.attr == "shape" and isinstance(owner.annotation, Tensor):
                return owner.annotation.shape
            if node.attr == "dtype" and isinstance(owner.annotation, Tensor | Scalar):
                return owner.annotation.dtype
            raise self._no_attribute(node, owner)
        return self.resolve(node) if owner is ops else self._member(node, owner)

    def subscript(self, node: ast.Subscript, hint: str) -> Any:
        """Evaluates `a[...]`: an annotation, an item of a tuple, list or dictionary, or a slice of a tensor; raises for anything else."""
        owner = self.evaluate(node.value)
        if isinstance(owner, Marker):
            return self.located(node, lambda: annotation_of(self._spec(owner, node), "here"))
        if owner is tuple:
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            return Tuple(tuple(self.annotation(i) for i in items))
        if isinstance(owner, Value):
            return self._slices(node, owner, hint)
        if isinstance(owner, tuple | list | dict):
            key = self._index_item(node.slice)
            key = key.value if isinstance(key, Const) else key
            try:
                return owner[key]
            except (IndexError, KeyError, TypeError):
                facts = [f"it has {len(owner)}"] if not isinstance(owner, dict) else [f"it has {', '.join(map(str, owner))}"]
                raise self.error(node, f"`{ast.unparse(node.value)}` has no item {key}", facts=facts) from None
        raise self.error(node, f"`{ast.unparse(node.value)}` cannot be indexed", help="tensors, shapes, tuples and dictionaries can")

    def _spec(self, marker: Marker, node: ast.Subscript) -> TensorSpec:
        """Returns the spec of an annotation such as Tensor[f32, n, 64]; raises if an extent is no dim or whole number from 0 on."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = [self.evaluate(i) for i in items]
        for item, value in zip(items[1:], parts[1:], strict=True):
            if not isinstance(value, Expr | int | Strides) or isinstance(value, bool):
                shown = f"is {value}" if isinstance(value, Value | float | str) else f"is an object of type `{type(value).__name__}`"
                raise self.error(item, "an extent is a dim or a whole number", facts=[f"`{ast.unparse(item)}` {shown}"])
            if isinstance(value, int) and value < 0:
                raise self.error(item, f"an extent cannot be negative: {value}")
        if isinstance(parts[0], str):
            parts[0] = self.located(items[0], lambda: to_dtype(parts[0]))
        return make_spec(marker.role, tuple(parts))

    def _slices(self, node: ast.Subscript, owner: Value, hint: str) -> Value:
        """Emits the operators of a subscript of a tensor, with numpy's meaning (`indexing.py`)."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        index = [self._index_item(item) for item in items]
        value = owner
        for step in self.located(node, lambda: index_steps(owner, index)):
            value = self.run(node, lambda step=step, value=value: step(value), [(node.value, value)], hint)  # type: ignore[misc]
        return value

    def _index_item(self, item: ast.expr) -> Any:
        """Evaluates one item of a subscript: a slice with its bounds, None, `...`, an integer or a tensor."""
        if isinstance(item, ast.Slice):
            return slice(*(None if b is None else self.evaluate(b) for b in (item.lower, item.upper, item.step)))
        return self.evaluate(item)

    # Operators and calls.

    def _operator(self, node: ast.expr, op: type[ast.AST], operands: list[ast.expr], hint: str) -> Any:
        """Emits the operator for a Python operator, and returns its result; `+` of lists joins them. Raises if tensors do not have it."""
        if op not in _OPERATORS:
            shown = ast.unparse(node)
            raise UnsupportedError(f"`{shown}`: there is no such operator on tensors", where=self.source.span(node), help="see pliant.ops")
        values = [self.evaluate(o) for o in operands]
        if op is ast.Add and all(isinstance(v, list) for v in values):  # lists of tensors: a new list, none is changed
            return [*values[0], *values[1]]
        return self._emit(node, _OPERATORS[op], [*zip(operands, values, strict=True)], hint)

    def _emit(self, node: ast.expr, name: str, operands: list[tuple[ast.expr, Any]], hint: str) -> Any:
        """Emits the operator `name`; raises if an operand is not a tensor or number."""
        for at, value in operands:
            if not isinstance(value, Value | Expr | bool | int | float | np.ndarray | np.generic):
                raise self.error(at, f"`{ast.unparse(at)}` is no tensor", facts=[f"it is an object of type `{type(value).__name__}`"])
        return self.run(node, lambda: getattr(ops, name)(*(v for _, v in operands)), operands, hint)

    def run(self, node: ast.AST, make: Callable[[], Any], operands: list[tuple[ast.expr, Any]], hint: str) -> Any:
        """Calls `make` with the builder set to the source spans of the node and its operands and to the preferred name."""
        b = self.builder
        b.span, b.hint = self.source.span(node), hint
        b.spans = {v: self.source.span(at) for at, v in operands if isinstance(v, Value)}
        return self.located(node, make)

    def located(self, node: ast.AST, make: Callable[[], Any]) -> Any:
        """Returns `make()`.

        Adds the source span of `node` to its errors, and turns Python's errors about arguments into errors for users.
        """
        try:
            return make()
        except Error as error:
            raise error.at(self.source.span(node)) from None
        except (TypeError, ValueError, OverflowError) as problem:  # a literal whose type or size the operator does not accept
            shown = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
            raise self.error(node, f"`{shown}` cannot take these arguments: {problem}") from None

    def _call(self, node: ast.Call, hint: str) -> Any:
        """Evaluates a call: an operator, a kernel, a graph function, or one of few Python functions; raises for anything else."""
        target = self.resolve(node.func)
        if (operator := operator_name(target)) is not None:
            return self._call_op(node, f"ops.{operator}", target, _signature(target), hint)
        if getattr(target, "is_operator", False):  # declared by the user
            return self._call_op(node, target.__name__, target, inspect.signature(target), hint)
        callee, function = getattr(target, "callee", None), getattr(target, "graph", None)
        if isinstance(callee, Callee):
            return self._call_loop(node, callee, hint)
        if isinstance(function, Function):
            args, spans = self._positional(node, [p.name for p in function.params])
            values = [self.value(at, a, p.annotation) for (at, a), p in zip(spans, function.params, strict=False)]
            values += args[len(values) :]
            return _unpack(self.run(node, lambda: self.builder.call_function(function, values), spans, hint))
        name = FUNCTION_NAMES.get(id(target), "")
        if name in _ON_VALUES:
            return self._emit(node, _ON_VALUES[name], [(a, self.evaluate(a)) for a in node.args], hint)
        if (target is int or target is float) and len(node.args) == 1:
            number = self.evaluate(node.args[0])
            if isinstance(number, bool | int | float):
                return target(number)
        if target is len and len(node.args) == 1:
            return len(self.evaluate(node.args[0]))
        if target is strides and not node.keywords:
            return self.located(node, lambda: strides(*(self.evaluate(a) for a in node.args)))
        raise self._not_callable(node, target)

    def _not_callable(self, node: ast.Call, found: Any) -> Error:
        """Returns the error for a call of something that graph functions cannot call."""
        shown = ast.unparse(node.func)
        if isinstance(found, Value):
            return self.error(node.func, f"`{shown}` is a tensor, it cannot be called", facts=[f"it is {found.annotation}"])
        last = shown.rpartition(".")[2]
        help_ = f"use ops.{last}" if last in ops.__all__ else "decorate it with @function or @kernel, or use ops.call_host"
        return self.error(node.func, f"`{shown}` cannot be called in a graph function", help=help_, facts=[_what(found)])

    def _call_op(self, node: ast.Call, name: str, found: Callable[..., Any], signature: inspect.Signature, hint: str) -> Any:
        """Emits an operator and returns its result; raises if the arguments do not fit its signature."""
        args = [self.evaluate(a) for a in self._plain(node)]
        keywords = {k.arg: self.evaluate(k.value) for k in node.keywords if k.arg}
        try:
            signature.bind(*args, **keywords)
        except TypeError as problem:
            shown = ", ".join(str(p).partition(":")[0] + _default_text(p) for p in signature.parameters.values())
            unknown = [k for k in keywords if k not in signature.parameters]
            help_ = near(unknown[0], signature.parameters) if unknown else ""
            raise self.error(node, f"{name}: {problem}", facts=[f"{name}({shown})"], help=help_) from None
        operands = [*zip(node.args, args, strict=True)]
        for k in node.keywords:
            operands.append((k.value, keywords[k.arg]))  # type: ignore[index]
        for at, value in list(operands):
            if isinstance(at, ast.List | ast.Tuple) and isinstance(value, list | tuple):
                operands += zip(at.elts, value, strict=True)
        return self.run(node, lambda: found(*args, **keywords), operands, hint)

    def _plain(self, node: ast.Call) -> list[ast.expr]:
        """Returns the positional arguments of a call; raises for `*args`."""
        for a in node.args:
            if isinstance(a, ast.Starred):
                raise self.error(a, "arguments cannot be unpacked with `*`", help="write them out")
        return node.args

    def _positional(self, node: ast.Call, names: list[str]) -> tuple[list[Any], list[tuple[ast.expr, Any]]]:
        """Returns the arguments of a call in parameter order, and each with its syntax node; raises for unknown keywords and `*args`."""
        written: list[ast.expr] = list(self._plain(node))
        by_name = {}
        for k in node.keywords:
            if k.arg not in names:
                help_ = near(k.arg or "", names) or f"it has {', '.join(names)}"
                raise self.error(k.value, f"`{ast.unparse(node.func)}` has no parameter `{k.arg}`", help=help_)
            by_name[k.arg] = k.value
        for name in names[len(written) :]:
            if name in by_name:
                written.append(by_name.pop(name))
        spans = [(a, self.evaluate(a)) for a in written]
        return [v for _, v in spans], spans

    def _call_loop(self, node: ast.Call, callee: Callee, hint: str) -> Any:
        """Emits a call of a kernel, and returns its results; numbers take the dtypes of parameters. Raises for other arguments."""
        params = [p for p in callee.params if p.role != "out"]
        args, spans = self._positional(node, [p.name for p in params])
        for k, ((at, value), p) in enumerate(zip(spans, params, strict=False)):
            if p.shape is not None:
                args[k] = self.value(at, value, Tensor(p.dtype, p.shape))
            elif isinstance(value, bool | int | float):
                args[k] = Const(value, p.dtype)
            elif not isinstance(value, Value | Expr):
                raise self.error(at, f"{callee.name}: argument `{p.name}` is a {p.dtype}, not {_what(value)}")
        located = [(at, args[k]) for k, (at, _) in enumerate(spans)]
        return _unpack(self.run(node, lambda: self.builder.call_loop(callee, args), located, hint))

    def value(self, node: ast.AST, found: Any, like: Annotation | None = None) -> Value:
        """Converts the result of `evaluate` to a graph value; numbers take the dtype of `like`. Raises for other objects."""
        self.builder.span = self.source.span(node)
        if isinstance(found, Value):
            return found
        if isinstance(found, Expr):
            return self.builder.scalar(found)
        if isinstance(found, np.ndarray | np.generic):
            return self.builder.constant(np.asarray(found))
        if isinstance(found, bool | int | float):
            if isinstance(like, Tensor):
                return self.builder.constant(np.array(found, like.dtype.numpy()))
            dtype = like.dtype if isinstance(like, Scalar) else None
            return self.builder.scalar(Const(found, dtype) if dtype else _literal(found))
        raise self.error(node, "a tensor is expected here", facts=[_what(found)])

    # Annotations.

    def annotation(self, node: ast.expr) -> Annotation:
        """Evaluates an annotation: Tensor[...], State[...], a dtype, or a tuple of these; raises for anything else."""
        if isinstance(node, ast.Tuple):
            return Tuple(tuple(self.annotation(e) for e in node.elts))
        written = self.evaluate(node)
        if isinstance(written, ANNOTATIONS):
            return written
        if written in (bool, float, int) or isinstance(written, DType):
            if written in (float, int):
                help_ = "write f32 or f64" if written is float else "write i32 or i64"
                raise self.error(node, f"`{ast.unparse(node)}` does not say how wide it is", help=help_)
            from ..dtype import bool_

            return Scalar(bool_ if written is bool else written)
        if isinstance(written, TensorSpec):
            return self.located(node, lambda: annotation_of(written, "here"))  # type: ignore[no-any-return]
        raise self.error(node, f"`{ast.unparse(node)}` is no annotation", help="write Tensor[f32, n, 64], State[...], or a dtype")


@functools.cache
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function of `pliant.ops`: a program calls the same few many times."""
    return inspect.signature(function)


def _literal(value: float) -> Expr:
    """Returns a Python number as a literal of its default dtype."""
    from ..sym.expr import wrap

    return wrap(value)


def _default_text(p: inspect.Parameter) -> str:
    """Returns the default of a parameter as text, for the signature in messages."""
    return "" if p.default is inspect.Parameter.empty or "=" in str(p).partition(":")[0] else f"={p.default!r}"


def _what(found: Any) -> str:
    """A description of a Python object, for messages."""
    return f"it is an object of type `{type(found).__name__}`"


def _unpack(outs: tuple[Value, ...]) -> Any:
    """Returns the only value, or the tuple of several."""
    return outs[0] if len(outs) == 1 else outs
