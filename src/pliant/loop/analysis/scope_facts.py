"""Facts that hold inside of a scope: in a whole function, and in the body of a block. Range analysis starts from them.

facts = block_facts(block, base_facts(func))
prove(vi < n, facts)                          # the ranges of iterators, the block's predicate, and dims that are not negative
"""

from __future__ import annotations

from ...sym.expr import Expr, Var
from ...sym.facts import DIM_MAX, EMPTY, Facts
from ...sym.region import lower, upper
from ...sym.walk import walk
from ..buffer import Load
from ..stmt import Block, Func


def base_facts(func: Func) -> Facts:
    """The facts that hold everywhere in a program: symbols are between 0 and DIM_MAX."""
    facts = EMPTY
    for v in func.symbols:
        lo, hi = facts.range_of(v)
        facts = facts.with_range(v, max(lo, 0), min(hi, DIM_MAX))
    return facts


def fixed(e: Expr) -> Expr | None:
    """`e`, or None if it reads memory, which may change while the fact is used."""
    return None if any(isinstance(x, Load) for x in walk(e)) else e


def given(condition: Expr, facts: Facts) -> Facts:
    """Returns the facts with the condition added; unchanged if the condition reads memory, which may change."""
    return facts if fixed(condition) is None else facts.with_condition(condition)


def block_facts(block: Block, facts: Facts, init: bool = False) -> Facts:
    """The facts inside a block's body (or init): ranges of its iterators, and its predicate."""
    loops = {v for i in block.iters for v in walk(i.value) if isinstance(v, Var) and v in facts.ends}
    for i in block.iters:
        facts = facts.with_range(i.var, lower(i.value, facts, loops), upper(i.value, facts, loops))
    return given(block.init_predicate if init else block.predicate, facts)
