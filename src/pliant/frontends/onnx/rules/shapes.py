"""Shape operators and data movement: Shape, Reshape, Transpose, Concat, Expand, Squeeze and others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.node import Tensor
from ....graph.operators import tensor_of
from ....sym.expr import Const, Eq, Expr, Lt, Ne, Select, const
from ....sym.prove import prove
from ....sym.simplify import simplify
from ..emit import ops
from ..fold import size_of
from ..items import Known, known
from ..multiples import fit_text
from ..node_context import NodeContext
from ..registry import rule


@rule("Shape")
def shape(site: NodeContext) -> Any:
    """Imports Shape: the shape, or a range of it, as a known tensor of symbolic extents."""
    dims, rank = site.tensor(0).shape, site.rank(0)
    start, end = site.integer("start", 0), site.integer("end", rank)
    return known(np.array([*dims, None], object)[:-1][slice(start, end)])


@rule("Size")
def size(site: NodeContext) -> Any:
    """Imports Size: the number of elements, as a known tensor."""
    return size_of(site.tensor(0).shape)


@rule("Reshape")
def reshape(site: NodeContext) -> Any:
    """Imports Reshape; 0 keeps a dim (unless allowzero), -1 is inferred."""
    from ....sym.expr import product

    old = site.shape(0)
    total = simplify(product(site.tensor(0).shape))
    wanted = (site.ints("shape", []) if site.version < 5 else _wanted(site, total)) or []
    keep = not site.integer("allowzero", 0)
    final = []
    for k, n in enumerate(wanted):
        if n == 0 and isinstance(n, int) and keep:
            site.require(k < len(old), f"dim {k} is to be kept, and the operand has {len(old)}")
            n = old[k]
        site.require(not isinstance(n, int) or n >= -1, f"the shape {wanted}")
        final.append(n)
    site.require(sum(isinstance(n, int) and n == -1 for n in final) <= 1, f"more than one -1 in the shape {wanted}")
    if -1 in final and any(isinstance(n, int) and n == 0 for n in final):
        site.require(keep is True, "-1 and 0 together")
    return ops.reshape(site.x(0), final)


def _wanted(site: NodeContext, total: Any) -> list[Any]:
    """Returns the target shape of a Reshape: known extents, or new dims that are bound at run time."""
    item = site.item(1)
    return site.dims(1) if isinstance(item, Known) else _at_run_time(site, total)


def _at_run_time(site: NodeContext, total: Any) -> list[Any]:
    """Returns new dims for a shape that is known only at run time; each is at most the number of elements.

    Raises NeededError if the length of the shape is not known.
    """
    from ....dtype import i64

    length = site.shape(1)
    if len(length) != 1 or not isinstance(length[0], int) or total is const(0):  # the bound fails for 0 elements: dims can be anything
        raise site.importer.needed(site, 1)
    wanted: Any = site.x(1) if site.dtype(1) is i64 else ops.cast(site.x(1), i64)
    old = site.tensor(0).shape
    extents = []
    for k in range(length[0]):
        n: Any = ops.reshape(ops.slice(wanted, 0, k, k + 1), ())
        if k < len(old) and not site.integer("allowzero", 0):
            n = ops.where(ops.equal(n, 0), old[k], n)
        extents.append(n)
    rest: Any = None
    for n in extents:
        size = ops.where(ops.less(n, 0), 1, n)
        rest = size if rest is None else ops.mul(rest, size)
    whole = [ops.where(ops.less(n, 0), ops.floor_divide(ops.add(total, 0), rest), n) for n in extents]
    return [ops.bind_dim(n, most=total).annotation.value for n in whole]


@rule("Transpose")
def transpose(site: NodeContext) -> Any:
    """Imports Transpose: permutes the axes; reverses them without `perm`."""
    rank = site.rank(0)
    order = site.ints("perm", None)
    order = list(reversed(range(rank))) if order is None else order
    site.require(sorted(order) == list(range(rank)), f'attribute "perm" is {order}, and the operand has {rank} dims')
    return ops.permute(site.x(0), order)


@rule("Concat")
def concat(site: NodeContext) -> Any:
    """Imports Concat: concatenates tensors along an axis."""
    axis = site.axis("axis", site.rank(0), 1 if site.version < 4 else None)
    operands = site.xs()
    for k in range(1, len(operands)):
        for at, (m, n) in enumerate(zip(site.tensor(k).shape, site.tensor(0).shape, strict=False)):
            fits = simplify(Eq(m, n))
            if at != axis and not isinstance(fits, Const) and not prove(fits):
                # The condition that the operator has anyway, in the words of the model.
                message = f"onnx: {site}: dim {at} of input {k} is {{0}}, that of input 0 is {{1}}"
                site.importer.builder.require(fits, message, (m, n), fit_text(m, n))
    return ops.concat(operands, axis)


@rule("Flatten")
def flatten(site: NodeContext) -> Any:
    """Imports Flatten: a matrix in which the dims before an axis are rows, those from it on are columns."""
    rank, axis = site.rank(0), site.integer("axis", 1)
    site.require(-rank <= axis <= rank, f"axis {axis} of a tensor with {rank} dims")
    dims, at = site.tensor(0).shape, axis + rank if axis < 0 else axis
    rows, columns = const(1), const(1)
    for n in dims[:at]:
        rows = simplify(rows * n)  # type: ignore[assignment]
    for n in dims[at:]:
        columns = simplify(columns * n)  # type: ignore[assignment]
    return ops.reshape(site.x(0), (rows, columns))


def axes_of(site: NodeContext, k: int = 1) -> list[int] | None:
    """Returns the axes of the attribute, or of input `k`; None if there are neither."""
    axes = site.ints("axes", None)
    return site.known_ints(k) if axes is None and site.has(k) else axes


@rule("Squeeze")
def squeeze(site: NodeContext) -> Any:
    """Imports Squeeze: removes dims of extent 1: the given ones, or all. A symbolic dim is checked at run time."""
    axes, rank, dims = axes_of(site), site.rank(0), site.tensor(0).shape
    wanted = _ones(site) if axes is None else {site.normal(a, rank) for a in axes}
    for a in wanted:
        site.require(not isinstance(dims[a], Const) or dims[a] is const(1), f"axis {a} has {dims[a]} elements")
    x = site.x(0)
    if any(dims[a] is not const(1) for a in wanted):
        single = Tensor(site.dtype(0), tuple(const(1) if k in wanted else n for k, n in enumerate(dims)))
        x = site.importer.builder.match_cast(x, single, f"onnx: {site}: a dim to squeeze is not 1")
    return ops.reshape(x, [n for k, n in enumerate(dims) if k not in wanted])


def _ones(site: NodeContext) -> set[int]:
    """Returns the axes of extent 1, which a Squeeze without axes removes.

    The rank of the result depends on each symbolic dim that may be 1. If the model declares a rank that needs all of them removed, they
    are assumed to be 1; otherwise they are assumed not to be 1, with a run-time check.
    """
    dims = site.tensor(0).shape
    removed = {k for k, n in enumerate(dims) if n is const(1)}
    unknown = [k for k, n in enumerate(dims) if not isinstance(n, Const) and not prove(Lt(const(1), n))]
    declared = site.importer.declared_rank(site.node.output[0], site.scope)
    if unknown and declared is not None and declared == len(dims) - len(removed) - len(unknown):
        removed.update(unknown)
        return removed
    for k in unknown:
        site.check(Ne(dims[k], const(1)), f"dim {k} of the operand is 1, and the rank of the result depends on it")
    return removed


@rule("Unsqueeze")
def unsqueeze(site: NodeContext) -> Any:
    """Imports Unsqueeze: inserts dims of extent 1."""
    axes = axes_of(site) or []
    rank = site.rank(0) + len(axes)
    wanted = {site.normal(a, rank) for a in axes}
    site.require(len(wanted) == len(axes), f"the axes {axes}")
    rest = iter(site.shape(0))
    return ops.reshape(site.x(0), [1 if k in wanted else next(rest) for k in range(rank)])


@rule("Expand")
def expand(site: NodeContext) -> Any:
    """Imports Expand: broadcasts with a shape, in both directions: a 1 in the shape keeps the dim of the operand."""
    wanted = site.dims(1)
    old = site.tensor(0).shape
    rank = max(len(wanted), len(old))
    new = [const(1)] * (rank - len(wanted)) + [n if isinstance(n, Expr) else const(n) for n in wanted]
    wide = (const(1),) * (rank - len(old)) + tuple(old)
    final = [_broadcast(n, m) for n, m in zip(wide, new, strict=True)]
    return site.item(0) if tuple(final) == tuple(old) else ops.expand(site.x(0), final)


def _broadcast(n: Expr, m: Expr) -> Expr:
    """Returns the broadcast extent of two dims."""
    if m is const(1) or n is m:
        return n
    if n is const(1) or isinstance(m, Const):
        return m
    return simplify(Select(Eq(m, const(1)), n, m))


@rule("Tile")
def tile(site: NodeContext) -> Any:
    """Imports Tile: repeats a tensor along each axis."""
    if site.version < 6:
        times = [1] * site.rank(0)
        times[site.normal(int(site.number(2)), site.rank(0))] = int(site.number(1))
        return ops.tile(site.x(0), times)
    repeats = site.dims(1)
    site.require(len(repeats) == site.rank(0), f"{len(repeats)} repeats for {site.rank(0)} dims")
    return ops.tile(site.x(0), repeats)


@rule("DepthToSpace", "SpaceToDepth")
def blocks(site: NodeContext) -> Any:
    """Imports DepthToSpace and SpaceToDepth: moves channels to blocks of pixels, or back."""
    block = site.integer("blocksize", 0)
    site.require(block >= 1, f'attribute "blocksize" is {block}')
    if site.op == "SpaceToDepth":
        return space_to_depth(site, block)
    return ops.depth_to_space(site.x(0), block, site.text("mode", "DCR", "DCR", "CRD"))


def space_to_depth(site: NodeContext, block: int) -> Any:
    """Moves blocks of pixels to channels, with the pixel (DCR) or the channel (CRD) as the outer index."""
    if site.text("mode", "DCR", "DCR", "CRD") == "DCR":
        return ops.space_to_depth(site.x(0), block)
    site.require(site.rank(0) == 4, f"the operand has {site.rank(0)} dims, 4 are expected")
    n, c, h, w = site.tensor(0).shape
    parts = ops.reshape(site.x(0), (n, c, h // block, block, w // block, block))
    moved = ops.permute(parts, (0, 1, 3, 5, 2, 4))
    return ops.reshape(moved, (n, simplify(c * (block * block)), simplify(h // block), simplify(w // block)))


@rule("Trilu")
def trilu(site: NodeContext) -> Any:
    """Imports Trilu: the upper or lower triangle of matrices."""
    k = int(site.number(1)) if site.has(1) else 0
    x = site.x(0)
    make = ops.triu if site.integer("upper", 1) else ops.tril
    return ops.cast(make(ops.cast(x, "u8"), k), "bool") if tensor_of(x.annotation).dtype.name == "bool" else make(x, k)


@rule("BitCast")
def bit_cast(site: NodeContext) -> Any:
    """Imports BitCast: reinterprets the bits as another dtype."""
    item, to = site.item(0), site.dtype_attribute("to")
    if isinstance(item, Known) and not item.symbolic:
        return Known(item.array.view(to.numpy()), to)
    return ops.bit_cast(site.x(0), to)
