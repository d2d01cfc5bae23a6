"""Windows over the spatial dims of a tensor, for convolutions and pools: geometry, number, and reads that stop at the border.

The layout is that of ONNX and ATen: (batch, channels, then any number of spatial dims). Tap j of window i is at `i * stride - padding + j
* dilation`.

    window = window_of("conv", 2, kernel=(3, 3), stride=2, padding=1, dilation=1)
    window.sizes(d, (h, w))       # ((h - 1) // 2 + 1, (w - 1) // 2 + 1), checked not to be negative
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...support.errors import Error, ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import And, Const, Expr, Le, Lt, Max, Min, Select, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..operators import Array
from ..stage import Indices, Read
from .shape import as_dim

ZERO = const(0)
Pads = tuple[tuple[Expr, Expr], ...]


def whole_numbers(name: str, what: str, value: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """Returns one integer for each of `rank` dims, from one number or a sequence.

    Raises an error for another number of items, for one that is no integer, and for one below `least`.
    """
    items = tuple(value) if isinstance(value, tuple | list) else (value,) * rank
    if len(items) != rank:
        raise ShapeError(
            f"{name}: {what} {list(items)} for {counted(rank, 'spatial dim')}", help="give one number for all, or one for each"
        )
    numbers = []
    for item in items:
        if isinstance(item, Const) and isinstance(item.value, int):
            item = item.value
        if not isinstance(item, int | np.integer) or isinstance(item, bool):
            raise Error(f"{name}: {what} is a whole number, not {item!r}")
        if item < least:
            raise ShapeError(f"{name}: {what} {item} is less than {least}")
        numbers.append(int(item))
    return tuple(numbers)


def pad_pairs(name: str, padding: Any, rank: int) -> Pads:
    """Returns (before, after) for each dim, from one amount, one for each dim, or a pair for each; amounts may be dims.

    Raises a ShapeError for another number of items.
    """
    items = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * rank
    if len(items) != rank:
        raise ShapeError(
            f"{name}: padding for {counted(len(items), 'dim')}, there are {rank}", help="give an amount or a pair for each dim"
        )
    pairs = [tuple(p) if isinstance(p, tuple | list) else (p, p) for p in items]
    if any(len(p) != 2 for p in pairs):
        raise ShapeError(f"{name}: padding is an amount or a pair (before, after) for each dim")
    return tuple((as_dim(name, a), as_dim(name, b)) for a, b in pairs)


@dataclass(frozen=True, slots=True)
class WindowAttrs:
    """Attributes of operators over windows whose kernel has a constant size: a number for each spatial dim."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: Pads
    dilation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The geometry of the windows of a convolution or pool: for each spatial dim kernel, stride, padding (before, after) and dilation.

    With `ceil_mode` a last window that begins inside and ends outside counts, too.
    """

    kernel: tuple[Expr, ...]
    stride: tuple[int, ...]
    padding: Pads
    dilation: tuple[int, ...]
    ceil_mode: bool = False  # a last window that begins inside and ends outside counts

    def span(self, k: int) -> Expr:
        """Returns the number of elements from the first to the last tap of a window along spatial dim k, both included."""
        return (self.kernel[k] - 1) * self.dilation[k] + 1

    def sizes(self, d: Deduction, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """Returns the number of windows along each dim; adds the conditions that there is at least one."""
        return tuple(self._size(d, k, n) for k, n in enumerate(extents))

    def _size(self, d: Deduction, k: int, n: Expr) -> Expr:
        (lo, hi), s = self.padding[k], self.stride[k]
        for p in (lo, hi):
            d.require(Le(ZERO, p), f"{d.what}: padding {{0}} of spatial dim {k} is negative", (p,))
        span, padded = simplify(self.span(k), d.facts), simplify(n + lo + hi, d.facts)
        message = f"{d.what}: a window over {{0}} elements does not fit into the {{1}} of spatial dim {k}, padding included"
        d.require(Le(span, padded), message, (span, padded), help="a smaller window or more padding")
        if not self.ceil_mode or s == 1:
            return simplify((padded - span) // s + 1, d.facts)
        begun = (n + lo + (s - 1)) // s  # windows that begin before the padding at the end
        return simplify(Min((padded - span + (s - 1)) // s + 1, begun), d.facts)

    def start(self, k: int, i: Expr) -> Expr:
        """Returns the position of the first tap of window i along spatial dim k; it may be in the padding."""
        return i * self.stride[k] - self.padding[k][0]

    def places(self, i: Indices, r: Indices) -> Indices:
        """Returns the position of tap r of window i, for each spatial dim."""
        return tuple(self.start(k, i[k]) + r[k] * self.dilation[k] for k in range(len(self.kernel)))

    def inside(self, places: Indices, extents: Sequence[Expr]) -> Expr | None:
        """Returns the condition that a tap is inside of the tensor, not in the padding; None if windows have no padding."""
        conditions: list[Expr] = []
        for k, (at, n) in enumerate(zip(places, extents, strict=True)):
            lo, hi = self.padding[k]
            if lo is not ZERO:
                conditions.append(Le(ZERO, at))
            if hi is not ZERO or (self.ceil_mode and self.stride[k] > 1):
                conditions.append(Lt(at, n))
        return all_of(conditions)

    def taps(self, k: int, i: Expr, low: Expr, high: Expr) -> Expr:
        """Returns the number of taps of window i along spatial dim k that are in low..high-1."""
        start, step, count = self.start(k, i), self.dilation[k], self.kernel[k]

        def before(end: Expr) -> Expr:
            return Min(Max((end - start + (step - 1)) // step, ZERO), count)

        return before(high) - before(low)


def all_of(conditions: Sequence[Expr]) -> Expr | None:
    """Returns the conjunction of the conditions; None if there are none."""
    condition: Expr | None = None
    for c in conditions:
        condition = c if condition is None else And(condition, c)
    return condition


def group_start(group: Expr, size: Expr, groups: Expr, per_group: Expr) -> Expr:
    """Returns the first channel of a group, for groups of `size` channels that each give `per_group` channels of the result.

    For symbolic dims it is bounded by the last group, so that range analysis sees it in range.
    """
    known = all(isinstance(e, Const) for e in (size, groups, per_group))
    return group * size if known else Min(group * size, (groups - 1) * size)


def read_inside(read: Read, k: int, indices: Indices, inside: Expr | None, outside: Expr) -> Expr:
    """Returns an element of argument k if the condition `inside` is true (None: always), else `outside`, without a read."""
    element = read(k, *indices)
    return element if inside is None else Select(inside, element, outside)


def window_of(name: str, rank: int, kernel: tuple[Expr, ...], stride: Any, padding: Any, dilation: Any, ceil_mode: bool = False) -> Window:
    """Returns a window from the user's arguments; a stride of None means the kernel size. Raises if their numbers do not fit `rank`."""
    strides = kernel if stride is None else stride
    return Window(
        kernel,
        whole_numbers(name, "stride", strides, rank),
        pad_pairs(name, padding, rank),
        whole_numbers(name, "dilation", dilation, rank),
        bool(ceil_mode),
    )


