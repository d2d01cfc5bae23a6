"""Programs that are kept with their constants: broken and foreign files, bounds, kill -9; and models that start from them."""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_programs import add_package

import pliant
from pliant.frontends.gguf import open_gguf
from pliant.llm.compiled_model import CompiledModel, forget, model_programs
from pliant.llm.engine import Engine
from pliant.runtime import program_store
from pliant.runtime.interface import Constant, Operand, Outside
from pliant.runtime.program_store import ProgramStore, StoredProgram
from tiny_models import tiny

FIRST, SECOND = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(100, dtype=np.uint8)


def program() -> StoredProgram:
    """A package that reads three constants, two of which are one array."""
    package = add_package()
    constants = tuple(Constant(str(i), a.nbytes) for i, a in enumerate((FIRST, SECOND, FIRST)))
    return StoredProgram(package._replace(interface=package.interface._replace(constants=constants)), [FIRST, SECOND, FIRST], {"words": 7})


@pytest.fixture
def folder(tmp_path: Path) -> ProgramStore:
    return ProgramStore(tmp_path / "ready")


def test_what_was_kept_is_found_under_its_key_alone(folder: ProgramStore) -> None:
    assert folder.find("a", b"key") is None and folder.keep("a", b"key", program())
    found = folder.find("a", b"key")
    assert found is not None and found.package == program().package and found.facts == {"words": 7}
    for array, expected in zip(found.constants, (FIRST, SECOND, FIRST), strict=True):
        assert array.dtype == expected.dtype and (array == expected).all() and not array.flags.writeable
    assert found.constants[0] is found.constants[2]
    assert folder.find("a", b"other key") is None and folder.find("b", b"key") is None
    assert len(folder.files()) == 1, "a file under another key is somebody's"
    assert folder.keep("a", b"other key", program()) and folder.find("a", b"key") is None and len(folder.files()) == 1


