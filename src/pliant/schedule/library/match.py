"""What default rules ask of a program: is this block a matrix product, elementwise, cheap; which loop runs along memory.

Answers are records or None; reasons are sentences for `default_schedule`.
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
    """A sum of products `c[…, i, j] += a[…, i, k] * b[…, k, j]`, or a reduction of columns: the roles of its iterators."""

    batch: tuple[str, ...]  # names of iterators: indices of both sides, or of the left side only but not the last of these
    row: str | None  # index of the left side only
    column: str  # along the rows of the right side and of the result
    reduced: tuple[str, ...]
    pack: int = 0  # the right side is packed: it lies by `column // pack`, …, `column % pack`


def matmul_of(block: Block) -> Matmul | Refusal:
    """The roles of the iterators of a sum of products or of a reduction of columns; else why it is none."""
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
        return Refusal(f"`{column.name}`, the last index of the result of block `{block.name}`, is not an index of one factor alone")
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
    """Whether a block sums products along rows of both factors, c[i, j] += a[i, k] * b[j, k]: each sum is one of vectors."""
    s = block.body
    reduced = [i.var for i in block.iters if i.kind == "R"]
    if not isinstance(s, Reduce) or s.combiner.name != "add" or not isinstance(s.values[0], Mul) or len(reduced) != 1:
        return False
    return all(along(e, reduced[0]) for e in walk(s.values[0]) if isinstance(e, Load))


def along(e: Load, v: Var) -> bool:
    """Whether a load goes through neighboring elements with `v`."""
    strides = e.buffer.strides
    unit = strides is None or (isinstance(strides[-1], Const) and strides[-1].value == 1)
    return bool(e.indices) and unit and e.indices[-1] is v and all(v not in free_vars(i) for i in e.indices[:-1])


def packed(e: Load, v: Var) -> int | None:
    """The size of a pack, if a load has `v // size` as one index and `v % size` as the last, and `v` nowhere else."""
    last = e.indices[-1] if e.indices else None
    if e.buffer.strides is not None or not isinstance(last, FloorMod) or last.args[0] is not v or not isinstance(last.args[1], Const):
        return None
    using = [i for i in e.indices[:-1] if v in free_vars(i)]
    return int(last.args[1].value) if using == [FloorDiv(v, last.args[1])] else None


def is_cheap(value: Expr) -> bool:
    """Whether computing a value again costs about as much as loading it; what is divided out of indices alone is better kept."""
    nodes = list(walk(value))
    if not any(isinstance(e, Load) for e in nodes) and any(isinstance(e, (FloorDiv, FloorMod)) for e in nodes):
        return False
    calls = any(isinstance(e, (Call, Div)) and e.dtype.is_float for e in nodes)
    return not calls and sum(isinstance(e, Load) for e in nodes) <= 2 and sum(bool(e.args) for e in nodes if not _is_index(e)) <= 6


def _is_index(e: Expr) -> bool:
    return e.dtype.is_int and not isinstance(e, Load)


def reads_once(block: Block, buffer_of: Store) -> bool:
    """Whether each instance of a block reads an element of the buffer that no other instance reads."""
    for a in accesses(block):
        if a.buffer is buffer_of.buffer and not a.write:
            iters = plain_iters(a.indices, block)
            if iters is None or len(iters) != len(block.iters):
                return False
    return True


def decodes(func: Func, block: Block) -> bool:
    """Whether an elementwise block makes the right-hand side of a product, which alone reads it, from at most half as many bits."""
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
    """The statements of a program's body that contain blocks."""
    body = func.body.body if isinstance(func.body, Seq) else (func.body,)
    return [s for s in body if blocks(s)]


def untouched(func: Func) -> list[Block]:
    """The blocks around which all loops are serial still, and that are no instructions."""
    return [b for b in blocks(func.body) if INSTRUCTION not in b.annotations and all(x.kind == "serial" for x in loops_above(func, b))]


def alone(func: Func, block: Block) -> list[For]:
    """The loops around this block only, outermost first."""
    return [x for x in loops_above(func, block) if blocks(x) == [block]]


def find_block(func: Func, name: str) -> Block:
    """The block of that name."""
    return index(func.body).blocks[name]


def has_block(func: Func, name: str) -> bool:
    """Whether there is a block of that name."""
    return name in index(func.body).blocks


def known_sums(func: Func, block: Block, any_size: bool = False) -> None:
    """Refuse a block that is not alone in plain loops, or that sums over something whose size is known only at run time."""
    loops = plain_loops(func, block)
    if isinstance(loops, Refusal):
        raise NotApplicable(loops.reason)
    if not any_size and any(i.kind == "R" and not isinstance(loops[i.var].extent, Const) for i in block.iters):
        raise NotApplicable(f"what block `{block.name}` sums over has a size that is known only at run time")
