"""Seeded random functions that between them hold every operator: calls from the case tables, with something before and behind each.

    made = make_function(seed); arguments = make_arguments(made, seed)

Function number k takes the operators at 5k to 5k + 4 of a shuffled list, each as one of its cases. What a case reads is a parameter, or is
computed: moved there and back, limited to where it is anyway, or made by an earlier case where that is exact. What a case gives goes
through continuous operators, so that results differ by no more than rounding does, and fusion has something to join on both sides.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from op_cases import CASES, SIZES, Case, build
from pliant import ops
from pliant.dtype import bool_, pack
from pliant.graph import node as g
from pliant.graph.builder import Builder
from pliant.graph.op_table import TABLE
from pliant.sym.expr import Dim, const, free_vars

EACH = 5  # operators of a function
ODD = (0, 0, 1, 2, 3, 4, 5, 7, 8, 16, 17)
# Whose floats are elements of their arguments.
MOVES = {
    *("permute", "reshape", "slice", "concat", "take", "gather", "gather_nd", "expand", "flip", "tile", "where", "sort", "topk", "roll"),
    *("scatter", "scatter_nd", "index_put", "pad", "max", "min", "masked_select", "compress", "space_to_depth", "depth_to_space"),
}


@functools.cache
def cases_of() -> dict[str, list[str]]:
    """The cases in which each operator comes up."""
    found: dict[str, list[str]] = {op: [] for op in TABLE}
    for name, case in CASES.items():
        for op in {n.op for n in build(case, True)[0].nodes if isinstance(n, g.Op)}:
            found[op].append(name)
    return found


@functools.cache
def shuffled() -> list[str]:
    """All operators in a fixed random order."""
    return random.Random(0).sample(sorted(TABLE), len(TABLE))


def names_of(seed: int) -> list[str]:
    """The cases of a function."""
    rng = random.Random(seed)
    wanted = [shuffled()[(EACH * seed + k) % len(shuffled())] for k in range(EACH)]
    return [rng.choice(cases_of()[op]) for op in wanted]


@dataclass(slots=True)
class Made:
    """A function, where its arguments come from, and whether checked mode may run it."""

    function: g.Function
    given: dict[str, tuple[Case, int, tuple[int, ...]]]  # of each parameter: the case, which of its arguments, how its dims are permuted
    checked: bool


@dataclass(slots=True)
class _Generator:
    random: random.Random
    builder: Builder
    dims: dict[str, Dim] = field(default_factory=lambda: {name: Dim(name, 0, 64) for name in SIZES})
    given: dict[str, tuple[Case, int, tuple[int, ...]]] = field(default_factory=dict)
    exact: list[g.Value] = field(default_factory=list)
    results: list[g.Value] = field(default_factory=list)

    def case(self, case: Case) -> None:
        """One case and what follows it."""
        args = [self.argument(case, k) for k in range(len(case.shapes))]
        before = len(self.builder._frames[-1].nodes)
        made = case.call(*args)
        nodes = self.builder._frames[-1].nodes[before:]
        plain = all(n.op in MOVES for n in nodes if isinstance(n, g.Op))
        for value in made if isinstance(made, tuple) else (made,):
            self.result(value, plain)

    def argument(self, case: Case, k: int) -> g.Value:
        """A value for an argument of a case."""
        dtype = case.dtypes[k if k < len(case.dtypes) else 0]
        shape = tuple(self.dims[s] if isinstance(s, str) else const(s) for s in case.shapes[k])
        known = [v for v in self.exact if v.tensor.dtype is dtype and v.tensor.shape == shape]
        if known and self.random.random() < 0.7:
            return self.limited(self.random.choice(known), case)
        order = tuple(self.random.sample(range(len(shape)), len(shape))) if dtype.bits >= 8 and self.random.random() < 0.3 else ()
        name = f"p{len(self.given)}"
        self.given[name] = (case, k, order)
        value = self.builder.param(name, g.Tensor(dtype, tuple(shape[i] for i in order) if order else shape))
        value = ops.permute(value, np.argsort(order).tolist()) if order else value
        return self.limited(value, case) if self.random.random() < 0.4 else value

    def limited(self, value: g.Value, case: Case) -> g.Value:
        """The value inside of the case's range: itself, where it is a parameter, which no compiler knows."""
        dtype = value.tensor.dtype
        if dtype is bool_:
            return ops.logical_or(value, ops.logical_and(value, value))
        if dtype.storage or dtype.bits < 8:
            return value
        if dtype.is_float:
            return ops.minimum(ops.maximum(value, float(case.low)), float(case.high))
        low, high = max(int(case.low), int(dtype.min)), min(max(int(case.low), int(case.high) - 1), int(dtype.max))
        return ops.minimum(ops.maximum(value, low), high)

    def result(self, value: g.Value, plain: bool) -> None:
        """Has a value, or what is made of it, as a result of the function."""
        a = value.annotation
        if not isinstance(a, g.Tensor) or a.dtype.storage or a.dtype.bits < 8:
            self.results.append(value)
            return
        fixed = all(free_vars(e) <= set(self.dims.values()) for e in a.shape)
        if fixed and (plain or not a.dtype.is_float):
            self.exact.append(value)
        chain = self.behind(value) if self.random.random() < 0.7 else value
        self.results += [value, chain] if chain is not value and self.random.random() < 0.3 else [chain]

    def behind(self, value: g.Value) -> g.Value:
        """Something elementwise of a value, or a movement of it."""
        t = value.tensor
        if t.dtype is bool_:
            return ops.logical_not(value)
        if not t.dtype.is_float:
            return ops.bitwise_xor(value, ops.minimum(value, 3))
        value = self.random.choice([_halved, ops.tanh, _bounded, ops.abs])(value)
        kind = self.random.randrange(4)
        if kind == 0 and t.shape:
            return ops.permute(value, self.random.sample(range(len(t.shape)), len(t.shape)))
        return ops.minimum(value, ops.neg(value)) if kind == 1 else value


def _halved(x: g.Value) -> g.Value:
    return ops.mul(x, 0.5)


def _bounded(x: g.Value) -> g.Value:
    return ops.maximum(x, -0.25)


def make_function(seed: int) -> Made:
    """Function number `seed`."""
    made = _Generator(random.Random(seed), Builder(f"operators_{seed}"))
    names = names_of(seed)
    with made.builder:
        for name in names:
            made.case(CASES[name])
    return Made(made.builder.finish(made.results), made.given, all(CASES[name].checked for name in names))


def make_arguments(made: Made, seed: int, usual: bool) -> list[Any]:
    """Arguments at the usual sizes of the cases, or at others, for which something may not fit."""
    rng = np.random.default_rng(seed)
    usual = usual or any(d.bits < 8 for case, _, _ in made.given.values() for d in case.dtypes)  # which need even dims
    size = {name: usually if usual else int(rng.choice(ODD)) if usually > 1 else usually for name, usually in SIZES.items()}
    return [_array(made.given[p.name], size, rng) for p in made.function.params]


def _array(given: tuple[Case, int, tuple[int, ...]], size: dict[str, int], rng: np.random.Generator) -> Any:
    case, k, order = given
    dtype = case.dtypes[k if k < len(case.dtypes) else 0]
    shape = [size[s] if isinstance(s, str) else s for s in case.shapes[k]]
    shape = [shape[i] for i in order] if order else shape
    low, high = int(case.low), int(case.high)
    numbers = rng.uniform(case.low, case.high, shape) if dtype.is_float else rng.integers(low, max(high, low + 1), shape)
    made = np.asarray(numbers).astype(dtype.numpy())
    return pack(made, dtype) if dtype.bits < 8 else made
