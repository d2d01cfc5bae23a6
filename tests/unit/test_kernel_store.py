"""Kernels by content: programs share the kernels that are equal, with the bytes and the results that each alone would have."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Out, Tensor, alloc, check, dim, dtype, f32, function, i64, kernel, ops, pipeline
from pliant.codegen import background_compile
from pliant.graph.builder import Builder
from pliant.graph.node import Tensor as GraphTensor
from pliant.lower import schedule_kernels
from pliant.runtime import code_cache
from pliant.sym.expr import Dim, const
from pliant.target import target as find_target

Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(0.1, 1, shape).astype(np.float32)


def net(*widths: int, seed: int = 0, names: str = "bhw", last: Any = None) -> pliant.Program:
    """Convolutions with one number of channels after the other, then `last`; the dims are called `names`."""
    weights = [random(m, k, 3, 3, seed=seed + m + k) for k, m in zip((4, *widths), widths, strict=False)]
    b, h, w = (Dim(name, min=1 if name == names[0] else 16) for name in names)
    builder = Builder("f")
    x = builder.param("x", GraphTensor(dtype.f32, (b, const(4), h, w)))
    with builder:
        for weight in weights:
            x = ops.relu(ops.conv(x, ops.constant(weight)))
        result = ops.sigmoid(x) if last is None else last(x)
    return pliant.Program.of(builder.finish([result]))


@pytest.fixture
def scheduled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The kernels that are scheduled, in a code cache of its own; every kernel is an object."""
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    monkeypatch.setattr(background_compile, "_PIECE", 1)
    seen: list[str] = []
    schedule = schedule_kernels.Kernels._scheduled

    def watched(self: Any, func: Any, *rest: Any) -> Any:
        seen.append(func.name)
        return schedule(self, func, *rest)

    monkeypatch.setattr(schedule_kernels.Kernels, "_scheduled", watched)
    yield seen


def bytes_of(program: pliant.Program, **options: Any) -> bytes:
    """The package of a program, compiled with little effort unless the options say otherwise."""
    return pipeline.compile_program(program, **{"effort": "fast", **options}).to_bytes()


def is_kernel(file: Path) -> bool:
    return b"\nkernel\n" in b"\n" + file.read_bytes()[56:63]


def forget_programs() -> int:
    """Removes whole programs from the cache; returns how many kernels are left."""
    for file in code_cache.default().files():
        if not is_kernel(file):
            file.unlink()
    return len(code_cache.default().files())


@pytest.mark.parametrize("piece", [1, 50_000], ids=["objects", "texts"])
def test_a_program_made_of_kept_kernels_has_the_same_bytes(scheduled: list[str], monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(background_compile, "_PIECE", piece)
    alone = bytes_of(net(16, 32), cache=False)
    assert bytes_of(net(16, 32)) == alone
    assert forget_programs() > 2
    scheduled.clear()
    assert bytes_of(net(16, 32)) == alone
    assert scheduled == []


def test_an_edited_net_compiles_what_is_new(scheduled: list[str]) -> None:
    bytes_of(net(16, 8))
    scheduled.clear()
    edited = net(16, 24)
    alone = bytes_of(edited, cache=False)
    assert {"conv_relu", "conv_relu_sigmoid"} <= set(scheduled)
    scheduled.clear()
    assert bytes_of(edited) == alone
    assert "conv_relu_sigmoid" in scheduled and "conv_relu" not in scheduled
    x = random(2, 4, 20, 24, seed=5)
    results = [pliant.compile(edited, cache=cache, effort="fast")(x) for cache in (True, False)]
    np.testing.assert_array_equal(*results)


def test_code_depends_on_the_order_of_names_so_these_count(scheduled: list[str]) -> None:
    bytes_of(net(16, 32))
    renamed = net(16, 32, names="nyx")
    alone = bytes_of(renamed, cache=False)
    assert bytes_of(renamed) == alone


@pytest.mark.parametrize("other", [{}, {"target": "llvm:x86-64-v3"}, {"target": "llvm:cortex-a76"}], ids=["effort", "cpu", "architecture"])
def test_what_code_depends_on_is_in_the_key(scheduled: list[str], other: dict[str, Any]) -> None:
    if find_target("native").cpu == find_target(other.get("target", "llvm:cortex-a76")).cpu:
        pytest.skip("that is this machine")
    bytes_of(net(16), effort="full")
    scheduled.clear()
    alone = bytes_of(net(16), cache=False, **other)
    whole = list(scheduled)
    scheduled.clear()
    assert bytes_of(net(16), **other) == alone
    assert scheduled == whole, "nothing of the other is taken"


@pytest.mark.parametrize("options", [{"checked": True}, {"decisions": {"out.tile": (2, 1)}}], ids=["checked", "decisions"])
def test_what_is_asked_for_kernel_by_kernel_is_not_kept(scheduled: list[str], options: dict[str, Any]) -> None:
    n = dim("n")

    @function
    def f(x: Tensor[f32, n, 32], y: Tensor[f32, 32, 48]) -> Tensor[f32, n, 48]:
        return ops.matmul(x, y)

    if "decisions" in options:
        state = pipeline.compile_as_far_as("schedule", pliant.Program.of(f.graph), find_target("native"))
        (tile,) = (d for k in state.decisions.kernels for d in k.made.values() if d.name.endswith(".tile"))
        options = {"decisions": {tile.name: next(v for v in tile.domain if v != tile.default)}}
    bytes_of(pliant.Program.of(f.graph), **options)
    assert forget_programs() == 0


def test_kernels_with_messages_are_compiled_with_their_program(scheduled: list[str]) -> None:
    """A failed check is a number in the table of its program, so such code is of no use to another one."""
    n, m = dim("n"), dim("m")

    @kernel
    def pick(x: Tensor[f32, n], at: Tensor[i64, m], y: Out[f32, m]) -> None:
        for i in range(m):
            check(at[i] < n, "an index is too large")
            y[i] = x[at[i]]

    values, places = random(9, seed=0), np.array([4, 0, 8])
    for _ in range(2):
        f = pliant.compile(pick)
        np.testing.assert_array_equal(f(values, places), values[places])
        with pytest.raises(pliant.Error, match="an index is too large"):
            f(values, np.array([9]))
        assert forget_programs() == 0


def damage(data: bytes, how: str) -> bytes:
    (length,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8 : 8 + length])
    if how == "empty":
        return b""
    if how == "long":
        return struct.pack("<Q", 1 << 60) + data[8:]
    if how == "no code":
        head["code"][3] = []
        return struct.pack("<Q", len(json.dumps(head))) + json.dumps(head).encode()
    if how == "formulas":
        head["formulas"] = [["?", 99]]
    if how == "cycle":
        head["formulas"] = [["Add", 0, 0]]
    if how == "kind":
        head["formulas"] = [["Load", 0, 0]]
    if how == "choices":
        head["choices"] = [[1, 2, 3, 4, 5]]
    if how == "dtype":
        head["scratch"] = [["t", "f128", []]]
    return struct.pack("<Q", len(json.dumps(head))) + json.dumps(head).encode() + data[8 + length :]


