"""`where`, and operators whose result size depends on data: nonzero, masked_select, compress, unique, non_max_suppression.

The size is a new dim, `count`: pass one to use it in annotations, or omit it. Memory is planned for the largest possible size.

    u = dim("u")
    places = ops.nonzero(mask, count=u)        # Tensor[i64, u, 2]
    rows = ops.compress(x, keep, axis=0)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import bool_, f32, i64
from ...support.errors import ShapeError
from ...support.record import dataclass
from ...sym.expr import Expr, Min, Select, Var, const, product
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Scalar, Tensor, Value
from ..operators import Array, OpCall, composite, operator, tensor_of
from .compare import logical_and
from .dynamic_dims import new_dim
from .elementwise import pointwise, result_of
from .shape import as_dim, full, reshape, take
from .slicing import slice as slice_
from .sort import ordered, stable_order

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CountAttrs:
    """The attributes of operators with a dynamic number of results: the new dim that stands for that number."""

    count: Var


def _deduce_nonzero(d: Deduction, attrs: CountAttrs) -> tuple[Annotation, ...]:
    x = ordered(d)
    if not x.shape:
        raise d.error(f"nonzero: `{d.args[0].name}` has no dims", arg=0, help=f"write ops.reshape({d.args[0].name}, (1,))")
    return (Tensor(i64, (attrs.count, const(len(x.shape)))),)


def _elements(args: tuple[Tensor, ...], attrs: Any) -> tuple[Expr, ...]:
    return (simplify(product(args[0].shape)),)


@operator(
    deduce=_deduce_nonzero,
    reference=lambda args, attrs: [np.argwhere(args[0]).astype(np.int64)],
    attrs=CountAttrs,
    template="select.nonzero",
    defines=("count",),
    capacity=_elements,
)
def nonzero(op: OpCall, x: T, count: Any = None) -> Any:
    """The indices of the nonzero elements in row-major order, one index tuple in each row.

    `count` is the symbol of the number of rows; without it a new symbol is made.
    """
    return op.emit(op.operand(x), attrs=CountAttrs(new_dim(count)))


@dataclass(frozen=True, slots=True)
class UniqueAttrs:
    """The attributes of `unique`: the dim of distinct elements, and whether they are sorted or in order of first occurrence."""

    count: Var
    sorted: bool = True


def _deduce_unique(d: Deduction, attrs: UniqueAttrs) -> tuple[Annotation, ...]:
    x = ordered(d)
    total = simplify(product(x.shape), d.facts)
    counted = Tensor(i64, (attrs.count,))
    return Tensor(x.dtype, (attrs.count,)), counted, Tensor(i64, (total,)), counted


def _unique_reference(args: Sequence[Array], attrs: UniqueAttrs) -> list[Array]:
    flat = args[0].reshape(-1)
    order = stable_order(flat, 0, False)
    new = [k == 0 or not _same(flat[order[k - 1]], flat[order[k]]) for k in range(len(order))]
    group = np.cumsum(np.array(new, np.int64), dtype=np.int64) - 1
    first = order[np.array(new, bool)]
    inverse = np.zeros(len(flat), np.int64)
    inverse[order] = group
    if not attrs.sorted:
        met = np.argsort(first, kind="stable")
        rank = np.argsort(met, kind="stable")
        first, inverse = first[met], rank[inverse] if len(flat) else inverse
    counts = np.bincount(inverse, minlength=len(first)).astype(np.int64)
    return [flat[first], first.astype(np.int64), inverse, counts]


def _same(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))


@operator(
    deduce=_deduce_unique, reference=_unique_reference, attrs=UniqueAttrs, template="select.unique", defines=("count",), capacity=_elements
)
def unique(op: OpCall, x: T, sorted: bool = True, count: Any = None) -> Any:
    """The distinct elements of `x`, the first index of each, the group number of every element, and the size of each group.

    They are sorted, or in order of first occurrence if `sorted` is false. `count` is the symbol of their number.
    """
    return op.emit(op.operand(x), attrs=UniqueAttrs(new_dim(count), sorted))


@dataclass(frozen=True, slots=True)
class SuppressionAttrs:
    """The attributes of non-maximum suppression: the dim of kept boxes, the bound on boxes per class, the form of boxes."""

    count: Var
    most: Expr
    center_point_box: bool = False


def _deduce_suppression(d: Deduction, attrs: SuppressionAttrs) -> tuple[Annotation, ...]:
    boxes, scores = d.rank(0, 3), d.rank(1, 3)
    for k in (0, 1, 3, 4):
        if d.tensor(k).dtype is not f32:
            raise d.error(f"{d.what}: `{d.args[k].name}` is {d.tensor(k).dtype}, f32 is expected", arg=k)
    if d.tensor(2).dtype is not i64:
        raise d.error(f"{d.what}: `{d.args[2].name}` is {d.tensor(2).dtype}, i64 is expected", arg=2)
    for k in (2, 3, 4):
        d.rank(k, 0)
    d.equal(boxes.shape[2], const(4), f"a box of `{d.args[0].name}` has {{0}} numbers, {{1}} are expected", arg=0)
    d.equal(scores.shape[0], boxes.shape[0], f"`{d.args[1].name}` has {{0}} batches, `{d.args[0].name}` {{1}}", arg=1)
    d.equal(scores.shape[2], boxes.shape[1], f"`{d.args[1].name}` has scores for {{0}} boxes, `{d.args[0].name}` {{1}}", arg=1)
    return (Tensor(i64, (attrs.count, const(3))),)


def _suppression_capacity(args: tuple[Tensor, ...], attrs: SuppressionAttrs) -> tuple[Expr, ...]:
    batch, classes, boxes = args[1].shape
    return (simplify(batch * classes * Min(boxes, attrs.most)),)


def _corners(box: Array, center: bool) -> tuple[Any, ...]:
    if center:
        x, y, w, h = box
        return x - w / np.float32(2), y - h / np.float32(2), x + w / np.float32(2), y + h / np.float32(2)
    return min(box[0], box[2]), min(box[1], box[3]), max(box[0], box[2]), max(box[1], box[3])


def _overlaps(a: Array, b: Array, threshold: Any, center: bool) -> bool:
    """True if the intersection over union of two boxes is above the threshold; False if they do not meet or one has no area."""
    p, q = _corners(a, center), _corners(b, center)
    width, height = min(p[2], q[2]) - max(p[0], q[0]), min(p[3], q[3]) - max(p[1], q[1])
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (p, q)]
    if width <= 0 or height <= 0 or areas[0] <= 0 or areas[1] <= 0:
        return False
    both = width * height
    return bool(both / (areas[0] + areas[1] - both) > threshold)


def _suppression_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    boxes, scores, most, iou, least = args
    boxes_kept: list[tuple[int, int, int]] = []
    for b in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            kept: list[int] = []
            for i in stable_order(scores[b, c], 0, True):
                if len(kept) >= min(int(most), attrs.most) or not scores[b, c, i] > least:
                    continue
                if not any(_overlaps(boxes[b, i], boxes[b, k], iou, attrs.center_point_box) for k in kept):
                    kept.append(int(i))
            boxes_kept += [(b, c, i) for i in kept]
    return [np.array(boxes_kept, np.int64).reshape(-1, 3)]


@operator(
    deduce=_deduce_suppression,
    reference=_suppression_reference,
    attrs=SuppressionAttrs,
    arity=5,
    template="suppression.suppress",
    defines=("count",),
    capacity=_suppression_capacity,
)
def non_max_suppression(
    op: OpCall,
    boxes: T,
    scores: Any,
    max_output: Any = 0,
    iou_threshold: Any = 0.0,
    score_threshold: Any = 0.0,
    count: Any = None,
    most: Any = None,
    center_point_box: bool = False,
) -> Any:
    """Non-maximum suppression: rows (batch, class, box), best score first in each class, without boxes that overlap a better one.

    Boxes are two corners (y1, x1, y2, x2), or with `center_point_box` (x, y, width, height) around a center. Boxes whose score is not above
    `score_threshold` are left out. At most `max_output` are kept for each class; `most` is a bound on it that memory is planned for.
    """
    values = [op.operand(boxes), op.operand(scores), op.operand(max_output, i64)]
    values += [op.operand(threshold, f32) for threshold in (iou_threshold, score_threshold)]
    limit = as_dim(op.name, most) if most is not None else _known(max_output, values[2], tensor_of(values[0].annotation))
    return op.emit(*values, attrs=SuppressionAttrs(new_dim(count), limit, center_point_box))


def _deduce_where(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    if d.tensor(0).dtype is not bool_:
        raise d.error(f"where: the condition `{d.args[0].name}` is {d.tensor(0).dtype}, not bool", arg=0, help="compare first: `x != 0`")
    if d.tensor(1).dtype is not d.tensor(2).dtype:
        raise d.error(f"where of {d.tensor(1).dtype} and {d.tensor(2).dtype}: nothing is cast implicitly", arg=2)
    return (result_of(d, d.tensor(1).dtype, Select),)


@pointwise(deduce=_deduce_where, reference=lambda args, attrs: [np.where(*args)], formula=lambda attrs: Select, arity=3, broadcasts=True)
def where(op: OpCall, condition: Any, x: Any = None, y: Any = None) -> Any:
    """`x` where the condition is true, else `y`; with a condition alone, the indices at which it is true, one tensor for each dim."""
    if x is None and y is None:
        places = nonzero(condition)
        rank = len(tensor_of(op.operand(condition).annotation).shape)
        return tuple(reshape(slice_(places, 1, k, k + 1), -1) for k in range(rank))
    chosen = op.operands((x, y))
    return op.emit(op.operand(condition, bool_), *chosen)


@composite
def masked_select(op: OpCall, x: T, mask: Any, count: Any = None) -> T:
    """The elements of `x` where `mask` is true, in row-major order; the two broadcast. Raises a ShapeError if the mask is not bool."""
    value: Any = op.operand(x)
    chosen: Any = op.operand(mask)
    if tensor_of(chosen.annotation).dtype is not bool_:
        raise ShapeError(f"{op.name}: the mask `{chosen.name}` is {tensor_of(chosen.annotation).dtype}, not bool")
    shapes = [tensor_of(v.annotation).shape for v in (value, chosen)]
    if shapes[0] != shapes[1]:
        chosen = logical_and(chosen, full(shapes[0], True))
        value = where(chosen, value, value)
    places = reshape(nonzero(reshape(chosen, -1), count), -1)
    return take(reshape(value, -1), places)


@composite
def compress(op: OpCall, x: T, condition: Any, axis: int | None = None, count: Any = None) -> T:
    """The slices of `x` along `axis` (or its elements, without an axis) at which the 1-d `condition` is true."""
    value: Any = op.operand(x)
    places = reshape(nonzero(condition, count), -1)
    return take(value, places, axis) if axis is not None else take(reshape(value, -1), places)


def _known(max_output: Any, value: Value, boxes: Tensor) -> Expr:
    """Returns the compile-time bound on the number of boxes that are kept for a class.

    That is `max_output` if its value is known (0 if negative), else the number of boxes.
    """
    if isinstance(max_output, int):
        return const(max(max_output, 0))
    known = value.annotation.value if isinstance(value.annotation, Scalar) else None
    return known if known is not None else boxes.shape[1] if len(boxes.shape) == 3 else const(0)
