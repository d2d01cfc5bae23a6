"""Random chains of products, slices, concats and other moves of rows and columns, with what numpy says of them.

All numbers are small integers, so that every result is exact, whatever is summed first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from pliant import f32, ops
from pliant.graph.builder import Builder
from pliant.graph.node import Function, Tensor, Value
from pliant.sym.expr import Dim, Expr, const

WIDTH = 4
W = np.array([[0, 1, 0, 0], [1, 0, 0, -1], [0, 0, -1, 0], [1, 0, 0, 0]], np.float32)
Array = np.ndarray[Any, Any]


# Moves of rows and columns: the operator, and what numpy says. Those that are made of several operators become one kernel.
MOVES: dict[str, tuple[Callable[[Value], Any], Callable[[Array], Array]]] = {
    "turned": (lambda x: ops.flip(x, 1), lambda x: x[:, ::-1]),
    "mirrored": (lambda x: ops.flip(x, 2), lambda x: x[:, :, ::-1]),
    "every second": (lambda x: ops.slice(x, 1, 0, None, 2), lambda x: x[:, ::2]),
    "swapped": (lambda x: ops.concat([ops.slice(x, 2, 2, 4), ops.slice(x, 2, 0, 2)], axis=2), lambda x: np.roll(x, 2, 2)),
    "column by column": (lambda x: ops.concat([ops.slice(x, 2, k, k + 1) for k in (0, 2, 1, 3)], axis=2), lambda x: x[:, :, [0, 2, 1, 3]]),
    "twice": (lambda x: ops.tile(x, (1, 2, 1)), lambda x: np.tile(x, (1, 2, 1))),
    "each twice": (lambda x: ops.repeat_interleave(x, 2, 1), lambda x: np.repeat(x, 2, 1)),
    "padded": (lambda x: ops.pad(x, ((0, 0), (1, 0), (0, 0))), lambda x: np.pad(x, ((0, 0), (1, 0), (0, 0)))),
    "rolled": (lambda x: ops.roll(x, 1, 2), lambda x: np.roll(x, 1, 2)),
    "images": (lambda x: ops.slice(ops.concat([x, x], axis=0), 0, 0, x.tensor.shape[0]), lambda x: x),
    "added": (lambda x: ops.concat([x, ops.add(x, x)], axis=1), lambda x: np.concatenate([x, x + x], 1)),
}


class Chain:
    """A random function over `[batch, rows, 4]`, with the values that it has for given sizes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.n, self.m = Dim("n", 0, 64), Dim("m", 0, 64)
        self.batch: Expr = self.random.choice([self.n, const(1), const(2)])
        self.builder = Builder(f"chain_{seed}")
        self.weight = self.builder.param("w", Tensor(f32, (const(WIDTH), const(WIDTH))))
        first = [self.random.choice([const(3), const(1), self.m]) for _ in range(2)]
        self.params = [self.builder.param(f"x{k}", Tensor(f32, (self.batch, rows, const(WIDTH)))) for k, rows in enumerate(first)]
        self.steps: list[tuple[str, Any]] = []
        self.values: list[Value] = list(self.params)

    def function(self) -> Function:
        with self.builder:
            for _ in range(self.random.randrange(3, 7)):
                self.step()
                self.multiply(len(self.values) - 1)  # which keeps what is moved apart
            self.join([*range(2, len(self.values))][-4:])
            self.multiply(len(self.values) - 1)
            results = [self.values[-1], *self.random.sample(self.values[2:], self.random.randrange(2))]
            self.results = [self.values.index(v) for v in results]
            return self.builder.finish(results)

    def step(self) -> None:
        kind = self.random.choice(["product", "concat", "concat", "slice", "move", "move"])
        at = self.random.randrange(len(self.values))
        x = self.values[at]
        if kind == "product":
            self.multiply(at)
        elif kind == "concat":
            self.join([at, *(self.random.randrange(len(self.values)) for _ in range(self.random.randrange(1, 4)))])
        elif kind == "move":
            self.move(at)
        else:
            rows = x.tensor.shape[1]
            half = self.random.randrange(2)
            self.done(("half", (at, half)), ops.slice(x, 1, rows // 2, rows) if half else ops.slice(x, 1, 0, rows // 2))

    def move(self, at: int) -> None:
        """Something that looks like a copy of contiguous rows, and is none: in another order, with gaps, or of parts of rows."""
        x = self.values[at]
        name = self.random.choice(list(MOVES))
        self.done((name, at), MOVES[name][0](x))

    def multiply(self, at: int) -> None:
        self.done(("product", at), ops.matmul(self.values[at], self.weight))

    def join(self, parts: list[int]) -> None:
        self.done(("concat", parts), ops.concat([self.values[k] for k in parts], axis=1))

    def done(self, step: tuple[str, Any], value: Any) -> None:
        self.steps.append(step)
        self.values.append(value)

    def arguments(self, batch: int, rows: int) -> list[Array]:
        rng = np.random.default_rng(batch * 8 + rows)
        env = {self.n: batch, self.m: rows}
        shapes = [[env[e] if isinstance(e, Dim) else int(e.value) for e in p.tensor.shape] for p in self.params]  # type: ignore[attr-defined]
        return [W, *(rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes)]

    def expected(self, arguments: list[Array]) -> list[Array]:
        found = list(arguments[1:])
        for kind, given in self.steps:
            if kind == "product":
                found.append(found[given] @ W)
            elif kind == "concat":
                found.append(np.concatenate([found[k] for k in given], 1))
            elif kind in MOVES:
                found.append(MOVES[kind][1](found[given]))
            else:
                x = found[given[0]]
                middle = x.shape[1] // 2
                found.append(x[:, middle:] if given[1] else x[:, :middle])
        return [found[k] for k in self.results]


SIZES = [(1, 2), (1, 5), (2, 3), (3, 1)]
