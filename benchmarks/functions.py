"""Functions over 4096 f32 in the cache, on one thread, against numpy's (erf and sigmoid: scipy's).

Each contestant runs in a child process of its own, in alternating rounds; the table shows the best and the median of the rounds.

    python benchmarks/functions.py [--rounds 5]

A call has a price whatever it computes: the contestants `call` do the same with 16 elements. The first ratios are of whole calls,
the second of what 4096 elements cost more than 16.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from contest import Times, contest, ratio
from pliant import Out, Tensor, block, compile, dim, erf, exp, f32, kernel, log, sigmoid, sin, tanh

n = dim("n")


@kernel
def exp_kernel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = exp(x[v])


@kernel
def tanh_kernel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = tanh(x[v])


@kernel
def log_kernel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = log(x[v])


@kernel
def sin_kernel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = sin(x[v])


@kernel
def erf_kernel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = erf(x[v])


@kernel
def sigmoid_kernel(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        with block("y", "S", i) as v:
            y[v] = sigmoid(x[v])


KERNELS = {"exp": exp_kernel, "tanh": tanh_kernel, "log": log_kernel, "sin": sin_kernel, "erf": erf_kernel, "sigmoid": sigmoid_kernel}
SCIPY = {"erf": "erf", "sigmoid": "expit"}
SIZE, SMALL = 4096, 16


def microseconds(call: Callable[[], object], rounds: int = 400, calls: int = 20) -> float:
    """The best mean of `calls` calls."""
    call()
    best = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, time.perf_counter() - begin)
    return best / calls * 1e6


def arrays(size: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).uniform(0.01, 5, size).astype(np.float32)
    return x, np.empty_like(x)


def measure_pliant(name: str, size: int) -> float:
    """Microseconds of a call of the compiled kernel."""
    f = compile(KERNELS[name], threads=1)
    x, y = arrays(size)
    return microseconds(lambda: f(x, out=y))


def measure_peer(name: str, size: int) -> float:
    """Microseconds of a call of numpy's or scipy's function."""
    if name in SCIPY:
        import scipy.special

        function = getattr(scipy.special, SCIPY[name])
    else:
        function = getattr(np, name)
    x, y = arrays(size)
    return microseconds(lambda: function(x, out=y))


def peer(name: str) -> str:
    return "scipy" if name in SCIPY else "numpy"


CONTESTANTS: dict[str, Callable[[], float]] = {
    "call: pliant": lambda: measure_pliant("exp", SMALL),
    "call: numpy": lambda: measure_peer("exp", SMALL),
}
for _name in KERNELS:
    CONTESTANTS[f"{_name}: pliant"] = lambda name=_name: measure_pliant(name, SIZE)
    CONTESTANTS[f"{_name}: {peer(_name)}"] = lambda name=_name: measure_peer(name, SIZE)


def report(times: Times) -> None:
    """Ratios of whole calls, and without what a call costs."""
    for name in KERNELS:
        ours, theirs = f"{name}: pliant", f"{name}: {peer(name)}"
        ratio(times, ours, theirs, f"{name}, calls")
        if ours in times and theirs in times:
            less = {k: statistics.median(times[f"call: {k}"]) for k in ("pliant", "numpy")}
            net = {ours: [t - less["pliant"] for t in times[ours]], theirs: [t - less["numpy"] for t in times[theirs]]}
            ratio(net, ours, theirs, f"{name}, without the price of a call")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, unit="us", report=report)
