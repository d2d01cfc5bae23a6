"""Kernel families: one logical loop program, the layouts of its operands, and one scheduled variant for each range of its dims.

    family = default_family(func, target)
    family.variants        # (Variant(n >= 64, …), Variant(True, …)): the first whose guard holds is taken
    family.program()       # one loop program that chooses

Default rules make families, and `pliant.explain` shows them. All variants share the layouts: one packed operand serves every number of
rows. All variants compute the same bits, as every schedule of a program does.
"""

from __future__ import annotations

from ..loop.analysis.nests import block_names
from ..loop.buffer import Buffer
from ..loop.stmt import Alloc, Block, Func, If, Replacer, Stmt, map_children, walk_stmts
from ..support.record import dataclass
from ..sym.expr import TRUE, Expr
from .cursor import fresh_name
from .decisions import Decision


@dataclass(frozen=True, slots=True)
class Variant:
    """One scheduled version of a loop program, for the dims that satisfy `guard`, and the text that says which rules made it."""

    guard: Expr  # over the program's symbols
    func: Func
    why: str


@dataclass(frozen=True, slots=True)
class Family:
    """A loop program with its scheduled variants: the first variant whose guard holds runs, and the last one takes any dims."""

    logical: Func  # its attribute `layouts` has the layouts of operands (`schedule/primitives/layout.py`)
    variants: tuple[Variant, ...]
    decisions: tuple[Decision, ...] = ()  # made by the rules, for all variants

    def __post_init__(self) -> None:
        assert self.variants and self.variants[-1].guard is TRUE

    def program(self) -> Func:
        """Return the family as one scheduled program that tests the guards in order."""
        *guarded, last = self.variants
        body, names = last.func.body, set(block_names(last.func))
        for v in reversed(guarded):
            body = If(v.guard, _renamed(_with_own_memory(v.func.body), names), body)
        return last.func.with_(body=body, attrs=last.func.attrs.with_(scheduled=True))

    def why(self) -> str:
        """Return text that says which rules made each variant, and for which dims it runs."""
        if len(self.variants) == 1:
            return self.variants[0].why
        *guarded, last = self.variants
        return "; ".join([*(f"if {v.guard}: {v.why}" for v in guarded), f"else: {last.why}"])


def _with_own_memory(s: Stmt) -> Stmt:
    """Return the statement with fresh buffers for its allocations; another variant of the program allocates the same buffers."""
    allocated = [x.buffer for x in walk_stmts(s) if isinstance(x, Alloc)]
    own = {b: Buffer(b.name, b.dtype, b.shape, b.strides, b.scope) for b in allocated}
    return Replacer(buffers=own).stmt(s) if own else s


def _renamed(s: Stmt, taken: set[str]) -> Stmt:
    """Return the statement with its blocks renamed where their names are in `taken`; adds the new names to it."""
    s = map_children(s, lambda x: _renamed(x, taken))
    return s.with_(name=fresh_name(s.name, taken)) if isinstance(s, Block) else s
