"""Artifacts that earlier commits wrote still load: their code is taken where it fits, else their program is compiled with a notice.

`tests/kept_artifacts` has files of commit f442c849, the first that wrote artifacts, and of 349e2b59, with PLIANT_CPU=x86-64-v2. Both hold

    @function
    def layer(x: Tensor[f32, n, 32]) -> Tensor[f32, n, 8]:
        return ops.relu(x @ w) + 1.0
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pliant

FILES = sorted((Path(__file__).parents[1] / "kept_artifacts").glob("*.pliant"))
WEIGHT = (np.arange(32 * 8) % 7 - 3).astype(np.float32).reshape(32, 8) / 8


def test_the_files_are_there() -> None:
    assert [file.stem for file in FILES] == ["first_form", "version_0_1_0"]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
@pytest.mark.parametrize("recompile", [False, True])
def test_an_old_artifact_loads(file: Path, recompile: bool, capsys: pytest.CaptureFixture[str]) -> None:
    f = pliant.load(file, recompile=recompile, verify=True)
    notice = capsys.readouterr().err
    assert notice == "" or (not recompile and "has no code for this machine" in notice and "compiling it" in notice)
    assert [(d.name, d.max) for d in f.dims] == [("n", 512)]
    for rows in (0, 1, 7):
        x = (np.arange(rows * 32) % 5 - 2).astype(np.float32).reshape(rows, 32)  # sums of eighths: no rounding
        np.testing.assert_array_equal(f(x), np.maximum(x @ WEIGHT, 0) + 1)
