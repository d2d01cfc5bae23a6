"""Padding at both ends of each axis: with a constant, mirrored, with the edge, or cyclically. Amounts may be dims.

    ops.pad(x, [(0, 0), (1, 2)])                       # two axes; zeros before and after the second
    ops.pad(x, [(0, 0), (n, 0)], mode="reflect")

With a constant, amounts may be negative: elements are then removed.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...support.errors import Error, counted
from ...support.record import dataclass
from ...sym.expr import Const, Expr, Le, Lt, Max, Min
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator, tensor_of
from ..stage import Indices, Read, Stage
from .shape import number
from .window import ZERO, Pads, all_of, pad_pairs, read_inside

T = TypeVar("T")
MODES = ("constant", "reflect", "edge", "circular")


@dataclass(frozen=True, slots=True)
class PadAttrs:
    """The attributes of `pad`: (before, after) for each axis, the mode, and the literal of mode "constant"."""

    pads: Pads
    mode: str
    value: Expr


def _deduce(d: Deduction, attrs: PadAttrs) -> tuple[Annotation, ...]:
    x = d.tensor(0)
    if attrs.mode not in MODES:
        raise d.error(f'pad has no mode "{attrs.mode}"', help=f"modes are {', '.join(MODES)}")
    if len(attrs.pads) != len(x.shape):
        raise d.error(f"pad: amounts for {counted(len(attrs.pads), 'dim')}, and `{d.args[0].name}` has {len(x.shape)}", arg=0)
    return (Tensor(x.dtype, tuple(_extent(d, k, n, *p, attrs.mode) for k, (n, p) in enumerate(zip(x.shape, attrs.pads, strict=True)))),)


def _extent(d: Deduction, axis: int, n: Expr, lo: Expr, hi: Expr, mode: str) -> Expr:
    size = simplify(n + lo + hi, d.facts)
    if lo is ZERO and hi is ZERO:
        return n
    if mode == "constant":
        d.require(Le(ZERO, size), f"pad: dim {axis} would have {{0}} elements", (size,))
        return size
    least = {"reflect": n - 1, "circular": n, "edge": None}[mode]
    for amount in (a for a in (lo, hi) if a is not ZERO):
        d.require(Le(ZERO, amount), f'pad: {{0}} at dim {axis} is negative, which mode "{mode}" does not take', (amount,))
        if least is not None:
            message = f'pad: {{0}} elements cannot be had from dim {axis} with {{1}} in mode "{mode}"'
            d.require(Le(amount, least), message, (amount, n), help="pad less, or several times")
    if mode != "reflect":
        d.require(Lt(ZERO, n), f'pad: dim {axis} has no elements to pad with in mode "{mode}"')
    return size


def _place(at: Expr, n: Expr, lo: Expr, hi: Expr, mode: str) -> Expr:
    """Returns the index into the operand for the element of the result at offset `at` from the operand's start.

    In mode "constant" that is `at` itself, which may be outside of the operand.
    """
    if lo is ZERO and hi is ZERO:
        return at
    if mode == "reflect":
        mirrored = at if lo is ZERO else Max(at, ZERO - at)
        rest = n - 1 - mirrored  # to the last element
        return mirrored if hi is ZERO else n - 1 - Max(rest, ZERO - rest)
    if mode == "edge":
        return Min(Max(at, ZERO), n - 1)
    return at % n if mode == "circular" else at


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: PadAttrs) -> tuple[Stage, ...]:
    x = args[0]

    def value(i: Indices, r: Indices, read: Read) -> Expr:
        places = tuple(_place(at - lo, n, lo, hi, attrs.mode) for at, n, (lo, hi) in zip(i, x.shape, attrs.pads, strict=True))
        inside = _inside(places, x.shape, attrs.pads) if attrs.mode == "constant" else None
        return read_inside(read, 0, places, inside, attrs.value)

    return (Stage("pad", x.dtype, outs[0].shape, value),)


def _inside(places: Indices, shape: tuple[Expr, ...], pads: Pads) -> Expr | None:
    conditions: list[Expr] = []
    for at, n, (lo, hi) in zip(places, shape, pads, strict=True):
        if not _adds_nothing(lo):
            conditions.append(Le(ZERO, at))
        if not _adds_nothing(hi):
            conditions.append(Lt(at, n))
    return all_of(conditions)


def _adds_nothing(amount: Expr) -> bool:
    return isinstance(amount, Const) and amount.value <= 0


_NUMPY_MODE: dict[str, Any] = {"reflect": "reflect", "edge": "edge", "circular": "wrap"}


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    x = args[0]
    if x.ndim == 0:
        return [x]
    if attrs.mode != "constant":
        return [np.pad(x, attrs.pads, mode=_NUMPY_MODE[attrs.mode])]
    added = [(max(lo, 0), max(hi, 0)) for lo, hi in attrs.pads]
    more = np.pad(x, added, constant_values=np.asarray(attrs.value).astype(x.dtype))
    return [more[tuple(slice(max(-lo, 0), n + min(hi, 0)) for n, (lo, hi) in zip(more.shape, attrs.pads, strict=True))]]


@operator(deduce=_deduce, reference=_reference, stages=_stages, attrs=PadAttrs)
def pad(op: OpCall, x: T, pads: Any, mode: str = "constant", value: Any = 0) -> T:
    """`x` with elements added before and after along each axis; `pads` has an amount or a pair for each axis.

    `mode` is "constant" (with `value`, where negative amounts remove elements), "reflect", "edge" or "circular". Raises an Error for a
    value that is no number of the dtype.
    """
    source = op.operand(x)
    shape, dtype = tensor_of(source.annotation).shape, tensor_of(source.annotation).dtype
    if isinstance(value, Const):
        value = value.value
    if not isinstance(value, bool | int | float):
        raise Error(f"{op.name}: the value is a number, not {value!r}")
    if isinstance(value, float) and not dtype.is_float and value != int(value):
        raise Error(f"{op.name}: {value} is no value of {dtype}")
    pairs = pad_pairs(op.name, list(pads) if isinstance(pads, tuple | list) else pads, len(shape))
    plain = tuple((simplify(a), simplify(b)) for a, b in pairs)
    return op.emit(source, attrs=PadAttrs(plain, mode, number(op.name, value if dtype.is_float else int(value), dtype)))
