"""Every rule of the table, on random and extreme values of every dtype it claims."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from counts import count
from pliant.dtype import DType, bool_
from pliant.sym.expr import Const, Expr, Var
from pliant.sym.facts import Facts
from pliant.sym.pattern import Pattern, Rule
from pliant.sym.rules import RULES
from pliant.sym.semantics import cast, evaluate

SAMPLES = 256
LITERALS = [0, 1, 2, 3, 4, 7, 8, 15, 31, 63, 127, -1, -2, 255, 5, 0.5, 0.25, 1024.0, -4.0, 3.0, 1e-30, 2.0**120, 2.0**-120]


def random_values(rng: random.Random, d: DType) -> np.ndarray:
    if d is bool_:
        return np.array([rng.random() < 0.5 for _ in range(SAMPLES)])
    if d.is_int:
        edges = [d.min, d.min + 1, -1, 0, 1, 2, d.max - 1, d.max, d.bits, d.bits - 1]
        numbers = [rng.choice([e for e in edges if d.min <= e <= d.max]) for _ in range(SAMPLES // 2)]
        numbers += [rng.randint(d.min, d.max) >> rng.randrange(d.bits) for _ in range(SAMPLES - len(numbers))]
        return np.array(numbers, object).astype(d.numpy())
    bits = np.array([rng.getrandbits(d.bits) for _ in range(SAMPLES)], f"uint{d.bits}").view(d.numpy())
    edges_f = cast(np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -0.5, 65504.0, 1e-8, 1e-320, 1e-42]), d)
    bits[: SAMPLES // 2] = np.array([edges_f[rng.randrange(len(edges_f))] for _ in range(SAMPLES // 2)])
    return bits


def instance(rule: Rule, d: DType, rng: random.Random) -> tuple[Expr, Facts, dict[Var, np.ndarray]]:
    """The rule's pattern over variables with random values (and a range that they obey) and random literals."""
    found: dict[str, Expr] = {}
    env: dict[Var, np.ndarray] = {}
    facts = Facts()
    leaves: list[Pattern] = rule.pattern.variables()
    for leaf in leaves:
        if leaf.head is Const:
            found[leaf.name] = Const(rng.choice(LITERALS), d)
            continue
        v = Var(leaf.name, bool_ if leaf.name == "b" else d)
        values = random_values(rng, v.dtype)
        if d.is_int and v.dtype is d and rng.random() < 0.5:
            values = np.abs(values) >> np.array(1, d.numpy())  # within 0..max/2
            values = np.where(values < 0, np.zeros_like(values), values)
            facts = facts.with_range(v, 0, d.max // 2)
        found[leaf.name] = v
        env[v] = values
    return rule.pattern.build(found, d), facts, env


def agree(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "biu":
        return a == b
    bits = a.view(f"uint{a.dtype.itemsize * 8}") == b.view(f"uint{b.dtype.itemsize * 8}")
    with np.errstate(all="ignore"):
        return bits | (np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64)))


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_rule(rule: Rule) -> None:
    rng = random.Random(zlib.crc32(rule.name.encode()))
    for d in rule.dtypes:
        applied = 0
        for _ in range(count(12, 400)):
            e, facts, env = instance(rule, d, rng)
            result = rule.apply(e, facts)
            if result is None:
                continue
            applied += 1
            assert result.dtype is e.dtype
            want = np.broadcast_to(evaluate(e, env), (SAMPLES,))
            got = np.broadcast_to(evaluate(result, env), (SAMPLES,))
            wrong = np.flatnonzero(~agree(np.ascontiguousarray(want), np.ascontiguousarray(got)))
            where = {v.name: a[wrong[0]] for v, a in env.items()} if len(wrong) else {}
            assert not len(wrong), f"{rule} of {d}: {e} = {want[wrong[0]]} but {result} = {got[wrong[0]]} at {where}"
        assert applied, f"{rule} never applied to {d}"


def test_names_are_unique() -> None:
    assert len({r.name for r in RULES}) == len(RULES)
