"""Exported files for Windows: what stands in the object and the DLL, read by LLVM and from the tables; wine runs them where it is."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pliant
from levels import runs_here
from pliant import Tensor, dim, f32, function, ops
from pliant.codegen.write_pe import dynamic_library, object_file
from pliant.runtime.blob import Blob
from pliant.runtime.package import ENTRIES

n = dim("n", max=64)
W = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
SYMBOLS = {f"layer_{entry}" for entry in (*ENTRIES, "serial_for")}
MACHINES = {"x86-64-v3@windows": 0x8664, "aarch64@windows": 0xAA64}


@function
def layer(x: Tensor[f32, n, 8], scale: f32) -> Tensor[f32, n, 5]:
    return ops.softmax(x @ W) * scale


def text(content: bytes, at: int) -> str:
    return content[at : content.index(0, at)].decode()


@pytest.mark.parametrize("name", list(MACHINES))
def test_the_object_has_code_and_external_functions(name: str, tmp_path: Path) -> None:
    import llvmlite.binding as llvm

    files = pliant.export(layer, name, tmp_path)
    assert sorted(f.name for f in files) == ["layer.bin", "layer.dll", "layer.h", "layer.json", "layer.obj"]
    content = (tmp_path / "layer.obj").read_bytes()
    machine, sections, _, table, count, optional, _ = struct.unpack_from("<HHIIIHH", content)
    assert (machine, sections, optional) == (MACHINES[name], 1, 0)
    size, start, relocations, _, relocated = struct.unpack_from("<IIIIH", content, 20 + 16)
    parsed = llvm.ObjectFileRef.from_data(content)
    assert [(s.name(), s.is_text(), s.data()) for s in parsed.sections()] == [(b".text", True, content[start : start + size])]
    assert (relocations, relocated) == (0, 0)
    strings = table + 18 * count
    assert struct.unpack_from("<I", content, strings)[0] == len(content) - strings
    symbols = {}
    for entry in struct.iter_unpack("<8sIhHBB", content[table:strings]):
        short, value, section, kind, storage, extra = entry
        symbol = short.rstrip(b"\0").decode() if short[:4] != bytes(4) else text(content, strings + int.from_bytes(short[4:], "little"))
        assert (section, kind, storage, extra) == (1, 0x20, 2, 0) and value < size
        symbols[symbol] = value
    assert set(symbols) == SYMBOLS


def test_short_names_stand_in_the_table_itself() -> None:
    content = object_file(Blob(b"\xc3" * 16, {}), "x86_64", {"eight_ab": 0, "nine_abcd": 8})
    assert content[60 + 16 :].startswith(b"eight_ab") and content.endswith(struct.pack("<I", 4 + 10) + b"nine_abcd\0")


@pytest.mark.parametrize("name", list(MACHINES))
def test_the_library_exports_functions_and_imports_nothing(name: str, tmp_path: Path) -> None:
    pliant.export(layer, name, tmp_path)
    content, code = (tmp_path / "layer.dll").read_bytes(), (tmp_path / "layer.obj").read_bytes()
    (head,) = struct.unpack_from("<I", content, 60)
    assert content[:2] == b"MZ" and content[head : head + 4] == b"PE\0\0"
    machine, sections, *_, optional, traits = struct.unpack_from("<HHIIIHH", content, head + 4)
    assert machine == MACHINES[name] and traits & 0x2002 == 0x2002  # an image that can be loaded, and a library
    at = head + 24
    assert struct.unpack_from("<H", content, at)[0] == 0x20B and struct.unpack_from("<I", content, at + 16)[0] == 0  # no entry point
    assert struct.unpack_from("<H", content, at + 70)[0] == 0x160  # any place of 64 bits, no executable data
    directories = list(struct.iter_unpack("<II", content[at + 112 : at + 240]))
    assert [i for i, d in enumerate(directories) if d != (0, 0)] == [0, 5]
    heads = [struct.unpack_from("<8sIIII16xI", content, at + optional + 40 * i) for i in range(sections)]
    assert all(h[2] % 4096 == 0 and h[3] % 512 == h[4] % 512 == 0 for h in heads)
    assert not any(h[5] & 0x80000000 for h in heads)  # nothing can be written
    assert heads[-1][2] + 4096 == struct.unpack_from("<I", content, at + 56)[0]  # the size of the image

    def bytes_at(address: int) -> int:
        return next(address - h[2] + h[4] for h in heads if h[2] <= address < h[2] + h[3])

    table = bytes_at(directories[0][0])
    named, _, functions, names, functions_at, names_at, ordinals_at = struct.unpack_from("<IIIIIII", content, table + 12)
    assert text(content, bytes_at(named)) == "layer.dll" and functions == names == len(SYMBOLS)
    listed = [text(content, bytes_at(a)) for (a,) in struct.iter_unpack("<I", content[bytes_at(names_at) :][: 4 * names])]
    assert listed == sorted(SYMBOLS)
    ordinals = struct.unpack_from(f"<{names}H", content, bytes_at(ordinals_at))
    addresses = struct.unpack_from(f"<{names}I", content, bytes_at(functions_at))
    start, size = heads[0][4], heads[0][1]
    assert content[start : start + size] == code[60 : 60 + size]  # the code of the object
    assert all(heads[0][2] <= addresses[o] < heads[0][2] + size for o in ordinals)
    assert struct.unpack_from("<IIHH", content, bytes_at(directories[5][0])) == (4096, 12, 0, 0)


MAIN = """#include "layer.h"
#include <stdio.h>
#include <string.h>
#include <windows.h>
typedef int32_t (*Entry)(PliantCtx *, void **, int64_t *);
static _Alignas(64) uint8_t room[1 << 16], weights[1 << 12];
int main(void) {
  HMODULE dll = LoadLibraryA("layer.dll");
  FILE *file = fopen("layer.bin", "rb");
  if (!dll || !file || fread(weights, 1, sizeof weights, file) == 0) return 1;
  for (int from_dll = 0; from_dll < 2; ++from_dll) {
    Entry prepare = from_dll ? (Entry)(void *)GetProcAddress(dll, "layer_prepare") : layer_prepare;
    Entry run = from_dll ? (Entry)(void *)GetProcAddress(dll, "layer_run") : layer_run;
    int32_t flag = 0;
    PliantCtx ctx = {0};
    double scale = 2.0;
    float x[7 * 8], y[7 * 5];
    void *buffers[LAYER_BUFFERS] = {x, y};
    int64_t dims[LAYER_DIMS] = {7, 8, 8, 1};
    for (int i = 0; i < 56; ++i) x[i] = (float)(i * 37 % 23) / 8 - 1;
    memcpy(&dims[LAYER_DIMS_SCALARS], &scale, 8);
    ctx.cancel = &flag;
    ctx.workspace = room;
    ctx.workspace_size = sizeof room;
    ctx.parallel_for = from_dll ? (void *)GetProcAddress(dll, "layer_serial_for") : (void *)layer_serial_for;
    for (int i = LAYER_CONSTANTS; i < LAYER_BUFFERS; ++i) buffers[i] = weights + layer_constant_offsets[i - LAYER_CONSTANTS];
    if (prepare(&ctx, 0, dims) || dims[LAYER_DIMS_WORKSPACE] > (int64_t)sizeof room || run(&ctx, buffers, dims)) return 2;
    for (int i = 0; i < 35; ++i) { uint32_t bits; memcpy(&bits, &y[i], 4); printf("%u ", bits); }
    printf("\\n");
  }
  return 0;
}
"""


def test_wine_runs_the_object_and_the_library(tmp_path: Path) -> None:
    """A program links the one and loads the other; both give the bits of the same code on this machine."""
    wine = shutil.which("wine64") or shutil.which("wine") or shutil.which("wine64", path="/usr/lib/wine")
    mingw = shutil.which("x86_64-w64-mingw32-gcc")
    build = [mingw] if mingw else [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"]
    if not wine or not (mingw or importlib.util.find_spec("ziglang")):
        pytest.skip("runs a Windows program: needs wine, and mingw or zig")
    if not runs_here("x86-64-v3"):
        pytest.skip("runs code for x86-64-v3")
    pliant.export(layer, "x86-64-v3@windows", tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    subprocess.run([*build, "-O1", "main.c", "layer.obj", "-o", "main.exe"], cwd=tmp_path, check=True, timeout=600)
    settings = {**os.environ, "WINEPREFIX": str(tmp_path / "wine"), "WINEDEBUG": "-all"}
    done = subprocess.run([wine, "main.exe"], cwd=tmp_path, env=settings, capture_output=True, text=True, check=True, timeout=600)
    linked, loaded = (np.array(line.split(), np.uint32).view(np.float32).reshape(7, 5) for line in done.stdout.splitlines())
    x = ((np.arange(56) * 37 % 23).astype(np.float32) / 8 - 1).reshape(7, 8)
    expected = pliant.compile(layer, target="x86-64-v3")(x, 2.0)
    assert linked.tobytes() == loaded.tobytes() == expected.tobytes()
    e = np.exp(x.astype(np.float64) @ W)
    np.testing.assert_allclose(linked, 2 * e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_library_of_any_size() -> None:
    """Code that ends at a page's end, before it and after it: sections never meet."""
    for size in (1, 512, 4096, 4097, 12288):
        content = dynamic_library(Blob(bytes(size), {}), "x86_64", {"a": 0}, "a.dll")
        heads = [struct.unpack_from("<8sIIII16xI", content, 64 + 24 + 240 + 40 * i) for i in range(3)]
        assert heads[0][2] + size <= heads[1][2] and heads[1][2] + heads[1][1] <= heads[2][2]
        assert heads[2][4] + heads[2][3] == len(content)
