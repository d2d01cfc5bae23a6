"""Architectures of transformers and timm with random weights, at three sizes each: one in the normal suite, all with PLIANT_LONG=1."""

from __future__ import annotations

from random import Random

import pytest

from counts import FIRST, count
from torch_census import CASES, run

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
FALLING_BACK = {"mixtral"}  # it needs products over groups of rows, which have no rule


@pytest.mark.parametrize("name", Random(FIRST).sample([n for n in CASES if n not in FALLING_BACK], count(1, len(CASES) - 1)))
def test_an_architecture_agrees_with_eager(name: str) -> None:
    timm = CASES[name].make.__closure__ is not None and "timm" in CASES[name].make.__code__.co_names
    pytest.importorskip("timm" if timm else "transformers", reason="the package with this architecture is not installed")
    run(name)
