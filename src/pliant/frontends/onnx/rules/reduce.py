"""Reductions along axes, argmax and argmin, and cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..emit import ops
from ..node_context import NodeContext
from ..registry import rule


def _log_sum(x: Any, **named: Any) -> Any:
    return ops.log(ops.sum(x, **named))


_MAKE: dict[str, Callable[..., Any]] = {
    "ReduceSum": ops.sum,
    "ReduceMean": ops.mean,
    "ReduceMax": ops.max,
    "ReduceMin": ops.min,
    "ReduceProd": ops.prod,
    "ReduceL1": lambda x, **n: ops.sum(ops.abs(x), **n),
    "ReduceL2": lambda x, **n: ops.sqrt(ops.sum(ops.mul(x, x), **n)),
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": ops.logsumexp,
    "ReduceSumSquare": ops.sum_square,
}
_FLOATS = ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")  # computed in f64 for integer operands


@rule(*_MAKE)
def reduce(site: NodeContext) -> Any:
    """Imports the Reduce operators: along the axes of the attribute or of the second input, which must be known.

    Without axes, along all.
    """
    x, of = site.x(0), site.dtype(0)
    axes = site.ints("axes", None)
    if axes is None and site.has(1):
        axes = site.known_ints(1)
    if not axes and site.integer("noop_with_empty_axes", 0):
        return _over_nothing(site, x)
    wanted = sorted({site.normal(a, site.rank(0)) for a in axes}) if axes else None
    if wanted is None and site.rank(0) == 0:
        wanted = []
    named = {"axis": wanted, "keepdims": bool(site.integer("keepdims", 1))}
    make = _MAKE[site.op]
    if of.name == "bool":
        return (ops.any if site.op == "ReduceMax" else ops.all)(x, **named)
    if site.op in _FLOATS and of.is_int:
        return ops.cast(make(ops.cast(x, "f64"), **named), of)
    return make(x, **named)


def _over_nothing(site: NodeContext, x: Any) -> Any:
    """Returns a reduction over no axes (noop_with_empty_axes): each element reduced by itself."""
    steps: dict[str, Callable[[Any], Any]] = {
        "ReduceL1": ops.abs,
        "ReduceL2": ops.abs,
        "ReduceLogSum": ops.log,
        "ReduceSumSquare": ops.square,
    }
    return steps[site.op](x) if site.op in steps else site.item(0)


@rule("ArgMax", "ArgMin")
def arg_extremum(site: NodeContext) -> Any:
    """Imports ArgMax and ArgMin: the index of the largest or smallest element along an axis."""
    make = ops.argmax if site.op == "ArgMax" else ops.argmin
    last = bool(site.integer("select_last_index", 0))
    axis = site.axis("axis", site.rank(0), 0)
    return make(site.x(0), axis=axis, keepdims=bool(site.integer("keepdims", 1)), select_last_index=last)


@rule("CumSum", "CumProd")
def cumulate(site: NodeContext) -> Any:
    """Imports CumSum and CumProd: the cumulative sum or product along an axis."""
    make = ops.cumsum if site.op == "CumSum" else ops.cumprod
    axis = site.normal(int(site.number(1)), site.rank(0))
    return make(site.x(0), axis=axis, exclusive=bool(site.integer("exclusive", 0)), reverse=bool(site.integer("reverse", 0)))
