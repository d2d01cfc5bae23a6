"""Auto-tensorization: finds the tensor instructions that can do a block, and applies the primitives that turn the block into one.

    found = matches(func, block, target)                 # instructions, with what each of their loops is made of
    auto_tensorize(s, "out", "avx512vnni.dot_u8s8")      # s: a Schedule; the trace has the primitives

An instruction can do a block if both compute the same expression of their operands. Iterators are classified by their kind and by the
operands that they index: in a convolution n, h, w index the result and the image, the output channel the result and the weights, kh, kw
and the input channel both operands. Iterators of the same class as a loop of the instruction are fused into that loop; others stay
outside. Operands are then reindexed by these iterators (im2col, which turns a convolution into a matrix product), padded to multiples, and
laid out as the instruction reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..loop.analysis.nests import Access, accesses, base_facts, constant_extent, index
from ..loop.buffer import Buffer, Load
from ..loop.stmt import Block, Func, Reduce
from ..support.errors import ScheduleError
from ..support.refusal import Refusal
from ..sym.expr import Const, Expr, Mul, Var, free_vars
from ..sym.index_map import IndexMap
from ..sym.prove import prove_equal
from ..sym.walk import walk
from ..target import Target
from ..target.instructions import declared_for, find_instruction, instruction_names, instructions_of
from .cursor import fresh_name
from .errors import own_nest, refuse
from .primitives.tensorize import Match, Tile, tile_of_instruction

if TYPE_CHECKING:
    from .schedule import BlockHandle, LoopHandle, Schedule


@dataclass(frozen=True, slots=True)
class Mapping:
    """A record of how a tensor instruction computes a block: the iterators fused into each of its loops, other iterators, and operands."""

    instruction: str
    fused: tuple[tuple[Var, ...], ...]
    outside: tuple[Var, ...]
    operands: dict[Buffer, Load]  # the block's access for each buffer of the instruction's description


class _Pattern(Match):
    """A `Match` of an instruction's description with a block that compares operators and dtypes only: any indices match."""

    def load(self, d: Load, p: Load) -> str:
        """Match a load of the description with one of the block; return why they differ, "" if they match."""
        if d.buffer.dtype is not p.buffer.dtype:
            return f"`{p.buffer.name}` holds {p.buffer.dtype}, the instruction takes {d.buffer.dtype}"
        if d.buffer in self.places and self.places[d.buffer][1] is not p:
            return f"`{p.buffer.name}` is used at several places"
        self.places[d.buffer] = (d, p)
        return ""


def matches(func: Func, block: Block, target: Target) -> list[Mapping]:
    """Return the instructions of a target that can do a block, declared ones first."""
    mappings = (mapping(func, block, i.name) for i in (*declared_for(target), *instructions_of(target)))
    return [m for m in mappings if isinstance(m, Mapping)]


def mapping(func: Func, block: Block, instruction: str) -> Mapping | Refusal:
    """Return the `Mapping` by which a tensor instruction computes a block; a Refusal with the reason if it cannot."""
    tile = tile_of_instruction(instruction)
    pattern = _Pattern({}, base_facts(func))
    problem = pattern.statement(tile.stmt, _comparable(block, tile))
    if problem:
        return Refusal(problem)
    wanted = [(kind, _mask(x.var, {b: d for b, (d, _) in pattern.places.items()})) for x, kind in zip(tile.loops, tile.kinds, strict=True)]
    if len(set(wanted)) != len(wanted):
        return Refusal("its loops cannot be told apart by what they index")
    places = {b: p for b, (_, p) in pattern.places.items()}
    masks = {i.var: (i.kind, _mask(i.var, places)) for i in block.iters}
    fused = tuple(tuple(v for v, m in masks.items() if m == w) for w in wanted)
    missing = next((x.var.name for x, vs in zip(tile.loops, fused, strict=True) if not vs), None)
    if missing is not None:
        return Refusal(f"no iterator indexes what its loop `{missing}` does")
    inside = {v for vs in fused for v in vs}
    return Mapping(instruction, fused, tuple(v for v in masks if v not in inside), places)


