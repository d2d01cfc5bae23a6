"""Chooses Winograd's F(2x2, 3x3) for convolutions of 3x3 windows: a decision about how the weight is kept, made once for all sizes.

    y = ops.conv(x, w, b, padding=1)      # w: (j, c, 3, 3), a literal       ->      u = ops.winograd_weight(w)         # when loaded
                                                                                     y = ops.winograd_conv(x, u, b, padding=1)

The algorithm takes 16 products for four results where direct sums take 36. Its transforms cost additions for each channel, which pays from
about 24 channels on both sides; small images have too few tiles for each weight that is read. What is decided depends on channels and on
what the contract says about sizes, never on the batch and never on sizes at run time. So the order of a sum, hence its last bits, is one
for all calls of a program. (docs/design/0028-winograd.md)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtype import f32
from ..graph.node import Const as Literal
from ..graph.node import Function, Node, Op, Tensor, Value, walk_nodes
from ..graph.ops.conv import ConvAttrs
from ..graph.ops.winograd import TAPS, WinogradAttrs
from ..graph.rewrite import Rewriter
from ..schedule.decisions import Decisions
from ..schedule.library import block_sizes
from ..sym.bounds import bounds
from ..sym.expr import Const, Expr
from ..target import Target

LEAST_CHANNELS = 24  # fewer channels on either side do not pay for the transforms
LEAST_PLACES = 49  # smaller images (7x7) have too few tiles for each weight that is read


def winograd_convolutions(function: Function, target: Target, decisions: Decisions | None = None) -> Function:
    """Returns the function with `winograd_conv` in place of convolutions where `<weight>.winograd` is decided; itself if there are none.

    Their weights must be f32 literals, or computed from such. By default it is used from LEAST_CHANNELS channels and LEAST_PLACES places
    on.
    """
    if not any(isinstance(n, Op) and n.op == "conv" and _may_transform(n) for n in walk_nodes(function.nodes)):
        return function
    layouts = (decisions or Decisions()).of_kernel(function.name)
    known = _known_values(function)
    transformed: dict[Value, Value] = {}

    def rewrite(r: Rewriter, node: Node) -> Sequence[Value] | None:
        if not isinstance(node, Op) or node.op != "conv" or not _may_transform(node) or node.args[1] not in known:
            return None
        weight, image = node.args[1], node.outs[0].tensor
        out, channels = (_size(e) for e in weight.tensor.shape[:2])
        if not block_sizes(target, out) or not block_sizes(target, channels):  # the rule takes images in blocks of channels
            return None
        pays = min(out, channels) >= LEAST_CHANNELS and _most_places(image) >= LEAST_PLACES
        why = f"16 products for four results instead of 36 pay from {LEAST_CHANNELS} channels and {LEAST_PLACES} places on"
        if not layouts.about(weight.name, target)("winograd", (False, True), pays, reorders=True, kind="layout", why=why):
            return None
        if transformed.get(weight) not in r.makers:  # none yet, or one inside of a branch that is not visible here
            made = r.make("winograd_weight", (weight,), None, node)
            if made is None:
                return None
            transformed[weight] = made[0]
        return r.op("winograd_conv", (node.args[0], transformed[weight], *node.args[2:]), WinogradAttrs(node.attrs.padding), node)

    return Rewriter(function, rewrite).run()


def _may_transform(node: Op) -> bool:
    """Returns True for a convolution of f32 images with 3x3 windows, stride 1, dilation 1, one group, and constant numbers of channels."""
    x, weight, attrs = node.args[0].tensor, node.args[1].tensor, node.attrs
    assert isinstance(attrs, ConvAttrs)
    plain = attrs.groups == 1 and set(attrs.stride) == {1} and set(attrs.dilation) == {1}
    return plain and x.dtype is f32 and [_size(e) for e in weight.shape[2:]] == [TAPS, TAPS] and all(_size(e) for e in weight.shape)


def _known_values(function: Function) -> set[Value]:
    """Returns the f32 values that are literals or computed from f32 literals alone.

    Weights that are kept in fewer bits stay as they are: transformed ones would take more memory than their owner wanted.
    """
    known: set[Value] = set()
    for n in walk_nodes(function.nodes):
        if isinstance(n, Literal) or (isinstance(n, Op) and n.args and all(a in known for a in n.args)):
            known.update(v for v in n.outs if isinstance(v.annotation, Tensor) and v.annotation.dtype is f32)
    return known


def _size(e: Expr) -> int:
    """Returns the value of a constant; 0 for any other expression."""
    return int(e.value) if isinstance(e, Const) else 0


def _most_places(image: Tensor) -> float:
    """Returns the largest number of places that an image may have by its contract; infinity if it has no bound."""
    most = [bounds(e)[1] for e in image.shape[2:]]
    return float("inf") if None in most else float(most[0] * most[1])  # type: ignore[operator]
