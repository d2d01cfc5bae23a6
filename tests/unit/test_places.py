"""Values that lie in the memory of others: what is concatenated is written in place, what is sliced is read in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pliant
from compiled_graphs import compiled, host_of, interpret_host, without
from pliant import InOut, Out, State, Tensor, block, dim, f32, function, grid, kernel, ops
from pliant.graph.node import CallLoop
from pliant.lower.host.host import HostProgram
from unit.test_plan import check_plan

n, m = dim("n"), dim("m")
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
Array = np.ndarray[Any, Any]


def normal(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def join(*parts: Array, axis: int = 0) -> Array:
    return np.concatenate(parts, axis)


def check(f: Any, arguments: list[Array], expected: Array, launches: int, copies: int = 0) -> HostProgram:
    """A function gives what is expected, bit for bit what it gives with copies, by so many launches on the way that is taken."""
    given = [*arguments, W]
    found, copied = (interpret_host(h, given)[0] for h in (host_of(f.graph, poison=True), host_of(f.graph, without("copy_elision"))))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert found.tobytes() == copied.tobytes()
    host = host_of(f.graph)
    way = host.launches[0 if len(host.launches) == 1 or arguments[0].shape[0] == 1 else 1]
    assert (sum(node is not None for node in way), way.count(None)) == (launches, copies)
    check_plan(host.temporaries)
    return host


@function
def rows(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n + m, 4]:
    return ops.concat([x @ w, y @ w], axis=0) @ w


@pytest.mark.parametrize(("a", "b"), [(3, 4), (0, 2), (2, 0), (1, 1), (7, 1)])
def test_rows_are_written_where_a_concat_has_them(a: int, b: int) -> None:
    x, y = normal((a, 4), (b, 4))
    assert len(check(rows, [x, y], join(x @ W, y @ W) @ W, 3).launches) == 1


@function
def channels(x: Tensor[f32, n, 3, 4], y: Tensor[f32, n, 2, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n, 5, 4]:
    return ops.concat([x @ w, y @ w], axis=1) @ w


@pytest.mark.parametrize(("batch", "launches"), [(1, 3), (2, 4), (0, 4)])
def test_channels_of_one_image_are_ranges_and_those_of_several_are_not(batch: int, launches: int) -> None:
    x, y = normal((batch, 3, 4), (batch, 2, 4))
    assert len(check(channels, [x, y], join(x @ W, y @ W, axis=1) @ W, launches).launches) == 2


def test_both_ways_of_a_compiled_program_need_the_memory_that_they_say() -> None:
    f, g = compiled(channels.graph, poison=True), compiled(channels.graph, without("copy_elision"))
    for batch in (0, 1, 2, 3):
        x, y = normal((batch, 3, 4), (batch, 2, 4))
        assert f(x, y, W).tobytes() == g(x, y, W).tobytes()
    assert f.workspace(n=1) < g.workspace(n=1)
    assert f.workspace(n=2) == g.workspace(n=2)


@function
def taken_apart(x: Tensor[f32, 1, 6, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, 1, 9, 4]:
    a = x @ w
    b = a[:, 3:]
    return ops.concat([a[:, :3], b, b @ w], axis=1) @ w


def test_both_halves_of_a_value_are_the_whole_of_it() -> None:
    (x,) = normal((1, 6, 4))
    a = x @ W
    host = check(taken_apart, [x], join(a, a[:, 3:] @ W, axis=1) @ W, 3)
    assert [int(t.bytes.value) for t in host.temporaries if int(t.bytes.value) == 9 * 4 * 4]  # type: ignore[attr-defined]


@function
def half(x: Tensor[f32, 1, 6, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, 1, 9, 4]:
    a = x @ w
    b = a[:, 3:] @ w
    return ops.concat([a[:, 1:4], b, b @ w], axis=1) @ w


def test_a_part_of_a_value_is_copied_into_a_result() -> None:
    (x,) = normal((1, 6, 4))
    a = x @ W
    b = a[:, 3:] @ W
    check(half, [x], join(a[:, 1:4], b, b @ W, axis=1) @ W, 4, copies=1)


@function
def nested(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n + m + n, 4]:
    inner = ops.concat([x @ w, y @ w], axis=0)
    return ops.concat([inner, inner[:n] @ w], axis=0) @ w


def test_a_concat_of_a_concat() -> None:
    x, y = normal((2, 4), (3, 4))
    check(nested, [x, y], join(x @ W, y @ W, x @ W @ W) @ W, 4)


@function
def twice(x: Tensor[f32, n, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n + n, 4]:
    a = x @ w
    return ops.concat([a, a], axis=0) @ w


def test_the_same_tensor_twice_is_copied_once() -> None:
    (x,) = normal((4, 4))
    check(twice, [x], join(x @ W, x @ W) @ W, 2, copies=1)


@function
def with_input(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n + m, 4]:
    return ops.concat([x, y @ w], axis=0) @ w


def test_an_input_is_copied_into_its_part() -> None:
    x, y = normal((4, 4), (2, 4))
    check(with_input, [x, y], join(x, y @ W) @ W, 2, copies=1)


@function
def to_result(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n + m, 4]:
    return ops.concat([x @ w, y @ w], axis=0)


def test_parts_of_a_result_are_written_into_it() -> None:
    x, y = normal((4, 4), (2, 4))
    check(to_result, [x, y], join(x @ W, y @ W), 2)


@function
def reshaped(x: Tensor[f32, n, 2, 4], y: Tensor[f32, m, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, 2 * n + m, 4]:
    return ops.concat([ops.reshape(x @ w, [2 * n, 4]), y @ w], axis=0) @ w


def test_a_value_lies_in_place_under_another_shape() -> None:
    x, y = normal((4, 2, 4), (2, 4))
    check(reshaped, [x, y], join((x @ W).reshape(-1, 4), y @ W) @ W, 3)


@function
def two_results(x: Tensor[f32, n, 4], y: Tensor[f32, m, 4], w: Tensor[f32, 4, 4]) -> tuple[Tensor[f32, n + m, 4], Tensor[f32, n, 4]]:
    a = x @ w
    return ops.concat([a, y @ w], axis=0) @ w, a


def test_a_part_that_is_a_result_itself_is_copied() -> None:
    x, y = normal((4, 4), (2, 4))
    host = check(two_results, [x, y], join(x @ W, y @ W) @ W, 3, copies=1)
    np.testing.assert_allclose(interpret_host(host, [x, y, W])[1], x @ W, rtol=1e-4, atol=1e-5)


@function
def unlike(x: Tensor[f32, n, 4], y: Tensor[f32, n, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n, 4]:
    return ops.concat([x @ w, y @ w], axis=1)[:, 2:6] @ w


def test_columns_of_several_rows_are_no_ranges() -> None:
    x, y = normal((3, 4), (3, 4))
    check(unlike, [x, y], join(x @ W, y @ W, axis=1)[:, 2:6] @ W, 4)


@kernel
def double(s: InOut[f32, 4, 4]) -> None:
    for i, j in grid(4, 4):
        with block("double", "SS", i, j) as (vi, vj):
            s[vi, vj] = s[vi, vj] * 2.0


@function
def of_state(s: State[f32, 4, 4], w: Tensor[f32, 4, 4]) -> tuple[Tensor[f32, 2, 4], State[f32, 4, 4]]:
    part = s[2:]
    s = double(s)
    return part @ w, s


def test_a_part_of_state_is_what_it_was_before_an_update() -> None:
    (s,) = normal((4, 4))
    before = s.copy()
    found = interpret_host(host_of(of_state.graph, poison=True), [s, W])[0]
    np.testing.assert_allclose(found, before[2:] @ W, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(s, before * 2)


@kernel(scheduled=True)
def reverse(x: Tensor[f32, n, 4], y: Out[f32, n, 4]) -> None:
    for i in range(n):
        for j in range(4):
            y[n - 1 - i, j] = x[i, j]


@function
def by_hand(x: Tensor[f32, n, 4], w: Tensor[f32, 4, 4]) -> Tensor[f32, n, 4]:
    return reverse(x @ w) @ w


def test_a_program_that_was_scheduled_by_hand_runs() -> None:
    (x,) = normal((5, 4))
    host = check(by_hand, [x], (x @ W)[::-1] @ W, 3)
    assert [c.callee.name for c in host.launches[0] if isinstance(c, CallLoop)][1] == "reverse"


@pytest.mark.parametrize(("batch", "kernels"), [(1, ["matmul"] * 3), (2, ["matmul", "matmul", "concat", "matmul"])])
def test_a_profile_knows_the_way_that_was_taken(batch: int, kernels: list[str]) -> None:
    found = pliant.compile(channels).profile(*normal((batch, 3, 4), (batch, 2, 4)), W)
    assert [x.kernel for x in found.launches] == kernels
    assert all(x.operations is not None for x in found.launches)
