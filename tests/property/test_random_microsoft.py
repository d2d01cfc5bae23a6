"""Random nodes of the domain com.microsoft give what numpy says; what is not supported is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from counts import seeds

pytest.importorskip("onnx", reason="models are made with the package onnx")
import pliant.onnx_backend as backend
from onnx_suite import by_accident
from pliant.support.errors import Error, InternalError
from random_microsoft import Node, random_node

BATCH = 25
COMPILED = 25  # one node in so many is compiled


def check(node: Node, interpret: bool) -> None:
    try:
        with np.errstate(all="ignore"):
            found = backend.prepare(node.model, interpret=interpret).run(node.feeds)
    except InternalError:
        raise
    except Error as error:
        assert node.wanted is None, str(error)
        assert node.op in str(error) and not by_accident(error), str(error)
        return
    assert node.wanted is not None, "it has to be refused"
    for a, b in zip(found, (w for w in node.wanted if w is not None), strict=True):
        b = np.asarray(b)
        assert a.shape == b.shape
        close = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= node.near * np.maximum(1, 0 if b.dtype.kind in "iu" else np.abs(b))
        assert close.all(), f"{a}\n{b}"


def problem(seed: int) -> str:
    """What is wrong with the node of a seed; "" where nothing is."""
    node = random_node(seed)
    try:
        check(node, seed % COMPILED != 0)
    except Exception as error:
        shapes = [None if a is None else np.shape(a) for a in node.inputs]
        return f"seed {seed}, {node.op} {node.attributes} of {shapes}: {type(error).__name__}: {str(error).strip()[:600]}"
    return ""


@pytest.mark.parametrize("first", seeds(250, 25_000, BATCH))
def test_a_node_is_right_or_refused(first: int) -> None:
    wrong = [p for p in map(problem, range(first, first + BATCH)) if p]
    assert not wrong, "\n\n".join(wrong)
