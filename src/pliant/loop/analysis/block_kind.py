"""Classification of one block: elementwise, matrix product or column reduction, dot products of rows, decode; cost and reuse of values.

    y[i, j] = f(a[i, j])                elementwise         `elementwise`
    c[i, j] += a[i, k] * b[k, j]        matrix product      `matmul_of`: the roles of its iterators
    c[i, j] += a[i, k] * b[j, k]        dot products        `sums_rows`
    w[k, j] = decode(q[k, j // 2])      decode              `decodes`: dequantizes the right-hand side of a product

`nest_kind.py` classifies a whole program by these and by how its blocks read each other. Answers are records, or a `Refusal` whose reason
appears in the text of `default_schedule`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...dtype import i64
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Call, Cast, Const, Div, Expr, FloorDiv, FloorMod, Le, Mul, Var, free_vars, product
from ...sym.prove import prove
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Block, Func, Reduce, Store
from .nests import accesses, allocation, plain_iters, readers, writers


@dataclass(frozen=True, slots=True)
class Matmul:
    """Iterator roles of a matrix product `c[…, i, j] += a[…, i, k] * b[…, k, j]`, or of a reduction over columns (then without `a`)."""

    batch: tuple[str, ...]  # all other iterators of the result: indices of both sides, or of the left side before `row`
    row: str | None  # the last index of the result that only the left side has
    column: str  # contiguous in the right-hand side and in the result
    reduced: tuple[str, ...]
    pack: int = 0  # columns of a pack if the right-hand side is packed, i.e. indexed by `column // pack`, …, `column % pack`; else 0


def elementwise(block: Block) -> Store | None:
    """Return the store of a block that is one store over S iterators; else None."""
    s = block.body
    return s if isinstance(s, Store) and block.init is None and all(i.kind == "S" for i in block.iters) else None


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
    factors = summed_factors(s)
    if factors is None or all(column in free_vars(f) for f in factors):
        factors = s.values
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


def summed_factors(s: Reduce) -> tuple[Expr, ...] | None:
    """Return the factors if a reduction adds up products; else None."""
    return s.values[0].args if s.combiner.name == "add" and isinstance(s.values[0], Mul) else None


def sums_rows(block: Block) -> bool:
    """True if a block sums products along rows of both factors, c[i, j] += a[i, k] * b[j, k]: each result is a dot product of rows."""
    s = block.body
    reduced = [i.var for i in block.iters if i.kind == "R"]
    if not isinstance(s, Reduce) or summed_factors(s) is None or len(reduced) != 1:
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


def is_cheap_program(value: Expr) -> bool:
    """True if a program of its own that computes a value costs about as much as a load of the value.

    Stricter than `is_cheap`, because every reader of a rematerialized value repeats the program: one load, no division, no function.
    """
    nodes = list(walk(value))
    costly = any(isinstance(e, (Call, Div)) for e in nodes)
    # 8 operations are a rough estimate of the cost of a load.
    return not costly and sum(isinstance(e, Load) for e in nodes) <= 1 and sum(bool(e.args) for e in nodes) <= 8


def reads_once(block: Block, buffer: Buffer) -> bool:
    """True if a block loads from the buffer, and no element of it in two instances."""
    reads = [plain_iters(a.indices, block) for a in accesses(block) if a.buffer is buffer and not a.write]
    return bool(reads) and all(iters is not None and len(iters) == len(block.iters) for iters in reads)


def decodes(func: Func, block: Block) -> bool:
    """True if an elementwise block decodes (dequantizes) the right-hand side of a product.

    It must be read by that product alone, and be made from at most half as many bits. Elementwise blocks that only this one reads count as
    parts of it: a transpose of decoded weights decodes them.
    """
    store = elementwise(block)
    if store is None or allocation(func, store.buffer) is None:
        return False
    users = readers(func, store.buffer)
    if len(users) != 1 or isinstance(roles := matmul_of(users[0]), Refusal):
        return False
    column = next(i.var for i in users[0].iters if i.var.name == roles.column)
    loads = [a for a in accesses(users[0]) if a.buffer is store.buffer]
    sources = {a.buffer for b in _chain(func, block) for a in accesses(b) if not a.write and _producer(func, a.buffer) is None}
    return all(column in free_vars(a.indices[-1]) for a in loads) and halves_bits(map(bits_of, sources), bits_of(store.buffer))


def decodes_along_columns(func: Func, block: Block) -> bool:
    """True if a product that computes decoded weights in place still reads vectors: the codes are contiguous along its columns."""
    store = elementwise(block)
    if store is None or len(_chain(func, block)) > 1 or not store.indices or not isinstance(column := store.indices[-1], Var):
        return False
    loads = [e for e in walk(store.value) if isinstance(e, Load) and column in free_vars(e)]
    packs = {0 if along(e, column) else packed(e, column) for e in loads}
    return len(packs) == 1 and None not in packs


def only_converts(func: Func, block: Block) -> bool:
    """True if a block that decodes weights does nothing but convert their dtype, which costs about as much as a load."""
    values = [store.value for b in _chain(func, block) if (store := elementwise(b)) is not None]
    return all(isinstance(v, Load) or (isinstance(v, Cast) and isinstance(v.args[0], Load)) for v in values)


def _chain(func: Func, block: Block) -> list[Block]:
    """Return an elementwise block and the elementwise blocks whose results only the chain reads, last one first."""
    chain = [block]
    for b in chain:
        chain += [p for buffer in {a.buffer for a in accesses(b) if not a.write} if (p := _producer(func, buffer)) is not None]
    return chain


def _producer(func: Func, buffer: Buffer) -> Block | None:
    """Return the elementwise block that writes a local buffer, if no other block writes it and only one reads it; else None."""
    made = writers(func, buffer) if allocation(func, buffer) is not None else []
    single = len(made) == 1 and len(readers(func, buffer)) == 1
    return made[0] if single and elementwise(made[0]) is not None else None


def halves_bits(sources: Iterable[Expr], result: Expr) -> bool:
    """True if the sources of a value together have at most half of its bits: then decoding it where it is read saves memory traffic."""
    return prove(Le(sum(sources, Const(0, i64)) * 2, result))


def bits_of(b: Buffer) -> Expr:
    """Return the size of a buffer in bits, as a formula of its dims."""
    return product(b.shape) * b.dtype.bits
