"""Modules: the rules of a search space, as functions over schedules that anybody can write (`docs/tuning.md`).

    @pliant.tune.module(version="1")
    def split_rows(s, block):
        rows, *_ = s.loops(block)
        s.split(rows, *s.sample_perfect_tile(rows, 2, name=f"{block.block.name}.rows"))
        yield s

A module looks at one block of a schedule, samples, transforms, and yields schedules: none if it has nothing to offer for the block, several
if there are several ways to go on (it forks). Which of them is taken is a decision like those that it samples. Where a primitive refuses,
the module ends; what it has yielded before counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, overload

from ...support.errors import ScheduleError
from ...support.source import caller_span
from ...target import Target
from ..decisions import DecisionError
from ..schedule import BlockHandle, Schedule

Ways = Iterator[Schedule]
MOST_WAYS = 64  # schedules that a module may yield for one block


@dataclass(frozen=True, slots=True)
class Module:
    """A module of a search space: its name, its function, and the version that says which code that is."""

    name: str
    function: Callable[..., Ways]
    version: str | None = None  # of a declared module; records name it
    takes_target: bool = False  # the function has a third parameter
    declared: bool = False  # by `module`, not one of Pliant's

    @property
    def recorded(self) -> str:
        """The name in records: a declared module has its version in it; "" for one without a version, which is not recorded."""
        return self.name if not self.declared else f"{self.name}@{self.version}" if self.version else ""

    def ways(self, s: Schedule, block: BlockHandle, target: Target) -> list[Schedule]:
        """Return the schedules that the function yields for a block, each as it was then; none if it refuses before the first.

        `s` is the function's to change. Raises a ScheduleError for a function that yields something else, or without end.
        """
        ways: list[Schedule] = []
        try:
            for way in self.function(s, block, target) if self.takes_target else self.function(s, block):
                if not isinstance(way, Schedule) or len(ways) == MOST_WAYS:
                    what = f"a module yields schedules, at most {MOST_WAYS}"
                    raise BrokenModuleError(f"{what}: `{self.name}` does not")
                ways.append(way.copy())
        except (BrokenModuleError, DecisionError):
            raise
        except ScheduleError:
            pass  # a primitive refused: this way leads nowhere
        return ways


class BrokenModuleError(ScheduleError):
    """Raised for a module that does not do what modules do."""


DECLARED: dict[str, Module] = {}  # by name


@overload
def module(function: Callable[..., Ways], /) -> Module: ...


@overload
def module(*, name: str = "", version: str | None = None) -> Callable[[Callable[..., Ways]], Module]: ...


def module(function: Callable[..., Ways] | None = None, /, *, name: str = "", version: str | None = None) -> Any:
    """Declare a module of a search space: a generator function over a schedule and a block, and over the target if it wants that.

    The block is a handle: `block.block` is the statement. The name is that of the function, unless `name` says another one. Records of
    tuning name modules with their versions; what a module without a version finds is returned, but not recorded. Raises a ScheduleError for
    something else than a function of two or three parameters, or a name that is no identifier.
    """
    if function is None:
        return lambda f: module_of(f, name, version)
    return module_of(function, "", None)


def module_of(function: Callable[..., Ways], name: str, version: str | None) -> Module:
    """Return the declared module of a function; a later one of the same name replaces it."""
    own = name or getattr(function, "__name__", "")
    count = len(inspect.signature(function).parameters) if callable(function) else 0
    if count not in (2, 3) or not own.isidentifier():
        raise ScheduleError(
            f"`{own or function!r}` cannot be a module of a search space",
            where=caller_span(),
            help="a module is a function of a schedule, a block, and perhaps the target: def split_rows(s, block): …; yield s",
        )
    declared = Module(own, function, version, count == 3, declared=True)
    DECLARED[own] = declared
    return declared
