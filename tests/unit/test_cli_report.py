"""`pliant report` and `pliant run --report`: a page about an ONNX model, with times or without."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_report import check

from pliant.cli import main
from pliant.cli.model_options import example_dims
from pliant.report import facts
from pliant.report.profile import Limits

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 4, m] x) => (float[batch, 4, m] y) {
    a = Exp(x)
    b = MatMul(w, a)
    y = Softmax(b)
}"""
NAMES = ("/body/block.0/Exp", "/body/block.0/MatMul", "/body/block.1/Softmax")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of two blocks, and a machine whose limits need no measuring."""
    proto = onnx.parser.parse_model(TEXT)
    for node, name in zip(proto.graph.node, NAMES, strict=True):
        node.name = name
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))
    onnx.save(proto, tmp_path / "model.onnx")
    monkeypatch.setattr(facts, "limits", lambda threads: Limits(1e11, 1e10))
    monkeypatch.chdir(tmp_path)
    return str(tmp_path / "model.onnx")


def test_a_page_with_times(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", model, "--dim", "m=3", "--repeat", "3", "--trace", "trace.json", "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["file"] == "model.html" and found["runs"] == 3 and found["dims"] == {"batch": 1, "m": 3}
    assert 0 < found["seconds"] <= found["median_seconds"] and "batch = 1; --dim sets other sizes" in shown.err
    spans = {e["name"]: e["dur"] for e in json.loads(Path("trace.json").read_text())["traceEvents"] if e["ph"] == "X"}
    assert "/body/block.0/MatMul" in spans and spans["/body"] >= spans["/body/block"] > 0
    page = Path("model.html").read_text()
    check(page)
    assert "fastest of 3 runs" in page and 'id="times"' in page
    for part in ("body", "block", "0", "1"):
        assert f'<summary class="row">{part} ' in page or f'<div class="row">{part}' in page


def test_a_page_without_a_run(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", model, "--no-run", "-o", "other.html"]) == 0
    assert capsys.readouterr().out == "other.html: not run\n" and "profiled run" not in Path("other.html").read_text()


def test_the_runs_of_run_are_those_of_its_report(model: str) -> None:
    assert main(["run", model, "--dim", "m=3", "--repeat", "4", "--report", "page.html"]) == 0
    assert "fastest of 4 runs" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--repeat", "0"], "it runs at least once"),
        (["-o", "page.txt"], "`page.txt` is no .html file"),
        (["--trace", "t.txt"], "`t.txt` is no .json file"),
        (["--trace", "t.json", "--no-run"], "--no-run runs nothing"),
        (["-o", "no/page.html"], "there is no folder `no`"),
        (["--dim", "m=1..4"], "`pliant report` needs one value of dim `m`"),
        (["--dim", "k=3"], "the model has no dim `k`"),
        (["--dim", "m=k"], "the model has no dim `k`"),
    ],
)
def test_wrong_options(model: str, args: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", model, *args]) == 2
    assert what in capsys.readouterr().err and not list(Path().glob("*.html"))


def test_example_sizes_of_dims() -> None:
    from pliant import Tensor, dim, f32

    n, m = dim("n", max=32), dim("m", multiple_of=48)
    assert example_dims({"x": Tensor[f32, n, m], "y": Tensor[f32, n * 2, 7]}, {}) == {"n": 32, "m": 96, "n * 2": 64}
    assert example_dims({"x": Tensor[f32, n, m]}, {"n": 5}) == {"n": 5, "m": 96}
