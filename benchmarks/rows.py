"""Softmax and layer norm over 512 x 1024 against torch and numpy, with 2 threads (PLIANT_NUM_THREADS says otherwise).

python benchmarks/rows.py [--rounds 5]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from contest import Times, contest, ratio

import pliant
from pliant import Tensor, dim, f32, function, ops

THREADS = int(os.environ.get("PLIANT_NUM_THREADS", "2"))
n = dim("n")
m = dim("m")


@function
def softmax(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return ops.softmax(x)


@function
def layer_norm(x: Tensor[f32, n, m], w: Tensor[f32, m], b: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.layer_norm(x, w, b)


def arguments(name: str) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [(512, 1024), (1024,), (1024,)][: 1 if name == "softmax" else 3]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def best(run: Callable[[], object], rounds: int = 500) -> float:
    """Microseconds of the shortest run."""
    run(), run()
    found = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - begin)
    return found * 1e6


def ours(name: str) -> float:
    f: Any = pliant.compile({"softmax": softmax, "layer_norm": layer_norm}[name], threads=THREADS)
    given = arguments(name)
    return best(lambda: f(*given))


def theirs(name: str) -> float:
    import torch

    torch.set_num_threads(THREADS)
    x, *rest = (torch.from_numpy(a) for a in arguments(name))
    if name == "softmax":
        return best(lambda: torch.softmax(x, -1))
    return best(lambda: torch.nn.functional.layer_norm(x, (1024,), *rest))


def in_numpy(name: str) -> float:
    x, *rest = arguments(name)

    def exponentials() -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def normalised() -> Any:
        c = x - x.mean(axis=1, keepdims=True)
        return c / np.sqrt((c * c).mean(axis=1, keepdims=True) + 1e-5) * rest[0] + rest[1]

    return best(exponentials if name == "softmax" else normalised, rounds=50)


MEASURES = {"pliant": ours, "torch": theirs, "numpy": in_numpy}
CONTESTANTS = {f"{who} {name}": (lambda f=f, name=name: f(name)) for name in ("softmax", "layer_norm") for who, f in MEASURES.items()}


def report(times: Times) -> None:
    """How many times faster than torch, and than numpy."""
    for name in ("softmax", "layer_norm"):
        for peer in ("torch", "numpy"):
            ratio(times, f"pliant {name}", f"{peer} {name}", f"{name}, against {peer}")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, unit=f"microseconds, {THREADS} threads", report=report)
