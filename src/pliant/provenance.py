"""The source program of an executable, and what needs it: cost, artifact, pickle, profile and report.

The runtime does not know about programs, so an executable delegates these to its provenance. Everything is computed lazily: the
program of a loaded file is parsed only when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .program import Program
from .target import Target

if TYPE_CHECKING:
    from .compilation import State
    from .program_cost import ProgramCost
    from .report.profile import Profile
    from .runtime.executable import Executable


class Provenance:
    """What an executable was compiled from: its program, target and compile options."""

    def __init__(
        self,
        make: Callable[[], Program],
        target: Target,
        checked: bool = False,
        decisions: Mapping[str, Any] | None = None,
        effort: str = "full",
        accuracy: str = "full",
    ) -> None:
        self._make = make
        self.target = target
        self.checked = checked
        self.decisions = decisions  # overrides of schedule decisions
        self.effort, self.accuracy = effort, accuracy
        self.profiled: Profile | None = None  # the last profile, for reports

    @cached_property
    def program(self) -> Program:
        """The program before compilation; made at the first use."""
        return self._make()

    @cached_property
    def cost(self) -> ProgramCost:
        """The symbolic operations and memory traffic of a call."""
        from .program_cost import ProgramCost

        return ProgramCost(self.program)

    @cached_property
    def fused(self) -> State:
        """The compile state after fusion and layout: calls of loop programs that are not scheduled yet."""
        from .pipeline import compile_as_far_as
        from .tuned_code import decisions_of

        decisions = decisions_of(self.decisions, self.effort, accuracy=self.accuracy)
        return compile_as_far_as("copy_elision", self.program, self.target, self.checked, decisions=decisions)

    @cached_property
    def lowered(self) -> State:
        """The compile state before code generation: scheduled loop programs, memory plan, host program."""
        from .pipeline import run_steps, steps_after, without

        return run_steps(self.fused, without(steps_after("copy_elision"), ("emit",)))

    def save(self, f: Executable, path: str | os.PathLike[str], targets: Sequence[str]) -> None:
        """Writes the executable's artifact, a `.pliant` file."""
        from .artifact import save

        save(f, self, path, targets)

    def reduce(self, f: Executable) -> tuple[Callable[..., Executable], tuple[Any, ...]]:
        """Returns what a pickle of the executable holds: the content of its artifact and its number of threads."""
        from .artifact import to_bytes, unpickled

        return unpickled, (to_bytes(f, self), f.threads)

    def profile(self, f: Executable, args: Sequence[Any], named: Mapping[str, Any], runs: int | None) -> Profile:
        """Runs the program, measures the time of each kernel, and keeps the profile for the report; returns it."""
        from .report.profile import take_profile

        self.profiled = take_profile(f, self, args, named, runs)
        return self.profiled

    def report(self, f: Executable, path: str | os.PathLike[str]) -> None:
        """Writes the HTML report of the executable."""
        from .report.page import write_report

        write_report(f, self, path)
