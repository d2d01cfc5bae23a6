"""Row fusion: decides whether reductions over the same rows, and the programs between them, can be one kernel (as in layer norm).

    mean[i] = sum of x[i, k] / m; c[i, j] = x[i, j] - mean[i]; var[i] = sum of c[i, k]^2 / m      # rows: (n,)

The rows are the leading dims of a result, without dims of 1. Reductions run along the dims after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import Access, accesses, blocks, plain_iters
from ...loop.buffer import Buffer
from ...loop.stmt import Block, Func, Reduce, Store
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars

Extents = tuple[Expr, ...]


def rows_of(func: Func) -> Extents | None:
    """Returns the extents of the rows that all reductions of a program share; None if they differ or there are no reductions."""
    sums = [b for b in blocks(func.body) if any(i.kind == "R" for i in b.iters)]
    candidates = {_own_rows(func, b) for b in sums}
    rows = candidates.pop() if len(candidates) == 1 else None
    if not rows:
        return None
    by_rows = all(_row_iters(func, b, rows) is not None for b in blocks(func.body))
    return rows if by_rows and all(_along_rows(func, b, rows) for b in sums) else None


def reads_by_rows(func: Func, position: int, rows: Extents) -> bool:
    """True if each row that a program computes reads only the same row of its input at `position`."""
    buffer = [p for p in func.params if p.role != "out"][position].value
    if not isinstance(buffer, Buffer):
        return False
    for b in blocks(func.body):
        own = _row_iters(func, b, rows)
        if own is None or any(a.buffer is buffer and _leading(a, len(rows)) != own for a in accesses(b)):
            return False
    return True


def has_rows(shape: Sequence[Expr], rows: Extents) -> bool:
    """True if the leading dims of a shape, without dims of 1, are the rows."""
    return tuple(e for e in shape if not _is_one(e))[: len(rows)] == rows


def _own_rows(func: Func, block: Block) -> Extents | None:
    """Returns the extents of a reduction's result without dims of 1; None if the block is not such a reduction."""
    iters = _iters(func, block)
    return None if iters is None else tuple(e for _, e in iters)


def _row_iters(func: Func, block: Block, rows: Extents) -> tuple[Expr, ...] | None:
    """Returns the iterators of a block that run over the rows; None if its result does not have these rows."""
    iters = _iters(func, block)
    if iters is None or tuple(e for _, e in iters[: len(rows)]) != rows:
        return None
    return tuple(v for v, _ in iters[: len(rows)])


def _iters(func: Func, block: Block) -> list[tuple[Var, Expr]] | None:
    """Returns the iterators that index the result of a block, in order, with their extents, without those of extent 1.

    None if the block does not store at its iterators, or its loops are not plain.
    """
    loops, body = plain_loops(func, block), block.body
    if isinstance(loops, Refusal) or not isinstance(body, Store | Reduce):
        return None
    order = plain_iters(body.indices if isinstance(body, Store) else body.targets[0].indices, block)
    return None if order is None else [(v, loops[v].stop) for v in order if not _is_one(loops[v].stop)]


def _along_rows(func: Func, block: Block, rows: Extents) -> bool:
    """True if each operand with reduced dims has the rows as its leading dims, or does not depend on the row."""
    own = _row_iters(func, block, rows)
    reduced = {i.var for i in block.iters if i.kind == "R"}
    for a in accesses(block):
        if any(not free_vars(e).isdisjoint(reduced) for e in a.indices):
            free = all(free_vars(e).isdisjoint(own or ()) for e in a.indices)
            if not free and _leading(a, len(rows)) != own:
                return False
    return True


def _leading(a: Access, count: int) -> tuple[Expr, ...]:
    """Returns the first `count` indices of an access, without those of dims of 1."""
    kept = [e for e, n in zip(a.indices, a.buffer.shape, strict=True) if not _is_one(n)]
    return tuple(kept[:count])


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1
