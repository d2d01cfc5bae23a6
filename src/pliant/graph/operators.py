"""Operators: what one is, the decorator that declares it, and how its function emits a node.

An operator is declared once, in the file of its family under `graph/ops/`: the function that users call, decorated with what the compiler
knows about it (deduction, numpy reference, stages). The name of the function is the name of the operator. The function's first parameter,
which users do not see, knows that name: errors state it, and `op.emit` emits the node into the active builder.

    @operator(deduce=_deduce_softmax, reference=_softmax_reference, stages=_softmax_stages, attrs=AxisAttrs)
    def softmax(op: OpCall, x: T, axis: int = -1) -> T:
        value = op.operand(x)
        return op.emit(value, attrs=AxisAttrs(normal_axis(op.name, value, axis)))

    with building(builder):
        y = softmax(x, axis=-1)      # one Op node, its annotation deduced

The fields of an operator's attribute record have the names of the function's keyword parameters, so that a printed node is a call.
`opset.py` finds operators by name; nothing here imports a family.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np

from ..dtype import DType, bool_, f32, i64
from ..dtype import dtype as to_dtype
from ..support.context import assigned
from ..support.errors import Error
from ..support.record import dataclass
from ..support.source import caller_span
from ..sym.expr import Const, Expr
from .deduce import Deduction
from .node import Annotation, Callee, Function, Scalar, Tensor, Value
from .stage import Stage

P = ParamSpec("P")
R = TypeVar("R")
Array = np.ndarray[Any, Any]
Deduce = Callable[[Deduction, Any], tuple[Annotation, ...]]
Reference = Callable[[Sequence[Array], Any], Sequence[Array]]  # attrs have numbers in place of expressions
Stages = Callable[[tuple[Tensor, ...], tuple[Tensor, ...], Any], tuple[Stage, ...]]  # arguments, results, attrs
Capacity = Callable[[tuple[Tensor, ...], Any], tuple[Expr, ...]]  # arguments, attrs


@dataclass(frozen=True, slots=True)
class OpDef:
    """A declared operator: its deduction, numpy reference, and loop program (stages, or a template: docs/design/0007)."""

    name: str
    deduce: Deduce
    reference: Reference
    stages: Stages | None
    arity: tuple[int, int | None]  # the least and the largest number of arguments; None: any
    attrs: type | None = None
    view: bool = False  # the result is the argument's memory under another shape
    template: str = ""  # `module.function` in `lower/ops/templates`, for loops that stages cannot express
    fits: Callable[[tuple[Tensor, ...], Any], bool] | None = None  # whether the template serves such operands; the stages serve others
    defines: tuple[str, ...] = ()  # the attributes that are new dims, whose values are known only while the program runs
    capacity: Capacity | None = None  # what each of these dims is at most
    updates: bool = False  # where the first argument is state, it is consumed, and the first result is its new version
    broadcasts: bool = False  # each element is computed from those of the operands, which are broadcast


DECLARED: dict[str, OpDef] = {}  # the operators of the families that are imported; `op_table.TABLE` has all of them
_NAMES: dict[int, str] = {}  # by identity, because users may rename a function; the functions live as long as their modules


def operator_name(function: object) -> str | None:
    """Returns the name of a function of `pliant.ops`; None for any other object."""
    return _NAMES.get(id(function))


@dataclass(frozen=True, slots=True)
class OpCall:
    """The first parameter of an operator's function: the operator's name for errors, and access to the active graph builder."""

    name: str

    def emit(self, *args: Any, attrs: Any = None) -> Any:
        """Emits the operator into the active builder; returns its only result, or a tuple of them."""
        return emit(self.name, args, attrs)

    def operand(self, value: Any, like: DType | None = None) -> Value:
        """One operand as a value; a Python number becomes a literal of the dtype `like`."""
        return operand(self.name, value, like)

    def operands(self, args: Sequence[Any]) -> tuple[Value, ...]:
        """Operands as values; Python numbers take the dtype of the first value among them."""
        return operands(self.name, args)

    def builder(self) -> Emitter:
        """Returns the active graph builder; raises if there is none."""
        return active(self.name)


Body = Callable[Concatenate[OpCall, P], R]  # a function of `pliant.ops` as it is written: users do not see the first parameter


def _expose(function: Body[P, R]) -> Callable[P, R]:
    """Returns the operator's function as users call it, without its first parameter."""
    name = function.__name__
    bound = functools.partial(function, OpCall(name))

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return bound(*args, **named)
        except TypeError:
            try:  # Python's own message about wrong arguments counts `op` among them
                inspect.signature(bound).bind(*args, **named)
            except TypeError as problem:
                raise TypeError(f"ops.{name}: {problem}") from None
            raise

    call.__wrapped__ = bound  # `inspect.signature` reads it
    _NAMES[id(call)] = name
    return call


