"""What the environment asks of the compiler: steps to show, optimizations to leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.pipeline import STEPS
from pliant.support.errors import Error
from pliant.support.settings import read

n = dim("n", max=4096)


@function
def f(x: Tensor[f32, n, n]) -> Tensor[f32, n, n]:
    y = ops.softmax(x @ x) @ x
    return ops.exp(y @ x) * 0.5


def test_names_are_read_from_the_environment() -> None:
    assert read({"PLIANT_DISABLE": " fuse,plan, "}).disable == {"fuse", "plan"}
    assert not read({}).disable
    assert read({"PLIANT_SHOW": "host"}).shows("host")
    assert not read({"PLIANT_SHOW": "host"}).shows("fuse")
    assert read({"PLIANT_SHOW": "all"}).shows("fuse")


@pytest.mark.parametrize("left_out", ["", "fuse", "plan", ",".join(s.name for s in STEPS if s.optional)])
def test_a_program_means_the_same_without_optimizations(left_out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (5, 5)).astype(np.float32)
    e = np.exp(x @ x)
    expected: Any = np.exp(e / e.sum(-1, keepdims=True) @ x @ x) * 0.5
    monkeypatch.setenv("PLIANT_DISABLE", left_out)
    np.testing.assert_allclose(pliant.compile(f)(x), expected, rtol=1e-4)


def test_what_each_is_worth_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = pliant.compile(f)
    monkeypatch.setenv("PLIANT_DISABLE", "fuse")
    assert len(pliant.compile(f).interface.kernels) > len(usual.interface.kernels)
    monkeypatch.setenv("PLIANT_DISABLE", "plan")
    assert pliant.compile(f).workspace(n=64) > usual.workspace(n=64)


def test_an_unknown_optimisation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fusion", "host"):
        monkeypatch.setenv("PLIANT_DISABLE", name)
        with pytest.raises(Error, match=f"no optimization `{name}`"):
            pliant.compile(f)