def _comparable(block: Block, tile: Tile) -> Any:
    """Return the statement of a block; a sum of products as the multiply-add that `contract` will make of it."""
    s = block.body
    if isinstance(s, Reduce) and isinstance(tile.stmt, Reduce) and tile.stmt.combiner.name == "fma" and _is_sum_of_products(s):
        return s.with_(combiner=tile.stmt.combiner, values=s.values[0].args)
    return s


def _is_sum_of_products(s: Reduce) -> bool:
    return s.combiner.name == "add" and isinstance(s.values[0], Mul) and s.values[0].dtype.is_float


def _mask(v: Var, places: dict[Buffer, Load]) -> frozenset[Buffer]:
    """Return the buffers among `places` whose indices contain the variable."""
    return frozenset(b for b, p in places.items() if any(v in free_vars(e) for e in p.indices))


def auto_tensorize(s: Schedule, block: str, instruction: str, in_registers: int = 0) -> BlockHandle:
    """Turn a block of a schedule into an instruction by primitives, and return its handle; undo everything if one of them refuses.

    The block computes what the instruction's description computes (a sum of products or the like), of any size and with any number of
    iterators: iterators are fused, operands copied, padded and laid out, loops split and reordered, and the inner ones tensorized. With
    `in_registers`, at most that many tiles of the result are computed side by side in registers and written once.

        s = pliant.Schedule(convolution)
        pliant.auto_tensorize(s, "out", "avx512vnni.dot_u8s8")
    """
    here = _block(s, block)
    if find_instruction(instruction) is None:
        names = ", ".join(instruction_names())
        raise refuse(f"there is no instruction `{instruction}`", s.program, (here, "this block"), help=f"instructions are {names}")
    plan = mapping(s.program, here, instruction)
    if isinstance(plan, Refusal):
        raise refuse(f"block `{block}` cannot become `{instruction}`: {plan.reason}", s.program, (here, "this block"))
    with s.attempt():
        return _apply(s, block, plan, in_registers)


def _block(s: Schedule, name: str) -> Block:
    """Return the block of that name in the schedule's current program, without recording an entry in the trace."""
    block = index(s.program.body).blocks.get(name)
    return s.block(name).block if block is None else block


def _apply(s: Schedule, block: str, plan: Mapping, in_registers: int) -> BlockHandle:
    """Tensorize a block as its mapping says, by schedule primitives; return the handle of the tensorized block."""
    tile = tile_of_instruction(plan.instruction)
    if isinstance(tile.stmt, Reduce) and tile.stmt.combiner.name == "fma":
        reduction = _block(s, block).body
        if isinstance(reduction, Reduce) and reduction.combiner.name == "add":
            s.contract(block)
    sizes = _sizes(tile)
    outside = _fuse(s, block, plan)
    names = {b: _direct(s, block, tile, b, p.buffer.name, outside) for b, p in plan.operands.items()}
    names = _pad(s, block, names, [*[1] * outside, *sizes])
    result = _described(tile)[0].buffer
    registers = in_registers > 0 and _has_tiles(s, block, [*[1] * outside, *sizes])
    of_tile = _layout(s, block, tile, result, names[result], outside)
    for b, name in names.items():
        if b is not result or not registers:
            _lay_out(s, block, tile, b, name, outside)
    loops = _loops_by_iterator(s, block)
    kinds = [i.kind for i in _block(s, block).iters]
    parts = [s.split(x, size) for x, size in zip(loops[outside:], sizes, strict=True)]
    around = list(zip([*loops[:outside], *(p[0] for p in parts)], kinds, strict=True))
    nest = _Nest([x for x, k in around if k == "S"], [x for x, k in around if k == "R"], [p[1] for p in parts])
    s.reorder(*nest.spatial, *nest.reducing, *nest.inner)
    if registers:
        _accumulate(s, block, nest, f"{names[result]}_tile", of_tile, in_registers)
    elif nest.reducing:
        s.decompose_reduction(block, nest.reducing[0])
    tensorized: BlockHandle = s.tensorize(nest.inner[0], plan.instruction)
    return tensorized


class _Nest(NamedTuple):
    """A record of a block's loops: those over tiles, those over the steps of the sum, and those inside a tile."""

    spatial: list[LoopHandle]
    reducing: list[LoopHandle]
    inner: list[LoopHandle]


