"""Host programs: small functions run natively and with their three host functions interpreted, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import call, compiled, host_of, interpret_host, prepared, without
from pliant import InOut, Out, State, Tensor, block, dim, f16, f32, function, grid, i32, i64, kernel, match_cast, ops, u8
from pliant.graph.node import Function
from pliant.graph.node import Tensor as TensorAnnotation
from pliant.support.errors import Error, ShapeError, UnsupportedError

n = dim("n", max=64)
m = dim("m", max=4096)
k = dim("k", max=64)
even = dim("even", min=2, max=16, multiple_of=2)

Array = np.ndarray[Any, Any]


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-4, 4, shape).astype(np.float32)


@cache
def ways(f: Function) -> dict[str, Callable[[Sequence[Any]], Any]]:
    """The ways to run a function: natively, poisoned, without fusion, and with its host program interpreted."""
    native, poisoned, unfused = compiled(f), compiled(f, poison=True), compiled(f, without("fuse"), poison=True)
    host, plain = host_of(f), host_of(f, without("fuse"), poison=True)
    return {
        "native": lambda a: call(native, a),
        "poisoned": lambda a: call(poisoned, a),
        "not fused, poisoned": lambda a: call(unfused, a),
        "interpreted": lambda a: interpret_host(host, a),
        "interpreted, not fused, poisoned": lambda a: interpret_host(plain, a),
    }


def check(f: Any, arguments: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-5) -> None:
    """The function gives the expected results in all ways; arguments other than state are not changed."""
    state = [isinstance(p.annotation, TensorAnnotation) and p.annotation.state for p in f.graph.params]
    for way, run in ways(f.graph).items():
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        found = run(mine)
        assert len(found) == len(expected), way
        for a, e in zip(found, map(np.asarray, expected), strict=True):
            assert (a.dtype, a.shape) == (e.dtype, e.shape), way
            np.testing.assert_allclose(a, e, rtol=rtol, atol=1e-6, err_msg=way)
        for before, after, changes in zip(arguments, mine, state, strict=True):
            assert changes or np.array_equal(before, after), way


@kernel
def add_to(x: Tensor[f32, n], total: InOut[f32, n]) -> None:
    for i in range(n):
        total[i] += x[i]


@kernel
def scale(x: Tensor[f32, n], by: f32, y: Out[f32, n]) -> None:
    for i in range(n):
        y[i] = x[i] * by


@kernel
def square_sums(x: Tensor[f32, n, m], squares: Out[f32, n, m], sums: Out[f32, n]) -> None:
    for i, j in grid(n, m):
        with block("squares", "SS", i, j) as (vi, vj):
            squares[vi, vj] = x[vi, vj] * x[vi, vj]
    for i in range(n):
        sums[i] = 0.0
        for j in range(m):
            sums[i] += squares[i, j]


# What is returned.


def test_a_parameter_is_returned() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        return x

    x = random(3, 4)
    check(f, [x], [x])
    assert compiled(f.graph)(x) is not x


def test_one_value_is_returned_twice() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> tuple[Tensor[f32, n, 4], Tensor[f32, n, 4], Tensor[f32, n, 4]]:
        y = x + 1.0
        return y, y, x

    x = random(3, 4)
    check(f, [x], [x + 1, x + 1, x])
    a, b, _ = compiled(f.graph)(x)
    assert not np.shares_memory(a, b)


def test_results_through_views() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> tuple[Tensor[f32, n * 4], Tensor[f32, n, 4], Tensor[f32, n, 2, 2]]:
        y = x * 2.0
        return ops.reshape(y, (n * 4,)), y, ops.reshape(ops.reshape(x - 1.0, (n * 4,)), (n, 2, 2))

    x = random(3, 4)
    check(f, [x], [(x * 2).reshape(-1), x * 2, (x - 1).reshape(3, 2, 2)])


def test_a_result_behind_a_view_is_written_in_place() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 2, 2]:
        return ops.reshape(ops.reshape(x - 1.0, (n * 4,)), (n, 2, 2))

    host = host_of(f.graph)
    assert not host.temporaries
    assert str(host.run).count("copy") == 0


def test_a_view_of_a_parameter_is_returned() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> tuple[Tensor[f32, n * 4], Tensor[f32, n * 2, 2]]:
        y = ops.reshape(x, (n * 4,))
        return y, ops.reshape(y, (n * 2, 2))

    x = random(3, 4)
    check(f, [x], [x.reshape(-1), x.reshape(6, 2)])


def test_constants_are_read_and_returned() -> None:
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    row = table[1]

    @function
    def f(x: Tensor[f32, n, 4]) -> tuple[Tensor[f32, 3, 4], Tensor[f32, n, 4], Tensor[i64]]:
        return ops.constant(table), x + ops.constant(row), ops.constant(7)

    x = random(2, 4)
    check(f, [x], [table, x + table[1], np.array(7)])


def test_two_kernels_that_differ_only_in_their_dims() -> None:
    """Equal loop programs are compiled once; each call passes its own dims."""

    @function
    def f(x: Tensor[f32, n, 4], y: Tensor[f32, k, 4]) -> tuple[Tensor[f32, n, 4], Tensor[f32, k, 4], Tensor[f32, n, 4], Tensor[f32, k, 4]]:
        return x, y, -x, -y

    x, y = random(3, 4), random(5, 4, seed=1)
    check(f, [x, y], [x, y, -x, -y])


def test_a_kernel_with_two_outputs_of_which_one_is_a_temporary() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        squares, sums = square_sums(x)
        return ops.max(squares, axis=1), sums

    x = random(3, 5)
    check(f, [x], [(x * x).max(axis=1), (x * x).sum(axis=1)])


# Scalars.


def test_scalar_arguments_of_each_kind() -> None:
    @function
    def f(x: Tensor[f32, n], a: f32, i: i64, b: bool, h: f16) -> tuple[Tensor[f32, n], Tensor[f32, n], Tensor[f32, n]]:
        y = x * a
        if b:
            z = x + ops.cast(i * 2 + 1, f32)
        else:
            z = x
        return y, z, x * ops.cast(h, f32)

    x = random(5)
    for b in (True, False):
        check(f, [x, 0.1, -(2**40), b, 1.5], [x * np.float32(0.1), x + np.float32(-(2**41) + 1) if b else x, x * 1.5])


def test_scalars_between_tensors_keep_their_places() -> None:
    @function
    def f(a: f32, x: Tensor[f32, n], b: i32, total: State[f32, n], c: bool) -> tuple[State[f32, n], Tensor[f32, n]]:
        y = x * a + ops.cast(b, f32)
        if c:
            y = -y
        return add_to(y, total), y

    x, total = random(4), random(4, seed=1)
    y = -(x * 2 + 3)
    check(f, [2.0, x, 3, total, True], [total + y, y])


def test_scalars_known_in_terms_of_dims() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, n, m]]:
        if n * 2 > m:
            y = x * ops.cast(n, f32)
        else:
            y = x / ops.cast(m + 1, f32)
        return y, x + ops.cast(n * m, f32)

    for shape in ((3, 4), (2, 4)):
        x = random(*shape)
        y = x * shape[0] if shape[0] * 2 > shape[1] else x / (shape[1] + 1)
        check(f, [x], [y.astype(np.float32), x + shape[0] * shape[1]])


def test_scalars_are_returned_as_tensors_of_rank_0() -> None:
    @function
    def f(x: Tensor[f32, n], i: i64):  # type: ignore[no-untyped-def]
        return ops.scalar(n * 2), i + 1, x

    x = random(3)
    check(f, [x, 41], [np.array(6), np.array(42), x])


def test_a_scalar_result_of_a_branch() -> None:
    @function
    def f(x: Tensor[f32, n], i: i64, b: bool) -> Tensor[f32, n]:
        if b:
            j = i * 3
        else:
            j = i - 1
        return x * ops.cast(j, f32)

    x = random(4)
    for b in (True, False):
        check(f, [x, 5, b], [x * (15 if b else 4)])


def test_a_host_scalar_in_a_kernel() -> None:
    @function
    def f(x: Tensor[f32, n], a: f32) -> tuple[Tensor[f32, n], Tensor[f32, n]]:
        return scale(x, a * 2.0), scale(x, 0.5)

    x = random(4)
    check(f, [x, 3.0], [x * 6, x * 0.5])


# Branches.


def test_a_branch_gives_outer_values() -> None:
    @function
    def f(x: Tensor[f32, n, 4], b: bool) -> tuple[Tensor[f32, n, 4], Tensor[f32, n, 4]]:
        s = x + 1.0
        t = s * s
        if b:
            y, z = s, t
        else:
            y, z = t, s
        return y, z

    x = random(3, 4)
    s = x + 1
    check(f, [x, True], [s, s * s])
    check(f, [x, False], [s * s, s])


def test_a_branch_gives_a_parameter_or_nothing_new() -> None:
    @function
    def f(x: Tensor[f32, n, 4], b: bool) -> Tensor[f32, n, 4]:
        y = x
        if b:
            y = -x
        return y

    x = random(3, 4)
    check(f, [x, True], [-x])
    check(f, [x, False], [x])


def test_memory_of_a_branch_result_is_there_in_both_branches() -> None:
    """The result is wanted through a view in one branch, is an outer value in the other, and is used after."""

    @function
    def f(x: Tensor[f32, n, 4], b: bool) -> tuple[Tensor[f32, n * 4], Tensor[f32]]:
        t = ops.reshape(x + 1.0, (n * 4,))
        if b:
            u = x * 3.0
            y = ops.reshape(u * u, (n * 4,))
        else:
            y = t
        return y * 2.0 + t, ops.sum(y)

    x = random(3, 4)
    for b in (True, False):
        y = ((x * 3) ** 2).reshape(-1) if b else (x + 1).reshape(-1)
        check(f, [x, b], [y * 2 + (x + 1).reshape(-1), y.sum()])


def test_nested_branches_with_temporaries_of_their_own() -> None:
    @function
    def f(x: Tensor[f32, n, 8], w: Tensor[f32, 8, 8], a: bool, b: bool) -> Tensor[f32, n, 8]:
        h = x @ w
        if a:
            u = h @ w
            if b:
                y = (u @ w) + h
            else:
                y = ops.softmax(u @ w) + u
        else:
            v = ops.softmax(h)
            y = v @ w + ops.softmax(v @ w) * h
        return ops.softmax(y @ w) + h

    x, w = random(3, 8), random(8, 8, seed=1) / 4

    def softmax(v: Array) -> Array:
        e = np.exp(v - v.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    h = x @ w
    u, v = h @ w, softmax(h)
    for a, b, y in (
        (True, True, u @ w + h),
        (True, False, softmax(u @ w) + u),
        (False, True, v @ w + softmax(v @ w) * h),
    ):
        check(f, [x, w, a, b], [softmax(y @ w) + h], rtol=1e-4)


def test_a_condition_from_data() -> None:
    @function
    def f(x: Tensor[f32, n, 4]) -> Tensor[f32, n, 4]:
        if ops.sum(x) > 0.0:
            y = x * 2.0
        else:
            y = -x
        return y

    for sign in (1, -1):
        x = np.abs(random(3, 4)) * sign
        check(f, [x.astype(np.float32)], [x * 2 if sign > 0 else -x])


def test_checks_inside_a_branch_are_made_only_there() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, k], b: bool) -> Tensor[f32, n]:
        if b:
            z = x + match_cast(y, Tensor[f32, n])
        else:
            z = x
        return z

    x, y = random(3), random(4)
    check(f, [x, y, False], [x])
    check(f, [x, x, True], [x + x])
    with pytest.raises(ShapeError, match=r"dim 0 of `y` is 4, n = 3 is expected"):
        compiled(f.graph)(x, y, True)
    with pytest.raises(Error):
        interpret_host(host_of(f.graph), [x, y, True])


# State.


def test_state_is_updated_in_place() -> None:
    @function
    def f(x: Tensor[f32, n], total: State[f32, n]) -> tuple[Tensor[f32, n], State[f32, n]]:
        before = total * 2.0
        total = add_to(x, total)
        total = add_to(x, total)
        return before + total, total

    x, total = random(5), random(5, seed=1)
    check(f, [x, total], [total * 2 + (total + x + x), total + x + x])
    mine = total.copy()
    assert compiled(f.graph)(x, mine)[1] is mine
    np.testing.assert_allclose(mine, total + x + x, rtol=1e-6)


def test_state_in_both_branches() -> None:
    @function
    def f(x: Tensor[f32, n], total: State[f32, n], b: bool) -> tuple[State[f32, n], Tensor[f32, n]]:
        if b:
            total = add_to(x, total)
            y = x
        else:
            total = add_to(x * 2.0, total)
            total = add_to(x, total)
            y = x + total
        return total, y

    x, total = random(5), random(5, seed=1)
    check(f, [x, total, True], [total + x, x])
    check(f, [x, total, False], [total + x * 3, x + total + x * 3])


def test_state_that_one_branch_leaves_alone() -> None:
    @function
    def f(x: Tensor[f32, n], total: State[f32, n], b: bool) -> tuple[State[f32, n], Tensor[f32, n]]:
        before = total + 1.0
        if b:
            total = add_to(x, total)
        else:
            before = before * 2.0
            if n > 4:
                total = add_to(before, total)
        return total, before

    x, total = random(5), random(5, seed=1)
    old = total + np.float32(1)
    check(f, [x, total, True], [total + x, old])
    check(f, [x, total, False], [total + old * 2, old * 2])
    check(f, [x[:3], total[:3], False], [total[:3], old[:3] * 2])


def test_a_view_of_state_does_not_see_later_updates() -> None:
    @function
    def f(x: Tensor[f32, 4], total: State[f32, 4]) -> tuple[Tensor[f32, 2, 2], Tensor[f32, 4], State[f32, 4]]:
        old = ops.reshape(total, (2, 2))
        copy = ops.reshape(old, (4,))
        total = add_to(x, total)
        return old, copy + total, total

    x, total = random(4), random(4, seed=1)
    check(f, [x, total], [total.reshape(2, 2), total + total + x, total + x])


def test_state_through_functions_that_read_and_update() -> None:
    @function
    def peek(total: Tensor[f32, n]) -> Tensor[f32, n]:
        return total

    @function
    def update(x: Tensor[f32, n], total: State[f32, n]) -> State[f32, n]:
        return add_to(-x, total)

    @function
    def f(x: Tensor[f32, m], total: State[f32, m]) -> tuple[Tensor[f32, m], State[f32, m]]:
        before = peek(total)
        total = update(x, total)
        return before + x, total

    x, total = random(4), random(4, seed=1)
    check(f, [x, total], [total + x, total - x])


def test_two_states_that_change_places_between_branches_are_refused() -> None:
    @function
    def f(x: Tensor[f32, n], a: State[f32, n], c: State[f32, n], b: bool) -> tuple[State[f32, n], State[f32, n]]:
        if b:
            p = add_to(x, a)
            q = add_to(x, c)
        else:
            q = add_to(x, a)
            p = add_to(x, c)
        return p, q

    with pytest.raises(UnsupportedError, match=r"state `p.*` is `a` in one branch and `c` in the other"):
        host_of(f.graph)


# Functions, casts, dims.


def test_functions_that_call_functions() -> None:
    @function
    def half(x: Tensor[f32, k]) -> Tensor[f32, k]:
        return x * 0.5

    @function
    def both(x: Tensor[f32, k], y: Tensor[f32, k]) -> tuple[Tensor[f32, k], Tensor[f32, k]]:
        return half(x) + y, half(y)

    @function
    def f(x: Tensor[f32, n, 2]) -> tuple[Tensor[f32, n * 2], Tensor[f32, n * 2]]:
        y = ops.reshape(x, (n * 2,))
        a, b = both(y, half(y))
        return a, b

    x = random(3, 2)
    y = x.reshape(-1)
    check(f, [x], [y, y * 0.25])


def test_match_cast_defines_a_dim() -> None:
    half = dim("half")

    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, m]) -> tuple[Tensor[f32, half], Tensor[f32, half, 2]]:
        z = match_cast(ops.slice(x, 0, 0, n // 2), Tensor[f32, half])
        w = match_cast(y, Tensor[f32, half * 2])
        return z, ops.reshape(w, (half, 2)) + ops.reshape(z, (half, 1))

    x, y = random(7), random(6, seed=1)
    check(f, [x, y], [x[:3], y.reshape(3, 2) + x[:3, None]])
    with pytest.raises(ShapeError, match="dim 0 of `y` is 5, half"):
        compiled(f.graph)(x, random(5))


def test_a_dim_used_only_in_an_annotation() -> None:
    @function
    def f(x: Tensor[f32, n], marker: Tensor[u8, m], y: Tensor[f32, k]) -> Tensor[f32, m]:
        return match_cast(y, Tensor[f32, m]) * ops.cast(m, f32)

    y = random(4)
    check(f, [random(2), np.zeros(4, np.uint8), y], [y * 4])
    with pytest.raises(ShapeError):
        compiled(f.graph)(random(2), np.zeros(3, np.uint8), y)


def test_a_function_whose_callee_defines_a_dim() -> None:
    inner = dim("inner")

    @function
    def halves(x: Tensor[f32, n]) -> Tensor[f32, inner]:
        return match_cast(ops.slice(x, 0, 0, n // 2), Tensor[f32, inner])

    @function
    def f(x: Tensor[f32, m]) -> Tensor[f32, m // 2]:
        return match_cast(halves(x) * 2.0, Tensor[f32, m // 2])

    x = random(9)
    check(f, [x], [x[:4] * 2])


def test_empty_and_single_dims() -> None:
    @function
    def f(x: Tensor[f32, n, m]) -> tuple[Tensor[f32, n, m], Tensor[f32, n], Tensor[f32, m], Tensor[f32], Tensor[f32, n, n]]:
        y = x + 1.0
        return y, ops.sum(x, axis=1), ops.max(x, axis=0), ops.sum(y), y @ ops.permute(y, (1, 0))

    for rows in (0, 1, 2, 7):
        for columns in (0, 1, 5):
            x = random(rows, columns)
            top = x.max(axis=0) if rows else np.full(columns, -np.inf, np.float32)
            check(f, [x], [x + 1, x.sum(axis=1), top, (x + 1).sum(), (x + 1) @ (x + 1).T], rtol=1e-4)


def test_rank_0() -> None:
    @function
    def f(x: Tensor[f32], y: Tensor[f32, n]) -> tuple[Tensor[f32], Tensor[f32, n], Tensor[f32, 1, 1], Tensor[f32]]:
        s = x * 2.0
        return s, y + s, ops.reshape(s, (1, 1)), x

    x, y = np.array(2.5, np.float32), random(3)
    check(f, [x, y], [x * 2, y + x * 2, (x * 2).reshape(1, 1), x])


def test_broadcast_of_two_symbols_is_decided_at_run_time() -> None:
    @function
    def f(x: Tensor[f32, n], y: Tensor[f32, k]):  # type: ignore[no-untyped-def]  # its dim depends on both
        return x + y

    for a, b in ((3, 3), (1, 3), (3, 1), (1, 1), (0, 0), (0, 1)):
        x, y = random(a), random(b, seed=1)
        check(f, [x, y], [x + y])
    with pytest.raises(ShapeError):
        compiled(f.graph)(random(2), random(3))


# What `prepare` says.


def contract_example() -> Any:
    @function
    def f(x: Tensor[f32, n, 4], y: Tensor[f32, n * 2], e: Tensor[u8, even]) -> tuple[Tensor[f32, n, 4], Tensor[u8, even]]:
        return x + ops.reshape(ops.slice(y, 0, 0, n), (n, 1)), e

    return f


def contract_arguments(x: tuple[int, ...] = (3, 4), y: tuple[int, ...] = (6,), e: tuple[int, ...] = (4,)) -> list[Array]:
    return [np.zeros(x, np.float32), np.zeros(y, np.float32), np.zeros(e, np.uint8)]


def test_prepare_finds_symbols_output_shapes_and_workspace() -> None:
    @function
    def f(x: Tensor[f32, n, 8], w: Tensor[f32, 8, k]) -> tuple[Tensor[f32, k], Tensor[f32, n, k]]:
        h = x @ w
        y = h @ ops.permute(h, (1, 0)) @ h
        return ops.sum(y, axis=0), y

    host = host_of(f.graph)
    dims = prepared(host, [random(3, 8), random(8, 5)])
    at = host.layout.at_symbols
    assert dims[:at].tolist() == [3, 8, 8, 1, 8, 5, 5, 1]  # shapes and strides
    assert dims[at:-1].tolist() == [3, 5, 5, 3, 5]  # n, k, the shapes of both outputs
    executable = compiled(f.graph)
    assert dims[-1] == executable.workspace(n=3, k=5) > 0
    assert dims[-1] <= 64 * 3 + 4 * (3 * 5 + 3 * 3 + 5 * 3)  # h, its transpose, their product; each rounded up to 64


WRONG = {
    "a fixed dim": ({"x": (3, 5)}, "argument `x`: dim 1 is 5, expected 4"),
    "above the contract": ({"x": (65, 4), "y": (130,)}, "argument `x`: dim 0, `n` = 65 is outside its contract: n in 0..64"),
    "below the contract": ({"e": (0,)}, "argument `e`: dim 0, `even` = 0 is outside its contract: even in 2..16 step 2"),
    "no multiple": ({"e": (5,)}, "argument `e`: dim 0, `even` = 5 is outside its contract: even in 2..16 step 2"),
    "a relation": ({"y": (7,)}, "argument `y`: dim 0 is 7, expected 6 (`n * 2`)"),
    "a fixed dim first": ({"x": (70, 5), "y": (7,)}, "argument `x`: dim 1 is 5, expected 4"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_shapes(name: str) -> None:
    f = contract_example()
    shapes, message = WRONG[name]
    arguments = contract_arguments(**shapes)
    with pytest.raises(ShapeError) as native:
        call(compiled(f.graph), arguments)
    assert native.value.what == message
    with pytest.raises(Error) as interpreted:
        prepared(host_of(f.graph), arguments)
    assert interpreted.value.what == message


def test_a_dim_that_only_a_sum_shows_is_refused() -> None:
    with pytest.raises(Error, match="dim `k` is used before it is defined"):

        @function
        def f(x: Tensor[i32, k + 1]) -> Tensor[i32, k + 1]:
            return x


def test_a_relation_by_a_sum() -> None:
    @function
    def f(starts: Tensor[i32, k + 1], sizes: Tensor[i32, k]) -> Tensor[i32, k]:
        return ops.slice(starts, 0, 1, k + 1) - ops.slice(starts, 0, 0, k) - sizes

    for size in (0, 1, 5):
        starts = np.arange(size + 1, dtype=np.int32) ** 2
        check(f, [starts, np.diff(starts)], [np.zeros(size, np.int32)])
    with pytest.raises(ShapeError, match=r"argument `starts`: dim 0 is 5, expected 6 \(`k \+ 1`\)"):
        compiled(f.graph)(np.zeros(5, np.int32), np.zeros(5, np.int32))


def test_contiguity() -> None:
    @function
    def f(x: Tensor[f32, n, m, 2]) -> Tensor[f32, n, m, 2]:
        return x + 1.0

    executable, host = compiled(f.graph), host_of(f.graph)
    whole = random(4, 6, 2)
    one = np.lib.stride_tricks.as_strided(whole, (1, 6, 2), (4, 8, 4))  # strides of single or no elements mean nothing
    none = np.lib.stride_tricks.as_strided(whole, (3, 0, 2), (4, 4, 400))
    for fine in (whole, whole[1:3], one, whole[:, :0], whole[:0, ::2], none, whole[:1, :1]):
        np.testing.assert_array_equal(executable(fine), fine + 1)
        prepared(host, [fine])
    for wrong in (
        whole[:, ::2],
        whole[::-1],
        whole[:, :, ::-1],
        whole.transpose(1, 0, 2),
        whole[:, :5],
        np.broadcast_to(whole[:1], (4, 6, 2)),
    ):
        with pytest.raises(ShapeError, match="argument `x` is not contiguous: its strides are"):
            executable(wrong)
        with pytest.raises(Error, match="argument `x` is not contiguous: its strides are"):
            prepared(host, [wrong])


def test_memory_that_no_number_can_count_is_refused() -> None:
    a, b, c = dim("a"), dim("b"), dim("c")

    @function
    def f(x: Tensor[f32, a, 0], y: Tensor[f32, b, 0], z: Tensor[f32, c, 0]) -> Tensor[f32, a]:
        s, t, u = ops.sum(x, axis=1), ops.sum(y, axis=1), ops.sum(z, axis=1)
        box = ops.exp(ops.reshape(s, (a, 1, 1)) + ops.reshape(t, (b, 1)) + u)
        return ops.sum(box, axis=(1, 2)) / ops.max(box, axis=(1, 2))

    executable = compiled(f.graph)
    np.testing.assert_allclose(executable(*(np.zeros((size, 0), np.float32) for size in (2, 3, 4))), [12, 12])
    huge = np.zeros((2**31 - 1, 0), np.float32)
    with pytest.raises(ShapeError, match=r"the temporary .* would have more than 2\*\*40 elements"):
        executable(huge, huge, huge)


# Poison mode finds what it is for.


def test_poison_shows_a_plan_that_reuses_memory_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    @function
    def f(x: Tensor[f32, n, 8], w: Tensor[f32, 8, 8]) -> Tensor[f32, n, 8]:
        h = x @ w
        return ops.softmax(h @ w) @ w + h

    from pliant.lower.host import host
    from pliant.lower.host.memory_plan import Plan, plan_memory

    def careless(temporaries: Any, share: bool, relations: Any) -> Plan:
        plan = plan_memory(temporaries, share, relations)
        return Plan(tuple(plan.offsets[0] for _ in plan.offsets), plan.size)

    x, w = random(3, 8), random(8, 8, seed=1)
    assert np.isfinite(compiled(f.graph, poison=True)(x, w)).all()
    monkeypatch.setattr(host, "plan_memory", careless)
    assert np.isnan(compiled(f.graph, poison=True)(x, w)).any()


def test_poison_shows_what_nobody_wrote() -> None:
    @kernel
    def half_written(x: Tensor[f32, n], y: Out[f32, n]) -> None:
        for i in range(n // 2):
            y[i] = x[i]

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return half_written(x) + 1.0

    x = random(6)
    found = compiled(f.graph, poison=True)(x)
    np.testing.assert_array_equal(found[:3], x[:3] + 1)
    assert np.isnan(found[3:]).all()


# Names of outputs.


def test_outputs_are_named_after_what_is_returned() -> None:
    @function
    def f(x: Tensor[f32, n], total: State[f32, n]) -> tuple[Tensor[f32, n], State[f32, n], Tensor[f32, n], Tensor[f32, n]]:
        y = x * 2.0
        y = y + 1.0
        total = add_to(x, total)
        return y, total, x + y, y

    executable = compiled(f.graph)
    assert [o.name for o in executable.outputs] == ["y", "total", "result_2", "result_3"]
    assert list(executable.run({"x": random(3), "total": random(3)})) == ["y", "total", "result_2", "result_3"]
    again = pliant.parse(str(pliant.Program.of(f.graph)))
    assert [o.name for o in pliant.compile(again).outputs] == ["y", "total", "result_2", "result_3"]


def test_a_single_result_that_has_no_name_or_that_of_an_argument() -> None:
    @function
    def plain(x: Tensor[f32, n]) -> Tensor[f32, n]:
        return x + 1.0

    @function
    def again(x: Tensor[f32, n]) -> Tensor[f32, n]:
        x = x + 1.0
        return x  # noqa: RET504  a name that an argument has

    @function
    def taken(result: Tensor[f32, n]) -> Tensor[f32, n]:
        return result + 1.0

    assert [compiled(f.graph).outputs[0].name for f in (plain, again, taken)] == ["result", "result", "result_1"]


def test_names_of_outputs_are_part_of_what_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIANT_CACHE", str(tmp_path))

    @function
    def f(x: Tensor[f32, n]) -> Tensor[f32, n]:
        first = x + 3.0
        return first  # noqa: RET504  its name is what is tested

    @function
    def g(x: Tensor[f32, n]) -> Tensor[f32, n]:
        second = x + 3.0
        return second  # noqa: RET504

    names = [pliant.compile(k.graph.with_(name="h")).outputs[0].name for k in (f, g)]
    assert names == ["first", "second"]


def test_a_shape_below_zero_is_refused() -> None:
    short = dim("short", max=64)

    @kernel
    def cut(x: Tensor[f32, short], y: Out[f32, short - 4]) -> None:
        for i in range(short - 4):
            y[i] = x[i]

    f = pliant.compile(cut)
    np.testing.assert_array_equal(f(np.arange(6, dtype=np.float32)), [0, 1])
    assert f(np.zeros(4, np.float32)).shape == (0,)
    with pytest.raises(ShapeError, match=r"dim 0 of output `y` would be -1 \(`short - 4`\)"):
        f(np.zeros(3, np.float32))
