"""Programs that go row by row, as fusion asks: several reductions over the same rows are one kernel, with what stands between them.

    mean[i] = sum of x[i, k] / m; c[i, j] = x[i, j] - mean[i]; var[i] = sum of c[i, k]^2 / m      # rows: (n,)

A row is what belongs to the leading dims of a result, those of 1 aside; reductions run along the dims behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...loop.analysis.nests import Access, accesses, blocks, plain_iters
from ...loop.buffer import Buffer
from ...loop.stmt import Block, Func, Reduce, Store
from ...schedule.plain_nest import plain_loops
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars

Extents = tuple[Expr, ...]


def rows_of(func: Func) -> Extents | None:
    """The extents of the rows over which all reductions of a program go; None where they are not of the same rows, or there are none."""
    sums = [b for b in blocks(func.body) if any(i.kind == "R" for i in b.iters)]
    found = {_own_rows(func, b) for b in sums}
    rows = found.pop() if len(found) == 1 else None
    if not rows:
        return None
    by_rows = all(_row_iters(func, b, rows) is not None for b in blocks(func.body))
    return rows if by_rows and all(_along_rows(func, b, rows) for b in sums) else None


def reads_by_rows(func: Func, position: int, rows: Extents) -> bool:
    """Whether each row that a program computes reads that row alone of its argument at `position` (of those that are passed in)."""
    buffer = [p for p in func.params if p.role != "out"][position].value
    if not isinstance(buffer, Buffer):
        return False
    for b in blocks(func.body):
        own = _row_iters(func, b, rows)
        if own is None or any(a.buffer is buffer and _leading(a, len(rows)) != own for a in accesses(b)):
            return False
    return True


def has_rows(shape: Sequence[Expr], rows: Extents) -> bool:
    """Whether a tensor has such rows."""
    return tuple(e for e in shape if not _is_one(e))[: len(rows)] == rows


def _own_rows(func: Func, block: Block) -> Extents | None:
    """The extents of what a reduction gives, without dims of 1."""
    found = _iters(func, block)
    return None if found is None else tuple(e for _, e in found)


def _row_iters(func: Func, block: Block, rows: Extents) -> tuple[Expr, ...] | None:
    """The iterators of a block that run over the rows."""
    found = _iters(func, block)
    if found is None or tuple(e for _, e in found[: len(rows)]) != rows:
        return None
    return tuple(v for v, _ in found[: len(rows)])


def _iters(func: Func, block: Block) -> list[tuple[Var, Expr]] | None:
    """The iterators that index what a block writes, in order, with their extents; those of one round left out."""
    loops, body = plain_loops(func, block), block.body
    if isinstance(loops, Refusal) or not isinstance(body, Store | Reduce):
        return None
    order = plain_iters(body.indices if isinstance(body, Store) else body.targets[0].indices, block)
    return None if order is None else [(v, loops[v].stop) for v in order if not _is_one(loops[v].stop)]


def _along_rows(func: Func, block: Block, rows: Extents) -> bool:
    """Whether what a reduction reads along a row lies behind the row's own indices."""
    own = _row_iters(func, block, rows)
    reduced = {i.var for i in block.iters if i.kind == "R"}
    for a in accesses(block):
        if any(not free_vars(e).isdisjoint(reduced) for e in a.indices):
            free = all(free_vars(e).isdisjoint(own or ()) for e in a.indices)
            if not free and _leading(a, len(rows)) != own:
                return False
    return True


def _leading(a: Access, count: int) -> tuple[Expr, ...]:
    """The first indices of an access, without those of dims of 1."""
    kept = [e for e, n in zip(a.indices, a.buffer.shape, strict=True) if not _is_one(n)]
    return tuple(kept[:count])


def _is_one(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 1
