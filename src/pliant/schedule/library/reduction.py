"""The default rule of programs around reductions of rows: sums, maxima, softmax, norms. One row after the other, all stages of it together.

    for i in parallel(n):
        lanes = 0;  for k by LANES: lanes[l] += x[i, k + l]        partial sums in registers, as vectors
        total[i] = lanes[0] + lanes[1] + …
        for j in vector(m): y[i, j] = f(x[i, j], total[i])

The number of lanes is a constant of this rule, not of the machine: results are the same on every target, and a row alone
equals the row in a batch.
"""

from __future__ import annotations

from ...loop.buffer import Load
from ...loop.stmt import Block, For, Reduce
from ...support.errors import ScheduleError
from ...sym.expr import Var, free_vars, walk
from ...target import Target
from ..nest import accesses, blocks, constant_extent, fed_by, loops_above, plain_iters
from ..schedule import LoopHandle, Schedule
from .match import NotApplicable, elementwise, find_block, plain_loops

LANES = 16


def schedule_rows(s: Schedule, names: list[str], target: Target) -> str:
    """Bring the stages of the nests `names` into one parallel loop over rows, and vectorise each."""
    func = s.program
    inside = [find_block(func, n) for n in names]
    sums = [b for b in inside if any(i.kind == "R" for i in b.iters)]
    if not sums:
        raise NotApplicable("there is no reduction")
    for b in inside:
        problem = plain_loops(func, b)
        if isinstance(problem, str):
            raise NotApplicable(problem)
        if any(i.kind == "O" for i in b.iters):
            raise NotApplicable(f"block `{b.name}` has an ordered iterator")
    anchor = inside[-1]
    rows = _rows(s, anchor, sums)
    joined: list[str] = []
    if rows is not None:
        for b in reversed(inside[:-1]):
            if _row_local(s, find_block(s.program, b.name), rows) and _try(lambda b=b: s.compute_at(b.name, rows)):  # type: ignore[misc]
                joined.append(b.name)
        s.parallel(rows)
    for name in [n for n in names if n in joined or n == anchor.name]:
        _vectorise(s, name, rows)
    stages = ", ".join(f"`{n}`" for n in names if n in joined or n == anchor.name)
    return f"rows: {stages} together, one row after the other, sums in {LANES} lanes"


def _rows(s: Schedule, anchor: Block, sums: list[Block]) -> LoopHandle | None:
    """The loop over rows: the leading S loops of the last stage that every reduction has too, as one."""
    store = anchor.body
    target = store.targets[0] if isinstance(store, Reduce) else None
    indices = target.indices if target is not None else getattr(store, "indices", ())
    order = plain_iters(indices, anchor)
    if order is None:
        raise NotApplicable(f"what block `{anchor.name}` stores is not indexed by its iterators, each once")
    depth = min(sum(i.kind == "S" for i in b.iters) for b in sums)
    if depth == 0 or len(order) < depth:
        return None
    loops = plain_loops(s.program, anchor)
    assert not isinstance(loops, str)
    handles = {h.loop: h for h in s.loops(anchor.name)}
    reduced = [handles[loops[i.var]] for i in anchor.iters if i.kind == "R"]
    nest = [handles[loops[v]] for v in order]
    if len(nest) + len(reduced) > 1:
        s.reorder(*nest, *reduced)
    return s.fuse(*nest[:depth]) if depth > 1 else nest[0]  # type: ignore[no-any-return]


def _row_local(s: Schedule, block: Block, rows: LoopHandle) -> bool:
    """Whether the rows' iterations read different parts of what a block computes, so that nothing is computed twice."""
    target = next(a.buffer for a in accesses(block) if a.write)
    order = plain_iters(next(a.indices for a in accesses(block) if a.write), block) or []
    readers = [a for b in blocks(rows.loop) for a in accesses(b) if a.buffer is target and not a.write]
    split = {n for a in readers for n, e in enumerate(a.over_loops()) if rows.loop.var in free_vars(e)}
    leading = _leading(readers, rows.loop.var)
    return bool(readers) and bool(order) and bool(split) and leading


def _leading(readers: list[object], row: Var) -> bool:
    """Whether all readers use the row in the same way: the same indices depend on it, and on nothing else."""
    found = set()
    for a in readers:
        over = a.over_loops()  # type: ignore[attr-defined]
        used = tuple((n, e) for n, e in enumerate(over) if row in free_vars(e))
        if any(free_vars(e) != {row} and any(v.name != row.name and not _is_dim(v) for v in free_vars(e)) for _, e in used):
            return False
        found.add(used)
    return len(found) == 1


def _is_dim(v: Var) -> bool:
    return type(v).__name__ == "Dim"


def _vectorise(s: Schedule, name: str, rows: LoopHandle | None) -> None:
    """Vectorise one stage of a row."""
    block = find_block(s.program, name)
    inner = [x for x in loops_above(s.program, block) if rows is None or x is not rows.loop]
    inner = [x for x in inner if blocks(x) == [block]]
    if elementwise(block) is not None:
        if inner and _contiguous(block, inner[-1]):
            _try(lambda: s.vectorize(_handle(s, name, inner[-1])))
        return
    last = inner[-1] if inner else None
    if last is None or fed_by(block, last) != {"R"} or not _contiguous(block, last) or not isinstance(block.body, Reduce):
        if last is not None and fed_by(block, last) == {"S"}:
            _try(lambda: s.vectorize(_handle(s, name, last)))
        return
    _try(lambda: _lanes(s, name, _handle(s, name, last), rows))


def _lanes(s: Schedule, name: str, loop: LoopHandle, rows: LoopHandle | None) -> None:
    extent = constant_extent(s.program, loop.loop)
    if extent is not None and extent < 2 * LANES:
        return
    at = next((h for h in reversed(s.loops(name)[: s.loops(name).index(loop)])), None)
    outer, lane = s.split(loop, LANES)
    total = s.rfactor(name, lane, at, scope="register")
    s.vectorize(lane)
    s.decompose_reduction(name, outer)
    if find_block(s.program, name).predicate is not find_block(s.program, f"{name}_init").predicate:
        s.partition(outer)
    copied = s.cache_write(total, at, scope="register")
    summing = s.loops(total)[-1]
    s.unroll(summing)
    s.decompose_reduction(total, summing)
    del copied, rows


def _contiguous(block: Block, loop: For) -> bool:
    """Whether some load or store of the block goes through neighbouring elements with the loop, and none jumps."""
    found = False
    for a in accesses(block):
        over = a.over_loops()
        if not over or all(loop.var not in free_vars(e) for e in over):
            continue
        if loop.var not in free_vars(over[-1]) or any(loop.var in free_vars(e) for e in over[:-1]):
            return False
        found = True
    return found


def _handle(s: Schedule, name: str, loop: For) -> LoopHandle:
    return next(h for h in s.loops(name) if h.loop is loop)


def _try(act: object) -> bool:
    try:
        act()  # type: ignore[operator]
    except ScheduleError:
        return False
    return True


__all__ = ["LANES", "Load", "schedule_rows", "walk"]
