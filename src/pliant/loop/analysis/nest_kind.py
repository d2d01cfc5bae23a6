"""Classification of whole loop programs by their accesses; fusion chooses by it. `block_kind.py` answers what one block is.

    elementwise   y[i, j] = f(a[i, j], b[j])            some input is read at the index that is written, others may be broadcast
    broadcast     y[i, j] = f(b[j])                     every input is read at a part of that index, in order
    injective     y[i, j] = f(a[j, i]), f(a[i, 2*j])    at indices that depend on the iterators only
    gather        y[i] = a[t[i]]                        at indices that depend on data
    scatter       y[t[i]] = a[i]                        it writes at such indices
    reduction     y[i] += f(a[i, k])                    also with a prologue and an epilogue: softmax and norms are reductions
    matmul        y[i, j] += a[i, k] * b[k, j]          a sum of products that reuses an operand along some output dim
    opaque        anything else: ordered, several shapes, loops inside of blocks, code outside of blocks

The kind of a program with several blocks is that of its output block, combined with the blocks that it reads through local
buffers: a matmul with an elementwise epilogue is still a matmul.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from ...support.record import dataclass
from ...sym.expr import Cast, Const, Expr, Fma, Mul, Select, Var, free_vars, substitute
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Block, Check, For, Func, If, Let, Reduce, Replacer, Seq, Stmt, Store, children, exprs, walk_stmts
from .block_kind import is_cheap_program, reads_once
from .nests import readers


class Kind(IntEnum):
    """The fusion pattern of a loop program, from elementwise to opaque; a greater one is harder to fuse."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    GATHER = 3
    SCATTER = 4
    REDUCTION = 5
    MATMUL = 6
    OPAQUE = 7


_SIMPLE = (Kind.ELEMENTWISE, Kind.BROADCAST, Kind.INJECTIVE, Kind.GATHER)  # each output element is computed by one instance


@dataclass(frozen=True, slots=True)
class Computed:
    """A record of what one block computes: the written element, the loads from other buffers, and the block's pattern taken alone."""

    block: Block
    target: tuple[Expr, ...]  # the index that is written
    writes: frozenset[Buffer]
    reads: tuple[Load, ...]
    kind: Kind


def pattern_kind(func: Func) -> Kind:
    """Returns the fusion pattern of a whole loop program, e.g. elementwise, broadcast or reduction; opaque if it has no known form."""
    blocks = outer_blocks(func.body)
    if blocks is None:
        return Kind.OPAQUE
    computed = [computed_by(b) for b in blocks]
    makers: dict[Buffer, Computed] = {}
    for c in computed:
        if c is None or any(b in makers for b in c.writes):
            return Kind.OPAQUE
        makers |= dict.fromkeys(c.writes, c)
    outputs = [p.value for p in func.params if p.role != "in" and isinstance(p.value, Buffer)]
    if not outputs or any(b not in makers for b in outputs) or any(b.shape != outputs[0].shape for b in outputs):
        return Kind.OPAQUE
    kinds = [_joined(makers[b], makers, frozenset()) for b in outputs]
    return max(kinds)


def reads_elementwise(func: Func, position: int) -> bool:
    """True if the input at `position` (outputs not counted) is read only at the index that is written, by blocks that write outputs.

    False if nothing reads it.
    """
    inputs = [p for p in func.params if p.role != "out"]
    buffer = inputs[position].value
    blocks = outer_blocks(func.body)
    if blocks is None or not isinstance(buffer, Buffer):
        return False
    uses = [(c, load) for c in map(computed_by, blocks) if c is not None for load in c.reads if load.buffer is buffer]
    outputs = [p.value for p in func.params if p.role != "in"]
    return bool(uses) and all(load.indices == c.target and c.writes <= set(outputs) for c, load in uses)


def reads_each_once(func: Func, position: int) -> bool:
    """True if a single block reads the input at `position` (outputs not counted), and each element in at most one instance."""
    buffer = [p for p in func.params if p.role != "out"][position].value
    if outer_blocks(func.body) is None or not isinstance(buffer, Buffer):
        return False
    users = readers(func, buffer)
    return len(users) == 1 and reads_once(users[0], buffer)


