"""The default rule of programs around reductions of rows: sums, maxima, softmax, norms. One row after the other, all stages of it together.

    for i in parallel(n):
        lanes = 0;  for k by LANES: lanes[l] += x[i, k + l]        partial sums in registers, as vectors
        total[i] = the sum of the lanes, by halves
        for j in vector(m): y[i, j] = f(x[i, j], total[i])

One row alone, or everything at once, is summed by pieces of a constant size, which threads share, and then the sums of these in order.
A stage that a reduction comes after is computed in the loop of that reduction, which takes the values out of registers.

Sums of products round once, by fused multiply-adds, where the machine has them. The number of lanes is a constant of this rule, not of
the machine: results are the same on every target that has them, and on every one that has none, and a row alone equals the row in a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import pairwise, takewhile

from ...loop.analysis.nests import Access, accesses, allocation, blocks, constant_extent, fed_by, loops_in, plain_iters
from ...loop.stmt import Block, For, Func, Reduce, Stmt, Store, map_children
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import Const, Var, all_of, free_vars
from ...target import Target
from ..decisions import Decide, shown
from ..plain_nest import plain_loops
from ..schedule import BlockHandle, LoopHandle, Schedule
from .accumulate import IN_LANES, WIDE_IN_LANES, Sizes, begin, cut, cuts_for, most_terms, parts_in_order, widens, with_parts
from .match import alone, find_block, root_nests, untouched
from .record import NotApplicable, Rule, Version, tried
from .squares import TERMS, WIDE_HALVES

LANES = 64  # the default of `lanes`: several vectors on every machine: one sum does not wait for the other
FEWEST = 4  # limit of `lanes`: of a short row, known to be one
# The next two are part of the order in which sums are added, for which errors are bounded (docs/design/0025): no choice of a kernel.
IN_F64 = 3  # of the last additions of lanes: 8 to 4 to 2 to 1
SHORT_ROW = 256  # elements: a row known to be as short takes no longer than to add its lanes in f64
WIDE_LANES = 16  # of short sums in f64: two to eight vectors
PIECE = 16384  # the default of `piece`: elements of one row that a thread takes at least


Stages = tuple[str, ...]  # the blocks of neighboring nests


def stages_of(func: Func, block: Block, target: Target) -> Stages | Refusal:
    """The nests of one block each that end with this one and that no rule has taken yet, if there is a reduction among them."""
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
    """A reduction alone, which does not go together with what follows it."""
    return (block.name,) if any(i.kind == "R" for i in block.iters) else Refusal(f"block `{block.name}` is no reduction")


def schedule_rows(s: Schedule, names: Stages, decide: Decide) -> str:
    """Bring the stages of the nests `names` into one parallel loop over rows, and vectorize each."""
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
        problem = plain_loops(func, b)
        if isinstance(problem, Refusal):
            raise NotApplicable(problem.reason)
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
            if _row_local(find_block(s.program, b.name), rows.loop) and tried(partial(s.compute_at, b.name, rows)):
                joined.append(b.name)
        s.parallel(rows)
    if not any(b.name in joined for b in sums):
        raise NotApplicable(f"block `{anchor.name}` does not go row by row over what is reduced")
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
    """A program without parts for rows that are not long, where rows of unknown length are summed and nothing is stored along them.

    Beginning a part and adding it to the total takes as long as reading a row of 64, and so does adding lanes in f64. These rows have at
    most 64 terms in a lane, and six additions of lanes: added in f32, they are in the error class of numpy's pairwise sums. Programs that
    store something for each element of a row take so long for it that they need no second program.
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
    """The loop along a row, if a block sums neighbors there and may be in parts."""
    reduced = [loops[i.var] for i in block.iters if i.kind == "R"]
    if len(reduced) != 1 or any(i.kind == "O" for i in block.iters) or not _contiguous(block, reduced[0]):
        return None
    cuts = cuts_for(func, block, reduced, LANES, _sizes(block, target))
    return reduced[0] if constant_extent(func, reduced[0]) is None and cuts else None


def _in_one_part(s: Stmt, names: set[str]) -> Stmt:
    s = map_children(s, lambda x: _in_one_part(x, names))
    return s.with_(annotations={**s.annotations, "parts": (), WIDE_HALVES: 0}) if isinstance(s, Block) and s.name in names else s


