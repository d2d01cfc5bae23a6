"""Computes what depends on the total of a long sum alone (a mean, a variance) in f64, and rounds it to f32 once.

    mean[vi] = f32(total[0]) / f32(m)    ->    mean[vi] = f32(total[0] / f64(m))

The rules keep such totals in f64. This costs one f64 operation per sum, not per term.
"""

from __future__ import annotations

from ...dtype import f32, f64
from ...loop.analysis.nests import Access, accesses, allocation, blocks, constant_extent, find_block, loops_above, readers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Alloc, Block, Func, Store, walk_stmts
from ...sym.expr import Cast, free_vars
from ...sym.walk import walk
from ..schedule import Schedule


def round_once(s: Schedule, before: Func) -> None:
    """Compute blocks that read nothing but f64 totals in f64, so that they round once; `before` is the program without a schedule.

    Does nothing if that program uses f64 itself.
    """
    allocated = (x.buffer for x in walk_stmts(before.body) if isinstance(x, Alloc))
    if any(getattr(b, "dtype", None) is f64 for b in (*(p.value for p in before.params), *allocated)):
        return  # a cast from f64 may be the user's own rounding, which must stay
    for name in [b.name for b in blocks(s.program.body)]:
        block = find_block(s.program, name)
        store = _of_totals(s.program, block)
        if store is None:
            continue
        if not isinstance(store.value, Cast):
            s.widen(name, buffer=False)
        elif allocation(s.program, store.buffer) is not None and _all_of_it(s.program, store.buffer):
            s.widen(name)  # a copy of the total keeps its width


def _of_totals(func: Func, block: Block, also: Buffer | None = None) -> Store | None:
    """Return the store of a block that runs once per sum and depends on f64 totals (or `also`) alone; else None."""
    body = block.body
    if not isinstance(body, Store) or body.buffer.dtype is not f32 or block.init is not None:
        return None
    loads = [e for e in walk(body.value) if isinstance(e, Load)]
    totals = all(e.buffer is also or e.dtype is f64 for e in loads)
    return body if loads and totals and all(a.write or _once(func, block, a) for a in accesses(block)) else None


def _all_of_it(func: Func, buffer: Buffer) -> bool:
    """True if all readers of a buffer run once per sum; otherwise each reader would round the f64 value for each term."""
    return all(_of_totals(func, b, buffer) is not None for b in readers(func, buffer))


def _once(func: Func, block: Block, a: Access) -> bool:
    """True if each element of a buffer is read once, not for many results."""
    alloc = allocation(func, a.buffer)
    around = loops_above(func, alloc) if alloc is not None else []
    moving = {v for e in a.over_loops() for v in free_vars(e)}
    return all(x in around or x.var in moving or constant_extent(func, x) == 1 for x in loops_above(func, block))
