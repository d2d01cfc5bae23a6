"""Decisions: the choices of a schedule, each with a name, its legal values (domain), and the default that the cost model takes.

    decide = Decisions({"c.tile": (6, 2)}).of_kernel("matmul").about("c", target)
    decide("tile", domain=((4, 4), (6, 2)), default=(4, 4), why="…")        # (6, 2): what was asked for; else the default

The code that makes a choice states what is legal (the domain, computed from facts about the program, its layouts and the target) and what
it prefers (the default). A search, a user or a stored record may ask for another value of the domain by the name of the decision,
`<block>.<what>`. In a program of several kernels the name may also be `<kernel>.<block>.<what>`, or `<kernel>@<hash>.<block>.<what>` for
one of several kernels of the same name. A value outside the domain, or a name that no choice has, is an error.

The choices of a rule (`decide`) and those of a schedule (`s.sample_perfect_tile(...)`, `sampling.py`) are records of the same kind, made
by the same function: `OfKernel.decide`. Domains are lists, or objects that count, draw and repair if a list would be long (`domains.py`).

A decision that `reorders` changes the order of a sum, hence its last bits; all others keep the bits. Decisions of kind `layout` belong
to a value that several kernels read, and are made before any of these is scheduled.

Where nobody asks for a value, a record of tuning (`records.py`) may prefer another one than the default. It is taken as far as it is legal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from ..support.errors import ScheduleError
from ..support.random import Stream
from ..support.record import dataclass
from .domains import Choices, Domain, V, Value

if TYPE_CHECKING:
    from ..target import Target
    from .records import Reader

Kind = Literal["schedule", "sharing", "layout"]  # sharing: how threads share the work, which one thread cannot measure
SHOWN = 12  # values of a domain that an error message lists


class DecisionError(ScheduleError):
    """Raised for a decision with a value outside of its domain, or under a name that no decision has."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A record of one choice of the scheduler: its name, its value, the domain of alternatives, and the default."""

    name: str  # <block>.<what>, or <value>.<what> for a layout
    value: Value
    domain: Domain[Any]
    default: Value
    reorders: bool = False
    kind: Kind = "schedule"
    why: str | Callable[[], str] = ""  # the cost model's reasons for the default; a function if the text is costly to make
    asked_as: str = ""  # the name under which this value was asked for; "" if it is the default

    @property
    def reason(self) -> str:
        """The reason for the default as text: the terms of the cost model."""
        return self.why if isinstance(self.why, str) else self.why()

    def values(self, most: int = SHOWN) -> str:
        """Return the values of the domain as text for people: the first `most`, and the number of others."""
        more = self.domain.size - most
        return ", ".join(map(shown, islice(self.domain, most))) + (f" and {more} more" if more > 0 else "")


def shown(value: Value) -> str:
    """Format a value for people; a tuple such as a tile of 6 rows and 2 vectors is `6x2`."""
    return "x".join(map(str, value)) if isinstance(value, tuple) and value else str(value)