def right_operand(func: Func, position: int) -> bool:
    """True if the input at `position` (outputs not counted) is a matmul operand that varies along the last output index."""
    inputs = [p for p in func.params if p.role != "out"]
    uses = [(c, load) for c in map(computed_by, outer_blocks(func.body) or ()) if c is not None for load in c.reads]
    operand = [(c, load) for c, load in uses if load.buffer is inputs[position].value]
    return bool(operand) and all(c.kind is Kind.MATMUL and not free_vars(c.target[-1]).isdisjoint(free_vars(load)) for c, load in operand)


def cheap_store(func: Func) -> bool:
    """True if the program is one elementwise or broadcasting store that is as cheap to recompute as to load: no division, no function."""
    blocks = outer_blocks(func.body)
    if blocks is None or len(blocks) != 1 or not isinstance(blocks[0].body, Store) or pattern_kind(func) > Kind.BROADCAST:
        return False
    return is_cheap_program(blocks[0].body.value)


def outer_blocks(s: Stmt) -> list[Block] | None:
    """The outermost blocks in order; None if there are other statements that compute."""
    match s:
        case Block():
            return [s]
        case Alloc() | Check():
            return []
        case Let():
            return [] if not any(isinstance(n, Load) for n in walk(s.value)) else None
        case For() | Seq():
            nested = [outer_blocks(c) for c in children(s)]
            return None if any(f is None for f in nested) else [b for f in nested if f is not None for b in f]
    return None


def _joined(c: Computed, makers: dict[Buffer, Computed], above: frozenset[Computed]) -> Kind:
    """Returns the pattern of a block combined with the blocks that produce its operands; opaque if they form a cycle."""
    if c in above:  # a cycle through memory
        return Kind.OPAQUE
    kind = c.kind
    for load in c.reads:
        maker = makers.get(load.buffer)
        if maker is None or maker is c:
            continue
        before = _joined(maker, makers, above | {c})
        kind = _composed(kind, before, load.indices == c.target)
    return kind


def _composed(kind: Kind, before: Kind, in_place: bool) -> Kind:
    """The kind of a `kind` block that reads the result of a `before` block, at its own output index (`in_place`) or elsewhere."""
    if Kind.OPAQUE in (kind, before) or Kind.SCATTER in (kind, before):
        return Kind.OPAQUE
    if kind in _SIMPLE and before in _SIMPLE:
        return max(kind, before)
    if before is Kind.MATMUL:
        return Kind.MATMUL if kind in (Kind.ELEMENTWISE, Kind.BROADCAST) and in_place else Kind.OPAQUE
    if kind is Kind.MATMUL:
        return Kind.MATMUL if before in _SIMPLE else Kind.OPAQUE
    return Kind.REDUCTION if kind is not Kind.GATHER else Kind.OPAQUE


def computed_by(block: Block) -> Computed | None:
    """Returns what a block computes as a record, or None if the block has no known form."""
    stores: list[Load] = []
    loads: list[Load] = []
    reduces = False
    block = block.with_(body=_without_lets(block.body))
    for s in walk_stmts(block.body):
        match s:
            case Let():
                continue  # `_without_lets` has substituted it
            case Store():
                stores.append(Load(s.buffer, s.indices))
            case Reduce():
                stores += s.targets
                reduces = True
            case Seq() | If() | Check():
                pass
            case _:
                return None
        loads += _loads(exprs(s))
    kinds = {i.kind for i in block.iters}
    targets = {t.indices for t in stores}
    if "O" in kinds or len(targets) != 1:
        return None
    (target,) = targets
    writes = frozenset(t.buffer for t in stores)
    reads = tuple(load for load in loads if load.buffer not in writes)
    own = [load for load in loads if load.buffer in writes and load.indices != target]
    if own:
        return None
    reduces = reduces or "R" in kinds
    return Computed(block, target, writes, reads, _kind(block, target, reads, reduces))


