"""Sums long float reductions in parts, to bound the rounding error: one mechanism for every rule and every layout.

    for k in range(n): tile[…] = fma(a[k], b[k], tile[…])

->  for part in range(ceil(n / 128)):
        own[…] = 0
        for k in range(min(128, n - part * 128)): own[…] = fma(a[part * 128 + k], b[part * 128 + k], own[…])
        tile[…] += own[…]

The rounding error of a sum grows with the number of terms that are added one after the other, fastest if the terms are alike: 1024 equal
products are off by 5e-6 in one piece, and by 5e-7 in parts. Many parts are summed in parts themselves, or in f64. Where parts begin depends
on the sizes of the sum alone, so a row gets the same bits as the row in a batch. (docs/design/0015-error-of-sums.md, 0025-totals-in-f64.md)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, prod

from ...dtype import f32
from ...loop.analysis.nest_shape import alone
from ...loop.analysis.nests import accesses, allocation, constant_extent, facts_at, fed_by, find_block, predicate_over_loops
from ...loop.buffer import Scope
from ...loop.stmt import Block, For, Func, Reduce
from ...support.choices import worth
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...sym.bounds import bounds
from ...sym.conditions import conjuncts
from ...sym.expr import Mul, free_vars
from ...sym.simplify import simplify
from ...target import Target
from ..decisions import Decide
from ..schedule import BlockHandle, LoopHandle, Schedule

# MANY, EVEN, SLACK and the `Sizes` below determine the order in which terms are added. The error bounds hold for that order
# (docs/design/0015), and all machines and variants must give the same bits, so kernels cannot choose them. The decision `part` scales
# the whole order.
MANY = 16  # more parts than this are summed in parts themselves: the last additions round the largest numbers
EVEN = 0.8  # groups of 0.8 * parts^(2/3) parts minimize the error of the two last levels together
MOST_UNROLLED = 8  # most steps of a sum that `unroll` may choose; bounds the code size, since the tile inside is unrolled too
SLACK = 1.5  # a part may be this much longer or shorter than wanted if all parts then have the same size


@dataclass(frozen=True, slots=True)
class Sizes:
    """How sums are cut into parts: terms per part, and, if the number of parts is dynamic, parts per group on each further level.

    If `wide`, the outermost sum (over whatever the levels below leave) is in f64, so it may have any number of terms. If `even`, all parts
    have one size, and a sum that cannot be cut so is not cut.
    """

    part: int
    groups: tuple[int, ...]
    rows: tuple[int, ...]  # the groups if there are several rows of dynamic length: first parts of a row, then rows
    long: int  # sums of more terms than this are cut
    wide: bool = False
    even: bool = False


# Products: long parts, because the end of each part loads, adds and stores all registers of a tile.
PRODUCTS = Sizes(128, (32,), (32, 16), long=256)
# Sums of elements: short parts cost nothing, because these loops wait for memory and for the latency of additions.
SUMS = Sizes(32, (16, 32), (16, 8, 16), long=64)
WIDE_SUMS = Sizes(8, (4,), (4,), long=8, wide=True)
# Windows, which are unrolled: 7 parts of 7, 5 of 5. Independent parts hide the latency of additions; that saves more than they cost.
WINDOWS = Sizes(6, (), (), long=16, even=True)
MOST_IN_WINDOW = 64  # most terms of a window that is summed so
# Sums along rows, counted in steps of 64 lanes: 64 chains run side by side, and each part adds its lanes by halves.
IN_LANES = Sizes(128, (16,), (16, 16), long=256)
WIDE_IN_LANES = Sizes(64, (), (), long=64, wide=True)


@dataclass(frozen=True, slots=True)
class Part:
    """A record of one level of partial sums: the block that makes them, the outermost loop of their terms, the block that adds them up."""

    name: str
    terms: LoopHandle
    total: BlockHandle


@dataclass(frozen=True, slots=True)
class Summing:
    """A record of how a sum in registers runs: the lengths of its partial sums, the steps unrolled, the innermost loops unrolled whole."""

    how: Sizes
    unroll: int = 1
    whole: int = 0


def decide_summing(func: Func, block: Block, reduced: Sequence[For], decide: Decide) -> Summing:
    """Decide the part length and the unrolling of a sum over `reduced`, outermost loop first."""
    how = decide_parts(func, block, reduced, decide)
    step = _steps_inside(func, block, reduced, how)
    unroll = decide("unroll", [n for n in range(1, MOST_UNROLLED + 1) if step % n == 0], 1, why="the tile alone is unrolled")
    return Summing(how, unroll)


def decide_parts(func: Func, block: Block, reduced: Sequence[For], decide: Decide, windows: bool = False) -> Sizes:
    """Return how a sum is cut. The part length is a decision for a float sum longer than `long`, unless the annotation `parts` fixes it.

    `lower/layout/promote_sizes.py` writes that annotation. With `windows`, a sum of at most MOST_IN_WINDOW elements (no products) is cut as
    WINDOWS says; nothing is decided then.
    """
    how = sizes_of(block, decide.target)
    if windows and how is not PRODUCTS and most_terms(func, reduced) <= MOST_IN_WINDOW:
        return WINDOWS
    if block.annotations.get("parts") is not None or not _sums_floats(block) or most_terms(func, reduced) <= how.long:
        return how
    why = f"parts of about {how.part} terms: longer ones round more, and shorter ones cost more (docs/design/0015-error-of-sums.md)"
    part = decide("part", [how.part // 2, how.part, 2 * how.part, 4 * how.part], how.part, reorders=True, why=why)
    return Sizes(part, how.groups, how.rows, how.long, how.wide)


def _steps_inside(func: Func, block: Block, reduced: Sequence[For], how: Sizes) -> int:
    """Return the trip count of the innermost reduction loop after cutting into parts; 1 if it is not constant."""
    last = constant_extent(func, reduced[-1])
    size = next((c.size for c in cuts_for(func, block, reduced, how=how) if c.at == len(reduced) - 1), None)
    if last is None or (size is not None and last % size):
        return 1
    return size or max(last, 1)


def sum_tile(
    s: Schedule,
    name: str,
    at: LoopHandle | None,
    written: BlockHandle,
    reduced: Sequence[LoopHandle],
    inner: Sequence[LoopHandle],
    summing: Summing,
) -> str:
    """Sum in the registers of a tile; return text about how.

    `reduced` are the reduction loops, outermost first; `inner` are the loops over the tile inside them. The tile is what one iteration of
    `at` touches, and the block `written` copies it to the result.
    """
    loops = cut(s, name, reduced, how=summing.how)
    for h in reversed(loops.loops[loops.first[len(reduced) - summing.whole] :]):
        s.unroll(h)
    parts = with_parts(s, name, loops, "register")
    over_tile(s, inner)
    for block in (written, *(p.total for p in parts)):
        over_tile(s, [h for h in s.loops(block) if h.loop in alone(s.program, block.block) and fed_by(block.block, h.loop) <= {"S"}])
    begin(s, name, reduced[0], parts)
    if worth(summing.unroll > 1):
        s.unroll(s.split(s.loops(name)[-1 - len(inner)], None, summing.unroll)[1])
    if parts and summing.how.wide:
        s.widen(parts[-1].total)
    return "in registers, long sums in parts" if parts else "in registers"


def over_tile(s: Schedule, loops: Sequence[LoopHandle]) -> None:
    """Unroll the loops over a register tile and vectorize the last one."""
    *outer, lane = loops
    for h in outer:
        s.unroll(h)
    lanes(s, lane)


def lanes(s: Schedule, loop: LoopHandle) -> None:
    """Vectorize a loop over the columns of a vector; unroll it if it has one iteration."""
    (s.unroll if constant_extent(s.program, loop.loop) == 1 else s.vectorize)(loop)


def in_parts(s: Schedule, name: str, reduced: Sequence[LoopHandle], scope: Scope = "stack", how: Sizes = PRODUCTS) -> list[Part]:
    """Sum the block `name` in parts if its sum over the loops `reduced` is long; return the levels of parts, innermost first.

    Call `begin` once the loops inside have their final form.
    """
    return with_parts(s, name, cut(s, name, reduced, how=how), scope)


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a sum after cutting, outermost first, and the positions of those whose every iteration is a part.

    `first` holds, for each loop before cutting, the position of the first loop made from it, and then the number of loops.
    """

    loops: tuple[LoopHandle, ...]
    parts: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