def _has_tiles(s: Schedule, block: str, sizes: list[int]) -> bool:
    """True unless a block is known to have a single tile or a single step of its sum."""
    here = _block(s, block)
    nest = own_nest(s.program, here, f"cannot tensorize block `{block}`")
    extents = [(i.kind, constant_extent(s.program, nest[i.var])) for i in here.iters]
    more = {kind for (kind, extent), size in zip(extents, sizes, strict=True) if extent is None or extent > size}
    return more == {"R", "S"}


def _accumulate(s: Schedule, block: str, nest: _Nest, tile: str, layout: str | None, most: int) -> None:
    """Accumulate some tiles of the result side by side in registers, and write them to memory once.

    The tiles are neighbors along the innermost loop over tiles. Their number divides its extent, so that none is left over.
    """
    at, beside = nest.spatial[-1], []
    count = constant_extent(s.program, at.loop) or 1
    side_by_side = max(n for n in range(1, most + 1) if count % n == 0)
    if side_by_side > 1:
        at, *beside = s.split(at, side_by_side)
        s.reorder(*nest.reducing, *beside)
    # Not in scope `register`: a machine without the instruction runs its implementation, which may index the tiles by a loop. LLVM
    # promotes the stack buffer to registers if all indices are constants.
    written = s.cache_write(block, at, scope="stack")
    if layout is not None:
        s.transform_layout(tile, layout, block=block)
    start = s.decompose_reduction(block, nest.reducing[0])
    for x in beside:
        s.unroll(x)
    for copy in (written, start):
        own = s.loops(copy)
        *rows, lane = own[own.index(at) + 1 :]
        for row in rows:
            s.unroll(row)
        s.vectorize(lane)


def _fuse(s: Schedule, block: str, plan: Mapping) -> int:
    """Give the block one iterator for each loop of the instruction, after those that stay outside; return the number of the latter."""
    here = _block(s, block)
    nest = own_nest(s.program, here, f"cannot tensorize block `{block}`")
    taken = {v.name for v in s.program.symbols}
    of: dict[Var, Var] = {i.var: Var(fresh_name(f"x{n}", taken)) for n, i in enumerate(here.iters)}
    results: list[Expr] = [of[v] for v in plan.outside]
    for vs in plan.fused:
        place: Expr = of[vs[0]]
        for v in vs[1:]:
            place = place * nest[v].stop + of[v]
        results.append(place)
    inputs = tuple(of.values())
    if tuple(results) != inputs:
        s.transform_block_layout(block, IndexMap(inputs, tuple(results)))
    return len(plan.outside)


def _direct(s: Schedule, block: str, tile: Tile, described: Buffer, buffer: str, outside: int) -> str:
    """Return the buffer if the block indexes it by its iterators in order, or by tiles of them.

    Else reindex it, and return the copy's name.
    """
    here = _block(s, block)
    places = {e.indices for e in _uses(here, buffer)}
    iters = [i.var for i in here.iters]
    indices = next(iter(places))
    at = [iters.index(e) for e in indices if isinstance(e, Var) and e in iters]
    if len(places) == 1 and len(at) == len(indices) and at == sorted(at):
        return buffer
    if len(places) == 1 and _is_laid_out(s, block, tile, described, indices, outside):
        return buffer
    s.reindex(block, buffer)
    return f"{buffer}_reindex"


def _uses(block: Block, buffer: str) -> list[Access]:
    return [a for a in accesses(block) if a.buffer.name == buffer]


def _pad(s: Schedule, block: str, names: dict[Buffer, str], multiples: list[int]) -> dict[Buffer, str]:
    """Pad extents to multiples, if they may not be multiples already, and inline copies of copies.

    Return the names of the operands' buffers.
    """
    here = _block(s, block)
    nest = own_nest(s.program, here, f"cannot pad block `{block}`")
    facts = base_facts(s.program)
    if all(prove_equal(nest[i.var].stop % m, Const(0, nest[i.var].stop.dtype), facts) for i, m in zip(here.iters, multiples, strict=True)):
        return names
    s.pad(block, *multiples)
    now = {a.buffer.name for a in accesses(_block(s, block))}
    padded = {b: f"{name}_pad" if f"{name}_pad" in now else name for b, name in names.items()}
    for b, name in names.items():
        if padded[b] != name and name.endswith("_reindex"):
            with suppress(ScheduleError):
                s.compute_inline(name)
    return padded


