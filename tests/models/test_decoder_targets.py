"""The decoder layer on other machines: in wasm it equals native code bit for bit; for aarch64 its object needs nobody's functions."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant.codegen.emit import emit_object
from pliant.codegen.link_elf import link, undefined_symbols
from pliant.codegen.llvm import generate
from pliant.lower.host import HostProgram
from pliant.pipeline import STEPS, State
from pliant.target import target

sys.path[:0] = [str(Path(__file__).parents[2] / "examples"), str(Path(__file__).parents[1] / "parity")]

import decoder_layer as example  # noqa: E402


@pytest.fixture(scope="module")
def host() -> HostProgram:
    """The host program with kernels as they are scheduled for this machine."""
    program = pliant.Program(example.decoder_layer.graph)
    state = State(program.entry, target("native"), program.constants)
    for step in STEPS[:-1]:
        state = step.run(state)
    assert state.host is not None
    return state.host


def run_in_wasm(host: HostProgram, arguments: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Calls `prepare` and `run` as the ABI says, in wasmtime; the first result, keys and values."""
    from test_targets import Wasm

    wasm = Wasm((host.prepare, host.size, host.run), "wasm+simd128")
    layout = host.layout
    wasm.top = wasm.heap
    arrays = [np.ascontiguousarray(arguments[p.name]) for p in layout.params]
    places = [wasm._put(a.tobytes()) for a in arrays]
    region = [n for a in arrays for n in (*a.shape, *(s // a.itemsize for s in a.strides))]
    dims = wasm._put(struct.pack(f"<{layout.at_workspace + 1}q", *region, *([0] * (layout.at_workspace + 1 - len(region)))))
    record = bytearray(wasm.layout.error + 64)
    struct.pack_into("<I", record, wasm.layout.parallel_for, wasm.parallel_for)
    struct.pack_into("<I", record, wasm.layout.cancel, wasm._put(bytes(4)))
    ctx = wasm._put(bytes(record))
    assert wasm.exports["prepare"](wasm.store, ctx, 0, dims) == 0

    def slots(first: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}q", wasm.memory.read(wasm.store, dims + 8 * first, dims + 8 * (first + count)))

    shape = slots(layout.at_outputs, 2)
    (room,) = slots(layout.at_workspace, 1)
    result = wasm._put(bytes(4 * shape[0] * shape[1]))
    struct.pack_into("<I", record, wasm.layout.workspace, wasm._put(bytes(room)))
    struct.pack_into("<q", record, wasm.layout.workspace_size, room)
    wasm.memory.write(wasm.store, bytes(record), ctx)
    constants = [wasm._put(np.ascontiguousarray(c.array).tobytes()) for c in host.constants]
    pointers = [*places, result, *places[-2:], *constants]
    buffers = wasm._put(struct.pack(f"<{len(pointers)}I", *pointers))
    assert wasm.exports["run"](wasm.store, ctx, buffers, dims) == 0
    read = [(result, shape), *((place, a.shape) for place, a in zip(places[-2:], arrays[-2:], strict=True))]
    return [np.frombuffer(bytes(wasm.memory.read(wasm.store, at, at + 4 * int(np.prod(s)))), np.float32).reshape(s) for at, s in read]


def test_the_layer_in_wasm_equals_native_bit_for_bit(host: HostProgram) -> None:
    pytest.importorskip("wasmtime", reason="runs modules in wasmtime")
    weights = example.random_weights()
    cache = example.Cache(pages=4, slots=2, sequences=2)
    x = np.random.default_rng(5).standard_normal((70, example.WIDTH)).astype(np.float32)
    arguments = {"x": x, **cache.step({0: 66, 1: 4}), **weights, "keys": cache.keys, "values": cache.values}
    foreign = run_in_wasm(host, arguments)
    native = pliant.compile(example.decoder_layer)(**arguments)
    for ours, theirs in zip(native, foreign, strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["llvm:generic", "llvm:cortex-a76+dotprod"])
def test_the_aarch64_object_stands_alone(host: HostProgram, name: str) -> None:
    module = generate((host.prepare, host.size, host.run), target(name))
    compiled = emit_object(module.text, module.target)
    assert undefined_symbols(compiled) == []
    assert set(link(compiled, module.exports).exports) == {"prepare", "size", "run"}
