"""Convolutions of 3x3 windows by Winograd's F(2x2, 3x3): 16 products of transformed tiles for four results, where direct sums take 36.

    u = ops.winograd_weight(w)                       # w: (out, c, 3, 3) -> (4, 4, out, c), once for all images
    y = ops.winograd_conv(x, u, bias, padding=1)     # ops.conv(x, w, bias, padding=1), summed in another order

A tile of 2x2 results reads 4x4 elements d of the operand. With the matrices B and A below it is A (sum over channels of u * (B d B')) A':

    B = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]      A = [1 1 1 0; 0 1 -1 -1]
    u = G w G'      G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]

`lower/winograd_convolutions.py` rewrites convolutions to these operators where they pay. (docs/design/0028-winograd.md)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import f64
from ...support.record import dataclass
from ...sym.expr import Add, Cast, Const, Eq, Expr, FloorMod, Le, Lt, Mul, Select, Sub, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .window import ZERO, Pads, Window, all_of, pad_pairs, read_inside

T = TypeVar("T")

TAPS = 3  # elements of a window along each dim
TILE = 2  # results of a tile along each dim
PLACES = TILE + TAPS - 1  # elements that a tile reads along each dim, and products per channel that it takes
B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64)
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64)
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64)


@dataclass(frozen=True, slots=True)
class WinogradAttrs:
    """The attributes of a convolution by Winograd's algorithm: (before, after) padding of both spatial dims."""

    padding: Pads


def _deduce_weight(d: Deduction, attrs: None) -> tuple[Annotation, ...]:
    weight = d.rank(0, 4)
    if not weight.dtype.is_float:
        raise d.error(f"{d.what} of {weight.dtype}", arg=0, help="its halves are no integers; cast the weight first: ops.cast(w, f32)")
    for k, n in enumerate(weight.shape[2:]):
        d.equal(n, const(TAPS), f"spatial dim {k} of the weight `{d.args[0].name}` has {{0}} elements, not {{1}}", arg=0)
    return (Tensor(weight.dtype, (const(PLACES), const(PLACES), *weight.shape[:2])),)


def _picked(index: Expr, values: Sequence[Expr]) -> Expr:
    """Returns the value whose number is the index, as nested selects; the last value also for any larger index."""
    *others, result = values
    for k, value in reversed(list(enumerate(others))):
        result = Select(Eq(index, const(k)), value, result)
    return result


def _weight_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: None) -> tuple[Stage, ...]:
    """Returns one stage, which transforms the weight, G w G' for each pair of channels.

    It computes in f64 and rounds once: it runs when a program is loaded, and its error is in every product.
    """
    dtype = outs[0].dtype

    def along(index: Expr, a: Expr, b: Expr, c: Expr) -> Expr:
        half = Const(0.5, f64)
        ends = Add(a, c)
        return _picked(index, (a, Mul(Add(ends, b), half), Mul(Sub(ends, b), half), c))

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        taps = [[read(0, i[2], i[3], const(y), const(x)) for x in range(TAPS)] for y in range(TAPS)]
        wide = [[t if t.dtype is f64 else Cast(f64, t) for t in row] for row in taps]
        rows = [along(i[1], *row) for row in wide]
        result = along(i[0], *rows)
        return result if dtype is f64 else Cast(dtype, result)

    return (Stage("transformed", dtype, outs[0].shape, value),)


def _weight_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    (weight,) = args
    return [np.einsum("iy,ocyx,jx->ijoc", G, weight.astype(np.float64), G).astype(weight.dtype)]


@operator(deduce=_deduce_weight, reference=_weight_reference, stages=_weight_stages, arity=(1, 1))
def winograd_weight(op: OpCall, weight: T) -> T:
    """The weight (out, c, 3, 3) of a convolution, transformed to (4, 4, out, c) for `winograd_conv`."""
    return op.emit(op.operand(weight))


def _deduce_conv(d: Deduction, attrs: WinogradAttrs) -> tuple[Annotation, ...]:
    d.same_dtype()
    x, weight = d.rank(0, 4), d.rank(1, 4)
    if not x.dtype.is_float:
        raise d.error(f"{d.what} of {x.dtype}", arg=0, help="ops.conv sums integers")
    for k, n in enumerate(weight.shape[:2]):
        d.equal(n, const(PLACES), f"dim {k} of the transformed weight `{d.args[1].name}` has {{0}} elements, not {{1}}", arg=1)
    message = f"`{d.args[0].name}` has {{0}} channels, the transformed weight `{d.args[1].name}` is for {{1}}"
    d.equal(x.shape[1], weight.shape[3], message, arg=1)
    if len(d.args) == 3:
        bias = d.rank(2, 1).shape[0]
        d.equal(bias, weight.shape[2], f"the bias `{d.args[2].name}` has {{0}} elements for {{1}} channels", arg=2)
    return (Tensor(x.dtype, (x.shape[0], weight.shape[2], *_window(attrs).sizes(d, x.shape[2:]))),)


def _window(attrs: WinogradAttrs) -> Window:
    return Window((const(TAPS),) * 2, (1, 1), attrs.padding, (1, 1))


