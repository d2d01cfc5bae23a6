"""The schedule of a vector of choices again: for the search that found it, and for every compilation of the kernel since.

    replayed(space, func, target, {"0.lane": 1, "0_tail5.unroll": 2})     # a schedule
    scheduled(record, func, target)                                       # the program that a record of tuning means

A vector names blocks by their numbers in the program before it is scheduled, and those that schedules make of them by number and suffix.
A record is not trusted: modules must be known here in the version that it names, every choice must be legal, no other may be open, and
nothing may change the order of a sum. Else a ScheduleError says why it is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...loop.analysis.nests import blocks
from ...loop.stmt import Alloc, Func, walk_stmts
from ...support.errors import ScheduleError
from ...target import Target
from ..domains import Value
from ..schedule import Schedule
from .module import DECLARED, Module
from .modules import module_named
from .space import Point, Space


def numbered(name: str, func: Func) -> str:
    """Return the name of a choice with a number in the program instead of the name of a block, or of a buffer that it copies."""
    block, _, what = name.rpartition(".")
    codes = {name: code for code, name in _names(func).items()}
    of = max((n for n in codes if block == n or block.startswith(f"{n}_")), key=len, default=None)
    return name if of is None else f"{codes[of]}{block[len(of) :]}.{what}"


def named(vector: Mapping[str, Value], func: Func) -> dict[str, Value]:
    """Return the vector under the names of the blocks and buffers of a program."""
    names = _names(func)
    values: dict[str, Value] = {}
    for name, value in vector.items():
        block, _, what = name.rpartition(".")
        number, mark, rest = block.partition("_")
        values[f"{names.get(number, number)}{mark}{rest}.{what}"] = value
    return values


def _names(func: Func) -> dict[str, str]:
    """Return what the blocks and the buffers of a program are called, by their numbers: "0" is a block, "b0" a buffer."""
    buffers = [*func.buffers, *(x.buffer for x in walk_stmts(func.body) if isinstance(x, Alloc))]
    numbers = {f"b{n}": b.name for n, b in enumerate(buffers)}
    return numbers | {str(n): b.name for n, b in enumerate(blocks(func.body))}


def replayed(space: Space, func: Func, target: Target, vector: Mapping[str, Value]) -> Schedule:
    """Return the schedule of a vector; raises a DecisionError for one that is not legal here."""
    return space.at(func, target, Point(func.name, named(vector, func), whole=True))


def scheduled(modules: Sequence[str], vector: Mapping[str, Value], func: Func, target: Target) -> Func:
    """Return the program that the modules of a record make with its choices; raises a ScheduleError if the record does not apply."""
    return replayed(Space([known(name) for name in modules]), func, target, vector).func


def known(name: str) -> Module:
    """Return the module that a record names: one of Pliant's, or a declared one of the same version; raises a ScheduleError if none is."""
    declared = DECLARED.get(name.partition("@")[0])
    found = declared if declared is not None and declared.recorded == name else module_named(name)
    if found is None:
        raise ScheduleError(f"there is no module `{name}` here")
    return found


def is_known(name: str) -> bool:
    """True if there is the module that a record names."""
    try:
        return known(name) is not None
    except ScheduleError:
        return False
