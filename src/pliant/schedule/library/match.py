"""Pattern matching for the default rules: is a block a matrix product, elementwise, cheap to recompute; which loop is contiguous in memory.

Answers are records, or a `Refusal` whose reason appears in the text of `default_schedule`.
"""

from __future__ import annotations

from ...dtype import i64
from ...loop.analysis.nests import accesses, allocation, blocks, index, loops_above, plain_iters, readers
from ...loop.buffer import Buffer, Load
from ...loop.stmt import INSTRUCTION, Block, For, Func, Reduce, Seq, Stmt, Store
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Call, Const, Div, Expr, FloorDiv, FloorMod, Le, Mul, Var, free_vars, product, walk
from ...sym.prove import prove
from ..plain_nest import elementwise, plain_loops
from .record import NotApplicable


@dataclass(frozen=True, slots=True)
class Matmul:
    """Iterator roles of a matrix product `c[…, i, j] += a[…, i, k] * b[…, k, j]`, or of a reduction over columns (then without `a`)."""

    batch: tuple[str, ...]  # all other iterators of the result: indices of both sides, or of the left side before `row`
    row: str | None  # the last index of the result that only the left side has
    column: str  # contiguous in the right-hand side and in the result
    reduced: tuple[str, ...]
    pack: int = 0  # columns of a pack if the right-hand side is packed, i.e. indexed by `column // pack`, …, `column % pack`; else 0


