"""Cost models: they predict the time of candidates that were not measured, so that the best ones are measured first.

    model = Ridge()
    model.fit(space, [({"0.tile": (4, 2)}, 0.93), …])
    model.predict(space, [{"0.tile": (4, 3)}])       # [-0.05]: logs of the ratio to the default's time

Without measurements the analytic model of the rules speaks: its choice is the default, and what is near it is better than what is far.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Protocol

from ..schedule.domains import Value
from .search_space import SearchSpace, Vector

FAR = 0.05  # log of the slowdown that a change of one decision by a factor of e is taken for, while nothing is known
WEIGHT = 0.02  # of the regularization: the variance of noise, 0.03 squared, to that of weights, 0.2 squared


class CostModel(Protocol):
    """The interface of a cost model."""

    def fit(self, space: SearchSpace, measured: Sequence[tuple[Vector, float]]) -> None:
        """Learns from vectors of a space and the ratios of their times to the default's."""

    def predict(self, space: SearchSpace, vectors: Sequence[Vector]) -> list[float]:
        """Returns the log of the expected ratio of each vector."""


class Ridge:
    """Ridge regression on logs of the numbers in decisions, their squares and products: what is left of the distance to the default."""

    def __init__(self) -> None:
        self._names: list[tuple[str, int]] = []
        self._weights: list[float] = []

    def fit(self, space: SearchSpace, measured: Sequence[tuple[Vector, float]]) -> None:
        """Learns from vectors of a space and the ratios of their times to the default's."""
        import numpy as np

        self._names = [(name, k) for name, d in space.decisions.items() for k in range(len(_numbers(d.default)))]
        self._weights = []
        if len(measured) < 4:
            return
        x = np.array([self._features(space, v) for v, _ in measured])
        y = np.array([log(ratio) - self._prior(space, v) for v, ratio in measured])
        self._weights = list(np.linalg.solve(x.T @ x + WEIGHT * np.eye(x.shape[1]), x.T @ y))

    def predict(self, space: SearchSpace, vectors: Sequence[Vector]) -> list[float]:
        """Returns the log of the expected ratio of each vector."""
        rest = [sum(w * f for w, f in zip(self._weights, self._features(space, v), strict=True)) if self._weights else 0.0 for v in vectors]
        return [self._prior(space, v) + r for v, r in zip(vectors, rest, strict=True)]

    def _point(self, space: SearchSpace, vector: Vector) -> list[float]:
        """Returns how far each number of a vector is from that of the default, as a log."""
        point = []
        for name, k in self._names:
            d = space.decisions[name]
            own, usual = _numbers(vector.get(name, d.default)), _numbers(d.default)
            point.append(own[k] - usual[k] if k < len(own) else 1.0)
        return point

    def _features(self, space: SearchSpace, vector: Vector) -> list[float]:
        p = self._point(space, vector)
        return [1.0, *p, *(a * b for n, a in enumerate(p) for b in p[n:])]

    def _prior(self, space: SearchSpace, vector: Vector) -> float:
        return FAR * sum(map(abs, self._point(space, vector)))


def _numbers(value: Value) -> list[float]:
    """Returns a value as logs of its numbers; a text is a number that only equals itself."""
    if isinstance(value, tuple):
        return [log(v + 1) for v in value]
    return [float(sum(value.encode()) % 7)] if isinstance(value, str) else [log(abs(int(value)) + 1)]
