"""Strategies: which candidates are measured next.

Descent().propose(space, outcomes, model, stream, 8)     # up to 8 vectors that were not tried; none: the search has ended
Evolution().propose(space, outcomes, model, stream, 8)   # the same for spaces of modules, which are too large for all neighbors
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Protocol

from ..schedule.domains import Value
from ..support.errors import ScheduleError
from ..support.random import Stream
from .cost_model import CostModel
from .database import Outcome, vector_of, vector_text
from .search_space import SearchSpace, Vector

DRAWN = 24  # random candidates of a task besides the neighbors of the best ones
POOL = 256  # random vectors among which the model chooses them
PARENTS = 8  # fastest vectors whose neighbors `Evolution` tries
FIRST = 24  # random vectors before that
MOST = 512  # candidates of one kernel
TRIES = 4  # vectors that are made for each that is wanted
GAIN = 0.99  # a ratio below this is a gain: noise is smaller


class Strategy(Protocol):
    """The interface of a search."""

    def propose(
        self, space: SearchSpace, outcomes: Mapping[str, Outcome], model: CostModel, stream: Stream, count: int
    ) -> list[dict[str, Value]]:
        """Returns at most `count` vectors to measure next, none if the search has ended.

        `space` is the space around the default, `outcomes` what is known of the vectors that were tried (as texts).
        """


class Descent:
    """Coordinate descent from the default and from the best vector so far, after some random candidates that the model likes."""

    def propose(
        self, space: SearchSpace, outcomes: Mapping[str, Outcome], model: CostModel, stream: Stream, count: int
    ) -> list[dict[str, Value]]:
        """Returns the untried neighbors of the best vector that the model expects most of; first some random vectors, too."""
        measured = [(vector_of(text), o.ratio) for text, o in outcomes.items() if o.ratio is not None]
        model.fit(space, measured)
        pool: dict[str, dict[str, Value]] = {}
        if len(outcomes) < DRAWN and prod(d.domain.size for d in space.decisions.values()) > DRAWN:
            drawn = [space.drawn(stream) for _ in range(POOL)]
            best = _ranked(space, _untried(drawn, outcomes), model)[: count // 2]
            pool = {vector_text(v): v for v in best}
        for start in _starts(measured):
            left = [v for v in _untried(_neighbors(space, start), outcomes) if vector_text(v) not in pool]
            pool |= {vector_text(v): v for v in _ranked(space, left, model)[: count - len(pool)]}
        return list(pool.values())[:count]


class Evolution:
    """Random vectors first, then also neighbors of the fastest ones; it ends after MOST candidates, or where it finds no new ones."""

    def propose(
        self, space: SearchSpace, outcomes: Mapping[str, Outcome], model: CostModel, stream: Stream, count: int
    ) -> list[dict[str, Value]]:
        """Returns untried vectors: random ones, and from FIRST outcomes on three of four are neighbors of the fastest ones."""
        measured = sorted((o.ratio, text) for text, o in outcomes.items() if o.ratio is not None)
        parents = [text for _, text in measured[:PARENTS]]
        pool: dict[str, dict[str, Value]] = {}
        for n in range(TRIES * count if len(outcomes) < MOST else 0):
            if len(pool) == count:
                break
            evolves = parents and len(outcomes) >= FIRST and n % 4
            try:
                near = space.around(vector_of(stream.choice(parents))) if evolves else space
                vector = next(near.neighbors(stream.fork(str(n)))) if evolves else space.drawn(stream)
            except (ScheduleError, StopIteration):  # modules have been changed since, or they leave nothing to choose
                continue
            if vector and vector_text(vector) not in outcomes:
                pool[vector_text(vector)] = vector
        return list(pool.values())


def _starts(measured: list[tuple[dict[str, Value], float]]) -> list[Vector]:
    """Returns the vectors whose neighbors are tried: the best one if it gains something, then the default."""
    best = min(measured, key=lambda m: m[1], default=({}, 1.0))
    return [best[0], {}] if best[1] < GAIN and best[0] else [{}]


def _neighbors(space: SearchSpace, start: Vector) -> list[dict[str, Value]]:
    try:
        return list(space.around(start).neighbors(Stream(vector_text(start))))
    except ScheduleError:  # it was measured with rules that have since been changed
        return []


def _untried(vectors: list[dict[str, Value]], outcomes: Mapping[str, Outcome]) -> list[dict[str, Value]]:
    """Returns the vectors that are neither the default nor tried, each once."""
    return list({text: v for v in vectors if v and (text := vector_text(v)) not in outcomes}.values())


def _ranked(space: SearchSpace, vectors: list[dict[str, Value]], model: CostModel) -> list[dict[str, Value]]:
    """Returns the vectors, those of the shortest expected time first."""
    times = model.predict(space, vectors)
    return [v for _, v in sorted(zip(times, vectors, strict=True), key=lambda pair: (pair[0], vector_text(pair[1])))]