def composite(function: Body[P, R]) -> Callable[P, R]:
    """Declares a function of `pliant.ops` that emits other operators instead of one of its own."""
    return _expose(function)


def operator(
    *,
    deduce: Deduce,
    reference: Reference,
    stages: Stages | None = None,
    attrs: type | None = None,
    arity: int | tuple[int, int | None] = 1,
    view: bool = False,
    template: str = "",
    fits: Callable[[tuple[Tensor, ...], Any], bool] | None = None,
    defines: tuple[str, ...] = (),
    capacity: Capacity | None = None,
    updates: bool = False,
    broadcasts: bool = False,
) -> Callable[[Body[P, R]], Callable[P, R]]:
    """Returns a decorator that declares the operator which the decorated function emits; `OpDef` says what the parameters are."""

    def declare(function: Body[P, R]) -> Callable[P, R]:
        name = function.__name__
        assert name not in DECLARED, name
        least_and_most = (arity, arity) if isinstance(arity, int) else arity
        DECLARED[name] = OpDef(
            name, deduce, reference, stages, least_and_most, attrs, view, template, fits, defines, capacity, updates, broadcasts
        )
        return _expose(function)

    return declare


def tensor_of(a: Annotation) -> Tensor:
    """Returns the annotation of an operand as stages see it: a host scalar, or a shape, is a tensor of rank 0."""
    return Tensor(a.dtype, ()) if isinstance(a, Scalar) else a if isinstance(a, Tensor) else Tensor(i64, ())


def map_attrs(attrs: Any, swap: Callable[[Expr], Any]) -> Any:
    """Returns an attribute record with each of its expressions (also inside tuples) replaced; the same object if nothing changes."""
    if attrs is None:
        return None
    changes = {f.name: _map(getattr(attrs, f.name), swap) for f in fields(attrs)}
    same = all(getattr(attrs, name) is new for name, new in changes.items())
    return attrs if same else replace(attrs, **changes)


def _map(value: Any, swap: Callable[[Expr], Any]) -> Any:
    if isinstance(value, Expr):
        return swap(value)
    if isinstance(value, tuple):
        new = tuple(_map(v, swap) for v in value)
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new
    return value


def attr_exprs(attrs: Any) -> list[Expr]:
    """Returns the symbolic expressions in an operator's attribute record."""
    found: list[Expr] = []
    map_attrs(attrs, lambda e: (found.append(e), e)[1])  # type: ignore[func-returns-value]
    return found


class Emitter(Protocol):
    """The interface of a graph builder that the functions of `pliant.ops` emit nodes into."""

    def op(self, name: str, args: Sequence[Value], attrs: Any = None) -> tuple[Value, ...]:
        """Emits a node of an operator; returns its results."""

    def constant(self, array: Array) -> Value:
        """Emits a literal tensor as an operand."""

    def literal(self, array: Array) -> Value:
        """Emits a literal tensor as a result."""

    def call_loop(self, callee: Callee, args: Sequence[Value | Expr | float], symbols: Sequence[Expr] | None = None) -> tuple[Value, ...]:
        """Emits a call of a loop program; returns its results."""

    def require(self, condition: Expr, message: str, values: tuple[Expr, ...], help: str) -> None:
        """Adds a run-time condition that the next emitted node checks."""

    def call_library(self, symbol: str, args: Sequence[Value], results: Sequence[Annotation]) -> tuple[Value, ...]:
        """Emits a call of an external symbol; returns its results, which have the annotations `results`."""

    def call_host(self, fn: Callable[..., Any], args: Sequence[Value], results: Sequence[Annotation]) -> tuple[Value, ...]:
        """Emits a call of a Python function; returns its results, which have the annotations `results`."""

    def call_function(self, function: Function, args: Sequence[Value], results: Sequence[Annotation] | None = None) -> tuple[Value, ...]:
        """Emits a call of a graph function; returns its results. `results` may name the dims that the function defines."""

    def match_cast(self, value: Value, annotation: Annotation) -> Value:
        """Emits a match_cast: returns a value under a more precise annotation, which is checked at run time."""

    def scalar(self, value: Expr) -> Value:
        """Emits a host scalar whose value is known in terms of dims; returns its value."""


