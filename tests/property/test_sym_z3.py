"""z3 as a second judge: simplified expressions and proofs hold for all values, not only for those tried."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import sym_random as gen
from counts import count

from pliant.dtype import DType, bool_, i8, i16, u8
from pliant.sym import expr as E
from pliant.sym.bounds import bounds
from pliant.sym.expr import Const, Expr, Var
from pliant.sym.facts import Facts
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