def cut(s: Schedule, name: str, reduced: Sequence[LoopHandle], inner: int = 1, how: Sizes = PRODUCTS) -> Loops:
    """Split the loops of a sum where its parts begin, if it is long; return all loops, old and new.

    `inner` steps of the last loop become a loop of their own, even if the sum is short.
    """
    cuts = cuts_for(s.program, find_block(s.program, name), [h.loop for h in reduced], inner, how)
    loops: list[LoopHandle] = []
    parts: list[int] = []
    first: list[int] = []
    for at, loop in enumerate(reduced):
        first.append(len(loops))
        sizes = [c.size for c in reversed(cuts) if c.at == at]
        parts += range(len(loops), len(loops) + len(sizes))
        factors = [*(n for n in sizes if n > 1), *([inner] if at == len(reduced) - 1 and inner > 1 else [])]
        loops += s.split(loop, None, *factors) if factors else [loop]
    return Loops(tuple(loops), tuple(parts), (*first, len(loops)))


def cuts_for(func: Func, block: Block, reduced: Sequence[For], inner: int = 1, how: Sizes = PRODUCTS) -> list[Cut]:
    """Return how the sum of a block over these loops is cut: by its annotation `parts` if it has one, else by the extents of the loops.

    The list is empty for a short sum, and for one that does not add floats. The annotation keeps the order of a sum after a constant extent
    became an argument (`lower/layout/promote_sizes.py`).
    """
    parts = block.annotations.get("parts")
    if parts is not None:
        return [Cut(at, size) for at, size in parts]
    if not _sums_floats(block) or most_terms(func, reduced) <= how.long * inner:
        return []
    extents = [constant_extent(func, x) for x in reduced]
    extents[-1] = None if extents[-1] is None else -(-extents[-1] // inner)
    return cuts_of(extents, how)


def with_parts(s: Schedule, name: str, cut: Loops, scope: Scope = "stack") -> list[Part]:
    """Sum a block in parts along loops that `cut` made; return the levels, innermost first."""
    parts: list[Part] = []
    for at in reversed(cut.parts):
        total = s.sum_in_parts(name, cut.loops[at], scope=scope)
        parts.append(Part(name, cut.loops[at + 1], total))
        name = total.block.name
    return parts


def parts_in_order(s: Schedule, name: str, target: Target) -> None:
    """Sum a block in parts without moving its loops; raise ScheduleError if it is no long sum, or if parts would have an unknown size.

    If the total cannot be in f64, retry with an f32 total.
    """
    block = find_block(s.program, name)
    how = sizes_of(block, target) if isinstance(block.body, Reduce) else PRODUCTS
    try:
        _parts_in_order(s, name, how)
    except ScheduleError:
        if not how.wide:
            raise
        _parts_in_order(s, name, SUMS)  # there is no buffer for a total in f64


def _parts_in_order(s: Schedule, name: str, how: Sizes) -> None:
    with s.attempt():
        block, loops = find_block(s.program, name), s.loops(name)
        reduced = [h for h in loops if fed_by(block, h.loop) == {"R"}]
        if not reduced or not cuts_for(s.program, block, [h.loop for h in reduced], how=how):
            raise ScheduleError(f"block `{name}` is no long sum")
        first = loops.index(reduced[0])
        if how.wide and any(a.write and allocation(s.program, a.buffer) is None for a in accesses(block)):
            s.cache_write(name, loops[first - 1] if first else None, scope="stack")
        parts = in_parts(s, name, reduced, how=how)
        begin(s, name, reduced[0], parts)
        if how.wide:
            s.widen(parts[-1].total)


def begin(s: Schedule, name: str, first: LoopHandle, parts: Sequence[Part]) -> None:
    """Hoist the inits of a sum and of its parts out of their loops, and trim the last part to the end of the sum.

    `first` is the outermost loop of the sum.
    """
    firsts = [*(p.terms for p in parts), first]
    for block, loop in zip((name, *(p.total.block.name for p in parts)), firsts, strict=True):
        s.decompose_reduction(block, loop)
        _end(s, block, loop)


def _end(s: Schedule, name: str, loop: LoopHandle) -> None:
    """Cut a loop off at the end of the sum, so that no term in it needs a predicate; do nothing if no predicate of the block depends on it.

    `partition` then ends the loop earlier, or moves the iterations that still need the predicate to a loop of their own (`…_rest`).
    """
    if any(loop.loop.var in free_vars(c) for c in conjuncts(predicate_over_loops(find_block(s.program, name)))):
        s.partition(loop)


def most_terms(func: Func, loops: Sequence[For]) -> float:
    """Return the largest number of terms that a sum over the loops may have; inf if it is unbounded."""
    return prod(_most(func, x) for x in loops)


def _most(func: Func, loop: For) -> float:
    facts = facts_at(func, loop)
    most = bounds(simplify(loop.extent, facts), facts)[1]
    return inf if most is None else max(most, 0)


@dataclass(frozen=True, slots=True)
class Cut:
    """A record of where a long sum is cut into partial sums: `size` steps of loop number `at` make one, and the loops inside stay whole."""

    at: int
    size: int


def cuts_of(extents: Sequence[int | None], how: Sizes = PRODUCTS) -> list[Cut]:
    """Return how a long sum over loops of these extents (None if dynamic) is cut into parts, and these into groups, innermost first.

    The list is empty if `how.even` and the parts would differ in size.
    """
    cuts = [_cut(extents, how.part)]
    if how.even and (extents[cuts[0].at] or 1) % cuts[0].size:
        return []
    outer = _parts_of(extents, cuts[0])
    rows = outer[-1] is None and any(n != 1 for n in outer[:-1])
    groups = how.rows if rows else how.groups
    for level, group in enumerate(groups):
        known = prod(n or 0 for n in outer) if None not in outer else None
        if known is not None and known <= (group if how.wide else MANY):
            break
        last = level == len(groups) - 1
        wanted = group if known is None or how.wide else EVEN * known ** (2 / 3) if last else known ** (1 / 3)
        cuts.append(_cut([*outer[:-1], 1] if rows and level == 1 else outer, wanted))  # level 1 groups rows, whatever their parts
        outer = _parts_of(outer, cuts[-1])
    return cuts


def _parts_of(extents: Sequence[int | None], cut: Cut) -> list[int | None]:
    """Return the extents of the loops that remain outside of the partial sums of a cut; None for an extent that is not constant."""
    steps = extents[cut.at]
    return [*extents[: cut.at], None if steps is None else -(-steps // cut.size)]


def _cut(extents: Sequence[int | None], wanted: float) -> Cut:
    """Return the cut into parts of about `wanted` terms, all of one size if a size within SLACK divides the extent."""
    terms, at, extent = 1, 0, extents[0]
    for at in reversed(range(len(extents))):
        extent = extents[at]
        if extent is None or at == 0 or terms * extent > wanted * SLACK:
            break
        terms *= extent
    sizes = [n for n in range(1, extent or 1) if (extent or 1) % n == 0 and 1 / SLACK <= terms * n / wanted <= SLACK]
    return Cut(at, min(sizes, key=lambda n: abs(log(terms * n / wanted)), default=max(1, round(wanted / terms))))


def sizes_of(block: Block, target: Target) -> Sizes:
    """Return how a sum is cut: PRODUCTS if it multiplies two different factors.

    Else WIDE_SUMS if its last additions are in f64, else SUMS.
    """
    body = block.body
    assert isinstance(body, Reduce)
    factors = body.values if body.combiner.name == "fma" else body.values[0].args if isinstance(body.values[0], Mul) else ()
    return PRODUCTS if len(set(factors)) > 1 else WIDE_SUMS if widens(block, target) else SUMS


def widens(block: Block, target: Target) -> bool:
    """True if the last additions of a block's sum are in f64: it sums f32, and the target has f64 arithmetic."""
    return target.has_f64 and _sums_floats(block) and isinstance(block.body, Reduce) and block.body.targets[0].dtype is f32


def _sums_floats(block: Block) -> bool:
    body = block.body
    return isinstance(body, Reduce) and body.combiner.name in ("add", "fma") and body.targets[0].dtype.is_float
