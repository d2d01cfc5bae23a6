"""Hints of how to install an extra name the place that this copy of Pliant was installed from."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pliant
from pliant.support import install_hint as module
from pliant.support.install_hint import install_hint

Install = Callable[[dict[str, Any] | None], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Lets the package seem to be installed, with the note of pip in direct_url.json."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(module, "_SOURCE", tmp_path / "lib")

    def installed(note: dict[str, Any] | None) -> None:
        folder = tmp_path / "site" / "pliant-9.dist-info"
        folder.mkdir(parents=True)
        needs = ["numpy", "onnx>=1.18; extra == 'onnx'", 'pillow>=10; extra == "onnx"', "torch; extra == 'torch'"]
        metadata = "".join(f"Requires-Dist: {n}\n" for n in needs)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pliant\nVersion: 9\n{metadata}")
        if note is not None:
            (folder / "direct_url.json").write_text(json.dumps(note))
        monkeypatch.syspath_prepend(str(folder.parent))

    return installed


def checkout(folder: Path) -> Path:
    (folder / "src" / "pliant").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("")
    return folder


def test_from_an_index(install: Install) -> None:
    install(None)
    assert install_hint("onnx") == "pip install 'pliant[onnx]'"


def test_from_a_checkout(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkout(tmp_path / "a folder")
    install({"url": folder.as_uri(), "dir_info": {}})
    assert install_hint("onnx") == f"pip install '{folder}[onnx]'"
    monkeypatch.chdir(folder)
    assert install_hint("onnx") == "pip install '.[onnx]'"


def test_from_a_checkout_that_is_gone(install: Install, tmp_path: Path) -> None:
    install({"url": (tmp_path / "gone").as_uri(), "dir_info": {}})
    assert install_hint("onnx") == "pip install 'onnx>=1.18' 'pillow>=10'"


@pytest.mark.parametrize(
    ("note", "address"),
    [
        ({"url": "https://example.org/pliant-9.whl", "archive_info": {}}, "https://example.org/pliant-9.whl"),
        ({"url": "https://example.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}}, "git+https://example.org/p.git@ab12"),
    ],
)
def test_from_an_address(install: Install, note: dict[str, Any], address: str) -> None:
    install(note)
    assert install_hint("torch") == f"pip install 'pliant[torch] @ {address}'"


def test_from_source(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(None)
    monkeypatch.setattr(module, "_SOURCE", checkout(tmp_path / "work"))
    assert install_hint("onnx") == f"pip install -e '{tmp_path / 'work'}[onnx]'"
    monkeypatch.chdir(tmp_path / "work")
    assert install_hint("onnx") == "pip install -e '.[onnx]'"
    monkeypatch.setattr(sys, "platform", "win32")
    assert install_hint("onnx") == 'pip install -e ".[onnx]"'


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("onnx", lambda: pliant.from_onnx(b"")),
        ("torch", lambda: pliant.from_torch(None)),
        ("torch", lambda: pliant.compile("model.pt2")),
    ],
)
def test_a_missing_package_is_told_with_the_hint(package: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(pliant.Error, match=f"the package {package} is not installed") as caught:
        call()
    assert caught.value.help == install_hint(package)
