"""The code cache: hits, misses, broken files, bounds, races, folders that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from pliant.runtime import code_cache
from pliant.runtime.code_cache import Cache


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "code")


@pytest.fixture
def forget_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_cache, "_warned", False)


def test_what_was_put_is_found_and_nothing_else(store: Cache) -> None:
    assert store.get(b"a") is None
    store.put(b"a", b"one")
    store.put(b"b", b"")
    store.put(b"a", b"two")
    assert (store.get(b"a"), store.get(b"b"), store.get(b"c")) == (b"two", b"", None)
    assert len(store.files()) == 2 and Cache(store.folder).get(b"a") == b"two"


def test_equal_hashes_of_unequal_keys_are_a_miss(store: Cache) -> None:
    store.put(b"mine", b"payload")
    store.files()[0].rename(store._path(b"other"))  # as if both keys had this hash
    assert store.get(b"other") is None
    assert len(store.files()) == 1, "the file is sound, and somebody else's"


@pytest.mark.parametrize("change", ["cut", "flip", "foreign", "longer", "empty"])
def test_a_broken_file_is_a_miss_and_is_removed(store: Cache, change: str) -> None:
    store.put(b"key", b"payload" * 20)
    path = store.files()[0]
    whole = path.read_bytes()
    variants = {
        "cut": [whole[:n] for n in range(1, len(whole), 7)],
        "flip": [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(0, len(whole), 5)],
        "foreign": [b"#!/bin/sh\n" * 30],
        "longer": [whole + b"\0"],
        "empty": [b""],
    }[change]
    for data in variants:
        path.write_bytes(data)
        assert store.get(b"key") is None
        assert not path.exists()
    store.put(b"key", b"new")
    assert store.get(b"key") == b"new"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    store = Cache(tmp_path, limit=10_000)
    for number in range(8):
        store.put(b"%d" % number, bytes(1000))
        os.utime(store._path(b"%d" % number), (1000 + number, 1000 + number))
    assert store.get(b"0") is not None  # used now, though the oldest
    for number in range(8, 12):
        store.put(b"%d" % number, bytes(1000))
    assert store.size() <= 10_000
    assert store.get(b"0") is not None and store.get(b"11") is not None and store.get(b"1") is None


PUT = """
from pathlib import Path
from pliant.runtime.code_cache import Cache
store = Cache(Path({folder!r}))
print("ready", flush=True)
while True:
    for fill in b"abc":
        store.put(b"key", bytes([fill]) * (4 << 20))
"""


def test_kill_9_while_it_is_written(store: Cache, start: Callable[..., subprocess.Popen[str]]) -> None:
    for wait in (0.0, 0.01, 0.02, 0.05, 0.1):
        child = start(PUT.format(folder=str(store.folder)))
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(wait)
        child.kill()
        child.communicate()
        found = store.get(b"key")
        assert found is None or found in [bytes([fill]) * (4 << 20) for fill in b"abc"], "all of one writer, or nothing"


def test_leftovers_of_killed_processes_go(store: Cache) -> None:
    store.put(b"a", b"one")
    assert store.folder is not None
    old, young = store.folder / "put-old.tmp", store.folder / "put-young.tmp"
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    os.utime(old, (1000, 1000))
    Cache(store.folder).put(b"b", b"two")
    assert young.exists() and not old.exists()


def test_clear_removes_everything(store: Cache) -> None:
    store.put(b"a", b"one")
    store.clear()
    assert store.files() == [] and store.get(b"a") is None


@pytest.mark.usefixtures("forget_warning")
def test_a_folder_that_cannot_be_written_is_warned_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = Cache(tmp_path / "file" / "code")
    with pytest.warns(RuntimeWarning, match="PLIANT_CACHE"):
        store.put(b"a", b"one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put(b"a", b"one")
        assert store.get(b"a") is None


@pytest.mark.usefixtures("forget_warning")
def test_a_read_only_folder_is_still_read(store: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put(b"a", b"one")

    def refuse(*args: object, **named: object) -> None:
        raise PermissionError(13, "Permission denied")

    # Tests may run as a user whom permissions do not stop, so the system's answer is given here.
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    monkeypatch.setattr(code_cache.os, "utime", refuse)
    os.chmod(store.files()[0], 0o400)
    assert store.get(b"a") == b"one"
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        store.put(b"b", b"two")


@pytest.mark.usefixtures("forget_warning")
def test_no_home_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("PLIANT_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(code_cache.Path, "home", nowhere)
    assert code_cache.folder() is None and code_cache.get(b"a") is None
    with pytest.warns(RuntimeWarning, match="no home folder"):
        code_cache.put(b"a", b"one")


@pytest.mark.parametrize(
    ("platform", "env", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/pliant"),
        ("linux", {}, "/home/u/.cache/pliant"),
        ("darwin", {}, "/home/u/Library/Caches/pliant"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/pliant/cache"),
        ("win32", {"PLIANT_CACHE": "/mine", "LOCALAPPDATA": "/local"}, "/mine"),
    ],
)
def test_the_place(monkeypatch: pytest.MonkeyPatch, platform: str, env: dict[str, str], expected: str) -> None:
    for name in ("PLIANT_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(code_cache.sys, "platform", platform)
    monkeypatch.setattr(code_cache.Path, "home", lambda: Path("/home/u"))
    assert code_cache.folder() == Path(expected)


RACE = """
import random
from pathlib import Path
from pliant.runtime.code_cache import Cache
store = Cache(Path({folder!r}), limit=40_000)
random.seed({seed})
hits = 0
for _ in range(400):
    key = random.randrange(12)
    text = b"key %d" % key
    if random.random() < 0.5:
        store.put(text, bytes([key]) * (500 + 1000 * key))
    else:
        found = store.get(text)
        assert found is None or found == bytes([key]) * (500 + 1000 * key)
        hits += found is not None
print(hits)
"""


def test_processes_race_without_harm(tmp_path: Path, start: Callable[..., object]) -> None:
    children = [start(RACE.format(folder=str(tmp_path), seed=seed)) for seed in range(4)]
    hits = 0
    for child in children:
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, err
        hits += int(out)
    assert hits > 100
    assert not list(tmp_path.glob("*.tmp"))


KERNEL = """
import sys
import pliant
from pliant import Out, Tensor, dim, f32, kernel

n = dim("n")


@kernel
def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * 2.0


pliant.compile(double)
compiler = ("llvmlite", "pliant.schedule.library", "pliant.schedule.schedule", "pliant.sym.prove", "pliant.lower.host.host")
print([name for name in compiler if name in sys.modules])
"""


def test_a_program_from_the_cache_imports_no_compiler(tmp_path: Path) -> None:
    script = tmp_path / "program.py"  # kernels are read from their source
    script.write_text(KERNEL, encoding="utf-8")
    env = {**os.environ, "PLIANT_CACHE": str(tmp_path / "cache")}
    runs = [subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert "llvmlite" in runs[0] and runs[1].strip() == "[]"
