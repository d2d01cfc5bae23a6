"""Convolutions of 3x3 windows by Winograd's algorithm: 16 products of transformed tiles for 2x2 results, where direct sums take 36.

    u = ops.winograd_weight(w)                       # w: (out, c, 3, 3) -> (4, 4, out, c), once for all images
    y = ops.winograd_conv(x, u, bias, padding=1)     # ops.conv(x, w, bias, padding=1), summed in another order

A tile of 2x2 results reads 4x4 elements d of the operand. With the matrices B and A below it is A (sum over channels of u * (B d B')) A':

    B = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]      A = [1 1 1 0; 0 1 -1 -1]
    u = G w G'      G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]

`tile=4` takes 36 products for 4x4 results, where direct sums take 144, from 6x6 elements and weights (6, 6, out, c). It rounds more.
`lower/winograd_convolutions.py` rewrites convolutions to these operators where they pay. (docs/design/0028-winograd.md)
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from ...dtype import f64
from ...support.errors import Error
from ...support.record import dataclass
from ...support.source import caller_span
from ...sym.expr import Add, Cast, Const, Eq, Expr, FloorMod, Le, Lt, Mul, MulAdd, Select, Sub, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .window import ZERO, Pads, Window, all_of, pad_pairs, read_inside

T = TypeVar("T")

TAPS = 3  # elements of a window along each dim


@dataclass(frozen=True, slots=True)
class Algorithm:
    """An algorithm F(tile x tile, 3x3): its matrices, and the products of B and of A with a vector as they are computed."""

    tile: int  # results of a tile along each dim
    B: Array
    G: Array
    A: Array
    operand: Callable[[Sequence[Expr]], tuple[Expr, ...]]
    result: Callable[[Sequence[Expr]], tuple[Expr, ...]]

    @property
    def places(self) -> int:
        """Elements that a tile reads along each dim, and products per channel that it takes."""
        return self.tile + TAPS - 1


def _operand_of_2(d: Sequence[Expr]) -> tuple[Expr, ...]:
    return Sub(d[0], d[2]), Add(d[1], d[2]), Sub(d[2], d[1]), Sub(d[1], d[3])


def _result_of_2(m: Sequence[Expr]) -> tuple[Expr, ...]:
    return Add(Add(m[0], m[1]), m[2]), Sub(Sub(m[1], m[2]), m[3])


# F(4x4) evaluates polynomials at 0, 5/8, -5/8, 3/2, -3/2 and infinity. All numbers of B and A are exact in f32. With the usual points
# 0, 1, -1, 2, -2 results are twice as far from the truth.
NEAR, FAR = 5 / 8, 3 / 2
NEAR2, FAR2 = NEAR * NEAR, FAR * FAR


def _times(factor: float, value: Expr, plus: Expr | None = None) -> Expr:
    """Returns `factor * value`, or `factor * value + plus`, fused where the machine can."""
    number = Const(factor, value.dtype)
    return Mul(value, number) if plus is None else MulAdd(value, number, plus)


def _operand_of_4(d: Sequence[Expr]) -> tuple[Expr, ...]:
    def at(point: float, other2: float) -> tuple[Expr, Expr]:
        """Returns the values at a point and at its negative; `other2` is the square of the other point."""
        even, odd = _times(-other2, d[2], d[4]), _times(-other2, d[1], d[3])
        return _times(point, odd, even), _times(-point, odd, even)

    def ends(a: Expr, b: Expr, c: Expr) -> Expr:
        return _times(NEAR2 * FAR2, a, _times(-NEAR2 - FAR2, b, c))

    return (ends(d[0], d[2], d[4]), *at(NEAR, FAR2), *at(FAR, NEAR2), ends(d[1], d[3], d[5]))


def _result_of_4(m: Sequence[Expr]) -> tuple[Expr, ...]:
    even, odd = (Add(m[1], m[2]), Add(m[3], m[4])), (Sub(m[1], m[2]), Sub(m[3], m[4]))

    def power(k: int, of: tuple[Expr, Expr]) -> Expr:
        return _times(FAR**k, of[1], _times(NEAR**k, of[0]))

    return Add(Add(m[0], even[0]), even[1]), power(1, odd), power(2, even), Add(power(3, odd), m[5])


def _matrices_of_4() -> tuple[Array, Array, Array]:
    """Returns B, G and A of F(4x4)."""
    n2, f2 = NEAR2, FAR2
    ends, between = [n2 * f2, 0, -n2 - f2, 0, 1, 0], [0, n2 * f2, 0, -n2 - f2, 0, 1]
    inner = [[0, -p * q2, -q2, p, 1, 0] for p, q2 in ((NEAR, f2), (-NEAR, f2), (FAR, n2), (-FAR, n2))]
    taps = [[1 / (2 * p * p * (p * p - q2)) * p**k for k in range(TAPS)] for p, q2 in ((NEAR, f2), (-NEAR, f2), (FAR, n2), (-FAR, n2))]
    points = (0, NEAR, -NEAR, FAR, -FAR)
    results = [[*(float(p**k) for p in points), float(k == TAPS)] for k in range(4)]
    return np.array([ends, *inner, between]), np.array([[1 / (n2 * f2), 0, 0], *taps, [0, 0, 1]]), np.array(results)


ALGORITHMS = {
    2: Algorithm(
        2,
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float64),
        np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float64),
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float64),
        _operand_of_2,
        _result_of_2,
    ),
    4: Algorithm(4, *_matrices_of_4(), _operand_of_4, _result_of_4),
}


@dataclass(frozen=True, slots=True)
class WinogradAttrs:
    """The attributes of a convolution by Winograd's algorithm: (before, after) padding of both spatial dims, and results of a tile."""

    padding: Pads
    tile: int = 2


