"""Import rules of ATen operators against OpInfo's samples: a seeded share of the entries, all of them with PLIANT_LONG=1."""

from __future__ import annotations

import json
import os
from random import Random

import pytest

from counts import FIRST, count

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("expecttest", reason="OpInfo needs the package expecttest")
from torch_opinfo import FAILURES, in_scope, outcomes

SAMPLES = 2


def test_samples_pass_but_those_that_are_expected_to_fail() -> None:
    """The file of expected failures may only shrink: with all entries, one that passes has to be taken out."""
    expected = {(name, dtype) for name, dtypes in json.loads(FAILURES.read_text(encoding="utf-8")).items() for dtype in dtypes}
    names = in_scope()
    chosen = Random(FIRST).sample(names, count(6, len(names)))
    failed = {(name, dtype): text for name, dtype, text in outcomes(chosen, SAMPLES) if text}
    assert {pair: text for pair, text in failed.items() if pair not in expected} == {}
    if os.environ.get("PLIANT_LONG") == "1":
        assert sorted(expected - set(failed)) == []


def test_the_expected_failures_are_in_scope() -> None:
    assert set(json.loads(FAILURES.read_text(encoding="utf-8"))) <= set(in_scope())
