"""Tests of the runtime use a cache folder of their own, and start Python children that see the same code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(autouse=True, scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PLIANT_CACHE for this session and its children."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("PLIANT_CACHE")
    os.environ["PLIANT_CACHE"] = str(folder)
    yield folder
    os.environ.pop("PLIANT_CACHE")
    if before is not None:
        os.environ["PLIANT_CACHE"] = before


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python child that runs a text."""
    children: list[subprocess.Popen[str]] = []

    def run(text: str, **env: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
        environment = {**os.environ, "PYTHONPATH": path, **env}
        command = [sys.executable, "-X", "faulthandler", "-c", text]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        children.append(child)
        return child

    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture
def finish(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., str]:
    """Run a text in a Python child to its good end; answers what it printed."""

    def run(text: str, **env: str) -> str:
        child = start(text, **env)
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, f"exit {child.returncode}\n{out}\n{err}"
        return out

    return run
