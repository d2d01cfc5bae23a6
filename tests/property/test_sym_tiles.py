"""What is proved of tiles and their remainders, with the definitions of quotients, holds at every point: all small ones are tried."""

from __future__ import annotations

import random

from counts import count

from pliant.sym.expr import Dim, Expr, Var
from pliant.sym.facts import Facts
from pliant.sym.prove import prove
from pliant.sym.semantics import evaluate

LARGEST = 70


def test_proved_claims_hold_everywhere() -> None:
    rng = random.Random(3)
    proved = refused = 0
    for _ in range(count(150, 20_000)):
        n, i, j = Dim("n", max=LARGEST), Var("i"), Var("j")

        def part(n: Dim = n) -> Expr:
            a, b = rng.choice([2, 3, 4, 8]), rng.choice([2, 4])
            return rng.choice([n // a, n % a, n // a % b, n % (a * b) // a, (n + a - 1) // a])

        extent, width = part(), rng.choice([1, 2, 3, 4, 8])
        start = rng.choice([n // 8 * 8, n // 4 * 4, n // 8 * 8 + n // 4 % 2 * 4, i * width])
        claim = start + j + rng.choice([0, 0, 0, 1, width]) < rng.choice([n, n, n + width, extent * width])
        facts = Facts().with_loop(i, extent).with_loop(j, width).with_definitions()
        if not prove(claim, facts):
            refused += 1
            continue
        proved += 1
        for size in range(LARGEST + 1):
            for x in range(int(evaluate(extent, {n: size}))):
                for y in range(width):
                    assert evaluate(claim, {n: size, i: x, j: y}), f"{claim} with i < {extent}, j < {width} at n = {size}, i = {x}, j = {y}"
    assert proved > 10 and refused > 10
