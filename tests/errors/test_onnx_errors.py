"""Broken and hostile ONNX files: one clear error each, nothing read outside of the model's folder, and no other exception."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import pliant
from counts import count

onnx = pytest.importorskip("onnx", reason="ONNX models need the package onnx")
from broken_onnx import base, broken_models  # noqa: E402


def test_broken_models_are_refused_with_a_reason() -> None:
    found = list(broken_models())
    assert len(found) >= 150
    for name, data, says in found:
        with pytest.raises((pliant.ModelFileError, pliant.UnsupportedError)) as caught:
            pliant.from_onnx(data)
        assert says in str(caught.value), f"{name}: {caught.value}"
        assert str(caught.value).startswith("onnx: "), name


def test_the_base_is_right() -> None:
    pliant.from_onnx(base().SerializeToString())


def test_mutated_models_are_read_or_refused() -> None:
    dice = random.Random(7)
    whole = base().SerializeToString()
    for _ in range(count(400, 30_000)):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 8))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        try:
            pliant.from_onnx(bytes(data))
        except pliant.Error as error:
            assert not isinstance(error, pliant.InternalError), error


def external(location: str, offset: str = "0", length: str = "432") -> Any:
    """The base with its weights in another file."""
    model = base()
    weights = model.graph.initializer[0]
    weights.ClearField("float_data")
    weights.data_location = 1
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        weights.external_data.add(key=key, value=value)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "models"
    inside.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(432))
    (inside / "weights.bin").write_bytes(bytes(432))
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "up").symlink_to(tmp_path)
    os.link(tmp_path / "secret.bin", inside / "hard.bin")
    os.mkfifo(inside / "pipe")
    return inside


def saved(folder: Path, model: Any) -> str:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def test_weights_beside_the_model(folder: Path) -> None:
    program = pliant.from_onnx(saved(folder, external("weights.bin")))
    assert any(a.shape == (4, 3, 3, 3) and not a.any() for a in program.constants)


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("../secret.bin", "below the folder"),
        ("a/../../secret.bin", "below the folder"),
        ("{root}/secret.bin", "below the folder"),
        ("..\\secret.bin", "below the folder"),
        ("", "below the folder"),
        ("./weights.bin", "below the folder"),
        ("link.bin", "not read from"),
        ("up/secret.bin", "not read from"),
        ("hard.bin", "second name"),
        ("pipe", "no regular file"),
        ("/dev/zero", "below the folder"),
        ("nowhere.bin", "not read from"),
    ],
)
def test_nothing_outside_of_the_folder_is_read(folder: Path, location: str, says: str) -> None:
    model = external(location.format(root=folder.parent))
    path = saved(folder, model)
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" and _watching else None)
    _watching.append(True)
    try:
        with pytest.raises(pliant.ModelFileError, match=says):
            pliant.from_onnx(path)
    finally:
        _watching.clear()
    assert not any("secret" in name for name in opened if name != location.split("/")[-1])


_watching: list[bool] = []


@pytest.mark.parametrize(("offset", "length"), [("-1", "432"), ("0", "-4"), ("8", "432"), ("9" * 30, "432"), ("x", "432"), ("0", "400")])
def test_offsets_and_lengths_lie_inside_of_the_file(folder: Path, offset: str, length: str) -> None:
    with pytest.raises(pliant.ModelFileError, match='initializer "w"'):
        pliant.from_onnx(saved(folder, external("weights.bin", offset, length)))


def test_external_data_needs_a_folder() -> None:
    with pytest.raises(pliant.ModelFileError, match="in another file"):
        pliant.from_onnx(external("weights.bin"))
