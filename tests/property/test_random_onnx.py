"""Random ONNX models: imported once, they give what onnx.reference gives, for several shapes; some are compiled."""

from __future__ import annotations

import random

import numpy as np
import pytest

from counts import FIRST, count

pytest.importorskip("onnx", reason="models are made with the package onnx, which has the reference too")
from onnx.reference import ReferenceEvaluator

import pliant.onnx_backend as backend
from random_onnx import DIMS, random_model


def check(seed: int, interpret: bool) -> None:
    dice = random.Random(seed)
    model = random_model(dice, dice.randrange(3, 14))
    if not model.graph.output:
        return
    reference, ours = ReferenceEvaluator(model), backend.prepare(model, interpret=interpret)
    for n, m in ((DIMS["n"], DIMS["m"]), (1, 2), (4, 1)):
        rng = np.random.default_rng(seed)
        feeds = {f"x{k}": rng.standard_normal(s).astype(np.float32) for k, s in enumerate([(n, 4), (n, 6, m), (m, 4)])}
        with np.errstate(all="ignore"):
            wanted, found = reference.run(None, feeds), ours.run(feeds)
        for a, b in zip(found, wanted, strict=True):
            assert a.shape == b.shape, (seed, n, m)
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}, n {n}, m {m}")


@pytest.mark.parametrize("part", range(4))
def test_imported(part: int) -> None:
    for seed in range(FIRST + part * 1000, FIRST + part * 1000 + count(15, 1000)):
        check(seed, True)


def test_compiled() -> None:
    for seed in range(count(3, 300)):
        check(FIRST + 9000 + seed, False)
