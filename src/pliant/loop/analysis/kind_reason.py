"""Why a loop program has its fusion pattern (`nest_kind.py`), in a sentence about its own buffers, for `pliant.kind`."""

from __future__ import annotations

from ...sym.expr import Expr
from ...sym.walk import walk
from ..buffer import Buffer, Load
from ..stmt import Alloc, Block, Check, For, Func, If, Let, Seq, Stmt, Store, children, exprs, walk_stmts
from .nest_kind import Computed, Kind, computed_by, outer_blocks, pattern_kind, read_kind

_ORDER = "instances of a block that run one after the other cannot be moved into another loop"


def kind_reason(func: Func) -> str:
    """Returns why `pattern_kind(func)` is what it is; for an opaque program, the first obstacle."""
    kind = pattern_kind(func)
    if kind is Kind.OPAQUE:
        return _obstacle(func)
    blocks = [c for b in outer_blocks(func.body) or () if (c := computed_by(b)) is not None]
    decisive = next((c for c in reversed(blocks) if c.kind is kind), blocks[-1])
    return _REASONS[kind](decisive)


def _elementwise(c: Computed) -> str:
    same = [r for r in c.reads if r.indices == c.target]
    if not same:
        return f"`{_written(c)}` is computed from no tensor"
    return f"`{_written(c)}` is computed from `{same[0]}`, at the index that is written"


def _broadcast(c: Computed) -> str:
    return f"`{_written(c)}` is computed from `{c.reads[0]}`, at a part of the index that is written"


def _injective(c: Computed) -> str:
    moved = next((r for r in c.reads if read_kind(r, c.target) is Kind.INJECTIVE), None)
    if moved is None:
        return f"`{_written(c)}` is written at a computed index"
    return f"`{_written(c)}` is computed from `{moved}`, at another index that follows from the iterators"


def _gather(c: Computed) -> str:
    found = next(r for r in c.reads if _data(r))
    return f"`{found.buffer.name}` is read at an index that `{_data(found)[0].buffer.name}` holds"


def _scatter(c: Computed) -> str:
    source = [n for e in c.target for n in _loads_of(e)]
    return f"`{_name(c)}` is written at an index that `{source[0].buffer.name}` holds"


def _reduction(c: Computed) -> str:
    over = [i.var.name for i in c.block.iters if i.kind == "R"]
    return f"`{_written(c)}` combines values along {', '.join(f'`{v}`' for v in over) or 'a loop'}"


def _matmul(c: Computed) -> str:
    over = [i.var.name for i in c.block.iters if i.kind == "R"]
    operands = list(dict.fromkeys(r.buffer.name for r in c.reads))[:2]
    pair = " and ".join(f"`{o}`" for o in operands) if len(operands) == 2 else f"elements of `{operands[0]}`"
    along = ", ".join(f"`{v}`" for v in over)
    return f"`{_written(c)}` adds up products of {pair} along {along}, and reads an operand again for other results"


_REASONS = {
    Kind.ELEMENTWISE: _elementwise,
    Kind.BROADCAST: _broadcast,
    Kind.INJECTIVE: _injective,
    Kind.GATHER: _gather,
    Kind.SCATTER: _scatter,
    Kind.REDUCTION: _reduction,
    Kind.MATMUL: _matmul,
}


def _obstacle(func: Func) -> str:
    """Returns the first construct that hides from fusion what an opaque program computes."""
    blocks = outer_blocks(func.body)
    if blocks is None:
        return _outside(func.body)
    makers: dict[Buffer, Computed] = {}
    for b in blocks:
        c = computed_by(b)
        if c is None:
            return _formless(b)
        twice = [x for x in c.writes if x in makers]
        if twice:
            return f"two blocks write `{twice[0].name}`"
        makers |= dict.fromkeys(c.writes, c)
    outputs = [p.value for p in func.params if p.role != "in" and isinstance(p.value, Buffer)]
    if not outputs:
        return "it has no result"
    missing = [b for b in outputs if b not in makers]
    if missing:
        return f"no block writes `{missing[0].name}`"
    other = [b for b in outputs if b.shape != outputs[0].shape]
    if other:
        return f"its results `{outputs[0].name}` and `{other[0].name}` have different shapes"
    alone = next((c for c in makers.values() if c.kind is Kind.OPAQUE), None)
    if alone is not None:
        return f"block `{alone.block.name}` writes `{_written(alone)}` at an index of a loop that it reduces over"
    every = ", ".join(f"`{c.block.name}` ({c.kind.name.lower()})" for c in makers.values())
    return f"its blocks are {every}, which do not combine to one pattern"


def _outside(s: Stmt) -> str:
    """The first statement that computes outside of a block, or that blocks cannot be inferred for."""
    match s:
        case Block() | Alloc() | Check():
            return ""
        case Let() if not any(_loads_of(e) for e in exprs(s)):
            return ""
        case For() | Seq():
            return next((why for c in children(s) if (why := _outside(c))), "")
        case If():
            return "it computes under a condition, outside of a block"
        case Store():
            return f"its store to `{s.buffer.name}` is not provably one independent instance for each element"
    return f"it has a statement outside of blocks ({type(s).__name__.lower()})"


def _formless(block: Block) -> str:
    """Why one block has no known form."""
    if any(i.kind == "O" for i in block.iters):
        return f"block `{block.name}` runs in order: {_ORDER}"
    inner = [s for s in walk_stmts(block.body) if isinstance(s, For | Block | Alloc)]
    if inner:
        return f"block `{block.name}` has loops or memory of its own inside"
    return f"block `{block.name}` writes several elements, or reads what it writes at another index"


def _written(c: Computed) -> Load:
    return Load(min(c.writes, key=lambda b: b.name), c.target)


def _name(c: Computed) -> str:
    return _written(c).buffer.name


def _data(load: Load) -> list[Load]:
    return [n for e in load.indices for n in _loads_of(e)]


def _loads_of(e: Expr) -> list[Load]:
    return [n for n in walk(e) if isinstance(n, Load)]
