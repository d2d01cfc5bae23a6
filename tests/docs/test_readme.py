"""README.md: its lines for models of other frameworks run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """The blocks of Python that need the package `kind`."""
    return re.findall(rf"^```python {kind}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def run(block: str, **names: Any) -> dict[str, Any]:
    """Runs a block in a namespace, and returns what it has then."""
    exec(compile(block, "README.md", "exec"), names)
    return names


def test_the_lines_for_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx = pytest.importorskip("onnx", reason="they need the package onnx")
    monkeypatch.chdir(tmp_path)
    header = '<ir_version: 8, opset_import: ["" : 17]> net (float[n, 4] x) => (float[n, 4] y)'
    onnx.save(onnx.parser.parse_model(header + " { h = Add(x, x) y = Relu(h) }"), "model.onnx")
    assert len(blocks("onnx")) == 2
    for block in blocks("onnx"):
        for rows in (1, 5):
            x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
            np.testing.assert_array_equal(run(block, x=x)["y"], np.maximum(x + x, 0))


def test_the_lines_for_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="they need the package torch")
    import pliant

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return (x + x).relu()

    (block,) = blocks("torch")
    x = torch.randn(3, 4)
    names = run(block, torch=torch, pliant=pliant, model=Net().eval(), x=x)
    with torch.no_grad():
        for y in (names["y"], names["f"](x), names["model"](x)):
            torch.testing.assert_close(y, (x + x).relu(), rtol=0, atol=0)
