"""Decisions of the default rules: taken by name, told by `explain`, part of the cache's key, shared by variants, readers and promotion."""

from __future__ import annotations

import numpy as np

import pliant
from decision_vectors import arrays, layer
from pliant import Out, Tensor, alloc, block, dim, exp, f32, function, grid, init, kernel, ops
from pliant.graph.node import CallLoop
from pliant.lower.callee import func_of
from pliant.pipeline import compile_as_far_as
from pliant.program import Program
from pliant.schedule.decisions import Decisions, Drawn
from pliant.schedule.library import default_family
from pliant.support.random import Stream
from pliant.target import target

n = dim("n")


@kernel
def matmul(a: Tensor[f32, n, 200], b: Tensor[f32, 200, 96], c: Out[f32, n, 96]) -> None:
    for i, j, k in grid(n, 96, 200):
        with block("c", "SSR", i, j, k) as (vi, vj, vk):
            with init():
                c[vi, vj] = 0.0
            c[vi, vj] += a[vi, vk] * b[vk, vj]


def test_decisions_are_taken_by_name_and_told() -> None:
    f = pliant.compile(matmul, decisions={"c.tile": (3, 1), "matmul.c.share": "rows", "c.unroll": 4})
    lines = pliant.explain(f).splitlines()
    assert any(line.startswith("  c.tile = 3x1, of 1x1, ") and "registers" in line for line in lines)
    assert any(line.startswith("  c.share = rows, of panels, rows: ") for line in lines)
    assert any(line.startswith("  c.unroll = 4, of 1, 2, 4") for line in lines)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((37, 200)).astype(np.float32), rng.standard_normal((200, 96)).astype(np.float32)
    assert f(a, b).tobytes() == matmul(a, b).tobytes()


def test_lists_stand_for_tuples_as_json_has_them() -> None:
    assert "c.tile = 2x1" in pliant.explain(pliant.compile(matmul, decisions={"c.tile": [2, 1]}))


def test_the_cache_knows_decisions() -> None:
    first = pliant.compile(matmul, decisions={"c.tile": (2, 1)})
    second = pliant.compile(matmul)
    assert first.package.blob.to_bytes() != second.package.blob.to_bytes()
    assert pliant.compile(matmul, decisions={"c.tile": (2, 1)}).package.blob.to_bytes() == first.package.blob.to_bytes()


def test_the_default_asked_for_by_name_is_the_default() -> None:
    family = default_family(matmul.func, target("llvm:x86-64-v3"))
    asked = Decisions({d.name: d.value for d in family.decisions}).of_kernel("matmul")
    assert str(default_family(matmul.func, target("llvm:x86-64-v3"), asked).program()) == str(family.program())


def test_names_of_kernels_and_their_hashes_tell_kernels_apart() -> None:
    decisions = Decisions({"c.tile": (1, 1), "mlp.c.tile": (2, 1), "mlp@ab.c.tile": (3, 1)})
    for kernel_name, content, expected in (("other", "abcd", (1, 1)), ("mlp", "cdab", (2, 1)), ("mlp", "abcd", (3, 1))):
        decide = decisions.of_kernel(kernel_name, content).about("c", target("llvm:x86-64-v3"))
        assert decide("tile", ((1, 1), (2, 1), (3, 1)), (1, 1)) == expected


W = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)


@function
def two_readers(x: Tensor[f32, n, 64]) -> tuple[Tensor[f32, n, 96], Tensor[f32, n, 96]]:
    w = ops.constant(W)
    return x @ w, ops.exp(x) @ w


def test_how_a_weight_lies_is_one_decision_of_all_its_readers() -> None:
    text = pliant.explain(pliant.compile(two_readers))
    name, _, value = next(line for line in text.splitlines() if ".pack = " in line).strip().partition(" = ")
    lanes = target("native").vector_bits // 32
    assert (
        value.startswith(f"{lanes}, of 0, {lanes}, {2 * lanes}, {4 * lanes}: ")
        and text.count(".pack = ") == 1
        and "right-hand side packed" in text
    )
    assert "right-hand side packed" not in pliant.explain(pliant.compile(two_readers, decisions={name: 0}))
    x = np.random.default_rng(3).standard_normal((21, 64)).astype(np.float32)
    usual = pliant.compile(two_readers)(x)
    for pack in (0, 2 * lanes):
        for mine, expected in zip(pliant.compile(two_readers, decisions={name: pack})(x), usual, strict=True):
            assert mine.tobytes() == expected.tobytes()


def test_a_convolution_takes_its_lanes_along_rows_when_asked() -> None:
    given = arrays("conv")
    usual, other = pliant.compile(layer("conv")), pliant.compile(layer("conv"), decisions={"sum.lanes": "row"})
    assert "convolution: `sum`" in pliant.explain(usual) and "windows: `sum`" in pliant.explain(other)
    assert usual(*given).tobytes() == other(*given).tobytes()


def test_every_variant_has_the_asked_tile() -> None:
    machine = target("llvm:x86-64-v3")
    state = compile_as_far_as("copy_elision", Program.of(layer("matmul_crowded")), machine)
    func = func_of(next(m.callee for m in state.function.nodes if isinstance(m, CallLoop)))
    asked = Decisions({"dot.copy_from": 128, "dot.tile": (4, 2)}).of_kernel("matmul")
    family = default_family(func, machine, asked)
    assert len(family.variants) == 2 and all("tiles of 4x16" in v.why for v in family.variants)


