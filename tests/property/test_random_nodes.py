"""Random models of one ONNX operator: each gives what the standard says, or is refused in words that name the node."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from counts import seeds

pytest.importorskip("onnx", reason="models are made of the package's own cases")
import pliant.onnx_backend as backend
from onnx_suite import by_accident, compare
from pliant.support.errors import Error, InternalError
from random_nodes import RandomNode, random_node

BATCH = 25
COMPILED = 12  # one model in so many is compiled


def results(case: RandomNode, interpret: bool) -> list[Any] | str:
    """The results, or why there are none."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(backend.prepare(case.model, interpret=interpret).run(case.inputs))
    except InternalError:
        raise
    except Error as error:
        assert error.what and not by_accident(error), str(error)
        if case.same:
            assert case.left_out(error), str(error)
        return str(error)


def check(seed: int) -> None:
    case = random_node(seed)
    found = results(case, seed % COMPILED != 0)
    if isinstance(found, str) or case.wanted is None:
        return
    assert len(found) == len(case.wanted)
    for a, b in zip(found, case.wanted, strict=True):
        compare(a, b, case.rtol, max(case.atol, 1e-6))


def problem(seed: int) -> str:
    """What is wrong with the model of a seed; "" where nothing is."""
    try:
        check(seed)
    except Exception as error:
        case = random_node(seed)
        return f"seed {seed}, {case.name}, {', '.join(case.done)}: {type(error).__name__}: {str(error).strip()[:600]}"
    return ""


@pytest.mark.parametrize("first", seeds(500, 50_000, BATCH))
def test_a_node_is_right_or_refused(first: int) -> None:
    wrong = [p for p in map(problem, range(first, first + BATCH)) if p]
    assert not wrong, "\n\n".join(wrong)
