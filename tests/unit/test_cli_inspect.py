"""`pliant inspect`: what a file holds; broken files end with code 2 and no traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, nn
from pliant.cli import main

n = dim("n", max=64)


class Model(nn.Module):
    def __init__(self) -> None:
        self.inner = nn.Linear(8, 16).load_state_dict({"weight": np.ones((16, 8)), "bias": np.zeros(16)})

    def forward(self, x: Tensor[f32, n, 8]) -> Any:
        return {"y": self.inner(x)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspect") / "m.pliant"
    pliant.compile(Model()).save(path)
    return path


def shown(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["inspect", *argv]) == 0
    return capsys.readouterr().out


def test_the_summary(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, str(saved)).splitlines()
    assert lines[2:6] == ["model", "  x: Tensor[f32, n, 8]", "  -> y: Tensor[f32, n, 16]", "  n in 0..64"]
    assert lines[6].startswith("code for native: ") and "  model.inner_weight: Tensor[f32, 16, 8], 512 bytes" in lines


def test_one_part(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(saved), "--show", "program")
    assert "ops.linear(" in text and pliant.parse(text, constants={"model.inner_weight": np.ones((16, 8), np.float32)})
    assert shown(capsys, str(saved), "--show", "layers") == "inner\n"
    assert shown(capsys, str(saved), "--show", "tensors").splitlines()[0] == "model.inner_weight: Tensor[f32, 16, 8], 512 bytes"


def test_json(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(shown(capsys, str(saved), "--json"))
    assert facts["bytes"] == saved.stat().st_size and facts["contract"]["dims"] == ["n in 0..64"] and facts["version"] == 1


def test_safetensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = pytest.importorskip("safetensors.numpy")
    file = tmp_path / "w.safetensors"
    reference.save_file({"a.weight": np.zeros((2, 3), np.float16)}, file)
    assert "  a.weight: Tensor[f16, 2, 3], 12 bytes" in shown(capsys, str(file))
    assert main(["inspect", str(file), "--show", "program"]) == 2


@pytest.mark.parametrize("name", ["m.pliant", "w.safetensors"])
def test_broken_files(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / name
    for data in (b"", b"x" * 100):
        file.write_bytes(data)
        assert main(["inspect", str(file)]) == 2
        assert "is no usable" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "missing" / name)]) == 2


def test_a_changed_weight_is_found(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = saved.read_bytes()
    at = data.index(np.ones(128, np.float32).tobytes())
    (tmp_path / "m.pliant").write_bytes(data[:at] + b"\1" + data[at + 1 :])
    assert main(["inspect", str(tmp_path / "m.pliant")]) == 2 and "have changed" in capsys.readouterr().err
