"""Random expressions: simplify keeps the value and is idempotent, bounds contain it, prove is never wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sym_random as gen

from counts import FIRST, count
from pliant.dtype import bool_, i64
from pliant.sym.bounds import bounds, multiple
from pliant.sym.expr import FALSE, TRUE, Expr, Not
from pliant.sym.prove import prove, prove_equal
from pliant.sym.semantics import evaluate
from pliant.sym.simplify import simplify

CHUNKS = 20
KINDS = ("index", "wrap", "float")


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bit for bit equal, except that a NaN equals a NaN."""
    if a.dtype.kind == "f":
        return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    return a == b


def describe(e: Expr, scene: gen.Scene, at: int) -> str:
    """An expression with the values of its variables at one sample, for a failing test."""
    values = {v.name: a[at] for v, a in scene.env.items()}
    return f"{e} at {values}, ranges { {str(k): v for k, v in scene.facts.ranges.items()} }"


def values_of(e: Expr, scene: gen.Scene) -> np.ndarray:
    return np.broadcast_to(evaluate(e, scene.env), (scene.size,))


def check(e: Expr, scene: gen.Scene) -> None:
    want = values_of(e, scene)
    done = simplify(e, scene.facts)
    got = values_of(done, scene)
    wrong = np.flatnonzero(~same(want, got))
    assert not len(wrong), f"{done} = {got[wrong[0]]}, not {want[wrong[0]]}: {describe(e, scene, wrong[0])}"
    assert done.dtype is e.dtype
    scene.facts.caches.clear()
    again = simplify(done, scene.facts)
    assert again is done, f"not idempotent: {e} -> {done} -> {again}"
    for x in (e, done):
        if not x.dtype.is_float:
            lo, hi = bounds(x, scene.facts)
            assert lo is not None and hi is not None
            outside = np.flatnonzero((want.astype(object) < lo) | (want.astype(object) > hi))
            assert not len(outside), f"{lo}..{hi} of {x} misses {want[outside[0]]}: {describe(e, scene, outside[0])}"
        if x.dtype.is_int:
            k = multiple(x, scene.facts)
            assert all(int(v) % k == 0 if k else v == 0 for v in want), f"{k} does not divide {x}"


def check_claim(e: Expr, scene: gen.Scene) -> None:
    want = values_of(e, scene)
    for claim, truth in ((e, want), (Not(e), ~want)):
        if prove(claim, scene.facts):
            assert truth.all(), f"proven but false: {describe(claim, scene, int(np.argmin(truth)))}"
    done = simplify(e, scene.facts)
    if done is TRUE:
        assert want.all()
    if done is FALSE:
        assert not want.any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_expressions(kind: str, chunk: int) -> None:
    rng = random.Random(f"{kind}{FIRST + chunk}")
    for _ in range(count(5_000, 1_000_000) // CHUNKS // len(KINDS)):
        if kind == "float":
            scene = gen.float_scene(rng)
            check(gen.floating(rng, scene.vars, rng.randint(1, 4)), scene)
            continue
        scene = gen.index_scene(rng) if kind == "index" else gen.wrap_scene(rng)
        d = i64 if kind == "index" else scene.vars[0].dtype
        e = gen.integer(rng, scene.vars, d, rng.randint(1, 4))
        check(e, scene)
        claim = gen.boolean(rng, scene.vars, d, 3)
        assert claim.dtype is bool_
        check(claim, scene)
        check_claim(claim, scene)
        other = gen.integer(rng, scene.vars, d, 2)
        if prove_equal(e, other, scene.facts):
            assert same(values_of(e, scene), values_of(other, scene)).all(), f"{e} == {other} is not always so"
