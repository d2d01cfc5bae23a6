"""The compiler's steps as users see them: `pliant.stages` lists them, `pliant.lower_until` stops after one of them.

print(pliant.stages(layer))                        # which steps change this program
p = pliant.lower_until(layer, "fuse")              # a Program: one fused kernel
q = p.edited(str(p).replace("2.0", "3.0"))         # its text, edited; with the weights of p
f = pliant.compile(q)                              # the other steps
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .api import program_of
from .compilation import State
from .pipeline import CODE, FUSE, GRAPH, LAYOUT, LOWER, check_disabled, compile_as_far_as, run_steps, without
from .program import Program
from .support.errors import Error
from .support.html_table import html_table
from .support.record import dataclass
from .support.resolve import near
from .support.settings import read as read_settings
from .support.source import caller_span
from .target import Target
from .target import target as find_target
from .tuned_code import decisions_of

PHASES = {"graph": GRAPH, "lower": LOWER, "fuse": FUSE, "layout": LAYOUT, "code": CODE}
SCHEDULED = "schedule"
_MAKE_CODE = ("host", "emit")  # what they make is no graph program
_COLUMNS = ("step", "phase", "changes it", "after it")


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of the compiler: its name, its phase, what holds after it, whether programs are correct without it (`PLIANT_DISABLE`).

    `changes` says whether it changes the text of the program that was asked about; None for steps that make code, and without a program.
    """

    name: str
    phase: str
    holds: str
    optional: bool
    changes: bool | None = None


class Stages(tuple[Stage, ...]):
    """The steps of the compiler in their order; prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [_COLUMNS, *self._rows()]
        widths = [max(len(r[k]) for r in rows) for k in range(len(_COLUMNS))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)

    def _repr_html_(self) -> str:
        """Returns the table for notebooks."""
        return html_table("steps of the compiler", _COLUMNS, self._rows())

    def _rows(self) -> list[tuple[str, ...]]:
        return [(s.name, s.phase, {True: "yes", False: "", None: "-"}[s.changes], s.holds) for s in self]


def stages(src: Any = None, target: str | Target = "native") -> Stages:
    """Returns the steps of the compiler in their order; for a program `src` (what `pliant.compile` takes), also which of them change it.

    `target` is what the program is compiled for. Steps that `PLIANT_DISABLE` names are left out. With a program, all steps before the code
    are run.
    """
    disabled = check_disabled(read_settings().disable)
    left = [(phase, step) for phase, steps in PHASES.items() for step in without(steps, disabled)]
    if src is None:
        return Stages(Stage(step.name, phase, step.holds, step.optional) for phase, step in left)
    program = program_of(src)
    state = State(program.entry, find_target(target), program.constants, functions=program.functions, decisions=decisions_of(None))
    found, text = [], str(state.program)
    for phase, step in left:
        changes = None
        if step.name not in _MAKE_CODE:
            state = run_steps(state, (step,))
            after = str(state.program)
            changes, text = after != text, after
        found.append(Stage(step.name, phase, step.holds, step.optional, changes))
    return Stages(found)


def lower_until(
    src: Any,
    step: str,
    target: str | Target = "native",
    dims: Mapping[str, Any] | None = None,
    decisions: Mapping[str, Any] | None = None,
    effort: Literal["full", "fast"] = "full",
    accuracy: Literal["full", "fast"] = "full",
) -> Program:
    """Returns the program after a step of the compiler; `src` and the options are those of `pliant.compile`.

    The result prints as text, can be edited (`Program.edited`), and compiled from there to a program with the same bits as that of `src`:
    the weights go with it. The later phases depend on the target. Raises an Error for an unknown step, and for those that make code;
    after `schedule` also for a decision that no kernel has.
    """
    known = [s.name for steps in PHASES.values() for s in steps if s.name not in _MAKE_CODE]
    if step not in known:
        makes_code = step in _MAKE_CODE
        what = f"the step `{step}` makes code, which is no program" if makes_code else f"the compiler has no step `{step}`"
        help_ = "pliant.compile runs all steps" if makes_code else near(step, known) or "print(pliant.stages()) lists them"
        raise Error(what, where=caller_span(), facts=["programs come out of: " + ", ".join(known)], help=help_)
    program = program_of(src)
    if dims:
        program = program.with_dims(dims)
    asked = decisions_of(decisions, effort, accuracy=accuracy)
    found = compile_as_far_as(step, program, find_target(target), decisions=asked).program
    if step == SCHEDULED:  # before it, a decision may be one of a step that is still to come
        asked.check_used()
    return found
