"""Normalization: layer_norm, group_norm, instance_norm, batch_norm (inference), lp_normalize, local_response_norm.

ops.layer_norm(x, weight, bias)                     # over the last dim
ops.group_norm(x, weight, bias, groups=8)           # x: (n, c, …), groups of channels

Statistics of 16-bit floats are computed in f32. The variance is the mean of squared differences from the mean: a difference of squares
would cancel.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Add, Call, Cast, Const, Div, Eq, Expr, FloorMod, Le, Lt, Max, Min, Mul, Sub, const, product
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, composite, operand, operator, tensor_of
from ..stage import Indices, Read, Stage
from .reduce import AxisAttrs, accumulator, normal_axis, powered, rooted
from .shape import as_dim
from .window import ZERO, all_of, group_start, read_inside

T = TypeVar("T")


def _widen(e: Expr, wide: DType) -> Expr:
    return e if e.dtype is wide else Cast(wide, e)


@dataclass(frozen=True, slots=True)
class _Rows:
    """A record of which elements are normalized together: the shape of the statistics, the extents of a row, and the index maps."""

    shape: tuple[Expr, ...]
    reduce: tuple[Expr, ...]
    element: Callable[[Indices, Indices], Indices]
    row: Callable[[Indices], Indices]


def _normalized(x: Tensor, rows: _Rows, eps: float, affine: Callable[[Indices, Read], list[Expr]]) -> tuple[Stage, ...]:
    """Returns the stages of (x - mean) / sqrt(variance + eps), times and plus the factors that `affine` returns for an element, if any.

    Statistics are computed over `rows`, in f32 for 16-bit floats.
    """
    wide = accumulator(x.dtype)
    count = Cast(wide, product(rows.reduce))

    def square(i: Indices, r: Indices, read: Read) -> Expr:
        centered = Sub(_widen(read(0, *rows.element(i, r)), wide), read("mean", *i))
        return Mul(centered, centered)

    def scale(i: Indices, r: Indices, read: Read) -> Expr:
        variance = Div(read("squares", *i), count)
        return Div(Const(1.0, wide), Call("sqrt", Add(variance, Const(eps, wide))))

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        result: Expr = Mul(Sub(_widen(read(0, *i), wide), read("mean", *rows.row(i))), read("scale", *rows.row(i)))
        for join, e in zip((Mul, Add), affine(i, read), strict=False):
            result = join(result, _widen(e, wide))
        return result if wide is x.dtype else Cast(x.dtype, result)

    def term(i: Indices, r: Indices, read: Read) -> Expr:
        return _widen(read(0, *rows.element(i, r)), wide)

    return (
        Stage("total", wide, rows.shape, term, rows.reduce, "add", Const(0, wide)),
        Stage("mean", wide, rows.shape, lambda i, r, read: Div(read("total", *i), count)),
        Stage("squares", wide, rows.shape, square, rows.reduce, "add", Const(0, wide)),
        Stage("scale", wide, rows.shape, scale),
        Stage("out", x.dtype, x.shape, finish),
    )


def _affine_args(weight: Any, bias: Any, name: str) -> tuple[Any, ...]:
    if weight is None and bias is not None:
        raise ShapeError(f"{name}: a bias without a weight", help="give a weight of ones, or add the bias afterwards")
    return tuple(operand(name, a) for a in (weight, bias) if a is not None)


@dataclass(frozen=True, slots=True)
class LayerNormAttrs:
    """The attributes of `layer_norm`: the first of the normalized axes (all after it are, too), and the epsilon added to the variance."""

    axis: int
    eps: float


def _deduce_layer_norm(d: Deduction, attrs: LayerNormAttrs) -> tuple[Annotation, ...]:
    d.same_floats()
    x = d.tensor(0)
    row = x.shape[attrs.axis :]
    for k in range(1, len(d.args)):
        factor = d.rank(k, len(row))
        for axis, (n, m) in enumerate(zip(factor.shape, row, strict=True)):
            message = f"dim {axis} of `{d.args[k].name}` is {{0}}, that of what is normalized of `{d.args[0].name}` {{1}}"
            d.equal(n, m, message, arg=k)
    return (Tensor(x.dtype, x.shape),)


def _layer_norm_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: LayerNormAttrs) -> tuple[Stage, ...]:
    x, a = args[0], attrs.axis
    rows = _Rows(x.shape[:a], x.shape[a:], lambda i, r: (*i, *r), lambda i: i[:a])
    return _normalized(x, rows, attrs.eps, lambda i, read: [read(k, *i[a:]) for k in range(1, len(args))])


def _standard(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    with np.errstate(all="ignore"):
        centered = x - np.sum(x, axis=axes, keepdims=True) / np.prod([x.shape[a] for a in axes])
        variance = np.sum(centered * centered, axis=axes, keepdims=True) / np.prod([x.shape[a] for a in axes])
        standard: Array = centered / np.sqrt(variance + eps)
    return standard


def _affine(normalized: Array, args: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    factors = [a.astype(np.float64).reshape(shape) for a in args[1:]]
    normalized = normalized * factors[0] if factors else normalized
    return [(normalized + factors[1] if len(factors) > 1 else normalized).astype(args[0].dtype)]


def _layer_norm_reference(args: Sequence[Array], attrs: LayerNormAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    return _affine(_standard(x, tuple(range(attrs.axis, x.ndim)), attrs.eps), args, x.shape[attrs.axis :])


@operator(deduce=_deduce_layer_norm, reference=_layer_norm_reference, stages=_layer_norm_stages, attrs=LayerNormAttrs, arity=(1, 3))
def layer_norm(op: OpCall, x: T, weight: T | None = None, bias: T | None = None, axis: int = -1, eps: float = 1e-5) -> T:
    """`x` normalized to mean 0 and variance 1 over `axis` and all axes after it, then times the weight, plus the bias."""
    value = op.operand(x)
    attrs = LayerNormAttrs(normal_axis(op.name, value, axis), float(eps))
    return op.emit(value, *_affine_args(weight, bias, op.name), attrs=attrs)


@dataclass(frozen=True, slots=True)
class GroupNormAttrs:
    """The attributes of `group_norm`: the number of channel groups, and the epsilon added to the variance."""

    groups: Expr
    eps: float


def _deduce_group_norm(d: Deduction, attrs: GroupNormAttrs) -> tuple[Annotation, ...]:
    d.same_floats()
    x = _with_channels(d)
    d.require(Lt(ZERO, attrs.groups), "group_norm: {0} groups", (attrs.groups,))
    divides = Eq(FloorMod(x.shape[1], attrs.groups), ZERO)
    d.require(divides, "group_norm: {0} channels are not divisible into {1} groups", (x.shape[1], attrs.groups))
    _check_channels(d, x)
    return (Tensor(x.dtype, x.shape),)


def _with_channels(d: Deduction) -> Tensor:
    x = d.tensor(0)
    if len(x.shape) < 2:
        help_ = "the dims are (batch, channels, …)"
        raise d.error(f"{d.what}: `{d.args[0].name}` has {counted(len(x.shape), 'dim')}, at least 2 are needed", arg=0, help=help_)
    return x


def _check_channels(d: Deduction, x: Tensor) -> None:
    for k in range(1, len(d.args)):
        d.equal(d.rank(k, 1).shape[0], x.shape[1], f"`{d.args[k].name}` has {{0}} elements for {{1}} channels", arg=k)


def _group_norm_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: GroupNormAttrs) -> tuple[Stage, ...]:
    x = args[0]
    per_group = simplify(x.shape[1] // attrs.groups)
    rows = _Rows(
        (x.shape[0], attrs.groups),
        (per_group, *x.shape[2:]),
        lambda i, r: (i[0], group_start(i[1], per_group, attrs.groups, per_group) + r[0], *r[1:]),
        lambda i: (i[0], _group(i[1], per_group, attrs.groups)),
    )
    return _normalized(x, rows, attrs.eps, lambda i, read: [read(k, i[1]) for k in range(1, len(args))])


def _group(channel: Expr, per_group: Expr, groups: Expr) -> Expr:
    """Returns the group of a channel; for symbolic dims bounded by `groups - 1`, so that range analysis sees it in range."""
    if per_group is const(1):
        return channel
    return channel // per_group if isinstance(per_group, Const) else Min(channel // per_group, groups - 1)


def _group_norm_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x = args[0].astype(np.float64)
    grouped = x.reshape(x.shape[0], attrs.groups, x.shape[1] // attrs.groups, *x.shape[2:])
    normalized = _standard(grouped, tuple(range(2, grouped.ndim)), attrs.eps).reshape(x.shape)
    return _affine(normalized, args, (-1, *[1] * (x.ndim - 2)))


@operator(deduce=_deduce_group_norm, reference=_group_norm_reference, stages=_group_norm_stages, attrs=GroupNormAttrs, arity=(1, 3))
def group_norm(op: OpCall, x: T, weight: T | None = None, bias: T | None = None, groups: Any = 1, eps: float = 1e-5) -> T:
    """`x` (n, c, …) normalized over each group of channels, then times the weight and plus the bias of each channel."""
    value = op.operand(x)
    attrs = GroupNormAttrs(as_dim(op.name, groups), float(eps))
    return op.emit(value, *_affine_args(weight, bias, op.name), attrs=attrs)


@dataclass(frozen=True, slots=True)
class EpsAttrs:
    """The attributes of `batch_norm` and `rms_norm`: the epsilon added to the variance, or to the mean of the squares, under the root."""

    eps: float


def _deduce_batch_norm(d: Deduction, attrs: EpsAttrs) -> tuple[Annotation, ...]:
    d.same_floats()
    x = _with_channels(d)
    _check_channels(d, x)
    return (Tensor(x.dtype, x.shape),)


def _batch_norm_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: EpsAttrs) -> tuple[Stage, ...]:
    x = args[0]
    wide = accumulator(x.dtype)

    def scale(i: Indices, r: Indices, read: Read) -> Expr:
        root = Call("sqrt", Add(_widen(read(4, *i), wide), Const(attrs.eps, wide)))
        return Div(_widen(read(1, *i), wide), root)

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        centered = Sub(_widen(read(0, *i), wide), _widen(read(3, i[1]), wide))
        result = Add(Mul(centered, read("scale", i[1])), _widen(read(2, i[1]), wide))
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (Stage("scale", wide, x.shape[1:2], scale), Stage("out", x.dtype, x.shape, finish))


def _batch_norm_reference(args: Sequence[Array], attrs: EpsAttrs) -> list[Array]:
    shape = (-1, *[1] * (args[0].ndim - 2))
    x, (weight, bias, mean, var) = args[0].astype(np.float64), (a.astype(np.float64).reshape(shape) for a in args[1:])
    with np.errstate(all="ignore"):
        return [((x - mean) / np.sqrt(var + attrs.eps) * weight + bias).astype(args[0].dtype)]


@operator(deduce=_deduce_batch_norm, reference=_batch_norm_reference, stages=_batch_norm_stages, attrs=EpsAttrs, arity=5)
def batch_norm(op: OpCall, x: T, weight: T, bias: T, mean: T, var: T, eps: float = 1e-5) -> T:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of `x` (n, c, …), with given statistics."""
    return op.emit(x, weight, bias, mean, var, attrs=EpsAttrs(float(eps)))