IMAGE = np.random.default_rng(4).standard_normal((1, 3, 24, 24)).astype(np.float32)
STEM, FIRST, SECOND = (
    np.random.default_rng(5).standard_normal(s).astype(np.float32) for s in ((32, 3, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3))
)


@function
def layers(x: Tensor[f32, 1, 3, 24, 24]) -> Tensor[f32, 1, 64, 12, 12]:
    y = ops.conv(x, ops.constant(STEM), padding=1)
    y = ops.relu(ops.conv(y, ops.constant(FIRST), padding=1))
    return ops.conv(y, ops.constant(SECOND), stride=2, padding=1)


def test_blocks_of_channels_are_a_decision_of_the_image() -> None:
    usual = pliant.compile(layers)
    names = [line.split()[0] for line in pliant.explain(usual).splitlines() if ".channels = " in line]
    assert names
    other = pliant.compile(layers, decisions=dict.fromkeys(names, 0))
    assert all(f"{name} = 0, of 0, " in pliant.explain(other) for name in names)
    np.testing.assert_allclose(other(IMAGE), usual(IMAGE), rtol=1e-3, atol=1e-3)


def test_a_convolution_whose_weights_stay_as_they_are_goes_to_another_rule() -> None:
    """An image in blocks of channels, and weights as they were: the rule refused after it had asked for a tile, which was an error."""
    function = compile_as_far_as(
        "promote_sizes", Program.of(layer("conv_stride_blocked")), target("llvm:x86-64-v4"), decisions=Decisions({"v_1.pack": 0})
    ).function
    second = [func_of(n.callee) for n in function.nodes if isinstance(n, CallLoop)][-1]
    for seed in range(4):
        drawn = Drawn(second.name, Stream(seed))
        default_family(second, target("llvm:x86-64-v4"), drawn)
        assert not any(name.endswith(".tile") for name in drawn.vector())
    given = arrays("conv_stride_blocked")
    f = pliant.compile(layer("conv_stride_blocked"), decisions={"v_1.pack": 0})
    (line,) = [line for line in pliant.explain(f).splitlines() if "v_1.pack" in line]
    assert "another value changes last bits" in line
    np.testing.assert_allclose(f(*given), pliant.compile(layer("conv_stride_blocked"))(*given), rtol=1e-4, atol=1e-4)


def test_packs_of_several_vectors_keep_the_bits() -> None:
    rng = np.random.default_rng(5)
    w = rng.standard_normal((40, 150)).astype(np.float32)  # 150 columns are no whole packs

    @function
    def product(x: Tensor[f32, n, 40]) -> Tensor[f32, n, 150]:
        return ops.relu(x @ ops.constant(w))

    inputs = [rng.standard_normal((rows, 40)).astype(np.float32) for rows in (0, 1, 7, 50)]
    default = pliant.compile(product)
    (domain,) = [c.domain for c in default.package.interface.layouts]
    packs = [int(text) for text in domain.split(", ")]
    assert len(packs) == 4 and packs[2] == 2 * packs[1] and packs[3] == 4 * packs[1]
    for pack in packs:
        f = pliant.compile(product, decisions={"v.pack": pack})
        assert all(f(x).tobytes() == default(x).tobytes() for x in inputs)
        shown = next(c for c in f.package.interface.rules[0].choices if c.name.endswith(".tile"))
        vectors = {int(tile.split("x")[1]) for tile in shown.domain.split(" and ")[0].split(", ")}
        assert pack <= packs[1] or all(v % (pack // packs[1]) == 0 for v in vectors)


@kernel
def chained(x: Tensor[f32, n, 40], y: Out[f32, n, 40]) -> None:
    t = alloc((n, 40), f32)
    for i, j in grid(n, 40):
        with block("t", "SS", i, j) as (vi, vj):
            t[vi, vj] = exp(x[vi, vj])
    for i, j in grid(n, 40):
        with block("y", "SS", i, j) as (vi, vj):
            y[vi, vj] = t[vi, vj] + t[vi, 39 - vj]


def test_whether_a_producer_is_inlined_is_a_decision() -> None:
    x = np.random.default_rng(4).standard_normal((7, 40)).astype(np.float32)
    default = pliant.compile(chained)
    assert "t.inline = False, of False, True: elements are read several times, and are not cheap" in pliant.explain(default)
    inlined = pliant.compile(chained, decisions={"t.inline": True})
    assert "inlined `t`" in pliant.explain(inlined) and "inlined `t`" not in pliant.explain(default)
    assert inlined(x).tobytes() == default(x).tobytes()


@kernel
def one_row(a: Tensor[f32, 200], b: Tensor[f32, 200, 96], c: Out[f32, 96]) -> None:
    for j, k in grid(96, 200):
        with block("c", "SR", j, k) as (vj, vk):
            with init():
                c[vj] = 0.0
            c[vj] += a[vk] * b[vk, vj]


def test_whether_one_row_goes_through_the_matrix_as_it_lies_is_a_decision() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal(200).astype(np.float32), rng.standard_normal((200, 96)).astype(np.float32)
    default = pliant.compile(one_row)
    lines = pliant.explain(default).splitlines()
    (line,) = [line for line in lines if "c.gemv" in line]
    assert line.startswith("  c.gemv = False, of False, True (another value changes last bits): ") and any("c.tile = " in x for x in lines)
    gemv = pliant.compile(one_row, decisions={"c.gemv": True})
    assert "c.panel = " in pliant.explain(gemv)
    for f in (default, gemv):
        np.testing.assert_allclose(f(a, b), a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
