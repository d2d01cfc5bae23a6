"""`pliant run` and `pliant check` as people call them first: sizes not given, arrays in one file, outputs that cannot be written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant import InOut, State, Tensor, dim, f32, function, kernel
from pliant.cli import Usage, main
from pliant.cli.model_options import batch_dims, single_values
from pliant.cli.output_files import check_place, written

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 4] x, float[n, m] k) => (float[n, 4] y, float[n, m] kk) {
    y = MatMul(x, w)
    kk = Relu(k)
}"""
n = dim("n")
W = np.arange(16, dtype=np.float32).reshape(4, 4) / 16


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model whose weight is in another file, as torch.onnx.export writes it."""
    proto = onnx.parser.parse_model(TEXT)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(W, "w"))
    onnx.save(proto, tmp_path / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return str(tmp_path / "model.onnx")


@pytest.mark.parametrize("against", ["reference", "onnxruntime"])
def test_check_of_a_model_with_external_data(
    model: str, against: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if against == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    ask = ["check", model, "--dim", "m=3", "--against", against]
    assert main([*ask, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["value"] for r in found["nodes"]] == ["y", "kk"] and len(found["compiled"]) == 2
    from pliant.frontends.onnx import compare

    monkeypatch.setattr(compare, "_error", lambda ours, theirs: 1.0)
    saved = tmp_path / "one.onnx"
    assert main([*ask, "--interpret", "--save", str(saved)]) == 1
    one = onnx.load(saved, load_external_data=False)  # it stands alone: its weight is inside
    assert onnx.numpy_helper.to_array(next(t for t in one.graph.initializer if t.name == "w")).tolist() == W.tolist()


@pytest.mark.parametrize("tolerance", ["-1", "nan", "inf"])
def test_a_tolerance_is_an_error(model: str, tolerance: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", model, "--dim", "m=3", f"--tolerance={tolerance}"]) == 2
    assert "an error is at least 0" in capsys.readouterr().err


def test_another_runtime_that_cannot_run_the_model(model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import onnx.reference

    def refuse(*args: object) -> None:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(onnx.reference, "ReferenceEvaluator", refuse)
    assert main(["check", model, "--dim", "m=3", "--against", "reference"]) == 2
    shown = capsys.readouterr().err
    assert "onnx.reference cannot run the model" in shown and "no kernel" in shown and "defect" not in shown


def test_a_run_has_one_example_unless_said(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--dim", "m=3", "--repeat", "1"]) == 0
    assert "y: float32 (1, 4)" in (shown := capsys.readouterr().out) and "at n = 1, m = 3" in shown
    assert main(["run", model, "--repeat", "1"]) == 2
    assert "the value of dim `m` is missing" in capsys.readouterr().err
    np.save(tmp_path / "k.npy", np.ones((2, 5), np.float32))
    assert main(["run", model, "-i", f"k={tmp_path / 'k.npy'}", "--repeat", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dims"] == {"n": 2, "m": 5}


def test_arrays_of_one_file(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, k = np.ones((2, 4), np.float32), -np.ones((2, 3), np.float32)
    np.savez(tmp_path / "in.npz", x=x, k=k)
    out = tmp_path / "out.npz"
    assert main(["run", model, "-i", str(tmp_path / "in.npz"), "-o", str(out), "--repeat", "1"]) == 0
    results = np.load(out)
    assert np.allclose(results["y"], x @ W, atol=1e-6) and results["kk"].tolist() == np.zeros((2, 3)).tolist()
    np.savez(tmp_path / "odd.npz", x=x, z=k)
    capsys.readouterr()
    assert main(["run", model, "-i", str(tmp_path / "odd.npz")]) == 2
    assert "has an array `z`, and the model has no such input" in capsys.readouterr().err
    (tmp_path / "no.npz").write_bytes(b"PK\x03\x04 no archive")
    assert main(["run", model, "-i", str(tmp_path / "no.npz")]) == 2
    assert "is no .npz file" in capsys.readouterr().err


def test_a_report_of_a_run(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main(["run", model, "--dim", "m=3", "--repeat", "1", "--report", str(page)]) == 0
    text = page.read_text()
    assert "<html" in text and "relu" in text and [p.name for p in tmp_path.glob("page*")] == ["page.html"]


def test_outputs_that_cannot_be_written_are_no_defects(model: str) -> None:
    command = [sys.executable, "-m", "pliant", "inspect", model]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "pliant: the output: No space left on device\n"
    head = subprocess.run(f"set -o pipefail; {' '.join(command)} --json | true", shell=True, executable="/bin/bash", capture_output=True)
    assert head.returncode == 0 and head.stderr == b""


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with written(str(target)) as path:
        Path(path).write_text("new")
        assert not target.exists()
    assert target.read_text() == "new"
    with pytest.raises(RuntimeError), written(str(target)) as path:
        Path(path).write_text("half")
        raise RuntimeError
    assert target.read_text() == "new" and [p.name for p in tmp_path.iterdir()] == ["out.txt"]
    with pytest.raises(Usage, match="is a folder"):
        check_place(str(tmp_path))
    check_place("/dev/null")


def test_values_of_dims() -> None:
    from types import SimpleNamespace as Shaped

    assert single_values({"h": 480, "w": "h"}, "run") == {"h": 480, "w": 480} == single_values({"w": 480, "h": "w"}, "run")
    inputs = {"ids": Shaped(shape=("batch", "length")), "mask": Shaped(shape=("batch", "length")), "at": Shaped(shape=("steps",))}
    assert batch_dims(inputs) == {"batch": 1} and batch_dims({"a": Shaped(shape=("n", "n")), "b": Shaped(shape=(1, "m"))}) == {}


def test_every_run_begins_with_the_state_that_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @kernel
    def add(by: Tensor[f32, n], total: InOut[f32, n]) -> None:
        for i in range(n):
            total[i] = total[i] + by[i]

    @function
    def step(total: State[f32, n], by: Tensor[f32, n]) -> State[f32, n]:
        return add(by, total)

    saved, out = str(tmp_path / "step.pliant"), str(tmp_path / "out.npz")
    pliant.compile(step).save(saved)
    given = ["--dim", "n=4", "-i", "total=zeros", "-i", "by=1"]
    assert main(["run", saved, *given, "-o", out, "--profile", "--json"]) == 0
    (result,) = np.load(out).values()
    assert result.tolist() == [1] * 4 and json.loads(capsys.readouterr().out)["outputs"][0]["max"] == 1
    feeds = {"total": np.zeros(4, np.float32), "by": np.ones(4, np.float32)}
    assert [e.largest for e in pliant.quantization_errors(step, step, feeds)] == [0] and feeds["total"].tolist() == [0] * 4


def test_a_model_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.pliant").write_bytes(b"mine")
    assert main(["compile", "m.pliant"]) == 2
    assert "`m.pliant` is the model itself" in capsys.readouterr().err and Path("m.pliant").read_bytes() == b"mine"


def one_input(tmp_path: Path, kind: str, node: str = "file = Identity(x)") -> str:
    """A model of one input `x` and the output `file`."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({kind}[2] x) => ({kind}[2] file) {{ {node} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "one.onnx")
    return str(tmp_path / "one.onnx")


