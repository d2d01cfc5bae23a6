"""Default rule for reductions over rows: sums, maxima, softmax, norms. All stages of a row run together, one row after the other.

    for i in parallel(n):
        lanes = 0;  for k by LANES: lanes[l] += x[i, k + l]        partial sums in registers, as vectors
        total[i] = the sum of the lanes, by halves
        for j in vector(m): y[i, j] = f(x[i, j], total[i])

A single row, or a reduction of everything, is summed by pieces of constant size that threads share; the sums of pieces are then added in
order. A stage that feeds a reduction is computed in the loop of that reduction, which takes the values from registers.

Sums of products round once per term, by fused multiply-adds, if the machine has them. The number of lanes is a constant of this rule and
not of the machine. So all targets with FMA give the same bits, as do all targets without, and a row alone equals the row in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise, takewhile

from ...loop.analysis.nest_shape import alone, plain_loops, root_nests, untouched
from ...loop.analysis.nests import Access, accesses, allocation, blocks, constant_extent, fed_by, find_block, loops_in, plain_iters
from ...loop.stmt import Block, For, Func, Reduce, Stmt, Store, map_children
from ...support.choices import worth
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.conditions import all_of
from ...sym.expr import Const, Var, free_vars
from ...target import Target
from ..decisions import Decide, shown
from ..schedule import BlockHandle, LoopHandle, Schedule
from .accumulate import IN_LANES, WIDE_IN_LANES, Sizes, begin, cut, cuts_for, most_terms, parts_in_order, widens, with_parts
from .parallelize import fuse_into
from .record import NotApplicable, Rule, Version, required_loops, tried
from .squares import TERMS, WIDE_HALVES

LANES = 64  # default of `lanes`: several vectors on every machine, so that no addition waits for the previous one
FEWEST = 4  # fewest lanes; shorter rows of constant length are no vectors
# The next two are part of the order in which terms are added. The error bounds hold for that order (docs/design/0025), so they are
# constants and not decisions.
IN_F64 = 3  # the last lane additions that are in f64: 8 to 4 to 2 to 1
SHORT_ROW = 256  # a row of at most this constant length adds all lanes in f32: in f64, that takes longer than reading the row
WIDE_LANES = 16  # most lanes of short sums whose terms are in f64: 2 vectors of 512 bits, 8 of 128
PIECE = 16384  # default of `piece`: the fewest elements of a row that are worth handing to a thread


Stages = tuple[str, ...]  # the names of the blocks of consecutive nests


def stages_of(func: Func, block: Block, target: Target) -> Stages | Refusal:
    """Match the last of consecutive nests of one unscheduled block each, if they include a reduction; return the names of all their blocks.

    Returns a Refusal for any other block.
    """
    stages: list[Block] = []
    free = set(untouched(func))
    for nest in root_nests(func):
        inside = blocks(nest)
        if len(inside) == 1 and inside[0] in free:
            stages.append(inside[0])
        elif block in stages:
            break
        else:
            stages = []
    if not stages or stages[-1] is not block or all(i.kind == "S" for b in stages for i in b.iters):
        return Refusal(f"block `{block.name}` is not the last of several nests, or there is no reduction among them")
    return tuple(b.name for b in stages)


def reduction_of(func: Func, block: Block, target: Target) -> Stages | Refusal:
    """Match a block with a reduction iterator, whatever stages follow it: return its name in a tuple, or a Refusal."""
    return (block.name,) if any(i.kind == "R" for i in block.iters) else Refusal(f"block `{block.name}` is no reduction")


def schedule_rows(s: Schedule, names: Stages, decide: Decide) -> str:
    """Fuse the stages `names` into one parallel loop over rows, and vectorize each stage; return text about it.

    Reductions over a single row run in pieces that threads share, if they are long. Raises NotApplicable for ordered iterators, and if no
    reduction can be computed in the loop over rows.
    """
    if not decide.target.has_fma:
        for n in names:
            if any(i.kind == "R" for i in find_block(s.program, n).iters):
                s.annotate(n, "contract", False)
    func = s.program
    inside = [find_block(func, n) for n in names]
    sums = [b for b in inside if any(i.kind == "R" for i in b.iters)]
    for b in inside:
        if any(i.kind == "O" for i in b.iters):
            raise NotApplicable(f"block `{b.name}` has an ordered iterator: its steps come one after the other")
        required_loops(func, b)
    if all(not _repeated(s, b) for b in sums):
        for b in sums:
            if not tried(partial(_pieces, s, decide, b.name)):
                _vectorize(s, decide, b.name)
        one_row = [b.name for b in sums]
        numbers = _chosen(decide, one_row, "lanes", ", in {} lanes") + _chosen(decide, one_row, "piece", ", pieces of {}")
        return f"rows: {_listed(one_row)} over one row{numbers}"
    anchor = inside[-1]
    rows = _rows(s, anchor, sums)
    joined = [anchor.name]
    if rows is not None:
        for b in reversed(inside[:-1]):
            if _row_local(find_block(s.program, b.name), rows.each.loop) and tried(partial(s.compute_at, b.name, rows.each)):
                joined.append(b.name)
        s.parallel(rows.shared)
    if not any(b.name in joined for b in sums):
        raise NotApplicable(f"block `{anchor.name}` does not go through the reductions row by row")
    together = [n for n in names if n in joined]
    waiting = list(together)
    while waiting:
        name = waiting.pop(0)
        if waiting and _in_one_loop(s, decide, name, waiting[0]):
            waiting.pop(0)
        else:
            _vectorize(s, decide, name)
    return f"rows: {_listed(together)} together, one row after the other{_chosen(decide, together, 'lanes', ', sums in {} lanes')}"


def short_rows(func: Func, block: Block, decide: Decide) -> Version | None:
    """Return a version of the program without parts for short rows, if rows of dynamic length are summed and nothing is stored along them.

    None otherwise, and for any block but the first that sums such rows. Beginning a part and adding it to the total takes as long as
    reading a row of 64 elements, and so does adding lanes in f64. Rows in this version have at most 64 terms per lane and six lane
    additions; added in f32, they are in the error class of numpy's pairwise sums. A program that stores something for each element of a row
    spends so much time there that a second version does not pay.
    """
    if all(i.kind == "S" for i in block.iters):
        return None
    nests = {b: plain_loops(func, b) for b in blocks(func.body)}
    if any(isinstance(loops, Refusal) for loops in nests.values()):
        return None
    spatial = {b: sum(i.kind == "S" for i in b.iters) for b in nests}
    target = decide.target
    rows = {b: x for b, loops in nests.items() if not isinstance(loops, Refusal) and (x := _row_summed(func, b, loops, target)) is not None}
    if next(iter(rows), None) is not block or any(spatial[b] > min(spatial[r] for r in rows) for b in nests):
        return None
    if not all(spatial[b] for b in rows):
        return None
    guard = all_of(*(x.extent <= _sizes(b, target).part * LANES for b, x in rows.items()))
    return Version(guard, func.with_(body=_in_one_part(func.body, {b.name for b in rows})))


def _row_summed(func: Func, block: Block, loops: dict[Var, For], target: Target) -> For | None:
    """Return the loop along a row if a block sums contiguous elements there, of dynamic length, long enough for parts; else None."""
    reduced = [loops[i.var] for i in block.iters if i.kind == "R"]
    if len(reduced) != 1 or any(i.kind == "O" for i in block.iters) or not _contiguous(block, reduced[0]):
        return None
    cuts = cuts_for(func, block, reduced, LANES, _sizes(block, target))
    return reduced[0] if constant_extent(func, reduced[0]) is None and cuts else None


def _in_one_part(s: Stmt, names: set[str]) -> Stmt:
    s = map_children(s, lambda x: _in_one_part(x, names))
    return s.with_(annotations={**s.annotations, "parts": (), WIDE_HALVES: 0}) if isinstance(s, Block) and s.name in names else s


def _chosen(decide: Decide, names: Iterable[str], what: str, text: str) -> str:
    """Return text with the values that were decided for some blocks; "" if there was nothing to decide."""
    decisions = (decide.kernel.made.get(f"{name}.{what}") for name in names)
    values = sorted({shown(d.value) for d in decisions if d is not None})
    return text.format(" or ".join(values)) if values else ""


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


@dataclass(frozen=True, slots=True)
class Rows:
    """A record of the loops over rows: the one that threads share, and the innermost one; usually one and the same."""

    shared: LoopHandle
    each: LoopHandle


def _rows(s: Schedule, anchor: Block, sums: list[Block]) -> Rows | None:
    """Return the loops over rows: the leading spatial loops of the last stage that every reduction has, fused; dims of 1 do not count.

    None if there are none. Reorders the loops of the last stage, rows first; raises NotApplicable if its store is not indexed by its
    iterators.
    """
    store = anchor.body
    target = store.targets[0] if isinstance(store, Reduce) else None
    indices = target.indices if target is not None else getattr(store, "indices", ())
    order = plain_iters(indices, anchor)
    if order is None:
        raise NotApplicable(f"what block `{anchor.name}` stores is not indexed by its iterators, each once")
    depth = min(len(_repeated(s, b)) for b in sums)
    loops = _repeated(s, anchor)
    repeated = [v for v in order if v in loops]
    if depth == 0 or len(repeated) < depth:
        return None
    handles = {h.loop: h for h in s.loops(anchor.name)}
    by_iterator = plain_loops(s.program, anchor)
    assert not isinstance(by_iterator, Refusal)
    reduced = [handles[by_iterator[i.var]] for i in anchor.iters if i.kind == "R"]
    nest = [handles[by_iterator[v]] for v in (*repeated, *(v for v in order if v not in loops))]
    if len(nest) + len(reduced) > 1:
        s.reorder(*nest, *reduced)
    return _fused(s, nest[:depth])


def _fused(s: Schedule, loops: list[LoopHandle]) -> Rows:
    """Fuse the loops over rows, or as many neighbors as it is proven for: of three unknown extents, for example, not always all."""
    for count in range(len(loops), 1, -1):
        for first in range(len(loops) - count + 1):
            fused: list[LoopHandle] = []
            if tried(partial(fuse_into, s, loops[first : first + count], fused)):
                return Rows(fused[0], (fused + loops[first + count :])[-1])
    return Rows(loops[0], loops[-1])


def _repeated(s: Schedule, block: Block) -> dict[Var, For]:
    """Return the loops of a block's spatial iterators that have more than one iteration."""
    loops = plain_loops(s.program, block)
    assert not isinstance(loops, Refusal)
    return {i.var: loops[i.var] for i in block.iters if i.kind == "S" and constant_extent(s.program, loops[i.var]) != 1}


