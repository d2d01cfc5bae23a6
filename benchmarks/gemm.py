"""Matrix products: large ones, one program for any number of rows, small integers, matrix times vector; the machine's limits, numpy, torch.

python benchmarks/gemm.py [--rounds 5] [--only pliant]

Right-hand sides are literals, packed when the program is loaded, unless they are called plain. Peers get what they are best at: torch and
numpy (OpenBLAS) multiply the same matrices, on two threads. Ratios are of the best and of the median of the rounds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from contest import Figures, Times, contest

import pliant
from pliant import Out, Tensor, block, cast, dim, f32, function, grid, i8, i32, init, kernel, ops, u8
from pliant.measure import best_time, fma_rate, read_bandwidth

THREADS = 2
LARGE = 1024
SMALL_INTEGERS = 512
VECTOR = 4096
WEIGHTS = [(384, 384), (384, 1536), (1536, 384), (576, 576), (576, 1536), (2048, 2048)]
ROWS = [1, 2, 3, 5, 8, 13, 17, 33, 64, 100, 128, 311, 512]
SECONDS = 0.15  # of a point
n = dim("n", max=4096)


def normal(*shape: int) -> Any:
    """Numbers to multiply."""
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def point(k: int, columns: int, rows: int) -> str:
    """The name of a point of the family of products."""
    return f"{rows} x {k} x {columns}"


def milliseconds(run: Callable[[], object], seconds: float = SECONDS) -> float:
    """The shortest run, after two that warm everything up."""
    run(), run()
    return best_time(run, seconds) * 1e3


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


def small_integers(left: Any, right: Any, seven_bits: bool = False) -> Any:
    """A product of small integers with a literal; of seven bits where the program says so."""
    size, limits = SMALL_INTEGERS, np.iinfo(right.numpy())
    w = np.random.default_rng(0).integers(limits.min, limits.max + 1, (size, size)).astype(right.numpy())

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

    multiply = seven if seven_bits else full

    @function
    def product(a: Tensor[left, n, size]) -> Tensor[i32, n, size]:
        return multiply(a, ops.constant(w))

    return product


def ours_large(threads: int) -> Figures:
    """Products of large matrices."""
    x, w, out = normal(LARGE, LARGE), normal(LARGE, LARGE), np.empty((LARGE, LARGE), np.float32)
    f, g = pliant.compile(packed(LARGE, LARGE), threads=threads), pliant.compile(plain, threads=threads)
    return {"large, packed": milliseconds(lambda: f(x, out=out), 1.0), "large, plain": milliseconds(lambda: g(x, w, out=out), 1.0)}


def peers_large(multiply: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Figures:
    """The same by a peer."""
    x, w = of(normal(LARGE, LARGE)), of(normal(LARGE, LARGE))
    return {"large, plain": milliseconds(lambda: multiply(x, w), 1.0)}


def ours_small_integers() -> Figures:
    """Products of small integers on one thread."""
    kinds = {"u8 i8": (u8, i8, False), "i8 i8": (i8, i8, False), "u8 u8": (u8, u8, False), "7 bits": (u8, i8, True)}
    found: Figures = {}
    for name, (left, right, seven) in kinds.items():
        f = pliant.compile(small_integers(left, right, seven), threads=1)
        a = np.random.default_rng(1).integers(0, 128, (SMALL_INTEGERS, SMALL_INTEGERS)).astype(left.numpy())
        out = np.empty((SMALL_INTEGERS, SMALL_INTEGERS), np.int32)
        found[name] = milliseconds(lambda f=f, a=a, out=out: f(a, out=out), 0.5)
    return found


def ours_vector() -> Figures:
    """A matrix times a vector: one row with packed columns, and the rows of a plain matrix."""
    x, w = normal(1, VECTOR), normal(VECTOR, VECTOR)
    f, g = pliant.compile(packed(VECTOR, VECTOR), threads=THREADS), pliant.compile(rows_times_vector, threads=THREADS)
    row, column = np.empty((1, VECTOR), np.float32), np.empty(VECTOR, np.float32)
    return {
        "vector, packed": milliseconds(lambda: f(x, out=row), 1.0),
        "vector, rows": milliseconds(lambda: g(w, x[0], out=column), 1.0),
    }


def ours_any_rows() -> Figures:
    """One program for each weight."""
    found: Figures = {}
    for k, columns in WEIGHTS:
        f = pliant.compile(packed(k, columns), threads=THREADS)
        for rows in ROWS:
            x, out = normal(rows, k), np.empty((rows, columns), np.float32)
            found[point(k, columns, rows)] = milliseconds(lambda f=f, x=x, out=out: f(x, out=out))
    return found


def ours_these_rows() -> Figures:
    """A program for each weight and number of rows."""
    found: Figures = {}
    for k, columns in WEIGHTS:
        for rows in ROWS:
            f = pliant.compile(packed(k, columns, rows), threads=THREADS)
            x, out = normal(rows, k), np.empty((rows, columns), np.float32)
            found[point(k, columns, rows)] = milliseconds(lambda f=f, x=x, out=out: f(x, out=out))
    return found


def peer_any_rows(multiply: Callable[[Any, Any], object], of: Callable[[Any], Any]) -> Figures:
    """The same products by a peer."""
    found: Figures = {}
    for k, columns in WEIGHTS:
        w = of(normal(k, columns))
        for rows in ROWS:
            x = of(normal(rows, k))
            found[point(k, columns, rows)] = milliseconds(lambda x=x, w=w: multiply(x, w))
    return found


def in_numpy(measure: Callable[..., Figures]) -> Figures:
    """What numpy takes."""
    return measure(np.matmul, lambda a: a)


def in_torch(measure: Callable[..., Figures]) -> Figures:
    """What torch takes."""
    import torch

    torch.set_num_threads(THREADS)
    with torch.inference_mode():
        return measure(torch.matmul, torch.from_numpy)


def limit(threads: int) -> Figures:
    """What products and readings would take at the machine's limits."""
    rate, speed = fma_rate(threads, 1.0), read_bandwidth(threads, 1.0)
    return {
        "large": 2e3 * LARGE**3 / rate,
        "small integers": 2e3 * SMALL_INTEGERS**3 / rate,
        "vector": 4e3 * VECTOR * VECTOR / speed,
    }


