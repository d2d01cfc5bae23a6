"""`pliant.autotune`: searches the schedules of a program's kernels by measuring, and keeps what it finds for every later compilation.

result = pliant.autotune("model.onnx", dims={"n": (1, 512)}, weights={"n": [1, 17, 128]}, minutes=10)
print(result)                       # what was found for each kernel
f = result.apply()                  # compiled with it, as `pliant.compile` does from now on
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .api import compile, program_of
from .loop.stmt import Func
from .program import Program
from .runtime.executable import Executable
from .schedule.decisions import shown
from .support.errors import Error
from .support.source import caller_span
from .support.units import in_seconds
from .target import target as find_target
from .tuned_code import records_path

if TYPE_CHECKING:
    from .schedule.schedule import Schedule
    from .schedule.spaces.space import Space
    from .tune.rule_space import RuleSpace
    from .tune.tuner import TaskState, Tuner


FALLBACK = "fallback: "  # in what `pliant.explain` tells of a kernel that only the last rule took


class TunedKernel(NamedTuple):
    """A row of the table of a tuning: what is known of one kernel."""

    kernel: str
    calls: int  # how often the program calls it
    seconds: float  # of a call with the default schedule, on one thread, the mean over the sizes where it was measured
    share: float  # of the time of all kernels
    candidates: int  # that are known, of this and of earlier searches
    ratio: float  # the time with the record to that with the default
    decisions: Mapping[str, Any]  # of the record; empty without one
    finished: bool  # nothing is left to try
    problem: str = ""  # why it could not be measured


class TuningResult:
    """What a tuning found: a table of kernels, a report, and the program compiled with it."""

    def __init__(self, program: Program, tuner: Tuner, left_out: Sequence[str], whole: float | None = None) -> None:
        self._program = program
        self._states: tuple[TaskState, ...] = tuple(tuner.states)
        self.whole = whole  # the time of the whole program with its records to that without, if records are new
        self.left_out = tuple(left_out)  # kernels that cannot be measured by themselves, with the reason
        self.withdrawn = tuner.withdrawn
        self.candidates = tuner.candidates  # measured by this search
        self.measurements = tuner.runner.count  # with those of defaults and winners
        self.seconds = time.monotonic() - tuner.started

    @property
    def table(self) -> tuple[TunedKernel, ...]:
        """A row for each kernel, those with the largest share of the time first."""
        total = sum(s.task.calls * s.seconds for s in self._states) or 1.0
        rows = [
            TunedKernel(
                s.task.name,
                s.task.calls,
                s.seconds,
                s.task.calls * s.seconds / total,
                len(s.outcomes),
                s.ratio,
                {} if s.record is None else dict(s.record.decisions),
                s.finished,
                s.problem,
            )
            for s in self._states
        ]
        return tuple(sorted(rows, key=lambda r: -r.share))

    @property
    def ratio(self) -> float:
        """The time of all kernels with their records to that with the defaults, as measured kernel by kernel."""
        return sum(r.share * r.ratio for r in self.table) if any(r.share for r in self.table) else 1.0

    @property
    def schedules(self) -> dict[str, Schedule]:
        """The fastest schedule of each kernel for which a space of modules was searched and one is faster than the default, by name.

        Print its `program` or its `trace`, or compile it.
        """
        from .tune.module_space import ModuleSpace

        best = [(s.task.name, s.space, s.record) for s in self._states]
        return {
            name: space.schedule(r.decisions)
            for name, space, r in best
            if isinstance(space, ModuleSpace) and r is not None and r.modules == space.modules
        }

    def apply(self) -> Executable:
        """Compiles the program with what was found."""
        return compile(self._program)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes an HTML page: a table of the kernels, the best candidate over time, and the effect of each decision."""
        from .tune.report import write_report

        write_report(path, self, self._states)

    def __str__(self) -> str:
        lines = [line(r) for r in self.table]
        lines += [f"not tuned: {reason}" for reason in self.left_out]
        lines += [
            f"{self.candidates} candidates in {self.seconds:.0f} s; kernels take {100 * self.ratio:.1f} % of the time of the defaults"
        ]
        if self.whole is not None:
            end = "; the new records are withdrawn" if self.withdrawn else ""
            lines.append(f"the whole program takes {100 * self.whole:.1f} % of the time it took{end}")
        return "\n".join(lines)


