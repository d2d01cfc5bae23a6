"""Random bindings and symbolic bounds, checked by running the loops."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import sym_random as gen

from counts import FIRST, count
from pliant.dtype import i64
from pliant.sym.affine import IterMap, detect_iter_map, linear
from pliant.sym.expr import Const, Dim, Expr, Var, const, free_vars, substitute
from pliant.sym.facts import Facts
from pliant.sym.region import lower, upper
from pliant.sym.semantics import evaluate
from pliant.sym.simplify import simplify

CHUNKS = 10
n, m = Dim("n"), Dim("m")


def random_binding(rng: random.Random, loops: list[Var]) -> Expr:
    """Something like what schedules make of loop variables."""

    def part() -> Expr:
        v: Expr = rng.choice(loops)
        r = rng.random()
        if r < 0.25:
            return v // rng.choice([2, 3, 4])
        if r < 0.5:
            return v % rng.choice([2, 3, 4, m])
        return v

    e = part()
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        e = e * rng.choice([2, 3, 4, 6, m, 1]) + part()
    r = rng.random()
    if r < 0.15:
        e = e // rng.choice([2, 3, 4])
    elif r < 0.3:
        e = e % rng.choice([2, 3, 4])
    elif r < 0.4:
        e = e + rng.choice([1, 3, n])
    elif r < 0.45:
        e = n - e
    return e


def split_bindings(rng: random.Random, v: Var) -> list[Expr]:
    d = rng.choice([2, 3, 4])
    return [v // d, v % d]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_iter_maps(chunk: int) -> None:
    rng = random.Random(FIRST + chunk)
    accepted = 0
    for _ in range(count(300, 30_000) // CHUNKS):
        sizes = [*map(const, (2, 3, 4, 6, 12)), n, m, n * 4, n * m]
        loops = {Var(name): rng.choice(sizes) for name in "ijk"[: rng.randint(1, 3)]}
        names = list(loops)
        bindings: list[Expr] = []
        for v in names:
            bindings += split_bindings(rng, v) if rng.random() < 0.4 else [v] if rng.random() < 0.4 else []
        if rng.random() < 0.5 or not bindings:
            bindings = [random_binding(rng, names) for _ in range(rng.randint(1, 2))]
        predicate = bindings[0] < rng.choice([n, const(3), m * 2]) if rng.random() < 0.3 else None
        found = detect_iter_map(bindings, loops, predicate)
        if not isinstance(found, IterMap):
            continue
        accepted += 1
        for size in ({n: 1, m: 1}, {n: 2, m: 3}, {n: 3, m: 2}, {n: 5, m: 4}):
            check_map(found, bindings, loops, predicate, size)
    assert accepted > 5


def check_map(found: IterMap, bindings: list[Expr], loops: dict[Var, Expr], predicate: Expr | None, size: dict[Dim, int]) -> None:
    extents = [int(evaluate(e, size)) for e in loops.values()]
    axes = np.meshgrid(*[np.arange(e) for e in extents], indexing="ij")
    env: dict[Var, object] = {**size, **{v: a.ravel() for v, a in zip(loops, axes, strict=True)}}
    points = [np.broadcast_to(evaluate(e, env), axes[0].size) for e in bindings]
    if predicate is not None:
        inside = np.broadcast_to(evaluate(predicate, env), axes[0].size)
        points = [p[inside] for p in points]
    hit = list(zip(*(p.tolist() for p in points), strict=True))
    shown = f"{bindings} over { {str(k): str(v) for k, v in loops.items()} } where {predicate} at {size}"
    box = [int(evaluate(e, size)) for e in found.extents]
    starts = [int(evaluate(e, size)) for e in found.starts]
    for point in set(hit):
        assert all(s <= v < s + e for v, s, e in zip(point, starts, box, strict=True)), f"{shown}: {point} is outside of {box}"
    if found.injective:
        assert len(set(hit)) == len(hit), f"{shown} is not injective"
    if found.surjective and hit:
        want = set(itertools.product(*(range(s, s + e) for s, e in zip(starts, box, strict=True))))
        assert set(hit) == want, f"{shown} misses {sorted(want - set(hit))[:3]}"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_symbolic_bounds(chunk: int) -> None:
    rng = random.Random(FIRST + 100 + chunk)
    for _ in range(count(600, 60_000) // CHUNKS):
        scene = gen.index_scene(rng)
        loops = [v for v in scene.vars if not isinstance(v, Dim)]
        e = gen.integer(rng, scene.vars, i64, rng.randint(1, 3))
        over = rng.sample(loops, rng.randint(1, len(loops))) if loops else []
        least, most = lower(e, scene.facts, over), upper(e, scene.facts, over)
        assert free_vars(least).isdisjoint(over) and free_vars(most).isdisjoint(over)
        value = evaluate(e, scene.env)
        assert np.all(evaluate(least, scene.env) <= value), f"{least} is not below {e}"
        assert np.all(value <= evaluate(most, scene.env)), f"{most} is not above {e}"


def test_linear_parts_add_up() -> None:
    rng = random.Random(3)
    found = 0
    for _ in range(300):
        scene = gen.index_scene(rng)
        loops = [v for v in scene.vars if not isinstance(v, Dim)]
        e = gen.integer(rng, scene.vars, i64, 2)
        parts = linear(e, loops)
        if parts is None:
            continue
        found += 1
        total = parts[1]
        for v, coefficient in parts[0].items():
            assert free_vars(coefficient).isdisjoint(loops)
            total = total + coefficient * v
        assert np.all(evaluate(total, scene.env) == evaluate(e, scene.env))
        zero = substitute(e, dict.fromkeys(loops, Const(0, i64)))
        assert simplify(zero - parts[1], Facts()) is const(0)
    assert found > 50