@dataclass(frozen=True, slots=True)
class LpAttrs(AxisAttrs):
    """The attributes of `lp_normalize`: the axis, the power p of the norm, and the smallest divisor."""

    p: int
    eps: float


def _deduce_lp(d: Deduction, attrs: LpAttrs) -> tuple[Annotation, ...]:
    d.floats()
    return (Tensor(d.tensor(0).dtype, d.tensor(0).shape),)


def _lp_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: LpAttrs) -> tuple[Stage, ...]:
    x, a = args[0], attrs.axis
    wide = accumulator(x.dtype)
    rows = x.shape[:a] + x.shape[a + 1 :]

    def term(i: Indices, r: Indices, read: Read) -> Expr:
        return powered(_widen(read(0, *i[:a], r[0], *i[a:]), wide), attrs.p)

    def size(i: Indices, r: Indices, read: Read) -> Expr:
        return Max(rooted(read("total", *i), attrs.p), Const(attrs.eps, wide))

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        result = Div(_widen(read(0, *i), wide), read("size", *i[:a], *i[a + 1 :]))
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (
        Stage("total", wide, rows, term, (x.shape[a],), "add", Const(0, wide)),
        Stage("size", wide, rows, size),
        Stage("out", x.dtype, x.shape, finish),
    )


def _lp_reference(args: Sequence[Array], attrs: LpAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    size = np.sum(np.abs(x) ** attrs.p, axis=attrs.axis, keepdims=True) ** (1 / attrs.p)
    return [(x / np.maximum(size, attrs.eps)).astype(args[0].dtype)]


@operator(deduce=_deduce_lp, reference=_lp_reference, stages=_lp_stages, attrs=LpAttrs)
def lp_normalize(op: OpCall, x: T, axis: int = -1, p: int = 2, eps: float = 1e-12) -> T:
    """`x` divided by its p-norm along `axis`, or by `eps` if the norm is smaller. Raises a ShapeError unless p is an integer from 1 on."""
    value = op.operand(x)
    if not isinstance(p, int) or isinstance(p, bool) or p < 1:
        raise ShapeError(f"{op.name}: p is a whole number from 1 on, not {p!r}")
    return op.emit(value, attrs=LpAttrs(normal_axis(op.name, value, axis), p, float(eps)))


@dataclass(frozen=True, slots=True)
class ResponseAttrs:
    """The attributes of `local_response_norm`, x / (bias + alpha / size * squares)^beta over `size` neighboring channels."""

    size: int
    alpha: float
    beta: float
    bias: float


def _deduce_response(d: Deduction, attrs: ResponseAttrs) -> tuple[Annotation, ...]:
    d.floats()
    x = _with_channels(d)
    if attrs.size < 1:
        raise d.error(f"local_response_norm: size {attrs.size} is less than 1")
    return (Tensor(x.dtype, x.shape),)


def _response_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ResponseAttrs) -> tuple[Stage, ...]:
    x = args[0]
    wide = accumulator(x.dtype)

    def square(i: Indices, r: Indices, read: Read) -> Expr:
        channel = i[1] + r[0] - (attrs.size - 1) // 2
        inside = all_of([Le(ZERO, channel), Lt(channel, x.shape[1])])
        element = _widen(read_inside(read, 0, (i[0], channel, *i[2:]), inside, Const(0.0, x.dtype)), wide)
        return Mul(element, element)

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        base = Add(Mul(read("squares", *i), Const(attrs.alpha / attrs.size, wide)), Const(attrs.bias, wide))
        result = Div(_widen(read(0, *i), wide), Call("pow", base, Const(attrs.beta, wide)))
        return result if wide is x.dtype else Cast(x.dtype, result)

    return (
        Stage("squares", wide, x.shape, square, (const(attrs.size),), "add", Const(0, wide)),
        Stage("out", x.dtype, x.shape, finish),
    )


