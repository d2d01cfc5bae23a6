"""A loop program as the graph sees it."""

from __future__ import annotations

from ..graph.node import Callee, Parameter
from ..loop.buffer import Buffer
from ..loop.stmt import Func


def callee_of(func: Func) -> Callee:
    """The signature of a loop program, for graph functions to call."""
    params = tuple(
        Parameter(p.value.name, p.value.dtype, p.value.shape, p.role, strides=p.value.strides)
        if isinstance(p.value, Buffer)
        else Parameter(p.value.name, p.value.dtype, None, p.role, p.value)
        for p in func.params
    )
    return Callee(func.name, params, func.symbols, func)


def func_of(callee: Callee) -> Func:
    """The loop program behind a callee."""
    assert isinstance(callee.program, Func)
    return callee.program
