"""Recognizes attention: two matmuls with a softmax between them become one attention operator, which never stores all scores.

    t = ops.permute(k, [0, 1, 3, 2])                ->      y = ops.scaled_dot_product_attention(q, k, v, mask, scale=0.125)
    s = ops.matmul(q, t)
    p = ops.softmax(ops.add(ops.mul(s, 0.125), mask), axis=3)
    y = ops.matmul(p, v)

The scale (a mul or div by a literal) and the mask are optional. head_dim must be constant; the values are padded with columns of zeros to
a multiple of 8, which the attention template needs, and the result is sliced. Nothing else may read the scores. Rounding changes, so this
is done for f32 only. For a query that sees no key, softmax gives NaN but the operator zero; so the mask must be made of finite numbers,
as exporters write it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dtype import f32
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
    """Replaces matmul-softmax-matmul by attention; returns the same object if there is none."""
    return _Recognition(function).run()


@dataclass(frozen=True, slots=True)
class _Scores:
    """A record of the matched scores of an attention: the matmul of queries and keys, scale, mask, and run-time checks of its nodes."""

    product: Op
    scale: float
    mask: Value | None
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
        if scores is None or any(map(is_state, (*scores.product.args, node.args[1]))):
            return None
        (q, _), v = scores.product.args, node.args[1]
        keys = self.keys(scores.product)
        if keys is None or keys.tensor.shape[:-2] != v.tensor.shape[:-2] or q.tensor.shape[:-2] != v.tensor.shape[:-2]:
            return None
        return self.attention(q, keys, v, scores, (*scores.checks, *softmax.requires), node)

    def attention(self, q: Value, keys: Value, v: Value, scores: _Scores, checks: Sequence[Require], node: Op) -> tuple[Value, ...] | None:
        """The attention operator that replaces the last matmul `node`; None if the template does not support the operands."""
        masks = () if scores.mask is None else (scores.mask,)
        attrs = AttentionAttrs(False, scores.scale, None, ZERO)
        attention = TABLE["scaled_dot_product_attention"]
        width = v.tensor.shape[-1]
        more = -int(width.value) % VECTOR if isinstance(width, Const) else 0
        wide = Tensor(v.tensor.dtype, (*v.tensor.shape[:-1], simplify(width + more)))
        if attention.fits is None or not attention.fits((q.tensor, keys.tensor, wide, *(m.tensor for m in masks)), attrs):
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
        """Matches the input of the softmax, `matmul(q, k) * scale + mask`; returns its parts, or None."""
        mask: Value | None = None
        checks: list[Require] = []
        added = self.alone(value, "add")
        if added is not None:
            k = 0 if self.is_product(added.args[0]) else 1
            value, mask = added.args[k], added.args[1 - k]
            checks += added.requires
            if not self.is_finite(mask) or not _within(mask.tensor.shape, value.tensor.shape):
                return None
        scale, scaled = 1.0, self.alone(value, "mul", "div")
        if scaled is not None:
            k = 0 if scaled.op == "div" or self.array_of(scaled.args[1]) is not None else 1
            factor = self.array_of(scaled.args[1 - k])
            if factor is None or factor.size != 1 or not np.isfinite(factor).all() or not float(factor.item()):
                return None
            scale = float(factor.item()) if scaled.op == "mul" else 1 / float(factor.item())
            checks += scaled.requires
            value = scaled.args[k]
        product = self.alone(value, "matmul")
        if product is None or product.outs[0].tensor.dtype is not f32 or (product.attrs or PLAIN).transpose_a:
            return None
        if added is not None and added.outs[0].annotation != product.outs[0].annotation:
            return None
        return _Scores(product, scale, mask, (*checks, *product.requires))

    def is_product(self, value: Value) -> bool:
        """True if a value is a matmul, possibly scaled. A mask may be a mul too, so a mul alone does not tell the scores from the mask."""
        node = self.alone(value, "matmul", "mul", "div")
        return node is not None and (node.op == "matmul" or any(self.alone(a, "matmul") is not None for a in node.args))

    def keys(self, product: Op) -> Value | None:
        """The right operand of the matmul with one key per row: undoes a transpose of it, or transposes it."""
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
