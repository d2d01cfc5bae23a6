"""From logits to a token: greedy, temperature, top-k, top-p, min-p, repetition penalty, and a seeded stream.

    sampler = Sampler(SamplingOptions(temperature=0.8, top_p=0.95, seed=7))
    token = sampler.sample(logits, history)

A sample is a pure function of the logits, the history, the options, the seed and the number of samples taken before: everything is computed
in f64, in an order that depends on nothing else (equal logits are ordered by token), by one thread. So the same logits and seed give the
same text, whatever the number of threads that made the logits.

The order of the steps: repetition penalty, top-k, temperature, then min-p and top-p on the probabilities, then one draw.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..support.errors import Error
from ..support.record import dataclass


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen; temperature 0 takes the most likely one. What is 0 (or 1 for `top_p` and the penalty) does nothing."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    repetition_window: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        allowed = {
            "temperature": (0.0, 100.0),
            "top_k": (0, 1 << 31),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repetition_penalty": (0.01, 100.0),
            "repetition_window": (0, 1 << 31),
        }
        for name, (low, high) in allowed.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:  # also no NaN
                raise Error(f"`{name}` is {value!r}, outside of {low}..{high}")
        if self.seed is not None and not (isinstance(self.seed, int) and 0 <= self.seed < 1 << 64):
            raise Error(f"`seed` is {self.seed!r}, outside of 0..2^64-1")


class Stream:
    """Uniform numbers from a seed: number `i` depends on the seed and `i` alone, on every machine and in every version."""

    def __init__(self, seed: int, taken: int = 0) -> None:
        self.seed = seed
        self.taken = taken

    def next(self) -> float:
        """A number from 0 up to 1, without 1."""
        digest = hashlib.blake2b(struct.pack("<QQ", self.seed, self.taken), digest_size=8, person=b"pliant-sample").digest()
        self.taken += 1
        return (int.from_bytes(digest, "little") >> 11) / 2**53


class Sampler:
    """Chooses token after token."""

    def __init__(self, options: SamplingOptions | None = None) -> None:
        self.options = options or SamplingOptions()
        self.seed = self.options.seed if self.options.seed is not None else _any_seed()
        self.stream = Stream(self.seed)

    def sample(self, logits: NDArray[Any], history: Sequence[int] = ()) -> int:
        """The next token after the tokens of `history`."""
        options = self.options
        scores = _checked(logits)
        if options.repetition_penalty != 1.0:
            scores = _penalized(scores, history[max(0, len(history) - options.repetition_window) :], options.repetition_penalty)
        if options.temperature == 0.0:
            return int(np.argmax(scores))  # the first of equal ones
        tokens, chances = distribution(scores, options)
        return int(tokens[_drawn(chances, self.stream.next())])


def distribution(scores: NDArray[np.float64], options: SamplingOptions) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The tokens that may be drawn, most likely first, and their probabilities, which sum to 1."""
    tokens = _best(scores, options.top_k)
    kept = scores[tokens]
    chances = np.exp((kept - kept[0]) / options.temperature)
    chances /= math.fsum(chances)
    last = len(tokens)
    if options.min_p > 0.0:
        last = max(1, int(np.count_nonzero(chances >= options.min_p * chances[0])))
    if options.top_p < 1.0:
        enough = int(np.searchsorted(np.cumsum(chances[:last]), options.top_p)) + 1  # the one that reaches it is in
        last = max(1, min(last, enough))
    tokens, chances = tokens[:last], chances[:last]
    return tokens, chances / math.fsum(chances)


def _best(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """The tokens with the highest scores, best first, equal ones by number; all that are possible where `count` is 0."""
    if 0 < count < len(scores):
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        above = np.flatnonzero(scores > edge)
        at = np.flatnonzero(scores == edge)[: count - len(above)]
        found = np.sort(np.concatenate([above, at]))
    else:
        found = np.flatnonzero(scores > -np.inf)
    return found[np.argsort(-scores[found], kind="stable")]


def _drawn(chances: NDArray[np.float64], number: float) -> int:
    """The place in the row of chances where a number from 0 to 1 falls."""
    return min(int(np.searchsorted(np.cumsum(chances), number, side="right")), len(chances) - 1)


def _checked(logits: NDArray[Any]) -> NDArray[np.float64]:
    """The logits as f64; a NaN is never chosen, and a row without any number is an error."""
    if logits.ndim != 1 or not logits.size:
        raise Error(f"logits are a row of numbers, found the shape {logits.shape}")
    scores = logits.astype(np.float64)
    scores[np.isnan(scores)] = -np.inf
    if not np.isfinite(scores.max()):
        raise Error("the model's logits are not numbers", help="the model file may be damaged: `pliant models rm` and fetch it again")
    return scores


def _penalized(scores: NDArray[np.float64], recent: Sequence[int], penalty: float) -> NDArray[np.float64]:
    """Tokens that were said recently become less likely, each once."""
    said = np.unique(np.asarray([t for t in recent if 0 <= t < len(scores)], np.intp))
    result = scores.copy()
    result[said] = np.where(scores[said] > 0, scores[said] / penalty, scores[said] * penalty)
    return result


def _any_seed() -> int:
    import secrets

    return secrets.randbits(63)