@pytest.mark.parametrize("how", ["empty", "long", "no code", "formulas", "cycle", "kind", "choices", "dtype", "bits"])
def test_damaged_entries_are_compiled_again(scheduled: list[str], how: str) -> None:
    n = dim("n")

    @function
    def f(x: Tensor[f32, n, 16]) -> Tensor[f32, n]:
        return ops.sum(ops.exp(x), axis=1)

    program = pliant.Program.of(f.graph)
    alone = bytes_of(program)
    assert forget_programs() == len(scheduled) == 1
    (file,) = code_cache.default().files()
    data = file.read_bytes()
    _, key_size, _, _ = struct.unpack_from("<8sQQ32s", data)
    key, payload = data[56 : 56 + key_size], data[56 + key_size :]
    if how == "bits":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        code_cache.put(key, damage(payload, how))
    assert bytes_of(program) == alone
    assert len(scheduled) == 2
    forget_programs()
    assert bytes_of(program) == alone
    assert len(scheduled) == 2, "the entry was replaced"


def test_sizes_of_scratch_memory_are_kept(scheduled: list[str]) -> None:
    n = dim("n")

    @kernel
    def backwards(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        t = alloc((max(n, 64) * 3 - 1,), f32, scope="workspace")
        for i in range(n):
            t[2 * i] = x[i] + 1.0
        for i in range(n):
            y[i] = t[2 * (n - 1 - i)]

    before = pliant.compile(backwards)
    assert forget_programs() == 1
    after = pliant.compile(backwards)
    assert scheduled == ["backwards"]
    assert [f.workspace(n=100) for f in (before, after)] == [1216, 1216], "299 elements of 4 bytes, to the next multiple of 64"
    values = random(100, seed=1)
    np.testing.assert_array_equal(after(values), values[::-1] + np.float32(1))


def test_a_key_of_another_kernel_is_a_miss(scheduled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are confirmed by their whole key: with all hashes equal, programs are right all the same."""
    monkeypatch.setattr(code_cache.Cache, "_path", lambda self, key: self.folder / "one.code")
    alone = [bytes_of(net(*widths), cache=False) for widths in ((16,), (32,))]
    assert [bytes_of(net(*widths)) for widths in ((16,), (32,))] == alone


def test_kernels_that_are_shown_or_verified_have_their_bodies(
    scheduled: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bytes_of(net(16))
    forget_programs()
    scheduled.clear()
    monkeypatch.setenv("PLIANT_SHOW", "schedule")
    bytes_of(net(16))
    assert scheduled and "for " in capsys.readouterr().err


def test_reports_are_the_same(scheduled: list[str]) -> None:
    before = pipeline.compile_program(net(16), effort="fast").interface
    forget_programs()
    after = pipeline.compile_program(net(16), effort="fast").interface
    assert after.rules == before.rules and any(r.choices for r in after.rules)
