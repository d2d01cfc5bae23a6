"""Token sampling: greedy, temperature, top-k, top-p, min-p and repetition penalty, with a seeded random stream.

    sampler = Sampler(SamplingOptions(temperature=0.8, top_p=0.95, seed=7))
    token = sampler.sample(logits, history)

A sample is a pure function of the logits, the history, the options, the seed and the number of previous samples. Everything is computed in
f64 by one thread, in a fixed order (ties are broken by token number). So the same logits and seed give the same text, for any number of
threads.

The order of the steps: repetition penalty, top-k, temperature, then min-p and top-p on the probabilities, then one draw.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..support.errors import Error
from ..support.record import dataclass


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """The options of sampling; temperature 0 is greedy. A filter with value 0 (1 for `top_p` and the penalty) is off."""

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
            if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:  # the comparison also refuses NaN
                raise Error(f"`{name}` is {value!r}, outside of {low}..{high}")
        if self.seed is not None and not (isinstance(self.seed, int) and 0 <= self.seed < 1 << 64):
            raise Error(f"`seed` is {self.seed!r}, outside of 0..2^64-1")


class SamplingKeywords(TypedDict, total=False):
    """The fields of `SamplingOptions` as keywords of a function."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    repetition_window: int
    seed: int | None


class AnswerKeywords(SamplingKeywords, total=False):
    """The keywords of an answer: those of sampling, and where it ends."""

    max_tokens: int | None
    stop: str | Sequence[str]
    raw: bool


class Stream:
    """A counter-based random stream: number `i` depends only on the seed and `i`, on every machine and in every version."""

    def __init__(self, seed: int, taken: int = 0) -> None:
        self.seed = seed
        self.taken = taken

    def next(self) -> float:
        """Returns the next uniform number in [0, 1)."""
        digest = hashlib.blake2b(struct.pack("<QQ", self.seed, self.taken), digest_size=8, person=b"pliant-sample").digest()
        self.taken += 1
        return (int.from_bytes(digest, "little") >> 11) / 2**53


class Sampler:
    """Samples the next token from logits, one after the other, by the sampling options."""

    def __init__(self, options: SamplingOptions | None = None) -> None:
        self.options = options or SamplingOptions()
        self.seed = self.options.seed if self.options.seed is not None else _any_seed()
        self.stream = Stream(self.seed)

    def sample(self, logits: NDArray[Any], history: Sequence[int] = ()) -> int:
        """Returns the next token, sampled from the logits; `history` is used by the repetition penalty.

        With temperature 0 it is the most likely token. Raises an Error if no logit is a finite number.
        """
        options = self.options
        scores = _checked(logits)
        if options.repetition_penalty != 1.0:
            scores = _penalized(scores, history[max(0, len(history) - options.repetition_window) :], options.repetition_penalty)
        if options.temperature == 0.0:
            return int(np.argmax(scores))  # ties: the lowest token number
        tokens, chances = distribution(scores, options)
        return int(tokens[_drawn(chances, self.stream.next())])


def distribution(scores: NDArray[np.float64], options: SamplingOptions) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Returns the tokens that pass all filters, most likely first, and their probabilities, which sum to 1."""
    tokens = _best(scores, options.top_k)
    best = scores[tokens]
    chances = np.exp((best - best[0]) / options.temperature)
    chances /= math.fsum(chances)
    last = len(tokens)
    if options.min_p > 0.0:
        last = max(1, int(np.count_nonzero(chances >= options.min_p * chances[0])))
    if options.top_p < 1.0:
        enough = int(np.searchsorted(np.cumsum(chances[:last]), options.top_p)) + 1  # includes the token that reaches the limit
        last = max(1, min(last, enough))
    tokens, chances = tokens[:last], chances[:last]
    return tokens, chances / math.fsum(chances)


def _best(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Returns the `count` tokens with the highest scores, best first, ties by number; all tokens above -inf if `count` is 0."""
    if 0 < count < len(scores):
        edge = np.partition(scores, len(scores) - count)[len(scores) - count]
        above = np.flatnonzero(scores > edge)
        at = np.flatnonzero(scores == edge)[: count - len(above)]
        tokens = np.sort(np.concatenate([above, at]))
    else:
        tokens = np.flatnonzero(scores > -np.inf)
    return tokens[np.argsort(-scores[tokens], kind="stable")]


def _drawn(chances: NDArray[np.float64], number: float) -> int:
    """Returns the index at which a number in [0, 1) falls in the cumulative distribution."""
    return min(int(np.searchsorted(np.cumsum(chances), number, side="right")), len(chances) - 1)


def _checked(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the logits as f64, with NaN replaced by -inf; raises if no logit is a finite number."""
    if logits.ndim != 1 or not logits.size:
        raise Error(f"logits are a row of numbers, found the shape {logits.shape}")
    scores = logits.astype(np.float64)
    scores[np.isnan(scores)] = -np.inf
    if not np.isfinite(scores.max()):
        raise Error("the model's logits are not numbers", help="the model file may be damaged: `pliant models rm` and fetch it again")
    return scores


def _penalized(scores: NDArray[np.float64], recent: Sequence[int], penalty: float) -> NDArray[np.float64]:
    """Returns the scores with the repetition penalty applied once to each recent token."""
    said = np.unique(np.asarray([t for t in recent if 0 <= t < len(scores)], np.intp))
    result = scores.copy()
    result[said] = np.where(scores[said] > 0, scores[said] / penalty, scores[said] * penalty)
    return result


def _any_seed() -> int:
    import secrets

    return secrets.randbits(63)
