"""Builds the package of a compiled function: the machine code of its host program and kernels, and the interface that describes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...backend.base import Code
from ...graph import node as g
from ...runtime.interface import Constant, Input, Interface, Output, Site, Symbol
from ...runtime.package import Package
from ...sym.divmod import joined_quotients
from ...sym.expr import DIM_MAX, Const, Dim, Expr, Var, free_vars
from ...sym.relations import relation_text
from ...sym.semantics import evaluate
from ..ops.foreign_calls import ForeignCalls
from .host import HostProgram
from .host_memory import Output as HostOutput

Array = np.ndarray[Any, Any]
COMPUTED = "computed:"  # begins the name of a constant that stands for an array of `computed`


def make_package(
    function: g.Function,
    host: HostProgram,
    code: Code,
    constants: Sequence[Array],
    leaving: ForeignCalls | None = None,
    computed: Sequence[Array] = (),
) -> Package:
    """Returns the package of the code of the host program and all kernels; `constants` are the literals of the program, in order.

    Literals that passes computed are part of the package, except those of `computed`: it names them `computed:0` and so on.
    """
    return Package(code.blob, interface_of(function, host, code, constants, leaving, computed))


def interface_of(
    function: g.Function,
    host: HostProgram,
    code: Code,
    constants: Sequence[Array],
    leaving: ForeignCalls | None = None,
    computed: Sequence[Array] = (),
) -> Interface:
    """Returns the interface of a compiled function for the runtime; `leaving` are its calls of Python and library functions."""
    number = {id(array): f"{COMPUTED}{i}" for i, array in enumerate(computed)}
    number |= {id(array): str(i) for i, array in enumerate(constants)}
    number |= {id(array): f"call:{i}" for i, array in enumerate(leaving.entries if leaving else ())}
    return Interface(
        name=function.name,
        inputs=tuple(_input(p) for p in function.params),
        outputs=tuple(_output(o) for o in host.outputs),
        symbols=tuple(_symbol(v) for v in host.layout.symbols),
        relations=tuple(relation_text(r.cond) for r in host.layout.relations),
        counts=_texts(host.layout.counts),
        sites=tuple(Site(c.kind, c.message, c.help, c.span) for c in code.sites),
        constants=tuple(_constant(c.array, number.get(id(c.array))) for c in host.constants),
        workspace=str(host.plan.size),
        workspace_max=_largest(host.plan.size),
        kernels=code.kernels,
        parallel=code.parallel or bool(leaving and leaving.calls),  # a library function may use threads too
        calls=leaving.calls if leaving else (),
    )


def _constant(array: Array, name: str | None) -> Constant:
    """Returns a constant of the interface: a literal or a function address by name, data that a pass computed inline as base64."""
    return inline_constant(array) if name is None else Constant(name, array.nbytes)


def inline_constant(array: Array) -> Constant:
    """Returns a constant of the interface that contains its data."""
    return Constant("", array.nbytes, b64encode(array.tobytes()).decode())


def _input(p: g.Value) -> Input:
    if isinstance(p.annotation, g.Tensor):
        shape, strides = _texts(p.annotation.shape), _texts(p.annotation.strides or ())
        return Input(p.name, "tensor", p.annotation.dtype.name, shape, p.annotation.state, strides)
    assert isinstance(p.annotation, g.Scalar)
    return Input(p.name, "scalar", p.annotation.dtype.name)


def _output(o: HostOutput) -> Output:
    shape = _texts(map(joined_quotients, o.annotation.shape))
    return Output(o.name, o.annotation.dtype.name, shape, o.alias, o.counted_by)


def _texts(shape: Iterable[Expr]) -> tuple[str, ...]:
    return tuple(map(str, shape))


def _symbol(v: Var) -> Symbol:
    if not isinstance(v, Dim):
        return Symbol(v.name)
    return Symbol(v.name, v.min, None if v.max == DIM_MAX else v.max, v.multiple_of)


def _largest(size: Expr) -> int | None:
    """Returns the size with all dims at their maximum (sizes grow with every dim), or None if a dim has no maximum."""
    if isinstance(size, Const):
        return int(size.value)
    ends: dict[Var, int] = {v: v.max for v in free_vars(size) if isinstance(v, Dim)}
    if len(ends) < len(free_vars(size)) or DIM_MAX in ends.values():
        return None
    return int(evaluate(size, ends))
