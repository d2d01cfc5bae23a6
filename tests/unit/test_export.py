"""`pliant.export`: every target of the table works or is refused in one sentence; what the files are, and who can use them."""

from __future__ import annotations

import ctypes
import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pliant
from exported_programs import text_of
from levels import runs_here
from pliant import Tensor, dim, f32, function, ops
from pliant.codegen.write_elf import PAGE, object_file, shared_library
from pliant.runtime import container
from pliant.runtime.blob import Blob
from pliant.runtime.ctx import Ctx
from pliant.runtime.package import ENTRIES, Package
from pliant.support.errors import ModelFileError, UnsupportedError
from pliant.target import OSES, TABLE, target

n = dim("n", max=64)
W = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)


@function
def layer(x: Tensor[f32, n, 8], scale: f32) -> Tensor[f32, n, 5]:
    return ops.relu(x @ W) * scale


NAMES = [*(name for row in TABLE for name in row.examples), *(f"aarch64@{os}" for os in OSES), "webgpu", "cuda"]


@pytest.mark.parametrize("name", NAMES)
def test_every_target_works_or_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    try:
        files = pliant.export(layer, name, tmp_path)
    except UnsupportedError as refused:
        assert "\n" not in refused.what and len(refused.what) < 140
        assert name in ("webgpu", "cuda")
        assert not list(tmp_path.iterdir())
        return
    names = sorted(p.name for p in files)
    assert names == sorted(p.name for p in tmp_path.iterdir()) and all(p.stat().st_size for p in files)
    machine = target(name)
    if machine.kind == "c":  # its weights are in the source, its description is the header
        assert names == ["layer.c", "layer.h"]
        return
    code = {"none": ["layer.o"], "macos": ["layer.o"], "windows": ["layer.dll", "layer.obj"]}.get(machine.os, ["layer.o", "liblayer.so"])
    own = ["layer.wasm"] if machine.arch == "wasm32" else ["layer.h", *code]
    if machine.kind == "web":  # what else is in it: tests/models/test_web_export.py
        assert {"index.html", "page.js", "pliant.js", "layer.fused.json"} < set(names)
        names = [name for name in names if name in ("layer.wasm", "layer.bin", "layer.json")]
    assert names == sorted([*own, "layer.bin", "layer.json"])
    facts = json.loads((tmp_path / "layer.json").read_text())
    probe = ["fused"] if "relaxed-simd" in machine.features else []
    pool = ["parallel_for", "worker_loop"] if "atomics" in machine.features else []
    assert list(facts["entries"]) == [*ENTRIES, "serial_for", *probe, *pool] and facts["target"]["arch"] == machine.arch
    assert facts["constants_bytes"] == (tmp_path / "layer.bin").stat().st_size


def test_what_the_docs_list_is_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    for row in TABLE:
        for name in (*row.examples, row.form):
            assert not name or f"`{name}`" in page
    assert all(f"`{os}`" in page for os in OSES)


def sections(content: bytes) -> dict[str, tuple[int, ...]]:
    """The heads of the sections of an ELF file, by name."""
    (table,) = struct.unpack_from("<Q", content, 40)
    count, names_at = struct.unpack_from("<HH", content, 60)
    heads = list(struct.iter_unpack("<IIQQQQIIQQ", content[table : table + 64 * count]))
    names = content[heads[names_at][4] :]
    return {names[h[0] : names.index(0, h[0])].decode(): h for h in heads}


@pytest.mark.parametrize("name", ["x86-64-v3@linux", "aarch64@android", "riscv64@linux"])
def test_a_library_stands_alone_on_large_pages(name: str, tmp_path: Path) -> None:
    pliant.export(layer, name, tmp_path)
    content = (tmp_path / "liblayer.so").read_bytes()
    (segments_at,) = struct.unpack_from("<Q", content, 32)
    (count,) = struct.unpack_from("<H", content, 56)
    segments = list(struct.iter_unpack("<IIQQQQQQ", content[segments_at : segments_at + 56 * count]))
    loaded = [s for s in segments if s[0] == 1]
    assert all(s[7] == PAGE and s[2] % PAGE == s[3] % PAGE == 0 for s in loaded) and PAGE == 16384
    assert [s[1] for s in loaded] == [4, 5, 6]  # nothing can be written and executed
    assert [s[1] for s in segments if s[0] == 0x6474E551] == [6]  # nor can the stack be executed
    heads = sections(content)
    table, strings = (content[heads[s][4] : heads[s][4] + heads[s][5]] for s in (".dynsym", ".dynstr"))
    symbols = list(struct.iter_unpack("<IBBHQQ", table))[1:]
    assert all(section for *_, section, _, _ in symbols)  # none is undefined
    assert {strings[s[0] : strings.index(0, s[0])].decode() for s in symbols} == {f"layer_{e}" for e in (*ENTRIES, "serial_for")}
    assert ".rela.dyn" not in heads and heads[".dynamic"][1] == 6
    code, names = text_of((tmp_path / "layer.o").read_bytes())
    assert code == content[heads[".text"][4] : heads[".text"][4] + heads[".text"][5]] and set(names) == {
        f"layer_{e}" for e in (*ENTRIES, "serial_for")
    }