def same_padding(window: Window, extents: Sequence[Expr], more_before: bool) -> Pads:
    """Returns the padding that gives ceil(n / stride) windows; an odd element goes to the end, or to the start with `more_before`."""
    pairs = []
    for k, n in enumerate(extents):
        s = window.stride[k]
        total = simplify(Max(((n + (s - 1)) // s - 1) * s + window.span(k) - n, ZERO))
        half = simplify(total // 2)
        rest = simplify(total - half)
        pairs.append((rest, half) if more_before else (half, rest))
    return tuple(pairs)


def padded_windows(x: Array, kernel: Sequence[int], attrs: Any, sizes: Sequence[int], fill: Any) -> Array:
    """Returns the windows over the spatial dims of `x`, padded with `fill`, in numpy: (batch, channels, *sizes, *kernel).

    The result is a view of the padded array.
    """
    pads, cuts = [(0, 0), (0, 0)], [slice(None), slice(None)]
    spans = [(k - 1) * dilation + 1 for k, dilation in zip(kernel, attrs.dilation, strict=True)]
    for n, span, s, (lo, _), size in zip(x.shape[2:], spans, attrs.stride, attrs.padding, sizes, strict=True):
        needed = lo + n if size == 0 else (size - 1) * s + span
        pads.append((lo, max(needed - lo - n, 0)))
        cuts.append(slice(0, max(needed, span)))
    whole = np.pad(x, pads, constant_values=fill)[tuple(cuts)]
    axes = tuple(range(2, x.ndim))
    views = np.lib.stride_tricks.sliding_window_view(whole, tuple(spans), axis=axes)
    steps = [slice(0, size * s, s) for s, size in zip(attrs.stride, sizes, strict=True)]
    taps = [slice(None, None, dilation) for dilation in attrs.dilation]
    return views[(slice(None), slice(None), *steps, *taps)]


def window_sizes(x: Array, kernel: Sequence[int], attrs: Any) -> list[int]:
    """Returns the number of windows along each spatial dim, in numpy; with `ceil_mode` a last window may end outside."""
    sizes = []
    for n, k, s, step, (lo, hi) in zip(x.shape[2:], kernel, attrs.stride, attrs.dilation, attrs.padding, strict=True):
        room = n + lo + hi - (k - 1) * step - 1
        size = room // s + 1
        if getattr(attrs, "ceil_mode", False) and room % s and size * s < n + lo:
            size += 1
        sizes.append(size)
    return sizes