def test_values_that_an_input_cannot_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, half = one_input(tmp_path, "uint8"), tmp_path / "half.npy"
    np.save(half, np.array([0.5, 1], np.float32))
    for source in ("300", "-1", "0.5", "nan", str(half)):
        assert main(["run", model, "-i", f"x={source}"]) == 2
        assert "has values that input `x` cannot hold: it is u8" in capsys.readouterr().err
    np.save(half, np.array([255, 1], np.float32))
    assert main(["run", model, "-i", f"x={half}", "--repeat", "1"]) == 0


def test_an_output_named_as_an_argument_of_numpy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = one_input(tmp_path, "float"), tmp_path / "out.npz"
    assert main(["run", model, "-i", "x=3", "-o", str(out), "--repeat", "1"]) == 0
    assert {name: array.tolist() for name, array in np.load(out).items()} == {"file": [3, 3]}


def not_json(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_numbers_that_json_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = one_input(tmp_path, "float", "file = Sqrt(x)")
    assert main(["run", model, "-i", "x=-1", "--repeat", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=not_json)["outputs"][0]["max"] is None


def test_an_error_that_json_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pliant.frontends.onnx import compare

    monkeypatch.setattr(compare, "_error", lambda ours, theirs: float("inf"))
    assert main(["check", one_input(tmp_path, "float", "file = Sqrt(x)"), "--against", "reference", "--interpret", "--json"]) == 1
    assert json.loads(capsys.readouterr().out, parse_constant=not_json)["nodes"][0]["error"] is None


def test_a_program_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = one_input(tmp_path, "float", "file = Sqrt(x)")
    assert main(["inspect", model, "--show", "program"]) == 0
    text = capsys.readouterr().out.rstrip()
    assert main(["inspect", model, "--show", "program", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["program"] == text
