"""The program after each step of the compiler, with what the step changed, for the report.

for step in compiler_steps(provenance):
    step.name, step.holds, step.diff, step.text

The steps before scheduling run again for this. What `schedule` and `host` made is taken from the compilation that the page is about.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from ..compilation import State, Step
from ..pipeline import STEPS, compile_as_far_as, run_steps, steps_after, without
from ..provenance import Provenance
from ..support.record import dataclass
from ..support.settings import read as read_settings
from ..tuned_code import decisions_of

_CONTEXT = 2  # lines around a change
_MOST_COMPARED = 4000  # lines of a definition; comparing takes the square of them at worst


@dataclass(frozen=True, slots=True)
class CompilerStep:
    """A step: its name, what holds after it, the program after it, and the change as the lines of a unified diff.

    The diff is empty if the step left the program as it was.
    """

    name: str
    holds: str
    text: str
    diff: tuple[str, ...]

    @property
    def added(self) -> int:
        """The number of lines that the step added."""
        return sum(line.startswith("+") for line in self.diff)

    @property
    def removed(self) -> int:
        """The number of lines that the step removed."""
        return sum(line.startswith("-") for line in self.diff)


def compiler_steps(provenance: Provenance) -> Iterator[CompilerStep]:
    """Yields the steps that the program went through, in order, but for the last one, which makes machine code of it."""
    before = str(provenance.program)
    for step, after in _texts(provenance):
        yield CompilerStep(step.name, step.holds, after, diff(before, after))
        before = after


def _texts(provenance: Provenance) -> Iterator[tuple[Step, str]]:
    """Yields each step with the text of the program after it; of the host program, `run` is what comes after."""
    state = _start(provenance)
    text = str(state.program)
    yield STEPS[0], text
    by_name = {step.name: step for step in STEPS}
    for step in without(steps_after(STEPS[0].name), {*read_settings().disable, "schedule", "host", "emit"}):
        before, state = state, run_steps(state, (step,))
        if state.function is not before.function:  # printing a large program takes as long as most steps do
            text = str(state.program)
        yield step, text
    lowered = provenance.lowered
    assert lowered.host is not None
    program = str(lowered.program)
    yield by_name["schedule"], program
    yield by_name["host"], f"{program}\n\n{lowered.host.run}"


def _start(provenance: Provenance) -> State:
    """Returns the state after the first step, with decisions of its own."""
    decisions = decisions_of(provenance.decisions, provenance.effort, accuracy=provenance.accuracy)
    return compile_as_far_as(STEPS[0].name, provenance.program, provenance.target, provenance.checked, decisions=decisions)


def diff(before: str, after: str) -> tuple[str, ...]:
    """Returns how a program's text changed, definition by definition: a line `@@ name`, then lines that begin with `+`, `-` or a blank."""
    old, new = definitions(before), definitions(after)
    lines: list[str] = []
    for name in dict.fromkeys([*new, *old]):
        lines += _change(name or "dims", old.get(name, ()), new.get(name, ()))
    return tuple(lines)


def _change(name: str, old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Returns the diff of one definition; of a very long one, only the number of its lines."""
    if old == new:
        return []
    if max(len(old), len(new)) > _MOST_COMPARED:
        return [f"@@ {name}: {len(old)} lines became {len(new)}, too many to compare"]
    changes = list(difflib.unified_diff(old, new, lineterm="", n=_CONTEXT))[2:]  # the first two lines name files
    return [f"@@ {name}", *(line for line in changes if not line.startswith("@@"))]


def definitions(text: str) -> Mapping[str, list[str]]:
    """Returns the lines of each function and kernel of a program's text by its name; those of dims have the name "", imports none."""
    found: dict[str, list[str]] = {}
    at: list[str] = []
    decorators: list[str] = []
    for line in text.splitlines():
        if line.startswith("@"):
            decorators.append(line)
        elif line.startswith("def "):
            at = found.setdefault(line.removeprefix("def ").partition("(")[0], [])
            at += [*decorators, line]
            decorators = []
        elif line.startswith((" ", ")")):
            at.append(line)
        elif line and not line.startswith("from ") and line not in found.setdefault("", []):
            found[""].append(line)
    return found
