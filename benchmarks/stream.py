"""`y = a*x + y` on 64 M f32, 2 threads: a plain kernel under the default rules, numpy, and a loop of ours written by hand.

python benchmarks/stream.py [--rounds 5]
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pliant
from contest import Times, contest, ratio
from pliant import InOut, Tensor, dim, f32, fma, kernel, parallel, vector
from pliant.machine_peak import best_time

SIZE = 64 * 2**20

n = dim("n")


@kernel
def axpy(a: f32, x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    """As a user writes it."""
    for i in range(n):
        y[i] = a * x[i] + y[i]


@kernel(scheduled=True)
def by_hand(a: f32, x: Tensor[f32, n], y: InOut[f32, n]) -> None:
    """Chunks of 64 Ki elements for the threads, vectors inside."""
    for c in parallel((n + 65535) // 65536, grain=1):
        for i in vector(c * 65536, min(n, c * 65536 + 65536)):
            y[i] = fma(a, x[i], y[i])


def ours(program: Any) -> float:
    """Milliseconds of a kernel."""
    f = pliant.compile(program, threads=2)
    x, y = np.ones(SIZE, np.float32), np.ones(SIZE, np.float32)
    return best_time(lambda: f(0.5, x, y), 3.0) * 1e3


def in_numpy() -> float:
    """Milliseconds in numpy, without temporaries that need not be."""
    x, y, t = np.ones(SIZE, np.float32), np.ones(SIZE, np.float32), np.empty(SIZE, np.float32)

    def run() -> None:
        np.multiply(x, np.float32(0.5), out=t)
        np.add(t, y, out=y)

    return best_time(run, 3.0) * 1e3


CONTESTANTS = {"pliant, default rules": lambda: ours(axpy), "pliant, by hand": lambda: ours(by_hand), "numpy": in_numpy}


def report(times: Times) -> None:
    """The ratios."""
    ratio(times, "pliant, default rules", "pliant, by hand", "default rules against by hand")
    ratio(times, "pliant, default rules", "numpy", "default rules against numpy")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, "ms", report)
