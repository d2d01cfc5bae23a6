"""Packed weights: which operands of a product or convolution may be packed, and the index maps that say how.

    packs(block, load, column, 16)        # lambda k, n: (n // 16, k, n % 16) for c[i, j] += a[i, k] * b[k, j]

A product reads its right-hand side vector by vector along the columns, whichever way it was stored. So the rules want packs of columns,
each with all of its rows, contiguous in memory. With packs of one vector (the default) a panel of columns is a few sequential streams, and
the same packs serve tiles of any width, hence any number of rows. Wider packs mean fewer streams, and need tiles of whole packs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...loop.analysis.nests import accesses, blocks, plain_iters
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, Func, Reduce
from ...sym.expr import Const, Mul, Var, free_vars
from ...sym.index_map import IndexMap
from ...sym.walk import walk
from ...target import Target
from .record import Packing


def packing(
    func: Func, block: Block, side: tuple[Load, Var] | None, target: Target, vectors: Sequence[int] = (1,)
) -> dict[Buffer, Packing]:
    """Return the layouts of the operand that is read along the columns: packs of 1 or more vectors (`vectors`), one vector by default.

    Empty if `side` is None or the operand may not be packed.
    """
    lanes = target.vector_bits // _result(block).dtype.bits if side is not None else 0
    if side is None or not may_be_packed(func, block, *side, lanes):
        return {}
    widths = [lanes * v for v in vectors if may_be_packed(func, block, *side, lanes * v)]
    return {side[0].buffer: Packing({width: packs(block, *side, width) for width in widths}, lanes)}


def _result(block: Block) -> Load:
    assert isinstance(block.body, Reduce)
    return block.body.targets[0]


def right_side(block: Block) -> tuple[Load, Var] | None:
    """Return the load of a product's right-hand side and the column, the last index of the result.

    None unless one factor alone depends on the column, and is one tensor element at plain iterators.
    """
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or len(s.targets) != 1 or not isinstance(s.values[0], Mul):
        return None
    out = plain_iters(s.targets[0].indices, block)
    if not out:
        return None
    column = out[-1]
    wide = [f for f in s.values[0].args if column in free_vars(f)]
    loads = {e for f in wide for e in walk(f) if isinstance(e, Load)}
    if len(wide) != 1 or len(loads) != 1:
        return None
    load = loads.pop()
    iters = plain_iters(load.indices, block)
    return (load, column) if iters and column in iters else None


def may_be_packed(func: Func, block: Block, load: Load, column: Var, lanes: int) -> bool:
    """True if an operand may be packed: an input of constant shape, bytes or wider, that only this product reads, with `lanes` columns.

    It must also be indexed by a reduction iterator, and `lanes` must be at least 2.
    """
    buffer = load.buffer
    if buffer not in func.buffers or func.role(buffer) != "in" or buffer.strides is not None or buffer.dtype.bits < 8:
        return False
    if not all(isinstance(e, Const) for e in buffer.shape) or lanes < 2:
        return False
    if any(a.buffer is buffer for b in blocks(func.body) if b is not block for a in accesses(b)):
        return False
    width = buffer.shape[load.indices.index(column)]
    reduced = [i.var for i in block.iters if i.kind == "R"]
    return isinstance(width, Const) and width.value >= lanes and any(v in load.indices for v in reduced)


def packs(block: Block, load: Load, column: Var, lanes: int) -> IndexMap:
    """Return the map to packs of `lanes` columns: batch dims, then the pack, the reduced dims, and the column inside the pack."""
    inputs = tuple(Var(f"d{n}") for n in range(load.buffer.ndim))
    named = dict(zip(load.indices, inputs, strict=True))
    summed = [named[i.var] for i in block.iters if i.kind == "R" and i.var in named]
    others = [v for i, v in named.items() if i is not column and v not in summed]
    at = named[column]
    return IndexMap(inputs, (*others, at // lanes, *summed, at % lanes))
