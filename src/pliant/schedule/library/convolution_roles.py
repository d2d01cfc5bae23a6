"""Pattern matching for convolutions and sliding windows: iterator roles, and whether lanes should be channels or neighbors in a row.

convolution_of(block)             # y[n, j, p, q] += x[n, c, p * 2 + a, q * 2 + b] * w[j, c, a, b]: the channels j may be lanes
windows_of(block)                 # the same, with q as lanes; and depthwise convolutions and pools
along_channels(func, b, target)   # True if lanes should be channels
"""

from __future__ import annotations

from functools import partial
from math import prod

from ...loop.analysis.block_kind import along, matmul_of, packed
from ...loop.analysis.nest_shape import iter_named, plain_loops
from ...loop.analysis.nests import accesses, constant_extent, plain_iters
from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, Func, Reduce
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Cast, Const, Expr, Mul, Var, free_vars
from ...sym.walk import walk
from ...target import Target
from ..decisions import Decide
from ..dependence import linear
from ..primitives.layout import layouts_of
from ..tile_cost_model import Sizes
from .record import NotApplicable

STORE = 1.5  # Cost of a strided store of one element, in vector steps of a sum; `choose_lanes` weighs lanes of channels with it
LEAST_LANES = 4  # Fewest channels of an NCHWc block, and their divisor: a narrower vector does not pay
MOST_VECTORS = 4  # Most vectors of an NCHWc block: each row of a register tile takes as many registers
ANY_WIDTH = 0.8  # share of the lanes that are used along rows of dynamic length, assumed by `choose_lanes`


@dataclass(frozen=True, slots=True)
class Convolution:
    """A record of a convolution's iterators by role: `y[…, column, …, row] += x[…, row, …] * w[column, …]`."""

    outer: tuple[str, ...]  # the other indices of the result
    row: str  # the last spatial index of the result; `w` does not depend on it
    column: str  # the output channel; `x` does not depend on it. Empty if NCHWc has a single channel block
    reduced: tuple[str, ...]
    weight: Load
    lane: str | None = None  # NCHWc: the channel inside a block, the last index of the result; `column` then counts blocks