class Decisions:
    """All decisions of one compilation: the values that the user asked for, by name, and the ones that were made."""

    def __init__(
        self, values: Mapping[str, Any] | None = None, effort: str = "full", accuracy: str = "full", records: Reader | None = None
    ) -> None:
        self.values = {_name(name): _plain(name, value) for name, value in (values or {}).items()}
        self.effort = effort  # "fast": choices that compile fastest, where the bits of results stay the same
        self.accuracy = accuracy  # "fast": also algorithms that round more
        self.records = records if effort == "full" else None  # what tuning found out
        self.kernels: list[OfKernel] = []

    def of_kernel(self, kernel: str, content: str = "", recorded: Mapping[str, Value] | None = None) -> OfKernel:
        """Return the decisions of one kernel, with the values that the user asked for in it, else those of a record.

        `content` is a hash that tells kernels of one name apart. A value may be asked for as `<block>.<what>`, `<kernel>.<block>.<what>` or
        `<kernel>@<hash>.<block>.<what>`; the most specific name wins.
        """
        names: dict[str, str] = {}
        for full in sorted(self.values, key=lambda name: (name.count("."), "@" in name)):  # the most specific name wins
            *of, block, what = ("", *full.split("."))
            name, _, start = of[-1].partition("@") if of else ("", "", "")
            if len(of) <= 2 and name in ("", kernel) and content.startswith(start):
                names[f"{block}.{what}"] = full
        answers = OfKernel(kernel, names, self.values, fast=self.effort == "fast", recorded=recorded)
        self.kernels.append(answers)
        return answers

    def instead_of(self, other: OfKernel, content: str) -> OfKernel:
        """Return the decisions of a kernel that is scheduled again without its record; those of the first attempt are forgotten."""
        self.kernels.remove(other)
        return self.of_kernel(other.kernel, content)

    def text(self) -> str:
        """Return the part of the cache key that stands for effort, accuracy and decisions, in a canonical order.

        Empty if all are defaults.
        """
        modes = [f"\n{name} {mode}" for name, mode in (("effort", self.effort), ("accuracy", self.accuracy)) if mode != "full"]
        return "".join(modes) + (json.dumps(sorted(self.values.items())) if self.values else "")

    def check_used(self, by: str = "rule", help: str = "pliant.explain lists the decisions of a program") -> None:
        """Raise DecisionError if a value was asked for under a name that no decision has.

        `by` says in the message who could have made it.
        """
        decided = [(k.kernel, d) for k in self.kernels for d in k.made.values()]
        for name in sorted(set(self.values) - {d.asked_as for _, d in decided}):
            from difflib import get_close_matches

            near = get_close_matches(name, {n for kernel, d in decided for n in (d.name, f"{kernel}.{d.name}")}, 3)
            names = list(dict.fromkeys(f"`{d.name}`" for _, d in decided if d.domain.size > 1))
            raise DecisionError(
                f"no {by} makes a decision `{name}`",
                facts=[f"there are {', '.join(names[:SHOWN]) or 'none'}{' and others' * (len(names) > SHOWN)}"],
                help=f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else help,
            )


