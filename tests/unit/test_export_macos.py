"""Exported objects for macOS: what stands in them, read by LLVM and from the tables; a linker takes them where there is one."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.runtime.package import ENTRIES
from pliant.target import target

n = dim("n", max=64)
W = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
SYMBOLS = {f"_layer_{entry}" for entry in (*ENTRIES, "serial_for")}
MACHINES = {"aarch64@macos": (0x0100000C, 0), "apple-m1@macos": (0x0100000C, 0), "x86-64-v3@macos": (0x01000007, 3)}


@function
def layer(x: Tensor[f32, n, 8], scale: f32) -> Tensor[f32, n, 5]:
    return ops.softmax(x @ W) * scale


@pytest.mark.parametrize("name", list(MACHINES))
def test_the_object_has_code_and_external_functions(name: str, tmp_path: Path) -> None:
    import llvmlite.binding as llvm

    files = pliant.export(layer, name, tmp_path)
    assert sorted(f.name for f in files) == ["layer.bin", "layer.h", "layer.json", "layer.o"]
    content = (tmp_path / "layer.o").read_bytes()
    magic, machine, subtype, kind, count, size, flags, _ = struct.unpack_from("<8I", content)
    assert (magic, machine, subtype, kind, flags) == (0xFEEDFACF, *MACHINES[name], 1, 0)
    commands, at = {}, 32
    for _ in range(count):
        command, length = struct.unpack_from("<II", content, at)
        commands[command], at = content[at : at + length], at + length
    assert at == 32 + size and set(commands) == {0x2, 0xB, 0x19, 0x32}
    assert struct.unpack_from("<II", commands[0x32], 8) == (1, 0x000B0000)  # macOS 11
    section = struct.unpack_from("<16s16sQQIIIIIIII", commands[0x19], 72)
    _, _, address, length, offset, alignment, relocations, relocated, traits, *_ = section
    assert (address, alignment, relocations, relocated) == (0, 12, 0, 0) and traits == 0x80000400
    parsed = llvm.ObjectFileRef.from_data(content)
    assert [(s.name(), s.is_text(), s.data()) for s in parsed.sections()] == [(b"__text", True, content[offset : offset + length])]
    table, entries, strings, strings_size = struct.unpack_from("<IIII", commands[0x2], 8)
    assert strings + strings_size == len(content) and struct.unpack_from("<6I", commands[0xB], 8) == (0, 0, 0, entries, entries, 0)
    names = []
    for text, kind, number, description, value in struct.iter_unpack("<IBBHQ", content[table:strings]):
        assert (kind, number, description) == (0x0F, 1, 0) and value < length
        names.append(content[strings + text : content.index(0, strings + text)].decode())
    assert names == sorted(SYMBOLS)  # linkers look for them by halves


def test_code_leaves_the_systems_register_alone() -> None:
    assert "reserve-x18" in target("aarch64@macos").features and "reserve-x18" not in target("aarch64@linux").features


def test_a_linker_makes_a_library_of_it(tmp_path: Path) -> None:
    own = shutil.which("cc") if sys.platform == "darwin" else None
    if not own and not importlib.util.find_spec("ziglang"):
        pytest.skip("links a Mach-O object: needs macOS or zig")
    link = [own] if own else [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-macos"]
    pliant.export(layer, "aarch64@macos", tmp_path)
    command = [*link, "-dynamiclib", "layer.o", "-o", "liblayer.dylib"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    content = (tmp_path / "liblayer.dylib").read_bytes()
    assert struct.unpack_from("<I", content, 12)[0] == 6 and all(name.encode() in content for name in SYMBOLS)  # a library
    code = (tmp_path / "layer.o").read_bytes()
    offset, size = (struct.unpack_from("<I", code, 32 + 72 + 48)[0], struct.unpack_from("<Q", code, 32 + 72 + 40)[0])
    assert code[offset : offset + size] in content  # in one piece