def line(r: TunedKernel) -> str:
    """Returns a row of the table as text."""
    if r.problem:
        return f"{r.kernel}: {r.problem}"
    what = ", ".join(f"{name} = {shown(v)}" for name, v in r.decisions.items()) or "the default"
    state = "" if r.finished else " (not finished)"
    return (
        f"{r.kernel}: {100 * r.ratio:.1f} % of {in_seconds(r.seconds)}, {100 * r.share:.0f} % of all, {r.candidates} tried{state}: {what}"
    )


def autotune(
    src: Any,
    dims: Mapping[str, Any] | None = None,
    weights: Mapping[str, Sequence[int]] | None = None,
    minutes: float = 10.0,
    progress: Callable[[Tuner], None] | None = None,
    *,
    space: Space | None = None,
) -> TuningResult:
    """Searches faster schedules for the kernels of a program on this machine, and keeps them for every later compilation.

    `src` and `dims` are as in `pliant.compile`. `weights` are the sizes at which kernels are measured, for each dim by name; repeat a size
    to give it more weight. All dims are at the same place of their lists. Without it, three sizes of the contract are. The search ends
    after `minutes`, or when nothing is left to try. `progress` is called with the tuner after each batch of candidates. What was found is
    kept whenever the search is stopped. At its end the whole program is timed with and without its records; new ones are withdrawn if it
    became slower. Results of programs keep their bits.

    For kernels that only the last rule takes, schedules of a `space` of modules are searched (`pliant.tune.Space`; without one, that of all
    modules of Pliant); with one, also for a kernel that is passed as `src`, whatever rule takes it. Their records name the modules. A space
    with `bits="any"` finds schedules that add in another order, as exact as the default if both are compared with float64. These are in the
    `schedules` of the result, and in no record.

    Raises an Error if `minutes` is not positive, if `space` is no space, or if records cannot be written.
    """
    from .schedule.spaces.space import Space
    from .tune.database import Database
    from .tune.runner import Runner
    from .tune.tasks import samples_of, tasks_of
    from .tune.tuner import Tuner
    from .tune.whole_program import WORSE, compare

    if space is not None and not isinstance(space, Space):
        raise Error(f"a search takes a pliant.tune.Space, not {space!r}", where=caller_span())
    if not minutes > 0:
        raise Error(f"a tuning cannot take {minutes} minutes", where=caller_span())
    path = records_path()
    if path is None:
        raise Error("there is no folder for records of tuning", where=caller_span(), help="set PLIANT_CACHE to a folder")
    deadline = time.monotonic() + 60 * minutes
    program = program_of(src)
    if dims:
        program = program.with_dims(dims)
    machine = find_target("native")
    samples = samples_of(program, weights)
    tasks, left_out = tasks_of(program, machine, samples)
    with Database(path) as database, Runner() as runner:
        tuner = Tuner(tasks, machine, database, runner, deadline, progress, modules=lambda rules: _modules(rules, space, src))
        tuner.run()
        whole = compare(program, machine, samples) if any(s.new for s in tuner.states) else None
        if whole is not None and whole > WORSE:
            tuner.withdraw()
        return TuningResult(program, tuner, left_out, whole)


def _modules(rules: RuleSpace, space: Space | None, src: Any) -> Space | None:
    """Returns the space of modules that is searched for a kernel; None where the decisions of the rules are."""
    from .schedule.spaces.modules import generic
    from .tune.rule_space import sums_by_size

    if space is not None and (isinstance(src, Func) or isinstance(getattr(src, "func", None), Func)):
        return space
    return space or generic() if FALLBACK in rules.why and not sums_by_size(rules) else None
