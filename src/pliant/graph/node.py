"""The graph IR: functions over annotated values in SSA form. Its grammar and semantics.

    program  = Program(entry, kernel)                      an entry function and its callees; or a single kernel (program.py)
    function = Function(name, params, nodes, results)
    node     = Const(array)                                a literal tensor
             | Op(op, args, attrs)                         a graph operator of `graph.ops`
             | CallLoop(callee, args, dims)                a loop program, in destination-passing style
             | CallLibrary(symbol, args)                   an external symbol, same convention
             | CallHost(fn, args)                          a Python callback, same convention
             | CallFunction(function, args)                another graph function; no recursion
             | MatchCast(value, defines)                   a more precise annotation, asserted at run time; may define variables
             | If(cond, then, orelse)                      two dataflow bodies with the same result annotations
             | While(init, cond, body)                     bodies over the carried values
    annotation a = Tensor(dtype, shape, state, strides) | Shape(values) | Scalar(dtype, value) | Tuple(items)

Every node defines `outs`, new values with annotations; each value is defined once. A function is a list of nodes in order of
definition. `If` and `While` hold nested regions (`Body`), which may use the values of enclosing scopes.

Semantics:
- Dataflow: nodes have no side effects; every order that respects uses is the same program. A node also depends on the variables
  in its annotations: the value whose annotation defines a variable (a parameter, a MatchCast) comes before every node that uses
  the variable in an annotation or attribute.
- A dimension is an i64 `sym` expression. A variable is defined where it is a whole dim of a parameter, of a MatchCast, or of the
  result of a called function that defines it inside. An operator whose result size is data-dependent defines one as its attribute.
- **State is linear.** A Tensor annotated `state=True` is consumed at most once (as an `inout` parameter, a state parameter of a
  function, or the first argument of an updating operator) and never used after that; each consuming call returns the new state
  as an out. Before it is consumed it may be read (`in` parameters, operators, a match_cast to a plain Tensor); a value that was
  read does not change later. A state parameter of the entry function that is returned is updated in place. Both branches of an
  `If` consume the same state, or return it unchanged.
- CallLoop: binds the callee's symbols by matching argument shapes (`dims` gives all of them, in order), allocates the `out`
  parameters, and returns the `inout` and `out` parameters in the callee's order.
- CallFunction: binds the callee's variables by matching its parameter annotations with the arguments. Its results have the
  callee's result annotations with these variables substituted.
- `requires` of a node are the run-time conditions that deduction could neither prove nor refute (broadcasting of two symbols, a
  match_cast, the shape of an argument). If one does not hold, the program fails with its message.

    @function
    def mlp(x: Tensor[f32, n, 64], w: Tensor[f32, 64, 128]) -> Tensor[f32, n, 128]:
        return ops.silu(x @ w)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ..dtype import DType
from ..support.record import dataclass
from ..support.source import Span
from ..sym.expr import Eq, Expr, Var, free_vars, product
from ..sym.relations import relation_text

if TYPE_CHECKING:
    import numpy as np


# Annotations: immutable, compared by structure (expressions are interned).
@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor with a dtype and a symbolic shape; `state` if it is linear; `strides` in elements if it is not row-major contiguous.

    Only parameters and the new versions of state parameters have strides: results of nodes are contiguous.
    """

    dtype: DType
    shape: tuple[Expr, ...]
    state: bool = False
    strides: tuple[Expr, ...] | None = None

    def element_strides(self) -> tuple[Expr, ...]:
        """The strides in elements: the declared ones, or those of a contiguous row-major tensor."""
        if self.strides is not None:
            return self.strides
        return tuple(product(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def __str__(self) -> str:
        strides = [] if self.strides is None else [f"strides({', '.join(map(str, self.strides))})"]
        return f"{'State' if self.state else 'Tensor'}[{', '.join([*map(str, (self.dtype, *self.shape)), *strides])}]"


@dataclass(frozen=True, slots=True)
class Shape:
    """The annotation of a shape as a value: its extents."""

    values: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"Shape[{', '.join(map(str, self.values))}]"


@dataclass(frozen=True, slots=True)
class Scalar:
    """The annotation of a scalar on the host; `value` is its symbolic value over dims, if it is known."""

    dtype: DType
    value: Expr | None = None

    def __str__(self) -> str:
        return str(self.dtype) if self.value is None else f"Scalar[{self.dtype}, {self.value}]"


@dataclass(frozen=True, slots=True)
class Tuple:
    """The annotation of a tuple of values."""

    items: tuple[Annotation, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


Annotation = Tensor | Shape | Scalar | Tuple


def annotation_exprs(a: Annotation) -> tuple[Expr, ...]:
    """The dims and symbolic values in an annotation, in order; without strides (see `stride_exprs`)."""
    match a:
        case Tensor():
            return a.shape
        case Shape():
            return a.values
        case Scalar():
            return () if a.value is None else (a.value,)
        case Tuple():
            return tuple(e for i in a.items for e in annotation_exprs(i))


def stride_exprs(a: Annotation) -> tuple[Expr, ...]:
    """Returns the strides that an annotation declares; empty for row-major contiguous tensors."""
    return a.strides or () if isinstance(a, Tensor) else ()


def made(a: Annotation) -> Annotation:
    """The annotation of a node result: `a` without strides, unless it is state, which keeps its memory and so its strides."""
    return Tensor(a.dtype, a.shape) if isinstance(a, Tensor) and not a.state else a


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """An SSA value: defined once, by a parameter or a node; compared by identity."""

    name: str
    annotation: Annotation

    @property
    def tensor(self) -> Tensor:
        """The annotation of a value that is known to be a tensor."""
        assert isinstance(self.annotation, Tensor)
        return self.annotation

    def __repr__(self) -> str:
        return f"{self.name}: {self.annotation}"


def is_state(value: Value) -> bool:
    """True if the value is a state tensor, i.e. linear."""
    return isinstance(value.annotation, Tensor) and value.annotation.state


@dataclass(frozen=True, slots=True)
class Require:
    """A condition that is checked at run time; `{0}` in the message is replaced by the first of `values`."""

    cond: Expr
    message: str
    values: tuple[Expr, ...] = ()
    help: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a callee, with role `in`, `out` or `inout`. A scalar has shape None; `var` is its name in shape expressions."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...] | None
    role: str = "in"
    var: Var | None = None
    strides: tuple[Expr, ...] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Callee:
    """The signature of a loop program. `program` is opaque here, because `graph/` does not import `loop/`."""

    name: str
    params: tuple[Parameter, ...]
    symbols: tuple[Var, ...]
    program: object


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Node:
    """Base class of the nodes of a graph program: a node checks the conditions `requires` at run time, and defines the values `outs`.

    A pass that replaces a node has to keep its `requires` and `origin`.
    """

    outs: tuple[Value, ...]
    requires: tuple[Require, ...] = ()
    origin: tuple[str, ...] = ()  # the user's layers that this node comes from; every pass preserves it
    span: Span | None = None

    def with_(self, **changes: Any) -> Node:
        """Returns a copy of this node with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Const(Node):
    """A node that defines a literal tensor."""

    array: np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Op(Node):
    """A node that applies a graph operator to values; `attrs` is the operator's typed attribute record."""

    op: str
    args: tuple[Value, ...]
    attrs: Any = None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallLoop(Node):
    """A node that calls a loop program: `args` for its `in` and `inout` parameters in order, `dims` for its symbols."""

    callee: Callee
    args: tuple[Value | Expr, ...]
    dims: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallLibrary(Node):
    """A node that calls an external symbol by the C ABI: pointers to `args`, then to `outs`."""

    symbol: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallHost(Node):
    """A node that calls a Python function on numpy arrays."""

    fn: Callable[..., Any]
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallFunction(Node):
    """A node that calls another graph function."""

    function: Function
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MatchCast(Node):
    """A node that gives `value` a more precise annotation (that of its out); `defines` are the dims that it introduces."""

    value: Value
    defines: tuple[Var, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """A nested region of an `If` or `While`: nodes and their results; `params` are the loop-carried values of a `While`."""

    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class If(Node):
    """A node that runs one of two bodies, selected by a scalar bool (a host scalar or a rank-0 tensor)."""

    cond: Value
    then: Body
    orelse: Body


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class While(Node):
    """A node that runs `body` on the loop-carried values for as long as `cond` returns true."""

    init: tuple[Value, ...]
    cond: Body
    body: Body


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A graph function: parameters, nodes in order of definition, and results."""

    name: str
    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    # `outputs`: the names of the results (default: those of the values); `relations`: see the function of that name
    attrs: Mapping[str, Any] = field(default_factory=dict)
    span: Span | None = None

    def with_(self, **changes: Any) -> Function:
        """Returns a copy of this function with some fields changed."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        from .printer import print_function

        return print_function(self)


def relations(function: Function) -> tuple[Require, ...]:
    """Returns the conditions between dims of a function's parameters that their declarations state; every call checks them first."""
    return tuple(function.attrs.get("relations", ()))


def relation(condition: Expr) -> Require:
    """Returns the check of a relation between dims, with its message."""
    a, b = condition.args
    sides = [f"`{e}` = {{{i}}}" if free_vars(e) else f"{e}" for i, e in enumerate((a, b))]
    word = "is not" if isinstance(condition, Eq) else "is more than"
    values = tuple(condition.args)
    return Require(condition, f"{sides[0]} {word} {sides[1]}", values, f"the declaration of the dims says {relation_text(condition)}")


def output_names(function: Function) -> tuple[str, ...]:
    """Returns unique names of the results, distinct from parameters: those of the returned variables, else `result`, `result_0`, …"""
    wanted = function.attrs.get("outputs") or tuple(r.name for r in function.results)
    taken = {p.name for p in function.params}
    names: list[str] = []
    for number, name in enumerate(wanted):
        plain = "result" if len(wanted) == 1 else f"result_{number}"
        choices = (name, plain, *(f"{plain}_{k}" for k in range(1, len(taken) + 2)))
        names.append(next(n for n in choices if n and n not in taken))
        taken.add(names[-1])
    return tuple(names)


def all_uses(n: Node) -> list[Value]:
    """The values that a node uses, including those that its bodies use and return."""
    inner = [v for b in bodies(n) for m in b.nodes for v in all_uses(m)]
    return [*node_args(n), *inner, *(v for b in bodies(n) for v in b.results)]


def node_args(node: Node) -> tuple[Value, ...]:
    """Returns the operands of a node, without the values used inside its bodies."""
    match node:
        case Op() | CallLibrary() | CallHost() | CallFunction():
            return node.args
        case CallLoop():
            return tuple(a for a in node.args if isinstance(a, Value))
        case MatchCast():
            return (node.value,)
        case If():
            return (node.cond,)
        case While():
            return node.init
    return ()


def passed_state(body: Body) -> list[Value]:
    """The outer state that a branch returns unchanged. The branch counts as its consumer, so that the other branch must consume it too."""
    own = {out for n in body.nodes for out in n.outs} | set(body.params)
    return [r for r in body.results if is_state(r) and r not in own]


def bodies(node: Node) -> tuple[Body, ...]:
    """Returns the nested regions of an `If` or `While`; empty for other nodes."""
    match node:
        case If():
            return (node.then, node.orelse)
        case While():
            return (node.cond, node.body)
    return ()


def walk_nodes(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Every node in order, including those inside bodies; a node comes before the nodes of its bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from walk_nodes(body.nodes)
