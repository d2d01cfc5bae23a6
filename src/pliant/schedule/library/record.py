"""The schedule rule as a record of the table: the functions through which the compiler asks a rule.

    RULE = Rule("transpose", "transposes", match=transposed, apply=schedule_transpose)

`match` looks at a block and returns the roles of its iterators, or a refusal with the reason; it changes nothing. `apply` schedules the
block with primitives and returns text about what it did ("" for nothing). It asks `decide` for every choice that has alternatives
(`schedule/decisions.py`). If it cannot go on, it raises `NotApplicable` (or a primitive's `ScheduleError`), and the driver undoes its
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from ...loop.analysis.nest_shape import plain_loops
from ...loop.analysis.nests import base_facts
from ...loop.buffer import Buffer
from ...loop.stmt import Block, For, Func
from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.refusal import Refusal
from ...sym.expr import Expr, Var
from ...sym.index_map import IndexMap
from ...sym.simplify import simplify
from ...target import Target
from ..decisions import Decide, DecisionError
from ..schedule import Schedule

Roles = Any  # what `match` found out about the block and `apply` uses
Tile = tuple[int, int]  # rows, and vectors of columns, of a register tile
Parts = tuple[tuple[int, int], ...]  # how a sum is cut into parts: (position of a loop, its steps in a part), innermost cut first


class NotApplicable(Exception):
    """Raised by a rule that cannot schedule a block; the message is the reason."""


class NotChosen(NotApplicable):
    """Raised by a rule when a decision leaves the block to a later rule; there is no reason to report."""


def required_loops(func: Func, block: Block) -> dict[Var, For]:
    """Return the loop of each iterator, as `plain_loops` does; raise NotApplicable with its reason if it refuses."""
    loops = plain_loops(func, block)
    if isinstance(loops, Refusal):
        raise NotApplicable(loops.reason)
    return loops


def tried(act: Callable[[], object]) -> bool:
    """Call a primitive; return False if it refused with a `ScheduleError`. An illegal decision still raises."""
    try:
        act()
    except DecisionError:
        raise
    except ScheduleError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Version:
    """A program for the dims that satisfy `guard`; a `copying` version copies operands that it reads many times."""

    guard: Expr
    func: Func
    copying: bool = False


def for_many(func: Func, rows: Expr, many: int) -> Version:
    """Return a version of the program that copies operands, guarded by `rows >= many`."""
    return Version(simplify(rows >= many, base_facts(func)), func, copying=True)


@dataclass(frozen=True, slots=True)
class Packing:
    """The layouts an operand may have: index maps by the pack's width in columns (0 keeps it unpacked), and the width the rule prefers."""

    maps: Mapping[int, IndexMap]
    default: int
    reorders: bool = False  # without packing, another rule takes the reader, and it may sum in another order


@dataclass(frozen=True, slots=True)
class Promotable:
    """The sizes of a block that may become arguments of its kernel, and what the schedule must be told about them
    (`lower/layout/promote_sizes.py`).
    """

    iterators: frozenset[Var]  # iterators whose extents may be unknown, as long as the strides they determine stay constants
    rows: frozenset[Var] = frozenset()  # iterators of the register tile: strides between their elements must stay constants
    steps: Mapping[Var, int] = field(default_factory=dict)  # number that the extent of an iterator remains a multiple of
    tile: Tile | None = None
    parts: Parts | None = None


Match = Callable[[Func, Block, Target], Roles | Refusal]
Apply = Callable[[Schedule, Roles, Decide], str]
Layouts = Callable[[Func, Block, Target], Mapping[Buffer, Packing] | None] | None
Promotes = Callable[[Func, Block, Mapping[Var, For], Decide], Promotable | None] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A default schedule rule, a row of the table.

    `match` returns the roles of a block's iterators, or a Refusal. `apply` schedules the block by primitives and returns text about it; it
    raises `NotApplicable` if it cannot go on, and its changes are undone.
    """

    name: str
    phase: str  # rules of one phase stand together in the table; on each block they are tried in order, until one takes it
    match: Match
    apply: Apply
    early: bool = False  # try it on all blocks as they were when the phase began, not only on blocks that no rule has taken yet
    version: Callable[[Func, Block, Decide], Version | None] | None = None  # returns a separate program for some dims
    layouts: Layouts = None  # returns the layouts its operands may have; None for a block that is not its own
    promotable: Promotes = None  # returns the sizes it need not know; None if it needs all of them
    takes_all: bool = False  # no later rule touches the block or the blocks made from it
