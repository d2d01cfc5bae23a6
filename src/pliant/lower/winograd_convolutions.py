"""Chooses Winograd's algorithm for convolutions of 3x3 windows: a decision about how the weight is kept, made once for all sizes.

    y = ops.conv(x, w, b, padding=1)      # w: (j, c, 3, 3), a literal       ->      u = ops.winograd_weight(w)         # when loaded
                                                                                     y = ops.winograd_conv(x, u, b, padding=1)

The algorithm takes 16 products for four results where direct sums take 36. Its transforms cost additions for each channel, which pays from
about 24 channels on both sides; small images have too few tiles for each weight that is read. What is decided depends on channels and on
what the contract says about sizes, never on the batch and never on sizes at run time. So the order of a sum, hence its last bits, is one
for all calls of a program.

By default tiles have 2x2 results. With `accuracy="fast"` those of large images have 4x4: 36 products for 16 results, which round more.
(docs/design/0028-winograd.md)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtype import f32
from ..graph.node import Const as Literal
from ..graph.node import Function, Node, Op, Tensor, Value, walk_nodes
from ..graph.ops.conv import ConvAttrs
from ..graph.ops.winograd import TAPS, WeightAttrs, WinogradAttrs
from ..graph.rewrite import Rewriter
from ..schedule.decisions import Decisions
from ..schedule.library import block_sizes
from ..sym.bounds import bounds
from ..sym.expr import Const, Expr
from ..target import Target

LEAST_CHANNELS = 24  # fewer channels on either side do not pay for the transforms
LEAST_PLACES = 49  # smaller images (7x7) have too few tiles for each weight that is read
# With `accuracy="fast"`, tiles are 4x4 from this many channels on both sides and places on: fewer do not pay for the larger transforms.
MANY_CHANNELS, MANY_PLACES = 32, 144


def winograd_convolutions(function: Function, target: Target, decisions: Decisions | None = None) -> Function:
    """Returns the function with `winograd_conv` in place of convolutions where `<weight>.winograd` is decided; itself if there are none.

    Their weights must be f32 literals, or computed from such. By default it is used from LEAST_CHANNELS channels and LEAST_PLACES places
    on.
    """
    if not any(isinstance(n, Op) and n.op == "conv" and _may_transform(n) for n in walk_nodes(function.nodes)):
        return function
    asked = decisions or Decisions()
    layouts = asked.of_kernel(function.name)
    known = _known_values(function)
    transformed: dict[tuple[Value, int], Value] = {}

    def rewrite(r: Rewriter, node: Node) -> Sequence[Value] | None:
        if not isinstance(node, Op) or node.op != "conv" or not _may_transform(node) or node.args[1] not in known:
            return None
        weight, image = node.args[1], node.outs[0].tensor
        out, channels = (_size(e) for e in weight.tensor.shape[:2])
        if not block_sizes(target, out) or not block_sizes(target, channels):  # the rule takes images in blocks of channels
            return None
        pays = min(out, channels) >= LEAST_CHANNELS and _most_places(image) >= LEAST_PLACES
        why = f"16 products for four results instead of 36 pay from {LEAST_CHANNELS} channels and {LEAST_PLACES} places on"
        decide = layouts.about(weight.name, target)
        if not decide("winograd", (False, True), pays, reorders=True, kind="layout", why=why):
            return None
        large = asked.accuracy == "fast" and min(out, channels) >= MANY_CHANNELS and _most_places(image) >= MANY_PLACES
        why = 'results along each dim of a tile; 4 takes 0.56 of the products of 2 and rounds more: by default only with accuracy="fast"'
        tile = decide("winograd_tile", (2, 4), 4 if large else 2, reorders=True, kind="layout", why=why)
        if transformed.get((weight, tile)) not in r.makers:  # none yet, or one inside of a branch that is not visible here
            made = r.make("winograd_weight", (weight,), WeightAttrs(tile), node)
            if made is None:
                return None
            transformed[weight, tile] = made[0]
        attrs = WinogradAttrs(node.attrs.padding, tile)
        return r.op("winograd_conv", (node.args[0], transformed[weight, tile], *node.args[2:]), attrs, node)

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
