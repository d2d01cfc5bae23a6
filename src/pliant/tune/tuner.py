"""The tuner: gives time to tasks, measures candidates in batches, and keeps what is found.

    with Database(path) as database, Runner() as runner:
        tuner = Tuner(tasks, machine, database, runner, deadline=time.monotonic() + 60)
        tuner.run()
        tuner.states[0].best                       # ({"0.tile": (4, 2)}, 0.93)

The next batch goes to the task with the largest expected gain: its share of the program's time, by what its last batches gained. Everything
is on disk as soon as it is measured; a winner is measured once more, for longer, before it becomes a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Any

from ..schedule.decisions import Decisions
from ..schedule.domains import Value
from ..schedule.records import Record
from ..support.errors import Error, InternalError, ScheduleError
from ..support.memos import forget
from ..support.random import Stream
from .cost_model import CostModel, Ridge
from .database import Database, Outcome, vector_of, vector_text
from .kernel_code import compile_kernel
from .module_space import ModuleSpace
from .reference import in_f64
from .rule_space import RuleSpace, sums_by_size
from .search_space import SearchSpace, Vector
from .strategy import GAIN, Descent, Evolution, Strategy

if TYPE_CHECKING:
    from ..runtime.package import Package
    from ..schedule.spaces.space import Space
    from ..target import Target
    from .runner import Runner, Trial
    from .tasks import Task

BATCH = 8  # candidates between two decisions about which task is next
SECONDS = 0.02  # of calls of each program on each sample, for a candidate
CHECKED = 0.1  # the same for a winner
LOSS = 0.03  # a record may take this much longer than the default at single sizes where it is measured
HOPE = 0.1  # the part of a task's time that its first batch is expected to gain
OF_MODULES = 0.5  # the same for a kernel whose schedules modules make


@dataclass(slots=True)
class TaskState:
    """What is known of a task: its default, its candidates, and the record that was found."""

    task: Task
    space: SearchSpace
    identity: str  # of its measurements in the database
    strategy: Strategy
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # by vectors as text
    seconds: float = 0.0  # of the default, the mean over the samples
    default: Package | None = None
    reference: Package | None = None  # the kernel in float64, if candidates may have other bits than the default
    record: Record | None = None
    checked: set[str] = field(default_factory=set)  # vectors that were measured again as winners
    new: bool = False  # the record was found by this search
    finished: bool = False
    batches: int = 0
    gained: float = HOPE  # the part of its time that the last batches gained
    curve: list[tuple[float, float]] = field(default_factory=list)  # (second of the search, best ratio)
    problem: str = ""

    @property
    def ratio(self) -> float:
        """The time of the record to that of the default; 1.0 without a record."""
        return 1.0 if self.record is None else self.record.ratio

    def best(self) -> tuple[Vector, float]:
        """Returns the best vector that was not refused as a winner, and its ratio; the default if none is better."""
        measured = [(o.ratio, text) for text, o in self.outcomes.items() if o.ratio is not None]
        ratio, text = min(measured, default=(1.0, "{}"))
        return vector_of(text), ratio

    def expected(self) -> float:
        """Returns the seconds of the program's time that the next batch is expected to gain."""
        return self.task.calls * self.seconds * self.gained


Progress = Callable[["Tuner"], None]


