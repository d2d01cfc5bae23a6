"""z3 as a second judge: simplified expressions and proofs hold for all values, not only for those tried."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import sym_random as gen

from counts import count
from pliant.dtype import DType, bool_, i8, i16, i64, u8
from pliant.support.refusal import Refusal
from pliant.sym import expr as E
from pliant.sym.affine import detect_iter_map
from pliant.sym.bounds import bounds
from pliant.sym.expr import Const, Expr, Var
from pliant.sym.facts import Facts
from pliant.sym.poly import add, multiply, order, quotient
from pliant.sym.prove import prove
from pliant.sym.semantics import evaluate
from pliant.sym.simplify import simplify

z3 = pytest.importorskip("z3", reason="z3-solver is not installed")

CHUNKS = 5


def shift(left: bool, d: DType, a: Any, b: Any) -> Any:
    """z3 shifts by the unsigned count: counts of `bits` or more, so also negative ones, shift everything out."""
    return a << b if left else a >> b if d.kind == "i" else z3.LShR(a, b)


def floor_parts(d: DType, a: Any, b: Any) -> tuple[Any, Any]:
    zero, one = z3.BitVecVal(0, d.bits), z3.BitVecVal(1, d.bits)
    if d.kind == "u":
        return z3.If(b == 0, zero, z3.UDiv(a, b)), z3.If(b == 0, zero, z3.URem(a, b))
    rest = z3.SRem(a, b)
    down = z3.And(rest != 0, (rest < 0) != (b < 0))
    return z3.If(b == 0, zero, z3.If(down, a / b - one, a / b)), z3.If(b == 0, zero, z3.If(down, rest + b, rest))


def less(d: DType, a: Any, b: Any) -> Any:
    return a < b if d.kind == "i" else z3.ULT(a, b)


def to_z3(e: Expr, memo: dict[Expr, Any]) -> Any:
    """The expression as z3 bit vectors, by the semantics of sym/expr.py."""
    if e not in memo:
        memo[e] = _to_z3(e, [to_z3(a, memo) for a in e.args])
    return memo[e]


def _to_z3(e: Expr, args: list[Any]) -> Any:
    if isinstance(e, Const):
        return z3.BoolVal(e.value) if e.dtype is bool_ else z3.BitVecVal(e.value, e.dtype.bits)
    if isinstance(e, Var):
        return z3.BitVec(f"{e.name}{e.payload[1]}", e.dtype.bits)
    d = e.args[0].dtype
    if isinstance(e, E.Cast):
        if e.dtype.bits <= d.bits:
            return z3.Extract(e.dtype.bits - 1, 0, args[0])
        return (z3.SignExt if d.kind == "i" else z3.ZeroExt)(e.dtype.bits - d.bits, args[0])
    if isinstance(e, E.Call):
        assert e.fn == "abs"
        return z3.If(args[0] < 0, -args[0], args[0]) if d.kind == "i" else args[0]
    table: dict[type[Expr], Callable[..., Any]] = {
        E.Add: lambda a, b: a + b,
        E.Sub: lambda a, b: a - b,
        E.Mul: lambda a, b: a * b,
        E.Neg: lambda a: -a,
        E.BitNot: lambda a: ~a,
        E.BitAnd: lambda a, b: a & b,
        E.BitOr: lambda a, b: a | b,
        E.BitXor: lambda a, b: a ^ b,
        E.Shl: lambda a, b: shift(True, d, a, b),
        E.Shr: lambda a, b: shift(False, d, a, b),
        E.FloorDiv: lambda a, b: floor_parts(d, a, b)[0],
        E.FloorMod: lambda a, b: floor_parts(d, a, b)[1],
        E.Min: lambda a, b: z3.If(less(d, a, b), a, b),
        E.Max: lambda a, b: z3.If(less(d, a, b), b, a),
        E.Eq: lambda a, b: a == b,
        E.Ne: lambda a, b: a != b,
        E.Lt: lambda a, b: less(d, a, b),
        E.Le: lambda a, b: z3.Not(less(d, b, a)),
        E.And: lambda a, b: z3.And(a, b),
        E.Or: lambda a, b: z3.Or(a, b),
        E.Not: lambda a: z3.Not(a),
        E.Select: lambda c, a, b: z3.If(c, a, b),
    }
    return table[type(e)](*args)


def counterexample(claim: Any, known: list[Any]) -> Any:
    solver = z3.Solver()
    solver.set("timeout", 2000)
    solver.add(*known, z3.Not(claim))
    return solver.model() if solver.check() == z3.sat else None


def scene(rng: random.Random, d: DType) -> tuple[Facts, list[Var], list[Any]]:
    """Variables, facts that name them (ranges, loops up to each other, conditions), and the same facts for z3."""
    n, names = Var("n", d), [Var(name, d) for name in "ij"]
    top = rng.choice([3, 8, 11, d.max])
    facts = Facts().with_range(n, 0, top)
    conditions: list[Expr] = [E.Le(Const(0, d), n), E.Le(n, Const(top, d))]
    for v in names:
        if rng.random() < 0.6:
            extent = rng.choice([n, Const(4, d), Const(8, d), (n + 3) // 4 if top < d.max - 3 else n])
            facts = facts.with_loop(v, extent)
            conditions += [E.Le(Const(0, d), v), E.Lt(v, extent)]
    if rng.random() < 0.4:
        extra = gen.compare(rng, gen.integer(rng, [n, *names], d, 1), gen.integer(rng, [n, *names], d, 1))
        facts = facts.with_condition(extra)
        conditions.append(extra)
    memo: dict[Expr, Any] = {}
    return facts, [n, *names], [to_z3(c, memo) for c in conditions]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_for_all_values(chunk: int) -> None:
    rng = random.Random(chunk)
    for _ in range(count(150, 20_000) // CHUNKS):
        d = rng.choice([i8, u8, i16])
        facts, names, known = scene(rng, d)
        e = gen.integer(rng, names, d, rng.randint(1, 3))
        memo: dict[Expr, Any] = {}
        done = simplify(e, facts)
        found = counterexample(to_z3(e, memo) == to_z3(done, memo), known)
        assert found is None, f"{e} -> {done}: {found}"
        lo, hi = bounds(e, facts)
        assert lo is not None and hi is not None
        contained = E.And(E.Le(Const(lo, d), e), E.Le(e, Const(hi, d)))
        found = counterexample(to_z3(contained, memo), known)
        assert found is None, f"{e} leaves {lo}..{hi}: {found}"
        claim = gen.boolean(rng, names, d, 2)
        if prove(claim, facts) or prove(claim, facts.with_definitions()):
            found = counterexample(to_z3(claim, memo), known)
            assert found is None, f"{claim} is not so: {found}"


def test_translation_agrees_with_evaluation() -> None:
    """The judge itself: z3's constants fold to what semantics.py computes."""
    rng = random.Random(9)
    for _ in range(200):
        d = rng.choice([i8, u8, i16])
        v = Var("v", d)
        e = gen.integer(rng, [v], d, 3)
        value = rng.randint(d.min, d.max)
        shown = z3.simplify(z3.substitute(to_z3(e, {}), (to_z3(v, {}), z3.BitVecVal(value, d.bits))))
        got = shown.as_signed_long() if d.kind == "i" else shown.as_long()
        assert got == int(evaluate(e, {v: value})), f"{e} at {value}"


