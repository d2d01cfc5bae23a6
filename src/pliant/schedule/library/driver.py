"""Driver of the default rules: it goes through the table phase by phase, and within a phase through the blocks in post-order.

A rule takes some loop nests of a program or says why it does not; the last rule takes anything. The driver returns a program with the
attribute `scheduled` unchanged. Where a rule schedules differently for some sizes, the whole program gets one variant per condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ...loop.analysis.nest_shape import untouched
from ...loop.analysis.nests import base_facts, blocks, find_block, has_block
from ...loop.stmt import Block, Func
from ...support.errors import ScheduleError
from ...support.refusal import Refusal
from ...sym.expr import FALSE, TRUE
from ...sym.simplify import simplify
from ...target import Target
from ..decisions import Decide, DecisionError, Decisions, OfKernel
from ..family import Family, Variant
from ..schedule import Schedule
from .record import NotApplicable, NotChosen, Roles, Rule, Version
from .rounding import round_once
from .squares import short_squares, widen_squares
from .table import rules_for
from .units import without_units


def default_schedule(func: Func, target: Target, decisions: OfKernel | None = None) -> tuple[Func, str]:
    """Return the program scheduled by the target's rules, and text that says which rule took which block and why."""
    if func.attrs.scheduled:
        return func, "as it stands: the program says that it is scheduled"
    family = default_family(func, target, decisions)
    return family.program(), family.why()


def default_family(func: Func, target: Target, decisions: OfKernel | None = None) -> Family:
    """Return the kernel family of a program: one variant per condition on the dims. The rules see no loops or dims of extent 1."""
    kernel = Decisions().of_kernel(func.name) if decisions is None else decisions
    squeezed = without_units(func)
    versions = _versions(squeezed.func, target, kernel)
    variants = tuple(_Scheduling(v, target, kernel).variant() for v in versions)
    restored = tuple(Variant(v.guard, squeezed.restored(v.func), v.why) for v in variants)
    return Family(func, restored, tuple(kernel.made.values()))


def _versions(func: Func, target: Target, kernel: OfKernel) -> tuple[Version, ...]:
    """Return the versions of a program to schedule, most special first; the last one is for all dims that are left.

    These are a version for short sums of squares, one version that a rule asks for, and the program itself, as far as they are possible.
    """
    asking = [r for r in rules_for(target) if r.version is not None]
    wanted = [v for b in blocks(func.body) for r in asking if (v := r.version(func, b, kernel.about(b.name, target)))]  # type: ignore[misc]
    some = [Version(simplify(v.guard, base_facts(func)), v.func, v.copying) for v in wanted]
    possible = [v for v in sorted(some, key=lambda v: not v.copying) if v.guard is not FALSE]
    program = Version(TRUE, func)
    usual = possible[0] if possible and not possible[0].copying else program
    short = short_squares(usual, target)
    chosen = [*([short] if short and short.guard is not FALSE else []), *possible[:1], program]
    return tuple(chosen[: 1 + next(n for n, v in enumerate(chosen) if v.guard is TRUE)])


class _Scheduling:
    """Applies the table of default rules to one version of a program, phase by phase."""

    def __init__(self, version: Version, target: Target, kernel: OfKernel) -> None:
        self.version, self.target, self.kernel = version, target, kernel
        self.s = Schedule(version.func, decisions=kernel)  # what a rule samples is a decision of the kernel
        self.left: set[str] = set()  # decoding blocks whose inlining waits until the panel copies exist (`inlining.py`)
        self.taken: set[str] = set()  # blocks that a `takes_all` rule has scheduled, even if their loops are still serial

    def variant(self) -> Variant:
        """Apply all rules, and the passes over sums of squares and roundings around them.

        Return the scheduled program with text about it.
        """
        widen_squares(self.s, self.target)
        texts = [text for _, rules in groupby(rules_for(self.target), lambda r: r.phase) for text in self._phase(list(rules))]
        round_once(self.s, self.version.func)
        return Variant(self.version.guard, self.s.func, "; ".join(texts) or "nothing to schedule")

    def _phase(self, rules: list[Rule]) -> Iterator[str]:
        """Try the rules of one phase on each block, in order, until one takes it; yield the text that each rule gives."""
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
        """Apply a rule to a block; return True if it refused, and the text of what it did or why it refused.

        A refusal undoes everything that the rule did.
        """
        decide = Decide(self.kernel, block.name, self.target, self.version.copying, self.left)
        before = set(self.kernel.made)
        decided = self.kernel.made
        try:
            with self.kernel.attempt(), self.s.attempt():
                try:
                    return False, rule.apply(self.s, roles, decide)
                except (NotApplicable, ScheduleError) as error:
                    self._check(rule, before, error)
                    decided = self.kernel.made
                    raise
        except NotChosen:
            self.kernel.made = decided  # keep the decision that gives the block to a later rule
            return True, ""
        except DecisionError:
            raise
        except NotApplicable as reason:
            return True, f"not {rule.name}: {reason}"
        except ScheduleError as error:
            return True, f"not {rule.name}: {error.what}"

    def _check(self, rule: Rule, before: set[str], error: Exception) -> None:
        """Raise a `DecisionError` if the rule failed after a decision with a value that is not the default.

        Falling through to the next rule would silently ignore what the user or the search asked for.
        """
        if isinstance(error, (DecisionError, NotChosen)):
            return
        explicit = [d for name, d in self.kernel.made.items() if name not in before and d.value != d.default]
        if explicit:
            reason = error.what if isinstance(error, ScheduleError) else str(error)
            raise DecisionError(f"rule `{rule.name}` cannot take `{explicit[0].asked_as}`: {reason}")