@dataclass(frozen=True, slots=True)
class WeightAttrs:
    """The attribute of a transformed weight: for how many results of a tile along each dim."""

    tile: int = 2


def _deduce_weight(d: Deduction, attrs: WeightAttrs) -> tuple[Annotation, ...]:
    weight = d.rank(0, 4)
    if not weight.dtype.is_float:
        raise d.error(f"{d.what} of {weight.dtype}", arg=0, help="its halves are no integers; cast the weight first: ops.cast(w, f32)")
    for k, n in enumerate(weight.shape[2:]):
        d.equal(n, const(TAPS), f"spatial dim {k} of the weight `{d.args[0].name}` has {{0}} elements, not {{1}}", arg=0)
    places = const(ALGORITHMS[attrs.tile].places)
    return (Tensor(weight.dtype, (places, places, *weight.shape[:2])),)


def _picked(index: Expr, values: Sequence[Expr]) -> Expr:
    """Returns the value whose number is the index, as nested selects; the last value also for any larger index."""
    *others, result = values
    for k, value in reversed(list(enumerate(others))):
        result = Select(Eq(index, const(k)), value, result)
    return result


def _weight_stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: WeightAttrs) -> tuple[Stage, ...]:
    """Returns one stage, which transforms the weight, G w G' for each pair of channels.

    It computes in f64 and rounds once: it runs when a program is loaded, and its error is in every product.
    """
    dtype, matrix = outs[0].dtype, ALGORITHMS[attrs.tile].G

    def along(index: Expr, taps: Sequence[Expr]) -> Expr:
        return _picked(index, [_combined(row, taps) for row in matrix.tolist()])

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        taps = [[read(0, i[2], i[3], const(y), const(x)) for x in range(TAPS)] for y in range(TAPS)]
        wide = [[t if t.dtype is f64 else Cast(f64, t) for t in row] for row in taps]
        result = along(i[0], [along(i[1], row) for row in wide])
        return result if dtype is f64 else Cast(dtype, result)

    return (Stage("transformed", dtype, outs[0].shape, value),)


def _combined(factors: Sequence[float], taps: Sequence[Expr]) -> Expr:
    """Returns the sum of the taps times their factors, the two ends first; zeros are left out."""
    terms = [t if f == 1 else Mul(t, Const(f, f64)) for f, t in ((factors[k], taps[k]) for k in (0, 2, 1)) if f]
    return reduce(Add, terms)


def _weight_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    (weight,), matrix = args, ALGORITHMS[attrs.tile].G
    return [np.einsum("iy,ocyx,jx->ijoc", matrix, weight.astype(np.float64), matrix).astype(weight.dtype)]


@operator(deduce=_deduce_weight, reference=_weight_reference, stages=_weight_stages, attrs=WeightAttrs, arity=(1, 1))
def winograd_weight(op: OpCall, weight: T, tile: int = 2) -> T:
    """The weight (out, c, 3, 3) of a convolution, transformed to (tile + 2, tile + 2, out, c) for `winograd_conv`; `tile` is 2 or 4."""
    return op.emit(op.operand(weight), attrs=WeightAttrs(_tile(op, tile)))


def _tile(op: OpCall, tile: int) -> int:
    if tile not in ALGORITHMS:
        raise Error(f"{op.name}: tiles of {tile!r} results are not supported", where=caller_span(), help="tile is 2 or 4")
    return tile


