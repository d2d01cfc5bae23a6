"""NCHWc layout `[n, c // 16, h, w, c % 16]`: which blocks gain from it, and how weights are packed for it."""

from __future__ import annotations

from collections.abc import Iterator

from ...loop.analysis.nest_shape import iter_named
from ...loop.analysis.nests import accesses, blocks
from ...loop.buffer import Buffer
from ...loop.stmt import Block, Func
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars
from ...sym.index_map import IndexMap
from ...target import Target
from ..dependence import linear
from .channel_sums import channel_sum_of
from .convolution_roles import along_channels, convolution_of
from .record import Packing


def makes_image(block: Block) -> bool:
    """True if a block is a convolution; its result then gains from the NCHWc layout."""
    return not isinstance(convolution_of(block), Refusal)


def channel_packs(func: Func, known: set[Buffer], target: Target) -> Iterator[tuple[Buffer, Packing]]:
    """Yield literals that are read along the channels of a block but are not contiguous there, and the layout that makes them so.

    `known` are the literals. One is left out if its readers need different layouts.
    """
    seen: dict[Buffer, set[IndexMap | None]] = {}
    for b in blocks(func.body):
        roles = convolution_of(b)  # matches only a convolution whose own result is not NCHWc
        if not isinstance(roles, Refusal) and roles.weight.buffer in known and along_channels(func, b, target):
            pack = pack_of(roles.weight.buffer, roles.weight.indices, {iter_named(b, roles.column).var: target.vector_bits // 32})
            seen.setdefault(roles.weight.buffer, set()).add(pack)
            continue
        to_one = channel_sum_of(func, b, target)
        if not isinstance(to_one, Refusal) and to_one.weight.buffer in known:
            pack = pack_of(to_one.weight.buffer, to_one.weight.indices, {iter_named(b, to_one.lane).var: to_one.size})
            seen.setdefault(to_one.weight.buffer, set()).add(pack)
            continue
        lanes = {a.indices[-1]: _extent(a.buffer.shape[-1]) for a in accesses(b) if a.write and a.indices}
        for a in accesses(b):
            if a.buffer in known and not a.write:
                seen.setdefault(a.buffer, set()).add(pack_of(a.buffer, a.indices, lanes))
    for buffer, maps in seen.items():
        (map_, *others) = maps
        if map_ is not None and not others:
            yield buffer, Packing({1: map_}, 1, reorders=True)


def pack_of(buffer: Buffer, indices: tuple[Expr, ...], lanes: dict[Expr, int]) -> IndexMap | None:
    """Return the map that makes a literal contiguous along a lane; None if it already is, or if no axis is indexed by one lane alone.

    `lanes` has for each lane the size of a block of channels. The axis is cut into blocks of that size, and the innermost dim is the place
    in a block.
    """
    for lane, size in lanes.items():
        axes = [k for k, e in enumerate(indices) if isinstance(lane, Var) and lane in free_vars(e)]
        if len(axes) != 1 or not size or buffer.strides is not None or _extent(buffer.shape[axes[0]]) < 2:
            continue
        (at,) = axes
        parts = linear(indices[at], lane)  # type: ignore[arg-type]
        if parts is None or parts[0] != {(): 1} or all(_extent(e) == 1 for e in buffer.shape[at + 1 :]):
            continue
        inputs = tuple(Var(f"d{k}") for k in range(buffer.ndim))
        one = _extent(buffer.shape[at]) == size
        others = [v for k, v in enumerate(inputs) if k != at or not one]
        results = [v // size if v is inputs[at] else v for v in others]
        return IndexMap(inputs, (*results, inputs[at] if one else inputs[at] % size))
    return None


def _extent(e: Expr) -> int:
    """Return the value of an extent, or 0 if it is not constant."""
    return int(e.value) if isinstance(e, Const) else 0
