"""Programs that differ only in the values of their weights share one compilation, and get the bytes that each alone would have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import Tensor, dim, f32, function, ops, pipeline
from pliant.runtime import code_cache
from pliant.runtime.package import Package

n, h, w = dim("n"), dim("h", min=4), dim("w", min=4)
Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).uniform(0.1, 1, shape).astype(np.float32)


def net(seed: int, factor: float = 2.0) -> pliant.Program:
    """A convolution with a batch norm, whose factors a graph pass computes, then a product and a scalar; weights of the seed."""
    weight, bias, matrix = random(16, 3, 3, 3, seed=seed), random(16, seed=seed + 1), random(16, 8, seed=seed + 2)
    gamma, beta, mean, var = (random(16, seed=seed + k) for k in range(3, 7))
    scalar = np.float32(factor)

    @function
    def f(x: Tensor[f32, n, 3, h, w]) -> Tensor[f32, n, 8]:
        y = ops.relu(ops.batch_norm(ops.conv(x, weight, bias), gamma, beta, mean, var)) * scalar
        return ops.mean(ops.mean(y, axis=3), axis=2) @ matrix

    return pliant.Program.of(f.graph)


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The functions that were compiled to code, in a code cache of its own."""
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))
    seen: list[str] = []
    to_code = pipeline.to_code

    def watched(start: Any, *rest: Any) -> Any:
        seen.append(start.function.name)
        return to_code(start, *rest)

    monkeypatch.setattr(pipeline, "to_code", watched)
    yield seen


def bytes_of(program: pliant.Program, **options: Any) -> bytes:
    return pipeline.compile_program(program, **options).to_bytes()


def test_other_weights_take_the_code_that_is_there_and_the_bytes_are_those_of_a_compilation(compiled: list[str]) -> None:
    one, two = net(1), net(2)
    alone = [bytes_of(p, cache=False) for p in (one, two)]
    assert alone[0] != alone[1], "they contain the factors of their batch norms"
    compiled.clear()
    assert bytes_of(one) == alone[0]
    assert compiled == ["f", "f_load"]
    assert bytes_of(two) == alone[1]
    assert compiled == ["f", "f_load"], "the second net compiles nothing"


def test_results_are_those_of_the_own_weights(compiled: list[str]) -> None:
    x = random(2, 3, 9, 11, seed=9)
    expected = [pliant.compile(net(seed), cache=False)(x) for seed in (1, 2)]
    compiled.clear()
    for seed, values in zip((1, 2), expected, strict=True):
        np.testing.assert_array_equal(pliant.compile(net(seed))(x), values)
    assert compiled == ["f", "f_load"]
    assert not np.array_equal(*expected)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda: bytes_of(net(1, factor=3.0)), id="a scalar, which becomes part of expressions"),
        pytest.param(lambda: bytes_of(net(1).with_dims({"n": 1})), id="a contract"),
        pytest.param(lambda: bytes_of(net(1), target="llvm:x86-64-v2"), id="a target"),
        pytest.param(lambda: bytes_of(net(1), checked=True), id="checked mode"),
        pytest.param(lambda: bytes_of(net(2), cache=False), id="no cache"),
    ],
)
def test_what_code_depends_on_is_another_compilation(compiled: list[str], other: Any) -> None:
    bytes_of(net(1))
    compiled.clear()
    other()
    assert compiled[0] == "f"


def test_a_disabled_step_is_another_compilation(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_of(net(1))
    compiled.clear()
    monkeypatch.setenv("PLIANT_DISABLE", "fuse")
    bytes_of(net(2))
    assert compiled == ["f", "f_load"]


def test_one_literal_in_two_places_is_not_two_literals(compiled: list[str]) -> None:
    """Code names literals by position; the same array in two places is one of them."""
    one, two = random(8, 8, seed=1), random(8, 8, seed=2)

    def twice(a: Array, b: Array) -> pliant.Program:
        @function
        def f(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
            return (x @ a) @ b

        return pliant.Program.of(f.graph)

    programs = [twice(one, two), twice(one, one), twice(two, one)]
    alone = [bytes_of(p, cache=False) for p in programs]
    assert [bytes_of(p) for p in programs] == alone


@pytest.mark.parametrize("names", ["computed:99", "computed:", "computed:-1", "computed:0x0", "computed:1"])
def test_a_cached_package_that_does_not_fit_is_a_miss(compiled: list[str], monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    alone = bytes_of(net(2), cache=False)
    bytes_of(net(1))
    get = code_cache.get

    def changed(key: bytes) -> bytes | None:
        data = get(key)
        if data is None or not key.startswith(b"any weights"):
            return data
        package = Package.from_bytes(data)
        assert package.load is not None
        constants = package.load.interface.constants
        assert any(c.name.startswith("computed:") for c in constants)
        wrong = tuple(c._replace(name=names, size=c.size + 1) if c.name.startswith("computed:") else c for c in constants)
        return package._replace(load=package.load._replace(interface=package.load.interface._replace(constants=wrong))).to_bytes()

    monkeypatch.setattr(code_cache, "get", changed)
    compiled.clear()
    assert bytes_of(net(2)) == alone
    assert compiled == ["f", "f_load"]


def test_only_a_program_with_weights_has_a_second_entry(compiled: list[str], tmp_path: Path) -> None:
    @function
    def scaled(x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
        return x * 2.0

    def programs() -> int:  # a file is a head of 56 bytes, then the key; there are entries of kernels, too
        return sum(not file.read_bytes()[56:].startswith(b"kernel\n") for file in tmp_path.rglob("*.code"))

    bytes_of(pliant.Program.of(scaled.graph))
    assert programs() == 1
    bytes_of(net(1))
    assert programs() == 3


def test_what_is_no_package_is_a_miss(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    get = code_cache.get
    monkeypatch.setattr(code_cache, "get", lambda key: b"nothing" if key.startswith(b"any weights") else get(key))
    bytes_of(net(1))
    assert compiled == ["f", "f_load"]
