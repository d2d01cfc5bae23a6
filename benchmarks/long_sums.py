"""The kernels whose sums are in parts, timed: run it in turns with another checkout of this repository, and compare the best.

    for round in 1 2 3; do PYTHONPATH=src python benchmarks/long_sums.py; PYTHONPATH=../base/src python benchmarks/long_sums.py; done

Each line is the best of some rounds in microseconds, on as many threads as PLIANT_NUM_THREADS says. The programs need nothing but the
public interface, so that older checkouts run them as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pliant
from pliant import Tensor, dim, f32, function, ops

n, m, k, h, w = dim("n"), dim("m"), dim("k"), dim("h"), dim("w")
RNG = np.random.default_rng(0)
SECONDS = 0.3  # for each kernel
CENTRE = np.zeros((16, 16, 3, 3), np.float32)
CENTRE[np.arange(16), np.arange(16), 1, 1] = 1


def normal(*shape: int) -> Any:
    """Numbers to sum."""
    return RNG.standard_normal(shape).astype(np.float32)


def packed(depth: int) -> Any:
    """A product with a literal."""
    weight = normal(depth, 256)

    @function
    def product(x: Tensor[f32, n, depth]) -> Tensor[f32, n, 256]:
        return x @ ops.constant(weight)

    return product


@function
def product(x: Tensor[f32, n, k], y: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
    return x @ y


@function
def row(x: Tensor[f32, 1, 2048], y: Tensor[f32, 2048, 2048]) -> Tensor[f32, 1, 2048]:
    return x @ y


def convolution(channels: int) -> Any:
    """A convolution between others, whose images lie in blocks of channels."""
    weight = normal(channels, channels, 3, 3)

    @function
    def convolved(x: Tensor[f32, 1, channels, h, w]) -> Tensor[f32, 1, channels, h, w]:
        y = ops.conv(x, ops.constant(weight), padding=1)
        return ops.conv(y, ops.constant(weight), padding=1)

    return convolved


@function
def mean_in_blocks(x: Tensor[f32, 1, 16, h, w]) -> Tensor[f32, 1, 16, 1, 1]:
    return ops.global_avg_pool(ops.conv(x, ops.constant(CENTRE), padding=1))


@function
def mean_of_columns(x: Tensor[f32, n, m]) -> Tensor[f32, m]:
    return ops.mean(x, axis=0)


@function
def sum_of_rows(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
    return ops.sum(x, axis=1)


@function
def softmax(x: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
    return ops.softmax(x)


@function
def layer_norm(x: Tensor[f32, n, m], weight: Tensor[f32, m], bias: Tensor[f32, m]) -> Tensor[f32, n, m]:
    return ops.layer_norm(x, weight, bias)


@function
def group_norm(x: Tensor[f32, n, 32, h, w]) -> Tensor[f32, n, 32, h, w]:
    return ops.group_norm(x, groups=8)


@function
def total(x: Tensor[f32, n]) -> Tensor[f32]:
    return ops.sum(x)


@function
def variance_of_rows(x: Tensor[f32, n, m]) -> Tensor[f32, n]:
    return ops.var(x, axis=1)


@function
def variance_of_columns(x: Tensor[f32, n, m]) -> Tensor[f32, m]:
    return ops.var(x, axis=0)


@function
def sum_of_short_rows(x: Tensor[f32, n, 12]) -> Tensor[f32, n]:
    return ops.sum(x, axis=1)


@function
def mean_of_few_columns(x: Tensor[f32, 16, m]) -> Tensor[f32, m]:
    return ops.mean(x, axis=0)


@function
def pool(x: Tensor[f32, 1, 16, h, w]) -> Tensor[f32, 1, 16, h - 2, w - 2]:
    return ops.avg_pool(x, 3, stride=1)


KERNELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]]]] = {
    "product, 384 terms": (lambda: packed(384), lambda: (normal(128, 384),)),
    "product, 1024 terms": (lambda: packed(1024), lambda: (normal(128, 1024),)),
    "product, any sizes, 100 terms": (lambda: product, lambda: (normal(120, 100), normal(100, 160))),
    "product, any sizes, 1000 terms": (lambda: product, lambda: (normal(120, 1000), normal(1000, 160))),
    "row times matrix": (lambda: row, lambda: (normal(1, 2048), normal(2048, 2048))),
    "convolutions, 32 channels": (lambda: convolution(32), lambda: (normal(1, 32, 40, 40),)),
    "convolutions, 64 channels": (lambda: convolution(64), lambda: (normal(1, 64, 40, 40),)),
    "convolutions, 128 channels": (lambda: convolution(128), lambda: (normal(1, 128, 20, 20),)),
    "mean of 80x80 in blocks": (lambda: mean_in_blocks, lambda: (normal(1, 16, 80, 80),)),
    "mean of 7x7 in blocks": (lambda: mean_in_blocks, lambda: (normal(1, 16, 7, 7),)),
    "mean of columns": (lambda: mean_of_columns, lambda: (normal(1000, 1024),)),
    "sum of rows of 64": (lambda: sum_of_rows, lambda: (normal(4096, 64),)),
    "sum of rows of 1024": (lambda: sum_of_rows, lambda: (normal(512, 1024),)),
    "softmax of rows of 1024": (lambda: softmax, lambda: (normal(512, 1024),)),
    "norm of rows of 384": (lambda: layer_norm, lambda: (normal(128, 384), normal(384), normal(384))),
    "norm of groups": (lambda: group_norm, lambda: (normal(1, 32, 40, 40),)),
    "variance of rows of 64": (lambda: variance_of_rows, lambda: (normal(1024, 64),)),
    "variance of rows of 384": (lambda: variance_of_rows, lambda: (normal(256, 384),)),
    "variance of rows of 1024": (lambda: variance_of_rows, lambda: (normal(128, 1024),)),
    "variance of rows of 4096": (lambda: variance_of_rows, lambda: (normal(32, 4096),)),
    "variance of 128 columns": (lambda: variance_of_columns, lambda: (normal(128, 1024),)),
    "variance of 1000 columns": (lambda: variance_of_columns, lambda: (normal(1000, 1024),)),
    "sum of rows of 12": (lambda: sum_of_short_rows, lambda: (normal(4096, 12),)),
    "mean of 16 columns": (lambda: mean_of_few_columns, lambda: (normal(16, 4096),)),
    "pool of 3x3": (lambda: pool, lambda: (normal(1, 16, 40, 40),)),
    "sum of a million": (lambda: total, lambda: (normal(1_000_000),)),
}


def best(call: Callable[[], object]) -> float:
    """The best time of a call in microseconds."""
    call()
    found, end = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - begin)
    return found * 1e6


def main() -> None:
    """Print the table, or the lines with a word of the command in their names."""
    words = sys.argv[1:]
    for name, (make, arguments) in KERNELS.items():
        if words and not any(word in name for word in words):
            continue
        compiled, given = pliant.compile(make()), arguments()
        print(f"{name:34} {best(lambda compiled=compiled, given=given: compiled(*given)):10.1f}", flush=True)  # type: ignore[misc]


if __name__ == "__main__":
    main()