def _chosen(decide: Decide, names: Iterable[str], what: str, text: str) -> str:
    """What was decided about some blocks, in words; "" where there was nothing to decide."""
    made = (decide.kernel.made.get(f"{name}.{what}") for name in names)
    values = sorted({shown(d.value) for d in made if d is not None})
    return text.format(" or ".join(values)) if values else ""


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def _rows(s: Schedule, anchor: Block, sums: list[Block]) -> LoopHandle | None:
    """The loop over rows: the leading S loops of the last stage that every reduction has too, as one; dims of 1 are no rows."""
    store = anchor.body
    target = store.targets[0] if isinstance(store, Reduce) else None
    indices = target.indices if target is not None else getattr(store, "indices", ())
    order = plain_iters(indices, anchor)
    if order is None:
        raise NotApplicable(f"what block `{anchor.name}` stores is not indexed by its iterators, each once")
    depth = min(len(_repeated(s, b)) for b in sums)
    loops = _repeated(s, anchor)
    kept = [v for v in order if v in loops]
    if depth == 0 or len(kept) < depth:
        return None
    handles = {h.loop: h for h in s.loops(anchor.name)}
    found = plain_loops(s.program, anchor)
    assert not isinstance(found, Refusal)
    reduced = [handles[found[i.var]] for i in anchor.iters if i.kind == "R"]
    nest = [handles[found[v]] for v in (*kept, *(v for v in order if v not in loops))]
    if len(nest) + len(reduced) > 1:
        s.reorder(*nest, *reduced)
    return s.fuse(*nest[:depth]) if depth > 1 else nest[0]


def _repeated(s: Schedule, block: Block) -> dict[Var, For]:
    """The loops of a block's S iterators that have more than one round."""
    loops = plain_loops(s.program, block)
    assert not isinstance(loops, Refusal)
    return {i.var: loops[i.var] for i in block.iters if i.kind == "S" and constant_extent(s.program, loops[i.var]) != 1}


def _row_local(block: Block, rows: For) -> bool:
    """Whether different rows read different parts of what a block computes, so that nothing is computed twice."""
    target = next((a.buffer for a in accesses(block) if a.write), None)
    inner = {x.var for x in loops_in(rows.body)}
    found = set()
    for b in blocks(rows):
        for a in accesses(b):
            if a.buffer is target and not a.write:
                over = a.over_loops()
                found.add(tuple((n, e) for n, e in enumerate(over) if rows.var in free_vars(e)))
                if any(not free_vars(e).isdisjoint(inner) for e in over if rows.var in free_vars(e)):
                    return False
    return len(found) == 1 and found != {()}


def _vectorize(s: Schedule, decide: Decide, name: str) -> None:
    """Vectorize one stage of a row: along the row, a reduction by lanes; a sum that has none is in parts, where it is long."""
    if not _in_vectors(s, decide, name) and isinstance(find_block(s.program, name).body, Reduce):
        tried(partial(s.contract, name))
        tried(partial(parts_in_order, s, name))


def _in_vectors(s: Schedule, decide: Decide, name: str) -> bool:
    """Vectorize one stage, if that can be; whether it was done."""
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
    """Compute a stage in the loop of the reduction along rows after it, by as many lanes; whether that was done."""
    first, second = (find_block(s.program, n) for n in (name, following))
    along, over = (alone(s.program, b) for b in (first, second))
    if not isinstance(first.body, Store) or not isinstance(second.body, Reduce) or len(along) != 1 or len(over) != 1:
        return False
    reads = any(a.buffer is first.body.buffer and not a.write for a in accesses(second))
    if not reads or not _contiguous(first, along[0]) or not _contiguous(second, over[0]) or fed_by(second, over[0]) != {"R"}:
        return False
    return tried(partial(_lanes, s, decide, following, s.loops(following)[-1], s.loops(name)[-1]))


