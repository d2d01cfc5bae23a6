"""The notebooks of docs/notebooks: their cells run in order, and are kept without outputs."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    if "onnx" in notebook.stem:
        pytest.importorskip("onnx", reason="it needs the package onnx")
    read = json.loads(notebook.read_text(encoding="utf-8"))
    assert read["nbformat"] == 4 and read["cells"][0]["cell_type"] == "markdown"
    cells = [cell for cell in read["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names: dict[str, object] = {"__name__": "notebook"}
    for number, cell in enumerate(cells):
        file = tmp_path / f"cell_{number}.py"  # kernels are read from their file
        file.write_text("".join(cell["source"]), encoding="utf-8")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
        except Exception as problem:
            problem.add_note(f"in cell {number} of the code of {notebook.name}")
            raise
