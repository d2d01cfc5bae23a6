"""Random expressions, with facts about their variables and sample values that obey the facts."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from pliant.dtype import DType, bool_, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from pliant.sym import expr as E
from pliant.sym.expr import Const, Dim, Expr, Var
from pliant.sym.facts import Facts
from pliant.sym.function_names import PRIMITIVE_FUNCTIONS
from pliant.sym.semantics import evaluate

SAMPLES = 48


@dataclass
class Scene:
    """Variables, what is known of them, and values for which it is true."""

    facts: Facts
    vars: list[Var]
    env: dict[Var, np.ndarray]

    def keep(self, mask: np.ndarray) -> None:
        """Only the samples where the mask holds."""
        self.env = {v: a[mask] for v, a in self.env.items()}

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(next(iter(self.env.values())))


def index_scene(rng: random.Random) -> Scene:
    """Dims, loops up to them, constant loops, conditions: what index expressions meet."""
    top = rng.choice([3, 8, 100, 4096, 2**31 - 1])
    step = rng.choice([1, 1, 1, 2, 4, 8, 6])
    n = Dim("n", max=top, multiple_of=step if step <= top else 1)
    m = Dim("m", min=rng.choice([0, 1]), max=rng.choice([4, 64, 2**31 - 1]))
    values = {
        n: np.array([_near(rng, 0, top // step) * step if step <= top else _near(rng, 0, top) for _ in range(SAMPLES * 2)]),
        m: np.array([_near(rng, 1, rng.choice([1, 4])) for _ in range(SAMPLES * 2)]),
    }
    facts = Facts()
    names: list[Var] = [n, m]
    for name in "ijk":
        v = Var(name, i64)
        extent: Expr = rng.choice([n, m, Const(rng.choice([1, 2, 3, 4, 8, 16, 100]), i64), (n + 3) // 4, n * m if top < 5000 else m])
        size = evaluate(extent, values) * np.ones(SAMPLES * 2, np.int64)
        values[v] = np.array([_near(rng, 0, max(int(s) - 1, 0)) for s in size])
        inside = values[v] < size
        values = {u: a[inside] if len(a) == len(inside) else a for u, a in values.items()}
        values = {u: np.resize(a, SAMPLES * 2) for u, a in values.items()} if inside.any() else values
        if not inside.any():
            del values[v]
            continue
        facts = facts.with_loop(v, extent)
        names.append(v)
    scene = Scene(facts, names, values)
    if rng.random() < 0.4:
        condition = compare(rng, integer(rng, names, i64, 2), integer(rng, names, i64, 1))
        holds = evaluate(condition, scene.env) & np.ones(scene.size, bool)
        if holds.sum() > 4:
            scene.keep(holds)
            scene.facts = scene.facts.with_condition(condition)
    return scene


def wrap_scene(rng: random.Random) -> Scene:
    """Integers of one narrow type, some over their whole range."""
    d = rng.choice([i8, u8, i32, u8, i8, i16, u16, u32, u64, i64])
    facts, values = Facts(), {}
    for name in "abc":
        v = Var(name, d)
        lo, hi = sorted((_extreme(rng, d), _extreme(rng, d))) if rng.random() < 0.6 else (d.min, d.max)
        if rng.random() < 0.4:
            lo, hi = max(0, lo) // 16, max(0, hi) // 16
            lo, hi = min(lo, hi), max(lo, hi)
        facts = facts.with_range(v, lo, hi)
        values[v] = np.array([_near(rng, lo, hi) for _ in range(SAMPLES)], d.numpy())
        if rng.random() < 0.2:
            k = rng.choice([2, 3, 4, 8])
            kept = values[v].astype(object) // k * k
            if all(lo <= x <= hi for x in kept):
                values[v] = kept.astype(d.numpy())
                facts = facts.with_multiple(v, k)
    return Scene(facts, list(values), values)


FLOAT_EDGES = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-45, -1e-40, 3.4e38, 0.5, 2.0, 1.5]


def float_scene(rng: random.Random) -> Scene:
    """Floats with edge values, a bool and an index."""
    d = rng.choice([f32, f32, f64])
    values: dict[Var, np.ndarray] = {}
    for name in "xyz":
        edges = rng.choices(FLOAT_EDGES, k=SAMPLES // 2) + [rng.gauss(0, 10.0 ** rng.randint(-3, 3)) for _ in range(SAMPLES - SAMPLES // 2)]
        values[Var(name, d)] = np.array(edges).astype(d.numpy())
    values[Var("p", bool_)] = np.array([rng.random() < 0.5 for _ in range(SAMPLES)])
    return Scene(Facts(), list(values), values)


def _extreme(rng: random.Random, d: DType) -> int:
    return rng.choice([d.min, d.max, 0, 1, d.max // 2, d.min + 1, rng.randint(d.min, d.max), rng.randint(0, 20)])


def _near(rng: random.Random, lo: int, hi: int) -> int:
    """A value of lo..hi, often at its ends."""
    if lo >= hi:
        return lo
    r = rng.random()
    if r < 0.15:
        return lo
    if r < 0.3:
        return hi
    if r < 0.7:
        return rng.randint(lo, min(hi, lo + 20))
    return rng.randint(lo, hi)


def compare(rng: random.Random, a: Expr, b: Expr) -> Expr:
    """A comparison of two expressions."""
    return rng.choice([E.Lt, E.Le, E.Eq, E.Ne])(a, b)


def boolean(rng: random.Random, names: list[Var], d: DType, depth: int) -> Expr:
    """A condition over integers of the dtype."""
    r = rng.random()
    if depth <= 0 or r < 0.6:
        return compare(rng, integer(rng, names, d, depth - 1), integer(rng, names, d, depth - 1))
    if r < 0.7:
        return E.Not(boolean(rng, names, d, depth - 1))
    return rng.choice([E.And, E.Or])(boolean(rng, names, d, depth - 1), boolean(rng, names, d, depth - 1))


def integer(rng: random.Random, names: list[Var], d: DType, depth: int) -> Expr:
    """An integer expression of the dtype."""
    if depth <= 0 or rng.random() < 0.1:
        if rng.random() < 0.3:
            return Const(rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, -1, -2, -4, d.max, d.min, rng.randint(-100, 100)]), d)
        return rng.choice(names)

    def sub() -> Expr:
        return integer(rng, names, d, depth - 1)

    def small() -> Expr:
        return Const(rng.choice([1, 2, 3, 4, 4, 4, 6, 8, 8, 12, 16, -1, -3]), d)

    r = rng.random()
    if r < 0.45:
        return rng.choice([E.Add, E.Add, E.Sub, E.Mul])(sub(), sub())
    if r < 0.55:
        return E.Mul(sub(), small())
    if r < 0.72:
        return rng.choice([E.FloorDiv, E.FloorMod])(sub(), small())
    if r < 0.78:
        a, b = sub(), sub()
        quotient, rest = E.FloorDiv(a, b), E.FloorMod(a, b)
        return rng.choice([quotient, rest, E.Add(E.Mul(quotient, b), rest)])
    if r < 0.86:
        return rng.choice([E.Min, E.Max])(sub(), sub())
    if r < 0.91:
        return E.Select(boolean(rng, names, d, depth - 1), sub(), sub())
    if r < 0.94:
        return E.Neg(sub())
    if r < 0.97:
        return rng.choice([E.BitAnd, E.BitOr, E.BitXor, E.Shl, E.Shr])(sub(), rng.choice([sub(), small()]))
    if r < 0.98:
        return rng.choice([E.BitNot(sub()), E.Call("abs", sub())])
    other = rng.choice([i8, u8, i32, i64, u32])
    return E.Cast(d, E.Cast(other, sub()))


def floating(rng: random.Random, names: list[Var], depth: int) -> Expr:
    """A float expression over the variables of a float scene."""
    floats = [v for v in names if v.dtype.is_float]
    d = floats[0].dtype
    if depth <= 0 or rng.random() < 0.1:
        if rng.random() < 0.4:
            return Const(rng.choice([*FLOAT_EDGES, 4.0, 0.125, 3.0]), d)
        return rng.choice(floats)

    def sub() -> Expr:
        return floating(rng, names, depth - 1)

    r = rng.random()
    if r < 0.5:
        return rng.choice([E.Add, E.Sub, E.Mul, E.Div])(sub(), sub())
    if r < 0.6:
        return rng.choice([E.Min, E.Max])(sub(), sub())
    if r < 0.7:
        return E.Fma(sub(), sub(), sub())
    if r < 0.8:
        return E.Neg(sub())
    if r < 0.9:
        return E.Call(rng.choice(list(PRIMITIVE_FUNCTIONS)), sub())
    condition = rng.choice([compare(rng, sub(), sub()), names[-1], E.Not(compare(rng, sub(), sub()))])
    return E.Select(condition, sub(), sub())