def _response_reference(args: Sequence[Array], attrs: ResponseAttrs) -> list[Array]:
    x = args[0].astype(np.float64)
    squares = np.zeros_like(x)
    for c in range(x.shape[1]):
        near = x[:, max(c - (attrs.size - 1) // 2, 0) : c + attrs.size // 2 + 1]
        squares[:, c] = np.sum(near * near, axis=1)
    return [(x / (attrs.bias + attrs.alpha / attrs.size * squares) ** attrs.beta).astype(args[0].dtype)]


@operator(deduce=_deduce_response, reference=_response_reference, stages=_response_stages, attrs=ResponseAttrs)
def local_response_norm(op: OpCall, x: T, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> T:
    """`x / (bias + alpha / size * squares)^beta`, with the sum of squares over `size` neighboring channels.

    An even number of them has one more after the channel than before it, as in ONNX.
    """
    return op.emit(x, attrs=ResponseAttrs(size, float(alpha), float(beta), float(bias)))


@composite
def instance_norm(op: OpCall, x: T, weight: T | None = None, bias: T | None = None, eps: float = 1e-5) -> T:
    """`x` (n, c, …) normalized over each channel alone: group_norm with a group for each channel."""
    value = op.operand(x)
    shape = tensor_of(value.annotation).shape
    return group_norm(value, weight, bias, shape[1] if len(shape) > 1 else 1, eps)  # type: ignore[return-value]
