"""The default rule of elementwise programs: maps, broadcasts, copies, transposes, gathers; one nest of S loops.

for i, j: y[i, j] = f(x[i, j])      for c in parallel(n * m // 1024): for e in vector(1024): …     all accesses go through memory in order
                                    for i in parallel(n): for j in vector(m): …                    something is broadcast or permuted
"""

from __future__ import annotations

from ...loop.buffer import Load
from ...loop.stmt import Block
from ...support.errors import ScheduleError
from ...sym.expr import Const, free_vars, rewrite
from ...target import Target
from ..nest import accesses, constant_extent, plain_iters
from ..schedule import LoopHandle, Schedule
from .match import NotApplicable, along, elementwise, find_block, has_block, plain_loops, tried
from .sharing import share

CHUNK = 1024  # elements of a flat loop that are handed out together
STEP = 32  # of what remains of a loop over dims of unknown size


def schedule_elementwise(s: Schedule, name: str, target: Target) -> str:
    """Vectorise the innermost loop of an elementwise nest and share out the others."""
    block = find_block(s.program, name)
    store = elementwise(block)
    if store is None:
        raise NotApplicable(f"block `{name}` is not one store over S iterators")
    loops = plain_loops(s.program, block)
    if isinstance(loops, str):
        raise NotApplicable(loops)
    if not loops:
        return f"elementwise: `{name}` is one element"
    target_load = Load(store.buffer, store.indices)
    order = plain_iters(store.indices, block)
    handles = {h.loop: h for h in s.loops(name)}
    if order is None or len(order) != len(block.iters):
        last = next((i.var for i in block.iters if along(target_load, i.var)), None)
        if last is None:
            raise NotApplicable(f"no loop of block `{name}` runs along the rows of what it stores")
        order = [*(i.var for i in block.iters if i.var is not last), last]
    nest = [handles[loops[v]] for v in order]
    if len(nest) > 1:
        s.reorder(*nest)
    joined: list[LoopHandle] = list(nest) if len(nest) == 1 else []
    if joined or (is_flat(block) and tried(lambda: joined.append(s.fuse(*nest)))):
        return _flat(s, name, joined[0])
    *rows, columns = nest
    s.vectorize(columns)
    share(s, rows)
    return f"elementwise: `{name}` with vectors along `{columns.id.name}`"


def is_flat(block: Block) -> bool:
    """Whether every access is at all iterators in one order, in contiguous buffers of one shape, and nothing else uses the iterators."""
    found = list(accesses(block))
    place, shape = found[0].indices, found[0].buffer.shape
    plain = plain_iters(place, block)
    if plain is None or len(plain) != len(block.iters):
        return False
    if any(a.indices != place or a.buffer.shape != shape or a.buffer.strides is not None for a in found):
        return False
    store = elementwise(block)
    assert store is not None
    bare = rewrite(store.value, lambda e: Const(0, e.dtype) if isinstance(e, Load) else None)
    return free_vars(bare).isdisjoint(plain)


def _flat(s: Schedule, name: str, flat: LoopHandle) -> str:
    extent = constant_extent(s.program, flat.loop)
    if extent is not None and extent <= CHUNK:
        s.vectorize(flat)
        return f"elementwise: `{name}` as one vector loop"
    try:
        chunks, inner = s.split(flat, CHUNK, tail="cut")
    except ScheduleError:  # dims of unknown size: that their quotients are apart is seen as long as a predicate bounds the whole
        chunks, inner = s.split(flat, CHUNK)
        s.partition(chunks)
        s.split(s.loops(f"{name}_rest")[-1], STEP)
    s.vectorize(inner)
    s.parallel(chunks)
    if has_block(s.program, f"{name}_rest"):
        s.vectorize(s.loops(f"{name}_rest")[-1])
    return f"elementwise: `{name}` as one flat vector loop in chunks of {CHUNK}"
