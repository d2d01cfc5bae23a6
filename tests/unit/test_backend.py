"""Backends: every kind of target has one, and what it finishes is one blob that stands alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops
from pliant.api import program_of
from pliant.backend import backend_of
from pliant.backend.base import Assembly, Backend, Code, Exported
from pliant.backend.c import CAssembly
from pliant.codegen import background_compile
from pliant.loop.lowering import Watch
from pliant.loop.printer import print_func
from pliant.loop.stmt import Func
from pliant.pipeline import compile_program
from pliant.runtime.blob import Blob, load
from pliant.runtime.package import ENTRIES, Package
from pliant.support.errors import ModelFileError, UnsupportedError
from pliant.target import Target, known_names, names, target
from pliant.target.spelling import Row, Spelled

n = dim("n", max=64)


@function
def chain(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
    y = ops.softmax(x)
    return ops.relu(y @ ops.permute(x, (1, 0)) @ x)


@pytest.mark.parametrize("name", known_names())
def test_every_target_has_a_backend(name: str) -> None:
    assert isinstance(backend_of(target(name)), Backend)


class Listing(Backend):
    """A kind of target whose code are loop programs as text."""

    writes_host = True

    def assembly(self, target: Target, level: int = 2, watch: Watch | None = None) -> Assembly:
        return ListingAssembly(watch)

    def files(self, program: Exported) -> dict[str, bytes]:
        return {f"{program.name}.txt": program.package.blob.code}


class ListingAssembly(CAssembly):
    def finish(self, entries: Sequence[Func]) -> Code:
        text = "\n".join(map(print_func, entries)).encode()
        return Code(Blob(text, {f.name: text.index(f"def {f.name}(".encode()) for f in entries}, "list"), (), (), parallel=False)


def test_a_new_kind_is_a_record_a_backend_and_a_name_in_the_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing else is told of it: names, help, errors, pipeline, cache and export take it as it is."""
    wasm = target("wasm")

    def named(spelled: Spelled) -> Target | None:
        return replace(wasm, name=spelled.name, kind="listing") if spelled.base == "listing" else None

    rows = (Row("listing", ("listing",), "loop programs for people", "a text"),)
    kind = SimpleNamespace(NAMES=("listing",), ROWS=rows, named=named)
    monkeypatch.setattr(names, "KINDS", (*names.KINDS, kind))
    monkeypatch.setitem(sys.modules, "pliant.backend.listing", SimpleNamespace(BACKEND=Listing()))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="`listing`"):
        target("lising")
    (file,) = pliant.export(chain, "listing", tmp_path)
    text = file.read_text()
    assert file.name == "chain.txt" and all(f"def {entry}(" in text for entry in ENTRIES) and "matmul(" in text


@pytest.mark.parametrize(
    ("name", "form"), [("llvm:x86-64-v3", "flat"), ("llvm:cortex-a76", "flat"), ("wasm", "wasm"), ("wasm+simd128", "wasm"), ("c", "c")]
)
@pytest.mark.parametrize("split", [False, True], ids=["one object", "an object for each kernel"])
def test_a_finished_program_is_one_blob(name: str, form: str, split: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if split:
        monkeypatch.setattr(background_compile, "_PIECE", 1)
    package = compile_program(program_of(chain), name, cache=False)
    assert package.blob.form == form
    assert set(package.blob.exports) == {*ENTRIES, *(["serial_for"] if form == "wasm" else [])}
    assert Package.from_bytes(package.to_bytes()) == package


def test_a_wasm_module_is_never_mapped_as_machine_code() -> None:
    package = compile_program(program_of(chain), "wasm")
    with pytest.raises(ModelFileError, match="of the form `wasm`"):
        load(package.blob)


def test_exports_of_c_source_are_where_functions_begin() -> None:
    blob = compile_program(program_of(chain), "c", cache=False).blob
    assert all(blob.code[at:].startswith(f"int32_t {name}(Ctx *ctx".encode()) for name, at in blob.exports.items())


def test_exports_of_a_wasm_blob_are_bodies_of_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset leads to the size of the body and then its local variables; wasmtime agrees that the module is one."""
    wasmtime = pytest.importorskip("wasmtime", reason="validates modules")
    monkeypatch.setattr(background_compile, "_PIECE", 1)
    blob = compile_program(program_of(chain), "wasm+simd128", cache=False).blob
    wasmtime.Module.validate(wasmtime.Engine(), blob.code)
    for offset in blob.exports.values():
        size = shift = 0
        while True:
            byte = blob.code[offset]
            size, shift, offset = size | (byte & 0x7F) << shift, shift + 7, offset + 1
            if byte < 0x80:
                break
        assert blob.code[offset + size - 1] == 0x0B  # a body ends with `end`