def test_what_was_mapped_is_mapped_again(folder: ProgramStore, tmp_path: Path) -> None:
    (tmp_path / "words").write_bytes(FIRST.tobytes())
    with open(tmp_path / "words", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    words = np.frombuffer(memoryview(mapped), np.float32).reshape(3, 4)
    package = program().package
    constants = tuple(Constant(str(i), a.nbytes) for i, a in enumerate((words, SECOND, words)))
    package = package._replace(interface=package.interface._replace(constants=constants))
    assert folder.keep("a", b"key", StoredProgram(package, [words, SECOND, words], {}))
    found = folder.find("a", b"key")
    assert found is not None and [program_store._is_mapped(a) for a in found.constants] == [True, False, True]
    assert (found.constants[0] == FIRST).all() and (found.constants[1] == SECOND).all()


@pytest.mark.parametrize("size", [0, 1, 100, (4 << 20) - 64, 4 << 20, (9 << 20) + 5])
def test_parts_of_a_file_are_copied_whole(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    with program_store.container.Writer(tmp_path / "file") as w:
        w.add("other", "", b"x" * 1000)
        w.add("array", "", data)
    file = program_store.container.read(tmp_path / "file")
    (section,) = file.find("array")
    copied = file.copied(section.offset, section.offset + size)
    assert copied.ctypes.data % 64 == 0 and (copied == data).all() and bytes(section.data) == data.tobytes()


def test_broken_files_are_not_found_and_go(folder: ProgramStore) -> None:
    folder.keep("a", b"key", program())
    (path,) = folder.files()
    whole = path.read_bytes()
    code = whole.index(b"PLPACK")
    broken = [b"", b"x" * 500, whole[:-1], whole[: len(whole) // 2], whole + b"\0"]
    broken += [
        whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in [*range(0, 60, 7), code + 50, *range(len(whole) - 400, len(whole), 41)]
    ]
    for data in broken:
        path.write_bytes(data)
        assert folder.find("a", b"key") is None and not path.exists()
    folder.keep("a", b"key", program())
    assert folder.find("a", b"key") is not None


@pytest.mark.parametrize(
    "facts", [{"numbers": [0, 1, 2]}, {"numbers": [0, 1]}, {"numbers": [1, 1, 0]}, {"numbers": [-1, 1, 0]}, {"numbers": None}, {"facts": 3}]
)
def test_constants_that_are_not_the_codes_are_refused(folder: ProgramStore, facts: dict[str, Any]) -> None:
    folder.folder.mkdir()
    with program_store.container.Writer(folder.folder / "a.ready") as w:
        w.add("key", "", b"key", **({"numbers": [0, 1, 0], "facts": {}} | facts))
        w.add("code", "", program().package.to_bytes())
        for i, a in enumerate((FIRST, SECOND)):
            w.add("array", str(i), a.reshape(-1).view("u1"), dtype=a.dtype.str, shape=list(a.shape))
    assert folder.find("a", b"key") is None and not folder.files()


@pytest.mark.parametrize(("kind", "shape"), [("<f4", [4, 4]), ("|O", [12]), ("<f4", [-1, 12]), ("<f4", "x"), (3, [12]), ("<f4", [3, 4.0])])
def test_arrays_that_are_none_are_refused(folder: ProgramStore, kind: object, shape: object) -> None:
    folder.folder.mkdir()
    with program_store.container.Writer(folder.folder / "a.ready") as w:
        w.add("key", "", b"key", numbers=[0, 1, 0], facts={})
        w.add("code", "", program().package.to_bytes())
        w.add("array", "0", FIRST.reshape(-1).view("u1"), dtype=kind, shape=shape)
        w.add("array", "1", SECOND, dtype="|u1", shape=[100])
    assert folder.find("a", b"key") is None


def test_the_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ProgramStore(tmp_path)
    folder.keep("a", b"key", program())
    size = folder.size()
    folder = ProgramStore(tmp_path, limit=2 * size + 10)
    for name in "bc":
        os.utime(tmp_path / "a.ready", (1, 1))
        folder.keep(name, b"key", program())
    assert [p.stem for p in folder.files()] == ["b", "c"], "the one that was not used for longest has gone"
    assert folder.remove("b") == size and [p.stem for p in folder.files()] == ["c"]
    assert not ProgramStore(tmp_path, limit=20).keep("d", b"key", program()), "alone it is over the bound"
    monkeypatch.setattr(program_store, "_SPARE", 1 << 60)
    assert not folder.keep("d", b"key", program()) and [p.stem for p in folder.files()] == ["c"], "the disk is full"


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not ProgramStore(tmp_path / "file" / "ready").keep("a", b"key", program())
    one = program()
    calls = (Outside("host", "f", "", 0, (Operand("f32", 1),), ()),)
    interface = one.package.interface._replace(calls=calls)
    assert not ProgramStore(tmp_path).keep("a", b"key", one._replace(package=one.package._replace(interface=interface)))
    assert not ProgramStore(tmp_path).keep("a", b"key", one._replace(constants=[FIRST, SECOND.astype(object), FIRST]))


KEEP = """
import numpy as np, sys
from pathlib import Path
from runtime_programs import add_package
from pliant.runtime.program_store import ProgramStore, StoredProgram
from pliant.runtime.interface import Constant
a = np.full(8 << 20, int(sys.argv[1]) if len(sys.argv) > 1 else {fill}, np.uint8)
package = add_package()
package = package._replace(interface=package.interface._replace(constants=(Constant("0", a.nbytes),)))
print("ready", flush=True)
while True:
    ProgramStore(Path({folder!r})).keep("a", b"key", StoredProgram(package, [a], {{}}))
    print("kept", flush=True)
"""


def test_kill_9_while_it_is_written(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    for fill, wait in ((1, 0.0), (2, 0.01), (3, 0.03), (4, 0.06), (5, 0.1)):
        child = start(KEEP.format(fill=fill, folder=str(tmp_path)))
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(wait)
        child.kill()
        child.communicate()
        found = ProgramStore(tmp_path).find("a", b"key")
        assert found is None or (found.constants[0] == found.constants[0][0]).all(), "all of one writer, or nothing"
    for left in tmp_path.glob("*.tmp"):
        os.utime(left, (1, 1))
    ProgramStore(tmp_path).files()
    assert not list(tmp_path.glob("*.tmp")), "what killed processes left goes after a while"


# Models.


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model that was not changed just now, and a cache of its own, which shares compiled code with the other tests."""
    (tmp_path / "cache").mkdir()
    shared = Path(os.environ["PLIANT_CACHE"]) / "code"
    shared.mkdir(exist_ok=True)
    (tmp_path / "cache" / "code").symlink_to(shared)
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny())
    os.utime(path, (1e9, 1e9))
    return path


def kept_files() -> list[Path]:
    """The files that are kept, when whoever is writing one has done so."""
    import threading

    for thread in threading.enumerate():
        if thread.name == "pliant-keep":
            thread.join()
    folder = model_programs()
    assert folder is not None
    return folder.files()


def logits(path: Path, cache: str = "f16") -> np.ndarray[Any, Any]:
    engine = Engine(open_gguf(path), cache=cache)
    return engine.feed_all(engine.cache.open(()), [5, 7, 11])


SECOND_START = """
import sys
import numpy as np
import pliant
lm = pliant.LLM({path!r})
np.save({out!r}, lm.logits([5, 7, 11]))
print([m for m in ("llvmlite", "pliant.graph.ops", "pliant.lower.host.host", "pliant.llm.models") if m in sys.modules])
print(type(lm.engine.run.cost).__name__)
"""


def test_the_next_start_compiles_nothing(model: Path, tmp_path: Path, finish: Callable[..., str]) -> None:
    first = logits(model)
    assert len(kept_files()) == 1
    printed = finish(SECOND_START.format(path=str(model), out=str(tmp_path / "out.npy")), PLIANT_CACHE=os.environ["PLIANT_CACHE"])
    assert printed.splitlines() == ["[]", "ProgramCost"], "no compiler; the program can still be asked for"
    assert (np.load(tmp_path / "out.npy") == first).all()


def test_another_model_in_its_place_is_seen(model: Path) -> None:
    first = logits(model)
    assert len(kept_files()) == 1
    model.write_bytes(tiny(seed=1))  # of the same size
    os.utime(model, (1e9 + 1, 1e9 + 1))
    second = logits(model)
    assert not (second == first).all() and len(kept_files()) == 1
    assert (logits(model) == second).all()
    assert not (logits(model, "f32") == second).all() and len(kept_files()) == 2


def test_a_model_that_was_changed_just_now_is_not_kept(model: Path) -> None:
    os.utime(model)
    logits(model)
    assert not kept_files(), "it could change again within the same tick of the clock"


def test_switches_of_the_compiler_decide_it(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits(model)
    kept_files()
    assert CompiledModel(open_gguf(model), "f16")._stored is not None
    monkeypatch.setenv("PLIANT_DISABLE", "fuse")
    assert CompiledModel(open_gguf(model), "f16")._stored is None


def test_a_kept_file_with_other_numbers_is_made_again(model: Path) -> None:
    first = logits(model)
    (path,) = kept_files()
    ready = CompiledModel(open_gguf(model), "f16")
    assert ready._folder is not None and ready._key is not None and ready._stored is not None
    ready._folder.keep(ready._name, ready._key, ready._stored._replace(facts={**ready._stored.facts, "config": {"layers": "many"}}))
    assert (logits(model) == first).all() and kept_files() == [path]
    assert CompiledModel(open_gguf(model), "f16")._stored is not None


def test_a_model_that_is_removed_is_forgotten(model: Path) -> None:
    logits(model), logits(model, "f32")
    assert len(kept_files()) == 2
    assert forget(model.with_name("other.gguf")) == 0
    assert forget(model) > 1000 and not kept_files()


def test_what_is_left_of_models_that_are_gone_goes(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(model.read_bytes())
    os.utime(other, (1e9, 1e9))
    logits(model)
    (first,) = kept_files()
    (first.parent / "broken.ready").write_bytes(b"x")
    model.unlink()
    logits(other)
    (second,) = kept_files()
    assert second != first and forget(other) > 0


def test_wrong_settings_are_said_before_anything_is_compiled(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path / "other"))
    with pytest.raises(pliant.Error, match="`context` is 100000; the model was made for 1 to 512 tokens"):
        pliant.LLM(model, context=100_000)
    assert not (tmp_path / "other").exists()
