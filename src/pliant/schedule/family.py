"""Kernel families: one logical loop program, the layouts its operands have, and ways to compute it for ranges of its dims.

    family = default_family(func, target)
    family.variants        # (Variant(n >= 64, …), Variant(True, …)): the first whose guard holds is taken
    family.program()       # one loop program that chooses

Default rules make families, and a family is what they are explained by. Layouts are shared by all variants: an operand that was
packed serves every number of rows. All variants compute the same bits, as every schedule of theirs does.
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
    """A schedule of a family's program, for the dims for which the guard holds."""

    guard: Expr  # over the program's symbols
    func: Func
    why: str


@dataclass(frozen=True, slots=True)
class Family:
    """A loop program with its variants, the last of which takes any dims; see the module."""

    logical: Func  # its attribute `layouts` says how operands lie (`schedule/primitives/layout.py`)
    variants: tuple[Variant, ...]
    decisions: tuple[Decision, ...] = ()  # which the rules have made, for all variants

    def __post_init__(self) -> None:
        assert self.variants and self.variants[-1].guard is TRUE

    def program(self) -> Func:
        """The family as one scheduled program, which looks at the guards in order."""
        *guarded, last = self.variants
        body, names = last.func.body, set(block_names(last.func))
        for v in reversed(guarded):
            body = If(v.guard, _renamed(_with_own_memory(v.func.body), names), body)
        return last.func.with_(body=body, attrs=last.func.attrs.with_(scheduled=True))

    def why(self) -> str:
        """Which rules made it, for which dims."""
        if len(self.variants) == 1:
            return self.variants[0].why
        *guarded, last = self.variants
        return "; ".join([*(f"if {v.guard}: {v.why}" for v in guarded), f"else: {last.why}"])


def _with_own_memory(s: Stmt) -> Stmt:
    """The statement with buffers of its own for those that it allocates: another variant of the program allocates the same ones."""
    allocated = [x.buffer for x in walk_stmts(s) if isinstance(x, Alloc)]
    own = {b: Buffer(b.name, b.dtype, b.shape, b.strides, b.scope) for b in allocated}
    return Replacer(buffers=own).stmt(s) if own else s


def _renamed(s: Stmt, taken: set[str]) -> Stmt:
    """The statement with names of blocks that are not taken."""
    s = map_children(s, lambda x: _renamed(x, taken))
    return s.with_(name=fresh_name(s.name, taken)) if isinstance(s, Block) else s
