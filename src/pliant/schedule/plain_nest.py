"""Plain nests, as programs are first written: one serial loop from 0 for each iterator of a block, and nothing else in the loops.

    for i, j, k in grid(n, 16, 8):
        block(S i, S j, R k)

Unlike `isolated_nest.py`, which raises, this module returns refusals: rules and passes look at many blocks that they do not take.
"""

from __future__ import annotations

from ..loop.analysis.nests import blocks, loops_above, path_to
from ..loop.stmt import Block, For, Func, Iter, Seq, Store
from ..support.refusal import Refusal
from ..sym.expr import TRUE, Const, Var, free_vars


def plain_loops(func: Func, block: Block) -> dict[Var, For] | Refusal:
    """Return the loop of each iterator if a block is alone in a nest of one serial loop per iterator; else why it is not."""
    loops = loops_above(func, block)
    of = {x.var: x for x in loops}
    loop_of: dict[Var, For] = {}
    for i in block.iters:
        loop = of.get(i.value)  # type: ignore[call-overload]
        if loop is None or loop in loop_of.values():
            return Refusal(f"iterator `{i.var.name}` of block `{block.name}` is not one loop")
        loop_of[i.var] = loop
    if block.predicate is not TRUE:
        return Refusal(f"block `{block.name}` has a predicate")
    if len(loops) != len(loop_of):
        return Refusal(f"there are loops around block `{block.name}` that it does not use")
    for x in loops:
        if x.kind != "serial" or blocks(x) != [block] or not (isinstance(x.start, Const) and x.start.value == 0):
            return Refusal(f"loop `{x.var.name}` is not a serial loop from 0 around block `{block.name}` alone")
        if any(not free_vars(x.stop).isdisjoint([y.var]) for y in loops):
            return Refusal(f"the extent of loop `{x.var.name}` depends on another loop")
    if any(not isinstance(s, (For, Seq)) for s in path_to(func, block)) or any(isinstance(x.body, Seq) for x in loops):
        return Refusal(f"block `{block.name}` is not alone in its loops")
    return loop_of


def elementwise(block: Block) -> Store | None:
    """Return the store of a block that is one store over S iterators; else None."""
    s = block.body
    return s if isinstance(s, Store) and block.init is None and all(i.kind == "S" for i in block.iters) else None


def iter_named(block: Block, name: str) -> Iter:
    """Return the iterator of that name."""
    return next(i for i in block.iters if i.var.name == name)