class OfKernel:
    """The decisions of one kernel in a compilation, those of all its variants together."""

    __slots__ = ("fast", "kernel", "made", "names", "recorded", "values")

    def __init__(
        self,
        kernel: str,
        names: Mapping[str, str],
        values: Mapping[str, Value],
        fast: bool = False,
        recorded: Mapping[str, Value] | None = None,
    ) -> None:
        self.kernel = kernel
        self.recorded = recorded or {}  # `<block>.<what>` -> the value of a record, taken as far as it is legal
        self.fast = fast  # takes the values that compile fastest
        self.names = names  # `<block>.<what>` -> the full name under which its value was asked for
        self.values = values
        self.made: dict[str, Decision] = {}

    def about(self, block: str, target: Target) -> Decide:
        """Return the function through which a block (or a value, for a layout) makes decisions."""
        return Decide(self, block, target)

    def decide(self, name: str, domain: Domain[V] | Sequence[V], default: V, reorders: bool, kind: Kind, why: str | Callable[[], str]) -> V:
        """Return the value asked for, else the one nearest to that of a record, else the default, and record the decision.

        A name may be decided again, in another variant of the kernel; the first record stays. Raises a DecisionError if the value asked for
        is not in the domain. `reorders` says that another value changes the order of a sum:
        a record has no say in those.
        """
        full, legal = self.names.get(name, ""), as_domain(domain)
        value = legal.member(self.values[full]) if full else default
        if not full and name in self.recorded and not reorders and legal.size:
            value, why = legal.nearest(self.recorded[name]), "from a record of tuning"
        if value is None:
            d = Decision(full, self.values[full], legal, default)
            raise DecisionError(
                f"decision `{full}` cannot be {shown(d.value)} in `{self.kernel}`",
                facts=[f"it may be {d.values()}", f"the default is {shown(default)}"],
            )
        self.made.setdefault(name, Decision(name, value, legal, default, reorders, kind, why, full))
        return value

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Context manager: if the body raises, the decisions made in it are forgotten."""
        before = dict(self.made)
        try:
            yield
        except BaseException:
            self.made = before
            raise


class Drawn(OfKernel):
    """Decisions drawn at random from their domains: the start of a search, and what random tests use.

    Without `may_reorder`, decisions that declare to reorder a sum keep their default. A sampled choice may turn out to reorder only when it
    is used (`ChoiceLog.note`); its record says so afterwards.
    """

    __slots__ = ("drawn", "may_reorder", "stream")

    def __init__(self, kernel: str, stream: Stream, may_reorder: bool = False) -> None:
        super().__init__(kernel, {}, {})
        self.stream, self.may_reorder = stream, may_reorder
        self.drawn: dict[str, Value] = {}  # a name has the same value in all variants

    def decide(self, name: str, domain: Domain[V] | Sequence[V], default: V, reorders: bool, kind: Kind, why: str | Callable[[], str]) -> V:
        """Draw a value of the domain, the same as before for a name that was drawn, and record it.

        Returns the default if another value would reorder a sum and that is not allowed.
        """
        legal = as_domain(domain)
        value = default if reorders and not self.may_reorder else legal.member(self.drawn[name]) if name in self.drawn else None
        value = legal.draw(self.stream) if value is None else value
        self.drawn[name] = value
        self.made.setdefault(name, Decision(name, value, legal, default, reorders, kind, why, name))
        return value

    def vector(self) -> dict[str, Value]:
        """Return the drawn values by name, as the argument `decisions` of `pliant.compile` takes them."""
        return {d.name: d.value for d in self.made.values()}


class Decide:
    """A callable through which a schedule rule makes its choices; `target` is the machine, `block` the block that the rule schedules."""

    __slots__ = ("block", "copying", "kernel", "left", "target")

    def __init__(self, kernel: OfKernel, block: str, target: Target, copying: bool = False, left: set[str] | None = None) -> None:
        self.kernel, self.block, self.target = kernel, block, target
        self.copying = copying  # this variant of the program copies operands that it reads many times
        self.left = set() if left is None else left  # blocks of this variant that a rule leaves to a later rule

    def of(self, block: str) -> Decide:
        """Return a `Decide` for another block of the same variant."""
        return Decide(self.kernel, block, self.target, self.copying, self.left)

    def __call__(
        self,
        what: str,
        domain: Domain[V] | Sequence[V],
        default: V,
        *,
        reorders: bool = False,
        kind: Kind = "schedule",
        why: str | Callable[[], str] = "",
        plain: V | None = None,
    ) -> V:
        """Make the choice `<block>.<what>` from a domain: return the value that was asked for under that name, else `default`.

        `plain` is the value of the domain that compiles fastest, the default of a compilation with `effort="fast"`. No choice that reorders
        a sum has one, because results have the same bits with any effort.
        """
        assert plain is None or not reorders
        if plain is not None and self.kernel.fast:
            default, why = plain, 'effort="fast": the fewest bodies to compile'
        return self.kernel.decide(f"{self.block}.{what}", domain, default, reorders, kind, why)


def as_domain(domain: Domain[V] | Sequence[V]) -> Domain[V]:
    """Return `domain` itself if it is a Domain; wrap a list of values in `Choices`."""
    return domain if isinstance(domain, Domain) else Choices(domain)


def _name(name: Any) -> str:
    """Return `name` if it is a text; else raise DecisionError."""
    if not isinstance(name, str):
        raise DecisionError(f"the name of a decision is a text, not {name!r}", help="it is `<block>.<what>`, as in {'c.tile': (6, 2)}")
    return name


def _plain(name: str, value: Any) -> Value:
    """Return a value as JSON has it: a whole number, a bool, a text, or a tuple of whole numbers.

    Raise a DecisionError if it is none of these.
    """
    if isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
        return tuple(int(v) for v in value)
    if isinstance(value, (bool, int, str)):
        return value
    raise DecisionError(
        f"decision `{name}` cannot be {value!r}", help="a decision is a whole number, a text, True or False, or a tuple of whole numbers"
    )
