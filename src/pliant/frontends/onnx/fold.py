"""Folds shape arithmetic at import time: evaluates operators on tensors of symbolic expressions.

    Shape -> Gather -> Mul -> Concat -> Reshape        becomes        reshape(x, (n, 4 * h))

Each entry of TABLE takes the node and its object arrays (of integers, bools and expressions) and returns a known tensor, or raises
`NotFolded`; then the operator is emitted and runs at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dtype import DType, i64
from ...sym.expr import Add as AddE
from ...sym.expr import And, Call, Cast, Const, Eq, Expr, Le, Lt, Max, Min, Ne, Neg, Not, Or, Select, binary
from ...sym.expr import Div as DivE
from ...sym.expr import FloorDiv as FloorDivE
from ...sym.expr import FloorMod as FloorModE
from ...sym.expr import Mul as MulE
from ...sym.expr import Sub as SubE
from ...sym.prove import prove
from .items import BOOL, Known, as_expr, known

if TYPE_CHECKING:
    from .node_context import NodeContext

Array = np.ndarray[Any, Any]
MOST = 4096  # larger tensors are not shapes, and folding them element by element in Python would be slow


class NotFolded(Exception):
    """Raised by a constant-folding rule if the operator must be computed at run time."""


def fold(site: NodeContext) -> list[Known] | None:
    """Folds a node whose inputs are all known and at least one of them symbolic; None if it must be computed at run time."""
    rule = TABLE.get(site.op)
    items = [i for i in site.items if i is not None]
    if site.domain or rule is None or not items or not all(isinstance(i, Known) for i in items) or not any(i.symbolic for i in items):
        return None
    if any(i.array.size > MOST for i in items):
        return None
    try:
        results = rule(site, *[None if i is None else i.array for i in site.items])
    except NotFolded:
        return None
    return results if isinstance(results, list) else [results]


def _each(f: Callable[..., Any], dtype: DType, *arrays: Array) -> Known:
    """Applies an elementwise function to broadcast arrays whose elements may be symbolic; returns a known tensor."""
    wide = np.broadcast_arrays(*arrays)
    result = np.empty(wide[0].shape, object)
    for i in np.ndindex(result.shape):
        result[i] = f(*(a[i] for a in wide))
    return known(result, dtype)


def _binary(make: Callable[[Expr, Expr], Expr], result: DType | None = None) -> Callable[..., Known]:
    """Returns a folding rule that combines all operands elementwise by `make`; `result` is the result dtype if it differs."""

    def rule(site: NodeContext, *arrays: Array) -> Known:
        of = site.items[0].dtype
        total = known(arrays[0], of)
        for other in arrays[1:]:
            total = _each(lambda x, y: make(as_expr(x, of), as_expr(y, of)), result or of, total.array, other)
        return total

    return rule


def _of(cls: Any) -> Callable[[Expr, Expr], Expr]:
    """Returns a function that builds the binary expression of class `cls`."""
    return lambda a, b: binary(cls, a, b)


def _divide(a: Expr, b: Expr) -> Expr:
    """Returns ONNX's division, which truncates integers toward zero: floor division if the operands are proven positive.

    Raises NotFolded for other integers.
    """
    if a.dtype.is_float:
        return DivE(a, b)
    if prove(Le(Const(0, a.dtype), a)) and prove(Lt(Const(0, b.dtype), b)):
        return binary(FloorDivE, a, b)
    raise NotFolded


def _mod(a: Expr, b: Expr) -> Expr:
    """Returns the floor remainder of integers; raises NotFolded for other dtypes."""
    if not a.dtype.is_int:
        raise NotFolded
    return binary(FloorModE, a, b)


def _remainder(site: NodeContext, *arrays: Array) -> Known:
    """Folds Mod: the remainder with the sign of the divisor. Raises NotFolded for fmod=1, whose remainder has the sign of the dividend."""
    if site.integer("fmod", 0):
        raise NotFolded
    return _binary(_mod)(site, *arrays)


def _unary(make: Callable[[Expr], Expr], result: DType | None = None) -> Callable[..., Known]:
    """Returns a folding rule that applies `make` to each element."""

    def rule(site: NodeContext, x: Array) -> Known:
        of = site.items[0].dtype
        return _each(lambda e: make(as_expr(e, of)), result or of, x)

    return rule


def _call(name: str) -> Callable[[Expr], Expr]:
    """Returns a function that applies a rounding function to floats, and leaves integers unchanged."""
    return lambda x: Call(name, x) if x.dtype.is_float else x


def _cast(site: NodeContext, x: Array) -> Known:
    """Folds Cast; raises NotFolded for casts from float to bool, and to storage-only dtypes."""
    of, to = site.items[0].dtype, site.dtype_attribute("to")
    if to.storage or (to is BOOL and not of.is_int):
        raise NotFolded
    if to is BOOL:
        return _each(lambda e: Ne(as_expr(e, of), Const(0, of)), to, x)
    return _each(lambda e: e if of is to else Cast(to, as_expr(e, of)), to, x)


def _where(site: NodeContext, c: Array, x: Array, y: Array) -> Known:
    """Folds Where; an element with a symbolic condition becomes a select."""
    of = site.items[1].dtype

    def choose(cond: Any, a: Any, b: Any) -> Any:
        if not isinstance(cond, Expr):
            return a if cond else b
        return Select(cond, as_expr(a, of), as_expr(b, of))

    return _each(choose, of, c, x, y)


def _gather(site: NodeContext, x: Array, indices: Array) -> Known:
    """Folds Gather with known indices; raises NotFolded if they are symbolic, ModelFileError if one is out of range."""
    if indices.dtype == object:
        raise NotFolded
    axis = site.axis("axis", x.ndim, 0)
    site.require(bool(((indices >= -x.shape[axis]) & (indices < x.shape[axis])).all()), "an index is outside of the tensor")
    return known(np.take(x, indices, axis=axis), site.items[0].dtype)


def _concat(site: NodeContext, *arrays: Array) -> Known:
    """Folds Concat of known tensors."""
    return known(np.concatenate(arrays, axis=site.axis("axis", arrays[0].ndim)), site.items[0].dtype)


def _axes_of(site: NodeContext, position: int) -> list[int] | None:
    """Returns the axes of the attribute, or of an input; None if there are neither."""
    axes = site.ints("axes", None)
    return site.known_ints(position) if axes is None and site.has(position) else axes


def _unsqueeze(site: NodeContext, x: Array, axes: Array | None = None) -> Known:
    """Folds Unsqueeze of a known tensor."""
    new_axes = _axes_of(site, 1) or []
    rank = x.ndim + len(new_axes)
    return known(np.expand_dims(x, tuple(site.normal(a, rank) for a in new_axes)), site.items[0].dtype)


def _squeeze(site: NodeContext, x: Array, axes: Array | None = None) -> Known:
    """Folds Squeeze of a known tensor; an axis that is not 1 is an error of the model."""
    chosen = _axes_of(site, 1)
    wanted = [a for a in range(x.ndim) if x.shape[a] == 1] if chosen is None else [site.normal(a, x.ndim) for a in chosen]
    site.require(all(x.shape[a] == 1 for a in wanted), "an axis to squeeze is not 1")
    return known(np.squeeze(x, tuple(wanted)), site.items[0].dtype)


def _slice(site: NodeContext, x: Array, *bounds: Array) -> Known:
    """Folds Slice with known bounds; raises NotFolded if one is symbolic."""
    from .rules.slicing import slice_bounds

    parts = [slice(None)] * x.ndim
    for axis, start, stop, step in slice_bounds(site, x.ndim):
        if not all(isinstance(v, int) for v in (start, stop, step)):
            raise NotFolded
        parts[axis] = slice(start, None if step < 0 and stop < -x.shape[axis] else stop, step)
    return known(x[tuple(parts)], site.items[0].dtype)


def _reshape(site: NodeContext, x: Array, shape: Array | None = None) -> Known:
    """Folds Reshape to a known shape; raises ModelFileError if the number of elements does not fit."""
    wanted = site.known_ints(1) if site.has(1) else site.ints("shape", [])
    final = [x.shape[i] if n == 0 and i < x.ndim else n for i, n in enumerate(wanted or [])]
    rest = int(np.prod([n for n in final if n != -1], dtype=np.int64))
    if (-1 not in final and rest != x.size) or (-1 in final and (rest <= 0 or x.size % rest)):
        raise site.wrong(f"{x.size} elements cannot have the shape {final}")
    return known(x.reshape(final), site.items[0].dtype)


def _reduce(make: Callable[[Expr, Expr], Expr], neutral: int | None) -> Callable[..., Known]:
    """Returns a folding rule for reductions of a vector; `neutral` is the result for no elements, None if there is none.

    The rule raises NotFolded for other ranks and axes.
    """

    def rule(site: NodeContext, x: Array, axes: Array | None = None) -> Known:
        of, over = site.items[0].dtype, _axes_of(site, 1)
        if x.ndim != 1 or (over not in (None, [0], [-1])) or (neutral is None and not x.size) or site.integer("noop_with_empty_axes", 0):
            raise NotFolded
        start = [] if neutral is None else [neutral]
        elements = [as_expr(e, of) for e in (*start, *x)]
        total = elements[0]
        for e in elements[1:]:
            total = make(total, e)
        return known([total] if site.integer("keepdims", 1) else total, of)

    return rule


def _split(site: NodeContext, x: Array, sizes: Array | None = None) -> list[Known]:
    """Folds Split of a known tensor, into given sizes or equal parts; raises ModelFileError if the sizes do not add up."""
    axis, count = site.axis("axis", x.ndim, 0), len(site.node.output)
    parts = site.known_ints(1) if site.has(1) else site.ints("split", None)
    if parts is None:
        size = -(-x.shape[axis] // count)
        parts = [min(size, max(x.shape[axis] - k * size, 0)) for k in range(count)]
    site.require(sum(parts) == x.shape[axis] and len(parts) == count, "the parts are not the whole")
    return [known(p, site.items[0].dtype) for p in np.split(x, np.cumsum(parts)[:-1], axis=axis)]


TABLE: dict[str, Callable[..., Any]] = {
    "Identity": lambda site, x: site.items[0],
    "Add": _binary(_of(AddE)),
    "Sub": _binary(_of(SubE)),
    "Mul": _binary(_of(MulE)),
    "Div": _binary(_divide),
    "Mod": _remainder,
    "Min": _binary(Min),
    "Max": _binary(Max),
    "Sum": _binary(_of(AddE)),
    "Equal": _binary(Eq, BOOL),
    "Less": _binary(Lt, BOOL),
    "LessOrEqual": _binary(Le, BOOL),
    "Greater": _binary(lambda a, b: Lt(b, a), BOOL),
    "GreaterOrEqual": _binary(lambda a, b: Le(b, a), BOOL),
    "And": _binary(And, BOOL),
    "Or": _binary(Or, BOOL),
    "Not": _unary(Not, BOOL),
    "Neg": _unary(Neg),
    "Abs": _unary(lambda x: Max(x, Neg(x))),
    "Floor": _unary(_call("floor")),
    "Ceil": _unary(_call("ceil")),
    "Cast": _cast,
    "Where": _where,
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "Split": _split,
    "Transpose": lambda site, x: known(np.transpose(x, site.ints("perm", None)), site.items[0].dtype),
    "ReduceProd": _reduce(_of(MulE), 1),
    "ReduceSum": _reduce(_of(AddE), 0),
    "ReduceMax": _reduce(Max, None),
    "ReduceMin": _reduce(Min, None),
}


def size_of(shape: tuple[Expr, ...]) -> Known:
    """Returns the number of elements of a shape as a known tensor."""
    total: Expr = Const(1, i64)
    for n in shape:
        total = binary(MulE, total, n)
    return known(total)