_ACTIVE: ContextVar[Emitter | None] = ContextVar("pliant_builder", default=None)


def building(builder: Emitter) -> AbstractContextManager[None]:
    """Context manager: operators called inside of it are emitted into `builder`."""
    return assigned(_ACTIVE, builder)


def active(name: str) -> Emitter:
    """Returns the active graph builder.

    Raises an error for users if there is none, i.e. if `ops.<name>` is called outside of a graph function.
    """
    builder = _ACTIVE.get()
    if builder is None:
        raise Error(
            f"ops.{name} is called outside of a graph function",
            where=caller_span(),
            help="call it inside a function decorated with @function, which can then be called with arrays",
        )
    return builder


def emit(name: str, args: Sequence[Any], attrs: Any = None) -> Any:
    """Emits one operator; operands may be values, dims, Python numbers and arrays. Returns the only result, or a tuple of them."""
    outs = active(name).op(name, operands(name, args), attrs)
    return outs[0] if len(outs) == 1 else outs


def operands(name: str, args: Sequence[Any]) -> tuple[Value, ...]:
    """Operands as values: Python numbers take the dtype of the first value among them; beside host scalars alone they are such."""
    like = next((d for d in map(_dtype_of, args) if d is not None), None)
    host = like is not None and not any(_is_tensor(a) for a in args)
    return tuple(operand(name, a, like, host) for a in args)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) or (isinstance(value, Value) and not isinstance(value.annotation, Scalar))


def operand(name: str, value: Any, like: DType | None = None, host: bool = False) -> Value:
    """Returns one operand as a value; a Python number becomes a literal of the dtype `like`, or a host scalar with `host`.

    Raises for an object that is no tensor, dim, number or array.
    """
    builder = active(name)
    if isinstance(value, Value):
        return value
    if isinstance(value, Expr):
        return builder.scalar(value)
    if isinstance(value, bool | int | float):
        dtype = _number_dtype(name, value, like)
        return builder.scalar(Const(value, dtype)) if host else builder.constant(np.array(value, dtype.numpy()))
    if isinstance(value, np.ndarray | np.generic):
        return builder.constant(np.asarray(value))
    raise Error(f"ops.{name} takes tensors, not an object of type `{type(value).__name__}`")


def _dtype_of(value: Any) -> DType | None:
    if isinstance(value, Value):
        return value.annotation.dtype if isinstance(value.annotation, Tensor | Scalar) else None
    if isinstance(value, Expr):
        return value.dtype
    return to_dtype(value.dtype) if isinstance(value, np.ndarray | np.generic) else None


def _number_dtype(name: str, value: float, like: DType | None) -> DType:
    if like is None:
        return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32
    if isinstance(value, bool) and like is not bool_:
        raise Error(f"ops.{name} of {like} and the bool {value}", help=f"write {float(value) if like.is_float else int(value)}")
    if isinstance(value, float) and not like.is_float:
        raise Error(f"ops.{name} of {like} and the float {value}", help="cast the tensor to a float type, or write an integer")
    if isinstance(value, int) and like.is_int and not like.min <= value <= like.max:
        raise Error(f"{value} is no value of {like}", facts=[f"{like} holds {like.min} to {like.max}"])
    return like
