"""Nested floor divisions as people read them: shorter, and with the same value for every size."""

from __future__ import annotations

import random

import pytest

from pliant.sym.expr import Expr, Var
from pliant.sym.semantics import evaluate
from pliant.sym.shorten import shorten
from pliant.sym.simplify import simplify

H = Var("h")


def halved(e: Expr, times: int) -> Expr:
    for _ in range(times):
        e = (e + 1) // 2
    return e


@pytest.mark.parametrize(
    ("long", "short"),
    [
        (halved(H, 5), "(h + 31) // 32"),
        (halved(H, 3) * halved(H, 2), "(h + 7) // 8 * ((h + 3) // 4)"),
        ((H // 3 - 1) // 2, "(h - 3) // 6"),
        (H // 4 // 8, "h // 32"),
        ((H // 2 + H) // 2, "(h // 2 + h) // 2"),
        (H // (H + 1) // 2, "h // (h + 1) // 2"),
    ],
)
def test_what_is_shown(long: Expr, short: str) -> None:
    assert str(shorten(long)) == short


def test_the_value_stays_the_same() -> None:
    """Python's own integers, which round divisions down, say what is right."""
    draw = random.Random(0)
    for _ in range(200):
        steps = [(draw.randint(-9, 9), draw.randint(1, 7)) for _ in range(draw.randint(1, 5))]
        e: Expr = H
        for added, divisor in steps:
            e = (e + added) // divisor
        short = shorten(simplify(e))
        for size in (0, 1, 7, 31, 33, 640, draw.randint(0, 10**6)):
            expected = size
            for added, divisor in steps:
                expected = (expected + added) // divisor
            assert evaluate(short, {H: size}) == expected
