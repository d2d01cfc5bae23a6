"""Canonical forms: what simplify makes of the expressions that tiling, fusing and padding produce."""

from __future__ import annotations

import pytest

from pliant.dtype import bool_, f16, f32, i8, i32, i64, u8
from pliant.sym.divmod import joined_quotients
from pliant.sym.expr import (
    FALSE,
    TRUE,
    Add,
    And,
    BitAnd,
    Call,
    Cast,
    Const,
    Dim,
    Div,
    Eq,
    Expr,
    Fma,
    Le,
    Lt,
    Max,
    Min,
    Mul,
    Ne,
    Neg,
    Not,
    Or,
    Select,
    Shl,
    Shr,
    Sub,
    Var,
    const,
)
from pliant.sym.facts import Facts
from pliant.sym.hash_consing import hash_consed
from pliant.sym.semantics import evaluate
from pliant.sym.simplify import simplify

n, m, k = Dim("n"), Dim("m"), Dim("k")
i, j, p = Var("i"), Var("j"), Var("p")
a, b = Var("a", u8), Var("b", u8)
x, y = Var("x", f32), Var("y", f32)
q, r = Var("q", bool_), Var("r", bool_)

TILED = Facts().with_loop(i, n).with_loop(j, 64)
FLAT = Facts().with_loop(i, n).with_loop(j, m)
CUBE = Facts().with_loop(i, n).with_loop(j, m).with_loop(p, k).with_no_wrap(n * m * k)
NONE = Facts()
FLAT3 = i * m * k + j * k + p

