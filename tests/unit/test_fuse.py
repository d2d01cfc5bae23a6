"""Fusion: which loop programs join, which do not, and that what is joined means the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from compiled_graphs import compiled, host_of, lowered
from pliant import InOut, Out, State, Tensor, block, dim, f16, f32, function, grid, i32, i64, init, kernel, ops, u8
from pliant.graph import node as g
from pliant.interp.graph import run_graph
from pliant.lower.callee import func_of
from pliant.lower.fusion.fuse import fuse
from pliant.pipeline import steps_to
from pliant.schedule.library import default_schedule
from pliant.support.errors import Error
from pliant.target import target

n = dim("n", max=64)
m = dim("m", max=64)
k = dim("k", max=64)

BEFORE = steps_to("rematerialize")


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def fused(f: Any, arguments: Sequence[Any], rtol: float = 1e-5) -> g.Function:
    """The function after fusion, which the interpreter finds to mean the same."""
    before = lowered(f.graph, BEFORE).function
    after = fuse(before)
    copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)]
    for expected, found in zip(run_graph(f.graph, copies[0]), run_graph(after, copies[1]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)
    return after


def calls(f: g.Function) -> list[str]:
    return [n.callee.name for n in g.walk_nodes(f.nodes) if isinstance(n, g.CallLoop)]


def temporaries(f: Any) -> list[str]:
    """The memory that is left between the kernels, and inside of them, once they are scheduled."""
    return [str(t.bytes) for t in host_of(f.graph).temporaries]


def test_a_chain_of_elementwise_programs_is_one_without_memory_between() -> None:
    @function
    def f(x: Tensor[f32, n, m], y: Tensor[f32, m]) -> Tensor[f32, n, m]:
        return ops.silu(x * 2.0 + y) - 1.0

    after = fused(f, [random(3, 4), random(4, seed=1)])
    assert calls(after) == ["mul_add_silu_sub"]
    assert not temporaries(f)


def test_an_epilogue_joins_a_matmul() -> None:
    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, m], u: Tensor[f32, n, m]) -> Tensor[f32, n, m]:
        return ops.silu(x @ w) * u

    after = fused(f, [random(3, 4), random(4, 5, seed=1), random(3, 5, seed=2)])
    assert calls(after) == ["matmul_silu_mul"]
    assert not temporaries(f)  # the sum stays in registers


def test_a_prologue_joins_a_reduction_but_no_matmul() -> None:
    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, m]) -> tuple[Tensor[f32, n], Tensor[f32, n, m]]:
        return ops.sum(x * 0.5, axis=1), ops.exp(x) @ w

    after = fused(f, [random(3, 4), random(4, 5, seed=1)])
    assert sorted(calls(after)) == ["exp", "matmul", "mul_sum"]


def test_two_programs_that_are_more_than_elementwise_stay_apart() -> None:
    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, k]) -> Tensor[f32, n, k]:
        return ops.softmax(x @ w) @ w

    assert calls(fused(f, [random(3, 4), random(4, 4, seed=1)])) == ["matmul", "softmax", "matmul"]


def test_a_value_with_another_use_stays() -> None:
    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        y = x + 1.0
        return ops.exp(y), y

    assert calls(fused(f, [random(3)])) == ["add", "exp"]


def test_a_value_used_inside_a_branch_stays_and_bodies_fuse_on_their_own() -> None:
    @function
    def f(x: Tensor[f32, n], b: bool) -> Tensor[f32, n]:
        y = x + 1.0
        if b:
            z = ops.exp(y) * 0.5
        else:
            z = ops.neg(y) - x
        return ops.abs(z) + 1.0

    for b in (True, False):
        assert calls(fused(f, [random(3), b])) == ["add", "exp_mul", "neg_sub", "abs_add"]


def test_what_is_read_at_another_index_does_not_follow_a_matmul() -> None:
    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, m]) -> Tensor[f32, m, n]:
        return ops.permute(x @ w, (1, 0)) + 1.0

    after = fused(f, [random(3, 4), random(4, 5, seed=1)])
    assert calls(after) == ["matmul", "permute_add"]


def test_state_keeps_its_place_in_the_order() -> None:
    @kernel
    def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
        for i in range(n):
            with block("t", "S", i) as vi:
                total[vi] = total[vi] + x[vi]

    @function
    def f(x: Tensor[f32, n], total: State[f32, n]) -> tuple[Tensor[f32, n], State[f32, n]]:
        before = total * 2.0
        total = add_to(x + 1.0, total)
        return ops.exp(before) + total, total

    after = fused(f, [random(3), random(3, seed=1)])
    assert calls(after) == ["mul", "add_add_to", "exp", "add"]


@function
def scattered(x: Tensor[f32, n, m], ids: Tensor[i32, k, m], u: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
    return ops.scatter(ops.abs(x), ids, ops.tanh(u) * 2.0, axis=0, reduction="add")


@function
def put(x: State[f32, n, m], ids: Tensor[i32, k], u: Tensor[f32, k, m]) -> State[f32, n, m]:
    return ops.index_put(x, ops.tanh(u) * 2.0, ids)


@function
def put_taken(x: State[f32, n, m], ids: Tensor[i32, k], u: Tensor[f32, n, m], rows: Tensor[i32, k]) -> State[f32, n, m]:
    return ops.index_put(x, ops.relu(ops.take(u, rows)), ids)


@pytest.mark.parametrize(
    ("f", "more", "kernel_name"),
    [
        (scattered, [np.array([[0, 1, 2], [3, 3, 0]], np.int32), random(2, 3, seed=1)], "abs_tanh_mul_scatter"),
        (put, [np.array([3, 3], np.int32), random(2, 3, seed=1)], "tanh_mul_index_put"),
        (put_taken, [np.array([3, 1], np.int32), random(4, 3, seed=1), np.array([2, 0], np.int32)], "take_relu_index_put"),
    ],
    ids=["tensor", "state", "gathered"],
)
def test_what_is_scattered_is_computed_where_it_is_put(f: Any, more: list[Any], kernel_name: str) -> None:
    arguments = [random(4, 3), *more]
    assert calls(fused(f, arguments)) == [kernel_name]
    assert not temporaries(f)
    (expected,) = run_graph(f.graph, [a.copy() for a in arguments])
    for checked in (False, True):
        found = compiled(f.graph, poison=True, checked=checked)(*(a.copy() for a in arguments))
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@kernel
def decayed(y: Tensor[f32, n, m], state: InOut[f32, n, m]) -> None:
    for i, j in grid(n, m):
        state[i, j] = state[i, j] * 0.5 + y[i, j]


@kernel
def decayed_tiles(y: Tensor[f32, 12, 32], state: InOut[f32, 12, 32]) -> None:
    for i, j in grid(12, 32):
        state[i, j] = state[i, j] * 0.5 + y[i, j]


def test_a_product_is_written_into_the_state_that_it_updates() -> None:
    @function
    def f(x: Tensor[f32, 12, k], w: Tensor[f32, k, 32], s: State[f32, 12, 32]) -> State[f32, 12, 32]:
        return decayed_tiles(ops.relu(x @ w), s)

    x, w, s = random(12, 4), random(4, 32, seed=1), random(12, 32, seed=2)
    assert calls(fused(f, [x, w, s])) == ["matmul_relu_decayed_tiles"]
    assert not temporaries(f)
    for checked in (False, True):
        found = compiled(f.graph, poison=True, checked=checked)(x, w, s.copy())
        np.testing.assert_allclose(found, s / 2 + np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)


def test_a_product_of_any_size_changes_the_state_once() -> None:
    """Tails of tiles are not shown to be apart from the tiles. What reads the state must not change it twice, so it stays apart."""

    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, m], s: State[f32, n, m]) -> State[f32, n, m]:
        return decayed(ops.relu(x @ w), s)

    x, w, s = random(5, 4), random(4, 19, seed=1), random(5, 19, seed=2)
    assert calls(fused(f, [x, w, s])) == ["matmul_relu_decayed"]
    for checked in (False, True):
        found = compiled(f.graph, poison=True, checked=checked)(x, w, s.copy())
        np.testing.assert_allclose(found, s / 2 + np.maximum(x @ w, 0), rtol=1e-5, atol=1e-5)


def test_rows_are_written_into_the_state_that_they_update() -> None:
    @function
    def f(x: Tensor[f32, n, m], s: State[f32, n, m]) -> State[f32, n, m]:
        return decayed(ops.softmax(x), s)

    x, s = random(5, 19), random(5, 19, seed=2)
    assert calls(fused(f, [x, s])) == ["softmax_decayed"]
    e = np.exp(x)
    np.testing.assert_allclose(compiled(f.graph, poison=True)(x, s.copy()), s / 2 + e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_what_was_read_of_a_state_is_not_computed_after_its_update() -> None:
    @function
    def f(x: State[f32, n], ids: Tensor[i32, n]) -> State[f32, n]:
        doubled = ops.reshape(x, (n, 1)) * 2.0
        x = ops.index_put(x, 5.0, ids)
        return ops.index_put(x, ops.reshape(doubled, (n,)), ids)

    x, ids = random(4), np.array([3, 0, 1, 2], np.int32)
    want = np.empty_like(x)
    want[ids] = 2 * x
    np.testing.assert_array_equal(compiled(f.graph, poison=True)(x.copy(), ids), want)


def test_values_that_are_put_for_many_rows_are_computed_once() -> None:
    @function
    def f(x: State[f32, n, m], ids: Tensor[i32, k], u: Tensor[f32, m]) -> State[f32, n, m]:
        return ops.index_put(x, ops.tanh(u), ids)

    assert calls(fused(f, [random(4, 3), np.array([3, 1], np.int32), random(3, seed=1)])) == ["tanh", "index_put"]


def test_a_program_scheduled_by_hand_stays_as_it_is() -> None:
    @kernel(scheduled=True)
    def double(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n):
            with block("y", "S", i) as vi:
                y[vi] = x[vi] * 2.0

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return double(x + 1.0) + 1.0

    assert calls(fused(f, [random(3)])) == ["add", "double", "add"]


def test_a_users_kernel_fuses_by_what_its_loops_are() -> None:
    @kernel
    def double(x: Tensor[f32, n, m], y: Out[f32, n, m]) -> None:
        for i, j in grid(n, m):
            with block("y", "SS", i, j) as (vi, vj):
                y[vi, vj] = x[vi, vj] * 2.0

    @function
    def f(x: Tensor[f32, k, 4]) -> Tensor[f32, k, 4]:
        return double(ops.exp(x)) + 1.0

    after = fused(f, [random(3, 4)])
    assert calls(after) == ["exp_double_add"]
    assert not temporaries(f)


def test_scalars_and_dims_that_no_shape_tells_become_parameters() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m], s: f32, i: i64) -> Tensor[f32, n]:
        t = ops.slice(ops.concat([x, y, x], axis=0), 0, m, m + n)
        return t * s + ops.cast(i, f32) * ops.cast(m, f32)

    after = fused(f, [random(3), random(4, seed=1), 0.5, 3])
    assert len(calls(after)) == 1


def test_checks_and_origins_are_kept() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m], z: Tensor[f32, k]):  # type: ignore[no-untyped-def]
        return x + y + z

    before = lowered(f.graph, BEFORE).function
    nodes = tuple(node.with_(origin=(f"layer{i}",)) for i, node in enumerate(before.nodes))
    (merged,) = fuse(before.with_(nodes=nodes)).nodes
    assert {r.cond for r in merged.requires} == {r.cond for node in nodes for r in node.requires}
    assert len(merged.requires) == 2
    assert merged.origin == ("layer0", "layer1")


def test_something_dear_is_not_computed_for_every_column() -> None:
    @function
    def f(x: Tensor[f32, n, m], y: Tensor[f32, n, 1]) -> Tensor[f32, n, m]:
        return x * ops.exp(y)

    after = fused(f, [random(3, 5), random(3, 1, seed=1)])
    assert calls(after) == ["exp_mul"]
    assert temporaries(f) == ["n * 4"]


def test_nothing_to_fuse_is_left_as_it_is() -> None:
    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
        return x @ w

    before = lowered(f.graph, BEFORE).function
    assert fuse(before).nodes == before.nodes


def test_a_value_that_is_read_twice_inside_of_a_group_is_no_hindrance() -> None:
    @function
    def f(x: Tensor[f32, n, k], w: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
        c = x @ w
        return c * ops.sigmoid(c)

    after = fused(f, [random(3, 4), random(4, 5, seed=1)])
    assert calls(after) == ["matmul_sigmoid_mul"]
    assert not temporaries(f)


def test_an_operand_that_is_given_twice_joins() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        y = ops.exp(x)
        return y * y

    assert calls(fused(f, [random(3)])) == ["exp_mul"]


def test_cheap_values_are_computed_by_each_reader() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, n]]:
        y = (x + 1.0) * 0.5
        return ops.exp(y), ops.sum(y, axis=1)

    after = fused(f, [random(3, 4)])
    assert calls(after) == ["add_mul_exp", "add_mul_sum"]
    assert not temporaries(f)


def test_dear_values_are_computed_once() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, m, n]]:
        y = ops.exp(x)
        return y + 1.0, ops.permute(y, (1, 0))

    assert calls(fused(f, [random(3, 4)])) == ["exp", "add", "permute"]


def test_what_a_norm_reads_may_be_a_second_result() -> None:
    @function
    def f(x: Tensor[f32, n, m], y: Tensor[f32, n, m], w: Tensor[f32, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, n, m]]:
        h = x + y
        return ops.rms_norm(h, w, eps=1e-3), h * 2.0

    after = fused(f, [random(3, 4), random(3, 4, seed=1), random(4, seed=2)])
    assert calls(after) == ["add_rms_norm", "mul"]
    (first, _) = [x for x in after.nodes if isinstance(x, g.CallLoop)]
    assert len(first.outs) == 2
    _, why = default_schedule(func_of(first.callee), target("native"))
    assert "rows: `add`, `squares`, `scale`, `out` together" in why  # one loop over rows


def test_a_second_result_that_is_read_before_the_group_ends_stays_apart() -> None:
    @function
    def f(x: Tensor[f32, n, m], w: Tensor[f32, m]) -> Tensor[f32, n, m]:
        h = ops.exp(x)
        e = ops.permute(ops.permute(h, (1, 0)) @ x, (1, 0))
        return ops.rms_norm(h * e, w, eps=1e-3)

    arguments = [random(4, 4), random(4, seed=2)]
    fused(f, arguments)


def test_a_gather_joins_what_reads_it_and_its_checks_come_first() -> None:
    @function
    def f(table: Tensor[f32, k, m], ids: Tensor[i32, n], w: Tensor[f32, m]) -> Tensor[f32, n, m]:
        return ops.rms_norm(ops.take(table, ids, axis=0) * 2.0, w, eps=1e-3)

    ids = np.array([2, 0, 2], np.int32)
    after = fused(f, [random(4, 5), ids, random(5, seed=1)])
    assert calls(after) == ["take_mul_rms_norm"]
    assert not [t for t in temporaries(f) if "m" in t]
    with pytest.raises(Error, match="take: index 9 is outside of dim 0"):
        compiled(f.graph)(random(4, 5), np.array([2, 9], np.int32), random(5))
    assert compiled(f.graph)(random(4, 0), np.array([2, 9], np.int32), random(0)).shape == (2, 0)


@kernel
def decode(codes: Tensor[u8, 32, m], scales: Tensor[f16, 2, m], w: Out[f32, 64, m]) -> None:
    for i, j in grid(64, m):
        with block("w", "SS", i, j) as (vi, vj):
            code = (codes[vi // 2, vj] >> u8(vi % 2 * 4)) & u8(15)
            w[vi, vj] = (f32(code) - 8.0) * f32(scales[vi // 32, vj])


@kernel
def product(x: Tensor[f32, n, 64], w: Tensor[f32, 64, m], y: Out[f32, n, m]) -> None:
    for i, j, q in grid(n, m, 64):
        with block("y", "SSR", i, j, q) as (vi, vj, vq):
            with init():
                y[vi, vj] = 0.0
            y[vi, vj] += x[vi, vq] * w[vq, vj]


def test_decoding_and_a_matmul_as_plain_loop_programs_are_one_kernel_without_memory_between() -> None:
    @function
    def f(x: Tensor[f32, n, 64], codes: Tensor[u8, 32, m], scales: Tensor[f16, 2, m]) -> Tensor[f32, n, m]:
        return product(x, decode(codes, scales))

    codes = np.random.default_rng(0).integers(0, 256, (32, 24)).astype(np.uint8)
    scales = random(2, 24).astype(np.float16)
    after = fused(f, [random(7, 64), codes, scales], rtol=1e-4)
    assert calls(after) == ["decode_product"]
    assert not temporaries(f)
    weights = (np.stack([codes & 15, codes >> 4], 1).reshape(64, 24).astype(np.float32) - 8) * np.repeat(scales, 32, 0).astype(np.float32)
    np.testing.assert_allclose(f(random(7, 64), codes, scales), random(7, 64) @ weights, rtol=1e-3, atol=1e-3)


def test_an_activation_is_not_computed_again_for_every_panel_of_a_matmul() -> None:
    @function
    def f(x: Tensor[f16, n, k], w: Tensor[f32, k, m]) -> Tensor[f32, n, m]:
        return ops.cast(x, f32) @ w

    assert calls(fused(f, [random(3, 4).astype(np.float16), random(4, 5)])) == ["cast", "matmul"]


@kernel
def decode_wide(codes: Tensor[u8, 32, 256], scales: Tensor[f16, 2, 256], w: Out[f32, 64, 256]) -> None:
    for i, j in grid(64, 256):
        code = (codes[i // 2, j] >> u8(i % 2 * 4)) & u8(15)
        w[i, j] = (f32(code) - 8.0) * f32(scales[i // 32, j])


def test_panels_of_decoded_weights_serve_many_rows() -> None:
    rows = dim("rows", max=512)

    @function
    def f(x: Tensor[f32, rows, 64], codes: Tensor[u8, 32, 256], scales: Tensor[f16, 2, 256]) -> Tensor[f32, rows, 256]:
        return ops.relu(x @ decode_wide(codes, scales))

    codes = np.random.default_rng(0).integers(0, 256, (32, 256)).astype(np.uint8)
    scales = random(2, 256).astype(np.float16)
    (call,) = [x for x in fused(f, [random(3, 64), codes, scales], rtol=1e-4).nodes if isinstance(x, g.CallLoop)]
    _, why = default_schedule(func_of(call.callee), target("native"))
    many, few = why.split("; else: ")
    assert "copied by panels" in many and "in place" in few
    assert "decoded `w` where it is read" in many and "decoded `w` where it is read" in few
    assert all(int(t) < 64 * 256 * 4 for t in temporaries(f))
    weights = (np.stack([codes & 15, codes >> 4], 1).reshape(64, 256).astype(np.float32) - 8) * np.repeat(scales, 32, 0).astype(np.float32)
    for count in (1, 5, 63, 64, 130):
        x = random(count, 64, seed=count)
        np.testing.assert_allclose(f(x, codes, scales), np.maximum(x @ weights, 0), rtol=1e-3, atol=1e-3)


def test_a_norm_written_in_parts_is_one_kernel() -> None:
    @function
    def f(x: Tensor[f32, n, m], y: Tensor[f32, n, m], w: Tensor[f32, m], b: Tensor[f32, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, n, m]]:
        h = x + y
        c = h - ops.mean(h, axis=-1, keepdims=True)
        v = ops.mean(c * c, axis=-1, keepdims=True)
        return c / ops.sqrt(v + 1e-5) * w + b, h

    after = fused(f, [random(3, 40), random(3, 40, seed=1), random(40, seed=2), random(40, seed=3)])
    assert len(calls(after)) == 1
    call = next(n for n in after.nodes if isinstance(n, g.CallLoop))
    _, why = default_schedule(func_of(call.callee), target("llvm:x86-64-v3"))
    assert "rows: " in why and "not " not in why and "fallback" not in why


def test_a_softmax_written_in_parts_is_one_kernel() -> None:
    @function
    def f(x: Tensor[f32, k, n, m]) -> Tensor[f32, k, n, m]:
        e = ops.exp(x - ops.max(x, axis=-1, keepdims=True))
        return e / ops.sum(e, axis=-1, keepdims=True)

    assert calls(fused(f, [random(2, 3, 40)])) == ["max_sub_exp_sum_div"]


def test_reductions_over_other_rows_stay_apart() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> Tensor[f32, m]:
        return ops.max(ops.exp(x - ops.max(x, axis=-1, keepdims=True)), axis=0)

    assert calls(fused(f, [random(3, 4)])) == ["max_sub_exp", "max"]


def test_what_is_computed_beside_products_for_a_product_is_written_by_itself() -> None:
    @function
    def f(x: Tensor[f32, n, 4], y: Tensor[f32, n, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, 2 * n, 4]:
        return ops.concat([x @ w, ops.exp(y)], axis=0) @ w

    @function
    def read_by_others(x: Tensor[f32, n, 4], y: Tensor[f32, n, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, 2 * n, 4]:
        return ops.concat([x @ w, ops.exp(y)], axis=0) * 2.0

    arguments = [random(3, 4), random(3, 4, seed=1), random(4, 4, seed=2)]
    assert calls(fused(f, arguments)) == ["matmul", "exp", "concat", "matmul"]
    assert calls(fused(read_by_others, arguments)) == ["matmul", "exp_concat_mul"]