def _row_local(block: Block, rows: For) -> bool:
    """True if different rows read different parts of a block's result: inside the row loop, the block computes nothing twice."""
    target = next((a.buffer for a in accesses(block) if a.write), None)
    inner = {x.var for x in loops_in(rows.body)}
    accessed = set()
    for b in blocks(rows):
        for a in accesses(b):
            if a.buffer is target and not a.write:
                over = a.over_loops()
                accessed.add(tuple((n, e) for n, e in enumerate(over) if rows.var in free_vars(e)))
                if any(not free_vars(e).isdisjoint(inner) for e in over if rows.var in free_vars(e)):
                    return False
    return len(accessed) == 1 and accessed != {()}


def _vectorize(s: Schedule, decide: Decide, name: str) -> None:
    """Vectorize one stage of a row: along the row, a reduction in lanes. A sum that cannot use lanes is summed in parts if it is long."""
    if not _in_vectors(s, decide, name) and isinstance(find_block(s.program, name).body, Reduce):
        tried(partial(s.contract, name))
        tried(partial(parts_in_order, s, name, decide.target))


def _in_vectors(s: Schedule, decide: Decide, name: str) -> bool:
    """Vectorize one stage of a row-wise reduction; return False if no primitive could."""
    block = find_block(s.program, name)
    inner = alone(s.program, block)
    flat = _flat(block, inner)
    if len(flat) > 1 and isinstance(block.body, Reduce):
        handles = {h.loop: h for h in s.loops(name)}
        return tried(partial(_flat_lanes, s, decide, name, [handles[x] for x in flat]))
    if not inner or inner[-1].kind != "serial" or not _contiguous(block, inner[-1]):
        return False
    last = next(h for h in s.loops(name) if h.loop is inner[-1])
    kinds = fed_by(block, last.loop)
    if kinds == {"S"}:
        return tried(partial(s.vectorize, last))
    return kinds == {"R"} and isinstance(block.body, Reduce) and tried(partial(_lanes, s, decide, name, last))