CONTESTANTS: dict[str, Callable[[], Figures]] = {
    "pliant 1": lambda: ours_large(1),
    "pliant 2": lambda: ours_large(THREADS),
    "numpy 2": lambda: in_numpy(peers_large),
    "torch 2": lambda: in_torch(peers_large),
    "limit 1": lambda: limit(1),
    "limit 2": lambda: limit(THREADS),
    "pliant small": ours_small_integers,
    "pliant gemv": ours_vector,
    "pliant any": ours_any_rows,
    "pliant these": ours_these_rows,
    "numpy any": lambda: in_numpy(peer_any_rows),
    "torch any": lambda: in_torch(peer_any_rows),
}
LARGE_POINTS = [
    (f"{threads} threads, {side}", f"pliant {threads}, large, {side}", threads) for threads in (1, 2) for side in ("packed", "plain")
]


def best_and_median(times: Times, names: list[str]) -> tuple[float, float] | None:
    """Of the contestants that there are the better one, by the best and by the median of the rounds."""
    found = [times[name] for name in names if name in times]
    return (min(map(min, found)), min(map(statistics.median, found))) if found else None


def compare(times: Times, ours: str, *theirs: str) -> tuple[float, float] | None:
    """How many times faster `ours` is than the better of `theirs`."""
    a, b = best_and_median(times, [ours]), best_and_median(times, list(theirs))
    return None if a is None or b is None else (b[0] / a[0], b[1] / a[1])


def show(what: str, found: tuple[float, float] | None, floor: str) -> None:
    """One line of the report, where it was measured."""
    if found is not None:
        print(f"{what:54} {found[0]:8.3f}x {found[1]:8.3f}x   floor {floor}")


def family(times: Times, ours: str, theirs: list[str], floor: str, worst: str) -> None:
    """The geometric mean and the worst point over weights and rows, and the table of points by the best."""
    points = [(k, columns, rows) for k, columns in WEIGHTS for rows in ROWS]
    found = {p: r for p in points if (r := compare(times, f"{ours}, {point(*p)}", *(f"{t}, {point(*p)}" for t in theirs)))}
    if not found:
        return
    print(f"\n{ours} against {' and '.join(theirs)}\n{'K x N':>12} M " + " ".join(f"{rows:5}" for rows in ROWS))
    for k, columns in WEIGHTS:
        print(f"{k:5} x {columns:5}  " + " ".join(f"{found[k, columns, rows][0]:5.2f}" for rows in ROWS if (k, columns, rows) in found))
    means = [math.exp(statistics.fmean(math.log(r[n]) for r in found.values())) for n in (0, 1)]
    show("geometric mean", (means[0], means[1]), floor)
    show("worst point", (min(r[0] for r in found.values()), min(r[1] for r in found.values())), worst)


def report(times: Times) -> None:
    """The ratios."""
    for what, ours, threads in LARGE_POINTS:
        floor = "0.86" if threads == 2 or "plain" in what else "0.90"
        show(f"of the FMA rate, {LARGE}^3, {what}", compare(times, ours, f"limit {threads}, large"), floor)
    show(
        "2 threads against numpy and torch, packed",
        compare(times, "pliant 2, large, packed", "numpy 2, large, plain", "torch 2, large, plain"),
        "-",
    )
    for kind in ("u8 i8", "i8 i8", "u8 u8", "7 bits"):
        floor = "1.6" if kind == "7 bits" else "1.4"
        show(f"times the f32 FMA rate, {kind}, 1 thread", compare(times, f"pliant small, {kind}", "limit 1, small integers"), floor)
    for side in ("packed", "rows"):
        show(
            f"of the read bandwidth, {VECTOR}^2 {side}, 2 threads",
            compare(times, f"pliant gemv, vector, {side}", "limit 2, vector"),
            "0.92",
        )
    family(times, "pliant any", ["numpy any", "torch any"], "1.05", "0.8")
    family(times, "pliant any", ["pliant these"], "0.95", "-")


if __name__ == "__main__":
    points = ("pliant any", "pliant these", "numpy any", "torch any")
    contest(__file__, __doc__, CONTESTANTS, "ms", report, lambda name: not name.startswith(points), {"OPENBLAS_NUM_THREADS": str(THREADS)})
