"""Upper bounds of data-dependent sizes, by symbolic interval arithmetic: the memory plan reserves that capacity.

A dim that `bind_dim` defines is between 0 and its `most`, an expression over other dims. The bound of a shape expression over such dims
follows by interval arithmetic with symbolic ends.

    limits = run_time_dims(function)            # {u: n * 4}
    capacity((u + 3) // 4 * 4, limits)          # (n * 4 + 3) // 4 * 4
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import node as g
from ...graph.annotation import map_dims
from ...support.errors import UnsupportedError
from ...sym.expr import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Select, Sub, Var, const, free_vars
from ...sym.prove import prove
from ...sym.simplify import simplify

Limits = Mapping[Var, Expr]
Range = tuple[Expr, Expr]


def run_time_dims(function: g.Function) -> dict[Var, Expr]:
    """Returns the dims that are known only while the function runs, each with its upper bound over dims known before."""
    limits: dict[Var, Expr] = {}
    for n in g.walk_nodes(function.nodes):
        if isinstance(n, g.Op) and n.op == "bind_dim":
            limits[n.attrs.dim] = capacity(n.attrs.most, limits)
    return limits


def capacity(e: Expr, limits: Limits) -> Expr:
    """Returns an upper bound of an expression over dims; raises UnsupportedError if interval arithmetic finds none."""
    return e if free_vars(e).isdisjoint(limits) else simplify(_range(e, limits)[1])


def at_capacity(t: g.Tensor, limits: Limits) -> g.Tensor:
    """Returns the tensor annotation with each dim that is known only at run time replaced by its upper bound."""
    largest = map_dims(t, lambda e: capacity(e, limits))
    assert isinstance(largest, g.Tensor)
    return largest


def _range(e: Expr, limits: Limits) -> Range:
    """Returns lower and upper bounds of an expression as formulas, for run-time dims from 0 to their limits.

    Raises UnsupportedError for an operation whose bounds are not known.
    """
    if free_vars(e).isdisjoint(limits):
        return e, e
    if isinstance(e, Var):
        return const(0), limits[e]
    if isinstance(e, Select):
        (a, b), (c, d) = (_range(arm, limits) for arm in e.args[1:])
        return Min(a, c), Max(b, d)
    interval = _binary(e, *(_range(a, limits) for a in e.args)) if len(e.args) == 2 else None
    if interval is None:
        raise UnsupportedError(
            f"memory cannot be planned for a size of {e}",
            facts=["its largest value does not follow from those of the dims in it"],
            help="bind_dim makes a dim of a number, with what it is at most",
        )
    return interval


def _binary(e: Expr, a: Range, b: Range) -> Range | None:
    """Returns the bounds of a binary operation from those of its operands; None if they cannot be derived."""
    (low, high), (least, most) = a, b
    match e:
        case Add():
            return low + least, high + most
        case Sub():
            return low - most, high - least
        case Min():
            return Min(low, least), Min(high, most)
        case Max():
            return Max(low, least), Max(high, most)
        case Mul():
            return _product(a, b)
        case FloorDiv() if isinstance(least, Const) and least is most and least.value > 0:
            return low // least, high // least
        case FloorMod() if isinstance(least, Const) and least is most and least.value > 0:
            return const(0), least - 1
    return None


def _product(a: Range, b: Range) -> Range | None:
    """Returns the bounds of a product: of a constant and an interval, or of two provably non-negative intervals; None for others."""
    for (low, high), (factor, same) in ((a, b), (b, a)):
        if isinstance(factor, Const) and factor is same:
            ends = low * factor, high * factor
            return ends if factor.value >= 0 else (ends[1], ends[0])
    if prove(a[0] >= 0) and prove(b[0] >= 0):
        return a[0] * b[0], a[1] * b[1]
    return None