CASES: list[tuple[Expr, Facts, str]] = [
    # sums of products
    (n + m - n, NONE, "m"),
    ((n + i) * 2 - n - 3 - n, NONE, "i * 2 - 3"),
    ((n - m) * (n + m), NONE, "n * n - m * m"),
    (Neg(Neg(n)) - n, NONE, "0"),
    (m * n - n * m + 1, NONE, "1"),
    (j + i * 4 + m * n, NONE, "m * n + i * 4 + j"),
    (3 - n, NONE, "3 - n"),
    # tiling by literals
    ((i * 64 + j) // 64, TILED, "i"),
    ((i * 64 + j) % 64, TILED, "j"),
    ((i * 64 + j) // 16, TILED, "i * 4 + j // 16"),
    ((i * 64 + j) % 16, TILED, "j % 16"),
    ((i * 64 + j) // 16 % 4, TILED, "j // 16"),
    ((i * 64 + j) // 128, TILED, "i // 2"),
    ((i * 64 + j) % 128, TILED, "i % 2 * 64 + j"),
    ((i * 64 + j + 64) // 64, TILED, "i + 1"),
    ((i * 64 + j - 64) // 64, TILED, "i - 1"),
    (i // 4 // 3, TILED, "i // 12"),
    (i // 4 * 4 + i % 4, TILED, "i"),
    (i // 4 % 2 * 4 + i % 4, TILED, "i % 8"),
    (i % 8 // 4, TILED, "i // 4 % 2"),
    (i % 12 % 4, TILED, "i % 4"),
    ((i * 6 + 4) // 4, TILED, "i * 3 // 2 + 1"),
    ((i * 6) % 4, TILED, "i % 2 * 2"),
    ((n + 3) // 4 * 4 - n, NONE, "(n + 3) // 4 * 4 - n"),
    ((n - 1) // 4 + 1, NONE, "(n + 3) // 4"),
    (i // -4, TILED, "-i // 4"),
    # tiling by symbols
    ((i * m + j) // m, FLAT, "i"),
    ((i * m + j) % m, FLAT, "j"),
    ((i * m + j + m) // m, FLAT, "i + 1"),
    (FLAT3 // (m * k), CUBE, "i"),
    (FLAT3 % (m * k), CUBE, "j * k + p"),
    (FLAT3 // k % m, CUBE, "j"),
    (FLAT3 % k, CUBE, "p"),
    (n * m // m, Facts().with_range(m, 1, None), "n"),
    (n * m // m, NONE, "m * n // m"),  # m may be 0
    (n // m * m + n % m, NONE, "m * (n // m) + n % m"),
    (n // m * m + n % m, Facts().with_range(m, 1, None), "n"),
    # divisibility
    (n // 8 * 8, Facts().with_multiple(n, 8), "n"),
    ((n + 7) // 8, Facts().with_multiple(n, 8), "n // 8"),
    (n % 4, Facts().with_condition(Eq(n % 8, const(0))), "0"),
    ((n * 2) % 16, Facts().with_multiple(n, 8), "0"),
    ((n + 3) % 8, Facts().with_multiple(n, 8), "3"),
    (Dim("h", multiple_of=16) % 8, NONE, "0"),
    # order
    (Min(n, n + 1), NONE, "n"),
    (Max(n - 1, const(0)), Facts().with_range(n, 1, 9), "n - 1"),
    (Min(Min(n, const(7)), const(5)), NONE, "min(n, 5)"),
    (Max(m, Min(n, m)), NONE, "m"),
    (Min(i + 1, n) - i, TILED, "1"),
    (Min(j, const(64)), TILED, "j"),
    # comparisons
    (i < n, TILED, "True"),
    (n <= i, TILED, "False"),
    (i * 4 + 3 < m * 4, TILED, "i < m"),
    (i * 4 < m * 4 + 3, TILED, "i <= m"),
    (n + i < n + 4, TILED, "i < 4"),
    (n > 0, NONE, "n > 0"),
    (Eq(n * 2, m * 2), NONE, "m == n"),
    (Eq(n * 2, const(5)), NONE, "False"),
    (Ne(i * 64 + j, n * 64), TILED, "True"),
    (Not(n < m), NONE, "m <= n"),
    (n // 4 * 4 <= n, NONE, "True"),
    (n < n // 4 * 4 + 4, NONE, "True"),
    # logic and select
    (And(i < n, j < 10), TILED, "j < 10"),
    (Or(j < 10, i < n), TILED, "True"),
    (And(j < 10, j < 20), TILED, "j < 10"),
    (Or(j < 10, j < 20), TILED, "j < 20"),
    (Not(And(i < j, j < i)), TILED, "True"),
    (Select(i < n, i, n - 1), TILED, "i"),
    (Select(j < 4, Min(j, const(3)), j), TILED, "j"),
    (Select(q, x, x), NONE, "x"),
    (Select(Not(q), x, y), NONE, "select(q, y, x)"),
    (Select(q, TRUE, FALSE), NONE, "q"),
    (And(q, And(r, TRUE)), NONE, "q and r"),
    # bits and casts
    (Shl(n, const(3)), NONE, "n * 8"),
    (Shr(n, const(3)), NONE, "n // 8"),
    (BitAnd(n, const(7)), NONE, "n % 8"),
    (Cast(i64, Cast(i32, n)), NONE, "n"),
    (Cast(i64, Cast(i8, n)), NONE, "cast(i64, cast(i8, n))"),
    # integers wrap
    (a + b - b, NONE, "a"),
    ((a + b) // 2, NONE, "(a + b) // 2"),
    (a * 16 // 16, NONE, "a * 16 // 16"),
    (a * 16 // 16, Facts().with_range(a, 0, 15), "a"),
    (a * 16 % 16, NONE, "u8(0)"),
    (Lt(a + 1, a), NONE, "a + 1 < a"),
    (Lt(a + 1, a), Facts().with_range(a, 0, 254), "False"),
    (Eq(a + 1, a), NONE, "False"),
    (p // 4 < 2**62, NONE, "True"),
    # floats are exact
    (Add(x, Const(0.0, f32)), NONE, "x + 0.0"),  # -0.0 + 0.0 is 0.0
    (Add(x, Const(-0.0, f32)), NONE, "x"),
    (Mul(x, Const(0.0, f32)), NONE, "x * 0.0"),
    (Mul(x, Const(1.0, f32)), NONE, "x"),
    (Sub(x, x), NONE, "x - x"),
    (Div(x, Const(4.0, f32)), NONE, "x * 0.25"),
    (Div(x, Const(3.0, f32)), NONE, "x / 3.0"),
    (Fma(x, Const(1.0, f32), y), NONE, "x + y"),
    (Eq(x, x), NONE, "x == x"),
    (Lt(x, x), NONE, "False"),
    (Not(Lt(x, y)), NONE, "not x < y"),  # not y <= x: NaN
    (Mul(Const(3.0, f32), Const(0.1, f32)), NONE, "f32(0.3)"),
]


@pytest.mark.parametrize(("e", "facts", "want"), CASES, ids=[f"{c[0]}" for c in CASES])
def test_simplify(e: Expr, facts: Facts, want: str) -> None:
    assert str(simplify(e, facts)) == want


def test_literals_are_folded_in_their_dtype() -> None:
    assert simplify(Add(Const(100, i8), Const(100, i8))) is Const(-56, i8)
    assert simplify(Add(Const(2048.0, f16), Const(1.0, f16))) is Const(2048.0, f16)
    assert simplify(Cast(i8, Const(1e9, f32))) is Const(127, i8)
    assert simplify(Call("sqrt", Const(4.0, f32))) is Const(2.0, f32)
    assert simplify(Le(Const(float("nan"), f32), Const(0.0, f32))) is FALSE


def test_order_does_not_depend_on_how_the_sum_was_written() -> None:
    first = simplify(n * 4 + m * i + j + 2)
    assert simplify(2 + j + i * m + 4 * n) is first
    assert str(first) == "i * m + j + n * 4 + 2"


def test_same_names_are_told_apart() -> None:
    other = Var("i")
    assert simplify(i - other) is not simplify(i - i)
    assert str(simplify(i + other - i)) == "i"


def test_unknown_nodes_are_kept_and_their_operands_simplified() -> None:
    class Probe(Expr):
        __slots__ = ()

        def __new__(cls, index: Expr) -> Probe:
            return hash_consed(cls, i64, "probe", (index,))

    done = simplify(Probe(n + 1 - n) - Probe(const(1)) + 2)
    assert done is const(2)


def test_an_equality_replaces_the_variable() -> None:
    facts = Facts().with_equal(n, m * 4)
    assert simplify(n // 4, facts) is m
    assert simplify(n - m * 4, facts) is const(0)
    assert simplify(Eq(m * 4, n), facts) is TRUE


def test_conditions_of_data_are_remembered() -> None:
    claim = Lt(x, y)
    facts = Facts().with_condition(claim)
    assert simplify(Select(claim, x, y), facts) is x
    assert simplify(Select(claim, x, y), Facts().with_condition(Not(claim))) is y
    assert simplify(claim) is claim


def test_quotients_joined_for_people() -> None:
    deep = (((((n + 1) // 2 + 1) // 2 - 2) // 3) + 1) // 2
    joined = joined_quotients(deep * 2 + n)
    assert str(joined) == "(n + 7) // 24 * 2 + n"
    for value in range(200):
        assert evaluate(joined, {n: value}) == (((((value + 1) // 2 + 1) // 2 - 2) // 3) + 1) // 2 * 2 + value
    wraps = ((a + 1) // 2 + 1) // 2
    assert joined_quotients(wraps) is wraps
