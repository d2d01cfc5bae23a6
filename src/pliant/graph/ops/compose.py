"""Functions composed of reshape, permute, slice and concat: squeeze, unsqueeze, flatten, stack, split, chunk, unbind, depth_to_space, …

ops.unsqueeze(x, 0), ops.stack([a, b]), q, k, v = ops.split(x, 3, axis=-1)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

from ...support.errors import ShapeError, counted
from ...sym.expr import Const, Eq, Expr, const, product
from ...sym.simplify import simplify
from ..annotation import ONE, decide
from ..node import Tensor, Value
from ..operators import OpCall, composite, operand, tensor_of
from .calls import match_cast
from .reduce import normal_axes, normal_axis
from .shape import as_dim, concat, permute, reshape
from .slicing import slice as cut

T = TypeVar("T")


def _shape(value: Any) -> tuple[Expr, ...]:
    return tensor_of(value.annotation).shape


@composite
def unsqueeze(op: OpCall, x: T, axis: Any) -> T:
    """`x` with a new dim of 1 at each axis; axes are positions in the result.

    Raises a ShapeError for an axis that is given twice or does not exist.
    """
    value = op.operand(x)
    listed = axis if isinstance(axis, tuple | list) else (axis,)
    axes = [normal_axis(op.name, value, a, extra=len(listed)) for a in listed]
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{op.name}: an axis is given twice", facts=[f"axis is {axis}"])
    old = iter(_shape(value))
    new = [ONE if k in axes else next(old) for k in range(len(_shape(value)) + len(axes))]
    return reshape(value, new)  # type: ignore[return-value]


@composite
def squeeze(op: OpCall, x: T, axis: Any = None) -> T:
    """`x` without the dims of 1 at the axes; without an axis, without all dims that are known to be 1.

    Raises a ShapeError if a dim at one of the axes is a number other than 1.
    """
    value = op.operand(x)
    shape = _shape(value)
    axes = tuple(k for k, n in enumerate(shape) if n is ONE) if axis is None else normal_axes(op.name, value, axis)
    for a in axes:
        if isinstance(shape[a], Const) and shape[a] is not ONE:
            raise ShapeError(f"{op.name}: dim {a} is {shape[a]}, not 1", facts=[f"`{value.name}` is {value.annotation}"])
    return reshape(value, [n for k, n in enumerate(shape) if k not in axes])  # type: ignore[return-value]


@composite
def flatten(op: OpCall, x: T, start: int = 0, end: int = -1) -> T:
    """`x` with the axes from `start` to `end` (included) merged into one; a tensor without dims gets one dim of 1.

    Raises a ShapeError if `end` comes before `start`.
    """
    value = op.operand(x)
    shape = _shape(value)
    if not shape:
        return reshape(value, (1,))  # type: ignore[return-value]
    first, last = normal_axis(op.name, value, start), normal_axis(op.name, value, end)
    if last < first:
        raise ShapeError(f"{op.name}: axis {end} comes before axis {start}", facts=[f"`{value.name}` is {value.annotation}"])
    middle = simplify(product(shape[first : last + 1]))
    return reshape(value, (*shape[:first], middle, *shape[last + 1 :]))  # type: ignore[return-value]


@composite
def stack(op: OpCall, xs: Sequence[T], axis: int = 0) -> T:
    """Tensors of one shape, joined along a new axis. Raises a ShapeError for an empty list."""
    if not isinstance(xs, tuple | list) or not xs:
        raise ShapeError("stack takes a list of tensors", help="for example ops.stack([a, b], axis=0)")
    values = op.operands(xs)
    at = normal_axis(op.name, values[0], axis, extra=1)
    return concat([unsqueeze(v, at) for v in values], at)  # type: ignore[return-value]


@composite
def split(op: OpCall, x: Any, parts: Any, axis: int = 0) -> tuple[Any, ...]:
    """`x` split along `axis` into equal parts, or into parts of the listed sizes.

    Raises a ShapeError if the sizes do not add up to the extent; a symbolic extent is checked at run time.
    """
    value = op.operand(x)
    at = normal_axis(op.name, value, axis)
    n = _shape(value)[at]
    if isinstance(parts, tuple | list):
        sizes = [as_dim(op.name, s) for s in parts]
    else:
        sizes = [_equal_part(value, n, parts)] * int(parts)
    starts: list[Expr] = [const(0)]
    for s in sizes:
        starts.append(simplify(starts[-1] + s))
    if isinstance(n, Const) and isinstance(starts[-1], Const) and n.value != starts[-1].value:
        raise ShapeError(
            f"{op.name}: sizes of {starts[-1]} in all for the {n} elements of axis {at}", facts=[f"`{value.name}` is {value.annotation}"]
        )
    pieces = [cut(value, at, a, b) for a, b in pairwise(starts[:-1])]
    return (*pieces, _last_part(value, at, starts[-2], starts[-1])) if sizes else ()


def _last_part(value: Value, axis: int, start: Expr, stop: Expr) -> Any:
    """Emits the slice from `start` to the end of the axis, and a match_cast that checks that the axis ends at `stop`; returns its value.

    The match_cast is omitted if the extent is known to be `stop`.
    """
    shape = _shape(value)
    if decide(Eq(shape[axis], stop)):
        return cut(value, axis, start, stop)
    size = simplify(stop - start)
    rest = Tensor(tensor_of(value.annotation).dtype, (*shape[:axis], size, *shape[axis + 1 :]))
    return match_cast(cut(value, axis, start, shape[axis]), rest)


def _equal_part(value: Value, n: Expr, parts: Any) -> Expr:
    if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
        raise ShapeError(f"split: a number of parts or a list of sizes is expected, not {parts!r}")
    if isinstance(n, Const) and n.value % parts:
        raise ShapeError(f"split: {n} elements are not divisible into {parts} equal parts", facts=[f"`{value.name}` is {value.annotation}"])
    return simplify(n // parts)


@composite
def chunk(op: OpCall, x: Any, parts: int, axis: int = 0) -> tuple[Any, ...]:
    """`x` split along `axis` into at most `parts` parts of ceil(n / parts) elements, the last possibly smaller, as in torch.

    If the extent is not a number, it is split into `parts` equal parts, as by `split`.
    """
    value = op.operand(x)
    at = normal_axis(op.name, value, axis)
    n = _shape(value)[at]
    if not isinstance(n, Const):
        return split(value, parts, at)
    size = -(-n.value // parts)
    count = -(-n.value // size) if size else parts
    return split(value, [min(size, n.value - k * size) for k in range(count)], at)


@composite
def unbind(op: OpCall, x: Any, axis: int = 0) -> tuple[Any, ...]:
    """The slices of `x` at each index along `axis`, without that axis; its extent must be a number. Raises a ShapeError if it is none."""
    value = op.operand(x)
    at = normal_axis(op.name, value, axis)
    n = _shape(value)[at]
    if not isinstance(n, Const):
        raise ShapeError(f"{op.name}: axis {at} has {n} elements, a number is needed", facts=[f"`{value.name}` is {value.annotation}"])
    return tuple(squeeze(cut(value, at, k, k + 1), at) for k in range(n.value))


def _image(name: str, x: Any, block: Any) -> tuple[Value, int]:
    value = operand(name, x)
    if len(_shape(value)) != 4:
        raise ShapeError(f"{name}: `{value.name}` has {counted(len(_shape(value)), 'dim')}, 4 are expected: (n, c, h, w)")
    if not isinstance(block, int) or isinstance(block, bool) or block < 1:
        raise ShapeError(f"{name}: a block is a whole number from 1 on, not {block!r}")
    return value, block


@composite
def depth_to_space(op: OpCall, x: T, block: int, mode: str = "DCR") -> T:
    """Moves blocks of `block` x `block` channels into height and width; mode "CRD" has the channel first, as `pixel_shuffle`.

    Raises a ShapeError for another mode, or if the channels are not divisible by block * block.
    """
    value, b = _image(op.name, x, block)
    n, c, h, w = _shape(value)
    _divisible(op.name, value, c, b * b, "channels")
    depth = simplify(c // (b * b))
    if mode == "DCR":
        moved = permute(reshape(value, (n, b, b, depth, h, w)), (0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        moved = permute(reshape(value, (n, depth, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        raise ShapeError(f'{op.name} has no mode "{mode}"', help='mode is "DCR" or "CRD"')
    return reshape(moved, (n, depth, simplify(h * b), simplify(w * b)))  # type: ignore[return-value]


@composite
def pixel_shuffle(op: OpCall, x: T, block: int) -> T:
    """Moves channels (c, block, block) into height and width, as in torch."""
    return depth_to_space(x, block, "CRD")


@composite
def space_to_depth(op: OpCall, x: T, block: int) -> T:
    """Moves blocks of height and width into channels: (n, c, h, w) to (n, block * block * c, h / block, w / block).

    Raises a ShapeError if height or width is a number that `block` does not divide.
    """
    value, b = _image(op.name, x, block)
    n, c, h, w = _shape(value)
    _divisible(op.name, value, h, b, "rows")
    _divisible(op.name, value, w, b, "columns")
    rows, columns = simplify(h // b), simplify(w // b)
    moved = permute(reshape(value, (n, c, rows, b, columns, b)), (0, 3, 5, 1, 2, 4))
    return reshape(moved, (n, simplify(c * (b * b)), rows, columns))  # type: ignore[return-value]


def _divisible(name: str, value: Value, n: Expr, by: int, what: str) -> None:
    if isinstance(n, Const) and n.value % by:
        raise ShapeError(f"{name}: {n} {what} are not divisible by {by}", facts=[f"`{value.name}` is {value.annotation}"])