def convolution_of(block: Block) -> Convolution | Refusal:
    """Match a convolution; return its iterator roles, or why the block is none."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or len(s.targets) != 1 or block.init is None:
        return Refusal(f"block `{block.name}` is no sum with an init")
    if not isinstance(s.values[0], Mul):
        return Refusal(f"block `{block.name}` does not sum products")
    out = plain_iters(s.targets[0].indices, block)
    if not out or set(out) != {i.var for i in block.iters if i.kind == "S"} or any(i.kind == "O" for i in block.iters):
        return Refusal(f"the result of block `{block.name}` is not indexed by its S iterators, each once")
    row = out[-1]
    factors = s.values[0].args
    for wide, narrow in (factors, factors[::-1]):
        weight = _loaded(wide)
        columns = [v for v in out[:-1] if v in free_vars(wide) and v not in free_vars(narrow)]
        if weight is not None and len(columns) == 1 and row in free_vars(narrow) and row not in free_vars(wide):
            outer = tuple(v.name for v in out[:-1] if v is not columns[0])
            reduced = tuple(i.var.name for i in block.iters if i.kind == "R")
            return Convolution(outer, row.name, columns[0].name, reduced, weight)
    return Refusal(
        f"block `{block.name}` has no output channel: an index of the result that one factor has alone, while the other has the last index"
    )


def blocked_convolution_of(func: Func, block: Block, target: Target) -> Convolution | Refusal:
    """Match a convolution in NCHWc layout, `y[…, column, …, row, lane] += x[…] * w[column, …, lane]`.

    Returns its iterator roles, or why the block is none.
    """
    if not in_blocks(func, block):
        return Refusal(f"the result of block `{block.name}` is not in NCHWc layout")
    return product_in_blocks(block)


def product_in_blocks(block: Block) -> Convolution | Refusal:
    """Match a sum of products `y[…, column, …, row, lane] += x[…] * w[column, …, lane]`.

    Return its iterator roles (column "" if the result has no such index), or why the block is none.
    """
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or len(s.targets) != 1 or block.init is None:
        return Refusal(f"block `{block.name}` is no sum with an init")
    out = plain_iters(s.targets[0].indices, block)
    if not isinstance(s.values[0], Mul) or not out or len(out) < 2 or set(out) != {i.var for i in block.iters if i.kind == "S"}:
        return Refusal(f"block `{block.name}` does not sum products at its S iterators")
    *_, row, lane = out
    if any(i.kind == "O" for i in block.iters):
        return Refusal(f"block `{block.name}` has an ordered iterator")
    factors = s.values[0].args
    for wide, narrow in (factors, factors[::-1]):
        weight = _loaded(wide)
        columns = [v for v in out[:-2] if v in free_vars(wide) and v not in free_vars(narrow)]
        if weight is None or len(columns) > 1 or row in free_vars(wide) or lane in free_vars(narrow):
            continue
        if row in free_vars(narrow) and along(weight, lane):
            outer = tuple(v.name for v in out[:-2] if v not in columns)
            reduced = tuple(i.var.name for i in block.iters if i.kind == "R")
            return Convolution(outer, row.name, columns[0].name if columns else "", reduced, weight, lane.name)
    return Refusal(f"no channel block of the result of block `{block.name}` is an index of the weights alone")


def _loaded(e: Expr) -> Load | None:
    """Return the load that a factor is, possibly under casts; else None."""
    while isinstance(e, Cast):
        e = e.args[0]
    return e if isinstance(e, Load) else None


@dataclass(frozen=True, slots=True)
class Windows:
    """A record of a sliding window's iterators by role: `y[…, tiled, …, column]` from `x[…, column + …]`."""

    outer: tuple[str, ...]  # the other indices of the result
    tiled: str | None  # output channels, on which `x` does not depend; else the last but one index of the result
    column: str  # the last index of the result
    reduced: tuple[str, ...]
    rows: bool  # windows of neighbors along `tiled` overlap


def windows_of(block: Block) -> Windows | Refusal:
    """Match a reduction over sliding windows; return its iterator roles, or why the block is none."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.left or block.init is None or len(s.targets) != 1:
        return Refusal(f"block `{block.name}` is no reduction with a named combiner and an init")
    out = plain_iters(s.targets[0].indices, block)
    if not out or set(out) != {i.var for i in block.iters if i.kind == "S"} or any(i.kind == "O" for i in block.iters):
        return Refusal(f"the result of block `{block.name}` is not indexed by its S iterators, each once")
    column = out[-1]
    moving = [e for e in walk(s.values[0]) if isinstance(e, Load) and column in free_vars(e)]
    if not moving or not all(_step(e, column) for e in moving):
        return Refusal(f"block `{block.name}` does not read elements at constant distances along `{column.name}`")
    taken = {i.var for i in block.iters if i.kind == "R"}
    if not any(taken & free_vars(i) and set(out) & free_vars(i) for e in moving for i in e.indices):
        return Refusal(f"block `{block.name}` does not reduce over windows")
    channels = [v for v in out[:-1] if all(v not in free_vars(e) for e in moving)]
    tiled = channels[-1] if channels else out[-2] if len(out) > 1 else None
    outer = tuple(v.name for v in out[:-1] if v is not tiled)
    reduced = tuple(i.var.name for i in block.iters if i.kind == "R")
    return Windows(outer, tiled.name if tiled is not None else None, column.name, reduced, not channels)


def _step(e: Load, v: Var) -> int:
    """Return the element distance of a load for consecutive `v` along the last dim; 0 if `v` occurs elsewhere or not linearly."""
    if e.buffer.strides is not None or any(v in free_vars(i) for i in e.indices[:-1]):
        return 0
    parts = linear(e.indices[-1], v)
    return max(int(parts[0][()]), 0) if parts is not None and list(parts[0]) == [()] else 0


def taps_of(func: Func, block: Block) -> int:
    """Return the number of filter taps, i.e. how often each input element is reused."""
    placed = {i.var for i in block.iters if i.kind == "S"}
    inside = {v for a in accesses(block) for e in a.indices if any(linear(e, p) for p in free_vars(e) & placed) for v in free_vars(e)}
    return prod(_size(func, block, i.var) for i in block.iters if i.kind == "R" and i.var in inside)


def _size(func: Func, block: Block, v: Var) -> int:
    """Return the constant extent of an iterator; 1 if it is dynamic, or if the block shares its loops with others."""
    loops = plain_loops(func, block)
    return 1 if isinstance(loops, Refusal) else max(constant_extent(func, loops[v]) or 1, 1)


@dataclass(frozen=True, slots=True)
class Overlap:
    """A record of how windows that are neighbors along an index of the result overlap: extent, and distance."""

    reach: int  # extent of a window along that index
    stride: int  # distance between windows


def overlap_of(func: Func, block: Block, along: Var) -> Overlap:
    """Return how windows that are neighbors along an iterator overlap; a reach of 1 means not at all."""
    reduced = [i.var for i in block.iters if i.kind == "R"]
    for e in (e for a in accesses(block) if not a.write for e in a.indices if along in free_vars(e)):
        parts = linear(e, along)
        inside = [v for v in reduced if v in free_vars(e)]
        if inside and parts is not None and list(parts[0]) == [()]:
            return Overlap(_size(func, block, inside[0]), max(int(parts[0][()]), 1))
    return Overlap(1, 1)


def tile_sizes(block: Block, sizes: Sizes) -> Sizes:
    """Return the tile sizes that the cost model chooses from; only the one in the block's annotation `tile` if it has one."""
    tile = block.annotations.get("tile")
    return sizes if tile is None else Sizes((tile[0],), (tile[1],))


