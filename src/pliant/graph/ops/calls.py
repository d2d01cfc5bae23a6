"""Calls of other code (external symbols, Python callbacks, loop programs, graph functions), match_cast, and literal tensors.

y = ops.call_library("cblas_thing", [x], out=Tensor[f32, n, 4]) z = ops.call_host(my_python_function, [x], out=Tensor[f32, n]) w =
ops.match_cast(x, Tensor[f32, m, 4])          # defines m; also pliant.match_cast

`call_loop` and `require` appear in the text of lowered programs: `call_loop` states the dims of a call that do not follow from its
arguments, `require` a run-time check of the next node.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...dtype import dtype as to_dtype
from ...support.errors import Error
from ...sym.expr import Expr, const, wrap
from ...sym.spec import TensorSpec
from ..node import Annotation, Callee, Function, Scalar, Shape, Tensor, Tuple
from ..operators import OpCall, composite, operand

T = TypeVar("T")


def annotation_of(spec: Any, what: str) -> Annotation:
    """Returns the graph annotation for a user's `Tensor[f32, n]` or `State[…]`; a graph annotation is returned as it is.

    Raises an Error for annotations of kernels, and for anything else.
    """
    if isinstance(spec, Tensor | Shape | Scalar | Tuple):
        return spec
    if isinstance(spec, TensorSpec) and spec.role in ("in", "state"):
        return Tensor(spec.dtype, spec.shape, spec.role == "state", spec.strides)
    if isinstance(spec, TensorSpec):
        raise Error(f"{what}: {spec} belongs to kernels", help="write Tensor[...], or State[...] for what is updated in place")
    raise Error(f"{what}: an annotation such as Tensor[f32, n, 4] is expected, not {spec!r}")


def _results(out: Any, what: str) -> list[Annotation]:
    return [annotation_of(o, what) for o in (out if isinstance(out, tuple | list) else (out,))]


def _arguments(name: str, args: Any) -> list[Any]:
    if not isinstance(args, tuple | list):
        first = '"symbol"' if name == "call_library" else "f"
        raise Error(f"{name}: the arguments are a list", help=f"write ops.{name}({first}, [x, y], out=Tensor[f32, n])")
    return [operand(name, a) for a in args]


def _unpack(outs: tuple[Any, ...]) -> Any:
    return outs[0] if len(outs) == 1 else outs


@composite
def call_library(op: OpCall, symbol: str, args: Any, out: Any) -> Any:
    """Calls an external symbol with the arguments, then memory for the results `out`; returns the results.

    One result is returned alone, several as a tuple. Raises an Error if the symbol is no text.
    """
    builder = op.builder()
    if not isinstance(symbol, str):
        raise Error(f"{op.name}: the symbol is a text", help='for example ops.call_library("my_symbol", [x], out=Tensor[f32, n])')
    return _unpack(builder.call_library(symbol, _arguments(op.name, args), _results(out, op.name)))


@composite
def call_host(op: OpCall, fn: Any, args: Any, out: Any) -> Any:
    """Calls a Python function with numpy arrays, in the Python interpreter, at every run; returns its results.

    One result is returned alone, several as a tuple; `out` is their annotations. Raises an Error if `fn` cannot be called.
    """
    builder = op.builder()
    if not callable(fn):
        raise Error(f"{op.name}: a Python function is expected first")
    return _unpack(builder.call_host(fn, _arguments(op.name, args), _results(out, op.name)))


@composite
def call_loop(op: OpCall, fn: Any, args: Any, dims: Any) -> Any:
    """Calls a loop program whose symbols have the values `dims`; scalar arguments may be expressions. Returns its results.

    One result is returned alone, several as a tuple. Raises an Error if `fn` is no loop program.
    """
    builder = op.builder()
    callee = getattr(fn, "callee", fn)
    if not isinstance(callee, Callee):
        raise Error(f"{op.name}: a loop program decorated with @kernel is expected first")
    if not all(isinstance(a, tuple | list) for a in (args, dims)):
        raise Error(f"{op.name}: arguments and dims are lists", help="write ops.call_loop(kernel, [x, y], dims=[n, m])")
    values = [a if isinstance(a, Expr | bool | int | float) else op.operand(a) for a in args]
    return _unpack(builder.call_loop(callee, values, [_scalar(op.name, "a dim", e) for e in dims]))


@composite
def require(op: OpCall, condition: Any, message: str, values: Any = (), help: str = "") -> None:
    """Adds a condition on dims that is checked when the next node runs; `{0}` in the message stands for the first of the values.

    Returns nothing. Raises an Error if the message has other places than values.
    """
    builder = op.builder()
    if not isinstance(message, str) or not isinstance(help, str) or not isinstance(values, tuple | list):
        help_ = 'write ops.require(n == m, "{0} is not {1}", [n, m])'
        raise Error(f"{op.name}: a condition, a text and a list of dims are expected", help=help_)
    shown = tuple(_scalar(op.name, "a value", e) for e in values)
    try:
        message.format(*map(str, shown))
    except (IndexError, KeyError, ValueError, AttributeError):
        raise Error(f"{op.name}: the message has places for other values than the {len(shown)} given", facts=[message]) from None
    checked = wrap(condition) if isinstance(condition, bool) else _scalar(op.name, "the condition", condition)
    builder.require(checked, message, shown, help)


def _scalar(name: str, what: str, value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return const(value)
    raise Error(f"{name}: {what} is an expression over dims")


@composite
def call_function(op: OpCall, fn: Any, args: Any, out: Any = None) -> Any:
    """Calls a graph function; `out` names the dims that the function defines. Returns its results.

    One result is returned alone, several as a tuple. Raises an Error if `fn` is no graph function.
    """
    builder = op.builder()
    function = getattr(fn, "graph", fn)
    if not isinstance(function, Function):
        raise Error(f"{op.name}: a function decorated with @function is expected first")
    results = None if out is None else _results(out, op.name)
    return _unpack(builder.call_function(function, _arguments(op.name, args), results))


@composite
def match_cast(op: OpCall, x: T, annotation: Any) -> T:
    """`x` with a more precise annotation, checked at run time; new dims that stand alone in it are defined by it."""
    builder = op.builder()
    result: Any = builder.match_cast(op.operand(x), annotation_of(annotation, op.name))
    return result


@composite
def constant(op: OpCall, value: Any, dtype: Any = None) -> Any:
    """A literal tensor from a number, a list or an array.

    Without a dtype, an array keeps its own, and Python floats become f32. Raises an Error for what is not numbers or bools.
    """
    builder = op.builder()
    try:
        array = np.asarray(value) if dtype is None else np.asarray(value, to_dtype(dtype).numpy())
    except (TypeError, ValueError) as error:
        raise Error(f"{op.name}: {error}") from None
    if array.dtype.kind not in "biuf" and array.dtype.kind != "V":
        raise Error(f"{op.name}: numbers are expected", help="for example ops.constant([[1.0, 2.0]])")
    if dtype is None and not isinstance(value, np.ndarray | np.generic) and array.dtype == np.float64:
        array = array.astype(np.float32)
    return builder.literal(array)
