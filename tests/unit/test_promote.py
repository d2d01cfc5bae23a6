"""Sizes that no schedule needs become arguments: which do, that programs that differ in them are one, that results are the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled, without
from pliant import Out, Tensor, block, dim, dtype, f32, grid, init, kernel, ops
from pliant.api import program_of
from pliant.graph.builder import Builder
from pliant.graph.node import CallLoop, Function
from pliant.graph.node import Tensor as GraphTensor
from pliant.interp.graph import run_graph
from pliant.loop.structural import structural_hash
from pliant.lower.callee import func_of
from pliant.lower.layout.promotable_sizes import free_sizes
from pliant.pipeline import compile_as_far_as
from pliant.schedule.library import default_schedule
from pliant.sym.expr import Dim, const, substitute
from pliant.sym.simplify import simplify
from pliant.target import target

RNG = np.random.default_rng(3)
SIXTEEN = replace(target("llvm:x86-64-v4"), vector_bits=512)  # lanes
n = dim("n")


def weights(*shape: int) -> Any:
    return (RNG.standard_normal(shape) * 0.2).astype(np.float32)


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions are direct sums: those by Winograd's algorithm know all of their sizes (docs/design/0028)."""
    monkeypatch.setenv("PLIANT_DISABLE", "winograd_convolutions")


def net(body: Callable[[Any], Any], channels: int = 3) -> Function:
    """A function of images whose number and size are not known."""
    builder = Builder("net")
    x = builder.param("x", GraphTensor(dtype.f32, (Dim("n", 1), const(channels), Dim("h", 1), Dim("w", 1))))
    with builder:
        result = body(x)
    return builder.finish([result])


