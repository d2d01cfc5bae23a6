"""Domains of decisions: lazy ones say and give what a list of all values would."""

from __future__ import annotations

from itertools import product
from math import comb, prod
from typing import Any

import pytest

from pliant.schedule.domains import Choices, Domain, FreeTiles, PerfectTiles
from pliant.support.random import Stream


def perfect(extent: int, parts: int, most: int, position: int = 0, factor: int = 1) -> set[tuple[int, ...]]:
    """All perfect tiles, by trying everything."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    tiles = {t for t in product(divisors, repeat=parts) if prod(t) == extent and (position == 0 or prod(t[position:]) % factor == 0)}
    bounded = {t for t in tiles if t[-1] <= most}
    if parts == 1:
        return tiles
    smallest = min(t[-1] for t in tiles)  # an inner part alone is what the instruction takes, however large
    return bounded or {t for t in tiles if t[-1] == smallest}


CASES = [
    (40, 2, 64),
    (40, 2, 6),
    (40, 1, 6),
    (1, 3, 1),
    (24, 4, 4),
    (97, 3, 64),
    (36, 3, 5, 1, 4),
    (36, 3, 5, 2, 6),
    (36, 2, 5, 1, 9),
    (36, 3, 7, 0, 9),
    (36, 1, 64, 0, 4),
]


@pytest.mark.parametrize("case", CASES)
def test_perfect_tiles_are_all_that_there_are(case: tuple[int, ...]) -> None:
    tiles, expected = PerfectTiles(*case), perfect(*case)
    assert tiles.size == len(expected) and set(tiles) == expected
    assert len(list(tiles)) == tiles.size
    assert all(t in tiles and tiles.nearest(t) == t and tiles.decode(tiles.encode(t)) == t for t in expected)
    divisors = [d for d in range(1, case[0] + 1) if case[0] % d == 0]
    assert {t for t in product(divisors, repeat=case[1]) if t in tiles} == expected
    drawn = {tiles.draw(Stream(f"{case}/{n}")) for n in range(40 * len(expected))}
    assert drawn == expected
    for wrong in [(), (0,) * case[1], (10**9,) * case[1], (-3,) * case[1], (2, 2), 7, "x", None, (1, "x"), (True,) * case[1]]:
        assert tiles.nearest(wrong) in expected
        assert (wrong in tiles) == (wrong in expected and not any(isinstance(v, bool) for v in wrong))  # type: ignore[union-attr,attr-defined]


def test_free_tiles_are_all_that_there_are() -> None:
    tiles = FreeTiles(2, 6)
    assert list(tiles) == list(product(range(1, 7), repeat=2)) and tiles.size == 36
    assert (6, 1) in tiles and (7, 1) not in tiles and (0, 1) not in tiles and (1,) not in tiles and (1, True) not in tiles
    assert tiles.nearest((9, 0)) == (6, 1) and tiles.nearest((3,)) == (3, 1) and tiles.nearest("x") == (1, 1)
    assert all(tiles.draw(Stream(n)) in tiles for n in range(50))
    assert list(FreeTiles(0, 6)) == [()]


def test_a_large_domain_is_counted_and_drawn_from_without_a_list() -> None:
    tiles = PerfectTiles(2**40, 20, 2**40)
    assert tiles.size == comb(40 + 19, 19)  # each factor of 2 goes to one of 20 places
    assert prod(tiles[tiles.size - 1]) == prod(tiles[12345678901]) == 2**40
    with pytest.raises(IndexError):
        tiles[tiles.size]
    assert FreeTiles(8, 256).size == 2**64 and FreeTiles(8, 256)[2**64 - 1] == (256,) * 8


def test_choices() -> None:
    domain: Domain[Any] = Choices(("guard", "cut", 3, True))
    assert domain.size == 4 and list(domain) == ["guard", "cut", 3, True]
    assert 3 in domain and 1 not in domain and True in domain and "no" not in domain
    assert [domain.decode(n) for n in (-1, 1, 9)] == ["guard", "cut", True] and domain.decode((1, 2)) == "guard"
    assert Choices((1, True)).encode(True) == 1 and Choices((1, True)).decode(1) is True
    assert Choices((1, 2, 8, 64)).nearest(30) == 64 and Choices((1, 2, 8, 64)).nearest(5) == 8
    assert Choices(((6, 4), (4, 2), (1, 1))).nearest((5, 2)) == (4, 2)
    assert Choices(("a", "b")).nearest(3) == "a"
    assert {Choices((1, 2, 3), (0.0, 1.0, 1.0)).draw(Stream(n)) for n in range(40)} == {2, 3}