def _lay_out(s: Schedule, block: str, tile: Tile, described: Buffer, name: str, outside: int) -> None:
    """Make the elements of a tile contiguous in the instruction's order, unless they are."""
    layout = _layout(s, block, tile, described, name, outside)
    if layout is None:
        return
    if any(b.name == name for b in s.program.buffers):  # the layout of a parameter is part of the calling convention: change a copy
        s.reindex(block, name)
        name = f"{name}_reindex"
        layout = _layout(s, block, tile, described, name, outside)
    s.transform_layout(name, layout, block=block)


def _layout(s: Schedule, block: str, tile: Tile, described: Buffer, name: str, outside: int) -> str | None:
    """Return the layout that an instruction needs of a buffer, as the text of a lambda: tiles, and inside them its loops in order.

    None if the buffer has it.
    """
    here = _block(s, block)
    sizes, wanted = _sizes(tile), _order(tile, described)
    indices = _uses(here, name)[0].indices
    if _is_laid_out(s, block, tile, described, indices, outside):
        return None
    iters = [i.var for i in here.iters]
    loop_of = [iters.index(e) - outside for e in indices if isinstance(e, Var)]
    if wanted == [n for n in loop_of if n >= 0] and len(wanted) <= 1 and (not wanted or loop_of[-1] == wanted[-1]):
        return None
    dims = [f"d{k}" for k in range(len(indices))]
    high = [d if n < 0 else f"{d} // {sizes[n]}" for d, n in zip(dims, loop_of, strict=True)]
    low = [f"{dims[loop_of.index(n)]} % {sizes[n]}" for n in wanted]
    return f"lambda {', '.join(dims)}: ({', '.join([*high, *low])})"


def _order(tile: Tile, described: Buffer) -> list[int]:
    """Return the positions of the instruction's loops that traverse an operand, in the order of its dims."""
    place = next(e for e in _described(tile) if e.buffer is described)
    return [next(n for n, x in enumerate(tile.loops) if x.var is v) for v in place.indices if isinstance(v, Var)]


def _is_laid_out(s: Schedule, block: str, tile: Tile, described: Buffer, indices: tuple[Expr, ...], outside: int) -> bool:
    """True if an operand already has the layout of `tiles_of`, as weights packed before the program runs."""
    here = _block(s, block)
    nest = own_nest(s.program, here, f"cannot tensorize block `{block}`")
    facts = base_facts(s.program)
    for i in here.iters:
        facts = facts.with_range(i.var, 0, nest[i.var].stop - 1)
    used = {v for e in indices for v in free_vars(e)}
    others = [i.var for i in here.iters[:outside] if i.var in used]
    inside: dict[int, Expr] = {n: i.var for n, i in enumerate(here.iters[outside:])}
    wanted = tiles_of(tile, described, others, inside)
    return len(wanted) == len(indices) and all(prove_equal(a, b, facts) for a, b in zip(indices, wanted, strict=True))


def tiles_of(tile: Tile, described: Buffer, outside: Sequence[Expr], inside: dict[int, Expr]) -> list[Expr]:
    """Return the indices of an element in the tiled layout of an instruction: the tile, then its loops in the instruction's order.

    `inside` has the position along each loop of the instruction, `outside` the other indices of the element.
    """
    order, sizes = _order(tile, described), _sizes(tile)
    return [*outside, *(inside[n] // sizes[n] for n in sorted(order)), *(inside[n] % sizes[n] for n in order)]


def _sizes(tile: Tile) -> list[int]:
    return [int(x.stop.value) for x in tile.loops if isinstance(x.stop, Const)]


def _described(tile: Tile) -> list[Load]:
    """Return the loads and stores in the description of an instruction, as loads: the written element first."""
    s = tile.stmt
    written = s.targets if isinstance(s, Reduce) else (Load(s.buffer, s.indices),)
    values = s.values if isinstance(s, Reduce) else (s.value,)
    return [*written, *(e for v in values for e in walk(v) if isinstance(e, Load))]


def _loops_by_iterator(s: Schedule, block: str) -> list[Any]:
    """Return the handle of the loop that binds each iterator of a block, in the order of the iterators."""
    by_var = {h.loop.var: h for h in s.loops(block)}
    return [by_var[i.value] for i in _block(s, block).iters if isinstance(i.value, Var)]
