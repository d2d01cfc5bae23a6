"""Tests of the runtime use a cache folder of their own, and start Python children that see the same code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pliant

HERE = Path(__file__).parent


# Set before the tests here are imported, because some of them make executables then.
FOLDER = Path(tempfile.mkdtemp(prefix="cache-of-tests-"))
BEFORE = os.environ.get("PLIANT_CACHE")
os.environ["PLIANT_CACHE"] = str(FOLDER)


@pytest.fixture(autouse=True, scope="session")
def cache_folder() -> Iterator[Path]:
    """PLIANT_CACHE for this session and its children."""
    yield FOLDER
    os.environ.pop("PLIANT_CACHE")
    if BEFORE is not None:
        os.environ["PLIANT_CACHE"] = BEFORE
    shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python child that runs a text."""
    children: list[subprocess.Popen[str]] = []

    def run(text: str, **env: str) -> subprocess.Popen[str]:
        own = Path(pliant.__file__).parent.parent  # the same package as here: benchmarks, which some tests import, put the sources first
        path = os.pathsep.join([str(HERE), str(own), *(p for p in sys.path if p)])
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
