"""Decisions: the choices of a schedule, each with a name, the values it may have, and the one that the cost model takes.

    decide = Decisions({"c.tile": (6, 2)}).of_kernel("matmul").about("c", target)
    decide("tile", domain=((4, 4), (6, 2)), default=(4, 4), why="…")        # (6, 2): what was asked for; else the default

Whoever makes a choice says what is legal (the domain, computed from facts about the program, its layouts and the target) and what it would
take (the default). A search, a user or a stored record may ask for another value of the domain by the name of the decision,
`<block>.<what>`; in a program of several kernels also `<kernel>.<block>.<what>`, or `<kernel>@<hash>.<block>.<what>` for one of several
kernels of a name. A value outside of the domain is an error, and so is a name that nobody asks for.

The choices of a rule (`decide`) and those of a schedule (`s.sample_perfect_tile(...)`, `sampling.py`) are records of one kind, and go one
way: `OfKernel.decide`. Domains are lists or, where a list would be long, objects that can count, draw and repair (`domains.py`).

A decision that `reorders` changes the order in which a sum is added, hence its last bits; all others keep them. Those of the kind
`layout` belong to a value that several kernels read, and are made before any of these is scheduled.
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

Kind = Literal["schedule", "layout"]
SHOWN = 12  # values of a domain that a message lists


class DecisionError(ScheduleError):
    """A value that a decision may not have, or the name of one that nobody makes."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice that was made, and what else it could have been."""

    name: str  # <block>.<what>, or <value>.<what> for a layout
    value: Value
    domain: Domain[Any]
    default: Value
    reorders: bool = False
    kind: Kind = "schedule"
    why: str | Callable[[], str] = ""  # the cost model's reasons for the default; made when they are asked for
    asked_as: str = ""  # the name under which somebody asked for this value; "" where it is the default

    @property
    def reason(self) -> str:
        """The cost model's terms, in words."""
        return self.why if isinstance(self.why, str) else self.why()

    def values(self, most: int = SHOWN) -> str:
        """The domain in words, `most` values of it at the most."""
        more = self.domain.size - most
        return ", ".join(map(shown, islice(self.domain, most))) + (f" and {more} more" if more > 0 else "")


def shown(value: Value) -> str:
    """A value as people read it: a tile of 6 rows and 2 vectors is 6x2."""
    return "x".join(map(str, value)) if isinstance(value, tuple) and value else str(value)


