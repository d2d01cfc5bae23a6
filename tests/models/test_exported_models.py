"""Whole models as exported files: WebAssembly equals the interpreter, other CPUs equal x86-64-v3, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pliant
from counts import count
from exported_models import MODELS, Interpreted, Model, run_scheduled_for
from exported_programs import Exported


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> tuple[str, Model]:
    if request.param == "onnx_cnn":
        pytest.importorskip("onnx", reason="makes ONNX files")
    return request.param, MODELS[request.param]()


def same(ours: list[np.ndarray], theirs: list[np.ndarray]) -> bool:
    return len(ours) == len(theirs) and all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))


def test_one_wasm_module_equals_the_interpreter(model: tuple[str, Model], tmp_path: Path) -> None:
    """Two calls: the second finds the state that the first left."""
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    name, m = model
    pliant.export(m.program, "wasm+simd128", tmp_path, name=name)
    exported, interpreted = Exported(tmp_path, name), Interpreted(m.program, "wasm+simd128")
    ours, theirs = m.fresh(), m.fresh()
    for _ in range(1 if name == "decoder_layer" else 2):
        assert same(exported.run(ours), interpreted.run(theirs))
        assert all(np.array_equal(ours[k], theirs[k]) for k in ours)


CPUS = {
    "cortex-a53@linux": "cortex-a53",  # nothing newer is used
    "cortex-a76@linux": "max",
    "riscv64@linux": "rv64",
    "riscv64+v@linux": "rv64,v=true,vext_spec=v1.0,vlen=128",
}


@pytest.fixture(scope="module")
def expected(model: tuple[str, Model]) -> list[np.ndarray]:
    """What x86-64-v3 computes; the interpreter's definition of every operation is the machine's, so any machine may run it."""
    return run_scheduled_for(model[1].program, "x86-64-v3", model[1].fresh())


@pytest.mark.parametrize("name", CPUS)
def test_other_cpus_equal_x86(model: tuple[str, Model], name: str, expected: list[np.ndarray], tmp_path: Path) -> None:
    stem, m = model
    if stem in ("decoder_layer", "sentence_embedder") and name in ("cortex-a53@linux", "riscv64+v@linux") and count(0, 1) == 0:
        pytest.skip("takes long to compile: with PLIANT_LONG=1")
    pliant.export(m.program, name, tmp_path, name=stem)
    assert same(Exported(tmp_path, stem, CPUS[name]).run(m.fresh()), expected)


def test_plain_wasm_has_no_vectors(tmp_path: Path) -> None:
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    m = MODELS["stream"]()
    pliant.export(m.program, "wasm", tmp_path, name="stream")
    assert same(Exported(tmp_path, "stream").run(m.fresh()), Interpreted(m.program, "wasm").run(m.fresh()))