def convolutions(*channels: int, window: int = 3, stride: int = 1) -> Callable[[Any], Any]:
    """Convolutions one after the other, of so many channels; the first and the last one have neighbors of their own kind."""

    def body(x: Any) -> Any:
        y = ops.conv(x, weights(channels[0], 3, 3, 3), padding=1)
        for before, after in pairwise(channels):
            y = ops.relu(ops.conv(y, weights(after, before, window, window), weights(after), stride=stride, padding=window // 2))
        return ops.conv(y, weights(5, channels[-1], 1, 1), weights(5))

    return body


def depthwise(*channels: int) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        y = x
        for before, after in pairwise((3, *channels)):
            y = ops.tanh(ops.conv(y, weights(after, before, 3, 3), padding=1))
            y = ops.relu(ops.conv(y, weights(after, 1, 3, 3), weights(after), padding=1, groups=after))
        return ops.conv(y, weights(5, channels[-1], 1, 1))

    return body


def parts(x: Any) -> Any:
    """Slices, pools and parts side by side, of several sizes."""
    results = []
    for few, many in ((32, 64), (32, 96)):
        y = ops.conv(x, weights(few + many, 3, 1, 1))
        a, b = ops.slice(y, 1, 0, few), ops.slice(y, 1, few, few + many)
        z = ops.concat([ops.tanh(b), ops.max_pool(a, 3, stride=1, padding=1)], axis=1)
        results.append(ops.conv(z, weights(5, few + many, 1, 1)))
    return ops.concat(results, axis=1)


def scaled(x: Any) -> Any:
    """Products of channels with numbers of their own, of images that are in no blocks."""
    results = [ops.mul(ops.concat([x] * count, axis=1), weights(3 * count, 1, 1)) for count in (2, 3, 5)]
    return ops.concat(results, axis=1)


NETS = {
    "blocks": convolutions(32, 64, 128),
    "primes of blocks": convolutions(80, 112, 48, 112, window=1),
    "small blocks": convolutions(12, 28, 20, 28, window=1),
    "sums of more than a part": convolutions(144, 64, 208, 64, window=1),
    "sums of more than a part, 3x3": convolutions(48, 16, 16, 24, 16),
    "sums of several parts": convolutions(32, 64, 128, 64, 48, 64),
    "no blocks": convolutions(2, 7, 1, 7, window=1),
    "every second place": convolutions(32, 64, 128, stride=2),
    "depthwise": depthwise(32, 48),
    "parts": parts,
    "scaled": scaled,
}


def programs(function: Function, last: str = "promote_sizes", on: Any = SIXTEEN) -> dict[bytes, Any]:
    """The loop programs of a function, each once."""
    done = compile_as_far_as(last, program_of(function), on).function
    found = [func_of(x.callee) for x in done.nodes if isinstance(x, CallLoop)]
    return {structural_hash(f): f for f in found}


def shapes(function: Function, name: str) -> list[str]:
    return sorted(repr(f.buffers[0]).split(": ")[1] for f in programs(function).values() if f.name == name)


@pytest.mark.parametrize("name", NETS)
def test_results_are_the_same_bits(name: str) -> None:
    function = net(NETS[name])
    one, each = compiled(function), compiled(function, without("promote_sizes"))
    for shape in ((1, 3, 1, 1), (2, 3, 9, 17)):
        x = RNG.standard_normal(shape).astype(np.float32)
        result = one(x)
        np.testing.assert_array_equal(result, each(x))
        (truth,) = run_graph(function, [x])
        np.testing.assert_allclose(result, truth, rtol=2e-3, atol=2e-3)


def test_layers_that_differ_in_channels_are_one_program(direct: None) -> None:
    assert shapes(net(NETS["blocks"]), "conv_relu") == ["f32[n, size0, h, w, 16]"]
    assert shapes(net(depthwise(32, 48)), "conv_relu") == ["f32[n, size0, h, w, 16]"]
    assert len(programs(net(NETS["blocks"]), "copy_elision")) == 1 + len(programs(net(NETS["blocks"])))


def test_sums_that_are_long_keep_their_number_of_terms(direct: None) -> None:
    assert shapes(net(convolutions(128, 64, 256, 64)), "conv_relu") == [f"f32[n, {size}, h, w, 16]" for size in (16, 4, 8)]


def test_columns_that_vectors_do_not_divide_stay() -> None:
    """Of five, seven and three blocks, those that are summed over are an argument; those that are made are a constant."""
    assert shapes(net(NETS["primes of blocks"]), "conv_relu") == ["f32[n, 7, h, w, 16]", "f32[n, size0, h, w, 16]"]


def test_every_call_has_the_sizes_of_its_own_program() -> None:
    done = compile_as_far_as("promote_sizes", program_of(net(parts)), SIXTEEN).function
    for n in done.nodes:
        if isinstance(n, CallLoop):
            given = dict(zip(n.callee.symbols, n.dims, strict=True))
            made = [p.shape for p in n.callee.params if p.role == "out"]
            assert [[simplify(substitute(e, given)) for e in shape or ()] for shape in made] == [list(v.tensor.shape) for v in n.outs]


def test_a_program_without_its_like_stays_as_it_is() -> None:
    function = net(convolutions(32, 64))
    assert programs(function).keys() == programs(function, "copy_elision").keys()


def test_programs_of_other_nets_have_the_same_address() -> None:
    one, other = (programs(net(depthwise(*channels))) for channels in ((32, 48), (64, 80, 112)))
    assert {key for key, f in one.items() if f.name == "conv_relu"} == {key for key, f in other.items() if f.name == "conv_relu"}


def test_explain_shows_sizes_that_are_arguments() -> None:
    said = str(pliant.explain(pliant.compile(net(depthwise(64, 128)))))
    assert "size0" in said


def free(program: Any) -> list[str]:
    found = free_sizes(program.func, SIXTEEN)
    return sorted(f"{b.name}.{axis}" for b, axis in found.axes)


def test_what_vectors_go_along_is_not_free() -> None:
    @kernel
    def scale(x: Tensor[f32, 8, 6, 24], s: Tensor[f32, 24], y: Out[f32, 8, 6, 24]) -> None:
        for i, j, k in grid(8, 6, 24):
            with block("y", "SSS", i, j, k) as (vi, vj, vk):
                y[vi, vj, vk] = x[vi, vj, vk] * s[vk]

    assert free(scale) == ["x.0", "x.1", "y.0", "y.1"]


def test_windows_and_quotients_are_not_free() -> None:
    @kernel
    def window(x: Tensor[f32, 12, 9], s: Tensor[f32, 5], y: Out[f32, 8, 5, 9]) -> None:
        for i, j, k in grid(8, 5, 9):
            with block("y", "SSS", i, j, k) as (vi, vj, vk):
                y[vi, vj, vk] = x[vi + vj, vk] + s[vj]

    @kernel
    def quotient(x: Tensor[f32, 4, 9], y: Out[f32, 8, 9]) -> None:
        for i, k in grid(8, 9):
            with block("y", "SS", i, k) as (vi, vk):
                y[vi, vk] = x[vi // 2, vk]

    assert free(window) == []
    assert free(quotient) == []


def test_products_keep_all_of_their_sizes() -> None:
    @kernel
    def product(a: Tensor[f32, 6, n, 64], b: Tensor[f32, 6, 64, 48], c: Out[f32, 6, n, 48]) -> None:
        for g, i, j, k in grid(6, n, 48, 64):
            with block("c", "SSSR", g, i, j, k) as (vg, vi, vj, vk):
                with init():
                    c[vg, vi, vj] = 0.0
                c[vg, vi, vj] += a[vg, vi, vk] * b[vg, vk, vj]

    assert free(product) == []


def test_programs_over_runs_of_neighbors_keep_their_sizes() -> None:
    """Whether rows are one vector loop depends on how many of them are left to share: the rule looks at their number."""

    @kernel
    def flat(x: Tensor[f32, 20, 6, 8], y: Out[f32, 20, 6, 8]) -> None:
        for i, j, k in grid(20, 6, 8):
            with block("y", "SSS", i, j, k) as (vi, vj, vk):
                y[vi, vj, vk] = x[vi, vj, vk] + 1.0

    assert free(flat) == []


def test_a_convolution_takes_the_tile_that_it_is_asked_for(direct: None) -> None:
    (conv,) = (f for f in programs(net(NETS["blocks"])).values() if f.name == "conv_relu")
    (asked,) = free_sizes(conv, SIXTEEN).tiles.values()
    assert f"in tiles of {asked[0]}x{asked[1] * 16} in registers" in default_schedule(conv, SIXTEEN)[1]
    for alone in programs(net(NETS["blocks"]), "copy_elision").values():
        if alone.name == "conv_relu":
            assert f"in tiles of {asked[0]}x{asked[1] * 16} in registers" in default_schedule(alone, SIXTEEN)[1]
