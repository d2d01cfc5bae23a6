"""Backends: every kind of target has one, and what it finishes is one blob that stands alone."""

from __future__ import annotations

from typing import get_args

import pytest

from pliant import Tensor, dim, f32, function, ops
from pliant.api import program_of
from pliant.backend import BACKENDS, backend_of
from pliant.backend.base import Backend
from pliant.codegen import pieces
from pliant.pipeline import compile_program
from pliant.runtime.blob import load
from pliant.runtime.package import ENTRIES, Package
from pliant.support.errors import ModelFileError
from pliant.target import Kind, target

n = dim("n", max=64)


@function
def chain(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
    y = ops.softmax(x)
    return ops.relu(y @ ops.permute(x, (1, 0)) @ x)


def test_every_kind_of_target_has_a_backend() -> None:
    assert set(BACKENDS) == set(get_args(Kind))
    for name in ("native", "llvm:cortex-a76", "wasm+simd128", "c:cortex-m7"):
        assert isinstance(backend_of(target(name)), Backend)


@pytest.mark.parametrize(
    ("name", "form"), [("llvm:x86-64-v3", "flat"), ("llvm:cortex-a76", "flat"), ("wasm", "wasm"), ("wasm+simd128", "wasm"), ("c", "c")]
)
@pytest.mark.parametrize("split", [False, True], ids=["one object", "an object for each kernel"])
def test_a_finished_program_is_one_blob(name: str, form: str, split: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if split:
        monkeypatch.setattr(pieces, "_PIECE", 1)
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
    monkeypatch.setattr(pieces, "_PIECE", 1)
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
