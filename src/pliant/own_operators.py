"""`pliant.operator`: declares a user's operator by its shape deduction, and a loop program or a Python function that computes it.

    @pliant.operator
    def roll(x, shift):                                # from annotations and numbers to the annotation of the result
        return x

    @roll.element                                      # one element of the result: becomes a loop program, which fuses like any other
    def _(i, x, shift):
        return x[*i[:-1], (i[-1] - shift) % x.shape[-1]]

    @function
    def f(x: Tensor[f32, n, 64]) -> Tensor[f32, n, 64]:
        return roll(x, shift=3) * 2.0

With `@roll.python` instead of `@roll.element`, a Python function on numpy arrays runs at every call. If both exist, the loop program is
compiled, and `roll.check` compares it with the Python function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from .dtype import DType, i64
from .graph.node import Annotation, Scalar, Tensor, Value
from .graph.operators import active, operand, tensor_of
from .graph.ops.calls import annotation_of
from .graph.stage import Indices, Read, Stage
from .loop.buffer import Buffer
from .loop.stmt import Func
from .lower.callee import callee_of
from .lower.ops.lower_ops import func_of_stages
from .support.errors import Error
from .support.record import dataclass
from .support.source import caller_span
from .sym.expr import Const, Expr, Var
from .sym.simplify import simplify

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as the `element` function of an operator sees it: `x[i, j]` loads an element; `x.shape` and `x.dtype` are known."""

    dtype: DType
    shape: tuple[Expr, ...]
    load: Callable[..., Expr]

    def __getitem__(self, indices: Any) -> Expr:
        return self.load(*(indices if isinstance(indices, tuple) else (indices,)))