def matmul_of(block: Block) -> Matmul | Refusal:
    """Match a matrix product or a reduction over columns; return its iterator roles, or why the block is neither."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.left or block.init is None or len(s.targets) != 1:
        return Refusal(f"block `{block.name}` is no reduction with a named combiner and an init")
    out = plain_iters(s.targets[0].indices, block)
    spatial = [i.var for i in block.iters if i.kind == "S"]
    if not out or set(out) != set(spatial):
        return Refusal(f"the result of block `{block.name}` is not indexed by its S iterators, each once")
    if any(i.kind == "O" for i in block.iters):
        return Refusal(f"block `{block.name}` has an ordered iterator")
    column = out[-1]
    product = isinstance(s.values[0], Mul) and s.combiner.name == "add"
    factors = s.values[0].args if product and not all(column in free_vars(f) for f in s.values[0].args) else s.values
    wide = [f for f in factors if column in free_vars(f)]
    narrow = [f for f in factors if column not in free_vars(f)]
    if len(wide) != 1:
        return Refusal(f"`{column.name}`, the last index of the result of block `{block.name}`, is not an index of exactly one factor")
    packs = {0 if along(e, column) else packed(e, column) for e in walk(wide[0]) if isinstance(e, Load) and column in free_vars(e)}
    if None in packs or len(packs) != 1:
        return Refusal(f"what block `{block.name}` multiplies is not contiguous along `{column.name}`")
    rows = [v for v in out[:-1] if any(v in free_vars(f) for f in narrow) and v not in free_vars(wide[0])]
    row = rows[-1] if rows else None
    batch = tuple(v.name for v in out[:-1] if v is not row)
    reduced = tuple(i.var.name for i in block.iters if i.kind == "R")
    if not reduced:
        return Refusal(f"block `{block.name}` has no reduction iterator")
    return Matmul(batch, row.name if row is not None else None, column.name, reduced, packs.pop() or 0)


def sums_rows(block: Block) -> bool:
    """True if a block sums products along rows of both factors, c[i, j] += a[i, k] * b[j, k]: each result is a dot product of rows."""
    s = block.body
    reduced = [i.var for i in block.iters if i.kind == "R"]
    if not isinstance(s, Reduce) or s.combiner.name != "add" or not isinstance(s.values[0], Mul) or len(reduced) != 1:
        return False
    return all(along(e, reduced[0]) for e in walk(s.values[0]) if isinstance(e, Load))


def along(e: Load, v: Var) -> bool:
    """True if consecutive values of `v` make a load read consecutive elements."""
    strides = e.buffer.strides
    unit = strides is None or (isinstance(strides[-1], Const) and strides[-1].value == 1)
    return bool(e.indices) and unit and e.indices[-1] is v and all(v not in free_vars(i) for i in e.indices[:-1])


def packed(e: Load, v: Var) -> int | None:
    """Return the pack size if a load has `v // size` as one index, `v % size` as the last, and `v` in no other; else None."""
    last = e.indices[-1] if e.indices else None
    if e.buffer.strides is not None or not isinstance(last, FloorMod) or last.args[0] is not v or not isinstance(last.args[1], Const):
        return None
    using = [i for i in e.indices[:-1] if v in free_vars(i)]
    return int(last.args[1].value) if using == [FloorDiv(v, last.args[1])] else None


def is_cheap(value: Expr) -> bool:
    """True if recomputing a value costs about as much as loading it.

    That is at most two loads and six operations, without float division and math functions. A value made by integer division of indices
    alone is not cheap: a division takes longer than a load.
    """
    nodes = list(walk(value))
    if not any(isinstance(e, Load) for e in nodes) and any(isinstance(e, (FloorDiv, FloorMod)) for e in nodes):
        return False
    calls = any(isinstance(e, (Call, Div)) and e.dtype.is_float for e in nodes)
    return not calls and sum(isinstance(e, Load) for e in nodes) <= 2 and sum(bool(e.args) for e in nodes if not _is_index(e)) <= 6


def _is_index(e: Expr) -> bool:
    return e.dtype.is_int and not isinstance(e, Load)


def reads_once(block: Block, buffer_of: Store) -> bool:
    """True if no element of the buffer is read by two instances of a block."""
    for a in accesses(block):
        if a.buffer is buffer_of.buffer and not a.write:
            iters = plain_iters(a.indices, block)
            if iters is None or len(iters) != len(block.iters):
                return False
    return True


def decodes(func: Func, block: Block) -> bool:
    """True if an elementwise block decodes (dequantizes) the right-hand side of a product.

    It must be read by that product alone, and be made from at most half as many bits.
    """
    store = elementwise(block)
    if store is None or allocation(func, store.buffer) is None:
        return False
    users = readers(func, store.buffer)
    if len(users) != 1 or isinstance(roles := matmul_of(users[0]), Refusal):
        return False
    column = next(i.var for i in users[0].iters if i.var.name == roles.column)
    loads = [a for a in accesses(users[0]) if a.buffer is store.buffer]
    read = {a.buffer for a in accesses(block) if not a.write}
    bits = sum((_bits(b) for b in read), Const(0, i64))
    return all(column in free_vars(a.indices[-1]) for a in loads) and prove(Le(bits * 2, _bits(store.buffer)))


def _bits(b: Buffer) -> Expr:
    return product(b.shape) * b.dtype.bits


def root_nests(func: Func) -> list[Stmt]:
    """Return the statements of a program's body that contain blocks."""
    body = func.body.body if isinstance(func.body, Seq) else (func.body,)
    return [s for s in body if blocks(s)]


def untouched(func: Func) -> list[Block]:
    """Return the blocks that no rule has scheduled yet: all loops around them are serial, and they are no tensor instructions."""
    return [b for b in blocks(func.body) if INSTRUCTION not in b.annotations and all(x.kind == "serial" for x in loops_above(func, b))]


def alone(func: Func, block: Block) -> list[For]:
    """Return the loops that contain no other block than this one, outermost first."""
    return [x for x in loops_above(func, block) if blocks(x) == [block]]


def find_block(func: Func, name: str) -> Block:
    """Return the block of that name."""
    return index(func.body).blocks[name]


def has_block(func: Func, name: str) -> bool:
    """True if there is a block of that name."""
    return name in index(func.body).blocks


def known_sums(func: Func, block: Block, any_size: bool = False) -> None:
    """Raise `NotApplicable` if a block shares its loops with others, or if it reduces over an extent known only at run time.

    `any_size` allows such extents.
    """
    loops = plain_loops(func, block)
    if isinstance(loops, Refusal):
        raise NotApplicable(loops.reason)
    if not any_size and any(i.kind == "R" and not isinstance(loops[i.var].extent, Const) for i in block.iters):
        raise NotApplicable(f"what block `{block.name}` sums over has a size that is known only at run time")
