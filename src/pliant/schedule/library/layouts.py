"""How the default rules would like operands to lie in memory, if someone can see to it before the program runs.

    wanted_layouts(func, target)      # {b: lambda k, n: (n // 16, k, n % 16)} for c[i, j] += a[i, k] * b[k, j]

The right-hand side of a product is read vector by vector along its columns, whichever way it was stored; so it is wanted as packs of one
vector of columns, each pack with all of its rows. A panel of columns is then a few streams through memory, and the same
packs serve tiles of any width, hence every number of rows. Instructions that multiply small integers want words of neighbouring rows:
`(n // 16, k // 4, n % 16, k % 4)`.
"""

from __future__ import annotations

from functools import partial

from ...loop.buffer import Buffer, Load
from ...loop.stmt import Block, Func, Reduce
from ...support.refusal import Refusal
from ...sym.expr import Cast, Const, Mul, Var, free_vars, walk
from ...sym.index_map import IndexMap
from ...target import Target
from ..nest import accesses, allocation, blocks, plain_iters, readers
from ..schedule import Schedule
from .convolution_roles import along_channels, convolution_of
from .dot_products import DotProduct, dot_product_of, words
from .match import elementwise, iter_named
from .record import tried


def wanted_layouts(func: Func, target: Target) -> dict[Buffer, IndexMap]:
    """The parameters that are only read, by one product, and how they should lie."""
    if func.attrs.get("scheduled"):
        return {}
    found: dict[Buffer, IndexMap] = {}
    for b in blocks(func.body):
        dot = dot_product_of(func, b, target)
        if not isinstance(dot, Refusal):
            found.update(_words(func, b, dot))
            continue
        side = _right_side(b) or (_weights(b) if along_channels(func, b, target) else None)
        if side is None:
            continue
        load, column = side
        lanes = target.vector_bits // _result(b).dtype.bits
        if _may_be_packed(func, b, load, column, lanes):
            found[load.buffer] = packs(b, load, column, lanes)
    return found


def with_casts_inside(func: Func) -> Func:
    """The program with casts of parameters computed where a product reads them: weights are then read, and packed, in their own dtype."""
    if func.attrs.get("scheduled"):
        return func
    s = Schedule(func)
    for b in blocks(func.body):
        store = elementwise(b)
        if store is None or allocation(func, store.buffer) is None or not isinstance(store.value, Cast):
            continue
        users = readers(func, store.buffer)
        if isinstance(store.value.args[0], Load) and len(users) == 1 and _right_side(users[0]) is not None:
            tried(partial(s.compute_inline, b.name))
    return s.program


def _words(func: Func, block: Block, dot: DotProduct) -> dict[Buffer, IndexMap]:
    """The right-hand side of a product of small integers, in the words that the machine's instruction takes."""
    load, (depth,) = dot.wide, dot.roles.reduced
    at = {v.name: n for n, v in enumerate(plain_iters(load.indices, block) or ())}
    column = iter_named(block, dot.roles.column).var
    if not at or not _may_be_packed(func, block, load, column, min(dot.instructions)):
        return {}
    extent = load.buffer.shape[at[depth]]
    deep = isinstance(extent, Const) and extent.value >= dot.group
    return {load.buffer: words(load.buffer, at[column.name], at[depth], dot.lanes, dot.group)} if deep else {}


def _result(block: Block) -> Load:
    assert isinstance(block.body, Reduce)
    return block.body.targets[0]


def _right_side(block: Block) -> tuple[Load, Var] | None:
    """What a sum of products reads along the last index of its result, if that is an element of a tensor at plain iterators."""
    s = block.body
    if not isinstance(s, Reduce) or s.combiner.name != "add" or len(s.targets) != 1 or not isinstance(s.values[0], Mul):
        return None
    out = plain_iters(s.targets[0].indices, block)
    if not out:
        return None
    column = out[-1]
    wide = [f for f in s.values[0].args if column in free_vars(f)]
    loads = {e for f in wide for e in walk(f) if isinstance(e, Load)}
    if len(wide) != 1 or len(loads) != 1:
        return None
    load = loads.pop()
    iters = plain_iters(load.indices, block)
    return (load, column) if iters and column in iters else None


def _weights(block: Block) -> tuple[Load, Var] | None:
    """What a convolution multiplies its operand with, at plain iterators, and the channels of its result."""
    roles = convolution_of(block)
    if isinstance(roles, Refusal) or plain_iters(roles.weight.indices, block) is None:
        return None
    return roles.weight, iter_named(block, roles.column).var


def _may_be_packed(func: Func, block: Block, load: Load, column: Var, lanes: int) -> bool:
    buffer = load.buffer
    if buffer not in func.buffers or func.role(buffer) != "in" or buffer.strides is not None or buffer.dtype.bits < 8:
        return False
    if not all(isinstance(e, Const) for e in buffer.shape) or lanes < 2:
        return False
    if any(a.buffer is buffer for b in blocks(func.body) if b is not block for a in accesses(b)):
        return False
    width = buffer.shape[load.indices.index(column)]
    reduced = [i.var for i in block.iters if i.kind == "R"]
    return isinstance(width, Const) and width.value >= lanes and any(v in load.indices for v in reduced)


def packs(block: Block, load: Load, column: Var, lanes: int) -> IndexMap:
    """Packs of `lanes` columns: first what neither is summed nor a column, then the pack, what is summed, the column in the pack."""
    inputs = tuple(Var(f"d{n}") for n in range(load.buffer.ndim))
    named = dict(zip(load.indices, inputs, strict=True))
    summed = [named[i.var] for i in block.iters if i.kind == "R" and i.var in named]
    others = [v for i, v in named.items() if i is not column and v not in summed]
    at = named[column]
    return IndexMap(inputs, (*others, at // lanes, *summed, at % lanes))