def _without_lets(s: Stmt) -> Stmt:
    """Returns the statement with the values of lets substituted for their variables."""
    lets: dict[Var, Expr] = {}
    for x in walk_stmts(s):
        if isinstance(x, Let):
            lets[x.var] = substitute(x.value, lets)
    return Replacer(lets).stmt(s) if lets else s


def _loads(values: Iterable[Expr]) -> list[Load]:
    """The loads in expressions."""
    return [n for e in values for n in walk(e) if isinstance(n, Load)]


def _kind(block: Block, target: tuple[Expr, ...], reads: tuple[Load, ...], reduces: bool) -> Kind:
    """Returns the pattern of a single block, from the element that it writes, its loads, and whether it reduces."""
    spatial = [i.var for i in block.iters if i.kind == "S"]
    if _loads(target):
        return Kind.SCATTER if not reduces else Kind.OPAQUE
    written = frozenset().union(*(free_vars(e) for e in target)) & frozenset(i.var for i in block.iters)
    if not written <= frozenset(spatial):
        return Kind.OPAQUE  # it writes at an index of a reduction iterator
    if reduces:
        return Kind.MATMUL if _sums_products(block, spatial) else Kind.REDUCTION
    if not all(isinstance(e, Var) for e in target if free_vars(e)):
        return Kind.INJECTIVE if not any(_loads(r.indices) for r in reads) else Kind.GATHER
    kinds = [read_kind(r, target) for r in reads]
    hardest = max(kinds, default=Kind.ELEMENTWISE)
    return Kind.ELEMENTWISE if hardest is Kind.BROADCAST and Kind.ELEMENTWISE in kinds else hardest


def read_kind(load: Load, target: tuple[Expr, ...]) -> Kind:
    """The kind of a read, by how its index relates to the index that is written."""
    if load.indices == target:
        return Kind.ELEMENTWISE
    if _loads(load.indices):
        return Kind.GATHER
    places = [e for e in target if isinstance(e, Var)]
    at = -1
    for index in load.indices:
        v = _plain(index)
        if v is None:
            continue
        if v not in places or places.index(v) <= at:
            return Kind.INJECTIVE
        at = places.index(v)
    fixed = all(_plain(i) is not None or _fixed(i, places) for i in load.indices)
    return Kind.BROADCAST if fixed else Kind.INJECTIVE


def _plain(index: Expr) -> Var | None:
    """The iterator that an index consists of, also where a dim of 1 is broadcast: `select(n == 1, 0, v)`. None for other indices."""
    if isinstance(index, Var):
        return index
    if isinstance(index, Select):
        arms = [a for a in index.args[1:] if not isinstance(a, Const)]
        if len(arms) == 1 and isinstance(arms[0], Var) and arms[0] not in free_vars(index.args[0]):
            return arms[0]
    return None


def _fixed(index: Expr, places: list[Var]) -> bool:
    """True if an index does not depend on the output iterators."""
    return free_vars(index).isdisjoint(places)


def _sums_products(block: Block, spatial: list[Var]) -> bool:
    """True if the block adds up products of two loaded operands, and some output iterator reuses one of them."""
    reduced = {i.var for i in block.iters if i.kind == "R"}
    for s in walk_stmts(block.body):
        pair = _factors(s)
        if pair is not None:
            uses = [free_vars(e) for e in pair]
            reused = any(v not in u for u in uses for v in spatial)
            return all(u & reduced for u in uses) and reused and all(_loads([e]) for e in pair)
    return False


def _factors(s: Stmt) -> tuple[Expr, Expr] | None:
    """Returns the two factors if a statement adds a product to its target, else None."""
    if isinstance(s, Reduce) and s.combiner.name == "fma":
        return s.values[0], s.values[1]
    if isinstance(s, Reduce) and s.combiner.name == "add":
        value = s.values[0]
        while isinstance(value, Cast):
            value = value.args[0]
        return (value.args[0], value.args[1]) if isinstance(value, Mul) else None
    if isinstance(s, Store) and isinstance(s.value, Fma) and s.value.args[2] is Load(s.buffer, s.indices):
        return s.value.args[0], s.value.args[1]
    return None
