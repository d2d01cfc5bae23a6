"""Random ONNX files: weights are what was stored, in whichever way; a file with something wrong is refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from counts import seeds

pytest.importorskip("onnx", reason="models are made with the package onnx")
from onnx_suite import by_accident
from pliant.frontends.onnx import from_onnx
from pliant.interp.graph import run_graph
from pliant.support.errors import Error, InternalError
from random_files import random_file

BATCH = 40


def problem(seed: int, folder: Path) -> str:
    """What is wrong with the file of a seed; "" where nothing is."""
    made = random_file(seed, folder)
    story = f"seed {seed}, {', '.join(made.story)}"
    try:
        found = run_graph(from_onnx(made.source).entry, [made.x])
    except InternalError as error:
        return f"{story}: internal error {error}"
    except Error as error:
        return "" if made.wanted is None and error.what and not by_accident(error) else f"{story}: refused: {error}"
    except Exception as error:
        return f"{story}: {type(error).__name__}: {error}"
    if made.wanted is None:
        return f"{story}: it has to be refused"
    return "" if np.array_equal(np.asarray(found[0]), made.wanted) else f"{story}: {found[0]}, expected {made.wanted}"


@pytest.mark.parametrize("first", seeds(120, 12_000, BATCH))
def test_files_are_read_or_refused(first: int, tmp_path: Path) -> None:
    wrong = [p for p in (problem(seed, tmp_path) for seed in range(first, first + BATCH)) if p]
    assert not wrong, "\n\n".join(wrong)
