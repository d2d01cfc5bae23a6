"""Points where polynomials are negative: what is refuted is never provable, and what holds is never refuted."""

from __future__ import annotations

import random

import pytest

from pliant.sym.expr import Dim, Expr, Max, Min, Select, Var
from pliant.sym.facts import Facts
from pliant.sym.inequality import _proven
from pliant.sym.poly import poly_of
from pliant.sym.refute import refuted
from pliant.sym.semantics import evaluate

n, m, h = Dim("n"), Dim("m", min=1), Dim("h", min=8, max=64, multiple_of=8)
i = Var("i")


@pytest.mark.parametrize(
    "e", [n - m, m - 2, (n + 1) // 2 - (m + 1) // 2, n * 16 - m * 17, 40 - h, Min(n, m) - 1, n % 3 - 1, Select(n < m, n, m) - 1]
)
def test_what_can_be_negative_is_refuted(e: Expr) -> None:
    assert refuted(poly_of(e), Facts())


@pytest.mark.parametrize("e", [n, m - 1, h - 8, 64 - h, Max(n, m) - 1, n * m, n - n // 2, h % 16])
def test_what_holds_is_not(e: Expr) -> None:
    assert not refuted(poly_of(e), Facts())


def test_known_inequalities_are_left_to_proofs() -> None:
    facts = Facts().with_loop(i, n)
    assert not refuted(poly_of(n - 1 - i), facts)
    assert not refuted(poly_of(i - n), facts)


def test_ranges_of_variables_are_kept() -> None:
    facts = Facts().with_range(i, 3, 5)
    assert not refuted(poly_of(i - 3), facts)
    assert not refuted(poly_of(5 - i), facts)
    assert refuted(poly_of(i - 4), facts)


def test_refuted_is_never_proven() -> None:
    rng = random.Random(5)
    leaves: list[Expr] = [n, m, h]

    def some(depth: int) -> Expr:
        if depth == 0:
            return rng.choice(leaves)
        a, b = some(depth - 1), some(depth - 1)
        k = rng.randint(1, 9)
        return rng.choice([a + b, a - b, a * k, (a + k) // k, a % k, Min(a, b), Max(a, b), a - k])

    seen = 0
    for _ in range(300):
        p = poly_of(some(3))
        if refuted(p, Facts()):
            seen += 1
            assert not _proven(p, Facts())
    assert seen > 50


def test_points_are_values_of_the_expression() -> None:
    facts = Facts()
    e = (n * 5 + h) // 7 - m % 4 * 3
    p = poly_of(e)
    refuted(p, facts)
    points = facts.cache("points")
    for k in range(5):
        env = {v: points[k, v] for v in (n, m, h) if (k, v) in points}
        if len(env) == 3:
            for (at, node), value in points.items():
                if at == k:
                    assert int(evaluate(node, env)) == value
