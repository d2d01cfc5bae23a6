"""Which bindings are independent quasi-affine maps, and what is said when they are not."""

from __future__ import annotations

import pytest

from pliant.support.refusal import Refusal
from pliant.sym.affine import IterMap, detect_iter_map, linear
from pliant.sym.expr import Dim, Expr, Var, const

n, m = Dim("n"), Dim("m")
i, j, k = Var("i"), Var("j"), Var("k")
TILES = (n + 3) // 4


def c(value: int) -> Expr:
    return const(value)


# bindings, loops, predicate -> extents, injective, surjective
ACCEPTED: list[tuple[list[Expr], dict[Var, Expr], Expr | None, list[str], bool, bool]] = [
    ([i, j], {i: n, j: m}, None, ["n", "m"], True, True),
    ([j, i], {i: n, j: m}, None, ["m", "n"], True, True),
    ([i, c(0)], {i: n}, None, ["n", "1"], True, True),
    ([i // 4, i % 4], {i: c(16)}, None, ["4", "4"], True, True),
    ([i // 12, i // 4 % 3, i % 4], {i: c(48)}, None, ["4", "3", "4"], True, True),
    ([i * 4 + j], {i: n, j: c(4)}, None, ["n * 4"], True, True),
    ([i * m + j], {i: n, j: m}, None, ["m * n"], True, True),
    ([i * (m + 2) + j], {i: n + 2, j: m + 2}, None, ["m * n + m * 2 + n * 2 + 4"], True, True),
    ([i // m, i % m], {i: n * m}, None, ["n", "m"], True, True),
    ([(i * 4 + j) // 8, (i * 4 + j) % 8], {i: c(6), j: c(4)}, None, ["3", "8"], True, True),
    ([(i * 4 + j) // 3, (i * 4 + j) % 3], {i: c(6), j: c(4)}, None, ["8", "3"], True, True),
    ([(i * 8 + j) * 4 + k], {i: n, j: c(8), k: c(4)}, None, ["n * 32"], True, True),
    ([n - 1 - i], {i: n}, None, ["n"], True, True),
    ([i + 3, j], {i: n, j: m}, None, ["n", "m"], True, True),
    ([i * 4 + j], {i: TILES, j: c(4)}, i * 4 + j < n, ["n"], True, True),
    ([i * 4 + j], {i: TILES, j: c(4)}, None, ["(n + 3) // 4 * 4"], True, True),
    ([(i * 8 + j) // m, (i * 8 + j) % m], {i: (n * m + 7) // 8, j: c(8)}, i * 8 + j < n * m, ["n", "m"], True, True),
    ([i, j], {i: n, j: m}, i < 10, ["min(n, 10)", "m"], True, True),
    ([(i * 4 + j) * 8 + k], {i: TILES, j: c(4), k: c(8)}, i * 4 + j < n, ["n * 8"], True, True),
    ([i * 2], {i: n}, None, ["n * 2 - 1"], True, False),
    ([i * 5 + j], {i: n, j: c(4)}, None, ["n * 5 - 1"], True, False),
    ([i, j], {i: n, j: m}, i < j, ["n", "m"], True, False),
    ([i // 4], {i: c(16)}, None, ["4"], False, True),
    ([i], {i: n, j: m}, None, ["n"], False, True),
    ([i], {i: n, j: c(1)}, None, ["n"], True, True),
]


@pytest.mark.parametrize(("bindings", "loops", "predicate", "extents", "injective", "surjective"), ACCEPTED)
def test_accepted(
    bindings: list[Expr], loops: dict[Var, Expr], predicate: Expr | None, extents: list[str], injective: bool, surjective: bool
) -> None:
    found = detect_iter_map(bindings, loops, predicate)
    assert isinstance(found, IterMap), found
    assert [str(e) for e in found.extents] == extents
    assert (found.injective, found.surjective) == (injective, surjective)
    assert found.bijective == (injective and surjective)


REFUSED: list[tuple[list[Expr], dict[Var, Expr], str]] = [
    ([i, i * 2], {i: n}, "`i` is used twice"),
    ([i, i], {i: n}, "`i` is used twice"),
    ([i // 4, i % 8], {i: c(48)}, "`i` is used twice"),
    ([i + j], {i: n, j: m}, "overlap"),
    ([i * 3 + j], {i: n, j: c(4)}, "overlap"),
    ([i * (m + 1) + j], {i: n, j: m + 2}, "overlap"),
    ([i * j], {i: n, j: m}, "multiplies loop variables"),
    ([i // 4, i % 4], {i: c(18)}, "4 does not divide the extent 18"),
    ([i // 4, i % 4], {i: n}, "4 does not divide the extent n"),
    ([c(100) // (i + 1)], {i: n}, "divisor"),
    ([(i * 6 + j) // 4], {i: c(8), j: c(4)}, "leave gaps"),
]


@pytest.mark.parametrize(("bindings", "loops", "reason"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refused(bindings: list[Expr], loops: dict[Var, Expr], reason: str) -> None:
    found = detect_iter_map(bindings, loops)
    assert isinstance(found, Refusal) and reason in found.reason, found


def test_starts() -> None:
    found = detect_iter_map([i + 3, n - 1 - j], {i: c(4), j: n})
    assert isinstance(found, IterMap) and [str(s) for s in found.starts] == ["3", "0"]


def test_linear() -> None:
    found = linear(i * m + j * 4 + n + 3, [i, j])
    assert found is not None
    coefficients, rest = found
    assert {v.name: str(e) for v, e in coefficients.items()} == {"i": "m", "j": "4"} and str(rest) == "n + 3"
    assert linear(i * j, [i, j]) is None
    assert linear(i // 2 + j, [i, j]) is None
    assert linear(i // 2 + j, [j]) is not None
    assert linear(n + 1, [i]) == ({}, n + 1)