class Decisions:
    """What is asked for in one compilation, by name, and the decisions that were made in it."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.values = {_name(name): _plain(name, value) for name, value in (values or {}).items()}
        self.kernels: list[OfKernel] = []

    def of_kernel(self, kernel: str, content: str = "") -> OfKernel:
        """The decisions of one kernel; `content` is a hash that tells kernels of one name apart."""
        names: dict[str, str] = {}
        for full in sorted(self.values, key=lambda name: (name.count("."), "@" in name)):  # the most special one counts
            *of, block, what = ("", *full.split("."))
            name, _, start = of[-1].partition("@") if of else ("", "", "")
            if len(of) <= 2 and name in ("", kernel) and content.startswith(start):
                names[f"{block}.{what}"] = full
        answers = OfKernel(kernel, names, self.values)
        self.kernels.append(answers)
        return answers

    def text(self) -> str:
        """What compiled code depends on: all values, in an order that is always the same."""
        return json.dumps(sorted(self.values.items())) if self.values else ""

    def check_used(self, by: str = "rule", help: str = "pliant.explain lists the decisions of a program") -> None:
        """An error for a name that nobody asks about; `by` is the kind of those who could."""
        made = [(k.kernel, d) for k in self.kernels for d in k.made.values()]
        for name in sorted(set(self.values) - {d.asked_as for _, d in made}):
            from difflib import get_close_matches

            near = get_close_matches(name, {n for kernel, d in made for n in (d.name, f"{kernel}.{d.name}")}, 3)
            names = list(dict.fromkeys(f"`{d.name}`" for _, d in made if d.domain.size > 1))
            raise DecisionError(
                f"no {by} makes a decision `{name}`",
                facts=[f"there are {', '.join(names[:SHOWN]) or 'none'}{' and others' * (len(names) > SHOWN)}"],
                help=f"did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else help,
            )


class OfKernel:
    """The decisions of one kernel, all of its variants together."""

    __slots__ = ("kernel", "made", "names", "values")

    def __init__(self, kernel: str, names: Mapping[str, str], values: Mapping[str, Value]) -> None:
        self.kernel = kernel
        self.names = names  # under which name a value of `<block>.<what>` is asked for
        self.values = values
        self.made: dict[str, Decision] = {}

    def about(self, block: str, target: Target) -> Decide:
        """Who decides about a block (or about a value, where it is a layout)."""
        return Decide(self, block, target)

    def decide(self, name: str, domain: Domain[V] | Sequence[V], default: V, reorders: bool, kind: Kind, why: str | Callable[[], str]) -> V:
        """The value of a decision: what is asked for, if that is in the domain, else the default."""
        full, legal = self.names.get(name, ""), _domain(domain)
        value = legal.member(self.values[full]) if full else default
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
        """Decisions that are made inside are forgotten if it ends with an exception."""
        before = dict(self.made)
        try:
            yield
        except BaseException:
            self.made = before
            raise


class Drawn(OfKernel):
    """Decisions that are drawn at random, each from its domain: what a search begins with, and tests try.

    Without `may_reorder`, those that say that they reorder a sum have their default. Of a sampled choice that may be known only when it has
    been used (`ChoiceLog.note`): its record says so afterwards.
    """

    __slots__ = ("drawn", "may_reorder", "stream")

    def __init__(self, kernel: str, stream: Stream, may_reorder: bool = False) -> None:
        super().__init__(kernel, {}, {})
        self.stream, self.may_reorder = stream, may_reorder
        self.drawn: dict[str, Value] = {}  # a name has one value in all variants

    def decide(self, name: str, domain: Domain[V] | Sequence[V], default: V, reorders: bool, kind: Kind, why: str | Callable[[], str]) -> V:
        """A value of the domain; the default where another one would change last bits and these are to stay."""
        legal = _domain(domain)
        value = default if reorders and not self.may_reorder else legal.member(self.drawn[name]) if name in self.drawn else None
        value = legal.draw(self.stream) if value is None else value
        self.drawn[name] = value
        self.made.setdefault(name, Decision(name, value, legal, default, reorders, kind, why, name))
        return value

    def vector(self) -> dict[str, Value]:
        """What was drawn, as `pliant.compile` takes it."""
        return {d.name: d.value for d in self.made.values()}


class Decide:
    """What a rule asks when it has a choice; `target` is the machine, `block` the name of the block that the rule takes."""

    __slots__ = ("block", "copying", "kernel", "left", "target")

    def __init__(self, kernel: OfKernel, block: str, target: Target, copying: bool = False, left: set[str] | None = None) -> None:
        self.kernel, self.block, self.target = kernel, block, target
        self.copying = copying  # this variant of the program copies what it reads many times
        self.left = set() if left is None else left  # blocks of the variant that a rule has left for a later one

    def of(self, block: str) -> Decide:
        """Who decides about another block of the same variant."""
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
    ) -> V:
        """The value of the decision `<block>.<what>`, one of the domain."""
        return self.kernel.decide(f"{self.block}.{what}", domain, default, reorders, kind, why)


def _domain(domain: Domain[V] | Sequence[V]) -> Domain[V]:
    """A domain as an object: a list of values is one of choices."""
    return domain if isinstance(domain, Domain) else Choices(domain)


def _name(name: Any) -> str:
    """The name under which somebody asks for a value."""
    if not isinstance(name, str):
        raise DecisionError(f"the name of a decision is a text, not {name!r}", help="it is `<block>.<what>`, as in {'c.tile': (6, 2)}")
    return name


def _plain(name: str, value: Any) -> Value:
    """A value that somebody asks for: a number, a text, or several numbers, as JSON has them."""
    if isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
        return tuple(int(v) for v in value)
    if isinstance(value, (bool, int, str)):
        return value
    raise DecisionError(
        f"decision `{name}` cannot be {value!r}", help="a decision is a whole number, a text, True or False, or a tuple of whole numbers"
    )
