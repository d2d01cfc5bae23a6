"""Mutators: how a search gets from the choices of a fast schedule to others nearby.

    @pliant.tune.mutator
    def even_rows(decision, stream):
        return decision.value * 2 if decision.name.endswith(".rows0") else None

A mutator looks at one decision and answers with another value, or with None if it has nothing to say. The first answer that is legal is
taken, of declared mutators before those of Pliant; without one, a value is drawn. So a mutator can make a search slow, but nothing wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from ..schedule.decisions import Decision
from ..schedule.domains import Choices, PerfectTiles, Value
from ..support.random import Stream

Mutator = Callable[[Decision, Stream], Value | None]
DECLARED: dict[str, Mutator] = {}  # by name, in the order of declaration
MOVES = 0.8  # how often a value changes by a step; else it is drawn anew


def mutator(function: Mutator) -> Mutator:
    """Declares a mutator: a function of a decision and a random stream that returns another value or None; returns the function.

    A later one of the same name replaces it.
    """
    DECLARED[function.__name__] = function
    return function


def mutated(decision: Decision, stream: Stream) -> Value:
    """Returns another value of a decision, the same one if its domain has no other."""
    for ask in (*DECLARED.values(), move_factor, step):
        value = ask(decision, stream)
        legal: Value | None = None if value is None else decision.domain.member(value)
        if legal is not None and legal != decision.value:
            return legal
    drawn: Value = decision.domain.draw(stream)
    return drawn


def move_factor(decision: Decision, stream: Stream) -> Value | None:
    """Returns a tile of which a prime factor of one part was moved to another part; None for what is no tile, and sometimes."""
    value = decision.value
    if not isinstance(decision.domain, PerfectTiles) or not isinstance(value, tuple) or stream.uniform() > MOVES:
        return None
    sources = [n for n, part in enumerate(value) if part > 1]
    if not sources or len(value) < 2:
        return None
    source = stream.choice(sources)
    target = stream.choice([n for n in range(len(value)) if n != source])
    prime = stream.choice([p for p in range(2, value[source] + 1) if value[source] % p == 0 and all(p % q for q in range(2, p))])
    parts = list(value)
    parts[source], parts[target] = parts[source] // prime, parts[target] * prime
    return tuple(parts)


def step(decision: Decision, stream: Stream) -> Value | None:
    """Returns the next larger or smaller of the numbers of a list; None for other domains, and sometimes."""
    domain = decision.domain
    if not isinstance(domain, Choices) or not all(type(v) is int for v in domain.values) or stream.uniform() > MOVES:
        return None
    order = sorted(domain.values)
    near = order.index(decision.value) + stream.choice((-1, 1))
    found: Value = order[min(max(near, 0), len(order) - 1)]
    return found
