"""Folds batch norm, and scales and shifts by constants per channel, into the weight and bias of the preceding convolution.

    y = ops.conv(x, w, b, …)                        ->      y = ops.conv(x, w * scale, b * scale + shift, …)
    z = ops.batch_norm(y, gamma, beta, mean, var)

    scale = gamma / sqrt(var + eps), shift = beta - mean * scale

A mul or add with one literal per channel is folded too. Weight and bias must be literals or computed from literals, so the new ones are
computed once, when the program is loaded. Rounding changes, so this is done for f32 and f64 only, and only if scale and shift are finite.
The convolution must have no other reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...dtype import f32, f64
from ...sym.expr import Const, const
from ..node import Function, Node, Op, Value, bodies, node_args, walk_nodes
from ..operators import Array
from ..ops.shape import ShapeAttrs
from ..rewrite import Rewriter


def fold_batch_norm(function: Function) -> Function:
    """Returns the function with scales and shifts of channels folded into convolutions; the same object if there are none."""
    return _Folding(function).run()


class _Folding(Rewriter):
    """Folds batch norms after convolutions into the weights and biases of the convolutions."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, lambda r, node: self.fold(node))
        self.counts = count_uses(function)

    def fold(self, node: Node) -> Sequence[Value] | None:
        """Returns the convolution that replaces a batch_norm, mul or add; None if the node cannot be folded.

        The convolution must have no other reader, and weights that are computed from literals.
        """
        if not isinstance(node, Op) or node.op not in ("batch_norm", "mul", "add"):
            return None
        for k in range(2 if node.op != "batch_norm" else 1):
            conv = self.op_of(node.args[k], "conv")
            if conv is None or self.counts[conv.outs[0]] != 1:
                continue
            factors = self.scale_and_shift(node, k, conv)
            if factors is not None and all(self.is_known(a) for a in conv.args[1:]):
                return self.scaled(node, conv, *factors)
        return None

    def scale_and_shift(self, node: Op, k: int, conv: Op) -> tuple[Array, Array] | None:
        """Returns the scale and shift of each channel in float64; None if they are not finite literals, or the dtype is not f32 or f64."""
        t = conv.outs[0].tensor
        channels = t.shape[1]
        if t.dtype not in (f32, f64) or not isinstance(channels, Const):
            return None
        count = int(channels.value)
        if node.op == "batch_norm":
            arrays = [self.array_of(a) for a in node.args[1:]]
            known = [a.astype(np.float64) for a in arrays if a is not None]
            if len(known) < 4:
                return None
            gamma, beta, mean, var = known
            with np.errstate(all="ignore"):
                scale = gamma / np.sqrt(var + node.attrs.eps)
                shift = beta - mean * scale
        else:
            other = self.array_of(node.args[1 - k])
            row = None if other is None else _by_channel(other, count, len(t.shape))
            if row is None:
                return None
            scale, shift = (row, np.zeros(count)) if node.op == "mul" else (np.ones(count), row)
        return (scale, shift) if bool(np.all(np.isfinite(scale) & np.isfinite(shift))) else None

    def scaled(self, node: Op, conv: Op, scale: Array, shift: Array) -> Sequence[Value] | None:
        """Returns a convolution with scale and shift folded into its weight and bias; None if deduction fails."""
        dtype = conv.outs[0].tensor.dtype.numpy()
        weight = conv.args[1]
        by, more = (self.constant(a.astype(dtype), name, node.origin, node.span) for a, name in ((scale, "scale"), (shift, "shift")))
        shape = (weight.tensor.shape[0], *(const(1) for _ in weight.tensor.shape[1:]))
        tall = self.make("reshape", (by,), ShapeAttrs(shape), node)
        product = tall and self.make("mul", (weight, tall[0]), None, node)
        bias: tuple[Value, ...] | None = (more,)
        if len(conv.args) == 3:
            scaled = self.make("mul", (conv.args[2], by), None, node)
            bias = scaled and self.make("add", (scaled[0], more), None, node)
        if not product or not bias:
            return None
        return self.op("conv", (conv.args[0], product[0], bias[0]), conv.attrs, node, conv.requires)

    def is_known(self, value: Value) -> bool:
        """True if a value is a literal or computed from literals alone."""
        node = self.makers.get(value)
        if isinstance(node, Op):
            return bool(node.args) and all(map(self.is_known, node.args))
        return self.array_of(value) is not None


def count_uses(function: Function) -> Counter[Value]:
    """The number of uses of each value: as an argument, or as a result of a body or of the function."""
    nodes = list(walk_nodes(function.nodes))
    uses = Counter(v for n in nodes for v in node_args(n))
    uses.update(v for n in nodes for b in bodies(n) for v in b.results)
    uses.update(function.results)
    return uses


def _by_channel(array: Array, count: int, rank: int) -> Array | None:
    """The value per channel of a literal that is constant along all axes except the channels (axis 1 of `rank`), else None."""
    shape = (1,) * (rank - array.ndim) + array.shape
    if array.ndim > rank or any(n != 1 for axis, n in enumerate(shape) if axis != 1) or shape[1] not in (1, count):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (count,))
