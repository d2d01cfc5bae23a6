"""Scaled dot-product attention with masks, causal order, a sliding window, and grouped-query heads (GQA: heads that share keys and values).

    ops.scaled_dot_product_attention(q, k, v, is_causal=True)         # q: (…, heads, n, d), k: (…, heads, m, d), v: (…, heads, m, e)
    ops.scaled_dot_product_attention(q, k, v, mask)                   # bool: keys to attend to; floats: added to the scores

Query i has position `offset + i` among the keys. With `is_causal` it sees the keys up to that position, with `window` only the last
`window` of them. `cap` bounds the scores before a mask: cap * tanh(score / cap). A bool mask replaces the scores of hidden keys by
`hidden`; if that is finite, such keys count where no other key does. A query that sees no key gives zeros. With `nan_if_unseen` it gives
NaN, as a softmax does, unless there are no keys at all. Scores, sums and the softmax of 16-bit floats are computed in f32.
"""

# What users see is typed by their dtype (T); what is emitted is a graph value.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from ...dtype import bool_
from ...support.errors import counted
from ...support.record import dataclass
from ...sym.expr import Add, Call, Cast, Const, Div, Eq, Expr, FloorMod, Le, Lt, Min, Mul, Or, Select, Sub, const
from ...sym.simplify import simplify
from ..deduce import Deduction
from ..node import Annotation, Tensor
from ..operators import Array, OpCall, operator
from ..stage import Indices, Read, Stage
from .elementwise import project
from .reduce import accumulator, limit
from .shape import as_dim
from .window import ZERO, all_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AttentionAttrs:
    """The attributes of attention: causal order, scale (None: 1 / sqrt(d)), window (None: no limit), and the position of the first query.

    Then `cap`, which bounds scores to cap * tanh(score / cap) (None: no bound); `hidden`, the score of keys that a bool mask excludes; and
    `nan_if_unseen`, whether a query that sees no key gives NaN instead of zeros.
    """

    is_causal: bool
    scale: float | None
    window: int | None
    offset: Expr
    cap: float | None = None
    hidden: float = -math.inf
    nan_if_unseen: bool = False


def _deduce(d: Deduction, attrs: AttentionAttrs) -> tuple[Annotation, ...]:
    q, k, v = (d.tensor(i) for i in range(3))
    for i, t in enumerate((q, k, v)):
        if not t.dtype.is_float or t.dtype is not q.dtype:
            help_ = f"write ops.cast({d.args[i].name}, {q.dtype if q.dtype.is_float else 'f32'})"
            raise d.error(f"{d.what} of {q.dtype} and {t.dtype}" if q.dtype.is_float else f"{d.what} is for floats", arg=i, help=help_)
        if len(t.shape) != len(q.shape) or len(t.shape) < 2:
            raise d.error(f"{d.what}: `{d.args[i].name}` has {counted(len(t.shape), 'dim')}, `{d.args[0].name}` {len(q.shape)}", arg=i)
    names = [a.name for a in d.args]
    d.equal(k.shape[-1], q.shape[-1], f"keys `{names[1]}` have {{0}} numbers each, queries `{names[0]}` {{1}}", arg=1)
    d.equal(v.shape[-2], k.shape[-2], f"{{0}} values `{names[2]}` for {{1}} keys `{names[1]}`", arg=2)
    for axis in range(len(q.shape) - 2):
        d.equal(v.shape[axis], k.shape[axis], f"dim {axis} of the values is {{0}}, of the keys {{1}}", arg=2)
        if axis < len(q.shape) - 3:
            d.equal(k.shape[axis], q.shape[axis], f"dim {axis} of the keys is {{0}}, of the queries {{1}}", arg=1)
    if len(q.shape) > 2:
        heads, shared = q.shape[-3], k.shape[-3]
        message = f"{d.what}: {{0}} heads of queries cannot share {{1}} of keys evenly"
        d.require(Eq(FloorMod(heads, shared), ZERO), message, (heads, shared), arg=1)
        if heads is not shared:  # FloorMod by 0 is 0: the check above accepts zero heads of keys
            d.require(Or(Lt(ZERO, shared), Eq(heads, ZERO)), message, (heads, shared), arg=1)
    if attrs.window is not None and attrs.window < 1:
        raise d.error(f"{d.what}: window {attrs.window} is less than 1")
    if attrs.cap is not None and not 0.0 < attrs.cap < math.inf:
        raise d.error(f"{d.what}: cap {attrs.cap} is not a positive number")
    if len(d.args) == 4:
        _check_mask(d, (*q.shape[:-1], k.shape[-2]))
    return (Tensor(q.dtype, (*q.shape[:-1], v.shape[-1])),)


