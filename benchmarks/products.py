"""Matrix products to be measured: the programs and the operands that `gemm.py` is about.

Right-hand sides are literals, packed when the program is loaded, where a program is called packed; parameters where it is called plain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant import Out, Tensor, block, cast, dim, f32, function, grid, i8, i32, init, kernel, ops, u8
from pliant.dtype import dtype

LARGE = 1024
SMALL_INTEGERS = 512
VECTOR = 4096
n = dim("n", max=4096)


def normal(*shape: int) -> Any:
    """Numbers to multiply."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def packed(k: int, columns: int, rows: int | None = None) -> Any:
    """A program that multiplies with a literal, for any number of rows or for that one."""
    w, m = normal(k, columns), n if rows is None else rows

    @function
    def product(x: Tensor[f32, m, k]) -> Tensor[f32, m, columns]:
        return x @ ops.constant(w)

    return product


@function
def plain(x: Tensor[f32, n, LARGE], w: Tensor[f32, LARGE, LARGE]) -> Tensor[f32, n, LARGE]:
    return x @ w


@function
def rows_times_vector(w: Tensor[f32, VECTOR, VECTOR], x: Tensor[f32, VECTOR]) -> Tensor[f32, VECTOR]:
    return ops.matmul(w, x)


@dataclass(frozen=True)
class Integers:
    """Operands of a product of small integers; with seven bits the program shows that the left ones are below 128."""

    left: Any
    right: Any
    seven_bits: bool = False

    def program(self) -> Any:
        """The product with a literal."""
        size, limits = SMALL_INTEGERS, np.iinfo(self.right.numpy())
        w = np.random.default_rng(0).integers(limits.min, limits.max + 1, (size, size)).astype(self.right.numpy())
        left, right = self.left, self.right

        @kernel
        def full(a: Tensor[left, n, size], b: Tensor[right, size, size], c: Out[i32, n, size]) -> None:
            for i, j, k in grid(n, size, size):
                with block("c", "SSR", i, j, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0
                    c[vi, vj] += cast(i32, a[vi, vk]) * cast(i32, b[vk, vj])

        @kernel
        def seven(a: Tensor[left, n, size], b: Tensor[right, size, size], c: Out[i32, n, size]) -> None:
            for i, j, k in grid(n, size, size):
                with block("c", "SSR", i, j, k) as (vi, vj, vk):
                    with init():
                        c[vi, vj] = 0
                    c[vi, vj] += cast(i32, a[vi, vk] & 127) * cast(i32, b[vk, vj])

        multiply = seven if self.seven_bits else full

        @function
        def product(a: Tensor[left, n, size]) -> Tensor[i32, n, size]:
            return multiply(a, ops.constant(w))

        return product

    def operand(self) -> Any:
        """What is multiplied with the literal."""
        return np.random.default_rng(1).integers(0, 128, (SMALL_INTEGERS, SMALL_INTEGERS)).astype(self.left.numpy())


INTEGERS = {"u8 i8": Integers(u8, i8), "i8 i8": Integers(i8, i8), "u8 u8": Integers(u8, u8), "7 bits": Integers(u8, i8, True)}


@dataclass(frozen=True)
class Product:
    """A product of two parameters: how many, (m, k) by (k, n), and which of the two lie the other way round."""

    of: str
    m: int
    k: int
    n: int
    batch: int = 0
    transpose_a: bool = False
    transpose_b: bool = False

    def __str__(self) -> str:
        sides = f"{self.m} x {self.k}{' T' * self.transpose_a} @ {self.k} x {self.n}{' T' * self.transpose_b}"
        return f"{self.of}, {f'{self.batch} of ' if self.batch else ''}{sides}"

    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the operands as they lie."""
        a, b = (self.m, self.k), (self.k, self.n)
        return (a[::-1] if self.transpose_a else a), (b[::-1] if self.transpose_b else b)

    def program(self) -> Any:
        """The product as a program."""
        t, ((a, b), (c, d)), m, columns, many = dtype(self.of), self.shapes(), self.m, self.n, self.batch
        turn_a, turn_b = self.transpose_a, self.transpose_b

        @function
        def one(x: Tensor[t, a, b], y: Tensor[t, c, d]) -> Tensor[t, m, columns]:
            return ops.matmul(x, y, transpose_a=turn_a, transpose_b=turn_b)

        @function
        def several(x: Tensor[t, many, a, b], y: Tensor[t, many, c, d]) -> Tensor[t, many, m, columns]:
            return ops.matmul(x, y, transpose_a=turn_a, transpose_b=turn_b)

        return several if many else one

    def operands(self) -> tuple[Any, Any, Any]:
        """Both operands, and where the result goes."""
        many, (a, b), as_numpy = (self.batch,) * bool(self.batch), self.shapes(), dtype(self.of).numpy()
        return normal(*many, *a).astype(as_numpy), normal(*many, *b).astype(as_numpy), np.empty((*many, self.m, self.n), as_numpy)


PRODUCTS = [
    *(Product(of, 512, 512, 512) for of in ("f64", "f16", "bf16")),
    *(Product(of, 8, 1024, 1024) for of in ("f32", "f64", "f16", "bf16")),
    *(Product("f32", 512, 512, 512, 0, a, b) for a in (False, True) for b in (False, True)),
    *(Product("f32", 1024, 1024, 1024, 0, a, b) for a, b in ((True, False), (False, True))),
    *(Product("f32", 1, 1024, 4096, 0, False, b) for b in (False, True)),
    *(Product("f32", 7, 768, 768, 0, False, b) for b in (False, True)),
    *(Product("f32", 128, 64, 128, batch, False, b) for batch in (3, 7, 12) for b in (False, True)),
    Product("f32", 311, 64, 311, 5, False, True),
    Product("f32", 311, 311, 64, 5),
    Product("f32", 1, 64, 311, 9, False, True),
    Product("f32", 1, 311, 64, 9),
    Product("f32", 17, 33, 65, 33),
    Product("f64", 100, 100, 100, 11),
    Product("f64", 100, 100, 100, 11, True, True),
]
