"""Files of public packages that tests look at: fetched once into the user's cache, checked, never installed. Without a network, tests skip.

folder = unpacked("some-package", "some_package-1.0.tar.gz", "…sha256…", size, lambda name: name.endswith(".gguf"))
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pliant import Error
from pliant.llm.download import download
from pliant.llm.package_index import find_file
from pliant.runtime import code_cache


@cache
def assets() -> Path:
    """Where such files are kept: PLIANT_TEST_ASSETS, else a folder of Pliant's cache."""
    base = os.environ.get("PLIANT_TEST_ASSETS")
    found = Path(base) if base else code_cache.folder()
    return found if base and found else (found or Path(tempfile.gettempdir())) / "test-assets"


def fetched(package: str, filename: str, sha256: str, size: int) -> Path:
    """A file of a package; the test is skipped where it cannot be had."""
    target = assets() / filename
    try:
        return target if target.exists() else download(find_file(package, filename).url, target, sha256=sha256, size=size)
    except (Error, OSError) as problem:
        pytest.skip(f"{filename} cannot be fetched: {str(problem).splitlines()[0]}")


def llama_cpp() -> Path:
    """The vocabularies with their test cases, and the chat templates, that come with llama.cpp's sources."""
    return unpacked(
        "llama-cpp-python",
        "llama_cpp_python-0.3.36.tar.gz",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        76_589_250,
        lambda path: "/models/ggml-vocab-" in path or "/models/templates/" in path,
    )


def unpacked(package: str, filename: str, sha256: str, size: int, wanted: Callable[[str], bool]) -> Path:
    """A folder with those members of an archive whose path is wanted, all side by side; for one archive, always the same members."""
    folder = assets() / (filename + ".files")
    if not folder.exists():
        archive = fetched(package, filename, sha256, size)
        fresh = Path(tempfile.mkdtemp(dir=assets()))
        _take(archive, fresh, wanted)
        try:
            fresh.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return folder


def _take(archive: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            for name in filter(wanted, packed.namelist()):
                (folder / Path(name).name).write_bytes(packed.read(name))
        return
    with tarfile.open(archive) as members:
        for member in members:
            if member.isfile() and wanted(member.name) and (data := members.extractfile(member)):
                (folder / Path(member.name).name).write_bytes(data.read())
