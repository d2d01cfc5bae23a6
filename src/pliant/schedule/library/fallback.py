"""The rule that takes anything: threads over the outermost loops and vectors along contiguous stores, wherever that is legal.

As in all rules, sums of products become fused multiply-adds if the machine has them, and long sums are in parts (`accumulate.py`).

A long sum here has no register tiles and mostly no vectors, so it may take a hundred times as long as in another rule. The text about it
has a warning, which `pliant.explain` and the report show.
"""

from __future__ import annotations

from functools import partial
from math import prod

from ...loop.analysis.nests import accesses, blocks, fed_by, find_block, loops_above, loops_in
from ...loop.stmt import Block, For, Func, Reduce, Stmt, children, walk_stmts
from ...sym.exact import exact
from ...sym.expr import free_vars
from ...sym.typical import typical
from ...target import Target
from ..decisions import Decide
from ..dependence import dependence
from ..schedule import LoopHandle, Schedule
from .accumulate import parts_in_order
from .record import Rule, tried

SLOW = 5_000_000  # terms of a sum from which on its text has a warning: 10 million operations


def schedule_anything(s: Schedule, roles: object, decide: Decide) -> str:
    """Parallelize and vectorize the nest around a block as far as its dependences allow; return text about it.

    Before that, a sum of products is contracted to FMA and a long sum is summed in parts, if that is legal.
    """
    name = decide.block
    warning = _warning(s.program, find_block(s.program, name))
    done = _summed(s, name, decide.target)
    loop = _innermost(s.program, find_block(s.program, name))
    if loop is not None and decide("vectors", (False, True), True) and tried(partial(s.vectorize, _handle(s, name, loop))):
        done.append(f"vectors along `{loop.var.name}` in `{name}`")
    outer = _outermost(s.program, name)
    if outer is not None and decide("threads", (False, True), True, kind="sharing") and tried(partial(s.parallel, _handle(s, name, outer))):
        done.append(f"threads over `{outer.var.name}`")
    return f"fallback: {', '.join(done) or f'`{name}` as it stands'}{warning}"


def _warning(func: Func, block: Block) -> str:
    """Return a warning if a block sums at least SLOW terms, with typical values for dims that are not known; else ""."""
    if not isinstance(block.body, Reduce):
        return ""
    extents = [x.extent for x in loops_above(func, block)]
    sizes = typical(v for e in extents for v in free_vars(e))
    terms = prod(exact(e, sizes) for e in extents)
    if terms < SLOW:
        return ""
    shown = ", ".join(f"{v.name} = {sizes[v]}" for v in func.symbols if v in sizes)
    return f"; warning: `{block.name}` sums {terms / 1e6:.0f} million terms{f' ({shown})' if shown else ''}, and no faster rule takes it"


def _summed(s: Schedule, name: str, target: Target) -> list[str]:
    """Contract a sum of products to FMA, and sum a long sum in parts, if the loops allow it; return text about it."""
    if target.has_fma:
        tried(partial(s.contract, name))
    return [f"`{name}` in parts"] if tried(partial(parts_in_order, s, name, target)) else []


def _innermost(func: Func, block: Block) -> For | None:
    """Return the innermost loop around a block if it feeds only S iterators and every store is contiguous along it; else None."""
    loops = loops_above(func, block)
    if not loops:
        return None
    loop = loops[-1]
    inside = any(isinstance(x, For) for x in walk_stmts(block.body))
    if loop.kind != "serial" or fed_by(block, loop) != {"S"} or inside or loops_in(loop.body) or blocks(loop) != [block]:
        return None
    for a in accesses(block):
        if a.write:
            over = a.over_loops()
            if not over or loop.var not in free_vars(over[-1]) or any(loop.var in free_vars(e) for e in over[:-1]):
                return None
    return loop


def _outermost(func: Func, name: str) -> For | None:
    """Return the outermost serial loop around a block with independent iterations; None if something around or inside it is parallel."""
    block = next(b for b in blocks(func.body) if b.name == name)
    loops = loops_above(func, block)
    if any(x.kind == "parallel" for x in loops):
        return None
    for x in loops:
        if x.kind != "serial":
            return None
        if not any(y.kind == "parallel" for y in loops_in(x.body)) and not _has_calls(x) and dependence(func, x) is None:
            return x
    return None


def _has_calls(s: Stmt) -> bool:
    return type(s).__name__ == "Call" or any(_has_calls(c) for c in children(s))


def _handle(s: Schedule, name: str, loop: For) -> LoopHandle:
    return next(h for h in s.loops(name) if h.loop is loop)


FALLBACK = Rule("fallback", "fallback", lambda func, block, target: block, schedule_anything)