def choose_lanes(func: Func, block: Block, decide: Decide) -> str:
    """Decide the lanes of a convolution: `channels` (strided stores), or neighbors in a `row`."""
    roles = convolution_of(block)
    packs = not isinstance(roles, Refusal) and may_read_packs(block, roles, decide.target)
    best = "channels" if packs and along_channels(func, block, decide.target) else "row"
    both = packs and not isinstance(windows_of(block), Refusal) and isinstance(matmul_of(block), Refusal)
    return decide("lanes", ("channels", "row") if both else (best,), best, why=partial(_why_lanes, func, block, decide.target))


def may_read_packs(block: Block, roles: Convolution, target: Target) -> bool:
    """True if the weights are packed by vectors of channels, or can be copied into such packs because every index is an iterator."""
    s, column = block.body, iter_named(block, roles.column).var
    assert isinstance(s, Reduce)
    size = packed(roles.weight, column)
    if size is not None or along(roles.weight, column):
        return size is None or size == max(1, target.vector_bits // s.targets[0].dtype.bits)
    return plain_iters(roles.weight.indices, block) is not None


def _why_lanes(func: Func, block: Block, target: Target) -> str:
    """Return text with the cost of a result for lanes of channels, and for lanes along a row; "" if one is impossible."""
    steps = lane_steps(func, block, target)
    return "" if steps is None else f"steps for a result: {steps[0]:.3g} with channels, {steps[1]:.3g} along a row"


def block_sizes(target: Target, channels: int) -> tuple[int, ...]:
    """Return the sizes that an NCHWc block may have if they must divide `channels`, best first: those that waste the fewest lanes.

    A block of 24 channels is one vector of 16 lanes and a half. Its two registers use three of four lanes; three blocks of 8 use half of
    theirs. Blocks narrower than a vector are a half or a quarter of one: LLVM computes other widths element by element.
    """
    lanes = target.vector_bits // 32
    narrow = [n for n in (lanes, lanes // 2, lanes // 4) if n >= LEAST_LANES]
    wide = range(lanes + lanes // 2, MOST_VECTORS * lanes + 1, max(lanes // 2, LEAST_LANES))
    return tuple(sorted((n for n in (*narrow, *wide) if channels % n == 0), key=lambda n: (-n / block_registers(n, lanes), n != lanes, n)))


def block_registers(size: int, lanes: int) -> int:
    """Return the vector registers that a block of channels takes: LLVM rounds a vector that is wider than a register to a power of two."""
    return 1 if size <= lanes else 1 << (-(-size // lanes) - 1).bit_length()


def in_blocks(func: Func, block: Block) -> bool:
    """True if the result of a reduction is in NCHWc layout, i.e. its last index is the channel inside a block."""
    s = block.body
    result = s.targets[0].buffer if isinstance(s, Reduce) else None
    if result is None or not result.ndim:
        return False
    return over_blocks(func, result)


def over_blocks(func: Func, buffer: Buffer) -> bool:
    """True if a buffer is in NCHWc layout: its last index is the channel inside a block. A temporary is if some parameter is so."""
    layouts = {name: p.map for name, p in layouts_of(func).items()}
    blocked = {name for name, m in layouts.items() if len(m.inputs) > 2 and free_vars(m.results[-1]) == {m.inputs[1]}}
    if buffer in func.buffers:
        return buffer.name in blocked
    alike = (b for b in func.buffers if b.name in blocked and len(b.shape) == len(buffer.shape))  # else a row may be as long as a block
    return any(b.shape[-1] is buffer.shape[-1] for b in alike)


def along_channels(func: Func, block: Block, target: Target) -> bool:
    """True if a convolution costs less with vectors of channels, which store their results one by one, than with vectors along rows.

    If only one way is possible, True for any convolution.
    """
    steps = lane_steps(func, block, target)
    return not isinstance(convolution_of(block), Refusal) if steps is None else steps[0] < steps[1]


def lane_steps(func: Func, block: Block, target: Target) -> tuple[float, float] | None:
    """Return the vector steps per result with lanes of channels, and with lanes along a row.

    None if one of them is impossible, or if the block shares its loops with others.
    """
    roles, windows, loops = convolution_of(block), windows_of(block), plain_loops(func, block)
    if isinstance(roles, Refusal) or isinstance(loops, Refusal) or (isinstance(windows, Refusal) and not over_image(block, roles)):
        return None
    s = block.body
    assert isinstance(s, Reduce)
    lanes = max(1, target.vector_bits // s.targets[0].dtype.bits)
    extent = {v.name: constant_extent(func, x) for v, x in loops.items()}
    depth = prod(extent[r] or 1 for r in roles.reduced)
    column = iter_named(block, roles.row).var
    step = max(_step(e, column) for e in walk(s.values[0]) if isinstance(e, Load) and column in free_vars(e))
    across = depth / lanes / _use(extent[roles.column], lanes) + STORE
    # Vectors along a row with stride 2 are deinterleaved from two loads; larger strides are gathers.
    return across, depth / lanes / _use(extent[roles.row], lanes) * (1 if step == 1 else 1.25 if step == 2 else 4)


def over_image(block: Block, roles: Convolution) -> bool:
    """True if the image depends on at least two result indices that the weights do not have; a plain matrix has one."""
    body = block.body
    assert isinstance(body, Reduce)
    outer = [iter_named(block, v).var for v in roles.outer]
    return any(v in free_vars(body.values[0]) and v not in free_vars(roles.weight) for v in outer)


def _use(extent: int | None, lanes: int) -> float:
    """Return the share of vector lanes that are in use along an extent; a constant guess if it is dynamic."""
    return ANY_WIDTH if extent is None else max(extent, 1) / (-(-max(extent, 1) // lanes) * lanes)


def known_sums(func: Func, block: Block, any_size: bool = False) -> None:
    """Raise `NotApplicable` if a block shares its loops with others, or if it reduces over an extent known only at run time.

    `any_size` allows such extents.
    """
    loops = plain_loops(func, block)
    if isinstance(loops, Refusal):
        raise NotApplicable(loops.reason)
    if not any_size and any(i.kind == "R" and not isinstance(loops[i.var].extent, Const) for i in block.iters):
        raise NotApplicable(f"what block `{block.name}` sums over has a size that is known only at run time")
