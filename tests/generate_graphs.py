"""Random graph functions with arguments they accept: operators, branches, loops, calls, match_casts and state.

What is generated passes its own checks at the sizes that come with it, so that a function and what passes make of it can be compared.

    function, arguments = random_function(np.random.default_rng(7))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pliant import InOut, Tensor, dim, f32, i64, kernel, ops
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Scalar, Value
from pliant.graph.node import Tensor as TensorAnnotation
from pliant.support.errors import Error
from pliant.sym.expr import Dim, Expr, const
from pliant.sym.semantics import evaluate

rows, pages = dim("rows"), dim("pages")


@kernel
def put(cache: InOut[f32, pages], x: Tensor[f32, rows], by: f32) -> None:
    for i in range(pages):
        cache[i] = cache[i] * 0.5
    for i in range(rows):
        if i < pages:
            cache[i] = cache[i] + x[i] * by


UNARY: tuple[Callable[..., Any], ...] = (ops.relu, ops.neg, ops.abs, ops.silu, ops.sigmoid, ops.tanh)
BINARY: tuple[Callable[..., Any], ...] = (ops.add, ops.sub, ops.mul, ops.maximum, ops.minimum)


@dataclass
class Generator:
    """Builds one function; `env` are the sizes at which it is run."""

    rng: np.random.Generator
    builder: Builder
    env: dict[Any, int]
    values: list[Value] = field(default_factory=list)
    state: Value | None = None
    helpers: list[Function] = field(default_factory=list)
    budget: int = 10

    def pick(self) -> Value:
        """Some tensor."""
        return self.values[self.rng.integers(len(self.values))]

    def size(self, e: Expr) -> int:
        """A dim at the sizes of the run."""
        return int(evaluate(e, self.env))

    def attempt(self, make: Callable[[], Any]) -> Any:
        """What `make` emits, taken back if it is refused or would fail at these sizes."""
        nodes = self.builder._frames[-1].nodes
        before = len(nodes)
        try:
            found = make()
        except Error:
            del nodes[before:]
            return None
        if not all(evaluate(r.cond, self.env) for node in nodes[before:] for r in node.requires):
            del nodes[before:]
            return None
        return found

    def step(self, depth: int) -> None:
        """One more construct."""
        rng, x, y = self.rng, self.pick(), self.pick()
        shape = x.tensor.shape
        rank = len(shape)
        kinds: dict[str, Callable[[], Any]] = {
            "unary": lambda: UNARY[rng.integers(len(UNARY))](x),
            "binary": lambda: BINARY[rng.integers(len(BINARY))](x, y),
            "number": lambda: ops.mul(x, float(rng.integers(-2, 3))),
            "matmul": lambda: ops.matmul(x, y),
            "transposed": lambda: ops.matmul(x, ops.permute(y, tuple(reversed(range(len(y.tensor.shape)))))),
            "permute": lambda: ops.permute(x, rng.permutation(rank).tolist()),
            "reduce": lambda: (ops.sum, ops.max, ops.mean)[rng.integers(3)](x, axis=int(rng.integers(-rank, rank)), keepdims=True),
            "softmax": lambda: ops.softmax(x, axis=int(rng.integers(-rank, rank))),
            "flat": lambda: ops.reshape(x, (-1,)),
            "unsqueeze": lambda: ops.reshape(x, (*shape[:1], 1, *shape[1:])),
            "concat": lambda: ops.concat([x, y], axis=int(rng.integers(rank))),
            "slice": lambda: ops.slice(x, int(rng.integers(rank)), int(rng.integers(0, 2)), None, int(rng.integers(1, 3))),
            "where": lambda: ops.where(ops.less(x, y), x, 0.25),
        }
        names = [*kinds, "match_cast", "call", "branch", "loop", "state"]
        name = names[rng.integers(len(names))]
        if name in kinds:
            found = self.attempt(kinds[name]) if rank or name in ("unary", "binary", "number") else None
            if found is not None and np.prod([self.size(e) for e in found.tensor.shape]) < 600 and len(found.tensor.shape) < 5:
                self.values.append(found)
        elif name == "match_cast" and rank:
            self.match_cast(x)
        elif name == "call" and self.helpers:
            self.call()
        elif name == "branch" and depth < 2:
            self.branch(depth)
        elif name == "loop" and depth < 2:
            self.loop(depth)
        elif name == "state" and self.state is not None:
            flat = self.attempt(lambda: ops.reshape(x, (-1,)))
            if flat is not None:
                self.builder.hint = "cache"
                (self.state,) = self.builder.call_loop(put.callee, [self.state, flat, float(rng.integers(1, 4))])

    def match_cast(self, x: Value) -> None:
        """A cast to a new dim, to a number, or to a dim that happens to be the same."""
        axis = int(self.rng.integers(len(x.tensor.shape)))
        size = self.size(x.tensor.shape[axis])
        same = [d for d in self.env if d in self.builder.dims and self.env[d] == size]
        new = Dim(f"d{len(self.env)}", 0, 1000)
        choices = [new, const(size), *same]
        target = choices[self.rng.integers(len(choices))]
        if target is new:
            self.env[new] = size
        shape = (*x.tensor.shape[:axis], target, *x.tensor.shape[axis + 1 :])
        self.values.append(self.builder.match_cast(x, TensorAnnotation(f32, shape)))

    def call(self) -> None:
        """A call of a helper whose parameters fit."""
        function = self.helpers[self.rng.integers(len(self.helpers))]
        args = [self.pick() for _ in function.params]
        if any(len(a.tensor.shape) != len(p.tensor.shape) for a, p in zip(args, function.params, strict=True)):
            return
        found = self.attempt(lambda: self.builder.call_function(function, args))
        if found is not None:
            first = found[0].tensor.shape[0]
            if isinstance(first, Dim):  # perhaps one that the helper defines
                self.env.setdefault(first, self.size(args[0].tensor.shape[0]))
            self.values.append(found[0])

    def inside(self, depth: int, count: int) -> None:
        """Some steps in the body that is open."""
        for _ in range(count):
            self.step(depth + 1)

    def branch(self, depth: int) -> None:
        """An `if` that chooses between two versions of a value."""
        x, kept = self.pick(), list(self.values)
        if self.rng.random() < 0.5:
            cond = ops.greater(ops.sum(x), 0.0)
        else:
            cond = self.builder.scalar(const(3) < next(iter(self.env)))
        state, self.state = self.state, None  # branches leave state alone
        bodies = []
        for _ in range(2):
            self.builder.open()
            self.values = list(kept)
            self.inside(depth, 2)
            same = [v for v in self.values if v.annotation == x.annotation]
            bodies.append(self.builder.close([same[self.rng.integers(len(same))]]))
        self.state, self.values = state, kept
        self.values.append(self.builder.if_(cond, *bodies)[0])

    def loop(self, depth: int) -> None:
        """A `while` over a counter, a value, and the state if there is one."""
        x, kept, state = self.pick(), list(self.values), self.state
        init = [self.builder.scalar(const(0)), x, *([state] if state is not None else [])]
        annotations = [Scalar(i64), *(v.annotation for v in init[1:])]

        def enter() -> list[Value]:
            params = [self.builder.carried(f"p{k}", a) for k, a in enumerate(annotations)]
            self.builder.open(params, loop=True)
            self.values, self.state = [*kept, params[1]], params[2] if state is not None else None
            return params

        rounds = int(self.rng.integers(0, 3))
        params = enter()
        cond, _ = self.builder.close([ops.less(params[0], rounds)])
        params = enter()
        self.inside(depth, 2)
        same = [v for v in self.values[len(kept) :] if v.annotation == x.annotation]
        results = [ops.add(params[0], 1), same[-1], *([self.state] if self.state is not None else [])]
        body, _ = self.builder.close(results)
        self.values = kept
        outs = self.builder.while_(init, cond, body)
        self.values.append(outs[1])
        self.state = outs[2] if state is not None else None


def _params(generator: Generator, shapes: list[tuple[Expr, ...]]) -> list[np.ndarray[Any, Any]]:
    arrays = []
    for k, shape in enumerate(shapes):
        generator.values.append(generator.builder.param(f"x{k}", TensorAnnotation(f32, shape)))
        arrays.append(generator.rng.uniform(-2, 2, [generator.size(e) for e in shape]).astype(np.float32))
    return arrays


def _helper(rng: np.random.Generator, name: str) -> Function:
    """A small function of one or two matrices; its sizes are those of the calls, so nothing is checked at construction."""
    n, m = Dim("a", 0, 1000), Dim("b", 0, 1000, 1)
    builder = Builder(name)
    x, y = builder.param("x", TensorAnnotation(f32, (n, m))), builder.param("y", TensorAnnotation(f32, (m,)))
    with builder:
        z = UNARY[rng.integers(len(UNARY))](ops.add(x, y))
        if rng.random() < 0.5:
            z = builder.match_cast(z, TensorAnnotation(f32, (Dim("c", 0, 100), m)))
        z = ops.mul(z, float(rng.integers(1, 4)))
    return builder.finish([z])


def random_function(rng: np.random.Generator, steps: int = 12) -> tuple[Function, list[np.ndarray[Any, Any]]]:
    """A random function and arguments that it accepts."""
    n, m, k = Dim("n", 1, 64), Dim("m"), Dim("k", 0, 64, 2)
    env = {n: int(rng.integers(1, 6)), m: int(rng.integers(0, 5)), k: 2 * int(rng.integers(0, 3))}
    generator = Generator(rng, Builder("f"), env)
    generator.helpers = [_helper(rng, f"helper{i}") for i in range(2)]
    with generator.builder:
        choices: list[tuple[Expr, ...]] = [(n, m), (m,), (n,), (m, k), (n, const(4)), (const(1), m), (k,), (n, m, const(2)), ()]
        shapes = [(n, m), (m, k), *(choices[i] for i in rng.integers(0, len(choices), 2))]
        arrays = _params(generator, shapes)
        if rng.random() < 0.5:
            generator.state = generator.builder.param("cache", TensorAnnotation(f32, (Dim("pages"),), state=True))
            arrays.append(rng.uniform(-2, 2, 5).astype(np.float32))
        for _ in range(steps):
            generator.step(0)
        results = [generator.pick() for _ in range(2)] + ([generator.state] if generator.state is not None else [])
        return generator.builder.finish(results), arrays