def _deduce_conv(d: Deduction, attrs: WinogradAttrs) -> tuple[Annotation, ...]:
    d.same_dtype()
    x, weight = d.rank(0, 4), d.rank(1, 4)
    if not x.dtype.is_float:
        raise d.error(f"{d.what} of {x.dtype}", arg=0, help="ops.conv sums integers")
    places = const(ALGORITHMS[attrs.tile].places)
    for k, n in enumerate(weight.shape[:2]):
        d.equal(n, places, f"dim {k} of the transformed weight `{d.args[1].name}` has {{0}} elements, not {{1}}", arg=1)
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
    x, weight, out, algorithm = args[0], args[1], outs[0], ALGORITHMS[attrs.tile]
    tile = algorithm.tile
    down, across = (simplify((n + (tile - 1)) // tile) for n in out.shape[2:])  # tiles
    places = (*(const(algorithm.places),) * 2, down, across)
    whole = tuple(simplify(n * tile) for n in (down, across))
    rows = (*x.shape[:2], down, const(algorithm.places), simplify(whole[1] + (TAPS - 1)))
    padded = Stage("padded", x.dtype, rows, _padded(x, attrs))
    tiles = Stage("tiles", x.dtype, (*x.shape[:2], *places), _tiles(algorithm))
    zero = Const(0, x.dtype)
    total = Stage("sum", x.dtype, (x.shape[0], weight.shape[2], *places), _products, (x.shape[1],), "add", zero)
    images = Stage("images", x.dtype, (*out.shape[:2], *whole), _images(algorithm))

    def last(i: Indices, r: Indices, read: Read) -> Expr:
        result = read("images", *i)
        return Add(result, read(2, i[1])) if len(args) == 3 else result

    return (padded, tiles, total, images, Stage("out", out.dtype, out.shape, last))


def _padded(x: Tensor, attrs: WinogradAttrs) -> Callable[[Indices, Indices, Read], Expr]:
    """Returns a stage's function: the rows that each row of tiles reads, with zeros around the operand, to the end of the last tile.

    Neighbors share two rows. Here each has its own, so one row of tiles after the other can be computed without the others.
    """
    starts = tuple(lo for lo, _ in attrs.padding)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        at = tuple(simplify(v - lo) for v, lo in zip((i[2] * attrs.tile + i[3], i[4]), starts, strict=True))
        inside = [c for p, lo, n in zip(at, starts, x.shape[2:], strict=True) for c in ([] if lo is ZERO else [Le(ZERO, p)]) + [Lt(p, n)]]
        return read_inside(read, 0, (*i[:2], *at), all_of(inside), Const(0, x.dtype))

    return value


def _tiles(algorithm: Algorithm) -> Callable[[Indices, Indices, Read], Expr]:
    """Returns a stage's function: element (i[2], i[3]) of B d B' of the tile d at (i[4], i[5])."""
    tile, places = algorithm.tile, range(algorithm.places)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        rows = [[read("padded", *i[:2], i[4], const(y), i[5] * tile + x) for x in places] for y in places]
        return _picked(i[2], algorithm.operand([_picked(i[3], algorithm.operand(row)) for row in rows]))

    return value


def _products(i: Indices, r: Indices, read: Read) -> Expr:
    return Mul(read("tiles", i[0], r[0], *i[2:]), read(1, i[2], i[3], i[1], r[0]))


def _images(algorithm: Algorithm) -> Callable[[Indices, Indices, Read], Expr]:
    """Returns a stage's function: result (i[2], i[3]), an element of A m A', where m are the sums of its tile."""
    tile, places = algorithm.tile, range(algorithm.places)

    def along(index: Expr, m: Sequence[Expr]) -> Expr:
        return _picked(FloorMod(index, const(tile)), algorithm.result(m))

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        at = i[2] // tile, i[3] // tile
        return along(i[2], [along(i[3], [read("sum", *i[:2], const(y), const(x), *at) for x in places]) for y in places])

    return value


def _conv_reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x, weight, a = args[0].astype(np.float64), args[1].astype(np.float64), ALGORITHMS[attrs.tile]
    sizes = tuple(n + lo + hi - (TAPS - 1) for n, (lo, hi) in zip(x.shape[2:], attrs.padding, strict=True))
    ends = [-(-n // a.tile) * a.tile + (TAPS - 1) for n in sizes]
    room = [(lo, max(end - n - lo, 0)) for n, (lo, _), end in zip(x.shape[2:], attrs.padding, ends, strict=True)]
    padded = np.pad(x, [(0, 0), (0, 0), *room])[:, :, : ends[0], : ends[1]]
    views = np.lib.stride_tricks.sliding_window_view(padded, (a.places, a.places), axis=(2, 3))[:, :, :: a.tile, :: a.tile]
    tiles = np.einsum("iy,nctsyx,jx->ncijts", a.B, views, a.B)
    sums = np.einsum("ncijts,ijoc->noijts", tiles, weight)
    images = np.einsum("ai,noijts,bj->notasb", a.A, sums, a.A)
    result = images.reshape(*images.shape[:2], images.shape[2] * a.tile, images.shape[4] * a.tile)[:, :, : sizes[0], : sizes[1]]
    if len(args) == 3:
        result = result + args[2].astype(np.float64).reshape(-1, 1, 1)
    return [result.astype(args[0].dtype)]


@operator(deduce=_deduce_conv, reference=_conv_reference, stages=_conv_stages, attrs=WinogradAttrs, arity=(2, 3))
def winograd_conv(op: OpCall, x: T, weight: T, bias: T | None = None, padding: Any = 0, tile: int = 2) -> T:
    """The convolution of `x` (n, c, h, w) with 3x3 windows, stride 1, from a `weight` that `winograd_weight` transformed for that `tile`.

    `padding` is as in `conv`. Results differ from those of `conv` in the last bits, because products are summed in another order. A `bias`
    (out,) is added.
    """
    value, kernel = op.operand(x), op.operand(weight)
    args = (value, kernel) if bias is None else (value, kernel, op.operand(bias))
    return op.emit(*args, attrs=WinogradAttrs(pad_pairs(op.name, padding, 2), _tile(op, tile)))
