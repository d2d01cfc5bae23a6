"""Lowers calls of Python functions and of library symbols (foreign function calls) to loop programs without a body, only an address.

The address is the first buffer, which the runtime fills (`runtime/foreign_calls.py`). The rest of the compiler sees it as a literal tensor.
Every dim of every tensor is a separate symbol. So the `dims` array that the function receives holds the shapes of its tensors one after
the other, and then its scalars.

    y = ops.call_host(f, [x], out=Tensor[f32, k])      ->      entry = <literal>; y = f(entry, x)

    @kernel                                                    # attrs: external=0
    def f(entry: Tensor[u8, 8], x: Tensor[f32, n0, n1], y: Out[f32, n2]) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...dtype import i64, u8
from ...graph import node as g
from ...loop.attributes import FuncAttrs
from ...loop.buffer import Buffer
from ...loop.stmt import Func, Param, Seq
from ...runtime.interface import Operand, Outside
from ...support.errors import Error, UnsupportedError
from ...support.record import dataclass
from ...sym.expr import Expr, Var, const
from ..callee import callee_of, func_of

Array = np.ndarray[Any, Any]
HostFunction = Callable[..., Any]
Node = g.CallHost | g.CallLibrary


@dataclass(frozen=True, slots=True)
class ForeignCalls:
    """A record of a function whose foreign calls are lowered, with the called functions and the literals that hold their addresses."""

    function: g.Function
    calls: tuple[Outside, ...]
    entries: tuple[Array, ...]
    nodes: tuple[Node, ...] = ()  # the original call nodes


def host_functions(function: g.Function) -> Iterator[HostFunction]:
    """Yields the Python functions that a graph function calls, directly or through other graph functions, in order of appearance."""
    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.CallHost):
            yield n.fn
        elif isinstance(n, g.CallFunction):
            yield from host_functions(n.function)


def foreign_calls(function: g.Function, functions: Sequence[HostFunction]) -> ForeignCalls:
    """Returns a graph function with all calls of library symbols and Python functions lowered, also inside branches and loops.

    Each call gets a literal of 8 bytes for its address, and a record for the runtime.
    """
    calls: list[Outside] = []
    entries: list[Array] = []
    left: list[Node] = []

    def nodes(given: Sequence[g.Node]) -> tuple[g.Node, ...]:
        return tuple(m for n in given for m in node(n))

    def body(b: g.Body) -> g.Body:
        return g.Body(b.params, nodes(b.nodes), b.results)

    def node(n: g.Node) -> tuple[g.Node, ...]:
        match n:
            case g.CallHost() | g.CallLibrary():
                entries.append(np.zeros(8, np.uint8))
                calls.append(_outside(n, functions))
                left.append(n)
                return _lowered(n, len(calls) - 1, entries[-1])
            case g.If():
                return (n.with_(then=body(n.then), orelse=body(n.orelse)),)
            case g.While():
                return (n.with_(cond=body(n.cond), body=body(n.body)),)
        return (n,)

    lowered = nodes(function.nodes)
    return ForeignCalls(function.with_(nodes=lowered) if calls else function, tuple(calls), tuple(entries), tuple(left))


def with_calls(function: g.Function, leaving: ForeignCalls) -> g.Function:
    """Returns the function with its original foreign calls: addresses mean nothing outside of this compilation.

    The literals with addresses go.
    """
    entries = {id(a) for a in leaving.entries}

    def nodes(given: Sequence[g.Node]) -> tuple[g.Node, ...]:
        return tuple(node(n) for n in given if not isinstance(n, g.Const) or id(n.array) not in entries)

    def body(b: g.Body) -> g.Body:
        return g.Body(b.params, nodes(b.nodes), b.results)

    def node(n: g.Node) -> g.Node:
        match n:
            case g.CallLoop() if (number := external_number(n.callee)) is not None:
                return leaving.nodes[number].with_(args=n.args[1:], outs=n.outs, requires=n.requires)
            case g.If():
                return n.with_(then=body(n.then), orelse=body(n.orelse))
            case g.While():
                return n.with_(cond=body(n.cond), body=body(n.body))
        return n

    return function.with_(nodes=nodes(function.nodes))


def external_number(callee: g.Callee) -> int | None:
    """Returns the index of the foreign call that a loop program stands for; None for an ordinary loop program."""
    return func_of(callee).attrs.external


def refuse_addresses(function: g.Function) -> None:
    """Raises if a program to compile contains lowered foreign calls: their addresses belong to another compilation."""
    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.CallFunction):
            refuse_addresses(n.function)
        elif isinstance(n, g.CallLoop) and external_number(n.callee) is not None:
            raise Error(
                f"`{n.callee.name}` is an address of a function outside, and this program does not say of which",
                where=n.span,
                facts=["the step `foreign_calls` put it in the place of a call_host or call_library"],
                help="take the program of the state, which has the calls: compile_as_far_as(step, program, machine).program",
            )


def _lowered(n: Node, number: int, array: Array) -> tuple[g.Node, ...]:
    """Returns the literal that holds the address, and the call of the loop program without a body."""
    entry = g.Value(f"entry_{number}", g.Tensor(u8, (const(8),)))
    func = _external(n, number)
    dims: list[Expr] = [e for v in (*n.args, *n.outs) if isinstance(v.annotation, g.Tensor) for e in v.annotation.shape]
    call = g.CallLoop(
        outs=n.outs, requires=n.requires, origin=n.origin, span=n.span,
        callee=callee_of(func), args=(entry, *n.args), dims=tuple(dims),
    )  # fmt: skip
    return g.Const(outs=(entry,), array=array, span=n.span), call


def _external(n: Node, number: int) -> Func:
    """Returns the loop program without a body that stands for a foreign function; `number` is the index of the call.

    Raises UnsupportedError for strided or storage-type tensors, and for a scalar result.
    """
    name = _name(n)
    params = [Param(Buffer("entry", u8, (const(8),)))]
    for k, v in enumerate((*n.args, *n.outs)):
        match v.annotation:
            case g.Tensor() as t if t.strides is None and not t.dtype.storage:
                shape = tuple(Var(f"n{k}_{axis}", i64) for axis in range(len(t.shape)))
                params.append(Param(Buffer(f"x{k}", t.dtype, shape), "in" if k < len(n.args) else "out"))
            case g.Scalar(dtype) if k < len(n.args):
                params.append(Param(Var(f"x{k}", dtype)))
            case _:
                facts = [f"`{v.name}` is {v.annotation}"]
                raise UnsupportedError(f"`{name}` takes and gives contiguous tensors and takes scalars", where=n.span, facts=facts)
    return Func(name, tuple(params), Seq(()), FuncAttrs(external=number, scheduled=True))


def _name(n: Node) -> str:
    """Returns the name of the called function, or `function` if it is not an identifier."""
    name = n.symbol.rpartition(":")[2] if isinstance(n, g.CallLibrary) else str(getattr(n.fn, "__name__", "function"))
    return name if name.isidentifier() else "function"


def _outside(n: Node, functions: Sequence[HostFunction]) -> Outside:
    """Returns the record of a foreign call for the runtime; a Python function is identified by its index in `functions`."""
    if isinstance(n, g.CallLibrary):
        library, _, symbol = n.symbol.rpartition(":")
        return Outside("library", symbol, library, -1, _operands(n.args), _operands(n.outs))
    number = next(i for i, f in enumerate(functions) if f is n.fn)
    return Outside("host", _name(n), "", number, _operands(n.args), _operands(n.outs))


def _operands(values: Sequence[g.Value]) -> tuple[Operand, ...]:
    operands = []
    for v in values:
        assert isinstance(v.annotation, g.Tensor | g.Scalar)
        operands.append(Operand(v.annotation.dtype.name, len(v.annotation.shape) if isinstance(v.annotation, g.Tensor) else -1))
    return tuple(operands)
