"""The table of the default rules: one list for each kind of target, in the order in which they are tried.

Rules of one phase stand together. The phases: instructions that users have declared, convolutions before anything is inlined (operands
that are padded stay apart, so that sums have no condition), inlining, decoding, products, rows, transposes, elementwise, recurrences; the
last rule takes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.source import caller_span
from ...target import Target
from .convolution import BLOCKED_CONVOLUTION, CONVOLUTION
from .declared_instructions import INSTRUCTIONS
from .dot_products import DOT_PRODUCTS
from .elementwise import ELEMENTWISE
from .fallback import FALLBACK
from .gemv import ONE_ROW
from .inlining import DECODING, DECODING_INTO_COPIES, INLINING
from .matmul import MATMUL
from .record import Apply, Layouts, Match, Promotes, Rule
from .recurrences import RECURRENCES
from .reduction import ONE_REDUCTION, ROWS
from .sliding_window import WINDOWS
from .transposes import TRANSPOSE

CPU: tuple[Rule, ...] = (
    INSTRUCTIONS,
    BLOCKED_CONVOLUTION,
    CONVOLUTION,
    WINDOWS,
    INLINING,
    DECODING,
    DOT_PRODUCTS,
    ONE_ROW,
    MATMUL,
    DECODING_INTO_COPIES,
    ROWS,
    ONE_REDUCTION,
    TRANSPOSE,
    ELEMENTWISE,
    RECURRENCES,
    FALLBACK,
)


@dataclass(frozen=True, slots=True)
class Declared:
    """A rule that a user declares: before which rule or phase it stands, and what says that its code is the same."""

    rule: Rule
    before: str
    version: str | None


DECLARED: list[Declared] = []


def rules_for(target: Target) -> tuple[Rule, ...]:
    """The rules for a target, in order."""
    if not DECLARED:
        return CPU
    rules = list(CPU)
    for d in DECLARED:
        at = _place(rules, d.before)
        own = d.rule if any(r.phase == d.before for r in rules) else replace(d.rule, phase=rules[at].phase)
        rules.insert(at, own)
    return tuple(rules)


def _place(rules: Sequence[Rule], before: str) -> int:
    """Where a rule stands that comes before a phase, or before a rule: in that rule's phase, then."""
    for name in ("phase", "name"):
        at = next((n for n, r in enumerate(rules) if getattr(r, name) == before), None)
        if at is not None:
            return at
    names = list(dict.fromkeys(n for r in rules for n in (r.phase, r.name)))
    near = get_close_matches(before, names, 3)
    raise ScheduleError(
        f"there is no rule or phase `{before}` before which a rule could stand",
        where=caller_span(),
        facts=[f"there are {', '.join(names)}"],
        help=f"did you mean {' or '.join(near)}?" if near else "",
    )


def rule(
    *,
    match: Match,
    before: str = "fallback",
    name: str = "",
    version: str | None = None,
    layouts: Layouts = None,
    promotable: Promotes = None,
) -> Callable[[Apply], Rule]:
    """Declares a schedule rule: a function that schedules the blocks that `match` knows, before a built-in rule or phase has its turn.

        def match(func, block, target): ...                     # roles, or pliant.Refusal("why not")

        @pliant.rule(match=match, before="rows", version="1")
        def running_sums(s, roles, decide): ...                 # schedules s with primitives; says what it did

    It wins where it matches: no later rule touches the block, nor those that it made. What it compiles to is kept in the cache only where a
    `version` says which code it is: change it when the rule changes. (docs/rules.md)
    """
    _place(CPU, before)

    def declare(apply: Apply) -> Rule:
        own = name or getattr(apply, "__name__", "").replace("_", " ")
        if any(own in (r.name, r.phase) for r in CPU):
            raise ScheduleError(f"there is a built-in rule or phase `{own}`", where=caller_span(), help="give the rule another name")
        made = Rule(own, own, match, apply, takes_all=True, layouts=layouts, promotable=promotable)
        DECLARED[:] = [d for d in DECLARED if d.rule.name != own]  # declared anew: a notebook's cell that runs again
        DECLARED.append(Declared(made, before, version))
        return made

    return declare


def unregister_rule(rule: Rule) -> None:
    """Takes back what `pliant.rule` has declared."""
    DECLARED[:] = [d for d in DECLARED if d.rule is not rule]


def declared_rules_text() -> str | None:
    """What compiled code depends on of declared rules; None where one has no version that says which code it is."""
    if any(d.version is None for d in DECLARED):
        return None
    return repr([(d.rule.name, d.before, d.version, d.rule.apply.__module__) for d in DECLARED]) if DECLARED else ""
