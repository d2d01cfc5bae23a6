"""A small kernel with decisions, for tests of tuning, and what such tests need around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pliant import Out, Tensor, block, dim, f32, grid, init, kernel
from pliant.program import Program
from pliant.target import target
from pliant.tune.tasks import Task, samples_of, tasks_of

n = dim("n")


@kernel
def matmul(a: Tensor[f32, n, 16], b: Tensor[f32, 16, 32], c: Out[f32, n, 32]) -> None:
    for i, j, k in grid(n, 32, 16):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


def task(size: int = 5) -> Task:
    """The task of the kernel, measured at one size."""
    program = Program.of_kernel(matmul.func)
    tasks, left_out = tasks_of(program, target("native"), samples_of(program, {"n": [size]}))
    assert left_out == [] and len(tasks) == 1
    return tasks[0]


@contextmanager
def own_cache(folder: Path) -> Iterator[Path]:
    """A cache folder of its own: no records of other tests or of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIANT_CACHE", str(folder))
        yield folder
