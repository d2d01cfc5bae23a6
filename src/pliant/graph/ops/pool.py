"""Pooling over windows of the spatial dims: max, average and p-norm pools, adaptive pools, and global ones.

ops.max_pool(x, 3, stride=2, padding=1)        # x: (n, c, then any number of spatial dims)
ops.adaptive_avg_pool(x, (7, 7)), ops.global_avg_pool(x)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, bool_
from ...dtype import dtype as to_dtype
from ...support.errors import counted
from ...support.record import dataclass
from ...sym.expr import And, Cast, Const, Div, Expr, Lt, const, product
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor, Value
from ..operators import Array, OpCall, composite, operator, tensor_of
from ..stage import Indices, Read, Stage
from .reduce import accumulator, limit, powered, rooted
from .reduce import max as max_over
from .reduce import mean as mean_over
from .reduce import norm as norm_over
from .shape import as_dim
from .window import ZERO, Window, WindowAttrs, padded_windows, read_inside, whole_numbers, window_of, window_sizes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PoolAttrs(WindowAttrs):
    """The attributes of a pool: the window for each spatial dim; with `ceil_mode` the last window may reach past the end."""

    ceil_mode: bool = False


@dataclass(frozen=True, slots=True)
class AvgPoolAttrs(PoolAttrs):
    """The attributes of `avg_pool`: a pool's; with `count_include_pad` the padding counts as elements."""

    count_include_pad: bool = False


@dataclass(frozen=True, slots=True)
class LpPoolAttrs(PoolAttrs):
    """The attributes of `lp_pool`: a pool's, and the power p of the norm."""

    p: int = 2


def _window(attrs: Any) -> Window:
    return Window(tuple(map(const, attrs.kernel)), attrs.stride, attrs.padding, attrs.dilation, attrs.ceil_mode)


def _spatial_operand(d: Deduction, rank: int | None) -> Tensor:
    x = d.tensor(0)
    if len(x.shape) < 3 or (rank is not None and len(x.shape) != rank + 2):
        wanted = "at least 3 are" if rank is None else f"{rank + 2} are"
        help_ = "the dims are (batch, channels, then the spatial ones)"
        raise d.error(f"{d.what}: `{d.args[0].name}` has {counted(len(x.shape), 'dim')}, {wanted} expected", arg=0, help=help_)
    return x


def _deduce(d: Deduction, attrs: Any) -> tuple[Annotation, ...]:
    x = _spatial_operand(d, len(attrs.kernel))
    if d.what != "max_pool":
        d.floats()
    elif x.dtype is bool_:
        raise d.error("max_pool of bools", arg=0, help="cast them first: ops.cast(x, u8)")
    return (Tensor(x.dtype, (*x.shape[:2], *_window(attrs).sizes(d, x.shape[2:]))),)


def _pool_stage(x: Tensor, out: Tensor, attrs: Any, combiner: Any, outside: Expr, init: Expr, each: Callable[[Expr], Expr]) -> Stage:
    """Returns the stage that combines `each(tap)` over the taps of a window, starting with `init`; a tap in the padding is `outside`."""
    window = _window(attrs)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places = window.places(i[2:], r)
        return each(read_inside(read, 0, (*i[:2], *places), window.inside(places, x.shape[2:]), outside))

    return Stage("total", init.dtype, out.shape, value, window.kernel, combiner, init)


def _widen(wide: DType) -> Callable[[Expr], Expr]:
    return lambda e: e if e.dtype is wide else Cast(wide, e)


def _max_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: PoolAttrs) -> tuple[Stage, ...]:
    least = limit(args[0].dtype, False)
    return (_pool_stage(args[0], outs[0], attrs, "max", least, least, lambda e: e),)


def _last(total: Stage, out: Tensor, finish: Callable[[Expr, Indices], Expr]) -> Stage:
    def value(i: Indices, r: Indices, read: Read) -> Expr:
        result = finish(read(total.name, *i), i)
        return result if result.dtype is out.dtype else Cast(out.dtype, result)

    return Stage("out", out.dtype, out.shape, value)