def _check_mask(d: Deduction, scores: tuple[Expr, ...]) -> None:
    mask = d.tensor(3)
    if mask.dtype is not bool_ and mask.dtype is not d.tensor(0).dtype:
        raise d.error(f"{d.what}: the mask `{d.args[3].name}` is {mask.dtype}, neither bool nor {d.tensor(0).dtype}", arg=3)
    if len(mask.shape) > len(scores):
        raise d.error(f"{d.what}: the mask has {counted(len(mask.shape), 'dim')}, the scores {len(scores)}", arg=3)
    skip = len(scores) - len(mask.shape)
    for axis, (n, m) in enumerate(zip(mask.shape, scores[skip:], strict=True)):
        if n is not const(1) and n is not m:
            d.equal(n, m, f"dim {axis} of the mask `{d.args[3].name}` is {{0}}, that of the scores {{1}}", arg=3)


def _stages(args: tuple[Tensor, ...], outs: tuple[Tensor, ...], attrs: AttentionAttrs) -> tuple[Stage, ...]:
    q, k, out = args[0], args[1], outs[0]
    wide, depth, m = accumulator(q.dtype), q.shape[-1], k.shape[-2]
    rows, scores = q.shape[:-1], (*q.shape[:-1], m)

    def shared(i: Indices) -> Indices:
        """Returns the batch and head indices of the keys for those of a query; several query heads may share a key head."""
        if len(q.shape) == 2 or q.shape[-3] is k.shape[-3]:
            return i[: len(q.shape) - 2]
        group = simplify(q.shape[-3] // k.shape[-3])
        head = i[len(q.shape) - 3] // group
        return (*i[: len(q.shape) - 3], head if isinstance(group, Const) else Min(head, k.shape[-3] - 1))

    def widen(e: Expr) -> Expr:
        return e if e.dtype is wide else Cast(wide, e)

    def score(i: Indices, r: Indices, read: Read) -> Expr:
        return Mul(widen(read(0, *i[:-1], r[0])), widen(read(1, *shared(i), i[-1], r[0])))

    def masked(i: Indices, r: Indices, read: Read) -> Expr:
        scale = Const(attrs.scale, wide) if attrs.scale is not None else Div(Const(1.0, wide), Call("sqrt", Cast(wide, depth)))
        scaled: Expr = capped(attrs, Mul(read("dots", *i), scale))
        if len(args) == 4:
            scaled = masked_score(attrs, scaled, read(3, *project(args[3].shape, scores, i)))
        condition = all_of(seen(attrs, i[-2], i[-1]))
        return scaled if condition is None else Select(condition, scaled, limit(wide, False))

    def exponential(i: Indices, r: Indices, read: Read) -> Expr:
        largest = read("largest", *i[:-1])
        share = Call("decay", Sub(read("scores", *i), largest))
        return share if attrs.nan_if_unseen else Select(Eq(largest, limit(wide, False)), Const(0.0, wide), share)

    def finish(i: Indices, r: Indices, read: Read) -> Expr:
        total = read("total", *i[:-1])
        mean = Div(read("mixed", *i), Select(Eq(total, Const(0.0, wide)), Const(1.0, wide), total))
        return mean if wide is out.dtype else Cast(out.dtype, mean)

    def mix(i: Indices, r: Indices, read: Read) -> Expr:
        return Mul(read("weights", *i[:-1], r[0]), widen(read(2, *shared(i), r[0], i[-1])))

    zero = Const(0, wide)
    return (
        Stage("dots", wide, scores, score, (depth,), "add", zero),
        Stage("scores", wide, scores, masked),
        Stage("largest", wide, rows, lambda i, r, read: read("scores", *i, r[0]), (m,), "max", limit(wide, False)),
        Stage("weights", wide, scores, exponential),
        Stage("total", wide, rows, lambda i, r, read: read("weights", *i, r[0]), (m,), "add", zero),
        Stage("mixed", wide, out.shape, mix, (m,), "add", zero),
        Stage("out", out.dtype, out.shape, finish),
    )


def capped(attrs: AttentionAttrs, score: Expr) -> Expr:
    """Returns cap * tanh(score / cap), or the score itself if the attributes have no cap."""
    cap = Const(attrs.cap, score.dtype) if attrs.cap is not None else None
    return score if cap is None else Mul(Call("tanh", Div(score, cap)), cap)


def masked_score(attrs: AttentionAttrs, score: Expr, mask: Expr) -> Expr:
    """Returns a score with an element of the mask operand applied.

    A bool mask keeps the score where it is true and gives `attrs.hidden` elsewhere; a float mask is added.
    """
    if mask.dtype is bool_:
        return Select(mask, score, Const(attrs.hidden, score.dtype))
    return Add(score, mask if mask.dtype is score.dtype else Cast(score.dtype, mask))


def seen(attrs: AttentionAttrs, query: Expr, key: Expr) -> list[Expr]:
    """Returns the conditions under which a query sees a key, for a query at position `query + offset`; an empty list if it sees all.

    Causal order: the key is not after that position. Window: the key is among the last `window` up to that position.
    """
    place = query + attrs.offset if attrs.offset is not ZERO else query
    conditions: list[Expr] = [Le(key, place)] if attrs.is_causal else []
    if attrs.window is not None:
        conditions.append(Lt(place - attrs.window, key))
    return conditions


def _reference(args: Sequence[Array], attrs: Any) -> list[Array]:
    q, k, v = (a.astype(np.float64) for a in args[:3])
    if q.ndim > 2 and k.shape[-3]:
        k, v = (np.repeat(t, q.shape[-3] // k.shape[-3], axis=-3) for t in (k, v))
    with np.errstate(all="ignore"):
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * (1 / np.sqrt(q.shape[-1]) if attrs.scale is None else attrs.scale)
    places, keys = np.arange(q.shape[-2])[:, None] + attrs.offset, np.arange(k.shape[-2])
    if attrs.cap is not None:
        scores = np.tanh(scores / attrs.cap) * attrs.cap
    seen = (keys <= places) if attrs.is_causal else np.ones((q.shape[-2], k.shape[-2]), np.bool_)
    if attrs.window is not None:
        seen = seen & (keys > places - attrs.window)
    if len(args) == 4 and args[3].dtype == np.bool_:
        scores = np.where(args[3], scores, attrs.hidden)
    elif len(args) == 4:
        scores = scores + args[3].astype(np.float64)
    scores = np.where(seen, scores, -math.inf)
    with np.errstate(all="ignore"):
        largest = np.max(scores, axis=-1, keepdims=True, initial=-math.inf)
        weights = np.exp(scores - largest)
        if not attrs.nan_if_unseen:
            weights = np.where(largest == -math.inf, 0.0, weights)
        total = np.sum(weights, axis=-1, keepdims=True)
        return [(np.matmul(weights, v) / np.where(total == 0, 1.0, total)).astype(args[0].dtype)]


def _in_tiles(args: tuple[Tensor, ...], attrs: AttentionAttrs) -> bool:
    """True if the flash-attention template applies: both head_dims are constants up to 512, that of the values a multiple of 8."""
    sizes = [args[i].shape[-1] for i in (0, 2)]
    constant = [int(e.value) for e in sizes if isinstance(e, Const)]
    return len(constant) == 2 and 0 < constant[0] <= 512 and 0 < constant[1] <= 512 and constant[1] % 8 == 0


@operator(
    deduce=_deduce, reference=_reference, stages=_stages, attrs=AttentionAttrs, arity=(3, 4), template="attention.flash", fits=_in_tiles
)
def scaled_dot_product_attention(
    op: OpCall,
    q: T,
    k: T,
    v: T,
    mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int | None = None,
    offset: Any = 0,
    cap: float | None = None,
    hidden: float = -math.inf,
    nan_if_unseen: bool = False,
) -> T:
    """`softmax(q @ k.T * scale + mask) @ v`; several query heads may share a head of keys and values.

    The default scale is 1 / sqrt(d). Query i is at position `offset + i` among the keys. With `is_causal` it sees the keys up to there,
    with `window` only the last `window` of them. `cap` bounds the scores before the mask by tanh.
    """
    args = tuple(op.operand(a) for a in (q, k, v, *(() if mask is None else (mask,))))
    width = None if window is None else int(window)
    number = None if scale is None else float(scale)
    bound = None if cap is None else float(cap)
    attrs = AttentionAttrs(bool(is_causal), number, width, as_dim(op.name, offset), bound, float(hidden), bool(nan_if_unseen))
    return op.emit(*args, attrs=attrs)
