"""The driver of the default rules: goes through the table phase by phase, and in a phase through the blocks in post-order.

A rule takes some nests of a program or says why it does not; the last one takes anything. A program with the attribute `scheduled` is
returned as it is. Where a rule would do better one way for some dims and another way for others, the whole program has a variant for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ...loop.analysis.nests import base_facts, blocks
from ...loop.stmt import Block, Func
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import FALSE, TRUE
from ...sym.simplify import simplify
from ...target import Target
from ..decisions import Decide, DecisionError, Decisions, OfKernel
from ..family import Family, Variant
from ..schedule import Schedule
from .match import find_block, has_block, untouched
from .record import NotApplicable, NotChosen, Roles, Rule, Version
from .rounding import round_once
from .squares import short_squares, widen_squares
from .table import rules_for
from .units import without_units


def default_schedule(func: Func, target: Target, decisions: OfKernel | None = None) -> tuple[Func, str]:
    """The program scheduled by the rules for the target, and which rule was applied to what, and why."""
    if func.attrs.scheduled:
        return func, "as it stands: the program says that it is scheduled"
    family = default_family(func, target, decisions)
    return family.program(), family.why()


def default_family(func: Func, target: Target, decisions: OfKernel | None = None) -> Family:
    """The family of the program by the rules for the target, which do not see loops and dims of one element."""
    kernel = Decisions().of_kernel(func.name) if decisions is None else decisions
    squeezed = without_units(func)
    versions = _versions(squeezed.func, target, kernel)
    variants = tuple(_Scheduling(v, target, kernel).variant() for v in versions)
    restored = tuple(Variant(v.guard, squeezed.restored(v.func), v.why) for v in variants)
    return Family(func, restored, tuple(kernel.made.values()))


def _versions(func: Func, target: Target, kernel: OfKernel) -> tuple[Version, ...]:
    """The programs that rules would like to have for some dims, then the one for all others."""
    asking = [r for r in rules_for(target) if r.version is not None]
    asked = [v for b in blocks(func.body) for r in asking if (v := r.version(func, b, kernel.about(b.name, target)))]  # type: ignore[misc]
    some = [Version(simplify(v.guard, base_facts(func)), v.func, v.copying) for v in asked]
    possible = [v for v in sorted(some, key=lambda v: not v.copying) if v.guard is not FALSE]
    program = Version(TRUE, func)
    usual = possible[0] if possible and not possible[0].copying else program
    short = short_squares(usual, target)
    chosen = [*([short] if short and short.guard is not FALSE else []), *possible[:1], program]
    return tuple(chosen[: 1 + next(n for n, v in enumerate(chosen) if v.guard is TRUE)])


class _Scheduling:
    """One program on its way through the table."""

    def __init__(self, version: Version, target: Target, kernel: OfKernel) -> None:
        self.version, self.target, self.kernel = version, target, kernel
        self.s = Schedule(version.func, decisions=kernel)  # what a rule samples is a decision of the kernel
        self.left: set[str] = set()
        self.taken: set[str] = set()  # blocks that are scheduled, whatever their loops are

    def variant(self) -> Variant:
        """The scheduled program, and what was done."""
        widen_squares(self.s, self.target)
        said = [text for _, rules in groupby(rules_for(self.target), lambda r: r.phase) for text in self._phase(list(rules))]
        round_once(self.s, self.version.func)
        return Variant(self.version.guard, self.s.func, "; ".join(said) or "nothing to schedule")

    def _phase(self, rules: list[Rule]) -> Iterator[str]:
        """Try the rules of a phase on each block that is there, in order, until one takes it; what they say."""
        early = any(r.early for r in rules)
        for b in blocks(self.s.program.body) if early else untouched(self.s.program):
            for rule in rules:
                if not has_block(self.s.program, b.name) or b.name in self.taken:
                    break
                block = b if rule.early else find_block(self.s.program, b.name)
                roles = rule.match(self.s.program, block, self.target)
                if isinstance(roles, Refusal):
                    continue
                before = {x.name for x in blocks(self.s.program.body)}
                refused, text = self._attempt(rule, block, roles)
                if rule.takes_all and not refused:
                    self.taken |= {b.name, *(x.name for x in blocks(self.s.program.body) if x.name not in before)}
                yield from [text] if text else []
                if not refused:
                    break

    def _attempt(self, rule: Rule, block: Block, roles: Roles) -> tuple[bool, str]:
        """Whether a rule refuses a block after all, and what it says it did, or why not; then nothing was done."""
        decide = Decide(self.kernel, block.name, self.target, self.version.copying, self.left)
        asked = set(self.kernel.made)
        made = self.kernel.made
        try:
            with self.kernel.attempt(), self.s.attempt():
                try:
                    return False, rule.apply(self.s, roles, decide)
                except (NotApplicable, ScheduleError) as error:
                    self._check(rule, asked, error)
                    made = self.kernel.made
                    raise
        except NotChosen:
            self.kernel.made = made  # that a later rule has the block is what was decided
            return True, ""
        except DecisionError:
            raise
        except NotApplicable as reason:
            return True, f"not {rule.name}: {reason}"
        except ScheduleError as error:
            return True, f"not {rule.name}: {error.what}"

    def _check(self, rule: Rule, before: set[str], error: Exception) -> None:
        """An error where a rule cannot go on with a value that somebody asked for: another rule would not do what was asked."""
        if isinstance(error, (DecisionError, NotChosen)):
            return
        other = [d for name, d in self.kernel.made.items() if name not in before and d.value != d.default]
        if other:
            reason = error.what if isinstance(error, ScheduleError) else str(error)
            raise DecisionError(f"rule `{rule.name}` cannot take `{other[0].asked_as}`: {reason}")
