"""Tracing of modules: symbolic values that are passed to `forward`, and the builder that records the operators applied to them.

A `Traced` value is a graph value with Python's operators: `x @ w + b`, `x[:, 0]`, `x.shape[1] // 2`. Every emitted node records the
user's source line and the path of the module whose `forward` is running, such as `encoder.layer.3.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ...dtype import DType
from ...graph import opset as ops
from ...graph.builder import Builder
from ...graph.indexing import index_steps
from ...graph.node import Annotation, Callee, Const, Function, Scalar, Tensor, Value
from ...support.context import assigned
from ...support.errors import Error
from ...support.source import Span, caller_span
from ...sym.expr import Const as Literal
from ...sym.expr import Expr, const

if TYPE_CHECKING:
    from .module import Module, Parameter


def _two(name: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Returns the methods for a binary Python operator and for its reflected form (operands swapped), by the operator of `ops`."""
    return lambda a, b: getattr(ops, name)(a, b), lambda a, b: getattr(ops, name)(b, a)


class Traced(Value):
    """A symbolic value inside `forward`, with Python's operators."""

    __slots__ = ()
    __iter__ = None  # without this, `a, b = x` would call __getitem__ with 0, 1, 2, … forever
    __array_ufunc__ = None  # makes numpy call our reflected operator for `array * x`

    __add__, __radd__ = _two("add")
    __sub__, __rsub__ = _two("sub")
    __mul__, __rmul__ = _two("mul")
    __truediv__, __rtruediv__ = _two("div")
    __floordiv__, __rfloordiv__ = _two("floor_divide")
    __mod__, __rmod__ = _two("remainder")
    __pow__, __rpow__ = _two("pow")
    __matmul__, __rmatmul__ = _two("matmul")
    __lt__, __gt__ = _two("less")
    __le__, __ge__ = _two("less_equal")

    def __neg__(self) -> Any:
        return ops.neg(self)

    def __abs__(self) -> Any:
        return ops.abs(self)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extents: integers or symbolic expressions."""
        return tuple(e.value if isinstance(e, Literal) else e for e in self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.tensor.shape)

    @property
    def dtype(self) -> DType:
        """The data type of the elements."""
        assert isinstance(self.annotation, Tensor | Scalar)
        return self.annotation.dtype

    def __bool__(self) -> NoReturn:
        raise Error(
            f"what `{self.name}` holds is not known while `forward` is read",
            where=caller_span(),
            facts=[f"it is {self.annotation}"],
            help="ops.where(condition, x, y) chooses by element",
        )

    def __getitem__(self, index: Any) -> Any:
        value: Any = self
        try:
            for step in index_steps(self, list(index) if isinstance(index, tuple) else [index]):
                value = step(value)
        except Error as error:
            raise error.at(caller_span()) from None
        return value


class Tracer(Builder):
    """Builds the graph function of one module while its `forward` runs."""

    value = Traced

    def __init__(self, name: str, root: Module, span: Span | None = None) -> None:
        super().__init__(name, span=span)
        self._paths = {id(m): path for path, m in root.named_modules()}
        self._names = {id(p): path for path, p in root._every_parameter()}
        self._constants: dict[int, Value] = {}

    @contextmanager
    def inside(self, module: Module) -> Iterator[None]:
        """Context manager: nodes that are emitted inside of it have the path of `module` as their origin."""
        before, path = self.origin, self._paths.get(id(module))
        self.origin = before if path is None else (path,) if path else ()
        try:
            yield
        finally:
            self.origin = before

    def parameter(self, parameter: Parameter) -> Value:
        """Returns the parameter as a literal tensor, one node for all uses; it refers to the array without a copy.

        Raises an Error if it has no data.
        """
        literal = self._constants.get(id(parameter))
        if literal is None:
            path = self._names.get(id(parameter), "parameter")
            if parameter.array is None:
                raise Error(
                    f"parameter `{path}` has no data",
                    where=caller_span(),
                    facts=[f"it is {parameter!r}"],
                    help="module.load_state_dict(...) gives parameters their arrays before the module is compiled",
                )
            literal = self._literal(parameter.array, parameter.dtype, path)
            self._constants[id(parameter)] = literal
        return literal

    def _literal(self, array: np.ndarray[Any, Any], dtype: DType, path: str) -> Value:
        """Appends a literal that refers to `array` without a copy; it is named after `path`."""
        pending, self.hint = self.hint, "".join(c if c.isalnum() else "_" for c in path)
        annotation = Tensor(dtype, tuple(const(n) for n in array.shape))
        view = array.view()
        view.setflags(write=False)
        literal = self.emit(Const, [annotation], (), array=view)[0]
        self.hint = pending
        return literal

    def op(self, name: str, args: Sequence[Value], attrs: Any = None) -> tuple[Value, ...]:
        """Appends a graph operator, with the user's source line."""
        self.span = caller_span()
        return super().op(name, args, attrs)

    def call_loop(self, callee: Callee, args: Sequence[Value | Expr | float], symbols: Sequence[Expr] | None = None) -> tuple[Value, ...]:
        """Appends a call of a loop program, with the user's source line."""
        self.span = caller_span()
        return super().call_loop(callee, args, symbols)

    def call_function(self, function: Function, args: Sequence[Value], results: Sequence[Annotation] | None = None) -> tuple[Value, ...]:
        """Appends a call of a graph function, with the user's source line."""
        self.span = caller_span()
        return super().call_function(function, args, results)


_TRACER: ContextVar[Tracer | None] = ContextVar("pliant_tracer", default=None)


def active_tracer() -> Tracer | None:
    """Returns the tracer of the running `forward`, or None outside of tracing."""
    return _TRACER.get()


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Context manager: modules called inside of it append their nodes to the tracer's function."""
    with assigned(_TRACER, tracer), tracer:
        yield
