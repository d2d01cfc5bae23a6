"""Graph passes: what each of them changes, and what it leaves alone. Every function is verified before and after, and means the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pliant
from pliant import InOut, State, Tensor, dim, f16, f32, function, i32, i64, kernel, match_cast, ops
from pliant.graph import node as g
from pliant.graph.passes.combine_matmuls import combine_matmuls
from pliant.graph.passes.common_subexpressions import common_subexpressions
from pliant.graph.passes.dead_code import dead_code
from pliant.graph.passes.fold_batch_norm import fold_batch_norm
from pliant.graph.passes.fold_constants import fold_constants
from pliant.graph.passes.simplify import simplify
from pliant.graph.passes.transposes_into_matmul import transposes_into_matmul
from pliant.graph.verify import verify
from pliant.interp.graph import run_graph

n = dim("n", max=64)
m = dim("m", max=64)
k = dim("k", max=64)

Pass = Callable[[g.Function], g.Function]


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


def changed(f: Any, arguments: Sequence[Any], *passes: Pass) -> g.Function:
    """The function after the passes and without dead code; the interpreter finds it to mean the same, bit for bit."""
    after = f.graph
    verify(after)
    for change in passes:
        after = change(after)
        verify(after)
        assert change(after) is after, "a second time changes nothing"
    after = dead_code(after)
    copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)]
    for expected, found in zip(run_graph(f.graph, copies[0]), run_graph(after, copies[1]), strict=True):
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
    return after


def text(f: g.Function) -> list[str]:
    """The statements of a printed function, without its head."""
    return [line.split("  #")[0].strip() for line in str(f).splitlines() if " = ops." in line or "return" in line]


def names(f: g.Function) -> list[str]:
    return [x.op for x in g.walk_nodes(f.nodes) if isinstance(x, g.Op)]


# Common subexpressions.


def test_the_same_is_computed_once() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.exp(x + y) * ops.exp(x + y)

    assert text(changed(f, [random(3), random(3, seed=1)], common_subexpressions)) == [
        "add = ops.add(x, y)",
        "exp = ops.exp(add)",
        "result = ops.mul(exp, exp)",
        "return result",
    ]


def test_other_attributes_and_other_dims_are_something_else() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, n], Tensor[f32, m], Tensor[f32, n, m], Tensor[f32, m, n]]:
        return ops.sum(x, axis=1), ops.sum(x, axis=0), ops.reshape(x, (n, m)), ops.reshape(x, (m, n))

    assert len(changed(f, [random(3, 4)], common_subexpressions).nodes) == 4


def test_zero_and_minus_zero_are_two_numbers() -> None:
    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        return x + 0.0, x + -0.0

    assert names(changed(f, [np.array([-0.0], np.float32)], common_subexpressions)) == ["add", "add"]


def test_a_body_uses_what_stands_around_it_and_branches_do_not_share() -> None:
    @function
    def f(x: Tensor[f32, n], b: bool) -> Tensor[f32, n]:
        y = ops.exp(x)
        if b:
            z = ops.exp(x) + ops.tanh(x)
        else:
            z = ops.tanh(x)
        return z * y + ops.tanh(x)

    for b in (True, False):
        after = changed(f, [random(3), b], common_subexpressions)
        assert names(after).count("exp") == 1
        assert names(after).count("tanh") == 3


def test_state_and_definitions_of_dims_stay() -> None:
    @kernel
    def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
        for i in range(n):
            total[i] = total[i] + x[i]

    @function
    def f(x: Tensor[f32, n], total: State[f32, n]) -> tuple[Tensor[f32, n], State[f32, n], Tensor[f32, n]]:
        before = total * 2.0
        total = add_to(x, total)
        total = add_to(x, total)
        return before, total, total * 2.0

    after = changed(f, [random(3), random(3, seed=1)], common_subexpressions)
    assert len([x for x in after.nodes if isinstance(x, g.CallLoop)]) == 2
    assert names(after) == ["mul", "mul"]

    u, v = dim("u"), dim("v")

    @function
    def defines(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        a, b = match_cast(x, Tensor[f32, u]), match_cast(x, Tensor[f32, v])
        return match_cast(a, Tensor[f32, n]), match_cast(b, Tensor[f32, n])

    assert len(changed(defines, [random(3)], common_subexpressions).nodes) == 4


def test_calls_of_unknown_effect_stay() -> None:
    seen: list[int] = []

    def count(x: Any) -> Any:
        seen.append(1)
        return x + 1

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.call_host(count, [x], out=Tensor[f32, n]) + ops.call_host(count, [x], out=Tensor[f32, n])

    changed(f, [random(3)], common_subexpressions)
    assert len(seen) == 4  # two for each of the two runs


def test_equal_nodes_keep_the_layers_of_both() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return ops.exp(x) * ops.exp(x)

    nodes = [x.with_(origin=(f"layer{i}",)) for i, x in enumerate(f.graph.nodes)]
    after = common_subexpressions(f.graph.with_(nodes=tuple(nodes)))
    assert after.nodes[0].origin == ("layer0", "layer1")


def test_a_check_that_only_the_second_has_keeps_it() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m]):  # type: ignore[no-untyped-def]
        return x + y, x + y

    first, second = f.graph.nodes
    bare = f.graph.with_(nodes=(first.with_(requires=()), second))
    assert len(common_subexpressions(bare).nodes) == 2
    assert len(common_subexpressions(f.graph).nodes) == 1


# Constants.


def test_operators_on_literals_become_literals() -> None:
    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        half = ops.div(ops.constant(1.0), ops.constant(2.0))
        return x * (half + ops.sqrt(ops.constant(4.0)))

    after = changed(f, [random(3)], fold_constants)
    assert names(after) == ["mul"]
    assert [x.array.item() for x in after.nodes if isinstance(x, g.Const)] == [2.5]


def test_large_results_and_those_that_depend_on_dims_are_left() -> None:
    numbers = np.linspace(0, 1, 4096, dtype=np.float32)

    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, 4096], Tensor[f32, n]]:
        table = ops.exp(ops.constant(numbers))
        return table, ops.full((n,), 2.0) * x

    assert fold_constants(f.graph) is f.graph


def test_an_index_outside_of_a_literal_is_left_for_the_run_to_tell() -> None:
    seven = np.array([7])

    @function
    def f() -> Tensor[f32, 1]:
        return ops.take(ops.constant([1.0, 2.0]), ops.constant(seven), axis=0)

    assert fold_constants(f.graph) is f.graph


# Algebra. Each rule has its examples in the property tests; here is what the printed program looks like, and what must stay.


def test_views_and_permutes_are_composed() -> None:
    @function
    def f(x: Tensor[f32, n, m, 4]) -> Tensor[f32, m, n, 4]:
        y = ops.permute(ops.permute(x, (2, 0, 1)), (2, 1, 0))
        z = ops.reshape(ops.reshape(y, (m * n, 4)), (m, n, 4))
        return ops.slice(ops.concat([z], axis=0), 0, 0, m)

    assert names(changed(f, [random(3, 2, 4)], simplify)) == ["permute"]


def test_floats_keep_their_zeros() -> None:
    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n], Tensor[f32, n], Tensor[f32, n]]:
        return x + 0.0, x - (-0.0), x * 0.0, x - x

    assert names(changed(f, [np.array([-0.0, np.inf, 1.0], np.float32)], simplify)) == ["add", "sub", "mul", "sub"]


def test_what_rounds_or_saturates_is_kept() -> None:
    @function
    def f(x: Tensor[f32, n], i: Tensor[i64, n]) -> tuple[Tensor[f32, n], Tensor[i64, n], Tensor[i64, n]]:
        rounded = ops.cast(ops.cast(x, f16), f32)
        return rounded, ops.cast(ops.cast(i, i32), i64), ops.cast(ops.cast(i, f32), i64)

    assert len(names(changed(f, [random(3), np.array([2**40, -1, 2**24 + 1])], simplify))) == 6


def test_a_division_that_is_not_exact_stays_one() -> None:
    @function
    def f(x: Tensor[f32, n]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        return x / 3.0, x / 8.0

    after = changed(f, [random(9)], simplify)
    assert names(after) == ["div", "mul"]


def test_state_is_not_read_later_than_it_was() -> None:
    @kernel
    def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
        for i in range(n):
            total[i] = total[i] + x[i]

    @function
    def f(x: Tensor[f32, n], total: State[f32, n]) -> tuple[Tensor[f32, n, 1], State[f32, n]]:
        before = ops.reshape(total, (1, n))
        total = add_to(x, total)
        return ops.reshape(before, (n, 1)), total

    assert names(changed(f, [random(3), random(3, seed=1)], simplify)) == ["reshape", "reshape"]


def test_checks_are_not_lost() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> Tensor[f32, k, 2]:
        return match_cast(ops.reshape(ops.reshape(x, (m, 6)), (n, m)), Tensor[f32, k, 2])

    conditions = {r.cond for x in f.graph.nodes for r in x.requires}
    assert {r.cond for x in dead_code(simplify(f.graph)).nodes for r in x.requires} >= conditions


# Transposes. Whole numbers, so that every order of a sum gives the same bits.


def whole(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)


def test_a_left_operand_is_read_as_it_lies() -> None:
    @function
    def f(x: Tensor[f32, 2, n, m], y: Tensor[f32, 2, n, k]) -> Tensor[f32, 2, m, k]:
        return ops.permute(x, (0, 2, 1)) @ y

    assert text(changed(f, [whole(2, 3, 4), whole(2, 3, 5)], transposes_into_matmul)) == [
        "result = ops.matmul(x, y, transpose_a=True, transpose_b=False)",
        "return result",
    ]


def test_a_right_operand_is_moved_once_and_a_transpose_twice_is_none() -> None:
    @function
    def f(x: Tensor[f32, 2, n, m], y: Tensor[f32, 2, k, m]) -> tuple[Tensor[f32, 2, n, k], Tensor[f32, 2, n, k]]:
        z = ops.permute(y, (0, 2, 1))
        return ops.matmul(x, y, transpose_b=True), ops.matmul(x, ops.permute(z, (0, 2, 1)), transpose_b=True)

    after = changed(f, [whole(2, 3, 4), whole(2, 5, 4)], transposes_into_matmul, common_subexpressions)
    assert names(after) == ["permute", "matmul"]


def test_a_right_operand_is_not_moved_for_a_few_rows() -> None:
    @function
    def f(x: Tensor[f32, 3, 4, m], y: Tensor[f32, 3, k, m]) -> Tensor[f32, 3, 4, k]:
        return ops.matmul(x, y, transpose_b=True)

    assert transposes_into_matmul(f.graph) is f.graph
    x, y = whole(3, 4, 21), whole(3, 17, 21, seed=1)
    np.testing.assert_array_equal(pliant.compile(f)(x, y), x @ y.swapaxes(1, 2))


def test_the_weight_of_a_linear_that_was_transposed_is_read_as_it_was() -> None:
    @function
    def f(x: Tensor[f32, n, m], w: Tensor[f32, m, k], b: Tensor[f32, k]) -> tuple[Tensor[f32, n, k], Tensor[f32, n, k]]:
        t = ops.permute(w, (1, 0))
        return ops.linear(x, t), ops.linear(x, t, b)

    assert names(changed(f, [whole(2, 3), whole(3, 5), whole(5)], transposes_into_matmul)) == ["permute", "matmul", "linear"]


def test_other_permutes_stay() -> None:
    @function
    def f(x: Tensor[f32, n, 2, m], y: Tensor[f32, 2, m, k]) -> Tensor[f32, 2, n, k]:
        return ops.permute(x, (1, 0, 2)) @ y

    assert transposes_into_matmul(f.graph) is f.graph


# Parallel products.

WQ, WK, BQ, BK = whole(8, 6), whole(8, 6, seed=1), whole(8, seed=2), whole(8, seed=3)
B1, B2 = whole(6, seed=4), whole(6, seed=5)


def test_parallel_products_are_one_and_nothing_is_copied_for_it() -> None:
    @function
    def f(x: Tensor[f32, n, 6]) -> tuple[Tensor[f32, 2, n, 4], Tensor[f32, 2, n, 4]]:
        q = ops.reshape(ops.linear(x, WQ, BQ), (n, 2, 4))
        k = ops.reshape(ops.linear(x, WK, BK), (n, 2, 4))
        return ops.permute(q, (1, 0, 2)), ops.permute(k, (1, 0, 2))

    after = changed(f, [whole(5, 6)], combine_matmuls, simplify, common_subexpressions)
    assert sorted(names(after)) == sorted(["concat", "concat", "linear", "reshape", "slice", "slice", "permute", "permute"])
    assert pliant.compile(f).interface.kernels == ("linear", "slice_permute")  # the permutes read through the slices
    q, _ = f(whole(5, 6))
    np.testing.assert_array_equal(q, (whole(5, 6) @ WQ.T + BQ).reshape(5, 2, 4).transpose(1, 0, 2))


def test_parallel_products_with_rows_added_afterwards_are_one() -> None:
    @function
    def f(x: Tensor[f32, n, 8]) -> tuple[Tensor[f32, 2, n, 3], Tensor[f32, 2, n, 3], Tensor[f32, n, 6]]:
        q = ops.reshape(x @ WQ + B1, (n, 2, 3))
        k = ops.reshape(ops.add(B2, x @ WK), (n, 2, 3))
        v = x @ WK + B1
        return ops.permute(q, (1, 0, 2)), ops.permute(k, (1, 0, 2)), v * v

    after = changed(f, [whole(5, 8)], combine_matmuls, simplify, common_subexpressions)
    assert names(dead_code(after)).count("matmul") == 2  # the third one is not only moved
    q, k, _ = f(whole(5, 8))
    np.testing.assert_array_equal(q, (whole(5, 8) @ WQ + B1).reshape(5, 2, 3).transpose(1, 0, 2))
    np.testing.assert_array_equal(k, (whole(5, 8) @ WK + B2).reshape(5, 2, 3).transpose(1, 0, 2))


def test_parallel_products_with_weights_the_other_way_round_are_one() -> None:
    """The modulation of a diffusion transformer as exporters write it: products (Gemm, transposed) of one condition, cut into parts."""
    w6, w2, b6, b2 = whole(24, 6), whole(8, 6, seed=1), whole(24, seed=2), whole(8, seed=3)

    @function
    def f(x: Tensor[f32, m, n, 4], c: Tensor[f32, m, 6]) -> tuple[Tensor[f32, m, n, 4], Tensor[f32, m, n, 4]]:
        six = ops.matmul(c, w6, transpose_b=True) + b6
        two = ops.add(b2, ops.matmul(c, w2, transpose_b=True))
        shift, scale = ops.reshape(six[:, 4:8], (m, 1, 4)), ops.reshape(six[:, 16:20], (m, 1, 4))
        last, gain = ops.reshape(two[:, :4], (m, 1, 4)), ops.reshape(two[:, 4:], (m, 1, 4))
        return x * (scale + 1.0) + shift, x * gain + last

    x, c = whole(2, 3, 4), whole(2, 6, seed=7)
    after = changed(f, [x, c], combine_matmuls, simplify, common_subexpressions)
    assert names(dead_code(after)).count("matmul") == 1
    six, two = c @ w6.T + b6, c @ w2.T + b2
    first, second = f(x, c)
    np.testing.assert_array_equal(first, x * (six[:, None, 16:20] + 1) + six[:, None, 4:8])
    np.testing.assert_array_equal(second, x * two[:, None, 4:] + two[:, None, :4])


def test_products_that_are_read_otherwise_or_have_other_weights_stay() -> None:
    @function
    def f(x: Tensor[f32, n, 6], w: Tensor[f32, 8, 6]) -> tuple[Tensor[f32, n, 8], Tensor[f32, n * 8], Tensor[f32, n * 8]]:
        q, k = ops.linear(x, WQ), ops.linear(x, WK)
        return ops.exp(q), ops.reshape(k, (n * 8,)), ops.reshape(ops.linear(x, w), (n * 8,))

    assert combine_matmuls(f.graph) is f.graph


# Batch norms.

WEIGHT, BIAS = random(4, 3, 2, 2), random(4, seed=1)
GAMMA, BETA, MEAN, VAR = random(4, seed=2), random(4, seed=3), random(4, seed=4), np.abs(random(4, seed=5)) + 0.5
PER_CHANNEL = random(4, 1, 1, seed=6)


def test_a_batch_norm_goes_into_the_convolution_before_it() -> None:
    @function
    def f(x: Tensor[f32, n, 3, m, m]) -> Tensor[f32, n, 4, m - 1, m - 1]:
        y = ops.batch_norm(ops.conv(x, WEIGHT, BIAS), GAMMA, BETA, MEAN, VAR)
        return ops.relu(ops.conv(x, WEIGHT) * PER_CHANNEL + y)

    verify(f.graph)
    after = dead_code(fold_batch_norm(f.graph))
    verify(after)
    assert "batch_norm" not in names(after)
    x = random(2, 3, 5, 5)
    expected = run_graph(f.graph, [x])[0]
    np.testing.assert_allclose(run_graph(after, [x])[0], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(f(x), expected, rtol=1e-4, atol=1e-4)


def test_a_convolution_with_another_reader_or_other_statistics_stays() -> None:
    @function
    def f(x: Tensor[f32, n, 3, m, m], mean: Tensor[f32, 4]) -> tuple[Tensor[f32, n, 4, m - 1, m - 1], Tensor[f32, n, 4, m - 1, m - 1]]:
        y = ops.conv(x, WEIGHT)
        z = ops.batch_norm(ops.conv(x, WEIGHT, BIAS), GAMMA, BETA, mean, VAR)
        return ops.batch_norm(y, GAMMA, BETA, MEAN, VAR) + y, z

    assert fold_batch_norm(f.graph) is f.graph


def test_numbers_that_are_not_finite_stay_where_they_are() -> None:
    zero = np.zeros(4, np.float32)

    @function
    def f(x: Tensor[f32, n, 3, m, m]) -> Tensor[f32, n, 4, m - 1, m - 1]:
        return ops.batch_norm(ops.conv(x, WEIGHT), GAMMA, BETA, MEAN, zero, eps=0.0)

    assert fold_batch_norm(f.graph) is f.graph


@pytest.mark.parametrize(
    "change", [common_subexpressions, simplify, fold_constants, transposes_into_matmul, combine_matmuls, fold_batch_norm]
)
def test_nothing_to_do_is_the_same_object(change: Pass) -> None:
    @function
    def f(x: Tensor[f32, n], b: bool) -> Tensor[f32, n]:
        if b:
            y = ops.exp(x)
        else:
            y = ops.tanh(x)
        return y * 2.0

    assert change(f.graph) is f.graph
