"""Recognizes attention: two matmuls with a softmax between them become one attention operator, which never stores all scores.

    t = ops.permute(k, [0, 1, 3, 2])                ->      y = ops.scaled_dot_product_attention(q, k, v, mask, scale=0.125)
    s = ops.matmul(q, t)
    p = ops.softmax(ops.add(ops.mul(s, 0.125), mask), axis=3)
    y = ops.matmul(p, v)

Scales (muls and divs by literals), a soft-cap `c * tanh(scores)` and a mask are optional. A mask is added, or it is the condition of a
`where` with a literal for hidden scores. head_dim must be constant; the values are padded with columns of zeros to a multiple of 8, which
the attention template needs, and the result is sliced. Nothing else may read the scores. Rounding changes, so this is done for f32 and f64
only. For a query that sees no key, softmax gives NaN: so does the operator, unless the mask is known to be made of finite numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...dtype import f32, f64
from ...support.record import dataclass
from ...sym.expr import Const, Expr, const
from ...sym.simplify import simplify
from ..node import Function, Node, Op, Require, Tensor, Value, is_state
from ..op_table import TABLE
from ..ops.attention import AttentionAttrs
from ..ops.linalg import PLAIN
from ..ops.pad import PadAttrs
from ..ops.shape import PermuteAttrs
from ..ops.slicing import SliceAttrs
from ..ops.window import ZERO
from ..rewrite import Rewriter
from .fold_batch_norm import count_uses

MOVES = ("reshape", "expand", "permute", "slice", "take", "gather")  # every result element is an element of the first operand
VECTOR = 8  # the attention template takes values whose number of columns is a multiple of this
ARITHMETIC = ("add", "sub", "mul", "neg")  # finite for finite operands as masks have them; a div may give inf or NaN


def recognize_attention(function: Function) -> Function:
    """Returns the function with matmul-softmax-matmul replaced by attention; the same object if there is none."""
    return _Recognition(function).run()


@dataclass(frozen=True, slots=True)
class _Product:
    """Matched scores before the mask: the matmul of queries and keys, scale, cap, and run-time checks of its nodes."""

    matmul: Op
    scale: float
    cap: float | None
    checks: tuple[Require, ...]


@dataclass(frozen=True, slots=True)
class _Scores:
    """The matched scores of an attention: the product, the mask, the score of keys that a bool mask hides, and all run-time checks."""

    product: _Product
    mask: Value | None
    mask_is_of_hidden: bool  # true at hidden keys, not at those that are seen
    hidden: float
    may_hide_all: bool
    checks: tuple[Require, ...]


class _Recognition(Rewriter):
    """Replaces softmax(q @ k * scale + mask) @ v by the attention operator."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.recognize(node))
        self.counts = count_uses(function)

    def recognize(self, node: Node) -> Sequence[Value] | None:
        """The attention that replaces the second matmul; None if the nodes before it do not match."""
        if not isinstance(node, Op) or node.op != "matmul" or (node.attrs or PLAIN) != PLAIN:
            return None
        softmax = self.alone(node.args[0], "softmax")
        if softmax is None or softmax.attrs.axis != len(node.args[0].tensor.shape) - 1:
            return None
        scores = self.scores(softmax.args[0])
        if scores is None or any(map(is_state, (*scores.product.matmul.args, node.args[1]))):
            return None
        (q, _), v = scores.product.matmul.args, node.args[1]
        keys = self.keys(scores.product.matmul)
        if keys is None or keys.tensor.shape[:-2] != v.tensor.shape[:-2] or q.tensor.shape[:-2] != v.tensor.shape[:-2]:
            return None
        return self.attention(q, keys, v, scores, (*scores.checks, *softmax.requires), node)

    def attention(self, q: Value, keys: Value, v: Value, scores: _Scores, checks: Sequence[Require], node: Op) -> tuple[Value, ...] | None:
        """Returns the attention operator that replaces the last matmul `node`; None if the template does not support the operands.

        Values with a number of columns that is no multiple of VECTOR are padded, and the result is cut.
        """
        masks: tuple[Value, ...] = () if scores.mask is None else (scores.mask,)
        product = scores.product
        attrs = AttentionAttrs(False, product.scale, None, ZERO, product.cap, scores.hidden, scores.may_hide_all)
        attention = TABLE["scaled_dot_product_attention"]
        width = v.tensor.shape[-1]
        more = -int(width.value) % VECTOR if isinstance(width, Const) else 0
        wide = Tensor(v.tensor.dtype, (*v.tensor.shape[:-1], simplify(width + more)))
        if attention.fits is None or not attention.fits((q.tensor, keys.tensor, wide, *(m.tensor for m in masks)), attrs):
            return None
        if scores.mask_is_of_hidden:
            masks = self.make("logical_not", masks, None, node) or ()
            if not masks:
                return None
        if not more:
            return self.op(attention.name, (q, keys, v, *masks), attrs, node, checks)
        pads = (*((const(0), const(0)) for _ in v.tensor.shape[1:]), (const(0), const(more)))
        padded = self.make("pad", (v,), PadAttrs(pads, "constant", Const(0.0, v.tensor.dtype)), node)
        result = self.make(attention.name, (q, keys, *padded, *masks), attrs, node) if padded is not None else None
        last = len(v.tensor.shape) - 1
        return None if result is None else self.op("slice", result, SliceAttrs(last, const(0), width), node, checks)

    def alone(self, value: Value, *names: str) -> Op | None:
        """The operator that defines the value, if it is one of `names` and the value has a single use, else None."""
        node = self.op_of(value, *names)
        return node if node is not None and self.counts[value] == 1 else None

    def scores(self, value: Value) -> _Scores | None:
        """Matches the input of the softmax: a product with a mask that is added, or that chooses its scores; returns its parts, or None."""
        masked = self.alone(value, "add", "where")
        if masked is None:
            product = self.product(value)
            return None if product is None else _Scores(product, None, False, -math.inf, False, product.checks)
        hidden, may_hide_all, inverse = -math.inf, True, False
        if masked.op == "where":
            mask, first, second = masked.args
            inverse = self.number(first) is not None
            product, literal = self.product(second if inverse else first), self.number(first if inverse else second)
            if product is None or literal is None or literal == math.inf:
                return None
            hidden, may_hide_all = literal, literal == -math.inf
        else:
            sides = [(self.product(a), b) for a, b in (masked.args, masked.args[::-1])]
            product, mask = next(((p, m) for p, m in sides if p is not None), (None, masked.args[0]))
            if product is None:
                return None
            may_hide_all = not self.is_finite(mask)
        result = product.matmul.outs[0]
        if masked.outs[0].annotation != result.annotation or not _within(mask.tensor.shape, result.tensor.shape):
            return None
        return _Scores(product, mask, inverse, hidden, may_hide_all, (*masked.requires, *product.checks))

    def product(self, value: Value) -> _Product | None:
        """Matches `matmul(q, k)`, scaled by literals, also `c * tanh(…)` of it; returns its parts, or None."""
        value, scale, checks = self.scaled(value)
        bound = self.alone(value, "tanh")
        cap: float | None = None
        if bound is not None:
            cap, checks = scale, [*checks, *bound.requires]
            value, scale, more = self.scaled(bound.args[0])
            scale, checks = scale * cap, [*checks, *more]  # c * tanh(g * s) is the score c * g * s with the cap c
        matmul = self.alone(value, "matmul")
        if matmul is None or matmul.outs[0].tensor.dtype not in (f32, f64) or (matmul.attrs or PLAIN).transpose_a:
            return None
        if not scale or not math.isfinite(scale) or (cap is not None and cap <= 0.0):
            return None
        return _Product(matmul, scale, cap, (*checks, *matmul.requires))

    def scaled(self, value: Value) -> tuple[Value, float, list[Require]]:
        """The value below multiplications and divisions by literals, the product of these factors, and the run-time checks on the way."""
        scale, checks = 1.0, list[Require]()
        while (node := self.alone(value, "mul", "div")) is not None:
            k = 0 if node.op == "div" or self.number(node.args[1]) is not None else 1
            factor = self.number(node.args[1 - k])
            if factor is None or node.outs[0].annotation != node.args[k].annotation:
                break
            scale = scale * factor if node.op == "mul" else scale / factor if factor else math.nan
            checks += node.requires
            value = node.args[k]
        return value, scale, checks

    def number(self, value: Value) -> float | None:
        """The number that a literal of one element is; None for other values and for NaN."""
        array = self.array_of(value)
        if array is None or array.size != 1 or np.isnan(array).any():
            return None
        return float(array.item())

    def keys(self, product: Op) -> Value | None:
        """Returns the right operand of the matmul with one key per row: undoes a transpose of it, or transposes it.

        None if ranks do not fit.
        """
        right = product.args[1]
        rank = len(right.tensor.shape)
        if rank < 2 or len(product.args[0].tensor.shape) != rank:
            return None
        if (product.attrs or PLAIN).transpose_b:
            return right
        moved = self.op_of(right, "permute")
        source, axes = (moved.args[0], moved.attrs.axes) if moved is not None else (right, tuple(range(rank)))
        axes = (*axes[:-2], axes[-1], axes[-2])
        if axes == tuple(range(rank)):
            return source
        transposed = self.make("permute", (source,), PermuteAttrs(axes), product)
        return None if transposed is None else transposed[0]

    def is_finite(self, value: Value) -> bool:
        """True if a value is computed from finite literals and integers by operators that cannot give inf or NaN from a mask."""
        array = self.array_of(value)
        if array is not None:
            return bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True
        node = self.makers.get(value)
        if not isinstance(node, Op):
            return False
        if node.op == "cast":
            return not node.args[0].tensor.dtype.is_float or self.is_finite(node.args[0])
        parts = {"where": node.args[1:], **dict.fromkeys(MOVES, node.args[:1]), **dict.fromkeys(ARITHMETIC, node.args)}.get(node.op, ())
        return bool(parts) and all(map(self.is_finite, parts))


def _within(mask: tuple[Expr, ...], scores: tuple[Expr, ...]) -> bool:
    """True if the mask broadcasts to the scores: every dim is 1 or the dim of the scores."""
    return len(mask) <= len(scores) and all(n is m or n is const(1) for n, m in zip(mask, scores[len(scores) - len(mask) :], strict=True))