class Tuner:
    """A search over several tasks until a deadline, or until nothing is left to try."""

    def __init__(
        self,
        tasks: Sequence[Task],
        machine: Target,
        database: Database,
        runner: Runner,
        deadline: float,
        progress: Progress | None = None,
        strategy: Strategy | None = None,
        model: Callable[[], CostModel] = Ridge,
        compile: Callable[[Any, Target, Decisions], Package] = compile_kernel,
        *,
        modules: Callable[[RuleSpace], Space | None] = lambda rules: None,
    ) -> None:
        self.machine, self.database, self.runner = machine, database, runner
        self.deadline, self.started = deadline, time.monotonic()
        self.progress, self.compile = progress, compile
        self.strategy, self.model = strategy, model
        self.modules = modules  # the space that is searched for a kernel instead of that of the rules
        self.current: TaskState | None = None  # the task whose arguments the runner has
        self.withdrawn = False
        self.candidates = 0  # measured by this tuner
        self.states = [self._state(t) for t in tasks]

    def run(self) -> None:
        """Searches until the deadline; what was found before an exception (Ctrl-C) is kept.

        One candidate is measured however short the time is: a search never ends with nothing tried.
        """
        try:
            for s in self.states:
                if not s.finished and not s.problem and (self.left() > 0 or all(t.default is None for t in self.states)):
                    self._default(s)
            while not self.over() and (open_ := [s for s in self.states if not s.finished and not s.problem and s.default is not None]):
                self._batch(max(open_, key=TaskState.expected))
        finally:
            if self.progress is not None:
                self.progress(self)

    def withdraw(self) -> None:
        """Removes the records that this search has found: the whole program is slower with them."""
        for s in self.states:
            if s.new:
                self.database.remove_record(s.task.key)
                s.record, s.new = None, False
        self.withdrawn = True

    def left(self) -> float:
        """Returns the seconds that are left."""
        return self.deadline - time.monotonic()

    def over(self) -> bool:
        """Returns True if the time is over and at least one candidate was measured."""
        return self.left() <= 0 and self.candidates > 0

    def _state(self, task: Task) -> TaskState:
        """Returns what the database knows of a task."""
        rules = RuleSpace.of(task.func, self.machine, {})
        state = TaskState(task, rules, task.identity, self.strategy or Descent())
        of_modules = self.modules(rules)
        if of_modules is not None:
            state.identity, state.gained = f"{task.identity} {of_modules.text()}", OF_MODULES
            state.strategy = self.strategy or Evolution()
            state.problem = self._of_modules(state, rules, of_modules)
        state.outcomes = self.database.trials(state.identity)
        known = self.database.task(state.identity)
        if known is not None:
            state.seconds, state.finished = known
        if of_modules is None or state.space.modules:  # what cannot be recorded is not compared with records either
            state.record = next((r for r in self.database.records(task.key.form) if r.key == task.key), None)
        state.finished = state.finished or not state.space.decisions
        return state

    def _of_modules(self, s: TaskState, rules: RuleSpace, space: Space) -> str:
        """Gives a task a space of modules; returns why it cannot be searched, "" if it can."""
        if space.bits == "same" and sums_by_size(rules):
            return "the rules add in another order for some sizes, which a schedule of modules does not follow"
        try:
            s.space = ModuleSpace.of(s.task.func, self.machine, space)
        except ScheduleError as error:
            return error.what
        return ""

    def _default(self, s: TaskState) -> None:
        """Compiles and measures the default of a task."""
        try:
            s.default = self.compile(s.task.func, self.machine, Decisions())
            if isinstance(s.space, ModuleSpace) and s.space.space.bits == "any":
                s.reference = self.compile(in_f64(s.task.func), self.machine, Decisions())
            self._select(s)
            trial = self.runner.measure([s.default, s.default], SECONDS)
        except Error as error:
            s.problem = error.what
            return
        if trial.status != "ok":
            s.problem, s.default = f"the default schedule {trial.status}: {trial.message}", None
            return
        s.seconds = sum(trial.seconds) / len(trial.seconds)
        self.database.set_task(s.identity, s.seconds, False)

    def _select(self, s: TaskState) -> None:
        """Gives the arguments of a task to the runner."""
        if self.current is not s:
            self.runner.arguments(s.task.arguments())
            self.current = s

    def _batch(self, s: TaskState) -> None:
        """Measures the next candidates of a task; each is compiled while the one before is measured."""
        self._select(s)
        stream = Stream(f"{s.identity}/{len(s.outcomes)}")
        vectors = s.strategy.propose(s.space, s.outcomes, self.model(), stream, BATCH)
        before, running = s.best()[1], None
        for vector in vectors:
            if self.over():
                break
            package = self._compiled(s, vector)
            if running is not None:
                self._keep(s, running, self.runner.finish())
            running = vector if package is not None else None
            if package is not None:
                assert s.default is not None
                self.runner.start([s.default, package], SECONDS, *_reference(s))
        if running is not None:
            self._keep(s, running, self.runner.finish())
        while self._check_winner(s):
            pass  # it was refused; the next best one may win
        forget()  # what was proved about the kernel served all candidates of the batch
        s.batches += 1
        s.gained = max(before - s.best()[1], HOPE / (1 + s.batches) ** 2)
        if not vectors:
            s.finished = True
            self.database.set_task(s.identity, s.seconds, True)
        if self.progress is not None:
            self.progress(self)

    def _compiled(self, s: TaskState, vector: Mapping[str, Value]) -> Package | None:
        """Returns the package of a candidate; None if the rules or the compiler refused it, which is kept."""
        try:
            func, decisions = s.space.candidate(vector)
            return self.compile(func, self.machine, decisions)
        except InternalError as error:
            self._add(s, vector, Outcome("failed", message=error.what))
        except ScheduleError as error:
            self._add(s, vector, Outcome("illegal", message=error.what))
        except Error as error:
            self._add(s, vector, Outcome("failed", message=error.what))
        return None

    def _keep(self, s: TaskState, vector: Mapping[str, Value], trial: Trial) -> None:
        """Keeps the outcome of a measurement."""
        self.candidates += 1
        ratio = mean(trial.ratios) if trial.status == "ok" else None
        self._add(s, vector, Outcome(trial.status, ratio, trial.message))

    def _add(self, s: TaskState, vector: Mapping[str, Value], outcome: Outcome) -> None:
        self.database.add_trial(s.identity, vector, outcome)
        s.outcomes[vector_text(vector)] = outcome
        s.curve.append((time.monotonic() - self.started, s.best()[1]))

    def _check_winner(self, s: TaskState) -> bool:
        """Measures the best candidate again, for longer, and keeps it as a record if it wins.

        Returns True if it was refused: it fails, or wins no longer. Then that is kept as its outcome, and another one may be the best.
        Returns False if it is a record now or no better than the record, and without a measurement if it gains nothing, is the record, or
        was measured so before.
        """
        vector, ratio = s.best()
        text = vector_text(vector)
        if ratio >= GAIN or not vector or text in s.checked or (s.record is not None and s.record.decisions == vector):
            return False
        package = self._compiled(s, vector)
        if package is None:
            return True
        assert s.default is not None
        trial = self.runner.measure([s.default, package], CHECKED, *_reference(s))
        s.checked.add(text)
        if trial.status != "ok":
            self._add(s, vector, Outcome(trial.status, None, trial.message))
            return True
        sure = max(mean(trial.ratios), mean(trial.medians))  # both the shortest and the median time have to win
        loses = max(trial.ratios) > 1 + LOSS  # at one of the sizes
        self._add(s, vector, Outcome("ok", max(sure, 1.0) if loses else sure, "it loses at some size" if loses else ""))
        if loses or sure >= GAIN:
            return True
        if sure >= s.ratio:
            return False  # the record is as good
        modules = s.space.modules
        record = Record(s.task.key, vector, sure, s.task.samples, s.seconds, s.task.name, self.machine.name, modules)
        s.record = record
        if modules or not isinstance(s.space, ModuleSpace):
            self.database.add_record(record)
            s.new = True
        return False


def _reference(s: TaskState) -> tuple[Package, ...]:
    """Returns the reference that candidates of a task are compared with; nothing where bits are."""
    return () if s.reference is None else (s.reference,)


def mean(ratios: Sequence[float]) -> float:
    """Returns the geometric mean."""
    return exp(sum(map(log, ratios)) / len(ratios))