def _conv_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: WinogradAttrs) -> tuple[Stage, ...]:
    """Returns the stages: the padded operand, its tiles transformed, the products, the results of whole tiles, those that are wanted."""
    x, weight, out = args[0], args[1], outs[0]
    down, across = (simplify((n + (TILE - 1)) // TILE) for n in out.shape[2:])  # tiles
    places = (*(const(PLACES),) * 2, down, across)
    whole = tuple(simplify(n * TILE) for n in (down, across))
    rows = (*x.shape[:2], down, const(PLACES), simplify(whole[1] + (TAPS - 1)))
    padded = Stage("padded", x.dtype, rows, _padded(x, attrs))
    tiles = Stage("tiles", x.dtype, (*x.shape[:2], *places), _tiles)
    zero = Const(0, x.dtype)
    total = Stage("sum", x.dtype, (x.shape[0], weight.shape[2], *places), _products, (x.shape[1],), "add", zero)
    images = Stage("images", x.dtype, (*out.shape[:2], *whole), _images)

    def last(i: Indices, r: Indices, read: Read) -> Expr:
        result = read("images", *i)
        return Add(result, read(2, i[1])) if len(args) == 3 else result

    return (padded, tiles, total, images, Stage("out", out.dtype, out.shape, last))


def _padded(x: Tensor, attrs: WinogradAttrs) -> Callable[[Indices, Indices, Read], Expr]:
    """Returns a stage's function: the rows that each row of tiles reads, with zeros around the operand, to the end of the last tile.

    Neighbors share two of four rows. Here each has its own, so one row of tiles after the other can be computed without the others.
    """
    starts = tuple(lo for lo, _ in attrs.padding)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        at = tuple(simplify(v - lo) for v, lo in zip((i[2] * TILE + i[3], i[4]), starts, strict=True))
        inside = [c for p, lo, n in zip(at, starts, x.shape[2:], strict=True) for c in ([] if lo is ZERO else [Le(ZERO, p)]) + [Lt(p, n)]]
        return read_inside(read, 0, (*i[:2], *at), all_of(inside), Const(0, x.dtype))

    return value


def _tiles(i: Indices, r: Indices, read: Read) -> Expr:
    """Returns element (i[2], i[3]) of B d B' of the tile d at (i[4], i[5])."""

    def along(index: Expr, d: Sequence[Expr]) -> Expr:
        return _picked(index, (Sub(d[0], d[2]), Add(d[1], d[2]), Sub(d[2], d[1]), Sub(d[1], d[3])))

    rows = [[read("padded", *i[:2], i[4], const(y), i[5] * TILE + x) for x in range(PLACES)] for y in range(PLACES)]
    return along(i[2], [along(i[3], row) for row in rows])


def _products(i: Indices, r: Indices, read: Read) -> Expr:
    return Mul(read("tiles", i[0], r[0], *i[2:]), read(1, i[2], i[3], i[1], r[0]))


def _images(i: Indices, r: Indices, read: Read) -> Expr:
    """Returns result (i[2], i[3]): element (i[2] % 2, i[3] % 2) of A m A', where m are the sums of its tile."""

    def along(index: Expr, m: Sequence[Expr]) -> Expr:
        return _picked(FloorMod(index, const(TILE)), (Add(Add(m[0], m[1]), m[2]), Sub(Sub(m[1], m[2]), m[3])))

    tile = i[2] // TILE, i[3] // TILE
    rows = [[read("sum", *i[:2], const(y), const(x), *tile) for x in range(PLACES)] for y in range(PLACES)]
    return along(i[2], [along(i[3], row) for row in rows])


def _conv_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x, weight = args[0].astype(np.float64), args[1].astype(np.float64)
    sizes = tuple(n + lo + hi - (TAPS - 1) for n, (lo, hi) in zip(x.shape[2:], attrs.padding, strict=True))
    ends = [-(-n // TILE) * TILE + (TAPS - 1) for n in sizes]
    room = [(lo, max(end - n - lo, 0)) for n, (lo, _), end in zip(x.shape[2:], attrs.padding, ends, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *room])[:, :, : ends[0], : ends[1]]
    views = np.lib.stride_tricks.sliding_window_view(padded, (PLACES, PLACES), axis=(2, 3))[:, :, ::TILE, ::TILE]
    tiles = np.einsum("iy,nctsyx,jx->ncijts", B, views, B)
    sums = np.einsum("ncijts,ijoc->noijts", tiles, weight)
    images = np.einsum("ai,noijts,bj->notasb", A, sums, A)
    result = images.reshape(*images.shape[:2], images.shape[2] * TILE, images.shape[4] * TILE)[:, :, : sizes[0], : sizes[1]]
    if len(args) == 3:
        result = result + args[2].astype(np.float64).reshape(-1, 1, 1)
    return [result.astype(args[0].dtype)]


@operator(deduce=_deduce_conv, reference=_conv_reference, stages=_conv_stages, attrs=WinogradAttrs, arity=(2, 3))
def winograd_conv(op: OpCall, x: T, weight: T, bias: T | None = None, padding: Any = 0) -> T:
    """The convolution of `x` (n, c, h, w) with 3x3 windows, stride 1, from the `weight` (4, 4, out, c) that `winograd_weight` transformed.

    `padding` is as in `conv`. Results differ from those of `conv` in the last bits, because products are summed in another order. A `bias`
    (out,) is added.
    """
    value, kernel = op.operand(x), op.operand(weight)
    args = (value, kernel) if bias is None else (value, kernel, op.operand(bias))
    return op.emit(*args, attrs=WinogradAttrs(pad_pairs(op.name, padding, 2)))