def _avg_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AvgPoolAttrs) -> tuple[Stage, ...]:
    x, out, window = args[0], outs[0], _window(attrs)
    wide = accumulator(x.dtype)
    total = _pool_stage(x, out, attrs, "add", Const(0, x.dtype), Const(0, wide), _widen(wide))

    def count(k: int, i: Expr) -> Expr:
        n, (lo, hi) = x.shape[2 + k], attrs.padding[k]
        if attrs.count_include_pad:
            whole = not attrs.ceil_mode or attrs.stride[k] == 1
            return window.kernel[k] if whole else window.taps(k, i, simplify(ZERO - lo), n + hi)
        whole = lo is ZERO and hi is ZERO and (not attrs.ceil_mode or attrs.stride[k] == 1)
        return window.kernel[k] if whole else window.taps(k, i, ZERO, n)

    def finish(total: Expr, i: Indices) -> Expr:
        return Div(total, Cast(wide, product(tuple(count(k, i[2 + k]) for k in range(len(attrs.kernel))))))

    return (total, _last(total, out, finish))


def _lp_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: LpPoolAttrs) -> tuple[Stage, ...]:
    x, out = args[0], outs[0]
    wide = accumulator(x.dtype)
    widen = _widen(wide)
    total = _pool_stage(x, out, attrs, "add", Const(0, x.dtype), Const(0, wide), lambda e: powered(widen(e), attrs.p))
    return (total, _last(total, out, lambda total, i: rooted(total, attrs.p)))


def _taps(x: Array, attrs: Any, fill: Any) -> Array:
    """Returns the elements of every pooling window, flattened into the last axis, in numpy; the padding is `fill`."""
    windows = padded_windows(x, attrs.kernel, attrs, window_sizes(x, attrs.kernel, attrs), fill)
    return windows.reshape(*windows.shape[: x.ndim], math.prod(attrs.kernel))


def _max_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x = args[0]
    d = to_dtype(x.dtype)
    fill = x.dtype.type(-math.inf) if d.is_float else d.min
    return [np.max(_taps(x, attrs, fill), axis=-1, initial=fill).astype(x.dtype)]


def _avg_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x = args[0].astype(np.float64)
    ones, window = np.ones((1, 1, *x.shape[2:])), attrs
    if attrs.count_include_pad:  # the padding counts: ones there, and no padding left
        ones = np.pad(ones, [(0, 0), (0, 0), *attrs.padding], constant_values=1)
        window = replace(attrs, padding=((0, 0),) * len(attrs.kernel))
    windows = padded_windows(ones, attrs.kernel, window, window_sizes(x, attrs.kernel, attrs), 0)
    counts = np.sum(windows, axis=tuple(range(-len(attrs.kernel), 0)))
    with np.errstate(all="ignore"):
        return [(np.sum(_taps(x, attrs, 0), axis=-1) / counts).astype(args[0].dtype)]


def _lp_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    taps = np.abs(_taps(args[0].astype(np.float64), attrs, 0))
    return [(np.sum(taps**attrs.p, axis=-1) ** (1 / attrs.p)).astype(args[0].dtype)]


