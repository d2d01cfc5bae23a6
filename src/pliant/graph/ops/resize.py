"""Resizing by interpolation: nearest, linear (in any number of dims), cubic; to sizes or by scales, with the coordinate modes of ONNX.

    ops.resize(x, scales=[1, 1, 2, 2])                                            # nearest
    ops.resize(x, sizes=[b, c, 2 * h, 64], mode="linear", coordinates="align_corners")
    ops.resize(x, sizes=[b, c, m, w], ratios=[(1, 1), (1, 1), (k, h), (1, 1)])   # m rows, each element k / h times as large

The source coordinate of an element is computed as an exact fraction A / B of integers: its integer part A // B, and its fractional part as
(A % B) / B, are free of rounding errors for all sizes. A scale is the decimal number that it prints as: 10 by 1.3 gives 13.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from ...dtype import DType, i64
from ...support.errors import ShapeError, counted
from ...support.record import dataclass
from ...sym.expr import Add, And, Cast, Const, Div, Expr, Le, Lt, Max, Min, Mul, Select, Sub, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .reduce import accumulator
from .shape import as_dim
from .window import ZERO

T = TypeVar("T")
MODES = {"nearest": 1, "linear": 2, "cubic": 4}  # the number of taps along each dim
COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class ResizeAttrs:
    """Sizes or scales of all dims, and the interpolation: mode, coordinates, rounding of "nearest", parameters of "cubic" and "linear".

    `cubic_coeff_a` is for "cubic", `exclude_outside` for both. `ratios` are the scale factors of the dims as fractions, for sizes that were
    rounded and so do not determine them.
    """

    sizes: tuple[Expr, ...] | None
    scales: tuple[float, ...] | None
    mode: str
    coordinates: str
    nearest: str
    cubic_coeff_a: float
    exclude_outside: bool
    ratios: tuple[tuple[Expr, Expr], ...] | None = None


def fraction_of(scale: float) -> Fraction:
    """Returns a scale as the exact fraction of the decimal number that it prints as."""
    return Fraction(repr(float(scale)))


def _deduce(d: Deduction, attrs: ResizeAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    for what, word, known in (
        ("mode", attrs.mode, tuple(MODES)),
        ("coordinates", attrs.coordinates, COORDINATES),
        ("nearest", attrs.nearest, NEAREST),
    ):
        if word not in known:
            raise d.error(f'resize: there is no {what} "{word}"', help=f"{what} is one of {', '.join(known)}")
    if attrs.mode != "nearest":
        d.floats()
    given_for = len(attrs.sizes if attrs.sizes is not None else attrs.scales or ())
    if given_for != len(x.shape):
        help_ = "give one for each dim, batch and channels included"
        raise d.error(f"resize: sizes for {counted(given_for, 'dim')}, and `{d.args[0].name}` has {len(x.shape)}", arg=0, help=help_)
    if attrs.ratios is not None and (attrs.sizes is None or len(attrs.ratios) != len(x.shape)):
        raise d.error(f"resize: ratios for {counted(len(attrs.ratios), 'dim')}", arg=0, help="give sizes, and a ratio for each of them")
    for up, down in attrs.ratios or ():
        d.require(And(Lt(ZERO, up), Lt(ZERO, down)), "resize: the ratio {0} / {1} is not positive", (up, down))
    sizes = []
    for k, n in enumerate(x.shape):
        size = attrs.sizes[k] if attrs.sizes is not None else _scaled(d, n, (attrs.scales or ())[k])
        d.require(Le(ZERO, size), f"resize: size {{0}} of dim {k} is negative", (size,))
        if not _kept(attrs, k, n, size):
            d.require(Lt(ZERO, n), f"resize: dim {k} has no elements to make more of")
        sizes.append(size)
    return (Tensor(x.dtype, tuple(sizes)),)


def _scaled(d: Deduction, n: Expr, scale: float) -> Expr:
    if not (scale > 0 and math.isfinite(scale)):
        raise d.error(f"resize: scale {scale} is not positive")
    exact = fraction_of(scale)
    return simplify(n * exact.numerator // exact.denominator, d.facts)


def _kept(attrs: ResizeAttrs, k: int, n: Expr, size: Expr) -> bool:
    """True if dim k is not resampled; a scale other than 1 moves elements even if the size is the same."""
    if attrs.ratios is not None:
        return n is size and attrs.ratios[k][0] is attrs.ratios[k][1]
    return n is size if attrs.scales is None else attrs.scales[k] == 1.0


def _ratio(attrs: ResizeAttrs, k: int, n: Expr, size: Expr) -> tuple[Expr, Expr]:
    """Returns the scale factor of dim k as a fraction (up, down)."""
    if attrs.ratios is not None:
        return attrs.ratios[k]
    if attrs.scales is not None:
        exact = fraction_of(attrs.scales[k])
        return const(exact.numerator), const(exact.denominator)
    return size, n


def _coordinate(kind: str, i: Expr, n: Expr, size: Expr, up: Expr, down: Expr) -> tuple[Expr, Expr]:
    """Returns the source coordinate of element i of the result as a fraction (A, B), by the coordinate mode `kind`."""
    if kind == "align_corners":
        return i * (n - 1), Max(size - 1, const(1))
    if kind == "asymmetric":
        return i * down, up
    center = (i * 2 + 1) * down
    if kind == "tf_half_pixel_for_nn":
        return center, up * 2
    if kind == "half_pixel_symmetric":
        center = center + n * up - size * down
    if kind == "pytorch_half_pixel":
        return Select(Lt(const(1), size), center - up, ZERO), up * 2
    return center - up, up * 2


def _rounded(kind: str, a: Expr, b: Expr) -> Expr:
    """Returns a / b rounded to an integer as `kind` says, as an expression; any kind but the other three rounds ties down."""
    if kind == "floor":
        return a // b
    if kind == "ceil":
        return ZERO - (ZERO - a) // b
    if kind == "round_prefer_ceil":
        return (a * 2 + b) // (b * 2)
    return ZERO - (b - a * 2) // (b * 2)


def _clamped(at: Expr, n: Expr) -> Expr:
    return Min(Max(at, ZERO), n - 1)


def _weights(attrs: ResizeAttrs, t: Expr) -> list[Expr]:
    """Returns the weights of two (linear) or four (cubic) taps.

    The point is at distance t (0 <= t < 1) after the first of the two, or the second of the four.
    """
    one, two = Const(1.0, t.dtype), Const(2.0, t.dtype)
    if attrs.mode == "linear":
        return [Sub(one, t), t]
    a = attrs.cubic_coeff_a

    def number(value: float) -> Expr:
        return Const(value, t.dtype)

    def near(x: Expr) -> Expr:  # (a + 2) x^3 - (a + 3) x^2 + 1
        return Add(Mul(Mul(Sub(Mul(number(a + 2), x), number(a + 3)), x), x), one)

    def far(x: Expr) -> Expr:  # a x^3 - 5a x^2 + 8a x - 4a
        return Sub(Mul(Add(Mul(Sub(Mul(number(a), x), number(5 * a)), x), number(8 * a)), x), number(4 * a))

    return [far(Add(t, one)), near(t), near(Sub(one, t)), far(Sub(two, t))]


@dataclass(frozen=True, slots=True)
class _Taps:
    """The elements that are interpolated along one dim: their indices and their weights."""

    places: tuple[Expr, ...]
    weights: tuple[Expr, ...]


def _taps(attrs: ResizeAttrs, whole: Expr, part: Expr, n: Expr, wide: DType) -> _Taps:
    """Returns the elements and weights to interpolate at the source coordinate `whole + part`.

    Indices are clamped to the tensor. With `exclude_outside`, taps outside of it have weight 0, and the other weights add up to 1.
    """
    first = whole - (1 if attrs.mode == "cubic" else 0)
    weights = _weights(attrs, part)
    places = [first + j for j in range(len(weights))]
    if attrs.exclude_outside:
        zero = Const(0.0, wide)
        weights = [Select(And(Le(ZERO, p), Lt(p, n)), w, zero) for p, w in zip(places, weights, strict=True)]
        total = _sum(weights)
        weights = [Div(w, total) for w in weights]
    return _Taps(tuple(_clamped(p, n) for p in places), tuple(weights))


def _sum(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for t in terms[1:]:
        total = Add(total, t)
    return total


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: ResizeAttrs) -> tuple[Stage, ...]:
    x, out = args[0], outs[0]
    wide = x.dtype if attrs.mode == "nearest" else accumulator(x.dtype)
    changed = [k for k, (n, size) in enumerate(zip(x.shape, out.shape, strict=True)) if not _kept(attrs, k, n, size)]

    def place(k: int, i: Expr) -> tuple[Expr, Expr]:
        return _coordinate(attrs.coordinates, i, x.shape[k], out.shape[k], *_ratio(attrs, k, x.shape[k], out.shape[k]))

    def whole(k: int, i: Expr) -> Expr:
        a, b = place(k, i)
        return a // b

    def part(k: int, i: Expr) -> Expr:
        a, b = place(k, i)
        return Div(Cast(wide, a % b), Cast(wide, b))

    def taps_of(k: int, i: Expr, read: Read) -> _Taps:
        if attrs.mode == "nearest":
            return _Taps((_clamped(_rounded(attrs.nearest, *place(k, i)), x.shape[k]),), ())
        return _taps(attrs, read(f"whole{k}", i), read(f"part{k}", i), x.shape[k], wide)

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        taps = {k: taps_of(k, i[k], read) for k in changed}

        def gathered(at: Indices, left: list[int]) -> Expr:
            """Returns the weighted sum over the dims `left`, the last of them innermost, as an expression."""
            if not left:
                element = read(0, *at)
                return element if element.dtype is wide else Cast(wide, element)
            k, rest = left[0], left[1:]
            each = [gathered((*at[:k], p, *at[k + 1 :]), rest) for p in taps[k].places]
            return _sum([Mul(e, w) for e, w in zip(each, taps[k].weights, strict=True)]) if taps[k].weights else each[0]

        result = gathered(i, changed)
        return result if result.dtype is x.dtype else Cast(x.dtype, result)

    def tables(k: int) -> tuple[Stage, Stage]:
        """Returns two stages with the source coordinates along dim k; they are equal for all other dims, so division is done once per k."""
        size = (out.shape[k],)
        return (
            Stage(f"whole{k}", i64, size, lambda i, r, read: whole(k, i[0])),
            Stage(f"part{k}", wide, size, lambda i, r, read: part(k, i[0])),
        )

    lookups = [s for k in changed for s in tables(k)] if attrs.mode != "nearest" else []
    return (*lookups, Stage("resize", x.dtype, out.shape, value))


# The reference builds a matrix for each dim, from the formulas as the ONNX standard writes them.


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    result = args[0] if attrs.mode == "nearest" else args[0].astype(np.float64)
    for k, n in enumerate(args[0].shape):
        scale = fraction_of(attrs.scales[k]) if attrs.scales is not None else None
        size = attrs.sizes[k] if scale is None else math.floor(n * scale)
        if attrs.ratios is not None:
            scale = Fraction(*map(int, attrs.ratios[k]))
        if size == n and scale in (None, 1):
            continue
        places = [_reference_place(attrs, i, n, size, scale or Fraction(size, n)) for i in range(size)]
        if attrs.mode == "nearest":
            rows = [min(max(_reference_round(attrs.nearest, p), 0), n - 1) for p in places]
            result = np.take(result, np.array(rows, np.int64), axis=k)
        else:
            matrix = np.array([_reference_row(attrs, p, n) for p in places]).reshape(size, n)
            result = np.moveaxis(np.tensordot(matrix, result, ([1], [k])), 0, k)
    return [result.astype(args[0].dtype)]


def _reference_place(attrs: Any, i: int, n: int, size: int, scale: Fraction) -> Fraction:
    half = Fraction(1, 2)
    adjusted = Fraction(n, 2) * (1 - size / (n * scale))
    places: dict[str, Callable[[], Fraction]] = {
        "half_pixel": lambda: (i + half) / scale - half,
        "half_pixel_symmetric": lambda: adjusted + (i + half) / scale - half,
        "pytorch_half_pixel": lambda: (i + half) / scale - half if size > 1 else Fraction(0),
        "align_corners": lambda: Fraction(i * (n - 1), size - 1) if size > 1 else Fraction(0),
        "asymmetric": lambda: i / scale,
        "tf_half_pixel_for_nn": lambda: (i + half) / scale,
    }
    return places[attrs.coordinates]()


def _reference_round(kind: str, x: Fraction) -> int:
    if kind == "floor" or (kind == "round_prefer_floor" and x - math.floor(x) <= Fraction(1, 2)):
        return math.floor(x)
    return math.floor(x) if kind == "round_prefer_ceil" and x - math.floor(x) < Fraction(1, 2) else math.ceil(x)


def _reference_row(attrs: Any, x: Fraction, n: int) -> Array:
    """Returns the weights of all n elements along a dim for the source coordinate x, in numpy."""
    a, reach = attrs.cubic_coeff_a, MODES[attrs.mode] // 2
    row = np.zeros(n)
    for p in range(math.floor(x) - reach + 1, math.floor(x) + reach + 1):
        t = abs(float(x - p))
        if attrs.mode == "linear":
            w = 1 - t
        else:
            w = (a + 2) * t**3 - (a + 3) * t**2 + 1 if t <= 1 else a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
        if not attrs.exclude_outside or 0 <= p < n:
            row[min(max(p, 0), n - 1)] += w
    return row / np.sum(row) if attrs.exclude_outside else row


@operator(deduce=_deduce, reference=_reference, stages=_stages, attrs=ResizeAttrs)
def resize(
    op: OpCall,
    x: T,
    sizes: Any = None,
    scales: Any = None,
    mode: str = "nearest",
    coordinates: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    cubic_coeff_a: float = -0.75,
    exclude_outside: bool = False,
    ratios: Any = None,
) -> T:
    """`x` interpolated to `sizes`, or by `scales`: one for each dim, including batch and channels.

    `ratios` are pairs (up, down), used with `sizes`: the scale factor is up / down, whatever the sizes are. Raises a ShapeError unless
    exactly one of `sizes` and `scales` is given.
    """
    if (sizes is None) == (scales is None):
        raise ShapeError("resize takes either sizes or scales", help="for example ops.resize(x, scales=[1, 1, 2, 2])")
    value = op.operand(x)
    dims = None if sizes is None else tuple(simplify(as_dim(op.name, s)) for s in sizes)
    factors = None if scales is None else tuple(float(s.value if isinstance(s, Const) else s) for s in scales)
    pairs = None if ratios is None else tuple((simplify(as_dim(op.name, a)), simplify(as_dim(op.name, b))) for a, b in ratios)
    attrs = ResizeAttrs(dims, factors, mode, coordinates, nearest, float(cubic_coeff_a), bool(exclude_outside), pairs)
    return op.emit(value, attrs=attrs)