def _in_one_loop(s: Schedule, decide: Decide, name: str, following: str) -> bool:
    """Fuse an elementwise stage into the loop of the row reduction that reads it, with the same lanes; return True if it was done."""
    first, second = (find_block(s.program, n) for n in (name, following))
    along, over = (alone(s.program, b) for b in (first, second))
    if not isinstance(first.body, Store) or not isinstance(second.body, Reduce) or len(along) != 1 or len(over) != 1:
        return False
    reads = any(a.buffer is first.body.buffer and not a.write for a in accesses(second))
    if not reads or not _contiguous(first, along[0]) or not _contiguous(second, over[0]) or fed_by(second, over[0]) != {"R"}:
        return False
    return tried(partial(_lanes, s, decide, following, s.loops(following)[-1], s.loops(name)[-1]))


def _lanes(s: Schedule, decide: Decide, name: str, loop: LoopHandle, before: LoopHandle | None = None) -> BlockHandle:
    """Sum in lanes: partial sums in registers, which are then added by halves, 64 to 32 to … to 1. Return the block that stores the total.

    `before` is the loop of an elementwise stage that is joined with the loop of the sum. Long sums are in parts, each summed in this way.
    The last halves, and the sum of the parts, are in f64 if the machine has it: these few additions round the most. Rows that are known to
    be short are added in f32 (`short_rows` says why). Raises ScheduleError if there are too few elements for FEWEST lanes.
    """
    lanes = _number_of_lanes(constant_extent(s.program, loop.loop))
    if find_block(s.program, name).annotations.get(TERMS) == "f64":
        lanes = min(lanes, WIDE_LANES)
    if lanes < FEWEST:
        raise ScheduleError(f"block `{name}` sums too few elements for lanes")
    lanes = _choose_lanes(s, decide.of(name), lanes)
    above = s.loops(name)
    reduced = [h for h in above if fed_by(find_block(s.program, name), h.loop) == {"R"}]
    at = above[above.index(reduced[0]) - 1] if above.index(reduced[0]) else None
    wide = _wide_halves(s.program, name, [h.loop for h in reduced]) if widens(find_block(s.program, name), decide.target) else 0
    with s.attempt():
        tried(partial(s.contract, name))
        loops = cut(s, name, reduced, lanes, _sizes(find_block(s.program, name), decide.target))
        if before is not None:
            factors = [int(h.loop.stop.value) for h in loops.loops[1:] if isinstance(h.loop.stop, Const)]
            *beside, each = s.split(before, None, *factors)
            for first, second in zip(beside, loops.loops[:-1], strict=True):
                s.join(first, second)
            s.vectorize(each)
        parts = with_parts(s, name, loops, "register")
        inside = loops.parts[-1] + 1 if loops.parts else 0
        around = loops.loops[inside - 1] if loops.parts else at
        total = s.rfactor(name, loops.loops[-1], around, scope="register")
        s.vectorize(loops.loops[-1])
        begin(s, name, loops.loops[inside], ())
        halves = _by_halves(s, total, lanes, around)
        written: BlockHandle = s.cache_write(parts[-1].total if parts else halves[-1], at, scope="register")
        _begin_total(s, halves[-1])
        for block in (*halves[-wide:], *(p.total for p in parts)) if wide else ():
            s.widen(block)  # before `begin`, which may make a second copy of them for the last part
        for p, following in pairwise(parts):
            begin(s, p.total.block.name, following.terms, ())
        if parts:
            begin(s, parts[-1].total.block.name, loops.loops[0], ())
    return written


