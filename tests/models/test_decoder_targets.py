"""The decoder layer on other machines: in wasm it equals native code bit for bit; for aarch64 its object needs nobody's functions."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pliant
from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import link, undefined_symbols
from pliant.codegen.llvm import generate
from pliant.pipeline import STEPS, State
from pliant.runtime.executable import Executable
from pliant.runtime.loading import all_literals
from pliant.target import target

sys.path[:0] = [str(Path(__file__).parents[2] / "examples"), str(Path(__file__).parents[1] / "parity")]

import decoder_layer as example  # noqa: E402
from wasm_programs import run_host  # noqa: E402


def scheduled(name: str) -> State:
    """The layer as it is before machine code is made, its kernels scheduled for a machine."""
    program = pliant.Program(example.decoder_layer.graph)
    state = State(program.entry, target(name), program.constants)
    for step in STEPS[:-1]:
        state = step.run(state)
    return state


def test_the_layer_in_wasm_equals_native_bit_for_bit() -> None:
    """The same loop programs: those that are scheduled for wasm."""
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    weights = example.random_weights()
    cache = example.Cache(pages=4, slots=2, sequences=2)
    x = np.random.default_rng(5).standard_normal((70, example.WIDTH)).astype(np.float32)
    arguments = {"x": x, **cache.step({0: 66, 1: 4}), **weights, "keys": cache.keys, "values": cache.values}
    state = scheduled("wasm+simd128")
    assert state.host is not None
    foreign = run_host(state.host, [np.array(arguments[p.name]) for p in state.host.layout.params])
    package = STEPS[-1].run(replace(state, target=target("native"))).package
    assert package is not None
    native = Executable(package, constants=package.interface.memory(all_literals(package, state.constants), state.functions))(**arguments)
    for ours, theirs in zip(native, foreign, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["llvm:generic", "llvm:cortex-a76+dotprod"])
def test_the_aarch64_object_stands_alone(name: str) -> None:
    host = scheduled(name).host
    assert host is not None
    module = generate((host.prepare, host.size, host.run), target(name))
    compiled = emit_object(module.text, module.target)
    assert undefined_symbols(compiled) == []
    assert set(link(compiled, module.exports).exports) == {"prepare", "size", "run"}
