"""Domains: the legal values of a decision, as a list or as a rule that counts and draws values without listing them.

    tiles = PerfectTiles(extent=960, parts=4, most=64)
    tiles.size, tiles[17], (4, 6, 5, 8) in tiles        # 1904, one of them, True
    tiles.draw(stream), tiles.nearest((4, 6, 5, 9))      # a random one; (4, 6, 5, 8)

A search enumerates a small domain, draws from a large one, and repairs a value that comes from another program's record (`nearest`). A
loop of 4096 iterations has 1771 tiles of four levels, and three free factors up to 64 have 262144 combinations, so domains of tiles are
never listed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import comb, inf, log, prod
from typing import Any, Generic, TypeVar

from ..support.random import Stream

Value = int | str | tuple[int, ...]
V = TypeVar("V", bound=Value)
# free factors that are drawn: powers of two and their small multiples, which tend to be fast
TILES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)


class Domain(Generic[V]):
    """The legal values of a decision. Iteration yields all of them, in the order of `domain[n]`."""

    __slots__ = ()

    @property
    def size(self) -> int:
        """The number of members; it may exceed what `len` can return. Subclasses implement it, here it raises NotImplementedError."""
        raise NotImplementedError

    def __getitem__(self, n: int) -> V:
        """Return member number `n` of the domain, for n in 0 .. size - 1. Subclasses implement it, here it raises NotImplementedError."""
        raise NotImplementedError

    def __contains__(self, value: object) -> bool:
        return self.member(value) is not None

    def __iter__(self) -> Iterator[V]:
        return (self[n] for n in range(self.size))

    def member(self, value: object) -> V | None:
        """Return the member equal to a value and of its type (1 is not True); None if there is none.

        Subclasses implement it, here it raises NotImplementedError.
        """
        raise NotImplementedError

    def draw(self, stream: Stream) -> V:
        """Return a random member of the domain; uniformly, unless a subclass has other probabilities."""
        return self[stream.below(self.size)]

    def nearest(self, value: Any) -> V:
        """Return the member most similar to a value, which may come from another program; the value itself if it is a member.

        Subclasses implement it, here it raises NotImplementedError.
        """
        raise NotImplementedError

    def encode(self, value: V) -> int | tuple[int, ...]:
        """Return a member as it stands in a vector of positions (`Trace.decisions`): numbers only.

        Subclasses implement it, here it raises NotImplementedError.
        """
        raise NotImplementedError

    def decode(self, position: int | tuple[int, ...]) -> V:
        """Return the member that `encode` wrote, or the nearest one. Subclasses implement it, here it raises NotImplementedError."""
        raise NotImplementedError


class Choices(Domain[V]):
    """A domain that is a list of values; `weights` are the relative probabilities of drawing each, None for equal ones."""

    __slots__ = ("values", "weights")

    def __init__(self, values: Sequence[V], weights: Sequence[float] | None = None) -> None:
        self.values, self.weights = tuple(values), weights

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    def __getitem__(self, n: int) -> V:
        return self.values[n]

    def member(self, value: object) -> V | None:
        """Return the member equal to a value and of its type; None if there is none."""
        n = self._at(value)
        return None if n is None else self.values[n]

    def draw(self, stream: Stream) -> V:
        """Return a random value of the list, with the probabilities of `weights`."""
        return self.values[stream.below(self.size) if self.weights is None else stream.weighted(self.weights)]

    def nearest(self, value: Any) -> V:
        """Return the value itself if it is a member, else the member that differs least by ratio; the first one if no ratio is defined."""
        exact = self.member(value)
        return min(self.values, key=lambda v: _distance(v, value)) if exact is None else exact

    def encode(self, value: V) -> int:
        """Return the position of a value in the list, the form in which a trace stores it."""
        n = self._at(value)
        assert n is not None, value
        return n

    def decode(self, position: int | tuple[int, ...]) -> V:
        """Return the value at a position that `encode` returned; a position outside of the list is clamped."""
        return self.values[min(max(position, 0), self.size - 1) if isinstance(position, int) else 0]

    def _at(self, value: object) -> int | None:
        """Return the position of an equal value of the same type (1 == True in Python); None if there is none."""
        same = (n for n, v in enumerate(self.values) if v == value and isinstance(v, bool) == isinstance(value, bool))
        return next(same, None)


class PerfectTiles(Domain[tuple[int, ...]]):
    """`parts` factors whose product is the extent, outermost first; the last one is at most `most`.

    The product of the factors from `position` on is a multiple of `factor`: an instruction of that many elements replaces these loops. A
    single factor from `position` on may exceed `most` if the instruction does.
    """

    __slots__ = ("extent", "factor", "most", "parts", "position")

    def __init__(self, extent: int, parts: int, most: int, position: int = 0, factor: int = 1) -> None:
        self.extent, self.parts, self.most, self.position, self.factor = extent, parts, most, position, factor

    @property
    def size(self) -> int:
        """The number of tiles."""
        return sum(self._counts(n) for n in self._inner())

    def __getitem__(self, n: int) -> tuple[int, ...]:
        if not 0 <= n < self.size:
            raise IndexError(f"there is no tile {n} of {self.size}")
        for inner in self._inner():
            if n < self._counts(inner):
                break
            n -= self._counts(inner)
        outer, n = divmod(n, _count(inner, self.parts - self.position, self.most))
        return (*_tile(self.extent // inner, self.position, inf, outer), *_tile(inner, self.parts - self.position, self.most, n))

    def member(self, value: object) -> tuple[int, ...] | None:
        """Return the tile itself if it is legal, else None."""
        if not isinstance(value, tuple) or len(value) != self.parts or not all(type(v) is int and v >= 1 for v in value):
            return None
        bounded = self.parts - self.position == 1 or value[-1] <= self.most  # a single inner part: `_inner` has bounded it
        return value if bounded and prod(value) == self.extent and prod(value[self.position :]) in self._inner() else None

    def draw(self, stream: Stream) -> tuple[int, ...]:
        """Return a random tile: each factor, innermost first, is uniform over the possible divisors."""
        if self.position == 0:
            return _built(self.extent, self.parts, self.most, stream.choice)
        inner = stream.choice(self._inner())
        outer = _built(self.extent // inner, self.position, inf, stream.fork("outer").choice)
        return (*outer, *_built(inner, self.parts - self.position, self.most, stream.fork("inner").choice))

    def nearest(self, value: Any) -> tuple[int, ...]:
        """Return a legal value itself, else the tile with the largest factors, innermost first, that do not exceed those of the value."""
        exact = self.member(value)
        if exact is not None:
            return exact
        wanted = value if isinstance(value, tuple) and all(type(v) is int for v in value) else ()
        wanted_inner = prod(wanted[self.position :]) if len(wanted) == self.parts else 1
        inner = max((n for n in self._inner() if n <= wanted_inner), default=self._inner()[0])
        outer = _repaired(self.extent // inner, self.position, inf, wanted[: self.position])
        return (*outer, *_repaired(inner, self.parts - self.position, self.most, wanted[self.position :]))

    def encode(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the factors of a tile, the form in which a trace stores it."""
        return value

    def decode(self, position: int | tuple[int, ...]) -> tuple[int, ...]:
        """Return the tile that a trace stores as `position`; factors that are not legal are replaced by the nearest legal tile."""
        return self.nearest(position)

    def _inner(self) -> list[int]:
        """Return the possible products of the inner factors of a tile."""
        if self.position == 0:
            return [self.extent]
        products = [d * self.factor for d in _divisors(self.extent // self.factor)]
        if self.parts - self.position > 1:
            return products
        return [n for n in products if n <= self.most] or products[:1]  # an instruction may be larger than `most`

    def _counts(self, inner: int) -> int:
        """Return the number of tiles whose inner factors have this product."""
        return _count(self.extent // inner, self.position, inf) * _count(inner, self.parts - self.position, self.most)


class FreeTiles(Domain[tuple[int, ...]]):
    """The domain of tuples of `factors` numbers from 1 to `most`; they need not divide the extent of a loop."""

    __slots__ = ("factors", "most")

    def __init__(self, factors: int, most: int) -> None:
        self.factors, self.most = factors, most

    @property
    def size(self) -> int:
        """The number of tiles."""
        return int(self.most**self.factors)

    def __getitem__(self, n: int) -> tuple[int, ...]:
        if not 0 <= n < self.size:
            raise IndexError(f"there is no tile {n} of {self.size}")
        return tuple(n // self.most**k % self.most + 1 for k in reversed(range(self.factors)))

    def member(self, value: object) -> tuple[int, ...] | None:
        """Return the tile itself if it is legal, else None."""
        fits = isinstance(value, tuple) and len(value) == self.factors and all(type(v) is int and 1 <= v <= self.most for v in value)
        return value if fits else None  # type: ignore[return-value]

    def draw(self, stream: Stream) -> tuple[int, ...]:
        """Return a random tile of factors that tend to be fast (TILES)."""
        return tuple(stream.choice([t for t in TILES if t <= self.most]) for _ in range(self.factors))

    def nearest(self, value: Any) -> tuple[int, ...]:
        """Return each factor clamped to 1..most; 1 for a missing one."""
        wanted = value if isinstance(value, tuple) else (value,)
        factors = [wanted[n] if n < len(wanted) and type(wanted[n]) is int else 1 for n in range(self.factors)]
        return tuple(min(max(1, v), self.most) for v in factors)

    def encode(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the factors of a tile, the form in which a trace stores it."""
        return value

    def decode(self, position: int | tuple[int, ...]) -> tuple[int, ...]:
        """Return the tile that a trace stores as `position`, each factor clamped to 1..most."""
        return self.nearest(position)


def _distance(a: Value, b: Any) -> float:
    """Return the distance of two values as the log ratio of their numbers; infinity for different kinds."""
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        return sum(_distance(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is int and type(b) is int:
        return abs(log(max(a, 0) + 1) - log(max(b, 0) + 1))  # 0 is a legal value of some decisions
    return 0.0 if type(a) is type(b) and a == b else inf


@lru_cache(1024)  # counting tiles factors the same numbers many times
def _primes(n: int) -> tuple[tuple[int, int], ...]:
    """Return the prime factors of a number, each with its exponent."""
    primes, p = [], 2
    while p * p <= n:
        exponent = 0
        while n % p == 0:
            n, exponent = n // p, exponent + 1
        primes += [(p, exponent)] if exponent else []
        p += 1
    return (*primes, (n, 1)) if n > 1 else tuple(primes)


@lru_cache(1024)
def _divisors(n: int) -> tuple[int, ...]:
    """Return the divisors of a number in ascending order."""
    divisors = [1]
    for p, exponent in _primes(n):
        divisors = [d * p**k for d in divisors for k in range(exponent + 1)]
    return tuple(sorted(divisors))


def _count(n: int, parts: int, most: float) -> int:
    """Return the number of ways to write `n` as `parts` ordered factors, the last of several at most `most`."""
    if parts <= 1:
        return 1
    if most >= n:
        return prod(comb(e + parts - 1, parts - 1) for _, e in _primes(n))  # each prime's exponent is distributed by itself
    return sum(_count(n // d, parts - 1, inf) for d in _divisors(n) if d <= most)


def _tile(n: int, parts: int, most: float, number: int) -> tuple[int, ...]:
    """Return tile `number` of those that `_count` counts, ordered by the last factor first."""
    if parts <= 1:
        return (n,) * parts
    for d in _divisors(n):
        count = _count(n // d, parts - 1, inf)
        if number < count:
            return (*_tile(n // d, parts - 1, inf, number), d)
        number -= count
    raise AssertionError("there are not so many tiles")


def _built(n: int, parts: int, most: float, choose: Callable[[Sequence[int]], int]) -> tuple[int, ...]:
    """Return factors chosen one after the other, innermost first, among the divisors of what is left."""
    factors: list[int] = []
    while len(factors) < parts - 1:
        factors.append(choose([d for d in _divisors(n) if factors or d <= most]))
        n //= factors[-1]
    return (n, *reversed(factors)) if parts else ()


def _repaired(n: int, parts: int, most: float, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Return the wanted factors where they divide what is left, else the next smaller divisors."""
    left = [wanted[k] if k < len(wanted) else 1 for k in range(parts)]

    def choose(divisors: Sequence[int]) -> int:
        limit = left.pop()
        return max((d for d in divisors if d <= limit), default=1)

    return _built(n, parts, most, choose)
