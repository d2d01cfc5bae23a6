"""Softmax, norms, argmax and reductions over 512 x 1024 against torch and numpy, with 2 threads (PLIANT_NUM_THREADS says otherwise).

`copy` is the machine's limit for what reads and writes as much as softmax does: 2 MB in, 2 MB out. Arguments lie where numpy puts them,
16 bytes behind a cache line mostly, so that every vector of 64 bytes is in two lines; results are aligned, as torch's are.

python benchmarks/rows.py [--rounds 5]
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pliant
from contest import Times, contest, ratio
from pliant import Tensor, dim, f32, function, i64, ops

THREADS = int(os.environ.get("PLIANT_NUM_THREADS", "2"))
n, m, h, w = dim("n"), dim("m"), dim("h"), dim("w")


@function
def copy(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return x * 2.0


@function
def softmax(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return ops.softmax(x)


@function
def layer_norm(x: Tensor[f32, n, m], weight: Tensor[f32, m], bias: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.layer_norm(x, weight, bias)


@function
def rms_norm(x: Tensor[f32, n, m], weight: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.rms_norm(x, weight)


@function
def argmax_rows(x: Tensor[f32, n, m]) -> Tensor[i64, n]:
    return ops.argmax(x, axis=1)


@function
def argmax_columns(x: Tensor[f32, n, m]) -> Tensor[i64, m]:
    return ops.argmax(x, axis=0)


@function
def sum_rows(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
    return ops.sum(x, axis=1)


@function
def sum_columns(x: Tensor[f32, n, m]) -> Tensor[f32, m]:
    return ops.sum(x, axis=0)


@function
def sum_all(x: Tensor[f32, n, m]) -> Tensor[f32]:
    return ops.sum(x)


@function
def average_pool(x: Tensor[f32, n, m, h, w]) -> Tensor[f32, n, m]:
    return ops.mean(x, axis=(2, 3))


FUNCTIONS: dict[str, Any] = {
    f.__name__: f
    for f in (copy, softmax, layer_norm, rms_norm, argmax_rows, argmax_columns, sum_rows, sum_columns, sum_all, average_pool)
}  # fmt: skip
SHAPES = {"layer_norm": [(512, 1024), (1024,), (1024,)], "rms_norm": [(512, 1024), (1024,)], "average_pool": [(1, 2048, 15, 17)]}


def arguments(name: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype(np.float32) for s in SHAPES.get(name, [(512, 1024)])]


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
    f: Any = pliant.compile(FUNCTIONS[name], threads=THREADS)
    given = arguments(name)
    return best(lambda: f(*given))


def theirs(name: str) -> float:
    import torch

    torch.set_num_threads(THREADS)
    run: dict[str, Callable[..., object]] = {
        "copy": lambda x: x * 2.0,
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x, weight, bias: torch.nn.functional.layer_norm(x, (1024,), weight, bias),
        "rms_norm": lambda x, weight: torch.nn.functional.rms_norm(x, (1024,), weight, 1e-5),
        "argmax_rows": lambda x: torch.argmax(x, 1),
        "argmax_columns": lambda x: torch.argmax(x, 0),
        "sum_rows": lambda x: x.sum(1),
        "sum_columns": lambda x: x.sum(0),
        "sum_all": lambda x: x.sum(),
        "average_pool": lambda x: x.mean((2, 3)),
    }
    given = [torch.from_numpy(a) for a in arguments(name)]
    return best(lambda: run[name](*given))


def in_numpy(name: str) -> float:
    def exponentials(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    def normalized(x: Any, weight: Any, bias: Any) -> Any:
        c = x - x.mean(axis=1, keepdims=True)
        return c / np.sqrt((c * c).mean(axis=1, keepdims=True) + 1e-5) * weight + bias

    run: dict[str, Callable[..., object]] = {
        "copy": np.copy,
        "softmax": exponentials,
        "layer_norm": normalized,
        "rms_norm": lambda x, weight: x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * weight,
        "argmax_rows": lambda x: x.argmax(1),
        "argmax_columns": lambda x: x.argmax(0),
        "sum_rows": lambda x: x.sum(1),
        "sum_columns": lambda x: x.sum(0),
        "sum_all": lambda x: x.sum(),
        "average_pool": lambda x: x.mean((2, 3)),
    }
    given = arguments(name)
    return best(lambda: run[name](*given), rounds=50)


MEASURES = {"pliant": ours, "torch": theirs, "numpy": in_numpy}
CONTESTANTS = {f"{who} {name}": (lambda f=f, name=name: f(name)) for name in FUNCTIONS for who, f in MEASURES.items()}


def report(times: Times) -> None:
    """How many times faster than torch, and than numpy; and how far softmax and norms are from the machine's limit."""
    for name in FUNCTIONS:
        for peer in ("torch", "numpy"):
            ratio(times, f"pliant {name}", f"{peer} {name}", f"{name}, against {peer}")
    for name in ("softmax", "layer_norm", "rms_norm"):
        ratio(times, f"pliant {name}", "pliant copy", f"{name}, against a copy")


if __name__ == "__main__":
    contest(__file__, __doc__, CONTESTANTS, unit=f"microseconds, {THREADS} threads", report=report)
