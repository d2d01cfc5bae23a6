"""What a schedule rule is: a record in a table, with the questions that the compiler asks of it.

    RULE = Rule("transpose", "transposes", match=transposed, apply=schedule_transpose)

`match` looks at a block and answers with the roles of its iterators, or why the rule does not take it; it changes nothing. `apply`
schedules the block with primitives. What it can do one way or another it asks `decide` (`schedule/decisions.py`). It says what it has done,
"" for nothing, and raises `NotApplicable` (or a primitive's `ScheduleError`) where it cannot: everything it did is undone then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

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

Roles = Any  # what the rule that matched knows about the block
Tile = tuple[int, int]  # rows, and vectors
Parts = tuple[tuple[int, int], ...]  # of a sum: which of its loops are cut, and into how many steps each, innermost first


class NotApplicable(Exception):
    """Why a rule does not take a program."""


class NotChosen(NotApplicable):
    """A decision gives the block to a later rule: nothing to tell."""


def tried(act: Callable[[], object]) -> bool:
    """Whether a primitive was accepted."""
    try:
        act()
    except DecisionError:
        raise
    except ScheduleError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Version:
    """A program for some dims only, and the condition on them; a `copying` one copies what it reads many times."""

    guard: Expr
    func: Func
    copying: bool = False


def for_many(func: Func, rows: Expr, many: int) -> Version:
    """The program with copies, for so many rows at least."""
    return Version(simplify(rows >= many, base_facts(func)), func, copying=True)


@dataclass(frozen=True, slots=True)
class Packing:
    """How an operand may lie besides as it is (0): index maps, by the columns of a pack; and what the rule would take."""

    maps: Mapping[int, IndexMap]
    default: int
    reorders: bool = False  # where it lies as it is, another rule takes the reader, which may add in another order


@dataclass(frozen=True, slots=True)
class Promotable:
    """Which sizes of a block may become arguments of its kernel, and what the schedule must be told then
    (`lower/layout/promote_sizes.py`).
    """

    iterators: frozenset[Var]  # whose extents the schedule need not know, as long as memory allows it
    rows: frozenset[Var] = frozenset()  # which a tile keeps in registers: distances between them are constants
    steps: Mapping[Var, int] = field(default_factory=dict)  # what the extent of an iterator stays a multiple of
    tile: Tile | None = None
    parts: Parts | None = None


Match = Callable[[Func, Block, Target], Roles | Refusal]
Apply = Callable[[Schedule, Roles, Decide], str]
Layouts = Callable[[Func, Block, Target], Mapping[Buffer, Packing] | None] | None
Promotes = Callable[[Func, Block, Mapping[Var, For], Decide], Promotable | None] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table; see the module."""

    name: str
    phase: str  # rules of one phase stand together; on each block they are tried in order, until one takes it
    match: Match
    apply: Apply
    early: bool = False  # tried on all blocks as they were when the phase began, not only on those that no rule has taken yet
    version: Callable[[Func, Block, Decide], Version | None] | None = None  # another program for some dims
    layouts: Layouts = None  # how its operands may lie; None of a block that is not its own
    promotable: Promotes = None  # which sizes it need not know; None where it needs all of them
    takes_all: bool = False  # no later rule touches the block, nor those that were made of it
