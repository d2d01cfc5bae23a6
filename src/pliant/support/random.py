"""Deterministic random streams: the same numbers from the same seed on every machine and Python version, and substreams by name.

    stream = Stream(7)
    stream.below(10), stream.choice(("a", "b")), stream.fork("tiles").below(10)

A number is a hash of the seed and a counter, so the state of a stream is two integers that can be saved and restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
_BITS = 64  # bits of one number


class Stream:
    """A deterministic stream of random numbers from a seed: the same on every machine."""

    __slots__ = ("count", "seed")

    def __init__(self, seed: int | str = 0, count: int = 0) -> None:
        self.seed = seed
        self.count = count

    def fork(self, name: str) -> Stream:
        """Returns an independent substream; it does not depend on the numbers drawn here."""
        return Stream(f"{self.seed}/{name}")

    def word(self) -> int:
        """Returns the next 64 random bits as an integer."""
        self.count += 1
        digest = hashlib.blake2b(f"{self.seed}:{self.count}".encode(), digest_size=_BITS // 8).digest()
        return int.from_bytes(digest, "little")

    def below(self, limit: int) -> int:
        """Returns a uniform number in 0 ..

        limit - 1 (the bias is below one in 2^32 for limits below 2^32); raises ValueError if limit < 1.
        """
        if limit < 1:
            raise ValueError(f"there is no number from 0 on below {limit}")
        return self.word() * limit >> _BITS

    def uniform(self) -> float:
        """Returns a uniform random number in 0 <= x < 1."""
        return (self.word() >> 11) / (1 << 53)

    def choice(self, items: Sequence[T]) -> T:
        """Returns one of the items, at random."""
        return items[self.below(len(items))]

    def weighted(self, weights: Sequence[float]) -> int:
        """Returns a random position in the list, with a probability proportional to its weight.

        Weights are not negative, and one is above 0.
        """
        point = self.uniform() * sum(weights)
        for n, w in enumerate(weights):
            point -= w
            if point < 0:
                return n
        return max(n for n, w in enumerate(weights) if w > 0)
