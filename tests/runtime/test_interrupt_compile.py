"""Ctrl-C while a program is compiled, and while a compiled kernel without any parallel loop runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pliant
from pliant import Out, Tensor, f32, kernel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX sends them")

PROGRAM = """
import sys
import numpy as np
import pliant
from pliant import InOut, Out, Tensor, block, dim, f32, grid, i64, init, kernel

n = dim("n")

@kernel
def matmul(a: Tensor[f32, n, 64], b: Tensor[f32, 64, 96], c: Out[f32, n, 96]) -> None:
    for i, j, k in grid(n, 96, 64):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]

@kernel(scheduled=True)
def endless(x: InOut[i64, 1]) -> None:
    for i in range(1000000000000):
        for j in range(1000):
            x[0] = x[0] * 3 + j

try:
    if sys.argv[1] == "compile":
        print("ready", flush=True)
        while True:
            pliant.compile(matmul, cache=False)
            pliant.compile(matmul)
    if sys.argv[1] == "run":
        f = pliant.compile(endless)
        x = np.ones(1, np.int64)
        print("ready", flush=True)
        f(x)
    a, b = np.ones((5, 64), np.float32), np.ones((64, 96), np.float32)
    assert (pliant.compile(matmul)(a, b) == 64).all()
    print("right", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def start(tmp_path: Path, what: str) -> subprocess.Popen[str]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    env = {**os.environ, "PLIANT_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen([sys.executable, str(file), what], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupted(child: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed until it ended, asked twice as a user would: Python drops an interrupt that comes while a finalizer runs
    (import locks and llvmlite's modules have some, ours none: tests/unit/test_sym_interning.py)."""
    child.send_signal(signal.SIGINT)
    try:
        return child.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        return child.communicate(timeout=60)


def test_ctrl_c_while_a_class_of_the_compiler_is_made_is_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    @kernel
    def double(x: Tensor[f32, 4], y: Out[f32, 4]) -> None:
        for i in range(4):
            y[i] = x[i] * 2.0

    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    def importing(*args: object, **options: object) -> None:
        type("Record", (), {"field": Interrupted()})

    monkeypatch.setattr("pliant.api.compile_program", importing)
    with pytest.raises(KeyboardInterrupt):
        pliant.compile(double)


@pytest.mark.parametrize("delay", [0.02, 0.15, 0.4])
def test_ctrl_c_while_compiling(tmp_path: Path, delay: float) -> None:
    child = start(tmp_path, "compile")
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(delay)
    out, err = interrupted(child)
    assert out == "interrupted\n", err
    out, err = start(tmp_path, "check").communicate(timeout=120)
    assert out == "right\n", err


def test_ctrl_c_in_a_long_serial_kernel(tmp_path: Path) -> None:
    child = start(tmp_path, "run")
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert out == "interrupted\n", err