def _wide_halves(func: Func, name: str, reduced: list[For]) -> int:
    """Return how many of the last additions across lanes are in f64: the annotation's number, else 0 for short rows, IN_F64 for others."""
    usual = 0 if most_terms(func, reduced) <= SHORT_ROW else IN_F64
    return int(find_block(func, name).annotations.get(WIDE_HALVES, usual))


def _by_halves(s: Schedule, total: BlockHandle, lanes: int, at: LoopHandle | None) -> list[BlockHandle]:
    """Add `lanes` lanes by halves; return the blocks of these additions, which make 32, …, 2, 1 sums."""
    halves: list[BlockHandle] = []
    while lanes > 2:
        lanes //= 2
        half, lane = s.split(s.loops(total)[-1], None, lanes)
        following = s.rfactor(total, lane, at, scope="register")
        s.vectorize(lane)
        s.begin_reduction(total, half)
        s.unroll(half)
        halves.append(total)
        total = following
    return [*halves, total]


def _begin_total(s: Schedule, total: BlockHandle) -> None:
    """Hoist the init out of the sum of the last lanes, and unroll that sum.

    A minimum or maximum starts with the first lane instead of its init.
    """
    last = s.loops(total)[-1]
    summed = total.block.body
    extreme = isinstance(summed, Reduce) and summed.combiner.name in ("min", "max")
    if not extreme or not tried(partial(s.begin_reduction, total, last)):  # a sum keeps its init 0.0, so that it is never -0.0
        s.decompose_reduction(total, last)
    s.unroll(last)


