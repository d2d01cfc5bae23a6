"""Facts, bounds, divisibility and proofs: the claims that buffers, tiles and padding need."""

from __future__ import annotations

import pytest

from pliant.dtype import bool_, f32, i8, i32, i64, u8
from pliant.sym.bounds import Interval, bounds, multiple
from pliant.sym.expr import And, Call, Cast, Const, Dim, Eq, Expr, FloorDiv, FloorMod, Lt, Max, Min, Ne, Not, Or, Select, Shl, Var, const
from pliant.sym.facts import DIM_MAX, EMPTY, Facts
from pliant.sym.prove import prove, prove_equal
from pliant.sym.region import lower, upper
from pliant.sym.simplify import simplify

n, m, k = Dim("n"), Dim("m"), Dim("k")
i, j, p = Var("i"), Var("j"), Var("p")
NONE = Facts()
FLAT = NONE.with_loop(i, n).with_loop(j, m)
TILES = NONE.with_loop(i, (n + 15) // 16).with_loop(j, 16)
SYMBOL_TILES = NONE.with_range(m, 1, None).with_loop(i, (n + m - 1) // m).with_loop(j, m)
CUBE = FLAT.with_loop(p, k).with_no_wrap(n * m * k)
PIECES = NONE.with_loop(i, (n * m + 1023) // 1024)  # of n * m elements, each by lanes of 16: the full ones, then the others
FULL, ENDED = Min(n * m // 16 - i * 64, const(64)), Min((n * m + 15) // 16 - i * 64, const(64))
WHOLE = PIECES.with_loop(j, FULL).with_loop(p, 16)
OTHERS = PIECES.with_loop(j, ENDED - FULL, FULL).with_loop(p, 16)
flat = i * 1024 + (j * 16 + p)
fours = Dim("fours", multiple_of=4)
EIGHTS = NONE.with_loop(i, (fours + 7) // 8)  # parts of 8, the last one of 4 where 8 does not divide

PROVEN: list[tuple[Expr, Facts]] = [
    (n >= 0, NONE),
    (n <= DIM_MAX, NONE),
    (i < n, FLAT),
    (n >= 1, FLAT),
    (i * 4 + 3 < n * 4, FLAT),
    (i * m + j < n * m, FLAT),
    (i * 8 < fours, EIGHTS),
    (i * 8 + 3 < fours, EIGHTS),
    (j * n + i < m * n, FLAT),
    (i * m * k + j * k + p < n * m * k, CUBE),
    ((i * m + j) * k + p >= 0, CUBE),
    (i // m // 12 < n, NONE.with_no_wrap(n * m * 12).with_loop(i, n * m * 12)),
    (i // m // k < n, NONE.with_no_wrap(n * m * k).with_loop(i, n * m * k)),
    (n // 6 * 6 + 3 < n, NONE.with_condition(Eq(n % 6, const(4))).with_definitions()),
    (i * 16 + j < (n + 15) // 16 * 16, TILES),
    (i * 16 < n, TILES),
    (Min(i * 16 + j, n - 1) < n, TILES),
    (Min(n - i * 16, const(16)) >= 1, TILES),
    (Min(n - i * 16, const(16)) + i * 16 <= n, TILES),
    (i * 16 + j < n, TILES.with_condition(i * 16 + j < n)),
    (i * m + j < (n + m - 1) // m * m, SYMBOL_TILES),
    (i * m < n, SYMBOL_TILES),
    (i * m + j < n + m - 1, SYMBOL_TILES),
    ((n + m - 1) // m * m >= n, NONE.with_range(m, 1, None)),
    (i // m < n, NONE.with_loop(i, n * m)),
    (i % m < m, NONE.with_loop(i, n * m)),
    (i // m * m + i % m < n * m, NONE.with_loop(i, n * m)),
    (flat // m < n, WHOLE.with_definitions()),
    (flat >= 0, OTHERS.with_definitions()),
    (flat // m >= 0, OTHERS.with_definitions()),
    (flat // m < n, OTHERS.with_condition(flat < n * m).with_definitions()),
    (Max(n, m) >= n, NONE),
    (Select(n < m, n, m) <= m, NONE),
    (Select(n < m, m - n, n - m) >= 0, NONE),
    (n * n >= 0, NONE),
    (i + j < n, NONE.with_loop(i, n - 2).with_loop(j, 3)),
    (i * 2 + j - 1 <= n, NONE.with_loop(i, (n - 1) // 2 + 1).with_loop(j, 3)),
    (i + 1 < n, NONE.with_loop(i, n).with_condition(i * 2 + 1 < n)),
    (i * 4 + j < n, NONE.with_equal(n, m * 4).with_loop(i, m).with_loop(j, 4)),
    (i < m, NONE.with_loop(i, n).with_condition(n <= m)),
    (i < k, NONE.with_loop(i, n).with_condition(And(n <= m, m <= k))),
    (j < n, NONE.with_loop(i, n).with_range(j, 0, i)),
    (i < n, NONE.with_range(i, 0, Min(n, m) - 1)),
    (i < 8, NONE.with_range(i, 0, Min(const(7), n))),
    (Ne(i * 4 + 1, n * 4), FLAT),
    (Eq(n % 8, const(0)), NONE.with_multiple(n, 8)),
    (n >= 8, NONE.with_multiple(n, 8).with_condition(n > 0)),
    (Or(i < m, m <= i), FLAT),
    (And(i < n, j < m), FLAT),
    (n > 0, NONE.with_condition(Ne(n, const(0)))),
    (Eq(n, const(3)), NONE.with_range(n, 3, 3)),
    (i // 4 < n, NONE.with_loop(i, n * 4)),
    (i // m < 3, NONE.with_multiple(m, 2).with_loop(i, m * 3)),
    (j < n, NONE.with_loop(i, n // 24).with_loop(j, 24).with_definitions()),
    (n // 8 * 8 + j < n, NONE.with_loop(i, n // 4 % 2).with_loop(j, 4).with_definitions()),
    (n // 8 * 8 + (n // 4 % 2 * 4 + j) < n, NONE.with_loop(i, n % 4 // 2).with_loop(j, 2).with_definitions()),
    (n * 4 // 1024 * 1024 + i < n * 4, NONE.with_loop(i, n * 4 % 1024).with_definitions()),
    (n < 8, NONE.with_condition(n // 2 <= 3)),
    (n // 8 < 1, NONE.with_condition((n + 1) // 2 < 4)),
    (n >= 6, NONE.with_condition(n // 2 > 2)),
]


@pytest.mark.parametrize(("claim", "facts"), PROVEN, ids=[str(c) for c, _ in PROVEN])
def test_proven(claim: Expr, facts: Facts) -> None:
    assert prove(claim, facts)
    assert not prove(Not(claim), facts)


UNPROVABLE: list[tuple[Expr, Facts]] = [
    (i < n, NONE),
    (i * m + j < n * m - 1, FLAT),
    (i * 16 + j < n, TILES),
    (i * 8 + 4 < fours, EIGHTS),
    (i * m * k + j * k + p < n * m * k, FLAT.with_loop(p, k)),  # n * m * k may overflow
    (n > 0, NONE),
    (n * m // m * m <= n, NONE),
    (i + 1 > i, NONE),  # i may be the largest i64
    (flat // m < n - 1, WHOLE.with_definitions()),
    ((flat + 1) // m < n, WHOLE.with_definitions()),
    (flat // m < n, OTHERS.with_definitions()),  # the last lanes may lie beyond
    (flat // m >= 1, OTHERS.with_definitions()),
    (j >= 0, NONE.with_loop(i, n).with_range(j, Min(m - i, const(4)), 9).with_definitions()),
    (n < 7, NONE.with_condition(n // 2 <= 3)),
    (n >= 7, NONE.with_condition(n // 2 > 2)),
]


@pytest.mark.parametrize(("claim", "facts"), UNPROVABLE, ids=[str(c) for c, _ in UNPROVABLE])
def test_not_proven(claim: Expr, facts: Facts) -> None:
    assert not prove(claim, facts)


def test_prove_equal() -> None:
    assert prove_equal((n + 3) // 4, (n - 1) // 4 + 1, NONE)
    assert prove_equal(Min(n, m), Min(m, n), NONE)
    assert prove_equal((i * m + j) // m, i, FLAT)
    assert not prove_equal(n, m, NONE)
    assert prove_equal(n, m, NONE.with_condition(And(n <= m, m <= n)))


BOUNDS: list[tuple[Expr, Facts, tuple[int, int]]] = [
    (n, NONE, (0, DIM_MAX)),
    (Dim("h", min=2, max=9), NONE, (2, 9)),
    (i * 4 + 3, NONE.with_range(i, 0, 7), (3, 31)),
    (i - i * 2 + i, NONE, (0, 0)),
    (-i, NONE.with_range(i, -2, 5), (-5, 2)),
    (i // 4, NONE.with_range(i, -5, 10), (-2, 2)),
    (i // j, NONE.with_range(i, 0, 100).with_range(j, 3, 7), (0, 33)),
    (i // j, NONE.with_range(i, 0, 100).with_range(j, -2, 2), (-100, 100)),
    (i % 4, NONE, (0, 3)),
    (i % 4, NONE.with_range(i, 9, 10), (1, 2)),
    (i % -4, NONE, (-3, 0)),
    (FloorMod(i, j), NONE.with_range(i, 0, 5).with_range(j, 0, 100), (0, 5)),
    (Min(i, const(3)), NONE.with_range(i, 0, 9), (0, 3)),
    (Max(i, const(3)), NONE.with_range(i, 0, 9), (3, 9)),
    (Select(i < 3, i, const(100)), NONE.with_range(i, 0, 9), (0, 100)),
    (Cast(i8, i), NONE.with_range(i, 0, 127), (0, 127)),
    (Cast(i8, i), NONE.with_range(i, 0, 128), (-128, 127)),
    (Cast(i32, Var("x", f32)), NONE, (-(2**31), 2**31 - 1)),
    (Shl(i, const(3)), NONE.with_range(i, 0, 9), (0, 72)),
    (Call("abs", i), NONE.with_range(i, -7, 3), (0, 7)),
    (Lt(i, const(3)), NONE, (0, 1)),
    (Var("a", u8) + 1, NONE, (0, 255)),
    (n * m, FLAT.with_condition(n * m <= 100), (1, 100)),
]


@pytest.mark.parametrize(("e", "facts", "want"), BOUNDS, ids=[str(b[0]) for b in BOUNDS])
def test_bounds(e: Expr, facts: Facts, want: tuple[int, int]) -> None:
    lo, hi = bounds(e, facts)
    assert (lo, hi) == want


def test_bounds_of_floats_are_open() -> None:
    assert bounds(Var("x", f32)) == Interval(None, None)
    assert bounds(Var("q", bool_)) == Interval(0, 1)


def test_multiple() -> None:
    facts = NONE.with_multiple(n, 8).with_multiple(m, 6)
    assert multiple(n * m, facts) == 48
    assert multiple(n + m * 2, facts) == 4
    assert multiple(Min(n, m), facts) == 2
    assert multiple(n * i, facts) == 8  # 8 survives overflow
    assert multiple(m * i, facts) == 2  # 3 does not
    assert multiple(const(0), facts) == 0


def test_ends_that_are_case_distinctions() -> None:
    """The rest of a loop in parts: `j` counts parts of 8192, `k` lines of 64 in one of them, from where the whole lines end."""
    m, j, k = Dim("m"), Var("j"), Var("k")
    lines = FloorDiv(m, Const(64, i64)) - j * 128
    facts = EMPTY.with_range(j, 0, FloorDiv(m + 8191, Const(8192, i64)) - 1)
    facts = facts.with_range(k, Min(lines, Const(128, i64)), Max(lines, Const(128, i64)))
    assert prove(Const(0, i64) <= k, facts)
    assert not prove(k <= 128, facts)
    assert prove(k <= Max(lines, Const(128, i64)) + 1, facts)


def test_facts_are_values() -> None:
    base = Facts()
    inner = base.with_loop(i, n)
    assert base.range_of(n) == (0, DIM_MAX) and inner.range_of(n) == (1, DIM_MAX)
    assert base.with_loop(i, n) is inner
    assert inner.with_range(i, 2, 5).range_of(i) == (2, 5) and inner.range_of(i) == (0, DIM_MAX - 1)


def test_contradicting_facts_do_no_harm() -> None:
    dead = Facts().with_range(i, 5, 9).with_condition(i < 3)
    assert isinstance(bounds(i // (i - 5), dead), Interval)
    assert isinstance(prove(i * 3 // i < 2, dead), bool)


REGION = NONE.with_loop(i, n).with_loop(j, 4)
GUARDED = NONE.with_loop(i, (n + 3) // 4).with_loop(j, 4).with_condition(i * 4 + j < n)

REGIONS: list[tuple[Expr, Facts, tuple[Var, ...], str, str]] = [
    (i * 4 + j, REGION, (i, j), "0", "n * 4 - 1"),
    (i * 4 + j, REGION, (j,), "i * 4", "i * 4 + 3"),
    (n - i, REGION, (i,), "1", "n"),
    (Min(i * 4 + j, m), REGION, (i, j), "0", "min(m, n * 4 - 1)"),
    ((i * 4 + j) // 2, REGION, (i, j), "0", "n * 2 - 1"),
    (j - i, NONE.with_loop(i, n).with_range(j, i, n - 1), (i, j), "0", "n - 1"),
    (j - i, NONE.with_loop(i, n).with_range(j, i, n - 1), (j,), "0", "n - i - 1"),
    (i * 4 + j, GUARDED, (i, j), "0", "n - 1"),
    (i % 3, REGION, (i,), "0", "min(n - 1, 2)"),
    (i * m + j, NONE.with_loop(i, n).with_loop(j, m), (i, j), "0", "m * n - 1"),
    (m, REGION, (i, j), "m", "m"),
    (Select(j < 2, i, i + 1), REGION, (i, j), "0", "n"),
]


@pytest.mark.parametrize(("e", "facts", "over", "low", "high"), REGIONS, ids=[str(r[0]) for r in REGIONS])
def test_region(e: Expr, facts: Facts, over: tuple[Var, ...], low: str, high: str) -> None:
    assert (str(lower(e, facts, over)), str(upper(e, facts, over))) == (low, high)


def test_region_of_what_may_wrap_is_constant() -> None:
    free = Var("f", i64)
    assert upper(free * 2 + i, REGION, (i,)) is Const(i64.max, i64)


def test_cases_of_cases_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that broadcasting makes, select(s == 1, u, s), level in level: a case asks for its condition, which has cases of its own."""
    made = [0]
    copy = Facts._copy

    def counted(self: Facts) -> Facts:
        made[0] += 1
        return copy(self)

    monkeypatch.setattr(Facts, "_copy", counted)

    def work(levels: int) -> int:
        a, b, c = (Dim(name) for name in "abc")
        sizes: list[Expr] = [a, b, c]
        for _ in range(levels):
            x, y, z = sizes
            sizes = [_broadcast(Min(x, y) * z, a), Max(_broadcast(y, x), b), _broadcast(z * 2 - x, c)]
        i, (x, y, z) = Var("i"), sizes
        facts = Facts().with_loop(i, x * y * z)
        made[0] = 0
        simplify(i // z % y, facts)
        prove(i // z // y < x, facts)
        return made[0]

    assert work(5) < 4000


def _broadcast(s: Expr, u: Expr) -> Expr:
    return Select(Eq(s, Const(1, i64)), u, s)
