"""Operators that repeat, reverse or shift elements: expand, tile, repeat_interleave, flip, roll.

ops.expand(x, [n, -1]), ops.tile(x, [2, 1]), ops.flip(x, axis=0), ops.roll(x, 1, axis=-1)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...support.errors import ShapeError, counted
from ...sym.expr import Const, Eq, Expr, Le, Or, const
from ...sym.simplify import simplify
from ..annotation import ONE
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, emit, operator, tensor_of
from ..stage import Indices, Read, Stage
from .elementwise import project
from .reduce import normal_axes, normal_axis
from .shape import ShapeAttrs, as_dim
from .window import ZERO, whole_numbers

T = TypeVar("T")


def _deduce_expand(d: Deduction, attrs: ShapeAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if len(attrs.shape) < len(x.shape):
        raise d.error(f"expand: `{d.args[0].name}` has more than {counted(len(attrs.shape), 'dim')}", arg=0)
    skip = len(attrs.shape) - len(x.shape)
    for axis, (n, m) in enumerate(zip(x.shape, attrs.shape[skip:], strict=True)):
        if n is not m and n is not ONE:
            message = f"expand: dim {axis} of `{d.args[0].name}` is {{0}}, which cannot become {{1}}"
            d.require(Or(Eq(n, m), Eq(n, ONE)), message, (n, m), help="only a dim of 1 is repeated", arg=0)
    return (Tensor(x.dtype, attrs.shape),)


@operator(
    deduce=_deduce_expand,
    reference=lambda args, attrs: [np.broadcast_to(args[0], attrs.shape)],
    stages=lambda args, outs, attrs: (
        Stage("expand", outs[0].dtype, outs[0].shape, lambda i, r, read: read(0, *project(args[0].shape, outs[0].shape, i))),
    ),
    attrs=ShapeAttrs,
)
def expand(op: OpCall, x: T, shape: Any) -> T:
    """`x` broadcast to a shape; -1 keeps a dim.

    Raises a ShapeError for -1 at a leading dim that `x` does not have.
    """
    value = op.operand(x)
    old = tensor_of(value.annotation).shape
    dims = [as_dim(op.name, s) for s in (shape if isinstance(shape, tuple | list) else (shape,))]
    skip = len(dims) - len(old)
    for k, s in enumerate(dims):
        if isinstance(s, Const) and s.value == -1:
            if k < skip:
                raise ShapeError(f"{op.name}: -1 for a dim that is new", facts=[f"`{value.name}` is {value.annotation}"])
            dims[k] = old[k - skip]
    return op.emit(value, attrs=ShapeAttrs(tuple(dims)))


@dataclass(frozen=True, slots=True)
class TileAttrs:
    """The attributes of `tile`: the number of copies along each axis."""

    repeats: tuple[Expr, ...]


def _deduce_tile(d: Deduction, attrs: TileAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if len(attrs.repeats) != len(x.shape):
        raise d.error(f"tile: {counted(len(attrs.repeats), 'number')} for the {len(x.shape)} dims of `{d.args[0].name}`", arg=0)
    for r in attrs.repeats:
        d.require(Le(ZERO, r), "tile: {0} times", (r,))
    return (Tensor(x.dtype, tuple(simplify(n * r, d.facts) for n, r in zip(x.shape, attrs.repeats, strict=True))),)


def _tile_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: TileAttrs) -> tuple[Stage, ...]:
    x = args[0]

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return read(0, *(_wrapped(at, n, times) for at, n, times in zip(i, x.shape, attrs.repeats, strict=True)))

    return (Stage("tile", x.dtype, outs[0].shape, value),)


def _wrapped(at: Expr, n: Expr, times: Expr) -> Expr:
    return at if times is ONE else ZERO if n is ONE else at % n


@operator(
    deduce=_deduce_tile,
    reference=lambda args, attrs: [
        np.tile(args[0], attrs.repeats or (1,)).reshape([n * r for n, r in zip(args[0].shape, attrs.repeats, strict=True)])
    ],
    stages=_tile_stages,
    attrs=TileAttrs,
)
def tile(op: OpCall, x: T, repeats: Any) -> T:
    """Copies of `x` along each axis; more counts than axes add leading axes, fewer apply to the last axes."""
    value: Any = op.operand(x)
    times = [as_dim(op.name, r) for r in (repeats if isinstance(repeats, tuple | list) else (repeats,))]
    shape = tensor_of(value.annotation).shape
    if len(times) > len(shape):
        value = emit("reshape", (value,), ShapeAttrs((ONE,) * (len(times) - len(shape)) + shape))
    elif len(times) < len(shape):
        times = [const(1)] * (len(shape) - len(times)) + times
    return op.emit(value, attrs=TileAttrs(tuple(times)))


@dataclass(frozen=True, slots=True)
class RepeatAttrs:
    """The attributes of `repeat_interleave`: how often each element is repeated, and the axis."""

    repeats: int
    axis: int


def _deduce_repeat(d: Deduction, attrs: RepeatAttrs) -> tuple[Annotation, ...]:
    x, a = d.tensor(0), attrs.axis
    return (Tensor(x.dtype, (*x.shape[:a], simplify(x.shape[a] * attrs.repeats, d.facts), *x.shape[a + 1 :])),)


def _repeat_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: RepeatAttrs) -> tuple[Stage, ...]:
    a, times = attrs.axis, max(attrs.repeats, 1)
    return (Stage("repeat", outs[0].dtype, outs[0].shape, lambda i, r, read: read(0, *i[:a], i[a] // times, *i[a + 1 :])),)


@operator(
    deduce=_deduce_repeat,
    reference=lambda args, attrs: [np.repeat(args[0], attrs.repeats, axis=attrs.axis)],
    stages=_repeat_stages,
    attrs=RepeatAttrs,
)
def repeat_interleave(op: OpCall, x: T, repeats: int, axis: int = 0) -> T:
    """Each element repeated `repeats` times in a row along `axis`."""
    value = op.operand(x)
    times = whole_numbers(op.name, "repeats", repeats, 1, least=0)[0]
    return op.emit(value, attrs=RepeatAttrs(times, normal_axis(op.name, value, axis)))


@dataclass(frozen=True, slots=True)
class FlipAttrs:
    """The attributes of `flip`: the axes that are reversed."""

    axis: tuple[int, ...]


def _flip_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: FlipAttrs) -> tuple[Stage, ...]:
    shape = args[0].shape

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return read(0, *(shape[a] - 1 - at if a in attrs.axis else at for a, at in enumerate(i)))

    return (Stage("flip", outs[0].dtype, shape, value),)


def _same(d: Deduction, attrs: object) -> tuple[Annotation, ...]:
    return (Tensor(d.tensor(0).dtype, d.tensor(0).shape),)


@operator(deduce=_same, reference=lambda args, attrs: [np.flip(args[0], attrs.axis)], stages=_flip_stages, attrs=FlipAttrs)
def flip(op: OpCall, x: T, axis: Any = None) -> T:
    """`x` with its elements in reverse order along one axis, several, or all."""
    value = op.operand(x)
    return op.emit(value, attrs=FlipAttrs(normal_axes(op.name, value, axis)))


@dataclass(frozen=True, slots=True)
class RollAttrs:
    """The attributes of `roll`: the shift along each of the axes; elements that leave at the end come back at the start."""

    shift: tuple[Expr, ...]
    axis: tuple[int, ...]


def _roll_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: RollAttrs) -> tuple[Stage, ...]:
    shape, by = args[0].shape, dict(zip(attrs.axis, attrs.shift, strict=True))

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        return read(0, *((at - by[a]) % shape[a] if a in by else at for a, at in enumerate(i)))

    return (Stage("roll", outs[0].dtype, shape, value),)


def _roll_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    return [np.roll(args[0], attrs.shift, attrs.axis)]


@operator(deduce=_same, reference=_roll_reference, stages=_roll_stages, attrs=RollAttrs)
def roll(op: OpCall, x: T, shift: Any, axis: Any = -1) -> T:
    """Elements shifted cyclically by `shift` along `axis`, or by several shifts along several axes.

    One shift for several axes applies to each of them. Raises a ShapeError if there are other numbers of shifts than axes.
    """
    value = op.operand(x)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = shift if isinstance(shift, tuple | list) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ShapeError(f"{op.name}: {counted(len(shifts), 'shift')} for {len(axes)} axes")
    attrs = RollAttrs(tuple(as_dim(op.name, s) for s in shifts), tuple(normal_axis(op.name, value, a) for a in axes))
    return op.emit(value, attrs=attrs)
