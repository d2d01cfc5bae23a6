"""Default rule for elementwise programs: maps, broadcasts, copies, transposes, gathers; one nest of spatial loops.

for i, j: y[i, j] = f(x[i, j])      for c in parallel(n * m // 1024): for e in vector(1024): …     all accesses go through memory in order
                                    for i in parallel(n): for j in vector(m): …                    something is broadcast or permuted

The vector loop fuses as many innermost loops as all accesses traverse contiguously: `h * w` for images whose channels get a bias. If some
loops remain outside, they must have enough iterations for threads to share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

from ...loop.analysis.block_kind import along, elementwise
from ...loop.analysis.nests import blocks, constant_extent, find_block, has_block, plain_iters
from ...loop.buffer import Load
from ...loop.stmt import Block, For, Func, Store
from ...support.choices import worth
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import Const, Expr, Var, free_vars
from ...sym.walk import rewrite, walk
from ...target import Target
from ..decisions import Decide
from ..primitives.loops import fuse
from ..schedule import LoopHandle, Schedule
from .parallelize import fuse_into, share
from .record import NotApplicable, Promotable, Rule, required_loops, tried

CHUNK = 1024  # default of `chunk`: elements of a flat loop that a thread takes at a time, so that a chunk fits the L1 cache
CHUNKS = (256, 512, 1024, 2048, 4096)  # choices of `chunk`
STEP = 32  # default of `rest_step`: elements per vector loop of constant size in the remainder of a dynamic loop
STEPS = (16, 32, 64)  # choices of `rest_step`
SHORT = 8  # a row of fewer elements is no whole vector on most machines; the default of `shared` depends on it
SHARED = 16  # iterations of the outer loops that threads need at least, if a row is fused from several loops; bounds `vector_from`


def elementwise_of(func: Func, block: Block, target: Target) -> Store | Refusal:
    """Match an elementwise block, one store over S (spatial) iterators: return the store, or a Refusal."""
    return elementwise(block) or Refusal(f"block `{block.name}` is not one store over S iterators")


def schedule_elementwise(s: Schedule, store: Store, decide: Decide) -> str:
    """Vectorize an elementwise nest and parallelize it; return text about it.

    If all accesses are contiguous, the whole nest becomes one flat loop; else its innermost loop, along the stored rows, becomes vectors,
    and threads share the outer ones. Raises NotApplicable if no loop runs along the stored rows.
    """
    name = decide.block
    block = find_block(s.program, name)
    loops = required_loops(s.program, block)
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
    if joined or (is_run(block, order) and tried(partial(fuse_into, s, nest, joined))):
        return _flat(s, name, joined[0], decide)
    rows, columns = _rows(s, block, order, nest, decide)
    s.vectorize(columns)
    share(s, rows[: _shared(s, rows, columns, decide)])
    return f"elementwise: `{name}` with vectors along `{columns.loop.var.name}`"


def _rows(
    s: Schedule, block: Block, order: Sequence[Var], nest: Sequence[LoopHandle], decide: Decide
) -> tuple[list[LoopHandle], LoopHandle]:
    """Return the loops for threads and the vector loop: the innermost contiguous loops, fused, if enough iterations remain to share.

    Else the vector loop is the innermost one alone. Where it begins is a decision.
    """
    extents = [constant_extent(s.program, x.loop) or 1 for x in nest]
    runs = [first for first in range(1, len(nest) - 1) if is_run(block, order[first:]) and _is_one_loop(s, nest[first:])]
    best = next((first for first in runs if prod(extents[:first]) >= SHARED), len(nest) - 1)
    why = f"threads share the loops before it: at least {SHARED} iterations"
    first = decide("vector_from", [*runs, len(nest) - 1], best, why=why)
    return list(nest[:first]), nest[-1] if first == len(nest) - 1 else s.fuse(*nest[first:])


def _shared(s: Schedule, rows: Sequence[LoopHandle], columns: LoopHandle, decide: Decide) -> int:
    """Decide how many of the outer loops threads share: all of them, or all but the last one if vectors are short.

    The indices of a fused loop are quotients and remainders. Beside a vector of two elements they take most of the time, so the last loop
    stays a loop there, if threads have enough iterations without it.
    """
    extents = [constant_extent(s.program, h.loop) for h in (*rows, columns)]
    short = extents[-1] is not None and extents[-1] < SHORT and prod(n or SHARED for n in extents[:-2]) >= SHARED
    if len(rows) < 2 or not short:
        return len(rows)
    why = f"vectors of fewer than {SHORT} elements: the last loop stays a loop, and its indices need no division"
    count: int = decide("shared", (len(rows) - 1, len(rows)), len(rows) - 1, kind="sharing", why=why)
    return count


def _is_one_loop(s: Schedule, loops: Sequence[LoopHandle]) -> bool:
    """True if loops provably fuse into one."""
    try:
        fuse(s.program, *(h.loop for h in loops))
    except ScheduleError:
        return False
    return True


def is_run(block: Block, run: Sequence[Var]) -> bool:
    """True if every access is contiguous over these iterators, the last one fastest, or does not depend on them.

    False if the stored value uses one of them other than as an index.
    """
    store = elementwise(block)
    assert store is not None
    extents = store.buffer.shape[-len(run) :]
    places = [
        Load(store.buffer, store.indices),
        *(e for e in walk(store.value) if isinstance(e, Load) and not free_vars(e).isdisjoint(run)),
    ]
    bare = rewrite(store.value, lambda e: Const(0, e.dtype) if isinstance(e, Load) else None)
    return free_vars(bare).isdisjoint(run) and all(_goes_through(e, run, extents) for e in places)


def _goes_through(e: Load, run: Sequence[Var], extents: Sequence[Expr]) -> bool:
    """True if the last indices of an access are exactly these iterators, and the dims behind the first one have their extents."""
    first = e.buffer.ndim - len(run)
    if e.buffer.strides is not None or first < 0 or any(not free_vars(i).isdisjoint(run) for i in e.indices[:first]):
        return False
    plain = all(i is v for i, v in zip(e.indices[first:], run, strict=True))
    return plain and all(a is b for a, b in zip(e.buffer.shape[first + 1 :], extents[1:], strict=True))


def _flat(s: Schedule, name: str, flat: LoopHandle, decide: Decide) -> str:
    """Split a loop over all elements into chunks for threads and vectorize each; return the text for `explain`."""
    extent = constant_extent(s.program, flat.loop)
    chunk = decide("chunk", CHUNKS, CHUNK, why="elements that a thread takes at a time; they fit the L1 cache")
    if extent is not None and worth(extent <= chunk):
        s.vectorize(flat)
        return f"elementwise: `{name}` as one vector loop"
    try:
        chunks, inner = s.split(flat, chunk, tail="cut")
    except ScheduleError:  # dynamic dims: without a predicate on the whole, no proof shows that quotients of the fused index are distinct
        chunks, inner = s.split(flat, chunk)
        s.partition(chunks)
        step = decide("rest_step", STEPS, STEP, why="elements per vector loop of constant size in the remainder")
        s.split(s.loops(f"{name}_rest")[-1], step)
    s.vectorize(inner)
    s.parallel(chunks)
    if has_block(s.program, f"{name}_rest"):
        s.vectorize(s.loops(f"{name}_rest")[-1])
    return f"elementwise: `{name}` as one flat vector loop in chunks of {chunk}"


def promotable(func: Func, block: Block, nest: Mapping[Var, For], decide: Decide) -> Promotable | None:
    """Return all sizes, or no size if the program is only elementwise and its extents decide how loops become vectors and threads.

    None if the block is not elementwise.
    """
    store = elementwise(block)
    if store is None:
        return None
    order = plain_iters(store.indices, block)
    run = order is None or is_run(block, order[-2:])  # the outer extents then decide whether the loops of the run are fused
    some = any(not isinstance(x.stop, Const) for x in nest.values())  # with several dynamic extents, loops do not provably fuse
    own = all(elementwise(b) for b in blocks(func.body))  # not an epilogue of a reduction
    return Promotable(frozenset() if own and (run or some) else frozenset(nest))


ELEMENTWISE = Rule("elementwise", "elementwise", elementwise_of, schedule_elementwise, promotable=promotable)