def _lanes(s: Schedule, decide: Decide, name: str, loop: LoopHandle, before: LoopHandle | None = None) -> BlockHandle:
    """Sum in lanes: partial sums in registers, which are then added in halves, 64 to 32 to … to 1; in one loop with that `before`.

    The answer is the block that copies the total from its register.

    Long sums are in parts, of which each is summed like that. The last halves, and the sum of the parts, are in f64 where the machine has
    it: few additions, which round the most. Rows that are known to be short are added in f32 (`short_rows` says why).
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
        found = cut(s, name, reduced, lanes, _sizes(find_block(s.program, name), decide.target))
        if before is not None:
            factors = [int(h.loop.stop.value) for h in found.loops[1:] if isinstance(h.loop.stop, Const)]
            *beside, each = s.split(before, None, *factors)
            for first, second in zip(beside, found.loops[:-1], strict=True):
                s.join(first, second)
            s.vectorize(each)
        parts = with_parts(s, name, found, "register")
        inside = found.parts[-1] + 1 if found.parts else 0
        around = found.loops[inside - 1] if found.parts else at
        total = s.rfactor(name, found.loops[-1], around, scope="register")
        s.vectorize(found.loops[-1])
        begin(s, name, found.loops[inside], ())
        halves = _by_halves(s, total, lanes, around)
        written: BlockHandle = s.cache_write(parts[-1].total if parts else halves[-1], at, scope="register")
        _begin_total(s, halves[-1])
        for block in (*halves[-wide:], *(p.total for p in parts)) if wide else ():
            s.widen(block)  # before `begin`, which may make a second copy of them for the last part
        for p, following in pairwise(parts):
            begin(s, p.total.block.name, following.terms, ())
        if parts:
            begin(s, parts[-1].total.block.name, found.loops[0], ())
    return written


def _wide_halves(func: Func, name: str, reduced: list[For]) -> int:
    """How many of the last additions of lanes are in f64."""
    usual = 0 if most_terms(func, reduced) <= SHORT_ROW else IN_F64
    return int(find_block(func, name).annotations.get(WIDE_HALVES, usual))


def _by_halves(s: Schedule, total: BlockHandle, lanes: int, at: LoopHandle | None) -> list[BlockHandle]:
    """Add so many lanes in halves; the blocks of these additions: 32, …, 2, 1 sums."""
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
    """Take the init out of the sum of the last two lanes; a minimum or maximum begins with the first of them."""
    last = s.loops(total)[-1]
    summed = total.block.body
    extreme = isinstance(summed, Reduce) and summed.combiner.name in ("min", "max")
    if not extreme or not tried(partial(s.begin_reduction, total, last)):  # a sum begins with 0.0, so that it is never -0.0
        s.decompose_reduction(total, last)
    s.unroll(last)


def _pieces(s: Schedule, decide: Decide, name: str) -> None:
    """Sum one long row by pieces, which threads share; the sums of pieces are summed in order, however many threads there are."""
    with s.attempt():
        block = find_block(s.program, name)
        handles = {h.loop: h for h in s.loops(name)}
        flat = [handles[x] for x in _flat(block, alone(s.program, block))]
        if not flat:
            raise ScheduleError(f"block `{name}` does not go through memory in one piece")
        row = s.fuse(*flat) if len(flat) > 1 else flat[0]
        extent = constant_extent(s.program, row.loop)
        if extent is not None and extent <= 2 * PIECE:
            raise ScheduleError(f"block `{name}` sums too few elements for threads")
        size = decide.of(name)("piece", (PIECE // 2, PIECE, 2 * PIECE), PIECE, reorders=True, why="what a thread takes at least")
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
    """Sum in lanes over several loops that go through memory together, or over as many of the last ones as are known to be one loop."""
    for first in range(len(loops) - 1):
        if tried(partial(_fused_lanes, s, decide, name, loops[first:])):
            return
    _lanes(s, decide, name, loops[-1])


def _fused_lanes(s: Schedule, decide: Decide, name: str, loops: list[LoopHandle]) -> None:
    with s.attempt():
        _lanes(s, decide, name, s.fuse(*loops))


def _flat(block: Block, inner: list[For]) -> list[For]:
    """The innermost loops of a reduction through which all that it reads lies in one piece."""
    iters = {i.value: i for i in block.iters}
    kept = list(takewhile(lambda x: x.kind == "serial" and x.var in iters and iters[x.var].kind == "R", reversed(inner)))[::-1]
    while kept and not all(_in_one_piece(a, kept) for a in accesses(block)):
        kept = kept[1:]
    return kept


def _in_one_piece(a: Access, loops: list[For]) -> bool:
    """Whether an access does not move with the loops, or has them as its last indices, each over the whole of its dim."""
    over, vars_ = a.over_loops(), [x.var for x in loops]
    if all(free_vars(e).isdisjoint(vars_) for e in over):
        return True
    whole = all(x.stop is n for x, n in zip(loops, a.buffer.shape[-len(loops) :], strict=False))
    leading = all(free_vars(e).isdisjoint(vars_) for e in over[: -len(loops)])
    return a.buffer.strides is None and list(over[-len(loops) :]) == vars_ and whole and leading


def _sizes(block: Block, target: Target) -> Sizes:
    return WIDE_IN_LANES if widens(block, target) else IN_LANES


def _choose_lanes(s: Schedule, decide: Decide, best: int) -> int:
    """The lanes of a sum along a row: the usual number, or a half of it."""
    body = find_block(s.program, decide.block).body
    adds = isinstance(body, Reduce) and body.combiner.name not in ("min", "max")
    why = "several vectors on every machine: one sum does not wait for the other"
    lanes: int = decide("lanes", (best // 2, best) if best // 2 >= FEWEST else (best,), best, reorders=adds, why=why)
    return lanes


def _number_of_lanes(extent: int | None) -> int:
    """Lanes of which a row fills each at least twice, where its length is known."""
    lanes = LANES
    while extent is not None and extent < 2 * lanes:
        lanes //= 2
    return lanes


def _contiguous(block: Block, loop: For) -> bool:
    """Whether some load or store of the block goes through neighboring elements with the loop, and none jumps; dims of 1 do not matter."""
    found = False
    for a in accesses(block):
        over = [e for e, size in zip(a.over_loops(), a.buffer.shape, strict=True) if not (isinstance(size, Const) and size.value == 1)]
        if not over or all(loop.var not in free_vars(e) for e in over):
            continue
        if loop.var not in free_vars(over[-1]) or any(loop.var in free_vars(e) for e in over[:-1]):
            return False
        found = True
    return found


ROWS = Rule("rows", "rows", stages_of, schedule_rows, version=short_rows)
ONE_REDUCTION = Rule("rows", "single reductions", reduction_of, schedule_rows)
