"""What is proved of tiles and their remainders, with the definitions of quotients, holds at every point: all small ones are tried."""

from __future__ import annotations

import random

from counts import FIRST, count
from pliant.sym.expr import Const, Dim, Expr, Min, Var
from pliant.sym.facts import Facts
from pliant.sym.prove import prove
from pliant.sym.semantics import evaluate

LARGEST = 70


def test_proved_claims_hold_everywhere() -> None:
    rng = random.Random(FIRST + 3)
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


def test_proved_quotients_in_pieces_hold_everywhere() -> None:
    """Elements of rows, all in one loop by pieces and lanes: where the rows and columns of them lie."""
    rng = random.Random(FIRST + 5)
    proved = refused = 0
    for _ in range(count(60, 6_000)):
        n, m, i, j, k = Dim("n", max=5), Dim("m", max=7), Var("i"), Var("j"), Var("k")
        lanes, per = rng.choice([1, 2, 4]), rng.choice([1, 2, 4])
        full, ended = (Min(e // lanes - i * per, Const(per, i.dtype)) for e in (n * m, n * m + lanes - 1))
        start, stop = rng.choice([(Const(0, i.dtype), full), (full, ended), (full, ended), (Const(0, i.dtype), ended)])
        flat = i * (lanes * per) + (j * lanes + k)
        pieces = (n * m + rng.choice([0, lanes * per - 1, lanes * per])) // (lanes * per)
        facts = Facts().with_loop(i, pieces).with_loop(j, stop - start, start).with_loop(k, lanes)
        inside = flat < n * m + rng.choice([0, 0, 1]) if rng.random() < 0.5 else None
        facts = (facts if inside is None else facts.with_condition(inside)).with_definitions()
        row = (flat + rng.choice([0, 0, 0, 1, -1])) // m
        claim = rng.choice([row < n + rng.choice([0, 0, 0, 1, -1]), row >= rng.choice([0, 0, 0, 1, -1]), flat >= rng.choice([0, 0, 1])])
        if not prove(claim, facts):
            refused += 1
            continue
        proved += 1
        for size in range(6 * 8):
            at: dict[Var, int] = {n: size // 8, m: size % 8}
            for x in range(int(evaluate(pieces, at))):
                at[i] = x
                for y in range(int(evaluate(start, at)), int(evaluate(stop, at))):
                    for z in range(lanes):
                        at[j], at[k] = y, z
                        if inside is None or evaluate(inside, at):
                            assert evaluate(claim, at), f"{claim} with i < {pieces}, {start} <= j < {stop}, k < {lanes}, {inside} at {at}"
    assert proved > 10 and refused > 10
