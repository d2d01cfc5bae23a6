"""Artifacts: what is loaded is what was saved; broken, foreign and future files are refused; interrupted saves leave the old file."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from counts import count
from pliant import InOut, Out, State, Tensor, artifact, dim, f32, function, kernel, ops
from pliant.runtime import container
from pliant.runtime.container import Writer

n = dim("n", max=4096, multiple_of=2)
weight = np.random.default_rng(3).standard_normal((8, 16)).astype(np.float32)


@function
def layer(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 16]:
    return ops.silu(x @ weight) * 2.0


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "layer.pliant"
    pliant.compile(layer).save(path)
    return path


x = np.random.default_rng(4).standard_normal((6, 8)).astype(np.float32)


def no_compiler(*args: Any, **named: Any) -> Any:
    raise AssertionError("nothing is compiled")


# What is loaded.


def test_the_same_results_without_compiling(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.pipeline.run_steps", no_compiler)
    f = pliant.load(saved, verify=True)
    assert np.array_equal(f(x), layer(x)) and repr(f) == repr(pliant.load(saved))
    assert str(f.contract) == str(pliant.load(saved, threads=1).contract) and "n in 0..4096 step 2" in str(f.contract)


def test_loading_imports_no_compiler(saved: Path) -> None:
    script = (
        "import sys, numpy as np, pliant; f = pliant.load(sys.argv[1]); y = f(np.ones((2, 8), np.float32));"
        "assert y.shape == (2, 16); print([m for m in sys.modules if 'llvmlite' in m or m.startswith('pliant.lower.host.host')])"
    )
    for _ in range(2):  # the first one may have to make the runtime's own native code, where no cache has it yet
        done = subprocess.run([sys.executable, "-c", script, str(saved)], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_weights_are_mapped_aligned_and_read_only(saved: Path) -> None:
    file = container.read(saved)
    tensors = artifact._literals(file, file.find("program")[0])
    found = next(t for t in tensors if t.shape == (8, 16))
    assert np.array_equal(found, weight) and found.ctypes.data % 64 == 0 and not found.flags.writeable


def test_compiling_anew_copies_no_weights(saved: Path) -> None:
    program = pliant.load(saved, recompile=True)._provenance.program
    found = next(a for a in program.constants if a.shape == (8, 16))
    assert not found.flags.writeable and not found.flags.owndata and found.ctypes.data % 64 == 0


def test_a_literal_of_a_user_is_copied() -> None:
    mine = np.ones(4, np.float32)
    fixed = mine.view()
    fixed.setflags(write=False)

    class Add(pliant.nn.Module):
        def forward(self, x: Tensor[f32, 4]) -> Any:
            return x + fixed

    f = pliant.compile(Add())
    mine[:] = 5
    assert f(np.zeros(4, np.float32)).tolist() == [1] * 4


def test_what_is_known_of_a_loaded_program(saved: Path) -> None:
    f = pliant.load(saved)
    assert str(f.cost) == str(pliant.compile(layer).cost)
    assert f(x).tobytes() == pliant.load(saved, recompile=True)(x).tobytes()


def test_a_loaded_program_is_saved_again(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.pliant"
    pliant.load(saved).save(again)
    assert np.array_equal(pliant.load(again)(x), layer(x))
    assert again.read_bytes() == saved.read_bytes(), "the same program is the same file"


def test_the_program_of_a_file_is_compiled_with_other_dims(saved: Path, tmp_path: Path) -> None:
    f = pliant.compile(saved, dims={"n": 6})
    assert f.dims == () and np.array_equal(f(x), layer(x))
    with pytest.raises(pliant.UnsupportedError, match="no program can be read from model"):
        pliant.compile("model.bin")


def test_layers_of_the_user_are_kept(tmp_path: Path) -> None:
    from pliant import nn

    class Model(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Linear(8, 16, bias=False).load_state_dict({"weight": weight.T})

        def forward(self, x: Tensor[f32, n, 8]) -> Any:
            return self.inner(x)

    pliant.compile(Model()).save(tmp_path / "m.pliant")
    loaded = pliant.load(tmp_path / "m.pliant")
    assert [node.origin for node in loaded._provenance.program.entry.nodes] == [("inner",), ("inner",)]


def test_kernels_state_and_checks(tmp_path: Path) -> None:
    @kernel
    def add(by: Tensor[f32, n], total: InOut[f32, n], seen: Out[f32, n]) -> None:
        for i in range(n):
            total[i] = total[i] + by[i]
            seen[i] = total[i] * 2.0

    @function
    def step(total: State[f32, n], by: Tensor[f32, n]) -> tuple[State[f32, n], Tensor[f32, n]]:
        total, seen = add(by, total)
        return total, seen

    pliant.compile(step, checked=True).save(tmp_path / "s.pliant")
    f = pliant.load(tmp_path / "s.pliant")
    total = np.zeros(4, np.float32)
    _, seen = f(total, np.ones(4, np.float32))
    assert total.tolist() == [1] * 4 and seen.tolist() == [2] * 4
    with pytest.raises(pliant.ShapeError, match="outside its contract"):
        f(np.zeros(3, np.float32), np.ones(3, np.float32))


def test_a_kernel_alone(tmp_path: Path) -> None:
    @kernel
    def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n):
            y[i] = x[i] * 2.0

    pliant.compile(double).save(tmp_path / "k.pliant")
    for recompile in (False, True):
        f = pliant.load(tmp_path / "k.pliant", recompile=recompile)
        assert f(np.ones(4, np.float32)).tolist() == [2] * 4 and repr(f) == repr(pliant.compile(double))


def test_code_for_several_targets(tmp_path: Path) -> None:
    pliant.compile(layer).save(tmp_path / "m.pliant", targets=["llvm:x86-64-v2", "native"])
    file = container.read(tmp_path / "m.pliant")
    assert [s.name for s in file.find("code")] == ["native", "llvm:x86-64-v2"]


def changed(saved: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], name: str = "changed.pliant") -> Path:
    """The file with changed descriptions of its sections, and right checksums."""
    file = container.read(saved)
    path = tmp_path / name
    with Writer(path, file.made_by) as w:
        for s in file.sections:
            entry = {"kind": s.kind, "name": s.name, "data": bytes(s.data), "facts": dict(s.facts)}
            if change(entry) is not False:
                w.add(entry["kind"], entry["name"], entry["data"], **entry["facts"])
    return path


def foreign(entry: dict[str, Any]) -> None:
    if entry["kind"] == "code":
        entry["facts"].update(machine="another", features=[*entry["facts"]["features"], "telepathy"])


def older(entry: dict[str, Any]) -> None:
    if entry["kind"] == "code":
        entry["facts"]["interface"] = "0" * 64


def without_code(entry: dict[str, Any]) -> bool:
    return bool(entry["kind"] != "code")


@pytest.mark.parametrize("change", [foreign, older, without_code])
def test_another_machine_compiles_anew_and_says_so(change: Any, saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    f = pliant.load(changed(saved, tmp_path, change))
    assert np.array_equal(f(x), layer(x))
    assert "has no code for this machine" in capfd.readouterr().err


def test_code_that_uses_less_than_the_machine_has_is_taken(saved: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def generic(entry: dict[str, Any]) -> None:
        entry["facts"].pop("machine", None)

    assert np.array_equal(pliant.load(changed(saved, tmp_path, generic))(x), layer(x)) and capfd.readouterr().err == ""


def test_sections_of_a_later_version_are_left_alone(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.pliant"
    with Writer(path) as w:
        w.add("derived", "from the future", b"123")
        for s in container.read(saved).sections:
            w.add(s.kind, s.name, s.data, **s.facts)
    assert np.array_equal(pliant.load(path)(x), layer(x))


def test_python_callbacks_are_refused(tmp_path: Path) -> None:
    def double(x: Any) -> Any:
        return x * 2

    @function
    def call(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(double, [x], out=Tensor[f32, n])

    from pliant.program import Program

    with pytest.raises(pliant.UnsupportedError, match="the Python function `double`, which no file can hold"):
        artifact._refuse_callbacks(Program.of(call.graph).entry)


# Broken files.


def head(data: bytes, **changes: Any) -> bytes:
    """A file with changed fields of its head."""
    names = ("magic", "version", "zero", "place", "length", "digest")
    found = dict(zip(names, container._HEAD.unpack_from(data), strict=True)) | changes
    return container._HEAD.pack(*(found[k] for k in names)) + data[container._HEAD.size :]


def reindexed(data: bytes, change: Callable[[Any], Any]) -> bytes:
    """A file with another index, its checksum right."""
    _, _, _, place, length, _ = container._HEAD.unpack_from(data)
    index = json.loads(data[place : place + length])
    made = change(index)
    text = made if isinstance(made, bytes) else json.dumps(index if made is None else made).encode()
    return head(data[:place] + text, length=len(text), digest=sha256(text).digest())


def section(which: str, **changes: Any) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        next(s for s in index["sections"] if s["kind"] == which).update(changes)

    return change


def facts(kind: str, **changes: Any) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        next(s for s in index["sections"] if s["kind"] == kind and s["size"])["facts"].update(changes)

    return change


def drop(kind: str) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        index["sections"] = [s for s in index["sections"] if s["kind"] != kind]

    return change


def flipped(data: bytes, kind: str) -> bytes:
    """A file with one bit of a section changed."""
    _, _, _, place, length, _ = container._HEAD.unpack_from(data)
    found = next(s for s in json.loads(data[place : place + length])["sections"] if s["kind"] == kind)
    at = found["offset"] + found["size"] // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda d: b"",
    "one byte": lambda d: d[:1],
    "half a head": lambda d: d[:32],
    "only a head": lambda d: d[:64],
    "half of it": lambda d: d[: len(d) // 2],
    "a byte less": lambda d: d[:-1],
    "a byte more": lambda d: d + b"\0",
    "another magic": lambda d: head(d, magic=b"GGUF\0\0\0\0"),
    "line ends changed": lambda d: d.replace(b"\r\n", b"\n", 1),
    "a zip file": lambda d: b"PK\x03\x04" + d[4:],
    "zeros": lambda d: bytes(len(d)),
    "an old version": lambda d: head(d, version=0),
    "a later version": lambda d: head(d, version=2),
    "the last version": lambda d: head(d, version=0xFFFFFFFF),
    "a reserved field": lambda d: head(d, zero=1),
    "an index inside of the head": lambda d: head(d, place=8, length=len(d) - 8),
    "an index beyond the file": lambda d: head(d, place=len(d) + 1),
    "an index at 2^64 - 1": lambda d: head(d, place=2**64 - 1),
    "an index of 2^64 - 1 bytes": lambda d: head(d, length=2**64 - 1),
    "an index that wraps around": lambda d: head(d, place=2**64 - 8, length=len(d) + 8),
    "an empty index": lambda d: head(d, place=len(d), length=0),
    "another checksum": lambda d: head(d, digest=bytes(32)),
    "an index that is no JSON": lambda d: reindexed(d, lambda i: b"{"),
    "an index that is no UTF-8": lambda d: reindexed(d, lambda i: b"\xff\xfe{}"),
    "an index of brackets": lambda d: reindexed(d, lambda i: b"[" * 100_000),
    "an index that is a list": lambda d: reindexed(d, lambda i: []),
    "no sections": lambda d: reindexed(d, lambda i: {"pliant": ""}),
    "sections that are a number": lambda d: reindexed(d, lambda i: i.update(sections=3)),
    "a section that is a number": lambda d: reindexed(d, lambda i: i["sections"].append(3)),
    "a section without a field": lambda d: reindexed(d, lambda i: i["sections"][0].pop("sha256") and None),
    "a section with a field more": lambda d: reindexed(d, section("code", more=1)),
    "facts that are a list": lambda d: reindexed(d, section("code", facts=[])),
    "an offset that is a text": lambda d: reindexed(d, section("code", offset="64")),
    "an offset that is not aligned": lambda d: reindexed(d, section("code", offset=65)),
    "an offset in the head": lambda d: reindexed(d, section("contract", offset=0)),
    "an offset that is negative": lambda d: reindexed(d, section("code", offset=-64)),
    "an offset beyond the file": lambda d: reindexed(d, section("code", offset=1 << 40)),
    "an offset of 2^64": lambda d: reindexed(d, section("code", offset=1 << 64)),
    "a negative size": lambda d: reindexed(d, section("code", size=-1)),
    "a size beyond the file": lambda d: reindexed(d, section("tensor", size=1 << 40)),
    "sections that overlap": lambda d: reindexed(d, section("program", offset=64)),
    "no program": lambda d: reindexed(d, drop("program")),
    "two programs": lambda d: reindexed(d, section("layers", kind="program")),
    "no tensors": lambda d: reindexed(d, drop("tensor")),
    "literals that are no list": lambda d: reindexed(d, facts("program", literals={})),
    "a literal that is not there": lambda d: reindexed(d, facts("program", literals=[99])),
    "a literal of minus one": lambda d: reindexed(d, facts("program", literals=[-1])),
    "fewer literals than the code needs": lambda d: reindexed(d, facts("program", literals=[])),
    "literals in another order": lambda d: reindexed(d, facts("program", literals=[1, 0])),
    "a tensor of an unknown type": lambda d: reindexed(d, facts("tensor", dtype="f31")),
    "a tensor of another type": lambda d: reindexed(d, facts("tensor", dtype="f64")),
    "a tensor of a type that is a list": lambda d: reindexed(d, facts("tensor", dtype=["f32"])),
    "a tensor without a shape": lambda d: reindexed(d, facts("tensor", shape=None)),
    "a tensor of another shape": lambda d: reindexed(d, facts("tensor", shape=[7, 16])),
    "a tensor of a negative shape": lambda d: reindexed(d, facts("tensor", shape=[-8, -16])),
    "a tensor of a huge shape": lambda d: reindexed(d, facts("tensor", shape=[1 << 62, 1 << 62])),
    "a tensor with a fraction": lambda d: reindexed(d, facts("tensor", shape=[8.0, 16])),
    "a changed bit of the code": lambda d: flipped(d, "code"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name: str, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.pliant"
    file.write_bytes(BROKEN[name](saved.read_bytes()))
    with pytest.raises(pliant.ModelFileError) as caught:
        pliant.load(file)
    assert str(file) in str(caught.value)


PORTABLE: dict[str, Callable[[bytes], bytes]] = {
    "a changed bit of the program": lambda d: flipped(d, "program"),
    "names that are no table": lambda d: reindexed(d, facts("program", names=[])),
    "a name for no literal": lambda d: reindexed(d, facts("program", names={"layer.const": 7})),
    "a literal without a name": lambda d: reindexed(d, facts("program", names={})),
    "a changed bit of the layers": lambda d: flipped(d, "layers"),
}


@pytest.mark.parametrize("name", PORTABLE)
def test_broken_portable_parts(name: str, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "broken.pliant"
    file.write_bytes(PORTABLE[name](saved.read_bytes()))
    with pytest.raises(pliant.ModelFileError, match="is no usable"):
        pliant.load(file, recompile=True)


@pytest.mark.parametrize(
    "text",
    [b"", b"import os", b"x = [", b"(" * 5000, b"x = " + b"-" * 100_000 + b"1", b"@function\ndef f(x):\n    return x\n", b"\0", b"\xff"],
)
def test_programs_that_are_none(text: bytes, saved: Path, tmp_path: Path) -> None:
    def change(entry: dict[str, Any]) -> None:
        if entry["kind"] == "program":
            entry["data"] = text

    with pytest.raises(pliant.ModelFileError, match="its program cannot be read"):
        pliant.load(changed(saved, tmp_path, change), recompile=True)


def test_changed_weights_are_found_when_asked_for(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "flipped.pliant"
    file.write_bytes(flipped(saved.read_bytes(), "tensor"))
    with pytest.raises(pliant.ModelFileError, match="the bytes of its tensor 0 have changed"):
        pliant.load(file, verify=True)


def test_a_later_version_says_what_to_do(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "later.pliant"
    file.write_bytes(head(saved.read_bytes(), version=7))
    with pytest.raises(pliant.ModelFileError, match=r"made by a newer version of Pliant: its form is 7(.|\n)*help: install a newer"):
        pliant.load(file)


def test_mutated_files(saved: Path, tmp_path: Path) -> None:
    """Whatever byte is changed outside of the tensors, it is found (with `verify`, also there)."""
    rng, good, file = random.Random(5), saved.read_bytes(), tmp_path / "m.pliant"
    _, _, _, place, length, _ = container._HEAD.unpack_from(good)
    sections = json.loads(good[place : place + length])["sections"]
    used = [range(64), range(place, place + length), *(range(s["offset"], s["offset"] + s["size"]) for s in sections)]
    for _ in range(count(300, 100_000)):
        at = rng.choice(rng.choice(used))
        file.write_bytes(good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :])
        with pytest.raises(pliant.ModelFileError):
            pliant.load(file, verify=True)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(pliant.ModelFileError, match="cannot read"):
        pliant.load(tmp_path / "missing.pliant")
    with pytest.raises(pliant.ModelFileError, match="cannot write"):
        pliant.compile(layer).save(tmp_path / "missing" / "m.pliant")


# Saving.


def test_a_failed_save_leaves_the_old_file(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pliant"
    path.write_bytes(saved.read_bytes())
    with pytest.raises(KeyError), Writer(path) as w:
        w.add("program", "", b"123")
        raise KeyError
    assert path.read_bytes() == saved.read_bytes() and os.listdir(tmp_path) == ["m.pliant"]


def test_a_save_over_the_file_that_is_mapped(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pliant"
    path.write_bytes(saved.read_bytes())
    f = pliant.load(path)
    f.save(path)
    assert np.array_equal(f(x), layer(x)) and np.array_equal(pliant.load(path)(x), layer(x))


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_save_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "big.pliant"
    script = (
        "import sys, numpy as np\nfrom pliant.runtime.container import Writer\nnumber = 0\nwhile True:\n"
        "    number += 1\n    with Writer(sys.argv[1]) as w:\n        for k in range(4):\n"
        "            w.add('tensor', str(number), np.full(1 << 20, number % 251, np.uint8))\n    print(number, flush=True)\n"
    )
    rng = random.Random(2)
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.05))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        found = {(s.name, s.check()[0]) for s in container.read(path).sections}
        assert len(found) == 1 and len(container.read(path).sections) == 4, "all sections are of one save"


def test_the_head_is_as_described() -> None:
    assert container._HEAD.size == 64 and struct.calcsize("<8sIIQQ32s") == 64