@operator(deduce=_deduce, reference=_max_reference, stages=_max_stages, attrs=PoolAttrs)
def max_pool(op: OpCall, x: T, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> T:
    """The largest element of each window; `stride` defaults to the kernel size."""
    value, sizes, w = _given(op, x, kernel, stride, padding, dilation, ceil_mode)
    return op.emit(value, attrs=PoolAttrs(sizes, w.stride, w.padding, w.dilation, w.ceil_mode))


@operator(deduce=_deduce, reference=_avg_reference, stages=_avg_stages, attrs=AvgPoolAttrs)
def avg_pool(
    op: OpCall,
    x: T,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> T:
    """The mean of each window, over the elements of `x` only or, with `count_include_pad`, the padding too."""
    value, sizes, w = _given(op, x, kernel, stride, padding, dilation, ceil_mode)
    return op.emit(value, attrs=AvgPoolAttrs(sizes, w.stride, w.padding, w.dilation, w.ceil_mode, bool(count_include_pad)))


@operator(deduce=_deduce, reference=_lp_reference, stages=_lp_stages, attrs=LpPoolAttrs)
def lp_pool(
    op: OpCall, x: T, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, p: int = 2
) -> T:
    """The p-norm of each window."""
    value, sizes, w = _given(op, x, kernel, stride, padding, dilation, ceil_mode)
    power = whole_numbers(op.name, "p", p, 1)[0]
    return op.emit(value, attrs=LpPoolAttrs(sizes, w.stride, w.padding, w.dilation, w.ceil_mode, power))


# Adaptive pools: window i of o over n elements is floor(i n / o) .. ceil((i + 1) n / o).
@dataclass(frozen=True, slots=True)
class AdaptiveAttrs:
    """The attributes of adaptive pools: the spatial extents of the result."""

    output_size: tuple[Expr, ...]


def _deduce_adaptive_avg(d: Deduction, attrs: AdaptiveAttrs) -> tuple[Annotation, ...]:
    x = _spatial_operand(d, len(attrs.output_size))
    d.floats()
    return _adaptive_result(d, x, attrs)


def _deduce_adaptive_max(d: Deduction, attrs: AdaptiveAttrs) -> tuple[Annotation, ...]:
    x = _spatial_operand(d, len(attrs.output_size))
    if x.dtype is bool_:
        raise d.error(f"{d.what} of bools", arg=0, help="cast them first: ops.cast(x, u8)")
    return _adaptive_result(d, x, attrs)


def _adaptive_result(d: Deduction, x: Tensor, attrs: AdaptiveAttrs) -> tuple[Annotation, ...]:
    for k, (n, o) in enumerate(zip(x.shape[2:], attrs.output_size, strict=True)):
        d.require(Lt(ZERO, o), f"{d.what}: output size {{0}} of spatial dim {k} is not positive", (o,))
        d.require(Lt(ZERO, n), f"{d.what}: spatial dim {k} has no elements", help="every window needs one at least")
    return (Tensor(x.dtype, (*x.shape[:2], *attrs.output_size)),)


def _adaptive_extent(n: Expr, o: Expr) -> Expr:
    """Returns the largest number of elements of any window if `o` windows cover `n` elements; for symbolic extents an upper bound."""
    if isinstance(n, Const) and isinstance(o, Const):
        return const(max(-(-(i + 1) * n.value // o.value) - i * n.value // o.value for i in range(o.value)))
    return n if o is const(1) else simplify((n + o - 1) // o + 1)


def _ends(i: Expr, n: Expr, o: Expr) -> tuple[Expr, Expr]:
    return i * n // o, ((i + 1) * n + (o - 1)) // o


def _adaptive_total(x: Tensor, out: Tensor, sizes: tuple[Expr, ...], combiner: Any, outside: Expr, wide: DType) -> Stage:
    extents = x.shape[2:]

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places: list[Expr] = []
        inside: Expr | None = None
        for k, (n, o) in enumerate(zip(extents, sizes, strict=True)):
            start, end = _ends(i[2 + k], n, o)
            places.append(r[k] if o is const(1) else start + r[k])
            if o is const(1) or (isinstance(n, Const) and isinstance(o, Const) and n.value % o.value == 0):
                continue
            here = And(Lt(places[-1], end), Lt(places[-1], n))
            inside = here if inside is None else And(inside, here)
        element = read_inside(read, 0, (*i[:2], *places), inside, outside)
        return element if element.dtype is wide else Cast(wide, element)

    init = outside if outside.dtype is wide else Const(0, wide)
    reduce = tuple(_adaptive_extent(n, o) for n, o in zip(extents, sizes, strict=True))
    return Stage("total", wide, out.shape, value, reduce, combiner, init)


def _adaptive_max_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AdaptiveAttrs) -> tuple[Stage, ...]:
    x = args[0]
    return (_adaptive_total(x, outs[0], attrs.output_size, "max", limit(x.dtype, False), x.dtype),)


def _adaptive_avg_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AdaptiveAttrs) -> tuple[Stage, ...]:
    x, out = args[0], outs[0]
    wide = accumulator(x.dtype)

    def finish(total: Expr, i: Indices) -> Expr:
        counts = []
        for k, (n, o) in enumerate(zip(x.shape[2:], attrs.output_size, strict=True)):
            start, end = _ends(i[2 + k], n, o)
            counts.append(end - start)
        return Div(total, Cast(wide, product(tuple(counts))))

    total = _adaptive_total(x, out, attrs.output_size, "add", Const(0, x.dtype), wide)
    return (total, _last(total, out, finish))


def _adaptive_reference(fn: Callable[..., Any], wide: Callable[[Array], Array]) -> Callable[..., list[Array]]:
    def reference(args: Sequence[Array], attrs: Any) -> list[Array]:
        x = wide(args[0])
        result = np.empty((*x.shape[:2], *attrs.output_size), x.dtype)
        for at in np.ndindex(*attrs.output_size):
            ends = zip(at, x.shape[2:], attrs.output_size, strict=True)
            cut = tuple(slice(i * n // o, -(-(i + 1) * n // o)) for i, n, o in ends)
            result[(slice(None), slice(None), *at)] = fn(x[(slice(None), slice(None), *cut)], axis=tuple(range(2, x.ndim)))
        return [result.astype(args[0].dtype)]

    return reference


_MEAN, _MAX = _adaptive_reference(np.mean, lambda x: x.astype(np.float64)), _adaptive_reference(np.max, lambda x: x)


@operator(deduce=_deduce_adaptive_avg, reference=_MEAN, stages=_adaptive_avg_stages, attrs=AdaptiveAttrs)
def adaptive_avg_pool(op: OpCall, x: T, output_size: Any) -> T:
    """The means of `output_size` windows that cover the spatial dims; None keeps a dim."""
    return _adaptive(op, x, output_size)


@operator(deduce=_deduce_adaptive_max, reference=_MAX, stages=_adaptive_max_stages, attrs=AdaptiveAttrs)
def adaptive_max_pool(op: OpCall, x: T, output_size: Any) -> T:
    """The largest elements of `output_size` windows that cover the spatial dims; None keeps a dim."""
    return _adaptive(op, x, output_size)


def _given(op: OpCall, x: Any, kernel: Any, *window: Any) -> tuple[Value, tuple[int, ...], Window]:
    value = op.operand(x)
    rank = max(len(tensor_of(value.annotation).shape) - 2, 1)
    sizes = whole_numbers(op.name, "kernel", kernel, rank)
    return value, sizes, window_of(op.name, rank, tuple(map(const, sizes)), *window)


def _adaptive(op: OpCall, x: Any, output_size: Any) -> Any:
    value = op.operand(x)
    shape = tensor_of(value.annotation).shape[2:]
    items = output_size if isinstance(output_size, tuple | list) else (output_size,) * len(shape)
    kept = [shape[k] if s is None and k < len(shape) else as_dim(op.name, s) for k, s in enumerate(items)]
    return op.emit(value, attrs=AdaptiveAttrs(tuple(kept)))


def _spatial_axes(op: OpCall, x: Any) -> tuple[Value, tuple[int, ...]]:
    value = op.operand(x)
    return value, tuple(range(2, len(tensor_of(value.annotation).shape)))


@composite
def global_avg_pool(op: OpCall, x: T) -> T:
    """The mean over all spatial dims, which become 1."""
    value, axes = _spatial_axes(op, x)
    return mean_over(value, axes, keepdims=True)  # type: ignore[return-value]


@composite
def global_max_pool(op: OpCall, x: T) -> T:
    """The largest element over all spatial dims, which become 1."""
    value, axes = _spatial_axes(op, x)
    return max_over(value, axes, keepdims=True)  # type: ignore[return-value]


@composite
def global_lp_pool(op: OpCall, x: T, p: int = 2) -> T:
    """The p-norm over all spatial dims, which become 1."""
    value, axes = _spatial_axes(op, x)
    return norm_over(value, axes, keepdims=True, p=p)  # type: ignore[return-value]