class Operator:
    """An operator that a user declared, to be called inside graph functions."""

    is_operator = True  # the parser of graph functions looks for this

    def __init__(self, deduce: Callable[..., Any]) -> None:
        self.__name__ = getattr(deduce, "__name__", "operator")
        self.__doc__ = deduce.__doc__
        self.__signature__ = inspect.signature(deduce)
        self._deduce = deduce
        self._element: Callable[..., Any] | None = None
        self._python: Callable[..., Any] | None = None

    def element(self, fn: F) -> F:
        """Decorator: sets the loop program, as a function from the indices of an element and the operands to its value (or a tuple)."""
        self._element = fn
        return fn

    def python(self, fn: F) -> F:
        """Decorator: sets a Python function on numpy arrays that computes the operator."""
        self._python = fn
        return fn

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Emits the operator into the graph function that is being built; returns its result, or a tuple if there are several.

        Raises Error if neither `element` nor `python` was set.
        """
        builder: Any = active(self.__name__)
        arguments = self._bind(args, named)
        values = {k: operand(self.__name__, v) for k, v in arguments.items() if _is_tensor(v)}
        results = self._results({**arguments, **{k: v.annotation for k, v in values.items()}})
        if self._element is not None:
            callee, extra = self._loop_program(arguments, values)
            outs = builder.call_loop(callee, [*values.values(), *extra])
        elif self._python is not None:
            outs = builder.call_host(self._on_arrays(arguments, values), list(values.values()), results)
        else:
            help_ = f"decorate a function with @{self.__name__}.element or @{self.__name__}.python"
            raise Error(f"the operator `{self.__name__}` says what it results in, but not how", where=caller_span(), help=help_)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def check(self, *args: Any, **named: Any) -> None:
        """Raises AssertionError if loop program and Python function differ on these arguments by more than rounding, or one is missing."""
        from .interp.loop import run_loop

        arguments = self._bind(args, named)
        arrays = {k: np.asarray(v) for k, v in arguments.items() if _is_tensor(v)}
        assert self._element is not None and self._python is not None, "it takes both to compare them"
        values = {k: Value(k, _annotation_of_array(a)) for k, a in arrays.items()}
        expected = self._python(**{**arguments, **arrays})
        callee, _ = self._loop_program(arguments, values)
        assert isinstance(callee.program, Func)
        outs = [np.empty([int(str(n)) for n in p.shape or ()], p.dtype.numpy()) for p in callee.params if p.role == "out"]
        run_loop(callee.program, [*arrays.values(), *outs], [])
        for actual, wanted in zip(outs, expected if isinstance(expected, tuple) else (expected,), strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Binds arguments to the signature, with defaults; raises Error if they do not fit."""
        try:
            bound = self.__signature__.bind(*args, **named)
        except TypeError as problem:
            raise Error(f"{self.__name__}: {problem}", where=caller_span(), facts=[f"{self.__name__}{self.__signature__}"]) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def _results(self, given: Mapping[str, Any]) -> list[Annotation]:
        deduced = self._deduce(**given)
        annotations = [annotation_of(a, self.__name__) for a in (deduced if isinstance(deduced, tuple | list) else (deduced,))]
        return [Tensor(a.dtype, a.shape) if isinstance(a, Tensor) else a for a in annotations]  # a result is never state

    def _on_arrays(self, given: Mapping[str, Any], values: Mapping[str, Value]) -> Callable[..., Any]:
        """Returns the operator's Python function with its non-tensor arguments bound."""
        assert self._python is not None
        fn, names = self._python, list(values)
        rest = {k: v for k, v in given.items() if k not in values}

        @functools.wraps(fn)
        def call(*arrays: Any) -> Any:
            return fn(**dict(zip(names, arrays, strict=True)), **rest)

        call.__name__ = self.__name__
        return call

    def _loop_program(self, given: Mapping[str, Any], values: Mapping[str, Value]) -> tuple[Any, tuple[Expr, ...]]:
        """Returns the loop program for these operands, and the dims that its parameter shapes do not define."""
        seen = _Shapes()
        tensors = {k: seen.standing_alone(tensor_of(v.annotation)) for k, v in values.items()}
        outs = [tensor_of(a) for a in self._results({**given, **tensors})]
        sources: list[Buffer | Expr] = []
        for k, v in values.items():
            scalar = isinstance(v.annotation, Scalar)
            sources.append(Var(k, tensors[k].dtype) if scalar else Buffer(k, tensors[k].dtype, tensors[k].shape))

        def stage(number: int) -> Stage:
            def value(i: Indices, r: Indices, read: Read) -> Expr:
                operands = {
                    name: Operand(t.dtype, t.shape, functools.partial(read, position)) for position, (name, t) in enumerate(tensors.items())
                }
                assert self._element is not None
                element = self._element(i, **{**given, **operands})
                element = element[number] if isinstance(element, tuple | list) else element
                return element if isinstance(element, Expr) else Const(element, outs[number].dtype)

            return Stage(f"{self.__name__}_{number}" if number else self.__name__, outs[number].dtype, outs[number].shape, value)

        func, extra = func_of_stages(self.__name__, sources, [stage(k) for k in range(len(outs))], len(outs))
        return callee_of(func), tuple(seen.actual.get(v, v) for v in extra)


class _Shapes:
    """Replaces compound dims by fresh variables, because a parameter of a loop program has plain dims, which define its symbols."""

    def __init__(self) -> None:
        self.made: dict[Expr, Var] = {}
        self.actual: dict[Var, Expr] = {}

    def standing_alone(self, t: Tensor) -> Tensor:
        return Tensor(t.dtype, tuple(map(self._dim, t.shape)))

    def _dim(self, e: Expr) -> Expr:
        e = simplify(e)
        if isinstance(e, Const | Var):
            return e
        if e not in self.made:
            self.made[e] = Var(f"d{len(self.made)}", i64)
            self.actual[self.made[e]] = e
        return self.made[e]


def operator(deduce: Callable[..., Any]) -> Operator:
    """Decorator: makes an operator from its shape deduction, a function from annotations to the annotation of the result."""
    return Operator(deduce)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Value | np.ndarray)


def _annotation_of_array(array: Any) -> Tensor:
    from .dtype import dtype
    from .sym.expr import const

    return Tensor(dtype(array.dtype), tuple(const(int(n)) for n in array.shape))