@pytest.mark.skipif(sys.platform != "linux", reason="opens an ELF library")
def test_the_systems_loader_opens_it(tmp_path: Path) -> None:
    """Called as a C program would, with nothing of Pliant's runtime; what it computes is what numpy does."""
    name = next(t for t in ("x86-64-v3", "x86-64", "aarch64") if runs_here(t))
    pliant.export(layer, name, tmp_path)
    facts = json.loads((tmp_path / "layer.json").read_text())
    library = ctypes.CDLL(str(tmp_path / "liblayer.so"))
    x = np.random.default_rng(1).integers(-3, 4, (7, 8)).astype(np.float32)
    dims = (ctypes.c_int64 * facts["dims"]["total"])()
    dims[:4] = [7, 8, 8, 1]
    dims[4] = struct.unpack("<q", struct.pack("<d", 2.0))[0]
    flag, ctx = ctypes.c_int32(0), Ctx()
    ctx.cancel = ctypes.addressof(flag)
    ctx.parallel_for = ctypes.cast(library.layer_serial_for, ctypes.c_void_p).value
    assert library.layer_prepare(ctypes.byref(ctx), None, dims) == 0
    assert list(dims[facts["dims"]["outputs"] : facts["dims"]["workspace"]]) == [7, 5]
    room = np.zeros(dims[facts["dims"]["workspace"]] + 64, np.uint8)
    ctx.workspace, ctx.workspace_size = room.ctypes.data + -room.ctypes.data % 64, room.size - 64
    weights = np.fromfile(tmp_path / "layer.bin", np.uint8)
    y = np.zeros((7, 5), np.float32)
    pointers = [x.ctypes.data, y.ctypes.data, *(weights.ctypes.data + c["offset"] for c in facts["constants"])]
    buffers = (ctypes.c_void_p * len(pointers))(*pointers)
    assert library.layer_run(ctypes.byref(ctx), buffers, dims) == 0
    np.testing.assert_allclose(y, np.maximum(x @ W, 0) * 2, rtol=1e-5, atol=1e-5)
    dims[:4] = [7, 9, 9, 1]
    assert library.layer_prepare(ctypes.byref(ctx), None, dims) == 2 and "dim 1" in facts["checks"][ctx.error[1]]["message"]


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="links an ELF object with the system's compiler")
def test_a_c_program_links_the_object(tmp_path: Path) -> None:
    """The header compiles as C and as C++ would take it, its numbers are those of the description, and the linker takes the object."""
    name = next(t for t in ("x86-64-v3", "x86-64", "aarch64") if runs_here(t))
    pliant.export(layer, name, tmp_path)
    facts = json.loads((tmp_path / "layer.json").read_text())
    main = """#include "layer.h"
#include <stdio.h>
int main(void) {
  int32_t flag = 0;
  PliantCtx ctx = {0};
  int64_t dims[LAYER_DIMS] = {3, 8, 8, 1};
  ctx.cancel = &flag;
  ctx.parallel_for = layer_serial_for;
  int32_t code = layer_prepare(&ctx, 0, dims);
  printf("%d %d %d ", code, LAYER_BUFFERS, LAYER_CONSTANTS);
  printf("%d %d\\n", (int)dims[LAYER_DIMS_OUTPUTS], (int)dims[LAYER_DIMS_SYMBOLS]);
  return 0;
}
"""
    (tmp_path / "main.c").write_text(main)
    command = ["cc", "-std=c99", "-Wall", "-Werror", "-pedantic", "main.c", "layer.o", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    out = subprocess.run([str(tmp_path / "main")], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["0", str(facts["buffers"]), "2", "3", "3"]


def test_an_artifact_holds_parts_for_any_target(tmp_path: Path) -> None:
    f = pliant.compile(layer)
    f.save(tmp_path / "layer.pliant", targets=["wasm+simd128", "aarch64@android", "riscv64@linux", "c:cortex-m7", "native"])
    parts = container.read(tmp_path / "layer.pliant").find("code")
    assert [s.name for s in parts] == ["native", "wasm+simd128", "aarch64@android", "riscv64@linux", "c:cortex-m7"]
    assert [s.facts["form"] for s in parts] == ["flat", "wasm", "flat", "flat", "c"]
    assert Package.from_bytes(bytes(parts[1].check())).blob.code[:4] == b"\0asm"
    x = np.ones((3, 8), np.float32)
    assert np.array_equal(pliant.load(tmp_path / "layer.pliant")(x, 2.0), f(x, 2.0))


def test_code_with_other_conventions_is_not_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part for Windows has the features of this machine, but takes its arguments from other registers."""
    here = target("native")
    if here.arch != "x86_64" or here.os == "windows":
        pytest.skip("is about x86-64 outside of Windows")
    with pytest.raises(UnsupportedError, match="cannot run on this machine"):
        pliant.compile(layer, target="x86-64@windows")
    f = pliant.compile(layer)
    f.save(tmp_path / "a.pliant", targets=["x86-64@windows"])
    with container.Writer(tmp_path / "b.pliant", "test") as w:  # without the part for this machine
        for s in container.read(tmp_path / "a.pliant").sections:
            if (s.kind, s.name) != ("code", "native"):
                w.add(s.kind, s.name, s.data, **s.facts)
    x = np.ones((3, 8), np.float32)
    assert np.array_equal(pliant.load(tmp_path / "b.pliant")(x, 2.0), f(x, 2.0))
    assert "has no code for this machine (it has: x86-64@windows)" in capsys.readouterr().err


def test_a_program_that_leaves_compiled_code_is_refused(tmp_path: Path) -> None:
    def twice(x: np.ndarray) -> np.ndarray:
        return x * 2

    @function
    def outside(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(twice, [x], out=Tensor[f32, n])

    with pytest.raises(UnsupportedError, match="`twice`, a function outside of compiled code"):
        pliant.export(outside, "wasm", tmp_path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFileError, match="cannot write to"):
        pliant.export(layer, "wasm", tmp_path / "file")


def test_names_are_identifiers(tmp_path: Path) -> None:
    files = pliant.export(layer, "wasm", tmp_path, name="7 models/ü")
    assert sorted(p.name for p in files) == ["_7_models__.bin", "_7_models__.json", "_7_models__.wasm"]


def test_loaders_find_every_symbol() -> None:
    """The hash table leads to every symbol, as a loader walks it."""
    for count in (1, 2, 5):
        symbols = {f"f{i}": i for i in range(count)}
        content = shared_library(Blob(bytes(16), {}), "x86_64", symbols, "libx.so")
        head = sections(content)[".hash"]
        buckets, entries, first, *chain = struct.unpack_from(f"<{head[5] // 4}I", content, head[4])
        assert (buckets, entries) == (1, 1 + count)
        reached, at = [], first
        while at:
            reached.append(at)
            at = chain[at]
        assert reached == list(range(1, 1 + count))
        assert text_of(object_file(Blob(bytes(16), {}), "riscv64", symbols))[1] == symbols


@pytest.mark.parametrize("facts", [{"form": "flat"}, {"form": "flat", "arch": None}, {"form": 7}, {"convention": ["c"]}])
def test_a_part_that_lies_about_itself_is_refused_or_left_alone(tmp_path: Path, facts: dict[str, object]) -> None:
    """A file that calls a wasm module machine code for this CPU: it is never mapped."""
    here = target("native")
    pliant.compile(layer).save(tmp_path / "a.pliant", targets="wasm")
    with container.Writer(tmp_path / "b.pliant", "test") as w:
        for s in container.read(tmp_path / "a.pliant").sections:
            if s.kind == "code" and s.name == "wasm":
                claims = {**s.facts, "arch": here.arch, "features": [], "convention": here.convention, "form": "flat", **facts}
                w.add(s.kind, s.name, s.data, **claims)
            elif s.kind != "code":
                w.add(s.kind, s.name, s.data, **s.facts)
    if facts == {"form": "flat"}:
        with pytest.raises(ModelFileError, match="of the form `wasm`"):
            pliant.load(tmp_path / "b.pliant")(np.ones((3, 8), np.float32), 2.0)
    else:
        assert pliant.load(tmp_path / "b.pliant")(np.ones((3, 8), np.float32), 2.0).shape == (3, 5)
