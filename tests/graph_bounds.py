"""What a graph function results in, with bounds: exact values as they are, others in float64 with how far rounding may move them.

A float that is not exact (see `random_graphs.exact_op`) is computed several times in float64: once plainly, and a few times with every
operator's result, and every term of a sum, moved by a random few units in the last place of its dtype. The spread of these is how much
rounding matters at each element; a result must lie within a multiple of it.

    for found, bounded in zip(f(*arguments), bounded_results(function, arguments)):
        assert bounded.admits(found)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.dtype import DType
from pliant.graph import node as g
from pliant.graph.node import annotation_exprs
from pliant.graph.op_table import TABLE
from pliant.graph.operators import map_attrs
from pliant.interp.loop import run_loop
from pliant.loop.stmt import Func
from pliant.sym.expr import Expr, Var
from pliant.sym.semantics import evaluate
from random_graphs import exact_op

Array = np.ndarray[Any, Any]
Env = dict[Var, int]
RUNS = 4  # moved ones, besides the plain one
SLACK = 8.0
SUMS = {"sum", "mean", "matmul", "linear", "softmax", "rms_norm", "rotary_embedding"}
ULPS = {"rotary_embedding": 64.0}  # its angles are rounded to f32 before the sine


@dataclass(frozen=True, eq=False)
class Bounded:
    """A value: exact, or in float64 with its moved copies behind it."""

    dtype: DType
    runs: list[Array]
    exact: bool
    wild: bool = False  # something on the way is not finite, or too large for its dtype: nothing can be said

    def admits(self, found: Array) -> bool:
        """Whether `found` is this value, up to rounding."""
        plain = self.runs[0]
        if found.shape != plain.shape or found.dtype != self.dtype.numpy():
            return False
        if self.exact:
            return bool(np.array_equal(found, plain, equal_nan=self.dtype.is_float))
        if self.wild:
            return True
        spread = np.max([np.abs(r - plain) for r in self.runs[1:]], axis=0)
        room = SLACK * spread + 2 * SLACK * epsilon(self.dtype) * np.abs(plain) + smallest(self.dtype)
        return bool(np.all(np.abs(found.astype(np.float64) - plain) <= room))


def epsilon(dtype: DType) -> float:
    return float(np.finfo(dtype.numpy()).eps)


def smallest(dtype: DType) -> float:
    """What is lost where numbers are too small for all their bits."""
    return 64 * float(np.finfo(dtype.numpy()).smallest_subnormal)


def bounded_results(function: g.Function, arguments: Sequence[Any], seed: int = 0) -> list[Bounded]:
    """The results of a function with bounds."""
    given = []
    for p, a in zip(function.params, arguments, strict=True):
        assert isinstance(p.annotation, g.Tensor | g.Scalar)
        given.append(Bounded(p.annotation.dtype, [np.array(a, p.annotation.dtype.numpy())], True))
    with np.errstate(all="ignore"):
        return _Evaluator(np.random.default_rng(seed)).function(function, given)


class _Evaluator:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def function(self, f: g.Function, arguments: Sequence[Bounded]) -> list[Bounded]:
        env: Env = {}
        values = dict(zip(f.params, arguments, strict=True))
        for p, a in values.items():
            self.define(p, a, env)
        self.nodes(f.nodes, values, env)
        return [values[r] for r in f.results]

    def define(self, v: g.Value, found: Bounded, env: Env) -> None:
        if isinstance(v.annotation, g.Tensor):
            for e, size in zip(v.annotation.shape, found.runs[0].shape, strict=True):
                if isinstance(e, Var):
                    env.setdefault(e, size)

    def nodes(self, nodes: Sequence[g.Node], values: dict[g.Value, Bounded], env: Env) -> None:
        for n in nodes:
            for out, found in zip(n.outs, self.node(n, values, env), strict=True):
                values[out] = found
                self.define(out, found, env)

    def node(self, n: g.Node, values: dict[g.Value, Bounded], env: Env) -> list[Bounded]:
        match n:
            case g.Const():
                return [Bounded(n.outs[0].tensor.dtype, [n.array], True)]
            case g.MatchCast():
                return [values[n.value]]
            case g.CallFunction():
                return self.function(n.function, [values[a] for a in n.args])
            case g.If():
                return self.body(n.then if bool(values[n.cond].runs[0]) else n.orelse, [], values, env)
            case g.While():
                carried = [values[v] for v in n.init]
                while bool(self.body(n.cond, carried, values, env)[0].runs[0]):
                    carried = self.body(n.body, carried, values, env)
                return carried
            case g.CallLoop():
                return self.loop(n, values, env)
            case g.Op():
                attrs = map_attrs(n.attrs, lambda e: self.attribute(e, env))
                reference = TABLE[n.op].reference
                return self.apply(n.op, [values[a] for a in n.args], _dtypes(n), lambda args: reference(args, attrs))
        raise AssertionError(n)

    def body(self, b: g.Body, carried: Sequence[Bounded], values: dict[g.Value, Bounded], env: Env) -> list[Bounded]:
        inner = values | dict(zip(b.params, carried, strict=True))
        self.nodes(b.nodes, inner, dict(env))
        return [inner[r] for r in b.results]

    def attribute(self, e: Expr, env: Env) -> Any:
        found = evaluate(e, env)
        return int(found) if e.dtype.name == "i64" else found

    def apply(self, op: str, args: list[Bounded], outs: list[DType], run: Callable[[list[Array]], Sequence[Array]]) -> list[Bounded]:
        if all(a.exact for a in args) and all(exact_op(op, d) for d in outs):
            found = run([a.runs[0] for a in args])
            return [Bounded(d, [np.array(r)], True) for d, r in zip(outs, found, strict=True)]
        wild = any(a.wild for a in args)
        made: list[list[Array]] = [[] for _ in outs]
        for k in range(RUNS + 1):
            given = [self.operand(a, k, op) for a in args]
            for into, d, r in zip(made, outs, run(given), strict=True):
                moved = self.moved(np.asarray(r), ULPS.get(op, 4.0) * epsilon(d), k) if d.is_float else np.asarray(r)
                if op == "gelu":  # 1 + tanh has few bits left where x is far below zero
                    moved = moved + self.moved(given[0], 4 * epsilon(d), k) - given[0]
                wild = wild or bool(np.any(~(np.abs(moved) < float(np.finfo(d.numpy()).max) / 2)))
                into.append(moved.astype(np.float64))
        return [Bounded(d, runs, False, wild) for d, runs in zip(outs, made, strict=True)]

    def operand(self, a: Bounded, k: int, op: str) -> Array:
        found = a.runs[0] if a.exact else a.runs[k]
        if not a.dtype.is_float:
            return found
        wide = found.astype(np.float64)
        return self.moved(wide, (4 + max(wide.shape, default=1)) * epsilon(a.dtype), k) if op in SUMS else wide

    def moved(self, x: Array, by: float, k: int) -> Array:
        return x * (1 + by * self.rng.uniform(-1, 1, x.shape)) if k else x

    def loop(self, n: g.CallLoop, values: dict[g.Value, Bounded], env: Env) -> list[Bounded]:
        func = n.callee.program
        assert isinstance(func, Func)
        args = [values[a] if isinstance(a, g.Value) else Bounded(a.dtype, [np.array(evaluate(a, env))], True) for a in n.args]

        def run(given: list[Array]) -> list[Array]:
            found, outs, arguments, results = iter(given), iter(n.outs), [], []
            for p in n.callee.params:
                if p.role == "out":
                    shape = [int(evaluate(e, env)) for e in annotation_exprs(next(outs).annotation)]
                    arguments.append(np.zeros(shape, p.dtype.numpy()))
                else:
                    arguments.append(np.array(next(found), p.dtype.numpy(), order="C"))
                if p.role == "inout":
                    next(outs)
                if p.role != "in":
                    results.append(arguments[-1])
                if p.shape is None:
                    arguments[-1] = arguments[-1][()]
            run_loop(func, arguments, [int(evaluate(d, env)) for d in n.dims])
            return results

        return self.apply("kernel", args, [o.tensor.dtype for o in n.outs], run)


def _dtypes(n: g.Op) -> list[DType]:
    return [o.annotation.dtype for o in n.outs if isinstance(o.annotation, g.Tensor | g.Scalar)]
