"""The interpreter of graph programs in numpy: operators by their reference functions, loop programs by `interp.loop`.

It checks what native code checks: dtype, rank and contract of the arguments, and every `Require`. Results of operators are new arrays.
State is updated on a copy; a state argument whose new value is returned is overwritten at the end, if no error occurred.

    y, = run_graph(mlp, [x, w])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..dtype import DType, pack, unpack
from ..dtype import dtype as to_dtype
from ..graph import node as g
from ..graph.op_table import TABLE, node_defines, updated_state
from ..graph.operators import map_attrs
from ..graph.stand_in import known
from ..support.errors import Error, InternalError, ShapeError, UnsupportedError, counted, is_are
from ..sym.expr import Dim, Expr, Var, free_vars
from ..sym.semantics import evaluate, value_of

Array = np.ndarray[Any, Any]
Env = dict[Var, int]  # the values of dims
Libraries = Mapping[str, Callable[..., Any]]  # symbol -> its Python stand-in


def run_graph(function: g.Function, arguments: Sequence[Any], *, libraries: Libraries | None = None) -> list[Array]:
    """Returns the results of a graph function on arrays; `libraries` are Python stand-ins for call_library, taking inputs, then outputs.

    State arguments are updated in place at the end, and returned. Raises ShapeError for arguments that do not fit.
    """
    if len(arguments) != len(function.params):
        raise ShapeError(
            f"`{function.name}` takes {counted(len(function.params), 'argument')}, {len(arguments)} given",
            facts=[f"{function.name}({', '.join(map(repr, function.params))})"],
        )
    arrays = [_argument(p, a) for p, a in zip(function.params, arguments, strict=True)]
    copies = [_copy_of_state(p, a) if g.is_state(p) else a for p, a in zip(function.params, arrays, strict=True)]
    results = _Interpreter(libraries or {}).function(function, copies)
    final = []
    for value, result in zip(function.results, results, strict=True):
        for original, copy in zip(arrays, copies, strict=True):
            if g.is_state(value) and result is copy:
                np.copyto(original, copy)
                result = original
        final.append(result)
    return final


def _argument(param: g.Value, argument: Any) -> Array:
    """Returns the argument as an array; raises an error if its kind, dtype or rank does not fit the parameter."""
    a = param.annotation
    if isinstance(a, g.Scalar):
        return np.asarray(value_of(argument, a.dtype))
    if not isinstance(a, g.Tensor):
        raise UnsupportedError(f"argument `{param.name}`: {a} cannot be passed from outside")
    if not isinstance(argument, np.ndarray):
        raise ShapeError(f"argument `{param.name}` is an object of type `{type(argument).__name__}`, an array is expected")
    if argument.dtype != a.dtype.array_dtype() and not (a.dtype.storage and argument.dtype == np.uint8):
        raise ShapeError(f"argument `{param.name}` has dtype {to_dtype(argument.dtype)}, {a.dtype} is expected", facts=[f"it is {a}"])
    if argument.ndim != len(a.shape):
        raise ShapeError(
            f"argument `{param.name}` has {counted(argument.ndim, 'dim')}, {len(a.shape)} {is_are(len(a.shape))} expected",
            facts=[f"it is {a}"],
        )
    return argument


def bind_dims(params: Sequence[g.Value], arrays: Sequence[Array]) -> Env:
    """The values of a function's dims from the shapes of its arguments; raises an error if a shape does not fit."""
    env: Env = {}
    for p, a in zip(params, arrays, strict=True):
        if isinstance(p.annotation, g.Tensor):
            for i, (dim, size) in enumerate(zip(p.annotation.shape, _elements(a, p.annotation), strict=True)):
                if isinstance(dim, Var) and dim not in env:
                    _check_contract(dim, size, f"dim {i} of argument `{p.name}`")
                    env[dim] = size
    for p, a in zip(params, arrays, strict=True):
        if isinstance(p.annotation, g.Tensor):
            for i, (dim, size) in enumerate(zip(p.annotation.shape, _elements(a, p.annotation), strict=True)):
                expected = _number(dim, env)
                if expected != size:
                    shown = f"{dim} = {expected}" if free_vars(dim) else str(expected)
                    raise ShapeError(f"dim {i} of argument `{p.name}` is {size}, {shown} is expected", facts=[f"it is {p.annotation}"])
    _bind_strides(params, arrays, env)
    return env


