"""Applications from the package index that import onnxruntime, unchanged: with Pliant in its place, they give the same results.

Each program of `tests/applications` runs in two processes. `pip install '.[applications]'` installs what they need.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = sorted((Path(__file__).parents[1] / "applications").glob("*.py"))
PACKAGES = ("magika", "nudenet", "rapidocr_onnxruntime", "silero_vad")
TOLERANCE = 1e-4


def package_of(program: Path) -> str:
    """The package that a program runs: its name begins with it."""
    return next(p for p in PACKAGES if program.stem.startswith(p))


def differences(a: Any, b: Any, path: str = "result") -> list[str]:
    """The places where two results differ: numbers by more than the tolerance, anything else at all."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [d for i, (x, y) in enumerate(zip(a, b, strict=True)) for d in differences(x, y, f"{path}[{i}]")]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [d for k in a for d in differences(a[k], b[k], f"{path}[{k!r}]")]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (a, b))
    same = abs(a - b) <= TOLERANCE * max(1, abs(a)) if numbers else a == b
    return [] if same else [f"{path}: {a!r} is {b!r}"]


def results(command: list[str], program: Path, target: Path) -> Any:
    """What a program writes in a process of its own."""
    done = subprocess.run([sys.executable, *command, str(program), str(target)], capture_output=True, text=True, cwd=target.parent)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(target.read_text())


@pytest.mark.timeout(1800)  # detectors and recognizers are compiled, for one thread of a small machine minutes
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_an_application_gives_the_same_results(program: Path, tmp_path: Path) -> None:
    for package in ("onnxruntime", package_of(program)):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    if package_of(program) == "silero_vad":
        pytest.importorskip("torch", reason="silero-vad imports torch")
    expected = results([], program, tmp_path / "onnxruntime.json")
    found = results(["-m", "pliant.onnxruntime"], program, tmp_path / "pliant.json")
    assert json.dumps(expected) not in ("[]", "{}")
    assert differences(expected, found)[:10] == []


def test_differences_are_seen() -> None:
    assert differences([1.0, {"a": "x"}], [1.00005, {"a": "x"}]) == []
    assert differences([1.0, {"a": "x"}], [1.001, {"a": "y"}]) == ["result[0]: 1.0 is 1.001", "result[1]['a']: 'x' is 'y'"]
    assert differences([1], [1, 2]) == ["result: [1] is [1, 2]"] and differences([True], [1]) == []
