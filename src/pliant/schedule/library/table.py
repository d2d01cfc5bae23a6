"""The table of default rules: one list for each kind of target, in the order in which rules are tried.

Rules of one phase stand together. The phases are: instructions that users declared; convolutions and sliding windows, before anything is
inlined (padded operands stay in buffers of their own, so reductions need no predicate); inlining; decoding of weights; matrix products
(GEMM, GEMV, integer dot products); rows (reductions, softmax, norms); transposes; elementwise; recurrences. The last rule takes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches

from ...support.errors import ScheduleError
from ...support.record import dataclass
from ...support.source import caller_span
from ...target import Target
from .channel_sums import CHANNEL_SUMS
from .convolution import BLOCKED_CONVOLUTION, CONVOLUTION
from .declared_instructions import INSTRUCTIONS
from .dot_products import DOT_PRODUCTS
from .elementwise import ELEMENTWISE
from .fallback import FALLBACK
from .gemv import ONE_ROW
from .inlining import DECODING, DECODING_INTO_COPIES, INLINING
from .lane_sums import LANE_SUMS
from .matmul import MATMUL
from .record import Apply, Layouts, Match, Promotes, Rule
from .recurrences import RECURRENCES
from .reduction import ONE_REDUCTION, ROWS
from .sliding_window import WINDOWS
from .transposes import TRANSPOSE
from .winograd import WINOGRAD

CPU: tuple[Rule, ...] = (
    INSTRUCTIONS,
    WINOGRAD,
    BLOCKED_CONVOLUTION,
    CHANNEL_SUMS,
    CONVOLUTION,
    WINDOWS,
    INLINING,
    DECODING,
    DOT_PRODUCTS,
    ONE_ROW,
    MATMUL,
    LANE_SUMS,
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
    """A record of a rule that a user declared: which rule or phase it goes before, and the version of its code in the cache key."""

    rule: Rule
    before: str
    version: str | None


DECLARED: list[Declared] = []  # in the order of declaration; `rules_for` inserts them into the table


def rules_for(target: Target) -> tuple[Rule, ...]:
    """Return the built-in rules in order, with declared rules inserted where they belong; they are the same for every target today."""
    if not DECLARED:
        return CPU
    rules = list(CPU)
    for d in DECLARED:
        at = _place(rules, d.before)
        own = d.rule if any(r.phase == d.before for r in rules) else replace(d.rule, phase=rules[at].phase)
        rules.insert(at, own)
    return tuple(rules)


def _place(rules: Sequence[Rule], before: str) -> int:
    """Return the position before a phase or rule called `before`; raise with the known names if there is none."""
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
    """Declare a schedule rule: the decorated function schedules the blocks that `match` accepts, before a built-in rule or phase does.

        def match(func, block, target): ...                     # roles, or pliant.Refusal("why not")

        @pliant.rule(match=match, before="rows", version="1")
        def running_sums(s, roles, decide): ...                 # schedules s with primitives; says what it did

    The rule wins where it matches: no later rule touches the block or the blocks that the rule created. The code cache keeps what the rule
    compiles to only if `version` identifies the rule's code; change the version when the rule changes. (docs/rules.md)
    """
    _place(CPU, before)

    def declare(apply: Apply) -> Rule:
        own = name or getattr(apply, "__name__", "").replace("_", " ")
        if any(own in (r.name, r.phase) for r in CPU):
            raise ScheduleError(f"there is a built-in rule or phase `{own}`", where=caller_span(), help="give the rule another name")
        declared = Rule(own, own, match, apply, takes_all=True, layouts=layouts, promotable=promotable)
        DECLARED[:] = [d for d in DECLARED if d.rule.name != own]  # a notebook cell that runs again replaces its rule
        DECLARED.append(Declared(declared, before, version))
        return declared

    return declare


def unregister_rule(rule: Rule) -> None:
    """Remove a rule that `pliant.rule` declared from the table."""
    DECLARED[:] = [d for d in DECLARED if d.rule is not rule]


def declared_rules_text() -> str | None:
    """Return the part of the cache key that stands for declared rules; None if a rule has no version, so nothing may be cached."""
    if any(d.version is None for d in DECLARED):
        return None
    return repr([(d.rule.name, d.before, d.version, d.rule.apply.__module__) for d in DECLARED]) if DECLARED else ""
