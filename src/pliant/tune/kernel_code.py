"""Compiles one loop program of a function by itself, as it is when the step `schedule` begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compilation import State
from ..pipeline import steps_after, to_code
from ..program import Program
from ..support.collector import fewer_collections

if TYPE_CHECKING:
    from ..loop.stmt import Func
    from ..runtime.package import Package
    from ..schedule.decisions import Decisions
    from ..target import Target


def compile_kernel(func: Func, machine: Target, decisions: Decisions) -> Package:
    """Compiles a loop program as a program of its own, for measuring; nothing is kept in the code cache.

    What was proved about the program is kept for the next candidate, until `support.memos.forget` is called.
    Raises an Error if a decision that was asked for is not legal, or if arguments do not define a dim of the program.
    """
    with fewer_collections():
        package = to_code(State(Program.of_kernel(func).entry, machine, decisions=decisions), steps_after("promote_sizes")).finished
        decisions.check_used()
    return package