def _pieces(s: Schedule, decide: Decide, name: str) -> None:
    """Sum one long row by pieces that threads share, then add the sums of pieces in order; raise ScheduleError for a short row.

    The pieces do not depend on the number of threads, so neither do the bits of the result.
    """
    with s.attempt():
        block = find_block(s.program, name)
        handles = {h.loop: h for h in s.loops(name)}
        flat = [handles[x] for x in _flat(block, alone(s.program, block))]
        if not flat:
            raise ScheduleError(f"block `{name}` does not read contiguous memory")
        row = s.fuse(*flat) if len(flat) > 1 else flat[0]
        extent = constant_extent(s.program, row.loop)
        if extent is not None and worth(extent <= 2 * PIECE):
            raise ScheduleError(f"block `{name}` sums too few elements for threads")
        size = decide.of(name)("piece", (PIECE // 2, PIECE, 2 * PIECE), PIECE, reorders=True, why="the fewest elements that a thread takes")
        piece, inside = s.split(row, size)
        total = s.rfactor(name, piece, scope="workspace")
        wide = widens(total.block, decide.target)
        written = _lanes(s, decide, name, inside)
        s.parallel(piece)
        if wide:  # the sums of pieces stay in f64, and are added in it
            s.widen(written)
            if any(a.write and allocation(s.program, a.buffer) is None for a in accesses(total.block)):
                s.cache_write(total, None, scope="stack")
            s.widen(total)
        tried(partial(_lanes, s, decide, total.block.name, s.loops(total)[-1]))


def _flat_lanes(s: Schedule, decide: Decide, name: str, loops: list[LoopHandle]) -> None:
    """Sum in lanes over several contiguous loops, or over as many of the innermost ones as provably fuse into one loop."""
    for first in range(len(loops) - 1):
        if tried(partial(_fused_lanes, s, decide, name, loops[first:])):
            return
    _lanes(s, decide, name, loops[-1])


def _fused_lanes(s: Schedule, decide: Decide, name: str, loops: list[LoopHandle]) -> None:
    with s.attempt():
        _lanes(s, decide, name, s.fuse(*loops))


def _flat(block: Block, inner: list[For]) -> list[For]:
    """Return the innermost reduction loops over which every access of a block is contiguous as a whole."""
    iters = {i.value: i for i in block.iters}
    loops = list(takewhile(lambda x: x.kind == "serial" and x.var in iters and iters[x.var].kind == "R", reversed(inner)))[::-1]
    while loops and not all(_in_one_piece(a, loops) for a in accesses(block)):
        loops = loops[1:]
    return loops


def _in_one_piece(a: Access, loops: list[For]) -> bool:
    """True if an access does not depend on the loops, or has them as its last indices, each over the whole of its dim."""
    over, vars_ = a.over_loops(), [x.var for x in loops]
    if all(free_vars(e).isdisjoint(vars_) for e in over):
        return True
    whole = all(x.stop is n for x, n in zip(loops, a.buffer.shape[-len(loops) :], strict=False))
    leading = all(free_vars(e).isdisjoint(vars_) for e in over[: -len(loops)])
    return a.buffer.strides is None and list(over[-len(loops) :]) == vars_ and whole and leading


def _sizes(block: Block, target: Target) -> Sizes:
    return WIDE_IN_LANES if widens(block, target) else IN_LANES


def _choose_lanes(s: Schedule, decide: Decide, best: int) -> int:
    """Decide the number of lanes of a sum along a row: the default, or half of it."""
    body = find_block(s.program, decide.block).body
    adds = isinstance(body, Reduce) and body.combiner.name not in ("min", "max")
    why = "several vectors on every machine, so that additions do not wait for each other"
    lanes: int = decide("lanes", (best // 2, best) if best // 2 >= FEWEST else (best,), best, reorders=adds, why=why)
    return lanes


def _number_of_lanes(extent: int | None) -> int:
    """Return the number of lanes: LANES, or as many as a row of constant length fills at least twice."""
    lanes = LANES
    while extent is not None and extent < 2 * lanes:
        lanes //= 2
    return lanes


def _contiguous(block: Block, loop: For) -> bool:
    """True if the loop's variable occurs in the block's accesses, and only in last indices; dims of extent 1 are ignored."""
    contiguous = False
    for a in accesses(block):
        over = [e for e, size in zip(a.over_loops(), a.buffer.shape, strict=True) if not (isinstance(size, Const) and size.value == 1)]
        if not over or all(loop.var not in free_vars(e) for e in over):
            continue
        if loop.var not in free_vars(over[-1]) or any(loop.var in free_vars(e) for e in over[:-1]):
            return False
        contiguous = True
    return contiguous


ROWS = Rule("rows", "rows", stages_of, schedule_rows, version=short_rows)
ONE_REDUCTION = Rule("rows", "single reductions", reduction_of, schedule_rows)
