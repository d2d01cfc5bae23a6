"""Graph programs: functions over annotated values. The grammar, and what it means.

    program  = Program(entry, kernel)                      an entry function, with all it calls; the kernel it is, if any (program.py)
    function = Function(name, params, nodes, results)
    node     = Const(array)                                a literal tensor
             | Op(op, args, attrs)                         a graph operator of `graph.ops`
             | CallLoop(callee, args, dims)                a loop program, in destination-passing style
             | CallLibrary(symbol, args)                   an external symbol, same convention
             | CallHost(fn, args)                          a Python callback, same convention
             | CallFunction(function, args)                another graph function; no recursion
             | MatchCast(value, defines)                   asserts a finer annotation, which may define variables; checked at run time
             | If(cond, then, orelse)                      two dataflow bodies with the same result annotations
             | While(init, cond, body)                     bodies over the carried values
    annotation a = Tensor(dtype, shape, state, strides) | Shape(values) | Scalar(dtype, value) | Tuple(items)

Every node defines `outs`, new values with annotations; a function is a list of nodes in order of definition, each value defined
once. Bodies of `If` and `While` are functions' worth of nodes (`Body`) that may use the values in scope outside.

Semantics:
- Dataflow: nodes have no effect but their outs; any order that respects uses is the same program. A node also depends on
  the variables in its annotations: a value whose annotation defines a variable (a parameter, a MatchCast) comes before every
  node that uses the variable in any annotation or attribute.
- A dimension is an i64 `sym` expression. Variables are defined by standing alone as a dim of a parameter, of a MatchCast, or of a
  result of a function that defines it inside; or by an operator whose result has a size that only a run tells, as its attribute.
- **State is linear.** A Tensor annotated `state=True` is used at most once as an argument that consumes it (an `inout`
  parameter, a state parameter of a function, or the first of an operator that updates), never after that; each consuming call
  returns the new state as an out. It may be read (`in` parameters, operators, a match_cast to a plain Tensor) before it is
  consumed; what was read does not change. A state parameter of the entry function that is returned is updated in place. Both
  branches of an `If` consume the same state, or give it as a result as it is.
- CallLoop: binds the callee's symbols by matching argument shapes (`dims` gives all of them, in order), allocates the `out`
  parameters, and returns the `inout` and `out` parameters in the callee's order.
- CallFunction: the callee's variables are bound by matching its parameter annotations with the arguments; its results are its
  result annotations with these substituted.
- `requires` of a node are run-time conditions that deduction could not decide (broadcasting of two symbols, a match_cast, an argument that
  is only known at run time to fit): the program fails with the message where one does not hold.

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
from ..sym.expr import Expr, Var, product

if TYPE_CHECKING:
    import numpy as np


# Annotations: immutable, compared by structure (expressions are interned).
@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a dtype and a symbolic shape; `state` when it is linear; `strides` in elements where it is not row-major contiguous.

    Only parameters, and the new versions of their state, have strides: what a node makes is contiguous.
    """

    dtype: DType
    shape: tuple[Expr, ...]
    state: bool = False
    strides: tuple[Expr, ...] | None = None

    def element_strides(self) -> tuple[Expr, ...]:
        """The strides in elements, made up when they are not given."""
        if self.strides is not None:
            return self.strides
        return tuple(product(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def __str__(self) -> str:
        strides = [] if self.strides is None else [f"strides({', '.join(map(str, self.strides))})"]
        return f"{'State' if self.state else 'Tensor'}[{', '.join([*map(str, (self.dtype, *self.shape)), *strides])}]"


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape as a value."""

    values: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"Shape[{', '.join(map(str, self.values))}]"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar on the host; `value` when it is known as an expression over dims."""

    dtype: DType
    value: Expr | None = None

    def __str__(self) -> str:
        return str(self.dtype) if self.value is None else f"Scalar[{self.dtype}, {self.value}]"


@dataclass(frozen=True, slots=True)
class Tuple:
    """Several values as one."""

    items: tuple[Annotation, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


Annotation = Tensor | Shape | Scalar | Tuple


def annotation_exprs(a: Annotation) -> tuple[Expr, ...]:
    """The dims and values in an annotation, in order; strides are apart (`stride_exprs`)."""
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
    """The strides that an annotation declares."""
    return a.strides or () if isinstance(a, Tensor) else ()


def made(a: Annotation) -> Annotation:
    """The annotation of what a node makes of a value: contiguous, unless it is state, which stays where it is."""
    return Tensor(a.dtype, a.shape) if isinstance(a, Tensor) and not a.state else a


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A value: defined once, by a parameter or a node; compared by identity."""

    name: str
    annotation: Annotation

    @property
    def tensor(self) -> Tensor:
        """The annotation of a value that is a tensor."""
        assert isinstance(self.annotation, Tensor)
        return self.annotation

    def __repr__(self) -> str:
        return f"{self.name}: {self.annotation}"


def is_state(value: Value) -> bool:
    """True for a value that is linear."""
    return isinstance(value.annotation, Tensor) and value.annotation.state


@dataclass(frozen=True, slots=True)
class Require:
    """A condition that is checked at run time; `{0}` in the message stands for the first of `values`."""

    cond: Expr
    message: str
    values: tuple[Expr, ...] = ()
    help: str = ""
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a callee: `in`, `out` or `inout`; a scalar has the shape None, and the variable that shapes know it by."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...] | None
    role: str = "in"
    var: Var | None = None
    strides: tuple[Expr, ...] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Callee:
    """A loop program as the graph sees it: its signature; the program itself is somebody else's to read."""

    name: str
    params: tuple[Parameter, ...]
    symbols: tuple[Var, ...]
    program: object


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Node:
    """A step of a function: defines `outs`."""

    outs: tuple[Value, ...]
    requires: tuple[Require, ...] = ()
    origin: tuple[str, ...] = ()  # the user's layers this comes from, kept through every pass
    span: Span | None = None

    def with_(self, **changes: Any) -> Node:
        """This node with some fields changed."""
        return replace(self, **changes)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Const(Node):
    """A literal tensor."""

    array: np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Op(Node):
    """A graph operator applied to values; `attrs` is the operator's own typed record."""

    op: str
    args: tuple[Value, ...]
    attrs: Any = None


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallLoop(Node):
    """A call of a loop program: values for its `in` and `inout` parameters in order, and for its symbols."""

    callee: Callee
    args: tuple[Value | Expr, ...]
    dims: tuple[Expr, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallLibrary(Node):
    """A call of an external symbol under the ABI: `args`, then `outs`."""

    symbol: str
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallHost(Node):
    """A call of a Python function on numpy arrays."""

    fn: Callable[..., Any]
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class CallFunction(Node):
    """A call of another graph function."""

    function: Function
    args: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class MatchCast(Node):
    """`value` under a finer annotation (that of the out); `defines` are the variables it introduces."""

    value: Value
    defines: tuple[Var, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Body:
    """Nodes and the values they result in, inside an `If` or a `While`; `params` are the carried values of a `While`."""

    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class If(Node):
    """One of two bodies, by a scalar bool (a host scalar or a tensor of one element)."""

    cond: Value
    then: Body
    orelse: Body


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class While(Node):
    """`body` as long as `cond` results in true, over the carried values."""

    init: tuple[Value, ...]
    cond: Body
    body: Body


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A graph function."""

    name: str
    params: tuple[Value, ...]
    nodes: tuple[Node, ...]
    results: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)  # `outputs`: the names of the results, if not those of their values
    span: Span | None = None

    def with_(self, **changes: Any) -> Function:
        """This function with some fields changed."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        from .printer import print_function

        return print_function(self)


def output_names(function: Function) -> tuple[str, ...]:
    """What the results are called: after the variables that are returned, each name once and no parameter's; else `result`."""
    wanted = function.attrs.get("outputs") or tuple(r.name for r in function.results)
    taken = {p.name for p in function.params}
    found: list[str] = []
    for number, name in enumerate(wanted):
        plain = "result" if len(wanted) == 1 else f"result_{number}"
        choices = (name, plain, *(f"{plain}_{k}" for k in range(1, len(taken) + 2)))
        found.append(next(n for n in choices if n and n not in taken))
        taken.add(found[-1])
    return tuple(found)


def all_uses(n: Node) -> list[Value]:
    """The values that a node uses, and those that its bodies use and give."""
    inner = [v for b in bodies(n) for m in b.nodes for v in all_uses(m)]
    return [*node_args(n), *inner, *(v for b in bodies(n) for v in b.results)]


def node_args(node: Node) -> tuple[Value, ...]:
    """The values a node uses directly (not those used inside its bodies)."""
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
    """State from outside that a branch gives as a result without updating it: it is the branch's then, as if it were consumed."""
    own = {out for n in body.nodes for out in n.outs} | set(body.params)
    return [r for r in body.results if is_state(r) and r not in own]


def bodies(node: Node) -> tuple[Body, ...]:
    """The bodies inside a node."""
    match node:
        case If():
            return (node.then, node.orelse)
        case While():
            return (node.cond, node.body)
    return ()


def walk_nodes(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Every node, outer before inner, in order."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from walk_nodes(body.nodes)