def _bind_strides(params: Sequence[g.Value], arrays: Sequence[Array], env: Env) -> None:
    """Binds in `env` the dims that only strides show.

    Raises ShapeError if a declared stride of a dim of more than one element does not fit.
    """
    declared = [
        (p, i, e, stride // a.itemsize * (t.dtype.per_byte if i < a.ndim - 1 else 1))
        for p, a in zip(params, arrays, strict=True)
        if isinstance(t := p.annotation, g.Tensor) and a.size
        for i, (e, stride) in enumerate(zip(t.strides or (), a.strides, strict=False))
        if a.shape[i] > 1
    ]
    for p, i, e, stride in declared:
        if isinstance(e, Var) and e not in env:
            _check_contract(e, stride, f"stride {i} of argument `{p.name}`")
            env[e] = stride
    for var in (v for p in params for e in g.stride_exprs(p.annotation) for v in free_vars(e)):
        env.setdefault(var, -(-var.min // var.multiple_of) * var.multiple_of if isinstance(var, Dim) else 0)
    for p, i, e, stride in declared:
        if _number(e, env) != stride:
            raise ShapeError(f"stride {i} of argument `{p.name}` is {stride}, {e} is expected", facts=[f"it is {p.annotation}"])


def _elements(array: Array, t: g.Tensor) -> tuple[int, ...]:
    """The shape of an array in elements, by the dtype of `t` alone.

    The last dim of an array of packed bytes counts all elements that fit in the bytes.
    """
    return (*array.shape[:-1], array.shape[-1] * t.dtype.per_byte) if array.ndim else ()


def _empty(a: g.Annotation, d: DType, env: Env) -> Array:
    """Returns a new array for a tensor, with undefined contents."""
    return np.empty(d.array_shape([_number(e, env) for e in g.annotation_exprs(a)]), d.array_dtype())


def _lying(like: Array, strides: Sequence[int]) -> Array:
    """Returns new memory with the shape and dtype of an array, but other strides (in items)."""
    size = 1 + sum(max(n - 1, 0) * s for n, s in zip(like.shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(np.empty(size, like.dtype), like.shape, [s * like.itemsize for s in strides])


def _copy_of_state(p: g.Value, array: Array) -> Array:
    """Returns a copy; it has the strides of the original if the parameter declares strides."""
    if not g.stride_exprs(p.annotation):
        return array.copy()
    copy = _lying(array, [s // array.itemsize for s in array.strides])
    np.copyto(copy, array)
    return copy


def _check_contract(dim: Var, size: int, which: str) -> None:
    """Raises an error if a size violates the contract of a dim."""
    if isinstance(dim, Dim) and not (dim.min <= size <= dim.max and size % dim.multiple_of == 0):
        raise ShapeError(f"{which} is {size}, and the contract says {dim.contract}")


def _number(e: Expr, env: Env) -> int:
    """Returns the value of an expression over dims as an int."""
    return int(evaluate(e, env))


def check(require: g.Require, env: Env) -> None:
    """Raises the error of a run-time condition that does not hold."""
    if not evaluate(require.cond, env):
        values = [_number(v, env) for v in require.values]
        raise ShapeError(require.message.format(*values), where=require.span, help=require.help)


class _Interpreter:
    """Runs graph functions on numpy arrays."""

    def __init__(self, libraries: Libraries) -> None:
        self.libraries = libraries

    def function(self, f: g.Function, arguments: Sequence[Array]) -> list[Array]:
        """Runs a function on arrays; returns its results."""
        env = bind_dims(f.params, arguments)
        for stated in g.relations(f):
            check(stated, env)
        values: dict[g.Value, Array] = dict(zip(f.params, arguments, strict=True))
        self.nodes(f.nodes, values, env)
        return [values[r] for r in f.results]

    def nodes(self, nodes: Sequence[g.Node], values: dict[g.Value, Array], env: Env) -> None:
        """Runs nodes in order, and stores their results in `values`; raises an error if a condition fails or a result does not fit."""
        for node in nodes:
            for require in node.requires:
                check(require, env)
            try:
                outs = self.node(node, values, env)
            except Error as error:
                raise error.at(node.span) from None
            for out, array in zip(node.outs, outs, strict=True):
                _fit(out, array, env)
                values[out] = array

    def body(self, body: g.Body, arguments: Sequence[Array], values: dict[g.Value, Array], env: Env) -> list[Array]:
        """Runs the body of a branch or loop; returns its results."""
        inner = {**values, **dict(zip(body.params, arguments, strict=True))}
        self.nodes(body.nodes, inner, dict(env))
        return [inner[r] for r in body.results]

    def node(self, node: g.Node, values: dict[g.Value, Array], env: Env) -> Sequence[Array]:
        """Runs one node by its kind: an operator by its numpy reference, a loop program by the loop interpreter, a body recursively.

        Returns its results.
        """
        match node:
            case g.Const():
                kind, array = node.outs[0].tensor.dtype, known(node.outs[0].name, node.array)
                return [pack(array, kind) if kind.bits < 8 and array.dtype != np.uint8 else array]
            case g.Op():
                return self.op(node, values, env)
            case g.CallLoop():
                return self.call_loop(node, values, env)
            case g.CallFunction():
                return self.function(node.function, [values[a] for a in node.args])
            case g.CallHost():
                result = node.fn(*(values[a] for a in node.args))
                return [np.asarray(a) for a in (result if isinstance(result, tuple | list) else (result,))]
            case g.CallLibrary():
                return self.call_library(node, values, env)
            case g.MatchCast():
                result = values[node.value]
                return [result.copy() if g.is_state(node.value) and not g.is_state(node.outs[0]) else result]
            case g.If():
                return self.body(node.then if bool(values[node.cond]) else node.orelse, (), values, env)
            case g.While():
                carried = [values[v] for v in node.init]
                while bool(self.body(node.cond, carried, values, env)[0]):
                    carried = self.body(node.body, carried, values, env)
                return carried
        raise InternalError(f"no meaning for {type(node).__name__}")

    def op(self, node: g.Op, values: dict[g.Value, Array], env: Env) -> list[Array]:
        """Runs an operator by its numpy reference; returns its results.

        Updated state is written into its own array, which is the result.
        """
        defines = node_defines(node)  # dims that the results define have no value yet
        attrs = map_attrs(node.attrs, lambda e: None if e in defines else _attribute(e, env))
        results = TABLE[node.op].reference([_unpacked(a, values[a]) for a in node.args], attrs)
        outputs = [_owned(_packed(out, array)) for out, array in zip(node.outs, results, strict=True)]
        state = updated_state(node)
        if state is not None:
            np.copyto(values[state], outputs[0])
            outputs[0] = values[state]
        return outputs

    def call_loop(self, node: g.CallLoop, values: dict[g.Value, Array], env: Env) -> list[Array]:
        """Runs a called loop program by the loop interpreter; returns its results. State is updated in place."""
        from ..loop.stmt import Func
        from .loop import run_loop

        callee = node.callee
        assert isinstance(callee.program, Func)
        dims = [_number(d, env) for d in node.dims]
        symbols = dict(zip(callee.symbols, dims, strict=True))
        inputs, outs = iter(node.args), iter(node.outs)
        arguments: list[Any] = []
        results: list[Array] = []
        for p in callee.params:
            if p.role == "out":
                output = _empty(next(outs).annotation, p.dtype, env)
                results.append(output)
                arguments.append(output if p.strides is None else _lying(output, [_number(e, symbols) for e in p.strides]))
                continue
            a = next(inputs)
            argument = values[a] if isinstance(a, g.Value) else evaluate(a, env)
            if p.shape is None:
                argument = np.asarray(argument)[()]
            elif p.role == "inout":
                next(outs)
                results.append(argument)
            elif p.strides is None:
                argument = np.ascontiguousarray(argument).reshape(argument.shape)
            arguments.append(argument)
        run_loop(callee.program, arguments, dims)
        for result, written in zip(results, (a for p, a in zip(callee.params, arguments, strict=True) if p.role != "in"), strict=True):
            if written is not result:
                np.copyto(result, written)
        return results

    def call_library(self, node: g.CallLibrary, values: dict[g.Value, Array], env: Env) -> list[Array]:
        """Runs the Python stand-in of a library call; returns its results. Raises if there is none."""
        stand_in = self.libraries.get(node.symbol)
        if stand_in is None:
            raise UnsupportedError(
                f"the symbol `{node.symbol}` is not known to the interpreter",
                help=f'give a stand-in: libraries={{"{node.symbol}": function}}',
            )
        outs = [_empty(o.annotation, o.tensor.dtype, env) for o in node.outs]
        stand_in(*(values[a] for a in node.args), *outs)
        return outs


def _attribute(e: Expr, env: Env) -> Any:
    """Returns the value of a symbolic attribute for the current dims."""
    value = evaluate(e, env)
    return int(value) if e.dtype.is_int and e.dtype.bits == 64 else value


def _unpacked(value: g.Value, array: Array) -> Array:
    """The elements of a value, one per array item, also if memory packs several into a byte."""
    d = value.annotation.dtype if isinstance(value.annotation, g.Tensor) else None
    if d is None or not d.storage:
        return array
    return array.view(d.numpy()) if d.bits == 8 else unpack(array, d)


def _packed(value: g.Value, array: Array) -> Array:
    """Returns elements as memory stores them: sub-byte ones packed into bytes."""
    d = value.annotation.dtype if isinstance(value.annotation, g.Tensor) else None
    return array if d is None or d.bits >= 8 else pack(array, d)


def _owned(array: Any) -> Array:
    """The array, or a copy if it is a view of another one, because state may be overwritten later."""
    owned = np.asarray(array)
    return owned if owned.flags.owndata and owned.flags.c_contiguous else owned.copy()


def _fit(out: g.Value, array: Array, env: Env) -> None:
    """Binds the dims that this result is the first to show; raises ShapeError if the result does not fit its annotation."""
    a: g.Annotation = out.annotation
    if isinstance(a, g.Scalar):
        if isinstance(a.value, Var) and a.value not in env:
            env[a.value] = int(array)
        return
    if not isinstance(a, g.Tensor):
        raise InternalError(f"`{out.name}`: no array is {a}")
    if array.ndim != len(a.shape) or (array.dtype != a.dtype.array_dtype() and not (a.dtype.storage and array.dtype == np.uint8)):
        raise ShapeError(f"`{out.name}` is {to_dtype(array.dtype)} with shape {array.shape}, {a} is expected")
    shape = _elements(array, a)
    for dim, size in zip(a.shape, shape, strict=True):
        if isinstance(dim, Var) and dim not in env:
            env[dim] = size
    expected = tuple(_number(dim, env) for dim in a.shape)
    if expected != shape:
        raise ShapeError(f"`{out.name}` has shape {shape}, and {a} says {expected}")