# Loops over extents that are sums and products of dims, fused into one.

EXTENTS: list[Callable[[E.Dim, E.Dim, E.Dim], Expr]] = [
    lambda h, w, c: h,
    lambda h, w, c: w + 2,
    lambda h, w, c: w + c,
    lambda h, w, c: h * 2 + 1,
    lambda h, w, c: (w + 3) // 4,
    lambda h, w, c: h * w + 3,
    lambda h, w, c: Const(3, i64),
]


def in_integers(e: Expr, values: dict[Expr, Any]) -> Any:
    """Sums, products, quotients and remainders by positive numbers as integers of z3."""
    if e in values:
        return values[e]
    if isinstance(e, Const):
        return z3.IntVal(e.value)
    a, b = (in_integers(x, values) for x in e.args)
    kinds: dict[type[Expr], Callable[[], Any]] = {
        E.Add: lambda: a + b,
        E.Sub: lambda: a - b,
        E.Mul: lambda: a * b,
        E.FloorDiv: lambda: a / b,
        E.FloorMod: lambda: a % b,
    }
    return kinds[type(e)]()


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_points_of_fused_loops_are_apart(chunk: int) -> None:
    """Where the digits of a fused loop are called independent, no two iterations have the same ones."""
    rng = random.Random(chunk)
    accepted = 0
    for _ in range(count(8, 200)):
        h, w, c = (E.Dim(name, max=4096) for name in "hwc")
        extents = [rng.choice(EXTENTS)(h, w, c) for _ in range(rng.choice([2, 2, 3]))]
        fused = Var("f")
        digits: list[Expr] = []
        rest: Expr = fused
        for e in extents[:0:-1]:
            digits.append(rest % e)
            rest = rest // e
        digits.append(rest)
        whole = simplify(E.product(tuple(extents)))
        found = detect_iter_map(digits, {fused: whole})
        if isinstance(found, Refusal):
            continue
        accepted += 1
        for sizes in rng.sample(list(itertools.product((0, 1, 2, 5), repeat=3)), 4):
            dims: dict[Expr, Any] = {v: z3.IntVal(n) for v, n in zip((h, w, c), sizes, strict=True)}
            if z3.simplify(in_integers(whole, dims)).as_long() == 0:
                continue  # no iteration, and nothing to divide
            x, y = z3.Ints("x y")
            solver = z3.Solver()
            solver.add(x >= 0, x < y, y < in_integers(whole, dims))
            solver.add(*(in_integers(d, {**dims, fused: x}) == in_integers(d, {**dims, fused: y}) for d in digits))
            assert solver.check() == z3.unsat, (extents, sizes)
    assert accepted >= 3


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_digits_of_fused_loops_stay_below_their_extents(chunk: int) -> None:
    """f // e < other extent, also in sums; what is proven holds for all values of sizes that z3 is given."""
    rng = random.Random(chunk)
    accepted = 0
    for _ in range(count(12, 300)):
        h, w, c = (E.Dim(name, max=4096) for name in "hwc")
        outer, inner = rng.choice(EXTENTS)(h, w, c), rng.choice(EXTENTS)(h, w, c)
        fused, tap = Var("f"), Var("r")
        taps, slack = rng.choice([1, 3, 5]), rng.choice([-2, -1, 0, 0, 1])
        facts = Facts().with_loop(fused, simplify(outer * inner)).with_loop(tap, taps)
        claim = fused // inner + tap < outer + (taps - 1 + slack)
        if not prove(claim, facts):
            assert slack < 0, claim  # the largest quotient and tap make it equal for 0
            continue
        accepted += 1
        for sizes in rng.sample(list(itertools.product((0, 1, 2, 5), repeat=3)), 4):
            dims: dict[Expr, Any] = {v: z3.IntVal(n) for v, n in zip((h, w, c), sizes, strict=True)}
            if z3.simplify(in_integers(outer * inner, dims)).as_long() == 0:
                continue
            values = {**dims, fused: z3.Int("f"), tap: z3.Int("r")}
            left, right = (in_integers(e, values) for e in claim.args)
            solver = z3.Solver()
            solver.add(values[fused] >= 0, values[fused] < in_integers(outer * inner, dims), values[tap] >= 0, values[tap] < taps)
            solver.add(left >= right)
            assert solver.check() == z3.unsat, (claim, sizes)
    assert accepted >= 3


def test_quotients_of_polynomials() -> None:
    """p = d * q for all integers, whatever z3 puts in."""
    rng = random.Random(0)
    names = [Var(n) for n in "abc"]
    known: dict[Expr, Any] = {v: z3.Int(v.name) for v in names}

    def some(terms: int) -> dict[tuple[Expr, ...], int]:
        monos = [tuple(sorted(rng.choices(names, k=rng.randrange(3)), key=order)) for _ in range(terms)]
        return {m: rng.choice([-3, -1, 1, 2, 4]) for m in monos}

    def integer(p: dict[tuple[Expr, ...], int]) -> Any:
        return sum(((c * z3.Product(*(known[a] for a in m)) if m else z3.IntVal(c)) for m, c in p.items()), z3.IntVal(0))

    for _ in range(count(60, 2000)):
        d, q, r = some(rng.randint(1, 3)), some(rng.randint(1, 3)), some(1) if rng.random() < 0.5 else {}
        p = add(multiply(d, q), r)
        found = quotient(p, d)
        assert r or found == q
        if found is not None:
            solver = z3.Solver()
            solver.add(integer(p) != integer(d) * integer(found))
            assert solver.check() == z3.unsat
